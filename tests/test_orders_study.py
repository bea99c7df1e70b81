"""The page on kept quotes, ladders and decisions at events, in small: what is alike for all makers, how they train."""

import importlib
import json
import re

import pytest
import torch
from thorough import slow

from kineticsim_env.evaluation import HELD_OUT_SEED, evaluate, evaluation_env
from kineticsim_env.policies import FixedSpread, NoTrade

for name in ("tyro", "tensorboard", "matplotlib"):
    pytest.importorskip(name, reason="the examples need it: pip install 'kineticsim-env[train]'")

command = importlib.import_module("examples.studies.orders.__main__")
study = importlib.import_module("examples.studies.orders.study")
tables = importlib.import_module("examples.studies.orders.tables")
BUDGET = study.Budget("cpu", 8, 1024, 12)
SMALL = ["--engine", "cpu", "--markets", "8", "--steps", "1024", "--episodes", "12", "--seeds", "2"]


@pytest.fixture
def short(monkeypatch):
    """Short episodes."""
    monkeypatch.setattr(study, "HORIZON", 10)
    monkeypatch.setattr(study, "WARMUP", 20)


def learner(preset, variant, events=None):
    """Return the learner of a variant."""
    return study.Learner(study.Asked(preset, variant, events or study.events_of(preset)), BUDGET)


@slow
def test_the_command_writes_the_page_goes_on_and_writes_it_again(tmp_path, short, capsys):
    runs, page = tmp_path / "runs" / "trainings.jsonl", tmp_path / "page"
    command.main([*SMALL, "--runs", str(runs), "--output", str(page)])
    text, found = (page / "README.md").read_text(), json.loads((page / "results.json").read_text())
    trained = len(study.PRESETS) * len(study.VARIANTS) * 2
    assert len(runs.read_text().splitlines()) == trained and tables.complete(found)
    words = "python -m examples.studies.orders --markets 8 --steps 1024 --episodes 12 --seeds 2"
    assert f"`{words}`" in " ".join(text.split()) and not re.search(r"\bnan\b", text)
    assert re.findall(r"\(images/([\w.]+)\)", text) == [path.name for path in (page / "images").iterdir()]
    for preset, part in found["presets"].items():
        for variant, maker in part["makers"].items():
            assert maker["steps"] == 1024 and len(maker["pnl"]) == 2, (preset, variant)
            assert maker["events"] <= 1024 * part["interval"]
            assert variant == "plain" or maker["leads"]["plain"]["seeds"] == pytest.approx(
                [mine - plain for mine, plain in zip(maker["pnl"], part["makers"]["plain"]["pnl"], strict=True)],
                abs=0.01,
            )
        decisions = {name: maker["decisions"] for name, maker in part["makers"].items()}
        assert decisions["longer than touch"] <= decisions["touch"] <= decisions["shorter than touch"]
        assert decisions["as often as fill"] == pytest.approx(decisions["fill"], rel=0.4)
    capsys.readouterr()
    lines = runs.read_text().splitlines()
    runs.write_text("\n".join(lines[:-1]) + "\n" + lines[-1][:100])  # as where a run is ended while it writes
    again = tmp_path / "again"
    command.main([*SMALL, "--runs", str(runs), "--output", str(again)])
    assert capsys.readouterr().out.count("to play") == 1
    figures = [json.loads((folder / "results.json").read_text())["presets"] for folder in (page, again)]
    for one in figures:
        for part in one.values():
            assert all(maker.pop("seconds") > 0 for maker in part["makers"].values())
    assert figures[0] == figures[1]
    command.main(["--only", "page", "--runs", str(runs), "--output", str(again)])
    assert "to play" not in capsys.readouterr().out
    command.main(["--results", str(page / "results.json"), "--output", str(again)])
    assert (again / "README.md").read_text() == text


@slow
def test_a_page_can_be_made_of_a_part_of_the_trainings(tmp_path, short):
    runs, page = tmp_path / "trainings.jsonl", tmp_path / "page"
    trainings = command.Trainings(runs, BUDGET)
    for variant in ("plain", "fill"):
        for preset in study.PRESETS:
            asked = trainings.asked_of(preset, variant)
            command.train_seeds(asked, trainings, [1, 2], float("inf"))
    assert trainings.asked_of("news", "longer than touch") is None
    command.main(["--only", "page", "--runs", str(runs), "--output", str(page)])
    text = (page / "README.md").read_text()
    assert "| decides at its fills | 4 |" in text and "it was not trained" in text and "nan" not in text
    with pytest.raises(SystemExit, match="has no trainings"):
        command.main(["--only", "page", "--runs", str(tmp_path / "none"), "--output", str(page)])


def test_no_training_begins_after_its_time(tmp_path, short, capsys):
    command.main([*SMALL, "--runs", str(tmp_path / "trainings.jsonl"), "--only", "train", "--minutes", "1e-9"])
    assert not (tmp_path / "trainings.jsonl").exists() and "ready" not in capsys.readouterr().out


@pytest.mark.parametrize("preset", study.PRESETS)
def test_all_meet_the_same_orders_and_are_unwound_alike(preset, short):
    """Where nobody trades, markets end alike, whatever decisions they had; decisions as long as intervals are these."""
    events, ends = study.events_of(preset), []
    asked = [(variant, 5 if variant in study.FREQUENT else events) for variant in study.VARIANTS]
    for variant, longest in asked:
        envs = learner(preset, variant, longest).held_out
        played = study.play(NoTrade(envs.core.task), envs, HELD_OUT_SEED, events)
        assert not played["pnl"].any() and played["decisions"] >= 10
        simulator = envs.simulator
        ends.append([simulator.bid.clone(), simulator.ask.clone(), simulator.fundamental_price.clone()])
    assert all(torch.equal(*pair) for end in ends for pair in zip(end, ends[0], strict=True))

    def of(variant, longest=events):
        envs = learner(preset, variant, longest).held_out
        return study.play(FixedSpread(envs.core.task, half_spread=2, qty=9), envs, HELD_OUT_SEED, events)

    plain, like, short_ones = of("plain"), of("as often as fill"), of("as often as fill", 4)
    assert plain["decisions"] == 10 and short_ones["decisions"] == 10 * events / 4
    assert torch.equal(plain.pop("pnl"), like.pop("pnl")) and plain == pytest.approx(like)
    config = study.market_of(study.Asked(preset, "plain", events))["config"].replace(interval=4)
    settings = {"horizon": 10 * events // 4, "warmup": 20 * events // 4, "max_qty": 9, "engine": "cpu"}
    envs = evaluation_env(12, config=config, **settings)
    alike = study.play(FixedSpread(envs.core.task, half_spread=2, qty=9), envs, HELD_OUT_SEED, events)
    assert torch.equal(short_ones["pnl"], alike["pnl"]) and short_ones["pnl"].any()


@pytest.mark.parametrize("variant", ["plain", "fill", "touch", "ladder"])
def test_what_is_counted_is_what_evaluate_counts(variant, short):
    made = learner("continuous", variant)
    envs = made.held_out
    policy = FixedSpread(envs.core.task, half_spread=2, qty=3)
    played, result = study.play(policy, envs, 7, 20), evaluate(policy, envs, 7)
    assert played["pnl"].tolist() == result.pnl.tolist() and played["quoted"] == 3 and played["traded"] > 0
    assert played["traded"] == pytest.approx(result.traded.mean())
    assert played["inventory"] == pytest.approx(result.inventory.mean())
    mean = evaluate(made.networks.act, envs, HELD_OUT_SEED)
    assert made.play()["pnl"].tolist() == pytest.approx(mean.pnl.tolist())


def test_what_is_kept_is_counted(short):
    envs = learner("news", "keep, ladder").held_out

    def act(observation):
        action = torch.zeros(len(observation), 18)
        action[:, [4, 10, 11]] = 0.5  # of level 0 the bid, of level 1 both
        return action

    assert study.play(act, envs, 7, 48)["kept"] == pytest.approx(3 / 6)


def test_seeds_train_as_the_example_does_one_after_another(tmp_path, short):
    """The networks that a learner ends with are those of `ppo_fast.train`, whatever it has trained before."""
    made = learner("continuous", "fill")
    made.train(2)
    trained = made.train(1)
    found = {name: value.clone() for name, value in made.networks.state_dict().items()}
    other, ppo = learner("continuous", "fill"), study.ppo_fast
    other.args.seed, other.args.output, other.args.eval_every = 1, tmp_path, 2**31
    torch.manual_seed(1)
    networks = ppo.ActorCritic(*other.sizes, other.args.hidden, other.args.initial_std)
    watched = evaluation_env(2, **study.market_of(other.asked), engine="cpu")
    ppo.train(other.args, other.envs, networks, watched)
    assert all(torch.equal(found[name], value) for name, value in networks.state_dict().items())
    assert trained["steps"] == 1024 and 1024 < trained["events"] < 20 * 1024
    assert [point[0] for point in trained["curve"]][-1] == 1024


def test_gamma_means_the_same_for_all():
    events = study.events_of("news")
    gammas = {longest: learner("news", "shorter than touch", longest).args.gamma for longest in (3, events)}
    assert gammas[events] == study.GAMMA and gammas[3] ** (events / 3) == pytest.approx(study.GAMMA)
    made = learner("news", "touch")
    assert made.args.gamma == study.GAMMA and made.trainer.longest == events


@pytest.mark.parametrize(
    ("preset", "wanted", "nearest", "below", "above"),
    [("news", 13.2, 12, 12, 15), ("news", 2.9, 3, 2, 3), ("news", 3.0, 3, 3, 3), ("news", 48.0, 48, 48, 48)]
    + [("continuous", 13.8, 15, 12, 15), ("continuous", 1.7, 2, 1, 2)],
)
def test_decisions_of_a_fixed_number_of_events_fit_into_an_episode(preset, wanted, nearest, below, above):
    found = [study.as_short(preset, wanted, which) for which in ("nearest", "below", "above")]
    assert found == [nearest, below, above]


@slow
def test_learners_are_compiled_for_in_processes_of_their_own():
    asked = [study.Asked("continuous", "ladder", 20)]
    processes = study.begin_to_compile(asked, BUDGET)
    study.wait_for(processes)
    assert [process.exitcode for process in processes] == [0]


@pytest.mark.gpu
@pytest.mark.timeout(900)  # nine makers, of each of which kernels are compiled
def test_the_study_runs_on_a_gpu(tmp_path, short, monkeypatch):
    monkeypatch.setattr(command, "PRESETS", study.PRESETS[:1])  # each maker is compiled for
    runs = tmp_path / "trainings.jsonl"
    few = ["--engine", "cuda", "--markets", "1024", "--steps", str(2**17), "--episodes", "1024", "--seeds", "2"]
    command.main([*few, "--runs", str(runs), "--only", "train"])
    records = command.written(runs)
    assert len(records) == len(study.VARIANTS) * 2
    assert all(record["seconds"] > 0 and torch.tensor(record["pnl"]).isfinite().all() for record in records)
