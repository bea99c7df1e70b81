"""The study of default markets: known answers of its measures on made-up data, its players, and its search."""

import functools
import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from thorough import slow

import kineticsim_env as ks
from examples.studies.presets import episodes as study
from examples.studies.presets import goals, rules
from examples.studies.presets import news_search as search
from examples.studies.presets import rules as signals
from kineticsim_env.evaluation import HELD_OUT_SEED, evaluate, evaluation_env
from kineticsim_env.statistics import mean_and_error

PRESET = ks.MarketConfig.preset("news")
SMALL = PRESET.replace(num_agents=8, interval=6, beat=3, noise=0.5, momentum=0.0, maker=0.25, fundamental=0.25)


# R^2 ------------------------------------------------------------------------------------------------------------------


def made_up(share, seed, decisions=60, markets=200):
    """Return features and twice a mid of which a linear function of them explains a share of each change."""
    generator = torch.Generator().manual_seed(seed)
    seen = torch.randn((decisions, markets, 3), generator=generator)
    known = 40 * (2 * seen[..., 0] - seen[..., 2]) / 5**0.5
    noise = 40 * ((1 - share) / share) ** 0.5 * torch.randn(known.shape, generator=generator) if share else 0.0
    changes = known * (share > 0) + (noise if share else 40 * torch.randn(known.shape, generator=generator))
    mids = torch.cat([torch.zeros((1, markets)), changes.cumsum(0)[:-1]])
    return seen, torch.round(mids).to(torch.int32)


@pytest.mark.parametrize("share", [0.0, 0.05, 0.3, 1.0])
def test_r2_of_made_up_prices_on_markets_that_the_fit_has_not_seen(share):
    squares = signals.errors(signals.fit(*made_up(share, 0)), *made_up(share, 1))
    assert squares.shape == (200, len(signals.HORIZONS), 2)
    assert abs(signals.explained(squares[:, 0]) - share) < 0.02


def test_signal_is_in_ticks_and_its_constant_is_last():
    seen, _ = made_up(1.0, 0)
    mids = torch.arange(len(seen), dtype=torch.int32)[:, None].expand(seen.shape[:2]) * 6  # up by 3 ticks per decision
    signal = signals.fit(seen, mids)
    assert torch.allclose(signal.weights[:-1], torch.zeros(3, 3, dtype=torch.float64), atol=1e-6)
    assert torch.allclose(signal.weights[-1], 3.0 * torch.tensor(signals.HORIZONS, dtype=torch.float64), rtol=1e-6)


def test_explained_of_samples_of_markets():
    squares = np.array([[[1.0, 4.0], [3.0, 4.0]], [[8.0, 4.0], [0.0, 4.0]]])
    assert signals.explained(squares).tolist() == [0.5, 0.0]


# Mark-outs ------------------------------------------------------------------------------------------------------------


def test_mark_out_of_fills_by_hand(monkeypatch):
    monkeypatch.setattr(study, "LAGS", 3)
    mids = torch.tensor([[20], [20], [16], [16], [12], [12], [30]], dtype=torch.int32)  # 2 events per interval
    bought, sold = torch.zeros((6, 1), dtype=torch.int32), torch.zeros((6, 1), dtype=torch.int32)
    bought[1], sold[2], bought[4] = 3, 2, 7  # the last has no two intervals behind it, and is not judged
    flow = torch.tensor([[0.0], [3 * 1.5], [2 * 1.0], [0.0], [99.0], [0.0]])
    found = study._judged(mids, bought - sold, bought + sold, flow, events=2)
    assert found.units.tolist() == [5.0] and found.earned.tolist() == [6.5]
    # The purchase: mid 10, then 8 and 6. The sale: mid 8, then 6 and 15.
    assert found.adverse.tolist() == [[0.0, 3 * 2.0 + 2 * -2.0, 3 * 4.0 + 2 * 7.0]]


def test_order_by_order_a_maker_has_the_fills_that_it_has_interval_by_interval(monkeypatch):
    monkeypatch.setattr(study, "LAGS", 1)
    monkeypatch.setattr(study, "AUCTIONS", 40)
    found = study.mark_outs(PRESET, 2, 6, "cpu", seed=3)
    config = PRESET.replace(inventory_limit=study.INVENTORY_LIMIT, max_quote_qty=study.SIZE)
    simulator = ks.Simulator(config, 6, engine="cpu", seed=3, slots=1)
    simulator.run(study.WARMUP)
    units = sum(simulator.step(study.around_mid(simulator, 2, 0.0))[:, 0].sum(1) for _ in range(40))
    assert found.units.tolist() == units.tolist() and units.min() > 0


def test_in_a_call_auction_a_fill_is_judged_from_the_decision(monkeypatch):
    monkeypatch.setattr(study, "LAGS", 2)
    monkeypatch.setattr(study, "AUCTIONS", 50)
    found = study.mark_outs(ks.MarketConfig.preset("trading"), 3, 16, "cpu")
    assert (found.units > 0).all() and (found.adverse[:, 0] == 0).all()
    assert (
        found.earned / found.units > 2.5
    ).all()  # the price is as good as the quote, 3 ticks from the mid, or better


# Players --------------------------------------------------------------------------------------------------------------


def test_players_earn_what_evaluate_says_and_are_paired():
    short = {"horizon": 30}
    playing = {"one": rules.fixed(3), "same": rules.fixed(3.0), "none": rules.public(ks.policies.NoTrade)}
    found = study.play(PRESET, playing, 5, engine="cpu", **short)
    envs = evaluation_env(5, config=PRESET, engine="cpu", **short)
    alone = evaluate(ks.policies.FixedSpread(envs.core.task, half_spread=3.0), envs, HELD_OUT_SEED)
    assert np.array_equal(found["one"].pnl, alone.pnl) and np.array_equal(found["one"].traded, alone.traded)
    assert all(np.array_equal(mine, other) for mine, other in zip(found["one"], found["same"], strict=True))
    assert not found["none"].pnl.any() and found["one"].pnl.any()


def test_what_is_made_by_regime_is_the_whole():
    rule = {"one": rules.fixed(2)}
    made = study.play(PRESET, rule, 6, engine="cpu", horizon=40, mark="fundamental", reward="pnl")["one"]
    envs = evaluation_env(6, config=PRESET, engine="cpu", horizon=40, reward="pnl")
    played = evaluate(ks.policies.FixedSpread(envs.core.task, half_spread=2.0), envs, HELD_OUT_SEED)
    assert made.by_regime.shape == (6, len(PRESET.regimes))
    assert np.allclose(made.by_regime.sum(1), played.episode_return * envs.core.task.reward_scale, atol=0.05)


def quotes_of(make, mid2=(20,), fundamental=(10,), regime=(0,), inventory=0.0):
    """Return the offsets in ticks and sizes in units that a rule quotes."""
    task = ks.tasks.MarketMakingTask()
    hidden = rules.Hidden(*(torch.tensor(part) for part in (mid2, fundamental, regime)))
    observation = torch.zeros((len(mid2), 39))
    observation[:, 30] = inventory / task.inventory_limit
    action = make(task)(observation, hidden)
    offsets, sizes = (action[:, :2] + 1) / 2 * task.max_offset, (action[:, 2:] + 1) / 2 * task.max_qty
    return torch.cat([offsets, sizes], dim=1).round(decimals=4).tolist()


def test_fixed_quotes_are_moved_against_the_inventory():
    assert quotes_of(rules.fixed(3)) == [[3, 3, 8, 8]]
    assert quotes_of(rules.fixed(3, 0.1), inventory=10.0) == [[4, 2, 8, 8]]


def test_who_knows_the_regime_quotes_by_it_or_stays_away():
    rule = rules.knows_regime((2.0, 2.0, 5.0))
    assert quotes_of(rule, (20,) * 3, (10,) * 3, (0, 1, 2)) == [[2, 2, 8, 8], [2, 2, 8, 8], [5, 5, 8, 8]]
    assert quotes_of(rules.knows_regime((2.0, rules.OFF)), regime=(1,))[0][2:] == [0, 0]


@pytest.mark.parametrize(
    ("fundamental", "quotes"),
    [(10, [1, 1, 8, 8]), (13, [1, 4, 8, 8]), (7, [4, 1, 8, 8]), (30, [1, 10, 8, 0]), (-10, [10, 1, 0, 8])],
)
def test_who_knows_the_fundamental_price_does_not_quote_through_it(fundamental, quotes):
    assert quotes_of(rules.knows_fundamental(1.0), fundamental=(fundamental,)) == [quotes]


def test_wary_stays_away_after_large_moves():
    task = ks.tasks.MarketMakingTask()
    observation = torch.zeros((2, 39))
    observation[0, 22:26] = torch.tensor([0.5, -0.5, 0.0, 0.0])  # 4 ticks up, after 4 down: 2 in the mean
    observation[1, 22] = 0.6  # 6 ticks: 1.5 in the mean
    action = rules.wary(3.0, 2.0)(task)(observation, rules.Hidden(*torch.zeros((3, 2))))
    assert action[:, 2].tolist() == action[:, 3].tolist() == [-1.0, 1.0]


def test_follower_trades_with_the_signal():
    weights = torch.zeros((31, 3), dtype=torch.float64)
    weights[22, 0] = 10.0
    task = ks.tasks.TradingTask()
    rule = rules.follows(signals.Signal(weights), 1, threshold=2.0, ticks=5.0)(task)
    observation = torch.zeros((4, 39))
    observation[:, 22] = torch.tensor([0.5, -0.5, 0.1, -0.1])  # predicts 5, -5, 1 and -1 ticks
    observation[3, 30] = 1.0  # long, which the signal is against, if only a little
    action = rule(observation, rules.Hidden(*torch.zeros((3, 4))))
    assert action[:, 0].tolist() == [1.0, -1.0, 0.0, -1.0] and action[0, 1] == 0.5


# The preset -----------------------------------------------------------------------------------------------------------


def surely_above(values, bound=0.0):
    mean = mean_and_error(values)
    return mean.mean - 3 * mean.error > bound


def test_in_the_preset_knowledge_pays_and_random_quotes_do_not():
    away = (2.0, 2.0, rules.OFF)
    playing = {"plain": rules.fixed(2), "wary": rules.wary(2, 3), "told": rules.knows_regime(away)}
    found = study.play(PRESET, playing | {"random": rules.public(ks.policies.RandomQuotes)}, 160, engine="cpu")
    pnl = {name: game.pnl for name, game in found.items()}
    assert surely_above(pnl["plain"]) and surely_above(pnl["plain"] - pnl["random"])
    assert surely_above(pnl["wary"] - pnl["plain"]) and surely_above(pnl["told"] - pnl["plain"])
    quiet, news = found["plain"].by_regime[:, :2].sum(1), found["plain"].by_regime[:, 2]
    assert surely_above(quiet) and surely_above(-news)


def test_in_the_preset_the_next_price_is_not_predictable_from_what_is_public():
    squares = signals.errors(
        signals.fit(*study.watch(PRESET, 96, "cpu", 0)), *study.watch(PRESET, 96, "cpu", HELD_OUT_SEED)
    )
    assert signals.explained(squares[:, 0]) < goals.GOALS["R^2"]


# Goals and search -----------------------------------------------------------------------------------------------------


@pytest.fixture
def short(monkeypatch):
    """Episodes of 30 decisions, and few players."""
    monkeypatch.setattr(study, "evaluation_env", functools.partial(evaluation_env, horizon=30))
    monkeypatch.setattr(study, "AUCTIONS", 30)
    monkeypatch.setattr(goals, "HALF_SPREADS", (2, 4))


def test_judge_names_all_who_played_and_json_keeps_it(short):
    judged = goals.judge(SMALL, goals.choose(SMALL, 4, "cpu"), 4, "cpu")
    assert json.loads(json.dumps(judged)) == json.loads(json.dumps(judged, default=float))
    assert len(judged["makers"]) == len(goals.HALF_SPREADS) * len(goals.SKEWS)
    assert set(judged["knowing"]) == {"moves", "fundamental", "regime"}
    assert set(judged["traders"]) == {"momentum", "reversion", "signal"}
    assert judged["maker"] in judged["makers"] and judged["plain"] in judged["makers"]
    assert len(judged["adverse_per_unit"]) == study.LAGS and judged["adverse_per_unit"][0] == 0


def figures(**changes):
    """Return the figures of a market that meets every goal, or all but one."""
    game = {"pnl": (1000.0, 20.0), "sd": 1000.0}
    found = {
        "r2": {"1": (0.03, 0.02, 0.04)},
        "adverse": (0.7, 0.6, 0.8),
        "maker": "2 ticks",
        "makers": {"2 ticks": game},
        "knowing": {"regime": {**game, "times": (2.5, 2.4, 2.6)}},
        "random": {"pnl": (-200.0, 20.0)},
        "traders": {"signal": {"pnl": (100.0, 20.0)}},
        "spread": 3.0,
    }
    return found | changes


@pytest.mark.parametrize(
    "missed",
    [
        {"r2": {"1": (0.1, 0.09, 0.11)}},
        {"adverse": (0.3, 0.2, 0.4)},
        {"random": {"pnl": (500.0, 20.0)}},
        {"traders": {"signal": {"pnl": (1200.0, 20.0)}}},
        {"knowing": {"regime": {"pnl": (1500.0, 20.0), "times": (1.5, 1.4, 1.6)}}},
        {"makers": {"2 ticks": {"pnl": (-10.0, 20.0), "sd": 1000.0}}},
    ],
)
def test_score_is_worse_for_each_goal_that_is_missed(missed):
    assert goals.score(figures()) < 0 < goals.score(figures(**missed))


def test_who_knows_regimes_is_offered_the_best_of_each_kind():
    quiet, loud = {"jump_prob": 0.0}, {"jump_prob": 0.5}
    made = np.full((3, len(goals.HALF_SPREADS)), -1.0)
    made[0, 1], made[1, 1], made[1, 2] = 3.0, 3.0, 5.0  # of equal regimes the sum counts: 2 ticks, 6 in all
    names = goals._by_regime(made, [quiet, dict(quiet), loud])
    assert {name.split(",")[0] for name in names} == {"2 or off ticks"}
    made[2, 5] = 1.0
    names = goals._by_regime(made, [quiet, dict(quiet), loud])
    assert {name.split(",")[0] for name in names} == {"2 or off ticks", "2 or 6 ticks"}


def test_points_of_the_search_are_markets():
    point = search.point_of(search.START)
    assert ((point >= 0) & (point <= 1)).all()
    config = search.config_of(point)
    assert config.is_continuous and config.interval == search.START["interval"] and config.beat * 2 == config.interval
    assert abs(config.noise + config.momentum + config.maker + config.fundamental - 1) < 1e-9
    assert ks.MarketConfig(**json.loads(json.dumps(search.changed(config)))) == config
    generator = np.random.default_rng(0)
    best = [{"point": generator.random(len(search.SPACE)).tolist()} for _ in range(3)]
    for count in range(2 * search.FIRST):
        point = search.next_point(best, count, generator)
        assert ((point >= 0) & (point <= 1)).all()
        search.config_of(point)


@slow
def test_search_writes_what_it_tried(short, monkeypatch, tmp_path):
    monkeypatch.setattr(search, "MOST", 100.0)  # nothing is known of four markets
    monkeypatch.setattr(search, "ProcessPoolExecutor", lambda count, context: ThreadPoolExecutor(count))
    search.main(["--seconds", "1", "--markets", "4", "--output", str(tmp_path)])
    path = tmp_path / "news_search.json"
    found = json.loads(path.read_text())
    scores = [one["score"] for one in found["tried"]]
    assert scores == sorted(scores) and scores
    assert "--markets 4" in found["command"] and found["machine"]
    assert f"The search: `{found['command']}`" in " ".join((tmp_path / "README.md").read_text().split())
    assert ks.MarketConfig(**found["tried"][0]["market"]) == search.config_of(np.array(found["tried"][0]["point"]))
    search.main(["--seconds", "1", "--markets", "4", "--start", str(path), "--output", str(tmp_path)])
    assert found["tried"][0]["point"] in [one["point"] for one in json.loads(path.read_text())["tried"]]
