// deadlines.cuh: markets with a block whose deadline has come. Dozens of forced auctions may follow, in which the other lanes
// of a warp would wait for one. Such markets are put into a queue. Warps that are done with their lanes take them out, one
// after another, and step each with all lanes.
#pragma once

#include "lane/lanes.cuh"

#ifndef KS_DEADLINES
#define KS_DEADLINES 0  // 1: with such a queue
#endif

#if KS_DEADLINES
#include "warp/environment.cuh"
#endif

namespace ks {

#if KS_DEADLINES

// So many markets of a warp at most are put into the queue. More are played sooner by their lanes, all at a time.
constexpr int kFewDeadlines = 8;

// In global memory, empty and zero between launches: three counts, then places with a market's index + 1, or 0 before a
// market is put in and after it was taken out.
class DeadlineQueue {
 public:
  __device__ __forceinline__ explicit DeadlineQueue(const Launch& launch)
      : put(launch.deadline_queue), taken(put + 1), warps_done(put + 2), places(put + kDeadlineCounts), own_place(0),
        own_left(0) {}

  // Put in those of this warp's markets, which begin at `first`, whose deadline has come; returns their lanes.
  __device__ __forceinline__ unsigned leave(const Launch& launch, int64_t first) {
    Task task = task_of(launch);
    const int64_t m = first + this_lane();
    bool late = launch.env_mode == kLaunchModeEnvStep && role_of(launch, 0) == kRoleExecutor && m < launch.markets;
    if (late) {
      late = forced_auctions(SlotTask(launch, task, m), launch.elapsed[m]) > 0 &&
             part_of(launch, task, market_has_stopped(launch.error[m]), launch.done[m], false).plays;
    }
    const unsigned lanes = ballot(late);
    if (lanes == 0 || __popc(lanes) > kFewDeadlines) return 0;
    own_left = __popc(lanes);
    if (this_lane() == 0) own_place = atomicAdd(put, own_left);
    own_place = __shfl_sync(0xffffffffu, own_place, 0);
    if (late) atomicExch(places + own_place + __popc(lanes & ((1u << this_lane()) - 1)), (int)m + 1);
    return lanes;
  }

  // Step markets in the queue. All lanes of a warp call this when they are done with their own; `warps` are all that do.
  template <bool kOptions>
  __device__ __forceinline__ void step(const Launch& launch, int64_t warps, int* shared) {
    if (launch.env_mode != kLaunchModeEnvStep) return;
    while (const int number = __shfl_sync(0xffffffffu, this_lane() == 0 ? take() : 0, 0)) {
      EnvironmentTile<KS_BINS, kOptions, 1, true> market(launch, number - 1, shared);
      step_or_reset(market);
      __syncwarp();
    }
    if (this_lane() != 0) return;
    __threadfence();
    if (atomicAdd(warps_done, 1) == warps - 1) *put = *taken = *warps_done = 0;
  }

 private:
  // Called by one lane: a market's index + 1, or 0. Whoever passes a place whose market is yet to be put in leaves it to
  // the warp that does so, as the last thing that this one looks for are its own.
  __device__ __forceinline__ int take() {
    const volatile int *const now_taken = taken, *const now_put = put;
    while (*now_taken < *now_put) {
      const int place = atomicAdd(taken, 1);
      const int number = place < *now_put ? atomicExch(places + place, 0) : 0;
      if (number != 0) return number;
    }
    while (own_left > 0) {
      const int number = atomicExch(places + own_place + --own_left, 0);
      if (number != 0) return number;
    }
    return 0;
  }

  int *const put, *const taken, *const warps_done, *const places;
  int own_place, own_left;  // of this warp's markets that are in the queue
};

#else

struct DeadlineQueue {
  KS_ON_LANE explicit DeadlineQueue(const Launch&) {}
  KS_ON_LANE unsigned leave(const Launch&, int64_t) const { return 0; }
  template <bool kOptions>
  KS_ON_LANE void step(const Launch&, int64_t, int*) const {}
};

#endif

}  // namespace ks
