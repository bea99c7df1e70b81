"""The text of docs/mechanisms.md; `mechanisms.py` measures its figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kineticsim_env.statistics import Mean, mean_and_error
from kineticsim_env.studies.mechanisms import APART, BEAT, CONTINUOUS, LOOK, STREAM, Measures
from scripts.pages.markdown import measured_on, pm, table, wrapped
from scripts.pages.mechanisms_prose import AFTER, BEFORE, CHOICES, LEVERS, WORDS

Found = Mapping[str, Mapping[int | None, Measures]]  # by the name of the fundamental price, and by the rule


def page(found: Found, setting: Mapping[str, Any]) -> str:
    """Return the page in Markdown.

    Args:
        found: What each rule makes of the stream.
        setting: What else the text names: engine, command, markets, warmup, events, seed.
    """
    note = f"<!-- Written by `{setting['command']}`; edit scripts/pages/mechanisms_prose.py instead. -->"
    head, body = BEFORE.split("\n\n", 1)
    levers = table(("field", "example", "what it does"), [[f"`{n}`", f"`{e}`", text] for n, e, text in LEVERS])
    text = "\n\n".join([head, note, body.strip(), _one_stream(found, setting), AFTER.strip()]) + "\n"
    for place, rows in (
        ("WORDS_TABLE", table(("word", "what it is", "field"), WORDS)),
        ("CHOICES_TABLE", table(("for", "take"), CHOICES)),
        ("LEVERS_TABLE", levers),
    ):
        text = text.replace(place, rows)
    return text


def _one_stream(found: Found, setting: Mapping[str, Any]) -> str:
    seldom, often = found.values()
    best = {name: _best(rules) for name, rules in found.items()}
    (low, low_error), (high, high_error) = best.values()
    flat = {name: mean_and_error(rules[CONTINUOUS].error) for name, rules in found.items()}
    intervals = [interval for interval in seldom if interval is not CONTINUOUS]
    longest, shortest = intervals[-1], intervals[0]
    fields = ", ".join(f"`{name}={value!r}`" for name, value in STREAM.items())

    def at(interval: int | None, name: str, rules: Mapping[int | None, Measures] = seldom, digits: int = 2) -> str:
        return pm(mean_and_error(getattr(rules[interval], name)), digits)

    text = f"""
## The clearing interval

How long should orders be collected before they are cleared? The same stream, one market, seen under four rules. Each
order trades at once under the first; under the others it waits for the next auction. Between auctions the price stands
still.

![price paths under four rules](images/mechanisms_paths.png)

The books after the same 1,600 events. Far from the price they are nearly the same, as hardly anybody has traded with
what rests there. Close to the price continuous trading leaves little: it has traded with whoever came.

![books after the same events](images/mechanisms_books.png)

What this does to {setting["markets"]:,} markets, over {setting["events"]:,} events after {setting["warmup"]:,} that are
left out:

- **Pricing error**: the root mean square of the last price less the fundamental price, over all events alike, so a
  price that has stood still for long counts as it stands.
- **Volatility**: the root mean square of the last price's change over 1,000 events (994, to be exact: prices are
  looked at every 7 events).
- **Spread**: of the book, every 1,000 events, where it has two sides.
- **Volume**: units per 100 events.

The fundamental price walks. In one series it also jumps by {STREAM["jump_size"]} ticks seldom (at 2% of the beats), in
the other often (20%). Values are means over markets, with 95% intervals.

![statistics by interval](images/mechanisms_interval.png)

{_table(found, intervals)}

**Pricing error has a minimum inside.** Under continuous trading it is {pm(flat["jumps seldom"], 2)} ticks: an order
trades with whatever rests, at whatever distance. An auction averages over the orders that it collects, so the error
falls with the interval, to {pm(low_error, 2)} ticks at {low:,} events. Beyond that the price is out of date most of
the time, and the error grows, to {at(longest, "error")} at {longest:,} events. Where the fundamental price jumps often,
the least error is {pm(high_error, 2)} ticks, at {high:,} events: the faster the value moves, the shorter the best
interval. At {longest:,} events the error is {at(longest, "error", often)} then, against {pm(flat["jumps often"], 2)}
under continuous trading.

**At the moments of clearing alone** a long interval costs nothing: the error there is {at(low, "fresh")} ticks at
{low:,} events and {at(longest, "fresh")} at {longest:,} (seldom), and {at(longest, "fresh", often)} at {longest:,}
(often). What longer intervals cost is waiting.

**Volatility and spread fall with the interval**, from {at(shortest, "volatility")} and {at(shortest, "spread")} ticks
at {shortest:,} to {at(longest, "volatility")} and {at(longest, "spread")} at {longest:,}. The fundamental price itself
moves by {_own_volatility():.1f} ticks over as many events. The rest is error that comes and goes: prices that move
between the sides of a thin book.

**Volume falls too**: {at(CONTINUOUS, "volume")} units per 100 events under continuous trading, {at(20, "volume")} at
20 events
and {at(longest, "volume", digits=1)} at {longest:,}. In an auction, those who would have traded
at a poor price find that there is a better one without them. From intervals of more than a beat ({BEAT} events) on,
orders are also
cancelled while they wait, {100 * STREAM["cancel_prob"]:.0f}% at each beat, and that takes most of it.

**Auctions of one event are nearly continuous trading**: error {at(1, "error")} against {at(CONTINUOUS, "error")},
volume {at(1, "volume")} against {at(CONTINUOUS, "volume")}. What is left of the difference is the price (an
auction's is where
most trades, and between equals nearest the mid; a continuous trade's is the resting order's).

These figures are of this stream: {fields}. Where agents look at the mid (`reference="mid"`) the rule also changes what
they send, and the stream is no longer the same.

Seeds from {setting["seed"]}. {measured_on(setting)}
"""
    return "\n\n".join(wrapped(paragraph) for paragraph in text.strip().split("\n\n"))


def _best(rules: Mapping[int | None, Measures]) -> tuple[int, Mean]:
    """Return the interval with the least pricing error, and the error."""
    errors = {interval: mean_and_error(measures.error) for interval, measures in rules.items() if interval is not None}
    best = min(errors, key=lambda interval: errors[interval].mean)
    return best, errors[best]


def _own_volatility(jump_prob: float = 0.02) -> float:
    """Return the root mean square of the fundamental price's change over as many events as a price's, in ticks."""
    beats = APART // LOOK * LOOK / BEAT
    return float((beats * (STREAM["walk_prob"] + jump_prob * STREAM["jump_size"] ** 2)) ** 0.5)


def _table(found: Found, intervals: list[int]) -> str:
    seldom, often = found.values()
    rows = []
    for interval in (CONTINUOUS, *intervals):
        name = "continuous" if interval is CONTINUOUS else f"{interval:,}"
        columns = [(seldom, "error"), (often, "error"), (seldom, "fresh"), (seldom, "volatility")]
        columns += [(seldom, "spread"), (seldom, "volume")]
        rows.append([name, *(pm(mean_and_error(getattr(rules[interval], field)), 2) for rules, field in columns)])
    heads = ("interval", "error, seldom", "error, often", "at clearing", "volatility", "spread", "volume")
    return table(heads, rows)
