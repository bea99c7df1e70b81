"""The single environments: the checkers of Gymnasium and Stable-Baselines3, and what they do not look at."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from markets import FEW_ORDERS
from thorough import covering

import kineticsim_env as ks

SMALL = {"engine": "cpu", "horizon": 20, "bank_size": 16, "warmup": 20}


every_task = pytest.mark.parametrize("name", ["MarketMaking", "Execution", "Trading"])
both_actions = pytest.mark.parametrize("action_type", ["continuous", "discrete"])
SIZES = {"MarketMaking": (4, 49), "Execution": (2, 15), "Trading": (2, 15)}


def make(name="MarketMaking", **kwargs):
    return gym.make(f"KineticSim/{name}-v0", **{**SMALL, **kwargs}).unwrapped


@covering
@every_task
@both_actions
@pytest.mark.filterwarnings("error")
def test_gymnasium_checker(name, action_type):
    for more in (
        {},
        {"randomise": {"noise_spread": (6, 20)}, "num_scenarios": 4},
        {"engine": "numpy", "config": FEW_ORDERS},
    ):
        check_env(make(name, action_type=action_type, **more))


@every_task
@both_actions
@pytest.mark.filterwarnings("error")
def test_what_gymnasium_makes_passes_its_own_wrappers(name, action_type):
    """PassiveEnvChecker and OrderEnforcing, which `gym.make` puts around an environment, find nothing to say."""
    env = gym.make(f"KineticSim/{name}-v0", **SMALL, action_type=action_type)
    assert env.spec.id == f"KineticSim/{name}-v0" and gym.make(env.spec).unwrapped.core.task == env.unwrapped.core.task
    for _ in range(2):
        env.reset(seed=1)
        while not any(env.step(env.action_space.sample())[2:4]):
            pass


@every_task
@both_actions
def test_spaces(name, action_type):
    env, (size, choices) = make(name, action_type=action_type), SIZES[name]
    assert env.observation_space.shape == (39,) and env.observation_space.dtype == np.float32
    if action_type == "discrete":
        assert env.action_space == gym.spaces.Discrete(choices)
    else:
        assert env.action_space == gym.spaces.Box(-1.0, 1.0, (size,), np.float32)
    for seed in range(20):
        env.reset(seed=seed)
        env.action_space.seed(seed)
        ended = False
        while not ended:
            observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
            assert env.observation_space.contains(observation)
            ended = terminated or truncated


@every_task
@both_actions
def test_stable_baselines3_checker(name, action_type, recwarn):
    checker = pytest.importorskip("stable_baselines3.common.env_checker")
    checker.check_env(make(name, action_type=action_type))
    assert [str(warning.message) for warning in recwarn] == []


@pytest.mark.parametrize("engine", ["cpu", "numpy"])
@pytest.mark.parametrize("name", ["Execution", "Trading"])
@both_actions
def test_replay_of_whole_episodes_of_every_task(engine, name, action_type):
    def play(env):
        env.action_space.seed(0)
        results = [env.reset(seed=3)]
        for _ in range(50):
            results.append(env.step(env.action_space.sample()))
            if results[-1][2] or results[-1][3]:
                results.append(env.reset())
        return results

    first, second = (
        play(make(name, config=FEW_ORDERS, action_type=action_type, engine=other)) for other in ("cpu", engine)
    )
    assert len(first) == len(second) >= 53
    for one, two in zip(first, second, strict=True):
        np.testing.assert_array_equal(one[0], two[0])
        assert one[1:] == two[1:]


@pytest.mark.parametrize("engine", ["cpu", "numpy"])
def test_replay_over_whole_episodes(engine):
    actions = np.random.default_rng(0).uniform(-1, 1, (50, 4)).astype(np.float32)

    def play(env):
        results = [(env.reset(seed=3))]
        for action in actions:
            results.append(env.step(action))
            if results[-1][2] or results[-1][3]:
                results.append(env.reset())
        return results

    first, second = (play(make(config=FEW_ORDERS, engine=other)) for other in ("cpu", engine))
    assert len(first) == 53
    for one, two in zip(first, second, strict=True):
        np.testing.assert_array_equal(one[0], two[0])
        assert one[1:] == two[1:]


def test_types_and_infos():
    env = make()
    env.action_space.seed(1)
    observation, infos = env.reset(seed=1)
    assert infos == {"inventory": 0, "cash": 0, "fees": 0, "mid_price": infos["mid_price"], "bought": 0, "sold": 0}
    bought = sold = 0
    for _ in range(20):
        observation, reward, terminated, truncated, infos = env.step(env.action_space.sample())
        assert type(reward) is float and type(terminated) is bool and type(truncated) is bool
        assert observation.shape == (39,) and observation.dtype == np.float32
        bought, sold = bought + infos["bought"], sold + infos["sold"]
        assert infos["inventory"] == bought - sold
        assert infos["mid_price"] == int(env.simulator.mid2) / 2
    assert truncated and bought and sold
    assert env.reset()[1]["bought"] == 0


def test_it_must_be_reset():
    env = make()
    with pytest.raises(gym.error.ResetNeeded, match="never reset"):
        env.step(np.zeros(4, np.float32))
    env.reset(seed=1)
    for _ in range(20):
        env.step(np.zeros(4, np.float32))
    with pytest.raises(gym.error.ResetNeeded, match="has ended its episode"):
        env.step(np.zeros(4, np.float32))
    with pytest.raises(ValueError, match="there is one market"):
        env.reset(options={"reset_mask": np.ones(1, bool)})


@pytest.mark.parametrize(
    ("action_type", "bad"), [("continuous", [np.full(4, np.nan, np.float32), np.zeros(2)]), ("discrete", [49, -1, 0.5])]
)
def test_bad_actions_leave_the_state_untouched(action_type, bad):
    env = make(action_type=action_type)
    env.reset(seed=1)
    before = env.state_dict()
    for action in bad:
        with pytest.raises((ValueError, TypeError), match="actions"):
            env.step(action)
    assert all(bool((before[name] == value).all()) for name, value in env.state_dict().items())


@pytest.mark.parametrize("seed", [-5, -(2**63), 2**63 - 2, np.int64(-7), np.int32(3)])
def test_every_form_takes_every_seed_of_a_market(seed):
    """Gymnasium's generators have no negative seeds, markets have; each form begins the same market with them."""
    forms = {
        "single": make(),
        "vector": gym.make_vec("KineticSim/MarketMaking-v0", 1, stagger=False, **SMALL).unwrapped,
        "parallel": ks.parallel_env({"maker": 1}, **SMALL),
        "batched": ks.BatchedParallelEnv(1, {"maker": 1}, stagger=False, **SMALL),
    }
    for name, env in forms.items():
        env.reset(seed=seed)
        assert env.simulator.tensors["seed"].tolist() == [int(seed)], name
        assert env.simulator.tensors["episode"].tolist() == [0], name
        env.reset(seed=[3])
        env.reset(seed=seed)
        assert env.simulator.tensors["seed"].tolist() == [int(seed)], name
    one, two = make(), make()
    for env in (one, two):
        env.reset(seed=seed)
    assert one.np_random.random() == two.np_random.random()


@pytest.mark.parametrize("seed", [2**63, -(2**63) - 1, 2.5, True, "x"])
def test_a_seed_that_no_market_has_changes_nothing(seed):
    vector = gym.make_vec("KineticSim/MarketMaking-v0", 1, **SMALL).unwrapped
    for env in (make(), vector, ks.parallel_env({"maker": 1}, **SMALL)):
        env.reset(seed=4)
        generator = env._np_random
        before, drawn = env.state_dict(), generator.bit_generator.state
        with pytest.raises((TypeError, ValueError), match="seed: expected .*got .*"):
            env.reset(seed=seed)
        assert all(torch.equal(before[name], now) for name, now in env.state_dict().items())
        assert env._np_random is generator and generator.bit_generator.state == drawn


def test_an_unseeded_environment_draws_from_np_random():
    one, two, three = make(), make(), make()
    for env in (one, two):
        env.np_random = np.random.default_rng(5)
    for env in (one, two, three):
        env.reset()
    seeds = [int(env.simulator.tensors["seed"]) for env in (one, two, three)]
    assert seeds[0] == seeds[1] != seeds[2]
    one.reset()
    assert int(one.simulator.tensors["seed"]) == seeds[0] and int(one.simulator.tensors["episode"]) == 1


def test_a_checkpoint_goes_on():
    env, other = make(), make()
    env.reset(seed=2)
    for action in np.linspace(-1, 1, 19, dtype=np.float32):
        env.step(np.full(4, action))
    other.load_state_dict(env.state_dict())
    last = np.ones(4, np.float32)
    for one, two in zip(env.step(last), other.step(last), strict=True):
        np.testing.assert_array_equal(one, two)
    other.load_state_dict(env.state_dict())
    with pytest.raises(gym.error.ResetNeeded):
        other.step(last)
