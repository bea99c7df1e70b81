// rollouts_on_host.cpp: rollouts of the CUDA kernel of continuous trading (cuda/events/rollout.cuh), built as a library for a CPU; the
// threads of its warps are fibers (warp_on_fibers.h), and a block is one warp. For tests/test_rollouts_on_host.py.
#include <cmath>
#include <cstdlib>
#include <vector>

#include "engine_on_host.h"
#include "warp/warp.cuh"
#define KS_TASK 1
#define KS_EVENTS 2
#ifndef KS_POLICY
#define KS_POLICY 1
#endif
#define KS_POLICY_RELU 0
#define KS_POLICY_CRITIC 1
#define KS_POLICY_HIDDEN 64
#ifndef KS_SLOTS
#define KS_SLOTS 1
#endif
#include "events/rollout.cuh"

extern "C" int64_t ks_cpu_launch(const ks::Launch* given) {
  const ks::Launch& launch = *given;
  constexpr int kMarkets = ks::kWarpLanes / KS_LANES_PER_MARKET;
  const int64_t warps = (launch.markets + kMarkets - 1) / kMarkets;
  const size_t fours = (ks::kSharedNetworkInts + 2 * ks::ints_of_warp(launch)) / 4 + 64;  // words have 64 bits here
  static std::vector<ks::Four> memory;
  memory.assign(fours * warps, {0x5a5a5a5a, 0x5a5a5a5a, 0x5a5a5a5a, 0x5a5a5a5a});
  std::vector<int*> shared;
  for (int64_t warp = 0; warp < warps; ++warp) shared.push_back(&memory[fours * warp].a);
  ks::on_all_warps(shared, [&](int warp) { ks::roll_out_warp<KS_SLOTS>(launch, warp, shared[warp]); });
  for (int64_t m = 0; m < launch.markets; ++m)
    if (ks::market_has_stopped(launch.error[m])) return m;
  return -1;
}
