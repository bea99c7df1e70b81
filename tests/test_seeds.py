"""Seeds of runs: no market in common, below those of warm starts and evaluations."""

import gymnasium as gym
import numpy as np
import pytest

import kineticsim_env as ks
from kineticsim_env import evaluation
from kineticsim_env.tasks import MarketMakingTask

MOST_MARKETS = 2**31 - 1
LAST = 2**29 - 1


def test_runs_are_further_apart_than_an_ensemble_is_large():
    runs = [0, 1, 2, 3, 1000, LAST - 1, LAST]
    seeds = [ks.run_seed(run) for run in runs]
    assert seeds == [run * 2**32 for run in runs] and all(type(seed) is int for seed in seeds)
    assert all(ks.run_seed(run + 1) - ks.run_seed(run) > MOST_MARKETS for run in (0, 1, LAST - 1))
    with pytest.raises(ValueError, match="num_markets: .*got 2147483648"):
        ks.Simulator(num_markets=MOST_MARKETS + 1)


def test_no_run_reaches_warm_starts_and_evaluations():
    end = ks.run_seed(LAST) + MOST_MARKETS
    assert end < MarketMakingTask().warm_seed < evaluation.HELD_OUT_WARM_SEED < evaluation.HELD_OUT_SEED
    assert evaluation.HELD_OUT_SEED + end < 2**63


def test_markets_of_runs_differ_where_those_of_near_seeds_are_shared():
    envs = gym.make_vec("KineticSim/Trading-v0", num_envs=256, engine="numpy", bank_size=4, warmup=3)
    seen = lambda seed: envs.reset(seed=seed) and envs.unwrapped.simulator.tensors["seed"].tolist()  # noqa: E731
    assert len({*seen(1)} & {*seen(2)}) == 255
    assert not {*seen(ks.run_seed(1))} & {*seen(ks.run_seed(2))}
    sim = ks.Simulator(ks.MarketConfig.preset("trading"), 4, engine="numpy", seed=ks.run_seed(np.int64(3)))
    assert sim.tensors["seed"].tolist() == [3 * 2**32 + m for m in range(4)]


def test_stable_baselines_takes_it_after_the_model_is_made():
    """Its own seeds end at 2^32, and seed the environment, too."""
    pytest.importorskip("stable_baselines3")
    from stable_baselines3 import PPO

    from kineticsim_env.adapters.sb3 import SB3VecEnv

    env = SB3VecEnv("KineticSim/Trading-v0", num_envs=2, engine="numpy", bank_size=2, warmup=3, horizon=4)
    model = PPO("MlpPolicy", env, n_steps=4, batch_size=8, n_epochs=1, seed=1, device="cpu")
    env.seed(ks.run_seed(5))
    model.learn(8)
    assert env.envs.unwrapped.simulator.tensors["seed"].tolist() == [5 * 2**32, 5 * 2**32 + 1]


@pytest.mark.parametrize(
    ("run", "error"),
    [(-1, ValueError), (LAST + 1, ValueError), (10**400, ValueError), (1.0, TypeError), ("1", TypeError),
     (True, TypeError), (None, TypeError), (np.float64(2), TypeError), (np.timedelta64(1), TypeError)],
)  # fmt: skip
def test_what_is_no_run(run, error):
    with pytest.raises(error, match="run: expected .*got .*"):
        ks.run_seed(run)
