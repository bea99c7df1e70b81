"""Trained policies in files: read back bit for bit, refused whatever else is in the file, played wherever they may."""

import json
import pickle

import gymnasium as gym
import numpy as np
import pytest
import torch
from messages import mentions

import kineticsim_env as ks
from kineticsim_env import policies
from kineticsim_env.evaluation import evaluate, evaluation_env
from kineticsim_env.policies.policy_files import KEY
from kineticsim_env.policies.saved import MOST_BYTES, SavedPolicy
from kineticsim_env.zoo import SCRIPTED, make_scripted, scripted, trained

files = pytest.importorskip("safetensors.numpy", reason="pip install 'kineticsim-env[zoo]'")

SHORT = {"engine": "cpu", "horizon": 12, "bank_size": 4}
TOLD = {"task": "market_making", "preset": "news", "command": "python train.py --seed 1", "commit": "0123abc"}
TOLD |= {"licence": "Apache-2.0", "figures": {"mean": 1015.5, "half width": 113}}


def shaken(policy, seed=0):
    """Give every number of a network a value of its own."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in policy.parameters():
            tensor.copy_(torch.randn(tensor.shape, generator=generator) * 0.2)
    return policy


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """What is in a file of a policy."""
    path = tmp_path_factory.mktemp("written") / "mine.safetensors"
    shaken(ks.NetworkPolicy.make(39, 4)).save(path, **TOLD)
    return path.read_bytes()


@pytest.fixture
def path(tmp_path, written):
    """A file of a policy."""
    (tmp_path / "mine.safetensors").write_bytes(written)
    return tmp_path / "mine.safetensors"


@pytest.fixture
def zoo(tmp_path, monkeypatch):
    """A folder in the place of the package's, with policies of two seeds, and of discrete actions."""
    folder = tmp_path / "zoo" / "news" / "market_making"
    folder.mkdir(parents=True)
    for seed, name in ((1, "ppo"), (2, "ppo-2")):
        shaken(ks.NetworkPolicy.make(39, 4), seed).save(folder / f"{name}.safetensors", **TOLD)
    choices = shaken(ks.NetworkPolicy.make(39, 49, categorical=True))
    choices.save(folder / "ppo_discrete.safetensors", **TOLD)
    monkeypatch.setattr("kineticsim_env.zoo.trained_policies.FOLDER", tmp_path / "zoo")
    return folder


# Files ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hidden", [64, 128])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize(("trunk", "categorical", "critic"), [(0, 0, 1), (1, 0, 1), (0, 1, 1), (1, 1, 0), (0, 0, 0)])
def test_a_policy_is_read_back_bit_for_bit(tmp_path, hidden, activation, trunk, categorical, critic):
    kind = {"hidden": hidden, "activation": activation, "trunk": bool(trunk), "categorical": bool(categorical)}
    policy = ks.NetworkPolicy.make(39, 5, **kind)
    if not critic:
        policy = ks.NetworkPolicy(policy.actor, trunk=policy.trunk, log_std=policy.log_std)
    shaken(policy).save(tmp_path / "a.safetensors", **TOLD)
    state = torch.get_rng_state()
    found = ks.load_policy(tmp_path / "a.safetensors")
    assert torch.equal(state, torch.get_rng_state())
    assert found.network.shape == policy.shape
    wanted, got = policy.state_dict(), found.network.state_dict()
    assert list(wanted) == list(got) and all(torch.equal(wanted[name], got[name]) for name in wanted)
    told = found.told
    assert {name: getattr(told, name) for name in TOLD} == TOLD and told.role == "maker"
    assert found.action_type == ("discrete" if categorical else "continuous")
    observation = torch.randn(7, 39)
    assert torch.equal(found(observation), policy.act(observation))
    found.network.save(tmp_path / "b.safetensors", **TOLD)
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()
    assert (tmp_path / "a.safetensors").stat().st_size < MOST_BYTES


def test_the_largest_network_fits(tmp_path):
    ks.NetworkPolicy.make(127, 64, hidden=128).save(tmp_path / "a.safetensors", **TOLD)
    assert ks.load_policy(str(tmp_path / "a.safetensors")).network.shape.inputs == 127


def test_a_small_policy_is_of_tens_of_kilobytes(path):
    assert path.stat().st_size < 64_000


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"task": "MarketMaking"}, "task: expected one of 'market_making', 'execution', 'trading', got 'MarketMaking'"),
        ({"preset": "x"}, "preset: expected one of .*, got 'x'"),
        ({"command": None}, "command: expected a text, got None"),
        ({"figures": {"mean": float("nan")}}, "figures: expected finite numbers by name, got 'mean': nan"),
        ({"figures": {1: 2.0}}, "figures: expected finite numbers by name, got 1: 2.0"),
        ({"figures": [1]}, "figures: expected a dict of finite numbers by name, got [1]"),
        ({"path": "mine.pt"}, "path: expected a name that ends in .safetensors, got 'mine.pt'"),
        ({"path": "no/mine.safetensors"}, "path: expected a file, got 'no/mine.safetensors', and there is no folder"),
    ],
)
def test_what_is_told_wrongly_is_named_and_nothing_written(changes, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = {"path": "mine.safetensors", **TOLD, **changes}
    with pytest.raises((TypeError, ValueError)) as caught:
        ks.NetworkPolicy.make(39, 4).save(**given)
    assert mentions(str(caught.value), said, begins=True) and not list(tmp_path.iterdir())


def test_weights_that_are_not_finite_are_not_written(tmp_path):
    policy = ks.NetworkPolicy.make(39, 4)
    with torch.no_grad():
        policy.log_std[0] = float("inf")
    with pytest.raises(ValueError, match="^log_std: expected finite numbers"):
        policy.save(tmp_path / "a.safetensors", **TOLD)
    assert not list(tmp_path.iterdir())


# Hostile files --------------------------------------------------------------------------------------------------------


def refusal(path):
    """Return what is said of a file that is refused: in one line, which names it."""
    with pytest.raises(ValueError) as caught:
        ks.load_policy(path)
    words = str(caught.value)
    assert mentions(words, f"{str(path)!r}: expected a file that NetworkPolicy.save has written: ", begins=True)
    assert "\n" not in words and len(words) < 1200
    return words


def rewritten(path, change=None, tensors=None, key=KEY):
    """Write the file anew, with what it says changed, or its tensors."""
    content = path.read_bytes()
    says = json.loads(json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"][KEY])
    arrays = files.load(content)
    if tensors is not None:
        tensors(arrays)
    text = change(says) if change is not None else None
    path.write_bytes(files.save(arrays, metadata={key: text if isinstance(text, str) else json.dumps(says)}))
    return path


def test_every_truncation_is_refused(path):
    whole = path.read_bytes()
    for length in (0, 1, 7, 8, 9, 100, 1000, len(whole) // 2, len(whole) - 4, len(whole) - 1):
        path.write_bytes(whole[:length])
        assert "damaged, or no safetensors file" in refusal(path)
    path.write_bytes(whole + b"\0")
    refusal(path)


@pytest.mark.parametrize("size", [2**63 - 1, 2**64 - 1, 100_000_001, 1 << 30])
def test_a_header_that_says_it_is_huge_is_refused(path, size):
    path.write_bytes(size.to_bytes(8, "little") + path.read_bytes()[8:])
    refusal(path)


def test_a_huge_file_is_not_read(path):
    with path.open("r+b") as file:
        file.truncate(1 << 36)  # of holes
    assert f"it has more than {MOST_BYTES} bytes" in refusal(path)
    rewritten_header = json.dumps({"__metadata__": {KEY: "x" * (2 * MOST_BYTES)}}).encode()
    path.write_bytes(len(rewritten_header).to_bytes(8, "little") + rewritten_header)
    assert f"it has more than {MOST_BYTES} bytes" in refusal(path)


class Explodes:
    """Raises when it is unpickled."""

    def __reduce__(self):
        return (pytest.fail, ("the file was unpickled",))


def test_nothing_is_ever_unpickled(path):
    path.write_bytes(pickle.dumps(Explodes()))
    refusal(path)
    torch.save({"actor.0.weight": torch.zeros(64, 39), "x": Explodes()}, path)
    refusal(path)


@pytest.mark.parametrize("content", [b"x" * 1000, b"\0" * 1000, b"\xff" * 1000, b'{"a": 1}' * 50])
def test_what_is_no_safetensors_file_is_refused(path, content):
    path.write_bytes(content)
    refusal(path)


def test_random_damage_is_refused_or_is_another_number(path):
    """Whatever byte is changed: a ValueError, or finite numbers of the same shape."""
    whole, random = path.read_bytes(), np.random.default_rng(0)
    header = 8 + int.from_bytes(whole[:8], "little")
    for trial in range(200):
        damaged = bytearray(whole)
        for place in random.integers(0, header if trial % 4 else len(whole), random.integers(1, 4)):
            damaged[place] = random.integers(256)
        path.write_bytes(damaged)
        try:
            found = ks.load_policy(path)
        except ValueError as error:
            assert str(error).startswith(repr(str(path)))
        else:
            assert all(bool(tensor.isfinite().all()) for tensor in found.network.state_dict().values())


def replace(name, make):
    """Return a change of tensors: one of them is made anew."""
    return lambda arrays: arrays.__setitem__(name, make(arrays[name]))


def with_nan(array):
    array = array.copy()
    array.flat[3] = np.nan
    return array


TENSORS = {
    "actor.0.weight: expected float32 [64, 39], got float64": replace("actor.0.weight", lambda a: a.astype("f8")),
    "actor.2.weight: expected float32 [64, 64], got float16": replace("actor.2.weight", lambda a: a.astype("f2")),
    "actor.0.bias: expected float32 [64], got int32 [64]": replace("actor.0.bias", lambda a: a.astype("i4")),
    "critic.4.bias: expected float32 [1], got float32 []": replace("critic.4.bias", lambda a: a.reshape(())),
    "actor.0.weight: expected float32 [64, 39], got float32 [39, 64]": replace(
        "actor.0.weight", lambda a: np.ascontiguousarray(a.T)
    ),
    "log_std: expected float32 [4], got float32 [5]": replace("log_std", lambda a: np.zeros(5, "f4")),
    "critic.2.weight: expected finite numbers": replace("critic.2.weight", with_nan),
    "log_std: expected finite numbers": replace("log_std", lambda a: a + np.float32(np.inf)),
    "tensors: expected log_std, actor.0.weight": lambda arrays: arrays.pop("log_std"),
    "tensors: expected .*, got actor.0.bias, .*extra": lambda arrays: arrays.__setitem__("extra", np.zeros(1, "f4")),
    "tensors: expected .*, got none": lambda arrays: arrays.clear(),
}


@pytest.mark.parametrize("said", TENSORS)
def test_tensors_that_are_not_the_network_s_are_named(path, said):
    assert mentions(refusal(rewritten(path, tensors=TENSORS[said])), said)


def test_numbers_that_numpy_has_not_are_refused(path):
    """Bfloat16, by the header alone."""
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header["log_std"] |= {"dtype": "BF16", "shape": [8]}
    text = json.dumps(header, separators=(",", ":")).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + size :])
    refusal(path)


def put(where, name, value):
    """Return a change of what a file says."""
    return lambda says: (says[where] if where else says).__setitem__(name, value)


SAYS = [
    (put("", "form", 2), "form: expected 1, got 2"),
    (put("", "more", 2), "kineticsim_env.policy: expected form, network, told, got .*more"),
    (put("", "network", []), "network: expected activation, .*, got 'list'"),
    (put("network", "hidden", 96), "hidden: expected 64 or 128, got 96"),
    (put("network", "hidden", [64]), "hidden: expected 64 or 128, got [64]"),
    (put("network", "hidden", 10**9), "hidden: expected 64 or 128, got 1000000000"),
    (put("network", "hidden", 128), "actor.0.weight: expected float32 [128, 39], got float32 [64, 39]"),
    (put("network", "inputs", 10**9), "inputs: expected 1 to 127, got 1000000000"),
    (put("network", "inputs", 10**400), "inputs: expected 1 to 127, got 1"),
    (put("network", "inputs", "39"), "inputs: expected a whole number from 1, got '39'"),
    (put("network", "outputs", 0), "outputs: expected 1 to 64, got 0"),
    (put("network", "outputs", True), "outputs: expected a whole number from 1, got True"),
    (put("network", "activation", "eval"), "activation: expected one of 'tanh', 'relu', got 'eval'"),
    (put("network", "trunk", 1), "trunk: expected True or False, got 1"),
    (put("network", "categorical", True), "tensors: expected "),
    (put("network", "more", True), "network: expected .*, got .*more"),
    (put("told", "task", "chess"), "task: expected one of 'market_making', .*, got 'chess'"),
    (put("told", "task", {}), "task: expected one of .*, got {}"),
    (put("told", "preset", "mars"), "preset: expected one of .*, got 'mars'"),
    (put("told", "licence", 3), "licence: expected a text, got 3"),
    (put("told", "figures", {"mean": "good"}), "figures: expected finite numbers by name, got 'mean': 'good'"),
    (put("told", "figures", {"mean": float("inf")}), "figures: expected finite numbers by name, got 'mean': inf"),
    (put("told", "figures", {"mean": 10**400}), "figures: expected finite numbers by name"),
    (put("told", "figures", None), "figures: expected a dict of finite numbers by name, got None"),
    (lambda says: "{", "its 'kineticsim_env.policy' is no JSON"),
    (lambda says: "[" * 100_000, "its 'kineticsim_env.policy' is no JSON"),
    (lambda says: "9" * 10_000, "its 'kineticsim_env.policy' is no JSON"),
    (lambda says: "3", "kineticsim_env.policy: expected form, network, told, got 'int'"),
]


@pytest.mark.parametrize(("change", "said"), SAYS, ids=[said for _, said in SAYS])
def test_what_a_file_says_is_checked(path, change, said):
    assert mentions(refusal(rewritten(path, change)), said)


def test_another_s_safetensors_file_is_refused(path):
    assert "its header has no 'kineticsim_env.policy'" in refusal(rewritten(path, key="format"))
    path.write_bytes(files.save({"weight": np.zeros(3, "f4")}))
    assert "its header has no 'kineticsim_env.policy'" in refusal(path)


def test_what_is_no_file_is_refused(tmp_path):
    assert "there is no such file" in refusal(tmp_path / "none.safetensors")
    assert "there is no such file" in refusal(tmp_path)
    assert "there is no such file" in refusal("/dev/null.safetensors")


# Names ----------------------------------------------------------------------------------------------------------------


def test_names_are_those_of_files_in_the_package(zoo):
    names = [f"news/market_making/{name}" for name in ("ppo", "ppo-2", "ppo_discrete")]
    assert list(trained()) == names == list(trained("news/market_making/")) and not trained("trading/")
    first, second, _ = map(ks.load_policy, names)
    assert repr(first) == "SavedPolicy('news/market_making/ppo')"
    assert not torch.equal(first(torch.ones(2, 39)), second(torch.ones(2, 39)))


@pytest.mark.parametrize("name", ["ppo", "news/market_making/ppo-9", "../zoo/news/market_making/ppo", "", "\0"])
def test_an_unknown_name_is_answered_with_the_known_ones(zoo, name):
    with pytest.raises(ValueError) as caught:
        ks.load_policy(name)
    known = "news/market_making/ppo, news/market_making/ppo-2, news/market_making/ppo_discrete"
    assert str(caught.value) == (
        f"name: expected a file *.safetensors, or one of this package's policies ({known}), got {name!r}"
    )


@pytest.mark.parametrize("name", [None, 3, b"ppo", ["ppo"]])
def test_what_is_no_name_is_refused(name):
    with pytest.raises(TypeError, match="^name: expected the name of a policy or a path, got"):
        ks.load_policy(name)


def test_policies_of_the_package_say_all_there_is_to_say():
    for name in trained():
        policy = ks.load_policy(name)
        assert name.startswith(f"{policy.told.preset}/{policy.told.task}/")
        assert policy.told.command and policy.told.commit and policy.told.licence and policy.told.figures


# Play -----------------------------------------------------------------------------------------------------------------


def test_it_is_called_as_scripted_policies_are(path):
    policy, envs = ks.load_policy(path), evaluation_env(6, **SHORT)
    result = evaluate(policy, envs)
    assert result.pnl.tolist() == evaluate(policy.network.act, envs).pnl.tolist() and result.traded.any()
    with pytest.raises(ValueError, match=r"observation: expected a tensor float32 \[M, 39\] .* got"):
        policy(torch.zeros(2, 38))
    with pytest.raises(TypeError, match="observation: expected"):
        policy(np.zeros((2, 39), "f4"))


@pytest.mark.parametrize("name", ["ppo", "ppo_discrete"])
def test_noise_is_drawn_by_seed_and_spreads_as_in_training(zoo, name):
    name = f"news/market_making/{name}"
    observation = torch.randn(1, 39).expand(4000, 39)
    one, same, other = (ks.load_policy(name, noise=True, seed=seed) for seed in (1, 1, 2))
    first, again = one(observation), one(observation)
    assert torch.equal(first, same(observation)) and not torch.equal(first, other(observation))
    assert not torch.equal(first, again)
    outputs = one.network(observation[:1])[0][0]
    if one.action_type == "continuous":
        expected = (outputs + one.network.log_std.exp() * torch.randn(100_000, 4)).clamp(-1, 1)
        assert torch.allclose(first.mean(0), expected.mean(0), atol=0.06) and first.dtype == torch.float32
        assert torch.allclose(first.std(0), expected.std(0), atol=0.05)
    else:
        shares = torch.bincount(first, minlength=49) / 4000
        assert torch.allclose(shares, outputs.softmax(0), atol=0.03) and first.dtype == torch.int64


def test_it_plays_rollouts(path):
    policy = ks.load_policy(path)
    envs = gym.make_vec("KineticSim/MarketMaking-v0", num_envs=4, output="torch", engine="cpu", horizon=12, bank_size=4)
    envs.reset(seed=3)
    played = envs.unwrapped.rollout(policy, 5, noise=False)
    envs.reset(seed=3)
    assert torch.equal(played.reward, envs.unwrapped.rollout(policy.network, 5, noise=False).reward)


def test_it_plays_discrete_actions(zoo):
    policy = ks.load_policy("news/market_making/ppo_discrete")
    assert evaluate(policy, evaluation_env(4, action_type="discrete", **SHORT)).traded.any()


def test_opponents_are_named(zoo):
    name = "news/market_making/ppo"
    same = ks.load_policy(name).network.act
    made = [evaluation_env(6, opponents={"maker": [opponent]}, **SHORT) for opponent in (name, same)]
    results = [evaluate(policies.FixedSpread(envs.core.task), envs) for envs in made]
    assert results[0].pnl.tolist() == results[1].pnl.tolist()
    alone = evaluate(policies.FixedSpread(made[0].core.task), evaluation_env(6, **SHORT))
    assert results[0].pnl.tolist() != alone.pnl.tolist()
    envs = evaluation_env(6, opponents={"maker": [[name, "news/market_making/ppo-2"], [name]]}, **SHORT)
    assert all(isinstance(one, SavedPolicy) for slot in envs.core.opponents.opponent_slots for one in slot.policies)
    envs.set_opponents({"maker": [[name], ["news/market_making/ppo-2"]]})
    evaluate(policies.FixedSpread(envs.core.task), envs)


def test_the_markets_of_named_opponents_can_be_made_again_from_a_spec(zoo):
    given = {"opponents": {"maker": ["news/market_making/ppo"]}, **SHORT}
    envs = gym.make_vec("KineticSim/MarketMaking-v0", num_envs=2, **given)
    again = gym.make_vec(gym.envs.registration.EnvSpec.from_json(envs.spec.to_json()), num_envs=2)
    assert again.unwrapped.core.opponents.opponent_slots[0].policies[0].name == "news/market_making/ppo"


@pytest.mark.parametrize(
    ("opponents", "said"),
    [
        (
            {"maker": ["ppo"]},
            "opponents['maker'][0]: expected a file *.safetensors, or .*(news/market_making/ppo, ",
        ),
        ({"maker": [["news/market_making/ppo", "x"]]}, "opponents['maker'][0][1]: expected a file .*, got 'x'"),
        (
            {"trader": ["news/market_making/ppo"]},
            "opponents['trader'][0]: expected a policy of the role trader, got news/market_making/ppo, of maker",
        ),
        ({"maker": [3]}, "opponents['maker'][0]: expected a policy: a function of observations .*, got 3"),
    ],
)
def test_opponents_that_there_are_not_are_named(zoo, opponents, said):
    with pytest.raises((TypeError, ValueError)) as caught:
        evaluation_env(2, opponents=opponents, **SHORT)
    assert mentions(str(caught.value), said, begins=True)


# Scripted policies ----------------------------------------------------------------------------------------------------


def test_scripted_policies_are_found_by_task_and_preset():
    found = scripted("MarketMaking", "news")
    entry = json.loads(SCRIPTED.read_text())["MarketMaking, news"]["policies"]
    assert found == entry and not scripted("MarketMaking", "paper")
    task = ks.MarketMakingTask()
    assert make_scripted(found["fixed spread"], task) == policies.FixedSpread(task, half_spread=2, qty=8)
    with pytest.raises(ValueError, match="^task: expected one of"):
        scripted("maker", "news")
    with pytest.raises(ValueError, match="^policy: expected a class of kineticsim_env.policies, got 'eval'"):
        make_scripted({"policy": "eval", "parameters": {}}, task)
