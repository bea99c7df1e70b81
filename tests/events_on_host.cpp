// events_on_host.cpp: the CUDA kernel of continuous trading (cuda/events/kernel.cuh), built as a library for a CPU with the C++
// engine's functions; the threads of its warps are fibers (warp_on_fibers.h). Lanes have a market each or share one
// (KS_LANES_PER_MARKET), perhaps with lists of deadlines (KS_DEADLINES). For tests/test_shared_markets.py and
// tests/test_late_markets.py.
#include <cmath>
#include <cstdlib>
#include <vector>

#include "engine_on_host.h"
#include "warp/warp.cuh"
#ifdef KS_AGENTS
#include "model/agents.h"

#include "added_agents.h"
#endif
#define KS_TASK 1
#include "events/kernel.cuh"

#include "deadlines_on_host.h"

namespace {

#if KS_LANES_PER_MARKET == 1
using Columns = ks::WideColumns;  // without an order flow
#else
using Columns = ks::SharedColumns<KS_LANES_PER_MARKET>;
#endif

bool is_run(const ks::Launch& launch) {
  return launch.env_mode == ks::kLaunchModeRun || launch.env_mode == ks::kLaunchModeOpen;
}

template <int kSlots>
void play(const ks::Launch& launch, int64_t number, int64_t warps, int* shared) {
  if (!is_run(launch)) return ks::play_warp<kSlots>(launch, number, warps, shared);
  const int64_t m = (number * ks::kWarpLanes + ks::this_lane()) / KS_LANES_PER_MARKET;
  if (KS_LANES_PER_MARKET > 1) ks::sync_warp();
  if (m >= launch.markets || ks::leaves_alone(launch, m)) return;
  ks::RunPlace place = {};
  using Market = ks::ContinuousMarket<kSlots, Columns>;
  ks::SlotRoom<kSlots> slots;
  ks::EventRun<Market>(launch, m, ks::event_memory<kSlots, Columns>(shared, launch.levels, slots)).run(place);
}

// The plan of a launch on two multiprocessors.
ks::Plan plan_of(const ks::Launch& launch) {
  ks::PlanRequest ask = {};
  ask.markets = launch.markets, ask.levels = launch.levels, ask.slots = launch.slots, ask.events = 2;
  ask.task = !is_run(launch);
  ask.flow = launch.flow_table != nullptr;
  ask.forced_auctions = KS_DEADLINES;
  ask.lanes_per_market = KS_LANES_PER_MARKET;
  ask.multiprocessors = 2;
  return ks::plan_for(ask);
}

int64_t turns;  // of the last launch's warps: a lane that has a market takes one for a step, lanes that share one take many

}  // namespace

extern "C" {

int64_t ks_turns() { return turns; }

// The lanes that one of those who are here waits for.
uint32_t ks_mask_among(uint32_t here, int lane) {
  threadIdx.x = lane;
  return ks::Group<KS_LANES_PER_MARKET>::mask_among(here);
}

int64_t ks_cpu_launch(const ks::Launch* given) {
  ks::Launch launch = *given;
  if (launch.arrivals == ks::kArrivalsEach || launch.mechanism != ks::kMechanismContinuous) std::abort();
  const ks::Plan plan = plan_of(launch);
  if (ks::has_lists(launch)) launch.deadline_lists = ks_lists(launch.elapsed, launch.markets);
  static std::vector<int32_t> ticks;
  ticks.assign(2 * launch.markets * launch.levels, 0x5a5a5a5a), launch.flow_ticks = ticks.data();
  const size_t fours = plan.shared / 8 + 64;  // rows of runs have 32 bits here, and words 64
  const std::vector<ks::Four> rubbish(fours * plan.blocks, {0x5a5a5a5a, 0x5a5a5a5a, 0x5a5a5a5a, 0x5a5a5a5a});
  static std::vector<ks::Four> memory;
  memory = rubbish;
  std::vector<int*> shared;
  for (int64_t warp = 0; warp < plan.blocks; ++warp) shared.push_back(&memory[fours * warp].a);
  turns = ks::on_all_warps(shared, [&](int warp) {
    if (launch.slots == 0) play<0>(launch, warp, plan.blocks, shared[warp]);
    else if (launch.orders_per_side > 1) play<ks::kLadders>(launch, warp, plan.blocks, shared[warp]);
    else if (launch.slots == 1) play<1>(launch, warp, plan.blocks, shared[warp]);
    else play<2>(launch, warp, plan.blocks, shared[warp]);
  });
  ks::check_lists(launch);
  for (int64_t m = 0; m < launch.markets; ++m)
    if (ks::market_has_stopped(launch.error[m])) return m;
  return -1;
}
}
