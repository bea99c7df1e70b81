"""Data in: a book of prices and sizes, and a path of prices that the fundamental price follows."""

from decimal import Decimal

import numpy as np
import pytest
import torch
from agent_classes import at_the_best, trend_follower

import kineticsim_env as ks
from kineticsim_env.errors import MarketError

every_engine = pytest.mark.parametrize("engine", ["numpy", "cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
BIDS, ASKS = [[100.00, 5], [99.98, 7], [99.50, 11]], [[100.02, 3], [100.05, 9], [0, 0]]


def market(preset="news", markets=3, engine="cpu", slots=1, **changes):
    """Return a simulator that has run for a while; intervals of `news` are short, as the NumPy engine is slow."""
    changes = ({"interval": 6, "beat": 3} if preset == "news" else {}) | changes
    sim = ks.Simulator(ks.MarketConfig.preset(preset, **changes), markets, engine=engine, seed=2, slots=slots)
    sim.run(3)
    return sim


def levels_of(row, origin):
    """Return prices and units of a row of the book."""
    return {int(tick) + int(origin): int(row[tick]) for tick in torch.nonzero(row.cpu())[:, 0]}


@every_engine
@pytest.mark.parametrize("preset", ["trading", "news"])
def test_a_snapshot_is_the_book(preset, engine):
    sim = market(preset, engine=engine)
    before, mask = sim.state_dict(), torch.tensor([True, False, True])
    sim.set_book(BIDS, ASKS, tick=0.01, mask=mask)
    for m in (0, 2):
        assert levels_of(sim.bid[m], sim.price_origin[m]) == {10000: 5, 9998: 7, 9950: 11}
        assert levels_of(sim.ask[m], sim.price_origin[m]) == {10002: 3, 10005: 9}
    assert sim.mid2[mask].tolist() == [20002, 20002] and sim.last_price[mask].tolist() == [10001, 10001]
    assert sim.fundamental_price[mask].tolist() == [10001, 10001] and sim.t.tolist() == [3, 3, 3]
    assert all(torch.equal(before[name][1], now[1]) for name, now in sim.state_dict().items() if name != "about")
    again = ks.Simulator(sim.config, 3, engine="numpy", slots=1)
    again.load_state_dict(sim.state_dict())  # a state like any other
    series = [one.run(3, ("last_price",))["last_price"].cpu() for one in (sim, again)]
    assert torch.equal(*series) and (series[0][mask] > 9000).all()


def test_forms_of_tables():
    pandas = pytest.importorskip("pandas")
    sim, others = market(), [market() for _ in range(4)]
    sim.set_book(BIDS, ASKS, tick=0.01, last_price=100.01, fundamental=100.5)
    frame = pandas.DataFrame(BIDS, columns=["price", "size"])
    others[0].set_book(frame, np.array(ASKS)[::-1], tick=0.01, last_price=100.01, fundamental=100.5)
    both = np.asfortranarray(np.array([[10000, 2], [10000, 3], [9998, 7], [9950, 11]]))
    others[1].set_book(both, [(10002, 3), (10005, 9)], last_price=10001, fundamental=10050)
    others[2].set_book(np.array(BIDS, np.float32), torch.tensor(ASKS), tick=0.01, last_price=100.01, fundamental=100.5)
    mixed = frame.astype({"size": "Int64"}).astype(object)  # as tables of several kinds of columns come
    decimals = [(Decimal(str(price)), Decimal(size)) for price, size in ASKS]
    others[3].set_book(mixed, decimals, tick=0.01, last_price=100.01, fundamental=100.5)
    for other in others:
        assert all(torch.equal(now, other.tensors[name]) for name, now in sim.tensors.items())


def test_one_side_and_the_ends_of_the_grid():
    sim = market(slots=0)
    sim.set_book([[500, 4]], [])
    assert levels_of(sim.bid[0], sim.price_origin[0]) == {500: 4} and not sim.ask.any()
    assert sim.last_price.tolist() == [500] * 3 and sim.mid2.tolist() == [1000] * 3
    sim.set_book([], [[-500, 4]], last_price=-510)
    assert sim.mid2.tolist() == [-1020] * 3 == (sim.tensors["prev_mid2"] + 2 * sim.price_origin).tolist()
    sim.set_book([[36, 1], [99, 1]], [[101, 1], [163, 1]])  # 128 ticks, 64 of them below the mid
    assert sim.bid[0, 0] == sim.ask[0, 127] == 1


def test_quotes_are_withdrawn_and_memory_begins_anew():
    agents = {trend_follower: 3, at_the_best: 2}
    sim = market("continuous", agents=agents)
    sim.step(torch.tensor([[[60, 5, 70, 5]]] * 3, dtype=torch.int32), 2)
    cash = sim.cash.clone()
    sim.set_book(BIDS, ASKS, tick=0.01)
    assert not sim.quotes.any() and not sim.queue.any() and torch.equal(sim.cash, cash)
    assert (sim.memory["trend_follower"]["average"] == 20002).all()
    sim.reset(mask=torch.tensor([True, False, False]))
    assert sim.last_price.tolist() == [64, 10001, 10001]


def test_a_book_goes_out_and_in_again(tmp_path):
    """Out as the last line of LOBSTER's book file, in as a snapshot."""
    pytest.importorskip("pyarrow")
    sim = market("news", 1, slots=0)
    ((_, book),) = sim.tape(0, 40).to_lobster(tmp_path, levels=128, tick=0.01)
    last = np.loadtxt(book, delimiter=",")[-1].reshape(-1, 4)
    sim.run(40)
    other = market("news", 1, slots=0)
    other.set_book(last[:, 2:], last[:, :2], tick=100)
    for row, there in ((sim.bid, other.bid), (sim.ask, other.ask)):
        assert levels_of(row[0], sim.price_origin[0]) == levels_of(there[0], other.price_origin[0])
    rows = other.tape(0, 1).columns
    opening = (rows["agent_class"] == "resting") & (rows["type"] == "submit")
    found = dict(zip(rows["price"][opening].tolist(), rows["quantity"][opening].tolist(), strict=True))
    assert found == levels_of(sim.bid[0], sim.price_origin[0]) | levels_of(sim.ask[0], sim.price_origin[0])


def test_wrong_books():
    sim = market()
    before = sim.state_dict()
    wrong = [
        ("bids", dict(bids="x", asks=ASKS)),
        ("bids", dict(bids=[1, 2, 3], asks=ASKS)),
        ("bids", dict(bids=[[1, 2, 3]], asks=ASKS)),
        ("asks", dict(bids=BIDS, asks=[[100.02, -1]])),
        ("asks", dict(bids=BIDS, asks=[[100.02, 1.5]])),
        ("asks", dict(bids=BIDS, asks=[[100.02, float("nan")]])),
        ("asks", dict(bids=BIDS, asks=[[100.025, 1]])),
        ("bids", dict(bids=np.ma.masked_array(BIDS, [[0, 0], [1, 1], [0, 0]]), asks=ASKS)),
        ("asks", dict(bids=BIDS, asks=np.array([[100.02, None]]))),
        ("asks", dict(bids=BIDS, asks=np.array([["100.02", "1"]], object))),
        ("asks", dict(bids=BIDS, asks=[[float("nan"), 1]])),
        ("asks", dict(bids=BIDS, asks=[[1e300, 1]])),
        ("bids", dict(bids=[[100.02, 1]], asks=ASKS)),
        ("bids and asks", dict(bids=[], asks=[[1, 0]])),
        ("bids", dict(bids=[[99.36, 1], [100, 1]], asks=ASKS)),
        ("bids", dict(bids=[[100, 2**30], [99.99, 2**30]], asks=ASKS)),
        ("tick", dict(bids=BIDS, asks=ASKS, tick=0)),
        ("tick", dict(bids=BIDS, asks=ASKS, tick=None)),
        ("last_price", dict(bids=BIDS, asks=ASKS, last_price=90)),
        ("last_price", dict(bids=BIDS, asks=ASKS, last_price="x")),
        ("fundamental", dict(bids=BIDS, asks=ASKS, fundamental=1e300)),
        ("mask", dict(bids=BIDS, asks=ASKS, mask=[True])),
    ]
    for name, given in wrong:
        with pytest.raises((TypeError, ValueError), match=f"{name}: expected .*got .*"):
            sim.set_book(**({"tick": 0.01} | given))
    assert all(torch.equal(before[name], now) for name, now in sim.state_dict().items())


# A path ---------------------------------------------------------------------------------------------------------------

PATH = (64 + np.cumsum(np.random.default_rng(3).integers(-2, 3, 50))).astype(np.int32)


@every_engine
@pytest.mark.parametrize("preset, reference", [("trading", "mid"), ("continuous", "fundamental"), ("news", "mid")])
def test_the_fundamental_price_follows_a_path(preset, reference, engine):
    changes = {"walk_prob": 0.0, "jump_prob": 0.0, "reference": reference}
    if preset == "news":
        changes["regimes"] = None
        changes["regime_switch_prob"] = 0.0
    length = 6 if engine == "numpy" else 50
    sim = market(preset, 2, engine, **changes)
    other = sim.branch()
    series = sim.follow(PATH[:length], ("fundamental", "last_price", "volume"))
    assert series["fundamental"].cpu().tolist() == [PATH[:length].tolist()] * 2
    for i in range(length):  # as if somebody wrote it before each interval
        other.fundamental_price.fill_(int(PATH[i]))
        assert torch.equal(other.run(1, ("last_price",))["last_price"][:, 0], series["last_price"][:, i])
    assert all(torch.equal(now, other.tensors[name]) for name, now in sim.tensors.items())


def test_a_path_of_each_market_and_its_tape():
    sim = market("news", 2)
    paths = np.stack([PATH, 130 - PATH])
    made = sim.tape([1, 0], 50, fundamental=paths[[1, 0]])
    columns = made.columns
    series = sim.follow(torch.from_numpy(paths), ("volume",))["volume"]
    for m in range(2):
        trades = (columns["type"] == "trade") & (columns["market"] == m)
        volume = np.bincount(columns["interval"][trades] - 3, columns["quantity"][trades], 50)
        assert volume.tolist() == series[m].tolist()


def test_forms_of_paths():
    """As columns of tables are: floats that are whole, of any precision, in any order in memory."""
    wanted = market().follow(PATH)
    sims, wide = [market() for _ in range(5)], np.repeat(PATH, 2)
    forms = [PATH.astype(np.float64), PATH.astype(np.float32), wide[::2], PATH.astype(">i4"), PATH.tolist()]
    series = [sim.follow(path, ("last_price",))["last_price"] for sim, path in zip(sims, forms, strict=True)]
    assert not wanted and all(torch.equal(series[0], other) for other in series[1:])
    with pytest.raises(TypeError, match="^path: expected whole ticks, got 64.5: divide by the tick, and round"):
        market().follow([64.5, 65.0])


def test_a_path_that_stops_a_market_leaves_it_as_it_was():
    sim = market("trading", 1, slots=0)
    before = sim.state_dict()
    sim._latest = sim._end - 5
    sim.t.fill_(sim._end - 5)
    before["t"] = sim.t.clone()
    with pytest.raises(MarketError, match="expected t below"):
        sim.follow(PATH)
    assert all(torch.equal(before[name], now) for name, now in sim.state_dict().items())


def test_wrong_paths():
    sim = market()
    masked = np.ma.masked_array([1, 2], [True, False])
    for path in ([], 3, [[1, 2]], [1.5], ["x"], None, [2**30 + 1], [[[1]]], [np.nan], [1e30], [np.inf], masked):
        with pytest.raises((TypeError, ValueError), match="path: expected .*got .*"):
            sim.follow(path)
    for name, value in {"record": "x", "reach": -1, "progress": 3}.items():
        with pytest.raises((TypeError, ValueError), match=f"{name}: expected .*got .*"):
            sim.follow(PATH, **{name: value})
