"""What measures the rows of docs/performance.md, in small; and what writes the page's tables from the figures."""

import json
import sys
from pathlib import Path

import pytest
import torch
from thorough import slow

from scripts.benchmarks import performance as figures
from scripts.benchmarks import performance_kinds
from scripts.pages import performance

ROOT = Path(__file__).parent.parent
SCALING = ROOT / "docs" / "benchmarks" / "scaling_h200.json"


@pytest.fixture(scope="module")
def script():
    """Return the script; torch has as many threads afterwards as before."""
    threads = torch.get_num_threads()
    yield figures
    torch.set_num_threads(threads)


def invented(script) -> dict:
    """Return a file of figures, each of them another number."""
    found = []
    for at, row in enumerate(script.rows()):
        number = 1.0 + at / 1000
        rates = {
            f"{what}_per_s": number * 1e9 for what in ("events", "steps", "hashes", "training_steps", "rollout_steps")
        }
        found.append(
            row | rates | {"us_per_step": 10 * number, "us_per_auction": number, "bytes": 18e6, "seconds": 0.5}
        )
    found += [{"group": "learning", "name": name, "ahead_wall_s": 2.0} for name in ("default", "fast")]
    return {"machine": {"date": "2031-01-02T", "gpu": "G", "driver": "D", "cpu": "C"}, "rows": found}


def test_rows_have_names_of_their_own_and_known_kinds(script):
    rows = script.rows()
    names = [(row["group"], row["name"]) for row in rows]
    assert len(set(names)) == len(names) > 80
    assert {row["group"] for row in rows} == set(script.GROUPS)
    assert {row["kind"] for row in rows} == set(script.KINDS)


@slow
def test_rows_are_measured_in_small(script, tmp_path, monkeypatch):
    path = tmp_path / "figures.json"
    words = ["--output", str(path), "--scale", "4096", "--seconds", "0", "--groups"]
    run = tmp_path / "run"
    run.mkdir()
    curve = [{"steps": 10, "seconds": 2.0}]
    (run / "results.json").write_text(json.dumps({"curve": curve, "args": {"fast": True}, "ahead": {"wall": 1.5}}))
    for more in (["engine", "memory"], ["learners", "--resume", "--learning", str(run)]):
        monkeypatch.setattr(sys, "argv", ["scripts.benchmarks.performance", *words, *more])
        script.main()
    rows = json.loads(path.read_text())["rows"]
    assert not [row["failed"] for row in rows if "failed" in row]
    groups = [row["group"] for row in rows]
    assert set(groups) == {"engine", "memory", "learners", "learning"}
    by_name = {row["name"]: row for row in rows}
    own, general = (by_name[f"trading, 256 agents{end}"] for end in ("", ", parameters not compiled in"))
    assert own["digest"] == general["digest"] != by_name["paper, 256 agents"]["digest"]
    one = by_name["paper, 1024 agents"]
    assert one["events_per_s"] * one["us_per_auction"] * 1e-6 == pytest.approx(one["markets"] * 1024)
    own = {"group": "learning", "name": "fast", "steps_per_s": 5.0, "ahead_wall_s": 1.5}
    assert by_name["fast"] == own | {"run": by_name["two makers, 1024 markets"]["run"]}


@slow
def test_markets_on_the_clock_are_measured_in_small_and_beside_what_was_there(script, tmp_path, monkeypatch):
    path = tmp_path / "figures.json"
    words = ["--output", str(path), "--scale", str(1 << 18), "--seconds", "0", "--groups"]
    for more in (["memory"], ["clock", "--resume", "--only", "trading", "steps"], ["clock", "--resume", "--missing"]):
        monkeypatch.setattr(sys, "argv", ["scripts.benchmarks.performance", *words, *more])
        script.main()
    data = json.loads(path.read_text())
    assert not [row["failed"] for row in data["rows"] if "failed" in row]
    assert {row.get("run") for row in data["rows"] if row["group"] == "clock"} == set(data["runs"])
    names = [row["name"] for row in data["rows"] if row["group"] == "clock"]
    assert names[0] == "continuous, trading, 20 agents" and names[-1].startswith("continuous, paper"), (
        "missing ones later"
    )
    assert sorted(names) == sorted(row["name"] for row in script.rows() if row["group"] == "clock")
    assert [row for row in data["rows"] if row["group"] == "memory" and "run" not in row]
    clock = {row["name"]: row for row in data["rows"] if row["group"] == "clock"}
    digests = [clock[f"{name}, trading, 20 agents"]["digest"] for name in ("continuous", "call", "each")]
    assert len(set(digests)) == 3
    one, large = (clock[f"continuous, trading, 20 agents{end}"] for end in ("", ", 1024 markets"))
    assert one["digest"] == large["digest"]  # the same market, by the same seed


@slow
def test_the_default_market_is_measured_in_small(script, tmp_path, monkeypatch):
    path = tmp_path / "figures.json"
    words = ["--output", str(path), "--scale", str(1 << 16), "--seconds", "0", "--groups", "default"]
    monkeypatch.setattr(sys, "argv", ["scripts.benchmarks.performance", *words])
    script.main()
    rows = {row["name"]: row for row in json.loads(path.read_text())["rows"]}
    assert not [row["failed"] for row in rows.values() if "failed" in row]
    for row in rows.values():  # each market plays the events of the preset's interval, whatever agents it has
        if row["kind"] == "Auctions":
            orders = (20 if row["preset"] == "trading" else script.PRESETS["news"]["interval"]) * row["markets"]
            assert row["events_per_s"] * row["us_per_auction"] * 1e-6 == pytest.approx(orders)
    digest = {name: row["digest"] for name, row in rows.items()}
    assert len({digest[f"{what}, 1024 markets"] for what in ("MarketMaking", "Execution", "opponents", "reward")}) == 4
    for name in ("1 markets", "64 markets", "1024 markets, Python, copy=True", "1024 markets, two cores"):
        assert digest[f"MarketMaking, {name}"] == digest["MarketMaking, 1024 markets"]  # the same market, alone


def test_steps_of_whole_episodes_are_as_many_as_these_have(script):
    opened = script.KINDS["Steps"](markets=1, preset="news", agents=None, episodes=3, task="Execution", device="cpu")
    horizon = opened._envs.core.task.horizon
    steps = opened._replays * performance_kinds.STEPS_IN_GRAPH
    assert 3 * horizon <= steps < 3 * horizon + performance_kinds.STEPS_IN_GRAPH
    assert opened._envs.core.config.num_agents == 40
    opened.close()


def run_of(script, day: str) -> dict:
    return {"machine": {"date": day, "gpu": "G", "driver": "D", "cpu": "C"}, "presets": script.PRESETS}


def test_rows_stay_with_the_run_that_measured_them(script):
    memory, clock, call = (
        {"group": group, "name": name} for group, name in (("memory", "a"), ("clock", "b"), ("clock", "c"))
    )
    data, mark = script.joined(None, run_of(script, "day 1"), [memory])
    assert not mark and data == run_of(script, "day 1") | {"rows": []}
    data["rows"] += [memory, clock, call]
    for day in ("day 2", "day 3"):  # a run of which no row is left is forgotten
        data, mark = script.joined(data, run_of(script, day), [clock])
        data["rows"].append(clock | mark)
    assert data["machine"]["date"] == "day 1" and data["runs"] == {"day 3": run_of(script, "day 3")}
    assert data["rows"] == [memory, call, clock | {"run": "day 3"}]
    data, mark = script.joined(data, run_of(script, "day 4"), [memory, clock, call])
    assert not mark and data == run_of(script, "day 4") | {"rows": []}


def test_rows_of_another_file_come_with_its_runs(script, tmp_path, monkeypatch):
    def row(name, **more):
        return {"group": "clock", "name": name, **more}

    here, there = tmp_path / "here.json", tmp_path / "there.json"
    here.write_text(json.dumps(run_of(script, "day 1") | {"rows": [row("a"), row("b", figure=1)]}))
    other = {"rows": [row("b", figure=2), row("c", run="day 3")], "runs": {"day 3": run_of(script, "day 3")}}
    there.write_text(json.dumps(run_of(script, "day 2") | other))
    words = ["--take", str(there), "--output", str(here)]
    monkeypatch.setattr(sys, "argv", ["scripts.benchmarks.performance", *words])
    script.main()
    data = json.loads(here.read_text())
    assert data["rows"] == [row("a"), row("b", figure=2, run="day 2"), row("c", run="day 3")]
    assert data["machine"]["date"] == "day 1"
    assert {name: run["machine"]["date"] for name, run in data["runs"].items()} == {"day 2": "day 2", "day 3": "day 3"}


def test_a_row_that_fails_says_why_and_others_go_on(script):
    row = script.measured({"group": "engine", "name": "odd", "kind": "Auctions", "agents": -1, "markets": 1})
    assert "num_agents" in row["failed"]


def words_of(source: Path, page: Path, readme: Path) -> list[str]:
    """Return the words of the command that writes pages beside the page, of the repository's log a copy."""
    log = page.with_name("log.md")
    log.write_text((ROOT / "docs" / "performance_log.md").read_text())
    places = {"figures": source, "scaling": SCALING, "page": page, "readme": readme, "log": log}
    places |= {"policies": page.with_name("none.json"), "training": SCALING.with_name("training_h200.json")}
    return [word for name, path in places.items() for word in (f"--{name}", str(path))]


def test_the_log_has_what_the_default_market_took_before(script, tmp_path):
    data, source = invented(script), tmp_path / "figures.json"
    before = json.loads((ROOT / "docs" / "benchmarks" / "before_h200.json").read_text())["rows"]
    rows = {(row["group"], row["name"]): row for row in data["rows"]}
    taken = {(row["group"], row["name"]): row for row in before}
    was, another = taken[key := ("default", "MarketMaking, 65536 markets")], taken[slow := ("levels", "64")]
    for of, time in ((key, was["us_per_step"] / 4), (slow, another["us_per_auction"] * 2)):
        rows[of] |= {name: time for name in ("us_per_step", "us_per_auction") if name in rows[of]}
        rows[of]["digest"] = taken[of]["digest"]
    source.write_text(json.dumps(data))
    page, readme = tmp_path / "page.md", tmp_path / "README.md"
    page.write_text((ROOT / "docs" / "performance.md").read_text())
    readme.write_text((ROOT / "README.md").read_text())
    performance.main(words := words_of(source, page, readme))
    log = (tmp_path / "log.md").read_text()
    assert f"| {was['name']} | {was['us_per_step']:.1f} us | {was['us_per_step'] / 4:.1f} us | 4.00 |" in log
    changes = log.partition("<!-- changes")[2].partition("<!-- end")[0]
    assert "one core" not in changes
    slower = changes.replace("\n", " ").partition("Slower by more than 3%: ")[2]
    assert "`levels`, 64 (0.50)" in slower and "default" not in slower
    rows[key]["digest"] = "other bits"
    source.write_text(json.dumps(data))
    with pytest.raises(ValueError, match=f"{was['name']}: other bits than before"):
        performance.main(words)


def test_pages_are_written_from_the_figures(script, tmp_path):
    data = invented(script)
    source, page, readme = tmp_path / "figures.json", tmp_path / "page.md", tmp_path / "README.md"
    source.write_text(json.dumps(data))
    words = words_of(source, page, readme)
    for _ in range(2):  # what is written can be written again
        page.write_text(page.read_text() if page.exists() else (ROOT / "docs" / "performance.md").read_text())
        readme.write_text(readme.read_text() if readme.exists() else (ROOT / "README.md").read_text())
        performance.main(words)
    figures = {(row["group"], row["name"]): row for row in data["rows"]}
    text = page.read_text()
    for group, name in (("levels", "8192"), ("agents", "1"), ("markets", "16384"), ("engine", "trading, 1024 agents")):
        assert performance.rate(figures[group, name]["events_per_s"], 1e9) in text
    reached = performance.rate(figures["engine", "paper, 256 agents"]["events_per_s"])
    assert f"agent-events/s in call auctions, preset `paper`, 256 agents | {reached} |" in readme.read_text()
    by_hand = "## The roofline of an event"
    assert by_hand in text and text.count("<!-- end -->") == 10
    assert (
        text.partition(by_hand)[2][:500] == (ROOT / "docs" / "performance.md").read_text().partition(by_hand)[2][:500]
    )


def test_markets_on_the_clock_have_their_section_once_they_are_measured(script, tmp_path):
    data, source = invented(script), tmp_path / "figures.json"
    data["runs"] = {"later": {"machine": data["machine"] | {"date": "2032-03-04T", "gpu": "another"}}}
    others = [row for row in data["rows"] if row["group"] != "clock"]
    clock = {row["name"]: row | {"run": "later"} for row in data["rows"] if row["group"] == "clock"}
    rates = {
        "continuous, trading, 64 agents": 39.9e9,
        "call, paper, 256 agents": 66e9,
        "each, paper, 256 agents": 100e9,
    }
    for name, found in rates.items():
        clock[name]["events_per_s"] = found
    page, readme = tmp_path / "page.md", tmp_path / "README.md"
    words = words_of(source, page, readme)
    page.write_text((ROOT / "docs" / "performance.md").read_text())
    readme.write_text((ROOT / "README.md").read_text())
    for rows in ([*others, *clock.values()], others):
        source.write_text(json.dumps(data | {"rows": rows}))
        performance.main(words)
        text = " ".join(page.read_text().split())
        there = len(rows) > len(others)
        assert ("## Markets on the clock" in text) == there == ("2032-03-04; another" in text)
        assert ("64 agents, 65,536 markets, orders/s | 40.0 G | 39.9 G |" in text) == there
        assert ("| 0.65 | **0.66** |" in text) == there == ("`trading`, 64 agents | 39.9 G |" in text)
        assert "2031-01-02; G, driver D" in text and "another run" not in text


def test_the_default_market_stands_first_and_what_is_missing_is_left_out(script, tmp_path):
    data, source = invented(script), tmp_path / "figures.json"
    step = next(row for row in data["rows"] if row["name"] == "MarketMaking, 65536 markets")
    step |= {"us_per_step": 123.4, "steps_per_s": 531e6}
    late = next(row for row in data["rows"] if row["name"] == "Execution, 65536 markets" and row["group"] == "default")
    late["us_per_step"] = 2 * 123.4
    page, readme = tmp_path / "page.md", tmp_path / "README.md"
    words = words_of(source, page, readme)

    def written(rows: list) -> tuple[str, str]:
        page.write_text((ROOT / "docs" / "performance.md").read_text())
        readme.write_text((ROOT / "README.md").read_text())
        source.write_text(json.dumps(data | {"rows": rows}))
        performance.main(words)
        return page.read_text(), readme.read_text()

    text, first = written(data["rows"])
    section, _, others = text.partition("## Where call auctions stand")
    assert "## The default market" in section and "interval of 48 orders" in " ".join(section.split())
    assert "| 65,536 | 123.4 us | 531 M |" in section and "123.4 us" not in others
    assert section.count("| 2.00 |") == 1 and "with three opponents" in section and "| two cores |" in section
    assert first.index("The default market, `news`,") < first.index("| 531 M |") < first.index("`paper`, 256 agents")

    without = (
        "opponents",
        "programs",
        "MarketMaking, 262144",
        "run, one",
        "MarketMaking, 1024 markets, one",
        "Execution, 65536",
    )
    kept = [row for row in data["rows"] if not (row["group"] == "default" and row["name"].startswith(without))]
    section = written(kept)[0].partition("## Where call auctions stand")[0]
    assert "three opponents" not in section and "| one core |" not in section and "| 2.00 |" not in section
    assert "| 262,144 |  |  |" in section and "| two cores |" in section

    text, first = written([row for row in data["rows"] if row["group"] != "default"])
    assert (
        "## The default market" not in text
        and "The default market, `news`" not in first
        and "interval of 48" not in first
    )


def test_what_policies_take_stands_beside_steps_where_it_was_measured(script, tmp_path):
    data, source = invented(script), tmp_path / "figures.json"
    rows = {row["name"]: row for row in data["rows"] if row["group"] == "default"}
    rows["rollout, 65536 markets"]["us_per_step"] = 150.0
    rows["MarketMaking, 65536 markets"]["us_per_step"] = 120.0
    rows["run, 65536 markets"]["us_per_auction"] = 65.536
    rows["programs, 65536 markets"]["us_per_step"] = 420.0
    rows["evaluate, quiet quotes"]["seconds"] = 0.25
    source.write_text(json.dumps(data))
    section = performance.default(performance.load(source))
    assert "150.0 us (437 M)" in section and "65.5 us (1.00 G)" in section and section.count("| 0.80 |") == 1
    assert "with three opponents that are [programs](slot_policies.md)" in section and "420.0 us (+300.0)" in section
    assert "| quiet quotes | 0.250 |" in section and "a scripted maker, 2,048 held-out episodes" in section
    kept = [row for row in data["rows"] if row.get("kind") not in ("Rollouts", "Evaluations")]
    source.write_text(json.dumps(data | {"rows": kept}))
    section = performance.default(performance.load(source))
    assert "rollout" not in section and "held-out episodes" not in section and "with a custom reward" in section


def test_a_group_measured_later_says_so(script, tmp_path):
    data, source = invented(script), tmp_path / "figures.json"
    data["runs"] = {"later": {"machine": data["machine"] | {"date": "2032-03-04T"}, "presets": script.PRESETS}}
    for row in data["rows"]:
        row |= {"run": "later"} if row["group"] in ("steps", "memory") else {}
    source.write_text(json.dumps(data))
    text = performance.stands(performance.load(source), json.loads(SCALING.read_text()))
    assert "Rows of `memory`, `steps` are of another run (2032-03-04; G" in " ".join(text.split())


def test_figures_without_a_group_are_refused(script, tmp_path):
    data, path = invented(script), tmp_path / "figures.json"
    path.write_text(json.dumps(data | {"rows": [row for row in data["rows"] if row["group"] != "learning"]}))
    with pytest.raises(SystemExit, match="no rows of learning; see"):
        performance.main(["--figures", str(path)])


def test_a_page_without_the_place_is_refused():
    with pytest.raises(ValueError, match="cores: expected one place for it on the page, got 0"):
        performance.replaced("no table here", "cores", "table")


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (464.4e9, 0, "464 G"),
        (1001.6e9, 0, "1,002 G"),
        (9.34e6, 0, "9.34 M"),
        (103e3, 0, "103 k"),
        (1.0674e9, 1e6, "1,067 M"),
    ],
)
def test_rates_have_three_digits(value, unit, text):
    assert performance.rate(value, unit) == text
