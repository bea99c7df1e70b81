// step.h: an environment's step and reset, in the order of docs/environment.md. Three files use it: a thread has one market
// (model/environment.h), a lane of a warp has one (lane/environment.cuh), or a warp has several and plays one after another
// (warp/environment.cuh). The order is in begin_step and end_step, at the end. Before it come rules that tasks.h, which is about a
// single slot, does not have: who plays, what an action and a deadline put into the market, the results of a decision,
// where an episode begins.
#pragma once

#include "model/auction.h"
#include "model/compiled_in.cuh"
#include "model/play_policy.h"
#include "model/tasks.h"

namespace ks {

// What becomes of a market in a launch: it plays, or its next episode begins, or (frozen) nothing of it changes, nor do
// its flags. A market that has stopped does none of these: its flags are lowered. A restart is the autoreset of a step
// that the host has scored: markets that are done begin their next episodes, and all results stay as they are.
struct Part {
  bool plays, restarts, frozen;
  bool scored = false;  // its decision is behind it
};

KS_RULE Part part_of(const Launch& launch, const TaskParams& task, bool stopped, bool done, bool masked) {
  if (launch.env_mode == kLaunchModeEnvReset) return {false, masked, !masked};
  if (launch.env_mode == kLaunchModeEnvRestart) return {false, !stopped && done, stopped || !done};
  const bool waits = !stopped && done, resets = task.autoreset != kAutoresetDisabled;
  return {!stopped && !done, waits && resets, waits && !resets};
}

// A slot's action as a quote, and in `kept` the sides that it keeps as they stand, if any; `action` is its continuous one, or the part
// of a level of its ladder, `row` its place among discrete ones.
KS_RULE Quote asked_quote(const Launch& launch, const TaskParams& task, int32_t role, const float* action, int64_t row,
                          int32_t mid2, const Target& target, const Quote& standing, int32_t& error, OrderFlags& kept,
                          int level = 0) {
  return task.action_type == kActionTypeContinuous
             ? decode_continuous(task, role, action, mid2, target, standing, error, kept)
             : decode_discrete(task, role, launch.choices[row], mid2, target, error, kept, level);
}
// The same, or its order record, as a quote that the slot may have, in a call, where nothing is kept.
KS_RULE Quote quote_of_action(const Launch& launch, const TaskParams& task, int32_t role, const MarketParams& p,
                              const float* action, int64_t row, int32_t mid2, const Target& target,
                              const Quote& standing, int64_t inventory, int32_t& error) {
  OrderFlags flags = {0};
  const Quote asked = takes_records(launch)
                          ? recorded_quote(launch, role, row, target, error, flags)
                          : asked_quote(launch, task, role, action, row, mid2, target, standing, error, flags);
  return apply_pre_trade_limits(asked, inventory, p);
}

// The same of a slot's policy, in a call; by one thread, which keeps what it remembers. `bids` and `asks` are the market's book.
KS_RULE Quote quote_of_policy_in_call(const Launch& launch, int64_t m, int k, const TaskParams& task, const MarketNumbers& market,
                                      const MarketParams& p, const int32_t* mids, const int32_t* volumes, int32_t elapsed,
                                      int32_t arrival2, const Target& target, const Account& account, const Quote& standing,
                                      const int32_t* bids, const int32_t* asks) {
  const int64_t row = m * launch.slots + k;
  const int32_t role = role_of(launch, k);
  int32_t bid = -1, ask = kNoTick;
  if (policy_looks(launch.slot_policies[k])) {
    bid = launch.levels - 1, ask = 0;
    while (bid >= 0 && bids[bid] <= 0) --bid;
    while (ask < launch.levels && asks[ask] <= 0) ++ask;
    if (ask == launch.levels) ask = kNoTick;
  }
  const PolicyMarket seen = policy_market(market, mids, bids, asks, bid, ask);
  PolicySlot slot = policy_slot(launch, task, role, p, mids, volumes, elapsed, arrival2, target, account, row, market.t);
  slot.levels = 1, slot.standing[0] = standing;
  int32_t remembers[kRememberedWords];
  const SlotOrders orders = orders_of_policy(launch, m, k, seen, slot, market.key, market.t, remembers);
  remember(launch, m, k, remembers);
  OrderFlags flags = {0};
  const Quote asked = quote_of_policy(orders, 0, false, role, target, standing, flags);
  note_played(launch, row, asked, flags);
  return apply_pre_trade_limits(asked, account.inventory, p);
}
// What is noted of a slot with a policy that has ended.
KS_RULE void note_none_played(const Launch& launch, int64_t m, int k) {
  if (has_policy(launch, k)) note_played(launch, m * launch.slots + k, Quote{0, 0, 0, 0}, {0});
}

// The most auctions after those of a decision in which what is left of blocks is executed, and slots unwind; `elapsed` counts the
// decision.
KS_RULE int32_t forced_auctions(const TaskParams& task, int64_t elapsed) {
  return elapsed >= task.horizon ? task.forced_auctions : 0;
}
// The largest order that unwinds in market m: its own parameter, whatever regime is in force.
KS_RULE int32_t largest_unwinding(const Launch& launch, int64_t m) {
  return launch.params[m * launch.params_stride].max_order_qty;
}
// Slot k's order in such an auction; without quantity if it has nothing to execute.
KS_RULE Quote forced_order(const Launch& launch, const TaskParams& task, int64_t m, int k, bool ended, const MarketParams& p,
                           const Target& target, int64_t inventory) {
  const int32_t role = role_of(launch, k);
  if (ended) return Quote{0, 0, 0, 0};
  if (unwinds(task, role, k))
    return apply_pre_trade_limits(unwinding_quote(inventory, largest_unwinding(launch, m)), inventory, p);
  if (role != kRoleExecutor) return Quote{0, 0, 0, 0};
  return apply_pre_trade_limits(forced_quote(task, target), inventory, p);
}
KS_RULE bool has_quantity(const Quote& quote) { return quote.bid_qty + quote.ask_qty > 0; }

// A decision's volume as histories and observations have it.
KS_RULE int32_t recorded_volume(int64_t volume) { return volume < 0x7fffffff ? (int32_t)volume : 0x7fffffff; }

// The result of a decision for a slot that took part in it.
struct Outcome {
  int64_t value;  // marked
  float reward;
  End end;        // of the slot's episode, by this decision
};

// `mids` has the doubled mid after the decision and the one before it, `liquidation` what unwinding would bring, `filled`
// what the slot bought and sold; `opening_value` is that of an initial inventory as the episode began, from which values are
// measured; `elapsed` counts this decision. A slot whose episode has `ended` before is only valued.
KS_RULE Outcome outcome_of(const TaskParams& task, int32_t role, int k, const Account& before, const Account& after,
                           int32_t fundamental_before, int32_t fundamental, const int32_t* mids, int32_t arrival2,
                           int64_t prev_value, int64_t opening_value, int64_t liquidation, int64_t remaining, int64_t filled,
                           int32_t elapsed, bool ended) {
  const bool on_fundamental = task.mark == kMarkFundamental;
  Decision d;
  d.before = before, d.after = after;
  d.mark2_before = on_fundamental ? 2 * (int64_t)fundamental_before : mids[1];
  d.mark2_after = on_fundamental ? 2 * (int64_t)fundamental : mids[0];
  d.arrival2 = arrival2;
  d.value2 = 2 * (int64_t)fundamental;
  d.prev_value = prev_value;
  d.value = marked_value(task, after, d.mark2_after, liquidation) - opening_value;
  d.remaining = remaining;
  if (ended) return {d.value, 0.0f, kEndGoesOn};
  const End end = end_of(task, role, k, d.value, remaining, elapsed);
  d.ends = end != kEndGoesOn;
  return {d.value, reward_of(task, role, d, filled), end};
}

// What a slot begins an episode with. Only who trades for profit has an initial inventory.
KS_RULE Account opening_account(const Launch& launch, const TaskParams& task) {
  return {0, has_values(launch) ? task.initial_inventory : 0, 0};
}
// Note what it is worth, where there may be one; `liquidation` is the cash that unwinding it would bring.
KS_RULE void note_opening_value(const Launch& launch, const TaskParams& task, int64_t row, const Account& account,
                                int32_t fundamental, int32_t mid2, int64_t liquidation) {
  if (!has_values(launch)) return;
  const int64_t mark2 = task.mark == kMarkFundamental ? 2 * (int64_t)fundamental : mid2;
  launch.opening_value[row] = marked_value(task, account, mark2, liquidation);
}

// Whether a reset or a restart does nothing to market m.
KS_RULE bool leaves_alone(const Launch& launch, int64_t m) {
  if (launch.env_mode == kLaunchModeEnvRestart) return !launch.done[m];
  const bool resets = launch.env_mode == kLaunchModeEnvReset || launch.env_mode == kLaunchModeOpen;
  return resets && launch.reset_mask && !launch.reset_mask[m];
}
// Whether a launch has rewards and flags of its own.
KS_RULE bool has_results(const Launch& launch) { return launch.env_mode != kLaunchModeEnvRestart; }

// What is known of a market and of its slots (Launch::info), where it is asked for ------------------------------------

KS_RULE double not_a_number() {
#ifdef __CUDA_ARCH__
  return __longlong_as_double(0x7ff8000000000000ll);
#else
  return __builtin_nan("");
#endif
}

KS_RULE void write_market_info(const Launch& launch, int64_t m, int32_t mid2, int32_t fundamental, int32_t best_bid,
                               int32_t best_ask, int32_t origin, int32_t scenario, int32_t elapsed) {
  double* const to = launch.info + m;
  const int64_t row = launch.markets;
  to[kMarketInfoMid * row] = 0.5 * (double)mid2;
  to[kMarketInfoFundamental * row] = (double)fundamental;
  to[kMarketInfoBestBid * row] = best_bid >= 0 ? (double)((int64_t)best_bid + origin) : not_a_number();
  to[kMarketInfoBestAsk * row] = best_ask != kNoTick ? (double)((int64_t)best_ask + origin) : not_a_number();
  to[kMarketInfoScenario * row] = (double)scenario;
  to[kMarketInfoElapsed * row] = (double)elapsed;
}

KS_RULE void write_slot_info(const Launch& launch, int64_t m, int k, int32_t role, const Account& account, int64_t bought,
                             int64_t sold, int64_t remaining, int64_t value) {
  double* const to = launch.info + (int64_t)(kMarketInfos + k) * launch.markets + m;
  const int64_t row = launch.slots * launch.markets, slot = m * launch.slots + k;
  const bool has_block = role == kRoleNoise || role == kRoleExecutor;
  to[kSlotInfoCash * row] = (double)account.cash;
  to[kSlotInfoInventory * row] = (double)account.inventory;
  to[kSlotInfoFees * row] = (double)account.fees;
  to[kSlotInfoBought * row] = (double)bought;
  to[kSlotInfoSold * row] = (double)sold;
  to[kSlotInfoFilled * row] = (double)launch.episode_filled[slot];
  to[kSlotInfoOpen * row] = has_block ? (double)remaining : 0.0;
  to[kSlotInfoValue * row] = (double)value / 2000.0;
  if (launch.episode_return) to[kSlotInfoEpisodeReturn * row] = launch.episode_return[slot];
}

// After a decision in which the slot took part, or had ended before.
KS_RULE void note_decision(const Launch& launch, int64_t m, int k, int32_t role, const Account& account, int64_t bought,
                           int64_t sold, int64_t remaining, const Outcome& outcome) {
  const int64_t slot = m * launch.slots + k;
  launch.episode_filled[slot] += bought + sold;
  if (launch.episode_return) launch.episode_return[slot] += (double)outcome.reward;
  write_slot_info(launch, m, k, role, account, bought, sold, remaining, outcome.value);
}

// As an episode begins; where a decision was played in the same launch, `info` goes on to show that.
KS_RULE void note_opening(const Launch& launch, int64_t m, int k, int32_t role, const Account& account, int64_t remaining,
                          bool played) {
  const int64_t slot = m * launch.slots + k;
  launch.episode_filled[slot] = 0;
  if (launch.episode_return) launch.episode_return[slot] = 0.0;
  if (played) return;
  launch.info[(kMarketInfos + kSlotInfoEpisodeReturn * launch.slots + k) * launch.markets + m] = 0.0;
  write_slot_info(launch, m, k, role, account, 0, 0, remaining, 0);
}

// Where quotes of actions may be rejected: bits of enum Reject of a slot's bids, and 2^8 times its asks'.
KS_RULE void note_rejects(const Launch& launch, int64_t m, int k, int32_t rejects) {
  double* const to = launch.info + (kMarketInfos + (int64_t)kSlotInfos * launch.slots + k) * launch.markets + m;
  const int64_t row = launch.slots * launch.markets;
  to[kKeepInfoRejectedBid * row] = (double)(rejects & 255);
  to[kKeepInfoRejectedAsk * row] = (double)(rejects >> 8);
}

// Where a market stands when an episode begins: at its warm start, or in the opening book's middle.
KS_RULE MarketNumbers opening_numbers(const Launch& launch, const TaskParams& task, const MarketParams& p,
                                      const Opening& opening, uint64_t key, int32_t error) {
  const int32_t between = launch.arrivals == kArrivalsFlow;  // such a book opens with a spread of one tick
  if (task.bank_size == 0) return {2 * p.init_price - between, p.init_price, 0, p.fundamental_price, error, key, 0};
  const int32_t* scalars = launch.bank_scalars + 4 * opening.bank_row;
  return {scalars[0], scalars[1], scalars[2], scalars[3], error, key, 0};
}

// A step or a reset. Markets are a Host's, which has
//   launch, task
//   load()             all that is read of markets and slots, but perhaps books
//   part()             of this thread's market, if it has one; see part_of
//   begin(part)        what is left to prepare, now that it is known who plays
//   any(holds)         whether something holds for a market of any thread that takes part
//   decode_actions(part)
//   play(part)         the auctions of one decision, then forced ones; a market that has to stop plays no more
//   score(part)        money, histories, rewards and ends of slots' episodes; whether all have ended is all_ended()
//   observe(part)      what the decision has led to, as the final and as the next observation
//   begin_episodes(part), observe_opening(part)
//   store(part)
template <typename Host>
KS_PLAY Part begin_loaded(Host& host) {
  const Part part = host.part();
  host.begin(part);
  if (host.any(part.plays)) host.decode_actions(part);
  return part;
}
template <typename Host>
KS_PLAY Part begin_step(Host& host) {
  host.load();
  return begin_loaded(host);
}

// All of a step but to store it. Returns false if play or begin_episodes cannot go on, which may be called again then, of a Host
// that can.
template <typename Host>
KS_PLAY bool play_step(Host& host, Part& part) {
  if (!part.scored && host.any(part.plays)) {
    if (!host.play(part)) return false;
    host.score(part);
    if (part.plays) part.restarts = host.all_ended() && host.task.autoreset == kAutoresetSameStep;
    host.observe(part);
  }
  part.scored = true;
  if (host.any(part.restarts)) {
    if (!host.begin_episodes(part)) return false;
    host.observe_opening(part);
  }
  return true;
}
template <typename Host>
KS_PLAY bool end_step(Host& host, Part& part) {
  const bool ends = play_step(host, part);
  if (ends) host.store(part);
  return ends;
}

template <typename Host>
KS_PLAY void step_or_reset(Host& host) {
  Part part = begin_step(host);
  end_step(host, part);
}

}  // namespace ks
