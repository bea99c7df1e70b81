"""The text of `docs/trading_preset.md`, and the tables that other presets' pages share with it.

`trading_preset.py` measures its figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kineticsim_env.config import MarketConfig
from kineticsim_env.statistics import bootstrap_interval, deviation_and_error, mean_and_error
from kineticsim_env.studies.trading_preset import LAGS, LONG, SPANS, Returns
from scripts.pages.markdown import between, measured_on, pm, table, wrapped

NO_MOMENTUM = "last price, no momentum agents"  # of a table's row
Games = Mapping[tuple[float, int], Any]  # by skew and half-spread


def page(
    games: Games,
    rivals: Mapping[str, Games],
    watched: Mapping[str, Any],
    returns: Mapping[str, Returns],
    preset: MarketConfig,
    setting: Mapping[str, Any],
) -> str:
    """Return the page in Markdown.

    Args:
        games: Every maker on the preset.
        rivals: The makers on each candidate, without skew and with `setting["skew"]`.
        watched: The markets without learners, `"trading"` and each candidate.
        returns: What the last price and the mid of the preset do without learners, and the last price with noise agents
            in the place of momentum agents.
        preset: The preset.
        setting: What else the text names: engine, command, markets, size, limit, warmup, auctions, skew, seed.
    """
    best, halves = best_by_skew(games), sorted({half for _, half in games})
    best_skew, half = best_of(games, list(best)[1:])
    plain, skewed = games[0.0, best[0.0]], games[best_skew, half]
    market = watched["trading"]
    conditions = checks(games, market, halves, best, plain, skewed)
    fields = changed_fields(preset)
    gain = mean_and_error(skewed.pnl - plain.pnl).mean / plain.pnl.mean()
    calm = 1 - skewed.pnl.std() / plain.pnl.std()
    words = {"when": "Before every auction", "unit": "auction", "use": "this task"}
    study = study_text(games, conditions, setting, name="trading", **words)
    text = f"""# The market that the tasks use

<!-- Written by `{setting["command"]}`; edit scripts/pages/trading_preset_text.py instead. -->

The published market is pinned to its opening price: nobody in it knows anything, so a maker risks nothing, and whoever
pushes the price finds momentum traders who follow. The preset `"trading"` is a market in which making a market is a
problem: its fundamental price walks and jumps, traders who know it pick off stale quotes, orders are cancelled, and the
book is thin enough that the distance of a quote matters.

`MarketConfig.preset("trading")` differs from the defaults in {fields}.

{study}

Against the best maker without skew, the best one with a skew of {best_skew:g} gains {100 * gain:.1f}% in the mean and
takes {100 * calm:.0f}% off the deviation: moving the quotes costs some spread and saves losses on inventory, which
nearly cancel in the mean, but what remains is far less of a gamble. That is what the inventory penalty of the task's
default reward asks for. Too strong a skew pushes quotes across the mid, and pays for it.

## The market itself

Without learners, over the same {setting["auctions"]} auctions: the spread is {pm(market.spread, 2)} ticks where the
book has two sides ({100 * market.two_sided.mean:.1f}% of the books), and the change of the last price from auction to
auction has a deviation of {pm(market.volatility, 2)} ticks. The resting quantity of both sides does not grow with the
auctions since the opening:

{depth_table(market)}

The deepest book seen held {market.deepest:,} units.

## What its returns lack

{_returns_text(returns)}

## Why not another

The same makers, on {setting["rival_markets"]:,} markets of each candidate: liquidated PnL by half-spread without skew,
and the best maker with a skew of {setting["skew"]:g}. Agents are noise / momentum / maker / fundamental.

{candidate_table("trading", games, rivals, watched, halves, setting["skew"])}

{chr(10).join(f"- **{name}**: {why}" for name, why in setting["verdicts"].items())}
"""
    return "\n\n".join(wrapped(paragraph) for paragraph in text.rstrip().split("\n\n")) + "\n"


def best_of(games: Games, skews: Sequence[float]) -> tuple[float, int]:
    """Return the skew, of some, and the half-spread of the maker that earns most."""
    return max((key for key in games if key[0] in skews), key=lambda key: games[key].pnl.mean())


def best_by_skew(games: Games) -> dict[float, int]:
    """Return the half-spread that earns most, by skew."""
    return {skew: best_of(games, [skew])[1] for skew in sorted({skew for skew, _ in games})}


def study_text(
    games: Games,
    conditions: Sequence[tuple[str, str, bool]],
    setting: Mapping[str, Any],
    *,
    name: str,
    when: str,
    unit: str,
    use: str,
) -> str:
    """Return what all studies of a preset say of scripted makers: how they were measured, conditions, and tables.

    Args:
        games: Every maker, by skew and half-spread.
        conditions: Rows of `check_table`.
        setting: As in `page`.
        name: The preset, as its pictures are called.
        when: When a maker quotes, at the beginning of a sentence.
        unit: What a decision is, in the singular: an auction, or an interval.
        use: What the market is for.
    """
    best = best_by_skew(games)
    skews, halves = list(best), sorted({half for _, half in games})
    best_skew, _ = best_of(games, skews[1:])
    return f"""![paths and books](images/{name}_market.png)

## What was measured

A scripted maker is added to the market (it replaces nobody). {when} it quotes {setting["size"]} units on
each side: the bid at `(mid2 >> 1) - half_spread - offset`, the ask at `((mid2 + 1) >> 1) + half_spread - offset`, with
`offset = round(skew * inventory)`. Its inventory is limited to {setting["limit"]} units either way. After
{setting["warmup"]} {unit}s of warm-up it trades for {setting["auctions"]}; then its inventory is unwound through the
market, at most `max_order_qty` units per {unit} (`kineticsim_env.evaluation.liquidate`). **Liquidated PnL** is the
cash that is left, in ticks x units. There are no fees.

All makers meet the same {setting["markets"]:,} markets (seeds from {setting["seed"]}), so that differences between them
are paired; ± is half of a 95% confidence interval over markets, and sd the deviation from market to market.

{measured_on(setting)}

## What a good market for {use} must show

{check_table(conditions)}

## Makers by half-spread

Without skew; units bought and sold are per {unit}.

{maker_table(games, 0.0, halves)}

With the best of the skews, {best_skew:g} ticks per unit:

{maker_table(games, best_skew, halves)}

![fills, PnL, risk and inventory by half-spread](images/{name}_maker.png)

## Skewing the quotes against inventory

Liquidated PnL, and in brackets its deviation from market to market:

{skew_table(games, skews, halves)}

The best half-spread of each skew, and its paired difference to the best maker without skew (half-spread {best[0.0]}):

{gain_table(games, skews, best)}"""


def changed_fields(preset: MarketConfig) -> str:
    """Return the fields that differ from the defaults."""
    defaults = MarketConfig().to_dict()
    return ", ".join(f"`{name}={value!r}`" for name, value in preset.to_dict().items() if value != defaults[name])


def checks(
    games: Games, market: Any, halves: Sequence[int], best: Any, plain: Any, skewed: Any, unit: str = "auction"
) -> list[tuple[str, str, bool]]:
    """State the conditions, what was measured, and whether they hold (at 95%, where there is an interval)."""
    fills = [mean_and_error(games[0.0, half].bought + games[0.0, half].sold).mean for half in halves]
    steps = [later / earlier for earlier, later in zip(fills, fills[1:], strict=False)]
    ends = [mean_and_error(plain.pnl - games[0.0, half].pnl) for half in (halves[0], halves[-1])]
    gain = mean_and_error(skewed.pnl - plain.pnl)
    risk = deviation_and_error(skewed.pnl, plain.pnl)
    sides = [mean_and_error(games[0.0, half].bought - games[0.0, half].sold) for half in halves]
    worst = max(sides, key=lambda side: abs(side.mean) / side.error)
    asymmetry = max(abs(side.mean) / fill for side, fill in zip(sides, fills, strict=True))
    depth = list(market.depth.values())
    growth = abs(depth[-1].mean - depth[0].mean)
    return [
        ("mean spread without learners at least 3 ticks", pm(market.spread, 2), market.spread.mean >= 3),
        (
            "fills fall smoothly with the half-spread",
            " > ".join(f"{fill:.2f}" for fill in fills),
            all(0.4 < step < 1 for step in steps),
        ),
        (
            "best half-spread inside, at 2 ticks or more",
            f"{best[0.0]} ticks; ahead of {halves[0]} by {pm(ends[0])}, of {halves[-1]} by {pm(ends[1])}",
            2 <= best[0.0] < halves[-1] and all(end.mean > end.interval() for end in ends),
        ),
        ("skewing against inventory is better in the mean", f"{pm(gain)} (paired)", gain.mean > gain.interval()),
        (
            "and in risk",
            f"sd {pm(risk)} (paired); mean / sd {ratio(skewed.pnl):.2f} instead of {ratio(plain.pnl):.2f}",
            risk.mean < -risk.interval(),
        ),
        (
            "buying and selling symmetric",
            f"bought less sold at most {100 * asymmetry:.2f}% of the fills; worst {pm(worst, 4)} units per {unit}",
            asymmetry < 0.01,
        ),
        (
            "books finite",
            f"{depth[0].mean:.1f} units resting after {min(market.depth)} {unit}s, "
            f"{depth[-1].mean:.1f} after {max(market.depth):,}",
            growth < 0.05 * depth[0].mean,
        ),
    ]


def check_table(rows: Sequence[tuple[str, str, bool]]) -> str:
    """Return the table of conditions."""
    verdicts = [[name, value, "holds" if holds else "**does not hold**"] for name, value, holds in rows]
    return table(("condition", "measured", ""), verdicts)


def maker_table(games: Games, skew: float, halves: Sequence[int]) -> str:
    """Return what the makers of one skew do, by half-spread."""
    rows = []
    for half in halves:
        game = games[skew, half]
        pnl, risk = mean_and_error(game.pnl), deviation_and_error(game.pnl)
        rows.append(
            [
                str(half),
                f"{game.bought.mean():.3f}",
                f"{game.sold.mean():.3f}",
                pm(mean_and_error(game.bought - game.sold), 4),
                f"{game.held.mean():.1f}",
                pm(pnl),
                f"{risk.mean:.0f}",
                f"{ratio(game.pnl):.2f}",
            ]
        )
    heads = ("half-spread", "bought", "sold", "bought - sold", "mean inventory", "liquidated PnL", "sd", "mean / sd")
    return table(heads, rows)


def skew_table(games: Games, skews: Sequence[float], halves: Sequence[int]) -> str:
    """Return what every maker earns, by half-spread and skew."""
    rows = [
        [
            str(half),
            *(f"{pm(mean_and_error(games[s, half].pnl))} ({games[s, half].pnl.std(ddof=1):.0f})" for s in skews),
        ]
        for half in halves
    ]
    return table(("half-spread", *(f"skew {skew:g}" for skew in skews)), rows)


def gain_table(games: Games, skews: Sequence[float], best: Mapping[float, int]) -> str:
    """Return the best maker of each skew, beside the best without skew."""
    plain = games[0.0, best[0.0]]
    rows = []
    for skew in skews:
        game = games[skew, best[skew]]
        pnl, risk = mean_and_error(game.pnl), deviation_and_error(game.pnl)
        differences = ["", ""]
        if skew:
            differences = [pm(mean_and_error(game.pnl - plain.pnl)), pm(deviation_and_error(game.pnl, plain.pnl))]
        low = f"{np.quantile(game.pnl, 0.05):.0f}"
        rows.append([f"{skew:g}", str(best[skew]), pm(pnl), pm(risk), f"{ratio(game.pnl):.2f}", low, *differences])
    heads = ("skew", "half-spread", "PnL", "sd", "mean / sd", "5% quantile", "PnL gained", "sd gained")
    return table(heads, rows)


def depth_table(market: Any, unit: str = "auction") -> str:
    """Return how much rests after how many auctions, or intervals."""
    heads = (f"{unit}s", *(f"{auctions:,}" for auctions in market.depth))
    return table(heads, [["units", *(pm(depth, 1) for depth in market.depth.values())]])


def candidate_table(
    preset: str,
    games: Games,
    rivals: Mapping[str, Games],
    watched: Mapping[str, Any],
    halves: Sequence[int],
    skew: float,
) -> str:
    """Return what the makers earn in each candidate, the preset first."""
    rows = []
    for name, found in {preset: games, **rivals}.items():
        market = watched[name]
        name = f"**`{name}`**" if name == preset else name
        best = max(halves, key=lambda half, found=found: found[skew, half].pnl.mean())
        game = found[skew, best]
        rows.append(
            [
                name,
                " / ".join(map(str, market.counts)),
                pm(market.spread, 2),
                f"{100 * market.two_sided.mean:.1f}%",
                " ".join(f"{found[0.0, half].bought.mean() + found[0.0, half].sold.mean():.2f}" for half in halves),
                " ".join(f"{found[0.0, half].pnl.mean():.0f}" for half in halves),
                f"{pm(mean_and_error(game.pnl))} at {best} (sd {game.pnl.std(ddof=1):.0f})",
            ]
        )
    at = " ".join(map(str, halves))
    heads = ("market", "agents", "spread", "two-sided", f"fills at {at}", f"PnL at {at}", "best with skew")
    return table(heads, rows)


def _returns_text(returns: Mapping[str, Returns]) -> str:
    """Return what is weak about the market as a market, with its tables."""
    price = returns["last price"]

    def at(values: np.ndarray, places: Sequence[int], place: int, digits: int = 3) -> str:
        return pm(mean_and_error(values[:, places.index(place)]), digits)

    half = next(
        (f"{span}" for span, share in zip(SPANS, price.fundamental.mean(0), strict=True) if share >= 0.5), "more"
    )
    lags = _by("lag, auctions", LAGS, returns, {"returns": "autocorrelation", "\\|returns\\|": "of_sizes"})
    spans = _by(
        "span, auctions", SPANS, returns, {"variance ratio": "variance_ratio", "the fundamental's share": "fundamental"}
    )
    without = returns[NO_MOMENTUM].autocorrelation
    ratios, acf, sizes = price.variance_ratio, price.autocorrelation, price.of_sizes
    points = [
        "**Nearly all of a return is taken back, within a few auctions.** The variance ratio is "
        f"{at(ratios, SPANS, 10)} over 10 auctions and {at(ratios, SPANS, 100)} over 100. That is more than a bounce "
        f"between bid and ask, which is over after one auction: the autocorrelation is {at(acf, LAGS, 1)} at lag 1 and "
        f"{at(acf, LAGS, 2)} at lag 2. Momentum agents carry a move on for an auction, then fundamental agents push "
        f"the price back; with noise agents in the momentum agents' place it is {at(without, LAGS, 1)} at lag 1.",
        f"**The fundamental price is {pm(mean_and_error(100 * price.fundamental[:, 0]), 2)}% of the variance of a "
        f"return**, and half of that of the change over {half} auctions. The rest is the orders of 20 agents in a thin "
        f"book: the price is {pm(mean_and_error(price.away), 2)} ticks away from the fundamental (root mean square).",
        f"**Volatility does not cluster for long.** The autocorrelation of |returns| is {at(sizes, LAGS, 2)} at lag 2, "
        f"{at(sizes, LAGS, 10)} at lag 10 and {at(sizes, LAGS, 20)} at lag 20.",
        f"**Tails are fat**: the excess kurtosis is {between(bootstrap_interval(price.kurtosis), 2)}.",
    ]
    return f"""The market was chosen for its spread and for what makers earn. Returns of stocks are nearly uncorrelated,
their sizes are correlated for days, and most of what moves a price stays. It is not so here. Over {LONG:,} auctions
after the warm-up, without learners, in {len(price.deviation):,} markets; a return is the change of a price over one
auction, and the mid is that of the book that an auction leaves behind:

{lags}

The variance ratio is the variance of the change over a span over as many times that over one auction: 1 for a random
walk. The fundamental's share is the variance of the fundamental price's change over that of the price's:

{spans}

{chr(10).join(f"- {point}" for point in points)}

So what is easy to learn here is to trade against the last move. That a policy does it well here does not say that it
would elsewhere. What the tasks are about is there: the spread pays for the risk, who knows the fundamental takes stale
quotes, and inventory costs."""


def _by(head: str, places: Sequence[int], returns: Mapping[str, Returns], rows: Mapping[str, str]) -> str:
    """Return a table of statistics by lag or span, those of the last price and of the mid."""
    cells = []
    for what, name in rows.items():
        for price, found in returns.items():
            values = getattr(found, name)
            cells.append([f"{what}, {price}", *(pm(mean_and_error(values[:, at]), 3) for at in range(len(places)))])
    return table((head, *map(str, places)), cells)


def ratio(pnl: np.ndarray) -> float:
    """Return the mean over the deviation."""
    return float(pnl.mean() / pnl.std(ddof=1))
