"""How many operators of torch a step calls, by path: on a GPU each is a launch, which takes as long as a small step.

Where there is no GPU they are counted on the C++ engine, with the paths of a GPU's step.
"""

from types import SimpleNamespace

import pytest
import torch
from env_helpers import Work

import kineticsim_env as ks
from kineticsim_env.engines import operators
from kineticsim_env.engines.base import ENV_RESTART
from kineticsim_env.engines.cuda import CudaEngine
from kineticsim_env.envs import opponents as opponents_module
from kineticsim_env.envs.batched import BatchedParallelEnv
from kineticsim_env.envs.vector import MarketMakingVectorEnv
from kineticsim_env.runtime import private_torch
from kineticsim_env.tasks import ManyLearnersTask

M = 3
SMALL = {"warmup": 2, "bank_size": 2, "horizon": 4, "stagger": False}
TASK = ManyLearnersTask()
on_each = pytest.mark.parametrize("engine", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])


def operators_of(envs, actions):
    """Return what the third step after a reset calls, with the paths of a GPU."""
    envs.reset(seed=1)
    for part in (envs.core.own, envs.core.opponents):
        if part is not None:
            part._host = False  # it then neither looks at values nor leaves anything out
    envs.step(actions)
    envs.step(actions)
    with Work() as work:
        envs.step(actions)
    return work.operations


def reward(before, after):
    """Three operations."""
    return (after.value - before.value) - 0.1 * after.inventory


def terminate(before, after):
    """Two operations."""
    return after.inventory.abs() >= 6


def maker(observation):
    """One operation."""
    return torch.zeros(len(observation), 4, device=observation.device)


def trader(observation):
    """One operation."""
    return torch.zeros(len(observation), 2, device=observation.device)


class Recurrent:
    """One operation, and one as episodes begin."""

    def reset(self, mask):
        self.begun = ~mask

    def __call__(self, observation):
        return torch.zeros(len(observation), 2, device=observation.device)


OWN = {"reward": reward, "terminate": terminate, "features": [lambda after: after.mid - after.fundamental]}
THREE = {"maker": [maker], "trader": [[trader], [trader]]}
# What is beside the engine's launches, without the operations of the functions themselves.
PATHS = {
    "nothing": ({}, 0, 0),
    "account_info": ({"account_info": True}, 0, 0),
    "action_mask": ({"action_mask": True, "action_type": "discrete"}, 13, 0),
    "reward": ({"reward": reward}, 5, 3),
    "reward, NEXT_STEP": ({"reward": reward, "autoreset_mode": "NEXT_STEP"}, 5, 3),
    "reward, account_info": ({"reward": reward, "account_info": True}, 6, 3),
    "all functions": (OWN, 17, 7),
    "three opponents": ({"opponents": THREE}, 6, 3),
    "three opponents, reward": ({"opponents": THREE, "reward": reward}, 11, 6),
    "one opponent": ({"opponents": {"trader": [trader]}}, 6, 1),
    "ten opponents": ({"opponents": {"trader": [[trader]] * 10}}, 6, 10),
    "an opponent with a memory": ({"opponents": {"trader": [Recurrent()]}}, 8, 2),
    "an opponent of two": ({"opponents": {"trader": [trader, trader]}}, 41, 2),
    "three opponents of five": ({"opponents": {"maker": [maker] * 5, "trader": [[trader] * 5] * 2}}, 41, 15),
}


@on_each
@pytest.mark.parametrize("path", PATHS)
def test_operators_per_step(path, engine):
    settings, ours, theirs = PATHS[path]
    envs = MarketMakingVectorEnv(M, output="torch", copy=False, engine=engine, **SMALL, **settings)
    dtype = torch.int64 if "action_type" in settings else torch.float32
    found = operators_of(envs, torch.zeros(envs.action_space.shape, dtype=dtype, device=engine))
    assert len(found) == ours + theirs, found


@on_each
@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize(
    ("settings", "ours"), [({}, 6), ({"account_info": True}, 6), ({"autoreset_mode": "DISABLED"}, 3)]
)
def test_operators_per_step_of_many_learners(copy, settings, ours, engine):
    """One for the actions of each role, one for who acts next, three for which markets are over; one for all copies."""
    envs = BatchedParallelEnv(M, {"maker": 2, "trader": 1}, copy=copy, engine=engine, **SMALL, **settings)
    actions = {"maker": torch.zeros(M, 2, 4, device=engine), "trader": torch.zeros(M, 1, 2, device=engine)}
    found = operators_of(envs, actions)
    assert len(found) == ours + copy, found
    assert found.count("kineticsim::copies_of") == copy


@pytest.mark.parametrize(
    ("wrong", "discrete"),
    [(1.01, False), (-1.01, False), (float("nan"), False), (float("inf"), False), (49, True), (-1, True)],
)
def test_whose_action_was_wrong_is_known_at_the_next_look(wrong, discrete, monkeypatch):
    """As on a GPU, where nobody looks at values in a step; also of a policy that is not drawn, and of a step before."""
    state = {"wrong": True}

    def fine(observation):
        shape = (len(observation),) if discrete else (len(observation), 4)
        edge = torch.full(shape, 48 if discrete else 1.0005, dtype=torch.int64 if discrete else torch.float32)
        return edge if discrete else -edge

    def moody(observation):
        action = fine(observation)
        if state["wrong"]:
            action.view(-1)[-1] = wrong
        return action

    settings = SMALL | ({"action_type": "discrete"} if discrete else {})
    given = {"maker": [[fine, moody], [fine]]}
    envs = MarketMakingVectorEnv(M, output="torch", opponents=given, engine="cpu", **settings)
    envs.reset(seed=1)
    envs.core.opponents._host = False
    monkeypatch.setattr(opponents_module, "check_actions", lambda action, *rest: action)
    actions = torch.zeros(envs.action_space.shape, dtype=torch.int64 if discrete else torch.float32)
    envs.step(actions)
    state["wrong"] = False
    envs.step(actions)
    with pytest.raises(ks.MarketError, match=r"^actions of opponents\['maker'\]\[0\]\[1\]: expected values in its"):
        envs.check_errors()
    envs.check_errors()
    envs.step(actions)
    envs.check_errors()


def test_a_feature_that_is_not_finite_is_known_at_the_next_look():
    """As on a GPU: in any column of any step since the last look, though a later one is finite."""
    numbers = {"now": 0.0}

    def feature(after):
        return torch.stack([after.mid, after.mid * 0 + numbers["now"]], 1)

    for wrong in (float("nan"), float("inf"), float("-inf")):
        envs = MarketMakingVectorEnv(M, output="torch", features=[feature], engine="cpu", **SMALL)
        envs.reset(seed=1)
        envs.core.own._host = False
        for now in (0.0, wrong, 0.0):
            numbers["now"] = now
            envs.step(torch.zeros(M, 4))
        with pytest.raises(ks.MarketError, match="market 0: expected finite numbers, got a custom reward or feature"):
            envs.core.own.check_numbers()
        envs.core.own.check_numbers()


def test_lists_may_grow_and_shrink_under_running_episodes():
    """Which policy plays is what it was, wherever the answers of the others lie by now."""

    def quoting(size):
        return lambda observation: torch.full((len(observation), 4), size)

    envs = MarketMakingVectorEnv(64, output="torch", opponents={"maker": [quoting(0.0)]}, engine="cpu", **SMALL)
    envs.reset(seed=1)
    for count in (3, 1, 9, 2, 2, 1, 4):
        envs.set_opponents({"maker": [quoting(0.125 * (1 + place) - 1) for place in range(count)]})
        for _ in range(6):
            before = envs.opponent.clone()
            envs.step(torch.zeros(64, 4))
            rows = envs.core.opponents.join(torch.zeros(64, 4))
            envs.core.opponents.join(torch.zeros(64, 4))
            assert torch.equal(rows[:, 1, 0], 0.125 * (1 + envs.opponent[:, 0]) - 1) and not rows[:, 0].any()
            assert int(envs.opponent.max()) < count and before.shape == (64, 1)
        assert len(envs.opponent.unique()) == count


@pytest.mark.parametrize(
    ("code", "stream", "short"),
    [(operators.PLAYED, 5, True), (operators.MOVED, 5, False), (operators.PLAYED, 6, False), (None, 5, False)],
)
def test_episodes_begin_the_long_way_where_the_short_one_is_closed(code, stream, short, monkeypatch):
    """Without what is prepared, on another stream than the call's, or where a tensor has moved."""
    engine, calls = CudaEngine.__new__(CudaEngine), []
    engine._index, engine._raw_stream, engine._specialised, engine._launchers = 0, 5, True, {}
    if code is not None:
        launcher = SimpleNamespace(step=lambda *given: calls.append(given) or code, auctions=1)
        engine._launchers[ENV_RESTART] = launcher
    monkeypatch.setattr(private_torch, "current_raw_stream", lambda index: stream)
    monkeypatch.setattr(engine, "launch", lambda mode: calls.append(mode), raising=False)
    engine.restart()
    asked = [(0, 0, 0, 5)] if code is not None and stream == 5 else []  # no input
    assert calls == asked + [ENV_RESTART] * (not short)


@pytest.mark.gpu
def test_episodes_begin_in_one_call():
    """The launch behind a user's functions takes the way of the step itself, also after settings have changed."""
    envs = MarketMakingVectorEnv(M, output="torch", reward=reward, engine="cuda", **SMALL)
    launched, launch = [], envs.core._engine.launch
    envs.reset(seed=1)
    envs.set_task(inventory_penalty=0.5)
    envs.core._engine.launch = lambda mode, **given: (launched.append(mode), launch(mode, **given))
    for _ in range(9):
        envs.step(torch.zeros(M, 4, device="cuda"))
    assert launched == [] and int(envs.simulator.tensors["episode"].min()) >= 2
