"""The vector environment: autoreset modes across the boundary, seeds, warm starts, checks, resume, wrappers."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from env_helpers import Work
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import RecordEpisodeStatistics

import kineticsim_env as ks
from kineticsim_env.envs.vector import ExecutionVectorEnv, MarketMakingVectorEnv, TradingVectorEnv

ID = "KineticSim/MarketMaking-v0"
SMALL = {"engine": "cpu", "horizon": 6, "bank_size": 16, "warmup": 20}


def make(num_envs=4, kind=MarketMakingVectorEnv, **kwargs):
    return kind(num_envs, **{**SMALL, **kwargs})


def random_actions(steps, num_envs=4, seed=0):
    """Continuous actions [T, M, 4]."""
    return np.random.default_rng(seed).uniform(-1, 1, (steps, num_envs, 4)).astype(np.float32)


def play(envs, actions, **reset):
    """Observations of the reset and the steps, then rewards and flags, each [T, M, ...]."""
    observations, rest = [envs.reset(**reset)[0]], []
    for action in actions:
        observation, *results, _ = envs.step(action)
        observations.append(observation)
        rest.append(results)
    return np.stack(observations), *(np.stack(column) for column in zip(*rest, strict=True))


def assert_bits(first, second):
    np.testing.assert_array_equal(np.asarray(first), np.asarray(second))
    assert np.asarray(first).dtype == np.asarray(second).dtype


# Interface ------------------------------------------------------------------------------------------------------------


every_task = pytest.mark.parametrize(
    ("kind", "size"), [(MarketMakingVectorEnv, 4), (ExecutionVectorEnv, 2), (TradingVectorEnv, 2)]
)


@every_task
@pytest.mark.parametrize("output", ["numpy", "torch"])
@pytest.mark.parametrize("action_type", ["continuous", "discrete"])
@pytest.mark.parametrize("markets", [1, 3])
def test_shapes_dtypes_and_spaces(kind, size, output, action_type, markets):
    envs = make(markets, kind, output=output, action_type=action_type)
    observation, infos = envs.reset(seed=1)
    assert infos == {}
    assert envs.observation_space.contains(np.asarray(observation))
    actions = envs.action_space.sample()
    observation, reward, terminated, truncated, infos = envs.step(
        torch.from_numpy(actions) if output == "torch" else actions
    )
    array = torch.Tensor if output == "torch" else np.ndarray
    for value, shape, dtype in (
        (observation, (markets, 39), "float32"),
        (reward, (markets,), "float32"),
        (terminated, (markets,), "bool"),
        (truncated, (markets,), "bool"),
        (infos["final_obs"], (markets, 39), "float32"),
        (infos["_final_obs"], (markets,), "bool"),
    ):
        assert isinstance(value, array) and tuple(value.shape) == shape and str(value.dtype).endswith(dtype)
    assert envs.single_action_space.shape == (() if action_type == "discrete" else (size,))
    assert envs.fills.shape == (markets, 2) and envs.simulator.inventory.shape == (markets, 1)
    envs.close()
    envs.close()


@pytest.mark.parametrize("task", ["MarketMaking", "Execution", "Trading"])
def test_make_vec_makes_every_task(task):
    envs = gym.make_vec(f"KineticSim/{task}-v0", num_envs=3, **SMALL)
    assert type(envs).__name__ == f"{task}VectorEnv" and type(envs.core.task).__name__ == f"{task}Task"
    wrapped = RecordEpisodeStatistics(envs)
    wrapped.reset(seed=1)
    episodes = sum(
        int(wrapped.step(wrapped.action_space.sample())[4].get("_episode", np.zeros(1)).sum()) for _ in range(20)
    )
    assert episodes >= 9


@every_task
@pytest.mark.parametrize("markets", [1, 3])
def test_market_m_of_every_task_is_the_single_environment(kind, size, markets):
    actions = random_actions(20, markets)[..., :size]
    envs = make(markets, kind, stagger=False)
    envs.reset(seed=40)
    steps = [envs.step(action) for action in actions]
    for m in range(markets):
        single = gym.make(f"KineticSim/{kind.__name__.removesuffix('VectorEnv')}-v0", **SMALL).unwrapped
        single.reset(seed=40 + m)
        for action, (observation, reward, terminated, truncated, infos) in zip(actions, steps, strict=True):
            mine = single.step(action[m])
            assert_bits(mine[0], infos["final_obs"][m])
            assert mine[1:4] == (reward[m], terminated[m], truncated[m])
            if terminated[m] or truncated[m]:
                assert_bits(single.reset()[0], observation[m])


def test_make_vec_and_its_spec():
    envs = gym.make_vec(ID, num_envs=3, **SMALL, autoreset_mode="DISABLED", output="torch")
    assert isinstance(envs, MarketMakingVectorEnv)
    again = gym.make_vec(envs.spec)
    assert again.num_envs == 3 and again.output == "torch" and again.core.task == envs.core.task
    assert again.autoreset_mode is again.metadata["autoreset_mode"] is AutoresetMode.DISABLED
    assert MarketMakingVectorEnv.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert gym.make_vec(ID, num_envs=2, engine="cpu", max_episode_steps=9).core.task.horizon == 9


def test_observations_stay_in_their_space():
    for kwargs in ({}, {"inventory_limit": None, "max_qty": 500}, {"max_offset": 300, "auctions_per_step": 3}):
        envs = make(8, horizon=50, **kwargs)
        observations = play(envs, random_actions(60, 8), seed=2)[0]
        assert all(envs.observation_space.contains(row) for row in observations)
        assert observations[..., 30].min() < 0 < observations[..., 30].max()


def test_record_episode_statistics():
    envs = RecordEpisodeStatistics(make(3, stagger=False))
    envs.reset(seed=1)
    returns = np.zeros(3)
    for action in random_actions(6, 3):
        _, reward, _, truncated, infos = envs.step(action)
        returns += reward
    assert truncated.all()
    np.testing.assert_allclose(infos["episode"]["r"], returns, rtol=1e-5)
    assert (infos["episode"]["l"] == 6).all()


def test_array_conversion_of_torch_output():
    pytest.importorskip("array_api_compat")
    from gymnasium.wrappers.vector import ArrayConversion

    envs = ArrayConversion(make(3, output="torch"), env_xp=torch, target_xp=np)
    plain = make(3)
    assert_bits(envs.reset(seed=4)[0], plain.reset(seed=4)[0])
    for action in random_actions(8, 3):
        for first, second in zip(envs.step(action)[:4], plain.step(action)[:4], strict=True):
            assert_bits(first, second)


# Episodes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "kwargs"),
    [
        (MarketMakingVectorEnv, {}),
        (TradingVectorEnv, {"max_loss": 10.0}),
        (ExecutionVectorEnv, {"block_qty": 12}),
        (ExecutionVectorEnv, {"block_qty": 12, "randomise": {"noise_spread": (6, 20)}, "num_scenarios": 3}),
    ],
)
def test_autoreset_modes_across_the_boundary(kind, kwargs):
    """What DISABLED shows, step by step, is what the other modes must show around their resets."""
    actions = random_actions(20)[..., : 4 if kind is MarketMakingVectorEnv else 2]
    same, following, disabled = (
        make(kind=kind, autoreset_mode=mode, **kwargs) for mode in ("same_step", "next_step", "disabled")
    )
    start = [envs.reset(seed=7)[0] for envs in (same, following, disabled)]
    assert_bits(start[0], start[2])
    assert_bits(start[1], start[2])

    # DISABLED, reset at once where an episode ended: the sequence of every market, as (obs, reward, flags, reset obs).
    steps, resets = [], 0
    for action in actions:
        observation, reward, terminated, truncated, infos = disabled.step(action)
        assert infos == {}
        ended = terminated | truncated
        fresh = observation
        if ended.any():
            resets += int(ended.sum())
            fresh, _ = disabled.reset(options={"reset_mask": ended})
            assert_bits(fresh[~ended], observation[~ended])
            assert (fresh[ended] != observation[ended]).any(axis=1).all()
            assert (fresh[ended, 32] == 1).all()
        steps.append((observation, reward, terminated, truncated, fresh))
    assert resets >= 8

    for action, (observation, reward, terminated, truncated, fresh) in zip(actions, steps, strict=True):
        got = same.step(action)
        assert_bits(got[0], fresh)
        for mine, theirs in zip(got[1:4], (reward, terminated, truncated), strict=True):
            assert_bits(mine, theirs)
        assert_bits(got[4]["final_obs"], observation)
        assert_bits(got[4]["_final_obs"], terminated | truncated)

    # NEXT_STEP: each market plays the same, with a step between episodes whose action is ignored.
    place = np.zeros(4, dtype=int)
    waiting = np.zeros(4, dtype=bool)
    for _ in range(20):
        action = np.stack([actions[place[m], m] for m in range(4)])
        action[waiting] = 1.0
        observation, reward, terminated, truncated, infos = following.step(action)
        assert infos == {}
        for m in range(4):
            if waiting[m]:
                assert_bits(observation[m], steps[place[m] - 1][4][m])
                assert reward[m] == 0 and not terminated[m] and not truncated[m]
                waiting[m] = False
            else:
                wanted = steps[place[m]]
                for mine, theirs in zip((observation, reward, terminated, truncated), wanted, strict=False):
                    assert_bits(mine[m], theirs[m])
                waiting[m] = terminated[m] or truncated[m]
                place[m] += 1


def test_stagger_spreads_the_first_episodes_only():
    envs = make(64, horizon=40)
    observation, _ = envs.reset(seed=3)
    assert len(np.unique(observation[:, 32])) > 20
    assert (make(64, horizon=40, stagger=False).reset(seed=3)[0][:, 32] == 1).all()
    ends = [0] * 64
    for t in range(80):
        truncated = envs.step(np.zeros((64, 4), np.float32))[3]
        for m in np.flatnonzero(truncated):
            if ends[m]:
                assert t - ends[m] == 40  # whole episodes from the second on
            ends[m] = t
    assert (envs.reset()[0][:, 32] == 1).all()  # and none after a reset without a seed


def test_max_loss_terminates():
    envs = make(16, horizon=200, max_loss=20.0, stagger=False, reward="pnl", reward_scale=1.0)
    envs.reset(seed=1)
    total, terminations = np.zeros(16), 0
    for action in random_actions(60, 16):
        _, reward, terminated, truncated, infos = envs.step(action)
        total += reward
        assert not truncated.any()
        np.testing.assert_array_equal(terminated, total <= -20)
        np.testing.assert_array_equal(infos["_final_obs"], terminated)
        terminations += int(terminated.sum())
        total[terminated] = 0
    assert terminations > 3


def test_rewards_add_up_to_marked_value():
    envs = make(8, horizon=50, stagger=False, reward="pnl", reward_scale=4.0, autoreset_mode="disabled")
    rewards = play(envs, random_actions(50, 8), seed=5)[1]
    simulator = envs.simulator
    value = simulator.cash[:, 0] + simulator.inventory[:, 0] * simulator.fundamental_price
    np.testing.assert_allclose(rewards.astype(np.float64).sum(axis=0) * 4, value.numpy(), rtol=1e-5, atol=1e-3)
    penalised = make(8, horizon=50, stagger=False, reward="inventory", reward_scale=4.0, inventory_penalty=0.5)
    observation, with_penalty, *_ = play(penalised, random_actions(50, 8)[:49], seed=5)
    inventory = np.rint(observation[1:, :, 30] * 40)
    np.testing.assert_allclose(rewards[:49] - with_penalty, inventory**2 * 0.5 / 4, rtol=1e-3, atol=1e-3)


# Seeds ----------------------------------------------------------------------------------------------------------------


def test_replay_is_bitwise():
    actions = random_actions(25)
    first = play(make(), actions, seed=9)
    for envs in (make(), make(output="torch")):
        for given in (actions, torch.from_numpy(actions)):
            for one, two in zip(first, play(envs, given, seed=9), strict=True):
                assert_bits(one, two)
    assert (first[0] != play(make(), actions, seed=10)[0]).any()


def test_a_reset_without_a_seed_goes_on():
    envs = make(stagger=False)
    first, _ = envs.reset(seed=9)
    second, _ = envs.reset()
    third, _ = envs.reset()
    assert (first != second).any() and (second != third).any()
    assert_bits(envs.reset(seed=9)[0], first)
    assert_bits(envs.reset()[0], second)
    one, two = make(), make()
    assert (one.reset()[0] != two.reset()[0]).any()  # entropy


def test_rows_do_not_depend_on_the_number_of_markets():
    few, many = play(make(2), random_actions(15, 5)[:, 1:3], seed=21), play(make(5), random_actions(15, 5), seed=20)
    for one, two in zip(few, many, strict=True):
        assert_bits(one, two[:, 1:3])
    seeds = play(make(2), random_actions(15, 5)[:, [4, 0]], seed=[24, 20])
    for one, two in zip(seeds, many, strict=True):
        assert_bits(one, two[:, [4, 0]])


def test_market_m_is_the_single_environment_seeded_s_plus_m():
    actions = random_actions(20, 3)
    envs = make(3, stagger=False, autoreset_mode="disabled", horizon=20)
    together = play(envs, actions, seed=40)
    for m in range(3):
        single = gym.make(ID, **{**SMALL, "horizon": 20}).unwrapped
        assert_bits(single.reset(seed=40 + m)[0], together[0][0, m])
        for t in range(20):
            observation, reward, terminated, truncated, _ = single.step(actions[t, m])
            assert_bits(observation, together[0][t + 1, m])
            assert (reward, terminated, truncated) == tuple(part[t, m] for part in together[1:])


def test_reset_mask_with_seed_and_as_torch():
    envs = make(stagger=False)
    start, _ = envs.reset(seed=5)
    for action in random_actions(3):
        before = envs.step(action)[0]
    mask = np.array([True, False, True, False])
    after, _ = envs.reset(seed=5, options={"reset_mask": torch.from_numpy(mask)})
    assert_bits(after[mask], start[mask])
    assert_bits(after[~mask], before[~mask])
    assert envs.simulator.tensors["episode"].tolist() == [0, 0, 0, 0]
    envs.reset(options={"reset_mask": mask})
    assert envs.simulator.tensors["episode"].tolist() == [1, 0, 1, 0]


# Warm starts ----------------------------------------------------------------------------------------------------------


def test_warm_starts_differ_from_the_opening_book():
    warm, cold = make(32, stagger=False), make(32, stagger=False, bank_size=0)
    warm.reset(seed=1)
    cold.reset(seed=1)
    opening = ks.Simulator(cold.core.simulator.config, 32, engine="cpu", slots=1)
    assert torch.equal(cold.simulator.bid, opening.bid) and torch.equal(cold.simulator.ask, opening.ask)
    books = {tuple(row.tolist()) for row in warm.simulator.bid}
    assert 5 < len(books) <= 16
    bank = ks.Simulator(warm.core.simulator.config, 16, engine="cpu", seed=2**61)
    bank.run(20)
    assert books <= {tuple(row.tolist()) for row in bank.bid}
    assert bool((warm.simulator.t == 0).all() & (warm.simulator.inventory == 0).all())


def test_markets_with_their_own_parameters():
    config = ks.MarketConfig.preset("trading", max_order_qty=[1, 1, 9, 9], noise_spread=[4, 12, 4, 12])
    envs = make(4, config=config, stagger=False, horizon=30)
    envs.reset(seed=1)
    for m in range(4):  # a market draws from four warm starts with its own parameters
        own = ks.MarketConfig.preset(
            "trading", max_order_qty=int(config.max_order_qty[m]), noise_spread=int(config.noise_spread[m])
        )
        bank = ks.Simulator(own, 4, engine="cpu", seed=2**61 + 4 * m)
        bank.run(20)
        assert envs.simulator.bid[m].tolist() in bank.bid.tolist()
    for action in random_actions(20):
        envs.step(action)
    volume = envs.simulator.volume.numpy()
    assert min(volume[2:]) > 2 * max(volume[:2])
    with pytest.raises(ValueError, match="expected num_markets = 3 per-market values, got "):
        make(3, config=config)


def test_multinomial_populations_follow_the_seed():
    config = ks.MarketConfig.preset("trading", population="multinomial")
    envs, other = make(4, config=config), make(4, config=config)
    first = play(envs, random_actions(10), seed=3)
    play(other, random_actions(10), seed=77)
    for one, two in zip(first, play(other, random_actions(10), seed=3), strict=True):
        assert_bits(one, two)


# Memory and state -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("output", ["numpy", "torch"])
def test_copy(output):
    for copy in (True, False):
        envs = make(output=output, copy=copy)
        action = torch.from_numpy(random_actions(1)[0])
        envs.reset(seed=1)
        first, second = envs.step(action), envs.step(action)
        flat = [[*result[:4], result[4]["final_obs"], result[4]["_final_obs"]] for result in (first, second)]
        for one, two in zip(*flat, strict=True):
            assert np.shares_memory(np.asarray(one), np.asarray(two)) is not copy
        for one, two in zip(flat[0], flat[0][1:], strict=False):
            assert not np.shares_memory(np.asarray(one), np.asarray(two))


@pytest.mark.parametrize("mode", ["same_step", "next_step", "disabled"])
@every_task
@pytest.mark.parametrize("markets", [1, 5])
def test_what_a_step_returned_never_changes(kind, size, mode, markets):
    kwargs = {"output": "torch", "autoreset_mode": mode, "stagger": mode != "disabled"}
    envs, live = (make(markets, kind, copy=copy, **kwargs) for copy in (True, False))
    kept = []
    for played in range(6):
        action = torch.from_numpy(random_actions(1, markets, seed=played)[0, :, :size].copy())
        results = [one.step(action) if played else one.reset(seed=2) for one in (envs, live)]
        copies, shown = ([*result[:-1], *result[-1].values()] for result in results)
        for one, two in zip(copies, shown, strict=True):
            assert one.is_contiguous() and torch.equal(one, two)
            for other, _ in kept:
                assert not np.shares_memory(one.numpy(), other.numpy())
            kept.append((one, one.clone()))
    for index, (one, as_it_was) in enumerate(kept):
        assert torch.equal(one, as_it_was)
        versions = [other._version for other, _ in kept[index + 1 :]]
        one.fill_(1)  # nor does it count as a change of another tensor: autograd would refuse to go back through it
        assert [other._version for other, _ in kept[index + 1 :]] == versions


def test_kept_parts_of_a_step_keep_no_others():
    """Of rewards that a trainer keeps, the observations would be 37 times as much memory."""
    envs = make(4, output="torch")
    envs.reset(seed=1)
    *results, infos = envs.step(torch.zeros(4, 4))
    parts = [*results, *infos.values()]
    assert len({part.untyped_storage().data_ptr() for part in parts}) == len(parts) == 6
    for part in parts:
        assert part.untyped_storage().nbytes() == part.nbytes


@pytest.mark.parametrize(
    ("mode", "copy", "copies"), [("same_step", True, 6), ("disabled", True, 5), ("same_step", False, 0)]
)
@every_task
@pytest.mark.parametrize("markets", [1, 4])
def test_a_step_asks_torch_for_little(kind, size, mode, copy, copies, markets):
    """For a copy of each output and no more; on a GPU one kernel makes them all."""
    envs = make(markets, kind, output="torch", autoreset_mode=mode, copy=copy, stagger=False)
    envs.reset(seed=1)
    action = torch.zeros(markets, size)
    envs.step(action)  # the C++ engine looks once how far it is from an overflow
    with Work() as work:
        envs.step(action)
    assert work.operations == ["clone"] * copies


@pytest.mark.parametrize("engine", ["cpu", "numpy"])
def test_a_checkpoint_goes_on_bit_for_bit(engine):
    actions = random_actions(20)
    envs = make()
    envs.reset(seed=6)
    for action in actions[:8]:
        envs.step(action)
    saved = envs.state_dict()
    wanted = [envs.step(action) for action in actions[8:]]
    other = make(engine=engine)
    other.load_state_dict(saved)
    assert torch.equal(other.observation, saved["observation"][:, 0])
    for action, want in zip(actions[8:], wanted, strict=True):
        for one, two in zip(other.step(action)[:4], want[:4], strict=True):
            assert_bits(one, two)
    with pytest.raises(ValueError, match="state\\['elapsed'\\]"):
        other.load_state_dict({**saved, "elapsed": saved["elapsed"] + 100})
    with pytest.raises(ValueError, match="state\\['done'\\]: expected True at the horizon, 6.*got False"):
        other.load_state_dict({**saved, "elapsed": torch.full_like(saved["elapsed"], 6)})
    with pytest.raises(
        ValueError, match="state\\['ended'\\]: expected True for all slots just where 'done' is.*got True"
    ):
        other.load_state_dict({**saved, "ended": ~saved["ended"]})
    with pytest.raises(ValueError, match=r"missing or unknown names \['done'\]"):
        other.load_state_dict({name: value for name, value in saved.items() if name != "done"})


def test_replacing_a_maker_changes_the_market_not_the_random_words():
    added, replaced = make(1, bank_size=0), make(1, bank_size=0, replace="maker")
    assert replaced.simulator.rows["num_maker"][0] == added.simulator.rows["num_maker"][0] - 1
    assert replaced.simulator.rows["first_fundamental"][0] == added.simulator.rows["first_fundamental"][0]


def test_few_markets_with_numpy_output_stay_on_the_cpu():
    assert MarketMakingVectorEnv(2, bank_size=0).simulator.engine_name in ("cpu", "numpy")
