"""`block_impact`: what a block order does to the price, measured against the same markets without it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from kineticsim_env.config import MAX_QUOTE_QTY, MarketConfig
from kineticsim_env.counterfactuals.arms import Counterfactual, counterfactual, mean_path
from kineticsim_env.counterfactuals.causal import SIDES, check_room, market_order
from kineticsim_env.runtime.values import check_choice, check_count, check_instance
from kineticsim_env.simulator import Simulator
from kineticsim_env.statistics import Mean, mean_and_error


class BlockImpact(NamedTuple):
    """What a block order did to the price; prices in ticks, positive where the price moved against the order."""

    arms: Any  # the `Counterfactual`; None where a study has dropped it
    side: str
    block: int
    per_auction: int
    duration: int  # auctions that the order is spread over
    path: np.ndarray  # float64 [S + 1]: mean impact on the mid after s auctions; the order ends at [duration]
    path_interval: np.ndarray  # float64 [S + 1]: half of its 95% interval over markets
    at_end: Mean  # impact when the order ends
    permanent: Mean  # what is left of it: the mean over the last quarter of the auctions after it
    temporary: Mean  # what has gone by then, paired: at_end - permanent
    shortfall: Mean  # implementation shortfall: ticks per unit paid over the mid at arrival, with fees
    impact_cost: Mean  # ticks per unit paid over the other arm's mid before the same auction: free of the price's drift
    filled: Mean  # share of the block that was executed
    participation: Mean  # own units as a share of the market's volume while the order lasted
    variance_ratio: float  # of the impact at the end: paired over unpaired (`Counterfactual.variance_ratio`)

    def summary(self) -> dict[str, Any]:
        """Return the figures as plain numbers, a mean as (value, half of its 95% interval)."""
        row: dict[str, Any] = {}
        for name, value in self._asdict().items():
            if isinstance(value, Mean):
                row[name], row[f"{name}_interval"] = value.mean, value.interval()
            elif isinstance(value, (int, float, str)):
                row[name] = value
        return row


def block_impact(
    config: MarketConfig | None = None,
    side: str = "buy",
    block: int = 40,
    per_auction: int = 4,
    after: int = 60,
    *,
    num_markets: int | None = None,
    seed: Any = 0,
    warmup: int = 100,
    reach: int | None = None,
    engine: str = "auto",
    device: Any = None,
    progress: bool | None = None,
) -> BlockImpact:
    """Execute a block in every market, a piece in each auction, and measure its impact against the same markets.

    The order is adaptive in one way only: what a piece did not fill is added to the next one. Pieces are marketable;
    the order lasts `ceil(block / per_auction)` auctions, and what is then left is withdrawn.

    Args:
        config: The market; the preset `"paper"` if None.
        side: `"buy"` or `"sell"`.
        block: Units in all.
        per_auction: Units in each auction.
        after: Auctions after the order, in which the price may come back.
        num_markets: M; 1024, or as many as per-market fields have values, if None.
        seed: As in `Simulator`.
        warmup: Auctions before the order.
        reach: Price pieces so many ticks beyond the mid; None is any price. A piece that does not fill stands until
            the next one at its price, and built-in agents see it there: in continuous trading what stands at any price
            is sold to at the far end of the grid. `causal_impact` takes what there is, and no more.
        engine: As in `Simulator`.
        device: As in `Simulator`.
        progress: As in `Simulator.run`.

    Raises:
        TypeError, ValueError: Naming the argument, what came and what is allowed.
    """
    config = MarketConfig() if config is None else check_instance("config", config, MarketConfig)
    check_choice("side", side, SIDES)
    per_auction, after = check_count("per_auction", per_auction, 1), check_count("after", after, 1)
    if check_count("block", block, 0) > MAX_QUOTE_QTY * 1024:
        raise ValueError(f"block: expected up to {MAX_QUOTE_QTY * 1024}, got {block}")
    if reach is not None:
        reach = check_count("reach", reach, 0)
    check_room(config, {"block": (block, "inventory_limit"), "per_auction": (per_auction, "max_quote_qty")})
    if num_markets is None and not config.per_market:
        num_markets = 1024
    duration = max(1, -(-block // per_auction))

    def piece(t: int, simulator: Simulator) -> torch.Tensor:
        """Return the quotes int32 `[M, 1, 4]` that bring every market's inventory to what is due."""
        quotes = market_order(simulator, SIDES[side], min(block, per_auction * (t + 1)))
        if reach is not None:
            mid2 = simulator.mid2[:, None]
            quotes[..., 0 if side == "buy" else 2] = (mid2 >> 1) + reach if side == "buy" else ((mid2 + 1) >> 1) - reach
        return quotes

    arms = counterfactual(
        config, piece, num_markets, seed=seed, decisions=duration, after=after, warmup=warmup, engine=engine,
        device=device, progress=progress,
    )  # fmt: skip
    return _measure(arms, side, block, per_auction, duration)


def _measure(arms: Counterfactual, side: str, block: int, per_auction: int, duration: int) -> BlockImpact:
    sign, (traded, alone) = SIDES[side], (arms.with_agent, arms.without_agent)
    impact = sign * arms.difference["mid2"].cpu().numpy() / 2
    impact = np.concatenate([np.zeros_like(impact[:, :1]), impact], axis=1)  # [M, S + 1], after s auctions
    path, interval = mean_path(impact)
    at_end, tail = impact[:, duration], impact[:, -max(1, (impact.shape[1] - 1 - duration) // 4) :].mean(1)
    fills = traded.fills.sum(3)[:, :, 0].T.cpu().numpy()  # [M, T], one auction per decision
    filled = fills.sum(1)
    before = torch.cat([arms.arrival[:, None], alone.series["mid2"]], dim=1)  # the other arm's, before each auction
    mid = before.cpu().numpy()[:, :duration] / 2
    volume = traded.series["volume"].cpu().numpy()[:, :duration].sum(1)
    units, fees = np.where(filled > 0, filled, np.nan), traded.fees[:, 0].cpu().numpy() / 1000
    paid = -sign * traded.cash[:, 0].cpu().numpy()  # an auction has one price, continuous trading many
    shortfall = (sign * (paid - filled * mid[:, 0]) + fees) / units
    against = (sign * (paid - (fills * mid).sum(1)) + fees) / units
    share = filled / block if block else np.full(len(filled), np.nan)
    participation = filled / np.where(volume > 0, volume, np.nan)
    figures = map(mean_and_error, (at_end, tail, at_end - tail, shortfall, against, share, participation))
    ratio = float(arms.variance_ratio("mid2")[duration - 1])
    return BlockImpact(arms, side, block, per_auction, duration, path, interval, *figures, ratio)
