"""The environment's part of the NumPy oracle: docs/environment.md, for some markets at a time.

`numpy_reference.launch` calls `step` and `reset`. Floats are float32, rounded after every operation, in the order
the document gives; rewards are double until the last rounding. Names as in numpy_reference.py.
"""

from typing import Any

import numpy as np

from kineticsim_env.engines import numpy_reference as market
from kineticsim_env.engines.numpy_reference import Markets
from kineticsim_env.engines.numpy_rules import best_prices, bit_sign, bits

MAKER, MOMENTUM, NOISE, EXECUTOR, TRADER = range(5)
DISCRETE = 1
REWARD_INVENTORY, REWARD_ASYMMETRIC, REWARD_PER_UNIT = 1, 2, 3
EXECUTION_RISK_AVERSE, EXECUTION_TERMINAL = 1, 2
MARK_FUNDAMENTAL, MARK_LIQUIDATION = 0, 2
NEXT_STEP, SAME_STEP, DISABLED = 0, 1, 2
BANK_OF_MARKET, BANK_OF_SCENARIO = 1, 2

MAKER_OFFSETS = np.array([1, 2, 3, 4, 6, 8])
ORDER_OFFSETS = np.array([-6, -3, -1, 0, 1, 3, 6])
DEPTH, HISTORY, FEATURES, MARKET_FEATURES = 10, 4, 37, 30


def step(args: dict[str, Any], rows: np.ndarray) -> None:
    """Take one environment step of some markets."""
    task = args["task"]
    stopped = (args["error"][rows] & market.ERROR_STOPPED) != 0
    done = (args["done"][rows] != 0) & ~stopped

    resting = rows[stopped | done]
    args["reward"][resting] = 0
    if args["fills"] is not None:
        args["fills"][0, resting] = 0
    lowered = rows[stopped] if task["autoreset"] == DISABLED else resting
    args["terminated"][lowered] = args["truncated"][lowered] = 0
    if task["autoreset"] != DISABLED:
        restart(args, rows[done], explicit=False)
    if not (stopped | done).all():
        decide(args, rows[~stopped & ~done])


def reset(args: dict[str, Any], rows: np.ndarray) -> None:
    """Reset those of some markets that are in `reset_mask`."""
    if args["reset_mask"] is not None:
        rows = rows[args["reset_mask"][rows] != 0]
    for name in ("reward", "terminated", "truncated"):
        if args[name] is not None:
            args[name][rows] = 0
    restart(args, rows, explicit=True)


def decide(args: dict[str, Any], rows: np.ndarray) -> None:
    """Take one decision and what follows from it: auctions, reward, end of the episode, observation."""
    task, m = args["task"], Markets(args, rows)
    before = m.cash.copy(), m.inventory.copy(), m.fees.copy()
    mark2_before = mark2(m, task)

    volume, fills = np.zeros(len(rows), np.int64), np.zeros((*m.cash.shape, 2), np.int64)
    for volume_of_auction, filled in market.decision(m, args["auctions"], decode_actions(args, m)):
        volume += volume_of_auction
        fills += filled
    m.elapsed = m.elapsed + 1
    m = force_blocks(args, m, volume, fills)
    if args["fills"] is not None:
        args["fills"][0, rows] = fills
    m.mid_history = np.column_stack([market.marked_mid2(m), m.mid_history[:, :-1]])
    m.volume_history = np.column_stack([np.minimum(volume, 2**31 - 1), m.volume_history[:, :-1]])

    was_ended, value = m.ended != 0, marked_value(m, task)
    terminated, truncated = ends(m, task, value)
    reward = np.zeros_like(value, dtype=np.float64)
    for k in range(args["slots"]):
        cash, inventory, fees = (account[:, k] for account in before)
        now_ended = terminated[:, k] | truncated[:, k]
        if task["role"][k] in (NOISE, EXECUTOR):
            give = execution_reward if task["role"][k] == EXECUTOR else noise_reward
            reward[:, k] = give(m, task, k, cash, inventory, fees, mark2_before, now_ended)
        else:
            filled = fills[:, k].sum(axis=1)
            reward[:, k] = trading_reward(m, task, k, value[:, k] - m.prev_value[:, k], inventory, mark2_before, filled)
    args["reward"][rows] = np.where(was_ended, 0, reward / task["reward_scale"]).astype(np.float32)
    args["terminated"][rows], args["truncated"][rows] = terminated, truncated

    m.prev_value, m.ended = value, was_ended | terminated | truncated
    m.done = m.ended.all(axis=1)
    seen = observation(m, task)
    args["final_observation"][rows] = args["observation"][rows] = seen
    over = rows[m.done]
    m.store(args)
    if task["autoreset"] == SAME_STEP:
        restart(args, over, explicit=False)


def force_blocks(args: dict[str, Any], m: Markets, volume: np.ndarray, fills: np.ndarray) -> Markets:
    """After the last decision, put what is left of blocks into the market; add to volume [m] and fills [m, K, 2].

    Returns:
        The markets after it: those at their deadline went on, the others are as they were.
    """
    task = args["task"]
    late = np.flatnonzero(m.elapsed >= task["horizon"])
    executors = [k for k in range(args["slots"]) if task["role"][k] == EXECUTOR]
    if not late.size or not executors:
        return m
    m.store(args)
    for _ in range(task["forced_auctions"]):
        some = Markets(args, m.rows[late])
        quotes = np.zeros_like(some.quotes)
        for k in executors:
            rest, side = remaining(some, task, k), order_side(some, task, k)
            quantity = np.where(some.ended[:, k] != 0, 0, np.minimum(rest, task["forced_qty"]))
            price = np.full_like(side, market.MAX_PRICE)
            quotes[:, k] = two_sided(price, quantity * (side > 0), -price, quantity * (side < 0))
        admitted = market.admit_quotes(some, quotes)
        goes_on = (admitted[..., 1::2] > 0).any(axis=(1, 2))
        late = late[goes_on]
        if not late.size:
            break
        some = Markets(args, m.rows[late])
        volume_of_auction, filled = market.auction(some, admitted[goes_on])
        volume[late] += volume_of_auction
        fills[late] += filled
        some.store(args)
    return Markets(args, m.rows)


def ends(m: Markets, task: dict[str, Any], value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which slots terminate and which are truncated by this decision, bool [m, K] each."""
    terminated = (task["max_loss"] > 0) & (value / 2000.0 <= -task["max_loss"])
    late = np.repeat(m.elapsed[:, None] >= task["horizon"], value.shape[1], axis=1)
    for k in range(value.shape[1]):
        if task["role"][k] == EXECUTOR:
            terminated[:, k] |= late[:, k] | (remaining(m, task, k) == 0)
    lives = m.ended == 0
    return lives & terminated, lives & late & ~terminated


# ------------------------------------------------------------------------------------------------------ reset


def restart(args: dict[str, Any], rows: np.ndarray, explicit: bool) -> None:
    """Begin the next episode of some markets and write their observation."""
    if not rows.size:
        return
    m = Markets(args, rows)
    task = args["task"]
    m.episode = m.episode + 1
    m.t = np.zeros_like(m.t)
    if task["scenarios"] > 0:
        draw_scenarios(args, m)
    if task["bank_size"] > 0:
        open_warm(args, m)
    else:
        open_cold(m)
    for name in ("volume", "trades", "quotes", "cash", "inventory", "fees", "prev_value", "ended"):
        setattr(m, name, np.zeros_like(getattr(m, name)))
    m.elapsed = np.zeros_like(m.elapsed)
    m.done = np.zeros_like(m.done)
    m.arrival2 = market.marked_mid2(m)
    m.mid_history = np.repeat(market.marked_mid2(m)[:, None], HISTORY + 1, axis=1)
    m.volume_history = np.zeros_like(m.volume_history)
    if explicit:
        m.error = np.zeros_like(m.error)
        if task["stagger"]:
            begun = bits(m.word(market.WORD_STAGGER), 32, 32) * task["horizon"] >> 32
            m.elapsed = np.where(m.episode == 0, begun, 0)
    args["observation"][rows] = observation(m, task)
    m.store(args)


def draw_scenarios(args: dict[str, Any], m: Markets) -> None:
    """Give every market the parameters of the scenario that its new episode plays."""
    m.scenario = bits(m.word(market.WORD_SCENARIO), 32, 32) * args["task"]["scenarios"] >> 32
    for name, values in args["scenario_params"].items():
        args["params"][name][m.rows] = m.params[name] = values[m.scenario]


def open_warm(args: dict[str, Any], m: Markets) -> None:
    task = args["task"]
    snapshot = bits(m.word(market.WORD_WARM_START), 32, 32) * task["bank_size"] >> 32
    if task["bank_owner"] == BANK_OF_MARKET:
        snapshot = snapshot + m.rows * task["bank_size"]
    elif task["bank_owner"] == BANK_OF_SCENARIO:
        snapshot = snapshot + m.scenario * task["bank_size"]
    m.bid = args["bank_bid"][snapshot].astype(np.int64)
    m.ask = args["bank_ask"][snapshot].astype(np.int64)
    scalars = args["bank_scalars"][snapshot].astype(np.int64)
    m.prev_mid2, m.last_tick, m.price_origin, m.fundamental_price = scalars.T.copy()


def open_cold(m: Markets) -> None:
    price, depth, book = m.params["init_price"], m.params["init_depth"], np.arange(len(m.rows))
    m.bid, m.ask = np.zeros_like(m.bid), np.zeros_like(m.ask)
    m.bid[book, price - 1] = depth
    m.ask[book, price + 1] = depth
    m.prev_mid2, m.last_tick, m.price_origin = 2 * price, price.copy(), np.zeros_like(m.price_origin)
    m.fundamental_price = m.params["fundamental_price"].copy()


# ---------------------------------------------------------------------------------------------------- actions


def decode_actions(args: dict[str, Any], m: Markets) -> np.ndarray:
    """Return the quotes [m, K, 4] that the actions ask for, before the door, and note bad actions in `m.error`."""
    task, quotes, alive = args["task"], m.quotes.copy(), m.ended == 0
    for k in range(args["slots"]):
        role = task["role"][k]
        if task["action_type"] == DISCRETE:
            choice, last = args["choices"][m.rows, k], 48 if role == MAKER else 14
            outside = (choice < 0) | (choice > last)
            m.error |= np.where(outside & alive[:, k], market.ERROR_ACTION_RANGE, 0)
            decode = {MAKER: maker_choice, TRADER: trader_choice}.get(role, order_choice)
            quotes[:, k] = decode(m, task, k, np.clip(choice, 0, last))
        else:
            action = args["actions"][m.rows, k, : 4 if role == MAKER else 2]
            bad = np.isnan(action).any(axis=1)
            outside = ~bad & (np.abs(action) > 1).any(axis=1)
            error = np.where(bad, market.ERROR_NAN_ACTION, 0) | np.where(outside, market.ERROR_ACTION_RANGE, 0)
            m.error |= np.where(alive[:, k], error, 0)
            action = np.clip(np.where(bad[:, None], np.float32(0), action), np.float32(-1), np.float32(1))
            decode = {MAKER: maker_action, TRADER: trader_action}.get(role, order_action)
            quotes[:, k] = np.where(bad[:, None], quotes[:, k], decode(m, task, k, action))
    return np.where(alive[..., None], quotes, 0)


def unit(action: np.ndarray, n: int) -> np.ndarray:
    """Map float32 [-1, 1] to the integers from 0 to n."""
    return np.rint((action + np.float32(1)) * np.float32(0.5) * np.float32(n)).astype(np.int64)


def mids(m: Markets) -> tuple[np.ndarray, np.ndarray]:
    """The mid before the decision, rounded down and up."""
    return m.mid_history[:, 0] >> 1, (m.mid_history[:, 0] + 1) >> 1


def two_sided(bid: np.ndarray, bid_qty: np.ndarray, ask: np.ndarray, ask_qty: np.ndarray) -> np.ndarray:
    """Return quotes [m, 4]; a side without quantity has price 0."""
    return np.stack([np.where(bid_qty > 0, bid, 0), bid_qty, np.where(ask_qty > 0, ask, 0), ask_qty], axis=1)


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


def through_mid(m: Markets, side: np.ndarray, offset: np.ndarray, quantity: np.ndarray) -> np.ndarray:
    """Return quotes [m, 4] of one order each, `offset` ticks through the mid."""
    low, high = mids(m)
    return two_sided(low + offset, np.where(side > 0, quantity, 0), high - offset, np.where(side < 0, quantity, 0))


def order_side(m: Markets, task: dict[str, Any], k: int) -> np.ndarray:
    """The side, +1 or -1, that a momentum or noise learner or an executor trades on now, [m]."""
    if task["role"][k] == EXECUTOR and task["block_side"] != 0:
        return np.full(len(m.rows), task["block_side"])
    if task["role"][k] in (NOISE, EXECUTOR):
        return bit_sign(m.word(market.WORD_SLOT + k, t=0), 31)
    trend = np.sign(m.mid_history[:, 0] - m.mid_history[:, 1])
    return np.where(trend != 0, trend, bit_sign(m.word(market.WORD_SLOT + k), 31))


def remaining(m: Markets, task: dict[str, Any], k: int) -> np.ndarray:
    """Units that a noise learner or an executor still has to trade, [m]."""
    if task["role"][k] == EXECUTOR:
        return np.maximum(0, task["block_qty"] - order_side(m, task, k) * m.inventory[:, k])
    target = 1 + (bits(m.word(market.WORD_SLOT + k, t=0), 32, 16) * task["max_target"] >> 16)
    return np.maximum(0, target - order_side(m, task, k) * m.inventory[:, k])


# ---------------------------------------------------------------------------------------------------- rewards


def mark2(m: Markets, task: dict[str, Any]) -> np.ndarray:
    """The doubled price [m] that marks an inventory; the mid under the liquidation mark too."""
    return 2 * m.fundamental_price if task["mark"] == MARK_FUNDAMENTAL else market.marked_mid2(m)


def marked_value(m: Markets, task: dict[str, Any]) -> np.ndarray:
    """The value of each slot in 1/2000 tick, [m, K]."""
    if task["mark"] == MARK_LIQUIDATION:
        return 2000 * (m.cash + liquidation_cash(m)) - 2 * m.fees
    return 2000 * m.cash + 1000 * m.inventory * mark2(m, task)[:, None] - 2 * m.fees


def liquidation_cash(m: Markets) -> np.ndarray:
    """The cash [m, K] from crossing the built-in resting book at once with each inventory."""
    ticks = np.arange(m.num_levels) + m.price_origin[:, None]
    cash = np.zeros_like(m.cash)
    for k in range(m.cash.shape[1]):
        held = m.inventory[:, k]
        proceeds = crossing_cash(m, np.maximum(held, 0), m.bid[:, ::-1], ticks[:, ::-1])
        cash[:, k] = proceeds - crossing_cash(m, np.maximum(-held, 0), m.ask, ticks)
    return cash


def crossing_cash(m: Markets, quantity: np.ndarray, depth: np.ndarray, price: np.ndarray) -> np.ndarray:
    """What `quantity` [m] trades for against depth [m, L], best price first; the rest trades at the last price."""
    before = np.cumsum(depth, axis=1) - depth
    taken = np.clip(quantity[:, None] - before, 0, depth)
    deepest = depth.shape[1] - 1 - np.argmax(depth[:, ::-1] > 0, axis=1)
    last_price = np.where(
        depth.any(axis=1), np.take_along_axis(price, deepest[:, None], axis=1)[:, 0], m.last_tick + m.price_origin
    )
    return (taken * price).sum(axis=1) + (quantity - taken.sum(axis=1)) * last_price


def trading_reward(
    m: Markets,
    task: dict[str, Any],
    k: int,
    gain: np.ndarray,
    inventory: np.ndarray,
    mark2_before: np.ndarray,
    filled: np.ndarray,
) -> np.ndarray:
    """The reward [m] of a maker, trader or momentum learner in double, before scaling; inventory is that before."""
    pnl = gain.astype(np.float64) / 2000.0
    if task["reward"] == REWARD_INVENTORY:
        held = m.inventory[:, k].astype(np.float64)
        return pnl - task["inventory_penalty"] * held * held
    if task["reward"] == REWARD_ASYMMETRIC:
        drift = 1000 * inventory * (mark2(m, task) - mark2_before)
        return pnl - np.maximum(0.0, task["dampening"] * (drift.astype(np.float64) / 2000.0))
    if task["reward"] == REWARD_PER_UNIT:
        per_unit = pnl / np.maximum(np.maximum(filled, np.abs(inventory)), 1).astype(np.float64)
        return np.where(filled > 0, per_unit, per_unit - task["idle_penalty"])
    return pnl


def money_against(
    m: Markets, k: int, cash: np.ndarray | int, inventory: np.ndarray | int, fees: np.ndarray | int, price2: np.ndarray
) -> np.ndarray:
    """What slot k's trades brought since it had these accounts, beyond a doubled price; ticks x units in double."""
    money = 2000 * (m.cash[:, k] - cash) + 1000 * (m.inventory[:, k] - inventory) * price2 - 2 * (m.fees[:, k] - fees)
    return money.astype(np.float64) / 2000.0


def noise_reward(
    m: Markets,
    task: dict[str, Any],
    k: int,
    cash: np.ndarray,
    inventory: np.ndarray,
    fees: np.ndarray,
    mark2_before: np.ndarray,
    ended: np.ndarray,
) -> np.ndarray:
    """The reward [m] of a noise learner in double: what its trades cost against the mark before; accounts as before."""
    reward = money_against(m, k, cash, inventory, fees, mark2_before)
    leftover = task["leftover_penalty"] * remaining(m, task, k).astype(np.float64)
    return np.where(ended, reward - leftover, reward)


def execution_reward(
    m: Markets,
    task: dict[str, Any],
    k: int,
    cash: np.ndarray,
    inventory: np.ndarray,
    fees: np.ndarray,
    mark2_before: np.ndarray,
    ended: np.ndarray,
) -> np.ndarray:
    """The reward [m] of an executor in double: a unit of its block against the mid at arrival; accounts as before."""
    rest, block = remaining(m, task, k).astype(np.float64), np.float64(task["block_qty"])
    if task["execution_reward"] == EXECUTION_TERMINAL:
        reward = np.where(ended, money_against(m, k, 0, 0, 0, m.arrival2), 0.0)
    else:
        reward = money_against(m, k, cash, inventory, fees, m.arrival2)
    reward = np.where(ended, reward - task["leftover_penalty"] * rest, reward) / block
    if task["execution_reward"] == EXECUTION_RISK_AVERSE:
        share = rest / block
        reward = reward - task["risk_aversion"] * share * share
    return reward


# ------------------------------------------------------------------------------------------------ observation


def squash(x: np.ndarray, scale: int) -> np.ndarray:
    """Return x / (|x| + scale) in float32, x int64 or float32."""
    x = x.astype(np.float32)
    return x / (np.abs(x) + np.float32(scale))


def ratio(numerator: np.ndarray, denominator: np.ndarray | int) -> np.ndarray:
    """Return the quotient of two integers in float32."""
    return numerator.astype(np.float32) / np.asarray(denominator).astype(np.float32)


def observation(m: Markets, task: dict[str, Any]) -> np.ndarray:
    """Return the observations, float32 [m, K, 37]."""
    rows = np.zeros((*m.cash.shape, FEATURES), np.float32)
    c2 = market.marked_mid2(m)
    rows[..., :MARKET_FEATURES] = market_features(m, c2)[:, None]
    for k in range(m.cash.shape[1]):
        write = maker_features if task["role"][k] == MAKER else order_features
        write(rows[:, k], m, task, k, c2)
        executor = task["role"][k] == EXECUTOR
        wealth2 = 2 * m.cash[:, k] + m.inventory[:, k] * (m.arrival2 if executor else c2)
        rows[:, k, 31] = squash(
            wealth2.astype(np.float32) * np.float32(0.5), 8 * task["block_qty"] if executor else 1000
        )
        rows[:, k, 32] = ratio(task["horizon"] - m.elapsed, task["horizon"])
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
    return np.where(inside, np.take_along_axis(depth, np.clip(tick, 0, levels - 1), axis=1), 0)


def inventory_feature(m: Markets, task: dict[str, Any], k: int) -> np.ndarray:
    limit, held = m.params["inventory_limit"], m.inventory[:, k]
    return np.where(limit > 0, ratio(held, limit), squash(held, 8 * task["max_qty"]))


def maker_features(row: np.ndarray, m: Markets, task: dict[str, Any], k: int, c2: np.ndarray) -> None:
    bid, bid_qty, ask, ask_qty = m.quotes[:, k].T
    row[:, 30] = inventory_feature(m, task, k)
    row[:, 33] = squash(np.where(bid_qty > 0, c2 - 2 * bid, 0), 16)
    row[:, 34] = ratio(bid_qty, task["max_qty"])
    row[:, 35] = squash(np.where(ask_qty > 0, 2 * ask - c2, 0), 16)
    row[:, 36] = ratio(ask_qty, task["max_qty"])


def order_features(row: np.ndarray, m: Markets, task: dict[str, Any], k: int, c2: np.ndarray) -> None:
    bid, bid_qty, ask, ask_qty = m.quotes[:, k].T
    buys, role = bid_qty > 0, task["role"][k]
    price, quantity = np.where(buys, bid, ask), np.where(buys, bid_qty, ask_qty)
    if role == TRADER:
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
