"""Rollouts: markets are what they are when the recorded actions are played one by one, on every engine."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from env_helpers import assert_same, clock_environments, environments, make_cores
from hypothesis import given, settings
from hypothesis import strategies as st
from thorough import covering, examples

import kineticsim_env as ks
from kineticsim_env.envs import rollouts
from kineticsim_env.envs.settings import MODES
from kineticsim_env.policies import noise, packing
from kineticsim_env.wrappers import NormalizeObservation, NormalizeReward, StackObservation

SMALL = {"horizon": 5, "bank_size": 3, "warmup": 5}


def make(task="MarketMaking", markets=6, **given):
    few = {"block_qty": 40, "forced_qty": 8} if task == "Execution" else {}  # few intervals after the deadline
    envs = gym.make_vec(
        f"KineticSim/{task}-v0", num_envs=markets, **{"output": "torch", "engine": "cpu", **SMALL, **few, **given}
    )
    envs.reset(seed=11)
    return envs


def network_for(envs, seed=0, **kind):
    """A network whose outputs differ from row to row, unlike those of one that has just been made."""
    space = envs.single_action_space
    choices = isinstance(space, gym.spaces.Discrete)
    size = int(space.n) if choices else space.shape[0]
    torch.manual_seed(seed)
    made = ks.NetworkPolicy.make(envs.single_observation_space.shape[0], size, categorical=choices, **kind)
    return shaken(made.to(envs.unwrapped.device))


def shaken(made):
    with torch.no_grad():
        for part in made.parameters():
            part.add_(0.1 * torch.randn_like(part))
    return made


def taken(rollout, t):
    """What `step` is given of a recorded decision."""
    action = rollout.action[t]
    if action.dtype == torch.int32:
        return ks.OrderRecords(action)
    return action if action.dtype == torch.int64 else action.clamp(-1.0, 1.0)


def check_replay(envs, parts):
    """Step an environment by recorded actions, and compare all that was recorded."""
    core = envs.unwrapped.core
    for part in parts:
        for t in range(len(part.rows)):
            assert torch.equal(envs.observation.to(part.rows.dtype), part.observation[t])
            assert torch.equal(~core.tensors["done"], part.played[t])
            core.lets_stand = True
            _, reward, terminated, truncated, infos = envs.step(taken(part, t))
            assert torch.equal(reward, part.reward[t])
            assert torch.equal(terminated, part.terminated[t]) and torch.equal(truncated, part.truncated[t])
            ended = truncated & part.played[t]
            final = core.tensors["final_observation"][:, 0, : part.inputs].to(part.rows.dtype)
            assert torch.equal(final[ended], part.final_observation[t // part.every][ended])
            if part.decision_events is not None:
                assert torch.equal(infos["decision_events"], part.decision_events[t])
        assert torch.equal(envs.observation.to(part.rows.dtype), part.last_observation)


@covering
@pytest.mark.parametrize("task", ["MarketMaking", "Execution", "Trading"])
@pytest.mark.parametrize("preset", ["trading", "news"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("action_type", ["continuous", "discrete"])
@pytest.mark.parametrize("engine", ["cpu", "numpy"])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_recorded_actions_played_one_by_one(task, preset, mode, action_type, engine, kind):
    envs = make(task, preset=preset, autoreset_mode=mode, action_type=action_type, engine="cpu", stagger=True)
    part = envs.rollout(network_for(envs), 12, observations=kind)
    assert part.truncated.any() or part.terminated.any()
    assert bool(part.played.all()) == (mode.name == "SAME_STEP")
    check_replay(
        make(task, preset=preset, autoreset_mode=mode, action_type=action_type, engine=engine, stagger=True), [part]
    )


@pytest.mark.parametrize("decide", ["fill", "touch"])
def test_decisions_that_events_end_are_recorded_with_their_events(decide):
    envs = make(decide=decide)
    part = envs.rollout(network_for(envs), 9)
    assert part.decision_events.min() < part.decision_events.max()
    check_replay(make(decide=decide), [part])


@pytest.mark.parametrize("action_type", ["continuous", "discrete"])
def test_cuts_change_nothing(action_type):
    whole_envs, cut_envs = make(action_type=action_type), make(action_type=action_type)
    policy = network_for(whole_envs)
    whole = whole_envs.rollout(policy, 13, seed=7)
    parts = [cut_envs.rollout(policy, steps, seed=7) for steps in (1, 5, 7)]
    for name in ("rows", "action", "log_prob", "value", "reward", "terminated", "truncated", "played"):
        assert torch.equal(getattr(whole, name), torch.cat([getattr(part, name) for part in parts])), name
    assert torch.equal(whole.last_rows, parts[-1].last_rows)


def test_noise_is_of_market_seed_and_time_alone():
    policy = network_for(make())
    few, many = make(markets=3).rollout(policy, 4), make(markets=6).rollout(policy, 4)
    torch.testing.assert_close(few.action[0], many.action[0, :3])  # torch's products depend on how many rows there are
    assert not torch.equal(many.action, make().rollout(policy, 4, seed=1).action)
    seeds = torch.tensor([1])
    assert torch.equal(make().rollout(policy, 4, seed=1).action, make().rollout(policy, 4, seed=seeds).action)


def test_words_are_those_of_the_page():
    """The formula of docs/rollouts.md in Python's whole numbers."""

    def mix(x):
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
        return x ^ (x >> 31)

    golden, stride = 0x9E3779B97F4A7C15, 0xD1B54A32D192ED03
    for seed, market, episode, t in [(0, 0, 0, 0), (-3, 2**62 + 5, 17, 2**31), (2**63 - 1, -9, 2**40, 1)]:
        key = mix((market + golden + episode * stride) % 2**64)
        first = (mix((key + seed * golden) % 2**64) + ((t << 32) + 1) * golden) % 2**64
        words = [mix((first + pair * golden) % 2**64) for pair in range(3)]
        made = noise.words_of(*(torch.tensor([x]) for x in (seed, market, episode, t)))
        assert [x % 2**64 for x in noise._words(made, 3)[0].tolist()] == words
        uniform = [((word >> 40) + 0.5) / 2**24 for word in words]
        low = [(word % 2**32 + 2**31) % 2**32 - 2**31 for word in words]
        angle = np.pi * np.array(low) / 2**31
        length = np.sqrt(-2 * np.log(uniform))
        expected = np.stack([length * np.cos(angle), length * np.sin(angle)], axis=1).reshape(-1)[:5]
        np.testing.assert_allclose(noise.normals(made, 5)[0].numpy(), expected, rtol=2e-5, atol=2e-6)


def test_noise_has_its_distribution():
    count = 1 << 17
    words = noise.words_of(
        torch.tensor([5]), torch.arange(count), torch.zeros(count, dtype=torch.int64), torch.ones(1, dtype=torch.int64)
    )
    drawn = noise.normals(words, 4).double()
    error = 4 / count**0.5
    assert drawn.mean(0).abs().max() < error and (drawn.var(0) - 1).abs().max() < 2 * error
    assert (torch.corrcoef(drawn.T) - torch.eye(4)).abs().max() < error
    assert abs((drawn.abs() > 1.959964).double().mean() - 0.05) < error
    gumbel = noise.gumbels(words, 3).double()
    assert (gumbel.mean(0) - 0.5772157).abs().max() < 2 * error and (
        gumbel.var(0) - np.pi**2 / 6
    ).abs().max() < 6 * error


def test_log_probabilities_are_of_what_was_chosen():
    envs = make(markets=64, action_type="discrete")
    policy = network_for(envs)
    part = envs.rollout(policy, 6)
    logits, value = policy(part.observation)
    expected = torch.distributions.Categorical(logits=logits).log_prob(part.action)
    torch.testing.assert_close(part.log_prob, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(part.value, value, rtol=1e-5, atol=1e-5)
    envs = make(markets=64)
    policy = network_for(envs)
    part = envs.rollout(policy, 6)
    mean, _ = policy(part.observation)
    expected = torch.distributions.Normal(mean, policy.log_std.exp()).log_prob(part.action).sum(-1)
    torch.testing.assert_close(part.log_prob, expected, rtol=1e-4, atol=1e-4)
    still = make(markets=64).rollout(policy, 3, noise=False)
    torch.testing.assert_close(still.action, policy(still.observation)[0])


def test_networks_of_groups_of_markets():
    envs = make(markets=6)
    first, second = network_for(envs, 1), network_for(envs, 2)
    both = envs.rollout([first, second], 4)
    torch.testing.assert_close(both.action[0, :3], make(markets=6).rollout(first, 1).action[0, :3])
    torch.testing.assert_close(both.action[0, 3:], make(markets=6).rollout(second, 1).action[0, 3:])
    assert not torch.allclose(both.action[0, 3:], make(markets=6).rollout(first, 1).action[0, 3:])


def test_a_rollout_is_written_into_one_that_is_there():
    envs, again = make(), make()
    policy = network_for(envs)
    out = envs.rollout(policy, 6)
    assert envs.rollout(policy, 6, out=out) is out
    again.rollout(policy, 6)
    expected = again.rollout(policy, 6)
    for name in ("rows", "action", "reward", "last_rows"):
        assert torch.equal(getattr(out, name), getattr(expected, name))
    with pytest.raises(ValueError, match="out: expected a rollout of 7 decisions in 6 markets, as this"):
        envs.rollout(policy, 7, out=out)
    with pytest.raises(TypeError, match="out: expected a PolicyRollout"):
        envs.rollout(policy, 7, out={})


def test_wrappers_show_what_the_policy_sees():
    stacked = StackObservation(make(), 3)
    part = ks.rollout(stacked, network_for(stacked), 11)
    assert part.truncated.any()
    again = StackObservation(make(), 3)
    for t in range(11):
        assert torch.equal(again.observation, part.observation[t])
        _, _, _, truncated, infos = again.step(taken(part, t))
        row = part.final_observation[t // part.every]
        assert torch.equal(infos["final_obs"][truncated], row[truncated])
    normal = NormalizeReward(NormalizeObservation(make()), gamma=0.9)
    normal.reset(seed=1)
    seen = ks.rollout(normal, network_for(normal), 3)
    assert torch.equal(seen.last_observation, normal.observation)
    assert not torch.equal(seen.last_observation, normal.unwrapped.observation)


def test_rewards_of_users_are_recorded():
    envs = make(reward=lambda before, after: after.inventory.float())
    part = envs.rollout(network_for(envs), 4)
    assert torch.equal(part.reward[-1], envs.simulator.inventory[:, 0].float())
    assert part.reward.abs().sum() > 0


def test_numpy_output_is_rolled_out_too():
    envs = make(output="numpy")
    part = envs.rollout(network_for(envs), 7)
    check_replay(make(), [part])


def test_what_is_refused():
    envs = make()
    policy = network_for(envs)
    fresh = gym.make_vec("KineticSim/MarketMaking-v0", num_envs=6, engine="cpu", **SMALL)
    with pytest.raises(gym.error.ResetNeeded, match="rollout: the environment was never reset"):
        fresh.rollout(policy, 1)
    with pytest.raises(TypeError, match="envs: expected a vector environment of this package"):
        ks.rollout(gym.make("KineticSim/MarketMaking-v0", engine="cpu", **SMALL), policy, 1)
    with pytest.raises(TypeError, match="policy: expected a NetworkPolicy"):
        envs.rollout(torch.nn.Linear(39, 4), 1)
    with pytest.raises(
        ValueError, match="policy: expected a network, or a number of them that divides the 6 markets, got 4"
    ):
        envs.rollout([policy] * 4, 1)
    with pytest.raises(ValueError, match=r"policy\[1\]: expected the shape of the first"):
        envs.rollout([policy, network_for(envs, hidden=128)], 1)
    with pytest.raises(ValueError, match="policy: expected 4 outputs, as the environment has actions, got 3"):
        envs.rollout(ks.NetworkPolicy.make(39, 3), 1)
    with pytest.raises(ValueError, match=r"policy: expected a Gaussian policy \(log_std\)"):
        envs.rollout(ks.NetworkPolicy.make(39, 49, categorical=True), 1)
    with pytest.raises(ValueError, match="policy: expected 39 inputs, as observations have, got 38"):
        envs.rollout(ks.NetworkPolicy.make(38, 4), 1)
    with pytest.raises(ValueError, match=r"steps: expected 1 to 2\^31 - 1, got 0"):
        envs.rollout(policy, 0)
    with pytest.raises(ValueError, match="observations: expected torch.float32 or torch.bfloat16, got"):
        envs.rollout(policy, 1, observations=torch.float16)
    with pytest.raises(ValueError, match=r"seed: expected a tensor int64 \[1\] on cpu"):
        envs.rollout(policy, 1, seed=torch.zeros(2, dtype=torch.int64))
    before = envs.simulator.t.clone()
    assert torch.equal(before, envs.simulator.t)


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda nn: nn.Linear(39, 4), "actor: expected nn.Sequential of Linear"),
        (lambda nn: nn.Sequential(nn.Linear(39, 64), nn.GELU(), nn.Linear(64, 4)), "got Linear, GELU, Linear"),
        (
            lambda nn: nn.Sequential(nn.Linear(39, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4)),
            "actor: expected two hidden layers of 64 or 128, got 32 and 32",
        ),
        (
            lambda nn: nn.Sequential(nn.Linear(39, 64), nn.Tanh(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4)),
            "got Linear, Tanh, Linear, ReLU, Linear",
        ),
        (
            lambda nn: nn.Sequential(
                nn.Linear(39, 64), nn.Tanh(), nn.Linear(64, 64, bias=False), nn.Tanh(), nn.Linear(64, 4)
            ),
            "actor: layer 2: expected nn.Linear with a bias",
        ),
        (
            lambda nn: nn.Sequential(nn.Linear(200, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4)),
            "inputs: expected 1 to 127, got 200",
        ),
    ],
)
def test_other_shapes_of_networks_are_refused_by_name(build, said):
    with pytest.raises((TypeError, ValueError), match=said):
        ks.NetworkPolicy(build(torch.nn))


@pytest.mark.parametrize("trunk", [False, True])
@pytest.mark.parametrize(
    ("inputs", "outputs", "hidden"), [(39, 4, 64), (37, 49, 128), (47, 2, 64), (48, 8, 64), (1, 64, 64)]
)
def test_packed_weights_give_the_networks_outputs(trunk, inputs, outputs, hidden):
    """Products as PTX lays them out among lanes, in NumPy: what the kernel makes of packed weights."""
    torch.manual_seed(1)
    policy = shaken(ks.NetworkPolicy.make(inputs, outputs, hidden=hidden, trunk=trunk))
    packed = packing.packed([policy])[0]
    depths, bodies, tiles = inputs // 16 + 1, 1 if trunk else 2, -(-outputs // 8) + 1
    below = bodies * (hidden // 16) * (depths + hidden // 16)
    pieces = below + tiles * hidden // 32
    weights = packed[: pieces * 128].view(torch.bfloat16).float().numpy().reshape(pieces, 32, 8)
    numbers = packed[pieces * 128 :].view(torch.float32).numpy()

    def factor(piece, first):
        """Rows 0 to 15 of a right factor [16, 8], of one half of a piece."""
        made = np.zeros((16, 8), np.float32)
        for lane in range(32):
            for i, row in enumerate((0, 1, 8, 9)):
                made[2 * (lane % 4) + row, lane // 4] = weights[piece, lane, first + i]
        return made

    def layer(rows, piece, biases):
        depth = rows.shape[1] // 16
        out = np.zeros((len(rows), hidden), np.float32)
        for n in range(hidden // 16):
            for k in range(depth):
                for half in range(2):
                    to = slice((2 * n + half) * 8, (2 * n + half + 1) * 8)
                    out[:, to] += rows[:, 16 * k : 16 * k + 16] @ factor(piece + n * depth + k, 4 * half)
        return np.tanh(out + biases)

    observation = torch.randn(5, inputs)
    rows = np.zeros((5, 16 * depths), np.float32)
    rows[:, :inputs], rows[:, inputs] = observation.numpy(), 1.0
    heads = []
    for body in range(bodies):
        piece = body * (hidden // 16) * (depths + hidden // 16)
        first = layer(rows, piece, 0.0)
        hidden_rows = layer(first, piece + hidden // 16 * depths, numbers[body * hidden : (body + 1) * hidden])
        for n in range(tiles) if trunk else range(tiles - 1) if body == 0 else [tiles - 1]:
            out = np.tile(numbers[bodies * hidden + 8 * n : bodies * hidden + 8 * n + 8], (5, 1))
            for k in range(hidden // 16):
                right = factor(below + n * hidden // 32 + k // 2, 4 * (k % 2))
                out = out + hidden_rows[:, 16 * k : 16 * k + 16] @ right
            heads.append(out)
    expected, value = policy(observation)
    found = np.concatenate(heads, axis=1)
    np.testing.assert_allclose(found[:, :outputs], expected.detach().numpy(), atol=0.03)
    np.testing.assert_allclose(found[:, 8 * (tiles - 1)], value.detach().numpy(), atol=0.03)
    np.testing.assert_array_equal(numbers[-8 * (tiles - 1) :][:outputs], policy.log_std.detach().numpy())


# On a GPU -------------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("engine", ["cpu", "numpy"])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@settings(max_examples=examples(5))  # each compiles two kernels; test_rollouts_on_host.py has many
@given(
    environment=st.one_of(environments(most_slots=1), clock_environments(most_slots=1)),
    lanes=st.sampled_from([0, 1, 8, 32]),
    seed=st.integers(0, 2**32),
)
def test_random_markets_are_those_of_other_engines(environment, lanes, kind, engine, seed):
    """Every tensor, after rollouts of some lengths; among them markets that need 32 bits, and that stop."""
    arguments, kwargs, first, steps = environment
    cores = make_cores(arguments, kwargs, (engine, "cuda"))
    played, inside = cores
    if lanes and inside.config.is_continuous:
        inside.simulator.engine.force = {"KS_LANES_PER_MARKET": lanes}
    for core in cores:
        core.reset(first)
    role, task = inside.roles[0], inside.task
    choices = task.num_choices(role)
    torch.manual_seed(seed)
    size = choices or task.action_form(role).size
    made = ks.NetworkPolicy.make(inside.observation_size(role), size, categorical=bool(choices))
    policy = shaken(made).cuda()
    for number in range(2):
        part = rollouts._empty(inside, policy.shape, steps, kind)
        rollouts._play_inside(inside, [policy], part, torch.tensor([seed], device="cuda"), True)
        for t in range(steps):
            seen = played.tensors["observation"][:, 0, : part.inputs].to(kind)
            assert torch.equal(seen, part.observation[t].cpu()), f"observation {t} of rollout {number}"
            name = "choices" if choices else "actions"
            played._engine.launch(1, auctions=played.auctions_per_step, **{name: taken(part, t).cpu()[:, None]})
            for output in ("reward", "terminated", "truncated"):
                assert torch.equal(played.tensors[output][:, 0], getattr(part, output)[t].cpu()), f"{output} {t}"
        assert_same(cores, f"after rollout {number}")


@pytest.mark.gpu
@pytest.mark.parametrize("markets", [1, 70, 1024, 5000, 8192])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_forms_of_the_kernel_replay(markets, mode, kind):
    """A market per warp, a part of one or a lane; the network in shared memory or not; tails of warps."""
    given = {"markets": markets, "engine": "cuda", "autoreset_mode": mode, "stagger": True, "horizon": 7}
    envs = make(**given)
    policy = network_for(envs)
    parts = [envs.rollout(policy, steps, observations=kind) for steps in (5, 1, 12)]
    state = {name: tensor.clone() for name, tensor in envs.unwrapped.core.tensors.items()}
    envs.unwrapped.check_errors()
    again = make(**given)
    check_replay(again, parts)
    for name, tensor in again.unwrapped.core.tensors.items():
        assert torch.equal(tensor, state[name]), name


@pytest.mark.gpu
@pytest.mark.parametrize("hidden", [64, 128])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("trunk", [False, True])
@pytest.mark.parametrize("action_type", ["continuous", "discrete"])
def test_networks_are_near_those_of_torch(hidden, activation, trunk, action_type):
    """Values within 1% of the largest, as bfloat16 has it; what was drawn is what the log-probability says."""
    envs = make(markets=4224, engine="cuda", action_type=action_type)
    policy = network_for(envs, hidden=hidden, activation=activation, trunk=trunk)
    part = envs.rollout(policy, 6)
    with torch.no_grad():
        outputs, value = policy(part.observation)
        exact = policy.double()(part.observation.double())[1].float()
        policy.float()
    assert (part.value - exact).abs().max() < 0.01 * exact.abs().max()
    if action_type == "discrete":
        expected = torch.distributions.Categorical(logits=outputs).log_prob(part.action)
        assert (part.log_prob - expected).abs().max() < 0.02 * outputs.abs().max()
        share = torch.nn.functional.one_hot(part.action, outputs.shape[-1]).float().mean((0, 1))
        assert (share - outputs.softmax(-1).mean((0, 1))).abs().max() < 5 / part.action.numel() ** 0.5
    else:
        drawn = (part.action - outputs) / policy.log_std.exp()
        assert drawn.mean((0, 1)).abs().max() < 0.03 and (drawn.std((0, 1)) - 1).abs().max() < 0.02
        assert (part.log_prob - (-0.5 * drawn.square() - policy.log_std - 0.9189385).sum(-1)).abs().max() < 0.3
        still = make(markets=4224, engine="cuda").rollout(policy, 1, noise=False)
        assert (still.action - policy(still.observation)[0]).abs().max() < 0.01 * outputs.abs().max()


@pytest.mark.gpu
def test_the_same_bits_twice_and_new_weights_compile_nothing(monkeypatch):
    envs, again = make(markets=2048, engine="cuda"), make(markets=2048, engine="cuda")
    policy = network_for(envs)
    first, second = envs.rollout(policy, 9), again.rollout(policy, 9)
    for name in ("rows", "action", "log_prob", "value", "reward"):
        assert torch.equal(getattr(first, name), getattr(second, name))
    monkeypatch.setattr("kineticsim_env.runtime.kernels._load", None)
    assert not torch.equal(envs.rollout(network_for(envs, 5), 9).action, again.rollout(policy, 9).action)


@pytest.mark.gpu
def test_groups_of_markets_have_networks_of_their_own():
    envs = make(markets=128, engine="cuda")
    policies = [network_for(envs, seed) for seed in range(4)]
    part = envs.rollout(policies, 4)
    for number, policy in enumerate(policies):
        alone = make(markets=128, engine="cuda").rollout(policy, 4)
        rows = slice(32 * number, 32 * number + 32)
        assert torch.equal(part.action[:, rows], alone.action[:, rows])
        assert torch.equal(part.value[:, rows], alone.value[:, rows])


@pytest.mark.gpu
def test_a_captured_rollout_goes_on():
    envs, plain = make(markets=1024, engine="cuda", copy=False), make(markets=1024, engine="cuda")
    policy, seed = network_for(envs), torch.zeros(1, dtype=torch.int64, device="cuda")
    out = envs.rollout(policy, 3, seed=seed)
    plain.rollout(policy, 3)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        envs.rollout(policy, 3, out=out, seed=seed)
    for number in range(3):
        seed.fill_(number)
        graph.replay()
        expected = plain.rollout(policy, 3, seed=number)
        assert torch.equal(out.action, expected.action) and torch.equal(out.last_rows, expected.last_rows)


@pytest.mark.gpu
def test_nan_weights_are_an_error_and_steps_say_why():
    envs = make(markets=64, engine="cuda")
    policy = network_for(envs)
    with torch.no_grad():
        policy.actor[0].bias[3] = float("nan")
    envs.rollout(policy, 2)
    with pytest.raises(ks.MarketError, match="NaN"):
        envs.unwrapped.check_errors()
    wrapped = StackObservation(make(markets=64, engine="cuda"), 2)
    with pytest.warns(UserWarning, match="rollout: steps one by one, as the environment is in wrappers"):
        ks.rollout(wrapped, network_for(wrapped), 2)
