"""The C++ engine as a wheel brings it: which library a processor takes, and that it plays as one that is built here."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from thorough import slow

from kineticsim_env.runtime import cxx, prebuilt

ROOT = Path(__file__).parent.parent
HERE = ROOT / "scripts" / "prebuilt"
V2 = "fpu cx16 lahf_lm popcnt sse4_1 sse4_2 ssse3"
V3 = f"{V2} abm avx avx2 bmi1 bmi2 f16c fma movbe avx512f"
compiler = pytest.mark.skipif(
    cxx.cpu_unavailable() is not None or prebuilt.kind_of_this_processor() is None, reason="no compiler, or no kind"
)


@pytest.mark.parametrize(
    ("system", "machine", "flags", "kind"),
    [
        ("linux", "x86_64", V3, "x86-64-v3"),
        ("linux", "x86_64", V3.replace("bmi2 ", ""), "x86-64-v2"),  # as some virtual machines hide
        ("linux", "x86_64", V2, "x86-64-v2"),
        ("linux", "x86_64", "fpu sse2", None),
        ("linux", "aarch64", "", "aarch64"),
        ("linux", "riscv64", V3, None),
        ("darwin", "arm64", "", None),
    ],
)
def test_which_library_a_processor_takes(system, machine, flags, kind, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(prebuilt.platform, "machine", lambda: machine)
    monkeypatch.setattr(prebuilt, "_features", lambda: frozenset(flags.split()))
    monkeypatch.setattr(prebuilt, "FOLDER", tmp_path)
    assert prebuilt.kind_of_this_processor() == kind
    assert prebuilt.find() is None
    if kind:
        file = tmp_path / prebuilt.file_name(kind)
        file.touch()
        assert prebuilt.find() == file


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """A folder with the library for this processor, built by the compiler that is here."""
    folder = tmp_path_factory.mktemp("prebuilt")
    code = (
        "import sys, pathlib; from scripts.prebuilt.__main__ import build; "
        "print(build(sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]))"
    )
    command = [sys.executable, "-c", code, prebuilt.kind_of_this_processor(), str(folder), cxx.find_cxx().split()[0]]
    subprocess.run(command, cwd=ROOT, check=True)
    return folder


PLAY = """
import ctypes, hashlib, os, pathlib, sys, threading
import gymnasium as gym, torch
from kineticsim_env.runtime import build, prebuilt
prebuilt.FOLDER = pathlib.Path(sys.argv[1])
import kineticsim_env as ks

def digest(tensors):
    return hashlib.sha256(b"".join(t.contiguous().numpy().tobytes() for t in tensors)).hexdigest()[:16]

def played(markets=300, steps=6, preset="news"):
    envs = gym.make_vec("KineticSim/MarketMaking-v0", num_envs=markets, config=ks.MarketConfig.preset(preset),
                        output="torch", engine="cpu", horizon=4, bank_size=8, warmup=10)
    envs.reset(seed=3)
    generator = torch.Generator().manual_seed(1)
    results = []
    for _ in range(steps):
        action = 2 * torch.rand(markets, envs.single_action_space.shape[0], generator=generator) - 1
        results += [x.clone() for x in envs.step(action)[:4]]
    results += [x.clone() for x in envs.unwrapped.simulator.tensors.values()]
    return digest(results)

"""


def run(code, folder, **environment):
    """What a program prints in an environment without a compiler, unless told otherwise."""
    command = [sys.executable, "-c", PLAY + code, str(folder)]
    told = {"PATH": "/nonexistent", "CXX": "none", "HOME": str(folder), "PYTHONPATH": str(ROOT)} | environment
    done = subprocess.run(command, cwd=folder, env=told, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr


@slow
@compiler
def test_the_same_bits_as_the_library_that_is_built_here(library):
    code = """
print(build.is_prebuilt())
for preset in ("news", "trading"):
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        print(played(preset=preset))
simulator = ks.Simulator(ks.MarketConfig.preset("news"), 3, engine="cpu", seed=5)
simulator.run(10, progress=False)
tape = simulator.tape(markets=[0, 2], intervals=20)
rows = b"".join(column.astype(str).tobytes() for column in tape.columns.values())
print(len(tape) > 100, hashlib.sha256(rows).hexdigest()[:16])
"""
    (first, *ours), _ = run(code, library)
    there = {"PATH": "/usr/bin:/bin", "CXX": cxx.find_cxx(), "HOME": os.environ["HOME"]}
    (second, *theirs), _ = run(code, library, **there)
    assert (first, second) == ("True", "False")
    assert ours == theirs and len(set(ours[:3])) == 1 and len(set(ours)) == 3 and ours[-1].startswith("True ")


@slow
@compiler
def test_threads_and_forked_children(library):
    code = """
torch.set_num_threads(3)
alone = played()
found = []
others = [threading.Thread(target=lambda: found.append(played())) for _ in range(4)]
[one.start() for one in others], [one.join() for one in others]
print(found == [alone] * 4)
child = os.fork()
if child == 0:
    one = torch.get_num_threads()  # torch's own threads do not survive; those of the library are made anew
    two = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 2)
    good = played() == alone
    build.load_cpu().ks_use_threads(ctypes.cast(two, ctypes.c_void_p))
    os._exit(0 if good and played() == alone and one == 1 else 1)
print(os.waitpid(child, 0)[1], played() == alone)
"""
    assert run(code, library)[0] == ["True", "0 True"]


@slow
@compiler
def test_what_needs_a_compiler_says_so_and_auto_takes_numpy(library):
    code = """
import kineticsim_env.runtime.doctor as doctor
from pathlib import Path
Path("own.py").write_text('''
import kineticsim_env as ks
@ks.policy(half_spread=2)
def maker(market, slot, own, draw):
    bid = (market.mid2 >> 1) - own.half_spread
    return ks.quote(bid, slot.max_qty, bid + 2 * own.half_spread, slot.max_qty)
''')
sys.path.insert(0, ".")
from own import maker
def made(engine):
    settings = {"output": "torch", "opponents": {"maker": [maker]}, "engine": engine}
    return gym.make_vec("KineticSim/Trading-v0", num_envs=4, **settings)
print(made("auto").unwrapped.simulator.engine_name)
try:
    made("cpu")
except ks.EngineUnavailable as error:
    print(error)
print(len(ks.sweep({"noise_spread": [6, 14]}, 20, ["volatility"], market="realistic").to_pandas()))
envs = gym.make_vec("KineticSim/Trading-v0", num_envs=4, output="torch")
print(envs.unwrapped.simulator.engine_name)
envs.reset(seed=0)
try:
    envs.unwrapped.core._engine.launcher(1)
except RuntimeError as error:
    print("a C++ compiler" in str(error))
print([line.strip() for line in doctor.report().splitlines() if line.split()[0] in ("cpu", "prebuilt,")])
"""
    lines, _ = run(code, library)
    kind = prebuilt.kind_of_this_processor()
    missing = "CXX='none' is not found; set it to a C++ compiler, or unset it"
    assert lines == [
        "numpy",
        f"the policy maker cannot be compiled: {missing}; or take engine='numpy', which needs none",
        "2",
        "cpu",
        "True",
        f"['cpu       ok', {f'prebuilt, for {kind}, as {missing}'!r}]",
    ]


@slow
@compiler
def test_a_library_of_other_sources_or_a_part_of_one_is_refused(library, tmp_path):
    (file,) = library.glob("*.so")
    code = """
try:
    build.load_cpu()
except ks.EngineUnavailable as error:
    print(error)
"""
    for part in library.iterdir():
        if part.is_file():
            shutil.copy(part, tmp_path)
    (tmp_path / file.name).write_bytes(file.read_bytes()[:1000])  # to load it would end the process
    ((said,), _) = run(code, tmp_path)
    assert said == f"{tmp_path / file.name} cannot be loaded: it is not what was built"
    shutil.copy(file, tmp_path)
    ((said,), _) = run("build.engine_hash = lambda _: 'f' * 64\n" + code, tmp_path)
    assert said == f"{tmp_path / file.name} was built of other sources; build it again, or remove it"


POOL = """
#include <ATen/Parallel.h>
#include <cstdio>
#include <vector>
namespace at { std::atomic<int (*)()> number_of_threads{nullptr}; }
static thread_local int wanted = 1;
static int told() { return wanted; }
static bool play(int threads, int64_t begin, int64_t end, int64_t grain) {
  wanted = threads;
  std::vector<int> seen(end + 1, 0);
  at::parallel_for(begin, end, grain, [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) seen[i] += 1;
  });
  for (int64_t i = 0; i <= end; ++i)
    if (seen[i] != (i >= begin && i < end)) return false;
  return true;
}
int main() {
  bool good = true;
  for (int64_t end : {0, 1, 2, 7, 64, 1000}) good &= play(4, 0, end, 3);  // without a number of threads: on this one
  at::number_of_threads = told;
  for (int round = 0; round < 200; ++round)
    for (int threads : {1, 2, 5, 3})
      for (int64_t end : {0, 1, 2, 7, 64, 1000}) good &= play(threads, end / 3, end, 1 + round % 9);
  std::vector<std::thread> callers;
  std::atomic<bool> all{true};
  for (int caller = 0; caller < 4; ++caller)
    callers.emplace_back([&, caller] {
      for (int round = 0; round < 300; ++round)
        if (!play(2 + caller, 0, 100, 1)) all = false;
    });
  for (auto& caller : callers) caller.join();
  std::puts(good && all ? "good" : "bad");
}
"""


@slow
@compiler
@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_every_part_is_played_once_and_without_races(sanitizer, tmp_path):
    (tmp_path / "pool.cpp").write_text(POOL)
    flags = ["-std=c++17", "-O1", "-g", f"-fsanitize={sanitizer}", "-pthread", f"-I{HERE}"]
    command = [cxx.find_cxx().split()[0], *flags, "pool.cpp", "-o", "pool"]
    built = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    if "cannot find" in built.stderr:
        pytest.skip(f"no runtime of -fsanitize={sanitizer}")
    assert built.returncode == 0, built.stderr
    done = subprocess.run(
        ["./pool"], cwd=tmp_path, capture_output=True, text=True, env={"ASAN_OPTIONS": "detect_leaks=0"}
    )
    assert (done.stdout, done.returncode) == ("good\n", 0), done.stderr
