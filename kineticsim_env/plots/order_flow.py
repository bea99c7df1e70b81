"""The picture of an order flow beside data: distributions of scores, and paths of the mid."""

from __future__ import annotations

from typing import Any

import numpy as np

from kineticsim_env import plots
from kineticsim_env.data.books import replay
from kineticsim_env.data.events import OrderEvents
from kineticsim_env.data.measures import SCORES, sessions_of

_PANELS = {  # by score: a title, the horizontal axis, and whether each number is a bar
    "spread": ("Spread, after each event", "ticks", True),
    "bid_volume_touch": ("Best bid", "lots", False),
    "bid_volume": ("Ten best bids", "lots", False),
    "log_inter_arrival_time": ("Time between events", "log of seconds", False),
    "log_time_to_cancel": ("Time to cancellation", "log of seconds", False),
    "bid_limit_level": ("Level of bids that come", "level", True),
    "log_limit_size": ("Size of limit orders", "log of lots", False),
}
_BINS = 60
_PATHS = 4


def draw_validation(path: Any, real: OrderEvents, simulated: OrderEvents) -> None:
    """Write the picture of data and of markets, one per session."""
    plots.require_matplotlib()
    shown = [list(sessions_of(events)) for events in (real, simulated)]

    def panel(name: str) -> Any:
        both = [np.concatenate([SCORES[name](one) for one in sessions]) for sessions in shown]
        return lambda axes: _distribution(axes, both, *_PANELS[name])

    plots.save_panels(path, [*map(panel, _PANELS), lambda axes: _mids(axes, real, simulated)], columns=4, size=(4, 3))


def _distribution(axes: Any, both: Any, title: str, unit: str, bars: bool) -> None:
    together = np.concatenate(both)
    low, high = np.quantile(together, [0.001, 0.995])
    edges = np.arange(np.floor(low) - 0.5, np.ceil(high) + 1.5) if bars else np.linspace(low, high, _BINS + 1)
    for values, colour, label in zip(both, (plots.GREY, plots.BUY), ("data", "order flow"), strict=True):
        counts = np.histogram(values, edges)[0] / max(len(values), 1)
        area = label == "data"
        axes.stairs(counts, edges, color=colour, label=label, fill=area, alpha=0.35 if area else 1)
    axes.set(title=title, xlabel=unit, ylabel="share")
    if bars:
        axes.set_yscale("log")
    axes.legend(fontsize=8)


def _mids(axes: Any, real: OrderEvents, simulated: OrderEvents) -> None:
    for events, colour, label in ((simulated, plots.BUY, "order flow"), (real, plots.GREY, "data")):
        books = replay(events, 1)
        for first, last in events.sessions[:_PATHS]:
            rows = np.flatnonzero((events.time >= first) & (events.time <= last) & books.both)
            rows = rows[:: max(len(rows) // 2000, 1)]
            if len(rows):
                mid = books.mid2[rows] / 2
                axes.plot((events.time[rows] - first) / 1e9, mid - mid[0], color=colour, lw=1, label=label)
                label = None
    axes.set(title="Mid", xlabel="seconds", ylabel="ticks from its beginning")
    axes.legend(fontsize=8)
