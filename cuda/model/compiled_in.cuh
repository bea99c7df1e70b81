// compiled_in.cuh: what a kernel reads at run time, or has compiled in as constants where it was compiled for it
// (kineticsim_env/engines/cuda.py): the markets' parameters and levels, their levers, the task's settings, the slots' role.
#pragma once

#include "model/levers.h"

namespace ks {

constexpr bool kWithLevers = KS_LEVERS == 2, kWithCoin = KS_LEVERS != 0;

// Whether a run can record further series (model/auction.h): a kernel only if it was compiled for such runs.
#ifndef KS_SERIES
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define KS_SERIES 0
#else
#define KS_SERIES 1
#endif
#endif
constexpr bool kWithSeries = KS_SERIES != 0;

// Whether a step can write what is known after it (Launch::info), likewise.
#ifndef KS_INFO
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define KS_INFO 0
#else
#define KS_INFO 1
#endif
#endif
KS_RULE bool writes_info(const Launch& launch) { return KS_INFO != 0 && launch.info != nullptr; }

// Which columns an observation has behind the others, a bit for each of enum Extra: a kernel has those that it was compiled for.
#ifndef KS_EXTRAS
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define KS_EXTRAS 0
#else
#define KS_EXTRAS launch.task.extras
#endif
#endif
KS_RULE bool has_extra(const Launch& launch, int i) { return (KS_EXTRAS) >> i & 1; }
// Before these come columns of each level of a slot's ladder behind the first.
KS_RULE int level_columns(const Launch& launch) {
#if defined(KS_SLOTS) && KS_SLOTS < 3
  return 0;
#else
  return (launch.orders_per_side - 1) * kLevelFeatures;
#endif
}
KS_RULE int extra_columns(const Launch& launch) {
  int columns = level_columns(launch);
  if ((KS_EXTRAS) == 0) return columns;
#pragma unroll
  for (int i = 0; i < kExtras; ++i) columns += has_extra(launch, i);
  return columns;
}

// A market's levels, and of its parameters those that all markets have alike: constants where the kernel was compiled for them
// (kineticsim_env/engines/cuda.py), KS_PARAMETER_CONSTANTS as assignments; the others are read from the market's row.
#ifndef KS_LEVELS
#define KS_LEVELS launch.levels
#define KS_PARAMETER_CONSTANTS
constexpr int kMostLevels = 1024;  // of a market on a lane; others have any number
constexpr int kUnroll = 1;
#else
constexpr int kMostLevels = KS_LEVELS;
constexpr int kUnroll = 8;  // the rounds of an auction are known: hashes of several overlap
#endif
KS_RULE MarketParams with_constants(const MarketParams& row) {
  MarketParams p = row;
  KS_PARAMETER_CONSTANTS;
  return p;
}

// The task's settings: constants where the kernel was compiled for them (kineticsim_env/engines/cuda.py).
#ifdef KS_TASK_CONSTANTS
using Task = const TaskParams;
KS_RULE TaskParams task_of(const Launch& launch) {
  TaskParams task = launch.task;
  KS_TASK_CONSTANTS;
  return task;
}
#else
using Task = const TaskParams&;
KS_RULE const TaskParams& task_of(const Launch& launch) { return launch.task; }
#endif
KS_RULE int32_t role_of(const Launch& launch, int slot) {
#ifdef KS_ROLE
  return KS_ROLE;
#else
  return launch.task.role[slot];
#endif
}

}  // namespace ks
