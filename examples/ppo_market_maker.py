"""Proximal policy optimisation of a market maker, in one file, after CleanRL's `ppo_continuous_action.py`.

The whole rollout stays on the engine's device: the environment's tensors go straight into the networks. At the end the
learned maker is compared, on held-out seeds and by liquidated PnL, with four scripted makers whose parameters were
searched on training seeds under the same limits.

    python examples/ppo_market_maker.py --help
    python examples/ppo_market_maker.py --time-limit-minutes 3.5
"""

import dataclasses
import json
import os
import platform
import time
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import torch
import tyro
from gymnasium.spaces import flatdim
from torch import nn
from torch.distributions import Normal
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

import kineticsim_env  # noqa: F401, registers the environments
from kineticsim_env import policies
from kineticsim_env.engines import choose_engine
from kineticsim_env.evaluation import HELD_OUT_SEED, evaluate, evaluation_env, format_table, grid_search
from kineticsim_env.vector_env import MarketMakingVectorEnv


@dataclasses.dataclass
class Args:
    """Train a market maker with PPO and compare it with scripted ones."""

    seed: int = 1
    """seed of the networks, and run r of the training markets (r * 2^32)"""
    engine: Literal["auto", "cuda", "cpu", "numpy"] = "auto"
    """where the markets run"""
    output: Path = Path("runs/ppo_market_maker")
    """folder of the checkpoint, the TensorBoard log, the table and the pictures"""
    resume: bool = False
    """go on from the checkpoint in the output folder"""
    track: bool = True
    """write TensorBoard scalars"""

    total_steps: int = 0
    """environment steps to train for; 0 takes 20 million on a CPU and 600 million on a GPU"""
    time_limit_minutes: float = 0.0
    """stop training after this long, whatever total_steps says; 0 is no limit"""
    num_envs: int = 0
    """markets; 0 takes 256 on a CPU and 16384 on a GPU"""
    num_steps: int = 0
    """decisions in each market between updates; 0 takes 64 on a CPU and 32 on a GPU"""
    learning_rate: float = 1e-3
    """of Adam, falling linearly to a tenth over training"""
    gamma: float = 0.97
    """discount a decision"""
    gae_lambda: float = 0.9
    """of generalised advantage estimation"""
    num_minibatches: int = 4
    """minibatches an epoch"""
    update_epochs: int = 4
    """passes over each rollout"""
    clip_coef: float = 0.2
    """how far the policy's probability ratio may move"""
    ent_coef: float = 0.0
    """weight of the entropy bonus"""
    vf_coef: float = 0.5
    """weight of the value loss"""
    max_grad_norm: float = 0.5
    """gradients are clipped to this norm"""
    hidden: int = 64
    """width of the two hidden layers of the policy and of the value network"""
    initial_std: float = 0.4
    """standard deviation of the policy's actions at the start"""

    reward: Literal["inventory", "pnl", "asymmetric"] = "inventory"
    """what the learner is paid"""
    inventory_penalty: float = 0.002
    """ticks a squared unit of inventory and decision"""
    reward_scale: float = 50.0
    """rewards are divided by this, so that values are of the order of one"""
    auctions_per_step: int = 1
    """auctions a decision"""

    eval_envs: int = 0
    """held-out episodes of the final comparison; 0 takes 2048, or 512 where only the slow NumPy engine runs"""
    eval_every: int = 0
    """updates between evaluations during training; 0 makes about twenty"""


def layer(inputs: int, outputs: int, gain: float = 2**0.5) -> nn.Linear:
    """Return a linear layer with orthogonal weights."""
    linear = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(linear.weight, gain)
    nn.init.zeros_(linear.bias)
    return linear


class Agent(nn.Module):
    """A Gaussian policy and a value network, apart from each other."""

    def __init__(self, observations: int, actions: int, hidden: int, initial_std: float) -> None:
        super().__init__()
        self.actor = nn.Sequential(
            layer(observations, hidden), nn.Tanh(), layer(hidden, hidden), nn.Tanh(), layer(hidden, actions, 0.01)
        )
        self.critic = nn.Sequential(
            layer(observations, hidden), nn.Tanh(), layer(hidden, hidden), nn.Tanh(), layer(hidden, 1, 1.0)
        )
        self.log_std = nn.Parameter(torch.full((actions,), float(np.log(initial_std))))

    def distribution(self, observation: torch.Tensor) -> Normal:
        """Return the distribution of actions; samples may leave [-1, 1] and are clamped at the environment's door."""
        return Normal(self.actor(observation), self.log_std.exp(), validate_args=False)

    def value(self, observation: torch.Tensor) -> torch.Tensor:
        """Return the values of a batch of observations."""
        return self.critic(observation).squeeze(-1)

    def act(self, observation: torch.Tensor) -> torch.Tensor:
        """Return the mean action, inside the space: the policy that is evaluated."""
        return self.actor(observation).clamp(-1.0, 1.0)


@torch.no_grad()
def advantages(
    rewards: torch.Tensor, ends: torch.Tensor, terminated: torch.Tensor, values: torch.Tensor, nexts: torch.Tensor,
    gamma: float, gae_lambda: float,
) -> torch.Tensor:  # fmt: skip
    """Generalised advantage estimation (Schulman et al. 2016, equation 16) over `[T, M]`.

    `nexts` are the values of the observations before any reset, so an episode that is cut off at its horizon is
    bootstrapped, and only one that terminated is not.
    """
    delta = rewards + gamma * nexts * ~terminated - values
    keep = gamma * gae_lambda * ~ends
    result, last = torch.empty_like(delta), torch.zeros_like(delta[0])
    for t in reversed(range(len(delta))):
        last = delta[t] + keep[t] * last
        result[t] = last
    return result


class Trainer:
    """The rollout's buffers, the optimiser and one update."""

    def __init__(self, args: Args, envs: MarketMakingVectorEnv, agent: Agent) -> None:
        self.args, self.envs, self.agent = args, envs, agent
        self.device = envs.device
        shape = (args.num_steps, args.num_envs)

        def buffer(*more: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
            return torch.zeros(*shape, *more, dtype=dtype, device=self.device)

        size, actions = flatdim(envs.single_observation_space), flatdim(envs.single_action_space)
        self.observations, self.finals, self.actions = buffer(size), buffer(size), buffer(actions)
        self.log_probs, self.rewards = buffer(), buffer()
        self.terminated, self.ends = buffer(dtype=torch.bool), buffer(dtype=torch.bool)
        self.optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5)
        self.observation = torch.empty(0)

    @torch.no_grad()
    def rollout(self) -> None:
        """Play `num_steps` decisions in every market."""
        observation = self.observation
        for t in range(self.args.num_steps):
            distribution = self.agent.distribution(observation)
            action = distribution.sample()
            self.observations[t], self.actions[t] = observation, action
            self.log_probs[t] = distribution.log_prob(action).sum(-1)
            observation, reward, terminated, _, infos = self.envs.step(action.clamp(-1.0, 1.0))
            self.rewards[t], self.terminated[t] = reward, terminated
            self.finals[t], self.ends[t] = infos["final_obs"], infos["_final_obs"]
        self.observation = observation

    def update(self, learning_rate: float) -> dict[str, torch.Tensor]:
        """Improve the networks on the last rollout; returns what there is to log."""
        args, agent = self.args, self.agent
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        with torch.no_grad():
            values, nexts = agent.value(self.observations), agent.value(self.finals)
        advantage = advantages(
            self.rewards, self.ends, self.terminated, values, nexts, args.gamma, args.gae_lambda
        ).flatten()
        target = advantage + values.flatten()
        observations, actions = self.observations.flatten(0, 1), self.actions.flatten(0, 1)
        log_probs, old_values = self.log_probs.flatten(), values.flatten()
        batch = len(target)
        for _ in range(args.update_epochs):
            for index in torch.randperm(batch, device=self.device).chunk(args.num_minibatches):
                distribution = agent.distribution(observations[index])
                log_ratio = distribution.log_prob(actions[index]).sum(-1) - log_probs[index]
                ratio = log_ratio.exp()
                gain = advantage[index]
                gain = (gain - gain.mean()) / (gain.std() + 1e-8)
                clipped = ratio.clamp(1 - args.clip_coef, 1 + args.clip_coef)
                policy_loss = -torch.min(gain * ratio, gain * clipped).mean()
                value = agent.value(observations[index])
                value_loss = 0.5 * (value - target[index]).square().mean()
                entropy = distribution.entropy().sum(-1).mean()
                loss = policy_loss + args.vf_coef * value_loss - args.ent_coef * entropy
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm)
                self.optimizer.step()
        with torch.no_grad():
            residual = (target - old_values).var() / target.var()
            return {
                "losses/policy": policy_loss,
                "losses/value": value_loss,
                "losses/entropy": entropy,
                "losses/approx_kl": ((ratio - 1) - log_ratio).mean(),
                "losses/explained_variance": 1 - residual,
                "charts/reward_per_decision": self.rewards.mean() * args.reward_scale,
            }

    def save(self, update: int, curve: list[dict], seconds: float) -> None:
        """Write the checkpoint; a run that is stopped while it does so keeps the one before."""
        saved = {
            "agent": self.agent.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "envs": self.envs.state_dict(),
            "rng": torch.get_rng_state(),
            "update": update,
            "seconds": seconds,
            "curve": json.dumps(curve),
        }
        if self.device.type == "cuda":
            saved["cuda_rng"] = torch.cuda.get_rng_state(self.device)
        unfinished = self.args.output / "checkpoint.pt.tmp"
        torch.save(saved, unfinished)
        unfinished.replace(self.args.output / "checkpoint.pt")

    def load(self) -> tuple[int, list[dict], float]:
        """Take over the checkpoint; returns its update, learning curve and seconds spent."""
        checkpoint = self.args.output / "checkpoint.pt"
        if not checkpoint.exists():
            raise SystemExit(f"--resume: there is no {checkpoint}; start without --resume")
        saved = torch.load(checkpoint, map_location=self.device, weights_only=True)
        self.agent.load_state_dict(saved["agent"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.envs.load_state_dict(saved["envs"])
        self.observation = self.envs.observation.clone()
        torch.set_rng_state(saved["rng"].cpu())
        if "cuda_rng" in saved and self.device.type == "cuda":
            torch.cuda.set_rng_state(saved["cuda_rng"].cpu(), self.device)
        return saved["update"], json.loads(saved["curve"]), saved["seconds"]


def train(args: Args, envs: MarketMakingVectorEnv, agent: Agent, held_out: MarketMakingVectorEnv) -> list[dict]:
    """Train, log, evaluate now and then, and leave a checkpoint; returns the learning curve."""
    trainer = Trainer(args, envs, agent)
    batch = args.num_envs * args.num_steps
    updates, first, curve, spent = max(1, args.total_steps // batch), 0, [], 0.0
    trainer.observation, _ = envs.reset(seed=args.seed << 32)
    if args.resume:
        first, curve, spent = trainer.load()
    every = args.eval_every or max(1, updates // 20)
    writer = SummaryWriter(args.output / "tensorboard", purge_step=first * batch or None) if args.track else None
    started = time.perf_counter() - spent
    bar = tqdm(total=updates * batch, unit="step", unit_scale=True, desc="training")
    bar.update(first * batch)
    fraction, next_eval = first / max(1, updates), time.perf_counter()
    for update in range(first, updates):
        elapsed = time.perf_counter() - started
        fraction = max(update / updates, elapsed / (60 * args.time_limit_minutes) if args.time_limit_minutes else 0.0)
        due = time.perf_counter() >= next_eval if args.time_limit_minutes else update % every == 0
        if (due or fraction >= 1.0) and not (curve and curve[-1]["steps"] == update * batch):
            next_eval = time.perf_counter() + 60 * args.time_limit_minutes / 20
            mean, half = evaluate(agent.act, held_out, args.seed << 32).pnl_interval()
            curve.append({"steps": update * batch, "seconds": elapsed, "pnl": mean, "half": half})
            bar.set_postfix_str(f"liquidated PnL {mean:.0f} ± {half:.0f}")
            if writer:
                writer.add_scalar("charts/liquidated_pnl", mean, update * batch)
            trainer.save(update, curve, time.perf_counter() - started)
        if fraction >= 1.0:
            break
        trainer.rollout()
        scalars = trainer.update(args.learning_rate * (1.0 - 0.9 * min(1.0, fraction)))
        bar.update(batch)
        if writer and update % 10 == 0:
            for name, value in scalars.items():
                writer.add_scalar(name, value.item(), (update + 1) * batch)
            rate = (update + 1) * batch / (time.perf_counter() - started)
            writer.add_scalar("charts/SPS", rate, (update + 1) * batch)
    else:
        update = max(first, updates)
    if envs.device.type == "cuda":
        torch.cuda.synchronize()
    seconds, steps = time.perf_counter() - started, update * batch
    bar.close()
    print(f"trained {steps:,} steps in {seconds:.0f} s: {steps / seconds:,.0f} steps/s, evaluations included")
    if not (curve and curve[-1]["steps"] == steps):
        mean, half = evaluate(agent.act, held_out, args.seed << 32).pnl_interval()
        curve.append({"steps": steps, "seconds": seconds, "pnl": mean, "half": half})
    trainer.save(update, curve, seconds)
    envs.check_errors()
    if writer:
        writer.close()
    return curve


GRIDS = {
    "fixed spread": (policies.FixedSpread, {"half_spread": [2, 3, 4, 5, 6, 7], "qty": [4, 6, 8]}),
    "Avellaneda-Stoikov": (
        policies.AvellanedaStoikov,
        {
            "risk": [0.01, 0.02, 0.04, 0.06, 0.08, 0.12],
            "kappa": [0.12, 0.15, 0.18, 0.21, 0.25, 0.3, 0.4],
            "stationary": [True, False],
        },
    ),
}


def machine_name(device: torch.device) -> str:
    """Say what the figures were measured on."""
    software = f"torch {torch.__version__}, Python {platform.python_version()}"
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)}, CUDA {torch.version.cuda}, {software}"
    return f"{os.cpu_count()} {platform.machine()} cores, {software}"


def scripted_makers(envs: MarketMakingVectorEnv, seed: int) -> tuple[dict[str, policies.Policy], dict[str, str]]:
    """Return the scripted makers, the best of each grid on training seeds, and how their grids went."""
    task = envs.core.task
    makers: dict[str, policies.Policy] = {
        "no trade": policies.NoTrade(task),
        "random quotes": policies.RandomQuotes(task),
    }
    notes = {}
    for name, (make, grid) in GRIDS.items():
        best, rows = grid_search(make, grid, envs, seed)
        makers[name] = make(task, **best)
        notes[name] = ", ".join(f"{key}={value}" for key, value in best.items()) + f" (best of {len(rows)})"
    return makers, notes


def draw_curve(curve: list[dict], intervals: dict[str, tuple[float, float]], path: Path) -> None:
    """Draw liquidated PnL against training steps, and the scripted makers as lines."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(8, 4.5), layout="constrained")
    steps, pnl, half = (np.array([point[key] for point in curve]) for key in ("steps", "pnl", "half"))
    axis.fill_between(steps / 1e6, pnl - half, pnl + half, alpha=0.25)
    axis.plot(steps / 1e6, pnl, marker=".", label="PPO (training seeds)")
    for number, (name, (mean, _)) in enumerate(item for item in intervals.items() if item[0] != "PPO (learned)"):
        axis.axhline(mean, color=f"C{number + 1}", linestyle="--", linewidth=1, label=f"{name} (held-out seeds)")
    axis.set(xlabel="training steps, millions", ylabel="liquidated PnL an episode, ticks")
    axis.set_title("Learning to make a market")
    floor = min(mean for name, (mean, _) in intervals.items() if name != "random quotes")
    axis.set_ylim(bottom=max(float(pnl.min()), floor - 500), top=None)
    axis.legend(fontsize=8)
    axis.grid(alpha=0.3)
    figure.savefig(path, dpi=120)
    plt.close(figure)


@torch.no_grad()
def draw_episode(agent: Agent, envs: MarketMakingVectorEnv, path: Path) -> None:
    """Draw one held-out episode: prices and quotes, inventory, and marked PnL."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    core, simulator = envs.core, envs.simulator
    agent = agent.to(core.device)
    observation, _ = envs.reset(seed=HELD_OUT_SEED)
    rows = []
    for _ in range(core.task.horizon):
        mid = float(simulator.mid2[0]) / 2
        action = agent.act(observation)
        offset = torch.round((action[0, :2] + 1) * 0.5 * core.task.max_offset).tolist()
        observation = envs.step(action)[0]
        inventory, cash = int(simulator.inventory[0, 0]), int(simulator.cash[0, 0])
        value = int(simulator.fundamental_price[0])
        bought, sold = envs.fills[0].tolist()
        bid, ask, pnl = np.floor(mid) - offset[0], np.ceil(mid) + offset[1], cash + inventory * value
        rows.append((mid, bid, ask, value, inventory, pnl, float(simulator.last_price[0]), bought, sold))
    mid, bid, ask, value, inventory, pnl, price, bought, sold = np.array(rows).T
    time_axis = np.arange(len(mid))
    figure, axes = plt.subplots(3, 1, figsize=(9, 8), sharex=True, height_ratios=[3, 1, 1], layout="constrained")
    axes[0].fill_between(time_axis, bid, ask, alpha=0.2, step="mid", label="own bid to own ask")
    axes[0].plot(time_axis, mid, linewidth=1, label="mid")
    axes[0].plot(time_axis, value, linewidth=1, color="black", label="fundamental")
    axes[0].scatter(time_axis[bought > 0], price[bought > 0], s=9, marker="^", color="C2", label="bought")
    axes[0].scatter(time_axis[sold > 0], price[sold > 0], s=9, marker="v", color="C3", label="sold")
    axes[0].set(ylabel="price, ticks", title="One held-out episode of the learned maker")
    axes[0].legend(ncols=5, fontsize=8)
    axes[1].step(time_axis, inventory, where="mid")
    axes[1].set(ylabel="inventory, units")
    axes[2].plot(time_axis, pnl)
    axes[2].set(ylabel="PnL at the\nfundamental, ticks", xlabel="decision")
    for axis in axes:
        axis.grid(alpha=0.3)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main(args: Args) -> dict[str, float]:
    """Train, compare and draw; returns mean liquidated PnL by policy."""
    torch.manual_seed(args.seed)
    args.output.mkdir(parents=True, exist_ok=True)
    engine, device = choose_engine(args.engine)
    market: dict[str, Any] = {
        "reward": args.reward,
        "inventory_penalty": args.inventory_penalty,
        "reward_scale": args.reward_scale,
        "auctions_per_step": args.auctions_per_step,
        "engine": engine,
    }
    on_gpu, slow = device.type == "cuda", engine == "numpy"
    args.num_envs = args.num_envs or (16384 if on_gpu else 256)
    args.num_steps = args.num_steps or (32 if on_gpu else 64)
    args.total_steps = args.total_steps or (600_000_000 if on_gpu else 20_000_000)
    envs: Any = gym.make_vec("KineticSim/MarketMaking-v0", num_envs=args.num_envs, output="torch", copy=False, **market)
    agent = Agent(
        flatdim(envs.single_observation_space), flatdim(envs.single_action_space), args.hidden, args.initial_std
    ).to(envs.device)
    args.eval_envs = args.eval_envs or (512 if slow else 2048)
    training = {"warm_seed": envs.core.task.warm_seed, **market}  # where PPO trains, others are fitted
    print(f"{args.num_envs} markets on {envs.simulator}")

    curve = train(args, envs, agent, evaluation_env(args.eval_envs // 4, **training))

    makers, notes = scripted_makers(evaluation_env(args.eval_envs // 2, **training), args.seed << 32)
    held_out = evaluation_env(args.eval_envs, **market)
    results = {name: evaluate(maker, held_out, HELD_OUT_SEED) for name, maker in makers.items()}
    results["PPO (learned)"] = evaluate(agent.act, held_out, HELD_OUT_SEED)
    table = format_table(results, notes)
    print(f"\n{args.eval_envs} held-out episodes, 95% confidence intervals\n\n{table}\n")
    (args.output / "table.md").write_text(table + "\n")
    intervals = {name: result.pnl_interval() for name, result in results.items()}
    record = {
        "args": dataclasses.asdict(args),
        "machine": machine_name(device),
        "curve": curve,
        "pnl": intervals,
        "notes": notes,
    }
    (args.output / "results.json").write_text(json.dumps(record, indent=1, default=str) + "\n")
    draw_curve(curve, intervals, args.output / "learning_curve.png")
    draw_episode(agent, evaluation_env(1, **market), args.output / "episode.png")
    print(f"pictures, table and checkpoint are in {args.output}{os.sep}")
    return {name: mean for name, (mean, _) in intervals.items()}


if __name__ == "__main__":
    arguments = tyro.cli(Args)
    try:
        main(arguments)
    except KeyboardInterrupt:
        raise SystemExit(f"\nstopped; --resume goes on from the checkpoint in {arguments.output}{os.sep}") from None
