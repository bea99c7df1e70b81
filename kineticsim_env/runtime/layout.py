"""The one table of names, dtypes, shapes and numbers, read from `cuda/model/layout.h`.

The header declares every field of the shared structs, and every number that stands for something, once; this file turns
them into ctypes structures (for the native engines), torch dtypes and shapes (for allocation and checks), and names of
numbers (for tasks). A typo there is an error here, at import.
"""

from __future__ import annotations

import ctypes
import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import torch

from kineticsim_env.runtime.build import cuda_dir

_TYPES = {  # as ctypes and torch have them
    "int32_t": (ctypes.c_int32, torch.int32),
    "int64_t": (ctypes.c_int64, torch.int64),
    "uint8_t": (ctypes.c_uint8, torch.bool),
    "float": (ctypes.c_float, torch.float32),
    "double": (ctypes.c_double, torch.float64),
}
_FIELD = re.compile(r"^\s*(const )?(\w+)(\*?) (\w+)(?:\[(\d+)\])?;\s*(?://\s*(?:\[([^\]]*)\])?.*)?$")

MARKET_STATE = "bid ask prev_mid2 last_tick price_origin fundamental_price seed episode t volume trades error".split()
SLOT_STATE = "quotes cash inventory fees".split()
REGIME_STATE = ["regime"]  # where there are regimes
CLOCK_STATE = "ret beat_price".split()  # on the clock
MEMORY_STATE = ["agent_memory"]  # where agents that users have written remember something
QUEUE_STATE = "queue moments".split()  # of slots under continuous trading
FLOW_STATE = "lives fleeting_units flow".split()  # of an order flow
WAY_STATE = "due due_quotes due_flags".split()  # of these, where what they submit may arrive in a later decision
WAY_PLACES = 4  # submissions of a market that may be under way
# All that a run may change.
RUN_STATE = (
    *(*MARKET_STATE, *SLOT_STATE, *REGIME_STATE, *CLOCK_STATE),
    *(*MEMORY_STATE, *FLOW_STATE, *QUEUE_STATE, *WAY_STATE),
)
ENV_STATE = "elapsed done mid_history volume_history prev_value ended arrival2 scenario".split()
ENV_OUTPUT = "observation final_observation reward terminated truncated".split()
ENV_FLAGS = ["over"]  # follows from the output, so that no saved state has it
INFO = "info episode_return episode_filled idle".split()  # of an environment that says what is known after a step
VALUES = "task_values opening_value".split()  # where settings of the task differ
EVENTS = ["decision_events"]  # where events end decisions


Sizes: TypeAlias = Mapping[str, Any]
"""The sizes of axes by name; of one that may be none, or several, a tuple."""


@dataclasses.dataclass(frozen=True)
class Field:
    """A field of a struct in `cuda/model/layout.h`."""

    name: str
    ctype: str  # its C type, or that of what it points to
    pointer: bool  # whether it is a pointer
    constant: bool  # whether it points to what a launch only reads
    length: int | None  # how long an array it is, None if it is none
    dims: tuple[str, ...]  # for a pointer, the names of the dimensions, as in the header's comment
    path: str  # its name from the struct that `flat_fields` was asked for, as C++ has it: `"levers.tax"`

    @property
    def dtype(self) -> torch.dtype:
        """The torch dtype of what the pointer points to."""
        return _TYPES[self.ctype][1]

    def shape(self, sizes: Sizes) -> tuple[int, ...]:
        """Return the shape for given sizes, e.g. `{"M": 64, "L": 128, "K": 1, "F": 37} | ladder_sizes(1)`."""
        axes = (sizes[dim] if dim in sizes else int(dim) for dim in self.dims)
        return tuple(size for axis in axes for size in ([axis] if isinstance(axis, int) else axis))


def parse_struct(text: str, name: str) -> dict[str, Field]:
    """Read the fields of one struct from the header's text, in order.

    Raises:
        ValueError: If the struct is missing or a line of it is not a field.
    """
    match = re.search(rf"struct {name} \{{\n(.*?)\n\}};", text, re.DOTALL)
    if match is None:
        raise ValueError(f"struct {name} is not in layout.h")
    fields: dict[str, Field] = {}
    for line in match.group(1).splitlines():
        if line.strip().startswith("//"):
            continue
        parts = _FIELD.match(line)
        if parts is None:
            raise ValueError(f"layout.h, struct {name}: cannot read the line {line!r}")
        constant, ctype, star, field, length, dims = parts.groups()
        names = tuple(part.strip() for part in dims.split(",")) if dims and star else ()
        fields[field] = Field(field, ctype, bool(star), bool(constant), int(length) if length else None, names, field)
    return fields


def flat_fields(text: str, name: str) -> dict[str, Field]:
    """Read the fields of a struct as `parse_struct` does, and in place of a struct that it holds that one's."""
    fields: dict[str, Field] = {}
    for field in parse_struct(text, name).values():
        inner = {} if field.ctype in _TYPES else flat_fields(text, field.ctype)
        fields |= {key: dataclasses.replace(each, path=f"{field.name}.{each.path}") for key, each in inner.items()}
        fields |= {} if inner else {field.name: field}
    return fields


def parse_constants(text: str) -> dict[str, int]:
    """Read the `constexpr int kName = value;` lines of the header, with values such as `7` and `1 << 20`."""
    lines = re.findall(r"constexpr int (k\w+) = (\d+)(?: << (\d+))?;", text)
    return {name: int(value) << int(shift or 0) for name, value, shift in lines}


def parse_enums(text: str) -> dict[str, dict[str, int]]:
    """Read the enums of the header: of each, the values by name, so that `kMarkMid` of `enum Mark` is `"mid"`."""
    enums = {}
    for enum, body in re.findall(r"^enum (\w+) \{\s(.*?)\s\};", text, re.MULTILINE | re.DOTALL):
        members = re.findall(rf"k{enum}(\w+) = (-?\d+)", body)
        if len(members) != body.count("="):
            raise ValueError(f"layout.h, enum {enum}: cannot read {body!r}, names begin with k{enum}")
        enums[enum] = {re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower(): int(value) for name, value in members}
    return enums


def parse_numbers(text: str) -> dict[str, tuple[int, ...]]:
    """Read the arrays of constants in a header: `constexpr int32_t kName[...] = {1, 2};`."""
    arrays = re.findall(r"constexpr int32_t (k\w+)\[\w+\] = \{([-\d, ]+)\};", text)
    return {name: tuple(map(int, numbers.split(","))) for name, numbers in arrays}


def structure(name: str, fields: Mapping[str, Field], nested: Mapping[str, type]) -> type[ctypes.Structure]:
    """Make the ctypes structure of a struct, given those of the structs that it holds."""
    members: list[tuple[str, Any]] = []
    for field in fields.values():
        kind: Any = ctypes.c_void_p if field.pointer else (nested.get(field.ctype) or _TYPES[field.ctype][0])
        members.append((field.name, kind * field.length if field.length else kind))
    return type(name, (ctypes.Structure,), {"_fields_": members})


_TEXT = (cuda_dir() / "model" / "layout.h").read_text()
CONSTANTS = parse_constants(_TEXT)
ENUMS = parse_enums(_TEXT)
SERIES = list(ENUMS["Series"])[: ENUMS["Series"]["best_bid"]]  # what a run can record, per auction,
FURTHER_SERIES = list(ENUMS["Series"])[len(SERIES) :]  # and what it takes time to record
OFFSETS = parse_numbers((cuda_dir() / "model" / "tasks.h").read_text())  # of discrete actions, ticks
_PARAMS = flat_fields(_TEXT, "MarketParams")  # all int32; an array is padding
PARAMS_FIELDS = {name: field for name, field in _PARAMS.items() if not field.length}
PARAMS_INTS = sum(field.length or 1 for field in _PARAMS.values())  # of a row; the padding comes last, and is 0
REGIME_FIELDS = parse_struct(_TEXT, "RegimeParams")
TASK_FIELDS = parse_struct(_TEXT, "TaskParams")
AGENT_CLASS_FIELDS = parse_struct(_TEXT, "AgentClass")
SLOT_POLICY_FIELDS = parse_struct(_TEXT, "SlotPolicy")
ROLLOUT_FIELDS = parse_struct(_TEXT, "Rollout")
LAUNCH_FIELDS = parse_struct(_TEXT, "Launch")
TaskParams = structure("TaskParams", TASK_FIELDS, {})
AgentClass = structure("AgentClass", AGENT_CLASS_FIELDS, {})
SlotPolicy = structure("SlotPolicy", SLOT_POLICY_FIELDS, {})
Rollout = structure("Rollout", ROLLOUT_FIELDS, {})
Launch = structure(
    "Launch",
    LAUNCH_FIELDS,
    {"TaskParams": TaskParams, "AgentClass": AgentClass, "SlotPolicy": SlotPolicy, "Rollout": Rollout},
)


def observation_length(queues: bool, extras: int = 0, orders_per_side: int = 1) -> int:
    """Return F, how many numbers a row of observations has.

    With places in queues, columns of further levels of ladders, and columns of `enum Extra`.
    """
    of_levels = (orders_per_side - 1) * CONSTANTS["kLevelFeatures"]
    return CONSTANTS["kObservation"] + (CONSTANTS["kQueueFeatures"] if queues else 0) + of_levels + extras


def info_rows(slots: int, rejects: bool = False) -> int:
    """Return I, how many rows `Launch.info` has: those of the market, then those of each slot.

    `rejects`: whether quotes of actions may be rejected, so that each slot has rows of that: they may keep quotes, or
    are ladders.
    """
    return CONSTANTS["kMarketInfos"] + slots * (CONSTANTS["kSlotInfos"] + rejects * CONSTANTS["kKeepInfos"])


def ladder_sizes(orders_per_side: int) -> dict[str, tuple[int, ...]]:
    """Return the axes of ladders: N of what is submitted, O of what stands, with two places in queues."""
    one = orders_per_side == 1
    return {"N": () if one else (orders_per_side,), "O": () if one else (orders_per_side, 2)}


def levels_of_ladders(sizes: Sizes) -> int:
    """Return how many levels each slot's ladder has, given what `ladder_sizes` returned."""
    return sizes["N"][0] if sizes["N"] else 1


@torch.inference_mode(False)  # tensors made in inference mode cannot be written to outside of it
def allocate(names: Sequence[str], sizes: Sizes, device: torch.device) -> dict[str, torch.Tensor]:
    """Return zeroed tensors for the named fields of `Launch`."""
    return {
        name: torch.zeros(LAUNCH_FIELDS[name].shape(sizes), dtype=LAUNCH_FIELDS[name].dtype, device=device)
        for name in names
    }


class LiveTensors(dict[str, torch.Tensor]):
    """Tensors that an engine works on, by name; a mapping that cannot be changed, of tensors that can.

    An engine knows where these very tensors lie: another one put in their place would not be the engine's. Write into
    them instead. `dict(tensors)` is an ordinary copy of the mapping.
    """

    def __setitem__(self, name: str, tensor: torch.Tensor) -> None:
        """Take back the very tensor that is there, as `tensors[name] += 1` does; refuse any other."""
        if self.get(name) is not tensor:
            self._refuse(name)

    def _refuse(self, *given: Any, **named: Any) -> Any:
        name = repr(given[0]) if given and isinstance(given[0], str) else "..."
        raise TypeError(
            f"tensors: expected values written into the tensor that is there, as in tensors[{name}].copy_(values), or "
            f"load_state_dict for a whole state, got another entry for {name}"
        )

    __delitem__ = __ior__ = update = setdefault = pop = popitem = clear = _refuse  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle as an ordinary dict."""
        return dict, (dict(self),)
