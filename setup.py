"""List the packages of a wheel: those below kineticsim_env, and cuda/, which is installed as kineticsim_env._cuda.

Where KINETICSIM_PREBUILT names a folder of `python -m scripts.prebuilt`, relative to this file, the wheel has its
libraries as kineticsim_env._prebuilt, and is for their machine alone. All else is in pyproject.toml.

`kineticsim_env/runtime/sources.py` looks for the sources in `_cuda` first and in `../cuda` then, so that an installed
wheel and a checkout both find them.
"""

import os

from setuptools import find_packages, setup
from setuptools.command.bdist_wheel import bdist_wheel

PREBUILT = os.environ.get("KINETICSIM_PREBUILT", "")
LIBRARIES = os.listdir(PREBUILT) if PREBUILT else []  # none for macOS
FOLDERS = {"kineticsim_env._cuda": "cuda", **({"kineticsim_env._prebuilt": PREBUILT} if LIBRARIES else {})}


class Wheel(bdist_wheel):
    """A wheel for any Python, and with libraries for any Linux of 2012 or later on one machine."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return what installers choose by."""
        if not LIBRARIES:
            return super().get_tag()
        machine = "aarch64" if any("aarch64" in name for name in LIBRARIES) else "x86_64"
        return "py3", "none", f"manylinux_2_17_{machine}"


setup(
    packages=[*find_packages(include=["kineticsim_env", "kineticsim_env.*"]), *FOLDERS],
    package_dir=FOLDERS,
    cmdclass={"bdist_wheel": Wheel},
)
