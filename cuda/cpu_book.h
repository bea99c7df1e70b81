// cpu_book.h: the resting book of one market on one core: two rows of memory, and where in them there is anything, so that
// no auction has to walk over empty ticks. Included by cpu_market.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "market_model.h"

namespace ks {

constexpr int kStep = 8;  // ticks that are looked at together; divides every grid

// Sums over a whole side, in 64 bits.
inline int64_t sum_of(const int32_t* side, int levels) {
  int64_t sum = 0;
  for (int tick = 0; tick < levels; ++tick) sum += side[tick];
  return sum;
}

inline bool any_in_step(const int32_t* side) {
  int32_t any = 0;
  for (int i = 0; i < kStep; ++i) any |= side[i] > 0;
  return any != 0;
}

struct Book {
  int32_t *const bid, *const ask;
  const int levels;
  int32_t best_bid, best_ask;  // exactly: -1 and kNoTick for an empty side
  int32_t bid_low, ask_high;   // nothing rests below and above them; there need not be anything at them
  int64_t bid_bound, ask_bound;  // no side holds more than this

  Book(int32_t* bid, int32_t* ask, int levels) : bid(bid), ask(ask), levels(levels) { measure(); }

  // After somebody else has written the book.
  void measure() {
    bid_low = 0, ask_high = levels - 1;
    bid_bound = ask_bound = (int64_t)1 << 40;  // found out when it is asked for
    find_best_bid(levels - 1);
    find_best_ask(0);
  }

  // The highest bid at or below `from`, and the lowest ask at or above it.
  void find_best_bid(int32_t from) {
    for (; from >= bid_low; --from) {
      if (from % kStep == kStep - 1 && !any_in_step(bid + from + 1 - kStep)) from -= kStep - 1;
      else if (bid[from] > 0) break;
    }
    best_bid = from >= bid_low ? from : -1;
  }

  void find_best_ask(int32_t from) {
    for (; from <= ask_high; ++from) {
      if (from % kStep == 0 && !any_in_step(ask + from)) from += kStep - 1;
      else if (ask[from] > 0) break;
    }
    best_ask = from <= ask_high ? from : kNoTick;
  }

  // An empty tick loses nothing, so words are drawn only for ticks from the outermost to the best order.
  void cancel(int32_t threshold, uint64_t counter) {
    if (best_bid >= 0) {
      while (bid_low % kStep == 0 && bid_low + kStep <= best_bid && !any_in_step(bid + bid_low)) bid_low += kStep;
      while (bid_low < best_bid && bid[bid_low] <= 0) ++bid_low;
      cancel_side(bid, bid_low, best_bid, threshold, counter, 0);
      find_best_bid(best_bid);
    }
    if (best_ask != kNoTick) {
      while (ask_high % kStep == kStep - 1 && ask_high - kStep >= best_ask && !any_in_step(ask + ask_high + 1 - kStep))
        ask_high -= kStep;
      while (ask_high > best_ask && ask[ask_high] <= 0) --ask_high;
      cancel_side(ask, best_ask, ask_high, threshold, counter, 1);
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

  // What a side holds beside `more` reaches 2^31 or not; the bound is made exact only when it cannot tell.
  static bool would_overflow(const int32_t* side, int levels, int64_t& bound, int64_t more) {
    if (bound + more < (int64_t)1 << 31) return false;
    bound = sum_of(side, levels);
    return bound + more >= (int64_t)1 << 31;
  }

 private:
  // `counter` is word_counter's for kCancelWord. Whole pairs of ticks are done, four at a time so that hashes vectorise:
  // a tick outside of first..last is empty, and stays so.
  void cancel_side(int32_t* quantity, int first, int last, int32_t threshold, uint64_t counter, int side) {
    for (int tick = first / kStep * kStep; tick <= last; tick += kStep) {
      uint64_t words[kStep / 2];
      for (int i = 0; i < kStep / 2; ++i) words[i] = mix64(counter + (uint64_t)(tick / 2 + i) * kGolden);
      for (int i = 0; i < kStep; ++i) {
        const uint32_t half = (uint32_t)(words[i / 2] >> (32 * (i & 1)));
        quantity[tick + i] = after_cancel_half(quantity[tick + i], threshold, half, side);
      }
    }
  }
};

}  // namespace ks
