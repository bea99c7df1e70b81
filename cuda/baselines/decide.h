// decide.h: one agent's order, of the rules in model/market.h. The naive kernel and the paper's share it, so that they
// differ only in how they execute; sums and clearing are each kernel's own.
#pragma once

#include "layout.h"

#include "model/market.h"

namespace ks {

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
