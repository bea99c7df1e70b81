"""Actions that keep standing quotes: known answers, and engines alike. `env_helpers.py` draws them, too."""

import numpy as np
import pytest
import torch
from env_helpers import launch, make_cores, steps_alike
from pencil_markets import GRID, NEVER
from strategies import PAIRS, every_engine
from thorough import covering

import kineticsim_env as ks
from kineticsim_env.envs.infos import info_of_one
from kineticsim_env.envs.vector import ExecutionVectorEnv
from kineticsim_env.runtime import layout
from kineticsim_env.runtime.build import cpu_unavailable
from kineticsim_env.tasks import ManyLearnersTask
from kineticsim_env.tasks.base import ROLES

QTY, REACH = 8, 8  # of every order, and `max_offset`
ONLY_SLOTS = GRID | dict(noise=1.0, momentum=0.0, maker=0.0, mechanism="continuous", interval=1, beat=NEVER)
SMALL = {"bank_size": 4, "warmup": 4, "horizon": 9}
BEHIND, THROUGH = [0, 1, 2, 3, 4, 6, 8], [-6, -3, -1, 0, 1, 3, 6]  # ticks of discrete actions
both_forms = pytest.mark.parametrize("form", ["continuous", "discrete"])


class Pencil:
    """A maker, in place of the only agent, and a trader: 8 units rest at 7 and at 9, and only these two act."""

    def __init__(self, engine, form):
        sizes = {"max_qty": QTY, "max_offset": REACH, "inventory_limit": None}
        task = ManyLearnersTask(action_type=form, keep=True, bank_size=0, warmup=0, **sizes)
        arguments = (ks.MarketConfig(**ONLY_SLOTS), 1, task, ["maker", "trader"])
        kwargs = {"slots": ("noise", None), "stagger": False, "account_info": True}
        (self.core,) = make_cores(arguments, kwargs, (engine,))
        self.core.reset(1)
        self.discrete = form == "discrete"

    def step(self, bid=None, ask=None, trade=None):
        """Play a decision: bid and ask are None, "keep" or ticks behind the mid; a trade (side, ticks through it)."""
        if self.discrete:
            choice = {None: 0, "keep": 7}
            of_maker = 8 * choice.get(bid, BEHIND.index(bid) if bid in BEHIND else 0)
            of_maker += choice.get(ask, BEHIND.index(ask) if ask in BEHIND else 0)
            of_trader = {None: 0, "keep": 15}.get(trade, 0)
            if isinstance(trade, tuple):
                of_trader = (1 if trade[0] > 0 else 8) + THROUGH.index(trade[1])
            self.play(choices=torch.tensor([[of_maker, of_trader]]))
            return
        ticks = [2 * side / REACH - 1 if isinstance(side, int) else 0.7 for side in (bid, ask)]
        sizes = [-1.0 if side is None else 1.0 for side in (bid, ask)]
        keeps = [0.01 if side == "keep" else 0.0 for side in (bid, ask)]
        order = [float(trade[0]), trade[1] / REACH, -1.0] if isinstance(trade, tuple) else [0.0, 0.3, -1.0]
        order = [-1.0, 0.5, 1.0] if trade == "keep" else order
        self.play(actions=torch.tensor([[ticks + sizes + keeps, [*order, 0.0, 0.0, 0.0]]], dtype=torch.float32))

    def play(self, **given):
        self.core.step(**{name: tensor.to(self.core.device) for name, tensor in given.items()})

    @property
    def quotes(self):
        """Standing quotes, [K][4], without prices of sides that have no quantity."""
        rows = self.core.simulator.quotes[0].clone()
        rows[:, ::2] *= rows[:, 1::2] > 0
        return rows.tolist()

    @property
    def ahead(self):
        return self.core.simulator.queue[0].tolist()

    @property
    def fills(self):
        return self.core.fills[0].tolist()

    def rejects(self, slot=0):
        known = info_of_one(self.core.tensors["info"].cpu(), 2, slot)
        return [int(known["rejected_bid"]), int(known["rejected_ask"])]


@every_engine
@both_forms
def test_a_kept_quote_keeps_its_place_and_what_remains(engine, form):
    """A bid of 8 behind 8 built-in units at 7; a sale at 7 takes these, the next 3 of the bid, and the bid is kept."""
    market = Pencil(engine, form)
    market.step(bid=1)
    assert market.quotes[0] == [7, 8, 0, 0] and market.ahead[0] == [8, 0]
    market.step(bid="keep", trade=(-1, 1))
    assert market.fills == [[0, 0], [0, 8]] and market.quotes[0] == [7, 8, 0, 0] and market.ahead[0] == [0, 0]
    market.core.simulator.quotes[0, 0, 1] = 3  # what remains of it
    market.step(bid="keep")
    assert market.quotes[0] == [7, 3, 0, 0] and market.rejects() == [0, 0]
    market.step()
    assert market.quotes[0] == [0, 0, 0, 0]


@every_engine
@both_forms
def test_what_is_kept_is_what_stands_at_the_arrival(engine, form):
    """The trader comes first at odd t. At t = 3 its sale fills the bid, which is at the front, before it is kept."""
    market = Pencil(engine, form)
    market.step(bid=1, ask=6)
    market.step(bid="keep", ask="keep", trade=(-1, 1))
    market.step(bid="keep", ask="keep")
    assert market.quotes[0] == [7, 8, 14, 8] and market.ahead[0] == [0, 0]
    market.step(bid="keep", ask="keep", trade=(-1, 1))  # the mid is 7, the last price: a sale at 6
    assert market.fills == [[8, 0], [0, 8]] and market.quotes == [[0, 0, 14, 8], [0, 0, 0, 0]]


@every_engine
@both_forms
def test_keeping_nothing_is_nothing(engine, form):
    market = Pencil(engine, form)
    market.step(bid="keep", ask="keep", trade="keep")
    assert market.quotes == [[0, 0, 0, 0]] * 2 and market.fills == [[0, 0]] * 2
    assert market.rejects(0) == market.rejects(1) == [0, 0] and int(market.core.simulator.tensors["error"][0]) == 0


@every_engine
def test_a_side_that_meets_the_kept_one_is_rejected(engine):
    """The ask at 9 is behind 8 units, which the trader buys: the mid is the last price, 9, where a bid meets it."""
    market = Pencil(engine, "continuous")
    market.step(ask=1, trade=(1, 1))
    assert market.fills == [[0, 0], [8, 0]] and market.quotes[0] == [0, 0, 9, 8]
    market.step(bid=0, ask="keep")
    assert market.quotes[0] == [0, 0, 9, 8] and market.fills == [[0, 0], [0, 0]]
    assert market.rejects() == [layout.ENUMS["Reject"]["own_order"], 0] and market.rejects(1) == [0, 0]
    market.step(bid=0, ask="keep")
    assert market.rejects() == [ks.Reject.OWN_ORDER, 0]
    market.step(bid=1, ask="keep")
    assert market.quotes[0] == [8, 8, 9, 8] and market.rejects() == [0, 0]


@every_engine
@both_forms
def test_orders_and_trades_keep_both_sides(engine, form):
    market = Pencil(engine, form)
    market.step(trade=(-1, -1))
    assert market.quotes[1] == [0, 0, 9, 8]
    market.step(trade="keep")
    assert market.quotes[1] == [0, 0, 9, 8] and market.ahead[1] == [0, 8]
    market.step(trade=(1, -1))
    market.step(trade="keep")
    assert market.quotes[1] == [7, 8, 0, 0]


@every_engine
@pytest.mark.parametrize("place", range(6))
def test_a_nan_keeps_the_quote_and_is_noted_as_ever(engine, place):
    market = Pencil(engine, "continuous")
    market.step(bid=2, ask=2)
    row = torch.zeros(1, 2, 6)
    row[0, 0, place] = torch.nan
    row[0, 1, 3:] = torch.nan  # numbers that the trader does not have
    launch([market.core], {"actions": row})
    assert market.quotes[0] == [6, 8, 10, 8] and int(market.core.simulator.tensors["error"][0]) == 2


@every_engine
def test_numbers_outside_the_space_are_clamped_and_noted(engine):
    market = Pencil(engine, "continuous")
    market.step(bid=2)
    row = torch.tensor([[[0.0, 0.0, -1.0, -1.0, 7.0, -1.0], [0.0, 0.0, -7.0, 0.0, 0.0, 0.0]]])
    launch([market.core], {"actions": row})
    assert market.quotes[0] == [6, 8, 0, 0] and int(market.core.simulator.tensors["error"][0]) == 4
    market = Pencil(engine, "discrete")
    market.step(trade=(-1, -1))
    launch([market.core], {"choices": torch.tensor([[0, 2**40]])})  # the last choice keeps
    assert market.quotes[1] == [0, 0, 9, 8] and int(market.core.simulator.tensors["error"][0]) == 4


@every_engine
def test_forced_orders_keep_nothing(engine):
    """At the deadline an executor that kept its order so far has the rest of its block executed."""
    envs = ExecutionVectorEnv(4, engine=engine, keep=True, block_qty=6, stagger=False, horizon=3, bank_size=4, warmup=4)
    envs.reset(seed=1)
    envs.step(np.array([[-1.0, 1.0, -1.0]] * 4, dtype=np.float32))  # far behind the mid
    standing = envs.simulator.quotes.clone()
    envs.step(np.array([[1.0, 1.0, 1.0]] * 4, dtype=np.float32))
    assert torch.equal(envs.simulator.quotes, standing)
    _, _, terminated, _, _ = envs.step(np.array([[1.0, 1.0, 1.0]] * 4, dtype=np.float32))
    assert terminated.all() and (envs.core.fills.sum(-1) == 6).all()


# Engines --------------------------------------------------------------------------------------------------------------


@covering
@pytest.mark.skipif(cpu_unavailable() is not None, reason="no C++ compiler")
@pytest.mark.parametrize("engines", PAIRS)
@pytest.mark.parametrize("mode", ["same_step", "next_step", "disabled"])
@pytest.mark.parametrize("roles", [("maker",), ("trader",), ("maker", "maker", *ROLES)], ids=len)
@both_forms
def test_engines_agree(engines, mode, roles, form):
    """Over ends of episodes, with latency, limits and rejects; every tensor, those of infos too."""
    task = ManyLearnersTask(keep=True, action_type=form, max_offset=1, inventory_limit=None, max_qty=60, **SMALL)
    config = ks.MarketConfig.preset("continuous", quote_latency=[0, 5, 70])
    kwargs = {"slots": (None,) * len(roles), "auctions_per_step": 2, "account_info": True, "autoreset_mode": mode}
    cores = make_cores((config, 3, task, list(roles)), kwargs, engines)
    rejected = 0
    for _ in steps_alike(cores, 11, 5, 8 if mode == "disabled" else 25):
        rejected += int(cores[0].tensors["info"][-2 * len(roles) :].count_nonzero())
        if mode == "disabled" and bool(cores[0].tensors["done"].any()):
            break
    assert rejected > 0 or len(roles) == 1 or form == "discrete" or mode == "disabled"
