// continuous.h: continuous trading order by order, as cuda/events/ plays it with ticks as numbers of units.
#pragma once

#include <deque>
#include <vector>

#include "tape/market.h"

namespace ks::tape {

// What was submitted, until it arrives.
struct Submission {
  uint64_t due;                // the event, or a time where intervals have a length
  std::vector<Quote> quotes;   // of all slots' levels,
  std::vector<int32_t> flags;  // and theirs
};

struct ContinuousTape : TapeMarket {
  std::deque<Submission> under_way;  // oldest first
  int32_t arrived = 0;               // in this interval

  explicit ContinuousTape(const Launch& of) : TapeMarket(of) {
    for (int i = 0; of.due && i < kMostUnderWay && of.due[i] > 0; ++i) {
      const auto* quotes_of = reinterpret_cast<const Quote*>(of.due_quotes) + i * records();
      const int32_t* flags_of = of.due_flags + i * records();
      under_way.push_back({(uint64_t)of.due[i] - 1, {quotes_of, quotes_of + records()}, {flags_of, flags_of + records()}});
    }
  }
  int records() const { return slots * ladder; }

  void interval(const Quote* fresh, const int32_t* flags) override {
    begin_interval();
    if (fresh) submit(fresh, flags);
    const int64_t before = volume;
    arrived = 0;
    play();
    trades += volume > before;
    t += 1;
  }
  virtual void play() {
    for (const uint64_t end = g + (uint32_t)p.levers.interval; g < end; set_event(g + 1)) {
      if (g % (uint32_t)p.levers.beat == 0) take_beat();
      begin_event();
      while (!under_way.empty() && under_way.front().due <= g) take_oldest();
      take_event();
    }
  }
  void take_oldest() {
    take_quotes(under_way.front(), slots * arrived++);
    under_way.pop_front();
  }

  // What an order flow has otherwise (flow.h) ----------------------------------------------------------------------------

  virtual uint64_t when_due() const { return g + (uint32_t)p.levers.quote_latency; }
  virtual void begin_event() {}
  virtual void take_event() {
    const int32_t mid = mid2();
    take_order(coming(mid));
  }
  virtual void grid_moved(int32_t) {}
  // Orders that are no quotes trade at a tick with one that has come; then it is done with the tick.
  virtual void trade_agents(int side, int32_t tick, int32_t most, int64_t taker) {
    book.take(side, tick, most, [&](const Order& order, int32_t units) { rows.trade(order, taker, side, tick + origin, units); });
  }
  virtual void end_trade(int, int32_t) {}
  // What is left of an order rests, or false if there is no room for it.
  virtual bool rests(int side, int32_t tick, const Order& order) {
    book.rest(side, tick, order);
    return true;
  }

  // Quotes under way, and a beat -----------------------------------------------------------------------------------------

  void submit(const Quote* fresh, const int32_t* flags) {
    if (under_way.size() == kMostUnderWay) under_way.pop_back();
    Submission mine = {when_due(), {fresh, fresh + records()}, std::vector<int32_t>((std::size_t)records())};
    if (flags) mine.flags.assign(flags, flags + records());
    if (!under_way.empty()) mine.due = std::max(mine.due, under_way.back().due);
    under_way.push_back(mine);
  }
  const char* difference(const Launch& engine) const override {
    if (const char* name = TapeMarket::difference(engine)) return name;
    return engine.due && !same_under_way(engine) ? "due" : nullptr;
  }
  bool same_under_way(const Launch& engine) const {
    for (std::size_t i = 0; i < kMostUnderWay; ++i) {
      if (engine.due[i] != (i < under_way.size() ? (int64_t)under_way[i].due + 1 : 0)) return false;
      if (i >= under_way.size()) continue;
      const std::size_t count = (std::size_t)records(), first = i * count;
      if (std::memcmp(engine.due_quotes + 4 * first, under_way[i].quotes.data(), count * sizeof(Quote)) != 0) return false;
      if (std::memcmp(engine.due_flags + first, under_way[i].flags.data(), count * sizeof(int32_t)) != 0) return false;
    }
    return true;
  }

  void take_beat() {
    const int64_t beat = (int64_t)(g / (uint32_t)p.levers.beat);
    const int32_t before = origin;
    if (p.window > 0 && follow_mid()) {
      take_quotes_along();
      grid_moved(origin - before);
    }
    change_regime_and_fundamental(beat);
    if (now.cancel_threshold != 0) cancel(beat);
    take_return();
    beat_price = last_tick + origin;
    set_pricing(grid_tick(beat_price, origin), beat);
  }

  // Quotes first: what they lose depends on what their ticks hold and lose.
  void cancel(int64_t beat) {
    for (int side = 0; side < 2; ++side) {
      const uint32_t u32 = place_half(beat, side);
      for (int j = 0; j < quoted; ++j) {
        const int32_t tick = quote_tick(j, side), q = tick < 0 ? 0 : book.units[side][(std::size_t)tick];
        if (q > 0) aheads[j][side] -= cancelled_ahead(q, loss_at(beat, side, tick, q), aheads[j][side], u32);
      }
      for (int32_t tick = 0; tick < levels; ++tick)
        if (const int32_t q = book.units[side][(std::size_t)tick]) lose(book, side, tick, loss_at(beat, side, tick, q), u32);
    }
  }

  // After a shift quotes that could cross later take the price of the grid's end for good: as a new order, as nobody changes
  // the price of one.
  void take_quotes_along() {
    for (int j = 0; j < quoted; ++j) {
      for (int side = 0; side < 2; ++side) {
        if (quantity(j, side) <= 0) continue;
        int32_t tick = price(j, side) - origin;
        if (side ? tick < 0 : tick >= levels) {
          Order gone = quote_order(j, side);
          gone.left = 0;
          rows.cancel(gone, side, price(j, side), quantity(j, side), kLeftGrid);
          tick = side ? pricing.lowest : pricing.highest;
          set_price(j, side, tick + origin);
          submit_quote(j, side);
        }
        const bool on_grid = tick >= 0 && tick < levels;
        aheads[j][side] = on_grid ? std::min(aheads[j][side], book.units[side][(std::size_t)tick]) : 0;
      }
    }
  }

  void take_order(const Coming& coming) {
    if (coming.quantity == 0) return;
    Order order = numbered(coming);
    rows.submit(order, coming.side, coming.tick + origin);
    order.left = match(coming.tick, order, coming.side, -1);
    if (order.left == 0 || (!coming.marketable && rests(coming.side, coming.tick, order))) return;
    const int32_t gone = order.left;
    order.left = 0;
    rows.cancel(order, coming.side, coming.tick + origin, gone, kExpired);
  }

  // Match an order up to tick `limit`; slot `taker`, or -1. Returns what is left.
  int32_t match(int32_t limit, const Order& order, int side, int taker) {
    const int other = 1 - side;
    int32_t left = order.left;
    while (left > 0) {
      const BestPrices best = best_prices();
      const int32_t tick = other ? best.ask : best.bid;
      if (other ? tick > limit : tick < 0 || tick < limit) break;
      const int32_t before = left;
      while (left > 0 && units_at(other, tick) > 0 && !meets_own(tick, other, taker)) left -= take_next(tick, left, other, order.id);
      end_trade(other, tick);
      const int32_t units = before - left;
      if (units == 0) break;
      volume += units;
      last_tick = tick;
      if (taker >= 0) book_fill(taker, side, tick, units, unit_fee(p) + p.levers.taker_fee);
    }
    return left;
  }

  // Whether slot `taker`'s own quote is the next at a tick, or none (-1).
  bool meets_own(int32_t tick, int side, int taker) {
    if (taker < 0) return false;
    const int next = next_quote(side, [&](int j) { return quote_tick(j, side) == tick; });
    return next >= 0 && slot_of(next) == taker && aheads[next][side] == 0;
  }
  bool crosses(int32_t limit, int side) {
    const BestPrices best = best_prices();
    return side ? best.bid >= 0 && best.bid >= limit : best.ask <= limit;
  }

  void book_fill(int k, int side, int32_t tick, int32_t units, int32_t fee) {
    settle(accounts[k], side ? 0 : units, side ? units : 0, (int64_t)tick + origin, fee);
  }

  // Take what is oldest at a tick: agents' orders before the next quote, or that quote.
  int32_t take_next(int32_t tick, int32_t most, int side, int64_t taker) {
    const int next = next_quote(side, [&](int j) { return quote_tick(j, side) == tick; });
    const int32_t there = book.units[side][(std::size_t)tick];
    const int32_t first = std::min(most, next < 0 ? there : std::min(there, aheads[next][side]));
    if (first == 0) {
      const int32_t units = std::min(most, quantity(next, side));
      set_quantity(next, side, quantity(next, side) - units);
      book_fill(slot_of(next), side, tick, units, unit_fee(p));
      rows.trade(quote_order(next, side), taker, side, tick + origin, units);
      return units;
    }
    trade_agents(side, tick, first, taker);
    for (int j = 0; j < quoted; ++j)
      if (quote_tick(j, side) == tick) aheads[j][side] = std::max(0, aheads[j][side] - first);
    return first;
  }
  // Fresh quotes arrive, each with its pre-trade limits as the account then is: a ladder, be it of one level. So many quotes have
  // arrived before in the interval.
  void take_quotes(const Submission& fresh, int32_t before) {
    for (int turn = 0; turn < slots; ++turn) {
      const int k = (int)((uint64_t)(t + turn) % (uint64_t)slots), first = k * ladder;
      take_ladder(fresh.quotes.data() + first, fresh.flags.data() + first, k, before + turn);
    }
  }
  void take_ladder(const Quote* fresh, const int32_t* words, int k, int32_t turn) {
    Quote asked[kMaxOrdersPerSide];
    OrderFlags flags[kMaxOrdersPerSide];
    for (int n = 0; n < ladder; ++n) {
      flags[n] = {words[n]};
      for (int side = 0; side < 2; ++side) move_up(first_of(k, n), side);
      const int first = first_of(k, n);
      asked[n] = quote_of_flags(fresh[n], {price(first, 0), standing(first, 0), price(first, 1), standing(first, 1)}, flags[n]);
    }
    apply_ladder_limits(asked, flags, ladder, accounts[k].inventory, p);
    int32_t comes[kMaxOrdersPerSide][2];
    for (int n = 0; n < ladder; ++n)
      for (int side = 0; side < 2; ++side) comes[n][side] = replace(first_of(k, n), side, asked[n], flags[n]);
    for (int n = 0; n < ladder; ++n)
      for (int side = 0; side < 2; ++side)
        if (comes[n][side] > 0) join(first_of(k, n) + (quantity(first_of(k, n), side) > 0), side, comes[n][side], turn, flags[n]);
  }
  // The first place of a level; its second one comes next, where there are two.
  int first_of(int k, int n) const { return k * per_slot + 2 * n; }
  bool has_two() const { return per_slot > 1; }
  int32_t standing(int first, int side) const { return quantity(first, side) + (has_two() ? quantity(first + 1, side) : 0); }
  void move_up(int first, int side) {
    if (!has_two() || quantity(first, side) > 0) return;
    set_price(first, side, price(first + 1, side)), set_quantity(first, side, quantity(first + 1, side));
    aheads[first][side] = aheads[first + 1][side], moments[first][side] = moments[first + 1][side];
    ids[first][side] = ids[first + 1][side];
    set_quantity(first + 1, side, 0);
  }
  // What stands keeps its place, or is withdrawn. Returns how many units come.
  int32_t replace(int first, int side, const Quote& asked, OrderFlags flags) {
    const int32_t wanted = side ? asked.ask_qty : asked.bid_qty, there = standing(first, side);
    int32_t at = side ? asked.ask_price : asked.bid_price;
    if (flags.keeps(side)) {
      at = price(first, side);
    } else {
      at = quote_price(p, at, beat_price, side);
      if (side ? at - origin < 0 : at - origin >= levels) at = origin + (side ? pricing.lowest : pricing.highest);
    }
    const bool stays = at == price(first, side) && wanted > 0 && there > 0 && flags.rests(side) && (has_two() || wanted <= there);
    int32_t comes = stays ? std::max(0, wanted - there) : wanted;
    int32_t goes = stays ? std::max(0, there - wanted) : there;
    if (has_two()) {
      const int32_t newest = quantity(first + 1, side), from_newest = comes > 0 && stays ? newest : std::min(newest, goes);
      if (comes > 0 && stays) comes += newest;
      else goes -= from_newest;
      withdraw(first + 1, side, from_newest, kWithdrawn);
      set_price(first + 1, side, at);
    }
    withdraw(first, side, goes, kWithdrawn);
    set_price(first, side, at);
    return comes;
  }
  void join(int j, int side, int32_t units, int32_t turn, OrderFlags flags) {
    const int32_t tick = price(j, side) - origin;
    if (flags.has(side, kOrderFlagPostOnly) && crosses(tick, side)) return;
    Order order = {++rows.orders, t, slot_of(j), units, kSlot, 0};
    rows.submit(order, side, price(j, side));
    const int32_t left = match(tick, order, side, slot_of(j));
    if (left == 0) return;
    if (crosses(tick, side) || !flags.rests(side)) {
      order.left = 0;
      rows.cancel(order, side, price(j, side), left, kExpired);
      return;
    }
    ids[j][side] = order.id;
    set_quantity(j, side, left);
    aheads[j][side] = tick >= 0 && tick < levels ? book.units[side][(std::size_t)tick] : 0;
    moments[j][side] = moment_of(t, turn);
  }
};

}  // namespace ks::tape
