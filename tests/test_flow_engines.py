"""Markets of a fitted order flow in simulators and environments: all engines agree; what a config may say of one."""

import dataclasses

import gymnasium as gym
import numpy as np
import pytest
import test_every_preset
import torch
from agent_classes import anywhere, at_the_best, extreme, insider, trend_follower
from build_helpers import needs_compiler
from env_helpers import check_agreement, check_cores_agree, clock_environments, make_cores
from flow_markets import EXTREMES
from flow_tables import plain_table, random_table
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.flow import FlowMarket
from strategies import ENGINES
from thorough import covering, examples, slow

import kineticsim_env as ks
from kineticsim_env.config import PRESETS, plain_fields
from kineticsim_env.engines.cuda import CudaEngine
from kineticsim_env.engines.effects import effect_of
from kineticsim_env.runtime import build
from kineticsim_env.runtime.flow_table import STATE, FlowTable
from kineticsim_env.sweeps.batches import events_of

GRIDS = [(8, 1, 3), (16, 1, 5), (64, 8, 24), (32, 0, 7), (512, 32, 16)]  # levels, window, beat
OTHERS = [pytest.param("cpu", marks=needs_compiler), pytest.param("cuda", marks=pytest.mark.gpu)]
FIXED = {"population": "fixed", "cancel_prob": 0.0, "tax": 0, "collar": 0, "tick_size": 1, "regimes": None}
FIXED |= {"regime_switch_prob": 0.0}
EVENTS = list(STATE).index("events")
SHARED = ["shared markets", "four markets of a warp", "eight markets of a warp"]


def flow_config(table="btcusd", levels=64, window=8, beat=16, interval=24, **fields):
    return ks.MarketConfig(
        arrivals="flow", mechanism="continuous", flow=table, num_levels=levels, init_price=levels // 2, window=window,
        interval=interval, beat=beat, **fields,
    )  # fmt: skip


def timed(table, events, latency, interval=24):
    """Return fields of intervals of a length: of some events in the mean, and `latency` of them to arrive."""
    mean = table.gap.mean() * 1.44 / 1e6  # milliseconds, as 2^16 log2 has the mean 1.44
    length = min(max(0.001, round(float(events * mean), 3)), 700_000.0)  # of what a config takes
    return {"interval_ms": length, "quote_latency_ms": round(latency * length, 3), "interval": interval}


def quotes_near(sim, rng):
    """Return quotes around the mid, some of which cross it, and flags."""
    shape, mid = (sim.num_markets, len(sim.slots)), sim.mid2.cpu().numpy()[:, None] // 2
    bid = mid - rng.integers(-3, 6, shape)
    sizes = [rng.integers(0, 50, shape) for _ in range(2)]
    return torch.from_numpy(np.stack([bid, sizes[0], bid + rng.integers(1, 8, shape), sizes[1]], -1).astype(np.int32))


def assert_same_state(sims, when):
    first, *others = sims
    for other in others:
        for name, tensor in first.tensors.items():
            assert torch.equal(tensor.cpu(), other.tensors[name].cpu()), f"{name} {when}"


def advance(sim, quotes):
    """Step, and return what is recorded; of a market that has stopped, nothing."""
    try:
        if quotes is None:
            return sim.run(1, record=["last_price", "volume", "best_bid", "bid_depth", "signed_volume"])
        sim.step(quotes.to(sim.device))
        sim.check_errors()
    except ks.MarketError:
        return None
    return {"fills": sim.inventory}


def check_simulators(table, grid, slots, engines, seed, steps=6, markets=5, **fields):
    levels, window, beat = grid
    config = flow_config(table, levels, window, beat, **fields)
    sims = [ks.Simulator(config, markets, engine=engine, seed=seed, slots=slots) for engine in engines]
    rng = np.random.default_rng(seed)
    assert_same_state(sims, "at the opening")
    for step in range(steps):
        quotes = quotes_near(sims[0], rng) if slots else None
        found = [advance(sim, quotes) for sim in sims]
        if any(one is None for one in found):
            assert not any(found)
            return
        for name, series in found[0].items():
            assert all(torch.equal(series.cpu(), one[name].cpu()) for one in found), (name, step)
        assert_same_state(sims, f"after step {step}")
        mask = torch.from_numpy(rng.random(markets) < 0.2)
        again = None if rng.random() < 0.5 else seed + step
        for sim in sims:
            sim.reset(again, mask=mask)
        assert_same_state(sims, f"after the reset of step {step}")


@covering
@pytest.mark.parametrize("engine", OTHERS)
@pytest.mark.parametrize("slots", [0, 1, 3])
@pytest.mark.parametrize("grid", GRIDS)
def test_engines_agree(grid, slots, engine):
    for seed in range(examples(20)):
        check_simulators(random_table(seed), grid, slots, ("numpy", engine), seed)


@pytest.mark.parametrize("engine", OTHERS)
@pytest.mark.parametrize("slots", [0, 1, 3])
@pytest.mark.parametrize("grid", GRIDS)
def test_engines_agree_on_intervals_of_a_length(grid, slots, engine):
    """Without events and with many, cut short and not, and with quotes that arrive at once or much later."""
    for seed in range(examples(15)):
        table, latency = random_table(seed), (0, 0.3, 1, 2.5)[seed % 4] if slots else 0
        fields = timed(table, (0.4, 3, 12)[seed % 3], latency, (3, 24, 200)[seed // 3 % 3])
        check_simulators(table, grid, slots, ("numpy", engine), seed, **fields)


@pytest.mark.gpu
@pytest.mark.parametrize("lanes", [2, 4, 8, 16])
def test_kernels_of_all_widths_agree(lanes, monkeypatch):
    """Those that many markets have, with few: in runs and in an environment's steps and resets."""
    made = CudaEngine.__init__

    def forced(self, *args, **kwargs):
        made(self, *args, **kwargs)
        self.force = {"KS_LANES_PER_MARKET": lanes}

    monkeypatch.setattr(CudaEngine, "__init__", forced)
    for seed in range(4):
        table, fields = random_table(seed), {"agents": AGENTS, "agent_prob": 0.1} if seed == 3 else {}
        fields |= timed(table, 9, 0.4) if seed % 2 else {}
        check_simulators(table, GRIDS[seed], (0, 1, 3, 1)[seed], ("cpu", "cuda"), seed, markets=37, **fields)
    envs = [
        gym.make_vec("KineticSim/MarketMaking-v0", num_envs=37, config=flow_config(), engine=engine, horizon=4,
                     bank_size=2, output="torch")
        for engine in ("cpu", "cuda")
    ]  # fmt: skip
    for env in envs:
        env.reset(seed=1)
    for _ in range(6):
        actions = torch.rand(envs[0].action_space.shape) * 2 - 1
        found = [env.step(actions.to(env.unwrapped.device))[:4] for env in envs]
        assert all(torch.equal(one, other.cpu()) for one, other in zip(*found, strict=True))


@pytest.mark.parametrize("engine", OTHERS)
@pytest.mark.parametrize("name", EXTREMES)
def test_engines_agree_on_extreme_tables(name, engine):
    check_simulators(EXTREMES[name], (16, 1, 3), 1, ("numpy", engine), 7)
    check_simulators(EXTREMES[name], (64, 8, 24), 0, ("numpy", engine), 7)


@needs_compiler
@pytest.mark.parametrize("kernel", SHARED)
@pytest.mark.parametrize("seed", range(examples(40)))
def test_lanes_that_share_a_market_agree(kernels, monkeypatch, seed, kernel):
    monkeypatch.setattr(build, "load_cpu", lambda: kernels[kernel])
    grid, slots, table = GRIDS[seed % len(GRIDS)], (0, 1, 3)[seed % 3], random_table(seed)
    check_simulators(table, grid, slots, ("numpy", "cpu"), seed, steps=2, markets=3)
    fields = timed(table, (0.4, 3, 12)[seed % 3], (0, 0.3, 1.5)[seed // 3 % 3] if slots else 0)
    check_simulators(table, grid, slots, ("numpy", "cpu"), seed, steps=3, markets=3, **fields)


@needs_compiler
@pytest.mark.parametrize("seed", range(examples(40)))
def test_the_reference_says_the_same(seed):
    """The C++ engine beside a market that is played order by order."""
    table, (levels, window, beat) = random_table(seed), GRIDS[seed % len(GRIDS)]
    sim = ks.Simulator(flow_config(table, levels, window, beat, interval=7), 1, engine="cpu", seed=seed)
    other = FlowMarket(table, seed, levels, window, beat, levels // 2)
    for _ in range(20):
        try:
            sim.run(1)
        except ks.MarketError:
            assert not other.play(7)
            return
        assert other.play(7)
        for name, value in other.state().items():
            assert np.array_equal(sim.tensors[name][0].numpy(), value), name


AGENTS = {trend_follower: 3, at_the_best: 2, insider: 1, anywhere: ks.mix(2, quantity=30)}


@pytest.mark.parametrize("engine", OTHERS)
@pytest.mark.parametrize("slots", [0, 1, 3])
def test_agents_come_at_a_share_of_events(slots, engine):
    """They see the book, remember, trade and rest, beside the flow's orders; in intervals of either kind."""
    for seed in range(examples(12)):
        grid, table = GRIDS[seed % len(GRIDS)], random_table(seed)
        fields = {"agents": AGENTS, "agent_prob": (1.0, 0.3, 0.01)[seed % 3]}
        fields |= timed(table, 5, 0.5 if slots else 0) if seed % 2 else {}
        check_simulators(table, grid, slots, ("numpy", engine), seed, steps=4, markets=3, **fields)


@needs_compiler
@pytest.mark.parametrize("kernel", SHARED)
def test_agents_on_lanes_that_share_a_market_agree(kernels, monkeypatch, kernel):
    monkeypatch.setattr(build, "load_cpu", lambda: kernels[kernel])
    for seed in range(examples(6)):
        fields = {"agents": AGENTS, "agent_prob": (1.0, 0.3)[seed % 2]}
        check_simulators(
            random_table(seed), GRIDS[seed % 5], seed % 3, ("numpy", "cpu"), seed, steps=2, markets=3, **fields
        )


@pytest.mark.parametrize("engine", ENGINES)
def test_agents_that_never_order_change_only_how_many_events_the_flow_has(engine):
    config = flow_config(plain_table(), agents={idle: 2}, agent_prob=0.25)
    sim = ks.Simulator(config, 40, engine=engine, seed=3)
    sim.run(8)
    assert abs(sim.tensors["agent_memory"].sum(1).double().mean().item() - 0.25 * 192) < 4
    none = ks.Simulator(config.replace(agent_prob=0.0), 40, engine=engine, seed=3)
    plain = ks.Simulator(flow_config(plain_table()), 40, engine=engine, seed=3)
    for one in (none, plain):
        one.run(8)
    assert torch.equal(none.bid, plain.bid) and not torch.equal(sim.bid, plain.bid)


@ks.agent(memory={"times": 0})
def idle(market, own, draw):
    own.times += 1
    return ks.no_order()


@pytest.mark.parametrize("engine", ["numpy", *OTHERS])
def test_each_market_may_have_a_flow_of_its_own(engine):
    """It plays as it does alone, also from a saved state; a config has the flows once."""
    tables = [plain_table(), random_table(1), random_table(2)]
    config = flow_config([tables[m] for m in (0, 1, 2, 1, 0)])
    assert (
        ks.MarketConfig.from_dict(plain_fields(config)) == config and len(plain_fields(config)["flow"]["tables"]) == 3
    )
    sim = ks.Simulator(config, 5, engine=engine, seed=3)
    sim.run(4)
    again = ks.Simulator(config, 5, engine="numpy", seed=9)
    again.load_state_dict(sim.state_dict())
    for one in (sim, again):
        one.run(2)
        one.reset(mask=torch.tensor([True, False] * 2 + [True], device=one.device))
        one.run(1)
    assert_same_state([again, sim], "from a saved state")
    with pytest.raises(ValueError, match="flow"):
        ks.Simulator(flow_config(tables[1]), 5, engine=engine).load_state_dict(sim.state_dict())
    for market, number in enumerate((0, 1, 2, 1, 0)):
        alone = ks.Simulator(flow_config(tables[number]), 1, engine="numpy", seed=3 + market)
        alone.run(6)
        if market % 2 == 0:
            alone.reset()
        alone.run(1)
        for name in ("bid", "ask", "lives", "flow", "volume"):
            assert torch.equal(alone.tensors[name][0], sim.tensors[name][market].cpu()), (market, name)


@pytest.mark.parametrize("engine", ["numpy", *OTHERS])
def test_scenarios_draw_flows(engine):
    """An episode plays the flow of its scenario, whose books it begins with; others can be drawn later, of those."""
    tables = [plain_table(), random_table(1), random_table(2)]
    made = [
        gym.make_vec(
            "KineticSim/MarketMaking-v0", num_envs=12, config=flow_config(tables[0]), engine=name, horizon=3, warmup=2,
            bank_size=2, randomise={"flow": [tables[1], tables[2]], "fee": (0, 5)}, num_scenarios=6, output="torch",
        )
        for name in dict.fromkeys(("numpy", engine))
    ]  # fmt: skip
    for env in made:
        env.reset(seed=1)
    simulator = made[-1].unwrapped.simulator
    assert set(simulator.parameter("flow").tolist()) == {1, 2}
    for step in range(8):
        found = [env.step(torch.zeros(env.action_space.shape, device=env.unwrapped.device))[:4] for env in made]
        assert all(torch.equal(one.cpu(), other.cpu()) for one, other in zip(found[0], found[-1], strict=True))
        if step == 4:
            for env in made:
                env.unwrapped.set_scenarios({"flow": [tables[2], tables[0]]})
                with pytest.raises(ValueError, match="order flows of the 3 that the markets began with"):
                    env.unwrapped.set_scenarios({"flow": [random_table(5)]})
    assert set(simulator.parameter("flow").tolist()) <= {simulator._flows.index(tables[m]) for m in (0, 2)}


@st.composite
def flow_environments(draw):
    """What `clock_environments` draws, of a random order flow."""
    (config, markets, task, roles), kwargs, seed, steps = draw(clock_environments(most_slots=4))
    fields = {name: value for name, value in config.to_dict().items() if name not in FIXED} | FIXED
    fields |= {"arrivals": "flow", "mechanism": "continuous", "flow": random_table(draw(st.integers(0, 60)))}
    fields |= {"interval": config.interval or 7, "window": draw(st.sampled_from((0, 3, config.num_levels // 4)))}
    latency = {"quote_latency": (0, 6)}
    if not task.decides_at_events and draw(st.booleans()):
        waits = 1.2 if config.quotes_may_wait else 0.9
        fields |= {"quote_latency": 0} | timed(
            fields["flow"], draw(st.sampled_from((0.5, 6))), waits, fields["interval"]
        )
        latency = {"quote_latency_ms": (0.0, fields["quote_latency_ms"])}
    if np.any(np.asarray(fields["window"]) == 0):
        fields |= {"walk_prob": 0.0, "jump_prob": 0.0}
    config = ks.MarketConfig(**fields)
    if not config.quotes_may_wait and config.interval_ms is None:
        latency = {"quote_latency": (0, config.interval - 1)}
    if draw(st.booleans()):
        latency |= {"flow": [random_table(draw(st.integers(0, 60))) for _ in range(2)]}
    scenarios = {"fee": (0, 9), "taker_fee": (-5, 20), "init_price": (5, 20)} | latency
    randomise = scenarios if kwargs["randomise"] else kwargs["randomise"]
    return (config, markets, task, roles), kwargs | {"slots": [None] * len(roles), "randomise": randomise}, seed, steps


@pytest.mark.parametrize("engine", OTHERS)
@settings(max_examples=examples(60))
@given(environment=flow_environments(), bad=st.sampled_from((0.0, 0.1)))
def test_environments_agree(engine, environment, bad):
    """Resets, warm starts, scenarios, restarts, ladders, latency: every tensor after every launch."""
    check_agreement(environment, bad, ("numpy", engine))


@needs_compiler
@pytest.mark.parametrize("kernel", SHARED)
@settings(max_examples=examples(20))
@given(environment=flow_environments())
def test_environments_on_shared_lanes_agree(kernels, kernel, environment):
    arguments, kwargs, *_ = environment
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "load_cpu", lambda: kernels[kernel])
        made = make_cores(arguments, kwargs, ("cpu",))
    check_cores_agree([*made, *make_cores(arguments, kwargs, ("numpy",))], environment, 0.0)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_state_goes_on_elsewhere(engine):
    """From any engine to any other; a branch is another future of the same past."""
    config = flow_config(plain_table())
    sim = ks.Simulator(config, 4, engine=engine, seed=3, slots=1)
    sim.run(5)
    others = [ks.Simulator(config, 4, engine=name, seed=9, slots=1) for name in ("numpy", "cpu")]
    for other in others:
        other.load_state_dict(sim.state_dict())
    for one in (sim, *others):
        one.run(3)
    assert_same_state([sim, *others], "later")


@pytest.mark.parametrize("engine", OTHERS)
def test_compiled_programs_do_the_same(engine):
    """Steps and runs in programs of `torch.compile`, as in Python."""
    torch.compiler.reset()
    config = flow_config(plain_table())
    made = [
        gym.make_vec("KineticSim/MarketMaking-v0", num_envs=3, config=config, engine=engine, horizon=4, bank_size=2,
                     output="torch")
        for _ in range(2)
    ]  # fmt: skip
    for env in made:
        env.reset(seed=1)
    step = torch.compile(lambda actions: made[0].step(actions)[:4], fullgraph=True, backend="eager")
    for seed in range(6):
        torch.manual_seed(seed)
        actions = torch.rand(made[0].action_space.shape, device=made[0].unwrapped.device) * 2 - 1
        for one, other in zip(step(actions), made[1].step(actions)[:4], strict=True):
            assert torch.equal(one, other)
    sims = [ks.Simulator(config, 3, engine=engine, seed=2) for _ in range(2)]
    for sim in sims:
        sim.run(1)
    run = torch.compile(lambda: sims[0].run(2), fullgraph=True, backend="eager")
    for _ in range(3):
        run()
        sims[1].run(2)
        assert_same_state(sims, "in a program")


def test_runs_do_not_depend_on_their_cuts():
    """Nor on the length of intervals where beats are the same; nor on the other markets of a batch."""
    config = flow_config(plain_table())
    whole, cut = (ks.Simulator(config, 3, engine="cpu", seed=3) for _ in range(2))
    whole.run(6)
    for count in (1, 2, 3):
        cut.run(count)
    assert_same_state([whole, cut], "cut")
    short, alone = ks.Simulator(config.replace(interval=8), 3, engine="cpu", seed=3), ks.Simulator(config, 1, seed=5)
    short.run(18)
    alone.run(6)
    for name in ("bid", "ask", "lives", "fleeting_units", "flow", "volume", "price_origin"):
        assert torch.equal(whole.tensors[name], short.tensors[name]), name
        assert torch.equal(whole.tensors[name][2:], alone.tensors[name]), name


@pytest.mark.parametrize("engine", ENGINES)
def test_intervals_of_any_length_are_of_one_path(engine):
    """It is that of events; an interval has those up to its end, and a latency of time is one of time."""
    of_events = ks.Simulator(flow_config(interval=1), 2, engine="numpy", seed=3)
    times = np.stack([of_events.time.numpy().copy() for _ in range(120) if of_events.run(1) is not None])
    for length in (8.0, 40.0, 700.0):
        sim = ks.Simulator(flow_config(interval=None, interval_ms=length), 2, engine=engine, seed=3)
        until = times[-1].min() * 0.9
        while sim.time.min() < until:
            sim.run(max(1, int((until - sim.time.min()) / 3e6 // length)))
            assert (sim.time.cpu() == 1_000_000 * length * sim.t.cpu()).all()
            found, now = sim.tensors["flow"].cpu().numpy(), sim.time.cpu().numpy()
            known = now < times[-1]
            assert known.any() and (found[:, EVENTS] == (times <= now).sum(0))[known].all()
    sim.run(1)
    other = ks.Simulator(flow_config(interval=1), 1, engine="numpy", seed=3)
    other.run(int(sim.tensors["flow"][0, EVENTS]))
    for name in ("bid", "ask", "lives", "volume", "last_tick"):
        assert torch.equal(other.tensors[name][0], sim.tensors[name][0].cpu()), name


@pytest.mark.parametrize("engine", ENGINES)
def test_an_interval_that_is_cut_short(engine):
    """It ends with its last event, and with all quotes that were due in it; the path is the same."""
    config = flow_config(interval=4, interval_ms=2000.0, quote_latency_ms=1999.0)
    sim = ks.Simulator(config, 1, engine=engine, seed=3, slots=1)
    free = ks.Simulator(flow_config(interval=4), 1, engine=engine, seed=3, slots=1)
    far = torch.tensor([[[-400, 5, 900, 5]]], dtype=torch.int32, device=sim.device)
    for step in range(1, 12):
        sim.step(far)
        free.step(far)
        assert sim.time.item() == free.time.item() < 2_000_000_000 * step
        assert sim.quotes.tolist() == far.tolist()
        assert torch.equal(sim.bid, free.bid) and int(sim.tensors["flow"][0, EVENTS]) == 4 * step


@pytest.mark.parametrize("engine", ENGINES)
def test_quotes_arrive_before_the_first_event_that_is_later(engine):
    """A quote at the touch is ahead of what comes after it, and behind what was there when it arrived."""
    config = flow_config(interval_ms=500.0, interval=None)
    for latency in (0.0, 120.0, 499.999):
        sim = ks.Simulator(config.replace(quote_latency_ms=latency), 40, engine=engine, seed=5, slots=1)
        alone = ks.Simulator(config.replace(interval_ms=max(0.001, latency)), 40, engine=engine, seed=5)
        if latency:
            alone.run(1)
        bid = 63 - (alone.bid > 0).int().flip(1).argmax(1)
        quotes = torch.zeros((40, 1, 4), dtype=torch.int32, device=sim.device)
        quotes[:, 0, 0], quotes[:, 0, 1] = bid - 12 + sim.price_origin, 3
        sim.step(quotes)
        there = alone.bid.gather(1, (bid - 12).long()[:, None])[:, 0]
        stays = sim.queue[:, 0, 0]
        assert (stays <= there).all() and (stays == there).float().mean() > 0.3, latency


@pytest.mark.parametrize("engine", ENGINES)
def test_a_market_whose_numbers_would_be_too_large_stops(engine):
    table = dataclasses.replace(plain_table(), gap=np.full(5, 2**40))
    sim = ks.Simulator(flow_config(table), 2, engine=engine, seed=1)
    sim.run(1)
    sim.tensors["flow"][1, 6] = 2**62 - 2**42
    sim.engine.state_changed()
    before = {name: tensor.clone() for name, tensor in sim.tensors.items() if name != "error"}
    with pytest.raises(ks.MarketError, match="market 1"):
        sim.run(1)
        sim.check_errors()
    for name, tensor in before.items():  # of the other market too, but on a GPU, where it goes on
        assert torch.equal(tensor[1], sim.tensors[name][1]), name


WRONG_STATES = {  # a tensor, a place in it, values that no market has there, and what is allowed
    "lives": ("lives", ..., (-1, 2**30), "1 to the units of that life"),
    "units": ("fleeting_units", ..., (-1, 2**30), "0 to the tick's units"),
    "way": ("flow", (slice(None), 1), (0, -2, 2), "-1 or 1 of last_jump"),
    "left": ("flow", (slice(None), 2), (-1, 2**15 + 1), "0 to 32768 of left"),
    "state": ("flow", (slice(None), 4), (-1, 5), "0 to 4 of state"),
    "after": ("flow", (slice(None), 5), (-1, 3), "0 to 2 of after"),
    "time": ("flow", (slice(None), 6), (-1, 2**62), "0 to 4611686018427387903 of time"),
}


@pytest.mark.parametrize("case", WRONG_STATES)
def test_states_that_no_market_has_are_refused(case):
    sim = ks.Simulator(flow_config(plain_table()), 2, engine="cpu")
    name, place, values, said = WRONG_STATES[case]
    for value in values:
        state = sim.state_dict()
        state[name][place] = value
        with pytest.raises(ValueError, match=rf"state\['{name}'\]: expected {said}.*, got {value}"):
            sim.load_state_dict(state)


@pytest.mark.parametrize("engine", OTHERS)
def test_hostile_numbers_do_no_harm(engine):
    """Live tensors may be written to with anything: no engine reads or writes beyond its memory, or hangs."""
    rng = np.random.default_rng(3)
    length = {"interval_ms": 50.0, "quote_latency_ms": 120.0}
    for seed, fields in enumerate(({}, length, {}, length | {"agents": AGENTS, "agent_prob": 0.3})):
        sim = ks.Simulator(flow_config(plain_table(), **fields), 3, engine=engine, seed=seed, slots=1)
        for name in ("lives", "fleeting_units", "flow", "bid", "ask", *(["due"] if fields else [])):
            info = np.iinfo(np.int64 if name in ("flow", "due") else np.int32)
            numbers = rng.integers(info.min, info.max, sim.tensors[name].shape)
            sim.tensors[name].copy_(torch.from_numpy(np.where(rng.random(numbers.shape) < 0.3, numbers, 0)))
        sim.engine.state_changed()
        try:
            sim.run(2)
            sim.check_errors()
        except ks.MarketError:
            pass


# The config -----------------------------------------------------------------------------------------------------------


def test_a_config_is_written_and_read_again():
    config = flow_config()
    assert isinstance(config.flow, FlowTable) and config.flow == ks.OrderFlow.preset("btcusd")
    again = ks.MarketConfig.from_dict(plain_fields(config))
    assert again == config and again.flow == config.flow
    assert config != config.replace(flow=plain_table())
    env = gym.make_vec("KineticSim/MarketMaking-v0", num_envs=2, config=config, engine="cpu", bank_size=2, horizon=3)
    made = gym.make_vec(env.unwrapped.spec, num_envs=2)
    assert np.array_equal(env.reset(seed=1)[0], made.reset(seed=1)[0])


REFUSED = {
    "flow": {"flow": None},
    "flow: expected one of": {"flow": "eurusd"},
    "flow: expected an OrderFlow": {"flow": 7},
    "flow: expected None where arrivals is 'clock'": {"arrivals": "clock"},
    "mechanism": {"mechanism": "call"},
    "interval": {"interval": None},
    "cancel_prob": {"cancel_prob": 0.1},
    "tick_size": {"tick_size": 2},
    "population": {"population": "multinomial"},
    "regimes": {"regimes": ({"noise_spread": 3},)},
    "agents: expected no memory that begins with 'best_bid_qty'": {"agents": {extreme: 2}},
    "agent_prob: expected 0 without agents": {"agent_prob": 0.1},
    "agent_prob: expected one value": {"agent_prob": [0.1, 0.2]},
    "flow: expected a book": {
        "flow": dataclasses.replace(EXTREMES["giant orders"], resting=np.full((2, 2, 18), 2**24)),
    },
}


@pytest.mark.parametrize("said", REFUSED)
def test_configs_that_are_refused(said):
    with pytest.raises((TypeError, ValueError), match=f"^{said}"):
        flow_config().replace(**REFUSED[said])


def test_a_sweep_keeps_a_flow(tmp_path):
    quiet = {"engine": "numpy", "progress": False, "seed": 3}
    config = flow_config(plain_table())
    found = ks.sweep({"window": [4, 12]}, 4, ["volume"], market=config, folder=tmp_path, **quiet)
    assert found.config(1) == config.replace(window=12)
    again = ks.sweep({"window": [4, 12]}, 4, ["volume"], market=config, folder=tmp_path, **quiet)  # from the folder
    assert again.to_pandas().equals(found.to_pandas())
    named = ks.sweep({"flow": ["btcusd"]}, 4, ["volume"], market=config, **quiet)
    assert named.config(0).flow == ks.OrderFlow.preset("btcusd")


def test_nobody_is_replaced():
    with pytest.raises(ValueError, match="slots: expected up to 0, the number of maker agents"):
        ks.Simulator(flow_config(), 1, slots=["maker"])
    envs = ks.BatchedParallelEnv(2, {"maker": 2, "trader": 1}, config=flow_config(), engine="numpy", bank_size=0)
    assert envs.core.simulator.slots == (None, None, None)


def test_what_orders_of_nobody_do_not_feel_is_told():
    """And bits of a run say so."""
    config = flow_config(plain_table())
    runs = [config, config.replace(noise_spread=9, max_order_qty=7, num_agents=3, init_depth=5, rounding="coin")]
    sims = [ks.Simulator(one, 2, engine="cpu", seed=1) for one in runs]
    for sim in sims:
        sim.run(9)
    assert_same_state(sims, "with other agents")
    for name in ("noise_spread", "max_order_qty", "num_agents", "init_depth", "rounding", "noise"):
        assert not effect_of(config, name).there.any()
    assert effect_of(config, "window").there.all()


@pytest.mark.parametrize("use", ["measure", "scorecard", "counterfactual", "learners"])
def test_tools_take_a_flow(use, monkeypatch):
    monkeypatch.setitem(PRESETS, "flow", {name: value for name, value in plain_fields(flow_config()).items() if value})
    getattr(test_every_preset, use)("flow", flow_config())


@slow
@pytest.mark.parametrize("engine", ENGINES)
def test_long_runs_agree_with_the_reference(engine):
    """The flow that ships, for an hour of the market."""
    intervals = 20 if engine == "numpy" else 400
    sim = ks.Simulator(flow_config(levels=512, window=32, interval=50), 1, engine=engine, seed=4)
    sim.run(intervals)
    other = FlowMarket(sim.config.flow, 4, 512, 32, 16, 256)
    assert other.play(intervals * 50)
    for name, value in other.state().items():
        assert np.array_equal(sim.tensors[name][0].cpu().numpy(), value), name


# Time -----------------------------------------------------------------------------------------------------------------


def timed_envs(**arguments):
    config = flow_config(interval=None, interval_ms=250.0, quote_latency_ms=30.0)
    given = {"config": config, "engine": "cpu", "num_envs": 3, "bank_size": 2} | arguments
    return gym.make_vec("KineticSim/MarketMaking-v0", **given)


def test_an_episode_has_a_length_in_seconds():
    env = timed_envs(horizon_s=5, auctions_per_step=2, stagger=False)
    env.reset(seed=1)
    begin = env.unwrapped.simulator.time.clone()
    for step in range(1, 11):
        *_, truncated, _ = env.step(env.action_space.sample())
        assert truncated.all() == (step == 10)
        if step < 10:
            assert (env.unwrapped.simulator.time - begin == step * 500_000_000).all()
    again = gym.make_vec(env.unwrapped.spec, num_envs=2)
    assert again.unwrapped.spec.max_episode_steps == 10
    assert torch.equal(env.unwrapped.simulator.events, env.unwrapped.simulator.tensors["flow"][:, EVENTS])


WRONG_TIMES = {
    "horizon_s: expected a multiple of a decision's 0.25 s, got 0.6": {"horizon_s": 0.6},
    "horizon_s: expected a finite number": {"horizon_s": float("nan")},
    "horizon_s: expected None without interval_ms": {"horizon_s": 5, "config": flow_config()},
    "horizon: expected none, or 20, as horizon_s has it, got 9": {"horizon_s": 5, "horizon": 9},
    "decide: expected 'interval' with interval_ms, got 'fill'": {"decide": "fill"},
}


@pytest.mark.parametrize("said", WRONG_TIMES)
def test_times_that_are_refused(said):
    with pytest.raises((TypeError, ValueError), match=said):
        timed_envs(**WRONG_TIMES[said])


WRONG_FIELDS = {
    "interval_ms: expected 0.001 to 2000000.0, got 0": {"interval_ms": 0},
    "interval_ms: expected one value for the whole": {"interval_ms": [1.0, 2.0]},
    "quote_latency: expected 0 with interval_ms, but quote_latency_ms": {"interval_ms": 5, "quote_latency": 3},
    "quote_latency_ms: expected 0 where interval_ms is None": {"quote_latency_ms": [0.0, 3.0]},
    "interval_ms: expected None where arrivals is not 'flow'": {"arrivals": "clock", "flow": None, "interval_ms": 5},
}


@pytest.mark.parametrize("said", WRONG_FIELDS)
def test_lengths_that_are_refused(said):
    with pytest.raises((TypeError, ValueError), match=said):
        flow_config().replace(**WRONG_FIELDS[said])


def test_latency_changes_up_to_what_waits():
    sim = ks.Simulator(flow_config(interval_ms=10, quote_latency_ms=[2.0, 9.999]), 2, engine="cpu", slots=1)
    sim.set_parameters(quote_latency_ms=5)
    assert sim.parameter("quote_latency").tolist() == [5000, 5000]
    with pytest.raises(ValueError, match="quote_latency_ms: expected up to 9.999, as the interval is 10"):
        sim.set_parameters(quote_latency_ms=10)


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_under_way_in_time_is_saved(engine):
    config = flow_config(interval_ms=100, quote_latency_ms=250, interval=None)
    sim = ks.Simulator(config, 3, engine=engine, seed=2, slots=2)
    rng = np.random.default_rng(1)
    for _ in range(3):
        sim.step(quotes_near(sim, rng).to(sim.device))
    assert (sim.tensors["due"][:, :2].cpu() - 1 == sim.time.cpu()[:, None] + torch.tensor([50, 150]) * 1_000_000).all()
    other = ks.Simulator(config, 3, engine="numpy", seed=8, slots=2)
    other.load_state_dict(sim.state_dict())
    for value in (-1, 10**13):
        state = sim.state_dict()
        state["flow"][:, -2] = value
        with pytest.raises(ValueError, match="state"):
            sim.load_state_dict(state)
    for one in (sim, other):
        one.run(4)
    assert_same_state([sim, other], "later")


def test_what_counts_events_knows_intervals_with_a_length():
    """A bound of them, not the agents that such a market has not."""
    config = ks.MarketConfig.preset("btcusd", interval_ms=100)
    assert config.events_per_interval == 1024 and events_of(config).tolist() == [1024.0]
    assert events_of(config.replace(interval=30)).tolist() == [30.0]


def test_the_flow_that_ships_is_a_preset():
    assert ks.MarketConfig.preset("btcusd", num_levels=np.int64(512)).init_price == 256
    config = ks.MarketConfig.preset("btcusd", interval_ms=100)
    assert config == ks.OrderFlow.preset("btcusd").config(interval_ms=100) and config.interval is None
    env = gym.make_vec("KineticSim/MarketMaking-v0", num_envs=2, preset="btcusd", engine="numpy", bank_size=0)
    assert env.unwrapped.simulator.config.flow == config.flow
    again = gym.make_vec(env.unwrapped.spec, num_envs=2)
    assert again.unwrapped.simulator.config == env.unwrapped.simulator.config
