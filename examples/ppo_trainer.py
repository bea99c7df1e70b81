"""The `Trainer` of `ppo_fast.py`: plays rollouts, and has one of `ppo_learners.py` learn from them.

On a GPU each of the three phases of an update is captured once as a CUDA graph, and replayed.
"""

import gc
import time
from typing import Any

import torch
from ppo_learners import learner_of
from ppo_networks import ActorCritic, record, sample

from kineticsim_env.policies.networks import NetworkShape
from kineticsim_env.policies.rollouts import PolicyRollout


class Trainer:
    """The rollout's buffers, what learns from them, and one update: `rollout`, `estimate`, `learn`.

    Attributes:
        batch: The last `PolicyRollout`.
        learner: A `FusedLearner` or a `TorchLearner`; `how` says which, and why.
        longest: Events of a decision, at most, where events end them; else 1.
    """

    def __init__(self, args: Any, envs: Any, networks: ActorCritic) -> None:
        self.args, self.envs, self.networks = args, envs, networks
        self.device, self.cuda = envs.device, envs.device.type == "cuda"
        self.stream: Any = torch.cuda.Stream() if self.cuda else None
        core = envs.unwrapped.core
        self.longest = core.live_task.longest
        # Two truncations of a market are at least a horizon apart (more, of decisions that events end), so among that
        # many decisions there is at most one.
        self.batch = PolicyRollout.empty(
            NetworkShape(
                networks.observations, args.hidden, "tanh", networks.actions, networks.log_std is None, False, True
            ),
            args.num_steps,
            envs.num_envs,
            every=core.task.horizon,
            device=self.device,
            dtype=torch.bfloat16 if args.bf16 else torch.float32,
            events=core.task.decides_at_events,
        )
        self.sample: Any = sample
        self.record: Any = record
        if args.compile:
            self.sample, self.record = (torch.compile(f, fullgraph=True, dynamic=False) for f in (sample, record))
        self.learner, self.how = learner_of(self)
        self.policy = self.learner.policy if envs is envs.unwrapped else None  # if it can be inside a rollout's launch
        self.how += "" if self.policy is None else "; rollouts have the policy inside"
        self.noise = torch.full((1,), args.seed, dtype=torch.int64, device=self.device)
        self.forget()

    @property
    def optimizer(self) -> Any:
        """What checkpoints ask for Adam's state."""
        return self.learner.optimizer

    def wait(self) -> None:
        """Wait for the GPU, if there is one."""
        if self.cuda:
            torch.cuda.synchronize()

    def forget(self) -> None:
        """Set Adam back to its start, in place; the networks are taken as they are now."""
        self.learner.forget()

    def prepare(self) -> float:
        """Compile and capture; the networks stay as they are. Returns the seconds it took."""
        self.wait()
        started = time.perf_counter()
        self.learner.learning_rate.zero_()
        passes = 1 + 11 // (self.args.update_epochs * self.args.num_minibatches)  # DDP wants eleven before a capture
        if self.args.compile or self.cuda:
            with torch.cuda.stream(self.stream):
                for _ in range(passes):
                    self.rollout()
                    self.estimate()
                    self.learn()
        self.wait()
        gc.collect()  # an older graph among the garbage would end a capture by being destroyed within it
        for name in ("rollout", "estimate", "learn") if self.cuda else ():
            graph, phase = torch.cuda.CUDAGraph(), getattr(self, name)
            with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
                phase()
            setattr(self, name, graph.replay)
        self.forget()
        self.wait()
        return time.perf_counter() - started

    @torch.no_grad()
    def rollout(self) -> None:
        """Fill the batch: play `num_steps` decisions in every market."""
        envs, batch = self.envs, self.batch
        if self.policy is not None:
            envs.rollout(self.policy, self.args.num_steps, out=batch, seed=self.noise)
            return
        layers = self.networks.layers(batch.rows.dtype)
        for t in range(self.args.num_steps):
            written = batch.rows[t], batch.action[t], batch.log_prob[t], batch.value[t]
            action = self.sample(self.networks, layers, envs.observation, *written)
            _, reward, terminated, truncated, infos = envs.step(action)
            counted, counts = [], []
            if batch.decision_events is not None:
                counted, counts = [infos["decision_events"]], [batch.decision_events[t]]
            self.record(
                (*counted, reward, terminated, truncated, infos["final_obs"]),
                (*counts, batch.reward[t], batch.terminated[t], batch.truncated[t], batch.final_rows[t // batch.every]),
            )
        batch.last_rows[:, : self.networks.observations] = envs.observation

    def estimate(self) -> None:
        """Estimate the advantages of the last rollout."""
        self.learner.estimate()

    def learn(self) -> None:
        """Improve the networks on the last rollout."""
        self.learner.learn()

    def update(self, learning_rate: float) -> None:
        """Play, and improve the networks on what was played; returns before a GPU is done."""
        self.learner.learning_rate.fill_(learning_rate)
        self.rollout()
        self.estimate()
        self.learn()

    def scalars(self) -> dict[str, float]:
        """Return what there is to log of the last update; waits for the GPU."""
        names = "losses/policy", "losses/value", "losses/entropy", "losses/approx_kl"
        losses, explained = self.learner.figures()
        events = self.batch.decision_events
        return dict(zip(names, losses, strict=True)) | {
            "losses/explained_variance": explained,
            "charts/reward_per_decision": float(self.batch.reward.mean()) * self.args.reward_scale,
            **({} if events is None else {"charts/events_per_decision": float(events.float().mean())}),
        }
