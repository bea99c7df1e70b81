// task_values.h: settings of a task that differ from market to market, from slot to slot or from episode to episode: rows of
// Launch::task_values. Whoever asks a rule of tasks.h about a slot hands it the task as that slot has it, a SlotTask; where all
// have the same, that is the task itself.
#pragma once

#include "model/market.h"

namespace ks {

// Whether a step can have such rows: a kernel only if it was compiled for them.
#ifndef KS_VALUES
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define KS_VALUES 0
#else
#define KS_VALUES 1
#endif
#endif

#if KS_VALUES
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define KS_SELDOM KS_RULE
#else
#define KS_SELDOM __attribute__((noinline, cold)) inline  // the C++ engine has one code for all environments
#endif

KS_RULE bool has_values(const Launch& launch) {
#ifdef __CUDA_ARCH__
  return true;  // such a kernel always has
#else
  return launch.task_values != nullptr;
#endif
}

class SlotTask {
 public:
  // `row` is the slot's place among all slots. What is read of the copy is loaded, and no more.
  KS_RULE SlotTask(const Launch& launch, const TaskParams& all, int64_t row) : all(all), differs(has_values(launch)) {
    if (differs) fill(launch, row);
  }
  SlotTask(const SlotTask&) = delete;
  // Chosen here, not kept as a pointer, which would hold the copy in a GPU's memory.
  KS_RULE operator const TaskParams&() const { return differs ? copy : all; }
  KS_RULE const TaskParams* operator->() const { return differs ? &copy : &all; }

 private:
  KS_SELDOM void fill(const Launch& launch, int64_t row) {
    const double* const value = launch.task_values + row * kTaskValues;
    copy = all;
    copy.horizon = (int32_t)value[kTaskValueHorizon] * all.longest;
    copy.max_qty = (int32_t)value[kTaskValueMaxQty];
    copy.max_target = (int32_t)value[kTaskValueMaxTarget];
    copy.block_qty = (int32_t)value[kTaskValueBlockQty];
    copy.initial_inventory = (int32_t)value[kTaskValueInitialInventory];
    copy.forced_auctions = (int32_t)value[kTaskValueForcedAuctions];
    copy.inventory_penalty = value[kTaskValueInventoryPenalty];
    copy.idle_penalty = value[kTaskValueIdlePenalty];
    copy.risk_aversion = value[kTaskValueRiskAversion];
    copy.leftover_penalty = value[kTaskValueLeftoverPenalty];
  }

  const TaskParams& all;
  const bool differs;
  TaskParams copy;
};

// Give market m the settings that the scenario of its new episode draws; NaN leaves one as it is.
KS_RULE void begin_values(const Launch& launch, int64_t m, int32_t scenario) {
  if (!has_values(launch) || !launch.scenario_values) return;
  const int64_t count = (int64_t)launch.slots * kTaskValues;
  const double* const from = launch.scenario_values + scenario * count;
  for (int64_t i = 0; i < count; ++i)
    if (from[i] == from[i]) launch.task_values[m * count + i] = from[i];
}

KS_RULE int64_t opening_value_of(const Launch& launch, int64_t row) {
  return has_values(launch) ? launch.opening_value[row] : 0;
}
#else
KS_RULE bool has_values(const Launch&) { return false; }

struct SlotTask {
  const TaskParams& task;
  KS_RULE SlotTask(const Launch&, const TaskParams& all, int64_t) : task(all) {}
  KS_RULE operator const TaskParams&() const { return task; }
  KS_RULE const TaskParams* operator->() const { return &task; }
};

KS_RULE void begin_values(const Launch&, int64_t, int32_t) {}
KS_RULE int64_t opening_value_of(const Launch&, int64_t) { return 0; }
#endif

// The settings that are a market's: all its slots have the same.
KS_RULE int64_t market_row(const Launch& launch, int64_t m) { return m * launch.slots; }

}  // namespace ks
