"""Write docs/self_play.md from the results.json files of runs of examples/self_play_makers.py.

    python scripts/self_play_report.py runs/self_play_makers runs/self_play_seed2 ...

The first run of each machine is shown in full, its data and picture are copied beside the page, and other seeds are
compared with it. The page's sentences follow the figures.
"""

import argparse
import json
import shutil
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"
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
and Stoikov), in **self-play** (two learners share the policy that both improve, so that there are two samples a
decision), and **against self-play** (the other maker is the finished policy of self-play, and a learner that begins as
its copy looks for a weakness). Scripted makers have the parameters that do best on training seeds against the same
scripted rival, which in turn was fitted alone and then against itself.

Then every ordered pair plays the same held-out markets (seeds from 2^62, warm starts that no training has seen), 300
decisions each. What counts is **liquidated PnL**: cash after both inventories were unwound through the market at the
end, together and at most `max_order_qty` units an auction each. Intervals are 95%, over markets. They say how well the
payoffs of *these* policies are known; how much policies differ from one training seed to the next is in the table of
seeds, where there are several.

```bash
python examples/self_play_makers.py
python examples/self_play_makers.py --seed 2 --output runs/self_play_seed2
python scripts/self_play_report.py runs/self_play_makers runs/self_play_seed2
```
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
        return (
            f"**Best replies**, with the lead over the second best in the same markets, are {listed}. In {clear} of "
            f"{len(best)} columns the lead is beyond its interval; elsewhere the first two cannot be told apart. "
            f"Mutual best replies, by the means: {'; '.join(f'{a} with {b}' for a, b in pairs) or 'no pair'}."
        )

    def dilemma(self) -> str:
        """Say whether undercutting pays, and whether both lose by it."""
        cells = self.cells
        tempts = above(cells[SELF][ALONE]["pnl"], cells[ALONE][ALONE]["pnl"])
        answers = above(cells[SELF][SELF]["pnl"], cells[ALONE][SELF]["pnl"])
        costs = above(cells[ALONE][ALONE]["pnl"], cells[SELF][SELF]["pnl"])
        if tempts and answers and costs:
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
                "so the policy of self-play is no equilibrium, and this is the least that can be won from it. The "
                "learner has also simply learned for longer: against the maker of Avellaneda and Stoikov, whom neither "
                f"met in training, it makes {self.pnl(REPLY, STOIKOV)}, its teacher {self.pnl(SELF, STOIKOV)}"
            )
        if above(own, found):
            return "that is less than its copy does: no weakness was found, which does not prove that there is none"
        return "by the intervals no more than its copy: no weakness was found, which does not prove that there is none"


def findings(run: dict) -> list[str]:
    """Return what the figures show, in sentences that hold whatever the figures are."""
    f = Figures(run)
    share = run["cells"][SELF][SELF]["total"][0] / run["cells"][ALONE][NONE]["pnl"][0]
    seats = ", ".join(
        f"{interval(row[name]['seat'], 1)} ({name})" for name, row in run["cells"].items() if name != NONE
    )
    pnl, total, near = f.pnl, f.total, f.near
    lines = [
        f.best_replies(),
        f"**Room for one.** Alone in the market, the maker that learned so makes {pnl(ALONE, NONE)} ticks, the one of "
        f"Avellaneda and Stoikov {pnl(STOIKOV, NONE)}. Two of the former make {total(ALONE, ALONE)} together; two that "
        f"learned in self-play {total(SELF, SELF)}, {share:.0%} of what the first one makes alone.",
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
        f"**Seats** are alike: of two equal makers the first one's lead is {seats}.",
    ]
    return [f"- {line}" for line in lines]


def seeds(runs: list[dict]) -> list[str]:
    """Return a table of what policies of other training seeds earn."""
    pairs = [(ALONE, NONE), (ALONE, ALONE), (SELF, ALONE), (ALONE, SELF), (SELF, SELF), (REPLY, SELF), (SELF, STOIKOV)]
    names = {NONE: "nobody", ALONE: "alone", SELF: "self-play", REPLY: "its exploiter", STOIKOV: "A.-S."}
    titles = [f"{names[a]}, against {names[b]}" for a, b in pairs]
    lines = ["The same with other training seeds, liquidated PnL of the first one:", ""]
    lines += [f"| seed | {' | '.join(titles)} | spread, two from self-play |", "|---:|" + "---:|" * (len(pairs) + 1)]
    for run in runs:
        cells = run["cells"]
        row = [interval(cells[a][b]["pnl"]) for a, b in pairs] + [interval(cells[SELF][SELF]["spread"], 2)]
        lines.append(f"| {run['args']['seed']} | {' | '.join(row)} |")
    return ["", *lines]


def section(runs: list[dict], kind: str) -> list[str]:
    """Return the page's part on one machine."""
    run = runs[0]
    args, notes, data = run["args"], run["notes"], f"self_play_{kind}.json"
    parts = [f"## {run['machine']}", ""]
    parts.append(
        f"Seed {args['seed']}, {args['num_envs']:,} training markets, {args['markets']:,} held-out markets for each of "
        f"{len(run['cells']) ** 2} pairs; {run['seconds']:.0f} s in all. Every figure is in [{data}]({data})."
    )
    parts += ["", "| maker | parameters, or training |", "|---|---|"]
    parts += [f"| {name} | {note} |" for name, note in notes.items() if note]
    parts += ["", "Liquidated PnL of the row's maker, ticks an episode:", "", *matrix(run["cells"], "pnl", 0)]
    parts += ["", f"![payoffs, totals, spreads and volumes](images/self_play_{kind}.png)", "", "What it shows:", ""]
    parts += findings(run) + (seeds(runs) if len(runs) > 1 else [])
    for name, title, places in (
        ("total", "Liquidated PnL of both makers together, ticks an episode", 0),
        ("spread", "Spread after an auction, makers' quotes included, ticks", 2),
        ("volume", "Volume, units an auction", 2),
    ):
        parts += ["", f"{title}:", "", *matrix(run["cells"], name, places)]
    return [*parts, ""]


def rounded(value: object) -> object:
    """Return the record with floats of five digits."""
    if isinstance(value, dict):
        return {name: rounded(item) for name, item in value.items() if name != "output"}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def main(folders: list[str]) -> None:
    """Read the runs, write the page, copy data and pictures."""
    runs = {folder: json.loads((Path(folder) / "results.json").read_text()) for folder in folders}
    parts = [HEAD]
    for machine in dict.fromkeys(run["machine"] for run in runs.values()):
        chosen = {folder: run for folder, run in runs.items() if run["machine"] == machine}
        kind, first = "gpu" if "CUDA" in machine else "cpu", next(iter(chosen))
        shutil.copyfile(Path(first) / "payoffs.png", DOCS / "images" / f"self_play_{kind}.png")
        (DOCS / f"self_play_{kind}.json").write_text(json.dumps(rounded(chosen[first]), separators=(",", ":")) + "\n")
        parts += section(list(chosen.values()), kind)
    (DOCS / "self_play.md").write_text("\n".join(parts))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write docs/self_play.md.")
    parser.add_argument("folders", nargs="+", help="of runs of examples/self_play_makers.py")
    main(parser.parse_args().folders)
