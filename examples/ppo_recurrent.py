"""Recurrent PPO in one file: a policy that remembers its episode, beside one that sees more moves, and a plain one.

The algorithm and its settings are those of `ppo_market_maker.py`; read that first. Here the networks have a MinGRU
(Feng et al. 2024, "Were RNNs all we needed?", section 3.1), whose gates depend on the present observation alone: those
of all decisions are one product of matrices, and only the sum over time is a loop. Minibatches are of whole sequences,
from the memory that the rollout began with; where an episode begins in one, memory is 0.

    python examples/ppo_recurrent.py --time-limit-minutes 3
    python examples/ppo_recurrent.py --task Trading --memory none     # the same networks without memory
    python examples/ppo_recurrent.py --memory stack                   # 16 moves and volumes in the observation
"""

from __future__ import annotations

import dataclasses
import math
import sys
import time
from pathlib import Path
from typing import Any, Literal, NamedTuple

import gymnasium as gym
import torch
import tyro
from torch import nn
from torch.distributions import Normal
from tqdm import tqdm

from kineticsim_env import run_seed
from kineticsim_env.evaluation import HELD_OUT_SEED, MEASURES, Evaluation, evaluate, evaluation_env
from kineticsim_env.wrappers import StackObservation

sys.path.insert(0, str(Path(__file__).resolve().parent))

import ppo_market_maker as plain  # noqa: E402
from ppo_networks import layer  # noqa: E402

STACKED, MOVES = (22, 26), 16  # places of the last move of the mid and of the last volume, and how many are seen


@dataclasses.dataclass
class Args(plain.Args):
    """Train with PPO and a memory, and play held-out episodes."""

    output: Path = Path("runs/ppo_recurrent")  # folder of the networks
    task: Literal["MarketMaking", "Execution", "Trading"] = "MarketMaking"  # what is learned
    memory: Literal["mingru", "stack", "none"] = "mingru"  # what the networks know of the decisions before


class MinGRU(nn.Module):
    """h = (1 - z) h + z x, with z and x of the present input alone."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gates = nn.Linear(width, 2 * width)
        spans = torch.logspace(0, math.log10(256), width)  # decisions over which each number forgets, at the start
        with torch.no_grad():
            self.gates.bias[:width] = -torch.log(spans)

    def forward(
        self, inputs: torch.Tensor, state: torch.Tensor, began: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what is remembered after each decision, float32 `[T, M, H]`, and after the last.

        Args:
            inputs: float32 `[T, M, H]`.
            state: What was remembered before them, `[M, H]`.
            began: Which of them begin an episode, bool `[T, M]`: what was before is forgotten there.
        """
        gate, new = self.gates(inputs).chunk(2, -1)
        gate = gate.sigmoid()
        kept, added, states = (1 - gate) * ~began[..., None], gate * new, []
        for keep, add in zip(kept.unbind(0), added.unbind(0), strict=True):
            state = keep * state + add
            states.append(state)
        return torch.stack(states), state


class Network(nn.Module):
    """Two hidden layers, of which the second sees a memory of the first's past, if there is one."""

    def __init__(self, inputs: int, hidden: int, outputs: int, gain: float, remembers: bool) -> None:
        super().__init__()

        self.first, self.memory = layer(inputs, hidden), MinGRU(hidden) if remembers else None
        self.second, self.last = layer(hidden * (1 + remembers), hidden), layer(hidden, outputs, gain)

    def forward(
        self, seen: torch.Tensor, state: torch.Tensor, began: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the outputs, `[T, M, outputs]`, and what is remembered after them; see `MinGRU`."""
        hidden = torch.tanh(self.first(seen))
        if self.memory is not None:
            remembered, state = self.memory(hidden, state, began)
            hidden = torch.cat([hidden, remembered], -1)
        return self.last(torch.tanh(self.second(hidden))), state


class ActorCritic(nn.Module):
    """A Gaussian policy and a value, networks of their own, each with its memory."""

    def __init__(self, observations: int, actions: int, args: Args) -> None:
        super().__init__()
        remembers = args.memory == "mingru"
        self.actor = Network(observations, args.hidden, actions, 0.01, remembers)
        self.critic = Network(observations, args.hidden, 1, 1.0, remembers)
        self.log_std = nn.Parameter(torch.full((actions,), args.initial_std).log())
        self.hidden = args.hidden

    def nothing(self, markets: int, device: torch.device) -> torch.Tensor:
        """Return an empty memory of both networks, float32 `[2, M, H]`."""
        return torch.zeros(2, markets, self.hidden, device=device)

    def forward(
        self, seen: torch.Tensor, state: torch.Tensor, began: torch.Tensor
    ) -> tuple[Normal, torch.Tensor, torch.Tensor]:
        """Return policies and values of decisions `[T, M]`, and what both remember after them, `[2, M, H]`."""
        mean, acting = self.actor(seen, state[0], began)
        value, judging = self.critic(seen, state[1], began)
        policy = Normal(mean, self.log_std.exp(), validate_args=False)
        return policy, value.squeeze(-1), torch.stack([acting, judging])


class Player:
    """The policy that is evaluated: its mean action, inside the action space, with a memory of its own."""

    def __init__(self, networks: ActorCritic) -> None:
        self.actor, self.began, self.state = networks.actor, None, None

    def reset(self, mask: torch.Tensor) -> None:
        """Forget the markets in the mask, bool `[M]`."""
        self.began = mask if self.began is None or self.began.shape != mask.shape else self.began | mask

    @torch.no_grad()
    def __call__(self, seen: torch.Tensor) -> torch.Tensor:
        """Return actions, float32 `[M, A]`, of observations `[M, F]`."""
        hidden = self.actor.first.out_features
        if self.state is None or len(self.state) != len(seen):
            self.state = torch.zeros(len(seen), hidden, device=seen.device)
        began = torch.zeros(len(seen), dtype=torch.bool, device=seen.device) if self.began is None else self.began
        mean, self.state = self.actor(seen[None], self.state, began[None])
        self.began = None
        return mean[0].clamp(-1.0, 1.0)


class Rollout(NamedTuple):
    """T decisions in each of M markets, `[T, M]`; observations `[T, M, F]`, actions `[T, M, A]`."""

    observation: torch.Tensor
    began: torch.Tensor  # whether the decision is the first of its episode
    action: torch.Tensor
    log_prob: torch.Tensor
    value: torch.Tensor
    reward: torch.Tensor
    going_on: torch.Tensor  # 0 where the decision ended an episode, else 1


class Now(NamedTuple):
    """Where a rollout goes on from: observations, which of them begin an episode, and memory."""

    observation: torch.Tensor
    began: torch.Tensor
    state: torch.Tensor


@torch.no_grad()
def play(args: Args, envs: Any, networks: ActorCritic, now: Now) -> tuple[Rollout, Now]:
    """Play `num_steps` decisions in every market; returns the rollout, and where it has come to."""
    decisions, (observation, began, state) = [], now
    for _ in range(args.num_steps):
        policy, value, state = networks(observation[None], state, began[None])
        action = policy.sample()
        following, reward, terminated, truncated, infos = envs.step(action[0].clamp(-1.0, 1.0))
        # A truncated episode would have gone on: the rest is worth the value of its last observation.
        last = networks(infos["final_obs"][None], state, torch.zeros_like(began)[None])[1][0]
        reward = reward + args.gamma * truncated * last
        ended = terminated | truncated
        log_prob = policy.log_prob(action).sum(-1)[0]
        decisions.append(Rollout(observation, began, action[0], log_prob, value[0], reward, (~ended).float()))
        observation, began = following, ended
    return Rollout(*map(torch.stack, zip(*decisions, strict=True))), Now(observation, began, state)


def update(
    args: Args,
    networks: ActorCritic,
    optimizer: torch.optim.Optimizer,
    rollout: Rollout,
    gain: torch.Tensor,
    state: torch.Tensor,
) -> None:
    """Improve the networks on a rollout that began with a memory, minibatch by minibatch of whole sequences."""
    target = gain + rollout.value
    gain = (gain - gain.mean()) / (gain.std() + 1e-8)
    for _ in range(args.update_epochs):
        for rows in torch.randperm(gain.shape[1], device=gain.device).chunk(args.num_minibatches):
            policy, value, _ = networks(rollout.observation[:, rows], state[:, rows], rollout.began[:, rows])
            ratio = (policy.log_prob(rollout.action[:, rows]).sum(-1) - rollout.log_prob[:, rows]).exp()
            clipped = ratio.clamp(1 - args.clip_coef, 1 + args.clip_coef)
            policy_loss = -torch.min(gain[:, rows] * ratio, gain[:, rows] * clipped).mean()
            value_loss = 0.5 * (value - target[:, rows]).square().mean()
            loss = policy_loss + args.vf_coef * value_loss - args.ent_coef * policy.entropy().sum(-1).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(networks.parameters(), args.max_grad_norm)
            optimizer.step()


def seen_by(args: Args, envs: Any) -> Any:
    """Return an environment as the networks see it."""
    return StackObservation(envs, MOVES, STACKED) if args.memory == "stack" else envs


def train(args: Args) -> tuple[ActorCritic, int]:
    """Train networks; returns them, and how many decisions they had."""
    torch.manual_seed(args.seed)
    market: dict[str, Any] = {"engine": args.engine, "preset": args.preset, "reward_scale": args.reward_scale}
    envs = seen_by(args, gym.make_vec(f"KineticSim/{args.task}-v0", num_envs=args.num_envs, output="torch", **market))
    size = envs.single_observation_space.shape[0], envs.single_action_space.shape[0]
    networks = ActorCritic(*size, args).to(envs.device)
    optimizer = torch.optim.Adam(networks.parameters(), lr=args.learning_rate, eps=1e-5)
    observation, _ = envs.reset(seed=run_seed(args.seed))
    first = torch.ones(args.num_envs, dtype=torch.bool, device=envs.device)
    now = Now(observation, first, networks.nothing(args.num_envs, envs.device))
    steps, fraction, started = 0, 0.0, time.perf_counter()
    with tqdm(total=args.total_steps, unit="step", unit_scale=True, desc=args.memory) as bar:
        while fraction < 1.0:
            optimizer.param_groups[0]["lr"] = args.learning_rate * (1.0 - 0.9 * fraction)
            state = now.state
            rollout, now = play(args, envs, networks, now)
            with torch.no_grad():
                last_value = networks(now.observation[None], now.state, now.began[None])[1][0]
                parts: Any = rollout  # has all that is asked for
                gain = plain.advantages(parts, last_value, args.gamma, args.gae_lambda)
            update(args, networks, optimizer, rollout, gain, state)
            steps += gain.numel()
            bar.update(gain.numel())
            seconds = time.perf_counter() - started
            fraction = max(steps / args.total_steps, seconds / 60 / (args.time_limit_minutes or float("inf")))
    envs.close()
    return networks, steps


def main(args: Args) -> Evaluation:
    """Train, and play held-out episodes; returns what came of them."""
    on_gpu = args.engine in ("auto", "cuda") and torch.cuda.is_available()
    args.num_envs = args.num_envs or (16384 if on_gpu else 256)
    args.total_steps = args.total_steps or (200_000_000 if on_gpu else 20_000_000)
    networks, steps = train(args)
    args.output.mkdir(parents=True, exist_ok=True)
    torch.save(networks.state_dict(), args.output / "networks.pt")
    held_out: Any = evaluation_env(args.eval_envs, args.task, engine=args.engine, preset=args.preset)
    player: Any = Player(networks)
    found = evaluate(player, seen_by(args, held_out), HELD_OUT_SEED)
    mean, half = found.pnl_interval()
    print(f"{args.memory}, {steps:,} decisions: {MEASURES[args.task]} {mean:,.2f} ± {half:.2f}")
    return found


if __name__ == "__main__":
    main(tyro.cli(Args))
