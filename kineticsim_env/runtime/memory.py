"""How much memory is free, on the host and on a GPU, and the refusal of what would take more.

Linux grants more memory than there is and kills who uses it, so a run that cannot fit has to be refused beforehand. The
command line asks, with what its commands were measured to take.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from kineticsim_env.config import MarketConfig

_NUMPY_ORDER_BYTES = 36  # measured: the NumPy engine draws the orders of all agents at once
_PROC, _CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")


def free_bytes(device: torch.device) -> int | None:
    """Return the bytes that can still be had on a device, None if the system does not tell."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    known = [found for found in (_system_free(), _container_free()) if found is not None]
    return min(known, default=None)


def check_run(
    options: str,
    got: str,
    config: MarketConfig,
    markets: int,
    auctions: int,
    engine: str,
    device: torch.device,
    cell: Mapping[str, float],
    host_cell: Mapping[str, float],
) -> None:
    """Refuse a run that does not fit, of markets on their device or of what is made of it on the host.

    Args:
        options: Those that say how much it is, for the message.
        got: What they ask for, for the message.
        config: The market.
        markets: How many.
        auctions: Of each.
        engine: A resolved engine.
        device: Its device.
        cell: Bytes that an auction of a market takes on the device, by what they are for.
        host_cell: The same, on the host.
    """
    here = {name: size * markets * auctions for name, size in cell.items()}
    here["books"] = book_bytes(config, device) * markets
    if engine == "numpy":
        agents = float(np.mean(config.num_agents)) + config.added_agents
        here["orders"] = _NUMPY_ORDER_BYTES * markets * agents
    if config.agents:
        here["added agents"] = agent_bytes(config) * markets
    host = {name: size * markets * auctions for name, size in host_cell.items()}
    if device.type == "cuda":
        require(options, got, here, device)
        here = {}
    else:
        here["books"] *= 2  # a long run keeps those that it began with
    require(options, got, {**here, **host}, torch.device("cpu"))


def book_bytes(config: MarketConfig, device: torch.device) -> int:
    """Return the bytes of a market's book on a device: units of both sides at its ticks.

    Of a flow there are orders of two lives and units of one besides, and on a GPU what its kernel has of them.
    """
    words = 2 + (3 + 2 * (device.type == "cuda") if config.is_flow else 0)
    return 4 * config.num_levels * words


def agent_bytes(config: MarketConfig) -> int:
    """Return the bytes that the agents that users have added keep of a market: memory and parameters of each."""
    return 4 * sum(made.count * (len(kind.memory) + len(kind.parameters)) for kind, made in config.agents.items())


def require(options: str, got: str, parts: Mapping[str, float], device: torch.device) -> None:
    """Refuse what does not fit: parts are bytes, by what they are for; `options` asked for what `got` says.

    Raises:
        ValueError: With the bytes that it would take and those that are free, after `got`.
    """
    free, total = free_bytes(device), math.fsum(parts.values())
    if free is None or total <= free:
        return
    details = ", ".join(f"{name} {size_text(size)}" for name, size in parts.items())
    place = "GPU memory" if device.type == "cuda" else "memory"
    raise ValueError(
        f"{options}: expected what fits in the {size_text(free)} that are free, got {got}, which takes "
        f"{size_text(total)} of {place} ({details})"
    )


def size_text(size: float) -> str:
    """Return bytes with three digits: 23.4 GB."""
    units = ["B", "kB", "MB", "GB", "TB", "PB", "EB", "ZB"]
    while size >= 999.5 and len(units) > 1:
        size, units = size / 1000, units[1:]
    return f"{size:.3g} {units[0]}"


def _system_free() -> int | None:
    """Return what Linux says new programs can have, its caches given up; elsewhere all that the machine has."""
    with contextlib.suppress(OSError, ValueError):
        for line in (_PROC / "meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    with contextlib.suppress(AttributeError, OSError, ValueError):  # Windows has no sysconf
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def _container_free() -> int | None:
    """Return what the tightest of this process's control groups leaves (Docker's and Slurm's limits), if one does."""
    found = []
    with contextlib.suppress(OSError, ValueError, IndexError):
        own = (_PROC / "self" / "cgroup").read_text().strip().split("::")[1].split("\n")[0].lstrip("/")
        group = _CGROUPS / own
        for folder in (group, *group.parents):
            if _CGROUPS not in (folder, *folder.parents):
                break
            with contextlib.suppress(OSError, ValueError):  # the root has no limit, and "max" is none
                limit, used = (int((folder / f"memory.{name}").read_text()) for name in ("max", "current"))
                stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
                found.append(limit - used + int(stat.get("inactive_file", 0)))
    return max(min(found), 0) if found else None
