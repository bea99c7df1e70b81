"""The clock, continuous trading, levers and regimes: the NumPy engine beside the plain reference, bit for bit."""

import random

import pytest
from ensembles import KINDS, Ensemble, random_ensemble
from thorough import examples

CASES = examples(150)
KIND = pytest.mark.parametrize(("arrivals", "mechanism"), KINDS)


@KIND
@pytest.mark.parametrize("seed", range(CASES))
def test_random_markets(seed, arrivals, mechanism):
    """Alike markets and different ones; every call of a simulator, in any order."""
    rng = random.Random(f"{seed} {arrivals} {mechanism}")
    markets = rng.choice([1, 2, 4])
    fields, slots = random_ensemble(rng, arrivals, mechanism, markets, markets > 1 and rng.random() < 0.6)
    both = Ensemble(fields, slots, markets, rng.randrange(1 << 40))
    both.assert_same()
    for _ in range(8):
        both.move(rng)
