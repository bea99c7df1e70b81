"""Proximal policy optimisation (PPO) of a market maker in one file, after CleanRL's `ppo_continuous_action.py`.

Hundreds of markets step together, and every tensor stays on the engine's device, CPU or GPU. At the end the learned
maker plays held-out episodes next to scripted makers, whose parameters were searched once, on training seeds, by
`tune_scripted_policies.py`. `make demo` runs this file. `ppo_fast.py` is the same algorithm for large runs on GPUs.

    python examples/ppo_market_maker.py --help
    python examples/ppo_market_maker.py --time-limit-minutes 4
    python examples/ppo_market_maker.py --time-limit-minutes 4 --preset continuous
"""

import dataclasses
import json
import time
from pathlib import Path
from typing import Any, Literal, NamedTuple

import gymnasium as gym
import numpy as np
import torch
import tyro
from torch import nn
from torch.distributions import Normal
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

import kineticsim_env  # noqa: F401, registers the environments
from kineticsim_env import MarketConfig, policies, run_seed
from kineticsim_env.envs.settings import EnvSettings
from kineticsim_env.evaluation import HELD_OUT_SEED, confidence_interval, evaluate, evaluation_env, format_table
from kineticsim_env.runtime.options import changes_of
from kineticsim_env.zoo import SCRIPTED

TUNE = "python examples/tune_scripted_policies.py"
LEARNED = "PPO (learned)"


@dataclasses.dataclass
class Args:
    """Train a market maker with PPO and compare it with scripted ones."""

    seed: int = 1  # seed of the networks; market m trains on the market seed run_seed(seed) + m
    preset: str = EnvSettings.preset  # the market
    set: tuple[str, ...] = ()  # changes of its fields, such as quote_latency=10
    engine: Literal["auto", "cuda", "cpu", "numpy"] = "auto"  # where the markets run
    output: Path = Path("runs/ppo_market_maker")  # folder of the TensorBoard log, the networks and the table
    total_steps: int = 0  # environment steps to train for; 0 takes 20 million on a CPU and 200 million on a GPU
    time_limit_minutes: float = 0.0  # stop training after this long, whatever total_steps says; 0 is no limit
    num_envs: int = 0  # markets; 0 takes 256 on a CPU and 16384 on a GPU
    num_steps: int = 64  # decisions in each market between updates
    learning_rate: float = 1e-3  # of Adam, falling linearly to a tenth over training
    gamma: float = 0.0  # discount per decision; 0 takes 0.97 in call auctions and 0.99 under continuous trading
    gae_lambda: float = 0.9  # of generalised advantage estimation
    num_minibatches: int = 4  # minibatches per epoch
    update_epochs: int = 4  # passes over each rollout; with 2 some seeds fall back after a good start
    clip_coef: float = 0.2  # how far the policy's probability ratio may move
    ent_coef: float = 0.0  # weight of the entropy bonus
    vf_coef: float = 0.5  # weight of the value loss
    max_grad_norm: float = 0.5  # gradients are clipped to this norm
    hidden: int = 64  # width of the two hidden layers of the policy and of the value network
    initial_std: float = 0.4  # standard deviation of the policy's actions at the start
    reward_scale: float = 50.0  # rewards are divided by this, so that values are of the order of one
    at_end: Literal["truncate", "unwind"] = "truncate"  # cut the episode, or sell what is held, pay that, and end it
    eval_envs: int = 2048  # held-out episodes of the final comparison; a quarter of that now and then in training
    num_evals: int = 10  # evaluations in training

    def __post_init__(self) -> None:
        """Fill in the discount: quotes that wait in queues are paid later."""
        self.gamma = self.gamma or (0.99 if MarketConfig.preset(self.preset).is_continuous else 0.97)


class ActorCritic(nn.Module):
    """A Gaussian policy and a value network, of two hidden layers each."""

    def __init__(self, observations: int, actions: int, hidden: int, initial_std: float) -> None:
        super().__init__()

        def layer(inputs: int, outputs: int, gain: float = 2**0.5) -> nn.Linear:
            linear = nn.Linear(inputs, outputs)
            nn.init.orthogonal_(linear.weight, gain)
            nn.init.zeros_(linear.bias)
            return linear

        def network(outputs: int, gain: float) -> nn.Sequential:
            hidden_layers = layer(observations, hidden), nn.Tanh(), layer(hidden, hidden), nn.Tanh()
            return nn.Sequential(*hidden_layers, layer(hidden, outputs, gain))

        self.actor, self.critic = network(actions, 0.01), network(1, 1.0)
        self.log_std = nn.Parameter(torch.full((actions,), initial_std).log())

    def policy(self, observation: torch.Tensor) -> Normal:
        """Return the distribution of actions, independent for each number of an action."""
        return Normal(self.actor(observation), self.log_std.exp(), validate_args=False)

    def value(self, observation: torch.Tensor) -> torch.Tensor:
        """Return the expected discounted sum of future rewards."""
        return self.critic(observation).squeeze(-1)

    def act(self, observation: torch.Tensor) -> torch.Tensor:
        """Return the mean action, inside the action space: the policy that is evaluated."""
        return self.actor(observation).clamp(-1.0, 1.0)


class Rollout(NamedTuple):
    """T decisions in each of M markets: float32 `[T, M]`, observations `[T, M, F]`, actions `[T, M, 4]`."""

    observation: torch.Tensor
    action: torch.Tensor
    log_prob: torch.Tensor
    value: torch.Tensor
    reward: torch.Tensor
    going_on: torch.Tensor  # 0 where the decision ended an episode, else 1


@torch.no_grad()
def play(args: Args, envs: Any, networks: ActorCritic, observation: torch.Tensor) -> tuple[Rollout, torch.Tensor]:
    """Play `num_steps` decisions in every market; returns the rollout, and the observations after it."""
    decisions = []
    for _ in range(args.num_steps):
        policy, value = networks.policy(observation), networks.value(observation)
        action = policy.sample()
        following, reward, terminated, truncated, infos = envs.step(action.clamp(-1.0, 1.0))
        # A truncated episode would have gone on: the rest is worth the value of its last observation.
        reward = reward + args.gamma * truncated * networks.value(infos["final_obs"])
        going_on = (~(terminated | truncated)).float()
        decisions.append(Rollout(observation, action, policy.log_prob(action).sum(-1), value, reward, going_on))
        observation = following
    return Rollout(*map(torch.stack, zip(*decisions, strict=True))), observation


def advantages(rollout: Rollout, last_value: torch.Tensor, gamma: float, gae_lambda: float) -> torch.Tensor:
    """Generalised advantage estimation (Schulman et al. 2016, equation 16) over `[T, M]`."""
    result, advantage, next_value = torch.empty_like(rollout.reward), torch.zeros_like(last_value), last_value
    for t in reversed(range(len(result))):
        going_on = rollout.going_on[t]
        delta = rollout.reward[t] + gamma * going_on * next_value - rollout.value[t]
        result[t] = advantage = delta + gamma * gae_lambda * going_on * advantage
        next_value = rollout.value[t]
    return result


def update(
    args: Args, networks: ActorCritic, optimizer: torch.optim.Optimizer, rollout: Rollout, gain: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Improve the networks on a rollout and its advantages; returns the losses of the last minibatch, for the log."""
    target = gain + rollout.value
    gain = (gain - gain.mean()) / (gain.std() + 1e-8)
    batch = [part.flatten(0, 1) for part in (rollout.observation, rollout.action, rollout.log_prob, gain, target)]
    for _ in range(args.update_epochs):
        for rows in torch.randperm(gain.numel(), device=gain.device).chunk(args.num_minibatches):
            observation, action, old_log_prob, advantage, target = (part[rows] for part in batch)
            policy = networks.policy(observation)
            log_ratio = policy.log_prob(action).sum(-1) - old_log_prob
            ratio = log_ratio.exp()
            clipped = ratio.clamp(1 - args.clip_coef, 1 + args.clip_coef)
            policy_loss = -torch.min(advantage * ratio, advantage * clipped).mean()
            value_loss = 0.5 * (networks.value(observation) - target).square().mean()
            entropy = policy.entropy().sum(-1).mean()
            loss = policy_loss + args.vf_coef * value_loss - args.ent_coef * entropy
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(networks.parameters(), args.max_grad_norm)
            optimizer.step()
    divergence = (ratio - 1 - log_ratio).mean()
    losses = {"policy": policy_loss, "value": value_loss, "entropy": entropy, "approx_kl": divergence}
    return {name: loss.detach() for name, loss in losses.items()}


def train(args: Args, envs: Any, networks: ActorCritic, test_envs: Any) -> list[tuple[int, float]]:
    """Train the networks; returns the learning curve: steps, and mean liquidated PnL on training seeds."""
    optimizer = torch.optim.Adam(networks.parameters(), lr=args.learning_rate, eps=1e-5)
    observation, _ = envs.reset(seed=run_seed(args.seed))
    steps, fraction, began, curve = 0, 0.0, time.perf_counter(), []
    with SummaryWriter(args.output) as writer, tqdm(total=args.total_steps, unit="step", unit_scale=True) as bar:
        while True:
            if fraction >= len(curve) / args.num_evals or fraction >= 1.0:
                pnl, half_width = evaluate(networks.act, test_envs, run_seed(args.seed)).pnl_interval()
                curve.append((steps, pnl))
                writer.add_scalar("charts/liquidated_pnl", pnl, steps)
                bar.set_postfix_str(f"liquidated PnL {pnl:.0f} ± {half_width:.0f} ticks")
            if fraction >= 1.0:
                return curve
            optimizer.param_groups[0]["lr"] = args.learning_rate * (1.0 - 0.9 * fraction)
            rollout, observation = play(args, envs, networks, observation)
            with torch.no_grad():
                gain = advantages(rollout, networks.value(observation), args.gamma, args.gae_lambda)
            losses = update(args, networks, optimizer, rollout, gain)

            steps += gain.numel()
            bar.update(gain.numel())
            seconds = time.perf_counter() - began
            fraction = max(steps / args.total_steps, seconds / 60 / (args.time_limit_minutes or float("inf")))
            for name, loss in losses.items():
                writer.add_scalar(f"losses/{name}", loss, steps)
            writer.add_scalar("charts/steps_per_second", steps / seconds, steps)


def scripted_makers(args: Args, envs: Any) -> tuple[dict[str, policies.Policy], dict[str, str]]:
    """Return the makers to beat, and what to say of their parameters; exits if the file is of another market."""
    everything, entry = json.loads(SCRIPTED.read_text()), ", ".join(["MarketMaking", args.preset, *args.set])
    if entry not in everything:
        changes = f" --set {' '.join(args.set)}" if args.set else ""
        command = f"{TUNE} --preset {args.preset}{changes} --tasks MarketMaking"
        raise SystemExit(f"{SCRIPTED} has no entry {entry!r}; run {command}")
    found = everything[entry]
    here = {**vars(envs.simulator.config), **vars(envs.core.task), "auctions_per_step": envs.core.auctions_per_step}
    here = json.loads(json.dumps(here, default=np.ndarray.tolist))  # as the file has it: no tuples, no arrays
    chosen, makers, notes = found["policies"], {}, {}
    try:
        changed = [name for name, value in found["market"].items() if here.get(name) != value]
        if changed:
            raise ValueError(f"it was made with another {', '.join(changed)}")
        for name, one in chosen.items():
            makers[name] = getattr(policies, one["policy"])(envs.core.task, **one["parameters"])
            notes[name] = ", ".join(f"{key}={value}" for key, value in one["parameters"].items())
    except (AttributeError, TypeError, ValueError) as error:
        raise SystemExit(f"{SCRIPTED} does not fit: {error}; run {found['command']}") from error
    return makers, notes


def main(args: Args) -> dict[str, float]:
    """Train and compare; returns the mean liquidated PnL of each policy on held-out episodes, in ticks."""
    on_gpu = args.engine in ("auto", "cuda") and torch.cuda.is_available()
    args.num_envs = args.num_envs or (16384 if on_gpu else 256)
    args.total_steps = args.total_steps or (200_000_000 if on_gpu else 20_000_000)
    torch.manual_seed(args.seed)
    market: dict[str, Any] = {name: getattr(args, name) for name in ("engine", "reward_scale", "at_end")}
    market["config"] = MarketConfig.preset(args.preset, **changes_of(args.set))
    envs: Any = gym.make_vec("KineticSim/MarketMaking-v0", num_envs=args.num_envs, output="torch", **market)
    makers, notes = scripted_makers(args, envs)
    size = envs.single_observation_space.shape[0], envs.single_action_space.shape[0]
    networks = ActorCritic(*size, args.hidden, args.initial_std).to(envs.device)
    print(f"training in {args.num_envs} markets on {envs.device}")
    curve = train(
        args, envs, networks, evaluation_env(args.eval_envs // 4, warm_seed=envs.core.task.warm_seed, **market)
    )
    torch.save(networks.state_dict(), args.output / "networks.pt")

    held_out = evaluation_env(args.eval_envs, **market)  # with warm starts, too, that no training run has seen
    results = {name: evaluate(policy, held_out, HELD_OUT_SEED) for name, policy in makers.items()}
    results[LEARNED] = evaluate(networks.act, held_out, HELD_OUT_SEED)
    table = format_table(results, notes)
    (args.output / "table.md").write_text(table + "\n")
    best = max(makers, key=lambda name: results[name].pnl.mean())
    lead, half_width = confidence_interval(results[LEARNED].pnl - results[best].pnl)
    print(f"\n{curve[-1][0]:,} steps; {args.eval_envs} held-out episodes, 95% confidence intervals\n\n{table}\n")
    print(f"On the same episodes the learned maker leads {best} by {lead:.0f} ± {half_width:.0f} ticks.")
    print(f"The table, the networks and the TensorBoard log are in {args.output}.")
    return {name: float(result.pnl.mean()) for name, result in results.items()}


if __name__ == "__main__":
    main(tyro.cli(Args))
