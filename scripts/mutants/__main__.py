"""Draw mechanical mutants by seed, run the tests that cover each, and record which test kills it (docs/mutants.json).

`make mutants` runs the tests with coverage before, from which it reads what covers a line.

    python -m scripts.mutants            # draws, runs, and goes on with what was begun
    python -m scripts.mutants --again    # whether each killer on record still kills its mutant
"""

import argparse
import collections
import contextlib
import datetime
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from filelock import FileLock, Timeout

from scripts.mutants.choosing import Covering, cpp_parts, mentioning
from scripts.mutants.drawing import ROOT, draw
from scripts.mutants.running import LIMITS, Worker, try_mutant, warm_up

RESULTS = ROOT / "docs" / "mutants.json"
CACHE = Path("~/.cache/kineticsim_env").expanduser()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--python", type=int, default=95, help="mutants of the package")
    parser.add_argument("--cpp", type=int, default=55, help="mutants of cuda/")
    parser.add_argument("--seed", type=int, default=28)
    parser.add_argument("--coverage", type=Path, default=ROOT / ".coverage")
    parser.add_argument("--durations", type=Path, default=ROOT / "junit.xml")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/kineticsim-mutants"), help="of copies, progress")
    parser.add_argument("--cache", type=Path, default=CACHE, help="of compiled engines; it is copied")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", choices=("python", "cpp"), help="what to run now of what is drawn")
    parser.add_argument("--again", action="store_true", help="run the killers on record; exits 1 if one kills no more")
    parser.add_argument("--write", action="store_true", help="run nothing; write docs/mutants.json of what is done")
    arguments = parser.parse_args()
    os.nice(10)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    progress = arguments.folder / ("again.jsonl" if arguments.again else "done.jsonl")
    if arguments.again:
        progress.unlink(missing_ok=True)
        mutants = [each for each in json.loads(RESULTS.read_text())["mutants"] if each["outcome"] == "killed"]
    else:
        drawn = arguments.folder / "drawn.json"
        if not drawn.exists():
            drawn.write_text(json.dumps(draw(arguments.python, arguments.cpp, arguments.seed)))
        mutants = json.loads(drawn.read_text())
    if not arguments.write:
        in_workers(arguments, mutants, progress)
    done = dict(sorted(finished(progress).items()))
    print(collections.Counter(each["outcome"] for each in done.values()))
    if arguments.again:
        for each in done.values():
            if each["outcome"] == "survived":
                print(f"{each['file']}:{each['line']}: {each['was_by']} kills {each['new']} no longer")
        sys.exit(any(each["outcome"] == "survived" for each in done.values()))
    said = ["git", "log", "-1", "--format=%H", "--", "kineticsim_env", "cuda"]  # what is mutated, not what tests it
    commit = subprocess.run(said, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
    head = {"date": str(datetime.date.today()), "machine": f"{platform.machine()}, {os.cpu_count()} cores, no GPU"}
    head |= {"commit": commit, "seed": arguments.seed, "drawn": arguments.python + arguments.cpp}
    rows = [each for each in done.values() if each["outcome"] != "unbuilt"]  # for these, spare ones were drawn
    before = json.loads(RESULTS.read_text())["mutants"] if RESULTS.exists() else []
    judged = {json.dumps([each["file"], each["new"]]): each["judged"] for each in before if "judged" in each}
    for each in rows:  # what a person has said of one that survives
        found = judged.get(json.dumps([each["file"], each["new"]]))
        if found and each["outcome"] == "survived":
            each["judged"] = found
    RESULTS.write_text(json.dumps(head | {"seconds_per_mutant": LIMITS, "mutants": rows}, indent=1) + "\n")


def in_workers(arguments: argparse.Namespace, mutants: list[dict], progress: Path) -> None:
    """Fork the workers, and wait for them."""
    children = []
    for _ in range(arguments.workers):
        child = os.fork()
        if child == 0:
            work(arguments, mutants, progress)
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


def finished(progress: Path) -> dict[int, dict]:
    """Return what is done so far, by number."""
    lines = progress.read_text().splitlines() if progress.exists() else ()
    return {each["number"]: each for each in map(json.loads, lines)}


def killers(mutant: dict) -> list[list[str]]:
    """Return the test that has killed a mutant, and all its cases; where it is gone, tests for what is mutated."""
    case = mutant["by"].partition(" (")[0]
    file, _, name = case.partition("[")[0].partition("::")
    if (ROOT / file).exists() and name in (ROOT / file).read_text():
        return [[case], [case.partition("[")[0]]]
    return cpp_parts(mutant) if mutant["file"].startswith("cuda/") else mentioning(mutant)


def work(arguments: argparse.Namespace, mutants: list[dict], progress: Path) -> None:
    """Take mutants that no worker has taken, one after another, until there are none."""
    worker, covering = Worker(arguments.folder / f"worker{os.getpid()}", arguments.cache), None
    warm_up()
    for index, mutant in enumerate(mutants):
        is_cpp = mutant["file"].startswith("cuda/")
        done = finished(progress).values()
        built = sum(each["file"].startswith("cuda/") and each["outcome"] != "unbuilt" for each in done)
        if (arguments.only and is_cpp != (arguments.only == "cpp")) or (is_cpp and built >= arguments.cpp):
            continue
        lock = FileLock(arguments.folder / f"{index}{'again' * arguments.again}.lock", blocking=False)
        with contextlib.suppress(Timeout):
            lock.acquire()
        if not lock.is_locked or index in finished(progress):
            continue
        if arguments.again:
            parts = killers(mutant)
            mutant = mutant | {"was_by": mutant["by"]}
        elif is_cpp:
            parts = cpp_parts(mutant)
        elif not arguments.coverage.exists():
            parts = mentioning(mutant)
        else:
            covering = covering or Covering(arguments.coverage, arguments.durations)
            parts = covering.parts(mutant)
        result = mutant | try_mutant(worker, mutant, parts) | {"number": index}
        with progress.open("a") as file:
            file.write(json.dumps(result) + "\n")
        lock.release()
    shutil.rmtree(worker.folder)


if __name__ == "__main__":
    main()
