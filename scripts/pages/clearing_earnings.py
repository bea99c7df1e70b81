"""The part of docs/clearing.md on what makers and informed slots earn, scripted and learned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kineticsim_env.statistics import Mean
from kineticsim_env.studies import clearing as study
from kineticsim_env.studies import clearing_learning as learning
from scripts.pages.clearing_rows import AROUND, EARNED, OFTEN, SELDOM, Found, at, interval_name, row_of
from scripts.pages.markdown import joined, pm, table

_BESIDE = {"maker": "maker", "informed": "sniper"}  # scripted slots that tables have beside those that learned


def earnings(found: Found) -> list[str]:
    """Return the paragraphs and tables."""
    parts = [
        "## What makers and informed slots earn",
        f"""In {EARNED}. By news: the scripted maker or sniper, with its best distance in brackets; the slot that
learned; and what that is ahead, seed by seed, of the best scripted slot: a maker of the maker, an informed slot of the
better of maker and sniper. 0.0 ± 0.0 is a slot that does best without a trade; ahead by 0.0 ± 0.0 is one that was kept
as it was scripted.""",
    ]
    for reference in study.REFERENCES:
        parts.append(f"Agents price {AROUND[reference]}; slots decide every {study.OFTEN} events:")
        for role in learning.ROLES:
            parts.append(_table(found, reference, [(OFTEN[role], news) for news in ("slow", "fast")]))
        parts.append(f"Agents price {AROUND[reference]}; slots decide every {study.SELDOM:,} events:")
        parts.append(_table(found, reference, [(SELDOM[role], "fast") for role in learning.ROLES]))
    rules = [interval for interval in study.RULES if interval <= study.OFTEN]
    places = [(reference, news) for reference in study.REFERENCES for news in study.NEWS]
    rows = [
        [interval_name(i), *(pm(at(found, *place, i, f"knowing_{study.OFTEN}"), 1) for place in places)] for i in rules
    ]
    heads = [f"{news} news, {AROUND[reference]}" for reference, news in places]
    own = OFTEN["informed"].name
    rents, lags = (
        joined([f"{pm(at(found, name, 'fast', i, own), 1)} ({study.rule_name(i)})" for i in rules])
        for name in ("fundamental", "mid")
    )
    maker = pm(at(found, "mid", "fast", study.OFTEN, OFTEN["maker"].name), 1)
    sniper = [
        pm(at(found, "fundamental", "fast", i, f"sniper_{study.OFTEN}"), 1) for i in (study.CONTINUOUS, study.OFTEN)
    ]
    gone, more = (row_of(found, name, "fast", study.OFTEN)[f"{own}_less"] for name in ("fundamental", "mid"))
    return [
        *parts,
        f"What knowing the fundamental price is worth: the learned informed slot less the learned maker, seed by seed, "
        f"both deciding every {study.OFTEN} events.",
        table(("interval", *heads), rows, [False] + [True] * len(heads)),
        f"""Budish, Cramton and Shim (2015) say that continuous trading pays whoever is first to a stale quote, and that
auctions make those who know the same compete on price. Fundamental agents that price around the fundamental price are
such competitors. There auctions of {study.OFTEN} {_verdict(gone)} what the learned informed slot earns with fast news:
{rents}. It may quote, so it earns the spread as well; the scripted sniper, which only takes what is stale, earns
{sniper[0]} under continuous trading and {sniper[1]} under auctions of {study.OFTEN}.""",
        f"""Agents that price around the mid order within their reach of the last price, whatever the fundamental
price is, so the price catches up a step at a time: with fast news its error is
{pm(at(found, "mid", "fast", study.CONTINUOUS, "error"), 1)} ticks under continuous trading and
{pm(at(found, "mid", "fast", study.OFTEN, "error"), 1)} under auctions of {study.OFTEN}. There these {_verdict(more)}
what the learned informed slot earns: {lags}. It alone knows the news, and nobody competes for it. A learned maker,
which does not know it but sees where the price goes, earns {maker} there under auctions of {study.OFTEN}.""",
    ]


def _table(found: Found, reference: str, columns: Sequence[tuple[learning.Kind, str]]) -> str:
    """Return a table of what slots earn, by rule; its columns are of kinds and paces of news, three of each."""
    heads = [
        head
        for kind, news in columns
        for head in (f"{_BESIDE[kind.role]}, {news}", f"learned {kind.role}, {news}", "ahead")
    ]
    rows = []
    for interval in study.RULES:
        if interval > max(kind.every for kind, _ in columns):
            continue  # a slot cannot decide as often
        row = [interval_name(interval)]
        for kind, news in columns:
            name = f"{_BESIDE[kind.role]}_{kind.every}"
            scripted, learned, lead = (
                pm(at(found, reference, news, interval, each), 1) for each in (name, kind.name, f"{kind.name}_lead")
            )
            distance = row_of(found, reference, news, interval)["scripted"][name]["distance"]
            row += [f"{scripted} ({distance})", learned, lead]
        rows.append(row)
    return table(("interval", *heads), rows, [False] + [True] * len(heads))


def _verdict(less: Any) -> str:
    """Say what a rule does to an amount, from its paired difference to continuous trading."""
    found = Mean(*less)
    if abs(found.mean) <= found.interval():
        return "do not clearly change"
    return "reduce" if found.mean < 0 else "raise"


def ahead(found: Found) -> str:
    """Say in how many cells learned slots are ahead of scripted ones."""
    leads = [Mean(*row[f"{kind.name}_lead"]) for row in found["rows"] for kind in learning.kinds(row["interval"])]
    more, less = (sum(sign * lead.mean > lead.interval() for lead in leads) for sign in (1, -1))
    even = len(leads) - more - less
    return (
        f"Of {len(leads)} slots that learned, by rule, reference, news, role and pace, {more} earn more at 95% than "
        f"the best scripted slots, {less} earn less, and {even} are not told apart."
    )
