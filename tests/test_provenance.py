"""Results say which rules they were measured under, by digests of what markets do; pages say where they differ."""

import json

import pytest
from thorough import slow

from kineticsim_env.config import PRESETS
from kineticsim_env.engines.numpy import rewards
from scripts.pages import provenance


@pytest.fixture
def fresh(monkeypatch):
    """Forget digests, before and after."""

    def forget():
        provenance.digest.cache_clear()
        provenance._task.cache_clear()

    forget()
    yield forget
    monkeypatch.undo()
    forget()


def test_all_results_say_what_they_depend_on_and_are_shown():
    files = provenance.results()
    assert len(files) > 25
    for path in files:
        found = list(provenance.stamps(json.loads(path.read_text())))
        assert found, f"{path}: does not say under which rules it was measured"
        assert all(rules["date"] and rules["parts"] and set(rules["parts"]) <= set(provenance.PARTS) for rules in found)
        assert provenance.pages(path), f"{path}: no page shows it"


@slow
def test_pages_say_where_rules_were_others_and_nowhere_else():
    assert not provenance.renewals(), "python -m scripts.pages.provenance renews these pages"


def test_a_changed_rule_is_seen_where_it_acts(fresh, monkeypatch):
    parts = "paper", "trading", "levers", "MarketMaking", "MarketMaking rewards"

    def digests():
        fresh()
        return [provenance.digest(part) for part in parts]

    before = digests()
    assert digests() == before and len(set(before)) == len(parts)
    with monkeypatch.context() as patch:
        patch.setitem(PRESETS["trading"], "cancel_prob", 0.0625)
        assert [a == b for a, b in zip(digests(), before, strict=True)] == [True, False, True, True, True]
    paid = rewards.money_against
    monkeypatch.setattr(rewards, "money_against", lambda *given: 2 * paid(*given))
    assert [a == b for a, b in zip(digests(), before, strict=True)] == [True, True, True, True, False]


def test_a_page_has_the_line_exactly_where_a_digest_differs(tmp_path, monkeypatch):
    monkeypatch.setitem(provenance.NEEDED, "x", ("paper", "trading"))
    page, path = tmp_path / "x.md", tmp_path / "x.json"
    monkeypatch.setattr(provenance, "results", lambda: [path])
    monkeypatch.setattr(provenance, "pages", lambda path: [page])
    text = "# X\n\nText.\n\n> A quotation.\n"
    page.write_text(text)
    found = provenance.stamped("x", {"figure": 1})
    path.write_text(json.dumps(found))
    assert not provenance.renewals()
    earlier = {"date": "2026-01-02", "commit": "abc", "parts": found["rules"]["parts"] | {"trading": "0" * 12}}
    path.write_text(json.dumps([found | {"rules": earlier}, {"run": found}, {"rules": earlier | {"commit": "abd"}}]))
    said = "> Figures of `x.json` were measured under earlier rules (2026-01-02, commit {}) of trading;"
    lines = [f"{said.format(commit)} they may differ." for commit in ("abc", "abd")]
    expected = f"# X\n\n{lines[0]}\n>\n{lines[1]}\n\nText.\n\n> A quotation.\n"
    assert provenance.notices(path) == set(lines) and provenance.renewals() == {page: expected}
    page.write_text(expected)
    assert not provenance.renewals()
    path.write_text(json.dumps(found))
    assert provenance.renewals() == {page: text}
