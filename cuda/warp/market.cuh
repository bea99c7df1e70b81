// market.cuh: one market on one warp. The book is loaded once a launch into shared memory, lives there through
// every auction, and is stored once. Thread map, memory and chunk loop only: the rules are model/market.h's.
#pragma once

#include "warp/clearing.cuh"
#include "warp/market_state.cuh"

namespace ks {

// kSlots: no learned slots, one, or several (2). A lane holds a slot; a single one is held by all lanes alike, so that
// nothing about it has to be asked of other lanes.
template <int kBins, bool kOptions, int kSlots>
struct MarketOnChip : MarketState<kBins> {
  using State = MarketState<kBins>;
  using State::best_ask, State::best_bid, State::book_is_stored, State::buy, State::error, State::first_word,
      State::fundamental, State::grid, State::lane, State::last_tick, State::launch, State::leads, State::levels,
      State::m, State::origin, State::p, State::prev_mid2, State::reach, State::room, State::roomy, State::sell,
      State::prepared, State::stopped, State::t, State::trades, State::volume, State::words_left;
  using State::cancel, State::count_room, State::find_ask, State::find_bid, State::growth, State::hash_market_words,
      State::mark, State::market_word, State::next_auction, State::ration_word, State::shift_grid, State::store_book;

  const int32_t chunks;          // of the window that is cleared
  int32_t traded;                // in the last auction
  Quote quote;                   // of this lane's slot
  Account account;
  int64_t bought, sold;

  __device__ __forceinline__ MarketOnChip(const Launch& launch, int64_t m, const MarketParams& row, int* book, int* bins)
      : State(launch, m, row, book, bins), chunks(fixed(window_chunks(reach, grid))), traded(0), quote{0, 0, 0, 0},
        account{0, 0, 0}, bought(0), sold(0) {}

  static constexpr bool kOneSlot = kSlots == 1;

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

  // The whole interest at the ticks of this lane's quotes, before it trades.
  __device__ __forceinline__ void read_totals(const Cleared& cleared, int at_bid, int at_ask, int32_t& bid_total,
                                              int32_t& ask_total) const {
    if (cleared.holds(at_bid)) bid_total = buy[at_bid];
    if (cleared.holds(at_ask)) ask_total = sell[at_ask];
    __syncwarp();
  }

  // Each learned quote's share of what traded at its tick; built-in interest keeps the rest. On the grid is what is left
  // of the whole interest; on return that of built-in interest alone. Quotes outside the cleared ticks have traded
  // wholly or not at all.
  __device__ __forceinline__ void ration_quotes(const Cleared& cleared, uint64_t word, int at_bid, int at_ask,
                                                int32_t bid_total, int32_t ask_total) {
    const bool bids = cleared.holds(at_bid), asks = cleared.holds(at_ask);
    uint32_t bid_before = 0, ask_before = 0;  // learned quantity of lower slots at the same tick
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
    settle(account, bid_fill, ask_fill, (int64_t)last_tick + origin, p.fee);
    bought += bid_fill;
    sold += ask_fill;
    __syncwarp();
  }

  // What a single slot's quote of one side gets in the chunk that was looked at, and what built-in interest keeps of the
  // residual there. `here`: of this lane's tick, the whole interest; `left`: what is left of it.
  __device__ __forceinline__ int32_t ration_one(int32_t at, int32_t base, int32_t qty, int32_t here, int32_t& left,
                                                int half) const {
    const int32_t total = from_lane(here, at - base), traded = total - from_lane(left, at - base);
    int32_t fill = traded == total ? qty : 0;
    if (traded > 0 && traded < total) fill = ration_first(qty, traded, total, (uint32_t)(ration_word() >> half));
    if (lane == at - base) left -= qty - fill;
    return fill;
  }

  // The same of both sides, on registers, and the residual's way to the grid.
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
    settle(account, bid_fill, ask_fill, (int64_t)last_tick + origin, p.fee);
    bought += bid_fill;
    sold += ask_fill;
  }

  // The price that cleared ticks trade at.
  __device__ __forceinline__ void set_price(const Cleared& cleared, int32_t mid2) {
    traded = cleared.volume;
    if (traded > 0) last_tick = kOptions ? clearing_price(p, mid2, t, cleared.lowest, cleared.highest) : cleared.lowest;
    trades += traded > 0;
  }

  // One auction; docs/model.md numbers its parts. Returns false if the market has to stop.
  __device__ __forceinline__ bool auction(bool has_fresh, const Quote& fresh) {
    const bool walks = kOptions && (p.walk_threshold | p.jump_threshold) != 0;
    if ((kSlots || walks) && words_left == 0 && !prepared) hash_market_words();

    // 0. Options before the market opens.
    if (kOptions) {
      if (walks && !prepared) fundamental = walk_fundamental(p, market_word(kWalkWord), fundamental);
      if (p.cancel_threshold != 0) cancel();  // and find the best prices
    }

    // 1. The mid that everyone sees, then the window, then new quotes.
    int32_t bid_seen = best_bid, ask_seen = best_ask;
    if (kSlots) {
      const int32_t bid = has_slot() ? bid_tick(quote, origin, levels) : -1;
      const int32_t ask = has_slot() ? ask_tick(quote, origin, levels) : kNoTick;
      bid_seen = max_of(bid_seen, kOneSlot ? bid : warp_max(bid));
      ask_seen = min_of(ask_seen, kOneSlot ? ask : warp_min(ask));
    }
    const Seen seen = see_mid<kOptions>(p, levels, bid_seen, ask_seen, *this);
    const int32_t mid2 = seen.mid2;
    if (kOptions) {
      if (stopped()) return false;
      if (seen.shift != 0) shift_grid(seen.shift);
    }
    if (kSlots && has_fresh) quote = fresh;

    // 2. Orders. A side's total can only overflow when there is no more room: then the book is kept in global memory.
    int at_bid = -1, at_ask = kNoTick;
    bool quoted = false;
    if (kSlots) {
      if (has_slot()) {
        at_bid = bid_tick(quote, origin, levels);
        at_ask = ask_tick(quote, origin, levels);
      }
      quoted = any_slot(at_bid >= 0 || at_ask != kNoTick);
    }
    bool full = false;
    if (!roomy) {
      room -= growth();
      full = room < 0;
      if (full) {
        store_book();
        __syncwarp();  // before orders reach the grid
      }
    }
    const int32_t value = p.num_fundamental > 0 ? fundamental_direction(fundamental, mid2, origin) : 0;
    this->submit_orders(first_word, t, mid2, seen.ret, value);
    Cleared cleared;
    this->price_bins(mid2, cleared.above, cleared.below);
    const int32_t far_buys = cleared.above, far_sells = cleared.below;

    // 3. Clearing, of the ticks around the mid if they are all that can trade, else of the whole grid.
    cleared.chunks = chunks;
    cleared.base = window_base(mid2, chunks, grid);
    bool here = !full && best_bid <= cleared.top() && best_ask >= cleared.base;
    const bool off_grid = kOneSlot && chunks == 1;  // a single slot's quotes can stay in registers
    if (off_grid) {
      cleared.above += at_bid > cleared.top() ? quote.bid_qty : 0;
      cleared.below += at_ask < cleared.base ? quote.ask_qty : 0;
      here = here && at_bid != levels - 1 && at_ask != 0;
    } else if (quoted) {
      if (owns_slot() && cleared.holds(at_bid)) atomicAdd(buy + at_bid, quote.bid_qty);
      if (owns_slot() && cleared.holds(at_ask)) atomicAdd(sell + at_ask, quote.ask_qty);
      if (any_slot(at_bid > cleared.top() || at_bid == levels - 1 || at_ask < cleared.base || at_ask == 0)) {
        cleared.above += slot_sum(at_bid > cleared.top() ? quote.bid_qty : 0);
        cleared.below += slot_sum(at_ask < cleared.base ? quote.ask_qty : 0);
        if (any_slot(at_bid == levels - 1 || at_ask == 0)) here = false;  // marketable orders share that tick
      }
      __syncwarp();
    }
    Clearing clearing(buy, sell, lane);
    int32_t bid_total = 0, ask_total = 0;
    bool rationed = false;
    if (off_grid) {
      clearing.clear_chunk_with<kOptions>(cleared, at_bid, quote.bid_qty, at_ask, quote.ask_qty);
      here = here && cleared.complete();
      if (here) {
        set_price(cleared, mid2);
        leave_residual_of_one(clearing, cleared, at_bid, at_ask);
        rationed = true;
      }
    } else if (chunks == 1) {
      clearing.clear_chunk<kOptions>(cleared);
      here = here && cleared.complete();
      if (here) {
        if (quoted) read_totals(cleared, at_bid, at_ask, bid_total, ask_total);
        clearing.leave_residual(cleared.base, cleared.volume);
      }
    } else if (here) {
      if (quoted) read_totals(cleared, at_bid, at_ask, bid_total, ask_total);
      here = clearing.clear_chunks<kOptions>(cleared);
    }
    if (!here) {
      __syncwarp();
      if (leads()) {
        buy[levels - 1] += far_buys;
        sell[0] += far_sells;
      }
      __syncwarp();
      if (owns_slot() && at_bid >= 0 && (off_grid || !cleared.holds(at_bid)))
        atomicAdd(buy + at_bid, quote.bid_qty);
      if (owns_slot() && at_ask != kNoTick && (off_grid || !cleared.holds(at_ask)))
        atomicAdd(sell + at_ask, quote.ask_qty);
      __syncwarp();
      cleared = Cleared{0, grid / kWarpLanes, 0, 0};
      if (full) {
        const uint32_t total_buy = clearing.quantity(buy, cleared), total_sell = clearing.quantity(sell, cleared);
        if (overflows(total_buy, total_sell)) {
          error |= kErrorOverflow;
          book_is_stored = true;
          return false;
        }
        count_room(total_buy, total_sell);
      }
      if (quoted) read_totals(cleared, at_bid, at_ask, bid_total, ask_total);
      clearing.clear_chunks<kOptions>(cleared);
    }
    __syncwarp();

    // 4. Fills, by price priority and then pro rata.
    if (!rationed) set_price(cleared, mid2);
    if (quoted && !rationed) {
      ration_quotes(cleared, ration_word(), at_bid, at_ask, bid_total, ask_total);
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
    if (kOptions && p.residue == kResidueCancel) {  // what rests at a grid's end can only be the best of its side
      if (best_bid == levels - 1) {
        if (leads()) buy[levels - 1] -= min_of(buy[levels - 1], far_buys);
        __syncwarp();
        best_bid = find_bid(levels);
      }
      if (best_ask == 0) {
        if (leads()) sell[0] -= min_of(sell[0], far_sells);
        __syncwarp();
        best_ask = find_ask(0);
      }
    }
    volume += traded;
    next_auction();
    return true;
  }

  // One decision: its quotes, then `launch.auctions` auctions. `first` counts auctions before it.
  __device__ __forceinline__ void play(bool has_fresh, const Quote& fresh, int64_t first) {
    bought = sold = 0;
#pragma unroll 1
    for (int a = 0; a < launch.auctions; ++a) {
      if (!auction(has_fresh && a == 0, fresh)) return;
      if (launch.records) record(m * launch.decisions * launch.auctions + first + a);
    }
  }

  __device__ __forceinline__ void record(int64_t at) {
    if (!leads()) return;
    if (launch.series_last_price) launch.series_last_price[at] = last_tick + origin;
    if (launch.series_volume) launch.series_volume[at] = traded;
    if (launch.series_fundamental) launch.series_fundamental[at] = fundamental;
    if (launch.series_mid2) launch.series_mid2[at] = mark();
  }

  __device__ __forceinline__ void write_fills(int64_t row) {
    if (!owns_slot()) return;
    if (launch.value) launch.value[row + lane] = 2 * account.cash + account.inventory * mark();
    if (launch.fills) {
      launch.fills[2 * (row + lane)] = bought;
      launch.fills[2 * (row + lane) + 1] = sold;
    }
  }

  __device__ __forceinline__ void run() {
    load();
#pragma unroll 1
    for (int d = 0; d < launch.decisions && !stopped(); ++d) {
      const int64_t row = ((int64_t)d * launch.markets + m) * launch.slots;
      Quote fresh = quote;
      const bool has_fresh = kSlots && launch.new_quotes != nullptr;
      if (has_fresh && has_slot()) {
        const int32_t* q = launch.new_quotes + 4 * (row + slot());
        fresh = through_door(Quote{q[0], q[1], q[2], q[3]}, account.inventory, p);
      }
      play(has_fresh, fresh, (int64_t)d * launch.auctions);
      if (!stopped()) write_fills(row);
    }
    store();
  }
};

}  // namespace ks
