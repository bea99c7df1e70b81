// persistent_kernel.cu: the kernel that is launched. Compiled just in time by NVRTC or nvcc, once for each variant
// (model/plan.h and kineticsim_env/engines/cuda.py choose; kineticsim_env/runtime/kernels.py compiles):
//   KS_BINS     order bins: 16, 32, 64, 128, or 0 where orders have too many offsets for bins
//   KS_OPTIONS  any option of the model on   KS_SLOTS    slots: 0, 1, 2 for more, 3 with ladders   KS_TASK  environment step
//   KS_PARAMETER_CONSTANTS, KS_LEVELS (optional)  parameters and levels that markets have alike, for a kernel of their own
//   KS_TASK_CONSTANTS, KS_ROLE (optional)   settings of the task, likewise
//   KS_SINGLE, KS_BLOCKS (optional)         one environment of one slot per warp; blocks that a multiprocessor must hold
//   KS_LANES (optional)                      one environment of one slot per lane; ticks around the mid that it has room for
//   KS_DEADLINES (optional)                  with a market per lane: those at a block's deadline are stepped by whole warps
//   KS_LEVERS (optional)                     1: rounding is the only lever of any market, 2: others or regimes; with KS_OPTIONS
//   KS_EVENTS (optional)                     markets on the clock: 1 call auctions, 2 continuous trading
//   KS_LANES_PER_MARKET (optional)           with KS_EVENTS 2: lanes that share a market, 1 to 32
//   KS_LADDERS, KS_LEVELS_OF_LADDERS (with KS_SLOTS 3)  slots, and levels of each
//   KS_UNDER_WAY (optional)                  1: with KS_EVENTS 2: what slots submit may arrive in a later decision
//   KS_SERIES (optional)                     1: runs that record best prices, depths or signed volume
//   KS_INFO (optional)                       1: steps that write what is known after them
//   KS_KEEP (optional)                       1: environments whose actions may keep standing quotes
//   KS_RECORDS (optional)                    1: steps that are given order records in the place of actions
//   KS_DECIDE (optional)                     1: environments in which events end decisions
//   KS_UNWIND (optional)                     1: environments with slots that unwind at the horizon
//   KS_VALUES (optional)                     1: steps in which settings of the task differ
//   KS_SCENARIOS (optional)                  1: environments whose episodes have scenarios
//   KS_EXTRAS (optional)                     columns behind the others of an observation: of each of enum Extra, a bit
//   KS_POLICY (optional)                     rollouts, with 1: a policy inside (policy/network.cuh has what is said of it), or 2: with
//                                            KS_PROGRAMS (policy/record.cuh)
//   KS_WARPS (optional)                      warps of a block, which share a copy of the policy's network
//   KS_AGENTS (optional)                     classes of agents that users have added; their text is "added_agents.h"
//   KS_PROGRAMS (optional)                   policies that users have written for slots; their text is in "added_agents.h", too
//   KS_FORCE_SHUFFLE (optional)              the path of devices before sm_80
// By hand: nvcc -arch=sm_90 --cubin -fmad=false -std=c++17 -DKS_BINS=16 -DKS_OPTIONS=0 -DKS_SLOTS=0 -DKS_TASK=0
//   persistent_kernel.cu
#ifndef KS_LANES
#define KS_LANES 0
#endif
#ifndef KS_EVENTS
#define KS_EVENTS 0
#endif
#if defined(KS_AGENTS) || defined(KS_PROGRAMS)
#include "model/agents.h"
#ifdef KS_PROGRAMS
#include "model/programs.h"
#endif
#include "added_agents.h"
#endif
#if KS_EVENTS == 2 && defined(KS_POLICY)
#include "events/rollout.cuh"
#elif KS_EVENTS == 2
#include "events/kernel.cuh"
#elif KS_TASK && KS_LANES
#include "lane/environment.cuh"
#elif KS_TASK
#include "warp/environment.cuh"
#else
#include "warp/clock.cuh"
#endif
#ifdef KS_POLICY
#include "policy/rollout.cuh"
#endif
#include "launch_host.cuh"
#include "model/launcher.h"

// Blocks that a multiprocessor must hold, which bounds a thread's registers: 80, or 96 for an environment, and where there are
// slots and parameters are read at run time. With fewer, values go to local memory and hashes no longer overlap; more only
// helps few markets.
#ifndef KS_BLOCKS
#if KS_EVENTS == 2
#define KS_BLOCKS (16 / ks::kMarketsPerBlock)
#elif KS_LANES
#define KS_BLOCKS 4
#elif KS_EVENTS && !KS_SLOTS
#define KS_BLOCKS (ks::kUnroll == 1 ? 6 : 8)
#else
#define KS_BLOCKS (KS_TASK || (KS_SLOTS && ks::kUnroll == 1) ? ks::kBlocks : 6)
#endif
#endif

// A block is one to four warps. A warp has one market, or steps a tile of environments; in a block of one warp each lane
// may have an environment of its own (model/plan.h chooses).
#ifndef KS_WARPS
#define KS_WARPS ks::kMarketsPerBlock
#endif
extern "C" __global__ void __launch_bounds__(32 * KS_WARPS, KS_BLOCKS)
    ks_market_kernel(const __grid_constant__ ks::Launch launch) {
  using namespace ks;
  extern __shared__ __align__(16) int shared[];
  const int warp = threadIdx.x / kWarpLanes;
#if KS_DEADLINES
  const int64_t group = gridDim.x - 1 - blockIdx.x;  // warps without a market are the last, and are to begin first
#else
  const int64_t group = (int64_t)blockIdx.x * (blockDim.x / kWarpLanes) + warp;
#endif
#if KS_EVENTS == 2 && defined(KS_POLICY)
  roll_out_warp<KS_SLOTS>(launch, group, shared);
#elif KS_EVENTS == 2
  play_warp<KS_SLOTS>(launch, group, gridDim.x, shared);
#elif KS_TASK && KS_LANES && defined(KS_POLICY)
  const WarpMarkets markets = WarpMarkets::of(launch, group * kLaneCount, kLaneCount, 1);
  if (markets.count == 0) return;
  roll_out(launch, markets, take_network(launch, markets.first, shared), 0, [&] { step_environments<KS_OPTIONS != 0>(launch, markets.first, gridDim.x, shared); });
#elif KS_TASK && KS_LANES
  step_environments<KS_OPTIONS != 0>(launch, group * kLaneCount, gridDim.x, shared);
#elif KS_TASK
  using Tile = EnvironmentTile<KS_EVENTS != 0, KS_BINS, KS_OPTIONS != 0, KS_SLOTS>;
  if (group * launch.tile >= launch.markets) return;
#ifdef KS_POLICY
  const WarpMarkets markets = WarpMarkets::of(launch, group * launch.tile, launch.tile, 1);
  roll_out(launch, markets, take_network(launch, markets.first, shared), 0, [&] {
    Tile tile(launch, markets.first, shared + warp * Tile::shared_ints(launch));
    if (!tile.rests()) step_or_reset(tile);
  });
#else
  Tile tile(launch, group * launch.tile, shared + warp * Tile::shared_ints(launch));
  if (!tile.rests()) step_or_reset(tile);
#endif
#else
  using Market = CallMarketOf<KS_EVENTS != 0, KS_BINS, KS_OPTIONS != 0, KS_SLOTS>::type;
  if (group >= launch.markets) return;
  int* const book = shared + warp * Market::shared_ints(launch);
  Market market(launch, group, launch.params[group * launch.params_stride], book, book + Market::shared_ints(launch) - kBinInts);
  run_market(market);
#endif
}

KS_EXPORT_KERNEL(ks_market_kernel)

// The kernel that copies all outputs of a step at once, as a launch takes longer than a small copy. operators.cpp launches it;
// a block's second index says which output.
namespace ks {

template <typename Unit>
__device__ void copy_rows(const Copy& copy) {
  const int64_t units = copy.width / sizeof(Unit), all = units * copy.rows;
  const int64_t step = (int64_t)gridDim.x * blockDim.x;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < all; i += step) {
    const int64_t row = copy.rows == 1 ? 0 : i / units;
    const Unit* from = reinterpret_cast<const Unit*>(copy.from + row * copy.pitch);
    reinterpret_cast<Unit*>(copy.to)[i] = from[i - row * units];
  }
}

}  // namespace ks

extern "C" __global__ void ks_copy_outputs(const __grid_constant__ ks::Copies copies) {
  const ks::Copy& copy = copies.copy[blockIdx.y];
  const int64_t sizes = copy.width | copy.pitch | (int64_t)copy.from | (int64_t)copy.to;
  if (sizes % 16 == 0) ks::copy_rows<uint4>(copy);
  else if (sizes % 4 == 0) ks::copy_rows<uint32_t>(copy);
  else ks::copy_rows<uint8_t>(copy);
}
KS_EXPORT_KERNEL(ks_copy_outputs)
