// call.h: call auctions order by order, with and without the clock. Orders of an interval wait, then all clear at one price.
// Who trades is decided by price, then by time; quotes of slots get their share of a tick first.
#pragma once

#include "tape/market.h"

namespace ks::tape {

struct CallTape : TapeMarket {
  OrderBook waiting;
  int64_t marketable[2] = {0, 0};  // units of the interval's marketable orders
  std::vector<int64_t> all[2];     // of an auction, by tick: orders and quotes

  explicit CallTape(const Launch& of) : TapeMarket(of), waiting(of.levels) {}

  void interval(const Quote* fresh, const int32_t*) override {
    begin_interval();
    marketable[0] = marketable[1] = 0;
    if (on_clock()) play_events(fresh);
    else play_each(fresh);
  }

  // Every agent once: as model/auction.h has it.
  void play_each(const Quote* fresh) {
    change_regime_and_fundamental(t);
    set_pricing(last_tick, t);
    if (now.cancel_threshold != 0) cancel(t);
    const BestPrices best = best_prices();
    const Seen seen = see_mid<true>(p, levels, best.bid, best.ask, *this);
    if (seen.shift != 0) {
      origin -= seen.shift;  // what leaves the grid has its price by the old one
      move_grid(seen.shift);
      origin += seen.shift;
    }
    ret = seen.ret;
    set_pricing(last_tick, t);
    if (launch.agent_classes > 0) look(t, seen.mid2);
    if (fresh) replace_quotes(fresh, last_tick + origin);
    const int32_t first[4] = {0, p.first_momentum, p.first_maker, p.first_fundamental};
    const int32_t count[4] = {p.num_noise, p.num_momentum, p.num_maker, p.num_fundamental};
    for (uint8_t who = 0; who < 4; ++who)
      for (int32_t agent = first[who]; agent < first[who] + count[who]; ++agent)
        wait(built_in_order(agent, who, t, random_word(key, t, (uint64_t)agent), seen.mid2));
    for (int32_t agent = first_added_agent(launch, p); launch.agent_classes > 0 && agent < p.levers.num_agents; ++agent)
      wait(added_order(agent, random_word(key, t, (uint64_t)agent)));
    clear(seen.mid2);
  }

  void play_events(const Quote* fresh) {
    if (p.window > 0) follow_mid();
    beat_price = last_tick + origin;
    set_pricing(grid_tick(beat_price, origin), (int64_t)(g / (uint32_t)p.levers.beat));
    int32_t mid = mid2();  // nothing that rests changes before the next beat
    for (const uint64_t end = g + (uint32_t)p.levers.interval; g < end; set_event(g + 1)) {
      if (g % (uint32_t)p.levers.beat == 0) take_beat(), mid = mid2();
      wait(coming(mid));
    }
    if (fresh) replace_quotes(fresh, beat_price);
    clear(mid);
  }

  void take_beat() {
    const uint64_t events = (uint32_t)p.levers.interval, since = (uint32_t)p.levers.beat;
    const int64_t beat = (int64_t)(g / since);
    change_regime_and_fundamental(beat);
    if (now.cancel_threshold != 0) cancel(beat);
    if (g == 0 || g / events > (g - since) / events) take_return();
    set_pricing(grid_tick(beat_price, origin), beat);
  }

  // From what rests and waits at a tick together; the loss comes out of what rests first.
  void cancel(int64_t beat) {
    for (int side = 0; side < 2; ++side) {
      const uint32_t u32 = place_half(beat, side);
      for (int32_t tick = 0; tick < levels; ++tick) {
        const int32_t rests = book.units[side][(std::size_t)tick], waits = waiting.units[side][(std::size_t)tick];
        if (rests + waits == 0) continue;
        const int32_t loss = loss_at(beat, side, tick, rests + waits), taken = std::min(loss, rests);
        lose(book, side, tick, taken, u32);
        lose(waiting, side, tick, loss - taken, u32);
      }
    }
  }

  void wait(const Coming& coming) {
    if (coming.quantity == 0) return;
    const Order order = numbered(coming);
    rows.submit(order, coming.side, coming.tick + origin);
    waiting.rest(coming.side, coming.tick, order);
    if (coming.marketable) marketable[coming.side] += coming.quantity;
  }

  void replace_quotes(const Quote* fresh, int32_t last) {
    for (int k = 0; k < slots; ++k) {
      for (int side = 0; side < 2; ++side) withdraw(k, side, quantity(k, side), kWithdrawn);
      quotes[k] = quote_under_levers(p, apply_pre_trade_limits(fresh[k], accounts[k].inventory, p), last);
      for (int side = 0; side < 2; ++side) submit_quote(k, side);
    }
  }

  // The auction --------------------------------------------------------------------------------------------------------

  // What an order trades in the auction; `order` is as it is after that.
  struct Fill {
    Order order;
    int32_t units;
  };

  void clear(int32_t mid) {
    for (int side = 0; side < 2; ++side) {
      for (int32_t tick = 0; tick < levels; ++tick) {
        if (waiting.units[side][(std::size_t)tick] == 0) continue;
        for (const Order& order : waiting.queues[side][(std::size_t)tick]) book.rest(side, tick, order);
        waiting.queues[side][(std::size_t)tick].clear();
        waiting.units[side][(std::size_t)tick] = 0;
      }
    }
    waiting.best[0] = -1, waiting.best[1] = kNoTick;
    int64_t demand = 0;
    for (int side = 0; side < 2; ++side) {
      all[side].assign(book.units[side].begin(), book.units[side].end());
      for (int k = 0; k < slots; ++k)
        if (quote_tick(k, side) >= 0) all[side][(std::size_t)quote_tick(k, side)] += quantity(k, side);
    }
    for (const int64_t units : all[0]) demand += units;
    int64_t above = demand, below = 0, most = 0;
    int32_t lowest = 0, highest = 0;
    for (int32_t tick = 0; tick < levels; ++tick) {
      below += all[1][(std::size_t)tick];
      const int64_t executable = std::min(above, below);
      above -= all[0][(std::size_t)tick];
      if (executable > most) most = executable, lowest = tick;
      if (executable == most) highest = tick;
    }
    if (most > 0) {
      last_tick = clearing_price_under_levers(p, levels, origin, mid, t, lowest, highest);
      volume += most, trades += 1;
      const uint64_t word = random_word(key, t, kRationWord);
      report(fill(0, most, low_half(word)), fill(1, most, high_half(word)));
    }
    if (p.residue == kResidueCancel) cancel_residue();
    t += 1;
  }

  // Fill a side's orders: better prices first, at a tick the quotes' shares and then the oldest orders.
  std::vector<Fill> fill(int side, int64_t left, uint32_t u32) {
    std::vector<Fill> fills;
    for (int32_t i = 0; i < levels && left > 0; ++i) {
      const int32_t tick = side ? i : levels - 1 - i;
      const int64_t total = all[side][(std::size_t)tick], traded = std::min(left, total);
      left -= traded;
      int64_t rest = traded;
      uint32_t before = 0;
      for (int k = 0; k < slots && traded > 0; ++k) {
        if (quote_tick(k, side) != tick) continue;
        const int32_t asked = quantity(k, side);
        const int32_t units = ration(before, (uint32_t)asked, (uint32_t)traded, (uint32_t)total, u32);
        before += (uint32_t)asked;
        rest -= units;
        shares[side][k] = units;
        if (units > 0) fills.push_back({quote_order(k, side), units}), fills.back().order.left -= units;
      }
      book.take(side, tick, (int32_t)rest, [&](const Order& order, int32_t units) { fills.push_back({order, units}); });
    }
    for (int k = 0; k < slots; ++k) {
      const int32_t units = shares[side][k];
      set_quantity(k, side, quantity(k, side) - units);
      settle(accounts[k], side ? 0 : units, side ? units : 0, (int64_t)last_tick + origin, unit_fee(p));
      shares[side][k] = 0;
    }
    return fills;
  }
  int32_t shares[2][kMaxSlots] = {};

  // Trades, a buyer and a seller each, both in the order in which they were filled.
  void report(const std::vector<Fill>& buys, const std::vector<Fill>& sells) {
    std::size_t i = 0, j = 0;
    int32_t buying = 0, selling = 0;  // of the present ones, done
    while (i < buys.size() && j < sells.size()) {
      const int32_t units = std::min(buys[i].units - buying, sells[j].units - selling);
      buying += units, selling += units;
      Order buyer = buys[i].order;
      buyer.left += buys[i].units - buying;
      rows.trade(buyer, sells[j].order.id, 0, last_tick + origin, units);
      if (buying == buys[i].units) ++i, buying = 0;
      if (selling == sells[j].units) ++j, selling = 0;
    }
  }

  // Where marketable orders ended up goes as much as came of them: what is left of them, then the youngest of the others.
  void cancel_residue() {
    for (int side = 0; side < 2; ++side) {
      const int32_t tick = pricing.marketable(side);
      int32_t& here = book.units[side][(std::size_t)tick];
      int64_t unwanted = std::min<int64_t>(here, marketable[side]);
      if (unwanted == 0) continue;
      here -= (int32_t)unwanted;
      Queue& queue = book.queues[side][(std::size_t)tick];
      const auto drop = [&](Order& order) {
        const int32_t units = (int32_t)std::min<int64_t>(unwanted, order.left);
        unwanted -= units, order.left -= units;
        if (units > 0) rows.cancel(order, side, tick + origin, units, kResidue);
      };
      for (Order& order : queue)
        if (order.marketable && order.interval == t) drop(order);
      for (Order* order = queue.end(); unwanted > 0 && order != queue.begin();) drop(*--order);
      queue.drop_empty();
      if (tick == book.best[side]) book.find_best(side);
    }
  }
};

}  // namespace ks::tape
