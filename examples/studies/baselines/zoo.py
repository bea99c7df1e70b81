"""The policies of a run become those of `kineticsim_env/zoo`, by name; `__main__.py --zoo` asks."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from kineticsim_env.policies.policy_files import ENDING
from kineticsim_env.policies.saved import read
from kineticsim_env.zoo.trained_policies import FOLDER

NAMES = {  # of rows; seed 3 of PPO is ppo-3, seed 1 plain ppo
    "PPO": "ppo",
    "PPO_discrete": "ppo_discrete",
    "linear": "linear",
    "linear_sizes_too": "linear_sizes",
}
_ROW = re.compile(r"(?P<row>\w+?)(_seed_(?P<seed>\d+))?")


def named(runs: Path) -> Iterator[tuple[str, Path]]:
    """Return the files of a run's policies that belong into the zoo, with their names there."""
    for path in sorted(runs.glob(f"*/*{ENDING}")):
        parts = _ROW.fullmatch(path.stem)
        if parts and parts["row"] in NAMES:
            _, told = read(path)
            seed = f"-{parts['seed']}" if parts["seed"] and parts["seed"] != "1" else ""
            yield f"{told.preset}/{told.task}/{NAMES[parts['row']]}{seed}", path


def fill_zoo(runs: Path, folder: Path = FOLDER) -> list[str]:
    """Copy them there, in place of those of the same names; returns the names."""
    names = []
    for name, path in named(runs):
        place = folder / f"{name}{ENDING}"
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)
        names.append(name)
    return names
