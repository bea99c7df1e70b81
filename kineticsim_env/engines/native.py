"""`NativeEngine`: what `CpuEngine` and `CudaEngine` share, the two engines compiled from cuda/.

Both fill one `struct Launch` with pointers to torch tensors and hand it over; they hold no rule. `Engine.launch` looks
at every tensor before it gets here. For programs that torch compiles they register the same launch as a `Launcher`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from kineticsim_env.agents.policies import ProgramPolicy
from kineticsim_env.config import MAX_QUOTE_QTY, MarketConfig
from kineticsim_env.engines import operators
from kineticsim_env.engines.agents import AgentGroup
from kineticsim_env.engines.base import ENV_RESTART, ENV_STEP, OPEN, RUN, Engine, pack, unpack
from kineticsim_env.engines.parameters import regime_rows, threshold
from kineticsim_env.runtime import layout
from kineticsim_env.runtime.flow_table import FlowTable, most_at_tick, numbers_of_engines

INT32_LIMIT = 2**31
_FURTHER = frozenset(f"series_{name}" for name in layout.FURTHER_SERIES)


class NativeEngine(Engine):
    """What the C++ and the CUDA engine share: the struct, and how tensors and parameters get into it."""

    name = "native"

    def __init__(self, device: torch.device, sizes: layout.Sizes, tensors: Mapping[str, torch.Tensor]) -> None:
        self._struct = layout.Launch()
        self._struct.markets, self._struct.levels, self._struct.slots = sizes["M"], sizes["L"], sizes["K"]
        self._struct.orders_per_side = layout.levels_of_ladders(sizes)
        self._params: torch.Tensor | None = None
        self._agent_table: np.ndarray | None = None  # what `set_parameters` takes over with the parameters
        self._growth = 0  # the most that an auction can add to a side; captured graphs and programs have it, too
        self._scenarios: torch.Tensor | None = None
        self._retired: list[torch.Tensor | None] = []  # tensors that captured CUDA graphs may still hold on to
        self._launchers: dict[int, operators.Launcher] = {}  # by mode, of the settings that hold now
        self._previous_launchers: dict[int, operators.Launcher] = {}  # likewise, of these or of earlier settings
        self._regimes: dict[str, np.ndarray] = {}
        self._flows: Sequence[FlowTable] = ()
        self._groups: tuple[AgentGroup, ...] = ()
        super().__init__(device, sizes, tensors)

    def bind(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Point fields of the struct to tensors that live as long as the engine."""
        super().bind(tensors)
        self._launchers = {}
        for name in tensors:
            setattr(self._struct, name, self._bound[name])

    @torch.inference_mode(False)
    def set_ensemble(self, config: MarketConfig) -> None:
        self._struct.arrivals = layout.ENUMS["Arrivals"][config.arrivals]
        self._struct.mechanism = layout.ENUMS["Mechanism"][config.mechanism]
        self._struct.agent_threshold = int(threshold(config.agent_prob, 1 << 16))
        if config.regimes is not None:
            self._regimes = regime_rows(config)
            table = np.stack([self._regimes[name] for name in layout.REGIME_FIELDS], axis=1).astype(np.int32)
            self.bind({"regimes": torch.from_numpy(table).to(self.device)})

    @torch.inference_mode(False)
    def set_flows(self, tables: Sequence[FlowTable]) -> None:
        self._retired.append(self._tensors.get("flow_table"))
        self._flows = tuple(tables)
        numbers = np.concatenate([numbers_of_engines(table) for table in tables])
        self.bind({"flow_table": torch.from_numpy(numbers).to(self.device)})

    def set_agents(self, groups: Sequence[AgentGroup]) -> None:
        self._groups = tuple(groups)
        self._struct.agent_classes = len(self._groups)
        self._struct.added_agents = sum(group.agents for group in self._groups)
        self._struct.largest_added_order = max((group.kind.largest_order for group in self._groups), default=0)
        self._struct.parameter_words, self._struct.memory_words = self._sizes.get("P", 0), self._sizes.get("Q", 0)
        for number, group in enumerate(self._groups):
            for name in layout.AGENT_CLASS_FIELDS:
                if hasattr(group, name):
                    setattr(self._struct.agents[number], name, getattr(group, name))

    def set_slot_policies(self, policies: Mapping[int, ProgramPolicy]) -> None:
        super().set_slot_policies(policies)
        made = self.slot_policies
        self._launchers = {}
        for slot in range(self._sizes["K"]):
            place = made.places.get(slot) if made else None
            for name in ("number", "parameters", "memory", "words"):
                setattr(self._struct.slot_policies[slot], name, getattr(place, name) if place else 0)
        if made:
            table, memory = made.tensors["policy_parameters"], made.tensors["policy_memory"]
            self._struct.policy_parameters_stride = int(len(table) > 1)
            self._struct.policy_parameter_words, self._struct.policy_memory_words = table.shape[1], memory.shape[1]

    def set_agent_parameters(self, table: np.ndarray) -> None:
        self._agent_table = table

    @torch.inference_mode(False)
    def set_parameters(self, rows: Mapping[str, np.ndarray]) -> None:
        packed, agents = pack(rows), self._agent_table
        in_place = self._plan(rows)
        of_agents = self.agent_parameters()
        in_place &= agents is None or (of_agents is not None and of_agents.shape == agents.shape)
        if self._params is None or not in_place or self._params.shape != packed.shape:
            # Not in place: a CUDA graph may hold a kernel that these parameters would lead astray.
            self._retired += [self._params, of_agents]
            self._params = torch.empty(packed.shape, dtype=torch.int32, device=self.device)
            if agents is not None:
                self.bind({"agent_parameters": torch.from_numpy(agents).to(self.device, copy=True)})
        elif of_agents is not None and agents is not None:
            of_agents.copy_(torch.from_numpy(agents))
        self._params.copy_(torch.from_numpy(packed))
        self._struct.params = self._params.data_ptr()
        self._struct.params_stride = int(len(packed) > 1)
        self._struct.agent_parameters_stride = int(agents is not None and len(agents) > 1)

    def _plan(self, rows: Mapping[str, np.ndarray]) -> bool:
        """Prepare for markets of these parameters; returns whether what was prepared before fits as it is."""
        self._launchers = {}
        self._rows = rows
        largest = np.maximum(rows["max_order_qty"], self._largest_in_regimes("max_order_qty"))
        if self._flows:
            largest = max(self._struct.largest_added_order, *(table.limit_size.max() for table in self._flows))
            ordered = rows["interval"] * largest + self._openings() * max(map(most_at_tick, self._flows))
        elif self._struct.arrivals != layout.ENUMS["Arrivals"]["each"]:
            ordered = rows["interval"] * np.maximum(largest, self._struct.largest_added_order)
        else:
            ordered = (rows["first_fundamental"] + rows["num_fundamental"]) * largest
            ordered = ordered + self._struct.added_agents * self._struct.largest_added_order
        self._orders = int(ordered.max())  # of an auction, at most
        before = self._growth
        self._growth = max(before, self._orders + self._most_quoted())
        return self._growth == before

    def _openings(self) -> np.ndarray:
        """Return how many ticks of an order flow's grid open in an interval, at most, int64 `[rows]`."""
        return self._sizes["L"] * (self._rows["interval"] // self._rows["beat"] + 1)

    def _most_quoted(self) -> int:
        """Return the most that slots' quotes hold on a side."""
        return self._sizes["K"] * math.prod(self._sizes["O"]) * MAX_QUOTE_QTY

    def _largest_in_regimes(self, name: str) -> int:
        """Return the most that any regime makes of a parameter, -1 if none changes it."""
        return int(max(self._regimes.get(name, ()), default=-1))

    @torch.inference_mode(False)
    def set_scenarios(
        self,
        rows: Mapping[str, np.ndarray],
        present: torch.Tensor | None = None,
        agents: np.ndarray | None = None,
        agents_present: torch.Tensor | None = None,
        others: torch.Tensor | None = None,
    ) -> None:
        table = pack(rows)
        if present is not None:
            playing = present.cpu().numpy()
        elif self._scenarios is None:
            playing = np.repeat(table[:1], self._sizes["M"], axis=0)
        else:
            playing = self.parameters().cpu().numpy()
        further = [] if others is None else [others.cpu().numpy()]
        in_place = self._plan(unpack(np.concatenate([table, playing, *further])))
        tables = {} if agents is None else self._agents_of_scenarios(agents, agents_present)
        if self._scenarios is None or not in_place or self._scenarios.shape != table.shape:
            # Not in place: a CUDA graph may hold a kernel that these parameters would lead astray.
            names = ("scenario_thresholds", *tables)
            self._retired += [self._scenarios, self._params, *(self._tensors.get(name) for name in names)]
            self.bind({name: torch.from_numpy(values).to(self.device, copy=True) for name, values in tables.items()})
            self._scenarios = torch.from_numpy(table).to(self.device)
            self._params = torch.from_numpy(playing).to(self.device, copy=True)  # `present` is another's
        else:
            self._scenarios.copy_(torch.from_numpy(table))
            self.parameters().copy_(torch.from_numpy(playing))
            for name, values in tables.items():
                self._tensors[name].copy_(torch.from_numpy(values))
        uniform = self._uniform_thresholds(len(table))
        self.bind({"params": self.parameters(), "scenario_params": self._scenarios, "scenario_thresholds": uniform})
        self._struct.params_stride = self._struct.agent_parameters_stride = 1

    def _agents_of_scenarios(self, agents: np.ndarray, present: torch.Tensor | None) -> dict[str, np.ndarray]:
        """Return what scenarios give agents that users have added, and what these have until then."""
        if present is None and self._scenarios is not None:
            present = self.agent_parameters()
        playing = np.repeat(agents[:1], self._sizes["M"], axis=0) if present is None else present.cpu().numpy()
        return {"scenario_agent_parameters": agents, "agent_parameters": playing}

    def agent_parameters(self) -> torch.Tensor | None:
        return self._tensors.get("agent_parameters")

    def parameters(self) -> torch.Tensor:
        assert self._params is not None
        return self._params

    def live_parameters(self) -> dict[str, torch.Tensor]:
        agents = self.agent_parameters()
        return {"params": self.parameters()} | ({} if agents is None else {"agent_parameters": agents})

    def scenario_rows(self) -> torch.Tensor:
        assert self._scenarios is not None
        return self._scenarios.cpu()

    def set_task(self, task: Mapping[str, Any]) -> None:
        super().set_task(task)
        self._launchers = {}
        for name, value in task.items():
            if layout.TASK_FIELDS[name].length:
                getattr(self._struct.task, name)[:] = list(value)
            else:
                setattr(self._struct.task, name, value)

    def _launch(
        self, mode: int, decisions: int, auctions: int, reach: int, tensors: Mapping[str, torch.Tensor | None]
    ) -> None:
        struct = self._struct
        struct.env_mode, struct.decisions, struct.auctions, struct.reach = mode, decisions, auctions, reach
        total = self._total(mode, decisions, auctions)
        struct.growth = min(self._growth * total, INT32_LIMIT - 1)
        struct.records = 0
        if mode == RUN and any(name.startswith("series_") for name in tensors):
            struct.records = 1 if _FURTHER.isdisjoint(tensors) else 2
        for name, tensor in tensors.items():
            setattr(struct, name, None if tensor is None else tensor.data_ptr())
        actions = tensors.get("actions")
        struct.action_stride = 0 if actions is None else actions.shape[-1]  # of none nothing is read
        try:
            self._execute(mode, total)
        finally:  # after an error too, or the next launch writes where these tensors were
            for name in tensors:  # back to what is bound, if anything
                setattr(struct, name, self._bound.get(name))

    def _total(self, mode: int, decisions: int, auctions: int) -> int:
        """Return the most auctions of a launch."""
        if mode in (ENV_RESTART, OPEN):
            return 0
        return decisions * auctions + (self._struct.task.forced_auctions if mode == ENV_STEP else 0)

    def _execute(self, mode: int, total_auctions: int) -> None:
        raise NotImplementedError

    def prepare_launcher(self, mode: int, auctions: int = 1) -> None:
        """Register a run, or a step of so many auctions, as settings are now; nothing where there are no operators.

        The number stays the same, so that a program that was compiled before goes on with the new settings.
        """
        if mode in self._launchers or not operators.available():
            return
        said = self.describe(mode, auctions)
        if mode in self._previous_launchers:
            self._previous_launchers[mode].renew(said)
        else:
            self._previous_launchers[mode] = operators.Launcher(said)
        self._launchers[mode] = self._previous_launchers[mode]

    def describe(self, mode: int, auctions: int = 1) -> operators.Description:
        """Return what a run, or a step of so many auctions, is as settings are now: its struct, tensors and shape."""
        shape = self._shape(mode) | {"least_width": 0 if self._input == "choices" else self._action_size}
        tensors = self._tensors | {"params": self.parameters()}
        names = [name for name, field in layout.LAUNCH_FIELDS.items() if field.pointer and name in tensors]
        if mode == RUN:
            tables = ("params", "regimes", "agent_parameters", "flow_table")
            names = [name for name in names if name in (*layout.RUN_STATE, *tables)]
        read = {"params", "agent_parameters"} if self._scenarios is None else set()
        read |= {"scenario_params", *(name for name in names if layout.LAUNCH_FIELDS[name].constant)}
        struct = layout.Launch.from_buffer_copy(self._struct)
        struct.env_mode, struct.decisions, struct.auctions, struct.records = mode, 1, auctions, 0
        struct.growth = min(self._growth * self._total(mode, 1, auctions), INT32_LIMIT - 1)
        return operators.Description(
            launch=struct,
            state={name: tensors[name] for name in names if name not in read and tensors[name].numel()},
            tables={name: tensors[name] for name in names if name in read and tensors[name].numel()},
            shape=shape | {"growth": min(self._growth, INT32_LIMIT - 1)},
            live=[*self._watched.values(), self.parameters()],
            outputs=self.outputs,
        )

    def shapes(self, mode: int, devices: Sequence[int]) -> list[dict[str, int]]:
        """Return the fields of `struct Launcher` that `describe` calls `shape`, but sizes, for each of some GPUs.

        On the host they are one, whatever the devices.
        """
        return [self._shape(mode)]

    def set_outputs(self, outputs: list[torch.Tensor]) -> None:
        """See `Engine.set_outputs`; a launcher that there is already is told of them."""
        super().set_outputs(outputs)
        launcher = self._launchers.pop(ENV_STEP, None)
        if launcher is not None:
            self.prepare_launcher(ENV_STEP, launcher.auctions)

    def copies_of(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """See `Engine.copies_of`; one operator makes them, on a GPU by a kernel for seven of them."""
        launcher = self._launchers.get(ENV_STEP)
        return super().copies_of(tensors) if launcher is None else launcher.copies_of(list(tensors))

    def renew_launchers(self) -> None:
        for mode, launcher in self._previous_launchers.items():
            self.prepare_launcher(mode, launcher.auctions)

    def launcher(self, mode: int) -> operators.Launcher:
        """Return the launcher of a mode. Raises RuntimeError if there is none: `prepare_launcher` makes it."""
        if mode not in self._launchers:
            raise RuntimeError(
                "a launch cannot be compiled: reset the environment, or run once, before; and it needs a C++ compiler"
            )
        return self._launchers[mode]

    def _shape(self, mode: int) -> dict[str, int]:
        """Return the fields of `struct Launcher` that say what is called, and in which shape."""
        raise NotImplementedError


def market_stopped(market: int, t: int, error: int) -> str:
    """Say what stopped a market and what to do."""
    if error & layout.CONSTANTS["kErrorOrigin"]:
        return f"market {market}: at t = {t} the window would leave +/-2^29 ticks; reset it, or start nearer to 0"
    return (
        f"market {market}: at t = {t} the total quantity on a side would reach 2^31, or of an order flow the time 2^62 "
        "nanoseconds, or a side's weights 2^40; use cancel_prob so that the book cannot grow for ever, smaller orders, "
        "or reset earlier"
    )
