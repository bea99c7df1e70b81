"""The batches of a sweep on a cluster: tasks of Ray, a whole batch each.

Tables come back to the program that began the sweep, which stores them: no folder need be shared. A batch whose worker
or machine is lost is done again by another one; if this program is lost, the next one goes on with its folder.
"""

from __future__ import annotations

import logging
import pickle
import sys
from collections.abc import Iterator
from typing import Any

import torch

from kineticsim_env.engines import choose_engine
from kineticsim_env.runtime.values import check_choice, load_optional
from kineticsim_env.sweeps.local import Finished, timed_batch
from kineticsim_env.sweeps.plans import Plan

_RETRIES = 10  # of a batch whose worker is lost
_AHEAD = 2  # tasks under way or waiting, per place of the cluster


class Cluster:
    """A connection to Ray, until it is closed; one that this program has had already stays.

    A task has a GPU where the cluster has some and `engine` allows it, else a core. Raises ValueError if the engine
    does not fit, ConnectionError if there is no cluster at `address`, which is as in `sweep`.
    """

    threads = 1  # of a task

    def __init__(self, address: str, engine: str) -> None:
        check_choice("engine", engine, ("auto", "cuda", "cpu", "numpy"))
        ray = load_optional("ray", "sweep: ray is missing: pip install 'kineticsim-env[ray]'")
        self._ray, self._ours = ray, not ray.is_initialized()
        if self._ours:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        gpus = self._places("GPU")
        if engine == "cuda" and not gpus:
            self.close()
            raise ValueError("engine: expected one of 'auto', 'cpu', 'numpy', got 'cuda' on a cluster without GPUs")
        self.engine = engine if engine != "auto" else "cuda" if gpus else "cpu"

    def close(self) -> None:
        """Disconnect, if it has connected."""
        if self._ours:
            self._ray.shutdown()

    def _places(self, kind: str) -> int:
        return int(self._ray.cluster_resources().get(kind, 0))

    @property
    def workers(self) -> int:
        """How many tasks can run at once, at present."""
        return max(1, self._places("GPU" if self.engine == "cuda" else "CPU"))

    def run(self, plan: Plan, bounds: Iterator[tuple[int, int]], finished: Finished) -> None:
        """Run batches; arguments as of `Here.run`."""
        from ray import cloudpickle  # also takes statistics that were declared in a notebook

        ray = self._ray
        task = ray.remote(_run_task).options(
            num_cpus=1, num_gpus=int(self.engine == "cuda"), max_retries=_RETRIES, scheduling_strategy="SPREAD"
        )
        shared = ray.put(cloudpickle.dumps(plan))
        under_way: dict[Any, tuple[int, int]] = {}
        try:
            while True:
                while len(under_way) < _AHEAD * self.workers and (given := next(bounds, None)) is not None:
                    under_way[task.remote(shared, sys.path, *given, self.engine)] = given
                if not under_way:
                    return
                ready, _ = ray.wait(list(under_way), num_returns=1)
                for reference in ready:
                    finished(*under_way.pop(reference), *ray.get(reference))
        finally:
            for reference in under_way:
                ray.cancel(reference)


def _run_task(pickled: bytes, paths: list[str], begin: int, end: int, engine: str) -> tuple[dict[str, Any], float]:
    """Run a batch in a worker; classes of agents are imported from where this program has them, if it is there, too."""
    sys.path += [path for path in paths if path not in sys.path]
    plan = pickle.loads(pickled)
    name, device = choose_engine(engine, own_code=plan.own_code)
    if name != "cuda":
        torch.set_num_threads(1)  # a task has one core
    return timed_batch(plan, begin, end, name, device)
