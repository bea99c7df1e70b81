"""The page and the picture of `python -m scripts.pages.rewards`, from its figures alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kineticsim_env.studies import plots
from kineticsim_env.studies.rewards import DAMPENING, GRIDS, IDLE, RISK_AVERSION, policies_of
from kineticsim_env.tasks import ExecutionTask, MarketMakingTask, TradingTask
from scripts.pages.attacks_text import paragraphs
from scripts.pages.markdown import table, wrapped

DEFAULTS = {
    "MarketMaking": (MarketMakingTask.reward, MarketMakingTask.mark),
    "Trading": (TradingTask.reward, TradingTask.mark),
    "Execution": (ExecutionTask.reward, ""),
}
FORMER = {"MarketMaking": ("inventory, 0.01", "fundamental"), "Trading": ("inventory, 0.002", "fundamental")}
WHO = {"MarketMaking": "maker", "Trading": "trader", "Execution": "executor"}
Figures = Mapping[str, Any]


def page(found: Figures, learned: Figures | None) -> str:
    """Return the page in Markdown.

    Args:
        found: The figures of `rewards.py`.
        learned: Those of `rewards_learning.py`, if there are any.
    """
    markets = found["found"]
    text = f"""# Rewards that mean the score

<!-- Written by `{found["command"]}`; edit scripts/pages/rewards_text.py instead. -->

A learner maximises the sum of its rewards, its *return*; what it is judged by is the *score*: liquidated PnL, the
money that is left when all it holds has been unwound through the market, or of an executor the implementation
shortfall of its block. Where the two rank policies differently, a better learner need not be a better maker. Here
grids of fixed policies play the same markets, and every built-in reward is held to the score.

## The defaults

The default reward of makers, traders and momentum learners is `reward="edge"`: what the trades of a decision made
against the fundamental price after it, less fees. That of executors is `reward="shortfall"`; `examples/ppo_executor.py`
trains on their edge, which has less noise.

{_defaults(markets)}

{_same(markets)}

![mean return against mean liquidated PnL](images/rewards.png)

**Why the edge.** Rewards "pnl" at the fundamental price add up to cash less fees and the last inventory at that price.
They are two parts: what trades made against the price after them, which is the edge, and what inventory held before
gained or lost as the price moved. The fundamental price walks and jumps up as often as down, whatever was before, and
nobody is told beforehand. So the second part is 0 in the mean, whatever the policy: it is noise. The edge has the mean
of "pnl" without it, and the policies that it pays best are those that earn most. This holds for the fundamental price
alone: a mid moves back after it was pushed, so leaving out what is held while it does would pay for pushing it. That
is why `mark` has no part in the edge.

**What is missing to liquidated PnL** is the cost of unwinding the last inventory. {_unwinding(markets)} Nothing is
charged for it at the end of an episode, as it moves no ranking here.

**What it takes to know this reward.** The fundamental price is the simulation's own, and in a real market nobody could
compute this reward: it is there to train by. No observation has it unless it is asked for, so a policy that was
trained by it needs to know nothing of it. It says at once what a fill was worth, where a mid would say so later and
less surely, and nobody can move it. With `reward="pnl"` and `mark="mid"` a reward is of public numbers, and
{_mid(markets)}; but a mid can be pushed, which pays where inventory may be large ([attacks](attacks.md)). With
`mark="liquidation"` a position costs the whole of its unwinding at once, in the decision that takes it.

**Who is averse to risk** takes `reward="inventory"`, [below](#rewards-with-a-risk-term): the edge, like the score, has
no price for it.

The former default was `reward="inventory"` at the fundamental price, with `inventory_penalty=0.01` of makers and many
learners and 0.002 of traders; `reward="inventory"` is the way back. {_former(markets)}

## What was measured

One episode of every policy in {found["markets"]:,} markets on held-out seeds, with the tasks' default limits and
without fees, in the presets `news`, `continuous` and `trading`; then inventory is unwound. Policies are combinations
of

- makers, {len(policies_of("MarketMaking"))}: {_grid("MarketMaking")}; the skew moves both quotes by so many ticks per
unit held
- traders, {len(policies_of("Trading"))}: {_grid("Trading")}; with the mid's recent moves (1) or against them (-1), as
`MomentumTrader` and `MeanReversionTrader`
- executors, {len(policies_of("Execution"))}: {_grid("Execution")}; so many units in every decision until the block is
done, so many ticks through the mid

What a reward pays does not change what a fixed policy does, so one play gives all returns. **Agrees** is Spearman's
rank correlation over the policies of a grid, of mean returns with mean scores; in brackets a 95% bootstrap interval
over markets. **Its best** is the policy that has the highest mean return in as many other markets, and what is in the
table is what that one earns less than the score's best of those other markets earns, on held-out seeds: a paired
difference, ± half of a 95% interval; 0 is the same policy. Money is in ticks x units.

{_measured_on(found)}

## Makers

{_table(markets, "MarketMaking", "score")}

## Traders

{_table(markets, "Trading", "score")}

- **`inventory`** ranks by money as long as its penalty is small beside what is earned. At 0.01, 40 units cost 16 ticks
in every decision, more than most makers earn in one.
- **`asymmetric`** takes off {DAMPENING:g} of what inventory gained and leaves its losses in full (Spooner et al.
2018). Every unit held costs then, the more the more a price moves, whether it moves for or against it. At the mid that
is most, as a mid moves back and forth; the more it does, the less the return says about money.
- **`per_unit`** is profit per unit at stake ({IDLE:g} less where nothing is filled), and prefers small quotes that
earn more per unit to large ones that earn more.
- **`pnl`** ranks as the score does at every mark, and is hard to learn from, [below](#does-it-train).
- **`liquidation`** counts the whole cost of unwinding at once against the resting book. It ranks nearly as well;
policies that end with more inventory are ranked lower than their score, as unwinding in pieces is cheaper.

## Executors

Per unit of the block, in ticks. The rewards of `shortfall` add up to minus the implementation shortfall, and
`terminal` is the same at the end, so both rank as the score does whatever the market is. The edge leaves out what is
left of a block times the moves of the fundamental price, which is 0 in the mean too.

{_table(markets, "Execution", "score")}

## Rewards with a risk term

A reward that takes something off for risk is not meant to rank by money alone. What it should rank by is the money
less what it takes off: liquidated PnL less the sum of its own risk term over the episode.

- `inventory`: `PnL - inventory_penalty * sum of inventory^2`, the running penalty of Cartea, Jaimungal and Penalva
(2015, "Algorithmic and high-frequency trading", chapter 10). A maker of constant risk aversion gamma in a price of
variance sigma^2 per decision has `gamma * sigma^2 / 2` as its penalty, in the mean-variance form of Gueant (2017,
"Optimal market making"), so the penalty is a price of risk, in money.
- `asymmetric`: PnL less the dampened share of gains of inventory (Spooner, Fearnley, Savani and Koukorinis 2018,
"Market making via reinforcement learning").
- `risk_averse`: the shortfall and `risk_aversion` ({RISK_AVERSION:g}) times the squared share that is left in every
decision (Almgren and Chriss 2000).

This way of counting adds no free parameter: the same term is in both, and what is left to disagree about is the end of
the episode. A variance over episodes would need a weight of its own, and is no sum of rewards.

{_table(markets, "MarketMaking", "adjusted")}

{_table(markets, "Trading", "adjusted")}

{_table(markets, "Execution", "adjusted")}

{_adjusted(markets)}
"""
    if learned:
        text += learning(learned)
    return "\n\n".join(wrapped(paragraph) for paragraph in paragraphs(text)) + "\n"


def _row(figures: Figures, name: Sequence[str]) -> Figures:
    return next(row for row in figures["rewards"] if (row["reward"], row["mark"]) == tuple(name))


def _named(policy: Figures) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in policy.items())


def _grid(task: str) -> str:
    return "; ".join(f"`{name}` {', '.join(f'{value:g}' for value in values)}" for name, values in GRIDS[task].items())


def _agrees(verdict: Figures) -> str:
    value, low, high = verdict["agrees"]
    return f"{value:.3f} ({low:.3f} to {high:.3f})"


def _gap(verdict: Figures, digits: int) -> str:
    value, half = verdict["gap"]
    return f"{value:,.{digits}f} ± {half:,.{digits}f}" if half else "0"


def _digits(task: str) -> int:
    return 2 if task == "Execution" else 0


def _table(markets: Figures, task: str, measure: str) -> str:
    """Return the table of a task: rewards by market, held to the score or to the score less the reward's risk term."""
    heads = [WHO[task], *(f"`{preset}`: {what}" for preset in markets for what in ("agrees", "its best"))]
    rows = []
    for place, row in enumerate(next(iter(markets.values()))[task]["rewards"]):
        if measure not in row:
            continue
        name = row["reward"] + (f", {row['mark']}" if row["mark"] else "")
        cells = [f"**{name}**" if (row["reward"], row["mark"]) == DEFAULTS[task] else name]
        for figures in markets.values():
            verdict = figures[task]["rewards"][place][measure]
            cells += [_agrees(verdict), _gap(verdict, _digits(task))]
        rows.append(cells)
    return table(heads, rows)


def _defaults(markets: Figures) -> str:
    """Return the table of the defaults, with the former ones."""
    heads = ["market", "who", "agrees", "its best policy", "earns", "the score's best", "earns"]
    rows = []
    for preset, tasks in markets.items():
        for task, figures in tasks.items():
            verdict, best = _row(figures, DEFAULTS[task])["score"], figures["best"]
            mean, half, digits = *verdict["earns"], _digits(task)
            rows.append(
                [
                    f"`{preset}`",
                    WHO[task],
                    _agrees(verdict),
                    _named(verdict["best"]),
                    f"{mean:,.{digits}f} ± {half:,.{digits}f}",
                    _named(best["policy"]),
                    f"{best['earns']:,.{digits}f}",
                ]
            )
    return table(heads, rows)


def _same(markets: Figures) -> str:
    """Say in how many places the default's best is the score's best."""
    places = [(f"{WHO[task]}s in `{preset}`", one[task], task) for preset, one in markets.items() for task in one]
    other = []
    for where, figures, task in places:
        verdict = _row(figures, DEFAULTS[task])["score"]
        if verdict["best"] != figures["best"]["policy"]:
            other.append(f"{where} ({_gap(verdict, _digits(task))} beside it, in the same markets)")
    same = len(places) - len(other)
    said = f"In {same} of {len(places)} places the policy that the default pays best is the score's best."
    return said + (f" The others are {', '.join(other)}." if other else "")


def _unwinding(markets: Figures) -> str:
    """Say how much the score's best maker and trader have at the fundamental price more than when unwound."""
    parts = []
    for preset, tasks in markets.items():
        over = []
        for task in ("MarketMaking", "Trading"):
            place = policies_of(task).index(tasks[task]["best"]["policy"])
            over.append(_row(tasks[task], ("pnl", "fundamental"))["returns"][place] - tasks[task]["scores"][place])
        parts.append(f"{over[0]:.0f} and {over[1]:.0f} in `{preset}`")
    return f"Of the best maker and the best trader that is {', '.join(parts)}."


def _mid(markets: Figures) -> str:
    found = [
        _row(tasks[task], ("pnl", "mid"))["score"]["agrees"][0]
        for tasks in markets.values()
        for task in ("MarketMaking", "Trading")
    ]
    return f"ranks as well ({min(found):.3f} and more)"


def _former(markets: Figures) -> str:
    """Say what the former default's best made of the score's best."""
    parts = []
    for task, name in FORMER.items():
        for preset, tasks in markets.items():
            verdict, most = _row(tasks[task], name)["score"], tasks[task]["best"]["earns"]
            parts.append(f"`{preset}` {verdict['agrees'][0]:.2f}, {verdict['earns'][0]:,.0f} of {most:,.0f}")
    half = len(parts) // 2
    return (
        f"Its agreement with the score, and what its best policy earns of what the score's best does: makers "
        f"{'; '.join(parts[:half])}; traders {'; '.join(parts[half:])}."
    )


def _adjusted(markets: Figures) -> str:
    found = [
        row["adjusted"]["agrees"]
        for tasks in markets.values()
        for task in tasks.values()
        for row in task["rewards"]
        if "adjusted" in row and row["mark"] != "liquidation"
    ]
    return (
        f"Apart from the liquidation mark the lowest of these correlations is {min(one[0] for one in found):.3f}, "
        f"the lowest end of an interval {min(one[1] for one in found):.3f}."
    )


def _measured_on(found: Figures) -> str:
    return (
        f"Measured on {found['date']} with `{found['command']}`, {found['engine']} engine, {found['machine']}, in "
        f"{found['seconds'] / 60:.0f} minutes. The figures are the same on every engine."
    )


def learning(learned: Figures) -> str:
    """Return the section on PPO."""
    names = list(dict.fromkeys(row["reward"] for row in learned["rows"]))
    places = list(dict.fromkeys((row["preset"], row["task"]) for row in learned["rows"]))
    runs = {(row["preset"], row["task"], row["reward"]): row["runs"] for row in learned["rows"]}

    def cell(place: tuple[str, str], name: str) -> str:
        return "; ".join(f"{pnl:,.0f} ± {half:,.0f}" for pnl, half in runs.get((*place, name), ()))

    rows = [[f"`{place[0]}`", WHO[place[1]], *(cell(place, name) for name in names)] for place in places]
    return f"""
## Does it train?

A reward may rank well and be too noisy to learn from. PPO (`examples/ppo_fast.py` with its own settings,
{learned["parallel"]}
markets at a time) after {learned["steps"]:,} decisions on each reward: what the mean action of its last policy
earns, liquidated, in
{learned["markets"]:,} held-out markets; one number per training seed.

{table(["market", "who", *(f"`{name}`" for name in names)], rows)}

All are at the fundamental price. "pnl" has the same optimum as the edge, and more noise.

Measured on {learned["date"]} with `{learned["command"]}`, {learned["machine"]}. {learned.get("note", "")}
"""


def draw(path: Path, found: Figures) -> None:
    """Write the picture: makers, what the default and what the former default paid them against what they earned."""
    markets = found["found"]

    def panel(axes: Any, preset: str, name: Sequence[str], title: str) -> None:
        figures = markets[preset]["MarketMaking"]
        row, scores = _row(figures, name), figures["scores"]
        grid = policies_of("MarketMaking")
        for qty, colour in zip(GRIDS["MarketMaking"]["qty"], ("#8fb8de", "#d98a1c", "#0d4377"), strict=True):
            chosen = [i for i, policy in enumerate(grid) if policy["qty"] == qty]
            axes.plot(
                [scores[i] for i in chosen],
                [row["returns"][i] for i in chosen],
                "o",
                ms=3,
                color=colour,
                label=f"{qty:g} units",
            )
        axes.axline((0, 0), slope=1, color=plots.GREY, lw=0.8, zorder=0)
        place, best = grid.index(row["score"]["best"]), grid.index(figures["best"]["policy"])
        axes.plot(scores[best], row["returns"][best], "s", ms=9, mfc="none", color=plots.BUY, label="the score's best")
        axes.plot(scores[place], row["returns"][place], "D", ms=6, mfc="none", color=plots.SELL, label="its best")
        axes.set(title=f"{title}, {preset}", xlabel="mean liquidated PnL", ylabel="mean return, ticks x units")
        axes.legend(fontsize=7)

    plots.save_panels(
        path,
        [
            lambda axes, preset=preset, name=name, title=title: panel(axes, preset, name, title)
            for name, title in ((DEFAULTS["MarketMaking"], "Default"), (FORMER["MarketMaking"], "Former default"))
            for preset in markets
        ],
        columns=len(markets),
        size=(4.2, 3.4),
    )
