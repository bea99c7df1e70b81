// continuous.cuh: an interval of the continuous double auction: beats, the orders of events, one after another, and slots'
// quotes as they arrive. matching.cuh says how an order is matched.
#pragma once

#include "events/matching.cuh"

namespace ks {

template <int kSlots, typename Width>
struct ContinuousMarket : MatchingMarket<kSlots, Width> {
  using Base = MatchingMarket<kSlots, Width>;
  using Base::beat, Base::beat_price, Base::book, Base::checks_overflow, Base::drawn, Base::error, Base::fundamental, Base::g,
      Base::key, Base::last_tick, Base::launch, Base::levels, Base::next_beat, Base::now, Base::origin, Base::p, Base::pricing,
      Base::ret, Base::slots, Base::t, Base::taken, Base::trades, Base::volume;
  using Base::find_quotes, Base::follow_mid, Base::has_room, Base::match, Base::mid2, Base::mid2_of, Base::put_back,
      Base::tick_of, Base::touched;
  using Lanes = typename Base::Lanes;
  using Touch = typename Base::Touch;
  using Order = typename Base::Order;
  using Drawn = typename Width::Drawn;
  static constexpr int kDrawn = Lanes::kLanes > 1 ? kDrawnTogether : kDrawnAlone;
  static constexpr bool kQuotesWait = true;  // until they arrive, perhaps in a later interval of the decision

  KS_ON_LANE ContinuousMarket(const Launch& launch, int64_t m, const EventMemory<Width>& memory) : Base(launch, m, memory) {}

  // One interval. `fresh` are quotes of a decision, [K], that arrive before event `arrival`, or null; `last`: the interval
  // is its decision's last. Returns false if the market has to stop.
  KS_ON_LANE bool interval(const Quote* fresh, uint64_t arrival, bool last) {
    this->begin_interval();
    if (kWithSeries) taken = 0;
    const int64_t before = volume;
    const uint64_t end = g + (uint32_t)p.levers.interval;
    for (;;) {
      if (g < end && g == next_beat && !take_beat()) return false;
      if (kSlots && fresh && g == arrival && (g < end || last) && !take_quotes(fresh)) return false;
      if (g == end) break;
      uint64_t until = end < next_beat ? end : next_beat;
      if (kSlots && fresh && arrival > g && arrival < until) until = arrival;
      if (!take_events((uint32_t)until)) return false;
      g = until;
    }
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
#pragma unroll 1
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

  KS_ON_LANE bool take_events(uint32_t until) {
    const bool counts = kWithSeries && launch.series_signed_volume != nullptr;
    const bool plain = pricing.is_plain() && !checks_overflow && !counts;
    if (has_added_agents(launch)) return plain ? take_events<true, true>(until) : take_events<false, true>(until);
    return plain ? take_events<true, false>(until) : take_events<false, false>(until);
  }

  // kPlain: no lever moves prices, no side can reach 2^31, and who takes is not recorded. kAdded: users have added agents.
  template <bool kPlain, bool kAdded>
  KS_ON_LANE bool take_events(uint32_t until) {
    bool goes_on = true;
    if constexpr (kLaneCount > 1 && !kAdded) {
      goes_on = take_drawn_events<kPlain>(until);
    } else {
#if !KS_TOGETHER
      if constexpr (kLaneCount == 1 && kPlain && !kAdded)
        if (stays_near_mid()) return take_near_mid(until);
#endif
      Lanes::sync();
      if (Lanes::leads()) goes_on = take_events_alone<kPlain, kAdded>(until);
    }
    share();
    return Lanes::from_first(goes_on);
  }
#if !KS_TOGETHER
  // cpu/continuous.h: the same where most that orders need of the book is near the mid.
  struct OrderLeft {
    int32_t left, tick, sells;
  };
  bool stays_near_mid() const;
  bool take_near_mid(uint32_t until);
  int take_near_mid(const ArrivalBlock& arrivals, int32_t value2, int i, int end, OrderLeft& begun);
  void take_anywhere(Arrival a, const OrderLeft& begun);
#endif

  // Those of the lanes that share the market draw events, and the first of them matches these.
  template <bool kPlain>
  KS_ON_LANE bool take_drawn_events(uint32_t until) {
    const RegimeParams now = this->now;
    Touch touch = touched();
    bool goes_on = true;
    for (uint32_t e = (uint32_t)g; e != until;) {
      const int odd = Lanes::kLanes == 1 ? e & 1 : 0;  // one lane draws pairs
      const int count = min_of((int)(until - e), kDrawn - odd);
      Lanes::sync();
      draw(now, e - odd, count + odd);
      Lanes::sync();
      if (Lanes::leads() && goes_on) goes_on = take_drawn<kPlain>(touch, now.taker_offset, odd, odd + count);
      e += count;
    }
    if (goes_on) put_back(touch);
    return goes_on;
  }

  // The events from number e on, in turns among the lanes that share the market.
  KS_ON_LANE void draw(const RegimeParams& now, uint32_t e, int count) const {
    constexpr int kAtOnce = Lanes::kLanes == 1 ? 2 : 1;  // one word says who comes at two events
#pragma unroll 1
    for (int i = kAtOnce * Lanes::lane(); i < count; i += kAtOnce * Lanes::kLanes) {
      ArrivalBlock block;
      block.draw(p, now, ret, key, e + i, kAtOnce, false, 0);
      for (int k = 0; k < kAtOnce; ++k) drawn[i + k] = Drawn(block.at(k));
    }
  }

  // Match drawn arrivals. A lane that is the only one of its warp that matches has a code per side, without selections. Lanes of
  // several markets go on to the next arrival at their own pace, as those that sweep many ticks would keep all others.
  template <bool kPlain>
  KS_ON_LANE bool take_drawn(Touch& touch, int32_t taker_offset, int first, int last) {
    const Pricing pricing = this->pricing;
    const bool has_value = p.num_fundamental > 0;
    const int32_t value2 = fit_int32(2 * ((int64_t)fundamental - origin));
    const Drawn* next = &drawn[first];
    const Drawn* const end = kept(&drawn[last]);
    bool goes_on = true;
    if constexpr (Lanes::kLanes == kLaneCount) {
      Drawn coming = *next;  // read while the one before it is matched
#pragma unroll 1
      while (next != end && goes_on) {
        Arrival a = coming.arrival();
        coming = *++next;
        const int32_t mid = mid2_of(touch);
        if (has_value) turn_to_value(a, taker_offset, value2, mid);
        goes_on = a.sells ? this->template take_order<kPlain>(touch, pricing, a, mid, 1)
                          : this->template take_order<kPlain>(touch, pricing, a, mid, 0);
      }
    } else {
      Order order = {0, 0, 0, 0};
#pragma unroll 1
      while (goes_on && (order.left > 0 || next != end)) {
        if (order.left == 0) {
          Arrival a = next->arrival();
          next += Width::kMarkets;
          const int32_t mid = mid2_of(touch);
          if (has_value) turn_to_value(a, taker_offset, value2, mid);
          order = {a.quantity, order_tick<kPlain>(pricing, mid, a.offset, a.sells, a.marketable), a.sells, a.marketable};
        }
        goes_on = this->template take_turn<kPlain>(touch, order);
      }
    }
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
    Touch touch = touched();
    ArrivalBlock arrivals;
    if constexpr (kAdded) {
      LiveAgents agents(launch, this->m, p, this->view_at(g, mid2_of(touch), touch.book, touch.last_tick));
      return take_events_of_all<kPlain>(until, touch, pricing, value2, agents);
    }
    for (uint32_t e = (uint32_t)g; e != until;) {
      const int count = ArrivalBlock::block(e, until - e);
      arrivals.draw(p, now, ret, key, e, count, false, 0);
      // Two codes, each of one side, are faster on a core than one without that branch.
      for (int i = 0; i < count; ++i) {
        Arrival a = arrivals.at(i);
        const int32_t mid = mid2_of(touch);
        if (has_value) turn_to_value(a, now.taker_offset, value2, mid);
        if (!(a.sells ? this->template take_order<kPlain>(touch, pricing, a, mid, 1)
                      : this->template take_order<kPlain>(touch, pricing, a, mid, 0)))
          return false;
      }
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
          if (kSlots && agents.sees_book) put_back(touch);  // what slots still offer
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
        if (!this->template take_at<kPlain>(touch, tick, quantity, marketable, side)) return false;
#else
        if (!(side ? this->template take_at<kPlain>(touch, tick, quantity, marketable, 1)
                   : this->template take_at<kPlain>(touch, tick, quantity, marketable, 0)))
          return false;
#endif
      }
      e += count;
    }
    put_back(touch);
    return true;
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
