"""Decisions that end at events, as users meet them: infos, own functions, pictures, wrappers, states, the registry."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.envs.registration import EnvSpec
from markets import FEW_ORDERS

import kineticsim_env as ks
from kineticsim_env.envs.vector import ExecutionVectorEnv, MarketMakingVectorEnv, TradingVectorEnv
from kineticsim_env.render.recorder import MarketRecorder
from kineticsim_env.render.text import text_picture
from kineticsim_env.wrappers import NormalizeReward, RecordEpisodeStatistics, StackObservation

ENGINES = ("cpu",)
SMALL = {"config": FEW_ORDERS, "auctions_per_step": 2, "bank_size": 4, "warmup": 4, "horizon": 4}
EVENTS = FEW_ORDERS.interval * SMALL["auctions_per_step"]  # of the longest decision
VECTOR = {"MarketMaking": MarketMakingVectorEnv, "Trading": TradingVectorEnv, "Execution": ExecutionVectorEnv}
every_engine = pytest.mark.parametrize("engine", ENGINES)
both = pytest.mark.parametrize("decide", ["fill", "touch"])
MODES = pytest.mark.parametrize("mode", ["SAME_STEP", "NEXT_STEP", "DISABLED"])


def make(engine, decide="fill", markets=3, task="MarketMaking", **arguments):
    return VECTOR[task](markets, engine=engine, decide=decide, **{"output": "torch", **SMALL, **arguments})


def play(envs, steps=24, seed=1):
    """Steps under random actions of both kinds, after a reset; under DISABLED what has ended is reset."""
    envs.action_space.seed(seed)
    envs.reset(seed=seed)
    for _ in range(steps):
        action = envs.action_space.sample()
        results = envs.step(torch.from_numpy(action) if envs.unwrapped.output == "torch" else action)
        yield results
        over = np.asarray(results[2] | results[3])
        if envs.metadata["autoreset_mode"].name == "DISABLED" and over.any():
            envs.reset(options={"reset_mask": over})


# Infos ----------------------------------------------------------------------------------------------------------------


@every_engine
@both
@MODES
@pytest.mark.parametrize(("output", "copy"), [("torch", True), ("torch", False), ("numpy", True), ("numpy", False)])
def test_infos_say_how_many_events_there_were(engine, decide, mode, output, copy):
    envs = make(engine, decide, output=output, copy=copy, autoreset_mode=mode, account_info=True, stagger=False)
    passed, kept = np.zeros(3), []
    for seen, _, terminated, truncated, infos in play(envs):
        events = infos["decision_events"]
        assert isinstance(events, np.ndarray if output == "numpy" else torch.Tensor) and events.shape == (3,)
        kept.append((events, np.asarray(events).copy()))
        events = kept[-1][1]
        assert events.dtype == np.int32 and events.min() >= 0 and events.max() <= EVENTS
        passed += events
        played = events > 0  # of others what is known are numbers of before
        assert mode != "SAME_STEP" or played.all()
        assert (np.asarray(infos["account_info"]["elapsed"])[played] == passed[played]).all()
        last = np.asarray(infos["final_obs"] if mode == "SAME_STEP" else seen)
        assert (last[:, 39] == events.astype(np.float32) / EVENTS).all() and last.shape == (3, 40)
        over = np.asarray(terminated | truncated)
        assert (passed[over] == SMALL["horizon"] * EVENTS).all()
        passed[over] = 0
    assert all((np.asarray(events) == then).all() for events, then in kept) == copy


@every_engine
def test_a_compiled_program_has_the_same(engine):
    if engine == "numpy":
        pytest.skip("a NumPy step is no operator of torch")
    envs, other = (make(engine, account_info=True) for _ in range(2))
    envs.reset(seed=1), other.reset(seed=1)
    torch.compiler.reset()
    step = torch.compile(lambda action: envs.step(action), fullgraph=True, backend="aot_eager")
    for _ in range(9):
        (*one, infos), (*two, there) = step(torch.zeros(3, 4)), other.step(torch.zeros(3, 4))
        assert all(torch.equal(first, second) for first, second in zip(one, two, strict=True))
        assert torch.equal(infos["decision_events"], there["decision_events"]) and infos.keys() == there.keys()


@every_engine
@both
def test_environments_of_one_market_have_numbers(engine, decide):
    env = gym.make("KineticSim/MarketMaking-v0", engine=engine, decide=decide, account_info=True, **SMALL)
    assert env.reset(seed=3)[1]["decision_events"] == 0
    many = ks.parallel_env({"maker": 2, "executor": 1}, engine=engine, decide=decide, **SMALL)
    assert {info["decision_events"] for info in many.reset(seed=3)[1].values()} == {0}
    env.action_space.seed(1)
    passed = 0
    for _ in range(6):
        *_, infos = env.step(env.action_space.sample())
        passed += infos["decision_events"]
        assert type(infos["decision_events"]) is int and passed == infos["account_info"]["elapsed"]
        *_, of_agents = many.step({agent: many.action_space(agent).sample() for agent in many.agents})
        assert {info["decision_events"] for info in of_agents.values()} == {int(many.core.tensors["decision_events"])}
    batch = ks.BatchedParallelEnv(2, {"maker": 2, "executor": 1}, engine=engine, decide=decide, **SMALL)
    batch.reset(seed=3)
    *_, infos = batch.step({"maker": torch.zeros(2, 2, 4), "executor": torch.zeros(2, 1, 2)})
    assert torch.equal(infos["decision_events"], batch.core.tensors["decision_events"])
    for at_events in (False, True):
        plain_env = MarketMakingVectorEnv(2, engine=engine, decide=decide if at_events else "interval", **SMALL)
        plain_env.reset(seed=1)
        assert ("decision_events" in plain_env.step(np.zeros((2, 4), np.float32))[4]) == at_events


@every_engine
@MODES
def test_functions_of_users_own_have_them(engine, mode):
    """A feature is 0 as an episode begins, as the built-in column is."""
    pay = lambda before, after: after.decision_events.double()  # noqa: E731
    own = {"reward": pay, "features": [lambda after: after.decision_events / EVENTS]}
    envs = make(engine, autoreset_mode=mode, **own)
    for seen, reward, _, _, infos in play(envs):
        assert torch.equal(reward, infos["decision_events"].float())
        for rows in (seen, infos.get("final_obs", seen)):
            assert torch.equal(rows[:, -1], rows[:, -2])
    many = ks.BatchedParallelEnv(
        2,
        {"maker": 2},
        engine=engine,
        decide="fill",
        reward=lambda before, after: pay(before, after).expand(2, 2),
        **SMALL,
    )
    many.reset(seed=1)
    _, reward, _, _, infos = many.step({"maker": torch.zeros(2, 2, 4)})
    assert torch.equal(reward["maker"], infos["decision_events"].float()[:, None].expand(2, 2))


# Pictures and wrappers ------------------------------------------------------------------------------------------------


@every_engine
@pytest.mark.parametrize("decide", ["interval", "fill", "touch"])
def test_pictures_say_what_they_count(engine, decide):
    envs = make(engine, decide, stagger=False)
    recorder, passed = MarketRecorder(envs.core), [0]
    envs.reset(seed=1)
    recorder.record()
    for _ in range(3):
        *_, infos = envs.step(torch.zeros(3, 4))
        passed.append(passed[-1] + int(infos["decision_events"][0] if decide != "interval" else 1))
        recorder.record()
    wanted = f"decision {passed[-1]} of 4" if decide == "interval" else f"event {passed[-1]} of {4 * EVENTS}"
    assert wanted in text_picture(recorder) and recorder.path("elapsed").tolist() == passed
    pytest.importorskip("pygame")
    from kineticsim_env.render.picture import Picture

    picture = Picture()
    picture.draw(recorder)
    assert picture.array().any()


@every_engine
@MODES
def test_rewards_are_discounted_by_time(engine, mode):
    counted = RecordEpisodeStatistics(make(engine, autoreset_mode=mode))
    envs, discounted = (
        NormalizeReward(StackObservation(counted, 3, [39]), gamma=0.9),
        torch.zeros(3, dtype=torch.float64),
    )
    steps, running = torch.zeros(3, dtype=torch.int64), torch.ones(3, dtype=torch.bool)
    kept = []
    counted.env.step = lambda action, step=counted.env.step: kept.append(step(action)) or kept[-1]
    for seen, _, terminated, truncated, infos in play(envs):
        assert seen.shape == (3, 42)
        events, over = infos["decision_events"], terminated | truncated
        discounted = discounted * 0.9 ** (events / EVENTS).double() + torch.where(running, kept[-1][1], 0.0)
        steps += running
        assert torch.equal(infos["episode"]["l"], torch.where(over & running, steps, 0))
        steps, discounted = steps.masked_fill(over, 0), discounted.masked_fill(over | ~running, 0.0)
        torch.testing.assert_close(envs.discounted_return, discounted)
        running = ~over if mode == "NEXT_STEP" else torch.ones_like(over)


# States and registry --------------------------------------------------------------------------------------------------


@every_engine
@both
def test_states_and_clones_go_on_and_are_told_apart(engine, decide):
    drawn = {"noise_spread": (5, 20), "task.horizon": {"values": [2, 3, 6]}, "task.max_qty": (4, 8)}
    settings = {"randomise": drawn, "num_scenarios": 6, "account_info": True}
    one, two = (make(engine, decide, **settings) for _ in range(2))
    two.reset(seed=9)
    for _ in play(one, 7):
        pass
    two.load_state_dict(one.state_dict())
    three, lengths = one.clone(), set()
    for _ in range(60 if decide == "fill" else 150):
        action = torch.from_numpy(one.action_space.sample())
        first, *others = (envs.step(action) for envs in (one, two, three))
        for other in others:
            assert all(torch.equal(*pair) for pair in zip(first[:4], other[:4], strict=True))
            assert torch.equal(first[4]["decision_events"], other[4]["decision_events"])
        ended = first[4]["account_info"]["elapsed"][first[4]["_account_info"]]
        lengths |= set((ended / EVENTS).tolist())
    assert len(lengths) > 1 and lengths <= {2.0, 3.0, 6.0}
    one.set_task(reward="inventory", inventory_penalty=0.1)
    with pytest.raises(ValueError, match="set_task: expected one of .*, got the field 'decide'"):
        one.set_task(decide="interval")
    told, other = make(engine, decide), make(engine, "fill" if decide == "touch" else "touch")
    told.reset(seed=1), other.reset(seed=1)
    with pytest.raises(ValueError, match=f"task.decide is {decide} there, {other.core.task.decide} here"):
        other.load_state_dict(told.state_dict())
    state = told.state_dict()
    state["decision_events"][1] = EVENTS + 1
    with pytest.raises(ValueError, match=r"state\['decision_events'\]: expected 0 to 12, got 13"):
        told.load_state_dict(state)
    before = make(engine, "interval")
    before.reset(seed=1)
    about = bytes(before.state_dict()["about"].tolist()).decode()
    assert "decide" not in about and "decision_events" not in before.state_dict()


@every_engine
def test_the_registry_makes_the_same_again(engine):
    arguments = {"decide": "touch", "engine": engine, **SMALL}
    for made, again in (
        (lambda: gym.make_vec("KineticSim/Trading-v0", num_envs=2, **arguments), gym.make_vec),
        (lambda: gym.make("KineticSim/Trading-v0", **arguments), gym.make),
    ):
        first = made()
        second = again(EnvSpec.from_json(first.spec.to_json()))
        for env in (first, second):
            env.action_space.seed(1)
        assert second.unwrapped.core.task.decide == "touch" and first.observation_space == second.observation_space
        np.testing.assert_array_equal(first.reset(seed=4)[0], second.reset(seed=4)[0])
        for _ in range(5):
            one, two = (env.step(env.action_space.sample()) for env in (first, second))
            np.testing.assert_array_equal(one[0], two[0])
            np.testing.assert_array_equal(one[4]["decision_events"], two[4]["decision_events"])
