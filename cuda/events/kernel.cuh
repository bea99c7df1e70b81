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
#ifdef KS_POLICY
#include "policy/rollout.cuh"
#endif

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
  float* const features = reinterpret_cast<float*>(shared + event_ints(levels, false));
  using Drawn = typename Width::Drawn;
  Drawn* const drawn = reinterpret_cast<Drawn*>(rows - column + levels * Width::kMarkets) + column;
  return {kept(rows), kept(bits), features, kept(drawn), &slots};
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

#ifdef KS_POLICY
// How far a warp's markets came with a rollout on the chip.
struct OnChip {
  int64_t decisions;  // begun; all but perhaps the last are recorded
  bool left, plays;   // this lane's market has yet to end that one, from `place` on; whether it takes part in it
  EventPlace place;
};

// As many decisions as the warp's markets have room for: they are stored when there is no more.
template <int kSlots, typename Width>
KS_ON_LANE OnChip roll_out_on_chip(const Launch& launch, const WarpMarkets& markets, int* shared) {
  using Environment = EventEnvironment<ContinuousMarket<kSlots, Width>>;
  SlotRoom<kSlots> slots;
  typename Environment::Room room;
  const int64_t m = min_of(markets.first + markets.own(), launch.markets - 1);
  const auto memory = event_memory<kSlots, Width>(shared, KS_LEVELS, slots);
  Environment environment(launch, m, memory, room);
  environment.load();
  const bool has_own = markets.has_own();
  OnChip here = {};
  Part& part = here.place.part;
  bool changed = false;
#pragma unroll 1
  while (here.decisions < launch.decisions && ballot(here.left) == 0) {
    const uint64_t counter = noise_counter(launch, environment.key, environment.t);
    sync_warp();
    decide(launch, markets, counter, here.decisions);
    sync_warp();
    if (has_own) part = begin_loaded(environment);
    here.plays = has_own && part.plays;
    if (ballot(here.plays && !decision_fits(environment)) != 0) break;
    if (has_own) {
      here.left = !play_step(environment, part);
      changed |= !part.frozen;
    }
    sync_warp();
    if (ballot(here.left) == 0) record(launch, markets, here.decisions, here.plays);
    here.decisions += 1;
  }
  part.frozen = !changed;
  if (has_own) environment.store(part);
  here.place.begun = here.left;
  return here;
}

// The rest of a rollout, from decision `from` on, of markets that need 32 bits or do not fill their warp: half of them at a time, and
// stored after each decision.
template <int kSlots>
KS_CALLED_ON_LANE void roll_out_halves(const Launch& launch, const WarpMarkets& markets, int* shared, const OnChip& here) {
  const auto play = [&](bool plays, const EventPlace& place) {
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
      sync_warp();
      if (plays && this_lane() / HalfColumns::kMarkets == half)
        play_wide<kSlots, HalfColumns>(launch, markets.first + this_lane(), shared, place);
    }
    sync_warp();
  };
  if (ballot(here.left) != 0) {
    play(here.left, here.place);
    record(launch, markets, here.decisions - 1, here.plays);
  }
  roll_out(launch, markets, here.decisions, [&] { play(markets.has_own(), EventPlace{}); });
}

// The rollout of a warp's markets.
template <int kSlots>
KS_ON_LANE void roll_out_warp(const Launch& launch, int64_t number, int* shared) {
  constexpr int kEach = KS_LANES_PER_MARKET, kMarkets = kLaneCount / kEach;
  const WarpMarkets markets = WarpMarkets::of(launch, number * kMarkets, kMarkets, kEach);
  if (markets.count == 0) return;
  if constexpr (kEach > 1) {
    roll_out_on_chip<kSlots, SharedColumns<kEach>>(launch, markets, shared);
  } else {
    OnChip here = {};
    if (markets.count == kMarkets) here = roll_out_on_chip<kSlots, NarrowColumns>(launch, markets, shared);
    if (here.decisions < launch.decisions || ballot(here.left) != 0) roll_out_halves<kSlots>(launch, markets, shared, here);
  }
}
#endif

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
