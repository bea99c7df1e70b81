"""What the pages of presets share: how scripted makers were measured in a preset, conditions, and tables.

`trading_preset_text.py` and `continuous_preset_text.py` write their pages with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kineticsim_env.config import MarketConfig
from kineticsim_env.statistics import deviation_and_error, mean_and_error
from scripts.pages.markdown import measured_on, pm, table

Games = Mapping[tuple[float, int], Any]  # by skew and half-spread


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


def ratio(pnl: np.ndarray) -> float:
    """Return the mean over the deviation."""
    return float(pnl.mean() / pnl.std(ddof=1))
