// kernel.cuh: runs of markets on the clock on a GPU, a market per lane.
//
// Rows are in shared memory, tick by tick for all lanes of a warp: a lane's market is always in the lane's own bank, so that
// an order of every lane takes one cycle wherever their ticks are. In global or local memory it would be one line per lane,
// 32 cycles. With 128 ticks a warp's continuous markets have 18 KiB, so that 12 warps fit on a multiprocessor of sm_90, which
// hide one another's latency; a call auction, which needs rows for what waits, has a third of that.
#pragma once

#include "events/environment.cuh"
#include "model/plan.h"

namespace ks {

// Where lane's numbers are in the `event_ints` of its warp.
template <bool kContinuous>
KS_ON_LANE EventMemory event_memory(int* shared, int levels, int lane) {
  const int words = words_of_bits(levels);
  uint64_t* const bits = reinterpret_cast<uint64_t*>(shared);  // first, as they are aligned
  int* const rows = shared + (kContinuous ? 4 : 6) * words * kLaneCount;
  EventMemory memory = {rows + lane, bits + lane, {nullptr, nullptr}, nullptr};
  if (!kContinuous) {
    memory.waiting[0] = rows + levels * kLaneCount + lane;
    memory.waiting[1] = rows + 2 * levels * kLaneCount + lane;
    memory.waiting_bits = bits + 2 * words * kLaneCount + lane;
  }
  return memory;
}

template <bool kContinuous, int kSlots>
KS_ON_LANE void run_events(const Launch& launch, int64_t m, int* shared) {
  const EventMemory memory = event_memory<kContinuous>(shared, KS_LEVELS, this_lane());
  if constexpr (kContinuous) EventRun<ContinuousMarket<kSlots>>(launch, m, memory).run();
  else EventRun<CallMarket<kSlots>>(launch, m, memory).run();
}

template <bool kContinuous, int kSlots>
KS_ON_LANE void step_events(const Launch& launch, int64_t m, int* shared) {
  step_on_clock<kContinuous, kSlots>(launch, m, event_memory<kContinuous>(shared, KS_LEVELS, this_lane()));
}

}  // namespace ks
