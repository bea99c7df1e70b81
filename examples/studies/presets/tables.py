"""The tables of README.md, which its blocks make of what the commands of the presets measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from examples.studies.presets.goals import GOALS
from examples.studies.presets.makers import LAGS, SPANS
from kineticsim_env.config import PRESETS, MarketConfig
from kineticsim_env.statistics import Interval
from scripts.pages.blocks import above, below, between, joined, mean, plus_minus, pm, table

Found = Mapping[str, Any]
Condition = tuple[str, str, bool]  # what is asked, what was measured, whether it holds (at 95%, if it has an interval)


def field_table() -> str:
    """Return the fields in which presets differ from the default, which is `"paper"`, and what it has."""
    defaults = MarketConfig().to_dict()
    fields = [
        each
        for each in defaults
        if any(market.get(each, defaults[each]) != defaults[each] for market in PRESETS.values())
    ]
    rows = []
    for each in fields:
        cells = [
            _field(market[each]) if market.get(each, defaults[each]) != defaults[each] else ""
            for market in PRESETS.values()
        ]
        rows.append([f"`{each}`", _field(defaults[each]), *cells[1:]])
    return table(["field", *(f"`{name}`" for name in PRESETS)], rows)


def _field(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{each['count']} of `{name.rpartition(':')[2]}`" for name, each in value.items())
    if isinstance(value, tuple):
        jumps = [str(regime["jump_size"]) for regime in value if regime["jump_prob"]]
        return f"{len(value)}, {len(jumps)} with jumps of {', '.join(jumps)}"
    return "" if value is None else str(value)


def best(rows: Sequence[Found], skewed: bool | None = None) -> Found:
    """Return the maker that earns most, of all, or of those with or without a skew."""
    return max((row for row in rows if skewed in (None, row["skew"] > 0)), key=lambda row: row["pnl"][0])


def fills(row: Found) -> float:
    """Return the units per decision that a maker trades."""
    return row["bought"][0] + row["sold"][0]


def ratio(row: Found) -> float:
    """Return a maker's mean PnL over its deviation."""
    return row["pnl"][0] / row["sd"][0]


def conditions(found: Found, name: str) -> list[Condition]:
    """State what a preset to make a market in was asked for, and what it shows."""
    rows, market = found["makers"][name], found["watched"][name]
    plain = [row for row in rows if not row["skew"]]
    one, other, near, far = best(plain), best(rows, skewed=True), plain[0], plain[-1]
    traded = [fills(row) for row in plain]
    smooth = all(0.4 < later / earlier < 1 for earlier, later in zip(traded, traded[1:], strict=False))
    ahead = [f"of {row['half']} by {pm(mean((-row['gain'][0], *row['gain'][1:])))}" for row in (near, far)]
    inside = (
        near["half"] < one["half"] < far["half"] and one["half"] >= 2 and below(near["gain"]) and below(far["gain"])
    )
    calmer = f"sd {pm(mean(other['risk']))} (paired); mean / sd {ratio(other):.2f}, not {ratio(one):.2f}"
    worst = max(abs(row["surplus"][0]) / fills(row) for row in plain)
    depth = {int(after): units[0] for after, units in market["depth"].items()}
    first, last = depth[min(depth)], depth[max(depth)]
    rest = f"{first:.1f} units after {min(depth)} decisions, {last:.1f} after {max(depth):,}"
    return [
        ("spread without learners at least 3 ticks", pm(mean(market["spread"]), 2), market["spread"][0] >= 3),
        ("fills fall smoothly with the half-spread", " > ".join(f"{units:.2f}" for units in traded), smooth),
        ("the best half-spread is inside, at 2 ticks or more", f"{one['half']}; ahead {joined(ahead)}", inside),
        ("a skew against inventory earns more", f"{pm(mean(other['gain']))} (paired)", above(other["gain"])),
        ("at less risk", calmer, below(other["risk"])),
        ("buying and selling are symmetric", f"apart by at most {100 * worst:.2f}% of the fills", worst < 0.01),
        ("books are finite", rest, abs(last - first) < 0.05 * first),
    ]


def conditions_of_time(found: Found) -> list[Condition]:
    """State what `"continuous"` was asked for besides: depth, latency, queues, random quotes."""
    half = best(found["makers"]["continuous"], skewed=True)["half"]
    late = [row for row in found["late"] if row["half"] == half]
    place = next(row for row in found["places"] if row["half"] == half)
    resting = next(iter(found["watched"]["continuous"]["depth"].values()))[0] / 2
    share, there = (random_share(found, name) for name in ("continuous", "`trading`"))
    earned = joined([f"{pm(mean(row['pnl']))} at {row['events']}" for row in late])
    worth = f"{pm(mean(place['worth']))} in PnL, {pm(mean(place['units']), 3)} units per interval (paired)"
    valued, slower = above(place["worth"]) and above(place["units"]), all(below(row["less"]) for row in late[1:])
    less = "random quotes earn a smaller share of the best maker's PnL than in `trading`"
    return [
        ("a side is deeper than two quotes of 8 units", f"{resting:.1f} units", resting > 16),
        ("quotes that come late, by so many events, earn less", earned, slower),
        ("a place in a queue is worth something", worth, valued),
        (less, f"{100 * share:.0f}%, not {100 * there:.0f}%", share < there),
    ]


def random_share(found: Found, name: str) -> float:
    """Return what random quotes earn in a market, as a share of what its best maker earns."""
    other = found["best_in_trading"] if name == "`trading`" else best(found["makers"][name])["pnl"]
    return found["random"][name]["pnl"][0] / other[0]


def condition_table(sides: Mapping[str, Sequence[Condition]]) -> str:
    """Return the conditions, and what each preset shows."""
    asked = dict.fromkeys(condition[0] for each in sides.values() for condition in each)
    seen = [{condition[0]: condition[1] for condition in each} for each in sides.values()]
    return table(["condition", *sides], [[each, *(one.get(each, "") for one in seen)] for each in asked])


def skew_table(found: Mapping[str, Found]) -> str:
    """Return the best maker of each skew in each preset, beside the best without one."""
    rows = []
    for name, each in found.items():
        makers = each["makers"][name]
        for skew in dict.fromkeys(row["skew"] for row in makers):
            row = best([row for row in makers if row["skew"] == skew])
            gained = [pm(mean(row["gain"])), pm(mean(row["risk"]))] if skew else ["", ""]
            cells = [pm(mean(row["pnl"])), f"{row['sd'][0]:.0f}", f"{ratio(row):.2f}", f"{row['low']:.0f}"]
            rows.append([f"`{name}`", f"{skew:g}", str(row["half"]), *cells, *gained])
    heads = ["preset", "skew", "best half-spread", "PnL", "sd", "mean / sd", "5% quantile", "PnL gained", "sd gained"]
    return table(heads, rows)


def candidate_table(found: Found, preset: str) -> str:
    """Return what makers earn in a preset and in the markets beside it, and random quotes where they were played."""
    rows = []
    for name, makers in found["makers"].items():
        market, plain = found["watched"][name], [row for row in makers if not row["skew"]]
        skewed = best([row for row in makers if row["skew"] == found["setting"]["skew"]])
        cells = [
            f"**`{name}`**" if name == preset else name,
            " / ".join(map(str, market["counts"])),
            pm(mean(market["spread"]), 2),
            " ".join(f"{row['pnl'][0]:.0f}" for row in plain),
            f"{pm(mean(skewed['pnl']))} at {skewed['half']} ({skewed['sd'][0]:.0f})",
        ]
        if "random" in found:
            cells.append(f"{pm(mean(found['random'][name]['pnl']))}: {100 * random_share(found, name):.0f}%")
        rows.append(cells)
    at = " ".join(str(row["half"]) for row in plain)
    heads = ["market", "agents", "spread", f"PnL at {at}", f"best with a skew of {found['setting']['skew']:g} (sd)"]
    return table([*heads, *(["random quotes"] if "random" in found else [])], rows)


def return_table(returns: Mapping[str, Found], lags: Sequence[int], sizes: Sequence[int], spans: Sequence[int]) -> str:
    """Return what the changes of prices are like, by lag and by span in auctions."""
    shown = (
        *((f"returns, lag {lag}", "autocorrelation", LAGS.index(lag)) for lag in lags),
        *((f"their sizes, lag {lag}", "of_sizes", LAGS.index(lag)) for lag in sizes),
        *((f"variance ratio, {span}", "variance_ratio", SPANS.index(span)) for span in spans),
        *((f"share of the fundamental, {span}", "fundamental", SPANS.index(span)) for span in (1, *spans)),
    )
    rows = [[said, *(pm(mean(each[what][at]), 3) for each in returns.values())] for said, what, at in shown]
    rows.append(["excess kurtosis of returns", *(between(Interval(*each["kurtosis"]), 2) for each in returns.values())])
    rows.append(["away from the fundamental, ticks", *(pm(mean(each["away"]), 2) for each in returns.values())])
    return table(["", *returns], rows, [False] + [True] * len(returns))


def late_table(found: Found) -> str:
    """Return what makers earn whose quotes come late, and the difference to those that come less late."""
    events = sorted({row["events"] for row in found["late"]})
    rows = []
    for half in dict.fromkeys(row["half"] for row in found["late"]):
        late = [row for row in found["late"] if row["half"] == half]
        rows.append([str(half), *(pm(mean(row["pnl"])) for row in late), *(pm(mean(row["less"])) for row in late[1:])])
    less = [f"{after} less {before}" for before, after in zip(events, events[1:], strict=False)]
    return table(["half-spread", *(f"{after} events late" for after in events), *less], rows)


def place_table(found: Found) -> str:
    """Return what patient makers earn that keep their places, and that lose them."""
    rows = []
    for row in found["places"]:
        pnl = [pm(mean(row[each])) for each in ("kept", "lost", "worth")]
        rows.append([str(row["half"]), *pnl, f"{row['fills'][0]:.2f}", pm(mean(row["units"]), 3)])
    return table(["half-spread", "places kept", "places lost", "difference", "fills, kept", "more than lost"], rows)


def ends(found: Sequence[float], digits: int = 2) -> str:
    """Return a value and both ends of its 95% interval, as `default_market_goals` keeps them."""
    return between(Interval(*found, count=0), digits)


def best_trader(figures: Found) -> tuple[str, Found]:
    """Return the kind of trader that earns most, and what it earns."""
    return max(figures["traders"].items(), key=lambda item: item[1]["pnl"][0])


def goals(figures: Found, attacks: Mapping[str, Sequence[float]]) -> list[Condition]:
    """State what a default market was asked for, and what `"news"` shows, each with its whole interval."""
    most, least, times_more = GOALS.values()
    line, own, adverse = figures["r2"]["1"], figures["own_r2"], figures["adverse"]
    maker, random = figures["makers"][figures["maker"]]["pnl"], figures["random"]["pnl"]
    (kind, trader), times = best_trader(figures), figures["knowing"]["regime"]["times"]
    lose = [name for name, (pnl, half) in attacks.items() if pnl + half < 0]
    earn = [name for name, (pnl, half) in attacks.items() if pnl - half > 0]
    unclear = ", ".join(name for name in attacks if name not in (*lose, *earn))
    seen = f"{ends(line, 3)}; {ends(own, 3)} for a maker that sees its own fills"
    earned = f"{plus_minus(trader['pnl'])} ({kind}), the maker {plus_minus(maker)}"
    attacked = f"{len(lose)} of {len(attacks)} lose by their intervals; unclear: {unclear or 'none'}"
    picked = f"adverse selection per fill at least {least:g} of the spread earned"
    return [
        (f"R^2 of a line for the next change of the mid at most {most:g}", seen, max(line[2], own[2]) <= most),
        (picked, f"{ends(adverse)}, quotes at {figures['plain']}", adverse[1] >= least),
        ("random quotes lose", plus_minus(random), sum(random) < 0),
        ("a trader on public information earns less than a maker", earned, sum(trader["less"]) < 0),
        (
            f"a maker that knows of news earns at least {times_more:g} times as much",
            ends(times),
            times[1] >= times_more,
        ),
        ("scripted attackers earn nothing", attacked, not earn),
    ]


WHO = {
    "moves": "a maker that goes by the last four moves of the mid, which all see",
    "regime": "a maker that knows whether there is news",
    "fundamental": "a maker that knows the fundamental price",
    "momentum": "a trader that goes with the mid (`MomentumTrader`)",
    "reversion": "a trader that goes against it (`MeanReversionTrader`)",
    "signal": "a trader that goes by the fitted line",
}


def player_table(figures: Found) -> str:
    """Return what each kind of player earns, and by which rule."""
    rows = [["the best of fixed quotes", plus_minus(figures["makers"][figures["maker"]]["pnl"]), "1", figures["maker"]]]
    for kind, one in (figures["knowing"] | figures["traders"]).items():
        times = ends(one["times"]) if "times" in one else ""
        rows.append([WHO[kind], plus_minus(one["pnl"]), times, one["name"]])
    rows.append(["random quotes", plus_minus(figures["random"]["pnl"]), "", "up to 10 ticks, 8 units"])
    return table(["who", "liquidated PnL", "times fixed quotes", "rule"], rows)


def rival_table(measured: Mapping[str, Found]) -> str:
    """Return what a default market and others show of the goals; bold is what misses one in the mean."""
    rows = [_rival(name, found) for name, found in measured.items()]
    heads = [
        "R^2",
        "adverse / earned",
        "random quotes",
        "best maker (sd)",
        "its quotes",
        "best trader",
        "knowing of news",
    ]
    return table(["market", *heads], rows)


def _rival(name: str, found: Found) -> list[str]:
    maker, random, trader = found["makers"][found["maker"]], found["random"]["pnl"], best_trader(found)[1]
    known = found["knowing"].get("regime")
    adverse, earns = found["adverse"][0], maker["pnl"][0] > 0

    def shown(text: str, met: bool) -> str:
        return text if met else f"**{text}**"

    worth = "-"
    if known and earns:
        worth = shown(ends(known["times"]), known["times"][0] >= GOALS["knowledge"])
    return [
        f"`{name}`" if name in PRESETS else name,
        shown(f"{found['r2']['1'][0]:.3f}", found["r2"]["1"][0] <= GOALS["R^2"]),
        shown(f"{adverse:.2f}", adverse >= GOALS["adverse selection"]) if np.isfinite(adverse) else "no fills",
        shown(plus_minus(random), random[0] < 0),
        shown(f"{plus_minus(maker['pnl'])} ({maker['sd']:,.0f})", earns),
        found["maker"],
        shown(plus_minus(trader["pnl"]), trader["less"][0] < 0),
        worth,
    ]
