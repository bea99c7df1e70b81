"""Order records in the place of actions: replayed actions, engines alike on hostile records, and what is refused."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from env_helpers import assert_same, clock_environments, draw_actions, environments, make_cores
from hypothesis import given, settings
from strategies import PAIRS, every_engine
from thorough import examples

import kineticsim_env as ks
from kineticsim_env.engines.base import ENV_STEP
from kineticsim_env.engines.numpy.actions import decode_actions
from kineticsim_env.engines.numpy.state import Markets
from kineticsim_env.tasks import MarketMakingTask

pairs = pytest.mark.parametrize("engines", PAIRS)
SMALL = {"bank_size": 2, "warmup": 4, "horizon": 9}


def decoded(core, actions):
    """What the NumPy engine reads of actions, as the fields of a launch that submits it as records."""
    args = core.simulator.engine._args | {name: tensor.numpy() for name, tensor in actions.items()}
    quotes, flags = decode_actions(args, Markets(args, np.arange(core.simulator.num_markets)))
    found = {"new_quotes": torch.from_numpy(quotes.astype(np.int32))}
    if core.config.is_continuous:
        found["order_flags"] = torch.from_numpy(flags.astype(np.int32))
    return found


def submit(core, records):
    on_device = {name: tensor[None].contiguous().to(core.device) for name, tensor in records.items()}
    core._engine.launch(ENV_STEP, auctions=core.auctions_per_step, **on_device)


def check_replay(environment, engine):
    arguments, kwargs, seed, steps = environment
    played, replayed = make_cores(arguments, kwargs, ("numpy", engine))
    generator = np.random.default_rng(seed)
    for core in (played, replayed):
        core.reset(seed)
    for t in range(steps):
        actions = draw_actions(played, generator, 0.0)
        records = decoded(played, actions)
        played._engine.launch(ENV_STEP, auctions=played.auctions_per_step, **actions)
        submit(replayed, records)
        assert_same((played, replayed), f"after step {t}")


@pytest.mark.parametrize("engine", ["numpy", "cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@settings(max_examples=examples(120))  # on a GPU each compiles a kernel
@given(environment=environments(most_slots=6))
def test_records_of_what_actions_ask_for_are_the_same_step_where_each_comes_once(engine, environment):
    check_replay(environment, engine)


@pytest.mark.parametrize(
    "engine",
    [pytest.param("numpy", marks=pytest.mark.slow), "cpu", pytest.param("cuda", marks=pytest.mark.gpu)],
)
@settings(max_examples=examples(120))  # on a GPU each compiles a kernel
@given(environment=clock_environments())
def test_records_of_what_actions_ask_for_are_the_same_step_on_the_clock(engine, environment):
    check_replay(environment, engine)


def draw_records(core, generator):
    """Records near the mid, and now and then far off, too large or negative; with all flags."""
    shape = (core.simulator.num_markets, len(core.roles), core.config.orders_per_side)
    mid = (core.tensors["mid_history"][:, :1].cpu().numpy() >> 1)[:, :, None]
    quotes = np.empty((*shape, 4), np.int64)
    quotes[..., 0] = mid + generator.integers(-9, 4, shape)
    quotes[..., 2] = mid + generator.integers(-3, 10, shape)
    quotes[..., 1::2] = generator.integers(0, 9, (*shape, 2))
    wild = np.array([-(2**31), 2**31 - 1, -(2**30) - 1, 2**30, 2**20, 2**20 + 1, -1])
    wild = wild[generator.integers(0, len(wild), quotes.shape)]
    quotes = np.where(generator.random(quotes.shape) < 0.04, wild, quotes)
    if core.config.orders_per_side == 1:
        quotes = quotes[:, :, 0]
    found = {"new_quotes": torch.from_numpy(quotes.astype(np.int32))}
    if core.config.is_continuous and generator.random() < 0.8:
        flags = np.array([0, 0, 1, 2, 4, 8, 12])[generator.integers(0, 7, (2, *quotes.shape[:-1]))]
        found["order_flags"] = torch.from_numpy((flags[0] | flags[1] << 8).astype(np.int32))
    return found


def check_hostile(environment, engines):
    arguments, kwargs, seed, steps = environment
    cores = make_cores(arguments, kwargs, engines)
    generator = np.random.default_rng(seed)
    for core in cores:
        core.reset(seed)
    for t in range(steps):
        records = draw_records(cores[0], generator)
        before = cores[0].simulator.inventory.clone().cpu(), cores[0].simulator.tensors["episode"].clone().cpu()
        for core in cores:
            submit(core, records)
        assert_same(cores, f"after step {t}")
        check_blocks(cores[0], before)


def check_blocks(core, before):
    """Who has a block trades on its side alone, and what is counted of it never grows."""
    inventory, episode = before
    same = core.simulator.tensors["episode"].cpu() == episode
    for k, role in enumerate(core.roles):
        if role == "executor":
            bought, sold = core.fills[:, k].cpu().unbind(-1)
            held = inventory[:, k]
            wrong = ((held > 0) & (sold > 0)) | ((held < 0) & (bought > 0)) | ((bought > 0) & (sold > 0))
            assert not bool((same & wrong).any())


@pairs
@settings(max_examples=examples(120))  # on a GPU each compiles a kernel
@given(environment=environments(most_slots=6))
def test_engines_agree_on_hostile_records(engines, environment):
    check_hostile(environment, engines)


@pairs
@settings(max_examples=examples(120))  # on a GPU each compiles a kernel
@given(environment=clock_environments())
def test_engines_agree_on_hostile_records_on_the_clock(engines, environment):
    check_hostile(environment, engines)


# Known answers --------------------------------------------------------------------------------------------------------


@every_engine
def test_a_quote_stands_where_its_record_says_beyond_what_an_action_can(engine):
    task = {"max_offset": 2, "max_qty": 6, **SMALL}
    envs = gym.make_vec("KineticSim/MarketMaking-v0", num_envs=2, engine=engine, output="torch", **task)
    envs.reset(seed=0)
    core = envs.unwrapped.core
    mid = int(core.tensors["mid_history"][0, 0]) >> 1
    quote = torch.tensor([[mid - 40, 3, mid + 40, 50]] * 2, dtype=torch.int32, device=core.device)
    envs.step(ks.OrderRecords(quote))
    found = core.simulator.quotes.view(2, 4).tolist()[0]
    assert found == [mid - 40, 3, mid + 40, 6]  # cut to max_quote_qty, which is at most the task's max_qty


@every_engine
def test_an_executor_has_no_order_on_the_other_side_nor_beyond_its_block(engine):
    task = {"side": "buy", "block_qty": 5, "max_qty": 20, **SMALL, "horizon": 90, "stagger": False}
    envs = gym.make_vec("KineticSim/Execution-v0", num_envs=1, engine=engine, output="torch", **task)
    envs.reset(seed=0)
    core = envs.unwrapped.core
    mid = int(core.tensors["mid_history"][0, 0]) >> 1
    low, flags = mid - 60, ks.OrderFlag.KEEP
    quote = torch.tensor([[[[low, 20, 0], [mid - 50, 20, flags]]]], dtype=torch.int32, device=core.device)
    envs.step(ks.OrderRecords(quote))
    assert core.simulator.quotes.view(4).tolist() == [low, 5, 0, 0]


@every_engine
def test_flags_of_records_are_those_of_the_market(engine):
    task = {"max_qty": 5, **SMALL, "horizon": 90, "stagger": False}
    envs = gym.make_vec("KineticSim/Trading-v0", num_envs=1, engine=engine, output="torch", **task)
    envs.reset(seed=0)
    core = envs.unwrapped.core
    record = torch.tensor([[[[0, 3, ks.OrderFlag.MARKET], [0, 0, 0]]]], dtype=torch.int32, device=core.device)
    envs.step(ks.OrderRecords(record))
    assert core.fills.view(2).tolist() == [3, 0]
    assert core.simulator.quotes.view(4)[1] == 0
    mid = int(core.tensors["mid_history"][0, 0]) >> 1
    crossing = torch.tensor(
        [[[[mid + 9, 1, ks.OrderFlag.POST_ONLY], [0, 0, 0]]]], dtype=torch.int32, device=core.device
    )
    envs.step(ks.OrderRecords(crossing))
    assert core.fills.view(2).tolist() == [0, 0]


# The forms ------------------------------------------------------------------------------------------------------------


def test_one_market_a_batch_and_many_learners_take_the_same_records():
    task = {"engine": "numpy", "horizon": 9, "bank_size": 2, "warmup": 4}
    quote = [[990, 2, 1010, 3]]
    single = gym.make("KineticSim/MarketMaking-v0", **task).unwrapped
    vector = gym.make_vec("KineticSim/MarketMaking-v0", num_envs=1, stagger=False, **task).unwrapped
    single.reset(seed=4), vector.reset(seed=4)
    one = single.step(ks.OrderRecords(np.array(quote[0], np.int32)))
    many = vector.step(ks.OrderRecords(quote))
    assert np.array_equal(one[0], many[0][0]) and one[1] == many[1][0]
    batched = ks.BatchedParallelEnv(1, {"maker": 1, "trader": 2}, stagger=False, **task)
    parallel = ks.parallel_env({"maker": 1, "trader": 2}, **task)
    batched.reset(seed=4), parallel.reset(seed=4)
    none = [0, 0, 0, 0]
    batched.step({"maker": ks.OrderRecords([quote]), "trader": ks.OrderRecords([[none, none]])})
    flagged = ks.OrderRecords([[[0, 0, 0], [0, 0, 0]]])
    parallel.step({"maker_0": ks.OrderRecords(quote[0]), "trader_0": flagged, "trader_1": ks.OrderRecords(none)})
    assert_same((batched.core, parallel.core), "after a step")


@pytest.mark.parametrize(
    ("records", "error", "said"),
    [
        ([[0, 1, 2]], ValueError, r"actions: expected int32 \[1, 4\]"),
        ([[0.5, 1, 2, 1]], TypeError, "actions: expected int32"),
        ([[2**30 + 1, 1, 2, 1]], ValueError, "actions: expected prices from -1073741824 to 1073741824, got 1073741825"),
        ([[0, -1, 2, 1]], ValueError, "actions: expected quantities from 0 to 1048576, got -1"),
        ([[[[0, 1, 16], [0, 0, 0]]]], ValueError, "actions: expected flags from 0 to 15"),
        ([[[[0, 1, 6], [0, 0, 0]]]], ValueError, "actions: expected POST_ONLY without"),
        (torch.zeros(1, 4), TypeError, "actions: expected int32"),
        (torch.zeros(2, 4, dtype=torch.int32), ValueError, "actions: expected int32"),
    ],
)
def test_what_is_refused_changes_nothing(records, error, said):
    envs = gym.make_vec("KineticSim/MarketMaking-v0", num_envs=1, engine="cpu", **SMALL).unwrapped
    envs.reset(seed=0)
    before = {name: tensor.clone() for name, tensor in envs.state_dict().items()}
    with pytest.raises(error, match=said):
        envs.step(ks.OrderRecords(records))
    after = envs.state_dict()
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())


def test_flags_are_refused_in_call_auctions_and_records_beside_functions_of_opponents():
    config = ks.MarketConfig.preset("trading")
    envs = gym.make_vec("KineticSim/MarketMaking-v0", num_envs=1, config=config, engine="numpy", **SMALL)
    envs.reset(seed=0)
    with pytest.raises(ValueError, match=r"actions: expected \[\.\.\., 4\] with mechanism='call', got order records"):
        envs.step(ks.OrderRecords([[[[0, 1, 0], [0, 0, 0]]]]))
    idle = {"trader": [lambda seen: torch.zeros(1, 2)]}
    envs = gym.make_vec("KineticSim/MarketMaking-v0", num_envs=1, engine="numpy", opponents=idle, **SMALL)
    envs.reset(seed=0)
    with pytest.raises(TypeError, match="actions: expected actions in an environment with opponents"):
        envs.step(ks.OrderRecords([[0, 0, 0, 0]]))
    envs = ks.BatchedParallelEnv(1, {"maker": 1, "trader": 1}, engine="numpy", **SMALL)
    envs.reset(seed=0)
    with pytest.raises(TypeError, match="order records of all learners or of none"):
        envs.step({"maker": ks.OrderRecords([[[0, 0, 0, 0]]]), "trader": np.zeros((1, 1, 2), np.float32)})


def test_what_is_out_of_range_on_a_device_sets_the_error_word_of_its_market():
    (core,) = make_cores((ks.MarketConfig(), 2, MarketMakingTask(**SMALL), ["maker"]), {"slots": (None,)}, ("cpu",))
    core.reset(0)
    quotes = torch.tensor([[[0, 1, 5, 1]], [[0, 2**20 + 1, 5, 1]]], dtype=torch.int32)
    submit(core, {"new_quotes": quotes})
    assert core.simulator.tensors["error"].tolist() == [0, 4]
