// tasks.h: what an environment adds to the market: actions to quotes, rewards, observations, ends of episode.
// Host and device, called by the engines' environment step. Every operation rounds the same everywhere (compiled
// without fused multiply-add); the same in words: docs/environment.md.
#pragma once

#include "model/task_values.h"

#ifndef __CUDACC_RTC__
#include <cmath>
#endif

namespace ks {

enum End { kEndGoesOn = 0, kEndTerminated = 1, kEndTruncated = 2 };

// What a role's action says: a bid and an ask; one order on a side that is given; one order and its side.
KS_RULE ActionForm action_form(int32_t role) {
  if (role == kRoleMaker) return kActionFormQuotes;
  const bool side_is_given = role == kRoleMomentum || role == kRoleNoise || role == kRoleExecutor;
  return side_is_given ? kActionFormOrder : kActionFormTrade;
}
KS_RULE bool quotes_both_sides(int32_t role) { return action_form(role) == kActionFormQuotes; }
KS_RULE bool chooses_side(int32_t role) { return action_form(role) == kActionFormTrade; }

// The side that a slot trades on, +1 or -1 (0: the action says), and the most that it may trade.
struct Target {
  int32_t side;
  int64_t remaining;
};

// What a noise learner or an executor has to trade in this episode, less what it has traded towards it.
KS_RULE Target block_target(const TaskParams& task, int32_t role, uint64_t key, int slot, int64_t inventory) {
  const uint64_t word = random_word(key, 0, kSlotWord + slot);
  Target target;
  target.side = word_is_buy(word) ? 1 : -1;
  if (role == kRoleExecutor && task.block_side != 0) target.side = task.block_side;
  target.remaining = (role == kRoleExecutor ? task.block_qty : word_quantity(word, task.max_target)) - target.side * inventory;
  if (target.remaining < 0) target.remaining = 0;
  return target;
}

// The side of a momentum learner's next order: the last return's sign, or a random side when the mid did not move.
KS_RULE int32_t momentum_side(const int32_t* mid_history, uint64_t key, int64_t t, int slot) {
  int32_t side = sign_of((int64_t)mid_history[0] - mid_history[1]);
  if (side != 0) return side;
  return word_is_buy(random_word(key, t, kSlotWord + slot)) ? 1 : -1;
}

KS_RULE Target target_of(const TaskParams& task, int32_t role, const int32_t* mid_history, uint64_t key, int64_t t,
                         int slot, int64_t inventory) {
  if (role == kRoleNoise || role == kRoleExecutor) return block_target(task, role, key, slot, inventory);
  return Target{role == kRoleMomentum ? momentum_side(mid_history, key, t, slot) : 0, kMaxPrice};
}

// Actions ------------------------------------------------------------------------------------------------------------

KS_RULE int32_t unit_to_int(float a, int32_t n) { return (int32_t)rintf((a + 1.0f) * 0.5f * (float)n); }

KS_RULE Quote maker_quote(int32_t mid2, int32_t bid_offset, int32_t bid_qty, int32_t ask_offset, int32_t ask_qty) {
  Quote quote = {0, 0, 0, 0};
  if (bid_qty > 0) quote.bid_price = (mid2 >> 1) - bid_offset, quote.bid_qty = bid_qty;
  if (ask_qty > 0) quote.ask_price = ((mid2 + 1) >> 1) + ask_offset, quote.ask_qty = ask_qty;
  return quote;
}

// An order `offset` ticks through the mid, on side +1 or -1.
KS_RULE Quote directional_quote(int32_t mid2, int32_t side, int32_t offset, int32_t qty) {
  Quote quote = {0, 0, 0, 0};
  if (qty <= 0) return quote;
  if (side > 0) quote.bid_price = (mid2 >> 1) + offset, quote.bid_qty = qty;
  else quote.ask_price = ((mid2 + 1) >> 1) - offset, quote.ask_qty = qty;
  return quote;
}

// Whether actions may keep standing quotes: in a kernel only if it was compiled for those that do (kineticsim_env/engines/cuda.py).
#ifndef KS_KEEP
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define KS_KEEP 0
#else
#define KS_KEEP 1
#endif
#endif
constexpr bool kMayKeep = KS_KEEP != 0;
KS_RULE bool may_keep(const TaskParams& task) { return kMayKeep && task.keep != 0; }

// Whether events end decisions, likewise.
#ifndef KS_DECIDE
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define KS_DECIDE 0
#else
#define KS_DECIDE 1
#endif
#endif
constexpr bool kMayDecideAtEvents = KS_DECIDE != 0;
KS_RULE bool decides_at_events(const TaskParams& task) { return kMayDecideAtEvents && task.decide != kDecideInterval; }

// Whether a step may be given order records in the place of actions, likewise.
#ifndef KS_RECORDS
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define KS_RECORDS 0
#else
#define KS_RECORDS 1
#endif
#endif
constexpr bool kMayTakeRecords = KS_RECORDS != 0;
KS_RULE bool takes_records(const Launch& launch) { return kMayTakeRecords && launch.new_quotes != nullptr; }

// Whether slots may unwind at the horizon, likewise.
#ifndef KS_UNWIND
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define KS_UNWIND 0
#else
#define KS_UNWIND 1
#endif
#endif
constexpr bool kMayUnwind = KS_UNWIND != 0;
// Whether slot k does: a learner that trades for profit.
KS_RULE bool unwinds(const TaskParams& task, int32_t role, int k) {
  return kMayUnwind && k < task.unwinds && role != kRoleNoise && role != kRoleExecutor;
}

KS_RULE int32_t at_most(int32_t qty, int64_t most) { return qty < most ? qty : (int32_t)most; }

// How many numbers of a continuous action are of one level of a slot's ladder: what it quotes, and what it keeps.
KS_RULE int numbers_of_level(const TaskParams& task, int32_t role) {
  const int used = quotes_both_sides(role) ? 4 : 2;
  return used + (may_keep(task) ? used / 2 : 0);
}
KS_RULE bool has_nan(const float* row, int count) {
  for (int i = 0; i < count; ++i)
    if (row[i] != row[i]) return true;
  return false;
}

// Turn one slot's continuous action row, or a level's part of it, into quotes; a NaN keeps `standing`. Where actions may keep quotes, `kept` says which sides
// this one keeps, by its last numbers: a maker's bid and ask, or both at once.
KS_RULE Quote decode_continuous(const TaskParams& task, int32_t role, const float* row, int32_t mid2,
                                const Target& target, const Quote& standing, int32_t& error, OrderFlags& kept) {
  constexpr float kMostAction = (float)(1.0 + 1.0 / kActionTolerance);
  const int used = quotes_both_sides(role) ? 4 : 2;
  const int given = numbers_of_level(task, role);
  float a[kActionSize] = {0.0f, 0.0f, 0.0f, 0.0f};
  if (has_nan(row, given)) {
    error |= kErrorNanAction;
    return standing;
  }
  for (int i = 0; i < given; ++i) {
    if (fabsf(row[i]) > kMostAction) error |= kErrorActionRange;
    if (i < used) a[i] = row[i] < -1.0f ? -1.0f : row[i] > 1.0f ? 1.0f : row[i];
  }
  if (may_keep(task)) kept = keep_flags(row[used] > 0.0f, row[given - 1] > 0.0f);
  if (quotes_both_sides(role)) {
    return maker_quote(mid2, unit_to_int(a[0], task.max_offset), unit_to_int(a[2], task.max_qty),
                       unit_to_int(a[1], task.max_offset), unit_to_int(a[3], task.max_qty));
  }
  const float through = chooses_side(role) ? a[1] : a[0];
  const int32_t offset = (int32_t)rintf(through * (float)task.max_offset);
  if (chooses_side(role)) {
    return directional_quote(mid2, a[0] > 0.0f ? 1 : -1, offset, (int32_t)rintf(fabsf(a[0]) * (float)task.max_qty));
  }
  return directional_quote(mid2, target.side, offset, at_most(unit_to_int(a[1], task.max_qty), target.remaining));
}

// Turn one slot's discrete choice into quotes: a maker's is an offset per side; the others' is none, or one of some
// offsets in two sizes, or of a trader on two sides. Where actions may keep quotes there is one choice more, the last: of a maker
// for each side. Level n of a ladder stands n ticks behind. Python reads the offsets from this text.
KS_RULE Quote decode_discrete(const TaskParams& task, int32_t role, int64_t choice, int32_t mid2, const Target& target,
                              int32_t& error, OrderFlags& kept, int level) {
  constexpr int32_t kMakerOffsets[kMakerChoices] = {0, 1, 2, 3, 4, 6, 8};  // behind the mid; the first: no order
  constexpr int32_t kDirectionalOffsets[kDirectionalOffsetCount] = {-6, -3, -1, 0, 1, 3, 6};  // through the mid
  const int32_t per_side = kMakerChoices + may_keep(task), others = 1 + 2 * kDirectionalOffsetCount;
  const int32_t choices = quotes_both_sides(role) ? per_side * per_side : others + may_keep(task);
  if (choice < 0 || choice >= choices) {
    error |= kErrorActionRange;
    choice = choice < 0 ? 0 : choices - 1;
  }
  if (quotes_both_sides(role)) {
    int32_t bid = (int32_t)choice / per_side, ask = (int32_t)choice % per_side;
    if (may_keep(task)) {
      kept = keep_flags(bid == kMakerChoices, ask == kMakerChoices);
      bid = kept.keeps(0) ? 0 : bid, ask = kept.keeps(1) ? 0 : ask;
    }
    return maker_quote(mid2, kMakerOffsets[bid] + level, bid ? task.max_qty : 0, kMakerOffsets[ask] + level, ask ? task.max_qty : 0);
  }
  if (may_keep(task) && choice == others) {
    kept = keep_flags(true, true);
    choice = 0;
  }
  if (choice == 0) return Quote{0, 0, 0, 0};
  const int32_t order = (int32_t)choice - 1;
  if (chooses_side(role)) {
    const int32_t offset = kDirectionalOffsets[order % kDirectionalOffsetCount] - level;
    return directional_quote(mid2, order < kDirectionalOffsetCount ? 1 : -1, offset, task.max_qty);
  }
  int32_t qty = order % 2 ? task.max_qty : (task.max_qty + 1) / 2;
  return directional_quote(mid2, target.side, kDirectionalOffsets[order / 2] - level, at_most(qty, target.remaining));
}

// An order record as its slot may have it: what is out of range is cut, and of who has a block or a target to what is left of it, on its
// side. What is a matter of an action's form, `max_offset` and `max_qty`, does not bind it; pre-trade limits do, later.
KS_RULE Quote admitted_record(const Quote& asked, int32_t role, const Target& target, int32_t& error, OrderFlags& flags) {
  const int32_t bid_price = clamp_to(asked.bid_price, -kMaxPrice, kMaxPrice);
  const int32_t ask_price = clamp_to(asked.ask_price, -kMaxPrice, kMaxPrice);
  int32_t bid_qty = clamp_to(asked.bid_qty, 0, kMaxQuoteQty), ask_qty = clamp_to(asked.ask_qty, 0, kMaxQuoteQty);
  if (bid_price != asked.bid_price || ask_price != asked.ask_price || bid_qty != asked.bid_qty || ask_qty != asked.ask_qty)
    error |= kErrorActionRange;
  if (role == kRoleNoise || role == kRoleExecutor) {
    bid_qty = target.side > 0 ? at_most(bid_qty, target.remaining) : 0;
    ask_qty = target.side < 0 ? at_most(ask_qty, target.remaining) : 0;
    flags.word &= target.side > 0 ? 0xff | kOrderFlagKeep << 8 : 0xff00 | kOrderFlagKeep;  // no order there, but as an action keeps
  }
  return {bid_qty > 0 ? bid_price : 0, bid_qty, ask_qty > 0 ? ask_price : 0, ask_qty};
}
// That of a level of a slot, at `place` among all levels of all slots.
KS_RULE Quote recorded_quote(const Launch& launch, int32_t role, int64_t place, const Target& target, int32_t& error,
                             OrderFlags& flags) {
  const int32_t* const q = launch.new_quotes + 4 * place;
  flags = {launch.order_flags ? launch.order_flags[place] : 0};
  return admitted_record({q[0], q[1], q[2], q[3]}, role, target, error, flags);
}

// What levels of a ladder leave to those behind them of what there is to trade: this one asks for a quote, or keeps what stands.
KS_RULE void take_from(Target& target, const Quote& asked, const Quote& standing, OrderFlags kept) {
  const Quote& counted = kept.keeps(target.side < 0) ? standing : asked;
  const int64_t left = target.remaining - (target.side > 0 ? counted.bid_qty : target.side < 0 ? counted.ask_qty : 0);
  target.remaining = left > 0 ? left : 0;
}

// At the deadline the rest of a block goes into the market at any price, `forced_qty` units per auction.
KS_RULE Quote forced_quote(const TaskParams& task, const Target& target) {
  const int32_t qty = at_most(task.forced_qty, target.remaining);
  if (qty <= 0) return Quote{0, 0, 0, 0};
  return target.side > 0 ? Quote{kMaxPrice, qty, 0, 0} : Quote{0, 0, -kMaxPrice, qty};
}

// What a slot that unwinds submits there, `largest` units at most; in a call at any price.
KS_RULE Quote unwinding_quote(int64_t inventory, int32_t largest) {
  const int32_t qty = at_most(largest, inventory < 0 ? -inventory : inventory);
  if (qty == 0) return Quote{0, 0, 0, 0};
  return inventory < 0 ? Quote{kMaxPrice, qty, 0, 0} : Quote{0, 0, -kMaxPrice, qty};
}
// The same under continuous trading, of which the limits have left `order`: no further than the other side has the units, as the
// rest would stand at the grid's end, and be traded there. Without quantity where nothing rests.
template <typename Book>
KS_RULE Quote priced_to_book(Quote order, int64_t inventory, int32_t largest, Book bids, int32_t best_bid, Book asks,
                             int32_t best_ask, int32_t levels, int32_t origin) {
  const bool buys = inventory < 0;
  const int32_t step = buys ? 1 : -1, first = buys ? best_ask : best_bid;
  int64_t left = at_most(largest, buys ? -inventory : inventory);
  int32_t price = kMaxPrice;
  for (int32_t tick = first; tick >= 0 && tick < levels && left > 0; tick += step) {
    const int32_t rests = (buys ? asks : bids)[tick];
    if (rests > 0) price = origin + tick;
    left -= rests;
  }
  if (price == kMaxPrice) return Quote{0, 0, 0, 0};
  if (order.bid_qty > 0) order.bid_price = price;
  if (order.ask_qty > 0) order.ask_price = price;
  return order;
}

// Episodes ------------------------------------------------------------------------------------------------------------

// How an episode of market m begins: all is drawn by the episode's own key.
struct Opening {
  int32_t elapsed, scenario;
  int64_t bank_row;  // its warm start, where there are any
};

// Whether episodes can have scenarios: in a kernel only if it was compiled for those that do (kineticsim_env/engines/cuda.py).
#ifndef KS_SCENARIOS
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define KS_SCENARIOS 0
#else
#define KS_SCENARIOS 1
#endif
#endif

// The scenario of an episode: the one that a reset asks for, or one drawn, by thresholds where there are weights. It is
// below `scenarios` whatever the tables hold, as is each row that is read.
KS_RULE int32_t scenario_of(const Launch& launch, int32_t scenarios, int64_t m, uint64_t key) {
  const int32_t last = scenarios - 1, asked = launch.reset_scenario ? launch.reset_scenario[m] : -1;
  if (asked >= 0 && asked <= last) return asked;
  const uint64_t word = random_word(key, 0, kScenarioWord);
  if (launch.scenario_thresholds[last] == 0) return word_choice(word, scenarios);
  int32_t low = 0;  // the first whose threshold is above the word's high half; the last one's, 2^32, always is
  for (int32_t high = last; low < high;) {
    const int32_t middle = (low + high) >> 1;
    if ((int64_t)(word >> 32) < launch.scenario_thresholds[middle]) high = middle;
    else low = middle + 1;
  }
  return low;
}

KS_RULE Opening opening_of(const Launch& launch, const TaskParams& task, int64_t m, uint64_t key, int64_t episode) {
  Opening opening = {0, 0, 0};
  if (KS_SCENARIOS != 0 && task.scenarios > 0) opening.scenario = scenario_of(launch, task.scenarios, m, key);
  begin_values(launch, m, opening.scenario);
  if (launch.env_mode == kLaunchModeEnvReset && task.stagger && episode == 0) {
    const SlotTask own(launch, task, market_row(launch, m));
    opening.elapsed = word_choice(random_word(key, 0, kStaggerWord), own->horizon);
  }
  if (task.bank_size > 0) {
    const int64_t owner = task.bank_owner == kBankOwnerEachScenario ? opening.scenario
                          : task.bank_owner == kBankOwnerEachMarket ? m
                                                                     : 0;
    opening.bank_row = word_choice(random_word(key, 0, kWarmStartWord), task.bank_size) + owner * task.bank_size;
  }
  return opening;
}

// Rewards ------------------------------------------------------------------------------------------------------------

// The cash from crossing the resting book with a whole inventory. What exceeds its depth trades at its worst price.
template <typename Book>
KS_RULE int64_t liquidation_cash(const Book& bid, const Book& ask, int32_t levels, int64_t inventory, int32_t origin,
                                 int32_t last_tick) {
  int64_t left = inventory < 0 ? -inventory : inventory, cash = 0;
  int64_t price = (int64_t)last_tick + origin;  // for all of it if the side is empty
  for (int32_t i = 0; i < levels && left > 0; ++i) {
    int32_t tick = inventory > 0 ? levels - 1 - i : i;
    int64_t depth = inventory > 0 ? bid[tick] : ask[tick];
    if (depth <= 0) continue;
    price = (int64_t)tick + origin;
    int64_t quantity = depth < left ? depth : left;
    cash += quantity * price;
    left -= quantity;
  }
  cash += left * price;
  return inventory > 0 ? cash : -cash;
}

// Marked value in 1/2000 tick. With the liquidation mark, `liquidation` is the cash that unwinding would bring.
KS_RULE int64_t marked_value(const TaskParams& task, const Account& account, int64_t mark2, int64_t liquidation) {
  int64_t position = task.mark == kMarkLiquidation ? 2000 * liquidation : 1000 * account.inventory * mark2;
  return 2000 * account.cash + position - 2 * account.fees;
}

// One decision of a slot, for its reward: accounts, doubled marks and marked values before and after it.
struct Decision {
  Account before, after;
  int64_t prev_value, value;
  int64_t mark2_before, mark2_after;
  int64_t arrival2;   // the doubled mid when the episode began
  int64_t value2;     // the doubled fundamental price after it
  int64_t remaining;  // of its block
  bool ends;
};

// What the trades between two accounts made against a doubled price, in ticks x units.
KS_RULE double money_against(const Account& before, const Account& after, int64_t price2) {
  return (double)(2000 * (after.cash - before.cash) + 1000 * (after.inventory - before.inventory) * price2 -
                  2 * (after.fees - before.fees)) /
         2000.0;
}

KS_RULE double execution_reward(const TaskParams& task, const Decision& d) {
  const double block = (double)task.block_qty;
  double reward = 0.0;
  if (task.execution_reward == kExecutionRewardEdge) reward = money_against(d.before, d.after, d.value2);
  else if (task.execution_reward != kExecutionRewardTerminal) reward = money_against(d.before, d.after, d.arrival2);
  else if (d.ends) reward = money_against(Account{0, 0, 0}, d.after, d.arrival2);
  if (d.ends) reward = reward - task.leftover_penalty * (double)d.remaining;
  reward = reward / block;
  if (task.execution_reward == kExecutionRewardRiskAverse) {
    const double share = (double)d.remaining / block;
    reward = reward - task.risk_aversion * share * share;
  }
  return reward;
}

KS_RULE double trading_reward(const TaskParams& task, const Decision& d) {
  double reward = (double)(d.value - d.prev_value) / 2000.0;
  if (task.reward == kRewardInventory) {
    reward = reward - task.inventory_penalty * (double)d.after.inventory * (double)d.after.inventory;
  } else if (task.reward == kRewardAsymmetric) {
    double gain = task.dampening * ((double)(1000 * d.before.inventory * (d.mark2_after - d.mark2_before)) / 2000.0);
    if (gain > 0.0) reward = reward - gain;
  }
  return reward;
}

// Per unit at stake: units filled, or units held if they are more. Fills are with others, as no slot can trade with itself.
KS_RULE double per_unit_reward(const TaskParams& task, const Decision& d, int64_t filled) {
  const int64_t held = d.before.inventory < 0 ? -d.before.inventory : d.before.inventory;
  int64_t units = filled > held ? filled : held;
  if (units < 1) units = 1;
  const double reward = (double)(d.value - d.prev_value) / 2000.0 / (double)units;
  return filled > 0 ? reward : reward - task.idle_penalty;
}

KS_RULE float reward_of(const TaskParams& task, int32_t role, const Decision& d, int64_t filled) {
  double reward;
  if (role == kRoleNoise) {  // the cost of trading against the mark at the decision, nothing else
    reward = money_against(d.before, d.after, d.mark2_before);
    if (d.ends) reward = reward - task.leftover_penalty * (double)d.remaining;
  } else if (role == kRoleExecutor) {
    reward = execution_reward(task, d);
  } else if (task.reward == kRewardPerUnit) {
    reward = per_unit_reward(task, d, filled);
  } else if (task.reward == kRewardEdge) {
    reward = money_against(d.before, d.after, d.value2);
  } else {
    reward = trading_reward(task, d);
  }
  return (float)(reward / task.reward_scale);
}

// Whether slot k's episode ends with a decision. A block's deadline terminates it, and does not truncate it, as does to unwind.
KS_RULE End end_of(const TaskParams& task, int32_t role, int k, int64_t value, int64_t remaining, int32_t elapsed) {
  if (task.max_loss > 0.0 && (double)value / 2000.0 <= -task.max_loss) return kEndTerminated;
  if (role == kRoleExecutor && (remaining == 0 || elapsed >= task.horizon)) return kEndTerminated;
  if (elapsed < task.horizon) return kEndGoesOn;
  return unwinds(task, role, k) ? kEndTerminated : kEndTruncated;
}

// Observations -------------------------------------------------------------------------------------------------------

// What one slot's features are of, but for the task's settings, and what is ahead of its quotes (queue_ratio, extra_ratio).
// Book is a pointer to a row of int32_t by tick; it may be null where features of the book are written by others.
template <typename Book>
struct View {
  Book bid, ask;  // resting, built-in
  int32_t levels, best_bid, best_ask, mid2, last_tick, origin;
  const int32_t* mid_history;
  const int32_t* volume_history;
  int32_t arrival2, role, elapsed, inventory_limit;
  Target target;
  Quote quote;
  Account account;
  int32_t fundamental;
  int32_t events;  // of the decision, where these end decisions
};

// Every feature is one division, so that lanes of a warp that compute different features do not diverge.
struct Ratio {
  float numerator, denominator;
};

// The quotient, correctly rounded. A GPU's division takes a slow path for zeros, which are common. This is its fast path
// alone, which is exact as neither number comes near the ends of the float32 range.
KS_RULE float feature_of(Ratio ratio) {
#ifdef __CUDA_ARCH__
  const float a = ratio.numerator, b = ratio.denominator;
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(b));
  r = __fmaf_rn(r, __fmaf_rn(-b, r, 1.0f), r);
  const float q = __fmul_rn(a, r);
  return __fmaf_rn(r, __fmaf_rn(-b, q, a), q);
#else
  return ratio.numerator / ratio.denominator;
#endif
}

KS_RULE Ratio squash(float x, float scale) { return Ratio{x, fabsf(x) + scale}; }

// The tick, on the grid or not, of the book's feature i: bids from the mid down, then asks from the mid up.
KS_RULE int32_t depth_tick(int32_t mid2, int32_t origin, int i) {
  return i < kDepth ? (mid2 >> 1) - origin - i : ((mid2 + 1) >> 1) - origin + i - kDepth;
}
// Feature i that all slots see, scaled: of the book and of prices in units or ticks; the last kHistory are volumes.
KS_RULE Ratio scaled(int32_t x, int i) { return squash((float)x, i < kMarketFeatures - kHistory ? 8.0f : 32.0f); }

// An address instead of branches: lanes of a warp that compute different features read different addresses.
template <typename Book>
KS_RULE Ratio market_ratio(const View<Book>& view, int i) {
  const bool of_book = i < 2 * kDepth;
  const int32_t tick = depth_tick(view.mid2, view.origin, i);
  const int before = i - 2 * kDepth - 2;  // place in the history of mids, then in that of volumes
  const bool exists = of_book ? tick >= 0 && tick < view.levels : before >= 0;
  const int32_t* place = of_book              ? (i < kDepth ? view.bid : view.ask) + tick
                         : before < kHistory ? view.mid_history + before
                                             : view.volume_history + before - kHistory;
  int32_t x = exists ? place[0] : 0;
  if (before >= 0 && before < kHistory) x -= place[1];
  if (i == 2 * kDepth && view.best_bid >= 0 && view.best_ask != kNoTick) x = view.best_ask - view.best_bid;
  if (i == 2 * kDepth + 1) x = 2 * (view.last_tick + view.origin) - view.mid2;
  return scaled(x, i);
}

// How far the fundamental price is above the mid.
template <typename Book>
KS_RULE Ratio fundamental_ratio(const View<Book>& view) {
  return squash((float)(2 * (int64_t)view.fundamental - view.mid2), 16.0f);
}

template <typename Book>
KS_RULE Ratio own_ratio(const TaskParams& task, const View<Book>& view, int i) {
  const Quote& q = view.quote;
  const bool maker = quotes_both_sides(view.role), executor = view.role == kRoleExecutor;
  const bool buys = q.bid_qty > 0;  // only a maker has two sides
  const int32_t standing = buys ? q.bid_qty : q.ask_qty;
  const float max_qty = (float)task.max_qty;
  switch (i) {
    case 0:
      if (view.role == kRoleNoise || executor) {
        return Ratio{(float)(view.target.side * view.target.remaining), (float)(executor ? task.block_qty : task.max_target)};
      }
      if (view.inventory_limit > 0) return Ratio{(float)view.account.inventory, (float)view.inventory_limit};
      return squash((float)view.account.inventory, (float)(8 * task.max_qty));
    case 1:
      return squash((float)(2 * view.account.cash + view.account.inventory * (executor ? view.arrival2 : view.mid2) -
                            (KS_VALUES ? (int64_t)task.initial_inventory * view.arrival2 : 0)) * 0.5f,
                    executor ? 8.0f * (float)task.block_qty : 1000.0f);
    case 2: return Ratio{(float)(task.horizon - view.elapsed), (float)task.horizon};
    case 3:
      if (chooses_side(view.role)) return Ratio{standing > 0 ? (buys ? 1.0f : -1.0f) : 0.0f, 1.0f};
      if (!maker) return Ratio{(float)view.target.side, 1.0f};
      return squash(buys ? (float)((int64_t)view.mid2 - 2 * (int64_t)q.bid_price) : 0.0f, 16.0f);
    case 4:
      if (maker) return Ratio{(float)q.bid_qty, max_qty};
      return squash(standing > 0 ? (float)((int64_t)view.mid2 - 2 * (int64_t)(buys ? q.bid_price : q.ask_price)) : 0.0f,
                    16.0f);
    case 5:
      if (!maker) return Ratio{(float)standing, max_qty};
      return squash(q.ask_qty > 0 ? (float)(2 * (int64_t)q.ask_price - view.mid2) : 0.0f, 16.0f);
    default:
      if (executor) return squash((float)((int64_t)view.mid2 - view.arrival2), 16.0f);
      if (view.role == kRoleFundamental) return fundamental_ratio(view);
      return Ratio{maker ? (float)q.ask_qty : 0.0f, max_qty};
  }
}

// What is ahead of a slot's bid or ask, behind its other features under continuous trading: scaled as depths are.
KS_RULE Ratio queue_ratio(int32_t ahead) { return squash((float)ahead, 8.0f); }

// Column i of those of a level behind the first of a slot's ladder: `level` is what stands of it.
KS_RULE Ratio level_ratio(const TaskParams& task, const Quote& level, int32_t bid_ahead, int32_t ask_ahead, int32_t mid2, int i) {
  const float max_qty = (float)task.max_qty;
  switch (i) {
    case 0: return squash(level.bid_qty > 0 ? (float)((int64_t)mid2 - 2 * (int64_t)level.bid_price) : 0.0f, 16.0f);
    case 1: return Ratio{(float)level.bid_qty, max_qty};
    case 2: return squash(level.ask_qty > 0 ? (float)(2 * (int64_t)level.ask_price - mid2) : 0.0f, 16.0f);
    case 3: return Ratio{(float)level.ask_qty, max_qty};
    case 4: return queue_ratio(bid_ahead);
    default: return queue_ratio(ask_ahead);
  }
}

// Column i of enum Extra, behind all others where an environment asks for it; `row` is the slot's place among all slots.
template <typename Book>
KS_RULE Ratio extra_ratio(const Launch& launch, int64_t row, const View<Book>& view, int i) {
  if (i == kExtraFundamental) return fundamental_ratio(view);
  if (i == kExtraDecisionEvents) return Ratio{(float)view.events, (float)launch.task.longest};
  const int setting = i - kExtraHorizon;
  return Ratio{(float)(launch.task_values[row * kTaskValues + setting] / launch.task.value_scale[setting]), 1.0f};
}

}  // namespace ks
