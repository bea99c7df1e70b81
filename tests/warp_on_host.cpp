// warp_on_host.cpp: the CUDA kernel of a market per warp (cuda/warp/), built as a library for a CPU with the C++ engine's
// functions; a warp's threads are fibers (warp_on_fibers.h). For tests/test_warp_on_host.py.
#include "engine_on_host.h"
#ifdef KS_AGENTS
#include "warp/warp.cuh"

#include "model/agents.h"

#include "added_agents.h"
#endif
#include "warp/environment.cuh"

namespace {

std::vector<int4> memory;

template <bool kClock, bool kOptions, int kSlots>
void play(const ks::Launch& launch) {
  using Market = typename ks::CallMarketOf<kClock, KS_BINS, kOptions, kSlots>::type;
  using Tile = ks::EnvironmentTile<kClock, KS_BINS, kOptions, kSlots>;
  const bool runs = launch.env_mode == ks::kLaunchModeRun;
  const int ints = runs ? Market::shared_ints(launch) : Tile::shared_ints(launch);
  // What was in shared memory before is nobody's.
  memory.assign(ints / 4 + 1, make_int4(0x5a5a5a5a, 0x5a5a5a5a, 0x5a5a5a5a, 0x5a5a5a5a));
  int* const shared = &memory[0].x;
  for (int64_t first = 0; first < launch.markets; first += runs ? 1 : launch.tile) {
    ks::on_all_lanes(shared, [&launch, first, runs, ints, shared] {
      if (runs) {
        Market market(launch, first, launch.params[first * launch.params_stride], shared, shared + ints - ks::kBinInts);
        ks::run_market(market);
      } else {
        Tile tile(launch, first, shared);
        ks::step_or_reset(tile);
      }
    });
  }
}

template <bool kOptions, int kSlots>
void play(const ks::Launch& launch) {
  launch.arrivals == ks::kArrivalsClock ? play<true, kOptions, kSlots>(launch) : play<false, kOptions, kSlots>(launch);
}

bool has_options(const ks::MarketParams& p) {
  return KS_LEVERS || (p.walk_threshold | p.jump_threshold | p.cancel_threshold | p.window | p.tie | p.residue) != 0;
}

}  // namespace

extern "C" {

int64_t ks_cpu_launch(const ks::Launch* given) {
  ks::Launch launch = *given;
  const int most = launch.slots > 0 ? ks::kWarpLanes / launch.slots : 1;
  launch.tile = KS_SINGLE ? 1 : ks::min_of(most, 1 + (int)(launch.markets % 4));
  bool options = false;
  for (int64_t m = 0; m < (launch.params_stride ? launch.markets : 1); ++m) options |= has_options(launch.params[m]);
  for (int32_t i = 0; i < launch.task.scenarios; ++i) options |= has_options(launch.scenario_params[i]);
  if (launch.slots == 0) options ? play<true, 0>(launch) : play<false, 0>(launch);
  else if (launch.slots == 1) options ? play<true, 1>(launch) : play<false, 1>(launch);
  else options ? play<true, 2>(launch) : play<false, 2>(launch);
  for (int64_t m = 0; m < launch.markets; ++m)
    if (ks::market_has_stopped(launch.error[m])) return m;
  return -1;
}
}
