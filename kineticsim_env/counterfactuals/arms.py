"""`counterfactual`: the same markets twice, with and without an agent's orders."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from kineticsim_env.config import MarketConfig
from kineticsim_env.runtime.checks import check_one_order_per_side, check_quotes
from kineticsim_env.runtime.layout import SERIES
from kineticsim_env.runtime.values import check_choice, check_count, check_progress, progress_bar, show
from kineticsim_env.simulator import Simulator
from kineticsim_env.statistics.over_markets import half_width


class Arm(NamedTuple):
    """One of the two runs; M markets, K slots, T decisions, S auctions."""

    series: dict[str, torch.Tensor]  # int32 [M, S] each after the auction: mid2, last_price, volume, fundamental
    fills: torch.Tensor  # int64 [T, M, K, 2]: units bought and sold in each decision
    cash: torch.Tensor  # int64 [M, K], at the end
    inventory: torch.Tensor  # int64 [M, K], at the end
    fees: torch.Tensor  # int64 [M, K], at the end, thousandths of a tick


@dataclasses.dataclass(frozen=True)
class Counterfactual:
    """Both arms of an experiment, and what the agent's orders changed.

    Attributes:
        with_agent: The arm in which the orders were given.
        without_agent: The arm in which they were not; its slots have no orders.
        difference: The first less the second, int64 `[M, S]` for each of the four series.
        arrival: Twice the mid before the first auction, the same in both arms, int32 `[M]`.
    """

    with_agent: Arm
    without_agent: Arm
    difference: dict[str, torch.Tensor]
    arrival: torch.Tensor

    def first_difference(self) -> torch.Tensor:
        """Return the first auction in which any series of a market differs, int64 `[M]`; S where none ever does."""
        apart = torch.stack([values != 0 for values in self.difference.values()]).any(0)
        auctions = torch.arange(apart.shape[1], device=apart.device)
        return torch.where(apart, auctions, apart.shape[1]).amin(1) if apart.shape[1] else apart.sum(1)

    def mean_difference(self, name: str = "mid2") -> tuple[np.ndarray, np.ndarray]:
        """Return the mean over markets of a series' difference and half of its 95% interval, float64 `[S]` each."""
        return mean_path(self._series(self.difference, name))

    def variance_ratio(self, name: str = "mid2") -> np.ndarray:
        """Return how much pairing saves: variance of the paired difference over that of unpaired arms, float64 `[S]`.

        Unpaired arms would be two ensembles with seeds of their own; the variance of a difference between them is the
        sum of the arms' own. Prices are taken as changes since the mid at arrival, so that the variance of prices
        before the order does not count against unpaired arms. For the same interval of a mean, unpaired arms need
        1 / ratio times as many markets. NaN where no market moved.
        """
        paired = self._series(self.difference, name)
        arms = [self._series(arm.series, name) for arm in (self.with_agent, self.without_agent)]
        if name != "volume":
            before = self.arrival.cpu().numpy().astype(np.float64)[:, None]
            arms = [arm - (before if name == "mid2" else before / 2) for arm in arms]
        with np.errstate(divide="ignore", invalid="ignore"):
            return paired.var(0) / (arms[0].var(0) + arms[1].var(0))

    @staticmethod
    def _series(series: dict[str, torch.Tensor], name: str) -> np.ndarray:
        return series[check_choice("name", name, series)].cpu().numpy().astype(np.float64)


def counterfactual(
    config: MarketConfig | None,
    orders: Any,
    num_markets: int | None = None,
    auctions: int = 1,
    seed: Any = 0,
    *,
    decisions: int | None = None,
    after: int = 0,
    warmup: int = 0,
    slots: Any = 1,
    engine: str = "auto",
    device: Any = None,
    progress: bool | None = None,
) -> Counterfactual:
    """Play orders in every market, and the same markets without them.

    Args:
        config: The market; the preset `"paper"` if None.
        orders: A schedule of quotes, int32 `[T, M, K, 4]` (or `[T, 1, K, 4]`, the same for every market): bid price,
            bid quantity, ask price, ask quantity, absolute ticks. Or a policy: a function called before each decision
            with the decision's number and the `Simulator` of the arm in which it trades (`simulator.mid2`,
            `simulator.inventory` and so on), which returns int32 `[M, K, 4]`, or `[1, K, 4]`.
        num_markets: M, as in `Simulator`.
        auctions: Auctions per decision.
        seed: As in `Simulator`.
        decisions: T, if `orders` is a function.
        after: Auctions to run after the last decision, with all quotes withdrawn. What trades before that has arrived
            (see `quote_latency`) is among the last decision's fills; what is still under way at the end never trades.
        warmup: Auctions before the first decision, which are not recorded.
        slots: As in `Simulator`. A slot that replaces an agent replaces it in both arms.
        engine: As in `Simulator`.
        device: As in `Simulator`.
        progress: As in `Simulator.run`; a schedule shows no bar, as it is one launch.

    Returns:
        The two arms, over `S = T * auctions + after` auctions.

    Raises:
        TypeError, ValueError: Naming the argument, what came and what is allowed.
        MarketError: If a market stops.
    """
    auctions, after = check_count("auctions", auctions, 1), check_count("after", after, 0)
    warmup, progress = check_count("warmup", warmup, 0), check_progress(progress)
    simulator = Simulator(config, num_markets, engine=engine, device=device, seed=seed, slots=slots)
    check_one_order_per_side(simulator.config, "a counterfactual, whose orders are one per side")
    shape = (simulator.num_markets, len(simulator.slots), 4)
    if isinstance(orders, type):  # a call of a class makes an object, not quotes
        raise TypeError(f"orders: expected quotes, or a function of t and the simulator, got {show(orders)}")
    if callable(orders):
        if decisions is None:
            raise TypeError("decisions: expected a whole number from 0 where orders is a function, got None")
        decisions = check_count("decisions", decisions, 0)
    else:
        orders = _checked_orders(orders, (None, *shape), simulator.device)
        if decisions is not None and check_count("decisions", decisions, 0) != len(orders):
            raise ValueError(f"decisions: expected {len(orders)}, the length of orders, or None, got {decisions}")
        decisions = len(orders)
    simulator.run(warmup, progress=progress)
    clone, arrival = simulator.branch(), simulator.mid2
    parts = [] if decisions else [simulator.rollout(simulator.quotes[None][:0], auctions, SERIES)]
    if callable(orders):
        with progress_bar(progress, "with the agent", "decision", decisions) as bar:
            for t in range(decisions):
                quotes = _checked_orders(orders(t, simulator), shape, simulator.device)
                parts.append(simulator.rollout(quotes[None], auctions, SERIES))
                bar.update()
    elif decisions:
        parts.append(simulator.rollout(orders, auctions, SERIES))
    fills = torch.cat([part.fills for part in parts])
    silence = torch.zeros((min(after, 1), *shape), dtype=torch.int32, device=simulator.device)
    parts.append(simulator.rollout(silence, max(after, 1), SERIES))
    if decisions:  # quotes stand until word of their end arrives, which takes `quote_latency` too
        fills[-1] += parts[-1].fills.sum(0)
    folded = {name: [part.series[name].transpose(0, 1).flatten(1) for part in parts] for name in SERIES}
    series: dict[str, torch.Tensor] = {name: torch.cat(each, dim=1) for name, each in folded.items()}  # [M, T * n]
    alone = clone.run(decisions * auctions + after, SERIES, progress)
    for each in (simulator, clone):
        each.check_errors()
    difference: dict[str, torch.Tensor] = {name: series[name].long() - alone[name].long() for name in SERIES}
    traded, quiet = _arm(simulator, series, fills), _arm(clone, alone, torch.zeros_like(fills))
    return Counterfactual(traded, quiet, difference, arrival)


def mean_path(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean over markets of values `[M, S]` and half of its 95% interval; of one market NaN."""
    count = len(values)
    error = values.std(0, ddof=1) / count**0.5 if count > 1 else np.full(values.shape[1], np.nan)
    return values.mean(0), half_width(error, count)


def _arm(simulator: Simulator, series: Mapping[str, torch.Tensor], fills: torch.Tensor) -> Arm:
    return Arm(dict(series), fills, simulator.cash.clone(), simulator.inventory.clone(), simulator.fees.clone())


def _checked_orders(orders: Any, shape: tuple[int | None, ...], device: torch.device) -> torch.Tensor:
    """Return quotes that were checked; those of one market go to all markets."""
    try:
        found = tuple(orders.shape) if isinstance(orders, torch.Tensor) else np.shape(orders)
    except Exception:  # ragged sequences, nested tensors: check_quotes says what is wrong with them
        found = ()
    one = len(found) == len(shape) and found[-3] == 1
    checked = check_quotes(orders, (*shape[:-3], 1, *shape[-2:]) if one else shape, device, "orders")
    return checked.expand([have if want is None else want for want, have in zip(shape, checked.shape, strict=True)])
