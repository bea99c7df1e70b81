"""The section on markets on the clock of docs/performance.md; scripts.pages.performance asks.

It is empty until the group `clock` has been measured.
"""

from __future__ import annotations

import json

from scripts.pages.markdown import wrapped
from scripts.pages.performance_rows import Figures, events, met, micro, number_table, rate, source
from scripts.pages.provenance import ROOT

SHAPES = ("trading", 20), ("trading", 64), ("paper", 256)  # presets and agents
MARKETS = 1024, 65536, 1 << 18
JAX_LOB = ROOT / "docs" / "benchmarks" / "jax_rates.json"  # messages/s of its book
# Goals: orders/s by shape, share of "each", microseconds per interval, steps/s, orders/s of a core.
ORDERS = {("trading", 64): 40e9, ("paper", 256): 100e9}
CORE_SHAPE = "trading, 20 agents, one core"
SHARE, INTERVAL, STEPS, CORE = 0.65, 30.0, 0.4e9, 50e6

INTRO = (
    "Agents come one after another, and an event is one order. Markets have the preset's parameters and, under "
    "continuous trading, the coin; an interval has as many events as there are agents. Kernels have the parameters "
    "compiled in. Rates are the best of several runs of 100 intervals, after 200. Steps are of market makers, with "
    '`output="torch"` and `copy=False`: 192 in a row from CUDA graphs, with eight sets of random actions in turn.'
)
BOUND = (
    "**What bounds continuous trading.** Each lane has a market of its own and matches one order after another. A warp"
    " executes 221 instructions to bring one order to each of its lanes, as Nsight Compute counted for `paper`: 33 for"
    " one and a half hashes, 42 for what is drawn from them, 56 for a price and what rests at it, 51 per turn of the "
    "loop in which orders trade, one turn per tick. Lanes differ in how many ticks their orders take: per order a warp"
    " takes 1.76 turns, in which 9 of its 32 lanes take part. Registers leave 16 warps per multiprocessor, which use "
    "60% of its issue slots; a third of their waits is for the instruction before, an eighth for shared memory. With "
    "1,024 markets there are 32 warps for 132 multiprocessors, and what counts is how long one order takes."
)
LOB = (
    "The book of JAX-LOB, of 100 orders per side, was timed on an H200 too, [beside environments of JAX](jax.md#rates):"
    " {few:.2f} M messages/s with 1,024 books and {many:.2f} M with 65,536. It is given its messages and keeps every "
    "order; here the kernel draws the orders, and what built-in agents have at a tick is one number. In 65,536 markets "
    "64 agents submit {times:,.0f} times as many orders/s as it takes messages."
)
LOG = "performance_log.md#markets-on-the-clock"


def clock(figures: Figures) -> str:
    """Return the section, or nothing where the group has not been measured."""
    if not measured(figures):
        return ""
    intro = (
        f"{INTRO} Measured by `python -m scripts.benchmarks.performance --groups clock` ({source(figures, 'clock')}); "
        "goals that are reached are in bold."
    )
    lob = json.loads(JAX_LOB.read_text())["rates"]["JAX-LOB"]
    times = of(figures, "continuous, trading, 64 agents") / lob["65536"]
    compared = LOB.format(few=lob["1024"] / 1e6, many=lob["65536"] / 1e6, times=times)
    parts = [goals(figures), wrapped(BOUND), wrapped(compared), orders(figures), mechanisms(figures), steps(figures)]
    return "\n\n".join(["## Markets on the clock", wrapped(intro), *parts])


def measured(figures: Figures) -> bool:
    """Say whether there are rows of the group."""
    return any(group == "clock" for group, _ in figures)


def of(figures: Figures, name: str) -> float:
    """Return the events per second of a row."""
    return events(figures, name, "clock")


def share(figures: Figures, shape: str) -> float:
    """Return the rate of calls on the clock over that of the same market where each agent comes once."""
    return of(figures, f"call, {shape}") / of(figures, f"each, {shape}")


def goals(figures: Figures) -> str:
    """Return the goals beside what was measured."""
    rows = []

    def row(what: str, goal: str, found: str, reached: bool, bound: str) -> None:
        rows.append([what, goal, met(found, reached), bound])

    for (preset, agents), goal in ORDERS.items():
        found = of(figures, f"continuous, {preset}, {agents} agents")
        what = f"continuous trading, preset `{preset}`, {agents} agents, 65,536 markets, orders/s"
        row(what, rate(goal), rate(found), found >= goal, "instructions, of lanes that differ")
    few = figures["clock", "continuous, trading, 20 agents, 1024 markets"]["us_per_auction"]
    what = "continuous trading, one interval of 20 orders in a run, 1,024 markets"
    row(what, micro(INTERVAL), micro(few), few <= INTERVAL, "latency: orders one after another on one warp")
    rates = figures["clock", "continuous, steps, 65536 markets"]["steps_per_s"]
    alone = of(figures, "continuous, trading, 20 agents, one slot") / 20
    what = "continuous trading, environment steps/s, 20 agents, 65,536 markets"
    bound = f"what is not orders: a run with a slot does {rate(alone)} intervals/s"
    row(what, rate(STEPS), rate(rates), rates >= STEPS, bound)
    core = of(figures, f"continuous, {CORE_SHAPE}")
    what = "continuous trading, C++ engine, one core, preset `trading`, 20 agents, orders/s"
    bound = "one chain: an order needs the book that the one before it left"
    row(what, rate(CORE), rate(core, 1e6), core >= CORE, bound)
    for preset, agents in SHAPES:
        found = share(figures, f"{preset}, {agents} agents")
        what = f'call on the clock, preset `{preset}`, {agents} agents, 65,536 markets, share of the rate of `"each"`'
        bound = "three hashes for two orders instead of two; classes mixed in a warp"
        row(what, f"{SHARE}", f"{found:.2f}", found >= SHARE, bound)
    rows.append(
        ["all else, with levers off, beside the version before", "3% slower at most", f"[in the log]({LOG})", ""]
    )
    return number_table(["what", "goal", "measured", "bound by"], rows)


def orders(figures: Figures) -> str:
    """Return the rates of continuous trading."""
    heads = ["continuous trading, orders/s", "65,536 markets", "262,144 markets"]
    rows = []
    for shape in ("trading, 20 agents", "trading, 20 agents, one slot", "trading, 64 agents", "paper, 256 agents"):
        more = figures.get(("clock", f"continuous, {shape}, 262144 markets"))
        second = rate(more["events_per_s"]) if more else ""
        rows.append([f"`{shape.replace(',', '`,', 1)}", rate(of(figures, f"continuous, {shape}")), second])
    return "\n\n".join([number_table(heads, rows), "The slot has no quotes in these runs. In steps it quotes."])


def mechanisms(figures: Figures) -> str:
    """Return the rates of call auctions on the clock beside those where each agent comes once per auction."""
    heads = ["call auctions, orders/s, 65,536 markets", '`"each"`', "on the clock", "share"]
    rows = []
    for shape in (*(f"{preset}, {agents} agents" for preset, agents in SHAPES), CORE_SHAPE):
        unit = 1e6 if "core" in shape else 0.0
        rates = (rate(of(figures, f"{name}, {shape}"), unit) for name in ("each", "call"))
        rows.append(
            [
                f"`{shape.replace(',', '`,', 1)}" + ", 256 markets" * ("core" in shape),
                *rates,
                f"{share(figures, shape):.2f}",
            ]
        )
    return number_table(heads, rows)


def steps(figures: Figures) -> str:
    """Return the rates of environment steps."""
    rows = []
    for name, what in (("continuous", "continuous trading"), ("call", "call auctions on the clock")):
        found = [figures["clock", f"{name}, steps, {markets} markets"] for markets in MARKETS]
        rows.append([what, *(f"{rate(row['steps_per_s'])} ({micro(row['us_per_step'])})" for row in found)])
    return number_table(["environment steps/s, 20 agents, one slot", *(f"{at:,} markets" for at in MARKETS)], rows)
