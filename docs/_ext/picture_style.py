"""The look of the tutorials' pictures, on the site as in notebooks; sphinx-gallery applies it before each."""

from pathlib import Path

import matplotlib

STYLE = Path(__file__).parents[2] / "notebooks" / "matplotlibrc"


def apply(gallery: dict, file: str) -> None:
    """Set matplotlib's defaults."""
    matplotlib.rc_file(STYLE)
