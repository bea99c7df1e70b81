// records.h: where flags of slots' quotes are, and what came of them goes, as quotes arrive under continuous trading: of a run in
// Launch, of an environment beside its quotes. Neither is found from the quotes' pointer, nor by a pointer that may be null: either
// keeps a lane's market in memory.
#pragma once

#include "model/market.h"

namespace ks {

struct LaunchRecords {
  const Launch& launch;
  int64_t row;  // of the market's first slot in a decision

  KS_RULE OrderFlags flags_of(int k) const { return {launch.order_flags ? launch.order_flags[row + k] : 0}; }
  KS_RULE void reject(int k, int32_t side, Reject why) const {
    if (launch.rejects) launch.rejects[row + k] |= why << (8 * side);
  }
};

template <int kRoom>
struct SlotRecords {
  int32_t flags[kRoom], rejects[kRoom];  // as in Launch

  KS_RULE void begin(int k, OrderFlags given) { flags[k] = given.word, rejects[k] = 0; }
  KS_RULE void drop_flags(int k) { flags[k] = 0; }
  KS_RULE OrderFlags flags_of(int k) const { return {flags[k]}; }
  KS_RULE void reject(int k, int32_t side, Reject why) { rejects[k] |= why << (8 * side); }
  KS_RULE int32_t rejects_of(int k) const { return rejects[k]; }
};
template <>
struct SlotRecords<0> {  // where no quote has flags
  KS_RULE void begin(int, OrderFlags) {}
  KS_RULE void drop_flags(int) {}
  KS_RULE OrderFlags flags_of(int) const { return {0}; }
  KS_RULE void reject(int, int32_t, Reject) {}
  KS_RULE int32_t rejects_of(int) const { return 0; }
};

}  // namespace ks
