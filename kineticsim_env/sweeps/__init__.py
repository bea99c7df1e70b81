"""Sweeps: statistics of markets over a space of their parameters, stored, resumed, and spread over machines.

`sweeping.py` does all of it: space.py -> designs.py -> plans.py -> batches.py (on local.py or cluster.py) -> store.py.
"""

from kineticsim_env.sweeps.store import Sweep, open_sweep
from kineticsim_env.sweeps.sweeping import sweep

__all__ = ("Sweep", "open_sweep", "sweep")
