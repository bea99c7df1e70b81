"""What is known of markets and slots after a decision, in the NumPy engine: `info` of docs/environment.md.

tasks.py calls this where an environment asks for it. Everything is float64, which has each number as it is: prices in
ticks, money in ticks x units, fees in thousandths of that.
"""

from typing import Any

import numpy as np

from kineticsim_env.engines.numpy.actions import EXECUTOR, NOISE, remaining
from kineticsim_env.engines.numpy.rules import best_prices
from kineticsim_env.engines.numpy.state import Markets

MARKET_ROWS, SLOT_ROWS = 6, 9


def note_decision(args: dict[str, Any], m: Markets, value: np.ndarray, fills: np.ndarray, rejects: np.ndarray) -> None:
    """Write what a decision led to: marked values [m, K] in 1/2000 tick, fills and rejects [m, K, 2] of each side."""
    args["episode_filled"][m.rows] += fills.sum(axis=2)
    if args.get("episode_return") is not None:
        args["episode_return"][m.rows] += args["reward"][m.rows].astype(np.float64)
    _write(args, m, value, fills)
    if args["task"]["keep"] or m.orders > 1:  # rows of bids and rows of asks, behind all others
        args["info"][MARKET_ROWS + SLOT_ROWS * args["slots"] :, m.rows] = np.concatenate([*rejects.T])


def note_opening(args: dict[str, Any], m: Markets, played: bool) -> None:
    """Write how an episode begins, unless a decision was played in the same launch: its rows stay."""
    args["episode_filled"][m.rows] = 0
    if args.get("episode_return") is not None:
        args["episode_return"][m.rows] = 0.0
    if not played:
        args["info"][MARKET_ROWS + (SLOT_ROWS - 1) * args["slots"] :, m.rows] = 0.0  # returns, and rejects
        _write(args, m, np.zeros_like(m.cash), np.zeros((*m.cash.shape, 2), np.int64))


def _write(args: dict[str, Any], m: Markets, value: np.ndarray, fills: np.ndarray) -> None:
    best_bid, best_ask = best_prices(m.bid, m.ask)
    of_market = [
        0.5 * m.marked_mid2,
        m.fundamental_price,
        np.where(best_bid >= 0, best_bid + m.price_origin, np.nan),
        np.where(best_ask < m.num_levels, best_ask + m.price_origin, np.nan),
        m.scenario if "scenario" in m.names else np.zeros(len(m.rows)),
        m.elapsed,
    ]
    role = args["task"]["role"]
    left = [
        remaining(m, m.task_of(args["task"], k), k) if role[k] in (NOISE, EXECUTOR) else 0 * m.t
        for k in range(m.cash.shape[1])
    ]
    of_slots = [
        m.cash,
        m.inventory,
        m.fees,
        fills[..., 0],
        fills[..., 1],
        args["episode_filled"][m.rows],
        np.stack(left, axis=1),
        value / 2000.0,
    ]
    if args.get("episode_return") is not None:
        of_slots.append(args["episode_return"][m.rows])
    rows = np.concatenate([np.stack(of_market), *(column.T for column in of_slots)])
    args["info"][: len(rows), m.rows] = rows
