"""Batches of a sweep: as many points as a second plays, by measured time; what their tables have; what is made once."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from thorough import slow

import kineticsim_env as ks
from kineticsim_env.runtime import build
from kineticsim_env.statistics import STATISTICS, of_series
from kineticsim_env.sweeps import batches, local, plans

pytest.importorskip("pandas")
parquet = pytest.importorskip("pyarrow.parquet")

ROOT = Path(__file__).parent.parent
ENGINE = "numpy" if build.cpu_unavailable() else "cpu"


def pace(points, intervals, engine, workers=1, replicates=1, market="paper", **space):
    plan = plans.make_plan({"noise_spread": (1, 20)} | space, intervals, ["volume"], market=market,
                           design="random", points=points, replicates=replicates)  # fmt: skip
    return batches.Pace(plan, points, engine, workers, threads=2)


def test_the_first_batch_is_a_guess_that_fills_the_engine():
    def first(*given, **named):
        return pace(*given, **named).points

    assert first(10_000, 1000, "cuda") == 10_000  # one launch
    assert first(10_000, 1000, "cuda", workers=8) == 1250
    assert first(10**6, 10, "cuda") == 1 << 16  # a full device, and not more
    assert first(10**6, 10**6, "cuda") == 1 << 14
    assert first(10**6, 10, "cuda", replicates=1 << 20) == 1
    assert first(10**6, 10**6, "cuda", preset=["trading", "news"], market=None) == 2 << 14  # two launches
    assert first(10**6, 1000, "cpu") == 2 * 10**7 // 256_000
    assert first(10**6, 10**6, "cpu") == 2  # a market for each thread
    assert first(10**6, 1000, "cpu", market="news") == 2 * 10**7 // 48_000


@pytest.mark.parametrize("rate", [3.0, 40.0, 7000.0])
def test_batches_take_a_second_whatever_the_rate(rate):
    """The guess may be wrong by any factor: a few batches on, each takes about a second."""
    found = pace(10**6, 1000, "cpu")
    seconds = []
    for _ in range(12):
        points = found.points
        seconds.append(points / rate)
        found.took(points, seconds[-1])
    assert np.all(np.array(seconds[6:]) <= 1.0) and np.all(np.array(seconds[6:]) > 0.5)
    assert all(later <= 4 * now for now, later in zip(seconds, seconds[1:], strict=False))
    found.took(found.points, 30.0)  # a machine that became slower
    assert found.points < rate


def test_a_batch_is_never_less_than_fills_the_engine_nor_more_than_its_share():
    found = pace(10**6, 1000, "cuda")
    found.took(found.points, 500.0)
    assert found.points == 1 << 14
    found = pace(100, 10, "cpu", workers=4)
    found.took(1, 1e-9)
    assert found.points == 25


@pytest.mark.skipif(ENGINE != "cpu", reason="needs a C++ compiler")
def test_what_is_stored_in_a_second_is_a_seconds_work(tmp_path, monkeypatch):
    """A batch's own time, as it is measured here, is about a second, though the machine is slowed down.

    Here a second is a fifth of one.
    """
    assert batches._SECONDS == 1.0
    second, took = 0.2, []
    monkeypatch.setattr(batches, "_SECONDS", second)
    original = local.run_batch

    def slowed(plan, begin, end, *where):
        time.sleep(0.02 * second * (end - begin))
        took.append(0.02 * second * (end - begin))
        return original(plan, begin, end, *where)

    monkeypatch.setattr(local, "run_batch", slowed)
    space = {"noise_spread": (1, 20)}
    found = ks.sweep(space, 2000, ["volume"], design="random", points=256, folder=tmp_path, engine=ENGINE)
    assert found.is_complete and max(took[1:]) < 1.5 * second and found.batches >= 5


KILLED = """
import sys, time
import kineticsim_env as ks
from kineticsim_env.sweeps import local

def slowed(plan, begin, end, *where):
    time.sleep(0.05 * (end - begin))
    return original(plan, begin, end, *where)

original, local.run_batch = local.run_batch, slowed
space = {"noise_spread": list(range(1, 17)), "market_order_prob": [i / 50 for i in range(1, 17)]}
ks.sweep(space, 2000, folder=sys.argv[1], progress=False, engine="cpu")
"""


@slow
@pytest.mark.skipif(ENGINE != "cpu", reason="needs a C++ compiler")
def test_a_sweep_that_is_killed_keeps_what_was_finished(tmp_path):
    """256 points of 2,000 intervals on a machine that takes 13 s, slow against the first guess: many batches."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-c", KILLED, str(tmp_path / "folder")]
    process = subprocess.Popen(words, env=environment, start_new_session=True)
    try:
        while len(list((tmp_path / "folder").glob("batch*"))) < 2:
            assert process.poll() is None, "it ended before two batches were there"
            time.sleep(0.01)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    found = ks.open_sweep(tmp_path / "folder")
    assert found.batches >= 2 and 0 < found.finished < found.points
    assert found.to_pandas()["volatility"].notna().all()


# Tables ---------------------------------------------------------------------------------------------------------------


def test_results_do_not_depend_on_how_batches_were_cut(tmp_path):
    """Nor on their being cut anew where a sweep goes on."""
    given = {"market": "trading", "replicates": 2, "engine": ENGINE, "progress": False}
    space = {"noise_spread": [3, 6, 9, 12, 15], "market_order_prob": [0.1, 0.3]}
    wanted = ks.sweep(space, 30, ["volume", "kurtosis"], **given, batch=10).to_pandas()
    found = ks.sweep(space, 30, ["volume", "kurtosis"], **given, batch=2, folder=tmp_path)
    assert [path.name[6:27] for path in found.files] == [f"{i:010d}-{i + 2:010d}" for i in range(0, 10, 2)]
    for path in found.files[1:4:2]:
        path.unlink()
    assert ks.open_sweep(tmp_path).finished == 6
    found = ks.sweep(space, 30, ["volume", "kurtosis"], **given, batch=3, folder=tmp_path)
    assert found.to_pandas().equals(wanted) and found.batches == 5  # each gap is a table, as it has but two points
    for path in found.files[1:4]:
        path.unlink()
    found = ks.sweep(space, 30, ["volume", "kurtosis"], **given, batch=5, folder=tmp_path)
    assert found.to_pandas().equals(wanted) and found.batches == 4


def test_points_that_two_programs_did_at_once_are_there_once(tmp_path):
    given = {"engine": ENGINE, "progress": False, "statistics": ["volume"], "intervals": 20}
    space = {"noise_spread": list(range(1, 11))}
    wanted = ks.sweep(space, **given, batch=4, folder=tmp_path / "one", each_market=True, replicates=2)
    other = ks.sweep(space, **given, batch=3, folder=tmp_path / "other", each_market=True, replicates=2)
    for path in other.files:
        (tmp_path / "one" / path.name).write_bytes(path.read_bytes())
    assert wanted.batches == 7 and wanted.finished == 10 and wanted.is_complete
    assert wanted.to_pandas().equals(other.to_pandas())


def test_columns_that_are_always_nan_are_left_out():
    given = {"market": "trading", "replicates": 2, "engine": ENGINE, "progress": False}
    found = ks.sweep({"noise_spread": [6, 14]}, 60, ["volume", "impact_curve", "tail_index"], **given)
    table = found.to_pandas()
    assert not table.drop(columns="tail_index", errors="ignore").isna().all().any()
    labels = [2**power for power in range(16)]
    there = [f"impact_curve_{label}" in table for label in labels]
    assert any(there) and not all(there)
    stored = parquet.read_schema(found.files[0]).names
    assert {f"impact_curve_{label}" for label in labels} < set(stored)  # tables of all batches have the same columns
    asked = found.to_pandas(["point", "impact_curve_32768"])
    assert asked["impact_curve_32768"].isna().all()


def test_a_statistic_that_no_market_defines_is_told_so():
    """Its own column stays, as whoever asked for it would miss it."""
    table = ks.sweep(
        {"noise_spread": [3, 6]}, 5, ["tail_index"], replicates=2, engine=ENGINE, progress=False
    ).to_pandas()
    assert list(table) == ["point", "noise_spread", "tail_index", "stopped"] and table["tail_index"].isna().all()


def test_names_of_columns_are_plain_and_never_overwrite_the_space():
    given = {"engine": ENGINE, "progress": False, "replicates": 2}
    statistics = ["abs_autocorrelation(lag=[1, 5, 10])", "kurtosis(span=2)"]
    table = ks.sweep({"noise_spread": [3]}, 50, statistics, **given).to_pandas()
    names = (*(f"abs_autocorrelation_{lag}" for lag in (1, 5, 10)), "kurtosis_2")
    columns = [f"{name}{ending}" for name in names for ending in ("", "_error", "_half_width")]
    assert list(table) == ["point", "noise_spread", *columns, "stopped"]
    with pytest.raises(
        ValueError, match="statistics: expected .*, got 'noise', whose column 'noise_spread' the table has already"
    ):
        ks.sweep({"noise_spread": [3]}, 5, {"noise": of_series(lambda price: price[:, :1], "last_price",
                                                               labels=("spread",))}, **given)  # fmt: skip


# Users' functions -----------------------------------------------------------------------------------------------------


def test_a_users_statistic_is_made_once_per_batch(monkeypatch):
    """And once before anything is run, to be checked; its function is called once per launch."""
    made, read = [], []

    def last(price):
        read.append(len(price))
        return price[:, -1]

    def mine():
        made.append(1)
        return of_series(last, "last_price")()

    monkeypatch.setitem(STATISTICS, "named", mine)
    given = {"market": "trading", "engine": ENGINE, "progress": False, "replicates": 2}
    found = ks.sweep({"noise_spread": [3, 6, 9, 12]}, 20, {"mine": mine, "named": "named"}, batch=2, **given)
    assert found.batches == 2 and len(made) == 2 * (1 + found.batches)
    assert read == [4] * 2 * found.batches
    made.clear()
    monkeypatch.setattr(batches, "_points_at_once", lambda *_: 1)  # several launches of a batch share what was made
    again = ks.sweep({"noise_spread": [3, 6, 9, 12]}, 20, {"mine": mine, "named": "named"}, batch=4, **given)
    assert len(made) == 2 * 2 and again.to_pandas().equals(found.to_pandas())
    assert torch.equal(torch.tensor(again.to_pandas()["mine"]), torch.tensor(again.to_pandas()["named"]))
