"""Many learners in many markets: each market is `parallel_env`'s, learners end one by one, markets reset as a whole."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from markets import FEW_ORDERS
from thorough import covering

import kineticsim_env as ks

SMALL = {"engine": "cpu", "horizon": 12, "bank_size": 16, "warmup": 20, "block_qty": 10}
ALL = {"maker": 2, "momentum": 1, "noise": 2, "executor": 1, "trader": 1}
both_actions = pytest.mark.parametrize("action_type", ["continuous", "discrete"])


def make(num_envs=4, learners=ALL, **kwargs):
    return ks.BatchedParallelEnv(num_envs, learners, **{**SMALL, "stagger": False, **kwargs})


def draw(envs, generator):
    """One action for each learner of each market, by role."""
    actions = {}
    for role, space in envs.single_action_spaces.items():
        shape = (envs.num_envs, len(envs.group_map[role]))
        if space.shape:
            actions[role] = generator.uniform(-1, 1, (*shape, *space.shape)).astype(np.float32)
        else:
            actions[role] = generator.integers(0, space.n, shape)
    return actions


def flat(groups):
    """All learners' values side by side, [M, K, ...]; observations are filled up to the longest."""
    longest = max((row.shape[2] for row in groups.values() if row.dim() == 3), default=0)
    rows = [torch.nn.functional.pad(row, (0, longest - row.shape[2])) if longest else row for row in groups.values()]
    return torch.cat(rows, dim=1)


def assert_equal(one, two):
    assert list(one) == list(two)
    for role in one:
        assert torch.equal(one[role], two[role]), role


@both_actions
def test_shapes_dtypes_and_spaces(action_type):
    envs = make(3, action_type=action_type)
    assert envs.group_map == {
        "maker": ["maker_0", "maker_1"], "momentum": ["momentum_0"], "noise": ["noise_0", "noise_1"],
        "executor": ["executor_0"], "trader": ["trader_0"],
    }  # fmt: skip
    observation, infos = envs.reset(seed=1)
    assert bool(flat(infos["active"]).all())
    actions = draw(envs, np.random.default_rng(0))
    observation, reward, terminated, truncated, infos = envs.step(actions)
    for role, names in envs.group_map.items():
        n, seen = len(names), 39
        assert envs.single_observation_spaces[role].shape == (seen,)
        for value, shape, dtype in (
            (observation[role], (3, n, seen), torch.float32),
            (infos["final_obs"][role], (3, n, seen), torch.float32),
            (reward[role], (3, n), torch.float32),
            (terminated[role], (3, n), torch.bool),
            (truncated[role], (3, n), torch.bool),
            (infos["active"][role], (3, n), torch.bool),
            (envs.fills[role], (3, n, 2), torch.int64),
        ):
            assert value.shape == shape and value.dtype == dtype
        for row in observation[role].flatten(0, 1).numpy():
            assert envs.single_observation_spaces[role].contains(row)
    assert infos["_final_obs"].shape == (3,) and infos["_final_obs"].dtype == torch.bool
    state = envs.state()
    assert state.shape == (3, 30 + 9 * 7) and all(envs.state_space.contains(row) for row in state.numpy())
    assert envs.device.type == "cpu" and envs.simulator.inventory.shape == (3, 7)
    envs.close()


@covering
@pytest.mark.parametrize("engine", ["cpu", "numpy"])
@pytest.mark.parametrize("learners", [ALL, None, {"executor": 2}, {"noise": 1, "maker": 1}])
@both_actions
@pytest.mark.parametrize("markets", [1, 3])
def test_every_market_is_that_of_parallel_env(engine, learners, action_type, markets):
    kwargs = {"action_type": action_type, "max_loss": 60.0, "config": FEW_ORDERS}
    envs = make(markets, learners, engine=engine, **kwargs)
    singles = [ks.parallel_env(learners, **{**SMALL, **kwargs}) for _ in range(markets)]
    observation, _ = envs.reset(seed=7)
    alone = [env.reset(seed=7 + m)[0] for m, env in enumerate(singles)]
    generator, episodes, early = np.random.default_rng(2), 0, 0
    for _ in range(40):
        for m, env in enumerate(singles):
            for role, names in envs.group_map.items():
                for i, name in enumerate(names):
                    if name in alone[m]:
                        np.testing.assert_array_equal(observation[role][m, i], alone[m][name])
            np.testing.assert_array_equal(envs.state()[m], env.state())
        actions = draw(envs, generator)
        observation, reward, terminated, truncated, infos = envs.step(actions)
        for m, env in enumerate(singles):
            alive = list(env.agents)
            given = {name: (role, i) for role, names in envs.group_map.items() for i, name in enumerate(names)}
            results = env.step({name: actions[given[name][0]][m, given[name][1]] for name in alive})
            for name, (role, i) in given.items():
                mine = [part[role][m, i].item() for part in (reward, terminated, truncated)]
                assert mine == [part.get(name, 0) for part in results[1:4]], name
                if name in alive:
                    np.testing.assert_array_equal(infos["final_obs"][role][m, i], results[0][name])
                assert bool(infos["active"][role][m, i]) is (name in env.agents or not env.agents)
            assert bool(infos["_final_obs"][m]) is (not env.agents)
            early += 0 < len(env.agents) < len(alive)
            alone[m] = {name: results[0][name] for name in env.agents}
            if not env.agents:
                alone[m], episodes = env.reset()[0], episodes + 1
    assert episodes >= 2 * markets and (early or markets == 1 or learners in (None, {"noise": 1, "maker": 1}))


@covering
@pytest.mark.parametrize("engine", ["numpy", "cpu"])
@pytest.mark.parametrize("mode", ["SAME_STEP", "NEXT_STEP", "DISABLED"])
@pytest.mark.parametrize("markets", [1, 3])
@pytest.mark.parametrize("replace", [True, False])
@pytest.mark.parametrize("stagger", [True, False])
def test_one_maker_is_that_of_make_vec_where_both_add_or_both_replace(engine, mode, markets, replace, stagger):
    """By default the one replaces a built-in maker, and the other adds one. Bit for bit, across ends of episodes."""
    shared = {**SMALL, "engine": engine, "autoreset_mode": mode, "stagger": stagger, "horizon": 4, "account_info": True}
    del shared["block_qty"]
    one = gym.make_vec(
        "KineticSim/MarketMaking-v0", markets, output="torch", replace="maker" if replace else None, **shared
    ).unwrapped
    many = ks.BatchedParallelEnv(markets, {"maker": 1}, replace=replace, **shared)
    assert many.simulator.slots == one.simulator.slots == (("maker",) if replace else (None,))
    one.reset(seed=7)
    many.reset(seed=7)
    generator = np.random.default_rng(3)
    over = torch.zeros(markets, dtype=torch.bool)
    for _ in range(11):
        if mode == "DISABLED" and bool(over.any()):
            for envs in (one, many):
                envs.reset(options={"reset_mask": over})
        actions = generator.uniform(-1, 1, (markets, 4)).astype(np.float32)
        seen, reward, terminated, truncated, infos = one.step(torch.from_numpy(actions))
        others = many.step({"maker": actions[:, None]})
        for mine, theirs in zip((seen, reward, terminated, truncated), others[:4], strict=True):
            assert torch.equal(mine, theirs["maker"][:, 0])
        for name, value in infos["account_info"].items():
            np.testing.assert_array_equal(value, others[4]["account_info"]["maker"][name][:, 0], err_msg=name)
        over = terminated | truncated


def test_learners_that_are_added_leave_all_agents_their_places():
    """More of a class than the market has, and of every role; a wrong word is refused."""
    learners = {"maker": 9, "momentum": 9, "noise": 5, "fundamental": 5, "executor": 2, "trader": 2}
    config = FEW_ORDERS.replace(population="fixed")
    with pytest.raises(ValueError, match=r"learners\['momentum'\]: expected up to 2, .*, got 9"):
        make(2, learners, config=config)
    envs = make(2, learners, config=config, replace=False)
    single = ks.parallel_env(learners, config, replace=False, **SMALL)
    assert envs.simulator.slots == single.simulator.slots == (None,) * 32
    observation, _ = envs.reset(seed=4)
    alone, _ = single.reset(seed=4)
    for role, names in envs.group_map.items():
        for place, agent in enumerate(names):
            np.testing.assert_array_equal(observation[role][0, place], alone[agent])
    with pytest.raises(TypeError, match="replace: expected True or False, got 'maker'"):
        make(replace="maker")


def test_market_0_is_that_of_parallel_env_with_the_same_seed():
    """To be sure of the words "bitwise" and "row 0": all of its state, too."""
    envs, env = make(64, autoreset_mode="disabled"), ks.parallel_env(ALL, **SMALL)
    envs.reset(seed=5)
    env.reset(seed=5)
    generator = np.random.default_rng(1)
    while env.agents:
        actions = draw(envs, generator)
        envs.step(actions)
        named = {name: actions[role][0, i] for role, names in envs.group_map.items() for i, name in enumerate(names)}
        env.step({name: named[name] for name in env.agents})
        for mine, its in ((envs.core, env.core), (envs.simulator, env.simulator)):
            for name, value in its.tensors.items():
                assert torch.equal(mine.tensors[name][:1], value), name


# Ends -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["cpu", "numpy"])
def test_who_has_ended_rests_until_the_market_does(engine):
    envs = make(32, {"executor": 1, "maker": 1, "noise": 1}, engine=engine, block_qty=6, config=FEW_ORDERS)
    envs.reset(seed=1)
    generator, rested = np.random.default_rng(0), 0
    ended = torch.zeros(32, dtype=torch.bool)
    for t in range(36):
        actions = draw(envs, generator)
        actions["executor"][:] = 1.0
        _, reward, terminated, truncated, infos = envs.step(actions)
        assert not reward["executor"][ended].any() and not (terminated["executor"] | truncated["executor"])[ended].any()
        assert not envs.fills["executor"][ended].any() and not envs.simulator.quotes[ended, 0, 1::2].any()
        rested += int(ended.sum())
        now = terminated["executor"][:, 0]
        assert not (now & ended).any() and not truncated["executor"].any()
        ended = (ended | now) & ~infos["_final_obs"]
        assert torch.equal(infos["active"]["executor"][:, 0], ~ended)
        assert torch.equal(infos["_final_obs"], truncated["maker"][:, 0]) and bool(infos["_final_obs"].all()) is (
            t % 12 == 11
        )
        assert torch.equal(truncated["maker"], truncated["noise"]) and not terminated["maker"].any()
    assert rested > 300


def test_actions_of_those_who_have_ended_are_not_looked_at():
    one, two = make(8, {"executor": 1, "maker": 1}, block_qty=3), make(8, {"executor": 1, "maker": 1}, block_qty=3)
    one.reset(seed=1)
    infos, generator, differed = two.reset(seed=1)[1], np.random.default_rng(0), 0
    for _ in range(24):
        actions = draw(one, generator)
        actions["executor"][..., 1] = 1.0
        other = {role: rows.copy() for role, rows in actions.items()}
        resting = ~infos["active"]["executor"].numpy()
        other["executor"][resting] = -1.0
        differed += int(resting.sum())
        first, (*second, infos) = one.step(actions), two.step(other)
        for mine, theirs in zip(first, second, strict=False):
            assert_equal(mine, theirs)
    assert differed > 50 and torch.equal(one.simulator.bid, two.simulator.bid)


def test_autoreset_modes_across_the_boundary():
    same, following, disabled = (
        make(autoreset_mode=mode, block_qty=5) for mode in ("same_step", "next_step", "disabled")
    )
    for envs in (same, following, disabled):
        envs.reset(seed=3)
    generator = np.random.default_rng(4)
    for t in range(36):
        actions = draw(same, generator)
        wanted = disabled.step(actions)
        got = same.step(actions)
        for mine, theirs in zip(got[1:4], wanted[1:4], strict=True):
            assert_equal(mine, theirs)
        assert_equal(got[4]["final_obs"], wanted[0])
        played = following.step(actions)
        for mine, theirs in zip(played[:4], wanted[:4], strict=True):
            assert_equal(mine, theirs)
        over = disabled.core.tensors["done"].clone()
        assert torch.equal(got[4]["_final_obs"], over) and torch.equal(following.core.tensors["done"], over)
        if over.any():
            assert bool(over.all()) and t % 12 == 11  # all have the same horizon
            with pytest.raises(gym.error.ResetNeeded, match="market 0: its episode has ended"):
                disabled.step(actions)
            fresh, infos = disabled.reset(options={"reset_mask": over})
            assert_equal(got[0], fresh)
            assert bool(flat(infos["active"]).all())
            between = following.step(actions)  # whose actions are ignored
            assert_equal(between[0], fresh)
            assert not flat(between[1]).any() and not flat(between[2]).any() and not flat(between[3]).any()
            assert bool(flat(between[4]["active"]).all())
        else:
            assert_equal(got[0], wanted[0])


def test_stagger_spreads_first_episodes():
    envs = make(64, stagger=True, horizon=40)
    observation, _ = envs.reset(seed=2)
    assert len(observation["maker"][:, 0, 32].unique()) > 20
    ends = torch.zeros(64)
    for _ in range(40):
        ends += envs.step(draw(envs, np.random.default_rng(1)))[4]["_final_obs"]
    assert ends.tolist() == [1.0] * 64


def test_a_market_that_stopped_in_its_first_decision_has_no_final_observation():
    """As on CUDA, where nothing raises."""
    envs = make(2, {"maker": 1}, engine="numpy")
    envs.reset(seed=1)
    envs.simulator.tensors["error"][0] = 1
    infos = envs.step(draw(envs, np.random.default_rng(1)))[4]
    assert infos["_final_obs"].tolist() == [False, False] and envs.core.tensors["elapsed"].tolist() == [0, 1]


# Memory, state, settings ----------------------------------------------------------------------------------------------


@both_actions
@pytest.mark.parametrize("markets", [1, 6])
def test_replay_on_both_engines_and_from_a_checkpoint(action_type, markets):
    envs, other = (make(markets, action_type=action_type, engine=name, config=FEW_ORDERS) for name in ("cpu", "numpy"))
    envs.reset(seed=9)
    generator = np.random.default_rng(0)
    for _ in range(9):
        envs.step(draw(envs, generator))
    saved = envs.state_dict()
    assert saved["ended"].any() or markets == 1
    other.load_state_dict(saved)  # without a reset before
    for _ in range(9):
        actions = draw(envs, generator)
        first, second = envs.step(actions), other.step(actions)
        for mine, theirs in zip(first[:4], second[:4], strict=True):
            assert_equal(mine, theirs)
        assert_equal(first[4]["active"], second[4]["active"])
        assert torch.equal(envs.state(), other.state())


@pytest.mark.parametrize("copy", [True, False])
def test_copy(copy):
    envs = make(copy=copy)
    envs.reset(seed=1)
    actions = {role: torch.from_numpy(rows) for role, rows in draw(envs, np.random.default_rng(0)).items()}
    first, second = envs.step(actions), envs.step(actions)
    flat_results = [[*result[:4], result[4]["active"], result[4]["final_obs"]] for result in (first, second)]
    for one, two in zip(*flat_results, strict=True):
        for role in one:
            assert (one[role].data_ptr() == two[role].data_ptr()) is not copy
    assert (first[4]["_final_obs"].data_ptr() == second[4]["_final_obs"].data_ptr()) is not copy


def test_set_task_changes_the_rewards_of_the_roles_it_concerns():
    plain, changed = make(16, autoreset_mode="disabled"), make(16, autoreset_mode="disabled")
    generator = np.random.default_rng(1)
    plain.reset(seed=1)
    changed.reset(seed=1)
    changed.set_task(execution_reward="risk_averse", risk_aversion=3.0)
    actions = draw(plain, generator)
    one, two = plain.step(actions)[1], changed.step(actions)[1]
    left = 1 - plain.simulator.inventory[:, 5:6].abs() / 10
    np.testing.assert_allclose(one["executor"] - two["executor"], 0.3 * left**2, rtol=1e-5, atol=1e-6)
    del one["executor"], two["executor"]
    assert_equal(one, two)
    with pytest.raises(
        ValueError, match="set_task: expected one of reward, execution_reward.*got the field 'block_qty'"
    ):
        changed.set_task(block_qty=3)


# Wrong inputs ---------------------------------------------------------------------------------------------------------


def test_bad_actions_leave_the_state_untouched():
    envs = make(2, {"maker": 1, "noise": 2})
    envs.reset(seed=1)
    before = envs.state_dict()
    good = draw(envs, np.random.default_rng(0))
    for wrong, error, match in (
        (None, TypeError, "actions: expected a dict with one entry for each of.*got NoneType"),
        (good["maker"], TypeError, "actions: expected a dict.*got ndarray"),
        ({"maker": good["maker"]}, ValueError, r"missing or unknown roles \['noise'\]"),
        ({**good, "trader": good["noise"]}, ValueError, r"missing or unknown roles \['trader'\]"),
        (
            {**good, "noise": good["noise"][:, :1]},
            ValueError,
            r"actions\['noise'\]: expected .*got float32 \[2, 1, 2\]",
        ),
        ({**good, "noise": good["noise"].astype(int)}, TypeError, r"actions\['noise'\]: expected .*, got int64"),
        ({**good, "noise": good["noise"] * np.nan}, ValueError, r"actions\['noise'\]\[0, 0, 0\]: expected .*, got nan"),
        (
            {**good, "maker": torch.zeros(2, 1, 4).double()},
            TypeError,
            r"actions\['maker'\]: expected .*, got torch.float64",
        ),
    ):
        with pytest.raises(error, match=match):
            envs.step(wrong)
    for name, value in envs.state_dict().items():
        assert torch.equal(before[name], value), name


def test_bad_resets():
    envs = make(2, {"maker": 1})
    actions = {"maker": np.zeros((2, 1, 4), np.float32)}
    with pytest.raises(gym.error.ResetNeeded, match="never reset"):
        envs.step(actions)
    with pytest.raises(gym.error.ResetNeeded, match="first reset"):
        envs.reset(options={"reset_mask": np.ones(2, bool)})
    with pytest.raises(TypeError, match="seed: expected an int, or 2 of them, got 'a'"):
        envs.reset(seed="a")
    with pytest.raises(gym.error.ResetNeeded, match="never reset"):  # that was no reset
        envs.step(actions)
    envs.reset()
    first = envs.simulator.tensors["seed"].clone()
    assert bool((first != 0).all())
    with pytest.raises(ValueError, match="options: .*got the unknown key 'mask'"):
        envs.reset(options={"mask": 1})
    envs.step(actions)


@pytest.mark.parametrize(
    ("num_envs", "learners", "kwargs", "error", "match"),
    [
        (0, ALL, {}, ValueError, "num_envs: expected .*, got 0"),
        ("2", ALL, {}, TypeError, "num_envs: expected .*, got '2'"),
        (2, {}, {}, ValueError, "learners: expected 1 to 32 in all, got 0"),
        (2, {"maker": 12}, {}, ValueError, r"learners\['maker'\]: expected up to 11.*got 12"),
        (2, ["maker"], {}, TypeError, "learners: .*got"),
        (2, ALL, {"copy": 1}, TypeError, "copy: .*got 1"),
        (2, ALL, {"autoreset_mode": "never"}, ValueError, "autoreset_mode: expected .*, got 'never'"),
        (2, ALL, {"output": "numpy"}, TypeError, "got the unknown argument 'output'"),
        (2, ALL, {"block_qty": 41}, ValueError, "block_qty: expected up to the config's inventory_limit, 40, got 41"),
        (
            2,
            ALL,
            {"config": ks.MarketConfig.preset("trading", max_quote_qty=2)},
            ValueError,
            "forced_qty: expected .*, got 4",
        ),
    ],
)
def test_bad_arguments(num_envs, learners, kwargs, error, match):
    with pytest.raises(error, match=match):
        make(num_envs, learners, **kwargs)
