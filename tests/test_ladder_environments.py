"""Environments of ladders: known answers, and engines alike. `env_helpers.py` draws them, too."""

import numpy as np
import pytest
import torch
from env_helpers import launch, make_cores, squash, steps_alike
from strategies import PAIRS, every_engine
from test_keep_actions import ONLY_SLOTS, SMALL, both_forms
from thorough import covering

import kineticsim_env as ks
from kineticsim_env.envs.infos import info_of_one
from kineticsim_env.runtime.build import cpu_unavailable
from kineticsim_env.tasks import ManyLearnersTask
from kineticsim_env.tasks.base import ROLES

QTY, REACH, LEVELS = 8, 8, 3  # of every order, `max_offset`, and of every ladder
EMPTY = (0, 0)


def pencil(engine, roles=("maker", "trader"), levels=LEVELS, **settings):
    """Slots in place of the only agent and beside it: 8 units rest at 7 and at 9, and only slots act."""
    sizes = {"max_qty": QTY, "max_offset": REACH, "inventory_limit": None, "bank_size": 0, "warmup": 0}
    task = ManyLearnersTask(**sizes | settings)
    arguments = (ks.MarketConfig(**ONLY_SLOTS, orders_per_side=levels), 1, task, list(roles))
    kwargs = {"slots": ("noise", *[None] * (len(roles) - 1)), "stagger": False, "account_info": True}
    (core,) = make_cores(arguments, kwargs, (engine,))
    core.reset(1)
    return core


def level(bid=None, ask=None, qty=QTY, keep=None):
    """A maker's numbers of a level: ticks behind the mid, or None; `keep` is two booleans where actions may keep."""
    ticks = [2 * (side or 0) / REACH - 1 for side in (bid, ask)]
    sizes = [-1.0 if side is None else 2 * qty / QTY - 1 for side in (bid, ask)]
    return [*ticks, *sizes, *([] if keep is None else [1.0 if kept else -1.0 for kept in keep])]


def step(core, *slots):
    """Play a decision: of each slot the numbers of its levels, one after another; those behind them quote nothing."""
    width = max(core.task.action_form(role).size for role in core.roles)
    rows = torch.full((1, len(core.roles), width), -1.0)
    for slot, numbers in enumerate(slots):
        flat = [number for of_level in numbers for number in of_level]
        rows[0, slot, : len(flat)] = torch.tensor(flat)
        if core.roles[slot] == "trader":
            rows[0, slot, len(flat) :] = 0.0
    launch([core], {"actions": rows})


def choose(core, *choices):
    launch([core], {"choices": torch.tensor([choices])})


def standing(core, slot=0):
    """What stands of each level on either side, place by place: price, units and built-in units ahead."""
    quotes, queue = core.simulator.quotes[0, slot].tolist(), core.simulator.queue[0, slot].tolist()
    return [
        [[(*q[2 * s : 2 * s + 2], a[s]) for q, a in zip(*both, strict=True) if q[2 * s + 1]] for s in (0, 1)]
        for both in zip(quotes, queue, strict=True)
    ]


def rejects(core, slot=0):
    known = info_of_one(core.tensors["info"].cpu(), len(core.roles), slot)
    return int(known["rejected_bid"]), int(known["rejected_ask"])


def error(core):
    return int(core.simulator.tensors["error"][0])


# Actions --------------------------------------------------------------------------------------------------------------


@every_engine
def test_each_level_has_a_block_of_numbers(engine):
    core = pencil(engine)
    step(core, [level(1, 2), level(2, None, 3), level(None, 5, 1)], [])
    assert standing(core) == [[[(7, 8, 8)], [(10, 8, 0)]], [[(6, 3, 0)], []], [[], [(13, 1, 0)]]]
    assert standing(core, 1) == [[[], []]] * 3 and error(core) == 0
    step(core, [], [[0.0, 0.0], [-0.5, -0.25], [0.25, -0.5]])  # the mid is 8: a sale of 4 at 10, a buy of 2 at 4
    assert standing(core, 1) == [[[], []], [[], [(10, 4, 0)]], [[(4, 2, 0)], []]]


@every_engine
def test_choices_say_where_level_0_stands(engine):
    """Choice 1 of a maker is one tick behind the mid, and 5 of its asks is 6 behind; the trader's 10 sells at 9."""
    core = pencil(engine, action_type="discrete")
    choose(core, 7 * 1 + 5, 10)
    assert [bid for bid, _ in standing(core)] == [[(7, 8, 8)], [(6, 8, 0)], [(5, 8, 0)]]
    assert [ask for _, ask in standing(core)] == [[(14, 8, 0)], [(15, 8, 0)], [(16, 8, 0)]]
    assert [ask for _, ask in standing(core, 1)] == [[(9, 8, 8)], [(10, 8, 0)], [(11, 8, 0)]]
    choose(core, 0, 0)
    assert standing(core) == standing(core, 1) == [[[], []]] * 3


@every_engine
def test_what_is_left_to_trade_is_shared_by_levels(engine):
    """A block of 11: 8 at level 0 leave 3. Level 0 kept with 5 standing leaves 6: 4 at level 1, 2 of 8 at level 2."""
    core = pencil(engine, ("executor",), keep=True, side="buy", block_qty=11, forced_qty=1)
    whole, kept = [-0.5, 1.0, -1.0], [0.0, 1.0, 1.0]  # 8 units 4 ticks behind the mid
    step(core, [whole, [-0.625, 1.0, -1.0], [-0.75, 1.0, -1.0]])
    assert standing(core) == [[[(4, 8, 0)], []], [[(3, 3, 0)], []], [[], []]]
    core.simulator.quotes[0, 0, 0, 0, 1] = 5
    step(core, [kept, [-0.625, 0.0, -1.0], [-0.75, 1.0, -1.0]])
    assert standing(core) == [[[(4, 5, 0)], []], [[(3, 3, 0), (3, 1, 0)], []], [[(2, 2, 0)], []]]


@every_engine
@pytest.mark.parametrize("place", [0, 4, 11])
def test_a_nan_keeps_all_levels(engine, place):
    """And their places in queues; numbers out of range beside it are not noted."""
    core = pencil(engine)
    step(core, [level(1, 2), level(2, 3), level(4, 4, 2)], [])
    before = standing(core)
    rows = torch.full((1, 2, 12), -1.0)
    rows[0, 1] = 0.0
    rows[0, 1, 6:] = torch.nan  # numbers that the trader does not have
    rows[0, 0, 1], rows[0, 0, place] = 7.0, torch.nan
    launch([core], {"actions": rows})
    assert standing(core) == before and error(core) == 2
    rows[0, 0, place] = 0.0
    launch([core], {"actions": rows})
    assert error(core) == 2 | 4


@every_engine
def test_each_level_says_what_it_keeps(engine):
    core = pencil(engine, keep=True)
    both, neither = (True, True), (False, False)
    step(core, [level(1, 1, 4, neither), level(2, 2, 4, neither), level(3, 3, 4, neither)], [])
    step(core, [level(0, 0, 8, both), level(5, 6, 8, (False, True)), level(keep=neither)], [])
    assert standing(core) == [[[(7, 4, 8)], [(9, 4, 8)]], [[(3, 8, 0)], [(10, 4, 0)]], [[], []]]


@every_engine
def test_keeping_choices_keep_all_levels_of_a_side(engine):
    core = pencil(engine, keep=True, action_type="discrete")
    choose(core, 8 * 1 + 1, 11)
    asks = [ask for _, ask in standing(core)]
    choose(core, 8 * 0 + 7, 15)
    assert [ask for _, ask in standing(core)] == asks and [bid for bid, _ in standing(core)] == [[]] * 3
    assert [ask for _, ask in standing(core, 1)] == [[(8, 8, 0)], [(9, 8, 8)], [(10, 8, 0)]]


@every_engine
def test_rejects_of_all_levels_are_noted_together(engine):
    """Level 1's ask comes upon level 0's bid at the mid, 8, without `keep` too."""
    core = pencil(engine)
    step(core, [level(0, None), level(None, 0)], [])
    assert rejects(core) == (0, ks.Reject.OWN_ORDER) and rejects(core, 1) == (0, 0)
    step(core, [level(1, None)], [])
    assert rejects(core) == (0, 0)


@every_engine
def test_forced_orders_stand_alone(engine):
    """At the deadline the rest of a block goes into the market, and no level stands any more."""
    core = pencil(engine, ("executor",), side="buy", block_qty=6, forced_qty=2, horizon=2)
    wait = [[-0.5, -0.5], [-0.625, -0.5], [-0.75, -0.5]]
    step(core, wait)
    assert [bid for bid, _ in standing(core)] == [[(4, 2, 0)], [(3, 2, 0)], [(2, 2, 0)]]
    step(core, wait)
    assert bool(core.tensors["terminated"].all()) and core.fills[0].tolist() == [[6, 0]]
    assert standing(core) == [[[], []]] * 3


# Observations ---------------------------------------------------------------------------------------------------------


@every_engine
def test_observations_show_each_level(engine):
    """A bid of 4 at 7 behind 8 units, topped up to 8: both places are one quote, which is where the first is."""
    core = pencil(engine)
    step(core, [level(1, 2, 4), level(3, None, 5), level(None, 1, 2)], [])
    step(core, [level(1, 2, 8), level(3, None, 5), level(None, 1, 2)], [])
    assert standing(core)[0] == [[(7, 4, 8), (7, 4, 8)], [(10, 4, 0), (10, 4, 0)]]
    seen = core.tensors["observation"][0].cpu().numpy()
    assert seen.shape == (2, 39 + 6 * (LEVELS - 1))
    assert seen[0, 33:37].tolist() == [squash(2, 16), 1.0, squash(4, 16), 1.0]
    assert seen[0, 37:39].tolist() == [squash(8, 8), 0.0]
    assert seen[0, 39:45].tolist() == [squash(6, 16), 0.625, 0.0, 0.0, 0.0, 0.0]
    assert seen[0, 45:].tolist() == [0.0, 0.0, squash(2, 16), 0.25, 0.0, squash(8, 8)]
    assert not seen[1, 33:].any()
    core.simulator.quotes[0, 0, 0, 0, 1] = core.simulator.queue[0, 0, 0, 0, 0] = 0  # the first place was filled
    core.simulator.queue[0, 0, 0, 1, 0] = 3
    core.simulator.engine.state_changed()
    row = torch.full((1, 2, 12), torch.nan)
    launch([core], {"actions": row})
    seen = core.tensors["observation"][0].cpu().numpy()
    assert seen[0, 33:35].tolist() == [squash(2, 16), 0.5] and seen[0, 37] == squash(3, 8)


# Engines --------------------------------------------------------------------------------------------------------------


@covering
@pytest.mark.skipif(cpu_unavailable() is not None, reason="no C++ compiler")
@pytest.mark.parametrize("engines", PAIRS)
@pytest.mark.parametrize("mode", ["same_step", "next_step", "disabled"])
@pytest.mark.parametrize(("roles", "levels"), [(("maker",), 8), (("trader",), 2), (("maker", "maker", *ROLES), 4)])
@both_forms
def test_engines_agree(engines, mode, roles, levels, form):
    """Over ends of episodes, with latency, limits and rejects; every tensor, those of infos too."""
    keep = mode != "next_step"
    task = ManyLearnersTask(keep=keep, action_type=form, max_offset=2, inventory_limit=60, max_qty=30, **SMALL)
    config = ks.MarketConfig.preset("continuous", quote_latency=[0, 5, 70], orders_per_side=levels)
    kwargs = {"slots": (None,) * len(roles), "auctions_per_step": 2, "account_info": True, "autoreset_mode": mode}
    cores = make_cores((config, 3, task, list(roles)), kwargs | {"see_fundamental": True}, engines)
    rejected = 0
    for _ in steps_alike(cores, 11, 5, 8 if mode == "disabled" else 20):
        rejected += int(cores[0].tensors["info"][-2 * len(roles) :].count_nonzero())
        if mode == "disabled" and bool(cores[0].tensors["done"].any()):
            break
    assert rejected > 0 or form == "discrete" or roles == ("trader",) or mode == "disabled"
    assert bool(np.isfinite(cores[0].tensors["reward"].cpu().numpy()).all())
