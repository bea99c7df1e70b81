// lanes.cuh: warp primitives for code where each lane has a market of its own. Without a CUDA compiler a warp has one
// lane, so that this code also runs, and is tested, on a CPU. Holds no rule.
#pragma once

#include "model/layout.h"

namespace ks {

struct alignas(16) Four {  // numbers that one instruction loads or stores
  int32_t a, b, c, d;
};

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)

#define KS_ON_LANE __device__ __forceinline__
#define KS_CALLED_ON_LANE __device__ __noinline__
#define KS_SYNC_LANES(mask) __syncwarp(mask)
#define KS_BALLOT_LANES(mask, holds) __ballot_sync(mask, holds)
#define KS_SHUFFLE_LANES(mask, x, lane) __shfl_sync(mask, x, lane)
constexpr int kLaneCount = kWarpLanes;
KS_ON_LANE int this_lane() { return threadIdx.x % kLaneCount; }
KS_ON_LANE void sync_warp() { __syncwarp(); }
KS_ON_LANE unsigned ballot(bool holds) { return __ballot_sync(0xffffffffu, holds); }
template <typename T>
KS_ON_LANE T shuffle(T x, int lane) {
  return __shfl_sync(0xffffffffu, x, lane);
}
// Write numbers that are not read again soon, and need not stay in a cache.
KS_ON_LANE void write_out(Four* to, const Four& x) {
  asm volatile("st.global.cs.v4.s32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)), "r"(x.a), "r"(x.b),
               "r"(x.c), "r"(x.d) : "memory");
}
KS_ON_LANE int lowest_bit(uint64_t x) { return __ffsll(x) - 1; }
KS_ON_LANE int lowest_bit(uint32_t x) { return __ffs(x) - 1; }
KS_ON_LANE int highest_bit(uint64_t x) { return 63 - __clzll(x); }
KS_ON_LANE uint32_t reversed_bits(uint32_t x) { return __brev(x); }
KS_ON_LANE int one_bits(unsigned x) { return __popc(x); }
// Add to a number in shared memory that no other lane reads or writes, without waiting for the result.
KS_ON_LANE void add_to(int32_t* place, int32_t x) {
  asm volatile("red.shared.add.s32 [%0], %1;" ::"r"((uint32_t)__cvta_generic_to_shared(place)), "r"(x) : "memory");
}
// The same place in shared memory, as an address that is in a register: else compilers find the base of shared memory, which
// takes as long as a read, anew before each use.
template <typename T>
KS_ON_LANE T* kept(T* place) {
  uint32_t address = (uint32_t)__cvta_generic_to_shared(place);
  asm volatile("" : "+r"(address));
  return static_cast<T*>(__cvta_shared_to_generic(address));
}

#else

#define KS_ON_LANE inline
#define KS_CALLED_ON_LANE inline
#define KS_SYNC_LANES(mask)
#define KS_BALLOT_LANES(mask, holds) (holds)
#define KS_SHUFFLE_LANES(mask, x, lane) (x)
constexpr int kLaneCount = 1;
KS_ON_LANE int this_lane() { return 0; }
KS_ON_LANE void sync_warp() {}
KS_ON_LANE unsigned ballot(bool holds) { return holds; }
template <typename T>
KS_ON_LANE T shuffle(T x, int) {
  return x;
}
KS_ON_LANE void write_out(Four* to, const Four& x) { *to = x; }
KS_ON_LANE int lowest_bit(uint64_t x) { return __builtin_ctzll(x); }
KS_ON_LANE int highest_bit(uint64_t x) { return 63 - __builtin_clzll(x); }
KS_ON_LANE uint32_t reversed_bits(uint32_t x) {
  x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
  x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
  x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
  return __builtin_bswap32(x);
}
KS_ON_LANE int one_bits(unsigned x) { return __builtin_popcount(x); }
KS_ON_LANE void add_to(int32_t* place, int32_t x) { *place += x; }
template <typename T>
KS_ON_LANE T* kept(T* place) { return place; }

#endif

}  // namespace ks
