// desk.cuh: what a warp keeps in shared memory of each environment of its tile, and of each of its slots, while
// the others are worked on (warp/environment.cuh). model/layout.h tells the launcher how much that is.
#pragma once

#include "model/market.h"

namespace ks {

struct alignas(16) DeskMarket {
  int32_t prev_mid2, last_tick, origin, fundamental;
  uint64_t key;
  int64_t t;
  int64_t volume, trades;       // of the episode
  int64_t bank_row;             // where the next episode starts
  int32_t error, elapsed, fundamental_before;
  uint64_t counter, ration_word;  // of the first auction; see MarketState::start_prepared
  int32_t mid_history[kHistory + 2];     // one place more, at the front, which this decision fills
  int32_t volume_history[kHistory + 1];
  uint32_t ended;               // a bit a slot
  int32_t arrival2, scenario;
  alignas(16) MarketParams params;
};

struct alignas(16) DeskSlot {
  Quote quote, fresh;           // standing, and what the action turned into
  int64_t inventory;
  int64_t cash;                 // of this step
  int64_t liquidation;          // what unwinding would bring, for that mark
  int64_t cash_before, fees, prev_value;  // of the episode; before this step, until judge has added it
  int32_t bought, sold;         // in this step
};

static_assert(sizeof(DeskMarket) == 4 * kDeskInts && sizeof(DeskSlot) == 4 * kDeskSlotInts, "layout.h tells the launcher");
static_assert(kDeskInts % 4 == 0 && kDeskSlotInts % 4 == 0, "rows are read by 16 bytes, and warps' memory follows");

}  // namespace ks
