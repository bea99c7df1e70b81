"""Tasks: what a learner sees, may do and is paid for. The arithmetic itself is in `cuda/model/tasks.h`."""

from kineticsim_env.tasks.execution import ExecutionTask
from kineticsim_env.tasks.many_learners import ManyLearnersTask
from kineticsim_env.tasks.market_making import MarketMakingTask
from kineticsim_env.tasks.trading import TradingTask

# By name: "Trading" is registered as KineticSim/Trading-v0, of envs.single.TradingEnv and envs.vector.TradingVectorEnv.
TASKS = {"MarketMaking": MarketMakingTask, "Execution": ExecutionTask, "Trading": TradingTask}

__all__ = ["TASKS", "ExecutionTask", "ManyLearnersTask", "MarketMakingTask", "TradingTask"]
