"""CUDA kernels compile with both builders, which of them is taken, and what reaches the driver; most without a GPU."""

import os
import re
import shutil
import subprocess
import threading
from pathlib import Path

import pytest
import torch
from build_helpers import builders, compile_kernel, needs_compiler, place, run_python, script, sources
from slot_programs import patient, plain_maker
from thorough import THOROUGH, slow
from torch.utils import cpp_extension

from kineticsim_env.agents.policies import text_of_policies
from kineticsim_env.errors import EngineUnavailable
from kineticsim_env.runtime import build, doctor, driver, kernels, layout, nvcc, nvrtc

__all__ = ["place", "sources"]  # fixtures

ARCHS = (90, 75, 80, 86, 89, 120)
PLAIN = dict.fromkeys(("KS_BINS", "KS_OPTIONS", "KS_SLOTS", "KS_TASK"), 0)
FULL = {"KS_BINS": 128, "KS_OPTIONS": 1, "KS_SLOTS": 1, "KS_TASK": 1}
# Of its own: constants, and one parameter that is still read for each market.
CONSTANTS = {f"p.{field.path}": -1 if "limit" in name else 3 for name, field in layout.PARAMS_FIELDS.items()}
CONSTANTS = ",".join(f"{path}={value}" for path, value in CONSTANTS.items() if path != "p.fee")
OWN = {"KS_BINS": 16, "KS_OPTIONS": 1, "KS_SLOTS": 1, "KS_TASK": 0, "KS_LEVELS": 128}
OWN["KS_PARAMETER_CONSTANTS"] = CONSTANTS
LANES = {**OWN, "KS_BINS": 0, "KS_TASK": 1, "KS_LANES": 30}
CALLS = {**FULL, "KS_TASK": 0, "KS_EVENTS": 1}
by_nvrtc, by_nvcc = builders()
each_builder = pytest.mark.parametrize("builder", [by_nvrtc, by_nvcc])


def by_nvcc_too(*values) -> list:
    """Return parameters (builder, value): each for NVRTC, and the first for nvcc, which takes five times as long.

    All values but the first are slow.
    """
    pairs = [
        (builder, value) for builder in (by_nvrtc, by_nvcc) for value in values[: 1 if builder is by_nvcc else None]
    ]
    return [
        pytest.param(builder.values[0], value, marks=[*builder.marks, *([slow] if value != values[0] else [])])
        for builder, value in pairs
    ]


def assert_is_kernel(builder: str, image: bytes) -> None:
    """Check what a builder made: an ELF file, with the kernels, and if it is a library the functions that find them."""
    assert image.startswith(b"\x7fELF")
    for name in (b"ks_market_kernel", b"ks_copy_outputs"):
        assert (name + b"_function" if builder == "nvcc" else name) in image


# ---- Compilation ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("builder", "arch"), by_nvcc_too(*ARCHS))
def test_a_kernel_with_a_struct_by_value_compiles(sources, monkeypatch, builder, arch):
    monkeypatch.setattr(build, "cuda_dir", lambda: sources)
    image = compile_kernel(builder, arch, {"TINY_ADD": 1})
    assert image.startswith(b"\x7fELF") and b"ks_market_kernel" in image


@pytest.mark.parametrize(("builder", "arch"), by_nvcc_too(*ARCHS))
@pytest.mark.parametrize("defines", [PLAIN, FULL], ids=["plain", "full"])
def test_the_real_kernel_compiles(builder, arch, defines):
    for forced in ({}, {"KS_FORCE_SHUFFLE": 1}) if arch == 80 else ({},):
        assert_is_kernel(builder, compile_kernel(builder, arch, {**defines, **forced}))


@slow
@by_nvrtc.marks[0]
@pytest.mark.parametrize("bins", [16, 32, 64])
def test_the_real_kernel_compiles_with_other_bins(bins):
    assert_is_kernel("nvrtc", compile_kernel("nvrtc", 90, {**PLAIN, "KS_BINS": bins}))


@slow
@each_builder
def test_the_real_kernel_compiles_for_an_environment_per_lane(builder):
    assert_is_kernel(builder, compile_kernel(builder, 90, LANES))


@slow
@pytest.mark.parametrize(("builder", "slots"), by_nvcc_too(1, 0, 2))
def test_the_real_kernel_compiles_for_calls_on_the_clock(builder, slots):
    for levers in (0, 1, 2) if THOROUGH else (2,):
        shape = {**CALLS, "KS_SLOTS": slots, "KS_LEVERS": levers}
        assert_is_kernel(builder, compile_kernel(builder, 90, shape))
        if slots:
            assert_is_kernel(builder, compile_kernel(builder, 90, {**shape, "KS_TASK": 1}))


@pytest.mark.parametrize("builder", [by_nvrtc, pytest.param("nvcc", marks=[*by_nvcc.marks, slow])])
def test_the_real_kernel_compiles_with_parameters_of_its_own(builder):
    assert_is_kernel(builder, compile_kernel(builder, 90, OWN))


@slow
@by_nvrtc.marks[0]
@pytest.mark.parametrize("shape", [{**LANES, "KS_BINS": 16}, {**FULL, "KS_EVENTS": 2}])
def test_the_real_kernel_compiles_for_blocks_at_their_deadline(shape):
    assert_is_kernel("nvrtc", compile_kernel("nvrtc", 90, {**shape, "KS_DEADLINES": 1}))


@slow
@by_nvrtc.marks[0]
@pytest.mark.parametrize("events", [0, 1, 2])
def test_the_real_kernel_compiles_for_runs_that_record_further_series(events):
    clock = {"KS_EVENTS": events} if events else {}
    assert_is_kernel("nvrtc", compile_kernel("nvrtc", 90, {**PLAIN, "KS_OPTIONS": 1, "KS_SERIES": 1, **clock}))


@slow
@by_nvrtc.marks[0]
@pytest.mark.parametrize(
    "shape", [LANES, {**FULL, "KS_TASK": 1}, {**PLAIN, "KS_TASK": 1, "KS_EVENTS": 2, "KS_SLOTS": 1}]
)
def test_the_real_kernel_compiles_for_steps_that_say_what_is_known_after_them(shape):
    assert_is_kernel("nvrtc", compile_kernel("nvrtc", 90, {**shape, "KS_INFO": 1, "KS_SCENARIOS": 1}))


@slow
@by_nvrtc.marks[0]
@pytest.mark.parametrize(
    "shape", [LANES, {**FULL, "KS_TASK": 1}, {**PLAIN, "KS_TASK": 1, "KS_EVENTS": 2, "KS_SLOTS": 1}]
)
def test_the_real_kernel_compiles_with_extra_columns(shape):
    assert_is_kernel("nvrtc", compile_kernel("nvrtc", 90, {**shape, "KS_EXTRAS": 1}))


@slow
@by_nvrtc.marks[0]
@pytest.mark.parametrize("slots", [1, 2])
def test_the_real_kernel_compiles_for_actions_that_keep_quotes(slots):
    shape = {**PLAIN, "KS_TASK": 1, "KS_EVENTS": 2, "KS_SLOTS": slots, "KS_KEEP": 1, "KS_INFO": 1}
    assert_is_kernel("nvrtc", compile_kernel("nvrtc", 90, shape))


@slow
@by_nvrtc.marks[0]
@pytest.mark.parametrize(
    "shape", [LANES, {**FULL, "KS_TASK": 1}, {**PLAIN, "KS_TASK": 1, "KS_EVENTS": 2, "KS_SLOTS": 2}]
)
def test_the_real_kernel_compiles_for_steps_of_order_records(shape):
    assert_is_kernel("nvrtc", compile_kernel("nvrtc", 90, {**shape, "KS_RECORDS": 1}))


@slow
@by_nvrtc.marks[0]
@pytest.mark.parametrize("slots", [0, 1, 3])
@pytest.mark.parametrize("capability", [75, 90])  # the older one has no instruction for sums of lanes
def test_the_real_kernel_compiles_for_order_flows(slots, capability):
    shape = {**PLAIN, "KS_TASK": int(slots > 0), "KS_EVENTS": 2, "KS_SLOTS": slots, "KS_LANES_PER_MARKET": 32}
    assert_is_kernel("nvrtc", compile_kernel("nvrtc", capability, {**shape, "KS_FLOW": 1}))


_CLOCK = {**PLAIN, "KS_TASK": 1, "KS_EVENTS": 2, "KS_SLOTS": 2}
of_each_step = pytest.mark.parametrize("shape", [LANES, {**FULL, "KS_TASK": 1}, _CLOCK])


@slow
@by_nvrtc.marks[0]
@of_each_step
def test_the_real_kernel_compiles_with_policies_of_slots(shape):
    defines = {**shape, "KS_PROGRAMS": 1}
    found = compile_kernel("nvrtc", 90, defines, agents=text_of_policies([plain_maker, patient]))
    assert_is_kernel("nvrtc", found)


@by_nvrtc.marks[0]
def test_the_plan_compiles_for_a_gpu():
    assert b"ks_plan" in compile_kernel("nvrtc", 90, {}, "plan.cu")


TEXTS = """
#define SAID(...) #__VA_ARGS__
#define TEXT(...) SAID(__VA_ARGS__)
__host__ __device__ constexpr bool same(const char* one, const char* two) {
  return *one == *two && (!*one || same(one + 1, two + 1));
}
static_assert(same(TEXT(KS_LIST), "3,row.fee,-1"), "KS_LIST");
static_assert(same(TEXT(KS_TERMS), "task.horizon=30,task.reward=1"), "KS_TERMS");
static_assert(KS_NUMBER == -7, "KS_NUMBER");
extern "C" __global__ void ks_market_kernel(float* out, float a, float b, float c) { *out = a * b + c; }
"""


@each_builder
def test_definitions_arrive_as_they_are(sources, monkeypatch, builder):
    """At a comma nvcc ends an option, and torch's loader hands options to ninja and that to a shell."""
    folder = sources.rename(sources.parent / "with a space")
    monkeypatch.setattr(build, "cuda_dir", lambda: folder)
    (folder / "persistent_kernel.cu").write_text(TEXTS)
    defines = {"KS_LIST": "3,row.fee,-1", "KS_TERMS": "task.horizon=30,task.reward=1", "KS_NUMBER": -7}
    image = compile_kernel(builder, 90, defines)
    assert b"ks_market_kernel" in image
    with pytest.raises(EngineUnavailable, match="KS_TERMS"):
        compile_kernel(builder, 90, {**defines, "KS_TERMS": "task.horizon=30"})


@by_nvrtc.marks[0]
def test_no_multiplication_and_addition_are_fused(sources, monkeypatch):
    """The rules round after each: PTX, which an older compiler leaves to the driver, says how."""
    monkeypatch.setattr(build, "cuda_dir", lambda: sources)
    (sources / "persistent_kernel.cu").write_text(TEXTS.partition("static_assert")[0] + TEXTS.splitlines()[-1])
    text = compile_kernel("nvrtc", 999, {})
    assert b"mul.rn.f32" in text and b"fma" not in text


@by_nvrtc.marks[0]
def test_an_architecture_newer_than_nvrtc_gets_ptx(sources, monkeypatch):
    monkeypatch.setattr(build, "cuda_dir", lambda: sources)
    text = compile_kernel("nvrtc", 999, {"TINY_ADD": 1})
    assert re.search(rb"\.target sm_1\d\d", text) and b".entry ks_market_kernel" in text


@by_nvcc.marks[0]
@pytest.mark.parametrize(("arch", "code"), [(90, "sm_90"), (999, r"compute_1\d\d")])
def test_what_nvcc_is_told(sources, monkeypatch, arch, code):
    """Machine code of this GPU, else PTX; the rounding of the rules; and nothing of torch's own architectures."""
    monkeypatch.setattr(build, "cuda_dir", lambda: sources)
    written = []

    def load(name, files, extra_cuda_cflags, build_directory, **_):
        written.append((files, extra_cuda_cflags))
        built = Path(build_directory, name)
        built.write_bytes(b"built")
        return str(built)

    monkeypatch.setattr(cpp_extension, "load", load)
    assert compile_kernel("nvcc", arch, {"TINY_ADD": 1}) == b"built"
    [(files, flags)] = written
    assert files == [str(sources / "persistent_kernel.cu")]
    [target] = [flag for flag in flags if "arch" in flag]
    assert re.fullmatch(rf"-gencode=arch=compute_\d+,code={code}", target), flags
    assert "--fmad=false" in flags and "-DTINY_ADD=1" in flags


@by_nvcc.marks[0]
def test_what_nvcc_builds_is_not_loaded_yet(sources, monkeypatch):
    """It is loaded once, from the cache; torch's loader would load it from where it builds."""
    monkeypatch.setattr(build, "cuda_dir", lambda: sources)
    assert b"ks_market_kernel_function" in compile_kernel("nvcc", 90, {"TINY_ADD": 1})
    assert "ks_kernel_" not in Path("/proc/self/maps").read_text()


@each_builder
def test_an_architecture_older_than_the_compiler_is_refused(sources, monkeypatch, builder):
    monkeypatch.setattr(build, "cuda_dir", lambda: sources)
    with pytest.raises(EngineUnavailable, match="sm_30"):
        compile_kernel(builder, 30, {"TINY_ADD": 1})


@each_builder
def test_an_error_in_the_kernel_shows_the_compilers_words(sources, monkeypatch, builder):
    monkeypatch.setattr(build, "cuda_dir", lambda: sources)
    with pytest.raises(EngineUnavailable, match="TINY_ADD"):
        compile_kernel(builder, 90, {})


# ---- Which builder -------------------------------------------------------------------------------------------------


@pytest.fixture
def machine(monkeypatch):
    """Say what a machine has: by default nvcc 13.0, a C++ compiler, torch and a driver for CUDA 13, and NVRTC 13.0."""

    def has(nvcc_version=(13, 0), torch_cuda="13.0", served=(13, 0), nvrtc_version=(13, 0), compiler=None):
        monkeypatch.setattr(nvcc, "find", lambda: "/cuda/bin/nvcc" if nvcc_version else None)
        monkeypatch.setattr(nvcc, "version", lambda path: nvcc_version)
        monkeypatch.setattr(nvcc.cxx, "cpu_unavailable", lambda: compiler)
        monkeypatch.setattr(torch.version, "cuda", torch_cuda)
        monkeypatch.setattr(driver, "version", lambda: served)
        monkeypatch.setattr(nvrtc, "version", lambda: nvrtc_version)
        monkeypatch.setattr(driver, "bindings", lambda: None)

    monkeypatch.delenv(kernels.BUILDER_VARIABLE, raising=False)
    has()
    return has


@pytest.mark.parametrize(
    ("lacks", "why"),
    [
        ({"nvcc_version": None}, "nvcc is not found in CUDA_HOME"),
        ({"compiler": "no C++ compiler is found"}, "no C++ compiler"),
        ({"nvcc_version": (12, 9)}, "nvcc is of CUDA 12.9, and torch of CUDA 13.0"),
        ({"torch_cuda": None}, "and torch of CUDA none"),
        ({"served": (12, 8)}, "nvcc is of CUDA 13.0, and the driver serves up to 12.8"),
    ],
)
def test_nvcc_builds_where_it_can_and_nvrtc_elsewhere(machine, monkeypatch, lacks, why):
    assert str(kernels.choose_builder()) == "nvcc 13.0 (/cuda/bin/nvcc)"
    machine(**lacks)
    assert str(kernels.choose_builder()) == "nvrtc 13.0"
    monkeypatch.setenv(kernels.BUILDER_VARIABLE, "nvcc")
    with pytest.raises(EngineUnavailable, match=re.escape(why)):
        kernels.choose_builder()
    monkeypatch.delenv(kernels.BUILDER_VARIABLE)
    machine(**lacks, nvrtc_version=None)
    with pytest.raises(
        EngineUnavailable, match=rf"{re.escape(why)}.*NVRTC is not found \(pip install 'nvidia-cuda-nvrtc=="
    ):
        kernels.choose_builder()


def test_nvcc_needs_ninja_which_may_be_beside_python(machine, monkeypatch, tmp_path):
    """A venv whose Python is called by its path does not have its bin on PATH."""
    (tmp_path / "venv").mkdir()
    monkeypatch.setattr(nvcc.sys, "executable", str(tmp_path / "venv" / "python"))
    monkeypatch.setattr(nvcc.importlib.util, "find_spec", lambda name: None if name == "ninja" else "found")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv(kernels.BUILDER_VARIABLE, "nvcc")
    with pytest.raises(EngineUnavailable, match=r"ninja is not found \(pip install ninja\)"):
        kernels.choose_builder()
    (tmp_path / "venv" / "ninja").touch(mode=0o755)
    assert kernels.choose_builder().name == "nvcc"


def test_a_newer_driver_and_another_minor_version_will_do(machine):
    machine(nvcc_version=(13, 2), torch_cuda="13.0", served=(13, 1))
    assert kernels.choose_builder().name == "nvcc"
    machine(served=(14, 0))
    assert kernels.choose_builder().name == "nvcc"
    machine(nvcc_version=None, nvrtc_version=None, torch_cuda="12.9")
    with pytest.raises(EngineUnavailable, match="nvidia-cuda-nvrtc-cu12==12.9"):
        kernels.choose_builder()


def test_a_builder_can_be_asked_for(machine, monkeypatch):
    monkeypatch.setenv(kernels.BUILDER_VARIABLE, "nvrtc")
    assert kernels.choose_builder().name == "nvrtc"
    assert "compiled by nvrtc 13.0" in doctor.report()
    machine(nvrtc_version=None)
    with pytest.raises(EngineUnavailable, match="NVRTC was asked for, and NVRTC is not found"):
        kernels.choose_builder()
    monkeypatch.setenv(kernels.BUILDER_VARIABLE, "gcc")
    with pytest.raises(ValueError, match="KINETICSIM_CUDA_BUILDER: expected one of nvcc, nvrtc, got 'gcc'"):
        kernels.choose_builder()


def test_the_nvcc_that_is_found_is_the_one_that_torch_takes(tmp_path, monkeypatch):
    for folder in ("home/bin", "path"):
        script(tmp_path / folder / "nvcc", "echo 'Cuda compilation tools, release 12.4, V12.4.99'")
    monkeypatch.setenv("PATH", str(tmp_path / "path"), prepend=os.pathsep)
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.delenv("CUDA_HOME", raising=False)
    assert nvcc.find() == str(tmp_path / "path" / "nvcc")
    assert cpp_extension._find_cuda_home() == str(tmp_path)
    for name in ("CUDA_PATH", "CUDA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
        assert nvcc.find() == str(tmp_path / "home" / "bin" / "nvcc")
        assert cpp_extension._find_cuda_home() == str(tmp_path / "home")
    assert nvcc.version(nvcc.find()) == (12, 4, 99)
    shutil.rmtree(tmp_path / "home" / "bin")
    assert nvcc.find() is None, "torch looks nowhere else then"
    with pytest.raises(EngineUnavailable, match="does not run"):
        nvcc.version(str(tmp_path / "none"))


@pytest.mark.parametrize("forced", [False, True])
def test_nvrtc_takes_over_where_nvcc_fails(machine, monkeypatch, place, capsys, forced):
    """A toolkit may be there in part only; but who asks for nvcc is told."""

    def fail(*_):
        raise EngineUnavailable("no cuda_runtime.h")

    machine()
    monkeypatch.setattr(nvcc, "find", lambda: __file__)
    monkeypatch.setattr(kernels, "cuda_unavailable", lambda: None)
    monkeypatch.setattr(nvcc, "build_kernel", fail)
    monkeypatch.setattr(nvrtc, "compile_kernel", lambda *_: b"image")
    monkeypatch.setattr(nvrtc, "load_image", lambda image, entry: (image, entry))
    monkeypatch.setattr(kernels, "Kernel", lambda *functions: functions)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (9, 0))
    monkeypatch.setattr(torch.cuda, "device", lambda index: torch.inference_mode())
    monkeypatch.setattr(torch, "zeros", lambda *_, **__: None)
    monkeypatch.setattr(build, "_loaded", {})
    monkeypatch.setattr(build, "_failed", {})
    if forced:
        monkeypatch.setenv(kernels.BUILDER_VARIABLE, "nvcc")
        with pytest.raises(EngineUnavailable, match="no cuda_runtime.h"):
            kernels.load_kernel(torch.device("cuda", 0), {})
        return
    assert kernels.load_kernel(torch.device("cuda", 0), {}) == (b"image", "ks_market_kernel")
    assert "using NVRTC: no cuda_runtime.h" in capsys.readouterr().err


# ---- The driver ----------------------------------------------------------------------------------------------------


FAKE_DRIVER = r"""
// Stands in for libcuda: one context (7) and function (9), and a launch that adds up what it was given.
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>
struct Argument { int64_t value; int64_t* out; };
static void* current = nullptr;
extern "C" {
int cuGetProcAddress_v2(const char* symbol, void** function, int, uint64_t, int* status) {
  *function = dlsym(RTLD_DEFAULT, symbol);
  if (*function == nullptr) *function = dlsym(dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD), symbol);
  if (status != nullptr) *status = *function ? 0 : 1;
  return *function ? 0 : 500;
}
int cuGetProcAddress(const char* symbol, void** function, int version, uint64_t flags, int* status) {
  return cuGetProcAddress_v2(symbol, function, version, flags, status);
}
int cuDriverGetVersion(int* version) { *version = 13020; return 0; }
int cuCtxGetCurrent(void** context) { *context = current; return 0; }
int cuCtxGetDevice(int* device) { *device = 3; return current ? 0 : 201; }
int cuCtxPushCurrent(void* context) { current = context; return 0; }
int cuCtxPopCurrent(void** context) { *context = current; current = nullptr; return 0; }
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
import ctypes
from kineticsim_env.runtime import driver, kernels, nvrtc
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
refused(lambda: nvrtc.load_image(b"wrong", "kernel"))
refused(lambda: nvrtc.load_image(b"image", "other"))
functions = nvrtc.load_image(b"image", "kernel")
print(*map(hex, functions))
refused(lambda: kernels.Kernel(*functions))
fake.set_current(7)
kernel = kernels.Kernel(*functions)
print(kernel.num_registers, kernel.local_bytes, kernel.static_shared_bytes, kernel.shared_limit)
print(driver.version(), kernel.max_blocks_per_sm(64, 1000))
for context in (7, 0):  # a thread with the context, and one without
    fake.set_current(context)
    kernel.launch(100, 32, 4096, argument, (1 << 50) + 5)
    print(out.value - (1 << 40) - (1 << 50))
fake.set_current(7)
refused(lambda: kernel.launch(0, 32, 0, argument, 0))
assert driver.address_of("cuLaunchKernel") == ctypes.cast(fake.cuLaunchKernel, ctypes.c_void_p).value
"""


@needs_compiler
def test_the_driver_gets_what_its_signatures_say(sources):
    """A stand-in for libcuda checks what reaches it through cuda.bindings."""
    pytest.importorskip("cuda.bindings")
    (sources / "fake.cpp").write_text(FAKE_DRIVER)
    library = str(sources / "libcuda.so.1")
    subprocess.run([build.find_cxx(), "-shared", "-fPIC", str(sources / "fake.cpp"), "-o", library, "-ldl"], check=True)
    out, err, code = run_python(sources, DRIVE, LD_LIBRARY_PATH=str(sources))
    assert code == 0, err
    assert out.splitlines() == [
        "cuModuleLoadData: CUDA_ERROR_INVALID_IMAGE (200)",
        "cuModuleGetFunction(other): CUDA_ERROR_NOT_FOUND (500)",
        "0x9000000000 0x0",
        "cuCtxGetDevice: CUDA_ERROR_INVALID_CONTEXT (201)",
        "40 30 10 232438",
        "(13, 2) 1064",
        "4233",
        "4233",
        "cuLaunchKernel(grid 0, block 32, 0 bytes shared): CUDA_ERROR_INVALID_VALUE (1)",
    ]


def test_without_cuda_the_reason_is_said():
    if torch.cuda.is_available():
        assert kernels.cuda_unavailable() is None
    else:
        assert "CUDA" in kernels.cuda_unavailable() or "GPU" in kernels.cuda_unavailable()
        with pytest.raises(EngineUnavailable):
            kernels.load_kernel(torch.device("cuda", 0), {})


@pytest.mark.gpu
@each_builder
def test_a_kernel_runs_on_streams_graphs_and_new_threads(sources, monkeypatch, tmp_path, builder):
    monkeypatch.setattr(build, "cuda_dir", lambda: sources)
    monkeypatch.setattr(build, "_loaded", {})
    monkeypatch.setenv(kernels.BUILDER_VARIABLE, builder)
    if builder == "nvcc" and (missing := nvcc.unsuitable()):
        pytest.skip(missing)
    monkeypatch.setenv("KINETICSIM_CACHE", str(tmp_path / "cache"))
    device = torch.device("cuda", torch.cuda.device_count() - 1)  # where there are two, not the current one
    kernel = kernels.load_kernel(device, {"TINY_ADD": 5})
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

    [built] = (tmp_path / "cache").glob("*.so" if builder == "nvcc" else "*.cubin")
    stamp = built.stat().st_mtime_ns
    monkeypatch.setattr(build, "_loaded", {})
    kernels.load_kernel(device, {"TINY_ADD": 5})
    assert built.stat().st_mtime_ns == stamp
    built.unlink()  # not overwritten in place: this process runs from it
    built.write_bytes(b"broken")
    monkeypatch.setattr(build, "_loaded", {})
    kernels.load_kernel(device, {"TINY_ADD": 5})
    assert built.read_bytes().startswith(b"\x7fELF")
