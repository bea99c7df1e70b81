"""The figures of results.json from the trainings, and the tables and the picture of README.md from these."""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from examples.studies.orders.study import FREQUENT, LEVELS, PRESETS, QTY, VARIANTS, Asked, events_of
from kineticsim_env import plots
from kineticsim_env.statistics import Mean, mean_and_error
from scripts.pages.blocks import above, below, joined, plus_minus, table

__all__ = [
    "FREQUENT", "LEVELS", "QTY", "behaviour_table", "complete", "lead", "leads_table", "money_table", "said_of",
    "training_table",
]  # fmt: skip
PLAIN = "plain"
RIVALS = {  # whom else they are held against, beside the plain one
    "fill": ["as often as fill"],
    "touch": ["shorter than touch", "longer than touch"],
    "keep, ladder": ["ladder"],
}
NAMES = {  # in the order of the tables
    PLAIN: "plain",
    "keep": "may keep quotes",
    "ladder": f"ladder of {LEVELS}",
    "keep, ladder": f"ladder of {LEVELS}, may keep quotes",
    "fill": "decides at its fills",
    "as often as fill": "plain, about as often as with fills",
    "touch": "decides as the touch moves",
    "shorter than touch": "plain, more often than with the touch",
    "longer than touch": "plain, less often than with the touch",
}
Figures = Mapping[str, Any]


# From the trainings ---------------------------------------------------------------------------------------------------


def summary(records: Sequence[Figures]) -> dict[str, Any]:
    """Return the figures of all that was trained of every preset and variant, and the paired differences."""
    of: dict[Asked, dict[int, Figures]] = collections.defaultdict(dict)
    for record in records:
        of[Asked(*record["asked"])][record["seed"]] = record
    found: dict[str, Any] = {}
    for preset in PRESETS:
        chosen = {}
        for variant in NAMES:
            tried = [runs for asked, runs in of.items() if (asked.preset, asked.variant) == (preset, variant)]
            if tried:
                chosen[variant] = max(tried, key=len)
        found[preset] = {
            "interval": events_of(preset),
            "makers": {variant: _figures(variant, chosen) for variant in chosen},
        }
    return {"presets": found}


def _figures(variant: str, chosen: Mapping[str, Mapping[int, Figures]]) -> dict[str, Any]:
    """Return what the page says of a variant in a preset."""
    runs = [chosen[variant][seed] for seed in sorted(chosen[variant])]
    first = runs[0]
    means = {name: float(np.mean([run[name] for run in runs])) for name in ("decisions", "traded", "inventory")}
    means |= {name: float(np.mean([run[name] for run in runs])) for name in ("quoted", "kept", "events", "seconds")}
    pnl = [float(np.mean(run["pnl"])) for run in runs]
    rivals = [rival for rival in (PLAIN, *RIVALS.get(variant, [])) if rival in chosen and rival != variant]
    return {
        "longest": first["asked"][2],
        "settings": first["settings"],
        "steps": first["steps"],
        "updates": first["updates"],
        **means,
        "seeds": sorted(chosen[variant]),
        "pnl": pnl,
        "mean": mean_and_error(pnl),
        "curve": np.mean([run["curve"] for run in runs], axis=0).tolist(),
        "leads": {rival: _lead(chosen[variant], chosen[rival]) for rival in rivals},
    }


def _lead(runs: Mapping[int, Figures], others: Mapping[int, Figures]) -> dict[str, Any]:
    """Return the mean difference of each seed that both have, over the same episodes, and that of the seeds."""
    both = sorted(runs.keys() & others.keys())
    seeds = [float(np.mean(np.subtract(runs[seed]["pnl"], others[seed]["pnl"]))) for seed in both]
    return {"seeds": seeds, "mean": mean_and_error(seeds)}


# Tables ---------------------------------------------------------------------------------------------------------------


def complete(found: Figures) -> bool:
    """Return whether every variant was trained in every preset."""
    return all(set(part["makers"]) == set(VARIANTS) for part in found["presets"].values())


def lead(part: Figures, variant: str, rival: str = PLAIN) -> Mean:
    """Return the mean of the seeds' paired differences between two variants of a preset."""
    return Mean(*part["makers"][variant]["leads"][rival]["mean"])


def events(part: Figures, maker: Figures) -> float:
    """Return the events of a decision, in the mean over held-out episodes."""
    total = part["makers"][PLAIN]["decisions"] * part["interval"]
    return total / maker["decisions"]


def money_table(part: Figures) -> str:
    """Return what the makers of a preset earn, and how much more than the plain one in the same episodes."""
    rows = []
    for variant, maker in part["makers"].items():
        more = ["", ""]
        if PLAIN in maker["leads"]:
            seeds = ", ".join(f"{one:z,.0f}" for one in maker["leads"][PLAIN]["seeds"])
            more = [_signed(lead(part, variant)), seeds]
        actions, lasts = str(maker["settings"]["actions"]), f"{events(part, maker):.1f}"
        earned = Mean(*maker["mean"])
        pnl = plus_minus((earned.mean, earned.interval()))
        rows.append([NAMES[variant], actions, lasts, pnl, *more])
    heads = "maker", "numbers", "events per decision", "PnL", "more than plain", "of each seed"
    return table(heads, rows, (False, True, True, True, True, False))


def leads_table(found: Figures) -> str:
    """Return decisions at events held against as frequent ones, and kept quotes in ladders against ladders alone."""
    rows = []
    for preset, part in found["presets"].items():
        for variant, maker in part["makers"].items():
            for rival in maker["leads"]:
                if rival != PLAIN:
                    other = part["makers"][rival]
                    lasts = f"{events(part, maker):.1f}, {events(part, other):.1f}"
                    seeds = ", ".join(f"{one:z,.0f}" for one in maker["leads"][rival]["seeds"])
                    more = _signed(lead(part, variant, rival))
                    rows.append([f"`{preset}`", NAMES[variant], NAMES[rival], lasts, more, seeds])
    return table(("preset", "maker", "held against", "events per decision", "more", "of each seed"), rows)


def behaviour_table(part: Figures) -> str:
    """Return what the makers of a preset do."""
    rows = []
    for variant, maker in part["makers"].items():
        kept = f"{maker['kept']:.0%}" if "keep" in variant else ""
        counts = f"{maker['traded']:.2f}", f"{maker['inventory']:.1f}", f"{maker['quoted']:.1f}"
        rows.append([NAMES[variant], *counts, kept])
    heads = "maker", "units per interval", "inventory", "units asked for per side", "sides kept"
    return table(heads, rows, (False, True, True, True, True))


def training_table(found: Figures) -> str:
    """Return how long everyone was trained, and what it was paid on the way, while it tried actions."""
    rows = []
    for preset, part in found["presets"].items():
        for variant, maker in part["makers"].items():
            steps, paid = np.array(maker["curve"]).T
            quarters = [f"{np.interp(share * steps[-1], steps, paid):z.2f}" for share in (0.25, 0.5, 0.75, 1.0)]
            trained = f"{maker['steps'] / 1e6:,.1f} M", f"{maker['events'] / 1e6:,.0f} M", f"{maker['seconds']:.1f} s"
            rows.append([f"`{preset}`", NAMES[variant], *trained, *quarters])
    heads = "preset", "maker", "decisions", "events", "time", "a quarter", "half", "three quarters", "all"
    return table(heads, rows, (False, False, *(7 * [True])))


def said_of(found: Figures, variant: str, rival: str = PLAIN) -> str:
    """Say what the intervals carry of a variant held against another one, preset by preset."""
    said = []
    for preset, part in found["presets"].items():
        maker = part["makers"].get(variant)
        if maker is None or rival not in maker["leads"]:
            continue
        more = lead(part, variant, rival)
        word = "earns more" if above(more) else "earns less" if below(more) else "earns neither more nor less"
        said.append(f"in `{preset}` it {word} ({_signed(more)})")
    return joined(said) if said else "it was not trained"


def _signed(value: Mean) -> str:
    """Return a difference with its sign, and half of its interval."""
    return f"{value.mean:+z,.0f} ± {value.interval():,.0f}"


# The picture ----------------------------------------------------------------------------------------------------------


def draw(folder: Path, found: Figures) -> None:
    """Draw how much more than the plain one each maker earns: of each seed, and their mean with its interval."""

    def panel(axes: Any, preset: str, part: Figures) -> None:
        makers = [variant for variant in part["makers"] if PLAIN in part["makers"][variant]["leads"]]
        for place, variant in enumerate(reversed(makers)):
            colour = plots.GREY if variant in FREQUENT else plots.BUY
            more = lead(part, variant)
            seeds = part["makers"][variant]["leads"][PLAIN]["seeds"]
            axes.plot(seeds, [place] * len(seeds), "o", ms=3.5, color=colour, alpha=0.5)
            axes.errorbar(more.mean, place, xerr=more.interval(), fmt="D", ms=4.5, color=colour, capsize=3)
        axes.axvline(0, color=plots.GREY, lw=0.8)
        axes.set_yticks(range(len(makers)), [NAMES[variant] for variant in reversed(makers)])
        axes.set(title=preset, xlabel="more than plain, ticks x units per episode")

    parts = [
        lambda axes, preset=preset, part=part: panel(axes, preset, part) for preset, part in found["presets"].items()
    ]
    plots.save_panels(folder / "orders.png", parts, size=(6.0, 3.4))
