// warp_on_fibers.h: what cuda/warp/warp.cuh has, on a CPU: the 32 threads of a warp are fibers that take turns, from one
// synchronisation to the next. For tests/test_warp_on_host.py, which puts it in that file's place.
//
// Lanes wait for those of a mask; if these come to different places, or all wait, the program ends. Between two places lanes run in
// rising order, and the next time in falling order, so that a lane that reads what another one has yet to write gets another
// result than the C++ engine. Of several warps, a random one takes its turn.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "model/layout.h"

#define __device__
#define __forceinline__ inline

struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) int2 {
  int x, y;
};
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline int2 make_int2(int x, int y) { return {x, y}; }

struct Index {
  unsigned x;
};
static Index threadIdx;  // static, as libraries that are loaded together share what is inline

namespace ks {

constexpr unsigned kAllLanes = 0xffffffffu;

struct Copy {
  void* to;
  const void* from;
  size_t bytes;
};

struct Fiber {
  ucontext_t start;
  jmp_buf left;  // where it goes on, once it has started
  bool started = false;
  std::vector<char> stack = std::vector<char>(1 << 18);
  std::vector<Copy> copies;  // that are on their way to shared memory
  const char* place = nullptr;  // where it waits, for the lanes of a mask; null before it begins
  unsigned mask = kAllLanes;
  bool done = false;
};

struct Warp {
  Fiber fibers[kWarpLanes];
  jmp_buf scheduler;
  uint64_t posts[kWarpLanes], seen[kWarpLanes];  // what lanes have last said, and had before the present turn
  unsigned turn;
  int* shared;
  std::function<void()> act;
};
static std::deque<Warp> warps;
static Warp* warp;  // whose turn it is

// Leave a fiber, and go on with it. A swapcontext would ask the system for the signal mask each time, which takes most of
// a test's time.
inline void leave() {
  if (!_setjmp(warp->fibers[threadIdx.x].left)) _longjmp(warp->scheduler, 1);
}
inline void go_on(Fiber& fiber) {
  if (_setjmp(warp->scheduler)) return;
  if (fiber.started) _longjmp(fiber.left, 1);
  fiber.started = true;
  setcontext(&fiber.start);
}

// A lane acts for one launch after the other.
inline void start_lane() {
  for (;;) {
    warp->act();
    warp->fibers[threadIdx.x].done = true;
    leave();
  }
}

// Wait until all lanes of a mask are here.
inline void wait_at(const char* place, unsigned mask = kAllLanes) {
  Fiber& fiber = warp->fibers[threadIdx.x];
  fiber.place = place, fiber.mask = mask;
  leave();
}

inline void begin(Warp& fresh, int* shared, std::function<void()> act) {
  fresh.shared = shared;
  fresh.act = std::move(act);
  fresh.turn = 0;
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    Fiber& fiber = fresh.fibers[lane];
    fiber.done = false, fiber.place = nullptr, fiber.mask = kAllLanes;
    fiber.copies.clear();
    if (fiber.started) continue;
    getcontext(&fiber.start);
    fiber.start.uc_stack.ss_sp = fiber.stack.data();
    fiber.start.uc_stack.ss_size = fiber.stack.size();
    makecontext(&fiber.start, start_lane, 0);
  }
}

inline std::string state_of(int lane) {
  const Fiber& fiber = warp->fibers[lane];
  return fiber.done ? "the end" : fiber.place ? fiber.place : "the beginning";
}
// Whether all lanes that a lane waits for are where it is.
inline bool goes_on(int lane) {
  const Fiber& fiber = warp->fibers[lane];
  if (fiber.done) return false;
  for (int other = 0; other < kWarpLanes; ++other) {
    const Fiber& there = warp->fibers[other];
    if (!(fiber.mask >> other & 1) || (!there.done && there.place == nullptr && fiber.place == nullptr)) continue;
    if (there.done || !there.place || !fiber.place) return false;
    if (there.mask != fiber.mask || std::strcmp(there.place, fiber.place)) return false;
  }
  return true;
}

// Every lane that need not wait goes on to its next synchronisation, or to the end; returns whether all are there.
inline bool take_turn() {
  const unsigned turn = warp->turn++;
  std::memcpy(warp->seen, warp->posts, sizeof warp->seen);
  unsigned ready = 0;
  for (int lane = 0; lane < kWarpLanes; ++lane) ready |= (unsigned)goes_on(lane) << lane;
  for (int i = 0; i < kWarpLanes; ++i) {
    threadIdx.x = turn % 2 ? kWarpLanes - 1 - i : i;
    if (ready >> threadIdx.x & 1) go_on(warp->fibers[threadIdx.x]);
  }
  bool all_done = true;
  for (const Fiber& fiber : warp->fibers) all_done &= fiber.done;
  if (all_done || ready != 0) return all_done;
  for (int lane = 0; lane < kWarpLanes; ++lane) std::fprintf(stderr, "lane %d is at %s\n", lane, state_of(lane).c_str());
  std::abort();
}

// Run warps, each with its shared memory; `act` is told which warp it is. Returns how many turns they took.
inline int64_t on_all_warps(const std::vector<int*>& shared, const std::function<void(int)>& act) {
  static uint32_t random = 1;
  while (warps.size() < shared.size()) warps.emplace_back();
  std::vector<int> left;
  for (int i = 0; i < (int)shared.size(); ++i) {
    begin(warps[i], shared[i], [&act, i] { act(i); });
    left.push_back(i);
  }
  int64_t turns = 0;
  for (; !left.empty(); ++turns) {
    random = random * 1664525u + 1013904223u;
    const size_t next = (random >> 8) % left.size();
    warp = &warps[left[next]];
    if (take_turn()) left.erase(left.begin() + next);
  }
  return turns;
}
inline void on_all_lanes(int* shared, const std::function<void()>& act) {
  on_all_warps({shared}, [&act](int) { act(); });
}

// Every lane's number, known to all of a mask.
inline const uint64_t* exchange(uint64_t mine, const char* place, unsigned mask = kAllLanes) {
  warp->posts[threadIdx.x] = mine;
  wait_at(place, mask);
  return warp->seen;
}

inline void __syncwarp(unsigned mask = kAllLanes) { wait_at("syncwarp", mask); }
inline unsigned __ballot_sync(unsigned mask, bool holds) {
  const uint64_t* all = exchange(holds, "ballot", mask);
  unsigned bits = 0;
  for (int i = 0; i < kWarpLanes; ++i) bits |= (unsigned)(mask >> i & 1 & all[i]) << i;
  return bits;
}
inline unsigned __match_any_sync(unsigned, int x) {
  const uint64_t* all = exchange((uint32_t)x, "match");
  unsigned same = 0;
  for (int i = 0; i < kWarpLanes; ++i) same |= (unsigned)(all[i] == (uint32_t)x) << i;
  return same;
}
inline bool __any_sync(unsigned lanes, bool holds) { return __ballot_sync(lanes, holds) != 0; }
template <typename T>
T __shfl_sync(unsigned mask, T x, int lane) {
  return (T)exchange((uint64_t)x, "shuffle", mask)[lane & (kWarpLanes - 1)];
}
inline int __shfl_xor_sync(unsigned, int x, int mask) { return (int)exchange(x, "shuffle")[threadIdx.x ^ mask]; }

inline int __clz(unsigned x) { return x ? __builtin_clz(x) : 32; }
inline int __ffs(unsigned x) { return __builtin_ffs((int)x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
template <typename T>
T atomicAdd(T* place, T x) {
  const T before = *place;
  *place += x;
  return before;
}
template <typename T>
T atomicSub(T* place, T x) {
  return atomicAdd(place, (T)-x);
}
inline void __threadfence() {}
template <typename T>
void atomicOr(T* place, T bits) {
  *place |= bits;
}

inline int warp_max(int x) {
  const uint64_t* all = exchange((uint64_t)x, "max");
  for (int i = 0; i < kWarpLanes; ++i) x = (int)all[i] > x ? (int)all[i] : x;
  return x;
}
inline int warp_sum(int x) {
  const uint64_t* all = exchange((uint64_t)x, "sum");
  uint32_t sum = 0;
  for (int i = 0; i < kWarpLanes; ++i) sum += (uint32_t)all[i];
  return (int)sum;
}
inline int warp_min(int x) { return -warp_max(-x); }
inline uint32_t suffix_sum(uint32_t x) {
  const uint64_t* all = exchange(x, "suffix sum");
  for (int i = threadIdx.x + 1; i < kWarpLanes; ++i) x += (uint32_t)all[i];
  return x;
}
inline uint32_t prefix_sum(uint32_t x) {
  const uint64_t* all = exchange(x, "prefix sum");
  for (int i = 0; i < (int)threadIdx.x; ++i) x += (uint32_t)all[i];
  return x;
}
inline int shuffle(int x, int lane) { return (int)exchange((uint64_t)x, "shuffle")[lane & (kWarpLanes - 1)]; }
inline uint64_t shuffle(uint64_t word, int lane) { return exchange(word, "shuffle")[lane & (kWarpLanes - 1)]; }
inline int count_lanes(bool holds) { return __popc(__ballot_sync(kAllLanes, holds)); }

// Copies arrive when they are waited for, and not before.
inline void copy_16_bytes_ahead(int* to, const int32_t* from) { warp->fibers[threadIdx.x].copies.push_back({to, from, 16}); }
template <typename T>
void copy_ahead(T* to, const T* from) {
  warp->fibers[threadIdx.x].copies.push_back({to, from, sizeof(T)});
}
inline void copies_done() {
  std::vector<Copy>& copies = warp->fibers[threadIdx.x].copies;
  for (const Copy& copy : copies) std::memcpy(copy.to, copy.from, copy.bytes);
  copies.clear();
  __syncwarp();
}

inline uint32_t shared_address(const int* place) { return (uint32_t)((const char*)place - (const char*)warp->shared); }
inline void add_at(uint32_t address, int32_t quantity) { *(int32_t*)((char*)warp->shared + address) += quantity; }
inline uint32_t multiply_add(uint32_t a, uint32_t b, uint32_t c) { return a * b + c; }
inline uint32_t fixed(uint32_t x) { return x; }

}  // namespace ks
