// lanes_on_threads.cuh: what cuda/lane/lanes.cuh has, with a thread per lane, for tests/test_lane_races.py, which puts it in
// that file's place. Only sync_warp() orders what lanes write and read; votes and shuffles do not promise that, and do not here.
#pragma once

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <thread>
#include <vector>

#include "model/layout.h"

namespace ks {

struct alignas(16) Four {
  int32_t a, b, c, d;
};

#define KS_ON_LANE inline
#define KS_CALLED_ON_LANE inline
constexpr int kLaneCount = 32;

struct Post {
  std::atomic<uint64_t> value{0}, turn{0};
};

struct Warp {
  pthread_barrier_t barrier;
  Post posts[2][kLaneCount];  // of even and odd turns: nobody is more than one ahead
};

inline thread_local Warp* warp;
inline thread_local int lane_index;
inline thread_local uint64_t turns;

inline int this_lane() { return lane_index; }
inline void sync_warp() { pthread_barrier_wait(&warp->barrier); }

inline void exchange(uint64_t mine, uint64_t* all) {
  const uint64_t turn = ++turns;
  Post* posts = warp->posts[turn & 1];
  posts[lane_index].value.store(mine, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  posts[lane_index].turn.store(turn, std::memory_order_relaxed);
  for (int i = 0; i < kLaneCount; ++i) {
    while (posts[i].turn.load(std::memory_order_relaxed) < turn) sched_yield();
    std::atomic_signal_fence(std::memory_order_seq_cst);
    all[i] = posts[i].value.load(std::memory_order_relaxed);
  }
}

inline unsigned ballot(bool holds) {
  uint64_t all[kLaneCount];
  exchange(holds, all);
  unsigned bits = 0;
  for (int i = 0; i < kLaneCount; ++i) bits |= (unsigned)all[i] << i;
  return bits;
}

template <typename T>
T shuffle(T x, int lane) {
  uint64_t all[kLaneCount];
  exchange((uint64_t)(int64_t)x, all);
  return (T)all[lane];
}

inline void write_out(Four* to, const Four& x) { *to = x; }
inline int lowest_bit(uint64_t x) { return __builtin_ctzll(x); }
inline int highest_bit(uint64_t x) { return 63 - __builtin_clzll(x); }
inline void add_to(int32_t* place, int32_t x) { *place += x; }

// Run a warp.
template <typename Do>
void on_all_lanes(Do act) {
  Warp all;
  pthread_barrier_init(&all.barrier, nullptr, kLaneCount);
  std::vector<std::thread> threads;
  for (int lane = 0; lane < kLaneCount; ++lane)
    threads.emplace_back([&, lane] {
      warp = &all, lane_index = lane, turns = 0;
      act();
    });
  for (std::thread& thread : threads) thread.join();
  pthread_barrier_destroy(&all.barrier);
}

}  // namespace ks
