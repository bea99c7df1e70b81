"""Steps and runs as torch operators: `torch.compile(fullgraph=True)` of a policy and an environment has the same bits.

The same cases on the C++ engine and on a GPU. `aot_eager` shows what a compiler may do to the tensors of a program,
inductor that it does it.
"""

import contextlib
import gc

import gymnasium as gym
import numpy as np
import pytest
import torch
from thorough import covering

import kineticsim_env as ks
from kineticsim_env.engines import operators
from kineticsim_env.engines.base import ENV_STEP, RUN
from kineticsim_env.runtime import build, layout

pytestmark = pytest.mark.skipif(build.cpu_unavailable() is not None, reason="no C++ compiler")
on_each = pytest.mark.parametrize("engine", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
# A policy and a step in one graph, below, goes through inductor in `make test`, too.
compiled_by = pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
M = 7
SMALL = {"preset": "trading", "horizon": 5, "bank_size": 4, "warmup": 3, "output": "torch"}
# Torch 2.13, with any operator that changes a tensor twice in a program. With copy=True results are an operator's.
LATE = "inductor reads a live tensor, or what it takes for a needless clone, after the next step has changed it"
FEE = {"randomise": {"fee": [0, 100, 2500], "noise_spread": (3, 14)}, "num_scenarios": 5, "bank_per_market": 2}


@pytest.fixture(autouse=True)
def fresh():
    """Programs of other tests count against torch's limit of compilations."""
    torch.compiler.reset()
    with torch.no_grad():
        yield


def make(engine, task="MarketMaking", markets=M, **kwargs):
    envs = gym.make_vec(f"KineticSim/{task}-v0", num_envs=markets, engine=engine, **{**SMALL, **kwargs}).unwrapped
    envs.reset(seed=3)
    return envs


def compiled(function, backend):
    return torch.compile(function, fullgraph=True, backend=backend)


def network(envs):
    """Return a policy of a layer. Its actions are few, as a compiler may compute tanh or a division in its own way."""
    torch.manual_seed(5)
    discrete = envs.core.task.action_type == "discrete"
    size = envs._limit if discrete else envs.single_action_space.shape[0]
    layer = torch.nn.Linear(envs.observation.shape[1], size).to(envs.core.device)

    def act(observation):
        found = layer(observation)
        return found.argmax(1) if discrete else torch.where(torch.tanh(found) > 0.1, 0.625, -0.25)

    return act


def everything(envs):
    tensors = {**envs.core.simulator.tensors, **envs.core.tensors, "fills": envs.core.fills}
    return tensors | {"parameters": envs.core.simulator.engine.parameters()}


def assert_alike(one, two, where=""):
    for (name, mine), theirs in zip(everything(one).items(), everything(two).values(), strict=True):
        assert torch.equal(mine, theirs), f"{where}: {name}"


def assert_results_alike(one, two, where=""):
    for number, (mine, theirs) in enumerate(zip(flat(one), flat(two), strict=True)):
        assert mine.dtype == theirs.dtype and torch.equal(mine, theirs), f"{where}: result {number}"


def flat(results):
    *tensors, infos = results
    return [*tensors, *(infos[name] for name in sorted(infos))]


def reset_ended(envs, results):
    """Reset the markets whose episodes have ended, as DISABLED asks for."""
    over = (results[2] | results[3]).cpu().numpy()
    if envs.core.autoreset == 2 and over.any():
        envs.reset(options={"reset_mask": over})


def play(one, two, step, steps, where=""):
    """Step an environment eagerly and another by `step`, and compare all that there is after each."""
    act, seen = network(one), 0
    for t in range(steps):
        wanted = one.step(act(one.observation))
        found = step(two.observation)
        assert_results_alike(found, wanted, f"{where} step {t}")
        assert_alike(two, one, f"{where} step {t}")
        seen += int((wanted[2] | wanted[3]).sum())
        for envs, results in ((one, wanted), (two, found)):
            reset_ended(envs, results)
    assert seen >= len(one.observation), "not all episodes came to an end"


CASES = [
    ("aot_eager", mode, copy, task, action_type)
    for mode in ("same_step", "next_step", "disabled")
    for copy in (True, False)
    for task, action_type in (("MarketMaking", "continuous"), ("Trading", "discrete"))
]
CASES += [
    ("inductor", "same_step", False, "MarketMaking", "continuous"),
    ("inductor", "same_step", True, "Execution", "continuous"),
    ("inductor", "next_step", False, "Trading", "discrete"),
    ("inductor", "next_step", True, "MarketMaking", "discrete"),
    ("inductor", "disabled", False, "Trading", "continuous"),
    ("inductor", "disabled", True, "Execution", "discrete"),
]


# Compiled programs ----------------------------------------------------------------------------------------------------


@covering
@on_each
@pytest.mark.parametrize(("backend", "mode", "copy", "task", "action_type"), CASES)
def test_a_policy_and_a_step_in_one_graph(engine, backend, mode, copy, task, action_type):
    """Over the ends of episodes, and with resets of some markets between."""
    settings = {"autoreset_mode": mode, "copy": copy, "action_type": action_type, "task": task}
    if task == "Execution":
        settings["block_qty"] = 9
    one, two = make(engine, **settings), make(engine, **settings)
    act, counted = network(two), []

    def step(observation):
        results = two.step(act(observation))
        return results, count(*results[1:4])

    program = compiled(step, backend)

    def step_and_look(observation):
        results, found = program(observation)
        wanted = count(*(tensor.clone() for tensor in results[1:4]))
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(found, wanted, strict=True))
        assert all(int(flags.contiguous().view(torch.uint8).max()) <= 1 for flags in results[2:4])
        counted.append(float(found[0].abs().max()))
        return results

    play(one, two, step_and_look, 14)
    assert 0 < max(counted) < 1e4


def count(reward, terminated, truncated):
    """Compute from results, in a program that a compiler may fuse: its flags are bytes of 0 and 1."""
    over = terminated | truncated
    return (
        torch.where(over, reward, 0.5 * reward),
        over.float(),
        over.to(torch.uint8) + (~terminated).to(torch.uint8),
    )


def test_markets_on_the_clock():
    """Queues and what else they have of their own are state of the program; rows are longer."""
    market = {"arrivals": "clock", "mechanism": "continuous", "quote_latency": 4, "rounding": "coin"}
    settings = {"config": ks.MarketConfig.preset("trading").replace(**market), "autoreset_mode": "same_step"}
    one, two = make("cpu", **settings), make("cpu", **settings)
    act = network(two)
    play(one, two, compiled(lambda observation: two.step(act(observation)), "aot_eager"), 13)
    assert one.observation.shape == (M, 39) and int(two.simulator.queue.sum()) > 0


@on_each
@compiled_by
def test_scenarios(engine, backend):
    one, two = make(engine, **FEE, copy=False), make(engine, **FEE, copy=False)
    act = network(two)
    play(one, two, compiled(lambda observation: two.step(act(observation)), backend), 12)
    assert len(two.scenario.unique()) > 1


@covering
@on_each
@compiled_by
@pytest.mark.parametrize("auctions", [1, 3])
def test_several_auctions_and_steps_in_a_program(engine, backend, auctions):
    """Two steps in one graph: the second reads what the first wrote, and leaves what the first returned."""
    one, two = make(engine, auctions_per_step=auctions), make(engine, auctions_per_step=auctions)
    act = network(two)

    def both(envs):
        first = envs.step(act(envs.observation))
        return first, envs.step(act(first[0]))

    program = compiled(lambda: both(two), backend)
    for t in range(4):
        for found, wanted in zip(program(), both(one), strict=True):
            assert_results_alike(found, wanted, f"program {t}")
        assert_alike(two, one, f"program {t}")


@covering
@on_each
@compiled_by
@pytest.mark.parametrize("name", ["observation", "final_observation", "reward"])
def test_actions_that_are_a_clone_of_a_state_tensor(engine, backend, name):
    """Inductor drops the clone, and the step would write over its own input."""
    one, two = make(engine, copy=False), make(engine, copy=False)

    def step(envs):
        return envs.step(envs.core.tensors[name].clone().view(M, -1)[:, -4:].clamp(-1, 1).expand(M, 4).clone())

    def step_rows(envs):
        return envs.step(envs.core.tensors["observation"].clone().view(M, -1)[:, 20:24].contiguous())

    for function in (step, step_rows):
        program = compiled(lambda: function(two), backend)  # noqa: B023
        for t in range(6):
            assert_results_alike(program(), function(one), f"step {t}")
            assert_alike(two, one, f"step {t}")


@on_each
@compiled_by
def test_choices_that_are_a_clone_of_a_state_tensor(engine, backend):
    """As they are: those that are no choices are clamped, and noted, as on a GPU."""
    settings = {"action_type": "discrete", "copy": False, "task": "Trading"}
    one, two = make(engine, **settings), make(engine, **settings)
    for t, name in enumerate(("inventory", "cash", "prev_value") * 3):
        tensors = {**two.core.simulator.tensors, **two.core.tensors}
        tensors[name].view(-1)[0] = t  # else all are 0 at first
        {**one.core.simulator.tensors, **one.core.tensors}[name].view(-1)[0] = t
        program = compiled(lambda: two.step(tensors[name].clone().view(M)), backend)  # noqa: B023
        one.core.step(choices={**one.core.simulator.tensors, **one.core.tensors}[name].clone())
        program()
        assert_alike(two, one, name)


@on_each
@compiled_by
def test_runs_and_steps_of_a_simulator(engine, backend):
    one, two = (ks.Simulator(ks.MarketConfig.preset("trading"), 4, slots=2, engine=engine) for _ in range(2))
    quotes = torch.tensor([60, 3, 70, 3], dtype=torch.int32, device=one.device).repeat(4, 2, 1)
    names = ("mid2", "volume", "last_price", "fundamental")

    def calls(sim, quotes):
        fills = sim.step(quotes, 3)
        series = sim.run(5, record=names)
        value = sim.rollout(torch.stack([quotes, quotes + 1]), 2, record=("mid2", *layout.FURTHER_SERIES), reach=3)
        best = sim.run(2, record=("best_bid",))  # the first of those that take time to record
        found = (*series.values(), value.fills, value.value, *value.series.values(), *best.values())
        return fills, sim.step(None, 2), *found

    for sim in (one, two):
        sim.run(1)
        sim.run(1, record=("best_bid",))
    program = compiled(lambda quotes: calls(two, quotes), backend)
    for t in range(3):
        for found, wanted in zip(program(quotes + t), calls(one, quotes + t), strict=True):
            assert torch.equal(found, wanted)
        for name, tensor in one.tensors.items():
            assert torch.equal(two.tensors[name], tensor), name
    assert int(one.volume.sum()) > 0 and bool(one.inventory.any())


@on_each
def test_another_number_of_auctions_is_another_program(engine):
    one, two = (ks.Simulator(num_markets=3, engine=engine) for _ in range(2))
    for sim in (one, two):
        sim.run(1)
    program = compiled(lambda auctions: two.run(auctions, record=("mid2",))["mid2"], "aot_eager")
    for auctions in (4, 1, 9, 0, 4):
        assert torch.equal(program(auctions), one.run(auctions, record=("mid2",))["mid2"])


@pytest.mark.slow  # the same fault as that of a rollout with copy=False
@on_each
@pytest.mark.xfail(strict=True, reason=LATE)
def test_clones_of_live_results_in_a_program_of_several_steps(engine):
    """With copy=False a program should hold one step, or compute from results rather than clone them."""
    one, two = make(engine, copy=False), make(engine, copy=False)

    def both(envs):
        first = envs.step(torch.full((M, 4), 0.5, device=envs.core.device))[0].clone()
        return first, envs.step(torch.full((M, 4), -0.5, device=envs.core.device))[0]

    for found, wanted in zip(compiled(lambda: both(two), "inductor")(), both(one), strict=True):
        assert torch.equal(found, wanted)


@covering
@on_each
@pytest.mark.parametrize(
    ("backend", "copy"),
    [
        ("aot_eager", True),
        ("aot_eager", False),
        ("inductor", True),
        pytest.param("inductor", False, marks=pytest.mark.xfail(strict=True, reason=LATE)),
    ],
)
def test_a_rollout_in_one_graph(engine, backend, copy):
    """What a buffer took of each step stays, and sums count each step's rewards."""
    one, two = make(engine, copy=copy), make(engine, copy=copy)
    act, device = network(two), two.core.device

    def roll(envs, buffer):
        rewards, total = torch.zeros(3, M, device=device), torch.zeros(M, device=device)
        for t in range(3):
            buffer[t].copy_(envs.observation)
            reward = envs.step(act(envs.observation))[1]
            rewards[t] = reward
            total = total + reward
        return rewards, total

    program = compiled(lambda buffer: roll(two, buffer), backend)
    for t in range(4):
        mine, theirs = (torch.zeros(3, M, 37, device=device) for _ in range(2))
        for found, wanted in zip((*program(mine), mine), (*roll(one, theirs), theirs), strict=True):
            assert torch.equal(found, wanted), t
        assert_alike(two, one, f"rollout {t}")


@on_each
@compiled_by
def test_compiled_and_eager_steps_take_turns(engine, backend):
    """And leave to each other the state, whichever of an eager step's ways is taken."""
    one, two = make(engine), make(engine)
    act = network(two)
    program = compiled(lambda observation: two.step(act(observation)), backend)
    for t in range(15):
        wanted = one.step(act(one.observation))
        found = program(two.observation) if t % 3 else two.step(act(two.observation))
        assert_results_alike(found, wanted, f"step {t}")
        assert_alike(two, one, f"step {t}")
        if t == 7:
            for envs in (one, two):
                envs.simulator.run(2)


# Settings between -----------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:state. got one of something else")
@on_each
@compiled_by
def test_settings_that_change_between_compiled_steps(engine, backend):
    """More often than torch compiles a program anew: 8 times."""
    one, two = make(engine, reward="inventory", **FEE), make(engine, reward="inventory", **FEE)
    act = network(two)
    program = compiled(lambda observation: two.step(act(observation)), backend)
    saved, number = one.state_dict(), two.core.launcher.number
    changes = [
        lambda envs: envs.set_task(reward="pnl"),
        lambda envs: envs.set_scenarios({"fee": [9], "noise_spread": {"values": [3, 5]}}),
        lambda envs: envs.set_scenario_weights([0, 1, 0, 0, 0]),
        lambda envs: envs.load_state_dict(saved, strict=False),
        lambda envs: envs.set_scenario_weights([0.5, 0, 0, 2, 0]),
        lambda envs: envs.set_task(reward="inventory", inventory_penalty=0.5),
        lambda envs: envs.reset(seed=11),
        lambda envs: envs.set_task(mark="mid"),
    ]
    for t, change in enumerate(3 * changes):
        for envs in (one, two):
            change(envs)
        for again in range(2):
            assert_results_alike(program(two.observation), one.step(act(one.observation)), f"{t}, {again}")
            assert_alike(two, one, f"{t}, {again}")
    assert two.core.launcher.number == number


@on_each
def test_parameters_of_running_markets_between_compiled_steps_and_runs(engine):
    """In place, with a larger growth, and from one row to a row per market."""
    one, two = make(engine), make(engine)
    act = network(two)
    step = compiled(lambda observation: two.step(act(observation)), "aot_eager")
    for envs in (one, two):
        envs.simulator.run(1)
    run = compiled(lambda: two.simulator.run(2, record=("mid2",))["mid2"], "aot_eager")
    numbers = two.core.launcher.number, two.simulator.engine.launcher(RUN).number
    spreads = torch.arange(3, 3 + one.simulator.num_markets)
    for t, fields in enumerate(({"fee": 900}, {"max_order_qty": 90}, {"noise_spread": spreads}, {"fee": 0})):
        for envs in (one, two):
            envs.simulator.set_parameters(**fields)
        for again in range(2):
            assert_results_alike(step(two.observation), one.step(act(one.observation)), f"{t}, {again}")
            assert_alike(two, one, f"{t}, {again}")
        assert torch.equal(run(), one.simulator.run(2, record=("mid2",))["mid2"])
    assert (two.core.launcher.number, two.simulator.engine.launcher(RUN).number) == numbers


@on_each
def test_parameters_that_change_between_compiled_runs(engine):
    """A reset that draws populations anew gives the engine other parameters."""
    config = ks.MarketConfig.preset("trading", population="multinomial")
    one, two = (ks.Simulator(config, 3, engine=engine) for _ in range(2))
    program = compiled(lambda: two.run(3, record=("mid2",))["mid2"], "aot_eager")
    for seed in range(3):
        for sim in (one, two):
            sim.reset(seed=seed)
            sim.run(1)
        assert torch.equal(program(), one.run(3, record=("mid2",))["mid2"])


# What cannot be -------------------------------------------------------------------------------------------------------


def refused(program, *args, match):
    with pytest.raises(Exception, match=match):  # torch wraps what a traced program raises
        program(*args)


def test_what_cannot_be_compiled_says_why():
    action = torch.zeros(M, 4)
    for kwargs, why in (
        ({"engine": "numpy"}, "engine 'numpy' cannot be compiled"),
        ({"engine": "cpu", "output": "numpy"}, "expected output='torch' in a compiled program, got output='numpy'"),
    ):
        envs = make(**kwargs)
        refused(compiled(lambda action: envs.step(action), "aot_eager"), action, match=why)  # noqa: B023
    envs = make("cpu")
    before = envs.state_dict()
    program = compiled(lambda action: envs.step(action), "aot_eager")
    refused(program, torch.zeros(M, 3), match=r"actions: .*got \[7, 3\]|ValueError|Observed exception")
    refused(program, torch.zeros(M, 4, dtype=torch.float64), match="actions: expected Float.*got Double")
    for name, tensor in envs.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    fresh = gym.make_vec("KineticSim/MarketMaking-v0", num_envs=M, engine="cpu", **SMALL).unwrapped
    refused(compiled(lambda action: fresh.step(action), "aot_eager"), action, match="reset")


@on_each
def test_a_market_that_stops_says_so_in_its_error_word(engine):
    envs = make(engine, bank_size=0, markets=3, config=ks.MarketConfig(), horizon=50)
    act = network(envs)
    program = compiled(lambda observation: envs.step(act(observation)), "aot_eager")
    program(envs.observation)
    envs.simulator.bid[1, 0] = 2**31 - 1
    before = {name: tensor[1].clone() for name, tensor in envs.simulator.tensors.items()}
    program(envs.observation)
    assert int(envs.simulator.tensors["error"][1]) & layout.CONSTANTS["kErrorOverflow"]
    for name in ("bid", "ask", "t", "cash"):
        assert torch.equal(envs.simulator.tensors[name][1], before[name]), name
    with pytest.raises(ks.MarketError, match=r"market 1: .*2\^31"):
        envs.simulator.check_errors()


def test_an_eager_step_after_compiled_ones_counts_their_auctions():
    """The C++ engine knows for how many auctions no side can overflow, and must not forget those of programs."""
    envs = make("cpu", bank_size=0, markets=2, config=ks.MarketConfig(), horizon=50)
    act = network(envs)
    envs.step(act(envs.observation))
    engine = envs.simulator.engine
    safe = engine._safe_auctions
    assert safe > 1000
    compiled(lambda observation: envs.step(act(observation)), "aot_eager")(envs.observation)
    envs.simulator.bid[1, 0] = 2**31 - 1
    before = {name: tensor.clone() for name, tensor in envs.simulator.tensors.items()}
    with pytest.raises(ks.MarketError, match=r"market 1: .*2\^31"):
        envs.step(act(envs.observation))
    for name, tensor in envs.simulator.tensors.items():
        assert torch.equal(tensor, before[name]), f"{name}: a copy was made, and put back"


# The operators by hand ------------------------------------------------------------------------------------------------


def step_arguments(envs):
    launcher = envs.core.launcher
    actions = torch.full((M, 4), 0.25, device=envs.core.device)
    return [launcher.state, launcher.tables, actions, launcher.number]


SERIES = (*layout.SERIES, *layout.FURTHER_SERIES)
QUOTES, FILLS, VALUE, SERIES_PLACE, RECORDED, DECISIONS = range(2, 8)  # among these arguments


def run_arguments(sim, decisions=2, auctions=3):
    launcher = sim.engine.launcher(RUN)
    markets, slots = sim.num_markets, len(sim.slots)
    empty = lambda *shape, dtype=torch.int32: torch.zeros(shape, dtype=dtype, device=sim.device)  # noqa: E731
    return [
        launcher.state,
        launcher.tables,
        empty(decisions, markets, slots, 4),
        empty(decisions, markets, slots, 2, dtype=torch.int64),
        empty(decisions, markets, slots, dtype=torch.int64),
        [empty(markets, decisions * auctions) for _ in SERIES],
        list(range(len(SERIES))),
        decisions,
        auctions,
        2,  # the reach of depths
        launcher.number,
    ]


@on_each
def test_torch_finds_nothing_wrong_with_the_operators(engine):
    envs = make(engine)
    torch.library.opcheck(torch.ops.kineticsim.step.default, step_arguments(envs))
    sim = ks.Simulator(num_markets=3, slots=1, engine=engine)
    sim.run(1, record=["best_bid"])
    torch.library.opcheck(torch.ops.kineticsim.run.default, run_arguments(sim))
    nothing = run_arguments(sim)
    nothing[QUOTES : RECORDED + 1] = [None, None, None, [], []]
    torch.library.opcheck(torch.ops.kineticsim.run.default, nothing)
    outputs = [envs.core.tensors["observation"][:, 0, :36], envs.core.tensors["over"][:, 0]]
    torch.library.opcheck(torch.ops.kineticsim.copies_of.default, (outputs, envs.core.launcher.number))


@on_each
def test_copies_by_hand_are_of_any_tensors(engine):
    """Those whose rows lie apart each in one piece, and those that no one kernel copies."""
    envs = make(engine)
    values = torch.arange(7 * 12, device=envs.core.device).view(7, 12)
    outputs = [values, values[:, :5], values[:, 0], values.t(), values[::2, ::3], values[:0], values[3, 4]]
    for given in (outputs, outputs[:3], outputs[:3] * 5, outputs * 3):  # of more than one kernel takes, too
        found = torch.ops.kineticsim.copies_of(given, envs.core.launcher.number)
        for tensor, output in zip(found, given, strict=True):
            assert torch.equal(tensor, output) and tensor.is_contiguous()
            assert tensor.untyped_storage().data_ptr() != values.untyped_storage().data_ptr()


@on_each
def test_no_two_tensors_share_storage(engine):
    """A compiler takes each for one of its own: what is written to one would be lost in another."""
    envs = make(engine, **FEE)
    launcher = envs.core.launcher
    tensors = [*launcher.state, *launcher.tables]
    assert len({tensor.untyped_storage().data_ptr() for tensor in tensors}) == len(tensors)
    for name in ("terminated", "truncated", "over", "done", "ended"):
        assert launcher.named[name].dtype == torch.bool
    written = {*launcher.named}
    assert {"bid", "seed", "params", "observation", "fills"} <= written and "scenario_params" not in written


def spoilt(tensor):
    """Return what is no such tensor, each with a word of what is said about it."""
    more = torch.cat([tensor.reshape(-1), tensor.reshape(-1)[:1]])
    return [
        (more, "bytes"),
        (tensor.reshape(-1)[:-1].clone(), "bytes"),
        (torch.stack([tensor, tensor], -1)[..., 0], "contiguous"),
        (more[1:], "contiguous"),  # not aligned
    ]


def assert_refuses(operator, arguments, tensors, match=""):
    before = [tensor.clone() for tensor in tensors]
    with pytest.raises((RuntimeError, NotImplementedError), match=match):
        operator(*arguments)
    for tensor, was in zip(tensors, before, strict=True):
        assert torch.equal(tensor, was)


@on_each
def test_actions_that_lie_in_the_state_are_read_before_it_changes(engine):
    """A compiler may leave out the copy that a program makes of a tensor of the state."""
    one, two = make(engine, copy=False), make(engine, copy=False)
    for _ in range(3):
        given = torch.rand(4 * M) * 2 - 1
        for envs, is_copied in ((one, False), (two, True)):
            state, tables, actions, number = step_arguments(envs)
            within = envs.core.tensors["observation"].view(-1)[: actions.numel()]
            within.copy_(given)
            actions = within.view_as(actions)
            torch.ops.kineticsim.step(state, tables, actions.clone() if is_copied else actions, number)
        assert_alike(two, one, "the state")


@on_each
def test_a_step_by_hand_looks_at_every_tensor(engine):
    envs = make(engine, **FEE)
    state, tables, actions, number = step_arguments(envs)
    step, tensors = torch.ops.kineticsim.step, list(everything(envs).values())
    for place in (0, 3, len(state) - 1):
        for wrong, said in spoilt(state[place]):
            assert_refuses(step, [[*state[:place], wrong, *state[place + 1 :]], tables, actions, number], tensors, said)
    for wrong, said in spoilt(tables[0]):
        assert_refuses(step, [state, [wrong, *tables[1:]], actions, number], tensors, said)
    for wrong_state, wrong_tables in ((state[:-1], tables), (state, tables[:-1]), ([*state, state[0]], tables)):
        assert_refuses(step, [wrong_state, wrong_tables, actions, number], tensors, "expected .* tensors, got")
    for wrong, said in (
        (actions.double(), "actions: expected .*, got Double"),
        (actions.long(), "actions: expected .*, got Long"),
        (actions[:-1], "actions: .*got"),
        (actions[:, :3], "expected 4 numbers or more for each of 7 slots, got "),
        (actions.reshape(-1)[:-1], "actions: expected 4 numbers or more for each of 7 slots, got 27"),
    ):
        assert_refuses(step, [state, tables, wrong, number], tensors, said)
    for wrong in (0, -1, number + 1000):
        assert_refuses(step, [state, tables, actions, wrong], tensors, "number of an engine that is still there")
    if engine == "cuda":
        assert_refuses(step, [state, tables, actions.cpu(), number], tensors, "engine's device")
        assert_refuses(step, [[state[0].cpu(), *state[1:]], tables, actions, number], tensors, "engine's device")
    step(state, tables, actions, number)  # the right one goes through, and other strides and more columns do, too
    step(state, tables, actions.t().contiguous().t(), number)
    step(state, tables, torch.cat([actions, actions], 1), number)


@on_each
def test_choices_by_hand_are_looked_at_too(engine):
    envs = make(engine, action_type="discrete")
    state, tables, _, number = step_arguments(envs)
    step, tensors = torch.ops.kineticsim.step, list(everything(envs).values())
    choices = torch.zeros(M, dtype=torch.int64, device=envs.core.device)
    for wrong in (choices.float(), choices.int(), choices[:-1], torch.cat([choices, choices])):
        assert_refuses(step, [state, tables, wrong, number], tensors, "actions: .*got")
    step(state, tables, choices, number)


@on_each
def test_a_run_by_hand_looks_at_everything(engine):
    sim = ks.Simulator(num_markets=3, slots=2, engine=engine)
    sim.run(1, record=["best_bid"])  # a GPU's kernel that records further series has to be there
    run, arguments = torch.ops.kineticsim.run, run_arguments(sim)
    series, numbers = arguments[SERIES_PLACE], arguments[RECORDED]
    tensors = [*arguments[0], *arguments[FILLS : VALUE + 1], *series]

    def with_other(place, *other):
        return [*arguments[:place], *other, *arguments[place + len(other) :]]

    for place in (QUOTES, FILLS, VALUE):
        for wrong, _ in spoilt(arguments[place])[: 2 if place == QUOTES else None]:  # quotes are copied as need be
            assert_refuses(run, with_other(place, wrong), tensors)
        assert_refuses(run, with_other(place, arguments[place].to(torch.float32)), tensors, "got Float")
    for place, tensor in enumerate(series):
        for wrong in (*(wrong for wrong, _ in spoilt(tensor)), tensor.to(torch.float32)):
            assert_refuses(run, with_other(SERIES_PLACE, [*series[:place], wrong, *series[place + 1 :]]), tensors)
    for wrong in (numbers[1:], [*numbers, 0]):
        assert_refuses(run, with_other(RECORDED, wrong), tensors, r"series: expected \d+ tensors, got 9")
    for wrong in (-1, len(SERIES)):
        assert_refuses(run, with_other(RECORDED, [wrong, *numbers[1:]]), tensors, f"recorded: expected .*got {wrong}")
    for decisions, auctions in ((-1, 3), (2, -1), (2**30, 1), (1, 2**40)):
        assert_refuses(run, with_other(DECISIONS, decisions, auctions), tensors, "expected 0 to")
    for decisions, auctions in ((3, 3), (2, 4)):
        assert_refuses(run, with_other(DECISIONS, decisions, auctions), tensors)
    run(*arguments)
    assert sim.t.tolist() == [7, 7, 7]


@on_each
def test_an_operator_takes_its_own_launchers_only(engine):
    envs = make(engine)
    envs.simulator.run(1)
    state, tables, actions, number = step_arguments(envs)
    arguments = run_arguments(envs.simulator)
    tensors = list(everything(envs).values())
    other = "got one for another operator"
    assert_refuses(torch.ops.kineticsim.step, [state, tables, actions, arguments[-1]], tensors, other)
    assert_refuses(torch.ops.kineticsim.run, [*arguments[:-1], number], tensors, other)


@on_each
def test_the_number_of_an_engine_that_is_gone_is_refused(engine):
    envs = make(engine)
    state, tables, actions, number = step_arguments(envs)
    state = [tensor.clone() for tensor in state]
    torch.ops.kineticsim.step(state, tables, actions, number)  # other tensors than its own will do
    del envs
    gc.collect()
    assert_refuses(torch.ops.kineticsim.step, [state, tables, actions, number], state, "still there")
    with pytest.raises(RuntimeError, match="still there"):
        torch.ops.kineticsim.copies(number)


@on_each
def test_a_step_on_other_tensors_leaves_the_engines_own(engine):
    """Pointers come from the tensors that are passed."""
    envs, clone = make(engine), make(engine)
    state, tables, actions, number = step_arguments(envs)
    before = [tensor.clone() for tensor in state]
    other = [tensor.clone() for tensor in state]
    torch.ops.kineticsim.step(other, tables, actions, number)
    for tensor, was in zip(state, before, strict=True):
        assert torch.equal(tensor, was)
    clone.step(actions)
    for (name, tensor), found in zip(clone.core.launcher.named.items(), other, strict=True):
        assert torch.equal(found, tensor), name


def test_gradients_do_not_go_through_a_step():
    envs = make("cpu")
    with torch.enable_grad():
        actions = torch.zeros(M, 4, requires_grad=True)
        observation = compiled(lambda action: envs.step(action), "aot_eager")(actions)[0]
    assert not observation.requires_grad


# Steps at once --------------------------------------------------------------------------------------------------------


def test_a_cpu_plays_no_step_at_once():
    envs, clone = make("cpu"), make("cpu")
    assert envs.core.eager.step(torch.zeros(M, 4)) is False
    assert_alike(envs, clone)
    for given in (None, "no", np.zeros((M, 4), np.float32), torch.zeros(M, 3), torch.zeros(M, 4).double()):
        assert envs.core.eager.step(given) is False
    batched = ks.BatchedParallelEnv(2, engine="cpu", bank_size=0)
    assert batched.core.eager.step(batched._rows) is False


@pytest.mark.gpu
def test_a_step_at_once_is_taken_where_nothing_stands_in_the_way():
    envs, clone = make("cuda"), make("cpu")
    actions = torch.full((M, 4), 0.25, device="cuda")
    envs.step(actions), clone.step(actions.cpu())
    assert envs.core.eager.step(actions) is True
    clone.step(actions.cpu())
    wide, shifted = torch.zeros(M, 8, device="cuda"), torch.zeros(4 * M + 1, device="cuda")[1:].view(M, 4)
    for given in (wide[:, :4], wide[:, ::2], shifted, actions.double(), actions.cpu(), actions[:3], [0.0]):
        assert envs.core.eager.step(given) is False
    other = torch.cuda.Stream()
    other.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(other):
        assert envs.core.eager.step(actions) is False, "another stream has to wait for the last one first"
        envs.step(actions)
        assert envs.core.eager.step(actions) is True
    torch.cuda.synchronize()
    for _ in range(2):
        clone.step(actions.cpu())
    for (name, tensor), theirs in zip(everything(envs).items(), everything(clone).values(), strict=True):
        assert torch.equal(tensor.cpu(), theirs), name


@pytest.mark.gpu
def test_a_step_at_once_that_would_read_moved_memory_is_refused():
    envs = make("cuda", copy=False)
    actions = torch.zeros(M, 4, device="cuda")
    envs.step(actions)
    live = envs.core.tensors["observation"].view(-1)[: 4 * M].view(M, 4)
    assert envs.core.eager.step(live) is False, "the step would write over its own input"
    envs.core.simulator.tensors["bid"].set_(torch.zeros_like(envs.core.simulator.tensors["bid"]))
    with pytest.raises(RuntimeError, match="bid: its memory was replaced or resized"):
        envs.step(actions)


# On a GPU -------------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("markets", [1, 3, 1025])
@pytest.mark.parametrize(("task", "features"), [("MarketMaking", 37), ("Execution", 37), ("Trading", 36)])
@pytest.mark.parametrize("mode", ["same_step", "disabled"])
def test_copies_are_what_is_live(markets, task, features, mode):
    """Rows of 36 numbers lie 37 apart, and flags of an odd number of markets end anywhere."""
    one, two = (make("cuda", task, markets, copy=copy, autoreset_mode=mode) for copy in (True, False))
    size = one.single_action_space.shape[0]
    generator, kept = torch.Generator("cuda").manual_seed(1), []
    for _ in range(4):
        actions = 2 * torch.rand(markets, size, generator=generator, device="cuda") - 1
        copies, live = one.step(actions), two.step(actions)
        assert copies[0].shape == (markets, features)
        assert_results_alike(copies, live)
        assert all(tensor.is_contiguous() for tensor in flat(copies))
        kept.append((flat(copies), [tensor.clone() for tensor in flat(copies)]))
    for tensors, as_they_were in kept:
        for tensor, was in zip(tensors, as_they_were, strict=True):
            assert torch.equal(tensor, was)


@pytest.mark.gpu
@pytest.mark.parametrize("task", ["MarketMaking", "Trading"])
@pytest.mark.parametrize("mode", ["same_step", "next_step"])
def test_numpy_output_is_torch_output(task, mode):
    one, two = (make("cuda", task, 33, autoreset_mode=mode, output=output) for output in ("numpy", "torch"))
    for seed in range(8):
        one.action_space.seed(seed)
        actions = one.action_space.sample()
        for mine, theirs in zip(flat(one.step(actions)), flat(two.step(torch.from_numpy(actions).cuda())), strict=True):
            assert mine.dtype == np.dtype(str(theirs.dtype).removeprefix("torch."))
            np.testing.assert_array_equal(mine, theirs.cpu().numpy())


@pytest.mark.gpu
@compiled_by
@pytest.mark.parametrize("copy", [True, False])
def test_compiled_steps_in_a_cuda_graph(backend, copy):
    one, two = make("cuda", copy=copy), make("cuda", copy=copy)
    act = network(two)
    program = compiled(lambda observation: two.step(act(observation)), backend)
    static = two.observation.clone()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            assert_results_alike(program(static), one.step(act(static)))
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = program(static)
    for t in range(12):
        static.copy_(two.observation)
        graph.replay()
        assert_results_alike(found, one.step(act(one.observation.clone())), f"replay {t}")
        assert_alike(two, one, f"replay {t}")


@pytest.mark.gpu
@compiled_by
def test_compiled_steps_on_streams(backend):
    """A program launches on the current stream; where streams change, waiting is the caller's, as with torch's own."""
    one, two = make("cuda"), make("cuda")
    act = network(two)
    program = compiled(lambda observation: two.step(act(observation)), backend)
    streams = [torch.cuda.Stream() for _ in range(3)]
    for t in range(12):
        stream = streams[t % 3]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream) if t % 4 else contextlib.nullcontext():
            found = program(two.observation)
        torch.cuda.current_stream().wait_stream(stream)
        assert_results_alike(found, one.step(act(one.observation)), f"step {t}")


def test_the_library_registers_its_operators_once():
    assert operators.library() is operators.library()
    schema = str(torch.ops.kineticsim.step.default._schema)
    assert schema == "kineticsim::step(Tensor(a!)[] state, Tensor[] tables, Tensor actions, int launcher) -> ()"
    envs = make("cpu")
    with pytest.raises(TypeError, match="cannot be copied or pickled"):
        envs.core.launcher.__reduce__()
    assert envs.core.simulator.engine.launcher(ENV_STEP) is envs.core.launcher


def test_a_step_takes_nothing_but_what_all_slots_need():
    """What is shorter would have slots read beyond it. Here nothing may be launched, as it is a GPU's way."""
    envs = make("cpu", "Trading")
    launcher = envs.core._engine.launcher(ENV_STEP)
    actions, before = torch.zeros(M, 2), envs.core.tensors["elapsed"].clone()
    for size, stride in [(0, 0), (actions.nbytes // 2, 2), (actions.nbytes, 1), (2 * actions.nbytes, 2)]:
        assert launcher.step(actions.data_ptr(), size, stride, 0) == operators.SHARED
    assert torch.equal(envs.core.tensors["elapsed"], before)
