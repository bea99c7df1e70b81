"""`python -m kineticsim_env fit`: what it does with files, and what it refuses."""

from __future__ import annotations

import re

import numpy as np
import pytest
from flow_tables import plain_table

import kineticsim_env as ks
from kineticsim_env.cli import main
from kineticsim_env.flow import fitting
from kineticsim_env.flow.simulating import simulate

pytest.importorskip("pandas")
pytestmark = pytest.mark.filterwarnings("ignore:OrderFlow.fit:UserWarning")


@pytest.fixture
def orders(tmp_path, monkeypatch):
    """Write the events of a market as a user's file has them, and go there."""
    monkeypatch.setattr(fitting, "_EVENTS", 500)
    monkeypatch.chdir(tmp_path)
    events = simulate(plain_table(), 4000, 1)
    kinds = np.array(["add", "reduce", "delete", "execute"])[events.kind]
    columns = {"at": events.time, "id": events.order, "what": kinds,
               "side": np.where(events.side > 0, "bid", "ask"), "price": events.price, "lots": events.size}  # fmt: skip
    rows = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    (tmp_path / "orders.csv").write_text("\n".join(rows) + "\n")
    words = ["--column", "time=at", "--column", "order=id", "--column", "kind=what", "--column", "size=lots"]
    return ["fit", "orders.csv", "--unit", "ns", *words]


def test_a_table_and_a_comparison(orders, capsys):
    assert main([*orders, "--output", "flow.json", "--markets", "1"]) == 0
    said = capsys.readouterr().out
    assert "executions at the touch" in said and "mean of the 19" in said and "table: flow.json" in said
    flow = ks.OrderFlow.load("flow.json")
    half = flow.about["events"]
    assert main([*orders, "--output", "all.json", "--held-out", "0", "--lot", "2"]) == 0
    assert "mean of the 19" not in capsys.readouterr().out
    whole = ks.OrderFlow.load("all.json")
    assert whole.about["events"] > 1.5 * half and whole.lot == 2
    np.testing.assert_array_equal(whole.limit[0], whole.limit[1])
    assert main([*orders, "--output", "apart.json", "--held-out", "0", "--sides-apart"]) == 0
    assert (ks.OrderFlow.load("apart.json").limit[0] != whole.limit[1]).any()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--column", "price"], "--column: expected WHAT=NAME, got 'price'"),
        (["--column", "cost=price"], r"--column: expected some of .* got \['cost'\]"),
        (["--column", "price=cost"], "cost"),
        (["--held-out", "1"], "--held-out"),
        (["--held-out", "0", "--plot", "flow.png"], "--plot: expected a share"),
        (["--lobster", "book.csv"], "--column: expected none with --lobster"),
        (["--output", "nowhere/flow.json"], "--output: expected a file"),
    ],
)
def test_what_it_refuses(orders, words, said, capsys):
    try:
        code = main([*orders, *words])
    except SystemExit as ended:
        code = ended.code
    assert code == 2
    assert re.search(said, capsys.readouterr().err)
