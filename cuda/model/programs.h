// programs.h: policies of slots that users write (kineticsim_env/agents/policies.py): what such a policy sees, what it returns, and
// what becomes of that. The text of a policy is included behind this and says what it decides; it plays in the place of a slot's
// action, called by model/environment.h, lane/environment.cuh and warp/environment.cuh. In words: docs/environment.md.
#pragma once

#include "model/agents.h"
#include "model/tasks.h"

namespace ks {

// Levels of a ladder that a policy may return here.
#if defined(KS_SLOTS) && KS_SLOTS < 3 && (defined(__CUDACC__) || defined(__CUDACC_RTC__))
constexpr int kPolicyLevels = 1;
#else
constexpr int kPolicyLevels = kMaxOrdersPerSide;
#endif
constexpr int kPolicyWords = 32;  // of memory, at most
constexpr uint64_t kPolicyWord = kWalkWord + 128;  // of a slot's draws in a decision, and so many slots behind it

KS_RULE int32_t saturated(int64_t x) {
  return x > 2147483647 ? 2147483647 : x < -2147483647 ? -2147483647 : (int32_t)x;
}

// The market as it stands before the decision; best prices are those of the built-in resting book.
struct PolicyMarket {
  int32_t mid2, ret, last_price, best_bid, best_ask, best_bid_qty, best_ask_qty, t, fundamental;
};

struct PolicySlot {
  int32_t inventory, cash, bought, sold, elapsed, left, remaining, side, arrival2, max_qty, max_offset, max_quote_qty,
      inventory_limit;
  int32_t mids[kHistory + 1], volumes[kHistory];
  int32_t levels;  // of its ladder, and what stands of each
  Quote standing[kPolicyLevels];
  int32_t ahead[kPolicyLevels][2];

  KS_RULE bool has(int32_t n) const { return n >= 0 && n < min_of(levels, kPolicyLevels); }
  KS_RULE int32_t bid(int32_t n) const { return has(n) && standing[n].bid_qty > 0 ? standing[n].bid_price : 0; }
  KS_RULE int32_t bid_qty(int32_t n) const { return has(n) ? standing[n].bid_qty : 0; }
  KS_RULE int32_t bid_ahead(int32_t n) const { return has(n) ? ahead[n][0] : 0; }
  KS_RULE int32_t ask(int32_t n) const { return has(n) && standing[n].ask_qty > 0 ? standing[n].ask_price : 0; }
  KS_RULE int32_t ask_qty(int32_t n) const { return has(n) ? standing[n].ask_qty : 0; }
  KS_RULE int32_t ask_ahead(int32_t n) const { return has(n) ? ahead[n][1] : 0; }
  KS_RULE int32_t mid_change(int32_t i) const { return i >= 0 && i < kHistory ? agent::subtract(mids[i], mids[i + 1]) : 0; }
  KS_RULE int32_t volume(int32_t i) const { return i >= 0 && i < kHistory ? volumes[i] : 0; }
};

// What a policy returns: levels, with flags as Launch::order_flags has them, or that all is kept.
struct SlotOrders {
  int32_t keeps;
  Quote quotes[kPolicyLevels];
  int32_t flags[kPolicyLevels];
};
struct LevelOrders {
  Quote quote;
  int32_t flags;
};
// Flags as a record may have them: what is to trade at once is not post-only.
KS_RULE int32_t flags_of(int32_t flags) {
  const bool at_once = (flags & (kOrderFlagImmediateOrCancel | kOrderFlagMarket)) != 0;
  return flags & (at_once ? 15 & ~kOrderFlagPostOnly : 15);
}
KS_RULE LevelOrders level_of(int32_t bid, int32_t bid_qty, int32_t ask, int32_t ask_qty, int32_t bid_flags, int32_t ask_flags) {
  return {{bid, bid_qty, ask, ask_qty}, flags_of(bid_flags) | flags_of(ask_flags) << 8};
}
KS_RULE SlotOrders no_orders() { return {}; }
KS_RULE SlotOrders keep_orders() {
  SlotOrders orders = {};
  orders.keeps = 1;
  return orders;
}
template <typename... Levels>
KS_RULE SlotOrders orders_of(const Levels&... levels) {
  SlotOrders orders = {};
  const LevelOrders given[] = {levels...};
  for (int n = 0; n < (int)sizeof...(levels) && n < kPolicyLevels; ++n)
    orders.quotes[n] = given[n].quote, orders.flags[n] = given[n].flags;
  return orders;
}

// What a policy sees but what stands of the slot; `row` is the slot's place among all.
KS_RULE PolicySlot policy_slot(const Launch& launch, const TaskParams& task, int32_t role, const MarketParams& p,
                               const int32_t* mids, const int32_t* volumes, int32_t elapsed, int32_t arrival2,
                               const Target& target, const Account& account, int64_t row, int64_t t) {
  PolicySlot slot = {};
  const bool has_block = role == kRoleNoise || role == kRoleExecutor;
  slot.inventory = saturated(account.inventory), slot.cash = saturated(account.cash);
  if (t > 0) slot.bought = saturated(launch.fills[2 * row]), slot.sold = saturated(launch.fills[2 * row + 1]);
  slot.elapsed = elapsed, slot.left = task.horizon - elapsed;
  slot.remaining = has_block ? saturated(target.remaining) : 0, slot.side = target.side;
  slot.arrival2 = arrival2, slot.max_qty = task.max_qty, slot.max_offset = task.max_offset;
  slot.max_quote_qty = p.max_quote_qty, slot.inventory_limit = p.inventory_limit;
  for (int i = 0; i <= kHistory; ++i) slot.mids[i] = mids[i];
  for (int i = 0; i < kHistory; ++i) slot.volumes[i] = volumes[i];
  return slot;
}
// The market, whose built-in book has its best prices at these ticks: -1 and kNoTick where a side is empty.
template <typename Bids, typename Asks>
KS_RULE PolicyMarket policy_market(const MarketNumbers& market, const int32_t* mids, const Bids& bids, const Asks& asks,
                                   int32_t best_bid, int32_t best_ask) {
  PolicyMarket seen = {mids[0], sign_of((int64_t)mids[0] - mids[1]), market.last_tick + market.origin, -kNoPrice, kNoPrice, 0, 0,
                       (int32_t)market.t, market.fundamental};
  if (best_bid >= 0) seen.best_bid = best_bid + market.origin, seen.best_bid_qty = bids[best_bid];
  if (best_ask != kNoTick) seen.best_ask = best_ask + market.origin, seen.best_ask_qty = asks[best_ask];
  return seen;
}

// What level n of a policy's orders asks for, as an order record that its slot may have. `queues`: under continuous trading, where
// there are flags, and what stands is kept by them; elsewhere it is submitted anew.
KS_RULE Quote quote_of_policy(const SlotOrders& orders, int n, bool queues, int32_t role, const Target& left, const Quote& standing,
                              OrderFlags& flags) {
  flags = {!queues ? 0 : orders.keeps ? kOrderFlagKeep | kOrderFlagKeep << 8 : orders.flags[n]};
  int32_t unused = 0;  // what is out of range is cut, and is no error
  const Quote asked = !orders.keeps ? orders.quotes[n] : queues ? Quote{0, 0, 0, 0} : standing;
  return admitted_record(asked, role, left, unused, flags);
}
// Keep what a slot with a policy has submitted, at `place` among all levels of all slots, where that is asked for.
KS_RULE void note_played(const Launch& launch, int64_t place, const Quote& quote, OrderFlags flags) {
  if (!launch.played_quotes) return;
  int32_t* const to = launch.played_quotes + 4 * place;
  to[0] = quote.bid_price, to[1] = quote.bid_qty, to[2] = quote.ask_price, to[3] = quote.ask_qty;
  launch.played_flags[place] = flags.word;
}

// What the C++ engine calls of a policy.
struct PolicyFunctions {
  SlotOrders (*decide)(const PolicyMarket&, const PolicySlot&, const AgentDraw&, const int32_t* parameters,
                       const int32_t* memory, int32_t* remembers);
  int32_t words;      // of memory
  int32_t sees_book;
};
template <int kNumber>
struct Policy;
#if !defined(__CUDACC__) && !defined(__CUDACC_RTC__)
template <typename Policy>
inline constexpr PolicyFunctions kPolicyFunctionsOf = {Policy::decide, Policy::kWords, Policy::kSeesBook};
#endif

}  // namespace ks
