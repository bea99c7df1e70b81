"""Trading: what an order means, what it earns, how an episode ends; its attackers are in test_reward_hacking.py."""

import numpy as np
import pytest
import torch
from env_helpers import squash

import kineticsim_env as ks
from kineticsim_env.envs.vector import MarketMakingVectorEnv, TradingVectorEnv

SMALL = {"preset": "trading", "engine": "cpu", "horizon": 30, "bank_size": 16, "warmup": 20}
both_engines = pytest.mark.parametrize("engine", ["cpu", "numpy"])


def make(num_envs=4, kind=TradingVectorEnv, **kwargs):
    return kind(num_envs, **{**SMALL, "stagger": False, "autoreset_mode": "disabled", **kwargs})


def random_actions(steps, num_envs, seed=0, size=2):
    return np.random.default_rng(seed).uniform(-1, 1, (steps, num_envs, size)).astype(np.float32)


# Orders ---------------------------------------------------------------------------------------------------------------


def asked_for(action, max_qty=7, max_offset=10):
    """Side, ticks through the mid and units of each order, by hand."""
    if action.ndim == 1:
        order = np.maximum(action - 1, 0)
        return np.where(order < 7, 1, -1), np.array([-6, -3, -1, 0, 1, 3, 6])[order % 7], max_qty * (action > 0)
    quantity = np.rint(np.abs(action[:, 0]) * np.float32(max_qty)).astype(int)
    return np.where(action[:, 0] > 0, 1, -1), np.rint(action[:, 1] * np.float32(max_offset)).astype(int), quantity


@both_engines
@pytest.mark.parametrize("action_type", ["continuous", "discrete"])
def test_orders_and_observations_by_hand(action_type, engine):
    envs = make(32, action_type=action_type, engine=engine, max_qty=7, inventory_limit=12)
    observation, _ = envs.reset(seed=6)
    assert not observation[:, [30, 31, 33, 34, 35]].any()
    generator, cut, row = np.random.default_rng(3), 0, np.arange(32)
    for t in range(12):
        mid2 = envs.core.tensors["mid_history"][:, 0].numpy().astype(int)
        held = envs.simulator.inventory[:, 0].numpy()
        action = generator.integers(0, 15, 32) if action_type == "discrete" else random_actions(1, 32, t)[0]
        side, offset, quantity = asked_for(action)
        cut += int((quantity > 12 - side * held).sum())
        quantity = np.minimum(quantity, 12 - side * held)
        price = np.where(side > 0, (mid2 >> 1) + offset, ((mid2 + 1) >> 1) - offset)
        observation = envs.step(action)[0]
        quotes, filled = envs.simulator.quotes[:, 0].numpy(), envs.fills.numpy()
        here = np.where(side > 0, 0, 1)
        own, stands = 2 * here, quotes[row, 2 * here + 1]
        np.testing.assert_array_equal(stands + filled[row, here], quantity)
        np.testing.assert_array_equal(quotes[row, own][quantity > 0], price[quantity > 0])
        assert not quotes[row, 3 - own].any() and not filled[row, 1 - here].any()  # so it never meets its own

        mid2 = envs.simulator.mid2.numpy().astype(np.int64)
        held = envs.simulator.inventory[:, 0].numpy()
        assert (np.abs(held) <= 12).all()
        money2 = 2 * envs.simulator.cash[:, 0].numpy() + held * mid2
        for place, wanted in (
            (30, np.float32(held) / np.float32(12)),
            (31, squash(np.float32(money2) * np.float32(0.5), 1000)),
            (32, np.float32(29 - t) / np.float32(30)),
            (33, np.where(stands > 0, side, 0)),
            (34, squash(np.where(stands > 0, mid2 - 2 * quotes[row, own], 0), 16)),
            (35, np.float32(stands) / np.float32(7)),
        ):
            np.testing.assert_array_equal(observation[:, place], wanted, err_msg=str(place))
    assert cut > 10


@both_engines
@pytest.mark.parametrize(
    ("action", "quotes"),  # of a market that nobody else trades in: mid 64, 8 units and 10 ticks at most
    [
        ((0.0, 1.0), (0, 0, 0, 0)),
        ((-0.0, -1.0), (0, 0, 0, 0)),
        ((0.06, 1.0), (0, 0, 0, 0)),  # rint(0.48)
        ((0.0625, 0.0), (0, 0, 0, 0)),  # rint(0.5) is even
        ((0.07, 0.0), (64, 1, 0, 0)),
        ((-0.07, 0.0), (0, 0, 64, 1)),
        ((0.1875, -1.0), (54, 2, 0, 0)),  # rint(1.5)
        ((1.0, -1.0), (54, 8, 0, 0)),
        ((-1.0, -1.0), (0, 0, 74, 8)),
        ((1.0, -0.25), (62, 8, 0, 0)),  # rint(-2.5)
        (0, (0, 0, 0, 0)),
        (1, (58, 8, 0, 0)),
        (3, (63, 8, 0, 0)),
        (4, (64, 8, 0, 0)),
        (8, (0, 0, 70, 8)),
        (10, (0, 0, 65, 8)),
        (11, (0, 0, 64, 8)),
    ],
)
def test_known_orders(action, quotes, engine):
    nobody = ks.MarketConfig(
        num_agents=1, noise=0.0, momentum=0.0, maker=1.0, fundamental=0.0, maker_half_spread=60, market_order_prob=0.0,
        init_depth=1, tie="mid",
    )  # fmt: skip
    discrete = isinstance(action, int)
    envs = make(1, config=nobody, bank_size=0, engine=engine, action_type="discrete" if discrete else "continuous")
    envs.reset(seed=1)
    assert int(envs.simulator.mid2) == 128
    envs.step(np.array([action]) if discrete else np.array([action], np.float32))
    assert envs.simulator.quotes[0, 0].tolist() == list(quotes)
    assert not envs.fills.any()


@both_engines
def test_holding_withdraws_the_standing_order_and_keeps_the_inventory(engine):
    envs = make(8, engine=engine)
    envs.reset(seed=2)
    for _ in range(3):
        envs.step(np.tile(np.float32([1.0, 0.2]), (8, 1)))
    held = envs.simulator.inventory.clone()
    assert bool((held > 0).all()) and bool(envs.simulator.quotes.any())
    for _ in range(3):
        observation = envs.step(np.tile(np.float32([0.0, 1.0]), (8, 1)))[0]
    assert torch.equal(envs.simulator.inventory, held) and not envs.simulator.quotes.any()
    assert not observation[:, 33:36].any() and not envs.fills.any()


def test_orders_stop_at_the_limit():
    for limit, action in ((5, [1.0, 1.0]), (5, [-1.0, 1.0]), (1, [1.0, 1.0])):
        envs = make(8, inventory_limit=limit)
        envs.reset(seed=2)
        for _ in range(15):
            observation = envs.step(np.tile(np.float32(action), (8, 1)))[0]
            assert int(envs.simulator.inventory.abs().max()) <= limit
        assert envs.simulator.inventory[:, 0].tolist() == [limit * int(action[0])] * 8
        assert (observation[:, 30] == action[0]).all() and not observation[:, 35].any()
    unlimited = make(8, inventory_limit=None)
    unlimited.reset(seed=2)
    for _ in range(30):
        unlimited.step(np.ones((8, 2), np.float32))
    assert int(unlimited.simulator.inventory.min()) > 60


def test_replacing_a_momentum_agent_keeps_the_others_random_words():
    added, replaced = make(1, bank_size=0), make(1, bank_size=0, replace="momentum")
    one, two = added.simulator.rows, replaced.simulator.rows
    assert two["num_momentum"][0] == one["num_momentum"][0] - 1
    assert all(np.array_equal(one[name], two[name]) for name in one if name != "num_momentum")


# Rewards and ends -----------------------------------------------------------------------------------------------------


def played(seed=5, kind=TradingVectorEnv, **kwargs):
    """Rewards [T, M], and before and after each decision value, inventory and fills [T, M], in ticks and units."""
    envs = make(16, kind, config=ks.MarketConfig.preset("trading", fee=300), **{"reward_scale": 1.0, **kwargs})
    envs.reset(seed=seed)
    rewards, values, held, filled = [], [np.zeros(16)], [np.zeros(16)], []
    simulator = envs.simulator
    for t, action in enumerate(random_actions(30, 16, size=envs.single_action_space.shape[0])):
        if t % 5 == 4:
            action[...] = [0.0, 0.0] if kind is TradingVectorEnv else -1.0  # no order
        rewards.append(envs.step(action)[1])
        inventory, cash, fees = (part[:, 0].double().numpy() for part in
                                 (simulator.inventory, simulator.cash, simulator.fees))  # fmt: skip
        values.append(cash + inventory * simulator.fundamental_price.numpy() - fees / 1000)
        held.append(inventory)
        filled.append(envs.fills.sum(1).numpy())
    return np.stack(rewards), np.diff(values, axis=0), np.stack(held), np.stack(filled)


def test_rewards_by_hand():
    rewards, pnl, held, filled = played(reward="pnl", reward_scale=4.0)
    np.testing.assert_allclose(rewards, pnl / 4, rtol=1e-5, atol=1e-5)
    rewards, pnl, held, filled = played(reward="inventory", inventory_penalty=0.03)
    np.testing.assert_allclose(rewards, pnl - 0.03 * held[1:] ** 2, rtol=1e-4, atol=1e-4)
    assert np.abs(held).max() > 10
    rewards, pnl, held, _ = played(reward="inventory")
    np.testing.assert_allclose(rewards, pnl - 0.002 * held[1:] ** 2, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mark", ["fundamental", "mid", "liquidation"])
@pytest.mark.parametrize("kind", [TradingVectorEnv, MarketMakingVectorEnv])
def test_the_edge_by_hand(kind, mark):
    """All of PnL but what the inventory held before gained as the fundamental price moved, whatever the mark is."""
    envs = make(16, kind, config=ks.MarketConfig.preset("trading", fee=300), reward="edge", mark=mark, reward_scale=2.0)
    envs.reset(seed=5)
    simulator, moved = envs.simulator, 0.0

    def now():
        parts = simulator.cash, simulator.inventory, simulator.fees
        return *(part[:, 0].double().numpy() for part in parts), simulator.fundamental_price.double().numpy()

    for action in random_actions(30, 16, size=envs.single_action_space.shape[0]):
        cash, held, fees, _ = now()
        rewards = envs.step(action)[1]
        after_cash, after_held, after_fees, price = now()
        edge = after_cash - cash + (after_held - held) * price - (after_fees - fees) / 1000
        np.testing.assert_array_equal(rewards, (edge / 2).astype(np.float32))
        moved += np.abs(held).sum()
    assert moved > 100


@pytest.mark.parametrize("kind", [TradingVectorEnv, MarketMakingVectorEnv])
def test_rewards_per_unit_by_hand(kind):
    rewards, pnl, held, filled = played(kind=kind, reward="per_unit", idle_penalty=0.7)
    units = np.maximum(1, np.maximum(filled, np.abs(held[:-1])))
    np.testing.assert_allclose(rewards, pnl / units - 0.7 * (filled == 0), rtol=1e-4, atol=1e-5)
    more_filled, more_held = filled > np.abs(held[:-1]), filled < np.abs(held[:-1])
    assert more_filled.any() and more_held.any() and (filled[4::5] == 0).all()


def test_idling_costs_per_unit():
    envs = make(4, reward="per_unit", reward_scale=1.0)
    envs.reset(seed=1)
    for _ in range(30):
        assert envs.step(np.zeros((4, 2), np.float32))[1].tolist() == [np.float32(-0.1)] * 4


def test_truncation_at_the_horizon_and_termination_at_a_loss():
    envs = make(16, max_loss=25.0, horizon=40, reward="pnl", reward_scale=1.0, autoreset_mode="same_step")
    envs.reset(seed=1)
    total, elapsed, terminations, truncations = np.zeros(16), np.zeros(16), 0, 0
    for action in random_actions(120, 16):
        _, reward, terminated, truncated, infos = envs.step(action)
        total += reward
        elapsed += 1
        np.testing.assert_array_equal(terminated, total <= -25)
        np.testing.assert_array_equal(truncated, (elapsed == 40) & ~terminated)
        terminations, truncations = terminations + int(terminated.sum()), truncations + int(truncated.sum())
        total[infos["_final_obs"]] = elapsed[infos["_final_obs"]] = 0
    assert terminations > 3 and truncations > 3


@pytest.mark.parametrize("kwargs", [{"horizon": 1}, {"auctions_per_step": 5}, {"max_qty": 1, "inventory_limit": 1},
                                    {"max_offset": 300}, {"max_qty": 5000, "inventory_limit": None}])  # fmt: skip
def test_boundaries(kwargs):
    results = []
    for engine in ("cpu", "numpy"):
        envs = make(6, engine=engine, autoreset_mode="same_step", **kwargs)
        envs.reset(seed=3)
        steps = [envs.step(action) for action in np.sign(random_actions(8, 6)) * random_actions(8, 6, 1).round()]
        assert all(envs.observation_space.contains(step[0]) for step in steps)
        results.append(np.concatenate([np.column_stack([*step[:4]]).ravel() for step in steps]))
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize(
    ("kwargs", "error", "match"),
    [
        ({"reward": "shortfall"}, ValueError, "reward: expected one of 'pnl', 'inventory'.*got 'shortfall'"),
        ({"idle_penalty": float("nan")}, ValueError, "idle_penalty: expected a finite number from 0.*got nan"),
        ({"replace": "noise"}, ValueError, "replace: expected one of None, 'momentum'.*got 'noise'"),
        ({"side": "buy"}, TypeError, "one of horizon.*, got the unknown argument 'side'"),
    ],
)
def test_bad_arguments(kwargs, error, match):
    with pytest.raises(error, match=match):
        make(**kwargs)


# Settings that change -------------------------------------------------------------------------------------------------


@both_engines
def test_set_task_has_effect_at_the_next_step(engine):
    def play(changes, at=7):
        envs, rewards = make(8, engine=engine, reward="pnl", reward_scale=1.0), []
        envs.reset(seed=3)
        for t, action in enumerate(random_actions(15, 8)):
            if t == at:
                envs.set_task(**changes)
            rewards.append(envs.step(action)[1])
        return np.stack(rewards), envs

    plain, _ = play({})
    scaled, envs = play({"reward_scale": 4.0})
    assert envs.core.task.reward_scale == 4.0
    np.testing.assert_array_equal(scaled[:7], plain[:7])
    np.testing.assert_array_equal(scaled[7:], plain[7:] / np.float32(4))
    penalised, envs = play({"reward": "inventory", "inventory_penalty": 0.5})
    np.testing.assert_array_equal(penalised[:7], plain[:7])
    assert (penalised[7:] <= plain[7:]).all() and (penalised[7:] < plain[7:]).any()
    stopped, envs = play({"max_loss": 1e-3}, at=14)
    np.testing.assert_array_equal(stopped, plain)
    np.testing.assert_array_equal(envs.core.tensors["terminated"][:, 0].numpy(), plain.sum(0) < 0)
    assert 0 < int(envs.core.tensors["done"].sum()) < 8
    marked, envs = play({"mark": "mid"})  # the sum is the value at the mark there is in the end
    value = envs.simulator.cash[:, 0] + envs.simulator.inventory[:, 0] * envs.simulator.mid2 / 2
    np.testing.assert_allclose(marked.sum(0), value.numpy(), atol=1e-3)


def test_what_set_task_refuses():
    envs = make(reward="inventory")
    envs.reset(seed=1)
    for name, value in (("horizon", 9), ("max_qty", 3), ("inventory_limit", 3), ("bank_size", 0), ("side", "buy"),
                        ("action_type", "discrete"), ("execution_reward", "terminal"), ("foo", 1)):  # fmt: skip
        with pytest.raises(
            ValueError, match=f"set_task: expected one of reward, mark, inventory.*, got the field '{name}'"
        ):
            envs.set_task(**{name: value})
    with pytest.raises(ValueError, match="reward_scale: expected .*, got 0"):
        envs.set_task(reward="pnl", reward_scale=0)
    assert envs.core.task.reward == "inventory"
