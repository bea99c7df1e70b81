"""Order records and policies of slots: engines beside the plain reference of `tests/reference`, bit for bit."""

import random

import gymnasium as gym
import numpy as np
import pytest
import torch
from ensembles import KINDS, random_ensemble
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_programs import FUNCTIONS, LADDERS, ONE_LEVEL, POLICIES, outside, seer, stacking
from reference.programs import Program
from slots_beside import Both, as_given, beside, random_records
from strategies import fitting_slots
from thorough import covering, examples

import kineticsim_env as ks
from kineticsim_env.config import CLASSES
from kineticsim_env.tasks import ManyLearnersTask
from kineticsim_env.tasks.many_learners import slots_of, with_all_roles

ENGINES = pytest.mark.parametrize("engine", ["numpy", "cpu"])
ALL_ROLES = ["maker", "momentum", "noise", "fundamental", "executor", "trader"]
MODES = ("SAME_STEP", "NEXT_STEP", "DISABLED")


@st.composite
def environments(draw):
    """What `Both` is made with, and the functions that play some slots."""
    pick = lambda *values: draw(st.sampled_from(values))  # noqa: E731
    rng = random.Random(draw(st.integers(0, 2**32)))
    arrivals, mechanism = draw(st.sampled_from(KINDS))
    markets = pick(1, 2)
    fields = random_fields_of(rng, arrivals, mechanism, markets)
    continuous = mechanism == "continuous"
    roles = draw(st.lists(st.sampled_from(ALL_ROLES), min_size=1, max_size=3))
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
        at_end=pick("truncate", "unwind"),
    )
    task["forced_qty"] = min(most, pick(1, 4))
    if draw(st.booleans()):
        task["max_qty"] = [[pick(4, 9) for _ in roles] for _ in range(markets)]
        task["horizon"] = [pick(2, 3) for _ in range(markets)]
    config = ks.MarketConfig(**fields)
    functions = {slot: pick(*FUNCTIONS, None) for slot in range(len(roles))}
    functions = {slot: function for slot, function in functions.items() if function is not None}
    if fields["orders_per_side"] < 3:
        functions = {slot: seer if function in LADDERS else function for slot, function in functions.items()}
    wanted = [pick(None, role) if role in CLASSES else None for role in roles]
    arguments = config, markets, ManyLearnersTask(**task), roles, fitting_slots(config, markets, wanted)
    return rng, arguments, (pick(1, 2), pick(*MODES), draw(st.booleans())), functions


def random_fields_of(rng, arrivals, mechanism, markets):
    """Fields of markets large enough for environments, in which slots can trade."""
    fields = {"num_levels": 0}
    while fields["num_levels"] < 32:
        fields, _ = random_ensemble(rng, arrivals, mechanism, markets, markets > 1 and rng.random() < 0.5, False)
    if fields["inventory_limit"] is not None:
        fields["inventory_limit"] = np.maximum(fields["inventory_limit"], 5).tolist()
    return fields


@ENGINES
@settings(max_examples=examples(200), derandomize=True, deadline=None)
@given(environment=environments(), wild=st.booleans())
def test_random_environments(engine, environment, wild):
    rng, arguments, kind, functions = environment
    both = beside(engine, *arguments, *kind)
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
        elif functions and rng.random() < 0.1:
            both.play(rng, functions)


def plays_beside(both, rng, steps):
    """Play steps; return how often markets' episodes have ended, and the units that slots with programs traded."""
    over = traded = 0
    for _ in range(steps):
        both.step(random_records(rng, both, False))
        both.assert_same()
        over += sum(one.market.t == 0 for one in both.alone)
        traded += sum(sum(one.fills[slot]) for one in both.alone for slot in one.programs)
    return over, traded


@covering
@ENGINES
@pytest.mark.parametrize("preset", ["news", "trading", "continuous"])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_presets(engine, preset, function):
    """A program plays every second slot of all roles, in the places of built-in agents where there are some."""
    config = ks.MarketConfig.preset(preset)
    if function in LADDERS:
        config = config.replace(mechanism="continuous", arrivals="clock", orders_per_side=3)
    slots = fitting_slots(config, 2, list(slots_of(tuple(ALL_ROLES))))
    task = ManyLearnersTask(bank_size=0, horizon=5, max_loss=500.0)
    both = beside(engine, config, 2, task, ALL_ROLES, slots, 1, "SAME_STEP", False)
    rng = random.Random(f"{preset} {function.__name__}")
    traded = 0
    for start in (0, 1):
        both.play(rng, dict.fromkeys(range(start, 6, 2), function))
        both.reset(7)
        both.assert_same()
        over, units = plays_beside(both, rng, 12)
        assert over >= 4
        traded += units
    assert traded or function in (outside, stacking)


@ENGINES
def test_what_counts_against_a_block(engine):
    """A level that is kept counts with what stands of it, whatever came; the other side's flags are keep alone."""
    config = ks.MarketConfig.preset("continuous").replace(orders_per_side=3, quote_latency=0, cancel_prob=0.0)
    task = ManyLearnersTask(bank_size=0, block_qty=10, side="buy", max_qty=20)
    both = beside(engine, config, 1, task, ["executor"], (None,), 1, "SAME_STEP", False)
    both.play(random.Random(0), {0: stacking})
    both.reset(4)
    asked = []
    for _ in range(8):
        left = both.alone[0].remaining(0)
        both.step(random_records(random.Random(1), both, False))
        both.assert_same()
        asked.append((left, [[level[1], *level[4:]] for level in both.alone[0].played[0]]))
    # Level 0 asks for 3 + t; in the second decision it is kept with the 3 that stand, which leaves 5 for level 2.
    assert asked[0] == (10, [[3, 0, 0], [2, 0, 0], [5, 0, 0]])
    assert asked[1] == (10, [[4, 1, 1], [2, 0, 0], [5, 0, 0]])


@ENGINES
def test_what_32_bits_do_not_hold(engine):
    config = ks.MarketConfig.preset("continuous")
    both = beside(engine, config, 1, ManyLearnersTask(bank_size=0), ["trader"], (None,), 1, "SAME_STEP", False)
    both.play(random.Random(3), {0: outside})
    both.reset(1)
    for cash, units in ((2**31, -(2**31)), (-(2**31) - 5, 2**31 - 1), (2**45, -(2**40)), (2**31 - 1, 7)):
        for name, number in (("cash", cash), ("inventory", units)):
            both.alone[0].market.accounts[0][name] = number
            both.core.simulator.tensors[name][0, 0] = number
        both.step(random_records(random.Random(2), both, False))
        both.assert_same()
        most = 2**31 - 1
        assert both.alone[0].memory[0]["cash"] == min(max(cash, -most), most)
        assert both.alone[0].memory[0]["units"] == min(max(units, -most), most)


@ENGINES
@pytest.mark.parametrize("seed", range(examples(30)))
def test_opponents(engine, seed):
    """The learner gives records, or actions that ask for no order; once it has ended, nobody else plays on."""
    rng = random.Random(f"opponents {seed}")
    rivals = {role: [rng.choice(ONE_LEVEL)] for role in rng.sample(ALL_ROLES, rng.randint(1, 3))}
    policies = {role: [POLICIES[function] for function in functions] for role, functions in rivals.items()}
    mechanism = rng.choice([{}, {"mechanism": "continuous", "arrivals": "clock", "quote_latency": rng.choice([0, 99])}])
    config = ks.MarketConfig.preset("news").replace(**mechanism)
    settings = {"horizon": rng.choice([1, 4]), "stagger": rng.random() < 0.5, "bank_size": 0}
    auctions, mode = rng.choice([1, 2]), rng.choice(MODES[:2])
    settings |= {"auctions_per_step": auctions, "autoreset_mode": mode, "engine": engine, "config": config}
    profits = {"max_loss": 50.0, "at_end": rng.choice(["truncate", "unwind"])}
    settings |= {"block_qty": 8} if (executes := rng.random() < 0.4) else profits
    name = "KineticSim/Execution-v0" if executes else "KineticSim/MarketMaking-v0"
    envs = gym.make_vec(name, num_envs=3, output="torch", opponents=policies, **settings)
    core = envs.unwrapped.core
    both = Both(core, with_all_roles(core.task, core.config), config, (auctions, mode, settings["stagger"], 1))
    functions = dict(enumerate([function for (function,) in rivals.values()], 1))
    for one in both.alone:
        one.set_programs({slot: Program(function, *FUNCTIONS[function]) for slot, function in functions.items()})
        one.reset(seed)
    envs.reset(seed=seed)
    both.assert_same()
    rest = torch.tensor([0.0, -1.0] if executes else [0.0, 0.0, -1.0, -1.0]).expand(3, -1)
    for _ in range(9):
        records = random_records(rng, both, False)
        if asks := rng.random() < 0.5:
            envs.step(ks.OrderRecords(as_given(records, core.config)[:, 0]))
        else:
            envs.step(rest)
        for one, record in zip(both.alone, records, strict=True):
            one.step(record if asks else [[[0] * 6]] * len(core.roles))
        both.assert_same()
