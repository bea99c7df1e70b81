"""Scripted policies that quote at all levels of a ladder: known answers, properties, and what stands in a market."""

import functools

import pytest
import torch
from env_helpers import Work
from hypothesis import given, settings
from hypothesis import strategies as st
from test_policies import DEVICES, observation, observations
from test_reward_hacking import assert_earns_nothing
from test_task_values import played_by
from thorough import examples

import kineticsim_env as ks
from examples.studies.attacks.study import Attack, attack
from kineticsim_env import policies
from kineticsim_env.evaluation import evaluation_env
from kineticsim_env.policies.attackers import ATTACKERS, Layering, QuoteStuffing
from kineticsim_env.tasks import ExecutionTask, MarketMakingTask

OF_GLFT = policies.GueantLehalleFernandezTapia
LADDER = policies.GueantLehalleFernandezTapiaLadder
ALL_LEVELS = (policies.LadderMaker, LADDER, Layering, QuoteStuffing)
CONTINUOUS = ks.MarketConfig.preset("continuous")


def market(levels):
    return CONTINUOUS.replace(orders_per_side=levels)


def task_of(levels, **fields):
    return MarketMakingTask(**fields).of_market(market(levels))


def quoted(policy, seen):
    """Offsets and quantities of an action, `[M, levels, side]` each, in ticks and units."""
    task = policy.task
    blocks = policy(seen).view(len(seen), task.orders_per_side, -1)
    return (blocks[..., :2] + 1) * task.max_offset / 2, (blocks[..., 2:4] + 1) * task.max_qty / 2


def at_time(*elapsed, held=0, task):
    """Observations after so many decisions, with an inventory."""
    return torch.cat([observation(held / task.inventory_limit, 1 - now / task.horizon) for now in elapsed])


# Guéant, Lehalle and Fernandez-Tapia ----------------------------------------------------------------------------------

FITS = {
    "gamma": st.floats(1e-3, 1.0),
    "kappa": st.floats(0.05, 2.0),
    "arrivals": st.floats(0.05, 2.0),
    "sigma": st.floats(0.0, 4.0),
    "qty": st.integers(1, 8),
}


@settings(max_examples=examples(300))
@given(st.fixed_dictionaries(FITS), st.integers(0, 2**32 - 1), st.sampled_from([None, 7, 40]), st.booleans())
def test_one_level_is_the_maker_of_one_quote_to_the_bit(fields, seed, limit, keep):
    task = MarketMakingTask(inventory_limit=limit, keep=keep)
    seen = observations(16, seed)
    seen[:, 30] *= 0.999  # the space's edge is an infinite inventory where there is no limit
    assert torch.equal(LADDER(task, **fields)(seen), OF_GLFT(task, **fields)(seen))


def test_levels_are_what_is_quoted_once_those_before_are_filled():
    """Worked out by hand: c1 is 1.386 and c2 0.707, and 2 lots of 5 units are held. In whole ticks."""
    task = task_of(3, max_offset=20)
    maker = LADDER(task, gamma=0.5, kappa=0.5, arrivals=1.0, sigma=0.5, qty=5)
    offsets, sizes = quoted(maker, observation(0.25))
    bids, asks = ([1.386294 + place * 0.707107 for place in places] for places in ([2.5, 3.5, 4.5], [-1.5, -0.5, 0.5]))
    assert offsets[0].T.tolist() == [
        pytest.approx([round(bid) for bid in bids], abs=1e-4),
        pytest.approx([max(0, round(ask)) for ask in asks], abs=1e-4),
    ]
    assert torch.equal(sizes, torch.full((1, 3, 2), 5.0))


@settings(max_examples=examples(300))
@given(st.fixed_dictionaries(FITS), st.integers(2, 8), st.integers(-60, 60))
def test_ladders_are_the_maker_of_one_quote_at_further_inventories(fields, levels, held):
    """They never come nearer from one level to the next, and those of the opposite inventory are mirrored."""
    limit = 200
    task = task_of(levels, inventory_limit=limit, max_offset=50)
    offsets, _ = quoted(LADDER(task, **fields), observation(held / limit))
    alone, size = OF_GLFT(task.of_market(market(1)), **fields), fields["qty"]
    for level in range(levels):
        for side, after in enumerate((held + level * size, held - level * size)):
            expected = quoted(alone, observation(after / limit))[0][0, 0, side]
            assert float(offsets[0, level, side]) == pytest.approx(float(expected), abs=1e-2)
    assert bool((offsets[0].diff(dim=0) >= 0).all())
    mirrored, _ = quoted(LADDER(task, **fields), observation(-held / limit))
    torch.testing.assert_close(mirrored.flip(2), offsets)


@pytest.mark.parametrize("qty", [3, 8])
def test_levels_share_the_room_that_the_limit_leaves(qty):
    """In a market: nobody holds more than 20 units if all of a side fills, and the nearest levels are quoted."""
    envs = evaluation_env(64, engine="cpu", config=market(8), inventory_limit=20, horizon=30, keep=True)
    maker = LADDER(envs.core.task, sigma=3.0, qty=qty)
    seen, _ = envs.reset(seed=1)
    for _ in range(30):
        seen, *_ = envs.step(maker(seen))
        stands = envs.simulator.quotes[:, 0, :, :, 1::2].sum(2)  # [M, level, side], of both places
        held = envs.simulator.inventory[:, :1]
        assert bool((stands.sum(1) <= 20 - held * torch.tensor([1, -1])).all())
        assert bool((stands <= qty).all())
    assert bool((stands[:, 1] > 0).any()) and bool((held.abs() > 4).any())


def test_choices_are_refused():
    discrete = {"action_type": "discrete"}
    said = "^task: expected action_type='continuous' with orders_per_side above 1, .*, got 'discrete'$"
    with pytest.raises(ValueError, match=said):
        LADDER(task_of(2, **discrete))
    LADDER(task_of(1, **discrete))
    with pytest.raises(TypeError, match="task: expected"):
        LADDER(ExecutionTask())
    with pytest.raises(ValueError, match="sigma: expected .*, got -1"):
        LADDER(task_of(2), sigma=-1)


# Attackers ------------------------------------------------------------------------------------------------------------


def test_layers_lie_behind_what_is_traded_until_it_is():
    """Four layers of bids while it sells the 11 units that it lacks to be 3 short, 8 at a time; then nothing."""
    task = task_of(4)
    attacker = Layering(task, period=10, distance=2.0, position=3)
    for held, lacking in ((8, 8), (0, 3), (-2, 1), (-3, 0), (-9, 0)):
        for elapsed, sold in ((0, True), (4, True), (5, False), (19, False), (20, True)):
            offsets, sizes = quoted(attacker, at_time(elapsed, held=held if sold else -held, task=task))
            layers, trade = (0, 1) if sold else (1, 0)
            assert sizes[0, :, layers].tolist() == pytest.approx([8.0 * (lacking > 0)] * 4)
            assert offsets[0, :, layers].tolist() == pytest.approx([2, 3, 4, 5], abs=1e-5)
            assert sizes[0, :, trade].tolist() == pytest.approx([lacking, 0, 0, 0], abs=1e-5)
            assert float(offsets[0, 0, trade]) == 0.0


@pytest.mark.parametrize("levels", [1, 3, 8])
def test_stuffed_quotes_are_all_new_in_every_decision(levels):
    task = task_of(levels)
    offsets, sizes = quoted(QuoteStuffing(task, distance=1.0), at_time(0, 1, 2, task=task))
    nearest = torch.arange(1.0, 1 + levels)
    expected = torch.stack([nearest, nearest + 1, nearest])[:, :, None].expand(-1, -1, 2)
    torch.testing.assert_close(offsets, expected)
    torch.testing.assert_close(sizes, torch.full_like(sizes, 8.0))


@pytest.mark.parametrize("make", [Layering, QuoteStuffing, functools.partial(Layering, period=2)])
@pytest.mark.parametrize("levels", [3, 8])
def test_attackers_with_ladders_earn_nothing(make, levels):
    assert_earns_nothing(attack(market(levels), Attack("MarketMaking", make), 256, "cpu").pnl)


# All of them ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("make", ALL_LEVELS)
def test_actions_are_inside_the_space(make, keep, device):
    task = task_of(5, keep=keep, max_qty=13, max_offset=7)
    now = observations(64, device=device)
    action = make(task)(now)
    assert action.dtype == torch.float32 and action.shape == (64, 30 if keep else 20) and action.device == now.device
    assert all(task.action_space("maker").contains(row) for row in action.cpu().numpy())
    assert not keep or bool((action.view(64, 5, 6)[..., 4:] == -1).all())


@pytest.mark.gpu
@pytest.mark.parametrize("make", ALL_LEVELS)
def test_a_gpu_is_not_waited_for(make):
    policy, now = make(task_of(8)), observations(64, device="cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        policy(now)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("make", ALL_LEVELS)
def test_levels_cost_no_operators(make):
    """On a GPU each is a launch."""
    counts = []
    for levels in (2, 8):
        policy, now = make(task_of(levels)), observations(4)
        with Work() as work:
            policy(now)
        counts.append(len(work.operations))
    assert counts[0] == counts[1]


@pytest.mark.parametrize("make", ALL_LEVELS)
def test_settings_may_differ_from_market_to_market(make):
    """Market by market they do what they do where all have its settings."""
    settings = {"max_qty": [1, 5, 8], "inventory_limit": [10, 20, 40], "horizon": [20, 30, 40]}
    shared = {"config": market(3), "engine": "cpu", "bank_size": 4, "warmup": 4, "output": "torch"}
    envs = functools.partial(ks.envs.vector.MarketMakingVectorEnv, 3, **shared)
    many = played_by(make, envs(**settings))
    for m in range(3):
        alone = played_by(make, envs(**{name: values[m] for name, values in settings.items()}))
        assert all(torch.equal(one[m], two[m]) for one, two in zip(many, alone, strict=True))


@pytest.mark.parametrize("make", [kind for kind in ATTACKERS if kind not in ALL_LEVELS])
def test_other_attackers_quote_level_0_alone(make):
    now = observations(32)
    wide = make(task_of(3))(now)
    assert torch.equal(wide[:, :4], make(task_of(1))(now)) and bool((wide[:, 4:] == -1).all())
