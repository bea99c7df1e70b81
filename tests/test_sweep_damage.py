"""Damaged folders of sweeps: what is damaged is played again, what cannot be is refused by name; folders of before."""

import json
import os
import re
import shutil

import numpy as np
import pytest
from messages import mentions
from thorough import THOROUGH

import kineticsim_env as ks
from kineticsim_env.runtime import build
from kineticsim_env.sweeps import store, tables

pytest.importorskip("pandas")
arrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

ENGINE = "numpy" if build.cpu_unavailable() else "cpu"
STATISTICS = ("volume", "kurtosis(span=2)", "autocorrelation(lag=[1, 3])")
FLIPS = 600 if THOROUGH else 200


def run(folder, **changes):
    given = {"market": "trading", "replicates": 2, "batch": 4, "engine": ENGINE, "progress": False}
    space = {"noise_spread": [3, 6, 9, 12, 15], "tie": ["lowest", "mid"]}
    return ks.sweep(space, 20, STATISTICS, folder=folder, **(given | changes))


@pytest.fixture(scope="module")
def wanted(tmp_path_factory):
    """A whole folder, and what it has."""
    found = run(tmp_path_factory.mktemp("sweep") / "whole")
    return found, found.to_pandas()


@pytest.fixture
def folder(wanted, tmp_path):
    return shutil.copytree(wanted[0].folder, tmp_path / "copy")


def flipped(data, bit):
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_every_flipped_bit_is_found_or_changes_nothing(folder, wanted):
    path = ks.open_sweep(folder).files[1]
    data, found = path.read_bytes(), 0
    for bit in np.random.default_rng(0).choice(8 * len(data), FLIPS, replace=False).tolist():
        path.write_bytes(flipped(data, bit))
        damaged = ks.open_sweep(folder)
        try:
            assert damaged.to_pandas().equals(wanted[1]), f"bit {bit} changed the table, and nobody saw it"
            assert damaged.is_complete
        except tables.Damaged as error:
            assert str(error).startswith(f"{path}: expected what this sweep has written, got a "), bit
            assert str(error).endswith("; sweep again to have it anew"), bit
            assert not damaged.is_complete and damaged.finished == 6
            found += 1
    assert found > FLIPS / 2


@pytest.mark.parametrize("columns", [None, ["point"], ["volume", "kurtosis_2_error"]])
def test_a_batch_that_was_copied_over_another_is_found(folder, wanted, columns):
    found = ks.open_sweep(folder)
    found.files[0].write_bytes(found.files[1].read_bytes())
    with pytest.raises(
        ValueError, match=re.escape(f"{found.files[0]}: expected what this sweep has written, got a damaged table")
    ):
        ks.open_sweep(folder).to_pandas(columns)
    assert ks.open_sweep(folder).finished == 6
    assert run(folder).to_pandas().equals(wanted[1])


def test_what_is_damaged_is_played_again(folder, wanted):
    found = ks.open_sweep(folder)
    before = [path.stat().st_mtime_ns for path in found.files]
    data = found.files[1].read_bytes()
    found.files[1].write_bytes(flipped(data, 8 * (len(data) // 3)))
    again = run(folder, batch=3)  # batches need not be as they were
    assert again.is_complete and again.to_pandas().equals(wanted[1])
    after = {path.name: path.stat().st_mtime_ns for path in again.files}
    assert [after[path.name] for path in (found.files[0], found.files[-1])] == [before[0], before[2]]


def test_a_value_that_was_changed_by_a_program_is_found(folder):
    """With all that pyarrow keeps in order: its own checksums would be right."""
    path = ks.open_sweep(folder).files[0]
    table = parquet.read_table(path)
    column = table.column("volume").to_numpy().copy()
    column[0] += 1e-9
    place = table.column_names.index("volume")
    parquet.write_table(table.set_column(place, "volume", arrow.array(column)), path)
    with pytest.raises(ValueError, match="got a damaged table"):
        ks.open_sweep(folder).to_pandas(["volume"])


@pytest.mark.parametrize("change", ["renamed", "exchanged", "missing", "added"])
def test_columns_that_were_changed_are_found(folder, change):
    path = ks.open_sweep(folder).files[0]
    table = parquet.read_table(path)
    about, names = table.schema.metadata, table.column_names
    if change == "renamed":
        table = table.rename_columns(["paint" if name == "point" else name for name in names])
    elif change == "exchanged":
        swap = {"volume": "volume_error", "volume_error": "volume"}
        table = table.rename_columns([swap.get(name, name) for name in names])
    elif change == "missing":
        table = table.drop_columns(["stopped"])
    else:
        table = table.append_column("more", arrow.array(np.zeros(len(table))))
    parquet.write_table(table.replace_schema_metadata(about), path)
    with pytest.raises(ValueError, match="got a damaged table"):
        ks.open_sweep(folder).to_pandas()


def test_every_flipped_bit_of_a_plan_is_refused_or_changes_nothing(folder):
    path = folder / store.PLAN
    data, found = path.read_bytes(), 0
    about = ks.open_sweep(folder).about
    for bit in np.random.default_rng(1).choice(8 * len(data), FLIPS, replace=False).tolist():
        path.write_bytes(flipped(data, bit))
        try:
            assert ks.open_sweep(folder).about == about, bit
        except ValueError as error:
            assert mentions(str(error), f"folder: expected .*, got '{folder}'", begins=True), bit
            found += 1
    assert found > FLIPS / 2


def test_a_damaged_plan_says_what_to_do_and_that_helps(folder, wanted):
    path = folder / store.PLAN
    path.write_text(path.read_text().replace('"seed": 0', '"seed": 1'))
    said = (
        "expected what a sweep has written, got .*, whose plan.json was damaged or changed; remove that file and sweep"
    )
    for call in (lambda: ks.open_sweep(folder), lambda: run(folder)):
        with pytest.raises(ValueError, match=said):
            call()
    path.unlink()
    with pytest.raises(
        ValueError, match="expected the sweep that .*, got .*, which has no plan.json and tables of another sweep"
    ):
        run(folder, seed=1)
    times = [file.stat().st_mtime_ns for file in wanted[0].files]
    for file, time in zip(sorted(folder.glob("batch-*")), times, strict=True):
        os.utime(file, ns=(time, time))
    found = run(folder)
    assert found.to_pandas().equals(wanted[1]) and [file.stat().st_mtime_ns for file in found.files] == times


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_table_that_nobody_may_read_is_refused_by_name(folder):
    path = ks.open_sweep(folder).files[0]
    path.chmod(0)
    with pytest.raises(PermissionError, match=re.escape(str(path))):
        run(folder)
    assert path.exists()


def test_a_folder_in_a_tables_place_is_refused_by_name(folder):
    """It cannot be read, and is none of ours to remove."""
    path = ks.open_sweep(folder).files[0]
    path.unlink()
    path.mkdir()
    with pytest.raises(OSError, match=re.escape(str(path))):
        run(folder)


# Folders of before ----------------------------------------------------------------------------------------------------


def as_before(folder):
    """Make a folder what versions without digests of columns have written: numbered batches, names as they were asked.

    Folders that the last of these versions wrote were read and gone on with, too.
    """
    plan = json.loads((folder / store.PLAN).read_text())
    (folder / store.PLAN).write_text(json.dumps({**plan, "batch": 4}, indent=1))
    then = {"kurtosis_2": "kurtosis(span=2)"}
    then |= {f"autocorrelation_{lag}": f"autocorrelation(lag=[1, 3])[{lag}]" for lag in (1, 3)}
    then |= {f"{now}_error": f"{before}_error" for now, before in then.items()}
    for number, path in enumerate(sorted(folder.glob("batch-*.parquet"))):
        table = parquet.read_table(path)
        table = table.drop_columns([name for name in table.column_names if name.endswith("_half_width")])
        table = table.rename_columns([then.get(name, name) for name in table.column_names])
        digest = {b"kineticsim_sweep": plan["digest"].encode()}
        parquet.write_table(table.replace_schema_metadata(digest), folder / f"batch-{number:08d}.parquet")
        path.unlink()
    return folder


def test_folders_of_before_are_read_and_gone_on_with(folder, wanted):
    as_before(folder)
    found = ks.open_sweep(folder)
    assert [path.name for path in found.files] == [f"batch-0000000{i}.parquet" for i in range(3)]
    widths = [name for name in wanted[1] if name.endswith("_half_width")]  # which came later
    assert found.is_complete and found.to_pandas().equals(wanted[1].drop(columns=widths))
    assert found.to_pandas(["volume_half_width"])["volume_half_width"].isna().all()
    assert found.to_pandas(["autocorrelation_3_error"]).equals(wanted[1][["autocorrelation_3_error"]])
    found.files[1].unlink()
    assert ks.open_sweep(folder).finished == 6
    again = run(folder, batch=None)
    assert [path.name for path in again.files][::2] == ["batch-00000000.parquet", "batch-00000002.parquet"]
    now = wanted[1].copy()
    now.loc[now["point"].lt(4) | now["point"].ge(8), widths] = np.nan
    assert again.to_pandas().equals(now) and again.to_pandas(["volume_half_width"]).equals(now[["volume_half_width"]])


def test_a_batch_of_before_that_was_copied_over_another_is_found(folder, wanted):
    """Its points are in it; what a flipped bit makes of its values is not seen, as nothing says what they were."""
    files = ks.open_sweep(as_before(folder)).files
    files[0].write_bytes(files[1].read_bytes())
    with pytest.raises(ValueError, match="batch-00000000.parquet: expected .*, got a damaged table"):
        ks.open_sweep(folder).to_pandas(["volume"])
    columns = ["point", "volume", "kurtosis_2_error"]
    assert run(folder).to_pandas(columns).equals(wanted[1][columns])
