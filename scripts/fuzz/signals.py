"""Kind `signals`: Ctrl-C at any moment of a run, a measurement, a sweep or a calibration; nothing is left half done.

After it the process is as before, markets are where a shorter run leaves them, and the same sweep or calibration goes
on from its folder to the result of one that nobody interrupted.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import tempfile
import threading
import warnings
from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import torch

import kineticsim_env as ks
from scripts.fuzz import drawn, pairs
from scripts.fuzz.kinds import Failure

_whole: dict[tuple[str, int], tuple[Any, float]] = {}  # results that nobody interrupted


@contextlib.contextmanager
def aside() -> Generator[None]:
    """Have no results from before."""
    kept = dict(_whole)
    _whole.clear()
    try:
        yield
    finally:
        _whole.update(kept)


def play(rng: np.random.Generator, engines: tuple[str, ...]) -> None:
    """Interrupt something at a random moment, and look at what it leaves."""
    engine = engines[int(rng.integers(len(engines)))]
    fitted = importlib.util.find_spec("sbi") is not None
    sort = (_run, _sweep, _calibrate if fitted else _sweep)[int(rng.choice(3, p=[0.5, 0.3, 0.2]))]
    sort(rng, engine)


def _of_the_process() -> dict[str, Any]:
    """Return what no call may leave changed, by name."""
    return {
        "torch's random state": torch.get_rng_state(),
        "torch's threads": torch.get_num_threads(),
        "torch's gradients": torch.is_grad_enabled(),
        "NumPy's random state": str(np.random.get_state()),
        "the environment": dict(os.environ),
    }


def _struck(call: Callable[[], Any], delay: float) -> bool:
    """Call with a Ctrl-C after some seconds; return whether it came through. The process has to be as before."""
    came: list[bool] = []

    def ring(*_: Any) -> None:
        if not came:
            came.append(True)
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, ring)
    timer = threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT))
    kept = _of_the_process()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            timer.start()
            call()
        struck = False
    except KeyboardInterrupt:
        struck = True
    finally:  # though a market stops before the Ctrl-C, which would else come to another case
        came.append(True)  # too late by now
        timer.cancel()
        timer.join()
        handler = signal.signal(signal.SIGINT, before)
    wrong = [name for name, value in _of_the_process().items() if not pairs.same(kept[name], value)]
    if wrong or handler is not ring:
        wrong += ["the handler of SIGINT"] * (handler is not ring)
        raise Failure(f"after Ctrl-C {', '.join(wrong)} is another", key=("signals", *wrong))
    return struck


def _run(rng: np.random.Generator, engine: str) -> None:
    markets, seed = int(rng.choice([1, 3])), int(rng.integers(2**40))
    config = drawn.config(rng, markets)
    sim, clone = (ks.Simulator(config, markets, engine=engine, seed=seed) for _ in range(2))
    most = 100_000 if engine != "numpy" else 300
    record = ["last_price", "volume"] if rng.random() < 0.5 else []
    calls: list[Callable[[], Any]] = [
        lambda: sim.run(most, record),
        lambda: ks.measure(sim, most, ["volume", "response", "book_shape"]),
    ]
    try:
        _struck(calls[int(rng.integers(2))], float(rng.uniform(0.0, 0.4)))
        times = sim.t.tolist()
        if len(set(times)) > 1:
            raise Failure(f"after Ctrl-C markets are at {times}", key=("signals", "t"))
        for _ in range(times[0] // 1000):
            clone.run(1000)
        if times[0] % 1000:
            clone.run(times[0] % 1000)
        pairs.compare(pairs.tensors_of(sim), pairs.tensors_of(clone), f"run on {engine} after Ctrl-C at {times[0]}")
    except ks.MarketError:
        return


def _sweep(rng: np.random.Generator, engine: str) -> None:
    seed = int(rng.integers(3))

    def sweep(folder: str) -> Any:
        space = {"noise_spread": (2, 12), "market_order_prob": (0.05, 0.3)}
        given: dict[str, Any] = {"market": "trading", "design": "random", "points": 12, "replicates": 2, "seed": seed}
        done = ks.sweep(space, 20, ["volume", "volatility"], folder=folder, engine=engine, progress=False, **given)
        return {name: np.asarray(values) for name, values in done.to_arrow().to_pydict().items()}

    _go_on(f"sweep on {engine}", seed, sweep, rng)


def _calibrate(rng: np.random.Generator, engine: str) -> None:
    seed = int(rng.integers(2))

    def calibrate(folder: str) -> Any:
        given: dict[str, Any] = {"market": {"preset": "trading"}, "simulations": 100, "held_out": 0, "samples": 20}
        target = {"volatility": 4.0, "volume": 17.0}
        done = ks.calibrate(
            target, {"noise_spread": (3, 14)}, 10, folder=folder, engine=engine, seed=seed, progress=False, **given
        )
        return {name: np.asarray(values) for name, values in done.samples.items()}

    _go_on(f"calibration on {engine}", seed, calibrate, rng)


def _go_on(name: str, seed: int, call: Callable[[str], Any], rng: np.random.Generator) -> None:
    """Interrupt a call that keeps a folder, make it again, and compare with what came of it undisturbed."""
    warnings.simplefilter("ignore")
    if (name, seed) not in _whole:
        with tempfile.TemporaryDirectory() as folder:
            call(folder)  # imports
        with tempfile.TemporaryDirectory() as folder:
            began = os.times().elapsed
            _whole[name, seed] = call(folder), os.times().elapsed - began
    wanted, seconds = _whole[name, seed]
    with tempfile.TemporaryDirectory() as folder:
        _struck(lambda: call(folder), float(rng.uniform(0.0, 1.1)) * seconds)
        got = call(folder)
    if not all(np.array_equal(got[key], wanted[key], equal_nan=wanted[key].dtype.kind == "f") for key in wanted):
        raise Failure(f"{name}: the result is another after Ctrl-C", key=("signals", name))
