"""The fuzzers of `scripts/fuzz`, in short: some cases of each kind, a watched child, and bugs that they have to see."""

from pathlib import Path

import numpy as np
import pytest
from thorough import slow

from kineticsim_env.runtime import build
from scripts.fuzz import kinds, loads, page, pairs, races, run, sanitizers, surface
from scripts.fuzz.__main__ import main
from scripts.fuzz.case import Failure

ROOT = Path(__file__).parent.parent
CASES = {"forms": 150, "loads": 100, "tampering": 80, "scenarios": 60, "threads": 20, "calls": 1000}
ENGINES = ("cpu", "numpy") if build.cpu_unavailable() is None else ("numpy",)
pytestmark = pytest.mark.filterwarnings("ignore")  # wrong values are odd values
needs_asan = pytest.mark.skipif(sanitizers.runtime("libasan.so") is None, reason="no AddressSanitizer that runs here")
needs_tsan = pytest.mark.skipif(bool(races.unavailable()), reason="no ThreadSanitizer that runs here")


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """Fewer different markets than `make fuzz` has, as opening one takes longer than a case."""
    monkeypatch.setattr(pairs, "DIFFERENT", 3)
    with pairs.aside():
        yield


@pytest.mark.parametrize("kind", CASES)
def test_cases_of(kind):
    """Without sanitizers, in this process; the first failure says how to repeat it."""
    for seed in range(CASES[kind]):
        failure = kinds.play(kind, seed, ENGINES)
        assert failure is None, f"python -m scripts.fuzz --different 3 --case {kind}:{seed}: {failure}"


@slow
@needs_asan
def test_watched_cases_and_a_planted_bug():
    seen = sanitizers.report_in(sanitizers.planted_bug_is_seen())
    assert "AddressSanitizer: heap-" in seen  # an overflow, or use after free, as the heap happens to lie
    result = run.run({"forms": 60}, 5000, jobs=1)
    assert result.cases == {"forms": 60}
    assert not result.found, [found.row() for found in result.found]


@slow
@needs_tsan
def test_races_and_a_planted_one():
    assert kinds.play("races", 0) is None
    launches = [races._record(np.random.default_rng(seed)) for seed in range(4)]
    assert "WARNING: ThreadSanitizer: data race" in races.make_again(launches, "-DKS_PLANTED")


def test_a_wrong_result_is_seen(monkeypatch):
    """An engine that is off by one unit, a refusal that changes something, and a message without the argument."""
    from kineticsim_env import Simulator

    honest = Simulator.step

    def generous(self, quotes=None, auctions=1):
        fills = honest(self, quotes, auctions)
        if self is pair.under_test:
            self.tensors["volume"][0] += 1
        return fills

    pairs.forget()
    pair = pairs.simulator(0, ENGINES[0])
    monkeypatch.setattr(Simulator, "step", generous)
    monkeypatch.setattr(pairs, "DIFFERENT", 1)
    found = [kinds.play("forms", seed, ENGINES[:1]) for seed in range(40)]
    assert any("volume differs" in str(failure) for failure in found)
    pairs.forget()
    monkeypatch.undo()

    def silent(self, saved, strict=True):
        self.tensors["volume"] += 1
        raise ValueError("no")

    monkeypatch.setattr(Simulator, "load_state_dict", silent)
    found = [kinds.play("loads", seed, ENGINES[:1]) for seed in range(40)]
    assert any("was refused: volume differs" in str(failure) for failure in found)
    pairs.forget()
    monkeypatch.undo()

    def terse(self, name):
        raise ValueError("no")

    monkeypatch.setattr(Simulator, "parameter", terse)
    found = (kinds.play("calls", seed, ENGINES[:1]) for seed in range(6000))  # few of them are of that function
    assert any("unnamed ValueError" in str(failure) for failure in found)


def test_a_case_is_the_same_each_time():
    for kind in ("forms", "loads", "calls"):
        told = []
        for _ in range(2):
            rng = np.random.default_rng([7, *kind.encode()])
            with kinds.module_of(kind).aside():
                try:
                    kinds.module_of(kind).play(rng, ENGINES)
                except Failure as failure:
                    told.append(str(failure))
            told.append(rng.integers(2**60))
        assert told[: len(told) // 2] == told[len(told) // 2 :]


def test_everything_public_is_called():
    """A new public class or method is fuzzed, or left out for a reason that is given."""
    import kineticsim_env as ks
    from kineticsim_env import policies

    names = {target.name for target in surface.find_targets(surface.World("numpy"))}
    left_out = {name for some in surface.LEFT_OUT for name in some.split(", ")}
    called = {target.rsplit(".", 1)[-1] for target in names}
    for public in [*ks.__all__, *policies.__all__]:
        thing = getattr(ks, public, None) or getattr(policies, public)
        if isinstance(thing, type) and issubclass(thing, BaseException):
            continue
        if callable(thing):
            assert public in called | left_out | {"WashTrade"}, public
    for owner in ("simulator", "vector", "single", "parallel", "batched"):
        assert {f"{owner}.{name}" for name in ("reset", "step", "load_state_dict")} <= names


def test_command_line(tmp_path, capsys):
    assert main(["--case", "calls:3"]) in (0, 1)
    assert main(["--case", "calls"]) == 2
    assert "allowed is a kind of forms" in capsys.readouterr().err


def test_page(tmp_path):
    """The table replaces what is between the markers, and nothing else; the page has them."""
    result = run.Result({"forms": 12, "calls": 3000}, [run.Found("forms", 3, "x", ("x",), True)], 61.4, reports=0)
    facts = page.facts(result, 7, True, ["--cases", "3012"])
    path = tmp_path / "page.md"
    path.write_text(f"before\n{page.BEGIN}\nold\n{page.END}\nafter\n")
    page.write(path, facts)
    text = path.read_text()
    assert text.startswith(f"before\n{page.BEGIN}\n") and text.endswith(f"{page.END}\nafter\n") and "old" not in text
    assert "| `calls` | everything public with wrong arguments | 3,000 | 7 to 3006 | 0 |" in text
    assert "| all | | **3,012** | | **1** |" in text
    assert page.table(facts) in text
    robustness = (ROOT / "docs" / "robustness.md").read_text()
    assert page.BEGIN in robustness and page.END in robustness
    assert set(page.WHAT) == set(kinds.KINDS) and all(f"| `{kind}` |" in robustness for kind in kinds.KINDS)


def test_loads_know_every_way():
    assert len(loads._WAYS) == len(loads._ODDS)
    assert abs(sum(kinds.SHARES.values()) - 1) < 1e-9
