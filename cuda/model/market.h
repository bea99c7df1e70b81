// market.h: the rules of the market, for host and device: random words, decisions, quotes, clearing and fills.
// Pure functions on integers; no torch, threads, allocation or I/O. Loops, scans and memory are in cpu/,
// warp/, lane/ and events/. The same rules in words: docs/model.md.
#pragma once

#include "model/layout.h"

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define KS_RULE __host__ __device__ __forceinline__
#else
#define KS_RULE inline
#endif

namespace ks {

constexpr int32_t kNoTick = 0x7fffffff;  // an ask that takes no part; a bid that takes no part is -1

KS_RULE int32_t min_of(int32_t a, int32_t b) { return a < b ? a : b; }
KS_RULE int32_t max_of(int32_t a, int32_t b) { return a > b ? a : b; }
KS_RULE int32_t clamp_to(int32_t x, int32_t low, int32_t high) { return min_of(max_of(x, low), high); }
KS_RULE int32_t sign_of(int64_t x) { return (x > 0) - (x < 0); }
KS_RULE int32_t fit_int32(int64_t x) {
  return x > 0x7fffffff ? 0x7fffffff : x < -0x7fffffff ? -0x7fffffff : (int32_t)x;
}

// Random words -------------------------------------------------------------------------------------------------------

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15ull;
constexpr uint64_t kEpisodeStride = 0xd1b54a32d192ed03ull;

// Indices of the draws that belong to no agent.
constexpr uint64_t kWalkWord = 1ull << 30;
constexpr uint64_t kRationWord = kWalkWord + 1;
constexpr uint64_t kWarmStartWord = kWalkWord + 2;
constexpr uint64_t kStaggerWord = kWalkWord + 3;
constexpr uint64_t kScenarioWord = kWalkWord + 4;
constexpr uint64_t kSlotWord = kWalkWord + 64;
constexpr uint64_t kCancelWord = 1ull << 31;

// SplitMix64's finaliser; for its stream of seed 0 it gives e220a8397b1dcdaf, 6e789e6aa1b965f4, 06c45d188009454f.
KS_RULE uint64_t mix64(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

KS_RULE uint64_t episode_key(int64_t seed, int64_t episode) {
  return mix64((uint64_t)seed + kGolden + (uint64_t)episode * kEpisodeStride);
}

// The argument of mix64 for word `index` at auction t; consecutive indices differ by kGolden.
KS_RULE uint64_t word_counter(uint64_t key, int64_t t, uint64_t index) {
  return key + (((uint64_t)t << 32) + index + 1) * kGolden;
}

KS_RULE uint64_t random_word(uint64_t key, int64_t t, uint64_t index) { return mix64(word_counter(key, t, index)); }

// Halves of a word, and (u16 * n) >> 16 of the fields in its high half. In CUDA they are assembly, as the compiler would
// turn them into 64-bit shifts and masks, on the pipe that the hash already fills. A CPU's vector unit multiplies
// twice as many if all stays in 32 bits.
#ifdef __CUDA_ARCH__
KS_RULE uint32_t low_half(uint64_t word) {
  uint32_t low, high;
  asm("mov.b64 {%0, %1}, %2;" : "=r"(low), "=r"(high) : "l"(word));
  return low;
}
KS_RULE uint32_t high_half(uint64_t word) {
  uint32_t low, high;
  asm("mov.b64 {%0, %1}, %2;" : "=r"(low), "=r"(high) : "l"(word));
  return high;
}
KS_RULE uint32_t multiply_high(uint32_t a, uint32_t b) {
  uint64_t product;
  asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(a), "r"(b));
  return high_half(product);
}
KS_RULE uint32_t scale_lower_field(uint32_t high, uint32_t n) { return multiply_high(high << 16, n); }
KS_RULE uint32_t scale_upper_field(uint32_t high, uint32_t n) { return multiply_high(high & 0xffff0000u, n); }
#else
KS_RULE uint32_t low_half(uint64_t word) { return (uint32_t)word; }
KS_RULE uint32_t high_half(uint64_t word) { return (uint32_t)(word >> 32); }
KS_RULE uint32_t scale_lower_field(uint32_t high, uint32_t n) { return (high & 0xffffu) * n >> 16; }
KS_RULE uint32_t scale_upper_field(uint32_t high, uint32_t n) { return (high >> 16) * n >> 16; }
#endif

// Fields of a word: disjoint, so one hash suffices for all of an agent's draws.
KS_RULE bool word_is_buy(uint64_t word) { return (low_half(word) >> 31) != 0; }
KS_RULE bool word_is_marketable(uint64_t word, int32_t threshold) {
#ifdef __CUDA_ARCH__  // a shift can be a multiplication, which a mask cannot
  return low_half(word) << 8 < (threshold >= 1 << 24 ? 0xffffffffu : (uint32_t)threshold << 8);
#else
  return (int32_t)(low_half(word) & 0xffffffu) < threshold;
#endif
}
KS_RULE int32_t half_quantity(uint32_t high, int32_t max_qty) {
  return 1 + (int32_t)scale_lower_field(high, (uint32_t)max_qty);
}
// An offset, counted from the lowest, -spread, and from the mid.
KS_RULE uint32_t half_offset_index(uint32_t high, int32_t spread) {
  return scale_upper_field(high, 2 * (uint32_t)spread + 1);
}
KS_RULE int32_t half_offset(uint32_t high, int32_t spread) { return (int32_t)half_offset_index(high, spread) - spread; }
KS_RULE int32_t word_quantity(uint64_t word, int32_t max_qty) { return half_quantity(high_half(word), max_qty); }
KS_RULE int32_t word_offset(uint64_t word, int32_t spread) { return half_offset(high_half(word), spread); }
// floor(u * n / 2^32) of the word's high half.
KS_RULE int32_t word_choice(uint64_t word, int32_t n) { return (int32_t)(((word >> 32) * (uint64_t)n) >> 32); }

// Built-in agents ----------------------------------------------------------------------------------------------------

// round(mid + offset) half to even on the grid, then clamped to it; mid2 is the doubled mid.
KS_RULE int32_t unclamped_near_mid(int32_t mid2, int32_t offset) {
  int32_t floor_price = (mid2 >> 1) + offset;
  return floor_price + (mid2 & floor_price & 1);
}
KS_RULE int32_t price_near_mid(int32_t mid2, int32_t offset, int32_t levels) {
  return clamp_to(unclamped_near_mid(mid2, offset), 0, levels - 1);
}

KS_RULE bool maker_buys(int32_t agent, int64_t t) { return ((agent + (int32_t)t) & 1) == 0; }

// Momentum and fundamental agents follow a direction, or toss their coin when there is none.
KS_RULE bool directional_buys(int32_t direction, uint64_t word) {
  return direction != 0 ? direction > 0 : word_is_buy(word);
}

KS_RULE int32_t fundamental_direction(int32_t fundamental_price, int32_t mid2, int32_t origin) {
  return sign_of(2 * (int64_t)fundamental_price - ((int64_t)mid2 + 2 * (int64_t)origin));
}

KS_RULE int32_t num_agent_indices(const MarketParams& p) { return p.first_fundamental + p.num_fundamental; }

// How far from the mid an order that is not marketable can lie, before rounding.
KS_RULE int32_t order_reach(const MarketParams& p) {
  const int32_t reach = max_of(p.noise_spread, p.maker_half_spread);
  return reach > 1 ? reach : 1;  // momentum and fundamental agents
}

// Options ------------------------------------------------------------------------------------------------------------

// Params: MarketParams, or the RegimeParams that are in force.
template <typename Params>
KS_RULE int32_t walk_fundamental(const Params& p, uint64_t word, int32_t price) {
  if ((int32_t)(word & 0xffff) < p.walk_threshold) price += word_is_buy(word) ? 1 : -1;
  if ((int32_t)((word >> 32) & 0xffff) < p.jump_threshold) price += (word >> 63) ? p.jump_size : -p.jump_size;
  return clamp_to(price, -kMaxPrice, kMaxPrice);
}

// What cancellation takes of quantity q at tick p, and what it leaves; side 0 is bid, 1 is ask. It takes word
// kCancelWord + p / 2, or only the tick's half of it: the low half for an even tick, the high half for an odd one.
template <bool kBelow2To15 = false>
KS_RULE int32_t cancelled(int32_t q, int32_t threshold, uint32_t half, int32_t side) {
  const uint32_t r = (half >> (16 * side)) & 0xffffu;
  if (kBelow2To15) return (int32_t)(((uint32_t)q * (uint32_t)threshold + r) >> 16);
  return (int32_t)(((uint64_t)(uint32_t)q * (uint32_t)threshold + r) >> 16);
}
KS_RULE int32_t after_cancel_half(int32_t q, int32_t threshold, uint32_t half, int32_t side) {
  return q - cancelled(q, threshold, half, side);
}
KS_RULE int32_t after_cancel(int32_t q, int32_t threshold, uint64_t word, int32_t p, int32_t side) {
  return after_cancel_half(q, threshold, (uint32_t)(word >> (32 * (p & 1))), side);
}

// Ticks that the grid moves so that the mid is in its middle again; 0 while it is within the window.
KS_RULE int32_t window_shift(const MarketParams& p, int32_t mid2, int32_t levels) {
  int32_t shift = (mid2 >> 1) - levels / 2;
  return p.window > 0 && (shift > p.window || -shift > p.window) ? shift : 0;
}

KS_RULE bool origin_in_range(int32_t origin, int32_t shift) {
  int64_t moved = (int64_t)origin + shift;
  return moved <= kMaxOrigin && -moved <= kMaxOrigin;
}

// A market's numbers beside its book and its accounts, as every engine keeps them while it plays.
struct MarketNumbers {
  int32_t prev_mid2, last_tick, origin, fundamental;
  int32_t error;
  uint64_t key;  // of the episode
  int64_t t;
};

KS_RULE MarketNumbers numbers_of(const Launch& launch, int64_t m) {
  return {launch.prev_mid2[m], launch.last_tick[m], launch.price_origin[m], launch.fundamental_price[m],
          launch.error[m], episode_key(launch.seed[m], launch.episode[m]), launch.t[m]};
}
KS_RULE void store_numbers(const Launch& launch, int64_t m, const MarketNumbers& market) {
  launch.prev_mid2[m] = market.prev_mid2;
  launch.last_tick[m] = market.last_tick;
  launch.price_origin[m] = market.origin;
  launch.fundamental_price[m] = market.fundamental;
  launch.error[m] = market.error;
  launch.t[m] = market.t;
}

// What the agents of an auction see: the doubled mid and the direction of the last return. `shift`: how far the grid has to
// move for that, and has not moved yet.
struct Seen {
  int32_t mid2, ret, shift;
};

// The mid of the best prices, standing quotes among them, and the window that follows it. Returns are compared, not
// subtracted: a mid that was loaded may be any number.
template <bool kOptions>
KS_RULE Seen see_mid(const MarketParams& p, int32_t levels, int32_t best_bid, int32_t best_ask, MarketNumbers& market) {
  Seen seen;
  seen.mid2 = best_bid >= 0 && best_ask != kNoTick ? best_bid + best_ask : 2 * market.last_tick;
  seen.ret = (seen.mid2 > market.prev_mid2) - (seen.mid2 < market.prev_mid2);
  seen.shift = kOptions ? window_shift(p, seen.mid2, levels) : 0;
  if (seen.shift != 0 && !origin_in_range(market.origin, seen.shift)) {
    market.error |= kErrorOrigin;
    seen.shift = 0;
  }
  seen.mid2 -= 2 * seen.shift;
  market.prev_mid2 = seen.mid2;
  market.last_tick -= seen.shift;
  market.origin += seen.shift;
  return seen;
}

// Quotes -------------------------------------------------------------------------------------------------------------

struct Quote {
  int32_t bid_price, bid_qty, ask_price, ask_qty;  // absolute ticks; quantity 0: no order
};

struct Account {
  int64_t cash, inventory, fees;  // ticks x units, units, thousandths of a tick
};

// A quote that does not cross itself: the smaller side is dropped, or both if they are equal.
KS_RULE Quote without_crossing(Quote q) {
  if (q.bid_price >= q.ask_price && q.bid_qty > 0 && q.ask_qty > 0) {
    bool drop_bid = q.bid_qty <= q.ask_qty, drop_ask = q.ask_qty <= q.bid_qty;
    if (drop_bid) q.bid_qty = 0;
    if (drop_ask) q.ask_qty = 0;
  }
  return q;
}

// Pre-trade limits: prices and sizes are cut, room for inventory is kept, and a quote that is to rest does not cross itself.
KS_RULE Quote apply_pre_trade_limits(Quote q, int64_t inventory, const MarketParams& p, bool both_rest = true) {
  q.bid_price = clamp_to(q.bid_price, -kMaxPrice, kMaxPrice);
  q.ask_price = clamp_to(q.ask_price, -kMaxPrice, kMaxPrice);
  int64_t bid_cap = p.max_quote_qty, ask_cap = p.max_quote_qty;
  if (p.inventory_limit >= 0) {
    int64_t room_to_buy = (int64_t)p.inventory_limit - inventory, room_to_sell = (int64_t)p.inventory_limit + inventory;
    if (room_to_buy < bid_cap) bid_cap = room_to_buy < 0 ? 0 : room_to_buy;
    if (room_to_sell < ask_cap) ask_cap = room_to_sell < 0 ? 0 : room_to_sell;
  }
  q.bid_qty = clamp_to(q.bid_qty, 0, (int32_t)bid_cap);
  q.ask_qty = clamp_to(q.ask_qty, 0, (int32_t)ask_cap);
  return both_rest ? without_crossing(q) : q;
}

// Flags of a slot's quote, as Launch::order_flags has them.
struct OrderFlags {
  int32_t word;

  KS_RULE bool has(int32_t side, int32_t flag) const { return (word >> (8 * side) & flag) != 0; }
  KS_RULE bool keeps(int32_t side) const { return has(side, kOrderFlagKeep); }
  KS_RULE bool rests(int32_t side) const {
    return keeps(side) || !has(side, kOrderFlagImmediateOrCancel | kOrderFlagMarket);
  }
  // Whether neither side keeps what stands, and what is left of both will stand.
  KS_RULE bool both_rest() const { return rests(0) && rests(1) && !keeps(0) && !keeps(1); }
};

KS_RULE OrderFlags keep_flags(bool bid, bool ask) {
  return {(bid ? (int32_t)kOrderFlagKeep : 0) | (ask ? kOrderFlagKeep << 8 : 0)};
}

// What flags make of an arriving quote before the pre-trade limits.
KS_RULE Quote quote_of_flags(Quote q, const Quote& standing, OrderFlags flags) {
  if (flags.has(0, kOrderFlagMarket)) q.bid_price = kMaxPrice;
  if (flags.has(1, kOrderFlagMarket)) q.ask_price = -kMaxPrice;
  if (flags.keeps(0)) q.bid_price = standing.bid_price, q.bid_qty = standing.bid_qty;
  if (flags.keeps(1)) q.ask_price = standing.ask_price, q.ask_qty = standing.ask_qty;
  return q;
}

// The same limits for a ladder: all of a side may fill, so levels get what is left of the room for inventory from the nearest on.
KS_RULE void apply_ladder_limits(Quote* ladder, const OrderFlags* flags, int levels, int64_t inventory, const MarketParams& p) {
  Quote asked[kMaxOrdersPerSide];
  for (int n = 0; n < levels; ++n) asked[n] = apply_pre_trade_limits(ladder[n], inventory, p, false);
  for (int n = 0; n < levels; ++n) {
    int64_t nearer_bids = 0, nearer_asks = 0;
    for (int i = 0; i < levels; ++i) {
      const int32_t before = i < n;  // of equal prices the lower level is nearer
      if (asked[i].bid_price >= asked[n].bid_price + 1 - before) nearer_bids += asked[i].bid_qty;
      if (asked[i].ask_price <= asked[n].ask_price - 1 + before) nearer_asks += asked[i].ask_qty;
    }
    ladder[n] = asked[n];
    if (p.inventory_limit >= 0) {
      const int64_t bids = (int64_t)p.inventory_limit - inventory - nearer_bids;
      const int64_t asks = (int64_t)p.inventory_limit + inventory - nearer_asks;
      if (bids < asked[n].bid_qty) ladder[n].bid_qty = bids < 0 ? 0 : (int32_t)bids;
      if (asks < asked[n].ask_qty) ladder[n].ask_qty = asks < 0 ? 0 : (int32_t)asks;
    }
    if (flags[n].both_rest()) ladder[n] = without_crossing(ladder[n]);
  }
}

// The grid tick of a standing bid: -1 if it takes no part, the edge if it is above the grid. Prices and origins are
// bounded so that their differences fit an int32.
static_assert((int64_t)kMaxPrice + kMaxOrigin < ((int64_t)1 << 31), "or ticks need 64 bits");
KS_RULE int32_t bid_tick(const Quote& q, int32_t origin, int32_t levels) {
  const int32_t tick = min_of(q.bid_price - origin, levels - 1);
  return q.bid_qty > 0 && tick >= 0 ? tick : -1;
}

KS_RULE int32_t ask_tick(const Quote& q, int32_t origin, int32_t levels) {
  const int32_t tick = max_of(q.ask_price - origin, 0);
  return q.ask_qty > 0 && tick < levels ? tick : kNoTick;
}

// Most quotients are of small numbers, and a GPU has no 64-bit division.
KS_RULE uint64_t divide(uint64_t a, uint32_t b) { return a >> 32 ? a / b : (uint32_t)a / b; }

// What a quote of qty gets at a tick where `traded` of `total` trades and quotes of lower slots add up to `before`.
KS_RULE int32_t ration(uint32_t before, uint32_t qty, uint32_t traded, uint32_t total, uint32_t u32) {
  if (traded == 0) return 0;
  if (traded == total) return (int32_t)qty;
  uint64_t r = ((uint64_t)u32 * total) >> 32;
  return (int32_t)(divide((uint64_t)(before + qty) * traded + r, total) - divide((uint64_t)before * traded + r, total));
}

// The same for the first slot: `before` is 0, and so is its quotient r / total. 0 < traded < total.
KS_RULE int32_t ration_first(uint32_t qty, uint32_t traded, uint32_t total, uint32_t u32) {
  return (int32_t)divide((uint64_t)qty * traded + (((uint64_t)u32 * total) >> 32), total);
}

KS_RULE void settle(Account& account, int32_t bought, int32_t sold, int64_t price, int32_t fee) {
  account.cash += price * ((int64_t)sold - bought);
  account.inventory += (int64_t)bought - sold;
  account.fees += (int64_t)fee * ((int64_t)bought + sold);
}

// Clearing, per tick -------------------------------------------------------------------------------------------------

// demand: buy quantity at this tick and above; supply: sell quantity at this tick and below.
KS_RULE int32_t executable_volume(int32_t demand, int32_t supply) { return min_of(demand, supply); }

// Price priority: what is left of `here` when the volume has filled all better prices first. The published rule is
// here - clamp(volume - better, 0, here), with cumulative = better + here; one instruction on sm_90.
KS_RULE int32_t residual_at_tick(int32_t volume, int32_t cumulative, int32_t here) {
  return max_of(min_of(cumulative - volume, here), 0);
}

// The clearing price among the maximisers lowest..highest. They are contiguous, as demand falls and supply rises:
// lowest = number of ticks with supply < volume, highest = number of ticks with demand >= volume, less one.
KS_RULE int32_t clearing_price(const MarketParams& p, int32_t mid2, int64_t t, int32_t lowest, int32_t highest) {
  if (p.tie == kTieLowest) return lowest;
  return clamp_to((mid2 >> 1) + (mid2 & (int32_t)t & 1), lowest, highest);
}

// A side's total may not reach 2^31; sums of uint32 below 2^32 cannot have wrapped (num_agents * max_order_qty <= 2^30).
KS_RULE bool overflows(uint32_t total_buy, uint32_t total_sell) { return ((total_buy | total_sell) >> 31) != 0; }

KS_RULE bool market_has_stopped(int32_t error) { return (error & (kErrorOverflow | kErrorOrigin)) != 0; }

// The doubled absolute mid of the built-in resting book: best_bid -1 or best_ask kNoTick for an empty side.
KS_RULE int32_t mark_mid2(int32_t best_bid, int32_t best_ask, int32_t last_tick, int32_t origin) {
  bool both = best_bid >= 0 && best_ask != kNoTick;
  return (both ? best_bid + best_ask : 2 * last_tick) + 2 * origin;
}

}  // namespace ks
