// events.h: markets on the clock on one core: their memory, and which mechanism they have. Included by market_cpu.cpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "cpu/call.h"
#include "cpu/continuous.h"
#include "events/environment.cuh"

namespace ks {

// A thread's memory, kept from launch to launch.
struct EventScratch {
  std::vector<int32_t> row, waiting;  // a side's orders after the other's
  std::vector<uint64_t> bits, waiting_bits;
  std::vector<int32_t> ticks;  // of an order flow's market
  std::vector<uint32_t> sums;
  int cleared_for = 0;  // a grid of so many levels

  void fit(int levels) {
    if (row.size() < (std::size_t)levels) row.resize(levels);
    // Whole words of ticks are looked at, and a market that had to stop leaves orders at ticks that another grid has not.
    if (cleared_for != levels) waiting.assign(2 * (std::size_t)std::max(levels, kWordBits), 0), cleared_for = levels;
    if (sums.size() < (std::size_t)levels) ticks.resize(2 * (std::size_t)levels), sums.resize(levels);
    const std::size_t most = 2 * (std::size_t)words_of_bits(levels, 64);
    for (auto* words : {&bits, &waiting_bits})
      if (words->size() < most) words->resize(most);
  }
  template <int kSlots>
  CallMemory<kSlots> memory(SlotRoom<kSlots>& slots) {
    int32_t *const buys = waiting.data(), *const sells = buys + waiting.size() / 2;
    return {{row.data(), bits.data(), nullptr, &slots, {ticks.data(), sums.data()}}, {buys, sells}, waiting_bits.data()};
  }
};

template <typename Market>
void play_on_clock(const Launch& launch, int64_t m, EventScratch& scratch) {
  typename Market::Room slots;
  const auto memory = scratch.memory(slots);
  RunPlace start = {0, 0};
  StepPlace step = {};
  if (launch.env_mode == kLaunchModeRun || launch.env_mode == kLaunchModeOpen) EventRun<Market>(launch, m, memory).run(start);
  else step_on_clock<Market>(launch, m, memory, step);
}

template <int kSlots>
void play_on_clock(const Launch& launch, int64_t m, EventScratch& scratch) {
  if (launch.mechanism == kMechanismContinuous) play_on_clock<ContinuousMarket<kSlots, WideColumns>>(launch, m, scratch);
  else play_on_clock<CallMarket<kSlots>>(launch, m, scratch);
}

inline void play_on_clock(const Launch& launch, int64_t m, EventScratch& scratch) {
  scratch.fit(launch.levels);
  if (launch.slots == 0) play_on_clock<0>(launch, m, scratch);
  else if (launch.orders_per_side > 1) play_on_clock<ContinuousMarket<kLadders, WideColumns>>(launch, m, scratch);
  else if (launch.slots == 1) play_on_clock<1>(launch, m, scratch);
  else play_on_clock<2>(launch, m, scratch);
}

}  // namespace ks
