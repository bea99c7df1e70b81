"""The text and the picture of docs/realistic.md."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kineticsim_env.config import MarketConfig
from kineticsim_env.studies import plots
from kineticsim_env.studies import realistic as study
from scripts.pages.markdown import page_of, table
from scripts.pages.preset_text import changed_fields

COLOURS = {"realistic": plots.BUY, "news": plots.SELL}
SHOWN = 8  # points of the search in its table


def _error(found: Mapping[str, Any], name: str) -> str:
    """Return the standard error of a fact that is one number of `MEASURED`, in brackets."""
    single = {"ratio": "ratio", "tails": "tails 1", "with volume": "with volume", "impact": "impact"}
    if name == "clusters":
        return f" ({found['error']['clusters'][19]:.4f})"
    return f" ({found['error'][single[name]]:.4f})" if name in single else ""


def _bounds(asked: study.Asked) -> str:
    low, high = (f"{bound:g}" for bound in (asked.low, asked.high))
    if asked.low <= -1:
        return f"below {high}"
    return f"above {low}" if asked.high == 1.0 and asked.low > 0 else f"{low} to {high}"


def _lasts() -> float:
    """Return how many intervals a regime lasts in the mean; one that is drawn anew may be the same."""
    preset = MarketConfig.preset("realistic")
    others = 1 - 1 / len(preset.regimes)
    return int(preset.beat or 0) / int(preset.interval or 1) / (preset.regime_switch_prob * others)


def facts(found: Mapping[str, Any]) -> str:
    """Return the table of what is asked for and what both presets show."""
    presets = found["presets"]
    rows = []
    for name, asked in study.ASKED.items():
        shown = [
            f"{presets[each]['numbers'][name]:.3f}{_error(presets[each], name)}"
            + ("" if presets[each]["inside"][name] >= 0 else " **no**")
            for each in presets
        ]
        rows.append([asked.text, _bounds(asked), *shown])
    return table(["fact", "asked", *(f"`{each}`" for each in presets)], rows, (False, False, True, True))


def searched(found: Mapping[str, Any]) -> str:
    """Return the table of the best points, the preset's own first."""
    rows = found["search"]
    best = sorted(rows[1:], key=lambda row: -row["worst"])[:SHOWN]
    lines = []
    for row in (rows[0], *best):
        worst = min(row["inside"], key=row["inside"].get)
        numbers = [f"{number:.3g}" for number in study.rounded(study.Point(*row["point"]))]
        stage = "preset" if row is rows[0] else str(row["stage"])
        lines.append([stage, *numbers, f"{row['worst']:.2f}", study.ASKED[worst].text])
    heads = ["stage", *(name.replace("_", " ") for name in study.Point._fields), "worst", "which"]
    return table(heads, lines, (False, *[True] * 9, False))


def page(found: Mapping[str, Any]) -> str:
    """Return docs/realistic.md."""
    preset = MarketConfig.preset("realistic").replace(regimes=None, regime_switch_prob=0.0, agents=None)
    met = sum(row["worst"] >= 0 for row in found["search"])
    failed = {name: sum(row["inside"][name] < 0 for row in found["search"]) for name in study.ASKED}
    hardest = sorted(failed, key=lambda name: -failed[name])[:3]
    missed = [asked.text for name, asked in study.ASKED.items() if found["presets"]["realistic"]["inside"][name] < 0]
    verdict = "All are met." if not missed else f"Not met: {'; '.join(missed)}."
    paragraphs = [
        'The preset `"realistic"` is for studies of markets: its returns, volumes and trades show together what is '
        'found in real ones. [The default market of the environments](default_market.md), `"news"`, shows some of it; '
        "it was made for learners.",
        '```python\nimport kineticsim_env as ks\n\nsim = ks.Simulator(ks.MarketConfig.preset("realistic"), '
        "num_markets=16, seed=1)\nsim.run(200)\n```",
        f"It differs from the defaults in {changed_fields(preset)}, has eight regimes and, besides its built-in "
        "agents, four of the class `kineticsim_env.traders.order_splitter`, which is written [as users write "
        "theirs](your_own_trader.md).",
        "## What makes it so",
        '- *White returns.* Orders are around the fundamental price (`reference="fundamental"`), not around the mid, '
        "so the price follows what moves that: steps and jumps that nobody can foresee.\n"
        "- *Clusters, tails, and volume with volatility.* A hidden regime says how far jumps go; the eight sizes are "
        f"quantiles of a lognormal distribution, and a regime lasts for {_lasts():.0f} intervals in the mean. A "
        "mixture of normal returns has fat tails, which fade as long spans mix regimes; and where prices jump far, "
        "more resting orders are taken.\n"
        "- *Memory of signs, and concave impact.* Large orders come in many parts on one side, and the quantities of "
        "the parts have a Pareto tail. The largest volumes are theirs, and they do not pay more than two ticks beyond "
        "the mid, so that a large volume moves the price less than a small one would make believe.",
        "## What is asked, and what was measured",
        facts(found),
        f"Means over {found['markets']:,} markets of {found['intervals']:,} intervals after {study.WARM_UP}; standard "
        "errors over markets in brackets. Returns are changes of the last price over an interval, in ticks. "
        f"{verdict} Each number's formula and source: [statistics](statistics.md).",
        "![autocorrelations, tails, signs and impact](images/realistic.png)",
        "## What it does not show",
        "[The scorecard](scorecard.md) asks for more, and has the numbers. Falls are as large as rises, and volatility "
        "does not follow losses: nothing in the model tells up from down. A regime has one time scale, so the memory "
        "of absolute returns is longer than real markets' at first and shorter in the end, not a power law. Volume has "
        "little memory, as all agents come equally often in every regime. And the book is fullest at the best price, "
        "where large orders rest.",
        "## The search",
        f"{len(found['search'])} markets with other numbers, {found['points_markets']:,} seeds of each: "
        "first points of a scrambled Sobol sequence (torch) between wide bounds, then as many within a "
        "quarter of these bounds around the best. `worst` says how far inside its bounds the worst fact is, in units "
        f"that `kineticsim_env/studies/realistic.py` states; {met} points meet all. What fails most often: "
        + "; ".join(f"{study.ASKED[name].text} ({failed[name]} of {len(found['search'])})" for name in hardest)
        + ". The preset is a good point with its numbers rounded.",
        searched(found),
        f"Measured on {found['date']} with `{found['command']}`, {found['engine']} engine, {found['machine']}, in "
        f"{found['seconds']:,.0f} s. The figures are the same on every engine.",
    ]
    return page_of("A market with the facts of real ones", "realistic_text.py", found["command"], paragraphs)


def draw(path: Path, found: Mapping[str, Any]) -> None:
    """Write the page's picture."""
    presets = {name: found["presets"][name]["value"] for name in found["presets"]}

    def correlations(axes: Any) -> None:
        for name, value in presets.items():
            lags = range(1, len(value["clusters"]) + 1)
            axes.semilogx(lags, value["clusters"], color=COLOURS[name], label=f"absolute returns, {name}")
            axes.semilogx(lags, value["white"], color=COLOURS[name], lw=0.8, ls=":", label=f"returns, {name}")
        axes.axhline(0, color=plots.GREY, lw=0.6)
        axes.set(title="Autocorrelation", xlabel="lag, intervals")
        axes.legend(fontsize=8)

    def tails(axes: Any) -> None:
        for name, value in presets.items():
            kurtosis = [value[f"tails {span}"] for span in study.SPANS]
            axes.semilogx(study.SPANS, kurtosis, "o-", color=COLOURS[name], label=name)
        axes.axhline(0, color=plots.GREY, lw=0.6)
        axes.set(title="Excess kurtosis of returns", xlabel="span, intervals")
        axes.legend(fontsize=8)

    def signs(axes: Any) -> None:
        for name, value in presets.items():
            axes.semilogx(study.SIGN_LAGS, value["signs"], "o-", ms=3, color=COLOURS[name], label=name)
        axes.axhline(0, color=plots.GREY, lw=0.6)
        axes.set(title="Autocorrelation of the signs of takers' volume", xlabel="lag, intervals")
        axes.legend(fontsize=8)

    def impact(axes: Any) -> None:
        for name, value in presets.items():
            moves = [(1.5 * 2**i, move) for i, move in enumerate(value["curve"]) if move and move == move and move > 0]
            axes.loglog(*zip(*moves, strict=True), "o-", ms=3, color=COLOURS[name], label=name)
        axes.set(title="Move of the mid with takers", xlabel="size of takers' volume, units", ylabel="ticks")
        axes.legend(fontsize=8)

    plots.save_panels(path, [correlations, tails, signs, impact])
