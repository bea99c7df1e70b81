"""The continuous market: orders are matched as they come, and what is left rests; quotes come when they are due."""

import numpy as np

from kineticsim_env.engines.numpy import beats, queues, under_way
from kineticsim_env.engines.numpy.auction import observed_mid2
from kineticsim_env.engines.numpy.clock import coming_order, events
from kineticsim_env.engines.numpy.state import WORD_QUEUE, Markets
from kineticsim_env.engines.numpy.trades import check_resting, trade


def continuous_interval(m: Markets) -> tuple[np.ndarray, np.ndarray]:
    """Trade through one interval; return volume [m] and fills [m, K, 2]. On an error markets are left half done."""
    volume, fills = m.volume, np.zeros((*m.cash.shape, 2), np.int64)
    m.signed_volume = np.zeros_like(volume)
    came = np.zeros_like(m.t)
    for event in events(m):
        if event.due.any():
            hold_beat(m, event.b, event.due)
        under_way.arrive(m, event.g, came, fills)
        sells, tick, quantity, fired = coming_order(m, event)
        left = quantity - trade(m, ~sells, tick, quantity, fills)
        rests = np.where(fired, 0, left)
        for side, book in ((~sells, m.bid), (sells, m.ask)):
            book[np.arange(len(m.rows)), tick] += rests * side
        check_resting(m, ~sells, rests)
    m.t = m.t + 1
    m.trades = m.trades + (m.volume > volume)
    return m.volume - volume, fills


def hold_beat(m: Markets, b: np.ndarray, due: np.ndarray) -> None:
    """Hold beat b where it is due."""
    shift = beats.slide_window(m, observed_mid2(m), due)
    queues.follow_grid(m, shift != 0)
    beats.switch_regime(m, b, due)
    beats.walk_fundamental(m, b, due)
    queues.cancel(m, beats.cancelled(m, np.stack([m.bid, m.ask], axis=1), b, due), m.word(WORD_QUEUE, b))
    beats.take_return(m, observed_mid2(m), due)
    m.beat_price = np.where(due, m.last_price, m.beat_price)
