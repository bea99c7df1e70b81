"""The text and the picture of docs/execution.md; `execution.py` measures its figures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kineticsim_env.statistics import Mean
from kineticsim_env.studies import execution as study
from kineticsim_env.studies import plots
from scripts.pages.markdown import LEARNED_MAY_DIFFER, joined, page_of, pm, table

Found = Mapping[str, Any]
REFERENCE, FAST = "TWAP", "at once"
SCHEDULES = (REFERENCE, *(f"Almgren-Chriss {risk:g}" for risk in study.RISKS), FAST)  # from slow to fast
_COLOURS = dict(zip(study.RULES, ("#c8452f", "#8fb8de", "#1f6fb4", "#0d2f57"), strict=True))
MIDDLE = study.SIZES[len(study.SIZES) // 2]
_POLICIES = """
- **at once**: as much as one order may have (`ImmediateExecution`), 10 ticks through the mid.
- **TWAP**: evenly over time, 10 ticks through the mid; or priced at the mid, or 2 ticks behind it, and 10 ticks
through in
the last four decisions and where it is a whole order behind.
- **VWAP**: along with the market's volume.
- **Almgren-Chriss**: their schedule for four risk aversions, from a deviation of the mid and a temporary impact that
were measured in each market before; two of them also with orders at the mid.
- **at the deadline**: nothing, until the engine forces the block through.
"""


def page(found: Found) -> str:
    """Return the page in Markdown, of what `execution.py` measured."""
    setting = found["setting"]
    parts = [_answer(found), *_played(setting)]
    parts += ["## Cost against risk", "![cost against risk](images/execution.png)", *_frontiers(found)]
    for rule in study.RULES:
        parts += [f"### {rule[0].upper()}{rule[1:]}", _table(found, rule)]
    parts += [
        *_mechanisms(found),
        *_learned(found),
        f"Seeds from 2^62, those that are held out. {setting['measured']} {LEARNED_MAY_DIFFER}",
    ]
    return page_of("How to execute a block", "execution_text.py", setting["command"], parts)


def draw(path: Path, found: Found) -> None:
    """Write the picture: a frontier per rule, for each size, and TWAP's cost by size."""
    panels = [lambda axes, size=size: _frontier(axes, found, size) for size in study.SIZES]
    plots.save_panels(path, [*panels, lambda axes: _by_size(axes, found)], size=(6.2, 4.2))


def _answer(found: Found) -> str:
    first = next(iter(study.RULES))
    slow, fast = (_row(found, first, MIDDLE, name) for name in (REFERENCE, FAST))
    patient, large = (_row(found, first, study.SIZES[-1], name) for name in (REFERENCE, FAST))
    rows = [row for row in found["learned"] if row["rule"] == first and _below(row["less"])]
    learned = ""
    if rows:
        row = min(rows, key=lambda row: row["less"][0])
        rival = _row(found, first, MIDDLE, row["best"])
        learned = (
            f" What a schedule cannot do is to look: a learned executor pays {pm(Mean(*row['cost']), 2)} with a "
            f"deviation of {Mean(*row['risk']).mean:.1f}, where {row['best']} pays {pm(Mean(*rival['cost']), 2)} with "
            f"{Mean(*rival['risk']).mean:.1f}."
        )
    calls = [
        rule for rule in list(study.RULES)[1:] if _below(_row(found, rule, study.SIZES[-1], FAST)["less_continuous"])
    ]
    auctions = (
        f"Auctions take large orders cheaper: a block of {study.SIZES[-1]} units at once costs "
        f"{joined([f'{_cost(found, rule, study.SIZES[-1], FAST)} ({rule})' for rule in calls])}, against "
        f"{_cost(found, first, study.SIZES[-1], FAST)} under continuous trading."
        if calls
        else "No auction takes a large order cheaper than continuous trading."
    )
    cheaper = (
        Mean(*slow["cost"]).mean < Mean(*fast["cost"]).mean and Mean(*slow["risk"]).mean > Mean(*fast["risk"]).mean
    )
    lead = (
        "Slowly if only cost counts, and the sooner the more risk does."
        if cheaper
        else "Cost and risk do not pull apart here as they should."
    )
    return f"""
{lead} Under continuous trading {MIDDLE} units cost
{pm(Mean(*slow["cost"]), 2)} ticks per unit spread evenly over {study.EVENTS:,} events, with a deviation of
{Mean(*slow["risk"]).mean:.1f} ticks from episode to episode, and {pm(Mean(*fast["cost"]), 2)} ticks with a deviation of
{Mean(*fast["risk"]).mean:.1f} at once.{learned} Of {study.SIZES[-1]} units haste costs more,
{pm(Mean(*large["cost"]), 1)}
against {pm(Mean(*patient["cost"]), 1)} ticks. {auctions}
"""


def _played(setting: Mapping[str, Any]) -> list[str]:
    rows = [
        (rule, str(study.decision(rule)), f"{found['sigma']:.2f}", f"{found['eta']:.3f}")
        for rule, found in setting["schedules"].items()
    ]
    return [
        "## What was played",
        f"""The executor's environment (`KineticSim/Execution-v0`): a block of
{joined([str(size) for size in study.SIZES])}
units, to buy or to sell, comes to a market that has run for a while, and has to be done within {study.EVENTS:,} events.
The market is the preset `news`, under continuous trading or under call auctions of 24, 48 or 192 events. One decision
per
48 events, or per auction where it has more; an order has at most {study.LARGEST} units, and what is left at the
deadline
is forced through, as much per interval. Cost is the implementation shortfall, ticks per unit against the mid when the
block came, fees and all; risk is its standard deviation over episodes. All sizes and policies have the same
{setting["markets"]:,} markets, and each block is bought and sold in each of them: what the price does anyway is a
gain for
one and a loss for the other, and leaves the mean cost.""",
        "The executors are those of `kineticsim_env.policies`:",
        "\n".join(" ".join(item.split()) for item in _POLICIES.strip().replace("\n- ", "\n\n- ").split("\n\n")),
        "What Almgren and Chriss's schedules were made from, per decision: the deviation sigma of the mid's "
        "change, in ticks, "
        f"and the temporary impact eta, in ticks per unit, from orders of "
        f"{joined([str(rate) for rate in study.PROBES])} units "
        "per decision.",
        table(("rule", "events per decision", "sigma", "eta"), rows, (False, True, True, True)),
    ]


def _frontiers(found: Found) -> list[str]:
    lines = []
    for rule in study.RULES:
        names = joined(_efficient(found, rule, MIDDLE))
        lines.append(f"- **{rule}**: {names}.")
    return [
        f"The lines run from TWAP through Almgren and Chriss's schedules to all at once; crosses are the others "
        f"but for the "
        f"deadline. Efficient, so that none of the others has both less cost and less risk, are for {MIDDLE} "
        f"units, as means "
        "go:",
        "\n".join(lines),
        "In the tables, ± is half of a 95% interval. Costs of one rule are paired by seed, so two policies "
        "differ by less noise "
        "than their intervals show: the last column is a policy's cost less TWAP's for the largest block.",
    ]


def _table(found: Found, rule: str) -> str:
    heads = ["policy"]
    for size in study.SIZES:
        heads += [f"{size} units: cost", "risk"]
    rows = []
    for policy in _policies(found):
        cells = [policy]
        for size in study.SIZES:
            row = _row(found, rule, size, policy)
            cells += [pm(Mean(*row["cost"]), 2), pm(Mean(*row["risk"]), 1)]
        less = Mean(*_row(found, rule, study.SIZES[-1], policy)["less_twap"])
        rows.append([*cells, "" if policy == REFERENCE else pm(less, 2)])
    return table([*heads, "less TWAP"], rows, [False] + [True] * (2 * len(study.SIZES) + 1))


def _mechanisms(found: Found) -> list[str]:
    rows = []
    for policy in (REFERENCE, SCHEDULES[3], FAST):
        for rule in list(study.RULES)[1:]:
            cells = [pm(Mean(*_row(found, rule, size, policy)["less_continuous"]), 2) for size in study.SIZES]
            rows.append([policy, rule, *cells])
    heads = ("policy", "rule", *(f"{size} units" for size in study.SIZES))
    return [
        "## Auctions against continuous trading",
        "Cost under a rule less cost under continuous trading, seed by seed, in ticks per unit.",
        table(heads, rows, [False, False] + [True] * len(study.SIZES)),
    ]


def _learned(found: Found) -> list[str]:
    heading = "## Learned against scheduled"
    elsewhere = (
        "An executor that PPO has trained, and what it makes against schedules, is in "
        "[continuous learning](continuous_learning.md) for the preset `continuous`, and in [baselines](baselines.md) "
        "for the preset `news`. There cost alone counts."
    )
    if not found["learned"]:
        return [heading, f"None was learned here (`--generations 0`). {elsewhere}"]
    rows = []
    for row in found["learned"]:
        less = Mean(*row["less"])
        cells = [pm(Mean(*row["cost"]), 2), pm(Mean(*row["risk"]), 1), row["best"], pm(less, 2)]
        rows.append([row["rule"], f"{row['weight']:g}", *cells])
    better = sum(_below(row["less"]) for row in found["learned"])
    return [
        heading,
        f"""An executor of nine numbers (`kineticsim_env/studies/execution_learning.py`): a schedule of Almgren and
Chriss with an urgency of its own, whose prices and sizes also depend on how far the mid is from the arrival price, on
its last move, on the spread, and on which side of the book holds more. CMA-ES found the numbers for each rule and
{MIDDLE} units, on other seeds and other warm starts, for the least cost plus a weight times risk. Beside it is the one
of the executors above that is best by the same measure, chosen on the very seeds that it is compared on.""",
        f"It is better in {better} of {len(rows)} cases, as 95% intervals go. A cost below 0 is a gain, of orders that "
        "wait or from prices that can be foreseen. These are the stars in the picture.",
        table(
            ("rule", "weight of risk", "cost", "risk", "best of the others", "goal, less theirs"),
            rows,
            (False, True, True, True, False, True),
        ),
        elsewhere,
    ]


def _efficient(found: Found, rule: str, size: int) -> list[str]:
    """Return the policies that no other beats in both mean cost and risk, from the riskiest on."""
    points = {
        policy: (
            Mean(*_row(found, rule, size, policy)["cost"]).mean,
            Mean(*_row(found, rule, size, policy)["risk"]).mean,
        )
        for policy in _policies(found)
    }
    kept = [
        name
        for name, (cost, risk) in points.items()
        if not any(c <= cost and r <= risk and (c, r) != (cost, risk) for c, r in points.values())
    ]
    return sorted(kept, key=lambda name: -points[name][1])


def _policies(found: Found) -> list[str]:
    return list(dict.fromkeys(row["policy"] for row in found["rows"]))


def _row(found: Found, rule: str, size: int, policy: str) -> Mapping[str, Any]:
    return next(row for row in found["rows"] if (row["rule"], row["size"], row["policy"]) == (rule, size, policy))


def _cost(found: Found, rule: str, size: int, policy: str) -> str:
    return pm(Mean(*_row(found, rule, size, policy)["cost"]), 1)


def _below(value: Any) -> bool:
    found = Mean(*value)
    return found.mean + found.interval() < 0


def _frontier(axes: Any, found: Found, size: int) -> None:
    for rule, colour in _COLOURS.items():
        rows = [_row(found, rule, size, policy) for policy in SCHEDULES]
        cost, risk = ([Mean(*row[name]) for row in rows] for name in ("cost", "risk"))
        axes.errorbar(
            [value.mean for value in risk],
            [value.mean for value in cost],
            xerr=[value.interval() for value in risk],
            yerr=[value.interval() for value in cost],
            marker="o",
            ms=4,
            lw=1.2,
            elinewidth=0.6,
            color=colour,
            label=rule,
        )
        others = [
            _row(found, rule, size, name) for name in _policies(found) if name not in (*SCHEDULES, "at the deadline")
        ]
        axes.plot([row["risk"][0] for row in others], [row["cost"][0] for row in others], "x", ms=5, color=colour)
        if size == MIDDLE:
            stars = [row for row in found["learned"] if row["rule"] == rule]
            axes.plot([row["risk"][0] for row in stars], [row["cost"][0] for row in stars], "*", ms=11, color=colour)
    axes.set(title=f"A block of {size} units", xlabel="risk: deviation, ticks per unit", ylabel="cost, ticks per unit")
    axes.legend(fontsize=8)


def _by_size(axes: Any, found: Found) -> None:
    for rule, colour in _COLOURS.items():
        for policy, style in ((REFERENCE, "-"), (FAST, ":")):
            values = [Mean(*_row(found, rule, size, policy)["cost"]) for size in study.SIZES]
            plots.means(axes, study.SIZES, values, colour, f"{policy}, {rule}", ls=style)
    axes.set(title="TWAP and all at once, by size", xlabel="units", ylabel="cost, ticks per unit", xscale="log")
    axes.set_xticks(study.SIZES, [str(size) for size in study.SIZES])
    axes.minorticks_off()
    axes.legend(fontsize=7)
