"""The panels of a `Picture`: prices with the own trades, inventory, and PnL, over the decisions of an episode."""

from __future__ import annotations

from typing import Any

import numpy as np

from kineticsim_env.render import canvas as colours
from kineticsim_env.render.canvas import Canvas, nice_ticks
from kineticsim_env.render.recorder import MarketRecorder
from kineticsim_env.render.text import ticks_text

RECENT = 100  # decisions that the price panel shows, of full length
LEFT, RIGHT = 460, 948


class Panel:
    """Axes over decisions, or over events where these end decisions: maps values to places, and draws its grid."""

    def __init__(self, canvas: Canvas, top: float, bottom: float, first: float, last: float) -> None:
        self.canvas, self.top, self.bottom, self.first, self.last = canvas, top, bottom, first, max(last, first + 1)
        self.low, self.high = 0.0, 1.0

    def x(self, decisions: Any) -> Any:
        """Return the places of decisions."""
        return LEFT + (decisions - self.first) * ((RIGHT - LEFT) / (self.last - self.first))

    def y(self, values: Any) -> Any:
        """Return the places of values."""
        return self.bottom - (values - self.low) * ((self.bottom - self.top) / (self.high - self.low))

    def draw(self, low: float, high: float, lines: int, label: str) -> float:
        """Fix the range of values, and draw grid, numbers and label; return where the label ends."""
        self.low, self.high = low, high
        canvas = self.canvas
        canvas.box(LEFT, self.top, RIGHT - LEFT, self.bottom - self.top, colours.WHITE)
        for value in nice_ticks(low, high, lines):
            y = self.y(value)
            canvas.segment((LEFT, y), (RIGHT, y), colours.GREY if value == 0 else colours.GRID)
            canvas.text(f"{round(value):,}", LEFT - 6, y, 18, colours.GREY, align=1.0, middle=True)
        return canvas.text(label, LEFT, self.top - 20, 19)

    def time_axis(self, label: str) -> None:
        """Write numbers of decisions below the axes, and what they are."""
        for value in nice_ticks(self.first, self.last, 6):
            x = self.x(value)
            self.canvas.segment((x, self.bottom), (x, self.bottom + 3), colours.GREY)
            self.canvas.text(str(round(value)), x, self.bottom + 5, 18, colours.GREY, align=0.5)
        self.canvas.text(label, RIGHT, self.bottom + 20, 17, colours.GREY, align=1.0)


def draw_panels(canvas: Canvas, recorder: MarketRecorder, whole: MarketRecorder | None) -> None:
    """Draw the three panels; with `whole`, on axes of what that recorder has seen."""
    assert recorder.moment is not None
    last = max(recorder.moment.elapsed, 1)
    if whole is not None:
        seen = whole.path("elapsed")
        recent = episode = int(seen[0]), int(seen[-1])
    else:
        shown, first = RECENT * recorder.longest, int(recorder.path("elapsed")[0])
        recent = max(last - shown, 0), max(last, shown) + 1
        episode = first, min(recorder.horizon, max(last, first + 1000 * recorder.longest))
    _prices(recorder, whole, Panel(canvas, 96, 318, *recent))
    _holdings(recorder, whole or recorder, Panel(canvas, 380, 452, *episode))
    _money(recorder, whole, Panel(canvas, 484, 558, *episode))


# Prices ---------------------------------------------------------------------------------------------------------------


def _prices(recorder: MarketRecorder, whole: MarketRecorder | None, panel: Panel) -> None:
    canvas, moment = panel.canvas, recorder.moment
    assert moment is not None
    low, high = _range(whole or recorder, panel.first)
    margin = 0.08 * (high - low) + 2
    x, y = panel.draw(low - margin, high + margin, 6, "Price, ticks") + 12, panel.top - 18
    shown, lines = _lines(recorder, panel.first)
    places = panel.x(recorder.path("elapsed")[shown].astype(np.float64))
    for name, (_, colour) in lines.items():
        canvas.segment((x, y + 6), (x + 14, y + 6), colour, 2)
        x = canvas.text(name, x + 17, y, 17) + 8
    _mark_key(canvas, x, y)
    for name, (line, colour) in reversed(lines.items()):
        width = 1 if name == "last price" else 2
        canvas.path(places, panel.y(line), colour, width, steps=name == "fundamental")
    if recorder.spec.has_block:
        arrival = panel.y(moment.arrival2 / 2)
        canvas.dashes((LEFT, arrival), RIGHT, colours.OWN)
        canvas.text("arrival", RIGHT - 4, arrival - 15, 17, colours.OWN, align=1.0)
    for name, colour, up in (("bought", colours.BUY, True), ("sold", colours.SELL, False)):
        hit = recorder.path(name)[shown] > 0
        canvas.triangles(places[hit], panel.y(recorder.path(f"{name}_at")[shown][hit]), colour, up)
    what = "" if whole is not None else f" (the last {RECENT * recorder.longest})"
    panel.time_axis(recorder.unit + what)


def _lines(recorder: MarketRecorder, first: float) -> tuple[slice, dict[str, tuple[np.ndarray, colours.Colour]]]:
    """Return which of the decisions that were seen are shown, from the first one on, and the lines of prices."""
    shown = slice(int(np.searchsorted(recorder.path("elapsed"), first)), None)
    lines = {
        "mid": (recorder.path("mid2")[shown] / 2, colours.INK),
        "last price": (recorder.path("last_price")[shown], (165, 165, 165)),
    }
    if recorder.show_fundamental:
        lines["fundamental"] = (recorder.path("fundamental")[shown], colours.FUNDAMENTAL)
    return shown, lines


def _range(recorder: MarketRecorder, first: float) -> tuple[float, float]:
    """Return the lowest and the highest price of the lines."""
    found = [line for line, _ in _lines(recorder, first)[1].values()]
    if recorder.spec.has_block:
        assert recorder.moment is not None
        found.append(np.array([recorder.moment.arrival2 / 2]))
    return min(float(line.min()) for line in found), max(float(line.max()) for line in found)


def _mark_key(canvas: Canvas, x: float, y: float) -> None:
    for text, colour, up in (("own buys", colours.BUY, True), ("own sells", colours.SELL, False)):
        canvas.triangles(np.array([x + 5.0]), np.array([y + 2.0 if up else y + 11.0]), colour, up)
        x = canvas.text(text, x + 13, y, 17) + 8


# Holdings and money ---------------------------------------------------------------------------------------------------


def _holdings(recorder: MarketRecorder, scale: MarketRecorder, panel: Panel) -> None:
    """Draw the inventory, or what is left of a block; the range is that of another recorder's path."""
    canvas, block = panel.canvas, recorder.block
    values, others = ((of.path("left") if block else of.path("inventory")) for of in (recorder, scale))
    shown = _thinned(len(values))
    at = panel.x(recorder.path("elapsed")[shown].astype(np.float64))
    limit = block or getattr(recorder.task, "inventory_limit", None)
    most = max(int(np.abs(others).max()), 1)
    reach = 1.15 * (min(limit, 2 * most) if limit else most)
    low, high = -reach, reach
    if block:
        buys = int(others[np.argmax(np.abs(others))]) > 0
        low, high = (-0.05 * reach, reach) if buys else (-reach, 0.05 * reach)
    label = "Left to trade, units (+ to buy, - to sell)" if block else "Inventory, units (long above 0, short below)"
    panel.draw(low, high, 5, label)
    if limit and not block and limit <= reach:
        for bound in (-limit, limit):
            canvas.dashes((LEFT, panel.y(bound)), RIGHT, colours.GREY)
        canvas.text(f"limit {limit}", RIGHT - 4, panel.y(limit) + 3, 16, colours.GREY, align=1.0)
    _area(canvas, at, panel.y(values[shown].astype(np.float64)), panel.y(0.0))


def _area(canvas: Canvas, x: np.ndarray, y: np.ndarray, zero: float) -> None:
    """Fill between a step line and zero, in one colour above and another below."""
    if len(x) > 1:
        for keep, colour in ((np.minimum(y, zero), colours.PALE_BUY), (np.maximum(y, zero), colours.PALE_SELL)):
            a, b = np.repeat(x, 2)[1:], np.repeat(keep, 2)[:-1]
            a, b = np.concatenate([a[:1], a, a[-1:]]), np.concatenate([[zero], b, [zero]])
            points = (np.stack([a, b], axis=1) * canvas.scale).round().tolist()
            colours.pygame.draw.polygon(canvas.surface, colour, points)
    canvas.path(x, y, colours.INK, 1, steps=True)


def _money(recorder: MarketRecorder, whole: MarketRecorder | None, panel: Panel) -> None:
    values, others = recorder.money_path(), (whole or recorder).money_path()
    shown = _thinned(len(values))
    at = panel.x(recorder.path("elapsed")[shown].astype(np.float64))
    low, high = min(float(others.min()), 0.0), max(float(others.max()), 0.0)
    margin = 0.1 * (high - low) + 1
    label = "Gained against the arrival price" if recorder.spec.has_block else "PnL, inventory at the mid"
    panel.draw(low - margin, high + margin, 3, f"{label}, ticks x units (now {ticks_text(float(values[-1]))})")
    panel.canvas.path(at, panel.y(values[shown]), colours.INK, 2)
    panel.time_axis(recorder.unit + (" (the episode)" if whole is None else ""))


def _thinned(count: int) -> slice:
    """Return which of `count` decisions to draw, about one per unit of the panel's width; the last is among them."""
    step = -(-count // (RIGHT - LEFT))
    return slice((count - 1) % step, None, step)
