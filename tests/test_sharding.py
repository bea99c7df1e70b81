"""An ensemble sharded over processes is the ensemble: rank r of N plays the markets seeded s + r * M / N on."""

import numpy as np
import pytest
import torch
from markets import FEW_ORDERS
from thorough import covering

import kineticsim_env as ks
from kineticsim_env.envs.vector import MarketMakingVectorEnv

MARKETS, SEED = 12, 5 << 32
ENGINES = ["numpy", "cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("preset", ["paper", "trading"])
def test_simulators_of_the_parts_have_the_bits_of_the_whole(engine, ranks, preset):
    config = ks.MarketConfig.preset(preset, num_agents=32)
    part = MARKETS // ranks
    whole = ks.Simulator(config, MARKETS, engine=engine, seed=SEED, slots=1)
    parts = [ks.Simulator(config, part, engine=engine, seed=SEED + rank * part, slots=1) for rank in range(ranks)]
    quotes = np.random.default_rng(0).integers(-2, 70, (4, MARKETS, 1, 4)).astype(np.int32)
    for quote in quotes:
        given = torch.from_numpy(quote).to(whole.device)
        fills = whole.step(given, auctions=3)
        shards = [shard.step(given[rank * part :][:part], auctions=3) for rank, shard in enumerate(parts)]
        assert torch.equal(torch.cat(shards), fills)
    whole.reset()
    series = whole.run(20, record=("last_price", "volume"))
    for rank, shard in enumerate(parts):
        mine = slice(rank * part, (rank + 1) * part)
        shard.reset()
        for name, values in shard.run(20, record=("last_price", "volume")).items():
            assert torch.equal(values, series[name][mine])
        for name, tensor in shard.tensors.items():
            assert torch.equal(tensor, whole.tensors[name][mine]), name


@covering
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("mode", ["same_step", "next_step"])
def test_environments_of_the_parts_have_the_bits_of_the_whole(engine, mode):
    how = {"engine": engine, "output": "torch", "autoreset_mode": mode, "horizon": 7, "bank_size": 8, "warmup": 5}
    how |= {"config": FEW_ORDERS}
    ranks, part = 2, MARKETS // 2
    whole = MarketMakingVectorEnv(MARKETS, **how)
    parts = [MarketMakingVectorEnv(part, **how) for _ in range(ranks)]
    first = whole.reset(seed=SEED)[0]
    assert torch.equal(torch.cat([envs.reset(seed=SEED + r * part)[0] for r, envs in enumerate(parts)]), first)
    generator = np.random.default_rng(1)
    for _ in range(20):  # episodes end, and start again from warm starts
        action = torch.from_numpy(generator.uniform(-1, 1, (MARKETS, 4)).astype(np.float32)).to(whole.device)
        *results, infos = whole.step(action)
        shards = [envs.step(action[r * part :][:part].contiguous()) for r, envs in enumerate(parts)]
        for number, values in enumerate(results):
            assert torch.equal(torch.cat([shard[number] for shard in shards]), values)
        for name, values in infos.items():
            assert torch.equal(torch.cat([shard[-1][name] for shard in shards]), values)
