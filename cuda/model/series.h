// series.h: series of a run beyond those of a market's own numbers: best prices, depths and signed volume. They cost time, so
// engines have them compiled in, or look at them, only where a launch asks for one: `records` of struct Launch is 2.
#pragma once

#include "model/market.h"

// A function of a core that is kept apart, so that what calls it stays as fast as without it.
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define KS_APART __device__ __forceinline__
#else
#define KS_APART __attribute__((noinline))
#endif

namespace ks {

// Ticks of the grid, none if low is above high.
struct Ticks {
  int32_t low, high;
};

// Those that a side's depth counts: best_bid -1 or best_ask kNoTick for an empty side.
KS_RULE Ticks bids_in_reach(int32_t reach, int32_t best_bid) {
  return {best_bid - min_of(reach, best_bid < 0 ? -1 : best_bid), best_bid};
}
KS_RULE Ticks asks_in_reach(int32_t reach, int32_t best_ask, int32_t levels) {
  if (best_ask == kNoTick) return {levels, levels - 1};
  return {best_ask, best_ask + min_of(reach, levels - 1 - best_ask)};
}

// Of a market after an auction or interval; best prices are ticks on the grid.
struct FurtherSeries {
  int32_t best_bid, best_ask;
  int64_t bid_depth, ask_depth;
  int64_t signed_volume;
};

KS_RULE void write_further_series(const Launch& launch, int64_t at, int32_t origin, const FurtherSeries& now) {
  if (launch.series_best_bid) launch.series_best_bid[at] = now.best_bid >= 0 ? now.best_bid + origin : -kNoPrice;
  if (launch.series_best_ask) launch.series_best_ask[at] = now.best_ask != kNoTick ? now.best_ask + origin : kNoPrice;
  if (launch.series_bid_depth) launch.series_bid_depth[at] = fit_int32(now.bid_depth);
  if (launch.series_ask_depth) launch.series_ask_depth[at] = fit_int32(now.ask_depth);
  if (launch.series_signed_volume) launch.series_signed_volume[at] = fit_int32(now.signed_volume);
}

}  // namespace ks
