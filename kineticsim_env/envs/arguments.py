"""The arguments of environments: which are settings (`EnvSettings`) and which the task's, and what `help()` shows.

The constructors of `vector`, `single`, `parallel` and `batched` take both as `**arguments`; `OfOneMarket` and
`OfManyMarkets` say to type checkers and editors which settings there are.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from kineticsim_env.envs.own_functions import own_functions
from kineticsim_env.envs.settings import EnvSettings
from kineticsim_env.runtime.names import warn_user
from kineticsim_env.runtime.values import check_flag, show
from kineticsim_env.tasks.base import TaskType, make_task

if TYPE_CHECKING:
    from gymnasium.vector import AutoresetMode
    from typing_extensions import TypedDict

    class OfOneMarket(TypedDict, total=False, extra_items=Any):
        """Settings of all environments; further arguments are the task's."""

        preset: str
        engine: str
        device: Any
        auctions_per_step: int
        horizon_s: float | None
        randomise: Any
        num_scenarios: int
        scenario_seed: int
        account_info: bool
        see_fundamental: bool
        action_mask: bool
        features: Any
        terminate: Any
        custom_task: Any

    class OfManyMarkets(OfOneMarket, total=False):
        """Settings of environments with many markets."""

        autoreset_mode: AutoresetMode | str
        stagger: bool
        copy: bool
        validate: bool


Environment = TypeVar("Environment", bound=type)
Maker = TypeVar("Maker", bound=Callable[..., Any])

_MADE = ("prefer_cpu", "own", "opponent_slots", "account_key")  # of other arguments
# Of one market: its results come to the host anyway, so that looking for errors costs nothing.
_FIXED = {"autoreset_mode": "disabled", "stagger": False, "validate": True}
OF_MANY = {field.name: field for field in dataclasses.fields(EnvSettings) if field.name not in _MADE}
OF_ONE = {name: field for name, field in OF_MANY.items() if name not in (*_FIXED, "copy")}
_ENTRY = re.compile(r"^( +)(\w+): .*\n(?:\1    .*\n)*", re.MULTILINE)
_PLACE = re.compile(r"^( +)(config|\*\*arguments): .*\n(?:\1    .*\n)*", re.MULTILINE)


def split(
    arguments: Mapping[str, Any], config: Any, *, one_market: bool = False, **made: Any
) -> tuple[EnvSettings, dict[str, Any]]:
    """Return the settings among a constructor's arguments, checked, and all others, which are the task's.

    `made` are further fields of `EnvSettings`, which are no arguments. One market has neither autoreset nor stagger.
    """
    known = OF_ONE if one_market else OF_MANY
    arguments, former = _of_former_names(arguments)
    given = {name: value for name, value in arguments.items() if name in known}
    rest = {name: value for name, value in arguments.items() if name not in known}
    return EnvSettings(config=config, **given, **(_FIXED if one_market else {}), **made, **former), rest


def _of_former_names(arguments: Mapping[str, Any]) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """Return the arguments with `final_info` by its present name, and what lets infos have the former one, too."""
    if "final_info" not in arguments:
        return arguments, {}
    if "account_info" in arguments:
        raise TypeError("final_info: expected account_info, its present name, alone, got both")
    flag = check_flag("final_info", arguments["final_info"])
    warn_user("final_info= goes with the next version: write account_info=, and infos have it by that name")
    rest = {name: value for name, value in arguments.items() if name != "final_info"}
    return {**rest, "account_info": flag}, {"account_key": "final_info"}


def with_task(
    settings: EnvSettings,
    kind: type[TaskType],
    task: dict[str, Any],
    roles: Sequence[str],
    horizon: Any,
    *,
    one_market: bool = False,
    **how: Any,
) -> tuple[EnvSettings, TaskType]:
    """Return the settings with the user's functions, and the task of that kind, whose `reward` may be a function.

    `horizon` is the task's by another name, None where it was not given; `how` goes to `own_functions`.
    """
    own, fields = own_functions(task, settings.features, settings.terminate, settings.custom_task, roles, **how)
    known = OF_ONE if one_market else OF_MANY
    given, seconds = fields.get("horizon") if horizon is None else horizon, settings.horizon
    if seconds is not None and given is not None and not np.array_equal(given, seconds):
        raise ValueError(f"horizon: expected none, or {seconds}, as horizon_s has it, got {show(given)}")
    horizon = horizon if seconds is None else seconds
    made = make_task(kind, fields if horizon is None else {**fields, "horizon": horizon}, settings=known)
    if settings.action_mask and made.action_type != "discrete":
        raise ValueError("action_mask: expected False with action_type='continuous', got True")
    if settings.action_mask and own is not None and own.acts:
        raise ValueError("action_mask: expected False with a custom_task that has an action_space, got True")
    return dataclasses.replace(settings, own=own), made


def shows_arguments(*, one_market: bool = False) -> Callable[[Environment], Environment]:
    """Let `help()` and `inspect.signature` show all arguments of an environment's constructor.

    Settings stand in the signature in the place of `**arguments`, and in the docstring, of the class or of its
    constructor, in that of their entry. `config`, which may be given by position, has an entry of its own.
    """
    known = OF_ONE if one_market else OF_MANY

    def show(kind: Environment) -> Environment:
        init: Any = kind.__init__
        own = inspect.signature(init).parameters
        settings = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type)
            for name, field in known.items()
            if name not in own
        ]
        positional = [one for one in own.values() if one.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
        keywords = [one for one in own.values() if one.kind is inspect.Parameter.KEYWORD_ONLY]
        task = inspect.Parameter("task", inspect.Parameter.VAR_KEYWORD, annotation="Any")
        init.__signature__ = inspect.Signature([*positional, *keywords, *settings, task], return_annotation="None")
        init.__annotations__ = _annotations(init.__signature__)
        for documented in (kind, init):
            if documented.__doc__:  # none under python -OO
                documented.__doc__ = _filled(documented.__doc__, known)
        return kind

    return show


def shows_arguments_of(kind: type) -> Callable[[Maker], Maker]:
    """Let `help()` and `inspect.signature` of a function show the arguments of the environment that it makes."""

    def show(function: Maker) -> Maker:
        made, described = inspect.signature(function).return_annotation, inspect.getdoc(kind.__init__)
        function.__signature__ = inspect.signature(kind).replace(return_annotation=made)  # ty: ignore[missing-attribute]
        function.__annotations__ = {**_annotations(inspect.signature(kind)), "return": made}
        if function.__doc__ and described:  # none under python -OO
            function.__doc__ += "\n\n" + described.partition("\n\n")[2]
        return function

    return show


def _annotations(signature: inspect.Signature) -> dict[str, Any]:
    return {one.name: one.annotation for one in signature.parameters.values() if one.name != "self"}


def _filled(text: str, known: Mapping[str, Any]) -> str:
    """Return a docstring with the descriptions of settings in the place of its entry for `**arguments`."""
    attributes = inspect.cleandoc(EnvSettings.__doc__ or "").partition("Attributes:\n")[2] + "\n"
    entries = {match[2]: match[0] for match in _ENTRY.finditer(attributes)}
    shown = {"config": entries["config"], "**arguments": "".join(entries[name] for name in known if name != "config")}
    shown["**arguments"] += "    **task: Fields of the task.\n"
    return _PLACE.sub(lambda match: re.sub("^    ", match[1], shown[match[2]], flags=re.MULTILINE), text)
