// flow.h: the rules of an order flow that is fitted to data, on single ticks and orders: docs/model.md, "Order flow". Who calls
// them keeps the book (events/lives.cuh). Pure functions on integers, for host and device.
#pragma once

#include "model/market.h"

// Whether markets may have one: in a kernel only if it was compiled for those that do (kineticsim_env/engines/cuda.py).
#ifndef KS_FLOW
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define KS_FLOW 0
#else
#define KS_FLOW 1
#endif
#endif

namespace ks {

constexpr int kFlowBands = 18, kFlowGroups = 4, kFlowSpreads = 3, kFlowSizes = 16, kClockStates = 5, kAfterKinds = 3;
constexpr int kMostOfALife = (1 << 15) - 1;  // orders of one life at a tick
constexpr int64_t kMostWeight = 1ll << 40;   // of a side's cancellations
constexpr int64_t kLastTime = 1ll << 62;     // nanoseconds
constexpr int kFlowNumbers = 9;              // of a row of `flow`
constexpr int64_t kNoTime = ~(1ull << 63);    // later than any

enum FlowLife { kFleeting, kLasting };
enum FlowAfter { kAfterNothing, kAfterMove, kAfterTrade };

// What FlowTable of kineticsim_env/runtime/flow_table.py has, in its order.
struct FlowTable {
  int64_t limit[2][kFlowSpreads][kFlowBands], cancel[2][kFlowBands], market, market_same;
  int64_t limit_size[2][2][kFlowGroups][kFlowSizes], market_size[kFlowSizes], fleeting[kFlowBands], resting[2][2][kFlowBands];
  int64_t jump_hazard, jump_after_trade, jump_same, jump_traded, jump_events, jump_size[kFlowSizes];
  int64_t gap[kClockStates], follow[kAfterKinds][kClockStates][kClockStates];
};

// The same, and what follows from it: `numbers_of_engines` there.
struct FlowNumbers : FlowTable {
  int64_t limit_upto[2][kFlowSpreads][kFlowBands];  // of a band and those before it
  int64_t size_sum[2][2][kFlowGroups];     // of all 16
  int64_t logarithms[257];                 // 2^16 log2(1 + i / 256), rounded, i from 0 to 256
  int64_t largest_size, largest_cancel, largest_gap;
  int64_t most_at_tick, most_orders;       // units of a tick that opens, and orders
};

// What a market remembers of its flow: a row of `flow`.
struct FlowState {
  int32_t last_trade, last_jump, left, state, after;
  int64_t limit, time;
  int64_t now, events;  // where intervals have a length: the time up to which the market has come, and its next event

  KS_RULE void store(int64_t* row) const {
    const int64_t numbers[kFlowNumbers] = {last_trade, last_jump, left, limit, state, after, time, now, events};
    for (int i = 0; i < kFlowNumbers; ++i) row[i] = numbers[i];
  }
};

// Words of an event, from kFlowWord on.
constexpr uint64_t kFlowWord = (1ull << 31) + (1ull << 29) + (1ull << 28);
enum FlowWords : uint64_t { kChoiceWord, kOrderWord, kJumpWord, kClockWord, kFlowPlaceWord, kAgentWord, kEntryWord = 1 << 13, kOpeningWord = 1 << 14 };

KS_RULE uint64_t flow_word(uint64_t key, int64_t g, uint64_t index) { return random_word(key, g, kFlowWord + index); }
KS_RULE int64_t field(uint64_t word, int first, int count) { return (int64_t)(word >> first & ((1ull << count) - 1)); }

// floor(word * total / 2^64), total below 2^63.
KS_RULE int64_t share_of(uint64_t word, uint64_t total) {
#ifdef __CUDA_ARCH__
  return (int64_t)__umul64hi(word, total);
#else
  return (int64_t)(((unsigned __int128)word * total) >> 64);
#endif
}

// Of a total of 32 bits.
KS_RULE uint32_t share_of(uint64_t word, uint32_t total) {
  return (uint32_t)(((word >> 32) * total + ((word & 0xffffffff) * total >> 32)) >> 32);
}

// The number of the highest bit of x, which is not 0.
KS_RULE int highest_of(uint64_t x) {
#ifdef __CUDA_ARCH__
  return 63 - __clzll((long long)x);
#else
  return 63 - __builtin_clzll(x);
#endif
}
KS_RULE int highest_of(uint32_t x) {
#ifdef __CUDA_ARCH__
  return 31 - __clz((int)x);
#else
  return 31 - __builtin_clz(x);
#endif
}

// Bands --------------------------------------------------------------------------------------------------------------

// The first distance of a band; of kFlowBands the first one beyond all.
KS_RULE int32_t band_begins(int32_t band) {
  if (band < 8) return band + 1;
  const int32_t octave = (band - 8) >> 1, odd = (band - 8) & 1;  // two bands from each power of two on, 8 being the first
  return ((2 + odd) << (octave + 2)) + 1;
}
KS_RULE int32_t band_of(int32_t distance) {
  const int32_t before = clamp_to(distance - 1, 0, band_begins(kFlowBands) - 2);
  if (before < 8) return before;
  const int octave = highest_of((uint32_t)before);
  return 2 + 2 * octave + (before >> (octave - 1) & 1);
}
KS_RULE int32_t group_of(int32_t band) { return band == 0 ? 0 : band < 5 ? 1 : band < 11 ? 2 : 3; }
KS_RULE int32_t spread_class(int32_t spread) { return clamp_to(spread, 1, kFlowSpreads) - 1; }

// Orders -------------------------------------------------------------------------------------------------------------

// a / b of positive numbers, which mostly are small: a GPU has no 64-bit division.
KS_RULE int64_t quotient(int64_t a, int64_t b) { return (a | b) >> 32 ? a / b : (int64_t)((uint32_t)a / (uint32_t)b); }

// The units of one of n orders of a life that goes, of the q that these have; `sum` is that of the 16 sizes.
KS_RULE int64_t units_that_go(const int64_t* sizes, int64_t sum, int64_t number, int64_t n, int64_t q) {
  if (n <= 1) return q;
  const int64_t units = quotient(kFlowSizes * sizes[number] * q, n * sum), most = q - (n - 1);
  return units < 1 ? 1 : units > most ? most : units;
}
// How many of n orders are left when of their q units `left` are.
KS_RULE int64_t orders_left(int64_t n, int64_t q, int64_t left) { return q == 0 ? 0 : quotient(n * left + q - 1, q); }

// The clock ----------------------------------------------------------------------------------------------------------

// 2^16 times -log2 of the uniform number (u32 + 1) / 2^32: at most 2^21.
KS_RULE uint32_t minus_log2(uint32_t u32, const int64_t* logarithms) {
  const uint32_t x = u32 + 1;
  if (x == 0) return 0;  // which stands for 2^32
  const int zeros = 31 - highest_of(x);
  const uint32_t y = x << 1 << zeros, low = (uint32_t)logarithms[y >> 24], high = (uint32_t)logarithms[(y >> 24) + 1];
  return ((uint32_t)(zeros + 1) << 16) - (low + ((high - low) * (y >> 8 & 0xffff) >> 16));
}
// A word of the clock with that of its low half in place of it.
KS_RULE uint64_t clock_word(uint64_t word, const int64_t* logarithms) {
  return (word & ~0xffffffffull) | minus_log2((uint32_t)word, logarithms);
}

KS_RULE void advance_clock(FlowState& flow, const FlowNumbers& table, uint64_t word) {
  const int64_t* row = table.follow[flow.after][flow.state];
  const int32_t drawn = (int32_t)field(word, 32, 16);
  int32_t next = 0;
  for (int j = 0; j < kClockStates - 1; ++j) next += drawn >= (int32_t)row[j];  // rows do not fall, and end with 2^16
  flow.state = next;
  flow.time += (int64_t)((uint64_t)table.gap[next] * (uint32_t)word >> 16);
}

}  // namespace ks
