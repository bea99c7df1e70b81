"""Makers and informed slots that learn, beside the scripted ones of `study.py`: how often should a market clear?

Each begins as a scripted slot, a maker as the maker and an informed slot as the better of maker and sniper, at the
distance that is best in its cell of those at which it trades. CMA-ES (`examples/studies/evolution.py`) changes the
numbers of its policy, on training seeds. Its reward is what is reported: what its trades make against the fundamental
price after each decision. Inventory has no penalty, as what is held earns and costs nothing later. All cells of a rule
learn in one `Simulator`, so a generation is one play of the rule, and every rule has as many events and decisions to
learn from.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from examples.studies import evolution
from examples.studies.clearing import study
from kineticsim_env.runtime.seeds import run_seed
from kineticsim_env.simulator import Simulator

SEED = run_seed(37)  # of training
POPULATION = 12  # candidates per generation of a cell
MARKETS = 64  # seeds of each candidate, new ones in each generation
ROLES = {
    "maker": "quotes both sides; does not know the fundamental price",
    "informed": "knows it, and may quote as well as take",
}
REACH = 8  # ticks around the mid, of the imbalance
MEMORY = 4  # decisions that the average of the mid goes back
NUMBERS = {  # of a policy, see `Learner`: the deviation of the first candidates
    "near": 0.35,
    "far": 1.0,
    "rest": 0.2,
    "caution": 0.2,
    "move": 0.2,
    "trend": 0.2,
    "pressure": 0.5,
    "held": 0.3,
    "news": 0.2,
}


class Kind(NamedTuple):
    """Slots that learn alike in every market of a rule; a cell is a kind, a reference and a pace of news."""

    role: str  # of `ROLES`
    every: int  # events between decisions

    @property
    def name(self) -> str:
        """Its name in figures."""
        return f"learned_{self.role}_{self.every}"

    @property
    def scripted(self) -> str:
        """The name in figures of the scripted slot that it is held to."""
        return f"{self.role}_{self.every}"


def kinds(interval: int) -> tuple[Kind, ...]:
    """Return what learns under a rule: nobody decides more often than it clears."""
    paces = [every for every in (study.OFTEN, study.SELDOM) if every >= interval]
    return tuple(Kind(*kind) for kind in itertools.product(ROLES, paces))


def starts(interval: int, chosen: dict[str, np.ndarray]) -> np.ndarray:
    """Return the numbers of scripted slots, float64 `[reference, news, kind, number]`.

    Which cases they are is `chosen`, by `scripted.best_cases` or `first_cases`. Once what begins as a sniper leaves
    orders to rest, these are at the maker's distance.
    """
    distances = np.array([case.distance for case in study.cases()])
    makes = np.array([case.role == "maker" for case in study.cases()])
    found = np.zeros((len(study.REFERENCES), len(study.NEWS), len(kinds(interval)), len(NUMBERS)))
    for place, kind in enumerate(kinds(interval)):
        own, maker = chosen[kind.scripted], chosen[f"maker_{kind.every}"]
        found[:, :, place, _PLACE["near"]] = distances[own]
        found[:, :, place, _PLACE["far"]] = np.where(makes[own], 0, np.maximum(distances[maker] - distances[own], 0))
        found[:, :, place, _PLACE["rest"]] = makes[own]
        found[:, :, place, _PLACE["news"]] = ~makes[own]
    return found


class Learner:
    """The slots of all cells of a rule: one policy, whose numbers each market has its own of.

    It sees the mid m and, in ticks, how far the fundamental price is from it (gap: 0 for a maker, who is not told), how
    far it has moved since the last decision, and how far it is from its average over some `MEMORY` decisions (away);
    the imbalance of what rests within `REACH` ticks of it (-1 to 1, all asks to all bids); and its own inventory (-1 to
    1, which is 8 full quotes or more). Then

        centre = m + news * gap + move * moved + trend * away + pressure * imbalance + held * inventory,
        distance = max(near + caution * |moved|, 1/2).

    It bids below the centre and offers above it, at that distance, rounded away from it; or `far` ticks further away
    where nothing rests that could be taken there. It orders what can be taken, up to `QUANTITY`, and the share `rest`
    (0 to 1) of what that leaves of `QUANTITY`. A maker with a rest of 1 quotes as a scripted one does; an informed slot
    with news 1 and a rest of 0 is a sniper.
    """

    def __init__(self, interval: int, numbers: np.ndarray, markets: int, device: torch.device) -> None:
        """Take numbers, float64 `[reference, news, kind, candidate, number]`, and how many markets each plays."""
        self.shape = (*numbers.shape[:-1], markets)

        def of_markets(values: torch.Tensor) -> torch.Tensor:
            return values[..., None].expand(self.shape).reshape(-1)

        given = torch.from_numpy(numbers).to(device)
        self.numbers = {name: of_markets(given[..., place]) for name, place in _PLACE.items()}
        every = torch.tensor([kind.every for kind in kinds(interval)], device=device)
        informed = torch.tensor([kind.role == "informed" for kind in kinds(interval)], device=device)
        quantity = torch.tensor([study.QUANTITY[kind.every] for kind in kinds(interval)], device=device)
        self.every, self.informed, self.quantity = (
            of_markets(values[:, None].expand(self.shape[:-1])) for values in (every, informed, quantity)
        )
        self.before: torch.Tensor | None = None  # the mid when it last decided
        self.average: torch.Tensor | None = None  # of the mid

    def __call__(self, simulator: Simulator, event: int, step: int) -> torch.Tensor:
        """Return the quotes; a slot that does not decide now keeps what stands, and its place in the queue."""
        mid, now = simulator.mid2.double() / 2, event % self.every == 0
        before = mid if self.before is None else self.before
        average = mid if self.average is None else self.average
        quotes = self._quotes(simulator, mid, mid - before, mid - average)
        self.before = torch.where(now, mid, before)
        self.average = torch.where(now, average + (mid - average) / MEMORY, average)
        return torch.where(now[:, None], quotes, simulator.quotes[:, 0].long()).to(torch.int32)[:, None]

    def worth(self, simulator: Simulator) -> torch.Tensor:
        """Return the fundamental price."""
        return simulator.fundamental_price.double()

    def _quotes(self, simulator: Simulator, mid: torch.Tensor, moved: torch.Tensor, away: torch.Tensor) -> torch.Tensor:
        """Return quotes, int64 `[M, 4]`; arguments are of the policy's formula."""
        of = self.numbers
        gap = torch.where(self.informed, simulator.fundamental_price - mid, 0.0)
        inventory = (simulator.inventory[:, 0] / (8 * self.quantity)).clamp(-1.0, 1.0)
        centre = mid + of["news"] * gap + of["move"] * moved + of["trend"] * away
        centre = centre + of["pressure"] * _imbalance(simulator, mid) + of["held"] * inventory
        near = (of["near"] + of["caution"] * moved.abs()).clamp(min=0.5)
        low, high = (centre - near).floor().long(), (centre + near).ceil().long()
        far, rest = of["far"].clamp(min=0.0), of["rest"].clamp(0.0, 1.0)
        orders = []
        for units, price, sign in zip(study.stale(simulator, low, high), (low, high), (-1, 1), strict=True):
            taken = torch.minimum(units, self.quantity)
            left = torch.round(rest * (self.quantity - taken)).long()
            orders += [torch.where(taken > 0, price, torch.round(price + sign * far).long()), taken + left]
        return torch.stack(orders, 1)


def learn(
    interval: int,
    start: np.ndarray,
    scripted: np.ndarray,
    generations: int,
    markets: int = MARKETS,
    population: int = POPULATION,
    engine: str = "auto",
    done: Callable[[], Any] = lambda: None,
) -> np.ndarray:
    """Learn all cells of a rule; returns their numbers, of the shape of `start`.

    Where the mean that a search ends with is not ahead of the scripted slot in new markets of training, the numbers of
    that are returned.

    Args:
        interval: Of the rule, events, or `CONTINUOUS`.
        start: What `starts` returned for the cases where learning begins.
        scripted: What it returned for the best ones.
        generations: How long each searches.
        markets: Seeds of each candidate, new ones in each generation.
        population: Candidates per generation of a cell; an even number.
        engine: As in `Simulator`.
        done: Called after each generation, and after the comparison.

    Raises:
        ModuleNotFoundError: Without `cma`.
    """
    many, size = start.reshape(-1, len(NUMBERS)), (*start.shape[:-1], population, markets)
    searches = [evolution.search(numbers.tolist(), _deviations(numbers), population) for numbers in many]
    simulator = _simulator(interval, size, engine)
    for generation in range(generations):
        asked = np.array([each.ask() for each in searches])
        made = _made(simulator, interval, asked.reshape(*size[:-1], -1), SEED + generation * markets)
        for each, candidates, edges in zip(searches, asked, made.mean(-1).reshape(-1, population), strict=True):
            each.tell(list(candidates), list(-edges))
        done()
    ends = np.reshape([each.mean for each in searches], start.shape)
    made = _made(simulator, interval, np.stack([scripted, ends], -2), SEED + generations * markets).mean(-1)
    done()
    return np.where((made[..., 1] > made[..., 0])[..., None], ends, scripted)


def play(interval: int, numbers: np.ndarray, markets: int, engine: str = "auto") -> dict[str, np.ndarray]:
    """Play what was learned; returns edges by the names of kinds, float64 `[reference, news, seed]` each.

    The seeds are those for which `clearing_figures.measures` has the edge of scripted slots: half of `markets`.
    """
    simulator = _simulator(interval, (*numbers.shape[:-1], len(range(0, markets, 2))), engine)
    made = _made(simulator, interval, numbers[..., None, :], study.SEED, 2)
    return {kind.name: made[:, :, place, 0] for place, kind in enumerate(kinds(interval))}


# Helpers --------------------------------------------------------------------------------------------------------------

_PLACE = {name: place for place, name in enumerate(NUMBERS)}


def _simulator(interval: int, shape: tuple[int, ...], engine: str) -> Simulator:
    return Simulator(study.market(interval, int(np.prod(shape[2:]))), int(np.prod(shape)), engine=engine, slots=1)


def _made(simulator: Simulator, interval: int, numbers: np.ndarray, first: int, apart: int = 1) -> np.ndarray:
    """Return what candidates make per 1,000 events, float64 `[reference, news, kind, candidate, seed]`.

    Their numbers are float64 `[reference, news, kind, candidate, number]`. Each plays an equal part of the simulator's
    markets, whose seeds begin at `first` and are so far `apart`.
    """
    slots = Learner(interval, numbers, simulator.num_markets // int(np.prod(numbers.shape[:-1])), simulator.device)
    simulator.reset(seed=study.seeds(slots.shape, first, apart))
    total = torch.zeros(simulator.num_markets, dtype=torch.float64, device=simulator.device)
    for event, _, made in study.steps(simulator, slots):
        if event >= study.WARMUP:
            total += made
    simulator.check_errors()
    return (total * (1000 / study.EVENTS)).cpu().numpy().reshape(slots.shape)


def _deviations(start: np.ndarray) -> list[float]:
    """Return those of the first candidates: of a wide distance a wider one."""
    found = dict(NUMBERS)
    found["near"] *= max(1.0, start[_PLACE["near"]] / 2)
    return list(found.values())


def _imbalance(simulator: Simulator, mid: torch.Tensor) -> torch.Tensor:
    """Return bids less asks near the mid, as a share of both, float64 `[M]`."""
    low, high = (mid - REACH).ceil().long(), (mid + REACH).floor().long()
    bid, ask = (study.resting(simulator, side, low, high).double() for side in ("bid", "ask"))
    return (bid - ask) / (bid + ask).clamp(min=1.0)
