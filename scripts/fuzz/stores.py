"""Damaged folders of sweeps, a part of kind `tampering`: bits flipped, files cut, exchanged or gone.

Whatever is done to a folder, reading it gives the right rows or an error that names it, and the same sweep again makes
it whole, or says what to do.
"""

from __future__ import annotations

import functools
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import kineticsim_env as ks
from kineticsim_env.config import PRESETS
from kineticsim_env.sweeps import Sweep
from scripts.fuzz.kinds import Failure

_SPACE = {"max_order_qty": [1, 2, 3, 4, 5, 6], "init_depth": [4, 9]}


def play(rng: np.random.Generator) -> None:
    """Damage a copy of a folder, read it, and go on with it."""
    preset = str(rng.choice(list(PRESETS)))
    whole, wanted = _sweep_of(preset)
    with tempfile.TemporaryDirectory(prefix="kineticsim-fuzz-") as place:
        folder = Path(shutil.copytree(whole.name, Path(place) / "sweep"))
        told = f"a sweep of {preset!r}, {_damage(folder, rng)}"
        plan_is_refused = False
        for what, call in (("read", lambda: ks.open_sweep(folder)), ("swept again", lambda: _swept(preset, folder))):
            try:
                found = call()
                table = found.to_pandas()
                rows = wanted[wanted["point"].isin(table["point"])].reset_index(drop=True)
                if not table.equals(rows) or (what == "swept again" and len(table) < len(wanted)):
                    raise Failure(f"{told}: {what}, it has other rows", key=("store", what, "rows"))
            except ValueError as error:
                named = re.match(r"folder: expected .*?, got ", str(error))
                if not str(error).startswith(str(folder), named.end() + 1 if named else 0):
                    raise Failure(f"{told}: {what}, {str(error)[:200]}", key=("store", what, "words")) from error
                plan_is_refused |= "plan.json" in str(error) or "in which a sweep was begun" in str(error)
                if what == "swept again" and not plan_is_refused:
                    raise Failure(f"{told}: {what}, {str(error)[:200]}", key=("store", what, "refused")) from error


@functools.cache
def _sweep_of(preset: str) -> tuple[tempfile.TemporaryDirectory[str], Any]:
    """Return a whole folder and its rows; made once in a process."""
    folder = tempfile.TemporaryDirectory(prefix="kineticsim-fuzz-")
    return folder, _swept(preset, Path(folder.name)).to_pandas()


def _swept(preset: str, folder: Path) -> Sweep:
    given: dict[str, Any] = {"market": preset, "folder": folder, "batch": 5, "engine": "numpy", "progress": False}
    return ks.sweep(_SPACE, 2, ["volume", "volatility"], **given)


def _damage(folder: Path, rng: np.random.Generator) -> str:
    """Do something to a file of a folder; returns what."""
    files = sorted(folder.iterdir())
    path, other = (files[int(place)] for place in rng.choice(len(files), 2, replace=False))
    data = path.read_bytes()
    way = str(rng.choice(["flipped", "flipped", "flipped", "cut", "exchanged", "copied", "gone"]))
    if way == "flipped":
        changed = bytearray(data)
        for bit in rng.integers(8 * len(data), size=int(rng.choice([1, 1, 2, 50]))).tolist():
            changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
    elif way == "cut":
        path.write_bytes(data[: int(rng.integers(len(data)))])
    elif way == "gone":
        path.unlink()
    else:
        path.write_bytes(other.read_bytes())
        if way == "exchanged":
            other.write_bytes(data)
    return f"{path.name} {way}"
