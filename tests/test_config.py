"""`MarketConfig`: what it refuses and how it says so, how it rounds, counts, compares and turns into integers."""

import dataclasses
import math
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from thorough import examples

import kineticsim_env as ks
from kineticsim_env.config import CLASSES, PRESETS, class_counts, parameter_rows, threshold

# Field, least, most; wrong values just outside are refused, those inside are taken.
WHOLE = [
    ("num_levels", 8, 8192),
    ("num_agents", 1, 2**28),
    ("init_price", 1, 126),
    ("init_depth", 0, 2**20),
    ("max_order_qty", 1, 65535),
    ("noise_spread", 0, 32767),
    ("maker_half_spread", 0, 32767),
    ("jump_size", 0, 32767),
    ("window", 0, 63),
    ("fundamental_price", -(2**30), 2**30),
    ("max_quote_qty", 0, 2**20),
    ("inventory_limit", 0, 2**30),
    ("fee", -(2**20), 2**20),
    ("taker_offset", 0, 32767),
    ("tax", 0, 32767),
    ("collar", 0, 32767),
    ("tick_size", 1, 64),
]
PROBABILITIES = ["market_order_prob", "walk_prob", "jump_prob", "cancel_prob"]
SHARES = list(CLASSES)
CHOICES = {"tie": "mid", "residue": "cancel", "population": "multinomial"}
OTHERS = {"num_levels": dict(init_price=4), "walk_prob": dict(window=3)}  # what else a field's value needs


def build(name, value):
    return ks.MarketConfig(**{**OTHERS.get(name, {}), name: value})


@pytest.mark.parametrize(("name", "low", "high"), WHOLE)
def test_whole_numbers(name, low, high):
    for value in (low, high):
        assert getattr(build(name, value), name) == value
        assert type(getattr(build(name, float(value)), name)) is int, "a whole float is taken as an int"
        assert type(getattr(build(name, np.int64(value)), name)) is int
    for value in (low - 1, high + 1, 10**400, -(10**400)):
        with pytest.raises(ValueError, match=rf"{name}: got {value}\b.*allowed is"):
            build(name, value)
    for value in (low + 0.5, math.nan, math.inf, -math.inf):
        with pytest.raises(ValueError, match=rf"{name}: got {value}, allowed is a whole number from"):
            build(name, value)
    for value in ("4", True, np.True_, 4j, {}, object()):
        with pytest.raises(TypeError, match=rf"{name}: got .*, allowed is a number"):
            build(name, value)
    if name not in ("fundamental_price", "inventory_limit"):
        with pytest.raises(TypeError, match=rf"{name}: got None"):
            build(name, None)


@pytest.mark.parametrize("name", PROBABILITIES + SHARES)
def test_probabilities(name):
    for value in (-0.001, 1.001, 2, -1, math.nan, math.inf, 10**400):
        with pytest.raises(ValueError, match=rf"{name}: got {value}, allowed is 0 to 1"):
            build(name, value)
    for value in ("0.1", True, None, 1j):
        with pytest.raises(TypeError, match=rf"{name}: got .*, allowed is a number"):
            build(name, value)
    if name in PROBABILITIES:
        for value in (0, 1, 0.25, np.float32(0.5), torch.tensor(0.125)):
            assert getattr(ks.MarketConfig(window=3, **{name: value}), name) == float(value)


@pytest.mark.parametrize("name", CHOICES)
def test_choices(name):
    assert getattr(build(name, CHOICES[name]), name) == CHOICES[name]
    for value in ("other", "", 0, None, True):
        with pytest.raises(ValueError, match=rf"{name}: got {value!r}, allowed are '\w+', '\w+'"):
            build(name, value)


TOGETHER = [
    (dict(num_levels=100), r"num_levels: got 100, allowed is a power of two from 8 to 8192"),
    (dict(num_levels=32), r"init_price: got 64, allowed is 1 to num_levels - 2 = 30"),
    (dict(num_levels=64, init_price=63), r"init_price: got 63, allowed is 1 to num_levels - 2 = 62"),
    (dict(window=64), r"window: got 64, allowed is 0 \(off\) or 1 to num_levels / 2 - 1 = 63"),
    (dict(walk_prob=0.1), r"window: got 0, allowed is a window above 0 when walk_prob or jump_prob"),
    (dict(jump_prob=0.1, jump_size=1), r"window: got 0, allowed is a window above 0"),
    (dict(num_agents=2**20, max_order_qty=1025), r"num_agents: got 1048576, allowed is num_agents \* max_order_qty"),
    (dict(noise=0.8), r"noise, momentum, maker, fundamental: got shares that sum to 1\.1.*, allowed is 1"),
    (dict(noise=0.7 + 2e-9), r"got shares that sum to 1\.000000002"),
    (dict(fundamental=0.1), r"got shares that sum to 1\.1"),
    (dict(noise=[0.7, 0.6]), r"got shares that sum to 0\.9"),
    (dict(init_price=[64, 127]), r"init_price: got 127"),
    (dict(walk_prob=[0.0, 0.1], window=[0, 0]), r"window: got 0, allowed is a window above 0"),
    (dict(fee=[1, 2], window=[1, 2, 3]), r"per-market fields must have one length, got \{'window': 3, 'fee': 2\}"),
    (dict(fee=[]), r"fee: got an empty sequence"),
    (dict(tax=[1, -1]), r"fee: got -1"),
    (dict(fee=np.ones((2, 2), int)), r"fee: got an array of shape \(2, 2\)"),
    (dict(inventory_limit=[5, None]), r"inventory_limit: got None among per-market values"),
    (dict(tie=["mid", "high"]), r"tie: got 'high', allowed are 'lowest', 'mid'"),
]


@pytest.mark.parametrize(("fields", "match"), TOGETHER, ids=[str(fields)[:40] for fields, _ in TOGETHER])
def test_values_that_do_not_fit_together(fields, match):
    with pytest.raises(ValueError, match=match):
        ks.MarketConfig(**fields)


@pytest.mark.parametrize("name", ["num_levels", "population"])
def test_fields_of_the_whole_ensemble(name):
    with pytest.raises(TypeError, match=rf"{name}: got one value per market, but it is the same for the whole"):
        ks.MarketConfig(**{name: [getattr(ks.MarketConfig(), name)] * 2})


def test_unknown_fields_and_presets():
    known = ", ".join(field.name for field in dataclasses.fields(ks.MarketConfig))
    for make in (lambda: ks.MarketConfig.preset("paper", spread=3), lambda: ks.MarketConfig().replace(spread=3)):
        with pytest.raises(TypeError, match=rf"unknown field 'spread', allowed are {known}"):
            make()
    with pytest.raises(ValueError, match=r"preset: got 'papre', allowed are \['paper', 'trading'\]"):
        ks.MarketConfig.preset("papre")


# Value semantics ------------------------------------------------------------------------------------------------------


def test_the_paper_preset_is_the_default():
    expected = dict(num_levels=128, num_agents=256, noise=0.7, momentum=0.15, maker=0.15, fundamental=0.0)
    expected |= dict(init_price=64, init_depth=8, max_order_qty=4, noise_spread=3, market_order_prob=0.1)
    expected |= dict(maker_half_spread=1, walk_prob=0, jump_prob=0, cancel_prob=0, window=0, tie="lowest")
    expected |= dict(residue="rest", population="fixed", max_quote_qty=2**20, inventory_limit=None, fee=0)
    fields = ks.MarketConfig.preset("paper").to_dict()
    assert ks.MarketConfig.preset("paper") == ks.MarketConfig()
    assert {name: fields[name] for name in expected} == expected
    assert not ks.MarketConfig().uses_options and ks.MarketConfig.preset("trading").uses_options


def test_presets_and_changes():
    for name, fields in PRESETS.items():
        config = ks.MarketConfig.preset(name, num_agents=7)
        assert config.num_agents == 7
        assert all(getattr(config, key) == value for key, value in fields.items() if key != "num_agents")
    trading = ks.MarketConfig.preset("trading")
    assert trading.window and trading.tie == "mid" and trading.residue == "cancel" and trading.cancel_prob
    assert trading.fundamental > 0 and (trading.walk_prob or trading.jump_prob)


def test_a_config_cannot_be_changed():
    config = ks.MarketConfig(fee=[1, 2])
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.num_agents = 3
    with pytest.raises(ValueError, match="read-only"):
        config.fee[0] = 5
    with pytest.raises(TypeError):
        hash(config)


def test_a_config_owns_its_arrays():
    given = np.array([1, 2])
    config = ks.MarketConfig(fee=given)
    given[0] = 99
    assert config.fee.tolist() == [1, 2]


def test_equality_and_replace():
    config = ks.MarketConfig(fee=[1, 2], tie=["lowest", "mid"])
    same = [ks.MarketConfig(fee=np.array([1, 2]), tie=("lowest", "mid")), pickle.loads(pickle.dumps(config))]
    same += [config.replace(), ks.MarketConfig(fee=torch.tensor([1, 2]), tie=["lowest", "mid"])]
    assert all(other == config for other in same)
    different = [dict(fee=[1, 3]), dict(fee=1), dict(tie="mid"), dict(noise_spread=4), dict(inventory_limit=0)]
    assert all(config.replace(**changes) != config for changes in different)
    assert config != "paper" and config.per_market == {"tie": 2, "fee": 2}
    assert config.replace(fee=3).fee == 3 and config.fee.tolist() == [1, 2]
    with pytest.raises(ValueError, match="tax: got -1"):
        config.replace(tax=-1)


@pytest.mark.parametrize("option", [{"cancel_prob": [0, 0.1]}, {"window": 1}, {"tie": "mid"}, {"residue": "cancel"}])
def test_options_are_seen(option):
    assert ks.MarketConfig(**option).uses_options
    off = {name: {"tie": "lowest", "residue": "rest"}.get(name, 0) for name in option}
    assert not ks.MarketConfig(**off).uses_options


# Rounding and counting ------------------------------------------------------------------------------------------------


@settings(derandomize=True)
@given(st.floats(0, 1))
def test_probabilities_are_rounded_once_half_to_even(probability):
    for scale in (2**16, 2**24):
        assert int(threshold(probability, scale)) == round(probability * scale)


def test_rounded_probabilities():
    half = np.array([0.5, 1.5, 2.5]) / 65536
    assert threshold(half, 2**16).tolist() == [0, 2, 2]
    config = ks.MarketConfig(market_order_prob=0.1, cancel_prob=[1.0, 0.4], walk_prob=2**-17, window=3)
    rows = parameter_rows(config, 2, class_counts(config, 2), {})
    assert rows["market_order_threshold"].tolist() == [1677722] * 2
    assert rows["cancel_threshold"].tolist() == [65536, 26214] and rows["walk_threshold"].tolist() == [0, 0]


# Shares, agents, counts by largest remainder; equal remainders go to the earlier class.
COUNTS = [
    ((0.70, 0.15, 0.15, 0.0), 256, [179, 39, 38, 0]),  # 179.2, 38.4, 38.4
    ((0.25, 0.25, 0.25, 0.25), 1, [1, 0, 0, 0]),
    ((0.25, 0.25, 0.25, 0.25), 2, [1, 1, 0, 0]),
    ((0.25, 0.25, 0.25, 0.25), 7, [2, 2, 2, 1]),
    ((0.0, 0.5, 0.0, 0.5), 3, [0, 2, 0, 1]),
    ((0.65, 0.0, 0.05, 0.30), 16, [10, 0, 1, 5]),  # 10.4, 0, 0.8, 4.8
    ((0.0, 0.0, 1.0, 0.0), 5, [0, 0, 5, 0]),
    ((1 / 3, 1 / 3, 1 / 3, 0.0), 100, [34, 33, 33, 0]),
    ((0.1, 0.2, 0.3, 0.4), 3, [0, 1, 1, 1]),  # .3 .6 .9 1.2
]


@pytest.mark.parametrize(("shares", "agents", "counts"), COUNTS)
def test_counts_by_largest_remainder(shares, agents, counts):
    fields = dict(zip(CLASSES, shares, strict=True))
    assert class_counts(ks.MarketConfig(num_agents=agents, **fields), 1).tolist() == [counts]


def test_counts_per_market():
    columns = {name: [shares[i] for shares, *_ in COUNTS] for i, name in enumerate(CLASSES)}
    config = ks.MarketConfig(num_agents=[agents for _, agents, _ in COUNTS], **columns)
    assert class_counts(config, len(COUNTS)).tolist() == [counts for *_, counts in COUNTS]


@settings(derandomize=True, max_examples=examples(300))
@given(st.lists(st.integers(0, 1000), min_size=4, max_size=4).filter(any), st.integers(1, 2**20))
def test_counts_are_close_to_their_shares(weights, agents):
    shares = np.array(weights) / sum(weights)
    config = ks.MarketConfig(num_agents=agents, max_order_qty=1, **dict(zip(CLASSES, shares, strict=True)))
    counts = class_counts(config, 1)[0]
    assert counts.sum() == agents and (counts >= 0).all()
    assert (np.abs(counts - shares * agents) < 1 + 1e-4).all() and not counts[shares == 0].any()


def test_replaced_agents_fall_silent_and_indices_stay():
    config = ks.MarketConfig(num_agents=20)  # 14 noise, 3 momentum, 3 makers
    rows = parameter_rows(config, 1, class_counts(config, 1), {"noise": 14, "maker": 1})
    wanted = dict(num_noise=0, num_momentum=3, num_maker=2, num_fundamental=0)
    wanted |= dict(first_momentum=14, first_maker=17, first_fundamental=20)
    assert {name: rows[name].tolist() for name in wanted} == {name: [value] for name, value in wanted.items()}
    with pytest.raises(ValueError, match=r"slots: got 4 that replace a momentum agent, allowed is up to 3"):
        parameter_rows(config, 1, class_counts(config, 1), {"momentum": 4})


def test_rows_of_optional_fields():
    config = ks.MarketConfig(init_price=[5, 6], tie=["mid", "lowest"], residue="cancel")
    rows = parameter_rows(config, 2, class_counts(config, 2), {})
    assert rows["fundamental_price"].tolist() == [5, 6] and rows["inventory_limit"].tolist() == [-1, -1]
    assert rows["tie"].tolist() == [1, 0] and rows["residue"].tolist() == [1, 1]
    config = config.replace(fundamental_price=-3, inventory_limit=[0, 9])
    rows = parameter_rows(config, 2, class_counts(config, 2), {})
    assert rows["fundamental_price"].tolist() == [-3, -3] and rows["inventory_limit"].tolist() == [0, 9]
