"""Linear policies by CMA-ES: what they play, what the search finds, and that a population plays as each one alone."""

import importlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from kineticsim_env import MarketConfig
from kineticsim_env.evaluation import evaluate, evaluation_env

for name in ("tyro", "matplotlib", "cma"):
    pytest.importorskip(name, reason="the example needs it: pip install 'kineticsim-env[train]'")

TASKS = ("MarketMaking", "Execution", "Trading")
ENGINES = ("cpu", pytest.param("cuda", marks=pytest.mark.gpu))


@pytest.fixture(scope="module")
def linear():
    """The example as a module."""
    folder = str(Path(__file__).parent.parent / "examples")
    sys.path.insert(0, folder)
    yield importlib.import_module("linear_policies")
    sys.path.remove(folder)


def made(linear, task, markets, preset="news", engine="cpu", sizes=True):
    envs = evaluation_env(markets, task, config=MarketConfig.preset(preset), engine=engine, horizon=25)
    return envs, linear.Features(envs, sizes, 0)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("task", TASKS)
def test_a_population_plays_as_each_one_alone(linear, task, engine):
    envs, features = made(linear, task, 5 * 8, engine=engine)
    weights = torch.from_numpy(np.random.default_rng(1).normal(0, 0.3, (5, 2, features.number)))
    alone, _ = made(linear, task, 8, engine=engine)
    together = evaluate(linear.LinearPolicies(features, weights), envs, np.tile(7 + np.arange(8), 5))
    each = [evaluate(linear.LinearPolicies(features, one[None]), alone, 7) for one in weights]
    for name in ("pnl", "traded", "inventory"):
        assert np.array_equal(getattr(together, name), np.concatenate([getattr(one, name) for one in each]))
    assert len({one.pnl.mean() for one in each}) == 5, "policies that trade, and not alike"
    scores = linear.score(linear.LinearPolicies(features, weights), envs, 7)
    assert np.array_equal(scores, [one.pnl.mean() for one in each]), "8 markets each are too few for networks"


@pytest.mark.parametrize("sizes", [False, True])
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("preset", ["trading", "news"])
def test_networks_play_what_linear_policies_do(linear, task, preset, sizes):
    """In float32 the same orders, so the same money: of executors for both sides, of traders where they trade."""
    networks = importlib.import_module("linear_networks")
    envs, features = made(linear, task, 4 * 32, preset, sizes=sizes)
    weights = torch.from_numpy(np.random.default_rng(2).normal(0, 0.2, (4, 2, features.number)))
    policies, seeds = linear.LinearPolicies(features, weights), np.tile(5 + np.arange(32), 4)
    as_networks = networks.networks_of(features, weights, envs.core.task.max_qty)
    observation, _ = envs.reset(seed=seeds)
    wanted = policies(observation)
    found = torch.cat([one.act(rows) for one, rows in zip(as_networks, observation.chunk(4), strict=True)])
    trades = wanted[:, :1].abs() * envs.core.task.max_qty > 0.5 if task == "Trading" else torch.ones(1)
    assert torch.allclose(found * trades, wanted * trades, atol=1e-5) and (wanted * trades).abs().max() > 0.1
    assert np.array_equal(networks.rolled_out(as_networks, envs, seeds), evaluate(policies, envs, seeds).pnl)
    assert np.array_equal(networks.money(policies, envs, seeds), evaluate(policies, envs, seeds).pnl)


@pytest.mark.gpu
@pytest.mark.parametrize("task", TASKS)
def test_on_a_gpu_money_is_nearly_that_of_evaluate(linear, task):
    """To the rounding of networks to bfloat16, which moves few orders."""
    networks = importlib.import_module("linear_networks")
    envs, features = made(linear, task, 4 * 512, engine="cuda")
    weights = torch.from_numpy(np.random.default_rng(2).normal(0, 0.2, (4, 2, features.number)))
    policies = linear.LinearPolicies(features, weights)
    seeds = np.tile(5 + np.arange(512), 4)
    near, exact = (
        part.reshape(4, -1) for part in (networks.money(policies, envs, seeds), evaluate(policies, envs, seeds).pnl)
    )
    error = (near - exact).std(1) / 512**0.5
    assert not np.array_equal(near, exact) and (np.abs((near - exact).mean(1)) < 5 * error + 0.05 * exact.std(1)).all()
    assert np.corrcoef(near.ravel(), exact.ravel())[0, 1] > 0.7


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("preset", ["trading", "news"])
def test_a_mirror_swaps_buying_and_selling(linear, task, preset):
    """Its mirror image is within the space, it is itself in two mirrors, and actions are mirrored with it."""
    envs, features = made(linear, task, 64, preset)
    places, signs = linear.mirror(envs.core.roles[0], envs.single_observation_space.shape[0])
    envs.reset(seed=0)
    for _ in range(10):
        action = torch.rand(64, envs.single_action_space.shape[0]) * 2 - 1
        seen = envs.step(action)[0]
    image = seen[:, places] * signs.float()
    assert torch.equal(image[:, places] * signs.float(), seen) and not torch.equal(image, seen)
    space = envs.single_observation_space
    assert all(space.contains(row) for row in image.numpy())
    policy = linear.LinearPolicies(features, torch.randn(1, 2, features.number, dtype=torch.float64))
    action, mirrored = policy(seen), policy(image)
    if task == "MarketMaking":
        action = action[:, [1, 0, 3, 2]]
    elif task == "Trading":
        action = action * torch.tensor([-1.0, 1.0])
    assert torch.allclose(mirrored, action, atol=1e-6)


def test_actions_are_the_weights_times_the_features(linear):
    envs, features = made(linear, "MarketMaking", 4, sizes=False)
    seen, _ = envs.reset(seed=0)
    weights = torch.zeros(1, 2, features.number, dtype=torch.float64)
    weights[0, 0, 3], weights[0, 0, -1], weights[0, 1, -1] = 0.2, -0.1, 5.0
    action = linear.LinearPolicies(features, weights)(seen)
    row = seen.double()
    for side, place in ((0, 3), (1, 13)):  # the bid's depth 3 ticks away; the ask's, in the mirror
        expected = 0.2 * (row[:, place] - features.mean[3]) / features.scale[3] - 0.1
        assert action[:, side].tolist() == pytest.approx(expected.tolist())
    assert action[:, 2:].tolist() == [[1.0, 1.0]] * 4


def test_cma_finds_the_best_weights_of_a_quadratic(linear, monkeypatch):
    """Where money is minus the squared distance to some weights, these are found, with noise that all share."""
    features = SimpleNamespace(number=4, device=torch.device("cpu"))
    wanted = np.random.default_rng(3).normal(size=(2, 4))

    def play(policies, envs, seed):
        weights = policies.weights.mT.numpy()
        noise = np.random.default_rng(int(np.min(seed))).normal(0, 100.0)
        money = noise - ((weights - wanted) ** 2).sum((1, 2))
        return np.repeat(money, envs.num_envs // len(weights))

    monkeypatch.setattr(linear, "money", play)
    args = linear.Args(population=16, markets=2, generations=150, sigma=0.5)
    envs = SimpleNamespace(num_envs=32, core=SimpleNamespace(task=SimpleNamespace(horizon=1)))
    found = linear.train(args, envs, features, progress=False)
    assert np.abs(np.array(found["best"]["weights"]) - wanted).max() < 1e-3
    assert found["generations"] == 150 and found["decisions"] == 150 * 32
    assert [point["generation"] for point in found["curve"]] == list(range(0, 160, 10))
    again = linear.train(args, envs, features, progress=False)
    assert again["best"]["weights"] == found["best"]["weights"], "the same seed finds the same"


@pytest.mark.parametrize("task", TASKS)
def test_the_example_leaves_what_it_promises(linear, tmp_path, capsys, task):
    args = linear.Args(task=task, preset="news", engine="cpu", population=4, markets=3, generations=2, episodes=8)
    args.output = tmp_path
    found = linear.main(args)
    kept = json.loads((tmp_path / "linear.json").read_text())
    assert kept["pnl"] == list(found["pnl"]) and kept["args"]["preset"] == "news"
    assert kept["generations"] == 2 and len(kept["curve"]) == 2 and kept["seconds"] > 0
    assert np.shape(kept["best"]["weights"]) == (2, 40) and len(kept["mean"]) == 39
    printed = capsys.readouterr().out
    assert "on 8 held-out episodes, after 2 generations" in printed and str(tmp_path) in printed


def test_it_stops_at_its_time_limit(linear, tmp_path):
    args = linear.Args(preset="news", engine="cpu", population=4, markets=2, episodes=2, output=tmp_path)
    args.time_limit_minutes = 0.02
    found = linear.main(args)
    assert 1.2 <= found["seconds"] < 60 and 0 < found["generations"] < 1000
