"""Price impact of block orders of several sizes: measured, fitted by a power law, written to a file.

Every figure is a paired difference between the same markets with and without the order
(`kineticsim_env.counterfactuals.block_impact`). `python -m kineticsim_env impact` is the caller.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from kineticsim_env.config import MarketConfig
from kineticsim_env.counterfactuals import BlockImpact, block_impact
from kineticsim_env.counterfactuals.causal import Power, fit_power
from kineticsim_env.runtime.files import replacing


class Point(NamedTuple):
    """One order, measured."""

    impact: BlockImpact
    at_end: np.ndarray  # float64 [M]: each market's impact where the order ends


def measure(
    config: MarketConfig,
    orders: Iterable[tuple[int, int]],
    progress: bool = True,
    label: str = "impact",
    **arguments: Any,
) -> list[Point]:
    """Measure orders one by one, all of them on the same markets.

    Args:
        config: The market.
        orders: (block, units per auction) of each.
        progress: Whether to show a bar.
        label: What the bar is called.
        **arguments: Of `block_impact`: side, after, num_markets, seed, warmup, engine, device.
    """
    points = []
    for block, rate in tqdm(list(orders), unit="order", desc=label, disable=not progress):
        found = block_impact(config, block=block, per_auction=rate, progress=False, **arguments)
        sign = 1 if found.side == "buy" else -1
        moved = found.arms.difference["mid2"].cpu().numpy()
        points.append(Point(found._replace(arms=None), sign * moved[:, found.duration - 1] / 2))
    return points


def fit_impact(points: Sequence[Point]) -> Power | None:
    """Fit the impact at the end as a power of the block's size: `counterfactual.causal.fit_power`."""
    return fit_power([point.impact.block for point in points], np.stack([point.at_end for point in points], axis=1))


def save(path: Path, points: Sequence[Point], setting: Mapping[str, Any]) -> None:
    """Write measured orders: JSON with everything, or, where the name ends in .csv, a line per order and auction."""
    if path.suffix == ".csv":
        with replacing(path) as part, part.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("side", "block", "per_auction", "auction", "impact", "interval"))
            for point in points:
                found = point.impact
                for auction, (value, width) in enumerate(zip(found.path, found.path_interval, strict=True)):
                    row = (found.side, found.block, found.per_auction, auction, f"{value:.6g}", f"{width:.6g}")
                    writer.writerow(row)
        return
    rows = [
        point.impact.summary()
        | {
            "path": [round(value, 6) for value in point.impact.path.tolist()],
            "path_interval": [round(value, 6) for value in point.impact.path_interval.tolist()],
        }
        for point in points
    ]
    with replacing(path) as part:
        part.write_text(json.dumps({"setting": dict(setting), "orders": _without_nan(rows)}, indent=1) + "\n")


def _without_nan(value: Any) -> Any:
    """Return nested lists and dicts with None for NaN, which JSON does not know."""
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
