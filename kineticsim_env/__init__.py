"""KineticSim-Env: thousands of limit-order-book markets on one GPU, open to reinforcement learning."""

import gymnasium as _gymnasium

from kineticsim_env.agents.classes import agent, mix
from kineticsim_env.agents.policies import ProgramPolicy, keep, policy, quote, quotes
from kineticsim_env.agents.vocabulary import no_order, order
from kineticsim_env.calibration import calibrate
from kineticsim_env.config import MarketConfig
from kineticsim_env.counterfactuals import block_impact, causal_impact, counterfactual
from kineticsim_env.envs.batched import BatchedParallelEnv
from kineticsim_env.envs.counterfactual_episodes import env_counterfactual
from kineticsim_env.envs.parallel import parallel_env
from kineticsim_env.envs.rollouts import PolicyRollout, rollout
from kineticsim_env.errors import EngineUnavailable, KineticSimError, MarketError
from kineticsim_env.policies.networks import NetworkPolicy
from kineticsim_env.runtime import __version__
from kineticsim_env.runtime.moved import finder as _finder
from kineticsim_env.runtime.moved import module_moved as _module_moved
from kineticsim_env.runtime.orders import OrderFlag, OrderRecords, Reject
from kineticsim_env.runtime.seeds import run_seed
from kineticsim_env.scorecards import scorecard
from kineticsim_env.simulator import Simulator
from kineticsim_env.statistics import measure
from kineticsim_env.sweeps import open_sweep, sweep
from kineticsim_env.tasks import TASKS as _TASKS
from kineticsim_env.tasks import ExecutionTask, ManyLearnersTask, MarketMakingTask, TradingTask
from kineticsim_env.zoo import load_policy

__all__ = [
    "BatchedParallelEnv",
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
    "block_impact",
    "calibrate",
    "causal_impact",
    "counterfactual",
    "env_counterfactual",
    "keep",
    "load_policy",
    "measure",
    "mix",
    "no_order",
    "open_sweep",
    "order",
    "parallel_env",
    "policy",
    "quote",
    "quotes",
    "rollout",
    "run_seed",
    "scorecard",
    "sweep",
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
        "Counterfactual": "kineticsim_env.counterfactuals",
        "Measured": "kineticsim_env.statistics",
        "Mix": "kineticsim_env.agents.mixes",
        "Rollout": "kineticsim_env.simulator",
        "Scorecard": "kineticsim_env.scorecards",
        "Sweep": "kineticsim_env.sweeps",
    },
)

for _former, _place in {
    **{f"counterfactual{module}": f"counterfactuals{module}" for module in ("", ".arms", ".causal", ".impact")},
    "envs.counterfactual": "envs.counterfactual_episodes",
    "scorecard": "scorecards",
}.items():
    _module_moved(f"{__name__}.{_former}", f"{__name__}.{_place}")
