// arrivals.cuh: what comes at a stretch of events between two beats. None of it depends on the book, so a core draws a block
// of events in loops that compilers vectorise; a lane of a GPU draws one at a time, as its registers are few.
#pragma once

#include "lane/lanes.cuh"
#include "model/events.h"

namespace ks {

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
constexpr int kEventBlock = 2;  // one word says who comes at two events
#else
constexpr int kEventBlock = 64;
#endif

struct ArrivalBlock {
  Arrival at[kEventBlock];

  // Those of `count` events from g on; a block begins at an even event, or has one event only.
  KS_ON_LANE void draw(const MarketParams& p, const RegimeParams& now, int32_t ret, uint64_t key, uint32_t g, int count) {
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
    const uint64_t pair = random_word(key, g >> 1, kWhoWord);
#pragma unroll
    for (int i = 0; i < kEventBlock; ++i) {
      if (i >= count) break;
      const uint32_t drawn = (g + i) & 1 ? high_half(pair) : low_half(pair);
      at[i] = arrival_at(p, now, ret, g + i, drawn, random_word(key, g + i, 0));
    }
#else
    uint64_t words[kEventBlock];
    uint32_t drawn[kEventBlock + 2];
    uint64_t counter = word_counter(key, g, 0);
    for (int i = 0; i < count; ++i) words[i] = mix64(counter + (uint64_t)i * (kGolden << 32));
    counter = word_counter(key, g >> 1, kWhoWord);
    const int odd = g & 1, pairs = (count + odd + 1) / 2;
    for (int i = 0; i < pairs; ++i) {
      const uint64_t pair = mix64(counter + (uint64_t)i * (kGolden << 32));
      drawn[2 * i] = (uint32_t)pair, drawn[2 * i + 1] = (uint32_t)(pair >> 32);
    }
    const MarketParams own = p;  // locals, as the compiler must assume that `at` aliases them
    const RegimeParams mine = now;
    for (int i = 0; i < count; ++i) at[i] = arrival_at(own, mine, ret, g + i, drawn[i + odd], words[i]);
#endif
  }

  // How many events the next block has, if it begins at g and `left` are left.
  static KS_ON_LANE int block(uint32_t g, uint32_t left) {
    const uint32_t most = kEventBlock - (g & 1);
    return (int)(left < most ? left : most);
  }
};

}  // namespace ks
