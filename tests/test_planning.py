"""docs/planning.md: the planner of examples/planner.py plays what earns most, and the page is that of its figures."""

import json

import pytest
import torch

from examples.planner import RolloutPlanner
from kineticsim_env.evaluation import HELD_OUT_SEED, evaluation_env
from scripts.pages import planning

FIRST = torch.tensor(planning.FIRST)


def hold(rows):
    return torch.zeros(len(rows), 2)


def make(markets, **settings):
    return evaluation_env(markets, "Trading", engine="cpu", bank_size=4, warmup=5, horizon=12, **settings)


def test_on_its_own_future_it_earns_the_most_of_one_decision():
    envs = make(4)
    observation, _ = envs.reset(seed=1)
    planner = RolloutPlanner(envs, hold, FIRST, depth=1, futures=0)
    for _ in range(12):
        candidates = torch.cat([FIRST, torch.zeros(1, 2)])
        earned = torch.stack([envs.clone().step(one.expand(4, 2).contiguous())[1] for one in candidates])
        observation, reward, *_ = envs.step(planner(observation))
        assert torch.equal(reward, earned.amax(0))
    assert bool(envs.core.tensors["done"].all())
    assert torch.equal(planner(observation), hold(observation))  # of ended episodes nobody asks


def test_other_futures_are_the_same_for_all_first_actions_and_new_in_each_decision():
    envs = make(2)
    observation, _ = envs.reset(seed=1)
    seen = []
    planner = RolloutPlanner(
        envs, hold, FIRST, depth=2, futures=3, guess=lambda rows: seen.append(rows.simulator.tensors["seed"].tolist())
    )
    for _ in range(2):
        observation = envs.step(planner(observation))[0]
    assert seen == [[2**50 + 3 * call + future for _ in range(6) for future in range(3)] for call in range(4)]


def test_the_unaware_one_takes_the_last_price():
    envs = make(2)
    envs.reset(seed=1)
    rows = envs.fork(1, 3)
    before = envs.simulator.fundamental_price.clone()
    planning.unaware(rows)
    assert torch.equal(rows.simulator.fundamental_price, envs.simulator.last_price[[1, 1, 1]])
    assert torch.equal(envs.simulator.fundamental_price, before)


def test_the_committed_page_is_that_of_its_figures(tmp_path):
    page = tmp_path / "planning.md"
    page.write_text(planning.PAGE.read_text())
    planning.main(["--page", str(page)])
    assert page.read_text() == planning.PAGE.read_text()
    record = json.loads(planning.FILE.read_text())
    leads = {(one, other): (mean, half) for one, other, mean, half in record["leads"]}
    assert all(abs(mean) > half for mean, half in leads.values()), "the page says that they are told apart"
    assert leads["clairvoyant", "other futures"][0] > 0 > leads["unaware", "momentum"][0]
    assert record["results"]["news/trading/ppo"][0] > record["results"]["unaware"][0]
    assert record["seed"] >= HELD_OUT_SEED


def test_the_command_measures(tmp_path):
    pytest.importorskip("safetensors", reason="the zoo needs it: pip install 'kineticsim-env[zoo]'")
    page, file = tmp_path / "planning.md", tmp_path / "planning.json"
    page.write_text(planning.PAGE.read_text())
    words = ["--measure", "--episodes", "2", "--depth", "1", "--futures", "1"]
    planning.main([*words, "--page", str(page), "--file", str(file)])
    assert "2 episodes of `KineticSim/Trading-v0`" in page.read_text()
