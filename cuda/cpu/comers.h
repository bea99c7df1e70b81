// comers.h: who comes at the events of a call auction on the clock, and what they order, on one core. Between two beats nothing
// that agents see changes but t, so all who come at a block of events decide together, class by class; then their orders
// wait. Included by cpu/events.h.
#pragma once

#include <algorithm>
#include <cstring>

#include "cpu/waiting.h"

namespace ks {

struct Comers {
  static constexpr int kEvents = WaitingOrders::kEvents;  // of a block at most; one begins at an even event, or has one less
  static constexpr int kRoom = WaitingOrders::kRoom;
  static constexpr uint32_t kFew = 8;  // events for which rows do not pay
  alignas(64) uint64_t drawn[kRoom], pairs[kRoom / 2];
  alignas(64) uint32_t who[kRoom];      // 32 bits that say who comes
  alignas(64) int32_t by_value[kRoom];  // as Arrival has it
  alignas(64) int32_t place[kRoom];     // as Comer has it
  // Those of one class of users.
  alignas(64) uint64_t words[kRoom];
  alignas(64) int32_t agents[kRoom], events[kRoom];
  WaitingOrders orders;

  // Draw `count` events from e on.
  void draw(uint64_t key, uint32_t e, int count) {
    const int odd = e & 1, padded = (count + odd + kPadding - 1) & -kPadding;  // from an even event on: pairs are whole
    const uint64_t first = word_counter(key, e - odd, 0), pair = word_counter(key, e >> 1, kWhoWord);
    for (int i = 0; i < padded; ++i) drawn[i] = mix64(first + (uint64_t)i * (kGolden << 32));
    for (int i = 0; i < padded / 2; ++i) pairs[i] = mix64(pair + (uint64_t)i * (kGolden << 32));
    std::memcpy(who, pairs, padded * sizeof(uint32_t));
  }

  // The orders of built-in agents at `count` events from e on, which are drawn; the others' have no quantity. `value2`: the
  // fundamental price on the grid, doubled. Returns false if the market has to stop.
  template <typename Market>
  bool take_built_in(Market& market, uint32_t e, int count, int32_t mid, int32_t value2) {
    const MarketParams p = market.p;  // locals, as the compiler must assume that what is written aliases them
    const RegimeParams now = market.now;
    const Pricing pricing = market.pricing;
    const int32_t ret = market.ret;
    const int odd = e & 1, padded = (count + odd + kPadding - 1) & -kPadding;  // the event before an odd one orders nothing
    for (int i = 0; i < padded; ++i) {
      const Arrival a = arrival_at(p, now, ret, e - odd + i, who[i], drawn[i]);
      orders.side[i] = a.sells, orders.tick[i] = a.offset, orders.quantity[i] = a.quantity & -(int32_t)(i >= odd);
      orders.marketable[i] = a.marketable, by_value[i] = a.by_value;
    }
    return orders.wait(market, count + odd, [&](int i, auto plain) -> AgentOrder {
      Arrival a = {orders.quantity[i], orders.tick[i], orders.side[i], orders.marketable[i], by_value[i]};
      turn_to_value(a, now.taker_offset, value2, mid);
      return {a.sells, order_tick<plain>(pricing, mid, a.offset, a.sells, a.marketable), a.quantity, a.marketable};
    });
  }

  // The orders of agents that users have added.
  template <typename Market>
  bool take_added(Market& market, const AgentView& view, uint32_t e, int count) {
    const Launch& launch = market.launch;
    const int32_t levels = market.levels, origin = market.origin;
    const Pricing pricing = market.pricing;
    find_places(market.p, first_added_agent(launch, market.p), count + (e & 1));
    for (int32_t number = 0; number < launch.agent_classes; ++number) {
      const AgentClass& kind = launch.agents[number];
      const int picked = pick(kind, e, count);
      if (picked == 0) continue;
      functions_of(kind).come({&view, agent_numbers(launch, market.m, number), first_agent(launch, market.p, number), picked,
                               words, agents, events, {orders.side, orders.tick, orders.quantity, orders.marketable}});
      const auto order_of = [&](int i, auto plain) -> AgentOrder {
        const AgentOrder order = {orders.side[i], orders.tick[i], orders.quantity[i], orders.marketable[i]};
        const int32_t at = plain ? tick_of(order, levels, origin) : tick_of(order, pricing, origin);
        return {sells(order), at, quantity_of(order), order.marketable};
      };
      if (!orders.wait(market, picked, order_of)) return false;
    }
    return true;
  }

 private:
  void find_places(const MarketParams& p, int32_t first_added, int count) {
    const MarketParams own = p;
    for (int i = 0; i < ((count + kPadding - 1) & -kPadding); ++i) place[i] = who_comes(own, who[i]) - first_added;
  }

  // A class's own; returns how many. Without branches, as no CPU can predict who comes.
  int pick(const AgentClass& kind, uint32_t e, int count) {
    const int32_t first = kind.first, speaking = kind.speaking, *const at = place + (e & 1);
    const uint64_t* const of_events = drawn + (e & 1);
    int picked = 0;
    for (int i = 0; i < count; ++i) {
      const int32_t agent = at[i] - first;
      words[picked] = of_events[i], agents[picked] = agent, events[picked] = (int32_t)(e + i);
      picked += (uint32_t)agent < (uint32_t)speaking;
    }
    for (int i = picked; i < picked + kPadding; ++i) words[i] = 0, agents[i] = events[i] = 0;
    return picked;
  }
};

template <int kSlots, typename Width>
bool CallMarket<kSlots, Width>::take_events(uint32_t until) {
  const bool added = has_added_agents(launch);
  // Levers take branches, and a division, that no compiler vectorises.
  if (!added && (until - (uint32_t)g <= Comers::kFew || !this->pricing.is_plain())) return take_one_by_one(until);
  const bool built_in = !added || first_added_agent(launch, p) > 0;
  const int32_t mid = mid2(), value2 = fit_int32(2 * ((int64_t)fundamental - origin));
  AgentView view;
  if (added) view = this->view_at(g, mid, book, last_tick);
  Comers comers;
  for (uint32_t e = (uint32_t)g; e != until;) {
    const int count = (int)std::min<uint32_t>(until - e, Comers::kEvents - (e & 1));
    comers.draw(key, e, count);
    if (built_in && !comers.take_built_in(*this, e, count, mid, value2)) return false;
    if (added && !comers.take_added(*this, view, e, count)) return false;
    e += count;
  }
  comers.orders.end(*this);
  return true;
}

}  // namespace ks
