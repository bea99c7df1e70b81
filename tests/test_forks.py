"""`fork`: one market as rows of an environment that is there. They are the market, and go on as it does."""

import copy
import threading

import gymnasium as gym
import numpy as np
import pytest
import torch
from env_helpers import clock_environments, draw_actions, environments, launch, make_cores
from hypothesis import given, settings
from markets import FEW_ORDERS
from slot_programs import patient, plain_maker
from thorough import covering, examples

import kineticsim_env as ks
from kineticsim_env.envs.copies import CopiedMarkets, core_of
from kineticsim_env.envs.state_dict import live_state
from kineticsim_env.runtime import layout
from kineticsim_env.wrappers import RecordEpisodeStatistics

SMALL = {"config": FEW_ORDERS, "bank_size": 4, "warmup": 3, "horizon": 5}
every_engine = pytest.mark.parametrize("engine", ["cpu", "numpy", pytest.param("cuda", marks=pytest.mark.gpu)])
every_mode = pytest.mark.parametrize("mode", ["SAME_STEP", "NEXT_STEP", "DISABLED"])


def make(num_envs=3, task="MarketMaking", **changes):
    arguments = {"engine": "cpu", "output": "torch", "account_info": True, **SMALL, **changes}
    return gym.make_vec(f"KineticSim/{task}-v0", num_envs=num_envs, **arguments).unwrapped


def rows_of(core, market=None):
    """All state of every market, markets first; of one market alone."""
    found = {}
    for name, tensor in live_state(core).items():
        fields = layout.LAUNCH_FIELDS
        known = name in fields and tensor.dim() == len(fields[name].dims) and fields[name].dims[0] == "I"
        rows = tensor.t() if known else tensor
        found[name] = (rows if market is None else rows[market : market + 1]).cpu().clone()
    return found


def assert_rows(rows, market, when=""):
    assert rows.keys() == market.keys()
    for name, tensor in rows.items():
        expected = market[name].expand_as(tensor).contiguous()
        assert torch.equal(tensor.contiguous().view(torch.uint8), expected.view(torch.uint8)), f"{name} {when}"


def check_rows(environment, engine):
    """Rows of each market in turn, in one core where markets are alike but for their state; under the same actions."""
    arguments, kwargs, seed, steps = environment
    (core,) = make_cores(arguments, kwargs, [engine])
    core.reset(seed)
    generator = np.random.default_rng(seed)
    made = core_of(core, np.full(3, arguments[1] - 1))
    copied = CopiedMarkets(core, made)
    for market in reversed(range(arguments[1])):
        if core.markets_differ and market < arguments[1] - 1:
            made = core_of(core, np.full(3, market))
        else:
            launch([made], draw_actions(made, generator, 0.0))  # whatever was done to it
            copied.copy(market)
        assert_rows(rows_of(made), rows_of(core, market), "of the copy")
        for step in range(max(2, steps // 2)):
            actions = draw_actions(core, generator, 0.0)
            launch([core], actions)
            launch([made], {name: given[[market] * 3] for name, given in actions.items()})
            assert_rows(rows_of(made), rows_of(core, market), f"after {step} of market {market}")


@pytest.mark.parametrize("engine", ["cpu", "numpy"])
@settings(max_examples=examples(20))
@given(environment=environments(most_slots=8))
def test_rows_go_on_as_their_market(engine, environment):
    check_rows(environment, engine)


@pytest.mark.parametrize("engine", ["cpu", "numpy"])
@settings(max_examples=examples(15))
@given(environment=clock_environments())
def test_rows_go_on_as_their_market_on_the_clock(engine, environment):
    check_rows(environment, engine)


@pytest.mark.gpu
@settings(max_examples=examples(10))
@given(environment=environments(most_slots=8))
def test_rows_go_on_as_their_market_on_a_gpu(environment):
    check_rows(environment, "cuda")


# What users hold ------------------------------------------------------------------------------------------------------


def flat(results, market=None, rows=None):
    """All arrays of nested results, in order, as rows of a market's; names of what is a reset's are in both."""
    if isinstance(results, dict):
        return [part for name in sorted(results) for part in flat(results[name], market, rows)]
    if isinstance(results, (list, tuple)):
        return [part for result in results for part in flat(result, market, rows)]
    array = np.asarray(results.cpu() if isinstance(results, torch.Tensor) else results)
    return [(array if market is None else np.repeat(array[[market]], rows, 0)).tobytes()]


def step_both(envs, fork, market, generator):
    """Step an environment, and rows of one market of it with its action; returns what came of both."""
    action = generator.uniform(-1, 1, envs.action_space.shape).astype(np.float32)
    rows = np.repeat(action[[market]], fork.num_envs, 0)
    if envs.output == "torch":
        action, rows = (torch.from_numpy(one).to(envs.device) for one in (action, rows))
    return flat(envs.step(action), market, fork.num_envs), flat(fork.step(rows))


def reward(before, after):
    return (after.value - before.value - 0.3 * after.inventory.abs()).float()


def held(after):
    return torch.stack([after.inventory / 40, after.elapsed], dim=-1).float()


def terminate(before, after):
    return after.inventory.abs() > 6


def buyer(rows):
    return torch.full((len(rows), 2), 0.7, device=rows.device)


def seller(rows):
    return torch.full((len(rows), 2), -0.7, device=rows.device)


class Worth(ks.CustomTask):
    """Remembers what its episode has drawn, and how many decisions there were; draws in each."""

    memory = {"worth": torch.float64, "count": torch.float64, "noise": torch.float32}
    episode_draws = decision_draws = 1

    def begin(self, after, draws):
        return {"worth": after.mid + 12 * draws.uniform[:, 0] - 6, "count": torch.zeros_like(after.mid)}

    def update(self, before, after, memory, draws):
        return {"noise": 4 * draws.uniform[:, 0] - 2, "count": memory.count + 1}

    def features(self, after, memory):
        return torch.stack([memory.worth - after.mid + memory.noise, memory.count], dim=1).float()

    def reward(self, before, after, memory):
        return (after.value - before.value + 0.01 * after.inventory * (memory.worth - after.mid)).float()


class Counting:
    """A policy with a memory: it buys every third decision, or as often as `every` says."""

    def __init__(self):
        self.calls, self.every = torch.zeros(0), [3]

    def reset(self, mask):
        if self.calls.shape != mask.shape or self.calls.device != mask.device:
            self.calls = torch.zeros(mask.shape, device=mask.device)
        self.calls = torch.where(mask, 0.0, self.calls)

    def of_rows(self, rows):
        made = copy.copy(self)
        made.calls = self.calls[rows]
        return made

    def __call__(self, rows):
        self.calls = self.calls + 1
        return torch.where(self.calls % self.every[0] == 0, 1.0, 0.0)[:, None].expand(-1, 2).contiguous()


FORMS = {
    "plain": {},
    "live": {"copy": False},
    "numpy": {"output": "numpy"},
    "execution": {"task": "Execution", "block_qty": 9},
    "functions": {"reward": reward, "features": [held], "terminate": terminate},
    "a task of one's own": {"custom_task": Worth()},
    "opponents": {"opponents": {"trader": [buyer, seller]}},
    "opponents and functions": {
        "opponents": {"maker": [lambda rows: torch.zeros(len(rows), 4, device=rows.device)]},
        "features": [held],
    },
    "opponents with a memory": {"opponents": {"trader": [[buyer, Counting()], [Counting()]]}},
    "programs": {"opponents": {"maker": [patient], "trader": [patient]}},
    "programs of each market": {"opponents": {"maker": [plain_maker.replace(half_spread=[1, 4, 7])]}},
    "scenarios": {"randomise": {"fee": (0, 900), "task.max_qty": {"values": [2, 8]}}, "num_scenarios": 9},
    "each market": {"config": FEW_ORDERS.replace(fee=[0, 300, 600]), "max_qty": np.array([2, 5, 8])},
    "populations": {"config": FEW_ORDERS.replace(population="multinomial", num_agents=30)},
    "under way": {"config": FEW_ORDERS.replace(quote_latency=9, orders_per_side=2), "keep": True},
    "at fills": {"decide": "fill"},
    "staggered": {"stagger": True, "horizon": 9},
}


@covering
@pytest.mark.parametrize("engine", ["cpu", "numpy", pytest.param("cuda", marks=pytest.mark.gpu)])
@every_mode
@pytest.mark.parametrize("form", FORMS)
def test_rows_of_every_form_over_ends_of_episodes(engine, mode, form):
    """Forked before each decision of an episode, its last one too: results, flags, infos, and states."""
    envs = make(**{"engine": engine, "autoreset_mode": mode, "stagger": False, **FORMS[form]})
    envs.reset(seed=5)
    generator, ends = np.random.default_rng(1), 0
    for decision in range(9):
        market = decision % 3 if form not in ("each market", "populations", "programs of each market") else 1
        fork = envs.fork(market, 2)
        assert type(fork) is type(envs) and fork.num_envs == 2 and fork is envs.fork(market, 2)
        copy = envs.clone()
        for _ in range(3 if mode != "DISABLED" else 1):
            mine, its = step_both(copy, fork, market, generator)
            assert mine == its
            assert_rows(rows_of(fork.core), rows_of(copy.core, market))
            assert (form == "a task of one's own") == any(name.startswith("memory_") for name in rows_of(fork.core))
        step_both(envs, fork, market, generator)
        done = envs.core.tensors["done"]
        ends += int((envs.core.tensors["elapsed"] == 0).sum()) + int(done.sum())
        if mode == "DISABLED" and bool(done.any()):
            envs.reset(options={"reset_mask": done.clone()})
    assert ends


@every_engine
@pytest.mark.parametrize("task", ["MarketMaking", "Execution"])
def test_other_futures_are_those_of_clones(engine, task):
    envs = make(task=task, engine=engine)
    envs.reset(seed=5)
    envs.step(torch.full((3, envs.single_action_space.shape[0]), 0.5, device=envs.device))
    fork = envs.fork(1, 4, future_seeds=70)
    clones = [envs.clone(future_seed=[0, 70 + row, 0]) for row in range(4)]
    states = [rows_of(clone.core, 1) for clone in clones]
    assert len({int(state["seed"]) for state in states}) == 4
    for row, state in enumerate(states):
        assert_rows({name: rows[row : row + 1] for name, rows in rows_of(fork.core).items()}, state)
    again = envs.fork(1, 4, future_seeds=[5, 73, 6, int(envs.simulator.tensors["seed"][1])])
    assert again is fork
    action = torch.full((4, envs.single_action_space.shape[0]), 0.5, device=envs.device)
    for _ in range(4):
        rows = fork.step(action)[0]
        mine, its = (one.step(action[:3])[0][1] for one in (clones[3], envs))
        assert torch.equal(rows[1], mine) and torch.equal(rows[3], its)
    assert not torch.equal(rows[0], rows[1])


def test_at_the_last_decision_an_episode_ends_in_every_future():
    for mode in ("SAME_STEP", "NEXT_STEP", "DISABLED"):
        envs = make(autoreset_mode=mode, stagger=False)
        envs.reset(seed=5)
        for _ in range(4):
            envs.step(torch.zeros(3, 4))
        fork = envs.fork(2, 5, future_seeds=900)
        _, _, _, truncated, infos = fork.step(torch.zeros(5, 4))
        assert truncated.all() and infos["_account_info"].all()
        _, rewards, _, truncated, infos = fork.step(torch.ones(5, 4))
        assert truncated.all() == (mode == "DISABLED") and (mode == "SAME_STEP" or not rewards.any())
        assert bool((fork.core.tensors["elapsed"] == {"SAME_STEP": 1, "NEXT_STEP": 0, "DISABLED": 5}[mode]).all())


@every_engine
def test_forks_of_forks_and_states_of_forks(engine):
    envs = make(engine=engine)
    envs.reset(seed=5)
    fork = envs.fork(0, 3, future_seeds=70)
    fork.step(torch.full((3, 4), 0.4, device=envs.device))
    inner, like = fork.fork(2, 3), make(3, engine=engine)
    assert inner is not fork and inner is not envs.fork(1, 3)
    assert_rows(rows_of(inner.core), rows_of(inner.core, 0))
    kept = inner.clone()
    like.load_state_dict(inner.state_dict())
    for _ in range(7):
        mine, its, theirs = (
            flat(one.step(torch.full((3, 4), -0.2, device=envs.device))[:4]) for one in (inner, like, kept)
        )
        assert mine == its == theirs


def test_a_fork_is_made_once_and_follows_settings():
    envs = make(randomise={"fee": (0, 9)}, num_scenarios=3, reward="inventory")
    envs.reset(seed=2)
    fork = envs.fork(0, 4)
    places = {name: tensor.data_ptr() for name, tensor in fork.core.simulator.tensors.items()}
    for market in (0, 1, 2, 1):
        assert envs.fork(market, 4) is fork is not envs.fork(market, 5)
    assert {name: tensor.data_ptr() for name, tensor in fork.core.simulator.tensors.items()} == places
    envs.set_scenario_weights([0, 1, 0])
    assert envs.fork(1, 4) is fork and fork.scenario_weights.tolist() == [0, 1, 0]
    changes = (
        lambda: envs.set_task(reward="pnl"),
        lambda: envs.set_scenarios({"fee": (100, 200)}),
        lambda: envs.load_state_dict(envs.state_dict()),
        lambda: envs.core.set_slot_policies({0: plain_maker}),
        lambda: envs.core.set_slot_policies({}),
    )
    generator = np.random.default_rng(0)
    for change in changes:
        before = envs.fork(1, 4)
        change()
        fork = envs.fork(1, 4)
        assert fork is not before, change
        assert fork.core.task.reward == envs.core.task.reward
        copy = envs.clone()
        if not envs.core.slot_programs:
            for _ in range(7):  # over an end, which draws another scenario
                mine, its = step_both(copy, fork, 1, generator)
                assert mine == its
    for spoil in (lambda one: one.set_task(reward="inventory"), lambda one: one.close()):
        fork = envs.fork(1, 4)
        spoil(fork)
        assert envs.fork(1, 4) is not fork
    assert envs.clone().fork(1, 4) is not envs.fork(1, 4)


def test_a_scenario_of_a_former_table_is_forked_too():
    """The first table's markets play levers; the rows may get any of them."""
    levers = {"tick_size": (1, 3), "tax": (0, 2), "max_order_qty": (1, 400)}
    envs = make(6, randomise=levers, num_scenarios=8, stagger=False, horizon=50)
    envs.reset(seed=2)
    envs.set_scenarios({"tick_size": (1, 1), "tax": (0, 0), "max_order_qty": (1, 2)})
    generator = np.random.default_rng(0)
    for market in range(6):
        fork, copy = envs.fork(market, 2), envs.clone()
        for _ in range(4):
            mine, its = step_both(copy, fork, market, generator)
            assert mine == its
    assert len(set(map(tuple, envs.core._engine.parameters().tolist()))) > 1


@every_engine
def test_markets_with_parameters_that_were_set(engine):
    envs = make(engine=engine)
    envs.reset(seed=2)
    envs.fork(0, 2)
    envs.simulator.set_parameters(mask=[True, False, True], fee=1000)
    generator = np.random.default_rng(0)
    for market in (0, 1, 2, 1):
        fork, copy = envs.fork(market, 2), envs.clone()
        assert fork.simulator.parameter("fee").tolist() == [1000 * (market != 1)] * 2
        for _ in range(7):
            mine, its = step_both(copy, fork, market, generator)
            assert mine == its


# The other forms ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["cpu", "numpy"])
@pytest.mark.parametrize("task", ["MarketMaking", "Execution", "Trading"])
def test_one_market_of_gymnasium(engine, task):
    env = gym.make(f"KineticSim/{task}-v0", engine=engine, account_info=True, **SMALL).unwrapped
    env.reset(seed=3)
    rng = np.random.default_rng(0)
    size = env.action_space.shape[0]
    for _ in range(5):
        fork, clone = env.fork(0, 3), env.clone()
        assert isinstance(fork, gym.vector.VectorEnv) and fork.num_envs == 3 and fork.was_reset
        terminated = truncated = False
        while not (terminated or truncated):
            action = rng.uniform(-1, 1, size).astype(np.float32)
            mine, its = clone.step(action), fork.step(np.tile(action, (3, 1)))
            for one, rows in zip(mine[:4], its[:4], strict=True):
                np.testing.assert_array_equal(rows, np.broadcast_to(np.asarray(one, rows.dtype), rows.shape))
            for name, rows in its[4]["account_info"].items():
                np.testing.assert_array_equal(rows, [mine[4]["account_info"][name]] * 3)
            terminated, truncated = mine[2:4]
        stands = fork.step(np.ones((3, size), np.float32))
        assert not stands[1].any() and (stands[2] | stands[3]).all()
        env.step(rng.uniform(-1, 1, size).astype(np.float32))
        if env.core.tensors["done"].item():
            env.reset()


@every_engine
@pytest.mark.parametrize("copied", [True, False])
def test_many_learners(engine, copied):
    learners = {"maker": 2, "momentum": 1, "noise": 1, "executor": 1}
    envs = ks.BatchedParallelEnv(3, learners, engine=engine, copy=copied, account_info=True, **SMALL, block_qty=20)
    envs.reset(seed=2)
    generator = np.random.default_rng(3)
    for decision in range(8):
        market = decision % 3
        fork, copy = envs.fork(market, 2), envs.clone()
        assert torch.equal(fork.state(), envs.state()[[market] * 2])
        assert torch.equal(fork._active, envs._active[[market] * 2])
        for one in (copy, envs):
            drawn = {
                role: generator.uniform(-1, 1, (3, n, 4 if role == "maker" else 2)).astype(np.float32)
                for role, n in learners.items()
            }
            mine = flat(one.step(drawn), market, 2)
            if one is copy:
                assert flat(fork.step({role: rows[[market] * 2] for role, rows in drawn.items()})) == mine


@pytest.mark.parametrize("engine", ["cpu", "numpy"])
def test_one_market_of_many_learners(engine):
    game = ks.parallel_env({"maker": 1, "noise": 1, "executor": 1}, engine=engine, block_qty=6, **SMALL)
    game.reset(seed=3)
    for decision in range(5):
        fork = game.fork(0, 2, future_seeds=40)
        assert type(fork) is ks.BatchedParallelEnv and fork.possible_agents == game.possible_agents
        own = game.fork(0, 2)
        actions = {agent: np.full(game.action_space(agent).shape, 0.1 * decision, np.float32) for agent in game.agents}
        seen = {
            role: torch.from_numpy(np.full((2, 1, 4 if role == "maker" else 2), 0.1 * decision, np.float32))
            for role in own.groups
        }
        mine, its = game.step(actions), own.step(seen)
        for agent in actions:
            role = agent.rsplit("_", 1)[0]
            np.testing.assert_array_equal(its[0][role][1, 0].numpy(), mine[0][agent])
            assert float(its[1][role][0, 0]) == mine[1][agent]
        if not game.agents:
            break


def test_a_fork_takes_over_the_memory_of_opponents():
    """Of its market alone, at every fork, of forks too; what is no memory is the opponent's as it is now."""
    policy = Counting()
    envs = make(opponents={"trader": [[buyer, policy], [Counting()]]}, horizon=20, stagger=False)
    envs.reset(seed=1)
    for _ in range(2):
        envs.step(torch.zeros(3, 4))
    policy.calls = torch.tensor([5.0, 2.0, 7.0])
    fork = envs.fork(1, 2)
    fork.step(torch.zeros(2, 4))
    (_, theirs), (other,) = (slot.policies for slot in fork.core.opponents.opponent_slots)
    assert theirs.calls.tolist() == other.calls.tolist() == [3, 3] and policy.calls.tolist() == [5, 2, 7]
    policy.every = [2]  # as a policy that learns in between
    assert envs.fork(2, 2) is fork
    ((_, theirs), _) = (slot.policies for slot in fork.core.opponents.opponent_slots)
    assert theirs.calls.tolist() == [7, 7] and theirs.every == [2]
    fork.step(torch.zeros(2, 4))
    inner = fork.fork(1, 3)
    assert inner.core.opponents.opponent_slots[0].policies[1].calls.tolist() == [8] * 3
    envs.set_opponents({"trader": [[policy], [buyer]]})
    after = envs.fork(0, 2)
    assert after is not fork and after.core.opponents.opponent_slots[0].policies[0].calls.tolist() == [5, 5]


class Opaque(Counting):
    of_rows = None


class Shared(Counting):
    def of_rows(self, rows):
        return self


class Forgetful(Counting):
    def of_rows(self, rows):
        return buyer


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Opaque, r"fork: expected .* of_rows\(rows\).*got opponents\['trader'\]\[1\] with a reset alone; clone\(\)"),
        (Shared, r"fork: expected another .*opponents\['trader'\]\[1\].of_rows, got itself"),
        (Forgetful, r"fork: expected .* with a reset from opponents\['trader'\]\[1\].of_rows, got function"),
    ],
)
def test_a_memory_that_no_row_can_take_over_is_refused(kind, said):
    """A planner would play against opponents that have forgotten. Those without a memory are forked as before."""
    envs = make(opponents={"trader": [buyer, buyer]}, stagger=False)
    envs.reset(seed=1)
    envs.fork(0, 2)
    envs.set_opponents({"trader": [buyer, kind()]})
    for _ in range(2):
        with pytest.raises(TypeError, match=said):
            envs.fork(0, 2)
    envs.clone(future_seed=2**50).step(torch.zeros(3, 4))
    envs.set_opponents({"trader": [buyer]})
    envs.fork(0, 2).step(torch.zeros(2, 4))


# Refusals, threads ----------------------------------------------------------------------------------------------------

WRONG = (
    ((3, 2), {}, "market: expected .*got 3"),
    ((-1, 2), {}, "market: expected .*got -1"),
    ((True, 2), {}, "market: expected"),
    ((0, 0), {}, "n: expected .*got 0"),
    ((0, 2.5), {}, "n: expected"),
    ((0, 2), {"future_seeds": [1, 2, 3]}, "future_seeds: expected an int, or 2 of them"),
    ((0, 2), {"future_seeds": "now"}, "future_seeds: expected"),
    ((0, 2), {"future_seeds": 2**63 - 1}, "future_seeds: expected"),
)


@pytest.mark.parametrize(("given_", "named", "said"), WRONG)
def test_refusals_leave_the_fork_as_it_was(given_, named, said):
    envs = make()
    with pytest.raises(gym.error.ResetNeeded, match="fork"):
        envs.fork(0, 2)
    envs.reset(seed=1)
    fork = envs.fork(0, 2)
    fork.step(torch.ones(2, 4))
    before = rows_of(fork.core)
    with pytest.raises((TypeError, ValueError), match=said):
        envs.fork(*given_, **named)
    assert_rows(rows_of(fork.core), before)


def test_wrappers_and_closed_environments_are_not_forked():
    envs = make()
    envs.reset(seed=1)
    with pytest.raises(TypeError, match=r"fork: expected .*envs\.unwrapped\.fork"):
        RecordEpisodeStatistics(envs).fork(0, 2)
    envs.close()
    with pytest.raises(gym.error.ClosedEnvironmentError, match="fork"):
        envs.fork(0, 2)


def test_an_error_word_is_raised_where_a_fork_is_made():
    envs = make()
    envs.reset(seed=1)
    envs.simulator.tensors["error"][1] = 4
    with pytest.raises(ks.MarketError):
        envs.fork(0, 2)
    envs.fork(0, 2)


def test_threads_fork_one_at_a_time():
    """Each row is of a whole moment: time and history of the same decision, while another thread plays."""
    envs = make(horizon=10**6, stagger=False)
    envs.reset(seed=1)
    stop, seen = threading.Event(), []

    def play():
        while not stop.is_set():
            envs.step(torch.zeros(3, 4))

    thread = threading.Thread(target=play)
    thread.start()
    try:
        while len(seen) < 200 or seen[-1] == seen[0]:  # until the other thread has got its turn
            fork = envs.fork(len(seen) % 3, 4)
            elapsed, t = (fork.core.tensors["elapsed"].tolist(), fork.simulator.t.tolist())
            assert elapsed == t and len(set(t)) == 1
            seen.append(t[0])
    finally:
        stop.set()
        thread.join()
    assert seen == sorted(seen)


@pytest.mark.gpu
@pytest.mark.parametrize("task", ["MarketMaking", "Execution"])
def test_a_fork_waits_for_no_gpu(task):
    envs = make(task=task, engine="cuda")
    envs.reset(seed=1)
    envs.fork(0, 4, future_seeds=5)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for market in (0, 1, 2):
            envs.fork(market, 4)
            envs.fork(market, 4, future_seeds=5)
    finally:
        torch.cuda.set_sync_debug_mode("default")
