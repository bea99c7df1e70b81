"""Who plays in an evaluation: policies, what each of them is given, and when it is told that episodes begin."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

import torch
from gymnasium.vector import VectorWrapper

from kineticsim_env.envs.batched import BatchedParallelEnv, Groups
from kineticsim_env.envs.core import EnvCore
from kineticsim_env.policies import Policy
from kineticsim_env.runtime.values import check_callable, show

_POLICY = "a function of observations that returns actions"


@runtime_checkable
class RecurrentPolicy(Protocol):
    """A policy with a memory, which it keeps itself; every policy that has a `reset` is taken for one.

    It is called once per decision, with all rows, and told before the first decision of an episode that it begins.

    To be an opponent in a `fork` it needs an `of_rows(rows)` as well, rows int64 `[n]` on its device. It returns
    another policy, of n rows, of which row i has a copy of the memory of row `rows[i]`, such as a `copy.copy` of itself
    with `hidden[rows]` in place of `hidden`. All else may be shared: weights are to be those of the present.
    """

    def __call__(self, observation: torch.Tensor) -> torch.Tensor:
        """Return the actions for a batch of observations, and remember what the next call needs."""
        ...

    def reset(self, mask: torch.Tensor) -> None:
        """Forget what came before.

        Args:
            mask: bool `[M]`, one for each row of the next observations, on their device: True where an episode begins,
                which is everywhere when an evaluation does. Rows of False go on.
        """
        ...


class OnePlayer:
    """One policy, for the one learner of each market."""

    def __init__(self, policy: Any) -> None:
        self._policy = _check_policy("policy", policy)

    def begin(self, mask: torch.Tensor) -> None:
        """Tell a policy with a memory that episodes begin, bool `[M]`."""
        _begin(self._policy, mask)

    def act(self, observation: Any) -> Any:
        """Return the actions, as the policy has them."""
        return self._policy(observation)


class ManyPlayers:
    """Policies of many learners per market: for a role one that all its learners share, or one for each of them."""

    def __init__(self, given: Any, envs: BatchedParallelEnv) -> None:
        if not isinstance(given, Mapping):
            allowed = "a dict of policies, by role or by the learner's name"
            raise TypeError(f"policy: expected, with many learners, {allowed}, got {type(given).__name__}")
        known = [*envs.group_map, *envs.possible_agents]
        odd = [name for name in given if name not in known]
        if odd:
            raise ValueError(f"policy: expected one of {', '.join(known)}, got the entry {show(odd[0])}")
        for name, policy in given.items():
            _check_policy(f"policy[{name!r}]", policy)
            if isinstance(policy, RecurrentPolicy) and sum(policy is other for other in given.values()) > 1:
                allowed = "a copy for each, or one entry for a role"
                raise ValueError(f"policy[{name!r}]: expected {allowed}, got a recurrent policy in several entries")
        self._groups = {role: _policies_of(role, agents, given) for role, agents in envs.group_map.items()}
        self._counts = {role: len(agents) for role, agents in envs.group_map.items()}

    def begin(self, mask: torch.Tensor) -> None:
        """Tell policies with a memory that the episodes of these markets begin, bool `[M]`."""
        for role, policies in self._groups.items():
            for policy in policies:
                _begin(policy, mask.repeat_interleave(self._counts[role] // len(policies)))

    def act(self, observation: Groups) -> Groups:
        """Return the actions by role, `[M, n, ...]`, for observations `[M, n, F]`."""
        return {role: self._act(role, rows) for role, rows in observation.items()}

    def _act(self, role: str, rows: torch.Tensor) -> torch.Tensor:
        policies, markets = self._groups[role], len(rows)
        each = rows.unflatten(1, (len(policies), -1)).transpose(0, 1).flatten(1, 2)  # [policies, rows of each, F]
        actions = torch.stack([policy(part) for policy, part in zip(policies, each, strict=True)])
        if actions.shape[:2] != each.shape[:2]:
            raise ValueError(f"policy[{role!r}]: expected {each.shape[1]} rows, got actions {list(actions.shape[1:])}")
        return actions.unflatten(1, (markets, -1)).transpose(0, 1).flatten(1, 2)


def _policies_of(role: str, agents: list[str], given: Mapping[str, Policy]) -> list[Policy]:
    """Return the one policy of a role, or one for each of its learners."""
    own = [given[agent] for agent in agents if agent in given]
    if role in given and not own:
        return [given[role]]
    if role in given or len(own) != len(agents):
        which = "both" if role in given else "too few"
        raise ValueError(
            f"policy: expected one entry for the role or one for each of its learners, got {which} of {role}, "
            f"{', '.join(agents)}"
        )
    return own


def _begin(policy: Policy, mask: torch.Tensor) -> None:
    if isinstance(policy, RecurrentPolicy):
        policy.reset(mask)


@contextmanager
def standing_still(envs: Any, core: EnvCore) -> Generator[None]:
    """Let no wrapper's running statistics learn from what is played inside, and markets stand that have ended."""
    learning = []
    while isinstance(envs, VectorWrapper):
        if getattr(envs, "update_running_mean", False):
            learning.append(envs)
        envs = envs.env
    try:
        core.lets_stand = True
        for wrapper in learning:
            wrapper.update_running_mean = False
        yield
    finally:
        core.lets_stand = False
        for wrapper in learning:
            wrapper.update_running_mean = True


def _check_policy(name: str, policy: Any) -> Any:
    """Return a policy. A class can be called too, but makes one."""
    if isinstance(policy, type):
        raise TypeError(f"{name}: expected {_POLICY}, got the class {policy.__name__}")
    return check_callable(name, policy, _POLICY)
