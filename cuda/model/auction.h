// auction.h: one auction in the order of docs/model.md, for all that play one: a core (cpu/market.h), a warp
// (warp/market.cuh) or a lane of a warp (lane/market.cuh). The order of things is here, the rules are market.h's; books,
// orders and loops are the market's own.
//
// A Market is a MarketNumbers with p, levels, volume and trades, and with
//   begin_auction()                 what it needs before all else
//   kLevers, change_regime()        whether it has levers (model/levers.h), and the regime of this auction
//   walks(), walk_word()            whether its fundamental price may move now, and the word that says how
//   cancel()                        apply cancellation to the book
//   best_prices()                   of the book and of standing quotes
//   move_grid(shift)                called by all lanes of a warp, by those too whose market does not play
//   look(seen)                      note what agents see that users have added, if there are any
//   replace_quotes(fresh)
//   submit_orders(seen, value)      collect all orders and quotes; returns its own Auction, with a `cleared`
//   clear(seen, auction)            find volume, lowest and highest of `cleared`; false if a side would overflow
//   fill_quotes(auction)            the quotes' fills, and what is left of the book
//   cancel_residue(auction)         of marketable orders that rest at the grid's ends
//   end_auction()                   find the best prices that are left, and add one to t
#pragma once

#include "model/levers.h"

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define KS_PLAY __device__ __forceinline__
#else
#define KS_PLAY inline __attribute__((always_inline))
#endif

// A function that is called on a core, so that what calls it stays as fast as without it. On a GPU it is inlined.
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define KS_NOINLINE_ON_CPU __device__ __forceinline__
#else
#define KS_NOINLINE_ON_CPU __attribute__((noinline))
#endif

namespace ks {

struct BestPrices {
  int32_t bid, ask;  // -1 and kNoTick where there is none
};

// 0. Options: walk and cancellation. 1. The mid that all agents see.
template <bool kOptions, typename Market>
KS_PLAY Seen open_auction(Market& market) {
  market.begin_auction();
  if (Market::kLevers) market.change_regime();
  const MarketParams& p = market.p;
  if (kOptions) {
    if ((p.walk_threshold | p.jump_threshold) != 0 && market.walks())
      market.fundamental = walk_fundamental(p, market.walk_word(), market.fundamental);
    if (p.cancel_threshold != 0) market.cancel();
  }
  const BestPrices best = market.best_prices();
  return see_mid<kOptions>(p, market.levels, best.bid, best.ask, market);
}

// 2. Orders. 3. Clearing. 4. Fills, by price priority and then pro rata. Returns false if the market has to stop.
template <bool kOptions, typename Market, typename Quotes>
KS_PLAY bool trade(Market& market, const Seen& seen, bool has_fresh, const Quotes& fresh) {
  const MarketParams& p = market.p;
  market.look(seen);
  if (has_fresh) market.replace_quotes(fresh);
  const int32_t value = p.num_fundamental > 0 ? fundamental_direction(market.fundamental, seen.mid2, market.origin) : 0;
  auto auction = market.submit_orders(seen, value);
  if (!market.clear(seen, auction)) {
    market.error |= kErrorOverflow;
    return false;
  }
  const auto& cleared = auction.cleared;
  if (cleared.volume > 0) {
    market.last_tick = Market::kLevers ? clearing_price_under_levers(p, market.levels, market.origin, seen.mid2, market.t,
                                                                     cleared.lowest, cleared.highest)
                       : kOptions      ? clearing_price(p, seen.mid2, market.t, cleared.lowest, cleared.highest)
                                       : cleared.lowest;
  }
  market.trades += cleared.volume > 0;
  market.volume += cleared.volume;
  market.fill_quotes(auction);
  if (kOptions && p.residue == kResidueCancel) market.cancel_residue(auction);
  market.end_auction();
  return true;
}

// One auction of a market that `plays`, with new or standing quotes. A market that has to stop plays no more.
template <bool kOptions, typename Market, typename Quotes>
KS_PLAY void play_auction(Market& market, bool& plays, bool has_fresh, const Quotes& fresh) {
  Seen seen = {0, 0, 0};
  if (plays) seen = open_auction<kOptions>(market);
  if (kOptions) {
    plays = plays && !market.stopped();
    market.move_grid(seen.shift);
  }
  if (plays) plays = trade<kOptions>(market, seen, has_fresh, fresh);
}

// Further series -------------------------------------------------------------------------------------------------------

// Series of a run beyond those of a market's own numbers: best prices, depths and signed volume. They cost time, so engines have
// them compiled in, or look at them, only where a launch asks for one: `records` of struct Launch is 2.

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
