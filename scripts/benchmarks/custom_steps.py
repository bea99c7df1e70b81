"""What a step takes with functions and tasks of a user's own, beside the built-in one; fills docs/performance.md.

    python -m scripts.benchmarks.custom_steps --measure    # on a GPU: plays, writes the file and the page
    python -m scripts.benchmarks.custom_steps              # the page, from the file

Each row is a step of the default market, called from Python, and in a CUDA graph; the best of some repetitions, all of
them in one run on one machine, in turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch

import kineticsim_env as ks
from scripts.machine import describe
from scripts.pages.command import figures_in, file_parser
from scripts.pages.markdown import machine_in, replaced, table, wrapped
from scripts.pages.provenance import ROOT, stamped

PAGE, FILE = ROOT / "docs" / "performance.md", ROOT / "docs" / "benchmarks" / "custom_steps.json"
MARKETS, STEPS, TIMES = (1024, 65536), 80, 7


class Pays(ks.CustomTask):
    """A reward of six operations."""

    def reward(self, before, after, memory):
        return (after.value - before.value - 0.1 * after.inventory * after.inventory) / 10.0


class Remembers(Pays):
    """Two numbers, which one operation each changes, and a feature of them."""

    memory = {"count": torch.int64, "goal": torch.float32}

    def begin(self, after, draws):
        return {"goal": after.mid.float()}

    def update(self, before, after, memory, draws):
        return {"count": memory.count + 1}

    def features(self, after, memory):
        return memory.goal / 100


class Draws(Remembers):
    """A random word in each decision besides."""

    decision_draws = 1

    def update(self, before, after, memory, draws):
        return {"count": memory.count + 1, "goal": memory.goal + draws.uniform[:, 0]}


class Acts(ks.CustomTask):
    """Actions of a space of its own, which stand for built-in ones."""

    action_space = gym.spaces.Box(-1, 1, (2,), np.float32)

    def orders(self, action, view, memory):
        return action.repeat_interleave(2, dim=1)  # a list of places would be copied to the GPU


class Records(ks.CustomTask):
    """Actions that stand for order records: two prices."""

    action_space = gym.spaces.Box(-1, 1, (2,), np.float32)

    def orders(self, action, view, memory):
        bid, ask = (view.mid[:, None] + 5 * action).int().unbind(1)
        size = torch.full_like(bid, 4)
        return ks.OrderRecords(torch.stack([torch.minimum(bid, ask - 1), size, ask, size], 1))


ROWS: dict[str, dict[str, Any]] = {
    "built-in reward": {},
    "`account_info=True`": {"account_info": True},
    "a reward of six operations": {"custom_task": Pays()},
    "and memory, updated and seen": {"custom_task": Remembers()},
    "and a draw per decision": {"custom_task": Draws()},
    "actions of its own, as built-in ones": {"custom_task": Acts()},
    "actions of its own, as order records": {"custom_task": Records()},
}


def make(markets: int, settings: Mapping[str, Any]) -> tuple[Any, torch.Tensor]:
    """Return an environment that was reset, and an action for it."""
    envs: Any = gym.make_vec("KineticSim/MarketMaking-v0", num_envs=markets, output="torch", copy=False, **settings)
    envs.reset(seed=0)
    return envs, torch.zeros(envs.action_space.shape, device=envs.unwrapped.device)


def captured(step: Callable[[], Any]) -> Callable[[], Any]:
    """Return a CUDA graph of a step, to be replayed."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def seconds(step: Callable[[], Any], device: torch.device) -> float:
    """Return the seconds of one step, in the mean of some."""
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    step()
    wait()
    began = time.perf_counter()
    for _ in range(STEPS):
        step()
    wait()
    return (time.perf_counter() - began) / STEPS


def measure() -> dict[str, Any]:
    """Return the microseconds of each row, by the number of markets."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for markets in MARKETS:
        steps: dict[str, dict[str, Callable[[], Any]]] = {}
        for name, settings in ROWS.items():
            envs, actions = make(markets, settings)
            device = envs.unwrapped.device
            step = lambda envs=envs, actions=actions: envs.step(actions)  # noqa: E731
            steps[name] = {"Python": step} | ({"graph": captured(step)} if device.type == "cuda" else {})
        best = {name: dict.fromkeys(of, float("inf")) for name, of in steps.items()}
        for _ in range(TIMES):
            for name, of in steps.items():
                for form, step in of.items():
                    best[name][form] = min(best[name][form], 1e6 * seconds(step, device))
        found[str(markets)] = best
    return stamped("custom_steps", {"machine": describe(), "microseconds": found})


def body(record: Mapping[str, Any]) -> str:
    """Return the page's table, and how it was measured."""
    found, rules = record["microseconds"], record["rules"]
    forms = list(next(iter(next(iter(found.values())).values())))
    heads = ["a step with", *(f"{int(markets):,} markets, {form}" for markets in found for form in forms)]
    rows = [[name, *(f"{of[name][form]:.1f}" for of in found.values() for form in forms)] for name in ROWS]
    told = wrapped(
        "Microseconds of a step of `news`, called from Python and in a CUDA graph, `copy=False`, SAME_STEP; the best "
        f"of {TIMES} times {STEPS} steps in turn, one {machine_in(record)}, {rules['date']}, commit {rules['commit']} "
        f"([figures](benchmarks/{FILE.name}))."
    )
    return f"{told}\n\n{table(heads, rows, (False, *[True] * (len(heads) - 1)))}"


def main(words: Sequence[str] | None = None) -> None:
    """Measure, if that is asked for, and write the page."""
    parser = file_parser(__doc__, "play, and write the file", FILE, PAGE)
    options = parser.parse_args(words)
    found = figures_in(options, measure)
    options.page.write_text(replaced(options.page.read_text(), "custom steps", body(found)))
    print(f"wrote {options.page}")


if __name__ == "__main__":
    main()
