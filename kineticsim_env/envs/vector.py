"""`MarketVectorEnv`: M markets with one learner each, as `gymnasium.vector.VectorEnv`, and its class for each task.

`gym.make_vec("KineticSim/MarketMaking-v0", num_envs=M)` and the like make them. The engine does the work; this file
hands it over.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import gymnasium as gym
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from kineticsim_env.agents.policies import ProgramPolicy
from kineticsim_env.config import MarketConfig
from kineticsim_env.envs.actions import check_actions
from kineticsim_env.envs.arguments import shows_arguments, split, with_task
from kineticsim_env.envs.base import BaseMarketEnv, check_options, check_role, generator_seed
from kineticsim_env.envs.batch_results import BatchResults
from kineticsim_env.envs.core import EnvCore
from kineticsim_env.envs.infos import info_of_one
from kineticsim_env.envs.opponents import check_opponents, programs_of
from kineticsim_env.envs.records import joined
from kineticsim_env.envs.registered import RegisteredEnv, check_limit_of_spec
from kineticsim_env.envs.rollouts import PolicyRollout, rollout
from kineticsim_env.policies.networks import NetworkPolicy
from kineticsim_env.policies.saved import SavedPolicy
from kineticsim_env.render import RENDER_FPS, check_render_mode, make_viewer, modes_here, render_with
from kineticsim_env.runtime.calls import one_at_a_time
from kineticsim_env.runtime.orders import OrderRecords
from kineticsim_env.runtime.values import check_choice, check_count
from kineticsim_env.tasks import ExecutionTask, MarketMakingTask, TradingTask
from kineticsim_env.tasks.base import Task

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from kineticsim_env.envs.arguments import OfManyMarkets

_NEVER_RESET = "step: the environment was never reset; call reset() first"
_FEW_MARKETS = 1024  # below it, moving NumPy arrays to and from a GPU costs more than the GPU saves


@shows_arguments()
class MarketVectorEnv(RegisteredEnv, BaseMarketEnv, VectorEnv):
    """M markets with one learner each: what `MarketMakingVectorEnv`, `ExecutionVectorEnv`, `TradingVectorEnv` share.

    The task, its spaces and its arguments: `MarketMakingTask` and so on. Market m of an environment seeded s has the
    random stream of seed s + m, whatever M is; only where fields are given per market do its warm starts depend on m
    too. Beyond Gymnasium's interface, `simulator`, `fills`, `observation` and `scenario` show the markets live.

    With `output="torch"` nothing waits for the GPU: actions and results are tensors on `device`, in the order of the
    current stream. With `copy=False` a step also allocates nothing and returns the same tensors every time, so that it
    can be captured in a `torch.cuda.CUDAGraph` (one action tensor, warmed up by a step before).

    Args:
        num_envs: M.
        config: The market, as in `EnvSettings`.
        output: `"numpy"` or `"torch"`.
        replace: The class of agents of which the learner takes a place: the built-in one that the task says, or one of
            `config.agents` that has declared the learner's role, as learners of `parallel_env` do by default; None adds
            the learner.
        max_episode_steps: Another name for `horizon`, which it overrides.
        opponents: Who else is in the markets, for each role a list of policies, such as `{"maker": [a, b], "trader":
            [c]}`: a slot of each role, played in each episode by one of the list, which the episode draws. Several
            slots of a role are a list of such lists; the name of a class of `config.agents` is its role, in such an
            agent's place. `docs/multi_agent.md` has the whole of it; see `set_opponents`.
        render_mode: `"human"` (a window), `"rgb_array"`, `"ansi"` (text) or None. A step then also copies one market to
            the host.
        render_market: Which market is shown.
        **arguments: Settings of `EnvSettings`, and fields of the task.
    """

    task_type: ClassVar[type[Task]]

    metadata = {"render_modes": modes_here(), "render_fps": RENDER_FPS, "autoreset_mode": AutoresetMode.SAME_STEP}

    @torch.inference_mode(False)  # tensors made in inference mode cannot be written to outside of it
    def __init__(
        self,
        num_envs: int = 1,
        config: MarketConfig | None = None,
        *,
        output: str = "numpy",
        replace: str | None = None,
        max_episode_steps: int | None = None,
        opponents: Mapping[str, Sequence[Any]] | None = None,
        render_mode: str | None = None,
        render_market: int = 0,
        **arguments: Unpack[OfManyMarkets],
    ) -> None:
        """Open the markets; the arguments are those of the class.

        Raises:
            TypeError, ValueError: Naming the argument, what came and what is allowed.
            EngineUnavailable: If the engine asked for cannot run here.
        """
        check_limit_of_spec(self)
        self.num_envs = check_count("num_envs", num_envs, 1)
        check_choice("output", output, ("numpy", "torch"))
        few = output == "numpy" and self.num_envs < _FEW_MARKETS
        why = f"NumPy output of fewer than {_FEW_MARKETS} markets is faster there" if few else ""
        settings, task = split(arguments, config, prefer_cpu=why)
        self._role = check_role(self.task_type, replace, settings.config)
        opponent_slots = check_opponents(opponents, settings.config, replace)
        settings = dataclasses.replace(settings, opponent_slots=opponent_slots)
        how = {"always": bool(opponent_slots) and not programs_of(opponent_slots)}
        settings, task_settings = with_task(settings, self.task_type, task, (self._role,), max_episode_steps, **how)
        self.render_mode = check_render_mode(render_mode)
        roles, slots = (
            (self._role, *(opponent.role for opponent in opponent_slots)),
            (replace, *(opponent.replaces for opponent in opponent_slots)),
        )
        core = EnvCore(self.num_envs, task_settings, roles, slots, settings)
        self._viewer = make_viewer(core, self.render_mode, render_market)
        self.output = output
        self._use(core)

    def _use(self, core: EnvCore) -> None:
        """Be the environment of a core."""
        self.core, self.num_envs, self._has_mask = core, core.simulator.num_markets, core.settings.action_mask
        self.autoreset_mode = core.settings.autoreset_mode
        self.metadata = {**type(self).metadata, "autoreset_mode": self.autoreset_mode}
        self._make_spaces()
        self._make_results()

    def _as_rows(self, core: EnvCore) -> MarketVectorEnv:
        made = self._twin()
        BaseMarketEnv._was_cloned(made)
        made.spec = None
        made._use(core)
        return made

    @classmethod
    def _around(cls, core: EnvCore, role: str) -> MarketVectorEnv:
        """Return the environment, with NumPy output, of a core whose markets were reset."""
        made = cls.__new__(cls)
        made._role, made.output, made._was_reset = role, "numpy", True
        made._use(core)
        return made

    def _make_spaces(self) -> None:
        self.single_observation_space = self.core.observation_space(self._role)
        self.single_action_space = self.core.action_space(self._role)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._limit = self.core.task.num_choices(self._role)
        self._input = "choices" if self._limit else "actions"
        size = self.core.task.action_form(self._role).size
        self._action_shape = (self.num_envs,) if self._limit else (self.num_envs, size)

    def _make_results(self) -> None:
        core, settings = self.core, self.core.settings
        how = {"numpy": self.output == "numpy", "copy": settings.copy, "masked": settings.action_mask}
        self._results = BatchResults(core, self._role, **how)
        self._eager = core.eager
        self._eager.expect(self._action_shape, torch.int64 if self._limit else torch.float32, self._results.outputs)

    # Gymnasium's interface --------------------------------------------------------------------------------------------

    @one_at_a_time
    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin episodes.

        Args:
            seed: An int s seeds market m with s + m and starts its random stream at episode 0; so does one int per
                market. Seeds 1 and 2 share all markets but one: give several runs `run_seed(r)`. None goes on to the
                next episode; the first time it draws a seed from `np_random`.
            options: None, or a dict. `"reset_mask"`, a bool array or tensor `[M]` (at least one True): only those
                markets are reset. `"scenario"`, an int or `[M]` of them: the scenarios of the episodes that begin, -1
                where one is drawn as ever; markets that are not reset have none.

        Returns:
            Observations float32 `[M, F]` (of markets outside the mask, as they were), and infos, an empty dict or
            `action_mask`.
        """
        mask, scenario = check_options(options, "reset_mask", "scenario")
        given = seed
        if not self._was_reset and mask is not None:
            raise gym.error.ResetNeeded("reset_mask: expected a first reset of all markets, got a mask")
        if seed is None and not self._was_reset:
            seed = int(self.np_random.integers(2**62))
        self.core.reset(seed, mask, scenario)
        super().reset(seed=generator_seed(given))
        self._was_reset = True
        if self._viewer:
            self._viewer.update()
        infos = self._results.mask() if self._has_mask else {}
        if self._results.are_live:
            return self._results.live[0], infos
        observation = self._results.observation.clone()
        return (observation if self.output == "torch" else observation.cpu().numpy()), infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Play one decision in every market.

        Args:
            actions: float32 `[M, A]` in [-1, 1], or int64 `[M]`, as the task's action space says; a tensor on the
                device, or NumPy. What is at most 0.001 outside [-1, 1] is clamped. What is further out is refused; on
                a GPU it is clamped, and an error at the next check. Or `ks.OrderRecords`: prices, quantities and flags.
                None where a program plays the learner's slot.

        Returns:
            Observations float32 `[M, F]`, rewards float32 `[M]`, terminated and truncated bool `[M]`, and infos: under
            SAME_STEP `final_obs` float32 `[M, F]`, the observation before any reset, and `_final_obs` bool `[M]`,
            where an episode ended; with `account_info` that and `_account_info`, in all modes; with `action_mask` that
            of the next decision; where events end decisions `decision_events` int32 `[M]`, how many this one had.
        """
        results = self._results
        if torch.compiler.is_compiling():
            if not self._was_reset:
                raise gym.error.ResetNeeded(_NEVER_RESET)
            found = results.step_in_graph(actions, self._action_shape)
        else:
            calls = self.core._calls
            with calls.lock:
                if calls.torn or self.core.own is not None or not self._was_reset or not self._eager.step(actions):
                    self._step(actions)
                if self._viewer:
                    self._viewer.update()
                found = results.live if results.are_live else results.copies()
        observation, final, reward, terminated, truncated, over, rows, events = found
        infos = {"final_obs": final, "_final_obs": over} if results.same_step else {}
        if results.has_info:
            key = results.account_key
            infos |= {key: info_of_one(rows, len(self.core.roles)), f"_{key}": over}
        if results.has_events:
            infos["decision_events"] = events
        if self._has_mask:
            infos |= results.mask()
        return observation, reward, terminated, truncated, infos

    @one_at_a_time
    def _step(self, actions: Any) -> None:
        """Play one decision, or say what is wrong."""
        if not self._was_reset:
            raise gym.error.ResetNeeded(_NEVER_RESET)
        core = self.core
        if core.learner_program is not None:
            if actions is not None:
                allowed = f"None, as the program {core.learner_program.name} plays the learner's slot"
                raise ValueError(f"actions: expected {allowed} until core.set_slot_policies({{}}), got actions")
            core.step()
            return
        name, actions = core.submitted(self._role, actions)
        if isinstance(actions, OrderRecords):
            core.step_records(**joined(core, [(name, 0, actions, (self.num_envs,))]))
            return
        core.step(**{self._input: check_actions(actions, self._action_shape, core.device, self._limit, name)})

    def rollout(
        self, policy: NetworkPolicy | SavedPolicy | Sequence[Any] | ProgramPolicy, steps: int, **how: Any
    ) -> PolicyRollout:
        """Play `steps` decisions of a policy in one call; see `kineticsim_env.rollout`, which has all arguments."""
        return rollout(self, policy, steps, **how)

    def render(self) -> Any:
        """Return a tuple of which each of the M entries is the frame of `render_market`; None in a window.

        With Gymnasium's `RecordVideo` use `record_first_only=True`; only one market is drawn.
        """
        return render_with(self._viewer, self, self.num_envs)

    def close_extras(self, **kwargs: Any) -> None:
        """Close the window, and raise what is left in the error words."""
        self._close()

    def __del__(self) -> None:
        """Do nothing: an error that nobody asked for is not raised from a destructor."""

    # Beyond it --------------------------------------------------------------------------------------------------------

    @property
    def fills(self) -> torch.Tensor:
        """Units bought and sold in the last decision, int64 `[M, 2]`, live."""
        return self.core.fills[:, 0]

    @property
    def observation(self) -> torch.Tensor:
        """The present observations, float32 `[M, F]`, live; a copy in a program that torch compiles, if `copy`.

        Inductor may read a live tensor after the next step of the same program has changed it.
        """
        return self._results.observation_in_graph() if torch.compiler.is_compiling() else self._results.observation

    @property
    def opponent(self) -> torch.Tensor:
        """Which policy of its list plays each slot behind the learner's, int64 `[M, S]`, live; S = 0 without any."""
        opponents = self.core.opponents
        if opponents:
            return opponents.drawn
        return self.core.tensors["elapsed"].new_zeros((self.num_envs, len(self.core.roles) - 1)).long()

    @one_at_a_time
    def set_opponents(self, opponents: Mapping[str, Sequence[Any]]) -> None:
        """Replace the policies that play the other slots, from the next step on: to meet one's own previous selves.

        Episodes that begin from now on draw from the new lists. In a running one the policy at the place that it drew
        plays on, so append to a list to change nothing for it; where there is no such place it draws anew. A captured
        CUDA graph calls the policies that it was captured with: capture anew.

        Args:
            opponents: As the constructor's argument, of the same roles and as many slots.
        """
        core = self.core
        if core.opponents is None:
            if core.programs:
                raise ValueError("set_opponents: expected opponents that are functions, got an environment of programs")
            raise ValueError("set_opponents: expected an environment made with opponents, got one without")
        core.opponents.replace(check_opponents(opponents, core.settings.config, core.simulator.slots[0]))

    def _was_cloned(self) -> None:
        super()._was_cloned()
        self._make_results()


class MarketMakingVectorEnv(MarketVectorEnv):
    """M markets with one learner each, a maker: `gymnasium.make_vec("KineticSim/MarketMaking-v0", num_envs=M)`."""

    task_type = MarketMakingTask


class ExecutionVectorEnv(MarketVectorEnv):
    """M markets with one block to execute each: `gymnasium.make_vec("KineticSim/Execution-v0", num_envs=M)`."""

    task_type = ExecutionTask


class TradingVectorEnv(MarketVectorEnv):
    """M markets with one learner each, a trader: `gymnasium.make_vec("KineticSim/Trading-v0", num_envs=M)`."""

    task_type = TradingTask
