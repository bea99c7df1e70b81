"""Who sees the fundamental price: the role "fundamental", and every learner with `see_fundamental=True`."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from env_helpers import make_cores, squash
from gymnasium.utils.env_checker import check_env
from pettingzoo.test import parallel_api_test

import kineticsim_env as ks
from kineticsim_env import policies
from kineticsim_env.engines.numpy.observations import EXTRAS as OF_THE_ORACLE
from kineticsim_env.evaluation import evaluate, evaluation_env
from kineticsim_env.policies.informed import OF_ROLE
from kineticsim_env.runtime import layout
from kineticsim_env.tasks import ManyLearnersTask
from kineticsim_env.tasks.base import EXTRAS, MARKET_FEATURES, MAY_DIFFER, ROLES

TASKS = ("MarketMaking", "Execution", "Trading")
JUMPY = ks.MarketConfig.preset("trading", walk_prob=0.3, jump_prob=0.2, jump_size=9)
MECHANISMS = {
    "call": JUMPY,
    "continuous": JUMPY.replace(arrivals="clock", mechanism="continuous"),
}


def make_vec(task="MarketMaking", markets=6, config=JUMPY, **kwargs):
    kwargs = {"engine": "cpu", "output": "torch", "horizon": 5, "bank_size": 4, "see_fundamental": True} | kwargs
    return gym.make_vec(f"KineticSim/{task}-v0", num_envs=markets, config=config, **kwargs)


def gap2(simulator):
    """Twice the fundamental price less the mid."""
    return 2 * simulator.fundamental_price.numpy() - simulator.mid2.numpy()


def test_all_that_is_extra_is_known_everywhere():
    assert list(EXTRAS) == list(layout.ENUMS["Extra"]) and layout.CONSTANTS["kExtras"] == len(EXTRAS)
    of_settings = [layout.ENUMS["Extra"][name] for name in MAY_DIFFER]
    assert [*OF_THE_ORACLE, *of_settings] == list(layout.ENUMS["Extra"].values())


@pytest.mark.parametrize(
    "wrong", [1, "fundamental", ("value",), ("horizon", "fundamental"), ("horizon", "horizon"), [[1]]]
)
def test_columns_that_there_are_not(wrong):
    with pytest.raises((TypeError, ValueError), match="^extras: expected .* horizon|^extras: expected .*'horizon'"):
        ks.tasks.MarketMakingTask().observation_space("maker", extras=wrong)


@pytest.mark.parametrize("engine", ["cpu", "numpy"])
def test_known_answer(engine):
    """A cold book around 64 and a fundamental price of 70: 12 half ticks above the mid, 12 / (12 + 16)."""
    config = ks.MarketConfig(
        num_levels=128, init_price=64, fundamental_price=70, fundamental=0.1, noise=0.9, momentum=0.0, maker=0.0
    )
    learners = {"trader": 1, "fundamental": 1}
    env = ks.parallel_env(learners, config=config, engine=engine, bank_size=0, see_fundamental=True)
    seen, _ = env.reset(seed=0)
    assert {agent: row.shape for agent, row in seen.items()} == {"trader_0": (38,), "fundamental_0": (38,)}
    assert seen["trader_0"][37] == seen["fundamental_0"][37] == seen["fundamental_0"][36] == np.float32(12 / 28)
    assert seen["trader_0"][36] == 0.0


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("mode", ["same_step", "next_step", "disabled"])
def test_it_is_the_price_of_the_last_beat(task, mechanism, mode):
    """Before any reset too; the fundamental price and the mid are read off the markets."""
    envs = make_vec(task, config=MECHANISMS[mechanism], autoreset_mode=mode, stagger=False, account_info=True)
    plain = make_vec(task, config=MECHANISMS[mechanism], autoreset_mode=mode, stagger=False, see_fundamental=False)
    row = 37 if mechanism == "call" else 39
    assert envs.single_observation_space.shape == (row + 1,)
    seen, _ = envs.reset(seed=3)
    same, _ = plain.reset(seed=3)
    built_in = same.shape[1]
    actions, jumps = torch.zeros(envs.action_space.shape), 0
    for t in range(8 if mode != "disabled" else 5):
        np.testing.assert_array_equal(seen[:, row], squash(gap2(envs.simulator), 16), err_msg=f"step {t}")
        np.testing.assert_array_equal(seen[:, :built_in], same)
        assert envs.observation_space.contains(seen.numpy())
        before = envs.simulator.fundamental_price.clone()
        seen, _, _, _, infos = envs.step(actions)
        same = plain.step(actions)[0]
        jumps += int(((envs.simulator.fundamental_price - before).abs() > 5).sum())
        if mode == "same_step":
            known = infos["account_info"]
            expected = squash(2 * known["fundamental"].numpy() - 2 * known["mid"].numpy(), 16)
            np.testing.assert_array_equal(infos["final_obs"][:, row], expected)
    assert jumps > 0


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_fundamental_learner_takes_the_place_of_one_that_is_informed(mechanism):
    config = MECHANISMS[mechanism]
    envs = ks.BatchedParallelEnv(4, {"fundamental": 1, "maker": 1}, config=config, engine="cpu", horizon=6)
    whole = ks.Simulator(config, 1, engine="cpu").rows["num_fundamental"][0]
    assert envs.simulator.rows["num_fundamental"][0] == whole - 1
    assert envs.single_observation_spaces["fundamental"].shape == ((37,) if mechanism == "call" else (39,))
    assert envs.single_action_spaces["fundamental"].shape == (2,)
    seen, _ = envs.reset(seed=1)
    for _ in range(8):
        np.testing.assert_array_equal(seen["fundamental"][:, 0, OF_ROLE], squash(gap2(envs.simulator), 16))
        seen, *_ = envs.step({role: torch.zeros(4, 1, size) for role, size in (("fundamental", 2), ("maker", 4))})


@pytest.mark.parametrize("action_type", ["continuous", "discrete"])
def test_it_acts_and_is_paid_as_a_trader(action_type):
    """In the same market, with nobody replaced, the two roles get the same of the same actions."""
    task = ManyLearnersTask(horizon=9, bank_size=4, action_type=action_type)
    cores = [make_cores((JUMPY, 5, task, [role]), {"slots": [None]}, ("cpu",))[0] for role in ("trader", "fundamental")]
    generator = np.random.default_rng(0)
    for core in cores:
        core.reset(5)
    for _ in range(12):
        if action_type == "discrete":
            given = {"choices": torch.from_numpy(generator.integers(0, 15, (5, 1)))}
        else:
            given = {"actions": torch.from_numpy(generator.uniform(-1, 1, (5, 1, 2)).astype(np.float32))}
        for core in cores:
            core.step(**given)
        one, two = (core.tensors for core in cores)
        assert torch.equal(one["reward"], two["reward"]) and torch.equal(cores[0].fills, cores[1].fills)
        assert torch.equal(one["observation"][..., :36], two["observation"][..., :36])
    assert int(cores[0].simulator.tensors["volume"].sum()) > 0 and bool(cores[0].simulator.inventory.any())


@pytest.mark.parametrize("task", TASKS)
def test_gymnasiums_checks(task):
    env = gym.make(f"KineticSim/{task}-v0", see_fundamental=True, bank_size=4, engine="cpu", horizon=20)
    check_env(env.unwrapped)
    again = gym.make(gym.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    assert again.observation_space == env.observation_space and env.observation_space.shape == (40,)


def test_pettingzoos_checks():
    learners = {"fundamental": 1, "maker": 1, "executor": 1}
    env = ks.parallel_env(learners, engine="cpu", bank_size=4, horizon=9, see_fundamental=True)
    parallel_api_test(env, 40)
    env.reset(seed=0)
    assert env.state_space.contains(env.state()) and env.state().shape == (MARKET_FEATURES + 3 * 10,)


def test_own_features_clones_and_states():
    """A user's features come behind it; a state goes only to an environment that has the column, too."""
    features = [lambda after: after.fundamental - after.mid]
    envs = make_vec(features=features)
    envs.reset(seed=0)
    for _ in range(7):
        seen, *_ = envs.step(torch.zeros(6, 4))
    assert seen.shape == (6, 39)
    np.testing.assert_array_equal(seen[:, 37], squash(2 * seen[:, 38], 16))
    envs, plain = make_vec(), make_vec(see_fundamental=False)
    envs.reset(seed=0), plain.reset(seed=0)
    clone = envs.clone()
    saved = envs.state_dict()
    after = envs.step(torch.zeros(6, 4))[0]
    assert torch.equal(clone.step(torch.zeros(6, 4))[0], after)
    envs.load_state_dict(saved)
    assert torch.equal(envs.step(torch.zeros(6, 4))[0], after)
    for state, to in ((saved, plain), (plain.state_dict(), envs)):
        with pytest.raises(ValueError, match="extras"):
            to.load_state_dict(state)
    with pytest.raises(TypeError, match="see_fundamental: expected .*, got 1"):
        make_vec(see_fundamental=1)


# Policies -------------------------------------------------------------------------------------------------------------


def observation(gap, inventory=0, columns=38):
    """One row that sees the fundamental price `gap` ticks above the mid, holding so much of a limit of 40."""
    row = torch.zeros(1, columns)
    row[0, 30] = inventory / 40
    row[0, -1] = float(squash(2 * gap, 16))
    return row


def test_an_informed_maker_quotes_on_the_right_side_of_the_fundamental():
    maker = policies.InformedMaker(ks.tasks.MarketMakingTask(), half_spread=1.0, margin=2.0)
    for gap, offsets in ((0, (2, 2)), (3, (1, 5)), (-3.5, (5.5, 1)), (1, (1, 3))):
        action = maker(observation(gap))[0]
        np.testing.assert_allclose((action[:2] + 1) * 5, offsets, atol=1e-5)
        assert action[2:].tolist() == [1.0, 1.0]
    assert maker(observation(9))[0, 2:].tolist() == [1.0, -1.0]  # an ask 11 ticks off is out of reach


def test_an_informed_trader_goes_where_the_fundamental_is():
    trader = policies.InformedTrader(ks.tasks.TradingTask(), threshold=2.0, position=5, ticks=4.0)
    for gap, held, units, ticks in ((3, 0, 5, 1), (-20, 0, -5, 4), (2, 0, 0, 4), (1, 3, 0, 4), (-1, 3, -3, 4)):
        np.testing.assert_allclose(trader(observation(gap, held))[0], (units / 8, ticks / 10), atol=1e-5)
    with pytest.raises(ValueError, match="expected more columns than place, 36, got 36"):
        policies.InformedTrader(ks.tasks.TradingTask(), place=OF_ROLE)(torch.zeros(2, 36))


def test_an_informed_executor_waits_for_a_good_price():
    """100 units, a tenth of them left per row: by the gap on its own side, and by the time that is left."""
    task = ks.tasks.ExecutionTask()
    executor = policies.InformedExecutor(task, threshold=2.0, ticks=3.0, waits=-4.0, urgent=2)
    gaps = torch.tensor([5.0, 5.0, -5.0, 2.0, 0.0])  # fundamental less mid, ticks
    rows = torch.zeros(5, 38)
    rows[:, 33] = torch.tensor([1.0, -1.0, -1.0, 1.0, 1.0])  # the second sells, at a fundamental above the mid
    rows[:, 30] = 0.04 * rows[:, 33]
    rows[:, 32] = torch.tensor([0.5, 0.5, 0.5, 0.5, 0.02])  # the last has two decisions left
    rows[:, -1] = 2 * gaps / (2 * gaps.abs() + 16)
    action = executor(rows)
    assert (action[:, 0] * task.max_offset).tolist() == pytest.approx([3, -4, 3, -4, 3])
    assert ((action[:, 1] + 1) / 2 * task.max_qty).tolist() == pytest.approx([4] * 5)


def test_to_see_it_is_worth_money():
    """Of 64 markets, on the same seeds: who sees the fundamental price earns more than who follows the mid's moves."""

    def earned(kind, policy, **kwargs):
        envs = evaluation_env(64, kind, config=JUMPY, engine="cpu", horizon=100, bank_size=8, **kwargs)
        return evaluate(policy(envs.core.task), envs, 1)

    for kind, informed, others in (
        ("Trading", policies.InformedTrader, (policies.MomentumTrader, policies.MeanReversionTrader, policies.Hold)),
        ("MarketMaking", policies.InformedMaker, (policies.AvellanedaStoikov, policies.FixedSpread)),
    ):
        best = earned(kind, informed, see_fundamental=True)
        for other in others:
            assert best.pnl.mean() > earned(kind, other).pnl.mean()


def test_a_scripted_fundamental_learner_earns_more_than_a_trader_beside_it():
    envs = ks.BatchedParallelEnv(
        64, {"fundamental": 1, "trader": 1}, config=JUMPY, engine="cpu", horizon=100, bank_size=8, stagger=False
    )
    informed = policies.InformedTrader(envs.core.task, place=OF_ROLE)
    blind = policies.MomentumTrader(envs.core.task)
    seen, _ = envs.reset(seed=9)
    for _ in range(99):
        play = {"fundamental": informed(seen["fundamental"][:, 0]), "trader": blind(seen["trader"][:, 0])}
        seen, *_ = envs.step({role: action[:, None] for role, action in play.items()})
    simulator = envs.simulator
    worth = (simulator.cash + simulator.inventory * simulator.fundamental_price[:, None]).double().mean(0)
    assert worth[0] > max(0.0, float(worth[1]))


def test_every_role_has_it():
    for role in ROLES:
        env = ks.parallel_env({role: 1}, engine="cpu", bank_size=2, horizon=4, see_fundamental=True)
        seen, _ = env.reset(seed=1)
        assert seen[f"{role}_0"][-1] == squash(gap2(env.simulator), 16)[0]
