"""Actions in the NumPy engine: the quotes that each role's action asks for, and what blocks and targets have left.

The part "Actions" of docs/environment.md; tasks.py calls `decode_actions` in every
decision, and `forced_quotes` at a deadline.
"""

from typing import Any

import numpy as np

from kineticsim_env.engines.numpy import state
from kineticsim_env.engines.numpy.rules import bit_sign, bits
from kineticsim_env.engines.numpy.state import Markets

MAKER, MOMENTUM, NOISE, EXECUTOR, TRADER, FUNDAMENTAL = range(6)
DISCRETE = 1
MOST_ACTION = np.float32(1.001)  # beyond 1 it is clamped, beyond this noted too

MAKER_OFFSETS = np.array([1, 2, 3, 4, 6, 8])
ORDER_OFFSETS = np.array([-6, -3, -1, 0, 1, 3, 6])


def decode_actions(args: dict[str, Any], m: Markets) -> np.ndarray:
    """Return the quotes [m, K, 4] that actions ask for, before the pre-trade limits; note bad actions in `m.error`."""
    task, quotes, alive = args["task"], m.quotes.copy(), m.ended == 0
    for k in range(args["slots"]):
        role, own = task["role"][k], m.task_of(task, k)
        if task["action_type"] == DISCRETE:
            choice, last = args["choices"][m.rows, k], 48 if role == MAKER else 14
            outside = (choice < 0) | (choice > last)
            m.error |= np.where(outside & alive[:, k], state.ERROR_ACTION_RANGE, 0)
            decode = {MAKER: maker_choice, TRADER: trader_choice, FUNDAMENTAL: trader_choice}.get(role, order_choice)
            quotes[:, k] = decode(m, own, k, np.clip(choice, 0, last))
        else:
            action = args["actions"][m.rows, k, : 4 if role == MAKER else 2]
            bad = np.isnan(action).any(axis=1)
            outside = ~bad & (np.abs(action) > MOST_ACTION).any(axis=1)
            error = np.where(bad, state.ERROR_NAN_ACTION, 0) | np.where(outside, state.ERROR_ACTION_RANGE, 0)
            m.error |= np.where(alive[:, k], error, 0)
            action = np.clip(np.where(bad[:, None], np.float32(0), action), np.float32(-1), np.float32(1))
            decode = {MAKER: maker_action, TRADER: trader_action, FUNDAMENTAL: trader_action}.get(role, order_action)
            quotes[:, k] = np.where(bad[:, None], quotes[:, k], decode(m, own, k, action))
    return np.where(alive[..., None], quotes, 0)


def maker_action(m: Markets, task: dict[str, Any], k: int, action: np.ndarray) -> np.ndarray:
    low, high = mids(m)
    bid_offset, ask_offset = (unit(action[:, i], task["max_offset"]) for i in (0, 1))
    bid_qty, ask_qty = (unit(action[:, i], task["max_qty"]) for i in (2, 3))
    return two_sided(low - bid_offset, bid_qty, high + ask_offset, ask_qty)


def maker_choice(m: Markets, task: dict[str, Any], k: int, choice: np.ndarray) -> np.ndarray:
    low, high = mids(m)
    bid_choice, ask_choice = choice // 7, choice % 7
    bid_qty, ask_qty = (np.where(c > 0, task["max_qty"], 0) for c in (bid_choice, ask_choice))
    return two_sided(low - MAKER_OFFSETS[bid_choice - 1], bid_qty, high + MAKER_OFFSETS[ask_choice - 1], ask_qty)


def order_action(m: Markets, task: dict[str, Any], k: int, action: np.ndarray) -> np.ndarray:
    offset = np.rint(action[:, 0] * np.float32(task["max_offset"])).astype(np.int64)
    return one_order(m, task, k, offset, unit(action[:, 1], task["max_qty"]))


def order_choice(m: Markets, task: dict[str, Any], k: int, choice: np.ndarray) -> np.ndarray:
    quantity = np.where((choice - 1) % 2 == 0, (task["max_qty"] + 1) // 2, task["max_qty"])
    offset = ORDER_OFFSETS[np.maximum(choice - 1, 0) // 2]
    return one_order(m, task, k, offset, np.where(choice > 0, quantity, 0))


def one_order(m: Markets, task: dict[str, Any], k: int, offset: np.ndarray, quantity: np.ndarray) -> np.ndarray:
    if task["role"][k] in (NOISE, EXECUTOR):
        quantity = np.minimum(quantity, remaining(m, task, k))
    return through_mid(m, order_side(m, task, k), offset, quantity)


def trader_action(m: Markets, task: dict[str, Any], k: int, action: np.ndarray) -> np.ndarray:
    offset = np.rint(action[:, 1] * np.float32(task["max_offset"])).astype(np.int64)
    quantity = np.rint(np.abs(action[:, 0]) * np.float32(task["max_qty"])).astype(np.int64)
    return through_mid(m, np.where(action[:, 0] > 0, 1, -1), offset, quantity)


def trader_choice(m: Markets, task: dict[str, Any], k: int, choice: np.ndarray) -> np.ndarray:
    order = np.maximum(choice - 1, 0)
    quantity = np.where(choice > 0, task["max_qty"], 0)
    return through_mid(m, np.where(order < 7, 1, -1), ORDER_OFFSETS[order % 7], quantity)


def unit(action: np.ndarray, n: np.ndarray | int) -> np.ndarray:
    """Map float32 [-1, 1] to the integers from 0 to n."""
    return np.rint((action + np.float32(1)) * np.float32(0.5) * np.float32(n)).astype(np.int64)


def mids(m: Markets) -> tuple[np.ndarray, np.ndarray]:
    """The mid before the decision, rounded down and up."""
    return m.mid_history[:, 0] >> 1, (m.mid_history[:, 0] + 1) >> 1


def two_sided(bid: np.ndarray, bid_qty: np.ndarray, ask: np.ndarray, ask_qty: np.ndarray) -> np.ndarray:
    """Return quotes [m, 4]; a side without quantity has price 0."""
    return np.stack([np.where(bid_qty > 0, bid, 0), bid_qty, np.where(ask_qty > 0, ask, 0), ask_qty], axis=1)


def through_mid(m: Markets, side: np.ndarray, offset: np.ndarray, quantity: np.ndarray) -> np.ndarray:
    """Return quotes [m, 4] of one order each, `offset` ticks through the mid."""
    low, high = mids(m)
    return two_sided(low + offset, np.where(side > 0, quantity, 0), high - offset, np.where(side < 0, quantity, 0))


def order_side(m: Markets, task: dict[str, Any], k: int) -> np.ndarray:
    """The side, +1 or -1, that a momentum or noise learner or an executor trades on now, [m]."""
    if task["role"][k] == EXECUTOR and task["block_side"] != 0:
        return np.full(len(m.rows), task["block_side"])
    if task["role"][k] in (NOISE, EXECUTOR):
        return bit_sign(m.word(state.WORD_SLOT + k, t=0), 31)
    trend = np.sign(m.mid_history[:, 0] - m.mid_history[:, 1])
    return np.where(trend != 0, trend, bit_sign(m.word(state.WORD_SLOT + k), 31))


def remaining(m: Markets, task: dict[str, Any], k: int) -> np.ndarray:
    """Units that a noise learner or an executor still has to trade, [m]."""
    if task["role"][k] == EXECUTOR:
        return np.maximum(0, task["block_qty"] - order_side(m, task, k) * m.inventory[:, k])
    target = 1 + (bits(m.word(state.WORD_SLOT + k, t=0), 32, 16) * task["max_target"] >> 16)
    return np.maximum(0, target - order_side(m, task, k) * m.inventory[:, k])


def forced_quotes(m: Markets, task: dict[str, Any]) -> np.ndarray:
    """Return the quotes [m, K, 4], before the pre-trade limits, that trade what is left of blocks."""
    quotes = np.zeros_like(m.quotes)
    for k in np.flatnonzero(task["role"][: quotes.shape[1]] == EXECUTOR):
        side = order_side(m, task, k)
        quantity = np.where(m.ended[:, k] != 0, 0, np.minimum(remaining(m, m.task_of(task, k), k), task["forced_qty"]))
        price = np.full_like(side, state.MAX_PRICE)
        quotes[:, k] = two_sided(price, quantity * (side > 0), -price, quantity * (side < 0))
    return quotes
