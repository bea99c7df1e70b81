"""The examples of traders that users write: what they compute is right, and their commands, page and tutorial run."""

import ast
import re
import subprocess
import sys
import types

import numpy as np
import pytest
from examples_of_traders import FOLDER, load
from strategies import every_engine
from thorough import covering, slow

import kineticsim_env as ks
from kineticsim_env import statistics
from kineticsim_env.agents.language import ProgramError
from kineticsim_env.agents.numbers import Int32

ROOT = FOLDER.parent.parent
SMALL = {
    "trend_follower": ["--counts", "0", "3", "--markets", "4", "--auctions", "40"],
    "private_values": ["--markets", "3", "--auctions", "5"],
    "chiarella": ["--markets", "2", "--intervals", "40"],
    "glosten_milgrom": ["--markets", "2", "--intervals", "40"],
}


def test_all_examples_are_tested():
    assert {path.stem for path in FOLDER.glob("*.py")} == {*SMALL, "builtin", "cost"}


@pytest.mark.parametrize("name", SMALL)
def test_commands_print_a_table_and_draw_a_picture(name, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    found = load(name).main([*SMALL[name], "--engine", "cpu", "--picture", str(tmp_path / "picture.png")])
    table = capsys.readouterr().out.splitlines()[1:]
    columns = {line.count(" | ") for line in table}
    assert len(columns) == 1 and "nan" not in "".join(table)
    assert len(found) >= 2 and (tmp_path / "picture.png").stat().st_size > 10_000


def test_the_comparison_of_built_in_agents_is_a_command(capsys):
    load("builtin").main(["--preset", "news", "--markets", "2", "--auctions", "5", "--engine", "numpy"])
    assert "the same bits" in capsys.readouterr().out


def test_the_cost_of_lines_is_a_command(capsys, monkeypatch):
    module, few = load("cost"), 16
    monkeypatch.setattr(module, "AGENTS", few)
    monkeypatch.setitem(module.MECHANISMS["continuous trading"], "interval", few)
    found = module.main(["--markets", "1", "--auctions", "1", "--rounds", "1", "--engine", "numpy"])
    assert set(found) == {"call auctions", "continuous trading"}
    assert capsys.readouterr().out.count(" 1.00 |") >= 2


def test_variants_of_the_noise_class_are_the_same_market():
    """So that what is timed differs in nothing but the lines."""
    module = load("cost")
    config = ks.MarketConfig(num_agents=module.AGENTS, noise=1.0, momentum=0.0, maker=0.0, fundamental=0.0)
    prices = {}
    for name, agents in module.VARIANTS.items():
        changed = config if agents is None else config.replace(num_agents=0, agents=agents)
        prices[name] = ks.Simulator(changed, 2, engine="numpy").run(2, ("last_price",))["last_price"].tolist()
    assert all(price == prices["built in"] for name, price in prices.items() if "second" not in name)


def test_examples_run_as_scripts():
    """In a process of its own a class is of the module `__main__`."""
    words = [*SMALL["trend_follower"], "--markets", "2", "--auctions", "4", "--engine", "numpy"]
    command = [sys.executable, str(FOLDER / "trend_follower.py"), *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0 and "| 3 |" in done.stdout, done.stderr


@covering
@every_engine
@pytest.mark.parametrize("name", ["trend_follower", "chiarella", "glosten_milgrom"])
def test_examples_are_the_same_on_every_engine(engine, name):
    module = load(name)
    makes = {"trend_follower": lambda: module.market_with(5), "glosten_milgrom": lambda: module.takers(10)}
    config = makes.get(name, lambda: module.ensemble(1))()
    auctions = 6 if name == "trend_follower" else 2
    markets = max(config.per_market.values(), default=3)
    prices = [
        ks.Simulator(config, markets, engine=one, seed=4).run(auctions, record=("last_price",))["last_price"].cpu()
        for one in ("numpy", engine)
    ]
    assert prices[0].tolist() == prices[1].tolist()


# Trend followers ------------------------------------------------------------------------------------------------------


def test_the_average_of_a_trend_follower_reaches_a_constant_price():
    """From either side: in whole units it would stop short of it."""
    play = load("trend_follower").trend_follower.program.play
    for start in (960, 1040):
        numbers = {"last": start, "gap": 0, "lookback": 16, "threshold": 4, "max_qty": 4}
        own = types.SimpleNamespace(**{name: Int32(value) for name, value in numbers.items()})
        for _ in range(400):
            play(_Market(1000), own, _Draw())
        assert abs(int(own.gap)) < 64


class _Draw:
    def below(self, n, word=0):
        return Int32(0)

    def chance(self, p, word=0):
        return Int32(0)


class _Market:
    def __init__(self, mid2):
        self.mid2 = Int32(mid2)

    def near_mid(self, offset):
        return self.mid2 // 2 + offset


# Private values -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "costs", "wanted"),
    [
        ([10, 8, 6], [1, 3, 7], (6.5, 2, 14)),  # 10 - 1 and 8 - 3; between max(3, 6) and min(8, 7)
        ([5], [5], (5.0, 1, 0)),
        ([9, 9, 9], [4, 20, 20], (9.0, 1, 5)),  # too many buyers: they bid it up
        ([7, 6, 1, 1], [2, 2, 2, 2], (2.0, 2, 9)),  # too many sellers
    ],
)
def test_equilibrium(values, costs, wanted):
    assert load("private_values").equilibrium(np.array(values), np.array(costs)) == wanted


def test_surplus_by_hand(monkeypatch):
    """Two units trade: of the buyers those at 9 and one of the two at 7; of the sellers those at 3 and at 4."""
    module = load("private_values")
    monkeypatch.setattr(module, "SIDE", 3)
    limit, worth = np.array([[9, 7, 7, 3, 4, 5]]), np.array([[10, 9, 7, 1, 2, 5]])
    assert module.surplus(limit, worth, np.array([2])).tolist() == [10 + (9 + 7) / 2 - 1 - 2]
    assert module.surplus(limit, worth, np.array([0])).tolist() == [0]


def test_who_knows_the_rules_can_compute_the_auctions():
    """Prices and volumes are those of the orders that the traders remember."""
    module = load("private_values")
    found = module.measure(2, 4, "numpy")
    for curve in module.CURVES:
        assert found[curve, "at their value"]["efficiency"].tolist() == [100, 100]
        assert found[curve, "at their value"]["volume"].tolist() == [100, 100]
        assert (found[curve, "constrained"]["efficiency"] <= 100).all()
    assert (found["symmetric", "at their value"]["price"] == 0).all()


# Chiarella ------------------------------------------------------------------------------------------------------------


def test_chartists_make_fat_tails():
    """What the page says of kurtosis, far within its intervals."""
    found = load("chiarella").measure(16, 500, "cpu")
    kurtosis = [statistics.bootstrap_interval(values["kurtosis"]) for values in found.values()]
    assert kurtosis[0].high < 0 < kurtosis[1].value < kurtosis[2].low and kurtosis[1].high < kurtosis[3].low


# Pages ----------------------------------------------------------------------------------------------------------------


@slow
def test_the_page_is_written_by_its_command(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    from examples.studies.traders import __main__ as traders

    monkeypatch.setattr(traders, "AUCTIONS", 60)
    monkeypatch.setattr(traders, "PERIODS", 4)
    monkeypatch.setattr(traders, "INTERVALS", 60)
    monkeypatch.setattr(traders, "TIMED", (1, 1, 1))
    traders.main(["--markets", "4", "--engine", "cpu", "--output", str(tmp_path)])
    text = (tmp_path / "README.md").read_text()
    assert "python -m examples.studies.traders --markets 4" in text and not re.search(r"\bnan\b", text)
    pictures = re.findall(r"\(images/([\w.]+)\)", text)
    assert len(pictures) == 3 and {path.name for path in (tmp_path / "images").iterdir()} == set(pictures)
    traders.main(["--results", str(tmp_path / "results.json"), "--output", str(tmp_path)])
    assert (tmp_path / "README.md").read_text() == text


def test_pages_show_functions_that_are_there():
    """`make docs` fails without them; here it is seen sooner."""
    shown = 0
    for page in (ROOT / "docs" / "builtin_traders.md", ROOT / "examples" / "studies" / "traders" / "README.md"):
        text = page.read_text()
        for path, name in re.findall(r"\{literalinclude\} (\S+)\n:language: python\n:pyobject: (\w+)", text):
            tree = ast.parse((page.parent / path).read_text())
            assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
            shown += 1
    assert shown == 8


REFUSED = {  # what the page says is refused, and a line of it
    "`x / 2`": "x = x / 2",
    "`x ** 2`, `2 ** n`": "x = x ** 2",
    "`0.5 * x`": "x = 0.5 * x",
    "`~x`": "x = ~x",
    "`while`, `break`, `continue`": "while x: x -= 1",
    "`range(own.lookback)`": "for i in range(own.lookback): x += 1",
    "a list, a tuple, a dict": "y = [x]",
    "`a, b = 1, 2`": "a, b = 1, 2",
    "`own.lookback = 3`": "own.lookback = 3",
    "`market.mid2 = 3`": "market.mid2 = 3",
    "`print(x)`": "print(x)",
    "`math.sqrt(x)`, `np.abs(x)`": "x = math.sqrt(x)",
    "`draw.below(own.n, word=i)`": "for i in range(3): x = draw.below(9, word=i)",
    "`y` where only one branch gave it a value": "if x: y = 1\n    x = y",
    "`return x`": "return x",
    "a lambda, a nested `def`, `*`, defaults, `async`": "f = lambda: x",
}


def test_the_page_names_what_is_refused(tmp_path):
    page = (ROOT / "docs" / "agent_language.md").read_text().partition("## What is refused")[2].partition("```")[0]
    rows = re.findall(r"^\| (.+?) \| .+ \|$", page, re.MULTILINE)[1:]
    assert rows == list(REFUSED)
    for number, line in enumerate(REFUSED.values()):
        file = tmp_path / f"refused_{number}.py"
        head = "import math\nimport kineticsim_env as ks\n\n@ks.agent(lookback=3)\ndef trader(market, own, draw):\n"
        file.write_text(f"{head}    x = market.mid2\n    {line}\n    return ks.order(1, x, 1)\n")
        with pytest.raises(ProgramError, match="trader: "):
            exec(compile(file.read_text(), str(file), "exec"), {"__name__": "refused"})
