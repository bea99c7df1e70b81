"""The kinds of cases, what share of a run each gets, and how one case of a kind is played."""

from __future__ import annotations

import importlib
import signal
import traceback
from types import ModuleType
from typing import Any

import numpy as np
import torch

SHARES = {  # cases of each kind in a whole run; one of threads, races or signals takes longer than the others
    "forms": 25_000,
    "loads": 13_000,
    "tampering": 12_000,
    "scenarios": 7_000,
    "threads": 2_000,
    "calls": 40_500,
    "races": 500,
    "settings": 7_500,
    "tapes": 1_400,
    "formulas": 1_000,
    "signals": 100,
}
KINDS = tuple(SHARES)
FRESH = ("settings", "tapes", "formulas", "signals")  # whose cases have a configuration each
SECONDS = 60  # that a case may take, with what it compiles, on a machine that is busy
ENGINES = ("cpu", "numpy")


class Failure(AssertionError):
    """A case that shows something wrong; `key` says which failures are the same one."""

    def __init__(self, text: str, key: tuple[str, ...] = ()) -> None:
        """Keep the key."""
        super().__init__(text)
        self.key = key or (text,)


class Slow(BaseException):
    """A case that takes too long; raised by a timer, past whoever catches exceptions."""


def module_of(kind: str) -> ModuleType:
    """Return the module with the kind's `play` and `aside`."""
    return importlib.import_module(f"scripts.fuzz.{kind}")


def _ring(*_: Any) -> None:
    raise Slow()


def play(kind: str, seed: int, engines: tuple[str, ...] = ENGINES) -> Failure | None:
    """Play one case; returns what is wrong. The seed and the kind say all about it."""
    module = module_of(kind)
    rng = np.random.default_rng([seed, *kind.encode()])
    torch.manual_seed(seed)
    before = signal.signal(signal.SIGALRM, _ring)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        module.play(rng, engines)
    except Failure as failure:
        return failure
    except Slow as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return Failure(f"takes more than {SECONDS} s, at {where.filename}:{where.lineno}", key=("slow", where.name))
    except Exception as error:  # nothing that a kind expects
        where = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__}: {str(error)[:300]} at {where.filename}:{where.lineno}"
        return Failure(text, key=(type(error).__name__, where.filename, str(where.lineno)))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return None


def play_and_forget(kind: str, seed: int, engines: tuple[str, ...] = ENGINES) -> tuple[Failure, bool] | None:
    """Play one case; after a failure play it again by itself, and tell whether it fails so, too."""
    failure = play(kind, seed, engines)
    if failure is None:
        return None
    with module_of(kind).aside():
        alone = play(kind, seed, engines) is not None
    return failure, alone
