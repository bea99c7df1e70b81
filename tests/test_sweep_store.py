"""A sweep on disk: goes on after a kill without a lost or doubled point, and refuses what is another sweep."""

import errno
import functools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from agent_classes import trend_follower
from thorough import slow

import kineticsim_env as ks
from kineticsim_env.runtime import build
from kineticsim_env.statistics import STATISTICS, of_series
from kineticsim_env.sweeps import local, store
from kineticsim_env.sweeps.sweeping import read_part

pytest.importorskip("pandas")
parquet = pytest.importorskip("pyarrow.parquet")

ROOT = Path(__file__).parent.parent
ENGINE = "numpy" if build.cpu_unavailable() else "cpu"
SPACE = {"noise_spread": (2, 12), "market_order_prob": (0.05, 0.3)}
GIVEN = {"market": "trading", "design": "random", "points": 20, "replicates": 2, "batch": 3, "engine": ENGINE}


def run(folder=None, space=SPACE, intervals=20, statistics=("volume", "kurtosis"), **changes):
    return ks.sweep(space, intervals, statistics, folder=folder, progress=False, **(GIVEN | changes))


def stamps(found):
    return {path.name: (path.stat().st_mtime_ns, path.stat().st_ino) for path in found.files}


@pytest.fixture(scope="module")
def wanted():
    return run().to_pandas()


def test_a_folder_is_the_sweep(tmp_path, wanted):
    found = run(tmp_path / "new" / "folder")
    assert found.is_complete and found.finished == 20 and found.batches == len(found.files) == 7
    again = ks.open_sweep(tmp_path / "new" / "folder")
    assert again.to_pandas().equals(wanted) and repr(again).endswith("20 of 20 points)")
    assert again.to_pandas(["volume", "point"]).equals(wanted[["volume", "point"]])
    assert again.config(3) == found.config(3)
    before = stamps(found)
    assert stamps(run(tmp_path / "new" / "folder")) == before  # nothing is run again
    assert sorted(path.name for path in found.folder.iterdir()) == [*sorted(before), "plan.json"]


def test_a_folder_of_ones_own_is_asked_for_or_goes_with_the_object():
    found = run()
    folder = found.folder
    assert folder.is_dir()
    del found
    assert not folder.exists()


def test_an_interrupted_sweep_goes_on(tmp_path, wanted, monkeypatch):
    calls = []

    def interrupted(plan, begin, end, *where):
        if len(calls) == 3:
            raise KeyboardInterrupt
        calls.append(begin)
        return original(plan, begin, end, *where)

    original = local.run_batch
    with monkeypatch.context() as patch:
        patch.setattr(local, "run_batch", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path)
    half = ks.open_sweep(tmp_path)
    assert not half.is_complete and half.finished == 9 and half.to_pandas().equals(wanted[:9])
    before = stamps(half)
    found = run(tmp_path, batch=None)  # the folder's
    assert found.to_pandas().equals(wanted)
    assert {name: stamp for name, stamp in stamps(found).items() if name in before} == before


KILLED = """
import sys
import kineticsim_env as ks
import test_sweep_store as here
here.run(sys.argv[1], intervals=int(sys.argv[2]))
"""


@slow
@pytest.mark.parametrize("after", [1, 4])
def test_a_killed_sweep_goes_on(tmp_path, after):
    intervals = 20_000 if ENGINE == "cpu" else 200
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    words = [sys.executable, "-c", KILLED, str(tmp_path), str(intervals)]
    process = subprocess.Popen(words, env=environment, start_new_session=True)
    try:
        while len(list(tmp_path.glob("batch-*.parquet"))) < after:
            assert process.poll() is None, "it ended before it was killed"
            time.sleep(0.01)
        time.sleep(0.05)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    half = ks.open_sweep(tmp_path)
    assert after <= len(half.files) and half.finished == 3 * len(half.files) < half.points
    before = stamps(half)
    found = run(tmp_path, intervals=intervals)
    assert found.is_complete
    assert {name: stamp for name, stamp in stamps(found).items() if name in before} == before
    assert found.to_pandas().equals(run(intervals=intervals).to_pandas())


def test_what_is_no_whole_batch_is_done_again(tmp_path, wanted):
    found = run(tmp_path)
    broken, other, empty = found.files[1], found.files[3], found.files[5]
    broken.write_bytes(broken.read_bytes()[:-7])
    parquet.write_table(parquet.read_table(other).slice(0, 2), other)
    empty.write_bytes(b"")
    (tmp_path / ".batch-00000002-0a1b2c3d.parquet").write_bytes(b"left by a kill")
    before = stamps(found)
    found = run(tmp_path)
    changed = {name for name, stamp in stamps(found).items() if stamp != before[name]}
    assert changed == {broken.name, other.name, empty.name}
    assert found.to_pandas().equals(wanted)


def test_tables_of_another_plan_do_not_count(tmp_path, wanted):
    found = run(tmp_path / "here")
    other = run(tmp_path / "there", seed=1)
    found.files[2].write_bytes(other.files[2].read_bytes())
    for columns in (None, ["point", "volume"]):
        with pytest.raises(
            ValueError, match="batch-0000000006-0000000009.parquet: expected what.*got a table of another sweep"
        ):
            found.to_pandas(columns)
    assert run(tmp_path / "here").to_pandas().equals(wanted)


DIFFERENT = [
    ({"intervals": 21}, "intervals is 20 there and 21 here"),
    ({"seed": 3}, "seed is 0 there and 3 here"),
    ({"replicates": 3}, "replicates is 2 there and 3 here"),
    ({"points": 21}, "points is 20 there and 21 here"),
    ({"design_seed": 1}, "design_seed is 0 there and 1 here"),
    ({"common": False}, "common is True there and False here"),
    ({"warm_up": 1}, "warm_up is 0 there and 1 here"),
    ({"each_market": True}, "each_market is False there and True here"),
    ({"statistics": ["volume"]}, "statistics.kurtosis is 'kurtosis' there and missing here"),
    ({"market": {"preset": "trading", "fee": 2}}, "market.fee is 0 there and 2 here"),
    (
        {"space": {**SPACE, "noise_spread": (2, 13)}},
        "space.noise_spread is {'low': 2, 'high': 12, 'scale': 'linear'} there and {'low': 2, 'high': 13, 'scale': "
        "'linear'} here",
    ),
    ({"space": {**SPACE, "tie": ["mid"]}}, "space.tie is missing there and {'values': ['mid']} here"),
    ({"space": dict(reversed(SPACE.items()))}, "space is noise_spread, market_order_prob there and market_order_prob,"),
]


@pytest.mark.parametrize(("changes", "said"), DIFFERENT, ids=[said for _, said in DIFFERENT])
def test_another_sweep_is_refused_with_what_differs(tmp_path_factory, wanted, changes, said):
    folder = tmp_path_factory.getbasetemp() / "refusing"
    before = stamps(run(folder))
    with pytest.raises(ValueError) as refused:
        run(folder, **changes)
    text = str(refused.value)
    where = f"folder: expected the same sweep, or another folder, got '{folder}', where another sweep is: "
    assert text.startswith(where) and said in text
    assert stamps(ks.open_sweep(folder)) == before


def test_a_class_that_was_written_anew_is_another_sweep(tmp_path):
    market = {"preset": "trading", "agents": {trend_follower: 2}}
    run(tmp_path, market=market)
    stored = json.loads((tmp_path / "plan.json").read_text())
    assert stored["sweep"]["classes"].keys() == {"agent_classes:trend_follower"}
    stored["sweep"]["classes"]["agent_classes:trend_follower"] = "0123456789abcdef"
    stored["digest"] = store.digest(stored["sweep"])
    (tmp_path / "plan.json").write_text(json.dumps(stored))
    with pytest.raises(ValueError, match="classes.agent_classes:trend_follower is '0123456789abcdef' there and"):
        run(tmp_path, market=market)


def without_source(text):
    names = {}
    exec(f"def first(price):\n    return {text}\n", names)
    return names["first"]


def closing(scale):
    def first(price):
        return price[:, 0] * scale

    return first


def scaled(price, scale=1):
    return price[:, 0] * scale


@pytest.mark.parametrize(
    ("one", "same", "other"),
    [
        (closing(2), closing(2), closing(3)),  # what a function closes over
        (lambda price: price[:, 0], lambda price: price[:, 0], lambda price: price[:, 1]),
        (functools.partial(scaled, scale=2), functools.partial(scaled, scale=2), functools.partial(scaled, scale=3)),
        (*(without_source(f"price[:, {column}]") for column in (0, 0, 1)),),
        (scaled, scaled, closing(2)),
    ],
)
def test_a_statistic_of_your_own_that_was_changed_is_another_sweep(tmp_path, one, same, other):
    """Else its values would be those of the function that was there before."""
    given = {"space": {"noise_spread": [3]}, "design": "grid", "points": None}
    begun = run(tmp_path, statistics={"mine": of_series(one, "last_price")}, **given)
    before = stamps(begun)
    assert stamps(run(tmp_path, statistics={"mine": of_series(same, "last_price")}, **given)) == before
    with pytest.raises(ValueError, match="where another sweep is: statistics.mine is '.*' there and '.*' here"):
        run(tmp_path, statistics={"mine": of_series(other, "last_price")}, **given)


@slow
def test_the_same_functions_are_the_same_in_every_program(tmp_path):
    """Whatever their addresses are, and in whichever order a set is walked through."""
    (tmp_path / "mine.py").write_text(
        "import functools\nimport torch\nfrom kineticsim_env.sweeps.functions import stored_statistic\n"
        "def first(price, how=(len, 'a')):\n    return price[:, 0]\n"
        "def maker(*held):\n    return lambda price: held or price in {'a', 'b', 'c', 'd'}\n"
        "class Called:\n    def __call__(self, price):\n        return first(price)\n"
        "round_and_round = []\nround_and_round.append(round_and_round)\n"
        "given = [first, maker(first, torch.ones(3), {'a', 'b', 'c'}), functools.partial(first, how=first), Called(),\n"
        "         Called().__call__, torch.amax, maker(maker(maker(first)), round_and_round)]\n"
        "if __name__ == '__main__':\n    print(*map(stored_statistic, given), sep='\\n')\n"
    )
    printed = []
    for seed in "12":
        settings = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed}
        found = subprocess.run([sys.executable, tmp_path / "mine.py"], capture_output=True, text=True, env=settings)
        printed.append(found.stdout.splitlines())
    assert printed[0] == printed[1] and len(set(printed[0])) == 7, found.stderr


def test_functions_of_a_text_that_is_run_are_told_apart_in_a_program_that_is_one_too():
    """From Python 3.13 on the source of `python -c` passes for theirs."""
    program = (
        "from kineticsim_env.sweeps.functions import stored_statistic\n"
        "for column in (0, 0, 1):\n"
        "    names = {}\n"
        "    exec(f'def first(price):\\n    return price[:, {column}]\\n', names)\n"
        "    print(stored_statistic(names['first']))\n"
    )
    settings = {**os.environ, "PYTHONPATH": str(ROOT)}
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=settings)
    one, same, other = found.stdout.splitlines()
    assert one == same != other, found.stderr


def test_so_is_one_that_a_text_names(tmp_path, monkeypatch):
    given = {"space": {"noise_spread": [3]}, "statistics": ["first"], "design": "grid", "points": None}
    monkeypatch.setitem(STATISTICS, "first", of_series(closing(2), "last_price"))
    run(tmp_path, **given)
    assert ks.open_sweep(tmp_path).about["statistics"]["first"].startswith("first of test_sweep_store:closing.")
    monkeypatch.setitem(STATISTICS, "first", of_series(lambda price: price[:, 1], "last_price"))
    with pytest.raises(ValueError, match=r"statistics\.first is"):
        run(tmp_path, **given)


def test_a_folder_is_where_it_was_when_the_program_goes_elsewhere(tmp_path, monkeypatch, wanted):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    found = run("relative")
    monkeypatch.chdir("elsewhere")
    assert found.to_pandas().equals(wanted) and found.is_complete and all(path.exists() for path in found.files)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert run("~/relative").folder == tmp_path / "relative"


def test_a_full_disk_keeps_what_there_is(tmp_path, monkeypatch, wanted):
    write, done = parquet.write_table, []

    def full(*arguments, **options):
        if len(done) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        done.append(write(*arguments, **options))

    monkeypatch.setattr(parquet, "write_table", full)
    with pytest.raises(
        OSError, match="No space left on device; what is finished is kept.*batch-0000000006-0000000009.parquet"
    ) as caught:
        run(tmp_path)
    assert caught.value.errno == errno.ENOSPC
    monkeypatch.setattr(parquet, "write_table", write)
    assert sorted(path.name for path in tmp_path.iterdir())[:-1] == [
        f"batch-000000000{i}-000000000{i + 3}.parquet" for i in (0, 3)
    ]
    assert run(tmp_path).to_pandas().equals(wanted)


def test_folders_are_refused_in_words(tmp_path):
    with pytest.raises(ValueError, match="expected one in which a sweep was begun"):
        ks.open_sweep(tmp_path)
    (tmp_path / "plan.json").write_text("{}")
    with pytest.raises(ValueError, match="expected another folder, got .*, whose plan.json is not that of a sweep"):
        run(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="folder: expected .*, got .*, which cannot be written to"):
        run(tmp_path / "file")
    found = run(tmp_path / "begun", part="7/7")
    with pytest.raises(ValueError, match="point: expected 0 to 19, got 20"):
        found.config(20)
    found.files[0].unlink()
    with pytest.raises(ValueError, match="got no finished point yet"):
        found.to_pandas()


# Parts ----------------------------------------------------------------------------------------------------------------


def test_parts_together_are_the_whole_and_none_does_anothers(tmp_path, wanted):
    seen = set()
    for number in (2, 3, 1):
        found = run(tmp_path, part=f"{number}/3")
        mine = set(stamps(found).items()) - seen
        points = [range(int(name[6:16]), int(name[17:27])) for name, _ in mine]
        assert sorted(point for batch in points for point in batch) == list(
            range(*((number - 1) * 20 // 3, number * 20 // 3))
        )
        seen |= mine
    assert found.is_complete and found.to_pandas().equals(wanted)


def test_jobs_that_begin_at_once_agree_on_one_plan(tmp_path, wanted):
    errors = []

    def job(number):
        try:
            run(tmp_path, part=(number, 4), batch=None)
        except BaseException as error:
            errors.append(error)

    jobs = [threading.Thread(target=job, args=(number,)) for number in (1, 2, 3, 4)]
    for each in jobs:
        each.start()
    for each in jobs:
        each.join()
    assert not errors and ks.open_sweep(tmp_path).to_pandas().equals(wanted)


def test_the_first_plan_stays(tmp_path):
    store._write_once(tmp_path / "plan.json", {"batch": 1})
    store._write_once(tmp_path / "plan.json", {"batch": 2})
    assert json.loads((tmp_path / "plan.json").read_text()) == {"batch": 1} and len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("part", ["0/3", "4/3", "2", "a/b", (1, 2, 3), (1.0, 2), 3, ""])
def test_parts_are_refused_in_words(part):
    with pytest.raises(ValueError, match="part: expected 'I/N' with I from 1 to N, such as '2/8', got"):
        read_part(part)


def test_a_part_needs_a_folder():
    with pytest.raises(ValueError, match="part: expected a folder that all parts share with it, got '1/2' without one"):
        run(part="1/2")
