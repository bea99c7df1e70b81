"""Classes of agents that users write, as engines have them: `struct AgentClass`, parameters and opening memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from kineticsim_env.agents.classes import AgentClass
from kineticsim_env.agents.mixes import Mix
from kineticsim_env.config import MarketConfig


@dataclasses.dataclass(frozen=True)
class AgentGroup:
    """The agents of one class in every market; the names are those of `struct AgentClass`."""

    kind: AgentClass  # the class
    first: int  # its first agent, counted from the first that users have added
    agents: int  # how many, inactive ones too
    active: int  # all but the last, which slots replace
    # place of its first parameter in a row of parameters; parameter i of agent a is behind it by i * agents + a, or by
    # i where all agents have the same
    parameters: int
    parameter_stride: int  # 1 where agents have parameters of their own, else 0
    memory: int  # place of its first word in a row of memory; word i of agent a is behind it by i * agents + a

    @property
    def parameter_words(self) -> int:
        """How many words its parameters take."""
        return len(self.kind.parameters) * (self.agents if self.parameter_stride else 1)

    @property
    def memory_words(self) -> int:
        """How many words its memory takes."""
        return len(self.kind.memory) * self.agents


def agent_groups(config: MarketConfig, replaced: Mapping[str, int]) -> tuple[AgentGroup, ...]:
    """Return the classes of a config in their order; `replaced` says how many agents of each slots replace, by name.

    Raises:
        ValueError: If slots replace more agents of a class than there are.
    """
    groups: list[AgentGroup] = []
    first = parameters = memory = 0
    for kind, made in config.agents.items():
        inactive = replaced.get(kind.name, 0)
        if inactive > made.count:
            raise ValueError(
                f"slots: expected up to {made.count}, the number of {kind.name} agents in the market, got {inactive} "
                f"that replace a {kind.name} agent"
            )
        own = int(made.of_each_agent)
        group = AgentGroup(kind, first, made.count, made.count - inactive, parameters, own, memory)
        groups.append(group)
        first += group.agents
        parameters += group.parameter_words
        memory += group.memory_words
    return tuple(groups)


def parameter_table(config: MarketConfig, groups: tuple[AgentGroup, ...], num_rows: int) -> np.ndarray:
    """Return the parameters of all classes, int32 `[num_rows, P]`.

    Raises:
        ValueError: If agents of a class have own parameters where engines have room for one set.
    """
    parts = [np.zeros((num_rows, 0), np.int32)]
    for group in groups:
        made = config.agents[group.kind]
        check_width(group.kind.name, made, bool(group.parameter_stride))
        width = group.agents if group.parameter_stride else 1
        for name, default in group.kind.parameters.items():
            value = np.asarray(made.parameters.get(name, default), dtype=np.int32)
            parts.append(np.broadcast_to(value[None] if value.ndim == 1 else value, (num_rows, width)))
    return np.ascontiguousarray(np.concatenate(parts, axis=1))


def check_width(name: str, made: Mix, of_each_agent: bool) -> None:
    """Refuse parameters of each agent where engines have room for those of a class."""
    if made.of_each_agent and not of_each_agent:
        raise ValueError(
            f"agents[{name}]: expected parameters of the class, one per market, as there were at the start, got ones "
            f"of each agent; made with ks.mix({made.count}, parameter=[...]) there is one per agent"
        )


def place_of(groups: tuple[AgentGroup, ...], kind: str, parameter: str) -> tuple[int, int]:
    """Return where the numbers of a parameter begin in a row of parameters, and how many there are."""
    group = next(group for group in groups if group.kind.name == kind)
    width = group.agents if group.parameter_stride else 1
    return group.parameters + list(group.kind.parameters).index(parameter) * width, width


def opening_memory(groups: tuple[AgentGroup, ...], seen: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return what agents remember as an episode begins, int32 `[rows, Q]`; `seen` has int `[rows]` by name."""
    rows = max(len(np.atleast_1d(values)) for values in seen.values())
    parts = [np.zeros((rows, 0), np.int32)]
    for group in groups:
        for start in group.kind.memory.values():
            value = np.asarray(seen[start] if isinstance(start, str) else start, dtype=np.int32)
            parts.append(np.broadcast_to(value.reshape(-1, 1), (rows, group.agents)))
    return np.ascontiguousarray(np.concatenate(parts, axis=1))
