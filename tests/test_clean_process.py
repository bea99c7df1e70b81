"""Gymnasium's checker as users run it: in a process of its own, on a machine without a display, with pygame or without.

`conftest.py` lets windows open on no screen, so that no test in this process would see what users see.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from thorough import slow

ROOT = Path(__file__).resolve().parent.parent
WITHOUT_DISPLAY = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER", "SDL_VIDEO_DRIVER", "XDG_RUNTIME_DIR")

PROGRAM = """
import json, sys, warnings

if sys.argv[1] == "without pygame":
    sys.modules["pygame"] = None  # as where it is not installed

import gymnasium as gym
from gymnasium.utils.env_checker import check_env

import kineticsim_env as ks

found = {"warnings": [], "modes": {}, "refused": {}}
for name in sys.argv[2:]:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        check_env(gym.make(name, horizon=20, bank_size=4).unwrapped)
    found["warnings"].append(sorted({str(one.message) for one in said}))
    found["modes"][name] = gym.make(name, bank_size=4).metadata["render_modes"]
    found["modes"][f"many {name}"] = gym.make_vec(name, num_envs=2, bank_size=4).metadata["render_modes"]
found["modes"]["parallel"] = ks.parallel_env(bank_size=4).metadata["render_modes"]
for mode in ("human", "rgb_array"):
    try:
        env = gym.make(sys.argv[2], bank_size=4, render_mode=mode)
        env.reset(seed=0)
        env.step(env.action_space.sample())
        found["refused"][mode] = str(type(env.render()).__name__)
        env.close()
    except ModuleNotFoundError as error:
        found["refused"][mode] = str(error)
print(json.dumps(found))
"""


def run(*words):
    """Run the program without a display; return what it found."""
    environment = {name: value for name, value in os.environ.items() if name not in WITHOUT_DISPLAY}
    environment["PYTHONPATH"] = str(ROOT)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "XDG_RUNTIME_DIR" not in done.stderr  # what libwayland writes where there is no session
    return json.loads(done.stdout.splitlines()[-1])


IDS = [f"KineticSim/{task}-v0" for task in ("MarketMaking", "Execution", "Trading")]


@slow
def test_the_checker_passes_without_a_display():
    """A window is opened where nobody sees it, and that is the only warning."""
    pytest.importorskip("pygame")
    if sys.platform != "linux" or os.path.exists("/dev/dri"):
        pytest.skip("this machine may have a display all the same")
    found = run("with pygame", *IDS)
    for said in found["warnings"]:
        (warning,) = said
        assert (
            "render_mode='human': there is no display" in warning and "use render_mode='rgb_array'" in warning.lower()
        )
    assert all(modes == ["human", "rgb_array", "ansi"] for modes in found["modes"].values())
    assert found["refused"] == {"human": "NoneType", "rgb_array": "ndarray"}


def test_the_checker_passes_without_pygame():
    """Only what can be drawn here is declared; who asks for more is told what to install."""
    found = run("without pygame", *IDS)
    assert found["warnings"] == [[], [], []]
    assert all(modes == ["ansi"] for modes in found["modes"].values()) and len(found["modes"]) == 7
    for mode in ("human", "rgb_array"):
        assert f"render_mode='{mode}' needs pygame: pip install" in found["refused"][mode]
