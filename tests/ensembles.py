"""Ensembles of the second model beside one plain reference per market: random markets, and the moves of a simulator.

`tests/reference/cases.py` draws the fields and the quotes; here several markets become one config, and every call of a
simulator is made on the references as well. `assert_same` compares all that can be observed.
"""

from __future__ import annotations

import copy
import random
from typing import Any

import numpy as np
import torch
from reference import Reference
from reference.cases import random_fields, random_latency, random_slots, suitable_quotes
from reference.clock import MOST_UNDER_WAY
from reference.market import depth
from reference.orders import BUY, SELL
from strategies import FURTHER, SERIES

import kineticsim_env as ks

KINDS = [("each", "call"), ("clock", "call"), ("clock", "continuous")]
NO_PRICE = 2**31 - 1  # of an empty side; bids have it with a minus
_SHARED = ("num_levels", "population", "arrivals", "mechanism", "interval", "beat", "orders_per_side")
_SHARED += ("regimes", "agents")
LADDERS = True  # whether `random_ensemble` draws `orders_per_side`, unless told
MOST_LEVELS = 32  # of all slots' ladders together
LATE = True  # whether latencies may be those under which quotes arrive in a later decision


def random_ensemble(
    rng: random.Random, arrivals: str, mechanism: str, markets: int, per_market: bool, ladders: bool | None = None
) -> tuple[dict[str, Any], tuple[str | None, ...]]:
    """Return the fields of some markets, of which most differ from market to market if `per_market`, and slots.

    `ladders`: whether slots of some continuous ensembles have several orders per side; None: as `LADDERS` says.
    """
    fields = random_fields(rng, mechanism, arrivals)
    slots = random_slots(rng, fields)
    if mechanism == "continuous" and (LADDERS if ladders is None else ladders):
        levels = rng.choice([1, 1, 1, 2, 2, 3, rng.randint(4, 8)])
        fields["orders_per_side"] = min(levels, MOST_LEVELS // max(1, len(slots)))
    if rng.random() < 0.2:
        fields["population"] = "multinomial"
    if not per_market:
        return in_time(fields), slots
    if arrivals == "clock":
        fields |= {"interval": fields["interval"] or 6, "beat": fields["beat"] or 5}
    shared = {name: fields[name] for name in _SHARED if name in fields}
    rows = [fields] + [random_fields(rng, mechanism, arrivals) for _ in range(markets - 1)]
    rows = [_numbers({name: row[name] for name in row if name not in _SHARED} | shared) for row in rows]
    for row in rows:
        if "quote_latency" in row:
            row["quote_latency"] = random_latency(rng, shared["interval"])
    different = {name: [row[name] for row in rows] for name in rows[0] if name not in _SHARED}
    return in_time(different | shared), (None,) * len(slots)


def in_time(fields: dict[str, Any]) -> dict[str, Any]:
    """Return fields, unless LATE with latencies below the interval."""
    if LATE or not np.any(fields.get("quote_latency", 0)):
        return fields
    config = ks.MarketConfig(**fields)
    late = np.minimum(config.quote_latency, interval_of(config) - 1)
    return fields | {"quote_latency": late.tolist()}


def interval_of(config: ks.MarketConfig) -> int:
    """Return the events of an interval on the clock."""
    return config.interval or config.num_agents + config.added_agents


def _numbers(row: dict[str, Any]) -> dict[str, Any]:
    """Return a market's fields with numbers in all of them, since None has no place among other markets' numbers."""
    row = {"walk_prob": 0.0, "jump_prob": 0.0, "jump_size": 0, "regime_switch_prob": 0.0} | row
    if "regimes" not in row:
        row["regime_switch_prob"] = 0.0
    levels, start = row["num_levels"], min(row["init_price"], row["num_levels"] - 2)
    row |= {"init_price": start, "window": min(row["window"], levels // 2 - 1)}
    row["fundamental_price"] = start if row["fundamental_price"] is None else row["fundamental_price"]
    row["inventory_limit"] = 1 << 30 if row["inventory_limit"] is None else row["inventory_limit"]
    return row


class Ensemble:
    """A simulator and the references that play the same markets."""

    def __init__(
        self, fields: dict[str, Any], slots: tuple[str | None, ...], markets: int, seed: int, engine: str = "numpy"
    ) -> None:
        self.config = ks.MarketConfig(**in_time(fields))
        self.late = self.config.quote_latency  # from the start; what may be changed depends on it
        self.sim = ks.Simulator(self.config, markets, engine=engine, seed=seed, slots=slots)
        self.alone = [Reference(self.config.to_dict(), slots, seed, m) for m in range(markets)]
        assert ("due" in self.sim.tensors) == self.may_wait

    @property
    def may_wait(self) -> bool:
        """Whether quotes may arrive in a later decision: what is under way is state then."""
        return bool(self.sim.slots) and self.config.replace(quote_latency=self.late).quotes_may_wait

    def quotes(self, rng: random.Random, flags: bool | None = None) -> list[list[list[Any]]]:
        """Return quotes that suit what each market looks like now.

        They are [M][K][4], or [M][K][6] with the sides' flags; of ladders [M][K][N][4] or [M][K][N][6].
        """
        if flags is None:
            flags = self.draws_flags(rng)
        levels = self.config.orders_per_side
        quotes = [suitable_quotes(rng, market.observe(), len(self.sim.slots), levels) for market in self.alone]
        return [with_flags(rng, one, levels) for one in quotes] if flags else quotes

    def draws_flags(self, rng: random.Random) -> bool:
        return self.config.is_continuous and rng.random() < 0.6

    def assert_same(self) -> None:
        """Compare every market with its reference, name by name."""
        for m, market in enumerate(self.alone):
            assert_market_is(self.sim, m, market)

    def move(self, rng: random.Random) -> None:
        """Make a random call on both, and compare its results and the state."""
        calls = [self._run, self._step, self._step, self._step, self._rollout, self._reset, self._reload, self._branch]
        if LATE and self.may_wait:
            calls.append(self._change_latency)
        rng.choice(calls)(rng)
        self.assert_same()

    def _run(self, rng: random.Random) -> None:
        intervals = rng.choice([1, 2, 7])
        record, reach = random_record(rng)
        volumes = [market.volume for market in self.alone]
        series = self.sim.run(intervals, record=record, reach=reach)
        assert_series(series, [market.decision(None, intervals) for market in self.alone], volumes, reach)

    def _step(self, rng: random.Random) -> None:
        n = rng.choice([1, 1, 2, 5])
        given = self.quotes(rng) if self.sim.slots and rng.random() < 0.8 else None
        fills = self.sim.step(None if given is None else self.tensor(given), n)
        for m, market in enumerate(self.alone):
            assert fills[m].tolist() == total_fills(market.decision(None if given is None else given[m], n))

    def _rollout(self, rng: random.Random) -> None:
        if not self.sim.slots:
            return
        flags = self.draws_flags(rng)
        n, given = rng.choice([1, 3]), [self.quotes(rng, flags) for _ in range(rng.choice([1, 4]))]
        record, reach = random_record(rng)
        result = self.sim.rollout(torch.stack([self.tensor(quotes) for quotes in given]), n, record, reach=reach)
        for d, quotes in enumerate(given):
            volumes = [market.volume for market in self.alone]
            seen = [market.decision(quotes[m], n) for m, market in enumerate(self.alone)]
            assert_series({name: part[d] for name, part in result.series.items()}, seen, volumes, reach)
            for m, one in enumerate(seen):
                last = one[-1]
                assert result.fills[d, m].tolist() == total_fills(one)
                if flags:
                    assert result.rejects[d, m].tolist() == rejected(self.alone[m])
                held = zip(last["cash"], last["inventory"], strict=True)
                assert result.value[d, m].tolist() == [2 * cash + units * last["mid2"] for cash, units in held]

    def _reset(self, rng: random.Random) -> None:
        mask = [rng.random() < 0.5 for _ in self.alone]
        seed = rng.choice([None, None, rng.randrange(1 << 40)])
        self.sim.reset(seed=seed, mask=torch.tensor(mask, device=self.sim.device))
        for m, market in enumerate(self.alone):
            if mask[m]:
                market.reset(None if seed is None else seed + m)

    def _reload(self, rng: random.Random) -> None:
        saved = self.sim.state_dict()
        config = self.config.replace(quote_latency=self.late)
        other = ks.Simulator(config, len(self.alone), engine=self.sim.engine_name, seed=99, slots=self.sim.slots)
        if config != self.config:
            other.set_parameters(quote_latency=self.config.quote_latency)
        other.load_state_dict(saved)
        self.sim = other

    def _branch(self, rng: random.Random) -> None:
        """Go on with a branch; what it does leaves the first simulator alone."""
        first, before = self.sim, copy.deepcopy(self.alone)
        self.sim = first.branch()
        self._step(rng)
        for m, market in enumerate(before):
            assert_market_is(first, m, market)

    def _change_latency(self, rng: random.Random) -> None:
        """Raise or lower it in some markets; what is under way stays, and nothing that comes later overtakes it."""
        late = random_latency(rng, interval_of(self.config))
        mask = [rng.random() < 0.6 for _ in self.alone] if rng.random() < 0.5 else None
        self.sim.set_parameters(mask=mask, quote_latency=late)
        self.config = self.sim.config
        for m, market in enumerate(self.alone):
            if mask is None or mask[m]:
                market.set_parameters(quote_latency=late)

    def tensor(self, quotes: list[list[list[Any]]]) -> torch.Tensor:
        """Return quotes as a simulator takes them: [M, K, 4] or [M, K, N, 4], or records [M, K, N, 2, 3]."""
        levels = self.config.orders_per_side
        shape = len(self.alone), len(self.sim.slots)
        rows = [level for one in quotes for quote in one for level in ([quote] if levels == 1 else quote)]
        if any(len(row) > 4 for row in rows):
            rows = [[*row[:2], bits_of(row[4]), *row[2:4], bits_of(row[5])] for row in rows]
            shape = *shape, levels, 2, 3
        else:
            shape = (*shape, 4) if levels == 1 else (*shape, levels, 4)
        return torch.tensor(rows, dtype=torch.int32, device=self.sim.device).view(shape)


FLAGS = {"keep": 1, "post-only": 2, "ioc": 4, "market": 8}


def random_flags(rng: random.Random) -> tuple[str, str]:
    """Return flags of a bid and of an ask."""
    words = ["", "", "keep", "keep", "post-only", "ioc", "market", "keep post-only", "ioc market", "keep market"]
    return rng.choice(words), rng.choice(words)


def with_flags(rng: random.Random, quotes: list, levels: int) -> list:
    """Return quotes with random flags of each level behind its numbers."""
    if levels == 1:
        return [[*quote, *random_flags(rng)] for quote in quotes]
    flagged = []
    for ladder in quotes:
        calm = rng.random() < 0.4  # what stands longer comes to top-ups
        sides = [[rng.choice(["", "", "", "keep"]) for _ in range(2)] if calm else random_flags(rng) for _ in ladder]
        flagged.append([[*level, *flags] for level, flags in zip(ladder, sides, strict=True)])
    return flagged


def bits_of(words: str) -> int:
    """Return flags as an order record has them."""
    return sum(FLAGS[word] for word in words.split())


def rejected(market: Reference) -> list[list[list[int]]]:
    """Return what the last decision's quotes were not placed for, as `Rollout.rejects` has it, [K][N][2]."""
    numbers = {None: 0, "post-only": 1, "own order": 2, "both": 3}
    ladders = [[sides] for sides in market.rejects] if market.rules.orders_per_side == 1 else market.rejects
    return [[[numbers[why] for why in sides] for sides in levels] for levels in ladders]


def under_way(market: Reference) -> dict[str, list]:
    """Return what is under way as the tensors have it: 0 where there is nothing."""
    seen, levels = market.observe(), market.rules.orders_per_side
    empty = MOST_UNDER_WAY - len(seen["due"])
    nothing: list = [[0, 0, 0, 0] if levels == 1 else [[0, 0, 0, 0]] * levels] * len(market.accounts)
    numbers, flags = [], []
    for quotes in [*seen["due_quotes"], *[nothing] * empty]:
        ladders = [[quote] for quote in quotes] if levels == 1 else quotes
        rows = [[level[:4] for level in ladder] for ladder in ladders]
        words = [[_flags_word(*level[4:]) for level in ladder] for ladder in ladders]
        numbers.append([ladder[0] for ladder in rows] if levels == 1 else rows)
        flags.append([ladder[0] for ladder in words] if levels == 1 else words)
    due = [1 + event for event in seen["due"]] + [0] * empty
    return {"due": due, "due_quotes": numbers, "due_flags": flags}


def _flags_word(bid: str = "", ask: str = "") -> int:
    """Return a level's flags in one number."""
    return bits_of(bid) | bits_of(ask) << 8


def total_fills(seen: list[dict[str, Any]]) -> list[list[int]]:
    """Add up the fills of a decision's intervals."""
    return np.sum([one["fills"] for one in seen], axis=0).reshape(-1, 2).astype(int).tolist()


def random_record(rng: random.Random) -> tuple[list[str], int]:
    """Return names of series to record, often without the further ones, and the reach of depths."""
    record = [*SERIES, *FURTHER] if rng.random() < 0.5 else rng.sample([*SERIES, *FURTHER], rng.randint(0, 4))
    return record, rng.choice([0, 1, 2, 10, 2**31 - 1])


def assert_series(
    series: dict[str, torch.Tensor], seen: list[list[dict[str, Any]]], volumes: list[int], reach: int
) -> None:
    """Compare recorded series [M, n] with what references saw after each interval, and their volumes before."""
    for m, one in enumerate(seen):
        after = [interval["volume"] for interval in one]
        wanted = {name: [interval[name] for interval in one] for name in ("last_price", "mid2", "fundamental")}
        wanted["volume"] = np.diff([volumes[m], *after]).tolist()
        for name, empty in (("best_bid", -NO_PRICE), ("best_ask", NO_PRICE)):
            wanted[name] = [empty if interval[name] is None else interval[name] for interval in one]
        for name, side in (("bid_depth", BUY), ("ask_depth", SELL)):
            wanted[name] = [depth(interval, side, reach) for interval in one]
        wanted["signed_volume"] = [interval["signed_volume"] for interval in one]
        for name, values in series.items():
            assert values[m].tolist() == wanted[name], name


def assert_market_is(sim: ks.Simulator, m: int, market: Reference) -> None:
    """Compare market m of a simulator with its reference."""
    seen, tensors = market.observe(), {name: tensor[m].tolist() for name, tensor in sim.tensors.items()}
    tensors |= {"last_price": int(sim.last_price[m]), "mid2": int(sim.mid2[m])}
    tensors["prev_mid2"] += 2 * tensors["price_origin"]
    names = "t episode error mid2 last_price prev_mid2 price_origin volume trades bid ask quotes cash inventory fees"
    for name in names.split():
        assert tensors[name] == seen[name], name
    assert tensors["fundamental_price"] == seen["fundamental"]
    first = 0
    for kind, made in sim.config.agents.items():  # words of a class, each of all its agents
        memory = [one for one, agent in zip(market.memory, market.population.added, strict=True) if agent.kind == kind]
        for name in kind.memory:
            there = tensors.get("agent_memory", [])[first : first + made.count]
            assert there == [one[name] for one in memory], (kind, name)
            first += made.count
    assert ("regime" in tensors) == (sim.config.regimes is not None)
    assert ("ret" in tensors) == ("beat_price" in tensors) == sim.config.uses_clock
    assert ("queue" in tensors) == ("moments" in tensors) == sim.config.is_continuous
    assert tensors.get("regime", 0) == seen["regime"]
    if sim.config.uses_clock:
        assert tensors["ret"] == seen["ret"] and tensors["beat_price"] == market.collar_price
    if "due" in tensors:
        for name, wanted in under_way(market).items():
            assert tensors[name] == wanted, name
    else:
        assert not seen["due"]
    if sim.config.is_continuous:
        assert tensors["queue"] == seen["ahead"]
        for side, sign in enumerate((BUY, SELL)):
            # In the order of slots, levels and places, in which those go of the same moment, who are of one slot.
            orders = [order for ladder in market.quotes for level in ladder for order in level[sign]]
            moments = np.reshape(tensors["moments"], (-1, 2))[:, side].tolist()
            stands = [number for number, order in enumerate(orders) if order.quantity]
            oldest = sorted(stands, key=lambda number: orders[number].moment)
            assert sorted(stands, key=lambda number: moments[number]) == oldest
            assert not any(moment for number, moment in enumerate(moments) if number not in stands)
