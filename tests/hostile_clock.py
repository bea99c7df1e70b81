"""Anything is written into live tensors of markets on the clock; they are played, and a reset makes all well again.

Tests call this with CUDA, and with the C++ engine in a child of their own, under sanitizers, as it may crash or hang:
`python tests/hostile_clock.py cpu`.
"""

import contextlib
import sys

import gymnasium as gym
import torch

import kineticsim_env as ks
from kineticsim_env.runtime import layout
from scripts.fuzz.values import extremes

MECHANISMS = ("call", "continuous")
SLOTS = (0, 1, 3)
SERIES = (*layout.SERIES, *layout.FURTHER_SERIES)
LEFT_ALONE = ("seed", "scenario", "reward", "observation", "final_observation", "error")  # by resets, or only written


def hostile_config(mechanism: str, levers: bool, levels: int = 32) -> ks.MarketConfig:
    """Return a market with beats inside intervals and longer than them, regimes, and perhaps levers."""
    fields = {"arrivals": "clock", "mechanism": mechanism, "num_levels": levels, "init_price": levels // 2, "window": 3}
    fields |= {"interval": 20, "beat": 100 if levers else 7, "num_agents": 20, "max_order_qty": 50}
    fields |= {"regimes": [{}, {"noise_spread": 9, "cancel_prob": 0.9}], "regime_switch_prob": 0.3}
    if levers:
        fields |= {"tick_size": 3, "collar": 4, "tax": 2, "reference": "fundamental"}
    if mechanism == "continuous":
        fields |= {"quote_latency": 30 if levers else 0, "taker_fee": 9}
    return ks.MarketConfig.preset("trading", **fields)


def scribble(tensor: torch.Tensor, generator: torch.Generator) -> None:
    """Write extreme numbers, into all of a tensor or into about half of it."""
    choices = extremes(tensor.dtype)  # times at both ends, too: events are numbered t * interval
    drawn = torch.tensor(choices)[torch.randint(len(choices), tensor.shape, generator=generator)]
    kept = torch.rand(tensor.shape, generator=generator) < 0.5 * (torch.rand((), generator=generator) < 0.5)
    tensor.copy_(torch.where(kept, tensor.cpu(), drawn.to(tensor.dtype)))


def attack_simulator(engine: str, mechanism: str, slots: int, levers: bool) -> None:
    """Write into each tensor of a simulator, and into all at once, and play; then compare with a fresh one."""
    config, generator = hostile_config(mechanism, levers), torch.Generator().manual_seed(1)
    sim, fresh = (ks.Simulator(config, 37, engine=engine, slots=slots) for _ in range(2))
    quotes = torch.randint(-2, 34, (2, 37, slots, 4), generator=generator, dtype=torch.int32).to(sim.device)
    names = [name for name in sim.tensors if name not in LEFT_ALONE]
    for chosen in [[name] for name in names] + [names] * 6:
        sim.reset(seed=4)
        sim.step(quotes[0] if slots else None)
        for name in chosen:
            scribble(sim.tensors[name], generator)
        for _ in range(2):
            # A market that has stopped; on the clock t may be refused, too.
            with contextlib.suppress(ks.MarketError):
                sim.run(2, record=SERIES, reach=3)
            with contextlib.suppress(ks.MarketError):
                sim.rollout(quotes, auctions=2) if slots else sim.run(3)
        sim.tensors["error"].zero_()
        sim.reset(seed=4)
        fresh.reset(seed=4)
        for name, tensor in fresh.tensors.items():
            assert torch.equal(sim.tensors[name], tensor), f"after {chosen}: {name}"


def attack_environment(engine: str, mechanism: str, levers: bool, **settings) -> None:
    """The same for an environment: steps and resets inside the launch, from warm starts that were written to, too."""
    settings |= {"config": hostile_config(mechanism, levers), "warmup": 5, "bank_size": 4, "horizon": 3}
    env = gym.make_vec("KineticSim/MarketMaking-v0", num_envs=37, engine=engine, output="torch", **settings).unwrapped
    generator, simulator = torch.Generator().manual_seed(2), env.simulator
    live = {**simulator.tensors, **env.core.tensors}
    for chosen in [[name] for name in live if name not in LEFT_ALONE] + [list(live)] * 3:
        simulator.tensors["error"].zero_()
        env.reset(seed=4)
        for name in set(chosen) - set(LEFT_ALONE):
            scribble(live[name], generator)
        for _ in range(5):
            with contextlib.suppress(ks.MarketError, gym.error.ResetNeeded):
                env.step(torch.rand((37, 4), generator=generator).to(env.device) * 2 - 1)
    simulator.tensors["error"].zero_()
    banks = {name: tensor for name, tensor in env.core._engine._tensors.items() if name.startswith("bank_")}
    assert len(banks) == 4
    for _ in range(6):
        for tensor in banks.values():
            scribble(tensor, generator)
        for _ in range(5):
            with contextlib.suppress(ks.MarketError, gym.error.ResetNeeded):
                env.reset()
                env.step(torch.rand((37, 4), generator=generator).to(env.device) * 2 - 1)
            simulator.tensors["error"].zero_()


def attack(engine: str) -> None:
    """All of it."""
    for mechanism in MECHANISMS:
        for levers in (False, True):
            for slots in SLOTS:
                attack_simulator(engine, mechanism, slots, levers)
            attack_environment(engine, mechanism, levers)


if __name__ == "__main__":
    attack(sys.argv[1])
    print("held")
