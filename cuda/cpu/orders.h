// orders.h: what the built-in agents of one market submit in one auction, on one core. All agents' random words are drawn
// first, in loops that compilers vectorise; then each class is summed up. Included by cpu/market.h.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "model/market.h"

namespace ks {

constexpr int kBlock = 512;       // agents whose words are drawn together; they stay in the first cache
constexpr int kLanes = 8;         // numbers that loops handle together; rows of bins are a multiple of it
constexpr int kCopies = 4;        // of the bins, so that an order need not wait for its neighbour's store to the same bin:
constexpr int kCopiedBins = 16;   // 2% where there are at most this many bins per side,
constexpr int kCopiesPayFrom = 64;  // and noise agents this many or more; else copies cost more than they save
constexpr int32_t kBinsByOffset = 0;  // a doubled mid on a tick, so that no offset is rounded

// Halves of random words, one per agent; written two agents at a time.
struct Words {
  alignas(64) uint32_t low[kBlock], high[kBlock];

  // Draw at least `count` words from `counter` on. Rounding up to eight spares the vectorised loop its remainder.
  // Splitting the words into halves here lets all that follows work on twice as many lanes.
  void draw(uint64_t counter, int count) {
    static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the first agent of a pair is its low half");
    const int pairs = (count + 7) / 8 * 4;
    for (int i = 0; i < pairs; ++i) {
      const uint64_t first = mix64(counter), second = mix64(counter + kGolden);
      const uint64_t lows = (first & 0xffffffffu) | (second << 32);
      const uint64_t highs = (first >> 32) | (second & 0xffffffff00000000ull);
      std::memcpy(low + 2 * i, &lows, sizeof lows);
      std::memcpy(high + 2 * i, &highs, sizeof highs);
      counter += 2 * kGolden;
    }
  }
};

// Orders by where they go: noise agents' by tick, all others in sums. Side 0 buys, 1 sells.
struct Orders {
  Words words;
  int32_t place[kBlock], qty[kBlock];
  std::vector<int32_t> bins;  // copies x 2 sides x width
  int spread, width, copies;  // a side's bins: one for each tick that noise reaches, and some more that stay empty
  bool binned;                // else noise orders went to the ticks of the whole grid
  int64_t far[2];             // marketable orders
  int32_t step[2];            // momentum and fundamental agents, one tick from the mid
  int32_t made[2];            // makers
  int64_t total[2];

  const int32_t* side_bins(int side) const { return bins.data() + side * width; }

  // Bins are worth it while there are no more of them than ticks; `levels` is the grid's.
  void prepare(const MarketParams& p, int levels) {
    spread = p.noise_spread;
    binned = 2 * spread + 2 <= levels;
    width = binned ? (2 * spread + 2 + kLanes - 1) / kLanes * kLanes : 0;
    copies = width <= kCopiedBins && p.num_noise >= kCopiesPayFrom ? kCopies : 1;
    if (bins.size() < (size_t)copies * 2 * width) bins.resize((size_t)copies * 2 * width);
  }

  // The tick of the first bin, which may be off the grid: prices are clamped when the bins are put on it.
  int32_t first_tick(int32_t mid2) const { return (mid2 >> 1) - spread; }

  // All agents' orders. Noise orders that are not binned go to `buy` and `sell`, the book, at their price(side, offset).
  template <typename Price>
  void submit(const MarketParams& p, uint64_t key, int64_t t, int32_t mid2, int32_t ret, int32_t fundamental_side,
              const Price& price, int32_t* buy, int32_t* sell) {
    int32_t* all = bins.data();
    const int used = copies * 2 * width & -kLanes;  // locals, as the compiler must assume that bins alias members
    for (int i = 0; i < used; ++i) all[i] = 0;
    for (int side = 0; side < 2; ++side) far[side] = step[side] = made[side] = 0, total[side] = 0;
    const int agents = num_agent_indices(p);
    for (int first = 0; first < agents; first += kBlock) {
      const int last = std::min(agents, first + kBlock);
      words.draw(word_counter(key, t, first), last - first);
      // The part of a class that is in this block, as (begin, count) from the block's first agent.
      auto part = [&](int begin, int count, auto take) {
        const int from = std::max(begin, first), to = std::min(begin + count, last);
        if (from < to) take(from - first, to - from);
      };
      part(0, p.num_noise, [&](int from, int count) {
        if (binned) bin_noise(p, from, count, mid2);
        else scatter_noise(p, from, count, price, buy, sell);
      });
      part(p.first_momentum, p.num_momentum, [&](int from, int count) { directional(p, from, count, ret); });
      part(p.first_maker, p.num_maker, [&](int from, int count) { makers(p, from, count, maker_buys(first + from, t)); });
      part(p.first_fundamental, p.num_fundamental,
           [&](int from, int count) { directional(p, from, count, fundamental_side); });
    }
    if (binned) add_up_bins();
  }

 private:
  void add_up_bins() {
    int32_t* __restrict all = bins.data();
    if (copies > 1) {
      static_assert(kCopies == 4);
      const int copy = 2 * width & -kLanes;
      const int32_t *__restrict b1 = all + copy, *__restrict b2 = b1 + copy, *__restrict b3 = b2 + copy;
      for (int i = 0; i < copy; ++i) all[i] += b1[i] + b2[i] + b3[i];
    }
    const int row = width & -kLanes;
    for (int side = 0; side < 2; ++side) {
      const int32_t* b = side_bins(side);
      int32_t sum = 0;
      for (int i = 0; i < row; ++i) sum += b[i];
      total[side] += sum;
    }
  }

  // One pass decodes the words, eight agents at a time. A second adds quantities to bins; it is not vectorised, as several
  // orders may have the same bin.
  void bin_noise(const MarketParams& p, int from, int count, int32_t mid2) {
    const uint32_t *low = words.low + from, *high = words.high + from;
    const int32_t threshold = p.market_order_threshold, max_qty = p.max_order_qty;
    const int32_t d = spread, first = first_tick(mid2), to_sells = width;
    int32_t buys_far = 0, sells_far = 0;
    for (int i = 0; i < count; ++i) {
      const bool buys = word_is_buy(low[i]);
      const int32_t q = half_quantity(high[i], max_qty);
      const int32_t far_q = word_is_marketable(low[i], threshold) ? q : 0;
      place[i] = unclamped_near_mid(mid2, half_offset(high[i], d)) - first + (buys ? 0 : to_sells);
      qty[i] = q - far_q;
      buys_far += buys ? far_q : 0;
      sells_far += buys ? 0 : far_q;
    }
    far[0] += buys_far, far[1] += sells_far;
    total[0] += buys_far, total[1] += sells_far;
    const int row = copies > 1 ? 2 * width : 0;
    int32_t *b0 = bins.data(), *b1 = b0 + row, *b2 = b1 + row, *b3 = b2 + row;
    int i = 0;
    for (; i + 3 < count; i += 4) {
      b0[place[i]] += qty[i];
      b1[place[i + 1]] += qty[i + 1];
      b2[place[i + 2]] += qty[i + 2];
      b3[place[i + 3]] += qty[i + 3];
    }
    for (; i < count; ++i) b0[place[i]] += qty[i];
  }

  // Every order has its own tick: for spreads that are wider than the grid.
  template <typename Price>
  void scatter_noise(const MarketParams& p, int from, int count, const Price& price, int32_t* buy, int32_t* sell) {
    const uint32_t *low = words.low + from, *high = words.high + from;
    const int32_t threshold = p.market_order_threshold, max_qty = p.max_order_qty, d = spread;
    int32_t sums[4] = {0, 0, 0, 0};  // buys, sells, and the marketable of either
    for (int i = 0; i < count; ++i) {
      const bool buys = word_is_buy(low[i]);
      const int32_t q = half_quantity(high[i], max_qty);
      const int32_t far_q = word_is_marketable(low[i], threshold) ? q : 0;
      place[i] = price(!buys, half_offset(high[i], d));
      qty[i] = q - far_q;
      sums[0] += buys ? q : 0;
      sums[1] += buys ? 0 : q;
      sums[2] += buys ? far_q : 0;
      sums[3] += buys ? 0 : far_q;
    }
    for (int side = 0; side < 2; ++side) total[side] += sums[side], far[side] += sums[2 + side];
    int32_t* const rows[2] = {sell, buy};  // by a table, as a branch on a random side is mispredicted every other time
    for (int i = 0; i < count; ++i) rows[word_is_buy(low[i])][place[i]] += qty[i];
  }

  // Momentum or fundamental agents: they use four ticks only, so sums suffice. Called once for each; a call costs 1%.
  inline __attribute__((always_inline)) void directional(const MarketParams& p, int from, int count, int32_t direction) {
    const uint32_t *low = words.low + from, *high = words.high + from;
    const int32_t threshold = p.market_order_threshold, max_qty = p.max_order_qty;
    int32_t all = 0, all_far = 0, buys = 0, buys_far = 0;
    for (int i = 0; i < count; ++i) {
      const int32_t q = half_quantity(high[i], max_qty);
      const int32_t far_q = word_is_marketable(low[i], threshold) ? q : 0;
      const bool buy = word_is_buy(low[i]);
      all += q;
      all_far += far_q;
      buys += buy ? q : 0;
      buys_far += buy ? far_q : 0;
    }
    if (direction != 0) buys = direction > 0 ? all : 0, buys_far = direction > 0 ? all_far : 0;
    add_directional(0, buys, buys_far);
    add_directional(1, all - buys, all_far - buys_far);
  }

  void add_directional(int side, int32_t all, int32_t all_far) {
    far[side] += all_far;
    step[side] += all - all_far;
    total[side] += all;
  }

  void makers(const MarketParams& p, int from, int count, bool first_buys) {
    const uint32_t* high = words.high + from;
    const int32_t max_qty = p.max_order_qty;
    int32_t sum[2] = {0, 0};
    for (int i = 0; i < count; ++i) {
      const int32_t q = half_quantity(high[i], max_qty);
      sum[0] += i & 1 ? 0 : q;
      sum[1] += i & 1 ? q : 0;
    }
    for (int side = 0; side < 2; ++side) {
      const int32_t q = sum[first_buys ? side : 1 - side];
      made[side] += q;
      total[side] += q;
    }
  }
};

}  // namespace ks
