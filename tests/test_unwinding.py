"""`at_end="unwind"`: what slots hold at the horizon is sold into the book, paid, and their episodes terminate.

Engines agree on it in test_env_engines_agree.py, and beside the plain reference in test_reference_slot_policies.py.
"""

import gymnasium as gym
import numpy as np
import pytest
import torch
from build_helpers import needs_compiler
from env_helpers import assert_same, draw_actions, launch, make_cores
from gymnasium.vector import AutoresetMode
from plain_programs import POLICIES, quoter
from slot_programs import plain_maker
from test_rollouts import network_for, taken
from thorough import covering

import kineticsim_env as ks
from kineticsim_env.envs.state_dict import load_state, state_of
from kineticsim_env.evaluation import evaluate, evaluation_env, liquidate
from kineticsim_env.policies import RandomQuotes
from kineticsim_env.runtime.saved_states import read_about
from kineticsim_env.tasks import ExecutionTask, ManyLearnersTask, MarketMakingTask

pytestmark = needs_compiler
each_engine = pytest.mark.parametrize("engine", ["numpy", "cpu"])
each_mechanism = pytest.mark.parametrize("mechanism", ["call", "continuous"])
PROFITS = ["maker", "trader", "momentum", "fundamental"]


def quiet_core(engine, mechanism, roles=("maker",), bids=(), asks=(), max_order_qty=2, horizon=1, **task):
    """One market in which nobody comes, with a book known by heart: units by price, around a mid of 64."""
    shares = {"noise": 0.5, "momentum": 0.0, "maker": 0.5}
    config = ks.MarketConfig(
        **shares, init_price=64, init_depth=0, tie="mid", num_agents=2, arrivals="clock", interval=1,
        mechanism=mechanism, max_order_qty=max_order_qty,
    )  # fmt: skip
    task = ManyLearnersTask(
        horizon=horizon, action_type="discrete", max_qty=4, warmup=0, bank_size=0, at_end="unwind", reward_scale=1.0,
        **task,
    )  # fmt: skip
    roles = [*roles, "trader"][: max(2, len(roles))]  # in the places of both built-in agents
    kwargs = {"slots": ["maker", "noise", *[None] * (len(roles) - 2)], "autoreset_mode": AutoresetMode.DISABLED}
    (core,) = make_cores((config, 1, task, roles), kwargs, (engine,))
    core.reset(0)
    for name, units in (("bid", bids), ("ask", asks)):
        for price, quantity in dict(units).items():
            core.simulator.tensors[name][0, price] = quantity
    core._engine.state_changed()
    return core


def idle(core):
    return torch.zeros(1, len(core.roles), dtype=torch.int64)


# By hand --------------------------------------------------------------------------------------------------------------


@each_engine
@each_mechanism
@pytest.mark.parametrize("reward", ["edge", "pnl"])
def test_three_units_go_into_a_book_known_by_heart(engine, mechanism, reward):
    """Two at the best bid, 63, as max_order_qty is 2, and in the next auction one at 62; they were worth 64 each."""
    bids, asks = {63: 2, 62: 5}, {65: 8}
    core = quiet_core(engine, mechanism, bids=bids, asks=asks, initial_inventory=[3, 0], reward=reward)
    core.step(choices=idle(core))
    assert core.simulator.cash.tolist() == [[2 * 63 + 62, 0]]
    assert core.simulator.inventory.tolist() == [[0, 0]] and core.fills.tolist() == [[[0, 3], [0, 0]]]
    assert int(core.simulator.t) == 3 and core.simulator.bid[0, [62, 63]].tolist() == [4, 0]
    assert core.tensors["reward"].tolist() == [[188 - 3 * 64, 0]]
    assert core.tensors["terminated"].tolist() == [[True, True]] and not core.tensors["truncated"].any()
    assert core.tensors["final_observation"][0, 0, 30] == 0 and not core.simulator.quotes[..., 1::2].any()


@each_engine
@each_mechanism
def test_who_is_short_buys_and_what_stood_is_withdrawn(engine, mechanism):
    """The trader sells 4 at 63 in the decision, and buys them at 65 and 66; the maker's quotes go meanwhile."""
    core = quiet_core(engine, mechanism, bids={63: 9}, asks={65: 3, 66: 9}, max_order_qty=3)
    choices = torch.tensor([[6 * 7 + 6, 8 + 6]])  # the maker 8 ticks from the mid, the trader 6 ticks through it
    core.step(choices=choices)
    assert core.simulator.cash.tolist() == [[0, 4 * 63 - 3 * 65 - 66]]
    assert core.simulator.inventory.tolist() == [[0, 0]] and core.fills.tolist() == [[[0, 0], [4, 4]]]
    assert int(core.simulator.t) == 3 and not core.simulator.quotes[..., 1::2].any()
    assert core.tensors["terminated"].all()


@each_engine
@each_mechanism
def test_who_is_flat_has_no_further_auction_and_quotes_stand(engine, mechanism):
    core = quiet_core(engine, mechanism, bids={63: 9}, asks={65: 9}, horizon=2)
    for decision in (1, 2):
        core.step(choices=torch.tensor([[6 * 7 + 6, 0]]))
        assert int(core.simulator.t) == decision
        assert core.tensors["terminated"].tolist() == [[decision == 2] * 2]
    assert core.simulator.quotes[0, 0].tolist() == [56, 4, 72, 4]


@covering
@each_engine
@each_mechanism
@pytest.mark.parametrize(("limit", "most"), [(5, 5 + 16), (40, 40 + 16), (3000, 1024 + 16), (None, 1024 + 16)])
def test_where_nothing_is_to_be_had_it_ends_after_so_many_auctions(engine, mechanism, limit, most):
    """What is left is marked, and the episode terminates."""
    settings = {"inventory_limit": limit, "reward": "pnl"}
    core = quiet_core(engine, mechanism, asks={65: 8}, initial_inventory=[3, 0], **settings)
    core.step(choices=idle(core))
    assert int(core.simulator.t) == 1 + most
    assert core.simulator.inventory.tolist() == [[3, 0]] and core.tensors["reward"].tolist() == [[0, 0]]
    assert core.tensors["terminated"].all()
    standing = [[0, 0, 0, 0]] if mechanism == "continuous" else [[0, 0, -(2**30), 2]]
    assert core.simulator.quotes[0, :1].tolist() == standing


@each_engine
@each_mechanism
def test_roles_end_as_they_should(engine, mechanism):
    """Who trades for profit unwinds, a noise learner is truncated with what it has, an executor has its deadline."""
    roles = ["maker", "noise", "executor", "trader"]
    task = {"initial_inventory": [2, 0, 0, -1], "block_qty": 3, "forced_qty": 3, "side": "buy", "max_target": 2}
    core = quiet_core(engine, mechanism, roles, {63: 20}, {65: 20}, **task)
    core.step(choices=torch.tensor([[0, 11, 0, 0]]))  # the noise learner trades through the mid
    assert core.simulator.inventory[0, [0, 2, 3]].tolist() == [0, 3, 0] and int(core.simulator.inventory[0, 1]) != 0
    assert core.tensors["terminated"].tolist() == [[True, False, True, True]]
    assert core.tensors["truncated"].tolist() == [[False, True, False, False]]


@each_engine
def test_who_has_lost_too_much_before_keeps_what_it_holds(engine):
    """The maker's 3 units are marked at the mid of an emptied book: its episode ends, and only the score unwinds it."""
    settings = {"initial_inventory": [3, 1], "mark": "mid", "max_loss": 6.0, "horizon": 2}
    core = quiet_core(engine, "continuous", bids={63: 20}, asks={65: 8}, **settings)
    core.simulator.tensors["bid"][0, 63], core.simulator.tensors["bid"][0, 55] = 0, 20  # the mid falls by 4
    core._engine.state_changed()
    core.step(choices=idle(core))
    assert core.tensors["terminated"].tolist() == [[True, False]]
    core.step(choices=idle(core))
    assert core.simulator.inventory.tolist() == [[3, 0]]
    assert core.tensors["terminated"].tolist() == [[False, True]] and bool(core.tensors["done"])


# The score ------------------------------------------------------------------------------------------------------------


@covering
@each_engine
@pytest.mark.parametrize("preset", ["trading", "news", "continuous"])
@pytest.mark.parametrize("changes", [{}, {"inventory_limit": None, "initial_inventory": -7}, {"horizon": 1}])
def test_it_brings_what_the_score_brings(engine, preset, changes):
    """To the unit: the score of an episode that is truncated is that of one that unwinds, and its rewards' sum."""
    found = {}
    for at_end in ("truncate", "unwind"):
        settings = {"horizon": 12, "reward": "pnl", "reward_scale": 1.0, "bank_size": 4, **changes, "at_end": at_end}
        config = ks.MarketConfig.preset(preset, fee=0, taker_fee=0)  # rewards are whole, and float32 has them
        envs = evaluation_env(8, engine=engine, config=config, **settings)
        found[at_end] = evaluate(RandomQuotes(envs.core.task, seed=1), envs, seed=3)
    cut, unwound = found["truncate"], found["unwind"]
    assert np.array_equal(cut.pnl, unwound.pnl) and np.array_equal(unwound.pnl, unwound.episode_return)
    assert not np.array_equal(cut.pnl, cut.episode_return) and not envs.core.simulator.inventory.any()


@covering
@each_engine
@pytest.mark.parametrize("preset", ["trading", "news"])
@pytest.mark.parametrize("levels", [1, 3])
def test_many_learners_unwind_as_the_score_unwinds_them(engine, preset, levels):
    config = ks.MarketConfig.preset(preset, **({"orders_per_side": levels} if preset == "news" else {}))
    cores = []
    for at_end in ("truncate", "unwind"):
        task = ManyLearnersTask(horizon=9, bank_size=4, at_end=at_end, keep=preset == "news")
        kwargs = {"slots": [None] * 4, "autoreset_mode": AutoresetMode.DISABLED, "auctions_per_step": 2}
        cores += make_cores((config, 5, task, PROFITS), kwargs, (engine,))
    generator = np.random.default_rng(2)
    for core in cores:
        core.reset(6)
    for _ in range(9):
        launch(cores, draw_actions(cores[0], generator, 0.0))
    cut, unwound = cores
    assert cut.simulator.inventory.any() and not unwound.simulator.inventory.any()
    assert cut.tensors["truncated"].all() and unwound.tensors["terminated"].all()
    assert not (cut.tensors["terminated"].any() or unwound.tensors["truncated"].any())
    liquidate(cut.simulator)
    for name in ("cash", "inventory", "fees"):  # markets play on there until the last of them is flat
        assert torch.equal(cut.simulator.tensors[name], unwound.simulator.tensors[name]), name


# Episodes -------------------------------------------------------------------------------------------------------------


@covering
@each_engine
@pytest.mark.parametrize("preset", ["trading", "news"])
@pytest.mark.parametrize("mode", ["SAME_STEP", "NEXT_STEP"])
@pytest.mark.parametrize("output", ["numpy", "torch"])
def test_every_episode_of_a_batch_ends_flat_and_terminated(engine, preset, mode, output):
    """Of first ones that start late, too; what they see last is that they hold nothing, and no time is left."""
    settings = {"horizon": 5, "bank_size": 4, "autoreset_mode": mode, "at_end": "unwind", "stagger": True}
    envs = gym.make_vec(
        "KineticSim/MarketMaking-v0", num_envs=7, engine=engine, preset=preset, output=output, account_info=True,
        **settings,
    )  # fmt: skip
    envs.reset(seed=1)
    generator, ends = np.random.default_rng(0), np.zeros(7, int)
    held = 0
    for _ in range(17):
        actions = generator.uniform(-1, 1, (7, 4)).astype(np.float32)
        given = actions if output == "numpy" else torch.from_numpy(actions)
        observation, _, terminated, truncated, infos = envs.step(given)
        terminated, inventory = np.asarray(terminated), np.asarray(infos["account_info"]["inventory"])
        last = infos["final_obs"] if mode == "SAME_STEP" else observation
        for m in np.flatnonzero(terminated):
            assert inventory[m] == 0 and not np.asarray(last[m])[[30, 32]].any()
        assert not np.asarray(truncated).any()
        held += np.abs(inventory).sum()
        ends += terminated
    assert (ends >= 2).all() and held > 0
    envs.close()


@each_engine
@pytest.mark.parametrize("played_by", ["function", "program"])
def test_opponents_do_not_unwind(engine, played_by):
    """As the score does not unwind them; the learner's episode terminates all the same, and the market's with it."""
    rivals = {"maker": [POLICIES[quoter]]}
    if played_by == "function":
        rivals = {"trader": [lambda seen: torch.tensor([1.0, 1.0]).expand(len(seen), -1)]}
    envs = gym.make_vec(
        "KineticSim/MarketMaking-v0", num_envs=4, engine=engine, output="torch", opponents=rivals, horizon=6,
        bank_size=2, at_end="unwind", autoreset_mode="disabled", stagger=False,
    )  # fmt: skip
    core = envs.unwrapped.core
    envs.reset(seed=2)
    for _ in range(6):
        _, _, terminated, truncated, _ = envs.step(torch.tensor([-0.8, -0.8, 1.0, 1.0]).expand(4, -1))
    assert terminated.all() and not truncated.any()
    assert not core.simulator.inventory[:, 0].any() and core.simulator.inventory[:, 1].any()
    assert core.tensors["done"].all()


def test_the_default_is_to_truncate():
    for task in (MarketMakingTask(), ks.TradingTask(), ManyLearnersTask()):
        assert task.at_end == "truncate" and task.auctions_to_unwind == 0
    assert not hasattr(ExecutionTask(), "at_end")
    assert ManyLearnersTask(at_end="unwind", block_qty=7, forced_qty=2, inventory_limit=5).forced_auctions == 24
    assert ManyLearnersTask(at_end="unwind", block_qty=7, forced_qty=2, inventory_limit=9).forced_auctions == 25


def test_what_is_wrong_is_said():
    with pytest.raises(ValueError, match="at_end: expected one of 'truncate', 'unwind', got 'sell'"):
        MarketMakingTask(at_end="sell")
    with pytest.raises(TypeError, match="at_end"):
        gym.make("KineticSim/Execution-v0", engine="numpy", at_end="unwind")


# Settings and states --------------------------------------------------------------------------------------------------


@each_engine
def test_limits_that_differ(engine):
    """The largest says how many auctions there may be, in every market."""
    limits = [4, 9, 30]
    envs = evaluation_env(3, engine=engine, horizon=4, bank_size=2, at_end="unwind", inventory_limit=limits)
    assert envs.core.setting("forced_auctions").tolist() == [[46.0]] * 3
    envs.reset(seed=1)
    load_state(envs.core, state_of(envs.core), strict=True)


@covering
@each_engine
@pytest.mark.parametrize("mode", ["SAME_STEP", "NEXT_STEP", "DISABLED"])
@pytest.mark.parametrize("values", [{}, {"horizon": [2, 3, 4]}])
def test_a_state_goes_on(engine, mode, values):
    """On the other engine, whatever step it is of; and it says what it is of."""
    config = ks.MarketConfig.preset("news")
    task = ManyLearnersTask(**{"horizon": 3, "bank_size": 2, "at_end": "unwind", **values})
    kwargs = {"slots": [None, None], "autoreset_mode": AutoresetMode[mode]}
    arguments = (config, 3, task, ["maker", "trader"])
    here, there = make_cores(arguments, kwargs, (engine, "cpu" if engine == "numpy" else "numpy"))
    here.reset(4)
    generator = np.random.default_rng(1)
    for step in range(8):
        load_state(there, state_of(here), strict=True)
        launch((here, there), draw_actions(here, generator, 0.0))
        assert_same((here, there), f"after step {step}")
    (other,) = make_cores((config, 3, task.replace(at_end="truncate"), ["maker", "trader"]), kwargs, (engine,))
    with pytest.raises(ValueError, match="at_end"):
        load_state(other, state_of(here), strict=True)


def test_old_states_load_where_episodes_are_truncated():
    """They have no such setting; a state of today's default has none either."""
    envs = evaluation_env(2, engine="cpu", horizon=4, bank_size=2)
    envs.reset(seed=1)
    state = state_of(envs.core)
    assert "at_end" not in read_about(state)["task"]
    load_state(envs.core, state, strict=True)
    unwinds = evaluation_env(2, engine="cpu", horizon=4, bank_size=2, at_end="unwind")
    with pytest.raises(ValueError, match="at_end"):
        load_state(unwinds.core, state, strict=True)
    assert read_about(state_of(unwinds.core))["task"]["at_end"] == "unwind"


# Rollouts and functions of users' own ---------------------------------------------------------------------------------


@each_engine
def test_a_rollout_has_no_last_observations_of_episodes_that_terminate(engine):
    envs = gym.make_vec(
        "KineticSim/MarketMaking-v0", num_envs=5, engine=engine, output="torch", horizon=4, bank_size=2,
        at_end="unwind", stagger=False, reward="pnl",
    )  # fmt: skip
    envs.reset(seed=1)
    torch.manual_seed(0)
    part = envs.unwrapped.rollout(ks.NetworkPolicy.make(39, 4), 8)
    assert part.terminated.sum(0).tolist() == [2] * 5 and not part.truncated.any()
    assert part.terminated[3].all() and part.terminated[7].all()


@each_engine
def test_functions_of_users_own_are_told(engine):
    seen = []

    def reward(before, after):
        seen.append((after.terminated.clone(), after.truncated.clone(), after.inventory.clone()))
        return after.reward

    envs = gym.make_vec(
        "KineticSim/MarketMaking-v0", num_envs=3, engine=engine, output="torch", horizon=3, bank_size=2,
        at_end="unwind", stagger=False, reward=reward,
    )  # fmt: skip
    envs.reset(seed=1)
    for _ in range(3):
        _, _, terminated, _, _ = envs.step(torch.tensor([-0.8, -0.8, 1.0, 1.0]).expand(3, -1))
    assert terminated.all() and seen[-1][0].all() and not seen[-1][1].any() and not seen[-1][2].any()
    assert any(inventory.any() for _, _, inventory in seen)


# Markets of all kinds -------------------------------------------------------------------------------------------------


@covering
@each_engine
@pytest.mark.parametrize("latency", [0, 7, 100])
@pytest.mark.parametrize("decide", ["interval", "fill", "touch"])
@pytest.mark.parametrize("levels", [1, 3])
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("mark", ["fundamental", "mid", "liquidation"])
def test_everybody_ends_flat(engine, latency, decide, levels, keep, mark):
    """Whatever was under way or kept; nothing of theirs is left standing, and a flat slot is worth its money."""
    config = ks.MarketConfig.preset("news", quote_latency=latency, orders_per_side=levels)
    task = ManyLearnersTask(horizon=4, bank_size=4, at_end="unwind", decide=decide, keep=keep, mark=mark)
    kwargs = {"slots": [None] * 4, "autoreset_mode": AutoresetMode.DISABLED, "stagger": False, "account_info": True}
    (core,) = make_cores((config, 4, task, PROFITS), kwargs, (engine,))
    core.reset(6)
    generator, held = np.random.default_rng(2), 0
    for _ in range(4 * 48):
        held += int(core.simulator.inventory.abs().sum())
        launch([core], draw_actions(core, generator, 0.0))
        if core.tensors["done"].all():
            break
    assert core.tensors["ended"].all() and held > 0
    assert not core.simulator.inventory.any() and not core.simulator.quotes[..., 1::2].any()
    assert torch.equal(core.tensors["prev_value"].double() / 2000, core.simulator.money)


# On a GPU -------------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("preset", ["trading", "news"])
@pytest.mark.parametrize("mode", ["same_step", "next_step"])
@pytest.mark.parametrize("markets", [3, 300, 20000])
def test_a_gpu_has_the_cpus_bits(preset, mode, markets):
    """Over two horizons: a market per warp, a part of one, and a lane, whose late ones are left to whole warps."""
    config = ks.MarketConfig.preset(preset)
    task = ManyLearnersTask(horizon=6, bank_size=8, at_end="unwind")
    kwargs = {"slots": [None], "autoreset_mode": mode, "stagger": True, "account_info": True}
    cores = make_cores((config, markets, task, ["maker"]), kwargs, ("cpu", "cuda"))
    generator, ends = np.random.default_rng(1), 0
    for core in cores:
        core.reset(3)
    for step in range(14):
        launch(cores, draw_actions(cores[0], generator, 0.0))
        assert_same(cores, f"after step {step}")
        ends += int(cores[0].tensors["terminated"].sum())
    assert ends >= 2 * markets and not cores[0].tensors["truncated"].any()
    assert cores[1].simulator.engine._definitions(1)["KS_UNWIND"] == 1


@pytest.mark.gpu
@pytest.mark.parametrize("preset", ["trading", "news"])
@pytest.mark.parametrize("markets", [70, 5000])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_rollouts_inside_the_launch_unwind(preset, markets, kind):
    """A network's and a program's are those of steps on a CPU under the recorded actions."""
    how = {"num_envs": markets, "preset": preset, "output": "torch", "horizon": 6, "bank_size": 8, "at_end": "unwind"}
    for made in (network_for, lambda _: plain_maker):
        inside, played = (gym.make_vec("KineticSim/MarketMaking-v0", engine=name, **how) for name in ("cuda", "cpu"))
        for envs in (inside, played):
            envs.reset(seed=2)
        part = inside.unwrapped.rollout(made(inside), 13, observations=kind)
        for t in range(13):
            found = played.step(on_the_host(taken(part, t)))
            for name, result in zip(("reward", "terminated", "truncated"), found[1:4], strict=True):
                assert torch.equal(getattr(part, name)[t].cpu(), result), (name, t)
        assert_same((inside.unwrapped.core, played.unwrapped.core), "after the rollout")
        assert part.terminated.sum(0).min() >= 2 and not part.truncated.any()


def on_the_host(given):
    return ks.OrderRecords(given.quotes.cpu()) if isinstance(given, ks.OrderRecords) else given.cpu()
