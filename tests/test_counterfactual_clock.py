"""Counterfactuals on the clock: the same draws in both arms, so that all that differs is what the orders did."""

import pytest
import torch
from strategies import ENGINES, PAIRS
from test_counterfactual import assert_same_arms, schedule
from thorough import covering

from kineticsim_env import MarketConfig, Simulator, policies
from kineticsim_env.counterfactuals import block_impact, counterfactual
from kineticsim_env.envs.counterfactual_episodes import env_counterfactual
from kineticsim_env.evaluation import evaluation_env
from kineticsim_env.runtime.layout import SERIES

CLOCK = {"arrivals": "clock", "interval": 12, "beat": 8}
TRADING = MarketConfig.preset("trading", **CLOCK)
RULES = {
    "call": {"mechanism": "call"},
    "continuous": {"mechanism": "continuous"},
    "late": {"mechanism": "continuous", "quote_latency": 17},
    "regimes": {"mechanism": "continuous", "regimes": [{}, {"noise_spread": 3}], "regime_switch_prob": 0.3},
}
EARLIEST = {"late": 1}  # intervals in which quotes cannot have arrived yet
# Orders that no book can change: around a fundamental that stands still, none marketable, none cancelled or pushed off.
CLEAN = MarketConfig(
    noise=0.8, momentum=0.0, maker=0.2, num_agents=10, reference="fundamental", market_order_prob=0.0, noise_spread=6,
    maker_half_spread=2, init_depth=100, **CLOCK,
)  # fmt: skip


def on(engine, orders):
    """Orders where the engine takes them."""
    return orders.cuda() if engine == "cuda" else orders


@covering
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("auctions", [1, 3])
@pytest.mark.parametrize("rules", RULES)
def test_the_arms_are_equal_until_the_first_quotes_arrive(rules, auctions, engine):
    orders, config = on(engine, schedule(8, 40, slots=2, inactive=4)), TRADING.replace(**RULES[rules])
    found = counterfactual(config, orders, 40, auctions, 3, after=5, warmup=9, slots=2, engine=engine)
    first, sent = found.first_difference(), 4 * auctions
    arrived = sent + EARLIEST.get(rules, 0)
    assert int(first.min()) == arrived
    assert all(not bool(difference[:, :arrived].any()) for difference in found.difference.values())
    assert not bool(found.difference["fundamental"].any()) and bool(found.with_agent.fills.any())


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("rules", RULES)
def test_orders_of_no_quantity_change_nothing_ever(rules, engine):
    orders = on(engine, schedule(10, 20, inactive=10))
    found = counterfactual(TRADING.replace(**RULES[rules]), orders, 20, seed=3, after=10, engine=engine)
    assert_same_arms(found.with_agent, found.without_agent)
    for arm in (found.with_agent, found.without_agent):
        assert not any(bool(part.any()) for part in (arm.fills, arm.cash, arm.inventory, arm.fees))


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("rules", RULES)
def test_engines_give_the_same_arms(rules, pair):
    config = TRADING.replace(**RULES[rules])
    found = [counterfactual(config, on(name, schedule(12, 9)), 9, 2, 1, after=4, engine=name) for name in pair]
    for one, two in zip(*((arms.with_agent, arms.without_agent) for arms in found), strict=True):
        assert all(torch.equal(one.series[name].cpu(), two.series[name].cpu()) for name in SERIES)
        assert all(torch.equal(a.cpu(), b.cpu()) for a, b in zip(one[1:], two[1:], strict=True))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("rules", ["call", "continuous", "late"])
def test_the_same_orders_come_with_and_without_a_slot(rules, engine):
    """So the built-in side's books differ by the slots' inventory, unit by unit, whatever traded at which price."""
    sim = Simulator(CLEAN.replace(**RULES[rules]), 50, engine=engine, seed=4, slots=2)
    sim.run(7)
    clone, traded = sim.branch(), 0
    for quotes in schedule(10, 50, slots=2, seed=8):
        traded += int(sim.step(quotes.to(sim.device), 2).sum())
        clone.run(2)
        apart = (sim.bid.sum(1) - sim.ask.sum(1)) - (clone.bid.sum(1) - clone.ask.sum(1))
        assert torch.equal(apart, sim.inventory.sum(1))
    assert traded > 50 * 10 and bool(apart.any())
    assert not torch.equal(sim.volume, clone.volume)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("rules", ["call", "continuous", "late"])
def test_quotes_that_nobody_meets_or_sees_change_nothing(rules, engine):
    """Behind the best prices, where no order of these markets comes; a unit beside them in the spread does."""
    quotes = torch.tensor([[64 - 30, 9, 64 + 30, 9]], dtype=torch.int32).expand(8, 30, 1, 4)
    config = CLEAN.replace(**RULES[rules])
    found = counterfactual(config, on(engine, quotes), 30, seed=3, after=10, engine=engine)
    assert_same_arms(found.with_agent, found.without_agent)
    nearer = quotes + torch.tensor([30, -8, 0, 0], dtype=torch.int32)  # a unit at 64, between 63 and 65
    seen = counterfactual(config, on(engine, nearer), 30, seed=3, engine=engine)
    assert bool((seen.first_difference() < 8).any())


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("rules", ["call", "continuous", "regimes"])
def test_quotes_that_are_sent_again_are_no_new_ones(rules, engine):
    """In one arm the quotes stand, in the other they are sent again as they stand: they keep their places.

    Not so with a latency: what was filled on the way is asked for again.
    """
    sim = Simulator(TRADING.replace(**RULES[rules]), 100, engine=engine, seed=4, slots=2)
    for quotes in schedule(6, 100, slots=2, seed=1):
        sim.step(quotes.to(sim.device), 2)
        clone = sim.branch()
        for _ in range(3):
            assert torch.equal(sim.step(), clone.step(clone.quotes.clone()))
            for quoted in (sim.quotes, clone.quotes):
                quoted[..., 0::2] *= quoted[..., 1::2] > 0  # a price without a quantity is nobody's
            sim.engine.state_changed(), clone.engine.state_changed()
            for name, tensor in sim.tensors.items():
                assert torch.equal(tensor, clone.tensors[name]), name


@pytest.mark.parametrize("engine", ENGINES)
def test_a_block_pays_each_price_that_it_meets(engine):
    """Of 4 units 3 are on offer at 65. The bid for the fourth stands at 66, where the maker's next offer meets it."""
    lone = {"noise": 0.0, "momentum": 0.0, "maker": 1.0, "num_agents": 1, "max_order_qty": 1, "init_depth": 3}
    config = MarketConfig(**lone, arrivals="clock", mechanism="continuous", interval=2)
    found = block_impact(
        config, "buy", block=4, per_auction=4, after=4, num_markets=2, warmup=0, reach=2, engine=engine
    )
    assert found.arms.with_agent.fills[:, :, 0, 0].tolist() == [[4, 4]]
    assert found.arms.with_agent.series["last_price"][0, 0] == 66
    assert found.shortfall.mean == found.impact_cost.mean == (3 * 1 + 2) / 4


@covering
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("side", ["buy", "sell"])
def test_what_trades_before_quotes_are_withdrawn_is_counted(side, engine):
    """Fills and money tell the same: with a latency of a whole interval, quotes outlive their decision."""
    config = TRADING.replace(**RULES["continuous"], quote_latency=12)
    found = block_impact(config, side, block=12, per_auction=4, after=9, num_markets=64, engine=engine)
    bought, sold = found.arms.with_agent.fills.sum(0)[:, 0].T
    assert torch.equal(bought - sold, found.arms.with_agent.inventory[:, 0]) and found.filled.mean > 0.7
    assert found.at_end.mean > 0


@covering
@pytest.mark.parametrize("engine", ["numpy", "cpu"])
@pytest.mark.parametrize("rules", ["call", "continuous", "late"])
def test_environments(rules, engine):
    """A learner that does nothing changes nothing; one that trades nothing before its first quotes arrive."""
    config = TRADING.replace(**RULES[rules])
    make = lambda: evaluation_env(8, engine=engine, horizon=12, config=config, bank_size=4, warmup=5)  # noqa: E731
    task = make().core.task
    idle = env_counterfactual(make, policies.NoTrade(task), seed=5)
    assert all(not difference.any() for difference in idle.difference.values()) and not idle.fills.any()
    found = env_counterfactual(make, policies.FixedSpread(task, 2.0), seed=5)
    assert not found.difference["mid2"][:, 0].any() and not found.difference["fundamental"].any()
    assert found.difference["mid2"].any() and found.difference["volume"].any() and found.fills.any()
