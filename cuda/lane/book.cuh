// book.cuh: what a lane keeps of its market in shared memory: the resting book, and bins for the orders of one auction.
// Memory only; the rules are model/market.h's.
//
// Shared memory limits how many warps a multiprocessor holds, so numbers are as short as they can be. Both sides of the
// book are one row, as after an auction no tick has both (kineticsim_env/runtime/checks.py refuses a crossed state). The
// row has 16 bits per tick, the bins 16 bits per offset and side. Markets whose numbers may not fit use 32 bits (kWide), on
// half the lanes at a time.
#pragma once

#include "lane/lanes.cuh"
#include "model/market.h"
#include "model/plan.h"

namespace ks {

constexpr int kWideLanes = kLaneCount > 1 ? kLaneCount / 2 : 1;
static_assert(kNarrowResting + kNarrowOrders + kNarrowQuote <= 0x7fff, "so that what may be left at a tick fits");
static_assert((kNarrowResting & (kNarrowResting + 1)) == 0, "so that bits set in any quantity tell");
constexpr int kMaskedTicks = 64;  // ticks whose pairs have one bit each in 32 bits

template <bool kWide>
struct CellOf {
  using Type = int32_t;
};
template <>
struct CellOf<false> {
  using Type = short;
};

struct Interest {
  int32_t buy, sell;
};

// One side of a row: bids are positive there, asks negative.
template <typename Cell>
struct SideOfRow {
  const Cell* row;
  int32_t sign;
  KS_ON_LANE int32_t operator[](int32_t tick) const { return max_of(sign * (int32_t)row[tick], 0); }
};

template <bool kWide>
struct LaneBook {
  using Cell = typename CellOf<kWide>::Type;
  static constexpr int kStride = kWide ? kWideLanes : kLaneCount;  // from one place of a lane's bins to the next
  struct alignas(4 * sizeof(Cell)) Cells {
    Cell a, b, c, d;
  };
  struct alignas(2 * sizeof(Cell)) Pair {
    Cell even, odd;
  };

  const int levels;
  Cell* const row;                    // [levels]
  int32_t* const bins;                // [places], or [places, 2] if wide: sells and buys
  int32_t best_bid, best_ask;         // of the resting built-in book; -1 and kNoTick where a side is empty
  uint32_t resting;                   // of both sides together, when the row was last looked at
  int32_t changed_low, changed_high;  // ticks that may have changed

  KS_ON_LANE LaneBook(int levels, Cell* row, int32_t* bins)
      : levels(levels), row(row), bins(bins), best_bid(-1), best_ask(kNoTick), resting(0), changed_low(levels),
        changed_high(-1) {}

  KS_ON_LANE SideOfRow<Cell> bids() const { return {row, 1}; }
  KS_ON_LANE SideOfRow<Cell> asks() const { return {row, -1}; }

  // Orders by place. The same place of all lanes is contiguous, so that no two lanes use the same bank.
  KS_ON_LANE Interest ordered(int place) const {
    if (kWide) return {bins[kStride * (2 * place + 1)], bins[kStride * 2 * place]};
    const uint32_t both = (uint32_t)bins[kStride * place];
    return {(int32_t)(both >> 16), (int32_t)(both & 0xffffu)};
  }
  KS_ON_LANE void put(int place, const Interest& orders) const {
    if (kWide) bins[kStride * (2 * place + 1)] = orders.buy, bins[kStride * 2 * place] = orders.sell;
    else bins[kStride * place] = (int32_t)((uint32_t)orders.buy << 16 | (uint32_t)orders.sell);
  }
  KS_ON_LANE void add(int place, int32_t buy, int32_t sell) const {
    const Interest before = ordered(place);
    put(place, {before.buy + buy, before.sell + sell});
  }
  KS_ON_LANE void add_order(int place, bool buys, int32_t qty) const {
    if (kWide) add_to(bins + kStride * (2 * place + (buys ? 1 : 0)), qty);
    else add_to(bins + kStride * place, qty * (buys ? 1 << 16 : 1));
  }

  KS_ON_LANE void change(int32_t low, int32_t high) {
    changed_low = min_of(changed_low, low);
    changed_high = max_of(changed_high, high);
  }

  // After the row was written: its best prices and how much rests. No tick has both sides and no side 2^31, so that the
  // sum of both fits.
  KS_ON_LANE void measure() {
    start_looking();
#pragma unroll 4
    for (int tick = 0; tick < levels; ++tick) look_at(tick, row[tick]);
  }
  KS_ON_LANE void start_looking() { best_bid = -1, best_ask = kNoTick, resting = 0; }
  KS_ON_LANE void look_at(int tick, int32_t here) {
    best_bid = max_of(best_bid, here > 0 ? tick : -1);
    best_ask = min_of(best_ask, here < 0 ? tick : kNoTick);
    resting += here < 0 ? -here : here;
  }

  // All bits of the row's quantities.
  KS_ON_LANE int32_t bits() const {
    int32_t bits = 0;
#pragma unroll 8
    for (int tick = 0; tick < levels; ++tick) bits |= row[tick] < 0 ? -row[tick] : row[tick];
    return bits;
  }

  // From where the best prices are at most, to where they are.
  KS_ON_LANE void find_best() {
    while (best_bid >= 0 && row[best_bid] <= 0) --best_bid;
    while (best_ask < levels && row[best_ask] >= 0) ++best_ask;
    if (best_ask >= levels) best_ask = kNoTick;
  }

  // The opening of an episode without a warm start.
  KS_ON_LANE void open(const MarketParams& p) {
    for (int tick = 0; tick < levels; ++tick)
      row[tick] = (Cell)(tick == p.init_price - 1 ? p.init_depth : tick == p.init_price + 1 ? -p.init_depth : 0);
  }

  // Two ticks share a random word, and where nothing rests nothing is hashed. Each lane first finds its own occupied pairs
  // of ticks; then all lanes take their first pair together, then their second, and so on.
  KS_ON_LANE void cancel(uint64_t first_word, int32_t threshold) {
    start_looking();
    for (int low = 0; low < levels; low += 2 * kMaskedTicks) {
      uint64_t occupied = occupied_pairs(low);
      if (low + kMaskedTicks < levels) occupied |= (uint64_t)occupied_pairs(low + kMaskedTicks) << (kMaskedTicks / 2);
      if (occupied != 0) change(low + 2 * lowest_bit(occupied), low + 2 * highest_bit(occupied) + 1);
#pragma unroll 1
      for (; occupied != 0; occupied &= occupied - 1) cancel_pair(low / 2 + lowest_bit(occupied), first_word, threshold);
    }
  }
  // One bit per pair of ticks from `low` on.
  KS_ON_LANE uint32_t occupied_pairs(int low) const {
    struct alignas(4 * sizeof(Cell)) Words {
      uint32_t words[sizeof(Cell)];
    };
    const Words* const from = reinterpret_cast<const Words*>(row + low);
    const int end = min_of(levels - low, kMaskedTicks) / 4;
    uint32_t occupied = 0;
#pragma unroll 8
    for (int i = 0; i < end; ++i) {
      const Words here = from[i];
      const uint32_t even = kWide ? here.words[0] | here.words[1] : here.words[0];
      const uint32_t odd = kWide ? here.words[2 % sizeof(Cell)] | here.words[3 % sizeof(Cell)] : here.words[1];
      occupied |= (even != 0 ? 1u << 2 * i : 0u) | (odd != 0 ? 2u << 2 * i : 0u);
    }
    return occupied;
  }
  KS_ON_LANE void cancel_pair(int pair, uint64_t first_word, int32_t threshold) {
    Pair& place = reinterpret_cast<Pair*>(row)[pair];
    const Pair here = place;
    const uint64_t word = mix64(first_word + (kCancelWord + (uint64_t)pair) * kGolden);
    const int32_t even = left_of(here.even, threshold, low_half(word));
    const int32_t odd = left_of(here.odd, threshold, high_half(word));
    place = {(Cell)even, (Cell)odd};
    look_at(2 * pair, even);
    look_at(2 * pair + 1, odd);
  }
  static KS_ON_LANE int32_t left_of(int32_t here, int32_t threshold, uint32_t half) {
    const bool ask = here < 0;
    const int32_t left = after_cancel_half(ask ? -here : here, threshold, half, ask);
    return ask ? -left : left;
  }

  // The grid has moved.
  KS_ON_LANE void moved(int32_t by) {
    change(0, levels - 1);
    best_bid = min_of(best_bid - by, levels - 1);
    best_ask = best_ask == kNoTick ? levels : max_of(best_ask - by, 0);
    find_best();
  }
};

}  // namespace ks
