"""`MarketVectorEnv`: M markets with one learner each, as `gymnasium.vector.VectorEnv`, and its class for each task.

`gym.make_vec("KineticSim/MarketMaking-v0", num_envs=M)` and the like make them. The engine does the work; this file
hands it over.
"""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from kineticsim_env.config import MarketConfig
from kineticsim_env.envs.base import BaseMarketEnv
from kineticsim_env.envs.core import MODES, SAME_STEP, EnvCore, check_autoreset, unpack_observations, unpack_small
from kineticsim_env.envs.scenarios import NUM_SCENARIOS
from kineticsim_env.render import RENDER_FPS, RENDER_MODES, check_render_mode, make_viewer, render_with
from kineticsim_env.runtime.calls import one_at_a_time
from kineticsim_env.runtime.values import check_choice, check_count, check_dict, check_flag, is_whole, show
from kineticsim_env.tasks import ExecutionTask, MarketMakingTask, TradingTask
from kineticsim_env.tasks.base import ACTION_SIZES, OBSERVATION_SIZES, Task, make_task

_FEW_MARKETS = 1024  # below it, moving NumPy arrays to and from a GPU costs more than the GPU saves
# Up to here both observations are copied at once, as Python takes longer for a step than the GPU. Beyond it one copy
# more costs no time, and who keeps observations should not keep the final ones for nothing.
_MARKETS_COPIED_AT_ONCE = 8192


class MarketVectorEnv(BaseMarketEnv, VectorEnv):
    """M markets with one learner each: what `MarketMakingVectorEnv`, `ExecutionVectorEnv`, `TradingVectorEnv` share.

    The task, its spaces and its arguments: `MarketMakingTask` and so on. Market m of an environment seeded s plays the
    tape of seed s + m, whatever M is; only where fields are given per market do its warm starts depend on m too. Beyond
    Gymnasium's interface, `simulator`, `fills`, `observation` and `scenario` show the markets live.

    With `output="torch"` nothing waits for the GPU: actions and results are tensors on `device`, in the order of the
    current stream. With `copy=False` a step also allocates nothing and returns the same tensors every time, so that it
    can be captured in a `torch.cuda.CUDAGraph` (one action tensor, warmed up by a step before).

    Args:
        num_envs: M.
        config: The market, or an ensemble whose fields differ from market to market; `preset` if None.
        preset: A name that `MarketConfig.preset` knows.
        engine: As in `Simulator`; with NumPy output of fewer than 1024 markets `"auto"` does not take CUDA.
        device: As in `Simulator`.
        output: `"numpy"` or `"torch"`.
        autoreset_mode: SAME_STEP (`final_obs` and `_final_obs` are in the infos of every step), NEXT_STEP, or DISABLED
            (reset with `options={"reset_mask": mask}`), as Gymnasium's enum or its name.
        auctions_per_step: Auctions a decision.
        replace: The class of built-in agent whose place the learner takes, as the task says; None adds a trader.
        randomise: What differs from episode to episode: for each field of `MarketConfig` a `(low, high)`, drawn
            uniformly, or a list of values; or an ensemble, one value a scenario. Each episode of each market draws one
            of the scenarios, on the device, and starts from that scenario's warm starts. See also `set_scenarios`.
        num_scenarios: How many scenarios are drawn of `randomise`, up to 65536.
        scenario_seed: Of these draws.
        stagger: Start each market's first episode at a hashed elapsed time. Turn it off to evaluate.
        copy: Whether results are copies; False returns live tensors, which the next step overwrites. (NumPy results
            from a GPU are always copies.)
        validate: Check the error words before every step, at the price of a synchronisation on CUDA.
        max_episode_steps: Another name for `horizon`, which it overrides.
        render_mode: `"human"` (a window), `"rgb_array"`, `"ansi"` (text) or None. A step then also copies one market to
            the host.
        render_market: Which market is shown.
        **task: Fields of the task.
    """

    task_type: ClassVar[type[Task]]

    metadata = {"render_modes": RENDER_MODES, "render_fps": RENDER_FPS, "autoreset_mode": AutoresetMode.SAME_STEP}

    @torch.inference_mode(False)  # what is made inside inference mode cannot be written to outside of it
    def __init__(
        self,
        num_envs: int = 1,
        config: MarketConfig | None = None,
        *,
        preset: str = "trading",
        engine: str = "auto",
        device: Any = None,
        output: str = "numpy",
        autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
        auctions_per_step: int = 1,
        replace: str | None = None,
        randomise: Any = None,
        num_scenarios: int = NUM_SCENARIOS,
        scenario_seed: int = 0,
        stagger: bool = True,
        copy: bool = True,
        validate: bool = False,
        max_episode_steps: int | None = None,
        render_mode: str | None = None,
        render_market: int = 0,
        **task: Any,
    ) -> None:
        """Open the markets; the arguments are those of the class.

        Raises:
            TypeError, ValueError: Naming the argument, what came and what is allowed.
            EngineUnavailable: If the engine asked for cannot run here.
        """
        self.num_envs = check_count("num_envs", num_envs, 1)
        self.autoreset_mode = check_autoreset(autoreset_mode)
        self.metadata = {**type(self).metadata, "autoreset_mode": self.autoreset_mode}
        self.render_mode = check_render_mode(render_mode)
        check_choice("output", output, ("numpy", "torch"))
        self._role = check_role(self.task_type, replace)
        copy = check_flag("copy", copy)
        if max_episode_steps is not None:
            task = {**task, "horizon": max_episode_steps}
        few = output == "numpy" and self.num_envs < _FEW_MARKETS
        self.core = EnvCore(
            check_config(config, preset),
            self.num_envs,
            make_task(self.task_type, task),
            (self._role,),
            slots=(replace,),
            engine=engine,
            device=device,
            prefer_cpu=f"NumPy output of fewer than {_FEW_MARKETS} markets is faster there" if few else "",
            autoreset=MODES.index(self.autoreset_mode),
            stagger=stagger,
            auctions_per_step=auctions_per_step,
            validate=validate,
            randomise=randomise,
            num_scenarios=num_scenarios,
            scenario_seed=scenario_seed,
        )
        self._viewer = make_viewer(self.core, self.render_mode, render_market)
        self.output, self._copy = output, copy
        self._make_spaces()
        self._make_views()
        self._was_reset = False

    def _make_spaces(self) -> None:
        self.single_observation_space = self.core.task.observation_space(self._role)
        self.single_action_space = self.core.task.action_space(self._role)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._limit = self.core.task.num_choices(self._role)
        self._input = "choices" if self._limit else "actions"
        self._action_shape = (self.num_envs,) if self._limit else (self.num_envs, ACTION_SIZES[self._role])

    def _make_views(self) -> None:
        """Make the live views [M, ...] of the core's tensors that `copy=False` returns."""
        core = self.core
        used = OBSERVATION_SIZES[self._role]
        self._observation, self._final = (
            core.tensors[name][:, 0, :used] for name in ("observation", "final_observation")
        )
        self._small = core.small.view(-1)  # a tensor of our own: what is done to the core's leaves it as it is
        reward, *self._flags = unpack_small(self._small, self.num_envs)
        self._live: tuple[Any, ...] = (self._observation, self._final, reward, *self._flags)
        self._host_arrays = self.output == "numpy" and core.host
        if self._host_arrays:
            self._live = tuple(tensor.numpy() for tensor in self._live)
        self._returns_live = not self._copy and (self._host_arrays or self.output == "torch")
        self._same_step = core.autoreset == SAME_STEP
        at_once = self._same_step and self.num_envs <= _MARKETS_COPIED_AT_ONCE
        self._both = core.observations[:, :used] if at_once else None

    # Gymnasium's interface --------------------------------------------------------------------------------------------

    @one_at_a_time
    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin episodes.

        Args:
            seed: An int s seeds market m with s + m and starts its tape at episode 0; so does one int per market. None
                goes on to the next episode; the first time it draws a seed from `np_random`.
            options: None, or `{"reset_mask": mask}` with a bool array or tensor `[M]` (at least one True): only those
                markets are reset.

        Returns:
            Observations float32 `[M, F]` (of markets outside the mask, as they were) and an empty dict.
        """
        mask = check_options(options)
        super().reset(seed=int(seed) if is_whole(seed) else None)
        if not self._was_reset and mask is not None:
            raise gym.error.ResetNeeded("reset_mask: got a mask in the first reset, allowed is a reset of all")
        if seed is None and not self._was_reset:
            seed = int(self.np_random.integers(2**62))
        self.core.reset(seed, mask)
        self._was_reset = True
        if self._viewer:
            self._viewer.update()
        if self._returns_live:
            return self._live[0], {}
        observation = self._observation.clone()
        return (observation if self.output == "torch" else observation.cpu().numpy()), {}

    @one_at_a_time
    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Play one decision in every market.

        Args:
            actions: float32 `[M, A]` in [-1, 1], or int64 `[M]`, as the task's action space says; a tensor on the
                device, or NumPy.

        Returns:
            Observations float32 `[M, F]`, rewards float32 `[M]`, terminated and truncated bool `[M]`, and infos: under
            SAME_STEP `final_obs` float32 `[M, F]`, the observation before any reset, and `_final_obs` bool `[M]`,
            where an episode ended.
        """
        if not self._was_reset:
            raise gym.error.ResetNeeded("step: the environment was never reset; call reset() first")
        core = self.core
        core.step(**{self._input: core.check_actions(actions, self._action_shape, self._limit)})
        if self._same_step:
            torch.logical_or(self._flags[0], self._flags[1], out=self._flags[2])
        if self._viewer:
            self._viewer.update()
        observation, final, reward, terminated, truncated, ended = self._results()
        infos = {"final_obs": final, "_final_obs": ended} if self._same_step else {}
        return observation, reward, terminated, truncated, infos

    def _results(self) -> tuple[Any, ...]:
        """Return observation, final observation, reward, terminated, truncated and ended, in the form asked for."""
        if self._returns_live:
            return self._live
        if self._host_arrays:
            return tuple(array.copy() for array in self._live)
        copied = torch.Tensor.clone if self.output == "torch" else torch.Tensor.cpu
        if self._both is not None:
            observation, final = unpack_observations(copied(self._both), self.num_envs)
        else:
            observation, final = copied(self._observation), copied(self._final) if self._same_step else None
        results = observation, final, *unpack_small(copied(self._small), self.num_envs)
        if self.output == "torch":
            return results
        return tuple(part if part is None else part.numpy() for part in results)

    def render(self) -> Any:
        """Return a tuple of which each of the M entries is the frame of `render_market`; None in a window.

        With Gymnasium's `RecordVideo` use `record_first_only=True`; only one market is drawn.
        """
        return render_with(self._viewer, self, self.num_envs)

    def close_extras(self, **kwargs: Any) -> None:
        """Close the window, and raise what is left in the error words."""
        if self._viewer:
            self._viewer.close()
        self.core.close()

    def __del__(self) -> None:
        """Do nothing: an error that nobody asked for is not raised from a destructor."""

    # Beyond it --------------------------------------------------------------------------------------------------------

    @property
    def fills(self) -> torch.Tensor:
        """Units bought and sold in the last decision, int64 `[M, 2]`, live."""
        return self.core.fills[:, 0]

    @property
    def observation(self) -> torch.Tensor:
        """The present observations, float32 `[M, F]`, live."""
        return self._observation

    def _was_loaded(self) -> None:
        self._was_reset = True


class MarketMakingVectorEnv(MarketVectorEnv):
    """M markets with one learned maker each: `gymnasium.make_vec("KineticSim/MarketMaking-v0", num_envs=M)`."""

    task_type = MarketMakingTask


class ExecutionVectorEnv(MarketVectorEnv):
    """M markets with one block to execute each: `gymnasium.make_vec("KineticSim/Execution-v0", num_envs=M)`."""

    task_type = ExecutionTask


class TradingVectorEnv(MarketVectorEnv):
    """M markets with one learned trader each: `gymnasium.make_vec("KineticSim/Trading-v0", num_envs=M)`."""

    task_type = TradingTask


def check_role(task: type[Task], replace: Any) -> str:
    """Return the role of a task's learner, which takes the place of `replace`."""
    assert task.role is not None
    assert task.replaceable is not None
    check_choice("replace", replace, (task.replaceable,), optional=True)
    return task.role


def check_config(config: Any, preset: str) -> MarketConfig:
    """Return the config, or the preset where none is given."""
    if config is None:
        return MarketConfig.preset(preset)
    if not isinstance(config, MarketConfig):
        raise TypeError(f"config: got {type(config).__name__}, allowed are a MarketConfig, None")
    return config


def check_options(options: Any) -> Any:
    """Return the reset mask of the options, or None."""
    if options is None:
        return None
    unknown = set(check_dict("options", options, "None, or {'reset_mask': mask}")) - {"reset_mask"}
    if unknown:
        raise ValueError(f"options: got the unknown key {show(min(unknown, key=show))}, allowed is 'reset_mask'")
    return options.get("reset_mask")
