"""What `make test` leaves to `make test-all`: Hypothesis draws fewer examples, and tests marked `slow` are not run.

KINETICSIM_THOROUGH=1, which the Makefile sets for `test-all` and `test-gpu`, asks for all.
"""

import os

import pytest

THOROUGH = os.environ.get("KINETICSIM_THOROUGH", "") not in ("", "0")
slow = pytest.mark.slow


def examples(number: int) -> int:
    """Return how many examples Hypothesis draws: all of them, or a fifth."""
    return number if THOROUGH else number // 5
