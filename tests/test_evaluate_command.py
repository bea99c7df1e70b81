"""`python -m kineticsim_env evaluate`: its table and figures are those of `evaluate`, what it refuses is one line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from messages import mentions
from thorough import slow

import kineticsim_env as ks
from kineticsim_env import policies
from kineticsim_env.cli import main
from kineticsim_env.evaluation import HELD_OUT_SEED, difference, evaluate, evaluation_env
from kineticsim_env.evaluation.entrants import entrant_of, rivals_of

ROOT = Path(__file__).parent.parent
FEW = ["--episodes", "4", "--engine", "cpu"]
MINE = """
import dataclasses
import torch


class Middle:
    def __init__(self, task):
        self.task = task

    def __call__(self, observation):
        observation.fill_(float("nan"))  # a copy
        return torch.full((len(observation), 4), -0.5)


class Chooses(Middle):
    action_type = "discrete"

    def __call__(self, observation):
        return torch.full((len(observation),), 24)


class Remembers(Middle):
    def __init__(self, task):
        self.begun = None

    def reset(self, mask):
        self.begun = mask

    def __call__(self, observation):
        assert self.begun.all()
        return torch.full((len(observation), 4), -0.5)


@dataclasses.dataclass
class Record:
    task: object

    def __call__(self, observation):
        return torch.full((len(observation), 4), -0.5)


class Breaks:
    def __init__(self, task):
        raise KeyError("mine")


class Odd(Middle):
    action_type = "both"


class Silent:
    def __init__(self, task):
        pass


number = 3
"""


@pytest.fixture
def mine(tmp_path):
    """A file with classes of a user."""
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path / "mine.py"


@slow
def test_in_a_process_of_its_own(mine, tmp_path):
    command = [sys.executable, "-m", "kineticsim_env", "evaluate", f"{mine}:Middle", *FEW, "--json", "found.json"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    head, _, titles, _, *rows = done.stdout.splitlines()
    assert head == f"4 episodes of market_making in news, seed {2**62}, engine cpu; ± 95%"
    asked = "liquidated PnL, ticks | .* less this one | its sd | Sharpe ratio | 5% CVaR | units per decision | "
    assert mentions(titles, f"| policy | {asked}mean inventory | final inventory |")
    played = [row.split(" | ")[0].removeprefix("| ") for row in rows if row.startswith("|")]
    assert {"no trade", "fixed spread", "Avellaneda-Stoikov", f"{mine}:Middle"} <= set(played) and len(played) >= 7
    found = json.loads((tmp_path / "found.json").read_text())
    assert list(found["results"]) and found["policy"] == f"{mine}:Middle" and found["seed"] == HELD_OUT_SEED
    assert found["results"]["no trade"]["sharpe_ratio"] == {"value": None, "half_width": None}


def test_figures_are_those_of_the_same_episodes(tmp_path, capsys):
    words = ["fixed spread", *FEW, "--seed", "7", "--against", "QUIET_QUOTES", "--json", str(tmp_path / "found.json")]
    assert main(["evaluate", *words]) == 0
    assert "| quiet quotes | " in capsys.readouterr().out
    found = json.loads((tmp_path / "found.json").read_text())
    assert list(found["results"]) == ["quiet quotes", "fixed spread"]
    envs = evaluation_env(4, engine="cpu")
    task = envs.core.task
    mine = evaluate(policies.FixedSpread(task, half_spread=2, qty=8), envs, 7)
    other = evaluate(policies.QuietQuotes(task, half_spread=2, limit=3, skew=0.0), envs, 7)
    for result, name in ((mine, "fixed spread"), (other, "quiet quotes")):
        for key, value in result.figures().items():
            figure = found["results"][name][key]
            assert figure["value"] == value.mean or np.isnan(value.mean)
            assert figure["half_width"] == value.interval() or np.isnan(value.interval())
    assert found["results"]["quiet quotes"]["difference"]["value"] == difference(mine, other).mean
    assert found["results"]["fixed spread"]["difference"] == {"value": 0.0, "half_width": 0.0}


@pytest.mark.parametrize(
    ("task", "word", "measure"),
    [("execution", "twap", "made against arrival"), ("trading", "buy and hold", "liquidated PnL")],
)
def test_every_task_is_played(task, word, measure, capsys):
    assert main(["evaluate", word, "--task", task, "--preset", "trading", *FEW]) == 0
    out = capsys.readouterr().out
    assert f"4 episodes of {task} in trading" in out and measure in out


def test_in_a_fitted_market_the_value_of_a_tick_is_said(mine, capsys):
    assert ks.OrderFlow.preset("btcusd").tick_value == 0.01
    for preset, said in (("btcusd", True), ("news", False)):
        assert main(["evaluate", f"{mine}:Middle", "--preset", preset, *FEW]) == 0
        assert ("One lot gains 0.01 by one tick" in capsys.readouterr().out) == said


def test_who_plays_alone_is_compared_with_nobody(capsys):
    assert main(["evaluate", "no trade", *FEW, "--against", "no trade"]) == 0
    assert "less this one" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "form"), [("Chooses", "discrete"), ("Remembers", "continuous"), ("Record", "continuous")]
)
def test_classes_of_users_play(mine, name, form):
    entrant = entrant_of("policy", f"{mine}:{name}", "market_making", "news")
    assert entrant.action_type == form
    envs = evaluation_env(4, engine="cpu", horizon=10, bank_size=4, action_type=form)
    assert evaluate(entrant.make(envs.core.task), envs).traded.any()


def test_who_enters_sees_copies_of_observations_and_nothing_else(mine):
    entrant = entrant_of("policy", f"{mine}:Middle", "market_making", "news")
    envs = evaluation_env(4, engine="cpu", horizon=10, bank_size=4)
    played = entrant.make(envs.core.task)
    found = evaluate(played, envs)
    assert found.pnl.tolist() == evaluate(lambda now: torch.full((len(now), 4), -0.5), envs).pnl.tolist()
    assert not bool(envs.observation.isnan().any())


def test_trained_policies_play_beside_others(tmp_path, monkeypatch, capsys):
    pytest.importorskip("safetensors", reason="pip install 'kineticsim-env[zoo]'")
    monkeypatch.setattr("kineticsim_env.zoo.trained_policies.FOLDER", tmp_path)
    folder = tmp_path / "news" / "market_making"
    folder.mkdir(parents=True)
    told = {"task": "market_making", "preset": "news"}
    ks.NetworkPolicy.make(39, 4).save(folder / "ppo.safetensors", **told)
    ks.NetworkPolicy.make(39, 49, categorical=True).save(folder / "ppo_discrete.safetensors", **told)
    names = [entrant.name for entrant in rivals_of("against", None, "market_making", "news")]
    assert names[-2:] == ["news/market_making/ppo", "news/market_making/ppo_discrete"] and "fixed spread" in names
    assert not [name for name in (one.name for one in rivals_of("against", None, "trading", "news")) if "/" in name]
    words = [*FEW, "--against", "news/market_making/ppo_discrete"]
    assert main(["evaluate", "news/market_making/ppo", *words]) == 0
    assert capsys.readouterr().out.count("| trained in news |") == 2
    assert main(["evaluate", str(folder / "ppo.safetensors"), "--task", "trading", *FEW]) == 2
    assert mentions(capsys.readouterr().err, "error: policy: expected a policy of trading, got .*, of market_making")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["x"], "error: policy: expected FILE.py:CLASS, FILE.safetensors, .*(no trade, random quotes, .*), got 'x'"),
        (["{mine}:None_"], "error: policy: expected one of Middle, Chooses, Remembers, .*, got '.*mine.py:None_'"),
        (["{mine}:number"], "error: policy: expected a class, called with the task, as .*, got 3"),
        (["{mine}:Breaks"], "error: policy: .*mine.py:Breaks raised KeyError: 'mine'"),
        (["{mine}:Silent"], "error: policy: expected a class whose objects are called with observations, as .*, got"),
        (["{mine}:Odd"], "error: policy: action_type of .*: expected one of 'continuous', 'discrete', got 'both'"),
        (["no.py:Mine"], "error: policy: expected a file of Python and a class in it, got 'no.py:Mine', and there is"),
        (["{broken}:Mine"], "error: policy: .*half_written.py raised SyntaxError"),
        (["no.safetensors"], "error: policy: 'no.safetensors': expected a file .*: there is no such file"),
        (["no trade", "--against", "x"], "error: --against: expected FILE.py:CLASS, .*, got 'x'"),
        (["no trade", "--task", "chess"], "error: --task: expected one of 'market_making', 'execution', 'trading'"),
        (["no trade", "--preset", "mars"], "error: --preset: expected one of .*got 'mars'"),
        (
            ["no trade", "--preset", "paper"],
            "error: policy: .*trained policies of market_making in paper (none) or of the scripted ones (none), got",
        ),
        (["no trade", "--engine", "tpu"], "error: --engine: expected .*got 'tpu'"),
        (
            ["no trade", "--json", "no/a.json"],
            "error: --json: expected a file, got 'no/a.json', and there is no folder",
        ),
        ([], "error: the following arguments are required: POLICY"),
    ],
)
def test_one_line_says_what_is_refused(words, said, mine, capsys):
    if "no.safetensors" in words:
        pytest.importorskip("safetensors", reason="pip install 'kineticsim-env[zoo]'")
    (mine.parent / "half_written.py").write_text("class Mine(")
    words = [word.format(mine=mine, broken=mine.parent / "half_written.py") for word in words]
    assert main(["evaluate", *words, "--episodes", "2"]) == 2
    streams = capsys.readouterr()
    (line,) = [line for line in streams.err.splitlines() if not line.startswith("kineticsim_env: engine")]
    assert mentions(line, said, begins=True) and not streams.out
