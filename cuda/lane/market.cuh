// market.cuh: one market with one slot on one lane, so 32 markets per warp. Loops only: the rules are model/market.h's.
//
// Where a warp shares a market, every scan and vote takes all its lanes, and for what is one number per market 31 lanes
// idle. One lane walks over the ticks of the clearing range in a third of the instructions, and a warp then computes the
// accounts, rewards and features of 32 markets at once.
#pragma once

#include "lane/orders.cuh"
#include "lane/tile.cuh"
#include "model/auction.h"

namespace ks {

// A market but for its parameters, book and orders: what it goes on with in numbers of another width.
struct LaneMarketState : MarketNumbers {
  int64_t volume, bought, sold;
  int32_t trades;
  Quote quote;
  Account account;
};

template <bool kOptions, bool kWide>
struct LaneMarket : LaneOrders<kWide>, LaneMarketState {
  using Orders = LaneOrders<kWide>;
  using typename Orders::Cell;
  using Orders::best_ask, Orders::best_bid, Orders::levels, Orders::low, Orders::near_high, Orders::near_low, Orders::p,
      Orders::resting, Orders::row, Orders::width;
  using Orders::add, Orders::asks, Orders::bids, Orders::change, Orders::find_best, Orders::moved, Orders::ordered,
      Orders::outlying, Orders::place_orders;

  static constexpr bool kLevers = false;  // rounding alone: see model/plan.h

  const LaneTile<kWide> tile;
  int64_t added;                   // to either side by orders since the row was looked at, at most
  BestPrices seen_best;            // that added agents see, and what is there
  Interest seen_units;

  KS_ON_LANE LaneMarket(const MarketParams& p, const LaneTile<kWide>& tile, Interest* outlying)
      : Orders(p, tile.levels, tile.row_of(tile.place), tile.bins + tile.place, outlying), tile(tile), added(0) {
    volume = bought = sold = 0, trades = 0;
  }

  KS_ON_LANE int64_t m() const { return tile.first + tile.place; }
  KS_ON_LANE bool stopped() const { return market_has_stopped(error); }
  KS_ON_LANE int32_t mark() const { return mark_mid2(best_bid, best_ask, last_tick, origin); }

  // What all agents of an auction order at most.
  KS_ON_LANE int64_t most_units() const {
    return (int64_t)num_agent_indices(p) * p.max_order_qty + added_units(tile.launch);
  }

  // Whether 16 bits suffice for an auction's quantities, if they do for the row's.
  KS_ON_LANE bool is_narrow(int32_t largest_quote) const {
    const int32_t largest = max_of(max_of(quote.bid_qty, quote.ask_qty), largest_quote);
    return most_units() <= kNarrowOrders && largest <= kNarrowQuote;
  }

  // Whether both totals stay below 2^31. Exact only where a bound cannot tell.
  KS_ON_LANE bool has_room(int at_bid, int at_ask) {
    added += most_units() + kMaxQuoteQty;
    if (resting + added < (int64_t)1 << 31) return true;
    uint32_t total_buy = at_bid >= 0 ? quote.bid_qty : 0, total_sell = at_ask != kNoTick ? quote.ask_qty : 0;
    for (int place = 0; place <= width; ++place) total_buy += ordered(place).buy, total_sell += ordered(place).sell;
    for (int tick = 0; tick < levels; ++tick) {
      const Interest beyond = outlying.here(tick);
      total_buy += bids()[tick] + beyond.buy, total_sell += asks()[tick] + beyond.sell;
    }
    return !overflows(total_buy, total_sell);
  }

  // All interest at a tick that has bins, in which quotes are already.
  KS_ON_LANE Interest near_interest(int32_t tick) const {
    const Interest orders = ordered(tick - low);
    const int32_t here = row[tick];
    return {max_of(here, 0) + orders.buy, max_of(-here, 0) + orders.sell};
  }
  // At a tick beyond the bins: the side that rests there.
  KS_ON_LANE int32_t bids_beyond(int32_t tick, int at_bid) const {
    return bids()[tick] + (tick == at_bid ? quote.bid_qty : 0);
  }
  KS_ON_LANE int32_t asks_beyond(int32_t tick, int at_ask) const {
    return asks()[tick] + (tick == at_ask ? quote.ask_qty : 0);
  }
  // At any tick of the grid, marketable orders included.
  KS_ON_LANE Interest interest(int32_t tick, int at_bid, int at_ask) const {
    if (tick >= near_low && tick <= near_high) {
      Interest here = near_interest(tick);
      if (tick == levels - 1) here.buy += ordered(width).buy;
      if (tick == 0) here.sell += ordered(width).sell;
      return here;
    }
    const Interest beyond = outlying.here(tick);
    return {bids()[tick] + beyond.buy + (tick == at_bid ? quote.bid_qty : 0) + (tick == levels - 1 ? ordered(width).buy : 0),
            asks()[tick] + beyond.sell + (tick == at_ask ? quote.ask_qty : 0) + (tick == 0 ? ordered(width).sell : 0)};
  }

  // The clearing range, from low to high, and what is known of it. Demand falls and supply rises, so the clearing prices
  // are found by counting ticks.
  struct Cleared {
    int32_t low, high;
    int32_t volume, demand, supply;  // demand at the next tick to clear, supply below it
    int32_t lowest, highest;

    KS_ON_LANE Cleared() {}
    KS_ON_LANE Cleared(int32_t low, int32_t high, int32_t volume, int32_t demand, int32_t supply)
        : low(low), high(high), volume(volume), demand(demand), supply(supply), lowest(low), highest(low - 1) {}
  };

  struct Auction {
    int at_bid, at_ask;  // the quote's ticks
    Interest far;        // marketable orders
    Interest totals;     // at the quote's ticks, before clearing
    Cleared cleared;
  };

  // Leave in the book what does not trade of the next tick's interest.
  KS_ON_LANE void leave_residual(Cleared& cleared, int32_t tick, const Interest& here) {
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

  // Clear the ticks that have bins, and as far beyond them as marketable orders reach. Returns false, and has changed
  // nothing, if more of the grid is needed. Beyond the bins only asks rest above and only bids below, and there are `above`
  // to buy and `below` to sell. All of `above` trades once the range holds as much supply, and all of `below` once it holds
  // as much demand; or else the range reaches the grid's end, where marketable orders are.
  KS_ON_LANE bool clear_near(int at_bid, int at_ask, Cleared& cleared) {
    const int32_t top = levels - 1;
    const int32_t above = ordered(width).buy + outlying.buy + (at_bid > near_high ? quote.bid_qty : 0);
    const int32_t below = ordered(width).sell + outlying.sell + (at_ask < near_low ? quote.ask_qty : 0);
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
      if (at_bid > near_high || at_ask < near_low || outlying.any()) return false;
      while (supply < above && last < top) supply += asks_beyond(++last, at_ask);
      while (all_demand < below && first > 0) all_demand += bids_beyond(--first, at_bid);
      volume = max_of(volume, max_of(min_of(above, supply), min_of(below, all_demand)));
      const bool all_above = last > near_high && last == top, all_below = first < near_low && first == 0;
      if ((volume < above && !all_above) || (volume < below && !all_below)) return false;
    }
    change(first, last);
    cleared = Cleared(first, last, volume, all_demand, below);
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
    return true;
  }

  KS_ON_LANE void clear_all(int at_bid, int at_ask, Cleared& cleared) {
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
    cleared = Cleared(0, levels - 1, volume, all_demand, 0);
    best_bid = -1, best_ask = levels;
#pragma unroll 1
    for (int tick = 0; tick < levels; ++tick) leave_residual(cleared, tick, interest(tick, at_bid, at_ask));
  }

  KS_ON_LANE int32_t fill(int32_t qty, int32_t total, int32_t left, int half) const {
    const int32_t traded = total - left;
    if (traded == total) return qty;
    if (traded == 0) return 0;
    return ration_first(qty, traded, total, (uint32_t)(random_word(key, t, kRationWord) >> half));
  }

  KS_ON_LANE void leave_at_end(int32_t tick, int32_t qty) {
    row[tick] = (Cell)qty;
    change(tick, tick);
  }

  // What model/auction.h asks for -------------------------------------------------------------------------------------

  KS_ON_LANE void begin_auction() {}
  KS_ON_LANE void change_regime() {}
  KS_ON_LANE bool walks() const { return true; }
  KS_ON_LANE uint64_t walk_word() const { return random_word(key, t, kWalkWord); }
  KS_ON_LANE void cancel() {
    Orders::cancel(word_counter(key, t, 0), p.cancel_threshold);
    added = 0;
  }
  KS_ON_LANE BestPrices best_prices() const {
    return {max_of(best_bid, bid_tick(quote, origin, levels)), min_of(best_ask, ask_tick(quote, origin, levels))};
  }
  KS_ON_LANE void move_grid(int32_t shift) {
    tile.shift_books(shift);
    if (shift != 0) moved(shift);
  }
  KS_ON_LANE void look(const Seen&) {
    if (!kAddedSeeBook) return;
    seen_best = best_prices(), seen_units = {0, 0};
    const int32_t bid = seen_best.bid, ask = seen_best.ask;
    if (bid >= 0) seen_units.buy = agent::add(bids()[bid], bid == bid_tick(quote, origin, levels) ? quote.bid_qty : 0);
    if (ask != kNoTick) seen_units.sell = agent::add(asks()[ask], ask == ask_tick(quote, origin, levels) ? quote.ask_qty : 0);
  }
  KS_ON_LANE AgentView view(const Seen& seen, int32_t coin) const {
    const Middle around = agents_middle(p, seen.mid2, this->fundamental, origin, coin);
    AgentView view = view_of(p, *this, around, seen.mid2, seen.ret, 0, (int32_t)t);
    if (!kAddedSeeBook) return view;
    if (seen_best.bid >= 0) view.best_bid = seen_best.bid + origin, view.best_bid_qty = seen_units.buy;
    if (seen_best.ask != kNoTick) view.best_ask = seen_best.ask + origin, view.best_ask_qty = seen_units.sell;
    return view;
  }
  KS_ON_LANE bool add_near(const AgentOrder& order) const { return Orders::add_near(order, origin); }
  KS_ON_LANE void add_outlying(const AgentOrder& order) { Orders::add_outlying(order, origin); }
  KS_ON_LANE void replace_quotes(const Quote& fresh) { quote = fresh; }

  // Built-in orders are drawn already, see LaneOrders.
  KS_ON_LANE Auction submit_orders(const Seen& seen, int32_t value) {
    Auction auction;
    auction.at_bid = bid_tick(quote, origin, levels), auction.at_ask = ask_tick(quote, origin, levels);
    const int32_t coin = kWithCoin ? word_coin(walk_word()) : 0;
    place_orders(kWithCoin ? rounded_mid2(p, seen.mid2, coin) : seen.mid2, seen.ret, value, t);
    if (kAgentsOnLanes) {
      outlying.clear();
      play_added(*this, view(seen, coin));
    }
    return auction;
  }

  // Clear the ticks around the mid if no others can trade, else the whole grid. So, too, where a quote at the grid's end is
  // among them, as it shares its tick with marketable orders.
  KS_ON_LANE bool clear(const Seen&, Auction& auction) {
    const int at_bid = auction.at_bid, at_ask = auction.at_ask;
    if (!has_room(at_bid, at_ask)) return false;
    auction.far = ordered(width);
    if (at_bid >= near_low && at_bid <= near_high) add(at_bid - low, quote.bid_qty, 0);
    if (at_ask >= near_low && at_ask <= near_high) add(at_ask - low, 0, quote.ask_qty);
    auction.totals = {at_bid >= 0 ? interest(at_bid, at_bid, at_ask).buy : 0,
                      at_ask != kNoTick ? interest(at_ask, at_bid, at_ask).sell : 0};
    const bool shared = (at_bid == levels - 1 && near_high == at_bid) || (at_ask == 0 && near_low == at_ask);
    const bool near = best_bid <= near_high && best_ask >= near_low && !shared && !outlying.any_behind();
    if (!near || !clear_near(at_bid, at_ask, auction.cleared)) clear_all(at_bid, at_ask, auction.cleared);
    return true;
  }

  // Quotes outside the clearing range have traded wholly or not at all. What is left of those inside is taken off the grid,
  // which holds built-in interest only.
  KS_ON_LANE void fill_quotes(const Auction& auction) {
    const int at_bid = auction.at_bid, at_ask = auction.at_ask;
    const int32_t low = auction.cleared.low, high = auction.cleared.high;
    int32_t bid_fill = at_bid > high ? quote.bid_qty : 0, ask_fill = at_ask < low ? quote.ask_qty : 0;
    const bool bids_here = at_bid >= low && at_bid <= high, asks_here = at_ask >= low && at_ask <= high;
    if (bids_here) bid_fill = fill(quote.bid_qty, auction.totals.buy, bids()[at_bid], 0);
    if (asks_here) ask_fill = fill(quote.ask_qty, auction.totals.sell, asks()[at_ask], 32);
    quote.bid_qty -= bid_fill;
    quote.ask_qty -= ask_fill;
    if (bids_here) row[at_bid] = (Cell)(row[at_bid] - quote.bid_qty);
    if (asks_here) row[at_ask] = (Cell)(row[at_ask] + quote.ask_qty);
    settle(account, bid_fill, ask_fill, (int64_t)last_tick + origin, p.fee);
    bought += bid_fill;
    sold += ask_fill;
  }

  // What rests at a grid's end can only be the best of its side.
  KS_ON_LANE void cancel_residue(const Auction& auction) {
    find_best();
    if (best_bid == levels - 1) leave_at_end(levels - 1, row[levels - 1] - min_of(row[levels - 1], auction.far.buy));
    if (best_ask == 0) leave_at_end(0, row[0] + min_of(-row[0], auction.far.sell));
  }

  KS_ON_LANE void end_auction() {
    find_best();
    t += 1;
  }
};

}  // namespace ks
