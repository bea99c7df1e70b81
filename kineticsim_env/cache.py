"""The cache of compiled code on disk: where it is, how a file gets into it, and the lock around each entry."""

import contextlib
import functools
import os
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path

from filelock import FileLock, Timeout

from .errors import EngineUnavailable

LOCK_SECONDS = 600  # a build takes seconds; who holds a lock for longer is stopped or broken


def notice(text: str) -> None:
    """Tell the user why nothing happens for some seconds."""
    print(f"kineticsim_env: {text}", file=sys.stderr, flush=True)


def cache_dir() -> Path:
    """Return the folder of compiled code: KINETICSIM_CACHE, else kineticsim_env in the user's cache folder."""
    wanted = os.path.expanduser(os.environ.get("KINETICSIM_CACHE", ""))
    if not wanted:
        # expanduser leaves "~" where there is no home; such a folder is then not used, as it is not absolute
        base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        wanted = os.path.join(base, "kineticsim_env") if os.path.isabs(base) else ""
    return _writable_dir(wanted)


@functools.cache
def _writable_dir(wanted: str) -> Path:
    if wanted and (folder := Path(wanted).absolute()) and _can_write(folder):
        return folder
    # Others may write to the temporary folder, and what lies in the cache is run: it has to be ours.
    folder = Path(tempfile.gettempdir()) / f"kineticsim_env-{os.getuid()}"
    if not (_can_write(folder) and folder.stat().st_uid == os.getuid() and not folder.is_symlink()):
        folder = Path(tempfile.mkdtemp(prefix="kineticsim_env-"))
    notice(f"cannot write to the cache {wanted or '(no home)'}, using {folder}; KINETICSIM_CACHE names another folder")
    return folder


def _can_write(folder: Path) -> bool:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def write(path: Path, content: bytes) -> None:
    """Write a file so that no reader ever sees a part of it."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


@contextlib.contextmanager
def locked(target: Path) -> Generator[None]:
    """Hold the lock of one cache entry. The kernel gives it back when its holder dies, so it cannot go stale."""
    lock = FileLock(f"{target}.lock")
    try:
        try:
            lock.acquire(timeout=0.2)
        except Timeout:
            notice(f"waiting for another process that compiles {target.name}")
            lock.acquire(timeout=LOCK_SECONDS)
    except Timeout:
        raise EngineUnavailable(
            f"another process holds {target}.lock for more than {LOCK_SECONDS} s; end it, or set KINETICSIM_CACHE"
        ) from None
    except OSError as error:
        raise EngineUnavailable(
            f"cannot lock {target}.lock ({error}); set KINETICSIM_CACHE to a folder on a local disk"
        ) from error
    try:
        yield
    finally:
        lock.release()
