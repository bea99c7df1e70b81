"""`Viewer`: what environments hold when they have a render mode; and the checks of their rendering arguments."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
import torch

from kineticsim_env.render.recorder import MarketRecorder
from kineticsim_env.render.text import text_picture
from kineticsim_env.runtime.values import check_choice

if TYPE_CHECKING:
    from kineticsim_env.envs.core import EnvCore

RENDER_MODES = ["human", "rgb_array", "ansi"]
_DRAWN = ("human", "rgb_array")  # the modes that need pygame
RENDER_FPS = 10  # decisions per second in a window or a video


def check_render_mode(mode: Any) -> str | None:
    """Return the render mode, if it is known and what it needs is installed.

    Raises:
        ValueError: If the mode is unknown.
        ModuleNotFoundError: If pygame is missing; says how to get it.
    """
    check_choice("render_mode", mode, RENDER_MODES, optional=True)
    if mode in _DRAWN and not _has_pygame():
        raise ModuleNotFoundError(
            f"render_mode={mode!r} needs pygame: pip install 'kineticsim-env[render]'", name="pygame"
        )
    return mode


def modes_here() -> list[str]:
    """Return the render modes for which everything is installed: those that environments declare."""
    return [mode for mode in RENDER_MODES if mode not in _DRAWN or _has_pygame()]


def _has_pygame() -> bool:
    try:
        return importlib.util.find_spec("pygame") is not None
    except ImportError:  # from a finder that keeps it out
        return False


class Frames(tuple):
    """A tuple with one entry per market; every entry is the frame of the one market that is drawn.

    Gymnasium's vector wrappers ask for one frame per market. Nobody can look at thousands of pictures, so only one
    is drawn; `RecordVideo(envs, folder, record_first_only=True)` films it.
    """

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        """Refuse conversion to an array, which would hold the same picture many times."""
        if len(self) == 1:
            return np.asarray(self[0], *args, **kwargs)[None]
        raise ValueError(
            f"render: expected a request for the picture of render_market, frames[0], got one for those of all "
            f"{len(self)} markets; Gymnasium's RecordVideo takes it with record_first_only=True"
        )


class Viewer:
    """Follows one learner of one market, as `MarketRecorder` does, and draws it in one of `RENDER_MODES` when asked."""

    def __init__(self, core: EnvCore, mode: str, market: int = 0, slot: int = 0) -> None:
        self.recorder, self.mode = MarketRecorder(core, market, slot), mode
        self._picture: Any = None
        self._window: Any = None
        self._closed = False

    def update(self) -> None:
        """Look at the market, after every reset and step; a window shows it at once, unless it was closed."""
        device = self.recorder.core.device
        if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            return  # a copy to the host cannot be captured; `render` looks again
        self.recorder.record()
        if self.mode == "human":
            self._show()

    def render(self) -> Any:
        """Return uint8 `[H, W, 3]` or a text; None where a window shows it.

        Raises:
            gymnasium.error.ClosedEnvironmentError: If the environment was closed.
            gymnasium.error.ResetNeeded: If the environment was never reset.
        """
        if self._closed:
            raise gym.error.ClosedEnvironmentError("render: the environment was closed; make a new one")
        if self.recorder.moment is None:
            raise gym.error.ResetNeeded("render: the environment was never reset; call reset() first")
        if self.mode == "human":
            self._show()
            return None
        self.recorder.record()
        if self.mode == "ansi":
            return text_picture(self.recorder)
        return self._drawn().array()

    def close(self) -> None:
        """Close the window for good: nothing is shown from here on."""
        self._closed = True
        if self._window is not None:
            self._window.close()

    def _drawn(self) -> Any:
        from kineticsim_env.render.picture import Picture

        if self._picture is None:
            self._picture = Picture()
        self._picture.draw(self.recorder)
        return self._picture

    def _show(self) -> None:
        from kineticsim_env.render.window import Window

        if self._window is None and not self._closed:
            self._window = Window(f"KineticSim: market {self.recorder.market}")
        if self._window is not None and self._window.open:
            self._window.show(self._drawn().surface, RENDER_FPS)


def make_viewer(core: EnvCore, mode: str | None, market: int = 0, slot: int = 0) -> Viewer | None:
    """Return a viewer for a render mode; without a mode, check market and slot, and return None."""
    if mode is None:
        MarketRecorder(core, market, slot)
        return None
    return Viewer(core, mode, market, slot)


def render_with(viewer: Viewer | None, env: Any, count: int | None = None) -> Any:
    """Implement the `render` of an environment; of a vector environment of `count` markets it is `Frames`."""
    if viewer is None:
        gym.logger.warn(
            f"render: {type(env).__name__} has no render mode; make it with render_mode='rgb_array', for example"
        )
        return None
    frame = viewer.render()
    return frame if count is None or frame is None else Frames((frame,) * count)
