"""Random tables of order flows, plain and extreme, for tests."""

from __future__ import annotations

import numpy as np

from kineticsim_env.flow import order_flow
from kineticsim_env.flow.order_flow import BANDS, SHARE, SPREADS, STATES, UNIT, OrderFlow


def random_table(seed: int) -> OrderFlow:
    """Return a table; of every other seed an extreme one: weights of 0, jumps all the time, sizes of a million."""
    rng = np.random.default_rng(seed)
    wild = bool(seed % 2)

    def numbers(high: float, shape: tuple[int, ...] | int, low: int = 0) -> np.ndarray:
        found = np.exp(rng.uniform(0, np.log(high), shape)).astype(np.int64)
        return np.maximum(found * (rng.random(shape) < rng.choice([0.3, 1.0]) if wild else 1), low)

    shapes = {name: shape for name, (shape, _, _) in order_flow._FIELDS.items()}
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
