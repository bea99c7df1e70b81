"""Bad input to the vector environment: the error names what came and what is allowed, and the state is untouched."""

import gymnasium as gym
import numpy as np
import pytest
import torch

import kineticsim_env as ks
from kineticsim_env.envs.vector import MarketMakingVectorEnv


def make(**kwargs):
    return MarketMakingVectorEnv(4, **{"engine": "cpu", "horizon": 6, "bank_size": 16, "warmup": 20, **kwargs})


def assert_untouched(envs, before):
    after = envs.state_dict()
    assert set(after) == set(before)
    for name in before:
        assert torch.equal(before[name], after[name]), name


@pytest.mark.parametrize(
    ("action_type", "actions", "error", "match"),
    [
        (
            "continuous",
            np.full((4, 4), np.nan, np.float32),
            ValueError,
            r"actions\[0, 0\]: expected -1 to 1.*got nan",
        ),
        ("continuous", np.full((4, 4), 1.5, np.float32), ValueError, r"expected -1 to 1.*got 1.5"),
        (
            "continuous",
            np.zeros((4, 3), np.float32),
            ValueError,
            r"expected float32 \[4, 4\] on .*, got float32 \[4, 3\]",
        ),
        ("continuous", np.zeros((4, 4), np.int64), TypeError, r"expected float32 \[4, 4\].*got int64 \[4, 4\]"),
        ("continuous", torch.zeros(4, 4, dtype=torch.float64), TypeError, r"expected float32 .*, got torch.float64"),
        (
            "continuous",
            torch.zeros(3, 4),
            ValueError,
            r"expected float32 \[4, 4\] on .*, got torch.float32 \[3, 4\] on cpu",
        ),
        ("continuous", torch.full((4, 4), torch.inf), ValueError, r"got inf"),
        ("discrete", np.array([0, 49, 0, 0]), ValueError, r"actions\[1\]: expected 0 to 48, got 49"),
        ("discrete", np.array([0, 0, -1, 0]), ValueError, r"actions\[2\]: expected .*, got -1"),
        ("discrete", np.zeros(4, np.float32), TypeError, r"expected int64 \[4\].*got float32 \[4\]"),
        ("discrete", torch.zeros(4, dtype=torch.int32), TypeError, r"got torch.int32"),
    ],
)
def test_bad_actions_leave_the_state_untouched(action_type, actions, error, match):
    envs = make(action_type=action_type)
    envs.reset(seed=1)
    envs.step(envs.action_space.sample())
    before = envs.state_dict()
    with pytest.raises(error, match=match):
        envs.step(actions)
    assert_untouched(envs, before)


@pytest.mark.parametrize(
    ("kwargs", "error", "match"),
    [
        ({"horizon": 0}, ValueError, "horizon: expected a whole number from 1.*got 0"),
        ({"reward": "sharpe"}, ValueError, "reward: expected one of 'pnl'.*got 'sharpe'"),
        ({"reward_scale": 0.0}, ValueError, "reward_scale: expected a finite number above 0, got 0.0"),
        ({"inventory_penalty": float("nan")}, ValueError, "inventory_penalty: expected .*, got nan"),
        ({"max_qty": True}, TypeError, "max_qty: expected .*, got True"),
        ({"horizn": 3}, TypeError, "one of horizon.*, got the unknown argument 'horizn'"),
        ({"output": "jax"}, ValueError, "output: expected one of 'numpy', 'torch', got 'jax'"),
        ({"autoreset_mode": "never"}, ValueError, "autoreset_mode: expected one of NEXT_STEP, .*, got 'never'"),
        ({"auctions_per_step": 0}, ValueError, "auctions_per_step: expected .*, got 0"),
        ({"engine": "gpu"}, ValueError, "engine: .*got 'gpu'"),
        ({"preset": "calm"}, ValueError, "preset: expected .*got 'calm'"),
        ({"config": {"num_levels": 64}}, ValueError, "init_price: expected 1 to num_levels - 2 = 62, got 64"),
        ({"config": [64]}, TypeError, "config: expected .*, got list"),
        ({"replace": "noise"}, ValueError, "replace: expected .*, got 'noise'"),
        ({"stagger": 1}, TypeError, "stagger: expected .*, got 1"),
        ({"render_mode": "video"}, ValueError, "render_mode: expected .*, got 'video'"),
        ({"render_market": 99}, ValueError, "render_market: expected 0 to.*got 99"),
        ({"render_market": 0.0}, TypeError, "render_market: expected .*, got 0.0"),
    ],
)
def test_bad_arguments(kwargs, error, match):
    with pytest.raises(error, match=match):
        make(**kwargs)


def test_bad_resets_and_steps():
    envs = make(autoreset_mode="disabled", stagger=False)
    with pytest.raises(gym.error.ResetNeeded, match="never reset"):
        envs.step(np.zeros((4, 4), np.float32))
    with pytest.raises(gym.error.ResetNeeded, match="first reset"):
        envs.reset(options={"reset_mask": np.ones(4, bool)})
    envs.reset(seed=1)
    for mask in (np.zeros(4, bool), np.ones(3, bool), np.ones(4, int)):
        with pytest.raises(ValueError, match="reset_mask: .*got"):
            envs.reset(options={"reset_mask": mask})
    with pytest.raises(ValueError, match="options: .*got the unknown key 'mask'"):
        envs.reset(options={"mask": None})
    for _ in range(6):
        truncated = envs.step(np.zeros((4, 4), np.float32))[3]
    assert truncated.all()
    before = envs.state_dict()
    with pytest.raises(gym.error.ResetNeeded, match="market 0: its episode has ended"):
        envs.step(np.zeros((4, 4), np.float32))
    assert_untouched(envs, before)


@pytest.mark.parametrize("engine", ["cpu", "numpy"])
def test_an_overflow_leaves_the_state_untouched(engine):
    config = ks.MarketConfig(num_agents=4096, max_order_qty=65535)  # the book grows by 10^8 units per auction
    envs = make(config=config, engine=engine, bank_size=0, horizon=500, auctions_per_step=4)
    start, _ = envs.reset(seed=1)
    hold = np.zeros((4, 4), np.float32)
    with pytest.raises(ks.MarketError, match="would reach 2\\^31"):
        for _ in range(500):
            before = envs.state_dict()
            envs.step(hold)
    assert_untouched(envs, before)
    np.testing.assert_array_equal(envs.reset(seed=1)[0], start)
