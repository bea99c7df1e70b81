"""`BaseMarketEnv`: what every environment offers beyond its library's interface: its markets, scenarios, saved state.

`vector`, `single`, `parallel` and `batched` derive from it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Self

import gymnasium as gym
import numpy as np
import torch

from kineticsim_env.config import MarketConfig
from kineticsim_env.envs.copies import clone_of
from kineticsim_env.envs.core import EnvCore
from kineticsim_env.envs.forks import Fork
from kineticsim_env.envs.futures import check_draws
from kineticsim_env.envs.state_dict import load_state, state_of
from kineticsim_env.render import Viewer
from kineticsim_env.runtime.calls import CallLock, Uninterrupted
from kineticsim_env.runtime.checks import check_seeds
from kineticsim_env.runtime.values import check_choice, check_count, check_dict, is_whole, show
from kineticsim_env.simulator import Simulator
from kineticsim_env.tasks.base import Task
from kineticsim_env.tasks.many_learners import check_replaceable


class BaseMarketEnv:
    """Base of the environments: hands on what users need of the core.

    Attributes:
        core: The markets with their learners' slots, and the task.
    """

    core: EnvCore
    render_mode: str | None = None
    _viewer: Viewer | None = None
    _was_reset = False

    @property
    def _calls(self) -> CallLock:
        return self.core._calls

    @property
    def simulator(self) -> Simulator:
        """The markets, live: `simulator.inventory`, `simulator.cash`, `simulator.mid2` and so on, `[M, K]` per slot."""
        return self.core.simulator

    @property
    def device(self) -> torch.device:
        """Where the markets are, and tensors that come from them."""
        return self.core.device

    @property
    def was_reset(self) -> bool:
        """Whether there was a first reset."""
        return self._was_reset

    @property
    def scenario(self) -> torch.Tensor:
        """The scenario that each market plays, int32 `[M]`, live; 0 without `randomise`."""
        return self.core.tensors["scenario"]

    def set_scenarios(self, randomise: Any) -> None:
        """Replace the scenarios, for episodes that begin from now on: a curriculum's hook. Weights are uniform again.

        A captured CUDA graph sees the new ones only if they are as many and fit its kernel; capture anew to be sure.

        Args:
            randomise: As the constructor's argument.
        """
        self.core.live_task.set_scenarios(randomise)

    def set_scenario_weights(self, weights: Any) -> None:
        """Draw scenarios by weights, from each market's next episode on; running episodes keep theirs.

        A captured CUDA graph and a compiled program see them too. The weights are rounded so that a scenario's
        probability is within 2^-32 of its share; docs/environment.md has the rule. They are part of saved states and
        clones. The call waits for a GPU.

        Args:
            weights: `[S]`, finite numbers from 0, not all 0, NumPy or torch, on any device; a scenario of weight 0 is
                never drawn. None: all are as likely.

        Raises:
            TypeError, ValueError: Naming what came and what is allowed; nothing has changed then.
        """
        self.core.live_task.set_scenario_weights(weights)

    @property
    def scenario_weights(self) -> torch.Tensor | None:
        """With which probability an episode draws each scenario, float64 `[S]`; None without `randomise`."""
        return self.core.live_task.scenario_weights

    def set_task(self, **changes: Any) -> None:
        """Change rewards and penalties from the next step on; a captured CUDA graph keeps those it was captured with.

        Args:
            **changes: Fields of the task that spaces, warm starts and the length of episodes do not depend on.
        """
        self.core.live_task.set_task(**changes)

    def check_errors(self) -> None:
        """Raise `MarketError` if an error word is set, and clear the words. Synchronises on CUDA."""
        self.core.check_errors()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return copies of the whole state."""
        with self._calls:
            return state_of(self.core)

    def load_state_dict(self, saved: Mapping[str, torch.Tensor], strict: bool = True) -> None:
        """Take over a state of a like environment, from any engine; it goes on bit for bit.

        Args:
            saved: What `state_dict` returned; it has all that is needed, its scenarios too.
            strict: Refuse a state of another market, task or setting. False takes it if it has the same shapes and
                every number is in its range, and warns of each difference.

        Raises:
            TypeError, ValueError: Naming what came and what is allowed; the present state is untouched then.
        """
        with self._calls, Uninterrupted():
            load_state(self.core, saved, strict)
            self._was_loaded()

    @torch.inference_mode(False)  # tensors made in inference mode cannot be written to outside of it
    def clone(self, future_seed: Any = None) -> Self:
        """Return an independent copy: the same actions give the same bits in both, and changing one leaves the other.

        It has the state of the markets and their random numbers, the settings, the scenarios and warm starts, all in
        memory of its own, and the generators of `np_random` and of the spaces. It draws no pictures. Functions of the
        user's are the same objects in both. Waits for a GPU.

        Args:
            future_seed: None is the same future. An int s is another one: market m has the random words of the seed
                s + m from now on, in later episodes too; or one seed per market. All that has been drawn stays as it
                is: the scenario, sides and targets of learners, opponents, populations. A seed of its own is the same
                future again. docs/planning.md says what planning is with either.

        Raises:
            TypeError, ValueError: Naming what came and what is allowed. Where four noise learners or more have large
                targets, hardly any seed would draw the same ones.
            MarketError: If an error word was set since the last look.
            gymnasium.error.ClosedEnvironmentError: After `close`.
        """
        with self._calls:
            clone = self._twin()
            clone.core = clone_of(self.core, future_seed)
            clone._was_cloned()
        return clone

    def _twin(self) -> Self:
        """Return a copy with generators of its own, whose core is to be replaced."""
        made = copy.copy(self)
        vars(made).update(copy.deepcopy({name: value for name, value in vars(self).items() if _draws(value)}))
        vars(made).pop("_forks", None)
        return made

    def fork(self, market: int, n: int, future_seeds: Any = None) -> Any:
        """Return an environment of n markets, each of which is one market of this one as it is now.

        The first call with an n makes it, in milliseconds; it is kept, and each later call with the same n writes it
        over, in microseconds, whatever was done to it. So use a fork before the next one of as many rows, or keep its
        `clone()`. It is made anew where settings have changed since, or where another market is forked and markets
        have settings or populations of their own.

        Its rows begin with what the market has: all that a saved state has, and all that its episode has drawn.
        Opponents with a memory go on from what their `of_rows` returns, see `RecurrentPolicy`; one without it is
        refused, as it would have forgotten the episode. With `autoreset_mode` DISABLED, as in environments of one
        market, rows whose episodes have ended stand, with rewards of 0.

        On a GPU nothing waits for it, but in the first call, with `validate`, and with several noise learners.

        Args:
            market: Its number, 0 in an environment of one market.
            n: How many rows.
            future_seeds: None: all go on as the market itself will. An int s is another future for each row: row i has
                the random words of the seed s + i from now on, as with `clone(future_seed=...)`; or one seed per row.

        Returns:
            An environment of the same class. One market of `gymnasium.make` becomes rows of the task's vector
            environment, with NumPy output, and one of `parallel_env` a `BatchedParallelEnv`.

        Raises:
            TypeError, ValueError: Naming the argument, what came and what is allowed; the fork stays as it was then.
            MarketError: If an error word was set since the last look, in the first call.
            gymnasium.error.ResetNeeded: Before the first reset.
            gymnasium.error.ClosedEnvironmentError: After `close`.
        """
        core = self.core
        with self._calls:
            core._check_open("fork")
            if not self._was_reset:
                raise gym.error.ResetNeeded("fork: the environment was never reset; call reset() first")
            market = check_count("market", market, 0, core.simulator.num_markets - 1)
            n, seeds = check_count("n", n, 1), None
            if future_seeds is not None:
                seeds = check_seeds(future_seeds, n, core.device, "future_seeds")
                check_draws("future_seeds", core)
            if core.settings.validate:
                core.check_errors()
            forks = vars(self).setdefault("_forks", {})
            if n not in forks or not forks[n].fits(core, market):
                forks[n] = Fork(core, market, n, self._as_rows)
            forks[n].refill(market, seeds)
            return forks[n].envs

    def _as_rows(self, core: EnvCore) -> Any:
        """Return the environment of many markets around a core like this one's, after a reset."""
        raise NotImplementedError

    def _was_cloned(self) -> None:
        """Follow a core that is a clone, after the attributes were copied; a clone draws no pictures."""
        self._viewer = self.render_mode = None

    def _was_loaded(self) -> None:
        """Follow a core that has taken over a state."""
        self._was_reset = True

    def _close(self) -> None:
        """Close the window, if there is one, and raise what is left in the error words."""
        if self._viewer:
            self._viewer.close()
        self.core.close()


def _draws(value: Any) -> bool:
    """Return whether an attribute is a generator, or something that holds one."""
    values = value.values() if isinstance(value, dict) else (value,)
    return any(isinstance(one, (gym.Space, np.random.Generator)) for one in values)


def check_role(task: type[Task], replace: Any, config: MarketConfig) -> str:
    """Return the role of a task's learner, which takes the place of `replace`: a class of agents that has the role."""
    assert task.role is not None
    assert task.replaceable is not None
    added = (kind.name for kind in config.agents if kind.role == task.role)
    check_choice("replace", replace, (task.replaceable, *added), optional=True)
    check_replaceable("replace", f"{replace!r}, one agent", 1, 0, replace, config)
    return task.role


def generator_seed(seed: Any) -> int | None:
    """Return what `np_random` is seeded with beside markets; Gymnasium's has no negative seeds, markets do."""
    return int(seed) % 2**64 if is_whole(seed) else None


def check_options(options: Any, *allowed: str) -> tuple[Any, ...]:
    """Return the options of a reset by the names that are allowed, None where there are none."""
    if options is None:
        return (None,) * len(allowed)
    names = " and ".join(map(repr, allowed))
    given = check_dict("options", options, f"None, or a dict with {names}")
    unknown = set(given) - set(allowed)
    if unknown:
        raise ValueError(f"options: expected {names}, got the unknown key {show(min(unknown, key=show))}")
    return tuple(given.get(name) for name in allowed)
