"""Proximal policy optimisation of a directional trader: `ppo_fast.py` on `KineticSim/Trading-v0`.

    python examples/ppo_trader.py --time-limit-minutes 3.5

At the end it is compared with momentum and mean-reversion traders, whose parameters were searched on training seeds, by
liquidated PnL on held-out ones.
"""

import dataclasses
from pathlib import Path
from typing import ClassVar

import ppo_fast as ppo


@dataclasses.dataclass
class Args(ppo.Args):
    """Train a trader with PPO and compare it with scripted ones."""

    TASK: ClassVar[str] = "Trading"

    output: Path = Path("runs/ppo_trader")
    """folder of the checkpoint, the TensorBoard log, the table and the pictures"""


if __name__ == "__main__":
    ppo.run(Args)
