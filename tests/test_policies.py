"""The scripted makers: what they read from observations, what they quote, and that they stay inside the space."""

import math

import numpy as np
import pytest
import torch

from kineticsim_env import policies
from kineticsim_env.evaluation import evaluation_env
from kineticsim_env.tasks import MarketMakingTask

MAKERS = (
    policies.NoTrade,
    policies.RandomQuotes,
    policies.FixedSpread,
    policies.LadderMaker,
    policies.QuietQuotes,
    policies.AvellanedaStoikov,
    policies.GueantLehalleFernandezTapia,
)
DEVICES = ("cpu", pytest.param("cuda", marks=pytest.mark.gpu))


def observations(rows, seed=0, device="cpu"):
    """Observations anywhere in the space, its corners included."""
    space = MarketMakingTask().observation_space("maker")
    draws = np.random.default_rng(seed).uniform(space.low, space.high, (rows, 37))
    corners = np.random.default_rng(seed + 1).integers(0, 2, (rows, 37))
    mixed = np.where(np.arange(rows)[:, None] % 2, draws, np.where(corners, space.high, space.low))
    return torch.from_numpy(mixed.astype(np.float32)).to(device)


def observation(share=0.0, time_left=1.0):
    """One observation of which only inventory and time matter."""
    row = torch.zeros(1, 37)
    row[0, 30], row[0, 32] = share, time_left
    return row


@pytest.mark.parametrize("limit", [1, 7, 40, 1000, None])
def test_the_inventory_is_read_back_exactly(limit):
    envs = evaluation_env(32, inventory_limit=limit, max_qty=9, engine="cpu", horizon=60)
    task = envs.core.task
    now, _ = envs.reset(seed=3)
    policy = policies.RandomQuotes(task, seed=5)
    seen = set()
    for _ in range(60):
        now = envs.step(policy(now))[0]
        read, held = policies.inventory_of(task, now), envs.simulator.inventory[:, 0]
        assert torch.equal(torch.round(read).long(), held)
        assert float((read - held).abs().max()) < 1e-3
        seen |= set(held.tolist())
    assert min(seen) < 0 < max(seen)


def test_without_a_limit_large_inventories_are_read_back_too():
    task = MarketMakingTask(inventory_limit=None)
    held = torch.arange(-2000, 2001, dtype=torch.float32)
    now = torch.zeros(len(held), 37)
    now[:, 30] = held / (held.abs() + 8 * task.max_qty)
    assert torch.equal(torch.round(policies.inventory_of(task, now)), held)


@pytest.mark.parametrize(("stationary", "tau"), [(True, 1.0), (False, 0.5)])
def test_avellaneda_stoikov_known_answers(stationary, tau):
    """With q units held the bid moves away and the ask comes near by q * risk * tau; in whole ticks."""
    task = MarketMakingTask(inventory_limit=40, max_offset=10, max_qty=8)
    policy = policies.AvellanedaStoikov(task, risk=0.1, kappa=0.25, gamma=0.1, qty=6, stationary=stationary)
    half_spread = 0.5 * 0.1 * tau + math.log(1 + 0.1 / 0.25) / 0.1
    assert half_spread == pytest.approx(3.364722 + 0.05 * tau, abs=1e-6)
    for held in range(-40, 41):
        bid, ask = (max(0, min(round(half_spread + side * held * 0.1 * tau), 10)) for side in (1, -1))
        expected = [bid / 5 - 1, ask / 5 - 1, 6 / 4 - 1, 6 / 4 - 1]
        assert policy(observation(held / 40, 0.5))[0].tolist() == pytest.approx(expected, abs=1e-6)


def test_avellaneda_stoikov_is_symmetric_and_skews_against_inventory():
    policy = policies.AvellanedaStoikov(MarketMakingTask())
    long, flat, short = (policy(observation(share))[0] for share in (0.5, 0.0, -0.5))
    assert long[[0, 1]].tolist() == short[[1, 0]].tolist()
    assert flat[0] == flat[1]
    assert long[0] > flat[0] > short[0]


def test_gueant_lehalle_fernandez_tapia_known_answers():
    """With lots held the bid moves away and the ask comes near by a skew each; both terms worked out by hand."""
    task = MarketMakingTask(inventory_limit=40, max_offset=10, max_qty=8)
    policy = policies.GueantLehalleFernandezTapia(task, gamma=0.5, kappa=0.5, arrivals=1.0, sigma=0.5, qty=5)
    spread = math.log(2) / 0.5
    skew = math.sqrt(0.25 * 0.5 / (2 * 0.5 * 1.0) * 2**2)
    assert (spread, skew) == (pytest.approx(1.386294, abs=1e-6), pytest.approx(0.707107, abs=1e-6))
    for held in range(-40, 41):
        lots = held / 5
        bid, ask = spread + (2 * lots + 1) / 2 * skew, spread - (2 * lots - 1) / 2 * skew
        bid, ask = (max(0, min(round(offset), 10)) for offset in (bid, ask))
        expected = [bid / 5 - 1, ask / 5 - 1, 5 / 4 - 1, 5 / 4 - 1]
        assert policy(observation(held / 40))[0].tolist() == pytest.approx(expected, abs=1e-6)
    long, short = (policy(observation(share))[0] for share in (0.25, -0.25))
    assert long[[0, 1]].tolist() == pytest.approx(short[[1, 0]].tolist())


def test_gueant_lehalle_fernandez_tapia_in_limits():
    """Without volatility there is no skew; as risk aversion vanishes the half-spread goes to 1 / k."""
    task = MarketMakingTask(max_offset=20)
    quiet = policies.GueantLehalleFernandezTapia(task, sigma=0.0)
    assert torch.equal(quiet(observation(0.5))[:, :2], quiet(observation(-0.5))[:, :2])
    neutral = policies.GueantLehalleFernandezTapia(task, gamma=1e-9, kappa=0.25)
    assert neutral(observation())[0, 0].item() == pytest.approx(4.0 / 10 - 1, abs=1e-3)


@pytest.mark.parametrize("field", ["gamma", "kappa", "arrivals", "qty"])
def test_gueant_lehalle_fernandez_tapia_refuses_what_has_no_quotes(field):
    with pytest.raises(ValueError, match=f"{field}: expected a finite number above 0.*got 0"):
        policies.GueantLehalleFernandezTapia(MarketMakingTask(), **{field: 0})
    with pytest.raises(ValueError, match="sigma: .*got -1"):
        policies.GueantLehalleFernandezTapia(MarketMakingTask(), sigma=-1)


@pytest.mark.parametrize("half_spread", [0, 2, 3.4, 25])
def test_fixed_spread_quotes_where_it_says(half_spread):
    envs = evaluation_env(16, engine="cpu")
    now, _ = envs.reset(seed=1)
    mid2 = envs.simulator.mid2
    envs.step(policies.FixedSpread(envs.core.task, half_spread, qty=5)(now))
    offset = min(round(half_spread), envs.core.task.max_offset)
    bid, ask = mid2 // 2 - offset, (mid2 + 1) // 2 + offset
    quotes, filled = envs.simulator.quotes[:, 0], envs.fills
    crossed = bid >= ask  # only at half-spread 0 and a mid on a whole tick: a slot never trades with itself
    assert bool((crossed == ((half_spread == 0) & (mid2 % 2 == 0))).all())
    assert torch.equal(quotes[:, 1] + filled[:, 0], torch.where(crossed, 0, 5))
    assert torch.equal(quotes[:, 3] + filled[:, 1], torch.where(crossed, 0, 5))
    stands = quotes[:, 1] > 0
    assert torch.equal(quotes[stands, 0], bid[stands].int())
    stands = quotes[:, 3] > 0
    assert torch.equal(quotes[stands, 2], ask[stands].int())


def test_quiet_quotes_known_answers():
    """Two ticks around the mid, moved against the inventory, while four moves are below their limit in the mean."""
    task = MarketMakingTask()
    maker = policies.QuietQuotes(task, half_spread=2.0, limit=3.0, skew=0.05)
    rows = torch.zeros(4, 37)
    rows[1, 30] = 0.5  # 20 units long: both quotes a tick lower
    moves = torch.tensor([[-5.0, 3.0, -2.0, 1.5], [5.0, -3.0, 2.0, -2.5]])  # means of 2.875 and 3.125 in size
    rows[2:, 22:26] = 2 * moves / (2 * moves.abs() + 8)
    offsets = (maker(rows)[:, :2] + 1) * task.max_offset / 2
    sizes = (maker(rows)[:, 2:] + 1) * task.max_qty / 2
    assert offsets.flatten().tolist() == pytest.approx([2, 2, 3, 1, 2, 2, 2, 2], abs=1e-5)
    assert sizes.tolist() == [[8, 8], [8, 8], [8, 8], [0, 0]]
    with pytest.raises(ValueError, match="limit: .*got -1"):
        policies.QuietQuotes(task, limit=-1)


def test_no_trade_does_not_trade():
    envs = evaluation_env(8, engine="cpu", horizon=50)
    now, _ = envs.reset(seed=1)
    for _ in range(50):
        now, reward, *_ = envs.step(policies.NoTrade(envs.core.task)(now))
        assert not bool(reward.any()) and not bool(envs.simulator.quotes[..., 1::2].any())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("make", [*MAKERS, *policies.attackers.ATTACKERS])
@pytest.mark.parametrize("limit", [40, None])
def test_actions_are_inside_the_space(make, limit, device):
    task = MarketMakingTask(inventory_limit=limit, max_qty=13, max_offset=7)
    now = observations(64, device=device)
    if limit is None:
        now[:, 30] *= 0.999  # the space's edge is an infinite inventory
    action = make(task)(now)
    assert action.dtype == torch.float32 and action.shape == (64, 4) and action.device == now.device
    assert bool((action.abs() <= 1).all())
    assert all(task.action_space("maker").contains(row) for row in action.cpu().numpy())


@pytest.mark.parametrize("device", DEVICES)
def test_random_quotes_are_the_same_everywhere(device):
    task = MarketMakingTask()
    now = observations(5, device=device)
    one, two, other = (policies.RandomQuotes(task, seed) for seed in (4, 4, 5))
    first = one(now)
    assert torch.equal(first, two(now)) and not torch.equal(first, other(now))
    assert not torch.equal(first, one(now))  # it goes on
    expected = torch.rand((5, 4), generator=torch.Generator().manual_seed(4)) * 2 - 1
    assert torch.equal(first.cpu(), expected)


def test_random_quotes_do_not_touch_the_global_generator():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    policies.RandomQuotes(MarketMakingTask())(observations(3))
    assert torch.equal(before, torch.get_rng_state())
