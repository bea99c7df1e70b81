"""`Markets`: the launches of an environment as functions of arrays, and `MarketState`, `MarketParams`, their pytrees.

An environment of torch is made once, for its checks, tables, warm starts and kernels; what its launches are is kept,
and its tensors go. Nothing of torch is in a program.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import torch

from kineticsim_env.engines.base import ENV_RESET, ENV_RESTART, ENV_STEP
from kineticsim_env.engines.native import NativeEngine
from kineticsim_env.envs.core import EnvCore
from kineticsim_env.jax.calls import Arrays, Call, array_of, numbers_of, placed, words_of
from kineticsim_env.runtime import layout
from kineticsim_env.runtime.roles import action_length

PRIVATE = ("deadline_lists",)  # arrays of a state that are a kernel's own
# What episodes have of scenarios, and the table whose row it is: no state has it, as it follows from its `scenario`.
OF_SCENARIOS = {"params": "scenario_params", "agent_parameters": "scenario_agent_parameters"}


@jax.tree_util.register_pytree_with_keys_class
@dataclasses.dataclass(frozen=True)
class MarketState:
    """All of M markets, a pytree: what `reset` and `step` return, and `step` takes.

    `state["inventory"]` is a part of it, by its name in the state table of docs/model.md: int32, float32 or bool as
    there; what is int64 or float64 there is float32, rounded, but where `jax_enable_x64` is set. Markets come first; of
    `info` second.

    Attributes:
        arrays: The same as launches take them: numbers of 64 bits are pairs of int32.
    """

    arrays: dict[str, Any]

    def __getitem__(self, name: str) -> jax.Array:
        """Return a part of the state."""
        if name not in self.arrays or name in PRIVATE:
            names = ", ".join(one for one in self.arrays if one not in PRIVATE)
            raise KeyError(f"state: expected one of {names}, got {name!r}")
        dtype = layout.LAUNCH_FIELDS[name].dtype
        wide = dtype in (torch.int64, torch.float64)
        return numbers_of(self.arrays[name], dtype) if wide else self.arrays[name]

    def replace(self, **arrays: jax.Array) -> MarketState:
        """Return a state with other arrays."""
        return MarketState({**self.arrays, **arrays})

    def tree_flatten_with_keys(self) -> tuple[Any, Any]:
        """Return the arrays and their names, for JAX."""
        names = tuple(self.arrays)
        return [(jax.tree_util.DictKey(name), self.arrays[name]) for name in names], names

    @classmethod
    def tree_unflatten(cls, names: tuple[str, ...], arrays: Any) -> MarketState:
        """Return the state of arrays by these names, for JAX."""
        return cls(dict(zip(names, arrays, strict=True)))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class MarketParams:
    """What episodes begin from, a pytree that `make` fills.

    Attributes:
        bank: Warm starts, by their names in `struct Launch`.
        opening: Settings of the task that differ, as states begin with them.
    """

    bank: Arrays
    opening: Arrays


class Markets:
    """The launches of an environment.

    Attributes:
        num_envs: M.
        slots: K.
        discrete: Whether actions are choices.
        width: Numbers of a slot's row of actions.
        params: What `make` returns.
        tables: What programs have within them: parameters of markets, scenarios, flows. They say how long loops are and
            where rows lie, so nobody gives others.
        num_scenarios: How many there are, 0 for none.
    """

    def __init__(self, core: EnvCore, devices: list[int]) -> None:
        """Take what an environment of torch is made of; `devices` are the GPUs that programs may run on, or none."""
        engine, self._platform = core.simulator.engine, core.device.type
        assert isinstance(engine, NativeEngine)
        self.num_envs, self.slots = core.simulator.num_markets, len(core.roles)
        self.discrete = bool(core.task.num_choices(core.roles[0]))
        self.width = action_length(core.task.keep, core.task.orders_per_side)
        self.num_scenarios = core.live_task.num_scenarios
        self.input = "choices" if self.discrete else "actions"
        row = (self.num_envs, self.slots)
        given = torch.zeros(row, dtype=torch.int64) if self.discrete else torch.zeros((*row, self.width))
        asked = {"reset_mask": torch.zeros(self.num_envs, dtype=torch.bool)}
        if self.num_scenarios:
            asked["reset_scenario"] = torch.zeros(self.num_envs, dtype=torch.int32)
        said = engine.describe(ENV_STEP, core.auctions_per_step)
        opening = {name: said.state[name] for name in ("task_values",) if name in said.state}
        bank = {name: table for name, table in said.tables.items() if name.startswith("bank_")}
        parts = ({name: self.placed(array_of(one)) for name, one in part.items()} for part in (bank, opening))
        self.params = MarketParams(*parts)
        self.tables = {name: self.placed(array_of(one)) for name, one in said.tables.items() if name not in bank}
        calls = {ENV_STEP: {self.input: given}, ENV_RESET: asked, ENV_RESTART: {}}
        self._calls: dict[int, Call] = {}
        for mode, further in calls.items():
            said = engine.describe(mode, core.auctions_per_step if mode == ENV_STEP else 1)
            said = said._replace(tables={**said.tables, **further})
            said.launch.action_stride = self.width if "actions" in further else 0
            self._calls[mode] = Call(said, engine.shapes(mode, devices))

    def placed(self, array: Any) -> jax.Array:
        """Return an array of the host where calls are."""
        return placed(array, self._platform)

    @property
    def state(self) -> dict[str, jax.ShapeDtypeStruct]:
        """The arrays of a state, shapes by name."""
        found = self._calls[ENV_STEP].state
        return {name: like for name, like in found.items() if name not in OF_SCENARIOS}

    def played(
        self, call: Call, state: MarketState, tables: Arrays, made: Arrays | None = None
    ) -> tuple[MarketState, Arrays]:
        """Return the state after a launch, and what it has made of further arrays that it writes to."""
        scenario, made, tables = state.arrays["scenario"], made or {}, {**self.tables, **tables}
        drawn = {name: tables[OF_SCENARIOS[name]] for name in OF_SCENARIOS if name in call.state}
        rows = {name: jnp.take(table, scenario, axis=0, mode="clip") for name, table in drawn.items()}
        own = {name: self._checked_lists(state.arrays[name]) for name in PRIVATE if name in call.state}
        found = call(state.arrays | rows | own | made, tables)
        results = {name: found.pop(name) for name in made}
        return MarketState({name: array for name, array in found.items() if name not in drawn}), results

    def _play(self, mode: int, state: MarketState, tables: Arrays) -> MarketState:
        return self.played(self._calls[mode], state, tables)[0]

    def _checked_lists(self, lists: jax.Array) -> jax.Array:
        """Return lists of late markets (cuda/lane/deadlines.cuh) that lead nowhere else, whoever made them."""
        counts = layout.CONSTANTS["kDeadlineCounts"]
        now, listed = lists[0] & 1, jnp.clip(lists[1:3], 0, self.num_envs)
        listed = jnp.where(jnp.arange(2) == now, listed, 0)  # the other one is made anew
        places = jnp.clip(lists[counts:], 0, self.num_envs - 1)
        return jnp.concatenate([now[None], listed, jnp.zeros(counts - 3, jnp.int32), places])

    def opened(self, seeds: jax.Array, params: MarketParams) -> MarketState:
        """Return markets whose first episodes begin, of seeds, int32 `[M, 2]`, pairs of words."""
        arrays = {name: jnp.zeros(like.shape, like.dtype) for name, like in self.state.items()}
        arrays |= {"seed": seeds, **params.opening}
        arrays["episode"] = jnp.broadcast_to(jnp.asarray(words_of(-1)), (self.num_envs, 2))  # the launch adds one
        return self.reset(MarketState(arrays), jnp.ones(self.num_envs, bool), params, None)

    def reset(
        self, state: MarketState, mask: jax.Array, params: MarketParams, scenario: jax.Array | None
    ) -> MarketState:
        """Begin the next episodes of markets in a mask, bool `[M]`, of drawn scenarios or of these, int32 `[M]`."""
        tables = {**params.bank, "reset_mask": mask}
        if self.num_scenarios:
            drawn = jnp.full(self.num_envs, -1, jnp.int32)
            tables["reset_scenario"] = drawn if scenario is None else scenario
        state = self._play(ENV_RESET, state, tables)
        return state.replace(fills=jnp.where(mask[:, None, None, None], 0, state.arrays["fills"]))

    def step(self, state: MarketState, actions: jax.Array, params: MarketParams) -> MarketState:
        """Play one decision of actions, float32 `[M, K, width]`, or choices, int32 `[M, K]`."""
        given = _wide(actions) if self.discrete else actions
        return self._play(ENV_STEP, state, {**params.bank, self.input: given})

    def restart(self, state: MarketState, params: MarketParams) -> MarketState:
        """Begin the next episodes of markets whose last ones have ended."""
        return self._play(ENV_RESTART, state, params.bank)


def _wide(numbers: jax.Array) -> jax.Array:
    """Return int32 numbers as pairs of words."""
    return jnp.stack([numbers, numbers >> 31], axis=-1)


def seeds_of(key: Any, count: int) -> jax.Array:
    """Return seeds s, s + 1, ... of `count` markets as pairs of words, int32 `[count, 2]`, with s drawn by a key.

    s is from 0 to 2^62 - 1, as an environment of torch draws it.
    """
    low, high = jax.random.bits(key, (2,), jnp.uint32)
    return _seeds_from(low, high >> 2, count)


def _seeds_from(low: jax.Array, high: jax.Array, count: int) -> jax.Array:
    lows = low + jnp.arange(count, dtype=jnp.uint32)
    highs = jnp.where(lows < low, high + 1, high)  # a carry
    return jax.lax.bitcast_convert_type(jnp.stack([lows, highs], axis=-1), jnp.int32)
