// warp.cuh: warp primitives for the 32 threads that share a market. A warp needs no block barrier. Holds no rule.
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

// Inclusive sums over the lanes: of this lane and those after it, and of those before it and this lane. The instruction
// itself tells whether its value came from another lane.
__device__ __forceinline__ uint32_t suffix_sum(uint32_t x) {
#pragma unroll
  for (int step = 1; step < 32; step <<= 1)
    asm volatile("{.reg .b32 y; .reg .pred p; shfl.sync.down.b32 y|p, %0, %1, 31, -1; @p add.u32 %0, %0, y;}"
                 : "+r"(x) : "r"(step));
  return x;
}
__device__ __forceinline__ uint32_t prefix_sum(uint32_t x) {
#pragma unroll
  for (int step = 1; step < 32; step <<= 1)
    asm volatile("{.reg .b32 y; .reg .pred p; shfl.sync.up.b32 y|p, %0, %1, 0, -1; @p add.u32 %0, %0, y;}"
                 : "+r"(x) : "r"(step));
  return x;
}

// One lane's value, for all lanes. Not __shfl_sync: the compiler then knows that all lanes get the same, and moves it to a
// uniform register, from where it is slow to use.
__device__ __forceinline__ int shuffle(int x, int lane) {
  int result;
  asm volatile("shfl.sync.idx.b32 %0, %1, %2, 31, -1;" : "=r"(result) : "r"(x), "r"(lane));
  return result;
}

__device__ __forceinline__ uint64_t shuffle(uint64_t word, int lane) {
  return (uint64_t)(uint32_t)shuffle((int)(word >> 32), lane) << 32 | (uint32_t)shuffle((int)word, lane);
}

// The number of lanes in which `holds` is true.
__device__ __forceinline__ int count_lanes(bool holds) { return __popc(__ballot_sync(kAllLanes, holds)); }

// Copy 16 bytes from global to shared memory; from sm_80 on asynchronously, until copies_done().
__device__ __forceinline__ void copy_16_bytes_ahead(int* to, const int32_t* from) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from) : "memory");
#else
  *reinterpret_cast<int4*>(to) = *reinterpret_cast<const int4*>(from);
#endif
}
// The same for one value of 4 or 8 bytes: many are in flight at a time, and none takes a register.
template <typename T>
__device__ __forceinline__ void copy_ahead(T* to, const T* from) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "sizes that the instruction copies");
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

// Shared memory by its 32-bit address, so that addresses are computed by multiply-adds alone.
__device__ __forceinline__ uint32_t shared_address(const int* place) { return (uint32_t)__cvta_generic_to_shared(place); }
__device__ __forceinline__ void add_at(uint32_t address, int32_t quantity) {
  asm volatile("red.shared.add.s32 [%0], %1;" ::"r"(address), "r"(quantity) : "memory");
}

// a * b + c in one instruction; where a is a single bit, the compiler would emit three.
__device__ __forceinline__ uint32_t multiply_add(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t result;
  asm("mad.lo.u32 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
  return result;
}

// Keep the compiler from computing again, inside a loop, a sum that was computed before it.
__device__ __forceinline__ uint32_t fixed(uint32_t x) {
  asm volatile("" : "+r"(x));
  return x;
}

}  // namespace ks
