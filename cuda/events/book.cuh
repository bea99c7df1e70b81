// book.cuh: what built-in agents' resting orders are in a market on the clock: one row of signed numbers, bids above 0 and
// asks below, and for each side words in which a bit says that something rests at a tick. So the next best price and
// cancellation look at occupied ticks only.
//
// A side counts its places from the end of the grid that it is best at: a bid's place 0 is the highest tick, an ask's the
// lowest. So the best price is the lowest place of either side, and one code without branches serves both.
#pragma once

#include "lane/lanes.cuh"
#include "model/events.h"

namespace ks {

constexpr int32_t kNoPlace = kNoTick;

// Numbers of one market; those of a warp's markets lie side by side, so that no two lanes want the same bank.
template <typename T>
struct Strided {
  T* at;
  KS_ON_LANE T& operator[](int i) const { return at[(int64_t)i * kLaneCount]; }
};

// What rests on one side, by tick.
struct RestingSide {
  Strided<int32_t> row;
  int32_t side;
  KS_ON_LANE int32_t operator[](int tick) const { return max_of(side ? -row[tick] : row[tick], 0); }
};

struct EventBook {
  Strided<int32_t> row;   // by tick
  Strided<uint64_t> bits; // by place, a side's words after the other's
  int levels, words, lead;
  int32_t best[2];        // places, kNoPlace where a side is empty

  KS_ON_LANE EventBook(int32_t* row, uint64_t* bits, int levels)
      : row{row}, bits{bits}, levels(levels), words(words_of_bits(levels)), lead(leading_bits(levels)) {}

  // From a tick to a place and back. Beyond the grid, too: places that are worse than all of it are `levels` and above.
  KS_ON_LANE int32_t flip(int32_t tick, int32_t side) const {
    const int32_t mask = side - 1;  // levels - 1 - tick for bids
    return (tick ^ mask) + (levels & mask);
  }
  KS_ON_LANE int32_t best_bid() const { return best[0] == kNoPlace ? -1 : levels - 1 - best[0]; }
  KS_ON_LANE int32_t best_ask() const { return best[1]; }

  KS_ON_LANE void load(const int32_t* bid, const int32_t* ask) {
    for (int tick = 0; tick < levels; ++tick) row[tick] = bid[tick] - ask[tick];
    measure();
  }

  // The book of an episode's beginning.
  KS_ON_LANE void open(int32_t price, int32_t depth) {
    for (int tick = 0; tick < levels; ++tick) row[tick] = 0;
    row[price - 1] = depth, row[price + 1] = -depth;
    measure();
  }

  KS_ON_LANE void store(int32_t* bid, int32_t* ask) const {
    for (int tick = 0; tick < levels; ++tick) {
      const int32_t q = row[tick];
      bid[tick] = max_of(q, 0);
      ask[tick] = max_of(-q, 0);
    }
  }

  // Bits and best prices, of a row that was written from outside, or moved.
  KS_ON_LANE void measure() {
    for (int side = 0; side < 2; ++side) {
      for (int w = 0; w < words; ++w) {
        uint64_t here = 0;
        const int first = 64 * w - lead;
        for (int i = max_of(0, -first); i < min_of(64, levels - first); ++i) {
          const int32_t q = row[flip(first + i, side)];
          here |= (uint64_t)(side ? q < 0 : q > 0) << i;
        }
        bits[side * words + w] = here;
      }
    }
    find_best();
  }

  KS_ON_LANE void find_best() {
    best[0] = next(0, 0);
    best[1] = next(0, 1);
  }

  // The first occupied place from that of word w on.
  KS_ON_LANE int32_t next(int w, int32_t side) const {
    for (; w < words; ++w) {
      const uint64_t here = bits[side * words + w];
      if (here != 0) return 64 * w + lowest_bit(here) - lead;
    }
    return kNoPlace;
  }

  KS_ON_LANE void mark(int32_t place, int32_t side, bool full) {
    const int32_t at = place + lead;
    uint64_t& word = bits[side * words + (at >> 6)];
    const uint64_t bit = 1ull << (at & 63);
    word = full ? word | bit : word & ~bit;
  }

  // What rests at a tick on a side.
  KS_ON_LANE int32_t resting(int32_t tick, int32_t side) const { return RestingSide{row, side}[tick]; }

  KS_ON_LANE int32_t best_of(int32_t side) const {
#ifdef __CUDA_ARCH__
    return side ? best[1] : best[0];
#else
    return best[side];
#endif
  }
  KS_ON_LANE void set_best(int32_t side, int32_t place) {
#ifdef __CUDA_ARCH__
    best[0] = side ? best[0] : place;
    best[1] = side ? place : best[1];
#else
    best[side] = place;
#endif
  }

  KS_ON_LANE void rest(int32_t place, int32_t quantity, int32_t side) {
    row[flip(place, side)] += negated(side, quantity);
    mark(place, side, true);
    set_best(side, min_of(best_of(side), place));
  }

  // Take up to `quantity` at the best place of a side, where something rests; returns how much. Whether anything is left
  // makes no branch: the next place is the same one then.
  KS_ON_LANE int32_t take(int32_t place, int32_t quantity, int32_t side) {
    int32_t& here = row[flip(place, side)];
    const int32_t there = negated(side, here), units = min_of(quantity, there);
    here -= negated(side, units);
    const int at = place + lead, w = at >> 6;
    uint64_t& word = bits[side * words + w];
    const uint64_t left = word & ~((uint64_t)(units == there) << (at & 63));
    word = left;
    set_best(side, left != 0 ? 64 * w + lowest_bit(left) - lead : next(w + 1, side));
    return units;
  }

  // `key` and the beat's number say what is lost; ticks that share a word are looked at together.
  KS_ON_LANE void cancel(int32_t threshold, uint64_t key, int64_t beat) {
    const uint64_t counter = word_counter(key, beat, kCancelWord);
    for (int i = 0; i < 2 * words; ++i) {
      const int32_t side = i >= words;
      const uint64_t before = bits[i];
      uint64_t after = before;
      for (uint64_t pairs = (before | before >> 1) & 0x5555555555555555ull; pairs != 0; pairs &= pairs - 1) {
        const int at = lowest_bit(pairs);
        const int32_t first = flip(64 * (i - side * words) + at - lead, side), tick = first & ~1;
        const uint64_t word = mix64(counter + (uint64_t)(tick / 2) * kGolden);
        const int32_t even = after_loss(row[tick], threshold, low_half(word), side);
        const int32_t odd = after_loss(row[tick + 1], threshold, high_half(word), side);
        row[tick] = even, row[tick + 1] = odd;
        const uint64_t gone = side ? (uint64_t)(even == 0) | (uint64_t)(odd == 0) << 1
                                   : (uint64_t)(odd == 0) | (uint64_t)(even == 0) << 1;
        after &= ~(gone << at);
      }
      bits[i] = after;
    }
    find_best();
  }

  // Cut off what leaves the grid, and move the rest by `by` ticks down (up if below 0). What goes to worse places goes first,
  // and the worst of it before all else, so that nothing is written over.
  KS_ON_LANE void shift(int32_t by) {
    const int32_t worsens = by > 0 ? 0 : 1;
    for (int w = words - 1; w >= 0; --w) {
      uint64_t left = take_word(w, worsens);
      while (left != 0) {
        const int i = highest_bit(left);
        left &= ~(1ull << i);
        move(64 * w + i - lead, by, worsens);
      }
    }
    for (int w = 0; w < words; ++w)
      for (uint64_t left = take_word(w, 1 - worsens); left != 0; left &= left - 1)
        move(64 * w + lowest_bit(left) - lead, by, 1 - worsens);
    find_best();
  }

  KS_ON_LANE int64_t total(int32_t side) const {
    int64_t sum = 0;
    for (int tick = 0; tick < levels; ++tick) sum += resting(tick, side);
    return sum;
  }

 private:
  KS_ON_LANE uint64_t take_word(int w, int32_t side) {
    const uint64_t here = bits[side * words + w];
    bits[side * words + w] = 0;
    return here;
  }
  KS_ON_LANE void move(int32_t place, int32_t by, int32_t side) {
    const int32_t tick = flip(place, side), q = row[tick];
    const int64_t to = (int64_t)tick - by;
    row[tick] = 0;
    if (to < 0 || to >= levels) return;
    row[(int32_t)to] = q;
    mark(flip((int32_t)to, side), side, true);
  }

  // Of a side's quantity; the other side's, which a tick of the same word may hold, is cancelled in that side's turn.
  static KS_ON_LANE int32_t after_loss(int32_t q, int32_t threshold, uint32_t half, int32_t side) {
    const int32_t mine = max_of(side ? -q : q, 0), loss = cancelled(mine, threshold, half, side);
    return q + (side ? loss : -loss);
  }
};

}  // namespace ks
