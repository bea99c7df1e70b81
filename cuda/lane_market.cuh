// lane_market.cuh: one market with one learned slot on one lane, so 32 on a warp. Loops only: the rules are
// market_model.h's, and memory is lane_book.cuh's.
//
// A warp that shares a market pays for every scan and vote with all its lanes, and for every number there is one of with
// 31 idle ones. A lane of its own walks over the ticks around the mid in a third of the instructions, and an environment's
// step has 32 times its accounts, rewards and features at once.
#pragma once

#include "lane_book.cuh"

namespace ks {

template <bool kOptions, bool kWide>
struct LaneMarket : LaneBook<kWide> {
  using Book = LaneBook<kWide>;
  using typename Book::Cell;
  using Book::best_ask, Book::best_bid, Book::levels, Book::resting, Book::row;
  using Book::add, Book::add_order, Book::asks, Book::bids, Book::cancel, Book::change, Book::find_best, Book::ordered,
      Book::put;

  // What momentum or fundamental agents do if they follow their coin, and what all of them do together.
  struct Directed {
    int32_t coin, coin_far, all, all_far;  // buys, marketable buys, orders, marketable orders
  };

  MarketParams p;                  // changes when an episode begins, after the last auction of a launch
  const int reach, width;          // width: ticks of the window around the mid; marketable orders are at place `width`

  int64_t added;                   // to either side by orders since the row was looked at, at most
  int32_t prev_mid2, last_tick, origin, fundamental;
  uint64_t key;
  int64_t t, volume, bought, sold;
  int32_t trades, error;
  Quote quote;
  Account account;

  // Of the auction at hand.
  int32_t mid2, ret;               // that its agents see
  Directed momentum, fundamentals;  // orders that wait for their side
  int32_t made, made_other;        // by makers: of the first one's side, and of the other
  int32_t low, near_low, near_high;  // of the window, and what of it is on the grid

  KS_RULE LaneMarket(const MarketParams& p, int levels, Cell* row, int32_t* window)
      : Book(levels, row, window), p(p), reach(order_reach(p)), width(2 * reach + 2), added(0), volume(0), bought(0),
        sold(0), trades(0), error(0) {}

  KS_RULE bool stopped() const { return market_has_stopped(error); }
  KS_RULE int32_t mark() const { return mark_mid2(best_bid, best_ask, last_tick, origin); }

  // Whether narrow numbers do for so many auctions, given a row that does.
  KS_RULE bool is_narrow(int64_t auctions, int32_t largest_quote) const {
    const int32_t largest = max_of(max_of(quote.bid_qty, quote.ask_qty), largest_quote);
    return auctions * num_agent_indices(p) * p.max_order_qty <= kNarrowOrders && largest <= kNarrowQuote;
  }

  KS_RULE Directed draw_directed(uint64_t counter, int count) const {
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

  // Draw all orders of an auction, by what is known without its mid: noise agents' by their offset, and sums.
  KS_RULE void draw() {
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

  // Now that the mid is known, put them where they belong: the window's first place is tick `low`, on the grid or not.
  KS_RULE void place_orders() {
    low = (mid2 >> 1) - reach;
    near_low = max_of(low, 0), near_high = min_of(low + width, levels) - 1;
    if (mid2 & 1) {  // offsets are rounded to even ticks
#pragma unroll 2
      for (int place = ~low & 1; place < width; place += 2) move_place(place, place + 1);
    }
    for (int tick = low; tick < near_low; ++tick) move_place(tick - low, near_low - low);
    for (int tick = low + width - 1; tick > near_high; --tick) move_place(tick - low, near_high - low);
    place_directed(momentum, ret);
    if (p.num_fundamental > 0) place_directed(fundamentals, fundamental_direction(fundamental, mid2, origin));
    const bool first_buys = maker_buys(p.first_maker, t);
    add(price_near_mid(mid2, -p.maker_half_spread, levels) - low, first_buys ? made : made_other, 0);
    add(price_near_mid(mid2, p.maker_half_spread, levels) - low, 0, first_buys ? made_other : made);
  }
  KS_RULE void move_place(int from, int to) const {
    const Interest orders = ordered(from);
    add(to, orders.buy, orders.sell);
    put(from, {0, 0});
  }
  KS_RULE void place_directed(const Directed& sums, int32_t direction) const {
    const int32_t bought = direction == 0 ? sums.coin : direction > 0 ? sums.all : 0;
    const int32_t bought_far = direction == 0 ? sums.coin_far : direction > 0 ? sums.all_far : 0;
    const int32_t sold = sums.all - bought, sold_far = sums.all_far - bought_far;
    add(price_near_mid(mid2, 1, levels) - low, bought - bought_far, 0);
    add(price_near_mid(mid2, -1, levels) - low, 0, sold - sold_far);
    add(width, bought_far, sold_far);
  }

  // Whether both totals stay below 2^31. Exact only where a bound cannot tell.
  KS_RULE bool has_room(int at_bid, int at_ask) {
    added += (int64_t)num_agent_indices(p) * p.max_order_qty + kMaxQuoteQty;
    if (resting + added < (int64_t)1 << 31) return true;
    uint32_t total_buy = at_bid >= 0 ? quote.bid_qty : 0, total_sell = at_ask != kNoTick ? quote.ask_qty : 0;
    for (int place = 0; place <= width; ++place) total_buy += ordered(place).buy, total_sell += ordered(place).sell;
    for (int tick = 0; tick < levels; ++tick) total_buy += bids()[tick], total_sell += asks()[tick];
    return !overflows(total_buy, total_sell);
  }

  // All interest at a tick of the window, in which quotes are already.
  KS_RULE Interest near_interest(int32_t tick) const {
    const Interest orders = ordered(tick - low);
    const int32_t here = row[tick];
    return {max_of(here, 0) + orders.buy, max_of(-here, 0) + orders.sell};
  }
  // Beyond it on the natural side.
  KS_RULE int32_t bids_beyond(int32_t tick, int at_bid) const { return bids()[tick] + (tick == at_bid ? quote.bid_qty : 0); }
  KS_RULE int32_t asks_beyond(int32_t tick, int at_ask) const { return asks()[tick] + (tick == at_ask ? quote.ask_qty : 0); }
  // And at any tick of the grid, marketable orders included.
  KS_RULE Interest interest(int32_t tick, int at_bid, int at_ask) const {
    if (tick >= near_low && tick <= near_high) {
      Interest here = near_interest(tick);
      if (tick == levels - 1) here.buy += ordered(width).buy;
      if (tick == 0) here.sell += ordered(width).sell;
      return here;
    }
    return {bids()[tick] + (tick == at_bid ? quote.bid_qty : 0) + (tick == levels - 1 ? ordered(width).buy : 0),
            asks()[tick] + (tick == at_ask ? quote.ask_qty : 0) + (tick == 0 ? ordered(width).sell : 0)};
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
    row[tick] = (Cell)(bid - ask);
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
  KS_RULE bool clear_near(int at_bid, int at_ask, const Interest& totals) {
    const int32_t top = levels - 1;
    const int32_t above = ordered(width).buy + (at_bid > near_high ? quote.bid_qty : 0);
    const int32_t below = ordered(width).sell + (at_ask < near_low ? quote.ask_qty : 0);
    int32_t demand = above, supply = below, volume = 0;
#pragma unroll 2
    for (int tick = near_low; tick <= near_high; ++tick) demand += near_interest(tick).buy;
    int32_t all_demand = demand;
#pragma unroll 2
    for (int tick = near_low; tick <= near_high; ++tick) {
      const Interest here = near_interest(tick);
      supply += here.sell;
      volume = max_of(volume, executable_volume(demand, supply));
      demand -= here.buy;
    }
    int32_t first = near_low, last = near_high;
    if (max_of(volume, 1) <= max_of(above, below)) {
      if (at_bid > near_high || at_ask < near_low) return false;
      while (supply < above && last < top) supply += asks_beyond(++last, at_ask);
      while (all_demand < below && first > 0) all_demand += bids_beyond(--first, at_bid);
      volume = max_of(volume, max_of(min_of(above, supply), min_of(below, all_demand)));
      const bool all_above = last > near_high && last == top, all_below = first < near_low && first == 0;
      if ((volume < above && !all_above) || (volume < below && !all_below)) return false;
    }
    change(first, last);
    Cleared cleared(first, last, volume, all_demand, below);
    best_bid = first - 1, best_ask = last + 1;
    if (first < near_low) {
      if (first == 0) cleared.supply = 0;
      for (int tick = first; tick < near_low; ++tick)
        leave_residual(cleared, tick, {bids_beyond(tick, at_bid), tick == 0 ? ordered(width).sell : 0});
    }
#pragma unroll 2
    for (int tick = near_low; tick <= near_high; ++tick) leave_residual(cleared, tick, near_interest(tick));
    for (int tick = near_high + 1; tick <= last; ++tick)
      leave_residual(cleared, tick, {tick == top ? ordered(width).buy : 0, asks_beyond(tick, at_ask)});
    if (volume <= below) cleared.lowest = 0;  // where marketable orders to sell are
    finish(cleared);
    fill_quotes(first, last, at_bid, at_ask, totals);
    return true;
  }

  KS_RULE void clear_all(int at_bid, int at_ask, const Interest& totals) {
    int32_t demand = 0, supply = 0, volume = 0;
#pragma unroll 1
    for (int tick = 0; tick < levels; ++tick) demand += interest(tick, at_bid, at_ask).buy;
    const int32_t all_demand = demand;
#pragma unroll 1
    for (int tick = 0; tick < levels; ++tick) {
      const Interest here = interest(tick, at_bid, at_ask);
      supply += here.sell;
      volume = max_of(volume, executable_volume(demand, supply));
      demand -= here.buy;
    }
    change(0, levels - 1);
    Cleared cleared(0, levels - 1, volume, all_demand, 0);
    best_bid = -1, best_ask = levels;
#pragma unroll 1
    for (int tick = 0; tick < levels; ++tick) leave_residual(cleared, tick, interest(tick, at_bid, at_ask));
    finish(cleared);
    fill_quotes(0, levels - 1, at_bid, at_ask, totals);
  }

  KS_RULE void finish(const Cleared& cleared) {
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
    if (bids_here) row[at_bid] = (Cell)(row[at_bid] - quote.bid_qty);
    if (asks_here) row[at_ask] = (Cell)(row[at_ask] + quote.ask_qty);
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

  // The first half of an auction (docs/model.md numbers its parts). Returns how far the grid has to move before the other
  // half, which the caller sees to.
  KS_RULE int32_t see() {
    // 0. Options before the market opens.
    if (kOptions) {
      const uint64_t first_word = word_counter(key, t, 0);
      if ((p.walk_threshold | p.jump_threshold) != 0)
        fundamental = walk_fundamental(p, mix64(first_word + kWalkWord * kGolden), fundamental);
      if (p.cancel_threshold != 0) cancel(first_word, p.cancel_threshold), added = 0;  // and find the best prices
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

  // The second half of an auction. Returns false if the market has to stop.
  KS_RULE bool trade(bool has_fresh, const Quote& fresh) {
    if (has_fresh) quote = fresh;
    const int at_bid = bid_tick(quote, origin, levels), at_ask = ask_tick(quote, origin, levels);

    // 2. Orders.
    place_orders();
    if (!has_room(at_bid, at_ask)) {
      error |= kErrorOverflow;
      return false;
    }

    // 3. and 4. Clearing, of the ticks around the mid if they are all that can trade, and fills.
    const Interest far = ordered(width);
    if (at_bid >= near_low && at_bid <= near_high) add(at_bid - low, quote.bid_qty, 0);
    if (at_ask >= near_low && at_ask <= near_high) add(at_ask - low, 0, quote.ask_qty);
    const Interest totals = {at_bid >= 0 ? interest(at_bid, at_bid, at_ask).buy : 0,
                             at_ask != kNoTick ? interest(at_ask, at_bid, at_ask).sell : 0};
    // A quote at the grid's end shares its tick with marketable orders.
    const bool near = best_bid <= near_high && best_ask >= near_low && at_bid != levels - 1 && at_ask != 0;
    if (!near || !clear_near(at_bid, at_ask, totals)) clear_all(at_bid, at_ask, totals);
    find_best();
    if (kOptions && p.residue != 0) {  // what rests at a grid's end can only be the best of its side
      if (best_bid == levels - 1) leave_at_end(levels - 1, row[levels - 1] - min_of(row[levels - 1], far.buy));
      if (best_ask == 0) leave_at_end(0, row[0] + min_of(-row[0], far.sell));
      find_best();
    }
    t += 1;
    return true;
  }
  KS_RULE void leave_at_end(int32_t tick, int32_t qty) {
    row[tick] = (Cell)qty;
    change(tick, tick);
  }
};

}  // namespace ks
