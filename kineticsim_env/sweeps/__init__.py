"""Sweeps: statistics of markets over a space of their parameters, stored, resumed, and spread over machines.

space.py      what varies, as users write it -> dimensions
designs.py    dimensions -> values of any points: grid, random, Sobol, list
functions.py  statistics that users have written, as a plan stores them
plans.py      points -> configs and seeds; the whole sweep as plain numbers
batches.py    some points -> launches -> a table
store.py      a folder with the plan and a table per batch
tables.py     the files of these tables, and what shows that one was damaged
local.py      batches on this machine's devices
cluster.py    batches on a cluster of Ray
sweeping.py   `sweep`, which does all of it
command.py    `python -m kineticsim_env sweep FILE.toml`
"""

from kineticsim_env.sweeps.store import Sweep, open_sweep
from kineticsim_env.sweeps.sweeping import sweep

__all__ = ("Sweep", "open_sweep", "sweep")
