"""Time PPO's update on a rollout of random numbers: torch's, compiled, against the kernels of kineticsim_env.training.

    python -m scripts.benchmarks.fused_update --output update.json              # 65,536 markets, 32 decisions; a GPU
    python -m scripts.benchmarks.fused_update --shapes default --sweep          # which sizes of a launch are fastest

Both run in one process, captured as CUDA graphs, with the settings of `examples/ppo_fast.py`. What is printed, and
written as JSON, are nanoseconds per sample and epoch, and microseconds of each kernel. Without a GPU only Triton's
interpreter is there, which tests that this file runs.
"""

import argparse
import dataclasses
import itertools
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples"))

import ppo_fast as ppo  # noqa: E402
from ppo_learners import FusedLearner, TorchLearner  # noqa: E402

from kineticsim_env.policies import NetworkPolicy  # noqa: E402
from kineticsim_env.policies.rollouts import PolicyRollout  # noqa: E402
from kineticsim_env.training import PPO, Launch  # noqa: E402
from scripts.benchmarks.training_rate import attempt, kernels_of, timed  # noqa: E402
from scripts.machine import describe  # noqa: E402
from scripts.pages.provenance import stamp  # noqa: E402

SHAPES: dict[str, dict[str, Any]] = {  # inputs, actions and the kind of a policy
    "default": {"observations": 39, "actions": 4},
    "trunk": {"observations": 39, "actions": 4, "trunk": True},
    "categorical": {"observations": 39, "actions": 64, "categorical": True},
    "relu": {"observations": 39, "actions": 4, "activation": "relu"},
    "wide": {"observations": 39, "actions": 4, "hidden": 128},
    "wide trunk": {"observations": 39, "actions": 4, "hidden": 128, "trunk": True},
    "widest": {"observations": 127, "actions": 64, "hidden": 128, "trunk": True},
}
SWEPT = {"rows": (32, 64, 128), "programs": (66, 132, 264), "warps": (4, 8), "stages": (1, 2)}


def random_rollout(policy: NetworkPolicy, options: argparse.Namespace, device: torch.device) -> PolicyRollout:
    """Return a rollout whose actions and log-probabilities are those of the policy."""
    kind = torch.bfloat16 if device.type == "cuda" else torch.float32
    rollout = PolicyRollout.empty(policy.shape, options.steps, options.markets, every=300, device=device, dtype=kind)
    inputs = policy.shape.inputs
    for rows in (rollout.rows, rollout.final_rows, rollout.last_rows):
        rows[..., :inputs] = torch.randn(*rows.shape[:-1], inputs, device=device)
    with torch.no_grad():
        for t in range(options.steps):
            outputs, value = policy(rollout.rows[t, :, :inputs].float())
            if policy.shape.categorical:
                drawn: Any = torch.distributions.Categorical(logits=outputs)
                rollout.action[t] = drawn.sample()
                rollout.log_prob[t] = drawn.log_prob(rollout.action[t])
            else:
                assert policy.log_std is not None
                drawn = torch.distributions.Normal(outputs, policy.log_std.exp())
                rollout.action[t] = drawn.sample()
                rollout.log_prob[t] = drawn.log_prob(rollout.action[t]).sum(-1)
            rollout.value[t] = value
    rollout.reward.normal_()
    rollout.truncated[options.steps // 2, ::9] = True
    return rollout


def phases_of(learner: Any, options: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Time both phases, as graphs where there is a GPU; and list the kernels."""
    found: dict[str, Any] = {}
    samples, epochs = options.steps * options.markets, options.epochs
    for name in ("estimate", "learn"):
        phase = getattr(learner, name)
        kernels = kernels_of(phase) if device.type == "cuda" and phase() is None else {}
        seconds = timed(captured(phase, device), device, options.seconds)
        passes = epochs if name == "learn" else 1
        found[name] = {"ms": 1e3 * seconds, "ns_per_sample_and_epoch": 1e9 * seconds / samples / passes}
        found[name]["kernels"] = kernels
    return found


def captured(phase: Callable[[], Any], device: torch.device) -> Callable[[], Any]:
    """Return a call that replays a phase, after it has run."""
    phase()
    if device.type != "cuda":
        return phase
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        phase()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        phase()
    return graph.replay


def default_update(options: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Time both learners of `ppo_fast.py` on the same rollout."""
    args = ppo.Args(num_steps=options.steps, num_envs=options.markets, update_epochs=options.epochs)
    args.fill_in(device.type == "cuda")
    networks = ppo.ActorCritic(39, 4, args.hidden, args.initial_std).to(device)
    trainer = SimpleNamespace(
        args=args,
        networks=networks,
        device=device,
        cuda=device.type == "cuda",
        stream=torch.cuda.Stream() if device.type == "cuda" else None,
        longest=1,
        wait=torch.cuda.synchronize if device.type == "cuda" else lambda: None,
        batch=random_rollout(networks.policy(value=True), options, device),
    )
    makers = {"torch": lambda: TorchLearner(trainer), "fused": lambda: FusedLearner(trainer)}
    return {name: attempt(lambda make=make: phases_of(make(), options, device)) for name, make in makers.items()}


def fused_update(shape: str, launch: Launch | None, options: argparse.Namespace, device: torch.device) -> Any:
    """Time the fused update of a policy of some shape."""
    policy = NetworkPolicy.make(**SHAPES[shape]).to(device)
    rollout = random_rollout(policy, options, device)
    update = PPO(policy, launch=launch, epochs=options.epochs, learning_rate=0.0)
    learner = SimpleNamespace(estimate=lambda: update.estimate(rollout), learn=lambda: update.learn(rollout))
    return phases_of(learner, options, device) | {"launch": dataclasses.asdict(update._launch)}


def report(name: str, row: Any) -> None:
    """Print one line of what was found, and its kernels."""
    if "failed" in row:
        print(f"{name} FAILED:\n{row['failed'][-600:]}", flush=True)
        return
    learn, estimate = row["learn"], row["estimate"]
    each = f"{learn['ns_per_sample_and_epoch']:.3f} ns per sample and epoch, {learn['ms']:.2f} ms"
    print(f"{name}: {each}; advantages {estimate['ms']:.2f} ms", flush=True)
    for phase in ("learn", "estimate"):
        for kernel, (ms, calls) in row[phase]["kernels"].get("longest_ms_and_calls", {}).items():
            print(f"    {1e3 * ms / calls:8.1f} us, {calls:3d} times: {kernel}")


def main(words: Sequence[str] | None = None) -> None:
    """Measure what the command line asks for, or the words given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markets", type=int, default=65536, help="markets of the rollout (65536)")
    parser.add_argument("--steps", type=int, default=32, help="decisions of the rollout (32)")
    parser.add_argument("--epochs", type=int, default=4, help="passes over it (4)")
    parser.add_argument("--seconds", type=float, default=0.5, help="about how long to time each (0.5)")
    parser.add_argument("--shapes", nargs="*", default=list(SHAPES), choices=list(SHAPES), metavar="NAME")
    parser.add_argument("--sweep", action="store_true", help="time other sizes of the gradients' launch, too")
    parser.add_argument("--output", default="fused_update.json", help="the JSON file (fused_update.json)")
    options = parser.parse_args(words)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cuda":
        device = torch.device("cuda", torch.cuda.current_device())
        torch.set_float32_matmul_precision("high")
    asked = {name: getattr(options, name) for name in ("markets", "steps", "epochs")}
    found: dict[str, Any] = {"machine": describe(), "rules": stamp("benchmarks"), **asked}
    found |= default_update(options, device)
    for name in ("torch", "fused"):
        report(name, found[name])
    for shape in options.shapes:
        found[f"shape {shape}"] = attempt(lambda shape=shape: fused_update(shape, None, options, device))
        report(f"shape {shape}", found[f"shape {shape}"])
        for sizes in itertools.product(*SWEPT.values()) if options.sweep else ():
            launch = Launch(**dict(zip(SWEPT, sizes, strict=True)))
            name = f"shape {shape}, {', '.join(f'{value} {what}' for what, value in zip(SWEPT, sizes, strict=True))}"
            found[name] = attempt(lambda shape=shape, launch=launch: fused_update(shape, launch, options, device))
            report(name, found[name])
            Path(options.output).write_text(json.dumps(found, indent=1) + "\n")
    Path(options.output).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
