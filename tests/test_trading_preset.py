"""The study behind the preset `trading`, on a few markets: it writes its page and the pictures that the page shows."""

import re
import sys

import pytest

pytest.importorskip("matplotlib")

from kineticsim_env.studies import trading_preset  # noqa: E402  it needs matplotlib


def test_the_command_writes_the_page_and_its_pictures(tmp_path, monkeypatch):
    monkeypatch.setattr(trading_preset, "AUCTIONS", 40)
    monkeypatch.setattr(trading_preset, "WARMUP", 20)
    monkeypatch.setattr(trading_preset, "DEPTH_TIMES", (10, 30))
    monkeypatch.setattr(sys, "argv", ["trading_preset", "--markets", "8", "--engine", "cpu", "--docs", str(tmp_path)])
    trading_preset.main()
    text = (tmp_path / "trading_preset.md").read_text()
    shown = re.findall(r"\((images/.*?\.png)\)", text)
    assert shown
    assert {f"images/{path.name}" for path in (tmp_path / "images").iterdir()} >= set(shown)
    for name in trading_preset.CANDIDATES:
        assert f"| {name} |" in text
