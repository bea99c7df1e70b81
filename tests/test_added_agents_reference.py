"""Agents of classes that users write: the NumPy engine beside the plain reference, bit for bit."""

import random

import pytest
from agent_classes import CLASSES, with_agents
from ensembles import KINDS, Ensemble, random_ensemble
from thorough import examples

import kineticsim_env as ks


@pytest.mark.parametrize(("arrivals", "mechanism"), KINDS)
@pytest.mark.parametrize("seed", range(examples(60)))
def test_random_markets(seed, arrivals, mechanism):
    rng = random.Random(f"added {seed} {arrivals} {mechanism}")
    markets = rng.choice([1, 2, 4])
    fields, slots = random_ensemble(rng, arrivals, mechanism, markets, markets > 1 and rng.random() < 0.6)
    config = with_agents(ks.MarketConfig(**fields), seed, markets)
    names = {kind.name: made.count for kind, made in config.agents.items()}
    for name, count in names.items():  # learners take the place of some
        if count and rng.random() < 0.3:
            slots = (*slots[:-1], name) if slots else (name,)
    both = Ensemble(config.to_dict(), slots, markets, rng.randrange(1 << 40))
    both.assert_same()
    for _ in range(6):
        both.move(rng)


def test_the_classes_are_seen_to_do_all_that_they_can():
    """Every class orders, and what remembers changes; else the tests above would compare nothing."""
    for kind in CLASSES:
        config = ks.MarketConfig.preset("trading", num_agents=1).replace(agents={kind: 6})
        sim = ks.Simulator(config, 3, engine="numpy", seed=2)
        before = sim.tensors["agent_memory"].clone() if kind.memory else None
        alone = ks.Simulator(config.replace(agents=None), 3, engine="numpy", seed=2)
        with_them, without = (one.run(40, record=["volume"])["volume"].sum() for one in (sim, alone))
        assert with_them > without, kind
        assert before is None or bool((sim.tensors["agent_memory"] != before).any()), kind
