"""How far prices are from the fundamental price under the rules of `study.py`: the mid, and the last price beside it.

Under every rule the mid is that of the orders that rest after the last event of a market, or after its last auction
(`mid2` of `Simulator.run`): half way between the best bid and the best ask, or the last price where a side is empty.
Orders that wait for an auction are in no book. Between auctions the mid stands as the last one left it; `gap_to_tapes`
says what the cancellations do that it leaves out. All events count alike. `__main__.py` calls this.
"""

from __future__ import annotations

import numpy as np
import torch

from examples.studies.clearing import study
from kineticsim_env.simulator import Simulator

PRICES = ("mid", "last")
MEASURES = {  # of each price less the fundamental price, in ticks, by the name of what follows the price's
    "": "root mean square, as the price stands when an event comes, after the beat that is due then",
    "_after": "root mean square, as the price stands after the event, before the next beat",
    "_cleared": "root mean square, at the moments of clearing alone",
    "_absolute": "mean size, as the price stands when an event comes",
}
CHUNK = study.SELDOM  # events played at once


def play(interval: int, markets: int, engine: str = "auto") -> dict[str, np.ndarray]:
    """Play a rule without slots, `markets` seeds of each reference and pace of news.

    Returns:
        float64 `[reference, news, seed]` each: `PRICES` by `MEASURES`; `"waiting"`, the root mean square by which the
        fundamental price has moved since the last clearing, which is what a perfect price would be off by; `"still"`,
        that by which it has moved since the warm-up ended; and `"empty"`, the share of events after which a side of the
        book is empty.
    """
    simulator, length = _simulator(interval, markets, engine)
    path = study.fundamental_path(markets, engine).to(simulator.device).repeat(len(study.REFERENCES), 1)
    simulator.run(study.WARMUP // length, progress=False)
    stood = {"mid": simulator.mid2[:, None].double() / 2, "last": simulator.last_price[:, None].double()}
    stood["waiting"] = path[:, (study.WARMUP - 1) // study.BEAT, None].double()
    first, sums = path[:, study.WARMUP // study.BEAT, None].double(), {}
    for begin in range(study.WARMUP, study.WARMUP + study.EVENTS, CHUNK):
        series = simulator.run(min(CHUNK, study.EVENTS) // length, _RECORD, progress=False)
        beats = path[:, begin // study.BEAT :][:, : min(CHUNK, study.EVENTS) // study.BEAT]
        fundamental = beats.double().repeat_interleave(study.BEAT, 1)  # in each event
        cleared = {"mid": series["mid2"].double() / 2, "last": series["last_price"].double()}
        cleared["waiting"] = fundamental[:, length - 1 :: length]
        for name, values in cleared.items():
            for measure, found in _errors(stood[name], values, fundamental, length).items():
                sums[name + measure] = sums.get(name + measure, 0) + found
            stood[name] = values[:, -1:]
        empty = (series["best_bid"] == -study.NO_PRICE) | (series["best_ask"] == study.NO_PRICE)
        sums["empty"] = sums.get("empty", 0) + empty.double().sum(1) * length
        sums["still"] = sums.get("still", 0) + (fundamental - first).square().sum(1)
    simulator.check_errors()
    found = {}
    for name, total in sums.items():
        if name.startswith("waiting_"):
            continue
        count = study.EVENTS // length if name.endswith("_cleared") else study.EVENTS
        mean = total / count if name.endswith("_absolute") or name == "empty" else (total / count).sqrt()
        found[name] = mean.cpu().numpy().reshape(len(study.REFERENCES), len(study.NEWS), markets)
    return found


def gap_to_tapes(interval: int, markets: int, events: int, engine: str = "auto") -> dict[str, float]:
    """Compare the mid between auctions with that of tapes, which have each cancellation and are played on one core.

    Both are looked at from each beat of so many events after the warm-up.

    Returns:
        `"differs"`: the share of beats at which the mids are not equal. `"error"`: the largest difference between the
        root mean squares of what they are off by, over markets of a reference and a pace of news, in ticks.
    """
    simulator, length = _simulator(interval, markets, engine)
    simulator.run(study.WARMUP // length, progress=False)
    looks = np.arange(study.WARMUP, study.WARMUP + events, study.BEAT)
    rows = simulator.tape(list(range(simulator.num_markets)), events // length).columns
    exact = np.stack(
        [
            _mids({name: values[rows["market"] == market] for name, values in rows.items()}, looks, length)
            for market in range(simulator.num_markets)
        ]
    )
    before = simulator.mid2[:, None].clone()
    after = simulator.run(events // length, ("mid2",), progress=False)["mid2"]
    stands = torch.cat([before, after], 1).cpu().numpy()[:, (looks - study.WARMUP) // length] / 2
    path = study.fundamental_path(markets, engine).repeat(len(study.REFERENCES), 1).cpu().numpy()
    seen = ~np.isnan(exact)  # elsewhere a side is empty, and the mid is the last price
    shape = (len(study.REFERENCES) * len(study.NEWS), -1)
    errors = [
        np.sqrt(np.mean(np.where(seen, mid - path[:, looks // study.BEAT], 0.0).reshape(shape) ** 2, 1))
        for mid in (exact, stands)
    ]
    return {
        "differs": float((exact != stands)[seen].mean()),
        "error": float(np.abs(errors[0] - errors[1]).max()),
    }


# Helpers --------------------------------------------------------------------------------------------------------------

_RECORD = ("last_price", "mid2", "best_bid", "best_ask")


def _simulator(interval: int, markets: int, engine: str) -> tuple[Simulator, int]:
    """Return markets without slots, and how many events apart they are looked at: one under continuous trading."""
    config = study.market(interval, markets)
    config = config.replace(interval=1) if interval == study.CONTINUOUS else config
    shape = (len(study.REFERENCES), len(study.NEWS), markets)
    simulator = Simulator(config, int(np.prod(shape)), engine=engine, seed=study.seeds(shape))
    return simulator, int(config.interval or 0)


def _errors(
    stood: torch.Tensor, prices: torch.Tensor, fundamental: torch.Tensor, length: int
) -> dict[str, torch.Tensor]:
    """Return sums of `MEASURES` over events, or moments of clearing, float64 `[M]` each.

    All are float64: `stood` `[M, 1]`, the price when the first event comes; `prices` `[M, S]`, after every `length`
    events; `fundamental` `[M, S * length]`, in each event, after the beat that is due then.
    """
    stands = torch.cat([stood, prices], 1).repeat_interleave(length, 1)
    before, after = stands[:, : fundamental.shape[1]], stands[:, 1 : fundamental.shape[1] + 1]
    gap = before - fundamental
    return {
        "": gap.square().sum(1),
        "_after": (after - fundamental).square().sum(1),
        "_cleared": (prices - fundamental[:, length - 1 :: length]).square().sum(1),
        "_absolute": gap.abs().sum(1),
    }


def _mids(rows: dict[str, np.ndarray], looks: np.ndarray, length: int) -> np.ndarray:
    """Return the mid of what rests at some beats of a market, after their cancellations; NaN where a side is empty.

    `rows` are of its tape, `looks` the event numbers of beats, int64, and `length` is an interval's, events.
    """
    orders: dict[int, list[int]] = {}  # by id: whether it buys, price, units
    resting: set[int] = set()
    names = ("interval", "event", "type", "agent_class", "order_id", "counterparty_id", "side", "price", "quantity")
    tape = list(zip(*(rows[name].tolist() for name in names), strict=True))
    place, mids = 0, []
    for look in looks.tolist():
        while place < len(tape):
            interval, event, kind, owner, order, other, side, price, quantity = tape[place]
            at_the_beat = event == look and (kind == "cancel" or owner == "resting")
            if interval >= look // length and not (event < look or at_the_beat):
                break
            if kind == "submit":
                orders[order] = [side == "buy", price, quantity]
                if owner == "resting":
                    resting.add(order)
            for gone in (order, other) * (kind != "submit"):
                if gone in orders:
                    orders[gone][2] -= quantity
            place += 1
        if look % length == 0:  # what waited for the auction has traded, or rests now
            orders = {order: state for order, state in orders.items() if state[2] > 0}
            resting = set(orders)
        book = [orders[order] for order in resting if orders[order][2] > 0]
        bids, asks = ([price for buys, price, _ in book if buys == side] for side in (True, False))
        mids.append((max(bids) + min(asks)) / 2 if bids and asks else np.nan)
    return np.array(mids)
