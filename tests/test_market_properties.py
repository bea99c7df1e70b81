"""Laws that every auction keeps, and known answers worked out by hand, on every engine through the Simulator."""

from fractions import Fraction

import numpy as np
import plain_rules
import pytest
import torch
from hypothesis import given, settings
from strategies import STYLES, every_engine, make_config, make_move, make_quotes, open_simulator, plays
from thorough import covering, examples

import kineticsim_env as ks
from kineticsim_env.engines.parameters import class_counts

BUY, SELL = (10, 5, 8, 0, 2), (0, 4, 7, 6, 3)  # the paper's worked case


def only_slots(engine, slots, markets=1, levels=8, **fields):
    """Open a market in which nobody but K slots trades: its one built-in agent is replaced."""
    config = ks.MarketConfig(
        num_levels=levels, num_agents=1, noise=1, momentum=0, maker=0, init_price=levels // 2, init_depth=0, **fields
    )
    return ks.Simulator(config, markets, engine=engine, slots=("noise", *[None] * (slots - 1)))


def one_sided(buys, sells):
    """Return quotes [1, K, 4], a slot for each (price, quantity)."""
    rows = [[price, qty, 0, 0] for price, qty in buys] + [[0, 0, price, qty] for price, qty in sells]
    return np.array([rows], dtype=np.int32)


def whole_book(sim):
    """Return the resting built-in book plus the standing quotes on the grid, as lists of M lists."""
    bid, ask = sim.bid.cpu().numpy().astype(np.int64), sim.ask.cpu().numpy().astype(np.int64)
    last = sim.config.num_levels - 1
    for m, quotes in enumerate(sim.quotes.tolist()):
        origin = int(sim.price_origin[m])
        for bid_price, bid_qty, ask_price, ask_qty in quotes:
            if bid_price >= origin:
                bid[m, min(bid_price - origin, last)] += bid_qty
            if ask_price - origin <= last:
                ask[m, max(ask_price - origin, 0)] += ask_qty
    return bid.tolist(), ask.tolist()


def load(sim, **changes):
    """Change some of a simulator's state."""
    saved = sim.state_dict()
    for name, value in changes.items():
        saved[name] = torch.as_tensor(value).to(saved[name]).broadcast_to(saved[name].shape).clone()
    sim.load_state_dict(saved)


# Known answers --------------------------------------------------------------------------------------------------------


def check_worked_case(sim, at):
    bid, ask = whole_book(sim)
    pad = [0] * (3 - at)
    assert bid == [[0] * at + [10, 5, 0, 0, 0] + pad] and ask == [[0] * at + [0, 0, 1, 6, 3] + pad]
    assert sim.last_price.tolist() == [2 + at] and sim.volume.tolist() == [10] and sim.trades.tolist() == [1]


@every_engine
@pytest.mark.parametrize("at", [0, 3])
def test_worked_case_as_quotes(engine, at):
    """Its ticks 0 to 4 are grid ticks `at` and up; every order is a slot's quote, those of 8 and 7 in two parts."""
    buys = [(at, 10), (at + 1, 5), (at + 2, 3), (at + 2, 5), (at + 4, 2)]
    sells = [(at + 1, 4), (at + 2, 2), (at + 2, 5), (at + 3, 6), (at + 4, 3)]
    sim = only_slots(engine, slots=len(buys) + len(sells))
    fills = sim.step(one_sided(buys, sells))
    check_worked_case(sim, at)
    assert fills.sum(dim=(0, 1)).tolist() == [10, 10]
    assert sim.bid.sum() == 0 and sim.ask.sum() == 0, "quotes are not in the built-in book"


@every_engine
@pytest.mark.parametrize("at", [0, 3])
def test_worked_case_on_a_resting_book(engine, at):
    """What does not cross rests, of a part of tick 2 too; the crossing rest comes as quotes."""
    buys, sells = [(at + 2, 8), (at + 4, 2)], [(at + 1, 4), (at + 2, 7)]
    sim = only_slots(engine, slots=4)
    bid, ask = torch.zeros(1, 8), torch.zeros(1, 8)
    bid[0, at : at + 2], ask[0, at + 3 : at + 5] = torch.tensor([10.0, 5.0]), torch.tensor([6.0, 3.0])
    load(sim, bid=bid, ask=ask)
    fills = sim.step(one_sided(buys, sells))
    check_worked_case(sim, at)
    assert fills.tolist() == [[[8, 0], [2, 0], [0, 4], [0, 6]]]
    assert sim.cash.tolist() == [[-8 * (2 + at), -2 * (2 + at), 4 * (2 + at), 6 * (2 + at)]]


def test_random_words():
    """The first words of SplitMix64's stream of seed 0, and so the key of seed 0."""
    words = [plain_rules.mix64(n * plain_rules.GOLDEN & plain_rules.MASK) for n in (1, 2, 3)]
    assert words == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


@every_engine
@pytest.mark.parametrize("tie", ["lowest", "mid"])
@pytest.mark.parametrize("residue", ["rest", "cancel"])
def test_auctions_by_hand(engine, tie, residue):
    """Words, orders of all classes, clearing and ties, all in plain Python integers."""
    fields = dict(max_order_qty=5, noise_spread=4, maker_half_spread=2, market_order_prob=0.2)
    shares = dict(noise=0.5, momentum=0.2, maker=0.2, fundamental=0.1)
    config = ks.MarketConfig(
        num_levels=16, num_agents=10, init_price=7, init_depth=3, tie=tie, residue=residue, fundamental_price=9,
        **fields, **shares,
    )  # fmt: skip
    sim = ks.Simulator(config, 20, engine=engine, seed=-7)
    for n in range(24):
        if n == 12:
            sim.reset()  # the second episode
        load(sim, price_origin=n - 6, t=sim.t + 2**31 * (n == 5))  # high words of t count
        before = {name: value.tolist() for name, value in sim.state_dict().items()}
        sim.step()
        wanted = [by_hand(before, m, config, fields) for m in range(20)]
        got = list(zip(sim.bid.tolist(), sim.ask.tolist(), sim.last_price.tolist(), sim.volume.tolist(), strict=True))
        assert got == wanted, f"auction {n}"


def by_hand(before, m, config, fields):
    """Return bid, ask, last price and volume of market m after one auction."""
    state = {name: value[m] for name, value in before.items()}
    bid, ask, origin = state["bid"], state["ask"], state["price_origin"]
    bids, asks = [p for p in range(16) if bid[p]], [p for p in range(16) if ask[p]]
    mid2 = max(bids) + min(asks) if bids and asks else 2 * state["last_tick"]
    ret = (mid2 > state["prev_mid2"]) - (mid2 < state["prev_mid2"])
    fundamental2 = 2 * (state["fundamental_price"] - origin)
    moment = plain_rules.Moment(state["seed"], state["episode"], state["t"], mid2, ret, fundamental2, 16)
    fired = [0, 0]
    for _, order in plain_rules.orders(moment, [5, 2, 2, 1], fields):
        (bid if order.buys else ask)[order.tick] += order.quantity
        fired[0 if order.buys else 1] += order.quantity * order.marketable
    mid = mid2 // 2 + (mid2 & state["t"] & 1)
    price, volume, bid, ask = plain_rules.clear(bid, ask, mid if config.tie == "mid" else None)
    if config.residue == "cancel":
        bid[15], ask[0] = max(0, bid[15] - fired[0]), max(0, ask[0] - fired[1])
    last = price if volume else state["last_tick"]
    return bid, ask, last + origin, state["volume"] + volume


@every_engine
def test_cancellation_and_walk_by_hand(engine):
    """Each resting quantity loses (q c + r) >> 16; the fundamental moves by bits of word 2^30."""
    sim = only_slots(
        engine, 1, markets=30, levels=16, cancel_prob=0.3, walk_prob=0.5, jump_prob=0.4, jump_size=9, window=7
    )
    load(sim, bid=[9, 1000, 1, 2, 77] + [0] * 11, ask=[0] * 9 + [5, 1, 2**20, 3, 4, 1, 8])
    chance, walk, jump = round(0.3 * 2**16), round(0.5 * 2**16), round(0.4 * 2**16)
    for _ in range(6):
        before = {name: value.tolist() for name, value in sim.state_dict().items()}
        sim.run(1)
        for m in range(30):
            seed, t = before["seed"][m], before["t"][m]
            bits = plain_rules.word(seed, 0, t, 2**30)
            moved = (1 if bits >> 31 & 1 else -1) if bits & 0xFFFF < walk else 0
            moved += (9 if bits >> 63 else -9) if bits >> 32 & 0xFFFF < jump else 0
            assert sim.fundamental_price[m] == before["fundamental_price"][m] + moved
            for side, name in enumerate(("bid", "ask")):
                words = [plain_rules.word(seed, 0, t, 2**31 + p // 2) for p in range(16)]
                fields = [words[p] >> 16 * (2 * (p % 2) + side) & 0xFFFF for p in range(16)]
                kept = [q - ((q * chance + r) >> 16) for q, r in zip(before[name][m], fields, strict=True)]
                assert getattr(sim, name)[m].tolist() == kept


@pytest.mark.parametrize("engine", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_statistics_of_the_published_runs(engine):
    """The paper's mean volume and last price over ensembles of its own size, 8192 markets and 500 auctions."""
    sim = ks.Simulator(ks.MarketConfig(population="multinomial"), 8192, engine=engine, seed=2**32)
    sim.run(500, progress=False)
    for values, low, high in ((sim.volume, 96_381, 96_438), (sim.last_price, 63.94, 63.99)):
        mean, error = float(values.double().mean()), float(values.double().std()) / 8192**0.5
        assert 0.999 * low - 3 * error <= mean <= 1.001 * high + 3 * error, (mean, error)


# Laws -----------------------------------------------------------------------------------------------------------------


def check_books(sim):
    """No quantity is negative; no bid, built-in or quoted, stands at or above an ask."""
    assert int(sim.bid.min()) >= 0 and int(sim.ask.min()) >= 0
    if sim.quotes.numel():
        assert int(sim.quotes[..., 1::2].min()) >= 0
    for bid, ask in zip(*whole_book(sim), strict=True):
        bids, asks = [p for p, q in enumerate(bid) if q], [p for p, q in enumerate(ask) if q]
        assert not bids or not asks or max(bids) < min(asks)


@every_engine
@settings(max_examples=examples(100), derandomize=True)
@given(play=plays(levels=(8, 32, 128)))
def test_books_never_cross_and_inventories_keep_their_limit(engine, play):
    sim = open_simulator(engine, play)
    limit = sim.config.inventory_limit
    for move in play.moves:
        make_move(sim, move)
        check_books(sim)
        if limit is not None and sim.inventory.numel():
            bound = torch.tensor(limit, device=sim.device).view(-1, 1)
            assert bool((sim.inventory.abs() <= bound).all())


@covering
@every_engine
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("seed", range(3))
def test_every_auction_conserves_quantity_and_cash(engine, style, seed):
    """What built-in agents submitted, by hand, is what rests more, traded, or was filled by slots; cash too."""
    config = make_config(seed, 32, 15, frozenset({"tie", "fee"})).replace(init_depth=9, max_order_qty=20)
    config = config.replace(inventory_limit=[None, 40, 10**6][seed], max_quote_qty=[2**20, 30, 2**20][seed])
    sim = ks.Simulator(config, 4, engine=engine, seed=seed, slots=6)
    counts = class_counts(config, 1)[0].tolist()
    load(sim, price_origin=[0, 50, -40, 2**20])  # money is in absolute prices
    for n in range(12):
        before = {name: value.tolist() for name, value in sim.state_dict().items()}
        quotes = make_quotes(sim, style, 100 * seed + n)[0]
        fills = sim.step(quotes)
        check_books(sim)
        traded = (sim.volume.cpu() - torch.tensor(before["volume"])).tolist()
        for m in range(4):
            bought, sold = fills[m].sum(dim=0).tolist()
            assert 0 <= bought <= traded[m] and 0 <= sold <= traded[m]
            moment = plain_rules.Moment(before["seed"][m], 0, n, 0, 0, 0, 32)
            fields = {**config.to_dict(), "noise_spread": 0}
            submitted = sum(order.quantity for _, order in plain_rules.orders(moment, counts, fields))
            rests_more = int(sim.bid[m].sum() + sim.ask[m].sum()) - sum(before["bid"][m]) - sum(before["ask"][m])
            assert submitted == rests_more + 2 * traded[m] - bought - sold
            for k in range(6):
                bought, sold = fills[m, k].tolist()
                held = before["inventory"][m][k]
                limited = plain_rules.apply_pre_trade_limits(
                    quotes[m, k].tolist(), held, config.inventory_limit, config.max_quote_qty
                )
                standing = [limited[0], limited[1] - bought, limited[2], limited[3] - sold]
                assert sim.quotes[m, k].tolist() == standing and bought >= 0 and sold >= 0
                assert int(sim.inventory[m, k]) == held + bought - sold
                paid = (bought - sold) * int(sim.last_price[m])
                assert int(sim.cash[m, k]) == before["cash"][m][k] - paid
                assert int(sim.fees[m, k]) == before["fees"][m][k] + config.fee * (bought + sold)


@every_engine
def test_what_slots_trade_with_each_other_sums_to_nothing(engine):
    sim = only_slots(engine, 9, markets=50, levels=32)
    for n in range(20):
        sim.rollout(make_quotes(sim, STYLES[n % len(STYLES)], n, decisions=3), auctions=2)
        assert sim.cash.sum(dim=1).eq(0).all() and sim.inventory.sum(dim=1).eq(0).all()
    assert int(sim.volume.min()) > 0 and bool(sim.cash.any())


# Rationing ------------------------------------------------------------------------------------------------------------


@every_engine
@pytest.mark.parametrize("side", ["bid", "ask"])
@pytest.mark.parametrize("resting", [0, 23], ids=["slots alone", "with built-in interest"])
@pytest.mark.parametrize("sizes", [[7] * 8, [1, 50, 3, 12, 1, 50, 30, 2]], ids=["equal", "unequal"])
def test_fills_are_pro_rata_and_unbiased(engine, side, resting, sizes):
    """Each fill is its exact share rounded down or up, and on average the share itself, whichever slot it is."""
    markets, rounds, offered = 4000, 4, 41
    sim = only_slots(engine, 9, markets=markets)
    book = [0] * 4 + [resting] + [0] * 3
    here, there = (0, 2) if side == "bid" else (2, 0)
    quotes = np.zeros((markets, 9, 4), np.int32)
    quotes[:, :8, here], quotes[:, :8, here + 1] = 4, sizes
    quotes[:, 8, there], quotes[:, 8, there + 1] = 4, offered  # sells to, or buys from, all the others at tick 4
    total = sum(sizes) + resting
    shares = [Fraction(size * offered, total) for size in sizes]
    fills = np.zeros((rounds, markets, 8), np.int64)
    for n in range(rounds):
        load(sim, **{side: book, "t": n + 5})
        filled = sim.step(quotes)
        assert bool((filled[:, 8, 1 if side == "bid" else 0] == offered).all())
        fills[n] = filled[:, :8, 0 if side == "bid" else 1].cpu().numpy()
        taken = torch.as_tensor(fills[n].sum(axis=1)) + resting - getattr(sim, side)[:, 4].cpu()
        assert bool((taken == offered).all()), "built-in interest takes the rest"
    for k, share in enumerate(shares):
        low = share.numerator // share.denominator
        assert fills[..., k].min() >= low and fills[..., k].max() <= -(-share.numerator // share.denominator)
        spread = float((share - low) * (1 - (share - low))) ** 0.5  # of a share rounded up or down at random
        error = spread / (rounds * markets) ** 0.5
        assert abs(fills[..., k].mean() - float(share)) <= 4 * error + 1e-12, f"slot {k}"


@every_engine
def test_price_comes_before_size(engine):
    """A small bid one tick better is served in full before a huge one gets anything."""
    sim = only_slots(engine, 3)
    fills = sim.step(one_sided([(4, 2**20), (5, 3)], [(4, 10)]))
    assert fills.tolist() == [[[7, 0], [3, 0], [0, 10]]]
