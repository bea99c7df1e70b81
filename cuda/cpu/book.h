// book.h: the resting book of one market on one core: one row of ticks per side, and the part of it that is not empty, so
// that no auction walks over empty ticks. Included by cpu/market.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "model/market.h"

namespace ks {

constexpr int kStep = 8;  // ticks that are looked at together; divides every grid

// Sums over a whole side, or so many ticks of it, in 64 bits.
inline int64_t sum_of(const int32_t* side, int levels) {
  int64_t sum = 0;
  for (int tick = 0; tick < levels; ++tick) sum += side[tick];
  return sum;
}

// What the fullest tick of a side holds, which is found faster than a sum.
inline int32_t largest_of(const int32_t* side, int levels) {
  int32_t largest = 0;
  for (int tick = 0; tick < levels; ++tick) largest = std::max(largest, side[tick]);
  return largest;
}

// Whether all of kStep ticks are empty.
inline bool vacant(const int32_t* side) {
  uint64_t words[kStep / 2];
  std::memcpy(words, side, sizeof(words));
  return (words[0] | words[1] | words[2] | words[3]) == 0;
}

// Bit i: something rests at the i-th of kStep ticks. Without a branch: no CPU can predict where the best price is.
inline uint32_t occupied(const int32_t* side) {
  uint32_t bits = 0;
  for (int i = 0; i < kStep; ++i) bits |= (uint32_t)(side[i] > 0) << i;
  return bits;
}

struct Book {
  int32_t *const bid, *const ask;
  const int levels;
  int32_t best_bid, best_ask;  // exactly: -1 and kNoTick for an empty side
  int32_t bid_low, ask_high;   // nothing rests below and above them; first and last of kStep ticks
  int64_t bid_bound, ask_bound;  // no side holds more than this

  Book(int32_t* bid, int32_t* ask, int levels) : bid(bid), ask(ask), levels(levels) { measure(); }

  // After the book was written from outside.
  void measure() {
    // Every environment step does this before its one auction, and cancellation draws words for all ticks in between.
    for (bid_low = 0; bid_low < levels - kStep && vacant(bid + bid_low);) bid_low += kStep;
    for (ask_high = levels - 1; ask_high >= kStep && vacant(ask + ask_high + 1 - kStep);) ask_high -= kStep;
    bid_bound = ask_bound = (int64_t)1 << 40;  // computed when first needed
    find_best_bid(levels - 1);
    find_best_ask(0);
  }

  // The highest bid at or below `from`, and the lowest ask at or above it.
  void find_best_bid(int32_t from) {
    if (from < bid_low) {
      best_bid = -1;
      return;
    }
    int32_t step = from / kStep * kStep;
    uint32_t bits = occupied(bid + step) & ((2u << (from - step)) - 1);
    while (bits == 0 && step > bid_low)
      if (!vacant(bid + (step -= kStep))) bits = occupied(bid + step);
    best_bid = bits != 0 ? step + 31 - __builtin_clz(bits) : -1;
  }

  void find_best_ask(int32_t from) {
    if (from > ask_high) {
      best_ask = kNoTick;
      return;
    }
    int32_t step = from / kStep * kStep;
    uint32_t bits = occupied(ask + step) & (~0u << (from - step));
    while (bits == 0 && step + kStep <= ask_high)
      if (!vacant(ask + (step += kStep))) bits = occupied(ask + step);
    best_ask = bits != 0 ? step + __builtin_ctz(bits) : kNoTick;
  }

  // Orders came in from tick `low` to `high`.
  void reach(int32_t low, int32_t high) {
    bid_low = std::min(bid_low, low / kStep * kStep);
    ask_high = std::max(ask_high, high / kStep * kStep + kStep - 1);
  }

  // An empty tick loses nothing, so random words are drawn only for ticks from the outermost to the best order.
  void cancel(int32_t threshold, uint64_t counter) {
    if (best_bid >= 0) {
      int32_t lowest = best_bid;
      for (int step = best_bid / kStep * kStep; step >= bid_low; step -= kStep)
        lowest = cancel_step(bid, step, threshold, counter, 0) ? step : lowest;
      bid_low = lowest / kStep * kStep;
      find_best_bid(best_bid);
    }
    if (best_ask != kNoTick) {
      int32_t highest = best_ask;
      for (int step = best_ask / kStep * kStep; step <= ask_high; step += kStep)
        highest = cancel_step(ask, step, threshold, counter, 1) ? step : highest;
      ask_high = highest / kStep * kStep + kStep - 1;
      find_best_ask(best_ask);
    }
  }

  void shift(int32_t by) {
    for (int32_t* side : {bid, ask}) {
      const int kept = std::max(0, levels - std::abs(by));
      if (by > 0) {
        std::memmove(side, side + (levels - kept), kept * sizeof(int32_t));
        std::fill(side + kept, side + levels, 0);
      } else {
        std::memmove(side + levels - kept, side, kept * sizeof(int32_t));
        std::fill(side, side + levels - kept, 0);
      }
    }
    measure();
  }

  // Whether a side's quantity plus `more` reaches 2^31. A known bound mostly decides it; else a tighter one, else the sum.
  static bool would_overflow(const int32_t* side, int levels, int64_t& bound, int64_t more) {
    if (bound + more < (int64_t)1 << 31) return false;
    bound = (int64_t)levels * largest_of(side, levels);
    if (bound + more < (int64_t)1 << 31) return false;
    bound = sum_of(side, levels);
    return bound + more >= (int64_t)1 << 31;
  }

 private:
  // Cancel at kStep ticks; returns whether anything is left. `counter` is word_counter's for kCancelWord. Ticks beyond the best
  // price are empty and stay so; four words at a time are one vector.
  static bool cancel_step(int32_t* side, int first, int32_t threshold, uint64_t counter, int which) {
    uint64_t words[kStep / 2];
    for (int i = 0; i < kStep / 2; ++i) words[i] = mix64(counter + (uint64_t)(first / 2 + i) * kGolden);
    int32_t left = 0;
    for (int i = 0; i < kStep; ++i) {
      const uint32_t half = (uint32_t)(words[i / 2] >> (32 * (i & 1)));
      side[first + i] = after_cancel_half(side[first + i], threshold, half, which);
      left |= side[first + i];
    }
    return left != 0;
  }
};

}  // namespace ks
