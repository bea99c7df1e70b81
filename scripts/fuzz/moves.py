"""Moves that both of a pair make: valid actions, steps, runs; what comes of them is compared, an error too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import torch

import kineticsim_env as ks
from kineticsim_env.runtime.roles import SPECS
from scripts.fuzz import pairs
from scripts.fuzz.kinds import Failure

EXPECTED = (TypeError, ValueError, ks.MarketError, gym.error.ResetNeeded)


def copied(value: Any) -> Any:
    """Return results as they are now, since live ones change."""
    if isinstance(value, dict):
        return {name: copied(entry) for name, entry in value.items()}
    if isinstance(value, (tuple, list)):
        return tuple(copied(entry) for entry in value)
    if isinstance(value, torch.Tensor):
        return value.clone()
    return value.copy() if isinstance(value, np.ndarray) else value


def outcome(call: Callable[[], Any]) -> tuple[str, Any]:
    """Return what a call returns, or the kind and text of the error that it may raise."""
    try:
        return "", copied(call())
    except EXPECTED as error:
        return type(error).__name__, str(error)


def together(pair: pairs.Pair, name: str, call: Callable[[Any], Any]) -> tuple[str, Any]:
    """Make the same call on both, and compare what comes of it and the states after it."""
    got, wanted = (outcome(lambda thing=thing: call(thing)) for thing in pair.both)
    short = name.split("(")[0]
    with pairs.forgetting(pair):
        if got[0] != wanted[0]:
            said = f"{pair.engine} gives {got[0] or 'results'}, numpy {wanted[0] or 'results'}"
            raise Failure(f"{name}: {said}: {(got if got[0] else wanted)[1]}", key=(short, got[0], wanted[0]))
        if not got[0] and not pairs.same(got[1], wanted[1]):
            raise Failure(f"{name}: other results on {pair.engine}", key=(short, "results"))
        pair.check_equal(name)
    return got


def clear(pair: pairs.Pair) -> None:
    """Clear error words that a case before may have left, as a reset would raise them."""
    for thing in pair.both:
        pairs.simulator_of(thing).tensors["error"].zero_()


def start(pair: pairs.Pair, rng: np.random.Generator) -> None:
    """Reset both with one seed; what a case left before is not this one's affair."""
    with pairs.forgetting(pair):
        start_over(pair, rng)


def start_over(pair: pairs.Pair, rng: np.random.Generator) -> None:
    """Reset both with one seed, and make what a reset need not put back the same; then compare."""
    seed = int(rng.integers(2**40))
    clear(pair)
    for thing in pair.both:
        thing.reset(seed=seed)
    mine, other = (pairs.tensors_of(thing) for thing in pair.both)
    if "final_observation" in mine:  # the next step writes it
        mine["final_observation"].copy_(other["final_observation"])
    pair.check_equal("reset()")


def action_of(space: gym.Space, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Return a random action, or one for each row."""
    if isinstance(space, gym.spaces.Discrete):
        return np.asarray(rng.integers(0, int(space.n), shape), np.int64)
    values = rng.uniform(-1, 1, shape).astype(np.float32)
    return np.where(rng.random(shape) < 0.3, np.sign(values), values).astype(np.float32)


def quotes_of(sim: ks.Simulator, rng: np.random.Generator, *decisions: int, records: bool = True) -> np.ndarray:
    """Return quotes about each market's grid, some off it, int32 `[*decisions, M, K, 4]`; or order records.

    With ladders they are `[*decisions, M, K, N, 4]`.
    """
    ladder = sim.sizes["N"]
    shape = (*decisions, sim.num_markets, len(sim.slots), *ladder, 4)
    values = rng.integers(-2, sim.config.num_levels + 2, shape)
    values[..., 1::2] = rng.integers(-1, 30, values[..., 1::2].shape)
    origin = sim.price_origin.numpy().clip(-(2**29), 2**29)
    values[..., 0::2] += origin.reshape(-1, *[1] * (2 + len(ladder)))
    if not records or not sim.config.is_continuous or rng.random() < 0.5:
        return values.astype(np.int32)
    sides = values.reshape(*values.shape[:-1], *([] if ladder else [1]), 2, 2)
    flags = rng.choice([0, 0, 1, 1, 2, 4, 8, 3, 12, 15 if rng.random() < 0.1 else 9], (*sides.shape[:-1], 1))
    return np.concatenate([sides, flags], axis=-1).astype(np.int32)


def actions(thing: Any, rng: np.random.Generator) -> Any:
    """Return random actions for an environment, in the form its step takes."""
    if hasattr(thing, "group_map"):
        given = thing._given
        return {role: action_of(thing.single_action_spaces[role], tuple(given[role].shape), rng) for role in given}
    if hasattr(thing, "possible_agents"):
        return {name: action_of(thing.action_space(name), thing.action_space(name).shape, rng) for name in thing.agents}
    if hasattr(thing, "single_action_space"):
        return action_of(thing.single_action_space, thing._action_shape, rng)
    return action_of(thing.action_space, thing.action_space.shape, rng)


def step(thing: Any, rng: np.random.Generator) -> None:
    """Make one step, or a rollout; no agents, no step."""
    if isinstance(thing, ks.Simulator):
        thing.rollout(quotes_of(thing, rng, 2), 1, pairs.SERIES)
    elif getattr(thing, "agents", True):
        thing.step(actions(thing, rng))


def advance(pair: pairs.Pair, rng: np.random.Generator, *, changed: bool = False) -> tuple[str, Any]:
    """Make one step or run, perhaps from a changed state; environments whose episodes have ended are reset."""
    thing = pair.under_test
    if isinstance(thing, ks.Simulator):
        return _advance_simulator(pair, rng)
    if getattr(thing, "agents", True) == []:
        return together(pair, "reset", lambda env: env.reset())
    given = actions(thing, rng)
    done = together(pair, "step", lambda env: env.step(given))
    if done[0] == "ResetNeeded":
        return together(pair, "reset", lambda env: env.reset())
    _check_observations(thing, changed)
    return done


def _advance_simulator(pair: pairs.Pair, rng: np.random.Generator) -> tuple[str, Any]:
    sim, auctions = pair.under_test, 1 + int(rng.random() < 0.1)
    if rng.random() < 0.1:
        return _change_and_run(pair, rng)
    if rng.random() < 0.3:
        reach = int(rng.choice([0, 1, 10, 2**20]))
        return together(pair, f"run({auctions})", lambda s: s.run(auctions, pairs.SERIES, reach=reach))
    quotes = quotes_of(sim, rng)
    return together(pair, f"step({auctions})", lambda s: s.step(quotes, auctions))


def _change_and_run(pair: pairs.Pair, rng: np.random.Generator) -> tuple[str, Any]:
    """Run under other parameters, in some markets; those that were are put back, so that cases do not depend on it."""
    config = pair.under_test.config
    drawn = pairs.random_levers(rng) | {"noise_spread": int(rng.integers(40)), "cancel_prob": float(rng.random())}
    names = [str(name) for name in rng.choice(list(drawn), int(rng.integers(1, 4)), replace=False)]
    mask = None if rng.random() < 0.5 else rng.random(pair.under_test.num_markets) < 0.5
    fields, before = {name: drawn[name] for name in names}, {name: getattr(config, name) for name in names}
    done = together(pair, f"set_parameters({fields})", lambda s: s.set_parameters(mask, **fields))
    if done[0]:
        return done
    done = together(pair, f"run(1) after set_parameters({fields})", lambda s: s.run(1, pairs.SERIES))
    together(pair, f"set_parameters({before})", lambda s: s.set_parameters(**before))
    return done


def _check_observations(env: Any, changed: bool) -> None:
    """Raise if an observation lies outside its space; what is left of a block may, where the state was changed."""
    core = env.core
    for slot, role in enumerate(core.roles[: core.learners]):
        space = core.observation_space(role)
        rows = core.tensors["observation"][:, slot, : space.shape[0]].numpy()
        inside = (rows >= space.low) & (rows <= space.high)
        inside[:, 30] |= changed and SPECS[role].to_trade is not None and np.isfinite(rows[:, 30])
        if not inside.all():
            place = np.argwhere(~inside)[0]
            raise Failure(
                f"an observation of a {role} is outside its space: feature {place[1]} is {rows[tuple(place)]}",
                key=("observation", role, str(place[1])),
            )
