"""Laws of markets on the clock, in every engine: what the rules promise, whatever the fields, books and quotes.

`test_reference_laws.py` has laws that need each order and trade, which only the plain reference shows.
"""

import random

import numpy as np
import pytest
import torch
from reference.cases import random_fields
from strategies import every_engine
from thorough import covering, examples

import kineticsim_env as ks

PATH = "bid ask price_origin prev_mid2 ret volume fundamental_price beat_price".split()
CONTINUOUS = {"arrivals": "clock", "mechanism": "continuous"}
RULES = {"each": {}, "call": {"arrivals": "clock", "interval": 3}, "continuous": {**CONTINUOUS, "interval": 3}}


def tensors_of(sim):
    return {name: tensor.cpu().numpy().astype(np.int64) for name, tensor in sim.tensors.items()}


def random_quotes(rng, now, markets, slots):
    """Quotes around the mids, some at the grid's ends; half of the sides repeat what stands, or a part of it."""
    mid = now["mid2"][:, None] // 2
    quotes = np.empty((markets, slots, 4), np.int64)
    for column, sign in ((0, -1), (2, 1)):
        reach = rng.choice([3, 3, 8, 200], (markets, slots))
        price = mid + sign * (rng.integers(0, 1 << 20, (markets, slots)) % reach - 2)
        units = rng.integers(-1, 10, (markets, slots))
        standing = now["quotes"][..., column], now["quotes"][..., column + 1] - rng.integers(0, 2, (markets, slots))
        again = rng.random((markets, slots)) < 0.5
        quotes[..., column] = np.where(again, standing[0], price)
        quotes[..., column + 1] = np.where(again, standing[1].clip(0), units)
    return torch.from_numpy(quotes.astype(np.int32))


def seen(sim):
    return tensors_of(sim) | {"mid2": sim.mid2.cpu().numpy().astype(np.int64)}


# Intervals ------------------------------------------------------------------------------------------------------------


@covering
@every_engine
@pytest.mark.parametrize("seed", range(examples(30)))
def test_a_continuous_market_has_the_same_path_for_every_interval(seed, engine):
    """210 events without slots, in intervals of 1, 2, 7, 30 and 105 of them."""
    fields = random_fields(random.Random(f"path {seed}"), "continuous")
    fields["beat"] = fields.get("beat") or fields["num_agents"]
    ends = []
    for events in (1, 2, 7, 30, 105):
        sim = ks.Simulator(ks.MarketConfig(**{**fields, "interval": events}), 8, engine=engine, seed=seed)
        sim.run(210 // events)
        end = seen(sim)
        ends.append({name: end[name] for name in (*PATH, "mid2", *(["regime"] if "regime" in end else []))})
    for end in ends[1:]:
        for name, first in ends[0].items():
            assert np.array_equal(end[name], first), name


@every_engine
@pytest.mark.parametrize("seed", range(examples(30)))
def test_a_call_of_single_events_is_the_continuous_market(seed, engine):
    """Books, volume, last prices, as long as no side can have been empty when an order came.

    A side with two units at a tick keeps one of them when less than half is cancelled. The window and the collar look
    at beats in one market and at every interval in the other, so that they need a beat per event. Opening prices have
    to be multiples of the tick size: the mid is rounded down to one in a call, perhaps to below the best bid if that is
    none.
    """
    depth, most = ((50, 0.4), (500, 0.05))[seed % 2]  # a book that soon is thin, and one that lasts
    fields = random_fields(random.Random(f"single {seed}"), "continuous")
    fields |= {"interval": 1, "init_depth": depth, "tie": "mid", "residue": "cancel"}
    fields |= {"cancel_prob": min(fields["cancel_prob"], most), "quote_latency": 0, "taker_fee": 0, "regimes": None}
    fields |= {"market_order_prob": min(fields["market_order_prob"], most), "regime_switch_prob": 0.0}
    fields |= (
        {"tick_size": 2, "init_price": max(1, fields["init_price"] // 2 * 2 - 1)} if fields["tick_size"] > 1 else {}
    )
    if seed % 3:
        fields |= {"beat": 1}
    else:
        fields |= {"window": 0, "walk_prob": 0.0, "jump_prob": 0.0, "collar": 0}
    sims = [
        ks.Simulator(ks.MarketConfig(**{**fields, "mechanism": name}), 40, engine=engine, seed=seed)
        for name in ("continuous", "call")
    ]
    whole, compared = np.ones(40, bool), 0
    for _ in range(60):
        for sim in sims:
            sim.run(1)
        one, two = (seen(sim) for sim in sims)
        for name in ("bid", "ask", "price_origin", "volume", "trades", "mid2", "ret"):
            assert np.array_equal(one[name][whole], two[name][whole]), name
        assert torch.equal(sims[0].last_price[whole], sims[1].last_price[whole])
        whole &= (one["bid"].max(1) >= 2) & (one["ask"].max(1) >= 2)
        compared += whole.sum()
    assert compared > (40 if depth == 50 else 40 * 20)


# Accounts -------------------------------------------------------------------------------------------------------------


@every_engine
@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("seed", range(examples(10)))
def test_what_slots_gain_the_book_loses(seed, rules, engine):
    """Only slots trade, with each other and with a built-in book: units and money of both together stay what they are.

    In continuous trading a unit of the book costs its own price and each trade has one taker, always a slot; in a call
    there is one price.
    """
    rng, markets, slots, levels = np.random.default_rng(seed), 60, 4, 32
    levers = {"fee": 70, "tax": int(seed % 3), "num_levels": levels, "init_price": 16, "init_depth": 0, "num_agents": 1}
    taker_fee = 130 if rules == "continuous" else 0
    rest = {"noise": 1.0, "momentum": 0.0, "maker": 0.0, **RULES[rules]}
    rest |= {"taker_fee": taker_fee, "quote_latency": int(seed % 4)} if rules == "continuous" else {"tie": "mid"}
    config = ks.MarketConfig(**levers, **rest)
    sim = ks.Simulator(config, markets, engine=engine, seed=seed, slots=("noise", *[None] * (slots - 1)))
    ticks = np.arange(levels)
    book = rng.integers(0, 9, (2, markets, levels)) * (rng.random((2, markets, levels)) < 0.4)
    middle = rng.integers(8, 24, (markets, 1))
    sim.bid.copy_(torch.from_numpy(book[0] * (ticks < middle)))
    sim.ask.copy_(torch.from_numpy(book[1] * (ticks > middle)))
    sim.engine.state_changed()
    before, total = seen(sim), 0
    for _ in range(25):
        # Twice as deep as the books in all, and now and then beside the grid
        quotes = random_quotes(rng, before, markets, slots)
        fills = sim.step(quotes.to(sim.device), 1).cpu().numpy()
        now = seen(sim)
        bought, sold = (before[name] - now[name] for name in ("bid", "ask"))  # by the built-in side, per tick
        assert (bought >= 0).all() and (sold >= 0).all()
        change = {name: now[name] - before[name] for name in ("cash", "inventory", "fees", "volume")}
        assert np.array_equal(change["inventory"], fills[..., 0] - fills[..., 1])
        assert np.array_equal(change["inventory"].sum(1), (sold - bought).sum(1))
        price = ticks if rules == "continuous" else sim.last_price.cpu().numpy()[:, None]
        assert np.array_equal(change["cash"].sum(1), ((bought - sold) * price).sum(1))
        assert np.array_equal(change["volume"], fills[..., 0].sum(1) + bought.sum(1))
        units = fills.sum((1, 2))
        own = (config.fee + 1000 * config.tax) * units
        assert np.array_equal(change["fees"].sum(1), own + taker_fee * change["volume"])
        before, total = now, total + units.sum()
    assert total > 1000


# Books, places, prices ------------------------------------------------------------------------------------------------


def assert_a_book(now, levels, tick_size):
    """Not crossed, learned quotes among it; nobody has more ahead than there is."""
    prices = now["price_origin"][:, None] + np.arange(levels)
    low = np.iinfo(np.int64).min // 2
    best = []
    for side, (row, sign) in enumerate(((now["bid"], 1), (now["ask"], -1))):
        price, units = now["quotes"][..., 2 * side], now["quotes"][..., 2 * side + 1]
        tick = price - now["price_origin"][:, None]
        on_grid = (units > 0) & (tick >= 0) & (tick < levels)
        there = np.take_along_axis(row, tick.clip(0, levels - 1), 1) * on_grid
        ahead = now["queue"][..., side]
        assert (ahead >= 0).all() and (ahead <= there).all() and (price[units > 0] % tick_size == 0).all()
        resting = np.where(row > 0, sign * prices, low).max(1)
        best.append(np.maximum(resting, np.where(on_grid, sign * price, low).max(1, initial=low)))
    assert (best[0] + best[1] < 0).all()  # best bid less best ask
    assert not ((now["bid"] > 0) & (now["ask"] > 0)).any()


def assert_no_worse_than_asked(before, now, quotes, fills):
    """Who buys pays at most what it bid, before or now, and who sells gets at least what it asked."""
    old = before["quotes"]
    highest = np.where(fills[..., 0] > 0, np.maximum(old[..., 0], quotes[..., 0]), 0)
    lowest = np.where(fills[..., 1] > 0, np.minimum(old[..., 2], quotes[..., 2]), 0)
    worst = lowest * fills[..., 1] - highest * fills[..., 0]
    assert (now["cash"] - before["cash"] >= worst).all()


def assert_in_turn(before, now, fills):
    """Of standing quotes on a side, none trades while a better placed one stands, nor before the units ahead of it."""
    markets, slots = fills.shape[:2]
    for side, sign in ((0, -1), (1, 1)):
        price, units = before["quotes"][..., 2 * side], before["quotes"][..., 2 * side + 1]
        left = now["quotes"][..., 2 * side + 1]
        traded = fills[..., side] > 0
        assert (now["queue"][..., side][traded & (left > 0)] == 0).all()
        rank = np.stack([sign * price, before["queue"][..., side], before["moments"][..., side]])
        for i in range(slots):
            for j in range(slots):
                earlier = np.zeros(markets, bool)
                for key in reversed(range(3)):
                    a, b = rank[key][:, i], rank[key][:, j]
                    earlier = (a < b) | ((a == b) & earlier)
                passed = traded[:, j] & earlier & (units[:, i] > 0) & (left[:, i] > 0)
                assert not passed.any()


@every_engine
@pytest.mark.parametrize("seed", range(examples(30)))
def test_books_places_and_prices(seed, engine):
    """Looked at after every event of random markets: quotes that are sent, then quotes that stand."""
    rng = np.random.default_rng(seed)
    fields = random_fields(random.Random(f"books {seed}"), "continuous") | {
        "interval": 1,
        "beat": 3,
        "quote_latency": 0,
    }
    if seed % 2:
        fields |= {"inventory_limit": None, "max_quote_qty": 1 << 20}
    markets, slots = 30, 3
    sim = ks.Simulator(ks.MarketConfig(**fields), markets, engine=engine, seed=seed, slots=slots)
    before, traded = seen(sim), 0
    for event in range(80):
        standing = event % 4 != 0
        quotes = None if standing else random_quotes(rng, before, markets, slots)
        fills = sim.step(None if quotes is None else quotes.to(sim.device)).cpu().numpy()
        now = seen(sim)
        assert_a_book(now, fields["num_levels"], fields["tick_size"])
        assert_no_worse_than_asked(before, now, before["quotes"] if quotes is None else quotes.numpy(), fills)
        if standing and event % 3:  # no beat: nothing was cancelled, and the grid stayed where it is
            assert_in_turn(before, now, fills)
        before, traded = now, traded + (fills > 0).sum()
    assert traded > 0 or fields["inventory_limit"] == 0


def test_the_laws_can_be_broken():
    """Books and fills that no engine may leave are seen as such."""
    quotes = np.array([[[8, 3, 0, 0], [8, 3, 0, 0]]])
    rows = {"bid": np.zeros((1, 16), int), "ask": np.zeros((1, 16), int), "price_origin": np.zeros(1, int)}
    rows["bid"][0, 8], rows["ask"][0, 10] = 4, 2
    good = rows | {"quotes": quotes, "queue": np.array([[[4, 0], [2, 0]]]), "moments": np.array([[[1, 0], [2, 0]]])}
    assert_a_book(good, 16, 1)
    crossed = good | {"quotes": np.array([[[10, 3, 0, 0], [8, 3, 0, 0]]]), "queue": np.zeros((1, 2, 2), int)}
    for bad in (crossed, good | {"queue": np.array([[[5, 0], [2, 0]]])}):
        with pytest.raises(AssertionError):
            assert_a_book(bad, 16, 1)
    after = good | {"quotes": np.array([[[8, 3, 0, 0], [8, 1, 0, 0]]]), "queue": np.array([[[2, 0], [0, 0]]])}
    fills = np.array([[[0, 0], [2, 0]]])
    assert_in_turn(good, after, fills)
    for first in ([4, 0], [2, 0]):  # the second slot was not the better placed one, or not at the front yet
        wrong = (
            good | {"queue": np.array([[[0, 0], [3, 0]]])},
            after | {"queue": np.array([[first, [first[0] - 2, 0]]])},
        )
        with pytest.raises(AssertionError):
            assert_in_turn(*wrong, fills)
    paid = good | {"cash": np.array([[0, 0]])}, after | {"cash": np.array([[0, -18]])}
    with pytest.raises(AssertionError):
        assert_no_worse_than_asked(*paid, quotes, fills)
    assert_no_worse_than_asked(paid[0], after | {"cash": np.array([[0, -16]])}, quotes, fills)
