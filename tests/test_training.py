"""PPO's update in Triton: gradients, sums, Adam, advantages and shuffling, against torch in float64.

Without a GPU the kernels run in Triton's interpreter, in float32.
"""

import copy
import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from messages import mentions
from training_helpers import DEVICE, KIND, forward, loss_of, policy_of, rollout_of, triton

from kineticsim_env.policies import NetworkPolicy
from kineticsim_env.training import PPO, Launch, PolicyRollout, kernels

tl = triton.language
SHAPES = {  # inputs, outputs, the policy's kind, decisions, markets, the rollout's kind
    "as in the examples": (39, 4, {}, 3, 70, {}),
    "a trunk": (37, 4, {"trunk": True}, 3, 50, {}),
    "choices": (9, 7, {"categorical": True}, 5, 33, {"played": True}),
    "choices on a trunk": (20, 64, {"categorical": True, "trunk": True, "activation": "relu"}, 1, 129, {}),
    "wide": (39, 3, {"hidden": 128, "activation": "relu"}, 2, 65, {}),
    "all at its widest": (127, 64, {"hidden": 128, "trunk": True}, 1, 67, {"played": True}),
    "the least": (1, 1, {}, 4, 17, {}),
    "many actions": (71, 33, {"activation": "relu"}, 2, 40, {"played": True}),
}


def normalised(ppo, rollout):
    """Return advantages in float64 with mean 0 and deviation 1 over the decisions that were played."""
    gain = ppo.advantage.double()
    some = gain if rollout.played is None else gain[rollout.played]
    return (gain - some.mean()) / (some.std(correction=0) + 1e-8)


def relative(found, wanted):
    """Return the size of the difference, in the size of what is wanted."""
    found, wanted = (torch.cat([part.flatten().double() for part in parts]) for parts in (found, wanted))
    return float((found - wanted).norm() / wanted.norm())


def compare_gradients(shape, dtype, bound, times=1):
    inputs, outputs, kind, steps, markets, how = SHAPES[shape]
    markets *= times
    policy = policy_of(inputs, outputs, **kind)
    rollout = rollout_of(policy, steps, markets, dtype=dtype, **how)
    ppo = PPO(policy, minibatches=1, entropy_weight=0.03, value_weight=0.7, clip=0.15)
    ppo.estimate(rollout)
    ppo._sum_gradients(rollout, 0, -(-steps * markets // ppo._launch.rows), ends_epoch=True)
    exact = copy.deepcopy(policy).double()
    gain, target = normalised(ppo, rollout), ppo.target.double()
    loss, parts = loss_of(exact, rollout, gain, target, dtype, 0.15, 0.7, 0.03)
    loss.backward()
    wanted = [parameter.grad for parameter in exact.parameters()]
    assert all(part.any() for part in wanted)
    assert relative(ppo.gradients(), wanted) < bound
    whole = torch.cat([part.flatten() for part in wanted]).norm()
    for found, part in zip(ppo.gradients(), wanted, strict=True):  # what nearly cancels out has few digits
        assert (found.double() - part).norm() < bound * (10 * part.norm() + 0.1 * whole)
    assert torch.allclose(ppo.losses().double(), parts.detach(), rtol=30 * bound, atol=30 * bound)


@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_are_those_of_float64(shape):
    """Of a Gaussian policy of many actions the probability's rounding counts, in torch's float32 as much."""
    if DEVICE == "cuda":
        pytest.skip("on a GPU gradients are compared in bfloat16")
    _, outputs, kind, *_ = SHAPES[shape]
    many = outputs > 16 and "categorical" not in kind
    compare_gradients(shape, torch.float32, 1e-5 if many else 1e-6 if outputs == 1 else 5e-7)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_in_bfloat16_are_those_of_the_same_rounded_pass(shape):
    """Gradients are rounded on the way back, too, which many samples average out."""
    inputs, outputs, kind, *_ = SHAPES[shape]
    many = outputs > 16 and "categorical" not in kind
    if outputs > 16 and kind.keys() & {"categorical", "trunk"}:
        with pytest.raises(ValueError, match="policy: expected on a GPU at most 16 outputs of a categorical policy or"):
            PPO(policy_of(inputs, outputs, **kind))
        return
    compare_gradients(shape, torch.bfloat16, 6e-3 if many else 2e-3, times=64)


# Shuffling ------------------------------------------------------------------------------------------------------------


@triton.jit
def all_places(keys, places, blocks, bits):
    i = tl.program_id(0)
    tl.store(places + i, kernels.place_of(i, tl.load(keys), tl.load(keys + 1), blocks, bits))


def order_of(blocks, seed=0, epoch=0):
    """Return where the shuffle takes each of some numbers."""
    keys, places = torch.tensor([seed, epoch], device=DEVICE), torch.zeros(blocks, dtype=torch.int32, device=DEVICE)
    all_places[(blocks,)](keys, places, blocks, (blocks - 1).bit_length())
    return places.cpu()


@pytest.mark.parametrize(
    "blocks", [*range(1, 20), 33, *(pytest.param(n, marks=pytest.mark.slow) for n in (31, 63, 64, 65, 100, 129))]
)
def test_shuffling_is_a_permutation(blocks):
    for epoch in (0, 1, 2**31 + 5):
        assert order_of(blocks, epoch, epoch).sort().values.tolist() == list(range(blocks))


@pytest.mark.slow
def test_shuffles_differ_and_take_each_number_everywhere():
    blocks, epochs = 24, 40
    orders = torch.stack([order_of(blocks, 3, epoch) for epoch in range(epochs)]).long()
    assert len({tuple(order.tolist()) for order in orders}) == epochs
    assert not torch.equal(order_of(blocks, 4, 0), orders[0].int())
    halves = (orders < blocks // 2).float().mean(0)  # how often a number comes in the first half
    assert 0.13 < halves.min() and halves.max() < 0.87  # 4.7 standard deviations of a fair coin
    apart = (orders[:, 1:] - orders[:, :-1]).abs().float().mean()
    assert abs(apart - (blocks + 1) / 3) < 1.0  # of two numbers drawn at random


def test_an_epoch_has_each_sample_once_and_epochs_have_orders_of_their_own():
    """Gradients of all minibatches at one set of weights add up to that of the whole; the order is another then."""
    policy = policy_of(5, 2)
    rollout = rollout_of(policy, 7, 61)  # 6.7 blocks
    ppo = PPO(policy, minibatches=3, epochs=2)
    ppo.estimate(rollout)
    sums, parts = [], []
    for _ in range(2):
        total, parts = torch.zeros_like(ppo._gradient), []
        for first, last in ((0, 2), (2, 4), (4, 7)):
            ppo._sum_gradients(rollout, first, last, ends_epoch=last == 7)
            total += ppo._gradient
            parts.append(ppo._gradient.clone())
        sums.append((total, parts))
    size = ppo._layout.size
    assert sums[0][0][size + kernels.ACTORS.value] == sums[0][0][size + kernels.CRITICS.value] == 7 * 61
    assert torch.allclose(sums[0][0], sums[1][0], rtol=1e-4, atol=1e-4)
    assert not torch.allclose(sums[0][1][0], sums[1][1][0], rtol=1e-2, atol=1e-2)
    ppo._sum_gradients(rollout, 0, 7, ends_epoch=True)
    assert torch.allclose(sums[0][0], ppo._gradient, rtol=1e-4, atol=1e-4)


# Sums and steps -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("max_norm", "kind"), [(1e-3, {}), (1e3, {"trunk": True}), (0.5, {"categorical": True})])
def test_steps_are_those_of_torch(max_norm, kind):
    policy = policy_of(11, 5, **kind)
    other, rollout = copy.deepcopy(policy), rollout_of(policy, 2, 64)
    ppo = PPO(policy, learning_rate=3e-3, max_norm=max_norm, minibatches=1)
    adam, clipped = torch.optim.Adam(other.parameters(), lr=3e-3, eps=1e-5), []
    ppo.estimate(rollout)
    for _ in range(6):
        ppo._sum_gradients(rollout, 0, 2, ends_epoch=True)
        for parameter, gradient in zip(other.parameters(), ppo.gradients(), strict=True):
            parameter.grad = gradient
        ppo._step()
        ppo.write_weights()
        clipped.append(float(torch.nn.utils.clip_grad_norm_(other.parameters(), max_norm)) > max_norm)
        adam.step()
        for mine, theirs in zip(policy.parameters(), other.parameters(), strict=True):
            assert torch.allclose(mine, theirs, rtol=1e-6, atol=2e-7)
    assert all(clipped) == (max_norm < 0.1) and any(clipped) == (max_norm < 1e3)
    theirs = adam.state_dict()["state"]
    mine = ppo.state_dict()["state"]
    assert all(mine[number]["step"] == theirs[number]["step"] == 6 for number in mine)
    for name in ("exp_avg", "exp_avg_sq"):  # together: a single number that nearly cancels out has few digits
        found, wanted = ([state[number][name] for number in mine] for state in (mine, theirs))
        assert relative(found, wanted) < 1e-6


def test_the_same_bits_come_twice():
    def train():
        policy = policy_of(39, 4)
        ppo = PPO(policy, minibatches=2, epochs=2, launch=Launch(programs=3))
        ppo.update(rollout_of(policy, 3, 150, seed=1))
        return [*policy.parameters(), *ppo.gradients()]

    assert all(torch.equal(one, two) for one, two in zip(train(), train(), strict=True))


@pytest.mark.gpu
def test_the_same_bits_come_twice_in_bfloat16_and_from_a_graph():
    def train(captured):
        policy = policy_of(39, 4)
        ppo = PPO(policy)
        rollout = rollout_of(policy, 8, 4096, dtype=torch.bfloat16)
        ppo.update(rollout)
        update = lambda: ppo.update(rollout)  # noqa: E731
        torch.cuda.synchronize()
        if captured:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                ppo.update(rollout)
            update = graph.replay
        for _ in range(3):
            update()
        return [*policy.parameters(), *ppo.gradients()]

    first = train(False)
    for again in (train(False), train(True)):
        assert all(torch.equal(one, two) for one, two in zip(first, again, strict=True))


# Advantages -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 3, 7])
@pytest.mark.parametrize("how", [{}, {"events": True}, {"played": True}], ids=str)
@pytest.mark.parametrize("trunk", [False, True])
def test_advantages_are_those_of_the_recursion(steps, how, trunk):
    policy = policy_of(6, 2, trunk=trunk)
    rollout = rollout_of(policy, steps, 131, every=2, ends=0.7, **how)
    ppo = PPO(policy, gamma=0.9, longest=8, gae_lambda=0.8, minibatches=1)
    ppo.estimate(rollout)
    exact = copy.deepcopy(policy).double()
    with torch.no_grad():
        last = forward(exact, rollout.last_rows, KIND)[1]
        finals = [forward(exact, rows, KIND)[1] for rows in rollout.final_rows]
    gain, following, found = torch.zeros_like(last), last, []
    for t in reversed(range(steps)):
        discount = 0.9
        if how.get("events"):
            discount = 0.9 ** (rollout.decision_events[t].double() / 8)
        after = torch.where(rollout.truncated[t], finals[t // 2], following)
        after = torch.where(rollout.terminated[t], torch.zeros_like(after), after)
        ended = rollout.truncated[t] | rollout.terminated[t]
        value = rollout.value[t].double()
        gain = rollout.reward[t] + discount * after - value + discount * 0.8 * gain * ~ended
        if how.get("played"):
            gain = gain * rollout.played[t]
        found.append(gain)
        following = value
    gain = torch.stack(found[::-1])
    near = 3e-6 if KIND == torch.float32 else 1e-2
    assert torch.allclose(ppo.advantage.double(), gain, atol=near)
    assert torch.allclose(ppo.target.double(), gain + rollout.value, atol=near)
    chosen = torch.ones_like(rollout.truncated) if rollout.played is None else rollout.played
    parts = [part[chosen] for part in (gain, gain + rollout.value)]
    wanted = torch.stack([chosen.sum(), parts[0].sum(), (parts[0] ** 2).sum(), parts[1].sum(), (parts[1] ** 2).sum()])
    assert torch.allclose(ppo._moments, wanted.to(ppo._moments), rtol=300 * near, atol=300 * near)
    explained = 1 - parts[0].var() / parts[1].var()
    assert float(ppo.explained_variance()) == pytest.approx(float(explained), abs=30 * near)


@pytest.mark.gpu
def test_steps_and_advantages_on_a_gpu():
    test_steps_are_those_of_torch(0.5, {})
    test_advantages_are_those_of_the_recursion(7, {"events": True}, False)
    test_advantages_are_those_of_the_recursion(7, {"played": True}, True)
    assert order_of(1000).sort().values.tolist() == list(range(1000))


PROCESS = """
import dataclasses, sys
import torch
import torch.distributed as dist
sys.path.insert(0, sys.argv[1])
from training_helpers import policy_of, rollout_of
from kineticsim_env.training import PPO

dist.init_process_group("gloo")
rank = dist.get_rank()
whole = rollout_of(policy_of(7, 3), 4, 128)
policy = policy_of(7, 3, seed=rank)  # the first one's weights are taken
ppo = PPO(policy, minibatches=1, epochs=3, learning_rate=1e-2)
mine = slice(64 * rank, 64 * rank + 64)
half = {name: part if isinstance(part, int) or part is None else part[mine].contiguous() if name == "last_rows" else
        part[:, mine].contiguous() for name, part in vars(whole).items()}
for _ in range(2):
    ppo.update(dataclasses.replace(whole, **half))
torch.save((policy.state_dict(), ppo.losses(), ppo.explained_variance()), f"{sys.argv[2]}/{rank}.pt")
dist.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.skipif(DEVICE == "cuda", reason="two processes share no GPU; ppo_fast.py is run on two")
def test_two_processes_learn_what_one_does_from_both_halves(tmp_path):
    (tmp_path / "process.py").write_text(PROCESS)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command += [str(tmp_path / "process.py"), str(Path(__file__).parent), str(tmp_path)]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    paths = [str(Path(__file__).parent.parent), *filter(None, [environment.get("PYTHONPATH")])]
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1))
    policy = policy_of(7, 3)
    ppo = PPO(policy, minibatches=1, epochs=3, learning_rate=1e-2)
    rollout = rollout_of(policy, 4, 128)
    for _ in range(2):
        ppo.update(rollout)
    for name, value in policy.state_dict().items():
        assert torch.equal(first[0][name], second[0][name])
        assert torch.allclose(first[0][name], value, atol=1e-5), name
    assert torch.allclose(first[1], ppo.losses(), atol=1e-4)
    assert float(first[2]) == pytest.approx(float(ppo.explained_variance()), abs=1e-6)


# What users do --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("categorical", [False, True])
def test_a_policy_improves(categorical):
    """Each observation says which action is paid: the number it begins with, or the place of its largest number."""
    policy = policy_of(3, 3 if categorical else 1, categorical=categorical, seed=5)
    ppo = PPO(policy, learning_rate=1e-2, gamma=0.5, epochs=2, minibatches=2)
    rollout, paid = PolicyRollout.empty(policy.shape, 4, 64, every=8, device=DEVICE, dtype=KIND), []
    for _ in range(15):
        seen = torch.randn(4, 64, 3).to(DEVICE)
        rollout.rows[..., :3] = seen
        with torch.no_grad():
            outputs, value = policy(seen)
        if categorical:
            drawn = torch.distributions.Categorical(logits=outputs)
            action = drawn.sample()
            rollout.log_prob.copy_(drawn.log_prob(action))
            rollout.reward.copy_(action == seen.argmax(-1))
        else:
            drawn = torch.distributions.Normal(outputs, policy.log_std.detach().exp())
            action = drawn.sample()
            rollout.log_prob.copy_(drawn.log_prob(action).sum(-1))
            rollout.reward.copy_(-(action - seen[..., :1]).square().sum(-1))
        rollout.action.copy_(action)
        rollout.value.copy_(value)
        rollout.terminated.fill_(True)
        ppo.update(rollout)
        paid.append(float(rollout.reward.mean()))
    assert paid[-1] > (0.75 if categorical else 0.5 * paid[0]), paid
    assert 0 <= float(ppo.losses()[3]) < 0.2 and -1.0 < float(ppo.explained_variance()) < 1.0


def test_a_policy_goes_on_from_its_state():
    def start():
        policy = policy_of(9, 2)
        return policy, PPO(policy, minibatches=2, epochs=1, learning_rate=1e-2)

    policy, ppo = start()
    batches = [rollout_of(policy, 2, 64, seed=seed) for seed in (1, 2)]
    ppo.update(batches[0])
    saved = copy.deepcopy((policy.state_dict(), ppo.state_dict()))
    ppo.update(batches[1])
    other, again = start()
    other.load_state_dict(saved[0])
    again.load_state_dict(saved[1])
    assert again.state_dict()["epochs"] == 1
    again.update(batches[1])
    assert all(torch.equal(one, two) for one, two in zip(policy.parameters(), other.parameters(), strict=True))
    # From Adam's own state, and from nothing.
    adam = torch.optim.Adam(other.parameters())
    for parameter in other.parameters():
        parameter.grad = torch.ones_like(parameter)
    adam.step()
    again.load_state_dict(adam.state_dict())
    for number, state in again.state_dict()["state"].items():
        assert all(torch.equal(state[name], adam.state_dict()["state"][number][name]) for name in state)
    again.forget()
    assert not any(tensor.any() for state in again.state_dict()["state"].values() for tensor in state.values())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda state: state.pop("state"), "state['state']: expected parameters 0 to 12, got None"),
        (lambda state: state["state"].pop(3), "state['state']: expected parameters 0 to 12, got {0:"),
        (lambda state: state["state"][3].pop("exp_avg"), "state['state'][3]['exp_avg']: expected finite numbers"),
        (lambda state: state["state"][2]["exp_avg"].fill_(torch.nan), "[2]['exp_avg']: expected finite numbers, got"),
        (lambda state: state["state"][2]["step"].add_(1), "state['state']: expected one number of steps, from 0, got"),
        (lambda state: state.update(epochs=-1), "state['epochs']: expected 0 to 2^62, got -1"),
    ],
)
def test_a_foreign_state_is_refused_and_changes_nothing(change, said):
    policy = policy_of(3, 2)
    ppo = PPO(policy)
    state = ppo.state_dict()
    change(state)
    before = [*ppo.state_dict()["state"][0].values(), ppo._full.clone()]
    with pytest.raises((TypeError, ValueError)) as caught:
        ppo.load_state_dict(state)
    assert mentions(str(caught.value), said)
    assert all(map(torch.equal, before, [*ppo.state_dict()["state"][0].values(), ppo._full]))


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("policy", None, "policy: expected a NetworkPolicy, got None"),
        ("gamma", 0.0, "gamma: expected a finite number above 0, up to 1, got 0.0"),
        ("gae_lambda", 1.5, "gae_lambda: expected a finite number from 0, up to 1, got 1.5"),
        ("epochs", 0, "epochs: expected 1 to 2^31 - 1, got 0"),
        ("minibatches", 1.0, "minibatches: expected a whole number from 1, got 1.0"),
        ("max_norm", 0, "max_norm: expected a finite number above 0"),
        ("clip", -0.1, "clip: expected a finite number from 0"),
    ],
)
def test_settings_are_refused_by_name(name, value, said):
    with pytest.raises((TypeError, ValueError)) as caught:
        PPO(**{"policy": policy_of(3, 2), name: value})
    assert mentions(str(caught.value), said)


def test_policies_without_values_are_refused():
    actor = policy_of(3, 2).actor
    with pytest.raises(ValueError, match="policy: expected one with a critic"):
        PPO(NetworkPolicy(actor))


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("rows", lambda old: old[..., :-1], "rollout.rows: expected a contiguous tensor torch.float32 [2, 64, 8]"),
        ("rows", lambda old: old.double(), "rollout.rows: expected bfloat16 or float32, got torch.float64"),
        ("rows", lambda old: old[0], "rollout.rows: expected [T, M, W], got [64, 8]"),
        ("action", lambda old: old[..., 0], "rollout.action: expected a contiguous tensor torch.float32 [2, 64, 2]"),
        ("reward", lambda old: old.double(), "torch.float32 [2, 64] on"),
        ("truncated", lambda old: old.float(), "rollout.truncated: expected a contiguous tensor torch.bool [2, 64]"),
        ("value", lambda old: old.T.contiguous().T, "got torch.float32 [2, 64] on"),
        ("final_rows", lambda old: old[:0], "rollout.final_rows: expected a contiguous tensor torch.float32 [1, 64,"),
        ("log_prob", lambda old: None, "rollout.log_prob: expected a contiguous tensor"),
        ("every", lambda old: 0, "rollout.every: expected 1 to 2^31 - 1, got 0"),
    ],
)
def test_rollouts_are_refused_by_name(name, value, said):
    policy = policy_of(3, 2)
    rollout = rollout_of(policy, 2, 64, dtype=torch.float32)
    rollout = dataclasses.replace(rollout, **{name: value(getattr(rollout, name))})
    with pytest.raises((TypeError, ValueError)) as caught:
        PPO(policy, minibatches=1).update(rollout)
    assert mentions(str(caught.value), said)


def test_rollouts_too_small_for_their_minibatches_are_refused():
    policy = policy_of(3, 2)
    with pytest.raises(ValueError, match="rollout: expected at least 4 blocks of 64 decisions.*got 2 of 64 markets"):
        PPO(policy).update(rollout_of(policy, 2, 64))
