"""`scripts/training_rate.py` on a small run: its figures hang together, over one process and two."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

for name in ("tyro", "tensorboard", "matplotlib"):
    pytest.importorskip(name, reason="the example needs it: pip install 'kineticsim-env[train]'")

SCRIPT = Path(__file__).parent.parent / "scripts" / "training_rate.py"
SMALL = ["--engine", "cpu", "--seconds", "0.02", "--markets", "8"]
CHANGES = {"num_envs": 8, "num_steps": 4}


def measure(path, *words, **changes):
    command = [sys.executable, str(SCRIPT), *SMALL, "--changes", json.dumps(CHANGES | changes), "--output", str(path)]
    done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    found = json.loads(path.read_text())
    assert json.loads(done.stdout.splitlines()[-1]) == found
    return found, done.stdout


def test_parts_of_training(tmp_path):
    found, printed = measure(tmp_path / "rates.json", "--variants", "default", "fast")
    for name in ("default", "fast"):
        row = found[name]
        assert row["step_only"] > row["step_and_inference"] > row["training"] > 0
        assert row["ns_a_step"]["rollout"] == pytest.approx(1e9 / row["step_and_inference"])
        assert f"{name}: step only" in printed
    assert found["default"]["settings"]["update_epochs"] == "4" and found["fast"]["settings"]["update_epochs"] == "1"


@pytest.mark.slow
def test_what_fails_is_reported(tmp_path):
    found, printed = measure(tmp_path / "rates.json", "--variants", "default", "fast", num_minibatches=0)
    for name in ("default", "fast"):
        assert "ZeroDivisionError" in found[name]["failed"] and f"{name} FAILED" in printed


@pytest.mark.slow
def test_scaling(tmp_path):
    found, printed = measure(tmp_path / "scaling.json", "--scaling", "1", "2", "--variants", "fast")
    one, two = found["scaling"]["1"], found["scaling"]["2"]
    assert one["ratios"] == {"engine": 1.0, "fast": 1.0}
    assert two["ratios"]["engine"] == pytest.approx(two["engine"] / one["engine"])
    assert two["ratios"]["fast"] == pytest.approx(two["fast"]["training"] / one["fast"]["training"])
    assert "2 processes, engine:" in printed and "2 processes, fast:" in printed
