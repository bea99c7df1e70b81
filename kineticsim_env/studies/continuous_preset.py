"""What only continuous trading asks of a market for makers: is a place in a queue, and being early, worth something?

The makers of `trading_preset.py`, with three more: one whose quotes arrive late, one that stays where it is, with or
without its place in the queue, and one that quotes at random. `scripts/pages/continuous_preset.py`
measures with it what docs/presets.md shows.
"""

from __future__ import annotations

import torch

from kineticsim_env.config import MarketConfig
from kineticsim_env.simulator import Simulator
from kineticsim_env.studies.trading_preset import SIZE, Game, Rule, around_mid, trade

PATIENCE = 4  # ticks that a patient maker's quote may be away from where it would be placed anew
REACH = 10  # ticks from the mid up to which random quotes are, as in the task


def play_late(
    config: MarketConfig, half_spread: int, skew: float, latency: int, markets: int, engine: str = "auto"
) -> Game:
    """Let the maker around the mid trade with quotes that arrive `latency` events late."""
    late = config.replace(quote_latency=latency)
    return trade(late, lambda simulator: around_mid(simulator, half_spread, skew), markets, engine)


def play_patient(
    config: MarketConfig, half_spread: int, skew: float, keeps: bool, markets: int, engine: str = "auto"
) -> Game:
    """Let a maker trade that leaves a quote where it is while it is within PATIENCE ticks of its price anew.

    Args:
        config: The market.
        half_spread: Where a new quote is placed, ticks from the mid.
        skew: How far it is moved against the inventory, ticks per unit.
        keeps: Whether a quote that stays keeps its place. If not, it gives up a unit in one decision and asks for it
            back in the next, which puts it behind all that rests at its tick, every other decision.
        markets: How many.
        engine: As in `Simulator`.
    """
    decision = 0

    def rule(simulator: Simulator) -> torch.Tensor:
        nonlocal decision
        quotes = around_mid(simulator, half_spread, skew)
        for side in (0, 2):
            anew, standing = quotes[:, 0, side : side + 2], simulator.quotes[:, 0, side : side + 2].clone()
            stays = (standing[:, 1] > 0) & ((standing[:, 0] - anew[:, 0]).abs() <= PATIENCE)
            if not keeps:
                standing[:, 1] = (standing[:, 1] + (1 if decision % 2 else -1)).clamp(1, SIZE)
            anew.copy_(torch.where(stays[:, None], standing, anew))
        decision += 1
        return quotes

    return trade(config, rule, markets, engine)


def play_random(config: MarketConfig, markets: int, engine: str = "auto", seed: int = 1) -> Game:
    """Let quotes be drawn: up to REACH ticks from the mid, up to SIZE units, each side for itself."""
    return trade(config, _random_rule(seed), markets, engine)


def _random_rule(seed: int) -> Rule:
    generator = torch.Generator().manual_seed(seed)  # on the CPU, so that every engine sees the same draws

    def rule(simulator: Simulator) -> torch.Tensor:
        quotes = around_mid(simulator, 0, 0.0)
        draws = torch.rand((len(quotes), 4), generator=generator, dtype=torch.float64).to(quotes.device)
        quotes[:, 0, 0] -= torch.round(REACH * draws[:, 0]).int()
        quotes[:, 0, 2] += torch.round(REACH * draws[:, 1]).int()
        quotes[:, 0, 1::2] = torch.round(SIZE * draws[:, 2:]).int()
        return quotes

    return rule
