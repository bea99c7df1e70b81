"""How often should a market clear? Continuous trading beside call auctions of 1 to 4,096 events, on the same clock.

The question is that of Budish, Cramton and Shim (2015), "The high-frequency trading arms race: frequent batch auctions
as a market design response", Quarterly Journal of Economics 130(4). All cases of a rule (what agents price around, how
fast news comes, what the one slot does) are markets of one `Simulator`, with the same seeds in every case, so that any
two cases and any two rules are compared seed by seed. Slots here are scripted; `learning.py` has those that learn, and
`prices.py` how far prices are from the fundamental price. `__main__.py` measures all of them for README.md.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from kineticsim_env.config import MarketConfig
from kineticsim_env.runtime.seeds import run_seed
from kineticsim_env.simulator import Rollout, Simulator

CONTINUOUS = 0  # as an interval: no auction at all
INTERVALS = (1, 4, 16, 64, 256, 1024, 4096)  # events
RULES = (CONTINUOUS, *INTERVALS)
BEAT = 16  # events
LOOK = 4  # events of an interval under continuous trading, which only what is recorded knows
OFTEN, SELDOM = 64, 4096  # events between two decisions of a slot; under no rule more often than it clears
WARMUP, EVENTS = 4096, 16384  # events left out, and measured
SEED = run_seed(19)
REFERENCES = ("mid", "fundamental")  # what built-in agents price around
NEWS: dict[str, dict[str, float]] = {  # per beat
    "slow": {"walk_prob": 0.1, "jump_prob": 0.0},
    "medium": {"walk_prob": 0.4, "jump_prob": 0.02},
    "fast": {"walk_prob": 0.4, "jump_prob": 0.2},
}
STREAM: dict[str, Any] = {
    "num_levels": 256,
    "init_price": 128,
    "num_agents": 20,
    "noise": 0.6,
    "momentum": 0.0,
    "maker": 0.1,
    "fundamental": 0.3,
    "noise_spread": 14,
    "maker_half_spread": 8,
    "market_order_prob": 0.1,
    "jump_size": 4,
    "cancel_prob": 0.02,
    "window": 16,
    "tie": "mid",
    "residue": "cancel",
    "rounding": "coin",
    "arrivals": "clock",
    "beat": BEAT,
}
DEPTH_REACH = 4  # ticks from the best price within which depth is counted
NO_PRICE = 2**31 - 1  # what series have for the best ask of an empty side, and its negative for the best bid
BLOCK = 64  # units, bought and sold in turn, within `SELDOM` events each
BLOCK_REACH = 32  # ticks through the mid that a piece of it is priced
DISTANCES = (1, 2, 4, 8, 16)  # ticks, tried by scripted makers and snipers
QUANTITY = {OFTEN: 4, SELDOM: 16}  # units that they order on a side at most, by how often they decide


ROLES = {
    "idle": "no orders: the market as it is",
    "block": "buys and sells a block in turn, a piece per decision, at any price within reach",
    "maker": "quotes both sides, `distance` ticks from the mid; does not know the fundamental price",
    "sniper": "knows it, and takes what rests at least `distance` ticks on its wrong side, and nothing else",
}


class Case(NamedTuple):
    """What the slot of a market does."""

    role: str  # of `ROLES`
    every: int = OFTEN  # events between decisions
    distance: int = 0  # ticks, of makers and snipers


def cases() -> tuple[Case, ...]:
    """Return all cases of a reference and a pace of news."""
    makers = itertools.product(("maker", "sniper"), (OFTEN, SELDOM), DISTANCES)
    return (Case("idle"), Case("block"), *(Case(*maker) for maker in makers))


def rule_name(interval: int) -> str:
    """Return a rule in words."""
    return "continuous trading" if interval == CONTINUOUS else f"auctions of {interval:,}"


def market(interval: int, markets: int) -> MarketConfig:
    """Return the markets of a rule: so many of each reference and pace of news, which is the faster of the two."""
    news = [np.repeat([level[name] for level in NEWS.values()], markets) for name in _NEWS_FIELDS]
    rule = {"mechanism": "continuous", "interval": LOOK} if interval == CONTINUOUS else {"interval": interval}
    reference = np.repeat(REFERENCES, len(NEWS) * markets)
    levels = {name: np.tile(values, len(REFERENCES)) for name, values in zip(_NEWS_FIELDS, news, strict=True)}
    return MarketConfig(**STREAM, **rule, reference=reference, **levels)


class Slots(Protocol):
    """What the slots of all markets do."""

    def __call__(self, simulator: Simulator, event: int, step: int) -> torch.Tensor:
        """Return quotes, int32 `[M, 1, 4]`, for the `step` events from `event` on."""
        ...

    def worth(self, simulator: Simulator) -> torch.Tensor:
        """Return what a unit that was traded counts for, float64 `[M]`, ticks."""
        ...


def steps(
    simulator: Simulator, slots: Slots, record: Sequence[str] = ()
) -> Iterator[tuple[int, Rollout, torch.Tensor]]:
    """Play all events, those left out too, in steps of `OFTEN` of them, or of an auction where that is longer.

    Yields:
        The event that a step begins with, what was played, and what slots made by its trades, float64 `[M]`.
    """
    length = int(simulator.config.interval or 0)
    step = max(OFTEN, length)
    for event in range(0, WARMUP + EVENTS, step):
        cash = simulator.cash[:, 0].clone()
        done = simulator.rollout(slots(simulator, event, step)[None], step // length, record, reach=DEPTH_REACH)
        bought, sold = done.fills[0, :, 0].double().T
        yield event, done, (simulator.cash[:, 0] - cash).double() + (bought - sold) * slots.worth(simulator)


class Played(NamedTuple):
    """One rule, one value per market, float64 `[reference, news, case, seed]`; NaN where a market has none."""

    spread: np.ndarray  # ticks, of the resting book, at the same events under every rule up to `OFTEN`
    depth: np.ndarray  # units within `DEPTH_REACH` ticks of both best prices, likewise
    volume: np.ndarray  # units per 100 events
    edge: np.ndarray  # of the slot: what its trades made against the fundamental price after them, per 1,000 events
    units: np.ndarray  # that the slot traded, per 1,000 events
    per_unit: np.ndarray  # edge per unit; a block's is against the mid of the market without it, so minus its cost


def play(interval: int, markets: int, engine: str = "auto") -> Played:
    """Play a rule in all cases, `markets` seeds of each; an interval is in events, or `CONTINUOUS`."""
    shape = (len(REFERENCES), len(NEWS), len(cases()), markets)
    config = market(interval, len(cases()) * markets)
    simulator = Simulator(config, int(np.prod(shape)), engine=engine, seed=seeds(shape), slots=1)
    device = simulator.device
    sums = torch.zeros(3, simulator.num_markets, dtype=torch.float64, device=device)
    books = torch.zeros(4, simulator.num_markets, dtype=torch.float64, device=device)
    for event, done, made in steps(simulator, _Slots(shape, device), _RECORD):
        if event < WARMUP:
            continue
        books += _book({name: values[0] for name, values in done.series.items()})
        sums += torch.stack([made, done.fills[0, :, 0].double().sum(1), torch.ones_like(made)])
    simulator.check_errors()
    spread, two_sided, depth, volume = books
    edge, units, decisions = sums
    found = (spread / two_sided, depth / decisions, volume * (100 / EVENTS))
    found += (edge * (1000 / EVENTS), units * (1000 / EVENTS), edge / units)
    return Played(*(values.cpu().numpy().reshape(shape) for values in found))


def fundamental_path(markets: int, engine: str = "auto") -> torch.Tensor:
    """Return the fundamental price in each beat, int32 `[news * seed, beats]`; the same under every rule."""
    levels = {name: np.repeat([level[name] for level in NEWS.values()], markets) for name in _NEWS_FIELDS}
    config = MarketConfig(**STREAM, interval=BEAT, **levels)
    simulator = Simulator(config, len(NEWS) * markets, engine=engine, seed=seeds((len(NEWS), markets)))
    beats = (WARMUP + EVENTS) // BEAT
    return simulator.run(beats, ("fundamental",), progress=False)["fundamental"]


def seeds(shape: tuple[int, ...], first: int = SEED, apart: int = 1) -> torch.Tensor:
    """Return the seeds int64 `[M]` of markets of a shape: the last axis counts, and every case has the same."""
    return (first + apart * torch.arange(shape[-1], dtype=torch.int64)).repeat(int(np.prod(shape[:-1])))


def resting(simulator: Simulator, side: str, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """Return the built-in units of a side, "bid" or "ask", that rest from price `low` to `high`, int64 `[M]` each."""
    last, origin = simulator.config.num_levels - 1, simulator.price_origin.long()
    first, end = (low - origin).clamp(0, last + 1), (high - origin).clamp(-1, last)
    ticks = torch.arange(last + 1, dtype=torch.int32, device=simulator.device)  # all is int32: several times faster
    there = (ticks >= first.to(torch.int32)[:, None]) & (ticks <= end.to(torch.int32)[:, None])
    return (simulator.tensors[side] * there).sum(1, dtype=torch.int32).long()


def stale(simulator: Simulator, low: torch.Tensor, high: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the units that rest for sale at `low` or less, and to be bought at `high` or more, int64 `[M]` each."""
    lowest = simulator.price_origin.long()
    return resting(simulator, "ask", lowest, low), resting(simulator, "bid", high, lowest + simulator.config.num_levels)


# Helpers --------------------------------------------------------------------------------------------------------------

_NEWS_FIELDS = ("walk_prob", "jump_prob")
_RECORD = ("volume", "best_bid", "best_ask", "bid_depth", "ask_depth")


class _Slots:
    """The scripted slots of all cases: a function of the market that returns quotes int32 `[M, 1, 4]`."""

    def __init__(self, shape: tuple[int, ...], device: torch.device) -> None:
        def spread_out(values: Any) -> torch.Tensor:
            column = torch.tensor(list(values), device=device)[None, None, :, None]
            return column.expand(shape).reshape(-1)

        every = cases()
        self.maker = spread_out(case.role == "maker" for case in every)
        self.block = spread_out(case.role == "block" for case in every)
        self.shape = shape
        self.every = spread_out(case.every for case in every)
        self.distance = spread_out(case.distance for case in every)
        self.quantity = spread_out(QUANTITY[case.every] * (case.role in ("maker", "sniper")) for case in every)
        self.begun = torch.zeros_like(self.every)  # inventory when the present block began

    def __call__(self, simulator: Simulator, event: int, step: int) -> torch.Tensor:
        """Return the quotes; a slot that does not decide now keeps what stands, and its place in the queue."""
        mid2, fundamental = simulator.mid2.long(), simulator.fundamental_price.long()
        around = [(mid2 >> 1) - self.distance, ((mid2 + 1) >> 1) + self.distance]
        makes = torch.stack([around[0], self.quantity, around[1], self.quantity], 1)
        quotes = torch.where(self.maker[:, None], makes, self._snipe(simulator, fundamental))
        quotes = torch.where((event % self.every == 0)[:, None], quotes, simulator.tensors["quotes"][:, 0].long())
        quotes = torch.where(self.block[:, None], self._piece(simulator, event, step, mid2), quotes)
        return quotes.to(torch.int32)[:, None]

    def worth(self, simulator: Simulator) -> torch.Tensor:
        """Return the fundamental price; for a block the mid of the same market where none is traded."""
        mid = (simulator.mid2.double() / 2).view(self.shape)
        alone = mid[:, :, :1].expand(self.shape).reshape(-1)  # the first case is idle
        return torch.where(self.block, alone, simulator.fundamental_price.double())

    def _snipe(self, simulator: Simulator, fundamental: torch.Tensor) -> torch.Tensor:
        """Return orders, `[M, 4]`, for as many units as rest on the wrong side of the fundamental price."""
        low, high = fundamental - self.distance, fundamental + self.distance
        bought, sold = (torch.minimum(units, self.quantity) for units in stale(simulator, low, high))
        return torch.stack([low, bought, high, sold], 1)

    def _piece(self, simulator: Simulator, event: int, step: int, mid2: torch.Tensor) -> torch.Tensor:
        """Return the quotes of a block, `[M, 4]`: an even share, and what the pieces before did not fill."""
        inventory = simulator.inventory[:, 0]
        if event % SELDOM == 0:
            self.begun = inventory.clone()
        sign = 1 if event // SELDOM % 2 == 0 else -1
        due = BLOCK * (event % SELDOM + step) // SELDOM - sign * (inventory - self.begun)
        nothing = torch.zeros_like(mid2)
        order = [(mid2 >> 1) + sign * BLOCK_REACH, due.clamp(min=0)]
        return torch.stack([*order, nothing, nothing] if sign > 0 else [nothing, nothing, *order], 1)


def _book(series: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return sums of what the book is after a decision and of volume, float64 `[4, M]`."""
    bid, ask = (series[name][:, -1].double() for name in ("best_bid", "best_ask"))
    two_sided = (bid > -NO_PRICE) & (ask < NO_PRICE)
    spread = torch.where(two_sided, ask - bid, 0.0)
    depth = (series["bid_depth"] + series["ask_depth"])[:, -1].double()
    return torch.stack([spread, two_sided.double(), depth, series["volume"].sum(1).double()])
