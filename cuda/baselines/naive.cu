// naive.cu: the naive CUDA baseline. One thread per market, the book and the step's orders in global memory, one launch
// per step, everything in serial loops. As fast as that allows: neighbouring threads touch neighbouring words ([L, M]),
// loops are unrolled so that many loads are under way, orders are added without waiting for what was there before, the
// cumulative curves stay in registers, and each class of agents has a loop of its own, so that no warp diverges.
//   KS_LEVELS  ticks of the grid
#include "layout.h"
#include "../launch_host.cuh"

namespace ks {

struct NaiveMarket {
  const BaselineLaunch& launch;
  const int32_t stride;    // words from one tick to the next
  const uint64_t key;
  int32_t* const buy;      // this market's BUY, then its SELL
  int32_t mid2, ret;
  int32_t bought;          // total quantity of BUY

  // Orders of the agents first..end-1, all of one type.
  __device__ __forceinline__ void submit(int32_t type, int32_t first, int32_t end) {
    uint64_t counter = word_counter(key, launch.first_step, first);
#pragma unroll 4
    for (int32_t a = first; a < end; ++a) {
      const Order order = decide(launch, KS_LEVELS, type, a, launch.first_step, mix64(counter), mid2, ret);
      counter += kGolden;
      bought += order.buys ? order.qty : 0;
      atomicAdd(buy + (int64_t)(order.tick + (order.buys ? 0 : KS_LEVELS)) * stride, order.qty);
    }
  }
};

}  // namespace ks

extern "C" __global__ void __launch_bounds__(128) ks_naive_step(const __grid_constant__ ks::BaselineLaunch launch) {
  using namespace ks;
  const int64_t m = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (m >= launch.markets) return;
  const int32_t stride = (int32_t)launch.markets;
  int32_t* __restrict__ bid = launch.bid + m;
  int32_t* __restrict__ ask = launch.ask + m;
  int32_t* __restrict__ buy = launch.orders + m;
  int32_t* __restrict__ sell = buy + (int64_t)KS_LEVELS * stride;

  // The best prices; BUY and SELL start as the resting book.
  int32_t best_bid = -1, best_ask = kNoTick, bought = 0;
#pragma unroll 16
  for (int32_t p = 0; p < KS_LEVELS; ++p) {
    const int64_t at = (int64_t)p * stride;
    const int32_t resting_bid = bid[at], resting_ask = ask[at];
    buy[at] = resting_bid;
    sell[at] = resting_ask;
    bought += resting_bid;
    if (resting_bid > 0) best_bid = p;
    best_ask = min_of(best_ask, resting_ask > 0 ? p : kNoTick);
  }
  const int32_t mid2 = best_bid >= 0 && best_ask != kNoTick ? best_bid + best_ask : 2 * launch.last_tick[m];
  const int32_t ret = sign_of((int64_t)mid2 - launch.prev_mid2[m]);
  launch.prev_mid2[m] = mid2;

  NaiveMarket market{launch, stride, episode_key(launch.seed + m, 0), buy, mid2, ret, bought};
  market.submit(kNoiseAgent, 0, launch.first_momentum);
  market.submit(kMomentumAgent, launch.first_momentum, launch.first_maker);
  market.submit(kMakerAgent, launch.first_maker, launch.agents);

  // The lowest tick of the largest executable volume.
  int32_t demand = market.bought, supply = 0, traded = 0, price = 0;
#pragma unroll 16
  for (int32_t p = 0; p < KS_LEVELS; ++p) {
    const int64_t at = (int64_t)p * stride;
    supply += sell[at];
    const int32_t executable = min_of(demand, supply);
    if (executable > traded) {
      traded = executable;
      price = p;
    }
    demand -= buy[at];
  }

  // Fills by price priority; what is left is the book.
  int32_t better_buys = market.bought, better_sells = 0;
#pragma unroll 16
  for (int32_t p = 0; p < KS_LEVELS; ++p) {
    const int64_t at = (int64_t)p * stride;
    const int32_t here_buy = buy[at], here_sell = sell[at];
    better_buys -= here_buy;
    bid[at] = here_buy - clamp_to(traded - better_buys, 0, here_buy);
    ask[at] = here_sell - clamp_to(traded - better_sells, 0, here_sell);
    better_sells += here_sell;
  }
  if (traded > 0) {
    launch.last_tick[m] = price;
    launch.volume[m] += traded;
    launch.trades[m] += 1;
  }
}

KS_EXPORT_KERNEL(ks_naive_step)
