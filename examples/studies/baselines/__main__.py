"""`python -m examples.studies.baselines` compares scripted, linear, learned and informed policies, task by task.

Three tasks, in the markets of the presets "trading" (call auctions) and "news" (continuous trading): scripted policies
of `kineticsim_env/zoo/scripted_policies.json`, linear ones that `examples/linear_policies.py` finds by CMA-ES, PPO of
`examples/ppo_fast.py` from five seeds, and those who are told the fundamental price. All play the same held-out
episodes. A task in a market is a part; parts are measured one after another, and each leaves a small file in the folder
`--runs`, of which results.json is made, and README.md filled. Rows that have been measured there are not measured
again, so that a run goes on where it was stopped, and several processes can share the parts, and the rows of a part.

    python -m examples.studies.baselines
    python -m examples.studies.baselines --parts MarketMaking:news Trading:news      # no page: some of the parts
    python -m examples.studies.baselines --parts MarketMaking:news --rows "PPO, seed 2"   # one row of it
    python -m examples.studies.baselines --further-seeds 5                            # also PPO with other settings
    python -m examples.studies.baselines --results FOLDER FOLDER                      # the page, from files
    python -m examples.studies.baselines --zoo runs/baselines        # its policies become those of kineticsim_env/zoo
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from examples.studies.baselines.part import NAME, PARTS, Part
from examples.studies.baselines.tables import draw
from examples.studies.baselines.zoo import fill_zoo
from kineticsim_env.engines import choose_engine
from kineticsim_env.runtime.options import exit_code, number, whole
from scripts.pages.command import check_place, command_of, page_parser, publish


def measured(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """Read what was measured, from folders or files; of a part of one engine the last one counts."""
    files = [file for path in folders for file in (sorted(path.glob(f"{NAME}_*.json")) if path.is_dir() else [path])]
    read = [json.loads(file.read_text()) for file in files]
    records = [record for one in read for record in (one if isinstance(one, list) else [one])]
    kept = {(record["engine"], record["part"]): record for record in records if "leads" in record}
    order = {name: place for place, name in enumerate(PARTS)}
    return [kept[key] for key in sorted(kept, key=lambda key: (key[0] != "cuda", order[key[1]]))]


WHERE = ("results", "runs", "output", "parts", "rows", "zoo")  # options that no figure depends on


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, or read what was measured; draw, and fill the page."""
    parser = page_parser(NAME, __doc__, kept=False)
    many = whole(0, 1 << 40)

    def add(name: str, kind: Any, default: Any, told: str) -> None:
        parser.add_argument(name, type=kind, default=default, help=told)

    parser.add_argument("--results", type=Path, nargs="+", help="write the page from these, and measure nothing")
    parser.add_argument("--parts", nargs="+", choices=PARTS, help="measure these only, and write no page")
    parser.add_argument(
        "--rows", nargs="+", help="of the parts: linear, PPO, 'PPO fast, seed 1', scripted ...; default: all"
    )
    add("--episodes", many, 0, "held-out ones; 0 takes 2048 on a CPU and 32768 on a GPU")
    add("--linear-minutes", number(0, 1e6), 0.0, "end each CMA-ES after this; 0 is no limit")
    add("--generations", many, 0, "end each CMA-ES after so many; 0 is its own number")
    add("--population", many, 0, "candidates of CMA-ES; 0 is its own number")
    add("--markets-each", many, 0, "that each candidate plays; 0 is its own number")
    add("--ppo-minutes", number(0, 1e6), 0.0, "end each training of PPO after this; 0 is no limit")
    add("--ppo-markets", many, 0, "in which PPO trains; 0 is the examples' own number")
    add("--steps", many, 0, "of each training of PPO; 0 is the examples' own number")
    add("--seeds", whole(1, 100), 5, "of PPO (default: 5)")
    add("--further-seeds", whole(0, 100), 0, "of PPO of choices, fast, and of ppo_market_maker.py (default: none)")
    add("--stack", whole(1, 300), 1, "also PPO that sees so many moves; 1 is none (default)")
    add("--stack-seeds", whole(1, 100), 2, "of it (default: 2)")
    add("--runs", Path, Path(f"runs/{NAME}"), f"folder of what is measured (default: runs/{NAME})")
    parser.add_argument(
        "--zoo", type=Path, help="copy this run's policies into kineticsim_env/zoo, and measure nothing"
    )
    options = parser.parse_args(arguments)
    if options.zoo:
        print("\n".join(fill_zoo(options.zoo)) or f"{options.zoo} has no policies")
        return
    check_place(options)
    if not options.results:
        options.runs.mkdir(parents=True, exist_ok=True)
        options.episodes = options.episodes or (32768 if choose_engine(options.engine)[1].type == "cuda" else 2048)
        command = command_of(parser, options, WHERE)
        for name in options.parts or PARTS:
            Part(name, options, command).measure()
            gc.collect()
            if torch.cuda.is_available():
                torch.compiler.reset()  # each part has programs of its own
                torch.cuda.empty_cache()
        if options.parts or options.rows:
            return
    found = measured(options.results or [options.runs])
    publish(options, NAME, found, draw)


if __name__ == "__main__":
    sys.exit(exit_code(main))
