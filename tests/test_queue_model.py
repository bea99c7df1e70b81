"""How long a quote waits in its queue: engines beside the exact distribution of a queue model.

Noise agents whose every order is marketable, and makers one tick from the mid, between two best prices that never move:
one is deep, and at the other stand `AHEAD` units and then the quote. Makers join that queue behind the quote, and
nothing is cancelled. So the quote waits for the sum of what comes to the other side: one order per event with a fixed
probability, of 1 to `LARGEST` units with the same probability each. Its first unit trades at the event that takes that
sum above `AHEAD`, its last at the one that takes it to `AHEAD + OWN`.

The greatest distance between the share of markets that were filled by some event and its probability is at most
`bound(markets)`, but with a probability of `ERROR` (the inequality of Dvoretzky, Kiefer, Wolfowitz and Massart). Seeds
are fixed: a test that passes once passes always.
"""

import functools
import math

import numpy as np
import pytest
import torch
from strategies import ENGINES
from thorough import covering

import kineticsim_env as ks

AHEAD, OWN, LARGEST = 12, 4, 4
COMES = 3 / 4 / 2  # three of four agents are noise agents, and they buy as often as they sell
EVENTS = 90
MARKETS = {"numpy": 2_000, "cpu": 10_000, "cuda": 10_000}
ERROR = 1e-6
PRICE = 64
SIDES = {"bid": (1, [PRICE - 1, OWN, 0, 0]), "ask": (-1, [0, 0, PRICE + 1, OWN])}


def bound(markets):
    return math.sqrt(math.log(2 / ERROR) / (2 * markets))


@functools.cache
def filled_by(engine, side, replaced=False):
    """Shares of the markets whose quote had its first unit, and its last, by event 0, 1, ...: [2, EVENTS]."""
    sign, quote = SIDES[side]
    shares = {"noise": 0.75, "momentum": 0.0, "maker": 0.25, "num_agents": 4, "market_order_prob": 1.0}
    opening = {"init_price": PRICE, "init_depth": AHEAD, "max_order_qty": LARGEST, "maker_half_spread": 1}
    clock = {"arrivals": "clock", "mechanism": "continuous", "interval": 1}
    slots = (None, "noise") if replaced else (None,)
    markets, config = MARKETS[engine], ks.MarketConfig(**shares, **opening, **clock)
    sim = ks.Simulator(config, markets, engine=engine, seed=7, slots=slots)
    (sim.ask if sign > 0 else sim.bid)[:, PRICE + sign] = 10**6  # the other side never runs out
    sim.engine.state_changed()
    quotes = torch.zeros((markets, len(slots), 4), dtype=torch.int32)
    quotes[:, 0] = torch.tensor(quote)
    got = []
    for event in range(EVENTS):
        sim.step(None if event else quotes.to(sim.device))
        got.append((sign * sim.inventory[:, 0]).cpu().numpy())
    units = np.stack(got, axis=1)
    assert units.max() == OWN and (np.diff(units, axis=1) >= 0).all()
    return np.stack([(units >= wanted).mean(0) for wanted in (1, OWN)])


@functools.cache
def exact(ahead=AHEAD, own=OWN, comes=COMES):
    """The same of the model: the probability that the sum of what has come is above `ahead`, and `ahead + own`."""
    event = np.array([1 - comes, *[comes / LARGEST] * LARGEST])
    law, total = [], np.ones(1)
    for _ in range(EVENTS):
        total = np.convolve(total, event)[: ahead + own]  # of sums that have not filled it
        law.append((1 - total[: ahead + 1].sum(), 1 - total.sum()))
    return np.array(law).T


def pro_rata(ahead=AHEAD, own=OWN):
    """The same where an order is shared in proportion to quantity, rounded down for the quote."""
    states, law = {(own, ahead): 1.0}, []
    for _ in range(EVENTS):
        after: dict[tuple[int, int], float] = {}
        for (mine, others), chance in states.items():
            for units in range(LARGEST + 1):
                taken = min(units, mine + others)
                share = taken * mine // (mine + others) if mine + others else 0
                share = max(share, taken - others)
                left = (mine - share, others - taken + share)
                after[left] = after.get(left, 0.0) + chance * (COMES / LARGEST if units else 1 - COMES)
        states = after
        done = [sum(chance for (mine, _), chance in states.items() if mine <= own - wanted) for wanted in (1, own)]
        law.append(done)
    return np.array(law).T


def mean_and_deviation(law):
    """Mean and deviation of the events until a law's time, those after the last event left out: [2] each."""
    chance = np.diff(law, prepend=0.0, axis=1)
    number = np.arange(1, EVENTS + 1)
    mean = chance @ number
    return mean, np.sqrt(chance @ number**2 - mean**2)


def distances(seen, law):
    return np.abs(seen - law).max(1)


@covering
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("engine", ENGINES)
def test_times_to_the_first_and_the_last_unit(engine, side):
    seen, law = filled_by(engine, side), exact()
    assert seen.min() == 0 and seen[:, -1].tolist() == [1, 1] and (1 - law[:, -1] < 1e-6).all()
    assert (distances(seen, law) < bound(MARKETS[engine])).all()
    mean, deviation = mean_and_deviation(law)
    error = abs(mean_and_deviation(seen)[0] - mean)
    assert (
        error < 5 * deviation / math.sqrt(MARKETS[engine])
    ).all()  # of a normal mean so with a probability below ERROR


@pytest.mark.parametrize("side", SIDES)
def test_an_agent_that_is_silent_leaves_its_events_empty(side):
    """One of the three noise agents is replaced by a learner that does nothing."""
    seen = filled_by("cpu", side, replaced=True)
    assert (distances(seen, exact(comes=2 / 4 / 2)) < bound(MARKETS["cpu"])).all()
    assert (distances(seen, exact()) > 5 * bound(MARKETS["cpu"])).all()


# Whether the times to the first and to the last unit tell; shared out, the last goes with the last of the others.
WRONG = {
    "at the front": (functools.partial(exact, ahead=0), (True, True)),
    "pro rata": (pro_rata, (True, False)),
    "a unit further ahead": (functools.partial(exact, ahead=AHEAD - 1), (True, True)),
    "a unit further behind": (functools.partial(exact, ahead=AHEAD + 1), (True, True)),
    "a unit larger": (functools.partial(exact, own=OWN + 1), (False, True)),
    "others' orders rarer by a tenth": (functools.partial(exact, comes=0.9 * COMES), (True, True)),
}


@pytest.mark.parametrize("name", WRONG)
def test_other_models_are_told_apart(name):
    law, (first, last) = WRONG[name]
    far = distances(filled_by("cpu", "bid"), law()) > 2 * bound(MARKETS["cpu"])
    assert far.tolist() == [first, last]


@pytest.mark.parametrize("name", WRONG)
def test_other_models_have_other_means(name):
    law, _ = WRONG[name]
    mean, deviation = mean_and_deviation(exact())
    assert (abs(mean_and_deviation(law())[0] - mean) / deviation * math.sqrt(MARKETS["cpu"])).max() > 10
