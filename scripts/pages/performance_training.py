"""What training takes, on docs/performance.md and README.md; scripts.pages.performance asks.

It reads what `scripts/benchmarks/training_rate.py` measured: its variants on one GPU and, in another file, `--scaling`.
Files of earlier versions, which have no variants of the default market, give nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kineticsim_env.envs.settings import EnvSettings
from scripts.pages.markdown import wrapped
from scripts.pages.performance_rows import Figures, number_table, rate

PRESETS = EnvSettings.preset, "trading"
COLUMNS = {
    "default": "4 passes, 65,536 markets",
    "fast": "`--fast`, 65,536 markets",
    "default, 16384 markets": "4 passes, 16,384 markets",
}
BEFORE = "torch.compile"
PARTS = {"rollout": "rollout", "estimate": "advantages", "learn": "update", "update": "all"}
Trained = Mapping[str, Any]


def row_of(found: Trained, preset: str, kind: str = "default") -> Mapping[str, Any]:
    """Return what was measured of a variant, or nothing; one that failed is none."""
    row = found.get(f"{preset}, {kind}", {})
    return row if "training" in row else {}


def place(found: Trained) -> str:
    """Return when and on what it was measured."""
    machine = found["machine"]
    return f"{machine['date'][:10]}; {machine['gpu']}, driver {machine['driver']}"


def training(
    found: Trained, scaling: Trained, former: Sequence[Sequence[str]], file: str = "training_h100.json"
) -> str:
    """Return the tables of training, whose figures are in a file; `former` are rows of earlier versions."""
    parts = [rates(found), phases(found), several(scaling)] if measured(found) else []
    if parts:
        intro = (
            f"Measured by `python -m scripts.benchmarks.training_rate` ([{file}](benchmarks/{file}), {place(found)}), "
            f"markets {found['markets']}. With the [fused update](rollouts.md) the policy is inside "
            f"rollouts, too. `{BEFORE}` is what there was before, in the same run: steps and "
            "networks one after another, updates by autograd, compiled. Both are captured in CUDA graphs."
        )
        parts.insert(0, wrapped(intro))
    was = "Earlier versions in `trading`, in markets that differ, with steps one by one and updates by `torch.compile`:"
    heads = ["training steps/s", "CleanRL's settings", "`--fast`", "environment alone"]
    return "\n\n".join([*filter(None, parts), wrapped(was), number_table(heads, former)])


def measured(found: Trained) -> bool:
    """Say whether there is a variant of the default market."""
    return bool(row_of(found, PRESETS[0]))


def rates(found: Trained) -> str:
    """Return steps per second of the whole, and how many times those of `torch.compile` they are."""
    rows = []
    for preset in PRESETS:
        now = [row_of(found, preset, kind) for kind in COLUMNS]
        before = [row_of(found, preset, f"{kind}, {BEFORE}") for kind in COLUMNS]
        for what, of in (("fused", now), (f"`{BEFORE}`", before)):
            rows.append([f"`{preset}`, {what}", *(rate(row["training"]) if row else "" for row in of)])
        pairs = zip(now, before, strict=True)
        rows.append(
            [f"`{preset}`, times", *(f"{a['training'] / b['training']:.2f}" if a and b else "" for a, b in pairs)]
        )
    return number_table(["training steps/s", *COLUMNS.values()], [row for row in rows if any(row[1:])])


def phases(found: Trained) -> str:
    """Return nanoseconds per step of each part."""
    rows = []
    for preset in PRESETS:
        for kind in ("default", "fast"):
            for what, of in (("fused", kind), (f"`{BEFORE}`", f"{kind}, {BEFORE}")):
                if row := row_of(found, preset, of):
                    cells = [f"{row['ns_per_step'][part]:.2f}" for part in PARTS]
                    alone, passes = f"{1e9 / row['step_only']:.2f}", COLUMNS[kind].partition(",")[0]
                    ready = f"{row['compile_and_capture_seconds']:.1f} s"
                    rows.append([f"`{preset}`, {passes}, {what}", alone, *cells, ready])
    heads = ["ns per step", "environment alone", *PARTS.values(), "compile and capture"]
    return number_table(heads, rows) if rows else ""


def several(scaling: Trained) -> str:
    """Return the rates of several GPUs with the fused update, beside those of one."""
    found = {number: row for number, row in scaling.get("scaling", {}).items() if "failed" not in row}
    kinds = [kind for kind in ("default", "fast") if all(row_of(row, PRESETS[0], kind) for row in found.values())]
    if len(found) < 2 or not kinds:
        return ""
    numbers, last = list(found), list(found)[-1]
    rows = [["engine, orders/s", *(rate(found[number]["engine"]) for number in numbers)]]
    rows[0].append(f"{found[last]['engine'] / found[numbers[0]]['engine']:.2f}")
    for kind in kinds:
        of = [row_of(found[number], PRESETS[0], kind)["training"] for number in numbers]
        name = f"training steps/s, `{PRESETS[0]}`, {COLUMNS[kind].partition(',')[0]}"
        rows.append([name, *map(rate, of), f"{of[-1] / of[0]:.2f}"])
    table = number_table(["GPUs", *numbers, "times"], rows)
    said = f"Over several GPUs of one host, each with 65,536 markets ({place(scaling)}, `--scaling --weak`):"
    return f"{wrapped(said)}\n\n{table}"


def training_rate(figures: Figures, found: Trained, name: str) -> float:
    """Return steps per second of training in `trading`, of either file."""
    row = row_of(found, "trading", name)
    return row["training"] if row else figures["training", name]["training_steps_per_s"]


def earlier(figures: Figures) -> list[list[str]]:
    """Return the rates of training of earlier kernels, whose updates were compiled."""
    now, fast = (figures["training", name] for name in ("default", "fast"))
    cells = [rate(now["training_steps_per_s"]), rate(fast["training_steps_per_s"]), rate(now["steps_per_s"])]
    return [
        [f"{now['source'][:10]}", *cells],
        [
            "2026-11-21, a step half as fast ([scaling_h200.json](benchmarks/scaling_h200.json))",
            "83 M",
            "156 M",
            "444 M",
        ],
        ["2026-11-21, one a quarter as fast", "71 M", "119 M", "236 M"],
    ]


def readme_rows(found: Trained, preset: str) -> list[list[str]]:
    """Return the row of the README's figures of a preset, if it was measured."""
    row = row_of(found, preset)
    if not row:
        return []
    machine = found["machine"]["gpu"]
    where = "" if "H200" in machine else f" ({machine.removeprefix('NVIDIA ')})"
    return [["training steps/s, PPO with 4 passes over each rollout", rate(row["training"]) + where, ""]]
