"""Environments on the clock: the C++ engine beside the oracle, what queues add to observations, and checkers."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from build_helpers import CLOCK_KERNELS, needs_compiler
from env_helpers import assert_same, check_handed_on, clock_environments, draw_actions, launch, make_cores, squash
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from hypothesis import given, settings
from hypothesis import strategies as st
from pettingzoo.test import parallel_api_test, parallel_seed_test
from thorough import covering, examples, slow

import kineticsim_env as ks
from kineticsim_env.envs.state_dict import load_state, state_of
from kineticsim_env.runtime import build
from kineticsim_env.tasks import ManyLearnersTask
from kineticsim_env.tasks.base import ROLES

pytestmark = needs_compiler
CONTINUOUS = ks.MarketConfig.preset("trading").replace(arrivals="clock", mechanism="continuous", quote_latency=3)
EMPTY = {"num_agents": 2, "arrivals": "clock", "interval": 1}  # nobody comes where slots replace both
both_engines = pytest.mark.parametrize("engine", ["cpu", "numpy"])
both_mechanisms = pytest.mark.parametrize("mechanism", ["call", "continuous"])


@settings(max_examples=examples(60))
@given(clock_environments(), st.integers(0, 2**32))
def test_a_state_goes_on_in_another_engine(environment, seed):
    """One environment is played through; another one is handed on between the engines before every step."""
    arguments, kwargs, first_seed, steps = environment
    whole, here, there = make_cores(arguments, kwargs, ("cpu", "numpy", "cpu"))
    check_handed_on(whole, here, there, first_seed, steps, seed)


@both_mechanisms
def test_a_stop_leaves_everything_as_it_was(mechanism):
    """A side that lacks little to 2^31: both engines refuse the step, and no tensor of theirs has changed."""
    config = ks.MarketConfig(arrivals="clock", mechanism=mechanism, num_agents=20)
    task = ManyLearnersTask(horizon=50, block_qty=30, warmup=0, bank_size=0)
    kwargs = {"slots": [None, None], "auctions_per_step": 2}
    cores = make_cores((config, 3, task, ["maker", "executor"]), kwargs, ("cpu", "numpy"))
    for core in cores:
        core.reset(5)
        core.simulator.bid[1, 3] = 2**31 - 15
        core._engine.state_changed()
    generator, stopped = np.random.default_rng(1), 0
    for step in range(12):
        actions = draw_actions(cores[0], generator, 0.0)
        before = [{name: x.clone() for name, x in (core.tensors | core.simulator.tensors).items()} for core in cores]
        errors = [raised(core, actions) for core in cores]
        assert errors[0] == errors[1]
        stopped += errors[0]
        for core, was in zip(cores, before, strict=True):
            now = dict(core.tensors) | dict(core.simulator.tensors)
            assert not errors[0] or all(torch.equal(now[name], was[name]) for name in was)
        assert_same(cores, f"after step {step}")
    assert stopped > 0


@pytest.mark.parametrize("kernel", [None, *CLOCK_KERNELS])
@pytest.mark.parametrize("role", ["maker", "executor"])
def test_fills_where_each_order_may_overflow(kernels, monkeypatch, kernel, role):
    """A side lacks more to 2^31 than an interval adds, and less than is known beforehand."""
    if kernel:
        monkeypatch.setattr(build, "load_cpu", lambda: kernels[kernel])
    config = ks.MarketConfig.preset("continuous", cancel_prob=0.0)
    task = ManyLearnersTask(horizon=50, block_qty=30, warmup=0, bank_size=0)
    cores = make_cores((config, 4, task, [role]), {"slots": [None]}, ("cpu", "numpy"))
    for core in cores:
        core.reset(5)
        core.simulator.bid[:, 0] = 2**31 - 5_000
        core._engine.state_changed()
    generator, held = np.random.default_rng(1), set()
    for step in range(12):
        launch(cores, draw_actions(cores[0], generator, 0.0))
        assert_same(cores, f"after step {step}")
        held |= {*cores[0].simulator.inventory.flatten().tolist()}
    assert len(held) > 9


def raised(core, actions):
    try:
        launch([core], actions)
    except ks.MarketError as error:
        assert "2^31" in str(error)
        return True
    return False


@both_mechanisms
def test_a_decision_is_a_step_of_the_simulator(mechanism):
    """Intervals, latency and all: the same quotes, given to a simulator, lead to the same market."""
    config = CONTINUOUS.replace(mechanism=mechanism, quote_latency=5 if mechanism == "continuous" else 0, beat=7)
    task = ManyLearnersTask(horizon=50, action_type="discrete", inventory_limit=5, warmup=0, bank_size=0)
    kwargs = {"slots": [None], "auctions_per_step": 2}
    (core,) = make_cores((config, 3, task, ["maker"]), kwargs, ("cpu",))
    core.reset(8)
    sim = ks.Simulator(core.config, 3, engine="numpy", seed=8, slots=1)
    offsets, generator = [0, 1, 2, 3, 4, 6, 8], np.random.default_rng(3)
    for _ in range(30):
        choices = generator.integers(1, 49, 3)
        quotes = []
        for choice, mid2 in zip(choices.tolist(), core.tensors["mid_history"][:, 0].tolist(), strict=True):
            bid, ask = divmod(choice, 7)
            quote = [mid2 // 2 - offsets[bid], 8, (mid2 + 1) // 2 + offsets[ask], 8]
            quotes.append([[x if side else 0 for x, side in zip(quote, (bid, bid, ask, ask), strict=True)]])
        core.step(choices=torch.from_numpy(choices)[:, None])
        fills = sim.step(torch.tensor(quotes, dtype=torch.int32), 2)
        assert torch.equal(fills, core.fills)
        for name, tensor in sim.tensors.items():
            assert torch.equal(tensor, core.simulator.tensors[name]), name
    assert core.simulator.tensors["inventory"].abs().max() > 0


# Limits ---------------------------------------------------------------------------------------------------------------


def lonely_market(roles, mechanism, depth, engines=("cpu", "numpy"), horizon=10, **task):
    """An environment without built-in agents, on some engines; decisions are discrete, of up to 4 units."""
    shares = {"noise": 0.5, "momentum": 0.0, "maker": 0.5}
    config = ks.MarketConfig(**shares, init_price=64, init_depth=depth, mechanism=mechanism, **EMPTY)
    task = ManyLearnersTask(horizon=horizon, action_type="discrete", max_qty=4, warmup=0, bank_size=0, **task)
    kwargs = {"slots": ["maker", "noise"], "stagger": False, "autoreset_mode": AutoresetMode.DISABLED}
    cores = make_cores((config, 1, task, roles), kwargs, engines)
    for core in cores:
        core.reset(0)
    return cores


def test_limits_are_those_of_the_moment_when_a_quote_arrives():
    """A maker that holds all it may bids for more while its ask is about to trade: there is room when the bid comes."""
    for core in lonely_market(["maker", "trader"], "continuous", 0, inventory_limit=4):
        core.step(choices=torch.tensor([[7, 0]]))  # bids for 4 at 63
        core.step(choices=torch.tensor([[1, 13]]))  # the trader comes first, and sells 4 at 63
        assert core.simulator.tensors["inventory"].tolist() == [[4, -4]]
        mid = int(core.tensors["mid_history"][0, 0]) // 2
        core.step(choices=torch.tensor([[8, 0]]))
        assert core.simulator.tensors["quotes"][0, 0].tolist() == [mid - 1, 0, mid + 1, 4]  # no room for a bid
        core.step(choices=torch.tensor([[8, 6]]))  # the trader, first again, buys 4 one above the mid
        assert core.simulator.tensors["inventory"].tolist() == [[0, 0]]
        assert core.simulator.tensors["quotes"][0, 0].tolist() == [mid - 1, 4, mid + 1, 4]


@both_mechanisms
def test_forced_auctions_end_where_the_limits_leave_nothing(mechanism):
    """After the one decision 2 units, then the 1 for which there is room, and no third auction."""
    settings = {"horizon": 1, "inventory_limit": 3, "block_qty": 10, "forced_qty": 2, "side": "buy"}
    for core in lonely_market(["executor", "trader"], mechanism, 8, **settings):
        core.step(choices=torch.tensor([[0, 0]]))
        assert core.simulator.tensors["t"].tolist() == [3]
        assert core.fills.tolist() == [[[3, 0], [0, 0]]] and bool(core.tensors["done"])


# Places in queues -----------------------------------------------------------------------------------------------------


@both_engines
def test_every_part_of_an_observation_by_hand(engine):
    """A market without built-in agents: 8 units rest on either side of 64, a maker joins them and a trader takes."""
    (core,) = lonely_market(["maker", "trader"], "continuous", 8, (engine,))
    common = np.zeros(30, np.float32)
    common[[1, 11]], common[20] = squash(8, 8), squash(2, 8)  # the mid is 64, asks are one tick above it
    maker, trader = np.zeros(9, np.float32), np.zeros(9, np.float32)
    maker[2] = trader[2] = 1.0
    assert_rows(core, common, maker, trader)

    core.step(choices=torch.tensor([[8, 0]]))  # 4 units one tick from the mid on both sides, behind 8; the trader holds
    maker[2] = trader[2] = np.float32(9) / np.float32(10)
    maker[[3, 5]], maker[[4, 6]], maker[[7, 8]] = squash(2, 16), 1.0, squash(8, 8)
    assert_rows(core, common, maker, trader)

    core.step(choices=torch.tensor([[8, 5]]))  # the trader takes 4 units at 65: built-in ones, which came first
    common[11], common[21], common[26] = squash(4, 8), squash(2, 8), squash(4, 32)
    maker[8] = squash(4, 8)
    trader[0], trader[1] = np.float32(4) / np.float32(40), squash(-4, 1000)
    maker[2] = trader[2] = np.float32(8) / np.float32(10)
    assert_rows(core, common, maker, trader)

    core.step(choices=torch.tensor([[9, 0]]))  # the ask moves to 66, where nothing is before it
    common[26:28] = 0, squash(4, 32)
    maker[5], maker[8] = squash(4, 16), 0.0
    maker[2] = trader[2] = np.float32(7) / np.float32(10)
    assert_rows(core, common, maker, trader)


def assert_rows(core, common, maker, trader):
    wanted = np.stack([np.concatenate([common, own]) for own in (maker, trader)])
    np.testing.assert_array_equal(core.tensors["observation"][0].numpy(), wanted)


def test_what_stood_may_trade_while_the_next_order_is_on_its_way():
    """A trader who comes first fills an executor's bid for the whole block, whose next order was for as much again."""
    cores = lonely_market(["executor", "trader"], "continuous", 8, block_qty=4, side="buy")
    for core in cores:
        core.step(choices=torch.tensor([[8, 0]]))  # 4 units at the mid, 64
        assert core.simulator.tensors["quotes"][0, 0].tolist() == [64, 4, 0, 0]
        core.step(choices=torch.tensor([[10, 11]]))  # 4 units at 65, but the trader sells 4 at 64 first
        assert core.simulator.tensors["inventory"].tolist() == [[8, -4]]
        assert core.tensors["terminated"].tolist() == [[True, False]]
    assert_same(cores, "after the block")
    saved = state_of(cores[0])
    cores[1].reset(1)
    load_state(cores[1], saved, strict=True)
    assert cores[1].simulator.tensors["inventory"].tolist() == [[8, -4]]


@covering
@both_engines
@pytest.mark.parametrize("role", ROLES)
def test_rows_are_longer_under_continuous_trading_only(role, engine):
    """And what is new is `sim.queue`, scaled."""
    task = ManyLearnersTask(warmup=0, bank_size=0)
    for mechanism in ("call", "continuous"):
        latency = {"quote_latency": 3 if mechanism == "continuous" else 0}
        config = CONTINUOUS.replace(mechanism=mechanism, **latency)
        (core,) = make_cores((config, 4, task, [role]), {"slots": [None]}, (engine,))
        core.reset(1)
        generator, ahead = np.random.default_rng(2), 0
        for _ in range(20):
            core.step(**draw_actions(core, generator, 0.0))
            seen = core.tensors["observation"]
            if mechanism == "call":
                continue
            queue = core.simulator.queue
            ahead += int(queue.sum())
            np.testing.assert_array_equal(seen[..., 37:].numpy(), squash(queue.numpy(), 8))
        assert seen.shape == (4, 1, 37 if mechanism == "call" else 39)
        assert mechanism == "call" or ahead > 0
        space = core.observation_space(role)
        size = {"call": 37 if role in ("maker", "executor", "fundamental") else 36, "continuous": 39}[mechanism]
        assert space.shape == (size,) and core.seen("observation", role, 0).shape == (4, size)
        assert space.contains(seen[0, 0, :size].numpy())


# Checkers and other forms ---------------------------------------------------------------------------------------------


@slow
@pytest.mark.parametrize("action_type", ["continuous", "discrete"])
@pytest.mark.parametrize("name", ["MarketMaking", "Execution", "Trading"])
@pytest.mark.filterwarnings("error")
def test_gymnasium_checker(name, action_type):
    env = gym.make(f"KineticSim/{name}-v0", config=CONTINUOUS, engine="cpu", action_type=action_type, bank_size=8)
    assert env.observation_space.shape == (39,)
    check_env(env.unwrapped)


def test_pettingzoo_checkers():
    def make():
        learners = {"maker": 2, "momentum": 1, "noise": 1, "executor": 1, "trader": 1}
        return ks.parallel_env(learners, config=CONTINUOUS, engine="cpu", horizon=12, block_qty=10, bank_size=4)

    parallel_api_test(make(), num_cycles=40)
    parallel_seed_test(make, num_cycles=20)
    env = make()
    env.reset(seed=1)
    assert env.state_space.shape == env.state().shape == (30 + 6 * 9,)
    assert all(env.observation_space(agent).shape == (39,) for agent in env.possible_agents)


def test_batched_environments_hand_out_whole_rows():
    envs = ks.BatchedParallelEnv(3, {"maker": 2, "trader": 1}, config=CONTINUOUS, engine="cpu", bank_size=4)
    observation, _ = envs.reset(seed=1)
    assert {role: rows.shape for role, rows in observation.items()} == {"maker": (3, 2, 39), "trader": (3, 1, 39)}
    assert envs.state().shape == (3, *envs.state_space.shape) == (3, 30 + 3 * 9)


def test_adapters_hand_on_whole_rows():
    arguments = {"config": CONTINUOUS, "engine": "cpu", "bank_size": 4, "horizon": 5}
    name = "KineticSim/MarketMaking-v0"
    pytest.importorskip("stable_baselines3")
    from kineticsim_env.adapters.sb3 import SB3VecEnv

    env = SB3VecEnv(name, 3, **arguments)
    assert env.reset().shape == (3, 39) and env.observation_space.shape == (39,)
    pytest.importorskip("torchrl")
    from kineticsim_env.adapters.torchrl import TorchRLEnv

    assert TorchRLEnv(name, 3, **arguments).rollout(7, break_when_any_done=False)["observation"].shape == (3, 7, 39)
    pytest.importorskip("skrl")
    from kineticsim_env.adapters.skrl import SkrlEnv

    env = SkrlEnv(name, 3, **arguments)
    assert env.reset()[0].shape == (3, 39) and env.observation_space.shape == (39,)


def test_auto_takes_the_cpp_engine_on_the_clock():
    envs = gym.make_vec("KineticSim/MarketMaking-v0", num_envs=2000, config=CONTINUOUS, output="torch", bank_size=0)
    assert envs.unwrapped.core.simulator.engine_name == "cpu"
