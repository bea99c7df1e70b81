"""Ladders that can be followed with a pencil: a market in which only slots act, and how they submit to it."""

import pytest
import torch
from ensembles import bits_of
from pencil_markets import GRID, NEVER
from strategies import ENGINES

import kineticsim_env as ks

EVERY_ENGINE = pytest.mark.parametrize("engine", ENGINES)
NOTHING = (0, 0, "")


def market(engine, slots=1, levels=3, **fields):
    """A market whose only agent is replaced by slot 0: 8 units rest at 7 and at 9, and only slots act."""
    fields = {**GRID, "noise": 1.0, "momentum": 0.0, "maker": 0.0, "mechanism": "continuous", "interval": 1, **fields}
    config = ks.MarketConfig(**{"beat": NEVER} | fields, orders_per_side=levels)
    return ks.Simulator(config, 1, engine=engine, slots=("noise", *[None] * (slots - 1)))


def bid(price, quantity, flags=""):
    """A level of one side."""
    return (price, quantity, flags), NOTHING


def ask(price, quantity, flags=""):
    return NOTHING, (price, quantity, flags)


KEPT = ((0, 0, "keep"), (0, 0, "keep"))


def submit(sim, *ladders):
    """Submit ladders, one per slot: levels from the first on, or None, which keeps all; return fills and rejects.

    Fills are [K][2], rejects {(slot, level, side): reject}.
    """
    levels = sim.config.orders_per_side
    records = [[KEPT] * levels if one is None else [*one, *[(NOTHING,) * 2] * (levels - len(one))] for one in ladders]
    flat = [[price, quantity, bits_of(flags)] for one in records for both in one for price, quantity, flags in both]
    shape = (1, 1, len(sim.slots), levels, 2, 3)
    played = sim.rollout(torch.tensor(flat, dtype=torch.int32, device=sim.device).view(shape))
    rejects = played.rejects[0, 0]
    return played.fills[0, 0].tolist(), {tuple(at.tolist()): int(rejects[tuple(at)]) for at in rejects.nonzero()}


def standing(sim, side, slot=0):
    """What stands of each level, place by place: price, quantity, built-in units ahead."""
    quotes, queue = sim.quotes[0, slot].tolist(), sim.queue[0, slot].tolist()
    return [
        [
            (*quote[2 * side : 2 * side + 2], ahead[side])
            for quote, ahead in zip(*level, strict=True)
            if quote[2 * side + 1]
        ]
        for level in zip(quotes, queue, strict=True)
    ]


def bids(sim, slot=0):
    return standing(sim, 0, slot)


def asks(sim, slot=0):
    return standing(sim, 1, slot)


def topped_up(engine):
    """Slot 0 bids 4 at 7 behind 8 built-in units, slot 1 bids 3 there, and slot 0 then asks for 6; slot 2 sells."""
    sim = market(engine, 3)
    submit(sim, [bid(7, 4)], None, None)
    submit(sim, None, [bid(7, 3)], None)
    assert submit(sim, [bid(7, 6)], None, None) == ([[0, 0]] * 3, {})
    return sim
