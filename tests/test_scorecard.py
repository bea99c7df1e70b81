"""`scorecard`: verdicts, errors, known answers, the table, the picture and the command."""

import json
import math

import numpy as np
import pytest
from thorough import slow

import kineticsim_env as ks
from kineticsim_env.cli import main
from kineticsim_env.runtime.checks import check_series
from kineticsim_env.scorecards import Line
from kineticsim_env.statistics import check_statistics, measure_series
from kineticsim_env.statistics.columns import read
from kineticsim_env.statistics.facts import FACTS, Fact, statistics_of
from kineticsim_env.statistics.null_models import zero_intelligence

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
    return Line(fact, *read(fact, [found[name] for name in fact.statistics]))


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


@pytest.mark.parametrize(
    ("value", "verdict", "place"),
    [(0.5, "other scale", "within"), (1.2, "other scale", "outside"), (math.nan, "undefined", "undefined")],
)
def test_a_fact_known_at_another_scale_is_not_met_in_silence(value, verdict, place):
    line = Line(Fact("name", "measured", (), None, 0.0, 1.0, "source"), value, 0.01, 100, at_scale=False)
    assert (line.verdict, line.place) == (verdict, place)
    assert Line(line.fact, math.nan, math.nan, 0, given=False).verdict == "no data"


def test_time_scales():
    def known(name, *scale):
        return fact_on(name).known_at(*scale)

    assert known("no memory of returns", 1200) and known("no memory of returns", 300, 4)
    assert not known("no memory of returns", 300) and not known("no memory of returns", "events")
    assert known("order flow has a memory", "events") and not known("order flow has a memory", "events", 5)
    assert not known("order flow has a memory", 300)
    assert known("falls are larger than rises", "events", 7) and known("falls are larger than rises", 0.1)
    assert fact_on("tails like a power").time_scale == "5 min to 16 d" and fact_on("fat tails").time_scale == "5 min"


def test_facts_are_whole():
    """Each is read from statistics that exist, and has a range, a time scale and a source with a year."""
    assert len(FACTS) >= 15 and len({fact.name for fact in FACTS}) == len(FACTS)
    for fact in FACTS:
        for price in ("last", "mid"):
            plans = check_statistics({name: name.format(price=price) for name in fact.statistics})
            assert all(check_series(plan.record) == plan.record for plan in plans.values())
        assert fact.low < fact.high and fact.bounds in ("source", "ours")
        assert fact.known in ("any", "trades") or 0 < fact.known[0] <= fact.known[1]
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
    known = sum(fact.known_at("events") for fact in FACTS)
    assert all(fact.name in text for fact in FACTS) and 0 < known < len(FACTS)
    models = ", ".join(f"{model.name} {model.met}" for model in card.null_models)
    assert f"{card.met} of {known} facts met that are known at this scale ({models})" in text
    columns = card.columns()
    assert {len(column) for column in columns.values()} == {len(FACTS)}
    assert columns["verdict"].count("met") == card.met
    assert not np.isnan(card.lines[0].value) and card.lines[0].verdict == "other scale"
    with pytest.raises(ValueError, match="price: expected .*, got 'ask'"):
        ks.scorecard(MARKET, 400, price="ask")
    with pytest.raises(ValueError, match="intervals: .*got 10"):
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
        with pytest.raises(ValueError, match=f"{name}.*: expected .*, got .* with a simulator"):
            ks.scorecard(simulator, 400, **{name: value})
    again = ks.scorecard(MARKET, 400, facts=(fact for fact in FACTS[:2]), **FEW)
    assert [line.value for line in again.lines] == [line.value for line in card.lines[:2]]
    with pytest.raises(ValueError, match="^facts: expected one or more, got none"):
        ks.scorecard(MARKET, 400, facts=(), **FEW)


# Null models, aggregation, series -------------------------------------------------------------------------------------


def test_null_models_are_measured_by_the_same_formulas(card):
    names = [column.name for column in card.null_models]
    assert names == ["fundamental path", "zero intelligence", "random walk"]
    path, flow, walk = card.null_models
    own = ks.measure(MARKET, 400, ["kurtosis(price='fundamental')"], group=None, **FEW)
    tails = [fact.name for fact in FACTS].index("fat tails")
    assert path.lines[tails].value == own["kurtosis(price='fundamental')"].value[0]
    again = ks.scorecard(zero_intelligence(MARKET), 400, null_models=False, **(FEW | {"warm_up": 200}))
    assert [line.value for line in flow.lines] == pytest.approx([line.value for line in again.lines], nan_ok=True)
    volume = [fact.name for fact in FACTS].index("volume has a memory")
    assert [model.lines[volume].verdict for model in (path, walk)] == ["no data", "no data"]
    assert abs(walk.lines[tails].value) < 0.5
    text = "volatility(price='last')"
    assert walk.measured.group_size == 6
    assert walk.measured[text].value[0] == pytest.approx(card.measured[text].value[0], rel=0.05)
    assert not ks.scorecard(MARKET, 400, null_models=False, facts=FACTS[:1], **FEW).null_models


def test_zero_intelligence_keeps_the_rules_and_nothing_else():
    for preset in ks.config.PRESETS:
        market = ks.MarketConfig.preset(preset)
        flow = zero_intelligence(market)
        changed = {name for name, value in flow.to_dict().items() if value != market.to_dict()[name]}
        assert changed <= {"noise", "momentum", "maker", "fundamental", "walk_prob", "jump_prob", "reference",
                           "regimes", "regime_switch_prob", "agents"}  # fmt: skip
        assert (flow.noise, flow.agents, flow.regimes, flow.reference) == (1.0, {}, None, "mid")
    assert zero_intelligence(MARKET.replace(num_agents=[4, 6])).per_market


def test_a_card_of_a_null_model_distinguishes_nothing():
    """Of markets like the null models themselves, no fact says anything; of split orders the memory of signs does."""
    few = {"markets": 16, "warm_up": 20, "engine": "cpu"}
    facts = tuple(fact for fact in FACTS if fact.name in ("no memory of returns", "order flow has a memory"))
    flow = ks.scorecard(zero_intelligence(ks.MarketConfig.preset("realistic")), 1000, facts=facts, **few)
    assert flow.distinguishing == ()
    found = ks.scorecard(ks.MarketConfig.preset("realistic"), 1000, facts=facts, **few)
    assert found.distinguishing == ("order flow has a memory",) and found.lines[1].verdict == "met"
    assert "in no null model: order flow has a memory." in str(found)


@pytest.mark.parametrize("aggregate", [1, 3, 7])
def test_intervals_taken_together(aggregate):
    """As of series put together by hand, however the run was cut; what is left over is left out."""
    names = ["volatility", "volume", "kurtosis(price='mid')", "impact_exponent", "sign_autocorrelation(lag=[1, 2])"]
    simulator = ks.Simulator(MARKET, 3, engine="cpu", seed=2)
    clone = ks.Simulator(MARKET, 3, engine="cpu", seed=2)
    series = clone.run(230, record=("last_price", "mid2", "volume", "signed_volume"))
    whole = 230 // aggregate * aggregate
    parts = {name: values[:, :whole].reshape(3, -1, aggregate) for name, values in series.items()}
    hand = {name: part.sum(2) if "volume" in name else part[..., -1] for name, part in parts.items()}
    expected = measure_series(hand, names, group=None)
    for found in (
        ks.measure(simulator, 230, names, aggregate=aggregate, group=None, chunk=11),
        measure_series(series, names, aggregate=aggregate, group=None, chunk=13),
    ):
        assert found.intervals == 230 // aggregate
        for name in names:
            assert np.array_equal(found[name].value, expected[name].value, equal_nan=True), name


def test_a_card_at_several_aggregations_is_of_one_run():
    card = ks.scorecard(MARKET, 1000, aggregate=(1, 5), interval=300, facts=FACTS[:4], **FEW)
    alone = ks.scorecard(MARKET, 1000, aggregate=5, interval=300, facts=FACTS[:4], **FEW)
    (five,) = [column for column in card.shown if column.name == "market" and column.aggregate == 5]
    assert [line.value for line in five.lines] == [line.value for line in alone.lines]
    assert [line.at_scale for line in five.lines] == [True, True, False, False]  # 25 minutes
    assert alone.measured.intervals == 200 and "market x5" in str(card)
    with pytest.raises(ValueError, match="intervals: expected 1000.*got 999"):
        ks.scorecard(MARKET, 999, aggregate=(1, 5), **FEW)
    arrays = ks.scorecard(MARKET, 1000, aggregate=np.array([1, 5]), interval=300, facts=FACTS[:4], **FEW)
    assert str(arrays) == str(card)
    for wrong in (0, (), (1, 0), "12", 1.5):
        with pytest.raises((TypeError, ValueError), match="aggregate: expected .*, got"):
            ks.scorecard(MARKET, 1000, aggregate=wrong, **FEW)
    for wrong in ("minutes", 0, -1, math.nan, None):
        with pytest.raises((TypeError, ValueError), match="interval: .*got"):
            ks.scorecard(MARKET, 1000, interval=wrong, **FEW)


def data(markets=4, length=600, seed=3):
    """Return made-up series of a market, with books that are fullest two ticks behind the best price."""
    rng = np.random.default_rng(seed)
    signed = rng.integers(-9, 10, (markets, length))
    price = 500 + np.cumsum(np.sign(signed) + rng.integers(-2, 3, signed.shape), axis=1)
    bid, ask = np.zeros((2, markets, 5, 20), np.int64)
    bid[..., 5:10], ask[..., 10:15] = (1, 2, 9, 4, 2), (2, 4, 9, 2, 1)
    return {"last_price": price, "mid2": 2 * price, "volume": abs(signed), "signed_volume": signed,
            "bid": bid, "ask": ask}  # fmt: skip


def test_a_card_of_series_and_a_column_beside_a_market():
    series = data()
    card = ks.scorecard(series, 400, warm_up=0, engine="cpu")
    expected = measure_series(series, list(statistics_of()), group=None)
    by_name = {line.fact.name: line for line in card.lines}
    assert by_name["fat tails"].value == expected["kurtosis(price='last')"].value[0]
    assert by_name["books are fullest behind the best price"].value == 2.0
    assert [column.name for column in card.null_models] == ["zero intelligence", "random walk"]
    assert card.markets == 4 and card.measured.intervals == 600
    beside = ks.scorecard(MARKET, 400, null_models=False, beside={"data": series, "one": data(1)}, **FEW)
    assert [column.name for column in beside.shown] == ["market", "data", "one"]
    assert [line.value for line in beside.shown[1].lines] == pytest.approx(
        [line.value for line in card.lines], nan_ok=True
    )
    only = ks.scorecard({"last_price": series["last_price"][0]}, null_models=False)
    verdicts = {line.fact.name: line.verdict for line in only.lines}
    assert verdicts["volume has a memory"] == verdicts["books are fullest behind the best price"] == "no data"
    with pytest.raises(ValueError, match="data: expected series of 200 intervals or more, got 150"):
        ks.scorecard(MARKET, 400, beside={"data": {"last_price": np.arange(150)}}, **FEW)
    with pytest.raises(ValueError, match="beside: expected .*, got 'market'"):
        ks.scorecard(MARKET, 400, null_models=False, beside={"market": series}, **FEW)
    with pytest.raises(ValueError, match="bid, ask: .*got"):
        ks.scorecard(series | {"bid": -series["bid"]}, 400)
    with pytest.raises(ValueError, match="bid, ask: expected .*, got none"):
        measure_series({"last_price": series["last_price"]}, ["book_shape"])


def test_a_card_of_what_was_measured_before(card):
    found = ks.measure(MARKET, 400, [*statistics_of(), "spread"], group=None, **FEW)
    again = ks.scorecard(found, null_models=False)
    assert [line.value for line in again.lines] == pytest.approx([line.value for line in card.lines], nan_ok=True)
    tails = ks.measure(MARKET, 400, {"mine": "kurtosis(price='last')"}, group=None, **FEW)
    part = ks.scorecard(tails, null_models=False)
    told = {line.fact.name: line for line in part.lines}
    assert told["fat tails"].value == found["kurtosis(price='last')"].value[0]
    assert told["volatility clusters"].verdict == "no data"
    with pytest.raises(ValueError, match="market: expected .*, got a Measured of 6 groups"):
        ks.scorecard(ks.measure(MARKET, 400, ["kurtosis"], **FEW))


def test_causal_impact_is_beside_the_observed_response():
    """In `realistic` the mid has moved with takers, and a market order moves it for an interval alone."""
    market = ks.MarketConfig.preset("realistic")
    card = ks.scorecard(market, 400, markets=64, warm_up=100, engine="cpu", null_models=False)
    alone = ks.causal_impact(market, num_markets=64, engine="cpu")
    assert repr(card.impact) == repr(alone) and "causal impact of a market buy" in str(card)
    last = card.impact.moved[-1]
    response = card.measured["response(lag=[1, 20])"].value[0]
    assert last[card.impact.lags.index(20)].mean < 0.2 < 2 < response[1]
    assert ks.scorecard(market, 400, markets=4, impact=False, null_models=False, engine="cpu").impact is None
    assert ks.scorecard(data(), null_models=False).impact is None
    assert (
        ks.scorecard("realistic", 400, markets=64, warm_up=100, engine="cpu", null_models=False).impact == card.impact
    )
    with pytest.raises(ValueError, match="realistisch"):
        ks.scorecard("realistisch")
    limited = MARKET.replace(inventory_limit=5)
    assert ks.scorecard(limited, 400, null_models=False, **FEW).impact.sizes == (1, 2, 4)
    assert "impact" not in " ".join(fact.name for fact in FACTS)


def test_the_picture(card, tmp_path):
    pytest.importorskip("matplotlib")
    card.draw(tmp_path / "card.png")
    assert (tmp_path / "card.png").stat().st_size > 10_000


@slow
def test_the_command(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["scorecard", "--engine", "numpy", "--preset", "trading", "--set", "num_agents=4", "--markets", "2"]
    assert main([*words, "--intervals", "200", "--warmup", "0", "--output", "card.json"]) == 0
    assert "; 2 markets of 200 intervals" in capsys.readouterr().out
    table = json.loads((tmp_path / "card.json").read_text())
    assert table["fact"] == [fact.name for fact in FACTS] and table["markets"] == 2
    assert len(table["zero intelligence x1 value"]) == len(FACTS)
    assert main([*words, "--intervals", "400", "--interval", "300", "--aggregate", "2", "1", "--warmup", "0"]) == 0
    out = capsys.readouterr().out
    assert "An interval stands for 5 min" in out and "market x1" in out and "200 intervals" in out
    assert main([*words, "--interval", "minutes"]) == 2
    assert main([*words, "--price", "ask"]) == 2
