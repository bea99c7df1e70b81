"""What commands share that play markets: the options that choose them, and the checks before a run."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from typing import Any

import torch

from kineticsim_env import plots
from kineticsim_env.agents.command_line import AGENTS, AGENTS_HELP
from kineticsim_env.config import PRESET_NAMES, MarketConfig
from kineticsim_env.engines import ENGINES, choose_engine
from kineticsim_env.runtime.checks import check_num_markets
from kineticsim_env.runtime.files import check_file
from kineticsim_env.runtime.options import whole


def add_market(command: argparse.ArgumentParser, preset: str, markets: int) -> None:
    """Add the options that choose the markets and the engine; `preset` and `markets` are the defaults."""
    add_where(command, preset)
    command.add_argument(
        "--set", action="append", default=[], metavar="FIELD=VALUE", help="change a field of the market"
    )
    command.add_argument("--agents", action="append", default=[], metavar=AGENTS, help=AGENTS_HELP)
    command.add_argument(
        "--markets", type=whole(1), help=f"how many (default: {markets}, or as many as a list in --set is long)"
    )
    seeds = whole(-(2**63), 2**63 - 1)
    command.add_argument("--seed", type=seeds, default=0, help="market m is seeded with this + m (default: 0)")


def add_where(command: argparse.ArgumentParser, preset: str) -> None:
    """Add the options that choose a preset as it is, and the engine."""
    command.add_argument(
        "--preset", default=preset, help=f"the market: {' or '.join(PRESET_NAMES)} (default: {preset})"
    )
    command.add_argument("--engine", default="auto", help=f"{', '.join(ENGINES)} (default: auto)")
    command.add_argument("--device", help="cpu, cuda or cuda:N")


def check_files(paths: Mapping[str, str | None]) -> None:
    """Refuse options whose files cannot be written, before a run is made for them; pictures need matplotlib."""
    for name, path in paths.items():
        if path is not None:
            check_file(name, path)
    if paths.get("--plot"):
        plots.check_picture("--plot", str(paths["--plot"]))


def choose_markets(options: argparse.Namespace, config: MarketConfig, default: int) -> tuple[int, str, torch.device]:
    """Return how many markets are played, on which engine and which device.

    As many as the options of `add_market` say, else the config's per-market fields, else the default.
    """
    asked = options.markets if options.markets is not None or config.per_market else default
    markets = check_num_markets(config, asked)
    reason = "one market is faster there" if markets == 1 else ""
    return markets, *choose_engine(options.engine, options.device, prefer_cpu=reason, own_code=bool(config.agents))


def without_nan(value: Any) -> Any:
    """Return nested lists and dicts with None for NaN, which JSON does not know."""
    if isinstance(value, dict):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
