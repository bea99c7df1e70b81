"""The C++ text of classes of agents: what cuda/model/agents.h is included before, for every compiled engine."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from kineticsim_env.agents.classes import AgentClass
from kineticsim_env.agents.vocabulary import OWNED, own_in_cpp

# What compilers call the text behind a user's own C++, and the declaration of its numbers, before the class's name.
AFTER, NAMES = "after", "names in"


@functools.lru_cache(maxsize=4096)
def text_of(kind: AgentClass, number: int) -> str:
    """Return the text of a class, as `ks::Trader<number>` in namespace `ks`."""
    # A user's own C++ has the names as they are; what compilers say of them is told with the class.
    spelled = {
        name: own_in_cpp(name) if kind.cxx is None else name for name in (*OWNED, *kind.parameters, *kind.memory)
    }
    numbers = f"struct Own {{ int32_t {', '.join(spelled.values())}; }};"
    takes = "const Market& market, Own& own, const Draw& draw"
    # Compilers name a user's own lines by the class.
    own = f'\n#line 1 "cxx of {kind.name}"\n{kind.cxx}\n#line 1 "{AFTER} cxx of {kind.name}"\n'
    if kind.cxx is not None:
        numbers = f'#line 1 "{NAMES} cxx of {kind.name}"\n{numbers}'
    body = kind.program.text if kind.cxx is None else f"KS_RULE Order decision({takes}) {{{own}}}\n"
    called = kind.program.name if kind.cxx is None else "decision"
    read = [f"    own.{spelled[name]} = numbers.parameter({i}, agent);" for i, name in enumerate(kind.parameters)]
    words = [(name, f"numbers.word({i}, agent)") for i, name in enumerate(kind.memory)]
    starts = [
        f"    {place} = {start if isinstance(start, int) else f'market.{start}'};"
        for (_, place), start in zip(words, kind.memory.values(), strict=True)
    ]
    lines = [
        f"namespace trader_{number} {{",
        "using Market = AgentView;",
        "using Draw = AgentDraw;",
        "using Order = AgentOrder;",
        numbers,
        body,
        f"}}  // namespace trader_{number}",
        f"template <> struct Trader<{number}> {{",
        f"  static constexpr bool kRemembers = {str(bool(kind.memory)).lower()};",
        f"  static constexpr bool kSeesBook = {str(sees_book(kind)).lower()};",
        "  static KS_RULE AgentOrder decide(const AgentView& market, const AgentDraw& draw, int32_t first,",
        "                                   const AgentNumbers& numbers, int32_t agent) {",
        f"    trader_{number}::Own own;",
        f"    own.{spelled[OWNED[0]]} = first + agent;",
        *read,
        *(f"    own.{spelled[name]} = {place};" for name, place in words),
        f"    AgentOrder order = trader_{number}::{called}(market, own, draw);",
        f"    order.quantity = min_of(order.quantity, {kind.largest_order});",
        *(f"    {place} = own.{spelled[name]};" for name, place in words),
        "    return order;",
        "  }",
        "  static KS_RULE void begin(const AgentView& market, const AgentNumbers& numbers, int32_t agent) {",
        *starts,
        "  }",
        "};",
    ]
    return "\n".join(lines) + "\n"


def sees_book(kind: AgentClass) -> bool:
    """Return whether a class looks at best prices or their quantities, which take time to find."""
    seen = (kind.cxx or kind.program.text) + " ".join(f"market.{start}" for start in kind.memory.values())
    return "market.best_" in seen


def text_of_all(kinds: Sequence[AgentClass]) -> str:
    """Return the text that CUDA kernels include: all classes of a market, in their order."""
    texts = "".join(text_of(kind, number) for number, kind in enumerate(kinds))
    return (
        f"namespace ks {{\ntemplate <int kNumber> struct Trader;\nconstexpr int kTraders = {len(kinds)};\n{texts}"
        "}  // namespace ks\n"
    )


def library_text(kinds: Sequence[AgentClass]) -> str:
    """Return the source of a library for the C++ engine: `ks_functions_N` are the `AgentFunctions` of every class."""
    functions = "".join(
        f'extern "C" const ks::AgentFunctions ks_functions_{number} = ks::kFunctionsOf<ks::Trader<{number}>>;\n'
        for number in range(len(kinds))
    )
    return f'#include <cstdint>\n#include "model/agents.h"\n{text_of_all(kinds)}{functions}'
