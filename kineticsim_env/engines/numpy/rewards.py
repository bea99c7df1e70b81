"""What a decision is worth, in the NumPy engine: marked values, and the reward of each role.

The part "Rewards" of docs/environment.md; tasks.py calls `marked_value` and `rewards` after the auctions of
a decision.
"""

from typing import Any

import numpy as np

from kineticsim_env.engines.numpy.actions import EXECUTOR, NOISE, remaining
from kineticsim_env.engines.numpy.state import Markets

REWARD_INVENTORY, REWARD_ASYMMETRIC, REWARD_PER_UNIT, REWARD_EDGE = 1, 2, 3, 4
EXECUTION_RISK_AVERSE, EXECUTION_TERMINAL, EXECUTION_EDGE = 1, 2, 3
MARK_FUNDAMENTAL, MARK_LIQUIDATION = 0, 2

Account = tuple[Any, ...]  # cash, inventory and fees of a slot, [m] each
NOTHING: Account = (0, 0, 0)


def rewards(
    m: Markets,
    task: dict[str, Any],
    before: tuple[np.ndarray, np.ndarray, np.ndarray],
    value: np.ndarray,
    mark2_before: np.ndarray,
    fills: np.ndarray,
    ends: np.ndarray,
) -> np.ndarray:
    """Return what the decision is worth to each slot, double [m, K], before scaling.

    Args:
        m: the markets after the decision; `prev_value` is still that before it.
        task: the fields of `struct TaskParams`.
        before: cash, inventory and fees before the decision, int64 [m, K] each.
        value: the marked value after it, int64 [m, K].
        mark2_before: the doubled mark before it, [m].
        fills: units bought and sold in it, int64 [m, K, 2].
        ends: bool [m, K], whether it ends the slot's episode.
    """
    reward = np.zeros(value.shape, dtype=np.float64)
    for k in range(value.shape[1]):
        account, own = tuple(column[:, k] for column in before), m.task_of(task, k)
        if task["role"][k] == NOISE:
            reward[:, k] = noise_reward(m, own, k, account, mark2_before, ends[:, k])
        elif task["role"][k] == EXECUTOR:
            reward[:, k] = execution_reward(m, own, k, account, ends[:, k])
        elif task["reward"] == REWARD_EDGE:
            reward[:, k] = money_against(m, k, account, 2 * m.fundamental_price)
        else:
            gain, filled = value[:, k] - m.prev_value[:, k], fills[:, k].sum(axis=1)
            reward[:, k] = trading_reward(m, own, k, gain, account[1], mark2_before, filled)
    return reward


def trading_reward(
    m: Markets,
    task: dict[str, Any],
    k: int,
    gain: np.ndarray,
    held_before: np.ndarray,
    mark2_before: np.ndarray,
    filled: np.ndarray,
) -> np.ndarray:
    """The reward [m] of a maker, trader, fundamental or momentum learner, from the change of its marked value."""
    pnl = gain.astype(np.float64) / 2000.0
    if task["reward"] == REWARD_INVENTORY:
        held = m.inventory[:, k].astype(np.float64)
        return pnl - task["inventory_penalty"] * held * held
    if task["reward"] == REWARD_ASYMMETRIC:
        drift = 1000 * held_before * (mark2(m, task) - mark2_before)
        return pnl - np.maximum(0.0, task["dampening"] * (drift.astype(np.float64) / 2000.0))
    if task["reward"] == REWARD_PER_UNIT:
        per_unit = pnl / np.maximum(np.maximum(filled, np.abs(held_before)), 1).astype(np.float64)
        return np.where(filled > 0, per_unit, per_unit - task["idle_penalty"])
    return pnl


def noise_reward(
    m: Markets, task: dict[str, Any], k: int, account: Account, mark2_before: np.ndarray, ends: np.ndarray
) -> np.ndarray:
    """The reward [m] of a noise learner: what its trades cost against the mark before."""
    reward = money_against(m, k, account, mark2_before)
    leftover = task["leftover_penalty"] * remaining(m, task, k).astype(np.float64)
    return np.where(ends, reward - leftover, reward)


def execution_reward(m: Markets, task: dict[str, Any], k: int, account: Account, ends: np.ndarray) -> np.ndarray:
    """The reward [m] of an executor: price improvement on the mid at arrival, or the fundamental price, per unit."""
    rest, block = remaining(m, task, k).astype(np.float64), np.asarray(task["block_qty"], np.float64)
    if task["execution_reward"] == EXECUTION_TERMINAL:
        reward = np.where(ends, money_against(m, k, NOTHING, m.arrival2), 0.0)
    else:
        edge = task["execution_reward"] == EXECUTION_EDGE
        reward = money_against(m, k, account, 2 * m.fundamental_price if edge else m.arrival2)
    reward = np.where(ends, reward - task["leftover_penalty"] * rest, reward) / block
    if task["execution_reward"] == EXECUTION_RISK_AVERSE:
        share = rest / block
        reward = reward - task["risk_aversion"] * share * share
    return reward


def money_against(m: Markets, k: int, account: Account, price2: np.ndarray) -> np.ndarray:
    """What slot k's trades brought since its accounts were these, beyond a doubled price; ticks x units in double."""
    cash, inventory, fees = account
    money = 2000 * (m.cash[:, k] - cash) + 1000 * (m.inventory[:, k] - inventory) * price2 - 2 * (m.fees[:, k] - fees)
    return money.astype(np.float64) / 2000.0


def mark2(m: Markets, task: dict[str, Any]) -> np.ndarray:
    """The doubled price [m] that marks an inventory; the mid under the liquidation mark too."""
    return 2 * m.fundamental_price if task["mark"] == MARK_FUNDAMENTAL else m.marked_mid2


def marked_value(m: Markets, task: dict[str, Any], since_opening: bool = True) -> np.ndarray:
    """The value of each slot in 1/2000 tick, [m, K]; beyond that of its initial inventory as the episode began."""
    opening = m.opening_value if since_opening and "opening_value" in m.names else 0
    if task["mark"] == MARK_LIQUIDATION:
        return 2000 * (m.cash + liquidation_cash(m)) - 2 * m.fees - opening
    return 2000 * m.cash + 1000 * m.inventory * mark2(m, task)[:, None] - 2 * m.fees - opening


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
