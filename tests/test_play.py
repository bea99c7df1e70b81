"""The game: keys become quotes, the window and the terminal take scripted keys, and the result is counted rightly."""

import fcntl
import importlib.util
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from kineticsim_env.cli import main
from kineticsim_env.evaluation import evaluate, evaluation_env
from kineticsim_env.play.controls import SPEEDS, MakerControls
from kineticsim_env.play.game import Game
from kineticsim_env.play.terminal import screen_lines
from kineticsim_env.policies import AvellanedaStoikov, FixedSpread
from kineticsim_env.tasks import MarketMakingTask

ROOT = Path(__file__).parent.parent


def press(controls, keys):
    for key in keys.split():
        controls.press(key)


# Keys -----------------------------------------------------------------------------------------------------------------


def test_keys_move_quotes():
    controls = MakerControls(MarketMakingTask())
    assert (controls.bid_offset, controls.ask_offset, controls.size) == (4, 4, 8)
    press(controls, "up up right")
    assert (controls.bid_offset, controls.ask_offset) == (5, 7)
    press(controls, "c down left left left")
    assert (controls.bid_offset, controls.ask_offset) == (8, 2)
    press(controls, " ".join(["left"] * 20))
    assert (controls.bid_offset, controls.ask_offset) == (10, 0)
    press(controls, "- - unknown")
    assert controls.size == 6 and controls.quotes(101) == (40, 6, 51, 6)
    press(controls, "x")
    assert controls.quotes(100)[1::2] == (0, 0) and "no quotes" in controls.describe(100)
    press(controls, "x " + "- " * 20)
    assert controls.size == 1
    press(controls, "+ " * 20)
    assert controls.size == 8
    controls.point(95, True, 201)
    controls.point(103, False, 201)
    assert controls.quotes(201) == (95, 8, 103, 8)
    assert controls.paused and not controls.quit
    press(controls, "space . . ,")
    assert not controls.paused and controls.speed == 4.0
    press(controls, ", " * 20)
    assert controls.speed == SPEEDS[0]
    press(controls, "q")
    assert controls.quit


def test_what_is_quoted_is_what_was_described():
    game = Game(seed=1, horizon=40)
    for keys in ("n", "up n", "right n", "down down - n", "left left n", "x n", "x up up n") * 4:
        press(game.controls, keys[:-1])
        told, before = game.controls.quotes(game.moment), game.moment
        press(game.controls, "n")
        assert game.advance(0.0) == 1
        moment = game.moment
        for bid, filled in ((True, moment.bought), (False, moment.sold)):
            price, qty = told[:2] if bid else told[2:]
            standing_price, standing = moment.quotes[:2] if bid else moment.quotes[2:]
            room = 40 - before.inventory if bid else 40 + before.inventory
            if told[0] < told[2] or not (told[1] and told[3]):  # a crossing pair loses a side
                assert standing + filled == min(qty, room)
                assert not standing or standing_price == price


def test_time_passes_at_the_speed_chosen():
    game = Game(seed=1, horizon=1000, speed=4.0)
    assert game.advance(10.0) == 0 and game.status() == "paused"
    game.controls.press("space")
    assert sum(game.advance(0.05) for _ in range(101)) == 20
    game.controls.press("space")
    assert game.advance(10.0) == 0
    game.controls.press("space")
    assert game.advance(100.0) == 4  # no more than a second's


# The end --------------------------------------------------------------------------------------------------------------


def liquidated(result):
    """Return the numbers of the table."""
    return {
        name.strip(): float(money.replace(",", ""))
        for name, money in re.findall(r"^(.{22}) +(-?[\d,.]+)$", result, re.M)
    }


def test_the_result_is_that_of_an_evaluation():
    game = Game(seed=11, horizon=60)
    press(game.controls, "n " * 61)
    game.advance(0.0)
    assert game.over and game.moment.elapsed == 60 and game.advance(9.0) == 0
    before = game.recorder.record()
    found = liquidated(game.result())
    for name, policy in (("you", FixedSpread), ("Avellaneda-Stoikov", None)):
        envs = evaluation_env(1, preset="trading", horizon=60)
        task = envs.core.task
        played = FixedSpread(task) if policy else AvellanedaStoikov(task, risk=0.01, kappa=0.18)
        assert found[name] == pytest.approx(evaluate(played, envs, 11).pnl[0], abs=0.05)
    assert found["not trading"] == 0.0
    after = game.recorder.record()
    assert before._replace(bid=0, ask=0) == after._replace(bid=0, ask=0)


def test_who_leaves_early_is_compared_over_as_long():
    game = Game(seed=11, horizon=60)
    press(game.controls, "x " + "n " * 20)
    game.advance(0.0)
    result = game.result()
    envs = evaluation_env(1, preset="trading", horizon=20)
    rival = evaluate(AvellanedaStoikov(envs.core.task, risk=0.01, kappa=0.18), envs, 11).pnl[0]
    assert "20 of 60 decisions" in result
    assert liquidated(result) == {"you": 0.0, "Avellaneda-Stoikov": pytest.approx(rival, abs=0.05), "not trading": 0.0}


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
    """Run the game in a pseudo-terminal, with a key whenever the screen has come to rest; return all output."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    command = [sys.executable, "-m", "kineticsim_env", "play", "--terminal", *arguments]
    environment = {**os.environ, "TERM": term, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=subprocess.PIPE, env=environment, cwd=ROOT, close_fds=True
    )
    os.close(slave)
    output, keys, deadline, begun = b"", list(keys), time.monotonic() + 120, False
    try:
        while time.monotonic() < deadline:
            if select.select([master], [], [], 0.2)[0]:
                try:
                    part = os.read(master, 65536)
                except OSError:  # the other end is closed
                    break
                if not part:
                    break
                output, begun = output + part, True
            elif keys and begun:
                os.write(master, keys.pop(0))
        else:
            pytest.fail(f"the game did not end; left are {keys}: {output[-2000:]!r}")
        return process.wait(30), output.decode(), process.stderr.read().decode()
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
        os.close(master)


@pytest.mark.parametrize(("term", "up"), [("xterm-256color", b"\x1bOA"), ("vt100", b"\x1bOA"), ("linux", b"\x1b[A")])
def test_the_terminal_takes_keys(term, up):
    keys = [up, up, b"-", b"nnnnnnnn", b"\r", b"q"]
    code, output, errors = in_terminal(keys, ["--seed", "3", "--horizon", "50"], term=term)
    assert code == 0, errors
    for words in ("own bid", "market making", "inventory", "bids", "next:", "paused", "q quit"):
        assert words in output
    game = Game(seed=3, horizon=50)
    press(game.controls, "up up - " + "n " * 9)
    game.advance(0.0)
    assert game.result() in output.replace("\r", "") and liquidated(game.result())["you"]


def test_the_screen_fits():
    game = Game(seed=3, horizon=50)
    lines = screen_lines(game, 24)
    assert len(lines) == 24 and max(map(len, lines)) < 80
    assert all(key in "\n".join(lines) for key in game.controls.keys)


def test_the_terminal_plays_to_the_end_even_if_it_is_small():
    code, output, errors = in_terminal([b" "], ["--seed", "3", "--horizon", "20", "--speed", "32"], size=(12, 40))
    assert code == 0, errors
    game = Game(seed=3, horizon=20)
    press(game.controls, "n " * 20)
    game.advance(0.0)
    assert game.result() in output.replace("\r", "")


def test_what_is_refused(capsys):
    for arguments, words in (
        (["--terminal"], "input or output that is no terminal, allowed is a terminal"),
        (["--task", "gambling"], "task: got 'gambling', allowed are 'market_making'"),
        (["--speed", "0"], "--speed: got 0.0, allowed is a number above 0"),
        (["--horizon", "0"], "horizon: got 0"),
        (["--preset", "none"], "preset"),
    ):
        assert main(["play", *arguments]) == 2
        assert words in capsys.readouterr().err


def test_a_missing_library(monkeypatch, capsys):
    for name in [
        name for name in sys.modules if name.startswith(("kineticsim_env.play.window", "kineticsim_env.render."))
    ]:
        if name.rpartition(".")[2] in ("window", "canvas", "picture"):
            monkeypatch.delitem(sys.modules, name)
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: name != "pygame" and find(name, *rest) or None)
    assert main(["play", "--seed", "1"]) == 2
    assert "pip install 'kineticsim-env[render]'" in capsys.readouterr().err
