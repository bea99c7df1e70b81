"""What Gymnasium's registry makes: `EnvSpec.to_json` and back is the same environment; a limit is the horizon."""

import functools
import inspect
import json
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import torch
from env_helpers import assert_same
from gymnasium.envs import registration
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode
from thorough import covering

import kineticsim_env as ks
from kineticsim_env.envs import registered
from kineticsim_env.envs.registered import pack_arguments
from kineticsim_env.envs.scenarios import make_scenarios
from kineticsim_env.envs.single import ExecutionEnv, MarketMakingEnv

IDS = [f"KineticSim/{task}-v0" for task in ("MarketMaking", "Execution", "Trading")]
SMALL = {"preset": "trading", "engine": "numpy", "bank_size": 3, "bank_per_market": 2, "warmup": 3, "horizon": 6}
TRADING = ks.MarketConfig.preset("trading")
CLOCK = ks.MarketConfig.preset(
    "continuous", fee=-3, quote_latency=2, regimes=[{"noise_spread": 9}, {"walk_prob": 0.1}], regime_switch_prob=0.2
)
PER_MARKET = {"noise": np.float32([0.3, 0.2, 0.1]), "maker": [0.25, 0.35, 0.45], "tie": ["mid", "lowest", "mid"]}
ENSEMBLE = TRADING.replace(**PER_MARKET, noise_spread=torch.tensor([9, 3, 6]))
TABLE = TRADING.replace(fee=[0, 4, 9, 200], market_order_prob=np.array([0.1, 0.7, 1 / 3, 0.0]))
ARGUMENTS = {
    "a range": {"randomise": {"noise_spread": (8, 20)}, "num_scenarios": 5},
    "a range of fractions": {"randomise": {"cancel_prob": (0.1, 1 / 3), "noise": (0.2, 0.5)}, "num_scenarios": 5},
    "a range as JSON keeps it": {"randomise": {"noise_spread": {"low": 8, "high": 20}}, "num_scenarios": 5},
    "numbers of NumPy": {"randomise": {"noise_spread": (np.int32(8), np.int64(20))}, "num_scenarios": np.int64(5)},
    "values": {"randomise": {"fee": [0, 3, 9], "tie": ["mid", "lowest"]}, "num_scenarios": 5, "scenario_seed": 9},
    "two values": {"randomise": {"fee": {"values": [0, 9]}, "noise_spread": np.array([8, 20])}, "num_scenarios": 5},
    "values of NumPy": {"randomise": {"cancel_prob": np.float32([0.1, 0.3])}, "num_scenarios": 5},
    "values of torch": {"randomise": {"cancel_prob": {"values": torch.tensor([0.1, 0.3])}}, "num_scenarios": 5},
    "a table": {"randomise": TABLE},
    "a config": {"config": TRADING.replace(num_agents=33, noise_spread=5)},
    "a config of shares that were scaled": {"config": TRADING.replace(noise=0.45 + 4e-7)},
    "a config on the clock": {"config": CLOCK},
    "settings of other classes": {"device": torch.device("cpu"), "inventory_limit": np.int64(60)},
}
ALONE = {"a mode": {"autoreset_mode": AutoresetMode.NEXT_STEP, "output": "torch"}, "an ensemble": {"config": ENSEMBLE}}


def fitting(name, arguments):
    """The arguments, without the one that the task of an execution does not have."""
    unknown = {"inventory_limit"} if "Execution" in name else set()
    return {key: value for key, value in {**SMALL, **arguments}.items() if key not in unknown}


def through_json(spec):
    """A spec as text and back, where nothing was put that JSON would change."""
    text = spec.to_json()
    assert json.loads(text)["kwargs"] == spec.kwargs
    return EnvSpec.from_json(text)


def assert_same_draws(one, two, seed=5, steps=14):
    """Compare everything that two environments have, over some episodes."""
    one, two = one.unwrapped, two.unwrapped
    assert type(one) is type(two) and one.core.config == two.core.config and one.core.task == two.core.task
    assert one.core.live_task.scenarios == two.core.live_task.scenarios
    generator, markets = np.random.default_rng(seed), one.simulator.num_markets
    space = one.action_space
    for env in (one, two):
        env.reset(seed=seed)
    for t in range(steps):
        action = generator.uniform(-1, 1, space.shape).astype(np.float32)
        for env in (one, two):
            over = env.core.tensors["done"]
            if markets == 1 and bool(over.all()):
                env.reset()
            env.step(action)
        assert_same([one.core, two.core], f"step {t}")


@covering
@pytest.mark.parametrize("name", IDS)
@pytest.mark.parametrize("arguments", ARGUMENTS, ids=str)
def test_a_single_environment_survives_json(name, arguments):
    env = gym.make(name, **fitting(name, ARGUMENTS[arguments]))
    assert_same_draws(env, gym.make(through_json(env.spec)))


@covering
@pytest.mark.parametrize("name", IDS)
@pytest.mark.parametrize("arguments", ARGUMENTS | ALONE, ids=str)
def test_a_vector_environment_survives_json(name, arguments):
    given = fitting(name, (ARGUMENTS | ALONE)[arguments])
    envs = gym.make_vec(name, num_envs=3, **given)
    again = gym.make_vec(through_json(envs.spec))
    assert again.num_envs == 3 and again.autoreset_mode is envs.autoreset_mode and again.output == envs.output
    assert_same_draws(envs, again)
    assert through_json(again.spec) == through_json(envs.spec)


def test_a_spec_before_and_after_an_environment_is_made():
    """A spec of which nothing was made has what its user wrote; a tuple in it is refused after JSON, not misread."""
    spec = gym.spec(IDS[0])
    assert spec.kwargs == {} and MarketMakingEnv(**SMALL).spec is None
    mine = EnvSpec.from_json(spec.to_json())
    mine.kwargs = {**SMALL, "randomise": {"noise_spread": (8, 20)}, "num_scenarios": 5}
    made = gym.make(mine)
    assert mine.kwargs["randomise"] == {"noise_spread": (8, 20)}
    assert made.spec.kwargs["randomise"] == {"noise_spread": {"low": 8, "high": 20}}
    with pytest.raises(ValueError, match=r"expected {'low': 8, 'high': 20} and {'values': \[8, 20\]}, got \[8, 20\]"):
        gym.make(EnvSpec.from_json(mine.to_json()))
    mine.kwargs["config"] = TRADING.replace(num_agents=33)
    mine.kwargs["randomise"] = {"noise_spread": {"low": 8, "high": 20}}
    again = gym.make(EnvSpec.from_json(mine.to_json()))
    assert again.unwrapped.core.config.num_agents == 33
    assert 2 < len(np.unique(again.unwrapped.core.live_task.scenarios.noise_spread)) <= 5


@pytest.mark.parametrize("pair", [[8, 20], [0.1, 0.2], [np.int64(3), 4], range(3, 5)], ids=str)
def test_a_list_of_two_numbers_may_be_either_and_is_refused(pair):
    with pytest.raises(ValueError, match=r"randomise\['noise_spread'\]: expected .*got .*, a range or two values"):
        make_scenarios({"noise_spread": pair}, TRADING, 5, 0)


def test_both_spellings_draw_the_same():
    drawn = [
        make_scenarios({"noise_spread": span, "fee": values, "maker": shares}, TRADING, 50, 3)
        for span, values, shares in (
            ((8, 20), [1, 5, 7], (0.1, 0.3)),
            ({"low": 8, "high": 20}, {"values": [1, 5, 7]}, {"low": 0.1, "high": 0.3}),
            ({"high": 20, "low": 8}, {"values": (1, 5, 7)}, {"high": 0.3, "low": 0.1}),
            ((8, 20), {"values": np.array([1, 5, 7])}, (0.1, 0.3)),
            ((np.float32(8), np.int64(20)), np.array([1, 0, 5, 0, 7, 0])[::2], (np.float64(0.1), 0.3)),
            ((8, 20), torch.tensor([1, 5, 7]), (0.1, 0.3)),
            ((8, 20), {"values": torch.tensor([1.0, 0.0, 5.0, 0.0, 7.0, 0.0])[::2]}, (0.1, 0.3)),
        )
    ]
    assert all(table == drawn[0] for table in drawn[1:])
    assert {8, 20} < set(drawn[0].noise_spread.tolist())
    assert set(make_scenarios({"fee": {"values": [8, 20]}}, TRADING, 50, 3).fee.tolist()) == {8, 20}


@pytest.mark.parametrize(
    ("randomise", "error", "match"),
    [
        ({"fee": {"low": 3}}, ValueError, r"randomise\['fee'\]: expected \(low, high\), or a list.*got {'low': 3}"),
        ({"fee": {"low": 3, "high": 1}}, ValueError, r"randomise\['fee'\]: expected two whole.*got \(3, 1\)"),
        ({"fee": {"low": 1, "high": 3, "values": [1]}}, ValueError, r"randomise\['fee'\]: expected .*, got {'low'"),
        ({"fee": torch.tensor(3)}, ValueError, r"randomise\['fee'\]: expected .*, got tensor\(3\)"),
        ({"fee": torch.tensor([1, 2], device="meta")}, TypeError, r"randomise\['fee'\]: expected .*, got tensor"),
        ({"fee": {"values": 3}}, ValueError, r"randomise\['fee'\]: expected .*, got {'values': 3}"),
        ({"fee": {"values": []}}, ValueError, r"randomise\['fee'\]: expected .*, got {'values': \[\]}"),
        ({"fee": {"values": {"low": 1, "high": 2}}}, ValueError, r"randomise\['fee'\]: expected .*, got {'values'"),
        (
            {"tie": {"low": "lowest", "high": "mid"}},
            ValueError,
            r"randomise\['tie'\]: expected .*, got \('lowest', 'mid'\)",
        ),
        ({"scenarios": 3}, TypeError, r"randomise\['scenarios'\]: expected a mapping of fields, got 3"),
        ({"scenarios": {"spread": [1, 2]}}, TypeError, "unknown field 'spread'"),
        ({"scenarios": {}, "fee": (0, 1)}, ValueError, "randomise: expected .*, got the field 'scenarios'"),
    ],
)
def test_what_no_spelling_allows(randomise, error, match):
    with pytest.raises(error, match=match):
        MarketMakingEnv(**SMALL, randomise=randomise)


@pytest.mark.parametrize(
    ("config", "error", "match"),
    [
        ({"num_levels": 100}, ValueError, "num_levels: expected .*, got 100"),
        ({"levels": 64, 3: 4}, TypeError, "MarketConfig: expected one of .*, got the unknown field 3"),
        ([("num_levels", 64)], TypeError, "config: expected a MarketConfig, a dict of its fields or None, got list"),
    ],
)
def test_configs_of_fields(config, error, match):
    assert MarketMakingEnv(**SMALL, config={"num_levels": 64, "init_price": 32}).core.config.num_levels == 64
    with pytest.raises(error, match=match):
        MarketMakingEnv(**SMALL, config=config)


def test_arguments_of_a_kind_that_nobody_knows_stay():
    given = {"mine": print, "randomise": None, "deep": {"list": (1, [np.float64(2.5)])}}
    assert pack_arguments(given) == {"mine": print, "randomise": None, "deep": {"list": [1, [2.5]]}}


# A limit of steps -----------------------------------------------------------------------------------------------------


def episode(env):
    """Play an episode; return the last step, and how many there were."""
    env.reset(seed=3)
    for step in range(1, 1000):
        result = env.step(np.zeros(env.action_space.shape, np.float32))
        if result[2] or result[3]:
            return result, step
    raise AssertionError("no episode ended")


NO_HORIZON = {name: value for name, value in SMALL.items() if name != "horizon"} | {"engine": "cpu"}


class Locals(dict):
    """The locals of a frame as Python 3.13 gives them (PEP 667)."""

    def keys(self):
        return list(super().keys())


def test_a_limit_is_read_from_a_frame_whose_names_are_a_list(monkeypatch):
    held = Locals(max_episode_steps=None, env_spec=EnvSpec("Mine-v0", max_episode_steps=15), here=())
    code, around = SimpleNamespace(co_name="make"), {"__name__": "gymnasium.envs.registration"}
    frame = SimpleNamespace(f_locals=held, f_globals=around, f_code=code)
    monkeypatch.setattr(registered, "sys", SimpleNamespace(_getframe=lambda depth: frame))
    assert registered.limit_of_make(object()) == 15


@pytest.mark.parametrize("name", IDS)
@pytest.mark.parametrize("limit", [1, 20, 350])
def test_a_limit_of_make_is_the_horizon(name, limit):
    """As in `make_vec` and as `horizon` itself, to the bit; 300 and 100 are the defaults."""
    limited = gym.make(name, max_episode_steps=limit, **NO_HORIZON)
    plain = gym.make(name, horizon=limit, **NO_HORIZON)
    vector = gym.make_vec(name, num_envs=1, max_episode_steps=limit, stagger=False, **NO_HORIZON)
    assert {env.unwrapped.core.task.horizon for env in (limited, plain, vector)} == {limit}
    (one, steps), (two, wanted) = episode(limited), episode(plain)
    assert steps == wanted <= limit and (steps == limit or "Execution" in name)
    np.testing.assert_array_equal(one[0], two[0])
    assert one[1] == two[1] and one[2] == two[2] and one[4] == two[4]
    assert_same([limited.unwrapped.core, plain.unwrapped.core], "at the end")
    vector.reset(seed=3)
    for _ in range(steps):
        last = vector.step(np.zeros(vector.action_space.shape, np.float32))
    np.testing.assert_array_equal(last[4]["final_obs"][0], two[0])
    assert last[1][0] == np.float32(two[1]) and last[2][0] == two[2]


def test_a_block_is_forced_at_the_limit():
    hold = np.array([0, -1], np.float32)  # no order
    env = gym.make(IDS[1], max_episode_steps=20, block_qty=30, side="buy", **NO_HORIZON)
    env.reset(seed=1)
    for _ in range(20):
        _, _, terminated, _, infos = env.step(hold)
    assert terminated and infos["inventory"] == infos["bought"] == 30


@pytest.mark.parametrize("name", IDS)
def test_no_other_limit_cuts_a_horizon(name):
    env = gym.make(name, horizon=500, **NO_HORIZON)
    assert "TimeLimit" not in str(env) and env.spec.max_episode_steps == 500
    assert gym.make(name, horizon=7, max_episode_steps=-1, **NO_HORIZON).unwrapped.core.task.horizon == 7
    if "Execution" not in name:
        assert episode(env)[1] == 500


def test_a_limit_in_a_spec():
    """It comes back from JSON, whatever makes environments of a spec; it overrides the horizon."""
    env = gym.make(IDS[1], max_episode_steps=20, horizon=50, **NO_HORIZON)
    assert env.unwrapped.core.task.horizon == 20 and env.spec.max_episode_steps == 20
    spec = EnvSpec.from_json(env.spec.to_json())
    assert gym.make(spec).unwrapped.core.task.horizon == 20
    assert gym.make(spec, max_episode_steps=9).unwrapped.core.task.horizon == 9
    assert gym.make(spec, max_episode_steps=-1).unwrapped.core.task.horizon == 50
    assert gym.make_vec(spec, num_envs=2).core.task.horizon == 20
    settings = {"vectorization_mode": "sync", "max_episode_steps": 8, **NO_HORIZON}
    assert [one.unwrapped.core.task.horizon for one in gym.make_vec(IDS[1], num_envs=2, **settings).envs] == [8, 8]


@pytest.mark.parametrize("name", IDS)
@pytest.mark.parametrize("horizon", [100, 300, 500])
def test_a_spec_says_the_horizon(name, horizon):
    """However it was given, and again of what is made of it; nothing cuts from outside at another number."""
    for given in ({"horizon": horizon}, {"max_episode_steps": horizon}, {"horizon": 7, "max_episode_steps": horizon}):
        for env in (gym.make(name, **given, **NO_HORIZON), gym.make_vec(name, num_envs=2, **given, **NO_HORIZON)):
            make = gym.make if isinstance(env, gym.Env) else gym.make_vec
            again = make(through_json(env.spec))
            for made in (env, again):
                assert made.spec.max_episode_steps == made.unwrapped.core.task.horizon == horizon
            assert through_json(again.spec) == through_json(env.spec)
            assert ("TimeLimit" in str(env)) == (make is gym.make and "max_episode_steps" in given)
    env = gym.make(name, horizon=horizon, **NO_HORIZON)
    (one, steps), (two, wanted) = episode(env), episode(gym.make(through_json(env.spec)))
    assert steps == wanted <= horizon and (steps == horizon or "Execution" in name)
    np.testing.assert_array_equal(one[0], two[0])
    assert one[1:3] == two[1:3] and one[4] == two[4]
    assert two[3] == (one[3] or steps == horizon)  # TimeLimit says truncated in the last step that there can be, too


def test_a_spec_says_the_default_horizon():
    defaults = {name: gym.make(name, **NO_HORIZON) for name in IDS}
    assert [env.spec.max_episode_steps for env in defaults.values()] == [300, 100, 300]
    assert [env.unwrapped.core.task.horizon for env in defaults.values()] == [300, 100, 300]
    assert [gym.spec(name).max_episode_steps for name in IDS] == [None] * 3  # what is made next has its own


def test_where_episodes_have_no_one_length_a_spec_says_none():
    """A limit would be another environment: it overrides the horizon."""
    differing = {"horizon": [4, 6], "num_envs": 2, **NO_HORIZON}
    drawn = {"randomise": {"task.horizon": (4, 6)}, "num_scenarios": 5, **SMALL}
    at_events = {"decide": "fill", **SMALL, "preset": "continuous"}
    for make, given in ((gym.make_vec, differing), (gym.make, drawn), (gym.make_vec, drawn), (gym.make, at_events)):
        env = make(IDS[0], **given)
        assert env.spec.max_episode_steps is None
        assert_same_draws(env, make(through_json(env.spec)))
    kept = gym.make_vec(IDS[0], num_envs=2, **at_events, max_episode_steps=4)
    assert kept.unwrapped.core.task.horizon == 4
    assert gym.make_vec(through_json(kept.spec)).unwrapped.core.task.horizon == 4


@pytest.mark.parametrize("normalise", [False, True])
def test_time_aware_observations(normalise):
    env = gym.wrappers.TimeAwareObservation(gym.make(IDS[0], horizon=5, **NO_HORIZON), normalize_time=normalise)
    seen, _ = env.reset(seed=3)
    times, over = [seen[-1]], False
    while not over:
        seen, _, terminated, truncated, _ = env.step(np.zeros(4, np.float32))
        times.append(seen[-1])
        over = terminated or truncated
    assert seen.shape == env.observation_space.shape == (env.unwrapped.observation_space.shape[0] + 1,)
    np.testing.assert_allclose(times, np.arange(6) / (5 if normalise else 1), rtol=1e-6)


def test_a_horizon_beside_a_spec_of_another_is_refused():
    """A spec's limit overrides a horizon, so that it would be another than the one asked for."""
    for make in (gym.make, gym.make_vec):
        spec = make(IDS[0], horizon=20, **NO_HORIZON).spec
        with pytest.raises(ValueError, match=r"horizon: expected 20, the max_episode_steps of the spec, got 50; give "):
            make(spec, horizon=50)
        assert make(spec, horizon=20).unwrapped.core.task.horizon == 20
        assert make(spec, horizon=50, max_episode_steps=50).unwrapped.core.task.horizon == 50
        assert make(spec, max_episode_steps=50).spec.max_episode_steps == 50


def test_environments_that_make_does_not_make_itself():
    """A limit is taken from `make` by what it makes, subclasses included, and by nothing inside of that."""

    class Mine(ExecutionEnv):
        def __init__(self, **arguments):
            super().__init__(**arguments)

    def around(**arguments):
        return gym.Wrapper(ExecutionEnv(**arguments))

    limited = {"max_episode_steps": 12, **NO_HORIZON}
    assert gym.make(EnvSpec("Mine-v0", Mine), **limited).unwrapped.core.task.horizon == 12
    assert gym.make(EnvSpec("Around-v0", around), **limited).unwrapped.core.task.horizon == 100
    assert ExecutionEnv(**limited).core.task.horizon == 12
    assert gym.make(EnvSpec("Mine-v0", Mine, max_episode_steps=15), **NO_HORIZON).unwrapped.core.task.horizon == 15


def test_classes_of_users_are_made_in_many_ways():
    class Unusual(ExecutionEnv):
        def __init__(this, **arguments):
            super().__init__(**arguments)

    class Decorated(ExecutionEnv):
        def __init__(self, **arguments):
            def construct(*everything):
                ExecutionEnv.__init__(*everything, **arguments)

            construct(self)

    limited = {"max_episode_steps": 12, **NO_HORIZON}
    for kind in (Unusual, Decorated, functools.partial(ExecutionEnv)):
        assert gym.make(EnvSpec("Mine-v0", kind), **limited).unwrapped.core.task.horizon == 12
    together = gym.vector.SyncVectorEnv([ExecutionEnv] * 2)  # which calls the class itself, without a limit
    assert [env.core.task.horizon for env in together.envs] == [100, 100]


CHANGED_MAKES = {
    "the limit has another name": ("max_episode_steps", "most_steps"),
    "the spec has another name": ("env_spec", "spec_of_env"),
    "a function of its own makes": (
        "env = env_creator(**env_spec_kwargs)",
        "env = _call(env_creator, env_spec_kwargs)",
    ),
    "it is called otherwise": ("def make(", "def make_one("),
}


@pytest.mark.parametrize("name", CHANGED_MAKES, ids=str)
def test_a_make_that_hides_its_limit_is_an_error(name):
    """Never an environment of another horizon in silence: Gymnasium has no documented way to ask."""
    before, after = CHANGED_MAKES[name]
    source = inspect.getsource(registration.make)
    assert before in source
    namespace = vars(registration) | {"_call": eval("lambda creator, given: creator(**given)", vars(registration))}
    exec(source.replace(before, after), namespace)
    changed = namespace["make_one" if after == "def make_one(" else "make"]
    limit = {"most_steps" if after == "most_steps" else "max_episode_steps": 20}
    for given in (limit, {}):
        with pytest.raises(RuntimeError, match=r"gymnasium 1\..*max_episode_steps.*ExecutionEnv\(horizon=\.\.\.\)"):
            changed(IDS[1], **given, **NO_HORIZON)
    exec(source, namespace)
    assert namespace["make"](IDS[1], max_episode_steps=20, **NO_HORIZON).unwrapped.core.task.horizon == 20


@pytest.mark.parametrize("limit", [0, -2, 2.5, "20", True])
def test_bad_limits(limit):
    with pytest.raises((TypeError, ValueError), match=r"horizon: expected .*, got|max_episode_steps"):
        gym.make(IDS[0], max_episode_steps=limit, **NO_HORIZON)
