// added_orders.h: what agents of classes that users have written submit in one auction, on one core. A class decides for a block
// of agents at a time, then their orders are added up by tick. Included by cpu/market.h.
#pragma once

#include <algorithm>
#include <vector>

#include "model/play_agent.h"

namespace ks {

struct AddedOrders {
  static constexpr int kBatch = 256;  // agents that decide together; their orders stay in the first cache
  alignas(64) uint64_t words[kBatch];
  alignas(64) int32_t side[kBatch], tick[kBatch], quantity[kBatch], marketable[kBatch];
  std::vector<int32_t> bins;  // limit orders, 2 sides x ticks of the grid; 0 but between submit and add_to
  int64_t far[2], total[2];   // of marketable orders, and of all
  int32_t low, high;          // ticks between which limit orders lie

  // All agents' orders; place(order) is the tick of one.
  template <typename Place>
  void submit(const Launch& launch, int64_t m, const MarketParams& p, uint64_t key, int64_t t, const AgentView& view,
              const Place& place) {
    const int levels = launch.levels;
    if (bins.size() < (size_t)2 * levels) bins.resize((size_t)2 * levels);
    far[0] = far[1] = total[0] = total[1] = 0;
    low = levels - 1, high = 0;
    for (int32_t number = 0; number < launch.agent_classes; ++number) {
      const AgentClass& kind = launch.agents[number];
      AgentBatch batch;
      batch.market = &view, batch.words = words, batch.orders = {side, tick, quantity, marketable};
      batch.numbers = agent_numbers(launch, m, number);
      batch.first = first_agent(launch, p, number);
      for (int32_t begin = 0; begin < kind.speaking; begin += kBatch) {
        batch.begin = begin, batch.end = std::min(kind.speaking, begin + kBatch);
        const int count = batch.end - begin;
        draw(word_counter(key, t, batch.first + begin), count);
        reinterpret_cast<PlayAgents>(kind.play)(&batch);
        take(count, levels, place);
      }
    }
  }

  // Add limit orders to all interest, and forget them.
  void add_to(int32_t* buy, int32_t* sell, int levels) {
    int32_t* const to[2] = {buy, sell};
    for (int of = 0; of < 2; ++of) {
      int32_t *__restrict row = to[of], *__restrict mine = bins.data() + of * levels;
      for (int i = low; i <= high; ++i) row[i] += mine[i], mine[i] = 0;
    }
  }

 private:
  void draw(uint64_t counter, int count) {
    const int padded = (count + 7) & -8;  // spares the vectorised loop its remainder
    for (int i = 0; i < padded; ++i) words[i] = mix64(counter + (uint64_t)i * kGolden);
  }

  // One pass finds ticks and quantities, which can be vectorised; a second adds to bins.
  template <typename Place>
  void take(int count, int levels, const Place& place) {
    int32_t lowest = low, highest = high;
    int64_t sums[4] = {0, 0, 0, 0};  // buys, sells, and the marketable of either
    for (int i = 0; i < count; ++i) {
      const AgentOrder order = {side[i], tick[i], quantity[i], marketable[i]};
      const int32_t at = place(order), units = quantity_of(order), sold = sells(order) ? units : 0;
      const int32_t far_units = order.marketable ? units : 0, far_sold = order.marketable ? sold : 0;
      const int32_t limit = units - far_units;
      sums[0] += units - sold, sums[1] += sold, sums[2] += far_units - far_sold, sums[3] += far_sold;
      lowest = min_of(lowest, limit > 0 ? at : lowest), highest = max_of(highest, limit > 0 ? at : highest);
      tick[i] = at + (sells(order) ? levels : 0);
      quantity[i] = limit;
    }
    low = lowest, high = highest;
    for (int of = 0; of < 2; ++of) total[of] += sums[of], far[of] += sums[2 + of];
    int32_t* const all = bins.data();
    for (int i = 0; i < count; ++i) all[tick[i]] += quantity[i];
  }
};

}  // namespace ks
