// matching.cuh: how an order is matched under continuous trading: what it takes from resting interest and from quotes of slots,
// which have places in queues (docs/model.md), and what is left rests. For continuous.cuh, which says what orders come.
#pragma once

#include "events/market.cuh"

namespace ks {

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define KS_AT_ONCE KS_ON_LANE
#else
#define KS_AT_ONCE inline __attribute__((always_inline))
#endif

template <int kSlots, typename Width>
struct MatchingMarket : EventMarket<true, kSlots, Width> {
  using Base = EventMarket<true, kSlots, Width>;
  using Base::book, Base::checks_overflow, Base::error, Base::last_tick, Base::levels, Base::origin, Base::p, Base::slots,
      Base::volume;
  using Base::best, Base::quoted;

  int64_t taken;  // what takers have bought in this interval, less what they have sold; counted if it is recorded

  KS_ON_LANE MatchingMarket(const Launch& launch, int64_t m, const EventMemory<Width>& memory) : Base(launch, m, memory) {}

  KS_ON_LANE int64_t signed_volume() const { return taken; }

  // What events change most of the time, so that it is in registers while they come.
  struct Touch {
    EventBook<Width> book;
    int32_t last_tick;
    uint32_t traded;  // at most 65535 orders of 65535 units
    int64_t taken;    // as `taken`
    Sides<int32_t> offered;  // by the quote of a single slot: what is no longer has been filled
  };
  KS_ON_LANE Touch touched() const { return {book, last_tick, 0, 0, {{slots.quantity(0, 0), slots.quantity(0, 1)}}}; }
  KS_ON_LANE void put_back(Touch& touch) {
    for (int side = 0; side < 2 && kSlots == 1; ++side) {
      const int32_t units = touch.offered.at[side] - slots.quantity(0, side);
      if (units != 0) slots.fill(0, side, slots.price(0, side), units, unit_fee(p));
      touch.offered.at[side] -= units;
    }
    book.best = touch.book.best;
    last_tick = touch.last_tick;
    volume += touch.traded;
    touch.traded = 0;
    if (kWithSeries) taken += touch.taken, touch.taken = 0;
  }

  KS_ON_LANE int32_t mid2_of(const Touch& touch) const {
    int32_t bid = touch.book.best.at[0], ask = touch.book.best.at[1];
    if (kSlots) bid = min_of(bid, slots.best.at[0]), ask = min_of(ask, slots.best.at[1]);
    return max_of(bid, ask) != kNoPlace ? levels - 1 - bid + ask : 2 * touch.last_tick;
  }

  // An order of which `left` units have been neither matched nor come to rest.
  struct Order {
    int32_t left, tick, side, marketable;
  };

  // One turn: it takes from the best place of the other side, or fills the quote there, or comes to rest; what changes the book
  // in these cases is one code. Returns false if the market has to stop.
  template <bool kPlain>
  KS_ON_LANE bool take_turn(Touch& touch, Order& order) {
    const int32_t side = order.side, other = 1 - side, last = touch.book.flip(order.tick, other);
    const int32_t here = touch.book.best.of(other), quoted = kSlots ? slots.best.of(other) : kNoPlace;
    if (kSlots > 1 && quoted <= last) {
      put_back(touch);
      order.left = match(order.tick, order.left, side, -1);
      touch.book.best = book.best, touch.last_tick = last_tick;
      return true;
    }
    const bool crosses = min_of(here, quoted) <= last;
    int32_t most = order.left;
    if (kSlots == 1 && crosses && quoted <= here) {
      most = quoted == here ? min_of(most, slots.ahead(0, other)) : 0;
      if (most == 0) {
        if (order.left == 0) return true;  // where there are no agents at all
        const int32_t units = take_from_quote(order.left, other);
        order.left -= units;
        note_trade<kPlain>(touch, quoted, units, side);
        return true;
      }
    }
    const int32_t by = crosses ? -most : order.marketable ? 0 : order.left;
    order.left = crosses ? order.left : 0;
    if (by == 0) return true;
    if (!kPlain && checks_overflow && !crosses) {  // before it rests, as a tick that reaches 2^31 would wrap
      put_back(touch);
      if (!has_room(side, by)) return false;
    }
    const int32_t units = -touch.book.change(crosses ? here : touch.book.flip(order.tick, side), by, crosses ? other : side);
    if (!crosses) return true;
    order.left -= units;
    note_trade<kPlain>(touch, here, units, side);
    if (kSlots == 1) slots.set_ahead(0, other, slots.ahead(0, other) - (quoted == here ? units : 0));
    return true;
  }

  // A built-in agent's order is matched, and what is left of it rests. Returns false if the market has to stop.
  template <bool kPlain>
  KS_AT_ONCE bool take_order(Touch& touch, const Pricing& pricing, const Arrival& a, int32_t mid, int32_t side) {
    return take_at<kPlain>(touch, order_tick<kPlain>(pricing, mid, a.offset, side, a.marketable), a.quantity, a.marketable, side);
  }

  template <bool kPlain>
  KS_AT_ONCE bool take_at(Touch& touch, int32_t tick, int32_t quantity, int32_t marketable, int32_t side) {
    const int32_t other = 1 - side;
    const int32_t last = touch.book.flip(tick, other);
    int32_t left = quantity;
    if (kSlots > 1 && slots.best.of(other) <= last) {  // a learned quote is within reach
      put_back(touch);
      left = match(tick, left, side, -1);
      touch.book.best = book.best, touch.last_tick = last_tick;
    } else {
      left = sweep<kPlain>(touch, last, left, side);
    }
    if (left == 0 || marketable) return true;
    if (!kPlain && checks_overflow) {  // before it rests, as a tick that reaches 2^31 would wrap
      put_back(touch);
      if (!has_room(side, left)) return false;
    }
    touch.book.rest(touch.book.flip(tick, side), left, side);
    return true;
  }

  // Match an order, from the best place of the other side to place `last`, where no slot's quote is, or a single one's.
  // One turn of the loop takes from built-in interest or fills the quote, so that lanes which meet a quote and lanes
  // which do not go on together. Returns what is left.
  template <bool kPlain>
  KS_AT_ONCE int32_t sweep(Touch& touch, int32_t last, int32_t left, int32_t side) {
    const int32_t other = 1 - side, ordered = left;
    int32_t here = touch.book.best.of(other), quoted = kSlots == 1 ? slots.best.of(other) : kNoPlace, hit = kNoPlace;
    while ((min_of(here, quoted) <= last) & (left > 0)) {
      hit = min_of(here, quoted);
      const int32_t before_quote = quoted > here ? left : quoted == here ? min_of(left, slots.ahead(0, other)) : 0;
      if (kSlots == 0 || before_quote > 0) {
        const auto part = touch.book.take_ahead(here, before_quote, other);
        left -= part.units;
        if (kSlots == 1 && quoted == here) slots.set_ahead(0, other, slots.ahead(0, other) - part.units);
        here = part.next;
      } else {
        left -= take_from_quote(left, other);
        if (slots.quantity(0, other) == 0) quoted = kNoPlace;
      }
    }
    if (hit == kNoPlace) return left;
    touch.book.best.set(other, here);
    if (kSlots == 1) slots.best.set(other, quoted);
    note_trade<kPlain>(touch, hit, ordered - left, side);
    return left;
  }

  // A taker on a side got units, the last ones at a place of the other side.
  template <bool kPlain>
  KS_ON_LANE void note_trade(Touch& touch, int32_t place, int32_t units, int32_t side) const {
    touch.traded += units;
    if (kWithSeries && !kPlain) touch.taken += negated(side, units);
    touch.last_tick = touch.book.flip(place, 1 - side);
  }

  // Up to `most` units of the single slot's quote. Its account has them with `put_back`.
  KS_ON_LANE int32_t take_from_quote(int32_t most, int32_t side) {
    const int32_t offered = slots.quantity(0, side), units = min_of(most, offered);
    slots.set_quantity(0, side, offered - units);
    return units;
  }

  // Whether a side stays below 2^31 with so many units more.
  KS_ON_LANE bool has_room(int32_t side, int32_t more) {
    if (book.total(side) + quoted(side) + more < (int64_t)1 << 31) return true;
    error |= kErrorOverflow;
    return false;
  }

  // Matching -----------------------------------------------------------------------------------------------------------

  // Match up to `quantity` against the other side, up to tick `limit`; slot `taker`, or -1. Returns what is left.
  KS_ON_LANE int32_t match(int32_t limit, int32_t quantity, int32_t side, int taker) {
    const int32_t other = 1 - side, last = book.flip(limit, other);  // the worst place that it may take from
    for (int32_t here = best(other); (here <= last) & (quantity > 0); here = best(other)) {
      const bool queued = kSlots && here == slots.best.of(other);
      const int32_t units = queued ? take_from_queue(here, quantity, other) : book.take(here, quantity, other);
      volume += units;
      if (kWithSeries) taken += negated(side, units);
      last_tick = book.flip(here, other);
      if (kSlots && taker >= 0)
        slots.fill(taker, side, (int64_t)last_tick + origin, units, unit_fee(p) + p.levers.taker_fee);
      quantity -= units;
    }
    return quantity;
  }

  // Take units of a place at which learned quotes stand, oldest first; returns how many.
  KS_ON_LANE int32_t take_from_queue(int32_t here, int32_t quantity, int32_t side) {
    const int32_t tick = book.flip(here, side);
    const int64_t price = (int64_t)tick + origin;
    int32_t left = quantity;
    while (left > 0) {
      const int k = slots.first_at(here, side);
      const int32_t there = book.resting(tick, side);
      const int32_t built_in = min_of(left, k < 0 ? there : min_of(there, slots.ahead(k, side)));
      if (built_in > 0) {
        left -= book.take(here, built_in, side);
        for (int j = 0; j < slots.count(); ++j)
          if (slots.place(j, side) == here) slots.set_ahead(j, side, max_of(0, slots.ahead(j, side) - built_in));
      }
      if (k < 0) break;
      if (left == 0) continue;
      const int32_t units = min_of(left, slots.quantity(k, side));
      slots.fill(k, side, price, units, unit_fee(p));
      slots.set_quantity(k, side, slots.quantity(k, side) - units);
      left -= units;
    }
    slots.find_best(side);
    return quantity - left;
  }
};

}  // namespace ks
