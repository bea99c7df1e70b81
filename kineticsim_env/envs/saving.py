"""Saved states of whole environments: the markets, the environment's tensors, its scenarios, and what it is.

The environments' `state_dict` and `load_state_dict` call this. The ranges of all numbers: saved_states.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from kineticsim_env.envs.core import EnvCore
from kineticsim_env.envs.opponents import DRAWN
from kineticsim_env.envs.saved_states import check_environment_ranges
from kineticsim_env.runtime import saved_states
from kineticsim_env.runtime.calls import Uninterrupted


def state_of(core: EnvCore) -> dict[str, torch.Tensor]:
    """Return copies of the whole state, the environment's part of it included.

    With scenarios `parameters` are those that each market plays, `scenarios` is the table that its next episode
    draws from, and `scenario_thresholds` are the weights that it draws by, so that a like environment goes on
    whatever its own table is.
    """
    if core.own is not None:
        core.own.check_numbers()
    saved = core.simulator.state_dict() | {name: tensor.clone() for name, tensor in _held(core).items()}
    return saved | {saved_states.ABOUT: saved_states.pack_about(_about(core))} | core.live_task.saved()


def _held(core: EnvCore) -> dict[str, torch.Tensor]:
    """Return the environment's tensors that states have, live."""
    held = {name: core.tensors[name] for name in core.saved} | {"fills": core.fills}
    return held if core.opponents is None else held | {DRAWN: core.opponents.drawn}


def _about(core: EnvCore) -> dict[str, Any]:
    """Return what a state of this environment is of, as plain numbers, texts and lists."""
    task, values, settings = core.task, core.live_task.values, core.settings
    return core.simulator.about() | {
        "task": {"name": type(task).__name__, **saved_states.describe(task), **values.about()},
        "roles": list(core.roles),
        "auctions_per_step": core.auctions_per_step,
        "autoreset_mode": settings.autoreset_mode.name,
        "stagger": settings.stagger,
        "scenarios": core.live_task.scenarios is not None,
        **({"extras": list(core.extras)} if core.extras else {}),
        **({"own": settings.own.about()} if settings.own else {}),
    }


def load_state(core: EnvCore, saved: Mapping[str, torch.Tensor], strict: bool) -> None:
    """Take over a state, from any engine or device; a like environment goes on bit for bit.

    Args:
        core: The environment's.
        saved: What `state_of` returned.
        strict: As in `Simulator.load_state_dict`.

    Raises:
        TypeError, ValueError: As `Simulator.load_state_dict`; the present state is untouched then.
    """
    simulator, live, held, about = core.simulator, core.live_task, _held(core), _about(core)
    saved_states.check_agents(saved, about)
    saved_states.check_names(saved, simulator.tensors, held, live.names_saved())
    differences = saved_states.check_about(saved, about, strict)
    scenarios = live.read(saved)
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
        scenarios=scenarios.table is not None,
        values=scenarios.values,
    )
    if core.opponents is not None:
        core.opponents.check_saved(checked)
    counts = simulator._draw_counts(checked["seed"])
    bank: dict[str, torch.Tensor] = {}
    if counts is not None or scenarios.table != live.scenarios:
        bank = live.warm_starts.run(scenarios.table, checked["seed"], counts)
    with Uninterrupted():  # from here on nothing can fail
        live.take(scenarios, bank)
        simulator._take_state(checked, counts)
        if counts is not None:
            live.use_bank(bank)
        for name, tensor in held.items():
            tensor.copy_(checked[name])
        if core.own is not None:
            core.own.opened()
        if core.opponents is not None:
            core.opponents.begin(draw=False)  # no state has the memories of policies
        torch.logical_or(core.tensors["terminated"], core.tensors["truncated"], out=core.tensors["over"])
    core.prepare_step()
    saved_states.warn_of(differences, stacklevel=4)
