"""One call at a time, and each as a whole: what keeps a simulator's state right under threads, forks and Ctrl-C."""

from __future__ import annotations

import functools
import os
import signal
import threading
import weakref
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import torch


class CallLock:
    """Lets one thread at a time into the calls of one object, and that thread as deep as it likes.

    The engines give up Python's own lock while they work, and all calls share one struct and one set of tensors.

    Args:
        on_entry: Called by each thread as it enters from outside, before anything else.
    """

    def __init__(self, on_entry: Callable[[], None] | None = None) -> None:
        """See the class."""
        self.lock = threading.RLock()
        self._on_entry = on_entry
        self._depth = 0
        self.torn = False  # by a fork
        _locks.add(self)

    def __enter__(self) -> None:
        """Wait for the other threads' calls."""
        self.lock.acquire()
        try:
            if self.torn:
                raise RuntimeError(
                    "this process was forked while another thread was in a call of this object, which is half done "
                    "here; make a new one, or fork between calls"
                )
            if self._on_entry is not None and not self._depth:
                self._on_entry()
        except BaseException:
            self.lock.release()
            raise
        self._depth += 1

    def __exit__(self, *error: object) -> None:
        """Let the next thread in."""
        self._depth -= 1
        self.lock.release()

    def _renew_after_fork(self) -> None:
        """In a forked child: a call that another thread was in will never end."""
        if self.lock.acquire(blocking=False):
            self.lock.release()
        else:
            self.lock, self.torn, self._depth = threading.RLock(), True, 0


_locks: weakref.WeakSet[CallLock] = weakref.WeakSet()


def _renew_locks() -> None:
    for lock in list(_locks):
        lock._renew_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)


class _HasCalls(Protocol):
    _calls: CallLock


_Owner = TypeVar("_Owner", bound=_HasCalls)
_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


def one_at_a_time(
    method: Callable[Concatenate[_Owner, _Given], _Result],
) -> Callable[Concatenate[_Owner, _Given], _Result]:
    """Make a method hold its object's `_calls` lock: further threads wait until it has returned."""

    @functools.wraps(method)
    def call(self: _Owner, *args: _Given.args, **kwargs: _Given.kwargs) -> _Result:
        if torch.compiler.is_compiling():  # what is traced runs later, in a program without Python
            return method(self, *args, **kwargs)
        with self._calls:
            return method(self, *args, **kwargs)

    return call


class Uninterrupted:
    """Delays signals such as Ctrl-C while a block changes several things that belong together.

    Python runs handlers of signals between any two operations of the main thread; those that came are run at the end,
    each once, as of signals that wait for a process.
    """

    def __enter__(self) -> None:
        """Note signals from here on."""
        self._handlers: dict[int, Any] = {}
        self._came: dict[int, Any] = {}  # the frame of each signal that came
        if threading.current_thread() is not threading.main_thread():
            return  # handlers run in the main thread alone
        for number in _signals():
            handler = signal.getsignal(number)
            if callable(handler):
                self._handlers[number] = handler
                signal.signal(number, self._came.setdefault)

    def __exit__(self, *error: object) -> None:
        """Put the handlers back, and run those whose signal came, in their order."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handle(list(self._came.items()))

    def _handle(self, came: list[tuple[int, Any]]) -> None:
        """Run the handlers of signals, though one raises: what the next one raises is then raised, in its context."""
        if not came:
            return
        number, frame = came.pop(0)
        try:
            self._handlers[number](number, frame)
        finally:
            self._handle(came)


@functools.cache
def _signals() -> tuple[int, ...]:
    """Return the signals whose handlers people set to stop something."""
    names = ("SIGINT", "SIGTERM", "SIGALRM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGVTALRM", "SIGPROF")
    return tuple(getattr(signal, name) for name in names if hasattr(signal, name))
