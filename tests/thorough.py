"""What `make test` leaves to `make test-all`: Hypothesis draws fewer examples, and tests marked `slow` are not run.

Of a test marked `covering`, few of the parametrised cases are run: as many as have each value of each parameter once.
KINETICSIM_THOROUGH=1, which the Makefile sets for `test-all` and `test-gpu`, asks for all.
"""

import os

import pytest

THOROUGH = os.environ.get("KINETICSIM_THOROUGH", "") not in ("", "0")
slow = pytest.mark.slow
covering = pytest.mark.covering


def examples(number: int) -> int:
    """Return how many examples Hypothesis draws: all of them, or a tenth."""
    return number if THOROUGH else -(-number // 10)


def mark_what_covers_nothing_new(items: list[pytest.Item]) -> None:
    """Mark cases of tests that are `covering` as slow where others, chosen greedily, have their parameters' values."""
    cases: dict[str, dict[pytest.Item, set]] = {}
    for item in items:
        left_out = any(item.get_closest_marker(name) for name in ("slow", "gpu", "skip"))
        if item.get_closest_marker("covering") and not left_out:
            given = {(name, id(value)) for name, value in item.callspec.params.items()}
            cases.setdefault(item.nodeid.partition("[")[0], {})[item] = given
    for values in cases.values():
        missing = set().union(*values.values())
        while missing:
            best = max(values, key=lambda item: len(values[item] & missing))  # the first of the best
            missing -= values.pop(best)
        for item in values:
            item.add_marker(slow)
