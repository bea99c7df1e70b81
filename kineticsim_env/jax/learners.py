"""`ManyLearnersEnv`: M markets with several learners each, in JaxMARL's form: dicts by agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from kineticsim_env.envs.agent_results import agent_names
from kineticsim_env.jax.env import BaseJaxEnv
from kineticsim_env.jax.markets import MarketParams, MarketState
from kineticsim_env.jax.spaces import Box, Discrete

ByAgent = dict[str, jax.Array]


class ManyLearnersEnv(BaseJaxEnv):
    """M markets in each of which the same learners are, `env.agents`; numbers are dicts by agent, of `[M, ...]`.

    A market's episode is over when those of all its learners are; until then a learner whose own episode has ended has
    no quotes, its actions are not looked at, and its rewards are 0 (`infos["active"]`).
    """

    @property
    def agents(self) -> list[str]:
        """The learners: `maker_0`, `maker_1`, `noise_0`."""
        return agent_names(self._roles)

    @property
    def num_agents(self) -> int:
        """How many there are."""
        return len(self._roles)

    def observation_space(self, agent: str) -> Box | Discrete:
        """Return the space of an agent's observations in one market."""
        return self._observation_spaces[self.agents.index(agent)]

    def action_space(self, agent: str) -> Box | Discrete:
        """Return the space of an agent's actions in one market."""
        return self._action_spaces[self.agents.index(agent)]

    def reset(self, key: Any, params: MarketParams, *, seed: Any = None) -> tuple[ByAgent, MarketState]:
        """Begin the first episodes of all markets; see `MarketEnv.reset`.

        Returns:
            Observations float32 `[M, F]` by agent, and the state.
        """
        state = self._opened(key, params, seed)
        return self.observe(state), state

    def step(
        self, key: Any, state: MarketState, actions: Mapping[str, Any], params: MarketParams
    ) -> tuple[ByAgent, MarketState, ByAgent, ByAgent, dict[str, Any]]:
        """Play one decision of all learners of all markets; see `MarketEnv.step`.

        Args:
            key: Not looked at.
            state: The state.
            actions: By agent float32 `[M, A]` in [-1, 1], clamped to it, or whole numbers `[M]`.
            params: Those that `make` returned.

        Returns:
            By agent: observations float32 `[M, F]`; the state; rewards float32 `[M]`; whether an agent's episode ended,
            bool `[M]`, and the market's as `"__all__"`; and infos: those of `MarketEnv.step` by agent, and `active`
            bool `[M]` by agent, who acts next.
        """
        if not isinstance(actions, Mapping) or set(actions) != set(self.agents):
            got = sorted(actions, key=str) if isinstance(actions, Mapping) else type(actions).__name__
            raise ValueError(f"actions: expected one entry for each of {self.agents}, got {got}")
        rows = [self._row(f"actions[{agent!r}]", slot, actions[agent]) for slot, agent in enumerate(self.agents)]
        after, state = self._play(state, jnp.stack(rows, axis=1), params)
        infos: dict[str, Any] = {agent: self._info(after, slot) for slot, agent in enumerate(self.agents)}
        rewards = {agent: after.arrays["reward"][:, slot] for slot, agent in enumerate(self.agents)}
        dones = {agent: info["terminated"] | info["truncated"] for agent, info in infos.items()}
        # A market whose last episodes ended now was reset, if it is at all.
        ended = state.arrays["elapsed"] == 0 if self._same_step else state.arrays["done"]
        dones["__all__"] = jnp.any(jnp.stack(list(dones.values())), axis=0) & ended
        infos["active"] = {agent: ~state.arrays["ended"][:, slot] for slot, agent in enumerate(self.agents)}
        return self.observe(state), state, rewards, dones, infos

    def observe(self, state: MarketState) -> ByAgent:
        """Return the present observations by agent, float32 `[M, F]`."""
        return {agent: self._seen(state, slot) for slot, agent in enumerate(self.agents)}
