"""Public callables refuse what they do not allow with a TypeError or ValueError that names it: a line for each stray.

Every line once raised something else: KeyError, IndexError, AttributeError, torch's own errors, or messages of NumPy
and Python that do not say which argument is wrong. scripts/fuzz found them (kind `calls`).
"""

import decimal
import functools

import gymnasium as gym
import numpy as np
import pytest
import torch
from messages import mentions

import kineticsim_env as ks
from kineticsim_env import evaluation, policies, wrappers
from kineticsim_env.envs.vector import MarketMakingVectorEnv
from kineticsim_env.runtime.values import check_count, check_number, show
from kineticsim_env.statistics import Mean
from scripts.fuzz.surface import find_targets
from scripts.fuzz.values import WRONG, wrong_tensors
from scripts.fuzz.world import World

SMALL = {"preset": "trading", "engine": "numpy", "bank_size": 2, "warmup": 1, "horizon": 5}
MAKER, EXECUTOR, TRADER = ks.MarketMakingTask(), ks.ExecutionTask(), ks.TradingTask()
WORLD = World("numpy")
ARRAY, VOID, NAT, SPARSE, META, NESTED, CONJUGATE = (
    WRONG[name]() for name in ("np float [3, 4]", "np void", "NaT", "sparse", "meta", "nested", "conj")
)
SEEN = torch.zeros(3, 37)
ROW = torch.ones(3)


def opened(name):
    """Return what opens it once: a refused call leaves it as it was."""
    return lambda: WORLD[name]


torch_env, parallel, batched = map(opened, ("evaluation MarketMaking", "parallel", "batched of one role"))
simulator, arms, env_arms = map(opened, ("simulator", "counterfactual result", "env counterfactual result"))


def maker_env(**changes):
    return gym.make("KineticSim/MarketMaking-v0", **{**SMALL, **changes})


def maker_envs(**changes):
    return MarketMakingVectorEnv(2, **{**SMALL, **changes})


@functools.cache
def targets():
    return {target.name: target for target in find_targets(WORLD)}


def call(name, **wrong):
    """Call something public with valid arguments but for these."""
    return targets()[name].get(WORLD)(**{**targets()[name].valid(WORLD), **wrong})


searched, evaluated = functools.partial(call, "grid_search"), functools.partial(call, "format_table")
quoted, played = functools.partial(call, "quote_action"), functools.partial(call, "counterfactual")
statistics = functools.partial(call, "RunningMeanStd")


def spoilt(wrapper, name, value):
    wrapped = wrapper(torch_env())
    wrapped.load_state_dict({**wrapped.state_dict(), name: value})


CALLS = [
    # Configs: arrays, strange numbers, what cannot be hashed
    (lambda: ks.MarketConfig.preset({1}), ValueError, "preset: expected .*got {1}"),
    (lambda: ks.MarketConfig.preset(memoryview(b"x")), ValueError, "preset: expected .*, got <memory"),
    (lambda: ks.MarketConfig(tie=VOID), ValueError, "tie: .*got"),
    (
        lambda: ks.MarketConfig(population=ARRAY),
        TypeError,
        "population: expected one value for the whole ensemble, got one per market",
    ),
    (lambda: ks.MarketConfig(fee=META), TypeError, "fee: expected .*, got tensor"),
    (lambda: ks.MarketConfig(fee=NESTED), TypeError, "fee: .*got"),
    (lambda: ks.MarketConfig(noise=SPARSE), TypeError, "noise: .*got tensor"),
    (lambda: ks.MarketConfig(noise=CONJUGATE), TypeError, "noise: .*got tensor"),
    (lambda: ks.MarketConfig(fee=NAT), TypeError, "fee: expected .*, got np.timedelta64"),
    (lambda: ks.MarketConfig(fee=b"12"), TypeError, "fee: expected .*, got b'12'"),
    (lambda: ks.MarketConfig(fee=10**400), ValueError, "fee: .*got 1000"),
    (lambda: ks.MarketConfig().replace(walk_prob=10**400), ValueError, "walk_prob: expected .*, got 1000"),
    # Tasks
    (lambda: ks.MarketMakingTask(reward=VOID), ValueError, "reward: .*got"),
    (lambda: ks.TradingTask(horizon=10**400), ValueError, "horizon: expected .*, got 1000"),
    (
        lambda: ks.ManyLearnersTask(inventory_penalty=-(10**400)),
        ValueError,
        "inventory_penalty: expected .*, got -1000",
    ),
    (lambda: ks.ExecutionTask(max_offset=NAT), TypeError, "max_offset: expected .*, got np.timedelta64"),
    (lambda: MAKER.market_config(None), TypeError, "config: expected a MarketConfig, got None"),
    (lambda: EXECUTOR.market_config(len), TypeError, "config: expected .*, got <built-in function len>"),
    (lambda: MAKER.action_space(ARRAY), ValueError, "role: .*got"),
    (lambda: MAKER.observation_space({}), ValueError, "role: expected one of 'maker'.*got {}"),
    (lambda: ks.TradingTask(action_type="discrete").num_choices("x"), ValueError, "role: .*got 'x'"),
    # Simulators
    (lambda: ks.Simulator(slots=ARRAY), ValueError, "slots: .*got array"),
    (lambda: ks.Simulator(slots=np.array(1)), TypeError, "slots: expected .*, got array(1)"),
    (lambda: ks.Simulator(slots=NESTED), TypeError, "slots: .*got"),
    (lambda: ks.Simulator(slots=NAT), TypeError, "slots: expected .*, got np.timedelta64"),
    (lambda: ks.Simulator(num_markets=NAT), TypeError, "num_markets: expected .*, got np.timedelta64"),
    (lambda: simulator().run(1, record=torch.tensor(1.0)), TypeError, "record: expected .*, got tensor"),
    (lambda: simulator().run(1, record=[VOID]), ValueError, "record: .*got array"),
    (lambda: simulator().rollout(np.zeros((1, 3, 2, 4), np.int32), record=ARRAY), ValueError, "record: .*got array"),
    (
        lambda: simulator().set_book([[60, decimal.Decimal("sNaN")]], []),
        ValueError,
        "bids: .*got [[60, Decimal('sNaN')]]",
    ),
    (lambda: simulator().set_book([], [[10**400, 1]]), ValueError, "asks: .*got [[1000"),
    # Environments
    (lambda: maker_env(replace=ARRAY), ValueError, "replace: expected .*, got array"),
    (lambda: maker_envs(output=VOID), ValueError, "output: expected .*, got array"),
    (lambda: maker_envs(copy=ARRAY), TypeError, "copy: expected .*, got array"),
    (lambda: maker_envs(randomise={None: 1}), ValueError, "randomise: expected .*, got the field None"),
    (lambda: maker_envs(randomise={"fee": (0, NAT)}), ValueError, "randomise['fee']: expected .*, got"),
    (lambda: maker_envs(randomise={"noise": [10**400, 1]}), ValueError, "randomise['noise']: expected .*, got"),
    (
        lambda: maker_envs(randomise={"fee": (0, 9)}, scenario_seed=NAT),
        TypeError,
        "scenario_seed: expected .*, got np.timedelta64",
    ),
    (lambda: maker_envs().reset(options=7), TypeError, "options: expected None, or.*got 7"),
    (lambda: maker_envs().reset(options=ARRAY), TypeError, "options: expected .*, got array"),
    (lambda: maker_env().reset(options={1: 2, "a": 3}), ValueError, "options: expected .*, got the unknown key 'a'"),
    (lambda: ks.parallel_env({VOID.tobytes(): 1}, **SMALL), ValueError, "learners: expected .*, got the role b"),
    (
        lambda: ks.parallel_env({"trader": NAT}, **SMALL),
        ValueError,
        "learners['trader']: expected .*, got np.timedelta64",
    ),
    (lambda: ks.parallel_env({"trader": 10**400}, **SMALL), ValueError, "learners: expected .*, got 1000"),
    (lambda: ks.parallel_env(render_agent=ARRAY, **SMALL), ValueError, "render_agent: expected .*, got array"),
    (lambda: parallel().observation_space("maker_9"), ValueError, "agent: expected one of 'maker_0'.*got 'maker_9'"),
    (lambda: parallel().observation_space({1: None}), ValueError, "agent: expected .*, got {1: None}"),
    (lambda: parallel().action_space(SPARSE), ValueError, "agent: expected .*, got tensor"),
    (lambda: batched().state(ARRAY), TypeError, "final: expected .*, got array"),
    (lambda: batched().state(1), TypeError, "final: expected True or False, got 1"),
    # Counterfactuals
    (lambda: arms().mean_difference(b"mid2"), ValueError, "name: expected one of 'last_price'.*got b'mid2'"),
    (lambda: arms().variance_ratio([]), ValueError, "name: .*got []"),
    (lambda: env_arms().mean_difference(""), ValueError, "name: expected one of 'mid2'.*got ''"),
    (lambda: env_arms().mean_difference(ARRAY), ValueError, "name: expected .*, got array"),
    (lambda: played(decisions=ARRAY), TypeError, "decisions: expected .*, got array"),
    (lambda: played(progress=ARRAY), TypeError, "progress: .*got array"),
    (lambda: played(orders=[[1], [2, 3]]), ValueError, "orders: expected .*, got nested sequences"),
    (lambda: played(orders=NESTED), TypeError, "orders: expected .*, got torch.float32 nested"),
    (lambda: ks.block_impact(side={1}), ValueError, "side: expected one of 'buy', 'sell', got {1}"),
    (lambda: ks.block_impact(SPARSE), TypeError, "config: expected .*, got tensor"),
    (lambda: ks.block_impact(engine="numpy", progress=7), TypeError, "progress: expected True, False or None, got 7"),
    (lambda: ks.env_counterfactual(ROW, len), TypeError, "make: expected .*, got tensor"),
    (lambda: ks.env_counterfactual(torch_env, ARRAY), TypeError, "policy: expected .*, got array"),
    (lambda: ks.env_counterfactual(lambda: gym.make("CartPole-v1"), len), ValueError, "make: .*got <"),
    # Evaluation
    (lambda: evaluation.confidence_interval("x"), TypeError, "values: expected an array.*got 'x'"),
    (lambda: evaluation.confidence_interval(SPARSE), TypeError, "values: expected .*, got tensor"),
    (lambda: evaluation.confidence_interval([]), ValueError, "values: expected .*, got the shape [0]"),
    (lambda: evaluation.confidence_interval(np.float64(2)), ValueError, "values: expected .*, got the shape []"),
    (lambda: evaluation.evaluation_env(3, VOID), ValueError, "task: expected .*, got array"),
    (lambda: evaluation.evaluate(MAKER, torch_env()), TypeError, "policy: expected .*, got MarketMakingTask"),
    (
        lambda: evaluation.evaluate(policies.NoTrade, torch_env()),
        TypeError,
        "policy: expected .*got the class NoTrade",
    ),
    (lambda: evaluation.evaluate(len, ARRAY), ValueError, "envs: expected .*, got array"),
    (lambda: searched(make={}), TypeError, "make: .*got {}"),
    (lambda: searched(envs=NAT), ValueError, "envs: expected .*, got np.timedelta64"),
    (lambda: searched(grid=0.5), TypeError, "grid: expected a dict.*got 0.5"),
    (lambda: searched(grid={"qty": 1}), TypeError, "grid['qty']: expected .*, got 1"),
    (lambda: searched(grid={"qty": NESTED}), TypeError, "grid['qty']: expected .*, got"),
    (lambda: searched(grid={1: [2]}), TypeError, "grid: expected .*, got the key 1"),
    (lambda: searched(progress=ARRAY), TypeError, "progress: .*got array"),
    (lambda: evaluated(results=[None]), TypeError, "results: expected .*, got [None]"),
    (lambda: evaluated(results={"one": 1}), TypeError, "results['one']: expected an Evaluation, got 1"),
    (lambda: evaluated(notes=ARRAY), TypeError, "notes: expected .*, got array"),
    (lambda: evaluated(notes=5), TypeError, "notes: .*got 5"),
    (lambda: evaluated(task=b"x"), ValueError, "task: expected .*, got b'x'"),
    (lambda: evaluation.liquidate(2.0), TypeError, "simulator: expected a Simulator, got 2.0"),
    (lambda: evaluation.liquidate(simulator(), ARRAY), TypeError, "max_auctions: expected .*, got array"),
    (lambda: Mean(1.0, 0.1, 3).interval("x"), TypeError, "confidence: expected .*, got 'x'"),
    (lambda: Mean(1.0, 0.1, 3).interval(10**400), ValueError, "confidence: expected .*, got 1000"),
    # Wrappers
    (lambda: wrappers.NormalizeReward(ARRAY), TypeError, "env: expected .*, got array"),
    (lambda: wrappers.NormalizeReward(torch_env(), gamma=ARRAY), TypeError, "gamma: expected .*, got array"),
    (lambda: wrappers.NormalizeReward(torch_env(), epsilon="x"), TypeError, "epsilon: expected .*, got 'x'"),
    (lambda: wrappers.NormalizeReward(torch_env(), statistics=1), TypeError, "statistics: expected .*, got 1"),
    (
        lambda: wrappers.NormalizeReward(torch_env(), statistics=statistics()),
        ValueError,
        "statistics: expected .*, got those of [4]",
    ),
    (lambda: wrappers.NormalizeObservation(torch_env(), clip=1e308), ValueError, "clip: expected .*, got 1e+308"),
    (
        lambda: wrappers.NormalizeObservation(torch_env(), clip=2**200),
        ValueError,
        "clip: expected .*, got 1606938044258990",
    ),
    (lambda: wrappers.NormalizeObservation(torch_env()).normalize(VOID), TypeError, "observation: .*got ndarray"),
    (
        lambda: wrappers.NormalizeObservation(torch_env()).normalize(SEEN.T),
        ValueError,
        "observation: .*got torch.float32",
    ),
    (
        lambda: wrappers.RecordEpisodeStatistics(torch_env(), stats_key=np),
        TypeError,
        "stats_key: expected .*, got <module",
    ),
    (lambda: wrappers.RecordEpisodeStatistics(torch_env()).summary(ARRAY), TypeError, "clear: expected .*, got array"),
    (
        lambda: spoilt(wrappers.NormalizeReward, "discounted_return", 1.5),
        TypeError,
        "state['discounted_return']: .*got",
    ),
    (
        lambda: spoilt(wrappers.NormalizeReward, "discounted_return", ARRAY),
        TypeError,
        "state['discounted_return']: .*got",
    ),
    (lambda: spoilt(wrappers.NormalizeReward, "count", torch.zeros((), device="meta")), ValueError, "state['count']"),
    (
        lambda: spoilt(wrappers.NormalizeObservation, "var", NESTED),
        ValueError,
        "state['var']: expected .*, got torch.float32 nested",
    ),
    (lambda: statistics(shape=3), TypeError, "shape: expected a tuple.*got 3"),
    (lambda: statistics(shape=(-1,)), ValueError, "shape: .*got -1"),
    (lambda: statistics(shape=(2**30, 2**30)), ValueError, "shape: .*got 1152921504606846976"),
    (lambda: statistics(shape=(0, 2**30, 2**30)), ValueError, "shape: .*got 1152921504606846976"),
    (lambda: statistics(device="x"), ValueError, "device: expected .*, got 'x'"),
    (lambda: statistics(device=2**64), ValueError, "device: expected .*, got 18446744073709551616"),
    (lambda: statistics(epsilon=1j), TypeError, "epsilon: expected .*, got 1j"),
    (lambda: statistics(epsilon=10**400), ValueError, "epsilon: expected .*, got 1000"),
    (lambda: statistics().update(1), TypeError, "rows: .*got int"),
    (lambda: statistics().update(torch.zeros(3, 5)), ValueError, "rows: expected .*, got torch.float32 [3, 5]"),
    (lambda: statistics().update(torch.zeros(0, 4)), ValueError, "rows: expected .*, got torch.float32 [0, 4]"),
    (
        lambda: statistics().update(torch.zeros(3, 4).to_sparse()),
        TypeError,
        "rows: expected .*, got torch.float32 [3, 4] on cpu, torch.spa",
    ),
    (lambda: statistics().update(torch.zeros(3, 4), np.ones(3, bool)), TypeError, "mask: expected .*, got ndarray"),
    (
        lambda: statistics().update(torch.zeros(3, 4), torch.ones(2, dtype=torch.bool)),
        ValueError,
        "mask: expected .*, got torch.bool",
    ),
    # Policies: tasks and parameters
    (lambda: policies.NoTrade(None), TypeError, "task: expected a task.*got None"),
    (lambda: policies.AvellanedaStoikov(EXECUTOR), TypeError, "task: expected .*, got ExecutionTask("),
    (lambda: policies.TimeWeighted(TRADER), TypeError, "expected an ExecutionTask or ManyLearnersTask"),
    (
        lambda: policies.FixedSpread(MAKER, half_spread="x"),
        TypeError,
        "half_spread: expected a finite.*got 'x'",
    ),
    (lambda: policies.FixedSpread(MAKER, qty=ARRAY), TypeError, "qty: expected .*, got array"),
    (lambda: policies.AvellanedaStoikov(MAKER, kappa=0), ValueError, "kappa: .*got 0"),
    (lambda: policies.AvellanedaStoikov(MAKER, stationary=7), TypeError, "stationary: expected .*, got 7"),
    (
        lambda: policies.GueantLehalleFernandezTapia(MAKER, kappa=1e-300, arrivals=1e-300),
        ValueError,
        "gamma: expected .*, got gamma",
    ),
    (lambda: policies.AlmgrenChriss(EXECUTOR, eta=10**400), ValueError, "eta: .*got 1000"),
    (lambda: policies.AlmgrenChriss(EXECUTOR, risk=1e30, sigma=1e30, eta=5e-324), ValueError, "eta: .*got risk"),
    (lambda: policies.AlmgrenChriss(EXECUTOR, sigma="cuda"), TypeError, "sigma: expected .*, got 'cuda'"),
    (lambda: policies.VolumeWeighted(EXECUTOR, rate=1j), TypeError, "rate: .*got 1j"),
    (lambda: policies.VolumeWeighted(EXECUTOR, urgent=0.5), TypeError, "urgent: expected .*, got 0.5"),
    (lambda: policies.MomentumTrader(TRADER, decay=ARRAY), TypeError, "decay: expected .*, got array"),
    (lambda: policies.BuyAndHold(TRADER, position=NAT), TypeError, "position: expected .*, got np.timedelta64"),
    (lambda: policies.attackers.PumpAndDump(MAKER, period=0), ValueError, "period: .*got 0"),
    (
        lambda: policies.attackers.TraderPriceWall(TRADER, distance=1e308),
        ValueError,
        "distance: expected .*, got 1e+308",
    ),
    (lambda: policies.RandomQuotes(MAKER, seed="x"), TypeError, "seed: expected a whole number.*got 'x'"),
    (lambda: policies.RandomTrader(TRADER, seed=10**400), ValueError, "seed: expected .*, got 1000"),
    (lambda: policies.Discretised(None, MAKER), TypeError, "policy: expected .*, got None"),
    (lambda: policies.Discretised(len, None), TypeError, "task: expected .*, got None"),
    (lambda: policies.Discretised(len, MAKER, {}), ValueError, "role: expected one of 'maker'.*got {}"),
    (
        lambda: policies.Discretised(lambda seen: seen, MAKER)(SEEN),
        ValueError,
        "policy: expected .*, got torch.float32 [3, 37]",
    ),
    # What reads and writes actions
    (lambda: policies.inventory_of(ROW, SEEN), TypeError, "task: expected .*, got tensor"),
    (lambda: policies.inventory_of(ks.MarketConfig(), SEEN), TypeError, "task: expected .*, got MarketConfig"),
    (lambda: policies.inventory_of(MAKER, ROW), ValueError, "observation: expected .*, got torch.float32 [3]"),
    (lambda: quoted(task=[]), TypeError, "task: .*got []"),
    (lambda: quoted(bid_offset=ARRAY), TypeError, "bid_offset: expected .*, got ndarray"),
    (lambda: quoted(ask_qty=torch.ones(3, 1)), ValueError, "ask_qty: expected .*, got torch.float32 [3, 1]"),
    (lambda: policies.TimeWeighted(EXECUTOR).share_left(5), TypeError, "left: .*got int"),
    (lambda: policies.AlmgrenChriss(EXECUTOR).share_left(SPARSE), TypeError, "left: expected .*, got torch.float32"),
    (
        lambda: policies.attackers.WashTrade(MAKER).elapsed(NESTED),
        TypeError,
        "observation: expected .*, got torch.float32 nested",
    ),
    (lambda: policies.MeanReversionTrader(TRADER).signal(ARRAY), TypeError, "observation: .*got ndarray"),
]


@pytest.mark.parametrize(("call", "error", "said"), CALLS, ids=[f"{i}: {row[2]}" for i, row in enumerate(CALLS)])
def test_wrong_calls(call, error, said):
    with pytest.raises(error) as refused:
        call()
    assert mentions(str(refused.value), said)
    assert "expected" in str(refused.value)


POLICIES = [
    kind
    for module in (policies, policies.attackers)
    for name in module.__all__
    if isinstance(kind := getattr(module, name), type)
]
POLICIES = [kind for kind in POLICIES if kind not in (policies.Policy, policies.Discretised)]
ANY_TASK = ks.ManyLearnersTask()  # with the settings of every role
FINE = {"half the rows", "twice the rows", "no rows", "as torch.float64"}
REFUSED = "observation: expected a tensor float32.*got"


@pytest.mark.parametrize("kind", POLICIES)
def test_wrong_observations(kind):
    policy = kind(ANY_TASK)
    assert policy(SEEN).shape[0] == policy(SEEN[:0]).shape[0] + 3
    for label, make in (WRONG | wrong_tensors(SEEN)).items():
        if label not in FINE:
            observation = make()
            with pytest.raises((TypeError, ValueError), match=REFUSED) as refused:
                policy(observation)
                pytest.fail(label)
            assert (refused.type is ValueError) == has_numbers(observation), label
    for narrow in (ROW, SEEN[0], SEEN[:, :35]):
        with pytest.raises(ValueError, match=REFUSED):
            policy(narrow)


def has_numbers(value):
    """Whether the shape alone is wrong."""
    floats = isinstance(value, torch.Tensor) and value.dtype in (torch.float32, torch.float64)
    return floats and value.layout == torch.strided and value.device.type == "cpu" and not value.is_nested


@pytest.mark.parametrize(
    ("module", "class_name"), [("skrl", "SkrlEnv"), ("sb3", "SB3VecEnv"), ("torchrl", "TorchRLEnv")]
)
def test_wrong_environments_and_seeds_of_adapters(module, class_name):
    adapters = pytest.importorskip(f"kineticsim_env.adapters.{module}")
    make = functools.partial(getattr(adapters, class_name), num_envs=3, **SMALL)
    with pytest.raises(TypeError, match="env: .*got ndarray"):
        make(ARRAY)
    for seed in ("x", 1.5, 2**63):
        with pytest.raises((TypeError, ValueError), match="seed: .*got"):
            if module == "skrl":
                make("KineticSim/MarketMaking-v0", seed=seed)
            else:
                env = make("KineticSim/MarketMaking-v0")
                env.seed(seed) if module == "sb3" else env.set_seed(seed)


@pytest.mark.parametrize(
    ("actions", "error", "said"),
    [
        (ARRAY, TypeError, "actions: .*got ndarray"),
        (torch.zeros(3, 4).to_sparse(), TypeError, "actions: .*got torch.float32"),
        (torch.zeros(3), ValueError, "actions: .*got torch.float32 [3]"),
        (torch.zeros(2, 4), ValueError, "actions: .*got torch.float32 [2, 4]"),
    ],
)
def test_wrong_actions_of_skrl(actions, error, said):
    skrl = pytest.importorskip("kineticsim_env.adapters.skrl")
    env = skrl.SkrlEnv("KineticSim/MarketMaking-v0", num_envs=3, **SMALL)
    env.reset()
    with pytest.raises(error) as refused:
        env.step(actions)
    assert mentions(str(refused.value), said)


@pytest.mark.parametrize(
    ("actions", "error", "said"),
    [
        ([[1], [2, 3]], TypeError, "actions: .*got [[1], [2, 3]]"),
        ({}, ValueError, "actions: .*got []"),
        ({"maker_0": torch.zeros(3, 4), "odd": 1}, ValueError, "actions: .*got ['maker_0', 'odd']"),
        ({"maker_0": torch.zeros(3, 4), "maker_1": ARRAY}, TypeError, "actions['maker_1']: .*got ndarray"),
        ({"maker_0": torch.zeros(3, 4), "maker_1": torch.zeros(2, 4)}, ValueError, "actions['maker_1']: .*got 2 rows"),
        ({"maker_0": torch.zeros(3, 4), "maker_1": META}, TypeError, "actions['maker_1']: .*got torch.float32"),
    ],
)
def test_wrong_actions_of_many_learners_of_skrl(actions, error, said):
    skrl = pytest.importorskip("kineticsim_env.adapters.skrl")
    env = skrl.SkrlMultiEnv(batched())
    env.reset()
    with pytest.raises(error) as refused:
        env.step(actions)
    assert mentions(str(refused.value), said)


@pytest.mark.parametrize("actions", [ARRAY, None, np.zeros((5, 4), np.float32), [[1], [2, 3]]], ids=str)
def test_wrong_actions_of_groups_of_sb3(actions):
    sb3 = pytest.importorskip("kineticsim_env.adapters.sb3")
    env = sb3.SB3GroupVecEnv(batched())
    env.reset()
    with pytest.raises((TypeError, ValueError), match="actions: expected float32 \\[6, 4\\].*got"):
        env.step(actions)


def test_what_a_value_is_called():
    """Messages are one line and not long, whatever was handed over."""

    class Unspeakable:
        def __repr__(self):
            raise RuntimeError("no")

    assert show(Unspeakable()) == "a Unspeakable"
    assert show(np.zeros((2, 2))) == "array([[0., 0.], [0., 0.]])"
    assert show(10**5000) == "a int"  # Python does not write it
    assert len(show("x" * 10_000)) < 600
    with pytest.raises(ValueError, match="n: expected 0 to 2\\^31 - 1, got -1"):
        check_count("n", -1, 0)
    with pytest.raises(ValueError, match="n: expected -2\\^63 to 4, got 5"):
        check_count("n", 5, -(2**63), 4)
    with pytest.raises(ValueError, match="x: expected a finite number above 0, up to 1, got 0$"):
        check_number("x", 0, 0.0, 1.0, above=True)
    assert type(check_number("x", np.float32(0.5))) is float and type(check_number("x", np.int8(3))) is int
    large = policies.FixedSpread(MAKER, half_spread=2**64, qty=10**20)(SEEN)  # torch takes no ints like these
    assert large.tolist() == [[1.0] * 4] * 3
    assert statistics(epsilon=2**64).count == 2.0**64
