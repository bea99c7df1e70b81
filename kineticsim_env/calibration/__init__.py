"""Calibration: which parameters of a market fit given statistics, as a posterior distribution, learned by sbi.

targets.py      what is fitted, as users write it -> statistics and their values
trainer.py      sbi's trainer: batches on the device, a rate that falls, a CUDA graph
learning.py     simulations -> a network that knows the posterior of any statistics
checking.py     how far it can be trusted
reaching.py     whether simulations come near the target at all
predicting.py   what markets of the posterior show, beside the target
calibrated.py   `Calibration`: the posterior of a target, with its check and its table
calibrating.py  `calibrate`, which does all of it with a sweep
figures.py      its pictures
command.py      `python -m kineticsim_env calibrate FILE.toml`
"""

from kineticsim_env.calibration.calibrated import Calibration
from kineticsim_env.calibration.calibrating import calibrate

__all__ = ("Calibration", "calibrate")
