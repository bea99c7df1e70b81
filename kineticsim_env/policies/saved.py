"""`SavedPolicy`: a trained network that was read from a file, called as scripted policies are; and how files are read.

`policy_files.py` has what is in a file. Whatever a file holds, it is checked before anything is made of it.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from kineticsim_env.policies.networks import MOST_INPUTS, MOST_OUTPUTS, NetworkPolicy, NetworkShape
from kineticsim_env.policies.noise import gumbels, normals, words_of
from kineticsim_env.policies.policy_files import FORM, KEY, Told, library
from kineticsim_env.runtime.checks import check_tensor
from kineticsim_env.runtime.values import check_count, check_flag, show

MOST_BYTES = 1 << 20  # of a file; the largest network has half of that


class SavedPolicy:
    """A trained policy: a function of observations float32 `[M, F]` that returns actions, as scripted ones are.

    Attributes:
        name: Under which it was asked for.
        network: The `NetworkPolicy`.
        told: What its file says of how it was made, a `Told`.
        action_type: `"continuous"`, which returns float32 `[M, A]` in [-1, 1], or `"discrete"`, int64 `[M]`.
    """

    def __init__(self, name: str, network: NetworkPolicy, told: Told, *, noise: bool = False, seed: int = 0) -> None:
        """Take over the network. Without noise it plays means, or the likeliest choices; `seed` is the noise's."""
        self.name, self.network, self.told = name, network, told
        self.action_type = action_type_of(network.shape)
        self._noise, self._seed = check_flag("noise", noise), check_count("seed", seed, -(2**63), 2**63 - 1)
        self._calls = torch.zeros((), dtype=torch.int64)

    def __repr__(self) -> str:
        return f"SavedPolicy({self.name!r})"

    def __call__(self, observation: torch.Tensor) -> torch.Tensor:
        """Return the actions; the network moves to where the observations are."""
        inputs = self.network.shape.inputs
        allowed = f"a tensor float32 [M, {inputs}] of observations, as {self.name} was trained on"
        fits = lambda given: given.dim() == 2 and given.shape[1] == inputs  # noqa: E731
        network = self.on(check_tensor("observation", observation, allowed, fits, (torch.float32,)).device)
        return self._sample(network, observation) if self._noise else network.act(observation)

    def on(self, device: torch.device) -> NetworkPolicy:
        """Return the network on a device."""
        return self.network.to(device)

    @torch.no_grad()
    def _sample(self, network: NetworkPolicy, observation: torch.Tensor) -> torch.Tensor:
        outputs, _ = network(observation)
        rows = torch.arange(len(outputs), device=outputs.device)
        self._calls = self._calls.to(outputs.device)
        words = words_of(torch.full_like(rows, self._seed), rows, torch.zeros_like(rows), self._calls.expand_as(rows))
        self._calls += 1
        if network.log_std is None:
            return (outputs + gumbels(words, outputs.shape[1])).argmax(-1)
        return (outputs + network.log_std.exp() * normals(words, outputs.shape[1])).clamp(-1.0, 1.0)


def action_type_of(shape: NetworkShape) -> str:
    """Return the `action_type` of the environments that a network of this shape plays in."""
    return "discrete" if shape.categorical else "continuous"


# Files ----------------------------------------------------------------------------------------------------------------


def read(path: str | os.PathLike[str]) -> tuple[NetworkPolicy, Told]:
    """Return the network of a file, on the CPU, and what the file says of it.

    Raises:
        ValueError: Naming the file and what is wrong with it, whatever it holds.
        ModuleNotFoundError: Without safetensors.
    """
    loads = library().load
    try:
        content = _content(Path(path))
        try:
            tensors = loads(content)  # which checks the header and where tensors are
            text = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")]).get("__metadata__", {}).get(KEY)
        except Exception as error:  # of the library, and of types that NumPy has not
            reason = " ".join(str(error).split()) or type(error).__name__
            raise ValueError(f"is damaged, or no safetensors file of float32 ({reason})") from error
        shape, told = _said(text)
        return _filled(shape, tensors), told
    except (ValueError, TypeError, OSError) as error:
        raise ValueError(f"{show(str(path))}: expected a file that NetworkPolicy.save has written: {error}") from error


def _content(path: Path) -> bytes:
    if not path.is_file():
        raise ValueError("there is no such file")
    with path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES} bytes")
    return content


def _said(text: Any) -> tuple[NetworkShape, Told]:
    """Return the shape and what is told, of the text in the header."""
    if text is None:
        raise ValueError(f"its header has no {KEY!r}")
    try:
        says = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its {KEY!r} is no JSON") from error
    _check_names(KEY, says, {"form", "network", "told"})
    if says["form"] != FORM:
        raise ValueError(f"form: expected {FORM}, got {show(says['form'])}")
    given = _check_names("network", says["network"], {field.name for field in dataclasses.fields(NetworkShape)})
    check_count("inputs", given["inputs"], 1, MOST_INPUTS), check_count("outputs", given["outputs"], 1, MOST_OUTPUTS)
    for name in ("categorical", "trunk", "has_critic"):
        check_flag(name, given[name])
    told = _check_names("told", says["told"], {field.name for field in dataclasses.fields(Told)})
    return NetworkShape(**given), Told(**told)


def _check_names(what: str, given: Any, names: set[str]) -> dict[str, Any]:
    if not isinstance(given, dict) or set(given) != names:
        got = sorted(given) if isinstance(given, dict) else type(given).__name__
        raise ValueError(f"{what}: expected {', '.join(sorted(names))}, got {show(got)}")
    return given


def _filled(shape: NetworkShape, tensors: Mapping[str, np.ndarray]) -> NetworkPolicy:
    """Return a network of a shape with these numbers, once all of them fit."""
    blank = lambda inputs, outputs, _: nn.utils.skip_init(nn.Linear, inputs, outputs)  # noqa: E731
    network = NetworkPolicy.of_shape(shape, blank, 0.0)
    here = network.state_dict()
    if set(tensors) != set(here):
        raise ValueError(f"tensors: expected {', '.join(here)}, got {', '.join(sorted(tensors)) or 'none'}")
    for name, tensor in here.items():
        array = tensors[name]
        if array.dtype != np.float32 or array.shape != tuple(tensor.shape):
            raise ValueError(f"{name}: expected float32 {list(tensor.shape)}, got {array.dtype} {list(array.shape)}")
        if not np.isfinite(array).all():
            raise ValueError(f"{name}: expected finite numbers, got others")
    network.load_state_dict({name: torch.tensor(array) for name, array in tensors.items()})
    return network
