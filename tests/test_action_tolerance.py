"""An action outside [-1, 1] by at most 0.001 is the bound, on every engine; one further out, NaN or inf is refused.

At once where it comes from the host; else the market's error word keeps it until the next check.
"""

import gymnasium as gym
import numpy as np
import pytest
import torch
from env_helpers import assert_same
from markets import FEW_ORDERS
from thorough import covering

import kineticsim_env as ks
from kineticsim_env.engines.numpy import actions as oracle
from kineticsim_env.envs.actions import MOST_ACTION
from kineticsim_env.runtime import build
from scripts.fuzz import shapes

every_engine = pytest.mark.parametrize(
    "engine", ["numpy", pytest.param("cpu"), pytest.param("cuda", marks=pytest.mark.gpu)]
)
SMALL = {"config": FEW_ORDERS, "horizon": 7, "bank_size": 4, "warmup": 3}
TASKS = {"MarketMaking": {}, "Execution": {"block_qty": 20}, "Trading": {}}
MOST = np.float32(1.001)
BEYOND = np.nextafter(MOST, np.float32(2))
NEAR = np.array([1, 1.0000002, 1.0005, MOST, -1, -1.0000002, -MOST, 0.3], np.float32)
BAD = [BEYOND, -BEYOND, np.float32(np.nan), np.float32(np.inf), np.float32(-np.inf)]


def make(task, engine, **settings):
    envs = gym.make_vec(
        f"KineticSim/{task}-v0", num_envs=6, engine=engine, **SMALL, **TASKS[task], **settings
    ).unwrapped
    envs.reset(seed=4)
    return envs


def near_the_bounds(shape, seed=0):
    return NEAR[np.random.default_rng(seed).integers(0, len(NEAR), shape)]


def test_all_mean_the_same_number():
    assert MOST_ACTION == oracle.MOST_ACTION == MOST
    assert MOST_ACTION.dtype == np.float32


FORMS = ["plain", "nested", "wider", "turned", "apart", "tensor", "turned tensor", "tensor with a gradient"]


@covering
@every_engine
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("form", FORMS)
def test_what_is_near_a_bound_is_the_bound(engine, task, form):
    """To the bit; what was given stays as it is, and nothing is noted."""
    envs, wanted = make(task, engine), make(task, "numpy")
    for t in range(9):
        actions = near_the_bounds(envs.action_space.shape, t)
        given = shapes.make(form, actions, shapes.Furthest())[0]
        on_device = isinstance(given, torch.Tensor) and engine == "cuda"
        envs.step(given.to(envs.device) if on_device else given)
        wanted.step(np.clip(actions, -1, 1))
        assert_same([envs.core, wanted.core], f"step {t}")
        kept = given.detach().numpy() if isinstance(given, torch.Tensor) else np.asarray(given)
        np.testing.assert_array_equal(kept, actions)
    assert wanted.fills.any()
    envs.close()


@every_engine
@pytest.mark.parametrize("bad", BAD, ids=str)
@pytest.mark.parametrize("form", ["plain", "nested", "wider", "apart"])
def test_what_is_further_out_is_refused_on_the_host(engine, bad, form):
    assert_is_refused(engine, bad, form)


@pytest.mark.parametrize("engine", ["cpu", "numpy"])  # nobody looks at values on a GPU
@pytest.mark.parametrize("bad", BAD, ids=str)
@pytest.mark.parametrize("form", ["tensor", "turned tensor"])
def test_a_tensor_that_is_further_out_is_refused_on_the_host(engine, bad, form):
    assert_is_refused(engine, bad, form)


def assert_is_refused(engine, bad, form):
    envs = make("MarketMaking", engine)
    before = envs.state_dict()
    actions = near_the_bounds((6, 4))
    actions[4, 2] = bad
    with pytest.raises(ValueError, match=r"actions\[4, 2\]: expected -1 to 1, give or take 0.001, got"):
        envs.step(shapes.make(form, actions, shapes.Furthest())[0])
    for name, tensor in envs.state_dict().items():
        assert torch.equal(tensor, before[name]), name


@every_engine
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("bad", BAD, ids=str)
def test_what_is_further_out_is_noted_where_nobody_looks(engine, task, bad):
    """As for tensors on a GPU and in compiled programs: clamped, or for NaN the old quote, and raised for later."""
    envs, wanted = make(task, engine), make(task, engine)
    actions = near_the_bounds(envs.action_space.shape)
    bounds = np.clip(actions, -1, 1)
    row, column = 3, actions.shape[1] - 1
    actions[row, column], bounds[row, column] = bad, np.clip(bad, -1, 1)
    for core, values in ((envs.core, actions), (wanted.core, bounds)):
        core.step(actions=torch.from_numpy(values).to(core.device))
    words = envs.simulator.tensors["error"].tolist()
    assert words == [0, 0, 0, 2 if np.isnan(bad) else 4, 0, 0]
    envs.simulator.tensors["error"].zero_()
    wanted.simulator.tensors["error"].zero_()
    assert_same([envs.core, wanted.core], "after the step")
    envs.core.step(actions=torch.from_numpy(actions).to(envs.device))
    with pytest.raises(ks.MarketError, match="market 3: expected .*, got (an action outside its space|a NaN action)"):
        envs.close()


def test_the_single_environment():
    ours, theirs = (gym.make("KineticSim/Trading-v0", engine="cpu", **SMALL).unwrapped for _ in range(2))
    for env in (ours, theirs):
        env.reset(seed=1)
    for t in range(7):
        actions = near_the_bounds(2, t)
        one, two = ours.step(actions), theirs.step(np.clip(actions, -1, 1))
        np.testing.assert_array_equal(one[0], two[0])
        assert one[1:] == two[1:]
    ours.reset()
    with pytest.raises(ValueError, match=r"actions\[0\]: expected .*, got inf"):
        ours.step([np.inf, 0.0])


def test_many_learners():
    """In both forms, agent by agent and by role."""
    learners = {"maker": 1, "executor": 1, "trader": 2}
    settings = {"engine": "cpu", **SMALL, "block_qty": 20}
    single = [ks.parallel_env(learners, **settings) for _ in range(2)]
    batched = [ks.BatchedParallelEnv(3, learners, **settings) for _ in range(2)]
    for env in (*single, *batched):
        env.reset(seed=2)
    for t in range(6):
        given = {agent: near_the_bounds(single[0].action_space(agent).shape, t) for agent in single[0].agents}
        single[0].step(given)
        single[1].step({agent: np.clip(action, -1, 1) for agent, action in given.items()})
        rows = {role: near_the_bounds((3, len(names), 4 if role == "maker" else 2), t)
                for role, names in batched[0].group_map.items()}  # fmt: skip
        batched[0].step(rows)
        batched[1].step({role: torch.from_numpy(np.clip(row, -1, 1)) for role, row in rows.items()})
        for pair in (single, batched):
            assert_same([env.core for env in pair], f"step {t}")
    with pytest.raises(ValueError, match=r"actions\['trader'\]\[2, 1, 0\]: expected -1 to 1, give.*got 1.00100\d*"):
        rows["trader"][2, 1, 0] = BEYOND
        batched[0].step(rows)


# Programs and adapters ------------------------------------------------------------------------------------------------


@pytest.mark.skipif(build.cpu_unavailable() is not None, reason="no C++ compiler")
@pytest.mark.parametrize("engine", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_compiled_step(engine):
    torch.compiler.reset()
    envs, wanted = make("MarketMaking", engine, output="torch"), make("MarketMaking", "numpy")
    program = torch.compile(lambda actions: envs.step(actions), fullgraph=True, backend="aot_eager")
    for t in range(9):
        actions = near_the_bounds((6, 4), t)
        program(torch.from_numpy(actions).to(envs.device))
        wanted.step(np.clip(actions, -1, 1))
        assert_same([envs.core, wanted.core], f"step {t}")
    program(torch.full((6, 4), float(BEYOND), device=envs.device))
    with pytest.raises(ks.MarketError, match="market 0: .*got an action outside its space"):
        envs.check_errors()


def stable_baselines(actions):
    from kineticsim_env.adapters.sb3 import SB3VecEnv

    env = SB3VecEnv("KineticSim/MarketMaking-v0", num_envs=6, engine="cpu", **SMALL)
    env.seed(4)
    env.reset()
    return [env.step(action) for action in actions]


def torchrl(actions):
    from kineticsim_env.adapters.torchrl import TorchRLEnv

    env = TorchRLEnv("KineticSim/MarketMaking-v0", num_envs=6, engine="cpu", **SMALL)
    env.set_seed(4)
    data, seen = env.reset(), []
    for action in actions:
        step, data = env.step_and_maybe_reset(data.set("action", torch.from_numpy(action)))
        seen.append((data["observation"].numpy().copy(), step["next", "reward"][:, 0].numpy().copy()))
    return seen


def skrl(actions):
    from kineticsim_env.adapters.skrl import SkrlEnv

    env = SkrlEnv("KineticSim/MarketMaking-v0", num_envs=6, seed=4, engine="cpu", **SMALL)
    env.reset()
    steps = [env.step(torch.from_numpy(action)) for action in actions]
    return [(step[0].numpy(), step[1][:, 0].numpy()) for step in steps]


@pytest.mark.parametrize("play", [stable_baselines, torchrl, skrl], ids=lambda play: play.__name__)
def test_adapters(play):
    pytest.importorskip({"stable_baselines": "stable_baselines3"}.get(play.__name__, play.__name__))
    actions = [near_the_bounds((6, 4), t) for t in range(9)]
    wanted = make("MarketMaking", "numpy")
    for (observation, reward, *_), action in zip(play(actions), actions, strict=True):
        plain = wanted.step(np.clip(action, -1, 1))
        np.testing.assert_array_equal(observation, plain[0])
        np.testing.assert_array_equal(reward, plain[1])
