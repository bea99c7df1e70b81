"""NVRTC, through `cuda.bindings`: compiles a kernel to a cubin. It needs no toolkit and no host compiler."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from kineticsim_env.errors import EngineUnavailable
from kineticsim_env.runtime import build, driver


def version() -> tuple[int, int] | None:
    """Return NVRTC's version, as (13, 0), or None if there is none."""
    try:
        code, major, minor = driver.bindings()[1].nvrtcVersion()
    except (EngineUnavailable, RuntimeError, OSError):
        return None
    return None if int(code) else (major, minor)


def compile_kernel(
    arch: int, defines: Mapping[str, int | str], source: str = build.KERNEL_SOURCE, agents: str = ""
) -> bytes:
    """Compile a kernel for sm_`arch` to a cubin, or to PTX if NVRTC is too old for it; see `nvcc.build_kernel`."""
    api, path = driver.bindings()[1], build.cuda_dir() / source

    def call(name: str, *arguments: Any) -> Any:
        code, *results = getattr(api, name)(*arguments)
        if int(code):
            raise RuntimeError(f"NVRTC: {name}: {code.name}")
        return results[0] if results else None

    def get(part: str) -> bytes:
        buffer = b" " * call(f"nvrtcGet{part}Size", program)
        call(f"nvrtcGet{part}", program, buffer)
        return buffer

    target = build.target_of(arch, call("nvrtcGetSupportedArchs"), "NVRTC")
    options = [os.fsencode(option) for option in (f"--gpu-architecture={target}", *build.kernel_options(defines))]
    texts, names = ([agents.encode()], [build.AGENTS.encode()]) if agents else ([], [])
    program = call("nvrtcCreateProgram", path.read_bytes(), os.fsencode(path), len(texts), texts, names)
    try:
        (code,) = api.nvrtcCompileProgram(program, len(options), options)
        if int(code):
            log = get("ProgramLog").rstrip(b"\0").decode(errors="replace").strip()
            # A log's first error is the one that matters.
            raise EngineUnavailable(f"NVRTC did not compile {path.name} for {target}: {code.name}\n{log[:4000]}")
        return get("CUBIN" if target.startswith("sm_") else "PTX")
    finally:
        api.nvrtcDestroyProgram(program)


def load_image(image: bytes, entry: str) -> tuple[int, int]:
    """Return the functions of a cubin or of PTX, as `nvcc.open_library` does.

    The module stays loaded: a captured CUDA graph may outlive all objects.
    """
    api = driver.bindings()[0]
    module = driver.check(api.cuModuleLoadData(image if image.endswith(b"\0") else image + b"\0"), "cuModuleLoadData")
    function = driver.check(api.cuModuleGetFunction(module, entry.encode()), f"cuModuleGetFunction({entry})")
    code, copies = api.cuModuleGetFunction(module, build.COPY_ENTRY.encode())
    return int(function), 0 if int(code) else int(copies)
