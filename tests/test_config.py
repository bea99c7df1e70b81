"""`MarketConfig`: what it refuses and how it says so, how it rounds, counts, compares and turns into integers."""

import dataclasses
import inspect
import math
import pickle
import typing
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from thorough import examples

import kineticsim_env as ks
from kineticsim_env.config import CLASSES, PRESETS
from kineticsim_env.engines.parameters import class_counts, parameter_rows, threshold
from kineticsim_env.runtime import fields as config_fields

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
        with pytest.raises(ValueError, match=rf"{name}: expected .*got {value}\b.*"):
            build(name, value)
    for value in (low + 0.5, math.nan, math.inf, -math.inf):
        with pytest.raises(ValueError, match=rf"{name}: expected a whole number from.*got {value}"):
            build(name, value)
    for value in ("4", True, np.True_, 4j, {}, object()):
        with pytest.raises(TypeError, match=rf"{name}: expected a number.*got"):
            build(name, value)
    if name not in ("fundamental_price", "inventory_limit"):
        with pytest.raises(TypeError, match=rf"{name}: .*got None"):
            build(name, None)


@pytest.mark.parametrize("name", PROBABILITIES + SHARES)
def test_probabilities(name):
    for value in (-0.001, 1.001, 2, -1, math.nan, math.inf, 10**400):
        with pytest.raises(ValueError, match=rf"{name}: expected 0 to 1.*got {value}"):
            build(name, value)
    for value in ("0.1", True, None, 1j):
        with pytest.raises(TypeError, match=rf"{name}: expected a number.*got"):
            build(name, value)
    if name in PROBABILITIES:
        for value in (0, 1, 0.25, np.float32(0.5), torch.tensor(0.125)):
            assert getattr(ks.MarketConfig(window=3, **{name: value}), name) == float(value)


@pytest.mark.parametrize("name", CHOICES)
def test_choices(name):
    assert getattr(build(name, CHOICES[name]), name) == CHOICES[name]
    for value in ("other", "", 0, None, True):
        with pytest.raises(ValueError, match=rf"{name}: expected one of '\w+', '\w+'.*got {value!r}"):
            build(name, value)


TOGETHER = [
    (dict(num_levels=100), r"num_levels: expected a power of two from 8 to 8192, got 100"),
    (dict(num_levels=32), r"init_price: expected 1 to num_levels - 2 = 30, got 64"),
    (dict(num_levels=64, init_price=63), r"init_price: expected 1 to num_levels - 2 = 62, got 63"),
    (dict(window=64), r"window: expected 0 \(off\) or 1 to num_levels / 2 - 1 = 63, got 64"),
    (dict(walk_prob=0.1), r"window: expected a window above 0 when walk_prob or jump_prob.*got 0"),
    (dict(jump_prob=0.1, jump_size=1), r"window: expected a window above 0.*got 0"),
    (dict(num_agents=2**20, max_order_qty=1025), r"num_agents: expected num_agents \* max_order_qty.*got 1048576"),
    (dict(noise=0.8), r"noise, momentum, maker, fundamental: expected shares that sum to 1, .*, got 1\.1"),
    (dict(noise=0.7 + 2e-6), r"expected shares that sum to 1, or within 1e-06 of it, got 1\.00000\d+"),
    (dict(fundamental=0.1), r"expected shares that sum to 1, .*, got 1\.1"),
    (dict(noise=[0.7, 0.6]), r"expected shares that sum to 1, .*, got 0\.9"),
    (dict(init_price=[64, 127]), r"init_price: expected .*, got 127"),
    (dict(walk_prob=[0.0, 0.1], window=[0, 0]), r"window: expected a window above 0.*got 0"),
    (dict(fee=[1, 2], window=[1, 2, 3]), r"per-market fields must have one length, got \{'window': 3, 'fee': 2\}"),
    (dict(fee=[]), r"fee: expected .*, got an empty sequence"),
    (dict(tax=[1, -1]), r"tax: .*got -1"),
    (dict(fee=np.ones((2, 2), int)), r"fee: expected .*, got an array of shape \(2, 2\)"),
    (dict(inventory_limit=[5, None]), r"inventory_limit: expected .*, got None among per-market values"),
    (dict(tie=["mid", "high"]), r"tie: expected one of 'lowest', 'mid', got 'high'"),
]


@pytest.mark.parametrize(("fields", "match"), TOGETHER, ids=[str(fields)[:40] for fields, _ in TOGETHER])
def test_values_that_do_not_fit_together(fields, match):
    with pytest.raises(ValueError, match=match):
        ks.MarketConfig(**fields)


@pytest.mark.parametrize("name", ["num_levels", "population"])
def test_fields_of_the_whole_ensemble(name):
    with pytest.raises(TypeError, match=rf"{name}: expected one value for the whole ensemble, got one per market"):
        ks.MarketConfig(**{name: [getattr(ks.MarketConfig(), name)] * 2})


def test_types_say_which_fields_may_differ_between_markets():
    """What `help()` shows of a field is what is accepted."""
    shown = {name: one.annotation for name, one in inspect.signature(ks.MarketConfig).parameters.items()}
    per_market = {name for name, annotation in shown.items() if annotation.startswith("PerMarket[")}
    assert set(shown) - per_market == {*config_fields.ENSEMBLE_WIDE, "flow"}  # which are no numbers
    for name, hint in typing.get_type_hints(ks.MarketConfig).items():
        default = ks.MarketConfig.__dataclass_fields__[name].default
        if name in per_market:
            kind = str if name in config_fields.CHOICES else int if name in config_fields.INTEGERS else float
            optional = {type(None)} if name in config_fields.OPTIONAL else set()
            assert set(typing.get_args(hint)) == {kind, Sequence[kind], np.ndarray, torch.Tensor} | optional
            assert type(default) in {kind} | optional


def test_unknown_fields_and_presets():
    known = ", ".join(field.name for field in dataclasses.fields(ks.MarketConfig))
    for make in (lambda: ks.MarketConfig.preset("paper", spread=3), lambda: ks.MarketConfig().replace(spread=3)):
        with pytest.raises(TypeError, match=rf"MarketConfig: expected one of {known}, got the unknown field 'spread'"):
            make()
    allowed = "btcusd, continuous, news, paper, realistic, trading"
    with pytest.raises(ValueError, match=f"preset: expected one of {allowed}, got 'papre'"):
        ks.MarketConfig.preset("papre")


# One value per market -------------------------------------------------------------------------------------------------

FORMS = {
    "float64": np.array,
    "float32": lambda values: np.array(values, np.float32),
    "int16": lambda values: np.array(values, np.int16),
    "uint64": lambda values: np.array(values, np.uint64),
    "big endian": lambda values: np.array(values, ">i4"),
    "every other": lambda values: np.repeat(np.array(values), 2)[::2],
    "list": list,
    "tuple of NumPy's": lambda values: tuple(map(np.int32, values)),
    "objects": lambda values: np.array(values, object),
    "tensor": torch.tensor,
    "masked, none of them": np.ma.array,
}


@pytest.mark.parametrize("form", FORMS)
def test_values_per_market_in_any_form(form):
    config = ks.MarketConfig(fee=FORMS[form]([3, 0, 7]), cancel_prob=FORMS[form]([0, 1, 1]))
    assert config.fee.dtype == np.int64 and config.fee.tolist() == [3, 0, 7]
    assert config.cancel_prob.dtype == np.float64 and config.cancel_prob.tolist() == [0.0, 1.0, 1.0]
    assert type(config.fee) is np.ndarray and not config.fee.flags.writeable


WRONG = [2.5, math.nan, math.inf, -math.inf, 10**400, 2**64, -(2**70), -1, 32768, True, "4", None, 4j]


@pytest.mark.parametrize("name", ["tax", "cancel_prob", "inventory_limit"])
@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_the_first_wrong_value_of_many_is_refused_as_if_alone(name, wrong):
    if name == "inventory_limit" and wrong in (None, 32768):
        pytest.skip("a value that it takes")
    with pytest.raises((TypeError, ValueError)) as alone:
        ks.MarketConfig(**{name: wrong})
    for values in ([1, wrong, "x"], (0, 1, wrong, -5), np.array([1, 0, wrong, -7], object)):
        with pytest.raises(alone.type) as found:
            ks.MarketConfig(**{name: values})
        assert str(found.value) == str(alone.value)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (np.array([1, 2, -3]), "tax: expected 0 to 32767, got -3"),
        (np.array([1, 2.5, -3], np.float32), "tax: expected a whole number from 0 to 32767, got 2.5"),
        (np.array([1, 2**64 - 1], np.uint64), "tax: expected 0 to 32767, got 18446744073709551615"),
        (np.array([1, np.nan]), "tax: expected a whole number from 0 to 32767, got nan"),
        (np.array([True, False]), "tax: expected a number, got True (bool)"),
        (np.array(["1", "2"]), "tax: expected a number, got '1' (str)"),
        (np.ma.array([1, 2], mask=[0, 1]), "tax: expected a number, got None (NoneType)"),
    ],
)
def test_arrays_are_refused_as_lists_are(values, said):
    for form in (values, values.tolist()):
        with pytest.raises((TypeError, ValueError)) as found:
            ks.MarketConfig(tax=form)
        assert str(found.value) == said


@settings(derandomize=True, max_examples=examples(300))
@given(st.lists(st.sampled_from([0, 1, 5, 32767, 32768, -1, 0.5, 2.0, math.nan, 1e300, 2**63]), min_size=1, max_size=6))
def test_many_are_taken_or_refused_as_one_by_one(values):
    def outcome(name, given):
        try:
            return np.asarray(getattr(ks.MarketConfig(**{name: given}), name)).tolist()
        except ValueError as error:
            return str(error)

    for name in ("tax", "cancel_prob"):
        alone = [outcome(name, value) for value in values]
        wrong = [found for found in alone if isinstance(found, str)]
        wanted = repr(wrong[0] if wrong else alone)
        assert repr(outcome(name, values)) == wanted
        if not any(isinstance(value, int) and value >= 2**63 for value in values):
            array = outcome(name, np.array(values))
            assert isinstance(array, str) == bool(wrong) and (wrong or repr(array) == wanted)


@pytest.mark.parametrize("form", [list, tuple, np.array, lambda values: np.array(values, object)])
def test_texts_per_market_in_any_form(form):
    config = ks.MarketConfig(tie=form(["mid", "lowest", "mid"]))
    assert config.tie.tolist() == ["mid", "lowest", "mid"] and not config.tie.flags.writeable
    for wrong in (["mid", "high", "low"], ["mid", "MID", "x"], ["mid", "", "mid"]):
        with pytest.raises(ValueError, match=f"tie: expected one of 'lowest', 'mid'.*got {wrong[1]!r}"):
            ks.MarketConfig(tie=form(wrong))


def test_a_million_markets_are_not_looked_at_one_by_one(monkeypatch):
    looks = []
    check = config_fields._checked_one
    monkeypatch.setattr(config_fields, "_checked_one", lambda name, value: looks.append(name) or check(name, value))
    markets = 10_000
    many = {"fee": np.arange(markets), "walk_prob": np.linspace(0, 1, markets), "window": [3] * markets}
    many |= {"market_order_prob": [0.5, 1] * (markets // 2), "tie": ["mid", "lowest"] * (markets // 2)}
    many["residue"] = np.array(["rest", "cancel"])[np.arange(markets) % 2]
    many |= {"init_depth": torch.arange(markets), "jump_prob": np.full(markets, 0.25, np.float32)}
    config = ks.MarketConfig(**many)
    assert config.per_market == dict.fromkeys(config.per_market, markets) and len(config.per_market) == len(many)
    assert not set(looks) & set(many)
    looks.clear()
    with pytest.raises(ValueError, match=f"fee: expected .*got {-(2**21)}"):
        ks.MarketConfig(fee=np.where(many["fee"] < 5000, 0, -(2**21)))
    assert looks.count("fee") == 1


# Shares ---------------------------------------------------------------------------------------------------------------


def test_shares_in_float32_are_divided_by_their_sum():
    drawn = np.random.default_rng(3).dirichlet(np.ones(4), 5000).astype(np.float32)
    assert (np.abs(drawn.astype(np.float64).sum(1) - 1) > 1e-9).any()
    config = ks.MarketConfig(**dict(zip(CLASSES, drawn.T, strict=True)))
    shares = np.stack([getattr(config, name) for name in CLASSES], axis=1)
    assert np.abs(shares.sum(1) - 1).max() <= 1e-9 and np.abs(shares - drawn).max() < 1e-6
    assert config.replace() == config and not config.noise.flags.writeable
    for row, wanted in zip(drawn[:200], shares, strict=False):  # one market by itself
        alone = ks.MarketConfig(**dict(zip(CLASSES, row, strict=True)))
        assert [getattr(alone, name) for name in CLASSES] == wanted.tolist()
        assert all(type(getattr(alone, name)) is float for name in CLASSES)


def test_shares_that_sum_to_one_stay_to_the_bit():
    exact, near = [0.1 + 0.2, 0.3, 0.4, 0.0], [0.7, 0.1, 0.1 + 5e-10, 0.1]
    for shares in (exact, near):
        config = ks.MarketConfig(**dict(zip(CLASSES, shares, strict=True)))
        assert [getattr(config, name) for name in CLASSES] == shares
    columns = dict(zip(CLASSES, np.array([exact, near, [0.7 + 4e-7, 0.3, 0, 0]]).T, strict=True))
    config = ks.MarketConfig(**columns)
    found = np.stack([getattr(config, name) for name in CLASSES], axis=1)
    assert found[:2].tolist() == [exact, near]
    assert found[2].tolist() == [(0.7 + 4e-7) / (1 + 4e-7), 0.3 / (1 + 4e-7), 0, 0]
    mixed = ks.MarketConfig(noise=[0.7, 0.7 + 4e-7], momentum=0.3, maker=0, fundamental=0)
    assert mixed.momentum.tolist() == [0.3, 0.3 / (1 + 4e-7)] and mixed.maker == 0 and mixed.fundamental == 0
    with pytest.raises(ValueError, match=r"expected shares that sum to 1, .*got 1\.000001999"):
        ks.MarketConfig(noise=[0.7, 0.7 + 2e-6])


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
        assert config.num_agents == 7 and config == ks.MarketConfig(**{**fields, "num_agents": 7})
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
    with pytest.raises(ValueError, match="tax: .*got -1"):
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
    with pytest.raises(ValueError, match=r"slots: expected up to 3.*got 4 that replace a momentum agent"):
        parameter_rows(config, 1, class_counts(config, 1), {"momentum": 4})


def test_rows_of_optional_fields():
    config = ks.MarketConfig(init_price=[5, 6], tie=["mid", "lowest"], residue="cancel")
    rows = parameter_rows(config, 2, class_counts(config, 2), {})
    assert rows["fundamental_price"].tolist() == [5, 6] and rows["inventory_limit"].tolist() == [-1, -1]
    assert rows["tie"].tolist() == [1, 0] and rows["residue"].tolist() == [1, 1]
    config = config.replace(fundamental_price=-3, inventory_limit=[0, 9])
    rows = parameter_rows(config, 2, class_counts(config, 2), {})
    assert rows["fundamental_price"].tolist() == [-3, -3] and rows["inventory_limit"].tolist() == [0, 9]
