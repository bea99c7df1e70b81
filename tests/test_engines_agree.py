"""The engines give the same bits: books, statistics, fills, accounts, series and value, whatever is thrown at them."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import (
    FURTHEST,
    OPTIONS,
    PAIRS,
    STYLES,
    Play,
    assert_same,
    fitting_slots,
    make_config,
    make_move,
    open_simulator,
    play_together,
    plays,
)
from thorough import covering, examples, slow

import kineticsim_env as ks
from kineticsim_env.config import CLASSES
from kineticsim_env.engines import cuda

EVERYTHING = frozenset((*OPTIONS, "limit", "fee", "cap"))
LIVELY = (("run", 3), ("rollout", 3, 2, "near", 1), ("step", 3, "wide", 2), ("reset", "next episode", True, 3))
LIVELY += (("rollout", 2, 1, "one_tick", 4), ("run", 2))
# Order bins of the CUDA kernel, and the largest reach that they hold; 0: each order is priced by itself.
BINS = {0: FURTHEST, 16: 3, 32: 7, 64: 15, 128: 31}


@pytest.mark.parametrize("engines", PAIRS)
@settings(max_examples=examples(400), derandomize=True)
@given(play=plays())
def test_random_plays(engines, play):
    play_together(play, engines)


@pytest.mark.gpu
@pytest.mark.parametrize("bins", BINS)
@settings(max_examples=examples(40), derandomize=True)
@given(data=st.data())
def test_any_number_of_order_bins(bins, data):
    """Bins that are far more than offsets or agents too, which the engine itself would not choose."""
    play_together(data.draw(plays(reach=BINS[bins])), ("cpu", f"cuda KS_BINS={bins}"))


@pytest.mark.gpu
@settings(max_examples=examples(40), derandomize=True)
@given(play=plays(levels=(8, 128, 256), reach=BINS[64]))
def test_path_before_sm_80(play):
    play_together(play, ("cpu", "cuda KS_FORCE_SHUFFLE=1 KS_BINS=64"))


# Few, as each takes about a second to compile.
MIXED = dict(noise=0.5, momentum=0.2, maker=0.2, fundamental=0.1)
PER_MARKET = dict(noise_spread=[1, 12, 30, 3, 7], num_agents=[16, 64, 200, 65, 33], fee=[0, 3, 7, 9, 1])
OWN_KERNELS = {
    "paper": (ks.MarketConfig(), []),
    "trading with a slot": (ks.MarketConfig.preset("trading"), ["maker"]),
    "leftovers of every class": (ks.MarketConfig(num_agents=331, **MIXED), [None, "noise", "fundamental"]),
    "smallest grid": (ks.MarketConfig(num_levels=8, init_price=3, num_agents=70, **MIXED), []),
    "no bins": (ks.MarketConfig(num_levels=256, noise_spread=200, num_agents=200, tie="mid", **MIXED), [None]),
    "some fields per market": (ks.MarketConfig.preset("trading", **PER_MARKET), ["noise", None]),
}


@pytest.mark.gpu
@pytest.mark.parametrize("name", OWN_KERNELS)
def test_kernels_of_their_own(name):
    config, slots = OWN_KERNELS[name]
    markets = 5 if config.per_market else 33
    moves = (("run", 40), *LIVELY, ("run", 1)) if slots else (("run", 40), LIVELY[3], ("run", 7))
    play_together(Play(config, markets, fitting_slots(config, markets, slots), 3, moves), ("cpu", "cuda specialised"))


@pytest.mark.gpu
def test_a_kernel_of_its_own_after_much_work(monkeypatch):
    """It takes over between two launches."""
    play = Play(ks.MarketConfig.preset("trading", num_agents=20), 5, ("maker",), 8, ())
    monkeypatch.setattr(cuda, "_WORK_TO_SPECIALISE", 5 * 20 * 30)
    sims = [open_simulator(engine, play) for engine in ("cpu", "cuda")]
    generic = None
    for number in range(6):
        wanted, got = (make_move(sim, ("run", 10)) for sim in sims)
        assert_same(got, wanted, f"run {number}:")
        generic = generic or sims[1].engine.prepare(0)[0]
        assert (sims[1].engine.prepare(0)[0] is generic) == (number < 3)


# L, A, M: the smallest and largest grids, odd sizes, few and many markets, more agents than ticks and fewer.
SHAPES = [(8, 1, 1), (8, 300, 33), (16, 3, 5), (32, 1100, 60), (64, 1023, 65), (128, 256, 300), (128, 65, 1200)]
SHAPES += [(256, 129, 31), (512, 33, 129), (1024, 257, 33), (2048, 31, 3), (4096, 5, 2), (8192, 700, 2)]


@covering
@pytest.mark.parametrize("engines", PAIRS)
@pytest.mark.parametrize("options", [frozenset(), EVERYTHING], ids=["plain", "options"])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "L{} A{} M{}".format(*shape))
def test_shapes(engines, options, shape):
    levels, agents, markets = shape
    config = make_config(5, levels, agents, options, markets).replace(max_order_qty=9, num_agents=agents)
    slots = fitting_slots(config, markets, [None, "noise", "maker"])
    play_together(Play(config, markets, slots, 7, LIVELY), engines)


@pytest.mark.parametrize("engines", PAIRS)
def test_every_combination_of_options(engines):
    for size in range(len(OPTIONS) + 1):
        for options in itertools.combinations(OPTIONS, size):
            config = make_config(size, 64, 50, frozenset(options)).replace(init_depth=8, max_order_qty=4)
            play_together(Play(config, 9, (None, None), 11, (("run", 20), *LIVELY, ("run", 10))), engines)


@pytest.mark.parametrize("engines", PAIRS)
@pytest.mark.parametrize("population", ["fixed", "multinomial"])
def test_every_class_replaced(engines, population):
    shares = dict(noise=0.4, momentum=0.2, maker=0.2, fundamental=0.2, num_agents=20)
    config = ks.MarketConfig.preset("trading", population=population, **shares)
    for name, count in zip(CLASSES, (8, 4, 4, 4), strict=True):
        for many in (1, count):  # one of the class, or all of it
            play_together(Play(config, 17, (name,) * many, 3, LIVELY), engines)
    everybody = tuple(name for name, count in zip(CLASSES, (8, 4, 4, 4), strict=True) for _ in range(count))
    play_together(Play(config, 17, everybody, 3, LIVELY), engines)


@pytest.mark.parametrize("engines", PAIRS)
@pytest.mark.parametrize("options", [frozenset(), EVERYTHING], ids=["plain", "options"])
@pytest.mark.parametrize("style", STYLES)
def test_adversarial_quotes_of_32_slots(engines, options, style):
    config = make_config(8, 32, 40, options).replace(init_depth=100, max_order_qty=50)
    moves = tuple(("rollout", 3, 1 + seed % 3, style, seed) for seed in range(4))
    play_together(Play(config, 33, (None,) * 32, 5, (("run", 5), *moves, ("run", 5))), engines)


@pytest.mark.parametrize("engines", PAIRS)
@pytest.mark.parametrize("population", [frozenset(), frozenset({"multinomial"})], ids=["fixed", "multinomial"])
def test_every_field_per_market(engines, population):
    config = make_config(2, 128, 200, EVERYTHING | population, markets=40, per_market=True)
    assert len(config.per_market) == 22, "a new field of MarketConfig needs a per-market value here"
    slots = fitting_slots(config, 40, [None, "noise", "maker", "fundamental"])
    play_together(Play(config, 40, slots, 9, (*LIVELY, ("reset", "many seeds", True, 1), *LIVELY)), engines)


@slow
@pytest.mark.parametrize("engines", PAIRS)
def test_long_run(engines):
    """A long chunk of the market that the tasks use: what drifts apart slowly shows."""
    config = ks.MarketConfig.preset("trading")
    play_together(Play(config, 33, ("maker", None), 1, (("run", 400), *LIVELY, ("run", 200))), engines)


@pytest.mark.parametrize("engines", [*PAIRS, ("numpy", "cpu"), pytest.param(("cuda", "cpu"), marks=pytest.mark.gpu)])
@pytest.mark.parametrize("cut", range(len(LIVELY) + 1))
@pytest.mark.parametrize("population", ["fixed", "multinomial"])
def test_a_run_cut_and_resumed_on_another_engine(engines, cut, population):
    config = ks.MarketConfig.preset("trading", population=population)
    play = Play(config, 19, ("noise", None, "maker"), 21, LIVELY)
    never_cut, before = (open_simulator(engines[0], play) for _ in range(2))
    after = open_simulator(engines[1], Play(config, 19, play.slots, 999, ()))
    after.run(5)  # what it did before must not matter
    for number, move in enumerate(LIVELY):
        if number == cut:
            after.load_state_dict(before.state_dict())
        wanted = make_move(never_cut, move)
        assert_same(make_move(before if number < cut else after, move), wanted, f"cut at {cut}, move {number}:")
    if cut == len(LIVELY):
        after.load_state_dict(before.state_dict())
    assert_same(*({k: v.cpu() for k, v in sim.tensors.items()} for sim in (after, never_cut)))


@pytest.mark.parametrize("engine", ["numpy", "cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_the_comparison_sees_one_unit(engine):
    """The tests above can fail: one unit more in one book of one market is found."""
    play = Play(ks.MarketConfig(num_levels=32, init_price=16, num_agents=9), 3, (None,), 1, ())
    first, second = open_simulator("cpu", play), open_simulator(engine, play)
    second.bid[1, 3] += 1
    with pytest.raises(pytest.fail.Exception, match=r"state bid\[1, 3\]: got .*, wanted"):
        assert_same(make_move(second, ("reload",)), make_move(first, ("reload",)))
    assert isinstance(second.bid, torch.Tensor) and np.asarray(second.bid.cpu()).dtype == np.int32
