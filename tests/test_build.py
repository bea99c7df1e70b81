"""The just-in-time builds: cache, locks, forks and missing tools, and what the doctor says about them.

Builds run in processes of their own, most of them forked from this one, with a cache of their own, on a source of a few
lines where that is enough.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile

import pytest
import torch
from build_helpers import (
    ENGINE,
    LOAD,
    TINY_CPU,
    fork,
    needs_compiler,
    run,
    run_python,
    script,
    sources,
    start,
    wait_until,
)
from thorough import slow

from kineticsim_env.errors import EngineUnavailable
from kineticsim_env.runtime import build, cache, doctor

__all__ = ["sources"]  # a fixture


# ---- The C++ engine ------------------------------------------------------------------------------------------------


@needs_compiler
def test_the_engine_builds_once_and_then_comes_from_the_cache(sources):
    out, err, code = run(sources, LOAD)
    assert (out, code) == ("answer 42\n", 0), err
    assert "compiling the C++ engine" in err and str(sources.parent / "cache") in err
    assert run(sources, LOAD) == ("answer 42\n", "", 0)


@needs_compiler
def test_a_changed_source_is_built_anew(sources):
    run(sources, LOAD)
    (sources / "market_cpu.cpp").write_text(TINY_CPU.replace("42", "43"))
    out, err, _ = run(sources, LOAD)
    assert out == "answer 43\n" and "compiling" in err


@slow
@needs_compiler
def test_processes_that_start_at_once_build_once(sources):
    processes = [start(sources, LOAD) for _ in range(3)]
    results = [process.communicate(timeout=120) for process in processes]
    assert [out for out, _ in results] == ["answer 42\n"] * 3, results
    assert "".join(err for _, err in results).count("compiling the C++ engine") == 1


@slow
@needs_compiler
def test_what_a_killed_build_left_is_removed(sources):
    run(sources, LOAD)
    [library] = (sources.parent / "cache").glob("ks_cpu_*.so")
    left = library.with_name(f"{library.name}.build-of-one-that-was-killed")
    left.mkdir()
    (left / "probe.cpp").touch()
    library.unlink()
    out, err, _ = run(sources, LOAD)
    assert out == "answer 42\n", err
    assert not left.exists()


def test_what_a_compiler_writes_as_its_folder_is_removed(tmp_path, monkeypatch):
    """It outlives the process that built. What it wrote between the listing of its folder and the removal stayed."""
    left = tmp_path / "entry.build-of-one-that-was-killed"
    left.mkdir()
    remove, late = os.rmdir, iter(["agents.o", "agents.so"])

    def rmdir(path, **how):
        if name := next(late, None):
            (left / name).touch()
        remove(path, **how)

    monkeypatch.setattr(os, "rmdir", rmdir)
    cache._make_entry(tmp_path / "entry", lambda folder: b"made")
    assert next(late, None) is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["entry", "entry.sha256"]


@needs_compiler
def test_a_killed_holder_gives_the_lock_back(sources):
    """The waiting process says that it waits, and goes on when the holder dies."""
    code = "import time\nbuild._build_cpu = lambda *_: (open('held', 'w'), time.sleep(600))\nbuild.load_cpu()"
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        holder = fork(sources, code, out, err)
        wait_until((sources.parent / "held").exists)
        waiting = fork(sources, LOAD, out, err)
        wait_until(lambda: b"waiting for another process" in os.pread(err.fileno(), 10_000, 0))
        os.kill(holder, signal.SIGKILL)
        assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in (holder, waiting)] == [-9, 0]
        assert os.pread(out.fileno(), 100, 0) == b"answer 42\n"


@slow  # one that is cut short, in test_engine_trust.py, is not
@needs_compiler
def test_a_broken_library_in_the_cache_is_replaced(sources):
    run(sources, LOAD)
    [library] = (sources.parent / "cache").rglob("ks_cpu_*.so")
    library.write_bytes(b"not a library")
    assert run(sources, LOAD)[0] == "answer 42\n"


@needs_compiler
def test_a_compiler_without_march_openmp_and_cpp20_will_do(sources):
    refuse = '-march=native|-mcpu=native|-fopenmp|-std=c++20) echo "unknown option $argument" >&2; exit 1'
    body = f'for argument; do case "$argument" in {refuse};; esac; done\nexec c++ "$@"'
    out, err, _ = run(sources, LOAD, CXX=str(script(sources.parent / "plain-g++", body)))
    assert out == "answer 42\n" and "no OpenMP" in err, err


CATCH = """
from kineticsim_env.errors import EngineUnavailable
for _ in range(2):
    try:
        build.load_cpu()
    except EngineUnavailable as error:
        print(error)
"""


@pytest.mark.parametrize("compiler", ["/bin/false", "no-such-compiler"])
def test_a_wrong_compiler_is_named(sources, compiler):
    out, err, code = run(sources, CATCH, CXX=compiler)
    assert code == 0 and out.count(compiler) == 2 and "CXX" in out, (out, err)


@needs_compiler
def test_an_error_in_the_source_shows_the_compilers_words_and_is_not_tried_twice(sources):
    (sources / "market_cpu.cpp").write_text("int broken = undeclared_name;\n")
    out, err, _ = run(sources, CATCH)
    assert out.count("undeclared_name") >= 2 and "did not build the C++ engine" in out
    assert err.count("compiling") == 1


def engine_compiler(path, first, source="market_cpu.cpp"):
    """Write a compiler that does something else first where it is given the engine's source; return its path."""
    return script(path, f'case "$*" in *{source}*) {first};; esac\nexec c++ "$@"')


def compiler_that_waits(folder, source="market_cpu.cpp"):
    """Write one that says in a folder that it has started, and waits there until it may go on."""
    wait = "touch started; while [ ! -e go ]; do sleep 0.05; done"
    return engine_compiler(folder / "slow-g++", f"cd {folder}; {wait}; cd - > /dev/null", source)


def _may_mount():
    mount = ["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return shutil.which("unshare") is not None and subprocess.run(mount, capture_output=True).returncode == 0


@needs_compiler
@pytest.mark.skipif(not _may_mount(), reason="no file system can be mounted here")
@pytest.mark.parametrize(
    "room", [pytest.param("8k", marks=slow), "40k"]
)  # for not even the first words, and for those of the compiler
def test_a_full_disk_is_named_and_what_to_do(sources, room):
    place = sources.parent / "small"
    place.mkdir()
    code = (
        "from pathlib import Path\nfrom kineticsim_env.runtime import build\n"
        f"build.cuda_dir = lambda: Path({str(sources)!r})\n{CATCH}"
    )
    environment = {**os.environ, "KINETICSIM_CACHE": str(place / "cache"), "TMPDIR": str(place)}
    shell = 'mount -t tmpfs -o "size=$0" tmpfs "$1" && "$2" -c "$3"'
    words = ["unshare", "-rm", "sh", "-c", shell, room, str(place), sys.executable, code]
    done = subprocess.run(words, env=environment, cwd=build.cuda_dir().parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = f"no space is left on the disk of {place}"
    assert done.stdout.count(said) == 2, (done.stdout, done.stderr)
    assert "; free some, or let KINETICSIM_CACHE and TMPDIR name folders on another disk" in done.stdout


@needs_compiler
def test_a_compiler_that_finds_no_room_is_tried_in_the_temporary_folder(sources):
    path = engine_compiler(
        sources.parent / "full-g++", "case $PWD in */cache/*) echo 'No space left on device'; exit 1;; esac"
    )
    out, err, _ = run(sources, LOAD, CXX=str(path), TMPDIR=str(sources.parent))
    assert out == "answer 42\n" and f"no space is left on the disk of {sources.parent / 'cache'}" in err, err


FORK = (
    ENGINE
    + """
#include <ATen/Parallel.h>
#include <atomic>
extern "C" int64_t ks_answer() {
  std::atomic<int64_t> sum{0};
  at::parallel_for(0, 42, 1, [&](int64_t begin, int64_t end) { sum += end - begin; });
  return sum;
}
"""
)


@slow
@needs_compiler
def test_the_engine_runs_in_a_fork_of_a_process_that_used_it(sources):
    """OpenMP's threads do not survive a fork, and a child that waits for them would hang."""
    (sources / "market_cpu.cpp").write_text(FORK)
    code = (
        "import os, torch\ntorch.set_num_threads(2)\nengine = build.load_cpu()\nengine.ks_answer()\nchild = os.fork()\n"
    )
    code += "os.write(1, b'%d\\n' % engine.ks_answer())\nif child: os.waitpid(child, 0)"
    out, err, _ = run_python(sources, code)  # a fork of this one could not start OpenMP's threads
    assert out == "42\n42\n", err


FORK_WHILE_BUILDING = """
import os, signal, threading, time, torch
torch.set_num_threads(2)
torch.ones(10**7).sum()  # starts threads
building = threading.Thread(target=build.load_cpu, daemon=True)
building.start()
while not os.path.exists("started"):
    time.sleep(0.01)
child = os.fork()
if child == 0:
    signal.alarm(300)  # a build on a machine that is busy takes a minute
if child and DIES:
    os.kill(os.getpid(), signal.SIGKILL)
open("go", "w").close()
os.write(1, b"%d\\n" % build.load_cpu().ks_answer())
if child:
    os.waitpid(child, 0)
os._exit(0)
"""


@needs_compiler
@pytest.mark.parametrize("dies", [False, pytest.param(True, marks=slow)], ids=["", "whose parent dies"])
def test_a_child_that_is_forked_during_a_build_has_an_engine(sources, dies):
    """The thread that builds, and holds two locks, is not there; what it holds must not be waited for."""
    (sources / "market_cpu.cpp").write_text(FORK)
    code = FORK_WHILE_BUILDING.replace("DIES", str(dies))
    out, err, status = run_python(sources, code, CXX=str(compiler_that_waits(sources.parent)))
    assert out == ("42\n" if dies else "42\n42\n"), (out, err, status)
    assert err.count("compiling the C++ engine") == (2 if dies else 1), err
    assert not [path for path in (sources.parent / "cache").iterdir() if ".build-" in path.name]


BESIDE = """
import os, time
build.begin_operators()
while not os.path.exists("started"):
    time.sleep(0.01)
print(build.once("kernel", lambda: "something else"), flush=True)  # before the compiler goes on
open("go", "w").close()
print(build.load_operators().ks_played(0))
"""


@needs_compiler
def test_operators_are_built_beside_other_work_and_waited_for_when_they_are_needed(sources):
    out, err, _ = run(sources, BESIDE, CXX=str(compiler_that_waits(sources.parent, "operators.cpp")))
    assert out == "something else\n0\n" and err.count("compiling operators for torch") == 1, (out, err)
    assert {path.name[:9] for path in (sources.parent / "cache").iterdir()} == {"ks_operat"}  # and no engine


@needs_compiler
def test_what_another_thread_cannot_build_is_said_when_it_is_needed(sources):
    (sources / "operators.cpp").write_text("int broken = undeclared_name;\n")
    out, err, _ = run(sources, "build.begin_operators()\n" + CATCH.replace("load_cpu", "load_operators"))
    assert out.count("did not build the C++ engine") == 2, out
    assert err.count("compiling") == 1 and "Traceback" not in err


INTERRUPTED = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it, and so would all below
try:
    build.load_cpu()
except KeyboardInterrupt:
    print("interrupted")
open("go", "w").close()
print(build.load_cpu().ks_answer())
"""


@needs_compiler
def test_a_compiler_that_is_interrupted_has_not_failed(sources):
    """Ctrl-C reaches the compiler, too, and perhaps no other thread than the main one."""
    ends = engine_compiler(sources.parent / "g++-that-ends", f"[ -e {sources.parent}/go ] || kill -INT $$")
    out, err, _ = run(sources, INTERRUPTED, CXX=str(ends))
    assert out == "interrupted\n42\n", (out, err)
    assert not [path for path in (sources.parent / "cache").iterdir() if ".build-" in path.name]


@needs_compiler
def test_the_plan_is_a_library_of_its_own(tmp_path):
    """It is there long before the C++ engine: it includes nothing of torch."""
    out, err, _ = run(build.cuda_dir(), "print(build.load_plan())", KINETICSIM_CACHE=str(tmp_path))
    assert "ks_plan" in out and not err, err
    assert {path.name[:8] for path in tmp_path.iterdir()} == {"ks_plan_"}


@needs_compiler
def test_operators_need_no_engine_and_are_not_loaded_twice():
    code = """
import os
first = os.fork()  # without an engine; then with one
asked, load = [], build._load
build._load = lambda name, *rest: asked.append(name) or load(name, *rest)
if first:
    os.waitpid(first, 0)
    build.load_cpu()
from kineticsim_env.engines import operators
operators.library(), build.begin_operators()
import torch
torch.ops.kineticsim.step
print(*asked, flush=True)
"""
    out, err, _ = run_python(build.cuda_dir(), code, KINETICSIM_CACHE=str(build.cache_dir()))
    assert out == "operators\ncpu\n", err


@slow
def test_importing_compiles_nothing(sources):
    modules = ["build", "cache", "cxx", "doctor", "driver", "kernels", "nvcc", "nvrtc"]
    code = "import sys\n" + "".join(f"import kineticsim_env.runtime.{name}\n" for name in modules)
    code += "print('torch.utils.cpp_extension' in sys.modules)"
    assert run_python(sources, code, CXX="/bin/false") == ("False\n", "", 0)
    assert not (sources.parent / "cache").exists()


@slow
@needs_compiler
def test_the_real_engine_loads(tmp_path):
    out, err, _ = run(build.cuda_dir(), "print(build.load_cpu())", KINETICSIM_CACHE=str(tmp_path))
    assert "CDLL" in out, err


# ---- The cache -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", ["file/below", "/proc/kineticsim"])
def test_a_cache_that_cannot_be_written_falls_back_to_a_temporary_folder(tmp_path, monkeypatch, capsys, wanted):
    (tmp_path / "file").touch()
    monkeypatch.setenv("KINETICSIM_CACHE", str(tmp_path / wanted))
    monkeypatch.setattr(cache.tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    folder = cache.cache_dir()
    assert folder == tmp_path / "tmp" / f"kineticsim_env-{os.getuid()}" and folder.stat().st_mode & 0o777 == 0o700
    assert cache.cache_dir() == folder
    assert capsys.readouterr().err.count("KINETICSIM_CACHE") == 1


@pytest.mark.skipif(os.getuid() == 0, reason="root writes anywhere")
def test_a_read_only_cache_falls_back(tmp_path, monkeypatch):
    (tmp_path / "cache").mkdir(mode=0o500)
    monkeypatch.setenv("KINETICSIM_CACHE", str(tmp_path / "cache"))
    assert cache.cache_dir() != tmp_path / "cache"


def test_another_users_temporary_folder_is_not_used(tmp_path, monkeypatch):
    """A link could lead to a folder that somebody else fills."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / f"kineticsim_env-{os.getuid()}").symlink_to(tmp_path / "theirs")
    monkeypatch.setenv("KINETICSIM_CACHE", "/proc/kineticsim-link")
    monkeypatch.setattr(cache.tempfile, "tempdir", str(tmp_path))
    folder = cache.cache_dir()
    assert folder.parent == tmp_path and not folder.is_symlink()


def test_the_cache_folder_follows_the_environment(tmp_path, monkeypatch):
    monkeypatch.delenv("KINETICSIM_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache.cache_dir() == tmp_path / "xdg" / "kineticsim_env"
    monkeypatch.setenv("KINETICSIM_CACHE", str(tmp_path / "own"))
    assert cache.cache_dir() == tmp_path / "own"


def test_a_lock_that_stays_held_ends_in_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "LOCK_SECONDS", 0.2)
    with cache.locked(tmp_path / "entry"), pytest.raises(EngineUnavailable, match="entry.lock"):
        with cache.locked(tmp_path / "entry"):
            pass


def test_the_source_hash_sees_names_and_contents(sources, monkeypatch):
    monkeypatch.setattr(build, "cuda_dir", lambda: sources)
    hashes = {build.source_hash()}
    (sources / "__pycache__").mkdir()
    (sources / "__pycache__" / "x.pyc").touch()
    assert build.source_hash() in hashes
    (sources / "model" / "layout.h").rename(sources / "model" / "layout2.h")
    hashes.add(build.source_hash())
    (sources / "model" / "layout2.h").write_text("")
    hashes.add(build.source_hash())
    assert len(hashes) == 3


# ---- Doctor --------------------------------------------------------------------------------------------------------


def test_the_doctor_says_what_is_there_and_what_is_missing(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("KINETICSIM_CACHE", str(tmp_path / "cache"))
    status = doctor.main()
    text = capsys.readouterr().out
    for word in (torch.__version__, str(tmp_path / "cache"), "numpy", "cpu", "cuda", "NVRTC", 'engine="auto" takes'):
        assert word in text
    assert status == (0 if build.cpu_unavailable() is None else 1) or torch.cuda.is_available()
    monkeypatch.setenv("CXX", "/bin/false")
    doctor.main()
    assert "/bin/false does not run" in capsys.readouterr().out
