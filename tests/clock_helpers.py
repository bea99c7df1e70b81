"""Markets on the clock, driven by a native engine's library through ctypes, beside `tests/reference`."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

import kineticsim_env as ks
from kineticsim_env import config as configs
from kineticsim_env.engines.opening import opening_book
from kineticsim_env.runtime import layout
from reference import Reference, words

NAMES = "t episode error mid2 last_price prev_mid2 ret fundamental price_origin volume trades".split()
NAMES += "bid ask quotes ahead fills cash inventory fees".split()
CLOCK_STATE = ("regime", "ret", "beat_price")
QUEUE_STATE = ("queue", "moments")


class RegimeParams(ctypes.Structure):
    """`struct RegimeParams`."""


class Markets:
    """Markets of one config at their opening, and launches of a library on them."""

    def __init__(self, library: ctypes.CDLL, fields: dict[str, Any], slots: Sequence[str | None], seed: int, count: int):
        self.config = config = ks.MarketConfig(**fields)
        self.library, self.slots, self.count = library, slots, count
        self.sizes = sizes = {"M": count, "L": config.num_levels, "K": len(slots)}
        device = torch.device("cpu")
        names = [*layout.MARKET_STATE, *layout.SLOT_STATE, *CLOCK_STATE]
        names += QUEUE_STATE if config.is_continuous else ()
        self.tensors = layout.allocate(names, sizes, device)
        seeds = np.arange(seed, seed + count, dtype=np.int64)
        counts = class_counts(config, seeds)
        replaced = {name: list(slots).count(name) for name in configs.CLASSES}
        self.rows = configs.parameter_rows(config, count, counts, replaced)
        for name, value in opening_book(self.rows, config.num_levels, device).items():
            self.tensors[name].copy_(value.expand_as(self.tensors[name]))
        self.tensors["seed"].copy_(torch.from_numpy(seeds))
        self.tensors["beat_price"].copy_(self.tensors["last_tick"])
        self.params = torch.from_numpy(
            np.stack([self.rows[name] for name in layout.PARAMS_FIELDS], axis=1).astype(np.int32)
        ).contiguous()
        regimes = configs.regime_rows(config)
        order = layout.parse_struct(layout._TEXT, "RegimeParams")
        self.regimes = torch.from_numpy(np.stack([regimes[name] for name in order], axis=1).astype(np.int32)).contiguous()
        for m in range(count):
            drawn = words.word(words.episode_key(seed + m, 0), 0, words.FIRST_REGIME) >> 32
            self.tensors["regime"][m] = words.scaled(drawn, max(1, len(self.regimes)), 32)

    def run(self, quotes: Any, decisions: int, intervals: int) -> dict[str, torch.Tensor]:
        """Run decisions; quotes int32 `[T, M, K, 4]` or None. Returns fills, value and series."""
        sizes = self.sizes | {"T": decisions, "S": decisions * intervals}
        names = ["fills", "value", *(f"series_{name}" for name in layout.SERIES)]
        results = layout.allocate(names, sizes, torch.device("cpu"))
        launch = layout.Launch()
        launch.markets, launch.levels, launch.slots = (self.sizes[name] for name in "MLK")
        launch.decisions, launch.auctions, launch.params_stride, launch.records = decisions, intervals, 1, 1
        launch.arrivals = layout.ENUMS["Arrivals"][self.config.arrivals]
        launch.mechanism = layout.ENUMS["Mechanism"][self.config.mechanism]
        given = None if quotes is None else torch.as_tensor(np.array(quotes, np.int32)).contiguous()
        tensors = self.tensors | results | {"params": self.params, "new_quotes": given, "regimes": self.regimes}
        for name, tensor in tensors.items():
            setattr(launch, name, None if tensor is None or tensor.numel() == 0 else tensor.data_ptr())
        self.library.ks_cpu_launch(ctypes.byref(launch))
        self.results = results
        return results

    def observe(self, m: int) -> dict[str, Any]:
        """What the reference's `observe` shows."""
        seen: dict[str, Any] = {name: tensor[m].tolist() for name, tensor in self.tensors.items()}
        origin = seen["price_origin"]
        bids = [tick for tick, q in enumerate(seen["bid"]) if q]
        asks = [tick for tick, q in enumerate(seen["ask"]) if q]
        seen["last_price"] = seen["last_tick"] + origin
        seen["mid2"] = bids[-1] + asks[0] + 2 * origin if bids and asks else 2 * seen["last_price"]
        seen["prev_mid2"] += 2 * origin
        seen["fundamental"] = seen["fundamental_price"]
        seen["ahead"] = seen["queue"] if "queue" in seen else [[0, 0] for _ in self.slots]
        seen["fills"] = self.results["fills"][-1, m].tolist()
        return seen


def class_counts(config: ks.MarketConfig, seeds: np.ndarray) -> np.ndarray:
    """Agents per class, from the reference's own count."""
    from reference.rules import CLASSES, Population, Rules

    assert CLASSES == tuple(configs.CLASSES)
    rows = [Population(Rules(config.to_dict(), m, 0), int(seed)).counts for m, seed in enumerate(seeds)]
    return np.array(rows, np.int64)


def play_beside(library: ctypes.CDLL, fields: dict[str, Any], slots: Sequence[str | None], seed: int, plays: Any) -> None:
    """Play decisions, pairs of quotes and intervals; each ends with both in the same state."""
    markets, alone = Markets(library, fields, slots, seed, 1), Reference(fields, slots, seed)
    for number, (quotes, n) in enumerate(plays(alone)):
        seen = alone.decision(quotes, n)
        results = markets.run(None if quotes is None else [[quotes]], 1, n)
        ours = markets.observe(0)
        wanted = seen[-1] | {"fills": np.sum([one["fills"] for one in seen], axis=0).reshape(-1, 2).astype(int).tolist()}
        for name in (*NAMES, *(["regime"] if fields.get("regimes") else [])):
            assert ours[name] == wanted[name], (number, name, ours[name], wanted[name])
        for i, one in enumerate(seen):
            series = [int(results[f"series_{name}"][0, i]) for name in ("last_price", "mid2", "fundamental")]
            assert series == [one["last_price"], one["mid2"], one["fundamental"]], (number, i)
