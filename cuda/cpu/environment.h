// environment.h: one environment step or reset of a market on one core, the counterpart of warp/environment.cuh.
// Loops and memory only: actions, rewards and observations are model/tasks.h's, in the order of docs/environment.md.
#pragma once

#include "cpu/market.h"
#include "model/step.h"

namespace ks {

struct Environment : Market {
  using Market::Market;

  int32_t* mid_history() const { return launch.mid_history + m * (kHistory + 1); }
  int32_t* volume_history() const { return launch.volume_history + m * kHistory; }

  void reset() {
    const TaskParams& task = launch.task;
    episode += 1;
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
    } else {
      std::fill(bid, bid + levels, 0);
      std::fill(ask, ask + levels, 0);
      bid[p.init_price - 1] = ask[p.init_price + 1] = p.init_depth;
    }
    static_cast<MarketNumbers&>(*this) = opening_numbers(launch, task, p, opening, key, error);
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

  // Slot k's action as a quote.
  Quote decode(int k) {
    const TaskParams& task = launch.task;
    const int64_t row = m * slots + k;
    if (launch.ended[row]) return Quote{0, 0, 0, 0};
    const float* action = launch.actions ? launch.actions + row * launch.action_stride : nullptr;
    return quote_of_action(launch, task, task.role[k], p, action, row, mid_history()[0], target(k), quotes[k],
                           accounts[k].inventory, error);
  }

  // After the last decision: what is left of blocks goes into the market, until nothing is or it has taken too long.
  void force_blocks() {
    const TaskParams& task = launch.task;
    const int32_t most = forced_auctions(task, launch.elapsed[m]);
    for (int a = 0; a < most; ++a) {
      Quote forced[kMaxSlots];
      bool any = false;
      for (int k = 0; k < slots; ++k) {
        const bool ended = launch.ended[m * slots + k];
        forced[k] = forced_order(task, task.role[k], ended, p, target(k), accounts[k].inventory);
        any |= has_quantity(forced[k]);
      }
      if (!any || !auction(forced)) return;
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
  }

  void env_step() {
    const TaskParams& task = launch.task;
    const Part part = part_of(launch, task, stopped(), launch.done[m], true);
    if (!part.plays) {
      rest();
      if (part.frozen) return;
      lower_flags();
      if (!part.restarts) return;
      reset();
      observe(launch.observation);
      store();
      return;
    }
    const int32_t fundamental_before = fundamental;
    const int64_t volume_before = volume;
    Quote fresh[kMaxSlots];
    Account before[kMaxSlots];
    for (int k = 0; k < slots; ++k) {
      before[k] = accounts[k];
      fresh[k] = decode(k);
    }
    decision(fresh, 0);
    const int32_t elapsed = launch.elapsed[m] + 1;
    if (!stopped()) force_blocks();
    if (stopped()) {
      std::fill(launch.reward + m * slots, launch.reward + (m + 1) * slots, 0.0f);
      lower_flags();
      store();
      return;
    }
    write_fills(m * slots);

    int32_t *mids = mid_history(), *volumes = volume_history();
    std::copy_backward(mids, mids + kHistory, mids + kHistory + 1);
    std::copy_backward(volumes, volumes + kHistory - 1, volumes + kHistory);
    mids[0] = mark();
    volumes[0] = recorded_volume(volume - volume_before);
    launch.elapsed[m] = elapsed;

    bool all_ended = true;
    for (int k = 0; k < slots; ++k) {
      const int64_t row = m * slots + k, inventory = accounts[k].inventory;
      const bool liquidates = task.mark == kMarkLiquidation;
      const int64_t cash = liquidates ? liquidation_cash(bid, ask, levels, inventory, origin, last_tick) : 0;
      const Outcome outcome =
          outcome_of(task, task.role[k], before[k], accounts[k], fundamental_before, fundamental, mids,
                     launch.arrival2[m], launch.prev_value[row], cash, target(k).remaining, bought[k] + sold[k], elapsed,
                     launch.ended[row]);
      launch.reward[row] = outcome.reward;
      launch.prev_value[row] = outcome.value;
      launch.terminated[row] = outcome.end == kEndTerminated;
      launch.truncated[row] = outcome.end == kEndTruncated;
      launch.ended[row] |= outcome.end != kEndGoesOn;
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
