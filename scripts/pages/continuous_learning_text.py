"""The page and the picture of `python -m scripts.pages.continuous_learning`, from its figures alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kineticsim_env.studies import plots
from scripts.pages.continuous_learning_places import HOLD
from scripts.pages.markdown import table, wrapped

LEARNED = "PPO (learned)"
COLOURS = (plots.BUY, "#d08a1d", plots.SELL)


def plus_minus(interval: Sequence[float], digits: int = 0) -> str:
    """Return a mean and half of its 95% interval."""
    return f"{interval[0]:,.{digits}f} ± {interval[1]:,.{digits}f}"


def late(latency: int | str, interval: int) -> str:
    """Say when quotes arrive."""
    return {0: "at once", interval // 2: "half an interval late"}.get(int(latency), "an interval late")


def apart(record: dict[str, Any]) -> bool:
    """Say whether the learner's interval is above that of every scripted policy."""
    mean, half = record["pnl"][LEARNED]
    return all(mean - half > other + width for name, (other, width) in record["pnl"].items() if name != LEARNED)


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
    """Say how the learner stands to the scripted policies."""
    if apart(record):
        return "ahead of every scripted one, intervals apart"
    mean, half = record["lead"]
    return "ahead of every scripted one, in paired differences" if mean > half else "not ahead"


def unlearned(record: dict[str, Any]) -> str:
    """Say where a policy that is not ahead at the end of training was ahead before, or nothing."""
    before = record["ahead"]
    if not before or record["lead"][0] > record["lead"][1]:
        return ""
    found = plus_minus((before["pnl"], before["half"]), 3)
    when = f"after {before['seconds']:.1f} s of training and {before['steps'] / 1e6:.0f} M decisions"
    return (
        f' It was: its policy {when}, the first that is ahead of "{record["rival"]}" on the same episodes, made '
        f"{found}; training on unlearned it."
    )


def page(found: dict[str, Any]) -> str:
    """Return the page."""
    makers, executor, interval = found["makers"], found["executor"], found["interval"]
    names = {latency: late(latency, interval) for latency in makers}
    none, last = makers["0"], makers[str(interval)]
    episodes = none["args"]["eval_envs"]
    lost = none["pnl"][LEARNED][0] - last["pnl"][LEARNED][0]
    scripted_lost = none["pnl"][none["rival"]][0] - last["pnl"][last["rival"]][0]
    parts = [
        "# Learning under continuous trading",
        f"<!-- Written by `{found['command']}`; edit scripts/pages/continuous_learning_text.py instead. -->",
        f"PPO makes a market, and executes a block, in the preset `continuous`: orders trade as they come, a quote has "
        f"a place in a queue, and a decision lasts for an interval of {interval} orders. The same maker is trained "
        f"three times: its quotes arrive at once, half an interval late (`quote_latency={interval // 2}`), and a whole "
        f"interval late (`quote_latency={interval}`). Until fresh quotes arrive the old ones stand.",
        "```bash\npython examples/ppo_market_maker.py --preset continuous --gamma 0.99 --time-limit-minutes 4\n"
        f"python examples/ppo_fast.py --preset continuous --gamma 0.99 --set quote_latency={interval // 2}\n"
        "python examples/ppo_executor.py --preset continuous\n"
        "python -m scripts.pages.continuous_learning   # this page\n```",
        "Scripted makers play under the same latency, with the parameters that were best under it on training seeds "
        "(`examples/tune_scripted_policies.py`). All play the same "
        f"{episodes:,} held-out episodes of 300 decisions, with warm starts that no training has seen; learned "
        "policies play their mean action. **Liquidated PnL** is the cash that is left once the inventory was unwound "
        "through the market, in ticks x units; ± is half of a 95% interval, and the *lead* is the mean of the "
        "differences on the same episodes.",
        f"Measured on {found['date']} with `{found['command']}` on {found['machine']}: {found['seconds']:.0f} s for "
        f"all of it: four trainings, compiled before, and the comparisons after them.",
        "## Making a market",
        table(
            ["quotes arrive", "learned maker", "best scripted maker", "lead", "learned is"],
            [
                [
                    names[latency],
                    plus_minus(one["pnl"][LEARNED]),
                    f"{one['rival']}: {plus_minus(one['pnl'][one['rival']])}",
                    plus_minus(one["lead"]),
                    verdict(one),
                ]
                for latency, one in makers.items()
            ],
        ),
        f"A whole interval of latency costs the learner {lost:,.0f} ticks x units per episode, "
        f"{lost / max(abs(none['pnl'][LEARNED][0]), 1):.0%} of what it makes without; the best scripted maker, whose "
        f"parameters were searched anew, loses {scripted_lost:,.0f}.",
        "![what was learned under each latency](images/continuous_learning.png)",
        "All makers, best parameters in brackets:",
        makers_table(makers, names),
        "## Latency that the learner does not know",
        "Each learned maker under every latency, liquidated PnL. A line is one policy; on the diagonal it plays where "
        "it was trained.",
        table(
            ["trained with quotes that arrive", *(f"played {name}" for name in names.values())],
            [
                [names[latency], *(plus_minus(one["under"][other]) for other in makers)]
                for latency, one in makers.items()
            ],
        ),
        "## A place in a queue",
        "A quote with the same price, and a quantity no larger than what stands, keeps its place. *Kept* is the share "
        "of standing quotes, still there a decision later, that did. *At the end* and *in front* are what changes in "
        "PnL, on the same episodes, if the maker's standing quotes are put there before every decision; nothing else "
        "in the market is touched. A quote that is placed anew comes to the end of its queue in any case, so who "
        f"follows the mid has little to lose. The *patient* maker is the learned one that leaves a quote within {HOLD} "
        "ticks of where it would be placed anew, while at least half of it is left.",
        table(
            ["quotes arrive", "maker", "kept", "units per decision", "mean inventory", "PnL", "at the end", "in front"],
            [
                [
                    names[latency],
                    maker,
                    f"{played['kept']:.0%}",
                    f"{played['traded']:.2f}",
                    f"{played['inventory']:.1f}",
                    *(plus_minus(played[name]) for name in ("pnl", "end", "front")),
                ]
                for latency, one in makers.items()
                for maker, played in one["places"].items()
            ],
        ),
        "## Executing a block",
        f"`python examples/ppo_executor.py --preset continuous` trades {executor['args']['block_qty']} units in 100 "
        "decisions, orders arriving at once. The measure is what the trades made against the arrival price, in ticks "
        f"per unit, what was forced through the market at the deadline included, over "
        f"{executor['args']['eval_envs']:,} held-out episodes. The learned executor is "
        f'{verdict(executor)}: its lead over "{executor["rival"]}" is {plus_minus(executor["lead"], 3)}.'
        f"{unlearned(executor)}",
        table(
            ["policy", "ticks per unit", "parameters"],
            [
                [name, plus_minus(executor["pnl"][name], 3), executor["notes"].get(name, "")]
                for name in best_first(executor["pnl"])
            ],
        ),
        "## Trainings",
        "Time is that of training: rollouts, advantages and updates; evaluations in between, and compiling before, are "
        "counted apart. *Ahead after* is that time at the first evaluation whose policy leads the best scripted one, "
        "on the held-out episodes, by more than its interval. Executors are judged in ticks per unit.",
        table(
            ["machine", "learner", "markets", "decisions", "time", "learned", "best scripted", "lead", "ahead after"],
            found["trainings"],
        ),
    ]
    return "\n\n".join(map(wrapped, parts)) + "\n"


def best_first(pnl: dict[str, Sequence[float]]) -> list[str]:
    """Return the names of policies, best mean first."""
    return sorted(pnl, key=lambda name: -pnl[name][0])


def makers_table(makers: dict[str, dict[str, Any]], names: dict[str, str]) -> str:
    """Return the table of all makers under each latency."""

    def cell(one: dict[str, Any], name: str) -> str:
        note = one["notes"].get(name, "").partition(" (best")[0]
        return plus_minus(one["pnl"][name]) + (f" ({note})" if note else "")

    rows = [[name, *(cell(one, name) for one in makers.values())] for name in best_first(makers["0"]["pnl"])]
    return table(["maker", *names.values()], rows)


def draw(path: Path, found: dict[str, Any]) -> None:
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

    plots.save_panels(path, [curves, bars], size=(6.0, 4.1))
