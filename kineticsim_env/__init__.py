"""KineticSim-Env: thousands of limit-order-book markets on one GPU, open to reinforcement learning."""

import gymnasium as _gymnasium

from kineticsim_env.config import MarketConfig
from kineticsim_env.counterfactual import BlockImpact, Counterfactual, block_impact, counterfactual
from kineticsim_env.env_counterfactual import env_counterfactual
from kineticsim_env.errors import EngineUnavailable, KineticSimError, MarketError
from kineticsim_env.parallel_env import parallel_env
from kineticsim_env.simulator import Rollout, Simulator
from kineticsim_env.tasks import MarketMakingTask

__version__ = "0.1.0"
__all__ = [
    "BlockImpact",
    "Counterfactual",
    "EngineUnavailable",
    "KineticSimError",
    "MarketConfig",
    "MarketError",
    "MarketMakingTask",
    "Rollout",
    "Simulator",
    "__version__",
    "block_impact",
    "counterfactual",
    "env_counterfactual",
    "parallel_env",
]

_gymnasium.register(
    id="KineticSim/MarketMaking-v0",
    entry_point="kineticsim_env.single_env:MarketMakingEnv",
    vector_entry_point="kineticsim_env.vector_env:MarketMakingVectorEnv",
)
