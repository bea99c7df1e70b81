"""`Picture`: the `rgb_array` picture of one market: its ladder, its price path, and a learner's inventory and PnL."""

from __future__ import annotations

from typing import Any

import numpy as np

from kineticsim_env.render import canvas as colours
from kineticsim_env.render.canvas import Canvas, nice_ticks
from kineticsim_env.render.recorder import MarketRecorder, Moment
from kineticsim_env.render.text import headline, ticks_text
from kineticsim_env.runtime.values import check_instance

WIDTH, HEIGHT = 960, 600
RECENT = 100  # decisions that the price panel shows, of full length
_ROW, _ROWS = 18, 27  # of the ladder: units per row, rows
_LADDER_TOP = 94
_MIDDLE_ROW = _ROWS // 2
_HEADS = ("own bid", "bids, units", "price", "asks, units", "own ask")  # of the ladder's columns, from left to right
_LEFT, _OWN_WIDTH, _BAR_WIDTH, _PRICE_WIDTH = 12, 62, 88, 58
_BIDS = _LEFT + _OWN_WIDTH
_PRICE = _BIDS + _BAR_WIDTH
_ASKS = _PRICE + _PRICE_WIDTH
_OWN_ASK = _ASKS + _BAR_WIDTH
_RIGHT = _OWN_ASK + _OWN_WIDTH
_PANEL_LEFT, _PANEL_RIGHT = 440, 946


class Panel:
    """Axes over decisions, or over events where these end decisions: maps values to places, and draws its grid."""

    def __init__(self, canvas: Canvas, top: float, bottom: float, first: float, last: float) -> None:
        self.canvas, self.top, self.bottom, self.first, self.last = canvas, top, bottom, first, max(last, first + 1)
        self.low, self.high = 0.0, 1.0

    def x(self, decisions: Any) -> Any:
        """Return the places of decisions."""
        return _PANEL_LEFT + (decisions - self.first) * ((_PANEL_RIGHT - _PANEL_LEFT) / (self.last - self.first))

    def y(self, values: Any) -> Any:
        """Return the places of values."""
        return self.bottom - (values - self.low) * ((self.bottom - self.top) / (self.high - self.low))

    def draw(self, low: float, high: float, lines: int, label: str) -> float:
        """Fix the range of values, and draw grid, numbers and label; return where the label ends."""
        self.low, self.high = low, high
        canvas = self.canvas
        canvas.box(_PANEL_LEFT, self.top, _PANEL_RIGHT - _PANEL_LEFT, self.bottom - self.top, colours.WHITE)
        for value in nice_ticks(low, high, lines):
            y = self.y(value)
            canvas.segment((_PANEL_LEFT, y), (_PANEL_RIGHT, y), colours.GREY if value == 0 else colours.GRID)
            canvas.text(f"{round(value):,}", _PANEL_LEFT - 6, y, 15, colours.GREY, align=1.0, middle=True)
        return canvas.text(label, _PANEL_LEFT, self.top - 19, 17)

    def time_axis(self, label: str) -> None:
        """Write numbers of decisions below the axes, and what they are."""
        for value in nice_ticks(self.first, self.last, 6):
            x = self.x(value)
            self.canvas.segment((x, self.bottom), (x, self.bottom + 3), colours.GREY)
            self.canvas.text(str(round(value)), x, self.bottom + 5, 15, colours.GREY, align=0.5)
        self.canvas.text(label, _PANEL_RIGHT, self.bottom + 18, 15, colours.GREY, align=1.0)


class Picture(Canvas):
    """Draws a recorder's market, 960 x 600 units."""

    def __init__(self, scale: int = 1) -> None:
        """Make the surface; with `scale` 2 it has twice as many pixels each way."""
        super().__init__(WIDTH, HEIGHT, scale)

    def draw(self, recorder: MarketRecorder) -> None:
        """Draw the present moment and the path to it; the recorder must have recorded."""
        moment = check_instance("recorder", recorder, MarketRecorder).moment
        if moment is None:
            raise ValueError("recorder: expected a recorder after its record(), got one that has not recorded")
        self.fill(colours.PAPER)
        self._head(recorder, moment)
        self._ladder(recorder, moment)
        last = max(moment.elapsed, 1)
        recent = RECENT * recorder.longest
        self._prices(recorder, moment, Panel(self, 94, 322, max(last - recent, 0), max(last, recent) + 1))
        first = int(recorder.path("elapsed")[0])
        whole = first, min(recorder.horizon, max(last, first + 1000 * recorder.longest))
        self._holdings(recorder, moment, Panel(self, 376, 450, *whole))
        self._money(recorder, Panel(self, 478, 560, *whole))

    def _head(self, recorder: MarketRecorder, moment: Moment) -> None:
        place, account = headline(recorder, moment)
        self.box(0, 0, WIDTH, 58, colours.INK)
        self.text(f"KineticSim {recorder.spec.title}", 14, 10, 22, colours.WHITE)
        self.text(account.replace(" | ", "     "), WIDTH - 14, 10, 22, colours.WHITE, align=1.0)
        self.text(place.replace(" | ", "     "), 14, 35, 16, colours.PALE_BUY)
        fills = f"last decision: bought {moment.bought}, sold {moment.sold}; the market traded {moment.volume}"
        self.text(fills, WIDTH - 14, 35, 16, colours.PALE_BUY, align=1.0)

    # The ladder -------------------------------------------------------------------------------------------------------

    def row_middle(self, moment: Moment, price: float) -> float:
        """Return the vertical middle of a price's row; half ticks lie on a border of two rows."""
        return _LADDER_TOP + (_MIDDLE_ROW + 0.5 + moment.mid2 // 2 - price) * _ROW

    def shown_prices(self, moment: Moment) -> range:
        """Return the prices that the ladder shows, from the highest down."""
        top = moment.mid2 // 2 + _MIDDLE_ROW
        return range(top, top - _ROWS, -1)

    def _ladder(self, recorder: MarketRecorder, moment: Moment) -> None:
        self.box(_LEFT, _LADDER_TOP, _RIGHT - _LEFT, _ROWS * _ROW, colours.WHITE)
        self.box(_PRICE, _LADDER_TOP, _PRICE_WIDTH, _ROWS * _ROW, (240, 240, 238))
        edges = (_LEFT, _BIDS, _PRICE, _ASKS, _OWN_ASK, _RIGHT)
        for text, left, right in zip(_HEADS, edges[:-1], edges[1:], strict=True):
            self.text(text, (left + right) / 2, _LADDER_TOP - 19, 17, align=0.5)
        prices = self.shown_prices(moment)
        self._flash(moment, prices)
        depths = [(moment.depth(price, "bid"), moment.depth(price, "ask")) for price in prices]
        largest = max(8, *(max(pair) for pair in depths))
        scale = _BAR_WIDTH / (1 << (largest - 1).bit_length())
        for price, (bid, ask) in zip(prices, depths, strict=True):
            y = self.row_middle(moment, price)
            if bid:
                self.box(_PRICE - bid * scale, y - 7, bid * scale, 14, colours.PALE_BUY)
                self._place(moment, price, bid, scale, y, bid=True)
                self.text(str(bid), _PRICE - 5, y, 17, colours.INK, align=1.0, middle=True)
            if ask:
                self.box(_ASKS, y - 7, ask * scale, 14, colours.PALE_SELL)
                self._place(moment, price, ask, scale, y, bid=False)
                self.text(str(ask), _ASKS + 5, y, 17, colours.INK, middle=True)
            if price == moment.last_price:
                self.box(_PRICE + 3, y - 8, _PRICE_WIDTH - 6, 16, colours.INK)
            colour = colours.WHITE if price == moment.last_price else colours.INK
            self.text(str(price), _PRICE + _PRICE_WIDTH / 2, y, 17, colour, align=0.5, middle=True)
        mid = self.row_middle(moment, moment.mid2 / 2)
        for left, right in ((_BIDS, _PRICE), (_ASKS, _OWN_ASK)):
            self.dashes((left, mid), right, colours.INK)
        self._quotes(moment, prices, bid=True)
        self._quotes(moment, prices, bid=False)
        self._ladder_legend(_LADDER_TOP + _ROWS * _ROW + 5, queues=moment.queue is not None)

    def _place(self, moment: Moment, price: int, resting: int, scale: float, y: float, bid: bool) -> None:
        """Mark an own quote's place in its queue: marks behind the units ahead of it; those behind it are paler."""
        _, ahead = moment.own("bid" if bid else "ask").get(price, (0, None))
        if ahead is None:
            return
        behind = (resting - ahead) * scale
        left = _PRICE - resting * scale if bid else _ASKS + ahead * scale
        self.box(left, y - 7, behind, 14, colours.PALEST_BUY if bid else colours.PALEST_SELL)
        line = _PRICE - ahead * scale - 2 if bid else _ASKS + ahead * scale
        for top in (y - 9, y + 5):  # above and below the number
            self.box(line, top, 2, 4, colours.OWN)

    def _flash(self, moment: Moment, prices: range) -> None:
        """Highlight the rows at which pictures show the last decision's fills, with their quantities at the ends."""
        rows = moment.filled_rows()
        places = [self.row_middle(moment, min(max(price, prices[-1]), prices[0])) for price in rows]
        for filled, y in zip((moment.bought, moment.sold), places, strict=True):
            if filled:
                self.box(_LEFT, y - _ROW / 2, _RIGHT - _LEFT, _ROW, colours.FLASH)
        if moment.bought:
            self.text(f"+{moment.bought}", _LEFT + 3, places[0], 19, colours.DEEP_BUY, middle=True)
        if moment.sold:
            self.text(f"-{moment.sold}", _RIGHT - 3, places[1], 19, colours.DEEP_SELL, align=1.0, middle=True)

    def quote_box(self, moment: Moment, bid: bool, price: int) -> tuple[float, float, float, float]:
        """Return left, top, width and height of the mark of a quote; one beyond the ladder is at its end."""
        prices = self.shown_prices(moment)
        y = self.row_middle(moment, min(max(price, prices[-1]), prices[0]))
        return (_BIDS - 36 if bid else _OWN_ASK, y - 8, 36, 16)

    def _quotes(self, moment: Moment, prices: range, bid: bool) -> None:
        """Mark standing quotes; those beyond the ladder are at its end, with the price of the nearest."""
        marks: dict[float, tuple[int, int, int | None]] = {}  # by height: the price, the units, and what is ahead
        for price, (units, ahead) in moment.own("bid" if bid else "ask").items():
            top = self.quote_box(moment, bid, price)[1]
            nearest, before, least = marks.get(top, (price, 0, ahead))
            marks[top] = nearest, before + units, least
        for price, units, ahead in marks.values():
            left, top, width, height = self.quote_box(moment, bid, price)
            self.box(left, top, width, height, colours.OWN)
            text, size = (str(units), 17) if ahead is None else (f"{units} | {ahead}", 15)
            if len(text) > 6:  # wider than the mark
                text, size = text.replace(" ", ""), 13
            self.text(text, left + width / 2, top + height / 2, size, colours.WHITE, align=0.5, middle=True)
            if not prices[-1] <= price <= prices[0]:
                place = left + width / 2, top + height / 2 + _ROW
                self.text(f"at {price}", *place, 14, colours.OWN, align=0.5, middle=True)

    def outline(self, moment: Moment, quotes: tuple[int, int, int, int]) -> None:
        """Outline quotes that do not stand yet, where the marks of standing ones would be."""
        for bid, price, units in ((True, *quotes[:2]), (False, *quotes[2:])):
            if units:
                left, top, width, height = self.quote_box(moment, bid, price)
                self.box(left - 2, top - 1, width + 4, height + 2, colours.OWN, 2)

    def price_at(self, moment: Moment, y: float) -> int | None:
        """Return the price whose row of the ladder is at a height, None beside the ladder."""
        row = int((y - _LADDER_TOP) // _ROW)
        return self.shown_prices(moment)[row] if 0 <= row < _ROWS else None

    def _ladder_legend(self, y: float, queues: bool) -> None:
        x = self._key(_LEFT, y, colours.OWN, "own quote | ahead" if queues else "own quote")
        x = self._key(x + 12, y, colours.FLASH, "own fill")
        x = self._key(x + 12, y, colours.INK, "last price")
        self.dashes((x + 12, y + 6), x + 28, colours.INK)
        self.text("mid", x + 34, y, 15)

    def _key(self, x: float, y: float, colour: tuple[int, int, int], text: str) -> float:
        self.box(x, y, 12, 11, colour)
        return self.text(text, x + 17, y, 15)

    # Paths ------------------------------------------------------------------------------------------------------------

    def _prices(self, recorder: MarketRecorder, moment: Moment, panel: Panel) -> None:
        at = recorder.path("elapsed")
        shown = slice(int(np.searchsorted(at, panel.first)), None)
        at = at[shown]
        lines = {
            "mid": (recorder.path("mid2")[shown] / 2, colours.INK),
            "last price": (recorder.path("last_price")[shown], (165, 165, 165)),
        }
        if recorder.show_fundamental:
            lines["fundamental"] = (recorder.path("fundamental")[shown], colours.FUNDAMENTAL)
        low, high = min(line.min() for line, _ in lines.values()), max(line.max() for line, _ in lines.values())
        if recorder.spec.has_block:
            low, high = min(low, moment.arrival2 / 2), max(high, moment.arrival2 / 2)
        margin = 0.08 * (high - low) + 2
        x = panel.draw(low - margin, high + margin, 6, "Price, ticks") + 14
        places = panel.x(at.astype(np.float64))
        y = panel.top - 17
        for name, (_, colour) in lines.items():
            self.segment((x, y + 5), (x + 16, y + 5), colour, 2)
            x = self.text(name, x + 20, y, 15) + 9
        self._mark_key(x, y)
        for name, (line, colour) in reversed(lines.items()):
            width = 1 if name == "last price" else 2
            self.path(places, panel.y(line), colour, width, steps=name == "fundamental")
        if recorder.spec.has_block:
            arrival = panel.y(moment.arrival2 / 2)
            self.dashes((_PANEL_LEFT, arrival), _PANEL_RIGHT, colours.OWN)
            self.text("arrival", _PANEL_RIGHT - 4, arrival - 13, 15, colours.OWN, align=1.0)
        for name, colour, up in (("bought", colours.BUY, True), ("sold", colours.SELL, False)):
            hit = recorder.path(name)[shown] > 0
            self.triangles(places[hit], panel.y(lines["last price"][0][hit]), colour, up)
        panel.time_axis(f"{recorder.unit} (the last {RECENT * recorder.longest})")

    def _mark_key(self, x: float, y: float) -> None:
        for text, colour, up in (("own buys", colours.BUY, True), ("own sells", colours.SELL, False)):
            self.triangles(np.array([x + 5.0]), np.array([y + 1.0 if up else y + 10.0]), colour, up)
            x = self.text(text, x + 13, y, 15) + 9

    def _holdings(self, recorder: MarketRecorder, moment: Moment, panel: Panel) -> None:
        """Draw the inventory, or what is left of a block."""
        block = recorder.block
        values = recorder.path("left") if block else recorder.path("inventory")
        shown = _thinned(len(values))
        at = panel.x(recorder.path("elapsed")[shown].astype(np.float64))
        limit = block or getattr(recorder.task, "inventory_limit", None)
        most = max(int(np.abs(values).max()), 1)
        reach = 1.15 * (min(limit, 2 * most) if limit else most)
        low, high = -reach, reach
        if block:
            buys = int(values[np.argmax(np.abs(values))]) > 0
            low, high = (-0.05 * reach, reach) if buys else (-reach, 0.05 * reach)
        label = (
            "Left to trade, units (+ to buy, - to sell)" if block else "Inventory, units (long above 0, short below)"
        )
        panel.draw(low, high, 6, label)
        if limit and not block and limit <= reach:
            for bound in (-limit, limit):
                self.dashes((_PANEL_LEFT, panel.y(bound)), _PANEL_RIGHT, colours.GREY)
            self.text(f"limit {limit}", _PANEL_RIGHT - 4, panel.y(limit) + 3, 14, colours.GREY, align=1.0)
        self._area(at, panel.y(values[shown].astype(np.float64)), panel.y(0.0))

    def _area(self, x: np.ndarray, y: np.ndarray, zero: float) -> None:
        """Fill between a step line and zero, in one colour above and another below."""
        s = self.scale
        if len(x) > 1:
            for keep, colour in ((np.minimum(y, zero), colours.PALE_BUY), (np.maximum(y, zero), colours.PALE_SELL)):
                a, b = np.repeat(x, 2)[1:], np.repeat(keep, 2)[:-1]
                a, b = np.concatenate([a[:1], a, a[-1:]]), np.concatenate([[zero], b, [zero]])
                colours.pygame.draw.polygon(self.surface, colour, (np.stack([a, b], axis=1) * s).round().tolist())
        self.path(x, y, colours.INK, 1, steps=True)

    def _money(self, recorder: MarketRecorder, panel: Panel) -> None:
        executes = recorder.spec.has_block
        values = recorder.money_path()
        shown = _thinned(len(values))
        at = panel.x(recorder.path("elapsed")[shown].astype(np.float64))
        low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
        margin = 0.1 * (high - low) + 1
        label = "Gained against the arrival price" if executes else "PnL, inventory at the mid"
        panel.draw(low - margin, high + margin, 3, f"{label}, ticks x units (now {ticks_text(float(values[-1]))})")
        self.path(at, panel.y(values[shown]), colours.INK, 2)
        panel.time_axis(f"{recorder.unit} (the episode)")


def _thinned(count: int) -> slice:
    """Return which of `count` decisions to draw, about one per unit of the panel's width; the last is among them."""
    step = -(-count // (_PANEL_RIGHT - _PANEL_LEFT))
    return slice((count - 1) % step, None, step)
