"""Small random markets and environments, each opened on the engine under test and on the NumPy oracle.

There are few different ones, numbered, as opening one takes longer than a case; every case begins with a reset.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch

import kineticsim_env as ks
from kineticsim_env.config import CLASSES
from kineticsim_env.envs.core import EnvCore
from kineticsim_env.evaluation.episodes import ENVIRONMENTS
from kineticsim_env.runtime import layout
from kineticsim_env.tasks import TASKS
from kineticsim_env.tasks.base import ROLES, Task, settings_of
from scripts.fuzz.kinds import Failure

DIFFERENT = 10  # markets or environments of each sort
SERIES = (*layout.SERIES, *layout.FURTHER_SERIES)
MODES = ("SAME_STEP", "NEXT_STEP", "DISABLED")
_open: dict[tuple, Any] = {}


class Pair:
    """The same thing on two engines: `under_test`, and `oracle` on NumPy."""

    def __init__(self, make: Callable[[str], Any], engine: str) -> None:
        """Open both."""
        self.under_test, self.oracle = make(engine), make("numpy")
        self.engine = engine

    @property
    def both(self) -> tuple[Any, Any]:
        """Both, the one under test first."""
        return self.under_test, self.oracle

    def state(self) -> dict[str, torch.Tensor]:
        """Return copies of all tensors of the one under test."""
        return copies(self.under_test)

    def check_equal(self, when: str) -> None:
        """Compare every tensor, bit for bit."""
        compare(tensors_of(self.under_test), tensors_of(self.oracle), when)


def forget() -> None:
    """Open all anew from now on."""
    _open.clear()


@contextlib.contextmanager
def aside() -> Generator[None]:
    """Play with an empty pool, and have the present one again afterwards."""
    kept = dict(_open)
    _open.clear()
    try:
        yield
    finally:
        _open.clear()
        _open.update(kept)


def forget_pair(pair: Pair) -> None:
    """Open this one anew the next time: something may have gone wrong with it."""
    for key in [key for key, other in _open.items() if other is pair]:
        del _open[key]


@contextlib.contextmanager
def forgetting(pair: Pair, told: Sequence[str] = (), *key: str) -> Generator[None]:
    """Open a pair anew the next time where a check fails, and say what was done before it."""
    try:
        yield
    except Failure as failure:
        forget_pair(pair)
        if not told:
            raise
        raise Failure(f"{'; '.join(told)}, then {failure}", key=(*key, *failure.key)) from failure


def simulator_of(thing: Any) -> ks.Simulator:
    """Return the markets of an environment, or the simulator itself."""
    return thing if isinstance(thing, ks.Simulator) else thing.core.simulator


def tensors_of(thing: Any) -> dict[str, torch.Tensor]:
    """Return the live tensors of a simulator or an environment."""
    if isinstance(thing, ks.Simulator):
        return {**thing.tensors, "parameters": thing.engine.parameters().expand(thing.num_markets, -1)}
    core: EnvCore = thing if isinstance(thing, EnvCore) else getattr(thing, "unwrapped", thing).core
    return {**core.tensors, "fills": core.fills, **tensors_of(core.simulator)}


def copies(thing: Any) -> dict[str, torch.Tensor]:
    """Return copies of the live tensors."""
    return {name: tensor.clone() for name, tensor in tensors_of(thing).items()}


def compare(got: Mapping[str, Any], wanted: Mapping[str, Any], when: str) -> None:
    """Raise for the first tensor that differs in a bit."""
    if got.keys() != wanted.keys():
        raise Failure(f"{when}: names {sorted(got)} are not {sorted(wanted)}", key=(when.split(":")[0], "names"))
    for name in wanted:
        if not same(got[name], wanted[name]):
            what = f"{when}: {name} differs: {_shown(got[name])} is not {_shown(wanted[name])}"
            raise Failure(what, key=(when.split("(")[0], when.rsplit(")", 1)[-1], "differs", name))


def same(one: Any, other: Any) -> bool:
    """Compare values by bits: tensors, arrays, numbers, and dicts and tuples of these."""
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, torch.Tensor):
        one, other = one.detach().cpu().numpy(), other.detach().cpu().numpy()
    one, other = np.asarray(one), np.asarray(other)
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


def _shown(value: Any) -> str:
    text = str(value.tolist() if hasattr(value, "tolist") else value)
    return text if len(text) < 160 else f"{text[:160]}..."


# Random things to open ------------------------------------------------------------------------------------------------


def random_config(rng: np.random.Generator, **changes: Any) -> ks.MarketConfig:
    """Return a small market with any options, and perhaps with levers, with regimes, or on the clock."""
    pick = rng.choice
    weights = rng.integers(1, 5, 4)
    levels = int(pick([8, 16, 32, 64]))
    fields: dict[str, Any] = dict(zip(CLASSES, (weights / weights.sum()).tolist(), strict=True))
    window = int(pick([0, 1, 3]))
    fields |= dict(
        num_levels=levels,
        num_agents=int(pick([12, 20, 33, 33, 33, 6000])),  # the last give every market to a thread of its own
        init_price=int(rng.integers(1, levels - 1)),
        init_depth=int(pick([0, 1, 8])),
        max_order_qty=int(pick([1, 4, 100])),
        noise_spread=int(pick([0, 3, 12])),
        market_order_prob=float(pick([0.0, 0.1, 1.0])),
        maker_half_spread=int(pick([0, 1, 8])),
        cancel_prob=float(pick([0.0, 0.4, 1.0])),
        window=window,
        walk_prob=0.3 if window else 0.0,
        jump_prob=0.1 if window else 0.0,
        jump_size=int(pick([0, 4, 50])),
        tie=str(pick(["lowest", "mid"])),
        residue=str(pick(["rest", "cancel"])),
        fee=int(pick([0, 7])),
    )
    if rng.random() < 0.4:
        fields |= random_levers(rng)
    if rng.random() < 0.25:
        fields |= random_regimes(rng, window > 0)
    if rng.random() < 0.5:
        fields |= random_clock(rng)
    return ks.MarketConfig(**{**fields, **changes})


def random_levers(rng: np.random.Generator) -> dict[str, Any]:
    """Return values of all levers that any market may have; each is off in some draws."""
    pick = rng.choice
    return dict(
        rounding=str(pick(["even", "coin"])),
        reference=str(pick(["mid", "mid", "fundamental"])),
        taker_offset=int(pick([1, 0, 3, 32767])),
        tax=int(pick([0, 1, 40])),
        collar=int(pick([0, 1, 6])),
        tick_size=int(pick([1, 1, 3, 8])),
        fee=int(pick([0, -9, 7])),
    )


def random_regimes(rng: np.random.Generator, moves: bool) -> dict[str, Any]:
    """Return regimes, of which some change much; `moves`: the fundamental may move."""
    changes: list[dict[str, Any]] = [{}, {"noise_spread": 20, "max_order_qty": 2}]
    changes.append({"cancel_prob": 0.9, "market_order_prob": 0.9, "taker_offset": 2})
    changes += [{"walk_prob": 1.0, "jump_prob": 0.5, "jump_size": 30}] * moves
    chosen = [changes[int(i)] for i in rng.integers(len(changes), size=int(rng.integers(1, 4)))]
    return {"regimes": chosen, "regime_switch_prob": float(rng.choice([0.0, 0.3, 1.0]))}


def random_clock(rng: np.random.Generator) -> dict[str, Any]:
    """Return the fields of a clock of few events, and of either mechanism."""
    pick = rng.choice
    fields: dict[str, Any] = {
        "arrivals": "clock",
        "interval": int(pick([1, 7, 20])),
        "beat": int(pick([1, 5, 20, 2**30])),
    }
    if rng.random() < 0.6:
        latency, fee = int(pick([0, 0, 3, 2**31 - 1])), int(pick([0, -4, 50]))
        fields |= {"mechanism": "continuous", "quote_latency": latency, "taker_fee": fee}
    return fields


def _arguments(rng: np.random.Generator, kind: type[Task]) -> dict[str, Any]:
    """Return a market and small settings of a task."""
    pick = rng.choice
    found: dict[str, Any] = {
        "config": random_config(rng),
        "horizon": int(pick([1, 2, 4, 9])),
        "action_type": str(pick(["continuous", "discrete"])),
        "max_offset": int(pick([1, 4, 10])),
        "max_qty": int(pick([1, 8])),
        "reward_scale": float(pick([1.0, 10.0])),
        "warmup": 1,
        "bank_size": int(pick([1, 2])),
    }
    of_blocks: dict[str, Any] = {"block_qty": 3, "forced_qty": 1, "max_target": 5}
    return found | {name: value for name, value in of_blocks.items() if name in settings_of(kind)}


def learners(rng: np.random.Generator) -> dict[str, int]:
    """Return a few learners of some roles."""
    roles = [str(role) for role in rng.permutation(ROLES)[: int(rng.integers(1, 4))]]
    return {role: int(rng.integers(1, 3)) if role == "executor" else 1 for role in roles}


def _flags(rng: np.random.Generator, *names: str) -> dict[str, Any]:
    return {name: bool(rng.integers(2)) for name in names}


def _simulator(rng: np.random.Generator, **given: Any) -> ks.Simulator:
    markets, slots = int(rng.integers(1, 6)), [None, "maker", "noise"][: int(rng.integers(1, 4))]
    return ks.Simulator(random_config(rng), markets, slots=slots, **given)


def _vector(rng: np.random.Generator, **given: Any) -> Any:
    task, markets = str(rng.choice(list(ENVIRONMENTS))), int(rng.integers(1, 6))
    some: dict[str, Any] = _arguments(rng, TASKS[task]) | _flags(rng, "copy", "stagger", "validate")
    some |= {"output": str(rng.choice(["numpy", "torch"])), "auctions_per_step": int(rng.choice([1, 1, 2]))}
    return ENVIRONMENTS[task](markets, **(some | given))


def _single(rng: np.random.Generator, **given: Any) -> Any:
    task = str(rng.choice(list(ENVIRONMENTS)))
    return gym.make(f"KineticSim/{task}-v0", **_arguments(rng, TASKS[task]), **given).unwrapped


def _parallel(rng: np.random.Generator, **given: Any) -> Any:
    return ks.parallel_env(learners(rng), **_arguments(rng, ks.ManyLearnersTask), **given)


def _batched(rng: np.random.Generator, **given: Any) -> Any:
    some: dict[str, Any] = _arguments(rng, ks.ManyLearnersTask) | _flags(rng, "copy", "stagger")
    return ks.BatchedParallelEnv(
        int(rng.integers(1, 6)), learners(rng), autoreset_mode=str(rng.choice(MODES)), **(some | given)
    )


_MAKERS: dict[str, Callable[..., Any]] = {
    "simulator": _simulator,
    "vector": _vector,
    "single": _single,
    "parallel": _parallel,
    "batched": _batched,
}


def pair_of(sort: str, number: int, engine: str, **given: Any) -> Pair:
    """Return one of the pairs of a sort, from the pool or opened now; arguments may be given."""
    seed = [number, list(_MAKERS).index(sort) + 1]
    key = (sort, number, engine, str(given))
    if key not in _open:
        _open[key] = Pair(lambda name: _MAKERS[sort](np.random.default_rng(seed), engine=name, **given), engine)
    return _open[key]


def random_env(number: int, engine: str) -> Pair:
    """Return one of the pairs of vector environments with scenarios."""
    drawn = {"randomise": RANDOMISE[number % len(RANDOMISE)], "num_scenarios": 2 + number % 3}
    return pair_of("vector", number, engine, autoreset_mode=MODES[number % 3], **drawn)


def any_pair(rng: np.random.Generator, engine: str) -> Pair:
    """Return a pair of simulators or of environments of any sort."""
    number = int(rng.integers(DIFFERENT))
    sort = str(rng.choice(["simulator", "vector", "random", "batched", "parallel", "single"], p=_ODDS))
    if sort == "random":
        return random_env(number, engine)
    mode = {"autoreset_mode": str(rng.choice(MODES))} if sort == "vector" else {}
    return pair_of(sort, number, engine, **mode)


_ODDS = [4 / 12, 2 / 12, 2 / 12, 2 / 12, 1 / 12, 1 / 12]
RANDOMISE: tuple[dict[str, Any], ...] = (
    {"fee": (0, 9), "noise_spread": (0, 8)},
    {"market_order_prob": [0.0, 0.4, 1.0], "max_order_qty": [1, 4, 100]},
    {"cancel_prob": (0.0, 1.0), "init_depth": (0, 8), "tie": ["lowest", "mid"]},
    {"noise": (0.2, 0.5), "num_agents": (12, 30), "residue": ["rest", "cancel"]},
    {
        "rounding": ["even", "coin"],
        "tick_size": [1, 3, 8],
        "tax": (0, 3),
        "collar": {"values": [0, 2]},
        "taker_offset": (0, 4),
    },
)
