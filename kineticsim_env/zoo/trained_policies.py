"""Trained policies by name: `load_policy`, and which there are. Environments, commands and users call it."""

from __future__ import annotations

import os
from pathlib import Path

from kineticsim_env.policies.policy_files import ENDING
from kineticsim_env.policies.saved import SavedPolicy, read
from kineticsim_env.runtime.values import show

FOLDER = Path(__file__).parent


def trained(within: str = "") -> dict[str, Path]:
    """Return the files of trained policies by name, such as `news/market_making/ppo`.

    Args:
        within: The beginning of the names that are asked for, such as `news/market_making/`.
    """
    found = {path.relative_to(FOLDER).as_posix().removesuffix(ENDING): path for path in FOLDER.rglob(f"*{ENDING}")}
    return {name: found[name] for name in sorted(found) if name.startswith(within)}


def load_policy(name: str | Path, *, noise: bool = False, seed: int = 0) -> SavedPolicy:
    """Return a trained policy of this package by name, or of a file that `NetworkPolicy.save` has written.

    Files are safetensors, and everything in them is checked: none can run code. It needs
    `pip install 'kineticsim-env[zoo]'`.

    Args:
        name: Such as `"news/market_making/ppo"`, of seed 1, or `"news/market_making/ppo-3"`, of seed 3; or the path of
            a file, whose name ends in `.safetensors`.
        noise: Whether it draws its actions as in training. Without it plays means, or the likeliest choices.
        seed: Of the noise.

    Returns:
        A `SavedPolicy`, a function of observations that returns actions, for `evaluate`, `rollout` and as an opponent.

    Raises:
        TypeError, ValueError: Naming what came, and the policies that there are or what is wrong with the file.
        ModuleNotFoundError: Without safetensors.
    """
    if not isinstance(name, (str, os.PathLike)):
        raise TypeError(f"name: expected the name of a policy or a path, got {show(name)}")
    path = os.fspath(name)
    if not isinstance(path, str):
        raise TypeError(f"name: expected the name of a policy or a path, got {show(name)}")
    if isinstance(name, str) and not path.endswith(ENDING):
        known = trained()
        if path not in known:
            there = ", ".join(known) or "none yet"
            raise ValueError(
                f"name: expected a file *{ENDING}, or one of this package's policies ({there}), got {show(path)}"
            )
        name = known[path]
    return SavedPolicy(path, *read(name), noise=noise, seed=seed)


def load_for(argument: str, name: str) -> SavedPolicy:
    """Return what `load_policy` returns; errors name the argument that the name came in."""
    try:
        return load_policy(name)
    except ValueError as error:
        raise ValueError(f"{argument}: {str(error).removeprefix('name: ')}") from error
