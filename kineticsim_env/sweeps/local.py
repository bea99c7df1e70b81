"""The batches of a sweep on this machine: on its GPUs, a thread for each, or on the C++ engine with all cores."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import torch

from kineticsim_env.engines import choose_engine
from kineticsim_env.runtime.values import show
from kineticsim_env.sweeps.batches import run_batch
from kineticsim_env.sweeps.plans import Plan

# Takes the first point of a batch, the first one behind it, its columns and the seconds that it took.
Finished = Callable[[int, int, dict[str, Any], float], None]


def choose_devices(engine: str, device: Any, own_code: bool = False) -> tuple[str, list[torch.device]]:
    """Resolve an engine's name, and the devices that share the batches, as `choose_engine` does, with its errors.

    None is all GPUs, where the engine is CUDA; a device may also be one, or a sequence of GPUs.
    """
    asked = device if isinstance(device, (list, tuple)) else [device]
    chosen = [choose_engine(engine, one, own_code=own_code) for one in asked]
    places = [place for _, place in chosen]
    if not chosen or len(set(places)) < len(places) or (len(places) > 1 and chosen[0][0] != "cuda"):
        raise ValueError(f"device: expected different GPUs, or one device, got {show(device)}")
    name = chosen[0][0]
    if device is None and name == "cuda":
        places = [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
    return name, places


def timed_batch(plan: Plan, begin: int, end: int, engine: str, device: Any) -> tuple[dict[str, Any], float]:
    """Run a batch; return its columns and the seconds that it took."""
    started = time.perf_counter()
    return run_batch(plan, begin, end, engine, device), time.perf_counter() - started


class Here:
    """This machine: a resolved engine and its devices, each with a worker of so many threads of the C++ engine."""

    def __init__(self, engine: str, device: Any, own_code: bool = False) -> None:
        self.engine, self.devices = choose_devices(engine, device, own_code)
        self.workers, self.threads = len(self.devices), torch.get_num_threads()

    def run(self, plan: Plan, bounds: Iterator[tuple[int, int]], finished: Finished) -> None:
        """Run batches; the first error stops all.

        `bounds` are asked for when a worker is free; `finished` is called by one thread at a time.
        """
        if len(self.devices) == 1:  # in this thread, which Ctrl-C stops at once
            for begin, end in bounds:
                finished(begin, end, *timed_batch(plan, begin, end, self.engine, self.devices[0]))
            return
        lock, stop = threading.Lock(), threading.Event()

        def take() -> tuple[int, int] | None:
            with lock:
                return None if stop.is_set() else next(bounds, None)

        def work(device: torch.device) -> None:
            while (given := take()) is not None:
                done = timed_batch(plan, *given, self.engine, device)
                with lock:
                    finished(*given, *done)

        with ThreadPoolExecutor(len(self.devices)) as pool:
            try:
                for future in as_completed([pool.submit(work, device) for device in self.devices]):
                    future.result()
            finally:
                stop.set()  # after an error or Ctrl-C the others end their batch
