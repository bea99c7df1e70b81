"""What `Simulator.tape` is called with, checked."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from kineticsim_env.engines.ensemble import Ensemble
from kineticsim_env.engines.live import STOPPED
from kineticsim_env.errors import MarketError
from kineticsim_env.runtime import layout
from kineticsim_env.runtime.checks import host_array
from kineticsim_env.runtime.orders import check_orders
from kineticsim_env.runtime.values import check_count, check_progress, not_whole, show
from kineticsim_env.tapes.branches import Branch
from kineticsim_env.tapes.tape import Script, Submitted, Tape


def make_tape(
    simulator: Ensemble, markets: Any, intervals: int, quotes: Any, fundamental: Any, progress: bool | None
) -> Tape:
    """Return a tape of some markets of a simulator; arguments and errors are those of `Simulator.tape`."""
    numbers = check_markets(markets, simulator.num_markets)
    intervals, progress = check_count("intervals", intervals, 1), check_progress(progress)
    with simulator._calls:
        simulator.check_errors()
        branch = Branch(simulator, numbers)
    if bool(((branch["error"] & STOPPED) != 0).any()):
        raise MarketError("tape: expected markets that run, got one that has stopped; reset it first")
    latest = int(branch["t"].max())
    if latest + intervals >= simulator._end:
        raise MarketError(f"intervals: expected t below {simulator._end}, got {intervals} at t = {latest}; reset first")
    given = None if quotes is None else _submitted(quotes, len(numbers), simulator, intervals)
    path = None if fundamental is None else check_path("fundamental", fundamental, len(numbers), intervals)
    return Tape(branch, Script(intervals, given, path), progress)


def check_markets(markets: Any, num_markets: int) -> list[int]:
    """Return numbers of markets as a list."""
    allowed = "the number of a market, or some of them"
    array = on_host("markets", markets, allowed)
    if array.ndim > 1 or not array.size or array.dtype.kind not in "iu":
        raise TypeError(f"markets: expected {allowed}, got {show(markets)}")
    numbers = array.reshape(-1).tolist()
    for number in numbers:
        if not 0 <= number < num_markets:
            raise ValueError(f"markets: expected 0 to {num_markets - 1}, got {number}")
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"markets: expected each market once, got {show(markets)}")
    return numbers


def on_host(name: str, given: Any, allowed: str) -> np.ndarray:
    """Return what a user hands over as an array, whatever it holds; refuse what is none."""
    if isinstance(given, np.ma.MaskedArray) and np.ma.is_masked(given):
        raise ValueError(f"{name}: expected {allowed}, got an array with masked values")
    try:
        return given.detach().cpu().numpy() if isinstance(given, torch.Tensor) else np.asarray(given)
    except Exception as error:  # ragged sequences, sparse or meta tensors, whatever strange objects raise
        raise TypeError(f"{name}: expected {allowed}, got {type(given).__name__}, which is no array") from error


def check_path(name: str, given: Any, markets: int, intervals: int | None = None) -> np.ndarray:
    """Return prices as int32 `[markets, intervals]`, of one row if given so; as many intervals as come if None."""
    array = on_host(name, given, "prices, one per interval")
    if array.ndim not in (1, 2) or not array.size:
        raise ValueError(f"{name}: expected prices, one per interval, got an array of shape {list(array.shape)}")
    intervals = array.shape[-1] if intervals is None else intervals
    if array.dtype.kind == "f":  # as columns of tables are that had a gap before
        wrong = not_whole(array)
        if wrong.size:
            raise TypeError(f"{name}: expected whole ticks, got {wrong[0]:.10g}: divide by the tick, and round")
        array = array.astype(np.int64)
    path = host_array(name, array, torch.int32, (intervals,) if array.ndim == 1 else (markets, intervals))
    most = layout.CONSTANTS["kMaxPrice"]
    if not -most <= int(path.min()) <= int(path.max()) <= most:
        raise ValueError(f"{name}: expected -2^30 to 2^30, got {int(path.min())} to {int(path.max())}")
    return np.array(np.broadcast_to(path, (markets, intervals)), order="C")


def _submitted(quotes: Any, markets: int, simulator: Ensemble, intervals: int) -> Submitted:
    shape = (None, markets, len(simulator.slots))
    given = check_orders(quotes, shape, simulator.device, simulator.config)
    arrays = {name: tensor.cpu().numpy().copy() for name, tensor in given.items()}
    decisions = len(arrays["new_quotes"])
    if not decisions or intervals % decisions:
        raise ValueError(f"quotes: expected a number of decisions that divides {intervals}, got {decisions}")
    return Submitted(arrays["new_quotes"], arrays.get("order_flags"))
