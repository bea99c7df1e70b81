"""Whole episodes of policies on held-out seeds: `evaluate`, the environments it takes, and a search over parameters."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, overload

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode

from kineticsim_env.agents.policies import ProgramPolicy
from kineticsim_env.envs import vector
from kineticsim_env.envs.batched import BatchedParallelEnv
from kineticsim_env.envs.core import EnvCore
from kineticsim_env.envs.vector import MarketVectorEnv
from kineticsim_env.evaluation.accounts import settle
from kineticsim_env.evaluation.inside import playing, programs_in
from kineticsim_env.evaluation.players import ManyPlayers, OnePlayer, standing_still
from kineticsim_env.evaluation.results import Evaluation
from kineticsim_env.evaluation.tallies import Tally
from kineticsim_env.policies import Policy
from kineticsim_env.runtime.roles import SPECS
from kineticsim_env.runtime.values import check_callable, check_choice, check_dict, check_progress, progress_bar, show
from kineticsim_env.tasks import TASKS

HELD_OUT_SEED = 2**62  # run r is evaluated from HELD_OUT_SEED + run_seed(r), and trains from run_seed(r)
HELD_OUT_WARM_SEED = 2**61 + 2**60  # warm starts that no training run has seen
ENVIRONMENTS: dict[str, type[MarketVectorEnv]] = {name: getattr(vector, f"{name}VectorEnv") for name in TASKS}
_DEFAULTS: dict[str, Any] = {"warm_seed": HELD_OUT_WARM_SEED}
_FIXED: dict[str, Any] = {"autoreset_mode": "DISABLED", "stagger": False, "copy": False}
_TENSORS: dict[str, Any] = {"output": "torch"}
_LOOKS = 16  # decisions after which a GPU is asked whether all episodes have ended; those beyond count nothing


def evaluation_env(num_envs: int, task: str = "MarketMaking", **kwargs: Any) -> MarketVectorEnv:
    """Make an environment for `evaluate`: torch output, whole episodes from the start, warm starts of its own.

    Args:
        num_envs: M, one episode each.
        task: One of `kineticsim_env.tasks.TASKS`: `"MarketMaking"`, `"Execution"` or `"Trading"`.
        **kwargs: As in `MarketVectorEnv`; the learner's own, so that everyone trades in its market.
    """
    check_choice("task", task, ENVIRONMENTS)
    return ENVIRONMENTS[task](num_envs=num_envs, **{**_DEFAULTS, **kwargs, **_FIXED, **_TENSORS})


def evaluation_parallel_env(
    num_envs: int, learners: Mapping[str, int] | None = None, **kwargs: Any
) -> BatchedParallelEnv:
    """Make an environment of many learners for `evaluate`, in the same way.

    Args:
        num_envs: M, one episode each.
        learners: How many learners of each role, as in `parallel_env`.
        **kwargs: As in `BatchedParallelEnv`.
    """
    return BatchedParallelEnv(num_envs, learners, **{**_DEFAULTS, **kwargs, **_FIXED})


@overload
def evaluate(
    policy: Policy | ProgramPolicy, envs: MarketVectorEnv | gym.vector.VectorEnv, seed: Any = ...
) -> Evaluation: ...


@overload
def evaluate(
    policy: Mapping[str, Policy | ProgramPolicy], envs: BatchedParallelEnv, seed: Any = ...
) -> dict[str, Evaluation]: ...


@torch.no_grad()
def evaluate(policy: Any, envs: Any, seed: Any = HELD_OUT_SEED) -> Any:
    """Play one episode in every market, unwind, and count.

    An episode ends at the horizon, or where it terminates; its inventory is unwound from there. What an executor or a
    noise learner has traded is not unwound. Where many learn, those whose episodes end with the same decision are
    unwound together; before their market's last in a copy of it, in which the others have no quotes. A market whose
    episode has ended stands until all have: a policy sees its last observation again, and what it does there is not
    looked at.

    Accounts and rewards are the environment's own, whatever wrappers make of them. Running statistics of wrappers
    (`update_running_mean`) stand still meanwhile.

    Args:
        policy: Maps observations `[M, F]` to actions. If it has a `reset`, it is told where episodes begin, see
            `RecurrentPolicy`. With many learners a dict of policies: by role, called with `[M * n, F]`, the n learners
            of a market next to each other, or by the learner's name (`"maker_0"`), called with `[M, F]`. Programs
            (`ks.policy`), and scripted makers that have one, play inside the launch of a step, where nothing stands
            between that they would pass by: no wrappers, no functions of yours. Makers' results are the same.
        envs: From `evaluation_env`, perhaps within wrappers; or from `evaluation_parallel_env`.
        seed: Of the episodes; market m gets `seed + m`, or its own of int64 `[M]`.

    Returns:
        An `Evaluation`; with many learners a dict of them by the learner's name. Learners of one market are no
        independent samples.

    Raises:
        TypeError, ValueError: Naming the argument; the environment has to be one of `evaluation_env`.
    """
    base = _check_envs(envs)
    many = isinstance(base, BatchedParallelEnv)
    policy, programs = programs_in(policy, envs, base)
    players = ManyPlayers(policy, base) if many else OnePlayer(policy)
    with standing_still(envs, base.core), playing(base.core, programs):
        counted = [part.cpu().numpy() for part in _play(players, envs, base.core, seed)]
    results = [Evaluation(*(part[:, slot].copy() for part in counted)) for slot in range(base.core.learners)]
    return dict(zip(base.possible_agents, results, strict=True)) if many else results[0]


def _play(players: OnePlayer | ManyPlayers, envs: Any, core: EnvCore, seed: int) -> tuple[torch.Tensor, ...]:
    """Play an episode in every market; returns the fields of `Evaluation`, float64 `[M, K]` each."""
    simulator, task, tensors, longest = core.simulator, core.task, core.tensors, core.live_task.longest
    may_lose = getattr(task, "max_loss", None) is not None
    has_block = any(SPECS[role].has_block for role in core.roles)
    lengths_differ = "horizon" in core.live_task.values.names or task.decides_at_events
    may_end = lengths_differ or has_block or may_lose or core.own is not None
    observation, _ = envs.reset(seed=seed)
    players.begin(torch.ones_like(tensors["done"]))
    pnl = torch.zeros_like(simulator.money)
    total, left, tally = torch.zeros_like(pnl), torch.zeros_like(pnl), Tally(core, ends=may_end)
    alive = torch.ones_like(pnl, dtype=torch.bool)
    alive[:, core.learners :] = False  # opponents play, but nobody asks what they make
    open_ = alive.clone()  # who is not settled yet
    for decision in range(1, task.horizon * longest + 1):
        # On a GPU each operation costs a launch, and each look at a number a wait.
        observation = envs.step(players.act(observation))[0]
        tally.note(alive)
        if not may_end:
            total += tensors["reward"]
            continue
        total += tensors["reward"] * alive
        alive &= ~tensors["over"]
        if core.host or decision % _LOOKS == 0:
            moves = alive & (tensors["decision_events"][:, None] > 0) if task.decides_at_events else alive
            if not bool(moves.any()):
                break  # or all that live have stopped, which `settle` says
        if core.learners > 1:
            early = open_ & ~alive & ~tensors["done"][:, None]  # whose market goes on; one that is done stands as it is
            if bool(early.any()):
                left = torch.where(early, simulator.inventory.double(), left)
                pnl = torch.where(early, settle(core, early, total, simulator.branch), pnl)
                open_ &= ~early
    left = torch.where(open_, simulator.inventory.double(), left)
    pnl = torch.where(open_, settle(core, open_, total, lambda: simulator), pnl)
    tally.count()
    lived = tally.lived.double()
    decisions = lived / longest
    fallen, value = tally.drawdown.double() / 2000.0, tally.value.double() / 2.0  # a whole number alone becomes float32
    return (
        *(pnl, total, tally.units / decisions, tally.held / lived, left),
        *(fallen, tally.offered / decisions, value, tally.at_limit / lived),
    )


def _check_envs(envs: Any) -> MarketVectorEnv | BatchedParallelEnv:
    """Return the environment within wrappers; refuse one whose accounts are reset early, or not of whole episodes."""
    base = envs.unwrapped if isinstance(envs, gym.vector.VectorEnv) else envs
    fits = isinstance(base, (MarketVectorEnv, BatchedParallelEnv)) and base.autoreset_mode is AutoresetMode.DISABLED
    if not fits or getattr(base, "output", "torch") != "torch" or base.core.settings.stagger:
        raise ValueError(
            f"envs: expected what evaluation_env returns (DISABLED, torch output, no stagger), got {show(envs)}"
        )
    return base


def grid_search(
    make: Callable[..., Policy],
    grid: Mapping[str, Sequence[Any]],
    envs: MarketVectorEnv | gym.vector.VectorEnv,
    seed: int = 0,
    progress: bool | None = True,
) -> tuple[dict[str, Any], list[tuple[dict[str, Any], float, float]]]:
    """Find the parameters of a scripted policy with the best liquidated PnL on training seeds.

    Args:
        make: Called as `make(task, **parameters)`.
        grid: The values to try of each parameter.
        envs: From `evaluation_env`, perhaps within wrappers.
        seed: Training seeds begin here.
        progress: True or False shows or hides the bar; None shows it after two seconds.

    Returns:
        The best parameters, and every (parameters, mean PnL, half width of its 95% interval), best first.
    """
    check_callable("make", make, "a function of a task and parameters that returns a policy")
    _check_grid(grid)
    base = _check_envs(envs)
    if isinstance(base, BatchedParallelEnv):
        raise TypeError("envs: expected what evaluation_env returns, got an environment of many learners")
    progress = check_progress(progress)
    rows = []
    combinations = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    name = getattr(make, "__name__", "policy")
    with progress_bar(progress, f"grid search {name}", "it", len(combinations), leave=False) as bar:
        for parameters in combinations:
            result = evaluate(make(base.core.task, **parameters), envs, seed)
            rows.append((parameters, *result.pnl_interval()))
            bar.update()
    rows.sort(key=lambda row: -row[1])
    return rows[0][0], rows


def _check_grid(grid: Any) -> None:
    """Refuse what is not at least one value for each of some parameters."""
    for key, values in check_dict("grid", grid, "a dict such as {'half_spread': [2, 3]}").items():
        if not isinstance(key, str):
            raise TypeError(f"grid: expected names of parameters, got the key {show(key)}")
        rows = isinstance(values, np.ndarray) and values.ndim == 1
        if not rows and (not isinstance(values, Sequence) or isinstance(values, (str, bytes, bytearray, memoryview))):
            raise TypeError(f"grid[{key!r}]: expected a sequence of values, got {show(values)}")
        if not len(values):
            raise ValueError(f"grid[{key!r}]: expected at least one, got no values")
