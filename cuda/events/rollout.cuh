// rollout.cuh: rollouts under continuous trading. A warp's markets stay on the chip from decision to decision, books in shared memory
// and the rest in registers, as long as they have room there; then they are stored after each decision, and go on in 32 bits.
#pragma once

#include "events/kernel.cuh"
#include "policy/rollout.cuh"

namespace ks {

// Ints of a warp's shared memory.
KS_ON_LANE int ints_of_warp(const Launch& launch) {
  constexpr int kEach = KS_LANES_PER_MARKET;
  constexpr int kMarkets = kLaneCount / kEach;
  return kEach > 1 ? shared_event_ints(KS_LEVELS, kMarkets, KS_FLOW) : event_ints(KS_LEVELS, true);
}

// An observation in the lane's own column of shared memory, in bfloat16; RowsOnChip (policy/record.cuh) reads it. Used as FeatureRows is.
struct FeatureWords {
  static constexpr int kLanes = 1;
  static KS_ON_LANE int lane() { return 0; }
  uint32_t* own;  // word 0 of this lane

  KS_ON_LANE void write(int i, float feature) const {
    reinterpret_cast<unsigned short*>(own + i / 2 * kLaneCount)[i & 1] = (unsigned short)as_pair(feature, 0.0f);
  }
  KS_ON_LANE void begin_slot(int) const {}
  KS_ON_LANE void write_own(int i, float feature) const { write(i, feature); }
  KS_ON_LANE void end_slot(int) const {}
  KS_ON_LANE void write_level(int, int, int, float) const {}
  KS_ON_LANE void write_extra(int, int, float) const {}
};

// An environment whose observations stay on the chip: memory gets them when the market is stored.
template <typename Market>
struct RolloutEnvironment : EventEnvironment<Market> {
  using Base = EventEnvironment<Market>;
  // One slot that sees what there is room for, alone in its market's lane, and recorded in the same 16 bits.
  static constexpr bool kOnChip =
      KS_POLICY_ROWS16 != 0 && Market::kNarrow && Base::kAlone && KS_POLICY_INPUTS == Base::kRow && Base::kRow + 1 <= 2 * kFeatureWords;

  int64_t number;   // of the decision
  bool restarted;   // in the last one

  template <typename Memory>
  KS_ON_LANE RolloutEnvironment(const Launch& launch, int64_t m, const Memory& memory, typename Base::Room& room)
      : Base(launch, m, memory, room), number(0), restarted(false) {
    this->load();
  }

  KS_ON_LANE FeatureWords words() const { return {reinterpret_cast<uint32_t*>(this->drawn.at)}; }
  // What memory has.
  KS_ON_LANE void see_first() const {
    const RowsInMemory from = {this->launch.observation + this->m * this->launch.rollout.stride, 0, 1};
#pragma unroll 1
    for (int j = 0; j < RowsOnChip::kWords; ++j) words().own[j * kLaneCount] = from.pair(0, j);
  }
  KS_ON_LANE void see() const {
    const FeatureWords own = words();
    own.own[(RowsOnChip::kWords - 1) * kLaneCount] = 0;  // what is behind the 1
    this->write_features(own);
    own.write(KS_POLICY_INPUTS, 1.0f);
  }

  KS_ON_LANE void observe(const Part& part) {
    if constexpr (kOnChip) {
      if (!part.plays) return;
      see();
      if (this->outcome.end == kEndTruncated) keep_final();
      // What a market restarts from is overwritten, be it in this step or before it is stored.
      const bool same_step = this->task.autoreset == kAutoresetSameStep;
      if (this->all_ended() && (!same_step || number + 1 == this->launch.decisions)) write_rows(true);
    } else {
      Base::observe(part);
    }
  }
  KS_ON_LANE void observe_opening(const Part& part) {
    if constexpr (kOnChip) see();
    else Base::observe_opening(part);
  }
  KS_ON_LANE void keep_final() const {
    const Rollout& rollout = this->launch.rollout;
    if (rollout.every == 0) return;
    const int64_t to = (number / rollout.every * this->launch.markets + this->m) * kRowWidth / 2;
#pragma unroll 1
    for (int j = 0; j < kRowWidth / 2; ++j)
      reinterpret_cast<uint32_t*>(rollout.final_rows16)[to + j] = j < RowsOnChip::kWords ? words().own[j * kLaneCount] : 0;
  }
  // The last observation of an episode, or the present one; this is also the last, but where an episode has just begun.
  KS_ON_LANE void write_rows(bool ended) const {
    FeatureRows<Base::kRow> rows = FeatureRows<Base::kRow>::final_of(this->launch, this->first_row(), ended);
    if (!ended && restarted) rows = FeatureRows<Base::kRow>::next_of(this->launch, this->first_row());
    this->write_features(rows);
  }
};

// How far a warp's markets came with a rollout on the chip.
struct OnChip {
  int64_t decisions;  // begun; all but perhaps the last are recorded
  bool left, plays;   // this lane's market has yet to end that one, from `place` on; whether it takes part in it
  EventPlace place;
};

// As many decisions as the warp's markets have room for: they are stored when there is no more.
template <int kSlots, typename Width>
KS_ON_LANE OnChip roll_out_on_chip(const Launch& launch, const WarpMarkets& markets, const Network& network, int* shared) {
  using Environment = RolloutEnvironment<ContinuousMarket<kSlots, Width>>;
  SlotRoom<kSlots> slots;
  typename Environment::Room room;
  const int64_t m = min_of(markets.first + markets.own(), launch.markets - 1);
  const auto memory = event_memory<kSlots, Width>(shared, KS_LEVELS, slots);
  Environment environment(launch, m, memory, room);
  const bool has_own = markets.has_own();
  OnChip here = {};
  Part& part = here.place.part;
  bool changed = false;
  if (Environment::kOnChip) environment.see_first();
#pragma unroll 1
  while (here.decisions < launch.decisions && ballot(here.left) == 0) {
    const uint64_t counter = noise_counter(launch, environment.key, environment.t);
    sync_warp();
    if constexpr (Environment::kOnChip) {
      decide(launch, markets, network, RowsOnChip{environment.words().own - this_lane()}, 0, counter, here.decisions);
    } else {
      decide(launch, markets, network, counter, here.decisions);
    }
    sync_warp();
    if (has_own) part = begin_loaded(environment);
    here.plays = has_own && part.plays;
    if (ballot(here.plays && !decision_fits(environment)) != 0) break;
    environment.number = here.decisions;
    if (has_own) {
      here.left = !play_step(environment, part);
      changed |= !part.frozen;
      environment.restarted = part.restarts;
    }
    sync_warp();
    if (ballot(here.left) == 0) {
      if constexpr (Environment::kOnChip) {
        const Outcome& outcome = environment.outcome;
        DecisionResult result = {outcome.reward, outcome.end == kEndTerminated, outcome.end == kEndTruncated, true};
        if (!here.plays) result = result_in_memory(launch, m, false);
        record(launch, m, 0, here.decisions, result);
      } else {
        record_step(launch, markets, here.decisions, here.plays);
      }
    }
    here.decisions += 1;
  }
  if (Environment::kOnChip && changed && !here.left) environment.write_rows(false);
  part.frozen = !changed;
  if (has_own) environment.store(part);
  here.place.begun = here.left;
  return here;
}

// The rest of a rollout, of markets that need 32 bits or do not fill their warp: half of them at a time, and stored after each
// decision.
template <int kSlots>
KS_CALLED_ON_LANE void roll_out_halves(const Launch& launch, const WarpMarkets& markets, Network network, int* shared,
                                       const OnChip& here) {
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
    record_step(launch, markets, here.decisions - 1, here.plays);
  }
  roll_out(launch, markets, network, here.decisions, [&] { play(markets.has_own(), EventPlace{}); });
}

// The rollout of a warp's markets; `shared` is the block's memory.
template <int kSlots>
KS_ON_LANE void roll_out_warp(const Launch& launch, int64_t number, int* shared) {
  constexpr int kEach = KS_LANES_PER_MARKET, kMarkets = kLaneCount / kEach;
  const WarpMarkets markets = WarpMarkets::of(launch, number * kMarkets, kMarkets, kEach);
  const Network network = take_network(launch, markets.first, shared);
  if (markets.count == 0) return;
  int* const own = shared + kSharedNetworkInts + threadIdx.x / kWarpLanes * ints_of_warp(launch);
  if constexpr (kEach > 1) {
    roll_out_on_chip<kSlots, SharedColumns<kEach>>(launch, markets, network, own);
  } else {
    OnChip here = {};
    if (markets.count == kMarkets) here = roll_out_on_chip<kSlots, NarrowColumns>(launch, markets, network, own);
    if (here.decisions < launch.decisions || ballot(here.left) != 0)
      roll_out_halves<kSlots>(launch, markets, network, own, here);
  }
}

}  // namespace ks
