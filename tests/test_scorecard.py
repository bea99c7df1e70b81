"""`scorecard`: verdicts, errors, known answers, the table, the picture and the command."""

import json
import math

import numpy as np
import pytest

import kineticsim_env as ks
from kineticsim_env.cli import main
from kineticsim_env.runtime.checks import check_series
from kineticsim_env.scorecard import Line, _read
from kineticsim_env.statistics import check_statistics, measure_series
from kineticsim_env.statistics.facts import FACTS, Fact

MARKET = ks.MarketConfig.preset("trading", num_agents=12)
FEW = {"markets": 6, "warm_up": 20, "engine": "cpu"}


@pytest.fixture(scope="module")
def card():
    return ks.scorecard(MARKET, 400, **FEW)


def fact_on(name):
    return next(fact for fact in FACTS if fact.name == name)


def line_of(fact, series):
    names = {name: name.format(price="last") for name in fact.statistics}
    found = measure_series(series, names, group=None)
    return Line(fact, *_read(fact, [found[name] for name in fact.statistics]))


def prices_of(returns, scale=1000.0):
    return {"last_price": np.rint(np.cumsum(scale * returns, axis=1)).astype(np.int64)}


@pytest.mark.parametrize(
    ("value", "error", "verdict"),
    [
        (0.5, 0.01, "met"),
        (0.0, 0.0, "met"),  # a bound belongs to its range
        (1.2, 0.01, "not met"),
        (1.2, 0.2, "unclear"),
        (0.9, 0.2, "unclear"),
        (0.9, math.nan, "met"),
        (math.nan, math.nan, "undefined"),
    ],
)
def test_verdicts(value, error, verdict):
    assert Line(Fact("name", "measured", (), None, 0.0, 1.0, "source"), value, error, 10**6).verdict == verdict


def test_facts_are_whole():
    """Each is read from statistics that exist, and has a range and a source with a year."""
    assert len(FACTS) >= 15 and len({fact.name for fact in FACTS}) == len(FACTS)
    for fact in FACTS:
        for price in ("last", "mid"):
            plans = check_statistics({name: name.format(price=price) for name in fact.statistics})
            assert all(check_series(plan.record) == plan.record for plan in plans.values())
        assert fact.low < fact.high and fact.bounds in ("source", "ours")
        assert any(f"({year})" in fact.source for year in range(1970, 2030)) or "Nature" in fact.source, fact.name


def test_a_random_walk_meets_what_it_should():
    walk = prices_of(np.random.default_rng(0).normal(size=(64, 2000)))
    for name in ("no memory of returns", "nor beyond lag 1", "prices diffuse"):
        assert line_of(fact_on(name), walk).verdict == "met", name
    for name in ("fat tails", "volatility clusters", "falls are larger than rises"):
        assert line_of(fact_on(name), walk).verdict == "not met", name
    assert line_of(fact_on("and its memory fades slowly"), walk).verdict == "undefined"


def test_a_walk_whose_volatility_has_a_long_memory_meets_more():
    """The logarithm of its volatility is a sum of autoregressions from quick to slow."""
    rng = np.random.default_rng(1)
    log, states = np.zeros((64, 6000)), np.zeros((4, 64))
    memory = np.array([0.7, 0.95, 0.99, 0.998])[:, None]
    for t in range(log.shape[1]):
        states = memory * states + np.sqrt(1 - memory**2) * rng.normal(size=states.shape)
        log[:, t] = 0.35 * states.sum(0)
    walk = prices_of(np.exp(log) * rng.normal(size=log.shape))
    for name in (
        "volatility clusters",
        "and its memory fades slowly",
        "fat tails",
        "nearer to normal over longer times",
    ):
        assert line_of(fact_on(name), walk).verdict in ("met", "unclear"), name
    assert abs(line_of(fact_on("volatility follows losses"), walk).value) < 0.01


def test_errors_are_those_of_the_jackknife():
    """Of a ratio of means, beside the error that its influence function has."""
    rng = np.random.default_rng(2)
    price = prices_of(rng.standard_t(5, size=(300, 500)))
    fact = fact_on("nearer to normal over longer times")
    line = line_of(fact, price)
    part, whole = (measure_series(price, [text])[text].value for text in ("kurtosis(span=20)", "kurtosis"))
    ratio = part.mean() / whole.mean()
    assert line.value == pytest.approx(ratio, rel=1e-9)
    assert line.error == pytest.approx(np.std(part - ratio * whole, ddof=1) / whole.mean() / math.sqrt(300), rel=0.05)


def test_the_card_and_its_table(card):
    assert [line.fact for line in card.lines] == list(FACTS) and card.markets == 6
    text = str(card)
    assert all(fact.name in text for fact in FACTS) and f"{card.met} of {len(FACTS)} facts met" in text
    columns = card.columns()
    assert {len(column) for column in columns.values()} == {len(FACTS)}
    assert columns["verdict"].count("met") == card.met
    assert not np.isnan(card.lines[0].value)
    with pytest.raises(ValueError, match="price: got 'ask'"):
        ks.scorecard(MARKET, 400, price="ask")
    with pytest.raises(ValueError, match="intervals: got 10"):
        ks.scorecard(MARKET, 10)


def test_a_simulator_goes_on_from_where_it_is(card):
    simulator = ks.Simulator(MARKET, 6, engine="cpu")
    simulator.run(20)
    again = ks.scorecard(simulator, 400, warm_up=0)
    assert int(simulator.t[0]) == 420
    assert [line.value for line in again.lines] == pytest.approx([line.value for line in card.lines], nan_ok=True)


def test_what_a_simulator_has_already_is_refused_and_facts_are_read_once(card):
    simulator = ks.Simulator(MARKET, 6, engine="cpu")
    for name, value in {"markets": 7, "seed": 1, "engine": "numpy", "device": "cpu"}.items():
        with pytest.raises(ValueError, match=f"{name}.*: got .* with a simulator"):
            ks.scorecard(simulator, 400, **{name: value})
    again = ks.scorecard(MARKET, 400, facts=(fact for fact in FACTS[:2]), **FEW)
    assert [line.value for line in again.lines] == [line.value for line in card.lines[:2]]
    with pytest.raises(ValueError, match="^facts: got none, allowed is one or more"):
        ks.scorecard(MARKET, 400, facts=(), **FEW)


def test_the_picture(card, tmp_path):
    pytest.importorskip("matplotlib")
    card.draw(tmp_path / "card.png")
    assert (tmp_path / "card.png").stat().st_size > 10_000


def test_the_command(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["scorecard", "--engine", "numpy", "--preset", "trading", "--set", "num_agents=4", "--markets", "2"]
    assert main([*words, "--intervals", "200", "--warmup", "0", "--output", "card.json"]) == 0
    assert "facts met; 2 markets of 200 intervals" in capsys.readouterr().out
    table = json.loads((tmp_path / "card.json").read_text())
    assert table["fact"] == [fact.name for fact in FACTS] and table["markets"] == 2
    assert main([*words, "--price", "ask"]) == 2
