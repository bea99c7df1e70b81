"""Write docs/self_play.md from the results.json files of runs of examples/self_play_makers.py.

    python scripts/self_play_report.py runs/self_play_makers runs/self_play_seed2 runs/self_play_gpu ...
    python scripts/self_play_report.py docs/self_play_cpu.json docs/self_play_cpu_seed2.json docs/self_play_gpu.json

The first run on a CPU and the first on a GPU are shown in full, with their pictures; a table compares all runs, and the
data of all are copied beside the page, from which it can be written again. The page's sentences follow the figures.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
sys.path[:0] = [str(ROOT), str(ROOT / "examples")]

from ppo_report import ROUNDED_TO_EVEN  # noqa: E402
from self_play_makers import draw  # noqa: E402

from scripts.pages.provenance import notices, renewed, stamp  # noqa: E402

NONE, STOIKOV = "no trade", "Avellaneda-Stoikov"
ALONE, RIVAL, SELF = "learned alone", "learned with a rival", "learned in self-play"
REPLY = "learned against self-play"
HEAD = """# Two makers in one market: self-play and a payoff matrix

<!-- Written by `python scripts/self_play_report.py`; edit that file instead. -->

`examples/self_play_makers.py` opens the market of the preset `"trading"`, replaces both of its built-in makers by two
makers of ours, and leaves everybody else built in. Makers see the built-in book, not each other's quotes; what they
feel of each other are missing fills and a price that the other one moves.

Policies are learned with the PPO of `examples/ippo_many_learners.py`, with the same settings and number of decisions
each: **alone** (the other maker does not trade), **with a rival** (the other maker is the scripted one of Avellaneda
and Stoikov), in **self-play** (two learners share the policy that both improve, so that there are two samples per
decision), and **against self-play** (the other maker is the finished policy of self-play, and a learner that begins as
its copy looks for a weakness). Scripted makers have the parameters that do best on training seeds against the same
scripted rival, which in turn was fitted alone and then against itself.

Then every ordered pair plays the same held-out markets (seeds from 2^62, warm starts that no training has seen), 300
decisions each. What counts is **liquidated PnL**: cash after both inventories were unwound through the market at the
end, together and at most `max_order_qty` units per auction each. Intervals are 95%, over markets. They say how well the
payoffs of *these* policies are known; how much policies differ from one training run to the next is in
[the table of runs](#all-runs).

```bash
python examples/self_play_makers.py
python examples/self_play_makers.py --seed 2 --output runs/self_play_seed2
python examples/self_play_makers.py --output runs/self_play_gpu
python scripts/self_play_report.py runs/self_play_makers runs/self_play_seed2 runs/self_play_gpu
```

The first two runs are those on a CPU, the third is the same on a GPU, where the defaults are larger: a hundred times
the decisions, in 64 times as many markets.
"""


def interval(pair: list[float], places: int = 0) -> str:
    """Return `mean ± half`."""
    mean, half = (round(value, places) + 0.0 for value in pair)  # no -0
    return f"{mean:.{places}f} ± {half:.{places}f}"


def above(one: list[float], other: list[float]) -> bool:
    """Say whether two intervals are apart, the first above the second."""
    return one[0] - one[1] > other[0] + other[1]


def matrix(cells: dict, name: str, places: int) -> list[str]:
    """Return the lines of a table of one figure of every cell."""
    lines = [f"| maker_0, against maker_1: | {' | '.join(cells)} |", "|---|" + "---:|" * len(cells)]
    for row, columns in cells.items():
        lines.append(f"| **{row}** | {' | '.join(interval(columns[b][name], places) for b in columns)} |")
    return lines


class Figures:
    """Looks figures of a run up, as text."""

    def __init__(self, run: dict) -> None:
        """Remember the run."""
        self.cells, self.replies = run["cells"], run["replies"]

    def pnl(self, row: str, column: str) -> str:
        """Return the PnL of the row's maker."""
        return interval(self.cells[row][column]["pnl"])

    def total(self, row: str, column: str) -> str:
        """Return the PnL of both."""
        return interval(self.cells[row][column]["total"])

    def near(self, name: str, row: str, column: str) -> str:
        """Return the spread or the mispricing."""
        return interval(self.cells[row][column][name], 2)

    def best_replies(self) -> str:
        """Say what does best against what."""
        best = {column: reply["best"] for column, reply in self.replies.items()}
        clear = sum(reply["lead"][0] > reply["lead"][1] for reply in self.replies.values())
        names = list(self.cells)
        pairs = [(a, b) for i, a in enumerate(names) for b in names[i:] if best[a] == b and best[b] == a]
        listed = "; ".join(
            f"to {column}: {reply['best']} ({interval(reply['lead'])} ahead of {reply['second']})"
            for column, reply in self.replies.items()
        )
        unclear = "" if clear == len(best) else "; elsewhere the first two cannot be told apart"
        return (
            f"**Best replies**, with the lead over the second best in the same markets, are {listed}. In {clear} of "
            f"{len(best)} columns the lead is beyond its interval{unclear}. "
            f"Mutual best replies, by the means: {'; '.join(f'{a} with {b}' for a, b in pairs) or 'no pair'}."
        )

    def shared(self) -> str:
        """Say what one maker makes at most, and what two do."""
        one = max(self.cells, key=lambda row: self.cells[row][NONE]["pnl"][0])
        rows = [name for name in self.cells if name != NONE]
        a, b = max(((a, b) for a in rows for b in rows), key=lambda pair: self.cells[pair[0]][pair[1]]["total"][0])
        return (
            f"The most that one of these makers makes alone is {self.pnl(one, NONE)} ({one}), the most that two make "
            f"together {self.total(a, b)} ({a} with {b})"
        )

    def is_dilemma(self) -> bool:
        """Say whether undercutting pays, and whether both lose by it."""
        cells = self.cells
        tempts = above(cells[SELF][ALONE]["pnl"], cells[ALONE][ALONE]["pnl"])
        answers = above(cells[SELF][SELF]["pnl"], cells[ALONE][SELF]["pnl"])
        return tempts and answers and above(cells[ALONE][ALONE]["pnl"], cells[SELF][SELF]["pnl"])

    def dilemma(self) -> str:
        """Say so in words."""
        if self.is_dilemma():
            return (
                "Between these two policies it is a prisoner's dilemma: whatever the other one does, the policy of "
                "self-play earns more, and two that play it earn less than two that do not."
            )
        return "Between these two policies the intervals do not show a prisoner's dilemma."

    def exploited(self) -> str:
        """Say what a learner finds against the policy of self-play."""
        found, own = self.cells[REPLY][SELF]["pnl"], self.cells[SELF][SELF]["pnl"]
        if above(found, own):
            return (
                "so the policy of self-play is no equilibrium, and this is the least that a better reply gains. "
                f"{self.teacher()} {self.longer()}"
            )
        if above(own, found):
            return "that is less than its copy does: no weakness was found, which does not prove that there is none"
        return "by the intervals no more than its copy: no weakness was found, which does not prove that there is none"

    def teacher(self) -> str:
        """Say what the policy of self-play makes beside the learner that was trained against it."""
        beside, own = self.cells[SELF][REPLY]["pnl"], self.cells[SELF][SELF]["pnl"]
        change = "more than" if above(beside, own) else "less than" if above(own, beside) else "not clearly other than"
        return f"Beside that learner its teacher makes {self.pnl(SELF, REPLY)}, {change} beside its own copy."

    def longer(self) -> str:
        """Say whether the learner against self-play became a better maker in general."""
        learner, teacher = self.cells[REPLY][STOIKOV]["pnl"], self.cells[SELF][STOIKOV]["pnl"]
        start = "By the intervals it is as good a maker elsewhere"
        if above(learner, teacher):
            start = "The learner has also simply learned for longer"
        elif above(teacher, learner):
            start = "Longer training did not make it a better maker elsewhere"
        return (
            f"{start}: against the maker of Avellaneda and Stoikov, whom neither met in training, it makes "
            f"{self.pnl(REPLY, STOIKOV)}, its teacher {self.pnl(SELF, STOIKOV)}"
        )


def findings(run: dict) -> list[str]:
    """Return what the figures show, in sentences that hold whatever the figures are."""
    f = Figures(run)
    share = run["cells"][SELF][SELF]["total"][0] / run["cells"][ALONE][NONE]["pnl"][0]
    leads = {name: row[name]["seat"] for name, row in run["cells"].items() if name != NONE}
    seats = ", ".join(f"{interval(lead, 1)} ({name})" for name, lead in leads.items())
    even = sum(abs(mean) <= half for mean, half in leads.values())
    pnl, total, near = f.pnl, f.total, f.near
    lines = [
        f.best_replies(),
        f"**What there is to share.** Alone in the market, the maker that learned so makes {pnl(ALONE, NONE)} ticks, "
        f"the one from self-play {pnl(SELF, NONE)}, the one of Avellaneda and Stoikov {pnl(STOIKOV, NONE)}. Two of the "
        f"first make {total(ALONE, ALONE)} together; two that learned in self-play {total(SELF, SELF)}, {share:.0%} of "
        f"what the first one makes alone. {f.shared()}.",
        f"**Why the wide spread does not last.** Two makers that learned alone make {pnl(ALONE, ALONE)} each. Against "
        f"one of them, a maker from self-play makes {pnl(SELF, ALONE)} and leaves it {pnl(ALONE, SELF)}; against "
        f"itself it makes {pnl(SELF, SELF)}. {f.dilemma()}",
        f"**What others have of it.** Without a maker the spread is {near('spread', NONE, NONE)} ticks, with one that "
        f"learned alone {near('spread', ALONE, NONE)}, with two of these {near('spread', ALONE, ALONE)}, with two from "
        f"self-play {near('spread', SELF, SELF)}. The mid is {near('mispricing', NONE, NONE)} ticks away from the "
        f"fundamental price without a maker, {near('mispricing', ALONE, NONE)} with one that learned alone, "
        f"{near('mispricing', SELF, SELF)} with two from self-play.",
        f"**One rival or oneself.** Against its own rival the maker that learned with it makes {pnl(RIVAL, STOIKOV)}, "
        f"the one from self-play {pnl(SELF, STOIKOV)}. Against each other they make {pnl(RIVAL, SELF)} and "
        f"{pnl(SELF, RIVAL)}.",
        f"**Can self-play be exploited?** A maker that learned against it makes {pnl(REPLY, SELF)} there, where it "
        f"makes {pnl(SELF, SELF)} against itself; {f.exploited()}.",
        f"**Seats.** Of two equal makers the first one's lead is {seats}; {even} of {len(leads)} intervals hold 0.",
    ]
    return [f"- {line}" for line in lines]


def overview(runs: dict[str, dict]) -> list[str]:
    """Return a table of what the policies of every run earn, by the names of their data, and what holds in how many."""
    pairs = [(ALONE, NONE), (ALONE, ALONE), (SELF, ALONE), (ALONE, SELF), (SELF, SELF), (REPLY, SELF), (SELF, REPLY)]
    pairs += [(SELF, STOIKOV)]
    names = {NONE: "nobody", ALONE: "alone", SELF: "self-play", REPLY: "its exploiter", STOIKOV: "A.-S."}
    titles = [f"{names[a]}, against {names[b]}" for a, b in pairs]
    lines = ["## All runs", ""]
    lines += ["Liquidated PnL of the first one, ticks per episode. A.-S. is Avellaneda and Stoikov's.", ""]
    lines += [f"| run | {' | '.join(titles)} | spread, two from self-play |", "|---|" + "---:|" * (len(pairs) + 1)]
    for data, run in runs.items():
        cells, label = run["cells"], f"{run['machine'].split(',')[0]}, seed {run['args']['seed']}"
        row = [interval(cells[a][b]["pnl"]) for a, b in pairs] + [interval(cells[SELF][SELF]["spread"], 2)]
        lines.append(f"| [{label}]({data}) | {' | '.join(row)} |")
    best = [reply["best"].startswith("learned") for run in runs.values() for reply in run["replies"].values()]
    dilemmas = sum(Figures(run).is_dilemma() for run in runs.values())
    every = [run["cells"] for run in runs.values()]
    exploited = sum(above(one[REPLY][SELF]["pnl"], one[SELF][SELF]["pnl"]) for one in every)
    better = sum(above(one[REPLY][STOIKOV]["pnl"], one[SELF][STOIKOV]["pnl"]) for one in every)
    return [
        *lines,
        "",
        f"- The best reply to a maker is one that learned in {sum(best)} of {len(best)} columns of all runs.",
        f"- Those that learned alone and in self-play are in a prisoner's dilemma in {dilemmas} of {len(runs)} runs.",
        f"- The learner against self-play finds a better reply to it than its copy in {exploited} of {len(runs)} runs, "
        f"and does better than its teacher against A.-S., too, in {better}.",
        "",
    ]


def section(run: dict, kind: str) -> list[str]:
    """Return the page's part on one machine."""
    args, notes, data = run["args"], run["notes"], f"self_play_{kind}.json"
    parts = [f"## {run['machine']}", ""]
    parts.append(
        f"Seed {args['seed']}, {args['num_envs']:,} training markets, {args['markets']:,} held-out markets for each of "
        f"{len(run['cells']) ** 2} pairs; fitted, trained and played in {run['seconds']:.0f} s. Every figure is in "
        f"[{data}]({data})."
    )
    parts += ["", "| maker | parameters, or training |", "|---|---|"]
    parts += [f"| {name} | {note} |" for name, note in notes.items() if note]
    parts += ["", "Liquidated PnL of the row's maker, ticks per episode:", "", *matrix(run["cells"], "pnl", 0)]
    parts += ["", f"![payoffs, totals, spreads and volumes](images/self_play_{kind}.png)", "", "What it shows:", ""]
    parts += findings(run)
    for name, title, places in (
        ("total", "Liquidated PnL of both makers together, ticks per episode", 0),
        ("spread", "Spread after an auction, makers' quotes included, ticks", 2),
        ("volume", "Volume, units per auction", 2),
    ):
        parts += ["", f"{title}:", "", *matrix(run["cells"], name, places)]
    return [*parts, ""]


def rounded(value: Any) -> Any:
    """Return the record with floats of five digits."""
    if isinstance(value, dict):
        return {name: rounded(item) for name, item in value.items() if name != "output"}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def main(sources: list[str]) -> None:
    """Read the runs, from their folders or from their data, write the page, copy the data, draw the pictures."""
    sections: list[str] = []
    runs: dict[str, dict] = {}  # by the names of their data
    for source in map(Path, sources):
        # Rounded at once, so that the page is the same when it is written from the data.
        run = rounded(json.loads((source / "results.json" if source.is_dir() else source).read_text()))
        run.setdefault("rules", stamp("self_play"))
        kind = "gpu" if "CUDA" in run["machine"] else "cpu"
        data = f"self_play_{kind}.json"
        if data in runs:
            data = f"self_play_{kind}_seed{run['args']['seed']}.json"
        else:
            sections += section(run, kind)
            draw(run["cells"], DOCS / "images" / f"self_play_{kind}.png")
        if data in runs:
            raise SystemExit(f"{source}: another run is {data} already")
        runs[data] = run
        (DOCS / data).write_text(json.dumps(run, separators=(",", ":")) + "\n")
    older = [run.get("rounding", "even") == "even" for run in runs.values()]
    head = [HEAD, *([ROUNDED_TO_EVEN] if any(older) else [])]
    text = "\n".join([*head, *overview(runs), *sections])
    (DOCS / "self_play.md").write_text(renewed(text, set().union(*(notices(DOCS / data) for data in runs))))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write docs/self_play.md.")
    what = "folders of runs of examples/self_play_makers.py, or the data of such runs beside the page"
    parser.add_argument("runs", nargs="+", help=what)
    main(parser.parse_args().runs)
