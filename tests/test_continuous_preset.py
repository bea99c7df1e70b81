"""The preset `"continuous"`: what its study measures holds in small, and its makers do what it says."""

import numpy as np
import pytest
import torch

import kineticsim_env as ks
from examples.studies.presets import makers
from examples.studies.presets import makers as study
from kineticsim_env.statistics import mean_and_error

PRESET = ks.MarketConfig.preset("continuous")
MARKETS = 192


@pytest.fixture(scope="module")
def anew():
    return makers.play(PRESET, 4, 0.04, MARKETS, "cpu")


def surely_above(values, bound=0.0):
    mean = mean_and_error(values)
    return mean.mean - 3 * mean.error > bound


def test_books_have_two_sides_and_stay_finite():
    market = makers.without_learners(PRESET, 64, "cpu")
    assert market.spread.mean > 3 and market.two_sided.mean > 0.99
    early, late = market.depth[100], market.depth[3000]
    assert 30 < early.mean < 50 and abs(late.mean - early.mean) < 4 * (early.error + late.error)


def test_quotes_near_the_mid_lose_and_those_inside_earn(anew):
    near = makers.play(PRESET, 1, 0.04, MARKETS, "cpu")
    assert surely_above(anew.pnl) and surely_above(-near.pnl) and surely_above(near.bought - anew.bought)
    assert abs((anew.bought - anew.sold).mean()) < 0.02 * anew.bought.mean()


def test_random_quotes_earn_little(anew):
    drawn = study.play_random(PRESET, MARKETS, "cpu")
    assert surely_above(0.6 * anew.pnl - drawn.pnl)


def test_latency_costs(anew):
    half, whole = (study.play_late(PRESET, 4, 0.04, latency, MARKETS, "cpu") for latency in (10, 20))
    assert surely_above(anew.pnl - half.pnl) and surely_above(half.pnl - whole.pnl)
    assert np.array_equal(study.play_late(PRESET, 4, 0.04, 0, MARKETS, "cpu").pnl, anew.pnl)


def test_a_place_in_a_queue_is_worth_fills():
    kept, lost = (study.play_patient(PRESET, 4, 0.02, keeps, MARKETS, "cpu") for keeps in (True, False))
    assert surely_above(kept.bought + kept.sold - lost.bought - lost.sold)


@pytest.mark.parametrize("keeps", [True, False])
def test_patient_quotes_stay_and_keep_or_lose_their_places(keeps, monkeypatch):
    """A quote that stays has no more ahead of it than before if it keeps its place; else sometimes more."""
    seen = []
    step = makers.Simulator.step

    def watched(simulator, quotes, *rest):
        before = simulator.quotes.clone(), simulator.queue.clone()
        fills = step(simulator, quotes, *rest)
        stayed = (quotes[..., ::2] == before[0][..., ::2]) & (before[0][..., 1::2] > 0) & (quotes[..., 1::2] > 0)
        still = stayed & (simulator.quotes[..., 1::2] > 0) & (simulator.quotes[..., ::2] == quotes[..., ::2])
        seen.append((still, simulator.queue - before[1]))
        return fills

    monkeypatch.setattr(makers.Simulator, "step", watched)
    monkeypatch.setattr(makers, "liquidate", lambda simulator: simulator.cash)
    study.play_patient(PRESET, 4, 0.02, keeps, 32, "cpu")
    still, grown = (torch.stack(part) for part in zip(*seen, strict=True))
    assert still.double().mean() > 0.2
    assert bool((grown[still] > 0).any()) != keeps
