"""Count instructions, to see without a GPU or a clock whether a change slows the C++ engine or grows the CUDA kernel.

The C++ engine: how many instructions it executes in fixed workloads, counted by valgrind. The kernel: registers per
thread, instructions and spilled bytes of some variants, told by nvcc and ptxas for sm_90. `make counts` compares with
docs/benchmarks/instruction_counts.json, in CI too. Counts mean something only between builds of one compiler: under
another one, or where a tool is missing, that half is skipped and the output says so. They are no speeds: a change that
counts more and is measured to be faster is a good change, whose counts `--write` records.
"""

import argparse
import json
import os
import platform
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from kineticsim_env.runtime import build, layout, nvcc

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "docs" / "benchmarks" / "instruction_counts.json"
# What a count may grow by before it is an error. Counts of one build vary by less than 0.01%; another
# Python or torch adds its own few per mille. A register more can cost a whole block per multiprocessor.
MARGINS = {"registers": 0.0, "spilled_bytes": 0.0, "instructions": 0.03, "executed": 0.03}

# ---- The kernel ----------------------------------------------------------------------------------------------------

ARCH = "sm_90"
CONSTANTS = {f"p.{field.path}": -1 if "limit" in name else 3 for name, field in layout.PARAMS_FIELDS.items()}
CONSTANTS = ",".join(f"{path}={value}" for path, value in CONSTANTS.items() if path != "p.fee")  # that one is read
COMPILED_IN = {"KS_LEVELS": 128, "KS_PARAMETER_CONSTANTS": CONSTANTS}
CONTINUOUS = {"KS_EVENTS": 2, "KS_SLOTS": 1, "KS_TASK": 1, **COMPILED_IN}
ENVIRONMENT = {"KS_BINS": 32, "KS_OPTIONS": 1, "KS_SLOTS": 1, "KS_TASK": 1, "KS_LEVERS": 1}  # the coin of their preset
VARIANTS = {
    "market": {"KS_BINS": 32, "KS_OPTIONS": 0, "KS_SLOTS": 0, "KS_TASK": 0},
    "market with options and learners": {"KS_BINS": 32, "KS_OPTIONS": 1, "KS_SLOTS": 2, "KS_TASK": 0},
    "environments, a tile per warp": ENVIRONMENT,
    "environments, one per warp": {**ENVIRONMENT, "KS_SINGLE": 1, "KS_BLOCKS": 2},
    "environments, one per lane": {**ENVIRONMENT, **COMPILED_IN, "KS_BINS": 0, "KS_LANES": 30},
    "continuous trading, an environment per warp": {**CONTINUOUS, "KS_LANES_PER_MARKET": 32},
    "continuous trading, an environment per lane": {**CONTINUOUS, "KS_LANES_PER_MARKET": 1},
}  # fmt: skip


def size_of_code(cubin: bytes) -> int:
    """Return the bytes of the kernel's machine code in a cubin: the size of its ELF section."""
    (table,), (entry, count, names) = struct.unpack_from("<Q", cubin, 40), struct.unpack_from("<HHH", cubin, 58)
    sections = [struct.unpack_from("<IIQQQQ", cubin, table + entry * i) for i in range(count)]
    text = sections[names][4]  # where the sections' names start
    section = f".text.{build.ENTRY}\0".encode()
    return sum(size for name, *_, size in sections if cubin[text + name :].startswith(section))


def count_kernel(compiler: str, defines: dict) -> dict[str, int]:
    """Compile one variant; return its registers per thread, instructions, and spilled bytes per thread."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "kernel.cubin"
        command = [compiler, f"-arch={ARCH}", "--cubin", "-std=c++17", "--fmad=false", "-Xptxas", "-v"]
        definitions = [f"-D{name}={value}" for name, value in defines.items()]
        command += [definition.replace(",", "\\,") for definition in definitions]  # to nvcc a comma ends an option
        command += [f"-I{build.cuda_dir()}", str(build.cuda_dir() / build.KERNEL_SOURCE), "-o", str(output)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{compiler} did not compile the kernel:\n{done.stderr[-4000:]}")
        said = done.stderr.split(f"entry function '{build.ENTRY}'")[1].split("entry function")[0]
        [registers] = re.findall(r"Used (\d+) registers", said)
        spilled = re.findall(r"(\d+) bytes spill (?:stores|loads)", said)
        size = size_of_code(output.read_bytes())
    return {"registers": int(registers), "instructions": size // 16, "spilled_bytes": sum(map(int, spilled))}


def kernel_counts() -> dict | str:
    """Return the compiler and the counts of every variant, or why there are none."""
    if (path := nvcc.find()) is None:
        return "no nvcc is found in CUDA_HOME, on PATH or in /usr/local/cuda"
    return {
        "compiler": f"nvcc {'.'.join(map(str, nvcc.version(path)))}, {ARCH}",
        "counts": {name: count_kernel(path, defines) for name, defines in VARIANTS.items()},
    }


# ---- The C++ engine ------------------------------------------------------------------------------------------------

# Fixed instructions, not -march=native, so that counts do not depend on the machine; valgrind knows no AVX-512 either.
FLAGS = {"x86_64": "-march=x86-64-v3", "aarch64": "-mcpu=neoverse-n1"}

# Switches counting on and off from inside: Python and torch start much faster while nothing is counted.
SWITCH = """
#include <valgrind/callgrind.h>
extern "C" void count(int on) {
  if (on) { CALLGRIND_START_INSTRUMENTATION; CALLGRIND_ZERO_STATS; } else { CALLGRIND_STOP_INSTRUMENTATION; }
}
extern "C" void dump(const char* name) { CALLGRIND_DUMP_STATS_AT(name); }
"""

# Runs in a process of its own, under valgrind; its arguments are the switch's library and how often to do the work.
WORKLOADS = """
import ctypes, sys
import gymnasium, numpy, torch
import kineticsim_env as ks

switch = ctypes.CDLL(sys.argv[1])
torch.set_num_threads(1)

def counted(name, work):
    work()  # once before, for what only a first call does
    switch.count(1)
    work()
    switch.dump(name.encode())
    switch.count(0)

plain = ks.Simulator(ks.MarketConfig.preset("paper"), num_markets=8, engine="cpu", seed=1)
counted("run, preset paper", lambda: plain.run(1000))
options = ks.Simulator(ks.MarketConfig.preset("trading"), num_markets=8, engine="cpu", seed=1)
counted("run, preset trading", lambda: options.run(1000))
default = ks.Simulator(ks.MarketConfig.preset("news"), num_markets=8, engine="cpu", seed=1)
counted("run, preset news", lambda: default.run(500))
for task, preset in (("MarketMaking", "trading"), ("Execution", "trading"), ("MarketMaking", "news")):
    envs = gymnasium.make_vec(f"KineticSim/{task}-v0", num_envs=2048, engine="cpu", preset=preset)
    envs.reset(seed=1)
    actions = numpy.zeros(envs.action_space.shape, dtype=numpy.float32)
    def steps():
        for _ in range(5):  # few steps of many markets, so that Python's own part is small
            envs.step(actions)
    counted(f"environment steps, {task}" + ("" if preset == "trading" else f", preset {preset}"), steps)
"""


def under_valgrind(
    work: str, arguments: Sequence[str], folder: Path, environment: dict[str, str], *options: str
) -> dict[str, str]:
    """Run a program's text under valgrind, its arguments after the switch's library; return what it dumped by name.

    Raises:
        FileNotFoundError: The switch cannot be built.
    """
    (folder / "switch.cpp").write_text(SWITCH)
    switch = folder / "switch.so"
    build_switch = [*shlex.split(build.find_cxx() or ""), "-shared", "-fPIC", folder / "switch.cpp", "-o", switch]
    if subprocess.run(build_switch, check=False, stderr=subprocess.DEVNULL).returncode:
        raise FileNotFoundError("valgrind's headers are not found")
    command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder / 'counts'}"]
    done = subprocess.run(
        [*command, *options, sys.executable, "-c", work, str(switch), *arguments],
        env=environment, cwd=ROOT, check=False, capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"the workloads did not run under valgrind:\n{done.stderr[-4000:]}")
    texts = (path.read_text(errors="replace") for path in folder.glob("counts.*"))
    named = ((re.search(r"^desc: Trigger: Client Request: (.*)$", text, re.MULTILINE), text) for text in texts)
    return {name[1]: text for name, text in named if name}


def on_one_thread(flags: str) -> dict[str, str]:
    """Return the environment of a process whose engine is built with these flags."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {"KINETICSIM_CXXFLAGS": flags, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "PYTHONPATH": path}
    return {**os.environ, **environment}


def library_of(environment: dict[str, str]) -> str:
    """Build the engine in an environment, as a compiler under valgrind takes long; return its library."""
    load = "from kineticsim_env.runtime import build; print(build.load_cpu()._name)"
    done = subprocess.run([sys.executable, "-c", load], env=environment, cwd=ROOT, check=True, stdout=subprocess.PIPE)
    return done.stdout.decode().split()[-1]


def cpu_counts() -> dict | str:
    """Return the compiler and what the C++ engine executed in every workload, or why there is nothing."""
    missing, compiler = build.cpu_unavailable(), build.find_cxx()
    if missing or compiler is None:
        return str(missing)
    flag = FLAGS.get(platform.machine())
    if flag is None or shutil.which("valgrind") is None:
        return "valgrind is not found" if flag else f"no flags for {platform.machine()} are known"
    environment = on_one_thread(flag)
    library_of(environment)
    with tempfile.TemporaryDirectory() as folder:
        try:
            texts = under_valgrind(WORKLOADS, [], Path(folder), environment)
        except FileNotFoundError as error:
            return str(error)
    totals = {name: re.findall(r"^(?:summary|totals): (\d+)", text, re.MULTILINE)[0] for name, text in texts.items()}
    return {
        "compiler": f"{build.compiler_version(compiler)}, {flag}",
        "counts": {name: {"executed": int(total)} for name, total in sorted(totals.items())},
    }


# ---- Comparison ----------------------------------------------------------------------------------------------------


def compare(half: str, now: dict | str, before: dict | str | None) -> list[str]:
    """Print the counts of one half beside those of before; return what grew by more than its margin."""
    if isinstance(now, str):
        print(f"{half}: not counted, as {now}")
        return []
    if not isinstance(before, dict) or before["compiler"] != now["compiler"]:
        other = before["compiler"] if isinstance(before, dict) else "none"
        print(f"{half}: not compared, as these counts are of {now['compiler']} and those before of {other}")
        before = {"counts": {}}
    else:
        print(f"{half}: {now['compiler']}")
    grown = []
    for name, counts in now["counts"].items():
        for kind, count in counts.items():
            old = before["counts"].get(name, {}).get(kind)
            change = "" if not old or old == count else f"  {100 * (count / old - 1):+.1f}% (was {old:,})"
            print(f"  {name}: {kind.replace('_', ' ')} {count:,}{change}")
            if old is not None and count > old * (1 + MARGINS[kind]):
                grown.append(f"{half}, {name}: {kind.replace('_', ' ')} grew from {old:,} to {count:,}")
    return grown


def main(words: list[str] | None = None) -> int:
    """Count, and compare or write; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the counts to the file instead of comparing")
    parser.add_argument("--file", type=Path, default=RECORD, help="the file (default: %(default)s)")
    args = parser.parse_args(words)
    now = {"C++ engine": cpu_counts(), "kernel": kernel_counts()}
    before = json.loads(args.file.read_text()) if args.file.exists() else {}
    if args.write:
        for half, counts in now.items():
            compare(half, counts, None)
        kept = {half: counts if isinstance(counts, dict) else before.get(half) for half, counts in now.items()}
        args.file.write_text(json.dumps(kept, indent=1) + "\n")
        return 0
    grown = [line for half, counts in now.items() for line in compare(half, counts, before.get(half))]
    for line in grown:
        print(f"error: {line}", file=sys.stderr)
    if grown:
        print("If it is meant, `make counts COUNTS_FLAGS=--write` records it; say in the commit why.", file=sys.stderr)
    return int(bool(grown))


if __name__ == "__main__":
    sys.exit(main())
