"""Calibration: which parameters of a market fit given statistics, as a posterior distribution, learned by sbi.

`calibrating.py` does all of it: targets.py -> a sweep -> learning.py -> checking.py -> calibrated.py, which asks
reaching.py first and predicting.py last.
"""

from kineticsim_env.calibration.calibrated import Calibration
from kineticsim_env.calibration.calibrating import calibrate

__all__ = ("Calibration", "calibrate")
