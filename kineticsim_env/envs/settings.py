"""`EnvSettings`: what every environment is made with, whatever its task and its learners: each setting stated once.

The constructors of `vector`, `single`, `parallel` and `batched` take them among their `**arguments` (arguments.py) and
hand them to `EnvCore`. Their defaults are those of the fields, and `help()` shows their descriptions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from gymnasium.vector import AutoresetMode

from kineticsim_env.config import MarketConfig, make_config
from kineticsim_env.envs.opponents import OpponentSlot
from kineticsim_env.envs.own_functions import Own
from kineticsim_env.envs.scenarios import NUM_SCENARIOS
from kineticsim_env.runtime import layout
from kineticsim_env.runtime.values import check_count, check_flag, check_number

_NUMBERS = {AutoresetMode[name.upper()]: number for name, number in layout.ENUMS["Autoreset"].items()}
MODES = (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED)
NEXT_STEP, SAME_STEP, DISABLED = (_NUMBERS[mode] for mode in MODES)
_FLAGS = ("stagger", "copy", "validate", "account_info", "see_fundamental", "action_mask")


@dataclasses.dataclass(frozen=True, eq=False)
class EnvSettings:
    """The market, the engine, and how episodes begin and end; checked when it is made.

    The engine and its device are checked where it is chosen, scenarios where they are drawn.

    Attributes:
        config: The market, a `MarketConfig` or a dict of its fields; `preset` if None. Where there are many markets it
            may be an ensemble, whose fields differ from market to market.
        preset: A name that `MarketConfig.preset` knows; the default, `"news"`, is that of examples/studies/presets.
        engine: As in `Simulator`; `"auto"` does not take CUDA for one market, nor for NumPy output of fewer than 1024.
        device: As in `Simulator`.
        auctions_per_step: Auctions per decision, or on the clock intervals: with the task's `decide` other than
            `"interval"` those of the longest.
        horizon_s: The task's `horizon` in seconds, where the config has `interval_ms`; a whole number of decisions.
        randomise: What differs from episode to episode: for each field of `MarketConfig` a range, drawn uniformly, or
            values; or an ensemble, one value per scenario. Each episode of each market draws one of the scenarios, on
            the device, and starts from that scenario's warm starts. A range is `(8, 20)`, or as JSON keeps it
            `{"low": 8, "high": 20}`; values are `{"values": [8, 20]}`, or a list, but for one of two numbers; an
            ensemble is a `MarketConfig`, or `{"scenarios": {...}}` with its fields. Settings of the task are drawn
            likewise, as `"task.block_qty"` and so on. None is nothing. See also `set_scenarios`.
        num_scenarios: How many scenarios are drawn of `randomise`, up to 65536.
        scenario_seed: The seed of the draws of `randomise`.
        autoreset_mode: SAME_STEP (`final_obs` and `_final_obs` are in the infos of every step), NEXT_STEP, or DISABLED
            (reset with `options={"reset_mask": mask}`), as Gymnasium's enum or its name.
        stagger: Start each market's first episode at a hashed elapsed time. Turn it off to evaluate.
        copy: Whether results are copies; False returns live tensors, which the next step overwrites. (NumPy results
            from a GPU are always copies.)
        validate: Check the error words before every step, at the price of a synchronisation on CUDA.
        account_info: Whether the infos of every step have `account_info`: cash, inventory and more of all markets, as
            they were after the decision and before any reset, float64 by the names in `docs/environment.md`, and
            `_account_info`, where an episode ended.
        see_fundamental: Whether every learner sees the fundamental price, as informed agents do: one more number,
            behind all others (but the events of the last decision, settings that differ and a user's own features):
            the fundamental price less the mid, s(half ticks, 16).
        action_mask: Whether infos, those of a reset too, have `action_mask`, with discrete actions: False where a
            choice has an order that the pre-trade limits would cut to nothing, or whose learner's episode has ended. It
            is bool in tensors; in NumPy int8, as Gymnasium's `Discrete.sample` takes it.
        features: A list of functions of `after` that return further features, as docs/custom_task.md has them; with
            many learners for all of them, or lists by role. The task's `reward` may be a function, too, of `before` and
            `after`, or a dict of them by role.
        terminate: A function of `before` and `after` that says where episodes terminate; with many learners for all of
            them, or functions by role.
        custom_task: An object of a class derived from `ks.CustomTask`, which has such functions as methods, and memory,
            random draws and actions of its own; with many learners for all of them, or by role.
        prefer_cpu: Why `engine="auto"` should not take CUDA, empty if it may.
        own: The functions among these, checked; None without any.
        opponent_slots: The slots behind the learner's that policies play, checked; none without opponents.
        account_key: What infos call accounts; the former name where they were asked for by it.
    """

    config: Any = None
    preset: str = "news"
    engine: str = "auto"
    device: Any = None
    auctions_per_step: int = 1
    horizon_s: float | None = None
    randomise: Any = None
    num_scenarios: int = NUM_SCENARIOS
    scenario_seed: int = 0
    autoreset_mode: Any = AutoresetMode.SAME_STEP
    stagger: bool = True
    copy: bool = True
    validate: bool = False
    account_info: bool = False
    see_fundamental: bool = False
    action_mask: bool = False
    features: Any = None
    terminate: Any = None
    custom_task: Any = None
    prefer_cpu: str = ""
    own: Own | None = None
    opponent_slots: tuple[OpponentSlot, ...] = ()
    account_key: str = "account_info"

    def __post_init__(self) -> None:
        """Check the fields; raise `TypeError` or `ValueError` naming the field, the value and what is allowed."""
        checked = {
            "config": _check_config(self.config, self.preset),
            "autoreset_mode": _check_autoreset(self.autoreset_mode),
            "auctions_per_step": check_count("auctions_per_step", self.auctions_per_step, 1),
        }
        if self.horizon_s is not None:
            check_number("horizon_s", self.horizon_s, 0.0, above=True)
        checked |= {name: check_flag(name, getattr(self, name)) for name in _FLAGS}
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def autoreset(self) -> int:
        """The autoreset mode's number, of `enum Autoreset`."""
        return _NUMBERS[self.autoreset_mode]

    @property
    def horizon(self) -> int | None:
        """Decisions of an episode, by its length in seconds; None where that was not given.

        Raises:
            ValueError: If it is no whole number of decisions, or these have no length.
        """
        if self.horizon_s is None:
            return None
        if self.config.interval_ms is None:
            raise ValueError(f"horizon_s: expected None without interval_ms in the config, got {self.horizon_s}")
        decision = self.config.interval_ms * self.auctions_per_step / 1000
        decisions = self.horizon_s / decision
        if abs(decisions - round(decisions)) > 1e-6 or decisions < 0.5:
            raise ValueError(f"horizon_s: expected a multiple of a decision's {decision:g} s, got {self.horizon_s}")
        return round(decisions)

    @property
    def extras(self) -> tuple[str, ...]:
        """The columns of `tasks.base.EXTRAS` that observations have, in its order."""
        return ("fundamental",) if self.see_fundamental else ()


def _check_config(config: Any, preset: str) -> MarketConfig:
    """Return the config, or the preset where none is given."""
    if config is None:
        return MarketConfig.preset(preset)
    if isinstance(config, Mapping):  # as JSON keeps a config
        return make_config(config)
    if not isinstance(config, MarketConfig):
        raise TypeError(f"config: expected a MarketConfig, a dict of its fields or None, got {type(config).__name__}")
    return config


def _check_autoreset(mode: Any) -> AutoresetMode:
    """Return the mode as Gymnasium's enum; its name or value may be given."""
    for known in MODES:
        if mode is known or (isinstance(mode, str) and mode.lower() in (known.value.lower(), known.name.lower())):
            return known
    raise ValueError(f"autoreset_mode: expected one of {', '.join(known.name for known in MODES)}, got {mode!r}")
