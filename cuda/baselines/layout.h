// layout.h of the baselines: the argument of their launches. kineticsim_env/benchmarks/cuda_backends.py reads it from
// this text. The baselines run the preset "paper" alone: no options, no slots, one set of parameters for all
// markets, market m seeded with seed + m. M markets, L levels, A agents.
#pragma once

#include "model/layout.h"

namespace ks {

struct BaselineLaunch {
  int64_t markets;
  int64_t seed;
  int64_t first_step;              // t of this launch's first auction
  int32_t steps;                   // auctions in this launch; naive.cu always does one
  int32_t agents;
  int32_t first_momentum;          // noise agents come first
  int32_t first_maker;             // to the last agent
  int32_t max_order_qty;
  int32_t noise_spread;
  int32_t market_order_threshold;  // of 2^24
  int32_t maker_half_spread;
  int32_t* bid;                    // naive: [L, M]; paper_block: [M, L]
  int32_t* ask;                    // as bid
  int32_t* orders;                 // [2, L, M] naive: BUY, then SELL
  const int32_t* agent_types;      // [M, A] paper_block: AgentType of baselines/decide.h
  int32_t* prev_mid2;              // [M]
  int32_t* last_tick;              // [M]
  int64_t* volume;                 // [M]
  int64_t* trades;                 // [M]
  int64_t* hashes;                 // [M] hash_ceiling
};

}  // namespace ks
