"""What holds in every market of the second model, on the plain reference over random fields, slots and quotes."""

import random
from collections import Counter

import pytest
from reference import Reference
from reference.cases import play, random_fields, random_quotes, random_slots
from reference.orders import BUY, SELL
from thorough import covering, examples

KINDS = [("continuous", "clock"), ("call", "clock"), ("call", "each")]
MARKETS = examples(300)
PATH = "mid2 last_price prev_mid2 ret regime fundamental price_origin volume bid ask".split()


def random_market(seed, mechanism="continuous", arrivals="clock", slots=True, **fixed):
    rng = random.Random(seed)
    fields = {**random_fields(rng, mechanism, arrivals), **fixed}
    return Reference(fields, random_slots(rng, fields) if slots else 0, seed), fields, rng


def best_of(seen, side):
    """Best price with built-in or learned interest on the grid, from what can be observed."""
    low, row = seen["price_origin"], seen["bid" if side == BUY else "ask"]
    prices = [low + tick for tick, quantity in enumerate(row) if quantity]
    column = 0 if side == BUY else 2
    learned = [quote[column] for quote in seen["quotes"] if quote[column + 1]]
    prices += [price for price in learned if low <= price < low + len(row)]
    return (max(prices) if side == BUY else min(prices)) if prices else None


@pytest.mark.parametrize("seed", range(MARKETS))
def test_book_is_never_crossed_and_ahead_never_more_than_there(seed):
    market, fields, rng = random_market(seed, interval=1)  # looked at after every event
    for _, _, intervals in play(market, rng, 40):
        for seen in intervals:
            bid, ask = best_of(seen, BUY), best_of(seen, SELL)
            assert bid is None or ask is None or bid < ask
            assert not any(b and a for b, a in zip(seen["bid"], seen["ask"], strict=True))
            low = seen["price_origin"]
            for quote, ahead in zip(seen["quotes"], seen["ahead"], strict=True):
                for side, row in enumerate((seen["bid"], seen["ask"])):
                    tick = quote[2 * side] - low
                    there = row[tick] if quote[2 * side + 1] and 0 <= tick < len(row) else 0
                    assert 0 <= ahead[side] <= there
                    assert (quote[2 * side] % fields["tick_size"] == 0) or not quote[2 * side + 1]


@pytest.mark.parametrize("kind", KINDS, ids="-".join)
@pytest.mark.parametrize("seed", range(MARKETS // 3))
def test_quantity_and_cash_are_conserved(kind, seed):
    """Built-in units in the book are those submitted, less traded, cancelled and dropped; accounts are the fills."""
    # In a call the log has no built-in fills, so its units are counted without slots, and without residue to drop.
    call = kind[0] == "call"
    market, fields, rng = random_market(
        seed, *kind, slots=not call, window=0, walk_prob=0.0, jump_prob=0.0, residue="rest"
    )
    units, cash, held = Counter({BUY: fields["init_depth"], SELL: fields["init_depth"]}), Counter(), Counter()
    volume = 0
    for _ in range(30):
        seen = market.observe()
        seen = market.interval(random_quotes(rng, seen, len(seen["quotes"])))
        for note in market.log:
            if note[0] == "order":
                units[note[1]] += note[3]
            elif note[0] in ("cancelled", "dropped"):
                units[note[1]] -= note[3]
            elif note[0] == "auction":
                volume += note[2]
                units.subtract({BUY: note[2], SELL: note[2]})
            elif note[0] == "trade":
                _, side, price, traded, taker, maker = note
                volume += traded
                for who, bought in ((taker, side), (maker, -side)):
                    if who is None:
                        units[bought] -= traded
                    cash[who] -= bought * price * traded
                    held[who] += bought * traded
        assert (sum(seen["bid"]), sum(seen["ask"])) == (units[BUY], units[SELL])
        assert seen["volume"] == volume and sum(cash.values()) == sum(held.values()) == 0
        for slot in range(len(seen["cash"])):
            assert (seen["cash"][slot], seen["inventory"][slot]) == (cash[slot], held[slot])


@covering
@pytest.mark.parametrize("seed", range(MARKETS // 3))
def test_continuous_path_is_the_same_for_every_interval(seed):
    """Without slots: 420 events in intervals of 1, 2, 7, 60 and 210 events."""
    _, fields, _ = random_market(seed)
    fields["beat"] = fields["beat"] or fields["num_agents"]
    ends = []
    for events in (1, 2, 7, 60, 210):
        market = Reference({**fields, "interval": events}, 0, seed)
        seen = market.decision(None, 420 // events)[-1]
        ends.append({name: seen[name] for name in PATH})
    assert all(end == ends[0] for end in ends)


@pytest.mark.parametrize("seed", range(MARKETS // 3))
def test_a_decision_of_some_intervals_is_one_of_a_long_interval(seed):
    """With one slot, whose turn it always is; the same latency, so before the same event."""
    _, fields, rng = random_market(seed)
    fields["beat"] = fields["beat"] or fields["num_agents"]
    n, events = rng.choice([2, 3, 5]), rng.choice([1, 2, 7])
    short = Reference({**fields, "interval": events}, 1, seed)
    long = Reference({**fields, "interval": n * events}, 1, seed)
    for _ in range(12):
        mid = short.observe()["mid2"] // 2
        quote = [[mid - rng.randint(-3, 6), rng.randint(0, 9), mid + rng.randint(-3, 6), rng.randint(0, 9)]]
        seen, wanted = short.decision(quote, n), long.interval(quote)
        for name in (*PATH, "quotes", "ahead", "cash", "inventory", "fees"):
            assert seen[-1][name] == wanted[name], name


@pytest.mark.parametrize("seed", range(MARKETS // 3))
def test_the_same_orders_come_under_every_rule(seed):
    """Around the fundamental, without momentum and fundamental agents, whatever the mechanism and the interval."""
    shares = {"noise": 0.6, "momentum": 0.0, "maker": 0.4, "fundamental": 0.0}
    fixed = {**shares, "reference": "fundamental", "window": 0, "walk_prob": 0.0, "jump_prob": 0.0, "beat": 6}
    _, fields, _ = random_market(seed, **fixed, collar=0, quote_latency=0, taker_fee=0, num_agents=7)
    orders = []
    for mechanism, events in (("continuous", 1), ("continuous", 12), ("call", 1), ("call", 20), ("call", 60)):
        market = Reference({**fields, "mechanism": mechanism, "interval": events}, 0, seed)
        come = []
        for _ in range(60 // events):
            market.interval()
            come += [note for note in market.log if note[0] == "order"]
        orders.append(come)
    assert len(orders[0]) == 60 and all(come == orders[0] for come in orders)


@pytest.mark.parametrize("kind", KINDS, ids="-".join)
@pytest.mark.parametrize("seed", range(MARKETS // 10))
def test_one_regime_is_no_regime(kind, seed):
    change = {"noise_spread": 5, "market_order_prob": 0.3, "cancel_prob": 0.25, "taker_offset": 2, "max_order_qty": 3}
    _, fields, _ = random_market(seed, *kind, slots=False, regimes=None, regime_switch_prob=0.5)
    flat, hidden = Reference({**fields, **change}, 0, seed), Reference({**fields, "regimes": [change] * 3}, 0, seed)
    for _ in range(20):
        seen = hidden.interval()
        assert {**flat.interval(), "regime": seen["regime"]} == seen


@pytest.mark.parametrize("seed", range(MARKETS // 10))
def test_episodes_and_markets(seed):
    """Market m of an ensemble seeded s is market 0 of one seeded s + m; a seed brings an episode back."""
    market, fields, rng = random_market(seed)
    slots = market.rules.slots
    alone, other = Reference(fields, slots, seed), Reference(fields, slots, seed - 3, 3)
    state = rng.getstate()
    first = play(alone, rng, 6)
    rng.setstate(state)
    assert play(other, rng, 6) == first
    other.reset()
    assert other.episode == 1 and other.t == 0
    rng.setstate(state)
    play(other, rng, 6)
    other.reset(seed)
    rng.setstate(state)
    assert play(other, rng, 6) == first
