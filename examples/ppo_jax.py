"""PPO of a market maker in one file and one program of JAX, after PureJaxRL.

It is the algorithm of `ppo_market_maker.py`. Rollouts, advantages and updates are one function that `jax.jit` compiles;
the host only counts its calls. At the end the learned maker plays held-out episodes, as that of torch does:
`kineticsim_env.evaluation` counts what it earns.

    pip install ".[jax,train]" optax
    python examples/ppo_jax.py --help
    python examples/ppo_jax.py --total-steps 2_000_000
"""

import dataclasses
import functools
import math
import time
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
import tyro
from tqdm import tqdm

import kineticsim_env as ks
from kineticsim_env import policies
from kineticsim_env.envs.settings import EnvSettings
from kineticsim_env.evaluation import evaluate, evaluation_env, format_table

ID = "KineticSim/MarketMaking-v0"
LEARNED = "PPO (learned)"
LOG_ROOT_2PI = 0.5 * float(np.log(2 * np.pi))


@dataclasses.dataclass(frozen=True)
class Args:
    """Train a market maker with PPO in JAX and compare it with a scripted one."""

    seed: int = 1  # seed of the networks and of the noise; market m trains on the market seed run_seed(seed) + m
    preset: str = EnvSettings.preset  # the market
    device: Literal["auto", "cpu", "cuda"] = "auto"  # where JAX runs
    total_steps: int = 0  # environment steps to train for; 0 takes 20 million on a CPU and 600 million on a GPU
    num_envs: int = 0  # markets; 0 takes 256 on a CPU and 65536 on a GPU
    num_steps: int = 0  # decisions in each market between updates; 0 takes 64 on a CPU and 32 on a GPU
    learning_rate: float = 1e-3  # of Adam, falling linearly to a tenth over training
    gamma: float = 0.0  # discount per decision; 0 takes 0.97 in call auctions and 0.99 under continuous trading
    gae_lambda: float = 0.9  # of generalised advantage estimation
    num_minibatches: int = 4  # minibatches per epoch
    update_epochs: int = 4  # passes over each rollout
    clip_coef: float = 0.2  # how far the policy's probability ratio may move
    vf_coef: float = 0.5  # weight of the value loss
    max_grad_norm: float = 0.5  # gradients are clipped to this norm
    hidden: int = 64  # width of the two hidden layers of the policy and of the value network
    initial_std: float = 0.4  # standard deviation of the policy's actions at the start
    reward_scale: float = 50.0  # rewards are divided by this, so that values are of the order of one
    eval_envs: int = 2048  # held-out episodes of the final comparison
    calls: int = 20  # of the program over all of training, about; each plays as many updates

    def filled(self) -> "Args":
        """Return the arguments with what depends on the device and the market."""
        device = self.device if self.device != "auto" else "cuda" if jax.default_backend() == "gpu" else "cpu"
        envs, steps, total = (65536, 32, 600_000_000) if device == "cuda" else (256, 64, 20_000_000)
        gamma = 0.99 if ks.MarketConfig.preset(self.preset).is_continuous else 0.97
        given = {"num_envs": envs, "num_steps": steps, "total_steps": total, "gamma": gamma}
        return dataclasses.replace(
            self, device=device, **{name: getattr(self, name) or value for name, value in given.items()}
        )

    @property
    def updates(self) -> tuple[int, int]:
        """Calls of the program, and updates of each."""
        updates = max(1, self.total_steps // (self.num_envs * self.num_steps))
        each = max(1, round(updates / self.calls))
        return updates // each, each


class Networks(NamedTuple):
    """A Gaussian policy and a value network, of two hidden layers each: pairs of weights `[in, out]` and biases."""

    actor: list[tuple[jax.Array, jax.Array]]
    critic: list[tuple[jax.Array, jax.Array]]
    log_std: jax.Array


class Decisions(NamedTuple):
    """T decisions in each of M markets: float32 `[T, M]`, observations `[T, M, F]`, actions `[T, M, A]`."""

    observation: jax.Array
    action: jax.Array
    log_prob: jax.Array
    value: jax.Array
    reward: jax.Array
    going_on: jax.Array  # 0 where the decision ended an episode, else 1


class Learner(NamedTuple):
    """What training carries from update to update."""

    networks: Networks
    optimizer: Any
    state: ks.jax.MarketState
    key: jax.Array


def make_networks(args: Args, key: jax.Array, observations: int, actions: int) -> Networks:
    """Return networks with orthogonal weights."""

    def network(key: jax.Array, outputs: int, gain: float) -> list[tuple[jax.Array, jax.Array]]:
        sizes = [(observations, args.hidden), (args.hidden, args.hidden), (args.hidden, outputs)]
        gains = (2**0.5, 2**0.5, gain)
        made = zip(jax.random.split(key, 3), sizes, gains, strict=True)
        return [(jax.nn.initializers.orthogonal(by)(one, size), jnp.zeros(size[1])) for one, size, by in made]

    actor, critic = jax.random.split(key)
    # Its dtype is said: what is weakly typed comes back otherwise from an update, and the second call compiles anew.
    std = jnp.full(actions, np.log(args.initial_std), jnp.float32)
    return Networks(network(actor, actions, 0.01), network(critic, 1, 1.0), std)


def apply(layers: list[tuple[jax.Array, jax.Array]], rows: jax.Array) -> jax.Array:
    """Return what a network makes of rows."""
    for weight, bias in layers[:-1]:
        rows = jnp.tanh(rows @ weight + bias)
    weight, bias = layers[-1]
    return rows @ weight + bias


def value_of(networks: Networks, observation: jax.Array) -> jax.Array:
    """Return the expected discounted sum of future rewards."""
    return apply(networks.critic, observation)[..., 0]


def log_prob_of(networks: Networks, observation: jax.Array, action: jax.Array) -> jax.Array:
    """Return the logarithm of the density of actions."""
    noise = (action - apply(networks.actor, observation)) / jnp.exp(networks.log_std)
    return jnp.sum(-0.5 * noise**2 - networks.log_std - LOG_ROOT_2PI, axis=-1)


def play(args: Args, env: Any, params: Any, learner: Learner) -> tuple[Learner, Decisions, jax.Array]:
    """Play `num_steps` decisions in every market, on a GPU in one launch with the policy inside.

    The last result is the mean reward that was paid, without the values that `Decisions.reward` has at truncations.
    """
    networks, (key, noise) = learner.networks, jax.random.split(learner.key)
    given = {"actor": networks.actor, "log_std": networks.log_std, "steps": args.num_steps}
    state, played = env.rollout(noise, learner.state, params, **given)
    # A truncated episode would have gone on: the rest is worth the value of its last observation.
    rest = value_of(networks, played.final_observation)[played.row]
    reward = played.reward + args.gamma * played.truncated * rest
    going_on = 1.0 - (played.terminated | played.truncated)
    # Anew, as the launch has products of bfloat16 numbers.
    told = log_prob_of(networks, played.observation, played.action), value_of(networks, played.observation)
    decisions = Decisions(played.observation, played.action, *told, reward, going_on)
    return learner._replace(state=state, key=key), decisions, played.reward.mean()


def advantages(args: Args, decisions: Decisions, last_value: jax.Array) -> jax.Array:
    """Generalised advantage estimation (Schulman et al. 2016, equation 16), float32 `[T, M]`."""

    def back(carry: tuple[jax.Array, jax.Array], one: Decisions) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        advantage, next_value = carry
        delta = one.reward + args.gamma * one.going_on * next_value - one.value
        advantage = delta + args.gamma * args.gae_lambda * one.going_on * advantage
        return (advantage, one.value), advantage

    return jax.lax.scan(back, (jnp.zeros_like(last_value), last_value), decisions, reverse=True)[1]


def loss_of(args: Args, networks: Networks, decisions: Decisions, gain: jax.Array, target: jax.Array) -> jax.Array:
    """Return PPO's loss on a minibatch."""
    ratio = jnp.exp(log_prob_of(networks, decisions.observation, decisions.action) - decisions.log_prob)
    clipped = jnp.clip(ratio, 1 - args.clip_coef, 1 + args.clip_coef)
    policy_loss = -jnp.mean(jnp.minimum(gain * ratio, gain * clipped))
    value_loss = 0.5 * jnp.mean((value_of(networks, decisions.observation) - target) ** 2)
    return policy_loss + args.vf_coef * value_loss


def optimizer_of(args: Args) -> optax.GradientTransformation:
    """Return Adam, of clipped gradients, with a learning rate that falls to a tenth."""
    steps = math.prod(args.updates) * args.update_epochs * args.num_minibatches
    rate = optax.linear_schedule(args.learning_rate, 0.1 * args.learning_rate, steps)
    return optax.chain(optax.clip_by_global_norm(args.max_grad_norm), optax.adam(rate, eps=1e-5))


def update(args: Args, env: Any, params: Any, learner: Learner) -> tuple[Learner, jax.Array]:
    """Play, and improve the networks on what was played; also return the mean reward of a decision."""
    optimizer = optimizer_of(args)
    learner, decisions, paid = play(args, env, params, learner)
    gain = advantages(args, decisions, value_of(learner.networks, env.observe(learner.state)))
    target = gain + decisions.value
    gain = (gain - gain.mean()) / (gain.std() + 1e-8)
    block = math.gcd(64, args.num_envs)  # neighbouring markets at a time, which lie together in memory
    batch = jax.tree.map(lambda one: one.reshape(-1, block, *one.shape[2:]), (decisions, gain, target))

    def improve(carry: tuple[Any, Any], chosen: jax.Array) -> tuple[tuple[Any, Any], None]:
        networks, moments = carry
        part = jax.tree.map(lambda one: one[chosen].reshape(-1, *one.shape[2:]), batch)
        gradient = jax.grad(functools.partial(loss_of, args))(networks, *part)
        changes, moments = optimizer.update(gradient, moments, networks)
        return (optax.apply_updates(networks, changes), moments), None

    key, *orders = jax.random.split(learner.key, 1 + args.update_epochs)
    blocks = args.num_steps * args.num_envs // block
    shuffled = [jax.random.permutation(one, blocks).reshape(args.num_minibatches, -1) for one in orders]
    carry, _ = jax.lax.scan(improve, (learner.networks, learner.optimizer), jnp.concatenate(shuffled))
    return learner._replace(networks=carry[0], optimizer=carry[1], key=key), paid


def train(args: Args, progress: bool = True) -> tuple[Networks, float]:
    """Train networks; return them, and the environment steps per second after the first call, which compiles."""
    env, params = ks.jax.make(ID, args.num_envs, device=args.device, preset=args.preset, reward_scale=args.reward_scale)
    key, first = jax.random.split(jax.random.key(args.seed))
    networks = make_networks(args, first, env.observation_space(params).shape[0], env.num_actions)
    _, state = env.reset(None, params, seed=ks.run_seed(args.seed))
    learner = Learner(networks, optimizer_of(args).init(networks), state, key)
    # All where the markets are. What begins elsewhere comes back there, and the second call would compile anew.
    learner = jax.device_put(learner, env.observe(state).sharding)
    calls, updates = args.updates

    @functools.partial(jax.jit, donate_argnums=0)
    def program(learner: Learner, params: Any) -> tuple[Learner, jax.Array]:
        return jax.lax.scan(lambda one, _: update(args, env, params, one), learner, None, length=updates)

    steps, began = updates * args.num_envs * args.num_steps, 0.0
    with tqdm(total=calls * steps, unit="step", unit_scale=True, disable=None if progress else True) as bar:
        for call in range(calls):
            learner, rewards = program(learner, params)
            bar.set_postfix_str(f"reward per decision {args.reward_scale * float(rewards.mean()):.2f} ticks")  # waits
            bar.update(steps)
            began = began if call else time.perf_counter()
    ks.jax.check(learner.state)
    return learner.networks, steps * (calls - 1) / max(time.perf_counter() - began, 1e-9)


def policy_of(networks: Networks, device: Any = "cpu") -> ks.NetworkPolicy:
    """Return the policy as one of torch, for `evaluate` and files."""

    def layers(part: list[tuple[jax.Array, jax.Array]]) -> torch.nn.Sequential:
        made: list[torch.nn.Module] = []
        for weight, bias in part:
            linear = torch.nn.Linear(weight.shape[0], weight.shape[1])
            linear.weight.data, linear.bias.data = (torch.from_numpy(np.array(one)) for one in (weight.T, bias))
            made += [linear, torch.nn.Tanh()]
        return torch.nn.Sequential(*made[:-1])

    log_std = torch.from_numpy(np.array(networks.log_std))
    return ks.NetworkPolicy(layers(networks.actor), layers(networks.critic), log_std=log_std).to(device)


def main(args: Args) -> dict[str, float]:
    """Train and compare; returns the mean liquidated PnL of each policy on held-out episodes, in ticks."""
    args = args.filled()
    calls, updates = args.updates
    print(f"training in {args.num_envs} markets on {args.device}, {updates} updates in each of {calls} calls")
    networks, rate = train(args)
    held_out = evaluation_env(args.eval_envs, preset=args.preset, reward_scale=args.reward_scale, engine=args.device)
    makers = {
        LEARNED: policy_of(networks, held_out.device).act,
        "fixed spread": policies.FixedSpread(held_out.core.task),
    }
    results = {name: evaluate(policy, held_out) for name, policy in makers.items()}
    print(f"\n{args.eval_envs} held-out episodes, 95% confidence intervals\n\n{format_table(results, {})}\n")
    if calls > 1:  # the first one compiles, and is not counted
        print(f"Training took {rate:,.0f} steps per second.")
    return {name: float(result.pnl.mean()) for name, result in results.items()} | {"steps per second": rate}


if __name__ == "__main__":
    main(tyro.cli(Args))
