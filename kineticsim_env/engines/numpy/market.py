"""The readable oracle: docs/model.md in NumPy, vectorised over markets. It shares no code with the other engines.

The simulator calls `launch` with the fields of `struct Launch` (cuda/model/layout.h). Markets are computed in blocks
that fit a cache; inside a block everything is int64: [m] per market, [m, L] per tick, [m, K] per slot. The functions
are in the order of one auction; what needs no state is in rules.py, the environment's part in tasks.py.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from kineticsim_env.engines.numpy.rules import (
    best_prices,
    bit_sign,
    bits,
    clear_auction,
    episode_key,
    random_words,
    ration,
    round_half_even,
    scatter,
)
from kineticsim_env.errors import MarketError

ERROR_OVERFLOW, ERROR_NAN_ACTION, ERROR_ACTION_RANGE, ERROR_ORIGIN = 1, 2, 4, 8
ERROR_STOPPED = ERROR_OVERFLOW | ERROR_ORIGIN

# Indices of random words that belong to no agent.
WORD_WALK, WORD_RATIONING, WORD_WARM_START, WORD_STAGGER, WORD_SCENARIO = (2**30 + i for i in range(5))
WORD_SLOT, WORD_CANCEL = 2**30 + 64, 2**31

MAX_PRICE, MAX_ORIGIN = 2**30, 2**29
BLOCK_CELLS = 2**15  # agents or ticks in one block of markets: its temporaries stay in the L2 cache

MARKET_STATE = (
    "bid", "ask", "prev_mid2", "last_tick", "price_origin", "fundamental_price",
    "seed", "episode", "t", "volume", "trades", "error",
)  # fmt: skip
SLOT_STATE = ("quotes", "cash", "inventory", "fees")
ENV_STATE = ("elapsed", "done", "mid_history", "volume_history", "prev_value", "ended", "arrival2", "scenario")
RUN_OUTPUT = ("fills", "value", "series_last_price", "series_volume", "series_mid2", "series_fundamental")
ENV_OUTPUT = ("observation", "final_observation", "reward", "terminated", "truncated", "over", "fills")
CLASSES = ("noise", "momentum", "maker", "fundamental")


def launch(args: dict[str, Any], commit: AbstractContextManager[Any] | None = None) -> None:
    """Run one launch, updating the state and output arrays in place, or leave them all as they were.

    Args:
        commit: entered while the arrays are updated, so that no signal interrupts that.
        args: the fields of `struct Launch`: integers, NumPy arrays of the shapes given there (None for null), `params`
            as a dict of int64 arrays [M] and `task` as a dict of the fields of `struct TaskParams`, or None.

    Raises:
        MarketError: a side's total would reach 2^31, or a window would leave +/-2^29 ticks.
    """
    from kineticsim_env.engines.numpy import tasks  # it builds on this module

    written = MARKET_STATE + SLOT_STATE + ENV_STATE + (ENV_OUTPUT if args["env_mode"] else RUN_OUTPUT)
    copies: dict[str, Any] = {name: args[name].copy() for name in written if args.get(name) is not None}
    if args["env_mode"]:  # a reset may draw new ones
        copies["params"] = {name: values.copy() for name, values in args["params"].items()}
    work_on = (run, tasks.step, tasks.reset)[args["env_mode"]]
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        for rows in market_blocks(args):
            work_on(args | copies, rows)
    with commit or nullcontext():
        for name, values in copies.pop("params", {}).items():
            args["params"][name][...] = values
        for name, copy in copies.items():
            args[name][...] = copy


def market_blocks(args: dict[str, Any]) -> Iterator[np.ndarray]:
    """Yield the market indices of one block after another."""
    agents = sum(int(np.max(args["params"][f"num_{name}"], initial=0)) for name in CLASSES)
    size = max(1, BLOCK_CELLS // max(agents, args["levels"]))
    for start in range(0, args["markets"], size):
        yield np.arange(start, min(start + size, args["markets"]))


class Markets:
    """The state of some markets as int64 arrays, one attribute for each name of the state table."""

    bid: np.ndarray
    ask: np.ndarray
    prev_mid2: np.ndarray
    last_tick: np.ndarray
    price_origin: np.ndarray
    fundamental_price: np.ndarray
    seed: np.ndarray
    episode: np.ndarray
    t: np.ndarray
    volume: np.ndarray
    trades: np.ndarray
    error: np.ndarray
    quotes: np.ndarray
    cash: np.ndarray
    inventory: np.ndarray
    fees: np.ndarray
    elapsed: np.ndarray
    done: np.ndarray
    mid_history: np.ndarray
    volume_history: np.ndarray
    prev_value: np.ndarray
    ended: np.ndarray
    arrival2: np.ndarray
    scenario: np.ndarray

    def __init__(self, args: dict[str, Any], rows: np.ndarray):
        self.rows, self.num_levels = rows, args["levels"]
        self.params = {name: np.broadcast_to(x, args["markets"])[rows] for name, x in args["params"].items()}
        self.names = [n for n in MARKET_STATE + SLOT_STATE + ENV_STATE if args.get(n) is not None]
        for name in self.names:
            setattr(self, name, args[name][rows].astype(np.int64))
        if "quotes" not in self.names:  # no slots
            self.quotes = np.zeros((len(rows), 0, 4), np.int64)
            self.cash, self.inventory, self.fees = (np.zeros((len(rows), 0), np.int64) for _ in range(3))

    def store(self, args: dict[str, Any]) -> None:
        for name in self.names:
            args[name][self.rows] = getattr(self, name)

    def words(self, index: Any, t: np.ndarray | int | None = None) -> np.ndarray:
        """Random words `w(index)` as [m, n], index [n] or [m, n]; at the present t unless another is given."""
        key = episode_key(self.seed, self.episode)
        t = self.t if t is None else np.full_like(self.t, t)
        return random_words(key[:, None], t[:, None], np.asarray(index))

    def word(self, index: int, t: int | None = None) -> np.ndarray:
        """Random word `w(index)` of each market, [m]."""
        return self.words([index], t)[:, 0]

    def check(self, failed: np.ndarray, what: str) -> None:
        if failed.any():
            first = int(np.argmax(failed))
            raise MarketError(
                f"market {self.rows[first]}, auction t={self.t[first]}: {what}; the state is as before the call"
            )


# ----------------------------------------------------------------------------- step 0: walk and cancellation


def walk_fundamental(m: Markets) -> None:
    p, word = m.params, m.word(WORD_WALK)
    step = np.where(bits(word, 0, 16) < p["walk_threshold"], bit_sign(word, 31), 0)
    jump = np.where(bits(word, 32, 16) < p["jump_threshold"], bit_sign(word, 63) * p["jump_size"], 0)
    m.fundamental_price = np.clip(m.fundamental_price + step + jump, -MAX_PRICE, MAX_PRICE)


def cancel_resting(m: Markets) -> None:
    chance = m.params["cancel_threshold"][:, None]
    if not chance.any():
        return
    ticks = np.arange(m.num_levels)
    word = m.words(WORD_CANCEL + np.arange((m.num_levels + 1) // 2))[:, ticks // 2]
    first_bit = (32 * (ticks % 2)).astype(np.uint64)
    m.bid = m.bid - ((m.bid * chance + bits(word >> first_bit, 0, 16)) >> 16)
    m.ask = m.ask - ((m.ask * chance + bits(word >> first_bit, 16, 16)) >> 16)


# --------------------------------------------------------------------- step 1: best prices, window, new quotes


def quotes_on_grid(m: Markets) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return tick and quantity of the standing bids, then asks, [m, K]; the quantity is 0 off the grid."""
    last = m.num_levels - 1
    bid_tick, ask_tick = m.quotes[..., 0] - m.price_origin[:, None], m.quotes[..., 2] - m.price_origin[:, None]
    bid_qty = np.where(bid_tick >= 0, m.quotes[..., 1], 0)
    ask_qty = np.where(ask_tick <= last, m.quotes[..., 3], 0)
    return np.clip(bid_tick, 0, last), bid_qty, np.clip(ask_tick, 0, last), ask_qty


def observed_mid2(m: Markets) -> np.ndarray:
    """The doubled mid of the resting book and the standing quotes, on the grid."""
    best_bid, best_ask = best_prices(m.bid, m.ask)
    bid_tick, bid_qty, ask_tick, ask_qty = quotes_on_grid(m)
    best_bid = np.maximum(best_bid, np.max(np.where(bid_qty > 0, bid_tick, -1), axis=1, initial=-1))
    best_ask = np.minimum(best_ask, np.min(np.where(ask_qty > 0, ask_tick, m.num_levels), axis=1, initial=m.num_levels))
    return np.where((best_bid >= 0) & (best_ask < m.num_levels), best_bid + best_ask, 2 * m.last_tick)


def slide_window(m: Markets) -> None:
    """Move the grid after the mid; `prev_mid2` is already this auction's mid2."""
    window, shift = m.params["window"], (m.prev_mid2 >> 1) - m.num_levels // 2
    shift = np.where((window > 0) & (np.abs(shift) > window), shift, 0)
    if not shift.any():
        return
    m.check(
        np.abs(m.price_origin + shift) > MAX_ORIGIN,
        "its window would leave +/-2^29 ticks (reset it, or tame walk_prob, jump_prob and jump_size)",
    )
    source = np.arange(m.num_levels) + shift[:, None]
    inside = (source >= 0) & (source < m.num_levels)
    source = np.clip(source, 0, m.num_levels - 1)
    m.bid = np.where(inside, np.take_along_axis(m.bid, source, axis=1), 0)
    m.ask = np.where(inside, np.take_along_axis(m.ask, source, axis=1), 0)
    m.prev_mid2 = m.prev_mid2 - 2 * shift
    m.last_tick = m.last_tick - shift
    m.price_origin = m.price_origin + shift


def apply_pre_trade_limits(m: Markets, new_quotes: np.ndarray) -> np.ndarray:
    """Return quotes [m, K, 4] as the pre-trade limits leave them."""
    largest, limit = m.params["max_quote_qty"][:, None], m.params["inventory_limit"][:, None]
    bid_price, ask_price = (np.clip(new_quotes[..., i].astype(np.int64), -MAX_PRICE, MAX_PRICE) for i in (0, 2))
    bid_qty, ask_qty = (np.clip(new_quotes[..., i].astype(np.int64), 0, largest) for i in (1, 3))
    room_to_buy = np.where(limit >= 0, np.maximum(0, limit - m.inventory), bid_qty)
    room_to_sell = np.where(limit >= 0, np.maximum(0, limit + m.inventory), ask_qty)
    bid_qty, ask_qty = np.minimum(bid_qty, room_to_buy), np.minimum(ask_qty, room_to_sell)
    crossed = (bid_price >= ask_price) & (bid_qty > 0) & (ask_qty > 0)
    drop_bid, drop_ask = crossed & (bid_qty <= ask_qty), crossed & (ask_qty <= bid_qty)
    return np.stack([bid_price, np.where(drop_bid, 0, bid_qty), ask_price, np.where(drop_ask, 0, ask_qty)], axis=-1)


# ------------------------------------------------------------------------------------ step 2: built-in orders


def class_orders(m: Markets, kind: str, ret: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return each order of one class, [m, n]: whether it sells, its tick, its quantity and whether it is marketable.

    n is the largest count of the class; an agent beyond its market's count has quantity 0.
    """
    p = {name: x[:, None] for name, x in m.params.items()}
    mid2, last = m.prev_mid2[:, None], m.num_levels - 1
    count, first = p[f"num_{kind}"], 0 if kind == "noise" else p[f"first_{kind}"]
    member = np.arange(count.max(initial=0))
    agent = first + member  # [m, n], or [n] of noise agents
    word = m.words(agent)

    quantity = 1 + (bits(word, 32, 16) * p["max_order_qty"] >> 16)
    quantity[member >= count] = 0
    side = bit_sign(word, 31)
    if kind == "noise":
        spread = p["noise_spread"]
        offset = ((word >> np.uint64(48)).astype(np.int64) * (2 * spread + 1) >> 16) - spread
    elif kind == "maker":
        side = 1 - 2 * ((agent + m.t[:, None]) & 1)
        offset = -side * p["maker_half_spread"]
    else:
        signal = ret if kind == "momentum" else np.sign(2 * (m.fundamental_price - m.price_origin) - m.prev_mid2)
        side = np.where(signal[:, None] != 0, signal[:, None], side)
        offset = side
    sells = side < 0
    tick = np.clip(round_half_even(mid2 + 2 * offset), 0, last)
    fired = np.zeros_like(sells)
    if kind != "maker":
        fired = bits(word, 0, 24) < p["market_order_threshold"]
        tick = np.where(fired, np.where(sells, 0, last), tick)
    return sells, tick, quantity, fired


def submit_orders(m: Markets, ret: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the quantity ordered per side and tick, [m, 2, L], and the marketable part of it, [m, 2]; buys first."""
    shape = (len(m.rows), 2, m.num_levels)
    classes = [class_orders(m, kind, ret) for kind in CLASSES if m.params[f"num_{kind}"].any()]
    if not classes:
        return np.zeros(shape, np.int64), np.zeros(shape[:2], np.int64)
    sells, tick, quantity, fired = (np.concatenate(parts, axis=1) for parts in zip(*classes, strict=True))
    orders = scatter((2 * np.arange(shape[0])[:, None] + sells, tick), quantity, shape)
    marketable = np.where(fired, quantity, 0)
    sold = marketable.sum(axis=1, where=sells)
    return orders, np.stack([marketable.sum(axis=1) - sold, sold], axis=1)


# -------------------------------------------------------------------------- steps 3 and 4: clearing and fills


def settle(m: Markets, bought: np.ndarray, sold: np.ndarray, price: np.ndarray) -> None:
    """Book the fills [m, K] at the absolute price [m], and take them off the standing quotes."""
    m.cash = m.cash + (sold - bought) * price[:, None]
    m.inventory = m.inventory + bought - sold
    m.fees = m.fees + (bought + sold) * m.params["fee"][:, None]
    m.quotes[..., 1] -= bought
    m.quotes[..., 3] -= sold


def auction(m: Markets, new_quotes: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Hold one auction and return its volume [m] and the fills (bought, sold) [m, K, 2].

    Args:
        m: the markets, which change; on an error they are left half done.
        new_quotes: int [m, K, 4] already within the pre-trade limits, or None: standing quotes stay.
    """
    walk_fundamental(m)
    cancel_resting(m)

    mid2 = observed_mid2(m)
    ret = np.sign(mid2 - m.prev_mid2)
    m.prev_mid2 = mid2
    slide_window(m)
    if new_quotes is not None:
        m.quotes = new_quotes.astype(np.int64)

    orders, marketable = submit_orders(m, ret)
    bid_tick, bid_qty, ask_tick, ask_qty = quotes_on_grid(m)
    book, shape = np.arange(len(m.rows))[:, None], m.bid.shape
    buy = m.bid + orders[:, 0] + scatter((book, bid_tick), bid_qty, shape)
    sell = m.ask + orders[:, 1] + scatter((book, ask_tick), ask_qty, shape)
    m.check(
        np.maximum(buy.sum(axis=1), sell.sum(axis=1)) >= 2**31,
        "a side's total quantity would reach 2^31 (use cancel_prob or smaller orders, or reset it more often)",
    )

    mid_tick = (m.prev_mid2 >> 1) + (m.prev_mid2 & m.t & 1)
    target = np.where(m.params["tie"] == 1, mid_tick, -1)
    price, volume, traded_buy, traded_sell = clear_auction(buy, sell, target)
    luck = m.word(WORD_RATIONING)
    bought = ration(bid_tick, bid_qty, buy, traded_buy, bits(luck, 0, 32))
    sold = ration(ask_tick, ask_qty, sell, traded_sell, bits(luck, 32, 32))
    m.bid = buy - traded_buy - scatter((book, bid_tick), bid_qty - bought, shape)
    m.ask = sell - traded_sell - scatter((book, ask_tick), ask_qty - sold, shape)
    settle(m, bought, sold, price + m.price_origin)

    gone = marketable * (m.params["residue"] == 1)[:, None]
    m.bid[:, -1] = np.maximum(0, m.bid[:, -1] - gone[:, 0])
    m.ask[:, 0] = np.maximum(0, m.ask[:, 0] - gone[:, 1])
    m.last_tick = np.where(volume > 0, price, m.last_tick)
    m.trades = m.trades + (volume > 0)
    m.volume = m.volume + volume
    m.t = m.t + 1
    return volume, np.stack([bought, sold], axis=-1)


def marked_mid2(m: Markets) -> np.ndarray:
    """Return the absolute doubled mid [m] of the built-in resting book, the mark."""
    best_bid, best_ask = best_prices(m.bid, m.ask)
    both = (best_bid >= 0) & (best_ask < m.num_levels)
    return np.where(both, best_bid + best_ask, 2 * m.last_tick) + 2 * m.price_origin


def decision(m: Markets, auctions: int, quotes: np.ndarray | None = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield volume and fills of each auction of one decision; quotes [m, K, 4] are not yet limited, or None."""
    for i in range(auctions):
        # Accounts do not change before the quotes are replaced, so the limits may come before the auction.
        yield auction(m, apply_pre_trade_limits(m, quotes) if i == 0 and quotes is not None else None)


# ------------------------------------------------------------------------------------------------------ a run


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


def run_decision(args: dict[str, Any], m: Markets, d: int, frozen: bool) -> None:
    quotes = None if args["new_quotes"] is None else args["new_quotes"][d][m.rows]
    fills = np.zeros((*m.cash.shape, 2), np.int64)
    results = decision(m, args["auctions"], quotes) if not frozen else [(0, fills)] * args["auctions"]
    for i, (volume, filled) in enumerate(results):
        fills = fills + filled
        record(args, m, d * args["auctions"] + i, volume)
    if args["fills"] is not None:
        args["fills"][d, m.rows] = fills
    if args["value"] is not None:
        args["value"][d, m.rows] = 2 * m.cash + m.inventory * marked_mid2(m)[:, None]


def record(args: dict[str, Any], m: Markets, column: int, volume: np.ndarray | int) -> None:
    """Write one auction into the series that are wanted."""
    if args["series_last_price"] is not None:
        args["series_last_price"][m.rows, column] = m.last_tick + m.price_origin
    if args["series_volume"] is not None:
        args["series_volume"][m.rows, column] = volume
    if args["series_mid2"] is not None:
        args["series_mid2"][m.rows, column] = marked_mid2(m)
    if args["series_fundamental"] is not None:
        args["series_fundamental"][m.rows, column] = m.fundamental_price
