"""What `ppo_fast.py` does with a rollout: `TorchLearner` by autograd, `FusedLearner` in kernels of Triton.

Both have `estimate` and `learn`, which a `Trainer` captures, `forget`, `take` (a checkpoint's state) and the figures
that are logged; `learner_of` chooses. Under torchrun DistributedDataParallel averages the former's gradients; the
latter sums its own.
"""

import math
import os
import warnings
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from ppo_networks import Loss, advantages
from torch import nn

RANKS = int(os.environ.get("WORLD_SIZE", 1))  # set by torchrun
SHUFFLED_TOGETHER = 64  # neighbouring markets, on a GPU


def learner_of(trainer: Any) -> tuple[Any, str]:
    """Return what learns from a trainer's rollouts, and a line that says which it is and why.

    Args:
        trainer: A `Trainer` whose buffers are there.
    """
    asked = trainer.args.fused
    lacking, learner = "--fused False was asked for" if asked is False else "", None
    if not lacking and not trainer.cuda:
        lacking = "the markets are not on a CUDA GPU"
    if not lacking and not trainer.args.bf16:
        lacking = "--bf16 False was asked for, which tensor cores do not help"
    if not lacking:
        try:
            learner = FusedLearner(trainer)
        except (ModuleNotFoundError, ValueError) as error:  # no Triton, or sizes that kernels are not made for
            lacking = str(error)
    if learner is not None:
        return learner, "updates are fused (kineticsim_env.training)"
    if asked:
        raise SystemExit(f"--fused: {lacking}")
    how = "compiled by torch.compile" if trainer.args.compile else "torch's, one operation after another"
    return TorchLearner(trainer), f"updates are {how}: {lacking}"


class FusedLearner:
    """Learns in a few Triton kernels per minibatch, which share the trainer's buffers."""

    def __init__(self, trainer: Any) -> None:
        """Raises `ModuleNotFoundError` without Triton, and `ValueError` of sizes that kernels are not made for."""
        from kineticsim_env.training import PPO

        args = trainer.args
        self.trainer, self.policy = trainer, trainer.networks.policy(value=True)
        self.optimizer = PPO(
            self.policy,
            gamma=args.gamma,
            longest=trainer.longest,
            gae_lambda=args.gae_lambda,
            minibatches=args.num_minibatches,
            epochs=args.update_epochs,
            clip=args.clip_coef,
            value_weight=args.vf_coef,
            entropy_weight=args.ent_coef,
            max_norm=args.max_grad_norm,
            seed=args.seed,
        )
        self.learning_rate = self.optimizer.learning_rate

    @torch.no_grad()
    def estimate(self) -> None:
        """Estimate advantages; they are normalised where they are read."""
        self.optimizer.estimate(self.trainer.batch)

    def learn(self) -> None:
        """Improve the networks on the last rollout."""
        self.optimizer.learn(self.trainer.batch)

    def forget(self) -> None:
        """Set Adam back to its start, in place, and take the networks as they are now."""
        self.optimizer.forget()
        self.optimizer.take_weights()

    def take(self, state: Mapping[str, Any]) -> None:
        """Take over a checkpoint's state, of either learner, once its networks are there."""
        self.optimizer.load_state_dict(state)

    def figures(self) -> tuple[list[float], float]:
        """Return the last losses, and the explained variance; waits for the GPU."""
        return self.optimizer.losses().tolist(), float(self.optimizer.explained_variance())


class TorchLearner:
    """Learns by autograd and torch's Adam, compiled if that is asked for."""

    policy = None  # of a shape that kernels know

    def __init__(self, trainer: Any) -> None:
        args, networks, self.device = trainer.args, trainer.networks, trainer.device
        self.args, self.trainer, self.networks = args, trainer, networks
        batch = trainer.batch
        self.advantages, self.targets = torch.zeros_like(batch.reward), torch.zeros_like(batch.reward)
        self.explained, self.losses = torch.zeros((), device=self.device), torch.zeros(4, device=self.device)
        self.final_of_step = torch.arange(len(batch.reward), device=self.device) // batch.every
        self.block = math.gcd(batch.reward.shape[1], SHUFFLED_TOGETHER) if trainer.cuda else 1
        self.learning_rate = torch.zeros((), device=self.device)  # a tensor, so that a captured update reads it
        self.optimizer = torch.optim.Adam(
            networks.parameters(), lr=self.learning_rate, eps=1e-5, fused=True, capturable=trainer.cuda
        )
        for parameter in networks.parameters():
            parameter.grad = torch.zeros_like(parameter)
        self.optimizer.step()  # makes its state, which checkpoints are read into in place
        self.optimizer.zero_grad()
        loss = Loss(networks, args)
        self.gae: Any = advantages
        if args.compile:
            self.gae = torch.compile(advantages, fullgraph=True, dynamic=False)
            loss.compile(fullgraph=True, dynamic=False)
        self.loss: nn.Module = loss
        trainer.wait()
        if RANKS > 1:  # made on the stream that captures, as PyTorch's notes on CUDA graphs ask for
            warnings.filterwarnings("ignore", "Grad strides do not match")  # of a few kilobytes
            with torch.cuda.stream(trainer.stream):
                self.loss = nn.parallel.DistributedDataParallel(loss, broadcast_buffers=False)
                self.loss._set_ddp_runtime_logging_sample_rate(2**30)  # its statistics wait for the GPU

    @torch.no_grad()
    def estimate(self) -> None:
        """Estimate the advantages of the last rollout, with mean 0 and deviation 1 over all processes."""
        args, batch = self.args, self.trainer.batch
        after = torch.cat([batch.value[1:], self.networks(batch.last_rows)[1][None]])
        nexts = torch.where(batch.truncated, self.networks(batch.final_rows)[1][self.final_of_step], after)
        ends = batch.terminated | batch.truncated
        events = batch.decision_events
        gamma = args.gamma if events is None else args.gamma ** (events / self.trainer.longest)
        gain = self.gae(batch.reward, ends, batch.terminated, batch.value, nexts, gamma, args.gae_lambda)
        self.targets.copy_(gain + batch.value)
        self.explained.copy_(1 - gain.var() / self.targets.var())
        moments = torch.stack([gain.mean(), gain.square().mean()])
        if RANKS > 1:
            dist.all_reduce(moments)
            moments /= RANKS
        deviation = (moments[1] - moments[0].square()).sqrt()
        self.advantages.copy_((gain - moments[0]) / (deviation + 1e-8))

    def learn(self) -> None:
        """Improve the networks on the last rollout.

        Blocks of neighbouring markets at one decision are shuffled, as rows that are read together should lie together
        in memory. Markets are independent, so a block is as good a sample as the same number of rows from anywhere.
        """
        played = self.trainer.batch
        batch = played.rows, played.action, played.log_prob, self.advantages, self.targets
        blocks = played.reward.numel() // self.block
        for _ in range(self.args.update_epochs):
            order = torch.rand(blocks, device=self.device).argsort()  # a permutation, without waiting for the GPU
            for chosen in order.chunk(self.args.num_minibatches):
                loss, losses = self.loss(chosen, self.block, *batch)
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.networks.parameters(), self.args.max_grad_norm)
                self.optimizer.step()
        self.losses.copy_(losses)

    def forget(self) -> None:
        """Set Adam back to its start, in place."""
        for state in self.optimizer.state.values():
            for tensor in state.values():
                tensor.zero_()

    def take(self, state: Mapping[str, Any]) -> None:
        """Take over a checkpoint's state, of either learner, in place."""
        for tensors, found in zip(self.optimizer.state.values(), state["state"].values(), strict=True):
            for name, tensor in tensors.items():
                tensor.copy_(found[name])

    def figures(self) -> tuple[list[float], float]:
        """Return the last losses, and the explained variance; waits for the GPU."""
        return self.losses.tolist(), float(self.explained)
