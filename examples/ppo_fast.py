"""PPO of a market maker as fast as GPUs allow; read `ppo_market_maker.py` first, which is the same algorithm in short.

On a GPU updates are those of `kineticsim_env.training`, a few fused kernels, or, without Triton or with --fused False,
compiled (`torch.compile`), as rollouts are. All is captured once as CUDA graphs and replayed; the host only sets the
learning rate, and waits for the GPU every tenth update, to look at the clock. Hidden layers are bfloat16. Under
torchrun every process has its share of the markets, and gradients are means over all. On a CPU the same code runs as
it stands. Runs leave checkpoints that `--resume` goes on from, a table, pictures, and the policy as a file.

It needs the files of this folder that it imports: `ppo_trainer.py` (rollouts), `ppo_learners.py` (updates),
`ppo_networks.py`, `ppo_checkpoints.py`, `ppo_comparison.py` (what follows training), and `tune_scripted_policies.py`
for the policies to compare with. `ppo_executor.py` and `ppo_trader.py` are its other tasks.

    python examples/ppo_fast.py --help
    python examples/ppo_fast.py --time-limit-minutes 3.5
    python examples/ppo_fast.py --preset continuous --set quote_latency=10
    python examples/ppo_fast.py --keep --decide fill --set orders_per_side=3
    torchrun --nproc-per-node=4 examples/ppo_fast.py    # one process per GPU; gloo and CPU cores without GPUs
"""

import dataclasses
import gc
import itertools
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import gymnasium as gym
import torch
import torch.distributed as dist
import tyro
from gymnasium.spaces import flatdim
from ppo_checkpoints import load, save, write
from ppo_comparison import compare, snapshot
from ppo_learners import RANKS
from ppo_networks import ActorCritic
from ppo_trainer import Trainer
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

import kineticsim_env  # noqa: F401, registers the environments
from kineticsim_env import MarketConfig, run_seed
from kineticsim_env.engines import choose_engine
from kineticsim_env.envs.settings import EnvSettings
from kineticsim_env.evaluation import MEASURES, evaluate, evaluation_env
from kineticsim_env.runtime.options import changes_of
from kineticsim_env.wrappers import StackObservation

RANK = int(os.environ.get("RANK", 0))  # set by torchrun
STACKED = (22, 26)  # places of the last move of the mid and of the last volume
LOOK_EVERY = 10  # updates between looks at the clock on a GPU
SAVE_SECONDS = 10.0  # between checkpoints on a GPU: one of 65536 markets is 100 MB


@dataclasses.dataclass
class Args:
    """Train a market maker with PPO and compare it with scripted ones."""

    TASK: ClassVar[str] = "MarketMaking"
    EPISODES: ClassVar[dict[str, int]] = {"cuda": 2048, "cpu": 2048, "numpy": 512}  # of the comparison, by engine
    # The arguments that environments take, those of the comparison too.
    ORDERS: ClassVar[tuple[str, ...]] = "keep", "decide"
    SETTINGS: ClassVar[tuple[str, ...]] = (
        *("reward", "inventory_penalty", "reward_scale", "auctions_per_step", "at_end"),
        *ORDERS,
    )

    seed: int = 1
    """seed of the networks, and run r of the training markets (run_seed)"""
    preset: str = EnvSettings.preset
    """the market"""
    set: tuple[str, ...] = ()
    """changes of its fields, such as quote_latency=10"""
    engine: Literal["auto", "cuda", "cpu", "numpy"] = "auto"
    """where the markets run"""
    output: Path = Path("runs/ppo_fast")
    """folder of the checkpoint, the policy, the TensorBoard log, the table and the pictures"""
    resume: bool = False
    """go on from the checkpoint in the output folder"""
    track: bool = True
    """write TensorBoard scalars"""
    fast: bool = False
    """one pass over each of shorter rollouts, unless these are given: about twice the steps per second"""

    total_steps: int = 0
    """environment steps to train for; 0 takes 20 million on a CPU and 600 million on a GPU"""
    time_limit_minutes: float = 0.0
    """stop training after this long, whatever total_steps says; 0 is no limit"""
    num_envs: int = 0
    """markets, of all processes together; 0 takes 256 on a CPU and 65536 on a GPU"""
    num_steps: int = 0
    """decisions in each market between updates; 0 takes 64 on a CPU and 32 on a GPU, or 16 with --fast"""
    learning_rate: float = 1e-3
    """of Adam, falling linearly to a tenth over training"""
    gamma: float | None = None
    """discount per decision; if not given 0.97, and 0.99 under continuous trading, where quotes wait for their fills.
    Where events end decisions it is that of the longest one, and others have its power by their events"""
    gae_lambda: float = 0.9
    """of generalised advantage estimation, per decision, however long these are"""
    num_minibatches: int = 4
    """minibatches per epoch"""
    update_epochs: int = 0
    """passes over each rollout; 0 takes 4, or 1 with --fast"""
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
    stack: int = 1
    """decisions whose last move of the mid and volume are seen, the present one included; 4 are in the observation"""
    initial_std: float = 0.4
    """standard deviation of the policy's actions at the start"""

    fused: bool | None = None
    """update in the kernels of kineticsim_env.training; where it can if not given, and elsewhere in torch"""
    compile: bool | None = None
    """compile networks, loss and advantages with torch.compile; on a GPU if not given (15 s the first time there)"""
    bf16: bool | None = None
    """keep observations and hidden layers in bfloat16 (weights, losses and Adam stay float32); on a GPU if not given"""

    reward: Literal["edge", "pnl", "inventory", "asymmetric", "per_unit"] = "edge"
    """what the learner is paid"""
    inventory_penalty: float = 0.002
    """ticks per squared unit of inventory and decision, where the reward is inventory"""
    reward_scale: float = 50.0
    """rewards are divided by this, so that values are of the order of one"""
    auctions_per_step: int = 1
    """auctions per decision"""
    action_type: Literal["continuous", "discrete"] = "continuous"
    """numbers, drawn from a Gaussian, or choices"""
    keep: bool = False
    """let actions keep standing quotes, under continuous trading"""
    decide: Literal["interval", "fill", "touch"] = "interval"
    """what ends a decision: its interval, or sooner, under continuous trading, a fill of its own or a new best price"""
    at_end: Literal["truncate", "unwind"] = "truncate"
    """what the horizon does: cut the episode, or sell what is held, pay that, and end it"""

    eval_envs: int = 0
    """held-out episodes of the final comparison; 0 takes 2048, or 512 where only the slow NumPy engine runs"""
    eval_every: int = 0
    """updates between evaluations during training; 0 makes about twenty"""

    def market(self) -> dict[str, Any]:
        """Return the arguments of the environment that training and comparison share."""
        config = MarketConfig.preset(self.preset, **changes_of(self.set))
        return {name: getattr(self, name) for name in self.SETTINGS} | {"config": config}

    def stacked(self, envs: Any) -> Any:
        """Return an environment as the networks see it."""
        return StackObservation(envs, self.stack, STACKED) if self.stack > 1 else envs

    def fill_in(self, on_gpu: bool) -> None:
        """Fill in the values that depend on the machine, on the market and on --fast."""
        self.num_envs = self.num_envs or (65536 if on_gpu else 256)
        self.num_steps = self.num_steps or ((16 if self.fast else 32) if on_gpu else 64)
        self.total_steps = self.total_steps or (600_000_000 if on_gpu else 20_000_000)
        self.update_epochs = self.update_epochs or (1 if self.fast else 4)
        continuous = MarketConfig.preset(self.preset, **changes_of(self.set)).is_continuous
        self.gamma = (0.99 if continuous else 0.97) if self.gamma is None else self.gamma
        self.compile = on_gpu if self.compile is None else self.compile
        self.bf16 = on_gpu if self.bf16 is None else self.bf16
        if self.num_envs % RANKS:
            raise SystemExit(f"--num-envs: expected multiples of the {RANKS} processes, got {self.num_envs}")


def agree(device: torch.device, seconds: float) -> float:
    """Return the first process's clock: all processes must decide alike."""
    if RANKS > 1:
        shared = torch.tensor(seconds, dtype=torch.float64, device=device)
        dist.broadcast(shared, 0)
        return float(shared)
    return seconds


def networks_for(args: Args, envs: Any) -> ActorCritic:
    """Return networks at their start, for what is seen and done in an environment, on its device."""
    sizes = flatdim(envs.single_observation_space), flatdim(envs.single_action_space)
    choices = args.action_type == "discrete"
    return ActorCritic(*sizes, args.hidden, args.initial_std, choices).to(envs.device)


def train(args: Args, envs: Any, networks: ActorCritic, held_out: Any, trainer: Trainer | None = None) -> list[dict]:
    """Train, log, evaluate now and then, and leave checkpoints; returns the learning curve.

    Its `seconds` are those of training: evaluations, and compiling and capturing, are counted apart. A trainer of the
    same environment and networks that has trained before is used again, with nothing to compile; its networks have to
    be put back to a start, in place.
    """
    args.fill_in(envs.device.type == "cuda")
    seed = run_seed(args.seed)
    known, trainer = trainer is not None, trainer or Trainer(args, envs, networks)
    mine = seed + RANK * envs.num_envs
    batch = args.num_envs * args.num_steps
    updates, first = max(1, args.total_steps // batch), 0
    progress: dict[str, Any] = {"curve": [], "seconds": 0.0, "evaluating": 0.0}
    envs.reset(seed=mine)
    preparing = 0.0 if known else trainer.prepare()
    trainer.forget()
    if RANK == 0 and not known:
        print(trainer.how)
    envs.reset(seed=mine)
    torch.manual_seed(args.seed + (RANK << 32))
    checkpoint = args.output / (f"checkpoint_{RANK}.pt" if RANK else "checkpoint.pt")
    if args.resume:
        first, progress = load(checkpoint, trainer, RANKS)
        if first != agree(envs.device, first):  # stopped between one process's checkpoint and another's
            raise SystemExit(f"--resume: {checkpoint} has another update than checkpoint.pt; start without --resume")
    curve, every = progress["curve"], args.eval_every or max(1, updates // 20)
    tracked = args.track and RANK == 0
    writer = SummaryWriter(args.output / "tensorboard", purge_step=first * batch or None) if tracked else None
    bar = tqdm(total=updates * batch, unit="step", unit_scale=True, desc="training", disable=RANK > 0)
    bar.update(first * batch)
    limit, fraction, next_eval, next_save = 60 * args.time_limit_minutes, 0.0, 0.0, 0.0
    began = time.perf_counter() - progress["seconds"]

    for update in itertools.count(first):
        due = update >= updates or (not limit and update % every == 0)
        if due or not trainer.cuda or update % LOOK_EVERY == 0:
            trainer.wait()  # for the GPU, so that the clock is right
            progress["seconds"] = time.perf_counter() - began
            bar.update(update * batch - bar.n)
            spent = agree(envs.device, progress["seconds"] + progress["evaluating"])
            fraction = max(spent / limit if limit else 0.0, update / updates)
            due = due or fraction >= 1.0 or (bool(limit) and spent >= next_eval)
            if due and not (curve and curve[-1]["steps"] == update * batch):
                started, next_eval = time.perf_counter(), spent + limit / 20
                mean, half = evaluate(networks.act, held_out, seed).pnl_interval() if RANK == 0 else (0.0, 0.0)
                point = {"steps": update * batch, "seconds": progress["seconds"], "wall": spent}
                curve.append({**point, "pnl": mean, "half": half})
                bar.set_postfix_str(f"{MEASURES[args.TASK]}: {mean:.4g} ± {half:.2g}")
                if RANK == 0:
                    write(snapshot(args.output, update * batch), networks.state_dict())
                if writer:
                    writer.add_scalar("charts/liquidated_pnl", mean, update * batch)
                if spent >= next_save:
                    save(checkpoint, trainer, update, RANKS, progress)
                    next_save = spent + (SAVE_SECONDS if trainer.cuda else 0.0)
                progress["evaluating"] += time.perf_counter() - started
                began += time.perf_counter() - started
            if writer and update > first and update % LOOK_EVERY == 0:
                for name, value in trainer.scalars().items():
                    writer.add_scalar(name, value, update * batch)
                writer.add_scalar("charts/SPS", update * batch / progress["seconds"], update * batch)
        if fraction >= 1.0:
            break
        trainer.update(args.learning_rate * (1.0 - 0.9 * max(fraction, update / updates)))
    bar.close()
    save(checkpoint, trainer, update, RANKS, progress)
    envs.unwrapped.check_errors()
    if writer:
        writer.close()
    if RANK == 0:
        seconds = progress["seconds"]
        print(
            f"trained {update * batch:,} steps in {seconds:.1f} s: {update * batch / seconds:,.0f} steps/s; apart from "
            f"that {progress['evaluating']:.1f} s for evaluations, {preparing:.1f} s to compile and capture"
        )
    return curve


def main(args: Args) -> dict[str, float]:
    """Train, compare and draw; returns `Evaluation.pnl`'s mean by policy, in the first process."""
    if RANKS > 1 and args.engine in ("auto", "cuda") and torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    engine, device = choose_engine(args.engine)
    if RANKS > 1:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    torch.manual_seed(args.seed)
    args.output.mkdir(parents=True, exist_ok=True)
    args.fill_in(device.type == "cuda")
    args.eval_envs = args.eval_envs or args.EPISODES[engine]
    market: dict[str, Any] = {**args.market(), "engine": engine}
    acting: dict[str, Any] = {
        **market,
        "action_type": args.action_type,
    }  # the learner's; scripted policies act in numbers
    envs: Any = gym.make_vec(
        f"KineticSim/{args.TASK}-v0", num_envs=args.num_envs // RANKS, output="torch", copy=False, **acting
    )
    envs = args.stacked(envs)
    training = {"warm_seed": envs.unwrapped.core.task.warm_seed, **market}  # where PPO trains, others are fitted
    networks = networks_for(args, envs)
    if RANK == 0:
        print(f"{args.num_envs} markets on {RANKS} x {envs.unwrapped.simulator}")
    watched = evaluation_env(args.eval_envs // 4, args.TASK, **training | acting)
    curve = train(args, envs, networks, args.stacked(watched))
    if RANKS > 1:
        gc.collect()  # graphs that hold on to NCCL must be gone before it is
        dist.destroy_process_group()
    return compare(args, networks, curve, market, training) if RANK == 0 else {}


def run(kind: type[Args], words: Sequence[str] | None = None) -> None:
    """Run with the arguments of the command line, or with those given."""
    arguments = tyro.cli(kind, args=words)
    try:
        main(arguments)
    except KeyboardInterrupt:
        raise SystemExit(f"\nstopped; --resume goes on from the checkpoint in {arguments.output}{os.sep}") from None


if __name__ == "__main__":
    run(Args)
