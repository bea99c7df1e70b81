"""`python -m examples.studies.baselines` in small: rows that share their episodes, and what the page says of them."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import kineticsim_env as ks

for name in ("tyro", "tensorboard", "matplotlib", "cma"):
    pytest.importorskip(name, reason="the page needs it: pip install 'kineticsim-env[train]'")

from examples.studies.baselines import __main__ as baselines  # noqa: E402
from examples.studies.baselines import part as baselines_part  # noqa: E402
from examples.studies.baselines import tables as baselines_tables  # noqa: E402
from examples.studies.baselines.zoo import fill_zoo  # noqa: E402
from kineticsim_env.evaluation import confidence_interval  # noqa: E402

SMALL = ["--engine", "cpu", "--episodes", "16", "--generations", "2", "--population", "4"]
SMALL += ["--markets-each", "2", "--ppo-markets", "4", "--steps", "512", "--seeds", "2"]
SMALL += ["--further-seeds", "1", "--stack", "6", "--stack-seeds", "1"]
PART = "Execution:trading"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A part, its rows measured by two calls of the command."""
    folder = tmp_path_factory.mktemp("baselines")
    words = [*SMALL, "--parts", PART, "--runs", str(folder)]
    baselines.main([*words, "--rows", "PPO, seed 1", "PPO fast", "linear"])
    assert sorted(path.stem for path in folder.glob("*/*.npz")) == ["PPO_fast_seed_1", "PPO_seed_1", "linear"]
    assert not list(folder.glob("*.json")), "not all is there"
    baselines.main(words)
    return folder


def test_leads_are_paired(runs):
    (file,) = runs.glob("*.json")
    found = json.loads(file.read_text())
    money = {}
    for path in (runs / file.stem).glob("*.npz"):
        kept = np.load(path)
        money[json.loads(str(kept["told"]))["name"]] = kept["money"]
    assert set(money) == set(found["rows"]) and len(money["linear"]) == 16
    assert found["stacked"]["seeds"] == [money["PPO stacked, seed 1"].mean()] and found["stacked"]["stack"] == 6
    assert list(found["further"]) == ["PPO discrete", "PPO fast", "PPO float32"]
    passes = {name: one["settings"]["update_epochs"] for name, one in found["further"].items()}
    assert passes == {"PPO discrete": 4, "PPO fast": 1, "PPO float32": 4}
    mean = (money["PPO, seed 1"] + money["PPO, seed 2"]) / 2
    assert found["learned"]["pnl"] == pytest.approx(confidence_interval(mean))
    money["PPO fast"] = money["PPO fast, seed 1"]
    for rival in ("linear", "linear, sizes too", "informed", found["scripted"], "PPO fast"):
        assert found["leads"][rival] == pytest.approx(confidence_interval(mean - money[rival]))
        assert not np.array_equal(money[rival], mean)
    scores = {name: row["score"] for name, row in found["rows"].items() if "score" in row}
    assert found["scripted"] == max(scores, key=scores.__getitem__) and len(scores) == 7


def test_its_policies_are_the_zoo_s(runs, tmp_path):
    """Each under its name, with the figures of its own evaluation; what has no name there stays behind."""
    names = fill_zoo(runs, tmp_path)
    assert names == [f"trading/execution/{name}" for name in ("ppo_discrete", "ppo", "ppo-2", "linear", "linear_sizes")]
    found = json.loads(next(runs.glob("*.json")).read_text())["rows"]
    for name, row in (("ppo-2", "PPO, seed 2"), ("ppo_discrete", "PPO discrete, seed 1"), ("linear", "linear")):
        policy = ks.load_policy(tmp_path / "trading" / "execution" / f"{name}.safetensors")
        close = {"rel": 1e-3, "abs": 0.05} if name == "linear" else {}  # whose network rounds otherwise
        assert policy.told.figures["mean"] == pytest.approx(found[row]["pnl"][0], **close)
        assert policy.told.command.endswith(f'--parts {PART} --rows "{row}"')


def test_what_is_there_is_not_measured_again(runs, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("measured again")

    monkeypatch.setattr(baselines_part, "evaluate", refuse)
    before = json.loads(next(runs.glob("*.json")).read_text())
    baselines.main([*SMALL, "--parts", PART, "--runs", str(runs)])
    assert json.loads(next(runs.glob("*.json")).read_text())["rows"] == before["rows"]


def test_a_seed_learns_what_it_does_alone(runs, tmp_path):
    """The second training, which takes over buffers of the first, leaves the networks that the example itself does."""
    executor = sys.modules["ppo_executor"]
    small = {"engine": "cpu", "num_envs": 4, "total_steps": 512, "eval_envs": 16, "track": False}
    args = executor.Args(seed=2, preset="trading", output=tmp_path, **small)
    executor.ppo.main(args)

    def networks(folder):
        return torch.load(folder / "snapshots" / "512.pt", weights_only=True)

    alone = networks(tmp_path)
    other, same = (networks(next(runs.glob(f"*/*seed_{seed}"))) for seed in (1, 2))
    assert all(torch.equal(same[name], alone[name]) for name in alone)
    assert not any(torch.equal(other[name], alone[name]) for name in alone)


def test_the_page(runs, tmp_path):
    baselines.main(["--results", str(runs), "--output", str(tmp_path)])
    text = (tmp_path / "README.md").read_text()
    assert "## Execution, call auctions (`trading`)" in text and "scripted: " in text and "2 training seeds" in text
    assert "| PPO fast | " in text and "| 4 markets, 64 decisions, 1 pass; seeds: " in text
    assert "`gamma=1.0`" in text and (tmp_path / "images" / "baselines.png").exists()
    assert f"python -m examples.studies.baselines {' '.join(SMALL)}" in " ".join(text.split())
    again = tmp_path / "again"
    baselines.main(["--results", str(tmp_path / "results.json"), "--output", str(again)])
    assert (again / "README.md").read_text() == text


@pytest.mark.parametrize(
    ("learned", "lead", "said"),
    [
        ((30.0, 1.0), (10.0, 1.0), "10 ± 1"),
        ((21.5, 1.0), (1.5, 1.0), "2 ± 1, intervals overlap"),
        ((15.0, 1.0), (-5.0, 1.0), "-5 ± 1"),
        ((20.0, 1.0), (0.0, 1.0), "0 ± 1, not told apart"),
    ],
)
def test_what_it_says_of_a_lead(learned, lead, said):
    names = ("linear", "linear, sizes too", "fixed spread")
    record = {
        "part": "MarketMaking:news",
        "scripted": "fixed spread",
        "rows": {name: {"pnl": (20.0, 1.0)} for name in names},
        "learned": {"pnl": learned, "seeds": [learned[0]]},
        "leads": dict.fromkeys(names, lead),
    }
    assert [baselines_tables.lead(record, rival) for rival in ("linear", "scripted")] == [said, said]


def test_the_committed_page_is_that_of_its_figures(tmp_path):
    study = Path(__file__).parent.parent / "examples" / "studies" / "baselines"
    if not (study / "results.json").exists():
        pytest.skip("not measured yet")
    baselines.main(["--results", str(study / "results.json"), "--output", str(tmp_path)])
    assert (tmp_path / "README.md").read_text() == (study / "README.md").read_text()
