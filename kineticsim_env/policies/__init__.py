"""Scripted policies: makers, executors and traders to beat, and attackers that must earn nothing.

A policy is called with observations float32 `[M, F]` and returns continuous actions, float32 in [-1, 1]; it sees what a
learner sees, and the same limits hold for it. `Discretised` makes it play discrete actions.
"""

from kineticsim_env.policies.attackers import (
    ATTACKERS,
    EXECUTOR_ATTACKERS,
    TRADER_ATTACKERS,
    ExecutorBursts,
    ExecutorHugeQuantity,
    ExecutorLastStep,
    FlashedWall,
    HugeQuantity,
    LastStep,
    MarkTheClose,
    PriceWall,
    PumpAndDump,
    QuoteStuffing,
    TraderHugeQuantity,
    TraderLastStep,
    TraderMarkTheClose,
    TraderPriceWall,
    TraderPumpAndDump,
    TraderSniper,
    WashTrade,
)
from kineticsim_env.policies.base import Discretised, Policy, inventory_of, quote_action
from kineticsim_env.policies.executors import (
    AlmgrenChriss,
    DoNothing,
    ImmediateExecution,
    RandomOrders,
    TimeWeighted,
    VolumeWeighted,
)
from kineticsim_env.policies.informed import InformedExecutor, InformedMaker, InformedTrader
from kineticsim_env.policies.makers import (
    AvellanedaStoikov,
    FixedSpread,
    GueantLehalleFernandezTapia,
    NoTrade,
    QuietQuotes,
    RandomQuotes,
)
from kineticsim_env.policies.traders import BuyAndHold, Hold, MeanReversionTrader, MomentumTrader, RandomTrader

__all__ = [
    "ATTACKERS",
    "EXECUTOR_ATTACKERS",
    "TRADER_ATTACKERS",
    "AlmgrenChriss",
    "AvellanedaStoikov",
    "BuyAndHold",
    "Discretised",
    "DoNothing",
    "ExecutorBursts",
    "ExecutorHugeQuantity",
    "ExecutorLastStep",
    "FixedSpread",
    "GueantLehalleFernandezTapia",
    "Hold",
    "HugeQuantity",
    "ImmediateExecution",
    "InformedExecutor",
    "InformedMaker",
    "InformedTrader",
    "LastStep",
    "MeanReversionTrader",
    "MomentumTrader",
    "NoTrade",
    "Policy",
    "PriceWall",
    "PumpAndDump",
    "QuietQuotes",
    "RandomOrders",
    "RandomQuotes",
    "RandomTrader",
    "TimeWeighted",
    "TraderHugeQuantity",
    "TraderLastStep",
    "TraderPriceWall",
    "TraderPumpAndDump",
    "VolumeWeighted",
    "WashTrade",
    "FlashedWall",
    "MarkTheClose",
    "QuoteStuffing",
    "TraderMarkTheClose",
    "TraderSniper",
    "inventory_of",
    "quote_action",
]
