"""Proximal policy optimisation of an executor: `ppo_fast.py` on `KineticSim/Execution-v0`.

    python examples/ppo_executor.py --time-limit-minutes 3.5

At the end it is compared with TWAP, VWAP and Almgren-Chriss schedules, whose parameters were searched on training
seeds, by what they made against the arrival price on held-out ones, per unit of the block.
"""

import dataclasses
from pathlib import Path
from typing import ClassVar, Literal

import ppo_fast as ppo
import tyro


@dataclasses.dataclass
class Args(ppo.Args):
    """Train an executor with PPO and compare it with scripted schedules."""

    TASK: ClassVar[str] = "Execution"
    # Prices move a lot more than executors differ, so it takes many.
    EPISODES: ClassVar[dict[str, int]] = {"cuda": 32768, "cpu": 2048, "numpy": 512}
    SETTINGS: ClassVar[tuple[str, ...]] = (
        *("reward", "risk_aversion", "reward_scale", "auctions_per_step", "block_qty"),
        *ppo.Args.ORDERS,
    )

    output: Path = Path("runs/ppo_executor")
    """folder of the checkpoint, the TensorBoard log, the table and the pictures"""
    gamma: float | None = 1.0
    """discount per decision"""
    gae_lambda: float = 0.99
    """of generalised advantage estimation"""
    initial_std: float = 0.2
    """standard deviation of the policy's actions at the start"""
    reward: Literal["shortfall", "risk_averse", "terminal", "edge"] = "edge"  # ty: ignore[incompatible-attribute-override]
    """what the learner is paid"""
    risk_aversion: float = 0.05
    """of the risk-averse reward: ticks per decision with the whole block left"""
    block_qty: int = 100
    """units to trade"""
    reward_scale: float = 0.2
    """rewards, in ticks per unit of the block, are divided by this"""
    inventory_penalty: tyro.conf.Suppress[float] = 0.0
    at_end: tyro.conf.Suppress[str] = "truncate"  # ty: ignore[incompatible-attribute-override]


if __name__ == "__main__":
    ppo.run(Args)
