"""`Simulator`: thousands of markets, advanced together on one engine. The engine-level API, no tasks or rewards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from kineticsim_env.engines import runs
from kineticsim_env.engines.ensemble import Ensemble, Population
from kineticsim_env.errors import MarketError
from kineticsim_env.runtime import layout
from kineticsim_env.runtime.calls import Uninterrupted, one_at_a_time
from kineticsim_env.runtime.checks import check_count, check_seeds, check_series
from kineticsim_env.runtime.orders import check_orders, rejects_of
from kineticsim_env.runtime.values import check_progress, progress_bar
from kineticsim_env.tapes import Tape, data, making

DEPTH_REACH = layout.CONSTANTS["kDepth"]  # of recorded depths unless one is given: as far as observations see


class Rollout(NamedTuple):
    """What `Simulator.rollout` returns; T decisions, M markets, K slots, N levels, n auctions per decision."""

    fills: torch.Tensor  # int64 [T, M, K, 2]: units bought and sold in each decision
    value: torch.Tensor  # int64 [T, M, K]: 2 * cash + inventory * mid2 after each decision, in half ticks
    series: dict[str, torch.Tensor]  # int32 [T, M, n] for each recorded name
    rejects: torch.Tensor | None = None  # int32 [T, M, K, N, 2], bits of Reject per bid and ask; None without flags


class Simulator(Ensemble):
    """An ensemble of M markets with K slots each.

    The model is in `docs/model.md`. All prices are absolute ticks; `bid` and `ask` are on the grid, whose tick 0 is at
    `price_origin`. Tensors that properties return are live unless they say otherwise: clone what you keep.
    """

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
                no order. `[M, K, N, 4]` where `orders_per_side` is N, above 1. Under continuous trading also order
                records, `[M, K, N, 2, 3]`: of each level bid and ask, each a price, a quantity and a sum of
                `OrderFlag`. None keeps the standing quotes. A tensor must be on the simulator's device.
            auctions: How many.

        Returns:
            int64 `[M, K, 2]`: units bought and sold.
        """
        auctions = check_count("auctions", auctions, 0)
        shape = (self.num_markets, len(self.slots))
        given = {} if quotes is None else check_orders(quotes, shape, self.device, self.config)
        fills = torch.zeros((self.num_markets, len(self.slots), 2), dtype=torch.int64, device=self.device)
        one = {name: tensor[None] for name, tensor in given.items()}  # engines take [T, M, K, ...]
        self._advance(1, auctions, {"fills": fills[None]}, one)
        return fills

    @one_at_a_time
    def rollout(
        self, quotes: Any, auctions: int = 1, record: Sequence[str] = (), *, reach: int = DEPTH_REACH
    ) -> Rollout:
        """Play a whole sequence of decisions in one launch (more if it takes long).

        Args:
            quotes: int32 `[T, M, K, 4]`, `[T, M, K, N, 4]` or `[T, M, K, N, 2, 3]`, what each decision submits, as in
                `step`.
            auctions: Auctions per decision.
            record: Series to record, as in `run`.
            reach: Of the depths, as in `run`.

        Returns:
            `Rollout(fills, value, series, rejects)`.
        """
        auctions, reach = check_count("auctions", auctions, 1), check_count("reach", reach, 0)
        shape = (None, self.num_markets, len(self.slots))
        given = check_orders(quotes, shape, self.device, self.config)
        each = given["new_quotes"].shape[:3]
        decisions = each[0]
        fills = torch.zeros((*each, 2), dtype=torch.int64, device=self.device)
        value = torch.zeros(each, dtype=torch.int64, device=self.device)
        words = torch.zeros_like(given["order_flags"]) if "order_flags" in given else None
        series = self._new_series(record, decisions * auctions)
        results = (
            {"fills": fills, "value": value} | _named_series(series) | ({} if words is None else {"rejects": words})
        )
        self._advance(decisions, auctions, results, given, reach=reach)
        folded = {
            name: part.view(self.num_markets, decisions, auctions).transpose(0, 1) for name, part in series.items()
        }
        return Rollout(fills, value, folded, None if words is None else rejects_of(words, self.config.orders_per_side))

    def _advance(
        self,
        decisions: int,
        auctions: int,
        results: dict[str, torch.Tensor],
        submitted: Mapping[str, torch.Tensor] | None = None,
        progress: bool | None = None,
        reach: int = DEPTH_REACH,
    ) -> None:
        """Run decisions of some auctions each; the arguments are those of `runs.run`."""
        submitted = submitted or {}
        reach = min(reach, self.config.num_levels)  # no side has more ticks
        if torch.compiler.is_compiling():
            if "order_flags" in submitted:
                raise TypeError("quotes: expected no order records where torch compiles the call, got some with flags")
            runs.run_in_graph(self.engine, decisions, auctions, results, submitted.get("new_quotes"), reach)
            return
        check_progress(progress)
        total = decisions * auctions
        if self.validate:
            self.check_errors()
        if self._latest + total >= self._end:  # t itself is on the device
            self._latest = int(self.tensors["t"].max())
            if self._latest + total >= self._end:
                end = "2^32" if self._end == 2**32 else self._end
                raise MarketError(f"auctions: expected t below {end}, got {total} at t = {self._latest}; reset first")
        self._latest += total
        if total:
            events = self.num_markets * self._per_auction
            how = {"events": events, "progress": progress, "reach": reach}
            runs.run(self.engine, self.tensors, decisions, auctions, results, submitted, **how)

    def _new_series(self, record: Sequence[str], length: int) -> dict[str, torch.Tensor]:
        shape = (self.num_markets, length)
        return {name: torch.zeros(shape, dtype=torch.int32, device=self.device) for name in check_series(record)}

    # Data in, orders out ----------------------------------------------------------------------------------------------

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
        prices = torch.from_numpy(making.check_path("path", path, self.num_markets)).to(self.device)
        length = prices.shape[1]
        reach, progress = check_count("reach", reach, 0), check_progress(progress)
        series, now = self._new_series(record, length), self._new_series(record, 1)
        results = {f"series_{name}": part for name, part in now.items()}
        before = {name: tensor.clone() for name, tensor in self.tensors.items()}
        bar = progress_bar(progress, "market", "auction", length)
        try:
            with bar:
                for i in range(length):
                    self.tensors["fundamental_price"].copy_(prices[:, i])
                    self._advance(1, 1, results, progress=False, reach=reach)
                    for name, part in now.items():
                        series[name][:, i] = part[:, 0]
                    bar.update()
        except BaseException:
            with Uninterrupted():
                for name, tensor in before.items():
                    self.tensors[name].copy_(tensor)
                self.engine.state_changed()
            raise
        return series

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

        The grid is laid around its mid. Quotes that stand, or are under way, are withdrawn; accounts and the time
        stay; what agents of users' classes remember begins anew. A reset restores the opening book of the config.

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
        data.set_book(self, bids, asks, tick, last_price, fundamental, mask)

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
            quotes: int32 `[T, m, K, 4]`, quotes or order records of T decisions of `intervals / T` intervals each, as
                in `rollout`; None keeps the standing ones.
            fundamental: int32 `[intervals]` or `[m, intervals]`: the fundamental price as each interval begins; None
                leaves it to its walk.
            progress: True or False shows or hides the bar, None shows it on what takes over two seconds.

        Raises:
            TypeError, ValueError: Naming the argument, what came and what is allowed.
            EngineUnavailable: If there is no C++ compiler.
            MarketError: If a market has stopped, or the episode is too long.
        """
        return making.make_tape(self, markets, intervals, quotes, fundamental, progress)

    # The simulator itself ---------------------------------------------------------------------------------------------

    @one_at_a_time
    def branch(self, future_seed: Any = None) -> Simulator:
        """Return a second simulator in the same state; what happens to one does not touch the other.

        Args:
            future_seed: None: the same auctions give the same bits in both. An int s: market m has the random words of
                the seed s + m from now on, its agents and what they hold as they are; or one seed per market.
        """
        seeds = None if future_seed is None else check_seeds(future_seed, self.num_markets, self.device, "future_seed")
        clone = self._branch(slice(None))
        if seeds is not None:
            clone._take_future(seeds)
        return clone

    def _branch(self, rows: np.ndarray | slice) -> Simulator:
        """Return a simulator of which each market is in the state of one of these, int64 `[n]` or a slice."""
        clone = Simulator(
            self._began._of_rows(rows),  # which says what state there is
            len(np.arange(self.num_markets)[rows]),
            engine=self.engine_name,
            device=self.device,
            slots=self.slots,
            validate=self.validate,
        )
        if self._config is not self._began:
            clone._take_config(self._config._of_rows(rows))
        index = rows if isinstance(rows, slice) else torch.from_numpy(rows).to(self.device)
        if self._scenarios is not None:
            present, agents = self.engine.parameters(), self.engine.agent_parameters()
            of_agents = None if agents is None else agents[index]
            clone._set_scenarios(self._scenarios, present[index], of_agents, others=present)
            clone.engine.scenario_thresholds.copy_(self.engine.scenario_thresholds)
        self.check_errors()
        self.engine.check_sizes()
        drawn = self._present_population
        if drawn is not None:
            drawn = Population(drawn.seeds[index], drawn.counts[rows])
        clone._take_state({name: tensor[index] for name, tensor in self._state.items()}, drawn)
        return clone

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


def _named_series(series: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """Return recorded series by their names in `struct Launch`."""
    return {f"series_{name}": part for name, part in series.items()}
