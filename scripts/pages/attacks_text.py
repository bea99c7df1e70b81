"""The text of `docs/attacks.md`; `attacks.py` measures its figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kineticsim_env.statistics import mean_and_error
from kineticsim_env.studies.attacks import Outcome
from scripts.pages.markdown import measured_on, pm, table, wrapped

Found = Mapping[str, Mapping[str, Outcome]]  # by market and attack


def page(found: Found, late: Mapping[tuple[str, float], Outcome], setting: Mapping[str, Any]) -> str:
    """Return the page in Markdown.

    Args:
        found: Every attack, and what it is compared with, in every market.
        late: Games of latency by their names and the share of an interval by which quotes are late.
        setting: What else the text names: engine, command, markets, the names of attacks and of honest policies.
    """
    text = f"""# Attacks, and what pays

<!-- Written by `{setting["command"]}`; edit scripts/pages/attacks_text.py instead. -->

Who may trade as it likes can also try to move the price, to hide what it wants, or to trade with itself. The scripted
attackers of `kineticsim_env.policies` do that, as a market's only learner; and several learners of one owner play into
each other's hands. They do the same in call auctions and in continuous trading. In the latter the quotes arrive first
in an interval, before anyone else comes (`quote_latency=0`), which is all that an attack on speed can ask for.

## What was measured

One episode of 300 decisions in {setting["markets"]:,} markets on held-out seeds, without fees, with the tasks' default
limits: 8 units per quote, 40 units of inventory. Then all inventory is unwound through the market. **Liquidated PnL**
is the money that is left, in ticks x units, of all learners of an owner together; who does nothing has exactly 0. **At
the mark** is the PnL before unwinding, with inventory at the fundamental price: what the reward "pnl" pays. **Traded**
are units per decision. Call auctions are those of the preset `trading`, continuous trading that of the preset
`continuous`. ± is half of a 95% confidence interval over markets.

{measured_on(setting)}

## Attacks

{_table(found, setting["attacks"])}

{_verdicts(found, setting["attacks"])}

- `PriceWall` and `FlashedWall` show bids that others price around, and sell to them: at the same time, or after the
wall is gone. `QuoteStuffing` sends new quotes at new prices in every decision, none of which keeps its place.
- `PumpAndDump` buys so that momentum agents follow, then sells to them.
- `LastStep` and `MarkTheClose` move the last price, the latter that of what they hold.
- `TraderSniper` takes what is on offer at once when the mid has moved.
- The last rows are two learners of one owner: they trade with each other, one moves the price for what the other does.

## Games of latency

The same with quotes that arrive late, by a share of an interval, in continuous trading:

{_latency_table(late)}

## What does pay

{_table(found, setting["honest"])}

- **Quotes far enough from the mid.** Walls some ticks away, or quotes that change all the time there, are no attack any
more but a maker's with unusual habits. Where they earn, they do so as a maker does, by buying below and selling above.
- **A view of the price.** The mid of a thin book overshoots, and who trades against it may earn; that moves the price
back, not away.
- **A mark that can be moved.** Rewards with `mark="mid"` pay for a price that was pushed, as long as inventory may be
large (`inventory_limit=None`); the default, the fundamental price, is nobody's to move.
- **A rebate that takers do not pay for.** Two learners of one owner that trade with each other pay `2 fee + taker_fee`
thousandths of a tick per unit. If that is negative, they are paid for it without a limit. Choose a `taker_fee` of at
least `-2 fee`; a negative `fee` in a call auction pays both sides of every trade.

The command that wrote this page: `{setting["command"]}`. Tests hold it in small: `tests/test_reward_hacking.py` for
call auctions, `tests/test_attacks.py` for both.
"""
    return "\n\n".join(wrapped(paragraph) for paragraph in paragraphs(text)) + "\n"


def paragraphs(text: str) -> list[str]:
    """Split into paragraphs, and lists into their points on one line each."""
    paragraphs = []
    for part in text.strip().split("\n\n"):
        if part.startswith("- "):
            part = "\n".join("- " + " ".join(point.split()) for point in part[2:].split("\n- "))
        paragraphs.append(part)
    return paragraphs


def _table(found: Found, names: Sequence[str]) -> str:
    heads = ["", *(f"{market}: {what}" for market in found for what in ("liquidated PnL", "at the mark", "traded"))]
    rows = [[name, *(cell for played in found.values() for cell in _cells(played[name]))] for name in names]
    return table(heads, rows)


def _cells(outcome: Outcome) -> tuple[str, str, str]:
    pnl, at_mark = mean_and_error(outcome.pnl), mean_and_error(outcome.at_mark)
    return pm(pnl), pm(at_mark), f"{np.mean(outcome.traded):.2f}"


def _verdicts(found: Found, names: Sequence[str]) -> str:
    """Say of how many attacks it is certain that they lose, and which ones that is not said of."""
    sentences = []
    for market, played in found.items():
        means = {name: mean_and_error(played[name].pnl) for name in names}
        losing = [name for name, mean in means.items() if mean.mean + mean.interval() <= 0]
        earning = [name for name, mean in means.items() if mean.mean - mean.interval() > 0]
        open_ = [name for name in names if name not in losing and name not in earning]
        said = f"{market[0].upper()}{market[1:]}: {len(losing)} of {len(names)} attacks lose money, "
        said += "with an interval below 0."
        said += f" These earn: {', '.join(earning)}." if earning else " None earns."
        said += f" Neither is certain of {', '.join(open_)}." if open_ else ""
        sentences.append(said)
    return " ".join(sentences)


def _latency_table(late: Mapping[tuple[str, float], Outcome]) -> str:
    shares = sorted({share for _, share in late})
    names = list(dict.fromkeys(name for name, _ in late))
    heads = ["liquidated PnL", *(("none", "half an interval", "an interval")[int(2 * share)] for share in shares)]
    return table(heads, [[name, *(pm(mean_and_error(late[name, s].pnl)) for s in shares)] for name in names])
