"""The page on learning under continuous trading, in small; and what it counts of places in queues."""

import importlib
import json
import re

import numpy as np
import pytest
import torch

from kineticsim_env.evaluation import evaluate, evaluation_env
from kineticsim_env.policies import FixedSpread

for name in ("tyro", "tensorboard", "matplotlib"):
    pytest.importorskip(name, reason="the examples need it: pip install 'kineticsim-env[train]'")

study = importlib.import_module("scripts.pages.continuous_learning")
SMALL = ["--engine", "cpu", "--markets", "8", "--steps", "512", "--episodes", "16"]


@pytest.fixture
def in_process(monkeypatch):
    """Examples run here rather than in processes of their own; returns the words that each was given."""
    given = []

    def train(script, words):
        given.append((script, words))
        study.ppo_fast.run(importlib.import_module(script).Args, words)

    monkeypatch.setattr(study, "train", train)
    return given


def test_the_command_writes_the_page_and_again_from_its_figures(tmp_path, in_process):
    page = tmp_path / "page"
    study.main([*SMALL, "--runs", str(tmp_path / "runs"), "--output", str(page)])
    text, found = (
        (page / "continuous_learning.md").read_text(),
        json.loads((page / "continuous_learning.json").read_text()),
    )
    assert [script for script, _ in in_process] == ["ppo_fast"] * 3 + ["ppo_executor"]
    assert [one["args"]["set"] for one in found["makers"].values()] == [[], ["quote_latency=10"], ["quote_latency=20"]]
    assert all(one["args"]["preset"] == "continuous" for one in (*found["makers"].values(), found["executor"]))
    assert "python -m scripts.pages.continuous_learning --engine cpu --steps 512" in text
    assert not re.search(r"\bnan\b", text)
    for latency, one in found["makers"].items():
        assert one["under"][latency] == pytest.approx(one["pnl"]["PPO (learned)"]), "the policy that was trained"
        assert 0 <= one["kept"] <= 1
    assert re.findall(r"\(images/([\w.]+)\)", text) == [path.name for path in (page / "images").iterdir()]
    again = tmp_path / "again"
    in_process.clear()
    study.main(["--results", str(page / "continuous_learning.json"), "--output", str(again)])
    assert not in_process and (again / "continuous_learning.md").read_text() == text
    assert json.loads((again / "continuous_learning.json").read_text()) == found
    other = tmp_path / "other.json"
    other.write_text(json.dumps(found | {"machine": "another one"}))
    study.main(["--results", str(page / "continuous_learning.json"), "--also", str(other), "--output", str(again)])
    assert (again / "continuous_learning.md").read_text().count("| another one | ") == 4
    assert (again / "images" / "continuous_learning.png").read_bytes()[:4] == b"\x89PNG"


def maker(**changes):
    envs = evaluation_env(32, config=study.PRESET, engine="cpu", horizon=60, bank_size=8, **changes)
    return envs, FixedSpread(envs.core.task, half_spread=9, qty=6)


def test_places_are_kept_by_who_asks_for_no_more_and_lost_by_who_asks_for_it_back():
    """A maker whose price is fixed, so that all that decides is what it asks for."""
    envs, _ = maker()
    far = torch.full((32, 4), 1.0)  # 10 ticks from the mid
    far[:, 2:] = 0.5

    def kept(every):
        """Return of how many quotes, and after which decisions how many of them had kept their places."""
        policy = study.with_fewer(lambda _: far, 8, every) if every else lambda _: far
        watched, counts = study.Watched(policy, envs), []
        evaluate(lambda observation: (watched(observation), counts.append(watched.kept))[0], envs, seed=3)
        return watched.stood, np.diff(counts)

    (stood, as_is), (_, all_fewer), (_, in_turn) = kept(0), kept(1), kept(2)
    assert 0.05 * stood < as_is.sum() < stood and all_fewer.sum() == pytest.approx(as_is.sum(), rel=0.1)
    assert not in_turn[1::2].any() and in_turn[::2].sum() >= as_is[::2].sum()


def test_a_unit_less_in_turn():
    _, policy = maker()
    act = study.with_fewer(policy, 8, 2)
    observation = torch.zeros((3, 39))
    sizes = [torch.round((act(observation)[:, 2:] + 1) / 2 * 8).unique().tolist() for _ in range(4)]
    assert sizes == [[5.0], [6.0], [5.0], [6.0]]
    assert np.allclose(act(observation)[:, :2], policy(observation)[:, :2])


def test_the_verdict_needs_intervals_apart():
    text = importlib.import_module("scripts.pages.continuous_learning_text")
    record = {"pnl": {text.LEARNED: (10.0, 2.0), "one": (5.0, 2.0), "two": (1.0, 0.5)}, "lead": (5.0, 1.0)}
    assert text.verdict(record) == "ahead of every scripted one, intervals apart"
    record["pnl"]["one"] = (7.0, 2.0)
    assert text.verdict(record) == "ahead of every scripted one, in paired differences"
    record["lead"] = (0.5, 1.0)
    assert text.verdict(record) == "not ahead"
