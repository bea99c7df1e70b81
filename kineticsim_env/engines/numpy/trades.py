"""What an order does in the continuous market: whether it would trade, its trades, and what is left of it to rest."""

import numpy as np

from kineticsim_env.engines.numpy import lives, queues
from kineticsim_env.engines.numpy.auction import book_fills, quotes_on_grid
from kineticsim_env.engines.numpy.rules import best_with_quotes
from kineticsim_env.engines.numpy.state import Markets


def trade(
    m: Markets,
    buys: np.ndarray,
    tick: np.ndarray,
    quantity: np.ndarray,
    fills: np.ndarray,
    taker: np.ndarray | None = None,
) -> np.ndarray:
    """Match one order in each market, book who traded, and return how many units, [m].

    Args:
        m: the markets.
        buys: whether it buys, bool [m].
        tick: the worst tick it trades at, [m].
        quantity: [m]; 0 is no order.
        fills: [m, K, 2], which this adds to.
        taker: the slot whose order it is, [m]; None: a built-in agent's.
    """
    if not quantity.any():
        return np.zeros_like(quantity)
    own = np.zeros(m.cash.shape, bool) if taker is None else taker[:, None] == np.arange(m.cash.shape[1])
    before = m.bid + m.ask
    match = queues.take(m, buys, tick, quantity, np.repeat(own, m.standing_per_slot, axis=1))
    if "lives" in m.names:
        lives.follow_trade(m, before)
    m.volume = m.volume + match.units
    m.signed_volume = m.signed_volume + np.where(buys, match.units, -match.units)
    took, made, side = match.units[:, None] * own, m.sum_per_slot(match.fills), buys[:, None]
    bought, sold = np.where(side, took, made), np.where(side, made, took)
    paid = match.money[:, None] * own - m.sum_per_slot(match.fills * match.price)
    book_fills(m, bought, sold, np.where(side, paid, -paid))
    m.fees = m.fees + took * m.params["taker_fee"][:, None]
    fills += np.stack([bought, sold], axis=-1)
    return match.units


def would_trade(m: Markets, side: int, limit: np.ndarray) -> np.ndarray:
    """Return whether orders on a side, up to tick `limit` [m], meet built-in interest or quotes of any slot."""
    best_bid, best_ask = best_with_quotes(m.bid, m.ask, quotes_on_grid(m))
    return best_ask <= np.minimum(limit, m.num_levels - 1) if side == 0 else best_bid >= np.maximum(limit, 0)


def check_resting(m: Markets, buys: np.ndarray, rests: np.ndarray) -> None:
    """Stop where an order has come to rest, `rests` > 0 [m], on a side that holds too much."""
    _, bid_qty, _, ask_qty = quotes_on_grid(m)
    total = np.where(buys, m.bid.sum(axis=1) + bid_qty.sum(axis=1), m.ask.sum(axis=1) + ask_qty.sum(axis=1))
    m.check_totals(np.where(rests > 0, total, 0))
