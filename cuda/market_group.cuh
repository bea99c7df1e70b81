// market_group.cuh: the threads that share one market, and what they compute together. One warp a market needs no block
// barrier; several warps exchange through shared memory. Used by persistent_kernel.cuh; holds no rule.
#pragma once

#include "layout.h"

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

template <int kWarps>
struct Group {
  static constexpr int kScratch = kWarps > 1 ? kScratchInts * kWarps : 0;  // two buffers of two rows

  int* scratch;
  int lane, warp;
  int buffer = 0;  // alternates, so that one barrier an exchange is enough

  __device__ __forceinline__ explicit Group(int* scratch)
      : scratch(scratch), lane(threadIdx.x & 31), warp(kWarps > 1 ? threadIdx.x >> 5 : 0) {}

  __device__ __forceinline__ int thread() const { return warp * 32 + lane; }

  __device__ __forceinline__ void sync() const {
    if (kWarps > 1) __syncthreads();
    else __syncwarp();
  }

  // Let every thread see each warp's pair.
  __device__ __forceinline__ const int* exchange(int a, int b, int writer) {
    int* row = scratch + 2 * kWarps * buffer;
    buffer ^= 1;
    if (lane == writer) {
      row[warp] = a;
      row[kWarps + warp] = b;
    }
    __syncthreads();
    return row;
  }

  __device__ __forceinline__ void max_pair(int& a, int& b) {
    a = warp_max(a);
    b = warp_max(b);
    if (kWarps > 1) {
      const int* row = exchange(a, b, 0);
      for (int w = 0; w < kWarps; ++w) {
        a = max(a, row[w]);
        b = max(b, row[kWarps + w]);
      }
    }
  }

  __device__ __forceinline__ int max_one(int a) {
    int unused = 0;
    if (kWarps > 1) max_pair(a, unused);
    else a = warp_max(a);
    return a;
  }

  __device__ __forceinline__ int sum_one(int a) {
    a = warp_sum(a);
    if (kWarps > 1) {
      const int* row = exchange(a, 0, 0);
      a = 0;
      for (int w = 0; w < kWarps; ++w) a += row[w];
    }
    return a;
  }

  // Exclusive prefix sums over threads, and the totals; sums wrap like uint32.
  __device__ __forceinline__ void scan_pair(uint32_t a, uint32_t b, uint32_t& before_a, uint32_t& before_b,
                                            uint32_t& total_a, uint32_t& total_b) {
    uint32_t up_to_a = a, up_to_b = b;
#pragma unroll
    for (int step = 1; step < 32; step <<= 1) {
      uint32_t x = __shfl_up_sync(kAllLanes, up_to_a, step), y = __shfl_up_sync(kAllLanes, up_to_b, step);
      if (lane >= step) {
        up_to_a += x;
        up_to_b += y;
      }
    }
    before_a = up_to_a - a;
    before_b = up_to_b - b;
    if (kWarps > 1) {
      const int* row = exchange((int)up_to_a, (int)up_to_b, 31);
      total_a = total_b = 0;
      for (int w = 0; w < kWarps; ++w) {
        if (w == warp) {
          before_a += total_a;
          before_b += total_b;
        }
        total_a += (uint32_t)row[w];
        total_b += (uint32_t)row[kWarps + w];
      }
    } else {
      total_a = __shfl_sync(kAllLanes, up_to_a, 31);
      total_b = __shfl_sync(kAllLanes, up_to_b, 31);
    }
  }
};

}  // namespace ks
