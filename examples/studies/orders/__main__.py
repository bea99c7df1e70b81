"""`python -m examples.studies.orders` trains makers with kept quotes, ladders and decisions at events, from five seeds.

Each training is written to a file as it ends, so that the same command goes on where a run was ended. From that file it
makes results.json, the picture and the blocks of README.md, which `--results` does without training.

    python -m examples.studies.orders --only train --runs trainings.jsonl --minutes 9   # on a GPU
    python -m examples.studies.orders --only page --runs trainings.jsonl                # anywhere
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import gc
import json
import sys
import time
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from examples.studies.orders import study
from examples.studies.orders.study import FREQUENT, PRESETS, VARIANTS, Asked, Budget, Learner
from examples.studies.orders.tables import draw, summary
from kineticsim_env.engines import choose_engine
from kineticsim_env.runtime import private_torch
from kineticsim_env.runtime.options import exit_code, number, whole
from scripts.pages.command import check_place, command_of, figures, page_parser, publish

NAME = "orders"
ON_GPU = {"markets": 16384, "steps": 150_000_000, "episodes": 8192}
ON_CPU = {"markets": 256, "steps": 3_000_000, "episodes": 1024}
WHERE = ("results", "engine", "output", "runs", "only", "minutes")  # options that no figure depends on


class Trainings:
    """What was trained, a line of a file each: what was asked for, figures, and the money of every held-out episode."""

    def __init__(self, path: Path, budget: Budget) -> None:
        """Read what there is of such a budget."""
        self.path, self.budget = path, budget
        self.found: dict[tuple[Asked, int], dict[str, Any]] = {
            (Asked(*record["asked"]), record["seed"]): record
            for record in written(path)
            if Budget(*record["budget"])[1:] == budget[1:]  # all engines play alike
        }

    def add(self, asked: Asked, seed: int, record: dict[str, Any]) -> None:
        """Keep a training, and write it at once."""
        record = {"asked": asked, "seed": seed, "budget": self.budget, **record}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write("\n" * self._is_cut_off() + json.dumps(record) + "\n")
        self.found[asked, seed] = record

    def _is_cut_off(self) -> bool:
        written = self.path.read_bytes()
        return bool(written) and not written.endswith(b"\n")

    def missing(self, asked: Asked, seeds: Iterable[int]) -> list[int]:
        """Return the seeds that are not there."""
        return [seed for seed in seeds if (asked, seed) not in self.found]

    def asked_of(self, preset: str, variant: str) -> Asked | None:
        """Return what is to be trained; None where it depends on trainings that are not there."""
        events = study.events_of(preset)
        if variant not in FREQUENT:
            return Asked(preset, variant, events)
        name, which = FREQUENT[variant]
        like = Asked(preset, name, events)
        counts = [record["decisions"] for (asked, _), record in self.found.items() if asked == like]
        if not counts:
            return None
        return Asked(preset, variant, study.as_short(preset, study.HORIZON * events / float(np.mean(counts)), which))


def written(path: Path) -> list[dict[str, Any]]:
    """Return the records of a file, none if there is none; a line that was cut off is left out."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else ():
        with contextlib.suppress(json.JSONDecodeError):
            found.append(json.loads(line))
    return found


def train(trainings: Trainings, seeds: Sequence[int], until: float) -> None:
    """Train and play what is missing, variant after variant, until a time of `time.monotonic()`."""
    on_gpu = choose_engine(trainings.budget.engine)[1].type == "cuda"
    if on_gpu:
        torch.set_float32_matmul_precision("high")
        private_torch.keep_compiled(64)  # of several shapes and discounts
    compiling: dict[Asked, Any] = {}
    failed: list[Asked] = []

    def compile_soon(variants: Iterable[str]) -> None:
        asked = [trainings.asked_of(preset, variant) for variant in variants for preset in PRESETS]
        wanted = [one for one in asked if one and one not in compiling and trainings.missing(one, seeds)]
        if on_gpu:
            compiling.update(zip(wanted, study.begin_to_compile(wanted, trainings.budget), strict=True))

    compile_soon(VARIANTS)
    for variant in VARIANTS:
        for preset in PRESETS:
            asked = trainings.asked_of(preset, variant)
            if asked is None or not trainings.missing(asked, seeds) or time.monotonic() > until:
                continue
            if asked in compiling:
                print(f"{asked}: waits for what is compiled", flush=True)
                study.wait_for([compiling[asked]])
            try:
                train_seeds(asked, trainings, seeds, until)
            except Exception:  # the others are worth something without it
                traceback.print_exc()
                failed.append(asked)
        if variant in [name for name, _ in FREQUENT.values()]:
            compile_soon(FREQUENT)
    if failed:
        raise SystemExit(f"failed: {failed}")


def train_seeds(asked: Asked, trainings: Trainings, seeds: Sequence[int], until: float) -> None:
    """Train and play what is missing of a variant in a preset."""
    began = time.perf_counter()
    learner = Learner(asked, trainings.budget)
    print(f"{asked}: ready after {time.perf_counter() - began:.1f} s", flush=True)
    for seed in trainings.missing(asked, seeds):
        if time.monotonic() > until:
            break
        trained, began = learner.train(seed), time.perf_counter()
        played = learner.play()
        playing = time.perf_counter() - began
        pnl = played.pop("pnl")
        record = {"settings": learner.settings(), **trained, **played, "playing": playing}
        record |= {"machine": study.machine_name(learner.envs.device), "date": datetime.date.today().isoformat()}
        trainings.add(asked, seed, record | {"pnl": [round(one, 3) for one in pnl.tolist()]})
        rate = trained["steps"] / trained["seconds"]
        print(
            f"{asked.preset}, {asked.variant}, seed {seed}: {float(pnl.mean()):,.0f}, "
            f"{played['decisions']:,.0f} decisions; {trained['seconds']:.1f} s at {rate / 1e6:.1f} M steps/s, "
            f"{playing:.1f} s to play",
            flush=True,
        )
    del learner
    gc.collect()  # captured programs hold on to their memory
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, or read what was measured; draw, and fill the page."""
    parser = page_parser(NAME, __doc__)
    many = whole(0, 1 << 40)
    for option, what in (("markets", "to train in"), ("steps", "of each training"), ("episodes", "held out")):
        said = f"{what}; 0 takes {ON_CPU[option]:,} on a CPU and {ON_GPU[option]:,} on a GPU"
        parser.add_argument(f"--{option}", type=many, default=0, help=said)
    parser.add_argument("--seeds", type=whole(2, 100), default=5, help="of each variant (default: 5)")
    place = Path(f"runs/{NAME}/trainings.jsonl")
    parser.add_argument("--runs", type=Path, default=place, help=f"file of the trainings (default: {place})")
    only = "train: write that file, and no page; page: make the page of what is in it"
    parser.add_argument("--only", choices=("train", "page"), help=only)
    ends = "begin no further training after this; 0 is no limit"
    parser.add_argument("--minutes", type=number(0, 1e6), default=0.0, help=ends)
    options = parser.parse_args(arguments)
    if options.only != "train":
        check_place(options)
    trainings = None if options.results else trained(options)
    if options.only == "train":
        return

    def found() -> dict[str, Any]:
        assert trainings is not None
        records = [record for (_, seed), record in trainings.found.items() if seed <= options.seeds]
        setting = {"command": command_of(parser, options, WHERE), "budget": trainings.budget._asdict()}
        for name in ("machine", "date"):
            setting[name] = ", ".join(sorted({record[name] for record in records}))
        setting["seconds"] = sum(record["seconds"] for record in records)
        return {"setting": setting, **summary(records)}

    publish(options, NAME, figures(options, NAME, found), draw)


def trained(options: argparse.Namespace) -> Trainings:
    """Train what is missing, unless only the page is to be made; returns all of the budget."""
    began, records = time.monotonic(), written(options.runs)
    sizes = ON_GPU if choose_engine(options.engine)[1].type == "cuda" else ON_CPU
    if options.only == "page":
        if not records:
            raise SystemExit(f"--runs: {options.runs} has no trainings")
        sizes = Budget(*records[-1]["budget"])._asdict()
    for name in ON_CPU:
        setattr(options, name, getattr(options, name) or sizes[name])
    trainings = Trainings(options.runs, Budget(options.engine, options.markets, options.steps, options.episodes))
    if options.only != "page":
        until = began + 60 * options.minutes if options.minutes else float("inf")
        train(trainings, range(1, options.seeds + 1), until)
    return trainings


if __name__ == "__main__":
    sys.exit(exit_code(main))
