"""Draw pictures of README.md, docs/seeing.md and docs/limitations.md: a market, queues in it, and what makers earn.

    python scripts/readme_pictures.py
    python scripts/readme_pictures.py --only film --policy runs/ppo.safetensors

Writes learned_maker.gif, watch_market.png, queue.png and scripted_makers.png of docs/images; needs the extras `render`,
`plot` and `zoo`. The same pictures come out on every engine.
"""

import argparse
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from PIL import Image

from kineticsim_env import load_policy, statistics
from kineticsim_env.config import MarketConfig
from kineticsim_env.envs.core import EnvCore
from kineticsim_env.envs.settings import EnvSettings
from kineticsim_env.envs.vector import MarketMakingVectorEnv
from kineticsim_env.evaluation import evaluate, evaluation_env
from kineticsim_env.plots import save_panels
from kineticsim_env.policies import AvellanedaStoikov, QuietQuotes, RandomQuotes, quote_action
from kineticsim_env.render import MarketRecorder
from kineticsim_env.render.picture import Picture
from kineticsim_env.runtime.files import replacing
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
LEARNED = "news/market_making/ppo"  # who plays in the film
BEGIN, DECIDED, CAME, END = 600, 60, 110, 2500  # milliseconds: the first picture, new quotes, what came, the last one
MOST = 2_000_000  # bytes of a film


def film(path: Path, name: str, seed: int, decisions: int) -> None:
    """Draw a trained maker in the default market, from the first decision of an episode on.

    Of each decision there are two pictures: the market as it was, with the new quotes outlined, and as it is one
    interval later.
    """
    policy = load_policy(name)
    env = gym.make("KineticSim/MarketMaking-v0", action_type=policy.action_type)
    core: EnvCore = env.get_wrapper_attr("core")

    def play() -> Iterator[MarketRecorder]:
        recorder = MarketRecorder(core)
        observation, _ = env.reset(seed=seed)
        recorder.record()
        yield recorder
        for _ in range(decisions):
            action = policy(torch.from_numpy(observation)[None])[0]
            observation, *_ = env.step(action.numpy() if policy.action_type == "continuous" else int(action))
            recorder.record()
            yield recorder

    *_, whole = play()
    picture, frames, before = Picture(scale=2), [], None
    for recorder in play():
        now = recorder.moment
        assert now is not None
        if before is not None:
            bid, bids, ask, asks = now.quotes
            picture.outline(before, (bid, bids + now.bought, ask, asks + now.sold))
            frames.append(small(picture))
        picture.draw(recorder, whole)
        frames.append(small(picture))
        before = now
    save_film(path, frames, [BEGIN, *[DECIDED, CAME] * (decisions - 1), DECIDED, END])


def small(picture: Picture) -> Image.Image:
    """Return a picture in half its size, whose lines and letters are smoother than if they were drawn so."""
    return Image.fromarray(picture.array()).reduce(2)


def save_film(path: Path, frames: list[Image.Image], milliseconds: list[int]) -> None:
    """Write a GIF of one palette; files store what changes from picture to picture."""
    width, height = frames[0].size
    some = frames[:: max(len(frames) // 8, 1)]
    sheet = Image.new("RGB", (width, height * len(some)))
    for row, frame in enumerate(some):
        sheet.paste(frame, (0, row * height))
    palette = sheet.quantize(64, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    first, *rest = (frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames)
    with replacing(path) as part:
        first.save(part, "GIF", save_all=True, append_images=rest, duration=milliseconds, loop=0, optimize=True)
        if (size := part.stat().st_size) >= MOST:
            raise ValueError(f"{path}: expected less than {MOST:,} bytes, got {size:,}; take fewer decisions")


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
    parser.add_argument("--only", choices=["film", "market", "queue", "makers"], help="one of them")
    parser.add_argument("--policy", default=LEARNED, help=f"of the film: a trained one's name or file ({LEARNED})")
    parser.add_argument("--film-seed", type=int, default=10, help="of the film's market (10: its PnL is near the mean)")
    parser.add_argument("--film-decisions", type=int, default=70, help="how many the film shows")
    parser.add_argument("--markets", type=int, default=2048, help="markets of the chart")
    parser.add_argument("--seed", type=int, default=3, help="of the market that is shown")
    parser.add_argument("--decision", type=int, default=160, help="from which decision on it is shown")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    pictures = {
        "film": partial(
            film, options.output / "learned_maker.gif", options.policy, options.film_seed, options.film_decisions
        ),
        "market": partial(market, options.output / "watch_market.png", options.seed, options.decision),
        "queue": partial(queue, options.output / "queue.png", options.seed, options.decision // 3),
        "makers": partial(makers, options.output / "scripted_makers.png", options.markets),
    }
    for draw in [pictures[options.only]] if options.only else pictures.values():
        draw()


if __name__ == "__main__":
    main()
