"""Looks messages up in plain text, for tests that say of many wrong calls what is refused, in tables."""

from __future__ import annotations


def mentions(text: str, said: str, *, begins: bool = False) -> bool:
    """Say whether a text has a message: the parts of `said` between its ".*", literally and in this order.

    So a table of wrong calls may name field, value and what is expected, and leave out a part in between, such as a
    list of choices. Other signs have no meaning of their own, unlike in regular expressions.

    Args:
        text: What was printed or raised.
        said: The message, with ".*" for each part that is left out.
        begins: Whether the text has to begin with it.
    """
    place = 0
    for number, part in enumerate(said.split(".*")):
        found = text.find(part, place)
        if found < 0 or (begins and number == 0 and found > 0):
            return False
        place = found + len(part)
    return True
