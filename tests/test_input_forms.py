"""What users hand over in any form: order, strides, byte order, ownership, alignment, aliasing. Values alone count."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from markets import FEW_ORDERS
from thorough import covering

import kineticsim_env as ks
from scripts.fuzz import shapes
from scripts.fuzz.tampering import replacements
from scripts.fuzz.values import wrong_tensors

SMALL = {"config": FEW_ORDERS, "bank_size": 2, "warmup": 3, "horizon": 9}
MEMORY_STAYS = {"resize_(half)", "t_()", "unsqueeze_", "as_strided_"}
every_engine = pytest.mark.parametrize("engine", ["cpu", "numpy", pytest.param("cuda", marks=pytest.mark.gpu)])


every_form = pytest.mark.parametrize("form", sorted(shapes.TAKEN | shapes.ALSO_TAKEN))


def in_form(form, values, engine):
    """The values in a form, tensors on the engine's device, arrays and lists on the host; and what they then are."""
    given, plain, _ = shapes.make(form, values, shapes.Furthest())
    if engine == "cuda" and isinstance(given, torch.Tensor):
        room = torch.empty(0, dtype=given.dtype).set_(given.detach().untyped_storage())
        given = room.cuda().as_strided(given.shape, given.stride(), given.storage_offset())
    return given, plain


@every_engine
@every_form
def test_quotes(engine, form):
    rng = np.random.default_rng(3)
    quotes = rng.integers(0, 6, (5, 4, 3, 4)).astype(np.int32) + np.array([60, 0, 63, 0], np.int32)
    wanted, sim = (ks.Simulator(num_markets=4, slots=3, engine=name) for name in ("numpy", engine))
    for decision in quotes:
        given, plain = in_form(form, decision, engine)
        assert torch.equal(sim.step(given).cpu(), wanted.step(plain))
    given, plain = in_form(form, quotes, engine)
    one, two = sim.rollout(given, 2), wanted.rollout(plain, 2)
    assert torch.equal(one.fills.cpu(), two.fills) and torch.equal(one.value.cpu(), two.value)
    assert one.fills.any() or not np.array_equal(plain, quotes)
    for name, tensor in wanted.tensors.items():
        assert torch.equal(sim.tensors[name].cpu(), tensor), name


@covering
@pytest.mark.parametrize("engine", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("task", ["MarketMaking", "Execution", "Trading"])
@pytest.mark.parametrize("action_type", ["continuous", "discrete"])
@every_form
def test_actions(engine, task, action_type, form):
    """Those that are not C-ordered were scrambled: `np.array(given)` keeps the order."""
    output, block = "torch" if engine == "cuda" else "numpy", {"block_qty": 9} if task == "Execution" else {}
    make = lambda name: gym.make_vec(  # noqa: E731
        f"KineticSim/{task}-v0", num_envs=6, engine=name, action_type=action_type, **SMALL, **block, output=output
    )
    if engine == "cuda" and form not in shapes.TENSORS:
        output = "numpy"
    wanted, envs = make("numpy"), make(engine)
    for env in (wanted, envs):
        env.reset(seed=4)
    wanted.action_space.seed(1)
    for _ in range(6):
        given, plain = in_form(form, np.asarray(wanted.action_space.sample()), engine)
        theirs, ours = wanted.step(torch.from_numpy(plain) if output == "torch" else plain), envs.step(given)
        for one, two in zip(ours[:4], theirs[:4], strict=True):
            np.testing.assert_array_equal(torch.as_tensor(one).cpu(), torch.as_tensor(two).cpu())


@every_engine
@every_form
def test_masks_and_seeds(engine, form):
    """A mask with strides reset other markets, and an expanded one read out of bounds."""
    some, several = np.array([True, False, False, True, True, False]), np.array([5, 2**40, -3, 7, 7, 0])
    wanted, sim = (ks.Simulator(num_markets=6, slots=1, engine=name) for name in ("numpy", engine))
    for simulator in (wanted, sim):
        simulator.run(3)
    for which, seed in ((some, None), (some, several), (None, several[::-1].copy())):
        given = [(None, None) if part is None else in_form(form, part, engine) for part in (which, seed)]
        for simulator, (mask, seeds) in zip((sim, wanted), zip(*given, strict=True), strict=True):
            simulator.reset(mask=mask, seed=seeds)
        for name, tensor in wanted.tensors.items():
            assert torch.equal(sim.tensors[name].cpu(), tensor), name
        sim.run(2)
        wanted.run(2)


@every_engine
def test_an_expanded_mask_and_one_of_a_column(engine):
    envs = ks.BatchedParallelEnv(
        8, {"maker": 2}, engine=engine, autoreset_mode="disabled", stagger=False, **{**SMALL, "horizon": 3}
    )
    envs.reset(seed=0)
    actions = {"maker": torch.zeros(8, 2, 4, device=envs.device)}
    for _ in range(3):
        _, _, _, truncated, _ = envs.step(actions)
    half = truncated["maker"] & (torch.arange(8, device=envs.device) < 4)[:, None]
    envs.reset(options={"reset_mask": half[:, 0]})  # the natural mask, of stride 2
    assert envs.core.tensors["elapsed"].tolist() == [0] * 4 + [3] * 4
    envs.reset(options={"reset_mask": torch.ones(1, dtype=torch.bool, device=envs.device).expand(8)})
    assert envs.core.tensors["elapsed"].tolist() == [0] * 8


@every_engine
def test_a_bool_may_have_any_byte(engine):
    sim = ks.Simulator(num_markets=4, engine=engine)
    sim.run(2)
    odd = torch.tensor([0, 2, 255, 0], dtype=torch.uint8, device=sim.device).view(torch.bool)
    sim.reset(mask=odd)
    assert sim.t.tolist() == [2, 0, 0, 2] and sim.tensors["episode"].tolist() == [0, 1, 1, 0]
    sim.reset(mask=np.array([3, 0, 0, 0], np.uint8).view(bool))
    assert sim.t.tolist() == [0, 0, 0, 2] and sim.tensors["episode"].tolist() == [1, 1, 1, 0]


@every_engine
def test_inputs_that_are_the_engines_own_tensors(engine):
    wanted, sim = (ks.Simulator(num_markets=3, slots=2, engine=name) for name in ("numpy", engine))
    quotes = np.tile(np.array([61, 9, 67, 9], np.int32), (3, 2, 1))
    for simulator in (wanted, sim):
        simulator.step(quotes)
    standing = wanted.quotes.clone()
    assert torch.equal(sim.step(sim.quotes, 3).cpu(), wanted.step(standing, 3))
    standing = wanted.quotes.clone()
    one, two = sim.rollout(sim.quotes.expand(4, 3, 2, 4)), wanted.rollout(standing.expand(4, 3, 2, 4))
    assert torch.equal(one.fills.cpu(), two.fills)
    sim.load_state_dict({**sim.state_dict(), "cash": sim.inventory, "inventory": sim.cash})
    wanted.load_state_dict({**wanted.state_dict(), "cash": wanted.inventory.clone(), "inventory": wanted.cash.clone()})
    for name, tensor in wanted.tensors.items():
        assert torch.equal(sim.tensors[name].cpu(), tensor), name


@every_engine
def test_actions_that_are_the_last_observation(engine):
    """With `copy=False` it is what the step writes to."""
    made = []
    for copy, name in ((True, "numpy"), (False, engine)):
        envs = gym.make_vec("KineticSim/MarketMaking-v0", num_envs=1, engine=name, output="torch", copy=copy, **SMALL)
        observation, _ = envs.reset(seed=1)
        for _ in range(30):
            observation, *_ = envs.step(observation[:, 30:34])
        made.append(observation.cpu().clone())
    assert torch.equal(*made)


@every_engine
@pytest.mark.parametrize("bad", sorted(wrong_tensors(torch.zeros(3, 4)).keys() - {"as torch.float64"}))
@pytest.mark.filterwarnings("ignore")
def test_other_tensors_are_refused(engine, bad):
    envs = gym.make_vec("KineticSim/MarketMaking-v0", num_envs=3, engine=engine, output="torch", **SMALL)
    envs.reset(seed=1)
    before = envs.unwrapped.state_dict()
    given = wrong_tensors(torch.zeros(3, 4, device=envs.unwrapped.device))[bad]
    with pytest.raises((TypeError, ValueError), match=r"actions: expected float32 \[3, 4\].*got"):
        envs.step(given())
    for name, tensor in envs.unwrapped.state_dict().items():
        assert torch.equal(tensor, before[name]), name


@pytest.mark.parametrize(
    "action", [3, np.int8(3), np.uint64(3), np.array(3), torch.tensor(3), np.array(3, ">i4")], ids=repr
)
def test_a_single_choice(action):
    """`step(np.int8(3))` was an IndexError."""
    env = gym.make("KineticSim/MarketMaking-v0", engine="numpy", action_type="discrete", **SMALL).unwrapped
    env.reset(seed=1)
    env.step(action)
    for bad in (np.int8(-1), 49, np.float32(3), torch.tensor(3.0), True, "3", None, [3]):
        with pytest.raises((TypeError, ValueError), match="actions: .*got"):
            env.step(bad)


@every_engine
def test_a_negative_stride_of_an_axis_of_length_1(engine):
    """To NumPy such an array is contiguous, to torch it is not one."""
    sim = ks.Simulator(num_markets=1, slots=1, engine=engine)
    sim.step(np.zeros((1, 1, 4), np.int32)[::-1])
    sim.reset(mask=np.ones(1, bool)[::-1], seed=np.ones(1, np.int64)[::-1])
    assert sim.tensors["seed"].tolist() == [1] and sim.t.tolist() == [0]


# The launch itself ----------------------------------------------------------------------------------------------------


@every_engine
def test_a_launch_asserts_what_memory_safety_depends_on(engine):
    envs = ks.BatchedParallelEnv(4, {"maker": 2}, engine=engine, **SMALL)
    envs.reset(seed=0)
    core, device = envs.core, envs.device
    good = torch.zeros(4, 2, 4, device=device)
    core.step(actions=good)
    for bad, said in (
        (good.transpose(0, 1), "strides"),
        (good[:2], r"\[2, 2, 4\]"),
        (good[..., :2].contiguous(), r"\[4, 2, 2\]"),
        (good.double(), "float64"),
        (torch.zeros(0, device=device), r"\[0\]"),
        (None, "None"),
    ):
        with pytest.raises(ValueError, match=f"actions: .*got .*{said}"):
            core.step(actions=bad)
    with pytest.raises(ValueError, match="actions: expected .*, got None"):
        core.step(choices=torch.zeros(4, 2, dtype=torch.int64, device=device))


# Live tensors ---------------------------------------------------------------------------------------------------------


@every_engine
def test_live_tensors_stay_the_engines(engine):
    """A tensor put in another's place detached the engine, without a word."""
    sim = ks.Simulator(num_markets=2, engine=engine)
    core = ks.BatchedParallelEnv(2, {"maker": 1}, engine=engine, **SMALL).core
    for tensors, name in ((sim.tensors, "bid"), (core.tensors, "elapsed"), (core.simulator.tensors, "bid")):
        kept = tensors[name]
        for change in (
            lambda tensors, name: tensors.__setitem__(name, tensors[name].clone()),
            lambda tensors, name: tensors.update({name: tensors[name].clone()}),
            lambda tensors, name: tensors.pop(name),
            lambda tensors, name: tensors.__delitem__(name),
            lambda tensors, name: tensors.setdefault("new", 3),
            lambda tensors, name: tensors.clear(),
        ):
            with pytest.raises(
                TypeError, match=r"tensors: expected values written into the tensor that is there.*, got another entry"
            ):
                change(tensors, name)
        assert tensors[name] is kept and len(dict(tensors)) == len(tensors)
        tensors[name] += 0  # in place
    sim.tensors["bid"].zero_()
    assert not sim.bid.any()


@covering
@every_engine
@pytest.mark.parametrize("way", sorted(replacements(torch.zeros(1)).keys() - MEMORY_STAYS))
def test_memory_that_was_replaced(engine, way):
    sim = ks.Simulator(num_markets=2, engine=engine)
    try:
        replacements(sim.bid)[way]()
    except RuntimeError:
        return  # torch itself refuses it for a tensor that NumPy has a view of
    for call in (lambda: sim.run(1), sim.state_dict, sim.reset, lambda: sim.mid2, sim.branch, sim.check_errors):
        with pytest.raises(RuntimeError, match="bid: its memory was replaced or resized"):
            call()


@every_engine
@pytest.mark.parametrize("name", ["fills", "observation", "over"])
def test_a_size_that_torch_refused(engine, name):
    """Torch leaves the new size behind, and a reset wrote that much."""
    envs = gym.make_vec("KineticSim/MarketMaking-v0", num_envs=3, engine=engine, **SMALL)
    envs.reset(seed=1)
    core = envs.unwrapped.core
    tensor = core.fills if name == "fills" else core.tensors[name]
    tensor.numpy(force=True)  # NumPy sees the memory, so it is not to be resized
    try:
        tensor.resize_(10**5)
    except RuntimeError:
        pass
    for call in (envs.reset, envs.unwrapped.state_dict):
        with pytest.raises(RuntimeError, match=r"\w+: its memory was replaced or resized"):
            call()


@every_engine
def test_scenarios_have_one_way_in(engine):
    """`simulator.set_scenarios` checked nothing: two rows for an environment of 256 were read beyond their end."""
    envs = gym.make_vec("KineticSim/MarketMaking-v0", num_envs=4, engine=engine, randomise={"fee": (0, 9)}, **SMALL)
    envs.reset(seed=1)
    core = envs.unwrapped.core
    assert not hasattr(core.simulator, "set_scenarios")
    core.simulator._set_scenarios(ks.MarketConfig.preset("trading", fee=[1, 2]))
    with pytest.raises(RuntimeError, match=r"replaced without their task; use env.set_scenarios"):
        core.reset()
    with pytest.raises(ValueError, match="scenario_params: expected 256 rows, .*, got 2"):
        core.live_task.hand_over()
    envs.unwrapped.set_scenarios({"fee": (3, 4)})
    core.reset()
