// market.h: one market on one core, the C++ engine's counterpart of warp/market.cuh. Loops and memory only: the
// rules are model/market.h's. Included by cpu/environment.h and market_cpu.cpp.
#pragma once

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "cpu/added_orders.h"
#include "cpu/book.h"
#include "cpu/orders.h"
#include "model/auction.h"

namespace ks {

// A thread's memory, kept from launch to launch.
struct Scratch {
  Orders orders;
  AddedOrders added;
  std::vector<int32_t> buy, sell;       // all interest per tick of the clearing range
  std::vector<int32_t> demand, supply;  // D[p] and S[p]

  void fit(int levels) {
    for (auto* row : {&buy, &sell, &demand, &supply})
      if (row->size() < (size_t)levels) row->resize(levels);
  }
};

// One market: its scalars, loaded once per launch and stored once, and its book in place. With levers its parameters are a
// copy, as a regime changes them.
template <bool kHasLevers>
struct Market : Book, MarketNumbers {
  static constexpr bool kLevers = kHasLevers;
  const Launch& launch;
  const int64_t m;
  const int slots;
  std::conditional_t<kLevers, MarketParams, const MarketParams&> p;
  Scratch& scratch;
  int64_t volume, trades;
  Quote quotes[kMaxSlots];
  Account accounts[kMaxSlots];
  int64_t bought[kMaxSlots], sold[kMaxSlots];
  int32_t traded = 0;  // volume of the last auction
  int32_t regime = 0;
  Pricing pricing;     // of this auction, with levers,
  Middle middle;       // and the mid's
  AgentView view;      // of agents that users have added

  Market(const Launch& launch, int64_t m, Scratch& scratch)
      : Book(launch.bid + m * launch.levels, launch.ask + m * launch.levels, launch.levels),
        MarketNumbers(numbers_of(launch, m)), launch(launch), m(m), slots(launch.slots),
        p(launch.params[m * launch.params_stride]), scratch(scratch), volume(launch.volume[m]), trades(launch.trades[m]) {
    if (kLevers && launch.regime) regime = launch.regime[m];
    if (!kLevers || p.levers.regimes == 0) scratch.orders.prepare(p, levels);
    for (int k = 0; k < slots; ++k) {
      std::memcpy(&quotes[k], launch.quotes + 4 * (m * slots + k), sizeof(Quote));
      accounts[k] = {launch.cash[m * slots + k], launch.inventory[m * slots + k], launch.fees[m * slots + k]};
    }
  }

  void store() const {
    store_numbers(launch, m, *this);
    launch.volume[m] = volume;
    launch.trades[m] = trades;
    if (kLevers && launch.regime) launch.regime[m] = regime;
    for (int k = 0; k < slots; ++k) {
      std::memcpy(launch.quotes + 4 * (m * slots + k), &quotes[k], sizeof(Quote));
      launch.cash[m * slots + k] = accounts[k].cash;
      launch.inventory[m * slots + k] = accounts[k].inventory;
      launch.fees[m * slots + k] = accounts[k].fees;
    }
  }

  bool stopped() const { return market_has_stopped(error); }

  int32_t mark() const { return mark_mid2(best_bid, best_ask, last_tick, origin); }

  // What model/auction.h asks for ------------------------------------------------------------------------------------

  // The clearing range, and what clearing it has found.
  struct Cleared {
    int low, high;
    int32_t volume, lowest, highest;
  };
  struct Auction {
    Cleared cleared;
    int64_t quoted[2];  // on the grid, by side
  };

  void begin_auction() {}
  bool walks() const { return true; }
  uint64_t walk_word() const { return random_word(key, t, kWalkWord); }
  void change_regime() {
    if constexpr (kLevers) {
      if (p.levers.regimes == 0) return;
      regime = regime_at(p, key, t, regime);
      enter_regime(launch.regimes, regime, launch.params[m * launch.params_stride], p);
      scratch.orders.prepare(p, levels);
    }
  }
  void cancel() { Book::cancel(p.cancel_threshold, word_counter(key, t, kCancelWord)); }
  void move_grid(int32_t shift) {
    if (shift != 0) Book::shift(shift);
  }
  void look(const Seen& seen) {
    if (has_added_agents(launch)) look_for_all(seen);
  }
  void replace_quotes(const Quote* fresh) {
    for (int k = 0; k < slots; ++k) quotes[k] = kLevers ? quote_under_levers(p, fresh[k], last_tick + origin) : fresh[k];
  }

  BestPrices best_prices() const {
    BestPrices best = {best_bid, best_ask};
    for (int k = 0; k < slots; ++k) {
      best.bid = std::max(best.bid, bid_at(quotes[k]));
      best.ask = std::min(best.ask, ask_at(quotes[k]));
    }
    return best;
  }

  // Draw the orders, and find the clearing range, which holds them, the quotes and the crossing part of the book. Marketable
  // orders, at the ends of the grid, are left out: most often all of them trade, and the ends need not be looked at.
  Auction submit_orders(const Seen& seen, int32_t value) {
    const int32_t mid2 = seen.mid2, offset = kLevers ? lever_reach(p) : order_reach(p);
    if (kLevers) price_around(mid2);
    int32_t near_low = lowest_order(mid2, offset), near_high = highest_order(mid2, offset);
    int32_t low = std::min(near_low, best_ask), high = std::max(near_high, best_bid);
    Auction auction = {};
    int64_t* const quoted = auction.quoted;
    for (int k = 0; k < slots; ++k) {
      const int32_t at_bid = bid_at(quotes[k]), at_ask = ask_at(quotes[k]);
      if (at_bid >= 0) low = std::min(low, at_bid), high = std::max(high, at_bid), quoted[0] += quotes[k].bid_qty;
      if (at_ask != kNoTick) low = std::min(low, at_ask), high = std::max(high, at_ask), quoted[1] += quotes[k].ask_qty;
    }
    Orders& orders = scratch.orders;
    if (!orders.binned) low = 0, high = levels - 1;
    const bool has_added = has_added_agents(launch);
    if (has_added) submit_added(near_low, near_high, low, high);
    low = low / kStep * kStep, high = high / kStep * kStep + kStep - 1;
    int32_t *buy = scratch.buy.data(), *sell = scratch.sell.data();
    copy_book(low, high);
    const auto price = [&](int32_t side, int32_t offset) { return limit_price(mid2, side, offset); };
    orders.submit(p, key, t, kLevers ? kBinsByOffset : mid2, seen.ret, value, price, buy, sell);
    reach(near_low, near_high);
    place_orders(mid2);
    if (has_added) add_added();
    for (int k = 0; k < slots; ++k) {
      const int32_t at_bid = bid_at(quotes[k]), at_ask = ask_at(quotes[k]);
      if (at_bid >= 0) buy[at_bid] += quotes[k].bid_qty;
      if (at_ask != kNoTick) sell[at_ask] += quotes[k].ask_qty;
    }
    auction.cleared.low = low, auction.cleared.high = high;
    return auction;
  }

  // Clear the range if all marketable orders trade in it, else the whole grid. If the range's volume V is above the
  // marketable quantity of each side, no tick outside can clear V, and nothing outside is filled in part.
  bool clear(const Seen&, Auction& auction) {
    const Orders& orders = scratch.orders;
    const int64_t buys = orders.total[0] + auction.quoted[0], sells = orders.total[1] + auction.quoted[1];
    if (would_overflow(bid, levels, bid_bound, buys) | would_overflow(ask, levels, ask_bound, sells)) return false;
    Cleared& cleared = auction.cleared;
    int low = cleared.low, high = cleared.high;
    int32_t *buy = scratch.buy.data(), *sell = scratch.sell.data();
    int32_t far_buys = (int32_t)orders.far[0], far_sells = (int32_t)orders.far[1];
    const int32_t buys_at = marketable_price(0), sells_at = marketable_price(1);
    if (high >= buys_at) buy[buys_at] += far_buys, far_buys = 0;
    if (low <= sells_at) sell[sells_at] += far_sells, far_sells = 0;
    int32_t best = find_volume(low, high, far_buys, far_sells);
    if (std::max(best, 1) <= std::max(far_buys, far_sells)) {
      if (low > 0) copy_book(0, low - 1), sell[sells_at] += far_sells, low = 0;
      if (high < levels - 1) copy_book(high + 1, levels - 1), buy[buys_at] += far_buys, high = levels - 1;
      best = find_volume(low, high, 0, 0);
    }
    traded = best;
    cleared = leave_residual(low, high, best);
    bid_bound += buys - best;
    ask_bound += sells - best;
    return true;
  }

  void fill_quotes(const Auction& auction) {
    if (auction.quoted[0] + auction.quoted[1] > 0) ration_quotes((int64_t)last_tick + origin);
  }

  void cancel_residue(const Auction&) {
    const int32_t buys_at = marketable_price(0), sells_at = marketable_price(1);
    bid[buys_at] -= (int32_t)std::min<int64_t>(bid[buys_at], scratch.orders.far[0]);
    ask[sells_at] -= (int32_t)std::min<int64_t>(ask[sells_at], scratch.orders.far[1]);
  }

  void end_auction() {
    if (best_bid >= 0 && bid[best_bid] <= 0) find_best_bid(best_bid);
    if (best_ask != kNoTick && ask[best_ask] <= 0) find_best_ask(best_ask);
    t += 1;
  }

  // Agents that users have added -------------------------------------------------------------------------------------

  KS_NOINLINE_ON_CPU void look_for_all(const Seen& seen) {
    view = view_of(p, *this, agents_middle(p, seen.mid2, fundamental, origin, coin()), seen.mid2, seen.ret, regime,
                   (int32_t)t);
    if (!some_see_book(launch)) return;
    const BestPrices best = best_prices();
    if (best.bid >= 0) view.best_bid = best.bid + origin, view.best_bid_qty = bid[best.bid];
    if (best.ask != kNoTick) view.best_ask = best.ask + origin, view.best_ask_qty = ask[best.ask];
    for (int k = 0; k < slots; ++k) {
      if (best.bid >= 0 && bid_at(quotes[k]) == best.bid) view.best_bid_qty += quotes[k].bid_qty;
      if (best.ask != kNoTick && ask_at(quotes[k]) == best.ask) view.best_ask_qty += quotes[k].ask_qty;
    }
  }

  // Collect their orders, and widen the range to hold them.
  KS_NOINLINE_ON_CPU void submit_added(int32_t& near_low, int32_t& near_high, int32_t& low, int32_t& high) {
    AddedOrders& added = scratch.added;
    if constexpr (kLevers) {
      const Pricing by = pricing;
      const int32_t from = origin;
      added.submit(launch, m, p, key, t, view, origin, [&](const AgentOrder& order) { return limit_tick_of(order, by, from); });
    } else {
      added.submit(launch, m, p, key, t, view, origin, nullptr);
    }
    near_low = std::min(near_low, added.low), near_high = std::max(near_high, added.high);
    low = std::min(low, near_low), high = std::max(high, near_high);
  }
  KS_NOINLINE_ON_CPU void add_added() {
    scratch.added.add_to(scratch.buy.data(), scratch.sell.data(), levels);
    for (int side = 0; side < 2; ++side) {
      scratch.orders.far[side] += scratch.added.far[side];
      scratch.orders.total[side] += scratch.added.total[side];
    }
  }

  // Helpers of the above ---------------------------------------------------------------------------------------------

  int32_t bid_at(const Quote& quote) const { return bid_place<kLevers>(p, quote, origin, levels); }
  int32_t ask_at(const Quote& quote) const { return ask_place<kLevers>(p, quote, origin, levels); }
  int32_t coin() const { return p.levers.rounding == kRoundingCoin ? word_coin(walk_word()) : 0; }
  void price_around(int32_t mid2) {
    pricing = pricing_of(p, levels, origin, fundamental, last_tick, coin());
    middle = pricing.middle(mid2);
  }
  int32_t limit_price(int32_t mid2, int32_t side, int32_t offset) const {
    return kLevers ? pricing.limit(middle, side, offset) : price_near_mid(mid2, offset, levels);
  }
  int32_t marketable_price(int32_t side) const {
    return kLevers ? pricing.marketable(side) : side ? 0 : levels - 1;
  }
  // The ticks between which all limit orders lie, and under levers marketable ones that are priced within the grid.
  int32_t lowest_order(int32_t mid2, int32_t offset) const {
    if (!kLevers) return price_near_mid(mid2, -offset, levels);
    return std::min({limit_price(mid2, 0, -offset), limit_price(mid2, 1, -offset), marketable_price(0)});
  }
  int32_t highest_order(int32_t mid2, int32_t offset) const {
    if (!kLevers) return price_near_mid(mid2, offset, levels);
    return std::max({limit_price(mid2, 0, offset), limit_price(mid2, 1, offset), marketable_price(1)});
  }

  void copy_book(int low, int high) {
    std::memcpy(scratch.buy.data() + low, bid + low, (high + 1 - low) * sizeof(int32_t));
    std::memcpy(scratch.sell.data() + low, ask + low, (high + 1 - low) * sizeof(int32_t));
  }

  // Orders that are not marketable, on top of the book.
  void place_orders(int32_t mid2) {
    Orders& orders = scratch.orders;
    for (int side = 0; side < 2; ++side) {
      int32_t* to = side ? scratch.sell.data() : scratch.buy.data();
      const int32_t towards = side ? -1 : 1;
      to[limit_price(mid2, side, kLevers ? towards * p.levers.taker_offset : towards)] += orders.step[side];
      to[limit_price(mid2, side, -towards * p.maker_half_spread)] += orders.made[side];
      if (!orders.binned) continue;
      const int32_t* bins = orders.side_bins(side);
      if (kLevers && !pricing.follows_offsets(middle)) {
        for (int j = 0; j <= 2 * orders.spread; ++j) to[pricing.limit(middle, side, j - orders.spread)] += bins[j];
        continue;
      }
      const int32_t first = kLevers ? middle.tick - orders.spread - towards * p.levers.tax : orders.first_tick(mid2);
      if (first >= 0 && first + orders.width <= levels) {
        add_rows(to + first, bins, orders.width);
      } else {
        for (int j = 0; j < orders.width; ++j) to[clamp_to(first + j, 0, levels - 1)] += bins[j];
      }
    }
  }

  static void add_rows(int32_t* __restrict to, const int32_t* __restrict from, int count) {
    for (int i = 0; i < (count & -kLanes); ++i) to[i] += from[i];
  }

  // Demand and supply from tick `low` to `high`, given what there is above and below them; the largest volume.
  int32_t find_volume(int low, int high, int32_t above, int32_t below) {
    const int32_t *buy = scratch.buy.data(), *sell = scratch.sell.data();
    int32_t *demand = scratch.demand.data(), *supply = scratch.supply.data();
    for (int tick = low; tick <= high; ++tick) supply[tick] = below += sell[tick];
    int32_t best = 0;
    for (int tick = high; tick >= low; --tick) {
      demand[tick] = above += buy[tick];
      best = std::max(best, executable_volume(above, supply[tick]));
    }
    return best;
  }

  // Take what trades out of the book from tick `low` to `high`. Ticks are found by counting, as demand falls and supply
  // rises: what is left are bids where demand exceeds the volume, and asks where supply does.
  Cleared leave_residual(int low, int high, int32_t best) {
    const int32_t *buy = scratch.buy.data(), *sell = scratch.sell.data();
    const int32_t *demand = scratch.demand.data(), *supply = scratch.supply.data();
    int32_t lowest = low, highest = low - 1, bids = 0, asks = 0;
    const int end = low + ((high + 1 - low) & -kStep);  // so that the compiler knows that nothing is left over
    for (int tick = low; tick < end; ++tick) {
      bid[tick] = residual_at_tick(best, demand[tick], buy[tick]);
      ask[tick] = residual_at_tick(best, supply[tick], sell[tick]);
      lowest += supply[tick] < best;
      highest += demand[tick] >= best;
      bids += demand[tick] > best;
      asks += supply[tick] > best;
    }
    if (bids > 0) best_bid = low + bids - 1;
    else find_best_bid(std::min(best_bid, low - 1));
    if (asks > 0) best_ask = high + 1 - asks;
    else find_best_ask(std::max(best_ask, high + 1));
    return {low, high, best, lowest, highest};
  }

  // Give each quote its share of what traded at its tick; built-in interest keeps the rest.
  void ration_quotes(int64_t price) {
    int32_t *buy = scratch.buy.data(), *sell = scratch.sell.data();
    const uint64_t word = random_word(key, t, kRationWord);
    int32_t fills[2][kMaxSlots] = {}, ticks[2][kMaxSlots];
    for (int side = 0; side < 2; ++side) {
      const int32_t* total = side ? sell : buy;
      const int32_t* left = side ? ask : bid;  // residual of all interest, so far
      for (int k = 0; k < slots; ++k) {
        const Quote& q = quotes[k];
        int32_t tick = side ? ask_at(q) : bid_at(q);
        ticks[side][k] = tick;
        if (tick < 0 || tick == kNoTick) continue;
        uint32_t before = 0;
        for (int j = 0; j < k; ++j) before += ticks[side][j] == tick ? (side ? quotes[j].ask_qty : quotes[j].bid_qty) : 0;
        fills[side][k] = ration(before, side ? q.ask_qty : q.bid_qty, total[tick] - left[tick], total[tick],
                                side ? (uint32_t)(word >> 32) : (uint32_t)word);
      }
    }
    for (int k = 0; k < slots; ++k) {
      Quote& q = quotes[k];
      q.bid_qty -= fills[0][k];
      q.ask_qty -= fills[1][k];
      if (ticks[0][k] >= 0) bid[ticks[0][k]] -= q.bid_qty;
      if (ticks[1][k] != kNoTick) ask[ticks[1][k]] -= q.ask_qty;
      settle(accounts[k], fills[0][k], fills[1][k], price, kLevers ? unit_fee(p) : p.fee);
      bought[k] += fills[0][k];
      sold[k] += fills[1][k];
    }
  }

  // Decisions --------------------------------------------------------------------------------------------------------

  // One auction; `fresh` are new quotes or null. Returns false if the market has to stop.
  bool auction(const Quote* fresh) {
    bool plays = true;
    play_auction<true>(*this, plays, fresh != nullptr, fresh);
    return plays;
  }

  // One decision: its quotes (null: standing ones stay), then `launch.auctions` auctions. `first` counts auctions of
  // this launch before it, for the series.
  void decision(const Quote* fresh, int64_t first) {
    for (int k = 0; k < slots; ++k) bought[k] = sold[k] = 0;
    const int64_t length = (int64_t)launch.decisions * launch.auctions;
    for (int a = 0; a < launch.auctions; ++a) {
      if (!auction(a == 0 ? fresh : nullptr)) return;
      const int64_t at = m * length + first + a;
      if (launch.series_last_price) launch.series_last_price[at] = last_tick + origin;
      if (launch.series_volume) launch.series_volume[at] = traded;
      if (launch.series_mid2) launch.series_mid2[at] = mark();
      if (launch.series_fundamental) launch.series_fundamental[at] = fundamental;
      if (launch.records > 1) record_further(at);
    }
  }

  KS_NOINLINE_ON_CPU void record_further(int64_t at) const {
    const Ticks bids = bids_in_reach(launch.reach, best_bid), asks = asks_in_reach(launch.reach, best_ask, levels);
    const int64_t* marketable = scratch.orders.far;
    write_further_series(launch, at, origin, {best_bid, best_ask, sum_of(bid + bids.low, bids.high + 1 - bids.low),
                                              sum_of(ask + asks.low, asks.high + 1 - asks.low), marketable[0] - marketable[1]});
  }

  void write_fills(int64_t row) const {
    for (int k = 0; k < slots; ++k) {
      if (launch.fills) launch.fills[2 * (row + k)] = bought[k], launch.fills[2 * (row + k) + 1] = sold[k];
      if (launch.value) launch.value[row + k] = 2 * accounts[k].cash + accounts[k].inventory * mark();
    }
  }

  void run() {
    for (int d = 0; d < launch.decisions && !stopped(); ++d) {
      const int64_t row = ((int64_t)d * launch.markets + m) * slots;
      Quote fresh[kMaxSlots];
      for (int k = 0; launch.new_quotes && k < slots; ++k) {
        Quote asked;
        std::memcpy(&asked, launch.new_quotes + 4 * (row + k), sizeof(Quote));
        fresh[k] = apply_pre_trade_limits(asked, accounts[k].inventory, p);
      }
      decision(launch.new_quotes ? fresh : nullptr, (int64_t)d * launch.auctions);
      if (!stopped()) write_fills(row);
    }
    store();
  }
};

}  // namespace ks
