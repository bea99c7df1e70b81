"""Print the core of the package and what its checks need, each at its lower bound. `make lowest` installs them."""

import sys

from scripts.setup_env import OLDEST, matched, requirements


def lower_bounds(parts: list[str]) -> list[str]:
    """Return package==version for the core and for some groups and extras, in the oldest version that is promised."""
    wanted = requirements(parts)
    return [f"{name}=={matched(r'>=([0-9.]+)(?:,.*)?', versions)[1]}" for name, versions in wanted.items()]


if __name__ == "__main__":
    if sys.version_info[:2] != OLDEST:  # the oldest versions know no newer Python
        have, needed = ("{}.{}".format(*version[:2]) for version in (sys.version_info, OLDEST))
        sys.exit(f"lower bounds: this is Python {have}; name one that is {needed}: make PYTHON=python{needed} lowest")
    print(*lower_bounds(["checks"]), sep="\n")
