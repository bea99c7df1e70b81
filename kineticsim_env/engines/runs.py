"""How `Simulator` runs auctions: in one launch; in pieces, if it takes long; or in a program that torch compiles.

Pieces are for the progress bar, and so that Ctrl-C need not wait for the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch

from kineticsim_env.engines.base import RUN, Engine
from kineticsim_env.runtime import layout
from kineticsim_env.runtime.calls import Uninterrupted
from kineticsim_env.runtime.values import progress_bar

# Agent-events in about a quarter of a second, by engine.
EVENTS = {"cuda": 5e10, "cpu": 5e7, "numpy": 3e6}


class Piece(NamedTuple):
    """A part of a call that takes long: whole decisions, or some auctions of one."""

    decision: int
    decisions: int
    auction: int  # of the first decision
    auctions: int  # of each decision


def cut_into_pieces(decisions: int, auctions: int, most: int) -> Iterator[Piece]:
    """Yield the pieces of decisions of some auctions each, of at most `most` auctions."""
    if auctions <= most:
        step = most // auctions
        for decision in range(0, decisions, step):
            yield Piece(decision, min(step, decisions - decision), 0, auctions)
        return
    for decision in range(decisions):
        for auction in range(0, auctions, most):
            yield Piece(decision, 1, auction, min(most, auctions - auction))


def run(
    engine: Engine,
    state: Mapping[str, torch.Tensor],
    decisions: int,
    auctions: int,
    results: Mapping[str, torch.Tensor],
    submitted: Mapping[str, torch.Tensor],
    *,
    events: float,
    progress: bool | None,
    reach: int,
) -> None:
    """Run decisions of some auctions each: all of them, or, after an error or Ctrl-C, none.

    Args:
        engine: What runs them.
        state: All that they change, besides the results.
        decisions: T.
        auctions: Auctions per decision.
        results: What to write into, zeroed: `fills`, `value`, `rejects` and series, by their names in `struct Launch`.
        submitted: What slots submit, `[T, M, K, ...]` each, by their names in `struct Launch`; nothing if quotes stand.
        events: Agent-events per auction of all markets, which say whether the call takes long.
        progress: As in `Simulator.run`.
        reach: Of the depths that are recorded.
    """
    total = decisions * auctions
    most = max(1, int(EVENTS[engine.name] / events))
    if total <= most and not progress:
        fills = {"fills": None} if "fills" not in results else {}  # not an environment's
        engine.launch(RUN, decisions=decisions, auctions=auctions, reach=reach, **submitted, **fills, **results)
        engine.prepare_launcher(RUN)
        return
    engine.check_sizes()
    before = {name: tensor.clone() for name, tensor in state.items()}
    bar = progress_bar(progress, "market", "auction", total)
    try:
        with bar:
            for piece in cut_into_pieces(decisions, auctions, most):
                _run_piece(engine, piece, auctions, results, submitted, reach)
                if engine.device.type == "cuda":
                    torch.cuda.synchronize(engine.device)  # else the bar would run ahead of the GPU
                bar.update(piece.decisions * piece.auctions)
    except BaseException:
        with Uninterrupted():
            for name, tensor in before.items():
                state[name].copy_(tensor)
            engine.state_changed()
        raise


def _run_piece(
    engine: Engine,
    piece: Piece,
    auctions: int,
    results: Mapping[str, torch.Tensor],
    submitted: Mapping[str, torch.Tensor],
    reach: int,
) -> None:
    """Run a piece of some decisions, and add its results to those of the whole."""
    rows = slice(piece.decision, piece.decision + piece.decisions)
    begin = piece.decision * auctions + piece.auction
    columns = slice(begin, begin + piece.decisions * piece.auctions)
    parts: dict[str, Any] = {
        name: torch.zeros_like(whole[:, columns] if name.startswith("series_") else whole[rows])
        for name, whole in results.items()
    }
    given = {} if piece.auction else {name: tensor[rows] for name, tensor in submitted.items()}  # at first
    engine.launch(
        RUN,
        decisions=piece.decisions,
        auctions=piece.auctions,
        reach=reach,
        **given,
        **({"fills": None} | parts),
    )
    for name, part in parts.items():
        if name.startswith("series_"):
            results[name][:, columns] = part
        elif name == "fills":
            results[name][rows] += part
        elif name == "rejects":  # bits, of all that arrived so far
            results[name][rows] |= part
        else:  # the value after the last auction so far
            results[name][rows] = part


def run_in_graph(
    engine: Engine,
    decisions: int,
    auctions: int,
    results: Mapping[str, torch.Tensor],
    quotes: torch.Tensor | None,
    reach: int,
) -> None:
    """Do it in one launch of a program that torch compiles; a market that stops says so in its error word."""
    launcher = engine.launcher(RUN)
    accounts = results.get("fills"), results.get("value")
    series = {number: results.get(f"series_{name}") for name, number in layout.ENUMS["Series"].items()}
    recorded = [number for number, tensor in series.items() if tensor is not None]
    torch.ops.kineticsim.run(
        launcher.state, launcher.tables, quotes, *accounts, [series[number] for number in recorded], recorded,
        decisions, auctions, reach, launcher.number,
    )  # fmt: skip
