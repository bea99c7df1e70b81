"""What both builders of kernels are told: the source, the architecture, the rounding, and the variant."""

from collections.abc import Mapping

from kineticsim_env.errors import EngineUnavailable
from kineticsim_env.runtime import build

SOURCE, ENTRY, COPY_ENTRY = "persistent_kernel.cu", "ks_market_kernel", "ks_copy_outputs"
AGENTS = "added_agents.h"  # what kernels with KS_AGENTS include: the text of classes that users have written


def target_of(arch: int, supported: list[int], compiler: str) -> str:
    """Return the target for an architecture: machine code, or PTX for one newer than the compiler."""
    if arch in supported:
        return f"sm_{arch}"
    older = [other for other in supported if other < arch]
    if not older:
        raise EngineUnavailable(f"{compiler} compiles for sm_{min(supported)} and newer, not for this GPU's sm_{arch}")
    return f"compute_{max(older)}"


def options(defines: Mapping[str, int | str]) -> list[str]:
    """Return what both builders are told: the rules' rounding, where the headers are, and the variant."""
    named = [f"-D{name}={value}" for name, value in sorted(defines.items())]
    return ["--std=c++17", "--fmad=false", "-lineinfo", f"-I{build.cuda_dir()}", *named]
