"""What an evaluation returns, its intervals, and tables of several."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import numpy as np

from kineticsim_env.runtime.values import check_array, check_choice, check_dict, check_instance, show
from kineticsim_env.statistics.over_markets import half_width
from kineticsim_env.tasks import TASKS
from kineticsim_env.tasks.base import ForBlocks

_HAVE_BLOCKS = tuple(name for name, task in TASKS.items() if issubclass(task, ForBlocks))
MEASURES = {  # what `Evaluation.pnl` is
    name: "made against arrival, ticks per unit" if name in _HAVE_BLOCKS else "liquidated PnL, ticks" for name in TASKS
}


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Whole episodes of one policy in M markets."""

    # float64 [M]: cash after unwinding, less fees, in ticks; of an executor its price improvement, in ticks per unit of
    # its block; of a noise learner minus the cost of its trades, in ticks: its rewards times the task's `reward_scale`
    pnl: np.ndarray
    episode_return: np.ndarray  # float64 [M]: sum of rewards
    traded: np.ndarray  # float64 [M]: units bought and sold per decision, of full length where events end decisions
    inventory: np.ndarray  # float64 [M]: mean absolute inventory at decisions, weighted by how long they were

    def pnl_interval(self) -> tuple[float, float]:
        """Return the mean liquidated PnL and the half width of its 95% confidence interval."""
        return confidence_interval(self.pnl)


def confidence_interval(values: np.ndarray) -> tuple[float, float]:
    """Return the mean and the half width of its 95% interval, by Student's t; of one value nan."""
    values = check_array("values", values, "an array [M] of numbers")
    if values.ndim != 1 or not len(values):
        raise ValueError(f"values: expected [M] with M from 1, got the shape {list(values.shape)}")
    return float(values.mean()), float(half_width(_deviation(values) / len(values) ** 0.5, len(values)))


def _deviation(values: np.ndarray) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else math.nan


def format_table(
    results: Mapping[str, Evaluation], notes: Mapping[str, str] | None = None, task: str = "MarketMaking"
) -> str:
    """Return a Markdown table of evaluations, best first, with 95% confidence intervals.

    Args:
        results: Evaluations by the policy's name.
        notes: What else to say about a policy, such as its parameters.
        task: As in `evaluation_env`.
    """
    for name, result in check_dict("results", results, "a dict of Evaluations").items():
        check_instance(f"results[{show(name)}]", result, Evaluation)
    notes = check_dict("notes", {} if notes is None else notes, "a dict of texts, None")
    check_choice("task", task, MEASURES)
    digits = 3 if task in _HAVE_BLOCKS else 0
    lines = [
        f"| policy | {MEASURES[task]} | its sd | units per decision | mean inventory | return | parameters |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    for name, result in sorted(results.items(), key=lambda item: -item[1].pnl.mean()):
        mean, half = result.pnl_interval()
        score = f"{mean:.{digits}f} ± {half:.{digits}f} | {_deviation(result.pnl):.{digits}f}"
        lines.append(
            f"| {name} | {score} | {result.traded.mean():.2f} | {result.inventory.mean():.1f} "
            f"| {result.episode_return.mean():.1f} | {notes.get(name, '')} |"
        )
    return "\n".join(lines)
