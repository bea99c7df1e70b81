"""The window of the render mode `human`."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Generator
from typing import Any

import gymnasium as gym

from kineticsim_env.render.canvas import pygame

_UNSEEN = ("dummy", "offscreen")  # drivers that show nothing; SDL falls back to them without a display
_CHOSEN = ("SDL_VIDEODRIVER", "SDL_VIDEO_DRIVER")  # variables by which users choose such a driver


def open_display(size: tuple[int, int], title: str, instead: str | None = None) -> Any:
    """Open a window of a width and height that the user may scale, and return its surface.

    Where there is no display it raises RuntimeError, which says what to do `instead`; with None it warns, and opens a
    surface that nobody sees. A driver that the user chose and that opens no window is always an error.
    """
    wanted = any(os.environ.get(name) for name in _CHOSEN)
    missing = _start_display(wanted)
    if missing and instead is None and not wanted:
        gym.logger.warn(
            f"render_mode='human': {missing}; it is drawn where nobody sees it. Use render_mode='rgb_array' for "
            "pictures, or set SDL_VIDEODRIVER=dummy to say that this is meant"
        )
        with _variable(_CHOSEN[0], "dummy"):
            missing = _start_display(True)
    try:
        if missing:
            raise pygame.error(missing)
        try:
            with warnings.catch_warnings():  # that there is no GPU to scale with
                warnings.simplefilter("ignore")
                screen = pygame.display.set_mode(size, pygame.SCALED | pygame.RESIZABLE)
        except pygame.error:  # nothing to scale with at all, as without a screen
            screen = pygame.display.set_mode(size)
    except pygame.error as error:
        advice = instead or "use render_mode='rgb_array'"
        raise RuntimeError(
            f"no window can be opened here ({error}); {advice}, or set SDL_VIDEODRIVER=dummy to have one nobody sees"
        ) from error
    pygame.display.set_caption(title)
    return screen


def _start_display(wanted: bool) -> str:
    """Start a driver of pygame's display, if `wanted` one that shows nothing; return why there is none, or ""."""
    # Without a session's folder libwayland, which SDL tries, writes errors of its own.
    folder = "XDG_RUNTIME_DIR"
    try:
        with _variable(folder, os.environ.get(folder, "/nonexistent")):
            pygame.display.init()
    except pygame.error as error:
        return str(error)
    driver = pygame.display.get_driver()
    if driver in _UNSEEN and not wanted:
        pygame.display.quit()
        return f"there is no display, and SDL fell back to its driver {driver!r}, which shows nothing"
    return ""


@contextlib.contextmanager
def _variable(name: str, value: str) -> Generator[None]:
    """Set a variable of the environment for a while."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


class Window:
    """A window, opened when it first shows a surface; once closed, by its user or by the program, it stays closed."""

    def __init__(self, title: str) -> None:
        self.open, self._title = True, title  # open: False once it was closed
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
