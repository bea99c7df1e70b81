"""Order records and policies of slots: engines beside the plain reference of `tests/reference`, bit for bit."""

import random

import numpy as np
import pytest
import torch
from ensembles import KINDS, assert_market_is, bits_of, interval_of, random_ensemble, random_flags, suitable_quotes
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_programs import FUNCTIONS, POLICIES, layered, seer
from reference.environment import Environment
from reference.programs import Program
from thorough import examples

import kineticsim_env as ks
from kineticsim_env.envs.core import EnvCore
from kineticsim_env.envs.settings import EnvSettings
from kineticsim_env.tasks import ManyLearnersTask
from kineticsim_env.tasks.base import ROLES

MODES = ("SAME_STEP", "NEXT_STEP", "DISABLED")


class Both:
    """An environment on an engine, and the plain reference of each of its markets."""

    def __init__(self, engine, config, markets, task, roles, slots, auctions, autoreset, stagger):
        settings = EnvSettings(
            config=config, engine=engine, auctions_per_step=auctions, autoreset_mode=autoreset, stagger=stagger
        )
        self.core = EnvCore(markets, task, roles, slots, settings)
        self.autoreset = autoreset
        events = interval_of(config) if config.uses_clock else 1
        own = self.core.task, roles, slots
        self.alone = [
            Environment(self.core.config, *own, m, auctions, events, autoreset, stagger) for m in range(markets)
        ]

    def play(self, rng, functions):
        """Let functions play slots, by number; parameters differ from market to market at times."""
        policies, programs = {}, [{} for _ in self.alone]
        for slot, function in functions.items():
            parameters, memory = FUNCTIONS[function]
            values = {n: [rng.randint(-2, 9) for _ in self.alone] for n in parameters if rng.random() < 0.5}
            policies[slot] = POLICIES[function].replace(**values)
            for m, one in enumerate(programs):
                one[slot] = Program(function, parameters | {n: value[m] for n, value in values.items()}, memory)
        self.core.set_slot_policies(policies)
        for one, environment in zip(programs, self.alone, strict=True):
            environment.set_programs(one)

    def reset(self, seed=None, mask=None):
        self.core.reset(seed, None if mask is None else torch.tensor(mask))
        for m, one in enumerate(self.alone):
            if mask is None or mask[m]:
                one.reset(seed)

    def step(self, records=None):
        """Play a decision on both; records are [M][K][N][6]."""
        self.last = records
        config = self.core.config
        tensor = torch.tensor([records], dtype=torch.int32)
        if config.orders_per_side == 1:
            tensor = tensor[:, :, :, 0]
        given = {"new_quotes": tensor[..., :4].contiguous()}
        if config.is_continuous:
            given["order_flags"] = (tensor[..., 4] | tensor[..., 5] << 8).contiguous()
        self.core.step_records(**given)
        for m, one in enumerate(self.alone):
            one.step(records[m])

    def assert_same(self):
        tensors = self.core.tensors
        error = self.core.simulator.tensors["error"]
        for m, one in enumerate(self.alone):
            assert bool(error[m]) == one.cut
            one.cut = False
        error.zero_()
        for m, one in enumerate(self.alone):
            assert_market_is(self.core.simulator, m, one.market)
            names = {"elapsed": one.elapsed, "done": one.done, "ended": one.ended, "arrival2": one.arrival2}
            names |= {"mid_history": one.mids, "volume_history": one.volumes}
            for name, wanted in names.items():
                assert tensors[name][m].tolist() == wanted, name
            assert self.core.fills[m].tolist() == one.fills
            if one.programs:
                self._assert_programs(m, one)

    def _assert_programs(self, m, one):
        found = self.core.simulator.engine.slot_policies.tensors
        if one.market.t:
            memory = [number for slot in sorted(one.memory) for number in one.memory[slot].values()]
            assert found["policy_memory"][m].tolist() == memory
        for slot, wanted in one.played.items():
            if wanted is not None:
                assert self.records()[m][slot] == wanted

    def records(self):
        """`EnvCore.played` as [M][K][N][6]."""
        quotes = self.core.played.quotes
        if self.core.config.is_continuous:
            bid, ask = quotes.unbind(-2)
            return torch.cat([bid[..., :2], ask[..., :2], bid[..., 2:], ask[..., 2:]], -1).tolist()
        return torch.cat([quotes, torch.zeros_like(quotes[..., :2])], -1)[:, :, None].tolist()


@st.composite
def environments(draw):
    """What `Both` is made with, and the functions that play some slots."""
    pick = lambda *values: draw(st.sampled_from(values))  # noqa: E731
    rng = random.Random(draw(st.integers(0, 2**32)))
    arrivals, mechanism = draw(st.sampled_from(KINDS))
    markets = pick(1, 2)
    fields = random_fields_of(rng, arrivals, mechanism, markets)
    continuous = mechanism == "continuous"
    roles = draw(st.lists(st.sampled_from(ROLES), min_size=1, max_size=3))
    fields["orders_per_side"] = pick(1, 1, 3) if continuous else 1
    limit, most = (int(np.min(fields[name] or 1 << 20)) for name in ("inventory_limit", "max_quote_qty"))
    task = dict(
        horizon=pick(1, 3, 4),
        bank_size=0,
        max_offset=pick(1, 10),
        max_qty=pick(4, 40),
        max_target=min(limit, pick(3, 30)),
        block_qty=min(limit, pick(7, 30)),
        side=pick("random", "buy", "sell"),
        mark=pick("fundamental", "mid", "liquidation"),
        max_loss=pick(None, None, 5.0, 60.0),
        decide=pick("interval", "fill", "touch") if continuous else "interval",
        initial_inventory=pick(0, 0, 2, -3),
    )
    task["forced_qty"] = min(most, pick(1, 4))
    if draw(st.booleans()):
        task["max_qty"] = [[pick(4, 9) for _ in roles] for _ in range(markets)]
        task["horizon"] = [pick(2, 3) for _ in range(markets)]
    config = ks.MarketConfig(**fields)
    functions = {slot: pick(*FUNCTIONS, None) for slot in range(len(roles))}
    functions = {slot: function for slot, function in functions.items() if function is not None}
    if fields["orders_per_side"] < 3:
        functions = {slot: seer if function is layered else function for slot, function in functions.items()}
    arguments = config, markets, ManyLearnersTask(**task), roles, (None,) * len(roles)
    return rng, arguments, (pick(1, 2), pick(*MODES), draw(st.booleans())), functions


def random_fields_of(rng, arrivals, mechanism, markets):
    """Fields of markets large enough for environments, in which slots can trade."""
    fields = {"num_levels": 0}
    while fields["num_levels"] < 32:
        fields, _ = random_ensemble(rng, arrivals, mechanism, markets, markets > 1 and rng.random() < 0.5, False)
    if fields["inventory_limit"] is not None:
        fields["inventory_limit"] = np.maximum(fields["inventory_limit"], 5).tolist()
    return fields


def random_records(rng, both, wild):
    """Records of all slots near the mid and at what stands, with flags; some are out of range, if `wild`."""
    levels, records = both.core.config.orders_per_side, []
    for one in both.alone:
        ladders = suitable_quotes(rng, one.market.observe(), len(one.roles), levels)
        rows = [[ladder] for ladder in ladders] if levels == 1 else ladders
        flagged = both.core.config.is_continuous and rng.random() < 0.7
        records.append([[record_of(rng, level, flagged, wild) for level in ladder] for ladder in rows])
    return records


def record_of(rng, level, flagged, wild):
    numbers = [*level[0:1], max(0, level[1]), *level[2:3], max(0, level[3])]
    if wild and rng.random() < 0.2:
        numbers[rng.randrange(4)] = rng.choice([2**31 - 1, -(2**31), 2**30 + 1, -(2**30) - 1, 2**20 + 1, -1])
    return numbers + [bits_of(words) if flagged else 0 for words in random_flags(rng)]


@pytest.mark.parametrize("engine", ["numpy", "cpu"])
@settings(max_examples=examples(200), derandomize=True, deadline=None)
@given(environment=environments(), wild=st.booleans())
def test_random_environments(engine, environment, wild):
    rng, arguments, kind, functions = environment
    both = Both(engine, *arguments, *kind)
    if functions:
        both.play(rng, functions)
    both.reset(rng.randrange(1 << 40))
    both.assert_same()
    for _ in range(8):
        both.step(random_records(rng, both, wild))
        both.assert_same()
        done = [one.done for one in both.alone]
        if both.autoreset == "DISABLED" and any(done):
            both.reset(None, done)
            both.assert_same()
        elif rng.random() < 0.1:
            both.reset(rng.choice([None, 5]))
            both.assert_same()
