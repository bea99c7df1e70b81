"""Fit an order flow to half of a sample of real orders, compare it with the other half, and write docs/order_flow.md.

python -m scripts.pages.order_flow --measure    # fits, plays, writes the table that ships, the file and the page
python -m scripts.pages.order_flow              # the page, from the file

The sample is that of the package ob-analytics 0.1.0: half an hour of Bitstamp's BTC/USD, 2026-05-02. Everything was
chosen in its first half. The second half is what all are compared with.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import kineticsim_env as ks
from kineticsim_env.data.books import between, in_lots
from kineticsim_env.data.events import OrderEvents
from kineticsim_env.data.scores import OrderBookScores, order_book_scores
from kineticsim_env.flow.fitting import sixteenths
from kineticsim_env.flow.moments import MOMENTS
from kineticsim_env.flow.validating import cut_times, joined, time_step
from kineticsim_env.runtime.flow_table import BANDS, SHARE, SIZES, SPREADS
from kineticsim_env.statistics import mean_and_error
from scripts.bitstamp_sample import sample
from scripts.machine import describe
from scripts.pages import queue_reactive
from scripts.pages.command import figures_in, file_parser
from scripts.pages.markdown import replaced, table, wrapped
from scripts.pages.provenance import ROOT, stamped

PAGE, FILE = ROOT / "docs" / "order_flow.md", ROOT / "docs" / "benchmarks" / "order_flow.json"
SHIPPED = ROOT / "kineticsim_env" / "runtime" / "flows" / "btcusd.json"
PRESETS = ("continuous", "news", "realistic")  # the others are call auctions, which have no order events
FLOOR, FITTED = "the first half itself", "fitted to the first half"
APART = "fitted with bids and asks apart"
PLAIN, BY_QUEUE = "without all three, with one size and constant rates", "that with rates by the size of the queue"
SHOWN = ("spread", "imbalance", "log_inter_arrival_time", "log_time_to_cancel", "bid_volume_touch", "ask_volume_touch",
         "bid_volume", "ask_volume", "log_limit_size")  # fmt: skip


def nulls(flow: ks.OrderFlow) -> dict[str, ks.OrderFlow]:
    """Return what the flow is without some of its parts, each with the rates that the fit found."""
    calm: dict[str, Any] = {"jump_hazard": 0, "jump_after_trade": 0}
    mean_gap = flow.gap * _stationary(flow)
    poisson = {"gap": np.full_like(flow.gap, max(int(mean_gap.sum()), 1))}
    orders = flow.resting.sum(0)
    pooled = (flow.cancel * orders).sum(0) / np.maximum(orders.sum(0), 1)
    resting = np.zeros_like(flow.resting)
    resting[:, 1] = flow.resting.sum(1)
    one_life: dict[str, Any] = {
        "cancel": np.repeat(np.maximum(np.rint(pooled), 1).astype(np.int64)[None], 2, axis=0),
        "fleeting": np.zeros(BANDS, np.int64),
        "resting": resting,
        "limit_size": np.repeat(_one_life(flow), 2, axis=1),
    }
    mean = np.broadcast_to(np.rint(one_life["limit_size"].mean(-1, keepdims=True)), flow.limit_size.shape)
    market = np.full_like(flow.market_size, round(flow.market_size.mean()))
    sizes = {"limit_size": mean.astype(np.int64), "market_size": market}
    constant = {"limit": np.repeat(flow.limit[:, :1], SPREADS, axis=1), "market_same": SHARE // 2}
    return {
        "without jumps": dataclasses.replace(flow, **calm),
        "with one life": dataclasses.replace(flow, **one_life),
        "with a Poisson clock": dataclasses.replace(flow, **poisson),
        PLAIN: dataclasses.replace(flow, **(calm | one_life | poisson | sizes | constant)),
    }


def _one_life(flow: ks.OrderFlow) -> np.ndarray:
    """Return sizes of both lives together, by the share of limit orders that are fleeting near the best price."""
    share = flow.fleeting[0] / SHARE
    weights = np.repeat([share, 1 - share], SIZES)
    groups = flow.limit_size.swapaxes(1, 2).reshape(*flow.limit_size.shape[::2], -1)  # of sides, of both lives
    return np.array([[sixteenths(both, weights) for both in side] for side in groups])[:, None]


def _stationary(flow: ks.OrderFlow) -> np.ndarray:
    """Return how often the clock is in each state where nothing moves the best prices."""
    follow = np.diff(flow.follow[0] / SHARE, axis=1, prepend=0)
    return np.linalg.matrix_power(follow, 4096)[0]


def of_agents(config: ks.MarketConfig, real: OrderEvents, seed: int) -> OrderEvents:
    """Return a tape of a market of agents with as many events as the data, in intervals that take as long."""
    count, seconds = int((~real.opening).sum()), float(np.diff(real.sessions).sum()) / 1e9
    simulator = ks.Simulator(config, num_markets=1, seed=seed, engine="cpu")
    simulator.run(200, progress=False)
    first = simulator.tape(0, 50, progress=False).events()
    intervals = max(round(50 * count / max(int((~first.opening).sum()), 1)), 50)
    tape = simulator.tape(0, intervals, progress=False)
    return tape.events(interval_seconds=seconds / intervals)


def entry(scores: list[OrderBookScores], played: list[OrderEvents]) -> dict[str, Any]:
    """Return what the page shows of one model, means over its markets."""
    distances = {
        name: [float(np.mean([getattr(one[name], kind).value for one in scores])) for kind in ("l1", "wasserstein")]
        for name in SHOWN if scores
    }  # fmt: skip
    means = np.array([[one.mean.l1.value, one.mean.wasserstein.value] for one in scores])
    moments = {name: [float(moment(one)) for one in played] for name, moment in MOMENTS.items()}
    return {"scores": distances, "means": means.tolist(), "moments": moments}


def halves(events: OrderEvents) -> tuple[OrderEvents, OrderEvents]:
    """Return the half of the sample that models are fitted to, and the half that they are compared with."""
    first, last = events.sessions[0]
    middle = (first + last) // 2
    return between(events, first, middle), between(events, middle, last + 1)


def measure(markets: int) -> dict[str, Any]:
    """Fit, play and compare."""
    events = sample()
    fitted, held_out = halves(events)
    flow = ks.OrderFlow.fit(fitted, progress=False)
    about = {
        **flow.about,
        "source": "Bitstamp BTC/USD, 2026-05-02 02:36:20 to 02:51:20 UTC, as ob-analytics 0.1.0 has it",
    }
    flow = dataclasses.replace(flow, about=about)
    flow.save(SHIPPED)
    real, step = in_lots(held_out, flow.lot), time_step(held_out)
    count = int((~real.opening).sum())
    floor = in_lots(fitted, flow.lot)
    found = {FLOOR: entry([order_book_scores(real, floor, resamples=0)], [floor]), "data": entry([], [real])}
    apart = ks.OrderFlow.fit(fitted, symmetric=False, progress=False)
    models = {FITTED: flow, APART: apart} | {f"the same {name}": one for name, one in nulls(flow).items()}
    plays: dict[str, Callable[..., OrderEvents]]
    plays = {name: functools.partial(model.simulate, count, progress=False) for name, model in models.items()}
    plain = models[f"the same {PLAIN}"]
    plays[BY_QUEUE] = functools.partial(queue_reactive.simulate, plain, queue_reactive.fit(floor, plain), count)
    for name in PRESETS:
        plays[f"preset `{name}`"] = functools.partial(of_agents, ks.MarketConfig.preset(name), real)
    for name, play in plays.items():
        played = [cut_times(play(seed=seed), step) for seed in range(markets)]
        found[name] = entry([order_book_scores(real, one, resamples=0) for one in played], played)
        print(f"{name}: {np.mean(found[name]['means'], 0).round(3)}", flush=True)
        if name == FITTED:
            responses = order_book_scores(real, joined(played), floor=floor, resamples=0)
    curves = {kind: [curve.tolist(), responses.simulated_response[kind].tolist()]
              for kind, curve in responses.real_response.items()}  # fmt: skip
    record = {"machine": describe(), "markets": markets, "events": count, "found": found}
    record |= {"lags": responses.lags.tolist(), "responses": curves, "impact": impact(flow)}
    return stamped("order_flow", record | {"report": str(events.report)})


def impact(flow: ks.OrderFlow, pairs: int = 200) -> dict[str, Any]:
    """Return how far the mid is, in ticks, after a purchase, less where it is in the same market without it."""
    lags, found = (1, 10, 100, 1000), {}
    config = flow.config(num_levels=512, interval=1, max_quote_qty=1000)
    begun = ks.Simulator(config, pairs, engine="cpu", slots=1)
    begun.run(200)

    def path(size: int) -> np.ndarray:
        sim, order = begun.branch(), torch.zeros((pairs, 1, 4), dtype=torch.int32)
        order[..., 0], order[..., 1] = begun.last_price[:, None] + 400, size  # at any price
        sim.step(order)
        mids = [sim.mid2]
        for before, lag in itertools.pairwise(lags):
            sim.run(lag - before)
            mids.append(sim.mid2)
        return torch.stack(mids, -1).numpy() / 2

    without = path(0)
    for size in (10, 40, 160):
        means = [mean_and_error(moved) for moved in (path(size) - without).T]
        found[str(size)] = [[mean.mean, mean.interval()] for mean in means]
    return {"lags": lags, "sizes": found, "pairs": pairs}


def distances(record: Mapping[str, Any]) -> str:
    """Return the table of distances."""
    heads = (
        "market",
        "mean of 19",
        "spread",
        "imbalance",
        "inter-arrival",
        "time to cancel",
        "touch volume",
        "10 levels",
        "sizes",
    )
    rows = []
    for name, one in record["found"].items():
        if not one["means"]:
            continue
        means, scores = np.array(one["means"]), one["scores"]
        both = [
            np.mean([scores[f"{side}_{kind}"] for side in ("bid", "ask")], axis=0)
            for kind in ("volume_touch", "volume")
        ]
        cells = [scores[key] for key in SHOWN[:4]] + both + [scores["log_limit_size"]]
        spread = f" ± .{1000 * means[:, 0].std():03.0f}/.{1000 * means[:, 1].std():03.0f}" if len(means) > 1 else ""
        rows.append([name, pair(means.mean(0)) + spread, *(pair(cell) for cell in cells)])
    return table(heads, rows, (False, *[True] * 8))


def pair(values: Sequence[float]) -> str:
    return "/".join(f"{value:.2f}".removeprefix("0") for value in values)


def moments(record: Mapping[str, Any]) -> str:
    """Return the table of what single events do not show."""
    found = record["found"]
    columns = {"second half": "data", "first half": FLOOR, "fitted": FITTED, "sides apart": APART,
               "without jumps": "the same without jumps", "`realistic`": "preset `realistic`"}  # fmt: skip
    rows = [[name, *(_span(found[key]["moments"][name]) for key in columns.values())] for name in MOMENTS]
    return table(("", *columns), rows, (False, *[True] * len(columns)))


def _span(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{np.mean(values):.3g}" + (f" ({low:.3g} to {high:.3g})" if len(values) > 1 else "")


def responses(record: Mapping[str, Any]) -> str:
    """Return the tables of how the mid moves after trades, and of a purchase in pairs."""
    shown = [i for i, lag in enumerate(record["lags"]) if lag in (1, 10, 50, 100, 200)]
    rows = [
        [kind, *(f"{real[i]:.2f}, {ours[i]:.2f}" for i in shown)] for kind, (real, ours) in record["responses"].items()
    ]
    after = table(("ticks after, data, fitted", *(f"{record['lags'][i]} events" for i in shown)), rows)
    found = record["impact"]
    rows = [
        [f"{size} lots", *(f"{mean:.2f} ± {half:.2f}" for mean, half in cells)]
        for size, cells in found["sizes"].items()
    ]
    paired = table(("a purchase of", *(f"{lag} events after" for lag in found["lags"])), rows)
    return f"{after}\n\n{paired}"


def write(record: Mapping[str, Any], page: Path) -> None:
    """Fill the page."""
    rules, machine = record["rules"], record["machine"]
    how = wrapped(
        f"[Measured](benchmarks/{FILE.name}): {record['markets']} markets of {record['events']:,} events each, their "
        f"times cut to the data's milliseconds, in lots of 0.01 BTC; {rules['date']}, commit {rules['commit']}, on "
        f"{machine['cpu']}. ± is the standard deviation over markets."
    )
    text = page.read_text()
    for name, body in {
        "distances": f"{distances(record)}\n\n{how}",
        "moments": moments(record),
        "responses": responses(record),
    }.items():
        text = replaced(text, name, body)
    page.write_text(text)


def main(words: Sequence[str] | None = None) -> None:
    """Measure, if that is asked for, and write the page."""
    parser = file_parser(__doc__, "fit, play and compare", FILE, PAGE)
    parser.add_argument("--markets", type=int, default=5, help="of each model (default: 5)")
    options = parser.parse_args(words)
    write(figures_in(options, lambda: measure(options.markets)), options.page)
    print(f"wrote {options.page}")


if __name__ == "__main__":
    main()
