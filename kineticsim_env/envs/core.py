"""`EnvCore`: what the vector, the single and the parallel environment share.

It owns a `Simulator` with slots, the environment's tensors and the warm-start bank, checks actions, and makes
one launch per step. How results are handed out (NumPy or torch, copied or live, per agent) is left to those who use it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode

from kineticsim_env.config import CLASSES, MarketConfig, class_counts, make_config
from kineticsim_env.engines import choose_engine
from kineticsim_env.engines.base import ENV_RESET, ENV_STEP
from kineticsim_env.envs import warm_starts
from kineticsim_env.envs.saved_states import check_environment_ranges, check_parameters
from kineticsim_env.envs.scenarios import NUM_SCENARIOS, make_scenarios, num_rows, pack_table
from kineticsim_env.runtime import layout, saved_states
from kineticsim_env.runtime.calls import Uninterrupted, one_at_a_time
from kineticsim_env.runtime.checks import check_count, check_mask, check_seeds, engine_input, host_array
from kineticsim_env.runtime.values import check_flag
from kineticsim_env.simulator import Simulator
from kineticsim_env.tasks.base import CHANGEABLE, Task

NEXT_STEP, SAME_STEP, DISABLED = (layout.ENUMS["Autoreset"][name] for name in ("next_step", "same_step", "disabled"))
MODES = (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED)
_MARKETS_TO_SPECIALISE = 1024  # a batch for training: seconds of compilation are soon made up for
_SAVED = [*layout.ENV_STATE, *layout.ENV_OUTPUT]


class EnvCore:
    """M markets with K slots each, and the task that the slots have.

    Attributes:
        simulator: The markets. Its tensors are live; stepping it past the environment is the caller's own affair.
        tensors: The environment's tensors by their names in `struct Launch`, `[M, K, ...]`.
        fills: Units bought and sold in the last decision, int64 `[M, K, 2]`.
        host: Whether the tensors are in host memory.
    """

    @torch.inference_mode(False)  # tensors made in inference mode cannot be written to outside of it
    def __init__(
        self,
        config: MarketConfig,
        num_markets: int,
        task: Task,
        roles: Sequence[str],
        *,
        slots: Sequence[str | None],
        engine: str,
        device: Any,
        prefer_cpu: str,
        autoreset: int,
        stagger: bool,
        auctions_per_step: int,
        validate: bool,
        randomise: Any = None,
        num_scenarios: int = NUM_SCENARIOS,
        scenario_seed: int = 0,
    ) -> None:
        """Open the markets and fill the warm-start bank.

        Args:
            config: The market; the task's limits on slots are added to it.
            num_markets: M.
            task: The task's settings.
            roles: Of each slot, one of `tasks.base.ROLES`.
            slots: For each slot the class that it replaces, or None; see `Simulator`.
            engine: As in `Simulator`.
            device: As in `Simulator`.
            prefer_cpu: Why `engine="auto"` should not take CUDA, empty if it may.
            autoreset: `NEXT_STEP`, `SAME_STEP` or `DISABLED`.
            stagger: Whether first episodes start at a hashed elapsed time.
            auctions_per_step: Auctions per decision.
            validate: Check the error words before every step.
            randomise: What differs from episode to episode, as in `make_scenarios`; None is nothing.
            num_scenarios: Scenarios to draw from.
            scenario_seed: Of their draws.
        """
        if isinstance(config.inventory_limit, int) and config.inventory_limit > 0 and hasattr(task, "inventory_limit"):
            task = dataclasses.replace(task, inventory_limit=config.inventory_limit)  # what policies read back
        self.task: Any = task
        self.roles, self.autoreset = tuple(roles), autoreset
        self.auctions_per_step = check_count("auctions_per_step", auctions_per_step, 1)
        if task.horizon * self.auctions_per_step + task.forced_auctions >= 2**32:
            raise ValueError(
                f"horizon: got {task.horizon} decisions of {self.auctions_per_step} auctions, allowed are episodes of "
                "less than 2^32 auctions"
            )
        self._stagger, self._validate = check_flag("stagger", stagger), check_flag("validate", validate)
        self.closed = False
        if not prefer_cpu and num_markets == 1:
            prefer_cpu = "one market is faster there"
        if not prefer_cpu and torch.cuda._is_in_bad_fork():
            prefer_cpu = "this process was forked from one that used CUDA"
        name, device = choose_engine(engine, device, prefer_cpu=prefer_cpu)
        self.simulator = Simulator(
            task.market_config(config), num_markets, engine=name, device=device, slots=slots, validate=validate
        )
        self.config = self.simulator.config  # what scenarios differ from
        self._num_scenarios, self._scenario_seed = num_scenarios, scenario_seed
        self.scenarios: MarketConfig | None = None
        if randomise is not None:
            self.scenarios = self._make_scenarios(randomise)
            self.simulator._set_scenarios(self.scenarios)
        self._calls = self.simulator._calls
        self.device = self.simulator.device
        self.host = self.device.type == "cpu"
        if num_markets >= _MARKETS_TO_SPECIALISE:
            self.simulator.specialise()
        self._engine = self.simulator.engine
        self._allocate()
        self._banks: list[dict[str, torch.Tensor]] = []
        self._bank: dict[str, torch.Tensor] = {}
        self._use_bank(self._run_bank(self.scenarios))

    def _allocate(self) -> None:
        """Allocate the environment's tensors. No two share memory, as torch.compile assumes that they do not."""
        sizes = self.simulator.sizes
        names = [*layout.ENV_STATE, *layout.ENV_OUTPUT, *layout.ENV_FLAGS]
        self.tensors = layout.LiveTensors(layout.allocate(names, sizes, self.device))
        self.fills = torch.zeros((sizes["M"], sizes["K"], 2), dtype=torch.int64, device=self.device)
        self._engine.bind({**self.tensors, "fills": self.fills})
        self._done = self.tensors["done"].numpy() if self.host else None

    # Warm starts ------------------------------------------------------------------------------------------------------

    @torch.inference_mode(False)
    def _run_bank(
        self, scenarios: MarketConfig | None, seeds: torch.Tensor | None = None, counts: np.ndarray | None = None
    ) -> dict[str, torch.Tensor]:
        """Run the warm starts of a table, or of markets of other seeds and populations; nothing changes here."""
        owner, size = warm_starts.choose_owner(self.task, self.config, scenarios)
        if not size:
            return {}
        return warm_starts.run_bank(
            self.simulator, self.task, scenarios, owner=owner, size=size, seeds=seeds, counts=counts
        )

    @torch.inference_mode(False)
    def _use_bank(self, fresh: dict[str, torch.Tensor]) -> None:
        self._bank_owner, self._bank_size = warm_starts.choose_owner(self.task, self.config, self.scenarios)
        if fresh:
            if self._bank and all(self._bank[name].shape == fresh[name].shape for name in fresh):
                for name, tensor in fresh.items():  # a captured CUDA graph keeps the bank's address
                    self._bank[name].copy_(tensor)
            else:
                self._banks.append(fresh)  # a captured CUDA graph may use an old one
                self._bank = fresh
                self._engine.bind(fresh)
        self._hand_over_task()
        self.simulator.engine.state_changed()

    def _hand_over_task(self) -> None:
        self._engine.set_task(
            self.task.to_params(
                self.roles,
                autoreset=self.autoreset,
                stagger=self._stagger,
                bank_size=self._bank_size,
                bank_owner=self._bank_owner,
                scenarios=num_rows(self.scenarios) if self.scenarios is not None else 0,
            )
        )

    # Scenarios and settings -------------------------------------------------------------------------------------------

    @one_at_a_time
    def set_scenarios(self, randomise: Any) -> None:
        """Replace the scenarios: episodes that begin from now on draw one of these; running ones keep theirs.

        Args:
            randomise: As the constructor's argument; an environment made without it has none.
        """
        if self.scenarios is None:
            raise ValueError(
                "set_scenarios: got an environment without scenarios, allowed is one made with randomise=..."
            )
        table = self._make_scenarios(randomise)
        self._use_scenarios(table, self._run_bank(table))
        self.prepare_step()

    def _use_scenarios(
        self, table: MarketConfig, fresh: dict[str, torch.Tensor], present: torch.Tensor | None = None
    ) -> None:
        """Set a table with its warm starts, and perhaps the parameters of running episodes."""
        with Uninterrupted():
            self.simulator._set_scenarios(table, present)
            self.scenarios = table
            self._use_bank(fresh)

    def _make_scenarios(self, randomise: Any) -> MarketConfig:
        if isinstance(randomise, MarketConfig):
            randomise = self.task.market_config(randomise)
        table = make_scenarios(randomise, self.config, self._num_scenarios, self._scenario_seed)
        fewest = class_counts(table, num_rows(table)).min(axis=0)
        for name, count in zip(CLASSES, fewest, strict=True):
            replaced = self.simulator.slots.count(name)
            if count < replaced:
                raise ValueError(
                    f"randomise: got a scenario with {count} {name} agents, allowed are at least {replaced}, as many "
                    "as learners replace"
                )
        return table

    @one_at_a_time
    def set_task(self, **changes: Any) -> None:
        """Change settings of the task from the next step on; a captured CUDA graph keeps those it was captured with.

        Args:
            **changes: Fields of the task that spaces, warm starts and the length of episodes do not depend on.
        """
        for name in changes:
            if name not in CHANGEABLE or not hasattr(self.task, name):
                allowed = ", ".join(field for field in CHANGEABLE if hasattr(self.task, field))
                raise ValueError(f"set_task: got the field {name!r}, allowed are {allowed}")
        self.task = dataclasses.replace(self.task, **changes)
        self._hand_over_task()
        self.prepare_step()

    # Reset and step ---------------------------------------------------------------------------------------------------

    @one_at_a_time
    def reset(self, seed: Any = None, mask: Any = None) -> None:
        """Begin an episode: with a seed episode 0, else the next one of the same random stream.

        Args:
            seed: None, an int s (market m is seeded s + m), or one per market.
            mask: bool `[M]`, the markets to reset, at least one; None is all.

        Raises:
            MarketError: If an error word was set since the last look; nothing is reset then, and a second call goes
                through.
        """
        self._check_open("reset")
        simulator = self.simulator
        seeds = None if seed is None else check_seeds(seed, simulator.num_markets, self.device)
        chosen = None if mask is None else check_mask("reset_mask", mask, simulator.num_markets, self.device)
        if chosen is not None and not bool(chosen.any()):
            raise ValueError("reset_mask: got no True, allowed is a mask with at least one True, or None for all")
        simulator.check_errors()
        fresh, counts = None, None
        if seeds is not None:
            fresh = seeds if chosen is None else torch.where(chosen, seeds, simulator.tensors["seed"])
            counts = simulator._draw_counts(fresh)
        bank = {} if counts is None else self._run_bank(self.scenarios, fresh, counts)
        with Uninterrupted():
            if fresh is not None:
                simulator.tensors["seed"].copy_(fresh)
                simulator.tensors["episode"][slice(None) if chosen is None else chosen] = -1  # the launch adds one
                self._take_population(counts, bank)
            self._engine.launch(ENV_RESET, reset_mask=chosen)
            if chosen is None:
                self.fills.zero_()
            else:
                self.fills.masked_fill_(chosen[:, None, None], 0)
        self.prepare_step()

    def expect(self, shape: tuple[int, ...], dtype: torch.dtype, outputs: Sequence[torch.Tensor] = ()) -> None:
        """Set what `step_at_once` is given, and which outputs `copies` returns.

        Args:
            shape: Of actions or choices.
            dtype: Theirs.
            outputs: Views of `tensors`, of contiguous rows.
        """
        self._input_shape, self._input_dtype = shape, dtype
        self._engine.outputs = list(outputs)

    @property
    def outputs(self) -> list[torch.Tensor]:
        """The outputs that were asked for, live."""
        return self._engine.outputs

    @property
    def launcher(self) -> Any:
        """How a step is launched in a program that torch compiles; see `NativeEngine.launcher`."""
        return self._engine.launcher(ENV_STEP)

    def copies(self) -> list[torch.Tensor]:
        """Return the outputs that were asked for as tensors of their own."""
        return self._engine.copies()

    def prepare_step(self) -> None:
        """Register the step as it is now: for `step_at_once`, and for programs that torch compiles."""
        self._engine.prepare_launcher(ENV_STEP, self.auctions_per_step)

    def step_at_once(self, given: Any) -> bool:
        """Play one decision in a few microseconds, if `given` is just the tensor that the engine takes.

        Args:
            given: What the user gave as actions or choices.

        Returns:
            Whether it was played; if not, nothing has happened, and `step` does it or says what is wrong.
        """
        return (
            self._engine.plays_at_once
            and type(given) is torch.Tensor
            and given.dtype is self._input_dtype
            and not given.is_nested  # which has no shape
            and given.shape == self._input_shape
            and given.device == self.device
            and given.is_contiguous()
            and not (given.requires_grad or given.is_neg() or self.closed or self._validate)
            and self._engine.step_at_once(given)
        )

    def _take_population(self, counts: np.ndarray | None, bank: dict[str, torch.Tensor]) -> None:
        if counts is not None:
            self.simulator._take_counts(counts)
            self._use_bank(bank)

    @one_at_a_time
    def step(self, actions: torch.Tensor | None = None, choices: torch.Tensor | None = None) -> None:
        """Play one decision of every market: checked `actions` float32 `[M, K, A]`, or `choices` int64 `[M, K]`.

        Axes of length 1 may be missing, as only the memory is handed on.
        """
        self._check_open("step")
        if self._validate:
            self.simulator.check_errors()
        if self._done is not None and self.autoreset == DISABLED and self._done.any():
            market = int(np.argmax(self._done))
            raise gym.error.ResetNeeded(
                f"market {market}: its episode has ended; call reset(options={{'reset_mask': mask}})"
            )
        given: dict[str, Any] = {"actions": actions} if choices is None else {"choices": choices}
        self._engine.launch(ENV_STEP, auctions=self.auctions_per_step, **given)

    def _check_open(self, call: str) -> None:
        if self.closed:
            raise gym.error.ClosedEnvironmentError(f"{call}: the environment was closed; make a new one")

    def check_actions(
        self, actions: Any, shape: tuple[int, ...], limit: int = 0, name: str = "actions"
    ) -> torch.Tensor:
        """Return actions as a contiguous tensor on the device, or raise and change nothing.

        Values are looked at where that needs no synchronisation: those that come in host memory.

        Args:
            actions: A tensor on the device, or anything that NumPy takes.
            shape: The shape they must have.
            limit: 0 for continuous actions, float32 in [-1, 1]; else discrete ones, int64 from 0 to limit - 1.
            name: What errors call them.
        """
        dtype = torch.int64 if limit else torch.float32
        if isinstance(actions, torch.Tensor) and not self.host:
            return engine_input(name, actions, dtype, shape, self.device)
        tensor = torch.from_numpy(check_host_actions(actions, shape, limit, name))
        return tensor if self.host else tensor.to(self.device)

    # State ------------------------------------------------------------------------------------------------------------

    @one_at_a_time
    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return copies of the whole state, the environment's part of it included.

        With scenarios `parameters` are those that each market plays, and `scenarios` is the table that its next
        episode draws from, so that a like environment goes on whatever its own table is.
        """
        saved = self.simulator.state_dict() | {name: self.tensors[name].clone() for name in _SAVED}
        saved[saved_states.ABOUT] = saved_states.pack_about(self.about())
        if self.scenarios is not None:
            saved[saved_states.PARAMETERS] = self._engine.parameters().clone()
            saved[saved_states.SCENARIOS] = saved_states.pack(pack_table(self.scenarios))
        return saved

    def about(self) -> dict[str, Any]:
        """Return what a state of this environment is of, as plain numbers, texts and lists."""
        return self.simulator.about() | {
            "task": {"name": type(self.task).__name__, **saved_states.describe(self.task)},
            "roles": list(self.roles),
            "auctions_per_step": self.auctions_per_step,
            "autoreset_mode": MODES[self.autoreset].name,
            "stagger": self._stagger,
            "scenarios": self.scenarios is not None,
        }

    @one_at_a_time
    def load_state_dict(self, saved: Mapping[str, torch.Tensor], strict: bool = True) -> None:
        """Take over a state, from any engine or device; a like environment goes on bit for bit.

        Args:
            saved: What `state_dict` returned.
            strict: As in `Simulator.load_state_dict`.

        Raises:
            TypeError, ValueError: As `Simulator.load_state_dict`; the present state is untouched then.
        """
        simulator = self.simulator
        of_scenarios = (saved_states.PARAMETERS, saved_states.SCENARIOS) if self.scenarios is not None else ()
        saved_states.check_names(saved, simulator.tensors, _SAVED, of_scenarios)
        differences = saved_states.check_about(saved, self.about(), strict)
        table, present = self.scenarios, self._engine.parameters()
        if of_scenarios:
            table, present = self._checked_scenarios(saved)
        checked = simulator._checked_state(saved, present)
        for name in _SAVED:
            checked[name] = self._engine.own_copy(saved_states.take(saved, name, self.tensors[name]))
        check_environment_ranges(
            checked,
            present,
            self.task,
            self.roles,
            levels=self.config.num_levels,
            auctions_per_step=self.auctions_per_step,
            scenarios=table is not None,
        )
        counts = simulator._draw_counts(checked["seed"])
        bank: dict[str, torch.Tensor] = {}
        if counts is not None or table != self.scenarios:
            bank = self._run_bank(table, checked["seed"], counts)
        with Uninterrupted():  # from here on nothing can fail
            if table is not None:
                self._use_scenarios(table, bank, present)
            simulator._take_state(checked, counts)
            if counts is not None:
                self._use_bank(bank)
            for name in _SAVED:
                self.tensors[name].copy_(checked[name])
            torch.logical_or(self.tensors["terminated"], self.tensors["truncated"], out=self.tensors["over"])
            self.fills.zero_()
        self.prepare_step()
        saved_states.warn_of(differences, stacklevel=5)

    def _checked_scenarios(self, saved: Mapping[str, Any]) -> tuple[MarketConfig, torch.Tensor]:
        """Return a saved table of scenarios and what markets play, or raise."""
        fields = saved_states.unpack(saved_states.SCENARIOS, saved[saved_states.SCENARIOS])
        if not isinstance(fields, dict):
            found = type(fields).__name__
            raise ValueError(f"state[{saved_states.SCENARIOS!r}]: got {found}, allowed is a dict of fields")
        try:
            table = self._make_scenarios(make_config(fields))
        except (TypeError, ValueError) as error:
            raise ValueError(f"state[{saved_states.SCENARIOS!r}]: {error}") from error
        given = saved_states.take(saved, saved_states.PARAMETERS, self._engine.parameters())
        check_parameters(given, self.config)
        return table, given

    def close(self) -> None:
        """Refuse steps and resets from now on, and raise what is left in the error words."""
        self.closed = True
        self.simulator.close()


def check_autoreset(mode: Any) -> AutoresetMode:
    """Return the mode as Gymnasium's enum; its name or value may be given."""
    for known in MODES:
        if mode is known or (isinstance(mode, str) and mode.lower() in (known.value.lower(), known.name.lower())):
            return known
    raise ValueError(f"autoreset_mode: got {mode!r}, allowed are {', '.join(known.name for known in MODES)}")


def check_host_actions(actions: Any, shape: tuple[int, ...], limit: int, name: str = "actions") -> np.ndarray:
    """Return actions that are in host memory as a C-ordered array of the engine's dtype, or raise.

    Args:
        actions: A tensor in host memory, or anything that NumPy takes.
        shape: The shape they must have.
        limit: 0 for continuous actions, float32 in [-1, 1]; else discrete ones, int64 from 0 to limit - 1.
        name: What errors call them.
    """
    dtype = torch.int64 if limit else torch.float32
    if isinstance(actions, torch.Tensor):
        given = engine_input(name, actions, dtype, shape, torch.device("cpu")).numpy()
    else:
        given = host_array(name, actions, dtype, shape)
    good = ((given >= 0) & (given < limit)) if limit else np.abs(given) <= 1.0  # False for NaN
    if not good.all():
        place = np.unravel_index(int(np.argmin(good)), shape)
        allowed = f"0 to {limit - 1}" if limit else "-1 to 1"
        where = f"{name}{[int(i) for i in place]}" if place else name
        raise ValueError(f"{where}: got {given[place]}, allowed is {allowed}")
    return given
