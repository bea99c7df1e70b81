"""Multinomial populations: known answers from plain Python integers, and that they depend on the seed alone."""

from fractions import Fraction

import numpy as np
import plain_rules
import pytest
import torch
from strategies import ENGINES

import kineticsim_env as ks
from kineticsim_env.config import CLASSES
from kineticsim_env.engines import opening

SHARES = dict(noise=0.4, momentum=0.3, maker=0.2, fundamental=0.1)


def draw_by_hand(seed, agents, shares):
    """Count classes: agent i's is the first whose cumulative share exceeds the top half of word 3 * 2^30 + i."""
    bounds, total = [], 0.0
    for share in shares:
        total += share
        bounds.append(round(total * 2.0**32))  # Python rounds halves to even
    bounds[-1] = 2**32
    counts = [0] * len(shares)
    for agent in range(agents):
        top = plain_rules.word(seed, 0, 0, 3 * 2**30 + agent) >> 32
        counts[next(i for i, bound in enumerate(bounds) if top < bound)] += 1
    return counts


def draw(seeds, **fields):
    config = ks.MarketConfig(population="multinomial", **fields)
    return opening.multinomial_counts(config, np.array(seeds, dtype=np.int64), np.arange(len(seeds))).tolist()


@pytest.mark.parametrize("agents", [1, 7, 256])
@pytest.mark.parametrize(
    "shares", [(0.4, 0.3, 0.2, 0.1), (0.7, 0.15, 0.15, 0.0), (0.0, 1.0, 0.0, 0.0), (0.0, 0.5, 0.0, 0.5)]
)
def test_known_answers(agents, shares):
    seeds = [0, 1, 2, -1, 2**32, 2**62 + 5, -(2**63), 2**63 - 1]
    wanted = [draw_by_hand(seed, agents, shares) for seed in seeds]
    assert draw(seeds, num_agents=agents, **dict(zip(CLASSES, shares, strict=True))) == wanted


def test_per_market_shares_and_agents():
    shares = [(0.4, 0.3, 0.2, 0.1), (0.1, 0.2, 0.3, 0.4), (1.0, 0.0, 0.0, 0.0)]
    columns = {name: [row[i] for row in shares] for i, name in enumerate(CLASSES)}
    wanted = [draw_by_hand(5 + m, (30, 3, 9)[m], shares[m]) for m in range(3)]
    assert draw([5, 6, 7], num_agents=[30, 3, 9], **columns) == wanted


def test_the_last_class_takes_what_rounding_leaves(monkeypatch):
    monkeypatch.setattr(opening, "high_halves", lambda z: np.full_like(z, 2**32 - 1))
    assert draw([1, 2], num_agents=5, noise=1 - 9e-10, momentum=0, maker=0, fundamental=0) == [[0, 0, 0, 5]] * 2


def test_blocks_do_not_matter(monkeypatch):
    whole = draw(range(20), num_agents=100, **SHARES)
    monkeypatch.setattr(opening, "_BLOCK", 60)  # three agents of each of 20 markets at once
    assert draw(range(20), num_agents=100, **SHARES) == whole


def test_counts_follow_the_shares():
    """Mean and variance of each class over many markets, within four standard errors."""
    markets, agents = 4000, 50
    counts = np.array(draw(range(markets), num_agents=agents, **SHARES))
    assert (counts.sum(axis=1) == agents).all()
    for column, share in zip(counts.T, SHARES.values(), strict=True):
        variance = float(Fraction(agents) * Fraction(share) * (1 - Fraction(share)))
        assert abs(column.mean() - agents * share) < 4 * (variance / markets) ** 0.5
        assert abs(column.var() / variance - 1) < 4 * (2 / markets) ** 0.5


@pytest.mark.parametrize("engine", ENGINES)
def test_the_simulator_draws_when_a_market_is_seeded(engine):
    """The seed decides, not the episode; a masked seeding, a loaded state and single markets draw the same."""
    config = ks.MarketConfig(num_agents=30, population="multinomial", **SHARES)

    def by_hand(seeds):
        return [draw_by_hand(seed, 30, SHARES.values()) for seed in seeds]

    sim = ks.Simulator(config, 4, engine=engine, seed=10)
    assert sim._counts.tolist() == by_hand([10, 11, 12, 13])
    sim.run(3)
    sim.reset()
    assert sim._counts.tolist() == by_hand([10, 11, 12, 13])
    sim.reset(seed=[1, 2, 3, 4], mask=[True, False, False, True])
    assert sim._counts.tolist() == by_hand([1, 11, 12, 4])
    sim.run(3)
    other = ks.Simulator(config, 4, engine=engine, seed=77)
    other.load_state_dict(sim.state_dict())
    assert other._counts.tolist() == sim._counts.tolist() == sim.branch()._counts.tolist()
    rows = other.rows
    assert (np.stack([rows[f"num_{name}"] for name in CLASSES], axis=1) == sim._counts).all()
    other.run(5)
    sim.run(5)
    assert torch.equal(other.bid, sim.bid)


def test_few_populations_are_alike():
    assert len({tuple(row) for row in draw(range(200), num_agents=256)}) > 150
