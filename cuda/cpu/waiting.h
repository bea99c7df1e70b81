// waiting.h: orders of a call auction on the clock that come between two beats, on one core: they are put into rows in a loop
// that compilers vectorise, and then wait together. Included by cpu/call.h.
//
// Between two beats nothing that agents see changes but t, so all agents that arrive in a block of events decide together,
// class by class; then their orders wait.
#pragma once

#include <cstring>
#include <type_traits>

#include "cpu/orders.h"
#include "events/arrivals.cuh"
#include "events/columns.cuh"

namespace ks {

struct WaitingOrders {
  static constexpr int kEvents = 256;  // whose orders wait together, at most
  static constexpr int kRoom = kEvents + kPadding;
  static constexpr int kTicksPerOrder = 16;  // on a longer stretch orders mark their ticks one by one
  static_assert(kEvents % kPadding == 0);
  alignas(64) int32_t side[kRoom], tick[kRoom], quantity[kRoom], marketable[kRoom];

  // `count` orders wait: order_of(i, plain) has their sides, ticks of the grid and units. `plain` is a true_type where no lever
  // but the rounding is on, else a false_type. Returns false if the market has to stop.
  template <typename Market, typename Order>
  bool wait(Market& market, int count, const Order& order_of) {
    int32_t* const buys = market.waiting[0];
    const int32_t sells = (int32_t)(market.waiting[1] - buys);  // behind them, in one piece of memory; a power of two
    const AgentSums sums = market.pricing.is_plain()
        ? fill(count, sells, [&](int i) { return order_of(i, std::true_type()); })
        : fill(count, sells, [&](int i) { return order_of(i, std::false_type()); });
    for (int i = 0; i < count; ++i) buys[tick[i]] += quantity[i];
    if (!marks_later(market, sums, count))
      for (int i = 0; i < count; ++i) occupy(market, tick[i] & (sells - 1), quantity[i]);
    market.marketable[0] += sums.units_far - sums.sold_far, market.marketable[1] += sums.sold_far;
    if (!market.checks_overflow) return true;
    market.total[0] += sums.units - sums.sold, market.total[1] += sums.sold;
    return !(sums.units > sums.sold && market.is_full(0)) && !(sums.sold > 0 && market.is_full(1));
  }

  // After the last of them: mark the ticks where orders wait that are not marked yet.
  template <typename Market>
  void end(Market& market) const {
    for (int32_t w = low / kWordBits; w <= high / kWordBits; ++w)
      market.occupied[w] |= occupied_bits(market.waiting[0] + w * kWordBits, market.waiting[1] + w * kWordBits);
  }

 private:
  int32_t low = kNoTick, high = -1;

  // Put orders into rows: in `tick` their places in both sides' memory. Returns what they come to.
  template <typename Order>
  AgentSums fill(int count, int32_t sells, const Order& order_at) {
    AgentSums sums = {kNoTick, -1, 0, 0, 0, 0};
    const int padded = (count + kPadding - 1) & -kPadding;
    KS_INDEPENDENT_LOOP
    for (int i = 0; i < padded; ++i) {
      const AgentOrder order = order_at(i);
      const int32_t sold = -order.side, units = order.quantity & -(int32_t)(i < count);
      const int32_t far = units & -(int32_t)(order.marketable != 0), near = -(int32_t)(units != far);  // 0, or all bits
      tick[i] = order.tick + (sells & sold), quantity[i] = units;
      sums.units += units, sums.sold += units & sold;
      sums.units_far += far, sums.sold_far += far & sold;
      sums.low = min_of(sums.low, (order.tick & near) | (kNoTick & ~near)), sums.high = max_of(sums.high, order.tick | ~near);
    }
    return sums;
  }

  // Marks have to wait for each other, so where orders are close together they are made later, of whole words.
  template <typename Market>
  bool marks_later(Market& market, const AgentSums& sums, int count) {
    const int32_t from = min_of(low, sums.low), to = max_of(high, sums.high);
    if (sums.low <= sums.high && to - from >= kTicksPerOrder * count) return false;
    low = from, high = to;
    occupy(market, market.pricing.marketable(0), sums.units_far - sums.sold_far);
    occupy(market, market.pricing.marketable(1), sums.sold_far);
    return true;
  }
  template <typename Market>
  static void occupy(Market& market, int32_t at, int32_t units) {
    market.occupied[at / kWordBits] |= (OccupiedBits)(units > 0) << (at % kWordBits);
  }

  // Bit i: something waits at the i-th of a word's ticks, on either side.
  static OccupiedBits occupied_bits(const int32_t* buys, const int32_t* sells) {
    static_assert(kWordBits == 64 && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
    unsigned char some[kWordBits];
    for (int i = 0; i < kWordBits; ++i) some[i] = (buys[i] | sells[i]) != 0;
    OccupiedBits bits = 0;
    for (int i = 0; i < kWordBits; i += 8) {  // the product's highest byte gathers eight bytes' lowest bits
      uint64_t eight;
      std::memcpy(&eight, some + i, sizeof eight);
      bits |= eight * 0x0102040810204080ull >> 56 << i;
    }
    return bits;
  }
};

struct ArrivingAgents {
  static constexpr int kEvents = WaitingOrders::kEvents;  // of a block at most; one begins at an even event, or has one less
  static constexpr int kRoom = WaitingOrders::kRoom;
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

}  // namespace ks
