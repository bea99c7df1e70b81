"""`Picture`: the `rgb_array` picture of one market: its ladder, and beside it the panels of `panels.py`."""

from __future__ import annotations

from kineticsim_env.render import canvas as colours
from kineticsim_env.render.canvas import Canvas
from kineticsim_env.render.panels import draw_panels
from kineticsim_env.render.recorder import MarketRecorder, Moment
from kineticsim_env.render.text import headline
from kineticsim_env.runtime.values import check_instance

WIDTH, HEIGHT = 960, 600
_ROW, _ROWS = 21, 23  # of the ladder: units per row, rows
_LADDER_TOP = 96
_LEGEND_TOP = _LADDER_TOP + _ROWS * _ROW + 5
_MIDDLE_ROW = _ROWS // 2
_HEADS = ("own bid", "bids, units", "price", "asks, units", "own ask")  # of the ladder's columns, from left to right
_LEFT, _OWN_WIDTH, _BAR_WIDTH, _PRICE_WIDTH = 10, 82, 90, 60
_MARK = 50, 19  # width and height of the mark of an own quote
_BIDS = _LEFT + _OWN_WIDTH
_PRICE = _BIDS + _BAR_WIDTH
_ASKS = _PRICE + _PRICE_WIDTH
_OWN_ASK = _ASKS + _BAR_WIDTH
_RIGHT = _OWN_ASK + _OWN_WIDTH
LADDER_MIDDLE, LADDER_RIGHT = _PRICE + _PRICE_WIDTH // 2, _RIGHT  # the game's window tells clicks by them


class Picture(Canvas):
    """Draws a recorder's market, 960 x 600 units."""

    def __init__(self, scale: int = 1) -> None:
        """Make the surface; with `scale` 2 it has twice as many pixels each way."""
        super().__init__(WIDTH, HEIGHT, scale)
        self._legend_ends = 0.0

    def draw(self, recorder: MarketRecorder, whole: MarketRecorder | None = None) -> None:
        """Draw the present moment and the path to it; the recorder must have recorded.

        Args:
            recorder: Of the market.
            whole: One that has seen more of the same episode. The axes then have its range, so that they keep still
                from picture to picture of a film that ends where it does.
        """
        moment = _recorded("recorder", recorder)
        if whole is not None:
            _recorded("whole", whole)
        self.fill(colours.PAPER)
        self._head(recorder, moment)
        self._ladder(recorder, moment)
        draw_panels(self, recorder, whole)

    def _head(self, recorder: MarketRecorder, moment: Moment) -> None:
        place, account = headline(recorder, moment)
        self.box(0, 0, WIDTH, 58, colours.INK)
        self.text(f"KineticSim {recorder.spec.title}", 14, 9, 24, colours.WHITE)
        self.text(account.replace(" | ", "     "), WIDTH - 14, 9, 24, colours.WHITE, align=1.0)
        self.text(place.replace(" | ", "     "), 14, 35, 18, colours.PALE_BUY)
        fills = f"last decision: bought {moment.bought}, sold {moment.sold}; the market traded {moment.volume}"
        self.text(fills, WIDTH - 14, 35, 18, colours.PALE_BUY, align=1.0)

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
            self.text(text, (left + right) / 2, _LADDER_TOP - 20, 19, align=0.5)
        prices = self.shown_prices(moment)
        self._flash(moment, prices)
        depths = [(moment.depth(price, "bid"), moment.depth(price, "ask")) for price in prices]
        largest = max(8, *(max(pair) for pair in depths))
        scale = _BAR_WIDTH / (1 << (largest - 1).bit_length())
        for price, (bid, ask) in zip(prices, depths, strict=True):
            y = self.row_middle(moment, price)
            if bid:
                self.box(_PRICE - bid * scale, y - 8, bid * scale, 16, colours.PALE_BUY)
                self._place(moment, price, bid, scale, y, bid=True)
                self.text(str(bid), _PRICE - 5, y, 20, colours.INK, align=1.0, middle=True)
            if ask:
                self.box(_ASKS, y - 8, ask * scale, 16, colours.PALE_SELL)
                self._place(moment, price, ask, scale, y, bid=False)
                self.text(str(ask), _ASKS + 5, y, 20, colours.INK, middle=True)
            if price == moment.last_price:
                self.box(_PRICE + 3, y - 9, _PRICE_WIDTH - 6, 18, colours.INK)
            colour = colours.WHITE if price == moment.last_price else colours.INK
            self.text(str(price), _PRICE + _PRICE_WIDTH / 2, y, 20, colour, align=0.5, middle=True)
        mid = self.row_middle(moment, moment.mid2 / 2)
        for left, right in ((_BIDS, _PRICE), (_ASKS, _OWN_ASK)):
            self.dashes((left, mid), right, colours.INK)
        self._quotes(moment, prices, bid=True)
        self._quotes(moment, prices, bid=False)
        self._ladder_legend(queues=moment.queue is not None)

    def _place(self, moment: Moment, price: int, resting: int, scale: float, y: float, bid: bool) -> None:
        """Mark an own quote's place in its queue: marks behind the units ahead of it; those behind it are paler."""
        _, ahead = moment.own("bid" if bid else "ask").get(price, (0, None))
        if ahead is None:
            return
        behind = (resting - ahead) * scale
        left = _PRICE - resting * scale if bid else _ASKS + ahead * scale
        self.box(left, y - 8, behind, 16, colours.PALEST_BUY if bid else colours.PALEST_SELL)
        line = _PRICE - ahead * scale - 2 if bid else _ASKS + ahead * scale
        for top in (y - 10, y + 6):  # above and below the number
            self.box(line, top, 2, 4, colours.OWN)

    def _flash(self, moment: Moment, prices: range) -> None:
        """Highlight the rows at which pictures show the last decision's fills, with their quantities at the ends."""
        rows = moment.filled_rows()
        places = [self.row_middle(moment, min(max(price, prices[-1]), prices[0])) for price in rows]
        for filled, y in zip((moment.bought, moment.sold), places, strict=True):
            if filled:
                self.box(_LEFT, y - _ROW / 2, _RIGHT - _LEFT, _ROW, colours.FLASH)
        if moment.bought:
            self.text(f"+{moment.bought}", _LEFT + 3, places[0], 22, colours.DEEP_BUY, middle=True)
        if moment.sold:
            self.text(f"-{moment.sold}", _RIGHT - 3, places[1], 22, colours.DEEP_SELL, align=1.0, middle=True)

    def quote_box(self, moment: Moment, bid: bool, price: int) -> tuple[float, float, float, float]:
        """Return left, top, width and height of the mark of a quote; one beyond the ladder is at its end."""
        prices = self.shown_prices(moment)
        y = self.row_middle(moment, min(max(price, prices[-1]), prices[0]))
        width, height = _MARK
        return (_BIDS - width if bid else _OWN_ASK, y - height / 2, width, height)

    def _quotes(self, moment: Moment, prices: range, bid: bool) -> None:
        """Mark standing quotes; those beyond the ladder are at its end, with the price of the nearest."""
        marks: dict[float, tuple[int, int, int | None]] = {}  # by height: the price, the units, and what is ahead
        for price, (units, ahead) in moment.own("bid" if bid else "ask").items():
            top = self.quote_box(moment, bid, price)[1]
            nearest, before, least = marks.get(top, (price, 0, ahead))
            marks[top] = nearest, before + units, least
        at, filled = moment.filled_rows()[not bid], moment.bought if bid else moment.sold
        if filled and moment.queue is not None and at not in moment.own("bid" if bid else "ask"):  # nothing is left
            left, top, width, height = self.quote_box(moment, bid, at)
            self.box(left, top, width, height, colours.PALE_OWN)
            self.text("filled", left + width / 2, top + height / 2, 18, colours.OWN, align=0.5, middle=True)
        for price, units, ahead in marks.values():
            left, top, width, height = self.quote_box(moment, bid, price)
            self.box(left, top, width, height, colours.OWN)
            text, size = (str(units), 20) if ahead is None else (f"{units} | {ahead}", 19)
            if len(text) > 6:  # wider than the mark
                text, size = text.replace(" ", ""), 17
            self.text(text, left + width / 2, top + height / 2, size, colours.WHITE, align=0.5, middle=True)
            if not prices[-1] <= price <= prices[0]:
                place = left + width / 2, top + height / 2 + _ROW
                self.text(f"at {price}", *place, 17, colours.OWN, align=0.5, middle=True)

    def outline(self, moment: Moment, quotes: tuple[int, int, int, int]) -> None:
        """Outline quotes that do not stand yet, where the marks of standing ones would be."""
        for bid, price, units in ((True, *quotes[:2]), (False, *quotes[2:])):
            if units:
                left, top, width, height = self.quote_box(moment, bid, price)
                self.box(left - 2, top - 1, width + 4, height + 2, colours.OWN, 2)
        x = self._legend_ends + 12
        self.box(x, _LEGEND_TOP, 12, 11, colours.OWN, 2)
        self.text("next", x + 17, _LEGEND_TOP, 17)

    def price_at(self, moment: Moment, y: float) -> int | None:
        """Return the price whose row of the ladder is at a height, None beside the ladder."""
        row = int((y - _LADDER_TOP) // _ROW)
        return self.shown_prices(moment)[row] if 0 <= row < _ROWS else None

    def _ladder_legend(self, queues: bool) -> None:
        y = _LEGEND_TOP
        x = self._key(_LEFT, y, colours.OWN, "own quote | ahead" if queues else "own quote")
        x = self._key(x + 12, y, colours.FLASH, "own fill")
        x = self._key(x + 12, y, colours.INK, "last price")
        self.dashes((x + 12, y + 6), x + 28, colours.INK)
        self._legend_ends = self.text("mid", x + 34, y, 17)

    def _key(self, x: float, y: float, colour: tuple[int, int, int], text: str) -> float:
        self.box(x, y, 12, 11, colour)
        return self.text(text, x + 17, y, 17)


def _recorded(name: str, recorder: MarketRecorder) -> Moment:
    """Return a recorder's present moment, once it is a recorder that has recorded."""
    moment = check_instance(name, recorder, MarketRecorder).moment
    if moment is None:
        raise ValueError(f"{name}: expected a recorder after its record(), got one that has not recorded")
    return moment
