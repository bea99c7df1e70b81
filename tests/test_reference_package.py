"""The plain reference of `tests/reference` and the NumPy engine agree on what both can play: `"each"` and `"call"`."""

import numpy as np
import pytest
from ensembles import assert_market_is, total_fills
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import Reference
from strategies import STYLES, Play, fitting_slots, make_config, make_quotes, open_simulator, plays
from thorough import examples

import kineticsim_env as ks

SMALL = (8, 16, 32, 64, 128)


def play_beside(play: Play, moves) -> None:
    """Step a NumPy simulator and one reference per market with the same quotes; compare after each decision."""
    sim = open_simulator("numpy", play)
    alone = [Reference(play.config.to_dict(), play.slots, play.seed, m) for m in range(play.markets)]
    for move in moves:
        if move == "reset":
            sim.reset()
            for reference in alone:
                reference.reset()
            continue
        auctions, style, number = move
        quotes = make_quotes(sim, style, number)[0] if style and play.slots else None
        fills = sim.step(quotes, auctions).tolist()
        for m, reference in enumerate(alone):
            seen = reference.decision(None if quotes is None else quotes[m].tolist(), auctions)
            assert_market_is(sim, m, reference)
            assert fills[m] == total_fills(seen)


def moves_of(seed, count=8):
    rng = np.random.default_rng(seed)
    some = [(int(rng.integers(1, 5)), str(rng.choice([*STYLES, ""])), int(rng.integers(2**32))) for _ in range(count)]
    return [*some[: count // 2], "reset", *some[count // 2 :]]


@settings(max_examples=examples(60), derandomize=True)
@given(play=plays(levels=SMALL), seed=st.integers(0, 2**32))
def test_random_configurations(play, seed):
    """Awkward markets: extreme sizes, spreads and quotes, every option, parameters per market, multinomial counts."""
    if play.markets > 3 or np.max(play.config.num_agents) > 100:  # the reference is slow on purpose
        fewer = min(play.markets, 3)
        fields = {
            n: v[:fewer] if hasattr(v, "__len__") and n in play.config.per_market else v
            for n, v in play.config.to_dict().items()
        }
        fields["num_agents"] = np.minimum(fields["num_agents"], 40)
        config = ks.MarketConfig(**fields)
        slots = fitting_slots(config, fewer, list(play.slots))
        play = Play(config, fewer, slots, play.seed, ())
    play_beside(play, moves_of(seed))


@pytest.mark.parametrize("preset", ["paper", "trading", "continuous"])
def test_presets(preset):
    play = Play(ks.MarketConfig.preset(preset), 2, (None, "maker", "noise"), 5, ())
    play_beside(play, moves_of(1, 20))


@pytest.mark.parametrize("seed", range(examples(6)))
def test_each_option(seed):
    for option in ("walk", "cancel", "window", "tie", "residue", "multinomial", "limit", "cap"):
        config = make_config(seed, 32, 30, frozenset({option}))
        play_beside(Play(config, 2, (None, None), seed, ()), moves_of(seed, 4))


def test_both_stop_in_the_same_auction():
    """Makers that never trade fill the book; at 2^31 NumPy raises and the reference sets its error word."""
    shares = {"noise": 0.0, "momentum": 0.0, "maker": 1.0}
    config = ks.MarketConfig(num_levels=16, init_price=8, num_agents=16384, max_order_qty=65535, **shares)
    sim, alone = ks.Simulator(config, 1, engine="numpy", seed=3), Reference(config.to_dict(), 0, 3)
    while not alone.error:
        seen = alone.interval()
        if alone.error:
            with pytest.raises(ks.MarketError):
                sim.step()
            assert sim.t[0] == seen["t"] and sim.bid[0].tolist() == seen["bid"]
        else:
            sim.step()
    assert seen["t"] >= 7
