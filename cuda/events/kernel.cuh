// kernel.cuh: markets on the clock on a GPU, one per lane, or of few under continuous trading one per group of lanes: runs of
// continuous trading, or steps of environments.
//
// Rows are in shared memory, tick by tick for all lanes of a warp. In 32 bits a lane's market is in banks of the lane's own,
// so that an order of every lane takes one cycle wherever their ticks are; in 16 bits two lanes share two banks, and it takes
// two cycles at most. In global or local memory it would be one line per lane, 32 cycles. With 128 ticks the continuous
// markets of a warp have 9 KiB (event_ints), so that 16 warps, for which a multiprocessor has registers, fit on one of sm_90,
// and hide one another's latency.
#pragma once

#include "events/environment.cuh"
#include "model/plan.h"

#ifndef KS_LANES_PER_MARKET
#define KS_LANES_PER_MARKET 1
#endif

namespace ks {

// Where a lane's numbers are in its warp's shared memory.
template <typename Width>
KS_ON_LANE EventMemory<Width> event_memory(int* shared, int levels, bool continuous) {
  using Cell = typename Width::Cell;
  const int words = words_of_bits(levels, kWordBits) * Width::kMarkets;
  const int column = this_lane() / Width::Lanes::kLanes % Width::kMarkets;
  OccupiedBits* const bits = reinterpret_cast<OccupiedBits*>(shared) + column;
  Cell* const rows = reinterpret_cast<Cell*>(shared + (continuous ? 2 : 3) * words) + column;
  const int row = levels * Width::kMarkets;
  float* const features = reinterpret_cast<float*>(shared + event_ints(levels, continuous, false));
  DrawnArrival* const drawn = reinterpret_cast<DrawnArrival*>(rows - column + row) + column * kDrawnTogether;
  return {rows, bits, {rows + row, rows + 2 * row}, bits + 2 * words, features, drawn};
}

template <int kSlots, typename Width>
KS_ON_LANE bool CallMarket<kSlots, Width>::take_events(uint32_t until) {
  return take_one_by_one(until);
}

#if KS_TASK
using EventPlace = StepPlace;
template <typename Market>
KS_ON_LANE bool play_events(const Launch& launch, int64_t m, const typename Market::Memory& memory, EventPlace& place) {
  return step_on_clock<Market>(launch, m, memory, place);
}
#else
using EventPlace = RunPlace;
template <typename Market>
KS_ON_LANE bool play_events(const Launch& launch, int64_t m, const typename Market::Memory& memory, EventPlace& place) {
  return EventRun<Market>(launch, m, memory).run(place);
}
#endif

// Go on with a market in 32 bits. A function that is called, so that it takes no registers from where all fit in 16 bits.
template <bool kContinuous, int kSlots, typename Width>
KS_CALLED_ON_LANE void play_wide(const Launch& launch, int64_t m, int* shared, EventPlace place) {
  using Market = typename EventMarketOf<kContinuous, kSlots, Width>::type;
  play_events<Market>(launch, m, event_memory<Width>(shared, KS_LEVELS, kContinuous), place);
}

// A warp's markets, from `first` on.
template <bool kContinuous, int kSlots>
KS_ON_LANE void play_lanes(const Launch& launch, int64_t first, int* shared) {
  const int64_t m = first / KS_LANES_PER_MARKET + this_lane() / KS_LANES_PER_MARKET;
  EventPlace place = {};
  bool left = m < launch.markets && !leaves_alone(launch, m);
  if constexpr (kContinuous && KS_LANES_PER_MARKET > 1) {
    sync_warp();  // what a lane has stored may be what another asks for
    using Columns = SharedColumns<KS_LANES_PER_MARKET>;
    using Market = typename EventMarketOf<true, kSlots, Columns>::type;
    if (left) play_events<Market>(launch, m, event_memory<Columns>(shared, KS_LEVELS, true), place);
  } else if constexpr (kContinuous) {
    using Market = typename EventMarketOf<true, kSlots, NarrowColumns>::type;
    if (left) left = !play_events<Market>(launch, m, event_memory<NarrowColumns>(shared, KS_LEVELS, true), place);
    for (int half = 0; half < 2 && ballot(left) != 0; ++half) {
      sync_warp();
      if (left && this_lane() / HalfColumns::kMarkets == half)
        play_wide<true, kSlots, HalfColumns>(launch, m, shared, place);
    }
  } else if (left) {
    play_wide<false, kSlots, WideColumns>(launch, m, shared, place);
  }
}

}  // namespace ks
