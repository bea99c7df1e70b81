"""What CXX and KINETICSIM_CXXFLAGS may hold: launchers, flags, spaces, nothing, and what a shell could not read."""

import os
import shlex
import shutil
import subprocess

import pytest
from build_helpers import LOAD, TINY_CPU, load, needs_compiler, run_python, script, sources
from thorough import slow

from kineticsim_env.runtime import build, doctor
from scripts.fuzz import sanitizers

__all__ = ["sources"]  # a fixture

REAL = shlex.join([shutil.which(word) or word for word in shlex.split(build.find_cxx() or "c++")])
CATCH = """
from kineticsim_env.errors import EngineUnavailable
try:
    build.load_cpu()
except EngineUnavailable as error:
    print(error)
"""


@needs_compiler
@pytest.mark.parametrize("flags", ["", "-O1 -DKS_MARK=7"])
def test_a_launcher_before_the_compiler_and_flags_behind_it(sources, flags):
    """It is started once for each call, though torch puts a ccache that it finds before the compiler itself."""
    folder, log = sources.parent / "bin", sources.parent / "log"
    script(folder / "ccache", f'echo "$@" >> {log}\nexec "$@"')
    path = os.pathsep.join([str(folder), os.environ["PATH"]])
    if flags:
        text = "#ifndef KS_MARK\n#define KS_MARK 0\n#endif\n" + TINY_CPU.replace("42", "KS_MARK")
        (sources / "market_cpu.cpp").write_text(text)
    out, err, _ = load(sources, PATH=path, CXX=f"ccache {REAL} {flags}")
    assert out == ("answer 7\n" if flags else "answer 42\n"), err
    calls = log.read_text().splitlines()
    assert sum("market_cpu.cpp" in call for call in calls) == 1, calls
    assert all(call.startswith(f"{REAL} {flags}".strip()) for call in calls), calls
    assert load(sources, PATH=path, CXX=f"ccache {REAL} {flags}") == (out, "", 0)


@needs_compiler
@pytest.mark.parametrize(
    "quote", [str, pytest.param(lambda path: shlex.quote(str(path)), marks=slow)], ids=["plain", "quoted"]
)
def test_a_path_with_spaces(sources, quote):
    compiler = script(sources.parent / "my own tools" / "g++", f'exec {REAL} "$@"')
    out, err, _ = load(sources, CXX=quote(compiler))
    assert out == "answer 42\n", err


@needs_compiler
def test_a_cache_with_spaces_and_flags_behind_the_compiler(sources):
    spaced = sources.parent / "a cache"
    out, err, _ = load(sources, CXX=f"{REAL} -O1", KINETICSIM_CACHE=str(spaced))
    assert out == "answer 42\n", err


@needs_compiler
def test_a_relative_path(sources):
    """It is run in another folder than this one."""
    script(sources.parent / "tools" / "g++", f'exec {REAL} "$@"')
    out, err, _ = load(sources, CXX="tools/g++")
    assert out == "answer 42\n", err


@pytest.mark.parametrize("wrong", [" ", "g++ 'unclosed", "no-such-launcher g++"])
def test_what_names_no_compiler_is_said(sources, wrong):
    out, err, code = load(sources, CXX=wrong)
    assert code == 0 and f"CXX={wrong!r} is not found; set it to a C++ compiler, or unset it" in out, (out, err)


@pytest.mark.parametrize("wrong", [" ", "g++ 'unclosed"])
def test_the_doctor_reads_what_names_no_compiler(monkeypatch, tmp_path, wrong):
    monkeypatch.setenv("KINETICSIM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CXX", wrong)
    assert f"unavailable: CXX={wrong!r} is not found" in doctor.report()


@needs_compiler
def test_a_launcher_of_no_compiler_is_named(sources):
    script(sources.parent / "ccache", 'exec "$@"')
    out, err, code = load(sources, CXX=f"{sources.parent}/ccache no-such-compiler")
    assert code == 0 and "no-such-compiler does not run" in out and "set CXX" in out, (out, err)


# ---- KINETICSIM_CXXFLAGS -------------------------------------------------------------------------------------------


@needs_compiler
def test_further_flags_make_another_library(sources):
    (sources / "market_cpu.cpp").write_text(TINY_CPU.replace("42", "sizeof(KS_TEXT)"))
    for text in ("short", "a $HOME, 'quoted'"):
        flags = shlex.quote(f'-DKS_TEXT="{text}"')
        out, err, _ = load(sources, KINETICSIM_CXXFLAGS=flags)
        assert out == f"answer {len(text) + 1}\n" and "compiling" in err, err
        assert load(sources, KINETICSIM_CXXFLAGS=flags) == (out, "", 0)


@slow
@needs_compiler
def test_further_flags_come_last_and_reach_the_linker(sources):
    (sources / "market_cpu.cpp").write_text(
        TINY_CPU.replace("return 42", "\n#ifdef __OPTIMIZE__\n!\n#endif\nreturn 42")
    )
    out, err, _ = load(sources, KINETICSIM_CXXFLAGS="-O0")
    assert out == "answer 42\n", err
    out, err, _ = load(sources, KINETICSIM_CXXFLAGS="-O0 -lno_such_library")
    assert "did not build the C++ engine" in out and "no_such_library" in out, (out, err)


@pytest.mark.parametrize("wrong", ["-g '"])
def test_further_flags_that_cannot_be_read_are_named(sources, wrong):
    out, err, code = load(sources, KINETICSIM_CXXFLAGS=wrong)
    assert code == 0 and f"KINETICSIM_CXXFLAGS={wrong!r} cannot be read: " in out, (out, err)


def test_the_doctor_shows_further_flags(monkeypatch, tmp_path):
    monkeypatch.setenv("KINETICSIM_CACHE", str(tmp_path / "cache"))
    assert "KINETICSIM_CXXFLAGS" not in doctor.report()
    monkeypatch.setenv("KINETICSIM_CXXFLAGS", "-g -O1")
    assert "KINETICSIM_CXXFLAGS -g -O1" in doctor.report()


@needs_compiler
def test_the_doctor_warns_of_a_compiler_that_links_the_cpp_library_statically(monkeypatch, tmp_path):
    monkeypatch.setenv("KINETICSIM_CACHE", str(tmp_path / "cache"))
    warning = "WARNING: the compiler links the C++ library statically"
    monkeypatch.setenv("CXX", REAL)
    if warning in doctor.report():
        pytest.skip("the compiler itself does")
    (tmp_path / "probe.cpp").write_text("int probe() { throw 1; }\n")
    command = [*shlex.split(REAL), "-static-libstdc++", "-shared", "-fPIC", "probe.cpp", "-o", "probe.so"]
    if subprocess.run(command, cwd=tmp_path, capture_output=True).returncode:
        pytest.skip("there is no static C++ library")
    monkeypatch.setenv("CXX", str(script(tmp_path / "g++", f'exec {REAL} -static-libstdc++ "$@"')))
    report = doctor.report()
    assert warning in report and "CXX=/usr/bin/g++" in report
    monkeypatch.setenv("CXX", str(script(tmp_path / "g++", f'[ "$1" = --version ] && exec {REAL} "$@"; exit 1')))
    assert warning not in doctor.report(), "it links nothing"


@slow
@needs_compiler
def test_sanitizers_see_what_the_engine_does(sources):
    runtime = sanitizers.runtime("libasan.so")
    if runtime is None:
        pytest.skip("no AddressSanitizer that runs here")
    bad = "volatile int one = 1, *place = new int[one]; return place[one + 1] + 42;"
    (sources / "market_cpu.cpp").write_text(TINY_CPU.replace("return 42;", bad))
    environment = {"KINETICSIM_CXXFLAGS": "-fsanitize=address,undefined -g"}
    out, err, code = run_python(sources, CATCH, **environment)
    assert code == 0 and "did not build" in out and "LD_PRELOAD" in out, (out, err)  # its runtime is not there

    environment |= {"LD_PRELOAD": runtime, "ASAN_OPTIONS": "detect_leaks=0"}
    out, err, code = run_python(sources, LOAD, **environment)
    assert code != 0 and "heap-buffer-overflow" in err and "market_cpu.cpp" in err, (out, err)
