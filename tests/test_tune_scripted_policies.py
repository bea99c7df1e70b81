"""The scripted policies' parameters in `zoo/scripted_policies.json`: fresh, and what their command finds."""

import importlib
import json
import sys
from pathlib import Path

import pytest
from thorough import slow

from kineticsim_env import MarketConfig
from kineticsim_env.envs.settings import EnvSettings
from kineticsim_env.evaluation import evaluate, evaluation_env
from kineticsim_env.runtime.options import changes_of
from kineticsim_env.zoo import SCRIPTED

pytest.importorskip("tyro", reason="the command needs it: pip install 'kineticsim-env[train]'")

EXAMPLES = Path(__file__).parent.parent / "examples"
MARKET, TRADING = {"preset": "trading", "engine": "cpu"}, ("trading", ())
ENTRIES = list(json.loads(SCRIPTED.read_text()))


@pytest.fixture(scope="module")
def tune():
    """The command as a module."""
    sys.path.insert(0, str(EXAMPLES))
    yield importlib.import_module("tune_scripted_policies")
    sys.path.remove(str(EXAMPLES))


@pytest.fixture(scope="module")
def found(tune):
    return json.loads(tune.FOUND.read_text())


def test_the_file_has_every_task_of_the_presets(tune):
    named = {
        tune.entry_of(task, preset) for task in ("MarketMaking", "Execution") for preset in ("trading", "continuous")
    }
    named |= {tune.entry_of(task, preset) for task in tune.GRIDS for preset in ("trading", "news")}
    assert named <= set(ENTRIES)


@slow
@pytest.mark.parametrize("entry", ENTRIES)
def test_the_file_is_fresh(tune, found, entry):
    """Its market is that of today, its parameters are points of the grids, and a policy still scores what it did."""
    task, *market = entry.split(", ")
    market = (market[0], tuple(market[1:]))
    config = MarketConfig.preset(market[0], **changes_of(market[1]))
    envs = evaluation_env(found[entry]["episodes"], task, engine="cpu", config=config, **tune.TRAINING)
    assert tune.load(task, envs, tune.FOUND, market) == found[entry] and tune.entry_of(task, *market) == entry
    assert found[entry]["command"].startswith(tune.command_of(*market))
    assert list(found[entry]["policies"]) == list(tune.GRIDS[task])
    grids = tune.grids(task, market[0])
    for name, one in found[entry]["policies"].items():
        make, grid = grids[name]
        assert one["policy"] == make.__name__ and list(one["parameters"]) == list(grid)
        assert all(value in grid[key] for key, value in one["parameters"].items())
    made = tune.make_all(found[entry]["policies"], envs.core.task)
    best = max(made, key=lambda name: found[entry]["policies"][name]["score"][0])
    mean, half = evaluate(made[best], envs, found[entry]["seed"]).pnl_interval()
    assert [mean, half] == pytest.approx(found[entry]["policies"][best]["score"], rel=1e-3)


def small(tune, monkeypatch):
    """Make the grids small, and episodes short."""
    monkeypatch.setattr(tune, "TRAINING", {**tune.TRAINING, "horizon": 40})
    pairs = {"MarketMaking": {"qty": [4, 8]}, "Execution": {"ticks": [2, -2]}, "Trading": {"ticks": [-2, 4]}}
    for found in ("GRIDS", "LADDERS"):
        grids = {
            task: {name: (make, pairs[task] if grid else {}) for name, (make, grid) in policies.items()}
            for task, policies in getattr(tune, found).items()
        }
        monkeypatch.setattr(tune, found, grids)


@slow
def test_the_command_writes_the_best_of_its_grids(tune, tmp_path, monkeypatch, capsys):
    small(tune, monkeypatch)
    path = tmp_path / "found.json"
    tune.main(tune.Args(engine="cpu", episodes=32, output=path))
    written, printed = json.loads(path.read_text()), capsys.readouterr().out
    for task in tune.GRIDS:
        envs = evaluation_env(32, task, engine="cpu", **tune.TRAINING)
        entry = tune.load(task, envs, path)
        assert entry == written[tune.entry_of(task)] and entry["episodes"] == 32
        assert (
            entry["command"] == f"python examples/tune_scripted_policies.py --preset {EnvSettings.preset} --episodes 32"
        )
        made = tune.make_all(entry["policies"], envs.core.task)
        for name, (make, grid) in tune.GRIDS[task].items():
            one = entry["policies"][name]
            assert one["score"][0] == pytest.approx(evaluate(made[name], envs, tune.SEED).pnl.mean(), abs=1e-3)
            for key, values in grid.items():
                others = [
                    evaluate(make(envs.core.task, **{key: value}), envs, tune.SEED).pnl.mean() for value in values
                ]
                assert one["score"][0] == pytest.approx(max(others), abs=1e-3) and one["best_of"] == 2
            assert f"{task}, {name}: " in printed
        assert set(tune.notes_of(entry["policies"])) == {name for name, (_, grid) in tune.GRIDS[task].items() if grid}


def test_other_markets_have_entries_of_their_own(tune, tmp_path, monkeypatch):
    """Those of which another command says nothing stay as they were."""
    small(tune, monkeypatch)
    path, late = tmp_path / "found.json", ("quote_latency=20",)
    path.write_text(json.dumps({"Execution": "as it was"}))
    monkeypatch.setitem(tune.OTHERS["continuous"], "qty", [8])
    words = {"preset": "continuous", "tasks": ("MarketMaking",), "engine": "cpu", "episodes": 16, "output": path}
    for changes in ((), late):
        tune.main(tune.Args(set=changes, **words))
    written = json.loads(path.read_text())
    names = ["Execution", "MarketMaking, continuous", "MarketMaking, continuous, quote_latency=20"]
    assert list(written) == names and written["Execution"] == "as it was"
    asked = "--preset continuous --set quote_latency=20 --tasks MarketMaking --episodes 16"
    assert written[names[2]]["command"] == f"python examples/tune_scripted_policies.py {asked}"
    assert written[names[1]]["policies"]["fixed spread"]["best_of"] == 1, "the grid of continuous trading"
    config = MarketConfig.preset("continuous", quote_latency=20)
    envs = evaluation_env(2, engine="cpu", config=config, **tune.TRAINING)
    assert tune.load("MarketMaking", envs, path, ("continuous", late)) == written[names[2]]
    with pytest.raises(ValueError, match="another quote_latency; run .* --preset continuous$"):
        tune.load("MarketMaking", envs, path, ("continuous", ()))


def test_markets_of_ladders_have_makers_with_ladders_too(tune, tmp_path, monkeypatch):
    small(tune, monkeypatch)
    path, market = tmp_path / "found.json", ("news", ("orders_per_side=2",))
    tune.main(tune.Args(set=market[1], tasks=("MarketMaking", "Trading"), engine="cpu", episodes=8, output=path))
    config = MarketConfig.preset("news", orders_per_side=2)
    for task, more in (("MarketMaking", tune.LADDERS["MarketMaking"]), ("Trading", {})):
        envs = evaluation_env(2, task, engine="cpu", config=config, **tune.TRAINING)
        entry = tune.load(task, envs, path, market)
        made = tune.make_all(entry["policies"], envs.core.task)
        assert list(entry["policies"]) == list(made) == [*tune.GRIDS[task], *more]
    written = json.loads(path.read_text())
    del written["MarketMaking, news, orders_per_side=2"]["policies"]["equal ladder"]
    path.write_text(json.dumps(written))
    envs = evaluation_env(2, engine="cpu", config=config, **tune.TRAINING)
    with pytest.raises(ValueError, match="another equal ladder; run .* --set orders_per_side=2$"):
        tune.load("MarketMaking", envs, path, market)


def test_a_stale_file_is_refused_with_the_command_to_run(tune, found, tmp_path):
    envs, path = evaluation_env(2, **MARKET, **tune.TRAINING), tmp_path / "found.json"

    def refusal(spoil):
        changed = json.loads(json.dumps(found))
        spoil(changed["MarketMaking, trading"])
        path.write_text(json.dumps(changed))
        with pytest.raises(
            ValueError, match=f"^{path} does not fit: .*; run python examples/tune_scripted_policies.py"
        ):
            tune.load("MarketMaking", envs, path, TRADING)
        with pytest.raises(ValueError) as caught:
            tune.load("MarketMaking", envs, path, TRADING)
        return str(caught.value)

    assert "another cancel_prob;" in refusal(lambda entry: entry["market"].update(cancel_prob=0.3))
    assert "another horizon;" in refusal(lambda entry: entry["market"].update(horizon=20))
    assert "another gone;" in refusal(lambda entry: entry["market"].update(gone=None))
    assert "another fixed spread;" in refusal(lambda entry: entry["policies"].pop("fixed spread"))
    stoikov = "Avellaneda-Stoikov"
    assert "'Stoikov'" in refusal(lambda entry: entry["policies"][stoikov].update(policy="Stoikov"))
    assert "'aversion'" in refusal(lambda entry: entry["policies"][stoikov]["parameters"].update(aversion=1))
    path.unlink()
    with pytest.raises(ValueError, match="No such file"):
        tune.load("MarketMaking", envs, path, TRADING)


@pytest.mark.parametrize("change", [{"auctions_per_step": 2}, {"warm_seed": 7}, {"horizon": 20}, {"max_qty": 4}])
def test_what_changes_the_market_is_noticed_and_rewards_are_not(tune, change):
    settings = {**MARKET, "reward": "asymmetric", "inventory_penalty": 0.1, "reward_scale": 3.0}
    tune.load("MarketMaking", evaluation_env(2, **{**settings, **tune.TRAINING}), market=TRADING)
    with pytest.raises(ValueError, match=f"another .*{next(iter(change))}"):
        tune.load("MarketMaking", evaluation_env(2, **{**settings, **tune.TRAINING, **change}), market=TRADING)
