"""`MarketEnv`: one market with one learner, as `gymnasium.Env`, and its class for each task.

`gym.make("KineticSim/MarketMaking-v0")` and the like make them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import gymnasium as gym
import numpy as np

from kineticsim_env.config import MarketConfig
from kineticsim_env.envs.action_masks import ActionMasks
from kineticsim_env.envs.actions import check_actions, form_of
from kineticsim_env.envs.arguments import shows_arguments, split, with_task
from kineticsim_env.envs.base import BaseMarketEnv, check_options, check_role, generator_seed
from kineticsim_env.envs.core import EnvCore
from kineticsim_env.envs.infos import info_of_one
from kineticsim_env.envs.records import joined
from kineticsim_env.envs.registered import RegisteredEnv, limit_of_make
from kineticsim_env.envs.vector import ExecutionVectorEnv, MarketMakingVectorEnv, MarketVectorEnv, TradingVectorEnv
from kineticsim_env.render import RENDER_FPS, check_render_mode, make_viewer, modes_here, render_with
from kineticsim_env.runtime.calls import one_at_a_time
from kineticsim_env.runtime.checks import engine_input
from kineticsim_env.runtime.orders import OrderRecords
from kineticsim_env.tasks import ExecutionTask, MarketMakingTask, TradingTask
from kineticsim_env.tasks.base import Task

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from kineticsim_env.envs.arguments import OfOneMarket


@shows_arguments(one_market=True)
class MarketEnv(RegisteredEnv, BaseMarketEnv, gym.Env):
    """One market of `MarketVectorEnv`: what `MarketMakingEnv`, `ExecutionEnv` and `TradingEnv` share.

    NumPy in and out, no autoreset, no stagger. Seeded s, it plays what market m of a vector environment seeded s - m
    with `stagger=False` plays.

    Infos are Python numbers: `inventory`, `cash` (ticks x units), `fees` (thousandths of a tick), `mid_price`, and
    `bought` and `sold` in the last decision. With `account_info=True` each step's also have `account_info`, a dict of
    floats of the names in `docs/environment.md`, and `_account_info`, whether the episode ended. With
    `action_mask=True` there is `action_mask`, int8 `[C]`, as in `MarketVectorEnv`; with `randomise`, `scenario`; where
    events end decisions, `decision_events`, how many the last decision had, 0 after a reset.
    """

    task_type: ClassVar[type[Task]]
    vector_type: ClassVar[type[MarketVectorEnv]]  # the same of many markets

    metadata = {"render_modes": modes_here(), "render_fps": RENDER_FPS}

    def __init__(
        self,
        config: MarketConfig | None = None,
        *,
        replace: str | None = None,
        max_episode_steps: int | None = None,
        render_mode: str | None = None,
        **arguments: Unpack[OfOneMarket],
    ) -> None:
        """Open the market.

        `gymnasium.make(..., max_episode_steps=n)` sets the horizon, too, as does a spec with it; `spec` has the horizon
        by that name, however it was given. The wrapper `TimeLimit` of such a `make` then truncates in the step that
        ends the episode, one that terminates there, too; around an environment that is made already it cuts episodes
        from outside. It counts decisions, whatever they last, so it is refused where events end them.

        Args:
            config: The market, as in `EnvSettings`.
            replace: The class of agents of which the learner takes a place, as in `MarketVectorEnv`.
            max_episode_steps: Another name for `horizon`, which it overrides.
            render_mode: `"human"` (a window), `"rgb_array"`, `"ansi"` (text) or None.
            **arguments: Settings of `EnvSettings`, and fields of the task.

        Raises:
            TypeError, ValueError: Naming the argument, what came and what is allowed.
            EngineUnavailable: If the engine asked for cannot run here.
        """
        self.render_mode = check_render_mode(render_mode)
        settings, task = split(arguments, config, one_market=True)
        self._role = check_role(self.task_type, replace, settings.config)
        cut = limit_of_make(self)
        if max_episode_steps is None:
            max_episode_steps = cut
        settings, task_settings = with_task(
            settings, self.task_type, task, (self._role,), max_episode_steps, one_market=True
        )
        if cut is not None and task_settings.decides_at_events:
            raise ValueError(
                f"max_episode_steps: expected None with decide={task_settings.decide!r}, got {cut}: gymnasium.make "
                "would cut episodes after so many decisions, whatever they last; horizon counts those of full length"
            )
        self.core = EnvCore(1, task_settings, (self._role,), (replace,), settings)
        self._make_masks()
        self._viewer = make_viewer(self.core, self.render_mode)
        self.observation_space = self.core.observation_space(self._role)
        self.action_space = self.core.action_space(self._role)
        self._limit = self.core.task.num_choices(self._role)

    @one_at_a_time
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode: with a seed the first of its random stream, without one the next.

        Args:
            seed: An int, or None; the first time None draws a seed from `np_random`.
            options: None, or `{"scenario": s}`: the scenario of the episode, -1 for one that is drawn.

        Returns:
            Observation float32 `[F]`, and the infos of the class.
        """
        mask, scenario = check_options(options, "reset_mask", "scenario")
        if mask is not None:
            raise ValueError("options: expected 'scenario', got 'reset_mask': there is one market")
        given = seed
        if seed is None and not self._was_reset:
            seed = int(self.np_random.integers(2**62))
        self.core.reset(seed, scenario=scenario)
        super().reset(seed=generator_seed(given))
        self._was_reset = True
        if self._viewer:
            self._viewer.update()
        return self._observation(), self._infos()

    @one_at_a_time
    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Play one decision.

        Args:
            action: float32 `[A]` in [-1, 1], or an int, as the task's action space says; or `ks.OrderRecords`.

        Returns:
            Observation float32 `[F]`, reward, terminated, truncated, and the infos of the class.
        """
        core = self.core
        if not self._was_reset or core.tensors["done"].item():
            why = "has ended its episode" if self._was_reset else "was never reset"
            raise gym.error.ResetNeeded(f"step: the environment {why}; call reset() first")
        self._play(action)
        terminated, truncated = bool(core.tensors["terminated"]), bool(core.tensors["truncated"])
        if self._viewer:
            self._viewer.update()
        infos = self._infos()
        if core.settings.account_info:
            rows = info_of_one(core.tensors["info"].cpu(), len(core.roles))
            known = {name: float(value) for name, value in rows.items()}
            key = core.settings.account_key
            infos |= {key: known, f"_{key}": terminated or truncated}
        return self._observation(), float(core.tensors["reward"]), terminated, truncated, infos

    def _play(self, action: Any) -> None:
        """Play one decision of an action, or say what is wrong with it."""
        core, name = self.core, "actions"
        shape: tuple[int, ...] = ()
        if core.own is not None and core.own.action_space(self._role) is not None:
            given = engine_input(name, action, *form_of(self.action_space), core.device)
            name, action = core.submitted(self._role, given.unsqueeze(0))
            shape = (1,)  # what the user's orders are of
        if isinstance(action, OrderRecords):
            core.step_records(**joined(core, [(name, 0, action, shape)]))
        elif self._limit:
            core.step(choices=check_actions(action, shape, core.device, self._limit, name))
        else:
            size = core.task.action_form(self._role).size
            core.step(actions=check_actions(action, (*shape, size), core.device, name=name))

    def render(self) -> Any:
        """Return uint8 `[600, 960, 3]` in the render mode `"rgb_array"`, text in `"ansi"`; None in a window."""
        return render_with(self._viewer, self)

    def close(self) -> None:
        """Close the window, and raise what is left in the error word."""
        self._close()

    def _was_cloned(self) -> None:
        super()._was_cloned()
        self._make_masks()

    def _as_rows(self, core: EnvCore) -> MarketVectorEnv:
        return self.vector_type._around(core, self._role)

    def _make_masks(self) -> None:
        self._masks = ActionMasks(self.core, self._role, slice(0, 1)) if self.core.settings.action_mask else None

    def _observation(self) -> np.ndarray:
        return self.core.seen("observation", self._role, 0)[0].cpu().numpy().copy()

    def _infos(self) -> dict[str, Any]:
        slot = self.core.simulator.tensors
        bought, sold = self.core.fills[0, 0].tolist()
        mask = {"action_mask": self._masks.update()[0, 0].cpu().numpy().astype(np.int8)} if self._masks else {}
        return {
            "inventory": int(slot["inventory"]),
            "cash": int(slot["cash"]),
            "fees": int(slot["fees"]),
            "mid_price": int(self.core.tensors["mid_history"][0, 0]) / 2,
            "bought": bought,
            "sold": sold,
            **mask,
            **{name: int(self.core.tensors[name]) for name in self.core.market_infos},
        }


class MarketMakingEnv(MarketEnv):
    """One market with one learner, a maker; `MarketMakingTask` describes the task."""

    task_type, vector_type = MarketMakingTask, MarketMakingVectorEnv


class ExecutionEnv(MarketEnv):
    """One market with a block to execute; `ExecutionTask` describes the task."""

    task_type, vector_type = ExecutionTask, ExecutionVectorEnv


class TradingEnv(MarketEnv):
    """One market with one learner, a trader; `TradingTask` describes the task."""

    task_type, vector_type = TradingTask, TradingVectorEnv
