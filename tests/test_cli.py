"""The command line: what it prints, saves and draws, and one line for what it refuses."""

import json
import subprocess
import sys

import numpy as np
import pytest
from messages import mentions

from kineticsim_env import plots
from kineticsim_env.cli import main
from kineticsim_env.config import MarketConfig
from kineticsim_env.simulator import Simulator

SMALL = ["simulate", "--engine", "numpy", "--markets", "4", "--auctions", "20"]


def test_doctor_reports_engines(capsys):
    assert main(["doctor"]) in (0, 1)
    assert "numpy     ok" in capsys.readouterr().out


def test_simulate_prints_its_statistics(capsys):
    assert main([*SMALL, "--seed", "5"]) == 0
    out = capsys.readouterr().out
    simulator = Simulator(MarketConfig(), 4, engine="numpy", seed=5)
    simulator.run(20)
    assert f"{simulator.volume.double().mean().item():,.4f}" in out.splitlines()[3]
    for words in ("last price", "spread of the book", "two-sided books", "volatility", "excess kurtosis"):
        assert words in out
    assert "autocorrelation of |returns|" in out and "agent-events/s" in out and "engine numpy, device cpu" in out


def test_series_are_those_of_one_run(tmp_path, capsys):
    path = tmp_path / "run.npz"
    changes = ["--set", "num_agents=31", "--set", "cancel_prob=[0.1, 0.2, 0.3, 0.4]"]
    assert main([*SMALL, "--preset", "trading", "--warmup", "7", "--save", str(path), *changes]) == 0
    saved = np.load(path)
    config = MarketConfig.preset("trading", num_agents=31, cancel_prob=[0.1, 0.2, 0.3, 0.4])
    assert MarketConfig(**json.loads(str(saved["config"]))) == config
    simulator = Simulator(config, engine="numpy")
    simulator.run(7)
    series = simulator.run(20, ("last_price", "volume", "mid2", "fundamental"))
    for name, values in series.items():
        np.testing.assert_array_equal(saved[name], values.numpy())
    np.testing.assert_array_equal(saved["bid"], simulator.bid.numpy())
    assert str(path) in capsys.readouterr().out


def test_markets_follow_per_market_fields(capsys):
    assert main(["simulate", "--engine", "numpy", "--auctions", "1", "--set", "noise_spread=[2,3,4]"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("3 markets, 1 auction each") and "undefined" in out


@pytest.mark.parametrize(
    ("changes", "unit", "events"),
    [((), "interval", 4 * 20 * 20), (("mechanism=call", "interval=8"), "auction", 4 * 20 * 8)],
)
def test_on_the_clock_a_figure_says_per_what(changes, unit, events, capsys):
    """Under continuous trading no auction is held; and an interval's events are not the agents."""
    options = [option for change in changes for option in ("--set", change)]
    assert main([*SMALL, "--preset", "continuous", *options]) == 0
    out = capsys.readouterr().out
    assert f"4 markets, 20 {unit}s each" in out and f"{unit}s that traded" in out
    assert f"volatility, ticks per {unit} " in out and f"agent-events/s: {events:.3g} in" in out


def test_picture(tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "run.png"
    assert main([*SMALL, "--plot", str(path)]) == 0
    assert path.read_bytes().startswith(b"\x89PNG")


def test_the_picture_of_an_order_flow_has_no_fundamental_price(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    drawn = []
    monkeypatch.setattr(plots, "price_paths", lambda axes, price, fundamental, **_: drawn.append(fundamental is None))
    flow = ["arrivals=flow", "flow=btcusd", "mechanism=continuous", "interval=5", "num_levels=64", "init_price=32"]
    for fields in (flow, []):
        options = [option for field in fields for option in ("--set", field)]
        assert main([*SMALL, *options, "--plot", str(tmp_path / "run.png")]) == 0
    assert drawn == [True, False]


def test_a_missing_matplotlib_is_said_before_the_run(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main([*SMALL, "--plot", str(tmp_path / "run.png")]) == 2
    streams = capsys.readouterr()
    assert "pip install matplotlib" in streams.err and not streams.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--set", "agent=3"],
            "MarketConfig: expected one of num_levels, num_agents, .*, got the unknown field 'agent'",
        ),
        (["--set", "num_levels=100"], "--set num_levels: expected .*, got 100"),
        (["--set", "agents=3"], "--set agents: expected a mapping of classes.*got 3"),
        (["--set", "agents=x:y"], "--set agents: expected a mapping of classes.*got 'x:y'"),
        (
            ["--set", "agents={'kineticsim_env.traders:order_splitter': -1}"],
            "--set agents[order_splitter]: count: expected .*, got -1",
        ),
        (
            ["--agents", "kineticsim_env.traders:order_splitter=-1"],
            "--agents: .*got 'kineticsim_env.traders:order_splitter",
        ),
        (["--set", "num_agents"], "--set: expected field=value.*got 'num_agents'"),
        (["--set", "num_agents=3", "--set", "num_agents=4"], "--set: .*got 'num_agents' twice"),
        (["--set", "tie=highest"], "tie: expected .*, got 'highest'"),
        (["--set", "noise=0.9"], "expected shares that sum to 1, .*, got 1.2"),
        (["--set", "noise_spread=[1,2]"], "noise_spread: expected num_markets = 4 per-market values, got 2"),
        (
            ["--preset", "other"],
            "--preset: expected one of btcusd, continuous, news, paper, realistic, trading, got 'other'",
        ),
        (["--markets", "0"], "--markets: .*got 0"),
        (["--auctions", "0"], "--auctions: expected .*, got 0"),
        (["--warmup", "-1"], "--warmup: expected .*, got -1"),
        (["--engine", "gpu"], "--engine: expected .*, got 'gpu'"),
        (["--device", "cuda"], "--device: expected .*, got 'cuda'"),
        (["--save", "/no/such/folder/run.npz"], "--save: expected .*, got '/no/such/folder/run.npz'"),
        (["--plot", "/no/such/folder/run.png"], "--plot: expected .*, got '/no/such/folder/run.png'"),
    ],
)
def test_wrong_input_is_one_line(words, said, capsys):
    assert main([*SMALL, *words]) == 2
    streams = capsys.readouterr()
    assert mentions(streams.err, said) and streams.err.startswith("error: ")
    assert streams.err.count("\n") == 1 and not streams.out


def test_as_a_program():
    """One that works is in tests/test_evaluate_command.py."""
    words = [sys.executable, "-m", "kineticsim_env"]
    done = subprocess.run([*words, *SMALL, "--set", "x=1"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "Traceback" not in done.stderr and "got the unknown field 'x'" in done.stderr
