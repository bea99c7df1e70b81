"""Tapes: the orders of a market, held against what engines play and against the rules of docs/model.md."""

import copy
import ctypes
import pickle
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch
from agent_classes import CLASSES, at_the_best, copied_noise, trend_follower
from ensembles import KINDS
from tape_checks import check_differences_are_seen, check_tape, random_case
from thorough import examples, slow

import kineticsim_env as ks
from kineticsim_env.engines.numpy.rules import bits, episode_key, random_words
from kineticsim_env.errors import MarketError
from kineticsim_env.runtime import agent_library
from kineticsim_env.tapes import library, tape

PLACES, EVENTS = 2**30 + 6, "clock"
every_kind = pytest.mark.parametrize("arrivals, mechanism", KINDS)


def tape_of(preset="continuous", intervals=40, markets=(0,), run=10, **changes):
    """Return a tape of a preset's markets, and their simulator."""
    sim = ks.Simulator(ks.MarketConfig.preset(preset, **changes), max(markets) + 1, engine="cpu", seed=7)
    sim.run(run)
    return sim.tape(markets, intervals), sim


def table_of(made):
    """Return a tape as a table, where there is pandas."""
    pytest.importorskip("pandas")
    return made.to_pandas()


def test_what_the_page_warns_of():
    """Its figures of how built-in cancellation differs from that of real markets."""
    page = " ".join((Path(__file__).parents[1] / "docs" / "tapes.md").read_text().replace("> ", "").split())
    found = []
    for preset in ("realistic", "news"):
        rows = table_of(tape_of(preset, 50, range(16), run=300)[0])
        rows = rows[rows.reason == "cancelled"]
        found += [100 * (rows.remaining > 0).mean(), rows.groupby(["market", "time"]).size().mean()]
    part, at_once, of_news, at_once_there = found
    assert f"In `realistic` {part:.0f}% of the cancellations take a part of an order, and {at_once:.0f} come" in page
    assert f"in `news` {of_news:.0f}% and {at_once_there:.0f}." in page


# Against engines ------------------------------------------------------------------------------------------------------


@every_kind
def test_random_markets(arrivals, mechanism):
    for seed in range(examples(100)):
        sim, chosen, intervals, quotes = random_case(seed, arrivals, mechanism)
        before = sim.state_dict()
        check_tape(sim, sim.tape(chosen, intervals, quotes=None if quotes is None else quotes[:, chosen]), quotes)
        assert all(torch.equal(before[name], now) for name, now in sim.state_dict().items())


@every_kind
def test_random_markets_with_agents_that_users_write(arrivals, mechanism):
    agent_library.compile_classes(CLASSES)  # at once, or each mix of them is compiled for itself
    for seed in range(1000, 1000 + examples(60)):
        sim, chosen, intervals, quotes = random_case(seed, arrivals, mechanism, added=True)
        check_tape(sim, sim.tape(chosen, intervals, quotes=None if quotes is None else quotes[:, chosen]), quotes)


@every_kind
def test_the_reference_plays_what_a_tape_says(arrivals, mechanism):
    """The tape is made beside the C++ engine; here the book and the volumes come from the other one."""
    for seed in range(300, 300 + examples(15)):
        sim, chosen, intervals, quotes = random_case(seed, arrivals, mechanism)
        other = ks.Simulator(sim.config, sim.num_markets, engine="numpy", seed=seed, slots=sim.slots)
        other.load_state_dict(sim.state_dict())
        check_tape(other, other.tape(chosen, intervals, quotes=None if quotes is None else quotes[:, chosen]), quotes)


@pytest.mark.parametrize("preset", ["paper", "trading", "continuous", "news"])
def test_presets(preset):
    made, sim = tape_of(preset, markets=(2, 0))
    check_tape(sim, made)
    assert set(made.columns["market"]) == {0, 2} and made.columns["market"][0] == 2  # market after market, as asked
    assert np.all(made.columns["remaining"] >= 0)


@pytest.mark.gpu
@pytest.mark.parametrize("preset", ["trading", "news"])
def test_markets_on_a_gpu(preset):
    config = ks.MarketConfig.preset(preset, agents={trend_follower: 3})
    sim = ks.Simulator(config, 40, engine="cuda", seed=3, slots=1)
    sim.run(20)
    quotes = torch.tensor([60, 5, 70, 5], dtype=torch.int32, device=sim.device).expand(4, 40, 1, 4).contiguous()
    check_tape(sim, sim.tape([33, 2], 20, quotes=quotes[:, [33, 2]]), quotes)


def test_an_environments_markets():
    """Its scenarios give each market parameters of its own."""
    import gymnasium as gym

    envs = gym.make_vec("KineticSim/MarketMaking-v0", num_envs=4, engine="cpu", output="torch",
                        randomise={"noise_spread": (4, 12)}, bank_size=2, warmup=5)  # fmt: skip
    envs.reset(seed=1)
    envs.step(envs.action_space.sample())
    sim = envs.unwrapped.core.simulator
    check_tape(sim, sim.tape([1, 3], 20))


def test_a_difference_from_the_engine_is_an_error(monkeypatch):
    """Whatever the engine has otherwise than the tape, in any tensor."""
    _, sim = tape_of("news", run=3)
    places = {"bid": 3, "ask": -3, "fundamental_price": 0, "volume": 0, "trades": 0}
    check_differences_are_seen(monkeypatch, sim, 5, places, by=1000)
    assert len(sim.tape(0, 5)) > 0


# Rules ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "preset", ["continuous", "calls on the clock", *(pytest.param(name, marks=slow) for name in ("trading", "news"))]
)
def test_what_cancellation_takes_of_each_order(preset):
    """The k-th order of a queue loses F(C_k) - F(C_(k-1)), F(x) = floor((loss * x + r) / q)."""
    changes = {"arrivals": EVENTS, "interval": 30, "beat": 7} if preset == "calls on the clock" else {}
    made, sim = tape_of("trading" if changes else preset, **changes)
    rows = table_of(made)
    key = episode_key(np.array([int(sim.tensors["seed"][0])]), np.array([int(sim.tensors["episode"][0])]))
    beat = sim.rows["beat"][0] if sim.config.uses_clock else 1
    queues, units, lost, checked = defaultdict(dict), {}, {}, 0

    def check(event, side, price):
        nonlocal checked
        word = random_words(key, np.array([event // beat]), np.array([PLACES]))
        u32 = int(bits(word, 0 if side == "buy" else 32, 32)[0])
        here = [order for order in queues[side, price] if units[order] > 0]
        for some in ([o for o in here if not waits(o, event)], [o for o in here if waits(o, event)]):
            q, loss = sum(units[o] for o in some), sum(lost.get(o, 0) for o in some)
            r, upto = u32 * q >> 32, 0
            for order in some:
                before, upto = upto, upto + units[order]
                wanted = (loss * upto + r) // q - (loss * before + r) // q
                assert lost.get(order, 0) == wanted
                checked += wanted > 0

    def waits(order, event):  # an auction's orders of the present interval
        return sim.config.uses_clock and not sim.config.is_continuous and came[order] == event // 30

    came, places, now = {}, set(), None
    for row in rows.itertuples():
        if places and (row.reason != "cancelled" or row.event != now):
            for side, price in places:
                check(now, side, price)
            for order, gone in lost.items():
                units[order] -= gone
            places, lost = set(), {}
        if row.type == "submit":
            queues[row.side, row.price][row.order_id] = True
            units[row.order_id], came[row.order_id] = row.quantity, row.interval if row.agent >= 0 else -1
        elif row.reason == "cancelled":
            places.add((row.side, row.price))
            lost[row.order_id], now = row.quantity, row.event
        else:
            units[row.order_id] -= row.quantity
            if row.type == "trade":
                units[row.counterparty_id] -= row.quantity
    assert checked > 100


@pytest.mark.parametrize("preset", ["trading", "continuous"])
def test_whose_orders_they_are(preset):
    """Agents, quantities and whether orders are marketable, out of the random words."""
    made, sim = tape_of(preset)
    rows = table_of(made)
    rows = rows[(rows.type == "submit") & (rows.agent >= 0)]
    p = {name: int(values[0]) for name, values in sim.rows.items()}
    key = episode_key(np.array([int(sim.tensors["seed"][0])]), np.array([0]))
    event = rows.event.to_numpy()
    if sim.config.uses_clock:
        half = random_words(key, event >> 1, np.array([2**31 + 2**29]))
        drawn = np.where(event & 1, bits(half, 32, 32), bits(half, 0, 32)) * p["num_agents"] >> 32
        assert np.array_equal(rows.agent, drawn) and len(rows) == 40 * p["interval"]
        word = random_words(key, event, np.array([0]))
    else:
        assert rows.agent.tolist() == [*range(p["num_agents"])] * 40
        word = random_words(key, event, rows.agent.to_numpy())
    first = np.array([p[f"first_{name}"] for name in ("momentum", "maker", "fundamental")])
    kinds = np.array(["noise", "momentum", "maker", "fundamental"])
    assert np.array_equal(rows.agent_class, kinds[(rows.agent.to_numpy()[:, None] >= first).sum(1)])
    assert np.array_equal(rows.quantity, 1 + (bits(word, 32, 16) * p["max_order_qty"] >> 16))
    fired = (bits(word, 0, 24) < p["market_order_threshold"]) & (rows.agent_class != "maker")
    assert np.array_equal(rows.marketable, fired) and fired.any()
    noise = rows.agent_class == "noise"
    assert np.array_equal(rows.side[noise] == "buy", bits(word, 31, 1)[noise] == 1)


def test_orders_of_agents_that_users_write():
    agents = {copied_noise: 4, at_the_best: 3, trend_follower: 0}
    sim = ks.Simulator(ks.MarketConfig.preset("trading", agents=agents), 1, engine="cpu", slots=("at_the_best",))
    rows = table_of(sim.tape(0, 30))
    rows = rows[(rows.type == "submit") & (rows.agent >= 20)]
    assert rows.agent.tolist() == [20, 21, 22, 23, 24, 25] * 30  # the last one is replaced
    assert rows.agent_class.tolist() == (["copied_noise"] * 4 + ["at_the_best"] * 2) * 30


@ks.agent()
def resting(market, own, draw):
    return ks.order(1, market.near_mid(-3), 1)


def test_a_class_that_is_called_as_others_are():
    sim = ks.Simulator(ks.MarketConfig.preset("trading", agents={resting: 1}), 1, engine="cpu")
    made = sim.tape(0, 3)
    assert table_of(made).agent_class.cat.categories[-1] == f"{__name__}:resting"
    assert (made.columns["agent_class"] == f"{__name__}:resting").sum() >= 3


def test_residue_takes_marketable_orders_first():
    made, _ = tape_of("trading", intervals=200, collar=3)  # so that they end up where others rest
    rows = table_of(made)
    left = {row.order_id: row.quantity for row in rows[rows.type == "submit"].itertuples()}
    for order, gone in rows[rows.type != "submit"].groupby("order_id").quantity.sum().items():
        left[order] -= gone
    for order, gone in rows[rows.type == "trade"].groupby("counterparty_id").quantity.sum().items():
        left[order] -= gone
    assert not any(left[order] for order in rows[rows.marketable].order_id)
    residue = rows[rows.reason == "residue"]
    assert residue.marketable.any() and not residue.marketable.all()
    for _, some in residue.groupby(["interval", "side"], observed=True):
        taken = some.marketable.tolist()
        assert taken == sorted(taken, reverse=True)
        others = some[~some.marketable].order_id.tolist()
        assert others == sorted(others, reverse=True)


def test_orders_at_a_price_trade_in_the_order_in_which_they_came():
    made, _ = tape_of("news")
    waiting = defaultdict(list)
    left = {}
    for row in table_of(made).itertuples():
        if row.type == "submit":
            waiting[row.side, row.price].append(row.order_id)
            left[row.order_id] = row.quantity
            continue
        if row.type == "trade":
            first = next(order for order in waiting[row.side, row.price] if left[order] > 0)
            assert row.order_id == first
            left[row.counterparty_id] -= row.quantity
        left[row.order_id] -= row.quantity


@pytest.mark.parametrize("preset", ["paper", "trading"])
def test_auctions_fill_by_price_and_then_by_time(preset):
    """All that trades comes before all that does not; every trade of an auction is at its one price."""
    made, _ = tape_of(preset, intervals=15)
    orders = {}
    for _, rows in table_of(made).groupby("interval"):
        filled = {"buy": [], "sell": []}
        for row in rows.itertuples():
            if row.type == "submit":
                worth = row.price if row.side == "sell" else -row.price
                orders[row.order_id] = [row.side, worth, row.quantity]
            elif row.type == "cancel" and row.reason != "residue":
                orders[row.order_id][2] -= row.quantity
            elif row.type == "trade":
                for order, side in ((row.order_id, "buy"), (row.counterparty_id, "sell")):
                    assert orders[order][0] == side and orders[order][2] >= row.quantity
                    orders[order][2] -= row.quantity
                    filled[side].append((orders[order][1], order))
        assert rows[rows.type == "trade"].price.nunique() <= 1
        for side, fills in filled.items():
            assert fills == sorted(fills)
            rest = [(worth, order) for order, (which, worth, units) in orders.items() if which == side and units > 0]
            assert not fills or min(rest, default=(10**9, 0)) >= fills[-1]
        for row in rows[rows.reason == "residue"].itertuples():
            orders[row.order_id][2] -= row.quantity


def test_a_market_by_hand():
    """Two quotes in a queue: what is ahead of them trades first, and then they in the order in which they came."""
    config = ks.MarketConfig(num_agents=0 + 1, noise=1, momentum=0, maker=0, arrivals=EVENTS, mechanism="continuous",
                             interval=1, num_levels=16, init_price=8, init_depth=5, market_order_prob=0)  # fmt: skip
    sim = ks.Simulator(config, 1, engine="cpu", seed=0, slots=3)
    quotes = torch.tensor([[[7, 2, 0, 0], [7, 3, 0, 0], [0, 0, 7, 9]]], dtype=torch.int32)
    rows = table_of(sim.tape(0, 1, quotes=quotes[None]))
    trades = rows[rows.type == "trade"]
    slots = rows[(rows.type == "submit") & (rows.agent_class == "slot")].order_id.tolist()
    assert trades.order_id.tolist()[:3] == [1, slots[0], slots[1]]  # the opening's five units at 7, then the slots
    assert trades.quantity.tolist()[:3] == [5, 2, 2] and set(trades.counterparty_id[:3]) == {slots[2]}
    assert trades.remaining.tolist()[:3] == [0, 0, 1]


# Columns and files ----------------------------------------------------------------------------------------------------


def test_columns_tables_and_parquet_are_the_same(tmp_path):
    pandas, parquet = pytest.importorskip("pandas"), pytest.importorskip("pyarrow.parquet")
    made, _ = tape_of("news", markets=(1, 0))
    table = table_of(made)
    assert list(table) == list(made.columns) and len(table) == len(made) == len(made.columns["time"])
    for name, values in made.columns.items():
        assert np.array_equal(table[name].to_numpy(), values), name
    made.to_parquet(tmp_path / "tape.parquet", compression="zstd")
    pandas.testing.assert_frame_equal(parquet.read_table(tmp_path / "tape.parquet").to_pandas(), table)
    assert np.array_equal(table.time, table.event / 48)


def test_a_tape_can_be_handed_to_another_process():
    """Before it has played and after; what comes back plays the same."""
    made = ks.Simulator(ks.MarketConfig.preset("news"), 3, engine="cpu", seed=4).tape([2, 0], 6)
    before = pickle.dumps(made)
    wanted = made.columns
    for other in (pickle.loads(before), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert other.markets == [2, 0] and all(np.array_equal(wanted[name], x) for name, x in other.columns.items())


def test_chunks_change_nothing(tmp_path, monkeypatch):
    parquet = pytest.importorskip("pyarrow.parquet")
    for preset in ("trading", "news"):
        made, sim = tape_of(preset, intervals=60, markets=(0, 1))
        whole = table_of(made)
        monkeypatch.setattr(tape, "_CHUNK", 100)
        pieces = sim.tape([0, 1], 60)
        assert sum(1 for _ in pieces.parts()) > 10
        assert table_of(pieces).equals(whole)
        pieces.to_parquet(tmp_path / "tape.parquet")
        assert parquet.read_table(tmp_path / "tape.parquet").to_pandas().equals(whole)
        assert parquet.ParquetFile(tmp_path / "tape.parquet").num_row_groups > 10
        monkeypatch.undo()


def test_decisions_under_a_latency_are_cut(monkeypatch):
    monkeypatch.setattr(tape, "_CHUNK", 1)
    config = ks.MarketConfig.preset("continuous", quote_latency=45)
    sim = ks.Simulator(config, 2, engine="cpu", slots=1)
    sim.run(5)
    mid = (sim.mid2 // 2)[None, :, None]
    quotes = torch.stack([mid - 3, 0 * mid + 5, mid + 3, 0 * mid + 5], -1).expand(4, 2, 1, 4).contiguous()
    check_tape(sim, sim.tape([0, 1], 20, quotes=quotes), quotes)


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    """A side that comes to 2^31 stops the market: an error, as in a run, and no file."""
    pytest.importorskip("pyarrow")
    config = ks.MarketConfig(num_agents=16000, max_order_qty=65535, noise_spread=0, noise=0, momentum=0, maker=1,
                             maker_half_spread=20)  # fmt: skip
    sim = ks.Simulator(config, 1, engine="cpu")
    with pytest.raises(MarketError, match="total quantity on a side"):
        sim.branch().run(50)
    made = sim.tape(0, 50)
    with pytest.raises(MarketError, match="market 0: at t = .* total quantity on a side would reach 2\\^31"):
        made.to_parquet(tmp_path / "tape.parquet")
    assert not list(tmp_path.iterdir())


def test_a_bar_shows_where_it_is_asked_for(capsys):
    made, sim = tape_of("news")
    assert len(made) and "tape" not in capsys.readouterr().err
    assert len(sim.tape(0, 5, progress=True)) and "tape" in capsys.readouterr().err


def test_rows_are_what_the_library_writes():
    assert library.ROW.itemsize == 64 and library.MESSAGE.itemsize == 40
    made, _ = tape_of()
    assert library.load().ks_tape_count.restype is ctypes.c_int64
    opening, *parts = made.parts()
    assert set(opening.rows["kind"]) == {0} and set(opening.rows["who"]) <= {
        library.WHO.index("resting"),
        library.WHO.index("slot"),
    }
    assert all(part.rows.dtype == library.ROW for part in parts) and set(parts[0].rows["kind"]) == {0, 1, 2}


WRONG = {
    "markets": [(5, 1), ([], 1), ("0", 1), ([0, 0], 1), (1.5, 1), (None, 1), ([True], 1), (-1, 1)],
    "intervals": [(0, 0), (0, 1.5), (0, -3), (0, None), (0, 2**31)],
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments(name):
    sim = ks.Simulator(ks.MarketConfig.preset("news"), 5, engine="cpu", slots=1)
    for markets, intervals in WRONG[name]:
        with pytest.raises((TypeError, ValueError), match=f"{name}: expected .*got .*"):
            sim.tape(markets, intervals)


def test_wrong_quotes_and_paths():
    sim = ks.Simulator(ks.MarketConfig.preset("news", quote_latency=5), 5, engine="cpu", slots=1)
    zeros = torch.zeros((3, 2, 1, 4), dtype=torch.int32)
    for quotes in (zeros, zeros[0], zeros[:, :1], zeros.float(), "x"):
        with pytest.raises((TypeError, ValueError), match="quotes: expected .*got .*"):
            sim.tape([0, 1], 10, quotes=quotes)
    for path in ([1, 2], [[1] * 10], [1.5] * 10, [2**30 + 1] * 10):
        with pytest.raises((TypeError, ValueError), match="fundamental: expected .*got .*"):
            sim.tape([0, 1], 10, fundamental=path)
    assert len(sim.tape([0, 1], 9, quotes=zeros, fundamental=[1] * 9))
    assert len(sim.tape([0, 1], 3, quotes=zeros, fundamental=[1] * 3))
    sim.tensors["t"].fill_(sim._end - 5)
    with pytest.raises(MarketError, match="intervals: expected .*, got 10 at t"):
        sim.tape(0, 10)


@slow
def test_a_long_tape_takes_little_memory(tmp_path):
    """A Parquet file of 10 M rows, in 200 MB more than a short one."""
    resource = pytest.importorskip("resource")
    pytest.importorskip("pyarrow")
    sim = ks.Simulator(ks.MarketConfig.preset("news"), 1, engine="cpu")
    sim.tape(0, 3000).to_parquet(tmp_path / "short.parquet")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sim.tape(0, 68_000).to_parquet(tmp_path / "long.parquet")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kilobytes on Linux
