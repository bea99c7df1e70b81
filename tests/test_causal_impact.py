"""`causal_impact` beside the two arms of `counterfactual` themselves, and what it says where there is no effect."""

import numpy as np
import pytest
import torch

import kineticsim_env as ks
from kineticsim_env.config import MAX_PRICE, PRESETS, MarketConfig
from kineticsim_env.counterfactuals.causal import fit_power
from kineticsim_env.statistics import mean_and_error

SHORT = {"num_markets": 12, "seed": 5, "warmup": 20, "engine": "cpu"}


def arms_of(config, size, side, pieces, longest, markets=12):
    """The same by `counterfactual`: its arms, the events of an interval, and what each event's quotes were."""
    steps = config.interval if config.is_continuous else 1
    config = config.replace(interval=1, quote_latency=0) if config.is_continuous else config

    def orders(t, simulator):
        quotes = torch.zeros((markets, 1, 4), dtype=torch.int32)
        if t % steps == 0 and t // steps < pieces:
            column = 0 if side == "buy" else 2
            done = simulator.inventory[:, 0].abs()
            quotes[:, 0, column] = MAX_PRICE if side == "buy" else -MAX_PRICE
            quotes[:, 0, column + 1] = (size * (t // steps + 1) // pieces - done).int()
        return quotes

    decisions = (pieces - 1 + longest) * steps
    found = ks.counterfactual(config, orders, markets, seed=5, decisions=decisions, warmup=20 * steps, engine="cpu")
    return found, steps


@pytest.mark.parametrize(("preset", "side", "pieces"), [(name, "buy", 1) for name in PRESETS] + [
    ("trading", "sell", 3), ("news", "sell", 3), ("continuous", "buy", 2), ("paper", "sell", 2)
])  # fmt: skip
def test_it_is_the_difference_of_two_arms(preset, side, pieces):
    config = MarketConfig.preset(preset)
    found = ks.causal_impact(preset, (3, 11), (0, 1, 2, 4), pieces=pieces, side=side, **SHORT)
    assert found == ks.causal_impact(config, (3, 11), (0, 1, 2, 4), pieces=pieces, side=side, **SHORT)
    assert found.sizes == (3, 11) and found.lags == (0, 1, 2, 4) and found.pieces == pieces and found.side == side
    sign = 1 if side == "buy" else -1
    for at, size in enumerate(found.sizes):
        arms, steps = arms_of(config, size, side, pieces, 4)
        apart = sign * arms.difference["mid2"].numpy() / 2
        events = [(pieces - 1) * steps + 1, *((pieces - 1 + lag) * steps for lag in (1, 2, 4))]
        assert found.moved[at] == tuple(mean_and_error(apart[:, event - 1]) for event in events)
        tail = [(pieces - 1 + lag) * steps - 1 for lag in (3, 4)]
        assert found.left[at] == mean_and_error(apart[:, tail].mean(1))
        units = sign * arms.with_agent.inventory[:, 0].numpy()
        assert found.filled[at] == mean_and_error(units / size)
        mid = torch.cat([arms.arrival[:, None], arms.without_agent.series["mid2"]], 1).numpy()[:, : len(apart[0])] / 2
        fills = arms.with_agent.fills[:, :, 0].sum(-1).T.numpy()
        paid = -sign * arms.with_agent.cash[:, 0].numpy() - (fills * mid).sum(1)
        cost = mean_and_error(sign * paid / np.where(units > 0, units, np.nan))
        assert found.cost[at].mean == pytest.approx(cost.mean) and found.cost[at].count == cost.count
    assert preset == "paper" or found.moved[1][0].mean > 0  # where 12 markets are few


def test_an_order_to_a_call_auction_moves_nothing_between_lags_0_and_1():
    found = ks.causal_impact("trading", (4, 8), (0, 1), pieces=2, **SHORT)
    assert all(moved[0] == moved[1] and moved[0].mean > 0 for moved in found.moved)
    block = ks.block_impact(MarketConfig.preset("trading"), block=8, per_auction=4, after=1, **SHORT)
    assert found.moved[1][1] == block.at_end and found.cost[1].mean == pytest.approx(block.impact_cost.mean)


def test_engines_agree():
    arguments = {"sizes": (2, 9), "lags": (0, 3), "pieces": 2, "num_markets": 5, "seed": 1, "warmup": 8}
    for preset in ("trading", "news"):
        one, two = (ks.causal_impact(preset, **arguments, engine=engine) for engine in ("cpu", "numpy"))
        np.testing.assert_array_equal(np.array(one.moved), np.array(two.moved))
        assert one.cost == two.cost


def test_what_is_no_different_from_0_has_no_exponent_and_no_permanence():
    deep = MarketConfig.preset("paper", init_depth=100_000)
    found = ks.causal_impact(deep, (1, 2), (0, 1, 4), **SHORT)
    assert all(mean.mean == 0 for moved in found.moved for mean in moved)
    assert np.isnan(found.exponent[:3]).all() and np.isnan(found.permanence[:3]).all()
    alone = ks.causal_impact("trading", (2, 8), (0, 2), num_markets=1, engine="cpu")
    assert np.isfinite(alone.moved[1][0].mean) and np.isnan(alone.moved[1][0].error)
    assert np.isnan(alone.exponent[:3]).all() and np.isnan(alone.permanence[:3]).all()


def test_where_nobody_knows_a_value_the_move_stays_and_elsewhere_it_goes():
    free = MarketConfig.preset("trading", fundamental=0.0, noise=0.75)
    arguments = {"sizes": (4, 8), "lags": (0, 40), "num_markets": 400, "seed": 3, "engine": "cpu"}
    stays, goes = ks.causal_impact(free, **arguments), ks.causal_impact("trading", **arguments)
    assert stays.permanence.low > 0.3 and stays.exponent.low > 0
    assert goes.permanence.high < 0.3 and goes.permanence.low < 0.1
    fades = ks.causal_impact("realistic", (8, 16), (0, 1, 20), num_markets=256, seed=3, engine="cpu")
    assert fades.moved[1][0].mean > 0.5 and abs(fades.permanence.value) < 0.05


def test_an_order_larger_than_the_book_is_not_of_its_size():
    thin = ks.causal_impact("continuous", (1, 2, 4, 64), (0, 2), num_markets=64, engine="cpu")
    assert thin.filled[3].mean < 0.5 < thin.filled[0].mean
    assert thin.exponent == ks.causal_impact("continuous", (1, 2, 4), (0, 2), num_markets=64, engine="cpu").exponent


def test_latency_does_not_count_and_fees_do():
    arguments = {"sizes": (4,), "lags": (0, 1), **SHORT}
    plain = ks.causal_impact("news", **arguments)
    assert plain == ks.causal_impact(MarketConfig.preset("news", quote_latency=7), **arguments)
    with_fee = ks.causal_impact(MarketConfig.preset("news", fee=500), **arguments)
    assert with_fee.moved == plain.moved and with_fee.cost[0].mean == pytest.approx(plain.cost[0].mean + 0.5)


def test_fields_per_market():
    config = MarketConfig.preset("trading", noise_spread=[6, 14, 20])
    found = ks.causal_impact(config, (4,), (0, 1), warmup=20, seed=5, engine="cpu")
    assert found.moved[0][0].count == 3
    whole = MarketConfig.preset("news", interval=None)  # as many events as agents
    assert ks.causal_impact(whole, (4,), (0, 1), **SHORT) == ks.causal_impact(
        MarketConfig.preset("news", interval=40), (4,), (0, 1), **SHORT
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"market": "papers"}, "preset: expected .*, got 'papers'"),
        ({"market": 3}, "market: .*got 3"),
        ({"sizes": ()}, "sizes: .*got"),
        ({"sizes": (2, 0)}, r"sizes\[1\]: expected .*, got 0"),
        ({"lags": 3}, "lags: .*got 3"),
        ({"lags": (-1,)}, r"lags\[0\]: expected .*, got -1"),
        ({"pieces": 0}, "pieces: .*got 0"),
        ({"side": "both"}, "side: expected .*, got 'both'"),
        ({"market": MarketConfig(inventory_limit=5), "sizes": (4, 6)}, "sizes: expected up to 5.*got 6"),
        ({"market": MarketConfig(max_quote_qty=5), "sizes": (11,), "pieces": 2}, "pieces: expected up to 5.*got 6"),
    ],
)
def test_errors_name_the_argument(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        ks.causal_impact(**arguments, engine="cpu")


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_a_power_is_found_though_small_sizes_are_lost_in_noise(power):
    generator = np.random.default_rng(2)
    sizes = np.array([1, 2, 4, 8, 16])
    inside, runs = 0, 60
    for _ in range(runs):
        effects = 0.3 * sizes**power + generator.normal(0, 5, (400, 1)) + generator.normal(0, 5, (400, 5))
        found = fit_power(sizes, effects, resamples=200)
        inside += found is None or found.low <= power <= found.high
    assert inside >= 0.85 * runs
