"""The cache of compiled code on disk: where it is, which entries are trusted, how they are written, and their locks.

An entry is a file and, beside it, its digest. `obtain` is how `build`, `kernels` and `agent_library` get at one.
"""

import contextlib
import errno
import functools
import hashlib
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TypeVar

from filelock import FileLock, Timeout

from kineticsim_env.errors import EngineUnavailable

LOCK_SECONDS = 600  # a build takes seconds; a process that holds a lock for longer hangs
_REMOVALS = 10  # of a folder; a compiler writes a few files in it
FULL = (errno.ENOSPC, errno.EDQUOT)  # errors of a disk without room
Loaded = TypeVar("Loaded")


class Flawed(Exception):
    """An entry must not be used; the message says why."""


class Blocked(EngineUnavailable):
    """An entry can be neither used nor replaced in this folder; another folder has to be taken."""


def no_room(what: str, *folders: str | Path) -> Blocked:
    """Return the error for a disk without room: what was not done, on which folders' disk, and what to do."""
    disks = " or ".join(dict.fromkeys(map(str, folders)))
    return Blocked(
        f"{what}: no space is left on the disk of {disks}; free some, or let KINETICSIM_CACHE and TMPDIR name folders "
        "on another disk"
    )


def notice(text: str) -> None:
    """Tell the user why nothing happens for some seconds."""
    print(f"kineticsim_env: {text}", file=sys.stderr, flush=True)


def wanted_dir() -> Path | None:
    """Return KINETICSIM_CACHE, else kineticsim_env in the user's cache folder; None if there is no home.

    Links are followed once: one could be pointed elsewhere between the check of an entry and its use.
    """
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # "~" stays where there is no home
    wanted = os.environ.get("KINETICSIM_CACHE") or (os.path.isabs(base) and os.path.join(base, "kineticsim_env"))
    return Path(os.path.realpath(os.path.expanduser(wanted))) if wanted else None


def cache_dir() -> Path:
    """Return the folder that new code is written to: the one that is wanted, else one in the temporary folder."""
    return _writable_dir(wanted_dir())


@functools.cache
def _writable_dir(wanted: Path | None) -> Path:
    reason = _unfit(wanted) if wanted else "there is no home folder"
    if wanted and reason is None:
        return wanted
    folder = _private_dir(tempfile.gettempdir())
    where = f"the cache {wanted} is not used" if wanted else "no cache"
    notice(f"{where}: {reason}; using {folder} (KINETICSIM_CACHE names another folder)")
    return folder


@functools.cache
def _private_dir(temporary: str) -> Path:
    """Return a folder of this user's own in the temporary folder."""
    folder = Path(os.path.realpath(temporary)) / f"kineticsim_env-{os.getuid()}"
    return folder if _unfit(folder) is None else Path(tempfile.mkdtemp(prefix="kineticsim_env-"))


def _unfit(folder: Path) -> str | None:
    """Return why new code cannot be kept in a folder, or None."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if reason := _distrust(folder.lstat()):
            return reason
        with tempfile.TemporaryFile(dir=folder) as file:  # some file systems give every file to one user, or to all
            return _distrust(os.fstat(file.fileno()))
    except OSError as error:
        return f"it cannot be written ({error.strerror})"


def _distrust(status: os.stat_result) -> str | None:
    """Return why others can change a file or folder, or None if only this user and root can."""
    if stat.S_ISLNK(status.st_mode):
        return "it is a link"
    if status.st_uid not in (os.geteuid(), 0):
        return f"it belongs to user {status.st_uid}"
    return "other users can write to it" if status.st_mode & 0o022 else None


def read_entry(path: Path) -> bytes:
    """Return the content of an entry that is to be trusted. Raises Flawed if it is not, or if there is none.

    What is found here still holds when the entry is then loaded by its path: folder, file and digest are this user's
    or root's, and others can write to none of them, so nobody else can put anything in their place. (Whoever owns the
    folders above is trusted by who said that the cache is there.) The digest shows what was cut short or has rotted,
    and names its entry, so that no file passes for another.
    """
    digest = digest_path(path)
    try:
        for each, said in ((path.parent, "as to its folder, "), (path, ""), (digest, "as to its digest, ")):
            if reason := _distrust(each.lstat()):
                raise Flawed(said + reason)
            if each != path.parent and not each.is_file():  # a pipe would be waited for
                raise Flawed(f"{said}it is no file")
        return read_whole(path)
    except FileNotFoundError as error:
        raise Flawed(f"{error.filename} is missing") from None
    except OSError as error:
        raise Flawed(f"it cannot be read ({error})") from None


def read_whole(path: Path) -> bytes:
    """Return the content of a file. Raises Flawed if it is not what the digest beside it says, OSError without one."""
    content = path.read_bytes()
    if digest_path(path).read_bytes() != digest_of(path.name, content):
        raise Flawed("it is not what was built")
    return content


def digest_path(path: Path) -> Path:
    """Return where the digest of an entry is."""
    return path.with_name(f"{path.name}.sha256")


def digest_of(name: str, content: bytes) -> bytes:
    """Return what the file at `digest_path` says of a content."""
    return f"{hashlib.sha256(content).hexdigest()}  {name}\n".encode()  # `sha256sum --check` reads it, too


def obtain(name: str, load: Callable[[Path, bytes], Loaded], make: Callable[[Path], bytes]) -> Loaded:
    """Return a loaded entry, from the cache if it holds one to be trusted, or made now.

    Args:
        name: The entry's file name.
        load: Loads the entry, given its path and its content; may raise OSError or RuntimeError.
        make: Returns the content. Its argument is a folder to work in, which is removed afterwards.

    Raises:
        EngineUnavailable: If what was made cannot be loaded, or there is nowhere to keep it; and what `make` raises.
    """

    def use(path: Path) -> Loaded:
        content = read_entry(path)
        try:
            return load(path, content)
        except (OSError, RuntimeError) as error:  # made on another system that shares this cache, say
            raise Flawed(f"it cannot be loaded: {error}") from error

    def obtain_in(folder: Path) -> Loaded:
        path = folder / name
        with locked(path):
            try:
                return use(path)  # another process may have made it by now
            except Flawed as flaw:
                if os.path.lexists(path):
                    notice(f"building {path} again: {flaw}")
            _make_entry(path, make)
            try:
                return use(path)
            except Flawed as flaw:
                raise EngineUnavailable(f"{path} was built, but {flaw}") from flaw

    if wanted := wanted_dir():
        try:
            return use(wanted / name)  # without the lock: this folder may be one that cannot be written
        except Flawed as flaw:
            if cache_dir() != wanted and os.path.lexists(wanted / name):
                notice(f"{wanted / name} is not used: {flaw}")
    try:
        return obtain_in(cache_dir())
    except Blocked as error:
        private = _private_dir(tempfile.gettempdir())
        if cache_dir() == private:
            raise
        notice(f"{error}; using {private}")
    return obtain_in(private)


def _make_entry(path: Path, make: Callable[[Path], bytes]) -> None:
    """Make an entry, whose lock the caller holds. Files are renamed when they are whole: nobody reads a part."""
    making = False
    try:
        for old in (digest_path(path), path):
            old.unlink(missing_ok=True)
        for left in path.parent.glob(f"{path.name}.build-*"):
            _remove_left(left)
        with tempfile.TemporaryDirectory(prefix=f"{path.name}.build-", dir=path.parent) as folder:
            making = True
            content = make(Path(folder))
            making = False
            # The digest comes last: without it the entry is not trusted.
            for place, written in ((path, content), (digest_path(path), digest_of(path.name, content))):
                handle, temporary = tempfile.mkstemp(dir=folder)
                with open(handle, "wb") as file:
                    os.fchmod(handle, 0o644)  # mkstemp's are for their owner only; what root builds may serve everybody
                    file.write(written)
                os.replace(temporary, place)
    except OSError as error:
        if error.errno in FULL:  # also while it is made
            raise no_room(f"{path} cannot be written", path.parent) from error
        if making:  # an error of `make`, whatever folder it works in
            raise
        raise Blocked(f"{path} cannot be written ({error.strerror})") from error


def _remove_left(folder: Path) -> None:
    """Remove what a process that died was building in. Its compiler may live on, and write a file as others go."""
    for _ in range(_REMOVALS):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return


@contextlib.contextmanager
def locked(target: Path) -> Generator[None]:
    """Hold the lock of one cache entry. The kernel gives it back when its holder dies, so it cannot go stale.

    A forked child does not hold what its parent holds: filelock 4 closes the descriptors that it inherits.
    """
    lock = FileLock(f"{target}.lock", mode=0o600)
    try:
        try:
            lock.acquire(timeout=0.2)
        except Timeout:
            notice(f"waiting for another process that compiles {target.name}")
            lock.acquire(timeout=LOCK_SECONDS)
    except Timeout:
        raise EngineUnavailable(
            f"another process holds {lock.lock_file} for more than {LOCK_SECONDS} s; end it, or set KINETICSIM_CACHE"
        ) from None
    except OSError as error:
        raise Blocked(f"{lock.lock_file} cannot be locked ({error.strerror})") from error
    try:
        yield
    finally:
        lock.release()
