"""`LiveMarkets`: what an ensemble of markets holds now: state, prices, parameters, error words.

`Ensemble` derives from it, and adds what changes markets.
"""

from __future__ import annotations

from typing import Any

import torch

from kineticsim_env.config import MarketConfig
from kineticsim_env.engines.agents import AgentGroup, place_of
from kineticsim_env.engines.base import Engine
from kineticsim_env.engines.native import market_stopped
from kineticsim_env.engines.parameters import agent_fields
from kineticsim_env.errors import MarketError
from kineticsim_env.runtime import layout, saved_states
from kineticsim_env.runtime.calls import CallLock, one_at_a_time
from kineticsim_env.runtime.flow_table import EVENTS, NOW, TIME
from kineticsim_env.runtime.values import check_choice, is_one_of

STOPPED = layout.CONSTANTS["kErrorOverflow"] | layout.CONSTANTS["kErrorOrigin"]
_REPORTED = 1 << 30  # joins the stop bits of a market's error word once check_errors has raised for it


def _live(name: str, said: str) -> Any:
    """Return the property that shows a tensor of that name."""

    def tensor(self: LiveMarkets) -> torch.Tensor:
        return self.tensors[name]

    return property(tensor, doc=said)


class LiveMarkets:
    """What markets hold now. Nothing is a copy unless it says so: clone what you keep.

    Attributes:
        tensors: The same and more, by their names in `struct Launch`.
    """

    num_markets: int
    slots: tuple[str | None, ...]
    device: torch.device
    tensors: layout.LiveTensors
    engine: Engine
    _calls: CallLock
    _config: MarketConfig
    _population: torch.Tensor | None  # int64 [M], by which populations are drawn; None where they are not
    _groups: tuple[AgentGroup, ...]

    @property
    def _state(self) -> dict[str, torch.Tensor]:
        """All state by the names that saved states have, live."""
        drawn = {} if self._population is None else {saved_states.POPULATION: self._population}
        return {**self.tensors, **drawn}

    @property
    def config(self) -> MarketConfig:
        """What the markets play; `Simulator.set_parameters` changes it."""
        return self._config

    @config.setter
    def config(self, value: object) -> None:
        raise AttributeError("config: expected set_parameters(field=value), or another simulator, got another config")

    bid: torch.Tensor = _live("bid", "Resting built-in bids, int32 `[M, L]`, live.")
    ask: torch.Tensor = _live("ask", "Resting built-in asks, int32 `[M, L]`, live.")
    price_origin: torch.Tensor = _live("price_origin", "Absolute price of grid tick 0, int32 `[M]`, live.")
    fundamental_price: torch.Tensor = _live(
        "fundamental_price", "Fundamental price, absolute ticks, int32 `[M]`, live."
    )
    volume: torch.Tensor = _live("volume", "Units traded since the reset, int64 `[M]`, live.")
    trades: torch.Tensor = _live("trades", "Auctions that traded since the reset, int64 `[M]`, live.")
    t: torch.Tensor = _live("t", "Auctions since the reset, int64 `[M]`, live.")
    quotes: torch.Tensor = _live(
        "quotes",
        "Standing quotes of the slots, int32 `[M, K, 4]`, live; of ladders `[M, K, N, 2, 4]`, each level's two places.",
    )
    cash: torch.Tensor = _live("cash", "Cash of the slots, ticks x units, int64 `[M, K]`, live.")
    inventory: torch.Tensor = _live("inventory", "Inventory of the slots, units, int64 `[M, K]`, live.")
    fees: torch.Tensor = _live("fees", "Fees paid by the slots, thousandths of a tick, int64 `[M, K]`, live.")

    @property
    def queue(self) -> torch.Tensor:
        """Built-in units ahead of standing bids and asks, int32 `[M, K, 2]`, live; of ladders `[M, K, N, 2, 2]`.

        Continuous trading has it.
        """
        if "queue" not in self.tensors:
            raise AttributeError("queue: expected mechanism 'continuous', got 'call', in which nobody queues")
        return self.tensors["queue"]

    @property
    def time(self) -> torch.Tensor:
        """Nanoseconds since the reset, int64 `[M]`, live; markets of an order flow have it.

        Where intervals have a length it is when the last one ended, else the time of the last event.
        """
        if "flow" not in self.tensors:
            raise AttributeError(f"time: expected arrivals 'flow', got {self.config.arrivals!r}, in which none passes")
        return self.tensors["flow"][:, TIME if self.config.interval_ms is None else NOW]

    @property
    @one_at_a_time
    def events(self) -> torch.Tensor:
        """Events since the reset, int64 `[M]`, a copy; markets on the clock and of an order flow have them."""
        if not self.config.uses_clock:
            raise AttributeError("events: expected arrivals 'clock' or 'flow', got 'each', in which there are none")
        self.engine.check_sizes()
        if self.config.interval_ms is None:
            return self.tensors["t"] * self.parameter("interval")
        return self.tensors["flow"][:, EVENTS].clone()

    @property
    @one_at_a_time
    def money(self) -> torch.Tensor:
        """Cash less fees of the slots, ticks x units, float64 `[M, K]`, a copy; inventory is not in it."""
        self.engine.check_sizes()
        return self.tensors["cash"].double() - self.tensors["fees"].double() / 1000

    @property
    @one_at_a_time
    def last_price(self) -> torch.Tensor:
        """Last clearing price, absolute ticks, int32 `[M]`, a copy."""
        self.engine.check_sizes()
        return self.tensors["last_tick"] + self.tensors["price_origin"]

    @property
    @one_at_a_time
    def mid2(self) -> torch.Tensor:
        """Doubled absolute mid of the resting built-in book, int32 `[M]`, a copy; one-sided: twice the last price."""
        self.engine.check_sizes()
        levels = self.config.num_levels
        ticks = torch.arange(1, levels + 1, dtype=torch.int32, device=self.device)
        best_bid = ((self.bid > 0) * ticks).amax(1) - 1  # products, as they are several times faster than where
        best_ask = levels - ((self.ask > 0) * ticks.flip(0)).amax(1)
        both = (best_bid >= 0) & (best_ask < levels)
        grid = torch.where(both, best_bid + best_ask, 2 * self.tensors["last_tick"])
        return (grid + 2 * self.tensors["price_origin"]).to(torch.int32)

    @property
    def memory(self) -> dict[str, dict[str, torch.Tensor]]:
        """What agents that users have added remember: by class and word, int32 `[M, agents]` each, live.

        `simulator.memory["trend_follower"]["average"]`; the last of a class are inactive where slots replace them.
        """
        found: dict[str, dict[str, torch.Tensor]] = {}
        for group in self._groups:
            begins = [group.memory + word * group.agents for word in range(len(group.kind.memory))]
            words = [self._words(begin, group.agents) for begin in begins]
            found[group.kind.name] = dict(zip(group.kind.memory, words, strict=True))
        return found

    def _words(self, begin: int, agents: int) -> torch.Tensor:
        if "agent_memory" not in self.tensors:  # of no agents
            return torch.zeros((self.num_markets, 0), dtype=torch.int32, device=self.device)
        return self.tensors["agent_memory"][:, begin : begin + agents]

    @one_at_a_time
    def parameter(self, name: str) -> torch.Tensor:
        """Return a field of `struct MarketParams` (`cuda/model/layout.h`) as it is now: int32 `[M]`, a copy.

        A parameter of agents that users have added, `"trend_follower.lookback"`, is int32 `[M, agents]`.
        """
        added = agent_fields(self.config)
        if is_one_of(name, added):
            kind, parameter = added[name]
            begin, width = place_of(self._groups, kind.name, parameter)
            table = self.engine.agent_parameters()
            assert table is not None
            values = table[:, begin : begin + width].to(self.device)
            return values.expand(self.num_markets, self.config.agents[kind].count).clone()
        names = [*layout.PARAMS_FIELDS, *added]
        check_choice("name", name, names)
        column = self.engine.parameters()[:, names.index(name)]
        return column.to(self.device).expand(self.num_markets).clone()

    @one_at_a_time
    def check_errors(self) -> None:
        """Raise `MarketError` if any market's error word is set that was not yet raised for. Synchronises on CUDA.

        The words are cleared, but those of markets that have stopped: these stay stopped until they are reset.
        """
        self.engine.check_sizes()
        words = self.tensors["error"]
        fresh = (words != 0) & (words & _REPORTED == 0)
        if not bool(fresh.any()):
            return
        market = int(torch.nonzero(fresh)[0])
        word, t = int(words[market]), int(self.tensors["t"][market])
        words.copy_(torch.where(words & STOPPED != 0, words | _REPORTED, 0))
        raise market_error(market, t, word)

    @one_at_a_time
    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return copies of the whole state, by the names of the state table.

        `about` says what the state is of (`saved_states.read_about` reads it): the market and the slots.
        """
        self.check_errors()
        saved = {name: tensor.clone() for name, tensor in self._state.items()}
        return saved | {saved_states.ABOUT: saved_states.pack_about(self.about())}

    def about(self) -> dict[str, Any]:
        """Return what a state of this simulator is of, as plain numbers, texts and lists."""
        return {"markets": self.num_markets, "slots": list(self.slots), "market": saved_states.describe(self.config)}


def market_error(market: int, t: int, word: int) -> MarketError:
    """Return what is raised for the error word of a market at a time."""
    if word & STOPPED:
        return MarketError(market_stopped(market, t, word))
    what = (
        "a NaN action (its old quote was kept)"
        if word & layout.CONSTANTS["kErrorNanAction"]
        else "an action outside its space (it was clamped)"
    )
    return MarketError(f"market {market}: expected finite actions inside the action space, got {what}")
