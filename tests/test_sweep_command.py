"""`python -m kineticsim_env sweep FILE.toml`: what the file says, what options say before it, and what is refused."""

from pathlib import Path

import pytest
from messages import mentions

import kineticsim_env as ks
from kineticsim_env.cli import main
from kineticsim_env.runtime import build
from kineticsim_env.sweeps import local
from kineticsim_env.sweeps.command import read_file

pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

ENGINE = "numpy" if build.cpu_unavailable() else "cpu"
TRADERS = Path(__file__).parent / "agent_classes.py"
FILE = f"""
intervals = 10
statistics = ["volume", "kurtosis(span=2)"]
design = "random"
points = 6
replicates = 2
warm_up = 3
engine = "{ENGINE}"
folder = "results"

[market]
preset = "trading"
agents = ["agent_classes.py:trend_follower=2,threshold=8"]

[space]
noise_spread = {{ low = 3, high = 12 }}
market_order_prob = {{ low = 0.01, high = 0.5, scale = "log" }}
tie = ["lowest", "mid"]
"trend_follower.lookback" = [3, 9]
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    """A file in the working folder, beside a file of traders."""
    monkeypatch.chdir(tmp_path)
    text = FILE.replace("agent_classes.py", str(TRADERS))
    (tmp_path / "spread.toml").write_text(text)
    return tmp_path / "spread.toml"


def refused(words, capsys):
    assert main(words) == 2
    streams = capsys.readouterr()
    (line,) = [line for line in streams.err.splitlines() if not line.startswith("kineticsim_env: engine")]
    return line


def test_a_file_is_a_sweep(file, capsys):
    from agent_classes import trend_follower

    assert main(["sweep", "spread.toml"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert (
        lines[0]
        == "6 points of noise_spread, market_order_prob, tie, trend_follower.lookback (random), 2 replicates each"
    )
    assert lines[1] == "10 intervals after 3 of warm-up: volume, kurtosis(span=2)"
    assert lines[2].startswith("finished: 6 of 6 points, ") and lines[3] == "folder: results"
    space = {
        "noise_spread": (3, 12),
        "market_order_prob": {"low": 0.01, "high": 0.5, "scale": "log"},
        "tie": ["lowest", "mid"],
        "trend_follower.lookback": [3, 9],
    }
    market = {"preset": "trading", "agents": {trend_follower: ks.mix(2, threshold=8)}}
    same = ks.sweep(space, 10, ["volume", "kurtosis(span=2)"], market=market, design="random", points=6, replicates=2,
                    warm_up=3, engine=ENGINE)  # fmt: skip
    found = ks.open_sweep("results")
    assert found.about == same.about and found.to_pandas().equals(same.to_pandas())


def test_options_come_before_the_file(file, capsys):
    assert main(["sweep", "spread.toml", "--folder", "other", "--part", "1/6"]) == 0
    assert "finished: 1 of 6 points" in capsys.readouterr().out
    assert not Path("results").exists() and main(["sweep", "spread.toml", "--folder", "other"]) == 0
    assert ks.open_sweep("other").is_complete
    for option, value in (("--engine", "cpp"), ("--part", "7/6")):
        line = refused(["sweep", "spread.toml", option, value], capsys)
        assert mentions(line, f"error: {option}: expected .*, got '{value}'", begins=True)


CHANGES = [
    (
        "replicates = 2",
        "replicats = 2",
        "spread.toml: expected one of space, .*, got 'replicats': did you mean 'replicates'?",
    ),
    ("intervals = 10", "", "spread.toml: expected a file with 'space' and 'intervals', got no 'intervals'"),
    ("intervals = 10", "intervals = [", "spread.toml: expected TOML, got what is none: Invalid value"),
    ("noise_spread", "noise_spred", "space: expected .*, got 'noise_spred': did you mean 'noise_spread'?"),
    ("volume", "volum", "statistics: expected .*got 'volum'"),
    ('preset = "trading"', 'prest = "trading"', "market: expected .*, got 'prest': did you mean 'preset'?"),
    ('folder = "results"', "", '--folder: expected --folder, or folder = "..." in the file, got none'),
    ("trend_follower=2", "trend_folower=2", "trend_folower"),
    ("points = 6", "points = 0", "points: expected 1 to 2^31 - 1.*got 0"),
]


@pytest.mark.parametrize(("there", "here", "said"), CHANGES, ids=[said[:50] for *_, said in CHANGES])
def test_files_are_refused_in_one_line(file, capsys, there, here, said):
    text = file.read_text()
    assert there in text
    file.write_text(text.replace(there, here))
    line = refused(["sweep", "spread.toml"], capsys)
    assert line.startswith("error: ") and mentions(line, said) and not Path("results").exists()


def test_who_stops_it_is_told_how_it_goes_on(file, capsys, monkeypatch):
    run_batch = local.run_batch

    def stopped(plan, begin, end, engine, device=None):
        if begin:
            raise KeyboardInterrupt
        return run_batch(plan, begin, end, engine, device)

    monkeypatch.setattr(local, "run_batch", stopped)
    file.write_text("batch = 2\n" + file.read_text())
    assert main(["sweep", "spread.toml"]) == 130
    said = capsys.readouterr().err
    assert "what is finished is in results; the same command goes on from there\n" in said and "interrupted" in said
    monkeypatch.setattr(local, "run_batch", run_batch)
    assert ks.open_sweep("results").finished == 2 and main(["sweep", "spread.toml"]) == 0


def test_a_file_that_is_not_there_is_named(file, capsys):
    assert "No such file" in refused(["sweep", "nowhere.toml"], capsys)
    assert main(["sweep", "spread.toml"]) == 0
    capsys.readouterr()
    file.write_text(file.read_text().replace("intervals = 10", "intervals = 11"))
    assert refused(["sweep", "spread.toml"], capsys).startswith(
        "error: --folder: expected the same sweep, or another folder, got 'results', where another sweep is: "
        "intervals is 10 there and 11 here"
    )


def test_the_example_can_be_read():
    given = read_file(Path(__file__).parent.parent / "examples" / "sweep.toml")
    assert given["folder"] and given["space"] and given["intervals"]
