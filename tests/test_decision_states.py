"""Decisions at events: what resets, restarts, clones and saved states make of `decision_events`, and bad input."""

import re

import gymnasium
import numpy as np
import pytest
import torch
from env_helpers import assert_same, launch, make_cores
from strategies import every_engine
from test_decisions_at_events import at_random, both_rules, events, hold, make, pencil, seen

import kineticsim_env as ks
from kineticsim_env.engines.base import ENV_RESTART
from kineticsim_env.envs.copies import clone_of
from kineticsim_env.envs.state_dict import load_state, state_of
from kineticsim_env.tasks import ManyLearnersTask, MarketMakingTask

CONTINUOUS = ks.MarketConfig.preset("continuous")
ONE_DECISION = {"horizon": np.array([[1], [4]]), "markets": 2}  # of the first market, of 8 events without quotes


# Resets ---------------------------------------------------------------------------------------------------------------


@every_engine
def test_same_step_shows_what_was_played(engine):
    """In the tensor and the final observation; the episode that begins has played nothing yet."""
    core = make(engine, "fill", **ONE_DECISION)
    core.reset(3)
    hold(core)
    assert events(core) == [8, 8] and core.tensors["elapsed"].tolist() == [0, 8]
    assert core.tensors["final_observation"][:, 0, -2].tolist() == [1.0, 1.0]
    assert core.tensors["observation"][:, 0, -2].tolist() == [0.0, 1.0]


@every_engine
def test_a_market_that_is_reset_has_not_played(engine):
    core = make(engine, "fill", autoreset_mode="next_step", **ONE_DECISION)
    core.reset(3)
    hold(core)
    assert events(core) == [8, 8] and core.tensors["observation"][:, 0, -2].tolist() == [1.0, 1.0]
    hold(core)
    assert events(core) == [0, 8] and core.tensors["observation"][:, 0, -2].tolist() == [0.0, 1.0]
    assert core.tensors["elapsed"].tolist() == [0, 16]


@every_engine
def test_a_market_that_has_ended_repeats_its_observation(engine):
    core = make(engine, "fill", autoreset_mode="disabled", **ONE_DECISION)
    core.reset(3)
    for played in ([8, 8], [0, 8]):
        hold(core)
        assert events(core) == played and core.tensors["observation"][:, 0, -2].tolist() == [1.0, 1.0]


@every_engine
@both_rules
def test_a_reset_of_some_leaves_the_others(engine, decide):
    core, generator = make(engine, decide, stagger=True), np.random.default_rng(4)
    core.reset(3)
    for _ in range(3):
        at_random(core, generator)
    played, elapsed, column = events(core), core.tensors["elapsed"].tolist(), seen(core).tolist()
    assert min(played) > 0
    core.reset(mask=torch.tensor([False, True, False], device=core.device))
    assert events(core) == [played[0], 0, played[2]]
    assert core.tensors["elapsed"].tolist() == [elapsed[0], 0, elapsed[2]]
    assert seen(core).tolist() == [column[0], 0.0, column[2]]


@every_engine
def test_a_restart_leaves_the_number(engine):
    """A step with functions of users' own ends with it; until then such markets wait, as in DISABLED."""
    core = make(engine, "fill", autoreset_mode="disabled", **ONE_DECISION)
    core.reset(3)
    hold(core)
    core._engine.launch(ENV_RESTART)
    assert events(core) == [8, 8] and core.tensors["elapsed"].tolist() == [0, 8]
    assert core.tensors["observation"][:, 0, -2].tolist() == [0.0, 1.0]


@every_engine
def test_a_horizon_of_as_many_events_as_there_are_numbers_for(engine):
    """Where `elapsed` would come to 2^31 the environment is refused."""
    config = CONTINUOUS.replace(interval=2**12)
    task = ManyLearnersTask(decide="fill", horizon=2**19 - 1, bank_size=0, warmup=0)
    (core,) = make_cores((config, 2, task, ["trader"]), {"slots": (None,)}, (engine,))
    core.reset(1)
    assert bool((core.tensors["elapsed"] >= 0).all()) and bool((core.tensors["observation"].abs() <= 1).all())
    said = "horizon: expected episodes of less than 2^31 events, got 524288 decisions of up to 4096"
    with pytest.raises(ValueError, match=re.escape(said)):
        make_cores((config, 2, task.replace(horizon=2**19), ["trader"]), {"slots": (None,)}, (engine,))


# States ---------------------------------------------------------------------------------------------------------------


def in_the_middle(engine, decide, seed=3, **settings):
    """An environment with quotes under way, some decisions into its episodes."""
    given = {"late": 20, "stagger": True, "bank_size": 4, "warmup": 2, "account_info": True}
    core, generator = make(engine, decide, ("maker", "trader"), **given | settings), np.random.default_rng(seed)
    core.reset(seed)
    for _ in range(4):
        at_random(core, generator)
    return core


@every_engine
@both_rules
@pytest.mark.parametrize("markets", [1, 3])
def test_clones_and_saved_states_go_on(engine, decide, markets):
    core = in_the_middle(engine, decide, markets=markets)
    assert bool(core.simulator.tensors["due"].any()) and min(events(core)) > 0
    loaded = in_the_middle(engine, decide, seed=9, markets=markets)
    load_state(loaded, state_of(core), strict=True)
    for other in (clone_of(core), loaded):
        assert_same((core, other), "as it was taken")
    others = [clone_of(core), loaded]
    for step in range(12):
        at_random(core, np.random.default_rng(step))
        for other in others:
            at_random(other, np.random.default_rng(step))
            assert_same((core, other), f"after step {step}")


@every_engine
def test_states_that_are_refused(engine):
    core = in_the_middle(engine, "fill")
    for wrong in (-1, 9):
        saved = state_of(core)
        saved["decision_events"][1] = wrong
        with pytest.raises(ValueError, match=rf"state\['decision_events'\]: expected 0 to 8, got {wrong}"):
            load_state(core, saved, strict=True)
    saved = state_of(core)
    saved["elapsed"][1] = 5 * 8 + 1
    with pytest.raises(ValueError, match=r"state\['elapsed'\]: expected 0 to 40, got 41"):
        load_state(core, saved, strict=True)
    for other in (in_the_middle(engine, "touch"), in_the_middle(engine, "interval")):
        with pytest.raises(ValueError, match="decide|decision_events"):
            load_state(core, state_of(other), strict=True)


# Input ----------------------------------------------------------------------------------------------------------------


@both_rules
@pytest.mark.parametrize("task", ["MarketMaking", "Execution", "Trading"])
def test_call_auctions_have_no_such_decisions(decide, task):
    said = f"decide: expected 'interval' with mechanism='call', got {decide!r}"
    for preset in ("trading", "paper"):
        with pytest.raises(ValueError, match=f"^{said}"):
            gymnasium.make_vec(f"KineticSim/{task}-v0", num_envs=2, preset=preset, decide=decide, engine="cpu")
    with pytest.raises(ValueError, match=f"^{said}"):
        MarketMakingTask(decide=decide).market_config(ks.MarketConfig.preset("trading"))


@pytest.mark.parametrize("wrong", ["event", "FILL", "", 1, None, True, ["fill"]])
def test_rules_that_there_are_not(wrong):
    with pytest.raises((TypeError, ValueError), match="^decide: expected .*interval.*fill.*touch.* got"):
        MarketMakingTask(decide=wrong)


def test_the_rule_stays():
    envs = gymnasium.make_vec("KineticSim/Trading-v0", num_envs=2, decide="touch", engine="numpy", bank_size=0)
    with pytest.raises(ValueError, match="set_task: expected one of .*got the field 'decide'"):
        envs.unwrapped.set_task(decide="fill")


@every_engine
@both_rules
def test_bad_actions_are_noted_and_go_on(engine, decide):
    """A NaN keeps what stands, to the end of the decision."""
    core = pencil(engine, decide, action_type="continuous")
    row = torch.tensor([[[-1.0, -1.0, 1.0, -1.0], [0.0, 0.0, 0.0, 0.0]]])
    launch([core], {"actions": row})
    standing = core.simulator.quotes.clone()
    row[0, 0, 2] = torch.nan
    launch([core], {"actions": row})
    assert torch.equal(core.simulator.quotes, standing) and events(core) == [5]
    assert core.simulator.tensors["error"].tolist() == [2]
