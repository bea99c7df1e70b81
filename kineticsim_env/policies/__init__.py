"""Scripted policies: makers, executors and traders to beat, and attackers that must earn nothing.

A policy is called with observations float32 `[M, F]` and returns continuous actions, float32 in [-1, 1]; it sees what a
learner sees, and the same limits hold for it. `Discretised` makes it play discrete actions.
"""

from kineticsim_env.policies import attackers
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
    GueantLehalleFernandezTapiaLadder,
    LadderMaker,
    NoTrade,
    QuietQuotes,
    RandomQuotes,
)
from kineticsim_env.policies.networks import NetworkPolicy as NetworkPolicy  # learned, unlike those listed below
from kineticsim_env.policies.traders import BuyAndHold, Hold, MeanReversionTrader, MomentumTrader, RandomTrader
from kineticsim_env.runtime.names import finder

__all__ = [
    "AlmgrenChriss",
    "AvellanedaStoikov",
    "BuyAndHold",
    "Discretised",
    "DoNothing",
    "FixedSpread",
    "GueantLehalleFernandezTapia",
    "GueantLehalleFernandezTapiaLadder",
    "Hold",
    "ImmediateExecution",
    "InformedExecutor",
    "InformedMaker",
    "InformedTrader",
    "LadderMaker",
    "MeanReversionTrader",
    "MomentumTrader",
    "NoTrade",
    "Policy",
    "QuietQuotes",
    "RandomOrders",
    "RandomQuotes",
    "RandomTrader",
    "TimeWeighted",
    "VolumeWeighted",
    "inventory_of",
    "quote_action",
    "attackers",
]

__getattr__ = finder(__name__, dict.fromkeys(attackers.__all__, attackers.__name__))
