"""Execution: the block, its shortfall recomputed by hand, and the auctions that the engine forces the rest through."""

import numpy as np
import pytest
import torch
from markets import FEW_ORDERS
from thorough import covering

import kineticsim_env as ks
from kineticsim_env.config import MAX_PRICE
from kineticsim_env.envs.core import EnvCore
from kineticsim_env.envs.settings import EnvSettings
from kineticsim_env.envs.single import ExecutionEnv
from kineticsim_env.envs.vector import ExecutionVectorEnv
from kineticsim_env.evaluation import confidence_interval
from kineticsim_env.tasks import ExecutionTask, ManyLearnersTask
from kineticsim_env.tasks.many_learners import slots_of

SMALL = {"preset": "trading", "engine": "cpu", "horizon": 12, "bank_size": 16, "warmup": 20, "block_qty": 30}
SMALL |= {"reward": "shortfall"}  # what can be done by hand from fills and prices
HOLD = np.array([0, -1], np.float32)
both_engines = pytest.mark.parametrize("engine", ["cpu", "numpy"])


def make(num_envs=4, **kwargs):
    return ExecutionVectorEnv(num_envs, **{**SMALL, "stagger": False, "autoreset_mode": "disabled", **kwargs})


def make_core(roles, num_markets=1, engine="cpu", config=None, auctions=1, **task):
    """An `EnvCore` with executors and others in one market."""
    own = {"horizon": 12, "bank_size": 8, "warmup": 5, "block_qty": 30, "execution_reward": "shortfall"}
    task_settings = ManyLearnersTask(**{**own, **task})
    config = FEW_ORDERS if config is None else config
    settings = EnvSettings(config, engine=engine, autoreset_mode="disabled", stagger=False, auctions_per_step=auctions)
    return EnvCore(num_markets, task_settings, roles, slots_of(tuple(roles)), settings)


def random_actions(steps, num_envs, seed=0):
    """Actions [T, M, 2] that leave something for the deadline."""
    actions = np.random.default_rng(seed).uniform(-1, 1, (steps, num_envs, 2)).astype(np.float32)
    actions[..., 1] = -1 + 0.6 * (actions[..., 1] + 1) / 2  # up to 2 of 8 units
    return actions


def one_sided():
    """Everybody buys, nobody ever sells."""
    return ks.MarketConfig(
        num_agents=8, noise=0, momentum=0, maker=0, fundamental=1, fundamental_price=120, init_depth=0,
        market_order_prob=0.0,
    )  # fmt: skip


# The forced auctions --------------------------------------------------------------------------------------------------


@covering
@both_engines
@pytest.mark.parametrize("roles", [("executor",), ("maker", "executor", "noise", "executor")])
@pytest.mark.parametrize("auctions", [1, 3])
def test_the_last_step_is_that_of_a_simulator_by_hand(engine, roles, auctions):
    """Branch the market before the deadline, and play the decision and the forced auctions quote by quote."""
    executors = [slot for slot, role in enumerate(roles) if role == "executor"]
    core = make_core(roles, engine=engine, auctions=auctions, forced_qty=3)
    generator, forced_ever = np.random.default_rng(1), 0
    for seed in range(4):
        core.reset(seed)
        for _ in range(11):
            actions = generator.uniform(-1, 1, (1, len(roles), 4)).astype(np.float32)
            actions[:, executors, 1] = -0.75  # one unit per decision
            core.step(actions=torch.from_numpy(actions))
        assert not core.tensors["ended"].any()
        side = core.tensors["observation"][0, executors, 33].long()
        clone, hold = core.simulator.branch(), torch.zeros(1, len(roles), 4)
        hold[..., 1:] = -1.0
        if roles[0] == "maker":
            hold[0, 0] = 0.0
        before, arrival = clone.cash.clone(), int(core.tensors["arrival2"])
        core.step(actions=hold)

        mid2 = int(clone.mid2)
        quotes = torch.zeros(1, len(roles), 4, dtype=torch.int32)
        if roles[0] == "maker":  # 0 is the middle of each range: 5 ticks, 4 units
            quotes[0, 0] = torch.tensor([(mid2 >> 1) - 5, 4, ((mid2 + 1) >> 1) + 5, 4])
        fills, forced = clone.step(quotes, auctions=auctions), 0
        while forced < 2 * 10 + 16:
            left = 30 - side * clone.inventory[0, executors]
            if not bool((left > 0).any()):
                break
            quotes = torch.zeros_like(quotes)
            for slot, towards, rest in zip(executors, side.tolist(), left.tolist(), strict=True):
                quantity = min(3, max(0, rest))
                if quantity:
                    quotes[0, slot, 0 if towards > 0 else 2] = towards * MAX_PRICE
                    quotes[0, slot, 1 if towards > 0 else 3] = quantity
            fills += clone.step(quotes)
            forced += 1
        assert forced >= 7
        forced_ever += forced
        for name, tensor in clone.tensors.items():
            assert torch.equal(core.simulator.tensors[name], tensor), name
        assert torch.equal(core.fills, fills)
        assert int(core.simulator.t) == 12 * auctions + forced
        money = (clone.cash - before)[0, executors]
        bought = fills[0, executors, 0] - fills[0, executors, 1]
        wanted = (money.double() + bought.double() * arrival / 2) / 30 / 10
        np.testing.assert_allclose(core.tensors["reward"][0, executors].double(), wanted, rtol=1e-6, atol=1e-7)
        if roles[0] == "maker" and forced:
            assert not core.simulator.quotes[..., 1::2].any()  # withdrawn: the others' standing quotes too
    assert forced_ever > 0


@both_engines
def test_without_anything_left_no_auction_is_forced_and_quotes_stand(engine):
    core = make_core(("maker", "executor"), 16, engine=engine, horizon=8, block_qty=4)
    core.reset(3)
    actions = torch.ones(16, 2, 4)
    actions[:, 0, :2] = 1.0  # quotes too far away to be filled
    for _ in range(8):
        core.step(actions=actions)
    assert bool((core.simulator.inventory[:, 1].abs() == 4).all())
    assert core.simulator.t.tolist() == [8] * 16
    assert bool((core.simulator.quotes[:, 0, 1::2].sum(1) > 0).all())


@both_engines
def test_a_liquid_market_takes_the_whole_block(engine):
    envs = make(16, engine=engine, horizon=3, block_qty=50, forced_qty=4)
    observation, _ = envs.reset(seed=1)
    side = observation[:, 33]
    for _ in range(3):
        observation, reward, terminated, truncated, _ = envs.step(np.tile(HOLD, (16, 1)))
    assert terminated.all() and not truncated.any()
    np.testing.assert_array_equal(envs.simulator.inventory[:, 0].numpy(), 50 * side)
    np.testing.assert_array_equal(envs.fills.numpy(), np.where(side > 0, 50, 0)[:, None] * [1, 0]
                                  + np.where(side < 0, 50, 0)[:, None] * [0, 1])  # fmt: skip
    forced = envs.simulator.t.numpy() - 3
    assert forced.min() >= 13 and forced.max() <= envs.core.task.forced_auctions == 42
    assert (observation[:, 30] == 0).all() and (observation[:, 35] == 0).all()


@both_engines
@pytest.mark.parametrize("reward", ["edge", "shortfall", "risk_averse", "terminal"])
def test_a_one_sided_market_leaves_the_rest_which_is_paid_for(engine, reward):
    envs = make(2, engine=engine, config=one_sided(), bank_size=0, horizon=3, side="buy", block_qty=10, forced_qty=2,
                reward=reward, leftover_penalty=7.0, risk_aversion=0.25)  # fmt: skip
    envs.reset(seed=1)
    for _ in range(3):
        observation, rewards, terminated, truncated, _ = envs.step(np.ones((2, 2), np.float32))
    assert terminated.all() and not truncated.any()
    assert envs.simulator.t.tolist() == [3 + 2 * 5 + 16] * 2 and not envs.simulator.inventory.any()
    assert rewards.tolist() == [-7.0 - 0.25 * (reward == "risk_averse")] * 2
    assert (observation[:, 30] == 1).all()


@both_engines
def test_an_overflow_in_a_forced_auction_leaves_the_state_untouched(engine):
    config = ks.MarketConfig(num_agents=4096, max_order_qty=65535)  # the book grows by 10^8 units per auction
    envs = make(2, engine=engine, config=config, bank_size=0, horizon=2, forced_qty=1, block_qty=200)
    envs.reset(seed=1)
    hold = np.tile(HOLD, (2, 1))
    envs.step(hold)
    before = envs.state_dict()
    with pytest.raises(ks.MarketError, match="would reach 2\\^31"):
        envs.step(hold)
    for name, value in envs.state_dict().items():
        assert torch.equal(before[name], value), name
    assert int(envs.simulator.t.max()) == 1


# Rewards --------------------------------------------------------------------------------------------------------------


def whole_episodes(fee=0, seed=5, **kwargs):
    """Rewards [T, M], and what trades brought: ticks x units [M] and fees, from fills and prices auction by auction."""
    envs = make(32, config=ks.MarketConfig.preset("trading", fee=fee), horizon=12, **kwargs)
    envs.reset(seed=seed)
    rewards, alive = [], np.ones(32, bool)
    for action in random_actions(12, 32):
        _, reward, terminated, truncated, _ = envs.step(action)
        rewards.append(np.where(alive, reward, 0))
        assert not truncated.any()
        alive &= ~terminated
        if alive.any() and terminated.any():
            break  # no market may be stepped further
    return np.stack(rewards).astype(np.float64), envs, alive


@pytest.mark.parametrize("scale", [1.0, 4.0])
@pytest.mark.parametrize("fee", [0, 700])
def test_rewards_sum_to_minus_the_implementation_shortfall(scale, fee):
    rewards, envs, alive = whole_episodes(fee, reward="shortfall", reward_scale=scale)
    assert not alive.any() and rewards.shape == (12, 32)
    simulator, arrival = envs.simulator, envs.core.tensors["arrival2"].numpy() / 2
    held = simulator.inventory[:, 0].numpy()
    assert (np.abs(held) == 30).all() and len(set(np.sign(held))) == 2
    paid = -simulator.cash[:, 0].numpy() + simulator.fees[:, 0].numpy() / 1000  # for a sale, minus what came in
    assert bool((simulator.fees[:, 0] == fee * 30).all())
    shortfall = (paid - held * arrival) / 30
    np.testing.assert_allclose(rewards.sum(0) * scale, -shortfall, rtol=1e-5, atol=1e-5)


def test_fills_times_prices_are_the_cash():
    """One auction per decision, and no forced ones as long as the episode lasts: each fill was at the last price."""
    envs = make(16, horizon=40, block_qty=200)
    envs.reset(seed=2)
    cash, rewards, arrival = np.zeros(16), np.zeros(16), envs.simulator.mid2.numpy() / 2
    np.testing.assert_array_equal(envs.core.tensors["arrival2"].numpy() / 2, arrival)
    for action in random_actions(30, 16):
        _, reward, *_ = envs.step(action)
        bought, sold = envs.fills.numpy().T
        price = envs.simulator.last_price.numpy()
        cash += (sold - bought) * price
        np.testing.assert_allclose(reward, ((sold - bought) * (price - arrival)) / 200, rtol=1e-6, atol=1e-7)
        rewards += reward
        np.testing.assert_array_equal(envs.simulator.cash[:, 0].numpy(), cash)
    assert np.abs(cash).min() > 0


def test_the_terminal_reward_is_the_same_sum_and_the_risk_averse_one_less_its_penalty():
    sums, _, _ = whole_episodes()
    terminal, _, _ = whole_episodes(reward="terminal")
    assert not terminal[:-1].any()
    np.testing.assert_allclose(terminal[-1], sums.sum(0), rtol=1e-5, atol=1e-6)

    envs = make(32, reward="risk_averse", risk_aversion=0.4, config=ks.MarketConfig.preset("trading", fee=0))
    envs.reset(seed=5)
    for t, action in enumerate(random_actions(12, 32)):
        _, reward, *_ = envs.step(action)
        share = (30 - np.abs(envs.simulator.inventory[:, 0].numpy())) / 30
        np.testing.assert_allclose(sums[t] - reward, 0.4 * share**2, rtol=1e-4, atol=1e-5)
    assert (share == 0).all()


@both_engines
def test_a_stop_at_a_loss_is_no_way_round_the_rest_of_the_block(engine):
    """An executor that `max_loss` takes out is not forced through the market, but pays for what it leaves."""
    core = make_core(
        ("executor",), 32, engine=engine, max_loss=3.0, leftover_penalty=9.0, reward_scale=1.0,
        config=ks.MarketConfig.preset("trading", fee=1000),
    )  # fmt: skip
    core.reset(1)
    actions = torch.tensor([0.2, -0.75, 0.0, 0.0]).expand(32, 1, 4).contiguous()
    while not bool(core.tensors["done"].any()):
        cash, held, fees = (part[:, 0].clone() for part in
                            (core.simulator.cash, core.simulator.inventory, core.simulator.fees))  # fmt: skip
        core.step(actions=actions)
    ended = core.tensors["terminated"][:, 0]
    simulator, arrival = core.simulator, core.tensors["arrival2"].double() / 2
    left = 30 - simulator.inventory[:, 0].abs()
    assert 0 < int(ended.sum()) < 32 and int(left[ended].min()) > 0 and int(core.tensors["elapsed"].max()) < 12
    money = (simulator.cash[:, 0] - cash) + (simulator.inventory[:, 0] - held) * arrival
    wanted = (money - (simulator.fees[:, 0] - fees) / 1000 - 9 * left * ended) / 30
    np.testing.assert_allclose(core.tensors["reward"][:, 0].double(), wanted, rtol=1e-5, atol=1e-6)
    assert simulator.t.tolist() == [int(simulator.t[0])] * 32  # no auction was forced


def test_waiting_is_not_free_and_worse_than_slicing():
    """What the attackers of a block would do: let the engine do it at the deadline."""
    results = {}
    for name in ("wait", "twap"):
        envs = make(1024, horizon=50, block_qty=100, output="torch")
        observation, _ = envs.reset(seed=9)
        total, size = torch.zeros(1024, dtype=torch.float64), 100
        for t in range(50):
            left = (observation[:, 30].abs() * size).round()
            slices = torch.ceil(left / (50 - t)) if name == "twap" else torch.zeros_like(left)
            observation, reward, terminated, *_ = envs.step(
                torch.stack([torch.zeros_like(left), (slices / 4 - 1).clamp(max=1.0)], 1)
            )
            total += reward
            if bool(terminated.any()) and t < 49:
                pytest.fail("a block was done early")
        assert bool(terminated.all()) and bool((envs.simulator.inventory.abs() == 100).all())
        results[name] = total.numpy()
    mean, half = confidence_interval(results["wait"])
    assert mean + half < -0.5
    mean, half = confidence_interval(results["twap"] - results["wait"])
    assert mean - half > 0.5


def test_the_arrival_price_is_fixed_when_the_episode_begins():
    envs = make(64, horizon=20, block_qty=400, max_qty=40, forced_qty=40)
    envs.reset(seed=4)
    arrival = envs.core.tensors["arrival2"].clone()
    assert torch.equal(arrival, envs.simulator.mid2)
    moved = 0
    for _ in range(19):
        envs.step(np.ones((64, 2), np.float32))
        assert torch.equal(envs.core.tensors["arrival2"], arrival)
        moved = max(moved, int((envs.simulator.mid2 - arrival).abs().max()))
        if bool(envs.core.tensors["done"].any()):
            break
    assert moved > 20


# Ends, sides and observations -----------------------------------------------------------------------------------------


@both_engines
def test_a_block_done_early_terminates(engine):
    envs = make(16, engine=engine, horizon=40, block_qty=10, autoreset_mode="same_step")
    envs.reset(seed=1)
    lengths, elapsed = [], np.zeros(16)
    for _ in range(40):
        observation, reward, terminated, truncated, infos = envs.step(np.ones((16, 2), np.float32))
        elapsed += 1
        assert not truncated.any()
        np.testing.assert_array_equal(infos["_final_obs"], terminated)
        assert (infos["final_obs"][terminated, 30] == 0).all()
        assert (observation[terminated, 30] == observation[terminated, 33]).all()  # the whole of the next block
        assert not envs.simulator.inventory[terminated].any()
        lengths += elapsed[terminated].tolist()
        elapsed[terminated] = 0
    assert len(lengths) > 100 and 2 <= min(lengths) and max(lengths) < 20


@pytest.mark.parametrize("mode", ["same_step", "next_step", "disabled"])
def test_the_deadline_terminates_and_never_truncates(mode):
    envs = make(4, autoreset_mode=mode, horizon=5)
    envs.reset(seed=1)
    for t in range(5):
        observation, _, terminated, truncated, infos = envs.step(np.tile(HOLD, (4, 1)))
        assert terminated.tolist() == [t == 4] * 4 and not truncated.any()
    last = infos["final_obs"] if mode == "same_step" else observation
    assert not last[:, [30, 32]].any()


@pytest.mark.parametrize(("side", "signs"), [("buy", {1.0}), ("sell", {-1.0}), ("random", {1.0, -1.0})])
def test_sides(side, signs):
    envs = make(256, side=side)
    observation, _ = envs.reset(seed=1)
    assert set(observation[:, 33].tolist()) == signs
    np.testing.assert_array_equal(observation[:, 30], observation[:, 33])
    if side == "random":
        assert 90 < (observation[:, 33] > 0).sum() < 166  # 4 standard errors
        again, _ = envs.reset()
        assert 90 < (observation[:, 33] == again[:, 33]).sum() < 166  # drawn anew in each episode
    for action in random_actions(6, 256):
        observation = envs.step(action)[0]
        bought, sold = envs.fills.numpy().T
        assert not np.where(observation[:, 33] > 0, sold, bought).any()


@covering
@both_engines
@pytest.mark.parametrize("kwargs", [
    {"block_qty": 1}, {"block_qty": 1, "forced_qty": 1, "max_qty": 1}, {"horizon": 1}, {"horizon": 1, "block_qty": 1},
    {"auctions_per_step": 4}, {"auctions_per_step": 4, "horizon": 1}, {"forced_qty": 8},
    {"max_qty": 500, "block_qty": 900, "forced_qty": 90},
])  # fmt: skip
@pytest.mark.parametrize("action", [[0.0, -1.0], [1.0, 1.0], [-1.0, 1.0], [0.0, 0.0]])
def test_boundaries(engine, kwargs, action):
    envs = make(4, engine=engine, autoreset_mode="same_step", stagger=True, **kwargs)
    envs.reset(seed=3)
    ended = 0
    for _ in range(15):
        observation, reward, terminated, truncated, infos = envs.step(np.tile(np.float32(action), (4, 1)))
        assert envs.observation_space.contains(observation) and envs.observation_space.contains(infos["final_obs"])
        assert np.isfinite(reward).all() and not truncated.any()
        if kwargs.get("block_qty", 30) <= 30:
            assert not infos["final_obs"][terminated, 30].any()
        ended += int(terminated.sum())
    assert ended >= 4 * (15 if kwargs.get("horizon") == 1 else 1)


def test_staggered_episodes_begin_with_the_whole_block():
    envs = make(64, stagger=True, horizon=40)
    observation, _ = envs.reset(seed=3)
    assert len(np.unique(observation[:, 32])) > 20 and (np.abs(observation[:, 30]) == 1).all()


@pytest.mark.parametrize("action_type", ["continuous", "discrete"])
def test_orders_and_observations_by_hand(action_type):
    envs = make(32, action_type=action_type, max_qty=7, horizon=40, forced_qty=4, block_qty=25)
    observation, _ = envs.reset(seed=6)
    side = observation[:, 33].astype(int)
    generator, cut = np.random.default_rng(3), 0
    for t in range(9):
        mid2 = envs.core.tensors["mid_history"][:, 0].numpy().astype(int)
        held = envs.simulator.inventory[:, 0].numpy()
        if action_type == "discrete":
            action = generator.integers(0, 15, 32)
            offset = np.array([-6, -3, -1, 0, 1, 3, 6])[np.maximum(action - 1, 0) // 2]
            quantity = np.where(action == 0, 0, np.where(action % 2 == 1, 4, 7))
        else:
            action = generator.uniform(-1, 1, (32, 2)).astype(np.float32)
            offset = np.rint(action[:, 0] * np.float32(10)).astype(int)
            quantity = np.rint((action[:, 1] + np.float32(1)) * np.float32(0.5) * np.float32(7)).astype(int)
        cut += int((quantity > 25 - side * held).sum())
        quantity = np.minimum(quantity, 25 - side * held)
        price = np.where(side > 0, (mid2 >> 1) + offset, ((mid2 + 1) >> 1) - offset)
        observation, _, terminated, _, _ = envs.step(action)
        quotes, filled = envs.simulator.quotes[:, 0].numpy(), envs.fills.numpy()
        here = np.where(side > 0, 0, 1)
        row, own = np.arange(32), 2 * here
        np.testing.assert_array_equal(quotes[row, own + 1] + filled[row, here], quantity)
        np.testing.assert_array_equal(quotes[row, own][quantity > 0], price[quantity > 0])
        assert not quotes[row, 3 - own].any() and not filled[row, 1 - here].any()

        left = 25 - side * envs.simulator.inventory[:, 0].numpy()
        mid2, arrival2 = envs.simulator.mid2.numpy().astype(np.int64), envs.core.tensors["arrival2"].numpy()
        squash = lambda x, s: np.float32(x) / (np.abs(np.float32(x)) + np.float32(s))  # noqa: E731
        money2 = 2 * envs.simulator.cash[:, 0].numpy() + envs.simulator.inventory[:, 0].numpy() * arrival2
        stands = quotes[row, own + 1]
        for place, wanted in (
            (30, np.float32(side * left) / np.float32(25)),
            (31, squash(np.float32(money2) * np.float32(0.5), 200)),
            (32, np.float32(39 - t) / np.float32(40)),
            (33, np.float32(side)),
            (34, squash(np.where(stands > 0, mid2 - 2 * quotes[row, own], 0), 16)),
            (35, np.float32(stands) / np.float32(7)),
            (36, squash(mid2 - arrival2, 16)),
        ):
            np.testing.assert_array_equal(observation[:, place], wanted, err_msg=str(place))
        if terminated.any():
            break
    assert t >= 4


def test_an_ended_block_is_replaced_by_the_next():
    """NEXT_STEP: the step in between has no reward, and the next block is drawn anew."""
    envs = make(8, horizon=3, autoreset_mode="next_step")
    first, _ = envs.reset(seed=2)
    for _ in range(3):
        _, reward, terminated, _, _ = envs.step(np.tile(HOLD, (8, 1)))
    assert terminated.all() and reward.any()
    observation, reward, terminated, truncated, _ = envs.step(np.tile(HOLD, (8, 1)))
    assert not reward.any() and not terminated.any() and not truncated.any()
    assert (np.abs(observation[:, 30]) == 1).all() and (observation[:, 33] != first[:, 33]).any()


def test_infos_of_the_single_environment_count_forced_fills():
    env = ExecutionEnv(**{**SMALL, "horizon": 2, "side": "sell"})
    env.reset(seed=1)
    env.step(HOLD)
    _, reward, terminated, truncated, infos = env.step(HOLD)
    assert terminated and not truncated and reward != 0
    assert infos["inventory"] == -30 and infos["sold"] == 30 and infos["bought"] == 0 and infos["cash"] > 0


# Arguments ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kwargs", "error", "match"),
    [
        ({"side": "long"}, ValueError, "side: expected one of 'random', 'buy', 'sell', got 'long'"),
        ({"block_qty": 0}, ValueError, "block_qty: expected a whole number from 1 to 1048576, got 0"),
        ({"forced_qty": 9}, ValueError, "forced_qty: expected 1 to max_qty = 8.*got 9"),
        (
            {"reward": "pnl"},
            ValueError,
            "reward: expected one of 'shortfall', 'risk_averse', 'terminal'.*got 'pnl'",
        ),
        ({"risk_aversion": -1.0}, ValueError, "risk_aversion: expected a finite number from 0, got -1.0"),
        ({"leftover_penalty": np.inf}, ValueError, "leftover_penalty: expected .*, got inf"),
        ({"inventory_limit": 40}, TypeError, "unknown argument 'inventory_limit'"),
        ({"replace": "maker"}, ValueError, "replace: expected one of None, 'noise', got 'maker'"),
        ({"config": ks.MarketConfig.preset("trading", inventory_limit=29)}, ValueError, "block_qty: expected .*got 30"),
        (
            {"config": ks.MarketConfig.preset("trading", max_quote_qty=3)},
            ValueError,
            "forced_qty: expected up.*got 4",
        ),
        (
            {"horizon": 2**31 - 1, "auctions_per_step": 3},
            ValueError,
            "horizon: .*got 2147483647 decisions of 3 auctions",
        ),
    ],
)
def test_bad_arguments(kwargs, error, match):
    with pytest.raises(error, match=match):
        make(**kwargs)


def test_a_block_as_large_as_the_inventory_limit():
    envs = make(8, config=ks.MarketConfig.preset("trading", inventory_limit=30), horizon=2)
    envs.reset(seed=1)
    for _ in range(2):
        envs.step(np.tile(HOLD, (8, 1)))
    assert bool((envs.simulator.inventory.abs() == 30).all())
    assert ExecutionTask(block_qty=7, forced_qty=2).forced_auctions == 2 * 4 + 16
