"""The game in a terminal, with curses: it is in Python's library on Linux and macOS, and 24 lines of text need no more.

(rich has no keyboard input; textual would be a further dependency, with an event loop of its own.)
"""

from __future__ import annotations

import contextlib
import os
import sys
import textwrap
import time
from typing import Any

from kineticsim_env.play.game import Game
from kineticsim_env.render.text import WIDTH, text_picture
from kineticsim_env.runtime.values import load_optional

_NAMES = {f"KEY_{name.upper()}": name for name in ("up", "down", "left", "right", "enter")}
_NAMES |= {"\n": "enter", "\r": "enter", " ": "space", "\x1b": "q"}
_FOOT, _LEAST = 4, 14  # lines below the ladder; lines that are drawn at least, of which the last are keys
COLUMNS, LINES = 40, 12  # that a terminal needs: up to the prices, and down to what the next decision is


def play_terminal(game: Game) -> None:
    """Play in this terminal, which has to be large enough, until the episode is over or the player quits."""
    curses = load_optional(
        "curses",
        "play --terminal needs curses, which Python has on Linux, macOS and WSL; without it play in a window: "
        "pip install 'kineticsim-env[render]'",
    )
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ValueError("play --terminal: expected a terminal, got input or output that is no terminal")
    os.environ.setdefault("ESCDELAY", "25")  # milliseconds after which Escape is Escape
    try:
        curses.wrapper(_loop, game, curses)
    except curses.error as error:
        raise ValueError(f"play --terminal: this terminal cannot be used ({error}); is TERM right?") from error


def screen_lines(game: Game, height: int) -> list[str]:
    """Return the lines of the screen."""
    keys = [""]
    for key in game.controls.keys:
        if len(keys[-1]) + len(key) > WIDTH - 3:  # a gap of two, and the last column, which cannot be written
            keys.append("")
        keys[-1] += f"{'  ' * bool(keys[-1])}{key}"
    picture = text_picture(game.recorder, max(height - _FOOT, _LEAST - _FOOT)).split("\n")
    return [*picture, "", f"{game.controls.describe(game.moment)} | {game.status()}", *keys]


def _loop(screen: Any, game: Game, curses: Any) -> None:
    with contextlib.suppress(curses.error):  # a terminal that cannot hide its cursor
        curses.curs_set(0)
    screen.timeout(30)
    height, width = screen.getmaxyx()
    if not _fits(height, width):
        raise ValueError(f"play --terminal: expected {COLUMNS} x {LINES} or more, got {width} columns x {height} lines")
    colours = _colours(curses)
    before, shown = time.monotonic(), None
    while not (game.controls.quit or game.over):
        now = time.monotonic()
        height, width = screen.getmaxyx()
        fits = _fits(height, width)
        if fits:  # nobody can trade in a market that is not shown: it waits
            game.advance(now - before)
        before = now
        lines = screen_lines(game, height) if fits else _too_small(width)
        if lines != shown:
            _draw(screen, lines, height, width, colours, game, curses)
            shown = lines
        try:
            key = screen.getkey()
        except curses.error:  # nobody pressed one
            continue
        if key == "KEY_RESIZE":
            shown = None
        name = _NAMES.get(key, key)
        if fits or name == "q":
            game.press(name)


def _fits(height: int, width: int) -> bool:
    return height >= LINES and width >= COLUMNS


def _too_small(width: int) -> list[str]:
    """Return the message for a terminal that was made too small, in lines that fit."""
    return textwrap.wrap(f"make the terminal larger: {COLUMNS} x {LINES}; q quits", max(width - 1, 1))


def _colours(curses: Any) -> dict[str, int]:
    """Return attributes by what they are for; bold and reverse where the terminal has no colours."""
    if not curses.has_colors():
        return {"fill": curses.A_REVERSE, "own": curses.A_BOLD, "head": curses.A_BOLD}
    curses.use_default_colors()
    curses.init_pair(1, curses.COLOR_BLACK, curses.COLOR_YELLOW)
    curses.init_pair(2, curses.COLOR_MAGENTA, -1)
    return {"fill": curses.color_pair(1), "own": curses.color_pair(2) | curses.A_BOLD, "head": curses.A_BOLD}


def _draw(
    screen: Any, lines: list[str], height: int, width: int, colours: dict[str, int], game: Game, curses: Any
) -> None:
    moment = game.moment
    own = {str(price) for side in ("bid", "ask") for price in moment.own(side)}
    fills = zip(moment.filled_rows(), (moment.bought, moment.sold), strict=True)
    filled = {str(price) for price, qty in fills if qty}
    screen.erase()
    for row, line in enumerate(lines[:height]):
        attribute = colours["head"] if row < 2 else 0
        if 5 <= row < len(lines) - _FOOT:  # the ladder: a row's price is in columns 29 to 36
            price = line[29:37].strip(" =<")
            attribute = colours["fill"] if price in filled else colours["own"] if price in own else 0
        # The last cell of a screen cannot be written without scrolling it.
        with contextlib.suppress(curses.error):  # it may have become smaller since it was asked for its size
            screen.addnstr(row, 0, line, max(width - 1, 1), attribute)
    screen.refresh()
