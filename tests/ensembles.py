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
from reference.cases import random_fields, random_quotes, random_slots
from reference.market import depth
from reference.orders import BUY, SELL
from strategies import FURTHER, SERIES

import kineticsim_env as ks

KINDS = [("each", "call"), ("clock", "call"), ("clock", "continuous")]
NO_PRICE = 2**31 - 1  # of an empty side; bids have it with a minus
_SHARED = ("num_levels", "population", "arrivals", "mechanism", "interval", "beat", "regimes", "agents")


def random_ensemble(
    rng: random.Random, arrivals: str, mechanism: str, markets: int, per_market: bool
) -> tuple[dict[str, Any], tuple[str | None, ...]]:
    """Return the fields of some markets, of which most differ from market to market if `per_market`, and slots."""
    fields = random_fields(rng, mechanism, arrivals)
    slots = random_slots(rng, fields)
    if rng.random() < 0.2:
        fields["population"] = "multinomial"
    if not per_market:
        return fields, slots
    if arrivals == "clock":
        fields |= {"interval": fields["interval"] or 6, "beat": fields["beat"] or 5}
    shared = {name: fields[name] for name in _SHARED if name in fields}
    rows = [fields] + [random_fields(rng, mechanism, arrivals) for _ in range(markets - 1)]
    rows = [_numbers({name: row[name] for name in row if name not in _SHARED} | shared) for row in rows]
    different = {name: [row[name] for row in rows] for name in rows[0] if name not in _SHARED}
    return different | shared, (None,) * len(slots)


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
        self.config = ks.MarketConfig(**fields)
        self.sim = ks.Simulator(self.config, markets, engine=engine, seed=seed, slots=slots)
        self.alone = [Reference(self.config.to_dict(), slots, seed, m) for m in range(markets)]

    def quotes(self, rng: random.Random) -> list[list[list[int]]]:
        """Return quotes [M][K][4] that suit what each market looks like now."""
        return [random_quotes(rng, market.observe(), len(self.sim.slots)) for market in self.alone]

    def assert_same(self) -> None:
        """Compare every market with its reference, name by name."""
        for m, market in enumerate(self.alone):
            assert_market_is(self.sim, m, market)

    def move(self, rng: random.Random) -> None:
        """Make a random call on both, and compare its results and the state."""
        calls = [self._run, self._step, self._step, self._step, self._rollout, self._reset, self._reload, self._branch]
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
        n, given = rng.choice([1, 3]), [self.quotes(rng) for _ in range(rng.choice([1, 4]))]
        record, reach = random_record(rng)
        result = self.sim.rollout(torch.stack([self.tensor(quotes) for quotes in given]), n, record, reach=reach)
        for d, quotes in enumerate(given):
            volumes = [market.volume for market in self.alone]
            seen = [market.decision(quotes[m], n) for m, market in enumerate(self.alone)]
            assert_series({name: part[d] for name, part in result.series.items()}, seen, volumes, reach)
            for m, one in enumerate(seen):
                last = one[-1]
                assert result.fills[d, m].tolist() == total_fills(one)
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
        other = ks.Simulator(self.config, len(self.alone), engine=self.sim.engine_name, seed=99, slots=self.sim.slots)
        other.load_state_dict(saved)
        self.sim = other

    def _branch(self, rng: random.Random) -> None:
        """Go on with a branch; what it does leaves the first simulator alone."""
        first, before = self.sim, copy.deepcopy(self.alone)
        self.sim = first.branch()
        self._step(rng)
        for m, market in enumerate(before):
            assert_market_is(first, m, market)

    def tensor(self, quotes: list[list[list[int]]]) -> torch.Tensor:
        """Return quotes as a simulator takes them."""
        return torch.tensor(quotes, dtype=torch.int32, device=self.sim.device).view(
            len(self.alone), len(self.sim.slots), 4
        )


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
    if sim.config.is_continuous:
        assert tensors["queue"] == seen["ahead"]
        for side, sign in enumerate((1, -1)):
            moments = [moment[side] for moment in tensors["moments"]]
            stands = [slot for slot, quote in enumerate(seen["quotes"]) if quote[2 * side + 1]]
            oldest = sorted(stands, key=lambda slot: market.quotes[slot][sign].moment)
            assert sorted(stands, key=lambda slot: moments[slot]) == oldest
            assert not any(moment for slot, moment in enumerate(moments) if slot not in stands)
