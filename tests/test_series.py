"""Further series of a run, best prices, depths and signed volume: known answers by hand, empty sides, pieces, refusals.

Random markets record them beside the plain reference in tests/ensembles.py, and engines beside each other in
tests/strategies.py.
"""

import pytest
import torch
from ensembles import NO_PRICE
from strategies import FURTHER, Play, assert_same, every_engine, make_move, open_simulator, under_levers

import kineticsim_env as ks
from kineticsim_env.engines import runs

GRID = dict(num_levels=16, init_price=8, max_order_qty=1)
CONTINUOUS = dict(arrivals="clock", mechanism="continuous")


def inactive(engine, markets=1, added=1, **fields):
    """Open markets whose only agent is replaced by slot 0, so that nothing happens but what slots do."""
    config = ks.MarketConfig(**{**GRID, "num_agents": 1, "noise": 1.0, "momentum": 0.0, "maker": 0.0, **fields})
    return ks.Simulator(config, markets, engine=engine, seed=3, slots=("noise", *[None] * added))


def lists(series, m=0):
    return {name: values[m].tolist() for name, values in series.items()}


def put(sim, bids, asks):
    """Let these units rest, by absolute price, and nothing else."""
    for side, units in ((sim.bid, bids), (sim.ask, asks)):
        side.zero_()
        for price, quantity in units.items():
            side[:, price] = quantity
    sim.engine.state_changed()


# Books ----------------------------------------------------------------------------------------------------------------


@every_engine
@pytest.mark.parametrize(
    ("reach", "bids", "asks"), [(0, 5, 3), (1, 5, 7), (2, 7, 7), (4, 18, 8), (15, 20, 8), (2**31 - 1, 20, 8)]
)
def test_a_depth_counts_from_the_sides_own_best_price(engine, reach, bids, asks):
    sim = inactive(engine, markets=3)
    put(sim, {6: 5, 4: 2, 2: 11, 0: 2}, {9: 3, 10: 4, 13: 1})
    series = sim.run(2, FURTHER, reach=reach)
    wanted = {"best_bid": 6, "best_ask": 9, "bid_depth": bids, "ask_depth": asks, "signed_volume": 0}
    assert all(lists(series, m) == {name: [value] * 2 for name, value in wanted.items()} for m in range(3))
    assert all(values.dtype == torch.int32 and values.shape == (3, 2) for values in series.values())


@every_engine
def test_the_reach_is_that_of_observations_unless_given(engine):
    sim = inactive(engine, num_levels=64, init_price=32)
    put(sim, {20: 1, 10: 2, 9: 4}, {40: 8, 50: 16, 51: 32})
    series = sim.run(1, ("bid_depth", "ask_depth"))
    assert lists(series) == {"bid_depth": [3], "ask_depth": [24]}


@every_engine
@pytest.mark.parametrize(("bids", "asks"), [({}, {}), ({3: 7}, {}), ({}, {15: 7}), ({0: 1}, {}), ({}, {0: 2})])
def test_an_empty_side_has_a_price_that_no_order_has(engine, bids, asks):
    sim = inactive(engine)
    put(sim, bids, asks)
    seen = lists(sim.run(1, FURTHER, reach=3))
    assert seen["best_bid"] == [max(bids, default=-NO_PRICE)] and seen["best_ask"] == [min(asks, default=NO_PRICE)]
    assert seen["bid_depth"] == [sum(bids.values())] and seen["ask_depth"] == [sum(asks.values())]


@every_engine
def test_prices_are_absolute_and_of_built_in_orders(engine):
    """The grid has moved, and a learned quote between the best prices is in no series."""
    sim = inactive(engine, window=2)
    put(sim, {1: 4, 2: 5}, {4: 6, 5: 7})  # the mid is 3: the grid moves by -5
    quotes = torch.tensor([[[[3, 9, 0, 0], [0, 0, 0, 0]]]], dtype=torch.int32, device=sim.device)
    result = sim.rollout(quotes, 2, FURTHER, reach=1)
    assert sim.price_origin.tolist() == [-5]
    wanted = {"best_bid": 2, "best_ask": 4, "bid_depth": 9, "ask_depth": 13, "signed_volume": 0}
    assert {name: part[0, 0].tolist() for name, part in result.series.items()} == {
        n: [v] * 2 for n, v in wanted.items()
    }
    assert all(part.shape == (1, 1, 2) for part in result.series.values())


@every_engine
@pytest.mark.parametrize("fields", [{"arrivals": "clock"}, CONTINUOUS])
def test_books_on_the_clock(engine, fields):
    sim = inactive(engine, interval=2, beat=5, **fields)
    put(sim, {6: 5, 4: 2, 2: 11}, {9: 3, 10: 4, 13: 1})
    wanted = {"best_bid": 6, "best_ask": 9, "bid_depth": 7, "ask_depth": 7, "signed_volume": 0}
    assert lists(sim.run(2, FURTHER, reach=2)) == {name: [value] * 2 for name, value in wanted.items()}
    put(sim, {}, {})
    assert lists(sim.run(1, FURTHER)) == dict(zip(FURTHER, [[-NO_PRICE], [NO_PRICE], [0], [0], [0]], strict=True))


# Signed volume --------------------------------------------------------------------------------------------------------


@every_engine
def test_takers_buys_less_their_sells(engine):
    """Learned takers, who take from the book and from each other; who has waited counts for nothing."""
    sim = inactive(engine, interval=1, **CONTINUOUS)
    put(sim, {7: 5}, {9: 5})
    nothing = [0, 0, 0, 0]
    quotes = [
        [nothing, [9, 3, 0, 0]],  # slot 1 buys 3 of the book
        [[8, 4, 9, 2], [0, 0, 7, 6]],  # slot 1 comes first: it sells 5 to the book; slot 0 buys the unit that is left
        [[8, 3, 9, 2], nothing],  # nobody takes
        [[8, 3, 9, 1], [9, 3, 0, 0]],  # slot 1 buys the book's last 2, and 1 of slot 0
    ]
    given = torch.tensor(quotes, dtype=torch.int32, device=sim.device)[:, None]
    result = sim.rollout(given, 1, ("signed_volume", "volume"))
    assert result.series["volume"].flatten().tolist() == [3, 6, 0, 3]
    assert result.series["signed_volume"].flatten().tolist() == [3, -5 + 1, 0, 3]


@every_engine
def test_what_built_in_takers_buy_and_sell(engine):
    """All orders are marketable, and never empty a side: what is signed and traded are the same takers' units."""
    fields = dict(num_agents=8, noise=1.0, momentum=0.0, maker=0.0, market_order_prob=1.0, init_depth=1000)
    sim = ks.Simulator(ks.MarketConfig(**GRID | fields | CONTINUOUS | {"interval": 5}), 4, engine=engine, seed=2)
    for _ in range(4):
        bids, asks = sim.bid.sum(1).clone(), sim.ask.sum(1).clone()
        seen = sim.run(1, ("signed_volume", "volume"))
        assert (seen["signed_volume"][:, 0] == (asks - sim.ask.sum(1)) - (bids - sim.bid.sum(1))).all()
        assert (seen["volume"] == 5).all()
    assert len(set(seen["signed_volume"].flatten().tolist())) > 1


@every_engine
@pytest.mark.parametrize("fields", [{}, {"arrivals": "clock", "interval": 9, "beat": 4}])
def test_a_call_counts_marketable_orders_as_they_came(engine, fields):
    """Of one unit each, all marketable; cancellation takes all of them before the auction, or the auction all."""
    common = GRID | dict(num_agents=9, noise=1.0, momentum=0.0, maker=0.0, market_order_prob=1.0, init_depth=0) | fields
    seen = []
    for cancel in (0.0, 1.0):
        sim = ks.Simulator(ks.MarketConfig(**common, cancel_prob=cancel), 8, engine=engine, seed=2)
        seen.append(sim.run(1, ("signed_volume", "volume", "bid_depth", "ask_depth"), reach=16))
    left = seen[0]["bid_depth"] - seen[0]["ask_depth"]
    assert torch.equal(seen[0]["signed_volume"], left) and (seen[0]["volume"] == (9 - left.abs()) // 2).all()
    assert torch.equal(seen[0]["signed_volume"], seen[1]["signed_volume"]) and len(left.unique()) > 2


@every_engine
def test_makers_and_quotes_are_not_marketable(engine):
    fields = GRID | dict(num_agents=6, noise=0.0, momentum=0.0, maker=1.0, market_order_prob=1.0)
    sim = ks.Simulator(ks.MarketConfig(**fields), 2, engine=engine, seed=2, slots=1)
    quotes = torch.tensor([[[[15, 7, 0, 0]]] * 2], dtype=torch.int32, device=sim.device)
    assert not sim.rollout(quotes, 3, ("signed_volume",)).series["signed_volume"].any()


# Calls ----------------------------------------------------------------------------------------------------------------


@every_engine
@pytest.mark.parametrize("levers", [False, True])
def test_what_is_recorded_changes_nothing_else(engine, levers, monkeypatch):
    """Every series alone, and all of them in pieces, are those of one call; states are those of a run without any."""
    config = ks.MarketConfig.preset("trading")
    config = under_levers(config, 5) if levers else config
    play = Play(config, 3, (None,), 7, ())
    whole, silent_one, pieces = (open_simulator(engine, play) for _ in range(3))
    series = whole.run(9, FURTHER, progress=False, reach=4)
    silent_one.run(9)
    for name in FURTHER:
        assert_same(open_simulator(engine, play).run(9, (name,), reach=4), {name: series[name]})
    monkeypatch.setitem(runs.EVENTS, engine, 2 * 3 * pieces._per_auction)
    assert_same(pieces.run(9, FURTHER, progress=True, reach=4), series)
    for sim in (silent_one, pieces):
        assert_same(make_move(sim, ("reload",)), make_move(whole, ("reload",)))


REFUSED = [
    (dict(record=("best_bids",)), ValueError, "record: expected one of last_price, .*signed_volume, got 'best_bids'"),
    (dict(record="best_bid"), TypeError, "record: expected .*, got 'best_bid'"),
    (dict(reach=-1), ValueError, "reach: expected 0 to.*got -1"),
    (dict(reach=2**31), ValueError, "reach: expected .*, got 2147483648"),
    (dict(reach=1.5), TypeError, "reach: expected .*, got 1.5"),
    (dict(reach="near"), TypeError, "reach: expected .*, got 'near'"),
    (dict(reach=None), TypeError, "reach: expected .*, got None"),
    (dict(reach=True), TypeError, "reach: expected .*, got True"),
]


@pytest.mark.parametrize(("given", "error", "text"), REFUSED)
def test_refusals(given, error, text):
    sim = inactive("numpy")
    for call in (lambda: sim.run(1, **given), lambda: sim.rollout(torch.zeros(1, 1, 2, 4, dtype=torch.int32), **given)):
        with pytest.raises(error, match=text):
            call()
    assert sim.t.tolist() == [0]
