"""`Canvas`: lines, bars, marks and cached text on a pygame surface, in coordinates that do not depend on its scale."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from kineticsim_env.runtime.files import replacing

os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
try:
    import pygame  # once the variable is there
except ModuleNotFoundError as error:
    missing = "a picture of a market needs pygame: pip install 'kineticsim-env[render]'"
    raise ModuleNotFoundError(missing, name="pygame") from error

Colour = tuple[int, int, int]

# Okabe and Ito's colours, which colour-blind readers can tell apart; buys and sells differ in shape too.
WHITE, PAPER, GRID, GREY, INK = (255, 255, 255), (250, 250, 248), (226, 226, 224), (110, 110, 110), (34, 34, 34)
BUY, SELL = (0, 114, 178), (213, 94, 0)
DEEP_BUY, DEEP_SELL = (0, 70, 120), (150, 50, 0)
PALE_BUY, PALE_SELL = (170, 209, 232), (246, 205, 170)
PALEST_BUY, PALEST_SELL = (224, 238, 247), (252, 236, 222)
OWN, PALE_OWN = (136, 46, 114), (231, 208, 225)
FUNDAMENTAL, FLASH = (0, 158, 115), (250, 234, 110)

_TEXTS = 4096  # rendered words that are kept


class Canvas:
    """A surface of `width` x `height` units, each `scale` pixels.

    Attributes:
        surface: What is drawn on.
    """

    def __init__(self, width: int, height: int, scale: int = 1) -> None:
        pygame.font.init()
        self.scale = scale
        self.surface = pygame.Surface((width * scale, height * scale))
        self._fonts: dict[int, Any] = {}
        self._texts: dict[tuple[str, int, Colour], Any] = {}

    def array(self) -> np.ndarray:
        """Return a copy of the pixels, uint8 `[H, W, 3]`."""
        width, height = self.surface.get_size()
        pixels = np.frombuffer(pygame.image.tobytes(self.surface, "RGB"), dtype=np.uint8)
        return pixels.reshape(height, width, 3).copy()

    def save(self, path: Any) -> None:
        """Write the picture as a PNG."""
        with replacing(path) as part:
            pygame.image.save(self.surface, os.fspath(part))

    def fill(self, colour: Colour) -> None:
        """Fill the whole surface."""
        self.surface.fill(colour)

    def box(self, left: float, top: float, width: float, height: float, colour: Colour, line: int = 0) -> None:
        """Draw a rectangle, filled if `line` is 0."""
        s = self.scale
        place = (round(left * s), round(top * s), round(width * s), round(height * s))
        pygame.draw.rect(self.surface, colour, place, line * s)

    def segment(self, begin: tuple[float, float], end: tuple[float, float], colour: Colour, width: int = 1) -> None:
        """Draw a straight line."""
        s = self.scale
        (x0, y0), (x1, y1) = begin, end
        ends = (round(x0 * s), round(y0 * s)), (round(x1 * s), round(y1 * s))
        pygame.draw.line(self.surface, colour, *ends, width * s)

    def dashes(self, begin: tuple[float, float], right: float, colour: Colour, width: int = 1) -> None:
        """Draw a dashed horizontal line."""
        x, y = begin
        while x < right:
            self.segment((x, y), (min(x + 6, right), y), colour, width)
            x += 10

    def path(self, x: np.ndarray, y: np.ndarray, colour: Colour, width: int = 1, steps: bool = False) -> None:
        """Draw a line through points; with `steps` each value holds until the next one."""
        if len(x) < 2:
            return
        if steps:
            x, y = np.repeat(x, 2)[1:], np.repeat(y, 2)[:-1]
        points = np.stack([x, y], axis=1) * self.scale
        pygame.draw.lines(self.surface, colour, False, points.round().tolist(), width * self.scale)
        if not steps and width == 2:
            # One by one: what pygame-ce 2.5.8's aalines draws at a corner is not always the same.
            for begin, end in zip(points[:-1].tolist(), points[1:].tolist(), strict=True):
                pygame.draw.aaline(self.surface, colour, begin, end)

    def triangles(self, x: np.ndarray, y: np.ndarray, colour: Colour, up: bool, size: float = 5.0) -> None:
        """Draw a mark at each point, its tip upwards or downwards; `y` is its tip."""
        s, way = self.scale, 1 if up else -1
        for a, b in zip((x * s).tolist(), (y * s).tolist(), strict=True):
            foot = b + way * 1.7 * size * s
            corners = ((a, b), (a - size * s, foot), (a + size * s, foot))
            pygame.draw.polygon(self.surface, colour, corners)
            pygame.draw.polygon(self.surface, WHITE, corners, s)

    def text(
        self,
        text: str,
        x: float,
        y: float,
        size: int = 15,
        colour: Colour = INK,
        align: float = 0.0,
        middle: bool = False,
    ) -> float:
        """Write a line of text, and return where it ends.

        `align` 0 starts at `x`, 1 ends there, 0.5 is centred; `y` is the top, or with `middle` the middle.
        """
        key = (text, size, colour)
        drawn = self._texts.get(key)
        if drawn is None:
            if len(self._texts) >= _TEXTS:
                self._texts.clear()
            if size not in self._fonts:
                self._fonts[size] = pygame.font.Font(None, size * self.scale)
            drawn = self._texts[key] = self._fonts[size].render(text, True, colour)
        width, height = drawn.get_size()
        left = x * self.scale - align * width
        top = y * self.scale - (height / 2 if middle else 0)
        self.surface.blit(drawn, (round(left), round(top)))
        return (left + width) / self.scale


def nice_ticks(low: float, high: float, count: int) -> Sequence[float]:
    """Return about `count` round numbers from `low` to `high`, at least one apart."""
    rough = max((high - low) / max(count, 1), 1e-9)
    power = 10.0 ** np.floor(np.log10(rough))
    step = max(next(step for step in (power, 2 * power, 5 * power, 10 * power) if step >= rough - 1e-12), 1.0)
    return (np.arange(np.ceil(low / step), np.floor(high / step) + 1) * step).tolist()
