// plan.h: which variant of the CUDA kernel an engine needs, and the shape of its launches. The sizes of shared memory that
// kernels use are here, too, so that they are stated once. Called on the host (plan.cpp), or, where there is no C++ compiler,
// by a kernel of one thread (plan.cu).
#pragma once

#include "model/events.h"

namespace ks {

constexpr int kBlocks = 5;                 // of an environment on a multiprocessor, which bounds a thread's registers
constexpr int kReserved = 1024;            // bytes of shared memory that CUDA takes for each block
constexpr int kMostLaneRoom = 64;          // ticks: with more, a lane's loops over them are too slow
constexpr int kLaneWarps = 8;              // with a market per lane, at least so many should fit on a multiprocessor,
constexpr int kLaneMarkets = 128;          // and so many markets for each multiprocessor: with fewer, lanes are slower,
constexpr int kRoundedLaneMarkets = 76;    // or so many with rounding by coin, which costs a warp more than lanes
constexpr int kLeversOfLanes = 1;          // rounding alone: the others would move orders out of a lane's bins
// How often added agents of a market on a lane may read or write a number of their market's own in an auction: memory, and
// parameters that differ from market to market. The 32 markets of a warp have them in 32 rows, so that each time 32 lines of
// memory take a turn of the cache, where a warp that shares a market has neighbours in one line. What all markets share is one
// line for both, and classes without memory need no more. So many take about half as long as all else that a step does.
constexpr int kMostOwnNumbers = 128;
constexpr int kEventWarps = 16;            // under continuous trading: a multiprocessor has registers for so many
constexpr int kMarketsPerSpareWarp = 64;   // of those at a block's deadline (lane/deadlines.cuh), one in a hundred or fewer,
constexpr int kSpareWarps = 8;             // and so many of a multiprocessor at most
constexpr int kLevelsOfFullBlocks = 1024;  // with more, a block is one warp, so that as many books as fit are resident

// Sizes, in ints of shared memory -------------------------------------------------------------------------------------

KS_RULE int book_ints(int levels) { return 2 * max_of(levels, kWarpLanes); }
KS_RULE int tile_ints(int tile, int slots, bool levers) {
  return tile * (kTileMarketInts + (levers ? kTileLeverInts : 0) + kTileSlotInts * slots);
}
// Per warp. A step has two books: one is copied while the other is played. Behind them is, on the clock, what waits.
KS_RULE int run_ints(int levels, bool clock) { return (clock ? 2 : 1) * book_ints(levels) + kBinInts; }
KS_RULE int environment_ints(int levels, int tile, int slots, bool levers, bool clock) {
  return (clock ? 3 : 2) * book_ints(levels) + kBinInts + tile_ints(tile, slots, levers);
}
// With a market per lane: per lane a row and the bins of `room` ticks, in 16 bits, or in 32 for half the lanes. Observations
// later take the bins' memory.
KS_RULE int lane_row_ints(int levels, bool wide) { return (levels + kRowPadding) * (wide ? 4 : 2) / 4; }
KS_RULE int lane_bin_ints(int room, bool wide) { return (room + 1) * (wide ? 2 : 1); }
KS_RULE int lane_ints(int levels, int room, int extras, bool wide) {
  const int lanes = wide ? kWarpLanes / 2 : kWarpLanes;
  return lanes * (lane_row_ints(levels, wide) + max_of(lane_bin_ints(room, wide), kObservation + extras));
}
KS_RULE int lane_ints(int levels, int room, int extras) {
  return max_of(lane_ints(levels, room, extras, false), lane_ints(levels, room, extras, true));
}

// Under continuous trading with a market per lane, in ints per warp: a bit per tick and side, a row of 16 bits per tick, and
// arrivals, which have been drawn and not matched yet. In their place are features when there are none: a third of an observation at
// a time, or all of it in 16 bits for a policy inside the kernel, with a 1 behind it.
constexpr int kFeatureBatch = (kObservation + kQueueFeatures) / 3;
constexpr int kFeatureWords = (kObservation + kQueueFeatures + 2) / 2;
static_assert(kFeatureBatch <= kDrawnAlone, "features are where arrivals were");

KS_RULE int event_ints(int levels, bool rollout) {
  return kWarpLanes * (levels / 2 + 2 * words_of_bits(levels, 32) + (rollout ? max_of(kDrawnAlone, kFeatureWords) : kDrawnAlone));
}

// With several lanes per market, so many of a warp: 32 bits per tick, and what lanes have drawn for the first of them, which reads
// one more ahead. Of an order flow's markets words, and behind them per block of places of a side a sum.
KS_RULE int shared_event_ints(int levels, int markets, bool flow) {
  const int each = flow ? 2 * (kFlowDrawn + levels / kFlowBlock) : 2 * (kDrawnTogether + 1);
  return markets * (levels + 2 * words_of_bits(levels, 32) + each);
}

// Bins of a side: the marketable one, then one per offset, up to a multiple of four.
KS_RULE int bins_per_side(int reach) { return (2 * reach + 5) & ~3; }

// Choices -------------------------------------------------------------------------------------------------------------

// What an engine asks for.
struct PlanRequest {
  int64_t markets;
  int32_t levels;
  int32_t slots;
  int32_t task;                   // 1: for steps of an environment,
  int32_t rollout;                // and 1: with a policy inside
  int32_t network_ints;           // of a policy that all markets share; 0: there is none
  int32_t reach;                  // the furthest offset of an order, in any regime; levers may price it further off
  int32_t agents;                 // the most built-in ones of a market, or on the clock its events in an interval
  int32_t orders;                 // the most quantity that they order in an auction
  int32_t largest_quote;
  int32_t forced_auctions;        // that may follow a decision
  int32_t extras;                 // columns of an observation behind the others
  int32_t levers;                 // 0: none, 1: rounding alone, 2: others
  int32_t flow;                   // 1: under continuous trading, of an order flow
  int32_t events;                 // KS_EVENTS: 0 where each agent comes once, 1 for calls on the clock, 2 for continuous trading
  int32_t added_agents;           // that users have added, likewise of a market
  int32_t own_numbers;            // that these read and write in an auction, see kMostOwnNumbers
  int32_t lanes_per_market;       // under continuous trading; 0: to be chosen
  int32_t lanes;                  // -1: to be chosen; else the room that a market per lane has, 0 for none
  int32_t multiprocessors;
  int32_t shared_of_block;        // bytes, at most
  int32_t shared_of_multiprocessor; // bytes; 0: unknown
};

// What it is given.
struct Plan {
  int64_t blocks;                 // of a launch
  int32_t threads;                // per block
  int32_t shared;                 // bytes per block
  int32_t fits;                   // 0: the device's shared memory is too small for `shared`
  int32_t tile;                   // markets that a warp steps
  int32_t bins;                   // KS_BINS
  int32_t single;                 // KS_SINGLE
  int32_t blocks_to_hold;         // KS_BLOCKS, 0 for the kernel's own choice
  int32_t lanes;                  // KS_LANES
  int32_t deadlines;              // KS_DEADLINES
  int32_t lanes_per_market;       // KS_LANES_PER_MARKET
  int32_t warps;                  // KS_WARPS, 0 for the kernel's own choice
};

struct PlanLaunch {
  PlanRequest request;
  Plan* plan;
};

// The fewest bins that hold both sides, so that there are most copies of each. None if there are too many offsets, or too
// few agents for pricing bins to be faster than pricing orders.
KS_RULE int32_t bins_for(int32_t reach, int32_t agents) {
  const int64_t needed = 2 * (((int64_t)2 * reach + 5) & ~(int64_t)3);
  int32_t bins = 16;
  while (bins < needed && bins < kBinInts) bins *= 2;
  return needed <= bins && agents > bins ? bins : 0;
}

// Ticks around the mid that a market on a lane has bins for: orders lie within reach, the mid may be between two ticks.
KS_RULE int32_t lane_room(int32_t reach) { return reach > kMostLaneRoom || 2 * reach + 2 > kMostLaneRoom ? 0 : 2 * reach + 2; }

// The fastest form of a step of single slots: a warp for each of few markets, with more registers, or a lane for each of
// many.
KS_RULE void choose_form(const PlanRequest& ask, Plan& plan) {
  if (!ask.task || ask.slots != 1) return;
  const int64_t per_round = (int64_t)kMarketsPerBlock * ask.multiprocessors;
  const int64_t resident = (ask.markets + per_round - 1) / per_round;
  if (resident < kBlocks) {
    plan.single = 1;
    plan.blocks_to_hold = max_of((int32_t)resident, 2);
    return;
  }
  const int32_t room = ask.events ? 0 : lane_room(ask.reach);
  const bool fits = room > 0 && ask.shared_of_multiprocessor >= kLaneWarps * (kReserved + 4 * lane_ints(ask.levels, room, ask.extras));
  const bool narrow = ask.orders <= kNarrowOrders && ask.largest_quote <= kNarrowQuote, plain = ask.levers <= kLeversOfLanes;
  const bool shares = ask.own_numbers <= kMostOwnNumbers;
  const bool many = ask.markets >= (int64_t)(ask.levers ? kRoundedLaneMarkets : kLaneMarkets) * ask.multiprocessors;
  if (fits && narrow && plain && shares && many) plan.lanes = room;
}

// Of a step's warp with so many markets.
KS_RULE int ints_of_tile(const PlanRequest& ask, int32_t tile, int32_t slots) {
  const bool levers = ask.levers != 0 || ask.added_agents != 0 || ask.events != 0;
  return environment_ints(ask.levels, tile, slots, levers, ask.events != 0);
}

// Environments per warp: as many as let all warps run at a time, and no more slots than a warp has lanes. Fewer, if shared
// memory then holds all the warps that registers suffice for.
KS_RULE int32_t choose_tile(const PlanRequest& ask, int32_t warps) {
  const int64_t resident = (int64_t)kBlocks * kMarketsPerBlock * ask.multiprocessors;
  const int64_t wanted = (ask.markets + resident - 1) / resident;
  const int32_t most = kWarpLanes / max_of(1, ask.slots), full = wanted < most ? (int32_t)wanted : most;
  if (ask.shared_of_multiprocessor == 0) return full;
  const int32_t room = ask.shared_of_multiprocessor / kBlocks / 4 / warps - kReserved / 4 / warps;
  const int32_t none = ints_of_tile(ask, 0, ask.slots), one = ints_of_tile(ask, 1, ask.slots) - none;
  const int32_t fits = room > none ? (room - none) / one : 0;
  return full > fits && fits >= full / 2 && fits > 0 ? fits : full;
}

KS_RULE int ints_of_events(const PlanRequest& ask, int32_t lanes) {
  const int markets = kWarpLanes / lanes;
  return lanes == 1 ? event_ints(ask.levels, ask.rollout) : shared_event_ints(ask.levels, markets, ask.flow);
}

// Under continuous trading a market has all lanes of a warp, if a multiprocessor's registers suffice for so many warps, or a
// quarter of them for half as many, with more registers. With more markets each has one lane, as what lanes do together for
// several markets of a warp takes longer than what they do for themselves. More lanes where memory does not hold as many books as
// a warp has groups of lanes, or where a lane's packed arrivals do not hold an order's offset. Of an order flow four lanes have one
// of many markets, as they look for orders together.
KS_RULE int32_t lanes_per_market(const PlanRequest& ask) {
  if (ask.lanes_per_market) return ask.lanes_per_market;
  const int64_t warps = (int64_t)kEventWarps * ask.multiprocessors;
  int32_t lanes = ask.markets <= warps ? kWarpLanes : ask.markets <= (ask.flow ? 4 : 2) * warps ? kWarpLanes / 4 : ask.flow ? kWarpLanes / 8 : 1;
  if (ask.reach > kPackedReach) lanes = max_of(lanes, kWarpLanes / 4);
  while (lanes < kWarpLanes && 4 * ints_of_events(ask, lanes) > ask.shared_of_block) lanes *= 2;
  return lanes;
}

// Where markets at a block's deadline are left to whole warps, so many of these have no markets and begin first, as what is forced
// takes longer than all else. Those that find nothing to do are gone at once.
KS_RULE int64_t spare_warps(const PlanRequest& ask) {
  const int64_t most = kSpareWarps * (int64_t)ask.multiprocessors;
  const int64_t wanted = (ask.markets + kMarketsPerSpareWarp - 1) / kMarketsPerSpareWarp;
  return wanted < most ? wanted : most;
}

// A rollout with the network in shared memory, once for all warps of a block: there are as many in one as a multiprocessor gets.
KS_RULE Plan plan_with_network(const PlanRequest& ask, int32_t lanes) {
  const int32_t markets = kWarpLanes / lanes, ints = ints_of_events(ask, lanes);
  const int64_t all = (ask.markets + markets - 1) / markets, each = (all + ask.multiprocessors - 1) / ask.multiprocessors;
  const int32_t warps = each < kEventWarps ? (int32_t)each : kEventWarps;
  const int32_t shared = 4 * (ask.network_ints + warps * ints);
  const bool fits = ask.network_ints > 0 && shared <= ask.shared_of_block;
  return {(all + warps - 1) / warps, kWarpLanes * warps, shared, fits, markets, 0, 0, 1, 0, 0, lanes, warps};
}

// Markets under continuous trading, some to a warp, and blocks of one warp, so that they spread evenly. Memory for the books of
// a warp suffices for one that all of it share.
KS_RULE Plan plan_for_events(const PlanRequest& ask) {
  const int32_t lanes = lanes_per_market(ask), markets = kWarpLanes / lanes;
  const int ints = ints_of_events(ask, lanes);
  const bool deadlines = ask.task && ask.forced_auctions > 0 && markets > 1;
  if (ask.rollout) {
    const Plan plan = plan_with_network(ask, lanes);
    if (plan.fits) return plan;
  }
  const int64_t blocks = (ask.markets + markets - 1) / markets, spare = deadlines ? spare_warps(ask) : 0;
  const int32_t half = kEventWarps / 2;  // of the warps have all the registers that a step can use
  const bool few = ask.task && markets > 1 && blocks <= (int64_t)half * ask.multiprocessors;
  const int32_t held = few ? half / kMarketsPerBlock : 0;
  return {blocks + spare, kWarpLanes, 4 * ints, 4 * ints <= ask.shared_of_block, markets, 0, 0, held, 0, deadlines, lanes, 0};
}

KS_RULE Plan plan_for(const PlanRequest& ask) {
  if (ask.events == 2) return plan_for_events(ask);
  Plan plan = {0, 0, 0, 0, 1, bins_for(ask.reach, ask.agents), 0, 0, 0, 0, 0, 0};
  if (ask.lanes < 0) choose_form(ask, plan);
  else plan.lanes = ask.task && !ask.events && ask.levers <= kLeversOfLanes ? ask.lanes : 0;
  plan.deadlines = plan.lanes > 0 && ask.forced_auctions > 0;
  if (plan.lanes > 0 && !plan.deadlines) plan.bins = 0;
  const int32_t most = ask.levels <= kLevelsOfFullBlocks ? kMarketsPerBlock : 1;
  const int32_t tile = ask.task ? choose_tile(ask, most) : 1;
  const int32_t tiles[3] = {tile, tile, 1}, warps[3] = {most, 1, 1};
  for (int i = 0; i < 3 && !plan.fits; ++i) {
    const int32_t per_warp = plan.lanes > 0 ? kWarpLanes : tiles[i], per_block = plan.lanes > 0 ? 1 : warps[i];
    const int ints = plan.deadlines   ? max_of(lane_ints(ask.levels, plan.lanes, ask.extras), ints_of_tile(ask, 1, 1))
                     : plan.lanes > 0 ? lane_ints(ask.levels, plan.lanes, ask.extras)
                     : ask.task       ? ints_of_tile(ask, per_warp, ask.slots)
                                      : run_ints(ask.levels, ask.events != 0);
    plan.tile = per_warp;
    plan.threads = kWarpLanes * per_block;
    plan.blocks = (ask.markets + (int64_t)per_warp * per_block - 1) / ((int64_t)per_warp * per_block);
    plan.shared = 4 * ints * per_block;
    plan.fits = plan.shared <= ask.shared_of_block;
  }
  if (plan.deadlines) plan.blocks += spare_warps(ask);
  return plan;
}

}  // namespace ks
