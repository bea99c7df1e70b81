"""The torch wrappers: Gymnasium's and SB3's own results where theirs work, all autoreset modes, no synchronisation."""

import copy

import gymnasium as gym
import gymnasium.wrappers.vector as theirs
import numpy as np
import pytest
import torch
from adapter_helpers import IDS, MAKER, SMALL, actions_of, assert_bits
from thorough import covering
from torch.utils._python_dispatch import TorchDispatchMode

from kineticsim_env.wrappers import (
    NormalizeObservation,
    NormalizeReward,
    RecordEpisodeStatistics,
    RunningMeanStd,
    StackObservation,
)

MODES = ["same_step", "next_step", "disabled"]


def make(output="torch", num_envs=5, name=MAKER, **arguments):
    return gym.make_vec(name, num_envs=num_envs, output=output, **{**SMALL, **arguments})


def play(envs, actions, seed=2):
    """Observations (the reset's first), and rewards, flags and infos of steps; DISABLED resets what has ended."""
    observation, _ = envs.reset(seed=seed)
    observations, rest = [observation], []
    torch_output = isinstance(observation, torch.Tensor)
    for t, action in enumerate(actions):
        observation, *results = envs.step(torch.from_numpy(action) if torch_output else action)
        observations.append(observation)
        rest.append(copy.deepcopy(results))  # Gymnasium's statistics write to what they returned
        ended = results[1] | results[2]
        if envs.unwrapped.autoreset_mode.name == "DISABLED" and ended.any() and t + 1 < len(actions):
            observations[-1], _ = envs.reset(options={"reset_mask": np.asarray(ended)})
    return observations, rest


# Episode statistics ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", IDS)
def test_statistics_are_gymnasiums(mode, name):
    ours = RecordEpisodeStatistics(make(autoreset_mode=mode, name=name))
    reference = theirs.RecordEpisodeStatistics(make("numpy", autoreset_mode=mode, name=name))
    actions = actions_of(ours, 20)
    episodes, total = 0, 0.0
    for (*_, mine), (*_, other) in zip(play(ours, actions)[1], play(reference, actions)[1], strict=True):
        if "episode" not in other:
            assert not mine["_episode"].any() and not mine["episode"]["r"].any() and not mine["episode"]["l"].any()
            continue
        assert_bits(mine["_episode"], other["_episode"])
        assert_bits(mine["episode"]["r"], other["episode"]["r"])
        assert_bits(mine["episode"]["l"], other["episode"]["l"])
        episodes, total = episodes + int(other["_episode"].sum()), total + other["episode"]["r"].sum()
    assert episodes >= 10
    summary = ours.summary()
    assert summary["episodes"] == episodes == reference.episode_count
    assert summary["return"] == pytest.approx(total / episodes)
    assert summary["return_std"] == pytest.approx(np.std(reference.return_queue), abs=1e-6)
    assert summary["length"] == pytest.approx(np.mean(reference.length_queue))
    assert ours.summary()["episodes"] == 0 and np.isnan(ours.summary()["return"])


def test_an_episode_that_stands_still_is_counted_once():
    """On a GPU a step under DISABLED goes past ended markets and repeats their flags."""
    envs = RecordEpisodeStatistics(make(autoreset_mode="disabled", stagger=False))
    envs.reset(seed=1)
    zeros, ones = torch.zeros(5, 4), torch.ones(5, dtype=torch.bool)
    for _ in range(6):
        envs.step(zeros)
    assert envs.summary()["episodes"] == 5
    envs.env.step = lambda actions: (zeros, torch.zeros(5), ~ones, ones, {})
    infos = envs.step(zeros)[4]
    assert not infos["_episode"].any() and not infos["episode"]["l"].any() and envs.summary()["episodes"] == 0


def test_a_reset_begins_anew():
    envs = RecordEpisodeStatistics(make(stagger=False))
    envs.reset(seed=1)
    envs.step(torch.ones(5, 4))
    mask = torch.tensor([True, False, False, False, True])
    envs.reset(options={"reset_mask": mask})
    assert_bits(envs.episode_lengths == 0, mask.numpy())
    envs.reset()
    assert not envs.episode_lengths.any() and not envs.episode_returns.any()


# Normalisation --------------------------------------------------------------------------------------------------------


def test_running_statistics_of_batches_are_those_of_all_rows():
    rows = torch.randn(100, 3) * torch.tensor([1.0, 10.0, 0.1]) + torch.tensor([0.0, 1000.0, -1.0])
    keep = torch.rand(100) < 0.6
    statistics, masked = (RunningMeanStd((3,), torch.device("cpu"), epsilon=1e-12) for _ in range(2))
    for first, last in ((0, 1), (1, 40), (40, 41), (41, 100)):
        statistics.update(rows[first:last])
        masked.update(rows[first:last], keep[first:last])
    masked.update(rows, torch.zeros(100, dtype=torch.bool))  # nothing
    for found, wanted in ((statistics, rows), (masked, rows[keep])):
        torch.testing.assert_close(found.mean, wanted.double().mean(0), rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(found.var, wanted.double().var(0, correction=0), rtol=1e-9, atol=1e-9)
        assert float(found.count) == pytest.approx(len(wanted))


def test_observations_are_gymnasiums():
    """Theirs works under NEXT_STEP only, and keeps its statistics in float32."""
    ours = NormalizeObservation(make(autoreset_mode="next_step"), clip=None)
    reference = theirs.NormalizeObservation(make("numpy", autoreset_mode="next_step"))
    actions = actions_of(ours, 40)
    mine, other = play(ours, actions)[0], play(reference, actions)[0]
    for one, two in zip(mine, other, strict=True):
        np.testing.assert_allclose(one.numpy(), two, rtol=2e-3, atol=2e-3)
        assert one.dtype == torch.float32
    np.testing.assert_allclose(ours.statistics.mean.numpy(), reference.obs_rms.mean, rtol=1e-4, atol=1e-6)
    assert float(ours.statistics.count) == pytest.approx(reference.obs_rms.count)


@pytest.mark.parametrize("mode", MODES)
def test_observations_in_every_mode(mode):
    envs, plain = NormalizeObservation(make(autoreset_mode=mode), clip=5.0), make(autoreset_mode=mode)
    actions = actions_of(envs, 20)
    (mine, rest), (raw, raw_rest) = play(envs, actions), play(plain, actions)
    assert all(envs.observation_space.contains(row.numpy()) for row in mine)
    for t, (row, (*_, infos), (*_, raw_infos)) in enumerate(zip(raw[1:], rest, raw_rest, strict=True)):
        if mode == "same_step":
            assert infos["final_obs"].shape == (5, 39)
            running = ~infos["_final_obs"]
            assert_bits(infos["final_obs"][running], mine[t + 1][running])
            assert_bits(raw_infos["_final_obs"], infos["_final_obs"])
            if infos["_final_obs"].any():
                assert (infos["final_obs"] != raw_infos["final_obs"]).any()
        else:
            assert infos == {}
        assert row.shape == mine[t + 1].shape
    if mode == "same_step":  # what the policy saw, and no more
        rows = torch.cat(raw).double()
        torch.testing.assert_close(envs.statistics.mean, rows.mean(0), rtol=1e-4, atol=1e-5)
        assert float(envs.statistics.count) == pytest.approx(len(rows), abs=1e-3)
    envs.update_running_mean = False
    saved = envs.state_dict()
    play(envs, actions)
    assert all(torch.equal(saved[name], value) for name, value in envs.state_dict().items())


def test_rewards_are_gymnasiums_and_sb3s():
    actions = None
    # Under NEXT_STEP Gymnasium's carries an episode's return on into the next one.
    for arguments in (
        {"autoreset_mode": "same_step"},
        {"autoreset_mode": "next_step", "stagger": False, "horizon": 300},
    ):
        ours, reference = NormalizeReward(make(**arguments)), theirs.NormalizeReward(make("numpy", **arguments))
        actions = actions_of(ours, 30)
        for mine, other in zip(play(ours, actions)[1], play(reference, actions)[1], strict=True):
            np.testing.assert_allclose(mine[0].numpy(), other[0], rtol=1e-5, atol=1e-6)
            assert mine[0].dtype == torch.float32
        assert float(ours.statistics.var) == pytest.approx(float(reference.return_rms.var))
    # With terminations too, where Gymnasium's drops the return of the episode one step early.
    pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.vec_env import VecNormalize

    from kineticsim_env.adapters.sb3 import SB3VecEnv

    ours = NormalizeReward(make(max_loss=5.0, horizon=12), clip=10.0)
    reference = VecNormalize(SB3VecEnv(make("numpy", max_loss=5.0, horizon=12)), norm_obs=False)
    reference.seed(2)
    reference.reset()
    rest = play(ours, actions)[1]
    assert sum(int(terminated.sum()) for _, terminated, *_ in rest) > 2
    for (mine, *_), action in zip(rest, actions, strict=True):
        np.testing.assert_allclose(mine.numpy(), reference.step(action)[1], rtol=1e-5, atol=1e-6)


# Features of earlier decisions ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", [1, 2, 4])
def test_stacked_features_are_those_of_the_decisions_before(mode, size):
    """By hand from the plain environment's observations: newest first, 0 before an episode began."""
    places = [22, 30]
    envs, plain = StackObservation(make(autoreset_mode=mode), size, places), make(autoreset_mode=mode)
    width = plain.single_observation_space.shape[0]
    past = [[] for _ in range(5)]  # of each market, what its episode has shown, newest first
    resets, finals = 0, 0

    def expected(row, m):
        shown = [one[places] for one in past[m][: size - 1]]
        return np.concatenate([row, *shown, np.zeros(2 * (size - 1 - len(shown)))]).astype(np.float32)

    now = plain.reset(seed=2)[0].clone().numpy()
    seen = envs.reset(seed=2)[0]
    assert seen.shape == (5, width + 2 * (size - 1)) == envs.observation_space.shape
    over = np.zeros(5, bool)
    for action in actions_of(plain, 40):
        after, _, terminated, truncated, infos = plain.step(torch.from_numpy(action))
        stacked, _, _, _, more = envs.step(torch.from_numpy(action))
        ended = (terminated | truncated).numpy()
        for m in range(5):
            past[m].insert(0, now[m])
            if mode == "same_step" and ended[m]:
                assert np.array_equal(more["final_obs"][m], expected(infos["final_obs"][m].numpy(), m))
                finals += 1
            if (mode == "same_step" and ended[m]) or (mode == "next_step" and over[m]):
                past[m], resets = [], resets + 1
        now, over = after.clone().numpy(), ended
        assert np.array_equal(stacked.numpy(), np.stack([expected(now[m], m) for m in range(5)]))
        assert torch.equal(stacked, envs.observation) and bool(envs.observation_space.contains(stacked.numpy()))
        if mode == "disabled" and ended.any():
            mask = {"reset_mask": ended}
            now = plain.reset(options=mask)[0].clone().numpy()
            again = envs.reset(options=mask)[0]
            for m in np.flatnonzero(ended):
                past[m], resets = [], resets + 1
            assert np.array_equal(again.numpy(), np.stack([expected(now[m], m) for m in range(5)]))
    assert resets >= 5 and (mode != "same_step" or finals)


def test_stacked_observations_are_saved_and_cloned():
    envs = StackObservation(make(), 3)
    actions = torch.from_numpy(actions_of(envs, 8))
    envs.reset(seed=1)
    for action in actions[:4]:
        envs.step(action)
    other, clone = StackObservation(make(), 3), envs.clone()
    other.reset(seed=9)
    other.load_state_dict(envs.state_dict())
    for action in actions[4:]:
        row = envs.step(action)[0]
        assert torch.equal(other.step(action)[0], row) and torch.equal(clone.step(action)[0], row)
    with pytest.raises((TypeError, ValueError), match="stacked"):
        other.load_state_dict({**envs.state_dict(), "stacked": torch.zeros(5, 3)})
    with pytest.raises(ValueError, match="features: .*got 99"):
        StackObservation(make(), 3, [99])
    with pytest.raises(ValueError, match="size: .*got 0"):
        StackObservation(make(), 0)


def all_of_them(envs):
    return NormalizeReward(NormalizeObservation(StackObservation(RecordEpisodeStatistics(envs), 3, [22, 30])))


WRAPPERS = {
    "statistics": RecordEpisodeStatistics,
    "observations": NormalizeObservation,
    "rewards": NormalizeReward,
    "stacked": lambda envs: StackObservation(envs, 3),
    "stacked twice": lambda envs: StackObservation(StackObservation(envs, 2, [22]), 2, [30]),
    "all": all_of_them,
}


def layers_of(envs):
    """The environment, and the wrappers around it from the inside."""
    found = [envs]
    while found[0] is not envs.unwrapped:
        found.insert(0, found[0].env)
    return found


def flat(value):
    """All tensors in nested results and states, by their places."""
    if isinstance(value, dict):
        value = {name: flat(one) for name, one in value.items()}
        return {(name, *place): one for name, part in value.items() for place, one in part.items()}
    if isinstance(value, (list, tuple)):
        return flat(dict(enumerate(value)))
    return {(): value.clone()}


def assert_equal(one, other):
    assert one.keys() == other.keys()
    for place, value in one.items():
        assert torch.equal(value, other[place]), place


def go_on(envs, actions):
    """All that steps return, after ended markets have begun where the environment does not see to it."""
    results = []
    for action in actions:
        done = envs.unwrapped.core.tensors["done"]
        if envs.unwrapped.autoreset_mode.name == "DISABLED" and bool(done.any()):
            results.append(flat(envs.reset(options={"reset_mask": done.clone()})))
        results.append(flat(envs.step(action)))
    return results


@covering
@pytest.mark.parametrize("num_envs", [1, 5])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("wrapper", WRAPPERS, ids=str)
def test_a_state_saved_at_any_step_goes_on(wrapper, mode, num_envs):
    """Ends and resets included; a fresh environment, and one that was elsewhere, take it over."""
    settings = {"autoreset_mode": mode, "num_envs": num_envs, "horizon": 3, "max_loss": 2.0, "account_info": True}

    def fresh():
        return WRAPPERS[wrapper](make(**settings))

    envs, elsewhere = fresh(), fresh()
    actions = torch.from_numpy(actions_of(envs, 9))
    elsewhere.reset(seed=8)
    go_on(elsewhere, actions[:4])
    envs.reset(seed=2)
    expected, saved = [], []
    for action in actions:
        saved.append([layer.state_dict() for layer in layers_of(envs)])
        expected.append(go_on(envs, [action]))
    last = [flat(layer.state_dict()) for layer in layers_of(envs)]
    ends = sum(bool(step[-1][(2,)].any() | step[-1][(3,)].any()) for step in expected)
    assert ends >= 2
    for t, states in enumerate(saved):
        for clone in (fresh(), elsewhere):
            for layer, state in zip(layers_of(clone), states, strict=True):
                layer.load_state_dict(state)
            rest = [result for step in expected[t:] for result in step]
            for one, other in zip(go_on(clone, actions[t:]), rest, strict=True):
                assert_equal(one, other)
            for layer, state in zip(layers_of(clone), last, strict=True):
                assert_equal(flat(layer.state_dict()), state)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("wrapper", ["rewards", "stacked"])
def test_states_of_before_are_read(wrapper, mode):
    """They do not say which episodes had ended, and stacked ones have the environment's names beside their own."""
    envs = WRAPPERS[wrapper](make(autoreset_mode=mode, horizon=3))
    actions = torch.from_numpy(actions_of(envs, 9))
    envs.reset(seed=2)
    for t, action in enumerate(actions):
        of_env, state = envs.env.state_dict(), envs.state_dict()
        del state["ended"]
        if wrapper == "stacked":
            state = {**state.pop("env"), **state}
        clone = WRAPPERS[wrapper](make(autoreset_mode=mode, horizon=3))
        if wrapper == "rewards":
            clone.env.load_state_dict(of_env)
        clone.load_state_dict(state)
        for mine, wanted in zip(go_on(clone, actions[t:]), go_on(envs.clone(), actions[t:]), strict=True):
            assert_equal(mine, wanted)
        go_on(envs, [action])


def test_states_of_something_else_are_refused():
    envs = RecordEpisodeStatistics(make())
    envs.reset(seed=1)
    before = flat(envs.state_dict())
    of_env = envs.env.state_dict()
    with pytest.raises(ValueError, match=r"state\['episode_returns'\]: expected torch.float64 \[5\], got NoneType"):
        envs.load_state_dict(of_env)
    bare = {name: value for name, value in envs.state_dict().items() if name != "env"}
    with pytest.raises(
        ValueError, match=r"state\['env'\]: expected .*RecordEpisodeStatistics.*, got None; .*env.load_state_dict"
    ):
        envs.load_state_dict(bare)
    other = make(num_envs=5, max_offset=7)
    other.reset(seed=3)
    with pytest.raises(ValueError, match="max_offset is 7 there"):
        envs.load_state_dict({**envs.state_dict(), "env": other.state_dict()})
    assert_equal(flat(envs.state_dict()), before)
    with pytest.warns(UserWarning, match="max_offset is 7 there"):
        envs.load_state_dict({**envs.state_dict(), "env": other.state_dict()}, strict=False)
    with pytest.raises(TypeError, match="state_dict: expected environments and wrappers.*got Stranger inside"):
        RecordEpisodeStatistics(Stranger()).state_dict()


class Stranger(gym.vector.VectorEnv):
    """An environment of another make."""

    num_envs, output, device = 2, "torch", torch.device("cpu")
    metadata = {"autoreset_mode": gym.vector.AutoresetMode.SAME_STEP}


def test_states_and_shared_statistics():
    train = NormalizeReward(NormalizeObservation(make()))
    play(train, actions_of(train, 10))
    again = NormalizeReward(NormalizeObservation(make(num_envs=2)))
    again.load_state_dict(train.state_dict())
    again.env.load_state_dict(train.env.state_dict())
    assert torch.equal(again.statistics.var, train.statistics.var) and not again.discounted_return.any()
    test = NormalizeObservation(make(num_envs=2), statistics=train.env.statistics)
    test.update_running_mean = False
    raw = make(num_envs=2).reset(seed=3)[0]
    for envs in (test, again.env):
        envs.update_running_mean = False
        assert_bits(envs.reset(seed=3)[0], train.env.normalize(raw))
    with pytest.raises(ValueError, match=r"state\['mean'\]: expected torch.float64 \[39\].*got .* \[2\] on cpu"):
        test.load_state_dict({**train.env.state_dict(), "mean": torch.zeros(2, dtype=torch.float64)})
    with pytest.raises(TypeError, match="state: .*got list"):
        test.load_state_dict([])


def test_what_they_refuse():
    for wrapper in (RecordEpisodeStatistics, NormalizeObservation, NormalizeReward):
        with pytest.raises(
            ValueError,
            match=f"{wrapper.__name__}: expected output='torch' .*gymnasium.wrappers.vector.*, got .* output 'numpy'",
        ):
            wrapper(make("numpy"))
    for arguments in ({"epsilon": 0}, {"clip": -1.0}, {"clip": float("nan")}):
        for wrapper in (NormalizeObservation, NormalizeReward):
            with pytest.raises(ValueError, match=f"{next(iter(arguments))}: .*got"):
                wrapper(make(), **arguments)
    with pytest.raises(ValueError, match="gamma: .*got 2"):
        NormalizeReward(make(), gamma=2)
    envs = RecordEpisodeStatistics(RecordEpisodeStatistics(make()))
    envs.reset()
    with pytest.raises(ValueError, match="stats_key: .*got 'episode'"):
        envs.step(torch.zeros(5, 4))


class _NoSynchronisation(TorchDispatchMode):
    """Refuses the operations that make the host wait for a GPU."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.name().partition(".")[0]
        if name in ("aten::_local_scalar_dense", "aten::item", "aten::nonzero", "aten::equal", "aten::masked_select"):
            raise AssertionError(f"{name} waits for the device")
        if name in ("aten::index", "aten::index_put_") and any(
            index is not None and index.dtype == torch.bool for index in args[1]
        ):
            raise AssertionError(f"{name} with a mask waits for the device")
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("mode", ["same_step", "next_step"])
def test_a_step_does_not_synchronise_and_writes_in_place(mode):
    envs = make(autoreset_mode=mode, copy=False)
    statistics = RecordEpisodeStatistics(envs)
    observation = NormalizeObservation(statistics)
    stacked = StackObservation(observation, 3)
    envs = NormalizeReward(stacked)
    envs.reset(seed=1)
    kept = [statistics.episode_returns, statistics.episode_lengths, observation.statistics.mean, envs.statistics.var]
    places = [tensor.data_ptr() for tensor in (*kept, envs.discounted_return, stacked.observation)]
    actions = torch.zeros(5, 4)
    result = envs.unwrapped.step(actions)  # the C++ engine looks at its values; of the GPU, tests/test_env_gpu.py sees
    envs.unwrapped.step = lambda actions: result
    with _NoSynchronisation():
        for _ in range(10):
            envs.step(actions)
    kept = [statistics.episode_returns, statistics.episode_lengths, observation.statistics.mean, envs.statistics.var]
    assert places == [tensor.data_ptr() for tensor in (*kept, envs.discounted_return, stacked.observation)]


def test_the_guard_sees_synchronisation():
    for bad in (lambda x: x.sum().item(), lambda x: x[x > 0], lambda x: bool(x.any())):
        with pytest.raises(AssertionError, match="waits for the device"), _NoSynchronisation():
            bad(torch.ones(3))


# Gymnasium's own ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", IDS)
def test_gymnasiums_wrappers_and_spec(name):
    """`ArrayConversion` of torch output, their statistics on top of it, and `make_vec` of the spec."""
    pytest.importorskip("array_api_compat")
    converted = theirs.ArrayConversion(make(name=name), env_xp=torch, target_xp=np)
    envs, plain = theirs.RecordEpisodeStatistics(converted), theirs.RecordEpisodeStatistics(make("numpy", name=name))
    actions = actions_of(plain, 15)
    (observations, rest), (wanted, wanted_rest) = play(envs, actions), play(plain, actions)
    for mine, other in zip(observations, wanted, strict=True):
        assert_bits(mine, other)
    for mine, other in zip(rest, wanted_rest, strict=True):
        for one, two in zip(mine[:3], other[:3], strict=True):
            assert_bits(one, two)
        assert set(mine[3]) == set(other[3])
    assert envs.episode_count == plain.episode_count >= 5
    assert list(envs.return_queue) == list(plain.return_queue)
    again = gym.make_vec(envs.spec)
    assert again.unwrapped.output == "torch" and again.num_envs == 5
    assert_bits(again.reset(seed=2)[0], observations[0])


# Gymnasium's own ------------------------------------------------------------------------------------------------------


OF_OBSERVATIONS = {
    "NormalizeObservation": theirs.NormalizeObservation,
    "TransformObservation": lambda envs: theirs.TransformObservation(envs, lambda rows: rows * 2),
    "RescaleObservation": lambda envs: theirs.RescaleObservation(envs, 0, 1),
    "FlattenObservation": theirs.FlattenObservation,
    "ReshapeObservation": lambda envs: theirs.ReshapeObservation(envs, (39, 1)),
    "DtypeObservation": lambda envs: theirs.DtypeObservation(envs, np.float64),
}
OF_THE_REST = {
    "RecordEpisodeStatistics": theirs.RecordEpisodeStatistics,
    "NormalizeReward": theirs.NormalizeReward,
    "ClipReward": lambda envs: theirs.ClipReward(envs, -1, 1),
    "TransformReward": lambda envs: theirs.TransformReward(envs, lambda rewards: rewards * 2),
    "ClipAction": theirs.ClipAction,
    "RescaleAction": lambda envs: theirs.RescaleAction(envs, np.float32(-2), np.float32(2)),
    "DictInfoToList": theirs.DictInfoToList,
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("output", ["numpy", "torch"])
@pytest.mark.parametrize("name", OF_OBSERVATIONS | OF_THE_REST, ids=str)
def test_which_of_gymnasiums_wrappers_work(name, output, mode):
    """As docs/libraries.md says; torch output is converted."""
    envs = make(output, autoreset_mode=mode)
    if output == "torch":
        envs = theirs.ArrayConversion(envs, env_xp=torch, target_xp=np)
    refused = {"same_step"} if name in OF_OBSERVATIONS else set()
    if name == "NormalizeObservation":
        refused.add("disabled")
    if mode in refused:
        with pytest.raises(ValueError, match=r"[Ee]xpected .*autoreset_mode"):
            (OF_OBSERVATIONS | OF_THE_REST)[name](envs)
        return
    wrapped = (OF_OBSERVATIONS | OF_THE_REST)[name](envs)
    observations, rest = play(wrapped, actions_of(wrapped, 8))
    assert len(rest) == 8 and all(len(rows) == 5 for rows in observations)
