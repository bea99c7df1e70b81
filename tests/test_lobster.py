"""LOBSTER's files of a tape, read by a reader that knows nothing of the package."""

import datetime
from pathlib import Path

import numpy as np
import pytest
import torch
from lobster_reader import read
from tape_checks import random_case
from thorough import examples

import kineticsim_env as ks
from kineticsim_env.tapes import lobster

pytest.importorskip("pyarrow")
pytest.importorskip("pandas")


def test_random_markets(tmp_path):
    """The book that messages make is that of the book file, and in the end the market's."""
    for seed in range(examples(60)):
        sim, chosen, intervals, quotes = random_case(seed, "clock", "continuous")
        made = sim.tape(chosen, intervals, quotes=None if quotes is None else quotes[:, chosen])
        levels = 1 + seed % 5
        paths = made.to_lobster(tmp_path / str(seed), levels=levels, tick=0.0025, base=seed)
        branch = sim.branch()
        if quotes is None:
            branch.run(intervals)
        else:
            branch.rollout(quotes, intervals // len(quotes))
        assert len(paths) == len(chosen)
        for m, pair in zip(chosen, paths, strict=True):
            reader, _ = read(*pair, levels)
            for direction, book, column in ((1, branch.bid[m], 0), (-1, branch.ask[m], 2)):
                prices = (torch.nonzero(book)[:, 0] + branch.price_origin[m]).tolist()
                sizes = dict(zip(prices, book[book > 0].tolist(), strict=True))
                for quote in branch.quotes[m].tolist():
                    if quote[column + 1]:
                        sizes[quote[column]] = sizes.get(quote[column], 0) + quote[column + 1]
                wanted = sorted(
                    ((25 * (price + seed), units) for price, units in sizes.items()), reverse=direction == 1
                )
                assert reader.levels(direction) == wanted


def test_names_times_and_slices(tmp_path, monkeypatch):
    monkeypatch.setattr(lobster, "_SLICE", 7)  # an order that trades is cut between two slices
    sim = ks.Simulator(ks.MarketConfig.preset("news"), 3, engine="cpu", seed=5)
    sim.run(4)
    made = sim.tape([2, 0], 30)
    paths = made.to_lobster(tmp_path, levels=2, interval_seconds=0.5, date="2024-02-29", ticker="KS")
    names = [Path(path).name for pair in paths for path in pair]
    assert names[:2] == [
        "KS2_2024-02-29_34202000_34217000_message_2.csv",
        "KS2_2024-02-29_34202000_34217000_orderbook_2.csv",
    ]
    monkeypatch.undo()
    again = made.to_lobster(tmp_path / "whole", levels=2, interval_seconds=0.5)
    rows = made.to_pandas()
    for (message, book), (same_message, same_book), m in zip(paths, again, (2, 0), strict=True):
        reader, lines = read(message, book, 2)
        assert Path(message).read_bytes() == Path(same_message).read_bytes()
        assert Path(book).read_bytes() == Path(same_book).read_bytes()
        times = np.array([float(line.split(",")[0]) for line in Path(message).read_text().splitlines()])
        assert times[0] == 34202 and times[-1] < 34217 and lines == len(times)
        mine = rows[rows.market == m]
        expired = mine[mine.reason == "expired"]  # never rested: no message
        assert (
            sum(line.split(",")[1] == "4" for line in Path(message).read_text().splitlines())
            == (mine.type == "trade").sum()
        )
        deleted = (mine.type == "cancel").sum() - len(expired)
        assert sum(line.split(",")[1] in "23" for line in Path(message).read_text().splitlines()) == deleted
        assert np.isclose(float(reader.time), 34200 + mine.time.iloc[-1] / 2, atol=1e-8) or len(expired)


def test_what_is_refused(tmp_path):
    calls = ks.Simulator(ks.MarketConfig.preset("trading"), 1, engine="cpu").tape(0, 5)
    with pytest.raises(
        ValueError, match="to_lobster: expected a tape of mechanism='continuous', got one of call auctions"
    ):
        calls.to_lobster(tmp_path)
    made = ks.Simulator(ks.MarketConfig.preset("news"), 1, engine="cpu").tape(0, 5)
    wrong = {"levels": [0, 1.5, None], "tick": [0, -1, 0.00005, "x", float("nan"), 1e9], "base": [0.5, 2**31],
             "interval_seconds": [0, -1, "x", float("inf")], "opens": [-1, None]}  # fmt: skip
    for name, values in wrong.items():
        for value in values:
            with pytest.raises((TypeError, ValueError), match=f"{name}: expected .*got .*"):
                made.to_lobster(tmp_path, **{name: value})
    wrong = {
        "date": ["2024/01/03", None, 20240103],
        "ticker": ["A/B", "A\\B", "A\nB", 5, None],
    }  # parts of names of files
    for name, values in wrong.items():
        for value in values:
            with pytest.raises(ValueError, match=f"{name}: expected a part of a file's name.*got"):
                made.to_lobster(tmp_path, **{name: value})
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="^tick, base: expected prices below 9999999999 in size, .*, got 1"):
        made.to_lobster(tmp_path, tick=99_999, base=2**30)
    assert not list(tmp_path.iterdir())
    for date in (datetime.date(2024, 1, 3), datetime.datetime(2024, 1, 3, 9, 30), "2024-01-03"):
        ((message, _),) = made.to_lobster(tmp_path, date=date, ticker="BRK.A")
        assert Path(message).name.startswith("BRK.A0_2024-01-03_34200000_")


def test_events_of_agents_may_lie_in_time_as_a_poisson_process():
    """What happens is the same; distances have an exponential distribution, and are those of the market's seed."""
    sim = ks.Simulator(ks.MarketConfig.preset("continuous"), 2, engine="cpu", seed=3)
    sim.run(5)
    tape = sim.tape([0, 1], 300, progress=False)
    even, drawn, other = tape.events(0, 2.0), tape.events(0, 2.0, clock="poisson"), tape.events(1, 2.0, clock="poisson")
    for name in ("order", "kind", "side", "price", "size", "opening", "sessions"):
        assert np.array_equal(getattr(even, name), getattr(drawn, name)), name
    assert (drawn.time[drawn.opening] == drawn.sessions[0, 0]).all() and (np.diff(drawn.time) >= 0).all()
    assert drawn.sessions[0, 0] <= drawn.time.min() and drawn.time.max() <= drawn.sessions[0, 1]
    gaps = np.diff(np.unique(drawn.time)) / 1e9
    assert abs(gaps.mean() - 2 / 20) < 0.01 and abs(gaps.std() / gaps.mean() - 1) < 0.05
    assert np.array_equal(drawn.time, tape.events(0, 2.0, clock="poisson").time)
    assert not np.array_equal(drawn.time[-50:], other.time[-50:])
    with pytest.raises(ValueError, match="clock: expected one of 'even', 'poisson', got 'real'"):
        tape.events(0, clock="real")
