// emulator.h: a warp of 32 threads on one CPU core, for tests of cuda/*.cuh where there is no GPU.
//
// Lanes are contexts that run one after the other up to the next operation of the whole warp, in an order drawn anew each
// time: code that leans on an order without saying so ends with other bits. Lanes that meet in different operations, and
// places outside of shared memory, end the program.
#pragma once

#include <ucontext.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#define __device__
#define __host__
#define __forceinline__ inline

struct int2 { int x, y; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(16) float4 { float x, y, z, w; };
inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
struct Index { unsigned x; };
inline Index threadIdx;

namespace emulator {

enum Operation { kSync, kShuffle, kShuffleXor, kVote, kMax, kSum, kSumUp, kSumDown, kEnd };

inline ucontext_t scheduler, lanes[32];
inline std::vector<char> stacks(32 << 17);
inline Operation operations[32];
inline int64_t values[2][32];  // in turn, so that a fast lane does not overwrite what a slow one still reads
inline int passed[32];
inline int current;
inline void (*kernel)();
inline std::vector<int> memory;
inline int* shared;
inline size_t shared_bytes;

inline void fail(const char* what) {
  std::fprintf(stderr, "emulated warp: %s\n", what);
  std::abort();
}

inline void meet(Operation operation) {
  const int me = current;
  operations[me] = operation;
  passed[me] += 1;
  swapcontext(&lanes[me], &scheduler);
}

// Give every lane's value to all.
inline const int64_t* exchange(Operation operation, int64_t value) {
  int64_t* row = values[passed[current] & 1];
  row[current] = value;
  meet(operation);
  return row;
}

inline void lane_body() {
  kernel();
  meet(kEnd);
}

// Run the kernel's one warp, with `ints` of shared memory full of rubbish.
inline void run_warp(void (*body)(), int ints) {
  static uint64_t state = 88172645463325252ull;
  const auto draw = [] { return state ^= state << 13, state ^= state >> 7, state ^= state << 17; };
  kernel = body;
  memory.assign(ints + 64, (int)0xdeadbeef);
  shared = memory.data();
  while ((uintptr_t)shared % 16) ++shared;
  shared_bytes = 4 * (size_t)ints;
  int order[32];
  for (int i = 0; i < 32; ++i) {
    order[i] = i;
    passed[i] = 0;
    getcontext(&lanes[i]);
    lanes[i].uc_stack = {stacks.data() + ((size_t)i << 17), 0, 1 << 17};
    lanes[i].uc_stack.ss_sp = stacks.data() + ((size_t)i << 17);
    lanes[i].uc_stack.ss_size = 1 << 17;
    lanes[i].uc_link = nullptr;
    makecontext(&lanes[i], lane_body, 0);
  }
  do {
    for (int i = 31; i > 0; --i) std::swap(order[i], order[draw() % (i + 1)]);
    for (int lane : order) {
      current = lane;
      threadIdx.x = lane;
      swapcontext(&scheduler, &lanes[lane]);
    }
    for (int i = 1; i < 32; ++i)
      if (operations[i] != operations[0]) fail("lanes meet in different operations");
  } while (operations[0] != kEnd);
  for (int* place = shared + ints; place < memory.data() + memory.size(); ++place)
    if (*place != (int)0xdeadbeef) fail("a write behind the shared memory");
}

}  // namespace emulator

inline void __syncwarp() { emulator::meet(emulator::kSync); }
template <class T>
T __shfl_sync(unsigned, T value, int lane) { return (T)emulator::exchange(emulator::kShuffle, (int64_t)value)[lane & 31]; }
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  const int me = emulator::current;
  return (T)emulator::exchange(emulator::kShuffleXor, (int64_t)value)[me ^ mask];
}
inline unsigned __ballot_sync(unsigned, bool holds) {
  const int64_t* all = emulator::exchange(emulator::kVote, holds);
  unsigned votes = 0;
  for (int i = 0; i < 32; ++i) votes |= (unsigned)(all[i] != 0) << i;
  return votes;
}
inline bool __any_sync(unsigned mask, bool holds) { return __ballot_sync(mask, holds) != 0; }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __clz(unsigned x) { return x ? __builtin_clz(x) : 32; }
inline int __ffs(unsigned x) { return __builtin_ffs((int)x); }
inline int atomicAdd(int* place, int x) { return std::exchange(*place, (int)((unsigned)*place + (unsigned)x)); }
inline int atomicSub(int* place, int x) { return std::exchange(*place, (int)((unsigned)*place - (unsigned)x)); }
inline int atomicOr(int* place, int x) { return std::exchange(*place, *place | x); }
