// added_agents.cuh: agents of classes that users have written, in a lane's market: their orders, one agent after another. Their
// text (`Trader<n>`, kineticsim_env/agents/programs.py) is included before, in kernels for markets that have some (KS_AGENTS).
// model/plan.h says which of those have a market per lane.
//
// Built-in orders lie within the bins around the mid, or are marketable; these may lie at any tick. Bins for the whole grid
// would be a second book in shared memory, and leave room for half as many warps. So an order beyond the bins joins what rests
// there, if that is of its side and it does not cross the mid. The few others are in local memory. Mostly those are all filled;
// if not, the lane clears its whole grid.
#pragma once

#include "lane/book.cuh"
#include "model/compiled_in.cuh"
#include "model/play_agent.h"

namespace ks {

constexpr bool kAgentsOnLanes = kAddedClasses > 0;

// Local memory of a lane, for orders of an auction that are neither in bins nor in the row.
using OutlyingRow = Interest[kAgentsOnLanes ? kMostLevels : 1];

// What is there.
struct OutlyingOrders {
  Interest* const at;  // [levels], of no meaning where `some` is false
  bool some;
  bool behind;         // whether some do not cross the mid
  int32_t buy, sell;   // units of those that do: buys above the bins, and sells below

  KS_ON_LANE explicit OutlyingOrders(Interest* at) : at(at), some(false), behind(false), buy(0), sell(0) {}
  KS_ON_LANE bool any() const { return kAgentsOnLanes && some; }
  KS_ON_LANE bool any_behind() const { return kAgentsOnLanes && behind; }

  KS_ON_LANE void clear() { some = behind = false, buy = sell = 0; }
  KS_ON_LANE void add(int levels, int tick, bool buys, int32_t qty, bool crosses) {
    if (!some) {
#pragma unroll 1
      for (int i = 0; i < levels; ++i) at[i] = {0, 0};
    }
    some = true;
    behind |= !crosses;
    (buys ? at[tick].buy : at[tick].sell) += qty;
    if (crosses) (buys ? buy : sell) += qty;
  }
  KS_ON_LANE Interest here(int tick) const { return any() ? at[tick] : Interest{0, 0}; }
};

// The most units that the added agents of a market order in an auction.
KS_ON_LANE int64_t added_units(const Launch& launch) {
  return kAgentsOnLanes ? (int64_t)launch.added_agents * launch.largest_added_order : 0;
}

constexpr int kAtOnce = 2;  // decisions

// The orders of so many agents of a class, from `agent` on. All decide before the first order is added, so that hashes and reads
// of several overlap.
template <int kNumber, int kCount, typename Market>
KS_ON_LANE void play_some(Market& market, const AgentView& view, const AgentNumbers& numbers, int32_t first, int32_t agent,
                          uint64_t counter) {
  AgentOrder orders[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    orders[i] = Trader<kNumber>::decide(view, {mix64(counter + (uint64_t)i * kGolden)}, first, numbers, agent + i);
  bool outlies[kCount], some = false;
#pragma unroll
  for (int i = 0; i < kCount; ++i) some |= outlies[i] = !market.add_near(orders[i]);
  if (!some) return;
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    if (outlies[i]) market.add_outlying(orders[i]);
}

// Every agent's order, class by class; inactive ones are the last of theirs.
template <int kNumber = 0, typename Market>
KS_ON_LANE void play_added(Market& market, const AgentView& view) {
  if constexpr (kNumber < kAddedClasses) {
    const Launch& launch = market.tile.launch;
    const AgentNumbers numbers = agent_numbers(launch, market.m(), kNumber);
    const int32_t first = first_agent(launch, market.p, kNumber), active = launch.agents[kNumber].active;
    uint64_t counter = word_counter(market.key, market.t, (uint64_t)first);
    int32_t agent = 0;
#pragma unroll 1
    for (; agent + kAtOnce <= active; agent += kAtOnce, counter += kAtOnce * kGolden)
      play_some<kNumber, kAtOnce>(market, view, numbers, first, agent, counter);
#pragma unroll 1
    for (; agent < active; ++agent, counter += kGolden)
      play_some<kNumber, 1>(market, view, numbers, first, agent, counter);
    play_added<kNumber + 1>(market, view);
  }
}

}  // namespace ks
