"""`NetworkPolicy`: a learned policy of two hidden layers, and its value network, in the shapes that kernels know.

`rollout` evaluates it inside the market's kernel, `kineticsim_env.training` improves it; everywhere else it is a
`torch.nn.Module` like any other.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from kineticsim_env.policies.policy_files import Told, write
from kineticsim_env.runtime.values import check_choice, check_count, check_flag, check_number, show

ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU}
HIDDEN = (64, 128)  # widths of the hidden layers
MOST_INPUTS = 127  # so that a row with the constant 1, which stands for the biases, fits in 128 numbers
MOST_OUTPUTS = 64
LOG_ROOT_2PI = 0.5 * math.log(2 * math.pi)


@dataclasses.dataclass(frozen=True)
class NetworkShape:
    """What kernels are compiled for: all of a `NetworkPolicy` but its numbers.

    Attributes:
        inputs: Numbers of an observation that it reads, F.
        hidden: Width of both hidden layers.
        activation: `"tanh"` or `"relu"`.
        outputs: Means of a Gaussian policy, or logits of a categorical one; A.
        categorical: Whether it chooses among discrete actions.
        trunk: Whether policy and value share their hidden layers.
        has_critic: Whether there is a value.
    """

    inputs: int
    hidden: int
    activation: str
    outputs: int
    categorical: bool
    trunk: bool
    has_critic: bool


class NetworkPolicy(nn.Module):
    """A Gaussian or categorical policy of two hidden layers, and perhaps its value network.

    Either two networks, each `Linear(F, H), f, Linear(H, H), f, Linear(H, n)`, or, with a `trunk` of
    `Linear(F, H), f, Linear(H, H), f`, one linear layer each on top of it. H is 64 or 128, f is Tanh or ReLU.

    Attributes:
        shape: A `NetworkShape`.
        trunk: `nn.Sequential`, or None.
        actor: `nn.Sequential`; on a trunk `nn.Linear`. n is A, the size of an action, or the number of choices.
        critic: Likewise with n = 1, or None: values are then 0.
        log_std: Logarithms of a Gaussian policy's standard deviations, float32 `[A]`; None chooses among A discrete
            actions.
    """

    def __init__(
        self,
        actor: nn.Sequential | nn.Linear,
        critic: nn.Sequential | nn.Linear | None = None,
        *,
        trunk: nn.Sequential | None = None,
        log_std: torch.Tensor | None = None,
    ) -> None:
        """Take over the layers, which stay the caller's.

        Raises:
            TypeError, ValueError: Naming the layer, what came and what is allowed.
        """
        super().__init__()
        parts: dict[str, Any] = {"actor": actor} if critic is None else {"actor": actor, "critic": critic}
        if trunk is None:
            sizes = {name: _sizes_of(name, part, layers=3) for name, part in parts.items()}
            inputs, hidden, activation, outputs = sizes["actor"]
            others = [("critic", *sizes["critic"][:3])] if critic is not None else []
            others = [other for other in others if other[1:] != (inputs, hidden, activation)]
            if others:
                asked = f"{inputs} inputs and layers of {hidden} with {activation}, as the actor has them"
                raise ValueError(f"critic: expected {asked}, got {others[0][1]}, {others[0][2]} and {others[0][3]}")
            values = sizes["critic"][3] if critic is not None else 1
        else:
            inputs, hidden, activation, _ = _sizes_of("trunk", trunk, layers=2)
            heads = {name: _head(name, part, hidden) for name, part in parts.items()}
            outputs, values = heads["actor"], heads.get("critic", 1)
        if values != 1:
            raise ValueError(f"critic: expected one output, the value, got {values}")
        check_count("actor: outputs", outputs, 1, MOST_OUTPUTS)
        check_count("inputs", inputs, 1, MOST_INPUTS)
        if log_std is not None and (not isinstance(log_std, torch.Tensor) or log_std.shape != (outputs,)):
            got = list(log_std.shape) if isinstance(log_std, torch.Tensor) else show(log_std)
            raise ValueError(f"log_std: expected a tensor float32 [{outputs}], a number per output, got {got}")
        self.trunk, self.actor, self.critic = trunk, actor, critic
        self.log_std = log_std if log_std is None or isinstance(log_std, nn.Parameter) else nn.Parameter(log_std)
        categorical = log_std is None
        self.shape = NetworkShape(
            inputs, hidden, activation, outputs, categorical, trunk is not None, critic is not None
        )

    @classmethod
    def make(
        cls,
        observations: int,
        actions: int,
        *,
        hidden: int = 64,
        activation: str = "tanh",
        initial_std: float = 0.4,
        categorical: bool = False,
        trunk: bool = False,
    ) -> NetworkPolicy:
        """Return one with orthogonal weights and a value network.

        Args:
            observations: F.
            actions: A: the size of an action, or the number of choices.
            hidden: 64 or 128.
            activation: `"tanh"` or `"relu"`.
            initial_std: Standard deviation of a Gaussian policy's actions at the start.
            categorical: Whether actions are discrete.
            trunk: Whether policy and value share their hidden layers.
        """
        check_count("observations", observations, 1, MOST_INPUTS)
        check_count("actions", actions, 1, MOST_OUTPUTS)
        check_number("initial_std", initial_std, 0.0, above=True)
        check_flag("categorical", categorical), check_flag("trunk", trunk)
        shape = NetworkShape(observations, hidden, activation, actions, bool(categorical), bool(trunk), has_critic=True)
        return cls.of_shape(shape, _layer, math.log(initial_std))

    @classmethod
    def of_shape(
        cls, shape: NetworkShape, layer: Callable[[int, int, float], nn.Linear], log_std: float
    ) -> NetworkPolicy:
        """Return one of a shape whose layers `layer` makes, of inputs, outputs and a gain."""
        if shape.hidden not in HIDDEN:
            raise ValueError(f"hidden: expected {_either(HIDDEN)}, got {show(shape.hidden)}")
        kind = ACTIVATIONS[check_choice("activation", shape.activation, ACTIVATIONS)]
        inputs, hidden, usual = shape.inputs, shape.hidden, 2**0.5

        def body() -> list[nn.Module]:
            return [layer(inputs, hidden, usual), kind(), layer(hidden, hidden, usual), kind()]

        deviations = None if shape.categorical else nn.Parameter(torch.full((shape.outputs,), log_std))
        actor = layer(hidden, shape.outputs, 0.01)
        critic = layer(hidden, 1, 1.0) if shape.has_critic else None
        if shape.trunk:
            return cls(actor, critic, trunk=nn.Sequential(*body()), log_std=deviations)
        whole = nn.Sequential(*body(), actor)
        return cls(whole, None if critic is None else nn.Sequential(*body(), critic), log_std=deviations)

    def linear_layers(self) -> dict[str, list[nn.Linear]]:
        """Return the linear layers of `"actor"` and, if there is one, `"critic"`: three each, shared on a trunk."""
        below = [] if self.trunk is None else list(self.trunk)
        found = {}
        for name, part in (("actor", self.actor), ("critic", self.critic)):
            if part is not None:
                own = list(part) if isinstance(part, nn.Sequential) else [part]
                found[name] = [layer for layer in (*below, *own) if isinstance(layer, nn.Linear)]
        return found

    def forward(self, observation: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return means or logits `[..., A]` and values `[...]` of observations `[..., F]`."""
        below = observation if self.trunk is None else self.trunk(observation)
        outputs = self.actor(below)
        value = outputs.new_zeros(outputs.shape[:-1]) if self.critic is None else self.critic(below)[..., 0]
        return outputs, value

    def act(self, observation: torch.Tensor) -> torch.Tensor:
        """Return what is played without noise: means, cut to [-1, 1], or the likeliest choices. For `evaluate`."""
        with torch.no_grad():
            outputs, _ = self(observation)
        return outputs.argmax(-1) if self.shape.categorical else outputs.clamp(-1.0, 1.0)

    def save(
        self,
        path: str | Path,
        *,
        task: str,
        preset: str,
        command: str = "",
        commit: str = "",
        licence: str = "",
        figures: Mapping[str, float] | None = None,
    ) -> None:
        """Write a safetensors file that `kineticsim_env.load_policy` reads, with what is told of it in its header.

        It needs `pip install 'kineticsim-env[zoo]'`.

        Args:
            path: Of the file, whose name ends in `.safetensors`.
            task: What it was trained for: `"market_making"`, `"execution"` or `"trading"`.
            preset: The market that it was trained in.
            command: That made it.
            commit: Of this repository, that it was made with.
            licence: Under which it may be used.
            figures: Of its evaluation, finite numbers by name.

        Raises:
            TypeError, ValueError: Naming the argument, or the tensor that is not finite.
        """
        told = Told(task, preset, command, commit, licence, {} if figures is None else figures)
        write(path, self.state_dict(), self.shape, told)


def _layer(inputs: int, outputs: int, gain: float) -> nn.Linear:
    linear = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(linear.weight, gain)
    nn.init.zeros_(linear.bias)
    return linear


def _either(values: tuple[int, ...]) -> str:
    return " or ".join(map(str, values))


def _sizes_of(name: str, network: Any, layers: int) -> tuple[int, int, str, int]:
    """Return inputs, width, activation and outputs of a network of so many linear layers, the first two activated."""
    asked = "nn.Sequential of Linear, Tanh or ReLU, Linear, the same again" + (", Linear" if layers == 3 else "")
    if not isinstance(network, nn.Sequential):
        raise TypeError(f"{name}: expected {asked}, got {type(network).__name__}")
    kinds = [type(layer).__name__ for layer in network]
    linear = [layer for layer in network if isinstance(layer, nn.Linear)]
    activation = next((word for word, kind in ACTIVATIONS.items() if kind.__name__ in kinds), None)
    wanted = ["Linear", ACTIVATIONS[activation or "tanh"].__name__] * 2 + ["Linear"] * (layers - 2)
    if kinds != wanted or activation is None:
        raise ValueError(f"{name}: expected {asked}, got {', '.join(kinds) or 'nothing'}")
    hidden = linear[0].out_features
    if hidden not in HIDDEN or linear[1].out_features != hidden:
        found = f"{hidden} and {linear[1].out_features}"
        raise ValueError(f"{name}: expected two hidden layers of {_either(HIDDEN)}, got {found}")
    for place, layer in enumerate(linear):
        _check_linear(f"{name}: layer {place + 1}", layer, hidden if place else None)
    return linear[0].in_features, hidden, activation, linear[-1].out_features


def _head(name: str, head: Any, hidden: int) -> int:
    if not isinstance(head, nn.Linear):
        raise TypeError(f"{name}: expected, on a trunk, nn.Linear, got {type(head).__name__}")
    _check_linear(name, head, hidden)
    return head.out_features


def _check_linear(name: str, layer: nn.Linear, inputs: int | None) -> None:
    if layer.bias is None:
        raise ValueError(f"{name}: expected nn.Linear with a bias, got one without")
    if inputs is not None and layer.in_features != inputs:
        asked = f"{inputs} inputs, as the layer before it has outputs"
        raise ValueError(f"{name}: expected {asked}, got {layer.in_features}")
    if layer.weight.dtype != torch.float32:
        raise ValueError(f"{name}: expected float32 weights, got {layer.weight.dtype}")
