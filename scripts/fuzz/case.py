"""What a case may end with, beside passing."""

from __future__ import annotations


class Failure(AssertionError):
    """A case that shows something wrong; `key` says which failures are the same one."""

    def __init__(self, text: str, key: tuple[str, ...] = ()) -> None:
        """Keep the key."""
        super().__init__(text)
        self.key = key or (text,)


class Slow(BaseException):
    """A case that takes too long; raised by a timer, past whoever catches exceptions."""
