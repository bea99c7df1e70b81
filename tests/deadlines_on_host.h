// deadlines_on_host.h: the lists of cuda/lane/deadlines.cuh where a kernel runs on a CPU. An environment keeps its own from
// launch to launch, as an engine on a GPU does; one in the memory of another finds what that has left. For events_on_host.cpp
// and lanes_on_host.cpp.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <map>
#include <vector>

#include "lane/deadlines.cuh"

#if KS_DEADLINES

// Those of the environment whose decisions are counted at `elapsed`.
extern "C" int32_t* ks_lists(const void* elapsed, int64_t markets) {
  static std::map<const void*, std::vector<int32_t>> all;
  std::vector<int32_t>& lists = all[elapsed];
  if ((int64_t)lists.size() != ks::kDeadlineCounts + 4 * markets) lists.assign(ks::kDeadlineCounts + 4 * markets, 0);
  return lists.data();
}

namespace ks {

inline bool has_lists(const Launch& launch) { return launch.env_mode != kLaunchModeRun; }

// After a launch: nothing is taken, one list is empty, and the other has each of some markets once, or the program ends.
inline void check_lists(const Launch& launch) {
  if (!has_lists(launch)) return;
  const int32_t *const counts = launch.deadline_lists, now = counts[0];
  bool whole = (now == 0 || now == 1) && counts[2 - now] == 0 && counts[3] == 0;
  const int32_t* const markets = counts + kDeadlineCounts + (now == 1) * 2 * launch.markets;
  for (int32_t i = 0; whole && i < counts[1 + now]; ++i)
    whole = markets[i] >= 0 && markets[i] < launch.markets && markets[launch.markets + markets[i]] == i;
  if (whole) return;
  std::fprintf(stderr, "lists of deadlines: now %d, with %d and %d markets, %d taken\n", now, counts[1], counts[2], counts[3]);
  std::abort();
}

}  // namespace ks
#else
namespace ks {

inline bool has_lists(const Launch&) { return false; }
inline void check_lists(const Launch&) {}

}  // namespace ks
inline int32_t* ks_lists(const void*, int64_t) { return nullptr; }
#endif
