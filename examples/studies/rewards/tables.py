"""The tables of README.md, which its blocks make of results.json and learning.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from examples.studies.rewards.study import DAMPENING, GRIDS, IDLE, RISK_AVERSION, policies_of
from kineticsim_env.tasks import ExecutionTask, MarketMakingTask, TradingTask
from scripts.pages.blocks import table

__all__ = [
    "DAMPENING", "DEFAULTS", "FORMER", "IDLE", "RISK_AVERSION", "WHO", "default_table", "grid_of", "learning_table",
    "policies_of", "reward_table", "row_of", "verdicts",
]  # fmt: skip
DEFAULTS = {
    "MarketMaking": (MarketMakingTask.reward, MarketMakingTask.mark),
    "Trading": (TradingTask.reward, TradingTask.mark),
    "Execution": (ExecutionTask.reward, ""),
}
FORMER = {"MarketMaking": ("inventory, 0.01", "fundamental"), "Trading": ("inventory, 0.002", "fundamental")}
WHO = {"MarketMaking": "maker", "Trading": "trader", "Execution": "executor"}
Figures = Mapping[str, Any]


def row_of(figures: Figures, name: Sequence[str]) -> Figures:
    """Return the figures of a reward and mark in one task and market."""
    return next(row for row in figures["rewards"] if (row["reward"], row["mark"]) == tuple(name))


def verdicts(markets: Figures, reward: str, mark: str | None = None, measure: str = "score") -> list[Figures]:
    """Return what was found of a reward in every market and task, of all its marks if none is named."""
    return [
        row[measure]
        for tasks in markets.values()
        for figures in tasks.values()
        for row in figures["rewards"]
        if row["reward"].startswith(reward) and mark in (None, row["mark"]) and measure in row
    ]


def grid_of(task: str) -> str:
    """Return how many policies there are, and the values of each parameter."""
    said = [f"`{name}` {', '.join(f'{value:g}' for value in values)}" for name, values in GRIDS[task].items()]
    return f"{len(policies_of(task))}: {'; '.join(said)}"


def reward_table(markets: Figures, task: str, measure: str = "score") -> str:
    """Return the table of a task: rewards by market, held to the score, or if "adjusted" to it less their risk."""
    heads = [WHO[task], *(f"`{preset}`: {what}" for preset in markets for what in ("agrees", "its best"))]
    rows = []
    for place, row in enumerate(next(iter(markets.values()))[task]["rewards"]):
        if measure not in row:
            continue
        name = row["reward"] + (f", {row['mark']}" if row["mark"] else "")
        cells = [f"**{name}**" if (row["reward"], row["mark"]) == DEFAULTS[task] else name]
        for figures in markets.values():
            verdict = figures[task]["rewards"][place][measure]
            cells += [_agrees(verdict), _pm(*verdict["gap"], task)]
        rows.append(cells)
    return table(heads, rows)


def default_table(markets: Figures) -> str:
    """Return the table of the defaults."""
    rows = []
    for preset, tasks in markets.items():
        for task, figures in tasks.items():
            verdict = row_of(figures, DEFAULTS[task])["score"]
            best = ", ".join(f"{name} {value:g}" for name, value in verdict["best"].items())
            money = (_pm(*verdict[name], task) for name in ("earns", "gap"))
            rows.append((f"`{preset}`", WHO[task], _agrees(verdict), best, *money))
    return table(("market", "who", "agrees", "its best policy", "earns", "beside the score's best"), rows)


def learning_table(learned: Figures) -> str:
    """Return what PPO's policies earn by market, task and reward, one number per training seed."""
    names = list(dict.fromkeys(row["reward"] for row in learned["rows"]))
    places = list(dict.fromkeys((row["preset"], row["task"]) for row in learned["rows"]))
    runs = {(row["preset"], row["task"], row["reward"]): row["runs"] for row in learned["rows"]}

    def cell(*which: str) -> str:
        return "; ".join(f"{pnl:,.0f} ± {half:,.0f}" for pnl, half in runs.get(which, ()))

    rows = [[f"`{preset}`", WHO[task], *(cell(preset, task, name) for name in names)] for preset, task in places]
    return table(["market", "who", *(f"`{name}`" for name in names)], rows)


def _agrees(verdict: Figures) -> str:
    value, low, high = verdict["agrees"]
    return f"{value:.3f} ({low:.3f} to {high:.3f})"


def _pm(value: float, half: float, task: str) -> str:
    digits = 2 if task == "Execution" else 0
    return f"{value:,.{digits}f} ± {half:,.{digits}f}" if half else "0"
