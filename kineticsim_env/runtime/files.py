"""The files that commands and examples write for their users: refused before the work, and written whole or not at all.

`cache.write` is for compiled code, which only its owner may touch; these files get the rights that any new file gets.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import tempfile
from collections.abc import Generator
from pathlib import Path


def check_file(option: str, path: str | Path) -> None:
    """Refuse a file that cannot be written, before work is done for it.

    Raises:
        ValueError: Naming the option, the path and what is wrong with it.
    """
    got = f"{option}: expected a file, got {str(path)!r}"
    target = Path(path).absolute()
    try:
        if not target.parent.is_dir():
            raise ValueError(f"{got}, and there is no folder {str(Path(path).parent)!r}")
        with contextlib.suppress(FileNotFoundError):
            mode = target.stat().st_mode  # `exists` and the like hide a name that is too long, from Python 3.14 on
            if stat.S_ISDIR(mode):
                raise ValueError(f"{got}, which is a folder")
            if not stat.S_ISREG(mode):
                raise ValueError(f"{got}, which is a device or a pipe")
        with tempfile.TemporaryFile(dir=target.resolve().parent):
            pass
    except OSError as error:
        raise ValueError(f"{got}, which cannot be written ({error.strerror})") from error


def check_folder(option: str, path: str | Path) -> None:
    """Refuse a folder that is not there and cannot be made, or cannot be written to; makes it."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise ValueError(
            f"{option}: expected a folder, got {str(path)!r}, which cannot be written to ({error.strerror})"
        ) from error


@contextlib.contextmanager
def replacing(path: str | Path) -> Generator[Path]:
    """Give a temporary name beside `path`; what is written there becomes `path` if all goes well, and is gone if not.

    So whoever stops a program, with Ctrl-C too, leaves the file as it was before.
    """
    target = Path(path).resolve()  # a link goes on pointing to its file
    if target.exists() and not target.is_file():  # a device or a pipe, which is no file to put another in place of
        yield target
        return
    part = target.with_name(f".{target.stem[:64]}-{secrets.token_hex(4)}{target.suffix[:16]}")  # the ending says how
    os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))  # less the umask
    try:
        if target.exists():
            part.chmod(stat.S_IMODE(target.stat().st_mode))
        yield part
        part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
