"""Evaluation of policies by liquidated PnL: inventory is unwound through the market before profit is counted.

The measure of an executor is the price improvement of its block on the arrival price, per unit.
"""

from kineticsim_env.evaluation.accounts import liquidate, price_improvement
from kineticsim_env.evaluation.episodes import (
    ENVIRONMENTS,
    HELD_OUT_SEED,
    HELD_OUT_WARM_SEED,
    evaluate,
    evaluation_env,
    evaluation_parallel_env,
    grid_search,
)
from kineticsim_env.evaluation.players import RecurrentPolicy
from kineticsim_env.evaluation.results import MEASURES, Evaluation, confidence_interval, difference, format_table
from kineticsim_env.evaluation.risk import cvar, sharpe_ratio, standard_deviation

__all__ = [
    "ENVIRONMENTS",
    "HELD_OUT_SEED",
    "HELD_OUT_WARM_SEED",
    "MEASURES",
    "Evaluation",
    "RecurrentPolicy",
    "confidence_interval",
    "cvar",
    "difference",
    "evaluate",
    "evaluation_env",
    "evaluation_parallel_env",
    "format_table",
    "grid_search",
    "liquidate",
    "price_improvement",
    "sharpe_ratio",
    "standard_deviation",
]
