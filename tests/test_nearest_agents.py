"""The search of scripts/pages/nearest_agents.py: which markets its numbers are, and what it makes least."""

import numpy as np
import pytest

import kineticsim_env as ks
from examples.studies.realistic import study
from kineticsim_env.runtime import build
from scripts.pages.nearest_agents import EIGHT, FOURTEEN, SPACES, Aim, Bounds, config_of
from scripts.pages.order_flow import of_agents

REALISTIC = ks.MarketConfig.preset("realistic")
SIX = [name for name in SPACES[FOURTEEN] if name not in SPACES[EIGHT]]


def test_the_numbers_of_the_preset_are_the_preset():
    eight = study.POINT._asdict()
    assert config_of(eight) == REALISTIC
    six = {name: getattr(REALISTIC, name) for name in SIX}
    assert len(six) == 6 and config_of(eight | six) == REALISTIC


def test_momentum_agents_take_from_noise_agents_and_makers_alike():
    six = {name: getattr(REALISTIC, name) for name in SIX}
    config = config_of(study.POINT._asdict() | six | {"noise": 0.25, "momentum": 0.2})
    assert [config.noise, config.maker, config.momentum] == pytest.approx([0.2, 0.6, 0.2])


def test_bounds():
    assert [Bounds(2, 6).at(place) for place in (0, 0.5, 1)] == [2, 4, 6]
    assert [Bounds(1, 100, True).at(place) for place in (0, 0.5, 1)] == pytest.approx([1, 10, 100])


@pytest.mark.skipif(build.cpu_unavailable() is not None, reason="tapes need a C++ compiler")
def test_a_market_is_nearest_to_its_own_events():
    continuous, news = (ks.MarketConfig.preset(name) for name in ("continuous", "news"))
    some = ks.Simulator(continuous, 1, engine="cpu", seed=9).tape(0, 300, progress=False).events(interval_seconds=1.0)
    real = of_agents(continuous, some, seed=1)
    aim = Aim(real, 1)
    own, alike, other = aim.distance(continuous, 1), aim.distance(continuous, 2), aim.distance(news, 1)
    assert own < alike < other
    assert abs(int((~real.opening).sum()) / int((~some.opening).sum()) - 1) < 0.1
    assert np.diff(real.sessions) == pytest.approx(np.diff(some.sessions), rel=1e-6)
