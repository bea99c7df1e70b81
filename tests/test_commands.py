"""Commands that are given absurd numbers, no room, no disk or Ctrl-C: one line, an exit code, and no half of a file."""

import io
import os
import pkgutil
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from messages import mentions

from kineticsim_env import cli
from kineticsim_env.runtime import files, memory
from scripts.benchmarks import __main__ as benchmarks

ROOT = Path(__file__).parent.parent
SIMULATE = ["simulate", "--engine", "numpy", "--markets", "2", "--auctions", "3"]
IMPACT = ["impact", "--engine", "numpy", "--markets", "2", "--blocks", "2", "--warmup", "0", "--after", "2"]
SCORECARD = ["scorecard", "--engine", "numpy", "--markets", "2", "--intervals", "200", "--warmup", "0"]
SCORECARD += ["--preset", "trading", "--set", "num_agents=6"]
EVALUATE = ["evaluate", "no trade", "--engine", "numpy", "--episodes", "2", "--against", "fixed spread"]
COUNTS = {
    **{("simulate", name): SIMULATE for name in ("--auctions", "--warmup", "--markets", "--seed")},
    **{
        ("impact", name): IMPACT for name in ("--blocks", "--per-auction", "--after", "--warmup", "--markets", "--seed")
    },
    **{("scorecard", name): SCORECARD for name in ("--intervals", "--warmup", "--markets", "--seed")},
    **{("evaluate", name): EVALUATE for name in ("--episodes", "--seed")},
    **{("play", name): ["play", "--terminal"] for name in ("--seed", "--horizon", "--speed")},
    ("bench", "--run-seconds"): ["bench", "--quick"],
}
FILES = {
    **{("simulate", name): SIMULATE for name in ("--save", "--plot")},
    **{("impact", name): IMPACT for name in ("--output", "--plot")},
    **{("scorecard", name): SCORECARD for name in ("--output", "--plot")},
    ("evaluate", "--json"): EVALUATE,
    ("bench", "--output"): ["bench", "--quick", "--sweeps", "fixed", "--backends", "NumPy"],
}


def main(words):
    """Run a command of the package, or `python -m scripts.benchmarks` for "bench"."""
    return benchmarks.main(words[1:]) if words[:1] == ["bench"] else cli.main(words)


def refused(words, capsys):
    """Run what is refused; return its one line."""
    assert main(words) == 2
    streams = capsys.readouterr()
    lines = [line for line in streams.err.splitlines() if not line.startswith("kineticsim_env: engine")]
    assert len(lines) == 1 and lines[0].startswith("error: ") and not streams.out, streams.err
    return lines[0]


# Numbers --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["9223372036854775808", "1e999", "nan", "", "x", "1.5.", "9" * 5000])
@pytest.mark.parametrize(("command", "option"), COUNTS)
def test_a_number_that_is_none_is_named(command, option, value, capsys):
    line = refused([*COUNTS[command, option], f"{option}={value}"], capsys)
    assert mentions(line, f"error: {option}: expected a .*, got ", begins=True) and len(line) < 200


@pytest.mark.parametrize("value", ["-1", "0", "2147483648"])
@pytest.mark.parametrize(("command", "option"), COUNTS)
def test_a_number_out_of_range_is_named(command, option, value, capsys):
    if (option, value) == ("--warmup", "0") or (option == "--seed" and (command, value) != ("play", "-1")):
        return  # which is allowed
    line = refused([*COUNTS[command, option], f"{option}={value}"], capsys)
    assert f"{option}" in line.split(": expected ")[0]
    assert f"got {value}" in line


def test_every_word_is_checked(capsys):
    for words, said in (
        (["simulat"], "invalid choice: 'simulat'"),
        (["simulate", "--auction"], "--auctions: expected one argument"),
        (["simulate", "--other"], "unrecognized arguments: --other"),
        (["bench", "report"], "the following arguments are required: file, --output"),
        ([], "the following arguments are required: command"),
    ):
        assert said in refused(words, capsys)


# Memory ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "sizes"),
    [
        (["simulate", "--auctions", "2147483648"], ("2147483648 auctions of 1024 markets", "series 17.6 TB")),
        (["simulate", "--markets", "100000000"], ("500 auctions of 100000000 markets", "books 205 GB")),
        (["simulate", "--preset", "btcusd", "--markets", "10000000"], ("books 102 GB",)),
        (["simulate", "--markets", "100000000", "--save", "run.npz"], ("series 800 GB", "books 205 GB")),
        (["simulate", "--engine", "numpy", "--set", "num_agents=200000000"], ("orders 7.37 TB",)),
        (
            ["evaluate", "no trade", "--episodes", "2147483647"],
            ("2147483647 episodes", "markets 25.8 TB"),
        ),  # three environments
        (["impact", "--after", "2147483647"], ("of 1024 markets", "both arms 198 TB")),
        (["impact", "--per-auction", "1", "--blocks", "1000000000"], ("1000000060 auctions", "TB")),
        (["impact", "--markets", "2147483647"], ("of 2147483647 markets", "books 8.8 TB")),
    ],
)
def test_what_does_not_fit_is_refused_before_it_runs(words, sizes, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(memory, "free_bytes", lambda device: 64_000_000_000)
    line = refused([*words[:1], "--engine", "numpy", *words[1:]], capsys)
    assert mentions(line, "expected what fits in the 64 GB that are free, got .*, which takes .* (")
    assert all(size in line for size in sizes), line
    assert not list(tmp_path.iterdir())


def test_what_fits_is_not_refused(monkeypatch):
    asked = []
    monkeypatch.setattr(memory, "require", lambda options, got, parts, device: asked.append(sum(parts.values())))
    assert main(SIMULATE) == 0
    assert 0 < asked[0] < 100_000  # two small markets


def test_a_gpu_is_asked_for_its_own_memory(monkeypatch, capsys):
    monkeypatch.setattr(
        "kineticsim_env.commands.shared.choose_engine", lambda *_, **__: ("cuda", torch.device("cuda", 0))
    )
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (80_000_000_000, 80_000_000_000))
    line = refused(["simulate", "--auctions", "2147483648"], capsys)
    assert "17.6 TB of GPU memory" in line and "fits in the 80 GB" in line
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (10**15, 10**15))
    monkeypatch.setattr(memory, "_system_free", lambda: 64_000_000_000)
    line = refused(["simulate", "--auctions", "2147483648"], capsys)  # the statistics are the host's
    assert "52.8 TB of memory (statistics 52.8 TB)" in line


def test_free_memory_is_the_tightest_limit(tmp_path, monkeypatch):
    free = memory.free_bytes(torch.device("cpu"))
    assert 100_000_000 < free < 1e14
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:   4000000 kB\n")
    (proc / "self" / "cgroup").write_text("0::/job/step\n")
    (groups / "job" / "step").mkdir(parents=True)
    monkeypatch.setattr(memory, "_PROC", proc)
    monkeypatch.setattr(memory, "_CGROUPS", groups)
    assert memory.free_bytes(torch.device("cpu")) == 4_096_000_000
    for folder, limit in (("job", "3000000000"), ("job/step", "max")):
        (groups / folder / "memory.max").write_text(limit)
        (groups / folder / "memory.current").write_text("1000000000\n")
        (groups / folder / "memory.stat").write_text("anon 1\ninactive_file 500000000\n")
    assert memory.free_bytes(torch.device("cpu")) == 2_500_000_000
    (proc / "meminfo").unlink()
    (proc / "self" / "cgroup").unlink()
    assert memory.free_bytes(torch.device("cpu")) > free / 2  # of the machine


def test_sizes_are_short():
    cases = {7: "7 B", 999.6: "1 kB", 23_400_000_000: "23.4 GB", 5e21: "5 ZB", 5e24: "5e+03 ZB"}
    assert {value: memory.size_text(value) for value in cases} == cases


# Files ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["", "/no/such/folder/x.json", "/proc/x.json", "/", "/dev/full", "/tmp/" + "a" * 300])
@pytest.mark.parametrize(("command", "option"), FILES)
def test_a_file_that_cannot_be_written_is_named(command, option, path, capsys):
    if option == "--plot":
        pytest.importorskip("matplotlib")
    line = refused([*FILES[command, option], option, path], capsys)
    assert mentions(line, f"error: {option}: expected .*, got '{path}'", begins=True)


def test_a_name_that_is_too_long_is_refused_where_paths_hide_it(monkeypatch):
    """As those of Python 3.14 do."""
    for name, hides in (("exists", os.path.exists), ("is_dir", os.path.isdir), ("is_file", os.path.isfile)):
        monkeypatch.setattr(Path, name, lambda path, hides=hides, **_: hides(path))
    with pytest.raises(ValueError, match="^--save: expected a file, got '/tmp/a+', which cannot be written"):
        files.check_file("--save", "/tmp/" + "a" * 300)


def test_a_picture_of_an_unknown_kind_is_refused_before_the_run(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    line = refused([*SIMULATE, "--plot", str(tmp_path / "run.xyz")], capsys)
    assert mentions(line, "--plot: expected names that end in .*, .png, .*, got '.*run.xyz'")
    assert main([*SIMULATE, "--plot", str(tmp_path / "run")]) == 0
    assert (tmp_path / "run").read_bytes().startswith(b"\x89PNG") and len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("name", ["/dev/null", "/dev/null/x", "/proc/x"])
def test_a_folder_that_cannot_be_written_is_named(name, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    path = tmp_path / "x.json"
    path.write_text('{"format": 1, "machines": [], "unavailable": {}, "refused": [], "rows": []}')
    assert f"--output: expected a folder, got '{name}', which cannot be written to" in refused(
        ["bench", "report", str(path), "--output", name], capsys
    )


def test_a_file_is_replaced_whole_or_stays(tmp_path):
    target = tmp_path / "file.txt"
    for text in ("one", "two"):
        with files.replacing(target) as part:
            assert part.suffix == ".txt" and part.parent == tmp_path
            part.write_text(text)
        assert target.read_text() == text and list(tmp_path.iterdir()) == [target]
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(target.stat().st_mode) == 0o666 & ~umask
    target.chmod(0o640)
    link = tmp_path / "link.txt"
    link.symlink_to(target)
    with files.replacing(link) as part:
        part.write_text("three")
    assert link.is_symlink() and target.read_text() == "three" and stat.S_IMODE(target.stat().st_mode) == 0o640
    with files.replacing("/dev/null") as part:
        assert part == Path("/dev/null")
    for error in (KeyboardInterrupt, OSError):
        with pytest.raises(error), files.replacing(target) as part:
            part.write_text("half")
            raise error
    assert target.read_text() == "three" and len(list(tmp_path.iterdir())) == 2


# Ctrl-C ---------------------------------------------------------------------------------------------------------------


def half(writer):
    """Return a writer that Ctrl-C stops half-way."""

    def write(*arguments, **options):
        writer(*arguments, **options)
        raise KeyboardInterrupt

    return write


FIGURE, TEXT = "matplotlib.figure.Figure.savefig", "pathlib.Path.write_text"


@pytest.mark.parametrize(
    ("words", "name", "writer"),
    [
        ([*SIMULATE, "--save"], "run.npz", "numpy.savez_compressed"),
        ([*SIMULATE, "--plot"], "run.png", FIGURE),
        ([*IMPACT, "--output"], "impact.json", TEXT),
        ([*IMPACT, "--output"], "impact.csv", "csv.writer"),
        ([*IMPACT, "--plot"], "impact.png", FIGURE),
        (["bench", "--sweeps", "env markets", "--backends", "NumPy", "--resume", "--output"], "bench.json", TEXT),
        (["bench", "report", "bench.json", "--output"], "tables.md", TEXT),
        (["bench", "report", "bench.json", "--output"], "throughput.png", FIGURE),
    ],
)
def test_ctrl_c_leaves_no_half_of_a_file(words, name, writer, tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "docs" / "benchmarks" / "cpu.json", "bench.json")
    target = tmp_path / name
    if name != "bench.json":
        target.write_text("before")
    before = target.read_bytes()
    whole = pkgutil.resolve_name(writer)

    def half(*arguments, **options):
        whole(*arguments, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(writer, half)
    assert main([*words, str(tmp_path) if "report" in words else name]) == 130
    assert capsys.readouterr().err.endswith("interrupted\n")
    assert target.read_bytes() == before
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".")]  # what was under way


def test_ctrl_c_ends_a_run(tmp_path):
    words = ["simulate", "--device", "cpu", "--warmup", "100000000", "--save", str(tmp_path / "run.npz")]
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite in the background ignores Ctrl-C
    process = subprocess.Popen(
        [sys.executable, "-m", "kineticsim_env", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT
    )
    signal.signal(signal.SIGINT, inherited)
    try:
        process.stderr.readline()  # that the engine is chosen
        time.sleep(1.0)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130 and err.endswith(b"interrupted\n") and b"Traceback" not in err and not out
    assert not list(tmp_path.iterdir())


# Output that cannot be written ----------------------------------------------------------------------------------------


def test_a_reader_who_has_had_enough_ends_a_command_quietly(monkeypatch, capsys):
    reading, writing = os.pipe()
    os.close(reading)
    with io.TextIOWrapper(os.fdopen(writing, "wb")) as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert main(["doctor"]) == 141
    assert not capsys.readouterr().err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_full_disk_is_an_error(monkeypatch, capsys):
    with open("/dev/full", "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert main(["doctor"]) == 2
    assert "No space left" in capsys.readouterr().err


def test_a_terminal_without_all_signs_gets_the_results(monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    assert main(SIMULATE) == 0
    assert b"\\xb1" in raw.getvalue()
