"""The environments on a GPU: the CPU's bits, no synchronisation in a step, CUDA graphs, the error word."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from deadline_helpers import Lists, late
from env_helpers import (
    assert_same,
    assert_steps_wait_for_nothing,
    capture_step,
    check_agreement,
    check_cores_agree,
    clock_environments,
    draw_actions,
    environments,
    launch,
    make_cores,
    trading_market,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from thorough import examples

import kineticsim_env as ks
from kineticsim_env.envs.settings import EnvSettings
from kineticsim_env.envs.vector import ExecutionVectorEnv, MarketMakingVectorEnv, TradingVectorEnv

pytestmark = pytest.mark.gpu
SMALL = {"preset": "trading", "horizon": 6, "bank_size": 16, "warmup": 20}
both_markets = pytest.mark.parametrize("preset", ["trading", EnvSettings.preset])  # kernels of auctions, and of events


def make(num_envs=4, **kwargs):
    return MarketMakingVectorEnv(num_envs, **{"engine": "cuda", **SMALL, **kwargs})


def random_actions(steps, num_envs=4):
    return np.random.default_rng(0).uniform(-1, 1, (steps, num_envs, 4)).astype(np.float32)


def host(result):
    observation, reward, terminated, truncated, infos = result
    values = [observation, reward, terminated, truncated, *infos.values()]
    return [value.cpu().numpy() if isinstance(value, torch.Tensor) else value for value in values]


@settings(max_examples=examples(80))
@given(environments(), st.sampled_from((0.0, 0.0, 0.05)))
def test_engines_agree_on_every_tensor(environment, bad):
    check_agreement(environment, bad, ("cpu", "cuda"))


@settings(max_examples=examples(30))
@given(environments(most_slots=1), st.sampled_from((0.0, 0.0, 0.05)))
def test_environments_on_lanes_agree_on_every_tensor(environment, bad):
    """Among them some whose numbers do not fit in 16 bits, so that half the lanes step at a time."""
    arguments, kwargs, *_ = environment
    cores = make_cores(arguments, kwargs, ("cpu", "cuda"))
    cores[1].simulator.engine.force = {"KS_LANES": 32, "KS_BINS": 0}
    check_cores_agree(cores, environment, bad)


@pytest.mark.parametrize("stagger", [True, False])
@pytest.mark.parametrize("mode", ["same_step", "next_step"])
@pytest.mark.parametrize(("role", "at_end"), [("executor", "truncate"), ("maker", "unwind")])
def test_whole_warps_step_blocks_at_their_deadline(mode, stagger, role, at_end):
    """Those that lanes leave to them, of the list that the step before has made; and inventories."""
    (config, _, task, roles), kwargs = trading_market(role, at_end=at_end)
    kwargs |= {"autoreset_mode": mode, "stagger": stagger}
    cores = make_cores((config, 5000, task, roles), kwargs, ("cpu", "cuda"))
    engine = cores[1].simulator.engine
    engine.force = {"KS_LANES": 2 * engine._reach + 2}
    lists = Lists(cores[1])
    for core in cores:
        core.reset(3)
    generator = np.random.default_rng(4)
    for step in range(16):
        launch(cores, draw_actions(cores[0], generator, 0.0))
        assert_same(cores, f"after step {step}")
        assert lists.listed == late(cores[0])
    assert engine._definitions(1)["KS_DEADLINES"] == 1 and int(cores[0].tensors["terminated"].sum()) > 0


@pytest.mark.parametrize(("kind", "large"), [(MarketMakingVectorEnv, True), (ExecutionVectorEnv, False)])
def test_many_environments_have_the_cpus_bits(kind, large):
    """They have a lane each from the start; the last warp has lanes without one."""
    num_envs = 128 * torch.cuda.get_device_properties(0).multi_processor_count + 5
    config = ks.MarketConfig.preset("trading")
    if large:  # one market in a thousand has more at a tick than 16 bits hold
        depth = np.full(num_envs, config.init_depth)
        depth[::1000] = 20000
        config = config.replace(init_depth=depth.tolist())
    kwargs = {"config": config, "horizon": 6, "warmup": 4, "bank_size": 8}
    if kind is ExecutionVectorEnv:
        kwargs["block_qty"] = 9
    one, two = kind(num_envs, engine="cuda", **kwargs), kind(num_envs, engine="cpu", **kwargs)
    assert one.core.simulator.engine._definitions(1)["KS_LANES"] == 2 * 14 + 2
    np.testing.assert_array_equal(one.reset(seed=3)[0], two.reset(seed=3)[0])
    generator = np.random.default_rng(0)
    for _ in range(8):
        action = generator.uniform(-1, 1, two.action_space.shape).astype(np.float32)
        for mine, theirs in zip(host(one.step(action)), host(two.step(action)), strict=True):
            np.testing.assert_array_equal(mine, theirs)
    assert_same((one.core, two.core), "at the end")


@both_markets
@pytest.mark.parametrize("mode", ["same_step", "next_step"])
@pytest.mark.parametrize("kwargs", [{"output": "numpy"}, {"output": "torch"}, {"output": "torch", "copy": False}])
def test_vector_environment_has_the_cpus_bits(mode, kwargs, preset):
    one, two = (
        make(300, autoreset_mode=mode, preset=preset, **how)
        for how in ({"engine": "cuda", **kwargs}, {"engine": "cpu"})
    )
    first, second = one.reset(seed=3)[0], two.reset(seed=3)[0]
    np.testing.assert_array_equal(first if kwargs["output"] == "numpy" else first.cpu().numpy(), second)
    for action in random_actions(15, 300):
        given_ = action if kwargs["output"] == "numpy" else torch.from_numpy(action).cuda()
        for mine, theirs in zip(host(one.step(given_)), host(two.step(action)), strict=True):
            np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("num_envs", [1, 2, 1027])  # the many have a kernel of their own from the start
def test_a_kernel_of_its_own_has_the_cpus_bits(num_envs):
    one, two = make(num_envs), make(num_envs, engine="cpu")
    one.simulator.specialise()
    np.testing.assert_array_equal(one.reset(seed=3)[0], two.reset(seed=3)[0])
    for action in random_actions(15, num_envs):
        for mine, theirs in zip(host(one.step(action)), host(two.step(action)), strict=True):
            np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("force", [{"KS_SINGLE": 0}, {"KS_SLOTS": 2, "KS_SINGLE": 0}, {"KS_SINGLE": 1, "KS_BLOCKS": 2}])
@pytest.mark.parametrize("specialised", [False, True])
def test_ways_to_step_few_environments_agree(force, specialised):
    one, two = make(40), make(40, engine="cpu")
    one.simulator.engine.force = force
    if specialised:
        one.simulator.specialise()
    np.testing.assert_array_equal(one.reset(seed=3)[0], two.reset(seed=3)[0])
    for action in random_actions(15, 40):
        for mine, theirs in zip(host(one.step(action)), host(two.step(action)), strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_settings_that_change_are_no_constants():
    one, two = make(3000, config=ks.MarketConfig.preset("trading")), make(3000, engine="cpu")
    np.testing.assert_array_equal(one.reset(seed=3)[0], two.reset(seed=3)[0])
    for reward, action in zip(
        ("inventory", "pnl", "asymmetric", "per_unit", "edge"), random_actions(5, 3000), strict=True
    ):
        for envs in (one, two):
            envs.set_task(reward=reward, mark="mid" if reward == "pnl" else "fundamental")
        for mine, theirs in zip(host(one.step(action)), host(two.step(action)), strict=True):
            np.testing.assert_array_equal(mine, theirs)


@both_markets
def test_a_step_does_not_synchronise(preset):
    envs = make(64, output="torch", preset=preset)
    envs.reset(seed=1)
    actions = torch.zeros(64, 4, device="cuda")
    envs.step(actions)
    assert_steps_wait_for_nothing(envs, actions)


@both_markets
def test_a_captured_step_plays_on(preset):
    captured, eager = (make(64, output="torch", preset=preset, copy=copy) for copy in (False, True))
    captured.reset(seed=5)
    eager.reset(seed=5)
    actions = torch.zeros(64, 4, device="cuda")
    eager.step(actions)
    graph, result = capture_step(captured, actions)
    for action in random_actions(15, 64):
        actions.copy_(torch.from_numpy(action))
        graph.replay()
        for mine, theirs in zip(host(result), host(eager.step(actions)), strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_bad_values_on_the_device_set_the_error_word():
    envs = make(output="torch")
    start, _ = envs.reset(seed=1)
    bad = torch.zeros(4, 4, device="cuda")
    bad[2] = torch.nan
    envs.step(bad)
    with pytest.raises(ks.MarketError, match="market 2: .*got a NaN action"):
        envs.reset(seed=1)
    assert torch.equal(envs.reset(seed=1)[0], start)
    envs.step(torch.full((4, 4), 2.0, device="cuda"))
    with pytest.raises(ks.MarketError, match="outside its space"):
        envs.close()
    envs = make(output="torch", validate=True)
    envs.reset(seed=1)
    envs.step(bad)
    with pytest.raises(ks.MarketError, match="market 2: .*got a NaN action"):
        envs.step(bad)


def test_bad_values_from_the_host_raise_at_once():
    envs = make(output="torch")
    envs.reset(seed=1)
    with pytest.raises(ValueError, match="got nan"):
        envs.step(np.full((4, 4), np.nan, np.float32))
    with pytest.raises(ValueError, match=r"expected float32 \[4, 4\] on cuda:0, got .* \[4, 4\] on cpu"):
        envs.step(torch.zeros(4, 4))
    envs.check_errors()


def test_which_engine_auto_takes():
    assert make(8, engine="auto").device.type == "cpu"
    assert make(8, engine="auto", output="torch").device.type == "cuda"
    assert make(1024, engine="auto").device.type == "cuda"
    assert gym.make("KineticSim/MarketMaking-v0", **SMALL).unwrapped.simulator.device.type == "cpu"


def test_a_checkpoint_goes_on_on_another_engine():
    one, two = make(), make(engine="cpu")
    one.reset(seed=4)
    actions = random_actions(12)
    for action in actions[:4]:
        one.step(action)
    two.load_state_dict(one.state_dict())
    for action in actions[4:]:
        for mine, theirs in zip(host(one.step(action)), host(two.step(action)), strict=True):
            np.testing.assert_array_equal(mine, theirs)


# Every task, scenarios, many learners ---------------------------------------------------------------------------------

TASKS = [(MarketMakingVectorEnv, {}), (ExecutionVectorEnv, {"block_qty": 12}), (TradingVectorEnv, {"max_loss": 10.0})]
RANDOMISE = {"noise_spread": (6, 20), "fee": [0, 100, 2500], "max_order_qty": {"values": [1, 9]}}
LEARNERS = {"maker": 2, "momentum": 1, "noise": 1, "executor": 1, "trader": 1}


def pair(kind, num_envs, **kwargs):
    """The same environment on the GPU and on the CPU, reset to the same seed."""
    one, two = (kind(num_envs, engine=engine, **{**SMALL, **kwargs}) for engine in ("cuda", "cpu"))
    np.testing.assert_array_equal(one.reset(seed=3)[0], two.reset(seed=3)[0])
    return one, two


def assert_same_steps(one, two, steps, seed=0):
    """Play both with the same actions, and compare all results, parameters and scenarios included."""
    two.action_space.seed(seed)
    for _ in range(steps):
        action = two.action_space.sample()
        for mine, theirs in zip(host(one.step(action)), host(two.step(action)), strict=True):
            np.testing.assert_array_equal(mine, theirs)
        for name in ("scenario", "ended", "arrival2", "elapsed", "done"):
            assert torch.equal(one.core.tensors[name].cpu(), two.core.tensors[name]), name
        assert torch.equal(one.core._engine.parameters().cpu(), two.core._engine.parameters())


@pytest.mark.parametrize(("kind", "kwargs"), TASKS)
@pytest.mark.parametrize("action_type", ["continuous", "discrete"])
@pytest.mark.parametrize("mode", ["same_step", "next_step"])
@pytest.mark.parametrize("randomise", [None, RANDOMISE])
@both_markets
def test_every_task_has_the_cpus_bits(kind, kwargs, action_type, mode, randomise, preset):
    more = {"preset": preset, **({"randomise": randomise, "num_scenarios": 7} if randomise else {})}
    for num_envs in (3, 300):
        one, two = pair(kind, num_envs, action_type=action_type, autoreset_mode=mode, **kwargs, **more)
        assert_same_steps(one, two, 15)


@pytest.mark.parametrize("warm_starts", [0, 16])
@pytest.mark.parametrize("rows", [7, 3, 30])
@pytest.mark.parametrize("num_envs", [1, 5, 1027])  # the many have a kernel of their own, with constants
def test_another_table_of_scenarios(num_envs, rows, warm_starts):
    one, two = pair(
        TradingVectorEnv, num_envs, randomise=RANDOMISE, num_scenarios=7, bank_size=warm_starts, stagger=False
    )
    one.simulator.specialise()
    assert_same_steps(one, two, 4)
    wider = np.arange(rows)
    for table in (
        ks.MarketConfig.preset("trading", noise_spread=(20 + wider).tolist(), fee=(7 * wider).tolist()),
        ks.MarketConfig.preset("trading", cancel_prob=(0.3 + 0.5 * wider / rows).tolist(), jump_size=9),
        ks.MarketConfig.preset("trading", max_order_qty=(1 + 900 * wider).tolist(), tie="lowest"),
    ):
        for envs in (one, two):
            envs.set_scenarios(table)  # in the midst of an episode, which goes on as it was
        assert_same_steps(one, two, 8)
    clone, other = one.simulator.branch(), two.simulator.branch()
    first, second = (simulator.run(30, record=("last_price", "volume")) for simulator in (clone, other))
    for name in first:
        assert torch.equal(first[name].cpu(), second[name]), name


def test_a_branch_of_episodes_that_play_an_old_table():
    wide = ks.MarketConfig.preset("trading", num_agents=400, noise_spread=[60, 50])
    narrow = ks.MarketConfig.preset("trading", num_agents=400, noise_spread=[3, 4])
    config = ks.MarketConfig.preset("trading", num_agents=400)
    series = []
    for engine in ("cuda", "cpu"):
        envs = TradingVectorEnv(64, config, engine=engine, **SMALL, randomise=wide)
        envs.reset(seed=1)
        envs.set_scenarios(narrow)
        series.append(envs.simulator.branch().run(40, record=("last_price",))["last_price"].cpu())
    assert torch.equal(*series)


@pytest.mark.parametrize(("kind", "kwargs"), TASKS)
def test_a_captured_step_draws_of_the_table_there_is_now(kind, kwargs):
    """Where the new table has as many rows and the kernel fits it, it is taken in place: the graph plays on with it."""
    more = {"randomise": {"fee": [1, 2, 3]}, "num_scenarios": 6, "output": "torch", "stagger": False, **kwargs}
    captured = kind(64, engine="cuda", copy=False, **{**SMALL, **more})
    eager = kind(64, engine="cuda", **{**SMALL, **more})
    captured.reset(seed=5)
    eager.reset(seed=5)
    size = captured.single_action_space.shape[0]
    actions = torch.zeros(64, size, device="cuda")
    eager.step(actions)
    graph, result = capture_step(captured, actions)
    for t, action in enumerate(random_actions(24, 64)[..., :size]):
        if t == 8:
            for envs in (captured, eager):
                envs.set_scenarios({"fee": [1000, 2000, 3000]})
        actions.copy_(torch.from_numpy(action))
        graph.replay()
        for mine, theirs in zip(host(result), host(eager.step(actions)), strict=True):
            np.testing.assert_array_equal(mine, theirs)
        assert torch.equal(captured.scenario, eager.scenario)
        assert torch.equal(captured.simulator.fees, eager.simulator.fees)
    assert int(captured.simulator.parameter("fee").min()) >= 1000


@pytest.mark.parametrize(("kind", "kwargs"), TASKS)
def test_a_captured_step_draws_by_the_weights_there_are_now(kind, kwargs):
    """Even the first weights come after the capture; and a reset that asks for scenarios leaves the graph as it is."""
    more = {"randomise": {"fee": (0, 999)}, "num_scenarios": 6, "output": "torch", "stagger": False, **kwargs}
    captured = kind(64, engine="cuda", copy=False, **{**SMALL, **more})
    eager, host_clone = kind(64, engine="cuda", **{**SMALL, **more}), kind(64, engine="cpu", **{**SMALL, **more})
    for envs in (captured, eager, host_clone):
        envs.reset(seed=5)
    size = captured.single_action_space.shape[0]
    actions = torch.zeros(64, size, device="cuda")
    eager.step(actions)
    host_clone.step(actions.cpu())
    graph, result = capture_step(captured, actions)
    weights = {4: [0, 1, 0, 3, 0, 0], 12: torch.arange(6.0, device="cuda"), 20: None}
    for t, action in enumerate(random_actions(28, 64)[..., :size]):
        if t in weights:
            for envs in (captured, eager, host_clone):
                envs.set_scenario_weights(weights[t])
        if t == 16:
            for envs in (captured, eager, host_clone):
                envs.reset(options={"scenario": 5})
            assert captured.scenario.tolist() == [5] * 64
        actions.copy_(torch.from_numpy(action))
        graph.replay()
        for mine, theirs in zip(host(result), host(eager.step(actions)), strict=True):
            np.testing.assert_array_equal(mine, theirs)
        host_clone.step(torch.from_numpy(action))
        assert torch.equal(captured.scenario, eager.scenario)
        assert torch.equal(captured.scenario.cpu(), host_clone.scenario)
        if t == 11:
            assert set(captured.scenario.tolist()) == {1, 3}


@pytest.mark.parametrize("engines", [("cuda", "cpu"), ("cpu", "cuda")])
def test_a_checkpoint_with_scenarios_goes_on_on_another_engine(engines):
    kwargs = {**SMALL, "randomise": RANDOMISE, "num_scenarios": 7, "block_qty": 12}
    one, two = (ExecutionVectorEnv(8, engine=engine, **kwargs) for engine in engines)
    one.reset(seed=4)
    for action in random_actions(4, 8)[..., :2]:
        one.step(action)
    two.load_state_dict(one.state_dict())
    for action in random_actions(14, 8)[..., :2]:
        for mine, theirs in zip(host(one.step(action)), host(two.step(action)), strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_a_market_that_stops_in_a_forced_auction_stops_alone():
    """The others go on with the CPU's bits; the one that stopped has no reward, and says so when asked."""
    config = ks.MarketConfig(num_agents=4096, max_order_qty=[1, 65535, 1, 1], market_order_prob=0.0)
    kwargs = {"bank_size": 0, "horizon": 2, "forced_qty": 1, "block_qty": 200, "stagger": False}
    envs = ExecutionVectorEnv(4, config, engine="cuda", **kwargs)
    envs.reset(seed=1)
    hold = np.tile(np.float32([0, -1]), (4, 1))
    envs.step(hold)
    _, reward, terminated, _, infos = envs.step(hold)
    assert terminated.tolist() == [True, False, True, True] and reward[1] == 0
    assert infos["_final_obs"].tolist() == [True, False, True, True]
    others = ExecutionVectorEnv(4, config.replace(max_order_qty=1), engine="cpu", **kwargs)
    others.reset(seed=1)
    others.step(hold)
    np.testing.assert_array_equal(np.delete(others.step(hold)[1], 1), np.delete(reward, 1))
    with pytest.raises(ks.MarketError, match="market 1: at t = .* would reach 2\\^31"):
        envs.check_errors()
    envs.reset(seed=1)
    assert envs.step(hold)[2].tolist() == [False] * 4


def role_actions(envs, generator):
    """Continuous actions of all learners by role, NumPy."""
    return {
        role: generator.uniform(-1, 1, (envs.num_envs, len(names), *envs.single_action_spaces[role].shape)).astype("f4")
        for role, names in envs.group_map.items()
    }


@pytest.mark.parametrize("num_envs", [1, 3, 1027])
@pytest.mark.parametrize("learners", [LEARNERS, {"executor": 2, "maker": 1}, {"noise": 9, "executor": 21, "maker": 2}])
def test_many_learners_in_many_markets_have_the_cpus_bits(num_envs, learners):
    kwargs = {**SMALL, "block_qty": 8, "max_loss": 60.0, "randomise": RANDOMISE, "num_scenarios": 3}
    kwargs |= {"config": ks.MarketConfig.preset("trading", num_agents=100)}
    one, two = (ks.BatchedParallelEnv(num_envs, learners, engine=engine, **kwargs) for engine in ("cuda", "cpu"))
    one.reset(seed=2)
    two.reset(seed=2)
    generator = np.random.default_rng(0)
    for _ in range(15):
        actions = role_actions(two, generator)
        *first, more = one.step(actions)
        *second, infos = two.step(actions)
        for mine, theirs in zip(
            [*first, more["active"], more["final_obs"]], [*second, infos["active"], infos["final_obs"]], strict=True
        ):
            for role in learners:
                assert torch.equal(mine[role].cpu(), theirs[role]), role
        assert torch.equal(more["_final_obs"].cpu(), infos["_final_obs"])
        assert torch.equal(one.state().cpu(), two.state())


def test_many_learners_step_without_synchronisation_and_in_a_graph():
    kwargs = {**SMALL, "block_qty": 8, "engine": "cuda"}
    captured, eager = (ks.BatchedParallelEnv(64, LEARNERS, copy=copy, **kwargs) for copy in (False, True))
    actions = {
        role: torch.from_numpy(rows).cuda() for role, rows in role_actions(eager, np.random.default_rng(1)).items()
    }
    for envs in (captured, eager):
        envs.reset(seed=2)
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            envs.step(actions)
        torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.set_sync_debug_mode("error")
    try:
        captured.step(actions)
        eager.step(actions)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = captured.step(actions)
    generator = np.random.default_rng(3)
    for _ in range(12):
        for role, rows in role_actions(eager, generator).items():
            actions[role].copy_(torch.from_numpy(rows))
        graph.replay()
        wanted = eager.step(actions)
        for mine, theirs in zip([*result[:4], result[4]["active"]], [*wanted[:4], wanted[4]["active"]], strict=True):
            for role in LEARNERS:
                assert torch.equal(mine[role], theirs[role]), role
        assert torch.equal(result[4]["_final_obs"], wanted[4]["_final_obs"])


def test_set_task_has_effect_at_the_next_step():
    one, two = pair(ExecutionVectorEnv, 16, block_qty=12)
    for changes in ({"reward": "risk_averse", "risk_aversion": 2.0}, {"reward": "terminal"}, {"reward_scale": 3.0}):
        one.set_task(**changes)
        two.set_task(**changes)
        assert_same_steps(one, two, 7)


@settings(max_examples=examples(150), derandomize=True)
@given(clock_environments(), st.sampled_from((0.0, 0.0, 0.05)))
def test_environments_on_the_clock_agree(environment, bad):
    check_agreement(environment, bad, ("cpu", "cuda"))


def test_single_and_parallel_environments_on_the_gpu():
    one, two = (gym.make("KineticSim/MarketMaking-v0", engine=engine, **SMALL).unwrapped for engine in ("cuda", "cpu"))
    np.testing.assert_array_equal(one.reset(seed=1)[0], two.reset(seed=1)[0])
    for action in random_actions(6, 1)[:, 0]:
        mine, theirs = one.step(action), two.step(action)
        np.testing.assert_array_equal(mine[0], theirs[0])
        assert mine[1:] == theirs[1:]
    one, two = (ks.parallel_env(engine=engine, **SMALL) for engine in ("cuda", "cpu"))
    one.reset(seed=1)
    two.reset(seed=1)
    while one.agents:
        actions = {agent: np.full(one.action_space(agent).shape, 0.3, np.float32) for agent in one.agents}
        mine, theirs = one.step(actions), two.step(actions)
        assert mine[1:] == theirs[1:]
        np.testing.assert_array_equal(one.state(), two.state())
