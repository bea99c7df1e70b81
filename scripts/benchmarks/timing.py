"""How a backend is timed: device events or a clock around a synchronised region, warm-up apart, and peak memory.

Called by the suite, after it has verified what the backend computes; and by the kinds of rows of `performance`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

_PROBE = 0.25  # share of a run's seconds that a longer look at a slow backend may take
_WARM = 0.1  # seconds of running before the first trial, so that clocks have risen


def uses_events(backend: Any) -> bool:
    """Say whether the backend works on torch's current stream, so that torch's events can time it."""
    return backend.device == "cuda" and "jax" not in f"{type(backend).__module__} {backend.name}".lower()


def by_clock(work: Callable[[], Any], synchronize: Callable[[], Any] = lambda: None) -> float:
    """Return the seconds of some work, by the clock around a synchronised region."""
    synchronize()
    started = time.perf_counter()
    work()
    synchronize()
    return time.perf_counter() - started


def by_events(work: Callable[[], Any]) -> float:
    """Return the seconds of some work on torch's current stream, by the GPU's events."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3


def clocked(backend: Any, steps: int) -> float:
    """Return the seconds of the next `steps` auctions, by the clock."""
    return by_clock(lambda: backend.run(steps), backend.synchronize)


def trial(backend: Any, steps: int) -> float:
    """Return the seconds of `steps` auctions from the opening book; going back to it is not timed."""
    backend.reset()
    if not uses_events(backend):
        return clocked(backend, steps)
    backend.synchronize()
    return by_events(lambda: backend.run(steps))


def trials(backend: Any, steps: int, count: int) -> list[float]:
    """Return the seconds of several trials, after runs that are not counted."""
    warm_until = time.perf_counter() + _WARM
    trial(backend, steps)
    while time.perf_counter() < warm_until:
        trial(backend, steps)
    return [trial(backend, steps) for _ in range(count)]


def affordable_steps(backend: Any, steps: int, seconds: float) -> tuple[int, float]:
    """Find how many of `steps` auctions a backend that is prepared, and not yet run, does in some seconds.

    Returns:
        The number of steps, from 1, and the seconds of the very first call, of one auction.
    """
    backend.reset()
    first_call = clocked(backend, 1)
    a_step = clocked(backend, 1)
    if a_step * steps > seconds:  # perhaps it was only disturbed, or is slow to start: look at longer runs
        a_step = min(a_step, clocked(backend, 1))
        longer = min(steps, int(_PROBE * seconds / a_step))
        if longer > 1:
            clocked(backend, longer)  # a length that it may have to compile for
            a_step = clocked(backend, longer) / longer
    return max(1, min(steps, int(seconds / a_step))), first_call


class PeakMemory:
    """Peak of the device memory that a backend holds, from the allocator of its framework.

    Make it before `prepare`, and read it after the trials.
    """

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self._jax = backend.device == "cuda" and not uses_events(backend)
        self._torch = backend.device == "cuda" and uses_events(backend)
        self._before = 0
        if self._torch:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            self._before = torch.cuda.memory_allocated()
        elif self._jax:
            stats = _jax_memory()
            self._before, self._peak_before = stats.get("bytes_in_use", 0), stats.get("peak_bytes_in_use", 0)

    def bytes(self) -> int | None:
        """Return the peak since this was made, or None where there is no count of it."""
        if self._torch:
            return torch.cuda.max_memory_allocated() - self._before
        if self._jax:  # JAX cannot reset its peak: a use below the earlier peak leaves no trace
            peak = _jax_memory().get("peak_bytes_in_use", 0)
            return peak - self._before if peak > self._peak_before else None
        return None


def _jax_memory() -> dict[str, int]:
    """Return the statistics of JAX's allocator on its first device, empty if there are none."""
    import jax

    return jax.local_devices()[0].memory_stats() or {}
