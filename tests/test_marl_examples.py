"""The examples of many learners with tiny budgets: what they leave, their advantages, masks, partners and payoffs."""

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from thorough import slow

from kineticsim_env import BatchedParallelEnv, policies
from kineticsim_env.evaluation import evaluate, evaluation_env
from kineticsim_env.tasks.base import MARKET_FEATURES

for name in ("tyro", "tensorboard", "matplotlib"):
    pytest.importorskip(name, reason="the examples need it: pip install 'kineticsim-env[train]'")

ROOT = Path(__file__).parent.parent
ALL = ("maker=2", "momentum=1", "noise=1", "executor=1", "trader=1")
TINY = {"num_envs": 8, "num_steps": 8, "total_steps": 8 * 8 * 4, "eval_envs": 16, "engine": "cpu", "horizon": 12}
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module", autouse=True)
def example_folder():
    """Make the examples importable, as Python does for a script."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "scripts")]
    yield
    sys.path.remove(str(ROOT / "examples"))
    sys.path.remove(str(ROOT / "scripts"))
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def ippo(example_folder):
    return importlib.import_module("ippo_many_learners")


@pytest.fixture(scope="module")
def comparison(example_folder):
    return importlib.import_module("ippo_comparison")


@pytest.fixture(scope="module")
def self_play(example_folder):
    return importlib.import_module("self_play_makers")


# What they leave ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action_type", "central"), [("continuous", True), pytest.param("discrete", False, marks=slow)]
)
def test_ippo_leaves_what_it_promises(ippo, tmp_path, capsys, action_type, central):
    args = ippo.Args(learners=ALL, action_type=action_type, central_critic=central, output=tmp_path / "run", **TINY)
    results = ippo.main(args)
    roles = [word.partition("=")[0] for word in ALL]
    assert list(results) == roles
    table = (args.output / "table.md").read_text()
    assert table in capsys.readouterr().out + "\n"
    for role in roles:
        assert f"| {role} |" in table
        assert all(np.isfinite(results[role][kind]).all() for kind in ("learned", "scripted", "random", "lead"))
        mean = results[role]["learned"][0] - results[role]["scripted"][0]
        assert results[role]["lead"][0] == pytest.approx(mean)
        saved = torch.load(args.output / f"{role}.pt", weights_only=True)
        assert ("log_std" in saved) == (action_type == "continuous")
        own, together = 39, MARKET_FEATURES + 9 * 6
        assert saved["critic.0.weight"].shape[1] == (own - MARKET_FEATURES + together if central else own)
    record = json.loads((args.output / "results.json").read_text())
    assert record["args"]["learners"] == list(ALL) and record["results"].keys() == results.keys()
    assert [point["steps"] for point in record["curve"]] == [64, 128, 192, 256]
    assert "maker/return" in record["curve"][-1] and "executor/entropy" in record["curve"][-1]
    assert (args.output / "many_learners.png").read_bytes()[:8] == PNG
    assert list((args.output / "tensorboard").glob("events*"))


def test_ippo_repeats_itself(ippo, tmp_path):
    def trained(seed):
        args = ippo.Args(learners=("maker=1", "executor=1"), seed=seed, output=tmp_path, **TINY)
        envs = BatchedParallelEnv(args.num_envs, args.counts(), **args.task())
        return ippo.train(args, envs)[0]["executor"].state_dict()

    first, again, other = trained(1), trained(1), trained(2)
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)


def test_a_bad_learner_is_named(ippo, tmp_path):
    with pytest.raises(SystemExit, match="--learners: expected words such as maker=2, got maker"):
        ippo.main(ippo.Args(learners=("maker",), output=tmp_path, **TINY))
    with pytest.raises(ValueError, match="got the role 'banker'"):
        ippo.main(ippo.Args(learners=("banker=1",), output=tmp_path, **TINY))


@slow
def test_self_play_leaves_what_it_promises(self_play, tmp_path, capsys, monkeypatch):
    grids = {
        name: (make, {key: values[:1] for key, values in grid.items()})
        for name, (make, grid) in self_play.GRIDS.items()
    }
    monkeypatch.setattr(self_play, "GRIDS", grids)
    args = self_play.Args(output=tmp_path / "run", engine="cpu", horizon=10, total_steps=512, num_envs=8, markets=64)
    record = self_play.main(args)
    makers = list(record["cells"])
    assert len(makers) == 8 and all(list(columns) == makers for columns in record["cells"].values())
    assert json.loads((args.output / "results.json").read_text())["cells"].keys() == record["cells"].keys()
    for name in makers:
        assert record["cells"]["no trade"][name]["pnl"] == (0.0, 0.0)
        assert record["replies"][name]["best"] in makers and record["replies"][name]["lead"][0] >= 0
        for other in makers:
            cell = record["cells"][name][other]
            assert cell["total"][0] == pytest.approx(cell["pnl"][0] + cell["rival_pnl"][0])
            assert cell["seat"][0] == pytest.approx(cell["pnl"][0] - cell["rival_pnl"][0])
            assert cell["spread"][0] > 0 and cell["volume"][0] > 0
    assert (args.output / "payoffs.png").read_bytes()[:8] == PNG
    assert (args.output / "table.md").read_text() in capsys.readouterr().out + "\n"
    assert len(list(args.output.glob("learned*/maker.pt"))) == 4

    docs, other = tmp_path / "docs", tmp_path / "other"
    (docs / "images").mkdir(parents=True)
    other.mkdir()
    (other / "results.json").write_text((args.output / "results.json").read_text().replace('"seed": 1', '"seed": 7'))
    report = importlib.import_module("examples.studies.self_play.__main__")
    report.main([str(other), str(args.output), "--output", str(docs)])
    page = (docs / "README.md").read_text()
    assert f"{record['machine']}, seed 1: 8 training markets" in " ".join(page.split())  # the last is shown in full
    assert "| **no trade** | 0 ± 0 |" in page and ", seed 7 | " in page and ", seed 1 | " in page
    assert (docs / "images" / "self_play.png").read_bytes()[:8] == PNG
    report.main(["--output", str(docs)])  # from what was kept
    assert (docs / "README.md").read_text() == page


# Advantages and masks -------------------------------------------------------------------------------------------------


def slow_advantages(rewards, active, terminated, truncated, values, nexts, gamma, gae_lambda):
    """The sum of discounted errors, term by term, up to the end of the learner's episode; 0 where it did not act."""
    result = np.zeros(rewards.shape)
    for index in np.ndindex(*rewards.shape[1:]):
        for t in range(len(rewards)):
            weight = 1.0
            for k in range(t, len(rewards)):
                at = (k, *index)
                if not active[at]:
                    break
                after = 0.0 if terminated[at] else nexts[at]
                result[(t, *index)] += weight * (rewards[at] + gamma * after - values[at])
                if terminated[at] or truncated[at]:
                    break
                weight *= gamma * gae_lambda
    return result


def test_advantages_of_ended_learners_against_the_definition(ippo):
    """Made-up markets of three learners that end one by one, wait for the last, and begin anew together."""
    generator = np.random.default_rng(0)
    shape = 40, 6, 3
    rewards, values, nexts = generator.normal(size=(3, *shape))
    active, terminated, truncated = (np.zeros(shape, bool) for _ in range(3))
    for m in range(shape[1]):
        alive = np.ones(shape[2], bool)
        for t in range(shape[0]):
            active[t, m] = alive
            terminated[t, m] = alive & (generator.random(shape[2]) < 0.1)
            truncated[t, m] = alive & ~terminated[t, m] & (generator.random() < 0.1)
            alive &= ~(terminated[t, m] | truncated[t, m])
            rewards[t, m] *= active[t, m]
            alive |= not alive.any()
    assert (~active).any() and (terminated & active).any() and truncated.any()
    given = rewards, active, terminated, truncated, values, nexts
    fast = ippo.advantages(*map(torch.from_numpy, given), 0.97, 0.9).numpy()
    assert fast == pytest.approx(slow_advantages(*given, 0.97, 0.9), abs=1e-5)
    assert (fast[~active] == 0).all()


def test_only_termination_cuts_the_future_off(ippo):
    def of_one(active, terminated, truncated):
        flags = (torch.tensor([[[flag]]]) for flag in (active, terminated, truncated))
        reward, value, after = (torch.tensor([[[x]]]) for x in (1.0, 2.0, 5.0))
        return float(ippo.advantages(reward, *flags, value, after, 0.5, 1.0))

    assert of_one(True, False, False) == of_one(True, False, True) == 1 + 0.5 * 5 - 2
    assert of_one(True, True, False) == 1 - 2
    assert of_one(False, False, False) == 0


@pytest.fixture
def played(ippo, tmp_path):
    """A rollout of makers, which are truncated, and of executors with small blocks, which end well before."""
    args = ippo.Args(learners=("maker=1", "executor=2"), output=tmp_path, **{**TINY, "num_steps": 40, "horizon": 15})
    args.central_critic = True
    envs = BatchedParallelEnv(args.num_envs, args.counts(), **args.task(), block_qty=10)
    torch.manual_seed(0)
    trainer = ippo.Trainer(args, envs)
    trainer.prepare(3)
    trainer.rollout()
    trainer.estimate()
    return trainer


def test_masks_follow_the_learners_own_ends(played):
    maker, executor = played.roles["maker"], played.roles["executor"]
    assert bool(maker.active.all()) and bool(maker.truncated.any()) and not bool(maker.terminated.any())
    assert not bool(executor.truncated.any()) and bool((~executor.active).any())
    over = maker.truncated[:, :, :1]  # the market's end
    alive = torch.ones_like(executor.active[0])
    for t in range(40):
        assert torch.equal(executor.active[t], alive)
        assert not bool((executor.terminated[t] & ~alive).any())
        alive = (alive & ~executor.terminated[t]) | over[t]
    idle = ~executor.active
    assert bool((executor.reward[idle] == 0).all()) and bool(
        (executor.advantage[idle] != executor.advantage[idle]).sum() == 0
    )
    weight = executor.active.float()
    mean = (executor.advantage * weight).sum() / weight.sum()
    assert float(mean) == pytest.approx(0, abs=1e-4)
    assert float(((executor.advantage**2) * weight).sum() / weight.sum()) == pytest.approx(1, abs=1e-3)


def test_values_before_a_reset_are_those_of_what_was_seen_then(played):
    """Where nothing was reset the next value is that of the next decision; at a market's end it is not."""
    for one in played.roles.values():
        over = played.roles["maker"].truncated[:-1].expand_as(one.value[:-1])
        same = one.next_value[:-1] == one.value[1:]
        assert bool(same[~over].all()) and not bool(same[over].any())


def test_who_did_not_act_does_not_count(played):
    one = played.roles["executor"]
    everything = torch.arange(one.reward[..., 0].numel())

    def gradient():
        one.networks.zero_grad()
        loss = one.loss(played.args, everything, played.state.flatten(0, 1))
        loss.backward()
        return [float(loss.detach())] + [parameter.grad.clone() for parameter in one.networks.parameters()]

    before = gradient()
    idle = ~one.active
    for buffer, value in ((one.observation, 0.7), (one.advantage, 1e3), (one.target, -1e3), (one.log_prob, -5.0)):
        buffer[idle] = value
    for old, new in zip(before, gradient(), strict=True):
        torch.testing.assert_close(torch.as_tensor(old), torch.as_tensor(new))


def test_final_states(ippo):
    envs = BatchedParallelEnv(4, {"maker": 1, "noise": 2}, engine="cpu", horizon=3, stagger=True)
    envs.reset(seed=1)
    actions = {"maker": torch.zeros(4, 1, 4), "noise": torch.zeros(4, 2, 2)}
    for _ in range(4):
        seen, _, _, _, infos = envs.step(actions)
        final, over = envs.state(final=True), infos["_final_obs"]
        parts = infos["final_obs"]["maker"].flatten(1), infos["final_obs"]["noise"][..., MARKET_FEATURES:].flatten(1)
        assert torch.equal(final, torch.cat(parts, 1)) and final.shape[1:] == envs.state_space.shape
        assert torch.equal(final[~over], envs.state()[~over])
        assert (final[over] != envs.state()[over]).any(1).all()


def test_partners_play_and_do_not_learn(ippo, tmp_path):
    args = ippo.Args(learners=("maker=2",), output=tmp_path, **{**TINY, "horizon": 300})
    envs = BatchedParallelEnv(args.num_envs, {"maker": 2}, **args.task())
    trainer = ippo.Trainer(args, envs, {"maker": {1: policies.NoTrade(envs.core.task)}})
    trainer.prepare(1)
    for _ in range(4):
        trainer.update(1e-3)
    assert not bool(envs.simulator.inventory[:, 1].any()) and bool(envs.simulator.inventory[:, 0].any())
    active = trainer.roles["maker"].active
    assert bool(active[..., 0].all()) and not bool(active[..., 1].any())


# Comparisons ----------------------------------------------------------------------------------------------------------


def test_play_counts_as_the_library_does(comparison):
    settings = {"engine": "cpu", "horizon": 25}
    envs = comparison.held_out(16, {"maker": 1}, **settings)
    maker = policies.FixedSpread(envs.core.task)
    played = comparison.play(envs, {"maker": [maker]}, 7)["maker"]
    alone = evaluation_env(16, replace="maker", **settings)
    np.testing.assert_array_equal(played[:, 0], evaluate(maker, alone, 7).pnl)


def test_executors_count_as_the_library_does(comparison):
    settings = {"engine": "cpu", "horizon": 25, "block_qty": 30}
    envs = comparison.held_out(16, {"executor": 1}, **settings)
    executor = policies.TimeWeighted(envs.core.task, 1.0)
    played = comparison.play(envs, {"executor": [executor]}, 7)["executor"]
    alone = evaluate(executor, evaluation_env(16, "Execution", **settings), 7)
    np.testing.assert_allclose(played[:, 0], alone.pnl, atol=1e-4)


def test_who_has_a_block_keeps_it(comparison):
    """Executors are judged by their returns, and do not unwind beside the makers."""
    # In a market whose prices stay above 0, so that who bought has paid.
    envs = comparison.held_out(8, {"maker": 1, "executor": 1}, engine="cpu", horizon=20, preset="trading")
    task = envs.core.task
    chosen = {"maker": [policies.NoTrade(task)], "executor": [policies.TimeWeighted(task)]}
    watched = []
    result = comparison.play(envs, chosen, 3, watch=lambda: watched.append(1))
    assert len(watched) == 20 and bool((result["maker"] == 0).all())
    money, inventory = envs.simulator.cash[:, 1], envs.simulator.inventory[:, 1]
    assert not bool(inventory.any()) and bool((money != 0).all())  # the cash is that of the block alone
    arrival = envs.core.tensors["arrival2"] / 2
    side = torch.where(money < 0, 1, -1)
    made = (money + side * task.block_qty * arrival) / task.block_qty
    assert result["executor"][:, 0] == pytest.approx(made.numpy(), abs=1e-4)


def test_executors_alone_count_their_first_episode(comparison):
    arguments = {"engine": "cpu", "horizon": 12, "block_qty": 12}
    envs = comparison.held_out(8, {"executor": 2}, **arguments)
    acts = [policies.RandomOrders(envs.core.task, seed) for seed in (1, 2)]
    result = comparison.play(envs, {"executor": acts}, 5)["executor"]
    other = BatchedParallelEnv(8, {"executor": 2}, stagger=False, warm_seed=comparison.HELD_OUT_WARM_SEED, **arguments)
    seen, _ = other.reset(seed=5)
    acts = [policies.RandomOrders(other.core.task, seed) for seed in (1, 2)]
    total, first = np.zeros((8, 2)), np.ones((8, 1), bool)
    for _ in range(12):
        action = torch.stack([act(seen["executor"][:, k]) for k, act in enumerate(acts)], 1)
        seen, rewards, _, _, infos = other.step({"executor": action})
        total += rewards["executor"].numpy() * first
        first &= ~infos["_final_obs"].numpy()[:, None]
    assert not first.any() and result == pytest.approx(total * other.core.task.reward_scale, abs=1e-5)


def test_the_built_in_rule(comparison):
    envs = comparison.held_out(4, {"momentum": 1, "noise": 1}, engine="cpu", preset="trading")
    task, config = envs.core.task, envs.core.config
    observation = torch.zeros(20_000, 36)
    for role, ticks in (("momentum", {1, 10}), ("noise", set(range(-10, 11)))):
        action = comparison.BuiltIn(task, config, role)(observation)
        offset = torch.round(action[:, 0] * task.max_offset)
        qty = torch.round((action[:, 1] + 1) * task.max_qty / 2)
        assert set(offset.tolist()) == ticks and set(qty.tolist()) == {1.0, 2.0, 3.0, 4.0}
        assert float(qty.mean()) == pytest.approx(2.5, abs=0.05)
        least = 0.4 if role == "momentum" else 0.4 + 0.6 * 5 / 29  # offsets beyond max_offset are cut to it
        assert float((offset == 10).float().mean()) == pytest.approx(least, abs=0.02)


def test_quality_is_that_of_the_whole_book(self_play, comparison):
    """A maker that quotes inside the built-in spread makes the spread its own."""
    envs = comparison.held_out(32, {"maker": 2}, engine="cpu", horizon=40, **self_play.MARKET)
    task = envs.core.task
    spreads = {}
    for name, maker in {"none": policies.NoTrade(task), "tight": policies.FixedSpread(task, 1.0, 8)}.items():
        quality = self_play.Quality(envs)
        comparison.play(envs, {"maker": [maker, maker]}, 2, watch=quality.watch)
        spreads[name] = quality.means()["spread"][0]
    assert 0 < spreads["tight"] < spreads["none"]


# Learning -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_makers_and_executors_learn(ippo, tmp_path):
    """In 20 s on two cores both roles, learning beside each other, are clearly better than chance."""
    args = ippo.Args(
        learners=("maker=1", "executor=1"),
        preset="trading",
        output=tmp_path,
        engine="cpu",
        num_envs=128,
        total_steps=160_000,
    )
    args.horizon, args.eval_envs = 60, 512
    results = ippo.main(args)
    for role in ("maker", "executor"):
        (learned, half), (chance, other) = results[role]["learned"], results[role]["random"]
        assert learned - half > chance + other, role
