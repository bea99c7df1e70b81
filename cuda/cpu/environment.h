// environment.h: one environment step or reset of a market on one core, the counterpart of warp/environment.cuh.
// Loops and memory only: actions, rewards and observations are model/tasks.h's, in the order of docs/environment.md.
#pragma once

#include "cpu/market.h"
#include "model/tasks.h"

namespace ks {

struct Environment : Market {
  using Market::Market;

  int32_t* mid_history() const { return launch.mid_history + m * (kHistory + 1); }
  int32_t* volume_history() const { return launch.volume_history + m * kHistory; }

  void reset() {
    const TaskParams& task = launch.task;
    episode += 1;
    t = 0;
    key = episode_key(launch.seed[m], episode);
    volume = trades = 0;
    const Opening opening = opening_of(launch, task, m, key, episode);
    if (task.scenarios > 0) {
      launch.scenario[m] = opening.scenario;
      launch.params[m] = launch.scenario_params[opening.scenario];
    }
    if (task.bank_size > 0) {
      const int64_t row = opening.bank_row;
      std::memcpy(bid, launch.bank_bid + row * levels, levels * sizeof(int32_t));
      std::memcpy(ask, launch.bank_ask + row * levels, levels * sizeof(int32_t));
      const int32_t* scalars = launch.bank_scalars + 4 * row;
      prev_mid2 = scalars[0], last_tick = scalars[1], origin = scalars[2], fundamental = scalars[3];
    } else {
      std::fill(bid, bid + levels, 0);
      std::fill(ask, ask + levels, 0);
      bid[p.init_price - 1] = ask[p.init_price + 1] = p.init_depth;
      prev_mid2 = 2 * p.init_price, last_tick = p.init_price, origin = 0, fundamental = p.fundamental_price;
    }
    measure();
    for (int k = 0; k < slots; ++k) {
      quotes[k] = {0, 0, 0, 0};
      accounts[k] = {0, 0, 0};
      launch.prev_value[m * slots + k] = 0;
      launch.ended[m * slots + k] = 0;
    }
    launch.done[m] = 0;
    launch.elapsed[m] = opening.elapsed;
    launch.arrival2[m] = mark();
    std::fill(mid_history(), mid_history() + kHistory + 1, mark());
    std::fill(volume_history(), volume_history() + kHistory, 0);
  }

  void observe(float* out) const {
    const TaskParams& task = launch.task;
    View<const int32_t*> view{bid, ask, levels, best_bid, best_ask, mid_history()[0], last_tick, origin, mid_history(),
                              volume_history(), launch.arrival2[m], 0, launch.elapsed[m], p.inventory_limit, {}, {}, {}};
    float* rows = out + m * slots * kObservation;
    for (int k = 0; k < slots; ++k) {
      float* row = rows + k * kObservation;
      view.role = task.role[k];
      view.quote = quotes[k];
      view.account = accounts[k];
      view.target = target(k);
      const int first_own = k == 0 ? 0 : kMarketFeatures;  // all slots see the same market
      if (k > 0) std::memcpy(row, rows, kMarketFeatures * sizeof(float));
      for (int i = first_own; i < kObservation; ++i) row[i] = observation_feature(task, view, i);
    }
  }

  Target target(int k) const {
    return target_of(launch.task, launch.task.role[k], mid_history(), key, t, k, accounts[k].inventory);
  }

  // Slot k's action as a quote; the door comes later.
  Quote decode(int k) {
    const TaskParams& task = launch.task;
    const int64_t row = m * slots + k;
    if (launch.ended[row]) return Quote{0, 0, 0, 0};
    return task.action_type == kActionTypeContinuous
               ? decode_continuous(task, task.role[k], launch.actions + row * launch.action_stride, mid_history()[0],
                                   target(k), quotes[k], error)
               : decode_discrete(task, task.role[k], launch.choices[row], mid_history()[0], target(k), error);
  }

  // After the last decision: what is left of blocks goes into the market, until nothing is or it has taken too long.
  void force_blocks() {
    const TaskParams& task = launch.task;
    for (int a = 0; a < task.forced_auctions && !stopped(); ++a) {
      Quote forced[kMaxSlots] = {};
      bool any = false;
      for (int k = 0; k < slots; ++k) {
        if (task.role[k] != kRoleExecutor || launch.ended[m * slots + k]) continue;
        forced[k] = through_door(forced_quote(task, target(k)), accounts[k].inventory, p);
        any |= forced[k].bid_qty + forced[k].ask_qty > 0;
      }
      if (!any) return;
      auction(forced);
    }
  }

  void rest() {
    for (int k = 0; k < slots; ++k) {
      const int64_t row = m * slots + k;
      launch.reward[row] = 0.0f;
      if (launch.fills) launch.fills[2 * row] = launch.fills[2 * row + 1] = 0;
    }
  }

  void lower_flags() {
    std::fill(launch.terminated + m * slots, launch.terminated + (m + 1) * slots, 0);
    std::fill(launch.truncated + m * slots, launch.truncated + (m + 1) * slots, 0);
    std::fill(launch.over + m * slots, launch.over + (m + 1) * slots, 0);
  }

  void env_step() {
    const TaskParams& task = launch.task;
    if (launch.done[m] || stopped()) {
      rest();
      if (!stopped() && task.autoreset == kAutoresetDisabled) return;
      lower_flags();
      if (stopped()) return;
      reset();
      observe(launch.observation);
      store();
      return;
    }
    const int32_t mid2_before = mid_history()[0], fundamental_before = fundamental;
    const int64_t volume_before = volume;
    Quote fresh[kMaxSlots];
    Account before[kMaxSlots];
    for (int k = 0; k < slots; ++k) {
      before[k] = accounts[k];
      fresh[k] = decode(k);
    }
    decision(fresh, 0);
    const int32_t elapsed = launch.elapsed[m] + 1;
    if (elapsed >= task.horizon) force_blocks();
    if (stopped()) {
      std::fill(launch.reward + m * slots, launch.reward + (m + 1) * slots, 0.0f);
      lower_flags();
      store();
      return;
    }
    write_fills(m * slots);

    int32_t *mids = mid_history(), *volumes = volume_history();
    const int32_t mid2 = mark();
    std::copy_backward(mids, mids + kHistory, mids + kHistory + 1);
    std::copy_backward(volumes, volumes + kHistory - 1, volumes + kHistory);
    mids[0] = mid2;
    volumes[0] = (int32_t)std::min<int64_t>(volume - volume_before, 0x7fffffff);
    launch.elapsed[m] = elapsed;

    const bool on_fundamental = task.mark == kMarkFundamental;
    Decision d;
    d.mark2_before = on_fundamental ? 2 * (int64_t)fundamental_before : mid2_before;
    d.mark2_after = on_fundamental ? 2 * (int64_t)fundamental : mid2;
    d.arrival2 = launch.arrival2[m];
    bool all_ended = true;
    for (int k = 0; k < slots; ++k) {
      const int64_t row = m * slots + k;
      const bool liquidates = task.mark == kMarkLiquidation;
      d.before = before[k], d.after = accounts[k];
      d.prev_value = launch.prev_value[row];
      d.value = marked_value(task, d.after, d.mark2_after,
                             liquidates ? liquidation_cash(bid, ask, levels, d.after.inventory, origin, last_tick) : 0);
      d.remaining = target(k).remaining;
      const End end = launch.ended[row] ? kEndGoesOn : end_of(task, task.role[k], d.value, d.remaining, elapsed);
      d.ends = end != kEndGoesOn;
      launch.reward[row] = launch.ended[row] ? 0.0f : reward_of(task, task.role[k], d, bought[k] + sold[k]);
      launch.prev_value[row] = d.value;
      launch.terminated[row] = end == kEndTerminated;
      launch.truncated[row] = end == kEndTruncated;
      launch.over[row] = d.ends;
      launch.ended[row] |= d.ends;
      all_ended &= launch.ended[row] != 0;
    }
    launch.done[m] = all_ended;
    observe(launch.final_observation);
    if (all_ended && task.autoreset == kAutoresetSameStep) {
      reset();
      observe(launch.observation);
    } else {
      std::memcpy(launch.observation + m * slots * kObservation, launch.final_observation + m * slots * kObservation,
                  slots * kObservation * sizeof(float));
    }
    store();
  }

  void env_reset() {
    if (launch.reset_mask && !launch.reset_mask[m]) return;
    reset();
    error = 0;
    std::fill(launch.reward + m * slots, launch.reward + (m + 1) * slots, 0.0f);
    lower_flags();
    observe(launch.observation);
    store();
  }
};

}  // namespace ks
