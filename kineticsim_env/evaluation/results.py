"""What an evaluation returns, its intervals, and tables of several."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import numpy as np

from kineticsim_env.evaluation import risk
from kineticsim_env.runtime.values import check_choice, check_dict, check_instance, show
from kineticsim_env.statistics.over_markets import Mean
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
    final_inventory: np.ndarray  # float64 [M]: units held where the episode ended, before they were unwound; with sign
    # float64 [M]: the largest fall of the marked account (cash, and inventory at the task's mark, or the fundamental
    # price where it has none, less fees) from its highest since the episode began, as decisions end, ticks x units
    drawdown: np.ndarray
    offered: np.ndarray  # float64 [M]: as `traded`, units bought and sold, and those that stand as decisions end
    turnover: np.ndarray  # float64 [M]: value of what was traded, at the mid as its decision ends, ticks x units
    at_limit: np.ndarray  # float64 [M]: share of decisions with an inventory at its limit, weighted as `inventory`

    def pnl_interval(self) -> tuple[float, float]:
        """Return the mean liquidated PnL and the half width of its 95% confidence interval."""
        return confidence_interval(self.pnl)

    def figures(self) -> dict[str, Mean]:
        """Return what tables have of the episodes, each a `Mean` with its standard error and `interval()`.

        `"mean"`, `"standard_deviation"`, `"sharpe_ratio"` (per episode: mean by standard deviation) and `"cvar"` (the
        mean of the worst 5%) are of `pnl`, with the formulas of `evaluation.risk`; `"traded"`, `"inventory"`,
        `"drawdown"`, `"turnover"`, `"at_limit"` and `"episode_return"` are means of these fields, `"final_inventory"`
        that of its absolute values, and `"fill_ratio"` is the mean of `traded` by that of `offered`.
        """
        return {
            "mean": risk.average(self.pnl),
            "standard_deviation": risk.standard_deviation(self.pnl),
            "sharpe_ratio": risk.sharpe_ratio(self.pnl),
            "cvar": risk.cvar(self.pnl),
            "traded": risk.average(self.traded),
            "inventory": risk.average(self.inventory),
            "final_inventory": risk.average(np.abs(self.final_inventory)),
            "at_limit": risk.average(self.at_limit),
            "drawdown": risk.average(self.drawdown),
            "fill_ratio": risk.ratio(self.traded, self.offered),
            "turnover": risk.average(self.turnover),
            "episode_return": risk.average(self.episode_return),
        }


def confidence_interval(values: np.ndarray) -> tuple[float, float]:
    """Return the mean and the half width of its 95% interval, by Student's t; of one value nan."""
    found = risk.average(values)
    return found.mean, found.interval()


def format_table(
    results: Mapping[str, Evaluation],
    notes: Mapping[str, str] | None = None,
    task: str = "MarketMaking",
    paired_with: str | None = None,
) -> str:
    """Return a Markdown table of evaluations, best first, with 95% confidence intervals.

    Its columns are those of `Evaluation.figures`; Sharpe ratios are per episode, and the 5% CVaR is the mean of the
    worst 5% of episodes.

    Args:
        results: Evaluations by the policy's name.
        notes: What else to say about a policy, such as its parameters.
        task: As in `evaluation_env`.
        paired_with: The name of a result of the same episodes: a column has what it made less what each other did, the
            mean of the differences episode by episode.
    """
    for name, result in check_dict("results", results, "a dict of Evaluations").items():
        check_instance(f"results[{show(name)}]", result, Evaluation)
    notes = check_dict("notes", {} if notes is None else notes, "a dict of texts, None")
    check_choice("task", task, MEASURES)
    check_choice("paired_with", paired_with, results, optional=True)
    digits = 3 if task in _HAVE_BLOCKS else 0
    heads = ["policy", MEASURES[task], *([f"{paired_with} less this one"] if paired_with is not None else []), *_HEADS]
    lines = [f"| {' | '.join(heads)} |", f"|---|{'---:|' * (len(heads) - 2)}---|"]
    for name, result in sorted(results.items(), key=lambda item: -item[1].pnl.mean()):
        found = result.figures()
        cells = [name, _with_interval(found["mean"], digits)]
        if paired_with is not None:
            less = "" if name == paired_with else _with_interval(difference(results[paired_with], result), digits)
            cells.append(less)
        cells += [f"{found['standard_deviation'].mean:.{digits}f}", _with_interval(found["sharpe_ratio"], 2)]
        cells += [_with_interval(found["cvar"], digits), f"{found['traded'].mean:.2f}"]
        cells += [f"{found[key].mean:.1f}" for key in ("inventory", "final_inventory")]
        cells += [_share(found["at_limit"]), f"{found['drawdown'].mean:.0f}", _share(found["fill_ratio"])]
        cells += [f"{found['turnover'].mean:.0f}", f"{found['episode_return'].mean:.1f}"]
        lines.append(f"| {' | '.join([*cells, notes.get(name, '')])} |")
    return "\n".join(lines)


_HEADS = (
    *("its sd", "Sharpe ratio", "5% CVaR", "units per decision", "mean inventory", "final inventory"),
    *("at the limit", "drawdown", "fill ratio", "turnover", "return", "parameters"),
)


def difference(one: Evaluation, other: Evaluation) -> Mean:
    """Return how much more `pnl` one made than another in the same episodes: the mean of their paired differences.

    Both have to be of the same seeds, which results do not say; they are refused if one has more episodes.
    """
    check_instance("one", one, Evaluation), check_instance("other", other, Evaluation)
    if len(one.pnl) != len(other.pnl):
        raise ValueError(f"other: expected {len(one.pnl)} episodes, as the first has, got {len(other.pnl)}")
    return risk.average(one.pnl - other.pnl)


def _share(value: Mean) -> str:
    return "–" if math.isnan(value.mean) else f"{value.mean:.1%}"


def _with_interval(value: Mean, digits: int) -> str:
    if math.isnan(value.mean):  # the Sharpe ratio of who never trades
        return "–"
    return f"{value.mean:.{digits}f} ± {value.interval():.{digits}f}"
