"""What `make test` leaves to `make test-all`: random examples, tests marked `slow`, and most cases of `covering` ones.

Of a test marked `covering`, `make test` runs as many of the parametrised cases as have each value of each parameter
once, `make test-all` as many as have each pair of values of two parameters. KINETICSIM_THOROUGH, which the Makefile
sets, is 1 for `test-all`, which draws a sixth of the random examples in place of a tenth, and 2 for `test-gpu`, which
draws all.
"""

import itertools
import os

import pytest

LEVEL = int(os.environ.get("KINETICSIM_THOROUGH") or 0)
THOROUGH = LEVEL > 0
slow = pytest.mark.slow
covering = pytest.mark.covering


def examples(number: int) -> int:
    """Return how many examples Hypothesis draws: all of them, a sixth or a tenth."""
    return -(-number // (10, 6, 1)[LEVEL])


def leave_out_what_covers_nothing_new(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark `covering` cases as slow whose values others have; deselect those whose pairs of values others have."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        left_out = any(item.get_closest_marker(name) for name in ("slow", "gpu", "skip"))
        if item.get_closest_marker("covering") and not left_out:
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    superfluous = set()
    for of_test in cases.values():
        few = chosen(of_test, 1, [])
        many = chosen(of_test, 2, few)
        for item in many[len(few) :]:
            item.add_marker(slow)
        superfluous |= {*of_test} - {*many}
    if superfluous:
        config.hook.pytest_deselected(items=[item for item in items if item in superfluous])
        items[:] = [item for item in items if item not in superfluous]


def chosen(cases: list[pytest.Item], together: int, first: list[pytest.Item]) -> list[pytest.Item]:
    """Return `first` and, chosen greedily, cases until each that values of so many parameters make is in one."""
    values = {}
    for case in cases:
        given = sorted((name, id(value)) for name, value in case.callspec.params.items())
        values[case] = set(itertools.combinations(given, min(together, len(given))))
    result, missing = list(first), set().union(*values.values()).difference(*(values[case] for case in first))
    while missing:
        result.append(max(cases, key=lambda case: len(values[case] & missing)))  # the first of the best
        missing -= values[result[-1]]
    return result
