"""The text of `docs/traders.md`; `traders.py` measures its figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from kineticsim_env.statistics import bootstrap_interval, mean_and_error
from scripts.pages.markdown import between, measured_on, pm, wrapped

Found = Mapping[Any, Mapping[str, np.ndarray]]  # statistics by the kind of market, [M] or [M, lags] each


class Sizes(NamedTuple):
    """How much was played."""

    markets: int
    auctions: int
    periods: int
    intervals: int


def page(
    tables: Mapping[str, str],
    followers: Found,
    values: Found,
    mixtures: Found,
    sizes: Sizes,
    setting: Mapping[str, Any],
) -> str:
    """Return the page in Markdown.

    Args:
        tables: Of each example, by its file's name.
        followers: By the number of trend followers.
        values: By curve and rule.
        mixtures: By kind.
        sizes: How much was played.
        setting: What else the text names: engine, command, seconds.
    """
    text = f"""# Three traders, worked out

<!-- Written by `{setting["command"]}`; edit scripts/pages/traders_text.py instead. -->

Each is a file of `examples/traders` that runs by itself, in seconds on two cores. What may be written, and what it
costs: [your own trader](your_own_trader.md). A fourth, makers that learn from those who trade with them, has
[a page of its own](adverse_selection.md).

```bash
python examples/traders/trend_follower.py
python examples/traders/private_values.py
python examples/traders/chiarella.py
python examples/traders/cost.py
```

{measured_on(setting)} All of it took {setting["seconds"]:.0f} s. ± is half of a 95% confidence interval over markets;
of kurtosis, whose tail is heavy, both ends of a bootstrap's interval are given.

## Trend followers

```{{literalinclude}} ../examples/traders/trend_follower.py
:language: python
:pyobject: trend_follower
```

Each remembers two words: the mid when it last came, and how far the price is above its own moving average. They are
added to the preset `trading`, in which six of twenty agents know the fundamental price. Their lookbacks go from 4 to 33
auctions. {sizes.markets} markets, {sizes.auctions:,} auctions; the fundamental price takes the same path in all rows.

{tables["trend_follower"]}

![one market without and with trend followers, and autocorrelations](images/traders_trend_follower.png)

{_of_followers(followers)}

## Private values

```{{literalinclude}} ../examples/traders/private_values.py
:language: python
:pyobject: private_value
```

After Gode and Sunder, "Allocative Efficiency of Markets with Zero-Intelligence Traders", Journal of Political Economy
101 (1993): 119-137. Twenty buyers have a value for one unit, twenty sellers a cost. An auction is a period of its own:
each trader gives one order, and what did not trade is cancelled (`cancel_prob=1.0`). Values differ from agent to agent
and from market to market, `[M, count]`, so that all rules run side by side in one ensemble. What a trader ordered is in
its memory, from which the script computes who traded, and what it was worth.

Demand falls by 4 ticks per unit from 110. Symmetric supply rises by 4 from 18, so the equilibrium is at 64; flat supply
costs 40 for all. **Efficiency** is the surplus of an auction's trades as a share of the largest. **Smith's alpha** is
the root mean square of the price less the equilibrium, as a share of the latter. {sizes.markets} markets of each kind,
{sizes.periods:,} auctions.

{tables["private_values"]}

![efficiency and price by rule](images/traders_private_values.png)

{_of_values(values)}

## Fundamentalists and chartists

```{{literalinclude}} ../examples/traders/chiarella.py
:language: python
:pyobject: forecaster
```

After Chiarella and Iori, "A simulation analysis of the microstructure of double auction markets", Quantitative Finance
2 (2002): 346-353, and Chiarella, Iori and Perelló, "The impact of heterogeneous trading rules on the limit order book
and order flows", Journal of Economic Dynamics and Control 33 (2009): 525-537. Forecasts have three parts, whose weights
are each trader's own. The papers find that chartists make the fat tails and the clustering of volatility, and that
fundamentalists bound the price.

What is not as there: prices are whole ticks and forecasts changes in ticks, not logarithms; the trend is the distance
from a moving average, of which a trader believes at most 10 ticks; orders are of 1 to 4 units, not from a utility; they
are cancelled at random, not after a lifetime. The fundamental price walks by nearly normal steps, so that fat tails are
not its own. Margin, luck and cancellation were chosen so that a market of luck alone has no fat tails; with other
choices it has.

{sizes.markets} markets of each kind, {sizes.intervals:,} intervals of 100 orders of 50 traders, after 100 intervals.
Returns are changes of the last price over an interval.

{tables["chiarella"]}

![one market, tails and autocorrelations](images/traders_chiarella.png)

Beside what is known of real returns (Cont, "Empirical properties of asset returns: stylized facts and statistical
issues", Quantitative Finance 1 (2001): 223-236):

{_of_mixtures(mixtures)}

## What lines cost

Markets of 256 noise agents, built in and as classes: the same orders, and what else a trader may do. The fastest of
several runs in turn; on a CPU on one core.

{tables["cost"]}

In an auction to which each agent comes, the C++ engine lets several agents of a class decide at once; parameters of
each agent and memory are read, and memory is written, on the way. In call auctions on the clock it does so with those
who come between two beats. In continuous trading each order waits for the one before it. On a GPU: `--engine cuda
--markets 8192`; there `largest_order` counts in continuous trading.

The command that wrote this page: `{setting["command"]}`. `tests/test_traders_examples.py` runs all of it in small.
"""
    return "\n\n".join(wrapped(paragraph) for paragraph in text.split("\n\n")).rstrip() + "\n"


def _list(items: Sequence[str]) -> str:
    return "\n".join(f"- {' '.join(item.split())}" for item in items)


def _of_followers(found: Found) -> str:
    none, most = min(found), max(found)

    def at(count: int, name: str) -> str:
        return pm(mean_and_error(found[count][name]), 2)

    return f"""With {most} trend followers the price is {at(most, "distance")} ticks away from the fundamental price on
average, instead of {at(none, "distance")}: it overshoots in slow swings. From auction to auction it moves less,
{at(most, "deviation")} ticks against {at(none, "deviation")}. Returns of neighbouring auctions then go the same way,
those half a swing apart the other way."""


def _of_values(found: Found) -> str:
    def at(curve: str, rule: str, name: str, digits: int = 1) -> str:
        return pm(mean_and_error(found[curve, rule][name]), digits)

    symmetric = "symmetric", "constrained"
    return _list(
        [
            f"""**Met:** under symmetric curves random prices clear near the equilibrium on average, with a constraint
            {at(*symmetric, "price", 2)} ticks from it, and the constraint narrows their spread around it: alpha is
            {at(*symmetric, "alpha")}%, without it {at("symmetric", "no constraint", "alpha")}%.""",
            f"""**Met, of the critique** (Cliff and Bruten, "Zero is not enough: on the lower limit of agent
            intelligence for continuous double auction markets", Hewlett-Packard Laboratories report HPL-97-141, 1997):
            the curves' symmetry does that. Under flat supply the mean price is
            {at("flat supply", "constrained", "price")} ticks above the equilibrium.""",
            f"""**Not met:** Gode and Sunder's constrained traders come close to 100% efficiency; ours reach
            {at(*symmetric, "efficiency")}%. Theirs try again in a continuous auction until they have traded. Ours have
            one try, so that only {at(*symmetric, "volume")}% of the equilibrium's units trade. Within 20 ticks of their
            values they reach {at("symmetric", "within 20 ticks", "efficiency")}%.""",
            """At their values all of the surplus is there. Under flat supply any price from 40 to 42 then clears the
            same volume; `tie="mid"` takes the one next to the last price, 42.""",
        ]
    )


def _of_mixtures(found: Found) -> str:
    luck, value, some, more = found.values()

    def kurtosis(values: Mapping[str, np.ndarray], name: str = "kurtosis") -> str:
        return between(bootstrap_interval(values[name]), 1)

    def at(values: Mapping[str, np.ndarray], name: str, lag: int) -> str:
        return pm(mean_and_error(values[name][:, lag - 1]), 2)

    return _list(
        [
            f"""**Heavy tails: met.** Excess kurtosis is {kurtosis(luck)} with luck alone, {kurtosis(value)} with
            fundamentalists, {kurtosis(some)} with some chartists and {kurtosis(more)} with more.""",
            f"""**Nearer to normal over longer times: met.** Over 16 intervals it is {kurtosis(some, "long")} with some
            chartists.""",
            f"""**No autocorrelation of returns: nearly met at lag 1, not beyond.** With some chartists it is
            {at(some, "acf", 1)} at lag 1, where trends and the bounce between bid and ask nearly cancel, and
            {at(some, "acf", 5)} at lag 5: the price follows the fundamental price slowly, which a trader who knew could
            use. Real returns have nearly none beyond the first minutes.""",
            f"""**Volatility clusters: met for some intervals.** The autocorrelation of the returns' sizes at lag 1
            rises from {at(luck, "acf_size", 1)} with luck alone to {at(more, "acf_size", 1)} with more chartists; at
            lag 5 it is {at(more, "acf_size", 5)}.""",
            f"""**It decays slowly, as a power law with an exponent of 0.2 to 0.4: not met.** At lag 20 it is
            {at(more, "acf_size", 20)}. Nothing here has a long memory; traders who change their weights by what earned
            might.""",
            f"""**Large moves come with volume: weakly met**, with a correlation of
            {pm(mean_and_error(some["with_volume"]), 2)} with some chartists.""",
            """**Losses larger than gains, and more volatility after losses: not met.** Buying and selling are mirror
            images in this model.""",
        ]
    )
