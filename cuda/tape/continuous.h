// continuous.h: continuous trading order by order, as cuda/events/ plays it with ticks as numbers of units.
#pragma once

#include "tape/market.h"

namespace ks::tape {

struct ContinuousTape : TapeMarket {
  using TapeMarket::TapeMarket;

  void interval(const Quote* fresh, uint64_t arrival, bool last) override {
    begin_interval();
    const int64_t before = volume;
    for (const uint64_t end = g + (uint32_t)p.levers.interval; g < end; set_event(g + 1)) {
      if (g % (uint32_t)p.levers.beat == 0) take_beat();
      if (fresh && g == arrival) take_quotes(fresh);
      const int32_t mid = mid2();
      take_order(coming(mid));
    }
    if (fresh && last && g == arrival) take_quotes(fresh);
    trades += volume > before;
    t += 1;
  }

  void take_beat() {
    const int64_t beat = (int64_t)(g / (uint32_t)p.levers.beat);
    if (p.window > 0 && follow_mid()) take_quotes_along();
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
      for (int k = 0; k < slots; ++k) {
        const int32_t tick = quote_tick(k, side), q = tick < 0 ? 0 : book.units[side][(std::size_t)tick];
        if (q > 0) aheads[k][side] -= cancelled_ahead(q, loss_at(beat, side, tick, q), aheads[k][side], u32);
      }
      for (int32_t tick = 0; tick < levels; ++tick)
        if (const int32_t q = book.units[side][(std::size_t)tick]) lose(book, side, tick, loss_at(beat, side, tick, q), u32);
    }
  }

  // After a shift quotes that could cross later take the price of the grid's end for good: as a new order, as nobody changes
  // the price of one.
  void take_quotes_along() {
    for (int k = 0; k < slots; ++k) {
      for (int side = 0; side < 2; ++side) {
        if (quantity(k, side) <= 0) continue;
        int32_t tick = price(k, side) - origin;
        if (side ? tick < 0 : tick >= levels) {
          Order gone = quote_order(k, side);
          gone.left = 0;
          rows.cancel(gone, side, price(k, side), quantity(k, side), kLeftGrid);
          tick = side ? pricing.lowest : pricing.highest;
          set_price(k, side, tick + origin);
          submit_quote(k, side);
        }
        const bool on_grid = tick >= 0 && tick < levels;
        aheads[k][side] = on_grid ? std::min(aheads[k][side], book.units[side][(std::size_t)tick]) : 0;
      }
    }
  }

  void take_order(const Coming& coming) {
    if (coming.quantity == 0) return;
    Order order = numbered(coming);
    rows.submit(order, coming.side, coming.tick + origin);
    order.left = match(coming.tick, order, coming.side, -1);
    if (order.left == 0) return;
    if (!coming.marketable) return book.rest(coming.side, coming.tick, order);
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
      while (left > 0 && units_at(other, tick) > 0) left -= take_next(tick, left, other, order.id);
      const int32_t units = before - left;
      volume += units;
      last_tick = tick;
      if (taker >= 0) book_fill(taker, side, tick, units, unit_fee(p) + p.levers.taker_fee);
    }
    return left;
  }

  void book_fill(int k, int side, int32_t tick, int32_t units, int32_t fee) {
    settle(accounts[k], side ? 0 : units, side ? units : 0, (int64_t)tick + origin, fee);
  }

  // Take what is oldest at a tick: agents' orders before the next quote, or that quote.
  int32_t take_next(int32_t tick, int32_t most, int side, int64_t taker) {
    const int k = next_quote(side, [&](int j) { return quote_tick(j, side) == tick; });
    const int32_t there = book.units[side][(std::size_t)tick];
    const int32_t first = std::min(most, k < 0 ? there : std::min(there, aheads[k][side]));
    const int32_t price = tick + origin;
    if (first == 0) {
      const int32_t units = std::min(most, quantity(k, side));
      set_quantity(k, side, quantity(k, side) - units);
      book_fill(k, side, tick, units, unit_fee(p));
      rows.trade(quote_order(k, side), taker, side, price, units);
      return units;
    }
    book.take(side, tick, first, [&](const Order& order, int32_t units) { rows.trade(order, taker, side, price, units); });
    for (int j = 0; j < slots; ++j)
      if (quote_tick(j, side) == tick) aheads[j][side] = std::max(0, aheads[j][side] - first);
    return first;
  }
  // Fresh quotes arrive, each with its pre-trade limits as the account then is.
  void take_quotes(const Quote* fresh) {
    for (int turn = 0; turn < slots; ++turn) {
      const int k = (int)((uint64_t)(t + turn) % (uint64_t)slots);
      const Quote quote = apply_pre_trade_limits(fresh[k], accounts[k].inventory, p);
      int32_t comes[2];
      for (int side = 0; side < 2; ++side) {
        comes[side] = side ? quote.ask_qty : quote.bid_qty;
        int32_t at = quote_price(p, side ? quote.ask_price : quote.bid_price, beat_price, side);
        if (side ? at - origin < 0 : at - origin >= levels) at = origin + (side ? pricing.lowest : pricing.highest);
        if (at == price(k, side) && comes[side] > 0 && comes[side] <= quantity(k, side)) {
          withdraw(k, side, quantity(k, side) - comes[side], kWithdrawn);
          comes[side] = 0;  // the rest keeps its place
          continue;
        }
        withdraw(k, side, quantity(k, side), kWithdrawn);
        set_price(k, side, at);
        set_quantity(k, side, 0);
      }
      for (int side = 0; side < 2; ++side)
        if (comes[side] > 0) join(k, side, comes[side], turn);
    }
  }
  void join(int k, int side, int32_t units, int32_t turn) {
    const int32_t tick = price(k, side) - origin;
    const Order order = {++rows.orders, t, k, units, kSlot, 0};
    rows.submit(order, side, price(k, side));
    const int32_t left = match(tick, order, side, k);
    if (left == 0) return;
    ids[k][side] = order.id;
    set_quantity(k, side, left);
    aheads[k][side] = tick >= 0 && tick < levels ? book.units[side][(std::size_t)tick] : 0;
    moments[k][side] = moment_of(t, turn);
  }
};

}  // namespace ks::tape
