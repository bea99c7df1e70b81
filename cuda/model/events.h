// events.h: the rules of a market on the clock, beside those of market.h and levers.h: who comes at an event, at which tick
// its order goes, what a place in a queue loses to cancellation. Pure functions on integers, for host and device.
// The loops are cuda/events/'s. Prices here are ticks on the grid unless they are said to be absolute.
#pragma once

#include "model/levers.h"

namespace ks {

constexpr uint64_t kPlaceWord = kWalkWord + 6;        // of a beat: what quotes lose of their places to cancellation
constexpr uint64_t kWhoWord = (1ull << 31) + (1ull << 29);  // of half an event's number: who comes at two events

constexpr int kDrawnTogether = 64;  // events that lanes draw for the one of them that matches these
constexpr int kFlowDrawn = 32;     // words of an order flow's events that they draw
constexpr int kFlowBlock = 8;      // places of a side, whose bits are in one word, of which an order flow has a sum
constexpr int kDrawnAlone = 18;     // that a lane draws for itself, as many as fit beside its book
constexpr int kPackedReach = 4095;  // and how far from the mid their orders may be

// Prices -------------------------------------------------------------------------------------------------------------

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

// The tick of a built-in order `offset` from the mid (or the fundamental price). kPlain: no lever but the rounding is on.
template <bool kPlain>
KS_RULE int32_t order_tick(const Pricing& pricing, int32_t mid2, int32_t offset, int32_t side, int32_t marketable) {
  if (!kPlain) return marketable ? pricing.marketable(side) : pricing.limit(pricing.middle(mid2), side, offset);
  const int32_t limit = middle_of(mid2, pricing.even, pricing.coin).at(offset);
  return clamp_to(choose(marketable, pricing.levels & (side - 1), limit), 0, pricing.levels - 1);
}

// Orders -------------------------------------------------------------------------------------------------------------

// What comes at an event. It has no quantity where an inactive agent is drawn, or one that users have added.
struct Arrival {
  int32_t quantity, offset;
  int32_t sells;       // a side
  int32_t marketable, by_value;  // 0 or 1; by_value: a fundamental agent's, whose side and offset the mid may turn
};

// The index of the agent that comes, of the 32 bits that say so.
KS_RULE int32_t who_comes(const MarketParams& p, uint32_t drawn) {
  return (int32_t)(((uint64_t)drawn * (uint32_t)p.levers.num_agents) >> 32);
}

// `drawn` are the 32 bits that say who comes, `word` is the order's.
KS_RULE Arrival arrival_at(const MarketParams& p, const RegimeParams& now, int32_t ret, uint32_t g, uint32_t drawn,
                           uint64_t word) {
  const uint32_t low = low_half(word), high = high_half(word);
  const int32_t agent = who_comes(p, drawn);
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

// What a quote with `ahead` units before it sees go of them when cancellation takes `loss` of its tick's q.
KS_RULE int32_t cancelled_ahead(int32_t q, int32_t loss, int32_t ahead, uint32_t u32) {
  const uint64_t r = ((uint64_t)u32 * (uint32_t)q) >> 32;
  return (int32_t)divide((uint64_t)(uint32_t)loss * (uint32_t)ahead + r, (uint32_t)q);
}

KS_RULE int64_t moment_of(int64_t t, int32_t place) { return 256 * t + place; }

}  // namespace ks
