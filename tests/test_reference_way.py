"""Quotes under way on the plain reference: known answers by hand, and laws over random markets."""

import random
from collections import Counter

import ensembles
import pytest
from ensembles import KINDS, random_ensemble, under_way, with_flags
from pencil_markets import NEVER, NONE, ask, bid, inactive, lone_maker
from reference import Reference
from reference.cases import play, random_fields, suitable_quotes
from reference.orders import BUY
from thorough import examples

MARKETS = examples(300)


def late(latency, added=0, **fields):
    """A market in which only slots act, slot 0 and those added, in intervals of one event; 8 rest at 7 and at 9."""
    return inactive(added, quote_latency=latency, **{"interval": 1, "beat": NEVER} | fields)


def bids(seen):
    """Price and quantity of what each slot bids."""
    return [tuple(quote[:2]) for quote in seen["quotes"]]


# When it arrives ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("latency", "ahead"), [(0, 8), (1, 9), (2, 9), (3, 10), (4, 10), (5, 11), (8, 12), (9, 13), (99, None)]
)
@pytest.mark.parametrize("n", [1, 2])
def test_quotes_arrive_before_their_event_whatever_decision_that_is_in(latency, n, ahead):
    """Four events per interval: a built-in unit joins the bids at every even event, the quote before its own."""
    market = lone_maker(interval=4, beat=NEVER, quote_latency=latency)
    seen = market.decision([bid(7, 1)], n)
    while len(seen) < 4:
        seen += market.decision(None, n)
    for number, one in enumerate(seen):
        arrived = latency < 4 * (number + 1)
        assert one["due"] == ([] if arrived else [latency])
        assert one["quotes"] == [[7, 1, 0, 0] if arrived else NONE]
    assert seen[-1]["ahead"] == [[ahead or 0, 0]]


def test_it_is_due_at_the_event_after_the_decision_began():
    market = lone_maker(interval=4, beat=NEVER, quote_latency=5)
    market.decision(None, 3)
    assert market.interval([bid(7, 1)])["due"] == [17]
    assert market.interval()["ahead"] == [[8 + 9, 0]]  # the units of events 0, 2, ... 16


def test_it_arrives_after_a_beat_that_is_due_there():
    """Half of what rests is cancelled before events 0, 2, 4, ..., and the quote counts what is left."""
    for latency, ahead in ((1, 4), (2, 2), (3, 2), (4, 1)):
        market = late(latency, init_depth=8, cancel_prob=0.5, beat=2)
        market.interval([bid(7, 1)])
        seen = market.decision(None, latency)[-1]
        assert seen["ahead"] == [[ahead, 0]] and seen["bid"][7] == ahead


def test_the_beat_there_decides_the_collar():
    """The first quote trades at 9 before event 1, so that the second, before event 2, may bid 10 where 12 is asked."""
    market = late(1, collar=1, beat=2)
    market.interval([bid(9, 1)])
    market.interval([bid(12, 20)])
    seen = market.interval()
    assert seen["fills"] == [[7, 0]] and bids(seen) == [(10, 13)]


def test_a_run_lets_quotes_arrive():
    market = late(3)
    market.interval([bid(5, 2)])
    assert [one["quotes"][0][1] for one in market.decision(None, 4)] == [0, 0, 2, 2]


def test_what_is_under_way_does_not_change_with_what_was_given():
    market, given = late(2), [bid(5, 2)]
    market.interval(given)
    given[0][1] = 7
    assert bids(market.decision(None, 2)[-1]) == [(5, 2)]


def test_limits_and_levers_are_those_at_the_arrival():
    market = late(2)
    market.interval([bid(6, 9)])
    market.set_parameters(max_quote_qty=4, tick_size=5)
    assert bids(market.decision(None, 2)[-1]) == [(5, 4)]


def test_flags_wait_as_well():
    """What is kept is what stands when the second submission arrives: the first, less two units that slot 1 sold."""
    market = late(2, 1)
    market.interval([[7, 4, 0, 0, "", ""], NONE])
    market.interval([[99, 99, 0, 0, "keep", ""], [0, 0, 7, 10, "", "ioc"]])
    assert market.observe()["due"] == [2, 3]
    seen = market.decision(None, 2)
    assert bids(seen[0])[0] == (7, 4)
    # t = 3: slot 1 has the first turn.
    assert bids(seen[1])[0] == (7, 2) and seen[1]["fills"] == [[2, 0], [0, 10]]


# Several under way ----------------------------------------------------------------------------------------------------


def test_four_are_under_way_and_a_fifth_replaces_the_newest():
    market = late(10)
    for number in range(4):
        market.interval([bid(number, 1)])
    assert market.observe()["due"] == [10, 11, 12, 13]
    market.interval()  # a decision without quotes submits nothing
    seen = market.interval([bid(6, 3)])
    assert seen["due"] == [10, 11, 12, 15] and seen["due_quotes"][-1] == [bid(6, 3)]
    stood = [bids(one)[0] for one in market.decision(None, 10)]  # intervals 6 to 15
    assert stood == [(0, 0)] * 4 + [(0, 1), (1, 1), (2, 1), (2, 1), (2, 1), (6, 3)]


def test_one_that_is_due_as_the_decision_begins_is_still_under_way():
    """The fifth is submitted before the first arrives, though at the same event."""
    market = late(4)
    for number in range(4):
        market.interval([bid(number, 1)])
    seen = market.interval([bid(6, 3)])
    assert seen["due"] == [5, 6, 8] and bids(seen) == [(0, 1)]
    assert market.interval([bid(5, 3)])["due"] == [6, 8, 9]


def test_none_overtakes_another():
    market = late(10, 1)
    market.interval([bid(5, 1), NONE])
    market.set_parameters(quote_latency=2)
    market.interval([bid(4, 1), NONE])
    assert market.observe()["due"] == [10, 10]
    market.decision(None, 7)
    market.interval([bid(3, 1), NONE])  # 9 + 2 is later than 10
    assert market.observe()["due"] == [10, 10, 11]
    seen = market.decision(None, 2)
    assert [bids(one)[0] for one in seen] == [(4, 1), (3, 1)]


def test_what_replaces_the_newest_waits_for_the_one_before_that():
    market = late(10)
    for _ in range(4):
        market.interval([bid(5, 1)])
    market.set_parameters(quote_latency=0)
    seen = market.interval([bid(6, 1)])
    assert seen["due"] == [10, 11, 12, 12] and bids(seen) == [(0, 0)]


def test_raised_latencies_leave_alone_what_is_under_way():
    market = late(2)
    market.interval([bid(5, 1)])
    market.set_parameters(quote_latency=20)
    assert market.interval([bid(4, 1)])["due"] == [2, 21]


def test_two_that_are_due_at_an_event_arrive_one_after_another_each_of_all_slots():
    """At event 6 slot 1 sells to slot 0's bid of the first submission before the second withdraws it."""
    market = late(6, 1)
    market.interval([bid(8, 3), ask(8, 2)])
    market.set_parameters(quote_latency=1)
    market.interval([bid(6, 1), NONE])
    seen = market.decision(None, 5)
    assert not any(one["volume"] for one in seen[:4]) and seen[3]["due"] == [6, 6]
    assert seen[4]["fills"] == [[2, 0], [0, 2]] and bids(seen[4])[0] == (6, 1)


def test_earlier_arrivals_of_an_interval_go_first():
    """At t = 6 slot 0 has the first turn in both, and slot 1's bid of the first submission is before it."""
    market = late(6, 2)
    market.interval([NONE, bid(8, 2), NONE])
    market.set_parameters(quote_latency=1)
    market.interval([bid(8, 2), bid(8, 2), NONE])
    market.decision(None, 4)
    market.set_parameters(quote_latency=0)
    seen = market.interval([bid(8, 2), bid(8, 2), ask(8, 3)])  # the third that is due at event 6
    assert seen["due"] == [] and seen["fills"] == [[1, 0], [2, 0], [0, 3]]


def test_turns_begin_with_the_slot_of_the_interval_of_arrival():
    for latency, turns in ((3, [0, 1, 2]), (4, [1, 2, 0]), (5, [2, 0, 1])):
        market = late(latency, 2)
        market.interval([bid(8, 2)] * 3)
        market.decision(None, latency)
        moments = [market.quotes[slot][0][BUY][0].moment for slot in range(3)]
        assert sorted(range(3), key=moments.__getitem__) == turns


# Resets, rejects, and a market that stops -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [None, 5])
def test_a_reset_clears(seed):
    market = late(3)
    market.interval([bid(5, 2)])
    market.reset(seed)
    seen = market.decision(None, 6)[-1]
    assert seen["due"] == [] and seen["quotes"] == [NONE]


def test_rejects_are_of_what_arrives():
    market = late(2)
    cross = [[9, 1, 0, 0, "post-only", ""]]
    market.interval(cross)
    assert market.rejects == [[None, None]]
    market.interval([NONE])
    assert market.rejects == [[None, None]]
    market.interval()
    assert market.rejects == [["post-only", None]]
    market.interval()
    assert market.rejects == [[None, None]]
    market.interval(cross)
    market.decision(cross, 2)  # the first arrives in it, its own in the next
    assert market.rejects == [["post-only", None]] and market.observe()["due"] == [7]


def test_rejects_are_of_all_that_arrive_in_a_decision():
    market = late(2)
    market.interval([[9, 1, 0, 0, "post-only", ""]])
    market.interval([[0, 0, 7, 1, "", "post-only"]])
    market.decision(None, 2)
    assert market.rejects == [["post-only", "post-only"]]


def test_nothing_is_under_way_in_a_market_that_stops():
    market = late(1, init_depth=2**31 - 5)
    market.interval([bid(7, 2)])
    market.interval([bid(7, 5)])  # those 2 arrive and leave room for 2 more
    seen = market.interval([bid(6, 1)])
    assert seen["error"] == 1 and seen["t"] == 2 and seen["due"] == []
    assert market.interval([bid(6, 1)]) == seen  # nothing is submitted to a market that has stopped


def test_what_is_under_way_as_tensors_have_it():
    """Numbers are as they were given, before limits; flags of the bid in bits 0-7, of the ask in bits 8-15."""
    market = late(5)
    market.interval([[7, -1, 0, 4, "keep ioc", "market"]])
    market.interval([bid(3, 2)])
    empty = [[0, 0, 0, 0]]
    assert under_way(market) == {
        "due": [6, 7, 0, 0],
        "due_quotes": [[[7, -1, 0, 4]], [bid(3, 2)], empty, empty],
        "due_flags": [[5 + (8 << 8)], [0], [0], [0]],
    }
    market = late(5, orders_per_side=2)
    market.interval([[bid(7, 1), [0, 0, 9, 3, "", "post-only"]]])
    tensors = under_way(market)
    assert tensors["due_quotes"] == [[[bid(7, 1), ask(9, 3)]], *[[[NONE, NONE]]] * 3]
    assert tensors["due_flags"] == [[[0, 2 << 8]], *[[[0, 0]]] * 3]


# Laws -----------------------------------------------------------------------------------------------------------------


def without(seen, *names):
    return {name: value for name, value in seen.items() if name not in names}


@pytest.mark.parametrize("ten", range(MARKETS // 10))
def test_late_quotes_are_early_ones_that_are_given_later(ten):
    """With a latency of whole intervals, each submission is given later and at once to a market without latency."""
    arrived = sum(given_later(10 * ten + number) for number in range(10))
    assert arrived > 30


def given_later(seed):
    rng = random.Random(f"later {seed}")
    fields = random_fields(rng, "continuous")
    fields["orders_per_side"] = levels = rng.choice([1, 1, 3])
    events = fields["interval"] or fields["num_agents"]
    intervals, slots = rng.choice([1, 2, 3, 4, 9]), rng.randint(1, 3)
    waits = Reference({**fields, "quote_latency": intervals * events}, slots, seed)
    at_once = Reference({**fields, "quote_latency": 0}, slots, seed)
    way, arrived = [], 0
    for t in range(40):
        seen = waits.observe()
        assert seen["due"] == [due * events for due, _ in way]
        quotes = None
        if rng.random() < 0.7:
            quotes = with_flags(rng, suitable_quotes(rng, seen, slots, levels), levels)
            way = [*way[:3], (t + intervals, quotes)]
        now = [given for due, given in way if due == t]
        way = way[len(now) :]
        seen, wanted = waits.interval(quotes), at_once.interval(*now)
        assert (
            without(seen, "due", "due_quotes") == without(wanted, "due", "due_quotes")
            and waits.rejects == at_once.rejects
        )
        if seen["error"]:
            break
        arrived += len(now)
    return arrived


@pytest.mark.parametrize("seed", range(MARKETS // 3))
def test_how_decisions_are_cut_says_nothing_but_who_is_first(seed):
    """With one slot, whose turn it always is: long intervals, and short ones with quotes at the same events."""
    rng = random.Random(f"cut {seed}")
    fields = random_fields(rng, "continuous")
    fields["beat"] = fields["beat"] or fields["num_agents"]
    events, parts = rng.choice([1, 2, 3]), rng.choice([2, 3, 5])
    fields["quote_latency"] = rng.randint(0, 5 * events * parts)
    long = Reference({**fields, "interval": events * parts}, 1, seed)
    short = Reference({**fields, "interval": events}, 1, seed)
    for _ in range(15):
        quotes = suitable_quotes(rng, long.observe(), 1, 1) if rng.random() < 0.7 else None
        seen, n = long.interval(quotes), rng.randint(1, parts)
        short.decision(quotes, n)
        if n < parts:
            short.decision(None, parts - n)
        if rng.random() < 0.2:
            late = rng.randint(0, 5 * events * parts)
            long.set_parameters(quote_latency=late)
            short.set_parameters(quote_latency=late)
        of_intervals = "t", "trades", "fills", "signed_volume"
        assert without(seen, *of_intervals) == without(short.observe(), *of_intervals)


@pytest.mark.parametrize("seed", range(MARKETS // 3))
def test_what_is_under_way_is_in_order_and_yet_to_come(seed):
    rng = random.Random(f"order {seed}")
    fields = random_fields(rng, "continuous")
    market, events = Reference(fields, rng.randint(1, 3), seed), fields["interval"] or fields["num_agents"]
    for _ in range(20):
        play(market, rng, 2)
        due = market.observe()["due"]
        assert due == sorted(due) and len(due) <= 4 and all(event >= market.t * events for event in due)
        tensors = under_way(market)
        assert len(tensors["due"]) == len(tensors["due_quotes"]) == len(tensors["due_flags"]) == 4
        assert [bool(one) for one in tensors["due"]] == [True] * len(due) + [False] * (4 - len(due))
        market.set_parameters(quote_latency=rng.choice([fields["quote_latency"], rng.randint(0, 4 * events)]))


# What the suite draws -------------------------------------------------------------------------------------------------


def test_random_markets_come_to_all_lengths(monkeypatch):
    """Calls as `Ensemble` makes them: queues of 0 to 4, a replaced newest, two that are due at one event."""
    monkeypatch.setattr(ensembles, "LATE", True)
    found = Counter()
    for seed in range(60):
        rng = random.Random(f"draws {seed}")
        fields, _ = random_ensemble(rng, *KINDS[2], 2, seed % 2 > 0)
        markets = [Reference(fields, 2, seed, m) for m in range(2)]
        found["config"] += 1
        events = markets[0].rules.events
        found["may wait"] += any(market.rules.quote_latency >= events for market in markets)
        for market in markets:
            for _ in range(12):
                before = market.observe()
                played = play(market, rng, 1)[0]
                found[len(market.under_way)] += 1
                found["replaced"] += len(before["due"]) == 4 and played[0] is not None
                if market.under_way and rng.random() < 0.2:
                    market.set_parameters(quote_latency=rng.randint(0, market.rules.quote_latency))
                due = market.observe()["due"]
                found["together"] += len(set(due)) < len(due)
    assert min(found[length] for length in range(5)) > 30, found
    assert found["replaced"] > 30 and found["together"] > 10 and 0.3 < found["may wait"] / found["config"] < 0.9, found


@pytest.mark.parametrize("seed", range(30))
def test_without_late_quotes_all_arrive_in_their_interval(seed):
    rng = random.Random(f"in time {seed}")
    fields, _ = random_ensemble(rng, *KINDS[2], 2, seed % 2 > 0)
    if ensembles.LATE:
        pytest.skip("quotes may wait")
    rules = [Reference(fields, 1, 0, m).rules for m in range(2)]
    assert all(rule.quote_latency < rule.events for rule in rules)
