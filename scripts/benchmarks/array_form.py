"""The market as whole-array operations: what the torch and JAX baselines compute, and the constants that they need.

It is the model of docs/model.md at the preset `"paper"`, rewritten so that a step has few operations on arrays [M, A]
or [M, L], with the same bits:

- *Orders.* A price depends on the mid, and otherwise on the side and on an offset of at most `reach` ticks or on being
  marketable. So quantities are first summed in `2 * (2 * reach + 2)` bins per market, and only the bins are priced.
- *Book.* It is kept as demand at or above, and supply at or below, each tick, counted from the opening: neither is ever
  reduced by fills, but raised to the volume V traded so far. With D and S so, orders included, the new V is
  `max(min(D, S))`, the new book `max(D, V)`, `max(S, V)`, and the ticks are counts, as both are monotone: the best bid
  is `#(D > V) - 1`, the best ask `L - #(S > V)`, the lowest clearing price `L - #(S >= V)`.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from kineticsim_env.engines.parameters import class_counts, parameter_rows
from kineticsim_env.runtime.words import GOLDEN, episode_keys, signed
from scripts.benchmarks.backend import Result, Workload


@dataclasses.dataclass(frozen=True)
class ArrayForm:
    """The numbers of a workload. Bin `side * (width + 1) + j`, side 0 buys: offset `j - reach`, or marketable."""

    markets: int
    levels: int
    noise: int  # agents [0, noise)
    takers: int  # noise and momentum agents [0, takers); makers come last
    agents: int
    max_quantity: int
    spread: int
    half_spread: int
    threshold: int  # of marketable orders, in 1/2^24
    init_price: int
    init_depth: int
    seed: int

    @classmethod
    def of(cls, workload: Workload) -> ArrayForm:
        """Take a workload's numbers from its config.

        Raises:
            ValueError: If the market is not one that these operations are exact for.
        """
        config = workload.config
        rows = {name: int(value[0]) for name, value in parameter_rows(config, 1, class_counts(config, 1), {}).items()}
        form = cls(
            markets=workload.markets,
            levels=workload.levels,
            noise=rows["num_noise"],
            takers=rows["num_noise"] + rows["num_momentum"],
            agents=workload.agents,
            max_quantity=rows["max_order_qty"],
            spread=rows["noise_spread"],
            half_spread=rows["maker_half_spread"],
            threshold=rows["market_order_threshold"],
            init_price=rows["init_price"],
            init_depth=rows["init_depth"],
            seed=workload.seed,
        )
        if config.uses_options or config.population != "fixed" or rows["num_fundamental"]:
            raise ValueError("workload: expected no options, drawn populations or fundamental agents, got some")
        if form.max_quantity >= 2**15 or form.reach > 64:  # 16 bits times these stay in an int32; bins stay few
            raise ValueError("workload: expected max_order_qty < 2^15 and offsets up to 64 ticks, got larger ones")
        return form

    @property
    def reach(self) -> int:
        """The largest offset of a price from the mid."""
        return max(1, self.spread, self.half_spread)

    @property
    def width(self) -> int:
        """The number of offsets."""
        return 2 * self.reach + 1

    @property
    def bins(self) -> int:
        """The number of bins of a market."""
        return 2 * (self.width + 1)

    @property
    def sum_bits(self) -> int:
        """The bits that hold any bin's sum: several sums share an int64."""
        return (self.agents * self.max_quantity).bit_length()

    @property
    def per_integer(self) -> int:
        """How many sums share an int64, a power of two."""
        return 1 << ((63 // self.sum_bits).bit_length() - 1)

    def keys(self) -> np.ndarray:
        """Return the keys of the markets, int64 [M]."""
        seeds = self.seed + np.arange(self.markets, dtype=np.int64)
        return episode_keys(seeds, np.zeros_like(seeds))

    def agent_steps(self) -> np.ndarray:
        """Return what agent a adds to a key, `(a + 1) * G`, int64 [A]."""
        return (np.arange(self.agents, dtype=np.int64) + 1) * GOLDEN

    @property
    def key_step(self) -> int:
        """What a step of time adds to a key, as an int64."""
        return signed(GOLDEN << 32)

    def opening(self) -> tuple[np.ndarray, np.ndarray]:
        """Return demand and supply of the opening book, int32 [L]."""
        tick = np.arange(self.levels)
        demand, supply = tick <= self.init_price - 1, tick >= self.init_price + 1
        return (demand * self.init_depth).astype(np.int32), (supply * self.init_depth).astype(np.int32)

    def check_steps(self, steps: int) -> None:
        """Refuse a run whose totals, of all steps since the opening, could reach 2^31."""
        allowed = (2**31 - 1 - self.init_depth) // (self.agents * self.max_quantity)
        if steps > allowed:
            raise ValueError(f"steps: expected up to {allowed} with int32 totals, got {steps} since the reset")

    def result(
        self, demand: np.ndarray, supply: np.ndarray, volume: np.ndarray, last_price: np.ndarray, trades: np.ndarray
    ) -> Result:
        """Return the end state from demand and supply [M, L] and statistics [M]."""
        wanted, offered = (np.asarray(side, np.int64) - np.asarray(volume)[:, None] for side in (demand, supply))
        bid = -np.diff(wanted, axis=1, append=0)
        ask = np.diff(offered, axis=1, prepend=0)
        return Result(
            bid.astype(np.int32),
            ask.astype(np.int32),
            np.asarray(last_price, np.int32),
            np.asarray(volume, np.int64),
            np.asarray(trades, np.int64),
        )
