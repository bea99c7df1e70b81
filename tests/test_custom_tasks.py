"""Tasks of users' own: memory, draws and actions, beside plain Python that keeps count market by market."""

import copy
import warnings

import gymnasium as gym
import numpy as np
import pytest
import torch
from env_helpers import assert_steps_wait_for_nothing, capture_step
from gymnasium.utils.env_checker import check_env
from markets import FEW_ORDERS
from plain_rules import word
from slot_programs import patient, plain_maker
from thorough import covering

import kineticsim_env as ks
from kineticsim_env.envs.batched import BatchedParallelEnv
from kineticsim_env.envs.parallel import parallel_env
from kineticsim_env.evaluation import evaluate, evaluation_env

SMALL = {"config": FEW_ORDERS, "horizon": 6, "bank_size": 4, "warmup": 5}
PAPER = SMALL | {"config": ks.MarketConfig.preset("paper")}
TOUCH, UNWIND = SMALL | {"decide": "touch", "horizon": 2}, SMALL | {"at_end": "unwind"}
CALLS = SMALL | {"config": ks.MarketConfig.preset("trading", num_agents=16)}
MODES = ("SAME_STEP", "NEXT_STEP", "DISABLED")
ENGINES = ["cpu", "numpy", pytest.param("cuda", marks=pytest.mark.gpu)]
every_engine = pytest.mark.parametrize("engine", ENGINES)
MARKETS, STEPS = 4, 21


class Counting(ks.CustomTask):
    """Remembers all that can be checked: how many decisions there were, what was drawn, what was bought."""

    memory = {
        "count": torch.int64,
        "goal": torch.float64,
        "units": (torch.float64, (3,)),
        "odd": torch.bool,
    }
    episode_draws, decision_draws = 2, 1

    def begin(self, after, draws):
        first = draws.words[..., 0].double()
        return {"goal": draws.uniform[..., 1].double(), "units": torch.stack([first, after.mid + 0 * first, first], -1)}

    def update(self, before, after, memory, draws):
        newest = after.bought - after.sold + draws.words[..., 0].double()
        return {
            "count": memory.count + 1,
            "units": torch.stack([memory.units[..., 0], memory.units[..., 2], newest], -1),
            "odd": ~memory.odd,
        }

    def reward(self, before, after, memory):
        return after.inventory - 8 * memory.goal + memory.count

    def terminate(self, before, after, memory):
        return (memory.count >= 3) & (after.inventory.abs() >= 5)

    def features(self, after, memory):
        return [memory.count.float(), memory.units / 2.0**32, memory.odd.float()]


class Lasting(Counting):
    """The horizon alone ends it."""

    terminate = ks.CustomTask.terminate


class Plain:
    """One market of `Counting` in plain Python, around an environment without it."""

    def __init__(self, seed, slot=0, **settings):
        self.env = gym.make("KineticSim/MarketMaking-v0", engine="numpy", **{**SMALL, **settings}).unwrapped
        self.seed, self.first, self.slot, self.episode, self.ended = seed, seed, slot, -1, False

    def draw(self, t, n):
        return word(self.first, self.episode, t, 2**30 + 2**28 + self.slot * 2**20 + n) >> 32

    def reset(self):
        observation, infos = self.env.reset(seed=self.seed)
        self.seed, self.episode, self.ended, self.count, self.odd = None, self.episode + 1, False, 0, False
        first = float(self.draw(0, 0))
        self.goal, self.units = (self.draw(0, 1) >> 8) / 2**24, [first, infos["mid_price"], first]
        return self.seen(observation)

    def seen(self, observation):
        more = [self.count, *(unit / 2.0**32 for unit in self.units), self.odd]
        return np.concatenate([observation, np.array(more, np.float32)])

    def step(self, action):
        observation, _, terminated, truncated, infos = self.env.step(action)
        t = int(self.env.simulator.tensors["t"])
        self.count, self.odd = self.count + 1, not self.odd
        self.units = [self.units[0], self.units[2], infos["bought"] - infos["sold"] + float(self.draw(t, 0))]
        if self.count >= 3 and abs(infos["inventory"]) >= 5:
            terminated, truncated = True, False
        self.ended = terminated or truncated
        return (
            self.seen(observation),
            np.float32(infos["inventory"] - 8 * self.goal + self.count),
            terminated,
            truncated,
        )


def make(task="MarketMaking", engine="numpy", num_envs=MARKETS, **changes):
    settings = {"engine": engine, "stagger": False, "custom_task": Counting(), **SMALL, **changes}
    return gym.make_vec(f"KineticSim/{task}-v0", num_envs=num_envs, **settings).unwrapped


def draw(shape, steps=STEPS):
    return np.random.default_rng(7).uniform(-1, 1, (steps, *shape)).astype(np.float32)


def same(one, other):
    """Whether two states are the same, with NaN where the other has it."""
    return one.keys() == other.keys() and all(
        np.array_equal(host(one[name]), host(other[name]), equal_nan=one[name].is_floating_point()) for name in one
    )


def host(values):
    return np.asarray(torch.as_tensor(values).cpu())


@covering
@every_engine
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("settings", [SMALL, CALLS, PAPER, TOUCH, UNWIND, SMALL | {"auctions_per_step": 2}])
@pytest.mark.parametrize("form", [{"output": "numpy"}, {"output": "torch", "copy": False}])
@pytest.mark.parametrize("markets", [1, MARKETS])
def test_steps_are_those_of_single_markets(engine, mode, settings, form, markets):
    """Memory and draws over many ends of episodes, in final observations before the reset, and in those after it."""
    envs = make(engine=engine, num_envs=markets, autoreset_mode=mode, **settings, **form)
    singles = [Plain(40 + m, **settings) for m in range(markets)]
    first = envs.reset(seed=40)[0]
    for m, single in enumerate(singles):
        np.testing.assert_array_equal(host(first)[m], single.reset())
    ends = 0
    for action in draw((markets, 4)):
        if mode == "DISABLED" and any(single.ended for single in singles):
            mask = np.array([single.ended for single in singles])
            fresh = host(envs.reset(options={"reset_mask": mask})[0]).copy()
            for m in mask.nonzero()[0]:
                np.testing.assert_array_equal(fresh[m], singles[m].reset())
        given = torch.from_numpy(action).to(envs.device) if form["output"] == "torch" else action
        observation, paid, terminated, truncated, infos = envs.step(given)
        for m, single in enumerate(singles):
            if single.ended and mode == "NEXT_STEP":
                np.testing.assert_array_equal(host(observation)[m], single.reset())
                assert host(paid)[m] == 0
                continue
            seen, made, terminates, truncates = single.step(action[m])
            assert (host(paid)[m], host(terminated)[m], host(truncated)[m]) == (made, terminates, truncates)
            ends += terminates + truncates
            if mode == "SAME_STEP":
                np.testing.assert_array_equal(host(infos["final_obs"])[m], seen)
                if single.ended:
                    seen = single.reset()
            np.testing.assert_array_equal(host(observation)[m], seen)
    assert ends >= 3


@every_engine
@pytest.mark.parametrize("stagger", [False, True])
def test_explicit_resets_leave_the_other_markets_memory(engine, stagger):
    envs = make(engine=engine, output="torch", stagger=stagger, horizon=50, custom_task=Lasting())
    envs.reset(seed=3)
    for action in draw((MARKETS, 4), 5):
        envs.step(torch.from_numpy(action).to(envs.device))
    before = {name: kept.clone() for name, kept in envs.core.own.memory.items()}
    envs.reset(options={"reset_mask": [False, True, False, False]})
    for name, kept in envs.core.own.memory.items():
        assert torch.equal(kept[[0, 2, 3]], before[name][[0, 2, 3]]), name
    if not stagger:  # else episodes of the horizon have begun meanwhile
        assert envs.core.own.memory["memory_maker_count"].tolist() == [5, 0, 5, 5]
    envs.reset(seed=3)
    again = make(engine=engine, output="torch", stagger=stagger, horizon=50, custom_task=Lasting())
    assert torch.equal(envs.observation, again.reset(seed=3)[0])


@every_engine
def test_clones_and_saved_states_have_memory_of_their_own(engine):
    """A planner may play on in a clone: nothing of it shows in what it was cloned from."""
    actions = torch.from_numpy(draw((MARKETS, 4)))
    one, loaded = make(engine=engine, output="torch"), make(output="torch")
    one.reset(seed=1)
    for action in actions[:8]:
        one.step(action.to(one.device))
    clone, saved = one.clone(), one.state_dict()
    assert {"memory_maker_count", "memory_maker_units"} <= set(saved)
    for action in actions[:3]:
        clone.step(-action.to(one.device))
    assert all(torch.equal(kept, saved[name]) for name, kept in one.core.own.memory.items())
    second = one.clone()
    loaded.load_state_dict(saved)
    assert torch.equal(loaded.observation, one.observation.cpu())
    for action in actions[8:]:
        found = one.step(action.to(one.device))
        for other in (second, loaded):
            for mine, theirs in zip(found[:4], other.step(action.to(other.device))[:4], strict=True):
                assert torch.equal(mine.cpu(), theirs.cpu())


def test_states_of_another_memory_are_refused():
    class Narrow(Counting):
        memory = {**Counting.memory, "units": (torch.float32, (3,))}

    one, other = make(output="torch"), make(output="torch", custom_task=Narrow())
    one.reset(seed=1)
    before = other.state_dict()
    with pytest.raises(ValueError, match="memory units float64"):
        other.load_state_dict(one.state_dict())
    after = other.state_dict()
    assert same(before, after)


@every_engine
def test_one_market_has_them(engine):
    env = gym.make("KineticSim/MarketMaking-v0", engine=engine, custom_task=Counting(), **SMALL)
    single = Plain(11)
    np.testing.assert_array_equal(env.reset(seed=11)[0], single.reset())
    for action in draw((4,)):
        mine, theirs = env.step(action), single.step(action)
        np.testing.assert_array_equal(mine[0], theirs[0])
        assert mine[1:4] == theirs[1:]
        if single.ended:
            np.testing.assert_array_equal(env.reset()[0], single.reset())


class Delayed(ks.CustomTask):
    """Three values that follow each other, named in either order, as they were before the decision."""

    memory = {name: torch.float64 for name in ("now", "last", "first", "newest", "older", "oldest")}

    def update(self, before, after, memory, draws):
        return {
            "now": after.mid,
            "last": memory.now,
            "first": memory.last,
            "oldest": memory.older,
            "older": memory.newest,
            "newest": after.mid,
        }

    def features(self, after, memory):
        return [getattr(memory, name).float() for name in self.memory]


@every_engine
@pytest.mark.parametrize("form", [{"decide": "touch", "horizon": 2}, {}])
def test_what_is_remembered_may_be_handed_on(engine, form):
    """In one update, whatever the order in the dict: all of them are of before it."""
    envs = make(engine=engine, output="torch", custom_task=Delayed(), autoreset_mode="DISABLED", **form)
    envs.reset(seed=2)
    mids = [torch.zeros(MARKETS)] * 3
    for action in draw((MARKETS, 4), 4):
        if envs.core.tensors["done"].any():
            break
        seen = host(envs.step(torch.from_numpy(action).to(envs.device))[0])[:, -6:]
        mids = [torch.from_numpy(host(envs.simulator.mid2) / 2).float(), *mids[:2]]
        np.testing.assert_array_equal(seen, torch.stack([*mids, *mids], 1))
    assert mids[2].any()


class OwnEnds(Counting):
    """Each learner's episode ends by itself."""

    def terminate(self, before, after, memory):
        return (memory.count >= 2) & (memory.goal < 0.6) & (after.filled > 0)


@every_engine
@pytest.mark.parametrize("mode", MODES)
def test_many_learners_have_memory_and_draws_each(engine, mode):
    """And those whose episodes have ended keep what they remember, while the others go on."""
    learners, settings = {"maker": 2, "trader": 1}, {**SMALL, "engine": engine, "horizon": 9}
    envs = BatchedParallelEnv(
        3, learners, autoreset_mode=mode, stagger=False, custom_task={"maker": OwnEnds()}, **settings
    )
    ones = [parallel_env(learners, custom_task={"maker": OwnEnds()}, **settings) for _ in range(3)]
    seen = envs.reset(seed=5)[0]
    assert seen["maker"].shape == (3, 2, 39 + 5) and seen["trader"].shape == (3, 1, 39)
    for m, env in enumerate(ones):
        env.reset(seed=5 + m)
    words = envs.core.own.memory["memory_maker_units"][..., 0]
    assert host(words).tolist() == [
        [float(word(5 + m, 0, 0, 2**30 + 2**28 + k * 2**20) >> 32) for k in range(2)] for m in range(3)
    ]
    ended, kept = np.zeros(3, bool), 0
    for step in range(14):
        rows = {role: draw((3, n, 4 if role == "maker" else 2), 14)[step] for role, n in learners.items()}
        if mode == "DISABLED" and ended.any():
            envs.reset(options={"reset_mask": ended})
            for m in ended.nonzero()[0]:
                ones[m].reset()
        before = host(envs.core.own.memory["memory_maker_count"]).copy()
        had_ended = host(envs.core.tensors["ended"])[:, :2].copy()
        actions = {role: torch.from_numpy(given).to(envs.device) for role, given in rows.items()}
        seen, paid, *_ = envs.step(actions)
        for m, env in enumerate(ones):
            if mode == "NEXT_STEP" and ended[m]:
                env.reset()
                ended[m] = False
                continue
            given = {agent: rows[agent[:-2]][m, int(agent[-1])] for agent in env.agents}
            observations, rewards, *_ = env.step(given)
            for agent, reward in rewards.items():
                assert host(paid[agent[:-2]])[m, int(agent[-1])] == np.float32(reward)
            ended[m] = not env.agents
            if mode == "SAME_STEP" and ended[m]:
                env.reset()
                ended[m] = False
            else:
                of_many, of_one = envs.core.own.memory, env.core.own.memory
                assert all(np.array_equal(host(of_many[name])[m], host(of_one[name])[0]) for name in of_many)
                for k in had_ended[m].nonzero()[0]:
                    assert host(of_many["memory_maker_count"])[m, k] == before[m, k]
                    kept += 1
    assert kept >= 2


def test_opponents_of_the_same_role_are_remembered_too():
    """What an opponent sees has the features of its own account, of its own memory."""
    seen = []

    def policy(observation):
        seen.append(observation.clone())
        return torch.zeros(len(observation), 4) - 0.5

    envs = make(output="torch", opponents={"maker": [policy]}, horizon=20, custom_task=Lasting())
    envs.reset(seed=2)
    for action in draw((MARKETS, 4), 6):
        envs.step(torch.from_numpy(action))
    assert [rows[0, -5].item() for rows in seen] == [0, 1, 2, 3, 4, 5]
    memory = envs.core.own.memory
    assert torch.equal(memory["memory_1_count"], memory["memory_maker_count"])
    assert memory["memory_1_units"][:, 0].tolist() == [
        float(word(2 + m, 0, 0, 2**30 + 2**28 + 2**20) >> 32) for m in range(MARKETS)
    ]


@covering
@every_engine
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("task", ["MarketMaking", "Trading", "Execution"])
@pytest.mark.parametrize("decide", ["interval", "touch"])
def test_programs_as_opponents_play_as_without_it(engine, mode, task, decide):
    """The same market: what is seen, flags, and the memory of as many decisions as there were."""
    settings = {"opponents": {"maker": [plain_maker], "trader": [patient]}, "decide": decide, "autoreset_mode": mode}
    settings |= {"block_qty": 9} if task == "Execution" else {}
    own, plain = (make(task, engine, output="torch", custom_task=one, **settings) for one in (Lasting(), None))
    seen, without = own.reset(seed=3)[0], plain.reset(seed=3)[0]
    size, count, ended, ends = without.shape[1], torch.zeros(MARKETS), torch.zeros(MARKETS, dtype=torch.bool), 0
    for action in draw((MARKETS, own.single_action_space.shape[0])):
        if mode == "DISABLED" and ended.any():
            for one in (own, plain):
                one.reset(options={"reset_mask": ended})
            count[ended] = 0
        found, expected = (one.step(torch.from_numpy(action).to(one.device)) for one in (own, plain))
        seen, without = (one[4]["final_obs"] if mode == "SAME_STEP" else one[0] for one in (found, expected))
        for mine, theirs in zip((seen[:, :size], *found[2:4]), (without, *expected[2:4]), strict=True):
            assert torch.equal(mine, theirs)
        count = torch.where(ended, 0, count + 1) if mode == "NEXT_STEP" else count + 1
        assert torch.equal(seen[:, size].cpu(), count)
        ended = (expected[2] | expected[3]).cpu()
        ends += int(ended.sum())
        count[ended] *= mode != "SAME_STEP"
    assert ends >= 3


# Actions --------------------------------------------------------------------------------------------------------------


class Skewed(ks.CustomTask):
    """A spread and a skew in place of four numbers; the memory says how far the mid has gone."""

    memory = {"gone": torch.float64}
    action_space = gym.spaces.Box(np.array([0, -1], np.float32), np.array([4, 1], np.float32))

    def update(self, before, after, memory, draws):
        return {"gone": memory.gone + after.mid - before.mid}

    def orders(self, action, view, memory):
        spread, skew = action.unbind(-1)
        off = spread / 4
        return torch.stack([off + skew / 4, off - skew / 4, off, torch.tanh(memory.gone).float()], -1).clamp(-1, 1)


class Records(ks.CustomTask):
    """A price and a signed quantity, as records."""

    action_space = gym.spaces.MultiDiscrete([21, 11])

    def orders(self, action, view, memory):
        price, quantity = view.mid.floor().long() + action[..., 0] - 10, action[..., 1] - 5
        nothing = torch.zeros_like(price)
        bid, ask = torch.stack([price, quantity.clamp(min=0)], -1), torch.stack([price, (-quantity).clamp(min=0)], -1)
        bid, ask = (torch.where(side[..., 1:] > 0, side, nothing[..., None]) for side in (bid, ask))
        return ks.OrderRecords(torch.cat([bid, ask], -1).int())


class Choice(ks.CustomTask):
    """Three choices of the 49."""

    action_space = gym.spaces.Discrete(3)

    def orders(self, action, view, memory):
        return action * 8


@every_engine
@pytest.mark.parametrize("mode", MODES[:2])
def test_actions_of_its_own_are_the_built_in_ones_that_they_say(engine, mode):
    own = make(engine=engine, output="torch", custom_task=Skewed(), autoreset_mode=mode)
    plain = make(engine=engine, output="torch", custom_task=None, autoreset_mode=mode)
    assert own.single_action_space.shape == (2,) and own.action_space.shape == (MARKETS, 2)
    assert torch.equal(own.reset(seed=1)[0], plain.reset(seed=1)[0])
    task, low, high = Skewed(), torch.tensor([0.0, -1.0]), torch.tensor([4.0, 1.0])
    for number, row in enumerate(torch.from_numpy(draw((MARKETS, 2)))):
        action = (low + (row + 1) / 2 * (high - low)).to(own.device)
        gone = type("Kept", (), {"gone": own.core.own.memory["memory_maker_gone"]})
        said = task.orders(action, None, gone)
        mine, theirs = own.step(action), plain.step(said)
        for one, two in zip(mine[:4], theirs[:4], strict=True):
            assert torch.equal(one, two), number


@every_engine
@pytest.mark.parametrize("settings", [SMALL, CALLS])
def test_they_may_be_order_records(engine, settings):
    own = make(engine=engine, output="torch", custom_task=Records(), **settings)
    plain = make(engine=engine, output="torch", custom_task=None, **settings)
    own.reset(seed=1), plain.reset(seed=1)
    generator = np.random.default_rng(3)
    for _ in range(STEPS):
        action = torch.from_numpy(generator.integers(0, [21, 11], (MARKETS, 2))).to(own.device)
        view = type("View", (), {"mid": plain.core.tensors["mid_history"][:, 0].double() / 2})
        said = Records().orders(action, view, None)
        for one, two in zip(own.step(action)[:4], plain.step(said)[:4], strict=True):
            assert torch.equal(one, two)
    assert int(own.simulator.volume.sum()) > 0 and bool(own.fills.any() or own.simulator.inventory.any())


def test_one_market_and_many_learners_act_in_it():
    """The same task in every form of environment, of the same seed: the same accounts."""
    learners = {"maker": 1}
    vector = BatchedParallelEnv(1, learners, custom_task=Records(), stagger=False, engine="numpy", **SMALL)
    agents = parallel_env(learners, custom_task=Records(), engine="numpy", **SMALL)
    assert agents.action_space("maker_0") == vector.single_action_spaces["maker"] == Records.action_space
    vector.reset(seed=4), agents.reset(seed=4)
    env = gym.make("KineticSim/MarketMaking-v0", custom_task=Records(), engine="numpy", **SMALL)
    own = make(num_envs=1, custom_task=Records())
    env.reset(seed=4), own.reset(seed=4)
    generator = np.random.default_rng(3)
    for _ in range(5):
        action = generator.integers(0, [21, 11])
        one = vector.step({"maker": torch.from_numpy(action)[None, None]})[1]["maker"].item()
        two = agents.step({"maker_0": action})[1]["maker_0"]
        assert one == two
        np.testing.assert_array_equal(env.step(action)[0], own.step(action[None])[0][0])


def test_choices_stand_for_choices():
    own = make(custom_task=Choice(), action_type="discrete")
    plain = make(custom_task=None, action_type="discrete")
    assert own.single_action_space == gym.spaces.Discrete(3)
    own.reset(seed=1), plain.reset(seed=1)
    for _ in range(STEPS):
        action = own.action_space.sample()
        for one, two in zip(own.step(action)[:4], plain.step(action * 8)[:4], strict=True):
            np.testing.assert_array_equal(one, two)
    env = gym.make("KineticSim/MarketMaking-v0", custom_task=Choice(), action_type="discrete", **SMALL)
    env.reset(seed=1)
    env.step(2)
    with pytest.raises(ValueError, match=r"actions\[0\]: expected a number of Discrete\(3\), got 3"):
        env.step(3)


@pytest.mark.parametrize("task", [Counting, Skewed, Records])
def test_gymnasium_checks_it(task):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*(infinity|symmetric and normalized space)")
        check_env(gym.make("KineticSim/MarketMaking-v0", custom_task=task(), **SMALL).unwrapped, skip_render_check=True)


def test_it_is_evaluated():
    """Money is counted as ever, whatever is paid."""
    envs = evaluation_env(MARKETS, custom_task=Skewed(), engine="numpy", **SMALL)
    found = evaluate(lambda seen: torch.tensor([[2.0, 0.0]]).expand(MARKETS, -1), envs)
    plain = evaluation_env(MARKETS, engine="numpy", **SMALL)
    actions = torch.tensor([[0.5, 0.5, 0.5, 0.0]]).expand(MARKETS, -1)

    class Flat(Skewed):
        def orders(self, action, view, memory):
            return actions + 0

    same = evaluation_env(MARKETS, custom_task=Flat(), engine="numpy", **SMALL)
    np.testing.assert_array_equal(
        evaluate(lambda seen: actions, plain).pnl, evaluate(lambda seen: actions[:, :2], same).pnl
    )
    assert np.isfinite(found.pnl).all()


@pytest.mark.gpu
def test_steps_wait_for_nothing_and_are_captured():
    """On a GPU a graph replays memory, draws and actions."""

    class Both(Counting):
        action_space = Skewed.action_space

        def orders(self, action, view, memory):
            return action.repeat_interleave(2, dim=1) / 4

    live, graph = (make(engine="cuda", output="torch", copy=False, custom_task=Both()) for _ in range(2))
    for envs in (live, graph):
        envs.reset(seed=6)
    actions = torch.zeros(MARKETS, 2, device=live.device)
    assert_steps_wait_for_nothing(live, actions)
    live.reset(seed=6)
    captured, result = capture_step(graph, actions)
    graph.reset(seed=6)
    for row in torch.from_numpy(draw((MARKETS, 2))).abs():
        actions.copy_(row)
        captured.replay()
        for one, two in zip(live.step(row.to(live.device))[:4], result[:4], strict=True):
            assert torch.equal(one, two)


FORMS = pytest.mark.parametrize(
    ("task", "form"), [(Skewed(), {}), (Records(), {}), (Choice(), {"action_type": "discrete"})]
)


@FORMS
def test_trainers_act_in_its_space(task, form):
    """Of each library the adapter, and of a real trainer a short training."""
    sb3, torchrl = pytest.importorskip("stable_baselines3"), pytest.importorskip("torchrl.envs.utils")
    from kineticsim_env.adapters.sb3 import SB3GroupVecEnv, SB3VecEnv
    from kineticsim_env.adapters.torchrl import TorchRLEnv

    made = {"custom_task": task, "engine": "cpu", **SMALL, **form}
    rows = [
        SB3VecEnv("KineticSim/MarketMaking-v0", 4, **made),
        SB3GroupVecEnv(BatchedParallelEnv(2, {"maker": 2}, **made)),
    ]
    for env in rows:
        assert env.action_space == task.action_space
        sb3.PPO("MlpPolicy", env, n_steps=8, batch_size=16, n_epochs=1, device="cpu").learn(32)
    torchrl.check_env_specs(TorchRLEnv("KineticSim/MarketMaking-v0", 4, **made))


@FORMS
def test_skrl_clamps_to_its_space(task, form):
    pytest.importorskip("skrl")
    from kineticsim_env.adapters.skrl import SkrlEnv

    env = SkrlEnv(gym.make_vec("KineticSim/MarketMaking-v0", 4, output="torch", custom_task=task, **SMALL, **form))
    env.reset()
    if isinstance(task.action_space, gym.spaces.Box):
        actions = 9 * torch.randn(4, *task.action_space.shape)
    else:
        actions = torch.from_numpy(np.stack([np.atleast_1d(task.action_space.sample()) for _ in range(4)]))
    assert torch.isfinite(env.step(actions)[1]).all()


@FORMS
def test_pettingzoo_checks_it(task, form):
    from pettingzoo.test import parallel_api_test

    parallel_api_test(parallel_env({"maker": 2}, custom_task=task, engine="cpu", **SMALL, **form), 20)


# What is refused, and warned of ------------------------------------------------------------------------------------


def declared(**attributes):
    return type("Odd", (Counting,), attributes)()


@pytest.mark.parametrize(
    ("task", "error", "message"),
    [
        (Counting, TypeError, r"custom_task: expected an object .*; write Counting\(\)"),
        ("pnl", TypeError, "custom_task: expected an object of a class derived from CustomTask, got 'pnl'"),
        ({"maker": Counting()}, TypeError, "custom_task: expected a CustomTask, got a dict"),
        (declared(memory=["count"]), TypeError, r"custom_task.memory: expected a dict of dtypes"),
        (declared(memory={"count": torch.float16}), ValueError, r"custom_task.memory\['count'\]: expected .*float16"),
        (declared(memory={"a b": torch.int64}), ValueError, r"custom_task.memory\['a b'\]"),
        (declared(memory={"items": torch.int64}), ValueError, r"memory\['items'\]: expected a name that no method of"),
        (declared(memory={"count": (torch.int64, (0,))}), ValueError, r"got \(torch.int64, \(0,\)\)"),
        (declared(memory={}), ValueError, "custom_task.memory: expected names of what 'begin' returns, got none"),
        (declared(episode_draws=-1), ValueError, r"custom_task.episode_draws: expected 0 to 2\^20"),
        (declared(episode_draws=1.0), TypeError, "custom_task.episode_draws: expected a whole number"),
        (
            declared(begin=ks.CustomTask.begin),
            ValueError,
            "custom_task.episode_draws: expected 0 without a method 'begin', got 2",
        ),
        (declared(action_space=gym.spaces.Discrete(2)), ValueError, "both 'action_space' and 'orders' or neither"),
        (declared(orders=Skewed.orders), ValueError, "got 'orders' alone"),
        (
            declared(orders=Skewed.orders, action_space=gym.spaces.Discrete(2, start=1)),
            ValueError,
            "custom_task.action_space: expected a Box of float32",
        ),
        (declared(begin=lambda self, after, draws: None), TypeError, "begin: expected a dict of tensors by name"),
        (
            declared(begin=lambda self, after, draws: {"gaol": after.cash}),
            ValueError,
            "begin: expected names of count, goal, units, odd, got 'gaol'",
        ),
        (
            declared(begin=lambda self, after, draws: {"count": after.cash}),
            ValueError,
            r"begin: expected 'count' to be torch.int64 \[4\] on cpu, got torch.float64 \[4\]",
        ),
        (
            declared(update=lambda self, before, after, memory, draws: {"units": memory.goal}),
            ValueError,
            r"update: expected 'units' to be torch.float32 or torch.float64 \[4, 3\]",
        ),
        (
            declared(reward=lambda self, before, after, memory: memory.count.add_(1).double()),
            TypeError,
            "reward: expected memory to be read, .* got a tensor of it that was written to",
        ),
        (
            declared(reward=lambda self, before, after, memory: after.inventory.abs_()),
            TypeError,
            "reward: expected the market to be read, and a clone .* got a tensor of it that was written to",
        ),
        (
            declared(features=lambda self, after, memory: after.bid.clamp_(max=3)[:, 0].float()),
            TypeError,
            "features: expected the market to be read",
        ),
        (
            declared(features=lambda self, after, memory: [memory.goal, 3]),
            TypeError,
            "features: expected the function to return a tensor .*, got int",
        ),
        (
            declared(reward=lambda self, before, after, memory: memory.total),
            ValueError,
            "reward: the function raised AttributeError: memory.total: there is no such thing; there are count, goal",
        ),
    ],
)
def test_what_is_wrong_is_named(task, error, message):
    with pytest.raises(error, match=message):
        make(custom_task=task)


def test_a_function_and_a_method_for_the_same_are_refused():
    with pytest.raises(ValueError, match="reward: expected None beside a custom_task that has a method 'reward'"):
        make(reward=lambda before, after: after.cash)
    with pytest.raises(ValueError, match="action_mask: expected False with a custom_task"):
        make(custom_task=Choice(), action_type="discrete", action_mask=True)
    assert make(custom_task=Skewed(), reward="pnl").core.task.reward == "pnl"


@pytest.mark.parametrize(
    ("action", "error", "message"),
    [
        (np.zeros((MARKETS, 4), np.float32), ValueError, r"actions: expected .*\[4, 2\]"),
        (np.zeros((MARKETS, 2), np.int64), TypeError, "actions: expected .*float32"),
        (np.full((MARKETS, 2), 1.5, np.float32), ValueError, r"actions\[0, 1\]: expected a number of Box"),
        (np.full((MARKETS, 2), np.nan, np.float32), ValueError, r"actions\[0, 0\]: expected a number of Box.*nan"),
    ],
)
def test_actions_outside_of_the_space_change_nothing(action, error, message):
    envs = make(custom_task=Skewed())
    envs.reset(seed=0)
    before = envs.state_dict()
    with pytest.raises(error, match=message):
        envs.step(action)
    after = envs.state_dict()
    assert same(before, after)
    envs.step(np.array([[4.003, 1.0005]] * MARKETS, np.float32))  # as rounding leaves it


def test_orders_that_write_to_what_they_see_are_refused():
    def orders(self, action, view, memory):
        return torch.cat([action, view.inventory.clamp_(-1, 1)[:, None].float()], 1)

    envs = make(output="torch", custom_task=declared(orders=orders, action_space=gym.spaces.Box(-1, 1, (3,))))
    envs.reset(seed=1)
    with pytest.raises(TypeError, match="orders: expected the market to be read"):
        envs.step(torch.zeros(MARKETS, 3))


def test_orders_that_are_none_change_nothing():
    envs = make(custom_task=type("Wide", (Skewed,), {"orders": lambda self, action, view, memory: 3 * action})())
    envs.reset(seed=0)
    before = envs.state_dict()
    with pytest.raises(ValueError, match=r"orders of a maker: expected .*\[4, 4\]"):
        envs.step(np.ones((MARKETS, 2), np.float32))
    after = envs.state_dict()
    assert same(before, after)


def test_a_method_that_raises_in_a_step_is_followed_by_a_reset():
    class Fails(Counting):
        def update(self, before, after, memory, draws):
            if int(after.elapsed[0]) == 2:
                raise RuntimeError("on purpose")
            return super().update(before, after, memory, draws)

    envs = make(custom_task=Fails(), horizon=20)
    envs.reset(seed=0)
    action = np.zeros((MARKETS, 4), np.float32)
    envs.step(action)
    with pytest.raises(RuntimeError, match="on purpose"):
        envs.step(action)
    with pytest.raises(gym.error.ResetNeeded):
        envs.step(action)
    first = envs.reset(seed=0)[0]
    np.testing.assert_array_equal(first, make(horizon=20).reset(seed=0)[0])


def counter():
    kept, number = [0], 0

    def by_list(before, after):
        kept[0] += 1
        return after.value

    def by_name(before, after):
        nonlocal number
        number += 1
        return after.value

    return by_list, by_name


class Called:
    def __init__(self):
        self.calls = 0

    def __call__(self, before, after):
        self.calls += 1
        return after.value

    def method(self, before, after):
        return self(before, after)


DECAY = torch.zeros(1, dtype=torch.float64)
GENERATOR = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (counter()[0], "'kept'"),
        (counter()[1], "'number'"),
        (Called(), "'calls'"),
        (Called().method, "'calls'"),
        (lambda before, after: after.value + DECAY.add_(1), "'DECAY'"),
        (lambda before, after: after.value + GENERATOR.normal(), "'GENERATOR'"),
        (lambda before, after: after.value + torch.randn_like(after.value), "torch's generator"),
        (lambda before, after: after.value + np.random.rand(), "NumPy's generator"),
    ],
)
def test_state_that_a_function_keeps_is_warned_of(function, named):
    with pytest.warns(UserWarning, match=rf"reward.*{named}.*ks.CustomTask") as found:
        make(custom_task=None, reward=function)
    assert len(found) == 1


def test_state_that_an_object_keeps_is_warned_of():
    class Keeps(Counting):
        seen = None

        def features(self, after, memory):
            self.seen = after.cash.clone()
            return memory.goal

    with pytest.warns(UserWarning, match="custom_task: the function has changed 'seen'"):
        make(custom_task=Keeps())


def test_what_changes_nothing_is_not_warned_of():
    weights, table = torch.ones(3, dtype=torch.float64), {"a": [1, 2], "b": np.arange(4.0)}
    network = torch.nn.Linear(1, 1).double()

    def reward(before, after):
        with torch.no_grad():
            return after.value * weights[0] + table["b"][1] + network(after.cash[:, None])[:, 0] + copy.copy(1)

    compiled, layer = (torch.compile(one, backend="eager") for one in (reward, network))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*ks.CustomTask")
        make(custom_task=None, reward=reward, features=[lambda after: after.cash * weights.sum()])
        make(custom_task=None, reward=compiled, features=[lambda after: layer(after.cash[:, None])[:, 0].detach()])
        make()
