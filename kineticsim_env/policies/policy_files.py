"""Files of trained policies: what is told of one, and how it is written; `NetworkPolicy.save` calls it.

A file is safetensors: the tensors of `NetworkPolicy.state_dict()`, float32, and in the header, under one key, a text of
JSON that says what it is. So reading one, as `saved.py` does, runs no code of whoever wrote it.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kineticsim_env.config import PRESET_NAMES
from kineticsim_env.runtime.files import check_file, replacing
from kineticsim_env.runtime.values import as_float, check_choice, check_dict, is_number, load_optional, show
from kineticsim_env.tasks import TASK_WORDS, TASKS

ENDING = ".safetensors"
KEY, FORM = "kineticsim_env.policy", 1  # of the header's text, and the form of what it says
_TEXTS = ("command", "commit", "licence")


def library() -> Any:
    """Return the module of safetensors, or say how it is installed."""
    return load_optional("safetensors.numpy", "files of policies need safetensors: pip install 'kineticsim-env[zoo]'")


@dataclasses.dataclass(frozen=True)
class Told:
    """What a file says of how a policy was made, besides the shape of its network.

    Observations are those that the environment returns, in its own scales: a network that was trained on normalised
    ones has to have that in its first layer.

    Attributes:
        task: `"market_making"`, `"execution"` or `"trading"`.
        preset: The market that it was trained in.
        command: That made it.
        commit: Of this repository, that it was made with.
        licence: Under which it may be used.
        figures: Of its evaluation, finite numbers by name.
    """

    task: str
    preset: str
    command: str = ""
    commit: str = ""
    licence: str = ""
    figures: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check every field; raise `TypeError` or `ValueError` naming the field, the value and what is allowed."""
        check_choice("task", self.task, TASK_WORDS)
        check_choice("preset", self.preset, PRESET_NAMES)
        for name in _TEXTS:
            if not isinstance(getattr(self, name), str):
                raise TypeError(f"{name}: expected a text, got {show(getattr(self, name))}")
        for name, value in check_dict("figures", self.figures, "a dict of finite numbers by name").items():
            if not isinstance(name, str) or not is_number(value) or not math.isfinite(as_float(value)):
                raise ValueError(f"figures: expected finite numbers by name, got {show(name)}: {show(value)}")
        object.__setattr__(self, "figures", {name: float(value) for name, value in self.figures.items()})

    @property
    def role(self) -> str | None:
        """The role of a learner of the task."""
        return TASKS[TASK_WORDS[self.task]].role


def write(path: str | Path, tensors: Mapping[str, torch.Tensor], shape: Any, told: Told) -> None:
    """Write a file; a program that is stopped meanwhile leaves the one before.

    Args:
        path: Whose name ends in `.safetensors`.
        tensors: A network's, by name.
        shape: Its `NetworkShape`.
        told: What is told of it.
    """
    if not str(path).endswith(ENDING):
        raise ValueError(f"path: expected a name that ends in {ENDING}, got {show(str(path))}")
    check_file("path", path)
    arrays = {name: tensor.detach().cpu().contiguous().numpy() for name, tensor in tensors.items()}
    for name, array in arrays.items():
        if array.dtype != np.float32 or not np.isfinite(array).all():
            raise ValueError(f"{name}: expected finite numbers of float32, got {array.dtype} with others")
    says = {"form": FORM, "network": dataclasses.asdict(shape), "told": dataclasses.asdict(told)}
    text = json.dumps(says, ensure_ascii=False, allow_nan=False)
    content = library().save(arrays, metadata={KEY: text})
    with replacing(path) as part:
        part.write_bytes(content)
