"""Kind `loads`: states that no market was ever in are refused and change nothing, or both engines go on alike."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import torch

from scripts.fuzz import moves, pairs
from scripts.fuzz.kinds import Failure
from scripts.fuzz.values import WRONG, extremes, wrong_label

aside = pairs.aside
State = dict[Any, Any]


def play(rng: np.random.Generator, engines: tuple[str, ...]) -> None:
    """Change a saved state, load it on both engines, and go on if both take it."""
    pair = pairs.any_pair(rng, "cpu" if "cpu" in engines else "numpy")
    moves.start(pair, rng)
    for _ in range(int(rng.integers(0, 2))):
        moves.advance(pair, rng)
    moves.clear(pair)
    saved = pair.under_test.state_dict()
    told: list[str] = []
    for _ in range(int(rng.choice([1, 1, 2, 3]))):
        told.append(_change(saved, pair, rng))
    what = f"load_state_dict({', '.join(told)})"
    before = pair.state()
    # The oracle gets what the others were before the first load, which changes what is live in it.
    values = {name: value.detach().clone() if _is_plain(value) else value for name, value in saved.items()}
    with _no_other_error(pair, f"{what}: ", "load"):
        done = moves.together(
            pair, what, lambda thing: thing.load_state_dict(_own(saved) if thing is pair.under_test else values)
        )
    if done[0]:
        if done[0] not in ("TypeError", "ValueError"):
            raise Failure(f"{what}: {done[0]} {done[1]}", key=("load", done[0]))
        pairs.compare(pairs.tensors_of(pair.under_test), before, f"{what} was refused")
        return
    with pairs.forgetting(pair, [what], "after a load"), _no_other_error(pair, "", "error"):
        for _ in range(int(rng.integers(1, 3))):
            moves.advance(pair, rng, changed=True)


@contextlib.contextmanager
def _no_other_error(pair: pairs.Pair, told: str, key: str) -> Generator[None]:
    """Make a failure of any error but a failure."""
    try:
        yield
    except Failure:
        raise
    except Exception as error:
        pairs.forget_pair(pair)
        raise Failure(f"{told}{type(error).__name__} {str(error)[:200]}", key=(key, type(error).__name__)) from error


def _own(saved: State) -> State:
    """Return the state with tensors of its own, for loads that keep what they are given; strides stay as they are."""
    return {
        name: tensor.clone() if _is_plain(tensor) and tensor.is_contiguous() else tensor
        for name, tensor in saved.items()
    }


def _change(saved: State, pair: pairs.Pair, rng: np.random.Generator) -> str:
    """Change a saved state in place; returns what was done."""
    names = [name for name, value in saved.items() if type(name) is str and _is_plain(value)]
    if not names:
        return "empty"
    name = str(rng.choice(names))
    way = list(_WAYS)[int(rng.choice(len(_WAYS), p=_ODDS))]
    return f"{name}: {_WAYS[way](saved, name, pair, rng) or way}"


def _is_plain(value: Any) -> bool:
    if type(value) is not torch.Tensor or value.is_nested or value.is_quantized:
        return False
    return value.layout == torch.strided and value.device.type == "cpu" and value.numel() > 0


def _alike(value: torch.Tensor, others: State) -> list[Any]:
    """Return the names of tensors of the same dtype and shape."""
    return [name for name, other in others.items() if other.dtype == value.dtype and other.shape == value.shape]


def _some(value: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    """Return which elements to change: one, a market's, or all."""
    where = torch.zeros(value.shape, dtype=torch.bool)
    kind = int(rng.integers(3))
    if kind == 0:
        where.view(-1)[int(rng.integers(value.numel()))] = True
    elif kind == 1:
        where[int(rng.integers(len(value)))] = True
    else:
        where.fill_(True)
    return where


def _extreme(saved: State, name: str, pair: pairs.Pair, rng: np.random.Generator) -> str:
    value = saved[name].clone()
    choices = extremes(value.dtype)
    what = choices[int(rng.integers(len(choices)))]
    value[_some(value, rng)] = what
    saved[name] = value
    return f"some {what}"


def _random(saved: State, name: str, pair: pairs.Pair, rng: np.random.Generator) -> None:
    value, bits = saved[name], int(rng.choice([2, 6, 12, 20, 29, 31]))
    if value.dtype == torch.bool:
        made = torch.from_numpy(rng.random(tuple(value.shape)) < 0.5)
    elif value.dtype.is_floating_point:
        made = torch.from_numpy(rng.normal(size=tuple(value.shape))).to(value.dtype)
    else:
        low = 0 if rng.random() < 0.5 else -(2**bits)
        made = torch.from_numpy(rng.integers(low, 2**bits, tuple(value.shape))).to(value.dtype)
    where = _some(value, rng)
    saved[name] = torch.where(where, made, value)


def _nudge(saved: State, name: str, pair: pairs.Pair, rng: np.random.Generator) -> None:
    value = saved[name]
    if value.dtype == torch.bool:
        saved[name] = value ^ _some(value, rng)
    else:
        saved[name] = value + _some(value, rng).to(value.dtype) * int(rng.choice([-1, 1, 2, -300, 300]))


def _markets(saved: State, name: str, pair: pairs.Pair, rng: np.random.Generator) -> None:
    value = saved[name]
    saved[name] = value[torch.from_numpy(rng.integers(0, len(value), len(value)))]


def _swap(saved: State, name: str, pair: pairs.Pair, rng: np.random.Generator) -> str:
    plain = {key: value for key, value in saved.items() if type(key) is str and _is_plain(value)}
    like = _alike(saved[name], plain)
    other = str(rng.choice(like)) if like else name
    saved[name], saved[other] = saved[other], saved[name]
    return f"swapped with {other}"


def _far(saved: State, name: str, pair: pairs.Pair, rng: np.random.Generator) -> str:
    """Move a market's prices together, to where a market could be, or a little beyond."""
    shift = int(rng.choice([2**29, 2**29 - 300, 2**29 - 1, 2**28, -(2**29), -(2**29) + 300, 2**30, 1000]))
    for price in ("price_origin", "fundamental_price"):
        if _is_plain(saved.get(price)) and saved[price].dtype == torch.int32:
            saved[price] = (saved[price].long() + shift).clamp(-(2**31), 2**31 - 1).int()
    return f"all prices by {shift}"


def _full(saved: State, name: str, pair: pairs.Pair, rng: np.random.Generator) -> str:
    """Fill books so that they are about to overflow."""
    side, room = str(rng.choice(["bid", "ask"])), int(rng.choice([0, 1, 10, 1000, 10**6]))
    if not _is_plain(saved.get(side)) or saved[side].dtype != torch.int32 or saved[side].dim() != 2:
        return "full"
    value = saved[side].clone()
    market = int(rng.integers(len(value)))
    tick = 0 if side == "bid" else value.shape[1] - 1
    value[market, tick] = min(max(0, 2**31 - 1 - room - int(value[market].sum())), 2**31 - 1)
    saved[side] = value
    return f"{side} with room for {room}"


def _shape(saved: State, name: str, pair: pairs.Pair, rng: np.random.Generator) -> None:
    value = saved[name]
    turned = value.mT if value.dim() > 1 else value[:0]
    shapes = (value[:-1], value[None], value[..., None], value.flatten(), turned)
    saved[name] = shapes[int(rng.integers(5))].clone()


def _dtype(saved: State, name: str, pair: pairs.Pair, rng: np.random.Generator) -> None:
    dtypes = (torch.int32, torch.int64, torch.float32, torch.float64, torch.bool, torch.uint8)
    saved[name] = saved[name].to(dtypes[int(rng.integers(len(dtypes)))])


def _missing(saved: State, name: str, pair: pairs.Pair, rng: np.random.Generator) -> None:
    del saved[name]


def _odd(saved: State, name: str, pair: pairs.Pair, rng: np.random.Generator) -> None:
    saved[("odd", 3, "params", "bank_bid")[int(rng.integers(4))]] = saved[name]


def _wrong(saved: State, name: str, pair: pairs.Pair, rng: np.random.Generator) -> str:
    label = wrong_label(rng)
    saved[name] = WRONG[label]()
    return label


def _strides(saved: State, name: str, pair: pairs.Pair, rng: np.random.Generator) -> None:
    value = saved[name]
    ways: list[Callable[[], torch.Tensor]] = [
        lambda: torch.stack([value, value], -1)[..., 1],
        lambda: value[:1].expand(value.shape),
        lambda: value.T.contiguous().T if value.dim() == 2 else value.clone(),
        lambda: value.flip(0).flip(0),
    ]
    saved[name] = ways[int(rng.integers(len(ways)))]()


def _live(saved: State, name: str, pair: pairs.Pair, rng: np.random.Generator) -> str:
    """Hand over a live tensor, itself or in another order of markets, or under another name."""
    live = pairs.tensors_of(pair.under_test)
    like = _alike(saved[name], live)
    if not like:
        return "as it is"
    other = str(rng.choice(like))
    # The oracle must not read what the first load has changed.
    saved[name] = live[other].clone() if other != name else live[other]
    return f"the live {other}"


_WAYS: dict[str, Callable[[State, str, pairs.Pair, np.random.Generator], str | None]] = {
    "extreme": _extreme,
    "random": _random,
    "nudged": _nudge,
    "of other markets": _markets,
    "swap": _swap,
    "far": _far,
    "full": _full,
    "another shape": _shape,
    "another dtype": _dtype,
    "missing": _missing,
    "under an odd name": _odd,
    "wrong": _wrong,
    "strides": _strides,
    "live": _live,
}
_WEIGHTS = [6, 4, 4, 2, 2, 2, 2, 1, 1, 0.5, 0.5, 2, 2, 1]
_ODDS = [weight / sum(_WEIGHTS) for weight in _WEIGHTS]
