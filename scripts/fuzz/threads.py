"""Kind `threads`: several Python threads on one simulator, on one environment, and on one each.

What comes of it is what some order of the calls one after another gives; a call may be refused.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

import kineticsim_env as ks
from scripts.fuzz import moves, pairs
from scripts.fuzz.kinds import Failure

REFUSALS = (RuntimeError, ValueError, TypeError, gym.error.ResetNeeded)  # MarketError is a RuntimeError
_PATIENCE = 15  # seconds until threads are taken for locked
aside = pairs.aside


def play(rng: np.random.Generator, engines: tuple[str, ...]) -> None:
    """Let threads loose in one of several ways."""
    engine = engines[int(rng.integers(len(engines)))]
    (_equal_calls, _equal_calls, _any_calls, _apart)[int(rng.integers(4))](rng, engine)


def _together(works: list[Callable[[], None]]) -> None:
    """Run functions in a thread each, begun together; raise what one of them raises."""
    gate = threading.Barrier(len(works))
    errors: list[BaseException] = []

    def body(work: Callable[[], None]) -> None:
        try:
            gate.wait(_PATIENCE)
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=body, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_PATIENCE)
    if any(thread.is_alive() for thread in threads):
        pairs.forget()
        raise Failure("threads wait for each other for ever", key=("locked",))
    for error in errors:
        pairs.forget()
        if isinstance(error, Failure):
            raise error
        text = f"in a thread: {type(error).__name__} {str(error)[:200]}"
        raise Failure(text, key=("thread", type(error).__name__)) from error


def _equal_calls(rng: np.random.Generator, engine: str) -> None:
    """Make one call many times: whatever the order, the state is that of as many calls; so is any copy of it."""
    pair = pairs.any_pair(rng, engine)
    moves.start(pair, rng)
    thing, threads, times = pair.under_test, int(rng.integers(2, 5)), int(rng.integers(1, 4))
    call = _one_call(thing, rng)
    made, copies, lock = [0], [], threading.Lock()

    def work() -> None:
        for _ in range(times):
            with contextlib.suppress(*REFUSALS):
                call(thing)
                with lock:
                    made[0] += 1

    def look() -> None:
        for _ in range(times):
            with contextlib.suppress(*REFUSALS):
                copies.append(thing.state_dict())

    _together([work] * threads + ([look] if rng.random() < 0.5 else []))
    states = [pair.oracle.state_dict()]
    for _ in range(made[0]):
        call(pair.oracle)
        states.append(pair.oracle.state_dict())
    with pairs.forgetting(pair):
        pair.check_equal(f"equal calls ({made[0]} in {threads} threads)")
        for copy in copies:
            if not any(pairs.same(copy, state) for state in states):
                raise Failure("a state_dict() beside calls of other threads is no state that there was", key=("copy",))


def _one_call(thing: Any, rng: np.random.Generator) -> Callable[[Any], Any]:
    """Return a call that goes well however often it is made."""
    if isinstance(thing, ks.Simulator):
        quotes = np.zeros((thing.num_markets, len(thing.slots), 4), np.int32)
        quotes[..., 0], quotes[..., 1] = 3, int(rng.integers(0, 9))
        calls = [lambda sim: sim.run(1), lambda sim: sim.step(quotes), lambda sim: sim.reset()]
        calls += [lambda sim: sim.rollout(quotes[None]), lambda sim: sim.run(2, ("mid2",))]
        return calls[int(rng.integers(len(calls)))]
    if hasattr(thing, "agents") or not hasattr(thing, "num_envs") or thing.core.autoreset == 2:
        return lambda env: env.reset()  # a step may find the episode ended
    given = moves.actions(thing, rng)
    return lambda env: env.step(given)


def _any_calls(rng: np.random.Generator, engine: str) -> None:
    """Make different calls at once; afterwards a reset makes all right, as after tampering."""
    pair = pairs.any_pair(rng, engine)
    moves.start(pair, rng)
    thing = pair.under_test
    saved = thing.state_dict()
    sim = pairs.simulator_of(thing)
    seeds = [int(seed) for seed in rng.integers(0, 2**63, 4)]

    def work(seed: int) -> None:
        own = np.random.default_rng(seed)
        calls = [
            lambda: moves.step(thing, own),
            thing.reset,
            lambda: thing.reset(seed=3),
            thing.state_dict,
            lambda: thing.load_state_dict(saved),
            lambda: (sim.mid2, sim.last_price),
            sim.check_errors,
            lambda: sim.run(1),
        ]
        for _ in range(3):
            with contextlib.suppress(*REFUSALS):
                calls[int(own.integers(len(calls)))]()

    _together([lambda seed=seed: work(seed) for seed in seeds])
    with pairs.forgetting(pair, ["calls of several threads"], "any calls"):
        moves.start_over(pair, rng)
        moves.advance(pair, rng)


def _apart(rng: np.random.Generator, engine: str) -> None:
    """Give each thread a simulator or an environment of its own: nobody disturbs anybody."""
    chosen: dict[int, pairs.Pair] = {}
    for _ in range(int(rng.integers(2, 5))):
        pair = pairs.any_pair(rng, engine)
        chosen[id(pair)] = pair
    works, calls = [], []
    for pair in chosen.values():
        moves.start(pair, rng)
        call = _one_call(pair.under_test, rng)
        calls.append(call)
        works.append(lambda pair=pair, call=call: [call(pair.under_test) for _ in range(3)])
    _together(works)
    for pair, call in zip(chosen.values(), calls, strict=True):
        for _ in range(3):
            call(pair.oracle)
        with pairs.forgetting(pair):
            pair.check_equal("a thread each")
