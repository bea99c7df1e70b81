// continuous.cuh: the continuous double auction: every order is matched as it comes, and what is left rests. Quotes of slots
// have places in queues (docs/model.md).
#pragma once

#include "events/market.cuh"

namespace ks {

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define KS_AT_ONCE KS_ON_LANE
#else
#define KS_AT_ONCE inline __attribute__((always_inline))
#endif

template <int kSlots, typename Width>
struct ContinuousMarket : EventMarket<true, kSlots, Width> {
  using Base = EventMarket<true, kSlots, Width>;
  using Base::beat, Base::beat_price, Base::book, Base::checks_overflow, Base::error,
      Base::fundamental, Base::g, Base::key, Base::last_tick, Base::launch, Base::levels, Base::next_beat, Base::now,
      Base::origin, Base::p, Base::pricing, Base::ret, Base::slots, Base::t, Base::trades, Base::volume;
  using Base::best, Base::find_quotes, Base::follow_mid, Base::mid2, Base::place, Base::quoted, Base::tick_of;
  using Lanes = typename Base::Lanes;

  static constexpr bool kQuotesWait = true;  // until they arrive, perhaps in a later interval of the decision
  int64_t taken;  // what takers have bought in this interval, less what they have sold; counted if it is recorded

  KS_ON_LANE ContinuousMarket(const Launch& launch, int64_t m, const EventMemory<Width>& memory) : Base(launch, m, memory) {}

  KS_ON_LANE int64_t signed_volume() const { return taken; }

  // One interval. `fresh` are quotes of a decision, [K], that arrive before event `arrival`, or null; `last`: the interval
  // is its decision's last. Returns false if the market has to stop.
  KS_ON_LANE bool interval(const Quote* fresh, uint64_t arrival, bool last) {
    this->begin_interval();
    if (kWithSeries) taken = 0;
    const int64_t before = volume;
    const uint64_t end = g + (uint32_t)p.levers.interval;
    while (g < end) {
      if (g == next_beat && !take_beat()) return false;
      if (kSlots && fresh && g == arrival && !take_quotes(fresh)) return false;
      uint64_t until = end < next_beat ? end : next_beat;
      if (kSlots && fresh && arrival > g && arrival < until) until = arrival;
      if (!take_events((uint32_t)until)) return false;
      g = until;
    }
    if (kSlots && fresh && last && g == arrival && !take_quotes(fresh)) return false;
    trades += volume > before;
    t += 1;
    return true;
  }

  KS_ON_LANE bool take_beat() {
    if (!follow_mid()) return false;
    this->change_regime_and_fundamental(beat);
    if (now.cancel_threshold != 0) cancel();
    this->take_return();
    beat_price = last_tick + origin;
    this->set_pricing();
    this->pass_beat();
    return true;
  }

  // Quotes first: what they lose depends on what their ticks hold and lose.
  KS_ON_LANE void cancel() {
    if (kSlots) {
      const uint64_t places = random_word(key, beat, kPlaceWord);
      for (int k = 0; k < slots.count(); ++k) {
        for (int side = 0; side < 2; ++side) {
          const int32_t tick = tick_of(k, side), ahead = slots.ahead(k, side);
          if (tick < 0 || ahead == 0) continue;
          const int32_t q = book.resting(tick, side);
          if (q == 0) continue;
          const uint64_t word = random_word(key, beat, kCancelWord + tick / 2);
          const int32_t loss = cancelled(q, now.cancel_threshold, (uint32_t)(word >> (32 * (tick & 1))), side);
          if (loss == 0) continue;
          slots.set_ahead(k, side, ahead - cancelled_ahead(q, loss, ahead, (uint32_t)(places >> (32 * side))));
        }
      }
    }
    book.cancel(now.cancel_threshold, key, beat);
  }

  // What events change most of the time, so that it is in registers while they come.
  struct Touch {
    EventBook<Width> book;
    int32_t last_tick;
    uint32_t traded;  // at most 65535 orders of 65535 units
    int64_t taken;    // as `taken`
  };
  KS_ON_LANE void put_back(Touch& touch) {
    book.best = touch.book.best;
    last_tick = touch.last_tick;
    volume += touch.traded;
    touch.traded = 0;
    if (kWithSeries) taken += touch.taken, touch.taken = 0;
  }

  KS_ON_LANE bool take_events(uint32_t until) {
    const bool counts = kWithSeries && launch.series_signed_volume != nullptr;
    const bool plain = pricing.is_plain() && !checks_overflow && !counts;
    if (has_added_agents(launch)) return plain ? take_events<true, true>(until) : take_events<false, true>(until);
    return plain ? take_events<true, false>(until) : take_events<false, false>(until);
  }

  // kPlain: no lever moves prices, no side can reach 2^31, and who takes is not recorded. kAdded: users have added agents.
  template <bool kPlain, bool kAdded>
  KS_ON_LANE bool take_events(uint32_t until) {
    if constexpr (Lanes::kLanes > 1) {
      bool goes_on = true;
      if constexpr (kAdded) {
        Lanes::sync();
        if (Lanes::leads()) goes_on = take_events_alone<kPlain, kAdded>(until);
      } else {
        goes_on = take_drawn_events<kPlain>(until);
      }
      share();
      return Lanes::from_first(goes_on);
    } else {
      return take_events_alone<kPlain, kAdded>(until);
    }
  }

  // Those of the lanes that share the market draw events, and the first of them matches these.
  template <bool kPlain>
  KS_ON_LANE bool take_drawn_events(uint32_t until) {
    const RegimeParams now = this->now;
    const Pricing pricing = this->pricing;
    const bool has_value = p.num_fundamental > 0;
    const int32_t value2 = fit_int32(2 * ((int64_t)fundamental - origin));
    Touch touch = {book, last_tick, 0, 0};
    DrawnArrival* const drawn = this->drawn;
    bool goes_on = true;
    for (uint32_t e = (uint32_t)g; e != until;) {
      const int count = min_of((int)(until - e), kDrawnTogether);
      Lanes::sync();
      for (int i = Lanes::lane(); i < count; i += Lanes::kLanes) {
        ArrivalBlock one;
        one.draw(p, now, ret, key, e + i, 1, false, 0);
        drawn[i] = ks::drawn(one.at(0));
      }
      Lanes::sync();
      if (Lanes::leads()) {
        DrawnArrival next = drawn[0];
#pragma unroll 1
        for (int i = 0; i < count && goes_on; ++i) {
          Arrival a = next.arrival();
          next = drawn[min_of(i + 1, count - 1)];
          const int32_t mid = mid2_of(touch);
          if (has_value) turn_to_value(a, now.taker_offset, value2, mid);
          goes_on = take_order<kPlain>(touch, pricing, a, mid, a.sells);
        }
      }
      e += count;
    }
    if (goes_on) put_back(touch);
    return goes_on;
  }

  // What the first of the lanes that share the market has changed.
  KS_ON_LANE void share() {
    if constexpr (Lanes::kLanes > 1) {
      book.share();
      slots.template share<Lanes>();
      last_tick = Lanes::from_first(last_tick), volume = Lanes::from_first(volume), error = Lanes::from_first(error);
      if (kWithSeries) taken = Lanes::from_first(taken);
    }
  }

  template <bool kPlain, bool kAdded>
  KS_ON_LANE bool take_events_alone(uint32_t until) {
    const RegimeParams now = this->now;
    const Pricing pricing = this->pricing;
    const bool has_value = p.num_fundamental > 0;
    const int32_t value2 = fit_int32(2 * ((int64_t)fundamental - origin));
    Touch touch = {book, last_tick, 0, 0};
    ArrivalBlock arrivals;
    if constexpr (kAdded) {
      LiveAgents agents(launch, this->m, p, this->view_at(g, mid2_of(touch), touch.book, touch.last_tick));
      return take_events_of_all<kPlain>(until, touch, pricing, value2, agents);
    }
    for (uint32_t e = (uint32_t)g; e != until;) {
      const int count = ArrivalBlock::block(e, until - e);
      arrivals.draw(p, now, ret, key, e, count, false, 0);
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
      const auto take = [&](int i) {
        Arrival a = arrivals.at(i);
        const int32_t mid = mid2_of(touch);
        if (has_value) turn_to_value(a, now.taker_offset, value2, mid);
        return take_order<kPlain>(touch, pricing, a, mid, a.sells);
      };
      if constexpr (kSlots == 0) {
#pragma unroll
        for (int i = 0; i < kEventBlock; ++i)
          if (i < count && !take(i)) return false;
      } else {  // an order's code is long with slots, and a copy for each event would cost more than it saves
#pragma unroll 1
        for (int i = 0; i < count; ++i)
          if (!take(i)) return false;
      }
#else  // two codes, each of one side, are faster on a core than one without that branch
      for (int i = 0; i < count; ++i) {
        Arrival a = arrivals.at(i);
        const int32_t mid = mid2_of(touch);
        if (has_value) turn_to_value(a, now.taker_offset, value2, mid);
        if (!(a.sells ? take_order<kPlain>(touch, pricing, a, mid, 1) : take_order<kPlain>(touch, pricing, a, mid, 0)))
          return false;
      }
#endif
      e += count;
    }
    put_back(touch);
    return true;
  }

  // The same where users have added agents.
  template <bool kPlain>
  KS_AT_ONCE bool take_events_of_all(uint32_t until, Touch& touch, const Pricing& pricing, int32_t value2, LiveAgents& agents) {
    const int32_t first_added = first_added_agent(launch, p);
    ArrivalBlock arrivals;
    for (uint32_t e = (uint32_t)g; e != until;) {
      const int count = ArrivalBlock::block(e, until - e);
      arrivals.draw(p, now, ret, key, e, count, true, first_added);
#pragma unroll 1
      for (int i = 0; i < count; ++i) {
        const ArrivingAgent who = arrivals.agent(i);
        const int32_t mid = mid2_of(touch);
        int32_t tick, quantity, side, marketable;
        if (who.place >= 0) {
          const Middle around = kPlain ? middle_of(mid, pricing.even, pricing.coin)
                                       : agents_middle(p, mid, fundamental, origin, pricing.coin);
          this->look_again(agents.view, e + i, mid, around, touch.book, touch.last_tick, agents.sees_book);
          const AgentOrder order = agents.play(who.place, who.word);
          quantity = quantity_of(order), side = sells(order), marketable = order.marketable;
          tick = kPlain ? ks::tick_of(order, levels, origin) : ks::tick_of(order, pricing, origin);
        } else {
          Arrival a = arrivals.built_in(i, p, now, ret, e + i);
          if (p.num_fundamental > 0) turn_to_value(a, now.taker_offset, value2, mid);
          quantity = a.quantity, side = a.sells, marketable = a.marketable;
          tick = order_tick<kPlain>(pricing, mid, a.offset, side, marketable);
        }
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
        if (!take_at<kPlain>(touch, tick, quantity, marketable, side)) return false;
#else
        if (!(side ? take_at<kPlain>(touch, tick, quantity, marketable, 1)
                   : take_at<kPlain>(touch, tick, quantity, marketable, 0)))
          return false;
#endif
      }
      e += count;
    }
    put_back(touch);
    return true;
  }

  KS_ON_LANE int32_t mid2_of(const Touch& touch) const {
    int32_t bid = touch.book.best.at[0], ask = touch.book.best.at[1];
    if (kSlots) bid = min_of(bid, slots.best.at[0]), ask = min_of(ask, slots.best.at[1]);
    return max_of(bid, ask) != kNoPlace ? levels - 1 - bid + ask : 2 * touch.last_tick;
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
        left -= fill_quote(touch.book.flip(quoted, other), left, other);
        if (slots.quantity(0, other) == 0) quoted = kNoPlace;
      }
    }
    if (hit == kNoPlace) return left;
    touch.book.best.set(other, here);
    if (kSlots == 1) slots.best.set(other, quoted);
    touch.traded += ordered - left;
    if (kWithSeries && !kPlain) touch.taken += negated(side, ordered - left);
    touch.last_tick = touch.book.flip(hit, other);
    return left;
  }

  // Up to `most` units of the single slot's quote, at a tick of the grid.
  KS_AT_ONCE int32_t fill_quote(int32_t tick, int32_t most, int32_t side) {
    const int32_t quantity = slots.quantity(0, side), units = min_of(most, quantity);
    slots.fill(0, side, (int64_t)tick + origin, units, unit_fee(p));
    slots.set_quantity(0, side, quantity - units);
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
    const auto where = [this](int k, int32_t of) { return place(k, of); };
    const int32_t tick = book.flip(here, side);
    const int64_t price = (int64_t)tick + origin;
    int32_t left = quantity;
    while (left > 0) {
      const int k = slots.first_at(here, side, where);
      const int32_t there = book.resting(tick, side);
      const int32_t built_in = min_of(left, k < 0 ? there : min_of(there, slots.ahead(k, side)));
      if (built_in > 0) {
        left -= book.take(here, built_in, side);
        for (int j = 0; j < slots.count(); ++j)
          if (place(j, side) == here) slots.set_ahead(j, side, max_of(0, slots.ahead(j, side) - built_in));
      }
      if (k < 0) break;
      if (left == 0) continue;
      const int32_t units = min_of(left, slots.quantity(k, side));
      slots.fill(k, side, price, units, unit_fee(p));
      slots.set_quantity(k, side, slots.quantity(k, side) - units);
      left -= units;
    }
    find_quotes();
    return quantity - left;
  }

  // Fresh quotes arrive, each with its pre-trade limits as the account then is.
  KS_ON_LANE bool take_quotes(const Quote* fresh) {
    if constexpr (Lanes::kLanes > 1) {
      bool goes_on = true;
      Lanes::sync();
      if (Lanes::leads()) goes_on = take_quotes_alone(fresh);
      share();
      return Lanes::from_first(goes_on);
    } else {
      return take_quotes_alone(fresh);
    }
  }
  KS_ON_LANE bool take_quotes_alone(const Quote* fresh) {
    const uint32_t count = slots.count(), first = kSlots == 1 ? 0 : (uint32_t)((uint64_t)t % count);
    for (int number = 0; number < slots.count(); ++number) {
      const int k = kSlots == 1 ? 0 : (int)((first + number) % count);
      const Quote quote = apply_pre_trade_limits(fresh[k], slots.accounts[k].inventory, p);
      Sides<int32_t> comes = {0, 0};
      for (int side = 0; side < 2; ++side) {
        const int32_t quantity = side ? quote.ask_qty : quote.bid_qty;
        comes.set(side, quantity);
        int32_t price = quote_price(p, side ? quote.ask_price : quote.bid_price, beat_price, side);
        const int32_t tick = price - origin;
        if (side ? tick < 0 : tick >= levels) price = origin + (side ? pricing.lowest : pricing.highest);
        if (price == slots.price(k, side) && quantity > 0 && quantity <= slots.quantity(k, side)) {
          slots.set_quantity(k, side, quantity);
          comes.set(side, 0);  // it keeps its place
          continue;
        }
        slots.set_price(k, side, price);
        slots.set_quantity(k, side, 0);
      }
      find_quotes();
#pragma unroll 1
      for (int side = 0; side < 2; ++side)
        if (comes.of(side) > 0 && !join(k, side, comes.of(side), number)) return false;
    }
    return true;
  }

  KS_ON_LANE bool join(int k, int32_t side, int32_t quantity, int32_t moment) {
    const int32_t tick = slots.price(k, side) - origin;
    const int32_t left = match(tick, quantity, side, k);
    if (left == 0) return true;
    slots.set_quantity(k, side, left);
    slots.set_ahead(k, side, tick >= 0 && tick < levels ? book.resting(tick, side) : 0);
    slots.set_moment(k, side, moment_of(t, moment));
    find_quotes();
    return !checks_overflow || has_room(side, 0);
  }
};

}  // namespace ks
