// warp.cuh: stands in for cuda/warp.cuh, whose operations are instructions of a GPU.
#pragma once

#include "emulator.h"
#include "layout.h"

namespace ks {

constexpr unsigned kAllLanes = 0xffffffffu;
constexpr uint32_t kSharedBegin = KS_SHARED_BEGIN;  // 0 on some devices, 1024 on others

inline int warp_max(int x) {
  const int64_t* all = emulator::exchange(emulator::kMax, x);
  int most = (int)all[0];
  for (int i = 1; i < 32; ++i) most = (int)all[i] > most ? (int)all[i] : most;
  return most;
}
inline int warp_min(int x) { return -warp_max(-x); }
inline uint32_t sum_between(emulator::Operation operation, int first, int last, uint32_t x) {
  const int64_t* all = emulator::exchange(operation, x);
  uint32_t sum = 0;
  for (int i = first; i <= last; ++i) sum += (uint32_t)all[i];
  return sum;
}
inline int warp_sum(int x) { return (int)sum_between(emulator::kSum, 0, 31, (uint32_t)x); }
inline uint32_t sum_from_here_up(uint32_t x) { return sum_between(emulator::kSumUp, emulator::current, 31, x); }
inline uint32_t sum_up_to_here(uint32_t x) { return sum_between(emulator::kSumDown, 0, emulator::current, x); }
inline int warp_count(bool holds) { return __popc(__ballot_sync(kAllLanes, holds)); }
inline int from_lane(int x, int lane) { return __shfl_sync(kAllLanes, x, lane); }
inline uint64_t word_from_lane(uint64_t word, int lane) {
  const uint32_t high = from_lane((int)(word >> 32), lane), low = from_lane((int)word, lane);
  return (uint64_t)high << 32 | low;
}

inline void copy_ahead(int* to, const int32_t* from) { std::memcpy(to, from, 16); }
inline void copies_done() { __syncwarp(); }

inline uint32_t shared_address(const int* place) { return (uint32_t)(4 * (place - emulator::shared)) + kSharedBegin; }
inline void add_at(uint32_t address, int32_t quantity) {
  const uint32_t offset = address - kSharedBegin;
  if (offset % 4 != 0 || offset >= emulator::shared_bytes) emulator::fail("an order outside of shared memory");
  atomicAdd(emulator::shared + offset / 4, quantity);
}
inline uint32_t multiply_add(uint32_t a, uint32_t b, uint32_t c) { return a * b + c; }
inline uint32_t fixed(uint32_t x) { return x; }

}  // namespace ks
