"""One stream of orders under every rule: what examples/studies/mechanisms measures, and the levers that it shows."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

import kineticsim_env as ks
from examples.studies.mechanisms import study as mechanisms

PAGE = Path(__file__).parent.parent / "examples" / "studies" / "mechanisms" / "README.md"
RULES = (mechanisms.CONTINUOUS, 1, 5, 100)


@pytest.mark.parametrize("interval", RULES[1:])
def test_the_same_orders_come_under_every_rule(interval):
    """Where nothing disappears, units that rest and units that traded together are the units that came, per side."""
    sides = []
    for rule in (mechanisms.CONTINUOUS, interval):
        config = mechanisms.market(rule).replace(market_order_prob=0.0, cancel_prob=0.0)
        sim = ks.Simulator(config, 8, engine="cpu", seed=3)
        sim.run(500 // config.interval)
        sides.append(torch.stack([side.sum(1) + sim.volume for side in (sim.bid, sim.ask)]))
        assert (sim.volume > 0).all()
    assert sides[0].equal(sides[1])


@pytest.mark.parametrize("interval", RULES)
def test_the_fundamental_price_is_the_same_under_every_rule(interval, monkeypatch):
    monkeypatch.setattr(mechanisms, "EVENTS", 2000)
    path = mechanisms.play(interval, 4, 0.2, "cpu")
    length = interval or 1
    looks = mechanisms.looks()
    seen = mechanisms.fundamental_at_looks(4, 0.2, "cpu")
    ends = np.arange(mechanisms.WARMUP + length, mechanisms.WARMUP + mechanisms.EVENTS + 1, length)
    at_ends = np.isin(looks, ends)
    np.testing.assert_array_equal(seen[:, at_ends], path.fundamental[:, np.isin(ends, looks)])
    assert at_ends.any() and np.ptp(seen) > 8


def test_measures_of_a_path_by_hand(monkeypatch):
    monkeypatch.setattr(mechanisms, "APART", 14)  # two looks
    path = mechanisms.Path(
        price=np.array([[10, 12, 13, 8]]),
        fundamental=np.array([[10, 10]]),
        cleared=np.array([[13, 6]]),
        volume=np.array([5.0]),
        spread=np.array([2.0]),
    )
    found = mechanisms.measure(path, np.array([[10, 10, 12, 12]]))
    assert found.volatility[0] == pytest.approx(np.sqrt((3**2 + 4**2) / 2))
    assert found.error[0] == pytest.approx(np.sqrt((0 + 4 + 1 + 16) / 4))
    assert found.fresh[0] == pytest.approx(np.sqrt((9 + 16) / 2))
    assert (found.volume[0], found.spread[0]) == (5.0, 2.0)


def examples() -> list[tuple[str, str]]:
    """Return the fields and examples of the page's table of levers."""
    table = PAGE.read_text().partition("\n## Levers")[2].partition("\n## ")[0]
    return re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", table, re.MULTILINE)


@pytest.mark.parametrize(("field", "example"), examples())
def test_each_lever_of_the_table_changes_the_market(field, example):
    """Played with one quote, so that fees count too."""
    config = ks.MarketConfig(
        arrivals="clock", mechanism="continuous", interval=20, num_agents=20, momentum=0.3, noise=0.55
    )
    changes = eval(f"dict({example})")
    assert field in changes
    states = []
    for one in (config, config.replace(**changes)):
        sim = ks.Simulator(one, 4, engine="cpu", seed=1, slots=1)
        sim.run(5)
        quotes = torch.zeros((4, 1, 4), dtype=torch.int32)
        quotes[..., 0], quotes[..., 1] = 70, 4
        sim.step(quotes, 10)
        states.append({name: sim.tensors[name].clone() for name in ("bid", "ask", "last_tick", "fees", "queue")})
    assert any(not states[0][name].equal(states[1][name]) for name in states[0])


def test_the_table_has_every_lever():
    shown = {field for field, _ in examples()}
    levers = {"rounding", "reference", "taker_offset", "fee", "taker_fee", "tax", "collar", "tick_size", "regimes"}
    assert shown == levers | {"quote_latency"}
