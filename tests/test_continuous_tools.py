"""Policies, evaluation, pictures and the game under continuous trading."""

import functools
import re

import numpy as np
import pytest
import torch
from test_scripted_policies import EXECUTORS, TRADERS

import kineticsim_env as ks
from kineticsim_env import policies
from kineticsim_env.config import PRESETS
from kineticsim_env.evaluation import evaluate, evaluation_env, liquidate
from kineticsim_env.evaluation.accounts import _price_to_the_book
from kineticsim_env.play.game import GAMES, Game
from kineticsim_env.play.terminal import screen_lines
from kineticsim_env.render import MarketRecorder
from kineticsim_env.render.text import WIDTH, text_picture

pytestmark = pytest.mark.usefixtures("one_thread")
CONTINUOUS = {"arrivals": "clock", "mechanism": "continuous", "interval": 16, "rounding": "coin"}
SMALL = {"engine": "cpu", "bank_size": 4, "warmup": 10}
DEEP = ks.MarketConfig(
    num_agents=64, noise=0.85, momentum=0.05, maker=0.1, noise_spread=7, cancel_prob=0.15, **CONTINUOUS
)
MAKERS = (
    policies.FixedSpread,
    policies.AvellanedaStoikov,
    policies.GueantLehalleFernandezTapia,
    policies.NoTrade,
    policies.RandomQuotes,
    *policies.attackers.ATTACKERS,
)
GROUPS = {
    "MarketMaking": MAKERS,
    "Execution": (*EXECUTORS, *policies.attackers.EXECUTOR_ATTACKERS),
    "Trading": (*TRADERS, *policies.attackers.TRADER_ATTACKERS),
}
PLAYED = [(task, policy) for task, group in GROUPS.items() for policy in group]
IDLE = (policies.NoTrade, policies.Hold)


# Policies and evaluation ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("task", "policy"), PLAYED, ids=lambda part: getattr(part, "__name__", part))
def test_every_scripted_policy_plays(task, policy):
    """It trades, is unwound, and reads nothing behind the features that every mechanism has."""
    envs = evaluation_env(3, task, config=DEEP, horizon=10, **SMALL)
    result = evaluate(policy(envs.core.task), envs)
    assert np.isfinite(result.pnl).all() and np.isfinite(result.episode_return).all()
    if policy in IDLE:
        assert not result.traded.any()
    else:
        assert result.traded.any()
    observation, _ = envs.reset(seed=3)
    longer = torch.cat([observation, torch.full((3, 2), 0.7)], dim=1)
    actions = [policy(envs.core.task)(rows) for rows in (observation, longer)]
    assert torch.equal(*actions)


def test_who_loses_too_much_is_unwound():
    envs = evaluation_env(4, config=DEEP, horizon=20, max_loss=10.0, **SMALL)
    result = evaluate(policies.RandomQuotes(envs.core.task, seed=1), envs)
    assert np.isfinite(result.pnl).all() and (result.pnl < 0).any() and not envs.core.simulator.inventory.any()


def test_how_far_orders_have_to_go():
    config = ks.MarketConfig(num_levels=16, init_price=8, window=4, **CONTINUOUS)
    sim = ks.Simulator(config, 2, engine="numpy", slots=3)
    for name in ("bid", "ask"):
        sim.tensors[name].zero_()
    sim.bid[0, 5], sim.bid[0, 4], sim.ask[0, 9], sim.ask[0, 12] = 3, 2, 1, 4
    sim.price_origin[:] = 100
    sim.tensors["last_tick"][:] = torch.tensor([8, 7])
    quotes = torch.zeros((2, 3, 4), dtype=torch.int32)
    quotes[..., 1] = torch.tensor([[1, 2, 9], [1, 1, 1]])
    quotes[..., 3] = torch.tensor([[3, 4, 50], [2, 2, 2]])
    sizes = quotes[0, :, 1::2].clone()
    _price_to_the_book(sim, quotes)
    assert quotes[0, :, ::2].tolist() == [[109, 105], [112, 104], [112, 104]]
    assert torch.equal(quotes[0, :, 1::2], sizes)
    assert not quotes[1, :, 1::2].any()  # where nothing rests, it is waited for


@pytest.mark.parametrize("latency", [0, 7, 16])
def test_unwinding_never_leaves_an_order_at_the_end_of_the_grid(latency, monkeypatch):
    """It costs no more than the furthest unit that rested when an order was given, and leaves every slot flat."""
    config = ks.MarketConfig.preset("trading", **CONTINUOUS, quote_latency=latency)
    sim = ks.Simulator(config, 64, engine="cpu", slots=2, seed=2)
    sim.run(50)
    quotes = torch.zeros((64, 2, 4), dtype=torch.int32)
    quotes[:, 0, 0], quotes[:, 0, 1], quotes[:, 1, 2], quotes[:, 1, 3] = 100, 12, 20, 12
    for _ in range(3):
        sim.step(quotes)
    sim.step(torch.zeros_like(quotes), 2)
    assert sim.inventory[:, 0].any() and sim.inventory[:, 1].any()
    step, first = sim.step, []

    def watched(given, intervals):
        near = (given[..., [0, 2]] - (sim.mid2[:, None, None] // 2)).abs()
        assert bool((near[given[..., [1, 3]] > 0] < 128).all())
        before, old = sim.cash.clone(), sim.quotes.clone()
        fills = step(given, intervals)
        worst = fills[..., 1] * given[..., 2] - fills[..., 0] * given[..., 0]
        if not first:  # later ones may trade with what an earlier decision left
            assert bool((sim.cash - before >= worst).all()) and not old[..., [1, 3]].any()
        first.append(True)
        return fills

    monkeypatch.setattr(sim, "step", watched)
    liquidate(sim)
    assert not sim.inventory.any()


# Pictures -------------------------------------------------------------------------------------------------------------


def queueing(seed=3):
    """Return a recorder, and yield its moments while a maker joins the best bid and ask, and keeps what stands."""
    envs = evaluation_env(1, config=DEEP, horizon=60, **SMALL)
    recorder, sim = MarketRecorder(envs.core), envs.simulator
    envs.reset(seed=seed)
    recorder.record()
    for _ in range(50):
        best = torch.cat(ks.statistics.arrays.best_prices(sim.bid, sim.ask)) + sim.price_origin
        standing = sim.quotes[0, 0].view(2, 2)
        kept = (standing[:, 0] == best) & (standing[:, 1] > 0)
        size = torch.where(kept, standing[:, 1], 8)
        away = torch.stack([sim.mid2[0] // 2 - best[0], best[1] - (sim.mid2[0] + 1) // 2])
        action = policies.quote_action(envs.core.task, *away.float().view(2, 1), *size.float().view(2, 1))
        envs.step(action)
        yield recorder, recorder.record(), sim


def test_text_shows_places_in_queues():
    seen = 0
    for recorder, moment, sim in queueing():
        assert moment.queue == tuple(sim.queue[0, 0].tolist())
        lines = text_picture(recorder).split("\n")
        assert max(map(len, lines)) <= WIDTH
        rows = {int(line[29:37].strip(" =")): line.ljust(WIDTH) for line in lines[5:] if "- mid -" not in line}
        for side, ahead in zip(("bid", "ask"), moment.queue, strict=True):
            price, qty = moment.quotes[:2] if side == "bid" else moment.quotes[2:]
            if not qty or price not in rows:
                continue
            own, bar = (
                (rows[price][:8], rows[price][9:23]) if side == "bid" else (rows[price][59:67], rows[price][44:58])
            )
            assert own.strip() == f"{qty} ({ahead})"
            resting = min(moment.depth(price, side), 14)
            first = min(ahead, resting)
            whole = "#" * first + ":" * (resting - first)
            assert bar.strip() == (whole[::-1] if side == "bid" else whole)
            seen += 0 < ahead < resting
    assert seen > 5


def test_text_shows_fills_at_the_rows_of_quotes():
    rows = 0
    for recorder, moment, _ in queueing(seed=5):
        for line in text_picture(recorder).split("\n")[5:]:
            marks = re.findall(r"(?<= )[+-]\d+$", line.rstrip()) if len(line) > 67 else []
            for mark in marks:
                price = moment.quotes[0] if mark[0] == "+" else moment.quotes[2]
                assert int(line[29:37].strip(" =")) in (price, moment.last_price)
                assert int(mark) in (moment.bought, -moment.sold)
                rows += 1
    assert rows > 10


def test_pictures_show_places_in_queues():
    pytest.importorskip("pygame")
    from kineticsim_env.render import canvas, picture

    seen = 0
    frame = picture.Picture()
    for recorder, moment, _ in queueing():
        frame.draw(recorder)
        pixels = frame.array()
        for bid in (True, False):
            price, side = moment.quotes[0 if bid else 2], "bid" if bid else "ask"
            ahead, resting = moment.ahead(side), moment.depth(price, side)
            pale = (pixels == np.array(canvas.PALEST_BUY if bid else canvas.PALEST_SELL)).all(2)
            assert pale.any() == (ahead is not None and ahead < resting)
            if ahead is None or not 0 < ahead < resting:
                continue
            y = round(frame.row_middle(moment, price))
            columns = np.flatnonzero(pale[y - 6])
            bars = (picture._BIDS, picture._PRICE) if bid else (picture._ASKS, picture._OWN_ASK)
            assert bars[0] <= columns.min() and columns.max() < bars[1]
            marks = (pixels[y - 9 : y - 5, bars[0] : bars[1]] == np.array(canvas.OWN)).all(2)
            assert marks.any()
            share = len(columns) / (resting - ahead)  # pixels per unit, but for the mark
            lengths = [picture._BAR_WIDTH / scale for scale in (8, 16, 32, 64, 128)]
            assert min(abs(share - length) for length in lengths) * (resting - ahead) <= 4
            seen += 1
    assert seen > 5


def test_nobody_queues_under_call_auctions():
    envs = evaluation_env(1, config=DEEP.replace(mechanism="call"), horizon=10, **SMALL)
    envs.reset(seed=1)
    recorder = MarketRecorder(envs.core)
    for _ in range(5):
        envs.step(torch.tensor([[-0.8, -0.8, 1.0, 1.0]]))
        moment = recorder.record()
        assert moment.queue is None and moment.ahead("bid") is None
        assert moment.filled_rows() == (moment.last_price, moment.last_price)
        assert ":" not in "".join(text_picture(recorder).split("\n")[5:])


# The game -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", list(GAMES))
def test_the_game_is_played_to_its_result(task, monkeypatch):
    """On the screen of the terminal, and in a window if there is pygame."""
    monkeypatch.setitem(PRESETS, "queues", {**PRESETS["trading"], **CONTINUOUS})
    monkeypatch.setattr("kineticsim_env.play.game.evaluation_env", functools.partial(evaluation_env, **SMALL))
    game = Game(task, preset="queues", seed=4, horizon=6)
    for key in "b n n up n + n".split():
        game.press(key)
        assert max(map(len, screen_lines(game, 24))) <= WIDTH
    assert any(" (" in line for line in screen_lines(game, 24)[5:20]) == any(game.moment.quotes[1::2])
    game.press("n"), game.press("n")
    assert game.over
    lines = game.result().split("\n")
    assert lines[0] == "seed 4, preset queues, 6 of 6 decisions" and "you" in lines[2]


def test_the_game_in_a_window(monkeypatch):
    pygame = pytest.importorskip("pygame")
    from kineticsim_env.play.window import play_window

    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    monkeypatch.setitem(PRESETS, "queues", {**PRESETS["trading"], **CONTINUOUS})
    monkeypatch.setattr("kineticsim_env.play.game.evaluation_env", functools.partial(evaluation_env, **SMALL))
    game = Game(preset="queues", seed=4, horizon=20)
    key = functools.partial(pygame.event.Event, pygame.KEYDOWN)
    events = [[key(key=pygame.K_n, unicode="n")]] * 5 + [[key(key=pygame.K_q, unicode="q")]]
    play_window(game, lambda: events.pop(0) if events else [])
    assert game.moment.elapsed == 5 and game.controls.quit
