// events_on_host.cpp: the CUDA kernel of continuous trading where all lanes of a warp share a market (cuda/events/), built as a
// library for a CPU with the C++ engine's functions; a warp's threads are fibers (warp_on_fibers.h). For tests/test_shared_markets.py.
#include <cmath>
#include <cstdlib>
#include <vector>

#include "engine_on_host.h"
#include "warp/warp.cuh"
#define KS_TASK 1
#include "events/environment.cuh"
#include "model/plan.h"

namespace {

using Columns = ks::SharedColumns<ks::kWarpLanes>;

template <int kSlots>
void play(const ks::Launch& launch, int64_t m, int* shared) {
  using Market = ks::ContinuousMarket<kSlots, Columns>;
  const int words = 2 * ks::words_of_bits(launch.levels, ks::kWordBits);
  ks::OccupiedBits* const bits = reinterpret_cast<ks::OccupiedBits*>(shared);
  int32_t* const row = reinterpret_cast<int32_t*>(bits + words);
  ks::EventMemory<Columns> memory = {row, bits, {nullptr, nullptr}, nullptr, nullptr,
                                     reinterpret_cast<ks::DrawnArrival*>(row + launch.levels)};
  if (ks::leaves_alone(launch, m)) return;
  ks::sync_warp();
  if (launch.env_mode == ks::kLaunchModeRun) {
    ks::RunPlace place = {};
    ks::EventRun<Market>(launch, m, memory).run(place);
  } else {
    ks::StepPlace place = {};
    ks::step_on_clock<Market>(launch, m, memory, place);
  }
}

}  // namespace

extern "C" {

int64_t ks_cpu_launch(const ks::Launch* given) {
  const ks::Launch& launch = *given;
  if (launch.arrivals != ks::kArrivalsClock || launch.mechanism != ks::kMechanismContinuous) std::abort();
  static std::vector<ks::Four> memory;
  memory.assign(ks::shared_event_ints(launch.levels, 1) / 4 + 16, {0x5a5a5a5a, 0x5a5a5a5a, 0x5a5a5a5a, 0x5a5a5a5a});
  int* const shared = &memory[0].a;
  for (int64_t m = 0; m < launch.markets; ++m)
    ks::on_all_lanes(shared, [&launch, m, shared] {
      if (launch.slots == 0) play<0>(launch, m, shared);
      else if (launch.slots == 1) play<1>(launch, m, shared);
      else play<2>(launch, m, shared);
    });
  for (int64_t m = 0; m < launch.markets; ++m)
    if (ks::market_has_stopped(launch.error[m])) return m;
  return -1;
}
}
