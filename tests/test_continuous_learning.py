"""The page on learning under continuous trading, in small; and what it counts of places in queues."""

import importlib
import json
import re

import pytest
import torch
from thorough import slow

from kineticsim_env.evaluation import evaluate, evaluation_env
from kineticsim_env.policies import FixedSpread

for name in ("tyro", "tensorboard", "matplotlib"):
    pytest.importorskip(name, reason="the examples need it: pip install 'kineticsim-env[train]'")

study = importlib.import_module("examples.studies.continuous_learning.__main__")
places = importlib.import_module("examples.studies.continuous_learning.places")
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


@slow
def test_the_command_writes_the_page_and_again_from_its_figures(tmp_path, in_process):
    page = tmp_path / "page"
    study.main([*SMALL, "--runs", str(tmp_path / "runs"), "--output", str(page)])
    text, found = (page / "README.md").read_text(), json.loads((page / "results.json").read_text())
    assert [script for script, _ in in_process] == ["ppo_fast"] * 3 + ["ppo_executor"]
    assert [one["args"]["set"] for one in found["makers"].values()] == [[], ["quote_latency=10"], ["quote_latency=20"]]
    assert all(one["args"]["preset"] == "continuous" for one in (*found["makers"].values(), found["executor"]))
    assert "python -m examples.studies.continuous_learning --engine cpu --steps 512" in " ".join(text.split())
    assert not re.search(r"\bnan\b", text)
    for latency, one in found["makers"].items():
        assert one["under"][latency] == pytest.approx(one["pnl"]["PPO (learned)"]), "the policy that was trained"
        assert one["places"]["as it learned"]["pnl"] == pytest.approx(one["under"][latency])
        assert all(0 <= played["kept"] <= 1 for played in one["places"].values())
    assert re.findall(r"\(images/([\w.]+)\)", text) == [path.name for path in (page / "images").iterdir()]
    again = tmp_path / "again"
    in_process.clear()
    study.main(["--results", str(page / "results.json"), "--output", str(again)])
    assert not in_process and (again / "README.md").read_text() == text
    assert json.loads((again / "results.json").read_text()) == found
    other = tmp_path / "other.json"
    other.write_text(json.dumps(found | {"machine": "another one"}))
    study.main(["--results", str(page / "results.json"), "--also", str(other), "--output", str(again)])
    assert (again / "README.md").read_text().count("| another one | ") == 4
    assert (again / "images" / "continuous_learning.png").read_bytes()[:4] == b"\x89PNG"


def envs_of(num_envs=32):
    return evaluation_env(num_envs, config=study.PRESET, engine="cpu", horizon=60, bank_size=8)


def test_who_holds_quotes_keeps_places():
    """The quotes of the one that is patient are as good: within two ticks, and never more than was asked for."""
    envs = envs_of()
    policy = FixedSpread(envs.core.task, half_spread=4, qty=6)
    restless, holding = places.Watched(policy, envs), places.Watched(places.patient(policy, envs), envs)
    evaluate(restless, envs, seed=3)
    seen = []

    def act(observation):
        mid2, quotes = envs.simulator.mid2.clone(), envs.simulator.quotes[:, 0].clone()
        action = holding(observation)
        offsets, units = torch.round((action[:, :2] + 1) / 2 * 10), torch.round((action[:, 2:] + 1) / 2 * 8)
        stands = torch.stack([(mid2 >> 1) - quotes[:, 0], quotes[:, 2] - ((mid2 + 1) >> 1)], 1)
        held = (offsets == stands) & (quotes[:, 1::2] > 0) & (units <= quotes[:, 1::2])
        assert ((offsets - 4).abs() <= places.HOLD).all() and ((units == 6) | (held & (units >= 3))).all()
        seen.append(held)
        return action

    evaluate(act, envs, seed=3)
    assert holding.kept > 2 * restless.kept > 0 and torch.stack(seen).float().mean() > 0.2


def test_quotes_are_put_to_the_end_or_to_the_front_and_nothing_else():
    envs = envs_of()
    simulator, task = envs.simulator, envs.core.task
    hold = places.patient(FixedSpread(task, half_spread=4, qty=6), envs)
    observation, _ = envs.reset(seed=3)
    for _ in range(20):
        observation, *_ = envs.step(hold(observation))
    before = {name: value.clone() for name, value in simulator.tensors.items()}
    tick = simulator.quotes[:, 0, ::2] - simulator.price_origin[:, None]
    behind = torch.stack([simulator.bid.gather(1, tick[:, :1].long()), simulator.ask.gather(1, tick[:, 1:].long())], 1)
    behind = behind[..., 0] * (simulator.quotes[:, 0, 1::2] > 0)
    assert (before["queue"][:, 0] < behind).any() and (before["queue"][:, 0] > 0).any()
    for place, ahead in (("end", behind), ("front", torch.zeros_like(behind)), ("earned", before["queue"][:, 0])):
        simulator.tensors["queue"].copy_(before["queue"])
        policy = places.placed(lambda row: row, envs, place)  # shows what it is shown
        row = policy(observation)
        assert torch.equal(simulator.queue[:, 0], ahead.int())
        assert torch.allclose(row[:, 37:], ahead / (ahead + 8.0)) and torch.equal(row[:, :37], observation[:, :37])
        for name, value in before.items():
            assert name == "queue" or torch.equal(simulator.tensors[name], value), name


def test_a_place_in_front_is_worth_more_than_one_at_the_end():
    envs = envs_of(2048)
    hold = places.patient(FixedSpread(envs.core.task, half_spread=4, qty=6), envs)
    worth = places.worth_of_places(hold, envs, 5)
    assert worth["end"][0] < -worth["end"][1] < 0 < worth["front"][1] < worth["front"][0]


def test_the_verdict_needs_intervals_apart():
    text = importlib.import_module("examples.studies.continuous_learning.tables")
    record = {"pnl": {text.LEARNED: (10.0, 2.0), "one": (5.0, 2.0), "two": (1.0, 0.5)}, "lead": (5.0, 1.0)}
    assert text.verdict(record) == "ahead of every scripted one, intervals apart"
    record["pnl"]["one"] = (7.0, 2.0)
    assert text.verdict(record) == "ahead of every scripted one, in paired differences"
    record["lead"] = (0.5, 1.0)
    assert text.verdict(record) == "not ahead"
