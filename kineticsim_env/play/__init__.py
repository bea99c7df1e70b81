"""`python -m kineticsim_env play`: a person trades in a market, in a window or in a terminal.

`controls.py` is what the keys do and `game.py` the market, without any screen; `window.py` and `terminal.py` show them.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from kineticsim_env.config import PRESET_NAMES
from kineticsim_env.envs.settings import EnvSettings
from kineticsim_env.play.game import GAMES, Game
from kineticsim_env.runtime.options import number, whole


def add_parser(commands: Any) -> None:
    """Add the command to those of the command line."""
    parser = commands.add_parser(
        "play",
        help="trade in a market yourself, in a window or a terminal",
        description="Trade in a market yourself. At the end your result is compared with scripted policies' in "
        "the same market.",
    )
    parser.add_argument("--terminal", action="store_true", help="play in this terminal; needs no further library")
    parser.add_argument("--task", default="market_making", help=f"{', '.join(GAMES)} (default: market_making)")
    default = EnvSettings.preset
    parser.add_argument(
        "--preset", default=default, help=f"the market: {' or '.join(PRESET_NAMES)} (default: {default})"
    )
    parser.add_argument(
        "--seed", type=whole(0, 2**63 - 1), help="of the market; the same seed is the same market (default: a new one)"
    )
    parser.add_argument("--horizon", type=whole(1), help="decisions to make (default: the task's)")
    parser.add_argument(
        "--speed", type=number(0.01, 1000.0), default=2.0, help="decisions per second at the start (default: 2)"
    )
    parser.set_defaults(command=play)


def play(options: argparse.Namespace) -> int:
    """Play a game and print how it ended."""
    if options.terminal:
        from kineticsim_env.play.terminal import play_terminal as show
    else:
        from kineticsim_env.play.window import play_window as show
    seed = int(np.random.default_rng().integers(2**31)) if options.seed is None else options.seed
    game = Game(options.task, preset=options.preset, seed=seed, horizon=options.horizon, speed=options.speed)
    show(game)
    print(game.result())
    return 0
