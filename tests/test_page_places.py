"""Places of a page that commands fill, between a comment and `<!-- end -->`."""

import pytest

from scripts.pages.markdown import replaced

PAGE = "a\n<!-- one: written by x -->\n<!-- end -->\nb\n<!-- two: written by y -->\nold\n\n| t |\n<!-- end -->\nc\n"


def test_a_place_is_filled_whatever_it_held_and_nothing_else():
    once = replaced(replaced(PAGE, "one", "new"), "two", "newer\n\nstill")
    assert once == PAGE.replace("x -->\n", "x -->\nnew\n").replace("old\n\n| t |", "newer\n\nstill")
    assert replaced(once, "one", "new") == once


@pytest.mark.parametrize("page", [PAGE.replace("one", "three"), PAGE + PAGE])
def test_a_place_that_is_not_there_once_is_refused(page):
    with pytest.raises(ValueError, match="one: expected one place"):
        replaced(page, "one", "new")
