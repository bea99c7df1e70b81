// cpu_market.h: one market on one core, the C++ engine's counterpart of persistent_kernel.cuh. Loops and memory only: the
// rules are market_model.h's. Included by cpu_environment.h and market_cpu.cpp.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "market_model.h"

namespace ks {

constexpr int kBlock = 256;  // agents whose words are drawn together, so that the compiler vectorises the hashes

struct Scratch {
  explicit Scratch(int levels) : buy(levels), sell(levels), demand(levels + 1), supply(levels + 1) {}
  std::vector<int32_t> buy, sell;        // whole interest per tick
  std::vector<int32_t> demand, supply;   // demand[p] = D[p], supply[p + 1] = S[p]
};

// One market: its scalars, loaded once a launch and stored once, and its book in place.
struct Market {
  const Launch& launch;
  const int64_t m;
  const int levels, slots;
  const MarketParams& p;
  Scratch& scratch;
  int32_t *const bid, *const ask;
  int32_t prev_mid2, last_tick, origin, fundamental;
  uint64_t key;
  int64_t episode, t, volume, trades;
  Quote quotes[kMaxSlots];
  Account accounts[kMaxSlots];
  int64_t bought[kMaxSlots], sold[kMaxSlots];
  int32_t error = 0;
  int32_t traded = 0;  // volume of the last auction

  Market(const Launch& launch, int64_t m, Scratch& scratch)
      : launch(launch), m(m), levels(launch.levels), slots(launch.slots), p(launch.params[m * launch.params_stride]),
        scratch(scratch), bid(launch.bid + m * launch.levels), ask(launch.ask + m * launch.levels),
        prev_mid2(launch.prev_mid2[m]), last_tick(launch.last_tick[m]), origin(launch.price_origin[m]),
        fundamental(launch.fundamental_price[m]), key(episode_key(launch.seed[m], launch.episode[m])),
        episode(launch.episode[m]), t(launch.t[m]), volume(launch.volume[m]), trades(launch.trades[m]),
        error(launch.error[m]) {
    for (int k = 0; k < slots; ++k) {
      std::memcpy(&quotes[k], launch.quotes + 4 * (m * slots + k), sizeof(Quote));
      accounts[k] = {launch.cash[m * slots + k], launch.inventory[m * slots + k], launch.fees[m * slots + k]};
    }
  }

  void store() const {
    launch.prev_mid2[m] = prev_mid2;
    launch.last_tick[m] = last_tick;
    launch.price_origin[m] = origin;
    launch.fundamental_price[m] = fundamental;
    launch.episode[m] = episode;
    launch.t[m] = t;
    launch.volume[m] = volume;
    launch.trades[m] = trades;
    launch.error[m] = error;
    for (int k = 0; k < slots; ++k) {
      std::memcpy(launch.quotes + 4 * (m * slots + k), &quotes[k], sizeof(Quote));
      launch.cash[m * slots + k] = accounts[k].cash;
      launch.inventory[m * slots + k] = accounts[k].inventory;
      launch.fees[m * slots + k] = accounts[k].fees;
    }
  }

  bool stopped() const { return (error & (kErrorOverflow | kErrorOrigin)) != 0; }

  int32_t best_bid() const {
    int tick = levels - 1;
    while (tick >= 0 && bid[tick] <= 0) --tick;
    return tick;
  }

  int32_t best_ask() const {
    int tick = 0;
    while (tick < levels && ask[tick] <= 0) ++tick;
    return tick < levels ? tick : kNoTick;
  }

  int32_t mark() const { return mark_mid2(best_bid(), best_ask(), last_tick, origin); }

  void cancel() {
    for (int pair = 0; pair < levels / 2; ++pair) {
      uint64_t word = random_word(key, t, kCancelWord + pair);
      for (int tick = 2 * pair; tick < 2 * pair + 2; ++tick) {
        bid[tick] = after_cancel(bid[tick], p.cancel_threshold, word, tick, 0);
        ask[tick] = after_cancel(ask[tick], p.cancel_threshold, word, tick, 1);
      }
    }
  }

  void shift_grid(int32_t shift) {
    for (int32_t* side : {bid, ask}) {
      int kept = std::max(0, levels - std::abs(shift));
      if (shift > 0) {
        std::memmove(side, side + std::min(shift, levels), kept * sizeof(int32_t));
        std::fill(side + kept, side + levels, 0);
      } else {
        std::memmove(side + levels - kept, side, kept * sizeof(int32_t));
        std::fill(side, side + levels - kept, 0);
      }
    }
  }

  // Orders of noise agents: every one has its own tick.
  void noise_orders(int32_t mid2, int64_t& market_buys, int64_t& market_sells) {
    int32_t tick[kBlock], qty[kBlock], on_sell_side[kBlock];
    int32_t *buy = scratch.buy.data(), *sell = scratch.sell.data();
    for (int first = 0; first < p.num_noise; first += kBlock) {
      const int count = std::min(kBlock, p.num_noise - first);
      const uint64_t counter = word_counter(key, t, first);
      int32_t bought = 0, sold = 0;
      for (int i = 0; i < count; ++i) {
        uint64_t word = mix64(counter + (uint64_t)i * kGolden);
        bool buys = word_is_buy(word), marketable = word_is_marketable(word, p.market_order_threshold);
        qty[i] = word_quantity(word, p.max_order_qty);
        int32_t near = price_near_mid(mid2, word_offset(word, p.noise_spread), levels);
        tick[i] = marketable ? (buys ? levels - 1 : 0) : near;
        on_sell_side[i] = !buys;
        bought += marketable && buys ? qty[i] : 0;
        sold += marketable && !buys ? qty[i] : 0;
      }
      for (int i = 0; i < count; ++i) (on_sell_side[i] ? sell : buy)[tick[i]] += qty[i];
      market_buys += bought;
      market_sells += sold;
    }
  }

  // Orders of momentum or fundamental agents: only four places, so sums will do.
  void directional_orders(int first, int count, int32_t direction, int32_t mid2, int64_t& market_buys,
                          int64_t& market_sells) {
    const uint64_t counter = word_counter(key, t, first);
    int32_t near_buys = 0, near_sells = 0, far_buys = 0, far_sells = 0;
    for (int i = 0; i < count; ++i) {
      uint64_t word = mix64(counter + (uint64_t)i * kGolden);
      int32_t qty = word_quantity(word, p.max_order_qty);
      bool buys = directional_buys(direction, word), marketable = word_is_marketable(word, p.market_order_threshold);
      near_buys += buys && !marketable ? qty : 0;
      near_sells += !buys && !marketable ? qty : 0;
      far_buys += buys && marketable ? qty : 0;
      far_sells += !buys && marketable ? qty : 0;
    }
    scratch.buy[price_near_mid(mid2, 1, levels)] += near_buys;
    scratch.sell[price_near_mid(mid2, -1, levels)] += near_sells;
    scratch.buy[levels - 1] += far_buys;
    scratch.sell[0] += far_sells;
    market_buys += far_buys;
    market_sells += far_sells;
  }

  void maker_orders(int32_t mid2) {
    const uint64_t counter = word_counter(key, t, p.first_maker);
    int32_t buys = 0, sells = 0;
    for (int i = 0; i < p.num_maker; ++i) {
      int32_t qty = word_quantity(mix64(counter + (uint64_t)i * kGolden), p.max_order_qty);
      bool buy = maker_buys(p.first_maker + i, t);
      buys += buy ? qty : 0;
      sells += buy ? 0 : qty;
    }
    scratch.buy[price_near_mid(mid2, -p.maker_half_spread, levels)] += buys;
    scratch.sell[price_near_mid(mid2, p.maker_half_spread, levels)] += sells;
  }

  // Give each learned quote its share of what traded at its tick; built-in interest keeps the rest.
  void ration_quotes(int64_t price) {
    int32_t *buy = scratch.buy.data(), *sell = scratch.sell.data();
    const uint64_t word = random_word(key, t, kRationWord);
    int32_t fills[2][kMaxSlots] = {}, ticks[2][kMaxSlots];
    for (int side = 0; side < 2; ++side) {
      const int32_t* total = side ? sell : buy;
      const int32_t* left = side ? ask : bid;  // whole residual interest so far
      for (int k = 0; k < slots; ++k) {
        const Quote& q = quotes[k];
        int32_t tick = side ? ask_tick(q, origin, levels) : bid_tick(q, origin, levels);
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
      settle(accounts[k], fills[0][k], fills[1][k], price, p.fee);
      bought[k] += fills[0][k];
      sold[k] += fills[1][k];
    }
  }

  // One auction; docs/model.md numbers its parts. `fresh` are new quotes or null.
  void auction(const Quote* fresh) {
    // 0. Options before the market opens.
    if ((p.walk_threshold | p.jump_threshold) != 0)
      fundamental = walk_fundamental(p, random_word(key, t, kWalkWord), fundamental);
    if (p.cancel_threshold != 0) cancel();

    // 1. The mid that everyone sees, then the window, then new quotes.
    int32_t best_buy = best_bid(), best_sell = best_ask();
    for (int k = 0; k < slots; ++k) {
      best_buy = std::max(best_buy, bid_tick(quotes[k], origin, levels));
      best_sell = std::min(best_sell, ask_tick(quotes[k], origin, levels));
    }
    int32_t mid2 = best_buy >= 0 && best_sell != kNoTick ? best_buy + best_sell : 2 * last_tick;
    const int32_t ret = sign_of((int64_t)mid2 - prev_mid2);
    prev_mid2 = mid2;
    if (int32_t shift = window_shift(p, mid2, levels)) {
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
    if (fresh != nullptr) std::copy(fresh, fresh + slots, quotes);

    // 2. Orders.
    int32_t *buy = scratch.buy.data(), *sell = scratch.sell.data();
    std::memcpy(buy, bid, levels * sizeof(int32_t));
    std::memcpy(sell, ask, levels * sizeof(int32_t));
    int64_t market_buys = 0, market_sells = 0;
    noise_orders(mid2, market_buys, market_sells);
    if (p.num_momentum > 0) directional_orders(p.first_momentum, p.num_momentum, ret, mid2, market_buys, market_sells);
    if (p.num_maker > 0) maker_orders(mid2);
    if (p.num_fundamental > 0) {
      directional_orders(p.first_fundamental, p.num_fundamental, fundamental_direction(fundamental, mid2, origin), mid2,
                         market_buys, market_sells);
    }
    bool quoted = false;
    for (int k = 0; k < slots; ++k) {
      int32_t at_bid = bid_tick(quotes[k], origin, levels), at_ask = ask_tick(quotes[k], origin, levels);
      if (at_bid >= 0) buy[at_bid] += quotes[k].bid_qty, quoted = true;
      if (at_ask != kNoTick) sell[at_ask] += quotes[k].ask_qty, quoted = true;
    }

    // 3. Clearing. Ticks above 2^31 wrap to negative int32 but sum right as uint32, which the overflow check reads.
    int32_t *demand = scratch.demand.data(), *supply = scratch.supply.data();
    uint32_t buy_total = 0, sell_total = 0;
    for (int tick = 0; tick < levels; ++tick) {
      supply[tick] = (int32_t)sell_total;
      sell_total += (uint32_t)sell[tick];
    }
    supply[levels] = (int32_t)sell_total;
    demand[levels] = 0;
    for (int tick = levels - 1; tick >= 0; --tick) demand[tick] = (int32_t)(buy_total += (uint32_t)buy[tick]);
    if (overflows(buy_total, sell_total)) {
      error |= kErrorOverflow;
      return;
    }
    int32_t best = 0;
    for (int tick = 0; tick < levels; ++tick) best = std::max(best, executable_volume(demand[tick], supply[tick + 1]));
    traded = best;

    // 4. Fills, by price priority and then pro rata.
    for (int tick = 0; tick < levels; ++tick) {
      bid[tick] = residual_at_tick(best, demand[tick], buy[tick]);
      ask[tick] = residual_at_tick(best, supply[tick + 1], sell[tick]);
    }
    if (best > 0) {
      int32_t lowest = 0, highest = -1;
      for (int tick = 0; tick < levels; ++tick) {
        lowest += supply[tick + 1] < best;
        highest += demand[tick] >= best;
      }
      last_tick = clearing_price(p, mid2, t, lowest, highest);
      trades += 1;
    }
    if (quoted) ration_quotes((int64_t)last_tick + origin);
    if (p.residue != 0) {
      bid[levels - 1] -= (int32_t)std::min<int64_t>(bid[levels - 1], market_buys);
      ask[0] -= (int32_t)std::min<int64_t>(ask[0], market_sells);
    }
    volume += best;
    t += 1;
  }

  // One decision: its quotes (null: standing ones stay), then `launch.auctions` auctions. `first` counts auctions of
  // this launch before it, for the series.
  void decision(const Quote* fresh, int64_t first) {
    Quote admitted[kMaxSlots];
    for (int k = 0; k < slots; ++k) {
      bought[k] = sold[k] = 0;
      if (fresh != nullptr) admitted[k] = through_door(fresh[k], accounts[k].inventory, p);
    }
    const int64_t length = (int64_t)launch.decisions * launch.auctions;
    for (int a = 0; a < launch.auctions && !stopped(); ++a) {
      auction(a == 0 && fresh != nullptr ? admitted : nullptr);
      if (stopped()) return;
      const int64_t at = m * length + first + a;
      if (launch.series_last_price) launch.series_last_price[at] = last_tick + origin;
      if (launch.series_volume) launch.series_volume[at] = traded;
      if (launch.series_mid2) launch.series_mid2[at] = mark();
      if (launch.series_fundamental) launch.series_fundamental[at] = fundamental;
    }
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
      if (launch.new_quotes) std::memcpy(fresh, launch.new_quotes + 4 * row, slots * sizeof(Quote));
      decision(launch.new_quotes ? fresh : nullptr, (int64_t)d * launch.auctions);
      if (!stopped()) write_fills(row);
    }
    store();
  }
};

}  // namespace ks
