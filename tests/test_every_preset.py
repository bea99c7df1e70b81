"""Every preset in everything that takes a market, as it is and with agents of a class that a user has written."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from agent_classes import trend_follower
from thorough import covering

import kineticsim_env as ks
from kineticsim_env.config import PRESETS
from kineticsim_env.runtime import build

ENGINE = "numpy" if build.cpu_unavailable() else "cpu"
QUIET = {"engine": ENGINE, "progress": False}


def given_as(preset, config):
    """Return a market in all the forms that a user may hand it over in."""
    if config == ks.MarketConfig.preset(preset):
        return [preset, {"preset": preset}, config, config.to_dict()]
    return [{"preset": preset, "agents": config.agents}, config, config.to_dict()]


def sweep(preset, config):
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    space = {"max_order_qty": [2, 5], "init_depth": [4, 9]}
    for market in given_as(preset, config):
        found = ks.sweep(space, 30, ["volume", "volatility"], market=market, replicates=2, seed=3, **QUIET)
        assert found.config(2) == config.replace(max_order_qty=5, init_depth=4)
        alone = ks.measure(found.config(2), 30, ["volume", "volatility"], markets=2, group=2, seed=3, **QUIET)
        assert found.to_pandas()["volume"][2] == alone["volume"].value[0]
        assert found.to_pandas()["volatility"][2] == alone["volatility"].value[0]


def calibrate(preset, config):
    pytest.importorskip("sbi")
    market = given_as(preset, config)[0]
    target = ks.measure(config, 30, ["volume", "volatility"], markets=2, group=None, seed=8, **QUIET)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kineticsim_env.calibration.learning._STEPS", 8)  # nothing is asked of what is learned
        found = ks.calibrate(target, {"max_order_qty": (1, 30)}, market=market, seed=1, simulations=100, held_out=0,
                             samples=20, **QUIET)  # fmt: skip
    assert found.config(0) == config.replace(max_order_qty=int(found.samples["max_order_qty"][0]))


def measure(preset, config):
    found = ks.measure(config, 60, ["volume", "spread", "impact_curve"], markets=3, **QUIET)
    assert (found["volume"].value > 0).all() and (found["spread"].value > 0).any()


def scorecard(preset, config):
    assert "no memory of returns" in str(ks.scorecard(config, 200, markets=4, warm_up=10, **QUIET))


def tape(preset, config):
    if build.cpu_unavailable():
        pytest.skip("a tape needs a C++ compiler")
    sim = ks.Simulator(config, 2, engine=ENGINE, seed=5)
    assert len(sim.tape(1, 8)) > 8


def counterfactual(preset, config):
    def buys(_, sim):
        price = sim.mid2 // 2 + 30
        zero = torch.zeros_like(price)
        return torch.stack([price, zero + 5, zero, zero], -1)[:, None].int()

    arms = ks.counterfactual(config, buys, 3, decisions=2, after=2, warmup=3, seed=1, **QUIET)
    assert arms.with_agent.fills.sum() > 0 and arms.without_agent.fills.sum() == 0
    impact = ks.block_impact(config, block=8, num_markets=3, warmup=5, after=3, **QUIET)
    assert np.isfinite(impact.path).all()


def steps(envs, actions):
    """Play over an end of episodes."""
    _, infos = envs.reset(seed=3)
    for _ in range(5):
        observations, rewards, *_ = envs.step(actions())
    return observations, rewards


def environment(task):
    def play(preset, config):
        market = {"preset": preset} if config == ks.MarketConfig.preset(preset) else {"config": config}
        envs = gym.make_vec(f"KineticSim/{task}-v0", num_envs=2, engine=ENGINE, bank_size=0, horizon=3, **market)
        there = envs.unwrapped.simulator.config  # with the task's limits
        assert there.replace(inventory_limit=None, max_quote_qty=config.max_quote_qty) == config
        envs.action_space.seed(0)
        observations, rewards = steps(envs, envs.action_space.sample)
        assert np.isfinite(observations).all() and np.isfinite(rewards).all()
        one = gym.make(f"KineticSim/{task}-v0", engine=ENGINE, bank_size=0, horizon=3, **market)
        one.reset(seed=3)
        assert np.isfinite(one.step(one.action_space.sample())[0]).all()

    play.__name__ = task
    return play


def learners(preset, config):
    many = {"maker": 1, "trader": 1, "executor": 1}
    market = {"preset": preset} if config == ks.MarketConfig.preset(preset) else {"config": config}
    envs = ks.BatchedParallelEnv(2, many, engine=ENGINE, bank_size=0, horizon=3, **market)
    spaces = envs.single_action_spaces
    sample = lambda: {role: np.stack([[space.sample()], [space.sample()]]) for role, space in spaces.items()}  # noqa: E731
    observations, rewards = steps(envs, sample)
    assert all(torch.isfinite(values).all() for values in (*observations.values(), *rewards.values()))
    one = ks.parallel_env(many, engine=ENGINE, horizon=3, **market)
    one.reset(seed=3)
    observations, *_ = one.step({agent: one.action_space(agent).sample() for agent in one.agents})
    assert all(np.isfinite(values).all() for values in observations.values())


def mix(preset, config):
    """With a parameter of each agent, and of each market; a class of the preset's own as it is."""
    own = ks.mix(4, lookback=range(4, 8), threshold=[[1], [9]])
    sim = ks.Simulator(config.replace(agents={**config.agents, trend_follower: own}), 2, engine=ENGINE, seed=1)
    assert sim.run(20, ("volume",), progress=False)["volume"].sum() > 0
    sim.set_parameters(**{"trend_follower.threshold": 3})
    sim.run(2, progress=False)


USES = [sweep, calibrate, measure, scorecard, tape, counterfactual, learners, mix]
USES += [environment(task) for task in ("MarketMaking", "Execution", "Trading")]
PAIRS = [(preset, use) for preset in PRESETS for use in USES]


@covering  # so that `make test` has each pair of a preset and a use, with or without a user's class
@pytest.mark.parametrize("added", [False, True], ids=["plain", "added"])
@pytest.mark.parametrize("pair", PAIRS, ids=[f"{preset}-{use.__name__}" for preset, use in PAIRS])
def test_every_preset_in_everything(pair, added):
    preset, use = pair
    config = ks.MarketConfig.preset(preset)
    if added:
        config = config.replace(agents={**config.agents, trend_follower: ks.mix(3, threshold=8)})
    use(preset, config)
