"""Datasets of Minari: what is read back is what was played, episode by episode, whatever the window."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from adapter_helpers import IDS, MAKER, SMALL

import kineticsim_env as ks
from kineticsim_env.wrappers import NormalizeObservation

minari = pytest.importorskip("minari")
pytest.importorskip("h5py")

from kineticsim_env.adapters.minari import RecordDataset  # noqa: E402

every_engine = pytest.mark.parametrize("engine", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))


def make(name=MAKER, num_envs=5, **changes):
    return gym.make_vec(
        name, num_envs=num_envs, output="torch", **{**SMALL, "engine": "cpu", "stagger": False, **changes}
    )


def play(envs, steps, seed=3, reset_at=()):
    """Episodes as lists of their steps, in the order in which they ended, by hand."""
    generator, done = np.random.default_rng(0), []
    seen, _ = envs.reset(seed=seed)
    running = [{"observations": [row.clone()], "actions": [], "rewards": [], "ends": [], "seed": seed + m}
               for m, row in enumerate(seen)]  # fmt: skip
    for t in range(steps):
        if t in reset_at:
            mask = np.array([True] + [False] * (envs.num_envs - 1))
            seen, _ = envs.reset(options={"reset_mask": mask})
            running[0] = {"observations": [seen[0].clone()], "actions": [], "rewards": [], "ends": [], "seed": None}
        space = envs.action_space
        drawn = generator.uniform(-1, 1, space.shape) if isinstance(space, gym.spaces.Box) else (
            generator.integers(0, 15, envs.num_envs) if isinstance(envs.single_action_space, gym.spaces.Discrete)
            else generator.integers(0, space.nvec))  # fmt: skip
        drawn = drawn.astype(space.dtype)
        action = torch.from_numpy(drawn).to(seen.device)
        seen, reward, terminated, truncated, infos = envs.step(action)
        for m, episode in enumerate(running):
            episode["observations"].append(infos["final_obs"][m].clone())
            episode["actions"].append(action[m])
            episode["rewards"].append(reward[m].clone())
            episode["ends"].append((bool(terminated[m]), bool(truncated[m])))
            if terminated[m] or truncated[m]:
                done.append(episode)
                running[m] = {"observations": [seen[m].clone()], "actions": [], "rewards": [], "ends": [], "seed": None}
    return done


def assert_read_back(dataset, played):
    assert dataset.total_episodes == len(played) > 3
    assert dataset.total_steps == sum(len(episode["rewards"]) for episode in played)
    metadata = dataset.storage.get_episode_metadata(range(len(played)))
    for found, episode, about in zip(dataset.iterate_episodes(), played, metadata, strict=True):
        for name in ("observations", "actions", "rewards"):
            expected = torch.stack(episode[name]).cpu().numpy()
            assert getattr(found, name).dtype == expected.dtype
            np.testing.assert_array_equal(getattr(found, name), expected)
        ends = np.stack([found.terminations, found.truncations], 1)
        np.testing.assert_array_equal(ends, np.array(episode["ends"]))
        assert about.get("seed") == episode["seed"]


@every_engine
@pytest.mark.parametrize("name", IDS)
@pytest.mark.parametrize("window", [1, 3, 7, None])
def test_what_is_read_back_is_what_was_played(name, window, engine):
    changes = {} if "Execution" in name else {"max_loss": 20.0}
    envs = RecordDataset(make(name, engine=engine, **changes), "kineticsim/test-v0", window)
    played = play(envs, 40)
    assert_read_back(envs.dataset(), played)
    read = minari.load_dataset("kineticsim/test-v0")
    assert_read_back(read, played)
    assert "Execution" in name or len({len(episode["rewards"]) for episode in played}) > 1


class PriceAndQuantity(ks.CustomTask):
    """Features, ends and an action of its own: how far above the mid, and how many to buy."""

    memory = {"count": torch.int64}
    action_space = gym.spaces.MultiDiscrete([9, 4])

    def update(self, before, after, memory, draws):
        return {"count": memory.count + 1}

    def terminate(self, before, after, memory):
        return (memory.count >= 3) & (after.inventory >= 3)

    def features(self, after, memory):
        return memory.count.float()

    def orders(self, action, view, memory):
        bid = torch.stack([view.mid.long() - 4 + action[:, 0], action[:, 1]], 1) * (action[:, 1:] > 0)
        return ks.OrderRecords(torch.cat([bid, torch.zeros_like(bid)], 1).int())


FORMS = [{"copy": False}, {"action_type": "discrete"}, {"stagger": True}, {"custom_task": PriceAndQuantity()}]


@pytest.mark.filterwarnings("ignore:env_spec is not serializable")  # JSON holds no task of a user's
@pytest.mark.parametrize("form", FORMS)
def test_forms_and_resets_between(form):
    envs = RecordDataset(make(**form), "test-v0", 4)
    played = play(envs, 37, reset_at=(0, 5, 18))
    assert_read_back(envs.dataset(), played)


def test_what_wrappers_make_is_recorded_and_the_environment_can_be_recovered():
    inside = make()
    envs = RecordDataset(NormalizeObservation(inside), "normalised-v0")
    played = play(envs, 25)
    dataset = envs.dataset(algorithm_name="random", author={"somebody"})
    assert_read_back(dataset, played)
    assert dataset.spec.observation_space == envs.single_observation_space
    assert dataset.storage.metadata["algorithm_name"] == "random"
    env = minari.load_dataset("normalised-v0").recover_environment()
    assert env.unwrapped.core.task == inside.unwrapped.core.task
    envs.close()


def test_it_goes_on_after_a_look_and_closes_with_what_has_ended():
    envs = RecordDataset(make(), "test-v0", 5)
    first = play(envs, 12)
    assert envs.dataset().total_episodes == len(first)
    second = play(envs, 12, seed=9)
    envs.close()
    assert_read_back(minari.load_dataset("test-v0"), first + second)


def test_refusals():
    for wrong, message in ((make(autoreset_mode="NEXT_STEP"), "SAME_STEP"), (gym.make_vec(MAKER, num_envs=2), "torch")):
        with pytest.raises(ValueError, match=f"env: expected .*{message}.* for RecordDataset, got"):
            RecordDataset(wrong, "test-v0")
    with pytest.raises(ValueError, match="window: .*got 0"):
        RecordDataset(make(), "test-v0", 0)
    envs = RecordDataset(make(), "test-v0")
    with pytest.raises(gym.error.ResetNeeded):
        envs.step(torch.zeros(5, 4))
    with pytest.raises(ValueError, match="dataset_id: expected .*, got 'test-v0', which exists"):
        RecordDataset(make(), "test-v0")
    with pytest.raises(TypeError, match="dataset_id: expected .*, got 3"):
        RecordDataset(make(), 3)
