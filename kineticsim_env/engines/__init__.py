"""The engines, and which of them to take: CUDA, else C++, else NumPy, all with the same bits."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch

from kineticsim_env.engines.base import Engine
from kineticsim_env.engines.cpu import CpuEngine
from kineticsim_env.engines.cuda import CudaEngine
from kineticsim_env.errors import EngineUnavailable
from kineticsim_env.runtime import build, kernels
from kineticsim_env.runtime.cache import notice
from kineticsim_env.runtime.values import check_choice, show

ENGINES = ("auto", "cuda", "cpu", "numpy")
_said: set[str] = set()


def choose_engine(
    engine: str, device: Any = None, *, prefer_cpu: str = "", own_code: bool = False
) -> tuple[str, torch.device]:
    """Resolve an engine's name and device; `"auto"` says in one line which it takes and why.

    Args:
        engine: `"auto"`, `"cuda"`, `"cpu"` or `"numpy"`.
        device: None, or a torch device that fits the engine.
        prefer_cpu: Why `"auto"` should not take CUDA here, empty if it may.
        own_code: Whether there are traders or policies of the user's own, which compiled engines compile.

    Raises:
        ValueError: If the engine or device is unknown, or they do not fit together.
        EngineUnavailable: If the engine asked for by name cannot run; says what is missing and how to get it.
    """
    check_choice("engine", engine, ENGINES)
    wanted = _device(device)
    if wanted is not None and engine != "auto" and (wanted.type == "cuda") != (engine == "cuda"):
        raise ValueError(f"device: expected a device of that engine, got {str(wanted)!r} with engine={engine!r}")
    if engine == "cuda" or (engine == "auto" and wanted is not None and wanted.type == "cuda"):
        reason = kernels.cuda_unavailable()
        if reason:
            raise EngineUnavailable(f"engine 'cuda' cannot run: {reason}")
        return "cuda", _cuda_device(wanted)
    if engine == "cpu":
        reason = build.cpu_unavailable()
        if reason:
            raise EngineUnavailable(f"engine 'cpu' cannot run: {reason}")
        build.load_cpu()
    if engine != "auto":
        return engine, torch.device("cpu")
    return _choose_auto(wanted, prefer_cpu, own_code)


def _choose_auto(wanted: torch.device | None, prefer_cpu: str, own_code: bool) -> tuple[str, torch.device]:
    why_not_cuda = prefer_cpu or ("device='cpu' was asked for" if wanted is not None else kernels.cuda_unavailable())
    if not why_not_cuda:
        _say("engine cuda, as there is a GPU and a compiler for it")
        return "cuda", _cuda_device(wanted)
    if not prefer_cpu and wanted is None and kernels.gpu_present():
        warnings.warn(f"the GPU cannot be used: {why_not_cuda}", stacklevel=4)
    try:
        if own_code and build.is_prebuilt():
            raise EngineUnavailable("what was built before knows no traders or policies of your own")
        build.load_cpu()
    except EngineUnavailable as error:
        _say(f"engine numpy, slow: no cuda ({why_not_cuda}), no cpu ({error})")
        return "numpy", torch.device("cpu")
    _say(f"engine cpu (C++): no cuda, as {why_not_cuda}")
    return "cpu", torch.device("cpu")


def make_engine(name: str, device: torch.device, sizes: Mapping[str, int], tensors: dict[str, torch.Tensor]) -> Engine:
    """Make a resolved engine on given tensors."""
    if name == "numpy":
        from kineticsim_env.engines.numpy.engine import NumpyEngine  # loaded where it is needed, which is seldom

        return NumpyEngine(device, sizes, tensors)
    return {"cuda": CudaEngine, "cpu": CpuEngine}[name](device, sizes, tensors)


def _device(device: Any) -> torch.device | None:
    if device is None:
        return None
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"device: expected None, 'cpu', 'cuda' or 'cuda:N', got {show(device)}") from error
    if found.type not in ("cpu", "cuda"):
        raise ValueError(f"device: expected None, 'cpu', 'cuda' or 'cuda:N', got {show(device)}")
    return found


def _cuda_device(wanted: torch.device | None) -> torch.device:
    index = torch.cuda.current_device() if wanted is None or wanted.index is None else wanted.index
    if index >= torch.cuda.device_count():
        raise ValueError(f"device: expected an index below {torch.cuda.device_count()}, got 'cuda:{index}'")
    return torch.device("cuda", index)


def _say(text: str) -> None:
    """Print a line once per process."""
    if text not in _said:
        _said.add(text)
        notice(text)
