// rules.h: the rules of an order flow that is fitted to data, on single ticks and orders: docs/model.md, "Order flow". Who calls
// them keeps the book. Pure functions on integers, for host and device.
#pragma once

#include "model/market.h"

namespace ks {

constexpr int kFlowBands = 18, kFlowGroups = 4, kFlowSpreads = 3, kFlowSizes = 16, kClockStates = 5, kAfterKinds = 3;
constexpr int kMostOfALife = (1 << 15) - 1;  // orders of one life at a tick
constexpr int64_t kMostWeight = 1ll << 40;   // of a side's cancellations
constexpr int64_t kLastTime = 1ll << 62;     // nanoseconds

enum FlowLife { kFleeting, kLasting };
enum FlowAfter { kAfterNothing, kAfterMove, kAfterTrade };

// What FlowTable of kineticsim_env/flow/order_flow.py has, in its order.
struct FlowTable {
  int64_t limit[2][kFlowSpreads][kFlowBands], cancel[2][kFlowBands], market, market_same;
  int64_t limit_size[2][2][kFlowGroups][kFlowSizes], market_size[kFlowSizes], fleeting[kFlowBands], resting[2][2][kFlowBands];
  int64_t jump_hazard, jump_after_trade, jump_same, jump_traded, jump_events, jump_size[kFlowSizes];
  int64_t gap[kClockStates], follow[kAfterKinds][kClockStates][kClockStates];
};

// What a market remembers of its flow: a row of `flow`.
struct FlowState {
  int64_t last_trade, last_jump, left, limit, state, after, time, unused;
};

// Words of an event, from kFlowWord on.
constexpr uint64_t kFlowWord = (1ull << 31) + (1ull << 29) + (1ull << 28);
enum FlowWords : uint64_t { kChoiceWord, kOrderWord, kJumpWord, kClockWord, kFlowPlaceWord, kEntryWord = 1 << 13, kOpeningWord = 1 << 14 };

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

// Bands --------------------------------------------------------------------------------------------------------------

// The first distance of a band; of kFlowBands the first one beyond all.
KS_RULE int32_t band_begins(int32_t band) {
  if (band < 8) return band + 1;
  const int32_t octave = (band - 8) >> 1, odd = (band - 8) & 1;  // two bands from each power of two on, 8 being the first
  return ((2 + odd) << (octave + 2)) + 1;
}
KS_RULE int32_t band_of(int32_t distance) {
  int32_t band = 0;
  while (band < kFlowBands - 1 && distance >= band_begins(band + 1)) ++band;
  return band;
}
KS_RULE int32_t group_of(int32_t band) { return band == 0 ? 0 : band < 5 ? 1 : band < 11 ? 2 : 3; }
KS_RULE int32_t spread_class(int32_t spread) { return clamp_to(spread, 1, kFlowSpreads) - 1; }

// Orders -------------------------------------------------------------------------------------------------------------

// The units of one of n orders of a life that goes, of the q that these have.
KS_RULE int64_t units_that_go(const int64_t* sizes, int64_t number, int64_t n, int64_t q) {
  if (n == 1) return q;
  int64_t sum = 0;
  for (int i = 0; i < kFlowSizes; ++i) sum += sizes[i];
  const int64_t units = kFlowSizes * sizes[number] * q / (n * sum), most = q - (n - 1);
  return units < 1 ? 1 : units > most ? most : units;
}
// How many of n orders are left when of their q units `left` are.
KS_RULE int64_t orders_left(int64_t n, int64_t q, int64_t left) { return q == 0 ? 0 : (n * left + q - 1) / q; }

// The clock ----------------------------------------------------------------------------------------------------------

// 2^16 log2(1 + i / 256), rounded, i from 0 to 256.
constexpr int32_t kLogarithms[257] = {
    0, 369, 736, 1102, 1466, 1829, 2190, 2551, 2909, 3267, 3623, 3978, 4331, 4683, 5034, 5384,
    5732, 6079, 6425, 6769, 7112, 7454, 7795, 8134, 8473, 8810, 9146, 9480, 9814, 10146, 10477, 10807,
    11136, 11464, 11791, 12116, 12440, 12764, 13086, 13407, 13727, 14046, 14363, 14680, 14996, 15310, 15624, 15937,
    16248, 16559, 16868, 17177, 17484, 17791, 18096, 18401, 18704, 19007, 19308, 19609, 19909, 20207, 20505, 20802,
    21098, 21393, 21687, 21980, 22272, 22564, 22854, 23144, 23433, 23720, 24007, 24293, 24579, 24863, 25146, 25429,
    25711, 25992, 26272, 26551, 26830, 27108, 27384, 27660, 27936, 28210, 28484, 28757, 29029, 29300, 29571, 29840,
    30109, 30378, 30645, 30912, 31178, 31443, 31707, 31971, 32234, 32496, 32758, 33019, 33279, 33538, 33797, 34055,
    34312, 34569, 34825, 35080, 35334, 35588, 35841, 36094, 36346, 36597, 36847, 37097, 37346, 37595, 37842, 38090,
    38336, 38582, 38827, 39072, 39316, 39559, 39802, 40044, 40286, 40527, 40767, 41006, 41246, 41484, 41722, 41959,
    42196, 42432, 42667, 42902, 43137, 43370, 43603, 43836, 44068, 44300, 44530, 44761, 44990, 45220, 45448, 45676,
    45904, 46131, 46357, 46583, 46809, 47034, 47258, 47482, 47705, 47928, 48150, 48372, 48593, 48813, 49034, 49253,
    49472, 49691, 49909, 50127, 50344, 50560, 50776, 50992, 51207, 51422, 51636, 51850, 52063, 52276, 52488, 52700,
    52911, 53122, 53332, 53542, 53751, 53960, 54169, 54377, 54584, 54791, 54998, 55204, 55410, 55615, 55820, 56025,
    56229, 56432, 56635, 56838, 57040, 57242, 57443, 57644, 57845, 58045, 58245, 58444, 58643, 58841, 59039, 59237,
    59434, 59631, 59827, 60023, 60219, 60414, 60609, 60803, 60997, 61190, 61384, 61576, 61769, 61961, 62152, 62343,
    62534, 62725, 62915, 63104, 63294, 63483, 63671, 63859, 64047, 64234, 64421, 64608, 64794, 64980, 65166, 65351,
    65536,};

// 2^16 times -log2 of the uniform number (u32 + 1) / 2^32.
KS_RULE int64_t minus_log2(uint32_t u32) {
  const uint64_t x = (uint64_t)u32 + 1;
  int n = 0;
  while (x >> n > 1) ++n;
  const uint64_t y = (x << (32 - n)) - (1ull << 32);
  const int i = (int)(y >> 24);
  const int64_t h = (int64_t)(y >> 8 & 0xffff), low = kLogarithms[i];
  return ((int64_t)(32 - n) << 16) - (low + (((int64_t)kLogarithms[i + 1] - low) * h >> 16));
}

KS_RULE void advance_clock(FlowState& flow, const FlowTable& table, uint64_t word) {
  const int64_t* row = table.follow[flow.after][flow.state];
  int next = 0;
  while (field(word, 32, 16) >= row[next]) ++next;  // ends: the last number is 2^16
  flow.state = next;
  flow.time += (table.gap[next] * minus_log2((uint32_t)word)) >> 16;
}

}  // namespace ks
