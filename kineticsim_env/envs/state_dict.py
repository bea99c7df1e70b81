"""Saved states of whole environments: the markets, the environment's tensors, its scenarios, and what it is.

The environments' `state_dict` and `load_state_dict` call this. The ranges of all numbers: saved_states.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from kineticsim_env.config import MarketConfig
from kineticsim_env.engines.slot_policies import PLAYED
from kineticsim_env.envs.core import EnvCore
from kineticsim_env.envs.opponents import DRAWN
from kineticsim_env.envs.saved_states import check_environment_ranges, check_parameters, read_scenarios
from kineticsim_env.envs.scenario_weights import THRESHOLDS, check_thresholds
from kineticsim_env.envs.scenarios import num_rows, pack_table
from kineticsim_env.envs.task_values import TaskValues
from kineticsim_env.runtime import saved_states
from kineticsim_env.runtime.calls import Uninterrupted
from kineticsim_env.tasks.base import ForProfit, Task


def state_of(core: EnvCore) -> dict[str, torch.Tensor]:
    """Return copies of the whole state, the environment's part of it included.

    With scenarios `parameters` are those that each market plays, `scenarios` is the table that its next episode
    draws from, and `scenario_thresholds` are the weights that it draws by, so that a like environment goes on
    whatever its own table is.
    """
    if core.own is not None:
        core.own.check_numbers()
    saved = core.simulator.state_dict() | {name: tensor.clone() for name, tensor in _held(core).items()}
    return saved | {saved_states.ABOUT: saved_states.pack_about(_about(core))} | _of_scenarios(core)


def _held(core: EnvCore) -> dict[str, torch.Tensor]:
    """Return the environment's tensors that states have, live."""
    held = {name: core.tensors[name] for name in core.saved} | {"fills": core.fills}
    policies = core.simulator.engine.slot_policies
    if policies is not None:
        held |= {"policy_memory": policies.tensors["policy_memory"]}
    held |= {} if core.own is None else core.own.memory
    return held if core.opponents is None else held | {DRAWN: core.opponents.drawn}


def live_state(core: EnvCore) -> dict[str, torch.Tensor]:
    """Return all of every market that a state has or that follows from it, live: what a copy of a market has to have.

    Names are those of `struct Launch` where it has them, with the axes that it gives; in others markets come first.
    """
    engine = core.simulator.engine
    found = {**core.simulator._state, **core.tensors, **_held(core)}
    if core.live_task.scenarios is not None:
        found |= engine.live_parameters()
    if engine.slot_policies is not None:
        found |= {name: engine.slot_policies.tensors[name] for name in PLAYED}
    return found | ({} if core.own is None else core.own.live_state())


def _about(core: EnvCore) -> dict[str, Any]:
    """Return what a state of this environment is of, as plain numbers, texts and lists."""
    task, values, settings = core.task, core.live_task.values, core.settings
    described = saved_states.describe(task)
    # Which states had not before there were these settings.
    for name, default in (("keep", Task.keep), ("decide", Task.decide), ("at_end", ForProfit.at_end)):
        if described.get(name) == default:
            del described[name]
    return core.simulator.about() | {
        "task": {"name": type(task).__name__, **described, **values.about()},
        "roles": list(core.roles),
        "auctions_per_step": core.auctions_per_step,
        "autoreset_mode": settings.autoreset_mode.name,
        "stagger": settings.stagger,
        "scenarios": core.live_task.scenarios is not None,
        **({"extras": list(core.extras)} if core.extras else {}),
        **({"own": settings.own.about()} if settings.own else {}),
        **({"policies": policies} if (policies := _policies(core)) else {}),
    }


def _policies(core: EnvCore) -> dict[str, Any]:
    """Return what the programs that play slots can be told by; a state has none of their parameters."""
    found = core.simulator.engine.slot_policies
    texts = {slot: place.policy for slot, place in found.places.items()} if found else {}
    return {
        str(slot): [one.name, hashlib.sha256(one.program.text.encode()).hexdigest()[:16]] for slot, one in texts.items()
    }


def load_state(core: EnvCore, saved: Mapping[str, torch.Tensor], strict: bool) -> None:
    """Take over a state, from any engine or device; a like environment goes on bit for bit.

    `strict` and errors are those of `Simulator.load_state_dict`; after an error the present state is untouched.
    """
    simulator, live, held, about = core.simulator, core.live_task, _held(core), _about(core)
    saved = saved_states.with_quotes_under_way(saved, simulator.tensors)
    saved = saved_states.with_population(saved, simulator._state)
    saved_states.check_agents(saved, about)
    saved_states.check_names(saved, simulator._state, held, _names_of_scenarios(core))
    differences = saved_states.check_about(saved, about, strict)
    scenarios = _read_scenarios(core, saved)
    checked = simulator._checked_state(saved, scenarios.parameters)
    for name, tensor in held.items():
        checked[name] = simulator.engine.own_copy(saved_states.take(saved, name, tensor))
    check_environment_ranges(
        checked,
        scenarios.parameters,
        live.task_of_all(),
        core.roles,
        [core.built_in_space(role) for role in core.roles],
        levels=core.config.num_levels,
        auctions_per_step=core.auctions_per_step,
        longest=core.live_task.longest,
        scenarios=scenarios.table is not None,
        values=scenarios.values,
    )
    if core.opponents is not None:
        core.opponents.check_saved(checked)
    drawn = simulator._drawn_by(checked.get(saved_states.POPULATION))
    bank: dict[str, torch.Tensor] = {}
    if drawn is not None or scenarios.table != live.scenarios:
        bank = live.warm_starts.run(scenarios.table, drawn)
    with Uninterrupted():  # from here on nothing can fail
        if scenarios.table is not None and scenarios.thresholds is not None:
            live.use_scenarios(
                scenarios.table, scenarios.values, bank, scenarios.parameters, scenarios.agent_parameters
            )
            simulator.engine.scenario_thresholds.copy_(scenarios.thresholds)
        simulator._take_state(checked, drawn)
        if drawn is not None:
            live.use_bank(bank)
        for name, tensor in held.items():
            tensor.copy_(checked[name])
        if core.own is not None:
            core.own.loaded()
        if core.opponents is not None:
            core.opponents.begin(draw=False)  # no state has the memories of policies
        torch.logical_or(core.tensors["terminated"], core.tensors["truncated"], out=core.tensors["over"])
    live.prepare_step()
    saved_states.warn_of(differences, stacklevel=4)


# Scenarios ------------------------------------------------------------------------------------------------------------


class _Scenarios(NamedTuple):
    """What a state has of scenarios; of an environment without any its parameters, and None."""

    table: MarketConfig | None
    values: TaskValues
    parameters: torch.Tensor  # int32 [M, n], or [1, n], of running episodes,
    agent_parameters: torch.Tensor | None  # and those of agents that users have added, int32 [M, P]
    thresholds: torch.Tensor | None  # int64 [C]


def _names_of_scenarios(core: EnvCore) -> list[str]:
    """Return the names of what `_of_scenarios` returns."""
    if core.live_task.scenarios is None:
        return []
    of_agents = [saved_states.AGENT_PARAMETERS] if core.simulator.sizes["P"] else []
    return [saved_states.PARAMETERS, saved_states.SCENARIOS, THRESHOLDS, *of_agents]


def _of_scenarios(core: EnvCore) -> dict[str, torch.Tensor]:
    """Return copies of what markets play, of the table and of the weights; empty without scenarios."""
    live, engine = core.live_task, core.simulator.engine
    if live.scenarios is None:
        return {}
    saved = {saved_states.PARAMETERS: engine.parameters().clone()}
    if core.simulator.sizes["P"]:
        saved[saved_states.AGENT_PARAMETERS] = _agent_parameters(core).clone()
    saved[saved_states.SCENARIOS] = saved_states.pack(pack_table(live.scenarios, live.values.drawn))
    saved[THRESHOLDS] = engine.scenario_thresholds.clone()
    return saved


def _agent_parameters(core: EnvCore) -> torch.Tensor:
    """Return the parameters of agents that users have added as markets have them now, int32 `[M, P]`."""
    found = core.simulator.engine.agent_parameters()
    assert found is not None
    return found


def _read_scenarios(core: EnvCore, saved: Mapping[str, torch.Tensor]) -> _Scenarios:
    """Return what a saved state has of scenarios, checked as what a user gives."""
    live, present = core.live_task, core.simulator.engine.parameters()
    if live.scenarios is None:
        return _Scenarios(None, live.values, present, None, None)
    table, values = read_scenarios(saved, lambda fields: live.tables_of({"scenarios": fields}))
    present = saved_states.take(saved, saved_states.PARAMETERS, present)
    check_parameters(present, core.config, table, core.simulator.order_flows)
    of_agents: torch.Tensor | None = None
    if core.simulator.sizes["P"]:
        of_agents = saved_states.take(saved, saved_states.AGENT_PARAMETERS, _agent_parameters(core))
    like = torch.zeros(num_rows(table), dtype=torch.int64, device=core.device)
    thresholds = saved_states.take(saved, THRESHOLDS, like).clone()
    check_thresholds(thresholds)
    return _Scenarios(table, values, present, of_agents, thresholds)
