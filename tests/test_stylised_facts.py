"""The study of the market's own behaviour: shapes, one ensemble against single markets."""

import numpy as np
import pytest
import torch

from examples.studies.stylised_facts import __main__ as pages
from examples.studies.stylised_facts import study as stylised_facts
from kineticsim_env import MarketConfig, Simulator, statistics


def test_the_mixes_of_the_sweep_and_of_the_plane():
    line = stylised_facts.populations(pages.MOMENTUM, (pages.MAKER,))
    assert line.shape == (15, 2)
    assert line[0].tolist() == [0.0, 0.15] and line[-1].tolist() == [0.7, 0.15]
    plane = stylised_facts.populations(pages.MOMENTUM, pages.MAKERS)
    assert len(plane) == 15 * 8 - 1  # 0.70 + 0.35 is more than everybody
    assert plane.sum(1).max() <= 1 + 1e-9


def test_a_population_in_the_ensemble_is_the_market_alone():
    shares = np.array([[0.0, 0.15], [0.45, 0.15]])
    sweep = stylised_facts.measure(shares, 3, auctions=60, lags=2, engine="numpy")
    config = MarketConfig(momentum=0.45, maker=0.15, noise=0.4, population="multinomial")
    seeds = stylised_facts.SEED + (1 << 20) + np.arange(3)
    series = Simulator(config, 3, engine="numpy", seed=seeds).run(60, ("last_price", "volume"))
    change = statistics.arrays.returns(series["last_price"])
    np.testing.assert_array_equal(sweep.values["volume"][1], series["volume"].numpy().mean(1))
    assert sweep.values["return_sd"][1] == pytest.approx(statistics.arrays.volatility(change), rel=1e-12)
    assert sweep.values["acf"][1][:, 1] == pytest.approx(statistics.arrays.autocorrelation(change, 2), rel=1e-12)
    pooled = statistics.arrays.excess_kurtosis(change.reshape(1, -1))[0]
    found = sweep.pooled_kurtosis(1)
    assert found.value == pytest.approx(pooled, rel=1e-9) and found.low <= found.value <= found.high
    assert sweep.kurtosis(1).value == pytest.approx(sweep.mean("kurtosis", 1).mean)


def test_the_mid_is_that_of_the_book_that_an_auction_leaves_behind():
    """In every engine, so that a recorded mid belongs to the auction whose price and volume stand beside it."""
    for engine in ("numpy", "cpu"):
        simulator = Simulator(MarketConfig(num_agents=20), 5, engine=engine, seed=3)
        for _ in range(20):
            recorded = simulator.run(1, ("mid2",))["mid2"][:, 0]
            assert recorded.tolist() == simulator.mid2.tolist()


def test_blocks_of_markets_change_nothing(monkeypatch):
    shares = np.array([[0.0, 0.15], [0.3, 0.15]])
    whole = stylised_facts.measure(shares, 5, auctions=20, lags=1, engine="numpy")
    monkeypatch.setattr(stylised_facts, "_BLOCK", 2 * 2 * 20)
    parts = stylised_facts.measure(shares, 5, auctions=20, lags=1, engine="numpy")
    for name, values in whole.values.items():
        np.testing.assert_array_equal(values, parts.values[name])


def test_the_share_of_even_ticks():
    bid, ask = torch.tensor([[3, 1, 0, 0], [0, 0, 0, 0]], dtype=torch.int32), torch.tensor([[0, 0, 2, 4], [0, 0, 0, 0]])
    np.testing.assert_array_equal(stylised_facts._even_share(bid, ask), [0.5, np.nan])
