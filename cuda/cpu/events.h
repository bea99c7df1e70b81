// events.h: markets on the clock on one core: what arrives at the events of a call auction, their memory, and which of the
// mechanisms of cuda/events/ they have. Included by market_cpu.cpp.
//
// Between two beats nothing that agents see changes but t, so all agents that arrive in a block of events decide together,
// class by class; then their orders wait.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "cpu/waiting.h"
#include "events/environment.cuh"

namespace ks {

struct ArrivingAgents {
  static constexpr int kEvents = WaitingOrders::kEvents;  // of a block at most; one begins at an even event, or has one less
  static constexpr int kRoom = WaitingOrders::kRoom;
  static constexpr uint32_t kFew = 8;  // events for which rows do not pay
  alignas(64) uint64_t drawn[kRoom], pairs[kRoom / 2];
  alignas(64) uint32_t who[kRoom];      // 32 bits that say who comes
  alignas(64) int32_t by_value[kRoom];  // as Arrival has it
  alignas(64) int32_t place[kRoom];     // as ArrivingAgent has it
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
      functions_of(kind).arrive({&view, agent_numbers(launch, market.m, number), first_agent(launch, market.p, number), picked,
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
    const int32_t first = kind.first, active = kind.active, *const at = place + (e & 1);
    const uint64_t* const of_events = drawn + (e & 1);
    int picked = 0;
    for (int i = 0; i < count; ++i) {
      const int32_t agent = at[i] - first;
      words[picked] = of_events[i], agents[picked] = agent, events[picked] = (int32_t)(e + i);
      picked += (uint32_t)agent < (uint32_t)active;
    }
    for (int i = picked; i < picked + kPadding; ++i) words[i] = 0, agents[i] = events[i] = 0;
    return picked;
  }
};

template <int kSlots, typename Width>
bool CallMarket<kSlots, Width>::take_events(uint32_t until) {
  const bool added = has_added_agents(launch);
  // Levers take branches, and a division, that no compiler vectorises.
  if (!added && (until - (uint32_t)g <= ArrivingAgents::kFew || !this->pricing.is_plain())) return take_one_by_one(until);
  const bool built_in = !added || first_added_agent(launch, p) > 0;
  const int32_t mid = mid2(), value2 = fit_int32(2 * ((int64_t)fundamental - origin));
  AgentView view;
  if (added) view = this->view_at(g, mid, book, last_tick);
  ArrivingAgents arriving;
  for (uint32_t e = (uint32_t)g; e != until;) {
    const int count = (int)std::min<uint32_t>(until - e, ArrivingAgents::kEvents - (e & 1));
    arriving.draw(key, e, count);
    if (built_in && !arriving.take_built_in(*this, e, count, mid, value2)) return false;
    if (added && !arriving.take_added(*this, view, e, count)) return false;
    e += count;
  }
  arriving.orders.end(*this);
  return true;
}

// A thread's memory, kept from launch to launch.
struct EventScratch {
  std::vector<int32_t> row, waiting;  // a side's orders after the other's
  std::vector<uint64_t> bits, waiting_bits;
  int cleared_for = 0;  // a grid of so many levels

  void fit(int levels) {
    if (row.size() < (std::size_t)levels) row.resize(levels);
    // Whole words of ticks are looked at, and a market that had to stop leaves orders at ticks that another grid has not.
    if (cleared_for != levels) waiting.assign(2 * (std::size_t)std::max(levels, kWordBits), 0), cleared_for = levels;
    const std::size_t most = 2 * (std::size_t)words_of_bits(levels, 64);
    for (auto* words : {&bits, &waiting_bits})
      if (words->size() < most) words->resize(most);
  }
  template <typename Width>
  EventMemory<Width> memory() {
    int32_t *const buys = waiting.data(), *const sells = buys + waiting.size() / 2;
    return {row.data(), bits.data(), {buys, sells}, waiting_bits.data(), nullptr};
  }
};

template <bool kContinuous, int kSlots, typename Width>
void play_on_clock(const Launch& launch, int64_t m, EventScratch& scratch) {
  using Market = typename EventMarketOf<kContinuous, kSlots, Width>::type;
  const EventMemory<Width> memory = scratch.memory<Width>();
  RunPlace start = {0, 0};
  StepPlace step = {};
  if (launch.env_mode == kLaunchModeRun) EventRun<Market>(launch, m, memory).run(start);
  else step_on_clock<Market>(launch, m, memory, step);
}

template <int kSlots>
void play_on_clock(const Launch& launch, int64_t m, EventScratch& scratch) {
  if (launch.mechanism == kMechanismContinuous) play_on_clock<true, kSlots, WideColumns>(launch, m, scratch);
  else play_on_clock<false, kSlots, WideColumns>(launch, m, scratch);
}

inline void play_on_clock(const Launch& launch, int64_t m, EventScratch& scratch) {
  scratch.fit(launch.levels);
  if (launch.slots == 0) play_on_clock<0>(launch, m, scratch);
  else if (launch.slots == 1) play_on_clock<1>(launch, m, scratch);
  else play_on_clock<2>(launch, m, scratch);
}

}  // namespace ks
