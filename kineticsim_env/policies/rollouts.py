"""`Rollout`: what was played between two updates, in tensors that are made once and filled again and again.

Trainers make one, `kineticsim_env.training.PPO` reads it. It has T decisions of M markets; F is how many numbers an
observation has, W the least multiple of 8 that is at least F + 1, and A the size of an action.
"""

from __future__ import annotations

import dataclasses

import torch

from kineticsim_env.policies.networks import NetworkShape
from kineticsim_env.runtime.values import check_count


@dataclasses.dataclass
class Rollout:
    """Decisions, and what came of them.

    Attributes:
        rows: Observations, bfloat16 or float32 `[T, M, W]`: F numbers, a 1, zeros.
        action: As drawn, float32 `[T, M, A]`, not yet cut to [-1, 1]; of a categorical policy int64 `[T, M]`.
        log_prob: Of the action, float32 `[T, M]`.
        value: Of the observation, float32 `[T, M]`.
        reward: Float32 `[T, M]`.
        terminated: Whether the episode ended here for good, bool `[T, M]`.
        truncated: Whether it was cut off at its horizon, bool `[T, M]`.
        played: Whether there was a decision, bool `[T, M]`; None is everywhere. One that was none carries no weight.
        final_rows: Observations before resets, `[R, M, W]` with R = ceil(T / every): that of decision t in row
            `t // every`, where t was truncated; what else it holds is not read.
        last_rows: Observations after the last decision, `[M, W]`.
        decision_events: Events of each decision, int32 `[T, M]`; None where all have as many.
        every: Decisions between two ends of a market's episodes, at least: the least horizon.
    """

    rows: torch.Tensor
    action: torch.Tensor
    log_prob: torch.Tensor
    value: torch.Tensor
    reward: torch.Tensor
    terminated: torch.Tensor
    truncated: torch.Tensor
    played: torch.Tensor | None
    final_rows: torch.Tensor
    last_rows: torch.Tensor
    decision_events: torch.Tensor | None
    every: int

    @classmethod
    def empty(
        cls,
        shape: NetworkShape,
        steps: int,
        markets: int,
        *,
        every: int,
        device: torch.device | str,
        dtype: torch.dtype | None = None,
        events: bool = False,
        played: bool = False,
    ) -> Rollout:
        """Return one of `steps` decisions in `markets` markets, to be filled.

        Args:
            shape: Of the policy.
            steps: T.
            markets: M.
            every: The least horizon of an episode, in decisions.
            device: Where.
            dtype: Of rows, bfloat16 or float32; by default the former on a GPU, the latter on a CPU.
            events: Whether decisions have unlike numbers of events.
            played: Whether there may be decisions that are none.
        """
        check_count("steps", steps, 1), check_count("markets", markets, 1), check_count("every", every, 1)
        width = -(-(shape.inputs + 1) // 8) * 8
        kind = dtype or (torch.bfloat16 if torch.device(device).type == "cuda" else torch.float32)

        def buffer(*sizes: int, kind: torch.dtype = torch.float32) -> torch.Tensor:
            return torch.zeros(sizes, dtype=kind, device=device)

        def rows(*sizes: int) -> torch.Tensor:
            made = buffer(*sizes, width, kind=kind)
            made[..., shape.inputs] = 1.0
            return made

        action = (
            buffer(steps, markets, kind=torch.int64) if shape.categorical else buffer(steps, markets, shape.outputs)
        )
        return cls(
            rows=rows(steps, markets),
            action=action,
            log_prob=buffer(steps, markets),
            value=buffer(steps, markets),
            reward=buffer(steps, markets),
            terminated=buffer(steps, markets, kind=torch.bool),
            truncated=buffer(steps, markets, kind=torch.bool),
            played=buffer(steps, markets, kind=torch.bool) if played else None,
            final_rows=rows(-(-steps // every), markets),
            last_rows=rows(markets),
            decision_events=buffer(steps, markets, kind=torch.int32) if events else None,
            every=every,
        )


def check_rollout(rollout: Rollout, shape: NetworkShape, device: torch.device) -> None:
    """Refuse, by name, a rollout whose tensors are not those of the policy's shape."""
    if rollout.rows.dim() != 3:
        raise ValueError(f"rollout.rows: expected [T, M, W], got {list(rollout.rows.shape)}")
    steps, markets = rollout.rows.shape[:2]
    width, kind = -(-(shape.inputs + 1) // 8) * 8, rollout.rows.dtype
    kinds = (torch.bfloat16, torch.float32) if device.type == "cuda" else (torch.float32,)
    if kind not in kinds:
        raise ValueError(f"rollout.rows: expected {' or '.join(map(str, kinds))} on {device}, got {kind}")
    check_count("rollout.every", rollout.every, 1)
    each, flag, number = (steps, markets), (torch.bool,), (torch.float32,)
    wanted = {
        "rows": ((*each, width), (kind,)),
        "action": (each, (torch.int64,)) if shape.categorical else ((*each, shape.outputs), number),
        "log_prob": (each, number),
        "value": (each, number),
        "reward": (each, number),
        "terminated": (each, flag),
        "truncated": (each, flag),
        "played": (each, flag),
        "final_rows": ((-(-steps // rollout.every), markets, width), (kind,)),
        "last_rows": ((markets, width), (kind,)),
        "decision_events": (each, (torch.int32,)),
    }
    for name, (sizes, kinds) in wanted.items():
        tensor = getattr(rollout, name)
        if tensor is None and name in ("played", "decision_events"):
            continue
        asked = f"rollout.{name}: expected a contiguous tensor {kinds[0]} {list(sizes)} on {device}"
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{asked}, got {type(tensor).__name__}")
        got = tensor.dtype, tuple(tensor.shape), tensor.device, tensor.is_contiguous()
        if got != (kinds[0], tuple(sizes), device, True):
            loose = "" if got[3] else ", not contiguous"
            raise ValueError(f"{asked}, got {got[0]} {list(got[1])} on {got[2]}{loose}")
