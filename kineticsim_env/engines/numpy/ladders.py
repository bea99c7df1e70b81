"""The arrival of what slots submit in the continuous market: ladders of N levels; quotes are ladders of one.

Of a level's side stand up to two places of one price, what stood first and a top-up; with N of 1 there is one place,
and no top-up. All of a slot's places are in a row in the arrays of what stands: level after level, each of its places.
"""

from typing import NamedTuple

import numpy as np

from kineticsim_env.engines.numpy import queues
from kineticsim_env.engines.numpy.orders import limit_ladders, limit_quote_prices, on_grid
from kineticsim_env.engines.numpy.rules import clip
from kineticsim_env.engines.numpy.state import MAX_PRICE, Markets
from kineticsim_env.engines.numpy.trades import check_resting, trade, would_trade

KEEP, POST_ONLY, IMMEDIATE_OR_CANCEL, MARKET = 1, 2, 4, 8  # flags of a side of a level that arrives
REJECT_POST_ONLY, REJECT_OWN_ORDER = 1, 2


class Arriving(NamedTuple):
    """What a decision has submitted, as it arrives."""

    quotes: np.ndarray  # [m, K, N, 4], before the pre-trade limits
    flags: np.ndarray  # [m, K, N, 2]: of bids, then asks
    before: np.ndarray  # [m], turns of slots in the interval before


def ladders_arrive(m: Markets, fresh: Arriving, arrive: np.ndarray, fills: np.ndarray) -> None:
    """Let what was submitted come, where it does `arrive` now, bool [m]: slot t mod K first."""
    slots = m.cash.shape[1]
    for turn in range(slots):
        ladder_arrives(m, fresh, (m.t + turn) % slots, turn, arrive, fills)


def ladder_arrives(
    m: Markets, fresh: Arriving, slot: np.ndarray, turn: int, arrive: np.ndarray, fills: np.ndarray
) -> None:
    """Let one slot's ladder come: sides keep their places or are withdrawn; then what is an order trades and rests."""
    each, rows = np.arange(len(m.rows)), np.arange(len(m.rows))[:, None]
    places = slot[:, None] * m.standing_per_slot + np.arange(m.standing_per_slot)  # the slot's, [m, N * places]
    if m.places > 1:
        bring_forward(m, rows, places, arrive)
    flags = fresh.flags[each, slot]  # [m, N, 2]: bid, ask, as all that follows
    kept = (flags & KEEP) != 0
    rests = kept | ((flags & (IMMEDIATE_OR_CANCEL | MARKET)) == 0)
    was = by_place(m, m.quotes[rows, places])  # [m, N, places, 4]
    first, standing = was[:, :, 0, 0::2], was[..., 1::2].sum(axis=2)
    asked = asked_levels(fresh.quotes[each, slot], flags, first, standing)
    both_rest = ((flags & (KEEP | IMMEDIATE_OR_CANCEL | MARKET)) == 0).all(axis=-1)
    limited = limit_ladders(m, asked[:, None], m.inventory[each, slot][:, None], both_rest[:, None])[:, 0]
    tick = levered_ticks(m, limited)
    price = np.where(kept, first, tick + m.price_origin[:, None, None])
    quantity = limited[..., 1::2]
    keeps = (price == first) & (quantity > 0) & (standing > 0) & rests
    if m.places == 1:  # nowhere to put a top-up
        keeps &= quantity <= standing

    staying = units_that_stay(was[..., 1::2], np.where(keeps, quantity, 0), keeps & (quantity > standing))
    now = was.copy()
    now[..., 0::2], now[..., 1::2] = price[:, :, None], staying
    m.quotes[rows, places] = np.where(arrive[:, None, None], now.reshape(*places.shape, 4), m.quotes[rows, places])
    queues.drop_empty(m)
    comes = np.where(arrive[:, None, None], quantity - staying.sum(axis=2), 0)
    for level in range(m.orders):
        for side in (0, 1):
            limit, buys = tick[:, level, side], np.full(len(m.rows), side == 0)
            crosses = (comes[:, level, side] > 0) & would_trade(m, side, limit)
            refused = crosses & ((flags[:, level, side] & POST_ONLY) != 0)
            units = np.where(refused, 0, comes[:, level, side])
            left = units - trade(m, buys, limit, units, fills, slot)
            met_own = (left > 0) & would_trade(m, side, limit)
            m.rejects[each, slot, level, side] |= refused * REJECT_POST_ONLY + met_own * REJECT_OWN_ORDER
            left = np.where(met_own | ~rests[:, level, side], 0, left)
            stand_behind(m, places[:, level * m.places], side, left, 256 * m.t + fresh.before + turn)
            check_resting(m, buys, left)


def by_place(m: Markets, of_slot: np.ndarray) -> np.ndarray:
    """Return numbers of a slot's places, [m, N * places, n], as [m, N, places, n]."""
    return of_slot.reshape(len(of_slot), m.orders, m.places, of_slot.shape[-1])


def bring_forward(m: Markets, rows: np.ndarray, places: np.ndarray, arrive: np.ndarray) -> None:
    """Let the second place of a side become the first, where that one holds nothing."""
    quantity = by_place(m, m.quotes[rows, places])[:, :, 0, 1::2]
    moves = (quantity == 0) & arrive[:, None, None]  # [m, N, 2]
    for numbers, of_side in ((m.quotes, 2), (m.queue, 1), (m.moments, 1)):
        here = by_place(m, numbers[rows, places])
        forward = np.stack([here[:, :, 1], np.zeros_like(here[:, :, 1])], axis=2)
        moved = np.where(np.repeat(moves, of_side, axis=-1)[:, :, None], forward, here)
        numbers[rows, places] = moved.reshape(*places.shape, -1)


def asked_levels(levels: np.ndarray, flags: np.ndarray, price: np.ndarray, quantity: np.ndarray) -> np.ndarray:
    """Return what levels [m, N, 4] ask for before the pre-trade limits: what stands, [m, N, 2], where that is kept."""
    market = np.where(flags & MARKET, np.array([MAX_PRICE, -MAX_PRICE]), levels[..., 0::2])
    asked = np.empty_like(levels)
    asked[..., 0::2] = np.where(flags & KEEP, price, market)
    asked[..., 1::2] = np.where(flags & KEEP, quantity, levels[..., 1::2])
    return asked


def levered_ticks(m: Markets, limited: np.ndarray) -> np.ndarray:
    """Return the ticks [m, N, 2] of levels as levers and the grid's far end leave them."""
    tick = limit_quote_prices(m, limited, m.beat_price)[..., 0::2] - m.price_origin[:, None, None]
    beyond = np.stack([tick[..., 0] >= m.num_levels, tick[..., 1] < 0], axis=-1)
    return np.where(beyond, on_grid(m, tick.reshape(len(tick), -1)).reshape(tick.shape), tick)


def units_that_stay(had: np.ndarray, quantity: np.ndarray, topped_up: np.ndarray) -> np.ndarray:
    """Return what stays of places [m, N, places, 2], the newest going first, if `quantity` [m, N, 2] keeps its place.

    Where it is `topped_up` the second place is withdrawn, to come with the top-up.
    """
    before = np.cumsum(had, axis=2) - had
    stays = clip(quantity[:, :, None] - before, 0, had)
    stays[:, :, 1:] = np.where(topped_up[:, :, None], 0, stays[:, :, 1:])
    return stays


def stand_behind(m: Markets, first: np.ndarray, side: int, left: np.ndarray, moment: np.ndarray) -> None:
    """Put what is left of orders, [m], behind all that rests at their ticks: at the first place or at the next.

    `first` has the places, [m]; where anything is left the next one holds nothing if the first does not, either.
    """
    each, rests = np.arange(len(m.rows)), left > 0
    place = first + np.where(rests & (m.quotes[each, first, 2 * side + 1] > 0), 1, 0)
    m.quotes[each, place, 2 * side + 1] += left
    behind = queues.built_in_at(m, queues.quote_ticks(m))[each, place, side]
    m.queue[each, place, side] = np.where(rests, behind, m.queue[each, place, side])
    m.moments[each, place, side] = np.where(rests, moment, m.moments[each, place, side])
