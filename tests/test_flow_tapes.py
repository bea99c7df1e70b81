"""Tapes of order flows: beside the reference row for row, with slots by the rules of all tapes; `simulate`."""

import dataclasses
from collections import defaultdict
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
import torch
from agent_classes import at_the_best, copied_noise, trend_follower
from build_helpers import needs_compiler
from flow_markets import EXTREMES
from flow_tables import plain_table, random_table
from lobster_reader import read
from reference.flow import FlowMarket
from tape_checks import check_differences_are_seen, check_tape
from test_flow_engines import EVENTS as EVENTS_OF_FLOW
from test_flow_engines import GRIDS, flow_config, quotes_near, timed
from thorough import examples

import kineticsim_env as ks
from kineticsim_env.data.books import follow_orders, replay
from kineticsim_env.data.events import ADD, COLUMNS, EXECUTE
from kineticsim_env.flow import simulating
from kineticsim_env.flow.simulating import simulate
from kineticsim_env.runtime.flow_table import UNIT

pytestmark = needs_compiler
SESSIONS = (*COLUMNS, "sessions")


def same_events(one, other):
    """Compare order events; market orders have numbers on a tape, and none in the reference."""
    one = dataclasses.replace(one, order=np.unique(one.order, return_inverse=True)[1] + 1)
    for name in SESSIONS:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
        assert getattr(one, name).dtype == getattr(other, name).dtype, name
    assert (one.tick, one.lot) == (other.tick, other.lot)


# Against the reference ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(examples(40)))
def test_a_tape_is_the_reference_row_for_row(seed):
    """Of random tables, on grids of many sizes, from their opening on."""
    table, (levels, window, beat) = random_table(seed), GRIDS[seed % len(GRIDS)]
    init = int(np.random.default_rng(seed).choice([levels // 2, 1, levels - 2]))
    config = flow_config(table, levels, window, beat, interval=11).replace(init_price=init)
    reference, sim = FlowMarket(table, seed - 7, levels, window, beat, init), ks.Simulator(config, 1, seed=seed - 7)
    try:
        found = sim.tape(0, 30).events()
    except ks.MarketError:
        assert not reference.play(330)
        return
    assert reference.play(330)
    same_events(found, reference.events())


@pytest.mark.parametrize("name", EXTREMES)
def test_extreme_tables(name):
    reference = FlowMarket(EXTREMES[name], 5, 64, 8, 24, 32)
    assert reference.play(160)
    same_events(ks.Simulator(flow_config(EXTREMES[name], beat=24, interval=8), 1, seed=5).tape(0, 20).events(),
                reference.events())  # fmt: skip


def test_the_flow_that_ships():
    flow = ks.OrderFlow.preset("btcusd")
    reference = FlowMarket(flow, 3, 512, 32, 16, 256)
    assert reference.play(4001)
    same_events(flow.simulate(4001, 3), reference.events())


@pytest.mark.parametrize("seed", range(examples(12)))
def test_intervals_of_a_length_have_the_same_rows(seed):
    """As many as there is time for: none in some intervals, and some intervals cut short."""
    table = random_table(seed)
    config = flow_config(table, **timed(table, (0.4, 3, 12)[seed % 3], 0))
    sim, reference = ks.Simulator(config, 1, engine="cpu", seed=seed), FlowMarket(table, seed, 64, 8, 16, 32)
    made = sim.tape(0, 40)
    sim.run(40)
    assert reference.play(int(sim.tensors["flow"][0, EVENTS_OF_FLOW]))
    found = made.events()
    assert found.sessions.tolist() == [[0, int(sim.time[0])]]
    same_events(dataclasses.replace(found, sessions=reference.events().sessions), reference.events())


# With slots -----------------------------------------------------------------------------------------------------------


def random_case(seed):
    """Return a simulator that has run a while, numbers of some markets, and quotes of 12 decisions, or None."""
    rng = np.random.default_rng(seed)
    slots, markets = int(rng.choice([0, 1, 3])), int(rng.choice([1, 3]))
    tables = [random_table(int(rng.integers(60))) for _ in range(markets)]
    how = {"interval": int(rng.choice([1, 7, 40])), "quote_latency": int(rng.choice([0, 30]))}
    if seed % 3:
        how = timed(tables[0], rng.choice([0.4, 3, 12]), rng.choice([0, 0.3, 2.5]), int(rng.choice([3, 200])))
    agents = {copied_noise: 3, at_the_best: 1, trend_follower: 2} if seed % 4 == 1 else None
    how |= {"agents": agents, "agent_prob": rng.choice([0.1, 1.0]) if agents else 0.0}
    config = flow_config(tables, *GRIDS[int(rng.integers(4))], fee=3, taker_fee=-2, **how)
    sim = ks.Simulator(config, markets, engine="cpu", seed=seed, slots=slots)
    sim.run(int(rng.choice([0, 1, 5])))
    for _ in range(int(rng.integers(0, 3)) if slots else 0):
        sim.step(quotes_near(sim, rng))
    chosen = rng.permutation(markets)[: int(rng.integers(1, markets + 1))].tolist()
    quotes = torch.stack([quotes_near(sim, rng) for _ in range(12)]) if slots else None
    return sim, chosen, quotes


@pytest.mark.parametrize("engine", ["cpu", "numpy"])
def test_random_markets(engine):
    """By what must hold of every tape; the book and the series are those of the C++ engine, or of NumPy."""
    traded = acted = 0
    for seed in range(examples(30)):
        sim, chosen, quotes = random_case(seed)
        other = ks.Simulator(sim.config, sim.num_markets, engine=engine, seed=seed, slots=len(sim.slots))
        other.load_state_dict(sim.state_dict())
        made = other.tape(chosen, 12, quotes=None if quotes is None else quotes[:, chosen])
        check_tape(other, made, quotes)
        branch = other.branch()
        branch.run(12) if quotes is None else branch.rollout(quotes, 1)
        for number, market in enumerate(chosen):
            time = made.columns["time"][made.columns["market"] == market]
            assert made.span(number).tolist() == [int(other.time[market]), int(branch.time[market])]
            assert (np.diff([made.span(number)[0], *time, made.span(number)[1]]) >= 0).all()
            assert made.flow(number) == sim.config.flow[market]
            events = made.events(number)
            (begin, end), time = events.sessions[0], events.time
            assert (np.diff([begin, *time, end]) >= 0).all() and (time[events.opening] == begin).all()
        who, trades = made.columns["agent_class"], made.columns["type"] == "trade"
        traded += (trades & (who == "slot")).sum()
        acted += (trades & (who == "copied_noise")).sum()
    assert traded > 20 and acted > 5


def test_ladders_are_checked_beside_the_engine():
    """Whatever differed there would be an error."""
    config = flow_config(plain_table(), orders_per_side=3, interval=10)
    sim = ks.Simulator(config, 2, engine="cpu", seed=1, slots=2)
    mid = (sim.mid2 // 2)[None, :, None, None] + torch.zeros((30, 2, 2, 3), dtype=torch.int64)
    away = torch.randint(-2, 6, mid.shape, generator=torch.Generator().manual_seed(1))
    made = sim.tape([1, 0], 30, quotes=torch.stack([mid - away, 0 * mid + 4, mid + 1 + away, 0 * mid + 4], -1).int())
    rows = made.columns["agent_class"] == "slot"
    assert {"submit", "cancel", "trade"} == set(made.columns["type"][rows])


def test_a_difference_from_the_engine_is_an_error(monkeypatch):
    sim = ks.Simulator(flow_config(plain_table()), 1, engine="cpu", seed=1)
    check_differences_are_seen(monkeypatch, sim, 1, {"lives": 30, "fleeting_units": 30, "flow": 6}, by=1)


# Which orders ---------------------------------------------------------------------------------------------------------


def check_which_orders_go(columns, seen):
    """Trades take the oldest lasting order, then the oldest fleeting one; cancellations what fits best."""
    names = "event type reason order_id agent_class side price quantity remaining".split()
    queues = defaultdict(dict)
    rows = zip(*(columns[name].tolist() for name in names), strict=True)
    for (_, kind, reason), some in groupby(rows, key=lambda row: row[:3]):
        some = [row[3:] for row in some if row[4] != "market"]
        left = sum(row[4] for row in some)
        for order, life, side, price, quantity, remaining in some:
            here = queues[side, price]
            if kind == "submit":
                here[order] = [life, quantity]
                continue
            mine = {one: units for one, (its, units) in here.items() if its == life}
            if kind == "trade":
                assert order == min(mine) and (life == "lasting" or len(mine) == len(here))
            elif reason == "cancelled":
                fits = {one: units for one, units in mine.items() if units <= left}
                assert order == (max(fits, key=fits.get) if fits else min(mine, key=mine.get))
            left -= quantity
            here[order][1] -= quantity
            assert here[order][1] == remaining
            if not remaining:
                del here[order]
            seen[kind, reason, remaining > 0] += 1


def test_which_orders_go():
    seen = defaultdict(int)
    for table in (plain_table(), random_table(2), random_table(6)):
        check_which_orders_go(ks.Simulator(flow_config(table), 1, engine="cpu", seed=3).tape(0, 90).columns, seen)
    assert min(seen[kind] for kind in (("trade", "", False), ("trade", "", True), ("cancel", "cancelled", True))) > 10
    assert seen["cancel", "cancelled", False] > 10 and seen["cancel", "left the grid", False] > 10


def test_what_rests_as_a_tape_begins_is_as_many_orders_as_the_market_counts():
    sim = ks.Simulator(flow_config(random_table(4)), 1, engine="cpu", seed=1)
    sim.run(9)
    rows = next(sim.tape(0, 1).rows(0))
    tick, life = rows["price"] - int(sim.price_origin[0]), rows["who"] - rows["who"].min()
    lives, units = np.zeros((2, 64), int), np.zeros((2, 64), int)
    np.add.at(lives, (life, tick), 1), np.add.at(units, (life, tick), rows["quantity"])
    assert (lives == sim.tensors["lives"][0].numpy()).all() and (
        units[0] == sim.tensors["fleeting_units"][0].numpy()
    ).all()
    assert (units.sum(0) == (sim.bid + sim.ask)[0].numpy()).all()
    for place in np.unique(np.stack([tick, life]), axis=1).T:
        mine = rows["quantity"][(tick == place[0]) & (life == place[1])]
        assert mine.max() - mine.min() <= 1 and mine.min() > 0


def test_live_tensors_of_garbage_do_no_harm():
    rng = np.random.default_rng(3)
    for seed in range(20):
        sim = ks.Simulator(flow_config(plain_table()), 1, engine="cpu", seed=seed)
        for name in ("lives", "fleeting_units", "flow", "bid", "ask"):
            numbers = rng.integers(-(2**31), 2**31, sim.tensors[name].shape)
            sim.tensors[name].copy_(torch.from_numpy(np.where(rng.random(numbers.shape) < 0.3, numbers, 0)))
        sim.tensors["bid"][:, 32:], sim.tensors["ask"][:, :32] = 0, 0
        sim.engine.state_changed()
        try:
            len(sim.tape(0, 2))
        except (ks.MarketError, RuntimeError):
            pass


def test_what_the_page_says_of_cancellations():
    page = " ".join((Path(__file__).parents[1] / "docs" / "order_flow.md").read_text().split())
    sim = ks.Simulator(ks.OrderFlow.preset("btcusd").config(interval=1000), 1, engine="cpu", seed=3)
    columns = sim.tape(0, 50).columns
    orders = np.unique(columns["event"][columns["reason"] == "cancelled"], return_counts=True)[1]
    assert "has one in eight cancellations as those of several orders" in page
    assert 1 / 8.5 < (orders > 1).mean() < 1 / 7.5


# Times, files, simulate -----------------------------------------------------------------------------------------------


def test_times_are_the_flow_s(tmp_path):
    pytest.importorskip("pyarrow")
    sim = ks.Simulator(flow_config(plain_table(), interval=5), 2, engine="cpu", seed=1)
    sim.run(4)
    made = sim.tape([1, 0], 10)
    sim.run(4)
    begin, half = int(made.span(0)[0]), int(sim.time[1])
    sim.run(6)
    end = int(sim.time[1])
    time, event = (made.columns[name][made.columns["market"] == 1] for name in ("time", "event"))
    assert time.dtype == np.int64 and (np.diff(time) >= 0).all() and time[0] == begin
    assert begin < time[event < 40].max() <= half < time[event > 40].min() <= time.max() <= end
    events = made.events(0)
    assert events.sessions.tolist() == [[begin, end]] and (events.time <= end).all()
    assert (events.tick, events.lot) == (sim.config.flow.tick, sim.config.flow.lot)
    (message, book), _ = made.to_lobster(tmp_path, levels=3, opens=100)
    seconds = [f"{round(1000 * (100 + time / 1e9))}" for time in (begin, end)]
    assert Path(message).name == f"MARKET1_2000-01-03_{'_'.join(seconds)}_message_3.csv"
    reader, lines = read(message, book, 3)
    assert lines == len(events) and abs(float(reader.time) - 100 - events.time[-1] / 1e9) < 1e-8
    for use in (made.events, lambda **how: made.to_lobster(tmp_path, **how)):
        with pytest.raises(ValueError, match="interval_seconds: expected None, as an order flow's events .* got 1.0"):
            use(interval_seconds=1.0)


@pytest.mark.parametrize("events", [1, 100, 307, 600])
def test_simulate_plays_as_many_events_as_are_asked_for(events, monkeypatch):
    """However they are cut into intervals of 100 events at most."""
    monkeypatch.setattr(simulating, "_MOST", 100)
    flow = random_table(2)
    reference = FlowMarket(flow, 9, 64, 4, 5, 32)
    assert reference.play(events)
    found, wanted = flow.simulate(events, 9, num_levels=64, window=4, beat=5), reference.events()
    for name in SESSIONS:
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name), err_msg=name)


def test_events_are_those_of_orders():
    """What `simulate` returns can be replayed: every order is added once, and ends when nothing of it is left."""
    events = simulate(random_table(2), 2000, 3, num_levels=64, window=4)
    orders, books = follow_orders(events), replay(events, 1)
    assert (orders.left >= 0).all() and (events.kind == EXECUTE).any()
    assert events.opening.sum() == np.argmin(events.opening) and not events.opening[np.argmin(events.opening) :].any()
    assert (books.spread[books.both] > 0).all()
    added = events.order[events.kind == ADD]
    assert (added == 1 + np.arange(len(added))).all()  # in the order in which they came


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((None, 5), "table"),
        ((random_table(0), 0), "events"),
        ((random_table(0), 1.5), "events"),
        ((random_table(0), 5, "a"), "seed"),
    ],
)
def test_what_simulate_refuses(arguments, named):
    with pytest.raises((TypeError, ValueError), match=named):
        simulate(*arguments)


@pytest.mark.parametrize(("name", "value"), [("num_levels", 4), ("window", 256), ("beat", 0), ("num_levels", "a")])
def test_grids_that_are_refused(name, value):
    with pytest.raises((TypeError, ValueError), match=f"{name}: expected"):
        simulate(plain_table(), 5, **{name: value})


def test_a_market_that_has_to_stop_is_an_error():
    orders = {"limit": np.full((2, 3, 18), UNIT), "cancel": np.ones((2, 18), int), "market": 0}
    with pytest.raises(ks.MarketError, match="would reach 2\\^31"):
        simulate(dataclasses.replace(EXTREMES["giant orders"], **orders), 20_000, num_levels=64, window=8)
