"""`rollout`: many decisions of a network or a program in one call, and what training needs of them, a `PolicyRollout`.

On a GPU they are one launch, with the policy inside the market's kernel: books, accounts and observations stay on the
chip from decision to decision. Elsewhere, and where a user's own functions or wrappers come between, the environment
steps, and torch evaluates the policy.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import torch
from gymnasium.vector import VectorEnv

from kineticsim_env.agents.policies import ProgramPolicy
from kineticsim_env.engines.live import STOPPED
from kineticsim_env.envs.core import EnvCore
from kineticsim_env.envs.settings import SAME_STEP
from kineticsim_env.policies import packing
from kineticsim_env.policies.networks import LOG_ROOT_2PI, NetworkPolicy, NetworkShape
from kineticsim_env.policies.noise import gumbels, normals, words_of
from kineticsim_env.policies.rollouts import PolicyRollout, ProgramShape, check_rollout
from kineticsim_env.policies.saved import SavedPolicy
from kineticsim_env.runtime.values import check_count, check_flag, check_instance, show

_MARKETS_OF_A_NETWORK = 32  # a warp's, at least, where the kernel evaluates it
_KINDS = (torch.float32, torch.bfloat16)
_LEAST_CAPABILITY = (8, 0)  # of products of bfloat16


def rollout(
    envs: Any,
    policy: NetworkPolicy | SavedPolicy | Sequence[NetworkPolicy | SavedPolicy] | ProgramPolicy,
    steps: int,
    *,
    out: PolicyRollout | None = None,
    seed: int | torch.Tensor = 0,
    noise: bool = True,
    observations: torch.dtype = torch.float32,
) -> PolicyRollout:
    """Play `steps` decisions in all markets, chosen by a policy; episodes that end begin anew as in `step`.

    Markets are to the bit what they are when `step` is given the recorded actions, cut to [-1, 1], one by one. On a GPU
    the networks have products of bfloat16 numbers and sums of float32, so that their outputs differ from torch's
    float32 by thousandths. Noise is a hash of `seed`, the market's seed, its episode and time, and so depends neither
    on how rollouts are cut nor on the number of markets; `docs/rollouts.md` has the formula.

    Args:
        envs: A vector environment of one learner, perhaps in wrappers. It was reset.
        policy: A `NetworkPolicy` for all markets, or several of one shape, each for as many neighbouring markets; or
            what `load_policy` returns.
        steps: T.
        out: A rollout to write into, of such a call before; None makes a new one.
        seed: Of the noise; a tensor int64 `[1]` on the environment's device is read there, at each launch.
        noise: False plays the means, or the likeliest choices.
        observations: `torch.float32` or `torch.bfloat16`, of recorded observations.

    Returns:
        A `PolicyRollout` of tensors on the environment's device.

    Raises:
        TypeError, ValueError: Naming the argument, what came and what is allowed.
        gymnasium.error.ResetNeeded: If the environment was never reset.
    """
    inner = getattr(envs, "unwrapped", envs)
    core = getattr(inner, "core", None)
    if not isinstance(core, EnvCore) or not isinstance(inner, VectorEnv):
        asked = "a vector environment of this package, such as gymnasium.make_vec makes, perhaps in wrappers"
        raise TypeError(f"envs: expected {asked}, got {show(envs)}")
    if not hasattr(envs, "observation"):
        asked = "wrappers that have the present `observation`, as those of kineticsim_env.wrappers"
        raise TypeError(f"envs: expected {asked}, got {type(envs).__name__}")
    width = envs.single_observation_space.shape[0]
    program = policy if isinstance(policy, ProgramPolicy) else None
    if program is not None and envs is not inner:
        raise TypeError(f"envs: expected the environment itself, as {program.name} is a program, got one in wrappers")
    networks = [] if program else _check_policies(policy, core, width)
    check_count("steps", steps, 1), check_flag("noise", noise)
    if observations not in _KINDS:
        raise ValueError(f"observations: expected torch.float32 or torch.bfloat16, got {show(observations)}")
    if not inner.was_reset:
        raise gym.error.ResetNeeded("rollout: the environment was never reset; call reset() first")
    given = _seed_tensor(seed, core)
    shape = ProgramShape(width, _orders_shape(core)) if program else networks[0].shape
    fresh = _empty(core, shape, steps, observations) if out is None else out
    if out is not None:
        _check_out(out, core, shape, steps)
    why = _why_steps(envs, core, networks)
    if why is not None and core.simulator.engine_name == "cuda":
        warnings.warn(f"rollout: steps one by one, as {why}", stacklevel=2)
    with core._calls.lock:  # nobody gives the slot to another in between
        if core.learner_program is not program:
            others = {slot: one for slot, one in core.slot_programs.items() if slot}
            core.set_slot_policies(others | ({0: program} if program else {}))
        if why is None:
            _play_inside(core, networks, fresh, given, noise)
        else:
            _play_by_steps(envs, core, networks, fresh, given, noise)
    return fresh


# Checks ---------------------------------------------------------------------------------------------------------------


def _check_policies(policy: Any, core: EnvCore, width: int) -> list[NetworkPolicy]:
    given = list(policy) if isinstance(policy, (list, tuple)) else [policy]
    networks = [one.on(core.device) if isinstance(one, SavedPolicy) else one for one in given]
    for place, network in enumerate(networks):
        name = f"policy[{place}]" if isinstance(policy, (list, tuple)) else "policy"
        check_instance(name, network, NetworkPolicy)
        if network.shape != networks[0].shape:
            raise ValueError(f"{name}: expected the shape of the first, {networks[0].shape}, got {network.shape}")
        device = next(network.parameters()).device
        if device != core.device:
            raise ValueError(f"{name}: expected weights on {core.device}, where the environment is, got {device}")
    if not networks or core.simulator.num_markets % len(networks):
        allowed = f"a network, or a number of them that divides the {core.simulator.num_markets} markets"
        raise ValueError(f"policy: expected {allowed}, got {len(networks)}")
    shape, role = networks[0].shape, core.roles[0]
    choices = core.task.num_choices(role)
    if bool(choices) != shape.categorical:
        asked = "logits of discrete actions (no log_std)" if choices else "a Gaussian policy (log_std)"
        raise ValueError(f"policy: expected {asked}, as the environment's actions are, got the other kind")
    wanted = choices or core.task.action_form(role).size
    if shape.outputs != wanted:
        raise ValueError(f"policy: expected {wanted} outputs, as the environment has actions, got {shape.outputs}")
    if shape.inputs != width:
        raise ValueError(f"policy: expected {width} inputs, as observations have, got {shape.inputs}")
    return networks


def _check_out(out: Any, core: EnvCore, shape: NetworkShape | ProgramShape, steps: int) -> None:
    like = _empty(core, shape, steps, check_instance("out", out, PolicyRollout).rows.dtype, torch.device("meta"))
    check_rollout(out, shape, core.device, "out")
    found = len(out.rows), out.rows.shape[1], out.every, out.decision_events is None, out.played is None
    if found != (steps, core.simulator.num_markets, like.every, like.decision_events is None, False):
        asked = f"a rollout of {steps} decisions in {core.simulator.num_markets} markets, as this environment's are"
        raise ValueError(f"out: expected {asked}, got one of {found[0]} in {found[1]}, or of another task")


def _seed_tensor(seed: Any, core: EnvCore) -> torch.Tensor:
    if isinstance(seed, torch.Tensor):
        if (seed.shape, seed.dtype, seed.device) != ((1,), torch.int64, core.device):
            raise ValueError(f"seed: expected a tensor int64 [1] on {core.device}, got {seed.dtype} {list(seed.shape)}")
        return seed
    check_count("seed", seed, -(2**63), 2**63 - 1)
    return torch.full((1,), seed, dtype=torch.int64, device=core.device)


def _orders_shape(core: EnvCore) -> tuple[int, ...]:
    levels = core.config.orders_per_side
    return (levels, 2, 3) if core.config.is_continuous else (4,) if levels == 1 else (levels, 4)


def every_of(core: EnvCore) -> int:
    """Return among how many decisions a market's episode is truncated at most once."""
    return 1 if "horizon" in core.live_task.values.names else core.task.horizon


@torch.inference_mode(False)
def _empty(
    core: EnvCore,
    shape: NetworkShape | ProgramShape,
    steps: int,
    kind: torch.dtype,
    device: torch.device | None = None,
) -> PolicyRollout:
    where, events = core.device if device is None else device, core.task.decides_at_events
    sizes = shape, steps, core.simulator.num_markets
    return PolicyRollout.empty(*sizes, every=every_of(core), device=where, dtype=kind, events=events)


def _why_steps(envs: Any, core: EnvCore, networks: Sequence[NetworkPolicy]) -> str | None:
    """Return why the policy cannot be inside the kernel; None if it can."""
    reasons = {
        "the markets are on a CPU": core.simulator.engine_name != "cuda",
        "the environment is in wrappers": envs is not envs.unwrapped,
        "rewards, features, ends or opponents are functions": core.own is not None,
        "validate=True looks at every step": core.settings.validate,
        "it is shown": envs.unwrapped.render_mode is not None,
        f"a network has fewer than {_MARKETS_OF_A_NETWORK} markets, or no multiple of them": len(networks) > 1
        and core.simulator.num_markets // len(networks) % _MARKETS_OF_A_NETWORK != 0,
    }
    why = next((reason for reason, holds in reasons.items() if holds), None)
    if why is None and networks and torch.cuda.get_device_capability(core.device) < _LEAST_CAPABILITY:
        return "the GPU has no products of bfloat16"
    return why


# On the chip ----------------------------------------------------------------------------------------------------------


def _play_inside(
    core: EnvCore, networks: Sequence[NetworkPolicy], out: PolicyRollout, seed: torch.Tensor, noise: bool
) -> None:
    markets, slots, kept = core.simulator.num_markets, len(core.roles), out.rows.dtype == torch.bfloat16
    fields: dict[str, Any] = {
        "slots": 1,
        "stride": core.tensors["observation"].shape[-1],
        "every": out.every,
        ("rows16" if kept else "rows"): out.rows,
        ("final_rows16" if kept else "final_rows"): out.final_rows,
        **{name: getattr(out, name) for name in ("reward", "terminated", "truncated", "played", "decision_events")},
    }
    given: dict[str, torch.Tensor] = {}
    if networks:
        shape = networks[0].shape
        kind, chosen = packing.definitions(shape, rows16=kept), "choices" if shape.categorical else "actions"
        fields |= {
            "networks": packing.packed(networks),
            "markets_per_network": markets if len(networks) == 1 else markets // len(networks),
            "seed": seed,
            "noise": int(noise),
            chosen: out.action,
            **{name: getattr(out, name) for name in ("log_prob", "value")},
        }
        width = () if shape.categorical else (max(core.task.action_form(role).size for role in core.roles),)
        given[chosen] = torch.zeros((markets, slots, *width), dtype=out.action.dtype, device=core.device)
    else:
        kind, fields["orders"] = packing.definitions_of_programs(out.inputs, rows16=kept), out.action
    core.roll_out(kind, len(out.rows), fields, given)
    _write_rows(out.last_rows, core.seen("observation", core.roles[0], 0))


def _write_rows(rows: torch.Tensor, observation: torch.Tensor) -> None:
    size = observation.shape[-1]
    rows[..., :size] = observation
    rows[..., size] = 1.0


# Step by step ---------------------------------------------------------------------------------------------------------


@torch.no_grad()
def _play_by_steps(
    envs: Any, core: EnvCore, networks: Sequence[NetworkPolicy], out: PolicyRollout, seed: torch.Tensor, noise: bool
) -> None:
    """Play the same with torch's networks, in float32; without any the learner's slot has a program."""
    market, stands = core.simulator.tensors, core.lets_stand
    takes_part: Any = out.played
    observation = _as_tensor(envs.observation, core)
    try:
        core.lets_stand = True
        for t in range(len(out.rows)):
            _write_rows(out.rows[t], observation)
            stopped = (market["error"] & STOPPED) != 0
            torch.logical_not(core.tensors["done"] | stopped, out=takes_part[t])
            action = None
            if networks:
                words = words_of(seed, market["seed"], market["episode"], market["t"])
                action = _as_output(_decide(networks, observation, words, out, t, noise), envs)
            observation, reward, terminated, truncated, infos = envs.step(action)
            observation = _as_tensor(observation, core)
            if not networks:
                quotes = core.played.quotes[:, 0]
                out.action[t] = torch.where(takes_part[t].view(-1, *[1] * (quotes.dim() - 1)), quotes, 0)
            for buffer, result in ((out.reward, reward), (out.terminated, terminated), (out.truncated, truncated)):
                buffer[t] = _as_tensor(result, core)
            seen = infos["final_obs"] if core.autoreset == SAME_STEP else observation
            final, ends = out.final_rows[t // out.every], (out.truncated[t] & takes_part[t])[:, None]
            size = observation.shape[-1]
            final[:, :size] = torch.where(ends, _as_tensor(seen, core).to(final.dtype), final[:, :size])
            final[:, size] = 1.0
            if out.decision_events is not None:
                out.decision_events[t] = _as_tensor(infos["decision_events"], core)
    finally:
        core.lets_stand = stands
    _write_rows(out.last_rows, observation)


def _as_tensor(given: Any, core: EnvCore) -> torch.Tensor:
    return torch.as_tensor(given, device=core.device)


def _as_output(action: torch.Tensor, envs: Any) -> Any:
    return action if envs.unwrapped.output == "torch" else action.cpu().numpy()


def _decide(
    networks: Sequence[NetworkPolicy],
    observation: torch.Tensor,
    words: torch.Tensor,
    out: PolicyRollout,
    t: int,
    noise: bool,
) -> torch.Tensor:
    """Record a decision of every market; returns what is played."""
    parts = observation.chunk(len(networks))
    outputs, value = (
        torch.cat(each)
        for each in zip(*(network(part) for network, part in zip(networks, parts, strict=True)), strict=True)
    )
    out.value[t] = value
    if networks[0].shape.categorical:
        choice = (outputs + gumbels(words, outputs.shape[1]) if noise else outputs).argmax(-1)
        out.action[t] = choice
        out.log_prob[t] = outputs.log_softmax(-1).gather(1, choice[:, None])[:, 0]
        return choice
    deviations: list[Any] = [network.log_std for network in networks]
    log_std = torch.cat([own.expand(len(part), -1) for own, part in zip(deviations, parts, strict=True)])
    drawn = normals(words, outputs.shape[1]) if noise else torch.zeros_like(outputs)
    out.action[t] = outputs + log_std.exp() * drawn
    out.log_prob[t] = (-0.5 * drawn.square() - log_std - LOG_ROOT_2PI).sum(-1)
    return out.action[t].clamp(-1.0, 1.0)
