"""`Simulator`: thousands of markets, advanced together on one engine. The engine-level API, no tasks or rewards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from kineticsim_env.config import CLASSES, MarketConfig
from kineticsim_env.engines import choose_engine, make_engine, runs
from kineticsim_env.engines.agents import agent_groups, opening_memory, parameter_table
from kineticsim_env.engines.live import LiveMarkets
from kineticsim_env.engines.opening import open_books, opening_book, seen_at_opening
from kineticsim_env.engines.parameters import changed, class_counts, parameter_rows
from kineticsim_env.engines.population import multinomial_counts
from kineticsim_env.errors import MarketError
from kineticsim_env.runtime import layout, saved_states
from kineticsim_env.runtime.calls import CallLock, Uninterrupted, one_at_a_time
from kineticsim_env.runtime.checks import (
    check_count,
    check_mask,
    check_num_markets,
    check_quotes,
    check_seeds,
    check_series,
    check_slots,
)
from kineticsim_env.runtime.values import check_flag, check_instance, check_progress

if TYPE_CHECKING:
    from kineticsim_env.tapes.tape import Tape

DEPTH_REACH = layout.CONSTANTS["kDepth"]  # of recorded depths unless one is given: as far as observations see


class Rollout(NamedTuple):
    """What `Simulator.rollout` returns; T decisions, M markets, K slots, n auctions per decision."""

    fills: torch.Tensor  # int64 [T, M, K, 2]: units bought and sold in each decision
    value: torch.Tensor  # int64 [T, M, K]: 2 * cash + inventory * mid2 after each decision, in half ticks
    series: dict[str, torch.Tensor]  # int32 [T, M, n] for each recorded name


class Simulator(LiveMarkets):
    """An ensemble of M markets with K slots each.

    The model is in `docs/model.md`. All prices are absolute ticks; `bid` and `ask` are on the grid, whose tick 0 is at
    `price_origin`. Tensors that properties return are live unless they say otherwise: clone what you keep.
    """

    def __init__(
        self,
        config: MarketConfig | None = None,
        num_markets: int | None = None,
        *,
        engine: str = "auto",
        device: Any = None,
        seed: int | Sequence[int] | np.ndarray | torch.Tensor = 0,
        slots: int | Sequence[str | None] = 0,
        validate: bool = False,
    ) -> None:
        """Open M markets at their opening books.

        Args:
            config: The market; the preset `"paper"` if None. Fields may be per market.
            num_markets: M; the length of the per-market fields, else 1, if None.
            engine: `"auto"`, `"cuda"`, `"cpu"` or `"numpy"`. `"auto"` takes the C++ engine for a single market.
            device: For CUDA, which GPU.
            seed: Market m is seeded `seed + m`; or one seed per market. For several runs see `run_seed`.
            slots: How many learners are added, or for each one the class (`"noise"`, `"momentum"`, `"maker"`,
                `"fundamental"`, or the name of one of `config.agents`) of the agent that it replaces, None for one that
                replaces nobody. At most 32.
            validate: Check the error words before every call, at the price of a synchronisation on CUDA.

        Raises:
            TypeError, ValueError: Naming the argument, what came and what is allowed.
            EngineUnavailable: If the engine asked for cannot run here.
        """
        config = MarketConfig() if config is None else config
        self._config = check_instance("config", config, MarketConfig)
        self.num_markets = check_num_markets(config, num_markets)
        self.slots = check_slots(slots, [kind.name for kind in config.agents])
        self.validate = check_flag("validate", validate)
        reason = "one market is faster there" if self.num_markets == 1 else ""
        self.engine_name, self.device = choose_engine(engine, device, prefer_cpu=reason)
        self.sizes = {"M": self.num_markets, "L": config.num_levels, "K": len(self.slots)}
        self.sizes["I"] = layout.info_rows(len(self.slots))
        self._replaced = {name: self.slots.count(name) for name in (*CLASSES, *(kind.name for kind in config.agents))}
        self._groups = agent_groups(config, self._replaced)
        self.sizes["P"] = sum(group.parameter_words for group in self._groups)
        self.sizes["Q"] = sum(group.memory_words for group in self._groups)
        self.tensors = layout.LiveTensors(layout.allocate(_state_of(config, self.sizes), self.sizes, self.device))
        self.engine = make_engine(self.engine_name, self.device, self.sizes, self.tensors)
        self.engine.check_plays(config)
        self.engine.set_ensemble(config)
        self.engine.set_agents(self._groups)
        self._calls = CallLock(self.engine.begin_call)
        self._take_counts(class_counts(config, self.num_markets if config.per_market else 1))
        self._scenarios: MarketConfig | None = None
        self._latest = 0  # no market's t is above it
        events = int(self.rows["interval"][0] if config.uses_clock else self.rows["num_agents"].max())
        self._per_auction = events + config.num_levels / 4
        # t stays below it, or random words would repeat: of auctions, or of events.
        self._end = 2**32 // events + 1 if config.uses_clock else 2**32
        if seed is None:
            raise TypeError(f"seed: got None, allowed is an int, or {self.num_markets} of them")
        self.reset(seed=seed)

    # Advancing --------------------------------------------------------------------------------------------------------

    @one_at_a_time
    def run(
        self, auctions: int, record: Sequence[str] = (), progress: bool | None = None, *, reach: int = DEPTH_REACH
    ) -> dict[str, torch.Tensor]:
        """Run auctions; standing quotes take part.

        Args:
            auctions: How many, one launch (more when the run takes longer than a fraction of a second).
            record: Series to record: `"last_price"`, `"volume"`, `"mid2"` and `"fundamental"`; and, of the built-in
                resting book that the auction leaves, `"best_bid"` and `"best_ask"` (-(2^31 - 1) and 2^31 - 1 where a
                side is empty), `"bid_depth"` and `"ask_depth"` (units within `reach` of the side's best price), and
                `"signed_volume"` (units that takers bought less those they sold; in a call auction marketable orders
                to buy less those to sell). docs/model.md has them to the unit.
            progress: True or False shows or hides the bar; None shows it on runs of over two seconds.
            reach: Of the depths, in ticks; 0 is the best price alone.

        Returns:
            The recorded series, int32 `[M, auctions]` each.
        """
        auctions, reach = check_count("auctions", auctions, 0), check_count("reach", reach, 0)
        series = self._new_series(record, auctions)
        self._advance(1, auctions, _named_series(series), progress=progress, reach=reach)
        return series

    @one_at_a_time
    def step(self, quotes: Any = None, auctions: int = 1) -> torch.Tensor:
        """Give every slot's new quotes and run auctions with them, in one launch (more if it takes long).

        Args:
            quotes: int32 `[M, K, 4]`: bid price, bid quantity, ask price, ask quantity; absolute ticks, quantity 0 is
                no order. None keeps the standing quotes. A tensor must be on the simulator's device.
            auctions: How many.

        Returns:
            int64 `[M, K, 2]`: units bought and sold.
        """
        auctions = check_count("auctions", auctions, 0)
        given = None if quotes is None else check_quotes(quotes, (self.num_markets, len(self.slots), 4), self.device)
        fills = torch.zeros((self.num_markets, len(self.slots), 2), dtype=torch.int64, device=self.device)
        one = None if given is None else given[None]  # engines take [T, M, K, ...]
        self._advance(1, auctions, {"fills": fills[None]}, one)
        return fills

    @one_at_a_time
    def rollout(
        self, quotes: Any, auctions: int = 1, record: Sequence[str] = (), *, reach: int = DEPTH_REACH
    ) -> Rollout:
        """Play a whole sequence of decisions in one launch (more if it takes long).

        Args:
            quotes: int32 `[T, M, K, 4]`, the quotes of each decision, as in `step`.
            auctions: Auctions per decision.
            record: Series to record, as in `run`.
            reach: Of the depths, as in `run`.

        Returns:
            `Rollout(fills, value, series)`.
        """
        auctions, reach = check_count("auctions", auctions, 1), check_count("reach", reach, 0)
        given = check_quotes(quotes, (None, self.num_markets, len(self.slots), 4), self.device)
        decisions = given.shape[0]
        fills = torch.zeros((*given.shape[:3], 2), dtype=torch.int64, device=self.device)
        value = torch.zeros(given.shape[:3], dtype=torch.int64, device=self.device)
        series = self._new_series(record, decisions * auctions)
        results = {"fills": fills, "value": value} | _named_series(series)
        self._advance(decisions, auctions, results, given, reach=reach)
        folded = {
            name: part.view(self.num_markets, decisions, auctions).transpose(0, 1) for name, part in series.items()
        }
        return Rollout(fills, value, folded)

    def _advance(
        self,
        decisions: int,
        auctions: int,
        results: dict[str, torch.Tensor],
        quotes: torch.Tensor | None = None,
        progress: bool | None = None,
        reach: int = DEPTH_REACH,
    ) -> None:
        """Run decisions of some auctions each; the arguments are those of `runs.run`."""
        reach = min(reach, self.config.num_levels)  # no side has more ticks
        if torch.compiler.is_compiling():
            runs.run_in_graph(self.engine, decisions, auctions, results, quotes, reach)
            return
        check_progress(progress)
        total = decisions * auctions
        if self.validate:
            self.check_errors()
        if self._latest + total >= self._end:  # t itself is on the device
            self._latest = int(self.tensors["t"].max())
            if self._latest + total >= self._end:
                end = "2^32" if self._end == 2**32 else self._end
                raise MarketError(f"auctions: got {total} at t = {self._latest}, allowed is t below {end}; reset first")
        self._latest += total
        if total:
            events = self.num_markets * self._per_auction
            how = {"events": events, "progress": progress, "reach": reach}
            under_way = quotes is not None and bool(np.any(self.rows["quote_latency"] > 0))
            runs.run(self.engine, self.tensors, decisions, auctions, results, quotes, **how, whole=under_way)

    @one_at_a_time
    def reset(self, seed: Any = None, mask: Any = None) -> None:
        """Restore the opening book of all markets, or of those in `mask`.

        Args:
            seed: None starts the next episode of the same random stream; an int s seeds market m with s + m, at episode
                0; or one seed per market.
            mask: bool `[M]`; None is all.

        Raises:
            MarketError: If an error word was set since the last look (see `check_errors`); nothing is reset then, and a
                second call goes through.
        """
        seeds = None if seed is None else check_seeds(seed, self.num_markets, self.device)
        chosen = check_mask("mask", mask, self.num_markets, self.device)
        self.check_errors()
        tensors = self.tensors
        fresh = tensors["seed"] if seeds is None else torch.where(chosen, seeds, tensors["seed"])
        counts = None if seeds is None else self._draw_counts(fresh)
        with Uninterrupted():
            if seeds is None:
                tensors["episode"].add_(chosen)
            else:
                tensors["seed"].copy_(fresh)
                tensors["episode"].masked_fill_(chosen, 0)
                self._take_counts(counts)
            memory = self._opening_memory if self.sizes["Q"] else None
            open_books(tensors, self._opening, chosen, len(self.config.regimes or ()), memory)
            self.engine.state_changed()

    @one_at_a_time
    def follow(
        self, path: Any, record: Sequence[str] = (), progress: bool | None = None, *, reach: int = DEPTH_REACH
    ) -> dict[str, torch.Tensor]:
        """Run an interval per price of a path that the fundamental price follows, such as one from data.

        Args:
            path: int32 `[S]` or `[M, S]`, absolute ticks: the fundamental price as each interval begins. Its own walk
                and jumps, if the market has any, go on from there.
            record: Series to record, as in `run`.
            progress: As in `run`.
            reach: Of the depths, as in `run`.

        Returns:
            The recorded series, int32 `[M, S]` each.
        """
        from kineticsim_env.tapes.data import follow

        return follow(self, path, record, progress, reach)

    def tape(
        self,
        markets: int | Sequence[int],
        intervals: int,
        *,
        quotes: Any = None,
        fundamental: Any = None,
        progress: bool | None = None,
    ) -> Tape:
        """Play a branch of some markets on the C++ engine, and return every order, cancellation and trade.

        This simulator stays as it is: the tape is of the intervals that a `run` would play next. It plays when its
        rows are asked for, and again for each file. Needs a C++ compiler, whatever the engine here.

        Args:
            markets: Their numbers.
            intervals: How many, or auctions where there is no clock.
            quotes: int32 `[T, m, K, 4]`, quotes of T decisions of `intervals / T` intervals each, as in `rollout`; None
                keeps the standing ones.
            fundamental: int32 `[intervals]` or `[m, intervals]`: the fundamental price as each interval begins; None
                leaves it to its walk.
            progress: True or False shows or hides the bar, None shows it on what takes over two seconds.

        Raises:
            TypeError, ValueError: Naming the argument, what came and what is allowed.
            EngineUnavailable: If there is no C++ compiler.
            MarketError: If a market has stopped, or the episode is too long.
        """
        from kineticsim_env.tapes.making import make_tape

        return make_tape(self, markets, intervals, quotes, fundamental, progress)

    # Changing the market ----------------------------------------------------------------------------------------------

    @one_at_a_time
    def set_parameters(self, mask: Any = None, **fields: Any) -> None:
        """Change parameters of running markets, from the next auction on.

        State stays as it is: what rests, standing quotes, the fundamental price. What only an opening book depends on
        (`init_price`, `init_depth`, `fundamental_price`) shows at the next reset. `config` is then the new one.

        A CUDA graph that was captured before has to be captured again: it plays the new parameters or the old ones,
        never a mixture. An environment's warm starts stay as they are.

        Args:
            mask: bool `[M]`, the markets that change; None is all.
            **fields: Fields of `MarketConfig`, one value for all markets or one per market, of which the masked ones
                are taken. All may change but `num_levels`, `num_agents`, the shares of classes, `population`,
                `arrivals`, `mechanism`, `interval`, `beat`, `regimes` and `agents`. A `window` above 0 cannot become
                0. Parameters of agents that users have written are named by their class,
                `**{"trend_follower.lookback": 8}`: one value, `[M, 1]` per market, or one of each agent, `[count]` or
                `[M, count]`, where they had own ones from the start.

        Raises:
            TypeError, ValueError: Naming the field, what came and what is allowed; nothing has changed then.
            EngineUnavailable: If the engine cannot play such a market; likewise.
        """
        if self._scenarios is not None:
            raise ValueError(
                "set_parameters: got an environment whose episodes draw scenarios, allowed is env.set_scenarios(...) "
                "for episodes that begin from then on"
            )
        chosen = check_mask("mask", mask, self.num_markets, self.device).cpu().numpy()
        config = changed(self.config, fields, chosen)
        self.engine.check_plays(config)
        drawn = self._counts if config.population == "multinomial" else None
        counts = class_counts(config, self.num_markets if config.per_market else 1) if drawn is None else drawn
        with Uninterrupted():
            self._config = config
            self._take_counts(counts)
            self.engine.renew_launchers()

    @one_at_a_time
    def set_book(
        self,
        bids: Any,
        asks: Any,
        *,
        tick: float = 1,
        last_price: Any = None,
        fundamental: Any = None,
        mask: Any = None,
    ) -> None:
        """Put a book of prices and sizes into markets, such as a snapshot of level 2 data.

        The grid is laid around its mid. Quotes that stand are withdrawn; accounts and the time stay; what agents of
        users' classes remember begins anew. A reset restores the opening book of the config.

        Args:
            bids: Prices and sizes, `[n, 2]`, an array or a table; levels of size 0 are left out.
            asks: Likewise; above all bids.
            tick: What a tick is worth: prices are multiples of it.
            last_price: The last price; None is the mid, rounded down.
            fundamental: The fundamental price; None is the last price.
            mask: bool `[M]`, the markets that get it; None is all.

        Raises:
            TypeError, ValueError: Naming the argument, what came and what is allowed; nothing has changed then.
        """
        from kineticsim_env.tapes.data import set_book

        set_book(self, bids, asks, tick, last_price, fundamental, mask)

    # State ------------------------------------------------------------------------------------------------------------

    @one_at_a_time
    def load_state_dict(self, saved: Mapping[str, torch.Tensor], strict: bool = True) -> None:
        """Take over a state, from any engine or device; a market of the same shape and config goes on bit for bit.

        Args:
            saved: What `state_dict` returned.
            strict: Refuse a state of another market. False takes it if it has the same shape and every number is in
                its range, and warns of each difference.

        Raises:
            TypeError, ValueError: If a tensor is missing, unknown, of another shape or dtype, or out of the range that
                `docs/model.md` gives it, or if the state is of another market; the present state is untouched then.
        """
        saved_states.check_agents(saved, self.about())
        saved_states.check_names(saved, self.tensors)
        differences = saved_states.check_about(saved, self.about(), strict)
        checked = self._checked_state(saved, self.engine.parameters())
        self._take_state(checked, self._draw_counts(checked["seed"]))
        saved_states.warn_of(differences, stacklevel=4)

    def _checked_state(self, saved: Mapping[str, Any], parameters: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the market's part of a saved state, in memory of its own; refuse one that no market can be in."""
        self.engine.check_sizes()
        checked = {
            name: self.engine.own_copy(saved_states.take(saved, name, tensor)) for name, tensor in self.tensors.items()
        }
        saved_states.check_market_ranges(checked, parameters, self.config.num_levels)
        return checked

    def _take_state(self, checked: Mapping[str, torch.Tensor], counts: np.ndarray | None) -> None:
        """Take over a checked state, and the agents per class that go with its seeds."""
        with Uninterrupted():
            for name, tensor in self.tensors.items():
                tensor.copy_(checked[name])
            self._latest = int(self.tensors["t"].max())
            self._take_counts(counts)
            self.engine.state_changed()

    @one_at_a_time
    def branch(self) -> Simulator:
        """Return a second simulator in the same state; what happens to one does not touch the other."""
        twin = Simulator(
            self.config,
            self.num_markets,
            engine=self.engine_name,
            device=self.device,
            slots=self.slots,
            validate=self.validate,
        )
        if self._scenarios is not None:
            twin._set_scenarios(self._scenarios, self.engine.parameters(), self.engine.agent_parameters())
            twin.engine.scenario_thresholds.copy_(self.engine.scenario_thresholds)
        self.check_errors()
        self.engine.check_sizes()
        twin._take_state(self.tensors, self._counts if self.config.population == "multinomial" else None)
        return twin

    def _set_scenarios(
        self,
        scenarios: MarketConfig,
        present: torch.Tensor | None = None,
        agents_present: torch.Tensor | None = None,
    ) -> None:
        """Give the engine a table of scenarios, of which environments draw one for each episode (`scenarios.py`).

        Markets keep their parameters until then; the first time, all get those of the first scenario. Only an
        environment knows whether a table fits its warm starts, so this is not for users: `env.set_scenarios` is.

        Args:
            scenarios: The table.
            present: The parameters that markets have until then, checked, int32 `[M, n]`,
            agents_present: and those of agents that users have added, int32 `[M, P]`.
        """
        self.engine.check_plays(scenarios)
        rows = max(scenarios.per_market.values())
        counts = class_counts(scenarios, rows)
        agents = parameter_table(scenarios, self._groups, rows) if self._groups else None
        table = parameter_rows(scenarios, rows, counts, self._replaced)
        self.engine.set_scenarios(table, present, agents, agents_present)
        self._scenarios = scenarios

    def specialise(self) -> None:
        """Compile this configuration into the CUDA kernel, at the next launch: about a second for a third more speed.

        Results stay the same bits, and other engines have nothing to do. It happens by itself once a simulator has had
        much to do; call it before a CUDA graph is captured, or where a first run is timed.
        """
        self.engine.specialise()

    def close(self) -> None:
        """Raise what is left in the error words."""
        self.check_errors()

    def __repr__(self) -> str:
        """Name the shape and the engine."""
        return (
            f"Simulator(num_markets={self.num_markets}, num_levels={self.config.num_levels}, "
            f"slots={len(self.slots)}, engine={self.engine_name!r}, device='{self.device}')"
        )

    # Inside -----------------------------------------------------------------------------------------------------------

    def _new_series(self, record: Sequence[str], length: int) -> dict[str, torch.Tensor]:
        shape = (self.num_markets, length)
        return {name: torch.zeros(shape, dtype=torch.int32, device=self.device) for name in check_series(record)}

    def _draw_counts(self, seeds: torch.Tensor) -> np.ndarray | None:
        """Return the agents per class of markets of these seeds, int64 `[M, 4]`; None if all have the same."""
        if self.config.population != "multinomial":
            return None
        return multinomial_counts(self.config, seeds.cpu().numpy(), np.arange(self.num_markets))

    def _take_counts(self, counts: np.ndarray | None) -> None:
        """Take over the agents per class, and what follows from them: parameters and opening books."""
        if counts is None:
            return
        self._counts = counts
        self.rows = parameter_rows(self.config, len(counts), counts, self._replaced)
        if self._groups:
            table = parameter_table(self.config, self._groups, self.num_markets if self.config.per_market else 1)
            self.engine.set_agent_parameters(table)
        self.engine.set_parameters(self.rows)
        self._opening = opening_book(self.rows, self.config.num_levels, self.device)

    def _opening_memory(self, regime: np.ndarray) -> np.ndarray:
        """Return what agents remember at the opening, int32 `[M, Q]` or `[1, Q]`."""
        return opening_memory(self._groups, seen_at_opening(self.rows, regime))


def _state_of(config: MarketConfig, sizes: Mapping[str, int]) -> list[str]:
    """Return the names of the tensors that hold markets of a config, and of these sizes."""
    return [
        *layout.MARKET_STATE,
        *layout.SLOT_STATE,
        *(layout.REGIME_STATE if config.regimes is not None else ()),
        *(layout.CLOCK_STATE if config.uses_clock else ()),
        *(layout.MEMORY_STATE if sizes["Q"] else ()),
        *(layout.QUEUE_STATE if config.is_continuous else ()),
    ]


def _named_series(series: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """Return recorded series by their names in `struct Launch`."""
    return {f"series_{name}": part for name, part in series.items()}
