"""States of JAX as environments of torch save them, and back; and `check`, which raises what an error word says."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from kineticsim_env.engines.base import ENV_STEP
from kineticsim_env.engines.live import market_error
from kineticsim_env.engines.native import NativeEngine
from kineticsim_env.envs.core import EnvCore
from kineticsim_env.envs.state_dict import state_of
from kineticsim_env.jax.calls import array_of
from kineticsim_env.jax.markets import OF_SCENARIOS, PRIVATE, Markets, MarketState


def saved_of(core: EnvCore, state: MarketState) -> dict[str, torch.Tensor]:
    """Return what a like environment of torch, whose markets are overwritten, saves of a state.

    Raises:
        MarketError: See `check`.
    """
    check(state)
    said = _described(core)
    for name, tensor in said.state.items():
        if name not in OF_SCENARIOS:
            words = torch.from_numpy(np.array(state.arrays[name]))
            tensor.copy_(words.view(tensor.dtype).view(tensor.shape))
    for name, rows in _rows_of_scenarios(said).items():
        said.state[name].copy_(rows)
    core.simulator.engine.state_changed()
    return state_of(core)


def loaded(core: EnvCore, markets: Markets) -> MarketState:
    """Return the state of a like environment of torch.

    Raises:
        ValueError: If its scenarios are not those of the markets.
    """
    said = _described(core)
    rows = _rows_of_scenarios(said)
    tables = {**markets.tables, **markets.params.bank}
    others = [name for name, table in said.tables.items() if (array_of(table) != tables[name]).any()]
    others += [name for name, row in rows.items() if not torch.equal(said.state[name], row)]
    if others:
        raise ValueError(f"saved: expected a state of this environment's scenarios, got one of another {others[0]}")
    arrays = {name: np.zeros(like.shape, like.dtype) for name, like in markets.state.items() if name in PRIVATE}
    arrays |= {name: array_of(said.state[name]) for name in markets.state if name not in PRIVATE}
    return MarketState({name: markets.placed(arrays[name]) for name in markets.state})


def _rows_of_scenarios(said: Any) -> dict[str, torch.Tensor]:
    """Return what markets have of their scenarios, by name."""
    names = [name for name in OF_SCENARIOS if name in said.state]
    return {name: said.tables[OF_SCENARIOS[name]][said.state["scenario"].long()] for name in names}


def _described(core: EnvCore) -> Any:
    """Return what a step of an environment is, its tensors live."""
    engine = core.simulator.engine
    assert isinstance(engine, NativeEngine)
    return engine.describe(ENV_STEP, core.auctions_per_step)


def check(state: MarketState) -> None:
    """Raise MarketError if a market's error word is set: it has stopped, or an action was NaN or outside its space.

    Waits for the device, and is not for traced programs. A market that has stopped stays so until its next episode
    begins.
    """
    words = np.asarray(state["error"])
    if words.any():
        market = int(np.flatnonzero(words)[0])
        t = np.asarray(state.arrays["t"])[market].view(np.int64)
        raise market_error(market, int(t[0]), int(words[market]))
