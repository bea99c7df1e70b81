"""What markets begin with: populations that are drawn per market, and the books that a reset puts them back to.

`Ensemble` calls this when markets are made, seeded or reset. All of it is drawn on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch

from kineticsim_env.config import CLASSES, MarketConfig
from kineticsim_env.runtime import layout
from kineticsim_env.runtime.words import GOLDEN, episode_keys, high_halves, signed

_WORD_REGIME = (1 << 30) + 8
_FIRST_WORD = 3 << 30  # of a population: one for each agent
_BLOCK = 1 << 20  # words hashed at once


def multinomial_counts(config: MarketConfig, seeds: np.ndarray, markets: np.ndarray) -> np.ndarray:
    """Draw how many agents of each class the given markets have, as published runs do: `population="multinomial"`.

    Agent i's class is the first whose cumulative share exceeds the top 32 bits of word 3 * 2^30 + i at episode 0, step
    0 (docs/model.md), so the counts depend on the market's seed alone.

    Args:
        config: The market; shares and `num_agents` may be per market.
        seeds: int64 `[n]`, of the markets.
        markets: int64 `[n]`, their indices, which pick per-market shares.

    Returns:
        int64 `[n, 4]` in the order of `CLASSES`.
    """

    def pick(value: object) -> np.ndarray:
        array = np.asarray(value)
        return array[markets] if array.ndim else np.broadcast_to(array, (len(seeds),))

    cumulative = np.cumsum([pick(getattr(config, name)).astype(np.float64) for name in CLASSES], axis=0)
    bounds = np.rint(cumulative * 2.0**32).astype(np.int64)  # [4, n]
    bounds[-1] = 1 << 32
    agents = pick(config.num_agents)
    keys = episode_keys(seeds, np.zeros_like(seeds))
    counts = np.zeros((len(seeds), len(CLASSES)), dtype=np.int64)
    step = max(1, _BLOCK // max(1, len(seeds)))
    for begin in range(0, int(agents.max()), step):
        index = np.arange(begin, min(begin + step, int(agents.max())), dtype=np.int64)
        top = high_halves(keys[:, None] + (index + _FIRST_WORD + 1) * GOLDEN)
        living = index[None, :] < agents[:, None]
        below = np.zeros(len(seeds), dtype=np.int64)
        for number in range(len(CLASSES)):
            upto = np.sum(living & (top < bounds[number][:, None]), axis=1)
            counts[:, number] += np.maximum(upto - below, 0)
            below = np.maximum(below, upto)
    return counts


def opening_book(
    rows: Mapping[str, np.ndarray], levels: int, device: torch.device, flow: bool = False
) -> dict[str, torch.Tensor]:
    """Return what markets hold at their opening, by the names of `struct Launch`; all else is 0, but for the regime.

    The book of an order flow, which has a spread of one tick, is the engine's (`Engine.open_flow`). Parameters are
    int64 `[M]`, or `[1]` if all have the same, by the names of `struct MarketParams`.
    """
    price, depth, fundamental = (
        torch.from_numpy(rows[name].astype(np.int32)).to(device)[:, None]
        for name in ("init_price", "init_depth", "fundamental_price")
    )
    ticks = torch.arange(levels, dtype=torch.int32, device=device)[None, :]
    return {
        "bid": torch.where(ticks == price - 1, depth, 0),
        "ask": torch.where(ticks == price + 1, depth, 0),
        "prev_mid2": 2 * price[:, 0] - int(flow),
        "last_tick": price[:, 0],
        "beat_price": price[:, 0],
        "fundamental_price": fundamental[:, 0],
    }


def seen_at_opening(rows: Mapping[str, np.ndarray], regime: np.ndarray, flow: bool) -> dict[str, np.ndarray]:
    """Return what an agent sees of an opening book, by the names of agents/vocabulary.py, int64 `[M]` or `[1]`.

    The book of an order flow has a spread of one tick; how much rests there is not known here, and of no meaning.
    """
    price, depth = rows["init_price"], np.maximum(rows["init_depth"], int(flow))
    none = layout.CONSTANTS["kNoPrice"]
    return {
        "mid2": 2 * price - int(flow),
        "ret": np.zeros_like(price),
        "last_price": price,
        "best_bid": np.where(depth > 0, price - 1, -none),
        "best_ask": np.where(depth > 0, price + 1 - int(flow), none),
        "best_bid_qty": depth,
        "best_ask_qty": depth,
        "fundamental": rows["fundamental_price"],
        "regime": regime,
    }


def first_regimes(seed: np.ndarray, episode: np.ndarray, regimes: int) -> np.ndarray:
    """Draw the regimes that episodes begin in, int32 `[M]`; seeds and episodes are int64 `[M]`."""
    top = high_halves(episode_keys(seed, episode) + signed((_WORD_REGIME + 1) * GOLDEN))
    return (top * regimes >> 32).astype(np.int32)


def open_books(
    tensors: Mapping[str, torch.Tensor],
    opening: Mapping[str, torch.Tensor],
    chosen: torch.Tensor,
    regimes: int = 0,
    memory: Callable[[np.ndarray], np.ndarray] | None = None,
) -> None:
    """Put the chosen markets, bool `[M]`, and their slots back to the opening; seeds and episodes are the new ones.

    `opening` is of `opening_book`, `regimes` how many there are; `memory` returns what agents that users have written
    remember, int32 `[M, Q]`, given the regimes, `[M]` or `[1]`; None where they remember nothing.
    """
    for name in ("t", "volume", "trades", "price_origin", "error"):
        tensors[name].masked_fill_(chosen, 0)
    first = np.zeros(1, np.int32)
    if regimes:
        first = first_regimes(tensors["seed"].cpu().numpy(), tensors["episode"].cpu().numpy(), regimes)
        opening = {**opening, "regime": torch.from_numpy(first).to(chosen.device)}
    if memory is not None:
        opening = {**opening, "agent_memory": torch.from_numpy(memory(first)).to(chosen.device)}
    for name in opening.keys() & tensors.keys():
        target, value = tensors[name], opening[name]
        where = chosen.view(-1, *[1] * (target.dim() - 1))
        torch.where(where, value, target, out=target)  # in place: a copy would be half of all memory again
    for name in tensors.keys() & {*layout.SLOT_STATE, *layout.QUEUE_STATE, *layout.WAY_STATE, "ret"}:
        tensors[name].masked_fill_(chosen.view(-1, *[1] * (tensors[name].dim() - 1)), 0)
