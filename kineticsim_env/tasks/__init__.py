"""Tasks: what a learner sees, may do and is paid for. The arithmetic itself is in `cuda/model/tasks.h`."""

from kineticsim_env.tasks.execution import ExecutionTask
from kineticsim_env.tasks.many_learners import ManyLearnersTask
from kineticsim_env.tasks.market_making import MarketMakingTask
from kineticsim_env.tasks.trading import TradingTask

# By name: "Trading" is registered as KineticSim/Trading-v0, of envs.single.TradingEnv and envs.vector.TradingVectorEnv.
TASKS = {"MarketMaking": MarketMakingTask, "Execution": ExecutionTask, "Trading": TradingTask}
TASK_WORDS = {  # by the word of a command line or of a file's name: "market_making" is "MarketMaking"
    "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_"): name for name in TASKS
}

__all__ = ["TASKS", "TASK_WORDS", "ExecutionTask", "ManyLearnersTask", "MarketMakingTask", "TradingTask"]
