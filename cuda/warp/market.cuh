// market.cuh: one market on one warp. The book is loaded into shared memory once per launch, stays there through all
// auctions, and is stored once. Thread map, memory and chunk loop only: the rules are model/market.h's.
#pragma once

#include "model/auction.h"
#include "warp/clearing.cuh"
#include "warp/market_state.cuh"

namespace ks {

// kSlots: no slots, one, or several (2). Each lane holds one slot; if there is only one, all lanes hold it, so that none has
// to read it from another.
template <int kBins, bool kOptions, int kSlots>
struct MarketOnChip : MarketState<kBins> {
  using State = MarketState<kBins>;
  using State::best_ask, State::best_bid, State::book_is_stored, State::buy, State::error, State::first_word,
      State::fundamental, State::grid, State::lane, State::last_tick, State::launch, State::leads, State::levels,
      State::m, State::middle, State::origin, State::p, State::prepared, State::prev_mid2, State::pricing, State::reach,
      State::room, State::roomy, State::sell, State::stopped, State::t, State::trades, State::volume, State::words_left;
  using State::cancel, State::change_regime, State::coin, State::count_room, State::find_ask, State::find_bid,
      State::growth, State::hash_market_words, State::mark, State::market_word, State::next_auction, State::price_around,
      State::ration_word, State::shift_grid, State::store_book;

  static constexpr bool kLevers = kWithLevers;
  const int32_t chunks;          // of the clearing range
  int32_t traded;                // in the last auction
  int32_t signed_volume;         // of marketable orders in the last auction, where series are recorded
  Quote quote;                   // of this lane's slot
  Account account;
  int64_t bought, sold;
  SeenBook seen_book;            // of agents that users have added, before quotes were replaced
  int32_t outside;               // above 0: an order of theirs may trade outside the clearing range

  __device__ __forceinline__ MarketOnChip(const Launch& launch, int64_t m, const MarketParams& row, int* book, int* bins)
      : State(launch, m, row, book, bins), chunks(fixed(range_chunks(range_reach(), grid))), traded(0),
        signed_volume(0), quote{0, 0, 0, 0}, account{0, 0, 0}, bought(0), sold(0), seen_book{0, 0, 0, 0},
        outside(0) {}

  // How far from the mid most orders are: under levers some may be further, and then the whole grid is cleared.
  __device__ __forceinline__ int32_t range_reach() const {
    if (!kLevers) return reach;
    return reach + p.levers.tax + p.levers.tick_size - 1 + (p.levers.reference == kReferenceFundamental ? kWarpLanes / 2 : 0);
  }
  __device__ __forceinline__ int32_t fee() const { return kLevers ? unit_fee(p) : p.fee; }
  __device__ __forceinline__ int32_t bid_at(const Quote& q) const { return bid_place<kLevers>(p, q, origin, levels); }
  __device__ __forceinline__ int32_t ask_at(const Quote& q) const { return ask_place<kLevers>(p, q, origin, levels); }

  static constexpr bool kAnySlots = kSlots != 0, kOneSlot = kSlots == 1;

  __device__ __forceinline__ bool has_slot() const { return kOneSlot || (kSlots && lane < launch.slots); }
  __device__ __forceinline__ bool owns_slot() const { return kOneSlot ? lane == 0 : kSlots && lane < launch.slots; }
  __device__ __forceinline__ int slot() const { return kOneSlot ? 0 : lane; }
  __device__ __forceinline__ bool any_slot(bool holds) const { return kOneSlot ? holds : __any_sync(kAllLanes, holds); }
  __device__ __forceinline__ int slot_sum(int x) const { return kOneSlot ? x : warp_sum(x); }

  __device__ __forceinline__ void load() {
    State::load();
    if (has_slot()) {
      const int64_t row = m * launch.slots + slot();
      const int32_t* q = launch.quotes + 4 * row;
      quote = Quote{q[0], q[1], q[2], q[3]};
      account = Account{launch.cash[row], launch.inventory[row], launch.fees[row]};
    }
  }

  __device__ __forceinline__ void store() {
    State::store();
    if (!owns_slot()) return;
    const int64_t row = m * launch.slots + lane;
    int32_t* q = launch.quotes + 4 * row;
    q[0] = quote.bid_price, q[1] = quote.bid_qty, q[2] = quote.ask_price, q[3] = quote.ask_qty;
    launch.cash[row] = account.cash;
    launch.inventory[row] = account.inventory;
    launch.fees[row] = account.fees;
  }

  // All interest at the ticks of this lane's quotes, before it trades.
  __device__ __forceinline__ void read_totals(const Cleared& cleared, int at_bid, int at_ask, int32_t& bid_total,
                                              int32_t& ask_total) const {
    if (cleared.holds(at_bid)) bid_total = buy[at_bid];
    if (cleared.holds(at_ask)) ask_total = sell[at_ask];
    __syncwarp();
  }

  // Each quote's share of what traded at its tick; built-in interest keeps the rest. Before, the grid holds what is left of
  // all interest; on return, of built-in interest alone. Quotes outside the clearing range have traded wholly or not at
  // all.
  __device__ __forceinline__ void ration_quotes(const Cleared& cleared, uint64_t word, int at_bid, int at_ask,
                                                int32_t bid_total, int32_t ask_total) {
    const bool bids = cleared.holds(at_bid), asks = cleared.holds(at_ask);
    uint32_t bid_before = 0, ask_before = 0;  // quantity of lower slots at the same tick
#pragma unroll 1
    for (int j = 0; !kOneSlot && j + 1 < launch.slots; ++j) {
      const int other_bid = __shfl_sync(kAllLanes, at_bid, j), other_ask = __shfl_sync(kAllLanes, at_ask, j);
      const int bid_qty = __shfl_sync(kAllLanes, quote.bid_qty, j), ask_qty = __shfl_sync(kAllLanes, quote.ask_qty, j);
      if (j < lane && other_bid == at_bid) bid_before += bid_qty;
      if (j < lane && other_ask == at_ask) ask_before += ask_qty;
    }
    int32_t bid_fill = !bids && at_bid > cleared.base ? quote.bid_qty : 0;
    int32_t ask_fill = !asks && at_ask < cleared.base ? quote.ask_qty : 0;
    if (bids) bid_fill = ration(bid_before, quote.bid_qty, bid_total - buy[at_bid], bid_total, (uint32_t)word);
    if (asks) ask_fill = ration(ask_before, quote.ask_qty, ask_total - sell[at_ask], ask_total, (uint32_t)(word >> 32));
    __syncwarp();  // residuals are read
    quote.bid_qty -= bid_fill;
    quote.ask_qty -= ask_fill;
    if (owns_slot() && bids && quote.bid_qty > 0) atomicSub(buy + at_bid, quote.bid_qty);
    if (owns_slot() && asks && quote.ask_qty > 0) atomicSub(sell + at_ask, quote.ask_qty);
    settle(account, bid_fill, ask_fill, (int64_t)last_tick + origin, fee());
    bought += bid_fill;
    sold += ask_fill;
    __syncwarp();
  }

  // What one side of a single slot's quote gets in the chunk that was looked at. `here`: all interest at this lane's tick;
  // `left`: what is left of it, and on return what built-in interest keeps of that.
  __device__ __forceinline__ int32_t ration_one(int32_t at, int32_t base, int32_t qty, int32_t here, int32_t& left,
                                                int half) const {
    const int32_t total = shuffle(here, at - base), traded = total - shuffle(left, at - base);
    int32_t fill = traded == total ? qty : 0;
    if (traded > 0 && traded < total) fill = ration_first(qty, traded, total, (uint32_t)(ration_word() >> half));
    if (lane == at - base) left -= qty - fill;
    return fill;
  }

  // The same for both sides, in registers; then the residual is written to the grid.
  __device__ __forceinline__ void leave_residual_of_one(const Clearing& clearing, Cleared& cleared, int at_bid,
                                                        int at_ask) {
    int32_t buy_left = residual_at_tick(cleared.volume, clearing.demand, clearing.here_buy);
    int32_t sell_left = residual_at_tick(cleared.volume, clearing.supply, clearing.here_sell);
    int32_t bid_fill = at_bid > cleared.top() ? quote.bid_qty : 0;  // outside: wholly or not at all
    int32_t ask_fill = at_ask < cleared.base ? quote.ask_qty : 0;
    if (cleared.holds(at_bid)) {
      bid_fill = ration_one(at_bid, cleared.base, quote.bid_qty, clearing.here_buy, buy_left, 0);
    }
    if (cleared.holds(at_ask)) {
      ask_fill = ration_one(at_ask, cleared.base, quote.ask_qty, clearing.here_sell, sell_left, 32);
    }
    buy[cleared.base + lane] = buy_left;
    sell[cleared.base + lane] = sell_left;
    const unsigned bids_left = __ballot_sync(kAllLanes, buy_left > 0);
    const unsigned asks_left = __ballot_sync(kAllLanes, sell_left > 0);
    cleared.best_bid = cleared.base + 31 - __clz(bids_left);
    cleared.best_ask = cleared.base + (asks_left ? __ffs(asks_left) - 1 : kWarpLanes);
    quote.bid_qty -= bid_fill;
    quote.ask_qty -= ask_fill;
    settle(account, bid_fill, ask_fill, (int64_t)last_tick + origin, fee());
    bought += bid_fill;
    sold += ask_fill;
  }

  // What model/auction.h asks for -------------------------------------------------------------------------------------

  struct Auction {
    Cleared cleared;
    Clearing clearing;
    int at_bid, at_ask;             // of this lane's slot, -1 and kNoTick where it has no quote on the grid
    int32_t bid_total, ask_total;   // all interest there
    int32_t far_buys, far_sells;    // marketable orders
    bool quoted;                    // a slot has a quote on the grid
    bool full;                      // a side may overflow
    bool off_grid;                  // a single slot's quotes stay in registers
    bool in_registers;              // and so does the residual
  };

  __device__ __forceinline__ void begin_auction() {
    const bool may_walk = kOptions && (p.walk_threshold | p.jump_threshold) != 0;
    if ((kSlots || may_walk || kWithCoin) && words_left == 0 && !prepared) hash_market_words();
  }
  __device__ __forceinline__ bool walks() const { return !prepared; }
  __device__ __forceinline__ uint64_t walk_word() const { return market_word(kWalkWord); }

  __device__ __forceinline__ BestPrices best_prices() const {
    BestPrices best = {best_bid, best_ask};
    if (kSlots) {
      const int32_t bid = has_slot() ? bid_at(quote) : -1;
      const int32_t ask = has_slot() ? ask_at(quote) : kNoTick;
      best.bid = max_of(best.bid, kOneSlot ? bid : warp_max(bid));
      best.ask = min_of(best.ask, kOneSlot ? ask : warp_min(ask));
    }
    return best;
  }

  __device__ __forceinline__ void move_grid(int32_t shift) {
    if (shift != 0) shift_grid(shift);
  }
  __device__ __forceinline__ void look(const Seen&) {
    if constexpr (kAddedSeeBook) seen_book = see_book(*this);
  }
  __device__ __forceinline__ void replace_quotes(const Quote& fresh) {
    if (kSlots) quote = kLevers ? quote_under_levers(p, fresh, last_tick + origin) : fresh;
  }

  // What an auction begins with: where this lane's slot has its quotes.
  __device__ __forceinline__ Auction empty_auction() const {
    Auction auction = {Cleared{}, Clearing(buy, sell, lane), -1, kNoTick, 0, 0, 0, 0, false, false, false, false};
    if (kSlots) {
      if (has_slot()) {
        auction.at_bid = bid_at(quote);
        auction.at_ask = ask_at(quote);
      }
      auction.quoted = any_slot(auction.at_bid >= 0 || auction.at_ask != kNoTick);
    }
    return auction;
  }

  // A side's total can only overflow when there is no more room: then the book is kept in global memory.
  __device__ __forceinline__ Auction submit_orders(const Seen& seen, int32_t value) {
    Auction auction = empty_auction();
    if (!roomy) {
      room -= growth();
      auction.full = room < 0;
      if (auction.full) {
        store_book();
        __syncwarp();  // before orders reach the grid
      }
    }
    if (kLevers) price_around(seen.mid2, coin());
    const int32_t mid2 = kWithCoin && !kLevers ? rounded_mid2(p, seen.mid2, coin()) : seen.mid2;
    State::submit_orders(first_word, t, mid2, seen.ret, value);
    if constexpr (kAddedClasses > 0) {
      AgentView view = added_view(*this, seen.mid2, seen.ret, kWithCoin ? coin() : 0, seen_book);
      view.t = (int32_t)t;
      outside = submit_added(*this, view, added_place(seen.mid2, 0));
      __syncwarp();  // before marketable quantities are read
    }
    Cleared& cleared = auction.cleared;
    State::price_bins(mid2, cleared.above, cleared.below);
    auction.far_buys = cleared.above, auction.far_sells = cleared.below;
    if (kWithSeries) signed_volume = auction.far_buys - auction.far_sells;
    return auction;
  }

  // Where orders of added agents go; see AddedPlace.
  __device__ __forceinline__ AddedPlace added_place(int32_t seen_mid2, uint32_t rows) const {
    const int32_t base = range_base(seen_mid2, chunks, grid);
    return {rows, base, base + kWarpLanes * chunks - 1};
  }

  // Whether a quote of this lane's slot is among the ticks around the mid, at an end of the grid, where marketable orders are.
  __device__ __forceinline__ bool shares_far_tick(const Cleared& cleared, int at_bid, int at_ask) const {
    return (at_bid == levels - 1 && cleared.top() >= at_bid) || (at_ask == 0 && cleared.base == 0);
  }

  // Under levers marketable orders may be priced at any tick. Those of the range, and of the ticks beyond which the range
  // lies, are put on the grid. Returns whether all limit orders are within the range.
  __device__ __forceinline__ bool place_marketable(Auction& auction) {
    Cleared& cleared = auction.cleared;
    const int32_t buys_at = pricing.marketable(0), sells_at = pricing.marketable(1), reach_now = lever_reach(p);
    const int32_t low = min_of(pricing.limit(middle, 0, -reach_now), pricing.limit(middle, 1, -reach_now));
    const int32_t high = max_of(pricing.limit(middle, 0, reach_now), pricing.limit(middle, 1, reach_now));
    if (buys_at <= cleared.top()) {
      if (leads()) buy[buys_at] += auction.far_buys;
      cleared.above = 0;
    }
    if (sells_at >= cleared.base) {
      if (leads()) sell[sells_at] += auction.far_sells;
      cleared.below = 0;
    }
    __syncwarp();
    return min_of(low, buys_at) >= cleared.base && max_of(high, sells_at) <= cleared.top();
  }

  // Clear the ticks around the mid if no others can trade, else the whole grid.
  __device__ __forceinline__ bool clear(const Seen& seen, Auction& auction) {
    Cleared& cleared = auction.cleared;
    Clearing& clearing = auction.clearing;
    const int at_bid = auction.at_bid, at_ask = auction.at_ask;
    cleared.chunks = chunks;
    cleared.base = range_base(seen.mid2, chunks, grid);
    bool here = !auction.full && best_bid <= cleared.top() && best_ask >= cleared.base;
    if constexpr (kAddedClasses > 0) here = here && !__any_sync(kAllLanes, outside > 0);
    if (kLevers) here = place_marketable(auction) && here;
    const bool off_grid = auction.off_grid = kOneSlot && chunks == 1;
    if (off_grid) {
      cleared.above += at_bid > cleared.top() ? quote.bid_qty : 0;
      cleared.below += at_ask < cleared.base ? quote.ask_qty : 0;
      here = here && (kLevers || !shares_far_tick(cleared, at_bid, at_ask));
    } else if (auction.quoted) {
      if (owns_slot() && cleared.holds(at_bid)) atomicAdd(buy + at_bid, quote.bid_qty);
      if (owns_slot() && cleared.holds(at_ask)) atomicAdd(sell + at_ask, quote.ask_qty);
      if (any_slot(at_bid > cleared.top() || at_ask < cleared.base)) {
        cleared.above += slot_sum(at_bid > cleared.top() ? quote.bid_qty : 0);
        cleared.below += slot_sum(at_ask < cleared.base ? quote.ask_qty : 0);
      }
      here = here && (kLevers || !any_slot(shares_far_tick(cleared, at_bid, at_ask)));
      __syncwarp();
    }
    if (off_grid) {
      clearing.template clear_chunk_with<kOptions>(cleared, at_bid, quote.bid_qty, at_ask, quote.ask_qty);
      here = here && cleared.complete();
      auction.in_registers = here;
    } else if (chunks == 1) {
      clearing.template clear_chunk<kOptions>(cleared);
      here = here && cleared.complete();
      if (here) {
        if (auction.quoted) read_totals(cleared, at_bid, at_ask, auction.bid_total, auction.ask_total);
        clearing.leave_residual(cleared.base, cleared.volume);
      }
    } else if (here) {
      if (auction.quoted) read_totals(cleared, at_bid, at_ask, auction.bid_total, auction.ask_total);
      here = clearing.template clear_chunks<kOptions>(cleared);
    }
    return here || clear_all(auction);
  }

  // Clear the whole grid, with marketable orders and all quotes on it.
  __device__ __forceinline__ bool clear_all(Auction& auction) {
    Cleared& cleared = auction.cleared;
    Clearing& clearing = auction.clearing;
    const int at_bid = auction.at_bid, at_ask = auction.at_ask;
    __syncwarp();
    if (leads()) {
      const int32_t buys_at = kLevers ? pricing.marketable(0) : levels - 1;
      const int32_t sells_at = kLevers ? pricing.marketable(1) : 0;
      if (!kLevers || buys_at > cleared.top()) buy[buys_at] += auction.far_buys;
      if (!kLevers || sells_at < cleared.base) sell[sells_at] += auction.far_sells;
    }
    __syncwarp();
    if (owns_slot() && at_bid >= 0 && (auction.off_grid || !cleared.holds(at_bid)))
      atomicAdd(buy + at_bid, quote.bid_qty);
    if (owns_slot() && at_ask != kNoTick && (auction.off_grid || !cleared.holds(at_ask)))
      atomicAdd(sell + at_ask, quote.ask_qty);
    __syncwarp();
    cleared = Cleared{0, grid / kWarpLanes, 0, 0};
    if (auction.full) {
      const uint32_t total_buy = clearing.quantity(buy, cleared), total_sell = clearing.quantity(sell, cleared);
      if (overflows(total_buy, total_sell)) {
        book_is_stored = true;
        return false;
      }
      count_room(total_buy, total_sell);
    }
    if (auction.quoted) read_totals(cleared, at_bid, at_ask, auction.bid_total, auction.ask_total);
    clearing.template clear_chunks<kOptions>(cleared);
    return true;
  }

  __device__ __forceinline__ void fill_quotes(Auction& auction) {
    Cleared& cleared = auction.cleared;
    traded = cleared.volume;
    if (auction.in_registers) leave_residual_of_one(auction.clearing, cleared, auction.at_bid, auction.at_ask);
    __syncwarp();
    if (auction.quoted && !auction.in_registers) {
      ration_quotes(cleared, ration_word(), auction.at_bid, auction.at_ask, auction.bid_total, auction.ask_total);
      if (cleared.chunks == 1) {
        const unsigned bids_left = __ballot_sync(kAllLanes, buy[cleared.base + lane] > 0);
        const unsigned asks_left = __ballot_sync(kAllLanes, sell[cleared.base + lane] > 0);
        cleared.best_bid = cleared.base + 31 - __clz(bids_left);
        cleared.best_ask = cleared.base + (asks_left ? __ffs(asks_left) - 1 : kWarpLanes);
      } else {
        cleared.best_bid = find_bid(cleared.top() + 1);
        cleared.best_ask = find_ask(cleared.base);
      }
    }
    best_bid = cleared.best_bid;
    best_ask = cleared.best_ask;
    if (best_bid < cleared.base || best_ask > cleared.top()) {  // rare: nothing is left near the mid
      if (best_bid < cleared.base) best_bid = find_bid(cleared.base);
      if (best_ask > cleared.top()) best_ask = find_ask(cleared.top() + 1);
    }
  }

  // What rests at a grid's end can only be the best of its side.
  __device__ __forceinline__ void cancel_residue(const Auction& auction) {
    if (kLevers) {
      cancel_residue_at(pricing.marketable(0), pricing.marketable(1), auction);
      return;
    }
    if (best_bid == levels - 1) {
      if (leads()) buy[levels - 1] -= min_of(buy[levels - 1], auction.far_buys);
      __syncwarp();
      best_bid = find_bid(levels);
    }
    if (best_ask == 0) {
      if (leads()) sell[0] -= min_of(sell[0], auction.far_sells);
      __syncwarp();
      best_ask = find_ask(0);
    }
  }

  __device__ __forceinline__ void cancel_residue_at(int32_t buys_at, int32_t sells_at, const Auction& auction) {
    __syncwarp();
    if (leads()) {
      buy[buys_at] -= min_of(buy[buys_at], auction.far_buys);
      sell[sells_at] -= min_of(sell[sells_at], auction.far_sells);
    }
    __syncwarp();
    if (best_bid == buys_at) best_bid = find_bid(buys_at + 1);
    if (best_ask == sells_at) best_ask = find_ask(sells_at);
  }

  __device__ __forceinline__ void end_auction() { next_auction(); }

  // Decisions ----------------------------------------------------------------------------------------------------------

  // One auction. Returns false if the market has to stop. The last argument is for one that then goes back (clock.cuh).
  template <typename Keep>
  __device__ __forceinline__ bool auction(bool has_fresh, const Quote& fresh, const Keep&) {
    bool plays = true;
    play_auction<kOptions>(*this, plays, has_fresh, fresh);
    return plays;
  }

  __device__ __forceinline__ void record(int64_t at) {
    if (kWithSeries) record_further(at);
    if (!leads()) return;
    if (launch.series_last_price) launch.series_last_price[at] = last_tick + origin;
    if (launch.series_volume) launch.series_volume[at] = traded;
    if (launch.series_fundamental) launch.series_fundamental[at] = fundamental;
    if (launch.series_mid2) launch.series_mid2[at] = mark();
  }

  __device__ __forceinline__ void record_further(int64_t at) {
    const int32_t bids = resting_at(buy, bids_in_reach(launch.reach, best_bid));
    const int32_t asks = resting_at(sell, asks_in_reach(launch.reach, best_ask, levels));
    if (leads()) write_further_series(launch, at, origin, {best_bid, best_ask, bids, asks, signed_volume});
    __syncwarp();  // the book is read
  }

  // After an auction a side holds less than 2^31.
  __device__ __forceinline__ int32_t resting_at(const int* side, const Ticks& ticks) const {
    int32_t sum = 0;
#pragma unroll 1
    for (int tick = ticks.low + lane; tick <= ticks.high; tick += kWarpLanes) sum += side[tick];
    return warp_sum(sum);
  }

  __device__ __forceinline__ void write_fills(int64_t row) {
    if (!owns_slot()) return;
    if (launch.value) launch.value[row + lane] = 2 * account.cash + account.inventory * mark();
    if (launch.fills) {
      launch.fills[2 * (row + lane)] = bought;
      launch.fills[2 * (row + lane) + 1] = sold;
    }
  }
};

// A run: all its decisions, each of them quotes and then `launch.auctions` auctions. A Market is a MarketOnChip, or one on
// the clock.
template <typename Market>
__device__ __forceinline__ void run_market(Market& market) {
  const Launch& launch = market.launch;
  market.load();
  const auto keep = [&] {
    market.store();
    market.volume = 0, market.trades = 0;
  };
#pragma unroll 1
  for (int d = 0; d < launch.decisions && !market.stopped(); ++d) {
    const int64_t row = ((int64_t)d * launch.markets + market.m) * launch.slots;
    Quote fresh = market.quote;
    const bool has_fresh = Market::kAnySlots && launch.new_quotes != nullptr;
    if (has_fresh && market.has_slot()) {
      const int32_t* q = launch.new_quotes + 4 * (row + market.slot());
      fresh = apply_pre_trade_limits(Quote{q[0], q[1], q[2], q[3]}, market.account.inventory, market.p);
    }
    market.bought = market.sold = 0;
#pragma unroll 1
    for (int a = 0; a < launch.auctions; ++a) {
      if (!market.auction(has_fresh && a == 0, fresh, keep)) break;
      if (launch.records) market.record((market.m * launch.decisions + d) * launch.auctions + a);
    }
    if (!market.stopped()) market.write_fills(row);
  }
  market.store();
}

}  // namespace ks
