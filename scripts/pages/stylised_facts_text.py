"""The text of `docs/stylised_facts.md`; `stylised_facts.py` measures its figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from scripts.pages.markdown import between, measured_on, pm, table, wrapped
from scripts.pages.stylised_facts_figures import STANDARD

_JUMP = 10  # ticks: a return of this size is counted as a jump


def page(small: Mapping[str, Any], large: Any, coin: Any, plane: Any, setting: Mapping[str, Any]) -> str:
    """Return the page in Markdown.

    Args:
        small: The sweep at the published number of markets, `"as published"` first, then under other options.
        large: The sweep with many markets per point.
        coin: The same with `rounding="coin"`.
        plane: Momentum x maker.
        setting: What else the text names: command, engine, markets, plane_markets, auctions, edge, seconds.
    """
    published = small["as published"]
    few = published.values["volume"].shape[1]
    text = f"""# The market's own behaviour

<!-- Written by `{setting["command"]}`; edit scripts/pages/stylised_facts_text.py instead. -->

How volatility, tails, volume and autocorrelation depend on who trades. The published sweep, measured again: the share
of momentum agents from 0 to 0.70 by 0.05, makers 0.15, the rest noise agents; 256 agents, 128 ticks, {few} markets per
point, {setting["auctions"]:,} auctions from the opening book. All fifteen populations run side by side in one
`Simulator` and one call of `run` (one launch on a GPU), through shares given per market. Then the same with
{setting["markets"]:,} markets per point, in blocks of such ensembles, and the plane of both shares. Much of what the
paper reports is made by how prices are rounded: [below](#what-rounding-makes-of-it).

{measured_on(setting)} All of it took {setting["seconds"]:.0f} s. ± is half of a 95% confidence
interval over markets. Kurtosis has a heavy tail over markets: its intervals, in brackets, are of a bootstrap that draws
markets anew, and need not be symmetric.

## What is measured

**Return** is the change of the last clearing price from one auction to the next, in ticks. The paper records "price
returns" and does not say of which price, nor whether in ticks or relative. Its autocorrelations and its kurtosis at low
shares are met by returns of the last price, and not by those of the mid (table below). The mid is that of the book
that an auction leaves behind, so both returns are over the same auction; in these markets, where nothing is cancelled,
it is also what agents of the next auction see. Where a side of the book is empty it is the last price.

**Volatility** is a standard deviation in the paper, which does not say whether of the price or of returns. Its figures
are met by the deviation of the *price itself* over the auctions of a market, and not by that of returns. Both are given
here.

**Statistics** are taken in each market over the whole run, the opening included, and then averaged over markets. The
paper does not say whether it averages or pools; for kurtosis both are given.

**Populations** are drawn per market, as in the published runs (`population="multinomial"`). Fixed counts, the default
of `MarketConfig`, are compared at the end.

## The paper's figures and ours

{_comparison(published, large, few, setting["markets"])}

![the sweep at the published size](images/stylised_sweep.png)

{setting["markets"]:,} markets per point, with 95% intervals (most are smaller than the marks):

![the sweep with many markets](images/stylised_ensemble.png)

{_sweep_table(large)}

"At the bottom" and "at the top" are the shares of markets whose last price ends within {setting["edge"]} ticks of that
end of the grid; "reached" are those that were ever at either.

## What agrees, and what does not

{_explained(published, large, few)}

![autocorrelations by mix](images/stylised_autocorrelation.png)

## What rounding makes of it

{_rounding(large, coin)}

## Momentum x maker

{setting["plane_markets"]} markets per point, 15 x 8 mixes less the one that has more than all agents (white).
{_plane_text(plane)}

![heat maps over both shares](images/stylised_plane.png)

## What else the text leaves open

The same {few} markets per point under other options. The tie rule shows: with `tie="mid"` the kurtosis and both first
lags are not the paper's, with the lowest price they are. Fixed counts make no difference to what the paper states.
Cancelling the residue makes none at low shares, and at 0.70 takes the volume below the paper's. That prices end at the
top from 0.65 on, rather than at either end, is not the tie rule, as they do so under `tie="mid"` too: it is the
rounding. With the coin none of the paper's figures below is met but the volume at 0.

{_options_table(small)}
"""
    return "\n\n".join(wrapped(paragraph) for paragraph in text.rstrip().split("\n\n")) + "\n"


def _explained(published: Any, large: Any, few: int) -> str:
    """Return the paragraphs that compare; figures are those of the large sweep unless they say otherwise."""
    last, standard, half, calm = len(large.shares) - 1, large.point(STANDARD), large.point(0.5), large.point(0.6)

    def value(name: str, point: int, digits: int = 2) -> str:
        return pm(large.mean(name, point), digits)

    def percent(name: str, *points: float) -> list[str]:
        return [_percent(large, name, large.point(share)) for share in points]

    reached, bottom = percent("reached_edge", 0.15, 0.25, 0.35), percent("at_bottom", 0.5, 0.6, 0.7)
    jumps = large.values["largest"][last] >= _JUMP
    largest = large.values["largest"][last].max()
    negative = np.mean(large.values["kurtosis"][calm] < 0)
    median = np.nanmedian(large.values["kurtosis"][last])
    width = max(published.mean("price_sd", point).interval() for point in (last - 1, last))
    return f"""**Volatility agrees once it is read as the price's own.** The deviation of the price is
{value("price_sd", 0, 3)} without momentum agents and {value("price_sd", last)} at 0.70; that of returns is
{value("return_sd", 0, 3)} and {value("return_sd", last, 3)}: it hardly moves over the sweep. The growth is not
exponential. The deviation of the price is flat up to 0.15 and then rises in two steps: the first where prices begin to
leave for an end of the grid (reached by {reached[0]} of the markets at 0.15, {reached[1]} at 0.25, {reached[2]} at
0.35), the second where those at the bottom come up again ({bottom[0]} end there at 0.50, {bottom[1]} at 0.60,
{bottom[2]} at 0.70). A price that crosses the grid once and then stays at its end has a large deviation. The sweep does
not show prices that swing ever wider.

The peak of the paper is at 0.65, ahead of 0.70 by 1.71 ticks. With {few} markets an interval is up to ± {width:.1f}
ticks wide there, so which of the two is larger is not decided by so few. With many they are
{value("price_sd", last - 1)} and {value("price_sd", last)}.

**Kurtosis agrees at low shares; between it falls to about 0, and at 0.70 it is made by few markets.** At 0.60 the mean
is {between(large.kurtosis(calm), 2)}, and {negative:.0%} of the markets have a negative one: strictly positive is what
the mean is, hardly, and not what markets are. At 0.70 {jumps.mean():.1%} of the markets have a return of {_JUMP} ticks
or more (the largest is {largest:.0f}). The median market has {median:.2f}, the mean is
{between(large.kurtosis(last), 1)}, and all returns pooled have {between(large.pooled_kurtosis(last))}. With {few}
markets the mean is {between(published.kurtosis(last), 1)}: it depends on how many of the rare jumps are among them, and
the paper's peak of 26.34 is within what such a sample can give.

**Volume agrees** at both ends of the sweep.

**There is no volatility clustering at the standard mix.** At {STANDARD:g} both first lags agree with the paper, but the
autocorrelation of |returns| does not decay slowly: it is {_lags(large, "acf_abs", standard)}. The price is pinned there
(a deviation of {value("price_sd", standard, 3)} ticks in the whole run), and it bounces: it changes in
{_percent(large, "changed", standard)} of the auctions, but in {_percent(large, "changed_again", standard)} of those
after a change, and {_percent(large, "taken_back", standard)} of these second changes go the other way. The first lag is
a change and its reversal, and [rounding makes it](#what-rounding-makes-of-it).

**Where |returns| do decay slowly, it is the trip to the end of the grid.** At 0.50 their autocorrelation is
{_lags(large, "acf_abs", half)}. In the second half of the same runs alone it is
{_lags(large, "acf_abs_late", half)}. So the slow decay comes from a run that is made of a trip and a stay, and is gone
in the stay. During such runs returns themselves are correlated too, {_lags(large, "acf", half)}; the paper's absence of
linear predictability holds at its standard mix, not at these."""


def _rounding(even: Any, coin: Any) -> str:
    """Return the section on rounding: its table, and what it says."""
    last, standard, third = len(even.shares) - 1, even.point(STANDARD), even.point(0.3)

    def both(name: str, point: int, digits: int) -> str:
        return f"{pm(even.mean(name, point), digits)} becomes {pm(coin.mean(name, point), digits)}"

    jumps = np.mean(coin.values["largest"][last] >= _JUMP)
    ends = [_percent(coin, name, last) for name in ("at_bottom", "at_top")]
    return f"""A mid is often half way between two ticks, and then so is every limit price that is a whole number of
ticks from it. The published model rounds these to the even tick (`rounding="even"`, the preset `paper`'s). With
`rounding="coin"` they go up or down, all of an auction together, as a coin falls that is drawn for each auction;
nothing else changes, no other random number either. All presets but `paper` use the coin. The sweep of
{even.values["volume"].shape[1]:,} markets per point under both, side by side:

{_rounding_table(even, coin)}

![both roundings by share of momentum agents](images/stylised_rounding.png)

**Half to even keeps the market on even ticks.** At {STANDARD:g} it has {_percent(even, "even_resting", standard)} of
the units that rest at the end of the run on them, and {_percent(even, "even_prices", standard)} of the prices; the coin
{_percent(coin, "even_resting", standard)} and {_percent(coin, "even_prices", standard)}.

**At low shares it makes the kurtosis, and the autocorrelation of |returns|.** At {STANDARD:g} the excess kurtosis of
{between(even.kurtosis(standard), 2)} becomes {between(coin.kurtosis(standard), 2)}, and the autocorrelation of
|returns| at lag 1, {_lag(even, "acf_abs", standard, 1)}, becomes {_lag(coin, "acf_abs", standard, 1)}. With the coin
the mid stays between two ticks and the price is one of the two as the coin falls. Such a price changes in half of the
auctions; its returns are -1, 0 and 1 in a quarter, a half and a quarter of them, whose excess kurtosis is -1; a return
has an autocorrelation of -0.5 with the next, and their sizes have none. With half to even the same market rests on an
even tick, and the price changes in {_percent(even, "changed", standard)} of the auctions. Long calms are what makes a
tail of returns that are at most {even.values["largest"][standard].max():.0f} ticks look fat, and a change that is taken
back at once makes |returns| look as if they came in clusters. At this mix there are neither fat tails nor clusters in
what agents do.

**It decides which end of the grid prices reach.** At 0.70 {_percent(even, "at_top", last)} of the markets end at the
top with half to even; with the coin {ends[0]} end at the bottom and {ends[1]} at the top. With half to even and a mid
half a tick above an even tick, momentum agents buy two ticks above that tick and sell at it: around a price that is
half a tick above the mid. Above an odd tick it is half a tick below. Grids begin with an even tick and end with an odd
one, so the lowest mid between two ticks and the highest are both above even ones. Rounding pushes prices away from the
bottom and holds them at the top.

**So it makes most of the growth in volatility.** A deviation of the price of {both("price_sd", last, 2)} at 0.70, as
prices that reached the bottom stay there, and {both("price_sd", 0, 3)} without momentum agents.

**What is left with the coin** is what agents do. Volume grows with the share of momentum agents, from
{pm(coin.mean("volume", 0), 1)} to {pm(coin.mean("volume", last), 1)} units. Prices leave for an end of the grid, at
larger shares ({_percent(coin, "reached_edge", third)} of the markets at 0.30, instead of
{_percent(even, "reached_edge", third)}), and |returns| decay slowly while they do. Rare jumps come at the largest
shares: {jumps:.1%} of the markets at 0.70 have a return of {_JUMP} ticks or more, and the mean excess kurtosis is
{between(coin.kurtosis(last), 1)} with a median of {np.nanmedian(coin.values["kurtosis"][last]):.2f}."""


def _rounding_table(even: Any, coin: Any) -> str:
    columns = [(sweep, sweep.point(share)) for share in (0.0, STANDARD, 0.7) for sweep in (even, coin)]

    def row(what: str, text: Any) -> list[str]:
        return [what, *(text(*column) for column in columns)]

    rows = [
        row("resting units on even ticks", lambda sweep, point: _percent(sweep, "even_resting", point)),
        row("last prices on even ticks", lambda sweep, point: _percent(sweep, "even_prices", point)),
        row("auctions that change the price", lambda sweep, point: _percent(sweep, "changed", point)),
        row("deviation of the price", lambda sweep, point: pm(sweep.mean("price_sd", point), 3)),
        row("excess kurtosis of returns", lambda sweep, point: between(sweep.kurtosis(point), 2)),
        row("its median", lambda sweep, point: f"{np.nanmedian(sweep.values['kurtosis'][point]):.2f}"),
        row("returns, lag 1", lambda sweep, point: _lag(sweep, "acf", point, 1)),
        *(
            row(f"\\|returns\\|, lag {lag}", lambda sweep, point, lag=lag: _lag(sweep, "acf_abs", point, lag))
            for lag in (1, 2, 5)
        ),
        row("volume", lambda sweep, point: pm(sweep.mean("volume", point), 1)),
        row("at the bottom", lambda sweep, point: _percent(sweep, "at_bottom", point)),
        row("at the top", lambda sweep, point: _percent(sweep, "at_top", point)),
    ]
    heads = [f'{share:g}, `"{rounding}"`' for share in (0, STANDARD, 0.7) for rounding in ("even", "coin")]
    return table(("momentum, rounding", *heads), rows)


def _plane_text(plane: Any) -> str:
    """Say where prices leave, by share of makers, and what happens without noise agents."""

    def leaving(maker: float) -> float:
        points = [point for point, (_, share) in enumerate(plane.shares) if abs(share - maker) < 1e-9]
        found = [point for point in points if plane.mean("reached_edge", point).mean > 0.5]
        return float(plane.shares[found[0], 0]) if found else float("nan")

    silent = [point for point, pair in enumerate(plane.shares) if abs(pair.sum() - 1) < 1e-9]
    without = max(plane.mean("price_sd", point).mean for point in silent)
    makers = np.unique(plane.shares[:, 1])
    return f"""Half of the markets or more leave for an end of the grid from a momentum share of
{leaving(makers[0]):.2f} without makers, of {leaving(0.15):.2f} with 0.15 of them, and of {leaving(makers[-1]):.2f} with
{makers[-1]:.2f}. More makers lower the volume. Without any noise agents (the {len(silent)} cells beside the white one)
prices stay where they opened: their deviation is at most {without:.2f} ticks in the mean."""


def _comparison(published: Any, large: Any, few: int, many: int) -> str:
    last, standard = len(large.shares) - 1, large.point(STANDARD)
    first_five = range(large.point(0.2) + 1)

    def row(what: str, paper: str, name: str, point: int, digits: int = 2) -> list[str]:
        return [what, paper, pm(published.mean(name, point), digits), pm(large.mean(name, point), digits)]

    def span(sweep: Any, points: Any, choose: Any = None) -> str:
        found = [sweep.mean("kurtosis", point).mean for point in points]
        return f"{choose(found):.2f}" if choose else f"{min(found):.2f} to {max(found):.2f}"

    def lag(what: str, paper: str, name: str, at: int) -> list[str]:
        return [what, paper, *(_lag(sweep, name, standard, at) for sweep in (published, large))]

    rows = [
        row("deviation of the price, momentum 0", "0.95", "price_sd", 0, 3),
        row("the same, 0.65", "26.90 (peak)", "price_sd", last - 1),
        row("the same, 0.70", "25.19", "price_sd", last),
        row("deviation of returns, 0", "not given", "return_sd", 0, 3),
        row("the same, 0.70", "not given", "return_sd", last, 3),
        [
            "excess kurtosis, low shares (ours 0 to 0.20)",
            "2.24 to 2.92",
            *(span(s, first_five) for s in (published, large)),
        ],
        ["the same, least of all points", "positive", *(span(s, range(last + 1), min) for s in (published, large))],
        [
            "the same, 0.70, mean over markets",
            "26.34 (peak, above 0.60)",
            *(between(s.kurtosis(last), 1) for s in (published, large)),
        ],
        ["the same, all returns pooled", "", *(between(s.pooled_kurtosis(last)) for s in (published, large))],
        [
            "the same, 0, returns of the mid",
            "",
            *(between(s.kurtosis(0, "mid_kurtosis"), 2) for s in (published, large)),
        ],
        row("volume, units per auction, 0", "169.0", "volume", 0, 1),
        row("the same, 0.70", "263.3", "volume", last, 1),
        lag("autocorrelation of returns, 0.15, lag 1", "-0.34", "acf", 1),
        row("the same, returns of the mid", "", "mid_acf_1", standard, 3),
        lag("autocorrelation of \\|returns\\|, 0.15, lag 1", "0.18", "acf_abs", 1),
        *(lag(f"the same, lag {at}", "decays very slowly", "acf_abs", at) for at in (2, 3, 5, 10, 20)),
    ]
    return table(("figure", "paper", f"ours, {few} markets", f"ours, {many:,} markets"), rows)


def _sweep_table(sweep: Any) -> str:
    rows = []
    for point, (momentum, _) in enumerate(sweep.shares):
        edges = [_percent(sweep, name, point) for name in ("reached_edge", "at_bottom", "at_top")]
        found = [pm(sweep.mean(name, point), 3) for name in ("price_sd", "return_sd")]
        found += [between(sweep.kurtosis(point), 2), pm(sweep.mean("volume", point), 1)]
        acf = [_lag(sweep, name, point, 1) for name in ("acf", "acf_abs")]
        median = f"{np.nanmedian(sweep.values['kurtosis'][point]):.2f}"
        rows.append([f"{momentum:.2f}", *found[:3], median, found[3], *acf, *edges])
    heads = (
        "momentum",
        "deviation of the price",
        "of returns",
        "excess kurtosis",
        "its median",
        "volume",
        "returns, lag 1",
        "\\|returns\\|, lag 1",
        "reached",
        "at the bottom",
        "at the top",
    )
    return table(heads, rows)


def _options_table(small: Mapping[str, Any]) -> str:
    rows = []
    for name, sweep in small.items():
        last, standard = len(sweep.shares) - 1, sweep.point(STANDARD)
        rows.append(
            [
                name,
                *(pm(sweep.mean("price_sd", point), 2) for point in (0, last - 1, last)),
                *(pm(sweep.mean("volume", point), 1) for point in (0, last)),
                between(sweep.kurtosis(0), 2),
                *(_lag(sweep, key, standard, at) for key, at in (("acf", 1), ("acf_abs", 1), ("acf_abs", 2))),
                _percent(sweep, "at_top", last),
            ]
        )
    heads = ("option", "price, 0", "0.65", "0.70", "volume, 0", "0.70", "kurtosis, 0")
    more = ("returns, 0.15, lag 1", "\\|returns\\|, lag 1", "lag 2", "at the top, 0.70")
    return table((*heads, *more), rows)


def _lag(sweep: Any, name: str, point: int, lag: int) -> str:
    return pm(sweep.mean(name, point, lag), 3)


def _lags(sweep: Any, name: str, point: int) -> str:
    found = [f"{sweep.mean(name, point, lag).mean:.3f} at lag {lag}" for lag in (1, 2, 3, 5, 10, 20)]
    return ", ".join(found[:-1]) + f" and {found[-1]}"


def _percent(sweep: Any, name: str, point: int) -> str:
    return f"{100 * sweep.mean(name, point).mean:.1f}%"
