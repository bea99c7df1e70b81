"""The policies of a run become those of `kineticsim_env/zoo`, by name; `__main__.py --zoo` asks."""

from __future__ import annotations

import re
import shutil
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


def fill_zoo(runs: Path, folder: Path = FOLDER) -> list[str]:
    """Copy a run's policies there, in place of those of the same names; returns the names."""
    names = []
    for path in sorted(runs.glob(f"*/*{ENDING}")):
        parts = _ROW.fullmatch(path.stem)
        if parts is None or parts["row"] not in NAMES:
            continue
        _, told = read(path)
        seed = f"-{parts['seed']}" if parts["seed"] and parts["seed"] != "1" else ""
        names.append(f"{told.preset}/{told.task}/{NAMES[parts['row']]}{seed}")
        place = folder / f"{names[-1]}{ENDING}"
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)
    return names
