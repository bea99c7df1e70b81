"""Which variant of the CUDA kernel an engine needs, and the shape of its launches. Asked of cuda/model/plan.h.

The kernels know what they need. This file hands them an engine's sizes and reads their answer: on the host, or, where
there is no C++ compiler, from a kernel of one thread.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from kineticsim_env.errors import EngineUnavailable
from kineticsim_env.runtime import build, kernels, layout

_TEXT = (build.cuda_dir() / "model" / "plan.h").read_text()
Request: Any = layout.structure("PlanRequest", layout.parse_struct(_TEXT, "PlanRequest"), {})
Plan: Any = layout.structure("Plan", layout.parse_struct(_TEXT, "Plan"), {})
_Launch: Any = layout.structure("PlanLaunch", layout.parse_struct(_TEXT, "PlanLaunch"), {"PlanRequest": Request})

_SIZES = {"M": "markets", "L": "levels", "K": "slots"}


def plan_for(sizes: Mapping[str, int], device: torch.device, **asked: int) -> Any:
    """Return what `plan_for` in cuda/model/plan.h answers, a `struct Plan`.

    Sizes are M, L and K; further arguments are the other fields of `struct PlanRequest` but those of the device.
    """
    properties = torch.cuda.get_device_properties(device)
    request = Request(
        **{name: sizes[short] for short, name in _SIZES.items()},
        multiprocessors=properties.multi_processor_count,
        shared_of_block=properties.shared_memory_per_block_optin,
        shared_of_multiprocessor=getattr(properties, "shared_memory_per_multiprocessor", 0),
        **asked,
    )
    try:
        return plan_on_host(request)
    except EngineUnavailable:
        return plan_on_device(request, device)


def plan_on_host(request: Any) -> Any:
    """Return the plan for a request; compiled C++ makes it. Raises EngineUnavailable where there is no compiler."""
    plan = Plan()
    build.load_plan().ks_plan(ctypes.addressof(request), ctypes.addressof(plan))
    return plan


def plan_on_device(request: Any, device: torch.device) -> Any:
    """Return the same; the GPU makes it."""
    kernel = kernels.load_kernel(device, {}, "plan.cu", "ks_plan")
    answer = torch.zeros(ctypes.sizeof(Plan), dtype=torch.uint8, device=device)
    launch = _Launch(request=request, plan=answer.data_ptr())
    kernel.launch(1, 1, 0, launch, torch.cuda.current_stream(device).cuda_stream)
    return Plan.from_buffer_copy(answer.cpu().numpy().tobytes())


def levers_of(rows: Mapping[str, np.ndarray]) -> int:
    """Return which levers any market has on: 0 none, 1 rounding alone, 2 others; `struct PlanRequest` asks for it."""
    others = ("reference", "tax", "collar", "regimes")
    if any(np.any(rows[name] != 0) for name in others) or any(
        np.any(rows[name] != 1) for name in ("taker_offset", "tick_size")
    ):
        return 2
    return int(np.any(rows["rounding"] != 0))


def definitions(plan: Any) -> dict[str, int | str]:
    """Return the preprocessor definitions of the variant that a plan chose."""
    chosen = {"KS_LANES_PER_MARKET": plan.lanes_per_market} if plan.lanes_per_market else {"KS_BINS": plan.bins}
    if plan.single:
        chosen["KS_SINGLE"] = 1
    if plan.blocks_to_hold:
        chosen["KS_BLOCKS"] = plan.blocks_to_hold
    if plan.lanes:
        chosen["KS_LANES"] = plan.lanes
    if plan.deadlines:
        chosen["KS_DEADLINES"] = 1
    if plan.warps:
        chosen["KS_WARPS"] = plan.warps
    return chosen
