"""Kinds of rows of `performance.py` with policies: rollouts with a network inside, evaluations, and training.

Each opens what it measures and runs it once, then measures it, as those of `performance_kinds.py` do.
"""

import time
from typing import Any

import gymnasium as gym
import torch

from kineticsim_env import MarketConfig, NetworkPolicy, policies
from kineticsim_env.envs.settings import EnvSettings
from kineticsim_env.evaluation import HELD_OUT_SEED, evaluate, evaluation_env
from kineticsim_env.zoo import scripted
from scripts.benchmarks.performance_kinds import LEAST, ON_GPU, digest, shortest

ENTRY = f"MarketMaking, {EnvSettings.preset}"  # whose policies are played
DECISIONS = 32  # of a rollout


def makers() -> dict[str, dict[str, Any]]:
    """Return the scripted makers of the default market by name: class and parameters."""
    return scripted("MarketMaking", EnvSettings.preset)


class Rollouts:
    """Decisions of a network inside a rollout's launch, captured as a CUDA graph; so many `episodes` at least.

    The network is the examples': two of two layers of 64, Gaussian; observations are recorded in bfloat16.
    """

    def __init__(
        self, markets: int = 1024, preset: str = EnvSettings.preset, task: str = "MarketMaking", episodes: int = 3
    ) -> None:
        config, engine = MarketConfig.preset(preset), "cuda" if ON_GPU else "cpu"
        settings: dict[str, Any] = {"config": config, "engine": engine, "output": "torch", "copy": False}
        envs: Any = gym.make_vec(f"KineticSim/{task}-v0", num_envs=markets, **settings).unwrapped
        envs.simulator.specialise()
        envs.reset(seed=0)
        torch.manual_seed(0)
        sizes = envs.single_observation_space.shape[0], envs.single_action_space.shape[0]
        self._envs, self._markets, self._policy = envs, markets, NetworkPolicy.make(*sizes).to(envs.device)
        self._seed = torch.zeros(1, dtype=torch.int64, device=envs.device)
        self._out = envs.rollout(self._policy, DECISIONS, seed=self._seed, observations=torch.bfloat16)
        self.digest = digest((self._out.reward.T, envs.simulator.bid))
        self._replays = -(-episodes * int(envs.core.task.horizon) // DECISIONS) if ON_GPU else 1
        self._play: Any = self._roll_out
        if ON_GPU:
            graph = torch.cuda.CUDAGraph()
            torch.cuda.synchronize()
            with torch.cuda.graph(graph):
                self._roll_out()
            self._play = graph.replay

    def _roll_out(self) -> None:
        self._envs.rollout(self._policy, DECISIONS, out=self._out, seed=self._seed)

    def _run(self) -> None:
        for _ in range(self._replays):
            self._play()

    def measure(self) -> dict[str, float]:
        """Return decisions per second of all markets together, and microseconds per decision of all."""
        taken = shortest(self._run, ON_GPU) / (DECISIONS * self._replays)
        return {"steps_per_s": self._markets / taken, "us_per_step": taken * 1e6}

    def close(self) -> None:
        """Let go of graph and markets."""
        self._play = None
        self._envs.close()


class Evaluations:
    """`evaluate` of a scripted maker of the default market on held-out episodes, with its parameters on record."""

    def __init__(self, policy: str, markets: int = 2048) -> None:
        chosen = makers()[policy]
        engine = "cuda" if ON_GPU else "cpu"
        self._envs = evaluation_env(markets, config=MarketConfig.preset(EnvSettings.preset), engine=engine)
        self._policy = getattr(policies, chosen["policy"])(self._envs.core.task, **chosen["parameters"])
        self._evaluate()
        self.digest = digest([torch.from_numpy(self._pnl)])

    def _evaluate(self) -> None:
        self._pnl = evaluate(self._policy, self._envs, HELD_OUT_SEED).pnl

    def measure(self) -> dict[str, float]:
        """Return the seconds of one evaluation: all that is compiled has been."""
        started = time.perf_counter()
        self._evaluate()
        return {"seconds": time.perf_counter() - started, "pnl": float(self._pnl.mean())}

    def close(self) -> None:
        """Let go of the markets."""
        self._envs.close()


class Training:
    """The fast PPO example: a variant of `training_rate.py`."""

    digest = None

    def __init__(self, variant: str, markets: int = 65536) -> None:
        from scripts.benchmarks import training_rate as rate  # needs what the examples need

        self._rate, device = rate, torch.device("cuda" if ON_GPU else "cpu")
        changes = rate.VARIANTS[variant] | ({} if ON_GPU else {"num_envs": markets})
        self._trainer = rate.open_trainer(changes, device.type, device)
        self._prepared = self._trainer.prepare()
        self._steps = self._trainer.args.num_envs * self._trainer.args.num_steps

    def measure(self) -> dict[str, float]:
        """Return steps per second of the whole, of rollouts, and of stepping alone; and seconds of preparation."""
        device = self._trainer.device
        parts = {
            "training_steps_per_s": lambda: self._trainer.update(0.0),
            "rollout_steps_per_s": self._trainer.rollout,
            "steps_per_s": self._rate.random_steps(self._trainer),
        }
        rates = {
            name: self._steps / self._rate.timed(work, device, 2 * LEAST["seconds"]) for name, work in parts.items()
        }
        return rates | {"prepare_seconds": self._prepared}

    def close(self) -> None:
        """Let go of networks and markets."""
        self._trainer.envs.close()
        del self._trainer
