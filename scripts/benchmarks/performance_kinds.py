"""Kinds of rows of `performance.py`, markets and steps: each opens what it measures and runs it once, then measures it.

`performance_policies.py` has those with policies. `measure()` returns figures by name and may be called again; `digest`
is a hash of the first markets' bits after the first run, by which two versions can be compared, or None.
"""

import hashlib
import time
from collections.abc import Callable, Iterable
from typing import Any

import gymnasium as gym
import numpy as np
import torch

import kineticsim_env as ks
from kineticsim_env import BatchedParallelEnv, MarketConfig, Simulator
from scripts.benchmarks.backend import Workload
from scripts.benchmarks.cuda_backends import NaiveCuda, PaperBlock, hash_ceiling
from scripts.benchmarks.engine_backends import Engine
from scripts.benchmarks.timing import PeakMemory, by_clock, by_events

ON_GPU = torch.cuda.is_available()
STEPS_IN_GRAPH, STEPS_FROM_PYTHON, HASHED_MARKETS = 24, 200, 256
LEAST = {"seconds": 0.2}  # that a row is measured for


def shortest(run: Callable[[], Any], on_gpu: bool, least: int = 5) -> float:
    """Return the seconds of the shortest of some runs, timed by the GPU's events or a clock."""
    run()
    found: list[float] = []
    started = time.perf_counter()
    while len(found) < least or time.perf_counter() - started < LEAST["seconds"]:
        found.append(by_events(run) if on_gpu else by_clock(run))
    return min(found)


def digest(tensors: Iterable[torch.Tensor]) -> str:
    """Return a hash of the first markets' bits, by which two versions can be compared."""
    state = hashlib.sha256()
    for tensor in tensors:
        state.update(tensor[:HASHED_MARKETS].cpu().numpy().tobytes())
    return state.hexdigest()[:16]


def _number(agents: int | None) -> dict[str, int]:
    return {} if agents is None else {"num_agents": agents}


class Auctions:
    """Runs of auctions: `own` is a kernel with the markets' parameters compiled in, or the one for all.

    `agents` None are the preset's own; `fields` are further ones of the markets. On the clock an auction is an
    interval.
    """

    def __init__(
        self,
        preset: str = "paper",
        agents: int | None = 256,
        levels: int = 128,
        markets: int = 8192,
        slots: int = 0,
        own: bool = True,
        auctions: int = 500,
        device: str = "cuda",
        threads: int = 0,
        fields: dict[str, Any] | None = None,
    ) -> None:
        shape = {} if levels == 128 else {"num_levels": levels, "init_price": levels // 2}
        config = MarketConfig.preset(preset, **_number(agents), **shape, **(fields or {}))
        engine = device if ON_GPU or device != "cuda" else "cpu"
        self._simulator = Simulator(config, markets, engine=engine, slots=slots)
        self._on_gpu, self._auctions, self._threads = engine == "cuda", auctions, threads
        self._events = markets * int(np.max(config.interval or config.num_agents)) * auctions
        if own:
            self._simulator.specialise()
        self._run()
        self._simulator.check_errors()
        self.digest = digest((self._simulator.bid, self._simulator.ask, self._simulator.last_price))

    def _run(self) -> None:
        self._simulator.engine.launch(0, auctions=self._auctions)

    def measure(self) -> dict[str, float]:
        """Return agent-events per second, and microseconds per auction of all markets."""
        threads = torch.get_num_threads()
        torch.set_num_threads(self._threads or threads)
        taken = shortest(self._run, self._on_gpu)
        torch.set_num_threads(threads)
        return {"events_per_s": self._events / taken, "us_per_auction": taken / self._auctions * 1e6}

    def close(self) -> None:
        """Let go of the markets; one that cannot go on says so."""
        self._simulator.close()


class Baseline:
    """A CUDA baseline of `cuda/baselines`; its bits are compared with the engine's first."""

    def __init__(self, backend: str, agents: int = 256, markets: int = 8192, auctions: int = 500) -> None:
        self._workload, engine = Workload(markets, agents, steps=auctions), Engine("cuda")
        self._backend = {"PaperBlock": PaperBlock, "NaiveCuda": NaiveCuda}[backend]()
        ends = []
        for one in (self._backend, engine):
            one.prepare(self._workload)
            one.reset()
            one.run(auctions)
            one.synchronize()
            ends.append(one.result())
        engine.close()
        if not all(np.array_equal(getattr(ends[0], side), getattr(ends[1], side)) for side in ("bid", "ask")):
            raise RuntimeError(f"{backend} and the engine end with different books")
        self.digest = digest(torch.from_numpy(getattr(ends[0], side)) for side in ("bid", "ask"))

    def measure(self) -> dict[str, float]:
        """Return agent-events per second."""
        taken = shortest(lambda: self._backend.run(self._workload.steps), True, 3)
        return {"events_per_s": self._workload.events / taken}

    def close(self) -> None:
        """Give memory back."""
        self._backend.close()


class Hash:
    """The model's random words per second, when a GPU makes nothing else."""

    digest = None

    def measure(self) -> dict[str, float]:
        """Return them."""
        return {"hashes_per_s": hash_ceiling("cuda")}

    def close(self) -> None:
        """Nothing is held."""


class Memory:
    """The peak of device memory over opening, reset and run."""

    device, name, digest = "cuda", "CUDA engine", None

    def __init__(self, markets: int = 16384) -> None:
        self._markets = markets

    def measure(self) -> dict[str, float]:
        """Return its bytes; 0 without a GPU."""
        peak = PeakMemory(self) if ON_GPU else None
        simulator = Simulator(MarketConfig(), self._markets, engine="cuda" if ON_GPU else "cpu")
        simulator.reset(seed=1)
        simulator.run(100, progress=False)
        return {"bytes": (peak.bytes() or 0) if peak else 0}

    def close(self) -> None:
        """Nothing is held."""


def _reward(before: Any, after: Any) -> torch.Tensor:
    """Return a reward of four operations."""
    return (after.value - before.value) - 0.1 * after.inventory


@ks.policy(half_spread=2, skew=8)
def _maker(market, slot, own, draw):
    """Quotes around the mid, as a program."""
    shift = slot.inventory // own.skew
    low = (market.mid2 >> 1) - own.half_spread - shift
    return ks.quote(low, slot.max_qty, low + 2 * own.half_spread, slot.max_qty)


@ks.policy(threshold=2)
def _trader(market, slot, own, draw):
    """Trades against the last move, as a program."""
    if slot.mid_change(0) > own.threshold:
        return ks.quote(ask=market.best_bid, ask_qty=slot.max_qty)
    return ks.quote(bid=market.best_ask, bid_qty=slot.max_qty) if slot.mid_change(0) < -own.threshold else None


def _quoting(width: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a policy of one operation, whose actions have so many numbers."""
    return lambda seen: torch.tanh(seen[:, :width])


FUNCTIONS: dict[str, dict[str, Any]] = {  # settings of environments with functions of torch tensors, and programs
    "reward": {"reward": _reward},
    "opponents": {"opponents": {"maker": [_quoting(4)], "trader": [[_quoting(2)], [_quoting(2)]]}},  # three slots
    "programs": {"opponents": {"maker": [_maker], "trader": [[_trader], [_trader]]}},
}


class Steps:
    """Steps of environments in a CUDA graph or from Python, of markets whose parameters differ unless they are `alike`.

    `drawn`: new actions are drawn in each step; else actions that were drawn before come in turns. `replays` of the
    graph are timed together, or as many as play so many `episodes`. `agents` None are the preset's own; `fields` are
    further ones of the markets. `functions` are torch functions that a step calls, or programs, of `FUNCTIONS`.
    """

    def __init__(
        self,
        task: str = "MarketMaking",
        markets: int = 1024,
        preset: str = "trading",
        agents: int | None = 64,
        graph: bool = True,
        copy: bool = False,
        drawn: bool = False,
        own: bool = False,
        lanes: int | None = None,
        learners: dict[str, int] | None = None,
        device: str = "cuda",
        threads: int = 0,
        fields: dict[str, Any] | None = None,
        alike: bool = False,
        turns: int = 1,
        replays: int = 1,
        episodes: int = 0,
        functions: str = "",
    ) -> None:
        engine = device if ON_GPU else "cpu"
        config = MarketConfig.preset(preset, **_number(agents), **(fields or {}))
        if not alike:
            spread = np.random.default_rng(0).uniform(0.9, 1.1, (2, markets))
            config = config.replace(
                market_order_prob=config.market_order_prob * spread[0], walk_prob=config.walk_prob * spread[1]
            )
        self._envs: Any
        common: dict[str, Any] = {"config": config, "engine": engine, "copy": copy}
        if learners:
            self._envs = BatchedParallelEnv(markets, learners, **common)
        else:
            common |= {"output": "torch"} | (FUNCTIONS[functions] if functions else {})
            envs: Any = gym.make_vec(f"KineticSim/{task}-v0", num_envs=markets, **common)
            self._envs = envs.unwrapped
        simulator = self._envs.core.simulator
        in_use: Any = simulator.engine
        if lanes is not None and engine == "cuda":  # 64 order bins hold the preset's 30 ticks, and pay with more agents
            in_use.force = {"KS_LANES": lanes, "KS_BINS": 64 if (agents or 0) > 64 else 0}
        if own or lanes is not None:
            simulator.specialise()
        self._envs.reset(seed=0)
        torch.manual_seed(0)
        self._actions = [self._first_actions(learners) for _ in range(turns)]
        in_row = episodes * int(self._envs.core.task.horizon)  # of which a graph's replays play so many at least
        self._replays, self._turn = -(-in_row // STEPS_IN_GRAPH) or replays, 0
        self._markets, self._drawn, self._threads = markets, drawn, threads
        self._on_gpu, self._graph = engine == "cuda", None
        results = [self._step() for _ in range(3)][-1]
        self.digest = digest(part for result in results[:2] for part in (result.values() if learners else [result]))
        if graph and self._on_gpu:
            side = torch.cuda.Stream()  # a step beside, as torch asks where functions of its own are captured
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                self._step()
            torch.cuda.current_stream().wait_stream(side)
            torch.cuda.synchronize()
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):
                for _ in range(STEPS_IN_GRAPH):
                    self._step()

    def _first_actions(self, learners: dict[str, int] | None) -> Any:
        if not learners:
            shape = self._envs.num_envs, *self._envs.single_action_space.shape
            return (torch.rand(shape) * 2 - 1).to(self._envs.device)
        spaces, names = self._envs.single_action_spaces, self._envs.group_map
        shapes = {role: (self._envs.num_envs, len(names[role]), *space.shape) for role, space in spaces.items()}
        return {role: (torch.rand(shape) * 2 - 1).to(self._envs.device) for role, shape in shapes.items()}

    def _step(self) -> Any:
        actions = self._actions[self._turn % len(self._actions)]
        self._turn += 1
        if self._drawn:
            actions.uniform_(-1.0, 1.0)
        return self._envs.step(actions)

    def _run(self) -> None:
        if self._graph:
            for _ in range(self._replays):
                self._graph.replay()
            return
        for _ in range(STEPS_FROM_PYTHON):
            self._step()
        if self._on_gpu:
            torch.cuda.synchronize()

    def measure(self) -> dict[str, float]:
        """Return steps per second of all markets together, and microseconds per step."""
        threads = torch.get_num_threads()
        torch.set_num_threads(self._threads or threads)
        taken = shortest(self._run, self._graph is not None)
        torch.set_num_threads(threads)
        taken /= STEPS_IN_GRAPH * self._replays if self._graph else STEPS_FROM_PYTHON
        return {"steps_per_s": self._markets / taken, "us_per_step": taken * 1e6}

    def close(self) -> None:
        """Let go of graph and markets."""
        self._graph = None
        self._envs.close()
