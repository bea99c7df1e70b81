"""Settings of a task that differ: known answers, agreement with environments that have one setting, and refusals."""

import gymnasium
import numpy as np
import pytest
import torch
from markets import FEW_ORDERS
from thorough import covering

import kineticsim_env as ks
from kineticsim_env.envs.batched import BatchedParallelEnv
from kineticsim_env.evaluation import evaluate, evaluation_env
from kineticsim_env.policies import (
    AlmgrenChriss,
    AvellanedaStoikov,
    BuyAndHold,
    Discretised,
    ImmediateExecution,
    MomentumTrader,
    NoTrade,
    TimeWeighted,
    VolumeWeighted,
)
from kineticsim_env.policies.attackers import ATTACKERS, EXECUTOR_ATTACKERS, TRADER_ATTACKERS

STILL = ks.MarketConfig.preset("trading").replace(walk_prob=0.0, jump_prob=0.0)
MAKERS = (AvellanedaStoikov, *ATTACKERS)
TRADERS = (BuyAndHold, MomentumTrader, *TRADER_ATTACKERS)
EXECUTORS = (ImmediateExecution, TimeWeighted, AlmgrenChriss, VolumeWeighted, *EXECUTOR_ATTACKERS)
ENGINES = ["numpy", "cpu"]
MODES = ["NEXT_STEP", "SAME_STEP", "DISABLED"]


def make(task, num_envs, **settings):
    small = {"config": FEW_ORDERS, "bank_size": 8, "warmup": 5, "stagger": False}
    settings = {"output": "torch", "engine": "cpu", **small, **settings}
    return gymnasium.make_vec(f"KineticSim/{task}-v0", num_envs=num_envs, **settings)


RESET = 6  # tensors of a decision after which some were reset


def play(envs, actions, seed=5):
    """Rewards, ends and observations of some decisions, each [T, M, ...]; DISABLED markets are reset when they end."""
    observation, _ = envs.reset(seed=seed)
    seen = [(observation.clone(),)]
    for action in actions:
        observation, reward, terminated, truncated, _ = envs.step(action)
        seen.append(tuple(x.clone() for x in (observation, reward, terminated, truncated, envs.unwrapped.fills)))
        over = terminated | truncated
        if envs.unwrapped.autoreset_mode is gymnasium.vector.AutoresetMode.DISABLED and bool(over.any()):
            observation, _ = envs.reset(options={"reset_mask": over})
            seen[-1] += (observation.clone(),)
    return seen


def assert_market_is(m, many, single, columns):
    """Market m of one environment is market m of another, bit for bit, but for the columns behind."""
    for t, (ours, theirs) in enumerate(zip(many, single, strict=True)):
        for one, two in zip(ours, theirs, strict=False):
            one = one[m, :-columns] if one.dim() == 2 and one.is_floating_point() and columns else one[m]
            assert torch.equal(one, two[m]), f"decision {t}: {one.tolist()} is not {two[m].tolist()}"


def random_actions(steps, num_envs, size, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand((num_envs, size), generator=generator) * 2 - 1 for _ in range(steps)]


@covering
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("task", "settings"),
    [
        ("Execution", {"block_qty": [10, 25, 60, 100]}),
        ("Execution", {"horizon": [3, 4, 7, 9]}),
        ("Execution", {"leftover_penalty": [0.0, 1.0, 10.0, 20.0], "horizon": [3, 4, 7, 9]}),
        ("Execution", {"risk_aversion": [0.0, 0.1, 0.2, 0.5], "reward": "risk_averse"}),
        ("Execution", {"max_qty": [4, 6, 8, 20]}),
        ("MarketMaking", {"inventory_penalty": [0.0, 0.1, 0.2, 0.5], "horizon": [4, 5, 6, 7], "reward": "inventory"}),
        ("MarketMaking", {"idle_penalty": [0.0, 0.1, 0.2, 0.5], "reward": "per_unit"}),
        ("MarketMaking", {"max_qty": [1, 2, 8, 20], "inventory_limit": [5, 6, 7, 40]}),
        ("MarketMaking", {"initial_inventory": [-40, -1, 0, 40], "mark": "liquidation", "reward": "pnl"}),
    ],
)
@pytest.mark.parametrize("markets", [1, 4])
def test_each_market_is_as_in_an_environment_of_its_setting(mode, task, settings, markets):
    """Over several ends of episodes, in every mode."""
    common = {"horizon": 6, "autoreset_mode": mode} if "horizon" not in settings else {"autoreset_mode": mode}
    arrays = {name: value[-markets:] for name, value in settings.items() if isinstance(value, list)}
    common |= {name: value for name, value in settings.items() if name not in arrays}
    actions = random_actions(25, markets, 4 if task == "MarketMaking" else 2)
    many = play(make(task, markets, **common, **arrays), actions)
    for m in range(markets):
        own = {name: values[m] for name, values in arrays.items()}
        single = play(make(task, markets, **common, **own), actions)
        if mode == "DISABLED":  # who has ended waits for a reset of its own mask: compared up to the first one
            rows = zip(many, single, strict=True)
            first = next(t for t, row in enumerate(rows) if max(map(len, row)) == RESET)
            assert_market_is(m, many[:first], single[:first], len(arrays))
            assert_market_is(m, [many[first][:5]], [single[first][:5]], len(arrays))
        else:
            assert_market_is(m, many, single, len(arrays))


@pytest.mark.parametrize("engine", ENGINES)
def test_two_episodes_of_different_blocks(engine):
    """The whole of either block is executed by force: 10 units of a market's first episode, 7 of its second."""
    envs = make(
        "Execution", 64, engine=engine, horizon=1, side="buy", autoreset_mode="NEXT_STEP", account_info=True,
        randomise={"task.block_qty": {"values": [7, 10, 12]}}, num_scenarios=6,
    )  # fmt: skip
    core = envs.unwrapped.core
    observation, _ = envs.reset(seed=0)
    idle = torch.tensor([[0.0, -1.0]]).expand(64, 2)
    table = core.live_task.values.drawn["block_qty"]
    traded = []
    for _ in range(4):
        block = torch.tensor(table)[core.tensors["scenario"].long()]
        assert torch.equal(observation[:, -1], (block / 12).float())
        assert torch.equal(observation[:, 30], torch.ones(64))
        _, _, terminated, _, _ = envs.step(idle)
        bought = envs.unwrapped.fills[..., 0].view(-1)
        assert terminated.all()
        assert torch.equal(bought.double(), block)
        traded.append(block)
        observation = envs.step(idle)[0]  # the next episode begins
    assert any(not torch.equal(traded[0], other) for other in traded[1:])
    assert set(torch.stack(traded).flatten().tolist()) == {7.0, 10.0, 12.0}


@covering
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("mode", MODES)
def test_each_market_has_its_horizon(engine, mode):
    horizon = [2, 3, 5, 6]
    envs = make("Trading", 4, engine=engine, horizon=horizon, autoreset_mode=mode)
    idle, ends = torch.zeros(4, 2), {m: [] for m in range(4)}
    envs.reset(seed=1)
    for t in range(1, 13):
        _, _, terminated, truncated, _ = envs.step(idle)
        assert not terminated.any()
        for m in torch.nonzero(truncated).flatten().tolist():
            ends[m].append(t)
        if mode == "DISABLED" and bool(truncated.any()):
            envs.reset(options={"reset_mask": truncated})
    waits = mode == "NEXT_STEP"  # the step that resets
    assert ends == {m: list(range(n, 13, n + waits)) for m, n in enumerate(horizon)}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_penalty_for_each_learner(engine):
    """Three traders that hold the same inventory, and nothing trades: each pays its own penalty."""
    penalty = [0.0, 0.25, 2.0]
    envs = BatchedParallelEnv(
        2, learners={"trader": 3}, inventory_penalty=torch.tensor(penalty), initial_inventory=3, engine=engine,
        mark="fundamental", reward="inventory", reward_scale=1.0, config=STILL,
    )  # fmt: skip
    observation, _ = envs.reset(seed=0)
    assert torch.equal(observation["trader"][..., -1], torch.tensor([[0.0, 0.125, 1.0]] * 2))
    rewards = envs.step({"trader": torch.zeros(2, 3, 2)})[1]
    assert torch.equal(rewards["trader"], -9.0 * torch.tensor([penalty] * 2))


@covering
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("mark", ["fundamental", "mid", "liquidation"])
def test_initial_inventory_is_neither_gain_nor_loss(engine, mark):
    """What is paid is the change of the mark on what is held, and PnL is what arithmetic says."""
    held = [-7, 0, 5, 20]
    envs = make(
        "MarketMaking", 4, engine=engine, initial_inventory=held, reward="pnl", mark=mark, reward_scale=1.0, horizon=50,
        account_info=True, autoreset_mode="DISABLED",
    )  # fmt: skip
    core = envs.unwrapped.core
    observation, infos = envs.reset(seed=2)
    inventory = torch.tensor(held, dtype=torch.float64)
    assert torch.equal(core.simulator.inventory[:, 0].double(), inventory)
    assert torch.equal(observation[:, -1], (inventory / 20).float())
    assert torch.equal(observation[:, 31], torch.zeros(4))  # no money was made
    opening = marked(core, mark)
    total = torch.zeros(4, dtype=torch.float64)
    for _ in range(10):
        _, reward, _, _, infos = envs.step(torch.tensor([[0.0, 0.0, -1.0, -1.0]]).expand(4, 4))  # no quotes
        total += reward.double()
        value = inventory * (marked(core, mark) - opening) if mark != "liquidation" else marked(core, mark) - opening
        assert torch.equal(infos["account_info"]["value"], value)
        assert torch.allclose(total, value)
    assert bool((value != 0).any())


def marked(core, mark):
    """The price that marks inventories, or with liquidation what unwinding them brings."""
    simulator = core.simulator
    if mark == "fundamental":
        return simulator.tensors["fundamental_price"].double()
    if mark == "mid":
        return simulator.mid2.double() / 2
    brings = []
    for m, held in enumerate(simulator.inventory[:, 0].tolist()):
        side, sign = (simulator.bid, -1) if held > 0 else (simulator.ask, 1)
        ticks, left, cash, price = range(side.shape[1]), abs(held), 0, int(simulator.last_price[m])
        for tick in ticks if held < 0 else reversed(ticks):
            units = min(left, int(side[m, tick]))
            price = tick + int(simulator.price_origin[m]) if units else price
            left, cash = left - units, cash - sign * units * price
        brings.append(float(cash - sign * left * price))  # the rest at the worst price
    return torch.tensor(brings, dtype=torch.float64)


@pytest.mark.parametrize("mode", MODES[:2])
def test_every_episode_begins_with_it(mode):
    envs = make("Trading", 3, initial_inventory=[-4, 2, 9], horizon=2, autoreset_mode=mode)
    core = envs.unwrapped.core
    envs.reset(seed=0)
    starts = 0
    for action in random_actions(12, 3, 2):
        _, reward, _, _, _ = envs.step(action)
        fresh = core.tensors["elapsed"] == 0
        starts += int(fresh.sum())
        inventory = core.simulator.inventory[:, 0]
        assert torch.equal(inventory[fresh], torch.tensor([-4, 2, 9])[fresh])
        if mode == "NEXT_STEP":
            assert torch.equal(reward[fresh], torch.zeros(int(fresh.sum())))
    assert starts >= 9


def test_liquidated_pnl_leaves_the_initial_inventory_out():
    """A maker that does nothing: its PnL is what unwinding brought, less what its unit was worth at the opening."""
    envs = evaluation_env(8, "MarketMaking", engine="cpu", initial_inventory=1, config=STILL, horizon=4)
    result = evaluate(NoTrade(envs.core.task), envs, seed=3)
    simulator = envs.core.simulator  # its inventory is unwound by now; the fundamental price has not moved
    assert not simulator.inventory.any()
    assert np.array_equal(result.pnl, (simulator.money[:, 0] - simulator.tensors["fundamental_price"]).numpy())
    assert 0 < np.abs(result.pnl).max() < 30  # some ticks, not the price of a unit
    plain = evaluation_env(8, "MarketMaking", engine="cpu", config=STILL, horizon=4)
    assert np.all(evaluate(NoTrade(plain.core.task), plain, seed=3).pnl == 0)


def test_evaluation_is_that_of_environments_of_one_setting():
    """Of blocks and horizons that differ: each market's results are those that it has where all have its own."""
    settings = {"block_qty": [10, 40, 60], "horizon": [5, 8, 11], "leftover_penalty": [1.0, 2.0, 3.0]}
    envs = evaluation_env(3, "Execution", engine="cpu", **settings)
    found = evaluate(lambda seen: torch.zeros(len(seen), 2), envs, seed=4)
    for m in range(3):
        own = {name: values[m] for name, values in settings.items()}
        single = evaluation_env(3, "Execution", engine="cpu", **own)
        expected = evaluate(lambda seen: torch.zeros(len(seen), 2), single, seed=4)
        for name in ("pnl", "episode_return", "traded", "inventory"):
            assert getattr(found, name)[m] == getattr(expected, name)[m], name


@covering
@pytest.mark.parametrize("action_type", ["continuous", "discrete"])
@pytest.mark.parametrize(
    ("task", "settings", "policies"),
    [
        ("Execution", {"block_qty": [10, 40, 60], "horizon": [5, 8, 11], "max_qty": [4, 5, 8]}, EXECUTORS),
        ("Trading", {"max_qty": [1, 5, 8], "inventory_limit": [10, 20, 40], "horizon": [20, 30, 40]}, TRADERS),
        ("MarketMaking", {"max_qty": [1, 5, 8], "inventory_limit": [10, 20, 40], "horizon": [20, 30, 40]}, MAKERS),
    ],
)
def test_scripted_policies_play_the_settings_of_each_market(task, settings, policies, action_type):
    """Market by market what they do where all have its settings."""
    for make_policy in policies:
        many = played_by(make_policy, make(task, 3, action_type=action_type, **settings))
        for m in range(3):
            own = {name: values[m] for name, values in settings.items()}
            single = played_by(make_policy, make(task, 3, action_type=action_type, **own))
            for t, (one, two) in enumerate(zip(many, single, strict=True)):
                assert torch.equal(one[m], two[m]), f"{make_policy}, market {m}, decision {t}"


def played_by(make_policy, envs):
    """The actions of a policy in 12 decisions, over ends of episodes."""
    task, actions = envs.unwrapped.core.task, []
    policy = make_policy(task)
    policy = policy if task.action_type == "continuous" else Discretised(policy, task)
    observation, _ = envs.reset(seed=9)
    for _ in range(12):
        actions.append(policy(observation))
        observation = envs.step(actions[-1])[0]
    return actions


# Changes, saved states ------------------------------------------------------------------------------------------------


def test_set_task_changes_a_penalty_of_each_market():
    envs = make("MarketMaking", 2, inventory_penalty=[0.0, 1.0], initial_inventory=2, reward_scale=1.0)
    core = envs.unwrapped.core
    envs.reset(seed=0)
    envs.unwrapped.set_task(inventory_penalty=[1.0, 0.5])
    assert core.setting("inventory_penalty")[:, 0].tolist() == [1.0, 0.5]
    envs.unwrapped.set_task(inventory_penalty=0.25)
    assert core.setting("inventory_penalty")[:, 0].tolist() == [0.25, 0.25]
    with pytest.raises(ValueError, match=r"inventory_penalty: expected up to 1 in size.*got 2"):
        envs.unwrapped.set_task(inventory_penalty=[1.0, 2.0])
    with pytest.raises(ValueError, match=r"idle_penalty: expected one number.*got an array"):
        envs.unwrapped.set_task(idle_penalty=[0.1, 0.2])
    assert core.setting("inventory_penalty")[:, 0].tolist() == [0.25, 0.25]


def test_set_scenarios_draws_other_settings():
    envs = make(
        "Execution", 16, randomise={"task.block_qty": (20, 60), "noise_spread": (6, 12)}, num_scenarios=8, horizon=2,
    )  # fmt: skip
    core = envs.unwrapped.core
    envs.reset(seed=0)
    before = core.setting("block_qty").clone()
    envs.unwrapped.set_scenarios({"task.block_qty": {"values": [30]}, "noise_spread": (6, 12)})
    assert torch.equal(core.setting("block_qty"), before)
    envs.reset()
    assert (core.setting("block_qty") == 30).all()
    with pytest.raises(ValueError, match=r"expected the task's settings of before, \['task.block_qty'\], got "):
        envs.unwrapped.set_scenarios({"noise_spread": (6, 12)})
    with pytest.raises(ValueError, match=r"block_qty: expected up to 60.*got 90"):
        envs.unwrapped.set_scenarios({"task.block_qty": {"values": [90, 80]}})


@pytest.mark.parametrize("engines", [("cpu", "numpy"), ("numpy", "cpu")])
def test_saved_states_and_clones_go_on(engines):
    settings = {
        "randomise": {"task.block_qty": (20, 60), "task.horizon": {"values": [3, 4, 5]}},
        "num_scenarios": 5,
        "leftover_penalty": [1.0, 2.0, 3.0, 4.0],
    }
    first, second = (make("Execution", 4, engine=engine, **settings) for engine in engines)
    actions = random_actions(20, 4, 2)
    first.reset(seed=1)
    for action in actions[:7]:
        first.step(action)
    saved, clone = first.unwrapped.state_dict(), first.unwrapped.clone()
    second.unwrapped.load_state_dict(saved)
    for action in actions[7:]:
        expected = first.step(action)
        for other in (second, clone):
            for one, two in zip(expected[:4], other.step(action)[:4], strict=True):
                assert torch.equal(one, two)
    broken = dict(saved, task_values=saved["task_values"].clone())
    broken["task_values"][2, 0, 4] = 61
    with pytest.raises(ValueError, match=r"state\['task_values'\]: expected 1 to 60 as block_qty, got 61.0"):
        second.unwrapped.load_state_dict(broken)
    with pytest.raises(ValueError, match=r"leftover_penalty"):
        make("Execution", 4, **settings | {"leftover_penalty": [1.0, 2.0, 3.5, 4.0]}).unwrapped.load_state_dict(saved)


def test_a_state_has_one_horizon_for_all_slots_of_a_market():
    envs = BatchedParallelEnv(2, {"maker": 2}, engine="cpu", horizon=[3, 4], stagger=False, bank_size=2, warmup=2)
    envs.reset(seed=0)
    saved = envs.state_dict()
    saved["task_values"] = saved["task_values"].clone()
    saved["task_values"][0, 0, 0] = 4.0
    with pytest.raises(ValueError, match="task_values.*one horizon for all slots of a market"):
        envs.load_state_dict(saved)


@pytest.mark.parametrize(
    "settings",
    [
        {"inventory_penalty": np.array([-0.0, 0.1])},
        {"randomise": {"task.inventory_penalty": {"values": [-0.0, 0.1]}}},
    ],
    ids=str,
)
def test_no_column_has_a_zero_with_a_sign(settings):
    """A GPU's division of features makes 0.0 of -0.0, and the other engines do not."""
    observation, _ = make("MarketMaking", 2, **settings).reset(seed=3)
    assert not bool(((observation == 0) & observation.signbit()).any())


def test_an_executors_initial_inventory_is_a_zero_without_a_sign():
    envs = BatchedParallelEnv(2, {"executor": 1, "maker": 1}, engine="cpu", initial_inventory=np.array([-3, -1]))
    envs.reset(seed=3)
    seen = envs.core.tensors["observation"]
    assert not bool(((seen == 0) & seen.signbit()).any())


def test_a_spec_survives_json():
    envs = make("Execution", 3, block_qty=np.array([10, 20, 30]), randomise={"task.horizon": (5, 9)}, num_scenarios=4)
    text = envs.unwrapped.spec.to_json()
    again = gymnasium.make_vec(gymnasium.envs.registration.EnvSpec.from_json(text), num_envs=3)
    assert np.array_equal(again.unwrapped.core.live_task.values.rows, envs.unwrapped.core.live_task.values.rows)
    assert np.array_equal(
        again.unwrapped.core.live_task.values.drawn["horizon"], envs.unwrapped.core.live_task.values.drawn["horizon"]
    )


def test_markets_are_drawn_as_without_settings_of_the_task():
    plain = make("Execution", 2, randomise={"noise_spread": (6, 20)}, num_scenarios=9)
    both = make("Execution", 2, randomise={"task.block_qty": (5, 9), "noise_spread": (6, 20)}, num_scenarios=9)
    assert plain.unwrapped.core.live_task.scenarios == both.unwrapped.core.live_task.scenarios


# Refusals -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "settings", "message"),
    [
        ("Execution", {"block_qty": [10, 20]}, r"block_qty: expected numbers \[3\] or .*, got \[2, 1\]"),
        ("Execution", {"block_qty": [10, 0, 5]}, r"block_qty: expected a whole number from 1.*got 0.0"),
        ("Execution", {"block_qty": [10, 2.5, 5]}, r"block_qty: expected a whole number.*got 2.5"),
        ("Execution", {"leftover_penalty": [1.0, float("nan"), 2.0]}, r"leftover_penalty: expected .*, got nan"),
        ("Execution", {"max_qty": [3, 8, 8]}, r"forced_qty: expected 1 to max_qty = 3, got 4"),
        ("Execution", {"reward_scale": [1.0, 2.0, 3.0]}, r"reward_scale: expected a number, got"),
        ("Execution", {"horizon": [[1, 2, 3]]}, r"horizon: expected numbers \[3\] or .*, got \[1, 3\]"),
        (
            "MarketMaking",
            {"initial_inventory": 41},
            r"initial_inventory: expected up to inventory_limit = 40.*got 41",
        ),
        (
            "MarketMaking",
            {"initial_inventory": -3, "inventory_limit": [1, 2, 40]},
            r"initial_inventory: expected up to inventory_limit = 1 in size.*got 3",
        ),
        (
            "MarketMaking",
            {"initial_inventory": -3, "randomise": {"task.inventory_limit": {"values": [9, 40, 1]}}},
            r"initial_inventory: expected up to inventory_limit = 1 in size.*got 3",
        ),
        (
            "Trading",
            {"initial_inventory": [0, 0, 3], "randomise": {"task.inventory_limit": {"values": [9, 40, 2]}}},
            r"initial_inventory: expected up to inventory_limit = 2 in size.*got 3",
        ),
        (
            "Trading",
            {"inventory_limit": [9, 2, 9], "randomise": {"task.initial_inventory": {"values": [0, -3, 1]}}},
            r"initial_inventory: expected up to inventory_limit = 2 in size.*got 3",
        ),
        (
            "Execution",
            {"randomise": {"task.side": ["buy", "sell"]}},
            r"randomise: expected, of the task, one of .*, got 'task.side'",
        ),
        ("Execution", {"randomise": {"task.block_qty": (0, 5)}}, r"randomise: task.block_qty: expected .*got 0.0"),
        ("Execution", {"randomise": {"task.block_qty": (5.5, 9)}}, r"expected two whole numbers"),
        ("Execution", {"randomise": {"task.max_qty": (2, 9)}}, r"forced_qty: expected 1 to max_qty = .*got 4"),
        (
            "Execution",
            {"randomise": {"task.block_qty": (5, 9)}, "block_qty": [1, 2, 3]},
            r"block_qty: expected .*, got an array",
        ),
        (
            "MarketMaking",
            {"randomise": {"task.block_qty": (5, 9)}},
            r"randomise: expected, of the task, one of .*, got 'task.block_qty'",
        ),
        (
            "Execution",
            {
                "config": STILL,
                "randomise": {"scenarios": {**STILL.to_dict(), "fee": [0, 1], "task.block_qty": [5, 6, 7]}},
            },
            r"expected 2, one per scenario, got 3 values of task.block_qty",
        ),
        (
            "MarketMaking",
            {"inventory_penalty": torch.nested.nested_tensor([torch.zeros(2)])},
            r"inventory_penalty: .*got",
        ),
        ("MarketMaking", {"inventory_penalty": np}, r"inventory_penalty: expected .*, got <module 'numpy'"),
    ],
)
def test_bad_settings_are_refused(task, settings, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make(task, 3, num_scenarios=64, **settings)


def test_an_initial_inventory_may_be_as_large_as_its_own_limit():
    """Of the same market, or of the same scenario; other markets and scenarios may have less room."""
    make("MarketMaking", 3, initial_inventory=[-1, 2, 40], inventory_limit=[1, 2, 40]).close()
    config = ks.MarketConfig.preset("trading")
    table = {**config.to_dict(), "fee": [0, 1], "task.initial_inventory": [5, -2]}
    make("MarketMaking", 2, config=config, randomise={"scenarios": table | {"task.inventory_limit": [5, 3]}}).close()
    with pytest.raises(ValueError, match="initial_inventory: expected up to inventory_limit = 3 in size, got 5"):
        make("MarketMaking", 2, config=config, randomise={"scenarios": table | {"task.inventory_limit": [3, 5]}})


def test_opponents_have_the_settings_of_their_market():
    """Those of the learner's task are its market's; what only opponents have stays as it is."""
    envs = make(
        "MarketMaking", 3, horizon=[2, 3, 4], max_qty=[4, 5, 8], inventory_limit=30,
        opponents={"executor": [lambda seen: torch.zeros(3, 2)], "trader": [lambda seen: torch.zeros(3, 2)]},
    )  # fmt: skip
    core = envs.unwrapped.core
    envs.reset(seed=0)
    assert core.setting("max_qty").tolist() == [[4.0] * 3, [5.0] * 3, [8.0] * 3]
    assert (core.setting("block_qty") == 30).all()
    for _ in range(3):
        envs.step(torch.zeros(3, 4))
    envs.unwrapped.load_state_dict(envs.unwrapped.state_dict())
