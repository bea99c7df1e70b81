"""`clone`: the same bits under the same actions, and two environments that share nothing, in every form there is."""

import copy

import gymnasium as gym
import gymnasium.wrappers.vector as theirs
import numpy as np
import pytest
import torch
from env_helpers import clock_environments, draw_actions, environments, launch, make_cores
from hypothesis import given, settings
from markets import FEW_ORDERS
from thorough import covering, examples

import kineticsim_env as ks
from kineticsim_env.envs.copies import clone_of
from kineticsim_env.wrappers import NormalizeObservation, NormalizeReward, RecordEpisodeStatistics

SMALL = {"config": FEW_ORDERS, "bank_size": 4, "warmup": 3, "horizon": 5}
every_engine = pytest.mark.parametrize("engine", ["cpu", "numpy", pytest.param("cuda", marks=pytest.mark.gpu)])


def make(engine="cpu", num_envs=4, task="MarketMaking", **changes):
    arguments = {"engine": engine, "output": "torch", **SMALL, **changes}
    return gym.make_vec(f"KineticSim/{task}-v0", num_envs=num_envs, **arguments).unwrapped


def tensors_of(core):
    """All state, copied: the market's, the environment's, the parameters that markets play, and the warm starts."""
    own = {} if core.own is None else {f"own {role}": core.own.observation(role) for role in core.roles}
    bank = {name: tensor for name, tensor in core.live_task.warm_starts._bank.items()}
    all_of_them = {**core.simulator.tensors, **core.tensors, "fills": core.fills, **own, **bank}
    all_of_them["params"] = core._engine.parameters()
    return {name: tensor.clone() for name, tensor in all_of_them.items()}


def assert_equal(one, two, when=""):
    assert one.keys() == two.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor.view(torch.uint8), two[name].view(torch.uint8)), f"{name} {when}"


def play(core, seed, steps):
    """Steps and masked resets, from a generator of their own; returns all state after each."""
    generator, after = np.random.default_rng(seed), []
    for _ in range(steps):
        launch([core], draw_actions(core, generator, 0.0))
        after.append(tensors_of(core))
        mask = generator.random(core.simulator.num_markets) < 0.2
        if mask.any():
            core.reset(int(generator.integers(99)) if generator.random() < 0.3 else None, mask)
            after.append(tensors_of(core))
    return after


def check_clone(environment, engine):
    arguments, kwargs, seed, steps = environment
    (core,) = make_cores(arguments, kwargs, [engine])
    core.reset(seed)
    play(core, seed, steps // 2)
    before = tensors_of(core)
    clone = clone_of(core)
    assert_equal(tensors_of(clone), before, "of the clone")
    one = play(core, seed + 1, steps)
    assert_equal(tensors_of(clone), before, "of the clone, while the original played")
    end, other = tensors_of(core), play(clone, seed + 1, steps)
    for step, (mine, its) in enumerate(zip(one, other, strict=True)):
        assert_equal(mine, its, f"after {step}")
    assert_equal(tensors_of(core), end, "of the original, while the clone played")


@pytest.mark.parametrize("engine", ["cpu", "numpy"])
@settings(max_examples=examples(15))
@given(environment=environments(most_slots=8))
def test_both_go_on_alike_and_apart(engine, environment):
    check_clone(environment, engine)


@pytest.mark.parametrize("engine", ["cpu", "numpy"])
@settings(max_examples=examples(10))
@given(environment=clock_environments())
def test_both_go_on_alike_and_apart_on_the_clock(engine, environment):
    check_clone(environment, engine)


@pytest.mark.gpu
@settings(max_examples=examples(10))
@given(environment=environments(most_slots=8))
def test_both_go_on_alike_and_apart_on_a_gpu(environment):
    check_clone(environment, "cuda")


@every_engine
@pytest.mark.parametrize("num_envs", [1, 3, 2000])
def test_of_few_markets_and_of_many(engine, num_envs):
    if engine == "numpy" and num_envs > 3:
        pytest.skip("slow")
    envs = make(engine, num_envs, randomise={"fee": (0, 9)}, num_scenarios=3)
    envs.reset(seed=1)
    envs.step(torch.zeros(num_envs, 4, device=envs.device))
    check = play(envs.core, 3, 7)
    clone = envs.clone()
    for mine, its in zip(play(envs.core, 4, 9), play(clone.core, 4, 9), strict=True):
        assert_equal(mine, its)
    assert check


# What users hold ------------------------------------------------------------------------------------------------------


def steps_of(envs, seed, steps=12):
    generator, results = np.random.default_rng(seed), []
    for _ in range(steps):
        action = generator.uniform(-1, 1, envs.action_space.shape).astype(np.float32)
        torch_output = envs.unwrapped.output == "torch"
        results.append(
            copy.deepcopy(envs.step(torch.from_numpy(action).to(envs.unwrapped.device) if torch_output else action))
        )
    return results


def flat(results):
    """All arrays of nested results as bytes, in order."""
    if isinstance(results, dict):
        return [byte for name in sorted(results) for byte in flat(results[name])]
    if isinstance(results, (list, tuple)):
        return [byte for part in results for byte in flat(part)]
    return [results.cpu().numpy().tobytes() if isinstance(results, torch.Tensor) else np.asarray(results).tobytes()]


@covering
@every_engine
@pytest.mark.parametrize("mode", ["SAME_STEP", "NEXT_STEP"])
@pytest.mark.parametrize("form", [{}, {"copy": False}, {"output": "numpy"}])
def test_results_of_a_vector_environment(engine, mode, form):
    envs = make(engine, autoreset_mode=mode, account_info=True, **form)
    envs.reset(seed=2)
    steps_of(envs, 1)
    clone = envs.clone()
    assert type(clone) is type(envs) and clone.spec == envs.spec
    if form.get("output") != "numpy":
        assert torch.equal(clone.observation, envs.observation) and torch.equal(clone.fills, envs.fills)
    first = flat(steps_of(envs, 3))
    assert flat(steps_of(clone, 3)) == first
    assert flat(envs.reset(seed=9)) == flat(clone.reset(seed=9))


def reward(before, after):
    return (after.value - before.value - 0.3 * after.inventory.abs()).float()


def held(after):
    return torch.stack([after.inventory / 40, after.elapsed], dim=-1).float()


def terminate(before, after):
    return after.inventory.abs() > 6


@every_engine
@pytest.mark.parametrize("mode", ["SAME_STEP", "NEXT_STEP", "DISABLED"])
def test_functions_of_users(engine, mode):
    own = {"reward": reward, "features": [held], "terminate": terminate}
    envs = make(engine, autoreset_mode=mode, account_info=True, **own)
    envs.reset(seed=2)
    steps_of(envs, 1, 1)
    before = tensors_of(envs.core)
    clone = envs.clone()
    assert_equal(tensors_of(envs.core), before)
    assert_equal(tensors_of(clone.core), before)
    for t in range(6):
        if mode == "DISABLED" and bool(envs.core.tensors["done"].any()):
            for one in (envs, clone):
                one.reset(options={"reset_mask": one.core.tensors["done"].clone()})
        assert flat(steps_of(envs, t, 1)) == flat(steps_of(clone, t, 1))


def test_draws_go_on_alike_and_apart():
    envs = make()
    envs.action_space.seed(4)
    clone = envs.clone()  # before any reset
    with pytest.raises(gym.error.ResetNeeded):
        clone.step(torch.zeros(4, 4))
    envs.np_random, third = np.random.default_rng(3), envs.clone()
    clone.np_random = np.random.default_rng(3)
    sample = envs.action_space.sample()
    np.testing.assert_array_equal(sample, clone.action_space.sample())
    assert not np.array_equal(sample, clone.action_space.sample())
    assert flat(envs.reset()) == flat(clone.reset()) != flat(third.reset())  # the first seed is a draw of np_random


def test_settings_of_one_leave_the_other():
    envs = make(randomise={"fee": (0, 9)}, num_scenarios=3, reward="inventory")
    envs.reset(seed=2)
    clone, third = envs.clone(), envs.clone()
    clone.set_scenarios({"fee": (100, 200)})
    clone.set_task(reward="pnl", inventory_penalty=0.5)
    assert envs.core.task.reward == "inventory" and max(envs.core.live_task.scenarios.fee) <= 9
    assert flat(steps_of(envs, 3)) == flat(steps_of(third, 3)) != flat(steps_of(clone, 3))
    assert int(clone.simulator.parameter("fee").min()) >= 100


@every_engine
def test_parameters_that_were_set_are_cloned(engine):
    envs = make(engine)
    envs.reset(seed=2)
    envs.simulator.set_parameters(mask=[True, False, True, False], fee=1000)
    clone = envs.clone()
    assert clone.simulator.config == envs.simulator.config
    clone.simulator.set_parameters(fee=0)
    assert envs.simulator.parameter("fee").tolist() == [1000, 0, 1000, 0]
    clone.simulator.set_parameters(mask=[True, False, True, False], fee=1000)
    assert flat(steps_of(envs, 3)) == flat(steps_of(clone, 3))
    envs.clone().close()
    envs.step(torch.zeros(4, 4, device=envs.device))


def test_refusals():
    envs = make()
    envs.reset(seed=1)
    envs.simulator.tensors["error"][1] = 4
    with pytest.raises(ks.MarketError):
        envs.clone()
    envs.clone()  # raising has cleared it
    envs.close()
    with pytest.raises(gym.error.ClosedEnvironmentError, match="clone"):
        envs.clone()


def test_a_clone_draws_no_pictures():
    envs = make(render_mode="ansi", output="numpy")
    envs.reset(seed=1)
    clone = envs.clone()
    clone.step(np.zeros((4, 4), np.float32))
    assert clone.render_mode is None and envs.render_mode == "ansi" and envs.render()[0]


# Wrappers -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["SAME_STEP", "NEXT_STEP"])
def test_wrappers_are_cloned_with_their_statistics(mode):
    envs = NormalizeReward(NormalizeObservation(RecordEpisodeStatistics(make(autoreset_mode=mode))))
    envs.reset(seed=2)
    steps_of(envs, 1)
    clone = envs.clone()
    assert envs.env.statistics is not clone.env.statistics and envs.unwrapped is not clone.unwrapped
    first = flat(steps_of(envs, 3))
    assert flat(steps_of(clone, 3)) == first
    assert envs.env.env.summary() == clone.env.env.summary()
    for one, other in ((envs, clone), (envs.env, clone.env)):
        assert flat(one.state_dict()) == flat(other.state_dict())
    before = flat(envs.env.state_dict())
    steps_of(clone, 4)
    assert flat(envs.env.state_dict()) == before != flat(clone.env.state_dict())
    assert clone.env.env.summary()["episodes"] != envs.env.env.summary()["episodes"] == 0


def test_a_wrapper_that_cannot_be_cloned_is_named():
    envs = NormalizeReward(theirs.TransformReward(make(), lambda reward: reward * 2))
    with pytest.raises(TypeError, match="clone: expected environments and wrappers.*got TransformReward inside"):
        envs.clone()


# The other forms ------------------------------------------------------------------------------------------------------


@covering
@every_engine
@pytest.mark.parametrize("copied", [True, False])
def test_many_learners(engine, copied):
    learners = {"maker": 2, "executor": 1, "noise": 1}
    envs = ks.BatchedParallelEnv(5, learners, engine=engine, copy=copied, account_info=True, **SMALL, block_qty=6)
    fresh = envs.clone()
    with pytest.raises(gym.error.ResetNeeded):
        fresh.step({})

    def steps(one, seed):
        generator = np.random.default_rng(seed)
        drawn = [
            {
                role: torch.from_numpy(generator.uniform(-1, 1, (5, n, 4 if role == "maker" else 2)).astype(np.float32))
                for role, n in learners.items()
            }
            for _ in range(9)
        ]
        return [flat([one.step({role: rows.to(one.device) for role, rows in a.items()}), one.state()]) for a in drawn]

    envs.reset(seed=2)
    steps(envs, 1)
    clone = envs.clone()
    assert torch.equal(clone.state(), envs.state()) and torch.equal(clone._active, envs._active)
    first = steps(envs, 2)
    assert steps(clone, 2) == first


def test_single_markets():
    env = gym.make("KineticSim/Trading-v0", engine="numpy", **SMALL)
    env.reset(seed=3)
    clone = env.unwrapped.clone()
    for action in np.random.default_rng(0).uniform(-1, 1, (4, 2)).astype(np.float32):
        assert flat(env.step(action)) == flat(clone.step(action))
    game = ks.parallel_env({"maker": 1, "noise": 1}, engine="numpy", **SMALL)
    game.reset(seed=3)
    other = game.clone()
    for seed in range(5):
        actions = {agent: np.full(game.action_space(agent).shape, 0.2 * seed, np.float32) for agent in game.agents}
        mine, its = game.step(actions), other.step(actions)
        assert all(flat(a) == flat(b) for a, b in zip(mine[:4], its[:4], strict=True))
    assert not game.agents and not other.agents
    other.reset()
    assert other.agents and not game.agents


def test_planning_finds_what_is_best():
    """Each candidate is played in a clone of the same moment; the environment then earns what was promised."""
    envs = make(num_envs=3, stagger=False, reward="inventory")
    envs.reset(seed=1)
    candidates = [torch.full((3, 4), value) for value in (-0.8, 0.0, 0.8)]
    promised = torch.stack([envs.clone().step(action)[1] for action in candidates])
    best = promised.argmax(0)
    assert len(set(map(tuple, promised.T.tolist()))) > 1
    earned = envs.step(torch.stack(candidates)[best, torch.arange(3)])[1]
    assert torch.equal(earned, promised.amax(0))
