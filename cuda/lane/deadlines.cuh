// deadlines.cuh: markets with a block whose deadline comes in the next step, or with a slot that unwinds then. Dozens of forced auctions may follow there, in which
// the other lanes of a warp would wait for one. So a launch lists them as it is done with them, and in the next step warps take
// them from the list, one after another, and step each with all lanes: at once those that have no markets, and all that are done
// with theirs. For lane/environment.cuh and events/kernel.cuh.
#pragma once

#include "lane/lanes.cuh"
#include "model/step.h"

#ifndef KS_DEADLINES
#define KS_DEADLINES 0  // 1: with such a list
#endif

#if KS_DEADLINES
namespace ks {

// One in so many markets at most is left to whole warps. If more are late, their lanes play them sooner, all at a time.
constexpr int kMarketsPerDeadline = 8;

// What is on the list may be any markets, once each: whole warps step all alike, and lanes those that are not on it. So it need
// not hold for state that was set between two launches. There are two lists, as the next step's is made while this one's is read.
class DeadlineList {
 public:
  KS_ON_LANE explicit DeadlineList(const Launch& launch) : launch(launch) {}

  // Whether whole warps step market m in this launch.
  KS_ON_LANE bool has(int64_t m) const { return length() > 0 && is_on(counts().now, m); }

  // Market m is stored: list it if it is late in the next step. Called by one lane. A reset makes that step's list longer.
  KS_ON_LANE void note(int64_t m) const {
    if (!is_late(m)) return;
    const int next = counts().now ^ (int)steps();
    if (!steps() && is_on(next, m)) return;
    const int place = atomicAdd(&counts().listed[next], 1);
    markets(next)[place] = (int)m;
    places(next)[m] = place;
  }

  // Step what is on the list by `play(market)`. All lanes of each of a launch's warps call this when they are done with their own.
  template <typename Play>
  KS_ON_LANE void step(int64_t warps, const Play& play) const {
    if (!steps()) return;
    const int now = counts().now, listed = length();
    __threadfence();  // that was read before others may know that this warp is done
    int place;
    while ((place = take()) < listed) {
      const int64_t m = markets(now)[place];
      play(m);
      __syncwarp();
      if (this_lane() == 0) note(m);
    }
    // Each warp comes here once, with places in a row.
    if (place == listed + warps - 1 && this_lane() == 0)
      counts().now = now ^ 1, counts().listed[now] = 0, counts().taken = 0;
  }

 private:
  struct Counts {
    int32_t now;        // which list is this step's, or after a step the next one's
    int32_t listed[2];  // markets on each
    int32_t taken;      // of this step's
  };
  static_assert(sizeof(Counts) == kDeadlineCounts * sizeof(int32_t), "layout.h");

  KS_ON_LANE bool steps() const { return launch.env_mode == kLaunchModeEnvStep; }
  KS_ON_LANE int length() const {
    const int listed = counts().listed[counts().now];
    return steps() && listed <= (launch.markets + kMarketsPerDeadline - 1) / kMarketsPerDeadline ? listed : 0;
  }
  KS_ON_LANE bool is_on(int which, int64_t m) const {
    const int place = places(which)[m];
    return place < counts().listed[which] && markets(which)[place] == m;
  }
  KS_ON_LANE bool is_late(int64_t m) const {
    Task task = task_of(launch);
    const int64_t row = m * launch.slots;
    if (forced_auctions(SlotTask(launch, task, row), (int64_t)launch.elapsed[m] + task.longest) == 0) return false;
    bool executes = false;
    for (int k = 0; k < launch.slots; ++k) {
      const int32_t role = role_of(launch, k);
      executes |= (role == kRoleExecutor || unwinds(task, role, k)) && !launch.ended[row + k];
    }
    return executes && !market_has_stopped(launch.error[m]);
  }
  KS_ON_LANE int take() const {
    return __shfl_sync(0xffffffffu, this_lane() == 0 ? atomicAdd(&counts().taken, 1) : 0, 0);
  }

  KS_ON_LANE Counts& counts() const { return *reinterpret_cast<Counts*>(launch.deadline_lists); }
  // Those on a list, and where on it each is, or was.
  KS_ON_LANE int32_t* markets(int which) const {
    return launch.deadline_lists + kDeadlineCounts + 2 * which * launch.markets;
  }
  KS_ON_LANE int32_t* places(int which) const { return markets(which) + launch.markets; }

  const Launch& launch;
};

}  // namespace ks
#endif
