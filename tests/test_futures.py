"""`clone(future_seed=)`: the past as it was, what the episode has drawn as it is, and other words from now on."""

import gymnasium as gym
import numpy as np
import plain_rules
import pytest
import torch
from env_helpers import assert_same, clock_environments, draw_actions, environments, launch, make_cores
from hypothesis import given, settings
from hypothesis import strategies as st
from markets import FEW_ORDERS
from thorough import examples

import kineticsim_env as ks
from kineticsim_env.engines.futures import MOST_TRIED, num_tried
from kineticsim_env.envs.copies import clone_of
from kineticsim_env.envs.futures import slots_draws
from kineticsim_env.envs.state_dict import load_state, state_of
from kineticsim_env.wrappers import RecordEpisodeStatistics

SMALL = {"config": FEW_ORDERS, "bank_size": 4, "warmup": 3, "horizon": 5, "engine": "cpu"}
SLOT = 2**30 + 64
LEARNERS = {"maker": 1, "momentum": 1, "noise": 2, "executor": 1}
MASK = 2**64 - 1
every_engine = pytest.mark.parametrize("engine", ["cpu", "numpy", pytest.param("cuda", marks=pytest.mark.gpu)])


def make(num_envs=8, task="MarketMaking", **changes):
    arguments = {"output": "torch", **SMALL, **changes}
    return gym.make_vec(f"KineticSim/{task}-v0", num_envs=num_envs, **arguments).unwrapped


def told(core):
    """What docs/environment.md draws for each slot of each market and reads again, from plain words."""
    state = {name: core.simulator.tensors[name].tolist() for name in ("seed", "episode", "t")}
    task, mids, found = core.live_task.task_of_all(), core.tensors["mid_history"].tolist(), []
    for m, (seed, episode, t) in enumerate(zip(*state.values(), strict=True)):
        for slot, role in enumerate(core.roles):
            first, now = (plain_rules.word(seed, episode, at, SLOT + slot) for at in (0, t))
            if role == "noise":
                most = int(core.setting("max_target")[m, slot]) if "task_values" in core.tensors else task.max_target
                found.append((first >> 31 & 1, 1 + ((first >> 32 & 0xFFFF) * most >> 16)))
            elif role == "executor" and task.side == "random":
                found.append(first >> 31 & 1)
            elif role == "momentum" and mids[m][0] == mids[m][1]:
                found.append(now >> 31 & 1)
    return found


def all_of(core):
    params = core._engine.parameters().expand(core.simulator.num_markets, -1)
    tensors = {**core.simulator._state, **core.tensors, "fills": core.fills, "params": params}
    return {name: tensor.cpu().clone() for name, tensor in tensors.items()}


def assert_equal(one, two, without=()):
    assert one.keys() == two.keys()
    for name in one.keys() - set(without):
        assert torch.equal(one[name].view(torch.uint8), two[name].view(torch.uint8)), name


def steps(core, seed, count):
    generator, after = np.random.default_rng(seed), []
    for _ in range(count):
        launch([core], draw_actions(core, generator, 0.0))
        after.append(all_of(core))
    return after


def check_future(environment, engine, future):
    """The same past and the same draws; the same future twice, on the NumPy engine, and from a saved state of it."""
    arguments, kwargs, seed, count = environment
    core, other, like = make_cores(arguments, kwargs, [engine, "numpy", engine])
    for one in (core, other):
        one.reset(seed)
        steps(one, seed, count // 2)
    before, known = all_of(core), told(core)
    if num_tried(slots_draws(core)) > 100_000:  # which takes long, or is refused
        if num_tried(slots_draws(core)) > MOST_TRIED:
            with pytest.raises(ValueError, match=r"future_seed: expected .*noise learners"):
                clone_of(core, future)
            assert_equal(all_of(core), before)
        return
    clone, again, reference = clone_of(core, future), clone_of(core, future), clone_of(other, future)
    assert_equal(all_of(core), before)
    assert_equal(all_of(clone), before, without=["seed"])
    assert told(clone) == known
    assert_same((clone, reference), "of other engines")
    load_state(like, state_of(clone), strict=True)
    runs = [steps(one, seed + 1, count) for one in (clone, again, reference, like)]
    for mine, *theirs in zip(*runs, strict=True):
        for its in theirs:
            assert_equal(mine, its)
    assert_equal(all_of(core), before)


FUTURES = st.integers(-(2**63), 2**63 - 10)


@pytest.mark.parametrize("engine", ["cpu"])
@settings(max_examples=examples(25))
@given(environment=environments(most_slots=5), future=FUTURES)
def test_the_past_stays_and_the_future_is_another(engine, environment, future):
    check_future(environment, engine, future)


@pytest.mark.parametrize("engine", ["cpu"])
@settings(max_examples=examples(20))
@given(environment=clock_environments(most_slots=4), future=FUTURES)
def test_the_past_stays_and_the_future_is_another_on_the_clock(engine, environment, future):
    check_future(environment, engine, future)


@pytest.mark.gpu
@settings(max_examples=examples(10))
@given(environment=environments(most_slots=5), future=FUTURES)
def test_the_past_stays_on_a_gpu(environment, future):
    check_future(environment, "cuda", future)


# Which seed it is -----------------------------------------------------------------------------------------------------


def unmix64(z):
    z = ((z ^ z >> 31 ^ z >> 62) * pow(0x94D049BB133111EB, -1, 2**64)) & MASK
    z = ((z ^ z >> 27 ^ z >> 54) * pow(0xBF58476D1CE4E5B9, -1, 2**64)) & MASK
    return z ^ z >> 30 ^ z >> 60


def seed_by_hand(wanted, seed, episode, slot, same):
    """The rule of docs/environment.md in plain integers; `slot`'s word has the most to say, `same` says what fits."""
    present = plain_rules.word(seed, episode, 0, SLOT + slot)
    kept = sum(1 << bit for bit in (16, *range(31, 48)))
    if same(wanted):
        return wanted
    for number in range(1, 10**6):
        word = plain_rules.mix64((wanted + number * plain_rules.GOLDEN) & MASK) & ~kept | present & kept
        key = (unmix64(word) - (SLOT + slot + 1) * plain_rules.GOLDEN) & MASK
        tried = (unmix64(key) - plain_rules.GOLDEN - episode * 0xD1B54A32D192ED03) & MASK
        tried -= 2**64 if tried >= 2**63 else 0
        if same(tried):
            return tried
    raise AssertionError


@every_engine
def test_known_seeds_of_two_noise_learners_and_an_executor(engine):
    learners = {"executor": 1, "noise": 2}
    envs = ks.BatchedParallelEnv(6, learners, **SMALL | {"engine": engine, "max_target": 30, "block_qty": 6})
    envs.reset(seed=40)
    envs.reset()
    clone = envs.clone(future_seed=900)

    def said(seed):
        words = [plain_rules.word(seed, 1, 0, SLOT + slot) for slot in range(3)]
        return [word >> 31 & 1 for word in words] + [(word >> 32 & 0xFFFF) * 30 >> 16 for word in words[1:]]

    (first,) = (slot for slot, role in enumerate(envs.core.roles) if role == "noise" and slot < 2)
    executor = envs.core.roles.index("executor")
    assert executor == 0 and first == 1
    wanted = [seed_by_hand(900 + m, 40 + m, 1, first, lambda s, m=m: said(s) == said(40 + m)) for m in range(6)]
    assert clone.simulator.tensors["seed"].tolist() == wanted
    assert len(set(wanted)) == 6 and not set(wanted) & {900 + m for m in range(6)}


@every_engine
def test_nothing_to_hold_is_the_seed_itself(engine):
    envs = make(engine=engine)
    envs.reset(seed=3)
    envs.step(torch.zeros(8, 4, device=envs.device))
    assert envs.clone(future_seed=77).simulator.tensors["seed"].tolist() == list(range(77, 85))
    each = [5, -(2**63), 2**63 - 1, 0, 0, 9, 9, 1]
    assert envs.clone(future_seed=each).simulator.tensors["seed"].tolist() == each
    assert envs.clone(future_seed=np.array(each)).simulator.tensors["seed"].tolist() == each


@every_engine
@pytest.mark.parametrize("task", ["MarketMaking", "Execution"])
def test_its_own_seeds_are_the_same_future(engine, task):
    envs = make(task=task, engine=engine, stagger=False)
    envs.reset(seed=3)
    plain, own, other = envs.clone(), envs.clone(future_seed=3), envs.clone(future_seed=1000)
    action = torch.full((8, envs.single_action_space.shape[0]), 0.3, device=envs.device)
    paths = []
    for one in (envs, plain, own, other):
        seen = [torch.cat([x.flatten().double() for x in one.step(action)[:2]]) for _ in range(12)]  # over two ends
        paths.append(torch.stack(seen))
    assert torch.equal(paths[0], paths[1]) and torch.equal(paths[0], paths[2])
    assert not torch.equal(paths[0], paths[3])


# What is drawn --------------------------------------------------------------------------------------------------------


def test_the_present_episode_keeps_its_draws_and_the_next_has_others():
    sell, buy = (lambda rows, side=side: torch.full((len(rows), 2), side) for side in (-1.0, 1.0))
    how = {"randomise": {"fee": (0, 1000)}, "num_scenarios": 500, "stagger": False}
    envs = make(200, "Execution", opponents={"trader": [sell, buy]}, block_qty=24, **how)
    envs.reset(seed=3)
    clone = envs.clone(future_seed=10**6)
    side = [33]
    action = torch.zeros(200, 2)
    for _ in range(4):
        mine, its = (one.step(action)[0] for one in (envs, clone))
        over = (envs.simulator.tensors["episode"] > 0) | (clone.simulator.tensors["episode"] > 0)
        assert over.double().mean() < 0.9
        assert torch.equal(mine[~over][:, side], its[~over][:, side])
        for one in ("scenario", "opponent"):
            assert torch.equal(getattr(envs, one)[~over], getattr(clone, one)[~over])
    envs.reset(), clone.reset()
    assert (envs.scenario != clone.scenario).float().mean() > 0.9
    assert 0.3 < (envs.opponent != clone.opponent).float().mean() < 0.7
    assert 0.3 < (envs.observation[:, 33] != clone.observation[:, 33]).float().mean() < 0.7


@every_engine
def test_prices_differ_and_are_as_likely(engine):
    """Over many futures of one moment, the true one is one of them: its rank among them is no matter of the seed."""
    envs = make(64, engine=engine, horizon=40, stagger=False)
    envs.reset(seed=3)
    action = torch.zeros(64, 4, device=envs.device)
    for _ in range(5):
        envs.step(action)
    clones = [envs.clone(future_seed=10**6 * (i + 1)) for i in range(9)]
    for one in (envs, *clones):
        for _ in range(20):
            one.step(action)
    prices = torch.stack([one.simulator.last_price for one in (envs, *clones)]).double()
    assert (prices[0] != prices[1:]).double().mean() > 0.8
    rank = (prices[1:] < prices[0]).sum(0) + 0.5 * (prices[1:] == prices[0]).sum(0)
    assert abs(float(rank.mean()) - 4.5) < 4 * 2.9 / 8  # four standard errors of 64 ranks


@pytest.mark.parametrize("engine", ["cpu", "numpy"])
def test_a_drawn_population_stays_in_saved_states_and_resets(engine):
    config = FEW_ORDERS.replace(population="multinomial", num_agents=40)
    envs, like = (make(4, engine=engine, config=config) for _ in range(2))
    envs.reset(seed=3)
    clone = envs.clone(future_seed=500)
    saved = clone.state_dict()
    counts = envs.simulator._counts.copy()
    like.load_state_dict(saved)
    action = torch.zeros(4, 4)
    for _ in range(9):  # over ends of episodes, which draw warm starts
        mine, its = clone.step(action), like.step(action)
        assert all(torch.equal(a, b) for a, b in zip(mine[:4], its[:4], strict=True))
    clone.reset(seed=9, options={"reset_mask": [True, False, False, False]})
    fresh = make(4, engine=engine, config=config)
    fresh.reset(seed=9)
    assert (clone.simulator._counts[1:] == counts[1:]).all() and (like.simulator._counts == counts).all()
    assert (clone.simulator._counts[0] == fresh.simulator._counts[0]).all()
    older = {name: tensor for name, tensor in envs.state_dict().items() if name != "population_seed"}
    like.load_state_dict(older)  # of versions that had none
    assert all(torch.equal(a, b) for a, b in zip(envs.step(action)[:4], like.step(action)[:4], strict=True))


@every_engine
@pytest.mark.parametrize("mechanism", ["call", "continuous"])
def test_a_beat_under_way_keeps_its_coin(engine, mechanism):
    """Beats of 50 events begin within intervals of 7, and agents price by their coins."""
    fields = {"arrivals": "clock", "mechanism": mechanism, "interval": 7, "beat": 50, "rounding": "coin"}
    simulator = ks.Simulator(ks.MarketConfig(num_agents=20, **fields), 40, engine=engine, seed=5)
    simulator.run(9)
    branch = simulator.branch(future_seed=10**6)
    beat = 9 * 7 // 50
    coins = [
        [plain_rules.word(seed, 0, beat, 2**30) >> 16 & 1 for seed in one.tensors["seed"].tolist()]
        for one in (simulator, branch)
    ]
    assert coins[0] == coins[1] and 0 < sum(coins[0]) < 40
    taken = [seed == 10**6 + m for m, seed in enumerate(branch.tensors["seed"].tolist())]
    assert 5 < sum(taken) < 35
    simulator.run(41)  # t = 50: a beat begins
    assert simulator.branch(future_seed=8).tensors["seed"].tolist() == list(range(8, 48))


def test_a_branch_goes_on_from_the_same_state():
    simulator = ks.Simulator(FEW_ORDERS, 30, engine="cpu", seed=5, slots=1)
    simulator.step([[[60, 2, 70, 2]]] * 30, 4)
    one, two, plain = simulator.branch(future_seed=77), simulator.branch(77), simulator.branch()
    for name in one.tensors.keys() - {"seed"}:
        assert torch.equal(one.tensors[name], simulator.tensors[name])
    prices = [each.run(30, ["last_price"])["last_price"] for each in (one, two, plain, simulator)]
    assert torch.equal(prices[0], prices[1]) and torch.equal(prices[2], prices[3])
    assert (prices[0] != prices[2]).any(1).double().mean() > 0.8
    one.reset()
    fresh = ks.Simulator(FEW_ORDERS, 30, engine="cpu", seed=77, slots=1)
    fresh.reset()
    assert torch.equal(one.run(5, ["last_price"])["last_price"], fresh.run(5, ["last_price"])["last_price"])


# Forms and refusals ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["1", 1.5, [1, 2], 2**63, [2**63] * 8, True, torch.zeros(8), {}])
def test_refusals(wrong):
    envs = make()
    envs.reset(seed=1)
    for call in (envs.clone, envs.simulator.branch):
        with pytest.raises((TypeError, ValueError), match="future_seed: expected"):
            call(future_seed=wrong)


def test_too_many_targets_are_refused():
    envs = ks.BatchedParallelEnv(2, {"noise": 6}, **SMALL)
    envs.reset(seed=1)
    with pytest.raises(ValueError, match=r"future_seed: expected .* 3,276,800,000: it has 6 noise learners"):
        envs.clone(future_seed=1)
    with pytest.raises(ValueError, match=r"future_seeds: expected .* 6 noise learners"):
        envs.fork(0, 2, future_seeds=1)
    envs.clone(), envs.fork(0, 2)


def test_all_forms_take_it():
    envs = RecordEpisodeStatistics(make())
    envs.reset(seed=1)
    assert envs.clone(future_seed=50).unwrapped.simulator.tensors["seed"].tolist() == list(range(50, 58))
    env = gym.make("KineticSim/Trading-v0", **SMALL)
    env.reset(seed=3)
    clone = env.unwrapped.clone(future_seed=8)
    action = np.array([0.5, 0.5], np.float32)
    differs = [not np.array_equal(env.step(action)[0], clone.step(action)[0]) for _ in range(4)]
    assert differs[-1] and int(clone.simulator.tensors["seed"]) == 8
    game = ks.parallel_env(LEARNERS, block_qty=6, **SMALL)
    game.reset(seed=3)
    other = game.clone(future_seed=8)
    assert told(other.core) == told(game.core) and int(other.simulator.tensors["seed"]) != 3
