// paper_block.cu: the paper's own kernel, written after the text of its Algorithm 1 (its published code was not read).
// One block per market, one thread per tick, all steps in one launch. Shared memory holds seven float arrays and one of
// ints, 32 * L bytes; orders are added by float atomics in shared memory; scans are Hillis-Steele; a tournament finds
// the clearing price, the lower tick winning ties; agent types are read from a table in global memory. Quantities are
// whole numbers: while a side's total stays below 2^24, floats are exact and the result is that of the engines.
// Barriers that protect nothing are left out, and a warp sends one atomic for its best price.
//   KS_LEVELS  ticks of the grid, up to 1024
#include "layout.h"
#include "../launch_host.cuh"

extern "C" __global__ void __launch_bounds__(KS_LEVELS)
    ks_paper_block(const __grid_constant__ ks::BaselineLaunch launch) {
  using namespace ks;
  constexpr int kLevels = KS_LEVELS;
  extern __shared__ float shared[];
  float* const s_bid = shared;
  float* const s_ask = s_bid + kLevels;
  float* const s_buy = s_ask + kLevels;
  float* const s_sell = s_buy + kLevels;
  float* const s_demand = s_sell + kLevels;
  float* const s_supply = s_demand + kLevels;
  float* const s_match = s_supply + kLevels;
  int* const s_index = (int*)(s_match + kLevels);
  int* const s_best = s_index + kLevels;  // best bid, best ask

  const int64_t m = blockIdx.x;
  const int tick = threadIdx.x;
  const int first_lane_tick = tick & ~31;
  const unsigned lanes = kLevels - first_lane_tick >= 32 ? 0xffffffffu : (1u << (kLevels - first_lane_tick)) - 1;
  const uint64_t key = episode_key(launch.seed + m, 0);
  const int32_t* const agent_types = launch.agent_types + m * launch.agents;

  s_bid[tick] = (float)launch.bid[m * kLevels + tick];
  s_ask[tick] = (float)launch.ask[m * kLevels + tick];
  if (tick == 0) s_best[0] = -1;
  if (tick == kLevels - 1) s_best[1] = kLevels;
  int32_t prev_mid2 = launch.prev_mid2[m], last_tick = launch.last_tick[m];
  int64_t volume = 0, trades = 0;
  const int64_t end = launch.first_step + launch.steps;

  for (int64_t t = launch.first_step; t < end; ++t) {
    __syncthreads();
    // Best prices; BUY and SELL start as the resting book.
    const unsigned bids = __ballot_sync(lanes, s_bid[tick] > 0), asks = __ballot_sync(lanes, s_ask[tick] > 0);
    if (tick == first_lane_tick) {
      if (bids) atomicMax(s_best, first_lane_tick + 31 - __clz(bids));
      if (asks) atomicMin(s_best + 1, first_lane_tick + __ffs(asks) - 1);
    }
    s_buy[tick] = s_bid[tick];
    s_sell[tick] = s_ask[tick];
    __syncthreads();
    const int32_t best_bid = s_best[0], best_ask = s_best[1];
    const int32_t mid2 = best_bid >= 0 && best_ask < kLevels ? best_bid + best_ask : 2 * last_tick;
    const int32_t ret = sign_of((int64_t)mid2 - prev_mid2);
    prev_mid2 = mid2;

    // Orders.
    for (int32_t a = tick; a < launch.agents; a += kLevels) {
      const Order order = decide(launch, kLevels, agent_types[a], a, t, random_word(key, t, a), mid2, ret);
      atomicAdd((order.buys ? s_buy : s_sell) + order.tick, (float)order.qty);
    }
    __syncthreads();

    // Demand is the suffix sum of BUY, supply the prefix sum of SELL.
    const float here_buy = s_buy[tick], here_sell = s_sell[tick];
    float demand = here_buy, supply = here_sell;
    s_demand[tick] = demand;
    s_supply[tick] = supply;
    __syncthreads();
#pragma unroll
    for (int offset = 1; offset < kLevels; offset *= 2) {
      if (tick + offset < kLevels) demand += s_demand[tick + offset];
      if (tick >= offset) supply += s_supply[tick - offset];
      __syncthreads();
      s_demand[tick] = demand;
      s_supply[tick] = supply;
      __syncthreads();
    }

    // The tournament: half of the ticks drop out in each round.
    s_match[tick] = fminf(demand, supply);
    s_index[tick] = tick;
    __syncthreads();
#pragma unroll
    for (int standing = kLevels; standing > 1; standing = (standing + 1) / 2) {
      const int half = (standing + 1) / 2;
      if (tick + half < standing) {
        const float mine = s_match[tick], other = s_match[tick + half];
        if (other > mine || (other == mine && s_index[tick + half] < s_index[tick])) {
          s_match[tick] = other;
          s_index[tick] = s_index[tick + half];
        }
      }
      __syncthreads();
    }
    const float traded = s_match[0];
    if (traded > 0) {
      last_tick = s_index[0];
      volume += (int64_t)traded;
      trades += 1;
    }

    // Fills by price priority; what is left is the book.
    const float better_buys = tick + 1 < kLevels ? s_demand[tick + 1] : 0.0f;
    const float better_sells = tick > 0 ? s_supply[tick - 1] : 0.0f;
    s_bid[tick] = here_buy - fminf(fmaxf(traded - better_buys, 0.0f), here_buy);
    s_ask[tick] = here_sell - fminf(fmaxf(traded - better_sells, 0.0f), here_sell);
    if (tick == 0) s_best[0] = -1;
    if (tick == kLevels - 1) s_best[1] = kLevels;
  }

  launch.bid[m * kLevels + tick] = (int32_t)s_bid[tick];
  launch.ask[m * kLevels + tick] = (int32_t)s_ask[tick];
  if (tick == 0) {
    launch.prev_mid2[m] = prev_mid2;
    launch.last_tick[m] = last_tick;
    launch.volume[m] += volume;
    launch.trades[m] += trades;
  }
}

KS_EXPORT_KERNEL(ks_paper_block)
