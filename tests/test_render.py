"""Pictures of a market show what is in it, and change nothing; Gymnasium's and PettingZoo's tools take them."""

import importlib.util
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from env_helpers import draw_actions, environments, launch, make_cores
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from markets import FEW_ORDERS
from pettingzoo.utils.conversions import parallel_to_aec
from thorough import covering, examples, slow

import kineticsim_env as ks
from kineticsim_env.render import Frames, MarketRecorder, recorder
from kineticsim_env.render.text import HEIGHT, WIDTH, text_picture

pygame = pytest.importorskip("pygame")

from kineticsim_env.render import canvas, panels, picture  # noqa: E402  they need pygame
from kineticsim_env.render.picture import Picture  # noqa: E402
from kineticsim_env.render.window import open_display  # noqa: E402

ROOT = Path(__file__).parent.parent
ID = "KineticSim/MarketMaking-v0"
TASKS = (ID, "KineticSim/Execution-v0", "KineticSim/Trading-v0")
SMALL = {"engine": "cpu", "horizon": 20, "bank_size": 16, "warmup": 20}
WIDE = np.array([-0.2, 0.1, 1.0, 1.0], np.float32)  # bids 4 and offers 6 ticks (5.5 rounded to even) from the mid
NEAR = np.array([-0.6, -0.6, 1.0, 1.0], np.float32)  # 2 ticks from the mid
NOTHING = np.full(4, -1.0, np.float32)


def make(**kwargs):
    return gym.make(ID, **{**SMALL, **kwargs}).unwrapped


def make_vec(markets=3, **kwargs):
    return gym.make_vec(ID, num_envs=markets, **{**SMALL, **kwargs})


def record(env):
    """Return a recorder that has seen the environment as it is."""
    watched = MarketRecorder(env.unwrapped.core)
    watched.record()
    return watched


# What is recorded -----------------------------------------------------------------------------------------------------


@settings(max_examples=examples(25))
@given(environments())
def test_moments_are_the_state_and_every_market_can_be_drawn(environment):
    arguments, kwargs, seed, steps = environment
    core = make_cores(arguments, kwargs, ["numpy"])[0]
    generator = np.random.default_rng(seed)
    market, slot = int(generator.integers(arguments[1])), int(generator.integers(len(core.roles)))
    watched, frame = MarketRecorder(core, market, slot), Picture()
    core.reset(seed)
    for _ in range(steps):
        before = {name: tensor.clone() for name, tensor in {**core.simulator.tensors, **core.tensors}.items()}
        moment = watched.record()
        text = text_picture(watched)
        frame.draw(watched)
        for name, tensor in {**core.simulator.tensors, **core.tensors}.items():
            assert before[name].nan_to_num().equal(tensor.nan_to_num()), name
        simulator = core.simulator
        for name in ("mid2", "last_price"):
            assert getattr(moment, name) == getattr(simulator, name)[market]
        for name in ("bid", "ask"):
            assert getattr(moment, name).tolist() == getattr(simulator, name)[market].tolist()
        for name in ("cash", "inventory", "fees"):
            assert getattr(moment, name) == simulator.tensors[name][market, slot] == watched.path(name)[-1]
        assert moment.quotes == tuple(simulator.tensors["quotes"][market, slot].tolist())
        assert moment.elapsed == core.tensors["elapsed"][market] == watched.path("elapsed")[-1]
        lines = text.split("\n")
        assert len(lines) == HEIGHT and max(map(len, lines)) <= WIDTH
        launch([core], draw_actions(core, generator, 0.0))


def test_the_path_is_that_of_the_episode():
    env = make()
    watched = MarketRecorder(env.core)
    generator = np.random.default_rng(0)
    for seed in (1, 2):
        _, infos = env.reset(seed=seed)
        watched.record()
        seen = [infos]
        for _ in range(20):
            *_, infos = env.step(generator.uniform(-1, 1, 4).astype(np.float32))
            watched.record()
            watched.record()  # looking twice is no decision
            seen.append(infos)
        assert watched.path("elapsed").tolist() == list(range(21))
        for name in ("inventory", "cash", "fees", "bought", "sold"):
            assert watched.path(name).tolist() == [infos[name] for infos in seen]
        assert (watched.path("mid2") / 2).tolist() == [infos["mid_price"] for infos in seen]
        assert any(infos["bought"] for infos in seen) and any(infos["sold"] for infos in seen)
        last = seen[-1]
        worth = last["cash"] + last["inventory"] * last["mid_price"] - last["fees"] / 1000
        assert watched.moment.pnl == watched.money_path()[-1] == pytest.approx(worth)


def test_going_back_to_a_state_cuts_the_path():
    env = make()
    watched = MarketRecorder(env.core)
    env.reset(seed=1)
    watched.record()
    saved = None
    for step in range(10):
        env.step(WIDE)
        watched.record()
        saved = env.state_dict() if step == 4 else saved
    before = watched.path("mid2")[:6].tolist()
    env.load_state_dict(saved)
    watched.record()
    assert watched.path("elapsed").tolist() == list(range(6)) and watched.path("mid2").tolist() == before


def test_of_a_long_episode_the_latest_decisions_are_kept(monkeypatch):
    monkeypatch.setattr(recorder, "LONGEST", 512)
    env = make(horizon=1500, engine="cpu")
    env.reset(seed=0)
    watched = record(env)
    for _ in range(1200):
        env.step(WIDE)
        watched.record()
    elapsed = watched.path("elapsed")
    assert 256 <= len(elapsed) <= 512 and elapsed.tolist() == list(range(1201 - len(elapsed), 1201))
    Picture().draw(watched)
    assert len(watched._rows) <= 512


def test_a_noise_learner_has_a_block_left():
    env = ks.parallel_env(learners={"maker": 1, "noise": 1}, horizon=20, bank_size=4, render_mode="ansi", engine="cpu")
    env.reset(seed=3)
    watched = MarketRecorder(env.core, slot=1)
    whole = watched.record().left
    assert whole
    action = {"maker_0": WIDE, "noise_0": np.array([0.3, 1.0], np.float32)}
    while env.agents:
        env.step(action)
        moment = watched.record()
        assert moment.left == whole - moment.inventory
    Picture().draw(watched)
    assert "left to" in text_picture(watched) or "nothing left" in text_picture(watched)
    assert moment.left != whole


# What is drawn --------------------------------------------------------------------------------------------------------


def own_marks(frame: np.ndarray) -> tuple[set[int], set[int]]:
    """Return the ladder's rows with marks of an own bid and of an own ask, found by their colour."""
    marks = (frame == np.array(canvas.OWN)).all(2)
    top, row, left = picture._LADDER_TOP, picture._ROW, picture._LEFT
    sides = []
    for begin in (left, picture._OWN_ASK):
        part = marks[top : top + row * picture._ROWS, begin : begin + picture._OWN_WIDTH]
        sides.append(set((np.flatnonzero(part.sum(1) >= 30) // row).tolist()))
    return sides[0], sides[1]


def test_own_quotes_are_where_they_should_be():
    env = make(render_mode="rgb_array", inventory_limit=None)
    env.reset(seed=4)
    assert own_marks(env.render()) == (set(), set())
    seen = 0
    for _ in range(20):
        env.step(WIDE)
        frame, mid2 = env.render(), int(env.simulator.mid2)
        assert frame.dtype == np.uint8 and frame.shape == (600, 960, 3)
        expected = []
        for price, qty in env.simulator.tensors["quotes"].view(2, 2).tolist():
            row = min(max(picture._ROWS // 2 + mid2 // 2 - price, 0), picture._ROWS - 1)
            expected.append({row} if qty else set())
        assert own_marks(frame) == tuple(expected)
        seen += sum(map(len, expected))
    assert seen > 20
    env.reset(seed=5)
    env.step(NOTHING)
    assert own_marks(env.render()) == (set(), set())


def test_fills_flash():
    env = make(preset="trading", render_mode="rgb_array")
    env.reset(seed=4)
    filled = 0
    for _ in range(20):
        *_, infos = env.step(WIDE)
        flash = (env.render() == np.array(canvas.FLASH)).all(2)[picture._LADDER_TOP : -40]  # not the legend
        rows = set((np.flatnonzero(flash.any(1)) // picture._ROW).tolist())
        if infos["bought"] or infos["sold"]:
            price, mid2 = int(env.simulator.last_price), int(env.simulator.mid2)
            assert rows == {picture._ROWS // 2 + mid2 // 2 - price}
            filled += 1
        else:
            assert not rows
    assert 3 < filled < 20


def test_own_trades_are_marked_at_the_quotes_under_continuous_trading():
    """In call auctions at the clearing price; a quote that was filled whole leaves a pale mark."""
    for preset in ("news", "trading"):
        env = make(preset=preset)
        env.reset(seed=4)
        watched, frame, pale = record(env), Picture(), set()
        for _ in range(20):
            env.step(NEAR)
            moment = watched.record()
            frame.draw(watched)
            done = moment.bought and not moment.quotes[1], moment.sold and not moment.quotes[3]
            emptied = {side for side in (0, 1) if done[side]}
            columns = [
                frame.array()[:, begin : begin + picture._OWN_WIDTH] for begin in (picture._LEFT, picture._OWN_ASK)
            ]
            left = {side for side in (0, 1) if (columns[side] == canvas.PALE_OWN).all(2).any()}
            assert left == (emptied if preset == "news" else set())
            pale |= left
        for name, price in (("bought", "bid_price"), ("sold", "ask_price")):
            hit = watched.path(name) > 0
            at = watched.path(price if preset == "news" else "last_price")
            assert hit.sum() > 3 and watched.path(f"{name}_at")[hit].tolist() == at[hit].tolist()
        assert pale == ({0, 1} if preset == "news" else set())


def test_axes_of_a_whole_path_keep_still():
    def played():
        env = make()
        env.reset(seed=4)
        watched = record(env)
        yield watched
        for _ in range(20):
            env.step(WIDE)
            watched.record()
            yield watched

    *_, whole = played()
    frame, axes, own = Picture(), [], set()
    for watched in played():
        frame.draw(watched)
        own.add(axes_of(frame).tobytes())
        frame.draw(watched, whole)
        axes.append(axes_of(frame))
    assert len(own) > 1 and all((each == axes[0]).all() for each in axes)
    last = frame.array()
    frame.draw(whole, whole)
    np.testing.assert_array_equal(frame.array(), last)
    with pytest.raises(TypeError, match="^whole: expected a MarketRecorder, got "):
        frame.draw(whole, np.zeros(3))
    with pytest.raises(ValueError, match="^whole: expected a recorder after its record"):
        frame.draw(whole, MarketRecorder(make().get_wrapper_attr("core")))


def axes_of(frame: Picture) -> np.ndarray:
    """Return the pixels of the numbers at the left of the panels."""
    return frame.array()[picture._LADDER_TOP :, picture._RIGHT : panels.LEFT]


def test_text_is_the_state():
    """In call auctions; `test_continuous_tools` has what queues add."""
    env = make(preset="trading", render_mode="ansi")
    env.reset(seed=4)
    fills = 0
    for step in range(20):
        if step:
            *_, infos = env.step(WIDE)
        text = env.render()
        simulator = env.simulator
        numbers = dict(re.findall(r"(seed|decision|inventory|bought|sold|mid|last|fundamental) ([+-]?[\d.]+)", text))
        assert int(numbers["seed"]) == 4 and int(numbers["decision"]) == step
        assert float(numbers["mid"]) == int(simulator.mid2) / 2
        assert int(numbers["last"]) == int(simulator.last_price)
        assert int(numbers["fundamental"]) == int(simulator.fundamental_price)
        assert int(numbers["inventory"]) == int(simulator.inventory)
        if step:
            assert (int(numbers["bought"]), int(numbers["sold"])) == (infos["bought"], infos["sold"])
        origin, bid, ask = int(simulator.price_origin), simulator.bid[0], simulator.ask[0]
        quotes = simulator.tensors["quotes"].view(4).tolist()
        rows = [line.ljust(80) for line in text.split("\n")[5:] if "- mid -" not in line]
        prices = [int(row[29:37].strip(" =")) for row in rows]
        assert prices == list(range(prices[0], prices[0] - len(prices), -1))
        assert prices[-1] < int(simulator.mid2) / 2 < prices[0]
        for price, row in zip(prices, rows, strict=True):
            own_bid, bids, asks, own_ask = (
                int(part.strip(" #") or 0) for part in (row[:8], row[9:28], row[39:58], row[59:67])
            )
            tick = price - origin
            inside = 0 <= tick < len(bid)
            assert bids == (int(bid[tick]) if inside else 0) and asks == (int(ask[tick]) if inside else 0)
            assert own_bid == (quotes[1] if price == quotes[0] else 0)
            assert own_ask == (quotes[3] if price == quotes[2] else 0)
            assert (row[37] == "<") == (price == int(simulator.last_price))
            marked = [int(part) for part in row[67:].split()]
            if step and marked:
                assert marked == [part for part in (infos["bought"], -infos["sold"]) if part]
                fills += 1
    assert fills > 3


def test_frames_change_with_a_step_and_are_the_callers():
    env = make(render_mode="rgb_array")
    env.reset(seed=1)
    first = env.render()
    kept = first.copy()
    np.testing.assert_array_equal(first, env.render())
    env.step(WIDE)
    second = env.render()
    assert (first != second).any()
    np.testing.assert_array_equal(first, kept)
    second[:] = 0
    assert env.render().any()


@pytest.mark.parametrize("engine", ["numpy", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_every_engine_gives_the_same_picture(engine):
    frames = []
    for name in ("cpu", engine):
        how = {"config": FEW_ORDERS, "render_mode": "rgb_array", "render_market": 2, "stagger": False}
        envs = make_vec(3, engine=name, **how)
        envs.reset(seed=5)
        actions = np.random.default_rng(0).uniform(-1, 1, (30, 3, 4)).astype(np.float32)
        frames.append([])
        for action in actions:
            envs.step(action)
            frames[-1].append(envs.render()[0])
    np.testing.assert_array_equal(*map(np.stack, frames))


def test_an_executor_sees_its_block_and_the_arrival_price():
    env = gym.make("KineticSim/Execution-v0", render_mode="ansi", side="sell", **SMALL)
    env.reset(seed=1)
    arrival, done = int(env.unwrapped.simulator.mid2) / 2, False
    frame = Picture()
    total = 0.0
    while not done:
        _, reward, done, _, infos = env.step(np.array([0.2, 0.5], np.float32))
        text, total = env.render(), total + reward
        watched = record(env)
        frame.draw(watched)
        left = re.search(r"(\d+) left to sell|nothing left", text)
        assert int(left.group(1) or 0) == 100 + infos["inventory"] == -watched.moment.left
        assert float(re.search(r"arrival ([\d.]+)", text).group(1)) == arrival
        assert float(re.search(r"against arrival ([+-][\d.]+)", text).group(1)) == pytest.approx(100 * total, abs=0.1)
    assert infos["inventory"] == -100


def test_the_fundamental_price_is_shown_unless_it_is_hidden():
    env = make(config=FEW_ORDERS)
    env.reset(seed=1)
    watched = record(env)
    for _ in range(5):
        env.step(NOTHING)
        watched.record()
    found = []
    for shown in (True, False):
        watched.show_fundamental = shown
        frame = Picture()
        frame.draw(watched)
        found.append(bool((frame.array() == canvas.FUNDAMENTAL).all(-1).any()))
    assert found == [True, False]


def test_an_order_flow_shows_no_fundamental_price():
    env = make(config=ks.OrderFlow.preset("btcusd").config(interval=5), render_mode="ansi")
    env.reset(seed=1)
    watched = record(env)
    frame = Picture()
    frame.draw(watched)
    assert "mid" in env.render() and "fundamental" not in env.render()
    assert not (frame.array() == canvas.FUNDAMENTAL).all(-1).any()


def test_the_scenario_is_named():
    envs = make_vec(2, render_mode="ansi", randomise={"noise_spread": (2, 16)}, num_scenarios=500)
    envs.reset(seed=0)
    assert f"scenario {int(envs.scenario[0])} |" in envs.render()[0]


# Rendering changes nothing --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["human", "rgb_array", "ansi"])
def test_a_single_environment_goes_on_as_without(mode):
    plain, shown = make(), make(render_mode=mode)
    for env in (plain, shown):
        env.reset(seed=3)
    generator = np.random.default_rng(0)
    for _ in range(20):
        action = generator.uniform(-1, 1, 4).astype(np.float32)
        one, two = plain.step(action), shown.step(action)
        assert (shown.render() is None) == (mode == "human")
        np.testing.assert_array_equal(one[0], two[0])
        assert one[1:] == two[1:]
    states = plain.state_dict(), shown.state_dict()
    assert all(states[0][name].equal(states[1][name]) for name in states[0])
    shown.close()


@pytest.mark.parametrize("autoreset", ["SAME_STEP", "NEXT_STEP"])
def test_a_vector_environment_goes_on_as_without(autoreset):
    plain = make_vec(4, autoreset_mode=autoreset)
    shown = make_vec(4, autoreset_mode=autoreset, render_mode="rgb_array", render_market=1)
    for envs in (plain, shown):
        envs.reset(seed=3)
    generator = np.random.default_rng(0)
    for _ in range(50):
        action = generator.uniform(-1, 1, (4, 4)).astype(np.float32)
        one, two = plain.step(action), shown.step(action)
        shown.render()
        for a, b in zip(one[:4], two[:4], strict=True):
            np.testing.assert_array_equal(a, b)
        watched = shown._viewer.recorder
        assert watched.path("elapsed")[-1] == shown.core.tensors["elapsed"][1]
        assert (np.diff(watched.path("elapsed")) == 1).all()
        assert watched.path("inventory")[-1] == shown.simulator.inventory[1, 0]
        assert watched.path("bought")[0] == watched.path("sold")[0] == 0
    states = plain.state_dict(), shown.state_dict()
    assert all(states[0][name].equal(states[1][name]) for name in states[0])


def test_nothing_is_read_without_a_render_mode(monkeypatch):
    monkeypatch.setattr(MarketRecorder, "record", lambda self: pytest.fail("the market was read"))
    for env, action in ((make(), WIDE), (make_vec(2), np.stack([WIDE, WIDE]))):
        env.reset(seed=0)
        env.step(action)


# Gymnasium and PettingZoo ---------------------------------------------------------------------------------------------


@covering
@pytest.mark.parametrize("mode", [None, "human", "rgb_array", "ansi"])
@pytest.mark.parametrize("task", TASKS)
def test_gymnasium_checker(task, mode, recwarn):
    check_env(gym.make(task, render_mode=mode, **SMALL).unwrapped)  # it makes an environment of every declared mode
    assert [str(warning.message) for warning in recwarn] == []


def test_lists_of_frames():
    for mode, kind in (("rgb_array_list", np.ndarray), ("ansi_list", str)):
        env = gym.make(ID, render_mode=mode, **SMALL)
        env.reset(seed=0)
        for _ in range(3):
            env.step(WIDE)
        frames = env.render()
        assert len(frames) == 4 and all(isinstance(frame, kind) for frame in frames)


def frames_of(path) -> tuple[int, tuple[int, int]]:
    """Return how many frames a video has, and their size."""
    from moviepy import VideoFileClip

    with VideoFileClip(str(path)) as clip:
        return sum(1 for _ in clip.iter_frames()), tuple(clip.size)


def test_record_video(tmp_path):
    pytest.importorskip("moviepy")
    env = gym.make(ID, render_mode="rgb_array", **SMALL)
    env = gym.wrappers.RecordVideo(env, str(tmp_path / "single"), episode_trigger=lambda episode: True)
    for seed in (0, 1):
        env.reset(seed=seed)
        for _ in range(20):
            env.step(env.action_space.sample())
    env.close()
    paths = sorted((tmp_path / "single").glob("*.mp4"))
    assert [path.name for path in paths] == ["rl-video-episode-0.mp4", "rl-video-episode-1.mp4"]
    assert [frames_of(path) for path in paths] == [(21, (960, 600))] * 2


@slow
@pytest.mark.parametrize(("markets", "options"), [(1, {}), (300, {"record_first_only": True})])
def test_record_video_of_a_vector_environment(markets, options, tmp_path):
    pytest.importorskip("moviepy")
    envs = make_vec(markets, render_mode="rgb_array", render_market=markets - 1, autoreset_mode="NEXT_STEP")
    envs = gym.wrappers.vector.RecordVideo(
        envs, str(tmp_path / "vector"), step_trigger=lambda step: step == 0, video_length=12, **options
    )
    envs.reset(seed=0)
    for _ in range(15):
        envs.step(envs.action_space.sample())
    envs.close()
    (path,) = (tmp_path / "vector").glob("*.mp4")
    assert frames_of(path)[1] == (960, 600) and frames_of(path)[0] >= 12


@slow
def test_record_video_of_pettingzoo(tmp_path):
    pytest.importorskip("moviepy")
    pytest.importorskip("pettingzoo", minversion="1.27")  # older ones have no RecordVideoParallel
    from pettingzoo.utils.wrappers import RecordVideoParallel

    env = ks.parallel_env({"maker": 1}, horizon=6, bank_size=4, render_mode="rgb_array", engine="cpu")
    env = RecordVideoParallel(env, str(tmp_path), episode_trigger=lambda episode: True)
    env.reset(seed=0)
    while env.agents:
        env.step({agent: WIDE for agent in env.agents})
    env.close()
    (path,) = tmp_path.glob("*.mp4")
    assert frames_of(path) == (7, (960, 600))


def test_a_few_markets_each_with_its_picture():
    envs = gym.make_vec(ID, 3, vectorization_mode="sync", render_mode="rgb_array", **SMALL)
    envs.reset(seed=0)
    frames = envs.render()
    assert len(frames) == 3 and (frames[0] != frames[1]).any()
    envs.close()


def run(script, *arguments):
    """Run a script of the checkout, and return what it prints."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, str(ROOT / script), *map(str, arguments)]
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@slow
def test_the_example_makes_a_video_and_a_picture(tmp_path):
    pytest.importorskip("moviepy")
    out = run("examples/watch_market.py", "--horizon", 12, "--policy", "fixed-spread", "--output", tmp_path / "a" / "b")
    assert frames_of(tmp_path / "a" / "b" / "fixed-spread-episode-0.mp4") == (13, (960, 600))
    assert pygame.image.load(tmp_path / "a" / "b" / "fixed-spread.png").get_size() == (1920, 1200)
    assert "12 decisions, return" in out


@slow
def test_the_pictures_of_the_readme(tmp_path):
    pytest.importorskip("matplotlib")
    pytest.importorskip("safetensors")
    image = pytest.importorskip("PIL.Image")
    learned = tmp_path / "any.safetensors"
    ks.NetworkPolicy.make(39, 4).save(learned, task="market_making", preset="news")
    drawn = tmp_path / "drawn"
    run("scripts/readme_pictures.py", "--output", drawn, "--markets", 4, "--policy", learned, "--film-decisions", 12)
    pictures = ["learned_maker.gif", "queue.png", "scripted_makers.png", "watch_market.png"]
    assert sorted(path.name for path in drawn.iterdir()) == pictures
    with image.open(drawn / "learned_maker.gif") as film:
        shown = []
        for frame in range(film.n_frames):
            film.seek(frame)
            shown.append(film.info["duration"])
        assert film.size == (960, 600) and film.info["loop"] == 0 and film.n_frames > 12
    # One that is like the picture before it lengthens that.
    assert sum(shown) == 600 + 12 * 60 + 11 * 110 + 2500


def test_frames_of_a_vector_environment():
    envs = make_vec(3, render_mode="rgb_array", render_market=2, stagger=False)
    single = make(render_mode="rgb_array")
    envs.reset(seed=4)
    single.reset(seed=6)
    frames = envs.render()
    assert isinstance(frames, tuple) and len(frames) == 3 and all(frame is frames[0] for frame in frames)
    below = slice(60, None)  # the head says which market it is
    np.testing.assert_array_equal(frames[0][below], single.render()[below])
    with pytest.raises(ValueError, match="record_first_only=True"):
        np.array(frames)
    assert np.array(Frames((frames[0],))).shape == (1, 600, 960, 3)
    texts = make_vec(2, render_mode="ansi", render_market=1)
    texts.reset(seed=0)
    assert "market 1 | seed 1" in texts.render()[0]


def test_pettingzoo_render_test():
    from pettingzoo.test import render_test

    def env(render_mode):
        return parallel_to_aec(
            ks.parallel_env({"maker": 1, "noise": 1}, horizon=20, bank_size=4, render_mode=render_mode, engine="cpu")
        )

    render_test(env)


def test_the_learner_can_be_chosen():
    arguments = {"horizon": 20, "bank_size": 4, "engine": "cpu", "render_mode": "ansi"}
    texts = []
    for learner in (None, "maker_1", "noise_0"):
        env = ks.parallel_env({"maker": 2, "noise": 1}, render_agent=learner, **arguments)
        env.reset(seed=0)
        texts.append(env.render())
    assert [text.split(" | ")[0] for text in texts] == ["market making", "market making", "working off an order"]
    assert [re.search(r"learner (\d)", text).group(1) for text in texts] == ["0", "1", "2"]
    with pytest.raises(ValueError, match="render_agent: expected one of None, maker_0, maker_1, .*, got 'maker_2'"):
        ks.parallel_env({"maker": 2, "noise": 1}, render_agent="maker_2", **arguments)


# The window, and errors -----------------------------------------------------------------------------------------------


def test_a_closed_window_stays_closed_and_the_episode_goes_on():
    env = make(render_mode="human")
    env.reset(seed=1)  # nothing is traded in the first step: what fills the ladder shows needs the moment before
    assert pygame.display.get_surface().get_size() == (960, 600)
    env.step(WIDE)
    shown = pygame.surfarray.array3d(pygame.display.get_surface()).transpose(1, 0, 2)
    drawn = Picture()
    drawn.draw(record(env))
    below = slice(340, 360)  # the path of prices needs the episode's beginning; the ladder's middle does not
    np.testing.assert_array_equal(shown[below, :370], drawn.array()[below, :370])
    pygame.event.post(pygame.event.Event(pygame.QUIT))
    env.step(WIDE)
    assert not pygame.display.get_init()
    env.step(WIDE)
    assert env.render() is None and not pygame.display.get_init()
    env.close()


def test_a_closed_environment_opens_no_window():
    env = make(render_mode="human")
    env.reset(seed=0)
    assert pygame.display.get_init()
    for _ in range(2):
        env.close()
        assert not pygame.display.get_init()
    with pytest.raises(gym.error.ClosedEnvironmentError, match="render: the environment was closed"):
        env.render()
    env._viewer.update()  # what a step does
    assert not pygame.display.get_init()
    never_shown = make(render_mode="human")
    never_shown.close()
    never_shown._viewer.update()
    assert not pygame.display.get_init()


@pytest.mark.parametrize("mode", ["rgb_array", "ansi"])
def test_a_closed_environment_draws_nothing(mode):
    envs = make_vec(2, render_mode=mode)
    envs.reset(seed=0)
    assert len(envs.render()) == 2
    envs.close()
    with pytest.raises(gym.error.ClosedEnvironmentError, match="make a new one"):
        envs.render()


def test_the_end_of_one_window_is_not_that_of_another():
    first, second = make(render_mode="human"), make(render_mode="human")
    for env in (first, second):
        env.reset(seed=0)
    first.close()
    second.step(WIDE)
    assert pygame.display.get_init()
    second.close()
    assert not pygame.display.get_init()


@pytest.mark.parametrize("driver", ["dummy", "offscreen"])
def test_a_driver_that_shows_nothing_is_taken_only_if_it_was_asked_for(driver, monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", driver)
    env = make(render_mode="human")
    env.reset(seed=0)
    env.close()
    monkeypatch.delenv("SDL_VIDEODRIVER")
    monkeypatch.setattr(pygame.display, "get_driver", lambda: driver)
    fell_back = f"SDL fell back to its driver '{driver}', which shows nothing"
    with pytest.raises(RuntimeError, match=f"no window can be opened here .*{fell_back}.*; play chess, or"):
        open_display((8, 8), "a game", "play chess")
    assert not pygame.display.get_init()
    env = make(render_mode="human")
    with pytest.warns(UserWarning, match=f"render_mode='human': .*{fell_back}; it is drawn where nobody sees it"):
        env.reset(seed=0)
    assert pygame.display.get_surface().get_size() == (960, 600) and "SDL_VIDEODRIVER" not in os.environ
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # said once
        env.step(WIDE)
        assert env.render() is None
    env.close()


def test_a_display_that_does_not_start(monkeypatch):
    """Some builds of SDL have no driver that shows nothing of their own accord."""
    start, asked = pygame.display.init, []

    def init():
        asked.append(os.environ.get("SDL_VIDEODRIVER"))
        if asked[-1] != "dummy":
            raise pygame.error("No available video device")
        start()

    pygame.display.quit()
    monkeypatch.delenv("SDL_VIDEODRIVER")
    monkeypatch.setattr(pygame.display, "init", init)
    env = make(render_mode="human")
    with pytest.warns(UserWarning, match="render_mode='human': No available video device; it is drawn where nobody"):
        env.reset(seed=0)
    assert asked == [None, "dummy"] and pygame.display.get_surface() is not None
    env.close()


def test_no_display(monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "nonsense")
    env = make(render_mode="human")
    with pytest.raises(RuntimeError, match="no window can be opened here .*rgb_array.*SDL_VIDEODRIVER=dummy"):
        env.reset(seed=0)


@pytest.mark.parametrize("build", [make, make_vec, lambda **kwargs: ks.parallel_env(**kwargs)])
def test_unknown_modes_and_missing_libraries(build, monkeypatch):
    with pytest.raises(
        ValueError, match="render_mode: expected one of None, 'human', 'rgb_array', 'ansi', got 'video'"
    ):
        build(render_mode="video")
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: name != "pygame" and find(name, *rest) or None)
    for mode in ("human", "rgb_array"):
        with pytest.raises(ModuleNotFoundError, match=rf"render_mode='{mode}' needs pygame: pip install"):
            build(render_mode=mode)

    def keep_out(name, *rest):
        if name == "pygame":
            raise ImportError(name)
        return find(name, *rest)

    monkeypatch.setattr(importlib.util, "find_spec", keep_out)
    with pytest.raises(ModuleNotFoundError, match="render_mode='rgb_array' needs pygame: pip install"):
        build(render_mode="rgb_array")
    env = build(render_mode="ansi", horizon=5, bank_size=4)  # text needs nothing
    env.reset(seed=0)
    assert env.render()


def test_rendering_out_of_place():
    env = make()
    env.reset(seed=0)
    with pytest.warns(UserWarning, match="render: MarketMakingEnv has no render mode"):
        assert env.render() is None
    with pytest.raises(gym.error.ResetNeeded, match="render: the environment was never reset"):
        make(render_mode="rgb_array").render()
    with pytest.raises(ValueError, match="render_slot: expected 0 to 0, got 1"):
        MarketRecorder(env.core, slot=1)


@pytest.mark.gpu
def test_a_step_can_be_captured_while_a_market_is_watched():
    envs = gym.make_vec(ID, 64, engine="cuda", output="torch", copy=False, render_mode="rgb_array")
    envs.reset(seed=0)
    actions = torch.zeros((64, 4), device="cuda")
    envs.step(actions)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        envs.step(actions)
    first = envs.render()[0]
    graph.replay()
    assert (envs.render()[0] != first).any()
