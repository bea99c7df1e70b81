"""The CUDA kernel of a market per warp, on a CPU with a fiber per thread: every tensor is the C++ engine's."""

import random

import pytest
from build_helpers import build_on_host, headers_with_fibers
from ensembles import Ensemble, random_ensemble
from env_helpers import check_cores_agree, check_trading_market, environments, make_cores, trading_market
from hypothesis import HealthCheck, given, settings
from reference.orders import BUY, SELL
from strategies import play_twice, plays
from test_second_model import fill_up
from thorough import covering, examples, slow

from kineticsim_env.engines import runs
from kineticsim_env.engines.cpu import CpuEngine
from kineticsim_env.runtime import build
from kineticsim_env.tasks.base import ROLES

pytestmark = pytest.mark.skipif(build.cpu_unavailable() is not None, reason="no C++ compiler")
few_examples = settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("variant", ["warp", "warp with bins"])
@few_examples
@given(environment=environments())
def test_environments_agree_on_every_tensor(twice, variant, environment):
    first, second = twice(variant, lambda: make_cores(*environment[:2], ("cpu",))[0])
    check_cores_agree([first, second], environment, 0.05)


@few_examples
@given(environment=environments(most_slots=1))
def test_environments_of_one_slot_agree_on_every_tensor(twice, environment):
    first, second = twice("warp of one slot", lambda: make_cores(*environment[:2], ("cpu",))[0])
    check_cores_agree([first, second], environment, 0.05)


@covering
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("mark", ["fundamental", "liquidation"])
def test_they_agree_in_the_trading_market(twice, role, mark):
    made = twice("warp with bins and rounding", lambda: make_cores(*trading_market(role, mark=mark), ("cpu",))[0])
    check_trading_market(made)


@few_examples
@given(play=plays(levels=(8, 32, 128)))
def test_runs_agree(twice, play):
    play_twice(twice, "warp", play)


@few_examples
@given(play=plays(levels=(64, 128), reach=15))
def test_runs_with_bins_agree(twice, play):
    play_twice(twice, "warp with bins", play)


# Call auctions on the clock, beside the plain reference --------------------------------------------------------------

CALL = ("clock", "call")
VARIANTS = [f"warp{bins}{levers}" for bins in ("", " with bins") for levers in ("", " and rounding", " and levers")]
OFF = {"reference": "mid", "taker_offset": 1, "tax": 0, "collar": 0, "tick_size": 1}


def suited_to(variant, fields):
    """Return fields without the levers that a variant lacks, and with orders near enough for its bins."""

    def each(change, value):
        return [change(one) for one in value] if isinstance(value, list) else change(value)

    fields = dict(fields)
    if "levers" not in variant:
        fields |= {name: each(lambda _, off=off: off, fields[name]) for name, off in OFF.items()}
        fields["regime_switch_prob"] = 0.0
        fields.pop("regimes", None)
        if "rounding" not in variant:
            fields["rounding"] = "even"
    if "bins" in variant:
        for name in ("noise_spread", "maker_half_spread", "taker_offset"):
            fields[name] = each(lambda ticks: min(ticks, 15), fields[name])
        if fields.get("regimes"):
            fields["regimes"] = [
                {name: min(value, 15) if name == "noise_spread" else value for name, value in one.items()}
                for one in fields["regimes"]
            ]
    return fields


@pytest.fixture
def take(kernels, monkeypatch):
    """Put a variant of the kernel in the C++ engine's place."""
    return lambda variant: monkeypatch.setattr(build, "load_cpu", lambda: kernels[variant])


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("seed", range(examples(12)))
def test_calls_on_the_clock(take, variant, seed):
    take(variant)
    rng = random.Random(f"{variant} {seed}")
    markets = rng.choice([1, 2, 4])
    fields, slots = random_ensemble(rng, *CALL, markets, markets > 1 and rng.random() < 0.6)
    fields = suited_to(variant, fields)
    fields["interval"] = rng.choice([fields["interval"] or 6, rng.randint(20, 200)])
    fields["beat"] = rng.choice([fields["beat"] or 6, fields["interval"], rng.randint(1, 90)])
    if rng.random() < 0.2:
        slots = (None,) * rng.choice([1, 32])
    both = Ensemble(fields, slots, markets, rng.randrange(1 << 40), "cpu")
    for _ in range(5):
        both.move(rng)


@pytest.mark.parametrize("variant", VARIANTS)
def test_agents_of_every_class_come_where_a_learner_replaces_one(take, variant):
    take(variant)
    fields = dict(zip(("arrivals", "mechanism"), CALL, strict=True)) | {"num_agents": 12, "interval": 60, "beat": 20}
    fields |= {"num_levels": 32, "init_price": 16, **dict.fromkeys(("noise", "momentum", "maker", "fundamental"), 0.25)}
    fields |= {"noise_spread": 6, "maker_half_spread": 2}
    both, rng = Ensemble(fields, ("noise",), 1, 3, "cpu"), random.Random(variant)
    for _ in range(5):
        both.move(rng)


@pytest.mark.parametrize("variant", [variant for variant in VARIANTS if variant.endswith("levers")])
def test_the_fundamental_price_walks_in_some_regimes_only(take, variant):
    """Words of beats are drawn for 32 at a time, and not used where a regime without a walk has come between."""
    take(variant)
    fields = dict(zip(("arrivals", "mechanism"), CALL, strict=True)) | {"num_agents": 8, "interval": 70, "beat": 3}
    fields |= {"num_levels": 32, "init_price": 16, "noise_spread": 6, "noise": 0.5, "fundamental": 0.5}
    fields |= {"momentum": 0.0, "maker": 0.0, "walk_prob": 0.5, "window": 4, "regimes": [{}, {"walk_prob": 0.0}]}
    both, rng = Ensemble(fields | {"regime_switch_prob": 0.3}, ("noise",), 2, 3, "cpu"), random.Random(variant)
    for _ in range(5):
        both.move(rng)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("seed", range(examples(10)))
def test_calls_on_the_clock_that_are_cut_into_pieces(take, variant, seed, monkeypatch):
    """Launches end between beats and begin there."""
    take(variant)
    monkeypatch.setitem(runs.EVENTS, "cpu", 1)
    rng = random.Random(f"pieces {variant} {seed}")
    fields, _ = random_ensemble(rng, *CALL, 2, per_market=True)
    fields = suited_to(variant, fields) | {"interval": rng.choice([1, 7, 64, 70]), "beat": rng.choice([2, 50, 64, 300])}
    both = Ensemble(fields, (None, None), 2, seed, "cpu")
    for _ in range(4):
        both.move(rng)


@pytest.fixture
def take_as_on_a_gpu(take, monkeypatch):
    """The same, and a call goes on where a market has stopped: only its error word says so."""
    monkeypatch.setattr(CpuEngine, "_raise_stopped", lambda *_: None)
    return take


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("seed", range(examples(20)))
def test_calls_on_the_clock_stop_in_the_same_interval(take_as_on_a_gpu, variant, seed):
    """A side that lacks little to 2^31: what waits and all quotes are counted, and cancellation makes room.

    A market that stops is as it was before its interval.
    """
    take_as_on_a_gpu(variant)
    rng = random.Random(f"stop {variant} {seed}")
    fields, _ = random_ensemble(rng, *CALL, 1, per_market=False)
    fields |= {"init_depth": 8, "max_order_qty": 30, "max_quote_qty": 60, "inventory_limit": None}
    if rng.random() < 0.7:
        fields["cancel_prob"] = 0.0
    fields = suited_to(variant, fields)
    slots = (None,) * rng.choice([0, 1, 2])
    both = Ensemble(fields, slots, 1, seed, "cpu")
    fill_up(both, rng.choice([BUY, SELL]), 2**31 - rng.randint(1, 300))
    both.sim.engine.state_changed()
    for _ in range(12):
        quotes, n = both.quotes(rng), rng.choice([1, 3])
        both.sim.step(both.tensor(quotes) if slots else None, n)
        seen = both.alone[0].decision(quotes[0] if slots else None, n)
        both.assert_same()
        if seen[-1]["error"]:
            return


def test_many_large_orders_are_counted_as_they_come(take_as_on_a_gpu):
    """An interval may bring more than an int32 holds: beats make room for it, or the market stops."""
    take_as_on_a_gpu("warp")
    fields = {"num_levels": 8, "init_price": 4, "num_agents": 9, "interval": 9000, "beat": 2500, "cancel_prob": 0.9}
    fields |= {"max_order_qty": 65535, "market_order_prob": 0.0, "noise_spread": 2}
    both = Ensemble(dict(zip(("arrivals", "mechanism"), CALL, strict=True)) | fields, (None,), 1, 5, "cpu")
    fill_up(both, BUY, 2**31 - 2 * 10**8)
    both.sim.engine.state_changed()
    for _ in range(2):
        both.sim.step(None)
        both.alone[0].decision(None, 1)
        both.assert_same()
    assert both.alone[0].error == 0 and both.alone[0].t == 2
    fill_up(both, SELL, 2**31 - 10**7)
    both.sim.step(None)
    both.alone[0].decision(None, 1)
    both.assert_same()
    assert both.alone[0].error == 1 and both.alone[0].t == 2


@slow
def test_lanes_that_do_not_wait_are_seen(tmp_path, monkeypatch):
    """Without the wait between reading and writing, a lane reads what another one has already moved."""
    headers = headers_with_fibers(tmp_path)
    text = (headers / "warp" / "market_state.cuh").read_text()
    hasty = text.replace("      __syncwarp();\n      buy[tick] = b;", "      buy[tick] = b;")
    assert hasty != text
    (headers / "warp" / "market_state.cuh").write_text(hasty)
    flags = ("-fno-strict-aliasing", "-DKS_BINS=0", "-DKS_LEVERS=1")
    build_on_host("warp_on_host.cpp", tmp_path / "hasty.so", headers, *flags)
    library, cores = build._open_library(tmp_path / "hasty.so", build.CPU_FUNCTIONS), []
    (config, *rest), kwargs = trading_market("maker")
    for load in (build.load_cpu, lambda: library):
        monkeypatch.setattr(build, "load_cpu", load)
        cores += make_cores((config.replace(window=3), *rest), kwargs, ("cpu",))
    with pytest.raises(AssertionError, match=" is not "):
        check_trading_market(cores)
