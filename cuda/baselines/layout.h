// layout.h of the baselines: the argument of their launches, and one agent's order of the rules in model/market.h, which they
// share: they differ only in how they execute. scripts/benchmarks/cuda_backends.py reads the struct from this text. The
// baselines run the preset "paper" alone: no options, no slots, one set of parameters for all markets, market m seeded with
// seed + m. M markets, L levels, A agents.
#pragma once

#include "model/market.h"

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
  const int32_t* agent_types;      // [M, A] paper_block: enum AgentType
  int32_t* prev_mid2;              // [M]
  int32_t* last_tick;              // [M]
  int64_t* volume;                 // [M]
  int64_t* trades;                 // [M]
  int64_t* hashes;                 // [M] hash_ceiling
};

enum AgentType { kNoiseAgent = 0, kMomentumAgent = 1, kMakerAgent = 2 };

struct Order {
  bool buys;
  int32_t tick, qty;
};

KS_RULE Order decide(const BaselineLaunch& p, int32_t levels, int32_t type, int32_t agent, int64_t t, uint64_t word,
                     int32_t mid2, int32_t ret) {
  Order order;
  order.buys = type == kMakerAgent ? maker_buys(agent, t) : directional_buys(type == kMomentumAgent ? ret : 0, word);
  const int32_t step = type == kMakerAgent ? -p.maker_half_spread : 1;
  const int32_t offset = type == kNoiseAgent ? word_offset(word, p.noise_spread) : order.buys ? step : -step;
  order.tick = price_near_mid(mid2, offset, levels);
  const bool marketable = type != kMakerAgent && word_is_marketable(word, p.market_order_threshold);
  if (marketable) order.tick = order.buys ? levels - 1 : 0;
  order.qty = word_quantity(word, p.max_order_qty);
  return order;
}

}  // namespace ks
