"""The section on the default market of docs/performance.md, and its part of README.md; scripts.pages.performance asks.

Both are empty until rows of the group `default` have been measured; a row that is missing is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kineticsim_env import MarketConfig
from kineticsim_env.envs.settings import EnvSettings
from scripts.benchmarks.performance import PLAYED, SIZES
from scripts.pages.markdown import wrapped
from scripts.pages.performance_rows import Figures, micro, number_table, rate, source

GROUP, PRESET = "default", EnvSettings.preset
TASKS = {  # names of rows
    "MarketMaking": "MarketMaking",
    "Execution": "Execution",
    "Trading": "Trading",
    "five learners": "five learners of four roles",
}
FUNCTIONS = {
    "opponents": "with three opponents that are torch functions",
    "programs": "with three opponents that are [programs](slot_policies.md)",
    "reward": "with a custom reward",
}
CORES = "one core", "two cores"
LARGE = 1024, 16384, 65536
SLOWER = 1 / 1.03  # what a row's rate may fall to


def default(figures: Figures) -> str:
    """Return the section, or nothing where the group has not been measured."""
    if not any(group == GROUP for group, _ in figures):
        return ""
    what = (
        f"Environments that are made without a `preset` or `config` play in `{PRESET}` ([what it "
        f"is](../examples/studies/presets/README.md#{PRESET})). {_step()} So neither times nor rates are to be "
        "compared with those of the call auctions below. A *run* is the same markets without an environment: "
        "nobody acts, observes or is rewarded."
    )
    how = (
        f"Measured by `python -m scripts.benchmarks.performance --groups {GROUP}` ({source(figures, GROUP)}). Steps "
        'are of market makers where nothing else is said, with `output="torch"`, `copy=False` and random actions that '
        "were drawn before. In CUDA graphs a time is the mean over three episodes, after three, so what ends of "
        "episodes and an execution's deadline cost has its share in it; from Python, over 200 steps; in runs, over 100 "
        "intervals. Each figure is the best of five or more. Kernels have the parameters compiled in."
    )
    shared = (
        "The processor is a part of a host that others use, too, so rates of its two cores are lower than they could "
        "be: [environments](environments/index.md) have those of a machine with nothing beside it."
    )
    tables = [sizes(figures), tasks(figures), called(figures), rollouts(figures), evaluations(figures), cores(figures)]
    return "\n\n".join(["## The default market", wrapped(what), wrapped(how), *filter(None, tables), wrapped(shared)])


def changes(figures: Figures, before: Figures) -> str:
    """Return what rows on a GPU took before and take now, of those that both have; both give the same bits.

    Rows of the default market are a table. Of all others it says between which times they lie, and which are slower.
    """
    rows, others, groups = [], {}, set()
    for group, name in before:
        was, now = before[group, name], figures.get((group, name), {})
        if not now or name.partition(", ")[2] in (*CORES, *map(_core, CORES)):
            continue
        if was["digest"] != now.get("digest", was["digest"]):
            raise ValueError(f"{group}, {name}: other bits than before")
        times = [row.get("us_per_step") or row["us_per_auction"] for row in (was, now)]
        if group == GROUP:
            rows.append([name, *map(micro, times), f"{times[0] / times[1]:.2f}"])
        else:
            others[f"`{group}`, {name}"] = times[0] / times[1]
            groups.add(group)
    text = (
        f"Before ([before_h200.json](benchmarks/before_h200.json)): {source(before, GROUP)}. Now: "
        f"{source(figures, GROUP)}. The bits are the same in every row."
    )
    table = _table(["step, or interval of a run", "before", "now", "times"], rows)
    if not others:
        return "\n\n".join([wrapped(text), table])
    slower = [f"{name} ({times:.2f})" for name, times in sorted(others.items()) if times < SLOWER]
    rest = (
        f"The {len(others)} rows on a GPU of {', '.join(f'`{group}`' for group in sorted(groups))}, before and after "
        f"in one call on one machine, too, have the same bits and are {min(others.values()):.2f} to "
        f"{max(others.values()):.1f} times as fast. Slower by more than 3%: {'; '.join(slower) or 'none'}. Calls "
        "from Python depend on a processor that others use, too."
    )
    return "\n\n".join([wrapped(text), table, wrapped(rest)])


def readme_part(figures: Figures, trained: Sequence[Sequence[str]] = ()) -> tuple[str, list[Sequence[str]]]:
    """Return what is said first of the README's figures, and their first rows, those of training last, or nothing."""
    steps, large, core = (_row(figures, f"MarketMaking, {at}") for at in ("65536 markets", "1024 markets", _core()))
    run, core_run = _row(figures, "run, 65536 markets"), _row(figures, f"run, {CORES[0]}")
    live = _row(figures, "MarketMaking, 1024 markets, Python, copy=False")

    def on_core(row: Mapping[str, Any], what: str) -> str:
        return f"{rate(row[what])} ({CORES[0]})" if row else ""

    rows = [
        ["environment steps/s, 65,536 markets in a CUDA graph", _rate(steps), on_core(core, "steps_per_s")],
        ["orders/s, 65,536 markets without an environment", _rate(run), on_core(core_run, "events_per_s")],
        ["one step of 1,024 markets in a CUDA graph", _micro(large), ""],
        ["the same from Python", _micro(live), ""],
        *trained,
    ]
    rows = [row for row in rows if any(row[1:])]
    said = f"The default market, `{PRESET}`, unless another is named. {_step()}"
    return (said, rows) if rows else ("", [])


def sizes(figures: Figures) -> str:
    """Return what steps and runs of one to very many markets take."""
    rows = []
    for markets in SIZES:
        step, run = (_row(figures, f"{what}, {markets} markets") for what in ("MarketMaking", "run"))
        rows.append([f"{markets:,}", _micro(step), _rate(step), _micro(run), _rate(run)])
    return _table(["markets", "one step", "steps/s", "one interval of a run", "orders/s"], rows)


def tasks(figures: Figures) -> str:
    """Return what steps of each task take."""
    rows, times = [], ["Execution, times MarketMaking"]
    for name, what in TASKS.items():
        found = [_row(figures, f"{name}, {markets} markets") for markets in LARGE]
        rows.append([what, *(f"{_micro(row)} ({_rate(row)})" if row else "" for row in found)])
    for markets in LARGE:
        late, plain = (_row(figures, f"{task}, {markets} markets") for task in ("Execution", "MarketMaking"))
        times.append(f"{late['us_per_step'] / plain['us_per_step']:.2f}" if late and plain else "")
    return _table(["one step in a graph (steps/s)", *(f"{at:,} markets" for at in LARGE)], [*rows, times])


def called(figures: Figures) -> str:
    """Return what a step takes from Python, and what functions of torch add to it."""
    places = [(markets, way) for markets in (1024, 65536) for way in ("", ", Python, copy=False")]
    plain = [_row(figures, f"MarketMaking, {markets} markets{way}") for markets, way in places]
    copied = [_row(figures, f"MarketMaking, {at} markets, Python, copy=True") if way else {} for at, way in places]
    rows = [["by itself", *map(_micro, plain)], ["with `copy=True`", *map(_micro, copied)]]
    for name, what in FUNCTIONS.items():
        found = [_row(figures, f"{name}, {markets} markets{way}") for markets, way in places]
        rows.append([what, *(_added(row, before) for row, before in zip(found, plain, strict=True))])
    heads = [f"{at:,} markets, {'Python' if way else 'graph'}" for at, way in places]
    return _table(["one step (and what is added, in us)", *heads], rows)


def inside(figures: Figures, file: str) -> str:
    """Return what policies in the launch cost, of a file of its own: beside steps and runs of the same call."""
    named = f"[{file}](benchmarks/{file}), {source(figures, GROUP)}"
    what = f"Policies inside the launch, measured in one call ({named}), so with steps and runs of their own:"
    return "\n\n".join([wrapped(what), *filter(None, [rollouts(figures), called(figures), evaluations(figures)])])


def rollouts(figures: Figures) -> str:
    """Return what a decision takes in a rollout with a network inside, beside a step and an interval of a run."""
    rows = []
    for preset in (PRESET, "trading"):
        other = "" if preset == PRESET else f"{preset}, "
        kinds = {"rollout": "a network inside a rollout", "MarketMaking": "a step, actions given", "run": "a run"}
        found = {kind: [_row(figures, f"{other}{kind}, {markets} markets") for markets in PLAYED] for kind in kinds}
        if not any(found["rollout"]):
            continue
        for kind, what in kinds.items():
            rows.append([f"`{preset}`, {what}", *map(_decisions, found[kind])])
        pairs = zip(found["rollout"], found["MarketMaking"], strict=True)
        times = (f"{step['us_per_step'] / own['us_per_step']:.2f}" if step and own else "" for own, step in pairs)
        rows.append([f"`{preset}`, a rollout's rate, times that of steps", *times])
    table = _table(["one decision (decisions/s)", *(f"{markets:,} markets" for markets in PLAYED)], rows)
    how = (
        "A [rollout](rollouts.md) has two networks of two layers of 64 inside its launch of 32 decisions, and records "
        "what training needs; a step is given its actions."
    )
    return f"{table}\n\n{wrapped(how)}" if table else ""


def evaluations(figures: Figures) -> str:
    """Return the seconds that evaluations of scripted makers take."""
    named = {name.removeprefix("evaluate, "): row for (_, name), row in figures.items() if name.startswith("evaluate,")}
    seconds = {name: row["seconds"] for name, row in named.items() if "seconds" in row}
    if not seconds:
        return ""
    markets = max(row["markets"] for row in named.values())
    cells = [[name, f"{taken:.3f}"] for name, taken in seconds.items()]
    heads = [f"`evaluate` of a scripted maker, {markets:,} held-out episodes", "seconds, compiled before"]
    return number_table(heads, [*cells, ["all", f"{sum(seconds.values()):.2f}"]])


def cores(figures: Figures) -> str:
    """Return the rates of the C++ engine."""
    rows = []
    for name in CORES:
        run, step = _row(figures, f"run, {name}"), _row(figures, f"MarketMaking, {_core(name)}")
        rows.append([name, _rate(run), _rate(step)])
    return _table(["C++ engine", "orders/s, 256 markets without an environment", "steps/s, 1,024 markets"], rows)


def _step() -> str:
    config = MarketConfig.preset(PRESET)
    return (
        f"A step is an interval of {config.interval} orders, each matched against the order book when it comes, and "
        "not one auction of all orders."
    )


def _core(name: str = CORES[0]) -> str:
    return f"1024 markets, {name}"


def _row(figures: Figures, name: str) -> Mapping[str, Any]:
    return figures.get((GROUP, name), {})


def _micro(row: Mapping[str, Any]) -> str:
    return micro(row["us_per_step"] if "us_per_step" in row else row["us_per_auction"]) if row else ""


def _rate(row: Mapping[str, Any]) -> str:
    return rate(row["steps_per_s"] if "steps_per_s" in row else row["events_per_s"]) if row else ""


def _decisions(row: Mapping[str, Any]) -> str:
    """Return the time of a step, or of an interval of a run, and how many there are per second in all markets."""
    if not row:
        return ""
    taken = row["us_per_auction"] if row["kind"] == "Auctions" else row["us_per_step"]
    return f"{micro(taken)} ({rate(row['markets'] * 1e6 / taken)})"


def _added(row: Mapping[str, Any], plain: Mapping[str, Any]) -> str:
    return f"{_micro(row)} ({row['us_per_step'] - plain['us_per_step']:+.1f})" if row and plain else _micro(row)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of the rows in which there is anything, or nothing."""
    rows = [row for row in rows if any(row[1:])]
    return number_table(heads, rows) if rows else ""
