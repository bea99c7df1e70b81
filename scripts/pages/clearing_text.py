"""The text and the pictures of docs/clearing.md; `clearing.py` measures its figures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kineticsim_env.statistics import Mean
from kineticsim_env.studies import clearing as study
from kineticsim_env.studies import clearing_learning as learning
from kineticsim_env.studies import plots
from scripts.pages.clearing_earnings import ahead, earnings
from scripts.pages.clearing_rows import AROUND, EARNED, OFTEN, Found, at, interval_name
from scripts.pages.markdown import LEARNED_MAY_DIFFER, joined, page_of, pm, table

_COLOURS = dict(zip(study.NEWS, ("#0d4377", "#3f8f4f", "#d9661c"), strict=True))
_COMPARED = (study.CONTINUOUS, study.OFTEN)  # rules, in the answer


def page(found: Found) -> str:
    """Return the page in Markdown, of what `clearing.py` measured."""
    setting = found["setting"]
    parts = [_answer(found), *_played(setting)]
    for reference in study.REFERENCES:
        parts += _of(found, reference)
    parts += [*earnings(found), *_LIMITS, _seeds(setting)]
    return page_of("How often should a market clear?", "clearing_text.py", setting["command"], parts)


def _seeds(setting: Mapping[str, Any]) -> str:
    first, training = (seed >> 32 for seed in (study.SEED, learning.SEED))
    return f"Seeds from {first} * 2^32, in training from {training} * 2^32. {setting['measured']} {LEARNED_MAY_DIFFER}"


def draw(folder: Path, found: Found) -> None:
    """Write a picture for each reference."""
    panels = (
        ("error", "Pricing error, all events alike", "ticks"),
        ("cost", f"Cost of a block of {study.BLOCK} units", "ticks per unit"),
        ("spread", "Spread of the resting book", "ticks"),
        ("depth", f"Depth within {study.DEPTH_REACH} ticks of both best prices", "units"),
        (OFTEN["maker"].name, f"Maker that learns, decides every {study.OFTEN} events", EARNED),
        (OFTEN["informed"].name, f"Informed slot that learns, decides every {study.OFTEN} events", EARNED),
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
        best[row["reference"]].append(f"{study.rule_name(row['interval'])} if news is {row['news']}")
    errors = "; ".join(f"where agents price {AROUND[name]}, {joined(rules)}" for name, rules in best.items())
    never = (
        "Continuous trading is best, or as good as the best, in none of these"
        if not flat
        else f"Continuous trading is best, or as good as the best, in {len(flat)} of {len(counts)} cases"
    )
    informed, maker = (
        [at(found, "fundamental", "fast", i, OFTEN[role].name) for i in _COMPARED] for role in ("informed", "maker")
    )
    knowing = [at(found, "fundamental", "fast", i, f"knowing_{study.OFTEN}") for i in _COMPARED]
    lagging = [at(found, "mid", "fast", i, OFTEN["informed"].name) for i in _COMPARED]
    return f"""
{_pace(found)} The price is nearest the fundamental price with these rules: {errors}. A block
is cheapest {_cheapest(found)}. {never}. What is earned from others' staleness depends on what others know. With fast
news a slot that knows the fundamental price, and learns what to do with it, earns, in {EARNED},
{pm(informed[0], 1)} under continuous trading and {pm(informed[1], 1)} under auctions of {study.OFTEN} events where
agents price around the fundamental price, and {pm(lagging[0], 0)} and {pm(lagging[1], 0)} where they price around the
mid, which lags behind it. A maker that learns, and is not told the news, earns {pm(maker[0], 1)} and {pm(maker[1], 1)}
in the first of these, so that knowing is worth {pm(knowing[0], 1)} and {pm(knowing[1], 1)}. {ahead(found)}
"""


def _pace(found: Found) -> str:
    """Say whether faster news wants shorter intervals."""
    best = {name: [row["interval"] for row in found["best"]["error"] if row["reference"] == name] for name in AROUND}
    if all(sorted(rules, reverse=True) == rules and rules[0] > rules[-1] for rules in best.values()):
        return "Often enough for the news, and no oftener: the faster it comes, the shorter the best interval."
    return "No one interval is the best, and faster news does not always want a shorter one."


def _cheapest(found: Found) -> str:
    """Say for how many of the cases which rules are cheapest for a block, or as cheap at 95%."""
    rows = found["best"]["cost"]
    good = {i: sum(i in row["as_good"] for row in rows) for i in study.RULES}
    most = max(good.values())
    names = joined([study.rule_name(i) for i, count in good.items() if count == most])
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
{study.QUANTITY[study.OFTEN]} units per side, or {study.QUANTITY[study.SELDOM]}. Scripted makers and snipers are
tuned by grid: of the distances {joined([str(d) for d in study.DISTANCES])} ticks the one that earns most in one half of
the markets is taken, and what it earns in the other half is reported. What a slot earns is what its trades made against
the fundamental price after each decision. The block is {study.BLOCK} units per {study.SELDOM:,} events, in even pieces;
its cost is what it paid over the mid of the same market without it.""",
        f"""Two slots learn, each by itself for every rule, reference, pace of news and pace of decisions: a **maker**,
which is not told the fundamental price, and an **informed** slot, which is, and may quote as well as take. The maker
begins as the scripted one, the informed slot as the better of maker and sniper, each with the distance that is best
there of those at which it trades. A policy has
{len(learning.NUMBERS)} numbers, of a maker one less: how far from its estimate of the price it takes and quotes, how
much it leaves to rest, and how the estimate follows the mid, its last move, its average, the book's imbalance, the
slot's inventory and, if informed, the fundamental price (`kineticsim_env/studies/clearing_learning.py`). CMA-ES looks
for them in {setting["generations"]} generations of {learning.POPULATION} candidates, each in {learning.MARKETS} markets
of {study.WARMUP + study.EVENTS:,} events, so every rule has as many events and decisions to learn from. The reward is
what is reported, without a penalty on inventory. Where what was found is not ahead of the best scripted slot in
further markets of training, that is kept. What is reported is earned in the half of the markets where scripted
slots are measured, in which nobody has trained, so the two are compared seed by seed.""",
        f"{setting['markets']:,} seeds of each case, {study.EVENTS:,} events after {study.WARMUP:,} that are "
        f"left out. ± is "
        "half of a 95% interval over markets. Further fields: " + fields + ".",
    ]


def _of(found: Found, reference: str) -> list[str]:
    rows, books = [], []
    for interval in study.RULES:
        name = interval_name(interval)
        errors = [pm(at(found, reference, news, interval, "error"), 2) for news in study.NEWS]
        fresh = [pm(at(found, reference, news, interval, "fresh"), 2) for news in study.NEWS]
        rows.append([name, *errors, *fresh])
        costs = [pm(at(found, reference, news, interval, "cost"), 2) for news in study.NEWS]
        book = [pm(at(found, reference, "medium", interval, part), 1) for part in ("spread", "depth", "volume")]
        books.append([name, *costs, *book])
    best = [row for row in found["best"]["error"] if row["reference"] == reference]
    gains = joined(
        [
            f"{-_less(found, row).mean:.2f} ± {_less(found, row).interval():.2f} ticks less with "
            f"{study.rule_name(row['interval'])} "
            f"({row['news']} news)"
            for row in best
            if row["interval"] != study.CONTINUOUS
        ]
        or ["none"]
    )
    news = list(study.NEWS)
    right = [False] + [True] * 6
    return [
        f"## Agents that price {AROUND[reference]}",
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


_LIMITS = (
    "## What this leaves out",
    "- Built-in agents do not respond to the rule: they price as far from the mid, and come as often, under each.\n"
    "- A slot decides when an interval begins, and cannot revise before the auction. Makers in Budish, Cramton "
    "and Shim "
    "may revise until a batch ends, so long auctions are harder on slots here than there.\n"
    "- Policies that learn have few numbers, and begin at the best scripted slot: what they earn is the least that "
    "could be learned. [Continuous learning](continuous_learning.md) has networks that learn, under one rule. Agents "
    "do not learn.\n"
    "- There is one slot per market, so nobody learns against others who learn. Informed slots that race each other "
    "would share, and pay for speed.\n"
    "- Orders that wait are cancelled at each beat as those that rest are, 2% of them, so half are gone after about 34 "
    "beats: very long auctions clear what came last.",
)


def _less(found: Found, best: Mapping[str, Any]) -> Mean:
    return at(found, best["reference"], best["news"], best["interval"], "error_less")


def _curves(axes: Any, found: Found, reference: str, name: str, title: str, unit: str) -> None:
    most = study.OFTEN if name.endswith(f"_{study.OFTEN}") else study.INTERVALS[-1]
    intervals = [interval for interval in study.INTERVALS if interval <= most]
    kind = next((kind for kind in OFTEN.values() if kind.name == name), None)
    lines = "dashed: continuous trading" + "; dotted: scripted" * (kind is not None)
    for news, colour in _COLOURS.items():
        values = [at(found, reference, news, interval, name) for interval in intervals]
        plots.means(axes, intervals, values, colour, f"{news} news")
        flat = at(found, reference, news, study.CONTINUOUS, name)
        axes.axhline(flat.mean, ls="--", lw=1.2, color=colour)
        if kind:
            scripted = [at(found, reference, news, interval, kind.scripted).mean for interval in intervals]
            axes.plot(intervals, scripted, ":", lw=1.2, color=colour)
        axes.axhspan(flat.mean - flat.interval(), flat.mean + flat.interval(), color=colour, alpha=0.15, lw=0)
    axes.set(title=title, xlabel=f"interval, events ({lines})", ylabel=unit, xscale="log")
    if name in ("error", "depth"):
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        shown = [digit * 10**power for power in range(4) for digit in (1, 2, 5) if low <= digit * 10**power <= high]
        axes.set_yticks(shown, [f"{value:,}" for value in shown])
    axes.set_xticks(intervals, [f"{interval:,}" for interval in intervals], fontsize=8)
    axes.minorticks_off()
    axes.legend(fontsize=8)
