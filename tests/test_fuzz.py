"""The fuzzers of `scripts/fuzz`, in short: some cases of each kind, a watched child, and bugs that they have to see."""

import dataclasses
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from thorough import THOROUGH, slow

import kineticsim_env as ks
from kineticsim_env.runtime import build
from kineticsim_env.runtime.values import check_count
from kineticsim_env.statistics import of_orders, of_trading
from kineticsim_env.tapes.tape import Tape
from scripts.fuzz import calls, drawn, kinds, loads, page, pairs, races, run, sanitizers, signals, surface
from scripts.fuzz import settings as fresh
from scripts.fuzz.__main__ import main
from scripts.fuzz.kinds import Failure

ROOT = Path(__file__).parent.parent
CASES = {"forms": 150, "loads": 100, "tampering": 80, "scenarios": 60, "threads": 20, "calls": 1000}
CASES |= {"settings": 60, "tapes": 30, "formulas": 30, "signals": 6}
IN_SHORT = {} if THOROUGH else {"forms": 75, "loads": 50, "tampering": 40, "scenarios": 30, "threads": 10, "calls": 500}
CASES |= IN_SHORT
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


@pytest.mark.parametrize("kind", [kind for kind in CASES if kind != "settings"])
def test_cases_of(kind):
    """Without sanitizers, in this process; the first failure says how to repeat it."""
    for seed in range(CASES[kind]):
        failure = kinds.play(kind, seed, ENGINES)
        assert failure is None, f"python -m scripts.fuzz --different 3 --case {kind}:{seed}: {failure}"


def test_no_ctrl_c_outlasts_a_case_whose_market_stops():
    def stops():
        raise ks.MarketError("market 0: stopped")

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ks.MarketError):
        signals._struck(stops, 0.2)
    time.sleep(0.4)
    assert signal.getsignal(signal.SIGINT) is before


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


@slow
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
    pair = pairs.pair_of("simulator", 0, ENGINES[0])
    monkeypatch.setattr(Simulator, "step", generous)
    monkeypatch.setattr(pairs, "DIFFERENT", 1)
    assert any("volume differs" in str(kinds.play("forms", seed, ENGINES[:1])) for seed in range(40))
    pairs.forget()
    monkeypatch.undo()

    def inactive(self, saved, strict=True):
        self.tensors["volume"] += 1
        raise ValueError("no")

    monkeypatch.setattr(Simulator, "load_state_dict", inactive)
    assert any("was refused: volume differs" in str(kinds.play("loads", seed, ENGINES[:1])) for seed in range(40))
    pairs.forget()
    monkeypatch.undo()

    def terse(self, name):
        raise ValueError("no")

    monkeypatch.setattr(Simulator, "parameter", terse)
    found = (kinds.play("calls", seed, ENGINES[:1]) for seed in range(6000))  # few of them are of that function
    assert any("unnamed ValueError" in str(failure) for failure in found)


def test_configurations_have_every_field():
    """Of markets, of tasks and of environments; some refusals are no harm, most have to be played."""
    fields, settings, opponents = set(), set(), 0
    defaults = ks.MarketConfig().to_dict()
    for seed in range(400):
        rng = np.random.default_rng(seed)
        config = drawn.config(rng, 3).to_dict()
        fields |= {name for name in config if not np.array_equal(config[name], defaults[name])}
        task = (ks.MarketMakingTask, ks.ExecutionTask, ks.TradingTask, ks.ManyLearnersTask)[seed % 4]
        settings |= {(task, name) for name in drawn.task(rng, task, 3)}
        opponents += len(drawn.opponents(rng, discrete=False, keep=False))
    assert fields == set(defaults) and opponents > 400
    for task in (ks.MarketMakingTask, ks.ExecutionTask, ks.TradingTask, ks.ManyLearnersTask):
        assert {name for kind, name in settings if kind is task} == {
            field.name for field in dataclasses.fields(task) if field.init
        }


@slow
def test_cases_of_settings_most_of_which_are_played(monkeypatch):
    taken: list[bool] = []
    honest = fresh.open_both

    def counted(make, engine):
        pair = honest(make, engine)
        taken.append(pair is not None)
        return pair

    monkeypatch.setattr(fresh, "open_both", counted)
    test_cases_of("settings")
    assert len(taken) > 50 and np.mean(taken) > 0.7


def test_wrong_orders_and_statistics_are_seen(monkeypatch):
    """A tape that is off by a unit, a response that is weighted with units, and cancellations that count as trades."""
    if len(ENGINES) > 1:
        honest = Tape._columns_of

        def off_by_one(self, markets, rows):
            found = honest(self, markets, rows)
            return found | {"remaining": found["remaining"] + 1}

        monkeypatch.setattr(Tape, "_columns_of", off_by_one)
        assert any(kinds.play("tapes", seed, ENGINES) for seed in range(20))
        monkeypatch.undo()
    monkeypatch.setattr(of_trading, "_SIGN", of_trading._SIGNED)
    assert any("response" in str(kinds.play("formulas", seed, ENGINES)) for seed in range(60))
    monkeypatch.undo()
    monkeypatch.setitem(of_orders._KINDS, "execute", of_orders._KINDS["cancel"])
    assert any("event_share" in str(kinds.play("formulas", seed, ENGINES)) for seed in range(60))


def test_wrong_adapters_are_seen(monkeypatch):
    sb3 = pytest.importorskip("kineticsim_env.adapters.sb3")
    monkeypatch.setattr(fresh, "ADAPTERS", {"stable_baselines3": "SB3"})
    honest = sb3.SB3VecEnv.step_wait

    def turned(self):
        observation, reward, done, infos = honest(self)
        return observation, -reward, done, infos

    monkeypatch.setattr(sb3.SB3VecEnv, "step_wait", turned)
    with pytest.raises(Failure, match="SB3 of .*: reward is"):
        for seed in range(20):
            fresh._adapter(np.random.default_rng(seed), ENGINES[0])


def test_what_a_signal_leaves_behind_is_seen():
    threads = torch.get_num_threads()
    try:
        with pytest.raises(Failure, match="after Ctrl-C torch's threads is another"):
            signals._struck(lambda: torch.set_num_threads(threads + 1), 60.0)
        with pytest.raises(Failure, match="after Ctrl-C torch's gradients is another"):
            signals._struck(lambda: torch.set_grad_enabled(False), 60.0)
    finally:
        torch.set_num_threads(threads)
        torch.set_grad_enabled(True)
    assert signals._struck(lambda: time.sleep(5), 0.05)


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
    public_names = [(module, name) for module in (ks, policies, policies.attackers) for name in module.__all__]
    for module, public in public_names:
        thing = getattr(module, public)
        if isinstance(thing, type) and issubclass(thing, BaseException):
            continue
        if callable(thing):
            assert public in called | left_out | {"WashTrade"}, public
    for owner in ("simulator", "vector", "single", "parallel", "batched"):
        assert {f"{owner}.{name}" for name in ("reset", "step", "load_state_dict")} <= names


def test_a_refusal_names_an_argument():
    """The one that is wrong, or another, as messages begin with it."""
    said = {}
    for name in ("num_agents", "market 3, num_agents", "how many?"):
        with pytest.raises(TypeError, match="expected a whole number") as refused:
            check_count(name, "x", 0)
        said[name] = [
            calls.judge(refused.value, [wrong]).split(" at ")[0] for wrong in ("num_agents", "how many", "seed")
        ]
    assert said == {
        "num_agents": ["", "", ""],
        "market 3, num_agents": ["", "", ""],
        "how many?": ["unnamed TypeError", "", "unnamed TypeError"],
    }


def test_command_line(tmp_path, capsys):
    assert main(["--case", "calls:3"]) in (0, 1)
    assert main(["--case", "calls"]) == 2
    assert "expected a kind of forms" in capsys.readouterr().err


def test_page(tmp_path):
    """The table replaces what is between the markers, and nothing else; the page has them."""
    result = run.Result({"forms": 12, "calls": 3000}, [run.Found("forms", 3, "x", ("x",), True)], 61.4, reports=0)
    facts = page.facts(result, 7, True, ["--cases", "3012"])
    path = tmp_path / "page.md"
    begin, end = page.markers("figures")
    fresh = "{}\nas it was\n{}\nafter\n".format(*page.markers("configurations"))
    path.write_text(f"before\n{begin}\nold\n{end}\n{fresh}")
    page.write(path, facts)
    text = path.read_text()
    assert text.startswith(f"before\n{begin}\n") and text.endswith(f"{end}\n{fresh}") and "old" not in text
    assert "| `calls` | everything public with wrong arguments | 3,000 | 7 to 3006 | 0 |" in text
    assert "| all | | **3,012** | | **1** |" in text
    assert page.table(facts) in text
    robustness = (ROOT / "docs" / "robustness.md").read_text()
    assert all(marker in robustness for block in page.BLOCKS for marker in page.markers(block))
    assert set(page.WHAT) == set(kinds.KINDS) and all(f"| `{kind}` |" in robustness for kind in kinds.KINDS)


def test_loads_know_every_way():
    assert len(loads._WAYS) == len(loads._ODDS)
    assert sum(kinds.SHARES[kind] for kind in kinds.FRESH) >= 10_000
