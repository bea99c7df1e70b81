"""The two CUDA libraries that the kernel needs, through ctypes: NVRTC compiles it, and the driver runs it.

Both are there wherever a CUDA build of torch runs, so no toolkit and no host compiler is needed. `build.load_kernel`
is the only caller. Signatures follow cuda.h and nvrtc.h; a driver call that fails raises RuntimeError with the name
that the driver gives it, a compilation that fails raises EngineUnavailable with the compiler's log.
"""

import ctypes
import functools
import importlib.util
import os
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint, c_void_p
from pathlib import Path

import torch

from kineticsim_env.errors import EngineUnavailable

_SHARED_SIZE_BYTES = 1  # CUfunction_attribute
_LOCAL_SIZE_BYTES = 3
_NUM_REGS = 4
_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8
_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97  # CUdevice_attribute
_WRONG_CONTEXT = (201, 400)  # CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_HANDLE

_Arguments = c_void_p * 1


class Nvrtc:
    """One NVRTC library: `version` is (major, minor), `archs` the architectures it compiles for, as 75, 80, ..."""

    def __init__(self, path: str):
        folder = Path(path).parent
        # NVRTC opens its builtins by their bare name, which is only found if they are loaded already.
        for builtins in sorted(folder.glob("libnvrtc-builtins*.so*")) if folder.is_absolute() else ():
            if ".alt." not in builtins.name:
                ctypes.CDLL(str(builtins))
        self.path = path
        self._lib = library = ctypes.CDLL(path)
        library.nvrtcGetErrorString.restype = c_char_p
        library.nvrtcVersion.argtypes = [POINTER(c_int), POINTER(c_int)]
        library.nvrtcGetNumSupportedArchs.argtypes = [POINTER(c_int)]
        library.nvrtcGetSupportedArchs.argtypes = [POINTER(c_int)]
        library.nvrtcCreateProgram.argtypes = [POINTER(c_void_p), c_char_p, c_char_p, c_int, c_void_p, c_void_p]
        library.nvrtcCompileProgram.argtypes = [c_void_p, c_int, POINTER(c_char_p)]
        library.nvrtcDestroyProgram.argtypes = [POINTER(c_void_p)]
        for part in ("CUBIN", "PTX", "ProgramLog"):
            getattr(library, f"nvrtcGet{part}Size").argtypes = [c_void_p, POINTER(c_size_t)]
            getattr(library, f"nvrtcGet{part}").argtypes = [c_void_p, c_void_p]

        major, minor, count = c_int(), c_int(), c_int()
        self._check(library.nvrtcVersion(byref(major), byref(minor)))
        self._check(library.nvrtcGetNumSupportedArchs(byref(count)))
        archs = (c_int * count.value)()
        self._check(library.nvrtcGetSupportedArchs(archs))
        self.version = (major.value, minor.value)
        self.archs = list(archs)

    def _check(self, code: int) -> None:
        if code:
            raise RuntimeError(f"NVRTC ({self.path}): {self._lib.nvrtcGetErrorString(code).decode()}")

    def _get(self, program: c_void_p, part: str) -> bytes:
        size = c_size_t()
        self._check(getattr(self._lib, f"nvrtcGet{part}Size")(program, byref(size)))
        buffer = ctypes.create_string_buffer(size.value)
        self._check(getattr(self._lib, f"nvrtcGet{part}")(program, buffer))
        return buffer.raw

    def compile(self, source: Path, target: str, options: list[str]) -> bytes:
        """Compile a file to a cubin (target "sm_90") or to PTX (target "compute_90")."""
        program = c_void_p()
        text, name = source.read_bytes(), os.fsencode(source)
        self._check(self._lib.nvrtcCreateProgram(byref(program), text, name, 0, None, None))
        try:
            flags = [f"--gpu-architecture={target}", *options]
            code = self._lib.nvrtcCompileProgram(
                program, len(flags), (c_char_p * len(flags))(*(os.fsencode(flag) for flag in flags))
            )
            if code:
                log = self._get(program, "ProgramLog").rstrip(b"\0").decode(errors="replace").strip()
                reason = self._lib.nvrtcGetErrorString(code).decode()
                raise EngineUnavailable(
                    f"NVRTC {self.version[0]}.{self.version[1]} did not compile {source.name} for {target}: {reason}\n"
                    + log[:4000]  # a log's first error is the one that matters
                )
            return self._get(program, "CUBIN" if target.startswith("sm_") else "PTX")
        finally:
            self._lib.nvrtcDestroyProgram(byref(program))


def library_folders() -> list[Path]:
    """Folders that may hold NVRTC, torch's own first, as its version fits torch and the driver."""
    folders = []
    roots = [Path(torch.__file__).parent.parent / "nvidia"]
    spec = importlib.util.find_spec("nvidia")  # a namespace package: it may lie in several site-packages
    if spec and spec.submodule_search_locations:
        roots += [Path(path) for path in spec.submodule_search_locations]
    for root in dict.fromkeys(roots):
        folders += [root / f"cu{(torch.version.cuda or '13').split('.')[0]}" / "lib", root / "cuda_nvrtc" / "lib"]
        folders += sorted(root.glob("cu[0-9]*/lib"), reverse=True)
    folders.append(Path(torch.__file__).parent / "lib")
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            folders.append(Path(os.environ[variable]) / "lib64")
    folders.append(Path("/usr/local/cuda/lib64"))
    return [folder for folder in dict.fromkeys(folders) if folder.is_dir()]


@functools.cache
def load_nvrtc() -> Nvrtc | None:
    """Load the first NVRTC that works; None if there is none."""
    names = [f"libnvrtc.so.{major}" for major in (13, 12)]
    if (torch.version.cuda or "").startswith("12."):
        names.reverse()
    candidates = []
    for folder in library_folders():
        candidates += [folder / name for name in names]
        candidates += sorted(folder.glob("libnvrtc-[0-9a-f]*.so*"))  # a wheel's vendored copy has a hash in its name
    for path in [str(path) for path in candidates if path.is_file()] + names:
        try:
            return Nvrtc(path)
        except (OSError, AttributeError, RuntimeError):
            continue
    return None


@functools.cache
def load_driver() -> ctypes.CDLL:
    """Load libcuda.so.1 and declare the calls that are used. Raises OSError where there is no driver."""
    cuda = ctypes.CDLL("libcuda.so.1")
    cuda.cuGetErrorName.argtypes = [c_int, POINTER(c_char_p)]
    cuda.cuGetErrorString.argtypes = [c_int, POINTER(c_char_p)]
    cuda.cuDriverGetVersion.argtypes = [POINTER(c_int)]
    cuda.cuCtxGetCurrent.argtypes = [POINTER(c_void_p)]
    cuda.cuCtxGetDevice.argtypes = [POINTER(c_int)]
    cuda.cuCtxPushCurrent_v2.argtypes = [c_void_p]
    cuda.cuCtxPopCurrent_v2.argtypes = [POINTER(c_void_p)]
    cuda.cuDeviceGetAttribute.argtypes = [POINTER(c_int), c_int, c_int]
    cuda.cuModuleLoadData.argtypes = [POINTER(c_void_p), c_void_p]
    cuda.cuModuleGetFunction.argtypes = [POINTER(c_void_p), c_void_p, c_char_p]
    cuda.cuFuncGetAttribute.argtypes = [POINTER(c_int), c_int, c_void_p]
    cuda.cuFuncSetAttribute.argtypes = [c_void_p, c_int, c_int]
    cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor.argtypes = [POINTER(c_int), c_void_p, c_int, c_size_t]
    cuda.cuLaunchKernel.argtypes = [c_void_p, *[c_uint] * 7, c_void_p, c_void_p, c_void_p]
    return cuda


def driver_version() -> tuple[int, int]:
    """Return the newest CUDA that the driver serves, as (13, 0)."""
    version = c_int()
    check(load_driver().cuDriverGetVersion(byref(version)), "cuDriverGetVersion")
    return version.value // 1000, version.value % 1000 // 10


def check(code: int, call: str) -> None:
    """Raise RuntimeError for a driver's error code."""
    if code:
        name, text = c_char_p(), c_char_p()
        load_driver().cuGetErrorName(code, byref(name))
        load_driver().cuGetErrorString(code, byref(text))
        raise RuntimeError(
            f"{call}: {(name.value or b'CUDA error').decode()} ({code}): {(text.value or b'unknown').decode()}"
        )


class Kernel:
    """A compiled kernel on one device, launched with one struct by value.

    Make it with the device's primary context current. Attributes: `num_registers` and `local_bytes` a thread,
    `static_shared_bytes` a block, and `shared_limit`, the most dynamic shared memory that a launch may ask for.
    """

    def __init__(self, image: bytes, name: str):
        self._cuda = cuda = load_driver()
        self._context, module, function = c_void_p(), c_void_p(), c_void_p()
        check(cuda.cuCtxGetCurrent(byref(self._context)), "cuCtxGetCurrent")
        if not self._context:
            raise RuntimeError("no CUDA context is current")
        image = image if image.endswith(b"\0") else image + b"\0"  # PTX is a C string
        check(cuda.cuModuleLoadData(byref(module), image), "cuModuleLoadData")
        # The module stays loaded for the life of the process: a captured CUDA graph may outlive this object.
        check(cuda.cuModuleGetFunction(byref(function), module, name.encode()), f"cuModuleGetFunction({name})")
        self._function = function.value

        self.num_registers = self._attribute(_NUM_REGS)
        self.local_bytes = self._attribute(_LOCAL_SIZE_BYTES)
        self.static_shared_bytes = self._attribute(_SHARED_SIZE_BYTES)
        device, limit = c_int(), c_int()
        check(cuda.cuCtxGetDevice(byref(device)), "cuCtxGetDevice")
        check(
            cuda.cuDeviceGetAttribute(byref(limit), _MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, device), "cuDeviceGetAttribute"
        )
        self.shared_limit = limit.value - self.static_shared_bytes
        # Without this a launch may ask for 48 KiB only. It takes nothing from a launch that asks for less.
        check(
            cuda.cuFuncSetAttribute(self._function, _MAX_DYNAMIC_SHARED_SIZE_BYTES, self.shared_limit),
            "cuFuncSetAttribute",
        )
        self._launch = cuda.cuLaunchKernel

    def _attribute(self, attribute: int) -> int:
        value = c_int()
        check(self._cuda.cuFuncGetAttribute(byref(value), attribute, self._function), "cuFuncGetAttribute")
        return value.value

    def max_blocks_per_sm(self, block: int, shared_bytes: int) -> int:
        """Return how many blocks of this size one multiprocessor holds at a time."""
        count = c_int()
        code = self._in_context(
            self._cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor, byref(count), self._function, block, shared_bytes
        )
        check(code, "cuOccupancyMaxActiveBlocksPerMultiprocessor")
        return count.value

    def launch(self, grid: int, block: int, shared_bytes: int, arg: ctypes.Structure, stream: int) -> None:
        """Launch on a stream of this kernel's device and return at once; `arg` is copied before the return.

        Args:
            grid: blocks.
            block: threads a block.
            shared_bytes: dynamic shared memory of a block, at most `shared_limit`.
            arg: the kernel's only parameter.
            stream: `torch.cuda.Stream.cuda_stream`.
        """
        # The one-element array is made anew (0.2 us): ctypes releases the GIL, so two threads must not share one.
        arguments = _Arguments(ctypes.addressof(arg))
        code = self._launch(self._function, grid, 1, 1, block, 1, 1, shared_bytes, stream, arguments, None)
        if code in _WRONG_CONTEXT:  # a thread that has not used this device yet: not worth a check in every launch
            code = self._in_context(
                self._launch, self._function, grid, 1, 1, block, 1, 1, shared_bytes, stream, arguments, None
            )
        if code:
            check(code, f"cuLaunchKernel(grid {grid}, block {block}, {shared_bytes} bytes shared)")

    def _in_context(self, function, *args) -> int:
        code = self._cuda.cuCtxPushCurrent_v2(self._context)
        if code:
            return code
        try:
            return function(*args)
        finally:
            self._cuda.cuCtxPopCurrent_v2(byref(c_void_p()))
