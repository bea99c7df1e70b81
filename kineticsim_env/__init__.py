"""KineticSim-Env: thousands of limit-order-book markets on one GPU, open to reinforcement learning."""

import gymnasium as _gymnasium

from kineticsim_env.batched_parallel_env import BatchedParallelEnv
from kineticsim_env.config import MarketConfig
from kineticsim_env.counterfactual import BlockImpact, Counterfactual, block_impact, counterfactual
from kineticsim_env.env_counterfactual import env_counterfactual
from kineticsim_env.errors import EngineUnavailable, KineticSimError, MarketError
from kineticsim_env.parallel_env import parallel_env
from kineticsim_env.simulator import Rollout, Simulator
from kineticsim_env.tasks import ExecutionTask, ManyLearnersTask, MarketMakingTask, TradingTask

__version__ = "0.1.0"
__all__ = [
    "BatchedParallelEnv",
    "BlockImpact",
    "Counterfactual",
    "EngineUnavailable",
    "ExecutionTask",
    "KineticSimError",
    "ManyLearnersTask",
    "MarketConfig",
    "MarketError",
    "MarketMakingTask",
    "Rollout",
    "Simulator",
    "TradingTask",
    "__version__",
    "block_impact",
    "counterfactual",
    "env_counterfactual",
    "parallel_env",
]

for _task in ("MarketMaking", "Execution", "Trading"):
    _gymnasium.register(
        id=f"KineticSim/{_task}-v0",
        entry_point=f"kineticsim_env.single_env:{_task}Env",
        vector_entry_point=f"kineticsim_env.vector_env:{_task}VectorEnv",
    )
