"""The statistics that texts can name: in one place, and open to yours."""

from kineticsim_env.statistics.of_returns import (
    abs_autocorrelation,
    autocorrelation,
    kurtosis,
    leverage,
    mean_return,
    price_deviation,
    price_error,
    quantile,
    skewness,
    tail_index,
    unchanged,
    variance_ratio,
    volatility,
)
from kineticsim_env.statistics.of_trading import (
    book_shape,
    depth,
    impact_curve,
    impact_exponent,
    one_sided,
    response,
    sign_autocorrelation,
    signed_volume_autocorrelation,
    spread,
    traded,
    volume,
    volume_autocorrelation,
    volume_deviation,
    volume_volatility,
)
from kineticsim_env.statistics.plans import Make

STATISTICS: dict[str, Make] = {
    function.__name__: function
    for function in (
        mean_return, volatility, skewness, kurtosis, unchanged, quantile, tail_index, variance_ratio, price_deviation,
        price_error, autocorrelation, abs_autocorrelation, leverage, volume, volume_deviation, traded,
        volume_autocorrelation, volume_volatility, spread, one_sided, depth, book_shape, sign_autocorrelation,
        signed_volume_autocorrelation, response, impact_curve, impact_exponent,
    )
}  # fmt: skip
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
