"""The game: keys become quotes, the window and the terminal take scripted keys, and the result is counted rightly."""

import curses
import fcntl
import itertools
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from unittest.mock import ANY

import gymnasium as gym
import numpy as np
import pytest
from messages import mentions
from thorough import slow

from kineticsim_env.cli import main
from kineticsim_env.evaluation import HELD_OUT_WARM_SEED, evaluate, evaluation_env, liquidate
from kineticsim_env.play import terminal
from kineticsim_env.play.controls import SPEEDS, ExecutorControls, MakerControls, TraderControls
from kineticsim_env.play.game import GAMES, STOIKOV, Game
from kineticsim_env.play.terminal import screen_lines
from kineticsim_env.policies import AvellanedaStoikov, FixedSpread
from kineticsim_env.render.text import text_picture
from kineticsim_env.tasks import ExecutionTask, MarketMakingTask, TradingTask
from kineticsim_env.zoo import scripted

ROOT = Path(__file__).parent.parent


def press(controls, keys):
    for key in keys.split():
        controls.press(key)


# Keys -----------------------------------------------------------------------------------------------------------------


def at(mid2, left=0):
    """Return a moment of a market with this doubled mid."""
    return Game(seed=0, horizon=5).moment._replace(mid2=mid2, left=left)


def test_common_keys():
    controls = MakerControls(MarketMakingTask())
    press(controls, "- - unknown")
    assert controls.size == 6
    press(controls, "- " * 20)
    assert controls.size == 1
    press(controls, "+ " * 20)
    assert controls.size == 8
    assert controls.paused and not controls.quit
    press(controls, "space . . ,")
    assert not controls.paused and controls.speed == 4.0
    press(controls, ", " * 20)
    assert controls.speed == SPEEDS[0]
    press(controls, ". " * 20)
    assert controls.speed == SPEEDS[-1]
    press(controls, "q")
    assert controls.quit


def test_a_maker_moves_quotes():
    controls = MakerControls(MarketMakingTask())
    assert (controls.bid_offset, controls.ask_offset, controls.size) == (4, 4, 8)
    press(controls, "up up right")
    assert (controls.bid_offset, controls.ask_offset) == (5, 7)
    press(controls, "c down left left left -")
    assert (controls.bid_offset, controls.ask_offset) == (8, 2)
    assert controls.describe(at(101)) == "next: bid 7 at 42 (mid -8.5), ask 7 at 53 (mid +2.5)"
    press(controls, " ".join(["left"] * 20))
    assert (controls.bid_offset, controls.ask_offset) == (10, 0)
    assert controls.quotes(at(101)) == (40, 7, 51, 7)
    press(controls, "x")
    assert controls.quotes(at(100))[1::2] == (0, 0) and controls.describe(at(100)) == "next: no order"
    press(controls, "x")
    controls.point(95, True, at(201))
    controls.point(103, False, at(201))
    assert controls.quotes(at(201)) == (95, 7, 103, 7)


def test_an_executor_and_a_trader_move_an_order():
    controls = ExecutorControls(ExecutionTask())
    press(controls, "up up up down")
    assert controls.quotes(at(101, left=5)) == (52, 5, 0, 0) and controls.quotes(at(101, left=-90)) == (0, 0, 49, 8)
    press(controls, "down " * 30)
    assert controls.quotes(at(100, left=90)) == (40, 8, 0, 0)
    controls.point(52, True, at(100, left=-90))
    assert controls.quotes(at(100, left=-90)) == (0, 0, 52, 8)
    press(controls, "c")
    assert controls.quotes(at(100, left=-90)) == (0, 0, 50, 8)
    controls = TraderControls(TradingTask())
    assert controls.describe(at(100)) == "next: no order"
    press(controls, "b up")
    assert controls.quotes(at(100)) == (51, 8, 0, 0)
    press(controls, "s - up")
    assert controls.quotes(at(100)) == (0, 0, 48, 7)
    controls.point(45, True, at(100))
    assert controls.quotes(at(100)) == (45, 7, 0, 0)
    press(controls, "x")
    assert controls.quotes(at(100))[1::2] == (0, 0)


SCRIPTS = {
    "market_making": ("n", "up n", "right n", "down down - n", "left left n", "x n", "x up up n"),
    "execution": ("down down down n", "up n", "- n", "x n", "x down n", "down down n"),
    "trading": ("n", "b n", "down n", "s n", "down down - n", "x n", "x down down n"),
}


@pytest.mark.parametrize("task", GAMES)
def test_what_is_ordered_is_what_was_described(task):
    game, checked = Game(task, seed=1, horizon=40), 0
    for keys in SCRIPTS[task] * 4:
        press(game, keys[:-1])
        told, before = game.controls.quotes(game.moment), game.moment
        press(game, "n")
        assert game.moment.elapsed == before.elapsed + 1
        moment = game.moment
        limit = 1 << 30 if task == "execution" else 40
        crossing = told[1] and told[3] and told[0] >= told[2]  # such a pair loses a side
        for bid, filled in ((True, moment.bought), (False, moment.sold)):
            price, qty = told[:2] if bid else told[2:]
            standing_price, standing = moment.quotes[:2] if bid else moment.quotes[2:]
            room = limit - before.inventory if bid else limit + before.inventory
            if not crossing:
                assert standing + filled == min(qty, room)
                assert not standing or standing_price == price
                checked += bool(qty)
    assert checked > 15


def test_time_passes_at_the_speed_chosen():
    game = Game(seed=1, horizon=1000, speed=4.0)
    assert game.advance(10.0) == 0 and game.status() == "paused"
    game.press("space")
    assert sum(game.advance(0.05) for _ in range(101)) == 20
    game.press("space")
    assert game.advance(10.0) == 0
    game.press("space")
    assert game.advance(100.0) == 4  # no more than a second's


@pytest.mark.parametrize("speed", [0.1, 0.25, 0.5])
def test_a_slow_game_goes_on_too(speed):
    game = Game(seed=1, horizon=1000, speed=speed)
    game.press("space")
    assert sum(game.advance(0.05) for _ in range(20 * 40 + 1)) == 40 * speed
    assert game.advance(100.0) <= 1  # no more than what is due at once


# The end --------------------------------------------------------------------------------------------------------------


def liquidated(result):
    """Return the numbers of the table."""
    return {
        name.strip(): float(money.replace(",", ""))
        for name, money in re.findall(r"^(.{22}) +(-?[\d,.]+)$", result, re.M)
    }


def test_the_result_is_that_of_an_evaluation():
    game = Game(seed=11, horizon=60)
    press(game, "n " * 61)
    assert game.over and game.moment.elapsed == 60 and game.advance(9.0) == 0
    before = game.recorder.record()
    found = liquidated(game.result())
    for name, policy in (("you", FixedSpread), ("Avellaneda-Stoikov", None)):
        envs = evaluation_env(1, horizon=60)
        task = envs.core.task
        played = FixedSpread(task) if policy else AvellanedaStoikov(task, **STOIKOV[game.preset])
        assert found[name] == pytest.approx(evaluate(played, envs, 11).pnl[0], abs=0.05)
    assert found["not trading"] == 0.0
    after = game.recorder.record()
    assert before._replace(bid=0, ask=0) == after._replace(bid=0, ask=0)


@pytest.mark.parametrize("preset", STOIKOV)
def test_the_rival_has_the_parameters_that_were_searched(preset):
    assert scripted("MarketMaking", preset)["Avellaneda-Stoikov"]["parameters"].items() >= STOIKOV[preset].items()


def test_the_fundamental_is_shown_at_the_end():
    game = Game(seed=11, horizon=2)
    for _ in range(2):
        assert "fundamental" not in text_picture(game.recorder)
        press(game, "n")
    assert f"fundamental {game.moment.fundamental}" in text_picture(game.recorder)


def test_who_leaves_early_is_compared_over_as_long():
    game = Game(seed=11, horizon=60)
    press(game, "x " + "n " * 20)
    result = game.result()
    envs = evaluation_env(1, horizon=20)
    rival = evaluate(AvellanedaStoikov(envs.core.task, **STOIKOV[game.preset]), envs, 11).pnl[0]
    assert "20 of 60 decisions" in result
    assert liquidated(result) == {"you": 0.0, "Avellaneda-Stoikov": pytest.approx(rival, abs=0.05), "not trading": 0.0}


@pytest.mark.parametrize("keys", ["", "up up up up " + "n " * 200, "n n n n x"])
def test_a_block_is_paid_for_in_full(keys):
    game = Game("execution", seed=5, horizon=30)
    press(game, keys)
    found = liquidated(game.result())
    env = gym.make("KineticSim/Execution-v0", horizon=30, reward="shortfall", warm_seed=HELD_OUT_WARM_SEED)
    env.reset(seed=5)
    total, done = 0.0, False
    actions = iter([[0.4, 1.0]] * 200 if "up" in keys else [[0.0, 1.0]] * keys.count("n"))
    while not done:
        _, reward, done, _, _ = env.step(np.array(next(actions, [-1.0, -1.0]), np.float32))
        total += reward
    assert found["you"] == pytest.approx(total, abs=0.006)
    assert set(found) == {"you", "evenly over time", "all at the deadline"}
    if not keys:
        assert found["you"] == found["evenly over time"] == found["all at the deadline"]
    else:
        assert len(set(found.values())) == 3


def test_a_trader_is_liquidated():
    game = Game("trading", seed=5, horizon=30)
    press(game, "b up up up up up up n n n x")
    clone = game._envs.simulator.branch()
    assert int(clone.inventory) > 0
    money = float(liquidate(clone)) - float(clone.fees) / 1000
    assert liquidated(game.result()) == {
        "you": pytest.approx(money, abs=0.006),
        "momentum": ANY,
        "mean reversion": ANY,
        "not trading": 0.0,
    }


# The window -----------------------------------------------------------------------------------------------------------


def test_the_window_takes_keys_and_clicks(capsys):
    pygame = pytest.importorskip("pygame")
    from kineticsim_env.play.window import play_window

    game = Game(seed=5, horizon=12)

    def key(code, text=""):
        return pygame.event.Event(pygame.KEYDOWN, key=code, unicode=text)

    script = [
        [key(pygame.K_UP), key(pygame.K_RIGHT), key(pygame.K_MINUS, "-")],
        [key(pygame.K_n, "n"), key(pygame.K_RETURN, "\r")],
        "look",
        [pygame.event.Event(pygame.MOUSEBUTTONDOWN, button=1, pos=(60, 94 + 18 * 16 + 9))],
        [pygame.event.Event(pygame.MOUSEBUTTONDOWN, button=1, pos=(300, 94 + 18 * 10 + 9))],
        [pygame.event.Event(pygame.MOUSEBUTTONDOWN, button=1, pos=(700, 300)), key(pygame.K_F5)],
        "clicked",
        [pygame.event.Event(pygame.MOUSEWHEEL, y=1, x=0)],
        "turned",
        [key(pygame.K_n, "n")] * 20,
        [],
        "over",
        [pygame.event.Event(pygame.QUIT)],
    ]
    looks = {}

    def poll():
        events = script.pop(0)
        if isinstance(events, list):
            return events
        pixels = pygame.surfarray.array3d(pygame.display.get_surface()).copy()
        looks[events] = (game.moment, game.controls.bid_offset, game.controls.ask_offset, pixels)
        return []

    play_window(game, poll)
    assert not script and not pygame.display.get_init()
    moment, bid, ask, _ = looks["look"]
    assert moment.elapsed == 2 and (bid, ask) == (4, 6) and game.controls.size == 7
    assert 600 < looks["look"][3].shape[1] < 700  # the picture, and a strip for the controls
    moment, bid, ask, _ = looks["clicked"]  # rows 16 and 10; the mid is in row 13
    assert (bid, ask) == (3, 3 - moment.mid2 % 2)
    assert looks["turned"][1:3] == (bid + 1, ask + 1)
    assert game.over and looks["over"][0].elapsed == 12
    assert (looks["over"][3] != looks["turned"][3]).any()


def test_the_window_takes_events_of_pygame_itself():
    pygame = pytest.importorskip("pygame")
    from kineticsim_env.play.window import play_window

    pygame.display.init()
    for code, text in ((pygame.K_n, "n"), (pygame.K_n, "n"), (pygame.K_ESCAPE, "\x1b")):
        pygame.event.post(pygame.event.Event(pygame.KEYDOWN, key=code, unicode=text))
    game = Game(seed=5, horizon=12)
    play_window(game)
    assert game.moment.elapsed == 2 and game.controls.quit


# The terminal ---------------------------------------------------------------------------------------------------------


def in_terminal(keys, arguments, size=(24, 80), term="xterm-256color"):
    """Run the game in a pseudo-terminal, with a key whenever the screen has come to rest; return all output.

    A pair of numbers in place of a key is a new size of the terminal.
    """
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    command = [sys.executable, "-m", "kineticsim_env", "play", "--terminal", *arguments]
    # A runner of tests may say how wide it is; a terminal that is asked itself knows better.
    rest = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    environment = {**rest, "TERM": term, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=subprocess.PIPE, env=environment, cwd=ROOT, close_fds=True
    )
    os.close(slave)
    output, keys, deadline = b"", list(keys), time.monotonic() + 120
    answered, patience = False, deadline  # until when an answer to the last key is waited for: some change nothing
    try:
        while time.monotonic() < deadline:
            if select.select([master], [], [], 0.2)[0]:
                try:
                    part = os.read(master, 65536)
                except OSError:  # the other end is closed
                    break
                if not part:
                    break
                output, answered = output + part, True
            elif keys and (answered or time.monotonic() > patience):
                key, answered, patience = keys.pop(0), False, time.monotonic() + 2
                if isinstance(key, bytes):
                    os.write(master, key)
                else:
                    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", *key, 0, 0))
                    process.send_signal(signal.SIGWINCH)
        else:
            pytest.fail(f"the game did not end; left are {keys}: {output[-2000:]!r}")
        return process.wait(30), output.decode(), process.stderr.read().decode()
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
        os.close(master)


@pytest.mark.parametrize("task", GAMES)
def test_every_task_has_a_screen_and_a_window(task):
    pygame = pytest.importorskip("pygame")
    from kineticsim_env.play.window import play_window

    game = Game(task, seed=2, horizon=8)
    script = [[pygame.event.Event(pygame.KEYDOWN, key=pygame.K_n, unicode="n")] for _ in range(8)]
    script.append([pygame.event.Event(pygame.QUIT)])
    play_window(game, lambda: script.pop(0))
    assert game.moment.elapsed == 8 or game.over
    lines = screen_lines(game, 24)
    assert len(lines) == 24 and max(map(len, lines)) <= 80
    assert all(key in "\n".join(lines) for key in game.controls.keys)


@slow
@pytest.mark.parametrize(("term", "up"), [("xterm-256color", b"\x1bOA"), ("vt100", b"\x1bOA"), ("linux", b"\x1b[A")])
def test_the_terminal_takes_keys(term, up):
    keys = [up, up, b"-", b"nnnnnnnn", b"\r", b"q"]
    code, output, errors = in_terminal(keys, ["--seed", "4", "--horizon", "50"], term=term)
    assert code == 0, errors
    for words in ("own bid", "market making", "inventory", "bids", "next:", "paused", "q quit"):
        assert words in output
    game = Game(seed=4, horizon=50)  # one in which the player is filled
    press(game, "up up - " + "n " * 9)
    assert game.result() in output.replace("\r", "") and liquidated(game.result())["you"]


@slow
def test_the_terminal_plays_to_the_end_even_if_it_is_small():
    code, output, errors = in_terminal([b" "], ["--seed", "3", "--horizon", "20", "--speed", "32"], size=(12, 40))
    assert code == 0, errors
    game = Game(seed=3, horizon=20)
    press(game, "n " * 20)
    assert game.result() in output.replace("\r", "")


class Screen:
    """A terminal of curses whose size changes with every key, and which takes what fits."""

    def __init__(self, *script):
        self.script, self.rows, self.seen = list(script), {}, []

    def getmaxyx(self):
        return self.script[0][0]

    def getkey(self):
        self.seen.append("\n".join(self.rows[row] for row in sorted(self.rows)))
        return self.script.pop(0)[1] if len(self.script) > 1 else self.script[0][1]

    def erase(self):
        self.rows = {}

    def addnstr(self, row, column, text, count, attribute):
        height, width = self.getmaxyx()
        if row >= height or (row == height - 1 and min(len(text), count) >= width):
            raise curses.error("addnwstr() returned ERR")
        self.rows[row] = text[:count]

    def refresh(self):
        pass

    def timeout(self, milliseconds):
        pass


class PlainCurses:
    """As much of curses as a screen without colours needs."""

    error, A_REVERSE, A_BOLD = curses.error, 1, 2
    curs_set = has_colors = staticmethod(lambda *_: False)


@pytest.mark.parametrize("size", [(5, 20), (20, 5), (1, 1), (11, 80), (24, 39)])
def test_a_small_terminal_is_told_what_is_needed(size):
    game = Game(seed=3, horizon=20)
    with pytest.raises(ValueError, match=rf"expected 40 x 12 or more.*got {size[1]} columns x {size[0]} lines"):
        terminal._loop(Screen((size, "q")), game, PlainCurses)
    assert game.moment.elapsed == 0


def test_a_terminal_may_become_smaller_and_larger_again():
    game = Game(seed=3, horizon=20, speed=32)
    sizes = [(24, 80), (5, 20), (1, 1), (2, 500), (3, 3), (12, 40), (24, 80)]
    screen = Screen(*((size, key) for size in sizes for key in ("KEY_RESIZE", "n")), ((24, 80), "q"))
    terminal._loop(screen, game, PlainCurses)
    assert game.moment.elapsed == 3  # a decision in each of the sizes that show the market
    assert "make the terminal" in screen.seen[3] and "40 x 12" in screen.seen[7]
    assert "own bid" in screen.seen[1] and "own bid" in screen.seen[-1]


def test_a_running_game_waits_while_its_terminal_is_too_small(monkeypatch):
    monkeypatch.setattr(terminal.time, "monotonic", itertools.count().__next__)  # a second a look
    game = Game(seed=3, horizon=20, speed=1.0)
    terminal._loop(
        Screen(((24, 80), " "), *[((24, 80), "")] * 3, *[((5, 20), "x")] * 9, ((5, 20), "q")), game, PlainCurses
    )
    assert game.controls.quit and not game.controls.paused and not game.controls.pulled and game.moment.elapsed == 3


@slow
def test_a_real_terminal_survives_being_resized():
    keys = [b"n", (5, 20), b"n", (1, 1), b"n", (30, 100), b"n", b"q"]
    code, output, errors = in_terminal(keys, ["--seed", "3", "--horizon", "50"])
    assert code == 0, errors
    assert "make the" in output and "2 of 50 decisions" in output


@slow
def test_a_window_needs_a_display():
    pytest.importorskip("pygame")
    if sys.platform != "linux" or os.path.exists("/dev/dri"):
        pytest.skip("this machine may have a display all the same")
    hidden = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER", "SDL_VIDEO_DRIVER", "XDG_RUNTIME_DIR")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    words = [sys.executable, "-m", "kineticsim_env", "play", "--seed", "1", "--horizon", "3"]
    done = subprocess.run(words, capture_output=True, text=True, env=environment, cwd=ROOT, timeout=120)
    errors = [line for line in done.stderr.splitlines() if "error" in line]
    assert done.returncode == 2 and not done.stdout and len(errors) == 1, done.stderr
    assert "no window can be opened here" in errors[0] and "play --terminal plays in a terminal" in errors[0]


def test_what_is_refused(capsys):
    for arguments, words in (
        (["--terminal"], "expected a terminal, got input or output that is no terminal"),
        (["--task", "gambling"], "--task: expected one of 'market_making', 'execution', 'trading', got 'gambling'"),
        (["--speed", "0"], "--speed: expected a number from 0.01 to 1000, got 0.0"),
        (["--horizon", "0"], "--horizon: expected .*, got 0"),
        (["--preset", "none"], "--preset: expected .*, got 'none'"),
        (["--seed", "-1"], "--seed: expected a whole number from 0.*got -1"),
        (["--speed", "1e300"], "--speed: expected .*, got 1e+300"),
    ):
        assert main(["play", *arguments]) == 2
        assert mentions(capsys.readouterr().err, words)


def test_a_missing_library(monkeypatch, capsys):
    for name in [
        name for name in sys.modules if name.startswith(("kineticsim_env.play.window", "kineticsim_env.render."))
    ]:
        if name.rpartition(".")[2] in ("window", "canvas", "picture"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pygame", None)  # as if it were not installed
    assert main(["play", "--seed", "1"]) == 2
    assert "pip install 'kineticsim-env[render]'" in capsys.readouterr().err
