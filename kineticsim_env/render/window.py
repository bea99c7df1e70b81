"""The window of the render mode `human`."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Generator
from typing import Any

from kineticsim_env.render.canvas import pygame

_UNSEEN = ("dummy", "offscreen")  # drivers that show nothing; SDL falls back to them without a display
_CHOSEN = ("SDL_VIDEODRIVER", "SDL_VIDEO_DRIVER")  # variables by which users choose such a driver


def open_display(size: tuple[int, int], title: str, instead: str = "use render_mode='rgb_array'") -> Any:
    """Open a window of a size that the user may scale, and return its surface.

    Args:
        size: Its width and height.
        title: Of the window.
        instead: What to do on a machine without a display.

    Raises:
        RuntimeError: If this machine has no display; says what to do.
    """
    try:
        with _quiet_wayland():
            pygame.display.init()
        driver = pygame.display.get_driver()
        if driver in _UNSEEN and not any(os.environ.get(name) for name in _CHOSEN):
            pygame.display.quit()
            raise pygame.error(f"there is no display, and SDL fell back to its driver {driver!r}, which shows nothing")
        try:
            with warnings.catch_warnings():  # that there is no GPU to scale with
                warnings.simplefilter("ignore")
                screen = pygame.display.set_mode(size, pygame.SCALED | pygame.RESIZABLE)
        except pygame.error:  # nothing to scale with at all, as without a screen
            screen = pygame.display.set_mode(size)
    except pygame.error as error:
        raise RuntimeError(
            f"no window can be opened here ({error}); {instead}, or set SDL_VIDEODRIVER=dummy to have one nobody sees"
        ) from error
    pygame.display.set_caption(title)
    return screen


@contextlib.contextmanager
def _quiet_wayland() -> Generator[None]:
    """Keep libwayland, which SDL tries, from writing errors of its own where there is no session."""
    name = "XDG_RUNTIME_DIR"
    if name in os.environ:
        yield
        return
    os.environ[name] = "/nonexistent"
    try:
        yield
    finally:
        del os.environ[name]


class Window:
    """A window that shows surfaces; once it was closed, by its user or by the program, it stays closed.

    Attributes:
        open: False once it was closed.
    """

    def __init__(self, title: str) -> None:
        """Open nothing yet."""
        self.open = True
        self._title = title
        self._screen: Any = None
        self._clock: Any = None

    def show(self, surface: Any, fps: float) -> None:
        """Show a surface, and wait so that frames come at most at this rate; does nothing once it was closed."""
        if not self.open:
            return
        if self._screen is None or not pygame.display.get_init():  # another window may have closed pygame's one display
            self._screen, self._clock = open_display(surface.get_size(), self._title), pygame.time.Clock()
        if any(event.type == pygame.QUIT for event in pygame.event.get()):
            self.close()
            return
        self._screen.blit(surface, (0, 0))
        pygame.display.flip()
        self._clock.tick(fps)

    def close(self) -> None:
        """Close the window for good."""
        self.open = False
        if self._screen is not None:
            self._screen = None
            pygame.display.quit()
