// rollout.cuh: many decisions of a warp's markets in one launch, with the policy inside: it decides, they play a step, what came
// of it is recorded.
#pragma once

#if KS_POLICY == 2
#include "policy/programs.cuh"
#else
#include "policy/decide.cuh"
#endif

namespace ks {

// Decisions of all of a warp's markets. In line, as a function that is called reads the launch from memory, number by number.
KS_ON_LANE void decide(const Launch& launch, const WarpMarkets& markets, const Network& network, uint64_t counter, int64_t number) {
#pragma unroll 1
  for (int slot = 0; slot < launch.rollout.slots; ++slot)
    decide(launch, markets, network, rows_in_memory(launch, markets, slot), slot, counter, number);
}

// From decision `from` on, where each step takes up its markets and stores them. `step()` plays one, of all lanes.
template <typename Step>
KS_ON_LANE void roll_out(const Launch& launch, const WarpMarkets& markets, const Network& network, int64_t from, const Step& step) {
  const int64_t m = markets.first + markets.own();
#pragma unroll 1
  for (int64_t d = from; d < launch.decisions; ++d) {
    uint64_t counter = 0;
    bool plays = false;
    if (markets.has_own()) {
      counter = noise_counter(launch, episode_key(launch.seed[m], launch.episode[m]), launch.t[m]);
      plays = !launch.done[m] && !market_has_stopped(launch.error[m]);
    }
    sync_warp();
    decide(launch, markets, network, counter, d);
    sync_warp();
    step();
    sync_warp();
    record_step(launch, markets, d, plays);
  }
}

}  // namespace ks
