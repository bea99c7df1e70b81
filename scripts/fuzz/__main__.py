"""The command line: `python -m scripts.fuzz --cases 100000`, or `--case forms:17` for one case again."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from tqdm import tqdm

from scripts.fuzz import kinds, page, pairs, races, run, sanitizers


def main(argv: list[str] | None = None) -> int:
    """Run; returns 1 if anything was found."""
    parser = argparse.ArgumentParser("python -m scripts.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=sum(kinds.SHARES.values()), help="of all kinds together")
    parser.add_argument("--seconds", type=float, help="stop after so long, whatever --cases says")
    parser.add_argument("--seed", type=int, default=0, help="of the first case of each kind")
    parser.add_argument("--kinds", nargs="+", choices=kinds.KINDS, default=list(kinds.KINDS))
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--no-sanitizers", action="store_true", help="faster, and memory errors go unseen")
    parser.add_argument("--case", metavar="KIND:SEED", help="play this one again in this process, and nothing else")
    parser.add_argument("--different", type=int, help="for --case: of how few markets it chooses (tests have 3)")
    parser.add_argument("--output", type=Path, help="write counts and failures to this JSON file")
    parser.add_argument("--page", type=Path, help="write the table of counts into this page")
    options = parser.parse_args(argv)
    if options.case:
        pairs.DIFFERENT = options.different or pairs.DIFFERENT
        return _again(options.case)
    sanitized = not options.no_sanitizers and sanitizers.runtime("libasan.so") is not None
    if not sanitized and not options.no_sanitizers:
        print("the compiler has no AddressSanitizer that runs here: the C++ engine is not watched", file=sys.stderr)
    if "races" in options.kinds and (missing := races.unavailable()):
        print(f"no cases of the kind races: {missing}", file=sys.stderr)
        options.kinds.remove("races")
    sanitizers.build_engine(sanitized)
    if sanitized:
        seen = sanitizers.report_in(sanitizers.planted_bug_is_seen())
        if "AddressSanitizer" not in seen:
            print(f"a planted write past a tensor's end was not seen: {seen}", file=sys.stderr)
            return 1
    result = _run(options, sanitized)
    print(f"{sum(result.cases.values())} cases in {result.seconds:.0f} s, {len(result.found)} distinct failures")
    for kind, count in result.cases.items():
        print(f"  {kind:10} {count:8}  {sum(found.kind == kind for found in result.found)} failures")
    facts = page.facts(result, options.seed, sanitized, [*sys.argv[1:]] if argv is None else argv)
    if options.output:
        options.output.write_text(json.dumps(facts, indent=1) + "\n")
    if options.page:
        page.write(options.page, facts)
    return int(bool(result.found))


def _run(options: argparse.Namespace, sanitized: bool) -> run.Result:
    shares = {kind: kinds.SHARES[kind] for kind in kinds.KINDS if kind in options.kinds}
    total = sum(shares.values())
    counts = {kind: max(1, round(options.cases * share / total)) for kind, share in shares.items()}
    seconds = None
    if options.seconds is not None:
        seconds = {kind: options.seconds / len(shares) for kind in shares}
    with tqdm(total=sum(counts.values()), unit="case") as bar:

        def tell(what: str, value: Any) -> None:
            if what == "case":
                bar.update()
                bar.set_description(value, refresh=False)
            else:
                alone = "" if value.alone else " (not when played alone)"
                bar.write(f"--case {value.kind}:{value.seed}{alone}: {value.text}")

        return run.run(counts, options.seed, seconds=seconds, jobs=options.jobs, sanitized=sanitized, tell=tell)


def _again(case: str) -> int:
    kind, _, seed = case.partition(":")
    if kind not in kinds.KINDS or not seed.isdigit():
        print(f"--case: expected a kind of {', '.join(kinds.KINDS)}, a colon and a seed, got {case!r}", file=sys.stderr)
        return 2
    failure = kinds.play(kind, int(seed))
    print("passes" if failure is None else f"fails: {failure}")
    return int(failure is not None)


if __name__ == "__main__":
    sys.exit(main())
