"""Copies of the built-in classes, as users would write them, give the same bits: examples/traders/builtin.py."""

import random

import pytest
import torch
from ensembles import KINDS, random_ensemble
from examples_of_traders import load
from strategies import Play, assert_same, every_engine, make_move, open_simulator
from thorough import covering, examples

import kineticsim_env as ks
from kineticsim_env.config import CLASSES

builtin = load("builtin")
SIZES = {"numpy": (40, 2), "cpu": (40, 5), "cuda": (40, 33)}  # random markets of each kind, and how many in an ensemble
MOVES = (
    ("run", 4),
    ("step", 3, "near", 1),
    ("rollout", 2, 1, "wide", 2),
    ("reset", "next episode", True, 3),
    ("run", 3),
)


def pair(config: ks.MarketConfig, markets: int, slots: tuple, seed: int, engine: str) -> list[ks.Simulator]:
    """Return the market with its own agents, and with copies of all of them."""
    names = dict(zip(CLASSES, (kind.name for kind in builtin.COPIES), strict=True)) | {None: None}
    plays = (
        Play(config, markets, slots, seed, ()),
        Play(builtin.with_copies(config), markets, tuple(names[slot] for slot in slots), seed, ()),
    )
    return [open_simulator(engine, play) for play in plays]


def assert_copies_are_the_same(config, markets, slots, seed, engine, moves=MOVES):
    sim, copy = pair(config, markets, slots, seed, engine)
    for number, move in enumerate(moves):
        assert_same(make_move(copy, move), make_move(sim, move), f"move {number} {move}:")


@covering
@every_engine
@pytest.mark.parametrize(("arrivals", "mechanism"), KINDS)
def test_random_markets(engine, arrivals, mechanism):
    """Every option, lever and regime is on in about half of the markets; quotes of slots come between the agents'."""
    number, markets = SIZES[engine]
    for case in range(examples(number)):
        rng = random.Random(f"{case} {arrivals} {mechanism}")
        # `make_quotes` gives one order per side.
        fields, slots = random_ensemble(rng, arrivals, mechanism, markets, case % 2 > 0, ladders=False)
        first = {
            name: value[0] if isinstance(value, list) and name != "regimes" else value for name, value in fields.items()
        }
        alike = {name: first[name] for name in ("num_agents", *CLASSES)}  # of a mixture there are as many everywhere
        config = ks.MarketConfig(**fields | alike | {"population": "fixed"})
        assert_copies_are_the_same(config, markets, slots or (None,), rng.randrange(1 << 40), engine)


@every_engine
@pytest.mark.parametrize("preset", ["paper", "trading", "continuous", "news"])
def test_presets(engine, preset):
    config = ks.MarketConfig.preset(preset)
    auctions = {"numpy": 2, "cpu": 200, "cuda": 200}[engine]
    assert_copies_are_the_same(config, 2, ("maker", None), 3, engine, (("run", auctions), MOVES[1], ("run", 2)))


@pytest.mark.parametrize("engine", ["numpy", "cpu"])
@pytest.mark.parametrize("preset", ["trading", "news"])
def test_environments(engine, preset):
    """Learners in the places of copies see, do and are paid the same; so are warm starts and the next episodes."""
    config = ks.MarketConfig.preset(preset)
    settings = {"num_envs": 2, "horizon": 3, "bank_size": 2, "warmup": 2, "engine": engine}
    own = ks.BatchedParallelEnv(learners={"maker": 2, "noise": 1}, config=config, **settings)
    copies = builtin.with_copies(config)
    other = ks.BatchedParallelEnv(learners={"maker_agent": 2, "noise_agent": 1}, config=copies, **settings)
    assert own.possible_agents == other.possible_agents
    seen = [env.reset(seed=5)[0] for env in (own, other)]
    generator = torch.Generator().manual_seed(1)
    for step in range(7):
        for name, value in seen[0].items():
            assert torch.equal(value, seen[1][name]), (step, name)
        actions = {
            role: torch.rand((2, seen[0][role].shape[1], *space.shape), generator=generator) * 2 - 1
            for role, space in own.single_action_spaces.items()
        }
        results = [env.step(actions) for env in (own, other)]
        for role in own.groups:
            assert torch.equal(results[0][1][role], results[1][1][role]), (step, role)
        seen = [result[0] for result in results]


def test_the_fundamental_copy_does_not_overflow():
    """Twice the largest fundamental price is no number of 32 bits."""
    for price in (-(2**30), 2**30):
        config = ks.MarketConfig(
            num_agents=3, noise=0.0, momentum=0.0, maker=0.0, fundamental=1.0, fundamental_price=price
        )
        assert_copies_are_the_same(config, 1, (), 0, "numpy", (("run", 2),))


def test_a_copy_that_differs_is_noticed(monkeypatch):
    """What the tests above compare does depend on what agents do."""

    @ks.agent()
    def other_noise(market, own, draw):
        price = market.near_mid(draw.offset(market.noise_spread))
        return ks.order(-1 if draw.coin() else 1, price, 1 + draw.below(market.max_order_qty))

    monkeypatch.setattr(builtin, "COPIES", (other_noise, *builtin.COPIES[1:]))
    sim, copy = pair(ks.MarketConfig(num_agents=9), 1, (None,), 0, "numpy")
    assert not torch.equal(make_move(copy, MOVES[0])["state bid"], make_move(sim, MOVES[0])["state bid"])


def test_nobody_is_refused():
    """A market without built-in agents needs others."""
    copies = builtin.with_copies(ks.MarketConfig(num_agents=9))
    assert copies.num_agents == 0 and copies.added_agents == 9
    for agents in (None, {builtin.noise_agent: 0}):
        with pytest.raises(ValueError, match=r"num_agents: expected 1 to \d+, or 0 where `agents` has some, got 0"):
            ks.MarketConfig(num_agents=0, agents=agents)
    with pytest.raises(ValueError, match="num_agents: expected .*, got 0"):
        ks.MarketConfig(num_agents=[5, 0])
    ks.Simulator(ks.MarketConfig(num_agents=[5, 0], agents={builtin.noise_agent: 2}), engine="numpy").run(2)
