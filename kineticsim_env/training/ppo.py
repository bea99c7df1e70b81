"""`PPO`: the update of a `NetworkPolicy` in a few Triton kernels; `examples/ppo_fast.py` trains with it.

An update is `estimate` (values of the observations that a rollout ends at, advantages) and `learn` (epochs of
minibatches, each three kernels: `gradients`, `add_up`, `adam`). Nothing waits for the GPU, and all that changes from
one update to the next is in tensors, so that both can be captured in a CUDA graph once they have run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
import triton

from kineticsim_env.policies.networks import NetworkPolicy
from kineticsim_env.policies.rollouts import PolicyRollout, check_rollout
from kineticsim_env.runtime.private_torch import copy_all
from kineticsim_env.runtime.values import check_count, check_instance, check_number
from kineticsim_env.training import advantages, kernels
from kineticsim_env.training.layout import Launch, Layout
from kineticsim_env.training.states import check_state

before: Any = advantages  # as Any: a launch takes more than the arguments that checkers see
within: Any = kernels
MARKETS_TOGETHER = 128  # of a program that estimates advantages
# Numbers of a program that adds up, and of one that takes Adam's step; the interpreter runs programs one by one.
ADDED_TOGETHER, STEPPED_TOGETHER = (8192, 8192) if triton.knobs.runtime.interpret else (64, 256)


class PPO:
    """Proximal policy optimisation with clipped ratios, Adam (eps 1e-5, betas 0.9 and 0.999), and one policy.

    Works on the device of the policy's weights: a CUDA GPU, or, in Triton's interpreter, a CPU, for tests. Rows are
    bfloat16 or, as all are on a CPU, float32; products are of that format, all else is float32. Under
    `torch.distributed` each process has a rollout of its own, of the same sizes; gradients and the moments of
    advantages are summed over all.

    Attributes:
        policy: The policy; its weights are written after each update.
        learning_rate: Float32 `[1]` on the device, which may be changed at any time.
        advantage, target: Of the last rollout, float32 `[T, M]`; advantages are not normalised here.
    """

    def __init__(
        self,
        policy: NetworkPolicy,
        *,
        learning_rate: float = 1e-3,
        gamma: float = 0.97,
        longest: int = 1,
        gae_lambda: float = 0.9,
        minibatches: int = 4,
        epochs: int = 4,
        clip: float = 0.2,
        value_weight: float = 0.5,
        entropy_weight: float = 0.0,
        max_norm: float = 0.5,
        seed: int = 0,
        group: Any = None,
        launch: Launch | None = None,
    ) -> None:
        """Take the policy's weights.

        Args:
            policy: With a value network, on its device.
            learning_rate: Of Adam.
            gamma: Discount per decision, above 0; where rollouts have `decision_events`, per `longest` events.
            longest: Events of the longest decision; one of k has the discount `gamma ** (k / longest)`.
            gae_lambda: Of generalised advantage estimation, per decision.
            minibatches: Per epoch.
            epochs: Passes over each rollout.
            clip: How far the probability ratio may move.
            value_weight: Of the value's loss, half the mean squared error.
            entropy_weight: Of the entropy bonus.
            max_norm: Gradients are clipped to this norm.
            seed: Of the order of samples.
            group: Of `torch.distributed`, by default all processes.
            launch: Sizes of the gradients' kernel, by default what suits the policy's shape.

        Raises:
            TypeError, ValueError: Naming the argument, what came and what is allowed.
        """
        self.policy = check_instance("policy", policy, NetworkPolicy)
        shape = policy.shape
        if not shape.has_critic:
            raise ValueError("policy: expected one with a critic, which PPO learns from, got one without")
        parameters = list(policy.parameters())
        devices = {parameter.device for parameter in parameters}
        if len(devices) > 1:
            raise ValueError(f"policy: expected weights on one device, got {sorted(map(str, devices))}")
        self.device = devices.pop()
        if self.device.type != "cuda" and not triton.knobs.runtime.interpret:
            allowed = "a CUDA GPU, or a CPU with TRITON_INTERPRET=1 set before Triton is loaded, for tests"
            raise ValueError(f"policy: expected weights on {allowed}, got {self.device}")
        self.gamma = float(check_number("gamma", gamma, 0.0, 1.0, above=True))
        self.longest = check_count("longest", longest, 1)
        self.gae_lambda = float(check_number("gae_lambda", gae_lambda, 0.0, 1.0))
        self.minibatches = check_count("minibatches", minibatches, 1)
        self.epochs = check_count("epochs", epochs, 1)
        self.clip = float(check_number("clip", clip, 0.0))
        self.value_weight = float(check_number("value_weight", value_weight, 0.0))
        self.entropy_weight = float(check_number("entropy_weight", entropy_weight, 0.0))
        self.max_norm = float(check_number("max_norm", max_norm, 0.0, above=True))
        rate, seed = check_number("learning_rate", learning_rate, 0.0), check_count("seed", seed, 0)
        self._group, self._ranks = group, dist.get_world_size(group) if dist.is_initialized() else 1

        self._layout = layout = Layout.of(shape)
        self._launch = check_instance("launch", launch or Launch.of(layout, shape.trunk), Launch)
        self._places = torch.cat([part.flatten() for part in layout.places(policy)]).to(self.device)
        self._packed = torch.zeros(len(self._places), device=self.device)
        parts = self._packed.split([parameter.numel() for parameter in parameters])
        self._parts = [part.view_as(parameter) for part, parameter in zip(parts, parameters, strict=True)]
        self.learning_rate = torch.full((1,), float(rate), device=self.device)
        self._full, self._first, self._second = (torch.zeros(layout.size, device=self.device) for _ in range(3))
        self._gradient = torch.zeros(layout.row, device=self.device)
        self._squares = torch.zeros(-(-layout.row // ADDED_TOGETHER), device=self.device)
        self._partial = torch.zeros(self._launch.programs, layout.row, device=self.device)
        self._clock = torch.zeros(3, dtype=torch.float64, device=self.device)  # see `add_up`
        self._keys = torch.tensor([seed, 0], dtype=torch.int64, device=self.device)  # seed, epochs so far
        self._moments = torch.zeros(5, dtype=torch.float64, device=self.device)
        self._low = self._full
        self._known: Any = None
        self.forget()
        self.take_weights()

    def update(self, rollout: PolicyRollout) -> None:
        """Improve the policy on a rollout; returns before a GPU is done.

        Args:
            rollout: Contiguous tensors on the policy's device. Its first one is allocated for; further ones of the same
                sizes, or the same one filled anew, need no memory.

        Raises:
            TypeError, ValueError: Naming the tensor, what came and what is allowed.
        """
        self.estimate(rollout)
        self.learn(rollout)

    def estimate(self, rollout: PolicyRollout) -> None:
        """Estimate advantages and targets, and the former's moments over all processes."""
        self._prepare(rollout)
        layout, shape = self._layout, self.policy.shape
        steps, markets = rollout.reward.shape
        networks = self._low[layout.critic_at :], self._full[layout.critic_at :]
        for rows, values in ((rollout.last_rows, self._last_values), (rollout.final_rows, self._final_values)):
            count = values.numel()
            before.state_values[(min(2 * self._launch.programs, -(-count // 64)),)](
                rows, *networks, values, count, RELU=shape.activation == "relu", EXACT=self._exact, W=layout.width,
                K=layout.inputs, H=layout.hidden, B=64, V=layout.value_at, num_warps=4 if layout.hidden == 64 else 8,
                num_stages=1,
            )  # fmt: skip
        events, programs = rollout.decision_events, len(self._sums)
        before.advantages[(programs,)](
            rollout.reward, rollout.value, *self._flags(rollout), rollout.terminated if events is None else events,
            self._last_values, self._final_values, self.advantage, self.target, self._sums, steps, markets,
            rollout.every, math.log2(self.gamma) / (1 if events is None else self.longest), self.gae_lambda,
            PLAYED=rollout.played is not None, EVENTS=events is not None, B=MARKETS_TOGETHER,
        )  # fmt: skip
        before.add_moments[(1,)](self._sums, self._moments, programs, B=64)
        if self._ranks > 1:
            dist.all_reduce(self._moments, group=self._group)

    def learn(self, rollout: PolicyRollout) -> None:
        """Pass over a rollout whose advantages are there, and write the policy's weights."""
        blocks = -(-rollout.reward.numel() // self._launch.rows)
        ends = [number * blocks // self.minibatches for number in range(self.minibatches + 1)]
        for _ in range(self.epochs):
            for number in range(self.minibatches):
                first, last = ends[number : number + 2]
                self._sum_gradients(rollout, first, last, ends_epoch=number + 1 == self.minibatches)
                self._step()
        self.write_weights()

    def take_weights(self) -> None:
        """Take the policy's weights, where something else has changed them; of several processes the first one's."""
        with torch.no_grad():
            self._packed.copy_(torch.cat([parameter.flatten() for parameter in self.policy.parameters()]))
            if self._ranks > 1:
                dist.broadcast(self._packed, dist.get_global_rank(self._group, 0) if self._group else 0, self._group)
            self._full[self._places] = self._packed
            self._low.copy_(self._full)
        self.write_weights()

    @torch.no_grad()
    def write_weights(self) -> None:
        """Write the weights into the policy, in place."""
        torch.index_select(self._full, 0, self._places, out=self._packed)
        copy_all([parameter.detach() for parameter in self.policy.parameters()], self._parts)

    def forget(self) -> None:
        """Set Adam and the order of samples back to their start, in place."""
        for tensor in (self._first, self._second, self._clock, self._keys[1:]):
            tensor.zero_()
        self._clock[1:] = 1.0

    def losses(self) -> torch.Tensor:
        """Return the last minibatch's mean policy loss, value loss, entropy and approximate KL divergence, `[4]`."""
        sums = self._gradient[self._layout.size :]
        return sums[:4] / sums[kernels.ACTORS.value].clamp(min=1.0)

    def explained_variance(self) -> torch.Tensor:
        """Return the share of the targets' variance that values explained, of the last rollout; a number."""
        count, s1, s2, s3, s4 = self._moments
        return 1.0 - (s2 - s1 * s1 / count) / (s4 - s3 * s3 / count)

    def state_dict(self) -> dict[str, Any]:
        """Return copies of Adam's state and of the place in the order of samples; the weights are the policy's.

        `"state"` is that of `torch.optim.Adam` over the policy's parameters: either goes on from the other's.
        """
        moments = [self._of_parameters(row) for row in (self._first, self._second)]
        step = self._clock[0].to(torch.float32)
        state = {
            number: {"step": step.clone(), "exp_avg": first, "exp_avg_sq": second}
            for number, (first, second) in enumerate(zip(*moments, strict=True))
        }
        return {"state": state, "epochs": int(self._keys[1])}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned, in place, and the weights that the policy has by now.

        Raises:
            TypeError, ValueError: Naming the entry, what came and what is allowed; nothing has changed then.
        """
        adam, step, epochs = check_state(state, self.state_dict())
        for row, name in ((self._first, "exp_avg"), (self._second, "exp_avg_sq")):
            row.zero_()
            row[self._places] = torch.cat([adam[number][name].flatten() for number in sorted(adam)]).to(row)
        self._clock.copy_(torch.tensor([step, 0.9**step, 0.999**step], dtype=torch.float64))
        self._keys[1] = epochs
        self.take_weights()

    def gradients(self) -> list[torch.Tensor]:
        """Return the last minibatch's mean gradient by each of `policy.parameters()`, before clipping."""
        count = self._gradient[self._layout.size + kernels.ACTORS.value].clamp(min=1.0)
        return self._of_parameters(self._gradient / count)

    def _of_parameters(self, row: torch.Tensor) -> list[torch.Tensor]:
        parts = row[self._places].split([part.numel() for part in self._parts])
        return [part.view_as(like).clone() for part, like in zip(parts, self._parts, strict=True)]

    def _prepare(self, rollout: PolicyRollout) -> None:
        """Check a rollout, and make what its sizes need, where the last one had others."""
        check_rollout(rollout, self.policy.shape, self.device)
        if rollout.rows.dtype != torch.float32 and self.device.type != "cuda":
            raise ValueError(f"rollout.rows: expected torch.float32 on {self.device}, got {rollout.rows.dtype}")
        steps, markets = rollout.reward.shape
        kind, finals = rollout.rows.dtype, rollout.final_rows[..., 0].numel()
        if self._known == (steps, markets, kind, finals):
            return
        blocks = -(-steps * markets // self._launch.rows)
        if blocks < self.minibatches:
            least = f"{self.minibatches} blocks of {self._launch.rows} decisions, one for each minibatch"
            raise ValueError(f"rollout: expected at least {least}, got {steps} of {markets} markets")
        if blocks >= 1 << 30:
            raise ValueError(f"rollout: expected at most 2^30 blocks of {self._launch.rows} decisions, got {blocks}")
        self._known = steps, markets, kind, finals
        self._exact = kind == torch.float32
        self._low = self._full.to(kind, copy=True)
        self.advantage, self.target = (torch.zeros(steps, markets, device=self.device) for _ in range(2))
        self._last_values, self._final_values = (torch.zeros(n, device=self.device) for n in (markets, finals))
        programs = -(-markets // MARKETS_TOGETHER)
        self._sums = torch.zeros(programs, 5, dtype=torch.float64, device=self.device)

    def _flags(self, rollout: PolicyRollout) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        played = rollout.terminated if rollout.played is None else rollout.played  # a stand-in that is not read
        first, second, third = (flag.view(torch.uint8) for flag in (rollout.terminated, rollout.truncated, played))
        return first, second, third

    def _sum_gradients(self, rollout: PolicyRollout, first: int, last: int, ends_epoch: bool) -> None:
        """Sum up the gradients of the blocks that come as `first` to `last` in this epoch's order."""
        layout, shape, launch = self._layout, self.policy.shape, self._launch
        total = rollout.reward.numel()
        blocks = -(-total // launch.rows)
        programs = min(launch.programs, last - first)
        within.gradients[(programs, 1 if shape.trunk else 2)](
            rollout.rows, rollout.action, rollout.log_prob, self.advantage, self.target, self._flags(rollout)[2],
            self._keys, self._moments, self._low, self._full, self._partial, first, last, total, blocks,
            (blocks - 1).bit_length(), self.clip, self.value_weight, self.entropy_weight,
            TRUNK=shape.trunk, CATEGORICAL=shape.categorical, RELU=shape.activation == "relu", EXACT=self._exact,
            PLAYED=rollout.played is not None, W=layout.width, K=layout.inputs, H=layout.hidden, A=shape.outputs,
            OUT=layout.outputs, B=launch.rows, CRITIC_AT=layout.critic_at, SIZE=layout.size,
            num_warps=launch.warps, num_stages=launch.stages,
        )  # fmt: skip
        within.add_up[(len(self._squares),)](
            self._partial, self._gradient, self._squares, self._clock, self._keys, programs, int(ends_epoch),
            SIZE=layout.size, N=ADDED_TOGETHER, CHUNK=16, num_warps=4,
        )  # fmt: skip
        if self._ranks > 1:
            dist.all_reduce(self._gradient, group=self._group)
            within.square[(len(self._squares),)](
                self._gradient, self._squares, SIZE=layout.size, N=ADDED_TOGETHER, num_warps=1
            )

    def _step(self) -> None:
        """Take Adam's step, by the clipped mean of what was summed up."""
        size, parts = self._layout.size, len(self._squares)
        within.adam[(-(-size // STEPPED_TOGETHER),)](
            self._gradient, self._squares, self._clock, self.learning_rate, self._first, self._second, self._full,
            self._low, self.max_norm, SIZE=size, N=STEPPED_TOGETHER, PARTS=parts,
            CHUNK=triton.next_power_of_2(parts), num_warps=4,
        )  # fmt: skip
