"""Sweeps: every row is what its point's own markets measure, however points share launches, batches and devices."""

import tracemalloc

import numpy as np
import pytest
import torch
from agent_classes import copied_noise, trend_follower
from thorough import slow

import kineticsim_env as ks
from kineticsim_env.runtime import build
from kineticsim_env.statistics import check_statistics, of_series
from kineticsim_env.sweeps import batches, plans
from kineticsim_env.sweeps.local import Here

pandas = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

ENGINE = "numpy" if build.cpu_unavailable() else "cpu"
STATISTICS = ("volume", "volatility", "autocorrelation(lag=[1, 3])")
NAMES = ["volume", "volatility", "autocorrelation_1", "autocorrelation_3"]
SPACES = {
    "numbers": {"noise_spread": [3, 6, 12], "market_order_prob": [0.1, 0.3]},
    "levels": {"num_levels": [64, 128], "init_price": [16, 20], "maker_half_spread": [1, 2]},
    "presets": {"noise_spread": [3, 9], "preset": ["trading", "news"], "max_order_qty": [2, 4]},
    "mechanisms": {"arrivals": ["clock"], "mechanism": ["call", "continuous"], "interval": [5, 20]},
    "nothing": {"fundamental_price": [None, 70], "fundamental": [0.1, 0.3]},
    "regimes": {"regimes": [None, ({"noise_spread": 2}, {"noise_spread": 9})], "tie": ["lowest", "mid"]},
    "shares": {"noise": [0.2, 0.4], "momentum": [0.1, 0.3]},
    "agents": {
        "agents": [{trend_follower: 3}, {trend_follower: 2, copied_noise: 1}],
        "trend_follower.lookback": [3, 9],
    },
    "counts": {"trend_follower.count": [0, 4], "trend_follower.threshold": [1, 8], "noise_spread": [3, 6]},
}
MARKETS = {"presets": {"num_agents": 24}, "counts": {"preset": "trading", "agents": {trend_follower: ks.mix(4)}}}


def run(space, market="trading", intervals=30, **changes):
    given = {"statistics": STATISTICS, "replicates": 3, "warm_up": 5, "seed": 7, "engine": ENGINE, "progress": False}
    return ks.sweep(space, intervals, market=market, **(given | changes))


def own_row(config, seed, group, intervals=30):
    """Return the columns of one point, measured alone."""
    found = ks.measure(config, intervals, STATISTICS, markets=3, warm_up=5, group=group, seed=seed, engine=ENGINE)
    return found.columns(errors=group == 3)


@pytest.mark.parametrize("name", SPACES)
def test_every_row_is_what_its_points_own_markets_measure(name):
    found = run(SPACES[name], MARKETS.get(name, "trading"))
    table = found.to_pandas()
    columns = [f"{column}{ending}" for column in NAMES for ending in ("", "_error", "_half_width")]
    assert list(table) == ["point", *SPACES[name], *columns, "stopped"]
    assert table["point"].tolist() == list(range(len(table))) and not table["stopped"].any()
    for point in range(len(table)):
        config = found.config(point)
        for column, values in own_row(config, 7, 3).items():
            np.testing.assert_array_equal(table[column][point], values[0], err_msg=f"{column} of {point}")


def test_the_markets_of_points_are_what_the_space_says():
    found = run(SPACES["presets"], MARKETS["presets"])
    config = found.config(5)  # 9, trading, 4
    assert config == ks.MarketConfig.preset("trading", num_agents=24, noise_spread=9, max_order_qty=4)
    shares = run(SPACES["shares"]).config(1)
    assert (shares.noise, shares.momentum, shares.maker, shares.fundamental) == pytest.approx(
        np.array([0.2, 0.3, 0.1, 0.3]) / 0.9
    )
    agents = run(SPACES["counts"], MARKETS["counts"]).config(7)
    assert agents.agents == {trend_follower: ks.mix(4, threshold=8)} and agents.noise_spread == 6
    assert run(SPACES["regimes"]).config(2).regimes == ({"noise_spread": 2}, {"noise_spread": 9})


def test_a_config_its_preset_and_its_fields_are_one_sweep():
    config = ks.MarketConfig.preset("trading", fee=3)
    told = [config, {"preset": "trading", "fee": 3}, config.to_dict()]
    abouts = [plans.make_plan({"noise_spread": [3]}, 5, ["volume"], market=market).about() for market in told]
    assert abouts[0] == abouts[1] == abouts[2]


def test_replicates_have_common_random_numbers():
    space = {"noise_spread": [3, 6, 3]}
    common = run(space, design="list").to_pandas().drop(columns="point")
    assert common.iloc[0].equals(common.iloc[2]) and not common.iloc[0].equals(common.iloc[1])
    own = run(space, design="list", common=False).to_pandas().drop(columns="point")
    assert own.iloc[0].equals(common.iloc[0]) and not own.iloc[0].equals(own.iloc[2])
    plan = plans.make_plan(space, 5, ["volume"], design="list", replicates=3, seed=7)
    assert plan.seeds(np.arange(3)).tolist() == [7, 8, 9] * 3
    plan = plans.make_plan(space, 5, ["volume"], design="list", replicates=3, seed=7, common=False)
    assert plan.seeds(np.array([0, 2])).tolist() == [7, 8, 9, 13, 14, 15]


def test_markets_can_be_had_instead_of_points():
    found = run(SPACES["presets"], MARKETS["presets"], each_market=True)
    table = found.to_pandas()
    assert list(table) == ["point", "replicate", *SPACES["presets"], *NAMES, "stopped"] and len(table) == 24
    for point in (0, 7):
        rows = table[table["point"] == point]
        assert rows["replicate"].tolist() == [0, 1, 2]
        for column, values in own_row(found.config(point), 7, 1).items():
            np.testing.assert_array_equal(rows[column], values)
    means = run(SPACES["presets"], MARKETS["presets"]).to_pandas()
    np.testing.assert_allclose(table.groupby("point")["volume"].mean(), means["volume"])


def ends(price):
    return torch.stack([price[:, 0], price[:, -1]], 1)


def test_statistics_of_your_own_that_are_curves():
    table = run(
        {"noise_spread": [3, 6]}, statistics=[of_series(ends, "last_price", labels=("first", "last"))]
    ).to_pandas()
    columns = [f"ends_{which}{ending}" for which in ("first", "last") for ending in ("", "_error", "_half_width")]
    assert list(table) == ["point", "noise_spread", *columns, "stopped"]
    config = ks.MarketConfig.preset("trading", noise_spread=6)
    sim = ks.Simulator(config, 3, seed=7, engine=ENGINE)
    sim.run(5)
    price = sim.run(30, ("last_price",))["last_price"].double()
    assert table["ends_last"][1] == price[:, -1].mean() and table["ends_first"][1] == price[:, 0].mean()
    with pytest.raises(
        ValueError, match=r"^statistics: expected one value per market in a sweep, or as many .*, got 2 of 'ends'"
    ):
        run({"noise_spread": [3]}, statistics=[of_series(ends, "last_price")])


def test_one_replicate_has_no_error():
    table = run({"noise_spread": [3, 6]}, replicates=1).to_pandas()
    assert "volume_error" not in table and "volume_half_width" not in table


@pytest.mark.parametrize("name", ["numbers", pytest.param("presets", marks=slow), pytest.param("counts", marks=slow)])
def test_results_do_not_depend_on_batches_launches_or_devices(name, monkeypatch):
    space, market = SPACES[name], MARKETS.get(name, "trading")
    wanted = run(space, market).to_pandas()
    for size in (1, 5, 100):
        assert run(space, market, batch=size).to_pandas().equals(wanted)
    with monkeypatch.context() as patch:
        patch.setattr(batches, "_points_at_once", lambda *_: 2)
        assert run(space, market).to_pandas().equals(wanted)
    several = Here.__init__

    def on_three(self, *told):
        several(self, *told)
        self.devices, self.workers = self.devices * 3, 3

    monkeypatch.setattr(Here, "__init__", on_three)
    spread = run(space, market)
    assert spread.to_pandas().equals(wanted) and spread.batches >= 3


@pytest.mark.parametrize("preset", ["trading", pytest.param("news", marks=slow)])
def test_engines_agree(preset):
    wanted = run({"noise_spread": [3, 6]}, preset, engine="numpy", intervals=10).to_pandas()
    found = run({"noise_spread": [3, 6]}, preset, intervals=10).to_pandas()
    pandas.testing.assert_frame_equal(found, wanted, rtol=1e-12)


@pytest.mark.gpu
def test_gpus_agree_with_the_oracle():
    space = SPACES["presets"]
    wanted = run(space, {}, engine="numpy").to_pandas()
    found = run(space, {}, engine="cuda", batch=1)
    pandas.testing.assert_frame_equal(found.to_pandas(), wanted, rtol=1e-9)
    assert len(Here("cuda", None).devices) == torch.cuda.device_count()


def test_markets_that_stop_are_told_apart():
    """Books that only grow: 2^30 units per auction reach 2^31 within a few."""
    space = {"max_order_qty": [4, 65535, 8, 65535], "noise_spread": [3, 3, 3, 6]}
    market = {"num_agents": 16384, "init_depth": 1 << 20}
    with pytest.warns(UserWarning, match="in 2 points a market stopped"):
        table = run(space, market, design="list", intervals=16, replicates=2).to_pandas()
    assert table["stopped"].tolist() == [False, True, False, True]
    assert (
        table.loc[~table["stopped"], "volume"].notna().all()
        and table.loc[table["stopped"], ["volume", "volatility"]].isna().to_numpy().all()
    )
    with pytest.warns(UserWarning, match="in 1 points"):
        alone = run({"max_order_qty": [65535]}, market, intervals=16, replicates=2, each_market=True).to_pandas()
    own = ["volume", "volatility"]  # of the curve no label is defined
    assert alone["stopped"].all() and list(alone) == ["point", "replicate", "max_order_qty", *own, "stopped"]


def test_an_error_of_one_device_stops_all(monkeypatch):
    def broken(plan, begin, end, engine, device):
        raise RuntimeError(f"at {begin}")

    monkeypatch.setattr("kineticsim_env.sweeps.local.run_batch", broken)
    here = Here(ENGINE, None)
    here.devices = here.devices * 3
    with pytest.raises(RuntimeError, match="at "):
        here.run(None, iter([(i, i + 1) for i in range(9)]), lambda *_: None)


def test_devices_are_chosen_in_words():
    with pytest.raises(ValueError, match=r"device: expected different GPUs, or one device, got \['cpu', 'cpu'\]"):
        Here("cpu", ["cpu", "cpu"])
    with pytest.raises(ValueError, match=r"device: expected .*got \[\]"):
        Here("cpu", [])
    assert Here("cpu", "cpu").devices == [torch.device("cpu")]


def test_launches_are_cut_to_the_memory_that_is_free(monkeypatch):
    def points(free, statistics=("volume",), replicates=1, **fields):
        monkeypatch.setattr(batches.memory, "free_bytes", lambda device: free)
        plan = plans.make_plan({"noise_spread": [3]}, 1000, statistics, replicates=replicates)
        gathered = check_statistics(plan.statistics)
        return batches._points_at_once(plan, gathered, ks.MarketConfig(**fields), "cpu", None)

    assert points(None) == 1 << 16 and points(1e9) > 10_000 and points(1000) == 1
    assert points(1e9, replicates=4) == points(1e9) // 4
    assert points(1e9, num_levels=8192) < points(1e9) / 8
    assert points(1e9, ["tail_index"]) < 0.7 * points(1e9)  # a histogram
    assert points(1e9, {"own": of_series(torch.mean, "last_price")}) < points(1e9)


@slow
def test_memory_does_not_grow_with_points():
    """Of 1,536 points more, what is stored takes 700 kB; half of it is left to what Python itself keeps for reuse."""

    def peak(points):
        tracemalloc.start()
        try:
            found = run({"noise_spread": (2, 12), "walk_prob": (0.0, 0.4)}, design="random", points=points, batch=32,
                        intervals=3, warm_up=0, replicates=8, each_market=True)  # fmt: skip
            used = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert found.is_complete and len(found.files) == points // 32
        return used

    peak(64)
    assert peak(2048) < peak(512) + 3.5e5
