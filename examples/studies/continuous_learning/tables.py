"""The tables and the picture of README.md, from results.json."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from examples.studies.continuous_learning.places import HOLD
from kineticsim_env import plots
from scripts.pages.markdown import plus_minus, table

__all__ = [
    "HOLD", "LEARNED", "best_first", "late", "latency_table", "makers_table", "places_table", "trainings",
    "under_table", "verdict",
]  # fmt: skip
LEARNED = "PPO (learned)"
COLOURS = (plots.BUY, "#d08a1d", plots.SELL)


def late(latency: int | str, interval: int) -> str:
    """Say when quotes arrive."""
    return {0: "at once", interval // 2: "half an interval late"}.get(int(latency), "an interval late")


def trainings(found: dict[str, Any]) -> list[list[str]]:
    """Return the rows of the table of trainings, one per learner."""
    makers = {f"maker, {late(latency, found['interval'])}": one for latency, one in found["makers"].items()}
    rows = []
    for learner, record in [*makers.items(), ("executor", found["executor"])]:
        last, digits = record["curve"][-1], 3 if learner == "executor" else 0
        row = [found["machine"], learner, f"{record['args']['num_envs']:,}", f"{last['steps'] / 1e6:,.1f} M"]
        row += [f"{last['seconds']:.1f} s", plus_minus(record["pnl"][LEARNED], digits)]
        row += [f"{record['rival']}: {plus_minus(record['pnl'][record['rival']], digits)}"]
        row += [plus_minus(record["lead"], digits)]
        rows.append([*row, f"{record['ahead']['seconds']:.1f} s" if record["ahead"] else "never"])
    return rows


def verdict(record: dict[str, Any]) -> str:
    """Say how the learner stands to the scripted policies: whether its interval is above that of every one."""
    mean, half = record["pnl"][LEARNED]
    if all(mean - half > other + width for name, (other, width) in record["pnl"].items() if name != LEARNED):
        return "ahead of every scripted one, intervals apart"
    lead, half = record["lead"]
    return "ahead of every scripted one, in paired differences" if lead > half else "not ahead"


def latency_table(makers: dict[str, dict[str, Any]], interval: int) -> str:
    """Return the learned maker beside the best scripted one, by latency."""
    rows = []
    for latency, one in makers.items():
        pnl, rival = one["pnl"], one["rival"]
        cells = plus_minus(pnl[LEARNED]), f"{rival}: {plus_minus(pnl[rival])}", plus_minus(one["lead"]), verdict(one)
        rows.append((late(latency, interval), *cells))
    return table(("quotes arrive", "learned maker", "best scripted maker", "lead", "learned is"), rows)


def best_first(pnl: dict[str, Sequence[float]]) -> list[str]:
    """Return the names of policies, best mean first."""
    return sorted(pnl, key=lambda name: -pnl[name][0])


def makers_table(makers: dict[str, dict[str, Any]], interval: int) -> str:
    """Return the table of all makers under each latency."""

    def cell(one: dict[str, Any], name: str) -> str:
        note = one["notes"].get(name, "").partition(" (best")[0]
        return plus_minus(one["pnl"][name]) + (f" ({note})" if note else "")

    rows = [[name, *(cell(one, name) for one in makers.values())] for name in best_first(makers["0"]["pnl"])]
    return table(["maker", *(late(latency, interval) for latency in makers)], rows)


def under_table(makers: dict[str, dict[str, Any]], interval: int) -> str:
    """Return what each learned maker earns under every latency."""
    names = [late(latency, interval) for latency in makers]
    rows = [(name, *map(plus_minus, one["under"].values())) for name, one in zip(names, makers.values(), strict=True)]
    return table(("trained with quotes that arrive", *(f"played {name}" for name in names)), rows)


def places_table(makers: dict[str, dict[str, Any]], interval: int) -> str:
    """Return who keeps places in queues, and what these are worth."""
    rows = []
    for latency, one in makers.items():
        for maker, played in one["places"].items():
            counts = f"{played['kept']:.0%}", f"{played['traded']:.2f}", f"{played['inventory']:.1f}"
            worth = (plus_minus(played[name]) for name in ("pnl", "end", "front"))
            rows.append((late(latency, interval), maker, *counts, *worth))
    heads = "quotes arrive", "maker", "kept", "units per decision", "mean inventory", "PnL", "at the end", "in front"
    return table(heads, rows)


def draw(folder: Path, found: dict[str, Any]) -> None:
    """Draw the learning curves, and the learner beside the best scripted maker under each latency."""
    makers, interval = found["makers"], found["interval"]

    def curves(axes: Any) -> None:
        for (latency, one), colour in zip(makers.items(), COLOURS, strict=False):
            steps, pnl, half = (np.array([point[key] for point in one["curve"]]) for key in ("steps", "pnl", "half"))
            axes.fill_between(steps / 1e6, pnl - half, pnl + half, color=colour, alpha=0.2, lw=0)
            axes.plot(steps / 1e6, pnl, marker=".", color=colour, label=late(latency, interval))
            axes.axhline(one["pnl"][one["rival"]][0], color=colour, ls="--", lw=1)
        best = [value for one in makers.values() for value in (one["pnl"][LEARNED][0], one["pnl"][one["rival"]][0])]
        axes.set_ylim(bottom=min(0.0, *best) - 0.2 * max(map(abs, best)))
        axes.set(title="Learning (dashed: the best scripted maker)", xlabel="training decisions, millions")
        axes.set_ylabel("liquidated PnL, ticks x units")
        axes.legend(fontsize=8, title="quotes arrive", title_fontsize=8, loc="lower right")

    def bars(axes: Any) -> None:
        for shift, key, colour in ((-0.2, LEARNED, plots.BUY), (0.2, "rival", plots.GREY)):
            values = [one["pnl"][one["rival"] if key == "rival" else key] for one in makers.values()]
            at = np.arange(len(values)) + shift
            label = "PPO" if key == LEARNED else "best scripted maker"
            means, halves = zip(*values, strict=True)
            axes.bar(at, means, 0.38, yerr=halves, color=colour, label=label, capsize=3)
        axes.axhline(0, color=plots.GREY, lw=0.8)
        axes.set_xticks(range(len(makers)), [late(latency, interval) for latency in makers])
        axes.set(title="Held-out episodes", ylabel="liquidated PnL, ticks x units", xlabel="quotes arrive")
        axes.legend(fontsize=8)

    plots.save_panels(folder / "continuous_learning.png", [curves, bars], size=(6.0, 4.1))
