// lane_market.cuh: one market with one learned slot on one lane, so 32 on a warp. Thread map, memory and loops only: the
// rules are market_model.h's.
//
// A warp that shares a market pays for every scan and vote with all its lanes, and for every number there is one of with
// 31 idle ones. A lane of its own walks over the ticks around the mid in a third of the instructions, and an environment's
// step has 32 times its accounts, rewards and features at once. The book lies in shared memory, both sides in one row, as
// after an auction no tick has both (a crossed state is refused by kineticsim_env/checks.py).
#pragma once

#include "lanes.cuh"
#include "market_model.h"

namespace ks {

constexpr int kMaskedTicks = 128;  // whose pairs have a bit of a word each

// One side of a row: bids are positive there, asks negative.
struct SideOfRow {
  const int32_t* row;
  int32_t sign;
  KS_RULE int32_t operator[](int32_t tick) const { return max_of(sign * row[tick], 0); }
};

template <bool kOptions>
struct LaneMarket {
  MarketParams p;                  // changes when an episode begins, after the last auction of a launch
  const int levels, reach, width;  // width: ticks of the window around the mid
  int32_t* const row;              // shared [levels]: the resting book
  int32_t* const window;           // shared [width + 1, 2]: sells and buys of an auction by tick, then the marketable

  int32_t best_bid, best_ask;      // of the resting built-in book; -1 and kNoTick where a side is empty
  uint32_t resting;                // of both sides together, before this launch's orders
  int64_t added;                   // at most since
  int32_t changed_low, changed_high;  // ticks of the row that may have changed
  int32_t mid2, ret;               // that the auction's agents see
  int32_t prev_mid2, last_tick, origin, fundamental;
  uint64_t key;
  int64_t t, volume, bought, sold;
  int32_t trades, error;
  Quote quote;
  Account account;

  KS_RULE LaneMarket(const MarketParams& p, int levels, int32_t* row, int32_t* window)
      : p(p), levels(levels), reach(order_reach(p)), width(min_of(2 * reach + 2, levels)), row(row), window(window),
        best_bid(-1), best_ask(kNoTick), resting(0), added(0), changed_low(levels), changed_high(-1), mid2(0), ret(0), volume(0), bought(0), sold(0), trades(0), error(0) {}

  KS_RULE bool stopped() const { return market_has_stopped(error); }
  KS_RULE int32_t mark() const { return mark_mid2(best_bid, best_ask, last_tick, origin); }
  KS_RULE SideOfRow bids() const { return SideOfRow{row, 1}; }
  KS_RULE SideOfRow asks() const { return SideOfRow{row, -1}; }

  KS_RULE int32_t& sells_at(int place) const { return window[2 * kLaneCount * place]; }
  KS_RULE int32_t& buys_at(int place) const { return window[2 * kLaneCount * place + kLaneCount]; }

  KS_RULE void change(int32_t low, int32_t high) {
    changed_low = min_of(changed_low, low);
    changed_high = max_of(changed_high, high);
  }

  // After the row was written: its best prices and how much rests. No tick has both sides and no side 2^31, so that the
  // sum of both fits.
  KS_RULE void measure() {
    start_looking();
#pragma unroll 4
    for (int tick = 0; tick < levels; ++tick) look_at(tick, row[tick]);
  }
  KS_RULE void start_looking() { best_bid = -1, best_ask = kNoTick, resting = 0, added = 0; }
  KS_RULE void look_at(int tick, int32_t here) {
    best_bid = max_of(best_bid, here > 0 ? tick : -1);
    best_ask = min_of(best_ask, here < 0 ? tick : kNoTick);
    resting += here < 0 ? -here : here;
  }

  // The opening of an episode without a warm start.
  KS_RULE void open() {
    prev_mid2 = 2 * p.init_price, last_tick = p.init_price, origin = 0, fundamental = p.fundamental_price;
    for (int tick = 0; tick < levels; ++tick)
      row[tick] = tick == p.init_price - 1 ? p.init_depth : tick == p.init_price + 1 ? -p.init_depth : 0;
  }

  // Two ticks share a word, and where nothing rests nothing is hashed: each lane first finds its own pairs of ticks that
  // hold something, and then all do their first, their second and so on together.
  KS_RULE void cancel(uint64_t first_word) {
    start_looking();
    for (int low = 0; low < levels; low += kMaskedTicks) {
      const int end = min_of(levels - low, kMaskedTicks) / 4;
      uint64_t occupied = 0;
#pragma unroll 8
      for (int i = 0; i < end; ++i) {
        const Four here = *reinterpret_cast<const Four*>(row + low + 4 * i);
        occupied |= (uint64_t)(((here.a | here.b) != 0) | ((here.c | here.d) != 0) << 1) << (2 * i);
      }
      if (occupied != 0) change(low + 2 * lowest_bit(occupied), low + 2 * highest_bit(occupied) + 1);
#pragma unroll 1
      for (; occupied != 0; occupied &= occupied - 1) cancel_pair(low / 2 + lowest_bit(occupied), first_word);
    }
  }
  KS_RULE void cancel_pair(int pair, uint64_t first_word) {
    struct alignas(8) Pair {
      int32_t even, odd;
    };
    Pair& place = reinterpret_cast<Pair*>(row)[pair];
    const uint64_t word = mix64(first_word + (kCancelWord + (uint64_t)pair) * kGolden);
    const Pair left = {left_of(place.even, low_half(word)), left_of(place.odd, high_half(word))};
    place = left;
    look_at(2 * pair, left.even);
    look_at(2 * pair + 1, left.odd);
  }
  KS_RULE int32_t left_of(int32_t here, uint32_t half) const {
    const bool ask = here < 0;
    const int32_t left = after_cancel_half(ask ? -here : here, p.cancel_threshold, half, ask);
    return ask ? -left : left;
  }

  // Orders go to the window, the marketable ones to a place behind its ticks.
  KS_RULE void add_order(int32_t tick, bool buys, bool marketable, int32_t low, int32_t qty) const {
    add_to(&sells_at(marketable ? width : tick - low) + (buys ? kLaneCount : 0), qty);
  }

  KS_RULE void submit_directional(uint64_t counter, int count, int32_t mid2, int32_t low, int32_t direction) const {
    const int32_t to_buy = price_near_mid(mid2, 1, levels), to_sell = price_near_mid(mid2, -1, levels);
#pragma unroll 2
    for (int i = 0; i < count; ++i, counter += kGolden) {
      const uint64_t word = mix64(counter);
      const bool buys = directional_buys(direction, word);
      add_order(buys ? to_buy : to_sell, buys, word_is_marketable(word, p.market_order_threshold), low,
                word_quantity(word, p.max_order_qty));
    }
  }

  KS_RULE void submit_orders(uint64_t first_word, int32_t mid2, int32_t low, int32_t ret) const {
#pragma unroll 4
    for (int place = 0; place <= width; ++place) sells_at(place) = buys_at(place) = 0;
    uint64_t counter = first_word;
#pragma unroll 4
    for (int i = 0; i < p.num_noise; ++i, counter += kGolden) {
      const uint64_t word = mix64(counter);
      add_order(price_near_mid(mid2, word_offset(word, p.noise_spread), levels), word_is_buy(word),
                word_is_marketable(word, p.market_order_threshold), low, word_quantity(word, p.max_order_qty));
    }
    submit_directional(first_word + (uint64_t)p.first_momentum * kGolden, p.num_momentum, mid2, low, ret);
    if (p.num_fundamental > 0) {
      submit_directional(first_word + (uint64_t)p.first_fundamental * kGolden, p.num_fundamental, mid2, low,
                         fundamental_direction(fundamental, mid2, origin));
    }
    int32_t made[2] = {0, 0};  // by makers: of the first one's side, and of the other
    counter = first_word + (uint64_t)p.first_maker * kGolden;
#pragma unroll 2
    for (int i = 0; i < p.num_maker; ++i, counter += kGolden) {
      const int32_t qty = word_quantity(mix64(counter), p.max_order_qty);
      made[0] += i & 1 ? 0 : qty;
      made[1] += i & 1 ? qty : 0;
    }
    const bool first_buys = maker_buys(p.first_maker, t);
    add_order(price_near_mid(mid2, -p.maker_half_spread, levels), true, false, low, made[first_buys ? 0 : 1]);
    add_order(price_near_mid(mid2, p.maker_half_spread, levels), false, false, low, made[first_buys ? 1 : 0]);
  }

  // Whether both totals stay below 2^31. Exact only where a bound cannot tell.
  KS_RULE bool has_room(int at_bid, int at_ask) {
    added += (int64_t)num_agent_indices(p) * p.max_order_qty + kMaxQuoteQty;
    if (resting + added < (int64_t)1 << 31) return true;
    uint32_t total_buy = at_bid >= 0 ? quote.bid_qty : 0, total_sell = at_ask != kNoTick ? quote.ask_qty : 0;
    for (int place = 0; place <= width; ++place) total_buy += buys_at(place), total_sell += sells_at(place);
    for (int tick = 0; tick < levels; ++tick) total_buy += bids()[tick], total_sell += asks()[tick];
    return !overflows(total_buy, total_sell);
  }

  struct Interest {
    int32_t buy, sell;
  };

  // All interest at a tick of the window, in which quotes are already.
  KS_RULE Interest near_interest(int32_t tick, int32_t low) const {
    return {bids()[tick] + buys_at(tick - low), asks()[tick] + sells_at(tick - low)};
  }
  // Beyond it on the natural side.
  KS_RULE int32_t bids_beyond(int32_t tick, int at_bid) const { return bids()[tick] + (tick == at_bid ? quote.bid_qty : 0); }
  KS_RULE int32_t asks_beyond(int32_t tick, int at_ask) const { return asks()[tick] + (tick == at_ask ? quote.ask_qty : 0); }
  // And at any tick of the grid, marketable orders included.
  KS_RULE Interest interest(int32_t tick, int32_t low, int at_bid, int at_ask) const {
    if (tick >= low && tick < low + width) {
      Interest here = near_interest(tick, low);
      if (tick == levels - 1) here.buy += buys_at(width);
      if (tick == 0) here.sell += sells_at(width);
      return here;
    }
    return {bids()[tick] + (tick == at_bid ? quote.bid_qty : 0) + (tick == levels - 1 ? buys_at(width) : 0),
            asks()[tick] + (tick == at_ask ? quote.ask_qty : 0) + (tick == 0 ? sells_at(width) : 0)};
  }

  // What is known of the ticks that were cleared, from low to high. Demand falls and supply rises, so the prices that
  // clear follow from counting.
  struct Cleared {
    int32_t low, high;
    int32_t volume, demand, supply;  // demand at the tick that comes next, supply below it
    int32_t lowest, highest;

    KS_RULE Cleared(int32_t low, int32_t high, int32_t volume, int32_t demand, int32_t supply)
        : low(low), high(high), volume(volume), demand(demand), supply(supply), lowest(low), highest(low - 1) {}
  };

  // Leave what does not trade of the next tick's interest.
  KS_RULE void leave_residual(Cleared& cleared, int32_t tick, const Interest& here) {
    cleared.supply += here.sell;
    const int32_t bid = residual_at_tick(cleared.volume, cleared.demand, here.buy);
    const int32_t ask = residual_at_tick(cleared.volume, cleared.supply, here.sell);
    row[tick] = bid - ask;
    cleared.lowest += cleared.supply < cleared.volume;
    if (kOptions) cleared.highest += cleared.demand >= cleared.volume;
    if (bid > 0) best_bid = tick;
    best_ask = min_of(best_ask, ask > 0 ? tick : kNoTick);
    cleared.demand -= here.buy;
  }

  // Clear the window around the mid, and as much beyond it as marketable orders reach; false, and nothing has happened,
  // if that is not enough. Beyond the window rest only asks above and bids below it, and there are `above` to buy and
  // `below` to sell. So at least these trade as soon as the range has as much of the other side, or else it reaches to the
  // grid's end, where marketable orders are.
  KS_RULE bool clear_near(int32_t low, int32_t mid2, int at_bid, int at_ask, const Interest& totals) {
    const int32_t high = low + width - 1, top = levels - 1;
    const int32_t above = buys_at(width) + (at_bid > high ? quote.bid_qty : 0);
    const int32_t below = sells_at(width) + (at_ask < low ? quote.ask_qty : 0);
    int32_t demand = above, supply = below, volume = 0;
#pragma unroll 2
    for (int tick = low; tick <= high; ++tick) demand += bids()[tick] + buys_at(tick - low);
    int32_t all_demand = demand;
#pragma unroll 2
    for (int tick = low; tick <= high; ++tick) {
      const Interest here = near_interest(tick, low);
      supply += here.sell;
      volume = max_of(volume, executable_volume(demand, supply));
      demand -= here.buy;
    }
    int32_t first = low, last = high;
    if (max_of(volume, 1) <= max_of(above, below)) {
      if (at_bid > high || at_ask < low) return false;
      while (supply < above && last < top) supply += asks_beyond(++last, at_ask);
      while (all_demand < below && first > 0) all_demand += bids_beyond(--first, at_bid);
      volume = max_of(volume, max_of(min_of(above, supply), min_of(below, all_demand)));
      const bool all_above = last > high && last == top, all_below = first < low && first == 0;
      if ((volume < above && !all_above) || (volume < below && !all_below)) return false;
    }
    change(first, last);
    Cleared cleared(first, last, volume, all_demand, below);
    best_bid = first - 1, best_ask = last + 1;
    if (first < low) {
      if (first == 0) cleared.supply = 0;
      for (int tick = first; tick < low; ++tick)
        leave_residual(cleared, tick, {bids_beyond(tick, at_bid), tick == 0 ? sells_at(width) : 0});
    }
#pragma unroll 2
    for (int tick = low; tick <= high; ++tick) leave_residual(cleared, tick, near_interest(tick, low));
    for (int tick = high + 1; tick <= last; ++tick)
      leave_residual(cleared, tick, {tick == top ? buys_at(width) : 0, asks_beyond(tick, at_ask)});
    if (volume <= below) cleared.lowest = 0;  // where marketable orders to sell are
    finish(cleared, mid2);
    fill_quotes(first, last, at_bid, at_ask, totals);
    return true;
  }

  KS_RULE void clear_all(int32_t low, int32_t mid2, int at_bid, int at_ask, const Interest& totals) {
    int32_t demand = 0, supply = 0, volume = 0;
#pragma unroll 1
    for (int tick = 0; tick < levels; ++tick) demand += interest(tick, low, at_bid, at_ask).buy;
    const int32_t all_demand = demand;
#pragma unroll 1
    for (int tick = 0; tick < levels; ++tick) {
      const Interest here = interest(tick, low, at_bid, at_ask);
      supply += here.sell;
      volume = max_of(volume, executable_volume(demand, supply));
      demand -= here.buy;
    }
    change(0, levels - 1);
    Cleared cleared(0, levels - 1, volume, all_demand, 0);
    best_bid = -1, best_ask = levels;
#pragma unroll 1
    for (int tick = 0; tick < levels; ++tick) leave_residual(cleared, tick, interest(tick, low, at_bid, at_ask));
    finish(cleared, mid2);
    fill_quotes(0, levels - 1, at_bid, at_ask, totals);
  }

  KS_RULE void finish(const Cleared& cleared, int32_t mid2) {
    if (cleared.volume > 0)
      last_tick = kOptions ? clearing_price(p, mid2, t, cleared.lowest, cleared.highest) : cleared.lowest;
    trades += cleared.volume > 0;
    volume += cleared.volume;
  }

  // Fills, by price priority and then pro rata. Quotes outside of the ticks that were cleared have traded wholly or not at
  // all; what is left of those inside does not rest on the grid. `totals`: at the quotes' ticks, before clearing.
  KS_RULE void fill_quotes(int32_t low, int32_t high, int at_bid, int at_ask, const Interest& totals) {
    int32_t bid_fill = at_bid > high ? quote.bid_qty : 0, ask_fill = at_ask < low ? quote.ask_qty : 0;
    const bool bids_here = at_bid >= low && at_bid <= high, asks_here = at_ask >= low && at_ask <= high;
    if (bids_here) bid_fill = fill(quote.bid_qty, totals.buy, bids()[at_bid], 0);
    if (asks_here) ask_fill = fill(quote.ask_qty, totals.sell, asks()[at_ask], 32);
    quote.bid_qty -= bid_fill;
    quote.ask_qty -= ask_fill;
    if (bids_here) row[at_bid] -= quote.bid_qty;
    if (asks_here) row[at_ask] += quote.ask_qty;
    settle(account, bid_fill, ask_fill, (int64_t)last_tick + origin, p.fee);
    bought += bid_fill;
    sold += ask_fill;
  }

  KS_RULE int32_t fill(int32_t qty, int32_t total, int32_t left, int half) const {
    const int32_t traded = total - left;
    if (traded == total) return qty;
    if (traded == 0) return 0;
    return ration_first(qty, traded, total, (uint32_t)(random_word(key, t, kRationWord) >> half));
  }

  // From where the best prices are at most, to where they are.
  KS_RULE void find_best() {
    while (best_bid >= 0 && row[best_bid] <= 0) --best_bid;
    while (best_ask < levels && row[best_ask] >= 0) ++best_ask;
    if (best_ask >= levels) best_ask = kNoTick;
  }

  // The first half of an auction (docs/model.md numbers its parts). Returns how far the grid has to move before the other
  // half, which the caller sees to.
  KS_RULE int32_t see() {
    // 0. Options before the market opens.
    if (kOptions) {
      const uint64_t first_word = word_counter(key, t, 0);
      if ((p.walk_threshold | p.jump_threshold) != 0)
        fundamental = walk_fundamental(p, mix64(first_word + kWalkWord * kGolden), fundamental);
      if (p.cancel_threshold != 0) cancel(first_word);  // and find the best prices
    }

    // 1. The mid that everyone sees, then the window.
    const int32_t bid_seen = max_of(best_bid, bid_tick(quote, origin, levels));
    const int32_t ask_seen = min_of(best_ask, ask_tick(quote, origin, levels));
    mid2 = bid_seen >= 0 && ask_seen != kNoTick ? bid_seen + ask_seen : 2 * last_tick;
    ret = clamp_to(mid2 - prev_mid2, -1, 1);
    prev_mid2 = mid2;
    const int32_t by = kOptions ? window_shift(p, mid2, levels) : 0;
    if (by == 0) return 0;
    if (!origin_in_range(origin, by)) {
      error |= kErrorOrigin;
      return 0;
    }
    mid2 -= 2 * by;
    prev_mid2 = mid2;
    last_tick -= by;
    origin += by;
    return by;
  }

  // The grid has moved.
  KS_RULE void moved(int32_t by) {
    change(0, levels - 1);
    best_bid = min_of(best_bid - by, levels - 1);
    best_ask = best_ask == kNoTick ? levels : max_of(best_ask - by, 0);
    find_best();
  }

  // The second half of an auction. Returns false if the market has to stop.
  KS_RULE bool trade(bool has_fresh, const Quote& fresh) {
    const uint64_t first_word = word_counter(key, t, 0);
    if (has_fresh) quote = fresh;
    const int at_bid = bid_tick(quote, origin, levels), at_ask = ask_tick(quote, origin, levels);

    // 2. Orders.
    const int32_t low = clamp_to((mid2 >> 1) - reach, 0, levels - width), high = low + width - 1;
    submit_orders(first_word, mid2, low, ret);
    if (!has_room(at_bid, at_ask)) {
      error |= kErrorOverflow;
      return false;
    }

    // 3. and 4. Clearing, of the ticks around the mid if they are all that can trade, and fills.
    const int32_t far_sells = sells_at(width), far_buys = buys_at(width);
    if (at_bid >= low && at_bid <= high) buys_at(at_bid - low) += quote.bid_qty;
    if (at_ask >= low && at_ask <= high) sells_at(at_ask - low) += quote.ask_qty;
    const Interest totals = {at_bid >= 0 ? interest(at_bid, low, at_bid, at_ask).buy : 0,
                             at_ask != kNoTick ? interest(at_ask, low, at_bid, at_ask).sell : 0};
    // A quote at the grid's end shares its tick with marketable orders.
    const bool near = best_bid <= high && best_ask >= low && at_bid != levels - 1 && at_ask != 0;
    if (!near || !clear_near(low, mid2, at_bid, at_ask, totals)) clear_all(low, mid2, at_bid, at_ask, totals);
    find_best();
    if (kOptions && p.residue != 0) {  // what rests at a grid's end can only be the best of its side
      if (best_bid == levels - 1) row[levels - 1] -= min_of(row[levels - 1], far_buys), change(levels - 1, levels - 1);
      if (best_ask == 0) row[0] += min_of(-row[0], far_sells), change(0, 0);
      find_best();
    }
    t += 1;
    return true;
  }
};

}  // namespace ks
