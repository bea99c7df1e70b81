"""Independent PPO of many learners in the same markets, in one file: the learners of a role share their parameters.

Every role has a policy and a value network of its own, and learns from its own rewards (IPPO); with `--central-critic`
values are of what all learners of a market see together (MAPPO). A learner whose episode has ended before its market's
takes no part in advantages and losses until the market begins anew. The loop stays on the engine's device: on a GPU
rollouts and updates are captured once as CUDA graphs and replayed, and the host waits only every tenth update. At the
end each role is compared, on held-out seeds and in the same markets, with the best of scripted policies in its place.

    python examples/ippo_many_learners.py --learners maker=2 momentum=1 noise=1 executor=1
    python examples/ippo_many_learners.py --central-critic --action-type discrete
"""

import dataclasses

import math

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
import tyro
from gymnasium.spaces import Discrete, flatdim
from ippo_comparison import compare
from torch import nn
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

from kineticsim_env import BatchedParallelEnv
from kineticsim_env.tasks.base import MARKET_FEATURES

LOG_ROOT_2PI = 0.5 * math.log(2 * math.pi)
LOOK_EVERY = 10  # updates between looks at the results on a GPU
BLOCKS = ("noise", "executor")  # roles with something to trade by a deadline
Partners = Mapping[str, Mapping[int, Callable[[torch.Tensor], torch.Tensor]]]


@dataclasses.dataclass
class Args:
    """Train learners of several roles in the same markets."""

    learners: tuple[str, ...] = ("maker=2", "momentum=1", "noise=1", "executor=1")
    """how many learners of each role, of maker, momentum, noise, executor and trader"""
    action_type: Literal["continuous", "discrete"] = "continuous"
    """the form of all learners' actions"""
    central_critic: bool = False
    """values of the market's state() rather than of a learner's own observation"""
    seed: int = 1
    """seed of the networks, and run r of the training markets (r * 2^32)"""
    engine: Literal["auto", "cuda", "cpu", "numpy"] = "auto"
    """where the markets run"""
    output: Path = Path("runs/ippo_many_learners")
    """folder of the networks, the TensorBoard log, the table and the picture"""
    track: bool = True
    """write TensorBoard scalars"""
    cuda_graphs: bool = True
    """on a GPU, capture rollouts and updates"""

    horizon: int = 100
    """decisions in an episode"""
    inventory_penalty: float = 0.002
    """ticks a squared unit and decision, of makers, momentum learners and traders"""
    total_steps: int = 0
    """decisions of whole markets to train for; 0 takes 1.5 million on a CPU and 100 million on a GPU"""
    num_envs: int = 0
    """markets; 0 takes 256 on a CPU and 16384 on a GPU"""
    num_steps: int = 32
    """decisions in each market between updates"""
    learning_rate: float = 1e-3
    """of Adam, falling linearly to a tenth over training"""
    gamma: float = 0.97
    """discount a decision, of roles that trade for profit"""
    block_gamma: float = 1.0
    """discount a decision, of roles with something to trade by a deadline: what waits until then costs no less"""
    gae_lambda: float = 0.9
    """of generalised advantage estimation"""
    num_minibatches: int = 4
    """minibatches an epoch"""
    update_epochs: int = 4
    """passes over each rollout"""
    clip_coef: float = 0.2
    """how far a policy's probability ratio may move"""
    ent_coef: float = 0.0
    """weight of the entropy bonus"""
    vf_coef: float = 0.5
    """weight of the value loss"""
    max_grad_norm: float = 0.5
    """gradients of each role are clipped to this norm"""
    hidden: int = 64
    """width of the two hidden layers of every network"""
    initial_std: float = 0.4
    """standard deviation of continuous actions at the start"""

    eval_envs: int = 0
    """held-out episodes of the final comparison; 0 takes 1024 on a CPU and 8192 on a GPU"""

    def fill_in(self, on_gpu: bool) -> None:
        """Replace what was left to the machine."""
        self.num_envs = self.num_envs or (16384 if on_gpu else 256)
        self.total_steps = self.total_steps or (100_000_000 if on_gpu else 1_500_000)
        self.eval_envs = self.eval_envs or (8192 if on_gpu else 1024)

    def counts(self) -> dict[str, int]:
        """Return how many learners of each role there are."""
        pairs = [word.partition("=") for word in self.learners]
        if not all(number.isdigit() for _, _, number in pairs):
            raise SystemExit(f"--learners: got {' '.join(self.learners)}, allowed are words such as maker=2")
        return {role: int(number) for role, _, number in pairs}

    def task(self) -> dict[str, Any]:
        """Return what environments are told, those of the comparison too."""
        names = ("engine", "action_type", "horizon", "inventory_penalty")
        return {name: getattr(self, name) for name in names} | {"copy": False}


def network(inputs: int, hidden: int, outputs: int, gain: float) -> nn.Sequential:
    """Return two hidden layers and an output, with orthogonal weights."""
    layers = nn.Linear(inputs, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, outputs)
    for layer, scale in zip(layers, (2**0.5, 2**0.5, gain), strict=True):
        nn.init.orthogonal_(layer.weight, scale)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])


class Agent(nn.Module):
    """The policy and the value network of a role; discrete actions are drawn from logits, continuous from Gaussians."""

    def __init__(self, envs: BatchedParallelEnv, role: str, args: Args) -> None:
        super().__init__()
        inputs, space = flatdim(envs.single_observation_spaces[role]), envs.single_action_spaces[role]
        whole = flatdim(envs.state_space) + inputs - MARKET_FEATURES if args.central_critic else inputs
        self.discrete = isinstance(space, Discrete)
        self.actor = network(inputs, args.hidden, flatdim(space), 0.01)
        self.critic = network(whole, args.hidden, 1, 1.0)
        if not self.discrete:
            self.log_std = nn.Parameter(torch.full((flatdim(space),), math.log(args.initial_std)))

    def sample(self, observation: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw actions; returns them, and the logarithms of their probabilities."""
        output = self.actor(observation)
        if self.discrete:  # the Gumbel trick: no host in it, unlike torch.multinomial
            action = (output - torch.empty_like(output).exponential_().log()).argmax(-1)
        else:
            action = output + self.log_std.exp() * torch.randn_like(output)
        return action, self.judge(output, action)[0]

    def judge(self, output: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log-probabilities and entropies of actions, given the actor's output."""
        if self.discrete:
            log_probs = output.log_softmax(-1)
            return log_probs.gather(-1, action[..., None])[..., 0], -(log_probs.exp() * log_probs).sum(-1)
        squares = ((action - output) * (-self.log_std).exp()).square()
        log_prob = -(0.5 * squares + self.log_std + LOG_ROOT_2PI).sum(-1)
        return log_prob, (0.5 + LOG_ROOT_2PI + self.log_std).sum().expand_as(log_prob)

    def legal(self, action: torch.Tensor) -> torch.Tensor:
        """Return actions inside the space."""
        return action if self.discrete else action.clamp(-1.0, 1.0)

    def act(self, observation: torch.Tensor) -> torch.Tensor:
        """Return the likeliest actions: the policy that is evaluated."""
        output = self.actor(observation)
        return output.argmax(-1) if self.discrete else output.clamp(-1.0, 1.0)


def advantages(
    rewards: torch.Tensor, active: torch.Tensor, ends: torch.Tensor, terminated: torch.Tensor,
    values: torch.Tensor, nexts: torch.Tensor, gamma: float, gae_lambda: float,
) -> torch.Tensor:  # fmt: skip
    """Generalised advantage estimation (Schulman et al. 2016, equation 16) over `[T, M, n]`.

    `active` says who acted; the others, whose episodes are over while their markets' go on, get 0. `nexts` are values
    of what was seen before any reset: a learner that is truncated is bootstrapped, one that terminated is not.
    """
    delta = (rewards + gamma * nexts * ~terminated - values) * active
    keep = gamma * gae_lambda * (active & ~ends)
    last, result = torch.zeros_like(delta[0]), []
    for t in reversed(range(len(delta))):
        last = delta[t] + keep[t] * last
        result.append(last)
    return torch.stack(result[::-1])


class Learners:
    """The learners of one role: their network, and their part of the rollout, `[T, M, n, ...]`."""

    def __init__(self, role: str, envs: BatchedParallelEnv, args: Args, partners: Mapping[int, Any]) -> None:
        self.gamma = args.block_gamma if role in BLOCKS else args.gamma
        self.agent, self.partners = Agent(envs, role, args).to(envs.device), partners
        length, markets, count = args.num_steps, envs.num_envs, len(envs.group_map[role])

        def buffer(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
            return torch.zeros((*shape, markets, count), dtype=dtype, device=envs.device)

        size = flatdim(envs.single_observation_spaces[role])
        self.observation = buffer(length)[..., None].repeat(1, 1, 1, size)
        self.final = buffer(-(-length // args.horizon))[..., None].repeat(1, 1, 1, size)
        width = None if self.agent.discrete else flatdim(envs.single_action_spaces[role])
        self.action = buffer(length)[..., None].repeat(1, 1, 1, width) if width else buffer(length, dtype=torch.int64)
        self.log_prob, self.value, self.reward = (buffer(length) for _ in range(3))
        self.terminated, self.truncated, self.active = (buffer(length, dtype=torch.bool) for _ in range(3))
        self.advantage, self.target = buffer(length), buffer(length)
        self.discounted, self.total = buffer(), buffer()  # of the episodes that run
        self.squares, self.episodes, self.losses = (torch.zeros(size, device=envs.device) for size in (2, 2, 4))
        self.mine = torch.ones(count, dtype=torch.bool, device=envs.device)
        self.mine[list(partners)] = False

    def note(self, t: int, reward: torch.Tensor, terminated: torch.Tensor, truncated: torch.Tensor) -> None:
        """Write the results of a decision, and count what they add up to."""
        active, ends = self.active[t], terminated | truncated
        for kept, given in ((self.reward, reward), (self.terminated, terminated), (self.truncated, truncated)):
            kept[t].copy_(given)
        self.discounted.mul_(self.gamma).add_(reward)
        self.squares.add_(torch.stack([(self.discounted.square() * active).sum(), active.sum()]))
        self.total.add_(reward)
        self.episodes.add_(torch.stack([(self.total * ends * self.mine).sum(), (ends & self.mine).sum()]))
        self.discounted.mul_(~ends)
        self.total.mul_(~ends)

    def loss(self, args: Args, chosen: torch.Tensor, state: torch.Tensor | None) -> torch.Tensor:
        """Return PPO's loss on chosen (decision, market) pairs, of the learners that acted there."""
        names = "observation", "action", "log_prob", "advantage", "target", "active"
        observation, action, log_prob, gain, target, active = (getattr(self, x).flatten(0, 1)[chosen] for x in names)
        weight = active / active.sum().clamp(min=1)
        new, entropy = self.agent.judge(self.agent.actor(observation), action)
        log_ratio = torch.where(active, new - log_prob, 0.0)
        ratio = log_ratio.exp()
        clipped = ratio.clamp(1 - args.clip_coef, 1 + args.clip_coef)
        value = self.agent.critic(critic_input(observation, state)).squeeze(-1)
        policy_loss = -(torch.min(gain * ratio, gain * clipped) * weight).sum()
        value_loss = 0.5 * ((value - target).square() * weight).sum()
        entropy = (entropy * weight).sum()
        self.losses.copy_(torch.stack([policy_loss, value_loss, entropy, ((ratio - 1 - log_ratio) * weight).sum()]))
        return policy_loss + args.vf_coef * value_loss - args.ent_coef * entropy


def critic_input(observation: torch.Tensor, state: torch.Tensor | None) -> torch.Tensor:
    """Return what values are of: observations `[..., n, F]`, or with states `[..., S]` these and a learner's own."""
    if state is None:
        return observation
    whole = state[..., None, :].expand(*observation.shape[:-1], state.shape[-1])
    return torch.cat([whole, observation[..., MARKET_FEATURES:]], dim=-1)


class Trainer:
    """One update is `rollout`, `estimate` and `learn`; CUDA graphs on a GPU."""

    def __init__(self, args: Args, envs: BatchedParallelEnv, partners: Partners | None = None) -> None:
        self.args, self.envs, self.device = args, envs, envs.device
        self.graphs = envs.device.type == "cuda" and args.cuda_graphs
        self.roles = {role: Learners(role, envs, args, (partners or {}).get(role, {})) for role in envs.group_map}
        self.state = self.final_state = None
        if args.central_critic:
            shape = envs.num_envs, flatdim(envs.state_space)
            self.state = torch.zeros((args.num_steps, *shape), device=self.device)
            self.final_state = torch.zeros((-(-args.num_steps // args.horizon), *shape), device=self.device)
        self.parameters = [list(learners.agent.parameters()) for learners in self.roles.values()]
        self.learning_rate = torch.zeros((), device=self.device)  # a tensor, so that a captured update reads it
        self.optimizer = torch.optim.Adam(
            sum(self.parameters, []), lr=self.learning_rate, eps=1e-5, fused=True, capturable=self.graphs
        )

    def prepare(self, seed: int) -> None:
        """Begin the markets' episodes, and capture, with the networks left as they are."""
        self.seen, infos = self.envs.reset(seed=seed)
        self.active = infos["active"]
        if not self.graphs:
            return
        stream = torch.cuda.Stream()
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.update(0.0)
        torch.cuda.synchronize()
        for name in ("rollout", "estimate", "learn"):
            graph, phase = torch.cuda.CUDAGraph(), getattr(self, name)
            with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                phase()
            setattr(self, name, graph.replay)
        counted = [getattr(one, x) for one in self.roles.values() for x in ("discounted", "total", "squares", "episodes")]
        for tensor in [*(x for state in self.optimizer.state.values() for x in state.values()), *counted]:
            tensor.zero_()
        self.envs.reset(seed=seed)  # into the same tensors
        torch.cuda.synchronize()

    @torch.no_grad()
    def rollout(self) -> None:
        """Play `num_steps` decisions in every market."""
        for t in range(self.args.num_steps):
            state = None if self.state is None else self.state[t].copy_(self.envs.state())
            actions = {}
            for role, one in self.roles.items():
                observation = one.observation[t].copy_(self.seen[role])
                torch.logical_and(self.active[role], one.mine, out=one.active[t])
                action, log_prob = one.agent.sample(observation)
                one.action[t].copy_(action)
                one.log_prob[t].copy_(log_prob)
                one.value[t].copy_(one.agent.critic(critic_input(observation, state)).squeeze(-1))
                actions[role] = one.agent.legal(action)
                for slot, policy in one.partners.items():
                    actions[role][:, slot] = policy(observation[:, slot])
            self.seen, rewards, terminated, truncated, infos = self.envs.step(actions)
            # A market's learners are cut off together, and at most once in a horizon of decisions.
            cut, part = torch.cat(list(truncated.values()), 1).any(1), t // self.args.horizon
            for role, one in self.roles.items():
                one.note(t, rewards[role], terminated[role], truncated[role])
                one.final[part].copy_(torch.where(cut[:, None, None], infos["final_obs"][role], one.final[part]))
            if self.final_state is not None:
                last = torch.where(cut[:, None], self.envs.state(final=True), self.final_state[part])
                self.final_state[part].copy_(last)

    @torch.no_grad()
    def estimate(self) -> None:
        """Estimate the advantages of the last rollout, with mean 0 and deviation 1 in each role.

        Rewards are divided by the root mean square of the discounted returns so far, as roles' rewards differ in size.
        """
        part = torch.arange(self.args.num_steps, device=self.device) // self.args.horizon
        state = None if self.state is None else self.envs.state()
        for role, one in self.roles.items():
            last = one.agent.critic(critic_input(self.seen[role], state)).squeeze(-1)
            cut_off = one.agent.critic(critic_input(one.final, self.final_state)).squeeze(-1)[part]
            nexts = torch.where(one.truncated, cut_off, torch.cat([one.value[1:], last[None]]))
            scale = (one.squares[1].clamp(min=1) / one.squares[0].clamp(min=1e-12)).sqrt()
            gain = advantages(
                one.reward * scale, one.active, one.terminated | one.truncated, one.terminated, one.value, nexts,
                one.gamma, self.args.gae_lambda,
            )  # fmt: skip
            one.target.copy_(gain + one.value)
            weight = one.active / one.active.sum().clamp(min=1)
            mean = (gain * weight).sum()
            deviation = ((gain - mean).square() * weight).sum().sqrt()
            one.advantage.copy_((gain - mean) / (deviation + 1e-8))

    def learn(self) -> None:
        """Improve the networks on the last rollout."""
        pairs = self.args.num_steps * self.envs.num_envs
        for _ in range(self.args.update_epochs):
            order = torch.rand(pairs, device=self.device).argsort()  # a permutation, without waiting for the GPU
            for chosen in order.chunk(self.args.num_minibatches):
                state = None if self.state is None else self.state.flatten(0, 1)[chosen]
                loss = torch.stack([one.loss(self.args, chosen, state) for one in self.roles.values()]).sum()
                self.optimizer.zero_grad()
                loss.backward()
                for parameters in self.parameters:
                    nn.utils.clip_grad_norm_(parameters, self.args.max_grad_norm)
                self.optimizer.step()

    def update(self, learning_rate: float) -> None:
        """Play, and improve the networks on what was played; returns before a GPU is done."""
        self.learning_rate.fill_(learning_rate)
        self.rollout()
        self.estimate()
        self.learn()

    def scalars(self) -> dict[str, float]:
        """Return what there is to log since the last time; waits for the GPU."""
        result = {}
        for role, one in self.roles.items():
            (total, episodes), losses = one.episodes.tolist(), one.losses.tolist()
            if episodes:
                result[f"{role}/episodic_return"] = total / episodes * self.envs.core.task.reward_scale
            result |= {
                f"{role}/{name}": value
                for name, value in zip(("policy_loss", "value_loss", "entropy", "approx_kl"), losses, strict=True)
            }
            one.episodes.zero_()
        return result


def train(args: Args, envs: BatchedParallelEnv, partners: Partners | None = None, name: str = "training") -> Any:
    """Train the learners of all roles; `partners` play for learners (by role and number) that do not learn.

    Returns:
        The `Agent` of each role, and the learning curve: what was logged, by role, and `steps` and `seconds`.
    """
    torch.manual_seed(args.seed)
    trainer, batch, curve = Trainer(args, envs, partners), args.num_envs * args.num_steps, []
    trainer.prepare(args.seed << 32)
    updates = max(1, args.total_steps // batch)
    every = LOOK_EVERY if envs.device.type == "cuda" else max(1, updates // 100)
    writer = SummaryWriter(args.output / "tensorboard") if args.track else None
    began = time.perf_counter()
    with tqdm(total=updates * batch, unit="decision", unit_scale=True, desc=name) as bar:
        for update in range(1, updates + 1):
            trainer.update(args.learning_rate * (1.0 - 0.9 * (update - 1) / updates))
            if update % every and update < updates:
                continue
            point = {"steps": update * batch, **trainer.scalars(), "seconds": time.perf_counter() - began}
            curve.append(point)
            bar.update(update * batch - bar.n)
            returns = [f"{x.partition('/')[0]} {point[x]:.4g}" for x in point if x.endswith("episodic_return")]
            bar.set_postfix_str(", ".join(returns))
            for tag in point if writer else ():
                writer.add_scalar(tag if "/" in tag else f"charts/{tag}", point[tag], update * batch)
    envs.check_errors()
    if writer:
        writer.add_scalar("charts/SPS", updates * batch / curve[-1]["seconds"], updates * batch)
        writer.close()
    return {role: one.agent for role, one in trainer.roles.items()}, curve


def main(args: Args) -> dict[str, Any]:
    """Train, save, compare and draw; returns the comparison by role."""
    learners: Mapping[str, int] = args.counts()
    num_envs = args.num_envs or (16384 if args.engine in ("auto", "cuda") and torch.cuda.is_available() else 256)
    envs = BatchedParallelEnv(num_envs, learners, **args.task())
    args.fill_in(envs.device.type == "cuda")
    args.output.mkdir(parents=True, exist_ok=True)
    print(f"{args.num_envs} markets, {args.learners} in each, on {envs.simulator}")
    agents, curve = train(args, envs)
    steps, seconds = curve[-1]["steps"], curve[-1]["seconds"]
    print(f"trained {steps:,} decisions in {seconds:.1f} s: {steps / seconds:,.0f} a second")
    for role, agent in agents.items():
        torch.save({"role": role, "learners": dict(learners), **agent.state_dict()}, args.output / f"{role}.pt")
    return compare(args, learners, agents, curve)


if __name__ == "__main__":
    main(tyro.cli(Args))
