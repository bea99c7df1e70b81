"""`PolicyRollout`: what was played between two updates, in tensors that are made once and filled again and again.

`rollout` (envs/rollouts.py) fills it, `kineticsim_env.training.PPO` reads it.
"""

from __future__ import annotations

import dataclasses

import torch

from kineticsim_env.policies.networks import NetworkShape
from kineticsim_env.runtime.values import check_count


@dataclasses.dataclass(frozen=True)
class ProgramShape:
    """What the rollout of a program has.

    Attributes:
        inputs: Numbers of an observation, F.
        orders: The shape of what a slot submits, as `OrderRecords` has it: `(4,)`, of a ladder `(N, 4)`, or under
            continuous trading `(N, 2, 3)`.
    """

    inputs: int
    orders: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class PolicyRollout:
    """T decisions of M markets; F numbers of an observation, A of an action, W the least multiple of 8 above F.

    Attributes:
        rows: What the policy saw, float32 or bfloat16 `[T, M, W]`: the observation, then a 1, then zeros.
        action: What it chose: of a Gaussian policy float32 `[T, M, A]` as drawn, before it was cut to [-1, 1]; of a
            categorical one int64 `[T, M]`; of a program the order records that it submitted, int32 `[T, M, ...]`.
        log_prob: The logarithm of its probability or density, float32 `[T, M]`; 0 of a program.
        value: Values of the observations, float32 `[T, M]`; 0 without a critic.
        reward: float32 `[T, M]`.
        terminated: bool `[T, M]`.
        truncated: bool `[T, M]`.
        played: bool `[T, M]`: False where a market only began anew (NEXT_STEP autoreset), waited or had stopped, which
            carries no weight in training; None is everywhere.
        final_rows: Of episodes that were truncated what was seen last, `[R, M, W]` as `rows`: of decision t, which was
            played, in row `t // every`.
        last_rows: What is seen after the last decision, `[M, W]`.
        decision_events: Events of each decision, where these end decisions, int32 `[T, M]`; else None.
        every: Decisions among which a market's episode is truncated at most once; R is T / every, rounded up.
        inputs: F.
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
    inputs: int

    @property
    def observation(self) -> torch.Tensor:
        """Observations, a view `[T, M, F]`."""
        return self.rows[..., : self.inputs]

    @property
    def final_observation(self) -> torch.Tensor:
        """Last observations of truncated episodes, a view `[R, M, F]`; see `final_rows`."""
        return self.final_rows[..., : self.inputs]

    @property
    def last_observation(self) -> torch.Tensor:
        """Observations after the last decision, a view `[M, F]`."""
        return self.last_rows[..., : self.inputs]

    @classmethod
    def empty(
        cls,
        shape: NetworkShape | ProgramShape,
        steps: int,
        markets: int,
        *,
        every: int,
        device: torch.device | str,
        dtype: torch.dtype | None = None,
        events: bool = False,
        played: bool = True,
    ) -> PolicyRollout:
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

        sizes, action = _action_of(shape)
        return cls(
            rows=rows(steps, markets),
            action=buffer(steps, markets, *sizes, kind=action),
            log_prob=buffer(steps, markets),
            value=buffer(steps, markets),
            reward=buffer(steps, markets),
            terminated=buffer(steps, markets, kind=torch.bool),
            truncated=buffer(steps, markets, kind=torch.bool),
            played=torch.ones((steps, markets), dtype=torch.bool, device=device) if played else None,
            final_rows=rows(-(-steps // every), markets),
            last_rows=rows(markets),
            decision_events=buffer(steps, markets, kind=torch.int32) if events else None,
            every=every,
            inputs=shape.inputs,
        )


def _action_of(shape: NetworkShape | ProgramShape) -> tuple[tuple[int, ...], torch.dtype]:
    """Return the sizes behind `[T, M]` and the kind of what is chosen."""
    if isinstance(shape, ProgramShape):
        return shape.orders, torch.int32
    return ((), torch.int64) if shape.categorical else ((shape.outputs,), torch.float32)


def check_rollout(
    rollout: PolicyRollout, shape: NetworkShape | ProgramShape, device: torch.device, named: str = "rollout"
) -> None:
    """Refuse, by name, a rollout whose tensors are not those of the policy's shape."""
    if rollout.rows.dim() != 3:
        raise ValueError(f"{named}.rows: expected [T, M, W], got {list(rollout.rows.shape)}")
    steps, markets = rollout.rows.shape[:2]
    width, kind = -(-(shape.inputs + 1) // 8) * 8, rollout.rows.dtype
    if kind not in (torch.bfloat16, torch.float32):
        raise ValueError(f"{named}.rows: expected bfloat16 or float32, got {kind}")
    check_count(f"{named}.every", rollout.every, 1)
    each, flag, number = (steps, markets), (torch.bool,), (torch.float32,)
    sizes_chosen, kind_chosen = _action_of(shape)
    wanted = {
        "rows": ((*each, width), (kind,)),
        "action": ((*each, *sizes_chosen), (kind_chosen,)),
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
        asked = f"{named}.{name}: expected a contiguous tensor {kinds[0]} {list(sizes)} on {device}"
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{asked}, got {type(tensor).__name__}")
        got = tensor.dtype, tuple(tensor.shape), tensor.device, tensor.is_contiguous()
        if got != (kinds[0], tuple(sizes), device, True):
            loose = "" if got[3] else ", not contiguous"
            raise ValueError(f"{asked}, got {got[0]} {list(got[1])} on {got[2]}{loose}")
