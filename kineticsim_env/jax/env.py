"""`MarketEnv`: M markets with one learner each in gymnax's form, and what the two forms of environments share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import torch

from kineticsim_env.envs.rollouts import every_of
from kineticsim_env.jax import states
from kineticsim_env.jax.calls import words_of
from kineticsim_env.jax.functions import Functions
from kineticsim_env.jax.markets import MarketParams, Markets, MarketState, seeds_of
from kineticsim_env.jax.rollouts import Inside, Layers, Rollout, Weights, by_steps, check_how, seed_words
from kineticsim_env.jax.spaces import Box, Discrete, space_of
from kineticsim_env.policies.networks import NetworkShape
from kineticsim_env.runtime.checks import check_seeds


class BaseJaxEnv:
    """What environments of one learner and of many share.

    Attributes:
        name: Its id.
        num_envs: M, the markets of one call.
        num_scenarios: How many scenarios there are, 0 for none.
        default_params: The `params` that `make` returned.
    """

    def __init__(self, name: str, made: Any, devices: list[int], how: Mapping[str, Any]) -> None:
        """Take what an environment of torch is.

        Args:
            name: The id.
            made: The environment of torch, which leaves ended episodes to this one if `restarts`.
            devices: The GPUs that programs may run on; none on the host.
            how: `own`, the functions, or None; `restarts`, whether episodes begin in the step that ends them;
                `account_info`; `remake`, which returns the like of `made`.
        """
        core = made.core
        if core.simulator._population is not None:
            raise ValueError(
                "population: expected 'fixed' in JAX, got 'multinomial', whose agents the host draws by each seed; let "
                "markets have shares of their own, one value per market"
            )
        self.name, self._roles = name, core.roles
        self._markets = Markets(core, devices)
        self.num_envs, self.default_params = self._markets.num_envs, self._markets.params
        self.num_scenarios = self._markets.num_scenarios
        self._sizes = [core.observation_size(role) for role in self._roles]
        self._learners = core.learners
        self._functions = Functions(how["own"], self._roles, self._sizes, self._learners)
        self._restarts: bool = how["restarts"]
        self._same_step = core.settings.autoreset_mode.name == "SAME_STEP" or self._restarts
        self._has_account: bool = how["account_info"]
        self._action_spaces = [space_of(core.task.action_space(role)) for role in self._roles]
        self._observation_spaces = [self._space(core, slot) for slot in range(self._learners)]
        self._remake, self._devices = how["remake"], devices
        self._every = every_of(core)
        self._inside: dict[tuple[NetworkShape, int, bool], Inside] = {}

    def _space(self, core: Any, slot: int) -> Box | Discrete:
        """Return a learner's observation space; a user's features have no bounds."""
        space = space_of(core.built_in_space(self._roles[slot]))
        if not self._functions or isinstance(space, Discrete):
            return space
        state: Any = MarketState(dict(self._markets.state))
        jax.eval_shape(self._functions.scored, state, state)  # what functions return is looked at now
        return space.with_unbounded(jax.eval_shape(lambda one: self._functions.features(one, slot), state).shape[1])

    # Episodes ---------------------------------------------------------------------------------------------------------

    def _opened(self, key: Any, params: MarketParams, seed: Any) -> MarketState:
        if seed is None:
            seeds = seeds_of(key, self.num_envs)
        else:
            seeds = self._markets.placed(words_of(check_seeds(seed, self.num_envs, torch.device("cpu")).numpy()))
        return self._markets.opened(seeds, params)

    def begin(self, state: MarketState, mask: Any, params: MarketParams, scenario: Any = None) -> MarketState:
        """Begin the next episodes of markets, as a reset with `reset_mask` does in environments of torch.

        Args:
            state: The state.
            mask: bool `[M]`, the markets.
            params: Those that `make` returned.
            scenario: The scenarios of these episodes, a whole number or int32 `[M]`, -1 where one is drawn; None draws
                all. Numbers beyond the last scenario are the last.

        Returns:
            The state; `observe` returns what is seen in it.
        """
        mask = jnp.asarray(mask)
        if mask.shape != (self.num_envs,) or mask.dtype != bool:
            raise ValueError(f"mask: expected bool [{self.num_envs}], got {mask.dtype} {list(mask.shape)}")
        if scenario is not None:
            if not self.num_scenarios:
                raise ValueError("scenario: expected None without randomise, got scenarios")
            scenario = jnp.broadcast_to(jnp.asarray(scenario, jnp.int32), (self.num_envs,))
            scenario = jnp.clip(scenario, -1, self.num_scenarios - 1)
        return self._markets.reset(state, mask, params, scenario)

    def _play(self, state: MarketState, rows: jax.Array, params: MarketParams) -> tuple[MarketState, MarketState]:
        """Play one decision; return the state as the decision left it, and as the next one finds it."""
        after = self._markets.step(state, rows, params)
        if not self._functions:
            return after, after
        after = self._functions.scored(state, after)
        return after, self._markets.restart(after, params) if self._restarts else after

    def _row(self, name: str, slot: int, action: Any) -> jax.Array:
        """Return a slot's actions as a row that launches take: float32 `[M, width]`, or int32 `[M]`."""
        action, space = jnp.asarray(action), self._action_spaces[slot]
        shape = (self.num_envs, *space.shape)
        discrete = isinstance(space, Discrete)
        if action.shape != shape or not jnp.issubdtype(action.dtype, jnp.integer if discrete else jnp.floating):
            wanted = "whole numbers" if discrete else "floating numbers"
            raise ValueError(f"{name}: expected {wanted} {list(shape)}, got {action.dtype} {list(action.shape)}")
        if discrete:
            return action.astype(jnp.int32)
        return jnp.pad(action.astype(jnp.float32), ((0, 0), (0, self._markets.width - shape[1])))

    # What is seen -----------------------------------------------------------------------------------------------------

    def _seen(self, state: MarketState, slot: int, name: str = "observation") -> jax.Array:
        """Return what a learner sees, float32 `[M, F]`."""
        built_in = state.arrays[name][:, slot, : self._sizes[slot]]
        if not self._functions:
            return built_in
        return jnp.concatenate([built_in, self._functions.features(state, slot)], axis=1)

    def _info(self, after: MarketState, slot: int) -> dict[str, Any]:
        """Return what is known of a learner's decision beside its reward."""
        found: dict[str, Any] = {name: after.arrays[name][:, slot] for name in ("terminated", "truncated")}
        if self._same_step:  # without resets in a launch the observation is the final one
            found["final_obs"] = self._seen(after, slot, "observation" if self._restarts else "final_observation")
        if self._has_account:
            found["account_info"] = self._functions.known(after, slot)
        if "decision_events" in after.arrays:
            found["decision_events"] = after.arrays["decision_events"]
        return found

    # Saved states -----------------------------------------------------------------------------------------------------

    def state_dict(self, state: MarketState) -> dict[str, torch.Tensor]:
        """Return a state as environments of torch save it: `load_state_dict` of a like one goes on bit for bit."""
        return states.saved_of(self._remake().core, state)

    def load_state_dict(self, saved: Mapping[str, torch.Tensor]) -> MarketState:
        """Return the state that a like environment, of torch or of JAX, has saved.

        Raises:
            TypeError, ValueError: Naming what came and what is allowed.
        """
        like = self._remake()  # a new one: a state may bring other scenarios
        like.load_state_dict(saved)
        return states.loaded(like.core, self._markets)


class MarketEnv(BaseJaxEnv):
    """M markets with one learner each. A call plays all of them: the batch is M, and `jax.vmap` is refused."""

    @property
    def num_actions(self) -> int:
        """Choices of a discrete action, or numbers of a continuous one."""
        space = self.action_space()
        return space.n if isinstance(space, Discrete) else space.shape[0]

    def observation_space(self, params: MarketParams | None = None) -> Box | Discrete:
        """Return the space of one market's observations."""
        return self._observation_spaces[0]

    def action_space(self, params: MarketParams | None = None) -> Box | Discrete:
        """Return the space of one market's actions."""
        return self._action_spaces[0]

    def reset(self, key: Any, params: MarketParams, *, seed: Any = None) -> tuple[jax.Array, MarketState]:
        """Begin the first episodes of all markets.

        Args:
            key: A key of `jax.random`, of which a seed is drawn; None with a seed.
            params: Those that `make` returned.
            seed: None, or a number of the host: an int s seeds market m with s + m, or one int per market, as
                `reset(seed=...)` of environments of torch.

        Returns:
            Observations float32 `[M, F]`, and the state.
        """
        state = self._opened(key, params, seed)
        return self.observe(state), state

    def step(
        self, key: Any, state: MarketState, action: Any, params: MarketParams
    ) -> tuple[jax.Array, MarketState, jax.Array, jax.Array, dict[str, Any]]:
        """Play one decision in every market.

        Args:
            key: Not looked at: markets draw from streams of their own.
            state: The state; where it is donated it is changed in place.
            action: float32 `[M, A]` in [-1, 1], clamped to it, or whole numbers `[M]`.
            params: Those that `make` returned.

        Returns:
            Observations float32 `[M, F]`; the state; rewards float32 `[M]`; whether episodes ended, bool `[M]`; and
            infos: `terminated` and `truncated` bool `[M]`; under SAME_STEP `final_obs` float32 `[M, F]`, the
            observation before any reset; with `account_info=True` `account_info`, by name `[M]`; and where events end
            decisions `decision_events` int32 `[M]`.

        Raises:
            ValueError: When it is traced, if an array has another dtype or shape.
        """
        row = self._row("action", 0, action)[:, None]
        others = [(0, 0), (0, self._markets.slots - 1), *[(0, 0)] * (row.ndim - 2)]
        after, state = self._play(state, jnp.pad(row, others), params)
        info = self._info(after, 0)
        return self.observe(state), state, after.arrays["reward"][:, 0], info["terminated"] | info["truncated"], info

    def observe(self, state: MarketState) -> jax.Array:
        """Return the present observations, float32 `[M, F]`."""
        return self._seen(state, 0)

    def rollout(
        self,
        key: Any,
        state: MarketState,
        params: MarketParams,
        *,
        steps: int,
        actor: Layers,
        critic: Layers | None = None,
        trunk: Layers | None = None,
        log_std: jax.Array | None = None,
        activation: str = "tanh",
        noise: bool = True,
        seed: int | None = None,
    ) -> tuple[MarketState, Rollout]:
        """Play decisions of a network in one call: on a GPU in one launch, with the policy within it.

        Markets are to the bit what they are when `step` is given the recorded actions, cut to [-1, 1]. On a GPU
        products are of bfloat16 numbers; on a CPU, and with functions of a user's own, it is a scan of steps, in
        float32. Noise is the hash that `kineticsim_env.rollout` has: for the same weights and seed there are that one's
        bits on a GPU, and on a CPU its numbers but for the rounding of float32. docs/rollouts.md says more.

        Args:
            key: Of which the noise's seed is drawn; None with a seed, or without noise.
            state: The state.
            params: Those that `make` returned.
            steps: T.
            actor: Two hidden layers of 64 or 128 and the means, or logits: weights `[in, out]` and biases `[out]` each.
            critic: The value's likewise, or None.
            trunk: Two hidden layers that both share, which then have one layer each.
            log_std: Logarithms of a Gaussian policy's deviations, float32 `[A]`; None where actions are choices.
            activation: `"tanh"` or `"relu"`.
            noise: False plays the means, or the likeliest choices.
            seed: Of the noise, a number of the host of 64 bits, signed; it is taken rather than a key.

        Returns:
            The state, and a `Rollout`.

        Raises:
            TypeError, ValueError: Naming the argument, what came and what is allowed.
        """
        check_how(steps, noise)
        weights, words = Weights.of(actor, critic, trunk, log_std, activation), seed_words(key, seed, noise)
        space = self._action_spaces[0]
        categorical = isinstance(space, Discrete)
        inputs = self._observation_spaces[0].shape[0]
        shape = weights.checked(inputs, self.num_actions, categorical)
        if not self._devices or self._functions:
            how = {"steps": steps, "every": self._every, "noise": noise}
            played = lambda state, actions: self.step(None, state, actions, params)  # noqa: E731
            return by_steps(played, state, self.observe(state), weights, words, **how)
        kind = (shape, steps, noise)
        if kind not in self._inside:
            self._inside[kind] = Inside(self._remake().core, *kind, self._devices)
        return self._inside[kind].play(self._markets, state, params, weights, words)
