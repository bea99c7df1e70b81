// programs.cuh: rollouts in which programs play the slots (model/play_policy.h), which decide within the step: what a network does
// before it is here to write out what is seen.
#pragma once

#include "policy/record.cuh"

namespace ks {

KS_ON_LANE Network take_network(const Launch&, int64_t, int*) { return {}; }
constexpr int kSharedNetworkInts = 0;
KS_ON_LANE uint64_t noise_counter(const Launch&, uint64_t, int64_t) { return 0; }

// A lane writes the row of its own market.
template <typename From>
KS_ON_LANE void decide(const Launch& launch, const WarpMarkets& markets, const Network&, const From& from, int slot, uint64_t,
                       int64_t number) {
  const Rollout& rollout = launch.rollout;
  if (!markets.keeps_own() || (!rollout.rows && !rollout.rows16)) return;
  const int row = markets.own();
  const int64_t to = recorded_place(launch, markets.first + row, slot, number) * kRowWidth;
#pragma unroll 1
  for (int j = 0; j < kRowWidth / 2; ++j) {
    if (KS_POLICY_ROWS16) {
      put(reinterpret_cast<uint32_t*>(rollout.rows16) + to / 2 + j, from.pair(row, j));
    } else {
      const float* const seen = rows_in_memory(launch, markets, slot).row(row);
      put_two(rollout.rows + to + 2 * j, RowsInMemory::number(seen, 2 * j), RowsInMemory::number(seen, 2 * j + 1));
    }
  }
}

}  // namespace ks
