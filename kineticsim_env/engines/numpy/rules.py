"""The stateless rules of docs/model.md as functions of NumPy arrays: random words, rounding, clearing, rationing.

The other files build the engine from them. Shapes: [m] a market, [m, L] a tick, [m, K] a slot.
"""

import math

import numpy as np

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
EPISODE = np.uint64(0xD1B54A32D192ED03)


def mix64(x: np.ndarray) -> np.ndarray:
    """Return SplitMix64's finaliser of a uint64 array."""
    x = x ^ (x >> np.uint64(30))
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x


def episode_key(seed: np.ndarray, episode: np.ndarray) -> np.ndarray:
    """Return the uint64 key of an episode; both arrays int64."""
    return mix64(seed.astype(np.uint64) + GOLDEN + episode.astype(np.uint64) * EPISODE)


def random_words(key: np.ndarray, t: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Return `mix64(key + (t * 2^32 + index + 1) * G)`; the arrays broadcast."""
    at_t = key + (t.astype(np.uint64) << np.uint64(32)) * GOLDEN
    return mix64(at_t + (index.astype(np.uint64) + np.uint64(1)) * GOLDEN)


def bits(word: np.ndarray, low: int, count: int) -> np.ndarray:
    """Return `count` bits of a word from bit `low` up, as int64."""
    return ((word >> np.uint64(low)) & np.uint64((1 << count) - 1)).astype(np.int64)


def bit_sign(word: np.ndarray, low: int) -> np.ndarray:
    """Return +1 where bit `low` is set, else -1."""
    return 2 * bits(word, low, 1) - 1


def clip(x: np.ndarray | int, low: np.ndarray | int, high: np.ndarray | int) -> np.ndarray:
    """Return what `np.clip` does, which takes several times as long for the few numbers of an event."""
    return np.minimum(np.maximum(x, low), high)


def round_half_even(doubled: np.ndarray) -> np.ndarray:
    """Return doubled / 2, halves to the even neighbour."""
    floor = doubled >> 1
    return floor + (doubled & floor & 1)


def scatter(where: tuple[np.ndarray, np.ndarray], quantity: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the sums of quantity at (book, tick) as an int64 array; exact, since every sum stays below 2^53."""
    if not quantity.size:
        return np.zeros(shape, np.int64)
    book, tick = where
    flat = (book * shape[-1] + tick).ravel()
    return np.bincount(flat, quantity.ravel(), minlength=math.prod(shape)).astype(np.int64).reshape(shape)


def best_prices(bid: np.ndarray, ask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the best bid (-1 if there is none) and the best ask (L if there is none) of books [m, L]."""
    levels = bid.shape[1]
    best_bid = np.where(bid.any(axis=1), levels - 1 - np.argmax(bid[:, ::-1] > 0, axis=1), -1)
    best_ask = np.where(ask.any(axis=1), np.argmax(ask > 0, axis=1), levels)
    return best_bid, best_ask


def best_with_quotes(bid: np.ndarray, ask: np.ndarray, quoted: tuple[np.ndarray, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return the same of books and quotes together; `quoted`: tick and quantity of bids, then of asks, [m, K] each."""
    levels, (best_bid, best_ask) = bid.shape[1], best_prices(bid, ask)
    bid_tick, bid_qty, ask_tick, ask_qty = quoted
    best_bid = np.maximum(best_bid, np.max(np.where(bid_qty > 0, bid_tick, -1), axis=1, initial=-1))
    best_ask = np.minimum(best_ask, np.min(np.where(ask_qty > 0, ask_tick, levels), axis=1, initial=levels))
    return best_bid, best_ask


def clear_auction(
    buy: np.ndarray, sell: np.ndarray, target: np.ndarray | int = -1
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Clear call auctions at one price each.

    Args:
        buy: int64 [m, L], quantity wanted per tick; L is free.
        sell: int64 [m, L], quantity offered per tick.
        target: [m], of the ticks that maximise the volume the one nearest to it is the price; -1: the lowest.

    Returns:
        The clearing price [m] (void where nothing trades), the volume [m], and traded_buy and traded_sell [m, L].
    """
    levels = buy.shape[1]
    demand = np.cumsum(buy[:, ::-1], axis=1)[:, ::-1]
    supply = np.cumsum(sell, axis=1)
    executable = np.minimum(demand, supply)
    volume = executable.max(axis=1)
    maximal = executable == volume[:, None]
    lowest = np.argmax(maximal, axis=1)
    highest = levels - 1 - np.argmax(maximal[:, ::-1], axis=1)
    price = clip(target, lowest, highest)
    traded_buy = clip(volume[:, None] - (demand - buy), 0, buy)
    traded_sell = clip(volume[:, None] - (supply - sell), 0, sell)
    return price, volume, traded_buy, traded_sell


def ration(
    tick: np.ndarray, quantity: np.ndarray, total: np.ndarray, traded: np.ndarray, u32: np.ndarray
) -> np.ndarray:
    """Return the fills [m, K] of quotes on one side, pro rata at their ticks.

    Args:
        tick: int64 [m, K].
        quantity: int64 [m, K], part of total.
        total: int64 [m, L], the whole interest per tick, below 2^31.
        traded: int64 [m, L], what of it trades.
        u32: int64 [m], the rounding's random number.
    """
    total, traded = (np.take_along_axis(x, tick, axis=1).astype(np.uint64) for x in (total, traded))
    start = (u32.astype(np.uint64)[:, None] * total) >> np.uint64(32)
    total = np.maximum(total, np.uint64(1))  # a tick without interest: every quantity there is 0
    fills = np.zeros_like(quantity)
    for k in range(tick.shape[1]):
        same_tick = tick[:, :k] == tick[:, k : k + 1]
        before = (quantity[:, :k] * same_tick).sum(axis=1).astype(np.uint64)
        upto = before + quantity[:, k].astype(np.uint64)
        given_before, given_upto = ((c * traded[:, k] + start[:, k]) // total[:, k] for c in (before, upto))
        fills[:, k] = given_upto - given_before
    return fills
