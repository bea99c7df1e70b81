"""The text of `docs/continuous_preset.md`; `continuous_preset.py` measures its figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kineticsim_env.statistics import mean_and_error
from scripts.pages.markdown import pm, table, wrapped
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

if TYPE_CHECKING:
    from kineticsim_env.studies.trading_preset import Game
    from scripts.pages.trading_preset import Measured


def page(
    found: Measured,
    late: Mapping[tuple[int, int], Game],
    patient: Mapping[tuple[bool, int], Game],
    random: Mapping[str, Game],
    in_trading: tuple[Game, Game],
    setting: Mapping[str, Any],
) -> str:
    """Return the page in Markdown.

    Args:
        found: What `trading_preset.measure` found.
        late: The makers of the best skew by latency and half-spread.
        patient: Those that stay where they are, by whether they keep their place, and half-spread.
        random: Random quotes, in the preset and in each candidate.
        in_trading: In the preset `"trading"`: random quotes, and its best maker.
        setting: What else the text names.
    """
    games, market = found.games, found.watched["continuous"]
    best, halves = best_by_skew(games), sorted({half for _, half in games})
    best_skew, half = best_of(games, list(best)[1:])
    plain, skewed = games[0.0, best[0.0]], games[best_skew, half]
    conditions = [
        *checks(games, market, halves, best, plain, skewed, "interval"),
        *_checks_of_time(market, skewed, half, late, patient, random["continuous"], in_trading),
    ]
    words = {"when": "At every decision", "unit": "interval", "use": "making a market"}
    study = study_text(games, conditions, setting, name="continuous", **words)
    text = f"""# A market of continuous trading

<!-- Written by `{setting["command"]}`; edit scripts/pages/continuous_preset_text.py instead. -->

The preset `"continuous"` is the first market for learners in which [orders trade as they
come](model.md#continuous-trading): a quote has a place in a queue, may be reached at any moment of an interval, and can
be late. It was looked for as [the preset `trading`](trading_preset.md) was, and to be harder: most agents know a
fundamental price that moves fast, little of the flow is noise, and the spread just pays for what informed orders take.

`MarketConfig.preset("continuous")` differs from the defaults in {changed_fields(found.preset)}.

An interval, and so a decision, is {setting["interval"]} orders. The fundamental price moves, and orders are cancelled,
every {found.preset.num_agents} orders, the default of `beat`.
Each order is by one of {found.preset.num_agents} agents, drawn by lot, so one of a class less changes little: learners
can replace some.

{study}

## Being late

Fresh quotes arrive `quote_latency` events after the decision; until then the old ones stand. Liquidated PnL of the
makers with a skew of {best_skew:g}:

{_late_table(late, halves)}

A quote that is late is priced around a mid that has moved on. Near the mid that costs most; a maker who knows that its
quotes are late quotes further away. Furthest away a late quote earns no less: part of a move is taken back in the next
interval, and a quote around an earlier mid trades against it.

## A place in a queue

The makers above follow the mid, and so give up their places all the time. A patient one leaves a quote where it is
while it is within {setting["patience"]} ticks of where it would be placed anew. It is played twice, with the same rule
of prices: once it keeps its place; once it gives up a unit in one decision and asks for it back in the next, and so
goes to the back of its queue every other decision. Skew {best_skew:g}, fills in units per interval:

{_patient_table(patient, halves)}

![latency and queues](images/continuous_time.png)

## Random quotes

Every quote is drawn: its distance from the mid up to {setting["reach"]} ticks, its quantity up to {setting["size"]}
units, each side for itself. The last column is what that earns of what the best maker in the table above, or below,
earns:

{_random_table(games, found.rivals, random, in_trading)}

## The market itself

Without learners, over the same {setting["auctions"]} intervals: the spread is {pm(market.spread, 2)} ticks where the
book has two sides ({100 * market.two_sided.mean:.1f}% of the books), and the change of the last price from interval to
interval has a deviation of {pm(market.volatility, 2)} ticks. The resting quantity of both sides does not grow with the
intervals since the opening:

{depth_table(market, "interval")}

The deepest book seen held {market.deepest:,} units.

## Why not another

The same makers, on {setting["rival_markets"]:,} markets of each candidate: liquidated PnL by half-spread without skew,
and the best maker with a skew of {setting["skew"]:g}. Agents are noise / momentum / maker / fundamental.

{candidate_table("continuous", games, found.rivals, found.watched, halves, setting["skew"])}

{chr(10).join(f"- **{name}**: {why}" for name, why in setting["verdicts"].items())}
"""
    return "\n\n".join(wrapped(paragraph) for paragraph in text.rstrip().split("\n\n")) + "\n"


def _checks_of_time(
    market: Any,
    skewed: Game,
    half: int,
    late: Mapping[tuple[int, int], Game],
    patient: Mapping[tuple[bool, int], Game],
    random: Game,
    in_trading: tuple[Game, Game],
) -> list[tuple[str, str, bool]]:
    """State what `checks` does not ask: depth, latency, queues, random quotes."""
    resting = market.depth[min(market.depth)].mean / 2
    events = sorted({events for events, _ in late})
    lost = [
        mean_and_error(late[after, half].pnl - late[before, half].pnl)
        for before, after in zip(events, events[1:], strict=False)
    ]
    kept, given_up = patient[True, half], patient[False, half]
    worth = mean_and_error(kept.pnl - given_up.pnl)
    units = mean_and_error(kept.bought + kept.sold - given_up.bought - given_up.sold)
    share, there = random.pnl.mean() / skewed.pnl.mean(), in_trading[0].pnl.mean() / in_trading[1].pnl.mean()
    return [
        ("a side is deeper than two quotes of 8 units", f"{resting:.1f} units", resting > 16),
        (
            f"latency matters: half-spread {half}, quotes {', '.join(map(str, events))} events late",
            f"{', '.join(f'{late[after, half].pnl.mean():.0f}' for after in events)}; "
            f"{' and '.join(pm(loss) for loss in lost)} (paired)",
            all(loss.mean < -loss.interval() for loss in lost),
        ),
        (
            f"a place in a queue is worth something, half-spread {half}",
            f"{pm(worth)} in PnL, {pm(units, 3)} units per interval (paired)",
            worth.mean > worth.interval() and units.mean > units.interval(),
        ),
        (
            "random quotes earn less of the best maker's PnL than in `trading`",
            f"{100 * share:.0f}% instead of {100 * there:.0f}%",
            bool(share < there),
        ),
    ]


def _late_table(late: Mapping[tuple[int, int], Game], halves: Sequence[int]) -> str:
    events = sorted({events for events, _ in late})
    rows = []
    for half in halves:
        pnl = [late[after, half].pnl for after in events]
        lost = [pm(mean_and_error(other - pnl[0])) for other in pnl[1:]]
        rows.append([str(half), *(pm(mean_and_error(one)) for one in pnl), *lost])
    heads = ("half-spread", *(f"{after} events late" for after in events), *(f"{after} less 0" for after in events[1:]))
    return table(heads, rows)


def _patient_table(patient: Mapping[tuple[bool, int], Game], halves: Sequence[int]) -> str:
    rows = []
    for half in halves:
        kept, lost = patient[True, half], patient[False, half]
        fills = [game.bought + game.sold for game in (kept, lost)]
        rows.append(
            [
                str(half),
                pm(mean_and_error(kept.pnl)),
                pm(mean_and_error(lost.pnl)),
                pm(mean_and_error(kept.pnl - lost.pnl)),
                *(f"{fill.mean():.3f}" for fill in fills),
                pm(mean_and_error(fills[0] - fills[1]), 3),
            ]
        )
    heads = ("half-spread", "PnL, kept", "PnL, lost", "difference", "fills, kept", "fills, lost", "difference")
    return table(heads, rows)


def _random_table(
    games: Games, rivals: Mapping[str, Games], random: Mapping[str, Game], in_trading: tuple[Game, Game]
) -> str:
    best = {
        name: max((game for game in found.values()), key=lambda game: game.pnl.mean())
        for name, found in {"continuous": games, **rivals}.items()
    }
    pairs = {
        "**`continuous`**": (random["continuous"], best["continuous"]),
        "`trading`": in_trading,
        **{name: (random[name], best[name]) for name in rivals},
    }
    rows = [
        [
            name,
            pm(mean_and_error(drawn.pnl)),
            f"{drawn.bought.mean() + drawn.sold.mean():.2f}",
            pm(mean_and_error(other.pnl)),
            f"{100 * drawn.pnl.mean() / other.pnl.mean():.0f}%",
        ]
        for name, (drawn, other) in pairs.items()
    ]
    return table(("market", "random quotes", "their fills", "best maker", "share"), rows)
