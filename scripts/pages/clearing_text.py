"""The text and the pictures of docs/clearing.md; `clearing.py` measures its figures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kineticsim_env.statistics import Mean
from kineticsim_env.studies import clearing as study
from kineticsim_env.studies import plots
from scripts.pages.markdown import joined, page_of, pm, table

Found = Mapping[str, Any]
_COLOURS = dict(zip(study.NEWS, ("#0d4377", "#3f8f4f", "#d9661c"), strict=True))
_AROUND = {"mid": "around the mid", "fundamental": "around the fundamental price"}


def page(found: Found) -> str:
    """Return the page in Markdown, of what `clearing.py` measured."""
    setting = found["setting"]
    parts = [_answer(found), *_played(setting)]
    for reference in study.REFERENCES:
        parts += _of(found, reference)
    parts += [*_staleness(found), *_LIMITS, f"Seeds from {study.SEED >> 32} * 2^32. {setting['measured']}"]
    return page_of("How often should a market clear?", "clearing_text.py", setting["command"], parts)


def draw(folder: Path, found: Found) -> None:
    """Write a picture for each reference."""
    panels = (
        ("error", "Pricing error, all events alike", "ticks"),
        ("cost", f"Cost of a block of {study.BLOCK} units", "ticks per unit"),
        ("spread", "Spread of the resting book", "ticks"),
        ("depth", f"Depth within {study.DEPTH_REACH} ticks of both best prices", "units"),
        (f"maker_{study.OFTEN}", f"Maker, decides every {study.OFTEN} events", "ticks x units per 1,000 events"),
        (f"sniper_{study.OFTEN}", f"Sniper, decides every {study.OFTEN} events", "ticks x units per 1,000 events"),
    )
    for reference in study.REFERENCES:
        plots.save_panels(
            folder / f"clearing_{reference}.png",
            [lambda axes, panel=panel, r=reference: _curves(axes, found, r, *panel) for panel in panels],
            size=(5.6, 3.6),
        )


def _answer(found: Found) -> str:
    counts = [row for rows in found["best"].values() for row in rows]
    flat = [row for row in counts if study.CONTINUOUS in row["as_good"]]
    best = {row["reference"]: [] for row in found["best"]["error"]}
    for row in found["best"]["error"]:
        best[row["reference"]].append(f"{_short(row['interval'])} if news is {row['news']}")
    errors = "; ".join(f"where agents price {_AROUND[name]}, {joined(rules)}" for name, rules in best.items())
    never = (
        "Continuous trading is best, or as good as the best, in none of these"
        if not flat
        else f"Continuous trading is best, or as good as the best, in {len(flat)} of {len(counts)} cases"
    )
    sniper, maker = (
        [_at(found, "fundamental", "fast", i, f"{role}_64") for i in (0, 64)] for role in ("sniper", "maker")
    )
    lagging = [_at(found, "mid", "fast", i, "sniper_64") for i in (0, 64)]
    return f"""
{_pace(found)} The price is nearest the fundamental price with these rules: {errors}. A block
is cheapest {_cheapest(found)}. {never}. What a sniper earns from others' staleness depends on what others know. With
fast
news it earns, in ticks x units per 1,000 events, {pm(sniper[0], 1)} under continuous trading and {pm(sniper[1], 1)}
under
auctions of 64 events where agents price around the fundamental price, and {pm(lagging[0], 0)} and {pm(lagging[1], 0)}
where
they price around the mid, which lags behind it. A maker that does not know the news earns {pm(maker[0], 0)} and
{pm(maker[1], 0)} in the first of these, with the distance that is best for it.
"""


def _pace(found: Found) -> str:
    """Say whether faster news wants shorter intervals."""
    best = {name: [row["interval"] for row in found["best"]["error"] if row["reference"] == name] for name in _AROUND}
    if all(sorted(rules, reverse=True) == rules and rules[0] > rules[-1] for rules in best.values()):
        return "Often enough for the news, and no oftener: the faster it comes, the shorter the best interval."
    return "No one interval is the best, and faster news does not always want a shorter one."


def _cheapest(found: Found) -> str:
    """Say for how many of the cases which rules are cheapest for a block, or as cheap at 95%."""
    rows = found["best"]["cost"]
    good = {i: sum(i in row["as_good"] for row in rows) for i in study.RULES}
    most = max(good.values())
    names = joined([_short(i) for i, count in good.items() if count == most])
    return f"with {names} (or as cheap as the cheapest at 95%, in {most} of {len(rows)} cases)"


def _played(setting: Mapping[str, Any]) -> list[str]:
    news = [(name, *(f"{value:g}" for value in level.values())) for name, level in study.NEWS.items()]
    fields = ", ".join(f"`{name}={value!r}`" for name, value in study.STREAM.items())
    roles = "\n".join(f"- **{name}**: {text.replace('`distance`', 'some')}" for name, text in study.ROLES.items())
    return [
        "## What was played",
        f"""The same clock under every rule: the same agents come at the same events, with the same random words, in the
same markets, and the fundamental price walks and jumps alike. A rule is continuous trading or call auctions of
{joined([f"{i:,}" for i in study.INTERVALS])} events. Noise agents (60%), makers (10%) and fundamental agents (30%) send
one order each. They price around the mid, as they do unless told otherwise, or around the fundamental price
(`reference="fundamental"`): then everyone who comes knows the news, and only orders that rest are out of date.
[One stream of orders](mechanisms.md) is the same experiment without fundamental agents and without slots.""",
        f"News comes at three speeds. Per beat of {study.BEAT} events the fundamental price moves with these "
        f"probabilities, "
        f"by 1 tick in a walk and by {study.STREAM['jump_size']} in a jump:",
        table(("news", "walk", "jump"), news, (False, True, True)),
        "One slot per market has an account. It is one of:",
        roles,
        f"""A slot decides every {study.OFTEN} events under rules that clear at least as often, so its chances are equal
there, and in other markets every {study.SELDOM:,} events under all rules. It orders at most
{study.QUANTITY[study.OFTEN]} units per side, or {study.QUANTITY[study.SELDOM]}. Makers and snipers are scripted, and
tuned by grid: of the distances {joined([str(d) for d in study.DISTANCES])} ticks the one that earns most in one half of
the markets is taken, and what it earns in the other half is reported. What a slot earns is what its trades made against
the fundamental price after each decision. The block is {study.BLOCK} units per {study.SELDOM:,} events, in even pieces;
its cost is what it paid over the mid of the same market without it.""",
        f"{setting['markets']:,} seeds of each case, {study.EVENTS:,} events after {study.WARMUP:,} that are "
        f"left out. ± is "
        "half of a 95% interval over markets. Further fields: " + fields + ".",
    ]


def _of(found: Found, reference: str) -> list[str]:
    rows, books = [], []
    for interval in study.RULES:
        name = "continuous" if interval == study.CONTINUOUS else f"{interval:,}"
        errors = [pm(_at(found, reference, news, interval, "error"), 2) for news in study.NEWS]
        fresh = [pm(_at(found, reference, news, interval, "fresh"), 2) for news in study.NEWS]
        rows.append([name, *errors, *fresh])
        costs = [pm(_at(found, reference, news, interval, "cost"), 2) for news in study.NEWS]
        book = [pm(_at(found, reference, "medium", interval, part), 1) for part in ("spread", "depth", "volume")]
        books.append([name, *costs, *book])
    best = [row for row in found["best"]["error"] if row["reference"] == reference]
    gains = joined(
        [
            f"{-_less(found, row).mean:.2f} ± {_less(found, row).interval():.2f} ticks less with "
            f"{_short(row['interval'])} "
            f"({row['news']} news)"
            for row in best
            if row["interval"] != study.CONTINUOUS
        ]
        or ["none"]
    )
    news = list(study.NEWS)
    right = [False] + [True] * 6
    return [
        f"## Agents that price {_AROUND[reference]}",
        f"![statistics by interval](images/clearing_{reference}.png)",
        "Pricing error: the root mean square of the price that stands less the fundamental price, all events "
        "alike, and at "
        "the moments of clearing alone, in ticks.",
        table(("interval", *news, *(f"at clearing, {name}" for name in news)), rows, right),
        f"Against continuous trading, seed by seed, the error of the best rule is: {gains}.",
        "Cost of a block in ticks per unit; spread in ticks, depth in units and volume in units per 100 events "
        "at medium "
        "news.",
        table(("interval", *(f"cost, {name}" for name in news), "spread", "depth", "volume"), books, right),
    ]


def _staleness(found: Found) -> list[str]:
    parts = [
        "## What makers and snipers earn",
        "Ticks x units per 1,000 events, with the best distance in brackets. The first four columns are of slots "
        "that decide "
        f"every {study.OFTEN} events, the last two of those that decide every {study.SELDOM:,}. 0.0 ± 0.0 "
        "is a slot that does best without a trade.",
    ]
    for reference in study.REFERENCES:
        rows = []
        for interval in study.RULES:
            row = ["continuous" if interval == study.CONTINUOUS else f"{interval:,}"]
            for role, news in (("maker", "slow"), ("maker", "fast"), ("sniper", "slow"), ("sniper", "fast")):
                row.append(_earned(found, reference, news, interval, f"{role}_{study.OFTEN}"))
            row += [
                _earned(found, reference, "fast", interval, f"{role}_{study.SELDOM}") for role in ("maker", "sniper")
            ]
            rows.append(row)
        heads = ("interval", "maker, slow", "maker, fast", "sniper, slow", "sniper, fast")
        heads += tuple(f"{role}, fast, every {study.SELDOM:,}" for role in ("maker", "sniper"))
        parts += [f"Agents price {_AROUND[reference]}:", table(heads, rows, [False] + [True] * 6)]
    rents, lags = (
        joined([f"{pm(_at(found, name, 'fast', i, 'sniper_64'), 1)} ({_short(i)})" for i in (0, 1, 4, 16, 64)])
        for name in ("fundamental", "mid")
    )
    gone, more = (
        _row(found, name, "fast", study.OFTEN)[f"sniper_{study.OFTEN}_less"] for name in ("fundamental", "mid")
    )
    return [
        *parts,
        f"""Budish, Cramton and Shim (2015) say that continuous trading pays whoever is first to a stale quote, and that
auctions make those who know the same compete on price. Fundamental agents that price around the fundamental price are
such competitors. There auctions of {study.OFTEN} {_verdict(gone)} what the sniper earns with fast news: {rents}.""",
        f"""Agents that price around the mid order within their reach of the last price, whatever the fundamental
price is, so
the price catches up a step at a time: with fast news its error is
{pm(_at(found, "mid", "fast", study.CONTINUOUS, "error"), 1)} ticks under continuous trading and
{pm(_at(found, "mid", "fast", study.OFTEN, "error"), 1)} under auctions of {study.OFTEN}. There these {_verdict(more)}
what
the sniper earns: {lags}. It alone knows the news, and nobody competes for it.""",
    ]


def _verdict(less: Any) -> str:
    """Say what a rule does to an amount, from its paired difference to continuous trading."""
    found = Mean(*less)
    if abs(found.mean) <= found.interval():
        return "do not clearly change"
    return "reduce" if found.mean < 0 else "raise"


_LIMITS = (
    "## What this leaves out",
    "- Built-in agents do not respond to the rule: they price as far from the mid, and come as often, under each.\n"
    "- A slot decides when an interval begins, and cannot revise before the auction. Makers in Budish, Cramton "
    "and Shim "
    "may revise until a batch ends, so long auctions are harder on slots here than there.\n"
    "- Slots are scripted and tuned by grid, and do not learn. [Continuous learning](continuous_learning.md) has "
    "a maker "
    "and an executor that do, under one rule.\n"
    "- There is one slot per market. Snipers that race each other would share, and pay for speed.\n"
    "- Orders that wait are cancelled at each beat as those that rest are, 2% of them, so half are gone after about 34 "
    "beats: very long auctions clear what came last.",
)


def _earned(found: Found, reference: str, news: str, interval: int, name: str) -> str:
    if interval > int(name.rpartition("_")[2]):
        return ""  # it cannot decide as often
    row = _row(found, reference, news, interval)
    return f"{pm(Mean(*row[name]), 1)} ({row['distances'][name]})"


def _row(found: Found, reference: str, news: str, interval: int) -> Mapping[str, Any]:
    wanted = (reference, news, interval)
    return next(row for row in found["rows"] if (row["reference"], row["news"], row["interval"]) == wanted)


def _at(found: Found, reference: str, news: str, interval: int, name: str) -> Mean:
    return Mean(*_row(found, reference, news, interval)[name])


def _less(found: Found, best: Mapping[str, Any]) -> Mean:
    return _at(found, best["reference"], best["news"], best["interval"], "error_less")


def _short(interval: int) -> str:
    return study.rule_name(interval)


def _curves(axes: Any, found: Found, reference: str, name: str, title: str, unit: str) -> None:
    most = study.OFTEN if name.endswith(f"_{study.OFTEN}") else study.INTERVALS[-1]
    intervals = [interval for interval in study.INTERVALS if interval <= most]
    for news, colour in _COLOURS.items():
        values = [_at(found, reference, news, interval, name) for interval in intervals]
        plots.means(axes, intervals, values, colour, f"{news} news")
        flat = _at(found, reference, news, study.CONTINUOUS, name)
        axes.axhline(flat.mean, ls="--", lw=1.2, color=colour)
        axes.axhspan(flat.mean - flat.interval(), flat.mean + flat.interval(), color=colour, alpha=0.15, lw=0)
    axes.set(title=title, xlabel="interval, events (dashed: continuous trading)", ylabel=unit, xscale="log")
    if name in ("error", "depth"):
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        shown = [digit * 10**power for power in range(4) for digit in (1, 2, 5) if low <= digit * 10**power <= high]
        axes.set_yticks(shown, [f"{value:,}" for value in shown])
    axes.set_xticks(intervals, [f"{interval:,}" for interval in intervals], fontsize=8)
    axes.minorticks_off()
    axes.legend(fontsize=8)
