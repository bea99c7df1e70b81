"""docs/leaderboard.md: measured by the command `evaluate` on drawn seeds, and written from its figures alone."""

import json

import pytest
from thorough import slow

import kineticsim_env as ks
from kineticsim_env.evaluation import HELD_OUT_SEED, evaluate, evaluation_env
from kineticsim_env.evaluation.entrants import entrant_of, rivals_of
from kineticsim_env.tasks import TASK_WORDS
from kineticsim_env.zoo import informed, trained
from scripts.pages import leaderboard

pytest.importorskip("safetensors", reason="the zoo needs it: pip install 'kineticsim-env[zoo]'")


def test_the_committed_page_is_that_of_its_figures(tmp_path):
    page = tmp_path / "leaderboard.md"
    page.write_text(leaderboard.PAGE.read_text())
    leaderboard.main(["--page", str(page)])
    assert page.read_text() == leaderboard.PAGE.read_text()
    record = json.loads(leaderboard.FILE.read_text())
    for task, found in record["tasks"].items():
        assert {name for name in trained(f"news/{task}/")} < set(found["results"]), "the zoo has grown: measure anew"
        assert found["seed"] == record["seed"] >= HELD_OUT_SEED


@pytest.mark.parametrize("task", TASK_WORDS)
def test_the_zoo_has_all_that_is_promised(task):
    for name in ("ppo", "ppo_discrete"):
        for seed in ("", "-2", "-3", "-4", "-5"):
            policy = ks.load_policy(f"news/{task}/{name}{seed}")
            told = policy.told
            assert told.task == task and told.preset == "news" and told.licence == "Apache-2.0" and told.commit
            assert told.command.endswith(f', seed {seed[1:] or 1}"') and told.figures["episodes"] >= 32768
            assert policy.action_type == ("discrete" if name == "ppo_discrete" else "continuous")
    assert ks.load_policy(f"news/{task}/linear").action_type == "continuous"


def test_a_policy_of_the_zoo_makes_what_its_file_says():
    policy = ks.load_policy("news/market_making/ppo_discrete")
    envs = evaluation_env(256, engine="cpu", action_type="discrete")
    mean, half = evaluate(policy, envs).pnl_interval()
    assert abs(mean - policy.told.figures["mean"]) < 2 * half and mean > 3000


def test_the_informed_play_where_the_fundamental_price_is_shown(capsys, tmp_path):
    entrant = entrant_of("policy", "Informed", "trading", "news")
    assert entrant.see_fundamental and entrant.note.startswith("told the fundamental price, threshold=")
    assert [one.name for one in rivals_of("against", None, "trading", "news") if one.see_fundamental] == ["informed"]
    assert informed("Trading", "paper") is None
    path = tmp_path / "found.json"
    words = ["evaluate", "informed", "--task", "trading", "--episodes", "64", "--engine", "cpu", "--json", str(path)]
    assert leaderboard.cli.main([*words, "--against", "momentum", "news/trading/ppo"]) == 0
    assert "| informed | " in capsys.readouterr().out
    envs = evaluation_env(64, "Trading", engine="cpu", see_fundamental=True)
    found = json.loads(path.read_text())["results"]
    assert found["informed"]["mean"]["value"] == evaluate(entrant.make(envs.core.task), envs).pnl.mean()
    assert found["informed"]["mean"]["value"] > found["momentum"]["mean"]["value"]


@slow
def test_it_measures_on_a_drawn_seed(tmp_path, monkeypatch):
    """The seed is no training's and no tuning's; leads are over the best scripted one; the best comes first."""
    monkeypatch.setattr(leaderboard, "TASK_WORDS", {"trading": "Trading"})
    page, file = tmp_path / "page.md", tmp_path / "found.json"
    marks = (f"<!-- {name}: written -->\n\n<!-- end -->\n" for name in ("measured", "trading"))
    page.write_text("".join(marks))
    words = ["--measure", "--episodes", "8", "--engine", "cpu", "--file", str(file), "--page", str(page)]
    seeds = set()
    for _ in range(2):
        leaderboard.main(words)
        record = json.loads(file.read_text())
        seeds.add(record["seed"])
    assert len(seeds) == 2 and all(HELD_OUT_SEED <= seed < HELD_OUT_SEED + 2**60 for seed in seeds)
    text, found = page.read_text(), record["tasks"]["trading"]["results"]
    assert f"seed {record['seed']}" in " ".join(text.split()) and record["tasks"]["trading"]["policy"] == "momentum"
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ") and "policy" not in line]
    names = [row[0].strip("|* ") for row in rows]
    assert set(names) == set(found) and {"informed", "news/trading/ppo"} < set(names)
    means = [found[name]["mean"]["value"] for name in names]
    assert means == sorted(means, reverse=True)
    lead = rows[names.index("buy and hold")][3].split(" ")[0]
    ahead = found["buy and hold"]["mean"]["value"] - found["momentum"]["mean"]["value"]
    assert float(lead.replace(",", "")) == pytest.approx(ahead, abs=0.5)
