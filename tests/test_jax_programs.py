"""What JAX does with environments: scans, donation, shard_map, gradients around them, and what it must not do."""

import json
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

pytest.importorskip("jax")

import jax
import jax.numpy as jnp

import kineticsim_env as ks
from kineticsim_env.jax import calls
from kineticsim_env.jax.making import IDS, MANY

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
MARKETS = 4


def made(device="cpu", id=IDS[0], **arguments):
    return ks.jax.make(id, MARKETS, device=device, **{"horizon": 7, **arguments})


def scanned(env, params, state, steps):
    """Play steps whose actions are of what is seen; return the rewards, `[T, M]`, and the state."""

    def one(carry, _):
        seen, state = carry
        seen, state, reward, _, _ = env.step(None, state, jnp.tanh(seen[:, :4] - 0.5), params)
        return (seen, state), reward

    (_, state), rewards = jax.lax.scan(one, (env.observe(state), state), None, length=steps)
    return rewards, state


@pytest.mark.parametrize("device", DEVICES)
def test_a_scan_is_its_steps(device):
    env, params = made(device)
    seen, state = env.reset(None, params, seed=3)
    rewards, last = jax.jit(lambda one: scanned(env, params, one, 25))(state)
    step = jax.jit(env.step)
    for expected in rewards:
        seen, state, reward, *_ = step(None, state, jnp.tanh(seen[:, :4] - 0.5), params)
        assert np.array_equal(reward, expected)
    assert all(np.array_equal(state.arrays[name], last.arrays[name]) for name in state.arrays)


@pytest.mark.parametrize("device", DEVICES)
def test_a_step_is_a_function_of_its_state(device):
    env, params = made(device)
    _, state = env.reset(None, params, seed=3)
    kept = {name: np.asarray(array).copy() for name, array in state.arrays.items()}
    step, action = jax.jit(env.step), jnp.full((MARKETS, 4), 0.25)
    first, again = step(None, state, action, params), step(None, state, action, params)
    assert all(np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (first, again)), strict=True))
    assert all(np.array_equal(kept[name], state.arrays[name]) for name in kept)  # nothing was changed in place
    donated = jax.jit(env.step, donate_argnums=1)(None, state, action, params)
    assert all(np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (first, donated)), strict=True))
    assert state.arrays["bid"].is_deleted()


def test_an_episode_may_be_branched_within_a_program():
    """Two futures of one state, as in a search: neither changes the other."""
    env, params = made()
    _, state = env.reset(None, params, seed=3)

    def best(state):
        tried = [env.step(None, state, jnp.full((MARKETS, 4), size), params) for size in (-1.0, 0.0, 1.0)]
        return jnp.stack([reward for _, _, reward, _, _ in tried])

    together = jax.jit(best)(state)
    for size, row in zip((-1.0, 0.0, 1.0), together, strict=True):
        assert np.array_equal(env.step(None, state, jnp.full((MARKETS, 4), size), params)[2], row)


def test_conditions_and_loops():
    env, params = made()
    _, state = env.reset(None, params, seed=3)

    def until(state):
        def one(carry):
            count, state = carry
            return count + 1, env.step(None, state, jnp.zeros((MARKETS, 4)), params)[1]

        return jax.lax.while_loop(lambda carry: jnp.all(carry[1]["t"] < 3) | (carry[0] < 2), one, (0, state))

    count, _ = jax.jit(until)(state)
    assert 2 <= int(count) < 20
    skipped = jax.jit(lambda flag, one: jax.lax.cond(flag, lambda s: scanned(env, params, s, 1)[1], lambda s: s, one))
    assert np.array_equal(skipped(False, state)["bid"], state["bid"])


def test_gradients_go_around_a_market():
    env, params = made()
    _, state = env.reset(None, params, seed=3)

    def loss(weight, state):
        def one(carry, _):
            seen, state = carry
            action = jnp.tanh(weight * seen[:, :4])
            seen, state, reward, _, _ = env.step(None, state, action, params)
            return (seen, state), jnp.sum(action**2) + jnp.sum(reward)

        return jnp.sum(jax.lax.scan(one, (env.observe(state), state), None, length=3)[1])

    found = jax.jit(jax.grad(loss))(0.5, state)
    actions = []
    seen, now = env.observe(state), state
    for _ in range(3):
        actions.append(seen[:, :4])
        seen, now, *_ = env.step(None, now, jnp.tanh(0.5 * seen[:, :4]), params)
    rows = np.concatenate(actions)
    tanh = np.tanh(0.5 * rows)
    assert np.allclose(found, np.sum(2 * tanh * (1 - tanh**2) * rows), rtol=1e-5)


@pytest.mark.parametrize("call", ["reset", "step", "begin"])
def test_vmap_says_what_to_do_instead(call):
    env, params = made()
    _, state = env.reset(None, params, seed=3)
    twice = jax.tree.map(lambda one: jnp.stack([one, one]), state)
    with pytest.raises(TypeError, match="vmap: expected an environment of num_envs markets"):
        if call == "reset":
            jax.vmap(lambda key: env.reset(key, params))(jax.random.split(jax.random.key(0), 2))
        elif call == "step":
            jax.vmap(lambda one: env.step(None, one, jnp.zeros((MARKETS, 4)), params))(twice)
        else:
            jax.vmap(lambda one: env.begin(one, jnp.ones(MARKETS, bool), params))(twice)


@pytest.mark.slow
def test_spaces_of_gymnax():
    env, params = made()
    space, seen = env.action_space(params), env.observation_space(params)
    assert (space.shape, env.num_actions, seen.shape) == ((4,), 4, env.reset(None, params, seed=0)[0].shape[1:])
    drawn = jax.vmap(space.sample)(jax.random.split(jax.random.key(0), 100))
    assert drawn.shape == (100, 4) and drawn.dtype == np.float32
    assert all(map(space.contains, drawn)) and not space.contains(jnp.full(4, 1.5))
    assert env.default_params is params and env.name == IDS[0]
    discrete, tables = made(action_type="discrete")
    choices = jax.vmap(discrete.action_space(tables).sample)(jax.random.split(jax.random.key(0), 500))
    assert set(np.asarray(choices)) <= set(range(discrete.num_actions)) and discrete.num_actions == 49
    assert discrete.action_space(tables).contains(48) and not discrete.action_space(tables).contains(49)
    free, _ = made(features=[lambda after: jnp.stack([after.inventory, after.cash], axis=1)])
    assert free.observation_space().shape == (seen.shape[0] + 2,)
    assert np.isfinite(free.observation_space().sample(jax.random.key(0))).all()


def test_a_program_of_another_process_is_told_so():
    call = jax.ffi.ffi_call(calls._TARGET, [jax.ShapeDtypeStruct((2,), np.int32)], vmap_method="sequential")
    calls.library()
    with pytest.raises(Exception, match="compiled in another process; make its environment here"):
        jax.block_until_ready(call(jnp.zeros(2, jnp.int32), launch="no such launch"))


def test_arrays_are_looked_at_when_a_launch_plays():
    """Whoever calls the handler himself: another number of arrays, or arrays of another size, play nothing."""
    env, params = made()
    _, state = env.reset(None, params, seed=3)
    name = env._markets._calls[1].name
    shapes = list(env._markets._calls[1].state.values())
    arrays = list(state.arrays.values())
    with pytest.raises(Exception, match=r"market launch: expected \d+ arrays, got 1"):
        jax.block_until_ready(jax.ffi.ffi_call(calls._TARGET, shapes, vmap_method="sequential")(arrays[0], launch=name))
    tables = [*env._markets.tables.values(), *params.bank.values(), jnp.zeros(3)]
    with pytest.raises(Exception, match=r"market launch: (expected as array|the result of array)"):
        jax.block_until_ready(
            jax.ffi.ffi_call(calls._TARGET, shapes, vmap_method="sequential")(*arrays, *tables, launch=name)
        )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("id", "settings"),
    [
        (IDS[0], {}),
        (IDS[1], {}),
        (MANY, {}),
        (IDS[0], {"preset": "btcusd"}),
        (IDS[0], {"randomise": {"max_order_qty": (2, 6)}, "num_scenarios": 5}),
        (IDS[1], {"preset": "paper", "warmup": 10, "block_qty": [5, 6, 7, 8]}),
    ],
    ids=str,
)
def test_any_bits_of_a_state_play(id, settings, device):
    """States and warm starts are trees of arrays that anyone can make: no numbers in them lead a launch elsewhere."""
    env, params = made(device, id, **settings)
    _, state = env.reset(None, params, seed=3)
    generator, step = np.random.default_rng(5), jax.jit(env.step)
    if id == MANY:
        action = {agent: jnp.zeros((MARKETS, *env.action_space(agent).shape)) for agent in env.agents}
    else:
        action = jnp.zeros((MARKETS, *env.action_space().shape))
    for number in range(60):
        chance = 0.1 if number % 2 else 0.9

        def strange(array, number=number, chance=chance):
            if generator.random() > chance:
                return array
            raw = generator.integers(0, 256, array.nbytes, np.uint8)
            raw = raw & 1 if array.dtype == bool else raw if number % 3 else raw * (generator.random() < 0.5)
            return jnp.asarray(raw.astype(np.uint8).view(array.dtype).reshape(array.shape))

        jax.block_until_ready(step(None, jax.tree.map(strange, state), action, jax.tree.map(strange, params)))
    zero = jax.tree.map(jnp.zeros_like, state)
    jax.block_until_ready(step(None, zero, action, jax.tree.map(jnp.zeros_like, params)))
    first, again = (jax.tree.leaves(step(None, state, action, params)) for _ in range(2))
    assert all(
        np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in zip(map(np.asarray, first), again, strict=True)
    )


def memory_of(device):
    if device == "cuda":
        return jax.devices("gpu")[0].memory_stats()["bytes_in_use"]
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("device", DEVICES)
def test_memory_stays_as_it_is_over_100000_steps(device):
    env, params = made(device, preset="paper")
    _, state = env.reset(None, params, seed=3)
    program = jax.jit(lambda one: scanned(env, params, one, 10_000)[1], donate_argnums=0)
    state = jax.block_until_ready(program(state))
    before = memory_of(device)
    for _ in range(10):
        state = program(state)
    jax.block_until_ready(state)
    assert memory_of(device) < before + 2**22


# Other processes: settings of JAX that hold for all of one -----------------------------------------------------------


def run(program, **environment):
    """Run a program in a process of its own, and return what it printed last, as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "JAX_PLATFORMS": "cpu", **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_shards_of_devices():
    """Two devices of one host, each with markets of its own: what each of them plays alone."""
    found = run(
        """
        import json, jax, jax.numpy as jnp, numpy as np, kineticsim_env as ks
        from jax.sharding import Mesh, PartitionSpec as P
        env, params = ks.jax.make("KineticSim/Execution-v0", 3, device="cpu", horizon=5)

        def play(keys, params):
            seen, state = env.reset(keys[0], params)

            def one(carry, _):
                seen, state = carry
                seen, state, reward, done, _ = env.step(None, state, jnp.tanh(seen[:, :2]), params)
                return (seen, state), (reward, done)

            (seen, state), (rewards, dones) = jax.lax.scan(one, (seen, state), None, length=12)
            return rewards.T, dones.T, state

        keys, mesh = jax.random.split(jax.random.key(1), 2), Mesh(np.array(jax.devices()), ("devices",))
        shard = jax.shard_map(play, mesh=mesh, in_specs=(P("devices"), P()), out_specs=P("devices"))
        rewards, dones, state = jax.jit(shard)(keys, params)
        alike = []
        for place in range(2):
            alone = jax.jit(play)(keys[place : place + 1], params)
            part = slice(3 * place, 3 * place + 3)
            alike += [np.array_equal(alone[0], rewards[part]), np.array_equal(alone[1], dones[part])]
            alike += [np.array_equal(alone[2].arrays["bid"], state.arrays["bid"][part])]
        shards = len(state.arrays["bid"].sharding.device_set)
        differ = bool((rewards[:3] != rewards[3:]).any())
        print(json.dumps({"alike": [bool(one) for one in alike], "shards": shards, "differ": differ}))
        """,
        XLA_FLAGS="--xla_force_host_platform_device_count=2",
    )
    assert found == {"alike": [True] * 6, "shards": 2, "differ": True}


@pytest.mark.slow
def test_wide_numbers_are_as_they_are_where_jax_has_them():
    found = run(
        """
        import json, jax, numpy as np, kineticsim_env as ks
        env, params = ks.jax.make("KineticSim/MarketMaking-v0", 3, device="cpu", account_info=True)
        _, state = env.reset(None, params, seed=2**61)
        for _ in range(20):
            seen, state, reward, done, info = jax.jit(env.step)(None, state, np.full((3, 4), 0.5, np.float32), params)
        saved = env.state_dict(state)
        same = all(np.array_equal(state[name], saved[name].numpy()) for name in ("cash", "seed", "fills"))
        kinds = [str(state["seed"].dtype), str(info["account_info"]["mid"].dtype), str(seen.dtype), str(reward.dtype)]
        print(json.dumps({"same": same, "kinds": kinds, "seed": int(state["seed"][1])}))
        """,
        JAX_ENABLE_X64="1",
    )
    assert found == {"same": True, "kinds": ["int64", "float64", "float32", "float32"], "seed": 2**61 + 1}


def test_without_jax_its_module_says_so_and_all_else_is_there():
    found = run(
        """
        import json, sys
        sys.modules["jax"] = None
        import kineticsim_env as ks
        ks.Simulator(num_markets=1, engine="numpy").run(1)
        try:
            ks.jax
        except ImportError as error:
            print(json.dumps(str(error)))
        """
    )
    assert found == "kineticsim_env.jax: JAX is not found (pip install 'kineticsim-env[jax]')"
