"""The study behind the preset `"trading"`: what it says of returns, where the answer is known."""

import numpy as np
import pytest

from examples.studies.presets import makers as study


def test_returns_of_a_walk_seen_through_noise():
    """A price that is a random walk plus independent noise, whose ratios, shares and autocorrelations are known."""
    draws = np.random.default_rng(3)
    walk = np.cumsum(draws.choice((-1.0, 1.0), (64, 4000)), axis=1)
    price = walk + draws.normal(0, 3, walk.shape)
    found = study.returns_of(price, walk)
    spans = np.array(study.SPANS)
    variance = spans + 2 * 9.0  # of the change over a span
    assert found.deviation.mean() == pytest.approx(variance[0] ** 0.5, rel=0.01)
    assert found.variance_ratio.mean(0) == pytest.approx(variance / (spans * variance[0]), rel=0.05)
    assert found.fundamental.mean(0) == pytest.approx(spans / variance, rel=0.05)
    assert found.autocorrelation.mean(0) == pytest.approx([-9 / variance[0], *[0] * (len(study.LAGS) - 1)], abs=0.01)
    assert found.away.mean() == pytest.approx(3, rel=0.01)
    assert found.kurtosis.mean() == pytest.approx(
        -2 / variance[0] ** 2, abs=0.02
    )  # only the walk's steps are not normal
    assert found.variance_ratio[:, 0].tolist() == [1.0] * 64


def test_the_last_price_and_the_mid_of_the_same_markets(monkeypatch):
    monkeypatch.setattr(study, "LONG", 300)
    config = study.MarketConfig.preset("trading")
    found = study.returns_without_learners(config, 3, "numpy")
    simulator = study.Simulator(config, 3, engine="numpy", seed=study.SEED)
    simulator.run(study.WARMUP, progress=False)
    series = simulator.run(300, ("last_price", "mid2", "fundamental"), progress=False)
    truth = series["fundamental"].numpy().astype(float)
    for name, price in (("last price", series["last_price"].numpy()), ("mid", series["mid2"].numpy() / 2)):
        np.testing.assert_array_equal(found[name].away, study.returns_of(price.astype(float), truth).away)
