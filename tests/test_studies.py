"""The paper's use cases as studies: what has to hold whatever the figures are."""

import sys

import numpy as np
import pytest
import torch
from thorough import slow

import kineticsim_env as ks
from examples.studies import evolution
from examples.studies.clearing import learning as clearing_learning
from examples.studies.clearing import prices as clearing_prices
from examples.studies.clearing import scripted as clearing_scripted
from examples.studies.clearing import study as clearing
from examples.studies.clearing.study import CONTINUOUS, OFTEN, SELDOM, Case
from examples.studies.execution import learning as execution_learning
from examples.studies.execution import study as execution
from examples.studies.policy_change import study as policy_change
from kineticsim_env.policies import AlmgrenChriss, TimeWeighted

FEW = (Case("idle"), Case("block"), Case("maker", OFTEN, 2), Case("maker", SELDOM, 2), Case("sniper", OFTEN, 1))


@pytest.fixture
def short(monkeypatch):
    """Few events and cases, and distances that only these have."""
    monkeypatch.setattr(clearing, "WARMUP", 256)
    monkeypatch.setattr(clearing, "EVENTS", 1024)
    monkeypatch.setattr(clearing, "SELDOM", 1024)
    cases = tuple(case._replace(every=min(case.every, 1024)) for case in FEW)
    monkeypatch.setattr(clearing, "QUANTITY", {64: 4, 1024: 16})
    monkeypatch.setattr(clearing, "cases", lambda: cases)


def test_every_case_has_the_same_markets_and_every_rule_the_same_news(short):
    """Where slots have no part, cases are one market: an idle slot's book is no other's; the news is the rule's own."""
    path = clearing.fundamental_path(3, "cpu").view(len(clearing.NEWS), 3, -1)
    for interval in (CONTINUOUS, 4, 64, 256):
        shape = (2, len(clearing.NEWS), len(clearing.cases()), 3)
        config = clearing.market(interval, len(clearing.cases()) * 3)
        sim = ks.Simulator(config, int(np.prod(shape)), engine="cpu", seed=clearing.seeds(shape))
        beats = 512 // clearing.BEAT
        sim.run(512 // config.interval)
        fundamental = sim.fundamental_price.view(shape)
        assert (fundamental == path[None, :, None, :, beats - 1]).all()
        bids = sim.bid.view(*shape, -1)
        assert (bids == bids[:, :, :1]).all()
        assert not bids[0].equal(bids[1])  # what agents price around matters


def test_pricing_errors_by_hand():
    """An auction of 4 events: its price stands for the next 4, in which the fundamental price moves on."""
    stood, prices = torch.tensor([[7.0]]), torch.tensor([[10.0, 14.0]])
    fundamental = torch.tensor([[6.0, 6, 8, 8, 9, 9, 13, 13]])
    found = clearing_prices._errors(stood, prices, fundamental, 4)
    before = [7 - 6, 7 - 6, 7 - 8, 7 - 8, 10 - 9, 10 - 9, 10 - 13, 10 - 13]
    after = [7 - 6, 7 - 6, 7 - 8, 10 - 8, 10 - 9, 10 - 9, 10 - 13, 14 - 13]
    assert found[""].item() == sum(gap**2 for gap in before)
    assert found["_after"].item() == sum(gap**2 for gap in after)
    assert found["_cleared"].item() == (10 - 8) ** 2 + (14 - 13) ** 2
    assert found["_absolute"].item() == sum(abs(gap) for gap in before)


@pytest.mark.parametrize("interval", [CONTINUOUS, 16, 64])
def test_prices_at_all_events(short, interval):
    """Event by event: the best bid and ask of the book that an auction, or an event, left, and the last price."""
    found = clearing_prices.play(interval, 1, "cpu")
    config = clearing.market(interval, 1).replace(interval=interval or 1)
    sim = ks.Simulator(config, 6, engine="cpu", seed=clearing.seeds((2, 3, 1)))
    path = clearing.fundamental_path(1, "cpu").repeat(2, 1)
    sums, flat = torch.zeros(2, 6, dtype=torch.float64), 0
    for event in range(clearing.WARMUP + clearing.EVENTS):
        if event >= clearing.WARMUP:
            book = [[tick[0].item() for tick in (row > 0).nonzero()] for side in (sim.bid, sim.ask) for row in side]
            mids = [
                (max(bids) + min(asks)) / 2 if bids and asks else None
                for bids, asks in zip(book[:6], book[6:], strict=True)
            ]
            flat += sum(mid is None for mid in mids)
            mid = torch.tensor(
                [
                    last if mid is None else mid + origin
                    for mid, last, origin in zip(mids, sim.last_price.tolist(), sim.price_origin.tolist(), strict=True)
                ]
            )
            value = path[:, event // clearing.BEAT]
            sums += torch.stack([(price - value).double() ** 2 for price in (mid, sim.last_price)])
        if (event + 1) % config.interval == 0:
            sim.run(1, progress=False)
    for name, total in zip(("mid", "last"), sums, strict=True):
        np.testing.assert_allclose(found[name].ravel(), (total / clearing.EVENTS).sqrt())
    if interval == CONTINUOUS:
        assert (found["last"] > found["mid"]).all()  # the bounce
        np.testing.assert_allclose(found["mid_after"], found["mid_cleared"])


def test_the_mid_between_auctions_is_that_of_tapes(short):
    for interval in (4, 64):
        found = clearing_prices.gap_to_tapes(interval, 1, 1024, "cpu")
        assert found["differs"] < 0.05 and found["error"] < 0.05


def test_the_mid_at_a_beat_is_that_after_its_cancellations_and_before_its_orders():
    columns = ("interval", "event", "type", "agent_class", "order_id", "counterparty_id", "side", "price", "quantity")
    tape = [
        (0, 0, "submit", "resting", 1, -1, "buy", 99, 2),
        (0, 0, "submit", "resting", 2, -1, "buy", 97, 1),
        (0, 0, "submit", "resting", 3, -1, "sell", 101, 2),
        (0, 4, "cancel", "maker", 1, -1, "buy", 99, 2),
        (0, 4, "submit", "resting", 4, -1, "sell", 100, 1),
        (0, 4, "submit", "noise", 5, -1, "buy", 99, 1),
    ]
    rows = {name: np.array(column) for name, column in zip(columns, zip(*tape, strict=True), strict=True)}
    looks = np.array([0, 3, 4])
    assert clearing_prices._mids(rows, looks, 8).tolist() == [(99 + 101) / 2, (99 + 101) / 2, (97 + 100) / 2]


def test_where_a_side_is_empty_the_mid_is_the_last_price(short, monkeypatch):
    """Market orders alone leave nothing to rest, so all events find a side empty."""
    takers = {"noise": 1.0, "maker": 0.0, "fundamental": 0.0, "market_order_prob": 1.0, "init_depth": 0}
    monkeypatch.setattr(clearing, "STREAM", clearing.STREAM | takers)
    for interval in (CONTINUOUS, 64):
        found = clearing_prices.play(interval, 1, "cpu")
        assert (found["empty"] == 1).all() and (found["mid"] > 0).all()
        np.testing.assert_array_equal(found["mid"], found["last"])


def test_continuous_trading_and_slots_do_what_they_say(short):
    found = clearing.play(CONTINUOUS, 3, "cpu")
    idle, block, maker, seldom, sniper = range(5)
    assert (found.units[:, :, idle] == 0).all() and (found.edge[:, :, idle] == 0).all()
    np.testing.assert_allclose(found.units[:, :, block] * 1.024, clearing.BLOCK)  # all of it, in 1,024 events
    assert found.per_unit[:, :, block].mean() < 0  # a block costs
    assert found.units[:, :, maker].mean() > found.units[:, :, seldom].mean() > 0
    assert (
        found.units[:, :, sniper].mean() > 0 and found.per_unit[:, :, sniper][:, 0].mean() > 0
    )  # slow news: nearly sure


def test_a_sniper_orders_what_rests_on_the_wrong_side_and_no_more(short):
    shape = (2, len(clearing.NEWS), len(clearing.cases()), 2)
    sim = ks.Simulator(
        clearing.market(64, 2 * len(clearing.cases())), int(np.prod(shape)), engine="cpu", seed=5, slots=1
    )
    sim.run(20)
    slots = clearing._Slots(shape, sim.device)
    orders = slots._snipe(sim, sim.fundamental_price.long())
    for market in range(sim.num_markets):
        value, distance = sim.fundamental_price[market].item(), slots.distance[market].item()
        ticks = range(sim.config.num_levels)
        origin, most = sim.price_origin[market].item(), slots.quantity[market].item()
        cheap = sum(sim.ask[market, tick].item() for tick in ticks if tick + origin <= value - distance)
        dear = sum(sim.bid[market, tick].item() for tick in ticks if tick + origin >= value + distance)
        assert orders[market].tolist() == [value - distance, min(cheap, most), value + distance, min(dear, most)]
    assert (orders[:, 1] > 0).any() or (orders[:, 3] > 0).any()


def test_the_best_distance_is_chosen_and_paid_in_different_markets(monkeypatch):
    monkeypatch.setattr(clearing, "DISTANCES", (1, 2))
    monkeypatch.setattr(clearing, "cases", lambda: (Case("maker", 64, 1), Case("maker", 64, 2)))
    edge = np.array([[[[9.0, 1.0, 9.0, 1.0], [3.0, 2.0, 5.0, 2.0]]]])  # [reference, news, case, seed]
    found = clearing.Played(*[np.zeros(1)] * 3, edge=edge, units=np.zeros(1), per_unit=np.zeros(1))
    best, paid = clearing_scripted.best_case(found, ("maker",), 64)
    assert best.tolist() == [[1]] and paid.tolist() == [[[3.0, 5.0]]]


@pytest.mark.parametrize(
    ("units", "expected"), [((13, 12), 0), ((13, 13), 1), ((11, 12), 1), ((12, 11), 0), ((0, 0), 1)]
)
def test_learning_begins_where_a_slot_trades(monkeypatch, units, expected):
    """A tenth of what it might order is 12.5 units per 1,000 events; the wider distance earns more."""
    monkeypatch.setattr(clearing, "DISTANCES", (1, 2))
    monkeypatch.setattr(clearing, "cases", lambda: (Case("maker", 64, 1), Case("maker", 64, 2)))
    traded = np.array(units, dtype=float)[None, None, :, None].repeat(4, -1)
    edge = np.array([-1.0, 0.0])[None, None, :, None].repeat(4, -1)
    found = clearing.Played(*[np.zeros(1)] * 3, edge=edge, units=traded, per_unit=np.zeros(1))
    assert clearing_scripted.best_case(found, ("maker",), 64, trading=True)[0].tolist() == [[expected]]
    assert clearing_scripted.best_case(found, ("maker",), 64)[0].tolist() == [[1]]


def test_an_informed_slot_begins_as_the_better_of_maker_and_sniper(monkeypatch):
    """Here the sniper where agents price around the mid, and the maker, at the distance where it trades, elsewhere."""
    monkeypatch.setattr(clearing, "DISTANCES", (1, 8))
    cases = (
        Case("idle"),
        *(Case(role, every, d) for role in ("maker", "sniper") for every in (64, 4096) for d in (1, 8)),
    )
    monkeypatch.setattr(clearing, "cases", lambda: cases)
    edge = np.zeros((2, 3, len(cases), 4))
    edge[:, :, 1], edge[:, :, 2] = -1.0, 0.5  # the maker at 1 and at 8
    edge[:, :, 5] = np.array([1.0, 0.25])[:, None, None]  # the sniper at 1
    units = np.zeros_like(edge)
    units[:, :, 1] = 50.0
    found = clearing.Played(*[np.zeros(1)] * 3, edge=edge, units=units, per_unit=np.zeros(1))
    assert clearing_scripted.best_cases(found)["informed_64"].tolist() == [[5] * 3, [2] * 3]
    assert clearing_scripted.first_cases(found)["informed_64"].tolist() == [[5] * 3, [1] * 3]
    for chosen, distance in ((clearing_scripted.best_cases(found), 8), (clearing_scripted.first_cases(found), 1)):
        sniper, maker = clearing_learning.starts(CONTINUOUS, chosen)[:, 0, 2]
        names = clearing_learning.NUMBERS
        values = {"near": 1, "far": distance - 1, "rest": 0, "news": 1}
        assert sniper.tolist() == [values.get(name, 0) for name in names]
        assert maker.tolist() == [{"near": distance, "rest": 1}.get(name, 0) for name in names]


def learned_kinds(monkeypatch, interval, informed="sniper"):
    """Cases that are the scripted slots of all kinds that learn, one of each, at distances of their own."""
    kinds, roles = clearing_learning.kinds(interval), {"maker": "maker", "informed": informed}
    cases = tuple(Case(roles[kind.role], kind.every, 1 + place % 3) for place, kind in enumerate(kinds))
    monkeypatch.setattr(clearing, "cases", lambda: cases)
    return clearing_learning.starts(interval, {kind.scripted: np.full((2, 3), n) for n, kind in enumerate(kinds)})


@pytest.mark.parametrize(
    ("interval", "informed"), [(CONTINUOUS, "sniper"), (64, "sniper"), (256, "sniper"), (64, "maker")]
)
def test_a_learner_begins_as_the_scripted_slot(short, monkeypatch, interval, informed):
    """In every decision, to the unit; and what it then makes is what the study has of the scripted slot."""
    start = learned_kinds(monkeypatch, interval, informed)
    assert start.shape[2] == (2 if interval > OFTEN else 4)
    shape = (*start.shape[:3], 4)
    scripted = clearing._Slots(shape, torch.device("cpu"))
    quoted = []

    class Both(clearing_learning.Learner):
        def __call__(self, simulator, event, step):
            quotes = super().__call__(simulator, event, step)
            kept = scripted(simulator, event, step)
            quoted.append((quotes * (quotes[..., 1::2] > 0).repeat_interleave(2, -1)).clone())
            assert quoted[-1].equal(kept * (kept[..., 1::2] > 0).repeat_interleave(2, -1))
            return quotes

    monkeypatch.setattr(clearing_learning, "Learner", Both)
    made = clearing_learning.play(interval, start, 8, "cpu")
    assert len(quoted) == (clearing.WARMUP + clearing.EVENTS) // max(OFTEN, interval)
    assert (torch.stack(quoted) != 0).any(1).any(0).sum() == 4  # both sides somewhere
    edge = clearing.play(interval, 8, "cpu").edge
    for place, kind in enumerate(clearing_learning.kinds(interval)):
        np.testing.assert_array_equal(made[kind.name], edge[:, :, place, ::2])


def test_a_learner_orders_by_its_formula(short, monkeypatch):
    """Its second decision, of random numbers, against the same formula in plain Python."""
    start = learned_kinds(monkeypatch, 64)
    numbers = np.random.default_rng(2).normal(start, np.abs(list(clearing_learning.NUMBERS.values())))[..., None, :]
    shape = (*numbers.shape[:-1], 2)
    sim = ks.Simulator(clearing.market(64, 8), int(np.prod(shape)), engine="cpu", seed=7, slots=1)
    slots = clearing_learning.Learner(64, numbers, 2, sim.device)
    sim.rollout(slots(sim, 0, 64)[None], 1)
    before, average = sim.mid2.double() / 2, slots.average.clone()
    slots.before, event = before, 2 * clearing.SELDOM  # when all decide
    sim.run(9)
    mid, book = sim.mid2.double() / 2, torch.stack([sim.bid, sim.ask]).long()
    quotes = slots(sim, event, 64)[:, 0].tolist()
    taking = 0
    for market in range(sim.num_markets):
        at = np.unravel_index(market, shape)[:4]
        p, kind = dict(zip(clearing_learning.NUMBERS, numbers[at], strict=True)), clearing_learning.kinds(64)[at[2]]
        m, moved = mid[market].item(), (mid - before)[market].item()
        origin, most = sim.price_origin[market].item(), clearing.QUANTITY[kind.every]
        bids, asks = ({tick + origin: units for tick, units in enumerate(side.tolist())} for side in book[:, market])
        close = [sum(n for at, n in side.items() if abs(at - m) <= clearing_learning.REACH) for side in (bids, asks)]
        held = min(max(sim.inventory[market, 0].item() / (8 * most), -1), 1)
        centre = m + p["move"] * moved + p["trend"] * (m - average[market].item()) + p["held"] * held
        centre += p["pressure"] * (close[0] - close[1]) / max(sum(close), 1)
        centre += p["news"] * (sim.fundamental_price[market].item() - m) * (kind.role == "informed")
        distance = max(p["near"] + p["caution"] * abs(moved), 0.5)
        low, high = int(np.floor(centre - distance)), int(np.ceil(centre + distance))
        cheap = min(sum(units for at, units in asks.items() if at <= low), most)
        dear = min(sum(units for at, units in bids.items() if at >= high), most)
        far, rest = max(p["far"], 0), min(max(p["rest"], 0), 1)
        assert quotes[market] == [
            *(low if cheap else round(low - far), cheap + round(rest * (most - cheap))),
            *(high if dear else round(high + far), dear + round(rest * (most - dear))),
        ]
        taking += cheap + dear > 0
    assert 0 < taking < sim.num_markets


def test_candidates_play_as_if_alone(short, monkeypatch):
    start = learned_kinds(monkeypatch, 64)
    numbers = np.random.default_rng(3).normal(start[..., None, :], 0.2, (*start.shape[:3], 2, start.shape[-1]))
    made = []
    for chosen in (numbers, numbers[..., :1, :], numbers[..., 1:, :]):
        sim = clearing_learning._simulator(64, (*chosen.shape[:-1], 3), "cpu")
        made.append(clearing_learning._made(sim, 64, chosen, 5))
        assert made[-1].shape == (*chosen.shape[:-1], 3)
    np.testing.assert_array_equal(made[0], np.concatenate(made[1:], 3))
    assert (made[1] != made[2]).any()


def test_resting_units_between_two_prices():
    sim = ks.Simulator(clearing.market(64, 1), 6, engine="cpu", seed=5)
    sim.run(20)
    for side in ("bid", "ask"):
        book = sim.tensors[side]
        none, far = torch.zeros(6, dtype=torch.int64), torch.full((6,), 2**40)
        assert clearing.resting(sim, side, -far, far).equal(book.sum(1))
        assert clearing.resting(sim, side, far, -far).equal(none)
        assert clearing.resting(sim, side, -far, -far).equal(none) and clearing.resting(sim, side, far, far).equal(none)
        lowest = (book > 0).int().argmax(1)
        price = sim.price_origin + lowest.long()
        assert clearing.resting(sim, side, price, price).equal(book.gather(1, lowest[:, None])[:, 0].long())
        assert clearing.resting(sim, side, price + 1, far).equal(book.sum(1) - book.gather(1, lowest[:, None])[:, 0])


def test_what_learns_is_paired_with_the_slot_that_it_began_as():
    names = [name for kind in clearing_learning.kinds(CONTINUOUS) for name in (kind.name, kind.scripted)]
    values = {name: np.full((2, 3, 4), 2.0**place) for place, name in enumerate(names)}
    found = clearing_scripted.leads(CONTINUOUS, values)
    assert {name: each.max() for name, each in found.items()} == {
        **{"learned_maker_64_lead": 1 - 2, "learned_maker_4096_lead": 4 - 8},
        **{"learned_informed_64_lead": 16 - 32, "learned_informed_4096_lead": 64 - 128},
        **{"knowing_64": 16 - 1, "knowing_4096": 64 - 4},
    }
    assert clearing_learning.kinds(256) == (("maker", SELDOM), ("informed", SELDOM))


@slow
def test_learning_finds_better_slots(monkeypatch):
    """On seeds that it has not seen: an informed slot that may quote earns more than a sniper."""
    pytest.importorskip("cma")
    monkeypatch.setattr(clearing, "WARMUP", 1024)
    monkeypatch.setattr(clearing, "EVENTS", 4096)
    start = learned_kinds(monkeypatch, 64)
    calls = []
    numbers = clearing_learning.learn(64, start, start, 4, 6, 8, "cpu", done=lambda: calls.append(0))
    assert numbers.shape == start.shape and len(calls) == 5
    learned, first = (clearing_learning.play(64, each, 48, "cpu") for each in (numbers, start))
    lead = learned["learned_informed_64"] - first["learned_informed_64"]
    assert lead[:, 0].mean() > 0 and (numbers[:, 0, 2] != start[:, 0, 2]).any()


def test_without_cma_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cma", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'kineticsim-env\[train\]'"):
        evolution.search([0.0], 1.0, 4)


@slow
def test_a_search_takes_a_deviation_of_each_number():
    pytest.importorskip("cma")
    asked = np.array(evolution.search([5.0, -1.0], [0.0001, 1.0], 64).ask())
    assert asked.std(0)[0] < 0.001 < 0.5 < asked.std(0)[1] and abs(asked.mean(0)[0] - 5) < 0.001
    assert np.array_equal(asked, evolution.search([5.0, -1.0], [0.0001, 1.0], 64).ask())


POLICY_MARKETS = {
    "news": policy_change.MARKETS["news"][policy_change.CONTINUOUS],
    "trading": policy_change.MARKETS["trading"][policy_change.CALL],
    "each once": policy_change.OTHERS["trading"][f"{policy_change.CALL}, each agent once"],
}


@pytest.mark.parametrize("preset", policy_change.MARKETS)
def test_a_policy_s_markets_differ_in_the_mechanism_alone(preset):
    one, two = (
        policy_change.MARKETS[preset][name].to_dict() for name in (policy_change.CONTINUOUS, policy_change.CALL)
    )
    assert [name for name in one if not np.array_equal(one[name], two[name])] == ["mechanism"]
    asked, given = one, ks.MarketConfig.preset(preset).to_dict()
    changed = {name for name in asked if not np.array_equal(asked[name], given[name])}
    assert changed <= {"mechanism", "arrivals", "tie", "residue"}
    own = ks.MarketConfig.preset(preset, **({"arrivals": "clock"} if preset == "trading" else {}))
    alike = policy_change.MARKETS[preset][policy_change.CONTINUOUS if own.is_continuous else policy_change.CALL]
    series = [ks.Simulator(each, 8, engine="cpu", seed=3).run(60, ("mid2", "last_price")) for each in (own, alike)]
    assert all(torch.equal(series[0][name], series[1][name]) for name in series[0])


@pytest.mark.parametrize("name", POLICY_MARKETS)
def test_markets_are_equal_until_the_change_and_as_branches_after(name, monkeypatch):
    """Side by side with per-market parameters is bit for bit what one branch with one parameter is."""
    for field, value in {"WARMUP": 6, "BEFORE": 4, "AFTER": 8}.items():
        monkeypatch.setattr(policy_change, field, value)
    config = POLICY_MARKETS[name]
    found = policy_change.play(config, 4, "cpu")
    for values in found.values():
        assert values.shape == (len(policy_change.CHANGES), 4, 12)
        np.testing.assert_array_equal(values[:, :, :4], np.broadcast_to(values[:1, :, :4], values[:, :, :4].shape))
        assert all((values[place, :, 4:] != values[0, :, 4:]).any() for place in (2, 4))  # a tick size, a fee
    sim = ks.Simulator(config, 4, engine="cpu", seed=policy_change.SEED, slots=1)
    free = torch.zeros(4, dtype=torch.int64)
    for _ in range(10):
        sim.rollout(policy_change._quotes(sim, free)[None], 1)
    branch = sim.branch()
    branch.set_parameters(tick_size=4)
    place = list(policy_change.CHANGES).index("tick size of 4")
    for interval in range(8):
        before, mid = branch.last_price.long(), branch.mid2 / 2
        series = branch.rollout(policy_change._quotes(branch, free)[None], 1, ("volume",)).series
        assert series["volume"][0, :, 0].tolist() == found["volume"][place, :, 4 + interval].tolist()
        at = (place, slice(None), 4 + interval)
        assert (branch.last_price - before).abs().tolist() == found["volatility_last"][at].tolist()
        assert (branch.mid2 / 2 - mid).abs().tolist() == found["volatility_mid"][at].tolist()
        for kind, price in (("error_last", branch.last_price), ("error_mid", branch.mid2 / 2)):
            assert (price - branch.fundamental_price).abs().tolist() == found[kind][at].tolist()


def test_a_change_reaches_its_own_markets_and_the_maker_passes_it_on():
    sim = ks.Simulator(
        policy_change.MARKETS["news"][policy_change.CONTINUOUS], 2 * len(policy_change.CHANGES), engine="cpu", slots=1
    )
    cost = policy_change._change(sim, 2).tolist()
    expected = {"tax of 1 tick": 1, "fee of 1 tick": 1, "rebate of 1 tick": -1}
    for place, (name, fields) in enumerate(policy_change.CHANGES.items()):
        rows = slice(2 * place, 2 * place + 2)
        assert cost[rows] == [expected.get(name, 0)] * 2
        for field in ("tax", "tick_size", "collar", "fee"):
            assert sim.parameter(field)[rows].tolist() == [fields.get(field, 1 if field == "tick_size" else 0)] * 2
    still, passed = policy_change._quotes(sim, torch.zeros(12).long()), policy_change._quotes(sim, torch.tensor(cost))
    assert (passed - still)[:, 0].tolist() == [[-each, 0, each, 0] for each in cost]


def test_a_fee_costs_the_maker_what_it_says(monkeypatch):
    """Where the maker does not answer, a fee of 1 tick is 1 tick per unit and nothing else."""
    for field, value in {"WARMUP": 6, "BEFORE": 4, "AFTER": 20}.items():
        monkeypatch.setattr(policy_change, field, value)
    monkeypatch.setattr(policy_change, "CHANGES", {"no change": {}, "fee": {"fee": 1000}})
    answer = policy_change._change
    monkeypatch.setattr(policy_change, "_change", lambda *words: answer(*words) * 0)
    found = policy_change.play(policy_change.MARKETS["trading"][policy_change.CALL], 8, "cpu")
    for name in policy_change.MEASURES[:-1]:
        np.testing.assert_array_equal(found[name][0], found[name][1])
    paid = (found["earned"][0] - found["earned"][1])[:, 4:]
    assert (paid >= 0).all() and (paid == np.round(paid)).all() and paid.sum() > 0
    assert paid.max() <= 2 * policy_change.QUANTITY


def test_outcomes_of_a_purchase_and_a_sale():
    """What the price does anyway leaves the mean cost, and not the risk."""
    drift = np.random.default_rng(0).normal(0, 10, 500)
    time = np.full(500, 48.0)
    found = execution.outcome(2 + drift, 2 - drift, time)
    assert found.cost.mean == pytest.approx(2) and found.cost.error == pytest.approx(0, abs=1e-12)
    assert found.risk.mean == pytest.approx(np.sqrt((drift**2).mean()))
    same = execution.outcome(drift, drift, time)
    assert same.risk.mean == pytest.approx(drift.std())
    expected = ks.statistics.deviation_and_error(drift).error
    assert same.risk.error == pytest.approx(expected, rel=1e-2)


def test_schedules_of_execution_run_from_twap_to_at_once():
    """A risk of 0 is TWAP, and the more risk weighs the sooner the block is done."""
    task = execution.environment("continuous trading", "buy", 1, "cpu").core.task
    setting = execution.Setting(sigma=2.0, eta=0.2, half_spread=1.0)
    left = torch.arange(80.0, -1, -1)
    makers = execution.executors(setting)
    shares = [TimeWeighted(task).share_left(left)]
    shares += [makers[f"Almgren-Chriss {risk:g}"](task).share_left(left) for risk in execution.RISKS]
    assert isinstance(makers["Almgren-Chriss 0.01"](task), AlmgrenChriss)
    assert all((later <= sooner + 1e-6).all() for sooner, later in zip(shares, shares[1:], strict=False))
    assert (shares[-1][1] < 0.8).all()


@pytest.mark.parametrize("rule", execution.RULES)
def test_every_rule_gives_a_block_the_same_events_and_orders(rule):
    """As long, as large orders per event, forced as fast, and in markets as old."""
    envs = execution.environment(rule, "sell", 1, "cpu")
    task, interval = envs.core.task, envs.core.simulator.config.interval
    every = execution.decision(rule)
    assert task.horizon * every == execution.EVENTS and every == envs.core.auctions_per_step * interval
    assert task.max_qty * execution.PER == execution.LARGEST * every
    assert task.forced_qty * execution.PER == execution.LARGEST * interval
    assert task.warmup * interval == execution.WARMUP
    assert task.max_qty * task.horizon >= max(execution.SIZES)


def test_rules_are_compared_at_the_same_pace(monkeypatch):
    """Units are done as late under every rule with as long pieces, and at most `LATE` events later where they wait."""
    monkeypatch.setattr(execution, "SIZES", (40, 160))
    for every, ticks in ((execution.COARSE, execution.TAKE), (execution.FINE, execution.WAIT)):
        for rule in execution.RULES:
            found = execution.paced(rule, 960, every, ticks, 8, "cpu")
            even = (960 - execution.piece(rule, every)) / 2
            for outcome in found:
                assert even <= outcome.time.mean + 1e-6 <= even + execution.LATE * (ticks != execution.TAKE) + 2
                assert outcome.cost.count == 8


def test_the_time_of_a_unit_by_hand():
    """All at once is done in the first decisions; what is left to the deadline in the last one."""
    for policy, expected in (
        (ks.policies.ImmediateExecution, (64 * 0 + 64 * 1 + 32 * 2) * 48 / 160),
        (ks.policies.DoNothing, 3840 - 48),
    ):
        envs = execution.environment("auctions of 48", "buy", 4, "cpu", (160,))
        played = execution.episodes(policy(envs.core.task), envs, np.arange(4))
        if policy is ks.policies.DoNothing:
            np.testing.assert_allclose(played.time, expected)
        else:
            assert (played.time >= expected - 1e-6).all() and (played.time < expected + 100).all()


def test_impact_is_measured_under_the_rule_itself(monkeypatch):
    asked = []
    evenly = execution._evenly
    monkeypatch.setattr(
        execution, "_evenly", lambda rule, *words, **more: asked.append(rule) or evenly(rule, *words, **more)
    )
    found = [execution.calibrate(rule, 8, "cpu") for rule in ("auctions of 24", "auctions of 48")]
    assert asked == ["auctions of 24", "auctions of 48"] and found[0].eta != found[1].eta
    assert all(each.half_spread > 0 and each.sigma > 0 for each in found)


def test_a_blind_executor_sees_nothing():
    envs = execution.environment("continuous trading", "buy", 6, "cpu", sizes=(160,))
    numbers = execution_learning._all_of(np.array([-2.0, 0.5]))
    assert numbers.tolist() == [-2.0, 0.5, *execution_learning.START[2:]]
    blind = execution_learning.Adaptive(envs.core.task, numbers)
    observation, _ = envs.reset(seed=3)
    other = observation.clone()
    other[:, :30], other[:, 36:39] = 0.5, -0.5  # all of the market, and none of the block
    assert blind(other).equal(blind(observation))


def test_an_adaptive_executor_of_the_first_numbers_is_a_schedule():
    """It sees nothing then: its orders are those of Almgren and Chriss with its urgency, 10 ticks through the mid."""
    envs = execution.environment("continuous trading", "buy", 6, "cpu", sizes=(160,))
    risk = 2 * 0.2 * (np.cosh(0.15) - 1) / 4.0  # that with this sigma and eta has an urgency of 0.15
    schedule = AlmgrenChriss(envs.core.task, risk=risk, sigma=2.0, eta=0.2)
    adaptive = execution_learning.Adaptive(envs.core.task, np.array(execution_learning.START))
    observation, _ = envs.reset(seed=3)
    unit = 2.0 / execution.LARGEST  # by which rounding may set them apart
    for _ in range(20):  # the block is not done then
        action = schedule(observation)
        torch.testing.assert_close(adaptive(observation), action, rtol=0, atol=1.01 * unit)
        observation = envs.step(action)[0]


def test_candidates_of_one_call_do_not_see_each_other():
    envs = execution.environment("auctions of 48", "sell", 8, "cpu", sizes=(160,))
    observation, _ = envs.reset(seed=3)
    numbers = np.array(execution_learning.START) + np.random.default_rng(0).normal(0, 0.5, (2, 9))
    both = execution_learning.Adaptive(envs.core.task, numbers)(observation)
    for place, rows in enumerate((slice(0, 4), slice(4, 8))):
        alone = execution_learning.Adaptive(envs.core.task, numbers[place])(observation[rows])
        assert alone.equal(both[rows])
    assert (both.abs() <= 1).all()


def test_a_goal_compares_cost_and_risk_in_the_same_markets():
    generator = np.random.default_rng(1)
    bought, sold = generator.normal(0, 3, (2, 400))
    time = np.zeros(400)
    one, dearer = execution.outcome(bought, sold, time), execution.outcome(bought + 0.5, sold + 0.5, time)
    less = execution.goal_less(one, dearer, 2.0)
    assert less.mean == pytest.approx(-0.5) and less.error == pytest.approx(0, abs=1e-12)
    riskier = execution.outcome(2 * bought, 2 * sold, time)
    less = execution.goal_less(one, riskier, 2.0)
    assert less.mean == pytest.approx(one.cost.mean - riskier.cost.mean - 2 * one.risk.mean)
    assert 0 < less.error < one.risk.mean


@slow
def test_learning_finds_a_better_executor():
    """Few generations already do better than where the search begins, on seeds that it has not seen."""
    pytest.importorskip("cma")
    goals = [execution_learning.Goal(0.5, looks) for looks in (False, True)]
    numbers = execution_learning.learn(
        "continuous trading", 160, goals, markets=32, generations=8, population=12, engine="cpu", progress=False
    )
    assert (
        numbers[0, execution_learning.BLIND :] == np.array(execution_learning.START)[execution_learning.BLIND :]
    ).all()
    start = np.array(execution_learning.START)
    *found, first = execution_learning.play("continuous trading", 160, np.stack([*numbers, start]), 128, "cpu")
    assert all(execution.goal_less(each, first, 0.5).mean < 0 for each in found)


@slow
def test_more_haste_costs_more():
    found = execution.play("continuous trading", 64, "cpu")
    for size in range(len(execution.SIZES)):
        slow, fast = found["TWAP"][size], found["at once"][size]
        assert (slow.each - fast.each).mean() < 0 and slow.risk.mean > fast.risk.mean
