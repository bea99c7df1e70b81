"""Scripted executors and traders, and discrete actions: what they read, what they order, and what comes of it."""

import dataclasses

import numpy as np
import pytest
import torch
from thorough import covering

from kineticsim_env import policies
from kineticsim_env.envs.vector import ExecutionVectorEnv, MarketMakingVectorEnv, TradingVectorEnv
from kineticsim_env.evaluation import confidence_interval
from kineticsim_env.policies.base import (
    decisions_left,
    mid_changes,
    order_action,
    recent_volumes,
    remaining_of,
    trade_action,
    whole_units,
)
from kineticsim_env.tasks import ExecutionTask, MarketMakingTask, TradingTask

pytestmark = pytest.mark.usefixtures("one_thread")
EXECUTORS = (
    policies.DoNothing,
    policies.RandomOrders,
    policies.ImmediateExecution,
    policies.TimeWeighted,
    policies.VolumeWeighted,
    policies.AlmgrenChriss,
)
TRADERS = (
    policies.Hold,
    policies.RandomTrader,
    policies.BuyAndHold,
    policies.MomentumTrader,
    policies.MeanReversionTrader,
)
DEVICES = ("cpu", pytest.param("cuda", marks=pytest.mark.gpu))
SEED = 1 << 40


def environment(kind, num_envs=128, **arguments):
    fixed = {"output": "torch", "autoreset_mode": "DISABLED", "stagger": False, "engine": "cpu"}
    fixed["preset"] = "trading"
    return kind(num_envs, **{**fixed, **arguments})


def play(envs, policy, watch=None):
    """One episode of each market: returns float [M], units filled [M, horizon] and decisions lived [M]."""
    now, _ = envs.reset(seed=SEED)
    alive = torch.ones(envs.num_envs, dtype=torch.bool)
    total, lived, filled = torch.zeros(envs.num_envs), torch.zeros(envs.num_envs), []
    while bool(alive.any()):
        action = policy(now)
        if watch:
            watch(now, action)
        now, reward, terminated, truncated, _ = envs.step(action)
        total, lived = total + reward * alive, lived + alive
        filled.append(envs.fills.sum(1) * alive)
        alive &= ~(terminated | truncated)
        if bool((terminated | truncated).any()) and bool(alive.any()):
            now, _ = envs.reset(options={"reset_mask": terminated | truncated})
    filled += [torch.zeros_like(filled[0])] * (envs.core.task.horizon - len(filled))
    return total.double().numpy(), torch.stack(filled, dim=1), lived


def observation(rows=1, left=1.0, remaining=1.0, changes=(0, 0, 0, 0), volumes=(0, 0, 0, 0), width=37):
    """Observations of which only time, what remains (or is held), changes in ticks and volumes matter."""
    now = torch.zeros(rows, width)
    now[:, 30], now[:, 32] = remaining, left
    half, units = torch.tensor(changes, dtype=torch.float32) * 2, torch.tensor(volumes, dtype=torch.float32)
    now[:, 22:26], now[:, 26:30] = half / (half.abs() + 8), units / (units + 32)
    return now


# Reading --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["buy", "sell", "random"])
def test_what_remains_and_the_time_are_read_back_exactly(side):
    envs = environment(ExecutionVectorEnv, 32, side=side, block_qty=77, horizon=30, max_qty=5)
    task, held = envs.core.task, set()

    def watch(now, action):
        done = envs.simulator.inventory[:, 0].abs()
        assert torch.equal(remaining_of(task, now).long(), 77 - done)
        assert torch.equal(decisions_left(task, now).int(), 30 - envs.core.tensors["elapsed"])
        held.update(done.tolist())

    play(envs, policies.RandomOrders(task), watch)
    assert len(held) > 20


def test_changes_and_volumes_are_read_back():
    envs = environment(TradingVectorEnv, 16, horizon=20)
    task = envs.core.task
    mids, volumes = [], []

    def watch(now, action):
        mids.append(envs.simulator.mid2.clone())
        volumes.append(envs.simulator.volume.clone())
        if len(mids) > 4:
            seen = mid_changes(now)
            for i in range(4):
                torch.testing.assert_close(seen[:, i], (mids[-1 - i] - mids[-2 - i]) / 2, rtol=1e-4, atol=1e-4)
                traded = (volumes[-1 - i] - volumes[-2 - i]).float()
                torch.testing.assert_close(recent_volumes(now)[:, i], traded, rtol=1e-4, atol=1e-3)

    play(envs, policies.RandomTrader(task), watch)


def test_a_steady_rate_is_met_over_time():
    elapsed = torch.arange(100, dtype=torch.float32)
    for rate in (0.0, 0.07, 0.2, 0.5, 1.0, 2.6):
        units = whole_units(torch.full_like(elapsed, rate), elapsed)
        assert units.sum() == round(100 * rate) and set((units - units.min()).tolist()) <= {0.0, 1.0}


# Spaces ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "make", [*EXECUTORS, *policies.attackers.EXECUTOR_ATTACKERS, *TRADERS, *policies.attackers.TRADER_ATTACKERS]
)
def test_actions_are_inside_the_space(make, device):
    executor = make in (*EXECUTORS, *policies.attackers.EXECUTOR_ATTACKERS)
    role, task = ("executor", ExecutionTask(max_qty=13, max_offset=7)) if executor else ("trader", TradingTask())
    space = task.observation_space(role)
    generator = np.random.default_rng(0)
    draws = generator.uniform(space.low, space.high, (64, len(space.low)))
    corners = np.where(generator.integers(0, 2, draws.shape), space.high, space.low)
    for rows in (draws, corners):
        now = torch.from_numpy(rows.astype(np.float32)).to(device)
        policy = make(task)
        action = policy(now)
        assert action.dtype == torch.float32 and action.shape == (64, 2) and action.device == now.device
        assert all(task.action_space(role).contains(row) for row in action.cpu().numpy())
        discrete = dataclasses.replace(task, action_type="discrete")
        choice = policies.Discretised(policy, discrete)(now)
        assert choice.dtype == torch.int64 and choice.device == now.device
        assert all(discrete.action_space(role).contains(int(row)) for row in choice)


@pytest.mark.parametrize("make", [policies.RandomOrders, policies.RandomTrader])
def test_random_policies_have_draws_of_their_own(make):
    torch.manual_seed(0)
    before, now = torch.get_rng_state(), observation(5)
    one, two, other = (make(ExecutionTask(), seed) for seed in (4, 4, 5))
    first = one(now)
    assert torch.equal(first, two(now)) and not torch.equal(first, other(now)) and not torch.equal(first, one(now))
    assert torch.equal(before, torch.get_rng_state())


# Executors ------------------------------------------------------------------------------------------------------------


def ordered(action, task):
    """Units of an executor's action."""
    return torch.round((action[:, 1] + 1) * 0.5 * task.max_qty)


def test_twap_orders_what_an_even_schedule_lacks():
    task = ExecutionTask(block_qty=50, horizon=100, max_qty=8)
    policy = policies.TimeWeighted(task, ticks=3)
    for left, remaining, units, ticks in (
        (1.0, 50, 0, 3),  # 49.5 of 50 rounds to even: not yet
        (0.99, 50, 1, 3),
        (0.5, 25, 1, 3),
        (0.5, 20, 0, 3),  # ahead
        (0.5, 30, 6, 3),
        (0.5, 40, 8, 10),  # a whole order behind: hurry
        (0.01, 3, 3, 10),  # the last decision
    ):
        action = policy(observation(1, left, -remaining / 50))
        assert int(ordered(action, task)) == units, (left, remaining)
        assert round(float(action[0, 0]) * task.max_offset) == ticks, (left, remaining)


@pytest.mark.parametrize("auctions", [1, 3])
@pytest.mark.parametrize("side", ["buy", "sell"])
def test_twap_executes_evenly(side, auctions):
    envs = environment(ExecutionVectorEnv, side=side, block_qty=60, horizon=120, auctions_per_step=auctions)
    _, filled, lived = play(envs, policies.TimeWeighted(envs.core.task))
    assert filled.sum(1).tolist() == [60] * 128 and int(lived.min()) >= 119
    quarters = filled.view(128, 4, 30).sum(2).double()
    assert quarters.mean(0).tolist() == pytest.approx([15] * 4, abs=0.3) and int((quarters - 15).abs().max()) <= 4


def test_almgren_chriss_without_risk_is_twap():
    envs = environment(ExecutionVectorEnv, 64)
    task, seen = envs.core.task, []
    twap = policies.TimeWeighted(task)
    play(envs, policies.AlmgrenChriss(task, risk=0.0), lambda now, action: seen.append(torch.equal(action, twap(now))))
    assert all(seen) and len(seen) == task.horizon
    calm = policies.AlmgrenChriss(task, sigma=0.0)
    assert torch.equal(calm.share_left(torch.arange(100.0)), twap.share_left(torch.arange(100.0)))


def test_almgren_chriss_schedule():
    task = ExecutionTask(horizon=50, block_qty=1000)
    policy = policies.AlmgrenChriss(task, risk=0.02, sigma=0.5, eta=0.25)
    kappa = np.arccosh(1 + 0.02 * 0.25 / (2 * 0.25))
    left = np.arange(51)
    expected = np.sinh(kappa * left) / np.sinh(kappa * 50)
    share = policy.share_left(torch.arange(51.0))
    assert share.numpy() == pytest.approx(expected, rel=1e-5, abs=1e-7)
    # Their discrete-time solution: x(j-1) - 2 x(j) + x(j+1) = risk sigma^2 / eta * x(j), with x(0) = X and x(T) = 0.
    x = share.double().flip(0).numpy()
    assert x[:-2] - 2 * x[1:-1] + x[2:] == pytest.approx(0.02 * 0.25 / 0.25 * x[1:-1], rel=1e-2, abs=1e-5)
    urgent = policies.AlmgrenChriss(ExecutionTask(horizon=100_000), risk=10.0).share_left(torch.tensor([1e5, 99_999.0]))
    assert urgent[0] == 1 and 0 < urgent[1] < 0.3  # nothing overflows


def test_higher_risk_trades_earlier():
    envs = environment(ExecutionVectorEnv, 64)
    halves = []
    for risk in (0.0, 1e-3, 1e-2, 1e-1):
        _, filled, _ = play(envs, policies.AlmgrenChriss(envs.core.task, risk=risk))
        assert filled.sum(1).tolist() == [100] * 64
        at = torch.arange(1, filled.shape[1] + 1)
        halves.append(float((filled * at).sum(1).double().mean() / 100))  # when the mean unit was traded
    assert halves == sorted(halves, reverse=True) and halves[0] > 45 and halves[-1] < 12


@pytest.mark.parametrize("rate", [None, 0.1])
def test_vwap_follows_volume(rate):
    """Ordered units go with the last volume (VWAP) or with the mean of the last four (a rate of it)."""
    task = ExecutionTask(block_qty=400, horizon=100, max_qty=50)
    policy = policies.VolumeWeighted(task, rate)
    units = {
        volume: float(ordered(policy(observation(1, 0.5, 0.5, volumes=(volume, 20, 20, 20))), task))
        for volume in (0, 10, 20, 40, 80)
    }
    assert list(units.values()) == sorted(units.values()) and units[80] > units[20] > units[0]
    assert units[20] == (4 if rate is None else 2)


def test_vwap_is_done_in_time_and_a_rate_need_not_be():
    envs = environment(ExecutionVectorEnv, 64)
    task = envs.core.task
    forced = {}
    for name, policy in {"vwap": policies.VolumeWeighted(task), "rate": policies.VolumeWeighted(task, 0.02)}.items():
        _, filled, _ = play(envs, policy)
        assert filled.sum(1).tolist() == [100] * 64  # the engine saw to it
        forced[name] = float(filled[:, -1].double().mean())
    assert forced["vwap"] < 8 and forced["rate"] > 40


def test_vwap_orders_go_with_the_volume_of_a_real_market():
    envs = environment(ExecutionVectorEnv, 64, block_qty=300)
    task, pairs = envs.core.task, []

    def watch(now, action):
        volumes = recent_volumes(now)
        pairs.append(torch.stack([volumes[:, 0] / volumes.mean(1).clamp(min=1), ordered(action, task)]))

    play(envs, policies.VolumeWeighted(task), watch)
    early = torch.cat(pairs[10:60], dim=1).numpy()
    assert np.corrcoef(early)[0, 1] > 0.5


def test_immediate_execution_and_doing_nothing():
    envs = environment(ExecutionVectorEnv, 64, block_qty=40)
    now_return, filled, lived = play(envs, policies.ImmediateExecution(envs.core.task))
    assert filled.sum(1).tolist() == [40] * 64 and int(lived.max()) <= 10
    later, filled, lived = play(envs, policies.DoNothing(envs.core.task))
    assert filled.sum(1).tolist() == [40] * 64 and not bool(filled[:, :-1].any()) and int(lived.min()) == 100
    assert now_return.std() < later.std()  # what waiting risks


@covering
@pytest.mark.parametrize("auctions", [1, 2])
@pytest.mark.parametrize("attacker", policies.attackers.EXECUTOR_ATTACKERS)
def test_executors_who_attack_pay_for_it(attacker, auctions):
    envs = environment(ExecutionVectorEnv, 1024, auctions_per_step=auctions)
    attacked, patient = (play(envs, make(envs.core.task))[0] for make in (attacker, policies.TimeWeighted))
    mean, half = confidence_interval(attacked - patient)
    assert mean + half < 0
    mean, half = confidence_interval(attacked)
    assert mean + half < 0


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda task: policies.AlmgrenChriss(task, risk=-1), "risk: .*got -1"),
        (lambda task: policies.AlmgrenChriss(task, eta=0), "eta: expected a finite number above 0.*got 0"),
        (lambda task: policies.AlmgrenChriss(task, sigma=float("nan")), "sigma: expected .*, got nan"),
        (lambda task: policies.VolumeWeighted(task, rate=0), "rate: .*got 0"),
        (lambda task: policies.MomentumTrader(task, decay=0), "decay: .*got 0"),
        (lambda task: policies.MeanReversionTrader(task, threshold=-1), "threshold: expected .*, got -1"),
        (
            lambda task: policies.Discretised(policies.Hold(task), task, "taker"),
            "role: expected one of 'maker', .*, got 'taker'",
        ),
    ],
)
def test_wrong_parameters(make, said):
    with pytest.raises(ValueError, match=said):
        make(ExecutionTask())


# Traders --------------------------------------------------------------------------------------------------------------


def traded(policy, changes, held=0):
    """Signed units that a trader orders, with `held` of 40."""
    now = observation(1, 0.5, held / 40, changes=changes, width=36)
    return int(torch.round(policy(now)[:, 0] * policy.task.max_qty))


def test_the_signal_is_the_mid_less_its_weighted_mean():
    """Mids 10, 12, 11, 13 and now 14; weights 1, 1/2, 1/4, 1/8 from the newest before."""
    policy = policies.MomentumTrader(TradingTask(), decay=0.5)
    mean = (13 + 11 / 2 + 12 / 4 + 10 / 8) / (15 / 8)
    now = observation(1, changes=(1, 2, -1, 2), width=36)
    assert float(policy.signal(now)) == pytest.approx(14 - mean, abs=1e-4)


def test_momentum_and_mean_reversion_are_opposites():
    task = TradingTask()
    momentum = policies.MomentumTrader(task, threshold=2, position=20)
    reversion = policies.MeanReversionTrader(task, threshold=2, position=20)
    up, down, calm = (3, 0, 0, 0), (-3, 0, 0, 0), (0.5, 0, 0, 0)
    assert (traded(momentum, up), traded(momentum, down), traded(momentum, calm)) == (8, -8, 0)
    assert (traded(reversion, up), traded(reversion, down), traded(reversion, calm)) == (-8, 8, 0)
    assert traded(momentum, up, held=17) == 3 and traded(momentum, up, held=20) == 0  # the position is full
    assert traded(momentum, calm, held=5) == 0 and traded(momentum, calm, held=-5) == 5  # kept, and turned against
    assert traded(reversion, calm, held=5) == -5 and traded(reversion, calm, held=-5) == 0


def test_buy_and_hold():
    envs = environment(TradingVectorEnv, 32, horizon=60, inventory_limit=30)
    for position, end in ((None, 30), (13, 13), (-7, -7)):
        _, filled, _ = play(envs, policies.BuyAndHold(envs.core.task, position))
        assert envs.simulator.inventory[:, 0].tolist() == [end] * 32 and filled.sum(1).tolist() == [abs(end)] * 32
    _, filled, _ = play(envs, policies.Hold(envs.core.task))
    assert not bool(filled.any())


def test_in_the_trading_preset_prices_revert():
    """What the mid does in a thin book: fading it earns, chasing it loses; so the first is the trader to beat."""
    envs = environment(TradingVectorEnv, 256, reward="pnl")
    task = envs.core.task
    for make, sign in ((policies.MeanReversionTrader, 1), (policies.MomentumTrader, -1)):
        mean, half = confidence_interval(play(envs, make(task))[0])
        assert sign * mean - half > 0


@covering
@pytest.mark.parametrize("reward", ["pnl", "inventory", "asymmetric", "edge"])
@pytest.mark.parametrize("attacker", policies.attackers.TRADER_ATTACKERS)
def test_traders_who_attack_earn_nothing(attacker, reward):
    envs = environment(TradingVectorEnv, 1024, reward=reward)
    mean, half = confidence_interval(play(envs, attacker(envs.core.task))[0])
    assert mean + half <= 0


# Discrete actions -----------------------------------------------------------------------------------------------------


def test_discrete_makers_quote_the_nearest():
    task = MarketMakingTask(action_type="discrete", max_qty=8, max_offset=10)
    bids, asks, sizes = torch.tensor([1.0, 3.4, 5.0, 9, 0, 2]), torch.tensor([8.0, 7.0, 2, 6, 1, 4]), torch.ones(6) * 8
    wanted = policies.quote_action(task, bids, asks, sizes, torch.tensor([8.0, 8, 8, 8, 3, 4]))
    choice = policies.Discretised(lambda now: wanted, task)(torch.zeros(6, 37))
    offsets = (None, 1, 2, 3, 4, 6, 8)
    found = [(offsets[int(one) // 7], offsets[int(one) % 7]) for one in choice]
    assert found == [(1, 8), (3, 6), (4, 2), (8, 6), (1, None), (2, 4)]


@pytest.mark.parametrize("task", [ExecutionTask(action_type="discrete"), TradingTask(action_type="discrete")])
def test_every_choice_is_its_own_nearest(task):
    """Each discrete order, written as a continuous action, comes back as itself."""
    choices = torch.arange(15)
    offsets = torch.tensor([-6.0, -3, -1, 0, 1, 3, 6])
    order = choices - 1
    if task.role == "executor":
        units = torch.where(order % 2 == 1, 8.0, 4.0) * (choices > 0)
        action = order_action(task, offsets[(order // 2).clamp(min=0)], units)
    else:
        units = torch.where(order < 7, 8.0, -8.0) * (choices > 0)
        action = trade_action(task, units, offsets[order % 7])
    assert policies.Discretised(lambda now: action, task)(torch.zeros(15, 37)).tolist() == choices.tolist()


def test_sizes_between_go_to_the_nearest():
    task = ExecutionTask(action_type="discrete")
    action = order_action(task, torch.zeros(9), torch.arange(9.0))
    choice = policies.Discretised(lambda now: action, task, "executor")(torch.zeros(9, 37))
    assert choice.tolist() == [0, 0, 7, 7, 7, 7, 8, 8, 8]  # none, half of 8, all of 8, at the mid


@pytest.mark.parametrize(
    ("kind", "make", "role"),
    [
        (MarketMakingVectorEnv, policies.FixedSpread, "maker"),
        (ExecutionVectorEnv, policies.TimeWeighted, "executor"),
        (TradingVectorEnv, policies.MeanReversionTrader, "trader"),
    ],
)
def test_discrete_environments_are_played_much_alike(kind, make, role):
    plain, discrete = (environment(kind, 256, horizon=100, action_type=name) for name in ("continuous", "discrete"))
    total, filled, _ = play(plain, make(plain.core.task))
    again, other, _ = play(discrete, policies.Discretised(make(discrete.core.task), discrete.core.task))
    assert discrete.core.roles == (role,)
    assert other.sum(1).double().mean() == pytest.approx(filled.sum(1).double().mean(), rel=0.25)
    assert role == "executor" or min(again.mean(), total.mean()) > 0
    if role == "executor":
        quarters = other.view(256, 4, 25).sum(2).double().mean(0)
        assert quarters.tolist() == pytest.approx([25] * 4, abs=4)


def test_traders_send_nothing_to_the_device_in_a_step(monkeypatch):
    """Such a copy waits for a GPU, and cannot be captured in a CUDA graph. The first call is one without gradients."""
    seen, made = torch.rand(5, 39), []
    traders = policies.MomentumTrader(TradingTask()), policies.MeanReversionTrader(TradingTask(), decay=0.3)
    expected = []
    for trader in traders:
        weights = torch.tensor([trader.decay**i for i in range(4)])
        expected.append((mid_changes(seen).cumsum(1) * weights).sum(1) / weights.sum())
        with torch.inference_mode():
            trader(seen)
    monkeypatch.setattr(torch, "tensor", lambda *given, **how: made.append(given))
    for trader, signal in zip(traders, expected, strict=True):
        asked = seen.clone().requires_grad_()
        trader.signal(asked).sum().backward()
        assert torch.equal(trader.signal(seen), signal) and made == [] and asked.grad.any()
        assert torch.equal(trader.signal(seen[:1]), signal[:1])  # one market
