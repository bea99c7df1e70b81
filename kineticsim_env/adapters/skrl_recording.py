"""`Final`: what an episode's last step led to, which `SkrlEnv` and `SkrlMultiEnv` hand to skrl's agents.

skrl's trainers know one `next_observations`: what agents record is what they act on next. Where a market begins its
next episode in the step that ends one, these are two. Agents made after this module was imported therefore record the
final ones from infos, so that they bootstrap time limits, and fill memories, with what the decision led to.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

from skrl.agents.torch import Agent
from skrl.multi_agents.torch import MultiAgent

KEY = "final"  # of infos


class Final(NamedTuple):
    """Results of a step before any reset; where no episode ended they are those that the step returned.

    Attributes:
        returned: What the step returned as observations, float32 `[M, F]`; or by name of learner.
        observations: Those before any reset, of the same shape.
        states: The states before any reset, float32 `[M, S]` by name of learner; or None without states.
    """

    returned: Any
    observations: Any
    states: Any

    def rows(self, next_observations: Any) -> Any:
        """Return the final observations of the markets whose next ones are given: trainers cut rows for each agent."""
        if isinstance(next_observations, Mapping) or len(next_observations) == len(self.returned):
            return self.observations
        # skrl does not tell an agent its scope; the rows that it was given are a view of those that the step returned.
        first = (next_observations.storage_offset() - self.returned.storage_offset()) // next_observations.stride(0)
        return self.observations[first : first + len(next_observations)]


def _record(agent: Any, **transition: Any) -> None:
    """Record a transition as skrl's agent does, with what its decision led to."""
    final = transition["infos"].get(KEY) if isinstance(transition["infos"], Mapping) else None
    if isinstance(final, Final):
        if transition["timestep"] == 0 and agent.training:
            _warn(agent)
        transition["next_observations"] = final.rows(transition["next_observations"])
        transition["next_states"] = final.states
    type(agent).record_transition(agent, **transition)


def _warn(agent: Any) -> None:
    """Say which agents do not learn from the right targets nevertheless."""
    flag = getattr(agent.cfg, "time_limit_bootstrap", True)
    name = type(agent).__name__
    if "time_limit_bootstrap" in vars(agent.cfg) and name.endswith("_RNN"):
        warnings.warn(
            f"{name}: skrl's recurrent agents bootstrap a time limit with the value of the state before the decision, "
            "and go on into the next episode; exact value targets need an agent without memory",
            stacklevel=3,
        )
    elif not all(flag.values() if isinstance(flag, Mapping) else [flag]):
        warnings.warn(
            f"time_limit_bootstrap: expected True for exact value targets of {name}, got False: without it, they "
            "reach from one episode into the next at its horizon",
            stacklevel=3,
        )


def _taught(init: Any) -> Any:
    """Return the initialisation of agents that record final observations."""

    @functools.wraps(init)
    def taught(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        self.record_transition = functools.partial(_record, self)  # of the object, so that other processes have it too

    return taught


for _kind in (Agent, MultiAgent):
    setattr(_kind, "__init__", _taught(_kind.__init__))  # noqa: B010  a type checker refuses the plain assignment
