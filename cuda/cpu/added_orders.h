// added_orders.h: what agents of classes that users have written submit in one auction, on one core. A class decides for a block
// of agents at a time, then their orders are added up by tick. Included by cpu/market.h.
#pragma once

#include <algorithm>
#include <vector>

#include "cpu/orders.h"
#include "model/play_agent.h"

namespace ks {

struct AddedOrders {
  static constexpr int kCopiedLevels = 512;
  static constexpr int32_t kBatch = 256;  // agents that decide together; their orders stay in the first cache
  alignas(64) uint64_t words[kBatch];
  alignas(64) int32_t side[kBatch], tick[kBatch], quantity[kBatch], marketable[kBatch];
  std::vector<int32_t> bins;  // limit orders, copies x 2 sides x ticks of the grid; 0 but between submit and add_to
  int copies;                 // so that an order need not wait for its neighbour's store to the same bin
  int64_t far[2], total[2];   // of marketable orders, and of all
  int32_t low, high;          // ticks between which limit orders lie

  // All agents' orders; place(order) is the tick of one that is not marketable.
  template <typename Place>
  void submit(const Launch& launch, int64_t m, const MarketParams& p, uint64_t key, int64_t t, const AgentView& view,
              const Place& place) {
    const int levels = launch.levels;
    copies = levels <= kCopiedLevels ? kCopies : 1;
    if (bins.size() < (size_t)copies * 2 * levels) bins.resize((size_t)copies * 2 * levels);
    far[0] = far[1] = total[0] = total[1] = 0;
    low = levels - 1, high = 0;
    for (int32_t number = 0; number < launch.agent_classes; ++number) {
      const AgentClass& kind = launch.agents[number];
      const int32_t first = first_agent(launch, p, number);
      AgentBatch batch = {&view, agent_numbers(launch, m, number), words, nullptr, nullptr, first, 0, 0,
                          {side, tick, quantity, marketable}};
      for (int32_t begin = 0; begin < kind.speaking; begin += kBatch) {
        batch.begin = begin, batch.count = std::min(kind.speaking - begin, kBatch);
        draw(word_counter(key, t, first + begin), batch.count);
        reinterpret_cast<PlayAgents>(kind.play)(&batch);
        take(batch.count, levels, place);
      }
    }
  }

  // Add limit orders to all interest, and forget them.
  void add_to(int32_t* buy, int32_t* sell, int levels) {
    const int from = low / kLanes * kLanes, end = from + ((high - from) / kLanes + 1) * kLanes;
    if (low > high) return;
    int32_t* const to[2] = {buy, sell};
    for (int of = 0; of < 2; ++of) {
      int32_t *__restrict row = to[of], *__restrict mine = bins.data() + of * levels;
      for (int copy = 1; copy < copies; ++copy) {
        int32_t* __restrict other = mine + 2 * copy * levels;
        for (int i = from; i < end; ++i) mine[i] += other[i], other[i] = 0;
      }
      for (int i = from; i < end; ++i) row[i] += mine[i], mine[i] = 0;
    }
  }

 private:
  void draw(uint64_t counter, int count) {
    const int padded = (count + 7) & -8;  // spares the vectorised loop its remainder
    for (int i = 0; i < padded; ++i) words[i] = mix64(counter + (uint64_t)i * kGolden);
  }

  // One pass finds ticks and quantities, several agents at a time. A second adds quantities to bins; it is not vectorised, as
  // several orders may have the same bin.
  template <typename Place>
  void take(int count, int levels, const Place& place) {
    int32_t lowest = low, highest = high;
    int32_t units_all = 0, sold_all = 0, units_far = 0, sold_far = 0;
    for (int i = 0; i < count; ++i) {
      const AgentOrder order = {side[i], tick[i], quantity[i], 0};
      const int32_t at = place(order), units = quantity_of(order), sold = units & -sells(order);
      const int32_t is_limit = -(int32_t)(marketable[i] == 0), limit = units & is_limit;
      units_all += units, sold_all += sold;
      units_far += units & ~is_limit, sold_far += sold & ~is_limit;
      const int32_t none = ((limit - 1) >> 31);  // all bits where nothing rests at its tick
      lowest = min_of(lowest, (at & ~none) | (levels & none)), highest = max_of(highest, at & ~none);
      tick[i] = at + (levels & -sells(order));
      quantity[i] = limit;
    }
    low = lowest, high = highest;
    total[0] += units_all - sold_all, total[1] += sold_all;
    far[0] += units_far - sold_far, far[1] += sold_far;
    static_assert(kCopies == 4);
    const int row = copies > 1 ? 2 * levels : 0;
    int32_t *b0 = bins.data(), *b1 = b0 + row, *b2 = b1 + row, *b3 = b2 + row;
    int i = 0;
    for (; i + 3 < count; i += 4) {
      b0[tick[i]] += quantity[i];
      b1[tick[i + 1]] += quantity[i + 1];
      b2[tick[i + 2]] += quantity[i + 2];
      b3[tick[i + 3]] += quantity[i + 3];
    }
    for (; i < count; ++i) b0[tick[i]] += quantity[i];
  }
};

}  // namespace ks
