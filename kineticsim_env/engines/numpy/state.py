"""`Markets`: the state of some markets as NumPy arrays, and the names and numbers that all of this engine shares.

Everything is int64: [m] per market, [m, L] per tick, [m, K] per slot, [m, J] per standing quote: of slot after slot,
level after level of its ladder, one place or two. With one order per side J is K.
"""

import copy
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kineticsim_env.engines.numpy.rules import best_prices, episode_key, random_words
from kineticsim_env.errors import MarketError

ERROR_OVERFLOW, ERROR_NAN_ACTION, ERROR_ACTION_RANGE, ERROR_ORIGIN = 1, 2, 4, 8
ERROR_STOPPED = ERROR_OVERFLOW | ERROR_ORIGIN

# Indices of random words that belong to no agent.
WORD_WALK, WORD_RATIONING, WORD_WARM_START, WORD_STAGGER, WORD_SCENARIO = (2**30 + i for i in range(5))
WORD_QUEUE, WORD_REGIME, WORD_FIRST_REGIME = (2**30 + i for i in range(6, 9))
WORD_SLOT, WORD_CANCEL = 2**30 + 64, 2**31
WORD_WHO = 2**31 + 2**29
WORD_FLOW = 2**31 + 2**29 + 2**28

MAX_PRICE, MAX_ORIGIN = 2**30, 2**29
NO_PRICE = 2**31 - 1  # of a side where nothing rests; bids have it with a minus
EACH, CONTINUOUS = 0, 1  # of enums Arrivals and Mechanism

MARKET_STATE = (
    "bid", "ask", "prev_mid2", "last_tick", "price_origin", "fundamental_price",
    "seed", "episode", "t", "volume", "trades", "error", "regime", "ret", "beat_price",
    "agent_memory", "lives", "fleeting_units", "flow",
)  # fmt: skip
FLOW_STATE = MARKET_STATE[-3:]  # of an order flow
LAST_TRADE, LAST_JUMP, LEFT, LIMIT, STATE, AFTER, TIME, NOW, EVENTS = range(9)  # columns of `flow`
FLOW_NUMBERS = (  # of a fitted order flow
    "limit", "cancel", "market", "market_same", "limit_size", "market_size", "fleeting", "resting", "jump_hazard",
    "jump_after_trade", "jump_same", "jump_traded", "jump_events", "jump_size", "gap", "follow",
)  # fmt: skip
STANDING_STATE = ("quotes", "queue", "moments")  # of every standing quote
WAY_STATE = ("due", "due_quotes", "due_flags")  # what is under way
SLOT_STATE = ("cash", "inventory", "fees", *STANDING_STATE, *WAY_STATE)
ENV_STATE = (
    "elapsed", "done", "mid_history", "volume_history", "prev_value", "ended", "arrival2", "scenario", "opening_value",
)  # fmt: skip
# Settings of the task that may differ, in their order in `task_values`.
TASK_VALUES = (
    "horizon", "max_qty", "inventory_limit", "max_target", "block_qty", "initial_inventory",
    "inventory_penalty", "idle_penalty", "risk_aversion", "leftover_penalty", "forced_auctions",
)  # fmt: skip
PENALTIES = TASK_VALUES[6:10]  # these are double, the others whole
CLASSES = ("noise", "momentum", "maker", "fundamental")


def stacked(tables: Sequence[Any]) -> dict[str, np.ndarray]:
    """Return the numbers of order flows, `FlowTable`s, by name, of all flows each."""
    return {name: np.stack([np.asarray(getattr(table, name)) for table in tables]) for name in FLOW_NUMBERS}


class Markets:
    """The state of some markets as int64 arrays, one attribute for each name of the state table.

    Attributes:
        rows: Which markets they are.
        orders: Levels of a slot's ladder, N;
        places: how many quotes of a level's side may stand, 1 or 2;
        standing_per_slot: and so how many of a slot's, on each side.
        params: Their parameters by the names of `struct MarketParams`, [m] each.
        now: The same, as the regimes of the markets have them.
        task_values: Settings of the task as slots have them, double [m, K, 11] in the order of `TASK_VALUES`; None
            where all have the same.
        groups: Classes of agents that users have added, with where their numbers are.
        agent_parameters: Their parameters, [m, P], where there are any classes;
        first_added: and the index of the first such agent, [m];
        agent_threshold: of 2^16 the share of events of an order flow at which they come.
        plays_flow: Whether orders are those of a fitted flow; its numbers are what `table` returns.
        signed_volume: Of the last auction or interval, [m]: what takers bought less what they sold; in a call the
            marketable quantity, buys less sells. No state.
        rejects: Of the last decision, [m, K, N, 2], why bids and asks that arrived in it were not placed. No state.
        decision_events: Of the decision that observations show, [m], where events end decisions; else 0. No state.
    """

    bid: np.ndarray
    ask: np.ndarray
    prev_mid2: np.ndarray
    last_tick: np.ndarray
    price_origin: np.ndarray
    fundamental_price: np.ndarray
    seed: np.ndarray
    episode: np.ndarray
    t: np.ndarray
    volume: np.ndarray
    trades: np.ndarray
    error: np.ndarray
    regime: np.ndarray
    ret: np.ndarray
    beat_price: np.ndarray
    agent_memory: np.ndarray
    lives: np.ndarray
    fleeting_units: np.ndarray
    flow: np.ndarray
    quotes: np.ndarray
    cash: np.ndarray
    inventory: np.ndarray
    fees: np.ndarray
    queue: np.ndarray
    moments: np.ndarray
    due: np.ndarray
    due_quotes: np.ndarray
    due_flags: np.ndarray
    elapsed: np.ndarray
    done: np.ndarray
    mid_history: np.ndarray
    volume_history: np.ndarray
    prev_value: np.ndarray
    ended: np.ndarray
    arrival2: np.ndarray
    scenario: np.ndarray
    opening_value: np.ndarray

    def __init__(self, args: dict[str, Any], rows: np.ndarray):
        self.rows, self.num_levels = rows, args["levels"]
        self.on_clock = (args.get("arrivals") or EACH) != EACH
        self.continuous = args.get("mechanism") == CONTINUOUS
        self.orders = args.get("orders_per_side") or 1
        self.places = 1 if self.orders == 1 else 2
        self.standing_per_slot = self.orders * self.places
        self.params = {name: x[rows] for name, x in args["params"].items()}
        self.names = [n for n in MARKET_STATE + SLOT_STATE + ENV_STATE if args.get(n) is not None]
        for name in self.names:
            values = args[name][rows].astype(np.int64)
            if name in STANDING_STATE:  # all that stand in one axis
                values = values.reshape(len(rows), math.prod(values.shape[1:-1]), values.shape[-1])
            setattr(self, name, values)
        if "quotes" not in self.names:  # no slots
            self.quotes = np.zeros((len(rows), 0, 4), np.int64)
            self.cash, self.inventory, self.fees = (np.zeros((len(rows), 0), np.int64) for _ in range(3))
        ladders = (self.cash.shape[1], self.orders)
        if "due" not in self.names:  # nothing is under way between intervals
            self.due = np.zeros((len(rows), 1), np.int64)
            self.due_quotes, self.due_flags = np.zeros((len(rows), 1, *ladders, 4)), np.zeros((len(rows), 1, *ladders))
        self.due_quotes = self.due_quotes.reshape(*self.due.shape, *ladders, 4).astype(np.int64)
        self.due_flags = self.due_flags.reshape(*self.due.shape, *ladders).astype(np.int64)
        self.rejects = np.zeros((len(rows), *ladders, 2), np.int64)
        self.decision_events = np.zeros(len(rows), np.int64)
        if "ret" not in self.names:  # in "each" it is taken anew in each auction
            self.ret = np.zeros(len(rows), np.int64)
        self.groups, self.agent_threshold = args.get("agents") or (), args.get("agent_threshold") or 0
        self._tables: Any = args.get("flow_table")
        self.plays_flow = self._tables is not None
        if self.groups:
            self.agent_parameters = np.broadcast_to(
                args["agent_parameters"], (args["markets"], args["agent_parameters"].shape[1])
            )[rows]
            self.first_added = self.params["num_agents"] - sum(group.agents for group in self.groups)
        self.signed_volume = np.zeros(len(rows), np.int64)
        values = args.get("task_values")
        self.task_values = None if values is None else values[rows]
        self._regimes = args.get("regimes") or {}
        self.follow_regime()

    def store(self, args: dict[str, Any]) -> None:
        for name in self.names:
            args[name][self.rows] = getattr(self, name).reshape(len(self.rows), *args[name].shape[1:])

    def sum_per_slot(self, of_standing: np.ndarray) -> np.ndarray:
        """Return the sums [m, K] of numbers of standing quotes [m, J]."""
        return of_standing.reshape(*self.cash.shape, self.standing_per_slot).sum(axis=-1)

    def standing_levels(self) -> tuple[np.ndarray, np.ndarray]:
        """Return what stands of each level: quotes [m, K, N, 4], and in a queue the units ahead, [m, K, N, 2].

        Of a side's places together the quantity, and of the first that holds anything the price and the units ahead.
        """
        shape = (*self.cash.shape, self.orders, self.places)
        quotes = self.quotes.reshape(*shape, 4)
        ahead = self.queue.reshape(*shape, 2) if self.continuous else np.zeros((*shape, 2), np.int64)
        later = quotes[..., 0, 1::2] == 0  # of each side: its last place is the first that holds anything, if any does
        standing = np.empty((*shape[:-1], 4), np.int64)
        standing[..., 0::2] = np.where(later, quotes[..., -1, 0::2], quotes[..., 0, 0::2])
        standing[..., 1::2] = quotes[..., 1::2].sum(axis=-2)
        return standing, np.where(later, ahead[..., -1, :], ahead[..., 0, :])

    def follow_regime(self) -> None:
        """Bring `now` up to date with `regime`: -1 in the table leaves a parameter as it is.

        Whoever writes into a live state may write any number.
        """
        changed = {name: values[np.clip(self.regime, 0, len(values) - 1)] for name, values in self._regimes.items()}
        self.now = self.params | {n: np.where(value < 0, self.params[n], value) for n, value in changed.items()}

    def task_of(self, task: dict[str, Any], k: int) -> dict[str, Any]:
        """The task as slots k have it: settings that differ as [m], the horizon in what `elapsed` counts."""
        if self.task_values is None:
            return task
        values = zip(TASK_VALUES, self.task_values[:, k].T, strict=True)
        own = {name: x if name in PENALTIES else x.astype(np.int64) for name, x in values}
        return task | own | {"horizon": own["horizon"] * task["longest"]}

    def of(self, chosen: np.ndarray) -> "Markets":
        """Return the chosen markets, bool [m], as copies, which `take_back` puts in their places."""
        some = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                setattr(some, name, value[chosen])
        some.params, some.now = ({name: x[chosen] for name, x in of.items()} for of in (self.params, self.now))
        return some

    def take_back(self, some: "Markets", chosen: np.ndarray) -> None:
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                setattr(self, name, value.copy())  # whoever has it from before keeps what it was
                getattr(self, name)[chosen] = getattr(some, name)

    def table(self, name: str, *index: np.ndarray | int) -> np.ndarray:
        """Return numbers of the markets' order flows: an array of `FlowTable`, [m, ...], or of it what an index says.

        The indices, [m, ...], are of its first axes, and broadcast against each other.
        """
        more = max((np.ndim(one) for one in index), default=1) - 1
        return self._tables[name][(self.params["flow"].reshape(-1, *[1] * more), *index)]

    @property
    def has_lengths(self) -> bool:
        """Whether intervals have a length, and not a number of events."""
        return self.plays_flow and bool((self.params["interval_us"] > 0).all())

    @property
    def interval_length(self) -> np.ndarray:
        """In nanoseconds, [m]."""
        return 1000 * self.params["interval_us"]

    @property
    def first_event(self) -> np.ndarray:
        """The number of the present interval's first event, [m]: below 2^32, as a hostile t might not leave it."""
        return self.t * self.params["interval"] % 2**32

    @property
    def last_price(self) -> np.ndarray:
        """The absolute last price, [m]."""
        return self.last_tick + self.price_origin

    @property
    def marked_mid2(self) -> np.ndarray:
        """The absolute doubled mid [m] of the built-in resting book, the mark."""
        best_bid, best_ask = best_prices(self.bid, self.ask)
        both = (best_bid >= 0) & (best_ask < self.num_levels)
        return np.where(both, best_bid + best_ask, 2 * self.last_tick) + 2 * self.price_origin

    def words(self, index: Any, t: np.ndarray | int | None = None) -> np.ndarray:
        """Random words `w(index)` as [m, n], index [n] or [m, n]; at the present t, or at others, [m] or [m, n]."""
        key, t = episode_key(self.seed, self.episode), np.asarray(self.t if t is None else t)
        return random_words(key[:, None], t[:, None] if t.ndim == 1 else t, np.asarray(index))

    def word(self, index: int, t: np.ndarray | int | None = None) -> np.ndarray:
        """Random word `w(index)` of each market, [m]."""
        return self.words([index], t)[:, 0]

    def check(self, failed: np.ndarray, what: str) -> None:
        if failed.any():
            first = int(np.argmax(failed))
            raise MarketError(
                f"market {self.rows[first]}, auction t={self.t[first]}: {what}; the state is as before the call"
            )

    def check_totals(self, total: np.ndarray) -> None:
        """Stop where what one side holds, [m], reaches 2^31."""
        self.check(
            total >= 2**31,
            "a side's total quantity would reach 2^31 (use cancel_prob or smaller orders, or reset it more often)",
        )
