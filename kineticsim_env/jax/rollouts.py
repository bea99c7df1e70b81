"""`Rollouts`: many decisions in one call, whose policy is within the launch on a GPU, with weights that are arrays.

On a CPU, and where functions of a user's own come between, they are a scan of steps.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch

from kineticsim_env.engines.cuda import CudaEngine
from kineticsim_env.engines.live import STOPPED
from kineticsim_env.envs.core import EnvCore
from kineticsim_env.envs.rollouts import every_of
from kineticsim_env.jax.calls import Arrays, Call, words_of
from kineticsim_env.jax.markets import MarketParams, Markets, MarketState
from kineticsim_env.jax.noise import gumbels, noise_words, normals
from kineticsim_env.policies import packing
from kineticsim_env.policies.networks import ACTIVATIONS, HIDDEN, LOG_ROOT_2PI, MOST_INPUTS, MOST_OUTPUTS, NetworkShape
from kineticsim_env.policies.rollouts import PolicyRollout
from kineticsim_env.runtime.values import check_choice, check_count, check_flag, show

Layers = Sequence[tuple[jax.Array, jax.Array]]  # weights [in, out] and biases [out]

_ACTIVATED: dict[str, Callable[[jax.Array], jax.Array]] = {"tanh": jnp.tanh, "relu": jax.nn.relu}

_RECORDED = ("log_prob", "value", "reward", "terminated", "truncated", "played", "decision_events")


class Rollout(NamedTuple):
    """T decisions of M markets; F numbers of an observation, A of an action.

    Attributes:
        observation: What the policy saw, float32 `[T, M, F]`.
        action: What it chose: of a Gaussian policy float32 `[T, M, A]` as drawn, before it was cut to [-1, 1]; of a
            categorical one int32 `[T, M]`.
        log_prob: The logarithm of its probability or density, float32 `[T, M]`.
        value: Values of the observations, float32 `[T, M]`; 0 without a critic.
        reward: float32 `[T, M]`.
        terminated: bool `[T, M]`.
        truncated: bool `[T, M]`.
        played: bool `[T, M]`: False where a market only began anew (NEXT_STEP autoreset), waited or had stopped.
        final_observation: What was seen last before an episode was truncated, float32 `[R, M, F]`; elsewhere 0. R is T
            by the horizon, or by 1 if it differs, rounded up.
        row: Of each decision, in which of these rows that is, int32 `[T]`.
        decision_events: Events of each decision, where these end decisions, int32 `[T, M]`; else None.
    """

    observation: jax.Array
    action: jax.Array
    log_prob: jax.Array
    value: jax.Array
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    played: jax.Array
    final_observation: jax.Array
    row: jax.Array
    decision_events: jax.Array | None


class Weights(NamedTuple):
    """The layers of a policy, and perhaps its value network, of two hidden layers; see `NetworkPolicy`."""

    actor: Layers
    critic: Layers | None
    trunk: Layers | None
    log_std: jax.Array | None
    activation: str

    @classmethod
    def of(cls, actor: Any, critic: Any, trunk: Any, log_std: Any, activation: str) -> Weights:
        """Return layers of floating numbers as float32, or raise TypeError naming what is something else."""
        critic = None if critic is None else _layers("critic", critic)
        trunk = None if trunk is None else _layers("trunk", trunk)
        log_std = None if log_std is None else _array("log_std", log_std)
        return cls(_layers("actor", actor), critic, trunk, log_std, activation)

    def checked(self, inputs: int, outputs: int, categorical: bool) -> NetworkShape:
        """Return the shape, or raise ValueError naming what is not of a network for such observations and actions."""
        check_choice("activation", self.activation, ACTIVATIONS)
        if inputs > MOST_INPUTS:
            raise ValueError(f"actor: expected observations of up to {MOST_INPUTS} numbers, got {inputs}")
        if outputs > MOST_OUTPUTS:
            raise ValueError(f"actor: expected up to {MOST_OUTPUTS} actions, got {outputs}")
        if (self.log_std is None) != categorical:
            wanted = "None, as actions are choices" if categorical else "an array, as actions are numbers"
            raise ValueError(f"log_std: expected {wanted}, got {'None' if self.log_std is None else 'an array'}")
        named, body_of = ("actor", self.actor) if self.trunk is None else ("trunk", self.trunk)
        first = body_of[0][0].shape if body_of else ()
        hidden = first[1] if len(first) == 2 else 0
        if hidden not in HIDDEN:
            raise ValueError(f"{named}: expected a first layer [{inputs}, {HIDDEN[0]} or {HIDDEN[1]}], got {first}")
        body = [(inputs, hidden), (hidden, hidden)]
        for name, part, count in (("actor", self.actor, outputs), ("critic", self.critic, 1), ("trunk", self.trunk, 0)):
            if part is None:
                continue
            head = [(hidden, count)] if count else []
            sizes = body if name == "trunk" else head if self.trunk is not None else body + head
            found = [(weight.shape, bias.shape) for weight, bias in part]
            if found != [(size, size[1:]) for size in sizes]:
                raise ValueError(f"{name}: expected weights {sizes}, each with its biases, got {found}")
        if self.log_std is not None and self.log_std.shape != (outputs,):
            raise ValueError(f"log_std: expected [{outputs}], got {self.log_std.shape}")
        kind = self.trunk is not None, self.critic is not None
        return NetworkShape(inputs, hidden, self.activation, outputs, categorical, *kind)

    def packed(self, shape: NetworkShape) -> jax.Array:
        """Return the weights as the kernel takes them, int32 `[1, n]`: `packing.packed` of arrays."""
        bodies = [self.actor, self.critic] if self.trunk is None else [self.trunk]
        heads = [part[-1] for part in (self.actor, self.critic) if part is not None]
        pairs = [pair for body in bodies if body is not None for pair in body[:2]] + heads
        parts = [part for weight, bias in pairs for part in (weight.T, bias)]
        parts += [] if self.log_std is None else [self.log_std]
        flat = jnp.concatenate([*(part.reshape(-1) for part in parts), jnp.zeros(1, jnp.float32)])
        pieces, numbers = (places.numpy() for places in packing.places_of(shape))
        products = flat[pieces].astype(jnp.bfloat16).reshape(-1, 2)
        words = [jax.lax.bitcast_convert_type(each, jnp.int32) for each in (products, flat[numbers])]
        return jnp.concatenate(words)[None]

    def evaluated(self, rows: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return means or logits, and values, of observations."""
        activated = _ACTIVATED[self.activation]

        def apply(layers: Layers | None) -> jax.Array:
            if layers is None:
                return jnp.zeros((*rows.shape[:-1], 1), jnp.float32)
            found = rows
            for weight, bias in (self.trunk or layers)[:2]:
                found = activated(found @ weight + bias)
            weight, bias = layers[-1]
            return found @ weight + bias

        return apply(self.actor), apply(self.critic)[..., 0]


def _layers(name: str, given: Any) -> Layers:
    try:
        return [(_array(name, weight), _array(name, bias)) for weight, bias in given]
    except (TypeError, ValueError) as error:
        asked = "its linear layers, (weights, biases) of floating numbers each; there are no recurrent policies"
        raise TypeError(f"{name}: expected a list of {asked}, got {show(given)}") from error


def _array(name: str, given: Any) -> jax.Array:
    array = jnp.asarray(given)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise TypeError(f"{name}: expected floating numbers, got {array.dtype}")
    return array.astype(jnp.float32)


class Inside:
    """Rollouts of one network shape and length within a launch, as a function of arrays."""

    def __init__(self, core: EnvCore, shape: NetworkShape, steps: int, noise: bool, devices: list[int]) -> None:
        """Describe and compile one, of an environment of torch, which is not needed any more then."""
        engine = core.simulator.engine
        assert isinstance(engine, CudaEngine)
        markets, every = core.simulator.num_markets, every_of(core)
        empty = functools.partial(torch.empty, device="meta")
        events = core.task.decides_at_events
        sizes = shape, steps, markets
        out = PolicyRollout.empty(*sizes, every=every, device="meta", dtype=torch.float32, events=events)
        chosen = "choices" if shape.categorical else "actions"
        width = () if shape.categorical else (max(core.task.action_form(role).size for role in core.roles),)
        pieces, numbers = packing.places_of(shape)
        fields: dict[str, Any] = {
            "slots": 1, "stride": core.tensors["observation"].shape[-1], "every": every, "noise": int(noise),
            "markets_per_network": markets, "rows": out.rows, "final_rows": out.final_rows, chosen: out.action,
            "networks": empty((1, len(pieces) // 2 + len(numbers)), dtype=torch.int32),
            "seed": empty(1, dtype=torch.int64),
            **{name: tensor for name in _RECORDED if (tensor := getattr(out, name)) is not None},
        }  # fmt: skip
        given = {chosen: empty((markets, len(core.roles), *width), dtype=out.action.dtype)}
        policy = packing.definitions(shape, rows16=False)
        said, shapes = engine.describe_rollout(policy, steps, core.auctions_per_step, fields, given, devices)
        self._call, self._shape, self._chosen = Call(said, shapes), shape, chosen
        self._row = _rows(steps, every)

    def play(
        self, markets: Markets, state: MarketState, params: MarketParams, weights: Weights, seed: jax.Array
    ) -> tuple[MarketState, Rollout]:
        """Return the state after the decisions, and what they were; `seed` is that of the noise, int32 `[1, 2]`."""
        inputs = self._shape.inputs
        made: Arrays = {
            name: jnp.zeros(like.shape, like.dtype)
            for name, like in self._call.state.items()
            if name.startswith("rollout.") or name == self._chosen
        }
        for name in ("rollout.rows", "rollout.final_rows"):
            made[name] = made[name].at[..., inputs].set(1.0)
        tables = {**params.bank, "rollout.networks": weights.packed(self._shape), "rollout.seed": seed}
        state, found = markets.played(self._call, state, tables, made)
        action = found[f"rollout.{self._chosen}"]
        return state, Rollout(
            observation=found["rollout.rows"][..., :inputs],
            action=action[..., 0] if self._shape.categorical else action,
            final_observation=found["rollout.final_rows"][..., :inputs],
            row=jnp.asarray(self._row),
            **{name: found.get(f"rollout.{name}") for name in _RECORDED},  # ty: ignore[invalid-argument-type]
        )


def by_steps(
    step: Callable[..., Any],
    state: MarketState,
    observation: jax.Array,
    weights: Weights,
    seed: jax.Array,
    *,
    steps: int,
    every: int,
    noise: bool,
) -> tuple[MarketState, Rollout]:
    """Play the same step by step, with noise of the same words; `seed` as in `Inside.play`."""

    def decide(carry: tuple[MarketState, jax.Array], _: None) -> tuple[tuple[MarketState, jax.Array], Any]:
        state, observation = carry
        outputs, value = weights.evaluated(observation)
        count = outputs.shape[1]
        words = noise_words(seed, *(state.arrays[name] for name in ("seed", "episode", "t")), count)
        if weights.log_std is None:
            action = jnp.argmax(outputs + (gumbels(words, count) if noise else 0.0), axis=-1)
            action = action.astype(jnp.int32)
            log_prob = jnp.take_along_axis(jax.nn.log_softmax(outputs), action[:, None], axis=1)[:, 0]
            played = action
        else:
            drawn = normals(words, count) if noise else jnp.zeros_like(outputs)
            action = outputs + jnp.exp(weights.log_std) * drawn
            log_prob = jnp.sum(-0.5 * drawn**2 - weights.log_std - LOG_ROOT_2PI, axis=-1)
            played = jnp.clip(action, -1.0, 1.0)
        plays = ~(state.arrays["done"] | (state.arrays["error"] & STOPPED != 0))
        following, state, reward, _, info = step(state, played)
        ends = (info["terminated"], info["truncated"])
        final = jnp.where((ends[1] & plays)[:, None], info.get("final_obs", following), 0.0)
        recorded = (observation, action, log_prob, value, reward, *ends, plays)
        return (state, following), (recorded, final, info.get("decision_events"))

    (state, _), (found, final, events) = jax.lax.scan(decide, (state, observation), length=steps)
    row = jnp.asarray(_rows(steps, every))
    # Of the decisions of a row at most one is not 0.
    return state, Rollout(*found, jax.ops.segment_sum(final, row, -(-steps // every)), row, events)


def _rows(steps: int, every: int) -> np.ndarray:
    return (np.arange(steps) // every).astype(np.int32)


def check_how(steps: Any, noise: Any) -> None:
    """Refuse, by name, what no rollout can be of."""
    check_count("steps", steps, 1), check_flag("noise", noise)


def seed_words(key: Any, seed: Any, noise: bool) -> jax.Array:
    """Return the seed of noise as words, int32 `[1, 2]`: of the host, or drawn by a key; without noise any will do."""
    if seed is not None:
        check_count("seed", seed, -(2**63), 2**63 - 1)
    elif key is not None:
        return jax.lax.bitcast_convert_type(jax.random.bits(key, (1, 2), jnp.uint32), jnp.int32)
    elif noise:
        raise ValueError("key: expected a key of jax.random, or a seed, got None for both")
    return jnp.asarray(words_of([seed or 0]))
