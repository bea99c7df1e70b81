// lanes_on_fibers.h: what cuda/lane/lanes.cuh has, with a fiber per lane (warp_on_fibers.h), for tests/test_lane_environment.py,
// which puts it in that file's place: there a whole warp steps some of the lanes' markets.
#pragma once

#include "warp/warp.cuh"

#define KS_ON_LANE inline
#define KS_CALLED_ON_LANE inline

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
inline int highest_bit(uint64_t x) { return 63 - __builtin_clzll(x); }
inline void add_to(int32_t* place, int32_t x) { *place += x; }

}  // namespace ks
