"""The queue-reactive null model of docs/order_flow.md: of markets that it played, its fit finds known rates."""

import dataclasses

import numpy as np
import pytest

import kineticsim_env as ks
from kineticsim_env.runtime.flow_table import BANDS
from scripts.pages import queue_reactive
from scripts.pages.order_flow import PLAIN, nulls
from scripts.pages.queue_reactive import QUEUES, Queues, Rates, away_from

ORDERS = np.array(QUEUES)


@pytest.fixture(scope="module")
def table():
    """With one size, one life and a Poisson clock."""
    return nulls(ks.OrderFlow.preset("btcusd"))[PLAIN]


def test_queues_are_whole_orders_rounded_up(table):
    queues, size = Queues(table), int(table.limit_size[0, 1, 0, 0])
    units = np.zeros(256, np.int64)
    units[0] = 3 * size + 1
    assert queues.orders(units)[:2].tolist() == [4, 0]
    assert queues.classes(units)[:2].tolist() == [4, 0]
    units[0] = 1000 * size
    assert queues.classes(units)[0] == len(QUEUES) - 1


def test_what_rests_is_counted_from_a_price_to_either_side():
    units = np.arange(10)
    assert away_from(units, 3, 1)[:8].tolist() == [4, 5, 6, 7, 8, 9, 0, 0]
    assert away_from(units, 3, -1)[:4].tolist() == [2, 1, 0, 0]


def test_rates_are_found_again(table):
    """Up to a common factor, as choices have none: limit orders that shun queues, cancellations per order that fall."""
    near = np.where(np.arange(BANDS) < 8, 0.02, 0.0005)
    rates = Rates(near[:, None] / (1 + ORDERS), near[:, None] * 0.2 * np.sqrt(ORDERS), np.full(len(QUEUES), 1e-4))
    # An order at every tick, so that all classes are seen from the first event on.
    opened = dataclasses.replace(table, resting=np.where(table.resting > 0, 1 << 16, 0))
    found = queue_reactive.fit(queue_reactive.simulate(opened, rates, 12_000, seed=1), opened)
    for name, classes in (("limit", [0, 1, 2, 3]), ("cancel", [1, 2, 3])):
        ratios = (getattr(found, name) / np.maximum(getattr(rates, name), 1e-12))[1:8, classes].mean(0)
        base = (found.limit / rates.limit)[1:8, [0, 1, 2]].mean()
        assert ratios / base == pytest.approx(np.ones(len(classes)), abs=0.15), name
