"""What a careless or hostile caller does: every case once went wrong."""

import copy
import pickle
import subprocess
import sys

import gymnasium as gym
import hostile_clock
import numpy as np
import pytest
import torch
from build_helpers import needs_compiler
from thorough import slow

import kineticsim_env as ks
from kineticsim_env import policies
from kineticsim_env.cli import main
from kineticsim_env.evaluation import evaluation_env
from kineticsim_env.runtime import build, layout
from scripts.fuzz import sanitizers


def test_an_iterator_of_names_is_recorded():
    """It can be read once, and was used up by the check: the series came back empty."""
    sim = ks.Simulator(engine="numpy", slots=1)
    assert sim.run(2, record=iter(["volume"]))["volume"].shape == (1, 2)
    played = sim.rollout(np.zeros((3, 1, 1, 4), np.int32), record=(name for name in ("mid2", "volume")))
    assert list(played.series) == ["mid2", "volume"]


@pytest.mark.parametrize(
    "slots", [{"maker": 2}, {"maker", "noise"}, frozenset(["maker"])], ids=["mapping", "set", "frozenset"]
)
def test_slots_without_an_order(slots):
    """A dict in the manner of `parallel_env(learners=...)` was taken for one slot per key."""
    with pytest.raises(TypeError, match=r"slots: expected a count up to 32, or a sequence.*got"):
        ks.Simulator(engine="numpy", slots=slots)


def test_ragged_seeds_and_a_wrong_validate():
    with pytest.raises(ValueError, match=r"seed: expected an int, or 2 of them, got \[\[1\], \[2, 3\]\]"):
        ks.Simulator(num_markets=2, engine="numpy", seed=[[1], [2, 3]])
    with pytest.raises(TypeError, match=r"validate: expected True or False, got 'yes'"):
        ks.Simulator(engine="numpy", validate="yes")


@pytest.mark.parametrize(
    "engine",
    [
        "numpy",
        pytest.param("cpu", marks=pytest.mark.skipif(build.cpu_unavailable() is not None, reason="no C++ compiler")),
    ],
)
@pytest.mark.parametrize("make", [copy.deepcopy, pickle.dumps])
def test_copies_are_refused(engine, make):
    """A deep copy on NumPy had state tensors that its engine never wrote to."""
    small = {"engine": engine, "bank_size": 2, "warmup": 1}
    one, many = gym.make("KineticSim/MarketMaking-v0", **small), gym.make_vec("KineticSim/MarketMaking-v0", **small)
    together = [ks.parallel_env({"maker": 1}, **small), ks.BatchedParallelEnv(1, {"maker": 1}, **small)]
    env = one.unwrapped
    for victim in (one, env, many, *together, env.core, env.simulator):
        with pytest.raises(TypeError, match=r"copied or pickled; use clone\(\) of an environment, Simulator"):
            make(victim)
    for cloned in (env, many, *together):
        assert type(cloned.clone()) is type(cloned)
    assert env.simulator.branch().run(2) == {}


@pytest.mark.parametrize(
    "engine",
    [
        "numpy",
        pytest.param("cpu", marks=pytest.mark.skipif(build.cpu_unavailable() is not None, reason="no C++ compiler")),
    ],
)
def test_a_live_book_that_was_written_to(engine):
    """On C++ it was an AssertionError, and with python -O something else."""
    sim = ks.Simulator(num_markets=2, engine=engine)
    sim.run(1)
    sim.bid[0, 5] = 2**31 - 1
    with pytest.raises(ks.MarketError, match=r"market 0.*2\^31"):
        sim.run(1)
    sim.bid.zero_()
    try:
        sim.reset(seed=0)
    except ks.MarketError:  # the error word of what went before
        sim.reset(seed=0)
    sim.run(1)
    assert sim.t.tolist() == [1, 1]


@pytest.mark.parametrize(("markets", "output", "wanted"), [(1, "torch", "cpu"), (2, "torch", "cuda")])
def test_auto_means_cpu_for_one_market(monkeypatch, markets, output, wanted):
    """Torch output of a single market took CUDA."""
    asked = []

    def choose(engine, device=None, *, prefer_cpu="", own_code=False):
        asked.append("cpu" if prefer_cpu else "cuda")
        return "numpy", torch.device("cpu")

    monkeypatch.setattr("kineticsim_env.envs.core.choose_engine", choose)
    gym.make_vec("KineticSim/MarketMaking-v0", num_envs=markets, output=output, bank_size=2, warmup=1)
    assert asked == [wanted]


def test_cli_looks_at_its_files_and_memory_first(tmp_path, capsys, monkeypatch):
    few = ["simulate", "--markets", "2", "--auctions", "3", "--engine", "numpy"]
    assert main([*few, "--save", str(tmp_path)]) == 2
    said = capsys.readouterr()
    assert f"--save: expected a file, got {str(tmp_path)!r}, which is a folder" in said.err and not said.out

    def full(*args, **kwargs):
        raise RuntimeError("can't allocate memory")

    monkeypatch.setattr("kineticsim_env.commands.simulate.Simulator", full)
    assert main(few) == 2
    assert capsys.readouterr().err == "error: can't allocate memory\n"


def test_a_market_of_drawn_agents_does_not_depend_on_its_place():
    """Its warm starts were seeded by its place in the batch, so that no single market had them."""
    config = ks.MarketConfig.preset("trading", population="multinomial")
    settings = {"config": config, "engine": "numpy", "warmup": 20}
    envs = gym.make_vec("KineticSim/MarketMaking-v0", num_envs=3, stagger=False, **settings)
    env = gym.make("KineticSim/MarketMaking-v0", **settings)
    for seed in (10, 2**63 - 3):
        observations, _ = envs.reset(seed=seed)
        for m in range(3):
            np.testing.assert_array_equal(observations[m], env.reset(seed=seed + m)[0])


@pytest.mark.parametrize("mask", [None, [True, False, True]])
def test_a_reset_forgets_the_fills_of_the_last_decision(mask):
    """The infos of a reset had the trades of the episode before."""
    envs = gym.make_vec("KineticSim/MarketMaking-v0", num_envs=3, engine="numpy", preset="trading", warmup=20)
    envs.reset(seed=0)
    while not envs.unwrapped.fills.sum(1).all():
        envs.step(np.tile(np.float32([-1, -1, 1, 1]), (3, 1)))
    envs.reset(options=None if mask is None else {"reset_mask": np.array(mask)})
    kept = envs.unwrapped.fills.sum(1) > 0
    assert kept.tolist() == ([False] * 3 if mask is None else [not chosen for chosen in mask])


def test_policies_read_the_inventory_under_the_limit_of_the_config():
    """They scaled by the task's limit, four times too large here, so that Avellaneda-Stoikov skewed as much too far."""
    config = ks.MarketConfig.preset("trading", inventory_limit=10)
    envs = evaluation_env(16, engine="numpy", config=config, warmup=20)
    observation, _ = envs.reset(seed=0)
    for _ in range(5):
        observation, *_ = envs.step(policies.FixedSpread(envs.core.task, 1)(observation))
    inventory = envs.simulator.inventory[:, 0]
    assert inventory.any()
    torch.testing.assert_close(policies.inventory_of(envs.core.task, observation), inventory.float())


# On the clock ---------------------------------------------------------------------------------------------------------

each_engine = pytest.mark.parametrize(
    "engine",
    ["numpy", pytest.param("cpu", marks=needs_compiler), pytest.param("cuda", marks=pytest.mark.gpu)],
)


@slow
@needs_compiler
def test_any_number_in_live_tensors_on_the_clock_is_safe():
    """With t below 0 quotes were read and written before their array, and some stretches of events never ended."""
    watched = sanitizers.runtime("libasan.so") is not None
    sanitizers.build_engine(watched)
    command = [sys.executable, hostile_clock.__file__, "cpu"]
    environment = sanitizers.child_environment(watched)
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True, timeout=600)
    said = sanitizers.report_in(done.stderr) or done.stderr[-2000:]
    assert (done.returncode, done.stdout) == (0, "held\n"), said


@each_engine
@pytest.mark.parametrize("t", [-1, -2, -5, -(2**63)])
def test_every_slot_has_its_turn_whatever_t_is(engine, t):
    """Below 0 some slots had none, as remainders are negative there."""
    config = hostile_clock.hostile_config("continuous", levers=False).replace(market_order_prob=0.0, noise_spread=0)
    sim = ks.Simulator(config, 3, engine=engine, slots=[None] * 3)
    sim.t.fill_(t)
    quotes = torch.tensor([[-9, 1, 99, 2], [-8, 3, 98, 4], [-7, 5, 97, 6]], dtype=torch.int32)
    sim.step(quotes.expand(3, 3, 4).to(sim.device))
    assert sim.tensors["quotes"].tolist() == [quotes.tolist()] * 3


@pytest.mark.parametrize(
    "engine", [pytest.param("cpu", marks=needs_compiler), pytest.param("cuda", marks=pytest.mark.gpu)]
)
def test_more_than_2_to_the_31_units_trade_in_an_interval(engine):
    """They were counted in 32 bits with a sign until the interval ended."""
    fields = {"arrivals": "clock", "mechanism": "continuous", "num_agents": 100, "interval": 65535, "beat": 2**30}
    config = ks.MarketConfig(**fields, max_order_qty=65535, market_order_prob=1.0, maker=0.0, noise=1.0, momentum=0.0)
    sim = ks.Simulator(config, 8, engine=engine)
    sim.bid[:, 3] = sim.ask[:, 99] = 3 * 2**29
    before = sim.bid.long().sum(1) + sim.ask.long().sum(1)
    sim.run(1)
    volume = sim.tensors["volume"]
    assert torch.equal(volume, before - sim.bid.long().sum(1) - sim.ask.long().sum(1))
    assert 0 < int((volume >= 2**31).sum()) < 8


@each_engine
@pytest.mark.parametrize("mechanism", hostile_clock.MECHANISMS)
@pytest.mark.parametrize("name", ["interval", "beat"])
def test_a_state_without_events_is_refused(engine, mechanism, name):
    """The C++ engine divided by its beats and died; a kernel would not have ended."""
    config = hostile_clock.hostile_config(mechanism, levers=False)
    settings = {"warmup": 1, "bank_size": 2, "randomise": {"fee": {"values": [0, 9]}}, "num_scenarios": 2}
    envs = gym.make_vec("KineticSim/MarketMaking-v0", num_envs=2, config=config, engine=engine, **settings).unwrapped
    envs.reset(seed=1)
    saved = envs.state_dict()
    saved["parameters"][1, list(layout.PARAMS_FIELDS).index(name)] = 0
    with pytest.raises(ValueError, match=rf"state\['parameters'\]: expected {name} from 1 to .*, got 0"):
        envs.load_state_dict(saved)


@each_engine
@pytest.mark.parametrize("regime", [-1, 2, 2**31 - 1, -(2**31)])
def test_a_regime_that_is_none_is_forgotten_by_a_reset(engine, regime):
    """On NumPy the reset of an environment raised IndexError, for ever."""
    config = ks.MarketConfig.preset("trading", regimes=[{}, {"noise_spread": 2}])
    envs = gym.make_vec(
        "KineticSim/MarketMaking-v0", num_envs=2, config=config, engine=engine, warmup=1, bank_size=2
    ).unwrapped
    envs.reset(seed=1)
    envs.simulator.tensors["regime"].fill_(regime)
    envs.step(np.zeros((2, 4), np.float32))
    envs.reset(seed=1)
    assert 0 <= int(envs.simulator.tensors["regime"].min()) <= int(envs.simulator.tensors["regime"].max()) <= 1
