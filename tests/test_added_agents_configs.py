"""Agents that users write, in configs: mixes, JSON, pickles, the command line, and what hostile users try."""

import copy
import json
import pickle
import re
import subprocess
import sys
import textwrap

import agent_classes
import gymnasium as gym
import numpy as np
import pytest
import torch
from agent_classes import at_the_best, copied_noise, extreme, trend_follower
from thorough import covering, slow

import kineticsim_env as ks
from kineticsim_env import cli
from kineticsim_env.agents.mixes import Mix
from kineticsim_env.config import make_config, plain_fields
from kineticsim_env.runtime.saved_states import SCENARIOS, pack, unpack
from kineticsim_env.sweeps.plans import digest

ENGINES = ["numpy", "cpu"]
PRESET = ks.MarketConfig.preset("trading")
FILE = """
import kineticsim_env as ks

@ks.agent(lookback=16, max_qty=3, memory={"average": "mid2"})
def chartist(market, own, draw):
    own.average += (market.mid2 - own.average) // own.lookback
    return ks.order(market.mid2 - own.average, market.near_mid(0), 1 + draw.below(own.max_qty))

@ks.agent()
def idle(market, own, draw):
    return None

NUMBER = 3
"""


# Mixes ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "given", "message"),
    [
        (2.5, {}, "count: expected a whole number from 0 to 16384, got 2.5"),
        (-1, {}, "count: .*got -1"),
        (True, {}, "count: expected .*, got True"),
        (1 << 15, {}, "count: expected .*, got 32768"),
        (float("nan"), {}, "count: expected .*, got nan"),
        (3, {"lookback": 2**31}, "lookback: expected a whole number of 32 bits, got 2147483648"),
        (3, {"lookback": [1, 2]}, r"lookback: expected one number, \[3\] of each agent.*got an array of shape \[2\]"),
        (3, {"lookback": [1, 2.5, 3]}, "lookback: expected .*, got 2.5"),
        (3, {"lookback": [1, None, 3]}, "lookback: .*got None"),
        (3, {"lookback": [1, 2**70, 3]}, "lookback: expected .*, got 1180591620717411303424"),
        (3, {"lookback": [1, float("inf"), 3]}, "lookback: expected .*, got inf"),
        (3, {"lookback": [True, False, True]}, "lookback: expected .*, got True"),
        (3, {"lookback": [[1, 2, 3], [1, 2]]}, r"lookback: expected one number.*got \[\[1, 2, 3\], \[1, 2\]\]"),
        (3, {"lookback": np.zeros((0, 3))}, r"lookback: expected .*, got an array of shape \[0, 3\]"),
        (3, {"lookback": np.zeros((2, 3, 1))}, r"lookback: expected .*, got an array of shape \[2, 3, 1\]"),
        (3, {"lookback": {1, 2, 3}}, r"lookback: expected .*, got \{1, 2, 3\}"),
        (3, {"lookback": "abc"}, "lookback: expected .*, got 'abc'"),
        (3, {"lookback": None}, "lookback: .*got None"),
        (
            3,
            {"lookback": [[1], [2]], "threshold": [[1]]},
            r"lookback, threshold: expected values for one number of markets, got \[2, 1\]",
        ),
    ],
)
def test_mixes_that_are_refused(count, given, message):
    for make in (ks.mix, lambda count, **given: Mix(count, given)):
        with pytest.raises(ValueError, match=message):
            make(count, **given)


def test_forms_of_parameters():
    expected = ks.mix(3, lookback=[4, 5, 6])
    for form in (range(4, 7), (4.0, 5.0, 6.0), np.arange(4, 7, dtype=np.uint8), torch.arange(4, 7), iter([4, 5, 6])):
        assert ks.mix(3, lookback=form) == expected
    assert ks.mix(np.int64(3), lookback=np.float32(4)) == ks.mix(3, lookback=4)
    assert ks.mix(3, lookback=np.array(4)) == ks.mix(3, lookback=4)
    large = np.arange(3_000_000).reshape(100_000, 30)
    assert ks.mix(30, lookback=large).markets == 100_000


def test_nothing_of_a_config_changes_behind_its_back():
    values = np.arange(3)
    mix = ks.mix(3, lookback=values)
    agents = {trend_follower: mix}
    config = PRESET.replace(agents=agents)
    values[0] = 99
    agents.clear()
    assert config.agents[trend_follower].parameters["lookback"].tolist() == [0, 1, 2]
    for change in (
        lambda: mix.parameters.update(lookback=3),
        lambda: config.agents.pop(trend_follower),
        lambda: trend_follower.parameters.__setitem__("lookback", 3),
        lambda: trend_follower.memory.clear(),
    ):
        with pytest.raises(TypeError, match="fixed"):
            change()
    with pytest.raises(ValueError, match="read-only"):
        mix.parameters["lookback"][0] = 3
    with pytest.raises(AttributeError):
        mix.count = 4


def test_agents_that_configs_refuse():
    def numbered(number):
        def follower(market, own, draw):
            return ks.no_order()

        follower.__name__ = f"follower_{number}"
        return ks.agent()(follower)

    nine = {numbered(number): 1 for number in range(9)}
    wrong = [
        (trend_follower, "agents: expected a class with its count, .*, got <agent agent_classes:trend_follower>"),
        ([trend_follower], "agents: expected a mapping of classes.*got"),
        ({"trend_follower": 3}, "agents: expected module:name of a class, as in.*got 'trend_follower'"),
        ({len: 3}, "agents: expected a class that ks.agent has made.*got <built-in function len>"),
        ({trend_follower: {}}, r"agents\[trend_follower\]: expected a mapping with 'count' and parameters, got \{\}"),
        ({trend_follower: {"count": 2, 3: 4}}, r"agents\[trend_follower\]: expected a mapping with 'count'.*got"),
        (
            {trend_follower: ks.mix(2, look=3)},
            r"agents\[trend_follower\]: expected one of lookback, .*, got the parameter 'look'",
        ),
        ({trend_follower: "3"}, r"agents\[trend_follower\]: count: expected .*, got '3'"),
        (nine, "agents: expected up to 8 classes, got 9"),
        ({trend_follower: 16384, copied_noise: 20000}, r"copied_noise.*: count: .*got 20000"),
        ({trend_follower: 16384, extreme: 1}, r"num_agents: expected .* with 1073790975 of added agents.*got 20"),
    ]
    for agents, message in wrong:
        with pytest.raises((TypeError, ValueError), match=message):
            PRESET.replace(agents=agents)
    with pytest.raises(ValueError, match="per-market fields must have one length, got .*'agents.trend_follower.': 3"):
        PRESET.replace(noise_spread=[3, 4], agents={trend_follower: ks.mix(1, lookback=[[1], [2], [3]])})
    with pytest.raises(
        ValueError, match=r"agents\[trend_follower\]: expected num_markets = 3 per-market values, got 2"
    ):
        ks.Simulator(PRESET.replace(agents={trend_follower: ks.mix(1, lookback=[[1], [2]])}), 3, engine="numpy")
    with pytest.raises(ValueError, match="expected one of max_order_qty, .*, got 'agents'"):
        PRESET.replace(regimes=[{"agents": {trend_follower: 3}}])
    with pytest.raises(ValueError, match="expected one of max_order_qty, .*, got 'trend_follower.lookback'"):
        PRESET.replace(agents={trend_follower: 3}, regimes=[{"trend_follower.lookback": 3}])
    with pytest.raises(ValueError, match="got the name 'count', which every agent or mix has"):
        ks.agent(count=3)(lambda market, own, draw: None)


def test_replace_takes_other_agents_for_all():
    config = PRESET.replace(agents={trend_follower: 3})
    assert config.replace(noise_spread=5).agents == config.agents
    assert dict(config.replace(agents={copied_noise: 2}).agents) == {copied_noise: ks.mix(2)}
    assert dict(config.replace(agents=config.agents | {copied_noise: 2}).agents) == {
        trend_follower: ks.mix(3),
        copied_noise: ks.mix(2),
    }
    assert not config.replace(agents=None).agents
    assert config.replace(agents=None) == PRESET
    both = PRESET.replace(agents={trend_follower: 1, copied_noise: 1})
    assert both == PRESET.replace(agents=dict(both.agents))
    assert both != PRESET.replace(agents=dict(reversed(both.agents.items())))
    assert both != both.replace(agents=both.agents | {copied_noise: 2})


# Stored ---------------------------------------------------------------------------------------------------------------


def test_json_pickle_and_copies():
    config = PRESET.replace(agents={trend_follower: ks.mix(2, lookback=[[4, 5], [6, 7]]), at_the_best: 1})
    stored = json.loads(json.dumps(plain_fields(config)))
    assert stored["agents"]["agent_classes:trend_follower"] == {"count": 2, "lookback": [[4, 5], [6, 7]]}
    for other in (make_config(stored), pickle.loads(pickle.dumps(config)), copy.deepcopy(config), copy.copy(config)):
        assert other == config
        assert list(other.agents) == [trend_follower, at_the_best]
        with pytest.raises(ValueError, match="read-only"):
            other.agents[trend_follower].parameters["lookback"][0] = 3
    assert copy.deepcopy(trend_follower) is trend_follower


def test_a_class_declared_anew_is_another(monkeypatch):
    """Simulators go on with the class that they were made with; a pickle would be of the new one, and is refused."""

    @ks.agent(memory={"times": 0})
    def trend_follower(market, own, draw):
        own.times += 1
        return ks.order(1, market.near_mid(5), 3)

    old = agent_classes.trend_follower
    trend_follower.module = old.module
    config = PRESET.replace(agents={old: 3})
    simulator = ks.Simulator(config, 2, engine="cpu", seed=4)
    simulator.run(5)
    clone, saved = copy.deepcopy(config), simulator.state_dict()
    monkeypatch.setattr(agent_classes, "trend_follower", trend_follower)
    new = ks.Simulator(PRESET.replace(agents={trend_follower: 3}), 2, engine="cpu", seed=4)
    new.run(5)
    assert clone == config
    assert not torch.equal(simulator.tensors["bid"], new.tensors["bid"])
    with pytest.raises(ValueError, match="market.agents.trend_follower.program is "):
        new.load_state_dict(saved)
    other = ks.Simulator(clone, 2, engine="numpy", seed=4)
    other.load_state_dict(saved)
    for each in (simulator.branch(), other):
        each.run(6)
    simulator.run(6)
    assert torch.equal(simulator.tensors["bid"], other.tensors["bid"])
    with pytest.raises(pickle.PicklingError, match="got 'agent_classes:trend_follower', which was declared anew since"):
        pickle.dumps(config)
    with pytest.raises(ValueError, match="got two classes called 'trend_follower', of agent_classes and agent_classes"):
        PRESET.replace(agents={old: 1, trend_follower: 1})


def test_classes_that_nobody_can_import():
    @ks.agent()
    def hidden(market, own, draw):
        return ks.no_order()

    config = PRESET.replace(agents={hidden: 1})
    ks.Simulator(copy.deepcopy(config), 1, engine="numpy").run(2)
    stored = plain_fields(config)
    message = "expected a class that can be imported, got '.*:hidden': .*configs has no such name at its top level"
    with pytest.raises(ValueError, match=message):
        make_config(stored)
    with pytest.raises(pickle.PicklingError, match=message):
        pickle.dumps(config)
    wrong = {
        "__main__:nobody": "it was declared in a notebook or a script; write it into a file of its own",
        "nowhere:nobody": "a class that can be imported, .*no module 'nowhere' is found: put the folder of",
        "agent_classes:CLASSES": r"expected what ks.agent has made, got .*, which is \(<agent ",
        "agent_classes": "expected module:name of a class",
        "a b:c": "expected module:name of a class",
        ":x": "expected module:name of a class",
    }
    for path, said in wrong.items():
        with pytest.raises(ValueError, match=said):
            PRESET.replace(agents={path: 1})


NOTEBOOK = """
import sys
import gymnasium as gym
import numpy as np
import kineticsim_env as ks

UNITS = 2

def larger(number):
    return number + 1

@ks.agent(memory={"times": 0}, size=3)
def buyer(market, own, draw):
    own.times += 1
    return ks.order(1 - own.times % 2 * 2, market.near_mid(draw.below(4)), larger(own.size) + UNITS)

config = ks.MarketConfig.preset("trading", agents={buyer: ks.mix(3, size=range(1, 4))})
UNITS = 9  # too late: a class has what was there when it was declared

def make():
    import kineticsim_env
    return gym.make("KineticSim/MarketMaking-v0", config=config, engine="numpy", bank_size=2, warmup=2, horizon=5)

envs = gym.vector.AsyncVectorEnv([make, make], context=sys.argv[1])
one = make()
seen, _ = envs.reset(seed=[4, 5])
np.testing.assert_array_equal(seen[0], one.reset(seed=4)[0])
for action in np.random.default_rng(0).uniform(-1, 1, (4, 4)).astype(np.float32):
    seen = envs.step(np.stack([action, action]))[0]
    np.testing.assert_array_equal(seen[0], one.step(action)[0])
envs.close()
print("alike")
"""
CELL = """
import linecache, sys

lines = {text!r}.splitlines(keepends=True)
linecache.cache["<cell>"] = (1, None, lines, "<cell>")
exec(compile("".join(lines), "<cell>", "exec"), globals())
"""


@pytest.mark.slow
@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_a_class_of_a_notebook_reaches_worker_processes(context):
    """These import no notebook. It was an error in the worker, which died, and a broken pipe in the notebook."""
    command = [sys.executable, "-c", CELL.format(text=NOTEBOOK), context]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (0, "alike\n"), done.stderr


@pytest.mark.parametrize("engine", ENGINES)
def test_a_class_of_a_notebook_is_pickled_by_value(engine):
    """What comes back is as the one that was, even where another has taken its name since."""

    @ks.agent(lookback=16, memory={"average": "mid2"}, largest_order=9, role="maker")
    def chartist(market, own, draw):
        own.average += (market.mid2 - own.average) // own.lookback
        return ks.order(market.mid2 - own.average, market.near_mid(0), 1 + draw.below(3))

    chartist.module = "__main__"
    config = PRESET.replace(agents={chartist: ks.mix(3, lookback=[4, 5, 6]), trend_follower: 2})
    other = pickle.loads(pickle.dumps(config))
    again = pickle.loads(pickle.dumps(other))
    assert other == config and again == config
    (mine, followers) = other.agents
    assert mine is not chartist and followers is trend_follower
    assert vars(mine).keys() == vars(chartist).keys() and mine.path == "__main__:chartist"
    runs = [ks.Simulator(one, 2, engine=name, seed=4) for one, name in ((config, "numpy"), (again, engine))]
    for run in runs:
        run.run(20)
    assert torch.equal(runs[0].tensors["bid"], runs[1].tensors["bid"])
    runs[1].load_state_dict(runs[0].state_dict())


def test_policies_of_slots_are_pickled_by_value():
    @ks.policy(memory={"turn": 0}, width=2)
    def alternating(market, slot, own, draw):
        own.turn = 1 - own.turn
        middle = market.mid2 // 2
        return ks.quote(middle - own.width, 1 + own.turn, middle + own.width, 2)

    def played(policy, engine):
        envs = gym.make_vec("KineticSim/MarketMaking-v0", 3, preset="trading", engine=engine, output="torch", horizon=6)
        envs.reset(seed=1)
        return envs.unwrapped.rollout(policy, 8)

    policy = alternating.replace(width=[1, 2, 3])
    again = pickle.loads(pickle.dumps(policy))
    assert again.name == "alternating" and again.program == policy.program
    one, two = played(policy, "numpy").reward, played(again, "cpu").reward
    assert torch.equal(one, two) and bool(one.any())


@pytest.fixture
def stranger(tmp_path, monkeypatch):
    """The path of a class in a module that leaves a mark when it is imported, and whether it has."""
    name, mark = f"stranger_{tmp_path.name}", tmp_path / "imported"
    (tmp_path / f"{name}.py").write_text(f"import pathlib\npathlib.Path({str(mark)!r}).touch()\n{FILE}")
    monkeypatch.syspath_prepend(tmp_path)
    return f"{name}:chartist", mark


def test_a_config_of_a_stranger_imports_no_module_but_those_allowed(stranger):
    path, mark = stranger
    module = path.partition(":")[0]
    stored = plain_fields(PRESET) | {"agents": {path: {"count": 2}}}
    for allowed, said in (((), "no module"), (["agent_classes", module + "s"], f"agent_classes, {module}s")):
        message = f"agents: expected classes of {said} .agents_from.*got '{path}', whose module would be imported"
        with pytest.raises(ValueError, match=message):
            ks.MarketConfig.from_dict(stored, agents_from=allowed)
    for wrong in (module, 3, [3]):
        with pytest.raises(TypeError, match="agents_from: expected a list of names of modules, or None, got"):
            ks.MarketConfig.from_dict(stored, agents_from=wrong)
    assert not mark.exists()
    with pytest.raises(TypeError, match="fields: expected a mapping.*got 3"):
        ks.MarketConfig.from_dict(3)
    assert ks.MarketConfig.from_dict(plain_fields(PRESET), agents_from=()) == PRESET
    assert ks.MarketConfig.from_dict(stored, agents_from=iter([module])).added_agents == 2 and mark.exists()
    assert ks.MarketConfig.from_dict(stored) == ks.MarketConfig.from_dict(stored, agents_from=[module])


def test_scenarios_and_states_of_a_stranger_import_nothing(stranger):
    path, mark = stranger
    env = ks.envs.vector.MarketMakingVectorEnv(
        2, config=PRESET.replace(agents={trend_follower: 2}), randomise={"fee": [0, 1, 2]}, horizon=4, engine="numpy",
        warmup=3, bank_size=2,
    )  # fmt: skip
    env.reset(seed=1)
    saved = env.state_dict()
    table = unpack(SCENARIOS, saved[SCENARIOS])
    table["agents"] = {path: {"count": 2}}
    message = f"expected added agents of the config, agent_classes:trend_follower, got '{path}'"
    with pytest.raises(ValueError, match=f"randomise: {message}"):
        env.set_scenarios({"scenarios": table})
    for strict in (True, False):
        with pytest.raises(ValueError, match=message):
            env.load_state_dict({**saved, SCENARIOS: pack(table)}, strict=strict)
    env.load_state_dict(saved)
    assert not mark.exists()


def test_a_sweep_of_a_stranger_imports_no_module_but_those_allowed(stranger, tmp_path):
    pytest.importorskip("pyarrow")
    path, mark = stranger
    for varied in (False, True):
        folder = tmp_path / f"sweep_{varied}"
        agents = {"agents": [{trend_follower: 1}, {trend_follower: 2}]} if varied else {}
        market = {"preset": "trading"} if varied else {"preset": "trading", "agents": {trend_follower: 2}}
        space = {"max_order_qty": [1, 2], **agents}
        ks.sweep(space, 2, ["volume"], market=market, folder=folder, engine="numpy", progress=False)
        text = (folder / "plan.json").read_text().replace("agent_classes:trend_follower", path)
        stored = json.loads(text)
        (folder / "plan.json").write_text(json.dumps({**stored, "digest": digest(stored["sweep"])}))  # not damaged
        found = ks.open_sweep(folder)
        with pytest.raises(ValueError, match=f"agents: .*got '{path}', whose module would be imported"):
            found.config(0, agents_from=["kineticsim_env.traders"])
        assert not mark.exists()
    assert found.config(3, agents_from=[path.partition(":")[0]]).added_agents == 2 and mark.exists()


@slow
def test_processes_that_are_spawned(tmp_path):
    """A script's own class, one of a file beside it, and JSON in a third process."""
    (tmp_path / "my_traders.py").write_text(FILE)
    script = """
        import json, multiprocessing, pickle, sys
        import kineticsim_env as ks
        from kineticsim_env.config import plain_fields
        from my_traders import chartist

        @ks.agent(size=2)
        def own_one(market, own, draw):
            return ks.order(1, market.near_mid(1), own.size)

        def volume(config):
            return int(ks.Simulator(config, 2, engine="numpy").run(5, ["volume"])["volume"].sum())

        if __name__ == "__main__":
            config = ks.MarketConfig(agents={chartist: 3, own_one: ks.mix(2, size=[3, 4])})
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                assert pool.apply(volume, (config,)) == volume(config) > 0
            print(json.dumps(plain_fields(config)))
    """
    (tmp_path / "script.py").write_text(textwrap.dedent(script))
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    stored = json.loads(done.stdout)
    assert set(stored["agents"]) == {"my_traders:chartist", "__main__:own_one"}
    with pytest.raises(ValueError, match="no module 'my_traders' is found"):
        make_config(stored)
    sys.path.append(str(tmp_path))
    try:
        with pytest.raises(
            ValueError, match="expected a class that can be imported, got '__main__:own_one': .*notebook or a script"
        ):
            make_config(stored)
        del stored["agents"]["__main__:own_one"]
        assert make_config(stored).added_agents == 3
    finally:
        sys.path.remove(str(tmp_path))
        sys.modules.pop("my_traders", None)


# The command line -----------------------------------------------------------------------------------------------------


@pytest.fixture
def traders(tmp_path, monkeypatch):
    """A file of two classes, under a name of its own, and the words before `--agents`."""
    path = tmp_path / f"traders_of_{tmp_path.name}.py"
    path = path.with_name(path.name.replace("-", "_"))
    path.write_text(FILE)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield path
    sys.modules.pop(path.stem, None)


def run(*words):
    """Run `simulate` on few markets of the C++ engine."""
    return cli.main(["simulate", "--preset", "trading", "--markets", "3", "--auctions", "8", "--engine", "cpu", *words])


def test_agents_on_the_command_line(traders, tmp_path, capsys):
    saved = tmp_path / "run.npz"
    words = ["--agents", f"{traders}:chartist=3,lookback=[4,5,6]", "--agents", f"{traders.stem}:idle=2"]
    assert run(*words, "--save", str(saved)) == 0
    config = make_config(json.loads(str(np.load(saved)["config"])))
    assert [(kind.name, made.count) for kind, made in config.agents.items()] == [("chartist", 3), ("idle", 2)]
    assert config.agents[next(iter(config.agents))].parameters["lookback"].tolist() == [4, 5, 6]
    expected = ks.Simulator(config, 3, engine="numpy").run(8, ["mid2"])["mid2"].numpy()
    assert np.array_equal(np.load(saved)["mid2"], expected)
    impact = ["impact", "--markets", "2", "--blocks", "2", "--after", "2", "--warmup", "2", "--engine", "cpu"]
    assert cli.main([*impact, *words]) == 0
    with pytest.raises(SystemExit):
        cli.main(["simulate", "--help"])
    assert "my_traders.py:chartist=30,lookback=8" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("{folder}/none.py:x=3", "agents: expected a file of Python, got '.*none.py', and there is no such file"),
        ("{file}:nobody=3", "expected a class that can be imported, got '.*:nobody': .*; .* has chartist, idle"),
        ("{file}:NUMBER=3", "expected what ks.agent has made, got .*, which is 3"),
        ("{file}:chartist", "expected FILE.py:NAME=COUNT or MODULE:NAME=COUNT"),
        ("{file}:chartist=", "expected FILE.py:NAME=COUNT"),
        ("{file}:chartist=3,4", "expected FILE.py:NAME=COUNT"),
        ("{file}:chartist=3,lookback=len('abc')", "expected FILE.py:NAME=COUNT"),
        ("{file}:chartist=3)+(3", "expected FILE.py:NAME=COUNT"),
        ("{file}:chartist=3,**{{'lookback': 3}}", "expected FILE.py:NAME=COUNT"),
        ("{file}:chartist=3,count=3", "chartist=3,count=3'"),
        ("{file}:chartist=-3", "count: .*got -3"),
        ("{file}:chartist=3,lookback=[1,2]", r"lookback: .*got an array of shape \[2\]"),
        ("{file}:chartist=3,look=4", "expected one of lookback, max_qty, got the parameter 'look'"),
        ("{folder}/broken.py:x=3", "broken raised ZeroDivisionError: division by zero"),
        ("{folder}/wrong.py:x=3", "wrong raised SyntaxError"),
        (
            "{folder}/random.py:idle=3",
            "agents: expected a file of another name, got '.*random.py': the module 'random' is .*random.py",
        ),
        ("{folder}/my-traders.py:idle=3", "expected a name that can be imported, such as my_traders.py"),
        ("{folder}:idle=3", "agents: expected a file of Python, got '.*', and there is no such file"),
        ("no_such_module:idle=3", "no module 'no_such_module' is found"),
        ("a..b:idle=3", "expected module:name of a class"),
        ("chartist=3", "expected FILE.py:NAME=COUNT"),
    ],
)
def test_words_that_the_command_line_refuses(traders, word, message, capsys):
    folder = traders.parent
    for name, text in {"broken": "1/0", "wrong": "x =", "random": FILE, "my-traders": FILE}.items():
        (folder / f"{name}.py").write_text(text)
    assert run("--agents", word.format(file=traders, folder=folder)) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.startswith("error: ")
    assert re.search(message, said), said


def test_agents_are_given_in_one_way(traders, capsys):
    assert run("--agents", f"{traders}:idle=1", "--agents", f"{traders}:idle=2") == 2
    assert "--agents: expected one mix of each class, got 'idle' twice" in capsys.readouterr().err
    assert run("--agents", f"{traders}:idle=1", "--set", "agents=None") == 2
    assert "agents: expected --set agents=... or --agents, got both" in capsys.readouterr().err


# Strange markets ------------------------------------------------------------------------------------------------------


@covering
@pytest.mark.parametrize("preset", ["trading", "news"])
@pytest.mark.parametrize(
    "changes",
    [
        {"agents": {trend_follower: 0, at_the_best: 0}},
        {"agents": {trend_follower: ks.mix(0, lookback=[]), copied_noise: 2}},
        {"agents": {trend_follower: 9, copied_noise: 9}, "num_agents": 1},
        {"agents": {trend_follower: ks.mix(2, lookback=[[3], [4], [5]])}, "noise_spread": [3, 4, 5]},
        {"agents": {trend_follower: 3}, "population": "multinomial"},
        {"agents": {trend_follower: ks.mix(1, lookback=[7]), copied_noise: ks.mix(3)}, "population": "multinomial"},
        {"agents": {trend_follower: 2}, "num_agents": [5, 6, 7]},
    ],
)
def test_engines_agree_on_strange_mixes(preset, changes):
    config = ks.MarketConfig.preset(preset).replace(**changes)
    states = []
    for engine in ENGINES:
        simulator = ks.Simulator(config, 3, engine=engine, seed=2, slots=1)
        simulator.run(12)
        simulator.reset([5, 6, 7])
        simulator.run(12)
        other = ks.Simulator(config, 3, engine=engine, slots=1)
        other.load_state_dict(simulator.state_dict())
        other.run(3)
        simulator.branch()
        simulator.run(3)
        states.append(simulator.tensors)
        for name, tensor in other.tensors.items():
            assert torch.equal(tensor, simulator.tensors[name]), name
        memory = simulator.memory["trend_follower"]["average"]
        assert memory.shape == (3, config.agents[trend_follower].count)
    for name, tensor in states[0].items():
        assert torch.equal(tensor, states[1][name]), name


def test_the_clock_counts_added_agents():
    config = ks.MarketConfig(arrivals="clock", num_agents=7, agents={trend_follower: 3})
    assert ks.Simulator(config, 1, engine="numpy").parameter("interval").tolist() == [10]
    with pytest.raises(ValueError, match="interval: expected a number where num_agents differs.*got None"):
        config.replace(num_agents=[7, 8])
    with pytest.raises(ValueError, match="interval: expected a number up to 65535.*got None"):
        ks.MarketConfig(arrivals="clock", num_agents=65533, max_order_qty=1, agents={trend_follower: 3})
