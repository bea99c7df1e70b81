"""The CUDA kernel compiles for every architecture, and reaches the driver as its signatures say; most without a GPU."""

import re
import subprocess
import threading

import pytest
import torch
from build_helpers import needs_compiler, run_python, sources
from thorough import slow

from kineticsim_env.errors import EngineUnavailable
from kineticsim_env.runtime import build, cuda_driver, layout

__all__ = ["sources"]  # a fixture

ARCHS = [90, *(pytest.param(arch, marks=slow) for arch in (75, 80, 86, 89, 120))]
PLAIN = dict.fromkeys(("KS_BINS", "KS_OPTIONS", "KS_SLOTS", "KS_TASK"), 0)
FULL = {"KS_BINS": 128, "KS_OPTIONS": 1, "KS_SLOTS": 1, "KS_TASK": 1}
# Of its own: constants, and one parameter that is still read for each market.
CONSTANTS = ",".join("row.fee" if name == "fee" else "-1" if "limit" in name else "3" for name in layout.PARAMS_FIELDS)
OWN = {"KS_BINS": 16, "KS_OPTIONS": 1, "KS_SLOTS": 1, "KS_TASK": 0, "KS_PARAMETERS": CONSTANTS, "KS_LEVELS": 128}


def compilers() -> list:
    nvrtc, nvcc = cuda_driver.load_nvrtc(), build.find_nvcc()
    return [
        pytest.param(None, id="nvrtc", marks=pytest.mark.skipif(nvrtc is None, reason="no NVRTC is found")),
        pytest.param(nvcc, id="nvcc", marks=pytest.mark.skipif(nvcc is None, reason="no nvcc is found")),
    ]


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("nvcc", compilers())
def test_a_kernel_with_a_struct_by_value_compiles(sources, monkeypatch, nvcc, arch):
    monkeypatch.setattr(build, "cuda_dir", lambda: sources)
    image = build.compile_kernel(arch, {"TINY_ADD": 1}, nvcc)
    assert image.startswith(b"\x7fELF") and b"ks_market_kernel" in image


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("defines", [PLAIN, FULL], ids=["plain", "full"])
@pytest.mark.parametrize("nvcc", compilers())
def test_the_real_kernel_compiles(nvcc, defines, arch):
    for forced in ({}, {"KS_FORCE_SHUFFLE": 1}) if arch == 80 else ({},):
        assert b"ks_market_kernel" in build.compile_kernel(arch, {**defines, **forced}, nvcc)


@slow
@pytest.mark.parametrize("bins", [16, 32, 64])
@pytest.mark.parametrize("nvcc", compilers())
def test_the_real_kernel_compiles_with_other_bins(nvcc, bins):
    assert b"ks_market_kernel" in build.compile_kernel(90, {**PLAIN, "KS_BINS": bins}, nvcc)


@slow
@pytest.mark.parametrize("arch", [75, 90])
@pytest.mark.parametrize("nvcc", compilers())
def test_the_real_kernel_compiles_for_an_environment_a_lane(nvcc, arch):
    assert b"ks_market_kernel" in build.compile_kernel(arch, {**OWN, "KS_TASK": 1, "KS_LANES": 30}, nvcc)


@slow
@pytest.mark.parametrize("arch", [75, 90])
@pytest.mark.parametrize("nvcc", compilers())
def test_the_real_kernel_compiles_with_parameters_of_its_own(nvcc, arch):
    """The definition is a list with commas, at which nvcc ends an option."""
    own = build.compile_kernel(arch, OWN, nvcc)
    assert b"ks_market_kernel" in own
    generic = build.compile_kernel(arch, {name: OWN[name] for name in PLAIN}, nvcc)
    assert own != generic


@pytest.mark.parametrize("nvcc", compilers())
def test_an_architecture_newer_than_the_compiler_gets_ptx(sources, monkeypatch, nvcc):
    monkeypatch.setattr(build, "cuda_dir", lambda: sources)
    text = build.compile_kernel(999, {"TINY_ADD": 1}, nvcc)
    assert re.search(rb"\.target sm_1\d\d", text) and b".entry ks_market_kernel" in text
    with pytest.raises(EngineUnavailable, match="sm_30"):
        build.compile_kernel(30, {"TINY_ADD": 1}, nvcc)


@pytest.mark.parametrize("nvcc", compilers())
def test_an_error_in_the_kernel_shows_the_compilers_words(sources, monkeypatch, nvcc):
    monkeypatch.setattr(build, "cuda_dir", lambda: sources)
    with pytest.raises(EngineUnavailable, match="TINY_ADD"):
        build.compile_kernel(90, {}, nvcc)


FAKE_DRIVER = r"""
// Stands in for libcuda: one context (7) and function (9), and a launch that adds up what it was given.
#include <stdint.h>
#include <string.h>
struct Argument { int64_t value; int64_t* out; };
static void* current = nullptr;
extern "C" {
int cuGetErrorName(int code, const char** text) { *text = code == 1 ? "CUDA_ERROR_INVALID_VALUE" : nullptr; return 0; }
int cuGetErrorString(int, const char** text) { *text = "invalid argument"; return 0; }
int cuDriverGetVersion(int* version) { *version = 13020; return 0; }
int cuCtxGetCurrent(void** context) { *context = current; return 0; }
int cuCtxGetDevice(int* device) { *device = 3; return 0; }
int cuCtxPushCurrent_v2(void* context) { current = context; return 0; }
int cuCtxPopCurrent_v2(void** context) { *context = current; current = nullptr; return 0; }
int cuDeviceGetAttribute(int* value, int what, int device) {
  *value = what == 97 && device == 3 ? 232448 : -1;
  return 0;
}
int cuModuleLoadData(void** module, const void* image) {
  *module = (void*)8;
  return strcmp((const char*)image, "image") ? 200 : 0;
}
int cuModuleGetFunction(void** function, void* module, const char* name) {
  *function = (void*)0x9000000000;
  return module == (void*)8 && !strcmp(name, "kernel") ? 0 : 500;
}
int cuFuncGetAttribute(int* value, int what, void*) { *value = 10 * what; return 0; }
int cuFuncSetAttribute(void* function, int what, int value) {
  return function == (void*)0x9000000000 && what == 8 && value == 232448 - 10 ? 0 : 1;
}
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* count, void*, int block, size_t shared) {
  *count = block + (int)shared;
  return current ? 0 : 201;
}
int cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void* stream, void** arguments, void** extra) {
  if (!current) return 201;
  if (function != (void*)0x9000000000 || gy != 1 || gz != 1 || by != 1 || bz != 1 || extra) return 1;
  const Argument& argument = *(const Argument*)arguments[0];
  *argument.out = argument.value + gx + bx + shared + (int64_t)stream;
  return gx ? 0 : 1;
}
void set_current(int64_t context) { current = (void*)context; }
}
"""

DRIVE = """
import ctypes, time
from kineticsim_env.runtime import cuda_driver
fake = ctypes.CDLL("libcuda.so.1")
class Argument(ctypes.Structure):
    _fields_ = [("value", ctypes.c_int64), ("out", ctypes.c_void_p)]
out = ctypes.c_int64()
argument = Argument(1 << 40, ctypes.addressof(out))
def refused(call):
    try:
        call()
    except RuntimeError as error:
        print(error)
refused(lambda: cuda_driver.Kernel(b"image", "kernel"))
fake.set_current(7)
refused(lambda: cuda_driver.Kernel(b"wrong", "kernel"))
kernel = cuda_driver.Kernel(b"image", "kernel")
print(kernel.num_registers, kernel.local_bytes, kernel.static_shared_bytes, kernel.shared_limit)
print(cuda_driver.driver_version(), kernel.max_blocks_per_sm(64, 1000))
for context in (7, 0):  # a thread with the context, and one without
    fake.set_current(context)
    kernel.launch(100, 32, 4096, argument, (1 << 50) + 5)
    print(out.value - (1 << 40) - (1 << 50))
fake.set_current(7)
refused(lambda: kernel.launch(0, 32, 0, argument, 0))
best = 1.0
for _ in range(200):
    started = time.perf_counter()
    for _ in range(100):
        kernel.launch(1, 32, 0, argument, 0)
    best = min(best, (time.perf_counter() - started) / 100)
assert best < 20e-6, best
print("launch overhead", best * 1e6, "us")
"""


@needs_compiler
def test_the_driver_gets_what_its_signatures_say(sources):
    """A stand-in for libcuda checks what reaches it through ctypes, and that a launch costs a few microseconds."""
    (sources / "fake.cpp").write_text(FAKE_DRIVER)
    library = str(sources / "libcuda.so.1")
    subprocess.run([build.find_cxx(), "-shared", "-fPIC", str(sources / "fake.cpp"), "-o", library], check=True)
    out, err, code = run_python(sources, DRIVE, LD_LIBRARY_PATH=str(sources))
    assert code == 0, err
    assert out.splitlines()[:-1] == [
        "no CUDA context is current",
        "cuModuleLoadData: CUDA error (200): invalid argument",
        "40 30 10 232438",
        "(13, 2) 1064",
        "4233",
        "4233",
        "cuLaunchKernel(grid 0, block 32, 0 bytes shared): CUDA_ERROR_INVALID_VALUE (1): invalid argument",
    ]


def test_without_cuda_the_reason_is_said():
    if torch.cuda.is_available():
        assert build.cuda_unavailable() is None
    else:
        assert "CUDA" in build.cuda_unavailable() or "GPU" in build.cuda_unavailable()
        with pytest.raises(EngineUnavailable):
            build.load_kernel(torch.device("cuda", 0), {})


@pytest.mark.gpu
def test_a_kernel_runs_on_streams_graphs_and_new_threads(sources, monkeypatch, tmp_path):
    monkeypatch.setattr(build, "cuda_dir", lambda: sources)
    monkeypatch.setenv("KINETICSIM_CACHE", str(tmp_path / "cache"))
    device = torch.device("cuda", torch.cuda.device_count() - 1)  # where there are two, not the current one
    kernel = build.load_kernel(device, {"TINY_ADD": 5})
    assert kernel.num_registers > 0 and kernel.shared_limit > 48 * 1024 and kernel.max_blocks_per_sm(128, 512) > 1

    volume = torch.zeros(1000, dtype=torch.int64, device=device)
    launch = layout.Launch()
    launch.markets, launch.levels, launch.volume = 1000, 3, volume.data_ptr()

    def go():
        kernel.launch(8, 128, 512, launch, torch.cuda.current_stream(device).cuda_stream)

    once = torch.arange(1000, device=device) * 3 + 5
    torch.cuda.synchronize(device)

    go()
    thread = threading.Thread(target=go)
    thread.start()
    thread.join()
    torch.cuda.synchronize(device)  # the next stream does not wait for this one
    with torch.cuda.device(device), torch.cuda.stream(torch.cuda.Stream(device)):
        go()
        torch.cuda.synchronize(device)
        assert torch.equal(volume, 3 * once)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            go()
        for _ in range(4):
            graph.replay()
        torch.cuda.synchronize(device)
    assert torch.equal(volume, 7 * once)

    kernel.launch(1, 128, kernel.shared_limit, launch, 0)  # all of the shared memory may be asked for
    torch.cuda.synchronize(device)
    with pytest.raises(RuntimeError, match="cuLaunchKernel"):
        kernel.launch(1, 4096, 0, launch, 0)

    [cubin] = (tmp_path / "cache").glob("*.cubin")
    stamp = cubin.stat().st_mtime_ns
    monkeypatch.setattr(build, "_loaded", {})
    build.load_kernel(device, {"TINY_ADD": 5})
    assert cubin.stat().st_mtime_ns == stamp
    cubin.write_bytes(b"broken")
    monkeypatch.setattr(build, "_loaded", {})
    build.load_kernel(device, {"TINY_ADD": 5})
    assert cubin.read_bytes().startswith(b"\x7fELF")
