"""Tables and figures from a file of measurements alone: `python -m scripts.benchmarks report FILE --output FOLDER`.

Writes `tables.md` and, through report_figures.py, the pictures that it shows. `summary` is what the terminal gets.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kineticsim_env import plots
from kineticsim_env.runtime.files import check_folder, replacing
from scripts.benchmarks import paper_figures, report_figures
from scripts.benchmarks.environment_rate import OWN_REWARD
from scripts.benchmarks.measured import AXIS, Measured, Row, in_figures, in_markdown, in_one_line
from scripts.benchmarks.measurements import load
from scripts.pages.markdown import table


def write(path: str | Path, output: str | Path) -> list[Path]:
    """Write the tables and figures of a file of measurements to a folder; returns what was written."""
    data = load(path)
    plots.require_matplotlib()
    folder = Path(output)
    check_folder("--output", folder)
    pictures = report_figures.draw(Measured(data, in_figures), folder)
    measured = Measured(data, in_markdown)
    sections = [_title(measured, in_markdown(Path(path).name)), *_sections(measured)]
    sections += [f"## Figures\n\n{_pictures(pictures)}"] if pictures else []
    page = folder / "tables.md"
    with replacing(page) as part:
        part.write_text("\n\n".join(sections) + "\n")
    return [page, *pictures]


def summary(data: dict[str, Any]) -> str:
    """Return a table for the terminal: agent-events/s of every backend at every point that was measured."""
    measured = Measured(data, in_one_line)
    lines: list[str] = []
    for sweep in dict.fromkeys(row["sweep"] for row in measured.rows):
        points, names, axis = measured.by_point(sweep), measured.names(sweep), AXIS.get(sweep, "markets")
        if not names:
            continue
        column = "env_steps_per_s" if sweep.startswith("env") else "events_per_s"
        unit = "environment steps/s" if sweep.startswith("env") else "agent-events/s"
        lines += ["", f"{sweep}: {unit}, {_fixed_shape(measured.of(sweep), axis)}"]
        lines.append(f"  {axis:26s}" + "".join(f"{at:>18,}" for at in points) + f"{'slower by':>13s}")
        for name in names:
            cells = "".join(f"{_cell(rows.get(name), column):>18s}" for rows in points.values())
            slower = [_times(rows.get(names[0]), rows.get(name)) for rows in points.values()]
            lines.append(f"  {name:26s}{cells}{slower[-1]:>13s}")
    wrong = [f"  {row['backend']}, {row['sweep']}: {_why(row)}" for row in _bare(measured)]
    lines += ["", "no figure:", *dict.fromkeys(wrong)] if wrong else []
    absent = [f"  {name}: {reason}" for name, reason in measured.data["unavailable"].items()]
    lines += ["", "not here:", *absent] if absent else []
    agree = sum(bool(row["agrees"]) for row in measured.rows)
    lines += ["", f"{agree} of {len(measured.rows)} rows verified bit for bit before they were timed"]
    return "\n".join(lines).lstrip("\n")


# Sections -------------------------------------------------------------------------------------------------------------


def _sections(measured: Measured) -> list[str]:
    parts: list[str] = []
    for sweep, title in (("markets", "Throughput against markets"), ("agents", "Throughput against agents")):
        parts += _throughput(measured, sweep, title)
    parts += _detail(measured, "fixed", "Fixed workload") + _detail(measured, "latency", "Latency")
    parts += _memory(measured) + _correctness(measured)
    for sweep, title in (("levels", "Throughput against levels of the grid"), ("steps", "Throughput against steps")):
        parts += _throughput(measured, sweep, title)
    parts += _environment(measured) + _start(measured) + _paper(measured)
    return parts + _without_figure(measured) + _every_row(measured)


def _title(measured: Measured, name: str) -> str:
    command = f"python -m scripts.benchmarks report {name} --output ."
    lines = [f"# Measurements\n\n<!-- Written by `{command}` beside that file. -->\n"]
    for machine in measured.data["machines"]:
        hardware = [machine["gpu"], f"{machine['cpu']} ({machine['cpu_cores']} cores)", machine["platform"]]
        versions = [
            f"{label} {machine[key]}"
            for label, key in (("driver", "driver"), ("torch", "torch"), ("NumPy", "numpy"), ("JAX", "jax"))
            if machine.get(key)
        ]
        clocks = machine.get("clocks_after") or machine["clocks"]
        clocks = [f"{key} {value}" for key, value in clocks.items()]
        lines.append(f"- {machine['date']}: {', '.join(part for part in [*hardware, *versions, *clocks] if part)}")
    for ceiling in measured.data.get("ceilings", []):
        best = max((row["events_per_s"] or 0 for row in measured.rows if row["agrees"]), default=0)
        rate = ceiling["hashes_per_s"]
        reached = f"{_rate(rate)}/s; the best row has {best / rate:.2f} of it"
        lines.append(f"- Ceiling, one hash per event and nothing else: {reached}")
    lines.append(
        "\nMedians of the trials. M markets, A agents, L levels, S steps. A rate with a number of steps behind it ran "
        "only these: the backend is too slow for all of them, and nothing is extrapolated."
    )
    return "\n".join(lines)


def _throughput(measured: Measured, sweep: str, title: str) -> list[str]:
    points, names, ours = measured.by_point(sweep), measured.names(sweep), measured.ours(sweep)
    if ours is None:
        return []
    axis = AXIS[sweep]
    body = [[f"{at:,}", *(_cell(rows.get(name)) for name in names)] for at, rows in points.items()]
    parts = [
        f"## {title}\n\nAgent-events/s; {_fixed_shape(measured.of(sweep), axis)}.\n\n{table([axis, *names], body)}"
    ]
    others = names[1:]
    if others:
        body = [
            [f"{at:,}", *(_times(rows.get(ours), rows.get(name)) for name in others)] for at, rows in points.items()
        ]
        parts.append(f"How many times as fast {ours} is:\n\n{table([axis, *others], body)}")
    return parts


def _detail(measured: Measured, sweep: str, title: str) -> list[str]:
    rows, ours = {row["backend"]: row for row in measured.of(sweep)}, measured.ours(sweep)
    if ours is None:
        return []
    first = rows[ours]
    head = ["backend", "events/s", "ms, median", "ms, min to max", "us/step", "ns/event", f"{ours} is faster by"]
    body = []
    for name in measured.names(sweep):
        row = rows[name]
        low, middle, high = (1e3 * row[key] for key in ("seconds_min", "seconds_median", "seconds_max"))
        spread = f"{low:,.3f} to {high:,.3f}"
        numbers = [f"{middle:,.3f}", spread, f"{row['us_per_step']:,.3f}", f"{row['ns_per_event']:.4g}"]
        body.append([name, _cell(row), *numbers, _times(first, row)])
    shape = f"M={first['markets']:,}, A={first['agents']}, L={first['levels']}, S={first['asked']['steps']:,}"
    return [f"## {title}\n\n{shape}, {first['trials']} trials.\n\n{table(head, body)}"]


def _memory(measured: Measured) -> list[str]:
    names = [name for name in measured.names("markets") if measured.curve("markets", name, "peak_bytes")[0]]
    if not names:
        return []
    body = []
    for at, rows in measured.by_point("markets").items():
        peaks = [rows[name]["peak_bytes"] if name in rows else None for name in names]
        body.append([f"{at:,}", *("-" if peak is None else f"{peak / 1e6:,.2f}" for peak in peaks)])
    return [f"## Device memory\n\nPeak of the allocator, MB.\n\n{table(['markets', *names], body)}"]


def _correctness(measured: Measured) -> list[str]:
    rows = measured.of("latency") or measured.of("fixed")
    rows = [row for row in rows if row.get("digest")]
    if not rows:
        return []
    head = ["backend", "steps", "mean last price", "mean volume", "mean auctions with trade", "end state", "oracle"]
    body = [
        [
            row["backend"],
            f"{row['steps']:,}",
            f"{row['mean_last_price']:.4f}",
            f"{row['mean_volume']:,.2f}",
            f"{row['mean_trades']:,.2f}",
            f"`{row['digest'][:12]}`",
            row["oracle"],
        ]
        for row in rows
    ]
    agree = sum(bool(row["agrees"]) for row in measured.rows)
    shape = f"Below M={rows[0]['markets']:,}, A={rows[0]['agents']}: equal hashes are equal ends."
    text = f"{agree} of {len(measured.rows)} rows ended with the oracle's bits. {shape}"
    text += " A backend that ran fewer steps has another hash, and was compared at these steps."
    return [f"## Correctness\n\n{text}\n\n{table(head, body)}"]


def _environment(measured: Measured) -> list[str]:
    parts = []
    for sweep in ("env markets", "env agents"):
        names, axis = measured.names(sweep), AXIS[sweep]
        if not names:
            continue
        body = [
            [f"{at:,}", *(_environment_cell(rows.get(name)) for name in names)]
            for at, rows in measured.by_point(sweep).items()
        ]
        shape = _fixed_shape(measured.of(sweep), axis)
        parts.append(f"Environment steps/s (microseconds per step); {shape}.\n\n{table([axis, *names], body)}")
        pairs = {name: name.replace(f", {OWN_REWARD}", "") for name in names if OWN_REWARD in name}
        if pairs:
            shares = [
                [f"{at:,}", *(_share(rows.get(own), rows.get(plain)) for own, plain in pairs.items())]
                for at, rows in measured.by_point(sweep).items()
            ]
            parts.append(
                "With a reward of two lines of Python, the rate as a share of that with the built-in one.\n\n"
                + table([axis, *pairs.values()], shares)
            )
    text = (
        "Market making, preset `trading` with parameters that differ from market to market, torch output, random "
        "actions drawn on the device."
    )
    head = f"## Environment\n\n{text}\n\n"
    return [head + parts[0], *parts[1:]] if parts else []


def _start(measured: Measured) -> list[str]:
    rows = [row for row in measured.of("fixed") if row.get("compile_seconds") is not None]
    body = [[row["backend"], f"{row['compile_seconds']:.3f}", f"{row['first_call_seconds']:.4f}"] for row in rows]
    text = (
        "Seconds to allocate and compile for the fixed workload, and of the first auction after it; in no other figure."
    )
    return [f"## Start\n\n{text}\n\n{table(['backend', 'prepare', 'first call'], body)}"] if body else []


def _paper(measured: Measured) -> list[str]:
    body = []
    for sweep in ("markets", "agents", "fixed"):
        for rows in measured.by_point(sweep).values():
            row = next(iter(rows.values()))
            published = paper_figures.throughput(sweep, row["asked"]["markets"], row["agents"])
            if (row["levels"], row["asked"]["steps"]) != (128, 500) or (sweep == "fixed" and row["markets"] != 8192):
                continue
            for name, rate in published.items():
                ours = rows.get(name)
                ratio = f"{ours['events_per_s'] / rate:.2f}" if ours else "-"
                point = f"M={row['asked']['markets']:,} A={row['agents']}"
                body.append([sweep, point, name, _rate(rate), _cell(ours), ratio])
    head = ["sweep", "point", "backend", f"paper ({paper_figures.DEVICE})", "here", "here / paper"]
    text = "Agent-events/s that the paper published, beside the same backend's here."
    return [f"## Beside the paper\n\n{text}\n\n{table(head, body)}"] if body else []


def _without_figure(measured: Measured) -> list[str]:
    body = [[row["sweep"], row["backend"], _shape(row), _why(row)] for row in _bare(measured)]
    body += [["all", name, "", reason] for name, reason in measured.data["unavailable"].items()]
    head = ["sweep", "backend", "point", "why"]
    return [f"## Without a figure\n\n{table(head, body)}"] if body else []


def _every_row(measured: Measured) -> list[str]:
    head = ["sweep", "backend", "M", "A", "L", "S", "trials", "ms", "min", "max", "events/s", "us/step", "ns/event"]
    head += ["peak MB", "device", "notes"]
    body = []
    for row in (row for row in measured.rows if row["agrees"] and row["seconds_median"]):
        shape = [f"{row[key]:,}" for key in ("markets", "agents", "levels", "steps", "trials")]
        times = [f"{1e3 * row[key]:,.3f}" for key in ("seconds_median", "seconds_min", "seconds_max")]
        peak = "-" if row["peak_bytes"] is None else f"{row['peak_bytes'] / 1e6:,.2f}"
        cost = [_rate(row["events_per_s"]), f"{row['us_per_step']:,.3f}", f"{row['ns_per_event']:.4g}", peak]
        body.append([row["sweep"], row["backend"], *shape, *times, *cost, row["device"] or "", row["notes"] or ""])
    return [f"## Every row\n\n{table(head, body)}"] if body else []


# Cells ----------------------------------------------------------------------------------------------------------------


def _rate(value: float) -> str:
    """Return a rate with three digits: 53.9 G."""
    for size, unit in ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= 0.9995 * size:
            return f"{value / size:.3g}{unit}" if value / size < 999.5 else f"{value / size:.0f}{unit}"
    return f"{value:.3g}"


def _cell(row: Row | None, column: str = "events_per_s") -> str:
    if row is None:
        return "-"
    few = f" ({row['steps']:,} step{'s' * (row['steps'] > 1)})" if row["steps"] < row["asked"]["steps"] else ""
    fewer = f" (M={row['markets']:,})" if row["markets"] < row["asked"]["markets"] else ""
    return _rate(row[column]) + few + fewer


def _environment_cell(row: Row | None) -> str:
    return "-" if row is None else f"{_rate(row['env_steps_per_s'])} ({row['us_per_step']:,.2f})"


def _times(ours: Row | None, other: Row | None) -> str:
    """Return how many times as fast ours is: the ratio of the rates."""
    return f"{ours['events_per_s'] / other['events_per_s']:,.3g}" if ours and other else "-"


def _share(one: Row | None, other: Row | None) -> str:
    return f"{one['env_steps_per_s'] / other['env_steps_per_s']:.2f}" if one and other else "-"


def _shape(row: Row) -> str:
    return f"M={row['markets']:,} A={row['agents']} L={row['levels']} S={row['steps']:,}"


def _fixed_shape(rows: Sequence[Row], axis: str) -> str:
    row, words = rows[0], (("markets", "M"), ("agents", "A"), ("levels", "L"), ("steps", "S"))
    return ", ".join(f"{word}={row['asked'].get(key, row[key]):,}" for key, word in words if key != axis)


def _bare(measured: Measured) -> list[Row]:
    """Return the rows without a figure: wrong, failed, or refused."""
    return [row for row in measured.rows if not row["agrees"]] + measured.data["refused"]


def _why(row: Row) -> str:
    return f"wrong: {row['first_difference']}" if row["first_difference"] else row["notes"] or "not measured"


def _pictures(paths: Sequence[Path]) -> str:
    return "\n\n".join(f"![{path.stem.replace('_', ' ')}]({path.name})" for path in paths if path.suffix == ".png")
