"""What of a space changes nothing is refused, with why and what to vary instead; fields of regimes are a space, too."""

import pytest
from agent_classes import trend_follower
from messages import mentions

import kineticsim_env as ks
from kineticsim_env.runtime import build
from kineticsim_env.sweeps import plans

pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

ENGINE = "numpy" if build.cpu_unavailable() else "cpu"


@pytest.mark.parametrize(
    ("space", "market", "why", "instead"),
    [
        ({"jump_size": [1, 5, 9]}, "news", "regimes[2] has its own, and else jump_prob is 0", "'regimes[2].jump_size'"),
        ({"jump_size": [1, 9], "jump_prob": [0.1, 0.5]}, "news", "regimes[2] has its own, ", "'regimes[2].jump_size'"),
        ({"jump_prob": [0.0, 0.5]}, "realistic", "every regime has its own", "'regimes[0].jump_prob', "),
        ({"maker_half_spread": [1, 9], "maker": [0.0]}, "trading", "there is no built-in maker", "a market with built"),
        ({"jump_size": [1, 9], "jump_prob": [0.0]}, "trading", "jump_prob is 0", "jump_prob above 0"),
        ({"fee": [0, 9]}, "trading", "only slots of learners feel it", "a field that built-in agents feel"),
        ({"tie": ["lowest", "mid"]}, "continuous", "continuous trading holds no auctions", "mechanism='call'"),
        ({"trend_follower.lookback": [3, 9], "trend_follower.count": [0]}, {"agents": {trend_follower: 4}},
         "there is no trend_follower", "a count of trend_follower above 0"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("design", ["grid", "random"])
def test_what_changes_nothing_is_refused_with_why_and_what_else(space, market, why, instead, design):
    given = {"design": design, "points": 4} if design == "random" else {}
    with pytest.raises(ValueError) as refused:
        ks.sweep(space, 5, ["volume"], market=market, engine=ENGINE, **given)
    text, name = str(refused.value), next(iter(space))
    expected = f"space[{name!r}]: expected what has an effect, such as {instead}"
    assert mentions(text, f"{expected}.*, got what changes nothing in any point, as {why}", begins=True)


def test_nor_is_it_calibrated():
    pytest.importorskip("sbi")
    with pytest.raises(
        ValueError,
        match=r"space\['jump_size'\]: expected .*, such as 'regimes\[2\].jump_size', got what changes nothing",
    ):
        ks.calibrate({"volatility": 2.0}, {"jump_size": (1, 20)}, 50, market="news", simulations=100, engine=ENGINE)


def test_what_has_an_effect_somewhere_is_no_error():
    """Jumps of any size do nothing where there are none, but something at other points."""
    space = {"jump_prob": [0.0, 0.3], "jump_size": [2, 9]}
    table = ks.sweep(
        space, 60, ["volatility"], market="trading", replicates=4, engine=ENGINE, progress=False
    ).to_pandas()
    assert table["volatility"][0] == table["volatility"][1] and table["volatility"][2] != table["volatility"][3]
    ks.sweep({"jump_size": [5]}, 5, ["volume"], market="news", engine=ENGINE)  # one value is no question
    ks.sweep({"jump_size": [5, 5]}, 5, ["volume"], market="news", design="list", engine=ENGINE)
    space = {"jump_size": [2, 9]}  # nobody trades on the fundamental price, but it is measured
    market = {"preset": "trading", "fundamental": 0.0, "noise": 0.75}
    given = {"market": market, "replicates": 4, "engine": ENGINE, "progress": False}
    errors = ks.sweep(space, 200, ["price_error"], **given).to_pandas()["price_error"]
    assert errors[0] != errors[1]
    with pytest.raises(ValueError, match="as nobody looks at the fundamental price"):
        ks.sweep(space, 60, ["volume"], market=market, engine=ENGINE)


def test_a_grid_that_is_not_looked_at_to_its_end_is_not_refused(monkeypatch):
    monkeypatch.setattr(plans, "_CHECKED", 4)
    monkeypatch.setattr(plans, "_AT_ONCE", 2)
    space = {"jump_prob": [0.0, 0.3], "jump_size": list(range(1, 9))}
    plans.make_plan(space, 5, ["volume"], market="trading").check()
    plan = plans.make_plan({"jump_size": (1, 9)}, 5, ["volume"], market="news", design="random", points=99)
    with pytest.raises(ValueError, match="changes nothing in any point"):
        plan.check()


def test_fields_of_regimes_and_of_a_presets_classes_are_a_space():
    space = {"regimes[2].jump_size": [1, 30], "regimes[0].noise_spread": [3], "noise_spread": [12]}
    found = ks.sweep(space, 200, ["volatility"], market="news", replicates=8, engine=ENGINE, progress=False)
    table = found.to_pandas()
    assert table["regimes[2].jump_size"].tolist() == [1, 30] and table["volatility"][1] > table["volatility"][0]
    regimes = ks.MarketConfig.preset("news").regimes
    assert found.config(1).regimes == ({"noise_spread": 3, **regimes[0]}, regimes[1], {**regimes[2], "jump_size": 30})
    assert ks.open_sweep(found.folder).config(1) == found.config(1)
    space = {"regimes[1].jump_prob": (0.0, 0.9), "order_splitter.size": (1, 90), "order_splitter.count": [2]}
    found = ks.sweep(space, 5, ["volume"], market="realistic", design="sobol", points=4, engine=ENGINE, progress=False)
    (mix,) = found.config(3).agents.values()
    assert mix.count == 2 and mix.parameters["size"] == found.to_pandas()["order_splitter.size"][3]
    space = {"preset": ["realistic", "news"], "regimes[2].jump_size": [1, 9]}
    assert len(ks.sweep(space, 5, ["volume"], engine=ENGINE, progress=False).to_pandas()) == 4


@pytest.mark.parametrize(
    ("space", "market", "said"),
    [
        ({"regimes[3].jump_size": [1, 2]}, "news", "space: expected regimes[0] to.*got 'regimes[3].jump_size'"),
        ({"regimes[0].jump_size": [1]}, "paper", "space: expected no regimes, .*got 'regimes[0].jump_size'"),
        ({"regimes[0].jump_sze": [1]}, "news",
         "space['regimes[0].jump_sze']: expected .*, got 'jump_sze': did you mean 'jump"),
        ({"regimes[0].fee": [1]}, "news", "space['regimes[0].fee']: expected one of max_order_qty, .*, got 'fee'"),
        ({"regimes[2].jump_prob": (0.1, 2.0)}, "news", "jump_prob: expected 0 to 1, got 2.0"),
        ({"regimes[2].jump_size": (0.5, 2)}, "news",
         "space['regimes[2].jump_size']: expected .*, got {'low': 0.5, 'high': 2}"),
        ({"regimes[2].jump_size": [None]}, "news", "jump_size: expected .*, got None"),
        ({"preset": ["news", "trading"], "regimes[2].jump_size": [1]}, None,
         "space: expected one of the market's 0 regimes, got 'regimes[2].jump_size'"),
        ({"regime[2].jump_size": [1]}, "news", "space: expected one of preset, .*, got 'regime[2].jump_size'"),
    ],
)  # fmt: skip
def test_fields_of_regimes_are_refused_in_words(space, market, said):
    with pytest.raises((TypeError, ValueError)) as refused:
        ks.sweep(space, 5, ["volume"], market=market, engine=ENGINE)
    assert mentions(str(refused.value), said, begins=True)
