"""Kind `forms`: the same values in other forms give the same results as plain arrays on the NumPy engine.

Or they are refused with a TypeError or ValueError, and nothing has changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from scripts.fuzz import pairs, shapes
from scripts.fuzz.kinds import Failure
from scripts.fuzz.moves import action_of, copied, quotes_of, start

aside = pairs.aside


def play(rng: np.random.Generator, engines: tuple[str, ...]) -> None:
    """Make a move with arguments in random forms, on both engines."""
    engine = engines[int(rng.integers(len(engines)))]
    sort = str(rng.choice(["simulator", "vector", "single", "parallel", "batched"]))
    mode = {"autoreset_mode": str(rng.choice(pairs.MODES))} if sort == "vector" else {}
    pair = pairs.pair_of(sort, int(rng.integers(pairs.DIFFERENT)), engine, **mode)
    start(pair, rng)
    if sort == "simulator":
        _simulator(pair, rng)
    else:
        _environment(pair, rng, sort)


def _try(pair: pairs.Pair, name: str, forms: list[shapes.Form], given: Callable, plain: Callable) -> None:
    """Call the one under test with a form and the oracle with plain values, and compare unless it is refused."""
    what = f"{name}({', '.join(form[2] for form in forms)}) on {pair.engine}"
    before = pair.state()
    try:
        got = given(pair.under_test)
    except (TypeError, ValueError) as error:
        pairs.compare(pairs.tensors_of(pair.under_test), before, f"{what} was refused")
        if forms and all(form[2] in shapes.TAKEN for form in forms) and not _refused_too(pair, plain):
            raise Failure(f"{what} was refused: {error}", key=(name, "refused", str(error)[:25])) from error
        return
    except gym.error.ResetNeeded:
        return
    except Exception as error:
        pairs.forget_pair(pair)
        raise Failure(f"{what}: {type(error).__name__} {str(error)[:200]}", key=(name, type(error).__name__)) from error
    with pairs.forgetting(pair):
        try:
            wanted = plain(pair.oracle)
        except (TypeError, ValueError, gym.error.ResetNeeded) as error:
            raise Failure(f"{what} was taken, but plain values are refused: {error}", key=(name, "taken")) from error
        if not pairs.same(got, wanted):
            raise Failure(f"{what} gives other results", key=(name, "results", forms[0][2] if forms else ""))
        pair.check_equal(what)


def _refused_too(pair: pairs.Pair, plain: Callable) -> bool:
    """Return whether the oracle refuses the plain values, which is right if they are outside their space."""
    state = pairs.copies(pair.oracle)
    try:
        plain(pair.oracle)
    except (TypeError, ValueError, gym.error.ResetNeeded):
        return True
    for name, tensor in pairs.tensors_of(pair.oracle).items():
        tensor.copy_(state[name])
    return False


def _seeds(rng: np.random.Generator, markets: int, live: list[torch.Tensor]) -> shapes.Form | None:
    kind = int(rng.integers(4))
    if kind == 0:
        return None
    if kind == 1:
        return shapes.draw(np.array(int(rng.integers(2**40))), rng)
    return shapes.draw(rng.integers(-(2**62), 2**62, markets), rng, live)


def _mask(rng: np.random.Generator, markets: int, live: list[torch.Tensor]) -> shapes.Form | None:
    return None if rng.random() < 0.3 else shapes.draw(rng.random(markets) < 0.5, rng, live)


def _reset(
    pair: pairs.Pair, rng: np.random.Generator, name: str, markets: int, live: list[torch.Tensor], call: Callable
) -> None:
    both = _seeds(rng, markets, live), _mask(rng, markets, live)
    given, plain = ([form and form[which] for form in both] for which in (0, 1))
    forms = [form for form in both if form]
    _try(pair, name, forms, lambda thing: call(thing, *given), lambda thing: call(thing, *plain))


# Simulators -----------------------------------------------------------------------------------------------------------


def _quotes(rng: np.random.Generator, sim: Any, *decisions: int) -> shapes.Form:
    values = quotes_of(sim, rng, *decisions)
    if rng.random() < 0.1:
        values[...] = rng.integers(-(2**31), 2**31, values.shape)
    return shapes.draw(values, rng, [tensor for tensor in sim.tensors.values() if tensor.dtype == torch.int32])


def _simulator(pair: pairs.Pair, rng: np.random.Generator) -> None:
    sim, auctions, move = pair.under_test, 1 + int(rng.random() < 0.1), int(rng.integers(3))
    if move == 0:
        form = _quotes(rng, sim)
        _try(pair, "step", [form], *_both(lambda s, q: s.step(q, auctions), form))
    elif move == 1:
        form = _quotes(rng, sim, int(rng.integers(0, 4)))
        _try(pair, "rollout", [form], *_both(lambda s, q: tuple(s.rollout(q, auctions, pairs.SERIES)), form))
    else:
        _reset(pair, rng, "reset", sim.num_markets, list(sim.tensors.values()), lambda s, *given: s.reset(*given))


def _both(call: Callable[[Any, Any], Any], form: shapes.Form) -> tuple[Callable, Callable]:
    return (lambda thing: call(thing, form[0])), (lambda thing: call(thing, form[1].copy()))


# Environments ---------------------------------------------------------------------------------------------------------


def _action(
    rng: np.random.Generator, space: gym.Space, shape: tuple[int, ...], live: list[torch.Tensor]
) -> shapes.Form:
    values = action_of(space, shape, rng)
    if isinstance(space, gym.spaces.Discrete):
        values = np.asarray(values + (rng.random() < 0.05) * (values == space.n - 1))  # perhaps one too many
    elif rng.random() < 0.05:
        values = np.where(rng.random(shape) < 0.3, np.float32(rng.choice([np.nan, np.inf, 1.5])), values)
    return shapes.draw(values, rng, live)


def _environment(pair: pairs.Pair, rng: np.random.Generator, sort: str) -> None:
    env = pair.under_test
    live = [*env.core.tensors.values(), *env.core.simulator.tensors.values()]
    if sort == "vector":
        live.append(env.observation)
    if sort in ("vector", "batched") and rng.random() < 0.25:
        _reset(pair, rng, f"{sort} reset", env.num_envs, live, _reset_some)
    elif sort == "batched":
        spaces = env.single_action_spaces
        forms = {name: _action(rng, spaces[name], tuple(rows.shape), live) for name, rows in env._given.items()}
        _try_dict(pair, "batched step", forms)
    elif sort == "parallel":
        forms = {name: _action(rng, env.action_space(name), env.action_space(name).shape, live) for name in env.agents}
        _try_dict(pair, "parallel step", forms)
    else:
        vector = sort == "vector"
        space, shape = (env.single_action_space, env._action_shape) if vector else (env.action_space, None)
        form = _action(rng, space, space.shape if shape is None else shape, live)
        _try(pair, f"{sort} step", [form], *_both(lambda e, a: copied(e.step(a)), form))


def _reset_some(env: Any, seed: Any, mask: Any) -> Any:
    return copied(env.reset(seed=seed, options=None if mask is None else {"reset_mask": mask}))


def _try_dict(pair: pairs.Pair, name: str, forms: dict[str, shapes.Form]) -> None:
    given = {key: form[0] for key, form in forms.items()}
    plain = {key: form[1] for key, form in forms.items()}
    _try(pair, name, list(forms.values()), lambda e: copied(e.step(given)), lambda e: copied(e.step(plain)))
