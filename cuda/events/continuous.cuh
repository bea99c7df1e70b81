// continuous.cuh: an interval of the continuous double auction: beats, and the orders of events, one after another. matching.cuh
// says how an order is matched, quotes.cuh how slots' quotes arrive.
#pragma once

#include "events/quotes.cuh"

namespace ks {

template <int kSlots, typename Width>
struct ContinuousMarket : QuotesMarket<kSlots, Width> {
  using Base = QuotesMarket<kSlots, Width>;
  using Base::arrived, Base::beat, Base::beat_price, Base::book, Base::checks_overflow, Base::drawn, Base::fundamental, Base::g, Base::key,
      Base::last_tick, Base::launch, Base::levels, Base::lives, Base::next_beat, Base::now, Base::origin, Base::p, Base::pricing, Base::ret,
      Base::slots, Base::t, Base::taken, Base::trades, Base::under_way, Base::volume;
  using Base::follow_mid, Base::mid2, Base::mid2_of, Base::put_back, Base::share, Base::take_due, Base::take_quotes, Base::tick_of, Base::touched;
  using Lanes = typename Base::Lanes;
  using Touch = typename Base::Touch;
  using Order = typename Base::Order;
  using Drawn = typename Width::Drawn;
  static constexpr int kDrawn = Lanes::kLanes > 1 ? kDrawnTogether : kDrawnAlone;
  static constexpr uint64_t kNever = UnderWay<Lanes>::kNever;
  static constexpr bool kQueues = true;  // quotes have places in queues, and may be under way before

  KS_ON_LANE ContinuousMarket(const Launch& launch, int64_t m, const EventMemory<kSlots, Width>& memory) : Base(launch, m, memory) {}

  // One interval. `fresh` are quotes, [K], that arrive before its event `arrival`, or null; `records` has their flags. Besides
  // arrives what is due. Returns false if the market has to stop.
  template <typename Records>
  KS_ON_LANE bool interval(const Quote* fresh, uint64_t arrival, Records& records) {
    this->begin_interval();
    if (kWithSeries) taken = 0;
    if (KS_UNDER_WAY) arrived = 0;
    const int64_t before = volume, length = KS_FLOW ? lives.length_of(p) : 0;
    const bool timed = length > 0;
    if (timed && lives.state.now >= kLastTime - length) return this->stops();
    const int64_t end = timed ? lives.state.now + length : kNoTime;
    const uint64_t last = g + (uint32_t)p.levers.interval;
    bool late = false;  // events are left for the next interval
    while (true) {
      // What arrives does so at an event, after its beat, or at a time, before events that are later, and their beats.
      uint64_t due = kSlots && fresh ? arrival : kNever;
      if (kSlots && KS_UNDER_WAY) due = due < under_way.next() ? due : under_way.next();
      const int64_t latest = timed && due < (uint64_t)end ? (int64_t)due : end;
      const bool comes = !timed || this->comes_by(latest), plays = comes && g != last;
      late = timed && comes && !plays;
      if (plays && g == next_beat) {
        if (!take_beat()) return false;
      } else if (timed ? !plays && due < (uint64_t)end : plays && due <= g) {
        if (kSlots && fresh && due == arrival) {
          if (!take_quotes(fresh, records)) return false;
          arrival = kNever;
        }
        if (kSlots && KS_UNDER_WAY && !take_due(due, records)) return false;
      } else if (plays) {
        const uint64_t until = last < next_beat ? last : next_beat;
        if (!take_events(timed || until < due ? until : due, latest)) return false;
      } else {
        break;
      }
    }
    if (timed) lives.state.now = late ? lives.state.time : end, lives.state.events = (int64_t)(uint32_t)g;
    trades += volume > before;
    t += 1;
    return true;
  }

  KS_ON_LANE void stop() {
    Base::stop();
    if (KS_UNDER_WAY) under_way.clear();
  }

  KS_ON_LANE bool take_beat() {
    const int32_t place = origin;
    if (!follow_mid()) return false;
    if (KS_FLOW && !this->take_lives_along(origin - place, (uint32_t)g)) return false;
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
      for (int j = 0; j < slots.quote_count(); ++j) {
        for (int side = 0; side < 2; ++side) {
          const int32_t ahead = slots.ahead(j, side);
          if (ahead == 0) continue;
          const int32_t tick = tick_of(j, side);
          if (tick < 0) continue;
          const int32_t q = book.resting(tick, side);
          if (q == 0) continue;
          const uint64_t word = random_word(key, beat, kCancelWord + tick / 2);
          const int32_t loss = cancelled(q, now.cancel_threshold, (uint32_t)(word >> (32 * (tick & 1))), side);
          if (loss == 0) continue;
          slots.set_ahead(j, side, ahead - cancelled_ahead(q, loss, ahead, (uint32_t)(places >> (32 * side))));
        }
      }
    }
    book.cancel(now.cancel_threshold, key, beat);
  }

  // Events from g on, before `until`, and of a flow no later than `latest`; g is then the first of the others.
  KS_ON_LANE bool take_events(uint64_t until, int64_t latest) {
    if (KS_FLOW && lives.plays()) return this->take_flow_events(until, latest);
    const bool counts = kWithSeries && launch.series_signed_volume != nullptr;
    const bool plain = pricing.is_plain() && !checks_overflow && !counts;
    const bool goes_on = has_added_agents(launch) ? plain ? take_events<true, true>((uint32_t)until) : take_events<false, true>((uint32_t)until)
                         : plain                  ? take_events<true, false>((uint32_t)until)
                                                  : take_events<false, false>((uint32_t)until);
    g = until;
    return goes_on;
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
};

}  // namespace ks
