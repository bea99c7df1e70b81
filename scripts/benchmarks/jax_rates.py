"""Steps and training of environments in JAX beside those of torch, on the same machine; fills docs/jax.md.

    python -m scripts.benchmarks.jax_rates --measure    # plays and trains, writes the file and the page
    python -m scripts.benchmarks.jax_rates              # the page, from the file

Steps of the default market, the best of some repetitions, in turn in one run, and the book of JAX-LOB where it is
installed (scripts/benchmarks/jax_lob.py). Trainings are those of `ppo_jax.py` and of `ppo_fast.py`, of the same sizes,
for the same steps, with the same seeds, on the same held-out episodes.
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # torch has the same GPU

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import torch
from tqdm import tqdm

import kineticsim_env as ks
from kineticsim_env.evaluation import confidence_interval, evaluate, evaluation_env
from scripts.benchmarks import jax_lob
from scripts.benchmarks.custom_steps import captured
from scripts.machine import describe
from scripts.pages.command import figures_in, file_parser
from scripts.pages.markdown import machine_in, plus_minus, replaced, table, wrapped
from scripts.pages.provenance import ROOT, stamped

sys.path.insert(0, str(ROOT / "examples"))

import ppo_fast  # noqa: E402
import ppo_jax  # noqa: E402
from ppo_trainer import Trainer  # noqa: E402

PAGE, FILE = ROOT / "docs" / "jax.md", ROOT / "docs" / "benchmarks" / "jax_rates.json"
LOB = "JAX-LOB"  # messages per second
MARKETS, STEPS, TIMES, SEEDS, EPISODES = (1024, 65536), 80, 5, 5, 8192
SIZES = {"num_envs": 16384, "num_steps": 64, "total_steps": 100_000_000}  # of a training
IN_A_PROGRAM, FROM_PYTHON = "JAX, in one program (`lax.scan`)", "JAX, a call of a jitted step each"
IN_A_GRAPH, TORCH = "torch, in a CUDA graph", "torch, from Python"


def in_jax(markets: int, device: str) -> dict[str, Callable[[], None]]:
    """Return what plays STEPS decisions in JAX."""
    env, params = ks.jax.make(ppo_jax.ID, markets, device=device)
    action = jnp.zeros((markets, 4))
    held = [env.reset(None, params, seed=0)[1]]

    def scan(state: Any, params: Any) -> tuple[Any, Any]:
        # The sum is there so that rewards are computed and nothing else is kept.
        return jax.lax.scan(
            lambda one, _: (lambda found: (found[1], found[2].sum()))(env.step(None, one, action, params)),
            state,
            None,
            length=STEPS,
        )

    program, step = jax.jit(scan, donate_argnums=0), jax.jit(env.step, donate_argnums=1)

    def together() -> None:
        held[0], rewards = program(held[0], params)
        rewards.block_until_ready()

    def apart() -> None:
        reward = action
        for _ in range(STEPS):
            _, held[0], reward, _, _ = step(None, held[0], action, params)
        reward.block_until_ready()

    return {IN_A_PROGRAM: together, FROM_PYTHON: apart}


def in_torch(markets: int, device: str) -> dict[str, Callable[[], None]]:
    """Return what plays STEPS decisions in torch."""
    envs: Any = gym.make_vec(ppo_jax.ID, num_envs=markets, output="torch", copy=False, engine=device)
    envs.reset(seed=0)
    action = torch.zeros(envs.action_space.shape, device=envs.unwrapped.device)
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None

    def repeated(step: Callable[[], Any]) -> None:
        for _ in range(STEPS):
            step()
        wait()

    step = functools.partial(envs.step, action)
    forms = {TORCH: step} | ({IN_A_GRAPH: captured(step)} if device == "cuda" else {})
    return {name: functools.partial(repeated, form) for name, form in forms.items()}


def rates(device: str) -> dict[str, dict[str, float]]:
    """Return decisions per second by form and number of markets; of JAX-LOB messages."""
    found: dict[str, dict[str, float]] = {}
    for markets in MARKETS if device == "cuda" else (256,):
        forms = in_jax(markets, device) | in_torch(markets, device)
        forms |= {LOB: jax_lob.played(markets)} if jax_lob.book() else {}
        for play in forms.values():
            play()
        best = dict.fromkeys(forms, float("inf"))
        for _ in tqdm(range(TIMES), desc=f"{markets} markets"):
            for name, play in forms.items():
                began = time.perf_counter()
                play()
                best[name] = min(best[name], time.perf_counter() - began)
        for name, seconds in best.items():
            count = jax_lob.MESSAGES if name == LOB else STEPS
            found.setdefault(name, {})[str(markets)] = markets * count / seconds
    return found


def orders_of_a_decision() -> int:
    """Return how many orders come between two decisions of the default market."""
    envs: Any = gym.make_vec(ppo_jax.ID, num_envs=1, output="torch", engine="cpu")
    core = envs.unwrapped.core
    return core.auctions_per_step * core.simulator.config.events_per_interval


def trainings(device: Any, sizes: Mapping[str, Any], seeds: int) -> dict[str, dict[str, Any]]:
    """Return, of training in JAX and in torch, the scores of each seed on held-out episodes, and the best rate."""
    held_out = evaluation_env(EPISODES, engine=device)
    found: dict[str, dict[str, Any]] = {name: {"scores": [], "rates": []} for name in ("JAX", "torch")}
    for seed in tqdm(range(1, seeds + 1), desc="training in JAX"):
        args = ppo_jax.Args(seed=seed, device=device, **sizes).filled()
        networks, rate = ppo_jax.train(args, progress=False)
        policy = ppo_jax.policy_of(networks, held_out.device)
        found["JAX"]["scores"].append(float(evaluate(policy.act, held_out).pnl.mean()))
        found["JAX"]["rates"].append(rate)
    with tempfile.TemporaryDirectory() as folder:
        args = ppo_fast.Args(engine=device, output=Path(folder), track=False, eval_every=10**6, **sizes)
        args.fill_in(device == "cuda")
        torch.set_float32_matmul_precision("high")
        envs: Any = gym.make_vec(
            ppo_jax.ID, num_envs=args.num_envs, output="torch", copy=False, engine=device, **args.market()
        )
        networks = ppo_fast.networks_for(args, envs)
        envs.reset(seed=0)
        trainer, few = Trainer(args, envs, networks), evaluation_env(64, engine=device, **args.market())
        trainer.prepare()
        for seed in range(1, seeds + 1):
            torch.manual_seed(seed)
            networks.load_state_dict(ppo_fast.networks_for(args, envs).state_dict())
            args.seed = seed
            trainer.noise.fill_(seed)
            last = ppo_fast.train(args, envs, networks, few, trainer)[-1]
            found["torch"]["scores"].append(float(evaluate(networks.act, held_out).pnl.mean()))
            found["torch"]["rates"].append(last["steps"] / last["seconds"])
    return found


def measure(sizes: Mapping[str, int], seeds: int) -> dict[str, Any]:
    """Return all figures of this machine."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    found: dict[str, Any] = {"machine": describe(), "jax": jax.__version__, "device": device, "sizes": dict(sizes)}
    found |= {"orders": orders_of_a_decision(), "rates": rates(device), "trainings": trainings(device, sizes, seeds)}
    return stamped("jax_rates", found)


def body(record: Mapping[str, Any]) -> str:
    """Return the page's tables, and how they were measured."""
    rules, sizes = record["rules"], record["sizes"]
    where = f"one {machine_in(record)}, JAX {record['jax']}, {rules['date']}, commit {rules['commit']}"
    markets = list(next(iter(record["rates"].values())))
    played = {name: of for name, of in record["rates"].items() if name != LOB}
    rows = [[name, *(f"{of[number] / 1e6:,.1f} M" for number in markets)] for name, of in played.items()]
    heads = ["decisions per second", *(f"{int(number):,} markets" for number in markets)]
    steps = table(heads, rows, (False, *(True for _ in markets)))
    told = wrapped(
        f"Steps of the default market, {STEPS} at a time, the best of {TIMES}, in turn "
        f"([figures](benchmarks/{FILE.name})): {where}."
    )
    if LOB in record["rates"]:
        steps += "\n\n" + beside_lob(record["rates"][LOB], played[IN_A_PROGRAM], record["orders"])
    learned = []
    for name, of in record["trainings"].items():
        score = plus_minus(confidence_interval(np.array(of["scores"])))
        example = {"JAX": "`examples/ppo_jax.py`", "torch": "`examples/ppo_fast.py`, its update fused"}[name]
        rate = f"{max(of['rates']) / 1e6:,.1f} M" if of["rates"] else "not measured"
        learned.append([f"{name}, {example}", score, rate])
    scores = wrapped(
        f"PPO of the maker: {sizes['total_steps'] / 1e6:,.0f} M decisions in {sizes['num_envs']:,} markets, "
        f"{sizes['num_steps']} between updates, {len(record['trainings']['JAX']['scores'])} seeds; liquidated PnL on "
        f"the same {EPISODES:,} held-out episodes, ticks, with the 95% interval over seeds. The rate is the best "
        "seed's, without compiling."
    )
    heads = ["training", "liquidated PnL", "decisions per second"]
    return f"{told}\n\n{steps}\n\n{scores}\n\n{table(heads, learned, (False, True, True))}"


def beside_lob(messages: Mapping[str, float], steps: Mapping[str, float], orders: int) -> str:
    """Return what its book took, beside what the steps have of orders."""
    took = " and ".join(f"{rate / 1e6:,.2f} M with {int(number):,} books" for number, rate in messages.items())
    had = " and ".join(f"{orders * steps[number] / 1e9:,.2f} G" for number in messages)
    return wrapped(
        f"In the same run the book of JAX-LOB, of `jaxlob` 0.19 as scripts/benchmarks/jax_lob.py plays it, with "
        f"{jax_lob.ORDERS} orders per side, took {took}, messages per second. It is given them, keeps every order with "
        "its id, and trades an order with at most one that rests, which is less work than its authors meant. No "
        f"environment is around it. A decision of the table has {orders} orders, so that one program had {had} "
        "orders/s, drawn and matched with what rests at prices, rewards and observations besides."
    )


def main(words: Sequence[str] | None = None) -> None:
    """Measure, if that is asked for, and write the page."""
    parser: argparse.ArgumentParser = file_parser(__doc__, "play and train, and write the file", FILE, PAGE)
    parser.add_argument("--seeds", type=int, default=SEEDS, help="of training")
    for name, value in SIZES.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=value, help="of a training")
    options = parser.parse_args(words)
    sizes = {name: getattr(options, name) for name in SIZES}
    found = figures_in(options, lambda: measure(sizes, options.seeds))
    options.page.write_text(replaced(options.page.read_text(), "jax rates", body(found)))
    print(f"wrote {options.page}")


if __name__ == "__main__":
    main()
