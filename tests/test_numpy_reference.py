"""Known answers of the NumPy engine: small enough to check by hand, or a law that no market may break."""

import numpy as np
import pytest

from kineticsim_env.engines.numpy import auction, engine, orders, rules, state
from kineticsim_env.errors import MarketError

PARAMS = dict(
    num_noise=11,
    num_momentum=3,
    num_maker=2,
    num_fundamental=0,
    first_momentum=11,
    first_maker=14,
    first_fundamental=16,
    init_price=8,
    init_depth=8,
    max_order_qty=4,
    noise_spread=3,
    market_order_threshold=round(0.1 * 2**24),
    maker_half_spread=1,
    walk_threshold=0,
    jump_threshold=0,
    jump_size=0,
    cancel_threshold=0,
    window=0,
    tie=0,
    residue=0,
    fundamental_price=8,
    max_quote_qty=2**20,
    inventory_limit=-1,
    fee=0,
    rounding=0,
    reference=0,
    taker_offset=1,
    taker_fee=0,
    tax=0,
    collar=0,
    tick_size=1,
    quote_latency=0,
    regimes=0,
    regime_threshold=0,
    interval=0,
    beat=0,
    num_agents=16,
)
NOBODY = dict(num_noise=0, num_momentum=0, num_maker=0, num_fundamental=0)
LIVELY = dict(
    num_fundamental=5, walk_threshold=26000, jump_threshold=3000, jump_size=4, cancel_threshold=20000, window=2,
    tie=1, residue=1, fee=30,
)  # fmt: skip
TASK = dict(
    horizon=5, extras=0, initial_inventory=0, action_type=0, max_offset=8, max_qty=10, reward=1, mark=0, autoreset=1,
    stagger=0, max_target=50, execution_reward=0, idle_penalty=0.1, risk_aversion=0.05, block_side=0, block_qty=12,
    forced_qty=4, forced_auctions=22, unwinds=0, keep=0, decide=0, longest=1, bank_size=0, bank_owner=0, scenarios=0,
    role=np.zeros(32, int), inventory_penalty=0.01, dampening=0.5, reward_scale=1.0, max_loss=0.0, leftover_penalty=2.0,
)  # fmt: skip


def make(markets=3, levels=16, slots=0, decisions=1, auctions=1, seed=0, task=None, env_mode=0, **params):
    """Return launch arguments with an opening book."""
    p = {name: np.full(markets, x, np.int64) for name, x in (PARAMS | params).items()}
    shapes = dict(
        bid=(levels,), ask=(levels,), prev_mid2=(), last_tick=(), price_origin=(), fundamental_price=(), error=(),
        quotes=(slots, 4), elapsed=(), mid_history=(5,), volume_history=(4,),
    )  # fmt: skip
    args = {name: np.zeros((markets, *shape), np.int32) for name, shape in shapes.items()}
    args |= {name: np.zeros(markets, np.int64) for name in ("seed", "episode", "t", "volume", "trades")}
    args |= {name: np.zeros(markets, np.int32) for name in ("arrival2", "scenario")} | {
        "done": np.zeros(markets, np.uint8)
    }
    args |= {name: np.zeros((markets, slots), np.int64) for name in ("cash", "inventory", "fees", "prev_value")}
    args |= {name: np.zeros((markets, slots), np.uint8) for name in ("ended", "terminated", "truncated")}
    args |= {name: np.zeros((markets, slots, 37), np.float32) for name in ("observation", "final_observation")}
    args |= dict(
        markets=markets, levels=levels, slots=slots, decisions=decisions, auctions=auctions, params=p, params_stride=1,
        env_mode=env_mode, task=task, new_quotes=None, fills=np.zeros((decisions, markets, slots, 2), np.int64),
        value=np.zeros((decisions, markets, slots), np.int64), reset_mask=None, actions=None, choices=None,
        reward=np.zeros((markets, slots), np.float32), bank_bid=None, bank_ask=None, bank_scalars=None,
    )  # fmt: skip
    args |= {
        f"series_{name}": np.zeros((markets, decisions * auctions), np.int32)
        for name in ("last_price", "volume", "mid2", "fundamental")
    }
    rows, price = np.arange(markets), p["init_price"]
    args["bid"][rows, price - 1] = args["ask"][rows, price + 1] = p["init_depth"]
    args["prev_mid2"][:], args["last_tick"][:], args["fundamental_price"][:] = 2 * price, price, p["fundamental_price"]
    args["seed"][:] = seed + rows
    return args


def snapshot(args):
    return {name: x.copy() for name, x in args.items() if isinstance(x, np.ndarray)}


def assert_same(args, before, but=()):
    for name, x in before.items():
        if name not in but:
            np.testing.assert_array_equal(args[name], x, err_msg=name)


# ------------------------------------------------------------------------------------------------ pure rules


def test_splitmix64_known_answers():
    multiples = np.arange(1, 4, dtype=np.uint64) * rules.GOLDEN
    assert rules.mix64(multiples).tolist() == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def test_words_against_python_integers():
    def mix(z):
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        return z ^ z >> 31

    golden = 0x9E3779B97F4A7C15
    seed, episode, t = np.array([-5, 2**62]), np.array([3, 0]), np.array([2**32 - 1, 7])
    words = rules.random_words(rules.episode_key(seed, episode)[:, None], t[:, None], np.array([0, 2**31 + 5]))
    for m in range(2):
        key = mix((int(seed[m]) + golden + int(episode[m]) * 0xD1B54A32D192ED03) % 2**64)
        for i, a in enumerate((0, 2**31 + 5)):
            assert int(words[m, i]) == mix((key + (int(t[m]) * 2**32 + a + 1) * golden) % 2**64)


def test_worked_case():
    buy, sell = np.array([[10, 5, 8, 0, 2]]), np.array([[0, 4, 7, 6, 3]])
    price, volume, traded_buy, traded_sell = rules.clear_auction(buy, sell)
    assert (price[0], volume[0]) == (2, 10)
    assert (buy - traded_buy).tolist() == [[10, 5, 0, 0, 0]]
    assert (sell - traded_sell).tolist() == [[0, 0, 1, 6, 3]]


def test_tie_takes_the_maximiser_nearest_the_target():
    buy, sell = np.zeros((4, 8), int), np.zeros((4, 8), int)
    buy[:, 6], sell[:, 2] = 5, 5  # every tick from 2 to 6 trades 5
    price, volume, *_ = rules.clear_auction(buy, sell, np.array([-1, 0, 4, 7]))
    assert price.tolist() == [2, 2, 4, 6] and (volume == 5).all()


def test_clearing_agrees_with_a_search():
    rng = np.random.default_rng(1)
    for _ in range(50):
        buy, sell = rng.integers(0, 4, (2, 1, 9)) * rng.integers(0, 2, (2, 1, 9))
        price, volume, traded_buy, traded_sell = rules.clear_auction(buy, sell)
        executable = [min(buy[0, p:].sum(), sell[0, : p + 1].sum()) for p in range(9)]
        assert volume[0] == max(executable) == traded_buy.sum() == traded_sell.sum()
        assert price[0] == executable.index(max(executable))
        if volume[0]:
            assert not traded_buy[0, : price[0]].any() and not traded_sell[0, price[0] + 1 :].any()


def test_rounding_is_half_to_even():
    doubled = np.arange(-9, 10)
    assert (rules.round_half_even(doubled) == np.rint(doubled / 2)).all()


def test_rationing_conserves_and_is_exact():
    rng = np.random.default_rng(2)
    markets, slots, levels = 500, 32, 8
    tick, quantity = rng.integers(0, levels, (markets, slots)), rng.integers(0, 2**20, (markets, slots))
    learned = rules.scatter((np.arange(markets)[:, None], tick), quantity, (markets, levels))
    total = learned + rng.integers(0, 2**31 - 2**25, (markets, levels)) * rng.integers(0, 2, (markets, levels))
    traded = np.minimum((total * rng.random((markets, levels))).astype(np.int64), total)
    traded[:100] = total[:100]
    u32 = rng.integers(0, 2**32, markets)
    fills = rules.ration(tick, quantity, total, traded, u32)
    assert (fills >= 0).all() and (fills <= quantity).all()
    assert (fills[:100] == quantity[:100]).all()
    given = rules.scatter((np.arange(markets)[:, None], tick), fills, (markets, levels))
    assert (traded - given >= 0).all() and (traded - given <= total - learned).all()
    for m in range(50):  # the formula, in Python's integers
        running = [0] * levels
        for k in range(slots):
            p = int(tick[m, k])
            whole, part = int(total[m, p]), int(traded[m, p])
            r, before = int(u32[m]) * whole >> 32, running[p]
            running[p] += int(quantity[m, k])
            if whole:
                assert fills[m, k] == (running[p] * part + r) // whole - (before * part + r) // whole


# ----------------------------------------------------------------------------------------------- whole market


def test_one_market_one_agent():
    """The agent's word, its order and the book after it, worked out with Python's integers."""
    args = make(markets=1, **NOBODY | dict(num_noise=1, market_order_threshold=0))
    key = rules.episode_key(args["seed"], args["episode"])
    word = int(rules.random_words(key, args["t"], np.array([0]))[0])
    quantity, offset = 1 + ((word >> 32) % 2**16 * 4 >> 16), -3 + ((word >> 48) * 7 >> 16)
    buys, tick = bool(word >> 31 & 1), 8 + offset
    engine.launch(args)
    crossing = quantity if (tick >= 9 if buys else tick <= 7) else 0
    bid, ask = np.zeros(16, int), np.zeros(16, int)
    bid[7], ask[9] = 8 - crossing * (not buys), 8 - crossing * buys
    (bid if buys else ask)[tick] += quantity - crossing
    assert (args["bid"][0] == bid).all() and (args["ask"][0] == ask).all()
    assert args["volume"][0] == crossing and args["t"][0] == 1


def test_no_agents_and_no_auctions_change_nothing():
    args = make(auctions=20, **NOBODY)
    before = snapshot(args)
    engine.launch(args)
    assert (args["t"] == 20).all() and (args["series_mid2"] == 16).all()
    assert_same(args, before, but=("t", "series_mid2", "series_last_price", "series_fundamental"))
    args = make(slots=1, auctions=0)
    args["new_quotes"] = np.full((1, 3, 1, 4), 5, np.int32)
    before = snapshot(args)
    engine.launch(args)
    assert_same(args, before)


@pytest.mark.parametrize("options", [{}, LIVELY])
def test_quantity_is_conserved_and_books_never_cross(options, monkeypatch):
    submitted = []
    submit = auction.submit_orders

    def spy(m, view, seen):
        waiting = submit(m, view, seen)
        submitted.append(waiting.quantity.sum(axis=2))
        return waiting

    monkeypatch.setattr(auction, "submit_orders", spy)
    args = make(markets=20, levels=32, init_price=16, fundamental_price=16, **options)
    for _ in range(60):
        bid, ask, volume = args["bid"].sum(axis=1), args["ask"].sum(axis=1), args["volume"].copy()
        engine.launch(args)
        if not options:
            for side, before, book in ((0, bid, "bid"), (1, ask, "ask")):
                assert (args[book].sum(axis=1) == before + submitted[-1][:, side] - (args["volume"] - volume)).all()
        best_bid, best_ask = rules.best_prices(args["bid"], args["ask"])
        assert (best_bid < best_ask).all() and (args["bid"] >= 0).all() and (args["ask"] >= 0).all()
    assert (args["trades"] > 0).all()
    if options:
        assert args["price_origin"].any()


def test_window_moves_the_book_and_prunes():
    args = make(markets=1, **NOBODY | dict(window=2))
    args["bid"][0], args["ask"][0] = np.arange(16) * (np.arange(16) < 12), np.arange(16) * (np.arange(16) > 12)
    args["last_tick"][0] = 9
    engine.launch(args)  # mid2 = 11 + 13, so the mid 12 moves by 4 to 8
    ticks = np.arange(4, 20)
    assert args["bid"][0].tolist() == (ticks * (ticks < 12)).tolist()
    assert args["ask"][0].tolist() == (ticks * (ticks > 12) * (ticks < 16)).tolist()
    assert [args[n][0] for n in ("price_origin", "prev_mid2", "last_tick")] == [4, 16, 5]
    assert args["series_mid2"][0, 0] == 24 and args["series_last_price"][0, 0] == 9


@pytest.mark.parametrize("name, bound", [("overflow", "2\\^31"), ("origin", "2\\^29")])
def test_error_leaves_the_state(name, bound):
    args = make(slots=1, auctions=4, window=2)
    if name == "overflow":
        args["bid"][1, 0] = 2**31 - 10
    else:
        args["price_origin"][1] = 2**29
        args["bid"][1, 12], args["ask"][1, 9], args["ask"][1, 14] = 1, 0, 1
    before = snapshot(args)
    with pytest.raises(MarketError, match=f"market 1.*t=\\d.*{bound}"):
        engine.launch(args)
    assert_same(args, before)
    args["error"][1] = state.ERROR_OVERFLOW  # as CUDA leaves it: this market alone stands still
    engine.launch(args)
    assert args["t"].tolist() == [4, 0, 4]
    assert (args["bid"][1] == before["bid"][1]).all() and (args["value"][0, 1] == 0).all()


def test_pre_trade_limits():
    m = state.Markets(make(markets=1, slots=5, max_quote_qty=100, inventory_limit=50), np.arange(1))
    m.inventory[0] = [20, -60, 0, 0, 0]
    quotes = [[7, 90, 9, 200], [7, 5, 9, 5], [9, 5, 9, 8], [9, 5, 8, 5], [2**31 - 1, -4, -(2**31), 3]]
    assert orders.apply_pre_trade_limits(m, np.array([quotes], np.int32))[0].tolist() == [
        [7, 30, 9, 70], [7, 5, 9, 0], [9, 0, 9, 8], [9, 0, 8, 0], [2**30, 0, -(2**30), 3],
    ]  # fmt: skip


def test_two_slots_trade_with_each_other():
    args = make(markets=1, slots=2, decisions=2, auctions=2, fee=7, **NOBODY)
    args["price_origin"][0] = 100
    args["new_quotes"] = np.array([[[[108, 5, 0, 0], [0, 0, 108, 3]]], [[[0, 0, 0, 0], [90, 1, 200, 1]]]], np.int32)
    engine.launch(args)
    assert args["fills"].tolist() == [[[[3, 0], [0, 3]]], [[[0, 0], [0, 0]]]]
    assert args["cash"][0].tolist() == [-324, 324] and args["inventory"][0].tolist() == [3, -3]
    assert args["fees"][0].tolist() == [21, 21] and args["value"][1].tolist() == [[0, 0]]
    assert args["quotes"][0, 1].tolist() == [90, 1, 200, 1] and args["last_tick"][0] == 8


def test_launches_compose_and_blocks_do_not_matter(monkeypatch):
    whole = make(markets=7, slots=2, decisions=3, auctions=4, **LIVELY)
    whole["new_quotes"] = np.random.default_rng(3).integers(1, 16, (3, 7, 2, 4)).astype(np.int32)
    parts = [make(markets=7, slots=2, auctions=4, **LIVELY)]
    engine.launch(whole)
    monkeypatch.setattr(engine, "BLOCK_CELLS", 32)
    for d in range(3):
        parts[0]["new_quotes"] = whole["new_quotes"][d : d + 1]
        engine.launch(parts[0])
        assert (parts[0]["fills"][0] == whole["fills"][d]).all()
        assert (parts[0]["series_mid2"] == whole["series_mid2"][:, 4 * d : 4 * d + 4]).all()
    assert whole["fills"].any()
    for name in sorted(parts[0].keys() & {*state.MARKET_STATE, *state.SLOT_STATE}):
        np.testing.assert_array_equal(parts[0][name], whole[name], err_msg=name)


# ------------------------------------------------------------------------------------------------ environment


def environment(roles=(0,), markets=4, task=None, **settings):
    task = TASK | dict(role=np.array(list(roles) + [0] * (32 - len(roles)))) | (task or {})
    args = make(markets=markets, slots=len(roles), auctions=3, task=task, env_mode=2, **settings)
    args["episode"][:] = -1
    engine.launch(args)
    args["env_mode"] = 1
    args["actions"] = np.zeros((markets, len(roles), 4), np.float32)
    return args


def test_reset_is_masked_and_opens_the_book():
    args = environment()
    fresh = snapshot(args)
    assert (args["episode"] == 0).all() and (args["mid_history"] == 16).all()
    row = args["observation"][0, 0]
    assert row[1] == row[11] == 0.5 and row[20] == np.float32(0.2) and row[32] == 1 and row[21] == 0
    for _ in range(2):
        engine.launch(args)
    args["env_mode"], args["error"][:] = 2, state.ERROR_NAN_ACTION
    args["reset_mask"] = np.array([0, 1, 0, 0], np.uint8)
    before = snapshot(args)
    engine.launch(args)
    assert args["episode"].tolist() == [0, 1, 0, 0] and args["error"].tolist() == [2, 0, 2, 2]
    assert (args["observation"][1] == fresh["observation"][1]).all() and (args["bid"][1] == fresh["bid"][1]).all()
    assert (args["observation"][0] == before["observation"][0]).all() and (args["bid"][0] == before["bid"][0]).all()


@pytest.mark.parametrize("mode", ["next step", "same step", "disabled"])
def test_autoreset(mode):
    number = ["next step", "same step", "disabled"].index(mode)
    args = environment(task=dict(autoreset=number, horizon=2))
    engine.launch(args)
    assert not args["truncated"].any() and (args["elapsed"] == 1).all()
    engine.launch(args)
    assert args["truncated"].all() and not args["terminated"].any()
    assert (args["final_observation"][:, 0, 32] == 0).all()
    if mode == "same step":
        assert (args["elapsed"] == 0).all() and (args["observation"][:, 0, 32] == 1).all() and not args["done"].any()
        return
    before = snapshot(args)
    engine.launch(args)
    assert (args["reward"] == 0).all()
    if mode == "disabled":
        assert_same(args, before, but=("reward",))
    else:
        assert (args["episode"] == 1).all() and not args["truncated"].any() and (args["t"] == 0).all()
        assert (args["observation"][:, 0, 32] == 1).all()


def test_maker_action_is_decoded_and_bad_actions_noted():
    args = environment(**NOBODY)
    args["actions"][:, 0] = [-0.5, 1, 1, 0]  # offsets 2 and 8, sizes 10 and 5
    args["actions"][2, 0, 3], args["actions"][3, 0, 1] = np.nan, 3
    engine.launch(args)
    assert args["quotes"][:, 0].tolist() == [[6, 10, 16, 5], [6, 10, 16, 5], [0, 0, 0, 0], [6, 10, 16, 5]]
    assert args["error"].tolist() == [0, 0, state.ERROR_NAN_ACTION, state.ERROR_ACTION_RANGE]


def test_discrete_orders_follow_their_side():
    args = environment(roles=(0, 1, 2), task=dict(action_type=1), **NOBODY)
    args["choices"] = np.tile([[3 * 7 + 0, 2, 1]], (4, 1))
    engine.launch(args)
    assert (args["quotes"][:, 0] == [5, 10, 0, 0]).all()
    for k, (offset, quantity) in ((1, (-6, 10)), (2, (-6, 5))):
        for side, order in zip(args["observation"][:, k, 33], args["quotes"][:, k], strict=True):
            if k == 2:
                assert order.tolist() == ([8 + offset, order[1], 0, 0] if side > 0 else [0, 0, 8 - offset, order[3]])
                assert 0 < order[1] + order[3] <= quantity
            else:
                assert order[1] + order[3] == quantity


@pytest.mark.parametrize("reward", [0, 1, 2, 3])
@pytest.mark.parametrize("mark", [0, 1, 2])
def test_rewards_add_up(reward, mark):
    """The pnl of an episode is its last value; the other rewards stay below it."""
    settings = dict(reward=reward, mark=mark, horizon=9, autoreset=2)
    args = environment(roles=(0, 0), markets=6, task=settings, **LIVELY)
    rng, total = np.random.default_rng(4), 0.0
    for _ in range(9):
        args["actions"][:] = rng.uniform(-1, 1, args["actions"].shape)
        engine.launch(args)
        total = total + args["reward"].astype(np.float64)
    assert args["truncated"].all() and args["inventory"].any() and args["fees"].any()
    value = args["prev_value"] / 2000
    if mark == 1:
        best_bid, best_ask = rules.best_prices(args["bid"], args["ask"])
        mid = (best_bid + best_ask) / 2 + args["price_origin"]
        np.testing.assert_allclose(value, args["cash"] + args["inventory"] * mid[:, None] - args["fees"] / 1000)
    if reward == 0:
        np.testing.assert_allclose(total, value, atol=1e-3)
    elif reward < 3:  # per unit is another measure
        assert (total <= value + 1e-3).all() and (total < value).any()


def test_liquidation_walks_the_book():
    from kineticsim_env.engines.numpy import rewards

    args = make(markets=3, slots=1)
    args["bid"][:, 5], args["ask"][:, 12] = 4, 2
    args["ask"][2], args["price_origin"][:] = 0, 10
    args["inventory"][:, 0] = [15, -11, -3]
    cash = rewards.liquidation_cash(state.Markets(args, np.arange(3)))[:, 0]
    assert cash.tolist() == [8 * 17 + 4 * 15 + 3 * 15, -(8 * 19 + 2 * 22 + 1 * 22), -3 * 18]


def test_warm_start_and_stagger():
    """Every market draws from its own rows of the bank, a second episode does not stagger, and nothing warns."""
    bank = make(markets=12, **LIVELY, auctions=30)
    engine.launch(bank)
    task = dict(bank_size=3, bank_owner=1, stagger=1, horizon=100, autoreset=0)
    args = make(markets=4, slots=3, auctions=2, task=TASK | task | dict(role=np.array([0, 1, 2] + [0] * 29)), **LIVELY)
    args |= dict(bank_bid=bank["bid"], bank_ask=bank["ask"], env_mode=2, done=np.zeros(4, bool))
    scalars = ("prev_mid2", "last_tick", "price_origin", "fundamental_price")
    args["bank_scalars"] = np.stack([bank[name] for name in scalars], axis=1)
    args["episode"][:] = -1
    engine.launch(args)
    for m in range(4):
        own = slice(3 * m, 3 * m + 3)
        assert any((args["bid"][m] == row).all() for row in bank["bid"][own])
        assert [args[name][m] for name in scalars] in args["bank_scalars"][own].tolist()
    assert len(set(args["elapsed"].tolist())) > 1 and (args["elapsed"] < 100).all()
    args["env_mode"], args["actions"] = 1, np.ones((4, 3, 4), np.float32)
    while not args["truncated"].any():
        engine.launch(args)
    assert np.isfinite(args["observation"]).all() and np.abs(args["observation"]).max() <= 1
    args["env_mode"] = 2
    engine.launch(args)
    assert (args["episode"] == 1).all() and (args["elapsed"] == 0).all()
