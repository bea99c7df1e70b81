// levers.h: a market's levers and its hidden regime: what they make of prices, fees and parameters. Pure functions on
// integers, as in market.h; the same rules in words: docs/model.md. Most markets have none, so engines have them compiled
// in only where a market does: a CUDA kernel by KS_LEVERS, the C++ engine by a template's argument.
#pragma once

#include "model/market.h"

#ifndef KS_LEVERS
#define KS_LEVERS 0  // of a kernel for markets with levers or regimes: 1 for rounding alone, else 2
#endif

namespace ks {

constexpr uint64_t kRegimeWord = kWalkWord + 7;
constexpr uint64_t kFirstRegimeWord = kWalkWord + 8;

KS_RULE bool has_levers(const MarketParams& p) {
  const int32_t off = p.levers.rounding | p.levers.reference | p.levers.tax | p.levers.collar | p.levers.regimes;
  return (off | (p.levers.taker_offset ^ 1) | (p.levers.tick_size ^ 1)) != 0;
}

// What a slot pays per unit, in thousandths of a tick.
KS_RULE int32_t unit_fee(const MarketParams& p) { return p.fee + 1000 * p.levers.tax; }

// Regimes ------------------------------------------------------------------------------------------------------------

// A regime's number as it is in memory, which anybody may have written to.
KS_RULE int32_t known_regime(const MarketParams& p, int32_t number) { return clamp_to(number, 0, max_of(p.levers.regimes, 1) - 1); }

// The regime from a beat on, which in an auction's market is its interval.
KS_RULE int32_t regime_at(const MarketParams& p, uint64_t key, int64_t beat, int32_t number) {
  const int32_t regime = known_regime(p, number);
  if (p.levers.regimes == 0 || p.levers.regime_threshold == 0) return regime;
  const uint64_t word = random_word(key, beat, kRegimeWord);
  return (int32_t)(word & 0xffff) < p.levers.regime_threshold ? word_choice(word, p.levers.regimes) : regime;
}

// The regime in which an episode begins, unless a warm start carries its own.
KS_RULE int32_t first_regime(const MarketParams& p, uint64_t key) {
  return p.levers.regimes > 0 ? word_choice(random_word(key, 0, kFirstRegimeWord), p.levers.regimes) : 0;
}

KS_RULE int32_t opening_regime(const Launch& launch, const TaskParams& task, const MarketParams& p, uint64_t key,
                               int64_t bank_row) {
  return task.bank_size > 0 && launch.bank_regime ? launch.bank_regime[bank_row] : first_regime(p, key);
}

// What a regime replaces: the fields of RegimeParams, in their order, each with its place in MarketParams.
#define KS_REGIME_FIELDS(FIELD)                                                                                     \
  FIELD(, max_order_qty) FIELD(, noise_spread) FIELD(, market_order_threshold) FIELD(, maker_half_spread)           \
  FIELD(levers., taker_offset) FIELD(, walk_threshold) FIELD(, jump_threshold) FIELD(, jump_size) FIELD(, cancel_threshold)
#define KS_COUNT_FIELD(place, name) +1
static_assert(sizeof(RegimeParams) == sizeof(int32_t) * (0 KS_REGIME_FIELDS(KS_COUNT_FIELD)), "a field is missing");
#undef KS_COUNT_FIELD

// These parameters as the market's own row has them.
KS_RULE RegimeParams own_parameters(const MarketParams& row) {
#define KS_OWN_FIELD(place, name) row.place name,
  return {KS_REGIME_FIELDS(KS_OWN_FIELD)};
#undef KS_OWN_FIELD
}

// As one of the market's regimes, of which there are some, has them. Whoever writes into a live state may write any number.
KS_RULE RegimeParams parameters_in_regime(const MarketParams& row, const RegimeParams* regimes, int32_t number) {
  RegimeParams now = regimes[known_regime(row, number)];
#define KS_KEEP_FIELD(place, name) now.name = now.name >= 0 ? now.name : row.place name;
  KS_REGIME_FIELDS(KS_KEEP_FIELD)
#undef KS_KEEP_FIELD
  return now;
}

// As they are in force, whether there are regimes or not.
KS_RULE RegimeParams parameters_in_force(const MarketParams& row, const RegimeParams* regimes, int32_t number) {
  return row.levers.regimes > 0 ? parameters_in_regime(row, regimes, number) : own_parameters(row);
}

// The most units of any agent's order, in any regime; `row` is as no regime has changed it.
KS_RULE int32_t largest_order(const Launch& launch, const MarketParams& row) {
  int32_t largest = max_of(row.max_order_qty, launch.largest_added_order);
  for (int32_t i = 0; i < row.levers.regimes; ++i) largest = max_of(largest, launch.regimes[i].max_order_qty);
  return largest;
}

// Put one of the regimes in force: `p` was a copy of the market's row, perhaps under another regime.
KS_RULE void enter_regime(const RegimeParams* regimes, int32_t number, const MarketParams& row, MarketParams& p) {
  const RegimeParams now = parameters_in_regime(row, regimes, number);
#define KS_ENTER_FIELD(place, name) p.place name = now.name;
  KS_REGIME_FIELDS(KS_ENTER_FIELD)
#undef KS_ENTER_FIELD
}

// The furthest offset of any order, in this regime and in any. Never 0, as bins are for one offset either way at least.
KS_RULE int32_t lever_reach(const MarketParams& p) { return max_of(order_reach(p), p.levers.taker_offset); }
KS_RULE int32_t lever_reach(const MarketParams& row, const RegimeParams* regimes) {
  int32_t reach = lever_reach(row);
  MarketParams p = row;
  for (int32_t i = 0; i < row.levers.regimes; ++i) {
    enter_regime(regimes, i, row, p);
    reach = max_of(reach, lever_reach(p));
  }
  return reach;
}

// Prices -------------------------------------------------------------------------------------------------------------

// A side is 0 (buys, bids) or 1 (sells, asks).

// What an absolute price is above a multiple of the tick size.
KS_RULE int32_t above_multiple(int32_t price, int32_t tick_size) {
  const int32_t rest = price % tick_size;
  return rest < 0 ? rest + tick_size : rest;
}

// The lowest and the highest multiple on the grid, as ticks of it. `phase`: what tick 0 is above a multiple.
KS_RULE int32_t lowest_multiple(int32_t phase, int32_t tick_size) { return phase > 0 ? tick_size - phase : 0; }
KS_RULE int32_t highest_multiple(int32_t phase, int32_t levels, int32_t tick_size) {
  return levels - 1 - (int32_t)((uint32_t)(levels - 1 + phase) % (uint32_t)tick_size);
}

// So many ticks above a price, or below it; none is beyond what an int32 holds. Whoever writes into a live state may write
// any price.
KS_RULE int32_t ticks_above(int32_t price, int32_t ticks) { return min_of(price, kNoTick - ticks) + ticks; }
KS_RULE int32_t ticks_below(int32_t price, int32_t ticks) { return max_of(price, ticks - kNoTick) - ticks; }

// The tick of an absolute price. It is cut to +/-2^29, which is as far off any grid as matters.
KS_RULE int32_t grid_tick(int32_t price, int32_t origin) {
  const int32_t far = 1 << 29;
  return clamp_to(price, ticks_below(origin, far), ticks_above(origin, far)) - origin;
}

// The coin of a beat, of the word that its walk is drawn from: whether prices half way between ticks go up.
KS_RULE int32_t word_coin(uint64_t word) { return (int32_t)(low_half(word) >> 16 & 1); }

// What offsets are counted from.
struct Middle {
  int32_t tick;
  int32_t odd;  // 1: half a tick above, and prices go to the even tick of two

  KS_RULE int32_t at(int32_t offset) const {
    const int32_t below = tick + offset;
    return below + (odd & below);
  }
};

// Of a doubled mid. `even`, `coin`: what half ticks are rounded by, at most one of them 1.
KS_RULE Middle middle_of(int32_t mid2, int32_t even, int32_t coin) { return {(mid2 >> 1) + (mid2 & coin), mid2 & even}; }

// The doubled mid that orders are priced around where rounding is the only lever: a coin has put it on a tick.
KS_RULE int32_t rounded_mid2(const MarketParams& p, int32_t mid2, int32_t coin) {
  return p.levers.rounding == kRoundingCoin ? 2 * middle_of(mid2, 0, coin).tick : mid2;
}

// Where orders go between one beat and the next: ticks on the grid. Within a side they rise with the offset. The mid may
// change with every order, or be one for all of them, so its Middle is apart.
struct Pricing {
  int32_t levels, tick_size;
  int32_t phase;              // of tick 0 above a multiple of the tick size
  int32_t lowest, highest;    // multiples on the grid
  int32_t even, coin;         // what half ticks are rounded by
  int32_t tax;
  int32_t most, least;        // collar: of buys, and of sells
  int32_t value;              // the fundamental price's tick, from which offsets are counted where `around_value`
  bool around_value;

  KS_RULE Middle middle(int32_t mid2) const { return middle_of(around_value ? 2 * value : mid2, even, coin); }

  // The price of a limit order, and of a marketable one.
  KS_RULE int32_t limit(const Middle& from, int32_t side, int32_t offset) const {
    return placed(side, from.at(offset) + (side ? tax : -tax));
  }
  KS_RULE int32_t marketable(int32_t side) const { return placed(side, side ? 0 : levels - 1); }

  KS_RULE int32_t placed(int32_t side, int32_t tick) const {
    tick = clamp_to(side ? max_of(tick, least) : min_of(tick, most), 0, levels - 1);
    if (tick_size == 1) return tick;
    tick += side ? tick_size - 1 : 0;
    return nearest_multiple(tick - (int32_t)((uint32_t)(tick + phase) % (uint32_t)tick_size));
  }
  KS_RULE int32_t nearest_multiple(int32_t tick) const { return clamp_to(tick, lowest, highest); }

  KS_RULE bool collared() const { return most != kNoTick || least != -kNoTick; }
  // Whether no lever but the rounding is on.
  KS_RULE bool is_plain() const { return tax == 0 && tick_size == 1 && !around_value && !collared(); }
  // Whether limit prices follow each other as offsets do, but for the grid's ends.
  KS_RULE bool follows_offsets(const Middle& from) const { return from.odd == 0 && tick_size == 1 && !collared(); }
};

// `last`: the tick, on the grid or not, that the collar is around. Always inlined, as a call costs a core 1% of an auction.
KS_RULE __attribute__((always_inline)) Pricing pricing_of(const MarketParams& p, int32_t levels, int32_t origin,
                                                          int32_t fundamental, int32_t last, int32_t coin) {
  const bool tosses = p.levers.rounding == kRoundingCoin, coarse = p.levers.tick_size > 1;
  Pricing pricing;
  pricing.levels = levels;
  pricing.tick_size = p.levers.tick_size;
  pricing.phase = coarse ? above_multiple(origin, p.levers.tick_size) : 0;
  pricing.lowest = coarse ? lowest_multiple(pricing.phase, p.levers.tick_size) : 0;
  pricing.highest = coarse ? highest_multiple(pricing.phase, levels, p.levers.tick_size) : levels - 1;
  pricing.even = !tosses;
  pricing.coin = tosses ? coin : 0;
  pricing.tax = p.levers.tax;
  pricing.most = p.levers.collar > 0 ? ticks_above(last, p.levers.collar) : kNoTick;
  pricing.least = p.levers.collar > 0 ? ticks_below(last, p.levers.collar) : -kNoTick;
  pricing.around_value = p.levers.reference == kReferenceFundamental;
  pricing.value = grid_tick(fundamental, origin);
  return pricing;
}

// What collar and tick size make of a learned quote's price. Prices are absolute, and may be off the grid; `last`: the one
// that the collar is around.
KS_RULE int32_t quote_price(const MarketParams& p, int32_t price, int32_t last, int32_t side) {
  if (p.levers.collar > 0) price = side ? max_of(price, ticks_below(last, p.levers.collar)) : min_of(price, ticks_above(last, p.levers.collar));
  if (p.levers.tick_size == 1) return price;
  const int32_t above = above_multiple(price, p.levers.tick_size);
  return (int32_t)((int64_t)price - above + (side && above > 0 ? p.levers.tick_size : 0));
}
KS_RULE Quote quote_under_levers(const MarketParams& p, Quote q, int32_t last) {
  q.bid_price = quote_price(p, q.bid_price, last, 0);
  q.ask_price = quote_price(p, q.ask_price, last, 1);
  return q;
}

// The multiple of the tick size on the grid that is nearest to a tick.
KS_RULE int32_t nearest_multiple(const MarketParams& p, int32_t origin, int32_t levels, int32_t tick) {
  const int32_t phase = above_multiple(origin, p.levers.tick_size);
  return clamp_to(tick, lowest_multiple(phase, p.levers.tick_size), highest_multiple(phase, levels, p.levers.tick_size));
}

// The tick of a standing quote's side, as market.h's but that the edge is the last multiple of the tick size.
template <bool kLevers>
KS_RULE int32_t bid_place(const MarketParams& p, const Quote& q, int32_t origin, int32_t levels) {
  const int32_t tick = bid_tick(q, origin, levels);
  if (!kLevers || p.levers.tick_size == 1 || tick < 0) return tick;
  return nearest_multiple(p, origin, levels, tick);
}
template <bool kLevers>
KS_RULE int32_t ask_place(const MarketParams& p, const Quote& q, int32_t origin, int32_t levels) {
  const int32_t tick = ask_tick(q, origin, levels);
  if (!kLevers || p.levers.tick_size == 1 || tick == kNoTick) return tick;
  return nearest_multiple(p, origin, levels, tick);
}

// The clearing price, as market.h's but that the mid of a tie is a multiple of the tick size first.
KS_RULE int32_t clearing_price_under_levers(const MarketParams& p, int32_t levels, int32_t origin, int32_t mid2, int64_t t,
                                            int32_t lowest, int32_t highest) {
  if (p.tie == kTieLowest) return lowest;
  int32_t tick = (mid2 >> 1) + (mid2 & (int32_t)t & 1);
  if (p.levers.tick_size > 1) {  // beyond the grid it does not matter how far
    tick = clamp_to(tick, -p.levers.tick_size, levels + p.levers.tick_size);
    tick -= above_multiple(tick + above_multiple(origin, p.levers.tick_size), p.levers.tick_size);
  }
  return clamp_to(tick, lowest, highest);
}

}  // namespace ks
