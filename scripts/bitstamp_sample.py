"""Half an hour of Bitstamp's orders in BTC/USD, 2026-05-02: files of the package ob-analytics 0.1.0, GPL-2 or later.

Its files alone are read: the package is not imported. Used by scripts/pages/order_flow.py and tests.
"""

import importlib.util
from pathlib import Path

import kineticsim_env as ks
from kineticsim_env.data.events import OrderEvents


def folder() -> Path | None:
    """Return where the files are; None where the package is not installed."""
    found = importlib.util.find_spec("ob_analytics")
    return Path(found.origin).parent / "_sample_data" if found and found.origin else None


def sample() -> OrderEvents:
    """Read and clean it."""
    files = folder()
    if files is None:
        raise ModuleNotFoundError("the sample is a package: pip install --no-deps ob-analytics==0.1.0")
    return ks.read_orders(
        files / "orders.csv.gz",
        time="exchange_timestamp",
        order="id",
        kind="action",
        side="direction",
        size="volume",
        unit="ms",
        sizes="remaining",
        trades=files / "trades.csv",
        trade_columns={
            "time": "exchange_timestamp",
            "size": "amount",
            "buyer": "buy_order_id",
            "seller": "sell_order_id",
        },
    )
