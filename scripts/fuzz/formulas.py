"""Kind `formulas`: statistics of new markets by `measure`, beside the same in plain NumPy, from the docstrings alone.

The formulas here take whole series of one market (of all of a group, where a statistic says so); `measure` takes them
in pieces, as sums.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import kineticsim_env as ks
from scripts.fuzz import drawn, event_formulas
from scripts.fuzz.kinds import Failure

aside = contextlib.nullcontext  # every case opens its own
SERIES = "last_price mid2 fundamental volume signed_volume best_bid best_ask bid_depth ask_depth".split()
NO_PRICE = 2**31 - 1
LAGS = (1, 2, 5, 20)
Market = Mapping[str, np.ndarray]  # series int64 [S], and "books": of each look a bid and an ask row


def play(rng: np.random.Generator, engines: tuple[str, ...]) -> None:
    """Measure a market and its clone's series."""
    engine = engines[int(rng.integers(len(engines)))]
    markets, long = int(rng.choice([1, 2, 4])), engine != "numpy" or rng.random() < 0.1
    intervals = int(rng.choice([1, 2, 30, 130, 230] if long else [1, 2, 12]))
    config, seed = drawn.config(rng, markets), int(rng.integers(2**40))
    names = [str(name) for name in rng.permutation(list(FORMULAS))[: int(rng.integers(3, 12))]]
    prices = {name: str(rng.choice(["last", "mid"])) for name in names}
    asked = {name: f"{name}({_arguments(name, prices[name])})" for name in names}
    group = [1, None, markets // 2 or 1][int(rng.integers(3))]
    of_events = event_formulas.drawn(rng) if config.is_continuous and not config.is_flow and intervals <= 30 else {}
    try:
        sim, clone = (ks.Simulator(config, markets, engine=engine, seed=seed) for _ in range(2))
        chunk = [None, 1, 7, 64][int(rng.integers(4))]
        found = ks.measure(
            sim, intervals, {**asked, **{text: text for text in of_events}}, group=group, chunk=chunk, progress=False
        )
        tape = clone.tape(range(markets), intervals, progress=False) if of_events else None
        shown = [event_formulas.numbers(tape.events(m)) for m in range(markets)] if tape else []
    except ks.MarketError:
        return
    recorded = _recorded(clone, intervals)
    size = markets if group is None else group
    for text, of_one in of_events.items():
        for number in range(markets // size):
            wanted = _mean([of_one(one) for one in shown[number * size : (number + 1) * size]])
            _compare(text, found[text].value[number], wanted)
    for name in names:
        formula, pooled = FORMULAS[name]
        for number in range(markets // size):
            mine = recorded[number * size : (number + 1) * size]
            wanted = (
                _mean([formula([one], prices[name]) for one in mine]) if not pooled else formula(mine, prices[name])
            )
            _compare(asked[name], found[name].value[number], wanted)


def _arguments(name: str, price: str) -> str:
    given = [f"lag={list(LAGS)}"] if name in OF_LAGS else []
    given += ["distance=[0, 1, 4, 40]"] if name == "book_shape" else []
    return ", ".join([*given, *([f"price={price!r}"] if name in OF_PRICES else [])])


def _recorded(sim: ks.Simulator, intervals: int) -> list[dict[str, Any]]:
    """Return the series and the books of each market."""
    parts, books = [], []
    for begin in range(0, intervals, 100):
        parts.append(sim.run(min(100, intervals - begin), SERIES))
        if intervals - begin >= 100:
            books.append((sim.bid.numpy().copy(), sim.ask.numpy().copy()))
    whole = {name: np.concatenate([part[name].numpy() for part in parts], 1).astype(np.int64) for name in SERIES}
    return [
        {**{name: values[m] for name, values in whole.items()}, "books": [(bid[m], ask[m]) for bid, ask in books]}
        for m in range(sim.num_markets)
    ]


def _mean(values: list[Any]) -> np.ndarray:
    """Return the mean over markets that define a value, NaN without any."""
    table = np.array(values, dtype=float)
    seen = ~np.isnan(table)
    with np.errstate(invalid="ignore"):
        return np.where(seen, table, 0).sum(0) / seen.sum(0)


def _compare(asked: str, got: Any, wanted: Any) -> None:
    got, wanted = np.asarray(got, dtype=float), np.asarray(wanted, dtype=float)
    if got.shape != wanted.shape or not np.allclose(got, wanted, rtol=1e-7, atol=1e-9, equal_nan=True):
        text = f"{asked} is {got.tolist()}, by its docstring {wanted.tolist()}"
        raise Failure(text, key=("formulas", asked.partition("(")[0]))


# Formulas: of one market or of several, float or [n] ------------------------------------------------------------------


def _prices(one: Market, price: str) -> np.ndarray:
    return one["last_price"].astype(float) if price == "last" else one["mid2"] / 2


def _of(series: Callable[[Market, str], np.ndarray], formula: Callable[[np.ndarray], float]) -> Any:
    """Return a formula of one market's series."""
    return lambda markets, price: formula(series(markets[0], price))


def _share(values: np.ndarray) -> float:
    return float(np.mean(values)) if len(values) else math.nan


def _deviation(values: np.ndarray) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else math.nan


def _is_constant(values: np.ndarray) -> bool:
    return len(values) == 0 or bool((values == values[0]).all())


def _correlation(early: np.ndarray, late: np.ndarray, lag: int) -> float:
    """Return the correlation of one series with another, `lag` intervals later; means and divisors of all of it."""
    if lag >= len(early) or _is_constant(early) or _is_constant(late):
        return math.nan
    one, other = early - early.mean(), late - late.mean()
    return float((one[: len(one) - lag] * other[lag:]).sum() / math.sqrt((one**2).sum() * (other**2).sum()))


def _own_correlations(series: Callable[[Market, str], np.ndarray]) -> Any:
    def formula(markets: list[Market], price: str) -> list[float]:
        values = series(markets[0], price).astype(float)
        return [_correlation(values, values, lag) for lag in LAGS]

    return formula


def _returns(one: Market, price: str) -> np.ndarray:
    return np.diff(_prices(one, price))


def _volume_volatility(markets: list[Market], price: str) -> float:
    sizes = np.abs(_returns(markets[0], price))
    return _correlation(sizes, markets[0]["volume"][1:].astype(float), 0)


def _spread(markets: list[Market], price: str) -> float:
    bid, ask = markets[0]["best_bid"], markets[0]["best_ask"]
    both = (np.abs(bid) < NO_PRICE) & (np.abs(ask) < NO_PRICE)
    return _share((ask - bid)[both])


def _one_sided(one: Market, price: str) -> np.ndarray:
    return (np.abs(one["best_bid"]) == NO_PRICE) | (np.abs(one["best_ask"]) == NO_PRICE)


def _book_shape(markets: list[Market], price: str) -> list[float]:
    rows = []
    for bid, ask in markets[0]["books"]:
        for side in (bid[::-1], ask):  # best prices lie where the side begins
            if side.any():
                rows.append(np.concatenate([side[int(np.flatnonzero(side)[0]) :], np.zeros(64, side.dtype)]))
    return [float(np.mean([row[distance] for row in rows])) if rows else math.nan for distance in (0, 1, 4, 40)]


def _response(markets: list[Market], price: str) -> list[float]:
    prices, sign = _prices(markets[0], price), np.sign(markets[0]["signed_volume"])
    total, found = 0.0, {}
    for j in range(max(LAGS)):
        ts = [t for t in range(1, len(prices) - j) if sign[t]]
        moves = [sign[t] * (prices[t + j] - prices[t + j - 1]) for t in ts]
        total += float(np.mean(moves)) if moves else math.nan
        found[j + 1] = total
    return [found[lag] for lag in LAGS]


def _impact_bins(markets: list[Market], price: str) -> list[tuple[int, float, float]]:
    """Return of each bin of sizes: intervals, the sum of moves, the sum of sizes."""
    flow = np.concatenate([one["signed_volume"][1:] for one in markets])
    moves = np.concatenate([_returns(one, price) for one in markets]) * np.sign(flow)
    bins = []
    for power in range(16):
        inside = (np.abs(flow) >= 2**power) & ((np.abs(flow) < 2 ** (power + 1)) | (power == 15))
        bins.append((int(inside.sum()), float(moves[inside].sum()), float(np.abs(flow[inside]).sum())))
    return bins


def _impact_curve(markets: list[Market], price: str) -> list[float]:
    return [moves / count if count else math.nan for count, moves, _ in _impact_bins(markets, price)]


def _impact_exponent(markets: list[Market], price: str) -> float:
    bins = _impact_bins(markets, price)
    least = 0.01 * sum(count for count, *_ in bins)
    used = [
        (count, moves / count, sizes / count) for count, moves, sizes in bins if count >= max(least, 1) and moves > 0
    ]
    if len(used) < 2:
        return math.nan
    weight, move, size = (np.array(column) for column in zip(*used, strict=True))
    x, y = np.log(size), np.log(move)
    x = x - np.average(x, weights=weight)
    return float((weight * x * y).sum() / (weight * x * x).sum())


OF_LAGS = ("sign_autocorrelation", "signed_volume_autocorrelation", "volume_autocorrelation", "response")
OF_LAGS += ("autocorrelation", "abs_autocorrelation")
OF_PRICES = ("response", "impact_curve", "impact_exponent", "volume_volatility", "volatility", "unchanged")
OF_PRICES += ("autocorrelation", "abs_autocorrelation", "price_deviation")
FORMULAS: dict[str, tuple[Any, bool]] = {  # and whether they are of all markets of a group together
    "volume": (_of(lambda one, _: one["volume"], _share), False),
    "volume_deviation": (_of(lambda one, _: one["volume"], _deviation), False),
    "traded": (_of(lambda one, _: one["volume"] > 0, _share), False),
    "volume_autocorrelation": (_own_correlations(lambda one, _: one["volume"]), False),
    "volume_volatility": (_volume_volatility, False),
    "spread": (_spread, False),
    "one_sided": (_of(_one_sided, _share), False),
    "depth": (_of(lambda one, _: (one["bid_depth"] + one["ask_depth"]) / 2, _share), False),
    "book_shape": (_book_shape, False),
    "sign_autocorrelation": (_own_correlations(lambda one, _: np.sign(one["signed_volume"])), False),
    "signed_volume_autocorrelation": (_own_correlations(lambda one, _: one["signed_volume"]), False),
    "response": (_response, False),
    "impact_curve": (_impact_curve, True),
    "impact_exponent": (_impact_exponent, True),
    "volatility": (_of(_returns, _deviation), False),
    "unchanged": (_of(lambda one, price: _returns(one, price) == 0, _share), False),
    "autocorrelation": (_own_correlations(_returns), False),
    "abs_autocorrelation": (_own_correlations(lambda one, price: np.abs(_returns(one, price))), False),
    "price_deviation": (_of(_prices, _deviation), False),
}
