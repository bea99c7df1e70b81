"""examples/ppo_recurrent.py: sequences are cut where episodes end, and memory is what was seen since."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))

pytest.importorskip("tyro", reason="the examples need it: pip install 'kineticsim-env[train]'")
pytest.importorskip("tensorboard", reason="the examples need it: pip install 'kineticsim-env[train]'")
ppo = pytest.importorskip("ppo_recurrent")

STEPS, MARKETS, SEEN = 9, 5, 7


def networks(memory="mingru"):
    torch.manual_seed(3)
    return ppo.ActorCritic(SEEN, 4, ppo.Args(memory=memory, hidden=8))


def sequence():
    generator = torch.Generator().manual_seed(4)
    seen = torch.randn(STEPS, MARKETS, SEEN, generator=generator)
    return seen, torch.rand(STEPS, MARKETS, generator=generator) < 0.3


@pytest.mark.parametrize("memory", ["mingru", "none"])
def test_a_sequence_is_its_decisions_one_after_another(memory):
    """As they are trained and as they are played."""
    net, (seen, began) = networks(memory), sequence()
    state = torch.randn(2, MARKETS, 8)
    policy, value, last = net(seen, state, began)
    for t in range(STEPS):
        one, its_value, state = net(seen[t : t + 1], state, began[t : t + 1])
        torch.testing.assert_close(one.mean[0], policy.mean[t])
        torch.testing.assert_close(its_value[0], value[t])
    torch.testing.assert_close(state, last)


def test_nothing_passes_the_end_of_an_episode():
    """Neither memory nor gradients, and without such an end both do."""
    net, (seen, _) = networks(), sequence()
    for cut in (True, False):
        began = torch.zeros(STEPS, MARKETS, dtype=torch.bool)
        began[4] = cut
        seen.grad = None
        seen.requires_grad_(True)
        policy, value, _ = net(seen, torch.randn(2, MARKETS, 8), began)
        (policy.mean[6].sum() + value[6].sum()).backward()
        assert bool(seen.grad[:4].any()) != cut and bool(seen.grad[4:6].any())
    with torch.no_grad():
        fresh = net(seen[4:], torch.zeros(2, MARKETS, 8), torch.zeros(5, MARKETS, dtype=torch.bool))
        began[4] = True
        after = net(seen, torch.randn(2, MARKETS, 8), began)
    torch.testing.assert_close(fresh[0].mean, after[0].mean[4:])
    torch.testing.assert_close(fresh[1], after[1][4:])


def test_the_policy_that_is_evaluated_forgets_where_it_is_told_to():
    net, (seen, began) = networks(), sequence()
    player, mean = (
        ppo.Player(net),
        net(seen, torch.zeros(2, MARKETS, 8), began | (torch.arange(STEPS) == 0)[:, None])[0].mean,
    )
    player.reset(torch.ones(MARKETS, dtype=torch.bool))
    for t in range(STEPS):
        if t:
            player.reset(began[t])
        torch.testing.assert_close(player(seen[t]), mean[t].clamp(-1, 1))


@pytest.mark.parametrize("memory", ["mingru", "stack", "none"])
def test_it_trains_and_is_evaluated(memory, tmp_path):
    """Rollouts begin with the memory that the last one ended with."""
    args = ppo.Args(memory=memory, num_envs=4, num_steps=8, total_steps=64, eval_envs=4, output=tmp_path, engine="cpu")
    found = ppo.main(args)
    assert found.pnl.shape == (4,) and bool(torch.isfinite(torch.from_numpy(found.pnl)).all())
    assert (tmp_path / "networks.pt").exists()
