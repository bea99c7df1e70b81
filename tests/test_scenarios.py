"""Domain randomisation: the table, the row that an episode draws, its parameters and warm starts, and another table."""

import functools
import json

import numpy as np
import pytest
import torch
from build_helpers import device_like
from plain_rules import word

import kineticsim_env as ks
from kineticsim_env.engines import base
from kineticsim_env.engines.cuda import CudaEngine
from kineticsim_env.engines.parameters import class_counts, parameter_rows
from kineticsim_env.envs.scenarios import make_scenarios
from kineticsim_env.envs.single import MarketMakingEnv
from kineticsim_env.envs.vector import ExecutionVectorEnv, MarketMakingVectorEnv, TradingVectorEnv
from kineticsim_env.evaluation import liquidate
from kineticsim_env.runtime import layout
from kineticsim_env.runtime.saved_states import pack

SMALL = {"preset": "trading", "engine": "cpu", "horizon": 6, "bank_size": 16, "warmup": 10, "bank_per_market": 3}
RANDOMISE = {
    "noise_spread": (6, 20),
    "fee": [0, 100, 2500],
    "market_order_prob": (0.2, 0.6),
    "max_order_qty": {"values": [1, 9]},
}
TRADING = ks.MarketConfig.preset("trading")
both_engines = pytest.mark.parametrize("engine", ["cpu", "numpy"])


def make(num_envs=8, kind=TradingVectorEnv, **kwargs):
    return kind(num_envs, **{**SMALL, "stagger": False, "randomise": RANDOMISE, "num_scenarios": 5, **kwargs})


def random_actions(steps, num_envs=8, size=2, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (steps, num_envs, size)).astype(np.float32)


def drawn(seed, episode, index, rows):
    """The choice of `rows` by word `index` of an episode at t = 0, as docs/environment.md says."""
    return (word(seed, episode, 0, index) >> 32) * rows >> 32


def parameters(envs):
    """The parameters of every market by name, int [M] each."""
    return base.unpack(envs.core._engine.parameters().numpy())


# The table ------------------------------------------------------------------------------------------------------------


def test_the_table_is_drawn_as_asked_for():
    table = make_scenarios({**RANDOMISE, "tie": ["lowest", "mid"]}, TRADING, 2000, 3)
    assert set(table.per_market) == {*RANDOMISE, "tie"}
    assert set(table.noise_spread.tolist()) == set(range(6, 21))  # both ends included
    assert set(table.fee.tolist()) == {0, 100, 2500} and set(table.tie.tolist()) == {"lowest", "mid"}
    assert 0.2 <= table.market_order_prob.min() < 0.21 and 0.59 < table.market_order_prob.max() <= 0.6
    counts = np.bincount(table.noise_spread)[6:]
    assert 85 < counts.min() and counts.max() < 185  # 133 expected, standard deviation 11
    again, other = (make_scenarios(RANDOMISE, TRADING, 2000, seed) for seed in (3, 4))
    np.testing.assert_array_equal(again.noise_spread, table.noise_spread)
    assert (other.noise_spread != table.noise_spread).any()
    assert table.cancel_prob == TRADING.cancel_prob


def test_shares_are_scaled_to_one():
    table = make_scenarios({"noise": (0.0, 1.0), "maker": {"values": [0.0, 3.0]}}, TRADING, 100, 0)
    shares = np.stack([table.noise, table.momentum, table.maker, table.fundamental])
    np.testing.assert_allclose(shares.sum(0), 1.0, atol=1e-12)
    np.testing.assert_allclose(shares[1] / shares[3], 0.5)  # 0.15 and 0.3 as before
    assert shares.min() == 0 and shares[2].max() > 0.6


def test_a_table_of_ones_own():
    own = ks.MarketConfig.preset("trading", noise_spread=[4, 8, 12], fee=[1, 2, 3])
    envs = make(64, randomise=own)
    envs.reset(seed=1)
    pairs = {(int(spread), int(fee)) for spread, fee in zip(*(parameters(envs)[n] for n in ("noise_spread", "fee")),
                                                            strict=True)}  # fmt: skip
    assert pairs == {(4, 1), (8, 2), (12, 3)}
    assert set(envs.scenario.tolist()) == {0, 1, 2}


# What an episode draws ------------------------------------------------------------------------------------------------


@both_engines
@pytest.mark.parametrize("mode", ["same_step", "next_step", "disabled"])
@pytest.mark.parametrize("markets", [1, 16])
def test_every_episode_draws_by_its_word(engine, mode, markets):
    envs = make(markets, engine=engine, autoreset_mode=mode, num_scenarios=7)
    envs.reset(seed=31)
    table = parameters_of_table(envs)
    seen = set()
    for step in range(30):
        episodes = envs.simulator.tensors["episode"].tolist()
        wanted = [drawn(31 + m, episode, 2**30 + 4, 7) for m, episode in enumerate(episodes)]
        assert envs.scenario.tolist() == wanted
        for name, values in parameters(envs).items():
            np.testing.assert_array_equal(values, table[name][wanted], err_msg=name)
        seen |= {(m, scenario) for m, scenario in enumerate(wanted)}
        _, _, terminated, truncated, _ = envs.step(random_actions(1, markets, seed=step)[0])
        if mode == "disabled" and truncated.any():
            envs.reset(options={"reset_mask": truncated})
    assert max(episodes) >= 3 and len(seen) > 1.9 * markets


def parameters_of_table(envs):
    return base.unpack(envs.core._engine.scenario_rows().numpy())


def test_draws_are_uniform():
    envs = make(4096, num_scenarios=5, bank_size=0)
    counts = np.zeros((2, 5))
    for episode in range(2):
        envs.reset(seed=3 if episode == 0 else None)
        counts[episode] = np.bincount(envs.scenario.numpy(), minlength=5)
    expected = 4096 / 5
    assert ((counts - expected) ** 2 / expected).sum(1).max() < 18.5  # chi squared with 4 degrees, 0.1%
    first = envs.scenario.clone()
    envs.reset()
    assert abs(float((first == envs.scenario).float().mean()) - 0.2) < 0.03  # independent of the episode before


@both_engines
def test_warm_starts_belong_to_the_scenario(engine):
    envs = make(24, engine=engine)
    envs.reset(seed=5)
    table = envs.core.live_task.scenarios
    banks = []
    for scenario in range(5):
        own = TRADING.replace(**{name: getattr(table, name)[scenario].item() for name in table.per_market})
        bank = ks.Simulator(own, 3, engine="cpu", seed=2**61 + 3 * scenario)
        bank.run(10)
        banks.append(bank)
    for _ in range(3):
        for m in range(24):
            episode, scenario = int(envs.simulator.tensors["episode"][m]), int(envs.scenario[m])
            row = drawn(5 + m, episode, 2**30 + 2, 3)
            for name in ("bid", "ask", "last_tick", "price_origin", "prev_mid2", "fundamental_price"):
                assert torch.equal(envs.simulator.tensors[name][m], banks[scenario].tensors[name][row]), name
        envs.reset()


@both_engines
def test_cold_starts_open_the_scenarios_book(engine):
    envs = make(32, engine=engine, bank_size=0, randomise={"init_price": {"values": [40, 90]}, "init_depth": (1, 5)})
    observation, _ = envs.reset(seed=1)
    table = envs.core.live_task.scenarios
    mine = envs.scenario.numpy()
    price, depth = table.init_price[mine], table.init_depth[mine]
    np.testing.assert_array_equal(envs.simulator.mid2.numpy(), 2 * price)
    np.testing.assert_array_equal(envs.core.tensors["arrival2"].numpy(), 2 * price)
    np.testing.assert_array_equal(envs.simulator.bid.numpy()[np.arange(32), price - 1], depth)
    np.testing.assert_array_equal(observation[:, 1], np.float32(depth) / np.float32(depth + 8))
    assert set(price.tolist()) == {40, 90}


@both_engines
def test_the_market_plays_by_its_scenario(engine):
    """Fees by hand; and a market's path is that of an environment of the scenario's config alone."""
    envs = make(12, engine=engine, autoreset_mode="disabled", bank_size=0)
    envs.reset(seed=8)
    filled = np.zeros(12)
    results = []
    for action in random_actions(6, 12):
        results.append(envs.step(action))
        filled += envs.fills.sum(1).numpy()
    np.testing.assert_array_equal(
        envs.simulator.fees[:, 0].numpy(), filled * envs.core.live_task.scenarios.fee[envs.scenario]
    )
    assert filled.sum() > 0
    table = envs.core.live_task.scenarios
    for m in range(12):
        own = {name: getattr(table, name)[envs.scenario[m]].item() for name in table.per_market}
        alone = TradingVectorEnv(1, TRADING.replace(**own), **{**SMALL, "bank_size": 0, "stagger": False})
        alone.reset(seed=8 + m)
        for t, action in enumerate(random_actions(6, 12)[:, m : m + 1]):
            observation, reward, _, _, infos = alone.step(action)
            np.testing.assert_array_equal(infos["final_obs"][0], results[t][0][m])
            assert reward[0] == results[t][1][m]


def test_single_and_parallel_environments_draw_too():
    row, env = make(3), MarketMakingEnv(**{**SMALL, "randomise": RANDOMISE, "num_scenarios": 5})
    row.reset(seed=20)
    many = ks.BatchedParallelEnv(3, {"maker": 1}, **SMALL, stagger=False, randomise=RANDOMISE, num_scenarios=5)
    many.reset(seed=20)
    assert torch.equal(many.core.tensors["scenario"], row.scenario)
    for m in range(3):
        env.reset(seed=20 + m)
        assert int(env.core.tensors["scenario"]) == int(row.scenario[m])
    market = ks.parallel_env({"maker": 1}, **SMALL, randomise=RANDOMISE, num_scenarios=5)
    market.reset(seed=22)
    assert int(market.core.tensors["scenario"]) == int(row.scenario[2])


def test_liquidation_orders_are_of_the_markets_own_size():
    envs = make(
        16,
        MarketMakingVectorEnv,
        autoreset_mode="disabled",
        randomise={"max_order_qty": {"values": [1, 9]}},
        horizon=20,
    )
    envs.reset(seed=2)
    for _ in range(16):
        envs.step(np.tile(np.float32([-1, 1, 1, -1]), (16, 1)))  # buys
    largest = envs.core.live_task.scenarios.max_order_qty[envs.scenario]
    np.testing.assert_array_equal(envs.simulator.parameter("max_order_qty").numpy(), largest)
    held = envs.simulator.inventory[:, 0].clone()
    assert bool((held > 9).all()) and set(largest.tolist()) == {1, 9}
    clone = envs.simulator.branch()
    with pytest.raises(ks.MarketError, match="16 of 16 slots still hold inventory after 1 auctions"):
        liquidate(clone, max_auctions=1)
    sold = (held - clone.inventory[:, 0]).numpy()
    assert (sold <= largest).all() and sold[largest == 9].max() > 1 and sold.sum() > 0
    liquidate(envs.simulator)
    assert not envs.simulator.inventory.any()


# Another table --------------------------------------------------------------------------------------------------------


@both_engines
@pytest.mark.parametrize("rows", [5, 2, 40])
def test_running_episodes_keep_their_parameters(engine, rows):
    envs, untouched = make(engine=engine, horizon=8), make(engine=engine, horizon=8)
    envs.reset(seed=4)
    untouched.reset(seed=4)
    before = {name: values.copy() for name, values in parameters(envs).items()}
    fresh = ks.MarketConfig.preset("trading", noise_spread=(np.arange(rows) % 5 + 25).tolist())
    for t, action in enumerate(random_actions(20)):
        if t == 3:
            envs.set_scenarios(fresh)
            assert envs.core.live_task.scenarios.noise_spread.tolist() == fresh.noise_spread.tolist()
        if t < 8:
            for name, values in parameters(envs).items():
                np.testing.assert_array_equal(values, before[name], err_msg=name)
        one, two = envs.step(action), untouched.step(action)
        if t < 8:
            for mine, theirs in zip(one[1:4], two[1:4], strict=True):
                np.testing.assert_array_equal(mine, theirs)
            np.testing.assert_array_equal(one[4]["final_obs"], two[4]["final_obs"])
    assert parameters(envs)["noise_spread"].min() >= 25
    assert envs.scenario.tolist() == [drawn(4 + m, 2, 2**30 + 4, rows) for m in range(8)]
    np.testing.assert_array_equal(parameters(envs)["noise_spread"], envs.scenario.numpy() % 5 + 25)
    bank = ks.Simulator(TRADING.replace(noise_spread=25), 3, engine="cpu", seed=2**61)  # of the first new scenario
    bank.run(10)
    envs.reset()
    for m in np.flatnonzero(envs.scenario.numpy() == 0):
        assert envs.simulator.bid[m].tolist() in bank.bid.tolist()


def test_a_curriculum_of_ranges():
    envs = make(64, randomise={"noise_spread": (4, 6)})
    for low in (4, 10, 20):
        envs.set_scenarios({"noise_spread": (low, low + 2)})
        envs.reset()
        spread = parameters(envs)["noise_spread"]
        assert low <= spread.min() and spread.max() <= low + 2 and len(set(spread.tolist())) > 1


@both_engines
def test_a_refused_table_changes_nothing(engine):
    envs, untouched = make(engine=engine), make(engine=engine)
    for each in (envs, untouched):
        each.reset(seed=1)
    for wrong, error, match in (
        ({"fee": (3, 1)}, ValueError, r"randomise\['fee'\]: expected .*, got \(3, 1\)"),
        ({"num_levels": [64]}, ValueError, "randomise: expected one of num_agents, .*, got the field 'num_levels'"),
        # A warm start that overflows: makers that nobody trades with, and whose orders nothing cancels.
        ({"num_agents": [16000], "max_order_qty": [65535], "cancel_prob": [0.0], "noise": [0.0], "momentum": [0.0],
          "fundamental": [0.0], "maker": [1.0]}, ks.MarketError, "would reach 2\\^31"),
    ):  # fmt: skip
        with pytest.raises(error, match=match):
            envs.set_scenarios(wrong)
    assert (
        envs.core.live_task.scenarios is not None
        and envs.core.live_task.scenarios.per_market.keys() == RANDOMISE.keys()
    )
    for action in random_actions(15):
        for mine, theirs in zip(envs.step(action)[:4], untouched.step(action)[:4], strict=True):
            np.testing.assert_array_equal(mine, theirs)
    with pytest.raises(
        ValueError, match="set_scenarios: expected an environment made with.*, got one without scenarios"
    ):
        make(randomise=None).set_scenarios(RANDOMISE)


def test_a_kernel_of_its_own_reads_only_what_differs(monkeypatch):
    """What all scenarios share is a constant of it; a table that the kernel fits is taken in place."""
    sizes = {"M": 4, "L": 128, "K": 1} | layout.ladder_sizes(1)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: device_like())
    engine = CudaEngine(torch.device("cpu"), sizes, {})
    engine.specialise()

    def rows(**fields):
        config = TRADING.replace(**fields)
        count = max(config.per_market.values(), default=1)
        return parameter_rows(config, count, class_counts(config, count), {})

    def read():
        constants = {each.partition("=")[0] for each in engine._definitions(0)["KS_PARAMETER_CONSTANTS"].split(",")}
        return {name for name, field in layout.PARAMS_FIELDS.items() if f"p.{field.path}" not in constants}

    engine.set_parameters(rows())
    assert read() == set()
    engine.set_scenarios(rows(fee=[1, 2, 3]))
    assert read() == {"fee"}
    table, present = engine._scenarios, engine.parameters()
    engine.set_scenarios(rows(fee=[4, 5, 6]))  # the same kernel fits
    assert engine._scenarios is table and engine.parameters() is present and read() == {"fee"}
    assert table[:, list(layout.PARAMS_FIELDS).index("fee")].tolist() == [4, 5, 6]
    engine.set_scenarios(rows(fee=[4, 5, 6], max_order_qty=[1, 2, 3]))
    assert engine._scenarios is not table and read() == {"fee", "max_order_qty"}
    engine.set_scenarios(rows(fee=[4, 5, 6, 7], max_order_qty=[1, 2, 3, 4]))
    assert len(engine.scenario_rows()) == 4
    old = torch.from_numpy(base.pack(rows(fee=[4, 5, 6, 7], max_order_qty=9, noise_spread=[14, 60, 14, 14])))
    growth = engine._growth
    seven = rows(fee=[4, 5, 6, 7], max_order_qty=[1, 2, 3, 4])
    playing = engine.parameters()
    engine.set_scenarios(seven, old)  # as a branch does whose episodes play a table that was replaced
    assert engine.parameters() is not playing  # a captured kernel would not fit these
    assert read() == {"fee", "max_order_qty", "noise_spread"}
    assert engine._growth > growth and engine._reach == 60


# State ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [TradingVectorEnv, ExecutionVectorEnv])
@pytest.mark.parametrize("engines", [("cpu", "numpy"), ("numpy", "cpu")])
def test_a_checkpoint_goes_on_with_its_scenarios(kind, engines):
    more = {"block_qty": 8} if kind is ExecutionVectorEnv else {}
    envs, other = (make(kind=kind, engine=engine, **more) for engine in engines)
    envs.reset(seed=6)
    for action in random_actions(8):
        envs.step(action)
    saved = envs.state_dict()
    assert saved["parameters"].shape == (8, layout.PARAMS_INTS) == (8, 40)
    other.load_state_dict(saved)
    assert torch.equal(other.scenario, envs.scenario)
    for action in random_actions(20, seed=1):
        for mine, theirs in zip(envs.step(action)[:4], other.step(action)[:4], strict=True):
            np.testing.assert_array_equal(mine, theirs)
    for name, value in envs.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name


@both_engines
def test_a_branch_has_the_markets_parameters(engine):
    envs = make(engine=engine)
    envs.reset(seed=6)
    for action in random_actions(3):
        envs.step(action)
    clone = envs.simulator.branch()
    assert torch.equal(clone.parameter("noise_spread"), envs.simulator.parameter("noise_spread"))
    assert len(clone.parameter("noise_spread").unique()) > 1
    first, second = (simulator.run(50, record=("last_price", "volume")) for simulator in (clone, envs.simulator))
    for name in first:
        assert torch.equal(first[name], second[name])
    assert torch.equal(clone.inventory, envs.simulator.inventory)


@both_engines
def test_a_bad_state_is_refused_and_changes_nothing(engine):
    envs = make(engine=engine)
    envs.reset(seed=1)
    envs.step(random_actions(1)[0])
    saved = envs.state_dict()
    wrong = saved["parameters"].clone()
    wrong[3, 0] += 1
    far = saved["scenario"].clone()
    far[2] = 2**16
    table = json.loads(saved["scenarios"].numpy().tobytes())
    other_grid = pack({**table, "num_levels": 256})
    for name, value, match in (
        (
            "parameters",
            wrong,
            r"state\['parameters'\]: expected counts of a config's agents, got those of no population",
        ),
        (
            "parameters",
            saved["parameters"] + 2**24,
            r"state\['parameters'\]: expected init_price from 1 to 126, got 167\d+",
        ),
        ("parameters", saved["parameters"][:4], r"state\['parameters'\]: expected .*, got torch.int32 \[4, "),
        ("parameters", None, r"state\['parameters'\]: expected .*, got NoneType"),
        ("parameters", saved["parameters"].long(), r"state\['parameters'\]: expected .*, got torch.int64"),
        ("scenarios", saved["scenarios"][:-1], r"state\['scenarios'\]: .*got what is not readable"),
        ("scenarios", None, r"state\['scenarios'\]: .*got what is not readable"),
        ("scenarios", pack({**table, "tax": -1}), r"state\['scenarios'\]: tax: expected 0 to.*got -1"),
        (
            "scenarios",
            pack({"spread": 3}),
            r"state\['scenarios'\]: MarketConfig: expected one of .*, got the unknown field 'spread'",
        ),
        ("scenarios", pack([3]), r"state\['scenarios'\]: expected a dict of fields.*got list"),
        (
            "scenarios",
            other_grid,
            r"state\['scenarios'\]: randomise: expected the config's num_levels, 128, got another",
        ),
        ("scenario", far, r"state\['scenario'\]: expected 0 to 65535.*got 65536"),
        ("scenario", -far, r"state\['scenario'\]: .*got"),
        ("elapsed", saved["elapsed"] + 6, r"state\['elapsed'\]: expected 0 to 6.*got 7"),
        ("bid", saved["bid"] - 1, r"state\['bid'\]: .*got -1"),
    ):
        with pytest.raises((TypeError, ValueError), match=match):
            envs.load_state_dict({**saved, name: value})
        for kept, value_before in envs.state_dict().items():
            assert torch.equal(value_before, saved[kept]), kept
    with pytest.raises(ValueError, match="got missing or unknown names .*parameters"):
        make(randomise=None, engine=engine).load_state_dict(saved)


@both_engines
@pytest.mark.parametrize("steps", [0, 4, 9], ids=["at once", "while some play the old one", "when none does"])
def test_a_state_goes_on_in_an_environment_with_another_table(engine, steps):
    """It was refused: the table, and rows that old episodes still played, were unknown there."""
    envs = make(32, num_scenarios=40)
    envs.reset(seed=1)
    envs.set_scenarios({"noise_spread": (25, 26), "fee": {"values": [0, 7]}})
    for action in random_actions(steps, 32):
        envs.step(action)
    saved = envs.state_dict()
    elsewhere = make(32, randomise=ks.MarketConfig.preset("trading", noise_spread=[3, 4]), engine=engine)
    elsewhere.reset(seed=9)
    elsewhere.load_state_dict(saved)
    for action in random_actions(20, 32, seed=1):
        for mine, theirs in zip(envs.step(action)[:4], elsewhere.step(action)[:4], strict=True):
            np.testing.assert_array_equal(mine, theirs)
    last = envs.state_dict()
    assert len(saved["parameters"].unique(dim=0)) > 2 * (steps < 9)
    for name, value in elsewhere.state_dict().items():
        assert torch.equal(value, last[name]), name


# Wrong inputs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("randomise", "error", "match"),
    [
        ({}, ValueError, "randomise: expected at least one field, got an empty dict"),
        ({"foo": (0, 1)}, ValueError, "randomise: expected one of num_agents, noise, .*, got the field 'foo'"),
        ({"inventory_limit": [1, 2]}, ValueError, "randomise: expected .*, got the field 'inventory_limit'"),
        ({"population": ["fixed"]}, ValueError, "randomise: expected .*, got the field 'population'"),
        ({3: (0, 1)}, ValueError, "randomise: expected .*, got the field 3"),
        (
            {"fee": (3, 1)},
            ValueError,
            r"randomise\['fee'\]: expected two whole numbers, low up to high.*got \(3, 1\)",
        ),
        ({"fee": (1, 2, 3)}, ValueError, r"randomise\['fee'\]: expected \(low, high\), two numbers.*got \(1, 2, 3\)"),
        ({"fee": (0.5, 2.7)}, ValueError, r"randomise\['fee'\]: expected two whole numbers.*got \(0.5, 2.7\)"),
        ({"fee": (0, 10**30)}, ValueError, r"randomise\['fee'\]: expected .* within 2\^31, got \(0, 10+\)"),
        ({"fee": (0, float("inf"))}, ValueError, r"randomise\['fee'\]: expected .*, got \(0, inf\)"),
        ({"fee": (float("nan"), 1)}, ValueError, r"randomise\['fee'\]: expected .*, got \(nan, 1\)"),
        ({"fee": (True, 3)}, ValueError, r"randomise\['fee'\]: expected .*, got \(True, 3\)"),
        ({"fee": (None, 3)}, ValueError, r"randomise\['fee'\]: expected .*, got \(None, 3\)"),
        ({"fee": ([1], [2])}, ValueError, r"randomise\['fee'\]: expected .*, got \(\[1\], \[2\]\)"),
        ({"fee": 3}, ValueError, r"randomise\['fee'\]: expected \(low, high\), or a list of values, got 3"),
        ({"fee": "ab"}, ValueError, r"randomise\['fee'\]: expected .*, got 'ab'"),
        ({"fee": []}, ValueError, r"randomise\['fee'\]: expected .*, got \[\]"),
        ({"fee": np.array(3)}, ValueError, r"randomise\['fee'\]: expected .*, got array\(3\)"),
        ({"fee": [[1], [2, 3]]}, TypeError, r"fee: expected a number, got \[.*\] \(list\)"),
        ({"fee": [1, "a"]}, TypeError, "fee: .*got 'a'"),
        ({"tax": {"values": [-1, 1]}}, ValueError, "tax: expected 0 to.*got -1"),
        ({"arrivals": ["clock"]}, ValueError, "randomise: expected one of num_agents, .*, got the field 'arrivals'"),
        (
            {"tick_size": (1.5, 2)},
            ValueError,
            r"randomise\['tick_size'\]: expected two whole numbers.*got \(1.5, 2\)",
        ),
        (
            ks.MarketConfig.preset("trading", fee=[1, 2], arrivals="clock"),
            ValueError,
            "expected the config's arrivals, each, got another",
        ),
        ({"walk_prob": (0, 2)}, ValueError, "walk_prob: expected 0 to 1.*got 1"),
        ({"walk_prob": (0, float("inf"))}, ValueError, r"randomise\['walk_prob'\]: expected .*, got \(0, inf\)"),
        ({"tie": ("lowest", "mid")}, ValueError, r"randomise\['tie'\]: expected a list.*got \('lowest', 'mid'\)"),
        ({"tie": ["lowest", "highest"]}, ValueError, "tie: expected one of 'lowest', 'mid', got 'highest'"),
        ({"fundamental_price": [None, 64]}, ValueError, "fundamental_price: expected .*, got None among"),
        ({"noise": (-1, 0)}, ValueError, r"randomise\['noise'\]: expected numbers from 0, got \(-1, 0\)"),
        ({"noise": ["a", 1]}, ValueError, r"randomise\['noise'\]: expected finite numbers from 0, got \['a', 1\]"),
        (
            dict.fromkeys(("noise", "maker", "momentum", "fundamental"), [0]),
            ValueError,
            "shares of classes that are all 0",
        ),
        ({"window": [0]}, ValueError, "window: expected a window above 0.*got 0"),
        ({"init_price": (1, 200)}, ValueError, "init_price: expected 1 to num_levels - 2 = 126.*got"),
        ([("fee", (0, 1))], TypeError, "randomise: expected a dict such as .* a MarketConfig, got"),
        ("fee", TypeError, "randomise: expected .*, got 'fee'"),
        (ks.MarketConfig.preset("trading"), ValueError, "randomise: expected two scenarios or more, got one: "),
        (
            ks.MarketConfig.preset("trading", fee=[1, 2], num_levels=256),
            ValueError,
            "randomise: expected the config's num_levels, 128, got another",
        ),
        (
            ks.MarketConfig.preset("trading", fee=[1, 2], inventory_limit=7),
            ValueError,
            "expected the config's inventory_limit, 40, got another",
        ),
        (
            ks.MarketConfig.preset("trading", fee=[1, 2], max_quote_qty=7),
            ValueError,
            "expected the config's max_quote_qty, 8, got another",
        ),
    ],
)
def test_bad_scenarios_name_the_field(randomise, error, match):
    with pytest.raises(error, match=match):
        make(randomise=randomise)


@pytest.mark.parametrize(
    ("kwargs", "error", "match"),
    [
        ({"num_scenarios": 0}, ValueError, "num_scenarios: expected 1 to.*got 0"),
        ({"num_scenarios": 2.0}, TypeError, "num_scenarios: expected a whole number from 1, got 2.0"),
        ({"num_scenarios": 10**9}, ValueError, "num_scenarios: expected up to 65536, got 1000000000"),
        ({"scenario_seed": -1}, ValueError, "scenario_seed: expected a whole number from 0, got -1"),
        ({"scenario_seed": None}, TypeError, "scenario_seed: expected .*, got None"),
        ({"scenario_seed": 1.5}, TypeError, "scenario_seed: expected .*, got 1.5"),
        (
            {"config": TRADING.replace(fee=[1, 2] * 4)},
            ValueError,
            "fee: expected .* with randomise, got one value per market",
        ),
        (
            {"config": TRADING.replace(population="multinomial")},
            ValueError,
            "population: expected .*, got 'multinomial'",
        ),
        (
            {"randomise": {"momentum": {"values": [0.0, 0.15]}}, "replace": "momentum"},
            ValueError,
            "randomise: expected at least 1, as many as learners replace, got a scenario with 0 momentum agents",
        ),
    ],
)
def test_bad_arguments(kwargs, error, match):
    with pytest.raises(error, match=match):
        make(**kwargs)


# Parameters of one's own ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["cpu", "numpy", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_branches_and_states_have_parameters_of_their_own(engine):
    """They are state of an environment with scenarios: an episode that begins writes them."""
    settings = {"engine": engine, "output": "torch", "horizon": 2, "bank_size": 2, "warmup": 3}
    make = functools.partial(MarketMakingVectorEnv, 6, **settings)
    envs = make(randomise={"fee": [3, 5, 7]}, num_scenarios=8)
    envs.reset(seed=1)
    branch, saved = envs.simulator.branch(), envs.state_dict()
    loaded = make(randomise={"fee": {"values": [3, 5]}}, num_scenarios=4)  # of another number of scenarios
    loaded.load_state_dict(saved)
    then, kept = branch.parameter("fee").tolist(), {name: tensor.clone() for name, tensor in saved.items()}
    changed = 0
    for _ in range(8):
        for one in (envs, loaded):
            one.step(torch.zeros(6, 4, device=one.device))
        changed += envs.simulator.parameter("fee").tolist() != then
        assert branch.parameter("fee").tolist() == then
        assert loaded.simulator.parameter("fee").tolist() == envs.simulator.parameter("fee").tolist()
        assert all(torch.equal(saved[name], kept[name]) for name in kept)
    assert changed
