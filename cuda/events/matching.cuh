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
  using Base::book, Base::checks_overflow, Base::error, Base::last_tick, Base::levels, Base::lives, Base::origin, Base::p,
      Base::slots, Base::volume;
  using Base::best, Base::quoted;

  int64_t taken;  // what takers have bought in this interval, less what they have sold; counted if it is recorded

  KS_ON_LANE MatchingMarket(const Launch& launch, int64_t m, const EventMemory<kSlots, Width>& memory) : Base(launch, m, memory) {}

  KS_ON_LANE int64_t signed_volume() const { return taken; }

  // What events change most of the time, so that it is in registers while they come. Of either side's quotes the front one is that
  // which is filled next: at the best place that with the least built-in units ahead, or the earliest of several. What it
  // loses, and what it has behind it, is settled when it is gone or when the events are over.
  struct Touch {
    EventBook<Width> book;
    int32_t last_tick;
    uint32_t traded;  // at most 65535 orders of 65535 units
    int64_t taken;    // as `taken`
    Sides<int32_t> quoted, ahead, offered;  // the front quote's place, or kNoPlace; units ahead of it; units that are left of it;
    Sides<int32_t> front;                   // and which it is: of a single one, the compiler knows it
  };
  KS_ON_LANE Touch touched() const {
    Touch touch = {book, last_tick, 0, 0, slots.best, {}, {}, {}};
    for (int side = 0; side < 2 && kSlots; ++side) find_front(touch, side);
    return touch;
  }
  KS_ON_LANE void put_back(Touch& touch) {
    for (int side = 0; side < 2 && kSlots; ++side) settle(touch, side);
    keep(touch);
  }
  KS_ON_LANE void keep(Touch& touch) {
    book.best = touch.book.best;
    last_tick = touch.last_tick;
    volume += touch.traded;
    touch.traded = 0;
    if (kWithSeries) taken += touch.taken, touch.taken = 0;
  }

  KS_ON_LANE int front_of(const Touch& touch, int32_t side) const { return kSlots == 1 ? 0 : touch.front.of(side); }
  KS_ON_LANE void find_front(Touch& touch, int32_t side) const {
    const int32_t place = slots.best.of(side);
    touch.quoted.set(side, place);
    if (kSlots > 1 && place == kNoPlace) return;
    if (kSlots > 1) touch.front.set(side, slots.first_at(place, side));
    const int j = front_of(touch, side);
    touch.ahead.set(side, slots.ahead(j, side)), touch.offered.set(side, slots.quantity(j, side));
  }
  KS_ON_LANE void settle(const Touch& touch, int32_t side) {
    const int32_t place = slots.best.of(side);
    if (kSlots > 1 && place == kNoPlace) return;
    const int front = front_of(touch, side);
    const int32_t passed = slots.ahead(front, side) - touch.ahead.of(side);
    const int32_t units = slots.quantity(front, side) - touch.offered.of(side);
#pragma unroll EventSlots<kSlots>::kAtOnce
    for (int j = 0; j < slots.quote_count() && passed != 0; ++j)
      if (kSlots == 1 || slots.place(j, side) == place) slots.set_ahead(j, side, max_of(0, slots.ahead(j, side) - passed));
    if (units == 0) return;
    slots.fill(slots.slot_of(front), side, slots.price(front, side), units, unit_fee(p));
    slots.set_quantity(front, side, touch.offered.of(side));
    if (kSlots > 1) slots.find_best(side);
  }

  KS_ON_LANE int32_t mid2_of(const Touch& touch) const {
    int32_t bid = touch.book.best.at[0], ask = touch.book.best.at[1];
    if (kSlots) bid = min_of(bid, touch.quoted.at[0]), ask = min_of(ask, touch.quoted.at[1]);
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
    const int32_t here = touch.book.best.of(other), quoted = kSlots ? touch.quoted.of(other) : kNoPlace;
    const bool crosses = min_of(here, quoted) <= last;
    int32_t most = order.left;
    if (kSlots && crosses && quoted <= here) {
      most = quoted == here ? min_of(most, touch.ahead.of(other)) : 0;
      if (most == 0) {
        if (order.left == 0) return true;  // where there are no agents at all
        const int32_t units = take_from_quote(touch, order.left, other);
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
    if (kSlots) touch.ahead.set(other, touch.ahead.of(other) - (quoted == here ? units : 0));
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
    const int32_t left = sweep<kPlain>(touch, touch.book.flip(tick, other), quantity, side, [](int32_t, int32_t) {});
    if (left == 0 || marketable) return true;
    if (!kPlain && checks_overflow) {  // before it rests, as a tick that reaches 2^31 would wrap
      put_back(touch);
      if (!has_room(side, left)) return false;
    }
    touch.book.rest(touch.book.flip(tick, side), left, side);
    return true;
  }

  // Match an order, from the best place of the other side to place `last`. One turn of the loop takes from built-in interest or
  // fills the front quote, so that lanes which meet a quote and lanes which do not go on together. A slot's order stops before a
  // quote of that slot, `taker`. `note` gets each turn's place and units. Returns what is left.
  template <bool kPlain, typename Note>
  KS_AT_ONCE int32_t sweep(Touch& touch, int32_t last, int32_t left, int32_t side, const Note& note, int taker = -1) {
    const int32_t other = 1 - side, ordered = left;
    int32_t here = touch.book.best.of(other), quoted = kSlots ? touch.quoted.of(other) : kNoPlace, hit = kNoPlace;
    while ((min_of(here, quoted) <= last) & (left > 0)) {
      const int32_t place = min_of(here, quoted);
      const int32_t before_quote = quoted > here ? left : quoted == here ? min_of(left, touch.ahead.of(other)) : 0;
      int32_t units;
      if (kSlots == 0 || before_quote > 0) {
        const auto part = touch.book.take_ahead(here, before_quote, other);
        units = part.units, here = part.next;
        if (KS_FLOW) lives.take(touch.book, touch.book.flip(place, other), units);
        if (kSlots && quoted == place) touch.ahead.set(other, touch.ahead.of(other) - units);
      } else {
        if (taker >= 0 && slots.slot_of(front_of(touch, other)) == taker) break;
        units = take_from_quote(touch, left, other);
        quoted = touch.quoted.of(other);
      }
      hit = place;
      left -= units;
      note(hit, units);
    }
    if (hit == kNoPlace) return left;
    if (KS_FLOW) lives.end_trade(touch.book);
    touch.book.best.set(other, here);
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

  // Up to `most` units of the front quote.
  KS_ON_LANE int32_t take_from_quote(Touch& touch, int32_t most, int32_t side) {
    const int32_t offered = touch.offered.of(side), units = min_of(most, offered);
    touch.offered.set(side, offered - units);
    if (units < offered) return units;
    if (kSlots == 1) {
      touch.quoted.set(side, kNoPlace);
    } else {
      settle(touch, side);
      find_front(touch, side);
    }
    return units;
  }

  // Whether a side stays below 2^31 with so many units more.
  KS_ON_LANE bool has_room(int32_t side, int32_t more) {
    if (book.total(side) + quoted(side) + more < (int64_t)1 << 31) return true;
    error |= kErrorOverflow;
    return false;
  }

  // What is left of an order, and whether that would trade on: it was `post_only`, or has come upon its slot's own quote.
  struct Matched {
    int32_t left;
    bool crosses;
  };

  // Match a slot's quote, up to tick `limit`.
  KS_ON_LANE Matched match(int32_t limit, int32_t quantity, int32_t side, int taker, bool post_only) {
    const int32_t other = 1 - side, last = book.flip(limit, other);
    if (min_of(book.best.of(other), slots.best.of(other)) > last) return {quantity, false};  // as most quotes do, which are to stand
    Touch touch = {book, last_tick, 0, 0, slots.best, {}, {}, {}};
    find_front(touch, other);
    const auto crosses = [&] { return min_of(touch.book.best.of(other), touch.quoted.of(other)) <= last; };
    if (post_only && crosses()) return {quantity, true};
    const int64_t fee = unit_fee(p) + p.levers.taker_fee;
    const auto fill = [&](int32_t place, int32_t units) {
      slots.fill(taker, side, (int64_t)touch.book.flip(place, other) + origin, units, fee);
    };
    const int32_t left = sweep<false>(touch, last, quantity, side, fill, taker);
    const bool stopped = left > 0 && crosses();
    settle(touch, other);
    keep(touch);
    return {left, stopped};
  }
};

}  // namespace ks
