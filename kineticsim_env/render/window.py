"""The window of the render mode `human`."""

from __future__ import annotations

import warnings
from typing import Any

from kineticsim_env.render.canvas import pygame


def open_display(size: tuple[int, int], title: str) -> Any:
    """Open a window of a size that the user may scale, and return its surface.

    Raises:
        RuntimeError: If this machine has no display; says what to do.
    """
    try:
        pygame.display.init()
        try:
            with warnings.catch_warnings():  # that there is no GPU to scale with
                warnings.simplefilter("ignore")
                screen = pygame.display.set_mode(size, pygame.SCALED | pygame.RESIZABLE)
        except pygame.error:  # nothing to scale with at all, as without a screen
            screen = pygame.display.set_mode(size)
    except pygame.error as error:
        raise RuntimeError(
            f"no window can be opened here ({error}); use render_mode='rgb_array', or set SDL_VIDEODRIVER=dummy"
        ) from error
    pygame.display.set_caption(title)
    return screen


class Window:
    """A window that shows surfaces; once its user has closed it, it stays closed.

    Attributes:
        open: False once the user has closed the window.
    """

    def __init__(self, title: str) -> None:
        """Open nothing yet."""
        self.open = True
        self._title = title
        self._screen: Any = None
        self._clock: Any = None

    def show(self, surface: Any, fps: float) -> None:
        """Show a surface, and wait so long that frames come at most at this rate."""
        if self._screen is None:
            self._screen, self._clock = open_display(surface.get_size(), self._title), pygame.time.Clock()
        if any(event.type == pygame.QUIT for event in pygame.event.get()):
            self.close()
            self.open = False
            return
        self._screen.blit(surface, (0, 0))
        pygame.display.flip()
        self._clock.tick(fps)

    def close(self) -> None:
        """Close the window, if it is open."""
        if self._screen is not None:
            self._screen = None
            pygame.display.quit()
