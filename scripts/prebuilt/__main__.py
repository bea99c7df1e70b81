"""`python -m scripts.prebuilt`: build the C++ engine ahead of its use, for the kinds of processors that a wheel serves.

A library of each has the engine, tapes and the plans of launches on a GPU. It needs neither torch nor Python, only a C
library that is no older than `GLIBC`. The compiler is zig's, of the package `ziglang`, which brings the C++ library
that is linked in and headers for other processors: on any Linux it makes the same libraries.

    python -m scripts.prebuilt                       # into build/prebuilt, from where a wheel takes them (setup.py)
    python -m scripts.prebuilt --machine aarch64 --output FOLDER
    python -m scripts.prebuilt --compiler g++        # another compiler: for this machine's C library, and newer ones
"""

import argparse
import hashlib
import importlib.util
import platform
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent


def of_the_package(name: str) -> Any:
    """Return a module of kineticsim_env/runtime that needs Python alone: there may be neither torch nor gymnasium."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "kineticsim_env" / "runtime" / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


prebuilt, sources = of_the_package("prebuilt"), of_the_package("sources")
GLIBC = "2.17"  # of 2012
FLAGS = ("-std=c++17", "-O3", "-ffp-contract=off", "-fwrapv", "-fPIC", "-DNDEBUG")
SOURCES = ("market_cpu.cpp", "plan.cpp", "tape/tape.cpp")


def build(kind: str, output: Path, compiler: str | None = None) -> Path:
    """Build the library for processors of a kind of `prebuilt.KINDS`, by zig or another compiler; returns its file."""
    machine, level = prebuilt.KINDS[kind].machine, kind if prebuilt.KINDS[kind].machine == "x86_64" else ""
    if compiler:
        command = [compiler, *([f"-march={level}"] if level else ()), "-static-libgcc", "-static-libstdc++", "-pthread"]
    else:
        command = [sys.executable, "-m", "ziglang", "c++", "-target", f"{machine}-linux-gnu.{GLIBC}"]
        command += ["-fno-sanitize=undefined", *([f"-mcpu={level.replace('-', '_')}"] if level else ())]
    includes = [
        f"-I{HERE}",
        f"-I{sources.cuda_dir()}",
        f"-DKS_SOURCES=0x{sources.engine_hash(sources.cuda_dir())[:15]}",
    ]
    files = [*(sources.cuda_dir() / name for name in SOURCES), HERE / "threads.cpp"]
    built = output / prebuilt.file_name(kind)
    with tempfile.TemporaryDirectory() as folder:
        objects = [Path(folder, f"{file.stem}.o") for file in files]

        def compiled(file: Path, to: Path) -> None:
            run([*command, *FLAGS, *includes, "-c", str(file), "-o", str(to)])

        with ThreadPoolExecutor() as pool:
            list(pool.map(compiled, files, objects))
        exported = f"-Wl,--version-script={HERE / 'exported.map'}"
        run([*command, "-shared", "-s", exported, *map(str, objects), "-o", str(built)])
    digest = hashlib.sha256(built.read_bytes()).hexdigest()
    built.with_name(f"{built.name}.sha256").write_text(f"{digest}  {built.name}\n")  # as runtime/cache.py reads it
    return built


def run(command: list[str]) -> None:
    """Run a compiler. Raises SystemExit with what it says if it fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr[-4000:]}")


def main() -> None:
    """Build the libraries of a machine's kinds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    machines = sorted({kind.machine for kind in prebuilt.KINDS.values()})
    parser.add_argument("--machine", choices=machines, default=platform.machine(), help="default: this one")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "prebuilt", help="default: build/prebuilt")
    parser.add_argument("--compiler", help="default: zig's")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    for kind, about in prebuilt.KINDS.items():
        if about.machine == options.machine:
            built = build(kind, options.output, options.compiler)
            print(f"{built.name}: {built.stat().st_size / 1e6:.1f} MB", flush=True)


if __name__ == "__main__":
    main()
