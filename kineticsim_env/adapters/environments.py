"""What the adapters share: opening an environment, and the flags of learners whose episodes end early."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch
from gymnasium.vector import AutoresetMode, VectorEnv

from kineticsim_env import BatchedParallelEnv  # importing the package registers the environments
from kineticsim_env.runtime.checks import check_seeds


def open_vector_env(adapter: str, env: Any, num_envs: int | None, output: str, arguments: dict[str, Any]) -> VectorEnv:
    """Return a vector environment in the form that an adapter needs, which is SAME_STEP autoreset and copied results.

    `env` is an id such as `"KineticSim/MarketMaking-v0"`, made with `num_envs` markets (None is 1) and the arguments of
    `gymnasium.make_vec`, or an open environment of this `output`, which may be wrapped.

    Raises:
        TypeError, ValueError: If `env` is something else, or has another output or autoreset mode.
    """
    if isinstance(env, str):
        fixed: dict[str, Any] = {"output": output, "autoreset_mode": AutoresetMode.SAME_STEP}
        for name in sorted(set(arguments) & {*fixed, "copy"}):
            raise TypeError(f"{name}: expected it left out, got {arguments[name]!r}: {adapter} chooses it")
        return gym.make_vec(env, num_envs=1 if num_envs is None else num_envs, **fixed, **arguments)
    if not isinstance(env, VectorEnv):
        raise TypeError(f"env: expected an id and a vector environment of kineticsim_env, got {type(env).__name__}")
    if num_envs is not None or arguments:
        given = ["num_envs"] * (num_envs is not None) + sorted(arguments)
        raise TypeError(f"{given[0]}: expected an id such as 'KineticSim/...' with it, got an open environment")
    found = getattr(env.unwrapped, "output", None)
    if found != output:
        raise ValueError(f"env: expected output={output!r} for {adapter}, got an environment with output {found!r}")
    mode = env.metadata.get("autoreset_mode")
    if mode is not AutoresetMode.SAME_STEP:
        raise ValueError(f"env: expected autoreset mode SAME_STEP for {adapter}, got an environment with {mode}")
    return env


def check_batched_env(adapter: str, env: Any) -> BatchedParallelEnv:
    """Return a batch of markets with many learners if it has the form that an adapter needs, which is SAME_STEP.

    Raises:
        TypeError, ValueError: If `env` is something else, or has another autoreset mode.
    """
    if not isinstance(env, BatchedParallelEnv):
        raise TypeError(f"env: expected a BatchedParallelEnv of kineticsim_env, got {type(env).__name__}")
    if env.autoreset_mode is not AutoresetMode.SAME_STEP:
        raise ValueError(
            f"env: expected autoreset mode SAME_STEP for {adapter}, got an environment with {env.autoreset_mode}"
        )
    return env


def has_masks(env: Any) -> bool:
    """Return whether an environment was made with `action_mask=True`."""
    return getattr(env, "unwrapped", env).core.settings.action_mask


def check_unmasked(adapter: str, env: Any) -> Any:
    """Return an environment without action masks, for a library whose policies take none.

    Raises:
        ValueError: If it has masks, which the library would leave unread.
    """
    if has_masks(env):
        raise ValueError(
            f"action_mask: expected False for {adapter}, got True: the library's policies take no mask, and a masked "
            "choice does what another one without its order does"
        )
    return env


def check_first_seed(seed: Any, markets: int, device: torch.device) -> Any:
    """Return the seed of the first reset, checked; with None the environment draws one."""
    if seed is not None:
        check_seeds(seed, markets, device)
    return seed


def check_copied(adapter: str, before: Any, after: Any) -> None:
    """Refuse an environment made with `copy=False`: libraries keep results, which its next step would overwrite.

    `before` are the observations of the last step or reset, which the caller has kept, or the live ones; `after` those
    of this step, tensors or arrays. Both are kept alive, so one address means one tensor.
    """
    if torch.compiler.is_compiling():  # tensors of a program have no address; the reset before it was looked at
        return
    if _place(before) == _place(after):
        raise ValueError(f"copy: expected True for {adapter}, got False: it keeps results beyond the next step")


def _place(values: Any) -> int:
    return values.data_ptr() if isinstance(values, torch.Tensor) else values.__array_interface__["data"][0]


def flags_of(
    terminated: torch.Tensor, truncated: torch.Tensor, over: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the flags of learners for libraries in which every learner acts at every step.

    A learner whose episode has ended goes on without orders and rewards until its market's episode ends. To a library
    this is another episode, with return 0, which terminates together with the market.

    Args:
        terminated: bool `[M, n]`, of the learners in this step.
        truncated: bool `[M, n]`.
        over: bool `[M]`, whether the market's episode ended in this step.

    Returns:
        Two masks, bool `[M, n]` each: terminated, and done (terminated or truncated).
    """
    terminated = terminated | (over.unsqueeze(-1) & ~truncated)
    return terminated, terminated | truncated
