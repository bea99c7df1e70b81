"""Saved states: what they are of, the range of every number, and going on from them."""

import io

import gymnasium as gym
import numpy as np
import pytest
import torch
from env_helpers import assert_same, draw_actions, environments, make_cores
from hypothesis import given, settings
from messages import mentions
from thorough import covering, examples

import kineticsim_env as ks
from kineticsim_env.envs.state_dict import load_state, state_of
from kineticsim_env.errors import MarketError
from kineticsim_env.runtime import saved_states
from kineticsim_env.runtime.saved_states import read_about

SMALL = {"preset": "trading", "bank_size": 2, "warmup": 3, "horizon": 9, "stagger": False}
EXTREMES = {
    torch.int32: (-(2**31), -(2**31) + 1, -1, 2**30, 2**31 - 1),
    torch.int64: (-(2**63), -(2**62), -1, 2**62, 2**63 - 1),
    torch.float32: (-1.5, 2.0, float("nan"), float("inf")),
}
every_engine = pytest.mark.parametrize("engine", ["cpu", "numpy", pytest.param("cuda", marks=pytest.mark.gpu)])


def make(engine="numpy", num_envs=4, task="MarketMaking", **changes):
    settings = {"engine": engine, "output": "torch", **SMALL, **changes}
    return gym.make_vec(f"KineticSim/{task}-v0", num_envs=num_envs, **settings).unwrapped


def played(envs, steps=4):
    envs.reset(seed=3)
    envs.action_space.seed(3)
    for _ in range(steps):
        envs.step(torch.as_tensor(envs.action_space.sample()).to(envs.device))
    return envs


def same(one, two):
    assert one.keys() == two.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor.cpu(), two[name].cpu()), name


# What a state is of ---------------------------------------------------------------------------------------------------


@every_engine
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"reward": "inventory"}, r"task.reward is edge there, inventory here"),
        ({"horizon": 12}, r"task.horizon is 9 there, 12 here"),
        ({"config": ks.MarketConfig.preset("trading", noise_spread=6)}, r"market.noise_spread is 14 there, 6 here"),
        ({"config": ks.MarketConfig.preset("trading", fee=[1, 2, 3, 4])}, r"market.fee is 0 there, 4 values, sha256 "),
        ({"auctions_per_step": 2}, r"auctions_per_step is 1 there, 2 here"),
        ({"autoreset_mode": "disabled"}, r"autoreset_mode is SAME_STEP there, DISABLED here"),
        ({"stagger": True}, r"stagger is False there, True here"),
        ({"replace": "maker"}, r"slots is \[None\] there, \['maker'\] here"),
        ({"bank_size": 3}, r"task.bank_size is 2 there, 3 here"),
    ],
)
def test_a_state_of_something_else_is_refused_by_name(engine, changes, said):
    saved, other = played(make(engine)).state_dict(), make(engine, **changes)
    before = played(other).state_dict()
    with pytest.raises(ValueError, match=said):
        other.load_state_dict(saved)
    same(other.state_dict(), before)
    with pytest.warns(UserWarning, match=said) as caught:
        other.load_state_dict(saved, strict=False)
    assert caught[0].filename == __file__, "the user's own line is named"
    assert torch.equal(other.simulator.bid.cpu(), saved["bid"].cpu())
    other.step(torch.zeros(4, 4, device=other.device))


def test_a_state_says_what_it_is_of():
    envs = played(make())
    about = read_about(envs.state_dict())
    assert about["market"]["noise_spread"] == 14 and about["task"]["name"] == "MarketMakingTask"
    assert about["markets"] == 4 and about["roles"] == ["maker"] and about["scenarios"] is False
    envs.set_task(reward="asymmetric")
    assert read_about(envs.state_dict())["task"]["reward"] == "asymmetric"  # what it is now
    config = ks.MarketConfig.preset("trading", tie=["mid", "lowest"], fee=[1, 2])
    one, two = (read_about(ks.Simulator(config, 2, engine=engine).state_dict()) for engine in ("numpy", "cpu"))
    assert one == two  # the engine is no part of it
    assert read_about(ks.Simulator(config.replace(fee=[2, 1]), 2, engine="numpy").state_dict()) != one


def test_states_without_a_word_on_what_they_are_of():
    """As versions before saved them."""
    envs = played(make())
    saved = envs.state_dict()
    bare = {name: value for name, value in saved.items() if name != "about"}
    with pytest.raises(ValueError, match=r"state\['about'\]: .*got none, .*strict=False"):
        envs.load_state_dict(bare)
    with pytest.warns(UserWarning, match=r"state\['about'\]: .*got none"):
        envs.load_state_dict(bare, strict=False)
    for bad in (torch.zeros(3), "about", None, saved_states.pack([1]), saved_states.pack({"format": 99})):
        with pytest.raises(ValueError, match=r"state\['about'\]: .*got"):
            envs.load_state_dict({**saved, "about": bad})
    with pytest.raises(TypeError, match="strict: expected True or False, got 'no'"):
        envs.load_state_dict(saved, strict="no")


@every_engine
def test_a_state_through_a_file(engine):
    """torch.save and a load that runs no code; then bit for bit on another engine."""
    envs = played(make(engine, randomise={"fee": (0, 9)}, num_scenarios=5))
    file = io.BytesIO()
    torch.save(envs.state_dict(), file)
    file.seek(0)
    other = make("cpu", randomise={"fee": (0, 9)}, num_scenarios=5)
    other.load_state_dict(torch.load(file, weights_only=True, map_location="cpu"))
    played_on = [env.step(torch.zeros(4, 4, device=env.device)) for env in (envs, other)]
    for one, two in zip(*(result[:4] for result in played_on), strict=True):
        assert torch.equal(one.cpu(), two.cpu())


# Ranges ---------------------------------------------------------------------------------------------------------------


@settings(max_examples=examples(60))
@given(environments(most_slots=4))
def test_every_state_that_can_be_reached_is_taken(environment):
    """And a fresh environment with another table of scenarios goes on bit for bit."""
    arguments, kwargs, seed, steps = environment
    first, second = make_cores(arguments, kwargs, ("cpu", "cpu"))
    if kwargs["randomise"]:
        second.live_task.set_scenarios({"fee": {"values": [0, 3]}})
    generator = np.random.default_rng(seed)
    first.reset(seed)
    second.reset(seed + 1)
    for step in range(steps):
        cores = (first, second) if step > steps // 2 else (first,)
        actions = draw_actions(first, generator, 0.0)
        for core in cores:
            core._engine.launch(1, auctions=core.auctions_per_step, **actions)
        if len(cores) > 1:
            assert_same(cores, f"after step {step}")
        if step == steps // 2:
            load_state(second, state_of(first), strict=True)
            assert_same((first, second), "after the load")


@covering
@every_engine
@pytest.mark.parametrize("task", ["MarketMaking", "Execution"])
def test_extremes_are_refused_or_make_no_difference(engine, task):
    """`mid_history` of 2^31 - 1, inventory of 2^62 and so on: engines differed, or observations left their space."""
    envs, oracle = played(make(engine, task=task)), make("numpy" if engine != "numpy" else "cpu", task=task)
    saved = envs.state_dict()
    limits, low, high = (
        {},
        *(torch.as_tensor(bound) for bound in (envs.observation_space.low, envs.observation_space.high)),
    )
    for name, tensor in saved.items():
        if name == "about":
            continue
        for value in EXTREMES.get(tensor.dtype, (True, False)):
            for place in ((...,), (0,)):
                changed = tensor.clone()
                changed[place] = value
                try:
                    envs.load_state_dict({**saved, name: changed})
                except ValueError as error:
                    assert mentions(str(error), f"state[{name!r}]: expected .*, got ", begins=True) or name in (
                        "ended",
                        "done",
                        "seed",
                        "episode",
                    )
                    limits[name] = limits.get(name, 0) + 1
                    continue
                oracle.load_state_dict({**saved, name: changed})
                for _ in range(3):
                    action = torch.full((4, 4 if task == "MarketMaking" else 2), 0.4)
                    try:
                        ours = envs.step(action.to(envs.device))
                    except MarketError:
                        with pytest.raises(MarketError):
                            oracle.step(action)
                        break
                    theirs = oracle.step(action)
                    for one, two in zip(ours[:4], theirs[:4], strict=True):
                        assert torch.equal(one.cpu(), two), (name, value)
                    inside = (ours[0].cpu() >= low) & (ours[0].cpu() <= high)
                    inside[:, 30] |= task == "Execution"  # what is left of a block whose side another seed turns
                    assert bool(inside.all()), (name, value)
    refusable = {"bid", "ask", "prev_mid2", "last_tick", "price_origin", "fundamental_price", "episode", "t", "volume"}
    refusable |= {"trades", "error", "quotes", "cash", "inventory", "fees", "elapsed", "mid_history", "volume_history"}
    refusable |= {"prev_value", "arrival2", "scenario", "observation", "final_observation"}
    assert refusable <= limits.keys()


def test_a_block_has_been_traded_on_its_side_and_no_further():
    envs = played(make(task="Execution", side="buy", block_qty=7))
    saved = envs.state_dict()
    for bad in (-1, 8):
        with pytest.raises(ValueError, match=rf"state\['inventory'\]: expected from nothing to all of the.*got {bad}"):
            envs.load_state_dict({**saved, "inventory": torch.full_like(saved["inventory"], bad)})
    either, oracle = (played(make(engine, task="Execution", num_envs=64, block_qty=7)) for engine in ("cpu", "numpy"))
    saved = either.state_dict()
    for bad in (-8, 8):
        with pytest.raises(ValueError, match=rf"state\['inventory'\]: expected from nothing.*got {bad}"):
            either.load_state_dict({**saved, "inventory": torch.full_like(saved["inventory"], bad)})
    for env in (either, oracle):  # those that sell have more to sell
        env.load_state_dict({**saved, "inventory": torch.full_like(saved["inventory"], 3)})
    for _ in range(9):
        actions = torch.as_tensor(either.action_space.sample())
        for one, two in zip(either.step(actions)[:4], oracle.step(actions)[:4], strict=True):
            assert torch.equal(one, two)


@pytest.mark.parametrize("engine", ["cpu", "numpy"])
def test_a_last_price_from_where_the_grid_cannot_follow(engine):
    """The C++ engine thought it far from its bounds, made no copy of the state, and lost it with the market."""
    envs = played(make(engine), steps=0)  # no quotes, which would be a side
    saved = envs.state_dict()
    saved["last_tick"] = torch.full_like(saved["last_tick"], -(2**29) - 1) - saved["price_origin"]
    saved["bid"].zero_()
    envs.load_state_dict(saved)
    with pytest.raises(MarketError, match="window would leave"):
        envs.step(torch.zeros(4, 4))
    same(envs.state_dict(), saved)


@pytest.mark.parametrize("interval", [1, 48])
def test_the_last_interval_whose_events_are_below_2_to_the_32(interval):
    """What is left of the episode must end in time: the decision that would begin beyond is refused."""
    market = ks.MarketConfig.preset("news", interval=interval, beat=interval)
    envs, oracle = (played(make(engine, config=market, preset=None)) for engine in ("cpu", "numpy"))
    saved = envs.state_dict()
    last = 2**32 // interval - (9 - saved["elapsed"].long()).reshape(saved["t"].shape)
    for late in (1, 0):
        saved["t"] = last + late
        if late:
            with pytest.raises(ValueError, match=r"state\['t'\]: expected so low that the episode ends below 2\^32"):
                envs.load_state_dict(saved)
            continue
        for env in (envs, oracle):
            env.load_state_dict(saved)
    for _ in range(5):
        actions = torch.as_tensor(envs.action_space.sample())
        for one, two in zip(envs.step(actions)[:4], oracle.step(actions)[:4], strict=True):
            assert torch.equal(one, two)


def test_mids_further_apart_than_32_bits():
    envs = played(make())
    saved = envs.state_dict()
    far = saved["mid_history"].clone()
    far[0, 0], far[0, 1] = 2**30, -(2**30)
    with pytest.raises(
        ValueError, match=r"state\['mid_history'\]: expected mids less than 2\^31 apart.*got 1073741824"
    ):
        envs.load_state_dict({**saved, "mid_history": far})
