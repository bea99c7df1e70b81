"""Watch a scripted market maker for an episode: a video and a picture of one market.

    python examples/watch_market.py
    python examples/watch_market.py --policy fixed-spread --seed 7 --output runs/watch

Needs `pip install 'kineticsim-env[render]'`. The video is recorded as of any Gymnasium environment, with its wrapper.
"""

import argparse
from pathlib import Path

import gymnasium as gym
import torch
from gymnasium.wrappers import RecordVideo

import kineticsim_env  # noqa: F401  registers the environment
from kineticsim_env import policies
from kineticsim_env.envs.core import EnvCore
from kineticsim_env.envs.settings import EnvSettings
from kineticsim_env.render import MarketRecorder
from kineticsim_env.render.picture import Picture

POLICIES = {
    "avellaneda-stoikov": policies.AvellanedaStoikov,
    "fixed-spread": policies.FixedSpread,
    "random": policies.RandomQuotes,
    "none": policies.NoTrade,
}


def main() -> None:
    options = parse()
    output = Path(options.output)
    market = {"preset": options.preset, "horizon": options.horizon}
    env = gym.make("KineticSim/MarketMaking-v0", render_mode="rgb_array", **market)
    core: EnvCore = env.get_wrapper_attr("core")
    policy = POLICIES[options.policy](core.task)
    output.mkdir(parents=True, exist_ok=True)
    recorder = MarketRecorder(core)  # what the environment's own pictures are drawn from too
    env = RecordVideo(
        env, str(output), name_prefix=options.policy, episode_trigger=lambda episode: True, fps=options.fps
    )

    observation, _ = env.reset(seed=options.seed)
    recorder.record()
    picture, drawn, total, done = Picture(scale=2), False, 0.0, False
    while not done:
        action = policy(torch.from_numpy(observation)[None])[0].numpy()
        observation, reward, terminated, truncated, info = env.step(action)
        total, done = total + float(reward), terminated or truncated
        moment = recorder.record()
        filled = moment.bought or moment.sold
        if not drawn and (done or (filled and moment.elapsed >= options.horizon // 2)):  # one that shows a fill
            picture.draw(recorder)
            picture.save(output / f"{options.policy}.png")
            drawn = True
    env.close()  # writes the video

    print(f"{options.policy}, seed {options.seed}: {options.horizon} decisions, return {total:.1f}")
    print(f"inventory {info['inventory']:+d}, PnL {recorder.record().pnl:+.1f} ticks, inventory at the mid")
    print(f"video: {output / f'{options.policy}-episode-0.mp4'}")
    print(f"picture: {output / f'{options.policy}.png'}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Watch a scripted market maker: a video and a picture of one market.")
    parser.add_argument("--policy", choices=POLICIES, default="avellaneda-stoikov", help="who quotes")
    parser.add_argument("--preset", default=EnvSettings.preset, help="the market")
    parser.add_argument("--seed", type=int, default=3, help="of the market")
    parser.add_argument("--horizon", type=int, default=300, help="decisions")
    parser.add_argument("--fps", type=int, default=10, help="decisions per second in the video")
    parser.add_argument("--output", default="runs/watch", help="folder of the video and the picture")
    return parser.parse_args()


if __name__ == "__main__":
    main()
