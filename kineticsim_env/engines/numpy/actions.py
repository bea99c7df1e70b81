"""Actions in the NumPy engine: the quotes that each role's action asks for, and what blocks and targets have left.

The part "Actions" of docs/environment.md; tasks.py calls `decode_actions` in every
decision, and `forced_quotes` at a deadline.
"""

from typing import Any

import numpy as np

from kineticsim_env.engines.numpy import state
from kineticsim_env.engines.numpy.ladders import KEEP
from kineticsim_env.engines.numpy.policies import orders_of_policy
from kineticsim_env.engines.numpy.rules import bit_sign, bits
from kineticsim_env.engines.numpy.state import Markets

MAKER, MOMENTUM, NOISE, EXECUTOR, TRADER, FUNDAMENTAL = range(6)
DISCRETE = 1
MOST_UNITS = 2**20  # of a side of an order record; beyond it is cut, and noted
MOST_ACTION = np.float32(1.001)  # beyond 1 it is clamped, beyond this noted too

MAKER_OFFSETS = np.array([1, 2, 3, 4, 6, 8])
ORDER_OFFSETS = np.array([-6, -3, -1, 0, 1, 3, 6])


def decode_actions(args: dict[str, Any], m: Markets) -> tuple[np.ndarray, np.ndarray]:
    """Return what actions, order records or policies in their place ask for, and note bad ones in `m.error`.

    Returns:
        Quotes [m, K, N, 4], before the pre-trade limits, and flags [m, K, N]: a bid's, and 2^8 times an ask's.
    """
    alive, policies = m.ended == 0, args.get("slot_policies") or {}
    quotes, words = np.zeros((*alive.shape, m.orders, 4), np.int64), np.zeros((*alive.shape, m.orders), np.int64)
    for k in range(args["slots"]):
        if k in policies:
            quotes[:, k], words[:, k] = decode_policy(args, m, k)
        elif args.get("new_quotes") is not None:
            quotes[:, k], words[:, k] = decode_record(args, m, k)
        else:
            quotes[:, k], words[:, k] = decode_ladder(args, m, k)
    quotes, words = np.where(alive[..., None, None], quotes, 0), np.where(alive[..., None], words, 0)
    if args.get("played_quotes") is not None:
        for k in policies:
            shape = args["played_quotes"][m.rows, k].shape
            args["played_quotes"][m.rows, k] = quotes[:, k].reshape(shape)
            args["played_flags"][m.rows, k] = words[:, k].reshape(shape[:-1])
    return quotes, words


def decode_ladder(args: dict[str, Any], m: Markets, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return what a slot's actions ask for: quotes [m, N, 4] and flags [m, N]."""
    task, alive = args["task"], m.ended[:, k] == 0
    standing = m.standing_levels()[0][:, k]
    quotes, kept = np.empty_like(standing), np.zeros((len(m.rows), m.orders, 2), bool)
    role, own = task["role"][k], m.task_of(task, k)
    left = remaining(m, own, k) if role in (NOISE, EXECUTOR) else None  # for levels not decoded yet
    bad = nan_actions(args, m, k)
    m.error |= np.where(bad & alive, state.ERROR_NAN_ACTION, 0)
    for level in range(m.orders):
        asked, keeps, outside = decode_level(args, m, own, k, level, bad)
        m.error |= np.where(outside & alive, state.ERROR_ACTION_RANGE, 0)
        if left is not None:
            asked, left = cut_to_remaining(asked, keeps, standing[:, level], order_side(m, own, k), left)
        # With a NaN what stands is submitted anew, but ladders are kept: of two places no quote says what stands.
        quotes[:, level] = np.where(bad[:, None], standing[:, level] * (m.orders == 1), asked)
        kept[:, level] = np.where(bad[:, None], m.orders > 1, keeps)
    return quotes, KEEP * (kept[..., 0] | kept[..., 1] << 8)


def decode_record(args: dict[str, Any], m: Markets, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a slot's order records as it may have them; as `decode_ladder`."""
    shape = (len(m.rows), m.orders)
    given = args["new_quotes"][0][m.rows, k].reshape(*shape, 4).astype(np.int64)
    words = np.zeros(shape, np.int64)
    if args.get("order_flags") is not None:
        words = args["order_flags"][0][m.rows, k].reshape(shape).astype(np.int64)
    quotes, words, outside = admitted(args, m, k, given, words)
    m.error |= np.where(outside & (m.ended[:, k] == 0), state.ERROR_ACTION_RANGE, 0)
    return quotes, words


def decode_policy(args: dict[str, Any], m: Markets, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return what a slot's policy asks for; as `decode_ladder`."""
    own, role = m.task_of(args["task"], k), args["task"]["role"][k]
    has_block, has_side = role in (NOISE, EXECUTOR), role in (MOMENTUM, NOISE, EXECUTOR)
    nothing = np.zeros(len(m.rows), np.int64)
    side = order_side(m, own, k) if has_side else nothing
    left = remaining(m, own, k) if has_block else nothing
    quotes, words, keeps = orders_of_policy(args, m, k, own, side, left)
    if m.continuous:
        words = np.where(keeps[:, None], KEEP | KEEP << 8, words)
    else:
        words = np.zeros_like(words)
        quotes = np.where(keeps[:, None, None], m.standing_levels()[0][:, k], quotes)
    return admitted(args, m, k, quotes, words)[:2]


def admitted(
    args: dict[str, Any], m: Markets, k: int, given: np.ndarray, words: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return records [m, N, 4] and their flags [m, N] as a slot may have them, and where one was out of range, [m]."""
    quotes, standing = np.empty_like(given), m.standing_levels()[0][:, k]
    quotes[..., 0::2] = np.clip(given[..., 0::2], -state.MAX_PRICE, state.MAX_PRICE)
    quotes[..., 1::2] = np.clip(given[..., 1::2], 0, MOST_UNITS)
    outside = (quotes != given).any(axis=(1, 2))
    if args["task"]["role"][k] in (NOISE, EXECUTOR):
        own = m.task_of(args["task"], k)
        side, left = order_side(m, own, k), remaining(m, own, k)
        quotes[..., 1::2] *= side[:, None, None] == np.array([1, -1])  # nothing on the other side
        words &= np.where(side > 0, 0xFF | KEEP << 8, 0xFF00 | KEEP)[:, None]
        keeps = (words & np.where(side > 0, KEEP, KEEP << 8)[:, None]) != 0
        for level in range(m.orders):
            kept = keeps[:, level, None]
            quotes[:, level], left = cut_to_remaining(quotes[:, level], kept, standing[:, level], side, left)
    quotes[..., 0::2] = np.where(quotes[..., 1::2] > 0, quotes[..., 0::2], 0)
    return quotes, words, outside


def numbers_of_level(task: dict[str, Any], role: int) -> tuple[int, int]:
    """Return how many numbers of an action say what a level quotes, and how many behind them what it keeps."""
    size = 4 if role == MAKER else 2
    return size, size // 2 if task["keep"] else 0  # of bid and ask, or of both at once


def nan_actions(args: dict[str, Any], m: Markets, k: int) -> np.ndarray:
    """Return where a slot's action has a NaN in any of its levels, bool [m]."""
    if args["task"]["action_type"] == DISCRETE:
        return np.zeros(len(m.rows), bool)
    numbers = sum(numbers_of_level(args["task"], args["task"]["role"][k]))
    return np.isnan(args["actions"][m.rows, k, : m.orders * numbers]).any(axis=1)


def decode_level(
    args: dict[str, Any], m: Markets, own: dict[str, Any], k: int, level: int, bad: np.ndarray
) -> tuple[np.ndarray, ...]:
    """Return what a level asks for, [m, 4], which sides it keeps, bool [m, 2] or [m, 1], and where it is out of range.

    Nothing is made of actions that are `bad`, bool [m].
    """
    task, role = args["task"], args["task"]["role"][k]
    if task["action_type"] == DISCRETE:
        choice, last = args["choices"][m.rows, k], last_choice(task, role)
        decode = {MAKER: maker_choice, TRADER: trader_choice, FUNDAMENTAL: trader_choice}.get(role, order_choice)
        outside, choice = (choice < 0) | (choice > last), np.clip(choice, 0, last)
        return decode(m, own, k, choice, level), kept_by_choice(task, role, choice), outside
    size, keeps = numbers_of_level(task, role)
    numbers = args["actions"][m.rows, k, level * (size + keeps) :][:, : size + keeps]
    outside = ~bad & (np.abs(numbers) > MOST_ACTION).any(axis=1)
    numbers = np.clip(np.where(bad[:, None], np.float32(0), numbers), np.float32(-1), np.float32(1))
    decode = {MAKER: maker_action, TRADER: trader_action, FUNDAMENTAL: trader_action}.get(role, order_action)
    return decode(m, own, k, numbers), numbers[:, size:] > 0 if keeps else np.zeros((len(m.rows), 1), bool), outside


def cut_to_remaining(
    asked: np.ndarray, keeps: np.ndarray, standing: np.ndarray, side: np.ndarray, left: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return a level's quotes [m, 4] cut to what the levels before it leave, and what it leaves to those behind it."""
    cut = asked.copy()
    cut[:, 1::2] = np.minimum(asked[:, 1::2], left[:, None])
    cut[:, 0::2] = np.where(cut[:, 1::2] > 0, cut[:, 0::2], 0)
    counted = np.where(keeps[:, -1:], standing[:, 1::2], cut[:, 1::2])
    return cut, np.maximum(0, left - np.where(side > 0, counted[:, 0], counted[:, 1]))


def last_choice(task: dict[str, Any], role: int) -> int:
    if role == MAKER:
        return 63 if task["keep"] else 48
    return 15 if task["keep"] else 14


def side_choices(task: dict[str, Any], choice: np.ndarray) -> np.ndarray:
    """Return a maker's choices for its bid and its ask, [m, 2]: 0 no order, 1 to 6 an offset, 7 what stands is kept."""
    return np.stack(np.divmod(choice, 8 if task["keep"] else 7), axis=1)


def kept_by_choice(task: dict[str, Any], role: int, choice: np.ndarray) -> np.ndarray:
    """Return which sides a choice keeps, bool [m, 2] for a maker; [m, 1] for the others, who keep both or none."""
    return side_choices(task, choice) == 7 if role == MAKER else (choice == 15)[:, None]


def maker_action(m: Markets, task: dict[str, Any], k: int, action: np.ndarray) -> np.ndarray:
    low, high = mids(m)
    bid_offset, ask_offset = (unit(action[:, i], task["max_offset"]) for i in (0, 1))
    bid_qty, ask_qty = (unit(action[:, i], task["max_qty"]) for i in (2, 3))
    return two_sided(low - bid_offset, bid_qty, high + ask_offset, ask_qty)


def maker_choice(m: Markets, task: dict[str, Any], k: int, choice: np.ndarray, level: int) -> np.ndarray:
    low, high = mids(m)[0] - level, mids(m)[1] + level
    bid_choice, ask_choice = (np.where(side == 7, 0, side) for side in side_choices(task, choice).T)
    bid_qty, ask_qty = (np.where(c > 0, task["max_qty"], 0) for c in (bid_choice, ask_choice))
    return two_sided(low - MAKER_OFFSETS[bid_choice - 1], bid_qty, high + MAKER_OFFSETS[ask_choice - 1], ask_qty)


def order_action(m: Markets, task: dict[str, Any], k: int, action: np.ndarray) -> np.ndarray:
    offset = np.rint(action[:, 0] * np.float32(task["max_offset"])).astype(np.int64)
    return through_mid(m, order_side(m, task, k), offset, unit(action[:, 1], task["max_qty"]))


def order_choice(m: Markets, task: dict[str, Any], k: int, choice: np.ndarray, level: int) -> np.ndarray:
    choice = np.where(choice == 15, 0, choice)  # what stands is kept
    quantity = np.where((choice - 1) % 2 == 0, (task["max_qty"] + 1) // 2, task["max_qty"])
    offset = ORDER_OFFSETS[np.maximum(choice - 1, 0) // 2] - level
    return through_mid(m, order_side(m, task, k), offset, np.where(choice > 0, quantity, 0))


def trader_action(m: Markets, task: dict[str, Any], k: int, action: np.ndarray) -> np.ndarray:
    offset = np.rint(action[:, 1] * np.float32(task["max_offset"])).astype(np.int64)
    quantity = np.rint(np.abs(action[:, 0]) * np.float32(task["max_qty"])).astype(np.int64)
    return through_mid(m, np.where(action[:, 0] > 0, 1, -1), offset, quantity)


def trader_choice(m: Markets, task: dict[str, Any], k: int, choice: np.ndarray, level: int) -> np.ndarray:
    choice = np.where(choice == 15, 0, choice)  # what stands is kept
    order = np.maximum(choice - 1, 0)
    quantity = np.where(choice > 0, task["max_qty"], 0)
    return through_mid(m, np.where(order < 7, 1, -1), ORDER_OFFSETS[order % 7] - level, quantity)


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
    """Return the quotes [m, K, 4], before the pre-trade limits, that trade what is left of blocks, and unwind."""
    quotes = np.zeros((*m.cash.shape, 4), np.int64)
    for k in np.flatnonzero(task["role"][: quotes.shape[1]] == EXECUTOR):
        side = order_side(m, task, k)
        quantity = np.where(m.ended[:, k] != 0, 0, np.minimum(remaining(m, m.task_of(task, k), k), task["forced_qty"]))
        price = np.full_like(side, state.MAX_PRICE)
        quotes[:, k] = two_sided(price, quantity * (side > 0), -price, quantity * (side < 0))
    for k in unwinding_slots(task):
        held = np.where(m.ended[:, k] != 0, 0, m.inventory[:, k])
        quantity = np.minimum(np.abs(held), m.params["max_order_qty"])
        price = np.full_like(held, state.MAX_PRICE)
        quotes[:, k] = two_sided(price, quantity * (held < 0), -price, quantity * (held > 0))
    return quotes


def unwinding_slots(task: dict[str, Any]) -> list[int]:
    """Return the slots that unwind at the horizon."""
    return [k for k in range(task["unwinds"]) if task["role"][k] not in (NOISE, EXECUTOR)]


def priced_to_the_book(m: Markets, task: dict[str, Any], asked: np.ndarray, admitted: np.ndarray) -> np.ndarray:
    """Return forced quotes [m, K, 4], which the limits have made of those asked, as they arrive in a continuous market.

    Orders that unwind go no further than where the other side rests has all of what was asked, or as much as there is.
    """
    priced = admitted.copy()
    for k in unwinding_slots(task):
        for place, resting in ((0, m.ask), (2, m.bid[:, ::-1])):  # best prices first
            units = resting.cumsum(axis=1)
            enough = units >= np.minimum(asked[:, k, place + 1], units[:, -1])[:, None]
            away = (enough & (units > 0)).argmax(axis=1)
            tick = away if place == 0 else m.num_levels - 1 - away
            orders = (admitted[:, k, place + 1] > 0) & (units[:, -1] > 0)
            priced[:, k, place] = np.where(orders, m.price_origin + tick, 0)
            priced[:, k, place + 1] *= orders
    return priced
