"""NVIDIA's driver, through `cuda.bindings`: what it serves, functions of modules, and how they are launched."""

from __future__ import annotations

import ctypes
import functools
import importlib
from typing import Any

from kineticsim_env.errors import EngineUnavailable

_WRONG_CONTEXT = (201, 400)  # CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_HANDLE
_Arguments = ctypes.c_void_p * 1


def bindings() -> tuple[Any, Any]:
    """Return the modules `cuda.bindings.driver` and `cuda.bindings.nvrtc`. Raises EngineUnavailable without them."""
    try:
        return importlib.import_module("cuda.bindings.driver"), importlib.import_module("cuda.bindings.nvrtc")
    except ImportError as error:
        raise EngineUnavailable("cuda.bindings is not found (pip install cuda-bindings)") from error


def version() -> tuple[int, int] | None:
    """Return the newest CUDA that the driver serves, as (13, 0), or None if there is no driver."""
    try:
        code, version = bindings()[0].cuDriverGetVersion()
    except (EngineUnavailable, RuntimeError, OSError):
        return None
    return None if int(code) else (version // 1000, version % 1000 // 10)


def check(result: tuple[Any, ...], call: str) -> Any:
    """Return what a driver's call gave, or raise RuntimeError with its name."""
    code, *values = result
    if int(code):
        raise RuntimeError(f"{call}: {code.name} ({int(code)})")
    return values[0] if values else None


@functools.cache
def address_of(name: str) -> int:
    """Return the address of one of the driver's functions, such as cuLaunchKernel, for C++ to call."""
    found = bindings()[0].cuGetProcAddress(name.encode(), 12000, 0)
    return int(check(found[:2], f"cuGetProcAddress({name})"))


class Kernel:
    """A kernel on one device, launched with one struct by value.

    Make it with the device's primary context current.

    Attributes:
        function: Its CUfunction.
        copy_function: That of the kernel that copies outputs, 0 if there is none with it.
        context: The CUcontext that it is of.
        num_registers: Registers per thread.
        local_bytes: Local memory per thread.
        shared_limit: The most dynamic shared memory per block that a launch may ask for.
    """

    def __init__(self, function: int, copy_function: int) -> None:
        """Describe a function, and let it have all the shared memory that there is."""
        driver = bindings()[0]
        attribute, device_attribute = driver.CUfunction_attribute, driver.CUdevice_attribute
        self.function, self.copy_function = function, copy_function
        self._driver, self._handle = driver, driver.CUfunction(function)
        self.num_registers = self._get(attribute.CU_FUNC_ATTRIBUTE_NUM_REGS)
        self.local_bytes = self._get(attribute.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)
        self.static_shared_bytes = self._get(attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)
        device = check(driver.cuCtxGetDevice(), "cuCtxGetDevice")
        optin = device_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        limit = check(driver.cuDeviceGetAttribute(optin, device), "cuDeviceGetAttribute")
        self.shared_limit = limit - self.static_shared_bytes
        # Without this a launch may ask for 48 KiB only. It takes nothing from a launch that asks for less.
        largest = attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        check(driver.cuFuncSetAttribute(self._handle, largest, self.shared_limit), "cuFuncSetAttribute")
        self.context = check(driver.cuCtxGetCurrent(), "cuCtxGetCurrent")

    def _get(self, attribute: Any) -> int:
        return check(self._driver.cuFuncGetAttribute(attribute, self._handle), "cuFuncGetAttribute")

    def max_blocks_per_sm(self, block: int, shared_bytes: int) -> int:
        """Return how many blocks of this size one multiprocessor holds at a time."""
        call = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
        return check(getattr(self._driver, call)(self._handle, block, shared_bytes), call)

    def launch(self, grid: int, block: int, shared_bytes: int, arg: ctypes.Structure, stream: int) -> None:
        """Launch on a stream of this kernel's device and return at once; `arg` is copied before the return.

        `shared_bytes` is dynamic shared memory per block, at most `shared_limit`; `stream` is
        `torch.cuda.Stream.cuda_stream`.
        """
        # The array is made anew for each launch: two threads may be in here.
        arguments = _Arguments(ctypes.addressof(arg))
        shape = (grid, 1, 1, block, 1, 1, shared_bytes, stream, ctypes.addressof(arguments), 0)
        (code,) = self._driver.cuLaunchKernel(self._handle, *shape)
        if int(code) in _WRONG_CONTEXT:  # a thread that has not used this device yet
            check(self._driver.cuCtxPushCurrent(self.context), "cuCtxPushCurrent")
            try:
                (code,) = self._driver.cuLaunchKernel(self._handle, *shape)
            finally:
                self._driver.cuCtxPopCurrent()
        check((code,), f"cuLaunchKernel(grid {grid}, block {block}, {shared_bytes} bytes shared)")
