"""The commands of `examples/studies`, in small: each fills its page with every figure, and draws what that shows."""

import functools
import importlib
import json
import re

import pytest
from thorough import slow

from examples.studies.clearing import __main__ as clearing
from examples.studies.clearing import study as clearing_study
from examples.studies.execution import __main__ as execution
from examples.studies.execution import study as execution_study
from examples.studies.mechanisms import __main__ as mechanisms
from examples.studies.policy_change import __main__ as policy_change
from examples.studies.policy_change import study as policy_study
from examples.studies.prediction import study as prediction_study
from examples.studies.presets import continuous as continuous_preset
from examples.studies.presets import makers
from examples.studies.presets import news as default_market
from examples.studies.presets import trading as trading_preset
from examples.studies.price_impact import __main__ as price_impact
from examples.studies.realistic import __main__ as realistic
from examples.studies.realistic import search as realistic_search
from examples.studies.rewards import __main__ as rewards
from examples.studies.rewards import learning as rewards_learning
from examples.studies.rewards import study as reward_study
from examples.studies.rewards import tables as rewards_tables
from examples.studies.scorecard import __main__ as scorecard
from examples.studies.scorecard import tables as scorecard_tables
from examples.studies.stylised_facts import __main__ as stylised_facts
from kineticsim_env.config import PRESETS, MarketConfig
from kineticsim_env.counterfactuals import causal
from kineticsim_env.evaluation import evaluation_env
from kineticsim_env.statistics import Mean, deviation_and_error, mean_and_error
from kineticsim_env.statistics.facts import FACTS
from scripts.pages import blocks
from scripts.pages.command import command_of, page_parser
from scripts.pages.markdown import pm

PRESET = MarketConfig.preset("trading")

pytest.importorskip("matplotlib")


def written(main, folder, name):
    """Run a command on few markets; return its page, whose pictures are all there, but for those of other commands."""
    main(["--markets", "16", "--engine", "cpu", "--output", str(folder)])
    text = (folder / "README.md").read_text()
    assert f"python -m examples.studies.{name} --markets 16" in " ".join(text.split())
    pictures = set(re.findall(r"\(images/([\w.]+)\)", text))
    drawn = {path.name for path in (folder / "images").iterdir()}
    assert drawn and (drawn < pictures if "." in name else drawn == pictures)
    return text


def test_a_command_says_what_is_not_the_default():
    parser = page_parser("study", None, 64, "of each")
    parser.add_argument("--most-points", type=int, default=3)
    apart = ("results", "engine", "output")
    for words in ([], ["--markets", "16"], ["--most-points", "4"], ["--markets", "2", "--most-points", "0"]):
        given = [*words, "--engine", "numpy", "--output", "elsewhere"]
        said = command_of(parser, parser.parse_args(given), apart)
        assert said.split() == ["python", "-m", "examples.studies.study", *words]


def test_what_rounds_to_zero_has_no_sign():
    assert pm(Mean(-0.04, 0.01, 9), 1) == "0.0 ± 0.0" and pm(Mean(-0.4, 0.1, 9)) == "0 ± 0"
    assert pm(Mean(-0.06, 0.5, 9), 1) == "-0.1 ± 1.2"


@slow
def test_stylised_facts(tmp_path, monkeypatch):
    monkeypatch.setattr(stylised_facts, "AUCTIONS", 60)
    monkeypatch.setattr(stylised_facts, "PUBLISHED_MARKETS", 2)
    monkeypatch.setattr(stylised_facts.measure, "__defaults__", (60, 20, "cpu"))
    text = written_again(stylised_facts, tmp_path, "stylised_facts")
    assert "2 markets per point, 60 auctions" in text and "| 0.15 | " in text


@slow
def test_scorecard(tmp_path, monkeypatch):
    """Filled from few markets, it has the figures of these; what it claims is held to the committed ones."""
    monkeypatch.setattr(scorecard, "AGGREGATES", (1, 2))
    text = written(lambda words: scorecard.main([*words, "--intervals", "400"]), tmp_path, "scorecard")
    assert "16 markets of each preset, 400 intervals" in " ".join(text.split())
    assert all(fact.source in text and fact.time_scale in text for fact in FACTS)
    stored = json.loads((tmp_path / "results.json").read_text())["cards"]["realistic"]
    card = scorecard_tables.cards({"cards": {"realistic": stored}}, 300)["realistic"]
    assert f"| 5 min | `realistic` | {card.known} | {card.met} |" in text
    assert [column.name for column in card.beside] == ["fundamental path", "zero intelligence", "random walk"]


@slow
def test_price_impact(tmp_path, monkeypatch):
    monkeypatch.setattr(causal, "RESAMPLES", 20)
    monkeypatch.setattr(price_impact, "INTERVALS", 60)
    monkeypatch.setattr(price_impact, "LONGER", (1, 2, 3, 4))
    text = written_again(price_impact, tmp_path, "price_impact")
    assert all(
        f"| `{name}` | " in text and f"| {label} | " in text for name in PRESETS for label in price_impact.HELD_BY
    )
    found = json.loads((tmp_path / "results.json").read_text())["found"]
    for name, figures in found.items():
        seen = {what: Mean(*value).mean for what, value in figures["observed"].items() if what not in ("size", "mid")}
        parts = seen["ahead"] + seen["fundamental"] + seen["off"]  # which make the response, market by market
        assert parts == pytest.approx(figures["observed"]["mid"][1][0]), name
        assert (figures["events"] is not None) == MarketConfig.preset(name).is_continuous


@slow
def test_trading_preset(tmp_path, monkeypatch):
    monkeypatch.setattr(trading_preset, "HALF_SPREADS", (2, 3))
    monkeypatch.setattr(trading_preset, "SKEWS", (0.0, trading_preset.SKEW))
    monkeypatch.setattr(makers, "AUCTIONS", 100)
    monkeypatch.setattr(makers, "DEPTH_TIMES", (20, 40))
    text = written_again(trading_preset, tmp_path, "presets.trading")
    assert all(f"| {name} | " in text and f"**{name}**" in text for name in trading_preset.CANDIDATES)
    rows = json.loads((tmp_path / "trading.json").read_text())["makers"]["trading"]
    games = {(row["skew"], row["half"]): makers.play(PRESET, row["half"], row["skew"], 16, "cpu") for row in rows}
    plain = max((games[0.0, half] for half in (2, 3)), key=lambda game: game.pnl.mean())
    for row in rows:
        game = games[row["skew"], row["half"]]
        assert tuple(row["gain"]) == mean_and_error(game.pnl - plain.pnl)  # paired
        assert tuple(row["risk"]) == deviation_and_error(game.pnl, plain.pnl)
        assert tuple(row["surplus"]) == mean_and_error(game.bought - game.sold)


@slow
def test_continuous_preset(tmp_path, monkeypatch):
    monkeypatch.setattr(trading_preset, "HALF_SPREADS", (2, 3))
    monkeypatch.setattr(continuous_preset, "SKEWS", (0.0, continuous_preset.SKEW))
    monkeypatch.setattr(makers, "AUCTIONS", 100)
    monkeypatch.setattr(makers, "DEPTH_TIMES", (20, 40))
    text = written_again(continuous_preset, tmp_path, "presets.continuous")
    assert all(f"| {name} | " in text and f"**{name}**" in text for name in continuous_preset.CANDIDATES)
    late = json.loads((tmp_path / "continuous.json").read_text())["late"]
    assert [(row["half"], row["events"]) for row in late] == [
        (half, events) for half in (2, 3) for events in (0, 10, 20)
    ]
    for before, after in zip(late, late[1:], strict=False):
        if before["half"] == after["half"]:
            assert after["less"][0] == pytest.approx(after["pnl"][0] - before["pnl"][0])


@slow
def test_mechanisms(tmp_path, monkeypatch):
    monkeypatch.setattr(mechanisms, "INTERVALS", (1, 20, 100))
    text = written_again(mechanisms, tmp_path, "mechanisms")
    assert "| continuous | " in text and "| 20 | " in text and "| 1,000 | " not in text


@slow
def test_default_market(tmp_path, monkeypatch):
    short = functools.partial(evaluation_env, horizon=40)
    monkeypatch.setattr("examples.studies.presets.episodes.evaluation_env", short)
    monkeypatch.setattr("examples.studies.presets.episodes.AUCTIONS", 40)
    monkeypatch.setattr("examples.studies.attacks.study.evaluation_env", short)
    monkeypatch.setattr("examples.studies.presets.goals.HALF_SPREADS", (2, 4))
    monkeypatch.setattr(default_market, "ALONE", {"WashTrade": default_market.ALONE["WashTrade"]})
    monkeypatch.setattr(default_market, "TOGETHER", {})
    names = default_market.rivals()
    text = written_again(default_market, tmp_path, "presets.news")
    assert all(f"| {name} |" in text for name in names) and "of 1 lose" in text


@slow
def test_rewards(tmp_path, monkeypatch):
    grids = {
        "MarketMaking": {"half_spread": (2, 4), "qty": (2, 4, 8), "skew": (0.0,)},
        "Trading": {"direction": (1, -1), "threshold": (1,), "ticks": (-2, 2), "position": (8,)},
        "Execution": {"ticks": (-2, 2), "qty": (2, 4)},
    }
    for module in (reward_study, rewards, rewards_tables):
        monkeypatch.setattr(module, "GRIDS", grids)
    monkeypatch.setattr(reward_study, "evaluation_env", functools.partial(evaluation_env, horizon=25))
    monkeypatch.setattr(rewards, "PRESETS", ("trading", "news"))
    text = written(rewards.main, tmp_path, "rewards")
    assert "| `news` | executor | " in text and "| **edge, fundamental** |" in text
    rewards.main(["--results", str(tmp_path / "results.json"), "--output", str(tmp_path)])
    assert (tmp_path / "README.md").read_text() == text


@slow
def test_realistic(tmp_path):
    """The search is measured apart: the page takes the committed one, or that beside it."""
    few = ["--intervals", "400"]
    text = written(lambda words: realistic.main(words + few), tmp_path, "realistic")
    assert f"`python -m examples.studies.realistic --markets 16 {' '.join(few)}`" in " ".join(text.split())
    assert all(asked.measured in text for asked in realistic.study.ASKED.values()) and "257 markets with" in text
    assert "fundamental path alone | no splitters |" in text and not (tmp_path / "search.json").exists()
    small = ["--engine", "cpu", "--markets", "4", "--points", "2", *few, "--output", str(tmp_path)]
    realistic_search.main(small)
    assert "5 markets with" in (tmp_path / "README.md").read_text()
    again = (tmp_path / "README.md").read_text()
    realistic.main(["--results", str(tmp_path / "results.json"), "--output", str(tmp_path)])
    assert (tmp_path / "README.md").read_text() == again


@slow
def test_calibration(tmp_path):
    pytest.importorskip("sbi")
    from examples.studies.calibration import __main__ as calibration

    few = ["--simulations", "100", "--held-out", "4", "--intervals", "100"]
    calibration.main([*few, "--engine", "cpu", "--output", str(tmp_path)])
    text = (tmp_path / "README.md").read_text()
    assert " ".join(["python -m examples.studies.calibration", *few]) in " ".join(text.split())
    pictures = re.findall(r"\(images/([\w.]+)\)", text)
    assert pictures and {path.name for path in (tmp_path / "images").iterdir()} == set(pictures)
    calibration.main(["--results", str(tmp_path / "results.json"), "--output", str(tmp_path)])
    assert (tmp_path / "README.md").read_text() == text


@slow
def test_rewards_learning(tmp_path, monkeypatch):
    monkeypatch.setattr(rewards_learning, "PLACES", {("news", "Trading"): tuple(rewards_learning.REWARDS)})
    monkeypatch.setattr(rewards_learning, "MARKETS", 4)
    small = functools.partial(evaluation_env, horizon=9, bank_size=2, warmup=5)
    monkeypatch.setattr(rewards_learning, "evaluation_env", small)
    words = ["--steps", "256", "--seeds", "2", "--markets", "3", "--engine", "cpu", "--output", str(tmp_path)]
    rewards_learning.main(words)
    record = json.loads((tmp_path / "learning.json").read_text())
    assert [row["reward"] for row in record["rows"]] == list(rewards_learning.REWARDS)
    assert all(len(row["runs"]) == 2 for row in record["rows"])
    text = (tmp_path / "README.md").read_text()
    assert rewards_tables.learning_table(record) in text and "after 256 decisions" in " ".join(text.split())


def written_again(module, folder, name):
    """Run a command, and again from its figures; returns the page, which has to be the same."""
    text = written(module.main, folder, name)
    results = folder / f"{name.partition('.')[2] or 'results'}.json"
    module.main(["--results", str(results), "--output", str(folder)])
    assert (folder / "README.md").read_text() == text
    return " ".join(text.split())


STUDIES = [page.parent for page in sorted(blocks.STUDIES.glob("*/README.md"))]
COMMANDS = [".".join(path.relative_to(blocks.STUDIES.parents[1]).with_suffix("").parts)
            for path in sorted(blocks.STUDIES.glob("*/*.py")) if "def main(" in path.read_text()]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_called_as_it_says(command, capsys):
    try:
        module = importlib.import_module(command)
    except ModuleNotFoundError as error:
        pytest.skip(str(error))
    with pytest.raises(SystemExit, match="0"):
        module.main(["--help"])
    called = f"python -m {command.removesuffix('.__main__')}"
    assert capsys.readouterr().out.startswith(f"usage: {called} ") and f"`{called}" in module.__doc__


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_a_page_with_blocks_is_that_of_its_results(tmp_path, capsys, study):
    """Its tables and numbers are those of the committed results, which show all that it claims."""
    for stored in study.glob("*.json"):
        (tmp_path / stored.name).write_text(stored.read_text())
    blocks.fill(tmp_path, study.name)
    text = (tmp_path / "README.md").read_text()
    assert text == (study / "README.md").read_text() and "[[[cog" in text
    assert "do not show" not in capsys.readouterr().out


@slow
def test_clearing(tmp_path, monkeypatch):
    monkeypatch.setattr(clearing_study, "WARMUP", 4096)
    monkeypatch.setattr(clearing_study, "EVENTS", 4096)
    monkeypatch.setattr(clearing_study, "DISTANCES", (2, 8))
    monkeypatch.setattr(clearing, "GENERATIONS", 2)
    small = functools.partial(clearing.learning.learn, markets=1, population=4)
    monkeypatch.setattr(clearing.learning, "learn", small)
    pytest.importorskip("cma")
    text = written_again(clearing, tmp_path, "clearing")
    assert "| 4,096 |" in text and "Budish, Cramton and Shim (2015)" in text
    found = json.loads((tmp_path / "results.json").read_text())
    rows = found["slots"]["rows"]
    assert len(rows) == len(found["prices"]["rows"]) == 2 * 3 * len(clearing_study.RULES)
    assert "2 generations of 12" in text and " 156 slots that learned" in text
    assert {len(row["numbers"]["learned_maker_4096"]) for row in rows} == {8}
    assert all(len(row["numbers"]) == (4 if row["interval"] <= clearing_study.OFTEN else 2) for row in rows)
    for name in ("mid", "last"):
        errors = {row["interval"]: row[name][0] for row in found["prices"]["rows"] if row["reference"] == "mid"}
        assert f"{errors[64]:.2f} ± " in text
    clearing.main(["--part", "prices", "--markets", "4", "--engine", "cpu", "--output", str(tmp_path)])
    again = json.loads((tmp_path / "results.json").read_text())
    assert again["slots"] == found["slots"] and again["prices"]["setting"]["markets"] == 4
    with pytest.raises(ValueError, match=r"--part: the other part is kept from .*results.json, which is not there"):
        clearing.main(["--part", "slots", "--output", str(tmp_path / "elsewhere")])


@slow
def test_policy_change(tmp_path, monkeypatch):
    monkeypatch.setattr(policy_study, "WARMUP", 10)
    text = written_again(policy_change, tmp_path, "policy_change")
    assert all(f" {name} |" in text for name in list(policy_study.CHANGES)[1:])
    found = json.loads((tmp_path / "results.json").read_text())["found"]
    path = found["trading"]["call auctions"]["volume"]["path"]
    before = policy_study.BEFORE // policy_change.BIN
    assert all(mean == 0 for values in path.values() for mean, _, _ in values[:before])
    assert any(mean != 0 for mean, _, _ in path["tick size of 4"][before:])


@slow
def test_execution(tmp_path, monkeypatch):
    pytest.importorskip("cma")
    monkeypatch.setattr(execution_study, "EVENTS", 960)
    monkeypatch.setattr(execution, "GENERATIONS", 1)
    small = functools.partial(execution.learning.learn, markets=4, population=4, progress=False)
    monkeypatch.setattr(execution.learning, "learn", small)
    monkeypatch.setattr(execution_study, "TIMES", (192, 576, 960))
    text = written_again(execution, tmp_path, "execution")
    found = json.loads((tmp_path / "results.json").read_text())
    assert len(found["paced"]) == 3 * 3 * 4 * 4 and len(found["best"]) == 3 * 3 * 4
    assert [row["looks"] for row in found["learned"]] == [False, True] * 8
    assert "| Almgren-Chriss 0.001 |" in text


PAGE = """# A page
<!-- [[[cog
from scripts.pages.blocks import *
found = results()
holds(found["error"][0] < 4, "it is near")
]]] -->
<!-- [[[end]]] -->

It is off by <!-- [[[cog say(pm(mean(found["error"]), 2)) ]]] -->
nothing
ticks<!-- [[[end]]] -->, which is near.
"""


def test_a_page_is_filled_and_says_only_what_its_results_show(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(blocks, "STUDIES", tmp_path)
    own, elsewhere = tmp_path / "near", tmp_path / "elsewhere"
    for folder, error in ((own, [3.0, 0.5, 1 << 20]), (elsewhere, [5.0, 0.5, 1 << 20])):
        folder.mkdir()
        (folder / "results.json").write_text(json.dumps({"error": error}))
    (own / "README.md").write_text(PAGE)
    blocks.fill(own, "near")
    assert (own / "README.md").read_text() == PAGE.replace("nothing", "3.00 ± 0.98")
    capsys.readouterr()
    blocks.fill(elsewhere, "near")  # of somebody's own results: what they do not show is said, and the page is written
    assert "these results do not show that it is near" in capsys.readouterr().out
    assert "5.00 ± 0.98" in (elsewhere / "README.md").read_text()
    (own / "results.json").write_text(json.dumps({"error": [5.0, 0.5, 1 << 20]}))
    with pytest.raises(Exception, match="it says that it is near, and its results do not: edit the page"):
        blocks.fill(own, "near")
    assert "3.00 ± 0.98" in (own / "README.md").read_text()


@slow
def test_prediction(tmp_path, monkeypatch, capsys):
    pytest.importorskip("sklearn")
    from examples.studies.prediction import __main__ as prediction

    monkeypatch.setattr(prediction_study, "HALF_SPREADS", (2,))
    monkeypatch.setattr(prediction_study, "THRESHOLDS", (0.5,))
    short = functools.partial(evaluation_env, horizon=40, bank_size=2, warmup=5)
    monkeypatch.setattr("examples.studies.presets.episodes.evaluation_env", short)
    text = written_again(prediction, tmp_path, "prediction")
    assert (
        "| null: fitted to the changes of other markets |" in text
        and "these results do not show" in capsys.readouterr().out
    )


@slow
def test_adverse_selection(tmp_path, monkeypatch):
    from examples.studies.adverse_selection import __main__ as adverse_selection

    monkeypatch.setattr(adverse_selection.glosten_milgrom, "COUNTS", (2, 18))
    monkeypatch.setattr(adverse_selection.glosten_milgrom, "WARMUP", 20)
    adverse_selection.main(["--markets", "4", "--intervals", "40", "--engine", "cpu", "--output", str(tmp_path)])
    text = (tmp_path / "README.md").read_text()
    assert "| informed | 5% | 45% |" in text and (tmp_path / "images" / "adverse_selection.png").exists()
    adverse_selection.main(["--results", str(tmp_path / "results.json"), "--output", str(tmp_path)])
    assert (tmp_path / "README.md").read_text() == text
