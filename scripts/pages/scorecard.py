"""`python -m scripts.pages.scorecard --markets 256` holds every preset to the stylised facts of real markets.

It writes docs/scorecard.md and its picture.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence

from kineticsim_env.config import PRESETS, MarketConfig
from kineticsim_env.envs.settings import EnvSettings
from kineticsim_env.runtime.options import exit_code, whole
from kineticsim_env.runtime.seeds import run_seed
from kineticsim_env.scorecard import Line, Scorecard, scorecard
from kineticsim_env.statistics.facts import FACTS
from scripts.pages.command import check_place, page_parser
from scripts.pages.markdown import measured_on, table, wrapped, write_page

SEED = run_seed(17)
_PAGE = """# Scorecard

<!-- Written by `{command}`; edit scripts/pages/scorecard.py instead. -->

How a market stands beside what is known of real ones. `ks.scorecard` measures {count} stylised facts, each a number
with the range that the literature reports, and says which are met.

```python
import kineticsim_env as ks

card = ks.scorecard(ks.MarketConfig.preset("trading"), intervals=400, markets=16)
print(card)  # a table: values with standard errors, ranges, verdicts
print(card.met, [line.fact.name for line in card.lines if line.verdict == "met"])
```

From the command line, with a picture, and the table with its sources as a file:

```bash
python -m kineticsim_env scorecard --preset trading --markets 16 --intervals 400 --plot card.png --output card.json
```

It takes a simulator as well, which goes on from where it is: with your own traders, or with changed parameters.

## How to read it

A number is a mean over markets, or a function of such means; ± is its standard error. A fact is **met** within its
range, **not met** outside it, and **unclear** where a bound is within the 95% interval. It is **undefined** where
the market has no such number: a decay has an exponent only if the autocorrelations are above 0, by two standard errors,
at all of the lags that it is fitted at. A range is the source's where the source gives one. Where it says only that
something is there, absent or slow, the bounds are ours, and are marked *. What real markets show over minutes is asked
of single intervals here, which have no length in seconds. None of it was used to fit a preset.

## The presets

{measured}

{found}

![the default market beside the facts](images/scorecard.png)

## The facts

{facts}
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, draw, and write the page."""
    parser = page_parser(__doc__, 256, "of each preset", engine="cpu", kept=False)
    parser.add_argument("--intervals", type=whole(200), default=4000, help="that are measured")
    options = parser.parse_args(arguments)
    check_place(options)
    begin = time.perf_counter()
    cards = {}
    for preset in PRESETS:
        market = MarketConfig.preset(preset)
        cards[preset] = scorecard(market, options.intervals, markets=options.markets, seed=SEED, engine=options.engine)
        print(f"{preset}: {cards[preset].met} of {len(FACTS)}")
    cards[EnvSettings.preset].draw(options.output / "images" / "scorecard.png")
    command = f"python -m scripts.pages.scorecard --markets {options.markets} --intervals {options.intervals}"
    setting = {"command": command, "engine": options.engine}
    text = page(cards, setting, time.perf_counter() - begin)
    write_page(options.output, "scorecard", text)


def page(cards: dict[str, Scorecard], setting: dict[str, str], seconds: float) -> str:
    """Return the page."""
    first = next(iter(cards.values()))
    default = EnvSettings.preset
    measured = (
        f"{measured_on(setting)} {first.markets:,} markets of each preset, {first.measured.intervals:,} intervals "
        f"after 200 from the opening book, returns of the last price; all of it took {seconds:.0f} s. Environments "
        f"play `{default}` unless told otherwise. Met facts are bold."
    )
    heads = ("fact", "range", *(f"`{name}`" for name in cards))
    rows = [
        (fact.name, _range(place), *(_cell(card.lines[place]) for card in cards.values()))
        for place, fact in enumerate(FACTS)
    ]
    rows.append(("**met**", f"of {len(FACTS)}", *(f"**{card.met}**" for card in cards.values())))
    facts = [(fact.name, fact.measured.replace("|", "\\|"), fact.source) for fact in FACTS]
    paragraphs = _PAGE.format(
        command=setting["command"],
        count=len(FACTS),
        measured=measured,
        found=table(heads, rows, [False] + [True] * (len(heads) - 1)),
        facts=table(("fact", "the number", "source"), facts),
    ).split("\n\n")
    text = ("Measured", "How ", "A number")  # the rest has no lines to break, or is code
    return "\n\n".join(wrapped(part) if part.startswith(text) else part for part in paragraphs)


def _range(place: int) -> str:
    fact = FACTS[place]
    return f"{fact.low:g} to {fact.high:g}{'' if fact.bounds == 'source' else '*'}"


def _cell(line: Line) -> str:
    if math.isnan(line.value):
        return "undefined"
    digits = 2 if abs(line.value) >= 0.1 or line.value == 0 else 3
    error = "" if math.isnan(line.error) else f" ± {line.error:.{digits}f}"
    shown = f"{line.value:.{digits}f}{error}"
    return {"met": f"**{shown}**", "unclear": f"{shown}, unclear"}.get(line.verdict, shown)


if __name__ == "__main__":
    sys.exit(exit_code(main))
