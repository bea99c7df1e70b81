"""Own rewards, features and ends of episodes, beside single markets that plain Python judges one by one."""

import copy

import gymnasium as gym
import numpy as np
import pytest
import torch
from env_helpers import assert_steps_wait_for_nothing, capture_step
from markets import FEW_ORDERS
from thorough import covering

import kineticsim_env as ks
from kineticsim_env.envs.batched import BatchedParallelEnv
from kineticsim_env.envs.parallel import parallel_env
from kineticsim_env.evaluation import evaluate, evaluation_env

SMALL = {"config": FEW_ORDERS, "horizon": 6, "bank_size": 4, "warmup": 5}
SCENARIOS = {"randomise": {"noise_spread": (2, 12), "fee": (1, 9)}, "num_scenarios": 3}
MODES = ("SAME_STEP", "NEXT_STEP", "DISABLED")
ENGINES = ["cpu", "numpy", pytest.param("cuda", marks=pytest.mark.gpu)]
every_engine = pytest.mark.parametrize("engine", ENGINES)
MARKETS, STEPS = 5, 25


def reward(before, after):
    """Made of everything: before and after, what the task says, and whether the episode ends."""
    made = after.value - before.value - 0.25 * after.inventory**2 + after.reward / 4
    return torch.where(after.terminated | after.truncated, made - after.filled, made + before.elapsed)


def held(after):
    return torch.stack([after.inventory, after.mid - after.fundamental, after.scenario], dim=-1)


def depth(after):
    """Of the book: float64, and without an axis of its own."""
    return (after.bid.sum(1) - after.ask.sum(1)).double() + after.quotes[..., 1] + after.observation[..., 0]


def terminate(before, after):
    return (after.inventory.abs() >= 6) & (after.elapsed >= 2)


OWN = {"reward": reward, "features": [held, depth], "terminate": terminate}


def make(task="MarketMaking", engine="numpy", num_envs=MARKETS, **changes):
    settings = {"engine": engine, "stagger": False, **SMALL, **changes}
    return gym.make_vec(f"KineticSim/{task}-v0", num_envs=num_envs, **settings).unwrapped


def draw(shape, steps=STEPS):
    return np.random.default_rng(7).uniform(-1, 1, (steps, *shape)).astype(np.float32)


class Single:
    """One market without autoreset, judged in plain Python: what the functions above say, from live tensors."""

    def __init__(self, task, seed, **settings):
        self.env = gym.make(f"KineticSim/{task}-v0", engine="numpy", **SMALL, **settings).unwrapped
        self.seed, self.ended, self.total = seed, False, 0.0

    def reset(self):
        observation, _ = self.env.reset(seed=self.seed)
        self.seed, self.ended, self.filled, self.total = None, False, 0, 0.0
        return self.seen(observation)

    def value(self):
        state = self.env.simulator.tensors
        mark = self.env.core.task.mark
        price = int(state["fundamental_price"]) if mark == "fundamental" else self.mid()
        return int(state["cash"]) + int(state["inventory"]) * price - int(state["fees"]) / 1000

    def mid(self):
        return int(self.env.core.tensors["mid_history"][0, 0]) / 2

    def seen(self, observation):
        env = self.env
        state, tensors = env.simulator.tensors, env.core.tensors
        held = [int(state["inventory"]), self.mid() - int(state["fundamental_price"]), int(tensors["scenario"])]
        depth = (
            int(state["bid"].sum()) - int(state["ask"].sum()) + int(state["quotes"][0, 0, 1]) + float(observation[0])
        )
        return np.concatenate([observation, np.array([*held, depth], np.float32)])

    def step(self, action):
        env = self.env
        before, elapsed = self.value(), int(env.core.tensors["elapsed"])
        observation, paid, terminated, truncated, infos = env.step(action)
        self.filled += infos["bought"] + infos["sold"]
        if abs(infos["inventory"]) >= 6 and int(env.core.tensors["elapsed"]) >= 2:
            terminated, truncated = True, False
        made = self.value() - before - 0.25 * infos["inventory"] ** 2 + float(np.float32(paid) / np.float32(4))
        made = made - self.filled if terminated or truncated else made + elapsed
        self.ended = terminated or truncated
        self.total += float(np.float32(made))
        return self.seen(observation), np.float32(made), terminated, truncated


def host(values):
    return np.asarray(torch.as_tensor(values).cpu())


@covering
@every_engine
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("task", "settings"),
    [("MarketMaking", {}), ("MarketMaking", SCENARIOS | {"mark": "mid"}), ("Trading", {"auctions_per_step": 2})],
)
@pytest.mark.parametrize("form", [{"output": "numpy"}, {"output": "torch", "copy": False}])
@pytest.mark.parametrize("markets", [1, MARKETS])
def test_steps_are_those_of_single_markets(engine, mode, task, settings, form, markets):
    """Every observation, reward and flag over many ends of episodes, of both kinds."""
    envs = make(task, engine, markets, autoreset_mode=mode, account_info=True, **settings, **form, **OWN)
    singles = [Single(task, 40 + m, **settings) for m in range(markets)]
    first = envs.reset(seed=40)[0]
    assert first.shape == envs.observation_space.shape and envs.single_observation_space.contains(host(first)[0])
    for m, single in enumerate(singles):
        np.testing.assert_array_equal(host(first)[m], single.reset())
    ends = {"terminated": 0, "truncated": 0}
    for action in draw((markets, *envs.single_action_space.shape)):
        if mode == "DISABLED" and any(single.ended for single in singles):
            mask = np.array([single.ended for single in singles])
            fresh = host(envs.reset(options={"reset_mask": mask})[0]).copy()
            for m in mask.nonzero()[0]:
                np.testing.assert_array_equal(fresh[m], singles[m].reset())
        given = torch.from_numpy(action).to(envs.device) if form["output"] == "torch" else action
        observation, paid, terminated, truncated, infos = envs.step(given)
        observation, paid, terminated, truncated = map(host, (observation, paid, terminated, truncated))
        assert paid.dtype == np.float32 and observation.dtype == np.float32
        for m, single in enumerate(singles):
            if single.ended and mode == "NEXT_STEP":
                np.testing.assert_array_equal(observation[m], single.reset())
                assert (paid[m], terminated[m], truncated[m]) == (0, False, False)
                continue
            seen, made, terminates, truncates = single.step(action[m])
            assert (paid[m], terminated[m], truncated[m]) == (made, terminates, truncates)
            ends["terminated"] += terminates
            ends["truncated"] += truncates
            assert host(infos["account_info"]["episode_return"])[m] == single.total
            assert host(infos["account_info"]["inventory"])[m] == int(single.env.simulator.inventory)
            assert host(infos["_account_info"])[m] == single.ended
            if mode == "SAME_STEP":
                np.testing.assert_array_equal(host(infos["final_obs"])[m], seen)
                assert host(infos["_final_obs"])[m] == single.ended
                if single.ended:
                    seen = single.reset()
            np.testing.assert_array_equal(observation[m], seen)
    assert min(ends.values()) >= 3 or markets == 1


@covering
@every_engine
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("task", ["MarketMaking", "Execution", "Trading"])
@pytest.mark.parametrize("markets", [1, MARKETS])
def test_a_built_in_reward_in_own_words_is_the_built_in_one(engine, mode, task, markets):
    """Bit for bit; and so is all else of an environment whose functions change nothing."""
    words = {
        "MarketMaking": lambda before, after: (
            (after.value - before.value - 0.1 * after.inventory * after.inventory) / 10.0
        ),
        "Trading": lambda before, after: (after.value - before.value - 0.1 * after.inventory * after.inventory) / 10.0,
        "Execution": lambda before, after: after.reward,
    }
    named = {} if task == "Execution" else {"reward": "inventory", "inventory_penalty": 0.1}
    names = {"engine": engine, "autoreset_mode": mode, "output": "torch", "account_info": True, "num_envs": markets}
    plain = make(task, **names, **named)
    own = make(task, **names, reward=words[task], terminate=lambda before, after: after.cash != after.cash)
    if task == "Execution":
        assert plain.core.task.reward == own.core.task.reward
    assert torch.equal(plain.reset(seed=3)[0], own.reset(seed=3)[0])
    for action in torch.from_numpy(draw((markets, *plain.single_action_space.shape))).to(plain.device):
        mine, theirs = own.step(action), plain.step(action)
        for one, two in zip(mine[:4], theirs[:4], strict=True):
            assert torch.equal(one, two)
        assert set(mine[4]) == set(theirs[4])
        for name, value in theirs[4].items():
            for key in value if isinstance(value, dict) else [None]:
                one, two = (mine[4][name], value) if key is None else (mine[4][name][key], value[key])
                assert torch.equal(one.nan_to_num(), two.nan_to_num()), (name, key)
        over = theirs[2] | theirs[3]
        if mode == "DISABLED" and bool(over.any()):
            for envs in (plain, own):
                envs.reset(options={"reset_mask": over})


@every_engine
def test_markets_that_wait_for_their_reset_have_nothing(engine):
    """As on a GPU, where a step under DISABLED plays on with the others."""
    envs = make(engine=engine, output="torch", autoreset_mode="DISABLED", account_info=True, **OWN)
    envs.reset(seed=1)
    envs.core._done = None  # in host memory such a step is refused
    waits, before = torch.zeros(MARKETS, dtype=torch.bool, device=envs.device), ()
    waited = 0
    for action in torch.from_numpy(draw((MARKETS, 4), 9)).to(envs.device):
        now = envs.step(action)
        for m in waits.nonzero().flatten().tolist():
            assert now[1][m] == 0 and (now[2][m] | now[3][m])
            assert all(torch.equal(now[i][m], before[i][m]) for i in (0, 2, 3))
            for name, values in before[4]["account_info"].items():
                assert torch.equal(values[m].nan_to_num(), now[4]["account_info"][name][m].nan_to_num()), name
            waited += 1
        waits, before = now[2] | now[3], now
    assert waits.all() and waited >= 2 * MARKETS


@every_engine
def test_the_single_environment_has_them(engine):
    env = gym.make("KineticSim/MarketMaking-v0", engine=engine, **SMALL, **OWN)
    other = Single("MarketMaking", 11)
    np.testing.assert_array_equal(env.reset(seed=11)[0], other.reset())
    for action in draw((4,)):
        seen, made, terminates, truncates = other.step(action)
        mine = env.step(action)
        np.testing.assert_array_equal(mine[0], seen)
        assert mine[1:4] == (made, terminates, truncates) and type(mine[2]) is bool
        assert env.observation_space.contains(mine[0])
        if other.ended:
            with pytest.raises(gym.error.ResetNeeded):
                env.step(action)
            np.testing.assert_array_equal(env.reset()[0], other.reset())


def many_reward(before, after):
    return (after.value - before.value) / 7 + 0 * after.mid


def many_terminate(before, after):
    return after.inventory.abs() >= 9


LEARNERS = {"maker": 2, "trader": 1, "noise": 2}
MANY = {
    "reward": {"maker": many_reward, "noise": lambda before, after: after.bought - after.sold},
    "features": {"maker": [lambda after: after.cash, lambda after: after.mid.expand_as(after.cash)]},
    "terminate": many_terminate,
}


@covering
@every_engine
@pytest.mark.parametrize("mode", MODES)
def test_many_learners_have_them_by_role(engine, mode):
    """Beside single markets of the agents' interface, with the same functions and with plain numbers from infos."""
    settings = {**SMALL, "engine": engine, "max_target": 12}
    envs = BatchedParallelEnv(3, LEARNERS, autoreset_mode=mode, stagger=False, account_info=True, **settings, **MANY)
    plain = [parallel_env(LEARNERS, **{**settings, "engine": "numpy"}) for _ in range(3)]
    owned = [parallel_env(LEARNERS, **{**settings, "engine": "numpy"}, **MANY) for _ in range(3)]
    seen = envs.reset(seed=5)[0]
    assert seen["maker"].shape == (3, 2, 39 + 2) and seen["trader"].shape == (3, 1, 39)
    assert envs.state_space.shape == envs.state().shape[1:]
    for m, env in enumerate(owned):
        start, _ = env.reset(seed=5 + m)
        plain[m].reset(seed=5 + m)
        for agent, row in start.items():
            role, number = agent.split("_")
            np.testing.assert_array_equal(host(seen[role])[m, int(number)], row)
            assert env.observation_space(agent).contains(row)
    values, ended = [{} for _ in range(3)], np.zeros(3, dtype=bool)
    ends = 0
    for step in range(16):
        actions = {
            role: torch.from_numpy(
                np.random.default_rng([step, n]).uniform(-1, 1, (3, count, 4 if role == "maker" else 2))
            )
            .float()
            .to(envs.device)
            for n, (role, count) in enumerate(LEARNERS.items())
        }
        if mode == "DISABLED" and ended.any():
            envs.reset(options={"reset_mask": ended})
            for m in ended.nonzero()[0]:
                owned[m].reset()
                values[m] = {}
            ended[:] = False
        seen, paid, terminated, truncated, infos = envs.step(actions)
        for m, env in enumerate(owned):
            if mode == "NEXT_STEP" and ended[m]:
                start = env.reset()[0]
                values[m], ended[m] = {}, False
                assert all(not bool(paid[role][m].any()) for role in LEARNERS)
                np.testing.assert_array_equal(host(seen["maker"])[m, 0], start["maker_0"])
                continue
            given = {}
            for agent in env.agents:
                role, number = agent.split("_")
                given[agent] = host(actions[role])[m, int(number)]
            rows, rewards, ends_one, ends_two, told = env.step(given)
            for agent in given:
                role, number = agent.split("_")
                place = (m, int(number))
                assert host(paid[role])[place] == np.float32(rewards[agent])
                assert host(terminated[role])[place] == ends_one[agent]
                assert host(truncated[role])[place] == ends_two[agent]
                assert ends_one[agent] == (abs(told[agent]["inventory"]) >= 9)
                ends += ends_one[agent]
                if role == "noise":
                    assert rewards[agent] == told[agent]["bought"] - told[agent]["sold"]
                if role == "maker":
                    known = {
                        name: host(values)[place]
                        for name, values in infos["account_info"][role].items()
                        if name in ("value", "cash")
                    }
                    wanted = np.float32((known["value"] - values[m].get(agent, 0.0)) / 7)
                    values[m][agent] = known["value"]
                    assert rewards[agent] == wanted and known["cash"] == told[agent]["cash"]
                final = host(infos["final_obs"][role])[place] if mode == "SAME_STEP" else host(seen[role])[place]
                np.testing.assert_array_equal(final, rows[agent])
            for role in LEARNERS:  # who had ended before has no reward
                for number in range(LEARNERS[role]):
                    if f"{role}_{number}" not in given:
                        assert host(paid[role])[m, number] == 0 and not host(terminated[role])[m, number]
            ended[m] = not env.agents
            assert host(infos["_account_info"])[m] == ended[m]
            if ended[m] and mode == "SAME_STEP":
                start = env.reset()[0]
                values[m], ended[m] = {}, False
                np.testing.assert_array_equal(host(seen["maker"])[m, 1], start["maker_1"])
    assert ends > 3


@every_engine
def test_saved_states_go_on(engine):
    """Own features are seen at once after a load; states say which functions there were."""
    one, two = (
        make(engine=engine, output="torch", account_info=True, **OWN),
        make(output="torch", account_info=True, **OWN),
    )
    one.reset(seed=1)
    actions = torch.from_numpy(draw((MARKETS, 4)))
    for action in actions[:9]:
        seen = one.step(action.to(one.device))[0]
    two.load_state_dict(one.state_dict())
    assert torch.equal(two.observation, seen.cpu())
    for action in actions[9:]:
        mine, theirs = one.step(action.to(one.device)), two.step(action)
        for a, b in zip(mine[:4], theirs[:4], strict=True):
            assert torch.equal(a.cpu(), b)
        assert torch.equal(mine[4]["account_info"]["episode_return"].cpu(), theirs[4]["account_info"]["episode_return"])
    with pytest.raises(ValueError, match=r"own.maker is \['reward'\] there, \['reward', 'terminate'\] here"):
        make(reward=reward, terminate=terminate).load_state_dict(make(reward=reward).state_dict())


# What is refused ------------------------------------------------------------------------------------------------------


def good(*_):
    return torch.zeros(MARKETS)


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"reward": lambda b, a: 3.0}, TypeError, r"reward: expected the function to return a tensor .*, got float"),
        (
            {"reward": lambda b, a: a.cash[:2]},
            ValueError,
            r"reward: expected the function to return a tensor .*, got torch.float64 \[2\] on cpu",
        ),
        (
            {"reward": lambda b, a: a.cash.long()},
            ValueError,
            r"return a tensor torch.float32 or torch.float64 \[5\] on cpu, got torch.int64 \[5\] on cpu",
        ),
        (
            {"reward": lambda b, a: a.cash[:, None]},
            ValueError,
            r"reward: expected the function to return .*, got torch.float64 \[5, 1\]",
        ),
        (
            {"reward": lambda b, a: a.cash.to("meta")},
            ValueError,
            r"reward: expected the function to return .* on cpu, got .* on meta",
        ),
        (
            {"terminate": good},
            ValueError,
            r"terminate: expected the function to return a tensor torch.bool \[5\] on cpu, got torch.float32 \[5\]",
        ),
        (
            {"features": [lambda a: a.mid, lambda a: None]},
            TypeError,
            r"features\[1\]: expected the function to return .*, got NoneType",
        ),
        (
            {"features": [lambda a: a.bid]},
            ValueError,
            r"features\[0\]: expected .*\[5\] or \[5, 'g'\] on cpu, got torch.int32 ",
        ),
        ({"features": [lambda a: a.cash[:, None, None]]}, ValueError, r"features\[0\]: .* \[5, 1, 1\]"),
        ({"features": [lambda a: a.cash[:, None][:, :0]]}, ValueError, r"features\[0\]: .* \[5, 0\]"),
        ({"features": good}, TypeError, r"features: expected a list of functions of after, got function"),
        ({"features": [good, 7]}, TypeError, r"features\[1\]: expected a list of functions of after, got int 7"),
        ({"features": "mid"}, TypeError, r"features: expected a list.*got str"),
        ({"terminate": 3}, TypeError, r"terminate: expected a function of before and after, got int 3"),
        ({"terminate": {"maker": good}}, TypeError, r"terminate: expected a function.*got a dict"),
        (
            {"reward": {"maker": good}},
            TypeError,
            r"reward: expected a name of a built-in reward, or a func.*got a dict",
        ),
        (
            {"reward": lambda b: b.cash},
            ValueError,
            r"reward: the function raised TypeError: .* takes 1 positional argum",
        ),
        ({"terminate": print}, TypeError, r"terminate: expected the function to return .*, got NoneType"),
        (
            {"reward": lambda b, a: b.bid},
            ValueError,
            r"reward: the function raised AttributeError: before.bid: there is no such thing; there are mid, ",
        ),
        (
            {"features": [lambda a: a.reward]},
            ValueError,
            r"features\[0\]: the function raised AttributeError: after.reward: there is no such thing; there are ",
        ),
    ],
)
def test_what_is_not_allowed_is_refused_when_the_environment_is_made(given, error, said):
    with pytest.raises(error, match=said):
        make(**given)


def test_roles_that_are_not_there_are_refused():
    with pytest.raises(ValueError, match=r"reward: expected one of maker, noise, got the role 'executor'"):
        BatchedParallelEnv(2, {"maker": 1, "noise": 1}, engine="numpy", reward={"executor": good}, **SMALL)
    with pytest.raises(TypeError, match=r"terminate\['maker'\]: expected a function.*got str 'x'"):
        parallel_env({"maker": 1}, engine="numpy", terminate={"maker": "x"}, **SMALL)
    with pytest.raises(
        ValueError, match=r"reward of a maker: expected the function to return .* \[2, 1\] .*, got torch.float64 \[2\]"
    ):
        BatchedParallelEnv(2, {"maker": 1}, engine="numpy", reward=lambda b, a: a.cash[:, 0], **SMALL)


class Moody:
    """Raises, or returns NaN, when it is told to."""

    def __init__(self):
        self.mood = "good"

    def __call__(self, *moments):
        after = moments[-1]
        if self.mood == "bad":
            raise RuntimeError("a bad day")
        if self.mood == "wide":
            return torch.zeros(*after.cash.shape, 3, device=after.cash.device)
        return after.cash * (float("nan") if self.mood == "nan" else 0.0)


@every_engine
@pytest.mark.parametrize("place", ["reward", "features"])
@pytest.mark.parametrize("mode", MODES)
def test_after_a_function_that_raised_a_reset_goes_on(engine, place, mode):
    moody = Moody()
    envs = make(
        engine=engine, output="torch", autoreset_mode=mode, **{place: [moody] if place == "features" else moody}
    )
    fine = make(
        engine=engine, output="torch", autoreset_mode=mode, **{place: [Moody()] if place == "features" else Moody()}
    )
    zeros = torch.zeros(MARKETS, 4, device=envs.device)
    envs.reset(seed=2)
    envs.step(zeros)
    moody.mood = "bad"
    with pytest.raises(RuntimeError, match="a bad day") as raised:
        envs.step(zeros)
    assert raised.value.__notes__ == [f"raised by the function given as {place}{'[0]' * (place == 'features')}"]
    moody.mood = "good"
    for _ in range(2):
        with pytest.raises(gym.error.ResetNeeded, match="a function of yours raised.*call reset"):
            envs.step(zeros)
    with pytest.raises(gym.error.ResetNeeded, match="a function of yours raised"):
        envs.reset(options={"reset_mask": np.arange(MARKETS) < 2})
    assert torch.equal(envs.reset(seed=2)[0], fine.reset(seed=2)[0])
    for action in torch.from_numpy(draw((MARKETS, 4), 5)).to(envs.device):
        for mine, theirs in zip(envs.step(action)[:4], fine.step(action)[:4], strict=True):
            assert torch.equal(mine, theirs)
    moody.mood = "wide"
    with pytest.raises(ValueError, match=place):
        envs.step(zeros)


@pytest.mark.parametrize("place", ["reward", "features"])
def test_nan_is_refused_at_once_in_host_memory(place):
    moody = Moody()
    envs = make(**{place: [moody] if place == "features" else moody})
    envs.reset(seed=2)
    envs.step(np.zeros((MARKETS, 4), np.float32))
    moody.mood = "nan"
    with pytest.raises(ValueError, match=rf"{place}.*: expected finite numbers.*got .*nan.* for market 0"):
        envs.step(np.ones((MARKETS, 4), np.float32))


def test_names_of_built_in_rewards_go_on():
    assert make(reward="pnl").core.own is None
    with pytest.raises(ValueError, match="reward: expected one of 'pnl', .*, got 'profit'"):
        make(reward="profit")
    with pytest.raises((TypeError, ValueError), match="reward: .*got 5"):
        make(reward=5)


def test_the_spec_makes_it_again():
    envs = gym.make_vec("KineticSim/MarketMaking-v0", num_envs=2, engine="numpy", **SMALL, **OWN)
    again = gym.make_vec(copy.deepcopy(envs.spec))
    first, second = envs.reset(seed=3)[0], again.reset(seed=3)[0]
    np.testing.assert_array_equal(first, second)
    assert second.shape == (2, 39 + 4)


def test_statistics_and_evaluation_take_them():
    envs = evaluation_env(6, engine="numpy", **SMALL, reward=reward, terminate=terminate)
    played = evaluate(lambda seen: torch.ones(6, 4), envs)
    assert np.isfinite(played.episode_return).all() and np.isfinite(played.pnl).all()


@pytest.mark.filterwarnings("ignore")
def test_adapters_take_them():
    """The libraries' own checks, and rewards that reach the trainer."""
    pytest.importorskip("torchrl")
    from torchrl.envs import check_env_specs

    from kineticsim_env.adapters.torchrl import TorchRLEnv, TorchRLGroupEnv

    settings = {"engine": "cpu", **SMALL}
    env = TorchRLEnv("KineticSim/MarketMaking-v0", num_envs=MARKETS, **settings, **OWN)
    check_env_specs(env)
    assert env.rollout(9, break_when_any_done=False)["observation"].shape == (MARKETS, 9, 39 + 4)
    group = TorchRLGroupEnv(BatchedParallelEnv(3, LEARNERS, max_target=12, **settings, **MANY))
    check_env_specs(group)
    played = group.rollout(9, break_when_any_done=False)
    assert played["maker", "observation"].shape == (3, 9, 2, 39 + 2)
    assert played["next", "state"].shape[-1] == group.envs.state_space.shape[0]


def test_stable_baselines_takes_them():
    pytest.importorskip("stable_baselines3")
    from kineticsim_env.adapters.sb3 import SB3VecEnv

    envs = SB3VecEnv("KineticSim/MarketMaking-v0", num_envs=MARKETS, engine="cpu", stagger=False, **SMALL, **OWN)
    plain = make(engine="cpu", **OWN)
    envs.seed(4)
    np.testing.assert_array_equal(envs.reset(), plain.reset(seed=4)[0])
    for action in draw((MARKETS, 4), 8):
        mine, theirs = envs.step(action), plain.step(action)
        np.testing.assert_array_equal(mine[0], theirs[0])
        np.testing.assert_array_equal(mine[1], theirs[1])
        for m in np.flatnonzero(mine[2]):
            np.testing.assert_array_equal(mine[3][m]["terminal_observation"], theirs[4]["final_obs"][m])


# On a GPU -------------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("mode", ["SAME_STEP", "NEXT_STEP"])
@pytest.mark.parametrize("num_envs", [1, 5, 3000])
def test_a_captured_step_plays_on(mode, num_envs):
    """With all functions; markets that end at different times, of a few, and of many that have a lane each."""
    settings = {"engine": "cuda", "output": "torch", "autoreset_mode": mode, "account_info": True, "num_envs": num_envs}
    captured, eager = make(copy=False, **settings, **OWN), make(**settings, **OWN)
    captured.reset(seed=5)
    eager.reset(seed=5)
    actions = torch.zeros(num_envs, 4, device="cuda")
    eager.step(actions)
    graph, result = capture_step(captured, actions)
    ends = 0
    for action in draw((num_envs, 4), 20):
        actions.copy_(torch.from_numpy(action))
        graph.replay()
        theirs = eager.step(actions)
        for one, two in zip(result[:4], theirs[:4], strict=True):
            assert torch.equal(one, two)
        for name, value in theirs[4].items():
            for one, two in (
                [(result[4][name], value)]
                if name != "account_info"
                else zip(result[4][name].values(), value.values(), strict=True)
            ):
                assert torch.equal(one.nan_to_num(), two.nan_to_num()), name
        ends += int((theirs[2] | theirs[3]).sum())
    assert ends > num_envs


@pytest.mark.gpu
def test_a_step_does_not_synchronise():
    envs = make(engine="cuda", output="torch", num_envs=64, account_info=True, **OWN)
    envs.reset(seed=1)
    actions = torch.zeros(64, 4, device="cuda")
    envs.step(actions)
    assert_steps_wait_for_nothing(envs, actions)


@pytest.mark.gpu
@pytest.mark.parametrize("place", ["reward", "features"])
def test_nan_on_a_gpu_raises_at_the_next_look(place):
    moody = Moody()
    envs = make(engine="cuda", output="torch", **{place: [moody] if place == "features" else moody})
    envs.reset(seed=2)
    moody.mood = "nan"
    envs.step(torch.ones(MARKETS, 4, device="cuda"))
    moody.mood = "good"
    envs.step(torch.ones(MARKETS, 4, device="cuda"))
    with pytest.raises(
        ks.MarketError, match="market 0: expected finite numbers, got a custom reward or feature that is not"
    ):
        envs.check_errors()
    envs.check_errors()


@pytest.mark.gpu
@pytest.mark.parametrize("mode", ["SAME_STEP", "NEXT_STEP"])
@pytest.mark.parametrize("task", ["MarketMaking", "Execution"])
def test_many_markets_have_the_cpus_bits(mode, task):
    """A lane each, blocks at their deadline by whole warps, and scenarios."""
    settings = {"num_envs": 20000, "output": "torch", "autoreset_mode": mode, "account_info": True, **SCENARIOS, **OWN}
    one, two = (make(task, engine=engine, **settings) for engine in ("cuda", "cpu"))
    assert torch.equal(one.reset(seed=5)[0].cpu(), two.reset(seed=5)[0])
    for action in torch.from_numpy(draw((20000, *two.single_action_space.shape), 9)):
        mine, theirs = one.step(action.cuda()), two.step(action)
        for a, b in zip(mine[1:4], theirs[1:4], strict=True):
            assert torch.equal(a.cpu(), b)
        assert torch.equal(mine[0].cpu(), theirs[0])
        for name, value in theirs[4]["account_info"].items():
            assert torch.equal(mine[4]["account_info"][name].cpu().nan_to_num(), value.nan_to_num()), name
