"""`MarketRecorder`: what one market of an `EnvCore` did, decision by decision, on the host; used only for pictures.

Reading changes nothing in the markets. On a GPU it is one small copy per decision.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from kineticsim_env.envs.core import EnvCore
from kineticsim_env.runtime.roles import SPECS
from kineticsim_env.runtime.values import check_choice, check_count, check_instance
from kineticsim_env.tasks.base import MARKET_FEATURES

LONGEST = 4096  # decisions that are kept; of longer episodes the latest
_OF_STATE = {"seed": "seed", "episode": "episode", "origin": "price_origin", "last_price": "last_tick",
             "fundamental": "fundamental_price"}  # fmt: skip
_QUOTES = ("bid_price", "bid_qty", "ask_price", "ask_qty")
COLUMNS = tuple("elapsed mid2 last_price fundamental cash inventory fees bought sold volume left".split()) + _QUOTES
COLUMNS += ("bought_at", "sold_at")  # the prices of `Moment.filled_rows`


class Moment(NamedTuple):
    """One market after a decision, with the account of one learner. Prices are absolute ticks."""

    seed: int
    episode: int
    origin: int  # price of grid tick 0
    bid: np.ndarray  # int64 [L]: resting quantity of the built-in agents by grid tick
    ask: np.ndarray
    elapsed: int  # decisions of this episode, or events where these end decisions
    mid2: int  # twice the mid
    last_price: int
    fundamental: int
    quotes: tuple[int, int, int, int]  # own standing orders: bid price, bid quantity, ask price, ask quantity
    cash: int  # ticks x units
    inventory: int
    fees: int  # thousandths of a tick
    bought: int  # in the last decision
    sold: int
    volume: int  # units that the market traded in the last decision
    arrival2: int  # twice the mid when the episode began
    scenario: int  # that the episode plays, of a randomised environment
    left: int  # what is left of a block to execute, signed: + to buy, - to sell; 0 without a block
    queue: tuple[int, int] | None = None  # built-in units ahead of the own bid and ask; None where nobody queues
    further: tuple[
        tuple[int, ...], ...
    ] = ()  # of a ladder's levels behind the first: quotes, and what is ahead of them

    def depth(self, price: int, side: str) -> int:
        """Return the built-in quantity that rests at a price on `"bid"` or `"ask"`; 0 off the grid."""
        check_choice("side", side, ("bid", "ask"))
        book, tick = (self.bid if side == "bid" else self.ask), check_count("price", price, -(2**31)) - self.origin
        return int(book[tick]) if 0 <= tick < len(book) else 0

    def ahead(self, side: str) -> int | None:
        """Return the built-in units ahead of the own quote on `"bid"` or `"ask"`; None without a quote or a queue."""
        check_choice("side", side, ("bid", "ask"))
        ask = side == "ask"
        return self.queue[ask] if self.queue is not None and self.quotes[1 + 2 * ask] else None

    def own(self, side: str) -> dict[int, tuple[int, int | None]]:
        """Return by price what stands of the own orders on `"bid"` or `"ask"`: units, and built-in units ahead.

        Of several levels at a price that is all units, and what is ahead of the first; None where nobody queues. The
        price nearest to trading comes first.
        """
        place = 2 * (check_choice("side", side, ("bid", "ask")) == "ask")
        levels = [(*self.quotes, *(self.queue or ())), *self.further]
        found: dict[int, tuple[int, int | None]] = {}
        for level in sorted(levels, key=lambda level: level[place], reverse=not place):
            price, units = level[place : place + 2]
            ahead = level[4 + place // 2] if self.queue is not None else None
            before, least = found.get(price, (0, ahead))
            if units:
                found[price] = before + units, None if ahead is None or least is None else min(ahead, least)
        return found

    def filled_rows(self) -> tuple[int, int]:
        """Return the prices at which pictures show what was bought and sold in the last decision.

        That is the clearing price; under continuous trading the own quote's, as long as it is known, of a ladder that
        of level 0.
        """
        if self.queue is None:
            return self.last_price, self.last_price
        bid, _, ask, _ = self.quotes
        near = [price if abs(2 * price - self.mid2) <= 2 * len(self.bid) else self.last_price for price in (bid, ask)]
        return near[0], near[1]

    @property
    def pnl(self) -> float:
        """Cash less fees, and the inventory at the mid; ticks x units."""
        return (2000 * self.cash + 1000 * self.inventory * self.mid2 - 2 * self.fees) / 2000


class MarketRecorder:
    """The present moment of one market and its path since the episode began.

    Attributes:
        moment: The market as it is, or None before the first `record`.
        role: The role of the learner.
        has_fundamental: Whether somebody may see a fundamental price; nobody does in an order flow.
        show_fundamental: Whether pictures show it, which few learners see.
    """

    def __init__(self, core: Any, market: int = 0, slot: int = 0) -> None:
        """Choose a market and one of its learners.

        Args:
            core: The `EnvCore` of an environment: `env.unwrapped.core`.
            market: Which market, from 0.
            slot: The learner's slot, from 0.

        Raises:
            TypeError, ValueError: Naming the argument, what came and what is allowed.
        """
        self.core = check_instance("core", core, EnvCore)
        self.market = check_count("render_market", market, 0, core.simulator.num_markets - 1)
        self.slot = check_count("render_slot", slot, 0, len(core.roles) - 1)
        self.role: str = core.roles[self.slot]
        self.spec = SPECS[self.role]
        self.moment: Moment | None = None
        self.has_fundamental = not core.simulator.config.is_flow
        self.show_fundamental = self.has_fundamental
        self._rows = np.zeros((256, len(COLUMNS)), dtype=np.int64)
        self._count = 0

    @property
    def task(self):  # noqa: ANN201  the task's class depends on the environment
        """The task as the learner has it; looked up each time, as an environment may change it between episodes."""
        return self.core.task_of(self.market, self.slot)

    @property
    def unit(self) -> str:
        """What `elapsed` counts: `"decision"`, or `"event"` where these end decisions."""
        return "event" if self.core.task.decides_at_events else "decision"

    @property
    def longest(self) -> int:
        """How many of them a decision has at most."""
        return self.core.live_task.longest

    @property
    def horizon(self) -> int:
        """How many of them the episode has."""
        return self.task.horizon * self.longest

    @property
    def block(self) -> int:
        """The largest block that the role may have to execute, in units; 0 if it has none."""
        return int(np.max(getattr(self.task, self.spec.to_trade))) if self.spec.to_trade else 0

    def record(self) -> Moment:
        """Look at the market, and add what is new to its path."""
        moment = self._read()
        before = self.moment
        if before is None or (before.seed, before.episode) != (moment.seed, moment.episode):
            self._count = 0
        while self._count and self._rows[self._count - 1, 0] >= moment.elapsed:  # seen again, or a state was loaded
            self._count -= 1
        if not self._count:  # fills that are left from the episode before
            moment = moment._replace(bought=0, sold=0)
        self.moment = moment
        self._append(moment)
        return moment

    def path(self, name: str) -> np.ndarray:
        """Return one of `COLUMNS` over the decisions that were seen, int64 `[T]`; a view that `record` overwrites."""
        return self._rows[: self._count, COLUMNS.index(check_choice("name", name, COLUMNS))]

    def money_path(self) -> np.ndarray:
        """Return cash less fees plus inventory at the mid of each decision, float64 `[T]`, in ticks x units.

        An executor's inventory counts at the arrival price: what was traded gained or lost against that.
        """
        assert self.moment is not None
        mark = self.moment.arrival2 if self.spec.has_block else self.path("mid2")
        return (2000 * self.path("cash") + 1000 * self.path("inventory") * mark - 2 * self.path("fees")) / 2000

    def _append(self, moment: Moment) -> None:
        if self._count == LONGEST:
            self._count = LONGEST // 2
            self._rows[: self._count] = self._rows[LONGEST - self._count :].copy()
        elif self._count == len(self._rows):
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
        named = moment._asdict() | dict(zip(_QUOTES, moment.quotes, strict=True))
        named |= dict(zip(("bought_at", "sold_at"), moment.filled_rows(), strict=True))
        self._rows[self._count] = [named[name] for name in COLUMNS]
        self._count += 1

    @torch.no_grad()
    def _read(self) -> Moment:
        """Copy the market to the host, as one tensor."""
        core, m, k = self.core, self.market, self.slot
        state, env = core.simulator.tensors, core.tensors
        parts = {name: state[field][m : m + 1] for name, field in _OF_STATE.items()}
        parts |= {name: env[name][m : m + 1] for name in ("elapsed", "arrival2", "scenario")}
        parts |= {"mid2": env["mid_history"][m, :1], "volume": env["volume_history"][m, :1]}
        parts |= {name: state[name][m, k : k + 1] for name in ("cash", "inventory", "fees")}
        own = env["observation"][m, k, MARKET_FEATURES : MARKET_FEATURES + 1]
        parts |= {"left": own.view(torch.int32)}  # travels as its bits
        numbers = tuple(parts)
        parts |= {"fills": core.fills[m, k], "bid": state["bid"][m], "ask": state["ask"][m]}
        parts |= {name: state[name][m, k].flatten() for name in ("quotes", "queue") if name in state}
        values = torch.cat([part.to(torch.int64) for part in parts.values()]).cpu().numpy()
        ends = np.cumsum([len(part) for part in parts.values()])[:-1]
        found: dict[str, Any] = dict(zip(parts, np.split(values, ends), strict=True))
        found |= {name: found[name].item() for name in numbers}
        if len(found["quotes"]) > 4:
            found["quotes"], found["queue"], *further = _levels(found["quotes"], found["queue"])
            found["further"] = tuple(
                (*quotes, *ahead) for quotes, ahead in zip(further[::2], further[1::2], strict=True)
            )
        found |= {name: tuple(map(int, found[name])) for name in ("quotes", "queue") if name in found}
        found["last_price"] += found["origin"]
        share = float(np.int32(found["left"]).view(np.float32))
        found["left"] = round(share * self.block) if self.block else 0
        bought, sold = found.pop("fills").tolist()
        return Moment(**found, bought=bought, sold=sold)


def _levels(quotes: np.ndarray, queue: np.ndarray) -> list[list[int]]:
    """Return of each level of a ladder, one after another, what stands of it and what is ahead of that.

    Of both places of a side the units together, and of the first that holds anything the price and what is ahead.
    """
    places, ahead = quotes.reshape(-1, 2, 2, 2), queue.reshape(-1, 2, 2)  # level, place, side; then price and units
    first = (places[:, 0, :, 1] == 0).astype(int)
    levels, sides = np.arange(len(places))[:, None], np.arange(2)
    standing = np.stack([places[levels, first, sides, 0], places[..., 1].sum(axis=1)], axis=-1).reshape(-1, 4)
    both = zip(standing.tolist(), ahead[levels, first, sides].tolist(), strict=True)
    return [numbers for level in both for numbers in level]
