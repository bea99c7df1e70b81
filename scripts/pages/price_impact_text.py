"""The text of `docs/price_impact.md`; `price_impact.py` measures its figures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from scripts.pages.markdown import measured_on, pm, table, wrapped

_DIGITS = {"trading": 2, "paper": 3}


def page(
    found: Mapping[str, Mapping[str, Sequence[Any]]],
    sold: Mapping[str, Any],
    others: Mapping[str, Sequence[Any]],
    even: Mapping[str, Any],
    fits: Mapping[str, Mapping[str, Any]],
    half: Mapping[str, Mapping[int, float]],
    setting: Mapping[str, Any],
) -> str:
    """Return the page in Markdown.

    Args:
        found: Measured orders by preset and sweep.
        sold: The middle order of each preset as a sell order.
        others: Orders in variants of the preset `"trading"`.
        even: The middle order of `"paper"` under `tie="mid"`, by side.
        fits: Power laws by preset and sweep; `"small"` is that of the smallest orders of `"by_rate"`.
        half: Auctions until half of the impact is gone, by preset and block of `"by_length"`.
        setting: What else the text names: command, engine, markets, duration, after, resamples, middle, small, seconds.
    """
    text = f"""# Price impact

<!-- Written by `{setting["command"]}`; edit scripts/pages/price_impact_text.py instead. -->

What a block order does to the price, against the same markets without it. A market's random numbers are hashes of its
seed, the auction and the agent's index, so an order changes nobody's draws: both arms are equal bit for bit until it
acts, and what differs then is its doing. `kineticsim_env.counterfactual` is the function behind this page, and
`kineticsim_env.env_counterfactual` does the same to the environments.

```python
from kineticsim_env import MarketConfig
from kineticsim_env.counterfactual import block_impact

found = block_impact(MarketConfig.preset("trading"), side="buy", block=40, per_auction=4, num_markets=256)
print(found.at_end.mean, found.permanent.mean, found.impact_cost.mean)  # ticks
print(found.arms.difference["mid2"][0, :12])  # market 0, half ticks
```

{measured_on(setting)} All of it took {setting["seconds"]:.0f} s. ± is half of a 95% confidence interval over
{setting["markets"]:,} markets, the same ones for every order of a preset.

## What is measured

An agent is added to the market (it replaces nobody) and buys a block after 100 auctions of warm-up: in each auction a
piece of a fixed size, marketable at any price; what a piece did not fill is added to the next.

- **Impact** is the mid of the built-in agents' book after an auction less that of the other arm, in ticks.
- **Left** is its mean over the last quarter of the {setting["after"]} auctions after the order.
- **Shortfall** (implementation shortfall) is what a unit cost over the mid at arrival.
- **Cost** is what it cost over the other arm's mid before each auction: the shortfall without the price's own drift.
- **Share** is the order's part of the market's volume while it lasted.
- **Exponents** are of a power of the block's size, by weighted least squares of the logarithms.
- **Brackets** are 95% intervals from {setting["resamples"]:,} resamples of the markets.

The fundamental price is the same in both arms: it is nobody's to move.

{chr(10).join(_preset(name, found[name], fits[name], half[name], setting) for name in found)}

## Buying and selling

{_sides(found, sold, even, setting["middle"])}

## Who holds the price

The preset `trading` with a class of agents replaced by noise agents, or without cancellations:

{_others_table(others)}

Fundamental agents are the anchor: without them the price goes where the order pushes it, further than while it was
pushed, and stays there. Momentum agents make fast orders dearer. Cancellation is what keeps the book thin: without it
the same orders move the price by a fraction.

## What pairing saves

The variance of the paired difference over that of two ensembles with seeds of their own (the sum of the arms'
variances, of the mid's change since arrival), by auctions since arrival. Unpaired ensembles would need 1 / ratio times
as many markets for the same interval.

{_pairing_table(found, setting["middle"])}

In `trading` most markets never come back to the other arm's very path: the book is thin, each agent prices its orders
from the mid, and a changed mid changes all that follows. What remains common is the fundamental price, and that is what
pairing removes. In `paper` most arms meet again, as the price is pinned and the book is deep.

The figures of an execution gain too: the variance of the cost over that of the shortfall, of the same executions, is
{_cost_gain(found, setting["middle"])}.
"""
    return "\n\n".join(_paragraph(part) for part in text.rstrip().split("\n\n")) + "\n"


def _preset(
    name: str,
    kinds: Mapping[str, Sequence[Any]],
    fits: Mapping[str, Any],
    half: Mapping[int, float],
    setting: Mapping[str, Any],
) -> str:
    digits = _DIGITS[name]
    rate = kinds["by_length"][0].impact.per_auction
    figures = {"trading": _trading, "paper": _paper}[name](kinds, fits, half, setting)
    return f"""## The preset `{name}`

![paths, size, participation and pairing in {name}](images/price_impact_{name}.png)

{figures}

**Ever longer, {rate} units per auction:**

{_order_table(kinds["by_length"], digits, half)}

**Ever faster, {setting["duration"]} auctions long:**

{_order_table(kinds["by_rate"], digits)}

**The same block, ever faster:**

{_order_table(kinds["by_speed"], digits)}
"""


def _trading(kinds: Any, fits: Any, half: Any, setting: Any) -> str:
    lengths, rates, speeds = ([point.impact for point in kinds[kind]] for kind in ("by_length", "by_rate", "by_speed"))
    steps = ", ".join(f"{value:.1f}" for value in _local(rates))
    second, count = lengths[1], len(lengths) + len(rates) + len(speeds)
    largest = max(abs(found.permanent.mean) for found in (*lengths, *rates, *speeds))
    return f"""**Length costs nothing more, speed does.** At {lengths[0].per_auction} units per auction the impact is at
its level after two auctions ({pm(second.at_end, 2)} ticks at {second.block} units) and stays there
({pm(lengths[-1].at_end, 2)} at {lengths[-1].block}). The fitted exponent is {_fit(fits["by_length"])}; what it
describes is a step and a plateau, not a law.

**In a fixed time, the impact is linear up to a fifth of the volume, and then grows ever faster.** Fitted to all blocks
of {setting["duration"]} auctions the exponent is {_fit(fits["by_rate"])}; fitted to the {setting["small"]} smallest (up
to {100 * rates[setting["small"] - 1].participation.mean:.0f}% of the volume) it is {_fit(fits["small"])}. From each
block to the next it is {steps}: no single power describes the curve. An order of half of the volume and more eats the
book faster than orders come in, every agent prices from the new mid, and the mid runs away from the fundamental
({pm(rates[-1].at_end, 1)} ticks at {rates[-1].per_auction} per auction). The concave law that is reported for stock
markets, near a square root, is not found here.

**Nothing is left.** The mid is back within {largest:.2f} ticks in all {count} orders, and half of the impact is gone
within {max(half.values()):.1f} auctions at {lengths[0].per_auction} per auction. The fundamental does not listen to
orders, and it is what the price comes back to.

**Patience is cheap.** {speeds[0].block} units cost {pm(speeds[0].impact_cost, 2)} ticks per unit over
{speeds[0].duration} auctions and {pm(speeds[-1].impact_cost, 2)} over {speeds[-1].duration}."""


def _paper(kinds: Any, fits: Any, half: Any, setting: Any) -> str:
    lengths, rates, speeds = ([point.impact for point in kinds[kind]] for kind in ("by_length", "by_rate", "by_speed"))
    steps = ", ".join(f"{value:.2f}" for value in _local(rates))
    return f"""**The price is pinned, and an order moves it by a tick at most.** In a fixed time the impact is linear
as long as it is small (exponent {_fit(fits["small"])} over the {setting["small"]} smallest blocks of
{setting["duration"]} auctions) and then stops at half a tick of mid ({pm(rates[-1].at_end, 3)}) and one tick of price
({pm(rates[-1].impact_cost, 3)}), whatever the size: behind the touch lies a wall of orders that has piled up since the
opening (nothing is cancelled in this market). One exponent over all blocks, {_fit(fits["by_rate"])}, is that of a bend;
from each block to the next it is {steps}.

**At a fixed rate it saturates with the length too**, over about {lengths[3].duration} auctions; the fitted exponent is
{_fit(fits["by_length"])}.

**It decays over about {_median(half):.0f} auctions** (to one half), and nothing is left of it; behind the longest order
it overshoots, to {lengths[-1].path.min():.2f} ticks. {speeds[0].block} units cost {pm(speeds[0].impact_cost, 3)} ticks
per unit over {speeds[0].duration} auctions and {pm(speeds[-1].impact_cost, 3)} over {speeds[-1].duration}."""


def _order_table(points: Sequence[Any], digits: int, half: Mapping[int, float] | None = None) -> str:
    heads = ["block", "units per auction", "auctions", "share", "impact at the end", "left", "shortfall", "cost"]
    rows = []
    for point in points:
        found = point.impact
        means = (pm(value, digits) for value in (found.at_end, found.permanent, found.shortfall, found.impact_cost))
        row = [f"{found.block:,}", str(found.per_auction), str(found.duration)]
        row += [f"{100 * found.participation.mean:.1f}%", *means]
        rows.append(row + ([f"{half[found.block]:.1f}"] if half else []))
    return table([*heads, *(["auctions to one half"] if half else [])], rows)


def _sides(
    found: Mapping[str, Any], sold: Mapping[str, Any], even: Mapping[str, Any], middle: Mapping[str, tuple[int, int]]
) -> str:
    rows = []
    for name, kinds in found.items():
        rows.append((f"`{name}`", _at(kinds["by_rate"], middle[name]).impact, sold[name].impact, _DIGITS[name]))
    rows.append(('`paper`, `tie="mid"`', even["buy"].impact, even["sell"].impact, _DIGITS["paper"]))
    lines = []
    for name, *sides, digits in rows:
        figures = [pm(getattr(side, what), digits) for what in ("at_end", "impact_cost") for side in sides]
        lines.append([name, f"{sides[0].block} at {sides[0].per_auction}", *figures])
    heads = ("market", "order", "impact, buying", "impact, selling", "cost, buying", "cost, selling")
    return f"""{table(heads, lines)}

Only the cost in `paper` differs by more than its interval: of several best prices the lowest clears there, which is the
buyer's gain and the seller's loss; with `tie="mid"` it does not."""


def _others_table(others: Mapping[str, Sequence[Any]]) -> str:
    rows = []
    for name, points in others.items():
        row = [name]
        for point in points:
            row += [pm(value, 2) for value in (point.impact.at_end, point.impact.permanent, point.impact.impact_cost)]
        rows.append(row)
    orders = [f"{point.impact.block} at {point.impact.per_auction}" for point in next(iter(others.values()))]
    heads = [f"{what}{order}" for order in orders for what in ("impact, ", "left, ", "cost, ")]
    return table(("market", *heads), rows)


def _cost_gain(found: Mapping[str, Any], middle: Mapping[str, tuple[int, int]]) -> str:
    parts = []
    for name, kinds in found.items():
        point = _at(kinds["by_rate"], middle[name]).impact
        parts.append(f"{(point.impact_cost.error / point.shortfall.error) ** 2:.2f} in `{name}`")
    return " and ".join(parts)


def _at(points: Sequence[Any], order: tuple[int, int]) -> Any:
    return next(point for point in points if (point.impact.block, point.impact.per_auction) == order)


def _pairing_table(found: Mapping[str, Any], middle: Mapping[str, tuple[int, int]]) -> str:
    rows = []
    for name, kinds in found.items():
        point = _at(kinds["by_rate"], middle[name])
        last = point.impact.duration
        at = (1, 2, 5, last, last + 10, last + 30, len(point.ratios))
        rows.append([f"`{name}`: ratio", *(f"{point.ratios[s - 1]:.3f}" for s in at)])
        rows.append(["markets apart", *(f"{100 * point.apart[s - 1]:.0f}%" for s in at)])
    return table(("order of the second sweep, auctions since arrival", *map(str, at)), rows)


def _local(found: Sequence[Any]) -> list[float]:
    """Return the exponent between each order and the next, where both have an impact."""
    pairs = [pair for pair in zip(found, found[1:], strict=False) if min(one.at_end.mean for one in pair) > 0]
    return [math.log(b.at_end.mean / a.at_end.mean) / math.log(b.block / a.block) for a, b in pairs]


def _fit(fit: Any) -> str:
    return f"{fit.exponent:.2f} [{fit.low:.2f}, {fit.high:.2f}]" if fit else "not to be had"


def _median(half: Mapping[int, float]) -> float:
    return sorted(half.values())[len(half) // 2]


def _paragraph(text: str) -> str:
    """Wrap running text, bold beginnings included; leave code, tables, headings and pictures."""
    return text.strip("\n") if text.lstrip("\n").startswith("```") or "```" in text else wrapped(text.strip("\n"))
