"""Random tables of order flows, plain and extreme, for tests."""

from __future__ import annotations

import numpy as np

from kineticsim_env.flow.order_flow import OrderFlow
from kineticsim_env.runtime import flow_table
from kineticsim_env.runtime.flow_table import BANDS, SHARE, SPREADS, STATES, UNIT


def random_table(seed: int) -> OrderFlow:
    """Return a table; of every other seed an extreme one: weights of 0, jumps all the time, sizes of a million."""
    rng = np.random.default_rng(seed)
    wild = bool(seed % 2)

    def numbers(high: float, shape: tuple[int, ...] | int, low: int = 0) -> np.ndarray:
        found = np.exp(rng.uniform(0, np.log(high), shape)).astype(np.int64)
        return np.maximum(found * (rng.random(shape) < rng.choice([0.3, 1.0]) if wild else 1), low)

    shapes = {name: shape for name, (shape, _, _) in flow_table.FIELDS.items()}
    most = 2**20 if wild and rng.random() < 0.3 else 1000
    follow = np.sort(rng.integers(0, SHARE + 1, shapes["follow"]), axis=-1)
    follow[..., -1] = SHARE
    return OrderFlow(
        limit=numbers(UNIT / 4, (2, SPREADS, BANDS)),
        cancel=numbers(UNIT, (2, BANDS), low=1),
        market=int(rng.choice([0, UNIT // 100, UNIT])),
        market_same=int(rng.integers(0, SHARE + 1)),
        limit_size=numbers(most, shapes["limit_size"], low=1),
        market_size=numbers(most, (16,), low=1),
        fleeting=rng.integers(0, SHARE + 1, BANDS),
        resting=numbers(3 * SHARE, shapes["resting"]),
        jump_hazard=int(rng.choice([0, 2**23, 2**31])),
        jump_after_trade=int(rng.choice([0, SHARE // 4, SHARE])),
        jump_same=int(rng.integers(0, SHARE + 1)),
        jump_traded=int(rng.choice([0, SHARE // 5, SHARE])),
        jump_events=int(rng.choice([1, 20, 200])),
        jump_size=numbers(60, (16,), low=1),
        gap=numbers(2**40 if wild else 1e8, STATES, low=1),
        follow=follow,
        about={"seed": seed},
    )


def plain_table() -> OrderFlow:
    """Return a table of a calm market near its best prices, a spread of mostly one tick, and lots of 1."""
    bands = np.arange(BANDS)
    limit = np.where(bands < 12, UNIT / 40, UNIT / 400).astype(np.int64)
    limit[0] = UNIT // 8
    stay = np.full((STATES, STATES), 0.02) + 0.9 * np.eye(STATES)
    follow = np.rint(np.cumsum(stay, axis=1) * SHARE).astype(np.int64)
    follow[:, -1] = SHARE
    return OrderFlow(
        limit=np.broadcast_to(limit, (2, SPREADS, BANDS)),
        cancel=np.stack([np.full(BANDS, UNIT // 20), np.full(BANDS, UNIT // 400)]),
        market=UNIT // 50,
        market_same=SHARE // 2,
        limit_size=np.broadcast_to(np.arange(1, 17), (2, 2, 4, 16)),
        market_size=np.arange(1, 17),
        fleeting=np.full(BANDS, SHARE // 2),
        resting=np.broadcast_to(np.array([[SHARE // 10], [SHARE]]), (2, 2, BANDS)),
        jump_hazard=2**20,
        jump_after_trade=SHARE // 100,
        jump_same=SHARE // 2,
        jump_traded=SHARE // 10,
        jump_events=30,
        jump_size=np.arange(1, 17),
        gap=np.array([1, 3, 10, 30, 100]) * 10**6,
        follow=np.broadcast_to(follow, (3, STATES, STATES)),
    )
