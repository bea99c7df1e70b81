"""What is compiled just in time: where the sources are, what is built once in a process, and the C++ libraries.

`load_cpu` builds the C++ library (`cxx`): the C++ engine, and the operators that launch any engine. A GPU needs the
operators alone, `load_operators`, which takes half as long, and what chooses a kernel, `load_plan`, in a tenth of a
second, so that a kernel can be compiled while the operators are. `kernels` builds the CUDA kernels. Nothing is compiled
at import. Results are kept in memory and on disk (`cache`), under keys that name all that they depend on,
KINETICSIM_CXXFLAGS among it: further flags for the libraries' compiler and linker, such as a sanitizer's.
"""

import contextlib
import ctypes
import functools
import hashlib
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from kineticsim_env.errors import EngineUnavailable
from kineticsim_env.runtime import cxx, prebuilt
from kineticsim_env.runtime.cache import Flawed, cache_dir, notice, obtain, read_whole
from kineticsim_env.runtime.cxx import compiler_version, find_cxx
from kineticsim_env.runtime.sources import cuda_dir, engine_hash, hash_of

__all__ = ["cache_dir", "compiler_version", "cuda_dir", "find_cxx", "hash_of"]  # for the doctor and others

KERNEL_SOURCE, ENTRY, COPY_ENTRY = "persistent_kernel.cu", "ks_market_kernel", "ks_copy_outputs"
AGENTS = "added_agents.h"  # what kernels with KS_AGENTS include: the text of classes that users have written
OPERATOR_SOURCES = ("operators.cpp",)
CPU_SOURCES = ("market_cpu.cpp", *OPERATOR_SOURCES)
_ADDRESS, _INT = ctypes.c_void_p, ctypes.c_int64
OPERATOR_FUNCTIONS: dict[str, list] = {  # all return int64, but for those of _NOTHING
    "ks_sizeof_launcher": [],
    "ks_register_operators": [],
    "ks_new_launcher": [_ADDRESS, _ADDRESS],
    "ks_renew_launcher": [_INT, _ADDRESS, _ADDRESS],
    "ks_free_launcher": [_INT],
    "ks_played": [_INT],
    "ks_step": [_INT, _ADDRESS, _INT, _INT, _ADDRESS],
}
_ENGINE_FUNCTIONS: dict[str, list] = {"ks_cpu_launch": [_ADDRESS], "ks_sizeof_launch": [], "ks_sizeof_params": []}
CPU_FUNCTIONS = _ENGINE_FUNCTIONS | OPERATOR_FUNCTIONS
_NOTHING = ("ks_free_launcher",)  # return nothing
_PREBUILT_FUNCTIONS: dict[str, list] = {"ks_use_threads": [_ADDRESS], "ks_sources": []}
PLAN_SOURCES = ("plan.cpp",)
PLAN_FUNCTIONS: dict[str, list] = {"ks_plan": [_ADDRESS, _ADDRESS]}
TAPE_SOURCES = ("tape/tape.cpp",)
TAPE_FUNCTIONS: dict[str, list] = {
    "ks_tape_open": [_ADDRESS, _ADDRESS],
    "ks_tape_play": [_ADDRESS, _ADDRESS, _ADDRESS, _INT, _ADDRESS],
    "ks_tape_count": [_ADDRESS],
    "ks_tape_rows": [_ADDRESS],
    "ks_tape_forget": [_ADDRESS],
    "ks_tape_difference": [_ADDRESS],
    "ks_tape_close": [_ADDRESS],
    "ks_lobster_open": [_INT, _INT, _INT],
    "ks_lobster_add": [_ADDRESS, _ADDRESS, _INT, _ADDRESS, _ADDRESS],
    "ks_lobster_close": [_ADDRESS],
}
JAX_SOURCES = ("jax_calls.cpp",)
JAX_FUNCTIONS: dict[str, list] = {
    "ks_jax_know": [ctypes.c_char_p, _ADDRESS, _ADDRESS, _INT],
    "ks_jax_sizes": [],
    "ks_jax_cpu": [],  # handlers, which XLA calls
    "ks_jax_gpu": [],
}

_GET_NUM_THREADS = "_ZN2at15get_num_threadsEv"  # int at::get_num_threads()

_loaded: dict = {}
_failed: dict = {}
_locks: dict[object, threading.RLock] = {}

if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_locks.clear)  # a child lacks the threads that may hold them


def source_hash() -> str:
    """Return the sha256 over names and contents of all source files in `cuda_dir()`."""
    return hash_of(cuda_dir(), (".h", ".cuh", ".cu", ".cpp"))


def loaded(key: object) -> Any:
    """Return what `once` has made for a key, or None."""
    return _loaded.get(key)


def once(key: object, make: Callable[[], Any], group: object = None) -> Any:
    """Return `make()`, called once per process for a key. Failures are kept too, as a compilation takes long.

    Of a group one is made at a time; without one the key is a group of its own. `make` may raise EngineUnavailable.
    """
    with _locks.setdefault(group or key, threading.RLock()):
        if key in _failed:
            raise EngineUnavailable(_failed[key])
        if key not in _loaded:
            try:
                _loaded[key] = make()
            except EngineUnavailable as error:
                _failed[key] = str(error)
                raise
        return _loaded[key]


def key(*parts: object) -> str:
    """Return the cache key of code that depends on these parts."""
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:16]


# ---- The C++ libraries ---------------------------------------------------------------------------------------------


def cpu_unavailable() -> str | None:
    """Return what the C++ engine lacks and how to get it, or None: a compiler, or a library that was built before."""
    return None if is_prebuilt() else cxx.cpu_unavailable()


def load_cpu() -> ctypes.CDLL:
    """Return the C++ library, from this process, from the cache, or built now. Raises EngineUnavailable.

    Where there is no compiler it is a wheel's, without the operators.
    """
    return _loaded.get("cpu") or once("cpu", lambda: _load("cpu", CPU_SOURCES, CPU_FUNCTIONS, _build_cpu))


def is_prebuilt() -> bool:
    """Say whether libraries are a wheel's: there is no compiler, and one of them is for this processor."""
    return cxx.cpu_unavailable() is not None and prebuilt.find() is not None


def load_operators() -> ctypes.CDLL:
    """Return a library with the operators: the C++ library where that is loaded, else one of them alone, likewise."""
    return (
        _loaded.get("operators")
        or (None if is_prebuilt() else _loaded.get("cpu"))
        or once("operators", lambda: _load("operators", OPERATOR_SOURCES, OPERATOR_FUNCTIONS, _build_operators))
    )


def begin_operators() -> None:
    """Let another thread load the operators, for a `load_operators` to come, which waits for it."""
    if "operators" in _loaded or "operators" in _failed or "cpu" in _loaded:
        return

    def load() -> None:
        with contextlib.suppress(EngineUnavailable, KeyboardInterrupt):  # who calls load_operators is told
            load_operators()

    threading.Thread(target=load, name="kineticsim_env-build").start()


def load_plan() -> ctypes.CDLL:
    """Return the library of cuda/plan.cpp, likewise. Raises EngineUnavailable."""
    return _loaded.get("plan") or once("plan", lambda: _load("plan", PLAN_SOURCES, PLAN_FUNCTIONS, _build))


def load_tape() -> ctypes.CDLL:
    """Return the library of cuda/tape/, likewise. Raises EngineUnavailable."""
    return _loaded.get("tape") or once("tape", lambda: _load("tape", TAPE_SOURCES, TAPE_FUNCTIONS, _build))


def load_jax(headers: str, version: str) -> ctypes.CDLL:
    """Return the library of cuda/jax_calls.cpp, likewise, for a version of XLA's headers, which lie in a folder."""
    make = functools.partial(_build, alone=True, others=Path(headers))
    return once("jax", lambda: _load("jax", JAX_SOURCES, JAX_FUNCTIONS, make, version))


@functools.cache
def _mind_forks() -> None:
    """Give forked children one thread: OpenMP's do not survive, and a child that asked for them would wait for ever."""
    os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))


def _load(
    name: str, sources: Sequence[str], functions: Mapping[str, list], make: Callable[..., bytes], version: str = ""
) -> ctypes.CDLL:
    if is_prebuilt() and name not in ("operators", "jax"):
        return once("prebuilt", _load_prebuilt)
    missing, command = cxx.cpu_unavailable(), find_cxx()
    if missing or command is None:
        raise EngineUnavailable(missing or "no C++ compiler is found")
    _mind_forks()  # now: a child may be forked while this builds
    name = f"ks_{name}_{library_key(command, version)}"
    paths = [cuda_dir() / source for source in sources]
    return obtain(
        f"{name}.so",
        lambda path, _: _open_library(path, functions),
        lambda folder: make(command, paths, folder, name),
    )


def _load_prebuilt() -> ctypes.CDLL:
    path = prebuilt.find()
    assert path is not None
    _mind_forks()
    try:
        read_whole(path)  # to load a part of one would end the process
        library = _open_library(path, _ENGINE_FUNCTIONS | PLAN_FUNCTIONS | TAPE_FUNCTIONS | _PREBUILT_FUNCTIONS)
    except (Flawed, OSError) as error:
        raise EngineUnavailable(f"{path} cannot be loaded: {error}") from error
    if library.ks_sources() != int(engine_hash(cuda_dir())[:15], 16):
        raise EngineUnavailable(f"{path} was built of other sources; build it again, or remove it")
    # torch's own, so that it counts as torch does: for each thread, and one in a forked child.
    torch_cpu = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    library.ks_use_threads(ctypes.cast(getattr(torch_cpu, _GET_NUM_THREADS), _ADDRESS))
    return library


def library_key(command: str, text: str = "") -> str:
    """Return the cache key of a library that a compiler builds of our sources, and perhaps of a further text."""
    flags = [*cxx.BASE_FLAGS, *cxx.extra_flags(), *([text] if text else ())]
    return key(torch.__version__, command, compiler_version(command), cxx.cpu_model(), source_hash(), *flags)


def _open_library(path: Path, functions: Mapping[str, list]) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    missing = [name for name in functions if not hasattr(library, name)]
    if missing:
        close_library(library)
        raise OSError(f"{', '.join(missing)} not found in it")
    for name, arguments in functions.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, None if name in _NOTHING else ctypes.c_int64
    return library


def close_library(library: ctypes.CDLL) -> None:
    """Unload a library that cannot be used; else the next build, at the same path, would not be loaded."""
    from _ctypes import dlclose  # not on Windows

    dlclose(library._handle)


def _build(command: str, sources: Sequence[Path], folder: Path, name: str, **how: Any) -> bytes:
    return cxx.build_library(command, sources, cuda_dir(), folder, name, **how)


def _build_slowly(what: str, seconds: int, *words: Any) -> bytes:
    notice(f"compiling {what}, about {seconds} s (cached in {words[2].parent})")
    started = time.monotonic()
    library = _build(*words)
    notice(f"compiled {what} in {time.monotonic() - started:.0f} s")
    return library


_build_cpu = functools.partial(_build_slowly, "the C++ engine", 15)
_build_operators = functools.partial(_build_slowly, "operators for torch", 7)


def target_of(arch: int, supported: list[int], compiler: str) -> str:
    """Return the target for an architecture: machine code, or PTX for one newer than the compiler."""
    if arch in supported:
        return f"sm_{arch}"
    older = [other for other in supported if other < arch]
    if not older:
        raise EngineUnavailable(f"{compiler} compiles for sm_{min(supported)} and newer, not for this GPU's sm_{arch}")
    return f"compute_{max(older)}"


def kernel_options(defines: Mapping[str, int | str]) -> list[str]:
    """Return what both builders are told: the rules' rounding, where the headers are, and the variant."""
    named = [f"-D{name}={value}" for name, value in sorted(defines.items())]
    return ["--std=c++17", "--fmad=false", "-lineinfo", f"-I{cuda_dir()}", *named]
