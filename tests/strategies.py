"""Random markets, slots, quotes and plays for the tests of the market engines: awkward on purpose, small for NumPy.

A `Play` is a market and a list of moves. Hypothesis draws its shape and options; numbers that need no shrinking come
from seeded NumPy generators, so that the printed play replays exactly.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

import kineticsim_env as ks
from kineticsim_env.config import CLASSES
from kineticsim_env.engines.parameters import class_counts

ENGINES = ["numpy", "cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
every_engine = pytest.mark.parametrize("engine", ENGINES)
PAIRS = [("numpy", "cpu"), pytest.param(("cpu", "cuda"), marks=pytest.mark.gpu)]
SERIES = ("last_price", "volume", "mid2", "fundamental")
FURTHER = ("best_bid", "best_ask", "bid_depth", "ask_depth", "signed_volume")
OPTIONS = ("walk", "cancel", "window", "tie", "residue")
SETTINGS = ("multinomial", "limit", "fee", "cap")
STYLES = ("near", "wide", "one_tick", "crossed", "edge", "border", "huge", "nothing")
LEVELS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048)
AGENTS = (1, 2, 3, 7, 31, 33, 64, 100, 255, 257, 701, 1100)
MARKETS = (1, 2, 3, 5, 17, 33, 129, 300)
MOST_AUCTIONS = 40  # of one play: quantities are chosen so that no side overflows within them
FURTHEST = 32767  # that an order may lie from the mid


@dataclasses.dataclass(frozen=True)
class Play:
    """A market, and what happens to it: moves are (name, numbers...), see `make_move`."""

    config: ks.MarketConfig
    markets: int
    slots: tuple[str | None, ...]
    seed: int
    moves: tuple[tuple, ...]


# Configs --------------------------------------------------------------------------------------------------------------


def market_fields(
    rng: np.random.Generator, levels: int, agents: int, options: frozenset[str], reach: int = FURTHEST
) -> dict[str, Any]:
    """Return the numbers of one market, every one of them drawn; orders lie within `reach` of the mid."""
    weights = rng.random(4) * (rng.random(4) < 0.7)
    weights = weights / weights.sum() if weights.any() else np.array([1.0, 0, 0, 0])
    pick = rng.choice
    fields = dict(zip(CLASSES, (float(weight) for weight in weights), strict=True))
    fields |= dict(
        num_agents=agents,
        init_price=int(rng.integers(1, levels - 1)),
        init_depth=int(pick([0, 1, 8, 1000, 2**20])),
        max_order_qty=int(min(pick([1, 4, 100, 65535]), max(1, 2**30 // (agents * MOST_AUCTIONS)))),
        noise_spread=min(reach, int(pick([0, 1, 3, 12, 200, 32767]))),
        market_order_prob=float(pick([0.0, 0.1, 0.4, 1.0])),
        maker_half_spread=min(reach, int(pick([0, 1, 8, 32767]))),
        fundamental_price=int(rng.integers(-levels, 2 * levels)),
    )
    if "cancel" in options:
        fields["cancel_prob"] = float(pick([0.01, 0.4, 1.0]))
    if "walk" in options:
        fields |= dict(walk_prob=float(pick([0.2, 1.0])), jump_prob=0.2, jump_size=int(pick([0, 4, 3 * levels])))
    if {"window", "walk"} & options:
        fields["window"] = int(rng.integers(1, levels // 2))
    if "tie" in options:
        fields["tie"] = str(pick(["lowest", "mid"])) if rng.random() < 0.3 else "mid"
    if "residue" in options:
        fields["residue"] = str(pick(["rest", "cancel"])) if rng.random() < 0.3 else "cancel"
    if "limit" in options:
        fields["inventory_limit"] = int(pick([0, 10, 500]))
    if "fee" in options:
        fields["fee"] = int(pick([0, 7, 2**20]))
    if "cap" in options:
        fields["max_quote_qty"] = int(pick([0, 5, 100]))
    return fields


def make_config(
    seed: int,
    levels: int,
    agents: int,
    options: frozenset[str],
    markets: int = 1,
    per_market: bool = False,
    reach: int = FURTHEST,
) -> ks.MarketConfig:
    """Return a random config; with `per_market`, every field that may differ from market to market does."""
    rng = np.random.default_rng(seed)
    population = "multinomial" if "multinomial" in options else "fixed"
    if not per_market:
        fields = market_fields(rng, levels, agents, options, reach)
    else:
        counts = (int(rng.integers(1, agents + 1)) for _ in range(markets))
        rows = [market_fields(rng, levels, count, options, reach) for count in counts]
        fields = {name: [row[name] for row in rows] for name in rows[0]}
    return ks.MarketConfig(num_levels=levels, population=population, **fields)


def under_levers(config: ks.MarketConfig, seed: int, reach: int = FURTHEST) -> ks.MarketConfig:
    """Return a config with random levers and, now and then, regimes; each is off in about half of the draws.

    Offsets of orders stay within `reach`. Where fields differ from market to market, some levers do too.
    """
    rng = np.random.default_rng(seed)
    levels, markets = config.num_levels, max(config.per_market.values(), default=0)

    def lever(off, *on):
        draw = lambda: off if rng.random() < 0.5 else on[int(rng.integers(len(on)))]  # noqa: E731
        return [draw() for _ in range(markets)] if markets and rng.random() < 0.5 else draw()

    fields = {
        "rounding": lever("even", "coin"),
        "reference": lever("mid", "fundamental"),
        "taker_offset": lever(1, 0, min(3, reach), min(levels, reach)),
        "tax": lever(0, 1, 5, 2 * levels),
        "collar": lever(0, 1, 4, levels // 2),
        "tick_size": lever(1, 2, 3, 7),
        "fee": lever(0, -30, 250),
    }
    if rng.random() < 0.4:
        largest = (1 << 30) // int(np.max(np.asarray(config.num_agents)))
        widest = {"noise_spread": min(levels // 2, reach), "maker_half_spread": min(5, reach), "taker_offset": 0}
        changes: list[dict] = [
            {"max_order_qty": min(9, largest)},
            {"market_order_prob": 0.8, "cancel_prob": 0.3},
            widest,
        ]
        if np.all(np.asarray(config.window) > 0):
            changes.append({"walk_prob": 1.0, "jump_prob": 0.5, "jump_size": 3, "cancel_prob": 0.0})
        rng.shuffle(changes)
        fields["regimes"] = [{}, *changes[: int(rng.integers(1, 4))]]
        fields["regime_switch_prob"] = lever(0.0, 0.2, 1.0)
    return config.replace(**fields)


def fitting_slots(config: ks.MarketConfig, markets: int, wanted: list[str | None]) -> tuple[str | None, ...]:
    """Return the wanted slots; one that would replace more than a class has replaces nobody."""
    if config.population == "multinomial":
        return tuple(wanted)
    room = dict(zip(CLASSES, class_counts(config, markets if config.per_market else 1).min(axis=0), strict=True))
    slots: list[str | None] = []
    for name in wanted:
        fits = name is not None and slots.count(name) < room[name]
        slots.append(name if fits else None)
    return tuple(slots)


@st.composite
def plays(draw: st.DrawFn, levels: tuple[int, ...] = LEVELS, reach: int = FURTHEST) -> Play:
    """Draw a play whose orders lie within `reach` of the mid."""
    size = draw(st.sampled_from(levels))
    agents = draw(st.sampled_from(AGENTS))
    markets = min(draw(st.sampled_from(MARKETS)), max(1, 2**16 // max(size, agents)))
    options = draw(st.frozensets(st.sampled_from(OPTIONS))) | draw(st.frozensets(st.sampled_from(SETTINGS)))
    per_market = draw(st.booleans())
    config = make_config(draw(st.integers(0, 2**32)), size, agents, options, markets, per_market, reach)
    many = draw(st.sampled_from([0, 1, 3, 32]))
    wanted = draw(st.lists(st.sampled_from((None, *CLASSES)), min_size=many, max_size=many))
    seed = draw(st.integers(-(2**62), 2**62))
    moves = draw(st.lists(_moves(many > 0), min_size=2, max_size=5))
    return Play(config, markets, fitting_slots(config, markets, wanted), seed, tuple(moves))


def _moves(with_quotes: bool) -> st.SearchStrategy[tuple]:
    number, length = st.integers(0, 2**32), st.integers(1, 5)
    moves = [
        st.tuples(st.just("run"), st.integers(1, 7)),
        st.tuples(st.just("reset"), st.sampled_from(["next episode", "one seed", "many seeds"]), st.booleans(), number),
        st.just(("reload",)),
    ]
    if with_quotes:
        style = st.sampled_from(STYLES)
        moves.append(st.tuples(st.just("step"), length, style, number))
        moves.append(st.tuples(st.just("rollout"), st.integers(1, 4), st.integers(1, 2), style, number))
    return st.one_of(moves)


# Quotes ---------------------------------------------------------------------------------------------------------------


def make_quotes(sim: ks.Simulator, style: str, seed: int, decisions: int = 1) -> np.ndarray:
    """Return int32 quotes [T, M, K, 4] of one kind of mischief, around the present mid."""
    rng = np.random.default_rng(seed)
    markets, slots, levels = sim.num_markets, len(sim.slots), sim.config.num_levels
    shape = (decisions, markets, slots)
    mid = (sim.mid2.cpu().numpy().astype(np.int64) // 2)[None, :, None]
    origin = sim.price_origin.cpu().numpy().astype(np.int64)[None, :, None]
    spread = 3 if style == "near" else 2 * levels
    quotes = np.zeros((*shape, 4), np.int64)
    quotes[..., 0] = mid + rng.integers(-spread, spread + 1, shape)
    quotes[..., 2] = mid + rng.integers(-spread, spread + 1, shape)
    largest = int(rng.choice([2, 50, 2**20]))
    quotes[..., 1::2] = rng.integers(-2, largest, (*shape, 2))
    if style == "one_tick":  # bids and asks of all slots meet at one tick
        side = rng.integers(0, 2, shape)
        quotes[..., 0] = quotes[..., 2] = mid
        quotes[..., 1], quotes[..., 3] = quotes[..., 1] * side, quotes[..., 3] * (1 - side)
    if style == "crossed":
        quotes[..., 0] = quotes[..., 2] + rng.integers(0, 3, shape)
        quotes[..., 1] = np.where(rng.random(shape) < 0.3, quotes[..., 3], quotes[..., 1])
    if style == "edge":
        corners = np.array([-levels, -1, 0, 1, levels - 2, levels - 1, levels, 2 * levels])
        quotes[..., 0], quotes[..., 2] = (origin + rng.choice(corners, shape) for _ in range(2))
    if style == "border":  # where the ticks that an engine looks at may end
        corners = np.array([-48, -33, -32, -31, -17, -16, -15, 15, 16, 17, 31, 32, 33, 47, 48])
        quotes[..., 0], quotes[..., 2] = (mid + rng.choice(corners, shape) for _ in range(2))
    if style == "huge":
        far = np.array([-(2**31), -(2**30) - 1, -(2**30), 2**30, 2**30 + 1, 2**31 - 1])
        quotes[..., 0::2] = rng.choice(far, (*shape, 2))
        quotes[..., 1::2] = rng.choice([-(2**31), 0, 1, 2**20, 2**31 - 1], (*shape, 2))
    if style == "nothing":
        quotes[...] = 0
    return quotes.clip(-(2**31), 2**31 - 1).astype(np.int32)


# Playing --------------------------------------------------------------------------------------------------------------


def open_simulator(engine: str, play: Play) -> ks.Simulator:
    """Open a play's market.

    An engine such as `"cuda KS_BINS=0"` is CUDA with that definition forced, and `"cuda specialised"` has a kernel of
    its own.
    """
    name, *extras = engine.split()
    sim = ks.Simulator(play.config, play.markets, engine=name, seed=play.seed, slots=play.slots)
    if "specialised" in extras:
        sim.specialise()
    if forced := [part.split("=") for part in extras if "=" in part]:
        sim.engine.force = {key: int(value) for key, value in forced}
        sim.engine._plans = {}
    return sim


def make_move(sim: ks.Simulator, move: tuple) -> dict[str, torch.Tensor]:
    """Make one move and return all that came of it, outputs and state, on the CPU."""
    name, *numbers = move
    out: dict[str, torch.Tensor] = {}
    if name == "run":
        out |= sim.run(numbers[0], **recorded(numbers[0]))
    elif name == "step":
        auctions, style, seed = numbers
        out["fills"] = sim.step(make_quotes(sim, style, seed)[0], auctions)
    elif name == "rollout":
        decisions, auctions, style, seed = numbers
        result = sim.rollout(make_quotes(sim, style, seed, decisions), auctions, **recorded(seed))
        out |= {"fills": result.fills, "value": result.value, **result.series}
    elif name == "reset":
        kind, masked, seed = numbers
        rng = np.random.default_rng(seed)
        many = rng.integers(-(2**62), 2**62, sim.num_markets)
        seeds = {"next episode": None, "one seed": seed, "many seeds": many}[kind]
        sim.reset(seed=seeds, mask=rng.random(sim.num_markets) < 0.5 if masked else None)
    elif name == "reload":
        sim.load_state_dict(sim.state_dict())
    out |= {f"sim.{name}": getattr(sim, name) for name in ("mid2", "last_price")}
    out |= {f"state {name}": tensor for name, tensor in sim.tensors.items()}
    return {name: tensor.detach().cpu().clone() for name, tensor in out.items()}


def recorded(number: int) -> dict[str, Any]:
    """Return arguments of a run: series, every other time further ones too, with some reach."""
    if number % 2:
        return {"record": SERIES}
    return {"record": (*SERIES, *FURTHER), "reach": (0, 1, 3, 40)[number // 2 % 4]}


def assert_same(got: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor], where: str = "") -> None:
    """Compare tensors by name, bit for bit; name the first difference."""
    assert got.keys() == wanted.keys()
    for name, want in wanted.items():
        if torch.equal(got[name], want):
            continue
        index = tuple(torch.nonzero(got[name] != want)[0].tolist())
        pytest.fail(f"{where} {name}{list(index)}: got {got[name][index]}, wanted {want[index]}")


def play_together(play: Play, engines: tuple[str, str]) -> None:
    """Make every move on both engines and compare after each."""
    first, second = (open_simulator(engine, play) for engine in engines)
    assert_moves_same(first, second, play, f"{engines[1]}, ")


def play_twice(twice: Callable, kernel: str, play: Play) -> None:
    """Make every move on the C++ engine and on a kernel that the fixture `twice` takes, and compare after each."""
    assert_moves_same(*twice(kernel, lambda: open_simulator("cpu", play)), play)


def assert_moves_same(first: ks.Simulator, second: ks.Simulator, play: Play, who: str = "") -> None:
    """Make every move of a play on two simulators, and compare after each."""
    for number, move in enumerate(play.moves):
        assert_same(make_move(second, move), make_move(first, move), f"{who}move {number} {move}:")
