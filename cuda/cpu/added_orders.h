// added_orders.h: what agents of classes that users have written submit in one auction, on one core. A class decides for a block
// of agents at a time, then their orders are added up by tick. Included by cpu/market.h.
#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <vector>

#include "cpu/orders.h"
#include "model/play_agent.h"

namespace ks {

struct AddedOrders {
  static constexpr int kCopiedLevels = 512;
  static constexpr int32_t kBatch = 256;  // agents that decide together; their orders stay in the first cache
  static_assert(kBatch % kPadding == 0);
  alignas(64) uint64_t words[kBatch];
  alignas(64) int32_t side[kBatch], tick[kBatch], quantity[kBatch], marketable[kBatch];
  std::vector<int32_t> bins;  // limit orders, copies x 2 sides x ticks of the grid; 0 but between submit and add_to
  int copies;                 // so that an order need not wait for its neighbour's store to the same bin
  int64_t far[2], total[2];   // of marketable orders, and of all
  int32_t low, high;          // ticks between which limit orders lie

  // All agents' orders. `place` is null where no lever is on, else place(order) is the tick of one that is not marketable.
  template <typename Place>
  void submit(const Launch& launch, int64_t m, const MarketParams& p, uint64_t key, int64_t t, const AgentView& view,
              int32_t origin, const Place& place) {
    constexpr bool kPlaces = !std::is_same_v<Place, std::nullptr_t>;
    const int levels = launch.levels;
    copies = levels <= kCopiedLevels ? kCopies : 1;
    if (bins.size() < (size_t)copies * 2 * levels) bins.resize((size_t)copies * 2 * levels);
    for (int of = 0; of < 2; ++of) far[of] = total[of] = 0;
    low = levels - 1, high = 0;
    for (int32_t number = 0; number < launch.agent_classes; ++number) {
      const AgentClass& kind = launch.agents[number];
      const int32_t first = first_agent(launch, p, number);
      AgentGrid grid = {levels, origin, {}};
      AgentBatch batch = {&view, agent_numbers(launch, m, number), words, first, 0, 0,
                          {side, tick, quantity, marketable}, kPlaces ? nullptr : &grid};
      for (int32_t begin = 0; begin < kind.active; begin += kBatch) {
        batch.begin = begin, batch.count = std::min(kind.active - begin, kBatch);
        grid.sums = {low, high, 0, 0, 0, 0};
        draw(word_counter(key, t, first + begin), batch.count);
        functions_of(kind).play(batch);
        if constexpr (kPlaces) place_all(batch.count, levels, place, grid.sums);
        take(grid.sums);
        put(batch.count, levels);
      }
    }
  }

  // Add limit orders to all interest, and forget them.
  void add_to(int32_t* buy, int32_t* sell, int levels) {
    const int from = low / kLanes * kLanes, end = from + ((high - from) / kLanes + 1) * kLanes;
    if (low > high) return;
    int32_t* const to[2] = {buy, sell};
    for (int of = 0; of < 2; ++of) {
      for (int first = from; first < end; first += kLanes) {
        int32_t sums[kLanes] = {};
        for (int copy = 0; copy < copies; ++copy) {
          int32_t* const mine = bins.data() + (2 * copy + of) * levels + first;
          for (int i = 0; i < kLanes; ++i) sums[i] += mine[i];
          for (int i = 0; i < kLanes; ++i) mine[i] = 0;
        }
        for (int i = 0; i < kLanes; ++i) to[of][first + i] += sums[i];
      }
    }
  }

 private:
  void draw(uint64_t counter, int count) {
    const int padded = (count + kPadding - 1) & -kPadding;  // spares the vectorised loop its remainder
    for (int i = 0; i < padded; ++i, counter += kGolden) words[i] = mix64(counter);
  }

  template <typename Place>
  void place_all(int count, int levels, const Place& place, AgentSums& of_all) {
    AgentSums sums = of_all;
    for (int i = 0; i < count; ++i) {
      const AgentOrder order = {side[i], tick[i], quantity[i], marketable[i]};
      const PlacedOrder placed = add_order(sums, order, place(order), levels, true);
      tick[i] = placed.at, quantity[i] = placed.units;
    }
    of_all = sums;
  }

  void take(const AgentSums& sums) {
    low = sums.low, high = sums.high;
    total[0] += sums.units - sums.sold, total[1] += sums.sold;
    far[0] += sums.units_far - sums.sold_far, far[1] += sums.sold_far;
  }

  // Orders go to bins; not vectorised, as several may have the same one.
  void put(int count, int levels) {
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
