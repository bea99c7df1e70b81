"""Pictures of one market of many: the render modes `human`, `rgb_array` and `ansi` of every environment.

`recorder.py` reads the market, `picture.py` and `text.py` draw it, `viewer.py` is what an environment holds. Nothing is
read or imported where no render mode is set. pygame is what Gymnasium's own environments draw with; it takes a few
milliseconds per picture, needs no display for `rgb_array`, and brings its font.
"""

from kineticsim_env.render.recorder import MarketRecorder, Moment
from kineticsim_env.render.viewer import (
    RENDER_FPS,
    RENDER_MODES,
    Frames,
    Viewer,
    check_render_mode,
    make_viewer,
    modes_here,
    render_with,
)

__all__ = [
    "RENDER_FPS",
    "RENDER_MODES",
    "Frames",
    "MarketRecorder",
    "Moment",
    "Viewer",
    "check_render_mode",
    "make_viewer",
    "modes_here",
    "render_with",
]
