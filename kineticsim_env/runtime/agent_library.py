"""The C++ engine's libraries of agents that users have written: built just in time, each class once in a process.

`functions` returns the addresses that `struct AgentClass` takes. Classes that are compiled together share a library:
`compile_classes` makes one of hundreds, where engines then find them. Libraries are kept in the cache, as
the engine is.
"""

import ctypes
import os
import re
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from kineticsim_env.agents.classes import AgentClass
from kineticsim_env.agents.policies import ProgramPolicy, policy_library_text, text_of_policy
from kineticsim_env.agents.programs import AFTER, NAMES, library_text, text_of
from kineticsim_env.errors import EngineUnavailable
from kineticsim_env.runtime import build, cxx
from kineticsim_env.runtime.cache import notice, obtain

_found: dict[str, int] = {}  # addresses of ks_functions_N, by the class's text
_libraries: list[ctypes.CDLL] = []  # which stay open
_locks = {"building": threading.RLock()}

if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=lambda: _locks.update(building=threading.RLock()))


def functions(kinds: Sequence[AgentClass]) -> list[int]:
    """Return the address of each class's `AgentFunctions`, which the C++ engine calls.

    Raises:
        EngineUnavailable: If there is no compiler.
        ValueError: If a class's own C++ does not compile.
    """
    compile_classes(kinds)
    return [_found[text_of(kind, 0)] for kind in kinds]


def compile_classes(kinds: Iterable[AgentClass]) -> None:
    """Compile those classes that this process has not compiled yet, in one library. Raises as `functions` does."""
    with _locks["building"]:
        missing = {text_of(kind, 0): kind for kind in kinds}
        for text in _found.keys() & missing.keys():
            del missing[text]
        if not missing:
            return
        library = _load(list(missing.values()))
        _libraries.append(library)
        for number, text in enumerate(missing):
            _found[text] = ctypes.addressof(ctypes.c_byte.in_dll(library, f"ks_functions_{number}"))


def policy_functions(policies: Sequence[ProgramPolicy]) -> list[int]:
    """Return the address of each policy's `PolicyFunctions`, which the C++ engine calls. Raises as `functions` does."""
    with _locks["building"]:
        missing = {text: one for one in policies if (text := text_of_policy(one, 0)) not in _found}
        if missing:
            what = f"the policy {policies[0].name}" if len(missing) == 1 else f"{len(missing)} policies"
            library = _library(what, policy_library_text(list(missing.values())))
            _libraries.append(library)
            for number, text in enumerate(missing):
                _found[text] = ctypes.addressof(ctypes.c_byte.in_dll(library, f"ks_policy_{number}"))
        return [_found[text_of_policy(one, 0)] for one in policies]


def _load(kinds: Sequence[AgentClass]) -> ctypes.CDLL:
    what = f"agents of {len(kinds)} classes" if len(kinds) > 1 else f"agents of class {kinds[0].name}"
    return _library(what, library_text(kinds))


def _library(what: str, text: str) -> ctypes.CDLL:
    missing, command = cxx.cpu_unavailable(), cxx.find_cxx()
    if missing or command is None:
        said = missing or "no C++ compiler is found"
        raise EngineUnavailable(f"{what} cannot be compiled: {said}; or take engine='numpy', which needs none")
    name = f"ks_agents_{build.library_key(command, text)}"
    return obtain(
        f"{name}.so",
        lambda path, _: ctypes.CDLL(str(path)),
        lambda folder: _build(command, what, text, folder, name),
    )


def _build(command: str, what: str, text: str, folder: Path, name: str) -> bytes:
    notice(f"compiling {what} (cached in {folder.parent})")
    started = time.monotonic()
    source = folder / "agents.cpp"
    source.write_text(text)
    try:
        library = cxx.build_library(command, [source], build.cuda_dir(), folder, name, alone=True)
    except cxx.CompilerError as error:
        if said := _said_of_a_class(error.output):
            raise ValueError(said) from error
        raise
    notice(f"compiled them in {time.monotonic() - started:.1f} s")
    return library


def _said_of_a_class(output: str) -> str | None:
    """Return which class's own C++ a compiler refuses, and its first word on it; None if it names none."""
    names = re.findall(r"cxx of (\w+):\d", output)
    if not names:
        return None
    who = f"cxx: class {names[0]!r} does not compile as C++"
    first = re.search(r"^(.*?):(\d+):(?:\d+:)? (?:fatal )?error: (.*)$", output, re.MULTILINE)
    if first is None:
        return f"{who}: {output.strip().splitlines()[0]}"
    if first[1].startswith(AFTER):
        return f"{who}: a brace is not closed, or one is closed that was not opened ({first[3]})"
    if first[1].startswith(NAMES):
        return f"{who}: a parameter or a word of memory has a name that C++ has for itself ({first[3]})"
    return f"{who}, line {first[2]}: {first[3]}" if first[1].startswith("cxx of ") else f"{who}: {first[3]}"
