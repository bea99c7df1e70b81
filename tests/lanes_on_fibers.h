// lanes_on_fibers.h: what cuda/lane/lanes.cuh has, with a fiber per lane (warp_on_fibers.h), for tests/test_lane_environment.py,
// which puts it in that file's place: there a whole warp steps some of the lanes' markets.
#pragma once

#include "warp/warp.cuh"

#define KS_ON_LANE inline
#define KS_CALLED_ON_LANE inline
#define KS_SYNC_LANES(mask) __syncwarp(mask)
#define KS_BALLOT_LANES(mask, holds) __ballot_sync(mask, holds)
#define KS_SHUFFLE_LANES(mask, x, lane) __shfl_sync(mask, x, lane)

namespace ks {

struct alignas(16) Four {
  int32_t a, b, c, d;
};

constexpr int kLaneCount = kWarpLanes;
inline int this_lane() { return (int)threadIdx.x; }
inline void sync_warp() { __syncwarp(); }
inline unsigned ballot(bool holds) { return __ballot_sync(kAllLanes, holds); }
inline int64_t shuffle(int64_t x, int lane) { return (int64_t)shuffle((uint64_t)x, lane); }
inline void write_out(Four* to, const Four& x) { *to = x; }
inline int lowest_bit(uint64_t x) { return __builtin_ctzll(x); }
inline int one_bits(unsigned x) { return __builtin_popcount(x); }
inline uint32_t reversed_bits(uint32_t x) {
  uint32_t reversed = 0;
  for (int i = 0; i < 32; ++i) reversed |= (x >> i & 1) << (31 - i);
  return reversed;
}
inline int highest_bit(uint64_t x) { return 63 - __builtin_clzll(x); }
inline void add_to(int32_t* place, int32_t x) { *place += x; }
template <typename T>
inline T* kept(T* place) {
  return place;
}

}  // namespace ks
