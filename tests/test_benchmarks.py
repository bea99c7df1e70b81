"""The benchmark suite: what is wrong gets no figure, what is slow runs less, what is done stays; report; commands."""

import dataclasses
import json
import re
import time
from pathlib import Path

import numpy as np
import pytest
from messages import mentions
from thorough import slow

from kineticsim_env.errors import EngineUnavailable
from kineticsim_env.simulator import Simulator
from scripts.benchmarks import __main__ as command
from scripts.benchmarks import paper_figures, report, suite, timing, verify
from scripts.benchmarks.backend import Result, Workload
from scripts.benchmarks.environment_rate import EnvironmentSteps
from scripts.benchmarks.measurements import Point, load

SMALL = Workload(3, agents=16, levels=32, steps=20)
POINTS = (Point("markets", SMALL, 2),)


class Double:
    """A backend on the NumPy engine, with a flaw on request."""

    device = "cpu"

    def __init__(self, name="double", *, flaw=None, step_seconds=0.0, missing=None, most=None, error=None):
        self.name, self.flaw, self.step_seconds = name, flaw, step_seconds
        self.missing, self.most, self.error = missing, most, error
        self.prepared, self.runs = [], []

    def unavailable(self):
        return self.missing

    def prepare(self, workload):
        if self.error:
            raise self.error
        if self.most is not None and workload.markets > self.most:
            raise MemoryError
        self.prepared.append(workload)
        self.simulator = Simulator(workload.config, workload.markets, engine="numpy", seed=workload.seed)

    def reset(self):
        self.simulator.reset(seed=self.prepared[-1].seed)

    def run(self, steps):
        self.runs.append(steps)
        time.sleep(steps * self.step_seconds)
        self.simulator.run(steps, progress=False)

    def synchronize(self):
        pass

    def result(self):
        names = [field.name for field in dataclasses.fields(Result)]
        found = {name: getattr(self.simulator, name).numpy().copy() for name in names}
        if self.flaw:
            found[self.flaw][(-1,) * found[self.flaw].ndim] += 1  # one unit in one place
        return Result(**found)

    def close(self):
        pass


def measure(tmp_path, *doubles, points=POINTS, **more):
    return suite.run_suite(tmp_path / "file.json", table=points, candidates=doubles, run_seconds=0.3, **more)


def test_a_row_has_every_column(tmp_path):
    data = measure(tmp_path, Double())
    assert load(tmp_path / "file.json") == json.loads(json.dumps(data))
    (row,) = data["rows"]
    assert row["agrees"] is True and row["oracle"] == "numpy" and row["first_difference"] is None
    shape = ("markets", "backend", 3, 16, 32, 20, 2)
    names = ("sweep", "backend", "markets", "agents", "levels", "steps", "trials")
    assert tuple(row[name] for name in names) == ("markets", "double", *shape[2:])
    assert row["seconds_min"] <= row["seconds_median"] <= row["seconds_max"] and row["peak_bytes"] is None
    seconds = row["seconds_median"]
    assert row["events_per_s"] == pytest.approx(3 * 16 * 20 / seconds)
    assert row["us_per_step"] == pytest.approx(seconds / 20 * 1e6)
    assert row["ns_per_event"] == pytest.approx(seconds / (3 * 16 * 20) * 1e9)
    assert row["device"] and row["compile_seconds"] > 0 and row["first_call_seconds"] > 0
    machine = data["machines"][row["machine"]]
    assert machine["cpu"] and machine["torch"] and machine["date"]


@pytest.mark.parametrize("flaw", [field.name for field in dataclasses.fields(Result)])
def test_one_wrong_unit_costs_the_figure(tmp_path, flaw, capsys):
    data = measure(tmp_path, Double("right"), Double("wrong", flaw=flaw))
    right, wrong = data["rows"]
    assert right["agrees"] is True and wrong["agrees"] is False
    assert wrong["first_difference"].startswith(f"{flaw} of market 2")
    for name in ("seconds_median", "seconds_min", "events_per_s", "us_per_step", "ns_per_event", "peak_bytes"):
        assert wrong[name] is None
    assert wrong["trials"] == 0 and wrong["seconds"] == []
    text = report.summary(data)
    assert f"wrong, markets: wrong: {flaw} of market 2" in text and "1 of 2 rows verified" in text


def test_differences_are_found_and_named():
    mine = Result(*(np.zeros((2, 8), np.int32),) * 2, *(np.zeros(2, np.int64),) * 3)
    assert verify.first_difference(mine, mine) is None
    other = dataclasses.replace(mine, ask=mine.ask.copy())
    other.ask[1, 5] = 7
    assert verify.first_difference(mine, other) == "ask of market 1, tick 5: got 0, expected 7"
    assert "shape [1, 8]" in verify.first_difference(dataclasses.replace(mine, bid=mine.bid[:1]), mine)
    assert "float64" in verify.first_difference(dataclasses.replace(mine, bid=mine.bid.astype(float)), mine)
    assert verify.digest(mine) != verify.digest(other)
    assert verify.digest(mine) == verify.digest(dataclasses.replace(mine, bid=np.asfortranarray(mine.bid)))


def test_a_large_workload_is_verified_by_the_other_engine(monkeypatch):
    oracle = verify.Oracle()
    if not oracle._cpp:
        pytest.skip("no C++ engine")
    small, engine = oracle.expected(SMALL)
    assert engine == "numpy"
    monkeypatch.setattr(verify, "_NUMPY_EVENTS", 1)
    large, engine = verify.Oracle().expected(SMALL)
    assert engine == "cpu" and verify.first_difference(small, large) is None
    blind = verify.Oracle()
    blind._cpp = False
    with pytest.raises(verify.NoOracle):
        blind.expected(SMALL)


def test_without_an_oracle_there_is_no_figure(tmp_path, monkeypatch):
    def none(self, workload):
        raise verify.NoOracle("nothing to compare with")

    monkeypatch.setattr(verify.Oracle, "expected", none)
    (row,) = measure(tmp_path, Double())["rows"]
    assert row["agrees"] is None and row["seconds_median"] is None and row["notes"] == "nothing to compare with"


def test_a_slow_backend_runs_fewer_steps_and_says_so(tmp_path):
    slow = Double(step_seconds=0.02)  # 20 steps are 0.4 s, a run may take 0.3 s
    (row,) = measure(tmp_path, slow)["rows"]
    assert 1 <= row["steps"] < 20 and row["asked"]["steps"] == 20 and row["notes"] == "too slow for 20 steps"
    assert slow.prepared[-1].steps == row["steps"] and slow.runs[-1] == row["steps"]
    assert row["agrees"] is True and row["us_per_step"] >= 0.02 * 1e6
    assert f"({row['steps']} step" in report.summary(load(tmp_path / "file.json"))


@pytest.mark.parametrize(("seconds", "steps"), [(10.0, 20), (0.1, 5), (0.001, 1)])
def test_affordable_steps(seconds, steps):
    slow = Double(step_seconds=0.02)
    slow.prepare(SMALL)
    found, first_call = timing.affordable_steps(slow, 20, seconds)
    assert steps * 0.5 <= found <= steps and first_call >= 0.02


def test_resume_leaves_what_is_done(tmp_path):
    points = [Point("markets", SMALL, 1), Point("fixed", SMALL, 1)]
    first = measure(tmp_path, Double(), points=points[:1])
    with pytest.raises(ValueError, match="--resume"):
        measure(tmp_path, Double(), points=points)
    later = Double()
    data = measure(tmp_path, later, Double("other"), points=points, resume=True)
    assert data["rows"][0] == json.loads(json.dumps(first["rows"][0])) and len(data["machines"]) == 1
    done = [(row["sweep"], row["backend"]) for row in data["rows"]]
    assert sorted(done) == [("fixed", "double"), ("fixed", "other"), ("markets", "double"), ("markets", "other")]
    assert len(later.prepared) == 1
    measure(tmp_path, Double("wrong", flaw="ask"), points=points, resume=True)
    data = measure(tmp_path, Double("wrong"), points=points, resume=True)  # mended
    assert len(data["rows"]) == 6 and all(row["agrees"] for row in data["rows"])
    idle = Double()
    measure(tmp_path, idle, points=points, resume=True)
    assert not idle.prepared


def test_failures_end_no_suite(tmp_path):
    doubles = [
        Double("broken", error=RuntimeError("no such\nkernel")),
        Double("small", error=EngineUnavailable("expected up to 8 levels, got 32")),
        Double("absent", missing="install it"),
        Double("tight", most=1),
        Double("fine"),
    ]
    data = measure(tmp_path, *doubles, points=[Point("levels", SMALL, 1)])
    rows = {row["backend"]: row for row in data["rows"]}
    assert rows["broken"]["notes"] == "failed: RuntimeError: no such kernel" and rows["broken"]["agrees"] is None
    assert rows["tight"]["markets"] == 1 and rows["tight"]["agrees"] is True
    assert "out of memory with 3" in rows["tight"]["notes"]
    assert rows["fine"]["agrees"] and set(rows) == {"broken", "tight", "fine"}
    assert data["unavailable"] == {"absent": "install it"}
    assert [row["notes"] for row in data["refused"]] == ["expected up to 8 levels, got 32"]
    data = measure(tmp_path, Double("tight", most=0), resume=True)
    assert "out of memory" in data["rows"][-1]["notes"] and data["rows"][-1]["agrees"] is None


@pytest.mark.parametrize("own", [False, True])
def test_the_environment_is_compared_and_timed(tmp_path, monkeypatch, own):
    environment = EnvironmentSteps("cpu", own=own)
    if environment.unavailable():
        pytest.skip("no C++ engine")
    points = [Point("env markets", suite._env_workload(8, 20, steps=4), 1), Point("markets", SMALL, 1)]
    data = measure(tmp_path, Double(), environment, points=points)
    row = next(row for row in data["rows"] if row["sweep"] == "env markets")
    assert row["agrees"] is True and row["oracle"] == "numpy"
    assert row["env_steps_per_s"] == pytest.approx(8 * 4 / row["seconds_median"])
    assert [row["backend"] for row in data["rows"]].count("double") == 1
    environment.prepare(points[0].workload)
    step = environment._step
    monkeypatch.setattr(environment, "_step", lambda: (step(), environment._results[1].add_(1)))
    assert "reward of market 0 after step 1" in environment.first_difference()[0]


@pytest.mark.gpu
def test_device_rows_on_a_gpu(tmp_path):
    from scripts.benchmarks.engine_backends import Engine

    environments = suite.environment_backends()
    points = [Point("markets", Workload(64, steps=50), 2), Point("env agents", suite._env_workload(64, 32, 120), 2)]
    data = measure(tmp_path, Engine("cuda"), Engine("cpu"), *environments, points=points)
    rows = {row["backend"]: row for row in data["rows"]}
    ways = ("CUDA graph", "Python", "CUDA graph, own reward", "Python, own reward")
    assert set(rows) == {"CUDA engine", "C++", *(f"environment ({way})" for way in ways)}
    for row in rows.values():
        assert row["agrees"] is True and row["seconds_min"] > 0, row["notes"] or row["first_difference"]
        assert row["timer"] == ("clock" if row["backend"] == "C++" else "events")
    assert rows["CUDA engine"]["digest"] == rows["C++"]["digest"] and rows["CUDA engine"]["peak_bytes"] > 64 * 128 * 8
    assert data["machines"][0]["gpu"] and rows["C++"]["peak_bytes"] is None


def test_the_points_are_the_papers_and_more():
    points = suite.points()
    shapes = {(p.sweep, p.workload.markets, p.workload.agents) for p in points if p.sweep in suite.PAPER_SWEEPS}
    wanted = {("markets", markets, 256) for markets in paper_figures.MARKETS}
    wanted |= {("agents", 8192, agents) for agents in paper_figures.AGENTS}
    assert shapes == wanted | {("fixed", 8192, 256), ("latency", 4096, 256)}
    for point in points:
        assert point.trials == (11 if point.sweep == "latency" else 5)
        if point.sweep in suite.PAPER_SWEEPS:
            assert (point.workload.levels, point.workload.steps) == (128, 500)
    assert {p.sweep for p in points} == set(suite.SWEEPS)


# The report -----------------------------------------------------------------------------------------------------------


def row(sweep, backend, seconds, markets=8192, agents=256, levels=128, steps=500, **more):
    events = markets * agents * steps
    return {
        **{"sweep": sweep, "backend": backend, "markets": markets, "agents": agents, "levels": levels, "steps": steps},
        **{"trials": 5, "seconds_median": seconds, "seconds_min": 0.9 * seconds, "seconds_max": 1.1 * seconds},
        **{
            "events_per_s": events / seconds,
            "us_per_step": seconds / steps * 1e6,
            "ns_per_event": seconds / events * 1e9,
        },
        **{"peak_bytes": 17_500_000, "agrees": True, "device": "GPU", "asked": {"markets": markets, "steps": 500}},
        **{"first_difference": None, "notes": None, "oracle": "cpu", "machine": 0, "digest": "ab" * 32},
        **{"mean_last_price": 63.95, "mean_volume": 96400.0, "mean_trades": 499.0},
        **{"compile_seconds": 1.5, "first_call_seconds": 0.01},
        **more,
    }


@pytest.fixture
def file(tmp_path):
    wrong = {"agrees": False, "first_difference": "bid of market 0, tick 3: got 1, expected 0"}
    nothing = dict.fromkeys(("seconds_median", "seconds_min", "seconds_max", "events_per_s", "us_per_step"))
    rows = [row("markets", "ours", 0.001, markets=markets) for markets in (64, 256)]
    rows += [row("markets", "NumPy", 0.25, markets=64), row("markets", "NumPy", 0.04, markets=256, steps=10)]
    rows += [row("agents", "ours", 0.002, agents=16), row("fixed", "ours", 0.002), row("fixed", "naive CUDA", 0.0246)]
    rows += [row("latency", "ours", 0.0015, markets=4096), row("latency", "NumPy", 3.0, markets=4096)]
    rows += [row("levels", "ours", 0.01, levels=32), row("fixed", "broken", 1.0, **wrong, **nothing)]
    rows += [row("env markets", "environment (Python)", 0.01, agents=20, env_steps_per_s=4.1e8)]
    rows += [row("env markets", "environment (Python, own reward)", 0.0125, agents=20, env_steps_per_s=3.28e8)]
    machine = {"date": "2026-01-01", "gpu": "GPU", "cpu": "CPU", "cpu_cores": 2, "platform": "Linux", "clocks": {}}
    data = {"format": 1, "machines": [machine], "unavailable": {"JAX": "pip install jax"}, "refused": [], "rows": rows}
    data |= {"backends": ["ours", "naive CUDA", "NumPy"], "ceilings": [{"machine": 0, "hashes_per_s": 9.65e11}]}
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(data))
    return path


def test_report_tables(file, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    assert command.main(["report", str(file), "--output", str(tmp_path / "out")]) == 0
    text = (tmp_path / "out" / "tables.md").read_text()
    assert "| 64 | 8.19 G | 32.8 M |" in text and "| 256 | 32.8 G | 16.4 M (10 steps) |" in text
    assert "| 64 | 250 |" in text and "| 256 | 2e+03 |" in text  # ours over NumPy, by rate
    fixed = next(line for line in text.splitlines() if line.startswith("| naive CUDA | 42.6 G"))
    assert fixed.endswith("| 12.3 |") and "24.600 | 22.140 to 27.060" in fixed
    assert "| 64 | 17.50 | 17.50 |" in text  # memory, MB
    assert "63.9500 | 96,400.00" in text and "`abababababab`" in text
    assert "wrong: bid of market 0, tick 3" in text and "pip install jax" in text
    assert "| fixed | M=8,192 A=256 | naive CUDA | 6.19 G | 42.6 G | 6.89 |" in text  # beside the paper
    assert not any(line.startswith("| broken") for line in text.splitlines())
    assert "410 M" in text and "has 0.54 of it" in text
    assert "| markets | environment (Python) |\n| --- | --- |\n| 8,192 | 0.80 |" in text  # with a reward in Python


@slow
def test_report_figures(file, tmp_path):
    pytest.importorskip("matplotlib")
    written = {path.name: path for path in report.write(file, tmp_path / "out")}
    stems = ("throughput", "speedups", "memory_and_cost", "latency", "agreement", "levels_and_steps", "environment")
    assert set(written) == {"tables.md", *(f"{stem}.{ending}" for stem in stems for ending in ("png", "svg"))}
    for name, path in written.items():
        head = path.read_bytes()[:300]
        assert head.startswith(b"\x89PNG") if name.endswith("png") else head.startswith((b"<?xml", b"# "))
    for line in written["tables.md"].read_text().splitlines():
        if line.startswith("!["):
            assert line.split("(")[1].rstrip(")") in written


def test_rates_are_short():
    cases = {999.4: "999", 999_600: "1 M", 5.47e10: "54.7 G", 1.25e6: "1.25 M", 9.65e11: "965 G", 2e12: "2 T"}
    assert {value: report._rate(value) for value in cases} == cases


# Commands -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def doubles(monkeypatch):
    found = [Double("NumPy"), Double("torch eager")]
    monkeypatch.setattr(suite, "all_backends", lambda: found)
    monkeypatch.setattr(suite, "environment_backends", list)
    monkeypatch.setattr(suite, "_quick_points", lambda: [Point("fixed", SMALL, 1), Point("levels", SMALL, 1)])
    monkeypatch.setattr(suite.torch.cuda, "is_available", lambda: False)
    return found


def test_quick_ends_in_a_table(doubles, tmp_path, capsys):
    path = tmp_path / "q.json"
    assert command.main(["--quick", "--output", str(path), "--backends", "numpy", "--sweeps", "fixed"]) == 0
    out = capsys.readouterr().out
    assert "fixed: agent-events/s, A=16, L=32, S=20" in out and "NumPy" in out and "torch eager" not in out
    assert "1 of 1 rows verified bit for bit" in out and str(path) in out
    assert command.main(["--quick", "--output", str(path), "--resume"]) == 0
    assert len(load(path)["rows"]) == 2  # beyond the paper's sweeps, these two are left out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--sweeps", "market"], "--sweeps: expected one of markets, agents, .*, got 'market'"),
        (["--backends", "cupy"], "--backends: expected one of NumPy, torch eager, got 'cupy'"),
        (["--resume"], "--resume: expected --output with the file to go on with, got none"),
        (["--output", "/no/such/folder/x.json"], "--output: expected .*, got '/no/such/folder/x.json'"),
        (["--run-seconds", "0"], "--run-seconds: expected .*, got 0.0"),
        (["report", "/no/such/file.json", "--output", "x"], "No such file"),
    ],
)
def test_wrong_commands_are_one_line(words, said, doubles, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert command.main([*words]) == 2
    streams = capsys.readouterr()
    assert mentions(streams.err, said) and streams.err.count("\n") == 1 and not streams.out
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["not JSON", "[]", '{"format": 0}'])
def test_other_files_are_refused(text, tmp_path, capsys):
    path = tmp_path / "other.json"
    path.write_text(text)
    assert command.main(["report", str(path), "--output", str(tmp_path / "out")]) == 2
    assert "this is no file of measurements" in capsys.readouterr().err


def spoil(data, place, value):
    """Put a value at a place such as `rows 0 asked steps`, or remove what is there."""
    *way, last = [int(word) if word.isdigit() else word for word in place.split("/")]
    for word in way:
        data = data[word]
    if value is MISSING:
        del data[last]
    else:
        data[last] = value


MISSING = object()
NAN, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        ("rows", MISSING, "rows: is missing"),
        ("rows", {}, "rows: expected a list.*got {}"),
        ("rows/0", "x", "rows[0]: expected an object.*got 'x'"),
        ("rows/1/backend", MISSING, "rows[1]: backend: is missing"),
        ("rows/1/backend", 7, "rows[1]: backend: expected a text.*got 7"),
        ("rows/0/markets", 0, "rows[0]: markets: expected a whole number from 1.*got 0"),
        ("rows/0/steps", 1.5, "rows[0]: steps: expected a whole number from 1.*got 1.5"),
        ("rows/0/agents", True, "rows[0]: agents: .*got True"),
        ("rows/0/asked", None, "rows[0]: asked: expected an object.*got None"),
        ("rows/0/asked/steps", MISSING, "rows[0]: asked.steps: is missing"),
        ("rows/0/agrees", "yes", "rows[0]: agrees: expected true, false or null.*got 'yes'"),
        ("rows/0/seconds_median", -1.0, "rows[0]: seconds_median: expected a number above 0.*got -1.0"),
        ("rows/0/seconds_median", 0, "rows[0]: seconds_median: .*got 0"),
        ("rows/0/seconds_median", None, "rows[0]: seconds_median: expected a time, as the row agrees.*got None"),
        ("rows/0/seconds_min", NAN, "rows[0]: seconds_min: .*got nan"),
        ("rows/0/seconds_max", INFINITE, "rows[0]: seconds_max: .*got inf"),
        ("rows/0/seconds_max", 10**400, "rows[0]: seconds_max: .*got 1000"),
        ("rows/0/seconds_max", 1e-9, "rows[0]: seconds_median: expected seconds_min to seconds_max.*got 0.001"),
        ("rows/0/seconds_min", None, "rows[0]: seconds_min: .*got None"),
        ("rows/0/events_per_s", 5.0, "rows[0]: events_per_s: expected 8192000000.0, which follows from.*got 5.0"),
        ("rows/0/us_per_step", "2", "rows[0]: us_per_step: .*got '2'"),
        ("rows/0/seconds", [0.1, -0.1], "rows[0]: seconds: expected a list of which each is.*got [0.1, -0.1]"),
        ("rows/0/peak_bytes", -1, "rows[0]: peak_bytes: expected a number from 0, or null.*got -1"),
        ("rows/0/machine", 1, "rows[0]: machine: expected a whole number from 0 to 0.*got 1"),
        ("rows/0/digest", "`<b>`", "rows[0]: digest: expected a hash.*got '`<b>`'"),
        ("rows/0/mean_volume", None, "rows[0]: mean_volume: expected a number.*got None"),
        ("rows/0/mean_volume", MISSING, "rows[0]: mean_volume: is missing"),
        ("rows/0/first_call_seconds", None, "rows[0]: first_call_seconds: .*got None"),
        ("rows/11/env_steps_per_s", MISSING, "rows[11]: env_steps_per_s: is missing"),
        ("refused", [{}], "refused[0]: sweep: is missing"),
        ("machines/0/cpu", None, "machines[0]: cpu: expected a text.*got None"),
        ("machines/0/clocks", [], "machines[0]: clocks: expected an object of texts.*got []"),
        ("unavailable", {"JAX": 1}, "unavailable: .*got {'JAX': 1}"),
        ("backends", [1], "backends: expected a list of texts.*got [1]"),
        ("ceilings/0/hashes_per_s", 0.0, "ceilings[0]: hashes_per_s: .*got 0.0"),
        ("format", True, "this is no file of measurements of format 1"),
    ],
)
def test_a_file_with_a_mistake_is_refused_by_its_place(place, value, said, resume, file, tmp_path, capsys, doubles):
    data = json.loads(file.read_text())
    spoil(data, place, value)
    file.write_text(json.dumps(data))
    output = ["--output", str(tmp_path / "out")]
    words = ["--resume", "--quick", "--output", str(file)] if resume else ["report", str(file), *output]
    assert command.main([*words]) == 2
    streams = capsys.readouterr()
    assert mentions(streams.err, f"error: {file}: {said}") and streams.err.count("\n") == 1 and not streams.out
    assert file.read_text() == json.dumps(data) and not (tmp_path / "out").exists()


def test_deep_and_binary_files_are_refused(tmp_path, capsys):
    path = tmp_path / "other.json"
    for content in (b"[" * 100_000, b"\xff\xfe{}", b""):
        path.write_bytes(content)
        assert command.main(["report", str(path), "--output", str(tmp_path / "out")]) == 2
        assert f"error: {path}: this is no file of measurements" in capsys.readouterr().err
    assert command.main(["report", str(tmp_path), "--output", str(tmp_path / "out")]) == 2
    assert (
        f"error: {tmp_path}: expected measurements, got a file that cannot be read (Is a directory)"
        in capsys.readouterr().err
    )


def test_the_projects_own_files_are_allowed():
    folder = Path(__file__).parent.parent / "docs" / "benchmarks"
    assert load(folder / "h200.json")["rows"] and load(folder / "cpu.json")["rows"]


@slow
def test_texts_of_a_file_are_no_markup(file, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    evil = "<script>a & b</script> | $\\frac ![x](y) `c`\nd\x1b[2J"
    data = json.loads(file.read_text().replace('"ours"', json.dumps(evil)))
    data["rows"][0] |= {"notes": evil, "device": evil, "oracle": evil}
    data["rows"][-2]["first_difference"] = evil
    data["machines"][0] |= {"gpu": evil, "platform": evil, "clocks": {evil: evil}}
    data["unavailable"] = {evil: evil}
    path = tmp_path / "a --> <b> | c.json"
    path.write_text(json.dumps(data))
    assert command.main(["report", str(path), "--output", str(tmp_path / "out")]) == 0
    text = (tmp_path / "out" / "tables.md").read_text()
    written = "&#60;script&#62;a &#38; b&#60;/script&#62; &#124; &#36;&#92;frac !&#91;x&#93;(y) &#96;c&#96; d &#91;2J"
    assert text.count(written) > 12 and "script>" not in text and "\x1b" not in text and "![x]" not in text
    assert text.split("-->")[0].count("<") == 1  # the comment at the top ends where it should
    for table in re.findall(r"(?:^\|.*\n)+", text, re.M):
        assert len({line.count("|") for line in table.splitlines()}) == 1
    lines = report.summary(data).splitlines()
    assert any(line.strip().startswith("<script>") for line in lines) and not any("\x1b" in line for line in lines)
