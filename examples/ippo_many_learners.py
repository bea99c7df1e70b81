"""Independent PPO of many learners in the same markets, in one file: the learners of a role share their parameters.

Every role has a policy and a value network of its own, and learns from its own rewards (IPPO); with `--central-critic`
values are of what all learners of a market see together (MAPPO). A learner whose episode has ended before its market's
takes no part in advantages and losses. Nothing waits for the host within an update: on a GPU rollouts and updates are
captured once as CUDA graphs. At the end each role is compared, on held-out seeds and in the same markets, with the
best of scripted policies in its place.

    python examples/ippo_many_learners.py --learners maker=2 momentum=1 noise=1 executor=1 --central-critic
"""

import dataclasses
import gc
import itertools
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import torch
import tyro
from gymnasium.spaces import Discrete, flatdim
from ippo_comparison import BLOCKS, compare
from torch import nn
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

from kineticsim_env import BatchedParallelEnv, run_seed
from kineticsim_env.engines import choose_engine
from kineticsim_env.envs.settings import EnvSettings
from kineticsim_env.tasks.base import MARKET_FEATURES

LOG_ROOT_2PI = 0.5 * math.log(2 * math.pi)
LOSSES = "policy_loss", "value_loss", "entropy", "approx_kl"  # in the log
Partners = Mapping[str, Mapping[int, Callable[[torch.Tensor], torch.Tensor]]]


@dataclasses.dataclass
class Args:
    """Train learners of several roles in the same markets."""

    learners: tuple[str, ...] = ("maker=2", "momentum=1", "noise=1", "executor=1")  # of which role how many
    preset: str = EnvSettings.preset  # the market
    action_type: Literal["continuous", "discrete"] = "continuous"  # the form of all learners' actions
    central_critic: bool = False  # values of the market's state() rather than of a learner's own observation
    seed: int = 1  # seed of the networks, and run r of the training markets (run_seed)
    engine: Literal["auto", "cuda", "cpu", "numpy"] = "auto"  # where the markets run
    output: Path = Path("runs/ippo_many_learners")  # folder of networks, TensorBoard log, table and picture
    start: Path | None = None  # folder of networks to go on from, of the same roles and settings
    cuda_graphs: bool = True  # on a GPU, capture rollouts and updates
    horizon: int = 100  # decisions in an episode
    inventory_penalty: float = 0.002  # ticks per squared unit and decision, of makers, momentum learners and traders
    total_steps: int = 0  # decisions of whole markets; 0 takes 3 million on a CPU and 100 million on a GPU
    num_envs: int = 0  # markets; 0 takes 256 on a CPU and 16384 on a GPU
    num_steps: int = 32  # decisions in each market between updates
    learning_rate: float = 1e-3  # of Adam, falling linearly to a tenth over training
    gamma: float = 0.97  # discount per decision, of roles that trade for profit
    gae_lambda: float = 0.9  # of their generalised advantage estimation
    block_gamma: float = 1.0  # discount of roles with something to trade by a deadline: nothing is cheaper for waiting
    block_gae_lambda: float = 0.95  # of their generalised advantage estimation
    num_minibatches: int = 4  # minibatches per epoch
    update_epochs: int = 4  # passes over each rollout
    clip_coef: float = 0.2  # how far a policy's probability ratio may move
    ent_coef: float = 0.0  # weight of the entropy bonus
    vf_coef: float = 0.5  # weight of the value loss
    max_grad_norm: float = 0.5  # gradients of each role are clipped to this norm
    hidden: int = 64  # width of the two hidden layers of every network
    initial_std: float = 0.2  # standard deviation of continuous actions at the start
    eval_envs: int = 0  # held-out episodes of the final comparison; 0 takes 2048 on a CPU and 8192 on a GPU

    def counts(self) -> dict[str, int]:
        """Return how many learners of each role there are."""
        pairs = [word.partition("=") for word in self.learners]
        if not all(number.isdigit() for _, _, number in pairs):
            raise SystemExit(f"--learners: expected words such as maker=2, got {' '.join(self.learners)}")
        return {role: int(number) for role, _, number in pairs}

    def task(self) -> dict[str, Any]:
        """Return the arguments of environments, also of those for the comparison."""
        names = ("preset", "engine", "action_type", "horizon", "inventory_penalty")
        rewards = {"reward": "inventory", "execution_reward": "shortfall"}
        return {name: getattr(self, name) for name in names} | {**rewards, "copy": False}


def network(inputs: int, hidden: int, outputs: int, gain: float) -> nn.Sequential:
    """Return two hidden layers and an output, with orthogonal weights."""
    layers = nn.Linear(inputs, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, outputs)
    for layer, scale in zip(layers, (2**0.5, 2**0.5, gain), strict=True):
        nn.init.orthogonal_(layer.weight, scale)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])


class ActorCritic(nn.Module):
    """The policy and the value network of a role; discrete actions are drawn from logits, continuous from Gaussians."""

    def __init__(self, envs: BatchedParallelEnv, role: str, args: Args) -> None:
        super().__init__()
        inputs, space = flatdim(envs.single_observation_spaces[role]), envs.single_action_spaces[role]
        extra = flatdim(envs.state_space) - MARKET_FEATURES if args.central_critic else 0
        self.discrete = isinstance(space, Discrete)
        self.actor = network(inputs, args.hidden, flatdim(space), 0.01)
        self.critic = network(inputs + extra, args.hidden, 1, 1.0)
        if not self.discrete:
            self.log_std = nn.Parameter(torch.full((flatdim(space),), math.log(args.initial_std)))

    def sample(self, observation: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw actions; returns them, and the logarithms of their probabilities."""
        output = self.actor(observation)
        if self.discrete:  # the Gumbel trick: no host in it, unlike torch.multinomial
            action = (output - torch.empty_like(output).exponential_().log()).argmax(-1)
        else:
            action = output + self.log_std.exp() * torch.randn_like(output)
        return action, self.log_prob_and_entropy(output, action)[0]

    def log_prob_and_entropy(self, output: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log-probabilities and entropies of actions, given the actor's output."""
        if self.discrete:
            log_probs = output.log_softmax(-1)
            return log_probs.gather(-1, action[..., None])[..., 0], -(log_probs.exp() * log_probs).sum(-1)
        squares = ((action - output) * (-self.log_std).exp()).square()
        log_prob = -(0.5 * squares + self.log_std + LOG_ROOT_2PI).sum(-1)
        return log_prob, (0.5 + LOG_ROOT_2PI + self.log_std).sum().expand_as(log_prob)

    def values(self, observation: torch.Tensor, state: torch.Tensor | None) -> torch.Tensor:
        """Return values of observations `[..., n, F]`, or with states `[..., S]` of these and a learner's own."""
        if state is not None:
            whole = state[..., None, :].expand(*observation.shape[:-1], state.shape[-1])
            observation = torch.cat([whole, observation[..., MARKET_FEATURES:]], dim=-1)
        return self.critic(observation).squeeze(-1)

    def act(self, observation: torch.Tensor) -> torch.Tensor:
        """Return the actions for evaluation: means, or draws if discrete, as the likeliest choice alone may be poor."""
        return self.sample(observation)[0] if self.discrete else self.actor(observation).clamp(-1.0, 1.0)


def advantages(
    rewards: torch.Tensor, active: torch.Tensor, terminated: torch.Tensor, truncated: torch.Tensor,
    values: torch.Tensor, nexts: torch.Tensor, gamma: float, gae_lambda: float,
) -> torch.Tensor:  # fmt: skip
    """Generalised advantage estimation (Schulman et al. 2016, equation 16) over `[T, M, n]`.

    `active` says who acted; others, whose episodes ended before their markets', get 0. `nexts` are values
    of what was seen next, before any reset: a learner that is truncated is bootstrapped, one that terminated is not.
    """
    delta = (rewards + gamma * nexts * ~terminated - values) * active
    keep = gamma * gae_lambda * (active & ~terminated & ~truncated)
    last, result = torch.zeros_like(delta[0]), []
    for t in reversed(range(len(delta))):
        last = delta[t] + keep[t] * last
        result.append(last)
    return torch.stack(result[::-1])


class Learners:
    """The learners of one role: their network, and their part of the rollout, `[T, M, n, ...]`."""

    def __init__(self, role: str, envs: BatchedParallelEnv, args: Args, partners: Mapping[int, Any]) -> None:
        self.gamma = args.block_gamma if role in BLOCKS else args.gamma
        self.gae_lambda = args.block_gae_lambda if role in BLOCKS else args.gae_lambda
        self.networks, self.partners = ActorCritic(envs, role, args).to(envs.device), partners
        if args.start:
            self.networks.load_state_dict(torch.load(args.start / f"{role}.pt", weights_only=True))
        shape = args.num_steps, envs.num_envs, len(envs.group_map[role])

        def buffer(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
            return torch.zeros(shape, dtype=dtype, device=envs.device)

        width, space = flatdim(envs.single_observation_spaces[role]), envs.single_action_spaces[role]
        self.observation = buffer(*shape, width)
        self.action = buffer(*shape, dtype=torch.int64) if self.networks.discrete else buffer(*shape, flatdim(space))
        self.log_prob, self.value, self.next_value, self.reward = (buffer(*shape) for _ in range(4))
        self.advantage, self.target = buffer(*shape), buffer(*shape)
        self.terminated, self.truncated, self.active = (buffer(*shape, dtype=torch.bool) for _ in range(3))
        self.discounted, self.total = buffer(*shape[1:]), buffer(*shape[1:])  # returns of the episodes that run
        self.squares, self.episodes, self.losses = buffer(2), buffer(2), buffer(4)
        self.mine = torch.tensor([slot not in partners for slot in range(shape[2])], device=envs.device)

    def note(self, t: int) -> None:
        """Add the results of a decision to the running returns."""
        active, reward, ends = self.active[t], self.reward[t], self.terminated[t] | self.truncated[t]
        self.discounted.mul_(self.gamma).add_(reward)
        self.squares.add_(torch.stack([(self.discounted.square() * active).sum(), active.sum()]))
        self.total.add_(reward)
        self.episodes.add_(torch.stack([(self.total * (ends & self.mine)).sum(), (ends & self.mine).sum()]))
        self.discounted.mul_(~ends)
        self.total.mul_(~ends)

    def loss(self, args: Args, chosen: torch.Tensor, state: torch.Tensor | None) -> torch.Tensor:
        """Return PPO's loss on chosen (decision, market) pairs, of the learners that acted there."""
        names = "observation", "action", "log_prob", "advantage", "target", "active"
        observation, action, log_prob, gain, target, active = (getattr(self, x).flatten(0, 1)[chosen] for x in names)
        weight = active / active.sum().clamp(min=1)
        new, entropy = self.networks.log_prob_and_entropy(self.networks.actor(observation), action)
        log_ratio = torch.where(active, new - log_prob, 0.0)
        ratio = log_ratio.exp()
        clipped = gain * ratio.clamp(1 - args.clip_coef, 1 + args.clip_coef)
        policy_loss = -(torch.min(gain * ratio, clipped) * weight).sum()
        value_loss = 0.5 * ((self.networks.values(observation, state) - target).square() * weight).sum()
        entropy, divergence = (entropy * weight).sum(), ((ratio - 1 - log_ratio) * weight).sum()
        self.losses.copy_(torch.stack([policy_loss, value_loss, entropy, divergence]).detach())
        return policy_loss + args.vf_coef * value_loss - args.ent_coef * entropy


class Trainer:
    """An update is `rollout`, `estimate` and `learn`; CUDA graphs on a GPU."""

    def __init__(self, args: Args, envs: BatchedParallelEnv, partners: Partners | None = None) -> None:
        self.args, self.envs, self.device = args, envs, envs.device
        self.cuda = envs.device.type == "cuda"
        self.roles = {role: Learners(role, envs, args, (partners or {}).get(role, {})) for role in envs.group_map}
        self.state = envs.state().repeat(args.num_steps, 1, 1) if args.central_critic else None
        self.parameters = [list(one.networks.parameters()) for one in self.roles.values()]
        self.learning_rate = torch.zeros((), device=self.device)  # a tensor, so that a captured update reads it
        flags: dict[str, Any] = {"fused": True, "capturable": self.cuda}
        self.optimizer = torch.optim.Adam(sum(self.parameters, []), self.learning_rate, eps=1e-5, **flags)

    def prepare(self, seed: int) -> None:
        """Begin the markets' episodes, and capture the graphs; the networks stay as they are."""
        self.seen, infos = self.envs.reset(seed=seed)
        self.active = infos["active"]
        if not (self.cuda and self.args.cuda_graphs):
            return
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.update(0.0)
        gc.collect()  # an older graph among the garbage would end a capture by being destroyed within it
        for name in ("rollout", "estimate", "learn"):
            graph, phase = torch.cuda.CUDAGraph(), getattr(self, name)
            with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                phase()
            setattr(self, name, graph.replay)
        counted = [(one.discounted, one.total, one.squares, one.episodes) for one in self.roles.values()]
        for tensor in itertools.chain(*counted, *(state.values() for state in self.optimizer.state.values())):
            tensor.zero_()
        self.envs.reset(seed=seed)  # into the same tensors

    @torch.no_grad()
    def rollout(self) -> None:
        """Play `num_steps` decisions in every market."""
        for t in range(self.args.num_steps):
            state = None if self.state is None else self.state[t].copy_(self.envs.state())
            actions = {}
            for role, one in self.roles.items():
                observation = one.observation[t].copy_(self.seen[role])
                torch.logical_and(self.active[role], one.mine, out=one.active[t])
                action, log_prob = one.networks.sample(observation)
                one.action[t].copy_(action)
                one.log_prob[t].copy_(log_prob)
                one.value[t].copy_(one.networks.values(observation, state))
                actions[role] = action if one.networks.discrete else action.clamp(-1.0, 1.0)
                for slot, policy in one.partners.items():
                    actions[role][:, slot] = policy(observation[:, slot])
            self.seen, *results, infos = self.envs.step(actions)
            state = None if self.state is None else self.envs.state(final=True)
            for role, one in self.roles.items():
                for buffer, result in zip((one.reward, one.terminated, one.truncated), results, strict=True):
                    buffer[t].copy_(result[role])
                one.next_value[t].copy_(one.networks.values(infos["final_obs"][role], state))  # before any reset
                one.note(t)

    @torch.no_grad()
    def estimate(self) -> None:
        """Estimate the advantages of the last rollout, with mean 0 and deviation 1 in each role.

        Rewards are divided by the root mean square of the discounted returns so far, as roles' rewards differ in size.
        """
        for one in self.roles.values():
            reward = one.reward * (one.squares[1].clamp(min=1) / one.squares[0].clamp(min=1e-12)).sqrt()
            parts = one.active, one.terminated, one.truncated, one.value, one.next_value
            gain = advantages(reward, *parts, one.gamma, one.gae_lambda)
            weight = one.active / one.active.sum().clamp(min=1)
            centred = gain - (gain * weight).sum()
            one.target.copy_(gain + one.value)
            one.advantage.copy_(centred / ((centred.square() * weight).sum().sqrt() + 1e-8))

    def learn(self) -> None:
        """Improve the networks on the last rollout."""
        for _ in range(self.args.update_epochs):  # each in a new order, without waiting for the GPU
            order = torch.rand(self.args.num_steps * self.envs.num_envs, device=self.device).argsort()
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
            one.episodes.zero_()
            result |= {f"{role}/return": total / episodes * self.envs.core.task.reward_scale} if episodes else {}
            result |= {f"{role}/{name}": value for name, value in zip(LOSSES, losses, strict=True)}
        return result


def train(args: Args, envs: BatchedParallelEnv, partners: Partners | None = None, name: str = "training") -> Any:
    """Train all roles; `partners` play for learners, by role and number, that do not learn.

    Returns the `ActorCritic` of each role and the learning curve: what was logged, by role, and `steps` and `seconds`.
    """
    torch.manual_seed(args.seed)
    trainer, batch, curve = Trainer(args, envs, partners), args.num_envs * args.num_steps, []
    trainer.prepare(run_seed(args.seed))
    updates = max(1, args.total_steps // batch)
    writer = SummaryWriter(args.output / "tensorboard")
    began = time.perf_counter()
    with tqdm(total=updates * batch, unit="decision", unit_scale=True, desc=name) as bar:
        for update in range(1, updates + 1):
            trainer.update(args.learning_rate * (1.0 - 0.9 * (update - 1) / updates))
            if update % max(1, updates // 100) and update < updates:
                continue
            steps, point, seconds = update * batch, trainer.scalars(), time.perf_counter() - began
            curve.append({"steps": steps, "seconds": seconds, **point})
            bar.update(steps - bar.n)
            bar.set_postfix_str(", ".join(f"{tag[:-7]} {point[tag]:.4g}" for tag in point if tag.endswith("/return")))
            for tag, value in ({"charts/SPS": steps / seconds} | point).items():
                writer.add_scalar(tag, value, steps)
    envs.check_errors()
    writer.close()
    return {role: one.networks for role, one in trainer.roles.items()}, curve


def main(args: Args) -> dict[str, Any]:
    """Train, save, compare and draw; returns the comparison by role."""
    on_gpu, learners = choose_engine(args.engine)[1].type == "cuda", args.counts()
    args.num_envs = args.num_envs or (16384 if on_gpu else 256)
    args.total_steps = args.total_steps or (100_000_000 if on_gpu else 3_000_000)
    args.eval_envs = args.eval_envs or (8192 if on_gpu else 2048)
    envs = BatchedParallelEnv(args.num_envs, learners, **args.task())
    args.output.mkdir(parents=True, exist_ok=True)
    print(f"{args.num_envs} markets with {' '.join(args.learners)} in each, on {envs.simulator}")
    trained, curve = train(args, envs)
    for role, networks in trained.items():
        torch.save(networks.state_dict(), args.output / f"{role}.pt")
    return compare(args, learners, trained, curve)


if __name__ == "__main__":
    main(tyro.cli(Args))
