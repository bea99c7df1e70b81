"""Agents that users write, beyond a run: learners in their places, warm starts, scenarios, changes, saved states."""

import json

import agent_classes
import gymnasium as gym
import numpy as np
import pytest
import torch
from agent_classes import at_the_best, extreme, insider, trend_follower
from thorough import covering

import kineticsim_env as ks
from kineticsim_env.envs.registered import pack_arguments

ENGINES = ["numpy", "cpu"]
MARKETS = 4
PRESETS = ["trading", "continuous", "news"]
FEWER = {"continuous": {"interval": 12, "beat": 6}, "news": {"interval": 12, "beat": 6}}  # orders per decision
LOOKBACK = "trend_follower.lookback"


@ks.agent(size=2, memory={"times": 0}, role="maker")
def quoter(market, own, draw):
    own.times += 1
    return ks.order(1 if draw.coin() else -1, market.near_mid(-3 if draw.coin() else 3), own.size)


def market(preset="trading", **agents):
    """Return a preset with agents of four classes, of which some remember something."""
    mixes = {trend_follower: ks.mix(5, threshold=1), insider: 2, quoter: 3, at_the_best: 1}
    return ks.MarketConfig.preset(preset, **FEWER.get(preset, {})).replace(agents=mixes | agents)


def trading(engine, config=None, markets=MARKETS, **arguments):
    """Return a trading environment of few warm starts."""
    config = market() if config is None else config
    settings = {"warmup": 6, "bank_size": 4, "bank_per_market": 2, "horizon": 5, "output": "torch", **arguments}
    return gym.make_vec("KineticSim/Trading-v0", markets, config=config, engine=engine, **settings).unwrapped


def play(envs, steps, seed=0):
    """Return what the learner sees and earns in some steps of random actions."""
    generator = torch.Generator().manual_seed(seed)
    seen = []
    for _ in range(steps):
        actions = 2 * torch.rand((envs.num_envs, 2), generator=generator) - 1
        observation, reward, *_ = envs.step(actions.to(envs.core.device))
        seen += [observation.clone(), reward.clone()]
    return seen


def assert_same(one, other):
    """Compare two states, or two lists of tensors."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        one, other = list(one.values()), [other[name] for name in one]
    for a, b in zip(one, other, strict=True):
        assert torch.equal(a.cpu(), b.cpu())


# Learners in their places ---------------------------------------------------------------------------------------------


@covering
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("preset", PRESETS)
def test_a_slot_silences_the_last_of_a_class(engine, preset):
    """Without quotes a replaced agent is one that never orders: as where its parameters keep it from ordering."""

    @ks.agent(speaks=1, memory={"called": 0})
    def talker(view, own, draw):
        own.called += 1
        return ks.order(own.speaks, view.near_mid(draw.offset(3)), 3)

    config = ks.MarketConfig.preset(preset, **FEWER.get(preset, {}))
    alone = ks.Simulator(config.replace(agents={talker: ks.mix(3, speaks=[1, 1, 0])}), 3, engine=engine, seed=5)
    replaced = ks.Simulator(config.replace(agents={talker: 3}), 3, engine=engine, seed=5, slots=("talker", None))
    series = [simulator.run(40, ["last_price", "volume", "mid2"]) for simulator in (alone, replaced)]
    assert_same(*series)
    assert int(series[0]["volume"].sum()) > 0
    called = replaced.memory["talker"]["called"]
    assert (called[:, 2] == 0).all()
    assert (called[:, :2] > 0).all()
    assert torch.equal(called[:, :2], alone.memory["talker"]["called"][:, :2])


@pytest.mark.parametrize("engine", ENGINES)
def test_many_learners_take_the_places_and_roles(engine):
    learners = {"trend_follower": 2, "maker": 1, "trader": 1, "quoter": 1}
    envs = ks.BatchedParallelEnv(3, learners, market(), engine=engine, warmup=4, bank_size=2, horizon=4)
    assert envs.possible_agents == ["trader_0", "trader_1", "trader_2", "maker_0", "maker_1"]
    assert envs.simulator.slots == ("trend_follower", "trend_follower", None, "maker", "quoter")
    assert envs.core.roles == ("trader",) * 3 + ("maker",) * 2
    single = ks.parallel_env(learners, config=market(), engine=engine, warmup=4, bank_size=2, horizon=4)
    assert single.possible_agents == envs.possible_agents
    envs.reset(seed=1)
    single.reset(seed=1)
    for _ in range(6):
        envs.step({role: torch.zeros(3, count, size) for role, count, size in (("trader", 3, 2), ("maker", 2, 4))})
    for _ in range(3):
        single.step({name: single.action_space(name).sample() for name in single.agents})


@pytest.mark.parametrize("engine", ENGINES)
def test_a_learner_and_opponents_of_an_added_class(engine):
    def still(observation):
        return torch.zeros(len(observation), 2)

    envs = trading(
        engine, replace="trend_follower", opponents={"trend_follower": [[still], [still]], "trader": [still]}
    )
    assert envs.simulator.slots == ("trend_follower", "trend_follower", "trend_follower", None)
    envs.reset(seed=0)
    play(envs, 8)
    with pytest.raises(ValueError, match=r"expected slots of the roles \['trend_follower', 'trend.*, got \['trader'\]"):
        envs.set_opponents({"trader": [still]})
    one = gym.make("KineticSim/MarketMaking-v0", config=market(), engine=engine, replace="quoter", bank_size=0)
    assert one.unwrapped.simulator.slots == ("quoter",)


def test_what_replaces_nothing_is_refused_by_name():
    config = market()
    with pytest.raises(
        ValueError, match="replace: expected one of None, 'momentum', 'trend_follower', 'insid.*got 'quoter'"
    ):
        trading("numpy", replace="quoter")
    with pytest.raises(
        ValueError, match=r"learners\['insider'\]: expected up to 2, the insider agents that can be replaced, got 3"
    ):
        ks.parallel_env({"insider": 3}, config=config, engine="numpy")
    with pytest.raises(ValueError, match="expected .*, and of config.agents 'trend_follower'.*got the role 'nobody'"):
        ks.parallel_env({"nobody": 1}, config=config, engine="numpy")
    with pytest.raises(ValueError, match=r"opponents\['insider'\]: expected up to 2, the insider agents.*got 3 slots"):
        trading("numpy", opponents={"insider": [[torch.zeros_like]] * 3})
    with pytest.raises(ValueError, match="slots: expected up to 1.*got 2 that replace a at_the_best agent"):
        ks.Simulator(config, 2, engine="numpy", slots=("at_the_best", "at_the_best"))
    with pytest.raises(ValueError, match="slots: expected one of None, 'noise', .*, 'at_the_best', got 'nobody'"):
        ks.Simulator(config, 2, engine="numpy", slots=("nobody",))


def test_names_of_built_in_classes_and_roles_are_refused_where_they_are_ambiguous():
    @ks.agent()
    def noise(market, own, draw):
        return ks.order(1, market.near_mid(0), 1)

    @ks.agent()
    def trader(market, own, draw):
        return ks.order(1, market.near_mid(0), 1)

    config = ks.MarketConfig.preset("trading").replace(agents={noise: 2, trader: 2})
    ks.Simulator(config, 1, engine="numpy", slots=("trader", "maker")).run(2)
    with pytest.raises(
        ValueError, match="slots: expected another name in config.agents, got 'noise', a class of built-in agents"
    ):
        ks.Simulator(config, 1, engine="numpy", slots=("noise",))
    for name in ("noise", "trader"):
        with pytest.raises(
            ValueError, match=f"learners: expected another name in config.agents, got '{name}', which is a role too"
        ):
            ks.parallel_env({name: 1}, config=config, engine="numpy")


# Warm starts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("preset", PRESETS)
def test_episodes_begin_with_the_memory_of_a_warm_start(engine, preset):
    """A market of the bank, run by hand, has the books and the memory that the episode begins with."""
    envs = trading(engine, market(preset), bank_size=1, warmup=7, horizon=4, stagger=False)
    envs.reset(seed=3)
    begun = envs.state_dict()
    by_hand = ks.Simulator(envs.simulator.config, 1, engine=engine, seed=envs.core.task.warm_seed)
    by_hand.run(7)
    for name in ("bid", "ask", "agent_memory"):
        assert torch.equal(begun[name], by_hand.tensors[name].expand_as(begun[name]))
    assert (envs.simulator.memory["quoter"]["times"] > 0).any()
    play(envs, 4)  # the last step begins the next episodes, from the same market
    assert torch.equal(envs.simulator.tensors["agent_memory"], begun["agent_memory"])


@pytest.mark.parametrize("engine", ENGINES)
def test_markets_of_own_parameters_have_banks_of_their_own(engine):
    """Market m of an ensemble plays what a bank of its own config has."""
    lookback = np.array([[2], [5], [9], [30]])
    together = trading(engine, market().replace(agents={trend_follower: ks.mix(5, threshold=0, lookback=lookback)}))
    assert together.core.live_task.warm_starts.owner == 1
    assert len(together.core.live_task.warm_starts._bank["bank_memory"]) == 8
    together.reset(seed=7)
    memory = together.simulator.memory["trend_follower"]["average"].clone()
    by_hand = ks.Simulator(together.simulator.config.repeated(2), 8, engine=engine, seed=together.core.task.warm_seed)
    by_hand.run(6)
    banks = by_hand.tensors["agent_memory"].view(4, 2, 5)
    for m in range(4):
        assert any(torch.equal(memory[m], bank) for bank in banks[m])
    assert len({tuple(row) for row in banks[:, 0].tolist()}) > 1


# Scenarios ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("replace", [None, "trend_follower"])
def test_scenarios_draw_parameters_of_agents(engine, preset, replace):
    randomise = {LOOKBACK: (4, 34), "insider.patience": [1, 2, 5], "noise_spread": (3, 9)}
    envs = trading(engine, market(preset), randomise=randomise, num_scenarios=16, replace=replace)
    table = envs.core.live_task.scenarios
    drawn = table.agents[trend_follower].parameters["lookback"]
    assert drawn.shape == (16, 1)
    assert drawn.min() >= 4
    assert drawn.max() <= 34
    assert set(table.agents[insider].parameters["patience"].ravel()) <= {1, 2, 5}
    envs.reset(seed=2)
    found = set()
    for _ in range(12):
        play(envs, 1)
        for m, scenario in enumerate(envs.scenario.tolist()):
            assert (envs.simulator.parameter(LOOKBACK)[m] == drawn[scenario, 0]).all()
            found.add(scenario)
    assert len(found) > 4
    assert (envs.simulator.parameter("insider.patience") <= 5).all()


@covering
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("of_each_agent", [False, True])
@pytest.mark.parametrize("engine", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_engines_agree_on_environments_with_added_agents(engine, preset, of_each_agent):
    """Scenarios; warm starts or cold ones; a learner in an agent's place; saved on one engine, played on by another."""
    lookback = np.arange(2, 26).reshape(8, 3)
    mixes = {extreme: 3, trend_follower: ks.mix(3, lookback=lookback if of_each_agent else lookback[:, :1])}
    base = ks.MarketConfig.preset(preset).replace(agents={extreme: 3, trend_follower: 3})
    for settings in ({"bank_size": 0}, {"autoreset_mode": "next_step"}, {"replace": "extreme"}):
        both = [trading(each, base, randomise=base.replace(agents=mixes), **settings) for each in ("numpy", engine)]
        seen = []
        for envs in both:
            envs.reset(seed=9)
            seen.append(play(envs, 12))
        assert_same(*seen)
        states = [envs.state_dict() for envs in both]
        assert_same(*states)
        assert len(states[0]["agent_parameters"].unique(dim=0)) > 1
        both[1].reset(seed=4)
        both[1].load_state_dict(states[0])
        assert_same(*(play(envs, 7) for envs in both))


@pytest.mark.parametrize("engine", ENGINES)
def test_scenarios_of_a_table_are_saved_loaded_and_cloned(engine):
    base = market("trading" if engine == "numpy" else "news")  # the oracle takes its time
    mixes = base.agents | {trend_follower: ks.mix(5, lookback=np.arange(40).reshape(8, 5) + 2)}
    table = base.replace(agents=mixes)
    envs, other = (trading(engine, base, randomise=table) for _ in range(2))
    envs.reset(seed=1)
    play(envs, 7)
    assert envs.simulator.parameter(LOOKBACK).shape == (4, 5)
    other.reset(seed=8)
    saved = envs.state_dict()
    assert saved["agent_parameters"].shape[0] == 4
    other.load_state_dict(saved)
    clone, branch = envs.clone(), envs.simulator.branch()
    assert_same(branch.tensors, envs.simulator.tensors)
    assert_same([branch.engine.agent_parameters()], [envs.simulator.engine.agent_parameters()])
    expected = play(envs, 11, seed=3)
    assert_same(expected, play(other, 11, seed=3))
    assert_same(expected, play(clone, 11, seed=3))
    assert_same(envs.state_dict(), clone.state_dict())
    new = {LOOKBACK: [3, 4, 5], "insider.patience": (1, 4)}
    for each in (envs, other):
        each.set_scenarios(new)
        each.reset(seed=4)
    assert (envs.simulator.parameter(LOOKBACK) <= 5).all()
    assert_same(play(envs, 7), play(other, 7))


def test_a_state_with_scenarios_of_a_class_that_nobody_can_import():
    @ks.agent(size=3)
    def local(market, own, draw):
        return ks.order(1 if draw.coin() else -1, market.near_mid(draw.offset(4)), own.size)

    config = ks.MarketConfig.preset("trading").replace(agents={local: 2})
    one, other = (trading("numpy", config, randomise={"local.size": values}) for values in ([1, 2, 3], [7, 8, 9]))
    one.reset(seed=0)
    other.reset(seed=4)
    other.load_state_dict(one.state_dict())
    assert_same(play(one, 8), play(other, 8))
    assert (other.simulator.parameter("local.size") <= 3).all()


def test_classes_and_counts_are_those_of_all_scenarios():
    config = market()
    wrong = {
        r"expected one of .*, trend_follower.lookback, .*, got the field 'agents', which all scenarios have alike": {
            "agents": 3
        },
        "the field 'trend_follower.count', which all scenarios have alike": {"trend_follower.count": (3, 5)},
        "the field 'trend_follower.look'": {"trend_follower.look": (3, 5)},
        "trend_follower.lookback: expected a whole number.*got 1.5": {LOOKBACK: [1, 1.5, 2]},
        "two whole numbers, low up to high": {LOOKBACK: (1, 2.5)},
        "expected the config's added agents, 5 .*, got 4 trend_follower, 2 insider": config.replace(
            agents=config.agents | {trend_follower: ks.mix(4, lookback=[[1], [2]])}
        ),
        "expected the config's added agents, .*, got none": config.replace(agents=None, noise_spread=[3, 4]),
    }
    for message, randomise in wrong.items():
        with pytest.raises(ValueError, match=message):
            trading("numpy", config, randomise=randomise)
    ensemble = config.replace(agents={trend_follower: ks.mix(2, lookback=[[1], [2], [3], [4]])})
    with pytest.raises(
        ValueError, match=r"agents\[trend_follower\]: expected .* with randomise.*, got one value per market"
    ):
        trading("numpy", ensemble, randomise={"noise_spread": (3, 5)})
    envs = trading("numpy", config, randomise={LOOKBACK: (3, 5)}, num_scenarios=2)
    before = envs.state_dict()
    each = config.replace(agents=config.agents | {trend_follower: ks.mix(5, lookback=np.ones((2, 5), int))})
    with pytest.raises(
        ValueError, match=r"agents\[trend_follower\]: expected parameters of the class, .*, got ones of each agent"
    ):
        envs.set_scenarios(each)
    assert_same(envs.state_dict(), before)


def test_json_of_an_environment_and_back():
    config = market().replace(agents={agent_classes.trend_follower: ks.mix(2, lookback=[4, 9])})
    for randomise in ({LOOKBACK: (4, 34), "noise_spread": [3, 4, 5]}, config.replace(noise_spread=[4, 5])):
        packed = json.loads(json.dumps(pack_arguments({"config": config, "randomise": randomise})))
        one, other = trading("numpy", config, randomise=randomise), trading("numpy", **packed)
        assert one.simulator.config == other.simulator.config
        assert one.core.live_task.scenarios == other.core.live_task.scenarios
        spec = gym.envs.registration.EnvSpec.from_json(one.spec.to_json())
        assert gym.make_vec(spec, 4).unwrapped.core.live_task.scenarios == one.core.live_task.scenarios


# Changes in running markets -------------------------------------------------------------------------------------------


@covering
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("preset", PRESETS)
def test_parameters_of_running_agents_change(engine, preset):
    """Changed markets are those that were made so; others go on."""
    config = market(preset)
    simulator = ks.Simulator(config, 4, engine=engine, seed=3)
    other = ks.Simulator(config.replace(agents=config.agents | {trend_follower: ks.mix(5, threshold=1, lookback=3)}), 4,
                         engine=engine, seed=3)  # fmt: skip
    simulator.run(9)
    before = simulator.state_dict()
    same = simulator.branch()
    mask = [True, False, True, False]
    simulator.set_parameters(mask, **{LOOKBACK: 3, "max_order_qty": 7})
    assert simulator.parameter(LOOKBACK)[:, 0].tolist() == [3, 16, 3, 16]
    assert simulator.config.agents[trend_follower].parameters["lookback"].tolist() == [[3], [16], [3], [16]]
    assert_same(simulator.tensors, {name: before[name] for name in simulator.tensors})
    simulator.set_parameters(mask, max_order_qty=config.max_order_qty)
    for name, tensor in other.tensors.items():
        tensor.copy_(before[name])
    other.engine.state_changed()
    for each in (simulator, same, other):
        each.run(15)
    for m in range(4):
        expected = (other if mask[m] else same).tensors
        for name, tensor in simulator.tensors.items():
            assert torch.equal(tensor[m], expected[name][m]), name
    simulator.set_parameters(**{LOOKBACK: np.array([[1], [2], [3], [4]]), "insider.patience": 2})
    assert simulator.parameter(LOOKBACK)[:, 4].tolist() == [1, 2, 3, 4]
    simulator.run(3)
    assert_same(simulator.branch().run(4, ["mid2"]), simulator.run(4, ["mid2"]))


@pytest.mark.parametrize("engine", ENGINES)
def test_parameters_of_each_agent_stay_of_each_agent(engine):
    config = market().replace(agents={trend_follower: ks.mix(3, lookback=[4, 5, 6])})
    simulator = ks.Simulator(config, 2, engine=engine)
    simulator.set_parameters(**{LOOKBACK: 9})
    assert simulator.config.agents[trend_follower].of_each_agent
    simulator.set_parameters([False, True], **{LOOKBACK: [1, 2, 3]})
    assert simulator.parameter(LOOKBACK).tolist() == [[9, 9, 9], [1, 2, 3]]
    simulator.run(4)
    assert simulator.branch().parameter(LOOKBACK).tolist() == [[9, 9, 9], [1, 2, 3]]


def test_changes_that_running_markets_cannot_take():
    simulator = ks.Simulator(market(), 2, engine="numpy")
    config = simulator.config
    wrong = {
        "expected one of .*, trend_follower.lookback, .*, got the field 'agents', which running markets": {
            "agents": {}
        },
        "the field 'trend_follower.count', which running": {"trend_follower.count": 3},
        "the field 'trend_follower.average'": {"trend_follower.average": 3},
        "trend_follower.lookback: expected a whole number.*got 0.5": {LOOKBACK: 0.5},
        "trend_follower.lookback: expected one value, or 2 per-market values, got 3": {LOOKBACK: [[1], [2], [3]]},
        r"trend_follower.lookback: expected .*, got an array of shape \[2\]": {LOOKBACK: [1, 2]},
        r"agents\[trend_follower\]: expected parameters of the class, .*, got ones of each agent": {
            LOOKBACK: [1, 2, 3, 4, 5]
        },
        "max_order_qty": {LOOKBACK: 3, "max_order_qty": 0},
    }
    for message, fields in wrong.items():
        with pytest.raises(ValueError, match=message):
            simulator.set_parameters(**fields)
        assert simulator.config is config
    with pytest.raises(ValueError, match="name: expected .*'trend_follower.lookback'.*got 'trend_follower.look'"):
        simulator.parameter("trend_follower.look")


# States ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
def test_memory_is_live_and_named(engine):
    simulator = ks.Simulator(market(), 3, engine=engine, seed=1)
    memory = simulator.memory
    assert {name: list(words) for name, words in memory.items()} == {
        "trend_follower": ["average"],
        "insider": ["seen", "since", "bought"],
        "quoter": ["times"],
        "at_the_best": [],
    }
    assert memory["insider"]["bought"].tolist() == [[-1, -1]] * 3
    assert memory["trend_follower"]["average"].shape == (3, 5)
    simulator.run(6)
    assert memory["quoter"]["times"].tolist() == [[6, 6, 6]] * 3
    memory["quoter"]["times"][1, 2] = 40
    simulator.run(2)
    assert memory["quoter"]["times"].tolist() == [[8, 8, 8], [8, 8, 42], [8, 8, 8]]
    simulator.reset()
    assert memory["quoter"]["times"].eq(0).all()


def test_states_of_other_agents_are_refused_by_name():
    config = market()
    saved = ks.Simulator(config, 2, engine="numpy").state_dict()

    @ks.agent(lookback=16, threshold=4, max_qty=4, memory={"average": "last_price"})
    def trend_follower(market, own, draw):
        own.average += 1
        return ks.no_order()

    def with_agents(**changes):
        agents = {kind.name: (kind, made) for kind, made in config.agents.items()} | changes
        return config.replace(agents=dict(agents.values()))

    other_program = {
        trend_follower if kind.name == "trend_follower" else kind: made for kind, made in config.agents.items()
    }
    unfit = {
        "expected 0 words of memory of trend_follower agents, .*, got 5: there are no agents of a class": None,
        "expected 4 words of memory of quoter agents, .*, got 3": with_agents(quoter=(quoter, 4)).agents,
    }
    for message, agents in unfit.items():
        for strict in (True, False):
            with pytest.raises(ValueError, match=message):
                ks.Simulator(config.replace(agents=agents), 2, engine="numpy").load_state_dict(saved, strict=strict)
    fit = {
        "market.agents.trend_follower.program is .* there": other_program,
        "market.agents.insider.patience is 3 there, 9 here": with_agents(
            insider=(insider, ks.mix(2, patience=9))
        ).agents,
        "market.agents.at_the_best.count is 1 there, 2 here": with_agents(at_the_best=(at_the_best, 2)).agents,
        "market.agents.quoter.place is 2 there, 1 here": dict(reversed(config.agents.items())),
    }
    for message, agents in fit.items():
        simulator = ks.Simulator(config.replace(agents=agents), 2, engine="numpy")
        with pytest.raises(ValueError, match=message):
            simulator.load_state_dict(saved)
        with pytest.warns(UserWarning, match=message):
            simulator.load_state_dict(saved, strict=False)
        assert torch.equal(simulator.tensors["agent_memory"], saved["agent_memory"])
    bad = {**saved, "agent_memory": saved["agent_memory"].long()}
    with pytest.raises(TypeError, match="agent_memory"):
        ks.Simulator(config, 2, engine="numpy").load_state_dict(bad)
    wild = {**saved, "agent_memory": torch.full_like(saved["agent_memory"], -(2**31))}
    simulator = ks.Simulator(config, 2, engine="numpy")
    simulator.load_state_dict(wild)  # any number is a memory
    simulator.run(3)


def test_states_with_scenarios_need_the_parameters():
    envs = trading("numpy", randomise={LOOKBACK: (2, 9)}, num_scenarios=4)
    envs.reset(seed=0)
    saved = envs.state_dict()
    without = {name: tensor for name, tensor in saved.items() if name != "agent_parameters"}
    with pytest.raises(ValueError, match=r"missing or unknown names \['agent_parameters'\]"):
        envs.load_state_dict(without)
    with pytest.raises(ValueError, match=r"state\['agent_parameters'\]"):
        envs.load_state_dict({**saved, "agent_parameters": saved["agent_parameters"][:, 1:]})
    most = saved["parameters"].clone()
    place = list(ks.runtime.layout.PARAMS_FIELDS).index("num_agents")
    of_range, of_counts = "num_agents from 0 to .*, got ", "counts of a config's agents, got "
    for number, said in ((-5, f"{of_range}-5"), (3, of_counts), (2**30, of_counts), (2**31 - 1, of_range)):
        most[:, place] = number
        with pytest.raises(ValueError, match=r"state\['parameters'\]: expected " + said):
            envs.load_state_dict({**saved, "parameters": most})
    envs.load_state_dict(saved)


@pytest.mark.parametrize("engine", ENGINES)
def test_counterfactuals_of_markets_and_environments(engine):
    config = market("continuous")
    orders = torch.zeros((4, 1, 1, 4), dtype=torch.int32)
    orders[2, ..., :2] = torch.tensor([100, 5])
    arms = ks.counterfactual(config, orders, 3, 2, engine=engine, warmup=4)
    assert (arms.first_difference() >= 4).all()
    assert arms.with_agent.fills.sum() > 0
    alone = ks.Simulator(config, 3, engine=engine, slots=1)
    alone.run(4)
    assert_same(alone.run(8, list(arms.without_agent.series)), arms.without_agent.series)
