"""The page and the picture of `python -m scripts.pages.baselines`, from its figures alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kineticsim_env.studies import plots
from scripts.pages.markdown import table, wrapped

TASKS = {"MarketMaking": "Market making", "Execution": "Execution", "Trading": "Trading"}
MARKETS = {"trading": "call auctions (`trading`)", "news": "continuous trading (`news`)"}
KINDS = ("scripted", "linear", "linear, sizes too", "learned", "informed")
COLOURS = (plots.GREY, "#d08a1d", "#8a6d1d", plots.BUY, plots.SELL)


def pm(interval: Sequence[float], digits: int = 0) -> str:
    """Return a mean and half of its 95% interval."""
    return f"{interval[0]:,.{digits}f} ± {interval[1]:,.{digits}f}"


def split(record: Mapping[str, Any]) -> tuple[str, str]:
    """Return the task and the preset of a part."""
    task, preset = record["part"].split(":")
    return task, preset


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


def results(record: Mapping[str, Any]) -> str:
    """Return the table of a part."""
    digits, rows = digits_of(record), []
    for kind in sorted(KINDS, key=lambda kind: -money(record, kind)[0]):
        if kind == "learned":
            last = record["rows"]["PPO, seed 1"]
            seeds = " ".join(f"{mean:,.{digits}f}" for mean in record["learned"]["seeds"])
            note = f"seeds: {seeds}; {last['note'].partition(',')[0]} each" if digits else f"seeds: {seeds}"
            rows.append(["**PPO**", pm(money(record, kind), digits), "", note, f"{record['learned']['seconds']:.0f} s"])
            continue
        name = record["scripted"] if kind == "scripted" else kind
        row = record["rows"][name]
        called = f"scripted: {name}" if kind == "scripted" else kind
        lead = record["leads"][name]
        took = f"{row['training']:.0f} s" if "training" in row else ""
        rows.append([called, pm(row["pnl"], digits), pm(lead, digits), row["note"], took])
    if record.get("stacked"):
        one = record["stacked"]
        seeds = " ".join(f"{mean:,.{digits}f}" for mean in one["seeds"])
        note = f"sees {one['stack']} moves and volumes; seeds: {seeds}"
        lead = pm(record["leads"]["PPO stacked"], digits)
        rows.append(["PPO, stacked", pm(one["pnl"], digits), lead, note, f"{one['seconds']:.0f} s"])
    return table(["policy", record["measure"], "PPO's lead over it, paired", "", "training"], rows)


def overview(records: Sequence[Mapping[str, Any]]) -> str:
    """Return one row per part."""
    rows = []
    for record in records:
        task, preset = split(record)
        digits = digits_of(record)
        cells = [pm(money(record, kind), digits) for kind in KINDS]
        best = max(("linear", "linear, sizes too"), key=lambda kind: money(record, kind)[0])
        rows.append([TASKS[task], MARKETS[preset], *cells, pm(record["leads"][best], digits)])
    heads = ["task", "market", "best scripted", "linear", "linear, sizes too", "PPO", "informed"]
    return table([*heads, "PPO's lead over the better linear one"], rows)


def others(record: Mapping[str, Any]) -> str:
    """Return the table of all scripted policies of a part."""
    digits = digits_of(record)
    rows = {name: row for name, row in record["rows"].items() if "score" in row}
    ordered = sorted(rows, key=lambda name: -rows[name]["pnl"][0])
    lines = [[name, pm(rows[name]["pnl"], digits), rows[name]["note"]] for name in ordered]
    return table(["scripted", record["measure"], "parameters"], lines)


def says(record: Mapping[str, Any]) -> str:
    """Say where PPO stands against the others in a part."""
    digits, above, rest = digits_of(record), [], []
    for rival in ("linear", "linear, sizes too", "scripted"):
        name = record["scripted"] if rival == "scripted" else rival
        lead, half = record["leads"][name]
        if apart(record, rival):
            above.append(f"{rival} ({pm((lead, half), digits)})")
        elif lead > half:
            rest.append(f"PPO leads {rival} by {pm((lead, half), digits)} on the same episodes; the intervals overlap")
        elif lead < -half:
            rest.append(f"{rival} is ahead of PPO by {pm((-lead, half), digits)}")
        else:
            rest.append(f"PPO and {rival} are not told apart ({pm((lead, half), digits)})")
    first = [f"PPO leads with intervals apart: {', '.join(above)}"] if above else []
    seeds = record["learned"]["seeds"]
    spread = f"Its seeds range from {min(seeds):,.{digits}f} to {max(seeds):,.{digits}f}" if len(seeds) > 1 else ""
    return ". ".join(part for part in [*first, *rest, spread] if part) + "."


def machines(records: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Return the parts of each machine."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        found.setdefault(record["machine"], []).append(record)
    return found


INTRODUCTION = """# Baselines that count

<!-- Written by `python -m scripts.pages.baselines`; edit scripts/pages/baselines_text.py instead. -->

What is learned has to be better than what is found without learning. Each of the three tasks, in call auctions and
under continuous trading, is played by the best scripted policy, by linear policies that CMA-ES found, by PPO from five
seeds, and by those who are told the fundamental price, an upper mark. All play the same held-out episodes.

![liquidated money by task and market](images/baselines.png)
"""
WHO = """## Who plays

- **scripted**: the policy of `examples/scripted_policies.json` that was best on training seeds, its parameters the best
  of a grid there ([training](training.md)).
- **linear**: `clip(W x + b, -1, 1)` on the environment's own observations, scaled, the same for buying and selling in a
  mirror ([`examples/linear_policies.py`](training.md)); found by CMA-ES on liquidated money itself, so no reward and no
  discount was chosen. "Sizes too" also sees the sizes of the moves of the mid and of its inventory, which no linear
  function of them has.
- **PPO**: `examples/ppo_fast.py` with its settings for the market; of each seed the networks that were best at an
  evaluation in training, on other seeds. Its figure is the mean over training seeds, market by market.
- **informed**: `InformedMaker`, `InformedExecutor` and `InformedTrader`, scripted policies that see the fundamental
  price; their parameters are the best of a grid on training seeds.

Money is **liquidated PnL** of an episode in ticks x units; of executors what they made against the arrival price in
ticks per unit of the block. ± is half of a 95% confidence interval over held-out episodes; leads are paired, episode by
episode. Training is the time of the search or of the training on that machine, evaluations in between included;
compiling is not.
"""


def page(records: Sequence[Mapping[str, Any]]) -> str:
    """Return the page."""
    parts = [INTRODUCTION]
    groups = machines(records)
    for machine, here in groups.items():
        parts += [f"## In short: {machine}", overview(here)]
        parts += [
            wrapped(f"{len(here[0]['learned']['seeds'])} training seeds, {here[0]['episodes']:,} held-out episodes.")
        ]
    parts.append(WHO)
    for machine, here in groups.items():
        for record in here:
            task, preset = split(record)
            where = "" if len(groups) == 1 else f", {record['engine']}"
            parts += [f"## {TASKS[task]}, {MARKETS[preset]}{where}", results(record), wrapped(says(record))]
            settings = ", ".join(f"`{name}={value}`" for name, value in record["ppo"].items())
            parts += [wrapped(f"PPO: {settings}; {record['rows']['PPO, seed 1']['note']}, from seed 1.")]
            if here is next(iter(groups.values())):
                parts += [others(record)]
            parts += [wrapped(f"Measured on {record['date']} with `{record['command']}`, {machine}.")]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def draw(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """Draw the money of each kind in each part of the first machine."""
    first = next(iter(machines(records).values()))

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

    plots.save_panels(path, [panel(record) for record in first], columns=min(3, len(first)), size=(4.0, 3.0))
