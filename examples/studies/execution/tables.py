"""What the blocks of README.md look up, and their tables; and the picture, which `__main__.py` has drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from examples.studies.execution import study
from kineticsim_env import plots
from kineticsim_env.statistics import Mean
from scripts.pages.markdown import pm, table

Found = Mapping[str, Any]
REFERENCE, FAST = "TWAP", "at once"
SCHEDULES = (REFERENCE, *(f"Almgren-Chriss {risk:g}" for risk in study.RISKS), FAST)  # from slow to fast
MIDDLE = study.SIZES[len(study.SIZES) // 2]
FIRST, *AUCTIONS = study.RULES
WAYS = {  # of the pieces of a block, in words: events between them, and the ticks through the mid
    f"takes, every {study.COARSE} events": (study.COARSE, study.TAKE),
    f"takes, every {study.FINE} events": (study.FINE, study.TAKE),
    f"at the mid, every {study.FINE}": (study.FINE, study.AT_MID),
    f"{-study.WAIT} ticks behind, every {study.FINE}": (study.FINE, study.WAIT),
}
_COLOURS = dict(zip(study.RULES, ("#c8452f", "#8fb8de", "#1f6fb4", "#0d2f57"), strict=True))


def pick(rows: Sequence[Mapping[str, Any]], **wanted: Any) -> Mapping[str, Any]:
    """Return the row with these values."""
    return next(row for row in rows if all(row[name] == value for name, value in wanted.items()))


def at(found: Found, rule: str, size: int, policy: str, name: str = "cost") -> Mean:
    """Return a figure of an executor under a rule."""
    return Mean(*pick(found["rows"], rule=rule, size=size, policy=policy)[name])


def even(found: Found, rule: str, events: int, size: int, way: tuple[int, int], name: str = "cost") -> Mean:
    """Return a figure of a block that is spread evenly: over so many events, with pieces of `WAYS`."""
    wanted = {"rule": rule, "events": events, "size": size, "every": way[0], "ticks": way[1]}
    return Mean(*pick(found["paced"], **wanted)[name])


def less(found: Found, rule: str, events: int, size: int) -> Mean:
    """Return what the rule's best price costs less than that of continuous trading, at the same pace."""
    return Mean(*pick(found["best"], rule=rule, events=events, size=size)["less"])


def pace_table(found: Found, size: int) -> str:
    """Return the table of what a block costs at equal paces, by rule."""
    rows = [
        [f"{events:,}", words, *(pm(even(found, rule, events, size, way), 2) for rule in study.RULES)]
        for events in study.TIMES
        for words, way in WAYS.items()
    ]
    return table(("events", "pieces", *study.RULES), rows, [True, False] + [True] * len(study.RULES))


def policy_table(found: Found, rules: Sequence[str], size: int) -> str:
    """Return the table of executors: what a block of a size costs and risks, and how late it is done."""
    policies = list(dict.fromkeys(row["policy"] for row in found["rows"]))
    rows = []
    for policy in policies:
        cells = [policy]
        for rule in rules:
            cost, risk, time = (at(found, rule, size, policy, name) for name in ("cost", "risk", "time"))
            cells += [pm(cost, 2), pm(risk, 1), f"{time.mean:,.0f}"]
        rows.append(cells)
    heads = [f"{rule}: {name}" for rule in rules for name in ("cost", "risk", "time")]
    return table(("executor", *heads), rows, [False] + [True] * len(heads))


def learned_table(found: Found) -> str:
    """Return the table of learned executors, those that look beside those that see nothing."""
    rows = []
    for looks in (row for row in found["learned"] if row["looks"]):
        blind = pick(found["learned"], rule=looks["rule"], weight=looks["weight"], looks=False)
        cells = [looks["rule"], f"{looks['weight']:g}"]
        for row in (looks, blind):
            cells += [pm(Mean(*row["cost"]), 2), pm(Mean(*row["risk"]), 1), f"{row['time'][0]:,.0f}"]
        cells += [pm(Mean(*looks["less_blind"]), 2), looks["best"], pm(Mean(*looks["less"]), 2)]
        rows.append(cells)
    heads = ["rule", "weight of risk"]
    heads += [f"{name}: {figure}" for name in ("looks", "blind") for figure in ("cost", "risk", "time")]
    heads += ["goal, less the blind one's", "best schedule", "goal, less its"]
    return table(heads, rows, [False, *[True] * 8, False, True])


def draw(folder: Path, found: Found) -> None:
    """Write the picture: for two sizes the cost at each pace, and below it the frontier of each rule."""
    sizes = study.SIZES[1:]
    panels = [lambda axes, size=size: _by_pace(axes, found, size) for size in sizes]
    panels += [lambda axes, size=size: _frontier(axes, found, size) for size in sizes]
    plots.save_panels(folder / "execution.png", panels, size=(6.2, 4.2))


def _by_pace(axes: Any, found: Found, size: int) -> None:
    styles = {(study.FINE, study.TAKE): "-", (study.COARSE, study.TAKE): ":", (study.FINE, study.WAIT): "--"}
    for rule, colour in _COLOURS.items():
        for way, style in styles.items():
            values = [even(found, rule, events, size, way) for events in study.TIMES]
            plots.means(axes, study.TIMES, values, colour, rule if style == "-" else "_", ls=style)
    axes.set(
        title=f"{size} units at the same pace",
        xlabel=f"events of the block (dotted: pieces per {study.COARSE} events; dashed: {-study.WAIT} ticks behind)",
        ylabel="cost, ticks per unit",
        xscale="log",
    )
    axes.set_xticks(study.TIMES, [f"{events:,}" for events in study.TIMES])
    axes.minorticks_off()
    axes.legend(fontsize=8)


def _frontier(axes: Any, found: Found, size: int) -> None:
    policies = dict.fromkeys(row["policy"] for row in found["rows"] if row["policy"] != "at the deadline")
    for rule, colour in _COLOURS.items():
        cost, risk = ([at(found, rule, size, policy, name) for policy in SCHEDULES] for name in ("cost", "risk"))
        error = [value.interval() for value in risk]
        plots.means(axes, [value.mean for value in risk], cost, colour, rule, xerr=error, lw=1.2, elinewidth=0.6)
        others = [policy for policy in policies if policy not in SCHEDULES]
        points = [[at(found, rule, size, policy, name).mean for policy in others] for name in ("risk", "cost")]
        axes.plot(*points, "x", ms=5, color=colour)
        if size == MIDDLE:
            for row in (row for row in found["learned"] if row["rule"] == rule):
                axes.plot(row["risk"][0], row["cost"][0], "*" if row["looks"] else "P", ms=9, color=colour)
    axes.set(title=f"A block of {size} units", xlabel="risk: deviation, ticks per unit", ylabel="cost, ticks per unit")
    axes.legend(fontsize=8)
