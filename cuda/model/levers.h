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
  const int32_t off = p.rounding | p.reference | p.tax | p.collar | p.regimes;
  return (off | (p.taker_offset ^ 1) | (p.tick_size ^ 1)) != 0;
}

// What a slot pays per unit, in thousandths of a tick.
KS_RULE int32_t unit_fee(const MarketParams& p) { return p.fee + 1000 * p.tax; }

// Regimes ------------------------------------------------------------------------------------------------------------

// A regime's number as it is in memory, which anybody may have written to.
KS_RULE int32_t known_regime(const MarketParams& p, int32_t number) { return clamp_to(number, 0, max_of(p.regimes, 1) - 1); }

// The regime from a beat on, which in an auction's market is its interval.
KS_RULE int32_t regime_at(const MarketParams& p, uint64_t key, int64_t beat, int32_t number) {
  const int32_t regime = known_regime(p, number);
  if (p.regimes == 0 || p.regime_threshold == 0) return regime;
  const uint64_t word = random_word(key, beat, kRegimeWord);
  return (int32_t)(word & 0xffff) < p.regime_threshold ? word_choice(word, p.regimes) : regime;
}

// The regime in which an episode begins, unless a warm start carries its own.
KS_RULE int32_t first_regime(const MarketParams& p, uint64_t key) {
  return p.regimes > 0 ? word_choice(random_word(key, 0, kFirstRegimeWord), p.regimes) : 0;
}

KS_RULE int32_t opening_regime(const Launch& launch, const TaskParams& task, const MarketParams& p, uint64_t key,
                               int64_t bank_row) {
  return task.bank_size > 0 && launch.bank_regime ? launch.bank_regime[bank_row] : first_regime(p, key);
}

KS_RULE int32_t value_in_regime(int32_t regime, int32_t market) { return regime >= 0 ? regime : market; }

// Put a regime in force: `p` was a copy of the market's own row, perhaps under another regime. Whoever writes into a live
// state may write any number.
KS_RULE void enter_regime(const RegimeParams* regimes, int32_t number, const MarketParams& row, MarketParams& p) {
  const RegimeParams& regime = regimes[clamp_to(number, 0, row.regimes - 1)];
  p.max_order_qty = value_in_regime(regime.max_order_qty, row.max_order_qty);
  p.noise_spread = value_in_regime(regime.noise_spread, row.noise_spread);
  p.market_order_threshold = value_in_regime(regime.market_order_threshold, row.market_order_threshold);
  p.maker_half_spread = value_in_regime(regime.maker_half_spread, row.maker_half_spread);
  p.taker_offset = value_in_regime(regime.taker_offset, row.taker_offset);
  p.walk_threshold = value_in_regime(regime.walk_threshold, row.walk_threshold);
  p.jump_threshold = value_in_regime(regime.jump_threshold, row.jump_threshold);
  p.jump_size = value_in_regime(regime.jump_size, row.jump_size);
  p.cancel_threshold = value_in_regime(regime.cancel_threshold, row.cancel_threshold);
}

// The furthest offset of any order, in this regime and in any. Never 0, as bins are for one offset either way at least.
KS_RULE int32_t lever_reach(const MarketParams& p) { return max_of(order_reach(p), p.taker_offset); }
KS_RULE int32_t lever_reach(const MarketParams& row, const RegimeParams* regimes) {
  int32_t reach = lever_reach(row);
  MarketParams p = row;
  for (int32_t i = 0; i < row.regimes; ++i) {
    enter_regime(regimes, i, row, p);
    reach = max_of(reach, lever_reach(p));
  }
  return reach;
}

// Prices -------------------------------------------------------------------------------------------------------------

// Multiples of the tick size: of absolute prices, whose tick 0 is at `origin`.
KS_RULE int32_t above_multiple(int32_t price, int32_t tick_size) {
  const int32_t rest = price % tick_size;
  return rest < 0 ? rest + tick_size : rest;
}
KS_RULE int32_t multiple_below(int32_t price, int32_t tick_size) { return price - above_multiple(price, tick_size); }
KS_RULE int32_t multiple_above(int32_t price, int32_t tick_size) { return multiple_below(price + tick_size - 1, tick_size); }

// The lowest and the highest of them on the grid, as ticks of it.
KS_RULE int32_t lowest_multiple(int32_t origin, int32_t tick_size) { return multiple_above(origin, tick_size) - origin; }
KS_RULE int32_t highest_multiple(int32_t origin, int32_t levels, int32_t tick_size) {
  return multiple_below(origin + levels - 1, tick_size) - origin;
}

// The coin of a beat, of the word that its walk is drawn from: whether prices half way between ticks go up.
KS_RULE int32_t word_coin(uint64_t word) { return (int32_t)(low_half(word) >> 16 & 1); }

// The doubled mid that orders are priced around where rounding is the only lever: a coin has put it on a tick.
KS_RULE int32_t rounded_mid2(const MarketParams& p, int32_t mid2, int32_t coin) {
  return p.rounding == kRoundingCoin ? 2 * ((mid2 >> 1) + (mid2 & coin)) : mid2;
}

// Where the orders of one beat go: ticks on the grid. Within a side they rise with the offset.
struct Pricing {
  int32_t levels, tick_size;
  int32_t centre;           // the tick that offsets are counted from, rounded down
  int32_t odd;              // 1: prices are half way between ticks and go to the even one
  int32_t tax;
  int32_t most, least;      // collar: of buys, and of sells
  int32_t phase;            // of tick 0 above a multiple of the tick size
  int32_t lowest, highest;  // multiples on the grid

  // The price of a limit order, and of a marketable one.
  KS_RULE int32_t limit(bool buys, int32_t offset) const {
    int32_t tick = centre + offset;
    tick += odd & tick;
    return placed(buys, tick + (buys ? -tax : tax));
  }
  KS_RULE int32_t marketable(bool buys) const { return placed(buys, buys ? levels - 1 : 0); }

  KS_RULE int32_t placed(bool buys, int32_t tick) const {
    tick = clamp_to(buys ? min_of(tick, most) : max_of(tick, least), 0, levels - 1);
    if (tick_size == 1) return tick;
    tick += buys ? 0 : tick_size - 1;
    return clamp_to(tick - (int32_t)((uint32_t)(tick + phase) % (uint32_t)tick_size), lowest, highest);
  }

  // Whether limit prices follow each other as offsets do, but for the grid's ends.
  KS_RULE bool is_plain() const { return odd == 0 && tick_size == 1 && most == kNoTick; }
};

// `mid2` and the market's numbers are those that agents see, on the grid.
KS_RULE Pricing pricing_of(const MarketParams& p, int32_t levels, int32_t mid2, int32_t coin, int32_t last_tick,
                           int32_t origin, int32_t fundamental) {
  const bool follows = p.reference == kReferenceFundamental, tosses = p.rounding == kRoundingCoin;
  const int32_t half = follows ? 0 : mid2 & 1;
  Pricing pricing;
  pricing.levels = levels;
  pricing.tick_size = p.tick_size;
  pricing.centre = (follows ? fundamental - origin : mid2 >> 1) + (tosses ? half & coin : 0);
  pricing.odd = tosses ? 0 : half;
  pricing.tax = p.tax;
  pricing.most = p.collar > 0 ? last_tick + p.collar : kNoTick;
  pricing.least = p.collar > 0 ? last_tick - p.collar : -kNoTick;
  pricing.phase = p.tick_size > 1 ? above_multiple(origin, p.tick_size) : 0;
  pricing.lowest = p.tick_size > 1 ? lowest_multiple(origin, p.tick_size) : 0;
  pricing.highest = p.tick_size > 1 ? highest_multiple(origin, levels, p.tick_size) : levels - 1;
  return pricing;
}

// A learned quote's prices, absolute: collar and tick size, on the grid or not.
KS_RULE Quote quote_under_levers(const MarketParams& p, Quote q, int32_t last_price) {
  if (p.collar > 0) {
    q.bid_price = min_of(q.bid_price, last_price + p.collar);
    q.ask_price = max_of(q.ask_price, last_price - p.collar);
  }
  if (p.tick_size > 1) {
    q.bid_price = multiple_below(q.bid_price, p.tick_size);
    q.ask_price = multiple_above(q.ask_price, p.tick_size);
  }
  return q;
}

// The tick of a standing quote's side, as market.h's but that the edge is the last multiple of the tick size.
template <bool kLevers>
KS_RULE int32_t bid_place(const MarketParams& p, const Quote& q, int32_t origin, int32_t levels) {
  const int32_t tick = bid_tick(q, origin, levels);
  if (!kLevers || p.tick_size == 1 || tick < 0) return tick;
  return clamp_to(tick, lowest_multiple(origin, p.tick_size), highest_multiple(origin, levels, p.tick_size));
}
template <bool kLevers>
KS_RULE int32_t ask_place(const MarketParams& p, const Quote& q, int32_t origin, int32_t levels) {
  const int32_t tick = ask_tick(q, origin, levels);
  if (!kLevers || p.tick_size == 1 || tick == kNoTick) return tick;
  return clamp_to(tick, lowest_multiple(origin, p.tick_size), highest_multiple(origin, levels, p.tick_size));
}

// The clearing price, as market.h's but that the mid of a tie is a multiple of the tick size first.
KS_RULE int32_t clearing_price_under_levers(const MarketParams& p, int32_t levels, int32_t origin, int32_t mid2, int64_t t,
                                            int32_t lowest, int32_t highest) {
  if (p.tie == kTieLowest) return lowest;
  int32_t tick = (mid2 >> 1) + (mid2 & (int32_t)t & 1);
  if (p.tick_size > 1) {  // beyond the grid it does not matter how far
    tick = clamp_to(tick, -p.tick_size, levels + p.tick_size);
    tick = multiple_below(tick + origin, p.tick_size) - origin;
  }
  return clamp_to(tick, lowest, highest);
}

}  // namespace ks
