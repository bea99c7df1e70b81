"""The page and the picture of `python -m scripts.pages.default_market`, from its figures alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kineticsim_env.config import MarketConfig
from kineticsim_env.simulator import Simulator
from kineticsim_env.statistics import Interval
from kineticsim_env.studies import plots
from kineticsim_env.studies.default_market import MARK_OUT
from kineticsim_env.studies.default_market_goals import GOALS, HALF_SPREADS, SKEWS
from kineticsim_env.studies.default_market_signal import FIRST
from scripts.pages.markdown import between, table, wrapped
from scripts.pages.trading_preset_figures import curves
from scripts.pages.trading_preset_text import changed_fields

PRESET = "news"
KINDS = {
    "momentum": "with the mid, where it has left its recent mean (`MomentumTrader`)",
    "reversion": "against it (`MeanReversionTrader`)",
    "signal": "with the linear prediction",
}


def plus_minus(pair: Sequence[float], digits: int = 0) -> str:
    """Return a mean and half of its 95% interval."""
    return f"{pair[0]:,.{digits}f} ± {pair[1]:,.{digits}f}"


def to(ends: Sequence[float], digits: int = 2) -> str:
    """Return a value and both ends of its 95% interval."""
    return f"{ends[0]:.{digits}f} ({ends[1]:.{digits}f} to {ends[2]:.{digits}f})"


def best_trader(found: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Return the trader that earns most."""
    return max(found["traders"].items(), key=lambda item: item[1]["pnl"][0])


def goals(
    found: Mapping[str, Any], attacks: Mapping[str, Sequence[float]] | None = None
) -> list[tuple[str, str, bool]]:
    """State the goals, what was measured, and whether they hold, each with its whole interval."""
    best, random = found["makers"][found["maker"]]["pnl"], found["random"]["pnl"]
    kind, trader = best_trader(found)
    rows = [
        (
            f"R^2 of a line for the next change of the mid at most {GOALS['R^2']:g}",
            f"{to(found['r2']['1'], 3)}; {to(found['own_r2'], 3)} while it quotes itself",
            max(found["r2"]["1"][2], found["own_r2"][2]) <= GOALS["R^2"],
        ),
        (
            f"adverse selection per fill at least {GOALS['adverse selection']:g} of the spread earned",
            f"{to(found['adverse'])}, quotes at {found['plain']}",
            found["adverse"][1] >= GOALS["adverse selection"],
        ),
        ("random quotes lose", plus_minus(random), sum(random) < 0),
        (
            "a trader on public information earns less than a maker",
            f"{plus_minus(trader['pnl'])} ({kind}), the maker {plus_minus(best)}",
            trader["less"][0] + trader["less"][1] < 0,
        ),
    ]
    if "regime" in found["knowing"]:
        known = found["knowing"]["regime"]
        times = f"{plus_minus(known['pnl'])}, {to(known['times'])} times as much"
        rows.append(
            (
                f"a maker that knows of news earns at least {GOALS['knowledge']:g} times",
                times,
                known["times"][1] >= GOALS["knowledge"],
            )
        )
    if attacks:
        earn = [name for name, (mean, half) in attacks.items() if mean - half > 0]
        lose = sum(mean + half < 0 for mean, half in attacks.values())
        neither = [name for name, (mean, half) in attacks.items() if abs(mean) <= half]
        said = f"{lose} of {len(attacks)} lose, with an interval below 0"
        said += f"; {', '.join(earn)} earns" if earn else ""
        said += f"; neither is certain of {', '.join(neither)}" if neither else ""
        rows.append(("scripted attackers earn nothing", said, not earn))
    return rows


def page(
    found: Mapping[str, Any], preset: MarketConfig, search: Mapping[str, Any], prediction: Mapping[str, Any]
) -> str:
    """Return the page in Markdown, from what was measured, what the search wrote, and what docs/prediction.md has."""
    mine = found["measured"][PRESET]
    figures, regimes = mine["found"], preset.regimes
    share = sum(regime == regimes[-1] for regime in regimes) / len(regimes)
    beat, interval = int(preset.beat or preset.num_agents), int(preset.interval or preset.num_agents)
    lasting = beat / interval / float(preset.regime_switch_prob)
    rows = goals(figures, found["attacks"])
    trees = Interval(*prediction["views"]["the observation"]["trees"])
    if trees.low <= GOALS["R^2"]:
        raise ValueError(f"trees: got {trees}, which the page says is above {GOALS['R^2']}: edit the page")
    text = f"""# The default market: one in which knowledge pays

<!-- Written by `{found["command"]}`; edit scripts/pages/default_market_text.py instead. -->

This is the market of all environments that are made without a `preset` or a `config`. It is not the `MarketConfig()` of
a `Simulator`, which is the paper's.

In the presets before it, prices can be predicted and quoting anything earns: what is learned there is to trade against
the last move. The preset `"{PRESET}"` is a market of [continuous trading](model.md#continuous-trading) with a hidden
[regime](model.md#levers). Most of the time nothing is known that others do not know, and makers earn the spread. Now
and then there is news: the fundamental price jumps, and those who know it trade against quotes that have not followed.
Nobody is told which it is.

`MarketConfig.preset("{PRESET}")` differs from the defaults in {changed_fields(preset)}.

A decision is an interval of {interval} orders; a beat, at which the fundamental price moves, orders are cancelled and
the regime may change, comes every {beat} orders. The regime is drawn anew every {lasting:.0f} intervals in the mean,
and {100 * share:.0f}% of the time there is news.

![the market, and what pays in it](images/default_market.png)

## What a default market must show

| goal | measured |  |
| --- | --- | --- |
{chr(10).join(f"| {goal} | {said} | {'holds' if holds else '**does not hold**'} |" for goal, said, holds in rows)}

All who play do so in the environments, for an episode of 300 decisions with the tasks' default limits (8 units per
quote, 40 units of inventory), in the same {mine["markets"]:,} markets on held-out seeds; then they are unwound through
the market. Money is **liquidated PnL**, in ticks x units. Whoever has something to choose, a half-spread, a threshold,
is chosen on other seeds, as many. ± is half of a 95% confidence interval over markets; brackets are 95% bootstrap
intervals over markets.

- **R^2** is that of a linear prediction of the change of the mid over the next decision, from all 30 features that the
  observation has of the market (depths, spread, last price, the last four changes and volumes), fitted in other
  markets; and from all features of the best maker without a skew while it quotes, whose own fills say something too.
  It begins with decision {FIRST}, as there is no full history before. **A line is not all that can be fitted**: boosted
  trees find {between(trees, 3)} in the same features, more than the goal, and makers earn by it
  ([what can be predicted](prediction.md)). This page gave the goal before as one of any prediction, and it is one of
  lines.
- **Adverse selection per fill**: how far the mid moves against a fill within {MARK_OUT} intervals, from the mid right
  before the order that makes the fill. **Spread earned per fill**: how much better than that mid its price is. Both are
  means per unit, of the best maker without a skew, in a quarter of the markets; the market is played order by order for
  it, which does not change its path.
- **Random quotes** are `RandomQuotes`: offsets up to 10 ticks, sizes up to 8 units, drawn at every decision.
- **A maker** is the best of fixed half-spreads, with and without a skew against inventory. One that **knows of news**
  knows the regime, and has a half-spread for each, or stays away.

Measured on {found["date"]} with `{found["command"]}`, {found["engine"]} engine, {found["machine"]}. Engines
give the same figures, but for how the sums behind R^2 are rounded.

## Makers

| half-spread | {" | ".join(_skews())} | units per decision | made while quiet | made while there is news |
| --- | {"--- | " * len(SKEWS)}--- | --- | --- |
{chr(10).join(_maker_row(figures, half, regimes) for half in HALF_SPREADS)}

In brackets is the deviation from market to market. The last three columns are without a skew; what is made, with
inventory at the fundamental price, is counted by the regime in which a decision began. The best maker quotes
{figures["maker"]}. Per unit it earns {figures["earned_per_unit"]:.2f} ticks of spread without a skew, and loses
{figures["adverse_per_unit"][MARK_OUT]:.2f} of these to who knew better.

## What knowledge is worth

| who | liquidated PnL | times fixed quotes | times going by the moves | quotes |
| --- | --- | --- | --- | --- |
| quotes as ever | {plus_minus(figures["makers"][figures["maker"]]["pnl"])} | 1 | | {figures["maker"]} |
{chr(10).join(_knowing_row(kind, one) for kind, one in figures["knowing"].items())}
| random | {plus_minus(figures["random"]["pnl"])} | | | up to 10 ticks |

What can be known is worth finding out: news shows in the size of moves, so a maker that stays away after large moves
earns {figures["knowing"]["moves"]["times"][0]:.1f} times what the best fixed quotes earn. Being told of news is then
worth {figures["knowing"]["regime"]["times_moves"][0]:.2f} times as much, and not twice: what can be found out cannot
also be worth twice as much to be told. Knowing the fundamental price, a maker shows no bid above it and no ask below
it; learners see it in nothing but the trades of those who know it. These two are upper marks.

## Traders

| goes | liquidated PnL | less the best maker, paired | the best of its kind |
| --- | --- | --- | --- |
{chr(10).join(_trader_row(kind, one) for kind, one in figures["traders"].items())}

Orders behind the mid wait for others to come, as a maker's do; that is what earns.

## Attacks

The attackers of [attacks](attacks.md), in {4 * mine["markets"]:,} markets:

| attack | liquidated PnL |
| --- | --- |
{chr(10).join(f"| {name} | {plus_minus(pair)} |" for name, pair in found["attacks"].items())}

## Why not another

The same, in a quarter of the markets. Goals that a market does not reach are bold.

| market | R^2 | 5 ahead | adverse / earned | random quotes | best maker (sd) | its quotes | best trader | knowing |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
{chr(10).join(_market_row(name, one["found"]) for name, one in found["measured"].items())}

{_verdicts()}

## How it was looked for

By hand first, from the preset `continuous`; then by `{search["command"]}` on {search["machine"]}, which tried
{len(search["tried"]):,} markets that are not predictable at a glance. Its score adds up what is missing of each goal.
The best, with the figures of few markets each:

{_search_table(search["tried"][:10])}

Many markets around these meet the goals. The preset was set by hand after them, towards what gives makers more where
random quotes lose as much: more orders per interval, larger ones, fewer informed agents. What stands against what:

{TRADE_OFFS.replace("RANDOM", random_against_best(search["tried"]))}
"""
    return "\n\n".join(wrapped(paragraph) for paragraph in text.rstrip().split("\n\n")) + "\n"


def _skews() -> list[str]:
    return [f"PnL, skew {skew:g} (sd)" if skew else "PnL (sd)" for skew in SKEWS]


def _named(half: int, skew: float) -> str:
    return f"{half} ticks, skew {skew:g}" if skew else f"{half} ticks"


def _maker_row(figures: Mapping[str, Any], half: int, regimes: Sequence[Any]) -> str:
    games = [figures["makers"][_named(half, skew)] for skew in SKEWS]
    cells = [f"{plus_minus(game['pnl'])} ({game['sd']:,.0f})" for game in games]
    made = games[0]["by_regime"]
    quiet = sum(mean for (mean, _), regime in zip(made, regimes, strict=True) if regime != regimes[-1])
    news = sum(mean for (mean, _), regime in zip(made, regimes, strict=True) if regime == regimes[-1])
    return f"| {half} | {' | '.join(cells)} | {games[0]['traded'][0]:.2f} | {quiet:,.0f} | {news:,.0f} |"


def _knowing_row(kind: str, one: Mapping[str, Any]) -> str:
    who = {
        "moves": "goes by the last four moves of the mid, which all see",
        "regime": "knows whether there is news",
        "fundamental": "knows the fundamental price",
    }[kind]
    times = [to(one["times"]), to(one["times_moves"]) if kind != "moves" else "1"]
    return f"| {who} | {plus_minus(one['pnl'])} | {' | '.join(times)} | {one['name']} |"


def _trader_row(kind: str, one: Mapping[str, Any]) -> str:
    return f"| {KINDS[kind]} | {plus_minus(one['pnl'])} | {plus_minus(one['less'])} | {one['name']} |"


def _market_row(name: str, found: Mapping[str, Any]) -> str:
    best, random = found["makers"][found["maker"]], found["random"]["pnl"]
    _, trader = best_trader(found)
    known = found["knowing"].get("regime")

    cells = [
        f"**`{name}`**" if name == PRESET else name,
        shown(f"{found['r2']['1'][0]:.3f}", found["r2"]["1"][0] <= GOALS["R^2"]),
        f"{found['r2']['5'][0]:.3f}",
        shown(f"{found['adverse'][0]:.2f}", found["adverse"][0] >= GOALS["adverse selection"])
        if np.isfinite(found["adverse"][0])
        else "no fills",
        shown(plus_minus(random), random[0] < 0),
        shown(f"{plus_minus(best['pnl'])} ({best['sd']:,.0f})", best["pnl"][0] > 0),
        found["maker"],
        shown(plus_minus(trader["pnl"]), trader["less"][0] < 0),
        _worth(known["times"]) if known and best["pnl"][0] > 0 else "no maker earns" if known else "no news to know of",
    ]
    return f"| {' | '.join(cells)} |"


def shown(text: str, holds: bool) -> str:
    """Return a cell, bold where a goal is not reached."""
    return text if holds else f"**{text}**"


def _worth(times: Sequence[float]) -> str:
    return shown(to(times), times[0] >= GOALS["knowledge"])


def _verdicts() -> str:
    return "\n".join(f"- **{name}**: {why}" for name, why in VERDICTS.items())


def _search_table(tried: Sequence[Mapping[str, Any]]) -> str:
    shown = ("interval", "beat", "noise", "maker", "fundamental", "noise_spread", "maker_half_spread", "taker_offset")
    rows = []
    for one in tried:
        found, market = one["found"], MarketConfig(**one["market"])
        news = market.regimes[-1]
        figures = [
            f"{one['score']:.2f}",
            f"{found['r2']:.3f}",
            f"{found['adverse']:.2f}",
            plus_minus(found["random"]),
            f"{plus_minus(found['pnl'])} ({found['sd']:,.0f})",
            f"{found['trader']:,.0f}",
            f"{found['knowing']['regime']:.2f}",
        ]
        fields = [f"{getattr(market, name):g}" for name in shown]
        fields += [f"{market.max_order_qty}", f"{news['jump_prob']:g} of {news['jump_size']}"]
        rows.append([*figures, " ".join(fields)])
    heads = ["score", "R^2", "adverse / earned", "random", "best maker (sd)", "best trader", "knowing"]
    fields = "interval, beat, noise, maker, fundamental, noise spread, half-spread, offset, largest order, jumps"
    return table([*heads, fields], rows)


VERDICTS: dict[str, str] = {
    "`continuous`, `trading`": "an order flow whose moves are taken back: a line through public figures predicts the "
    "next change, and quotes of any kind earn.",
    "never news": "a maker earns at nearly every distance, and so do random quotes.",
    "always news": "no maker earns; the spread does not pay for what the informed take.",
    "news for three intervals": "those who are told earn as much, those who go by the moves find out too late.",
    "takers two ticks from the mid": "the informed pay for being fast: makers earn more, random quotes too, and being "
    "told of news is worth less.",
    "20 orders per interval": "a price takes more decisions to get where it goes, so it is easier to predict, and less "
    "noise comes between two pieces of news: makers earn little.",
    "call auctions of the same orders": "one auction takes the price part of the way only. Traders who follow it earn "
    "several times what makers do here; makers do not earn at all.",
}
TRADE_OFFS = """\
- **Random quotes against the best maker.** Random quotes are a mixture of all distances from the mid, and what one more
  jump takes from them it takes from makers too. RANDOM
- **Risk.** News is what makes inventory dangerous. The deviation of a maker's PnL over an episode is several times its
  mean; means over thousands of markets are certain all the same, single episodes are not."""


def random_against_best(tried: Sequence[Mapping[str, Any]]) -> str:
    """Say what random quotes earn where the best maker earns 1,000 and 2,000, by a line through what was tried."""
    pairs = [(one["found"]["pnl"][0], one["found"]["random"][0]) for one in tried if one["found"]["pnl"][0] > 0]
    if len(pairs) < 10:
        return ""
    best, random = np.array(pairs).T
    slope, start = np.polyfit(best, random, 1)
    at, correlation = [f"{start + slope * pnl:.0f}" for pnl in (1000, 2000)], np.corrcoef(best, random)[0, 1]
    return (
        f"Over the {len(pairs)} markets of the search in which a maker earns anything, a line says {at[0]} for random "
        f"quotes where the best maker earns 1,000, and {at[1]} where it earns 2,000 (correlation {correlation:.2f})."
    )


def draw(path: Path, found: Mapping[str, Any], preset: MarketConfig) -> None:
    """Write the page's picture: a market's path with its news, makers by half-spread, and the mid after a fill."""
    figures = found["measured"][PRESET]["found"]
    simulator = Simulator(preset, 1, engine="cpu", seed=7 << 32)
    simulator.run(100, progress=False)
    price, fundamental, news = [], [], []
    for _ in range(300):
        series = simulator.run(1, ("mid2", "fundamental"), progress=False)
        price.append(float(series["mid2"][0, 0]) / 2)
        fundamental.append(float(series["fundamental"][0, 0]))
        news.append(preset.regimes[int(simulator.tensors["regime"][0])] == preset.regimes[-1])

    def path_of(axes: Any) -> None:
        time = np.arange(1, 301)
        axes.fill_between(time, 0, 1, where=news, transform=axes.get_xaxis_transform(), color="#f0d9b5", label="news")
        axes.plot(time, fundamental, color="#0d4377", lw=1.5, label="fundamental")
        axes.plot(time, price, color="#8fb8de", lw=0.9, label="mid")
        axes.set(title="A market", xlabel="interval", ylabel="ticks")
        axes.legend(fontsize=8, ncols=3)

    def lines(values: Mapping[str, Sequence[Sequence[float]]]) -> dict[str, tuple[list[float], list[float]]]:
        return {name: ([mean for mean, _ in pairs], [half for _, half in pairs]) for name, pairs in values.items()}

    def of(one: Mapping[str, Any]) -> list[Sequence[float]]:
        return [one["makers"][_named(half, 0.0)]["pnl"] for half in HALF_SPREADS]

    pnl = {f"skew {skew:g}": [figures["makers"][_named(half, skew)]["pnl"] for half in HALF_SPREADS] for skew in SKEWS}
    made = {}
    for name, loud in (("quiet", False), ("news", True)):
        places = [i for i, regime in enumerate(preset.regimes) if (regime == preset.regimes[-1]) == loud]
        games = [figures["makers"][_named(half, 0.0)]["by_regime"] for half in HALF_SPREADS]
        made[name] = [(sum(game[i][0] for i in places), sum(game[i][1] for i in places)) for game in games]

    def after_fills(axes: Any) -> None:
        axes.axhline(figures["earned_per_unit"], color=plots.BUY, label="spread earned")
        axes.plot(range(len(figures["adverse_per_unit"])), figures["adverse_per_unit"], "o-", ms=3, color=plots.SELL)
        axes.set(title="The mid after a fill", xlabel="intervals after it", ylabel="ticks against the maker")
        axes.set_ylim(bottom=0)
        axes.legend(fontsize=8)

    half, money = "half-spread, ticks", "mean, ticks x units"
    plots.save_panels(
        path,
        [
            path_of,
            after_fills,
            lambda axes: curves(axes, HALF_SPREADS, lines(pnl), "Liquidated PnL", half, money),
            lambda axes: curves(
                axes, HALF_SPREADS, lines(made), "Where it is made", half, money, (plots.BUY, plots.SELL)
            ),
        ],
    )
