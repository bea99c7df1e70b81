"""What slots see, in the NumPy engine: the part "Observation" of docs/environment.md, feature by feature."""

from typing import Any

import numpy as np

from kineticsim_env.engines.numpy.actions import EXECUTOR, FUNDAMENTAL, MAKER, NOISE, TRADER, order_side, remaining
from kineticsim_env.engines.numpy.rules import best_prices, clip
from kineticsim_env.engines.numpy.state import TASK_VALUES, Markets

FIRST_SETTING = 2  # of the numbers of extra columns: those of settings of the task that differ
DEPTH, FEATURES, MARKET_FEATURES, QUEUE_FEATURES = 10, 37, 30, 2
LEVEL_FEATURES = 6  # of each level of a ladder behind the first


def observation(m: Markets, task: dict[str, Any]) -> np.ndarray:
    """Return the observations, float32 [m, K, 37], or [m, K, 39] in a continuous market.

    Behind these are columns of further levels of ladders, then extra columns.
    """
    of_first_level = FEATURES + (QUEUE_FEATURES if m.continuous else 0)
    built_in = of_first_level + (m.orders - 1) * LEVEL_FEATURES
    extras = [number for number in range(FIRST_SETTING + len(TASK_VALUES)) if task["extras"] >> number & 1]
    rows = np.zeros((*m.cash.shape, built_in + len(extras)), np.float32)
    c2 = m.marked_mid2
    quotes, ahead = m.standing_levels()
    if m.continuous:
        rows[..., FEATURES:of_first_level] = squash(ahead[:, :, 0], 8)
    rows[..., :MARKET_FEATURES] = market_features(m, c2)[:, None]
    for place, number in enumerate(extras, built_in):
        if number < FIRST_SETTING:
            rows[..., place] = EXTRAS[number](m, task, c2)[:, None]
        elif m.task_values is not None:
            setting = number - FIRST_SETTING
            rows[..., place] = m.task_values[..., setting] / task["value_scale"][setting]
    for k in range(m.cash.shape[1]):
        own = m.task_of(task, k)
        write = maker_features if task["role"][k] == MAKER else order_features
        write(rows[:, k], m, own, k, c2, quotes[:, k, 0])
        for level in range(1, m.orders):
            begin = of_first_level + (level - 1) * LEVEL_FEATURES
            of_level = level_features(own, c2, quotes[:, k, level], ahead[:, k, level])
            rows[:, k, begin : begin + LEVEL_FEATURES] = of_level
        executor = task["role"][k] == EXECUTOR
        wealth2 = 2 * m.cash[:, k] + m.inventory[:, k] * (m.arrival2 if executor else c2)
        wealth2 = wealth2 - own["initial_inventory"] * m.arrival2
        rows[:, k, 31] = squash(
            wealth2.astype(np.float32) * np.float32(0.5), 8 * own["block_qty"] if executor else 1000
        )
        rows[:, k, 32] = ratio(own["horizon"] - m.elapsed, own["horizon"])
    return rows


def market_features(m: Markets, c2: np.ndarray) -> np.ndarray:
    """Return what every slot sees of its market, float32 [m, 30]."""
    best_bid, best_ask = best_prices(m.bid, m.ask)
    both = (best_bid >= 0) & (best_ask < m.num_levels)
    away = np.arange(DEPTH)
    bid_tick = ((c2 >> 1) - m.price_origin)[:, None] - away
    ask_tick = (((c2 + 1) >> 1) - m.price_origin)[:, None] + away
    spread = np.where(both, best_ask - best_bid, 0)
    last = 2 * (m.last_tick + m.price_origin) - c2
    return np.column_stack(
        [
            squash(at_ticks(m.bid, bid_tick), 8),
            squash(at_ticks(m.ask, ask_tick), 8),
            squash(spread, 8),
            squash(last, 8),
            squash(m.mid_history[:, :-1] - m.mid_history[:, 1:], 8),
            squash(m.volume_history, 32),
        ]
    )


def at_ticks(depth: np.ndarray, tick: np.ndarray) -> np.ndarray:
    levels = depth.shape[1]
    inside = (tick >= 0) & (tick < levels)
    return np.where(inside, np.take_along_axis(depth, clip(tick, 0, levels - 1), axis=1), 0)


def level_features(task: dict[str, Any], c2: np.ndarray, quotes: np.ndarray, ahead: np.ndarray) -> np.ndarray:
    """Return what a slot sees of a level, float32 [m, 6]: `quotes` [m, 4] stand, with `ahead` [m, 2] before them."""
    bid, bid_qty, ask, ask_qty = quotes.T
    columns = [
        squash(np.where(bid_qty > 0, c2 - 2 * bid, 0), 16),
        ratio(bid_qty, task["max_qty"]),
        squash(np.where(ask_qty > 0, 2 * ask - c2, 0), 16),
        ratio(ask_qty, task["max_qty"]),
    ]
    return np.column_stack([*columns, squash(ahead, 8)])


def maker_features(
    row: np.ndarray, m: Markets, task: dict[str, Any], k: int, c2: np.ndarray, quotes: np.ndarray
) -> None:
    bid, bid_qty, ask, ask_qty = quotes.T
    row[:, 30] = inventory_feature(m, task, k)
    row[:, 33] = squash(np.where(bid_qty > 0, c2 - 2 * bid, 0), 16)
    row[:, 34] = ratio(bid_qty, task["max_qty"])
    row[:, 35] = squash(np.where(ask_qty > 0, 2 * ask - c2, 0), 16)
    row[:, 36] = ratio(ask_qty, task["max_qty"])


def order_features(
    row: np.ndarray, m: Markets, task: dict[str, Any], k: int, c2: np.ndarray, quotes: np.ndarray
) -> None:
    bid, bid_qty, ask, ask_qty = quotes.T
    buys, role = bid_qty > 0, task["role"][k]
    price, quantity = np.where(buys, bid, ask), np.where(buys, bid_qty, ask_qty)
    if role in (TRADER, FUNDAMENTAL):
        row[:, 33] = np.where(quantity > 0, np.where(buys, 1, -1), 0)
    else:
        row[:, 33] = side = order_side(m, task, k)
    if role in (NOISE, EXECUTOR):
        whole = task["block_qty"] if role == EXECUTOR else task["max_target"]
        row[:, 30] = ratio(side * remaining(m, task, k), whole)
    else:
        row[:, 30] = inventory_feature(m, task, k)
    row[:, 34] = squash(np.where(quantity > 0, c2 - 2 * price, 0), 16)
    row[:, 35] = ratio(quantity, task["max_qty"])
    if role == EXECUTOR:
        row[:, 36] = squash(c2 - m.arrival2, 16)
    if role == FUNDAMENTAL:
        row[:, 36] = fundamental_feature(m, task, c2)


def fundamental_feature(m: Markets, task: dict[str, Any], c2: np.ndarray) -> np.ndarray:
    return squash(2 * m.fundamental_price - c2, 16)


def events_feature(m: Markets, task: dict[str, Any], c2: np.ndarray) -> np.ndarray:
    return ratio(m.decision_events, task["longest"])


# Columns that environments may ask for, by their numbers, [m] each: of markets, the task and mids.
EXTRAS = {0: fundamental_feature, 1: events_feature}


def inventory_feature(m: Markets, task: dict[str, Any], k: int) -> np.ndarray:
    limit, held = m.params["inventory_limit"], m.inventory[:, k]
    return np.where(limit > 0, ratio(held, limit), squash(held, 8 * task["max_qty"]))


def squash(x: np.ndarray, scale: np.ndarray | int) -> np.ndarray:
    """Return x / (|x| + scale) in float32, x int64 or float32."""
    x = x.astype(np.float32)
    return x / (np.abs(x) + np.float32(scale))


def ratio(numerator: np.ndarray, denominator: np.ndarray | int) -> np.ndarray:
    """Return the quotient of two integers in float32."""
    return numerator.astype(np.float32) / np.asarray(denominator).astype(np.float32)
