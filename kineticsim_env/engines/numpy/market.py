"""docs/model.md in NumPy, vectorised over markets. It shares no code with the other engines.

`launch` of engine.py calls `run` with the fields of `struct Launch` (cuda/model/layout.h) for a block of markets, in
which everything is int64: [m] per market, [m, L] per tick, [m, K] per slot, [m, J] per standing quote.

Read on in state.py (what a market is), orders.py (what is ordered, and at which prices), beats.py (what happens before
anybody comes) and auction.py; then clock.py for markets on the clock, and queues.py, trades.py, ladders.py,
under_way.py and continuous.py for continuous trading; and lives.py and flow.py for a fitted order flow. What needs no
state is in rules.py, the environment's part in tasks.py.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from kineticsim_env.engines.numpy import lives
from kineticsim_env.engines.numpy.auction import auction_of_each
from kineticsim_env.engines.numpy.clock import call_on_the_clock
from kineticsim_env.engines.numpy.continuous import continuous_interval
from kineticsim_env.engines.numpy.flow import flow_interval
from kineticsim_env.engines.numpy.orders import apply_pre_trade_limits
from kineticsim_env.engines.numpy.rules import best_prices
from kineticsim_env.engines.numpy.state import ERROR_STOPPED, NO_PRICE, Markets
from kineticsim_env.engines.numpy.under_way import submit

SERIES = (
    "last_price", "volume", "mid2", "fundamental", "best_bid", "best_ask", "bid_depth", "ask_depth", "signed_volume",
)  # fmt: skip


def decision(
    m: Markets,
    auctions: int,
    quotes: np.ndarray | None = None,
    flags: np.ndarray | None = None,
    at_deadline: bool = False,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield volume and fills of each auction of one decision.

    Quotes [m, K, 4] are not yet limited, or None; `submit` of under_way.py has the other arguments, and ladders, which
    continuous trading alone knows.
    """
    m.rejects = np.zeros_like(m.rejects)
    if m.continuous and quotes is not None:
        submit(m, quotes, flags, at_deadline)
    for i in range(auctions):
        if m.continuous:
            yield flow_interval(m) if m.plays_flow else continuous_interval(m)
            continue
        # Accounts do not change before the quotes are replaced, so the limits may come before the auction.
        fresh = apply_pre_trade_limits(m, quotes) if i == 0 and quotes is not None else None
        yield call_on_the_clock(m, fresh) if m.on_clock else auction_of_each(m, fresh)


def run(args: dict[str, Any], rows: np.ndarray) -> None:
    """Run `decisions` x `auctions` auctions of some markets; of those that have stopped only the state is reported."""
    stopped = (args["error"][rows] & ERROR_STOPPED) != 0
    for some, frozen in ((rows[~stopped], False), (rows[stopped], True)):
        if not some.size:
            continue
        m = Markets(args, some)
        for d in range(args["decisions"]):
            run_decision(args, m, d, frozen)
        m.store(args)


def open_books(args: dict[str, Any], rows: np.ndarray) -> None:
    """Open the books of markets of an order flow, of those that `reset_mask` has."""
    m = Markets(args, rows[args["reset_mask"][rows] != 0])
    lives.open_book(m, m.params["init_price"])
    m.store(args)


def run_decision(args: dict[str, Any], m: Markets, d: int, frozen: bool) -> None:
    quotes = None if args["new_quotes"] is None else args["new_quotes"][d][m.rows]
    flags = None if args.get("order_flags") is None else args["order_flags"][d][m.rows]
    fills = np.zeros((*m.cash.shape, 2), np.int64)
    results = decision(m, args["auctions"], quotes, flags) if not frozen else [(0, fills)] * args["auctions"]
    for i, (volume, filled) in enumerate(results):
        fills = fills + filled
        record(args, m, d * args["auctions"] + i, volume)
    if args["fills"] is not None:
        args["fills"][d, m.rows] = fills
    if args.get("rejects") is not None:
        words = m.rejects[..., 0] | m.rejects[..., 1] << 8  # [m, K, N]
        args["rejects"][d, m.rows] = words.reshape(len(m.rows), *args["rejects"].shape[2:])
    if args["value"] is not None:
        args["value"][d, m.rows] = 2 * m.cash + m.inventory * m.marked_mid2[:, None]


def record(args: dict[str, Any], m: Markets, column: int, volume: np.ndarray | int) -> None:
    """Write one auction into the series that are wanted."""
    found = {
        "last_price": lambda: m.last_price,
        "volume": lambda: volume,
        "mid2": lambda: m.marked_mid2,
        "fundamental": lambda: m.fundamental_price,
        "best_bid": lambda: best_of_sides(m)[:, 0],
        "best_ask": lambda: best_of_sides(m)[:, 1],
        "bid_depth": lambda: depths(m, args["reach"])[:, 0],
        "ask_depth": lambda: depths(m, args["reach"])[:, 1],
        "signed_volume": lambda: m.signed_volume,
    }
    for name in SERIES:
        if args.get(f"series_{name}") is not None:
            args[f"series_{name}"][m.rows, column] = np.clip(found[name](), -NO_PRICE, NO_PRICE)


def best_of_sides(m: Markets) -> np.ndarray:
    """Return the absolute best bid and best ask [m, 2] of the built-in resting book; -/+NO_PRICE of an empty side."""
    best_bid, best_ask = best_prices(m.bid, m.ask)
    bid = np.where(best_bid >= 0, best_bid + m.price_origin, -NO_PRICE)
    ask = np.where(best_ask < m.num_levels, best_ask + m.price_origin, NO_PRICE)
    return np.stack([bid, ask], axis=1)


def depths(m: Markets, reach: int) -> np.ndarray:
    """Return the built-in units [m, 2] within `reach` ticks of the best bid, and of the best ask."""
    best_bid, best_ask = (best[:, None] for best in best_prices(m.bid, m.ask))
    tick = np.arange(m.num_levels)
    bids, asks = m.bid * (tick >= best_bid - reach), m.ask * (tick <= best_ask + reach)
    return np.stack([bids.sum(axis=1), asks.sum(axis=1)], axis=1)
