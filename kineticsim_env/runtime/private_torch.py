"""All names that are private to torch, each with what its public ways lack; a new torch is looked through here.

Engines and environments take the functions from here, of which some are called in every step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

# What `torch.no_grad` and `torch.set_grad_enabled` call: they make an object each time, and take ten times as long.
set_grad_enabled: Callable[[bool], None] = torch._C._set_grad_enabled

# What `torch.cuda.current_stream(i).cuda_stream` and `torch.cuda.current_device()` read: these ask each time whether
# CUDA is initialised, and the former makes an object. None where torch is built without CUDA, and nobody calls them.
current_raw_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)
current_device: Any = getattr(torch._C, "_cuda_getDevice", None)

# Whether this process was forked from one that used CUDA: the GPU counts as available there, and every use of it fails.
is_forked: Callable[[], bool] = torch.cuda._is_in_bad_fork


def keep_compiled(programs: int) -> None:
    """Let `torch.compile` keep so many programs of one function side by side, of other shapes; by itself it keeps 8."""
    import torch._dynamo  # takes a second

    settings: Any = torch._dynamo.config
    settings.recompile_limit = programs


# In place, one kernel for all: `Tensor.copy_` is one each, and a policy has a dozen small tensors.
copy_all: Callable[[list[torch.Tensor], list[torch.Tensor]], None] = torch._foreach_copy_


def version_of(tensor: torch.Tensor) -> int:
    """Return how often a tensor was written to: autograd counts, and nothing public tells."""
    return tensor._version
