"""`EnvSettings`: what every environment is made with, whatever its task and its learners.

The constructors of `vector`, `single`, `parallel` and `batched` fill one and hand it to `EnvCore`; their defaults are
those of its fields.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from gymnasium.vector import AutoresetMode

from kineticsim_env.config import MarketConfig, make_config
from kineticsim_env.envs.opponents import Seat
from kineticsim_env.envs.own_functions import Own
from kineticsim_env.envs.scenarios import NUM_SCENARIOS
from kineticsim_env.runtime import layout
from kineticsim_env.runtime.values import check_count, check_flag

_NUMBERS = {AutoresetMode[name.upper()]: number for name, number in layout.ENUMS["Autoreset"].items()}
MODES = (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED)
NEXT_STEP, SAME_STEP, DISABLED = (_NUMBERS[mode] for mode in MODES)


@dataclasses.dataclass(frozen=True, eq=False)
class EnvSettings:
    """The market, the engine, and how episodes begin and end; checked when it is made.

    The engine and its device are checked where it is chosen, scenarios where they are drawn.

    Attributes:
        config: The market, a `MarketConfig`, of which a dict of its fields may be given; `preset` if None was.
        preset: A name that `MarketConfig.preset` knows; the default is the default market of all environments.
        engine: As in `Simulator`.
        device: As in `Simulator`.
        prefer_cpu: Why `engine="auto"` should not take CUDA, empty if it may.
        autoreset_mode: As Gymnasium's enum; its name or value may be given.
        auctions_per_step: Auctions per decision.
        randomise: What differs from episode to episode, as in `make_scenarios`; None is nothing.
        num_scenarios: Scenarios to draw.
        scenario_seed: Of their draws.
        stagger: Whether first episodes start at a hashed elapsed time.
        validate: Whether to check the error words before every step.
        final_info: Whether infos say what was known before any reset.
        see_fundamental: Whether every learner sees the fundamental price.
        own: Functions of the user's, checked; None without any.
        seats: The slots behind the learner's that policies play, checked; none without opponents.
    """

    config: Any = None
    preset: str = "news"
    engine: str = "auto"
    device: Any = None
    prefer_cpu: str = ""
    autoreset_mode: Any = AutoresetMode.SAME_STEP
    auctions_per_step: int = 1
    randomise: Any = None
    num_scenarios: int = NUM_SCENARIOS
    scenario_seed: int = 0
    stagger: bool = True
    validate: bool = False
    final_info: bool = False
    see_fundamental: bool = False
    own: Own | None = None
    seats: tuple[Seat, ...] = ()

    def __post_init__(self) -> None:
        """Check the fields; raise `TypeError` or `ValueError` naming the field, the value and what is allowed."""
        checked = {
            "config": _check_config(self.config, self.preset),
            "autoreset_mode": _check_autoreset(self.autoreset_mode),
            "auctions_per_step": check_count("auctions_per_step", self.auctions_per_step, 1),
            "stagger": check_flag("stagger", self.stagger),
            "validate": check_flag("validate", self.validate),
            "final_info": check_flag("final_info", self.final_info),
            "see_fundamental": check_flag("see_fundamental", self.see_fundamental),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def autoreset(self) -> int:
        """The autoreset mode's number, of `enum Autoreset`."""
        return _NUMBERS[self.autoreset_mode]

    @property
    def extras(self) -> tuple[str, ...]:
        """The columns of `tasks.base.EXTRAS` that observations have, in its order."""
        return ("fundamental",) if self.see_fundamental else ()

    @classmethod
    def of_one_market(cls, **fields: Any) -> EnvSettings:
        """Return settings without autoreset and stagger; errors are looked at, as results come to the host anyway."""
        return cls(**fields, autoreset_mode=AutoresetMode.DISABLED, stagger=False, validate=True)


def _check_config(config: Any, preset: str) -> MarketConfig:
    """Return the config, or the preset where none is given."""
    if config is None:
        return MarketConfig.preset(preset)
    if isinstance(config, Mapping):  # as JSON keeps a config
        return make_config(config)
    if not isinstance(config, MarketConfig):
        raise TypeError(f"config: got {type(config).__name__}, allowed are a MarketConfig, a dict of its fields, None")
    return config


def _check_autoreset(mode: Any) -> AutoresetMode:
    """Return the mode as Gymnasium's enum; its name or value may be given."""
    for known in MODES:
        if mode is known or (isinstance(mode, str) and mode.lower() in (known.value.lower(), known.name.lower())):
            return known
    raise ValueError(f"autoreset_mode: got {mode!r}, allowed are {', '.join(known.name for known in MODES)}")
