// cpu_environment.h: one environment step or reset of a market on one core, the counterpart of environment_kernel.cuh.
// Loops and memory only: actions, rewards and observations are tasks.h's, in the order of docs/environment.md.
#pragma once

#include "cpu_market.h"
#include "tasks.h"

namespace ks {

struct Environment : Market {
  using Market::Market;

  int32_t* mid_history() const { return launch.mid_history + m * (kHistory + 1); }
  int32_t* volume_history() const { return launch.volume_history + m * kHistory; }

  void reset(bool explicit_reset) {
    const TaskParams& task = launch.task;
    episode += 1;
    t = 0;
    key = episode_key(launch.seed[m], episode);
    volume = trades = 0;
    if (task.bank_size > 0) {
      const int64_t row = word_choice(random_word(key, 0, kWarmStartWord), task.bank_size) +
                          (task.bank_per_market ? m * task.bank_size : 0);
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
    }
    launch.done[m] = 0;
    launch.elapsed[m] = explicit_reset && task.stagger && episode == 0
                            ? word_choice(random_word(key, 0, kStaggerWord), task.horizon)
                            : 0;
    std::fill(mid_history(), mid_history() + kHistory + 1, mark());
    std::fill(volume_history(), volume_history() + kHistory, 0);
    if (explicit_reset) error = 0;
  }

  void observe(float* out) const {
    const TaskParams& task = launch.task;
    View<const int32_t*> view{bid, ask, levels, best_bid, best_ask, mid_history()[0], last_tick, origin,
                              mid_history(), volume_history(), 0, launch.elapsed[m], p.inventory_limit, 0, 0, {}, {}};
    float* rows = out + m * slots * kObservation;
    for (int k = 0; k < slots; ++k) {
      float* row = rows + k * kObservation;
      view.role = task.role[k];
      view.quote = quotes[k];
      view.account = accounts[k];
      slot_direction(k, view.side, view.remaining);
      const int first_own = k == 0 ? 0 : kMarketFeatures;  // all slots see the same market
      if (k > 0) std::memcpy(row, rows, kMarketFeatures * sizeof(float));
      for (int i = first_own; i < kObservation; ++i) row[i] = observation_feature(task, view, i);
    }
  }

  // The side of slot k's next order, and how much it may still trade.
  void slot_direction(int k, int32_t& side, int64_t& remaining) const {
    side = 0, remaining = kMaxPrice;
    if (launch.task.role[k] == kMomentum) side = momentum_side(mid_history(), key, t, k);
    if (launch.task.role[k] == kNoise) {
      Target target = noise_target(launch.task, key, k, accounts[k].inventory);
      side = target.side, remaining = target.remaining;
    }
  }

  void env_step() {
    const TaskParams& task = launch.task;
    if (launch.done[m] || stopped()) {
      std::fill(launch.reward + m * slots, launch.reward + (m + 1) * slots, 0.0f);
      if (launch.fills) std::fill(launch.fills + 2 * m * slots, launch.fills + 2 * (m + 1) * slots, 0);
      if (!stopped() && task.autoreset == kDisabled) return;
      launch.terminated[m] = launch.truncated[m] = 0;
      if (stopped()) return;
      reset(false);
      observe(launch.observation);
      store();
      return;
    }
    const int32_t mid2_before = mid_history()[0], fundamental_before = fundamental;
    const int64_t volume_before = volume;
    Quote fresh[kMaxSlots];
    Account before[kMaxSlots];
    for (int k = 0; k < slots; ++k) {
      int32_t side;
      int64_t most;
      slot_direction(k, side, most);
      before[k] = accounts[k];
      fresh[k] = task.action_type == kContinuous
                     ? decode_continuous(task, task.role[k], launch.actions + (m * slots + k) * kActionSize, mid2_before,
                                         side, most, quotes[k], error)
                     : decode_discrete(task, task.role[k], launch.choices[m * slots + k], mid2_before, side, most, error);
    }
    decision(fresh, 0);
    if (stopped()) {
      std::fill(launch.reward + m * slots, launch.reward + (m + 1) * slots, 0.0f);
      launch.terminated[m] = launch.truncated[m] = 0;
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
    const int32_t elapsed = ++launch.elapsed[m];

    const bool on_fundamental = task.mark == kFundamentalMark;
    const int64_t mark2_before = on_fundamental ? 2 * (int64_t)fundamental_before : mid2_before;
    const int64_t mark2 = on_fundamental ? 2 * (int64_t)fundamental : mid2;
    int64_t value[kMaxSlots];
    bool terminated = false;
    for (int k = 0; k < slots; ++k) {
      int64_t cash = task.mark == kLiquidationMark
                         ? liquidation_cash(bid, ask, levels, accounts[k].inventory, origin, last_tick)
                         : 0;
      value[k] = marked_value(task, accounts[k], mark2, cash);
      terminated |= task.max_loss > 0.0 && (double)value[k] / 2000.0 <= -task.max_loss;
    }
    const bool truncated = !terminated && elapsed >= task.horizon;
    const bool ends = terminated || truncated;
    for (int k = 0; k < slots; ++k) {
      int32_t side;
      int64_t remaining;
      slot_direction(k, side, remaining);
      launch.reward[m * slots + k] = reward_of(task, task.role[k], before[k], accounts[k], launch.prev_value[m * slots + k],
                                               value[k], mark2_before, mark2, ends, remaining);
      launch.prev_value[m * slots + k] = value[k];
    }
    launch.terminated[m] = terminated;
    launch.truncated[m] = truncated;
    launch.done[m] = ends;
    observe(launch.final_observation);
    if (ends && task.autoreset == kSameStep) {
      reset(false);
      observe(launch.observation);
    } else {
      std::memcpy(launch.observation + m * slots * kObservation, launch.final_observation + m * slots * kObservation,
                  slots * kObservation * sizeof(float));
    }
    store();
  }

  void env_reset() {
    if (launch.reset_mask && !launch.reset_mask[m]) return;
    reset(true);
    std::fill(launch.reward + m * slots, launch.reward + (m + 1) * slots, 0.0f);
    launch.terminated[m] = launch.truncated[m] = 0;
    observe(launch.observation);
    store();
  }
};

}  // namespace ks
