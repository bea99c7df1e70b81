// persistent_kernel.cuh: one market on one group of threads. The book is loaded once a launch into registers (kTicks a
// thread), lives there through every auction, and is stored once; orders meet in a shared-memory histogram through
// integer atomics. Thread map, scans and chunk loop only: the rules are market_model.h's.
#pragma once

#include "market_group.cuh"
#include "market_model.h"

namespace ks {

template <int kLevels, int kWarps, bool kOptions, bool kSlots>
struct MarketOnChip {
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kTicks = kLevels > kThreads ? kLevels / kThreads : 1;
  static constexpr int kGrid = kThreads * kTicks;  // kLevels, or 32 for the smallest grids
  static constexpr int kSharedInts = 2 * kGrid + Group<kWarps>::kScratch;

  static __device__ __forceinline__ int shared_ints(int) { return kSharedInts; }

  const Launch& launch;
  const int64_t m;
  const MarketParams p;
  Group<kWarps> group;
  int* const buy;   // shared [kGrid]
  int* const sell;  // shared [kGrid]
  const int first_tick;

  int32_t bid[kTicks], ask[kTicks];  // the resting book, this thread's ticks
  int32_t prev_mid2, last_tick, origin, fundamental;
  uint64_t key;
  int64_t episode, t, volume, trades;
  int32_t error, traded;
  Quote quote;      // lane k of warp 0 holds slot k
  Account account;
  int64_t bought, sold;

  __device__ __forceinline__ MarketOnChip(const Launch& launch, int64_t m, int* shared)
      : launch(launch), m(m), p(launch.params[m * launch.params_stride]), group(shared + 2 * kGrid), buy(shared),
        sell(shared + kGrid), first_tick(group.thread() * kTicks), quote{0, 0, 0, 0}, account{0, 0, 0} {
    load_book(launch.bid + m * kLevels, launch.ask + m * kLevels);
    prev_mid2 = launch.prev_mid2[m];
    last_tick = launch.last_tick[m];
    origin = launch.price_origin[m];
    fundamental = launch.fundamental_price[m];
    episode = launch.episode[m];
    key = episode_key(launch.seed[m], episode);
    t = launch.t[m];
    volume = launch.volume[m];
    trades = launch.trades[m];
    error = launch.error[m];
    traded = 0;
    bought = sold = 0;
    if (owns_slot()) {
      const int64_t row = m * launch.slots + group.lane;
      const int32_t* q = launch.quotes + 4 * row;
      quote = Quote{q[0], q[1], q[2], q[3]};
      account = Account{launch.cash[row], launch.inventory[row], launch.fees[row]};
    }
  }

  __device__ __forceinline__ bool owns_slot() const {
    return kSlots && group.warp == 0 && group.lane < launch.slots;
  }
  __device__ __forceinline__ bool leads() const { return group.thread() == 0; }
  __device__ __forceinline__ bool stopped() const { return (error & (kErrorOverflow | kErrorOrigin)) != 0; }

  __device__ __forceinline__ void load_book(const int32_t* from_bid, const int32_t* from_ask) {
#pragma unroll
    for (int i = 0; i < kTicks; ++i) {
      const bool on_grid = kGrid == kLevels || first_tick + i < kLevels;
      bid[i] = on_grid ? from_bid[first_tick + i] : 0;
      ask[i] = on_grid ? from_ask[first_tick + i] : 0;
    }
  }

  __device__ __forceinline__ void store() {
#pragma unroll
    for (int i = 0; i < kTicks; ++i) {
      if (kGrid == kLevels || first_tick + i < kLevels) {
        launch.bid[m * kLevels + first_tick + i] = bid[i];
        launch.ask[m * kLevels + first_tick + i] = ask[i];
      }
    }
    store_slots();
    if (leads()) {
      launch.prev_mid2[m] = prev_mid2;
      launch.last_tick[m] = last_tick;
      launch.price_origin[m] = origin;
      launch.fundamental_price[m] = fundamental;
      launch.episode[m] = episode;
      launch.t[m] = t;
      launch.volume[m] = volume;
      launch.trades[m] = trades;
      launch.error[m] = error;
    }
  }

  __device__ __forceinline__ void store_slots() {
    if (!owns_slot()) return;
    const int64_t row = m * launch.slots + group.lane;
    int32_t* q = launch.quotes + 4 * row;
    q[0] = quote.bid_price, q[1] = quote.bid_qty, q[2] = quote.ask_price, q[3] = quote.ask_qty;
    launch.cash[row] = account.cash;
    launch.inventory[row] = account.inventory;
    launch.fees[row] = account.fees;
  }

  // Copy this thread's resting ticks into the histogram.
  __device__ __forceinline__ void publish() {
#pragma unroll
    for (int i = 0; i < kTicks; ++i) {
      buy[first_tick + i] = bid[i];
      sell[first_tick + i] = ask[i];
    }
  }

  // Best resting prices of this thread's ticks.
  __device__ __forceinline__ void local_best(int32_t& best_bid, int32_t& best_ask) const {
    best_bid = -1;
    best_ask = kNoTick;
#pragma unroll
    for (int i = 0; i < kTicks; ++i) {
      if (bid[i] > 0) best_bid = first_tick + i;
      if (ask[kTicks - 1 - i] > 0) best_ask = first_tick + kTicks - 1 - i;
    }
  }

  __device__ __forceinline__ void group_best(int32_t& best_bid, int32_t& best_ask) {
    int32_t negative_ask = -best_ask;
    group.max_pair(best_bid, negative_ask);
    best_ask = -negative_ask;
  }

  // The mark: the doubled mid of the built-in resting book.
  __device__ __forceinline__ int32_t mark() {
    int32_t best_bid, best_ask;
    local_best(best_bid, best_ask);
    group_best(best_bid, best_ask);
    return mark_mid2(best_bid, best_ask, last_tick, origin);
  }

  __device__ __forceinline__ void cancel() {
    uint64_t word = 0;
#pragma unroll
    for (int i = 0; i < kTicks; ++i) {
      const int tick = first_tick + i;
      if (kTicks == 1 || i % 2 == 0) word = random_word(key, t, kCancelWord + tick / 2);
      bid[i] = after_cancel(bid[i], p.cancel_threshold, word, tick, 0);
      ask[i] = after_cancel(ask[i], p.cancel_threshold, word, tick, 1);
    }
  }

  // new[tick] = old[tick + shift]; rare, so through shared memory.
  __device__ __forceinline__ void shift_grid(int32_t shift) {
    publish();
    group.sync();
#pragma unroll
    for (int i = 0; i < kTicks; ++i) {
      const int from = first_tick + i + shift;
      const bool kept = from >= 0 && from < kLevels && first_tick + i < kLevels;
      bid[i] = kept ? buy[from] : 0;
      ask[i] = kept ? sell[from] : 0;
    }
    group.sync();
  }

  // Put one order into the histogram. Selects rather than branches: in most rounds some lane would take each branch.
  __device__ __forceinline__ void submit(bool buys, int32_t tick, int32_t qty, bool marketable, int32_t& far_buys,
                                         int32_t& far_sells) {
    const int near_place = tick + (buys ? 0 : kGrid);  // sell follows buy in shared memory
    const int far_place = buys ? kLevels - 1 : kGrid;
    atomicAdd(buy + (marketable ? far_place : near_place), qty);
    if (kOptions) {  // residue="cancel" needs to know
      far_buys += marketable && buys ? qty : 0;
      far_sells += marketable && !buys ? qty : 0;
    }
  }

  // Every built-in agent's order; returns what this thread's agents submitted as marketable.
  __device__ __forceinline__ void submit_orders(int32_t mid2, int32_t ret, int32_t& far_buys, int32_t& far_sells) {
    far_buys = far_sells = 0;
    uint64_t counter = word_counter(key, t, group.thread());
    int a = group.thread();
    // Rounds in which every thread has a noise agent need no question of class.
    for (int round = p.num_noise / kThreads; round > 0; --round) {
      const uint64_t word = mix64(counter);
      submit(word_is_buy(word), price_near_mid(mid2, word_offset(word, p.noise_spread), kLevels),
             word_quantity(word, p.max_order_qty), word_is_marketable(word, p.market_order_threshold), far_buys, far_sells);
      counter += kThreads * kGolden;
      a += kThreads;
    }
    const int agents = num_agent_indices(p);
    const int32_t value_direction = p.num_fundamental > 0 ? fundamental_direction(fundamental, mid2, origin) : 0;
    for (; a < agents; a += kThreads) {
      const uint64_t word = mix64(counter);
      counter += kThreads * kGolden;
      const bool after_noise = a >= p.first_momentum, after_momentum = a >= p.first_maker;
      const bool valued = a >= p.first_fundamental, makes = after_momentum && !valued;
      const int last = !after_noise ? p.num_noise                                        // replaced agents, the last
                       : !after_momentum ? p.first_momentum + p.num_momentum : makes ? p.first_maker + p.num_maker : agents;
      const int32_t direction = valued ? value_direction : after_noise && !makes ? ret : 0;
      const bool buys = makes ? maker_buys(a, t) : directional_buys(direction, word);
      const int32_t step = makes ? -p.maker_half_spread : 1;
      const int32_t offset = after_noise ? (buys ? step : -step) : word_offset(word, p.noise_spread);
      const bool marketable = !makes && word_is_marketable(word, p.market_order_threshold);
      if (a < last)
        submit(buys, price_near_mid(mid2, offset, kLevels), word_quantity(word, p.max_order_qty), marketable, far_buys,
               far_sells);
    }
  }

  // Each learned quote's share of what traded at its tick; built-in interest keeps the rest. `residual` holds what is
  // left of the whole interest per tick, this thread's ticks; on return that of built-in interest alone.
  __device__ __forceinline__ void ration_quotes(int at_bid, int at_ask) {
    const bool bids = at_bid >= 0, asks = at_ask != kNoTick;
    const int32_t bid_total = bids ? buy[at_bid] : 0, ask_total = asks ? sell[at_ask] : 0;
    uint32_t bid_before = 0, ask_before = 0;  // learned quantity of lower slots at the same tick
    if (group.warp == 0) {
      for (int j = 0; j < launch.slots; ++j) {
        const int other_bid = __shfl_sync(kAllLanes, at_bid, j), other_ask = __shfl_sync(kAllLanes, at_ask, j);
        const int bid_qty = __shfl_sync(kAllLanes, quote.bid_qty, j), ask_qty = __shfl_sync(kAllLanes, quote.ask_qty, j);
        if (j < group.lane && other_bid == at_bid) bid_before += bid_qty;
        if (j < group.lane && other_ask == at_ask) ask_before += ask_qty;
      }
    }
    group.sync();  // totals are read
    publish();     // the whole residual
    group.sync();
    const uint64_t word = random_word(key, t, kRationWord);
    int32_t bid_fill = 0, ask_fill = 0;
    if (bids) bid_fill = ration(bid_before, quote.bid_qty, bid_total - buy[at_bid], bid_total, (uint32_t)word);
    if (asks) ask_fill = ration(ask_before, quote.ask_qty, ask_total - sell[at_ask], ask_total, (uint32_t)(word >> 32));
    group.sync();  // residuals are read
    quote.bid_qty -= bid_fill;
    quote.ask_qty -= ask_fill;
    if (bids) atomicSub(buy + at_bid, quote.bid_qty);
    if (asks) atomicSub(sell + at_ask, quote.ask_qty);
    settle(account, bid_fill, ask_fill, (int64_t)last_tick + origin, p.fee);
    bought += bid_fill;
    sold += ask_fill;
    group.sync();
#pragma unroll
    for (int i = 0; i < kTicks; ++i) {
      bid[i] = buy[first_tick + i];
      ask[i] = sell[first_tick + i];
    }
  }

  // One auction; docs/model.md numbers its parts.
  __device__ __forceinline__ void auction(bool has_fresh, const Quote& fresh) {
    // 0. Options before the market opens.
    if (kOptions) {
      if ((p.walk_threshold | p.jump_threshold) != 0)
        fundamental = walk_fundamental(p, random_word(key, t, kWalkWord), fundamental);
      if (p.cancel_threshold != 0) cancel();
    }

    // 1. The mid that everyone sees, then the window, then new quotes.
    int32_t best_bid, best_ask;
    local_best(best_bid, best_ask);
    if (owns_slot()) {
      best_bid = max_of(best_bid, bid_tick(quote, origin, kLevels));
      best_ask = min_of(best_ask, ask_tick(quote, origin, kLevels));
    }
    group_best(best_bid, best_ask);
    int32_t mid2 = best_bid >= 0 && best_ask != kNoTick ? best_bid + best_ask : 2 * last_tick;
    const int32_t ret = sign_of((int64_t)mid2 - prev_mid2);
    prev_mid2 = mid2;
    if (kOptions) {
      if (const int32_t shift = window_shift(p, mid2, kLevels)) {
        if (!origin_in_range(origin, shift)) {
          error |= kErrorOrigin;
          return;
        }
        shift_grid(shift);
        mid2 -= 2 * shift;
        prev_mid2 = mid2;
        last_tick -= shift;
        origin += shift;
      }
    }
    if (kSlots && has_fresh) quote = fresh;

    // 2. Orders.
    publish();
    group.sync();
    int32_t far_buys, far_sells;
    submit_orders(mid2, ret, far_buys, far_sells);
    int at_bid = -1, at_ask = kNoTick;
    bool quoted = false;
    if (kSlots) {
      if (owns_slot()) {
        at_bid = bid_tick(quote, origin, kLevels);
        at_ask = ask_tick(quote, origin, kLevels);
        if (at_bid >= 0) atomicAdd(buy + at_bid, quote.bid_qty);
        if (at_ask != kNoTick) atomicAdd(sell + at_ask, quote.ask_qty);
      }
      const bool mine = at_bid >= 0 || at_ask != kNoTick;
      quoted = kWarps > 1 ? __syncthreads_or(mine) : __any_sync(kAllLanes, mine);
    }
    group.sync();

    // 3. Clearing: demand is the total less a prefix sum, so one scan direction serves both sides.
    int32_t demand[kTicks + 1], supply[kTicks + 1];  // D[p], and S[p - 1], of this thread's ticks and the next
    int32_t here_buy[kTicks], here_sell[kTicks];
    uint32_t sum_buy = 0, sum_sell = 0;
#pragma unroll
    for (int i = 0; i < kTicks; ++i) {
      here_buy[i] = buy[first_tick + i];
      here_sell[i] = sell[first_tick + i];
      sum_buy += here_buy[i];
      sum_sell += here_sell[i];
    }
    uint32_t before_buy, before_sell, total_buy, total_sell;
    group.scan_pair(sum_buy, sum_sell, before_buy, before_sell, total_buy, total_sell);
    if (overflows(total_buy, total_sell)) {
      error |= kErrorOverflow;
      return;
    }
    demand[0] = (int32_t)(total_buy - before_buy);
    supply[0] = (int32_t)before_sell;
    int32_t best = 0;
#pragma unroll
    for (int i = 0; i < kTicks; ++i) {
      demand[i + 1] = demand[i] - here_buy[i];
      supply[i + 1] = supply[i] + here_sell[i];
      best = max_of(best, executable_volume(demand[i], supply[i + 1]));
    }
    best = group.max_one(best);
    traded = best;
    if (best > 0) {
      int32_t below = 0, reached = 0;
#pragma unroll
      for (int i = 0; i < kTicks; ++i) {
        below += supply[i + 1] < best && (kGrid == kLevels || first_tick + i < kLevels);
        if (kOptions) reached += demand[i] >= best;
      }
      below = group.sum_one(below);
      if (kOptions) reached = group.sum_one(reached);
      last_tick = clearing_price(p, mid2, t, below, reached - 1);
      trades += 1;
    }

    // 4. Fills, by price priority and then pro rata.
#pragma unroll
    for (int i = 0; i < kTicks; ++i) {
      bid[i] = residual_at_tick(best, demand[i], here_buy[i]);
      ask[i] = residual_at_tick(best, supply[i + 1], here_sell[i]);
    }
    if (kSlots && quoted) ration_quotes(at_bid, at_ask);
    if (kOptions && p.residue != 0) {
      far_buys = group.sum_one(far_buys);
      far_sells = group.sum_one(far_sells);
      if (first_tick == 0) ask[0] -= min_of(ask[0], far_sells);
#pragma unroll
      for (int i = 0; i < kTicks; ++i)
        if (first_tick + i == kLevels - 1) bid[i] -= min_of(bid[i], far_buys);
    }
    volume += best;
    t += 1;
    group.sync();  // the histogram is free again
  }

  // One decision: its quotes (through the door), then `launch.auctions` auctions. `first` counts auctions before it.
  __device__ __forceinline__ void decision(bool has_fresh, Quote fresh, int64_t first) {
    bought = sold = 0;
    if (kSlots && has_fresh) fresh = through_door(fresh, account.inventory, p);
    const int64_t length = (int64_t)launch.decisions * launch.auctions;
    const bool records = launch.series_last_price || launch.series_volume || launch.series_fundamental || launch.series_mid2;
    for (int a = 0; a < launch.auctions && !stopped(); ++a) {
      auction(has_fresh && a == 0, fresh);
      if (stopped()) return;
      if (!records) continue;
      const int64_t at = m * length + first + a;
      if (launch.series_last_price && leads()) launch.series_last_price[at] = last_tick + origin;
      if (launch.series_volume && leads()) launch.series_volume[at] = traded;
      if (launch.series_fundamental && leads()) launch.series_fundamental[at] = fundamental;
      if (launch.series_mid2) {
        const int32_t mid2 = mark();
        if (leads()) launch.series_mid2[at] = mid2;
      }
    }
  }

  __device__ __forceinline__ void write_fills(int64_t row) {
    if (!kSlots) return;
    if (launch.value) {
      const int32_t mid2 = mark();
      if (owns_slot()) launch.value[row + group.lane] = 2 * account.cash + account.inventory * mid2;
    }
    if (launch.fills && owns_slot()) {
      launch.fills[2 * (row + group.lane)] = bought;
      launch.fills[2 * (row + group.lane) + 1] = sold;
    }
  }

  __device__ __forceinline__ void run() {
    for (int d = 0; d < launch.decisions && !stopped(); ++d) {
      const int64_t row = ((int64_t)d * launch.markets + m) * launch.slots;
      Quote fresh = quote;
      const bool has_fresh = kSlots && launch.new_quotes != nullptr;
      if (has_fresh && owns_slot()) {
        const int32_t* q = launch.new_quotes + 4 * (row + group.lane);
        fresh = Quote{q[0], q[1], q[2], q[3]};
      }
      decision(has_fresh, fresh, (int64_t)d * launch.auctions);
      if (!stopped()) write_fills(row);
    }
    store();
  }
};

}  // namespace ks
