"""What the tests of agreeing engines share: random environments, random actions, and the comparison of two engines."""

import numpy as np
import torch
from hypothesis import strategies as st
from strategies import fitting_slots, under_levers
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from kineticsim_env.config import CLASSES, MarketConfig
from kineticsim_env.engines.base import ENV_RESTART
from kineticsim_env.engines.parameters import class_counts
from kineticsim_env.envs.core import EnvCore
from kineticsim_env.envs.settings import MODES, EnvSettings
from kineticsim_env.envs.state_dict import load_state, state_of
from kineticsim_env.runtime import layout
from kineticsim_env.runtime.roles import action_length
from kineticsim_env.tasks import ManyLearnersTask
from kineticsim_env.tasks.base import ROLES
from kineticsim_env.tasks.many_learners import slots_of

SCENARIOS = {
    "noise_spread": (0, 12),
    "market_order_prob": [0.0, 0.4, 1.0],
    "fee": (0, 9),
    "max_order_qty": {"values": [1, 4]},
}
_LEVERS = {"rounding": ["even", "coin"], "tick_size": (1, 3), "tax": (0, 2), "collar": {"values": [0, 3]}}
CLOCK_SCENARIOS = {
    "call": SCENARIOS | _LEVERS,
    "continuous": SCENARIOS | _LEVERS | {"quote_latency": (0, 9), "taker_fee": (-5, 20)},
}


@st.composite
def clock_environments(draw, most_slots=6):
    """Environments on the clock, under levers and regimes: what `environments` draws, of few events per step."""
    (config, markets, task, roles), kwargs, seed, steps = draw(environments(most_slots=most_slots))
    pick = lambda *values: draw(st.sampled_from(values))  # noqa: E731
    fields = {"arrivals": "clock", "mechanism": pick("call", "continuous")}
    agents = min(config.num_agents, 16)
    fields |= {"interval": pick(None, 1, 5, 9), "beat": pick(None, 1, 3, 8, 50)}
    if fields["mechanism"] == "continuous":
        fields |= {"quote_latency": pick(0, 0, 1, 4, 1000), "taker_fee": pick(0, -10, 100)}
        task = task.replace(keep=draw(st.booleans()))
        fields["orders_per_side"] = min(pick(1, 1, 2, 3, 8), layout.CONSTANTS["kMaxOrders"] // len(roles))
    config = under_levers(config.replace(num_agents=agents), draw(st.integers(0, 2**32))).replace(**fields)
    if kwargs["randomise"]:
        scenarios = dict(CLOCK_SCENARIOS[fields["mechanism"]])
        if "quote_latency" in scenarios and not config.quotes_may_wait:  # then those of scenarios may not, either
            scenarios["quote_latency"] = (0, min(9, (config.interval or config.num_agents) - 1))
        kwargs = kwargs | {"randomise": scenarios}
    slots = fitting_slots(config, markets, kwargs["slots"])
    return (config, markets, task, roles), kwargs | {"slots": slots}, seed, min(steps, 6)


@st.composite
def environments(draw, most_slots=32):
    """Arguments of `make_cores`, a seed for the actions, and how many steps to play."""
    markets = draw(st.integers(1, 4))
    pick = lambda *values: draw(st.sampled_from(values))  # noqa: E731

    def field(*values):
        """One value, or sometimes one for each market."""
        if draw(st.integers(0, 5)) == 0:
            return [pick(*values) for _ in range(markets)]
        return pick(*values)

    weights = np.array([draw(st.integers(0, 4)) for _ in CLASSES]) + np.array([0, 0, 0, draw(st.booleans())])
    weights = weights if weights.sum() else np.array([1, 0, 0, 0])
    shares = dict(zip(CLASSES, (weights / weights.sum()).tolist(), strict=True))
    levels = pick(32, 64, 128, 256)
    window = pick(0, 3, levels // 4)
    config = MarketConfig(
        **shares,
        num_levels=levels,
        num_agents=pick(1, 2, 7, 16, 33, 64),
        init_price=field(levels // 2, 3, levels - 2),
        init_depth=field(0, 1, 8),
        max_order_qty=field(1, 4, 65535),
        noise_spread=field(0, 3, 12),
        market_order_prob=field(0.0, 0.1, 0.5, 1.0),
        maker_half_spread=field(0, 1, 8),
        walk_prob=field(0.0, 0.3) if window else 0.0,
        jump_prob=field(0.0, 0.1) if window else 0.0,
        jump_size=field(0, 4, 50),
        cancel_prob=field(0.0, 0.4, 1.0),
        window=window,
        tie=field("lowest", "mid"),
        residue=field("rest", "cancel"),
        population=pick("fixed", "fixed", "multinomial"),
        max_quote_qty=field(3, 1 << 20),
        inventory_limit=pick(None, None, 5),
        fee=field(0, 7),
    )
    roles = draw(
        st.lists(st.sampled_from(ROLES), min_size=1, max_size=min(most_slots, draw(st.sampled_from((1, 4, 32)))))
    )
    left = class_counts(config, 1)[0] if config.population == "fixed" else np.full(4, 32)
    slots = []
    for role in roles:
        if role not in CLASSES:
            slots.append(None)
            continue
        index = CLASSES.index(role)
        replaces = left[index] > 0 and draw(st.booleans())
        left[index] -= int(replaces)
        slots.append(role if replaces else None)
    max_qty = pick(1, 8, 5000)
    task = ManyLearnersTask(
        horizon=pick(1, 2, 5, 9),
        action_type=pick("continuous", "discrete"),
        max_offset=pick(1, 4, 10, 300),
        max_qty=max_qty,
        inventory_limit=pick(None, 1, 40),
        reward=pick("pnl", "inventory", "asymmetric", "per_unit", "edge"),
        execution_reward=pick("shortfall", "risk_averse", "terminal", "edge"),
        mark=pick("fundamental", "mid", "liquidation"),
        inventory_penalty=pick(0.0, 0.01, 0.3),
        dampening=pick(0.5, 0.7),
        idle_penalty=pick(0.0, 0.1),
        risk_aversion=pick(0.0, 0.3),
        reward_scale=pick(1.0, 10.0, 0.3),
        max_loss=pick(None, None, 1.0, 50.0),
        max_target=pick(1, 40, 65535),
        side=pick("random", "buy", "sell"),
        block_qty=pick(1, 7, 30),
        forced_qty=min(max_qty, pick(1, 4, 30)),
        leftover_penalty=pick(0.0, 10.0, 0.7),
        warmup=pick(0, 3, 20),
        bank_size=pick(0, 1, 5),
        bank_per_market=pick(1, 3),
        at_end=pick("truncate", "unwind"),
    )
    kwargs = {
        "slots": slots,
        "autoreset_mode": pick(*MODES),
        "stagger": draw(st.booleans()),
        "auctions_per_step": pick(1, 1, 2, 5),
        "randomise": pick(None, SCENARIOS) if config.population == "fixed" and not config.per_market else None,
        "num_scenarios": pick(2, 5),
        "account_info": draw(st.booleans()),
        "see_fundamental": draw(st.booleans()),
    }
    return (config, markets, task, roles), kwargs, draw(st.integers(0, 2**32)), pick(3, 8, 20)


def make_cores(arguments, kwargs, engines):
    """The same environment on several engines: `kwargs` are its slots, and fields of `EnvSettings`."""
    config, markets, task, roles = arguments
    rest = {name: value for name, value in kwargs.items() if name != "slots"}
    return [
        EnvCore(markets, task, roles, kwargs["slots"], EnvSettings(config=config, engine=engine, **rest))
        for engine in engines
    ]


def draw_actions(core, generator, bad):
    """Actions that are often extreme, and now and then outside their space or NaN."""
    shape = (core.simulator.num_markets, len(core.roles))
    if core.task.action_type == "discrete":
        numbers = [core.task.num_choices(role) for role in core.roles]
        choices = np.array([[generator.integers(0, number) for number in numbers]] * shape[0])
        past = (16, 64) if core.task.keep else (15, 49)
        wrong = np.array([-(2**40), -1, *past, 2**40])[generator.integers(0, 5, shape)]
        return {"choices": torch.from_numpy(np.where(generator.random(shape) < bad, wrong, choices))}
    length = action_length(core.task.keep, core.task.orders_per_side)
    actions = generator.uniform(-1, 1, (*shape, length)).astype(np.float32)
    extreme = np.array([-1, 0, 1], dtype=np.float32)[generator.integers(0, 3, actions.shape)]
    actions = np.where(generator.random(actions.shape) < 0.3, extreme, actions)
    wrong = np.array([np.nan, np.inf, -np.inf, 1.5, -(2.0**30), 1.001, -1.001, 1.0010002], dtype=np.float32)
    wrong = wrong[generator.integers(0, len(wrong), actions.shape)]
    return {"actions": torch.from_numpy(np.where(generator.random(actions.shape) < bad, wrong, actions))}


def check_agreement(environment, bad, engines):
    """Play an environment on several engines, with resets between, and compare every tensor after every launch."""
    arguments, kwargs, *_ = environment
    check_cores_agree(make_cores(arguments, kwargs, engines), environment, bad)


def check_cores_agree(cores, environment, bad):
    """Do what `check_agreement` says with environments that are made already."""
    arguments, _, seed, steps = environment
    generator = np.random.default_rng(seed)
    for core in cores:
        core.reset(seed)
    assert_same(cores, "after the reset")
    scenarios = cores[0].live_task.num_scenarios
    for t in range(steps):
        actions = draw_actions(cores[0], generator, bad)
        if scenarios and generator.random() < 0.5:
            weights = generator.random(scenarios) * (generator.random(scenarios) < 0.6)
            for core in cores:
                core.live_task.set_scenario_weights(weights if weights.any() else None)
        launch(cores, actions)
        assert_same(cores, f"after step {t}")
        assert bool((cores[0].tensors["observation"].abs() <= 1).all())
        if generator.random() < 0.3:  # what a step with functions of users' own ends with
            for core in cores:
                core._engine.launch(ENV_RESTART)
            assert_same(cores, f"in the restart after step {t}")
        mask = generator.random(arguments[1]) < 0.2
        if mask.any():
            again = seed + t if generator.random() < 0.3 else None
            asked = generator.integers(-1, scenarios, arguments[1]) if scenarios and generator.random() < 0.5 else None
            for core in cores:
                core.simulator.tensors["error"].zero_()  # a reset would raise
                core.reset(again, mask, asked)
            assert_same(cores, f"in the reset after step {t}")


def trading_market(role, **settings):
    """Arguments of `make_cores` in the preset `trading`, with one learner; episodes end at different times."""
    task = ManyLearnersTask(horizon=12, bank_size=8, max_loss=150.0, **settings)
    kwargs = {"slots": slots_of((role,)), "auctions_per_step": 2, "account_info": True}
    return (MarketConfig.preset("trading"), 6, task, [role]), kwargs


def steps_alike(cores, seed, actions_seed, steps):
    """Reset environments and step them under the same actions; comes back after each step, every tensor compared."""
    generator = np.random.default_rng(actions_seed)
    for core in cores:
        core.reset(seed)
    for t in range(steps):
        actions = draw_actions(cores[0], generator, 0.0)
        for core in cores:
            core.step(**{name: tensor.to(core.device) for name, tensor in actions.items()})
        assert_same(cores, f"after step {t}")
        yield t


def check_trading_market(cores):
    """Play it over ends of episodes, and compare every tensor after every step."""
    ended = 0
    for _ in steps_alike(cores, 11, 5, 30):
        ended += int((cores[0].tensors["truncated"] | cores[0].tensors["terminated"]).sum())
    assert ended > 0
    assert int(cores[0].simulator.tensors["volume"].sum()) > 0


def squash(x, scale):
    """The form of most features, in float32."""
    x = np.asarray(x).astype(np.float32)
    return x / (np.abs(x) + np.float32(scale))


def launch(cores, actions):
    """Step past the checks, so that bad actions and finished episodes get to the engines."""
    for core in cores:
        on_device = {name: tensor.to(core.device) for name, tensor in actions.items()}
        core._engine.launch(1, auctions=core.auctions_per_step, **on_device)


def assert_same(cores, when):
    """Compare every tensor of two environments, bit for bit."""
    first, second = ({**core.tensors, **core.simulator.tensors, "fills": core.fills} for core in cores)
    seen = first["observation"]  # a GPU's division of features makes 0.0 of -0.0
    assert not bool(((seen == 0) & seen.signbit()).any()), f"an observation has -0.0 {when}"
    for name in first:
        one, two = first[name].cpu(), second[name].cpu()
        if one.is_floating_point():  # as bits, so that -0.0 is not 0.0, and a NaN is itself
            bits = torch.int32 if one.dtype == torch.float32 else torch.int64
            one, two = one.view(bits), two.view(bits)
        assert torch.equal(one, two), f"{name} {when}: {first[name].tolist()} is not {second[name].tolist()}"


class Work(TorchDispatchMode):
    """Notes torch's operations that write something, each of which is a launch on a GPU; views are not."""

    def __init__(self):
        super().__init__()
        self.operations = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        results = func(*args, **(kwargs or {}))
        given, made = (
            {leaf.untyped_storage().data_ptr() for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)}
            for values in (args, results)
        )
        if func._schema.is_mutable or not made <= given:
            self.operations.append(func._schema.name.removeprefix("aten::"))
        return results


def capture_step(envs, actions):
    """Play a step on a stream beside, as torch asks, and capture the next one; returns the graph and its results."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        envs.step(actions)  # compiles what is missing, which a capture must not
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = envs.step(actions)
    return graph, results


def assert_steps_wait_for_nothing(envs, actions):
    """Ten steps on a GPU, in which torch raises where the host would wait."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(10):
            envs.step(actions)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def check_handed_on(whole, here, there, first_seed, steps, seed):
    """Play one environment through, and another one that is handed on between two before every step."""
    generator = np.random.default_rng(seed)
    for core in (whole, here):
        core.reset(first_seed)
    for step in range(steps):
        load_state(there, state_of(here), strict=True)
        launch((whole, there), draw_actions(whole, generator, 0.0))
        assert_same((whole, there), f"after step {step}")
        here, there = there, here
