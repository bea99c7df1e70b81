"""Policies of slots in the language of traders: `ks.policy` makes one of a function.

    @ks.policy(half_spread=2)
    def maker(market, slot, own, draw):
        low, high = market.mid2 >> 1, (market.mid2 + 1) >> 1
        return ks.quote(low - own.half_spread, slot.max_qty, high + own.half_spread, slot.max_qty)

What may be written is language.py's, as of `ks.agent`; docs/slot_policies.md has the names. Environments take them as
opponents, and `EnvCore.set_slot_policies` gives any slot one. The C++ text is included behind cuda/model/programs.h.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from kineticsim_env.agents.language import Program, read
from kineticsim_env.agents.mixes import Fixed, whole32
from kineticsim_env.agents.vocabulary import DRAWS, SEEN, Vocabulary, no_order, order, own_in_cpp
from kineticsim_env.runtime.values import check_choice, check_flag, show

INFORMED = "fundamental"  # what policies see that are declared informed
OF_SLOT = (
    "inventory", "cash", "bought", "sold", "elapsed", "left", "remaining", "side", "arrival2", "max_qty", "max_offset",
    "max_quote_qty", "inventory_limit",
)  # fmt: skip
BY_NUMBER = (
    "bid",
    "bid_qty",
    "bid_ahead",
    "ask",
    "ask_qty",
    "ask_ahead",
    "mid_change",
    "volume",
)  # methods of the slot
STARTS = ("mid2", "last_price", "inventory")  # what memory can begin with, besides a number
MOST_WORDS = 32  # of memory


def quote(
    bid: int = 0, bid_qty: int = 0, ask: int = 0, ask_qty: int = 0, bid_flags: int = 0, ask_flags: int = 0
) -> tuple[int, ...]:
    """Return a level of a policy's orders; for functions that `ks.policy` takes, which return it.

    Args:
        bid: The bid's price, absolute ticks.
        bid_qty: Its units; 0 is no order.
        ask: The ask's price.
        ask_qty: Its units.
        bid_flags: A sum of `ks.OrderFlag`, under continuous trading; elsewhere it means nothing.
        ask_flags: Likewise.
    """
    return bid, bid_qty, ask, ask_qty, bid_flags, ask_flags


def quotes(*levels: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Return a ladder of levels, each `ks.quote(...)`, for functions that `ks.policy` takes; those behind are empty."""
    return levels


def keep() -> str:
    """Return what leaves all that stands as it is, for functions that `ks.policy` takes."""
    return "keep"


class ProgramPolicy:
    """A policy of a slot: a function, its parameters and its memory.

    Attributes:
        name: The function's name.
        parameters: int32 numbers by name, or read-only int32 arrays `[M]` of one per market.
        memory: What each word begins an episode with: a number, or a name of what is seen.
        informed: Whether it sees the fundamental price.
        program: The function as C++ and as itself on numbers that wrap.
    """

    def __init__(
        self, function: Callable[..., Any], parameters: Mapping[str, Any], memory: Mapping[str, Any], informed: bool
    ) -> None:
        """Check a declaration; see `policy`."""
        self.name, self.__doc__ = getattr(function, "__name__", show(function)), function.__doc__
        self.informed = check_flag(f"{self.name}: informed", informed)
        self.parameters = Fixed({name: whole32(f"{self.name}.{name}", value) for name, value in parameters.items()})
        self.memory = Fixed({name: self._start(name, value) for name, value in memory.items()})
        if twice := sorted(set(self.parameters) & set(self.memory)):
            raise ValueError(f"{self.name}: expected a parameter or memory, got {twice[0]!r} as both")
        if len(self.memory) > MOST_WORDS:
            raise ValueError(f"{self.name}: expected up to {MOST_WORDS} words of memory, got {len(self.memory)}")
        words = Vocabulary(
            seen=frozenset((*SEEN, *([INFORMED] if informed else []))),
            hidden=frozenset([] if informed else [INFORMED]),
            prices={},
            parameters=frozenset(self.parameters),
            memory=frozenset(self.memory),
            draws=DRAWS,
            chances=frozenset({"chance"}),
            order=order,
            no_order=no_order,
            slot=frozenset(OF_SLOT),
            of_slot=dict.fromkeys(BY_NUMBER, 1),
            quote=quote,
            quotes=quotes,
            keep=keep,
        )
        self.program: Program = read(function, words)

    def _start(self, name: str, value: Any) -> int | str:
        if isinstance(value, str):
            known = (*STARTS, *([INFORMED] if self.informed else []))
            check_choice(f"{self.name}: memory[{name!r}]", value, known)
            return value
        return whole32(f"{self.name}: memory[{name!r}]", value)

    @property
    def levels(self) -> int:
        """The most levels that its ladder has."""
        return self.program.levels

    def replace(self, **parameters: Any) -> ProgramPolicy:
        """Return the same policy with other parameters: int32 numbers, or arrays `[M]` of one per market.

        Nothing is compiled anew.

        Raises:
            ValueError: If there is no such parameter, or it is no whole number of 32 bits.
        """
        made = copy.copy(self)
        for name in parameters:
            if name not in self.parameters:
                known = ", ".join(self.parameters) or "no parameters"
                raise ValueError(f"{self.name}: expected {known}, got the parameter {name!r}")
        given = {name: _values(f"{self.name}.{name}", value) for name, value in parameters.items()}
        made.parameters = Fixed({**self.parameters, **given})
        return made

    def _of_rows(self, rows: np.ndarray | slice) -> ProgramPolicy:
        """Return the same policy for these markets, int64 `[n]`; itself where no parameter is of each."""
        own = {name: value[rows] for name, value in self.parameters.items() if isinstance(value, np.ndarray)}
        return self.replace(**own) if own else self

    def __repr__(self) -> str:
        """Return its name."""
        return f"<policy {self.name}>"

    def __deepcopy__(self, memo: Any) -> ProgramPolicy:
        """Return itself: nothing of it changes."""
        return self


def _values(name: str, given: Any) -> Any:
    if np.ndim(given) == 0:
        return whole32(name, given)
    array = np.asarray(given)
    for value in array.ravel().tolist():
        whole32(name, value)
    if array.ndim != 1:
        raise ValueError(f"{name}: expected a number or one per market, [M], got an array of shape {list(array.shape)}")
    found = array.astype(np.int32)
    found.flags.writeable = False
    return found


def policy(
    *, memory: Mapping[str, Any] | None = None, informed: bool = False, **parameters: int
) -> Callable[..., ProgramPolicy]:
    """Make a policy of a slot of a function: `@ks.policy(...)` before `def name(market, slot, own, draw)`.

    What the function can use, and what it returns: docs/slot_policies.md. Every engine plays it, with the same bits,
    in the launch of a step.

    Args:
        memory: What it remembers, int32 words by name, with what they begin an episode with: a number, or one of
            `"mid2"`, `"last_price"`, `"inventory"`, `"fundamental"` as its first decision sees it. `own.name` reads
            and writes them.
        informed: Whether it sees `market.fundamental`, which no learner of most tasks does.
        **parameters: int32 numbers by name, `own.name` in the function; `replace` changes them.

    Raises:
        ProgramError: If the function is not in the language: where, and what to write instead.
        TypeError, ValueError: Naming the argument, what came and what is allowed.
    """
    return lambda function: ProgramPolicy(function, parameters, dict(memory or {}), informed)


# As C++ ---------------------------------------------------------------------------------------------------------------


def sees_book(made: ProgramPolicy) -> bool:
    """Return whether a policy looks at best prices or their quantities, which take time to find."""
    return "market.best_" in made.program.text


def text_of_policy(made: ProgramPolicy, number: int) -> str:
    """Return the text of a policy, as `ks::Policy<number>` in namespace `ks`."""
    names = [own_in_cpp(name) for name in (*made.parameters, *made.memory)] or ["none"]
    begin = [start if isinstance(start, int) else _seen_in_cpp(start) for start in made.memory.values()]
    read_parameters = [f"    own.{own_in_cpp(name)} = parameters[{i}];" for i, name in enumerate(made.parameters)]
    words = [own_in_cpp(name) for name in made.memory]
    lines = [
        f"namespace policy_{number} {{",
        "using Market = PolicyMarket;",
        "using Slot = PolicySlot;",
        "using Draw = AgentDraw;",
        "using Order = SlotOrders;",
        "KS_RULE SlotOrders no_order() { return no_orders(); }",
        f"struct Own {{ int32_t {', '.join(names)}; }};",
        made.program.text,
        f"}}  // namespace policy_{number}",
        f"template <> struct Policy<{number}> {{",
        f"  static constexpr int kWords = {len(words)};",
        f"  static constexpr bool kSeesBook = {str(sees_book(made)).lower()};",
        "  static KS_RULE SlotOrders decide(const PolicyMarket& market, const PolicySlot& slot, const AgentDraw& draw,",
        "                                   const int32_t* parameters, const int32_t* memory, int32_t* remembers) {",
        f"    policy_{number}::Own own = {{}};",
        *read_parameters,
        *(
            f"    own.{word} = market.t == 0 ? {start} : memory[{i}];"
            for i, (word, start) in enumerate(zip(words, begin, strict=True))
        ),
        f"    const SlotOrders orders = policy_{number}::{made.program.name}(market, slot, own, draw);",
        *(f"    remembers[{i}] = own.{word};" for i, word in enumerate(words)),
        "    return orders;",
        "  }",
        "};",
    ]
    return "\n".join(lines) + "\n"


def _seen_in_cpp(name: str) -> str:
    return f"{'slot' if name in OF_SLOT else 'market'}.{name}"


def text_of_policies(made: Sequence[ProgramPolicy]) -> str:
    """Return the text that CUDA kernels include: all policies of a market's slots, in their order."""
    texts = "".join(text_of_policy(one, number) for number, one in enumerate(made))
    return f"namespace ks {{\nconstexpr int kPolicies = {len(made)};\n{texts}}}  // namespace ks\n"


def policy_library_text(made: Sequence[ProgramPolicy]) -> str:
    """Return the source of a library for the C++ engine: `ks_policy_N` are the `PolicyFunctions` of every policy."""
    functions = "".join(
        f'extern "C" const ks::PolicyFunctions ks_policy_{number} = ks::kPolicyFunctionsOf<ks::Policy<{number}>>;\n'
        for number in range(len(made))
    )
    return f'#include <cstdint>\n#include "model/programs.h"\n{text_of_policies(made)}{functions}'
