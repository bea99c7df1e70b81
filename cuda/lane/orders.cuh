// orders.cuh: what the agents of a lane's market submit in one auction. Loops only: the rules are model/market.h's, and memory
// is lane/book.cuh's.
//
// Hashing needs neither the book nor its mid, so it comes first: noise agents' orders are summed in bins by their offset,
// the others' into a few sums. Once the mid is known, prices and sides are found for sums, not for orders.
#pragma once

#include "lane/added_agents.cuh"

namespace ks {

template <bool kWide>
struct LaneOrders : LaneBook<kWide> {
  using Book = LaneBook<kWide>;
  using Book::add, Book::add_order, Book::change, Book::levels, Book::ordered, Book::put, Book::row;

  // Quantities of momentum or fundamental agents: what they buy if they follow their coin, and what all of them order.
  struct Directed {
    int32_t coin, coin_far, all, all_far;  // buys, marketable buys, orders, marketable orders
  };

  MarketParams p;                  // changes when an episode begins, after the last auction of a launch
  const int reach, width;          // width: ticks that have bins; marketable orders are at place `width`
  int32_t low;                     // tick of place 0, on the grid or not
  int32_t near_low, near_high;     // first and last tick of the bins that are on the grid
  Directed momentum, fundamentals;  // their side is not known yet
  int32_t made, made_other;        // makers' orders: on the first maker's side, and on the other
  OutlyingOrders outlying;         // of added agents

  KS_ON_LANE LaneOrders(const MarketParams& p, int levels, typename Book::Cell* row, int32_t* bins, Interest* outlying)
      : Book(levels, row, bins), p(p), reach(order_reach(p)), width(2 * reach + 2), outlying(outlying) {}

  KS_ON_LANE Directed draw_directed(uint64_t counter, int count) const {
    Directed sums = {0, 0, 0, 0};
#pragma unroll 2
    for (int i = 0; i < count; ++i, counter += kGolden) {
      const uint64_t word = mix64(counter);
      const int32_t qty = word_quantity(word, p.max_order_qty);
      const int32_t far = word_is_marketable(word, p.market_order_threshold) ? qty : 0;
      sums.all += qty;
      sums.all_far += far;
      sums.coin += word_is_buy(word) ? qty : 0;
      sums.coin_far += word_is_buy(word) ? far : 0;
    }
    return sums;
  }

  // Draw all orders of an auction, before its mid is known.
  KS_ON_LANE void draw(uint64_t key, int64_t t) {
#pragma unroll 4
    for (int place = 0; place <= width; ++place) put(place, {0, 0});
    const uint64_t first_word = word_counter(key, t, 0);
    uint64_t counter = first_word;
    const int lowest = reach - p.noise_spread;
#pragma unroll 4
    for (int i = 0; i < p.num_noise; ++i, counter += kGolden) {
      const uint64_t word = mix64(counter);
      const bool marketable = word_is_marketable(word, p.market_order_threshold);
      const int place = marketable ? width : lowest + (int)half_offset_index(high_half(word), p.noise_spread);
      add_order(place, word_is_buy(word), word_quantity(word, p.max_order_qty));
    }
    momentum = draw_directed(first_word + (uint64_t)p.first_momentum * kGolden, p.num_momentum);
    if (p.num_fundamental > 0)
      fundamentals = draw_directed(first_word + (uint64_t)p.first_fundamental * kGolden, p.num_fundamental);
    made = made_other = 0;
    counter = first_word + (uint64_t)p.first_maker * kGolden;
#pragma unroll 2
    for (int i = 0; i < p.num_maker; ++i, counter += kGolden) {
      const int32_t qty = word_quantity(mix64(counter), p.max_order_qty);
      made += i & 1 ? 0 : qty;
      made_other += i & 1 ? qty : 0;
    }
  }

  // Put them at their ticks, now that the mid is known. Momentum agents follow `ret`, fundamental agents `value`.
  KS_ON_LANE void place_orders(int32_t mid2, int32_t ret, int32_t value, int64_t t) {
    low = (mid2 >> 1) - reach;
    near_low = max_of(low, 0), near_high = min_of(low + width, levels) - 1;
    if (mid2 & 1) {  // offsets are rounded to even ticks
#pragma unroll 2
      for (int place = ~low & 1; place < width; place += 2) move_place(place, place + 1);
    }
    for (int tick = low; tick < near_low; ++tick) move_place(tick - low, near_low - low);
    for (int tick = low + width - 1; tick > near_high; --tick) move_place(tick - low, near_high - low);
    place_directed(momentum, mid2, ret);
    if (p.num_fundamental > 0) place_directed(fundamentals, mid2, value);
    const bool first_buys = maker_buys(p.first_maker, t);
    add(price_near_mid(mid2, -p.maker_half_spread, levels) - low, first_buys ? made : made_other, 0);
    add(price_near_mid(mid2, p.maker_half_spread, levels) - low, 0, first_buys ? made_other : made);
  }
  KS_ON_LANE void move_place(int from, int to) const {
    const Interest orders = ordered(from);
    add(to, orders.buy, orders.sell);
    put(from, {0, 0});
  }
  KS_ON_LANE void place_directed(const Directed& sums, int32_t mid2, int32_t direction) const {
    const int32_t bought = direction == 0 ? sums.coin : direction > 0 ? sums.all : 0;
    const int32_t bought_far = direction == 0 ? sums.coin_far : direction > 0 ? sums.all_far : 0;
    const int32_t sold = sums.all - bought, sold_far = sums.all_far - bought_far;
    add(price_near_mid(mid2, 1, levels) - low, bought - bought_far, 0);
    add(price_near_mid(mid2, -1, levels) - low, 0, sold - sold_far);
    add(width, bought_far, sold_far);
  }

  // Add an order of an added agent, after those of built-in ones. Returns false, and has added nothing, if it lies beyond the bins.
  KS_ON_LANE bool add_near(const AgentOrder& order, int32_t origin) const {
    const int32_t tick = limit_tick_of(order, levels, origin), qty = quantity_of(order);
    const bool marketable = order.marketable, near = tick >= near_low && tick <= near_high, adds = marketable || near;
    add_order(near && !marketable ? tick - low : width, !sells(order), adds ? qty : 0);  // selects, so that lanes do not diverge
    return adds || qty == 0;
  }
  // One that lies there. With numbers of 32 bits a market may have to stop, and its book then stays as it was.
  KS_ON_LANE void add_outlying(const AgentOrder& order, int32_t origin) {
    const int32_t tick = limit_tick_of(order, levels, origin), qty = quantity_of(order), here = row[tick];
    const bool buys = !sells(order), crosses = buys == (tick > near_high);
    if (kWide || crosses || (buys ? here < 0 : here > 0)) {
      outlying.add(levels, tick, buys, qty, crosses);
    } else {
      row[tick] = (typename Book::Cell)(here + (buys ? qty : -qty));
      change(tick, tick);
    }
  }
};

}  // namespace ks
