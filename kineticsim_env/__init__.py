"""KineticSim-Env: thousands of limit-order-book markets on one GPU, open to reinforcement learning."""

import typing as _typing

import gymnasium as _gymnasium

from kineticsim_env.agents.classes import agent, mix
from kineticsim_env.agents.policies import ProgramPolicy, keep, policy, quote, quotes
from kineticsim_env.agents.vocabulary import no_order, order
from kineticsim_env.config import MarketConfig
from kineticsim_env.errors import EngineUnavailable, KineticSimError, MarketError
from kineticsim_env.policies.networks import NetworkPolicy
from kineticsim_env.policies.rollouts import PolicyRollout
from kineticsim_env.runtime import __version__
from kineticsim_env.runtime.names import finder as _finder
from kineticsim_env.runtime.names import module_moved as _module_moved
from kineticsim_env.runtime.orders import OrderFlag, OrderRecords, Reject
from kineticsim_env.runtime.seeds import run_seed
from kineticsim_env.simulator import Simulator
from kineticsim_env.tasks import TASKS as _TASKS
from kineticsim_env.tasks import ExecutionTask, ManyLearnersTask, MarketMakingTask, TradingTask

if _typing.TYPE_CHECKING:  # what _LATE has, for type checkers and editors
    from kineticsim_env.calibration import calibrate as calibrate
    from kineticsim_env.counterfactuals import block_impact as block_impact
    from kineticsim_env.counterfactuals import causal_impact as causal_impact
    from kineticsim_env.counterfactuals import counterfactual as counterfactual
    from kineticsim_env.data.intervals import read_bars as read_bars
    from kineticsim_env.data.intervals import read_trades as read_trades
    from kineticsim_env.data.lobster import read_lobster as read_lobster
    from kineticsim_env.data.orders import read_orders as read_orders
    from kineticsim_env.data.scores import order_book_scores as order_book_scores
    from kineticsim_env.envs.batched import BatchedParallelEnv as BatchedParallelEnv
    from kineticsim_env.envs.counterfactual_episodes import env_counterfactual as env_counterfactual
    from kineticsim_env.envs.custom_tasks import CustomTask as CustomTask
    from kineticsim_env.envs.parallel import parallel_env as parallel_env
    from kineticsim_env.envs.rollouts import rollout as rollout
    from kineticsim_env.flow.order_flow import OrderFlow as OrderFlow
    from kineticsim_env.scorecards import scorecard as scorecard
    from kineticsim_env.statistics import measure as measure
    from kineticsim_env.sweeps import open_sweep as open_sweep
    from kineticsim_env.sweeps import sweep as sweep
    from kineticsim_env.zoo import load_policy as load_policy

# Names that load when they are first used, and where they are.
_LATE = {
    "BatchedParallelEnv": "kineticsim_env.envs.batched",
    "CustomTask": "kineticsim_env.envs.custom_tasks",
    "OrderFlow": "kineticsim_env.flow.order_flow",
    "block_impact": "kineticsim_env.counterfactuals",
    "calibrate": "kineticsim_env.calibration",
    "causal_impact": "kineticsim_env.counterfactuals",
    "counterfactual": "kineticsim_env.counterfactuals",
    "env_counterfactual": "kineticsim_env.envs.counterfactual_episodes",
    "load_policy": "kineticsim_env.zoo",
    "measure": "kineticsim_env.statistics",
    "open_sweep": "kineticsim_env.sweeps",
    "order_book_scores": "kineticsim_env.data.scores",
    "parallel_env": "kineticsim_env.envs.parallel",
    "read_bars": "kineticsim_env.data.intervals",
    "read_lobster": "kineticsim_env.data.lobster",
    "read_orders": "kineticsim_env.data.orders",
    "read_trades": "kineticsim_env.data.intervals",
    "rollout": "kineticsim_env.envs.rollouts",
    "scorecard": "kineticsim_env.scorecards",
    "sweep": "kineticsim_env.sweeps",
}
# Modules that do so too: `kineticsim_env.statistics` is there after `import kineticsim_env`.
_LATE_MODULES = ("calibration", "counterfactuals", "envs", "jax", "render", "scorecards", "statistics", "sweeps", "zoo")

__all__ = [
    "EngineUnavailable",
    "ExecutionTask",
    "KineticSimError",
    "ManyLearnersTask",
    "MarketConfig",
    "MarketError",
    "MarketMakingTask",
    "NetworkPolicy",
    "OrderFlag",
    "OrderRecords",
    "PolicyRollout",
    "ProgramPolicy",
    "Reject",
    "Simulator",
    "TradingTask",
    "__version__",
    "agent",
    "keep",
    "mix",
    "no_order",
    "order",
    "policy",
    "quote",
    "quotes",
    "run_seed",
    *_LATE,
]

for _task in _TASKS:
    _gymnasium.register(
        id=f"KineticSim/{_task}-v0",
        entry_point=f"kineticsim_env.envs.single:{_task}Env",
        vector_entry_point=f"kineticsim_env.envs.vector:{_task}VectorEnv",
    )

__getattr__ = _finder(
    __name__,
    {
        "AgentClass": "kineticsim_env.agents.classes",
        "BlockImpact": "kineticsim_env.counterfactuals",
        "Calibration": "kineticsim_env.calibration",
        "CausalImpact": "kineticsim_env.counterfactuals",
        "CleaningReport": "kineticsim_env.data.report",
        "Counterfactual": "kineticsim_env.counterfactuals",
        "Measured": "kineticsim_env.statistics",
        "Mix": "kineticsim_env.agents.mixes",
        "OrderBookScores": "kineticsim_env.data.scores",
        "OrderEvents": "kineticsim_env.data.events",
        "Rollout": "kineticsim_env.simulator",
        "Scorecard": "kineticsim_env.scorecards",
        "Sweep": "kineticsim_env.sweeps",
    },
    _LATE | {name: f"{__name__}.{name}" for name in _LATE_MODULES},
)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATE, *_LATE_MODULES})


for _former, _place in {
    **{f"counterfactual{module}": f"counterfactuals{module}" for module in ("", ".arms", ".causal", ".impact")},
    "envs.counterfactual": "envs.counterfactual_episodes",
    "scorecard": "scorecards",
}.items():
    _module_moved(f"{__name__}.{_former}", f"{__name__}.{_place}")
