// kernel.cuh: continuous trading on a GPU, a market per lane, or of few one per group of lanes: runs, or steps of environments.
//
// Rows are in shared memory, tick by tick for all lanes of a warp. In 32 bits a lane's market is in banks of the lane's own,
// so that an order of every lane takes one cycle wherever their ticks are; in 16 bits two lanes share two banks, and it takes
// two cycles at most. In global or local memory it would be one line per lane, 32 cycles. With 128 ticks the continuous
// markets of a warp have 9 KiB (event_ints), so that 16 warps, for which a multiprocessor has registers, fit on one of sm_90,
// and hide one another's latency.
#pragma once

#include "events/environment.cuh"
#include "lane/deadlines.cuh"
#include "model/plan.h"

#ifndef KS_LANES_PER_MARKET
#define KS_LANES_PER_MARKET 1
#endif

namespace ks {

// Where a lane's numbers are in its warp's shared memory.
template <int kSlots, typename Width>
KS_ON_LANE EventMemory<kSlots, Width> event_memory(int* shared, int levels, SlotRoom<kSlots>& slots) {
  using Cell = typename Width::Cell;
  const int words = words_of_bits(levels, kWordBits) * Width::kMarkets;
  const int column = this_lane() / Width::Lanes::kLanes % Width::kMarkets;
  OccupiedBits* const bits = reinterpret_cast<OccupiedBits*>(shared) + column;
  Cell* const rows = reinterpret_cast<Cell*>(bits - column + 2 * words) + column;
  using Drawn = typename Width::Drawn;
  Drawn* const drawn = reinterpret_cast<Drawn*>(rows - column + levels * Width::kMarkets) + column;
  LivesMemory lives = {nullptr, nullptr};
  if constexpr (KS_FLOW && Width::Lanes::kLanes > 1) {
    lives.sums = kept(reinterpret_cast<uint32_t*>(drawn - column + kFlowDrawn * Width::kMarkets) + column);
  }
  return {kept(rows), kept(bits), kept(drawn), &slots, lives};
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
template <int kSlots, typename Width>
KS_CALLED_ON_LANE void play_wide(const Launch& launch, int64_t m, int* shared, EventPlace place) {
  SlotRoom<kSlots> slots;
  play_events<ContinuousMarket<kSlots, Width>>(launch, m, event_memory<kSlots, Width>(shared, KS_LEVELS, slots), place);
}

// A market for each lane of a warp, or for lanes that share one; lanes without one come too. `shared` has room for all.
template <int kSlots>
KS_ON_LANE void play_lanes(const Launch& launch, int64_t m, bool left, int* shared) {
  EventPlace place = {};
  SlotRoom<kSlots> slots;
  if constexpr (KS_LANES_PER_MARKET > 1) {
    sync_warp();  // what a lane has stored may be what another asks for
    using Columns = SharedColumns<KS_LANES_PER_MARKET>;
    using Market = ContinuousMarket<kSlots, Columns>;
    if (left) play_events<Market>(launch, m, event_memory<kSlots, Columns>(shared, KS_LEVELS, slots), place);
  } else {
    using Market = ContinuousMarket<kSlots, NarrowColumns>;
    if (left) left = !play_events<Market>(launch, m, event_memory<kSlots, NarrowColumns>(shared, KS_LEVELS, slots), place);
    for (int half = 0; half < 2 && ballot(left) != 0; ++half) {
      sync_warp();
      if (left && this_lane() / HalfColumns::kMarkets == half)
        play_wide<kSlots, HalfColumns>(launch, m, shared, place);
    }
  }
}

// What a warp of a launch does, of which there are so many.
template <int kSlots>
KS_ON_LANE void play_warp(const Launch& launch, int64_t number, int64_t warps, int* shared) {
  const int64_t m = (number * kLaneCount + this_lane()) / KS_LANES_PER_MARKET;
  bool plays = m < launch.markets && !leaves_alone(launch, m);
#if KS_DEADLINES
  // A lane alone would play forced intervals no sooner in another warp than in its own, but all lanes of a warp do.
  static_assert(KS_LANES_PER_MARKET < kLaneCount);
  const DeadlineList deadlines(launch);
  plays = plays && !deadlines.has(m);
  play_lanes<kSlots>(launch, m, plays, shared);
  sync_warp();
  if (plays && Group<KS_LANES_PER_MARKET>::leads()) deadlines.note(m);
  sync_warp();
  deadlines.step(warps, [&](int64_t late) {
    play_wide<kSlots, SharedColumns<kLaneCount>>(launch, late, shared, {});
  });
#else
  play_lanes<kSlots>(launch, m, plays, shared);
#endif
}

}  // namespace ks
