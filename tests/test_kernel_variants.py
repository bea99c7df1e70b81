"""Which variant of the CUDA kernel a configuration gets: its bins, its options, constants of its own. Needs no GPU."""

import shlex
import subprocess
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from build_helpers import device_like, needs_compiler
from strategies import LEVELS, Play, assert_same, make_move, open_simulator

import kineticsim_env as ks
from kineticsim_env.engines import cuda, operators
from kineticsim_env.engines import variants as asked_of_cpp
from kineticsim_env.engines.base import ENV_STEP, RUN, pack, unpack
from kineticsim_env.engines.cuda import CudaEngine
from kineticsim_env.engines.parameters import class_counts, parameter_rows
from kineticsim_env.errors import EngineUnavailable
from kineticsim_env.runtime import build, kernels, layout, private_torch

pytestmark = needs_compiler  # without one it takes a GPU to ask
BIN_INTS = layout.CONSTANTS["kBinInts"]


def open_engine(levels: int, slots: int = 0, markets: int = 3) -> CudaEngine:
    """Return a CUDA engine that can choose, but not launch; `variants` stands in for its device."""
    return CudaEngine(torch.device("cpu"), {"M": markets, "L": levels, "K": slots} | layout.ladder_sizes(1), {})


@pytest.fixture
def variants(monkeypatch):
    """The definitions of every kernel that was asked for."""
    asked = []
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: device_like())
    monkeypatch.setattr(kernels, "load_kernel", lambda device, defines: asked.append(dict(defines)))
    return asked


def plan(**changes):
    """Return the plan for a request that differs from one of a few markets on an H200."""
    device = device_like()
    request = {
        "markets": 3,
        "levels": 128,
        "slots": 1,
        "task": 0,
        "reach": 14,
        "agents": 64,
        "orders": 64,
        "largest_quote": 8,
        "lanes": -1,
        "multiprocessors": device.multi_processor_count,
        "shared_of_block": device.shared_memory_per_block_optin,
        "shared_of_multiprocessor": device.shared_memory_per_multiprocessor,
    }
    return asked_of_cpp.plan_on_host(asked_of_cpp.Request(**{**request, **changes}))


def random_request(rng):
    """Return a request such as engines make, of small and large ones alike."""
    pick = lambda *values: int(rng.choice(values))  # noqa: E731
    slots = pick(0, 1, 1, 1, 2, 3, 5, 8, 16, 32)
    shared = pick(48, 64, 96, 99, 163, 227) * 1024
    return {
        "markets": min(int(2 ** rng.uniform(0, 22)), 2**22),
        "levels": pick(8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192),
        "slots": slots,
        "task": int(slots > 0 and rng.random() < 0.8),
        "reach": max(1, int(2 ** rng.uniform(0, 15))) if rng.random() < 0.3 else int(rng.integers(1, 70)),
        "agents": int(2 ** rng.uniform(0, 14)),
        "orders": int(2 ** rng.uniform(0, 31)) - 1,
        "forced_auctions": pick(0, 0, 66),
        "levers": pick(0, 0, 1, 2),
        "events": pick(0, 1),
        "largest_quote": int(2 ** rng.uniform(0, 20)),
        "multiprocessors": pick(1, 16, 68, 108, 132, 148),
        "shared_of_block": shared,
        "shared_of_multiprocessor": pick(0, shared + 1024),
    }


def rows_of(config: ks.MarketConfig, markets: int = 1) -> dict:
    return parameter_rows(config, markets, class_counts(config, markets), {})


# Bins -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reach", "bins"),
    [
        (1, 16),
        (2, 16),
        (3, 16),
        (4, 32),
        (7, 32),
        (8, 64),
        (15, 64),
        (16, 128),
        (31, 128),
        (32, 0),
        (200, 0),
        (32767, 0),
    ],
)
def test_the_fewest_bins_that_hold_the_reach(reach, bins):
    assert plan(reach=reach, agents=2**20).bins == bins
    if bins:
        assert plan(reach=reach, agents=bins + 1).bins == bins
        assert plan(reach=reach, agents=bins).bins == 0, "fewer agents than it takes to make up for pricing the bins"
    assert plan(reach=reach, agents=1).bins == 0


def test_bins_suffice():
    """Both sides have a marketable bin and one per offset; a side is a multiple of four, as lanes read four at once."""
    for reach in (*range(1, 200), 2**15 - 1, 2**31 - 1):
        width, bins = 2 * reach + 2, plan(reach=reach, agents=2**20).bins
        width += -width % 4
        if bins:
            assert 2 * width <= bins and BIN_INTS % bins == 0
            assert bins == 16 or 2 * width > bins // 2, "half of them would do"
        else:
            assert 2 * width > BIN_INTS


def test_plans_fit_the_markets_the_device_and_the_kernel():
    """Of any request: all markets are played, a warp's slots are at most its lanes, and shared memory is there."""
    rng, seen = np.random.default_rng(0), set()
    for _ in range(20000):
        ask = random_request(rng)
        got = plan(**ask)
        warps, lanes = got.threads // 32, got.lanes > 0
        seen.add((ask["task"], lanes, bool(got.single), bool(got.fits), warps, got.tile > 1))
        assert got.threads == 32 * warps and 1 <= warps <= layout.CONSTANTS["kMarketsPerBlock"]
        assert got.tile >= 1 and got.blocks * warps * got.tile >= ask["markets"]
        spare = min(-(-ask["markets"] // 64), 8 * ask["multiprocessors"]) if got.deadlines else 0
        assert (got.blocks - spare - 1) * warps * got.tile < ask["markets"], "a block has nothing to do"
        assert got.bins in (0, 16, 32, 64, 128) and 4 * ask["reach"] + 4 <= (got.bins or 2**31)
        assert bool(got.fits) == (got.shared <= ask["shared_of_block"])
        book = warps * 4 * 2 * max(ask["levels"], 32)
        waiting = book * ask["events"]
        if lanes:
            assert not ask["events"] and ask["slots"] == 1 and ask["task"] and not got.single and got.tile == 32
            assert got.deadlines == (ask["forced_auctions"] > 0) and (got.deadlines or not got.bins)
            assert 2 * ask["reach"] + 2 <= got.lanes and got.shared >= 32 * 2 * ask["levels"], "16 bits for each tick"
        elif ask["task"]:
            slot, market = (4 * layout.CONSTANTS[name] for name in ("kTileSlotInts", "kTileMarketInts"))
            market += 4 * layout.CONSTANTS["kTileLeverInts"] * (ask["levers"] + ask["events"] > 0)
            tiles = warps * got.tile * (market + slot * ask["slots"])
            assert got.tile * ask["slots"] <= 32 and got.shared == 2 * book + waiting + warps * 4 * BIN_INTS + tiles
        else:
            assert got.tile == 1 and got.shared == book + waiting + warps * 4 * BIN_INTS
        if not got.fits and not lanes:
            assert (warps, got.tile) == (1, 1), "the smallest shape was not tried"
        assert not got.single or (ask["task"] and ask["slots"] == 1 and 2 <= got.blocks_to_hold < 5)
        assert got.single or not got.blocks_to_hold
    assert len(seen) == 12, seen


def test_forced_lanes_are_taken_and_none_are_taken_where_none_are_allowed():
    for markets in (3, MANY):
        assert plan(markets=markets, task=1, lanes=40).lanes == 40
        assert plan(markets=markets, task=1, lanes=40, events=1).lanes == 0
        assert plan(markets=markets, task=1, lanes=0).lanes == plan(markets=markets, task=0, lanes=40).lanes == 0


def test_plans_of_several_threads_are_their_own():
    wanted, wrong = {levels: plan(levels=levels).shared for levels in LEVELS}, []

    def ask(levels):
        wrong.extend(levels for _ in range(500) if plan(levels=levels).shared != wanted[levels])

    threads = [threading.Thread(target=ask, args=(levels,)) for levels in LEVELS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_rollouts_network_is_shared_by_as_many_warps_as_a_multiprocessor_gets():
    asked = {"events": 2, "task": 1, "slots": 1, "levels": 128, "reach": 8, "agents": 48, "rollout": 1}
    for markets, warps, lanes in ((1024, 8, 32), (16384, 4, 1), (65536, 16, 1), (1 << 20, 16, 1)):
        found = plan(markets=markets, network_ints=7832, **asked)
        assert (found.warps, found.lanes_per_market, found.threads) == (warps, lanes, 32 * warps)
        assert found.blocks * warps * (32 // lanes) >= markets and found.shared <= 227 * 1024
    for without in ({"network_ints": 0}, {"network_ints": 40000}):  # several networks, or one that takes too much
        found = plan(markets=65536, **asked | without)
        assert (found.warps, found.threads, found.fits) == (0, 32, 1)


@pytest.mark.gpu
def test_a_gpu_answers_as_the_host_does():
    rng = np.random.default_rng(1)
    for _ in range(200):
        request = asked_of_cpp.Request(**random_request(rng), lanes=-1)
        answers = asked_of_cpp.plan_on_device(request, torch.device("cuda", 0)), asked_of_cpp.plan_on_host(request)
        first, second = ({name: getattr(answer, name) for name, _ in answer._fields_} for answer in answers)
        assert first == second  # not as bytes: there is padding


def test_bins_are_those_of_the_widest_market(variants):
    engine = open_engine(128)
    for spreads, half_spread, bins in (([0, 0, 0], 0, 16), ([3, 7, 1], 1, 32), ([1, 1, 1], 12, 64), ([1, 1, 99], 1, 0)):
        config = ks.MarketConfig(noise_spread=spreads, maker_half_spread=half_spread, num_agents=200)
        engine.set_parameters(rows_of(config, 3))
        engine.prepare(0)
        assert variants[-1]["KS_BINS"] == bins


def test_a_gpu_asks_for_the_operators_and_not_for_the_cpp_engine(variants, monkeypatch):
    for thread in threading.enumerate():  # of tests before this one, which may still load something
        if thread.name == "kineticsim_env-build":
            thread.join()
    asked, load = [], build._load
    monkeypatch.setattr(build, "_loaded", {})
    monkeypatch.setattr(build, "_failed", {})
    monkeypatch.setattr(build, "_load", lambda name, *rest: asked.append(name) or load(name, *rest))
    engine = open_engine(128, 1)
    engine.set_parameters(rows_of(ks.MarketConfig(), 3))
    engine.prepare(1)
    build.load_operators()  # waits for the thread that has begun
    assert len(variants) == 1 and sorted(asked) == ["operators", "plan"]


@pytest.mark.parametrize("auctions", [1, 7])
def test_short_steps_count_the_auctions_that_they_play_towards_a_kernel_of_their_own(variants, monkeypatch, auctions):
    engine = open_engine(128, 1)
    engine.set_parameters(rows_of(ks.MarketConfig(), 3))
    per_auction = 3 * ks.MarketConfig().num_agents
    monkeypatch.setattr(cuda, "_WORK_TO_SPECIALISE", 20.5 * per_auction)
    monkeypatch.setattr(private_torch, "current_raw_stream", lambda index: -1)
    answers = [operators.MOVED]
    step = lambda *_: answers[-1]  # noqa: E731
    engine._launchers[ENV_STEP] = SimpleNamespace(step=step, auctions=auctions)
    given = torch.zeros(3, 1, 5)
    assert not any(engine.step_at_once(given) for _ in range(50)), "nothing is played"
    answers.append(operators.PLAYED)
    played = [engine.step_at_once(given) for _ in range(50)].index(False)
    assert played == -(-20.5 // auctions), "then a launch has to specialise"


def test_only_steps_that_say_what_is_known_after_them_have_their_kernel(variants):
    engine = open_engine(128, 1)
    engine.set_parameters(rows_of(ks.MarketConfig()))
    for _ in range(2):
        engine._plans = {}
        engine.prepare(0)
        engine.prepare(1)
        engine._tensors["info"] = torch.zeros(15, 1)
    assert [defines.get("KS_INFO") for defines in variants] == [None, None, None, 1]
    assert variants[3] == variants[1] | {"KS_INFO": 1}


def test_only_environments_with_scenarios_have_their_kernel(variants):
    """And none that was taken before there were any: an episode would play the first scenario for ever."""
    engine = open_engine(128, 1)
    engine.set_parameters(rows_of(ks.MarketConfig()))
    engine.prepare(1)
    engine.set_scenarios(rows_of(ks.MarketConfig(fee=[1, 2]), 2))
    engine.prepare(0)
    engine.prepare(1)
    assert [defines.get("KS_SCENARIOS") for defines in variants] == [None, None, 1]


def test_only_environments_with_extra_columns_have_their_kernel(variants):
    """The columns are constants from the first kernel on; runs have none."""
    task = ks.tasks.MarketMakingTask()
    common = {"autoreset": 0, "stagger": True, "bank_size": 0, "bank_owner": 0, "scenarios": 0}
    for extras in ((), ("fundamental",)):
        engine = open_engine(128, 1)
        engine.set_parameters(rows_of(ks.MarketConfig()))
        engine.set_task(task.to_params(["maker"], **common, extras=extras))
        engine.prepare(0)
        engine.prepare(1)
    assert [defines.get("KS_EXTRAS") for defines in variants] == [None, None, None, 1]


def test_only_environments_whose_actions_may_keep_quotes_have_their_kernel(variants):
    common = {"autoreset": 0, "stagger": True, "bank_size": 0, "bank_owner": 0, "scenarios": 0}
    for keep in (False, True):
        engine = open_engine(128, 1)
        engine.set_parameters(rows_of(ks.MarketConfig()))
        engine.set_task(ks.tasks.MarketMakingTask(keep=keep).to_params(["maker"], **common))
        engine.prepare(0)
        engine.prepare(1)
    assert [defines.get("KS_KEEP") for defines in variants] == [None, None, None, 1]


def test_only_steps_of_order_records_have_their_kernel(variants):
    engine = open_engine(128, 1)
    engine.set_parameters(rows_of(ks.MarketConfig()))
    common = {"autoreset": 0, "stagger": True, "bank_size": 0, "bank_owner": 0, "scenarios": 0}
    engine.set_task(ks.tasks.MarketMakingTask().to_params(["maker"], **common))
    for kind in (0, 1, cuda._STEP_OF_RECORDS):
        engine.prepare(kind)
    assert [defines.get("KS_RECORDS") for defines in variants] == [None, None, 1]
    assert variants[2]["KS_TASK"] == 1


def test_only_runs_that_record_further_series_have_their_kernel(variants, monkeypatch):
    engine, taken = open_engine(128), []
    engine.set_parameters(rows_of(ks.MarketConfig()))
    for kind in (0, 1, cuda._SERIES_RUN):
        engine.prepare(kind)
    assert [defines.get("KS_SERIES") for defines in variants] == [None, None, 1]
    assert variants[2] == variants[0] | {"KS_SERIES": 1}
    engine.specialise()
    assert [defines.get("KS_SERIES") for defines in variants[3:]] == [None, None, 1]
    assert variants[5] == variants[3] | {"KS_SERIES": 1}

    engine._plans = {}
    kernel = SimpleNamespace(launch=lambda *_: None)
    monkeypatch.setattr(engine, "prepare", lambda kind: taken.append(kind) or (kernel, 1, 32, 0))
    for name in ("current_raw_stream", "current_device"):
        monkeypatch.setattr(private_torch, name, lambda *_: 0)
    room = lambda: torch.zeros(3, 1, dtype=torch.int32)  # noqa: E731
    for names in ((), ("mid2",), ("mid2", "best_bid"), ("signed_volume",), ("volume",)):
        engine.launch(RUN, **{f"series_{name}": room() for name in names})
    assert taken == [0, 0, cuda._SERIES_RUN, cuda._SERIES_RUN, 0]


# Constants of a kernel's own ------------------------------------------------------------------------------------------


ROWS = """
#include <cstddef>
#include <cstdio>

#define KS_LEVELS 64
#define KS_LEVERS 2
#define KS_PARAMETER_CONSTANTS p.fee = 7, p.levers.tax = 9
#include "model/compiled_in.cuh"

int main() {
  ks::MarketParams row = {};
  row.fee = row.levers.tax = row.levers.collar = 1;
  const ks::MarketParams p = ks::with_constants(row);
  std::printf("%d %d %d %zu %zu", p.fee, p.levers.tax, p.levers.collar, sizeof row, offsetof(ks::MarketParams, levers));
PLACES
}
"""


def test_fields_lie_where_python_puts_them_and_constants_replace_the_rows(tmp_path):
    places = (f'  std::printf(" %zu", offsetof(ks::MarketParams, {f.path}));' for f in layout.PARAMS_FIELDS.values())
    source, program = tmp_path / "rows.cpp", tmp_path / "rows"
    source.write_text(ROWS.replace("PLACES", "\n".join(places)))
    command = [*shlex.split(build.find_cxx()), "-std=c++17", f"-I{build.cuda_dir()}", str(source), "-o", str(program)]
    subprocess.run(command, check=True)
    said = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout
    fee, tax, collar, size, levers, *offsets = map(int, said.split())
    assert (fee, tax, collar) == (7, 9, 1)
    assert size == 4 * layout.PARAMS_INTS and size % 16 == levers % 16 == 0, "rows and their parts are read by 16 bytes"
    assert offsets == [4 * place for place in range(len(layout.PARAMS_FIELDS))]
    rows = {name: np.array([place]) for place, name in enumerate(layout.PARAMS_FIELDS, 1)}
    packed = pack(rows)
    assert packed.tolist() == [[*range(1, len(rows) + 1), *[0] * (layout.PARAMS_INTS - len(rows))]]
    assert unpack(packed) == rows


def constants_of(defines):
    """Return the parameters that a kernel has compiled in, by name."""
    given = dict(each.split("=") for each in defines["KS_PARAMETER_CONSTANTS"].split(","))
    return {name: int(given[f"p.{f.path}"]) for name, f in layout.PARAMS_FIELDS.items() if f"p.{f.path}" in given}


def test_what_all_markets_share_becomes_constants(variants):
    config = ks.MarketConfig.preset("trading", fee=[3, 3, 3], noise_spread=[1, 2, 1], inventory_limit=None)
    engine, rows = open_engine(64, slots=2), rows_of(config, 3)
    engine.set_parameters(rows)
    engine.prepare(0)
    assert not {"KS_PARAMETER_CONSTANTS", "KS_LEVELS"} & set(variants[-1])
    engine.specialise()
    engine.prepare(0)
    defines = variants[-1]
    assert defines["KS_LEVELS"] == 64 and (defines["KS_OPTIONS"], defines["KS_SLOTS"], defines["KS_TASK"]) == (1, 2, 0)
    values = constants_of(defines)
    assert values == {name: int(rows[name][0]) for name in layout.PARAMS_FIELDS if name != "noise_spread"}
    assert values["fee"] == 3 and values["inventory_limit"] == -1


def test_other_parameters_ask_for_another_kernel(variants):
    """Constants never outlive the parameters that they were, and what changes once is none from then on."""
    engine = open_engine(128)
    engine.specialise()
    for depth in (5, 6):
        engine.set_parameters(rows_of(ks.MarketConfig(init_depth=depth)))
        for mode in (0, 1, 0, 1):
            engine.prepare(mode)
    assert len(variants) == 4
    assert [constants_of(defines).get("init_depth") for defines in variants] == [5, 5, None, None]
    assert [defines["KS_TASK"] for defines in variants] == [0, 1, 0, 1]
    engine.specialise()  # a second time there is nothing to do
    engine.prepare(0)
    assert len(variants) == 4


def test_parameters_are_taken_in_place_where_the_kernel_fits_them(variants):
    """What a captured graph holds: a kernel, which may have constants, and the address of the rows."""
    engine = open_engine(128)
    engine.set_parameters(rows_of(ks.MarketConfig()))
    engine.specialise()
    engine.prepare(0)

    def stays(**fields):
        rows, before = rows_of(ks.MarketConfig(**fields), 3 if "noise_spread" in fields else 1), engine.parameters()
        kept = before.clone()
        engine.set_parameters(rows)
        engine.prepare(0)
        assert torch.equal(engine.parameters()[:, 0], torch.tensor(rows["num_noise"], dtype=torch.int32))
        if engine.parameters() is not before:
            assert torch.equal(before, kept) and any(before is old for old in engine._retired)
        return engine.parameters() is before

    assert not stays(fee=5), "a constant until now"
    assert stays(fee=6) and stays(fee=0), "read from the rows from then on"
    assert not stays(fee=6, max_order_qty=9)
    assert stays(fee=6, max_order_qty=4) and stays(fee=6, max_order_qty=9) and not stays(max_order_qty=10), "growth"
    assert not stays(noise_spread=[3, 3, 3]), "a row for each market"
    assert not stays(noise_spread=[3, 30, 3]), "another reach"
    assert stays(noise_spread=[30, 4, 5])


def test_settings_of_the_task_become_constants_until_they_change(variants):
    engine = open_engine(128, slots=2)
    engine.set_parameters(rows_of(ks.MarketConfig()))
    engine.specialise()
    task = {"horizon": 30, "reward": 1, "reward_scale": 10.0, "role": [3, 3] + [0] * 30}
    engine.set_task(task)
    engine.prepare(1)
    assert variants[-1]["KS_TASK_CONSTANTS"] == "task.horizon=30,task.reward=1" and variants[-1]["KS_ROLE"] == 3
    for reward in (2, 1):
        engine.set_task(task | {"reward": reward})  # compiled at once: a CUDA graph may be captured next
        assert variants[-1]["KS_TASK_CONSTANTS"] == "task.horizon=30"
    assert len(variants) == 2
    engine.set_task(task | {"role": [3, 0] + [0] * 30})
    assert not {"KS_TASK_CONSTANTS", "KS_ROLE"} & set(variants[-1])


@pytest.mark.parametrize(
    ("markets", "slots", "blocks"), [(1, 1, 2), (1024, 1, 2), (2112, 1, 4), (2113, 1, 0), (64, 2, 0)]
)
def test_few_environments_of_one_slot_have_a_kernel_for_them(variants, markets, slots, blocks):
    engine = open_engine(128, slots=slots, markets=markets)
    engine.set_parameters(rows_of(ks.MarketConfig()))
    engine.prepare(1)
    assert (variants[-1].get("KS_SINGLE", 0), variants[-1].get("KS_BLOCKS", 0)) == (int(blocks > 0), blocks)


LANES = {"num_agents": 64, "num_levels": 128, "init_price": 64}
MANY = 128 * 132  # environments, of which a device like the fixture's has enough for all lanes


@pytest.mark.parametrize(
    ("changes", "room"),
    [
        ({}, 2 * 14 + 2),
        ({"markets": MANY - 1, "rounding": "even"}, 0),
        ({"slots": 2}, 0),
        ({"noise_spread": 3, "maker_half_spread": 5}, 2 * 5 + 2),
        ({"noise_spread": 64}, 0),  # too many ticks to walk over
        ({"num_levels": 2048, "init_price": 1024}, 0),  # too much shared memory
        ({"max_order_qty": 127}, 30),
        ({"max_order_qty": 128}, 0),  # 64 orders of it, and numbers of 16 bits would often be too short
        ({"task": {"max_qty": 8193}}, 0),
        ({"task": {"max_qty": 8193}, "max_quote_qty": 8192}, 30),
        ({"shared_memory": 64 * 1024}, 0),
    ],
)
def test_many_environments_of_one_slot_have_a_lane_each(variants, monkeypatch, changes, room):
    changes = {"markets": MANY, "slots": 1, "task": {"max_qty": 8}, "shared_memory": 228 * 1024, **LANES, **changes}
    shared_memory, markets, slots, task = (changes.pop(name) for name in ("shared_memory", "markets", "slots", "task"))
    device = device_like(shared_memory_per_multiprocessor=shared_memory)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: device)
    engine = open_engine(changes["num_levels"], slots=slots, markets=markets)
    engine.set_task(task)
    engine.set_parameters(rows_of(ks.MarketConfig.preset("trading", **changes)))
    _, blocks, threads, shared = engine.prepare(1)
    assert variants[-1].get("KS_LANES", 0) == room
    assert ("KS_PARAMETER_CONSTANTS" in variants[-1]) == bool(room), "such a kernel has its constants from the start"
    if room:
        assert threads == 32 and blocks * 32 >= markets > (blocks - 1) * 32
        assert 8 * (shared + 1024) <= shared_memory


def test_another_reach_is_another_kernel_where_each_environment_has_a_lane(variants):
    """A kernel has room for so many ticks and no more."""
    engine = open_engine(128, slots=1, markets=MANY)
    for spread in (13, 14):  # with as many bins
        engine.set_parameters(rows_of(ks.MarketConfig.preset("trading", noise_spread=spread)))
        engine.prepare(1)
        assert variants[-1]["KS_LANES"] == 2 * spread + 2


LEVERS = [({"rounding": "even"}, 30, 0), ({"rounding": "coin"}, 30, 1), ({"tax": 1}, 0, 2), ({"regimes": [{}]}, 0, 2)]


@pytest.mark.parametrize(("levers", "room", "compiled_in"), LEVERS)
def test_a_lane_has_a_market_without_levers_or_under_rounding_alone(variants, levers, room, compiled_in):
    engine = open_engine(128, slots=1, markets=MANY)
    config = ks.MarketConfig.preset("trading", **LANES, **levers)
    engine.set_ensemble(config)
    engine.set_parameters(rows_of(config))
    engine.prepare(1)
    assert variants[-1].get("KS_LANES", 0) == room
    assert variants[-1].get("KS_LEVERS", 0) == compiled_in


@pytest.mark.parametrize(("markets", "room"), [(76 * 132, 30), (76 * 132 - 1, 0)])
def test_lanes_are_for_fewer_markets_under_rounding(variants, markets, room):
    engine = open_engine(128, slots=1, markets=markets)
    engine.set_parameters(rows_of(ks.MarketConfig.preset("trading", **LANES, rounding="coin")))
    engine.prepare(1)
    assert variants[-1].get("KS_LANES", 0) == room


@pytest.mark.parametrize("levers", [{"taker_offset": 6}, {"regimes": [{}, {"maker_half_spread": 6}]}])
def test_bins_hold_the_orders_of_takers_and_of_every_regime(variants, levers):
    config = ks.MarketConfig(num_agents=200, **levers)
    engine = open_engine(128)
    engine.set_ensemble(config)
    engine.set_parameters(rows_of(config))
    engine.prepare(0)
    assert variants[-1]["KS_BINS"] == 32 and variants[-1]["KS_OPTIONS"] == 1


def test_a_side_grows_by_what_the_largest_orders_of_any_regime_add(variants):
    for regimes, largest in ((None, 4), ([{"max_order_qty": 9}, {}], 9), ([{"max_order_qty": 2}], 4)):
        engine, config = open_engine(128), ks.MarketConfig(regimes=regimes)
        engine.set_ensemble(config)
        engine.set_parameters(rows_of(config))
        assert engine._growth == 256 * largest


@pytest.mark.parametrize(("interval", "bins"), [(65, 64), (64, 0), (None, 0)])
def test_a_call_on_the_clock_has_a_warp_and_bins_if_its_events_are_many(variants, interval, bins):
    """Beside what rests there is room for what waits."""
    config = ks.MarketConfig.preset("trading", num_agents=20, arrivals="clock", interval=interval, num_levels=256)
    engine = open_engine(256)
    engine.set_ensemble(config)
    engine.set_parameters(rows_of(config))
    _, blocks, threads, shared = engine.prepare(0)
    assert (variants[-1]["KS_EVENTS"], variants[-1]["KS_BINS"], variants[-1]["KS_OPTIONS"]) == (1, bins, 1)
    assert (blocks, threads, shared) == (1, 128, 4 * 4 * (4 * 256 + BIN_INTS))


@pytest.mark.parametrize(
    ("markets", "lanes", "blocks"),
    [
        (1, 32, 1),
        (33, 32, 33),
        (2112, 32, 2112),
        (2113, 8, 529),
        (4224, 8, 1056),
        (4225, 1, 133),
        (65536, 1, 2048),
    ],
)
def test_continuous_trading_has_fewer_lanes_for_each_of_more_markets(variants, markets, lanes, blocks):
    """By 132 multiprocessors of 16 warps."""
    config = ks.MarketConfig.preset("news")
    engine = open_engine(128, markets=markets)
    engine.set_ensemble(config)
    engine.set_parameters(rows_of(config))
    prepared = engine.prepare(0)
    assert (variants[-1]["KS_EVENTS"], variants[-1]["KS_LANES_PER_MARKET"]) == (2, lanes)
    assert prepared[1:3] == (blocks, 32)


@pytest.mark.parametrize(("reach", "lanes"), [(4095, 1), (4096, 8)])
def test_lanes_share_a_market_whose_orders_go_too_far_for_a_lane(reach, lanes):
    assert plan(markets=MANY, events=2, task=1, reach=reach).lanes_per_market == lanes


@pytest.mark.parametrize(("markets", "held"), [(2112, 0), (4224, 2), (8 * 132 * 32, 2), (8 * 132 * 32 + 1, 0)])
def test_steps_of_continuous_trading_have_more_registers_where_half_the_warps_suffice(variants, markets, held):
    engine = open_engine(128, slots=1, markets=markets)
    config = ks.MarketConfig.preset("news")
    engine.set_ensemble(config)
    engine.set_parameters(rows_of(config))
    engine.prepare(1)
    assert variants[-1].get("KS_BLOCKS", 0) == held
    engine.prepare(0)
    assert "KS_BLOCKS" not in variants[-1]


@pytest.mark.parametrize(
    ("markets", "forced", "deadlines", "blocks"),
    [
        (2112, 66, False, 2112),  # whole warps already
        (4224, 66, True, 1056 + 66),  # a quarter of one
        (4225, 66, True, 133 + 67),
        (4225, 0, False, 133),
        (65536, 66, True, 2048 + 1024),
        (262144, 66, True, 8192 + 8 * 132),
    ],
)
def test_lanes_leave_late_markets_to_whole_warps(variants, monkeypatch, markets, forced, deadlines, blocks):
    """Some warps begin without markets, of 64 markets one, or eight to a multiprocessor; runs have no deadlines."""
    zeros = lambda *_, **__: SimpleNamespace(data_ptr=lambda: 1)  # noqa: E731
    monkeypatch.setattr(torch, "zeros", zeros)
    config = ks.MarketConfig.preset("news")
    engine = open_engine(128, slots=1, markets=markets)
    engine.set_ensemble(config)
    engine.set_parameters(rows_of(config))
    engine.set_task({"forced_auctions": forced})
    _, *shape = engine.prepare(1)
    assert bool(variants[-1].get("KS_DEADLINES")) == deadlines == bool(engine._struct.deadline_lists)
    assert shape[:2] == [blocks, 32]
    engine.prepare(0)
    assert "KS_DEADLINES" not in variants[-1]


@pytest.mark.parametrize(
    ("markets", "levels", "single", "tile", "blocks"),
    [
        (2112, 128, True, 1, 528),
        (2113, 128, False, 1, 529),
        (65536, 128, False, 19, 863),
        (65536, 8192, False, 25, 2622),
    ],
)
def test_a_step_of_calls_on_the_clock_has_a_tile(variants, markets, levels, single, tile, blocks):
    """However many markets there are, and whatever is forced: a warp plays them one after another."""
    changes = {"arrivals": "clock", "num_levels": levels, "init_price": levels // 2, "rounding": "even"}
    config = ks.MarketConfig.preset("trading", **changes)
    engine = open_engine(levels, slots=1, markets=markets)
    engine.set_ensemble(config)
    engine.set_parameters(rows_of(config))
    engine.set_task({"forced_auctions": 66})
    _, got, *_ = engine.prepare(1)
    assert (
        not variants[-1].keys() & {"KS_LANES", "KS_DEADLINES", "KS_LANES_PER_MARKET"} and variants[-1]["KS_EVENTS"] == 1
    )
    assert ("KS_SINGLE" in variants[-1], engine._struct.tile, got) == (single, tile, blocks)


@pytest.mark.parametrize("lanes", [1, 2, 16])
@pytest.mark.parametrize("levels", [8, 16, 64, 128, 1024, 2048])
def test_shared_memory_holds_a_market_that_all_lanes_share(levels, lanes):
    got = plan(markets=MANY, levels=levels, task=1, events=2, forced_auctions=66, lanes_per_market=lanes)
    whole = plan(markets=MANY, levels=levels, task=1, events=2, forced_auctions=66, lanes_per_market=32)
    assert got.deadlines and not whole.deadlines and got.shared >= whole.shared


def test_what_tests_force_wins(variants):
    engine = open_engine(128)
    engine.set_parameters(rows_of(ks.MarketConfig()))
    engine.specialise()
    engine.force = {"KS_BINS": 128, "KS_FORCE_SHUFFLE": 1}
    engine.prepare(0)
    assert variants[-1]["KS_BINS"] == 128 and variants[-1]["KS_FORCE_SHUFFLE"] == 1 and "KS_LEVELS" in variants[-1]


@pytest.mark.parametrize("levels", [*LEVELS, 4096, 8192])
def test_shared_memory_holds_the_books_and_the_bins(variants, levels):
    """Blocks fit what every device has up to 1024 levels, and sm_75's 64 KiB beyond, but for the largest grid."""
    engine = open_engine(levels, markets=5)
    engine.set_parameters(rows_of(ks.MarketConfig(num_levels=levels, init_price=levels // 2)))
    _, blocks, threads, shared = engine.prepare(0)
    per_block = threads // 32
    assert blocks * per_block >= 5 > (blocks - 1) * per_block
    assert shared == per_block * 4 * (2 * max(levels, 32) + BIN_INTS)
    assert shared <= (48 * 1024 if levels <= 1024 else 64 * 1024) or levels == 8192


def test_a_grid_too_large_for_the_device_is_refused(variants, monkeypatch):
    """sm_75 has 64 KiB of shared memory a block."""
    small = device_like(shared_memory_per_block_optin=64 * 1024)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: small)
    engine = open_engine(8192)
    engine.set_parameters(rows_of(ks.MarketConfig(num_levels=8192, init_price=4096)))
    with pytest.raises(EngineUnavailable, match="num_levels: .*got 8192, which takes 66048 bytes"):
        engine.prepare(0)
    assert variants == [], "nothing is compiled for it"


@pytest.mark.parametrize("slots", [1, 32])
@pytest.mark.parametrize("levels", [32, 512, 1024, 2048])
def test_environments_fit_small_devices_too(variants, monkeypatch, levels, slots):
    """Where a block of four warps with full tiles is too large, there are fewer warps, then smaller tiles."""
    small = device_like(
        multi_processor_count=40, shared_memory_per_block_optin=64 * 1024, shared_memory_per_multiprocessor=64 * 1024
    )
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: small)
    engine = open_engine(levels, markets=65536, slots=slots)
    engine.set_parameters(rows_of(ks.MarketConfig(num_levels=levels, init_price=levels // 2)))
    _, blocks, threads, shared = engine.prepare(1)
    assert shared <= 64 * 1024
    assert blocks * (threads // 32) * engine._struct.tile >= 65536
    assert engine._struct.tile * slots <= 32
    tile = engine._struct.tile
    engine.prepare(0)  # for a run in between
    assert engine._struct.tile == tile


def test_much_work_is_reached_by_large_runs_only():
    """Half a second of an H200, which does 4e11 to 1e12 agent-events in one."""
    assert 10**11 <= cuda._WORK_TO_SPECIALISE <= 10**12


# Engines with nothing to compile --------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["numpy", "cpu"])
def test_other_engines_have_nothing_to_do(engine):
    if engine == "cpu" and (missing := build.cpu_unavailable()):
        pytest.skip(missing)
    play = Play(ks.MarketConfig.preset("trading"), 4, (None,), 3, ())
    plain, asked = open_simulator(engine, play), open_simulator(engine, play)
    for move in (("run", 5), ("step", 2, "near", 1), ("reset", "next episode", True, 2), ("run", 5)):
        assert asked.specialise() is None
        assert_same(make_move(asked, move), make_move(plain, move))
    assert np.asarray(asked.t).max() > 0
