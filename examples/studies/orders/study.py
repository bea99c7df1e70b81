"""One maker of the study: its market, its training by PPO and the held-out episodes that it plays; `__main__.py` asks.

A `Learner` is made once for a variant in a preset, and trains seed after seed with the same environments, buffers and
captured programs. What a GPU needs for it is compiled before, many at a time, in processes of their own.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import torch
import torch.nn.functional as F
from gymnasium.spaces import flatdim

from kineticsim_env import MarketConfig, run_seed
from kineticsim_env.evaluation import HELD_OUT_SEED, evaluation_env, liquidate
from kineticsim_env.tasks import MarketMakingTask

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import ppo_fast  # noqa: E402
from ppo_comparison import machine_name  # noqa: E402, F401, what records are measured on

PRESETS = ("continuous", "news")
HORIZON, WARMUP = MarketMakingTask.horizon, MarketMakingTask.warmup  # intervals of the preset
GAMMA = 0.99  # per interval of the preset
QTY, LEVELS = 9, 3  # units of each side, all levels together
POINTS = 20  # of a learning curve
LOOK_EVERY = 16  # decisions between looks at whether all episodes have ended
ASIDE = 240.0  # seconds that other processes are given to compile

LADDER = {"orders_per_side": LEVELS}
VARIANTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # changes of the market, and settings of the task
    "plain": ({}, {"max_qty": QTY}),
    "fill": ({}, {"max_qty": QTY, "decide": "fill"}),
    "touch": ({}, {"max_qty": QTY, "decide": "touch"}),
    "keep": ({}, {"max_qty": QTY, "keep": True}),
    "ladder": (LADDER, {"max_qty": QTY // LEVELS}),
    "as often as fill": ({}, {"max_qty": QTY}),
    "shorter than touch": ({}, {"max_qty": QTY}),
    "keep, ladder": (LADDER, {"max_qty": QTY // LEVELS, "keep": True}),
    "longer than touch": ({}, {"max_qty": QTY}),
}
# Plain ones whose decisions have a fixed number of events, about as many as those of another have in the mean: the
# nearest number that fits, or where these are small the next below and above.
FREQUENT = {
    "as often as fill": ("fill", "nearest"),
    "shorter than touch": ("touch", "below"),
    "longer than touch": ("touch", "above"),
}


class Asked(NamedTuple):
    """What is trained: a variant in a preset, with decisions of at most so many events."""

    preset: str
    variant: str
    events: int


class Budget(NamedTuple):
    """How much each of them is trained and tried: an engine, markets and environment steps, held-out episodes."""

    engine: str
    markets: int
    steps: int
    episodes: int


def events_of(preset: str) -> int:
    """Return the events of a preset's interval."""
    return MarketConfig.preset(preset).events_per_interval


def as_short(preset: str, wanted: float, which: str) -> int:
    """Return how many events a decision is to have, so that a preset's episode is a whole number of decisions.

    Args:
        preset: The preset.
        wanted: How many they would be.
        which: Of the numbers that fit the `"nearest"` in ratio, or the next `"below"` or `"above"`.
    """
    events = events_of(preset)
    fitting = [one for one in range(1, events + 1) if HORIZON * events % one == 0]
    chosen = {
        "nearest": fitting,
        "below": [one for one in fitting if one <= wanted][-1:],
        "above": [one for one in fitting if one >= wanted][:1],
    }
    return min(chosen[which] or fitting, key=lambda one: abs(math.log(one / wanted)))


def market_of(asked: Asked) -> dict[str, Any]:
    """Return the arguments of the environment.

    Those whose decisions are shorter have intervals of one event, as where events end decisions, and so many of them in
    a decision. So all episodes and warm starts have the same number of events; and as what comes at an event is drawn
    by its number alone, all variants of a seed have the same orders come and the same news, up to what the maker itself
    changes.
    """
    changes, task = VARIANTS[asked.variant]
    events = events_of(asked.preset)
    market = {"config": MarketConfig.preset(asked.preset, **changes), "horizon": HORIZON, "warmup": WARMUP, **task}
    if asked.variant not in FREQUENT:
        return market
    shorter = {"config": market["config"].replace(interval=1), "auctions_per_step": asked.events}
    return market | shorter | {"horizon": HORIZON * events // asked.events, "warmup": WARMUP * events}


class Learner:
    """A variant in a preset: trains and plays from any seed."""

    def __init__(self, asked: Asked, budget: Budget) -> None:
        """Make the environments, and networks that are put back to a start for each seed."""
        self.asked = asked
        market: dict[str, Any] = {**market_of(asked), "engine": budget.engine}
        task = {name: market[name] for name in ("keep", "decide") if name in market}
        self.args = args = ppo_fast.Args(
            preset=asked.preset,
            num_envs=budget.markets,
            total_steps=budget.steps,
            gamma=GAMMA ** (asked.events / events_of(asked.preset)),
            track=False,
            **task,
        )
        market |= {name: getattr(args, name) for name in ("reward", "inventory_penalty", "reward_scale")}
        trains_in: dict[str, Any] = {"num_envs": budget.markets, "output": "torch", "copy": False, **market}
        self.envs: Any = gym.make_vec(f"KineticSim/{args.TASK}-v0", **trains_in)
        args.fill_in(self.envs.device.type == "cuda")
        self.held_out = evaluation_env(budget.episodes, args.TASK, **market)
        self.sizes = flatdim(self.envs.single_observation_space), flatdim(self.envs.single_action_space)
        self.networks = ppo_fast.ActorCritic(*self.sizes, args.hidden, args.initial_std).to(self.envs.device)
        self.trainer = ppo_fast.Trainer(args, self.envs, self.networks)
        self.envs.reset(seed=run_seed(1))
        self.preparing = self.trainer.prepare()

    @property
    def updates(self) -> int:
        """Updates of a training."""
        return max(1, self.args.total_steps // (self.args.num_envs * self.args.num_steps))

    def train(self, seed: int) -> dict[str, Any]:
        """Train from a seed, as `ppo_fast.py` does without evaluations; returns the curve, and what it took."""
        args, trainer, updates = self.args, self.trainer, self.updates
        torch.manual_seed(seed)
        start = ppo_fast.ActorCritic(*self.sizes, args.hidden, args.initial_std)
        self.networks.load_state_dict(start.state_dict())  # in place, as captured programs read it
        trainer.forget()
        self.envs.reset(seed=run_seed(seed))
        torch.manual_seed(seed)
        trainer.wait()
        began, curve, events = time.perf_counter(), [], 0.0
        shown = {updates * (point + 1) // POINTS - 1 for point in range(POINTS)} | {updates - 1}
        for update in range(updates):
            trainer.update(args.learning_rate * (1.0 - 0.9 * update / updates))
            played = self._events_of_rollout()
            events += played
            if update in shown:
                paid = trainer.batch.reward.sum(dtype=torch.float64) * args.reward_scale
                per_interval = float(paid / played) * events_of(self.asked.preset)
                curve.append([(update + 1) * trainer.batch.reward.numel(), per_interval])
        trainer.wait()
        seconds = time.perf_counter() - began
        self.envs.unwrapped.check_errors()
        steps = updates * trainer.batch.reward.numel()
        return {"steps": steps, "events": float(events), "updates": updates, "seconds": seconds, "curve": curve}

    def _events_of_rollout(self) -> Any:
        trainer = self.trainer
        if trainer.batch.decision_events is None:
            return float(trainer.batch.reward.numel() * self.asked.events)
        return trainer.batch.decision_events.sum(dtype=torch.float64)  # on the device, which nobody waits for

    def play(self, seed: int = HELD_OUT_SEED) -> dict[str, Any]:
        """Let the mean action play whole held-out episodes, and unwind them at the preset's pace; see `play`."""
        networks = self.networks
        layers = networks.layers(torch.float32)

        def act(observation: torch.Tensor) -> torch.Tensor:
            return networks(F.pad(observation, (0, networks.padding)), layers)[0].clamp(-1.0, 1.0)

        return play(act, self.held_out, seed, events_of(self.asked.preset))

    def settings(self) -> dict[str, Any]:
        """Return what a record says of how it was trained."""
        shown = "num_envs", "num_steps", "gamma", "gae_lambda", "hidden", "reward", "reward_scale", "update_epochs"
        said = {name: getattr(self.args, name) for name in (*shown, "num_minibatches", "learning_rate", "bf16")}
        observations, actions = self.sizes
        return said | {"observations": observations, "actions": actions}


@torch.no_grad()
def play(policy: Any, envs: Any, seed: int, events: int) -> dict[str, Any]:
    """Play one episode in every market, unwind all at the same pace, and count.

    Like `evaluate`, whose `pnl` it has; but an order that unwinds stands for `events` events whatever an interval of
    the environment is, and decisions are counted.

    Args:
        policy: Maps observations to continuous actions of a maker.
        envs: From `evaluation_env`.
        seed: Market m gets `seed + m`.
        events: Of the preset's interval.

    Returns:
        `pnl` float64 `[M]`; and means over markets: `decisions` of an episode; `traded`, units per `events` events;
        `inventory`, in size, at an event; `quoted`, units asked for per side and decision, all levels together; `kept`,
        the share of the levels' sides that a decision keeps.
    """
    core, task = envs.core, envs.core.task
    simulator, tensors, form = core.simulator, core.tensors, task.action_form("maker")
    each = simulator.config.events_per_interval  # 1 where decisions are not of the preset's interval
    longest = core.live_task.auctions_per_step * each  # events of a decision
    lasts = torch.full_like(tensors["elapsed"], longest)
    if task.decides_at_events:
        lasts = tensors["decision_events"]
    pnl = torch.zeros(envs.num_envs, dtype=torch.float64, device=core.device)
    decisions, traded, held, quoted, kept = (torch.zeros_like(pnl) for _ in range(5))
    observation, _ = envs.reset(seed=seed)
    core.lets_stand = True
    try:
        for decision in range(task.horizon * core.live_task.longest):
            action, before = policy(observation), simulator.inventory[:, 0].abs()
            observation = envs.step(action)[0]
            playing = lasts > 0  # others have ended, and stand
            levels = action.reshape(len(action), form.levels, form.of_level)
            decisions += playing
            traded += envs.fills.sum(1)
            held += before * lasts
            quoted += (torch.round((levels[..., 2:4] + 1) * 0.5 * task.max_qty).sum((1, 2)) / 2) * playing
            if form.keeps:
                kept += (levels[..., 4:] > 0).float().mean((1, 2)) * playing
            if decision % LOOK_EVERY == LOOK_EVERY - 1 and bool(tensors["done"].all()):
                break
    finally:
        core.lets_stand = False
    pace = events // each
    liquidate(simulator, 10_000 * pace, None, pace)
    means = {
        "decisions": decisions,
        "traded": traded * events / (task.horizon * longest),
        "inventory": held / (task.horizon * longest),
        "quoted": quoted / decisions,
        "kept": kept / decisions,
    }
    return {"pnl": simulator.money[:, 0].cpu()} | {name: float(value.mean()) for name, value in means.items()}


# Compiling beforehand -------------------------------------------------------------------------------------------------


def begin_to_compile(all_asked: Sequence[Asked], budget: Budget) -> list[Any]:
    """Begin to make what learners need on a GPU, each in a process of its own; returns these.

    Kernels and programs are kept on disk, where this process then finds them. One after another they take minutes.
    """
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=compile_for, args=(asked, budget), daemon=True) for asked in all_asked]
    for process in processes:
        process.start()
    return processes


def compile_for(asked: Asked, budget: Budget) -> None:
    """Make a learner, and let it launch all that it will."""
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    torch.set_num_threads(1)
    learner = Learner(asked, budget)
    held_out = learner.held_out
    held_out.reset(seed=0)
    held_out.step(torch.zeros((budget.episodes, learner.sizes[1]), device=held_out.device))
    simulator = held_out.simulator
    shape = *simulator.inventory.shape, *simulator.sizes["N"], 4
    simulator.step(torch.zeros(shape, dtype=torch.int32, device=simulator.device))  # as what unwinds does


def wait_for(processes: Sequence[Any]) -> None:
    """Wait until they have ended, but not for too long; what one has not made is made here, when it is needed."""
    last = time.monotonic() + ASIDE
    for process in processes:
        process.join(max(0.0, last - time.monotonic()))
        if process.is_alive():
            process.terminate()
