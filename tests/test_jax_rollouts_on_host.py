"""Rollouts from JAX with the policy within the launch, played by the kernel that is built for a CPU: torch's bits.

So what is said of a launch, where its arrays lie and how weights are packed is tested without a GPU.
"""

import ctypes

import numpy as np
import pytest
import torch

pytest.importorskip("jax")

import jax
import jax.numpy as jnp
from build_helpers import needs_compiler
from jax_helpers import assert_same_state, both
from test_jax_rollouts import MAKING, RECORDED, networks
from test_rollouts_on_host import roll_out

import kineticsim_env as ks
from kineticsim_env.engines import operators
from kineticsim_env.engines.cpu import CpuEngine
from kineticsim_env.engines.cuda import CudaEngine
from kineticsim_env.envs.settings import MODES
from kineticsim_env.jax import rollouts
from kineticsim_env.runtime import layout

pytestmark = [needs_compiler, pytest.mark.slow]
ROLLOUT = 100  # a mode of no launch
NEWS = {"horizon": 5, "bank_size": 2, "warmup": 2, "stagger": True, "preset": "news"}


class HostEngine(CpuEngine):
    """Describes rollouts as an engine on a GPU does, whose kernel is that of a library."""

    describe_rollout = CudaEngine.describe_rollout
    played_by = 0  # the address of ks_cpu_launch

    def _mode_of(self, policy, fields):
        return ROLLOUT

    def shapes(self, mode, devices):
        self._struct.tile = 1
        return [self._shape(mode) | ({"function": self.played_by} if mode == ROLLOUT else {})]


@pytest.fixture
def within(monkeypatch):
    """A function that lets an environment of JAX on a CPU have its policy within launches of a library, or of none."""

    def change(env, library=None):
        remake = env._remake

        def made():
            found = remake()
            found.core.simulator.engine.__class__ = HostEngine
            return found

        address = ctypes.cast(library.ks_cpu_launch, ctypes.c_void_p).value if library else 0
        monkeypatch.setattr(HostEngine, "played_by", address)
        monkeypatch.setattr(rollouts, "CudaEngine", HostEngine)
        env._remake, env._devices = made, [0]
        return env

    return change


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("markets", [3, 37])
def test_the_bits_of_torch(kernels, within, mode, markets):
    library = kernels["rollouts in float32"]
    env, params, torch_env = both(MAKING, "cpu", markets, autoreset_mode=mode, **NEWS)
    policy, given = networks(39, 4)
    torch_env.reset(seed=3)
    _, state = env.reset(None, params, seed=3)
    play = jax.jit(lambda one: within(env, library).rollout(None, one, params, steps=7, seed=5, **given))
    for _ in range(2):
        expected = roll_out(library, torch_env.unwrapped.core, policy, 7, torch.float32)
        state, found = play(state)
        for name in RECORDED:
            assert np.array_equal(getattr(expected, name).numpy(), getattr(found, name)), name
        assert np.array_equal(expected.last_observation.numpy(), env.observe(state))
    assert found.decision_events is None and np.asarray(found.truncated).any()
    assert_same_state(torch_env, env, state)


@pytest.mark.parametrize(
    "settings",
    [
        {"preset": "news", "decide": "fill", "account_info": True},
        {
            "config": ks.MarketConfig.preset("btcusd", quote_latency=60),
            "decide": "fill",
            "account_info": True,
            "randomise": {"fee": (0, 2)},
        },
        {"action_type": "discrete"},
    ],
    ids=["events", "the most", "choices"],
)
def test_each_array_has_its_pointer_and_its_size(within, monkeypatch, settings):
    told = []
    monkeypatch.setattr(rollouts, "Call", lambda said, shapes: told.append(said) or rollouts_call(said, shapes))
    rollouts_call, markets, steps = ks.jax.calls.Call, 32, 7
    env, params, _ = both(MAKING, "cpu", markets, horizon=5, **settings)
    inputs, discrete = env.observation_space().shape[0], "action_type" in settings
    _, given = networks(inputs, env.num_actions, categorical=discrete)
    state = jax.eval_shape(lambda: env.reset(None, params, seed=3)[1])
    _, shapes = jax.eval_shape(lambda one: within(env).rollout(None, one, params, steps=steps, seed=5, **given), state)
    (said,) = told
    launcher, names = said.launcher(said.scratch), [*said.state, *said.tables, *said.scratch]
    launch = layout.Launch.from_buffer_copy(said.launch)
    for place in range(len(names)):
        ctypes.c_int64.from_address(ctypes.addressof(launch) + launcher.offsets[place]).value = 64 * (place + 1)
    for place, name in enumerate(names):
        inner = name.removeprefix("rollout.")
        assert getattr(launch if inner == name else launch.rollout, inner) == 64 * (place + 1), name
    sizes = dict(zip(names, launcher.bytes, strict=False))
    width, number = -(-(inputs + 1) // 8) * 8, steps * markets
    wanted = {"rows": 4 * number * width, "final_rows": 4 * 2 * markets * width, "seed": 8}
    wanted |= {"choices": 8 * number} if discrete else {"actions": 4 * number * env.num_actions}
    wanted |= dict.fromkeys(("log_prob", "value", "reward"), 4 * number)
    wanted |= dict.fromkeys(("terminated", "truncated", "played"), number)
    wanted |= {"decision_events": 4 * number} if "decide" in settings else {}
    found = {name.removeprefix("rollout."): size for name, size in sizes.items() if name.startswith("rollout.")}
    assert found.pop("networks") % 16 == 0 and found == wanted
    assert (shapes.decision_events is not None) == ("decide" in settings)
    assert said.launch.decisions == steps and said.launch.rollout.markets_per_network == markets
    assert said.launch.rollout.every == 5 and said.launch.rollout.slots == said.launch.rollout.noise == 1


def test_more_arrays_than_a_launch_has_are_refused():
    many = {f"array {number}": torch.empty(1) for number in range(1 + operators._MOST_TENSORS)}
    said = operators.Description(layout.Launch(), many, {}, {}, [], [])
    with pytest.raises(ValueError, match=f"launch: expected up to {operators._MOST_TENSORS} tensors, got .*: array 0,"):
        said.launcher()


def test_under_vmap_it_is_refused(within):
    env, params, _ = both(MAKING, "cpu", 2, horizon=5)
    _, given = networks(39, 4)
    _, state = env.reset(None, params, seed=3)
    keys, many = jax.random.split(jax.random.key(0), 3), jax.tree.map(lambda array: jnp.stack([array] * 3), state)
    for one in (env, within(env)):
        with pytest.raises(TypeError, match="vmap: expected an environment of num_envs markets"):
            jax.vmap(lambda key: one.rollout(key, state, params, steps=2, **given))(keys)  # noqa: B023  called now
        with pytest.raises(TypeError, match="vmap: expected an environment of num_envs markets"):
            jax.vmap(lambda each: one.rollout(None, each, params, steps=2, seed=0, **given))(many)  # noqa: B023
