"""Environments on engines beside the plain references of their markets, and order records for both."""

import torch
from ensembles import assert_market_is, bits_of, interval_of, random_flags, suitable_quotes
from plain_programs import FUNCTIONS, POLICIES
from reference.environment import Environment
from reference.programs import Program

from kineticsim_env.envs.core import EnvCore
from kineticsim_env.envs.settings import EnvSettings


def beside(engine, config, markets, task, roles, slots, auctions, autoreset, stagger):
    """An environment on an engine, and its references."""
    how = {"auctions_per_step": auctions, "autoreset_mode": autoreset, "stagger": stagger}
    core = EnvCore(markets, task, roles, slots, EnvSettings(config=config, engine=engine, **how))
    return Both(core, core.task, config, (auctions, autoreset, stagger))


class Both:
    """An environment on an engine, and the plain reference of each of its markets.

    `config` is the market's before the task's limits; `kind` is `auctions_per_step`, the autoreset mode, `stagger`, and
    with opponents the number of learners.
    """

    def __init__(self, core, task, config, kind):
        auctions, self.autoreset, *rest = kind
        events = interval_of(config) if config.uses_clock else 1
        own = core.config, task, core.roles, core.simulator.slots
        self.core, markets = core, range(core.simulator.num_markets)
        self.alone = [Environment(*own, m, auctions, events, self.autoreset, *rest) for m in markets]

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

    def step(self, records):
        """Play a decision on both; records are [M][K][N][6]."""
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


def random_records(rng, both, wild):
    """Records of all slots near the mid and at what stands, with flags; some are out of range, if `wild`."""
    levels, records = both.core.config.orders_per_side, []
    for one in both.alone:
        ladders = suitable_quotes(rng, one.market.observe(), len(one.roles), levels)
        rows = [[ladder] for ladder in ladders] if levels == 1 else ladders
        flagged = both.core.config.is_continuous and rng.random() < 0.7
        records.append([[record_of(rng, level, flagged, wild) for level in ladder] for ladder in rows])
    return records


def as_given(records, config):
    """Records of all slots as `ks.OrderRecords` takes them."""
    numbers = torch.tensor(records, dtype=torch.int32)
    if config.is_continuous:
        return torch.stack([numbers[..., [0, 1, 4]], numbers[..., [2, 3, 5]]], -2)
    return numbers[:, :, 0, :4]


def record_of(rng, level, flagged, wild):
    numbers = [*level[0:1], max(0, level[1]), *level[2:3], max(0, level[3])]
    if wild and rng.random() < 0.2:
        numbers[rng.randrange(4)] = rng.choice([2**31 - 1, -(2**31), 2**30 + 1, -(2**30) - 1, 2**20 + 1, -1])
    flags = [rng.randrange(16)] * 2 if wild and rng.random() < 0.3 else map(bits_of, random_flags(rng))
    return numbers + [number if flagged else 0 for number in flags]
