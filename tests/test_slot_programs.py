"""Policies of slots in the language of traders: engines alike, recorded plays, what they see, and what is refused."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from env_helpers import assert_same, clock_environments, draw_actions, environments, make_cores
from hypothesis import given, settings
from hypothesis import strategies as st
from slot_programs import MARKET, ONE_LEVEL, SLOT, fixed, ladder, looks_at_all, patient, plain_maker
from strategies import PAIRS, every_engine
from thorough import examples

import kineticsim_env as ks
from kineticsim_env import policies
from kineticsim_env.agents.vocabulary import ProgramError
from kineticsim_env.engines.base import ENV_STEP
from kineticsim_env.envs.copies import clone_of
from kineticsim_env.envs.state_dict import load_state, state_of
from kineticsim_env.tasks import MarketMakingTask, TradingTask

pairs = pytest.mark.parametrize("engines", PAIRS)
seeds = st.integers(0, 2**32)
SMALL = {"bank_size": 2, "warmup": 4, "horizon": 9}
NAMES = ("policy_memory", "played_quotes", "played_flags")


def choose(core, seed):
    """Programs of some slots, at least one."""
    rng = np.random.default_rng(seed)
    known = [*ONE_LEVEL, plain_maker.replace(half_spread=rng.integers(-3, 9, core.simulator.num_markets))]
    known += [ladder, ladder.replace(step=3)] if core.config.orders_per_side > 1 else []
    chosen = {k: known[rng.integers(len(known))] for k in range(len(core.roles)) if rng.random() < 0.6}
    return chosen or {0: known[rng.integers(len(known))]}


def assert_alike(cores, when):
    assert_same(cores, when)
    for name in NAMES:
        one, two = (core._engine.bound(name).cpu() for core in cores)
        assert torch.equal(one, two), f"{name} {when}: {one.tolist()} is not {two.tolist()}"


def submit(core, given):
    on_device = {name: tensor.contiguous().to(core.device) for name, tensor in given.items()}
    core._engine.launch(ENV_STEP, auctions=core.auctions_per_step, **on_device)


def check_agreement(environment, seed, engines):
    """Play on two engines, with resets between; and on a third that is handed the records that were played."""
    check_plays(make_cores(*environment[:2], (*engines, engines[1])), environment, seed)


def check_plays(cores, environment, seed):
    """Do what `check_agreement` says with environments that are made already."""
    arguments, _, number, steps = environment
    chosen = choose(cores[0], seed)
    generator = np.random.default_rng(number)
    for core in cores:
        core.reset(number)
    for core in cores[:2]:
        core.set_slot_policies(chosen)
    for t in range(steps):
        if len(chosen) == len(cores[0].roles):
            given = {"actions": None, "choices": None}
            for core in cores[:2]:
                core._engine.launch(ENV_STEP, auctions=core.auctions_per_step, **given)
            quotes, words = (cores[0]._engine.bound(name)[None] for name in NAMES[1:])
            flags = {"order_flags": words} if cores[0].config.is_continuous else {}
            submit(cores[2], {"new_quotes": quotes, **flags})
            assert_same(cores[1:], f"after the records of step {t}")
        else:
            actions = draw_actions(cores[0], generator, 0.1)  # bad ones in slots with programs are not looked at
            for core in cores[:2]:
                submit(core, actions)
        assert_alike(cores[:2], f"after step {t}")
        mask = generator.random(arguments[1]) < 0.2
        if mask.any():
            for core in cores:
                core.simulator.tensors["error"].zero_()
                core.reset(None, mask)
            assert_alike(cores[:2], f"in the reset after step {t}")


@pairs
@settings(max_examples=examples(60))  # on a GPU each compiles a kernel
@given(environment=environments(most_slots=4), seed=seeds)
def test_engines_agree_where_each_comes_once(engines, environment, seed):
    check_agreement(environment, seed, engines)


@pairs
@settings(max_examples=examples(60))  # on a GPU each compiles a kernel
@given(environment=environments(most_slots=1), seed=seeds)
def test_engines_agree_on_one_slot_and_a_step_of_what_was_played_is_the_same(engines, environment, seed):
    check_agreement(environment, seed, engines)


@pairs
@settings(max_examples=examples(60))  # on a GPU each compiles a kernel
@given(environment=clock_environments(), seed=seeds)
def test_engines_agree_on_the_clock(engines, environment, seed):
    check_agreement(environment, seed, engines)


@pairs
@pytest.mark.parametrize("decide", ["fill", "touch"])
def test_engines_agree_where_events_end_decisions(engines, decide):
    task = TradingTask(decide=decide, **SMALL)
    environment = (ks.MarketConfig.preset("news"), 3, task, ["trader"]), {"slots": (None,)}, 5, 24
    check_agreement(environment, 1, engines)


# What they see --------------------------------------------------------------------------------------------------------

ECHO = """
@ks.policy(memory={memory}, informed=True)
def echo(market, slot, own, draw):
{body}
    return ks.quote((market.mid2 >> 1) - 1, 3, (market.mid2 >> 1) + 2, 3)
"""


def make_echo(tmp_path, names):
    """A program that keeps what it sees; the language needs a file."""
    body = "\n".join(f"    own.x{i} = {name}" for i, name in enumerate(names))
    path = tmp_path / "echo.py"
    path.write_text(
        "import kineticsim_env as ks\n" + ECHO.format(memory={f"x{i}": 0 for i in range(len(names))}, body=body)
    )
    space = {}
    exec(compile(path.read_text(), str(path), "exec"), space)
    return space["echo"]


@every_engine
@pytest.mark.parametrize("preset", ["news", "trading"])
def test_what_is_seen_is_what_stands_before_the_decision(tmp_path, engine, preset):
    names = [f"market.{name}" for name in MARKET] + [f"slot.{name}" for name in SLOT]
    names += [
        "slot.bid(0)",
        "slot.ask_qty(0)",
        "slot.bid_ahead(0)",
        "slot.mid_change(1)",
        "slot.volume(0)",
        "slot.bid(1)",
    ]
    arguments = (ks.MarketConfig.preset(preset), 3, MarketMakingTask(max_qty=7, **SMALL), ["maker"])
    (core,) = make_cores(arguments, {"slots": ("maker",), "account_info": True}, (engine,))
    core.reset(4)
    core.set_slot_policies({0: make_echo(tmp_path, names)})
    fills = torch.zeros(3, 2)
    for _ in range(15):
        state = {name: tensor.clone() for name, tensor in core.simulator.tensors.items()}
        tensors = {name: tensor.clone() for name, tensor in core.tensors.items()}
        quotes, mids = state["quotes"].view(3, 4).cpu(), tensors["mid_history"].cpu().long()
        sides = [state["bid"].cpu(), state["ask"].cpu()]
        origin, ticks = state["price_origin"].cpu(), torch.arange(sides[0].shape[1])
        best_bid = torch.where(sides[0] > 0, ticks, -1).amax(1)
        best_ask = torch.where(sides[1] > 0, ticks, len(ticks)).amin(1)
        units = [
            torch.nn.functional.pad(side, (0, 1))[range(3), at]
            for side, at in zip(sides, (best_bid, best_ask), strict=True)
        ]
        none = 2**31 - 1
        best_bid = torch.where(units[0] > 0, best_bid + origin, -none)
        best_ask = torch.where(units[1] > 0, best_ask + origin, none)
        fills = fills * (state["t"].cpu() > 0)[:, None]
        ahead = state["queue"].view(3, 2)[:, 0].cpu() if preset == "news" else torch.zeros(3)
        expected = [
            mids[:, 0], (mids[:, 0] - mids[:, 1]).sign(), state["last_tick"].cpu() + origin, best_bid,
            best_ask, *units, state["t"].cpu(),
            state["fundamental_price"].cpu(), state["inventory"].view(3).cpu(), state["cash"].view(3).cpu(),
            fills[:, 0], fills[:, 1], tensors["elapsed"].cpu(), 9 - tensors["elapsed"].cpu(),
            0 * mids[:, 0], 0 * mids[:, 0],
            tensors["arrival2"].cpu(), 7 + 0 * mids[:, 0], core.task.max_offset + 0 * mids[:, 0],
            7 + 0 * mids[:, 0], core.simulator.config.inventory_limit + 0 * mids[:, 0],
            quotes[:, 0] * (quotes[:, 1] > 0), quotes[:, 3], ahead, mids[:, 1] - mids[:, 2],
            tensors["volume_history"][:, 0].cpu(), 0 * mids[:, 0],
        ]  # fmt: skip
        core.step()
        found = core._engine.bound("policy_memory").cpu()
        for i, (name, values) in enumerate(zip(names, expected, strict=True)):
            assert found[:, i].tolist() == values.long().tolist(), name
        fills = core.fills[:, 0].clone().cpu()


@every_engine
def test_memory_begins_anew_with_each_episode_and_goes_with_states_and_clones(engine):
    arguments = (ks.MarketConfig.preset("news"), 3, TradingTask(**SMALL), ["trader"])
    cores = make_cores(arguments, {"slots": (None,), "stagger": False}, (engine, engine))
    for core in cores:
        core.set_slot_policies({0: patient})
    here, there = cores
    here.reset(6), there.reset(7)
    for t in range(11):
        here.step()
        assert here._engine.bound("policy_memory")[:, 0].tolist() == [t % 9 + 1] * 3
        load_state(there, state_of(here), strict=True)
        copy = clone_of(here)
        for core in (there, copy, here):
            core.step()
        assert_alike((here, there), f"from a state after step {t}")
        assert_alike((here, copy), f"in a clone after step {t}")
        load_state(here, state_of(here), strict=True)
        here.reset(6)
        for _ in range(t + 1):
            here.step()


def test_nothing_is_read_of_actions_that_a_step_of_programs_has_not():
    """Rows of actions keep no length from the step before, by which a kernel would look for them at no address."""
    arguments = (ks.MarketConfig.preset("trading"), 3, TradingTask(**SMALL), ["trader", "maker"])
    (core,) = make_cores(arguments, {"slots": (None, None)}, ("cpu",))
    core.reset(1)
    core.step(torch.zeros(3, 2, 4))
    core.set_slot_policies({0: patient, 1: plain_maker})
    core.step()
    struct = core._engine._struct
    assert (struct.actions, struct.action_stride) == (None, 0)


def test_programs_that_cannot_be_compiled_change_nothing(monkeypatch):
    arguments = (ks.MarketConfig.preset("news"), 3, TradingTask(**SMALL), ["trader"])
    (core,) = make_cores(arguments, {"slots": (None,)}, ("cpu",))
    core.reset(1)
    core.set_slot_policies({0: patient})

    def fails(_):
        raise ks.EngineUnavailable("no C++ compiler is found")

    monkeypatch.setattr("kineticsim_env.runtime.agent_library.policy_functions", fails)
    with pytest.raises(ks.EngineUnavailable, match="no C"):
        core.set_slot_policies({0: plain_maker})
    assert core.slot_programs == {0: patient}
    core.step()


# Opponents ------------------------------------------------------------------------------------------------------------


@every_engine
@pytest.mark.parametrize("mode", ["SAME_STEP", "NEXT_STEP", "DISABLED"])
@pytest.mark.parametrize("preset", ["news", "trading"])
def test_programs_as_opponents_play_as_functions_do(engine, mode, preset):
    """A market's episode ends with the learner's, not before, whatever ends for opponents."""
    task = {"horizon": 7, "bank_size": 2, "warmup": 4, "max_loss": 40.0}
    scripted = policies.FixedSpread(MarketMakingTask(**task), 2.0)
    how = {
        "num_envs": 5,
        "engine": engine,
        "output": "torch",
        "preset": preset,
        "autoreset_mode": mode,
        "account_info": True,
    }
    made = [
        gym.make_vec("KineticSim/Trading-v0", opponents={"maker": [one]}, **how, **task) for one in (fixed, scripted)
    ]
    first, second = (envs.unwrapped for envs in made)
    for envs in (first, second):
        envs.reset(seed=3)
    generator, ended = torch.Generator().manual_seed(0), 0
    for _ in range(25):
        action = (torch.rand(5, 2, generator=generator) * 2 - 1).to(first.core.device)
        results = [envs.step(action) for envs in (first, second)]
        for one, two in zip(results[0][:4], results[1][:4], strict=True):
            assert torch.equal(one, two)
        for name, values in results[0][4].get("account_info", {}).items():
            assert torch.equal(values.nan_to_num(7.5), results[1][4]["account_info"][name].nan_to_num(7.5)), name
        ended += int((results[0][2] | results[0][3]).sum())
        if mode == "DISABLED" and bool((results[0][2] | results[0][3]).any()):
            for envs in (first, second):
                envs.reset(options={"reset_mask": results[0][2] | results[0][3]})
    assert ended > 4


def test_programs_as_opponents_of_records_and_of_choices():
    task = {"engine": "cpu", **SMALL}
    envs = gym.make_vec("KineticSim/MarketMaking-v0", num_envs=2, opponents={"trader": [patient]}, **task).unwrapped
    envs.reset(seed=0)
    envs.step(ks.OrderRecords([[990, 1, 1010, 1]] * 2))
    assert envs.opponent.tolist() == [[0], [0]]
    made = [
        gym.make_vec(
            "KineticSim/MarketMaking-v0", num_envs=2, opponents={"trader": [patient]}, action_type="discrete",
            **{**task, "engine": engine},
        ).unwrapped
        for engine in ("cpu", "numpy")
    ]  # fmt: skip
    for envs in made:
        envs.reset(seed=0)
    for _ in range(9):
        for envs in made:
            envs.step(np.array([9, 17]))
        assert_alike([envs.core for envs in made], "after a step of choices")


# Refusals -------------------------------------------------------------------------------------------------------------


def test_what_is_refused_when_a_policy_is_declared():
    with pytest.raises(ProgramError, match="expected four arguments, market, slot, own, draw, got 3"):

        @ks.policy()
        def three(market, own, draw):
            return ks.keep()

    with pytest.raises(ProgramError, match=r"returns '3'; return ks.quote\(...\), ks.quotes\(...\) or ks.keep\(\)"):

        @ks.policy()
        def number(market, slot, own, draw):
            return 3

    with pytest.raises(ProgramError, match=r"got 'ks.order\(1, 2, 3\)' as a level; write ks.quote"):

        @ks.policy()
        def order(market, slot, own, draw):
            return ks.order(1, 2, 3)

    with pytest.raises(ProgramError, match="reads 'wealth', which a slot does not have"):

        @ks.policy()
        def wealth(market, slot, own, draw):
            return ks.quote(slot.wealth, 1)

    with pytest.raises(ProgramError, match=r"got 'slot.bid' without a call; write slot.bid\(...\)"):

        @ks.policy()
        def bid(market, slot, own, draw):
            return ks.quote(slot.bid, 1)

    with pytest.raises(ProgramError, match="expected bid, bid_qty, ask, ask_qty, bid_flags, ask_flags, each once"):

        @ks.policy()
        def twice(market, slot, own, draw):
            return ks.quote(1, 2, bid=3)

    with pytest.raises(ProgramError, match=r"expected 1 to 8 levels in ks.quotes"):

        @ks.policy()
        def none(market, slot, own, draw):
            return ks.quotes()

    with pytest.raises(ProgramError, match="reads 'fundamental', .*informed=True"):

        @ks.policy()
        def knows(market, slot, own, draw):
            return ks.quote(market.fundamental, 1)

    with pytest.raises(ValueError, match=r"maker: memory\['x'\]: expected one of .*, got 'fundamental'"):

        @ks.policy(memory={"x": "fundamental"})
        def maker(market, slot, own, draw):
            return ks.keep()


def test_what_is_refused_of_parameters_ladders_and_opponents():
    with pytest.raises(ValueError, match="plain_maker: expected half_spread, skew, got the parameter 'size'"):
        plain_maker.replace(size=3)
    with pytest.raises(ValueError, match="plain_maker.skew: expected a whole number of 32 bits"):
        plain_maker.replace(skew=0.5)
    task = {"num_envs": 2, "engine": "numpy", **SMALL}
    with pytest.raises(ValueError, match="ladder: expected up to 1 levels, the orders_per_side of the market, got 2"):
        gym.make_vec("KineticSim/Trading-v0", opponents={"maker": [ladder]}, **task)
    with pytest.raises(ValueError, match="plain_maker.skew: expected 2 values, one per market, got 3"):
        gym.make_vec("KineticSim/Trading-v0", opponents={"maker": [plain_maker.replace(skew=[1, 2, 3])]}, **task)
    with pytest.raises(TypeError, match="expected programs .* or functions in all, got both"):
        gym.make_vec("KineticSim/Trading-v0", opponents={"maker": [plain_maker, lambda seen: seen]}, **task)
    with pytest.raises(ValueError, match="expected one program, got 2 to draw from"):
        gym.make_vec("KineticSim/Trading-v0", opponents={"maker": [plain_maker, looks_at_all]}, **task)
