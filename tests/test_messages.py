"""Tests of how tests look messages up (messages.py)."""

import pytest
from messages import mentions

TEXT = "error: --seed: expected a whole number from 0 to 9, got '[.]'"


@pytest.mark.parametrize("said", [TEXT, "", "--seed: expected", "seed.*whole.*got '[.]'", ".*got"])
def test_parts_are_there_in_their_order(said):
    assert mentions(TEXT, said)


@pytest.mark.parametrize("said", ["got.*expected", "seed.*seed", "expected [a-z]+", "expected, got", "z.*"])
def test_parts_are_not_there(said):
    """Neither in another order, nor twice where they are once, nor by a pattern."""
    assert not mentions(TEXT, said)


def test_a_beginning():
    assert mentions(TEXT, "error: --seed: .*got '", begins=True)
    assert not mentions(TEXT, "--seed: .*got '", begins=True)
