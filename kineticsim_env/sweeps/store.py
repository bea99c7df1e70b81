"""A sweep on disk: a folder with its plan (JSON) and a table of each finished batch (Parquet).

A table is written under another name and renamed when it is whole, so that at any moment a batch is there or not: who
goes on after a crash neither loses a point nor has one twice.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kineticsim_env.agents.classes import check_agents_from
from kineticsim_env.config import MarketConfig
from kineticsim_env.runtime.files import check_folder, replacing
from kineticsim_env.runtime.values import check_count, is_one_of, show
from kineticsim_env.sweeps.plans import Plan, differences, digest, make_plan

PLAN = "plan.json"
_BATCH = re.compile(r"batch-(\d{8})\.parquet")
_DIGEST = b"kineticsim_sweep"  # under which a table has the digest of its plan


class Sweep:
    """A sweep on disk, finished or not.

    Attributes:
        folder: Where it is.
        about: The whole plan as plain numbers and texts, as `plan.json` has it.
        points: How many it has.
        batch: How many of them are stored together.
    """

    def __init__(self, folder: str | Path) -> None:
        """Open a folder. Raises ValueError if there is no sweep in it."""
        self.folder = check_place(folder)
        self._place = self.folder.absolute()  # wherever the program goes on
        path = self._place / PLAN
        try:
            stored = json.loads(path.read_text())
            self.about, self.digest, self.batch = stored["sweep"], stored["digest"], stored["batch"]
            self.points: int = self.about["points"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(f"folder: got {show(str(folder))}, allowed is one in which a sweep was begun") from error

    @property
    def batches(self) -> int:
        """How many batches there are."""
        return -(-self.points // self.batch)

    def bounds(self, number: int) -> tuple[int, int]:
        """Return the first point of a batch, and the first one behind it."""
        return number * self.batch, min((number + 1) * self.batch, self.points)

    @property
    def files(self) -> list[Path]:
        """The tables of finished batches, in the order of points; any reader of Parquet reads them."""
        return [self._path(number) for number in sorted(self._present())]

    @property
    def finished(self) -> int:
        """How many points are finished."""
        return sum(end - begin for begin, end in map(self.bounds, self._present()))

    @property
    def is_complete(self) -> bool:
        """Whether all points are finished."""
        return len(self._present()) == self.batches

    def to_arrow(self, columns: Iterable[str] | None = None) -> Any:
        """Return what is finished as a table of pyarrow, in the order of points.

        Args:
            columns: Names of those to read; None is all.
        """
        arrow, parquet = _pyarrow()
        files = self.files
        if not files:
            raise ValueError(f"{self.folder}: got no finished point yet, allowed is a sweep that has run for a while")
        wanted = None if columns is None else _checked_columns(columns, parquet.read_schema(files[0]).names)
        tables = [self._read(parquet, path, wanted) for path in files]
        return arrow.concat_tables(tables).replace_schema_metadata(None)

    def _read(self, parquet: Any, path: Path, columns: list[str] | None) -> Any:
        """Return the table of a batch; refuse one that was put there by something else."""
        table = parquet.read_table(path, columns=columns)
        if (table.schema.metadata or {}).get(_DIGEST) != self.digest.encode():
            raise ValueError(
                f"{path}: got a table of another sweep, allowed is one of this; sweep again to have it anew"
            )
        return table

    def to_pandas(self, columns: Iterable[str] | None = None) -> Any:
        """Return what is finished as a DataFrame: a row per point, or per market, in the order of points.

        Its columns: `point`; with `each_market`, `replicate`; the names of the space; every statistic, and with several
        replicates its standard error, `..._error`, and half the width of its 95% interval by Student's t,
        `..._half_width`; `stopped`, whether a market stopped (see `MarketError`), where
        statistics are NaN.

        Args:
            columns: Names of those to read; None is all.
        """
        try:
            import pandas  # noqa: F401
        except ModuleNotFoundError as error:
            raise _missing("pandas") from error
        return self.to_arrow(columns).to_pandas()

    def config(self, point: int, *, agents_from: Iterable[str] | None = None) -> MarketConfig:
        """Return the market of a point. Classes of agents are imported, as they are now.

        Args:
            point: Its number.
            agents_from: Names of the modules from which classes may come, as in `MarketConfig.from_dict`: for a folder
                of a stranger's.
        """
        point = check_count("point", point, 0, self.points - 1)
        for agents in (self.about["market"].get("agents"), *self.about["space"].get("agents", {}).get("values", ())):
            check_agents_from(agents, agents_from)
        return plan_of(self.about).config(point)

    def __repr__(self) -> str:
        """Name the folder, and how far it is."""
        return f"Sweep({str(self.folder)!r}, {self.finished:,} of {self.points:,} points)"

    # Writing ----------------------------------------------------------------------------------------------------------

    def pending(self, part: tuple[int, int]) -> Iterator[int]:
        """Yield the batches of a part (the i-th of n) that are not finished; tables of other plans do not count."""
        _, parquet = _pyarrow()
        present, (i, n) = self._present(), part
        for number in range(i - 1, self.batches, n):
            if number not in present or not self._is_whole(parquet, number):
                yield number

    def write(self, number: int, columns: Mapping[str, Any]) -> None:
        """Store a batch."""
        arrow, parquet = _pyarrow()
        table = arrow.table(dict(columns)).replace_schema_metadata({_DIGEST: self.digest.encode()})
        path = self._path(number)
        try:
            with replacing(path) as part, part.open("wb") as file:
                parquet.write_table(table, file, compression="zstd", use_dictionary=_repeated(table))
                file.flush()
                os.fsync(file.fileno())  # or a name could outlive a power failure that its contents do not
        except OSError as error:
            kept = f"{error.strerror or error}; what is finished is kept, and the same sweep goes on from there"
            raise OSError(error.errno, kept, str(path)) from error

    def _path(self, number: int) -> Path:
        return self._place / f"batch-{number:08d}.parquet"

    def _present(self) -> set[int]:
        found = (_BATCH.fullmatch(entry.name) for entry in os.scandir(self._place))
        return {int(match[1]) for match in found if match}

    def _is_whole(self, parquet: Any, number: int) -> bool:
        begin, end = self.bounds(number)
        rows = (end - begin) * (self.about["replicates"] if self.about["each_market"] else 1)
        try:
            about = parquet.read_metadata(self._path(number))
        except (OSError, ValueError):  # pyarrow's errors are among these
            return False
        return about.num_rows == rows and (about.metadata or {}).get(_DIGEST) == self.digest.encode()


def check_place(folder: Any) -> Path:
    """Return the name of a folder as a path."""
    if not isinstance(folder, (str, Path)) or not str(folder) or "\0" in str(folder):
        kind = ValueError if isinstance(folder, str) else TypeError
        raise kind(f"folder: got {show(folder)}, allowed is the name of a folder")
    try:
        return Path(folder).expanduser()
    except RuntimeError as error:
        raise ValueError(f"folder: got {show(str(folder))}, but there is no such home, allowed is a folder") from error


def open_sweep(folder: str | Path) -> Sweep:
    """Open the folder of a sweep, finished or not; nothing is run.

    Raises:
        ValueError: If there is no sweep in it.
    """
    return Sweep(folder)


def begin(folder: str | Path | None, plan: Plan, batch: int) -> Sweep:
    """Make the folder of a sweep, or open the one that is there already.

    Args:
        folder: Where; None is a folder that goes with the object.
        plan: The sweep.
        batch: Points that are stored together, if it is a new one.

    Raises:
        ValueError: If the folder has another sweep: with what differs.
    """
    _pyarrow()
    place = Path(tempfile.mkdtemp(prefix="kineticsim-sweep-")) if folder is None else check_place(folder)
    check_folder("folder", place)
    about = json.loads(json.dumps(plan.about()))  # as it comes back from the file
    if not (place / PLAN).exists():
        _write_once(place / PLAN, {"sweep": about, "digest": digest(about), "batch": batch})
    try:
        found = Sweep(place)
    except ValueError as error:
        raise ValueError(
            f"folder: got {show(str(folder))}, whose {PLAN} is not that of a sweep, allowed is another folder"
        ) from error
    if found.digest != digest(about):
        said = "; ".join(differences(found.about, about)) or f"its digest is {found.digest}"
        raise ValueError(
            f"folder: got {show(str(folder))}, where another sweep is: {said}; allowed is the same sweep, or another "
            "folder"
        )
    if folder is None:
        weakref.finalize(found, shutil.rmtree, place, ignore_errors=True)
    return found


def plan_of(about: Mapping[str, Any]) -> Plan:
    """Return the plan that a store keeps; statistics of one's own are left out."""
    given = {name: value for name, value in about.items() if name not in ("version", "classes", "statistics")}
    if given["design"] in ("grid", "list"):
        given["points"] = None
    return make_plan(**given, statistics=["volatility"])


def _write_once(path: Path, stored: Mapping[str, Any]) -> None:
    """Write a file that is not there yet; of several programs at once the first one does."""
    part = path.with_name(f".plan-{secrets.token_hex(4)}.json")
    try:
        with part.open("w") as file:
            json.dump(stored, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            try:
                os.link(part, path)  # which, other than a renaming, fails where there is one
            except (PermissionError, NotImplementedError, OSError) as error:
                if isinstance(error, FileExistsError):
                    raise
                part.replace(path)  # a file system without links
    finally:
        part.unlink(missing_ok=True)


def _checked_columns(columns: Any, known: list[str]) -> list[str]:
    allowed = f"allowed is a sequence of {', '.join(known)}"
    try:
        wanted = None if isinstance(columns, str) else list(columns)
    except Exception as error:  # whatever strange objects raise
        raise TypeError(f"columns: got {show(columns)}, {allowed}") from error
    if wanted is None:
        raise TypeError(f"columns: got {show(columns)}, {allowed}")
    for name in wanted:
        if not is_one_of(name, known):
            raise ValueError(f"columns: got {show(name)}, {allowed}")
    return wanted


def _repeated(table: Any) -> list[str]:
    """Return the columns of which a value comes often: texts."""
    return [field.name for field in table.schema if str(field.type) in ("string", "large_string")]


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise _missing("pyarrow") from error
    return pyarrow, pyarrow.parquet


def _missing(name: str) -> ModuleNotFoundError:
    return ModuleNotFoundError(f"sweep: {name} is missing: pip install 'kineticsim-env[data]'", name=name)
