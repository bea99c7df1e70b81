"""`scripts/benchmarks/training_rate.py` on a small run: its figures hang together, over one process and two."""

import importlib
import json
import sys

import pytest
import torch
from thorough import slow

for name in ("tyro", "tensorboard", "matplotlib"):
    pytest.importorskip(name, reason="the example needs it: pip install 'kineticsim-env[train]'")

SMALL = ["--engine", "cpu", "--seconds", "0.02", "--markets", "8"]
CHANGES = {"num_envs": 8, "num_steps": 4}
BOTH = "news, default", "trading, fast"


@pytest.fixture
def measure(tmp_path, monkeypatch, capsys):
    """Run the script in this process on a small run; return its figures, and what it printed."""
    monkeypatch.setattr(sys, "path", list(sys.path))  # to which the script adds the examples
    script = importlib.import_module("scripts.benchmarks.training_rate")  # needs what they need
    threads = torch.get_num_threads()
    torch.set_num_threads(1)

    def run(*words, **changes):
        path = tmp_path / "rates.json"
        script.main([*SMALL, "--changes", json.dumps(CHANGES | changes), "--output", str(path), *words])
        found, printed = json.loads(path.read_text()), capsys.readouterr().out
        assert json.loads(printed.splitlines()[-1]) == found
        return found, printed

    yield run
    torch.set_num_threads(threads)


@slow
def test_parts_of_training(measure):
    found, printed = measure("--variants", *BOTH)
    for name in BOTH:
        row = found[name]
        assert row["step_only"] > row["step_and_inference"] > row["training"] > 0
        assert row["ns_per_step"]["rollout"] == pytest.approx(1e9 / row["step_and_inference"])
        assert f"{name}: step only" in printed
        assert row["how"].startswith("updates are torch's") and row["settings"]["preset"] == name.partition(",")[0]
    assert [found[name]["settings"]["update_epochs"] for name in BOTH] == ["4", "1"]


def test_what_fails_is_reported(measure):
    found, printed = measure("--variants", *BOTH, num_minibatches=0)
    for name in BOTH:
        assert "ZeroDivisionError" in found[name]["failed"] and f"{name} FAILED" in printed


@pytest.mark.slow
def test_scaling(measure):
    name = "news, fast"
    found, printed = measure("--scaling", "1", "2", "--variants", name)
    one, two = found["scaling"]["1"], found["scaling"]["2"]
    assert one["ratios"] == {"engine": 1.0, name: 1.0}
    assert two["ratios"]["engine"] == pytest.approx(two["engine"] / one["engine"])
    assert two["ratios"][name] == pytest.approx(two[name]["training"] / one[name]["training"])
    assert "2 processes, engine:" in printed and f"2 processes, {name}:" in printed
