"""The NumPy engine: the rules behind the same calls as the native engines.

`Simulator` and environments call `NumpyEngine`, whose `launch` takes markets in blocks that fit a cache: runs are in
market.py, environments in tasks.py. This file alone has to do with what the engines share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch

from kineticsim_env.config import MarketConfig
from kineticsim_env.engines.agents import AgentGroup
from kineticsim_env.engines.base import Engine, pack, unpack
from kineticsim_env.engines.numpy import market, tasks
from kineticsim_env.engines.numpy.state import CLASSES, ENV_STATE, MARKET_STATE, SLOT_STATE, stacked
from kineticsim_env.engines.parameters import regime_rows, threshold
from kineticsim_env.runtime import layout
from kineticsim_env.runtime.calls import Uninterrupted

BLOCK_CELLS = 2**15  # agents or ticks in one block of markets: its temporaries stay in the L2 cache
RUN_OUTPUT = ("fills", "value", "rejects", *(f"series_{name}" for name in market.SERIES))
ENV_OUTPUT = (
    "observation", "final_observation", "reward", "terminated", "truncated", "over", "fills", "task_values",
    "decision_events",
)  # fmt: skip
POLICIES = ("policy_memory", "played_quotes", "played_flags")  # of policies of slots
INFO = ("info", "episode_return", "episode_filled", "idle")


class NumpyEngine(Engine):
    """Runs the rules on NumPy views of CPU tensors."""

    name = "numpy"

    def __init__(self, device: torch.device, sizes: layout.Sizes, tensors: Mapping[str, torch.Tensor]) -> None:
        self._args: dict[str, Any] = dict.fromkeys(layout.LAUNCH_FIELDS)
        self._args |= {"markets": sizes["M"], "levels": sizes["L"], "slots": sizes["K"]}
        self._args["orders_per_side"] = layout.levels_of_ladders(sizes)
        super().__init__(device, sizes, tensors)

    def bind(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Take views of tensors that live as long as the engine."""
        super().bind(tensors)
        self._args |= {name: tensor.numpy() for name, tensor in tensors.items()}
        if "fills" in tensors:  # an environment's, of one decision
            self._args["fills"] = tensors["fills"].numpy()[None]

    def set_ensemble(self, config: MarketConfig) -> None:
        """See `Engine.set_ensemble`; regimes are int64 `[R]` by the names of `struct RegimeParams`, or None."""
        self._args["arrivals"] = layout.ENUMS["Arrivals"][config.arrivals]
        self._args["mechanism"] = layout.ENUMS["Mechanism"][config.mechanism]
        self._args["agent_threshold"] = int(threshold(config.agent_prob, 1 << 16))
        self._args["regimes"] = None if config.regimes is None else regime_rows(config)

    def set_flows(self, tables: Sequence[Any]) -> None:
        self._args["flow_table"] = stacked(tables)

    def set_agents(self, groups: Sequence[AgentGroup]) -> None:
        self._args["agents"] = tuple(groups)

    def set_agent_parameters(self, table: np.ndarray) -> None:
        self._args["agent_parameters"] = table.astype(np.int64)

    def set_parameters(self, rows: Mapping[str, np.ndarray]) -> None:
        self._args["params_stride"] = int(len(rows["num_noise"]) > 1)
        self._args["params"] = {
            name: np.array(np.broadcast_to(rows[name], (self._sizes["M"],)), dtype=np.int64)
            for name in layout.PARAMS_FIELDS
        }

    def set_scenarios(
        self,
        rows: Mapping[str, np.ndarray],
        present: torch.Tensor | None = None,
        agents: np.ndarray | None = None,
        agents_present: torch.Tensor | None = None,
        others: torch.Tensor | None = None,
    ) -> None:
        table = {name: np.array(rows[name], dtype=np.int64) for name in layout.PARAMS_FIELDS}
        if agents is not None:
            if agents_present is not None:
                self._args["agent_parameters"] = agents_present.cpu().numpy().astype(np.int64)
            elif self._args.get("scenario_params") is None:
                self._args["agent_parameters"] = np.repeat(agents[:1], self._sizes["M"], axis=0).astype(np.int64)
            self._args["scenario_agent_parameters"] = agents.astype(np.int64)
        if present is not None:
            self._args["params"] = unpack(present.cpu().numpy())
        elif self._args.get("scenario_params") is None:
            self._args["params"] = {name: np.full(self._sizes["M"], values[0]) for name, values in table.items()}
        self._args |= {"scenario_params": table, "params_stride": 1}
        self._tables["scenario_params"], self._fits_task = len(table["fee"]), False
        self.bind({"scenario_thresholds": self._uniform_thresholds(len(table["fee"]))})

    def set_slot_policies(self, policies: Mapping[int, Any]) -> None:
        super().set_slot_policies(policies)
        self._args["slot_policies"] = dict(self.slot_policies.places) if self.slot_policies else None

    def parameters(self) -> torch.Tensor:
        return torch.from_numpy(pack(self._args["params"]))

    def agent_parameters(self) -> torch.Tensor | None:
        table = self._args.get("agent_parameters")
        return None if table is None else torch.from_numpy(table.astype(np.int32))

    def live_parameters(self) -> dict[str, torch.Tensor]:
        arrays = {f"params.{name}": values for name, values in self._args["params"].items()}
        if self._args.get("agent_parameters") is not None:
            arrays["agent_parameters"] = self._args["agent_parameters"]
        return {name: torch.from_numpy(values) for name, values in arrays.items()}

    def scenario_rows(self) -> torch.Tensor:
        return torch.from_numpy(pack(self._args["scenario_params"]))

    def set_task(self, task: Mapping[str, Any]) -> None:
        super().set_task(task)
        self._args["task"] = {name: np.asarray(value) if name == "role" else value for name, value in task.items()}

    def _launch(
        self, mode: int, decisions: int, auctions: int, reach: int, tensors: Mapping[str, torch.Tensor | None]
    ) -> None:
        inputs: dict[str, Any] = {name: None if tensor is None else tensor.numpy() for name, tensor in tensors.items()}
        for name, rest in (("actions", (-1,)), ("choices", ())):  # native engines see the memory, not its axes
            if inputs.get(name) is not None:
                inputs[name] = inputs[name].reshape(self._sizes["M"], self._sizes["K"], *rest)
        settings = {"env_mode": mode, "decisions": decisions, "auctions": auctions, "reach": reach}
        launch(self._args | settings | inputs, commit=Uninterrupted())


def launch(args: dict[str, Any], commit: AbstractContextManager[Any] | None = None) -> None:
    """Run one launch, updating the state and output arrays in place, or leave them all as they were.

    Args:
        commit: entered while the arrays are updated, so that no signal interrupts that.
        args: the fields of `struct Launch`: integers, NumPy arrays of the shapes given there (None for null), `params`
            as a dict of int64 arrays [M] and `task` as a dict of the fields of `struct TaskParams`, or None.

    Raises:
        MarketError: a side's total would reach 2^31, or a window would leave +/-2^29 ticks.
    """
    written = MARKET_STATE + SLOT_STATE + ENV_STATE + (ENV_OUTPUT + INFO if args["env_mode"] else RUN_OUTPUT)
    written += POLICIES
    copies: dict[str, Any] = {name: args[name].copy() for name in written if args.get(name) is not None}
    if args["env_mode"]:  # a reset may draw new ones
        copies["params"] = {name: values.copy() for name, values in args["params"].items()}
        if args.get("scenario_agent_parameters") is not None:
            copies["agent_parameters"] = args["agent_parameters"].copy()
    work_on = (market.run, tasks.step, tasks.reset, tasks.restart_done, market.open_books)[args["env_mode"]]
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        for rows in market_blocks(args):
            work_on(args | copies, rows)
    with commit or nullcontext():
        for name, values in copies.pop("params", {}).items():
            args["params"][name][...] = values
        for name, copy in copies.items():
            args[name][...] = copy


def market_blocks(args: dict[str, Any]) -> Iterator[np.ndarray]:
    """Yield the market indices of one block after another."""
    agents = sum(int(np.max(args["params"][f"num_{name}"], initial=0)) for name in CLASSES)
    size = max(1, BLOCK_CELLS // max(agents, args["levels"]))
    for start in range(0, args["markets"], size):
        yield np.arange(start, min(start + size, args["markets"]))
