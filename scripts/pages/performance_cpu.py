"""The C++ engine on docs/performance.md: its rates, and what auctions consist of; scripts.pages.performance asks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from scripts.pages.markdown import wrapped
from scripts.pages.performance_rows import Figures, events, number_table, rate

CORES = "paper, 256 agents", "trading, 20 agents"  # rows of one core that the pages compare


def cores(figures: Figures) -> str:
    """Return the rates of the C++ engine."""
    names = (
        "paper, 256 agents",
        "paper, 1024 agents",
        "paper, 16 agents",
        "paper, 256 agents, 1024 levels",
        "trading, 256 agents",
        "trading, 20 agents",
    )
    heads = ["preset, agents", *(re.sub(r"1024", "1,024", name.replace(" agents", "")) for name in names)]
    cells = [rate(events(figures, f"{name}, one core", "cpu"), 1e6) for name in names]
    both, oracle = (events(figures, f"paper, 256 agents, {what}", "cpu") for what in ("two cores", "NumPy"))
    rates = [figures["cpu", f"{task}, 1024 markets, one core"]["steps_per_s"] for task in ("MarketMaking", "Execution")]
    cpu = figures["cpu", "paper, 256 agents, one core"]["cpu"]
    intro = f"Agent-events per second on one core of the same machine ({cpu}), one thread, the shortest run:"
    outro = (
        f"1,024 environments do {rates[0] / 1e6:.2f} M steps/s on one core (execution {rates[1] / 1e6:.2f} M). On two "
        f"cores the engine does {rate(both, 1e6)} events/s, {both / oracle:.0f} times the NumPy engine in the same run "
        f"({rate(oracle)})."
    )
    return "\n\n".join([wrapped(intro), number_table(heads, [["events/s", *cells]]), wrapped(outro)])


def parts(counts: Mapping[str, Any]) -> str:
    """Return what an auction of the C++ engine consists of, in instructions, and why presets differ per event."""
    found = counts["counts"]
    totals = {name: sum(values.values()) for name, values in found.items()}
    agents = {name: int(re.findall(r"(\d+) agents", name)[0]) for name in found}
    paper, trading = CORES
    own = {
        name: sum(values[part] for part in ("agents' random words", "agents' orders")) for name, values in found.items()
    }
    even = f"{trading}, rounding even"
    rows = [
        [part, *(f"{values[part]:,.0f}" for values in found.values())]
        for part in found[trading]
        if any(values[part] for values in found.values())
    ]
    rows.append(["all", *(f"{total:,.0f}" for total in totals.values())])
    rows.append(["all, per event", *(f"{total / agents[name]:.1f}" for name, total in totals.items())])
    intro = (
        f"**Why `trading` does fewer events/s than `paper`.** An auction of `trading` with 20 agents is "
        f"{totals[trading]:,.0f} instructions, one of `paper` with 256 agents {totals[paper]:,.0f}; per event that is "
        f"{totals[trading] / 20:.0f} and {totals[paper] / 256:.0f}. Agents are {own[trading] / totals[trading]:.0%} of "
        f"the former and {own[paper] / totals[paper]:.0%} of the latter. The rest is the auction's own, and 20 events "
        f"share it instead of 256. In `trading` it is more, too: clearing goes over the ticks of orders up to 14 ticks "
        f"from the mid, where `paper` has 3, and over the whole grid where these do not decide; cancellation takes a "
        f"random word for every two ticks with orders. With 256 agents `trading` is at "
        f"{totals['trading, 256 agents'] / 256:.0f} instructions per event. The coin is "
        f"{totals[trading] / totals[even] - 1:.0%} of an auction."
    )
    outro = (
        "Counted by `python -m scripts.benchmarks.auction_parts` "
        "([auction_parts.json](benchmarks/auction_parts.json)): valgrind counts the instructions that "
        f"{counts['compiler']} made; a part has those of its functions, inlined or not."
    )
    return "\n\n".join([wrapped(intro), number_table(["instructions per auction", *found], rows), wrapped(outro)])
