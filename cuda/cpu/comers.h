// comers.h: agents of classes that users have written at the events of a call auction on the clock, on one core. Between two
// beats nothing that they see changes but t, so a class decides for all of its agents among a block of events at a time; then
// their orders wait. Included by cpu/events.h.
#pragma once

#include <algorithm>
#include <cstring>

#include "events/call.cuh"

namespace ks {

struct Comers {
  static constexpr int kEvents = 256;  // of a block at most; one begins at an even event, or has one event less
  static constexpr int kRoom = kEvents + kPadding;
  static_assert(kEvents % kPadding == 0 && kEventBlock <= kEvents);
  alignas(64) uint64_t drawn[kRoom], pairs[kRoom / 2];
  alignas(64) int32_t place[kRoom];  // as Comer has it
  // Those of one class, and their orders.
  alignas(64) uint64_t words[kRoom];
  alignas(64) int32_t agents[kRoom], events[kRoom];
  alignas(64) int32_t side[kRoom], tick[kRoom], quantity[kRoom], marketable[kRoom];

  // Who comes at `count` events from e on.
  void draw(const MarketParams& p, uint64_t key, uint32_t e, int count) {
    const int odd = e & 1, padded = (count + odd + kPadding - 1) & -kPadding;
    const uint64_t first = word_counter(key, e - odd, 0), who = word_counter(key, e >> 1, kWhoWord);
    for (int i = 0; i < padded; ++i) drawn[i] = mix64(first + (uint64_t)i * (kGolden << 32));
    for (int i = 0; i < padded / 2; ++i) pairs[i] = mix64(who + (uint64_t)i * (kGolden << 32));
    std::memcpy(place, pairs, padded * sizeof(int32_t));
    const MarketParams own = p;  // a local, as the compiler must assume that what is written aliases it
    for (int i = 0; i < padded; ++i) place[i] = who_comes(own, (uint32_t)place[i]);
  }

  // Let the agents that users have added decide at `count` events from e on, of which these are the words and who comes.
  // Returns false if the market has to stop.
  template <typename Market>
  bool take(Market& market, const AgentView& view, const uint64_t* of_events, const int32_t* who, uint32_t e, int count) {
    const Launch& launch = market.launch;
    for (int32_t number = 0; number < launch.agent_classes; ++number) {
      const AgentClass& kind = launch.agents[number];
      const int picked = pick(kind, of_events, who, e, count);
      if (picked == 0) continue;
      functions_of(kind).come({&view, agent_numbers(launch, market.m, number), first_agent(launch, market.p, number), picked,
                               words, agents, events, {side, tick, quantity, marketable}});
      const int32_t levels = market.levels, origin = market.origin;
      const auto order_of = [&](int i, const Pricing& pricing, auto plain) -> AgentOrder {
        const AgentOrder order = {side[i], tick[i], quantity[i], marketable[i]};
        const int32_t at = plain ? tick_of(order, levels, origin) : tick_of(order, pricing, origin);
        return {sells(order), at, quantity_of(order), order.marketable};
      };
      if (!wait(market, picked, order_of)) return false;
    }
    return true;
  }

  // The same of built-in agents. The others' orders have no quantity.
  template <typename Market>
  bool take_built_in(Market& market, const ArrivalBlock& arrivals, int32_t mid, int count) {
    const int32_t value2 = fit_int32(2 * ((int64_t)market.fundamental - market.origin)), step = market.now.taker_offset;
    return wait(market, count, [&](int i, const Pricing& pricing, auto plain) -> AgentOrder {
      Arrival a = arrivals.at(i);
      turn_to_value(a, step, value2, mid);
      return {a.sells, order_tick<plain>(pricing, mid, a.offset, a.sells, a.marketable), a.quantity, a.marketable};
    });
  }

  // After the last block: mark the ticks where orders wait that are not marked yet.
  template <typename Market>
  void end(Market& market) {
    const int32_t *buys = market.waiting[0].at, *sells = market.waiting[1].at;
    for (int32_t at = low; at <= high;) {
      const int32_t word = at / kWordBits, end = min_of(high + 1, (word + 1) * kWordBits);
      OccupiedBits bits = 0;
      for (; at < end; ++at) bits |= (OccupiedBits)((buys[at] | sells[at]) != 0) << (at % kWordBits);
      market.occupied[word] |= bits;
    }
  }

 private:
  int32_t low = kNoTick, high = -1;

  // A class's own; returns how many. Without branches, as no CPU can predict who comes.
  int pick(const AgentClass& kind, const uint64_t* of_events, const int32_t* who, uint32_t e, int count) {
    const int32_t first = kind.first, speaking = kind.speaking;
    int picked = 0;
    for (int i = 0; i < count; ++i) {
      const int32_t agent = who[i] - first;
      words[picked] = of_events[i], agents[picked] = agent, events[picked] = (int32_t)(e + i);
      picked += (uint32_t)agent < (uint32_t)speaking;
    }
    for (int i = picked; i < picked + kPadding; ++i) words[i] = 0, agents[i] = events[i] = 0;
    return picked;
  }

  // What CallMarket::wait does, for `count` orders at a time: order_of(i, pricing, plain) has sides, ticks of the grid and
  // units. Returns false if the market has to stop.
  template <typename Market, typename Order>
  bool wait(Market& market, int count, const Order& order_of) {
    const Pricing pricing = market.pricing;
    const AgentSums sums = pricing.is_plain()
        ? fill(count, market.levels, [&](int i) { return order_of(i, pricing, std::true_type()); })
        : fill(count, market.levels, [&](int i) { return order_of(i, pricing, std::false_type()); });
    int32_t* const rows[2] = {market.waiting[0].at, market.waiting[1].at};
    for (int i = 0; i < count; ++i) rows[side[i]][tick[i]] += quantity[i];
    occupy(market, sums, count);
    market.marketable[0] += sums.units_far - sums.sold_far, market.marketable[1] += sums.sold_far;
    if (!market.careful) return true;
    market.total[0] += sums.units - sums.sold, market.total[1] += sums.sold;
    return !market.is_full(0) && !market.is_full(1);
  }

  // Put orders into rows; returns what they come to, marketable ones within `low` and `high`, too.
  template <typename Order>
  AgentSums fill(int count, int32_t levels, const Order& order_at) {
    AgentSums sums = {levels, 0, 0, 0, 0, 0};
    const int padded = (count + kPadding - 1) & -kPadding;
    KS_APART_LOOP
    for (int i = 0; i < padded; ++i) {
      const AgentOrder order = order_at(i);
      const int32_t at = order.tick, units = order.quantity & -(int32_t)(i < count), far = units & -(int32_t)(order.marketable != 0);
      const int32_t none = (units - 1) >> 31;  // all bits where nothing goes to the tick
      side[i] = order.side, tick[i] = at, quantity[i] = units;
      sums.units += units, sums.sold += units & -order.side;
      sums.units_far += far, sums.sold_far += far & -order.side;
      sums.low = min_of(sums.low, (at & ~none) | (levels & none)), sums.high = max_of(sums.high, at & ~none);
    }
    return sums;
  }

  // Mark where they wait. One would have to wait for its neighbour's mark, so where they are close together it is done later.
  template <typename Market>
  void occupy(Market& market, const AgentSums& sums, int count) {
    if (sums.low > sums.high) return;
    const int32_t from = min_of(low, sums.low), to = max_of(high, sums.high);
    if (to - from < 2 * count) {
      low = from, high = to;
      return;
    }
    for (int i = 0; i < count; ++i)
      market.occupied[tick[i] / kWordBits] |= (OccupiedBits)(quantity[i] > 0) << (tick[i] % kWordBits);
  }
};

// Call auctions of markets that have agents whom users have added. All but their events is CallMarket's.
struct AddedColumns : WideColumns {};

template <int kSlots>
bool take_events_at_once(CallMarket<kSlots, AddedColumns>& market, uint32_t until) {
  const int32_t mid = market.mid2(), first_added = first_added_agent(market.launch, market.p);
  const AgentView view = market.view_at(market.g, mid, market.book, market.last_tick);
  Comers comers;
  ArrivalBlock arrivals;
  for (uint32_t e = (uint32_t)market.g; e != until;) {
    int count;
    if (first_added > 0) {
      count = ArrivalBlock::block(e, until - e);
      arrivals.draw(market.p, market.now, market.ret, market.key, e, count, true, first_added);
      if (!comers.take_built_in(market, arrivals, mid, count)) return false;
      if (!comers.take(market, view, arrivals.word + arrivals.begin, arrivals.place + arrivals.begin, e, count)) return false;
    } else {
      count = (int)std::min<uint32_t>(until - e, Comers::kEvents - (e & 1));
      comers.draw(market.p, market.key, e, count);
      if (!comers.take(market, view, comers.drawn + (e & 1), comers.place + (e & 1), e, count)) return false;
    }
    e += count;
  }
  comers.end(market);
  return true;
}
template <>
inline bool CallMarket<0, AddedColumns>::take_events(uint32_t until) {
  return take_events_at_once(*this, until);
}
template <>
inline bool CallMarket<1, AddedColumns>::take_events(uint32_t until) {
  return take_events_at_once(*this, until);
}
template <>
inline bool CallMarket<2, AddedColumns>::take_events(uint32_t until) {
  return take_events_at_once(*this, until);
}

}  // namespace ks
