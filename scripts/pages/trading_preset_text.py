"""The text of `docs/trading_preset.md`; `trading_preset.py` measures its figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kineticsim_env.config import MarketConfig
from kineticsim_env.statistics import bootstrap_interval, mean_and_error
from kineticsim_env.studies.trading_preset import LAGS, LONG, SPANS, Returns
from scripts.pages.markdown import between, pm, table, wrapped
from scripts.pages.preset_text import (
    Games,
    best_by_skew,
    best_of,
    candidate_table,
    changed_fields,
    checks,
    depth_table,
    study_text,
)

NO_MOMENTUM = "last price, no momentum agents"  # of a table's row


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
    text = f"""# A market of call auctions to make a market in

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
