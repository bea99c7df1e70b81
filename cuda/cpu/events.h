// events.h: markets on the clock on one core: their memory, and which of the mechanisms of cuda/events/ they have.
#pragma once

#include <cstddef>
#include <vector>

#include "events/run.cuh"

namespace ks {

// A thread's memory, kept from launch to launch.
struct EventScratch {
  std::vector<int32_t> row, buys, sells;
  std::vector<uint64_t> bits, waiting_bits;

  EventMemory fit(int levels) {
    for (auto* numbers : {&row, &buys, &sells})
      if (numbers->size() < (std::size_t)levels) numbers->resize(levels);
    const std::size_t most = 2 * (std::size_t)words_of_bits(levels);
    for (auto* words : {&bits, &waiting_bits})
      if (words->size() < most) words->resize(most);
    return {row.data(), bits.data(), {buys.data(), sells.data()}, waiting_bits.data()};
  }
};

template <int kSlots>
void run_on_clock(const Launch& launch, int64_t m, const EventMemory& memory) {
  if (launch.mechanism == kMechanismContinuous) EventRun<ContinuousMarket<kSlots>>(launch, m, memory).run();
  else EventRun<CallMarket<kSlots>>(launch, m, memory).run();
}

inline void run_on_clock(const Launch& launch, int64_t m, EventScratch& scratch) {
  const EventMemory memory = scratch.fit(launch.levels);
  if (launch.slots == 0) run_on_clock<0>(launch, m, memory);
  else if (launch.slots == 1) run_on_clock<1>(launch, m, memory);
  else run_on_clock<2>(launch, m, memory);
}

}  // namespace ks
