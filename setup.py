"""List the packages of a wheel: those below kineticsim_env, and cuda/, which is installed as kineticsim_env._cuda.

All else is in pyproject.toml. `kineticsim_env/runtime/build.py` looks for the sources in `_cuda` first and in `../cuda`
then, so that an installed wheel and a checkout both find them.
"""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["kineticsim_env", "kineticsim_env.*"]), "kineticsim_env._cuda"],
    package_dir={"kineticsim_env._cuda": "cuda"},
)
