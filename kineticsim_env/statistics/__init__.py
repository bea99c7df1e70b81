"""Statistics of markets: of recorded series, and of runs whose series are reduced as they come.

`measure` runs markets and takes statistics of each, or of groups of them, with errors. The functions of recorded
arrays, and means with their errors, are used by the command line and the studies.
"""

from kineticsim_env.runtime.names import finder, modules_in
from kineticsim_env.statistics import arrays
from kineticsim_env.statistics.measured import Measured, Value
from kineticsim_env.statistics.measuring import DEFAULT, STATISTICS, check_statistics, measure, measure_series
from kineticsim_env.statistics.order_events import distance_to, measure_events, of_events
from kineticsim_env.statistics.over_markets import (
    Interval,
    Mean,
    bootstrap_interval,
    deviation_and_error,
    half_width,
    mean_and_error,
)
from kineticsim_env.statistics.plans import Plan, of_series

__all__ = (
    "DEFAULT",
    "STATISTICS",
    "Interval",
    "Mean",
    "Measured",
    "Plan",
    "Value",
    "arrays",
    "bootstrap_interval",
    "check_statistics",
    "deviation_and_error",
    "distance_to",
    "half_width",
    "mean_and_error",
    "measure",
    "measure_events",
    "measure_series",
    "of_events",
    "of_series",
)

__getattr__ = finder(
    __name__,
    {**dict.fromkeys(arrays.__all__, arrays.__name__), "RunSummary": "kineticsim_env.commands.simulate"},
    modules_in(__name__, __path__),
)
