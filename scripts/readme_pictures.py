"""Draw pictures of README.md, docs/seeing.md and docs/limitations.md: a market, queues in it, and what makers earn.

    python scripts/readme_pictures.py

Writes watch_market.png, queue.png and scripted_makers.png of docs/images; needs the extras `render` and `plot`. The
same pictures come out on every engine.
"""

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from kineticsim_env import statistics
from kineticsim_env.config import MarketConfig
from kineticsim_env.envs.core import EnvCore
from kineticsim_env.envs.settings import EnvSettings
from kineticsim_env.envs.vector import MarketMakingVectorEnv
from kineticsim_env.evaluation import evaluate, evaluation_env
from kineticsim_env.plots import save_panels
from kineticsim_env.policies import AvellanedaStoikov, QuietQuotes, RandomQuotes, quote_action
from kineticsim_env.render import MarketRecorder
from kineticsim_env.render.picture import Picture
from kineticsim_env.zoo import scripted

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
# The best parameters on training seeds.
FOUND = scripted("MarketMaking", EnvSettings.preset)
QUIET, STOIKOV = (FOUND[name]["parameters"] for name in ("quiet quotes", "Avellaneda-Stoikov"))
# Okabe and Ito's colours, as in the pictures of a market.
MAKERS = {
    "quotes at random": (RandomQuotes, "#8a8a8a"),
    "quotes that stay away after large moves": (partial(QuietQuotes, **QUIET), "#d55e00"),
    "Avellaneda-Stoikov": (partial(AvellanedaStoikov, **STOIKOV), "#0072b2"),
}


def market(path: Path, seed: int, decision: int) -> None:
    """Draw the first decision from one on in which a scripted maker is filled and still has both quotes."""
    env = gym.make("KineticSim/MarketMaking-v0")
    core: EnvCore = env.get_wrapper_attr("core")
    policy, recorder = AvellanedaStoikov(core.task, **STOIKOV), MarketRecorder(core)
    observation, _ = env.reset(seed=seed)
    moment = recorder.record()
    while moment.elapsed < decision or not (moment.bought or moment.sold) or 0 in moment.quotes[1::2]:
        observation, *_ = env.step(policy(torch.from_numpy(observation)[None])[0].numpy())
        moment = recorder.record()
    picture = Picture(scale=2)
    picture.draw(recorder)
    picture.save(path)


def queue(path: Path, seed: int, decision: int) -> None:
    """Draw the first decision from one on in which a maker that joins the best prices waits in both queues."""
    config = MarketConfig(
        arrivals="clock", mechanism="continuous", interval=16, num_agents=64, noise=0.85, momentum=0.0, maker=0.1,
        fundamental=0.05, rounding="coin", noise_spread=7, maker_half_spread=3, cancel_prob=0.15, walk_prob=0.3,
        window=16,
    )  # fmt: skip
    envs = MarketMakingVectorEnv(1, config, output="torch", stagger=False, bank_size=4)
    simulator, task, recorder = envs.simulator, envs.core.task, MarketRecorder(envs.core)
    envs.reset(seed=seed)
    moment = recorder.record()

    def ahead() -> list[int]:
        return [moment.ahead(side) or 0 for side in ("bid", "ask")]

    def behind() -> list[int]:
        there = [moment.depth(moment.quotes[0], "bid"), moment.depth(moment.quotes[2], "ask")]
        return [units - front for units, front in zip(there, ahead(), strict=True)]

    while moment.elapsed < decision or not all(ahead()) or not any(behind()):
        best = torch.cat(statistics.arrays.best_prices(simulator.bid, simulator.ask)) + simulator.price_origin
        standing = simulator.quotes[0, 0].view(2, 2)
        kept = (standing[:, 0] == best) & (standing[:, 1] > 0)
        size = torch.where(kept, standing[:, 1], task.max_qty)  # a larger one would go to the back of the queue
        away = torch.stack([simulator.mid2[0] // 2 - best[0], best[1] - (simulator.mid2[0] + 1) // 2])
        envs.step(quote_action(task, *away.float().view(2, 1), *size.float().view(2, 1)))
        moment = recorder.record()
    picture = Picture(scale=2)
    picture.draw(recorder)
    picture.save(path)


def makers(path: Path, markets: int) -> None:
    """Draw how liquidated PnL is spread over markets, for each scripted maker."""
    envs = evaluation_env(markets)
    earned = {name: evaluate(make(envs.core.task), envs).pnl for name, (make, _) in MAKERS.items()}
    edges = np.linspace(min(map(np.min, earned.values())), max(map(np.max, earned.values())), 60)

    def draw(axes: Any) -> None:
        for name, pnl in earned.items():
            colour = MAKERS[name][1]
            axes.hist(pnl, edges, color=colour, alpha=0.15, histtype="stepfilled")
            label = f"{name}: mean {pnl.mean():,.0f}, sd {pnl.std(ddof=1):,.0f}"
            axes.hist(pnl, edges, color=colour, lw=2, histtype="step", label=label)
            axes.axvline(pnl.mean(), ymax=0.7, color=colour, lw=2, ls="--")
        axes.axvline(0, ymax=0.7, color="black", lw=1)
        axes.set(
            title=f"What scripted makers earn in {envs.core.task.horizon} decisions (dashed: the mean)",
            xlabel="money left once the inventory is sold off (liquidated PnL), ticks",
            ylabel=f"markets, of {markets:,}",
        )
        axes.set_ylim(0, 1.5 * axes.get_ylim()[1])  # room for the legend
        axes.legend(fontsize=10, loc="upper left")

    save_panels(path, [draw], columns=1, size=(8.0, 3.8))


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the pictures of README.md.")
    parser.add_argument("--output", type=Path, default=IMAGES, help="folder of the pictures")
    parser.add_argument("--markets", type=int, default=2048, help="markets of the chart")
    parser.add_argument("--seed", type=int, default=3, help="of the market that is shown")
    parser.add_argument("--decision", type=int, default=160, help="from which decision on it is shown")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    market(options.output / "watch_market.png", options.seed, options.decision)
    queue(options.output / "queue.png", options.seed, options.decision // 3)
    makers(options.output / "scripted_makers.png", options.markets)


if __name__ == "__main__":
    main()
