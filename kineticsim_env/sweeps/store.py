"""A sweep on disk: a folder with its plan (JSON) and a table of each finished batch (`tables.py`).

A table is written under another name and renamed when it is whole, so that at any moment a batch is there or not: who
goes on after a crash neither loses a point nor has one twice, however batches were cut.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kineticsim_env.agents.classes import check_agents_from
from kineticsim_env.config import MarketConfig
from kineticsim_env.runtime.files import check_folder
from kineticsim_env.runtime.values import check_count, is_one_of, show
from kineticsim_env.statistics.plans import column_names
from kineticsim_env.sweeps import tables
from kineticsim_env.sweeps.plans import OWN_COLUMNS, Plan, differences, digest, make_plan

PLAN = "plan.json"


class Sweep:
    """A sweep on disk, finished or not.

    Attributes:
        folder: Where it is.
        about: The whole plan as plain numbers and texts, as `plan.json` has it.
        points: How many it has.
    """

    def __init__(self, folder: str | Path) -> None:
        """Open a folder. Raises ValueError if there is no sweep in it, or its plan was damaged."""
        self.folder = check_place(folder)
        self._place = self.folder.absolute()  # wherever the program goes on
        path = self._place / PLAN
        try:
            stored = json.loads(path.read_text())
            self.about, self.digest = stored["sweep"], stored["digest"]
            self._earlier_size = stored.get("batch")  # of folders of before, whose batches have one size
            self.points: int = self.about["points"]
            self._repeat: int = self.about["replicates"] if self.about["each_market"] else 1
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(f"folder: expected one in which a sweep was begun, got {show(str(folder))}") from error
        if digest(self.about) != self.digest:
            raise DamagedPlan(
                f"folder: expected what a sweep has written, got {show(str(folder))}, whose {PLAN} was damaged or "
                "changed; remove that file and sweep again with the same arguments, which keeps the tables"
            )
        self._whole: dict[tables.Batch, tuple[int, int]] = {}  # what was found whole, with its time and length

    @property
    def batches(self) -> int:
        """How many tables there are."""
        return len(self._present())

    @property
    def files(self) -> list[Path]:
        """The tables of finished batches, in the order of points; any reader of Parquet reads them."""
        return [batch.path for batch in self._present()]

    @property
    def finished(self) -> int:
        """How many points are finished; those of damaged tables are not."""
        return self.points - sum(end - begin for begin, end in self.missing(0, self.points))

    @property
    def is_complete(self) -> bool:
        """Whether all points are finished."""
        return not self.missing(0, self.points)

    def to_arrow(self, columns: Iterable[str] | None = None) -> Any:
        """Return what is finished as a table of pyarrow, in the order of points.

        Args:
            columns: Names of those to read; None is all but those that are NaN everywhere (see `to_pandas`).

        Raises:
            ValueError: If nothing is finished, or a table was damaged: which.
        """
        arrow, _ = tables.pyarrow_modules()
        found: list[Any] = []
        wanted, end = None, 0
        for batch in self._present():
            if columns is not None and wanted is None:
                wanted = _checked_columns(columns, self._read(batch).column_names)
            if batch.end > end:  # else two programs did the same points at once
                found.append(self._read(batch, wanted).slice(self._repeat * max(0, end - batch.begin)))
                end = batch.end
        if not found:
            raise ValueError(f"{self.folder}: expected a sweep that has run for a while, got no finished point yet")
        table = arrow.concat_tables(found, promote_options="default").replace_schema_metadata(None)
        return table if columns is not None else table.drop_columns(self._undefined(table))

    def _read(self, batch: tables.Batch, columns: list[str] | None = None) -> Any:
        return tables.read(batch, self.digest, self._repeat, self.about["statistics"], columns)

    def _undefined(self, table: Any) -> list[str]:
        """Return the columns that are NaN everywhere, but for a statistic's own: those of labels, and errors."""
        kept = {*OWN_COLUMNS, *self.about["space"]} | {column_names(name, None)[0] for name in self.about["statistics"]}
        return [
            name for name in table.column_names if name not in kept and np.isnan(table.column(name).to_numpy()).all()
        ]

    def to_pandas(self, columns: Iterable[str] | None = None) -> Any:
        """Return what is finished as a DataFrame: a row per point, or per market, in the order of points.

        Its columns: `point`; with `each_market`, `replicate`; the names of the space; every statistic, and with several
        replicates its standard error, `..._error`, and half the width of its 95% interval by Student's t,
        `..._half_width`; `stopped`, whether a market stopped (see `MarketError`), where statistics are NaN. A label of
        a curve that no row defines, such as a size in `impact_curve` that nobody traded, has no column, nor have errors
        that are NaN in every row.

        Args:
            columns: Names of those to read, also of these; None is all others.
        """
        tables.of_data("pandas")
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
        return f"Sweep({str(self.folder)!r}, {self.finished:,} of {self.points:,} points)"

    def _present(self) -> list[tables.Batch]:
        return tables.find(self._place, self.points, self._earlier_size)

    # Writing ----------------------------------------------------------------------------------------------------------

    def missing(self, begin: int, end: int) -> list[tuple[int, int]]:
        """Return the gaps between `begin` and `end`: first points and those behind the last, of no whole table."""
        found, at = [], begin
        for batch in self._present():
            if batch.end <= at or batch.begin >= end or not self._is_whole(batch):
                continue
            if batch.begin > at:
                found.append((at, batch.begin))
            at = batch.end
        return [*found, (at, end)] if at < end else found

    def remove_damaged(self) -> None:
        """Remove tables that are not what was written for their points, so that others take their places."""
        for batch in self._present():
            if not self._is_whole(batch):
                batch.path.unlink(missing_ok=True)  # another program may have

    def write(self, begin: int, end: int, columns: Mapping[str, Any]) -> None:
        """Store the points from `begin` to `end` (without it)."""
        batch = tables.Batch(begin, end, tables.path_of(self._place, begin, end))
        try:
            tables.write(batch, columns, self.digest)
        except OSError as error:
            kept = f"{error.strerror or error}; what is finished is kept, and the same sweep goes on from there"
            raise OSError(error.errno, kept, str(batch.path)) from error

    def _is_whole(self, batch: tables.Batch) -> bool:
        """Say whether a table is what was written; each file is read once, unless it changes."""
        try:
            about = batch.path.stat()
            stamp = (about.st_mtime_ns, about.st_size)
            if self._whole.get(batch) != stamp:
                self._read(batch)
                self._whole[batch] = stamp
        except (tables.Damaged, FileNotFoundError):
            return False
        return True


class DamagedPlan(ValueError):
    """A plan that is not the one whose digest it has."""


def check_place(folder: Any) -> Path:
    """Return the name of a folder as a path."""
    if not isinstance(folder, (str, Path)) or not str(folder) or "\0" in str(folder):
        kind = ValueError if isinstance(folder, str) else TypeError
        raise kind(f"folder: expected the name of a folder, got {show(folder)}")
    try:
        return Path(folder).expanduser()
    except RuntimeError as error:
        raise ValueError(f"folder: expected a folder, got {show(str(folder))}, but there is no such home") from error


def open_sweep(folder: str | Path) -> Sweep:
    """Open the folder of a sweep, finished or not; nothing is run.

    Raises:
        ValueError: If there is no sweep in it.
    """
    return Sweep(folder)


def begin(folder: str | Path | None, plan: Plan) -> Sweep:
    """Make the folder of a sweep, or open the one that is there; ValueError says what differs if it has another.

    None is a folder that goes with the object.
    """
    tables.pyarrow_modules()
    place = Path(tempfile.mkdtemp(prefix="kineticsim-sweep-")) if folder is None else check_place(folder)
    check_folder("folder", place)
    about = json.loads(json.dumps(plan.about()))  # as it comes back from the file
    if not (place / PLAN).exists():
        for batch in tables.find(place, plan.points, None):
            if tables.plan_of_file(batch.path) not in (None, digest(about)):
                raise ValueError(
                    f"folder: expected the sweep that they are of, or another folder, got {show(str(folder))}, which "
                    f"has no {PLAN} and tables of another sweep"
                )
        _write_once(place / PLAN, {"sweep": about, "digest": digest(about)})
    try:
        found = Sweep(place)
    except DamagedPlan:
        raise
    except ValueError as error:
        raise ValueError(
            f"folder: expected another folder, got {show(str(folder))}, whose {PLAN} is not that of a sweep"
        ) from error
    if found.digest != digest(about):
        said = "; ".join(differences(found.about, about)) or f"its digest is {found.digest}"
        raise ValueError(
            f"folder: expected the same sweep, or another folder, got {show(str(folder))}, where another sweep is: "
            f"{said}"
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
        try:
            os.link(part, path)  # which, other than a renaming, fails where there is one
        except FileExistsError:
            pass
        except (NotImplementedError, OSError):
            part.replace(path)  # a file system without links
    finally:
        part.unlink(missing_ok=True)


def _checked_columns(columns: Any, known: list[str]) -> list[str]:
    allowed = f"expected a sequence of {', '.join(known)}"
    try:
        wanted = None if isinstance(columns, str) else list(columns)
    except Exception as error:  # whatever strange objects raise
        raise TypeError(f"columns: {allowed}, got {show(columns)}") from error
    if wanted is None:
        raise TypeError(f"columns: {allowed}, got {show(columns)}")
    for name in wanted:
        if not is_one_of(name, known):
            raise ValueError(f"columns: {allowed}, got {show(name)}")
    return wanted
