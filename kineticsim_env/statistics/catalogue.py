"""The statistics that texts can name: every public function of of_returns.py and of_trading.py; open to yours."""

import inspect

from kineticsim_env.statistics import of_returns, of_trading
from kineticsim_env.statistics.plans import Make

STATISTICS: dict[str, Make] = {
    name: function
    for module in (of_returns, of_trading)
    for name, function in vars(module).items()
    if inspect.isfunction(function) and function.__module__ == module.__name__ and not name.startswith("_")
}
DEFAULT = (
    "volatility",
    "kurtosis",
    "tail_index",
    "variance_ratio(span=100)",
    "autocorrelation(lag=1)",
    "abs_autocorrelation(lag=20)",
    "volume",
    "volume_volatility",
)
