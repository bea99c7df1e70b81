"""The study of informed traders and the spread: what its traders compute, and what it says of the market."""

import types

import numpy as np
import pytest
from examples_of_traders import load

import kineticsim_env as ks
from kineticsim_env.agents.numbers import Int32
from kineticsim_env.runtime import build

ENGINE = "numpy" if build.cpu_unavailable() else "cpu"


@pytest.fixture(scope="module")
def study():
    return load("glosten_milgrom")


def known(**values):
    """Return what a trader sees or has, by name."""
    return types.SimpleNamespace(**{name: Int32(value) for name, value in values.items()})


def test_makers_learn_how_far_the_mid_goes_with_takers(study):
    """By hand: a taker bought at mid 100, and eight visits later the mid is 103: a sample of 3 ticks."""
    maker = study.learning_maker.program.play
    own = known(mid=200, took=0, waited=0, cost=0, floor=1, patience=8, lookback=16, learns=1, quantity=10, index=0)
    order = maker(known(mid2=200, last_price=102, t=0), own, None)
    assert (own.took, own.mid, own.waited, own.cost) == (1, 200, 0, 0)
    assert order == (1, 99, 10, 0)  # a floor of one tick below the mid of 100
    for _ in range(7):
        maker(known(mid2=203, last_price=90, t=1), own, None)
        assert own.cost == 0 and own.took == 1
    order = maker(known(mid2=206, last_price=103, t=1), own, None)
    assert own.cost == 3 * 64 // 16 and own.took == 0 and own.mid == 206  # the last price is the mid: nobody is known
    assert order[:2] == (-1, 105)  # 103 and 1.19 ticks, rounded up
    own.took, own.mid, own.waited, own.cost = -1, 206, 7, 64
    maker(known(mid2=210, last_price=105, t=1), own, None)
    assert own.cost == 64 + (-128 - 64) // 16  # a seller was wrong by two ticks
    still = known(mid=200, took=1, waited=7, cost=64, floor=1, patience=8, lookback=16, learns=0, quantity=1, index=0)
    maker(known(mid2=220, last_price=0, t=0), still, None)
    assert still.cost == 64


def test_informed_takers_take_what_pays_and_nothing_else(study):
    taker = study.informed_taker.program.play
    own = known(max_qty=4)

    class Draw:
        def below(self, n):
            return n - Int32(1)

    for fundamental, side in ((105, 1), (104, 0), (100, 0), (98, 0), (97, -1)):
        order = taker(known(fundamental=fundamental, best_bid=98, best_ask=104), own, Draw())
        assert (0 if order is None else order[0]) == side
        assert not side or order == (side, fundamental, 4, 0)


@pytest.mark.parametrize("informed", [2, 18])
def test_pace_makers_and_news_are_the_same_everywhere(study, informed):
    markets = [make(informed) for make in study.STUDIES.values()]
    news = ks.MarketConfig.preset("news")
    for config in markets:
        assert config.num_agents + config.added_agents == study.AGENTS == news.num_agents
        assert (config.interval, config.beat, config.regimes) == (news.interval, news.beat, news.regimes)
        learning = sum(made.count for kind, made in (config.agents or {}).items() if kind.name == "learning_maker")
        assert learning + round(config.maker * config.num_agents) == study.MAKERS


def test_news_with_its_own_shares_is_the_preset(study):
    config = study.news(10)
    assert config == ks.MarketConfig.preset("news")


def test_who_narrows_the_spread_and_who_widens_it(study, monkeypatch):
    monkeypatch.setattr(study, "COUNTS", (2, 18))
    found = study.measure(8, 200, ENGINE)

    def change(name):
        few, many = (found[name][count]["spread"] for count in ("2", "18"))
        assert np.isfinite([few.mean, many.mean]).all() and few.count == 8
        return many.mean / few.mean, few.interval() + many.interval() < abs(many.mean - few.mean)

    for name in ("news, built-in makers", "news, coins for informed agents"):
        ratio, sure = change(name)
        assert ratio < 0.8 and sure
    ratio, sure = change("takers, makers that learn")
    assert ratio > 1.25 and sure
    assert abs(change("takers, guesses for informed ones")[0] - 1) < 0.08
    assert abs(change("takers, makers that do not learn")[0] - 1) < 0.12
    assert change("news, makers that learn")[0] < 1
