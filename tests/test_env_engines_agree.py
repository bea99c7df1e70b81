"""The environment step of the NumPy oracle and of the C++ engine: every tensor the same, bit for bit."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kineticsim_env.build import cpu_unavailable
from kineticsim_env.config import CLASSES, MarketConfig, class_counts
from kineticsim_env.env_core import DISABLED, NEXT_STEP, SAME_STEP, EnvCore
from kineticsim_env.tasks.market_making import ROLES, make_task

pytestmark = pytest.mark.skipif(cpu_unavailable() is not None, reason="no C++ compiler")


@st.composite
def environments(draw):
    """Arguments of an `EnvCore`, a seed for the actions, and how many steps to play."""
    markets = draw(st.integers(1, 4))
    pick = lambda *values: draw(st.sampled_from(values))  # noqa: E731

    def field(*values):
        """One value, or sometimes one for each market."""
        if draw(st.integers(0, 5)) == 0:
            return [pick(*values) for _ in range(markets)]
        return pick(*values)

    weights = np.array([draw(st.integers(0, 4)) for _ in CLASSES]) + np.array([0, 0, 0, draw(st.booleans())])
    weights = weights if weights.sum() else np.array([1, 0, 0, 0])
    shares = dict(zip(CLASSES, (weights / weights.sum()).tolist(), strict=True))
    levels = pick(32, 64, 128, 256)
    window = pick(0, 3, levels // 4)
    config = MarketConfig(
        **shares,
        num_levels=levels,
        num_agents=pick(1, 2, 7, 16, 33, 64),
        init_price=field(levels // 2, 3, levels - 2),
        init_depth=field(0, 1, 8),
        max_order_qty=field(1, 4, 65535),
        noise_spread=field(0, 3, 12),
        market_order_prob=field(0.0, 0.1, 0.5, 1.0),
        maker_half_spread=field(0, 1, 8),
        walk_prob=field(0.0, 0.3) if window else 0.0,
        jump_prob=field(0.0, 0.1) if window else 0.0,
        jump_size=field(0, 4, 50),
        cancel_prob=field(0.0, 0.4, 1.0),
        window=window,
        tie=field("lowest", "mid"),
        residue=field("rest", "cancel"),
        population=pick("fixed", "fixed", "multinomial"),
        max_quote_qty=field(3, 1 << 20),
        inventory_limit=pick(None, None, 5),
        fee=field(0, 7),
    )
    roles = draw(st.lists(st.sampled_from(ROLES), min_size=1, max_size=draw(st.sampled_from((1, 4, 32)))))
    left = class_counts(config, 1)[0] if config.population == "fixed" else np.full(4, 32)
    slots = []
    for role in roles:
        index = CLASSES.index(role)
        replaces = left[index] > 0 and draw(st.booleans())
        left[index] -= int(replaces)
        slots.append(role if replaces else None)
    task = make_task(
        {
            "horizon": pick(1, 2, 5, 9),
            "action_type": pick("continuous", "discrete"),
            "max_offset": pick(1, 4, 10, 300),
            "max_qty": pick(1, 8, 5000),
            "inventory_limit": pick(None, 1, 40),
            "reward": pick("pnl", "inventory", "asymmetric"),
            "mark": pick("fundamental", "mid", "liquidation"),
            "inventory_penalty": pick(0.0, 0.01, 0.3),
            "dampening": pick(0.5, 0.7),
            "reward_scale": pick(1.0, 10.0, 0.3),
            "max_loss": pick(None, None, 1.0, 50.0),
            "max_target": pick(1, 40, 65535),
            "leftover_penalty": pick(0.0, 10.0, 0.7),
            "warmup": pick(0, 3, 20),
            "bank_size": pick(0, 1, 5),
            "bank_per_market": pick(1, 3),
        }
    )
    kwargs = {
        "slots": slots,
        "autoreset": pick(NEXT_STEP, SAME_STEP, DISABLED),
        "stagger": draw(st.booleans()),
        "auctions_per_step": pick(1, 1, 2, 5),
    }
    return (config, markets, task, roles), kwargs, draw(st.integers(0, 2**32)), pick(3, 8, 20)


def make_cores(arguments, kwargs):
    rest = {"device": None, "prefer_cpu": "", "validate": False}
    return [EnvCore(*arguments, engine=engine, **rest, **kwargs) for engine in ("cpu", "numpy")]


def draw_actions(core, generator, bad):
    """Actions that are often extreme, and now and then outside their space or NaN."""
    shape = (core.simulator.num_markets, len(core.roles))
    if core.task.action_type == "discrete":
        choices = np.array([[generator.integers(0, 49 if role == "maker" else 15) for role in core.roles]] * shape[0])
        wrong = np.array([-(2**40), -1, 15, 49, 2**40])[generator.integers(0, 5, shape)]
        return {"choices": torch.from_numpy(np.where(generator.random(shape) < bad, wrong, choices))}
    actions = generator.uniform(-1, 1, (*shape, 4)).astype(np.float32)
    extreme = np.array([-1, 0, 1], dtype=np.float32)[generator.integers(0, 3, actions.shape)]
    actions = np.where(generator.random(actions.shape) < 0.3, extreme, actions)
    wrong = np.array([np.nan, np.inf, -np.inf, 1.5, -(2.0**30)], dtype=np.float32)[
        generator.integers(0, 5, actions.shape)
    ]
    return {"actions": torch.from_numpy(np.where(generator.random(actions.shape) < bad, wrong, actions))}


def assert_same(cores, when):
    first, second = cores
    for name in first.tensors:
        assert_equal(first.tensors[name], second.tensors[name], f"{name} {when}")
    for name in first.simulator.tensors:
        assert_equal(first.simulator.tensors[name], second.simulator.tensors[name], f"{name} {when}")
    assert_equal(first.fills, second.fills, f"fills {when}")


def assert_equal(first, second, what):
    """Bits, so that -0.0 is not 0.0."""
    if first.dtype == torch.float32:
        first, second = first.view(torch.int32), second.view(torch.int32)
    assert torch.equal(first, second), f"{what}: cpu {first.flatten().tolist()}, numpy {second.flatten().tolist()}"


@settings(max_examples=120)
@given(environments(), st.sampled_from((0.0, 0.0, 0.05)))
def test_engines_agree_on_every_tensor(environment, bad):
    arguments, kwargs, seed, steps = environment
    cores = make_cores(arguments, kwargs)
    generator = np.random.default_rng(seed)
    for core in cores:
        core.reset(seed)
    assert_same(cores, "after the reset")
    for t in range(steps):
        actions = draw_actions(cores[0], generator, bad)
        for core in cores:
            core._engine.launch(1, auctions=core.auctions_per_step, **actions)
        assert_same(cores, f"after step {t}")
        observation = cores[0].tensors["observation"]
        assert bool((observation.abs() <= 1).all())
        mask = generator.random(arguments[1]) < 0.2
        if mask.any():
            again = seed + t if generator.random() < 0.3 else None
            for core in cores:
                core.simulator.tensors["error"].zero_()  # a reset would raise
                core.reset(again, mask)
            assert_same(cores, f"after the reset behind step {t}")


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("reward", ["pnl", "inventory", "asymmetric"])
@pytest.mark.parametrize("mark", ["fundamental", "mid", "liquidation"])
def test_engines_agree_in_the_trading_market(role, reward, mark):
    task = make_task({"horizon": 12, "reward": reward, "mark": mark, "bank_size": 8, "max_loss": 150.0})
    arguments = (MarketConfig.preset("trading"), 6, task, [role])
    cores = make_cores(arguments, {"slots": [role], "autoreset": SAME_STEP, "stagger": True, "auctions_per_step": 2})
    generator = np.random.default_rng(5)
    for core in cores:
        core.reset(11)
    ended = 0
    for t in range(30):
        actions = draw_actions(cores[0], generator, 0.0)
        for core in cores:
            core.step(**actions)
        assert_same(cores, f"after step {t}")
        ended += int(cores[0].tensors["truncated"].sum())
    assert ended > 0
    assert int(cores[0].simulator.tensors["volume"].sum()) > 0
