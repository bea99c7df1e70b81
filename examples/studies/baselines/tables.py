"""The tables and the picture of README.md, from results.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kineticsim_env import plots
from scripts.pages.markdown import plus_minus, table

__all__ = ["apart", "engines", "lead", "money", "overview", "part_table", "settings_of", "titled"]
TASKS = {"MarketMaking": "Market making", "Execution": "Execution", "Trading": "Trading"}
MARKETS = {"trading": "call auctions (`trading`)", "news": "continuous trading (`news`)"}
LINEAR = ("linear", "linear, sizes too")
KINDS = ("scripted", *LINEAR, "learned", "informed")
COLOURS = (plots.GREY, "#d08a1d", "#8a6d1d", plots.BUY, plots.SELL)


def split(record: Mapping[str, Any]) -> tuple[str, str]:
    """Return the task and the preset of a part."""
    task, preset = record["part"].split(":")
    return task, preset


def titled(record: Mapping[str, Any]) -> str:
    """Return the task and the market of a part in words."""
    task, preset = split(record)
    return f"{TASKS[task]}, {MARKETS[preset]}"


def digits_of(record: Mapping[str, Any]) -> int:
    """Return how many digits money has, in ticks or in ticks per unit."""
    return 2 if split(record)[0] == "Execution" else 0


def money(record: Mapping[str, Any], kind: str) -> Sequence[float]:
    """Return the mean money of one of KINDS with half of its interval."""
    if kind == "learned":
        return record["learned"]["pnl"]
    return record["rows"][record["scripted"] if kind == "scripted" else kind]["pnl"]


def apart(record: Mapping[str, Any], rival: str) -> bool:
    """Say whether PPO's interval is above that of a rival."""
    (mean, half), (other, width) = money(record, "learned"), money(record, rival)
    return mean - half > other + width


def lead(record: Mapping[str, Any], rival: str) -> str:
    """Return PPO's lead over a policy on the same episodes, and what is not plain from it."""
    mean, half = record["leads"][record["scripted"] if rival == "scripted" else rival]
    unsure = ", not told apart" if abs(mean) <= half else ", intervals overlap"
    plain = mean < -half or apart(record, rival)
    return plus_minus((mean, half), digits_of(record)) + ("" if plain else unsure)


def part_table(record: Mapping[str, Any]) -> str:
    """Return the table of a part: all policies, best first, and PPO's lead over those it is held to."""
    digits = digits_of(record)

    def seeds(of: Mapping[str, Any]) -> str:
        return f"seeds: {' '.join(f'{mean:,.{digits}f}' for mean in of['seeds'])}"

    one = record["learned"]
    rows = [("**PPO**", one["pnl"], "", seeds(one), f"{one['seconds']:.0f} s")]
    for kind in (*LINEAR, "informed"):
        row = record["rows"][kind]
        took = f"{row['training']:.0f} s" if "training" in row else ""
        rows.append((kind, row["pnl"], lead(record, kind), row["note"], took))
    for name, row in record["rows"].items():
        if "score" in row:
            best = lead(record, "scripted") if name == record["scripted"] else ""
            rows.append((f"scripted: {name}", row["pnl"], best, row["note"], ""))
    if record.get("stacked"):
        one, ahead = record["stacked"], plus_minus(record["leads"]["PPO stacked"], digits)
        note = f"sees {one['stack']} moves and volumes; {seeds(one)}"
        rows.append(("PPO, stacked", one["pnl"], ahead, note, f"{one['seconds']:.0f} s"))
    for name, one in record.get("further", {}).items():
        used = one["settings"]
        passes = f"{used['update_epochs']} pass" + "es" * (used["update_epochs"] > 1)
        note = f"{used['num_envs']:,} markets, {used['num_steps']} decisions, {passes}; {seeds(one)}"
        rows.append((name, one["pnl"], plus_minus(record["leads"][name], digits), note, f"{one['seconds']:.0f} s"))
    shown = [(name, plus_minus(pnl, digits), *rest) for name, pnl, *rest in sorted(rows, key=lambda row: -row[1][0])]
    return table(("policy", record["measure"], "PPO's lead over it, paired", "parameters", "training"), shown)


def overview(records: Sequence[Mapping[str, Any]]) -> str:
    """Return one row per part."""
    rows = []
    for record in records:
        task, preset = split(record)
        cells = [plus_minus(money(record, kind), digits_of(record)) for kind in KINDS]
        best = max(LINEAR, key=lambda kind: money(record, kind)[0])
        rows.append((TASKS[task], MARKETS[preset], *cells, lead(record, best)))
    heads = ("task", "market", "best scripted", *LINEAR, "PPO", "informed", "PPO's lead over the better linear one")
    return table(heads, rows)


def settings_of(record: Mapping[str, Any]) -> str:
    """Return what PPO was trained with."""
    settings = ", ".join(f"`{name}={value}`" for name, value in record["ppo"].items())
    return f"{settings}; {record['rows']['PPO, seed 1']['note']}, from seed 1"


def engines(records: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Return the parts of each engine. Their machines may differ, which matters where a time ends a search."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        found.setdefault(record["engine"], []).append(record)
    return found


def draw(folder: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """Draw the money of each kind in each part of the first engine."""
    first = next(iter(engines(records).values()))

    def panel(record: Mapping[str, Any]) -> Any:
        task, preset = split(record)

        def bars(axes: Any) -> None:
            means, halves = zip(*(money(record, kind) for kind in KINDS), strict=True)
            axes.bar(np.arange(len(KINDS)), means, 0.7, yerr=halves, color=COLOURS, capsize=3)
            seeds = record["learned"]["seeds"]
            axes.plot([KINDS.index("learned")] * len(seeds), seeds, "k.", ms=4)
            axes.axhline(0, color=plots.GREY, lw=0.8)
            axes.set_xticks(range(len(KINDS)), ["scripted", "linear", "linear,\nsizes", "PPO", "informed"], fontsize=8)
            axes.set(
                title=f"{TASKS[task]}, {preset}", ylabel="ticks per unit" if digits_of(record) else "ticks x units"
            )

        return bars

    panels = [panel(record) for record in first]
    plots.save_panels(folder / "baselines.png", panels, columns=min(3, len(first)), size=(4.0, 3.0))
