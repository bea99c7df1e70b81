"""What `Simulator` promises about time, seeds and copies: how a run is cut, by whom it is watched, must not matter."""

import numpy as np
import plain_rules
import pytest
import torch
from strategies import SERIES, assert_same, every_engine, make_quotes
from thorough import covering

import kineticsim_env as ks
from kineticsim_env.config import CLASSES
from kineticsim_env.engines.runs import EVENTS

BOOKS = ("bid", "ask", "prev_mid2", "last_tick", "price_origin", "fundamental_price", "volume", "trades", "t")
MIXED = dict(noise=0.4, momentum=0.2, maker=0.2, fundamental=0.2, num_agents=20)  # 8, 4, 4 and 4 agents


def trading(engine, markets=9, seed=3, slots=0, **changes):
    return ks.Simulator(ks.MarketConfig.preset("trading", **changes), markets, engine=engine, seed=seed, slots=slots)


def same_state(got, wanted, names=None):
    """Compare the named state of two simulators, or all of it."""
    names = list(wanted.tensors) if names is None else names
    assert_same({n: got.tensors[n].cpu() for n in names}, {n: wanted.tensors[n].cpu() for n in names})


# How a run is cut -----------------------------------------------------------------------------------------------------


@every_engine
def test_chunks_do_not_matter(engine):
    """run(n) is n times run(1), and step with n auctions is step with one and n - 1 without new quotes."""
    whole, cut, single = (trading(engine, slots=("noise", None)) for _ in range(3))
    for n in range(6):
        quotes = make_quotes(whole, ("near", "wide")[n % 2], n)[0]
        fills = whole.step(quotes, auctions=7)
        in_parts = cut.step(quotes, auctions=3) + cut.step(None, auctions=4)  # the rest of the quotes stands
        singly = single.step(quotes)
        for _ in range(6):
            single.run(1)
        assert torch.equal(fills, in_parts) and bool((singly <= fills).all())
        same_state(cut, whole)
        same_state(single, whole)
    assert bool(fills.any()) and bool(whole.quotes.any())


@covering
@every_engine
@pytest.mark.parametrize("auctions", [1, 3])
def test_rollout_is_its_steps(engine, auctions):
    rolled, stepped = (trading(engine, slots=("maker", None)) for _ in range(2))
    for sim in (rolled, stepped):
        sim.run(400)
    assert bool(rolled.price_origin.any()), "prices are absolute: let the grid move"
    volume = rolled.volume.clone()
    quotes = make_quotes(rolled, "near", 5, decisions=6)
    out = rolled.rollout(quotes, auctions, record=SERIES)
    for n in range(6):
        assert torch.equal(out.fills[n], stepped.step(quotes[n], auctions))
        value = 2 * stepped.cash + stepped.inventory * stepped.mid2[:, None]
        assert torch.equal(out.value[n], value)
        last = {"last_price": stepped.last_price, "mid2": stepped.mid2, "fundamental": stepped.fundamental_price}
        assert all(torch.equal(out.series[name][n, :, -1], now) for name, now in last.items())
    assert torch.equal(out.series["volume"].sum(dim=(0, 2)), stepped.volume - volume)
    assert bool(out.fills.any())
    same_state(stepped, rolled)


@every_engine
def test_recording_only_watches(engine):
    watched, alone = trading(engine), trading(engine)
    series = watched.run(30, record=SERIES)
    parts = [alone.run(n, record=("mid2", "volume")) for n in (1, 0, 9, 20)]
    assert parts[1]["mid2"].shape == (9, 0)
    for name in ("mid2", "volume"):
        assert series[name].shape == (9, 30) and series[name].dtype == torch.int32
        assert torch.equal(torch.cat([part[name] for part in parts], dim=1), series[name])
    same_state(alone, watched)


@every_engine
def test_a_progress_bar_changes_nothing(engine, monkeypatch):
    """Long runs go in pieces, here of two auctions."""
    whole, pieces = trading(engine), trading(engine)
    series = whole.run(15, record=SERIES, progress=False)
    monkeypatch.setitem(EVENTS, engine, 2 * 9 * pieces._per_auction)
    assert_same(pieces.run(15, record=SERIES, progress=True), series)
    same_state(pieces, whole)


# Seeds and episodes ---------------------------------------------------------------------------------------------------


@every_engine
@pytest.mark.parametrize("population", ["fixed", "multinomial"])
def test_market_m_of_an_ensemble_is_a_single_market(engine, population):
    many = trading(engine, markets=40, seed=2**32 - 20, population=population)
    many.run(25)
    for m in (0, 19, 20, 39):
        one = trading(engine, markets=1, seed=2**32 - 20 + m, population=population)
        one.run(25)
        assert all(torch.equal(one.tensors[name][0], many.tensors[name][m]) for name in one.tensors)
    listed = trading(engine, markets=40, seed=[2**32 - 20 + m for m in range(40)], population=population)
    listed.run(25)
    same_state(listed, many)
    assert len(set(many.volume.tolist())) > 20, "markets differ"


@every_engine
def test_episodes_are_numbered(engine):
    """No seed: the next episode, with random words of its own; a seed: episode 0; a mask: only there."""
    sim, fresh = (trading(engine, markets=3, seed=50, slots=1) for _ in range(2))
    quotes = make_quotes(sim, "near", 0)[0]
    assert sim.tensors["episode"].tolist() == [0, 0, 0] and sim.tensors["seed"].tolist() == [50, 51, 52]
    series = []
    for episode in range(3):
        assert sim.tensors["episode"].tolist() == [episode] * 3 and sim.t.tolist() == [0] * 3
        sim.step(quotes, auctions=20)
        series.append(sim.run(20, record=("last_price",))["last_price"])
        sim.reset()
        same_state(sim, fresh, [name for name in fresh.tensors if name != "episode"])
    assert not any(torch.equal(series[i], series[j]) for i, j in ((0, 1), (1, 2), (0, 2)))

    sim.run(4)
    sim.reset(mask=[False, True, False])
    assert sim.tensors["episode"].tolist() == [3, 4, 3] and sim.t.tolist() == [4, 0, 4]
    sim.reset(seed=[7, 8, 9], mask=torch.tensor([True, False, False]))
    assert sim.tensors["episode"].tolist() == [0, 4, 3] and sim.tensors["seed"].tolist() == [7, 51, 52]
    sim.reset(seed=50)
    same_state(sim, fresh)
    sim.step(quotes, auctions=20)
    assert torch.equal(sim.run(20, record=("last_price",))["last_price"], series[0])


@every_engine
def test_the_episodes_random_words_are_the_same_under_every_policy(engine):
    """The words of episode 1 do not depend on how long episode 0 was."""
    short, long = trading(engine), trading(engine)
    short.run(3)
    long.run(30)
    short.reset()
    long.reset()
    short.run(10)
    long.run(10)
    same_state(long, short)


# Slots ----------------------------------------------------------------------------------------------------------------


@every_engine
@pytest.mark.parametrize("slots", [1, 32])
def test_a_slot_that_never_trades_is_not_there(engine, slots):
    """Neither without quotes nor with quotes that are off the grid."""
    alone, watched = trading(engine), trading(engine, slots=slots)
    nothing = np.zeros((9, slots, 4), np.int32)
    off_grid = nothing + np.array([-(2**30), 5, 2**30, 5], np.int32)
    for quotes in (nothing, off_grid, nothing):
        alone.run(25)
        assert not watched.step(quotes, auctions=25).any()
        same_state(watched, alone, BOOKS)


@every_engine
@pytest.mark.parametrize("name", CLASSES)
def test_replacement_keeps_the_others_random_words(engine, name):
    """A slot that does what the last agent of its class would have done leaves the auction as it was."""
    agents = [index for index, count in enumerate((8, 4, 4, 4)) for _ in range(count)]
    kind = CLASSES.index(name)
    last = len(agents) - 1 - agents[::-1].index(kind)
    fields = dict(max_order_qty=9, noise_spread=6, maker_half_spread=3, market_order_prob=0.3)
    config = ks.MarketConfig(num_levels=32, init_price=16, **MIXED, **fields)
    full = ks.Simulator(config, 6, engine=engine, seed=1)
    replaced = ks.Simulator(config, 6, engine=engine, slots=(name,))
    for t in range(20):
        before = full.state_dict()
        slots = {key: value for key, value in replaced.state_dict().items() if value.shape[:2] == (6, 1)}
        started = {**before, **{key: torch.zeros_like(value) for key, value in slots.items()}}
        with pytest.warns(UserWarning, match=r"slots is \[\] there, \['"):
            replaced.load_state_dict(started, strict=False)
        quotes = np.zeros((6, 1, 4), np.int32)
        mid2 = full.mid2.tolist()
        for m in range(6):
            ret = np.sign(mid2[m] - int(before["prev_mid2"][m]))
            moment = plain_rules.Moment(1 + m, 0, t, mid2[m], int(ret), 2 * 16, 32)
            order = plain_rules.order(moment, name, last, fields)
            quotes[m, 0, 0 if order.buys else 2], quotes[m, 0, 1 if order.buys else 3] = order.tick, order.quantity
        full.run(1)
        replaced.step(quotes)
        for side, column in (("bid", 0), ("ask", 2)):
            whole = getattr(replaced, side).clone()
            quoted = replaced.quotes[:, 0]
            whole.scatter_add_(1, quoted[:, column : column + 1].long(), quoted[:, column + 1 : column + 2])
            assert torch.equal(whole, getattr(full, side)), (t, side)
        same_state(replaced, full, ("last_tick", "volume", "trades"))


@every_engine
def test_replacing_a_class_that_a_market_lacks(engine):
    """With multinomial counts every agent of the class is inactive then; with fixed ones it is an error."""
    shares = dict(noise=0.7, momentum=0.3, maker=0, fundamental=0, num_agents=10, population="multinomial")
    sim = trading(engine, markets=60, slots=("momentum",) * 3, **shares)
    counts, rows = sim._counts, sim.rows
    assert (counts[:, 1] < 3).any() and (counts[:, 1] > 3).any()
    assert (rows["num_momentum"] == np.maximum(counts[:, 1] - 3, 0)).all()
    assert (rows["first_maker"] == counts[:, 0] + counts[:, 1]).all(), "indices stay"


# Copies ---------------------------------------------------------------------------------------------------------------


@every_engine
@pytest.mark.parametrize("population", ["fixed", "multinomial"])
def test_branches_are_independent(engine, population):
    trunk = trading(engine, slots=("noise", None), population=population)
    quotes = make_quotes(trunk, "near", 1)[0]
    trunk.step(quotes, auctions=5)
    branch, untouched = trunk.branch(), trunk.state_dict()
    branch.step(quotes[:, ::-1].copy(), auctions=9)
    assert not torch.equal(branch.volume, trunk.volume)
    assert_same(trunk.state_dict(), untouched)
    branch.load_state_dict(untouched)
    assert torch.equal(branch.step(quotes, 4), trunk.step(quotes, 4))
    same_state(branch, trunk)
    untouched["bid"].zero_()
    assert bool(trunk.bid.any()), "state_dict gives copies"


@every_engine
def test_a_grid_far_from_the_last_price_can_be_saved(engine):
    """Quotes that never meet carry the window away from a price that nobody trades at."""
    config = ks.MarketConfig(
        num_levels=8, init_price=4, num_agents=1, noise=1, momentum=0, maker=0, window=1, init_depth=0
    )
    sim = ks.Simulator(config, 1, engine=engine, slots=("noise", None))
    for _ in range(40):
        origin = int(sim.price_origin[0])
        sim.step(np.array([[[origin + 6, 1, 0, 0], [0, 0, origin + 7, 1]]], dtype=np.int32))
    assert int(sim.price_origin[0]) >= 32 and sim.last_price.tolist() == [4]
    same_state(sim.branch(), sim)


@every_engine
def test_marks(engine):
    """mid2 is of the built-in book alone; one-sided or empty, it is twice the last price."""
    sim = ks.Simulator(ks.MarketConfig(num_levels=16, init_price=5, num_agents=1), 4, engine=engine, slots=("noise",))
    saved = sim.state_dict()
    saved["bid"][1:3], saved["ask"][2:] = 0, 0  # both sides, asks only, neither, bids only
    saved["price_origin"][:], saved["last_tick"][:] = 100, 6
    saved["quotes"][:] = torch.tensor([105, 3, 106, 3])
    sim.load_state_dict(saved)
    assert sim.mid2.tolist() == [210, 212, 212, 212] and sim.last_price.tolist() == [106] * 4


@every_engine
def test_money_is_cash_less_thousandths_of_a_tick(engine):
    sim = trading(engine, markets=2, slots=2)
    sim.cash[:] = torch.tensor([[100, -7], [0, 2**40]])
    sim.fees[:] = torch.tensor([[1500, 0], [-250, 1]])
    sim.inventory[:] = 5
    assert sim.money.dtype == torch.float64
    assert sim.money.tolist() == [[98.5, -7.0], [0.25, 2**40 - 0.001]]


def test_one_market_and_repr():
    sim = ks.Simulator(seed=4)
    assert sim.num_markets == 1 and sim.config == ks.MarketConfig.preset("paper")
    assert sim.engine_name in ("cpu", "numpy"), "auto takes no GPU for one market"
    assert "num_markets=1" in repr(sim) and f"engine={sim.engine_name!r}" in repr(sim)
    per_market = ks.MarketConfig(num_agents=[10, 20, 30])
    assert ks.Simulator(per_market, engine="cpu").num_markets == 3
