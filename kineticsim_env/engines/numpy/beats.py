"""What a beat does to a market: its regime, the fundamental's walk, cancellation; and the window, which is due with it.

In "each" an interval's beginning is a beat; on the clock only some markets have a beat at an event: those that `due`,
bool [m], says.
"""

import numpy as np

from kineticsim_env.engines.numpy.rules import bit_sign, bits, clip
from kineticsim_env.engines.numpy.state import (
    MAX_ORIGIN,
    MAX_PRICE,
    WORD_CANCEL,
    WORD_FIRST_REGIME,
    WORD_REGIME,
    WORD_WALK,
    Markets,
)


def draw_first_regime(m: Markets) -> None:
    if m.params["regimes"].any():
        m.regime = bits(m.word(WORD_FIRST_REGIME, 0), 32, 32) * m.params["regimes"] >> 32
        m.follow_regime()


def switch_regime(m: Markets, b: np.ndarray, due: np.ndarray) -> None:
    if m.params["regimes"].any():
        word = m.word(WORD_REGIME, b)
        switches = due & (bits(word, 0, 16) < m.params["regime_threshold"])
        m.regime = np.where(switches, bits(word, 32, 32) * m.params["regimes"] >> 32, m.regime)
        m.follow_regime()


def walk_fundamental(m: Markets, b: np.ndarray, due: np.ndarray) -> None:
    word = m.word(WORD_WALK, b)
    step = np.where(bits(word, 0, 16) < m.now["walk_threshold"], bit_sign(word, 31), 0)
    jump = np.where(bits(word, 32, 16) < m.now["jump_threshold"], bit_sign(word, 63) * m.now["jump_size"], 0)
    m.fundamental_price = clip(m.fundamental_price + (step + jump) * due, -MAX_PRICE, MAX_PRICE)


def cancelled(m: Markets, book: np.ndarray, b: np.ndarray, due: np.ndarray) -> np.ndarray:
    """Return what beat b takes from built-in interest [m, 2, L], bids first."""
    chance = (m.now["cancel_threshold"] * due)[:, None]
    if not chance.any():
        return np.zeros_like(book)
    ticks = np.arange(m.num_levels)
    word = m.words(WORD_CANCEL + np.arange((m.num_levels + 1) // 2), b)[:, ticks // 2]
    first_bit = (32 * (ticks % 2)).astype(np.uint64)
    rounding = np.stack([bits(word >> first_bit, 0, 16), bits(word >> first_bit, 16, 16)], axis=1)
    return (book * chance[:, None] + rounding) >> 16


def take_return(m: Markets, mid2: np.ndarray, due: np.ndarray) -> None:
    """Take the direction of the mid since the last return, and remember the mid."""
    m.ret = np.where(due, np.sign(mid2 - m.prev_mid2), m.ret)
    m.prev_mid2 = np.where(due, mid2, m.prev_mid2)


def slide_window(m: Markets, mid2: np.ndarray, due: np.ndarray) -> np.ndarray:
    """Move the grid after the mid, and return by how many ticks, [m]."""
    window, shift = m.params["window"], (mid2 >> 1) - m.num_levels // 2
    shift = np.where(due & (window > 0) & (np.abs(shift) > window), shift, 0)
    if not shift.any():
        return shift
    m.check(
        np.abs(m.price_origin + shift) > MAX_ORIGIN,
        "its window would leave +/-2^29 ticks (reset it, or tame walk_prob, jump_prob and jump_size)",
    )
    m.bid, m.ask = slid(m.bid, shift), slid(m.ask, shift)
    m.prev_mid2 = m.prev_mid2 - 2 * shift
    m.last_tick = m.last_tick - shift
    m.price_origin = m.price_origin + shift
    return shift


def slid(at_ticks: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Return numbers at ticks, [m, L], as a grid has them that has moved by `shift`, [m]; 0 where it is new."""
    levels = at_ticks.shape[1]
    source = np.arange(levels) + shift[:, None]
    inside = (source >= 0) & (source < levels)
    return np.where(inside, np.take_along_axis(at_ticks, clip(source, 0, levels - 1), axis=1), 0)
