// book.cuh: what built-in agents' resting orders are in a market on the clock: one row of signed numbers, bids above 0 and
// asks below, and words in which a bit says that something rests at a tick. So the next best price, cancellation and the
// edges of a shift look at occupied ticks only. Bids lie below asks, so one set of bits serves both sides.
#pragma once

#include "lane/lanes.cuh"
#include "model/events.h"

namespace ks {

// Numbers of one market; those of a warp's markets lie side by side, so that no two lanes want the same bank.
template <typename T>
struct Strided {
  T* at;
  KS_ON_LANE T& operator[](int i) const { return at[(int64_t)i * kLaneCount]; }
};

struct EventBook {
  Strided<int32_t> row;
  Strided<uint64_t> bits;
  int levels, words;
  int32_t best[2];  // -1 and kNoTick where a side is empty

  KS_ON_LANE EventBook(int32_t* row, uint64_t* bits, int levels)
      : row{row}, bits{bits}, levels(levels), words((levels + 63) / 64) {}

  KS_ON_LANE void load(const int32_t* bid, const int32_t* ask) {
    best[0] = -1, best[1] = kNoTick;
    for (int w = 0; w < words; ++w) {
      uint64_t here = 0;
      const int first = 64 * w, count = min_of(64, levels - first);
      for (int i = 0; i < count; ++i) {
        const int32_t q = bid[first + i] - ask[first + i];
        row[first + i] = q;
        here |= (uint64_t)(q != 0) << i;
      }
      bits[w] = here;
    }
    measure();
  }

  KS_ON_LANE void store(int32_t* bid, int32_t* ask) const {
    for (int tick = 0; tick < levels; ++tick) {
      const int32_t q = row[tick];
      bid[tick] = max_of(q, 0);
      ask[tick] = max_of(-q, 0);
    }
  }

  // The best prices, of rows that were written from outside, or moved.
  KS_ON_LANE void measure() {
    best[0] = -1, best[1] = kNoTick;
    for (int w = 0; w < words; ++w) {
      for (uint64_t left = bits[w]; left != 0; left &= left - 1) {
        const int32_t tick = 64 * w + lowest_bit(left);
        if (row[tick] > 0) best[0] = tick;
        else if (best[1] == kNoTick) best[1] = tick;
      }
    }
  }

  KS_ON_LANE void mark_full(int32_t tick) { bits[tick >> 6] |= 1ull << (tick & 63); }
  KS_ON_LANE void mark_empty(int32_t tick) { bits[tick >> 6] &= ~(1ull << (tick & 63)); }

  // The next occupied tick on the way out of the book, from `tick` on, or -1 and kNoTick.
  KS_ON_LANE int32_t next(int32_t tick, int32_t side) const {
    if (side == 0) {
      if (tick < 0) return -1;
      int w = tick >> 6;
      uint64_t left = bits[w] << (63 - (tick & 63));
      if (left != 0) return tick - (63 - highest_bit(left));
      while (--w >= 0)
        if (bits[w] != 0) return 64 * w + highest_bit(bits[w]);
      return -1;
    }
    if (tick >= levels) return kNoTick;
    int w = tick >> 6;
    uint64_t left = bits[w] >> (tick & 63);
    if (left != 0) return tick + lowest_bit(left);
    while (++w < words)
      if (bits[w] != 0) return 64 * w + lowest_bit(bits[w]);
    return kNoTick;
  }

  // What rests at a tick on a side.
  KS_ON_LANE int32_t resting(int32_t tick, int32_t side) const { return max_of(side ? -row[tick] : row[tick], 0); }

  KS_ON_LANE void rest(int32_t tick, int32_t quantity, int32_t side) {
    row[tick] += side ? -quantity : quantity;
    mark_full(tick);
    best[0] = side ? best[0] : max_of(best[0], tick);
    best[1] = side ? min_of(best[1], tick) : best[1];
  }

  // Take units of the best tick of a side, which has as many.
  KS_ON_LANE void take(int32_t tick, int32_t units, int32_t side) {
    const int32_t left = row[tick] + (side ? units : -units);
    row[tick] = left;
    if (left != 0) return;
    mark_empty(tick);
    const int32_t further = next(tick, side);
    best[0] = side ? best[0] : further;
    best[1] = side ? further : best[1];
  }

  // `key` and the beat's number say what is lost; ticks that share a word are looked at together.
  KS_ON_LANE void cancel(int32_t threshold, uint64_t key, int64_t beat) {
    const uint64_t counter = word_counter(key, beat, kCancelWord);
    for (int w = 0; w < words; ++w) {
      const uint64_t before = bits[w];
      uint64_t after = before;
      for (uint64_t pairs = (before | before >> 1) & 0x5555555555555555ull; pairs != 0; pairs &= pairs - 1) {
        const int i = lowest_bit(pairs);
        const int32_t tick = 64 * w + i;
        const uint64_t word = mix64(counter + (uint64_t)(tick / 2) * kGolden);
        const int32_t even = after_loss(row[tick], threshold, low_half(word));
        const int32_t odd = after_loss(row[tick + 1], threshold, high_half(word));
        row[tick] = even, row[tick + 1] = odd;
        after &= ~((uint64_t)(even == 0) << i | (uint64_t)(odd == 0) << (i + 1));
      }
      bits[w] = after;
    }
    best[0] = next(best[0], 0);
    best[1] = next(best[1], 1);
  }

  // Cut off what leaves the grid, and move the rest by `by` ticks down (up if below 0).
  KS_ON_LANE void shift(int32_t by) {
    const int32_t step = by > 0 ? 1 : -1, first = by > 0 ? 0 : levels - 1;
    for (int i = 0; i < levels; ++i) {
      const int32_t tick = first + step * i;
      const int64_t from = (int64_t)tick + by;
      row[tick] = from >= 0 && from < levels ? row[(int32_t)from] : 0;
    }
    for (int w = 0; w < words; ++w) {
      uint64_t here = 0;
      for (int i = 0; i < 64 && 64 * w + i < levels; ++i) here |= (uint64_t)(row[64 * w + i] != 0) << i;
      bits[w] = here;
    }
    measure();
  }

  KS_ON_LANE int64_t total(int32_t side) const {
    int64_t sum = 0;
    for (int w = 0; w < words; ++w)
      for (uint64_t left = bits[w]; left != 0; left &= left - 1) sum += resting(64 * w + lowest_bit(left), side);
    return sum;
  }

 private:
  static KS_ON_LANE int32_t after_loss(int32_t q, int32_t threshold, uint32_t half) {
    const int32_t side = q < 0;
    const int32_t loss = cancelled(q < 0 ? -q : q, threshold, half, side);
    return q + (q < 0 ? loss : -loss);
  }
};

}  // namespace ks
