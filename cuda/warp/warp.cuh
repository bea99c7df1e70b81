// warp.cuh: what the 32 threads that share a market compute together. A warp needs no block barrier. Holds no rule.
#pragma once

#include "model/layout.h"

namespace ks {

constexpr unsigned kAllLanes = 0xffffffffu;

// Before sm_80 there is no warp reduction instruction; KS_FORCE_SHUFFLE builds that path anywhere, for its test.
#if defined(KS_FORCE_SHUFFLE) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800)
__device__ __forceinline__ int warp_max(int x) {
#pragma unroll
  for (int step = 16; step > 0; step >>= 1) x = max(x, __shfl_xor_sync(kAllLanes, x, step));
  return x;
}
__device__ __forceinline__ int warp_sum(int x) {
#pragma unroll
  for (int step = 16; step > 0; step >>= 1) x += __shfl_xor_sync(kAllLanes, x, step);
  return x;
}
#else
__device__ __forceinline__ int warp_max(int x) { return __reduce_max_sync(kAllLanes, x); }
__device__ __forceinline__ int warp_sum(int x) { return __reduce_add_sync(kAllLanes, x); }
#endif

__device__ __forceinline__ int warp_min(int x) { return -warp_max(-x); }

// Inclusive sums over the lanes: from this lane up to the last, and from the first up to this one. A shuffle says itself
// whether it came from another lane.
__device__ __forceinline__ uint32_t sum_from_here_up(uint32_t x) {
#pragma unroll
  for (int step = 1; step < 32; step <<= 1)
    asm volatile("{.reg .b32 y; .reg .pred p; shfl.sync.down.b32 y|p, %0, %1, 31, -1; @p add.u32 %0, %0, y;}"
                 : "+r"(x) : "r"(step));
  return x;
}
__device__ __forceinline__ uint32_t sum_up_to_here(uint32_t x) {
#pragma unroll
  for (int step = 1; step < 32; step <<= 1)
    asm volatile("{.reg .b32 y; .reg .pred p; shfl.sync.up.b32 y|p, %0, %1, 0, -1; @p add.u32 %0, %0, y;}"
                 : "+r"(x) : "r"(step));
  return x;
}

// One lane's value. Not __shfl_sync: told that all lanes get the same, the compiler moves it to where it is slow to use.
__device__ __forceinline__ int from_lane(int x, int lane) {
  int result;
  asm volatile("shfl.sync.idx.b32 %0, %1, %2, 31, -1;" : "=r"(result) : "r"(x), "r"(lane));
  return result;
}

__device__ __forceinline__ uint64_t word_from_lane(uint64_t word, int lane) {
  return (uint64_t)(uint32_t)from_lane((int)(word >> 32), lane) << 32 | (uint32_t)from_lane((int)word, lane);
}

// The number of lanes in which something holds, for what holds in the first lanes or in the last ones only.
__device__ __forceinline__ int warp_count(bool holds) { return __popc(__ballot_sync(kAllLanes, holds)); }

// Copy 16 bytes from global to shared memory; from sm_80 on while the thread goes on, until copies_done().
__device__ __forceinline__ void copy_16_bytes_ahead(int* to, const int32_t* from) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from) : "memory");
#else
  *reinterpret_cast<int4*>(to) = *reinterpret_cast<const int4*>(from);
#endif
}
// The same of one value of 4 or 8 bytes: many are on their way at a time, and none takes a register.
template <typename T>
__device__ __forceinline__ void copy_ahead(T* to, const T* from) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "what the instruction can");
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from),
               "n"(sizeof(T)) : "memory");
#else
  *to = *from;
#endif
}
__device__ __forceinline__ void copies_done() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
  __syncwarp();
}

// Shared memory by its 32-bit address, so that finding a place in it takes multiply-adds alone.
__device__ __forceinline__ uint32_t shared_address(const int* place) { return (uint32_t)__cvta_generic_to_shared(place); }
__device__ __forceinline__ void add_at(uint32_t address, int32_t quantity) {
  asm volatile("red.shared.add.s32 [%0], %1;" ::"r"(address), "r"(quantity) : "memory");
}

// a * b + c in one instruction, which the compiler would make three of where a is a single bit.
__device__ __forceinline__ uint32_t multiply_add(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t result;
  asm("mad.lo.u32 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
  return result;
}

// Keep the compiler from taking a sum apart that was made outside of a loop for its sake.
__device__ __forceinline__ uint32_t fixed(uint32_t x) {
  asm volatile("" : "+r"(x));
  return x;
}

}  // namespace ks
