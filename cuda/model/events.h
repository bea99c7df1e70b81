// events.h: the rules of a market on the clock, beside market.h's: who comes at an event, what regimes and levers make of
// an order's price, what a place in a queue loses to cancellation. Pure functions on integers, for host and device.
// The loops are cuda/events/'s. Prices here are ticks on the grid unless they are said to be absolute.
#pragma once

#include "model/levers.h"

namespace ks {

constexpr uint64_t kPlaceWord = kWalkWord + 6;        // of a beat: what quotes lose of their places to cancellation
constexpr uint64_t kWhoWord = (1ull << 31) + (1ull << 29);  // of half an event's number: who comes at two events

// A side is 0 (buys, bids) or 1 (sells, asks).

// Regimes ------------------------------------------------------------------------------------------------------------

// A market's parameters as its regime has them.
KS_RULE RegimeParams parameters_in_force(const MarketParams& p, const RegimeParams* regimes, int32_t regime) {
  RegimeParams now = {p.max_order_qty, p.noise_spread,   p.market_order_threshold, p.maker_half_spread, p.taker_offset,
                      p.walk_threshold, p.jump_threshold, p.jump_size,              p.cancel_threshold};
  if (p.regimes == 0 || regimes == nullptr) return now;
  const RegimeParams& own = regimes[known_regime(p, regime)];
  if (own.max_order_qty >= 0) now.max_order_qty = own.max_order_qty;
  if (own.noise_spread >= 0) now.noise_spread = own.noise_spread;
  if (own.market_order_threshold >= 0) now.market_order_threshold = own.market_order_threshold;
  if (own.maker_half_spread >= 0) now.maker_half_spread = own.maker_half_spread;
  if (own.taker_offset >= 0) now.taker_offset = own.taker_offset;
  if (own.walk_threshold >= 0) now.walk_threshold = own.walk_threshold;
  if (own.jump_threshold >= 0) now.jump_threshold = own.jump_threshold;
  if (own.jump_size >= 0) now.jump_size = own.jump_size;
  if (own.cancel_threshold >= 0) now.cancel_threshold = own.cancel_threshold;
  return now;
}

KS_RULE int32_t moved_fundamental(const RegimeParams& now, uint64_t word, int32_t price) {
  if ((int32_t)(word & 0xffff) < now.walk_threshold) price += word_is_buy(word) ? 1 : -1;
  if ((int32_t)((word >> 32) & 0xffff) < now.jump_threshold) price += (word >> 63) ? now.jump_size : -now.jump_size;
  return clamp_to(price, -kMaxPrice, kMaxPrice);
}

// `yes` where `holds` (0 or 1), else `no`. No CPU can predict who comes, and compilers for it make branches of conditions.
KS_RULE int32_t choose(int32_t holds, int32_t yes, int32_t no) {
#ifdef __CUDA_ARCH__
  return holds ? yes : no;
#else
  return no ^ ((no ^ yes) & -holds);
#endif
}
// x, or -x where `holds`.
KS_RULE int32_t negated(int32_t holds, int32_t x) { return (x ^ -holds) + holds; }

// Prices -------------------------------------------------------------------------------------------------------------

// A price as a multiple of the tick size on the absolute grid: buys round down, sells up.
KS_RULE int64_t on_multiple(int64_t absolute, int32_t tick_size, int32_t side) {
  if (tick_size == 1) return absolute;
  const int64_t up = side ? absolute + tick_size - 1 : absolute;
  const int64_t over = up % tick_size;
  return up - (over < 0 ? over + tick_size : over);
}

// What does not change about prices from one beat to the next.
struct LivePricing {
  int32_t levels, origin;
  int32_t even, coin;         // what a price half way between ticks is rounded by
  int32_t lowest, highest;    // the multiples of the tick size at the grid's ends
  int32_t taker[2];           // where marketable orders of either side go
  int32_t cut[2];             // the collar: the highest buy, the lowest sell
  int32_t tax, tick_size;
  int32_t centre;             // of all prices where `around_value`
  bool around_value;
  bool plain;                 // no lever but the rounding
};

KS_RULE int32_t nearest_multiple(const LivePricing& pricing, int32_t tick) {
  return clamp_to(tick, pricing.lowest, pricing.highest);
}

KS_RULE int32_t after_levers(const LivePricing& pricing, int32_t tick, int32_t side) {
  const int32_t cut = side ? max_of(tick, pricing.cut[1]) : min_of(tick, pricing.cut[0]);
  const int64_t multiple = on_multiple((int64_t)cut + pricing.origin, pricing.tick_size, side);
  return nearest_multiple(pricing, fit_int32(multiple - pricing.origin));
}

// `collar_price` is absolute; `word` is the walk's of the beat.
KS_RULE LivePricing pricing_of(const MarketParams& p, int32_t levels, int32_t origin, int32_t fundamental,
                           int32_t collar_price, uint64_t word) {
  LivePricing pricing;
  pricing.levels = levels, pricing.origin = origin;
  pricing.even = p.rounding == kRoundingEven;
  pricing.coin = p.rounding == kRoundingCoin ? (int32_t)(word >> 16) & 1 : 0;
  pricing.tax = p.tax, pricing.tick_size = p.tick_size;
  pricing.around_value = p.reference == kReferenceFundamental;
  pricing.centre = fundamental - origin;
  pricing.plain = p.tax == 0 && p.collar == 0 && p.tick_size == 1 && !pricing.around_value;
  pricing.lowest = 0, pricing.highest = levels - 1;
  pricing.cut[0] = 0x7fffffff, pricing.cut[1] = -0x7fffffff;
  pricing.taker[0] = levels - 1, pricing.taker[1] = 0;
  if (pricing.plain) return pricing;
  pricing.lowest = (int32_t)(on_multiple(origin, p.tick_size, 1) - origin);
  pricing.highest = (int32_t)(on_multiple((int64_t)origin + levels - 1, p.tick_size, 0) - origin);
  if (p.collar > 0) {
    pricing.cut[0] = fit_int32((int64_t)collar_price - origin + p.collar);
    pricing.cut[1] = fit_int32((int64_t)collar_price - origin - p.collar);
  }
  for (int side = 0; side < 2; ++side) pricing.taker[side] = after_levers(pricing, side ? 0 : levels - 1, side);
  return pricing;
}

// The tick of a built-in order `offset` from the mid (or the fundamental price).
KS_RULE int32_t plain_tick(const LivePricing& pricing, int32_t mid2, int32_t offset, int32_t side, int32_t marketable) {
  int32_t tick = (mid2 >> 1) + offset;
  tick += mid2 & 1 & ((tick & pricing.even) | pricing.coin);
  tick = choose(marketable, pricing.levels & (side - 1), tick);
  return clamp_to(tick, 0, pricing.levels - 1);
}
KS_RULE int32_t order_tick(const LivePricing& pricing, int32_t mid2, int32_t offset, int32_t side, int32_t marketable) {
  if (pricing.plain) return plain_tick(pricing, mid2, offset, side, marketable);
  const int32_t half = pricing.around_value ? 0 : mid2 & 1;
  int32_t tick = (pricing.around_value ? pricing.centre : mid2 >> 1) + offset;
  tick += half & ((tick & pricing.even) | pricing.coin);
  tick = after_levers(pricing, tick - negated(side, pricing.tax), side);
  return marketable ? pricing.taker[side] : tick;
}

// What levers make of a learned quote's price, absolute; it may be off the grid.
KS_RULE int32_t quote_price(const LivePricing& pricing, const MarketParams& p, int32_t price, int32_t collar_price,
                            int32_t side) {
  if (p.collar > 0) {
    const int64_t end = (int64_t)collar_price + (side ? -p.collar : p.collar);
    price = side ? (int32_t)(end > price ? end : price) : (int32_t)(end < price ? end : price);
  }
  return (int32_t)on_multiple(price, pricing.tick_size, side);
}

// Orders -------------------------------------------------------------------------------------------------------------

// What comes at an event. It has no quantity where a silent agent is drawn.
struct Arrival {
  int32_t quantity, offset;
  int32_t sells;       // a side
  int32_t marketable, by_value;  // 0 or 1; by_value: a fundamental agent's, whose side and offset the mid may turn
};

// `drawn` are the 32 bits that say who comes, `word` is the order's.
KS_RULE Arrival arrival_at(const MarketParams& p, const RegimeParams& now, int32_t ret, uint32_t g, uint32_t drawn,
                           uint64_t word) {
  const uint32_t low = low_half(word), high = high_half(word);
  const int32_t agent = (int32_t)(((uint64_t)drawn * (uint32_t)p.num_agents) >> 32);
  const bool noise = agent < p.num_noise;
  const bool momentum = (uint32_t)(agent - p.first_momentum) < (uint32_t)p.num_momentum;
  const bool maker = (uint32_t)(agent - p.first_maker) < (uint32_t)p.num_maker;
  const bool value = (uint32_t)(agent - p.first_fundamental) < (uint32_t)p.num_fundamental;
  Arrival a;
  const int32_t coin = 1 - (int32_t)(low >> 31);
  const int32_t followed = ret != 0 ? ret < 0 : coin;
  a.sells = maker ? (int32_t)((uint32_t)agent + g) & 1 : momentum ? followed : coin;
  a.marketable = !maker & ((int32_t)(low & 0xffffffu) < now.market_order_threshold);
  a.by_value = value;
  const int32_t quantity = 1 + (int32_t)(((high & 0xffffu) * (uint32_t)now.max_order_qty) >> 16);
  a.quantity = noise | momentum | maker | value ? quantity : 0;
  const int32_t spread = (int32_t)(((high >> 16) * (2 * (uint32_t)now.noise_spread + 1)) >> 16) - now.noise_spread;
  const int32_t step = maker ? -now.maker_half_spread : now.taker_offset;
  a.offset = noise ? spread : a.sells ? -step : step;
  return a;
}

// Turn a fundamental agent's order towards the fundamental price, as the mid stands. `value2` is that price on the grid,
// doubled, or the int32 nearest to it, which no mid is.
KS_RULE void turn_to_value(Arrival& a, int32_t taker_offset, int32_t value2, int32_t mid2) {
  a.sells = choose(a.by_value & (value2 != mid2), value2 < mid2, a.sells);
  a.offset = choose(a.by_value, negated(a.sells, taker_offset), a.offset);
}

// Books --------------------------------------------------------------------------------------------------------------

// Words of `bits` bits that say where something rests: on grids of several words the first places have no bits of the first
// word before `leading_bits`, so that the middle of the grid, where most orders are, is in the middle of a word.
KS_RULE int32_t leading_bits(int32_t levels, int32_t bits) { return levels > bits ? bits / 2 : 0; }
KS_RULE int32_t words_of_bits(int32_t levels, int32_t bits) {
  return (levels + leading_bits(levels, bits) + bits - 1) / bits;
}

// Queues -------------------------------------------------------------------------------------------------------------

KS_RULE int32_t cancelled(int32_t q, int32_t threshold, uint32_t half, int32_t side) {
  const uint32_t r = (half >> (16 * side)) & 0xffffu;
  return (int32_t)(((uint64_t)(uint32_t)q * (uint32_t)threshold + r) >> 16);
}

// What a quote with `ahead` units before it sees go of them when cancellation takes `loss` of its tick's q.
KS_RULE int32_t cancelled_ahead(int32_t q, int32_t loss, int32_t ahead, uint32_t u32) {
  const uint64_t r = ((uint64_t)u32 * (uint32_t)q) >> 32;
  return (int32_t)divide((uint64_t)(uint32_t)loss * (uint32_t)ahead + r, (uint32_t)q);
}

KS_RULE int64_t moment_of(int64_t t, int32_t place) { return 256 * t + place; }

}  // namespace ks
