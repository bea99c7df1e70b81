"""Policies by name: what this project has trained, and scripted ones with the parameters that were searched for them.

A trained one is `PRESET/TASK/NAME`, such as `news/market_making/ppo`, and a file of this folder under that name, with
the ending `.safetensors`: `ppo` is of seed 1, `ppo-3` of the third. Scripted ones are in `scripted_policies.json`,
which `examples/tune_scripted_policies.py` writes.
"""

from kineticsim_env.zoo.scripted_policies import SCRIPTED, informed, make_scripted, scripted
from kineticsim_env.zoo.trained_policies import load_policy, trained

__all__ = ["SCRIPTED", "informed", "load_policy", "make_scripted", "scripted", "trained"]
