"""The text and the pictures of docs/policy_change.md; `policy_change.py` measures its figures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kineticsim_env.statistics import Mean
from kineticsim_env.studies import plots
from kineticsim_env.studies import policy_change as study
from scripts.pages.markdown import joined, page_of, pm, table

Found = Mapping[str, Any]
WINDOWS = {"at first": (0, 20), "later": (study.AFTER // 2, study.AFTER)}  # intervals after the change
_NAMES = {
    "spread": ("spread", "ticks"),
    "volume": ("volume", "units per interval"),
    "volatility": ("volatility", "ticks per interval"),
    "error": ("price error", "ticks"),
    "earned": ("what the maker earns", "ticks x units per interval"),
}
_OF_MARKETS = ("spread", "volume", "volatility", "error")
_LARGE = 0.05  # share of the level from which an effect is named in the first paragraph
_TICKS = "in the unit of the table"
_COLOURS = ("#0d4377", "#3f8f4f", "#d9661c", "#7a4fa3", "#a05a2c")
_PLACES = {"continuous trading": "continuous", "call auctions": "call"}
_EXAMPLE = """```python
import kineticsim_env as ks

sim = ks.Simulator(ks.MarketConfig.preset("news"), num_markets=256, seed=0)
sim.run(100)
without = sim.branch()  # goes on without the change, with the same random words
sim.set_parameters(tax=1)
volumes = [market.run(50, record=("volume",))["volume"].double().mean(1) for market in (sim, without)]
change = ks.statistics.mean_and_error(volumes[0] - volumes[1])  # paired, market by market
print(f"{change.mean:.1f} ± {change.interval():.1f} units per interval")
```"""


def page(found: Found) -> str:
    """Return the page in Markdown, of what `policy_change.py` measured."""
    setting = found["setting"]
    parts = [_answer(found), *_played(setting)]
    for name in study.MARKETS:
        parts += _of(found, name)
    parts += [f"Seeds from {study.SEED >> 32} * 2^32. {setting['measured']}"]
    return page_of("A policy change in mid-flight", "policy_change_text.py", setting["command"], parts)


def draw(folder: Path, found: Found) -> None:
    """Write an event study of each market."""
    width = found["setting"]["bin"]
    for name, short in _PLACES.items():
        measures = found["found"][name]
        panels = [lambda axes, one=one, all=measures: _path(axes, all[one], one, width) for one in measures]
        plots.save_panels(folder / f"policy_change_{short}.png", [*panels, _legend], size=(6.2, 3.6))


def _answer(found: Found) -> str:
    largest = []
    for name, measures in found["found"].items():
        shares = {
            (one, change): Mean(*measures[one]["change"][change]["later"]).mean / Mean(*measures[one]["level"]).mean
            for one in _OF_MARKETS
            for change in list(study.CHANGES)[1:]
        }
        one, change = max(shares, key=lambda place: abs(shares[place]))
        largest.append(f"under {name} {_NAMES[one][0]} after {_a(change)} ({100 * shares[one, change]:+.0f}%)")
    low, high = WINDOWS["later"]
    return f"""
{_opposite(found)} The largest effects are {joined(largest)}. These are differences {low} to {high} intervals after a
change of rules, in markets that run, against the same markets without it, as shares of what it was there.
"""


def _effects(measures: Mapping[str, Any]) -> str:
    verdicts = []
    for change in list(study.CHANGES)[1:]:
        shown = [
            f"{_NAMES[one][0]} {_share(measures[one]['change'][change]['later'], measures[one]['level'])}"
            for one in _OF_MARKETS
            if _clear(measures[one]["change"][change]["later"])
        ]
        verdicts.append(f"{_a(change)}: {', '.join(shown) if shown else 'nothing that shows'}")
    return f"Later, as a share of what it was, where it differs from 0 at 95%: {'; '.join(verdicts)}."


def _opposite(found: Found) -> str:
    """Say which changes do one thing under one mechanism and the opposite under the other."""
    (first, one), (second, two) = found["found"].items()
    apart = []
    for change in list(study.CHANGES)[1:]:
        for measure in _OF_MARKETS:
            values = [measures[measure]["change"][change]["later"] for measures in (one, two)]
            levels = (one[measure]["level"], two[measure]["level"])
            large = all(abs(value[0]) > _LARGE * level[0] for value, level in zip(values, levels, strict=True))
            if all(_clear(value) for value in values) and values[0][0] * values[1][0] < 0 and large:
                shares = " and ".join(_share(value, level) for value, level in zip(values, levels, strict=True))
                apart.append(f"{_NAMES[measure][0]} after {_a(change)} ({shares})")
    if not apart:
        return f"A change of rules mostly works in the same direction under {first} and under {second}."
    return (
        f"A rule that calms one market can unsettle another: under {first} and under {second} these go opposite ways: "
        f"{joined(apart)}."
    )


def _a(change: str) -> str:
    return f"a {change}"


def _played(setting: Mapping[str, Any]) -> list[str]:
    changes = [
        (name, ", ".join(f"`{key}={value}`" for key, value in fields.items())) for name, fields in study.CHANGES.items()
    ]
    passed = "the maker quotes wider, or closer, by what a unit costs it"
    rows = [(*row, passed if any(word in row[0] for word in ("tax", "fee", "rebate")) else "") for row in changes[1:]]
    return [
        "## What was played",
        f"""Each change has the same {setting["markets"]:,} markets, with the same seeds, side by side in one launch.
For
{study.WARMUP} intervals that are left out, and {study.BEFORE} that are shown, all are equal bit for bit. Then
`Simulator.set_parameters` changes the rules of some. Random words are hashes of seed, interval and agent, so nobody
draws
another number than without the change, and market by market the difference is what the change did.""",
        table(("change", "parameters", "besides"), rows),
        f"""Continuous trading is the preset `news`, call auctions are the preset `trading`. One maker with an account
quotes {study.QUANTITY} units on both sides, {study.HALF_SPREAD} ticks from the mid: built-in agents pay no fees, and
allow
for the tax in their prices. The spread is of the book with that maker's quotes; volatility is the size of the last
price's change per interval, price error that of last price less fundamental price; the maker earns what its trades made
against the fundamental price after them, less fees and tax.""",
        """Nobody else adapts. Momentum and fundamental agents go on pricing 1 tick beyond the mid, for one, which a
tick
size of 4 may round back to where it was. So this is what a change does before traders have answered it.""",
        "With `branch`, one change in a few lines:",
        _EXAMPLE,
    ]


def _of(found: Found, name: str) -> list[str]:
    measures = found["found"][name]
    rows = []
    for one, figures in measures.items():
        label, unit = _NAMES[one]
        level = pm(Mean(*figures["level"]), 2)
        for window in WINDOWS:
            cells = [pm(Mean(*figures["change"][change][window]), 2) for change in list(study.CHANGES)[1:]]
            first = window == next(iter(WINDOWS))
            rows.append([f"{label}, {unit}" if first else "", level if first else "", window, *cells])
    low, high = WINDOWS["at first"]
    late = WINDOWS["later"]
    return [
        f"## {name[0].upper()}{name[1:]}",
        f"![event study](images/policy_change_{_PLACES[name]}.png)",
        f"Paired differences, with their 95% intervals over markets: at first is the {high - low} intervals "
        f"after the change, "
        f"later {late[0]} to {late[1]}.",
        table(
            ("", "without", "", *list(study.CHANGES)[1:]),
            rows,
            [False, True, False] + [True] * (len(study.CHANGES) - 1),
        ),
        _effects(measures),
        _transient(measures),
    ]


def _transient(measures: Mapping[str, Any]) -> str:
    """Say which effects grow or fade, by the paired difference of the two windows."""
    moves = []
    for one in _OF_MARKETS:
        for change in list(study.CHANGES)[1:]:
            later, moved = (Mean(*measures[one]["change"][change]["later"]), Mean(*measures[one]["moved"][change]))
            if abs(moved.mean) > moved.interval(0.997):
                word = "grows" if later.mean * moved.mean > 0 else "fades"
                moves.append(
                    f"{_NAMES[one][0]} after {_a(change)} {word} by {pm(moved._replace(mean=abs(moved.mean)), 2)}"
                )
    if not moves:
        return "All of it is there at once: between the windows nothing grows or fades by more than 3 standard errors."
    return f"Between the two windows, by more than 3 standard errors market by market, {joined(moves)} {_TICKS}."


def _clear(value: Any) -> bool:
    found = Mean(*value)
    return abs(found.mean) > found.interval()


def _share(value: Any, level: Any) -> str:
    return f"{100 * Mean(*value).mean / Mean(*level).mean:+.0f}%"


def _path(axes: Any, figures: Mapping[str, Any], one: str, width: int) -> None:
    label, unit = _NAMES[one]
    for change, colour in zip(list(study.CHANGES)[1:], _COLOURS, strict=True):
        found = [Mean(*value) for value in figures["path"][change]]
        middle = np.arange(len(found)) * width + (width - 1) / 2 - study.BEFORE
        mean, half = np.array([value.mean for value in found]), np.array([value.interval() for value in found])
        axes.plot(middle, mean, color=colour, lw=1.4, label=change)
        axes.fill_between(middle, mean - half, mean + half, color=colour, alpha=0.15, lw=0)
    axes.axvline(-0.5, color=plots.GREY, lw=1, ls=":")
    axes.axhline(0, color=plots.GREY, lw=0.8)
    axes.set(
        title=f"{label[0].upper()}{label[1:]}, with less without", xlabel="intervals since the change", ylabel=unit
    )


def _legend(axes: Any) -> None:
    for change, colour in zip(list(study.CHANGES)[1:], _COLOURS, strict=True):
        axes.plot([], [], color=colour, label=change)
    axes.fill_between([], [], [], color=plots.GREY, alpha=0.15, lw=0, label="95% intervals over markets, paired")
    axes.set_axis_off()
    axes.legend(loc="center")
