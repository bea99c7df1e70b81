// clearing.cuh: the call auction on one warp, 32 ticks at a time.
//
// Only the clearing range is looked at, the ticks around the mid, whatever the grid's size. An auction leaves no bid at or
// above an ask, so before the next one no bid rests above the mid and no ask below it. New orders lie within `reach` of the
// mid, except for the marketable ones at the grid's ends. So there are `above` to buy at ticks above the range and `below`
// to sell at ticks below it. If more than either trades inside, then the clearing price is inside, these are filled, and no
// tick outside trades.
#pragma once

#include "model/market.h"
#include "warp/warp.cuh"

namespace ks {

// The clearing range, and what clearing it has found.
struct Cleared {
  int32_t base, chunks;        // from tick base on, 32 ticks per chunk
  int32_t above, below;        // to buy at higher ticks, to sell at lower ones
  int32_t volume;              // that trades
  int32_t lowest, highest;     // clearing prices to choose from
  int32_t best_bid, best_ask;  // of what is left; below base, and above top(), if there is none in the range

  __device__ __forceinline__ int32_t top() const { return base + kWarpLanes * chunks - 1; }
  __device__ __forceinline__ bool holds(int32_t tick) const { return tick >= base && tick <= top(); }
  // Whether nothing trades outside the range.
  __device__ __forceinline__ bool complete() const { return max_of(volume, 1) > max_of(above, below); }
};

// Chunks of the clearing range [mid - 16 * chunks, mid + 16 * chunks), which holds `reach` and the rounding.
__device__ __forceinline__ int32_t range_chunks(int32_t reach, int32_t grid) {
  return min_of((reach + 17) / 16, grid / kWarpLanes);
}
__device__ __forceinline__ int32_t range_base(int32_t mid2, int32_t chunks, int32_t grid) {
  return clamp_to((mid2 >> 1) - kWarpLanes / 2 * chunks, 0, grid - kWarpLanes * chunks);
}

struct Clearing {
  int* const buy;
  int* const sell;
  const int lane;

  // Of this lane's tick in the chunk that was looked at last.
  int32_t here_buy, here_sell, demand, supply;

  __device__ __forceinline__ Clearing(int* buy, int* sell, int lane) : buy(buy), sell(sell), lane(lane) {}

  __device__ __forceinline__ void look(int32_t first_tick, uint32_t demand_above, uint32_t supply_below) {
    here_buy = buy[first_tick + lane];
    here_sell = sell[first_tick + lane];
    demand = (int32_t)(suffix_sum(here_buy) + demand_above);
    supply = (int32_t)(prefix_sum(here_sell) + supply_below);
  }

  // Count ticks of the chunk that was looked at: clearing prices and best prices follow from the counts.
  template <bool kHighest>
  __device__ __forceinline__ void count(Cleared& cleared) const {
    cleared.lowest += count_lanes(supply < cleared.volume);
    if (kHighest) cleared.highest += count_lanes(demand >= cleared.volume);
    cleared.best_bid += count_lanes(demand > cleared.volume);
    cleared.best_ask += count_lanes(supply <= cleared.volume);
  }

  __device__ __forceinline__ void leave_residual(int32_t first_tick, int32_t volume) {
    buy[first_tick + lane] = residual_at_tick(volume, demand, here_buy);
    sell[first_tick + lane] = residual_at_tick(volume, supply, here_sell);
  }

  // Clear one chunk, but leave the residual to the caller, who may have to clear the whole grid.
  template <bool kHighest>
  __device__ __forceinline__ void clear_chunk(Cleared& cleared) {
    look(cleared.base, cleared.above, cleared.below);
    cleared.volume = warp_max(executable_volume(demand, supply));
    start_counts(cleared);
    count<kHighest>(cleared);
  }

  // The same with a bid and an ask that are not on the grid, and without the best prices, which these would change.
  template <bool kHighest>
  __device__ __forceinline__ void clear_chunk_with(Cleared& cleared, int bid, int32_t bid_qty, int ask, int32_t ask_qty) {
    here_buy = buy[cleared.base + lane] + (lane == bid - cleared.base ? bid_qty : 0);
    here_sell = sell[cleared.base + lane] + (lane == ask - cleared.base ? ask_qty : 0);
    demand = (int32_t)(suffix_sum(here_buy) + cleared.above);
    supply = (int32_t)(prefix_sum(here_sell) + cleared.below);
    cleared.volume = warp_max(executable_volume(demand, supply));
    start_counts(cleared);
    cleared.lowest += count_lanes(supply < cleared.volume);
    if (kHighest) cleared.highest += count_lanes(demand >= cleared.volume);
  }

  // Clear any number of chunks, looking at each twice: for the volume, then for the residual.
  template <bool kHighest>
  __device__ __forceinline__ bool clear_chunks(Cleared& cleared) {
    int32_t best = 0;
    for_each_chunk(cleared, [&](int32_t) { best = max_of(best, executable_volume(demand, supply)); });
    cleared.volume = warp_max(best);
    if (!cleared.complete()) return false;
    start_counts(cleared);
    for_each_chunk(cleared, [&](int32_t tick) {
      count<kHighest>(cleared);
      leave_residual(tick, cleared.volume);
    });
    return true;
  }

  // A side's quantity in the clearing range.
  __device__ __forceinline__ uint32_t quantity(const int* side, const Cleared& cleared) const {
    uint32_t sum = 0;
#pragma unroll 1
    for (int tick = cleared.base + lane; tick <= cleared.top(); tick += kWarpLanes) sum += side[tick];
    return warp_sum(sum);
  }

 private:
  __device__ __forceinline__ void start_counts(Cleared& cleared) const {
    cleared.lowest = cleared.best_ask = cleared.base;
    cleared.highest = cleared.best_bid = cleared.base - 1;
  }

  template <typename Do>
  __device__ __forceinline__ void for_each_chunk(const Cleared& cleared, Do act) {
    uint32_t demand_from_here = cleared.above + quantity(buy, cleared), supply_below = cleared.below;
#pragma unroll 1
    for (int tick = cleared.base; tick <= cleared.top(); tick += kWarpLanes) {
      look(tick, 0, supply_below);
      demand_from_here -= __shfl_sync(kAllLanes, demand, 0);
      demand += demand_from_here;
      act(tick);
      supply_below = __shfl_sync(kAllLanes, supply, kWarpLanes - 1);
    }
  }
};

}  // namespace ks
