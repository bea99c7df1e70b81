"""`Fork`: one market of an environment as the rows of another one, which is there and written over at every fork.

`BaseMarketEnv.fork` keeps one for each number of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from kineticsim_env.envs.copies import CopiedMarkets, core_of
from kineticsim_env.envs.core import EnvCore
from kineticsim_env.envs.futures import take_future
from kineticsim_env.runtime.calls import Uninterrupted


class Fork:
    """An environment whose rows are copies of one market.

    Attributes:
        envs: The environment.
    """

    @torch.inference_mode(False)  # tensors made in inference mode cannot be written to outside of it
    def __init__(self, source: EnvCore, market: int, rows: int, as_environment: Callable[[EnvCore], Any]) -> None:
        """Make the environment, `as_environment` of a core; where markets differ it is for this one alone."""
        core = core_of(source, np.full(rows, market))
        self._source = source
        core.lets_stand = True  # rows end at different decisions
        self.envs = as_environment(core)
        self._market = market if source.markets_differ else None
        self._settings = _settings(source), _settings(core)
        self._copied = CopiedMarkets(source, core)

    def fits(self, source: EnvCore, market: int) -> bool:
        """Return whether the environment is as if it was made now: neither has got other settings since."""
        mine, now = self.envs.core, (_settings(source), _settings(self.envs.core))
        before = (one for made in self._settings for one in made)
        same = all(one is other for one, other in zip(before, (one for made in now for one in made), strict=True))
        return same and self._market in (None, market) and not mine.closed

    def refill(self, market: int, seeds: torch.Tensor | None) -> None:
        """Put a market into all rows, with other words from now on where there are seeds, int64 `[n]`."""
        core, played = self.envs.core, None
        if self._source.opponents is not None:
            rows = torch.full((core.simulator.num_markets,), market, device=core.device)
            played = self._source.opponents.of_rows(rows)
        with core._calls, Uninterrupted():
            self._copied.copy(market)
            if core.opponents is not None and played is not None:
                core.opponents.go_on(played)
                self._settings = self._settings[0], _settings(core)
            if seeds is not None:
                take_future(core, seeds)
            self.envs._was_loaded()


def _settings(core: EnvCore) -> tuple[Any, ...]:
    """Return what an environment is made of beside its state: whatever changes it, puts another object in its place."""
    live, simulator, opponents = core.live_task, core.simulator, core.opponents
    played = simulator.engine.slot_policies, None if opponents is None else opponents.opponent_slots
    return (live.task, live.values, live.scenarios, simulator._config, simulator._counts, *played)
