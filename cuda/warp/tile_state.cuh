// tile_state.cuh: the tile's state in shared memory: what a warp keeps of each market and of each slot while it works on
// the others (warp/environment.cuh). model/layout.h has the sizes, which the launcher needs too.
#pragma once

#include "model/compiled_in.cuh"

namespace ks {

// kClock: on the clock (warp/clock.cuh).
template <bool kClock>
struct alignas(16) TileMarket {
  // Of a market's parameters, where there are neither levers nor a clock nor added agents, those before the levers.
#ifdef KS_AGENTS
  static constexpr bool kHasLevers = true;
#else
  static constexpr bool kHasLevers = kClock || KS_LEVERS != 0;
#endif
  static constexpr int kParamInts = (sizeof(MarketParams) - (kHasLevers ? 0 : sizeof(Levers))) / 4;

  int32_t prev_mid2, last_tick, origin, fundamental;
  uint64_t key;
  int64_t t;
  int64_t volume, trades;       // of the episode
  int64_t bank_row;             // where the next episode starts
  int32_t error, elapsed, fundamental_before;
  short regime, coin;           // with levers: the coin is of the decision's first auction
  // Of the decision's first auction, see MarketState::start_prepared; on the clock its state.
  union { uint64_t counter; int32_t ret; };
  union { uint64_t ration_word; int32_t beat_price; };
  int32_t mid_history[kHistory + 2];     // newest first; the front one is filled by this decision
  int32_t volume_history[kHistory + 1];
  uint32_t ended;               // one bit per slot
  int32_t arrival2, scenario;
  alignas(16) int32_t param_ints[kParamInts];

  KS_RULE const MarketParams& params() const { return reinterpret_cast<const MarketParams&>(param_ints); }
};

struct alignas(16) TileSlot {
  Quote quote, fresh;           // the standing one, and the action's
  int64_t inventory;
  int64_t cash;                 // of this step
  int64_t liquidation;          // the cash that unwinding would bring; for the liquidation mark
  int64_t cash_before, fees, prev_value;  // of the episode; before this step, until score has added it
  int32_t bought, sold;         // in this step
};

static_assert(sizeof(TileMarket<true>) == 4 * (kTileMarketInts + kTileLeverInts), "layout.h tells the launcher");
static_assert(TileMarket<false>::kHasLevers || sizeof(TileMarket<false>) == 4 * kTileMarketInts, "likewise");
static_assert(sizeof(TileSlot) == 4 * kTileSlotInts, "layout.h tells the launcher");
static_assert(kTileMarketInts % 4 == 0 && kTileSlotInts % 4 == 0, "rows are read by 16 bytes, and warps' memory follows");

}  // namespace ks
