"""`ppo_fast.py` with the fused update: which one it takes and why; both learn the same, from either's checkpoints."""

import copy
import gc
import importlib

import pytest
import torch
from test_ppo_fast import ppo, trainer_of  # noqa: F401, ppo is the fixture
from training_helpers import DEVICE


@pytest.fixture
def fused(ppo):  # noqa: F811
    """A function that makes a trainer which learns in the kernels, in their interpreter where there is no GPU."""
    learners = importlib.import_module("ppo_learners")

    def make(**changes):
        trainer = trainer_of(ppo, DEVICE, bf16=False, num_envs=32, num_steps=8, compile=False, **changes)
        trainer.learner = learners.FusedLearner(trainer)
        return trainer

    return make


def plain(ppo, **changes):  # noqa: F811
    return trainer_of(
        ppo, DEVICE, bf16=False, num_envs=32, num_steps=8, compile=False, fused=False, horizon=5, **changes
    )


@pytest.mark.parametrize("decide", ["interval", "fill"])
def test_both_learn_the_same(ppo, fused, decide):  # noqa: F811
    """In one minibatch, as their orders differ, of several epochs."""
    how = {"num_minibatches": 1, "ent_coef": 0.01, "preset": "news", "decide": decide, "gamma": 0.9}
    one, two = plain(ppo, **how), fused(horizon=5, **how)
    for trainer in (one, two):
        trainer.learner.learning_rate.fill_(1e-3)
    before = copy.deepcopy(one.networks.state_dict())
    one.rollout()
    for name, played in vars(one.batch).items():
        if isinstance(played, torch.Tensor):
            getattr(two.batch, name).copy_(played)
    assert one.batch.truncated.any() or decide == "fill"
    for trainer in (one, two):
        trainer.estimate()
        trainer.learn()
    for name, value in one.networks.state_dict().items():
        assert torch.allclose(value, two.networks.state_dict()[name], atol=2e-5), name
        assert not torch.equal(value, before[name])
    for first, second in zip(one.scalars().values(), two.scalars().values(), strict=True):
        assert first == pytest.approx(second, abs=1e-4)


def test_either_goes_on_from_the_others_checkpoint(ppo, fused, tmp_path):  # noqa: F811
    checkpoints = importlib.import_module("ppo_checkpoints")
    progress = {"curve": [], "seconds": 0.0, "evaluating": 0.0}
    makers = (lambda: plain(ppo, update_epochs=1)), (lambda: fused(horizon=5, update_epochs=1))
    for make, other in (makers, makers[::-1]):
        trainer, path = make(), tmp_path / "checkpoint.pt"
        trainer.update(1e-3)
        checkpoints.save(path, trainer, 1, 1, progress)
        for again in (make(), other()):
            assert checkpoints.load(path, again, 1) == (1, progress)
            states = trainer.optimizer.state_dict()["state"], again.optimizer.state_dict()["state"]
            assert all(torch.equal(states[0][n][name], states[1][n][name]) for n in states[0] for name in states[0][n])
            again.update(1e-3)
            assert not torch.equal(again.networks.log_std, trainer.networks.log_std)


def test_networks_that_are_put_back_are_taken_up(ppo, fused):  # noqa: F811
    """As studies do between seeds: the same start and the same random numbers end alike."""
    trainer, ends = fused(horizon=50, update_epochs=1), []
    start = copy.deepcopy(trainer.networks.state_dict())
    for _ in range(2):
        trainer.networks.load_state_dict(start)
        trainer.forget()
        trainer.envs.reset(seed=3)
        torch.manual_seed(1)
        trainer.update(1e-3)
        ends.append(copy.deepcopy(trainer.networks.state_dict()))
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in start)
    assert not torch.equal(start["log_std"], ends[0]["log_std"])


def test_it_says_which_update_it_takes_and_why(ppo, monkeypatch):  # noqa: F811
    learners = importlib.import_module("ppo_learners")
    made, trainer = [], trainer_of(ppo, fused=False)

    def fused(trainer):
        made.append(trainer.networks.policy(value=True))  # refuses sizes, as the real one does
        return trainer

    monkeypatch.setattr(learners, "FusedLearner", fused)
    monkeypatch.setattr(learners, "TorchLearner", lambda trainer: trainer)

    def told(cuda=True, hidden=64, **changes):
        trainer.cuda, trainer.networks = cuda, ppo.ActorCritic(37, 4, hidden, 0.4)
        trainer.args = ppo.Args(**{"bf16": True, "compile": True, **changes})
        return learners.learner_of(trainer)[1]

    assert told() == told(fused=True) == "updates are fused (kineticsim_env.training)" and len(made) == 2
    torches = "updates are compiled by torch.compile: "
    assert told(fused=False) == torches + "--fused False was asked for"
    assert told(cuda=False) == torches + "the markets are not on a CUDA GPU"
    assert told(bf16=False).startswith(torches + "--bf16 False")
    wide = told(hidden=32, compile=False)
    assert wide.startswith("updates are torch's, one operation after another: actor: expected two hidden layers of 64")
    with pytest.raises(SystemExit, match="--fused: the markets are not on a CUDA GPU"):
        told(cuda=False, fused=True)
    assert len(made) == 2


@pytest.mark.gpu
def test_graphs_among_the_garbage_are_gone_before_a_capture(ppo):  # noqa: F811
    """Since 2.9 torch leaves garbage where it is, and a graph that is destroyed within a capture ends it."""
    collected = []

    def trainer():
        made = trainer_of(ppo, "cuda", fused=True, num_envs=64, num_steps=4)
        play = made.rollout

        def rollout():
            if torch.cuda.is_current_stream_capturing():
                collected.append(gc.collect())
            play()

        made.rollout, made.itself = rollout, made  # a cycle: only a collection ends it
        return made

    gc.disable()
    try:
        with torch.compiler.config.patch(force_cudagraph_gc=False):  # tests/conftest.py; `monkeypatch` would delete it
            trainer().prepare()
            trainer().prepare()
    finally:
        gc.enable()
    assert len(collected) == 2


@pytest.mark.gpu
@pytest.mark.parametrize("changes", [{}, {"preset": "news", "decide": "fill", "keep": True}])
def test_captured_fused_training_learns_and_does_not_wait(ppo, changes):  # noqa: F811
    trainer = trainer_of(ppo, "cuda", fused=True, num_envs=512, num_steps=16, **changes)
    before = copy.deepcopy(trainer.networks.state_dict())
    trainer.prepare()
    assert all(torch.equal(before[name], value) for name, value in trainer.networks.state_dict().items())
    trainer.envs.reset(seed=7)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(5):
            trainer.update(1e-3)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert all(value.isfinite().all() for value in trainer.networks.parameters())
    assert not torch.equal(before["actor.0.weight"], trainer.networks.actor[0].weight)
    scalars = trainer.scalars()
    assert 0 <= scalars["losses/approx_kl"] < 0.1 and scalars["losses/explained_variance"] <= 1
