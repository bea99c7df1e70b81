// record.cuh: what a rollout writes out of each decision: what was seen, what came of it, and of programs their orders.
//   KS_POLICY            1: a network decides (policy/decide.cuh), 2: programs play the slots (policy/programs.cuh)
//   KS_POLICY_INPUTS     numbers of an observation
//   KS_POLICY_ROWS16     1: observations are recorded in bfloat16, else in float32
#pragma once

#include "model/market.h"
#include "policy/products.cuh"

namespace ks {

constexpr int kRowWidth = 8 * (KS_POLICY_INPUTS / 8 + 1);  // of a recorded observation: its numbers, a 1, then zeros

// The markets of a warp, which lie together; each is that of so many lanes.
struct WarpMarkets {
  int64_t first;
  int count, lanes_each;

  KS_ON_LANE static WarpMarkets of(const Launch& launch, int64_t first, int most, int lanes_each) {
    const int64_t left = launch.markets - first;
    return {first, left < 0 ? 0 : left < most ? (int)left : most, lanes_each};
  }
  // This lane's market among them, and whether there is one; one lane of each keeps its numbers.
  KS_ON_LANE int own() const { return this_lane() / lanes_each; }
  KS_ON_LANE bool has_own() const { return own() < count; }
  KS_ON_LANE bool keeps_own() const { return has_own() && this_lane() % lanes_each == 0; }
};

// Observations as the policy takes them: pairs of numbers in bfloat16, word j of row r. Behind the numbers there is a 1, then zeros.
// They are in memory in float32; or in 16 bits in shared memory, word j of each row behind that of the row before.
struct RowsInMemory {
  const float* first;  // of row 0
  int64_t stride;      // from row to row
  int count;           // of rows: where one does not exist another does, as what comes of it is not used

  static KS_ON_LANE float number(const float* row, int i) {
    return i < KS_POLICY_INPUTS ? row[i] : i == KS_POLICY_INPUTS ? 1.0f : 0.0f;
  }
  KS_ON_LANE const float* row(int r) const { return first + (r < count ? r : 0) * stride; }
  KS_ON_LANE uint32_t pair(int r, int j) const { return as_pair(number(row(r), 2 * j), number(row(r), 2 * j + 1)); }
};
struct RowsOnChip {
  static constexpr int kWords = KS_POLICY_INPUTS / 2 + 1;
  const uint32_t* words;

  KS_ON_LANE uint32_t pair(int r, int j) const { return j < kWords ? words[j * kLaneCount + r] : 0; }
};

KS_ON_LANE RowsInMemory rows_in_memory(const Launch& launch, const WarpMarkets& markets, int slot) {
  const int64_t stride = (int64_t)launch.slots * launch.rollout.stride;
  return {launch.observation + markets.first * stride + slot * launch.rollout.stride, stride, markets.count};
}
// The place of a decision of a slot among the recorded ones.
KS_ON_LANE int64_t recorded_place(const Launch& launch, int64_t m, int slot, int64_t number) {
  return (number * launch.markets + m) * launch.rollout.slots + slot;
}

// What came of a decision for a slot. `played`: whether its market took part in it.
struct DecisionResult {
  float reward;
  bool terminated, truncated, played;
};
KS_ON_LANE DecisionResult result_in_memory(const Launch& launch, int64_t row, bool played) {
  return {launch.reward[row], launch.terminated[row] != 0, launch.truncated[row] != 0, played};
}

// What a slot's program submitted, or nothing: of each level an order record, four numbers, or with flags six.
KS_ON_LANE void record_orders(const Launch& launch, int64_t m, int slot, int64_t number, bool played) {
  const bool has_flags = launch.mechanism == kMechanismContinuous;
  const int64_t levels = launch.orders_per_side, row = (m * launch.slots + slot) * levels;
  int32_t* to = launch.rollout.orders + recorded_place(launch, m, slot, number) * levels * (has_flags ? 6 : 4);
#pragma unroll 1
  for (int64_t level = row; level < row + levels; ++level) {
    const int32_t word = played ? launch.played_flags[level] : 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      put(to++, played ? launch.played_quotes[4 * level + i] : 0);
      if (has_flags && i % 2 == 1) put(to++, i == 1 ? word & 255 : word >> 8);
    }
  }
}

// Record that of this lane's market.
KS_ON_LANE void record(const Launch& launch, int64_t m, int slot, int64_t number, const DecisionResult& result) {
  const Rollout& rollout = launch.rollout;
  const int64_t to = recorded_place(launch, m, slot, number);
  put(rollout.reward + to, result.reward);
  rollout.terminated[to] = result.terminated;
  rollout.truncated[to] = result.truncated;
  rollout.played[to] = result.played;
  if (KS_POLICY == 2) record_orders(launch, m, slot, number, result.played);
  if (slot == 0 && rollout.decision_events) rollout.decision_events[number * launch.markets + m] = launch.decision_events[m];
}
// And what its slot saw last, of an episode that was truncated.
KS_ON_LANE void record_final(const Launch& launch, int64_t m, int slot, int64_t number) {
  const Rollout& rollout = launch.rollout;
  if (rollout.every == 0) return;
  const float* const seen = launch.final_observation + (m * launch.slots + slot) * rollout.stride;
  const int64_t to = ((number / rollout.every * launch.markets + m) * rollout.slots + slot) * kRowWidth;
#pragma unroll 1
  for (int i = 0; i < kRowWidth; i += 2) {
    const float x = RowsInMemory::number(seen, i), y = RowsInMemory::number(seen, i + 1);
    if (KS_POLICY_ROWS16) reinterpret_cast<uint32_t*>(rollout.final_rows16)[(to + i) / 2] = as_pair(x, y);
    else rollout.final_rows[to + i] = x, rollout.final_rows[to + i + 1] = y;
  }
}

// Both, of all slots with the policy, as the step left it in memory.
KS_ON_LANE void record_step(const Launch& launch, const WarpMarkets& markets, int64_t number, bool played) {
  if (!markets.keeps_own()) return;
  const int64_t m = markets.first + markets.own();
#pragma unroll 1
  for (int slot = 0; slot < launch.rollout.slots; ++slot) {
    const DecisionResult result = result_in_memory(launch, m * launch.slots + slot, played);
    record(launch, m, slot, number, result);
    if (result.truncated && played) record_final(launch, m, slot, number);
  }
}

}  // namespace ks
