"""The continuous market: orders are matched as they come, and what is left rests; quotes come after a latency."""

import numpy as np

from kineticsim_env.engines.numpy import beats, queues
from kineticsim_env.engines.numpy.auction import observed_mid2
from kineticsim_env.engines.numpy.clock import coming_order, events
from kineticsim_env.engines.numpy.ladders import Arriving, ladders_arrive
from kineticsim_env.engines.numpy.state import Markets
from kineticsim_env.engines.numpy.trades import check_resting, trade


def continuous_interval(
    m: Markets, fresh: Arriving | None, number: int, intervals: int
) -> tuple[np.ndarray, np.ndarray]:
    """Trade through one interval; return volume [m] and fills [m, K, 2].

    Args:
        m: the markets, which change; on an error they are left half done.
        fresh: the decision's fresh quotes, or None: standing quotes stay.
        number: which of the decision's intervals it is.
        intervals: how many it has.
    """
    volume, fills = m.volume, np.zeros((*m.cash.shape, 2), np.int64)
    m.signed_volume = np.zeros_like(volume)
    length = int(m.params["interval"][0])
    latency = np.minimum(m.params["quote_latency"], intervals * length)
    for place, (g, b, due) in enumerate(events(m), number * length):
        if due.any():
            hold_beat(m, b, due)
        if fresh is not None:
            ladders_arrive(m, fresh, latency == place, fills)
        sells, tick, quantity, fired = coming_order(m, g, b)
        left = quantity - trade(m, ~sells, tick, quantity, fills)
        rests = np.where(fired, 0, left)
        for side, book in ((~sells, m.bid), (sells, m.ask)):
            book[np.arange(len(m.rows)), tick] += rests * side
        check_resting(m, ~sells, rests)
    if fresh is not None and number == intervals - 1:
        ladders_arrive(m, fresh, latency == intervals * length, fills)
    m.t = m.t + 1
    m.trades = m.trades + (m.volume > volume)
    return m.volume - volume, fills


def hold_beat(m: Markets, b: np.ndarray, due: np.ndarray) -> None:
    """Hold beat b where it is due."""
    shift = beats.slide_window(m, observed_mid2(m), due)
    queues.follow_grid(m, shift != 0)
    beats.switch_regime(m, b, due)
    beats.walk_fundamental(m, b, due)
    queues.cancel(m, beats.cancelled(m, np.stack([m.bid, m.ask], axis=1), b, due), b)
    beats.take_return(m, observed_mid2(m), due)
    m.beat_price = np.where(due, m.last_price, m.beat_price)
