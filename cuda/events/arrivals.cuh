// arrivals.cuh: what comes at a stretch of events between two beats. None of it depends on the book, so a core draws a block
// of events in loops that compilers vectorise; a lane of a GPU draws one at a time, as its registers are few.
#pragma once

#if !defined(__CUDACC__) && !defined(__CUDACC_RTC__)
#include <cstring>
#endif

#include "lane/lanes.cuh"
#include "model/events.h"
#include "model/play_agent.h"

namespace ks {

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
constexpr int kEventBlock = 2;  // one word says who comes at two events
#else
constexpr int kEventBlock = 64;
#endif

// Who comes at an event, where users have added agents: the agent's place among those, below 0 of others; and the event's word.
struct ArrivingAgent {
  int32_t place;
  uint64_t word;
};

// An arrival that waits in shared memory, perhaps for another lane, to be matched.
struct alignas(8) DrawnArrival {
  int32_t offset;
  uint32_t rest;  // quantity, up to 65535, and flags
  KS_ON_LANE DrawnArrival(int32_t offset, uint32_t rest) : offset(offset), rest(rest) {}
  KS_ON_LANE explicit DrawnArrival(const Arrival& a)
      : offset(a.offset), rest((uint32_t)a.quantity | (uint32_t)a.sells << 16 | (uint32_t)a.marketable << 17 |
                               (uint32_t)a.by_value << 18) {}
  KS_ON_LANE Arrival arrival() const {
    return {(int32_t)(rest & 0xffff), offset, (int32_t)(rest >> 16 & 1), (int32_t)(rest >> 17 & 1), (int32_t)(rest >> 18 & 1)};
  }
};
// The same in 32 bits, for a market whose numbers have 16: offsets are at most kPackedReach, either way.
struct PackedArrival {
  static constexpr int kOffsetAt = 19;
  static_assert(kPackedReach < 1 << (31 - kOffsetAt), "a signed offset, three flags and 16 bits of quantity");
  uint32_t all;
  KS_ON_LANE explicit PackedArrival(const Arrival& a) : all((uint32_t)a.offset << kOffsetAt | DrawnArrival(a).rest) {}
  KS_ON_LANE Arrival arrival() const { return DrawnArrival{(int32_t)all >> kOffsetAt, all}.arrival(); }
};

struct ArrivalBlock {
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
  Arrival arrivals[kEventBlock];
  uint32_t drawn[kEventBlock];
#ifdef KS_AGENTS
  ArrivingAgent agents[kEventBlock];
  KS_ON_LANE ArrivingAgent agent(int i) const { return i == 0 ? agents[0] : agents[1]; }
#else
  KS_ON_LANE ArrivingAgent agent(int) const { return {-1, 0}; }
#endif

  KS_ON_LANE Arrival at(int i) const { return i == 0 ? arrivals[0] : arrivals[1]; }  // in registers
  // The same of event g, found only now: where added agents are many, few lanes need it.
  KS_ON_LANE Arrival built_in(int i, const MarketParams& p, const RegimeParams& now, int32_t ret, uint32_t g) const {
    return arrival_at(p, now, ret, g, i == 0 ? drawn[0] : drawn[1], agent(i).word);
  }

  // Those of `count` events from g on; a block begins at an even event, or has one event only. `first_added`: the index of the
  // first agent that users have added, if there are any.
  KS_ON_LANE void draw(const MarketParams& p, const RegimeParams& now, int32_t ret, uint64_t key, uint32_t g, int count,
                       bool, int32_t first_added) {
    const uint64_t pair = random_word(key, g >> 1, kWhoWord);
#pragma unroll
    for (int i = 0; i < kEventBlock; ++i) {
      if (i >= count) break;
      drawn[i] = (g + i) & 1 ? high_half(pair) : low_half(pair);
      const uint64_t word = random_word(key, g + i, 0);
      arrivals[i] = arrival_at(p, now, ret, g + i, drawn[i], word);
#ifdef KS_AGENTS
      agents[i] = {who_comes(p, drawn[i]) - first_added, word};
#endif
    }
  }
#else
  static constexpr int kRoom = kEventBlock + 8;
  int32_t quantity[kRoom], offset[kRoom], sells[kRoom], marketable[kRoom], by_value[kRoom];
  int32_t place[kRoom];  // as ArrivingAgent has them
  uint64_t word[kRoom];

  KS_ON_LANE Arrival at(int i) const {
    i += begin;
    return {quantity[i], offset[i], sells[i], marketable[i], by_value[i]};
  }
  KS_ON_LANE Arrival built_in(int i, const MarketParams&, const RegimeParams&, int32_t, uint32_t) const { return at(i); }
  KS_ON_LANE ArrivingAgent agent(int i) const { return {place[i + begin], word[i + begin]}; }

  // The same. Rounding up to eight spares vectorised loops their remainder; what is too much is not read.
  KS_ON_LANE void draw(const MarketParams& p, const RegimeParams& now, int32_t ret, uint64_t key, uint32_t g, int count,
                       bool added, int32_t first_added) {
    uint64_t words[kRoom], pairs[kRoom / 2];
    uint32_t drawn[kRoom];
    const int odd = g & 1, padded = (count + odd + 7) / 8 * 8;
    // From the even event on, so that pairs are whole.
    const uint64_t first = word_counter(key, g - odd, 0), who = word_counter(key, g >> 1, kWhoWord);
    for (int i = 0; i < padded; ++i) words[i] = mix64(first + (uint64_t)i * (kGolden << 32));
    for (int i = 0; i < padded / 2; ++i) pairs[i] = mix64(who + (uint64_t)i * (kGolden << 32));
    std::memcpy(drawn, pairs, padded * sizeof(uint32_t));
    const MarketParams own = p;  // locals, as the compiler must assume that what is written aliases them
    const RegimeParams mine = now;
    for (int i = 0; i < padded; ++i) {
      const Arrival a = arrival_at(own, mine, ret, g - odd + i, drawn[i], words[i]);
      quantity[i] = a.quantity, offset[i] = a.offset, sells[i] = a.sells;
      marketable[i] = a.marketable, by_value[i] = a.by_value;
    }
    begin = odd;
    if (!added) return;
    std::memcpy(word, words, padded * sizeof(uint64_t));
    for (int i = 0; i < padded; ++i) place[i] = who_comes(own, drawn[i]) - first_added;
  }
  int begin;
#endif

  // How many events the next block has, if it begins at g and `left` are left.
  static KS_ON_LANE int block(uint32_t g, uint32_t left) {
    const uint32_t most = kEventBlock - (g & 1);
    return (int)(left < most ? left : most);
  }
};

}  // namespace ks
