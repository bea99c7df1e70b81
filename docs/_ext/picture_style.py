"""The look of the tutorials' pictures, which is that of those in the README; sphinx-gallery applies it before each."""

import matplotlib


def apply(gallery: dict, file: str) -> None:
    """Set matplotlib's defaults."""
    matplotlib.rcParams.update(
        {
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.titlesize": 11,
            "figure.constrained_layout.use": True,
            "figure.dpi": 130,
            "legend.frameon": False,
        }
    )
