"""The NumPy engine: the oracle (numpy_reference.py) behind the same calls as the native engines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from kineticsim_env import state
from kineticsim_env.engines import numpy_reference
from kineticsim_env.engines.native import NO_COPY


class NumpyEngine:
    """Hands NumPy views of CPU tensors to the oracle."""

    name = "numpy"

    def __init__(self, device: torch.device, sizes: Mapping[str, int], tensors: dict[str, torch.Tensor]) -> None:
        """Bind the engine to CPU tensors by their names in `struct Launch`."""
        self.device = device
        self._sizes = sizes
        self._args: dict[str, Any] = dict.fromkeys(state.LAUNCH_FIELDS)
        self._args |= {"markets": sizes["M"], "levels": sizes["L"], "slots": sizes["K"]}
        self.bind(tensors)

    def bind(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Take views of tensors that live as long as the engine."""
        self._args |= {name: tensor.numpy() for name, tensor in tensors.items()}

    def set_parameters(self, rows: Mapping[str, np.ndarray]) -> None:
        """Take over parameter rows: int64 `[1]` or `[M]` by the names of `struct MarketParams`."""
        self._args["params_stride"] = int(len(rows["num_noise"]) > 1)
        self._args["params"] = {
            name: np.array(np.broadcast_to(rows[name], (self._sizes["M"],)), dtype=np.int64)
            for name in state.PARAMS_FIELDS
        }

    def set_scenarios(self, rows: Mapping[str, np.ndarray]) -> None:
        """Take over the table of scenarios; see `NativeEngine.set_scenarios`."""
        table = {name: np.array(rows[name], dtype=np.int64) for name in state.PARAMS_FIELDS}
        if self._args.get("scenario_params") is None:
            first = {name: np.full(self._sizes["M"], values[0]) for name, values in table.items()}
            self._args |= {"params": first, "params_stride": 1}
        self._args["scenario_params"] = table

    def parameters(self) -> torch.Tensor:
        """Return the parameters of every market; see `NativeEngine.parameters`."""
        columns = [self._args["params"][name] for name in state.PARAMS_FIELDS]
        return torch.from_numpy(np.stack(columns, axis=1).astype(np.int32))

    def scenario_rows(self) -> torch.Tensor:
        """Return the table of scenarios; see `NativeEngine.scenario_rows`."""
        columns = [self._args["scenario_params"][name] for name in state.PARAMS_FIELDS]
        return torch.from_numpy(np.stack(columns, axis=1).astype(np.int32))

    def put_parameters(self, rows: torch.Tensor) -> None:
        """Take over the parameters of every market; see `NativeEngine.put_parameters`."""
        for index, name in enumerate(state.PARAMS_FIELDS):
            self._args["params"][name][:] = rows[:, index].cpu().numpy()

    def set_task(self, task: Mapping[str, object]) -> None:
        """Take over the task's settings by the names of `struct TaskParams`."""
        self._args["task"] = {name: np.asarray(value) if name == "role" else value for name, value in task.items()}

    def launch(self, mode: int, *, decisions: int = 1, auctions: int = 1, **tensors: torch.Tensor | None) -> None:
        """Run one launch; see `NativeEngine.launch`."""
        inputs: dict[str, Any] = {name: None if tensor is None else tensor.numpy() for name, tensor in tensors.items()}
        for name, rest in (("actions", (-1,)), ("choices", ())):  # native engines see the memory, not its axes
            if name in inputs:
                inputs[name] = inputs[name].reshape(self._sizes["M"], self._sizes["K"], *rest)
        numpy_reference.launch(self._args | {"env_mode": mode, "decisions": decisions, "auctions": auctions} | inputs)

    def __reduce__(self) -> str:
        """Refuse to be copied or pickled: a copy's views would no longer be those of its simulator's tensors."""
        raise TypeError(NO_COPY)

    def specialise(self) -> None:
        """Nothing is compiled."""

    def state_changed(self) -> None:
        """Nothing is remembered between launches."""
