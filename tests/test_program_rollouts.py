"""Rollouts of programs: markets are what they are when recorded orders are submitted one by one, on every engine."""

import pytest
import torch
from slot_programs import fixed, ladder, looks_at_all, patient, plain_maker, taker
from test_rollouts import check_replay, make, network_for
from thorough import covering

import kineticsim_env as ks
from kineticsim_env.envs import rollouts
from kineticsim_env.envs.settings import MODES
from kineticsim_env.wrappers import NormalizeReward

PROGRAMS = {one.name: one for one in (plain_maker, patient, taker, looks_at_all)}
each_program = pytest.mark.parametrize("name", PROGRAMS)
ENGINES = ["cpu", "numpy", pytest.param("cuda", marks=pytest.mark.gpu)]
FIELDS = ("rows", "action", "log_prob", "value", "reward", "terminated", "truncated", "played", "last_rows")


def assert_alike(one, two, engines=""):
    for name in FIELDS:
        assert torch.equal(getattr(one, name).cpu(), getattr(two, name).cpu()), f"{name} {engines}"


@covering
@pytest.mark.parametrize("task", ["MarketMaking", "Execution", "Trading"])
@pytest.mark.parametrize("preset", ["trading", "news"])
@pytest.mark.parametrize("mode", MODES)
@each_program
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_recorded_orders_submitted_one_by_one(task, preset, mode, name, engine, kind):
    how = {"preset": preset, "autoreset_mode": mode, "stagger": True}
    envs = make(task, **how, engine=engine)
    part = envs.rollout(PROGRAMS[name], 12, observations=kind)
    assert part.truncated.any() or part.terminated.any()
    assert bool(part.played.all()) == (mode.name == "SAME_STEP")
    assert not part.action[~part.played].any()
    check_replay(make(task, **how, engine=engine), [part])
    assert_alike(part, make(task, **how, engine="cpu").rollout(PROGRAMS[name], 12, observations=kind))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("preset", ["trading", "news"])
def test_cuts_change_nothing_and_memory_goes_on(engine, preset):
    whole_envs, cut_envs = (make(engine=engine, preset=preset) for _ in range(2))
    whole = whole_envs.rollout(patient, 13)
    parts = [cut_envs.rollout(patient, steps) for steps in (1, 5)]
    parts.append(cut_envs.unwrapped.clone().rollout(patient, 7))
    for name in FIELDS[:-1]:
        assert torch.equal(getattr(whole, name), torch.cat([getattr(part, name) for part in parts])), name
    assert torch.equal(whole.last_rows, parts[-1].last_rows)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("changes", [{"quote_latency": 60}, {"orders_per_side": 3}], ids=str)
def test_latency_and_ladders(engine, changes):
    config = ks.MarketConfig.preset("news", **changes)
    program = ladder if "orders_per_side" in changes else plain_maker
    envs, again = (make(config=config, engine=engine) for _ in range(2))
    part = envs.rollout(program, 11)
    assert part.action.shape == (11, 6, 3 if program is ladder else 1, 2, 3)
    check_replay(again, [part])
    assert_alike(part, make(config=config).rollout(program, 11))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("preset", ["trading", "news"])
def test_programs_and_networks_among_opponents_that_are_programs(engine, preset):
    def made(on):
        return make("Trading", preset=preset, engine=on, opponents={"maker": [[fixed], [plain_maker]]}, max_loss=30.0)

    envs = made(engine)
    first = envs.rollout(patient, 8)
    assert_alike(first, made("cpu").rollout(patient, 8))
    second = envs.rollout(network_for(envs), 8)
    again = made(engine)
    again.rollout(patient, 8)
    again.unwrapped.core.set_slot_policies(again.unwrapped.core.programs)
    check_replay(again, [second])
    third = envs.rollout(patient, 8, out=first)
    assert third is first


@pytest.mark.gpu
@pytest.mark.parametrize("markets", [1, 70, 1024, 5000, 8192])
@pytest.mark.parametrize("preset", ["trading", "news"])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_forms_of_the_kernel_replay(markets, preset, kind):
    envs, again = (make(preset=preset, markets=markets, engine="cuda") for _ in range(2))
    parts = [envs.rollout(looks_at_all, steps, observations=kind) for steps in (7, 1, 5)]
    again.rollout(looks_at_all, 1)  # a rollout of one decision, and steps of what the others submitted
    again.unwrapped.core.set_slot_policies({})
    rest = make(preset=preset, markets=markets, engine="cuda")
    check_replay(rest, parts)
    alone = make(preset=preset, markets=markets, engine="cpu")
    assert_alike(parts[0], alone.rollout(looks_at_all, 7, observations=kind))


def test_rewards_of_users_and_events_step_and_say_nothing_on_a_cpu():
    envs = make(reward=lambda before, after: after.inventory.float())
    part = envs.rollout(plain_maker, 6)
    again = make(reward=lambda before, after: after.inventory.float())
    check_replay(again, [part])
    events = make(decide="fill").rollout(plain_maker, 6)
    assert events.decision_events.min() < events.decision_events.max()


def test_the_learners_slot_is_given_and_taken_back():
    envs = make()
    envs.rollout(plain_maker, 2)
    action = torch.zeros(6, 4)
    with pytest.raises(ValueError, match="expected None, as the program plain_maker plays the learner's slot"):
        envs.step(action)
    envs.step(None)
    assert envs.unwrapped.core.learner_program is plain_maker
    envs.unwrapped.core.set_slot_policies({})
    envs.step(action)
    with pytest.raises(ValueError, match="expected a tensor"):
        envs.unwrapped.core.step()
    envs.rollout(plain_maker.replace(skew=2), 1)
    envs.rollout(network_for(envs), 1)
    envs.step(action)


def test_what_is_refused():
    envs = make()
    with pytest.raises(ValueError, match="ladder: expected up to 1 levels"):
        envs.rollout(ladder, 2)
    with pytest.raises(TypeError, match="expected the environment itself, as plain_maker is a program"):
        rollouts.rollout(NormalizeReward(envs), plain_maker, 2)
    mine = envs.rollout(network_for(envs), 2)
    with pytest.raises(ValueError, match=r"out.action: expected a contiguous tensor torch.int32 \[2, 6, 1, 2, 3\]"):
        envs.rollout(plain_maker, 2, out=mine)
    envs.step(torch.zeros(6, 4)) if envs.unwrapped.core.learner_program is None else envs.step(None)


def test_slots_and_programs_are_checked_before_anything_changes():
    envs = make("Trading", opponents={"maker": [patient]})
    core = envs.unwrapped.core
    for given, said in [
        ({5: fixed}, "got the slot 5"),
        ({-1: fixed}, "got the slot -1"),
        ({True: fixed}, "got the slot True"),
        ({0: None}, r"policies\[0\]: expected a dict of programs"),
        (fixed, "policies: expected a dict of programs"),
    ]:
        with pytest.raises((TypeError, ValueError), match=said):
            core.set_slot_policies(given)
    with pytest.raises(ValueError, match="expected a tensor"):
        core.step()
    with pytest.raises(ValueError, match="out.action"):
        envs.rollout(fixed, 2, out=envs.rollout(network_for(envs), 2))
    envs.step(torch.zeros(6, 2))
    functions = make("Trading", opponents={"maker": [lambda seen: torch.zeros(len(seen), 4)]})
    with pytest.raises(ValueError, match="expected an environment without opponents that are functions"):
        functions.rollout(fixed, 2)
    functions.step(torch.zeros(6, 2))


def test_opponents_play_and_remember_on_whoever_has_the_learners_slot():
    envs = make("Trading", opponents={"maker": [patient]}, stagger=False)
    core = envs.unwrapped.core
    for turn in range(3):
        envs.rollout([fixed, taker, plain_maker][turn], 1)
        assert core.slot_programs[1] is patient
        place = core._engine.slot_policies.places[1]
        assert core._engine.bound("policy_memory")[:, place.memory].tolist() == [turn + 1] * 6
    core.set_slot_policies({1: fixed})
    envs.rollout(taker, 1)
    assert core.slot_programs == {1: fixed, 0: taker}
    core.set_slot_policies({})
    assert core.slot_programs == {1: patient}
    envs.step(torch.zeros(6, 2))
