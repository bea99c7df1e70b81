"""`causal_impact`: what market orders of several sizes do to the price of any market, right then and later.

The scorecard and examples/studies/price_impact show it. What prices do after other agents' orders, `statistics`'
`response`, is no measure of this: prices and orders can both follow the fundamental price.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from kineticsim_env.config import MAX_PRICE, MAX_QUOTE_QTY, MarketConfig
from kineticsim_env.runtime.checks import check_one_order_per_side
from kineticsim_env.runtime.values import check_choice, check_count, check_instance, show
from kineticsim_env.simulator import Simulator
from kineticsim_env.statistics import Interval, Mean, bootstrap_interval, mean_and_error

SIDES = {"buy": 1, "sell": -1}
SIZES, LAGS = (1, 2, 4, 8, 16), (0, 1, 2, 5, 10, 20, 50)
WHOLE = 0.95  # share of an order that is filled, on average, if its size is to count for the exponent
RESAMPLES = 1000  # of the markets, for the interval of an exponent
_POWERS = np.linspace(-1.0, 4.0, 501)  # exponents that are tried


class Power(NamedTuple):
    """A power law `effect = factor * size^exponent`, fitted."""

    exponent: float
    low: float  # of the 95% interval, from resampled markets
    high: float
    factor: float
    used: int  # sizes in the fit


class CausalImpact(NamedTuple):
    """What orders did to the price, by size; ticks, positive where the price moved against the order.

    An interval with NaN is not defined: one market has none, and what is no different from 0 has no exponent.
    """

    side: str
    sizes: tuple[int, ...]  # units
    pieces: int  # intervals that an order is spread over
    lags: tuple[int, ...]  # intervals since the last piece arrived; 0 is right after it was matched
    moved: tuple[tuple[Mean, ...], ...]  # by size and lag: the mid less that of the market without the order
    left: tuple[Mean, ...]  # by size: the mean of the same over the second half of the longest lag
    cost: tuple[Mean, ...]  # by size: ticks per unit paid over the mid without the order, just before each piece
    filled: tuple[Mean, ...]  # by size: share of the order that was executed
    exponent: Interval  # of the move at lag 0, as a power of the size
    permanence: Interval  # what is left, as a share of the move at lag 0, sizes that have one together


def causal_impact(
    market: MarketConfig | str | None = None,
    sizes: Sequence[int] = SIZES,
    lags: Sequence[int] = LAGS,
    *,
    pieces: int = 1,
    side: str = "buy",
    num_markets: int | None = None,
    seed: Any = 0,
    warmup: int = 100,
    engine: str = "auto",
    device: Any = None,
) -> CausalImpact:
    """Give market orders of each size to the same markets, and compare with these markets without the order.

    The random words are the same with and without, so the difference is what the order did. An order takes what there
    is at any price at once, and no more: what is not filled goes, or, of all pieces but the last, joins the next piece.
    In continuous trading it arrives before an interval's first event, and lag 0 is after that event; a call auction
    ends the interval, so that lags 0 and 1 are the same there. `quote_latency` does not count: time begins where the
    order arrives. A size of which less than 95% is filled is left out of the exponent: it was no order of that size.

    Args:
        market: A config, or the name of a preset; None is `"paper"`.
        sizes: Units of each order.
        lags: Intervals after the order at which the mid is compared.
        pieces: 1 is a market order; more is a metaorder of so many equal parts, one per interval.
        side: `"buy"` or `"sell"`.
        num_markets: M; 256, or as many as per-market fields have values, if None.
        seed: As in `Simulator`.
        warmup: Intervals before the order.
        engine: As in `Simulator`.
        device: As in `Simulator`.

    Raises:
        TypeError, ValueError: Naming the argument, what came and what is allowed.
        MarketError: If a market stops.
    """
    if isinstance(market, str):
        market = MarketConfig.preset(market)
    config = MarketConfig() if market is None else check_instance("market", market, MarketConfig)
    check_one_order_per_side(config, "causal_impact, whose orders are one per side")
    sizes, lags = _counts("sizes", sizes, 1), _counts("lags", lags, 0)
    pieces, warmup = check_count("pieces", pieces, 1), check_count("warmup", warmup, 0)
    check_choice("side", side, SIDES)
    check_room(
        config, {"sizes": (max(sizes), "inventory_limit"), "pieces": (-(-max(sizes) // pieces), "max_quote_qty")}
    )
    if num_markets is None and not config.per_market:
        num_markets = 256
    steps = config.events_per_interval if config.is_continuous else 1  # an auction ends an interval
    if config.is_continuous:  # the same path, stopped after each event: an order can then go after its own
        config = config.replace(interval=1, quote_latency=0, interval_ms=None, quote_latency_ms=0.0)
    before = Simulator(config, num_markets, engine=engine, device=device, seed=seed, slots=1)
    before.run(warmup * steps, progress=False)
    ends = np.array([pieces + lag for lag in range(1, max(lags) + 1)], np.int64) - 1
    ends = np.concatenate([[(pieces - 1) * steps + 1], ends * steps]) if steps > 1 else np.concatenate([[pieces], ends])
    total = (pieces - 1 + max(1, *lags)) * steps
    alone = before.branch().run(total, ("mid2",), False)["mid2"]
    alone = torch.cat([before.mid2[:, None], alone], 1)  # [M, total + 1], after so many events
    moved, costs, filled = [], [], []
    for size in sizes:
        mid, cost, fill = _play(before.branch(), SIDES[side], size, pieces, steps, total, alone)
        apart = (mid[:, ends] - alone[:, ends]).cpu().numpy()
        moved.append(SIDES[side] * apart / 2)
        costs.append(cost)
        filled.append(fill / size)
    return _result(side, sizes, pieces, lags, np.stack(moved, 1), np.stack(costs, 1), np.stack(filled, 1))


def fit_power(sizes: Sequence[float], effects: np.ndarray, resamples: int | None = None, seed: int = 0) -> Power | None:
    """Fit the mean effect over markets as a power of the size, by least squares weighted by the means' precision.

    Not of logarithms, so that a size whose mean is near 0 or below counts for what it is. Effects are float64
    `[M, sizes]`. The interval is the bootstrap's: whole markets are drawn again `resamples` times (`RESAMPLES` if
    None), the same for every size. Markets with a NaN are left out. None where fewer than two different sizes have a
    mean over two standard errors above 0.
    """
    size, effects = np.asarray(sizes, np.float64), effects[~np.isnan(effects).any(1)]
    count = len(effects)
    if count < 2:
        return None
    mean, error = effects.mean(0), effects.std(0, ddof=1) / count**0.5
    if len(np.unique(size[(mean > 2 * error) & (error > 0)])) < 2:
        return None
    used = error > 0
    size, mean, error, effects = size[used], mean[used], error[used], effects[:, used]
    scale = size.mean()
    curves = (size[:, None] / scale) ** _POWERS / error[:, None]  # [sizes, powers]
    norms = np.sqrt((curves**2).sum(0))
    generator = np.random.default_rng(seed)
    drawn = generator.multinomial(count, np.full(count, 1 / count), RESAMPLES if resamples is None else resamples)
    explained = np.concatenate([mean[None], drawn @ effects / count]) / error @ (curves / norms)  # [1 + R, powers]
    at = explained.argmax(1).clip(1, len(_POWERS) - 2)
    before, best, after = (explained[np.arange(len(at)), at + step] for step in (-1, 0, 1))
    bend = np.minimum(before - 2 * best + after, -1e-300)  # of the parabola through the three, whose top is between
    exponents = _POWERS[at] + (_POWERS[1] - _POWERS[0]) * ((before - after) / (2 * bend)).clip(-1, 1)
    low, high = np.quantile(exponents[1:], (0.025, 0.975))
    curve = (size / scale) ** exponents[0]
    factor = (curve * mean / error**2).sum() / (curve**2 / error**2).sum() / scale ** exponents[0]
    return Power(float(exponents[0]), float(low), float(high), float(factor), len(size))


def check_room(config: MarketConfig, wanted: dict[str, tuple[int, str]]) -> None:
    """Refuse orders that the limits on slots would cut; `wanted` has units and the config's limit, by argument."""
    for argument, (units, name) in wanted.items():
        limit = getattr(config, name)
        if limit is not None and units > int(np.min(limit)):
            raise ValueError(f"{argument}: expected up to {np.min(limit)}, the config's {name}, got {units}")


def market_order(simulator: Simulator, side: int, due: int) -> torch.Tensor:
    """Return the quotes int32 `[M, 1, 4]` that take, at any price, what every market's inventory lacks of `due`.

    What is under way is on its way to it, but for the last of four submissions, in whose place these would come.
    """
    quotes = torch.zeros((simulator.num_markets, 1, 4), dtype=torch.int32, device=simulator.device)
    column = 0 if side > 0 else 2
    quotes[..., column] = side * MAX_PRICE
    missing = due - side * simulator.inventory
    if "due_quotes" in simulator.tensors:
        missing -= simulator.tensors["due_quotes"][:, :-1, ..., column + 1].sum(1)
    quotes[..., column + 1] = missing.clamp(0, MAX_QUOTE_QTY).to(torch.int32)
    return quotes


def _counts(name: str, values: Any, least: int) -> tuple[int, ...]:
    if isinstance(values, str) or not np.iterable(values) or not len(values := tuple(values)):
        raise TypeError(f"{name}: expected whole numbers, one at least, got {show(values)}")
    return tuple(check_count(f"{name}[{at}]", value, least) for at, value in enumerate(values))


def _play(
    simulator: Simulator, side: int, size: int, pieces: int, steps: int, total: int, alone: torch.Tensor
) -> tuple[torch.Tensor, np.ndarray, np.ndarray]:
    """Play an order; returns the doubled mids int32 `[M, total + 1]`, ticks per unit paid, and units filled, `[M]`."""
    silence = torch.zeros((1, simulator.num_markets, 1, 4), dtype=torch.int32, device=simulator.device)
    parts, over = [simulator.mid2[:, None]], torch.zeros(simulator.num_markets, dtype=torch.int64, device=alone.device)
    for piece in range(pieces):
        quotes = market_order(simulator, side, size * (piece + 1) // pieces)
        done = simulator.rollout(quotes[None], 1, ("mid2",))
        over += side * done.fills[0, :, 0].sum(-1) * alone[:, piece * steps].long()
        parts.append(done.series["mid2"][0])
        rest = steps - 1 if piece + 1 < pieces else total - (pieces - 1) * steps - 1
        if rest:
            parts.append(simulator.rollout(silence, rest, ("mid2",)).series["mid2"][0])
    simulator.check_errors()
    units = (side * simulator.inventory[:, 0]).double()
    paid = -simulator.cash[:, 0].double() - over.double() / 2 + simulator.fees[:, 0].double() / 1000
    per_unit = torch.where(units > 0, paid / units, torch.nan)
    return torch.cat(parts, 1), per_unit.cpu().numpy(), units.cpu().numpy()


def _result(
    side: str,
    sizes: tuple[int, ...],
    pieces: int,
    lags: tuple[int, ...],
    moved: np.ndarray,  # [M, sizes, 1 + longest lag]
    costs: np.ndarray,  # [M, sizes]
    filled: np.ndarray,  # [M, sizes]
) -> CausalImpact:
    markets, longest = len(moved), moved.shape[2] - 1
    at_once, left = moved[:, :, 0], moved[:, :, longest // 2 + 1 :].mean(2) if longest else moved[:, :, 0]
    whole = filled.mean(0) >= WHOLE
    found = fit_power(np.array(sizes)[whole], at_once[:, whole])
    exponent = Interval(*(found[:3] if found else (np.nan,) * 3), markets)
    means = [mean_and_error(column) for column in at_once.T]
    clear = [at for at, mean in enumerate(means) if abs(mean.mean) > 2 * mean.error > 0]
    both = np.stack([left[:, clear].sum(1), at_once[:, clear].sum(1)], 1)
    share = bootstrap_interval(both, _ratio, resamples=RESAMPLES) if clear else Interval(*(np.nan,) * 3, markets)
    by_lag = tuple(tuple(mean_and_error(moved[:, at, lag]) for lag in lags) for at in range(len(sizes)))
    by_size = (tuple(map(mean_and_error, values.T)) for values in (left, costs, filled))
    return CausalImpact(side, sizes, pieces, lags, by_lag, *by_size, exponent, share)


def _ratio(samples: np.ndarray) -> np.ndarray:
    means = samples.mean(1)
    with np.errstate(divide="ignore", invalid="ignore"):  # a sample of few markets may have no move at all
        return means[:, 0] / means[:, 1]
