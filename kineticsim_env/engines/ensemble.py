"""`Ensemble`: markets, how they are made, put back to their opening, changed, and loaded from a saved state.

`Simulator` derives from it and advances markets; environments advance them by launches of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from kineticsim_env.config import CLASSES, MarketConfig
from kineticsim_env.engines import choose_engine, make_engine
from kineticsim_env.engines.agents import agent_groups, opening_memory, parameter_table
from kineticsim_env.engines.futures import WORD_WALK, Held, seeds_with
from kineticsim_env.engines.live import LiveMarkets
from kineticsim_env.engines.opening import multinomial_counts, open_books, opening_book, seen_at_opening
from kineticsim_env.engines.parameters import changed, check_latency, class_counts, parameter_rows
from kineticsim_env.runtime import layout, saved_states, state_ranges
from kineticsim_env.runtime.calls import CallLock, Uninterrupted, one_at_a_time
from kineticsim_env.runtime.checks import check_mask, check_num_markets, check_seeds, check_slots
from kineticsim_env.runtime.flow_table import FlowTable, tables_of
from kineticsim_env.runtime.values import check_flag, check_instance


class Population(NamedTuple):
    """Agents of markets where these are drawn, `population="multinomial"`."""

    seeds: torch.Tensor  # int64 [M], by which they are drawn: the markets' own, but in other futures
    counts: np.ndarray  # int64 [M, 4], per class


class Ensemble(LiveMarkets):
    """M markets with K slots each, on one engine."""

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
                replaces nobody. At most 32, and as many levels of all their ladders (`orders_per_side`) together.
            validate: Check the error words before every call, at the price of a synchronisation on CUDA.

        Raises:
            TypeError, ValueError: Naming the argument, what came and what is allowed.
            EngineUnavailable: If the engine asked for cannot run here.
        """
        config = MarketConfig() if config is None else config
        self._config = self._began = check_instance("config", config, MarketConfig)
        self.num_markets = check_num_markets(config, num_markets)
        self.slots = check_slots(slots, [kind.name for kind in config.agents], config.orders_per_side)
        self.validate = check_flag("validate", validate)
        reason = "one market is faster there" if self.num_markets == 1 else ""
        self.engine_name, self.device = choose_engine(engine, device, prefer_cpu=reason, own_code=bool(config.agents))
        self.sizes: dict[str, Any] = {"M": self.num_markets, "L": config.num_levels, "K": len(self.slots)}
        self.sizes |= layout.ladder_sizes(config.orders_per_side)
        self.sizes["I"] = layout.info_rows(len(self.slots))
        self._replaced = {name: self.slots.count(name) for name in (*CLASSES, *(kind.name for kind in config.agents))}
        self._groups = agent_groups(config, self._replaced)
        self.sizes["P"] = sum(group.parameter_words for group in self._groups)
        self.sizes["Q"] = sum(group.memory_words for group in self._groups)
        self.tensors = layout.LiveTensors(layout.allocate(_state_of(config, self.sizes), self.sizes, self.device))
        self.engine = make_engine(self.engine_name, self.device, self.sizes, self.tensors)
        self.engine.check_plays(config)
        self.engine.set_ensemble(config)
        self._flows: list[FlowTable] = []
        self._take_flows(config)
        self.engine.set_agents(self._groups)
        self._calls = CallLock(self.engine.begin_call)
        self._take_counts(class_counts(config, self.num_markets if config.per_market else 1))
        self._scenarios: MarketConfig | None = None
        drawn = ["seed"] if config.population == "multinomial" else []
        self._population = layout.allocate(drawn, self.sizes, self.device).get("seed")
        self._latest = 0  # no market's t is above it
        events = int(self.rows["interval"][0] if config.uses_clock else self.rows["num_agents"].max())
        self._per_auction = events + config.num_levels / 4
        # t stays below it, or random words would repeat: of auctions, or of events.
        self._end = 2**32 // events + 1 if config.uses_clock else 2**32
        if seed is None:
            raise TypeError(f"seed: expected an int, or {self.num_markets} of them, got None")
        self.reset(seed=seed)

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
        drawn = None if seeds is None else self._population_of(seeds, chosen)
        with Uninterrupted():
            if seeds is None:
                tensors["episode"].add_(chosen)
            else:
                tensors["seed"].copy_(torch.where(chosen, seeds, tensors["seed"]))
                tensors["episode"].masked_fill_(chosen, 0)
                self._take_population(drawn)
            memory = self._opening_memory if self.sizes["Q"] else None
            open_books(tensors, self._opening, chosen, len(self.config.regimes or ()), memory)
            if self.config.is_flow:
                self.engine.open_flow(chosen)
            self.engine.state_changed()

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
                `arrivals`, `mechanism`, `interval`, `interval_ms`, `beat`, `orders_per_side`, `regimes`, `agents` and
                `flow`. A `window` above 0 cannot become 0, nor `quote_latency` become `interval` or more where it was
                less in all markets from the start. Parameters of agents that users have written are named by their
                class, `**{"trend_follower.lookback": 8}`: one value, `[M, 1]` per market, or one of each agent,
                `[count]` or `[M, count]`, where they had own ones from the start.

        Raises:
            TypeError, ValueError: Naming the field, what came and what is allowed; nothing has changed then.
            EngineUnavailable: If the engine cannot play such a market; likewise.
        """
        if self._scenarios is not None:
            raise ValueError(
                "set_parameters: expected env.set_scenarios(...) for episodes that begin from then on, got an "
                "environment whose episodes draw scenarios"
            )
        chosen = check_mask("mask", mask, self.num_markets, self.device).cpu().numpy()
        config = changed(self.config, fields, chosen)
        check_latency(config, self._began)
        self.engine.check_plays(config)
        self._take_config(config)

    def _take_config(self, config: MarketConfig) -> None:
        """Play a changed config, which was checked."""
        drawn = self._counts if config.population == "multinomial" else None
        counts = class_counts(config, self.num_markets if config.per_market else 1) if drawn is None else drawn
        with Uninterrupted():
            self._config = config
            self._take_counts(counts)
            self.engine.renew_launchers()

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
        saved = saved_states.with_quotes_under_way(saved, self.tensors)
        saved = saved_states.with_population(saved, self._state)
        saved_states.check_agents(saved, self.about())
        saved_states.check_names(saved, self._state)
        differences = saved_states.check_about(saved, self.about(), strict)
        checked = self._checked_state(saved, self.engine.parameters())
        self._take_state(checked, self._drawn_by(checked.get(saved_states.POPULATION)))
        saved_states.warn_of(differences, stacklevel=4)

    def _checked_state(self, saved: Mapping[str, Any], parameters: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the market's part of a saved state, in memory of its own; refuse one that no market can be in."""
        self.engine.check_sizes()
        checked = {
            name: self.engine.own_copy(saved_states.take(saved, name, tensor)) for name, tensor in self._state.items()
        }
        state_ranges.check_market_ranges(checked, parameters, self.config.num_levels)
        return checked

    def _take_state(self, checked: Mapping[str, torch.Tensor], drawn: Population | None) -> None:
        """Take over a checked state, and the populations that go with it."""
        with Uninterrupted():
            for name, tensor in self._state.items():
                tensor.copy_(checked[name])
            self._latest = int(self.tensors["t"].max())
            self._take_population(drawn)
            self.engine.state_changed()

    def _set_scenarios(
        self,
        scenarios: MarketConfig,
        present: torch.Tensor | None = None,
        agents_present: torch.Tensor | None = None,
        others: torch.Tensor | None = None,
    ) -> None:
        """Give the engine a table of scenarios, of which environments draw one for each episode (`scenarios.py`).

        Markets keep their parameters, or play those `present`, until then; the first time, all get the first
        scenario's; see `Engine.set_scenarios`. Only an environment knows whether a table fits its warm starts, so this
        is not for users: `env.set_scenarios` is.
        """
        self.engine.check_plays(scenarios)
        rows = max(scenarios.per_market.values())
        counts = class_counts(scenarios, rows)
        agents = parameter_table(scenarios, self._groups, rows) if self._groups else None
        self._take_flows(scenarios)
        table = parameter_rows(scenarios, rows, counts, self._replaced, self._flows)
        self.engine.set_scenarios(table, present, agents, agents_present, others)
        self._scenarios = scenarios

    def _take_flows(self, config: MarketConfig) -> None:
        """Take over the order flows of a config, after those that markets have: parameters count on their places."""
        known = len(self._flows)
        self._flows, _ = tables_of(config.flow, self._flows)
        if len(self._flows) > known:
            self.engine.set_flows(self._flows)

    @property
    def order_flows(self) -> int:
        """How many order flows markets and scenarios have."""
        return len(self._flows)

    def check_flows(self, scenarios: MarketConfig) -> None:
        """Refuse other scenarios with an order flow that no market or scenario had from the start: ValueError."""
        known = len(self._flows)
        if self._scenarios is not None and len(tables_of(scenarios.flow, self._flows)[0]) > known:
            raise ValueError(f"randomise: expected order flows of the {known} that the markets began with, got another")

    # Other futures ----------------------------------------------------------------------------------------------------

    def _take_future(self, seeds: torch.Tensor, held: Sequence[Held] = ()) -> None:
        """Go on with the words of other seeds, int64 `[M]`, with which the words that are held say what they say now.

        Populations stay as they are.
        """
        tensors, words = self.tensors, [*self._coins_of_beats(), *held]
        tensors["seed"].copy_(seeds_with(seeds, tensors["seed"], tensors["episode"], words))

    def _coins_of_beats(self) -> list[Held]:
        """Return the coins of beats under way, which their agents to come go by; none where no coins are tossed."""
        config = self._config if self._scenarios is None else self._scenarios
        events, beat = int(self.rows["interval"][0]), int(self.rows["beat"][0])
        if not config.uses_clock or events % beat == 0 or not np.any(np.asarray(config.rounding) == "coin"):
            return []
        event = self.tensors["t"] * events
        idle = (event % beat == 0) | (self.parameter("rounding") == 0)
        return [Held(event // beat, WORD_WALK, bit=16, idle=idle)]

    # Agents per class, and what follows from them ---------------------------------------------------------------------

    def _drawn_by(self, seeds: torch.Tensor | None) -> Population | None:
        """Draw the populations of markets by these seeds, int64 `[M]`; None for None."""
        if seeds is None:
            return None
        return Population(seeds, multinomial_counts(self.config, seeds.cpu().numpy(), np.arange(self.num_markets)))

    def _population_of(self, seeds: torch.Tensor, chosen: torch.Tensor) -> Population | None:
        """Draw the populations of chosen markets, bool `[M]`, that get these seeds; None where none are drawn."""
        present = self._population
        return self._drawn_by(None if present is None else torch.where(chosen, seeds, present))

    @property
    def _present_population(self) -> Population | None:
        """The populations that markets have now; None where none are drawn."""
        return None if self._population is None else Population(self._population, self._counts)

    def _take_population(self, drawn: Population | None) -> None:
        """Take over populations, and what follows from them; None changes nothing."""
        if drawn is not None:
            assert self._population is not None
            self._population.copy_(drawn.seeds)
            self._take_counts(drawn.counts)

    def _take_counts(self, counts: np.ndarray) -> None:
        """Take over the agents per class, and what follows from them: parameters and opening books."""
        self._counts = counts
        self.rows = parameter_rows(self.config, len(counts), counts, self._replaced, self._flows)
        if self._groups:
            table = parameter_table(self.config, self._groups, self.num_markets if self.config.per_market else 1)
            self.engine.set_agent_parameters(table)
        self.engine.set_parameters(self.rows)
        self._opening = opening_book(self.rows, self.config.num_levels, self.device, self.config.is_flow)

    def _opening_memory(self, regime: np.ndarray) -> np.ndarray:
        """Return what agents remember at the opening, int32 `[M, Q]` or `[1, Q]`."""
        return opening_memory(self._groups, seen_at_opening(self.rows, regime, self.config.is_flow))


def _state_of(config: MarketConfig, sizes: layout.Sizes) -> list[str]:
    """Return the names of the tensors that hold markets of a config, and of these sizes."""
    return [
        *layout.MARKET_STATE,
        *layout.SLOT_STATE,
        *(layout.REGIME_STATE if config.regimes is not None else ()),
        *(layout.CLOCK_STATE if config.uses_clock else ()),
        *(layout.MEMORY_STATE if sizes["Q"] else ()),
        *(layout.FLOW_STATE if config.is_flow else ()),
        *(layout.QUEUE_STATE if config.is_continuous else ()),
        *(layout.WAY_STATE if sizes["K"] and config.quotes_may_wait else ()),
    ]
