"""The kernel of rollouts, with a fiber per lane: its markets are those of the C++ engine under the recorded actions.

Warps whose markets stay on the chip until the end, or until one needs 32 bits, or that are not full; the network in
shared memory or not; and the networks' outputs beside torch's.
"""

import ctypes

import gymnasium as gym
import pytest
import torch
from build_helpers import ROLLOUT_KERNELS, needs_compiler
from env_helpers import assert_same, clock_environments, make_cores
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_rollouts import network_for, shaken, taken
from thorough import covering, examples

import kineticsim_env as ks
from kineticsim_env.envs import rollouts
from kineticsim_env.envs.settings import MODES
from kineticsim_env.runtime import build

pytestmark = needs_compiler
DEEP = {"max_order_qty": 3000, "cancel_prob": 0.0, "market_order_prob": 0.02}  # more than 16 bits, after some intervals
MARKETS = {"news": {}, "books that grow": DEEP, "quotes under way": {"quote_latency": 70}}


def make(kernel, changes, mode, markets):
    action_type = "discrete" if "choices" in kernel else "continuous"
    config = ks.MarketConfig.preset("news", **changes)
    given = {
        "horizon": 5,
        "bank_size": 2,
        "warmup": 2,
        "stagger": True,
        "autoreset_mode": mode,
        "action_type": action_type,
    }
    envs = gym.make_vec(
        "KineticSim/MarketMaking-v0", num_envs=markets, config=config, output="torch", engine="cpu", **given
    )
    envs.reset(seed=3)
    return envs


@st.composite
def maker_environments(draw):
    """Continuous trading of any fields, with one maker that sees 39 numbers."""
    (config, markets, task, _), kwargs, seed, steps = draw(clock_environments(most_slots=1))
    config = config.replace(mechanism="continuous", orders_per_side=1)
    task, kwargs = task.replace(keep=False), kwargs | {"see_fundamental": False, "slots": [None]}
    markets = markets if config.per_market else draw(st.sampled_from([markets, 33]))
    return (config, markets, task, ["maker"]), kwargs, seed, steps


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(environment=maker_environments(), shared=st.booleans(), exact=st.booleans())
def test_random_markets_are_those_of_the_engine(kernels, environment, shared, exact):
    """Of any levers, regimes, scenarios and autoreset modes; some stop, some need 32 bits."""
    arguments, kwargs, seed, steps = environment
    choices = arguments[2].action_type == "discrete"
    name = "on the chip" if not exact else "in float32"
    name = "rollouts of choices" if choices else "rollouts of shared markets" if shared else f"rollouts {name}"
    kind = torch.float32 if "float32" in name else torch.bfloat16
    inside, played = make_cores(arguments, kwargs, ("cpu", "cpu"))
    for core in (inside, played):
        core.reset(seed)
    torch.manual_seed(seed)
    policy = shaken(ks.NetworkPolicy.make(39, 49 if choices else 4, categorical=choices, trunk=choices))
    for number in range(2):
        part = roll_out(kernels[name], inside, policy, steps, kind)
        for t in range(steps):
            assert torch.equal(played.tensors["observation"][:, 0].to(kind), part.observation[t]), f"observation {t}"
            given_ = taken(part, t)[:, None]
            played._engine.launch(1, auctions=played.auctions_per_step, **{"choices" if choices else "actions": given_})
            for output in ("reward", "terminated", "truncated"):
                assert torch.equal(played.tensors[output][:, 0], getattr(part, output)[t]), f"{output} {t}"
        assert_same([inside, played], f"after rollout {number}")


def launched_by(library, core):
    """Let rollouts of an environment be the library's launches."""

    def launch(definitions, decisions, fields, live):
        struct = core._engine._struct
        struct.env_mode, struct.decisions, struct.auctions = 1, decisions, core.auctions_per_step
        struct.growth, struct.records, struct.tile = 2**31 - 1, 0, 1
        for name, value in fields.items():
            setattr(struct.rollout, name, value.data_ptr() if isinstance(value, torch.Tensor) else value)
        for name, tensor in live.items():
            setattr(struct, name, tensor.data_ptr())
            struct.action_stride = tensor.shape[-1]
        library.ks_cpu_launch(ctypes.addressof(struct))
        struct.actions = struct.choices = None
        struct.rollout = type(struct.rollout)()

    core.roll_out = launch


def roll_out(library, core, policy, steps, kind):
    """Do what `_play_inside` does, but for the launch, which is the library's."""
    part = rollouts._empty(core, policy.shape, steps, kind)
    launched_by(library, core)
    rollouts._play_inside(core, [policy], part, torch.tensor([5]), True)
    return part


@covering
@pytest.mark.parametrize("kernel", ROLLOUT_KERNELS)
@pytest.mark.parametrize("market", MARKETS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("markets", [3, 32, 37])
def test_markets_are_those_of_the_engine(kernels, kernel, market, mode, markets):
    inside, played = (make(kernel, MARKETS[market], mode, markets) for _ in range(2))
    policy = network_for(inside, trunk="choices" in kernel)
    kind = torch.float32 if "float32" in kernel else torch.bfloat16
    core, other = inside.unwrapped.core, played.unwrapped.core
    other.lets_stand = True
    steps = 7 if market == "news" else 4
    for _ in range(2):
        part = roll_out(kernels[kernel], core, policy, steps, kind)
        for t in range(steps):
            assert torch.equal(played.observation.to(kind), part.observation[t]), t
            assert torch.equal(~other.tensors["done"], part.played[t])
            _, reward, terminated, truncated, _ = played.step(taken(part, t))
            assert torch.equal(reward, part.reward[t]), t
            assert torch.equal(terminated, part.terminated[t]) and torch.equal(truncated, part.truncated[t]), t
            ended = truncated & part.played[t]
            final = other.tensors["final_observation"][:, 0, : part.inputs].to(kind)
            assert torch.equal(final[ended], part.final_observation[t // part.every][ended])
        assert_same([core, other], "after a rollout")
        assert torch.equal(played.observation.to(kind), part.last_observation)
        with torch.no_grad():
            outputs, value = policy(part.observation.float())
        assert (part.value - value).abs().max() < 0.02 * value.abs().max()
        if "choices" not in kernel:
            drawn = (part.action - outputs) / policy.log_std.exp()
            again = -0.5 * drawn.square() - policy.log_std - rollouts.LOG_ROOT_2PI
            assert (again.sum(-1) - part.log_prob).abs().max() < 0.2
    deep = core.simulator.tensors["bid"].sum(1).maximum(core.simulator.tensors["ask"].sum(1))
    assert (deep.max() > 2**15) == (market == "books that grow")


def test_it_draws_what_steps_draw(kernels):
    """The first decision beside torch's networks, whose products are of float32."""
    envs = make("rollouts on the chip", {}, MODES[1], 32)
    policy = network_for(envs)
    steps = make("rollouts on the chip", {}, MODES[1], 32).rollout(policy, 1, seed=5)
    inside = roll_out(kernels["rollouts on the chip"], envs.unwrapped.core, policy, 1, torch.bfloat16)
    torch.testing.assert_close(inside.action, steps.action, rtol=0, atol=0.03)
    assert build.cpu_unavailable() is None
