// environment_kernel.cuh: one environment step or reset of the market on chip, in the same launch as its auctions.
// Loops and memory only: actions, rewards and observations are tasks.h's, in the order of docs/environment.md.
#pragma once

#include "persistent_kernel.cuh"
#include "tasks.h"

namespace ks {

template <int kLevels, int kWarps, bool kOptions>
struct EnvironmentOnChip : MarketOnChip<kLevels, kWarps, kOptions, true> {
  using Market = MarketOnChip<kLevels, kWarps, kOptions, true>;
  using Market::account, Market::bid, Market::ask, Market::error, Market::episode, Market::first_tick,
      Market::fundamental, Market::group, Market::key, Market::last_tick, Market::launch, Market::leads, Market::m,
      Market::origin, Market::owns_slot, Market::p, Market::prev_mid2, Market::quote, Market::stopped, Market::t,
      Market::trades, Market::volume;

  using Market::Market;

  __device__ __forceinline__ int32_t* mid_history() const { return launch.mid_history + m * (kHistory + 1); }
  __device__ __forceinline__ int32_t* volume_history() const { return launch.volume_history + m * kHistory; }
  __device__ __forceinline__ int64_t slot_row() const { return m * launch.slots + group.lane; }

  __device__ __forceinline__ void write_flags(bool terminated, bool truncated) {
    if (!leads()) return;
    launch.terminated[m] = terminated;
    launch.truncated[m] = truncated;
  }

  __device__ __forceinline__ void slot_direction(int k, int64_t inventory, int32_t& side, int64_t& remaining) const {
    side = 0;
    remaining = kMaxPrice;
    if (launch.task.role[k] == kMomentum) side = momentum_side(mid_history(), key, t, k);
    if (launch.task.role[k] == kNoise) {
      const Target target = noise_target(launch.task, key, k, inventory);
      side = target.side;
      remaining = target.remaining;
    }
  }

  __device__ __forceinline__ void reset(bool explicit_reset) {
    const TaskParams& task = launch.task;
    episode += 1;
    t = 0;
    key = episode_key(launch.seed[m], episode);
    volume = trades = 0;
    if (task.bank_size > 0) {
      const int64_t row = word_choice(random_word(key, 0, kWarmStartWord), task.bank_size) +
                          (task.bank_per_market ? m * task.bank_size : 0);
      this->load_book(launch.bank_bid + row * kLevels, launch.bank_ask + row * kLevels);
      const int32_t* scalars = launch.bank_scalars + 4 * row;
      prev_mid2 = scalars[0];
      last_tick = scalars[1];
      origin = scalars[2];
      fundamental = scalars[3];
    } else {
#pragma unroll
      for (int i = 0; i < Market::kTicks; ++i) {
        bid[i] = first_tick + i == p.init_price - 1 ? p.init_depth : 0;
        ask[i] = first_tick + i == p.init_price + 1 ? p.init_depth : 0;
      }
      prev_mid2 = 2 * p.init_price;
      last_tick = p.init_price;
      origin = 0;
      fundamental = p.fundamental_price;
    }
    quote = Quote{0, 0, 0, 0};
    account = Account{0, 0, 0};
    if (owns_slot()) launch.prev_value[slot_row()] = 0;
    if (explicit_reset) error = 0;
    const int32_t mid2 = this->mark();
    group.sync();  // every reader of the old history is done
    if (leads()) {
      launch.done[m] = 0;
      launch.elapsed[m] = explicit_reset && task.stagger && episode == 0
                              ? word_choice(random_word(key, 0, kStaggerWord), task.horizon)
                              : 0;
      for (int i = 0; i <= kHistory; ++i) mid_history()[i] = mid2;
      for (int i = 0; i < kHistory; ++i) volume_history()[i] = 0;
    }
    group.sync();
  }

  // Write the observation of every slot, a feature a thread, to `out` and (not null) to `copy`.
  __device__ __forceinline__ void observe(float* out, float* copy) {
    this->store_slots();
    this->publish();
    int32_t best_bid, best_ask;
    this->local_best(best_bid, best_ask);
    this->group_best(best_bid, best_ask);
    group.sync();
    View<const int32_t*> view{this->buy,       this->sell,       kLevels, best_bid,           best_ask,
                              mid_history()[0], last_tick,        origin,  mid_history(),      volume_history(),
                              0,               launch.elapsed[m], p.inventory_limit, 0,        0,
                              {0, 0, 0, 0},    {0, 0, 0}};
    for (int k = 0; k < launch.slots; ++k) {
      const int64_t row = m * launch.slots + k;
      const int32_t* q = launch.quotes + 4 * row;
      view.role = launch.task.role[k];
      view.quote = Quote{q[0], q[1], q[2], q[3]};
      view.account = Account{launch.cash[row], launch.inventory[row], launch.fees[row]};
      slot_direction(k, view.account.inventory, view.side, view.remaining);
      for (int i = group.thread(); i < kObservation; i += Market::kThreads) {
        const float feature = observation_feature(launch.task, view, i);
        out[row * kObservation + i] = feature;
        if (copy) copy[row * kObservation + i] = feature;
      }
    }
    group.sync();
  }

  // What the launch asks of this market: a step, the reset that follows or replaces it, or an explicit reset.
  __device__ __forceinline__ void step_or_reset() {
    const bool explicit_reset = launch.env_mode == kEnvReset;
    bool restart;
    if (explicit_reset) {
      if (launch.reset_mask && !launch.reset_mask[m]) return;
      restart = true;
    } else if (stopped()) {
      restart = false;
    } else if (launch.done[m]) {
      if (owns_slot()) launch.reward[slot_row()] = 0.0f;
      if (launch.task.autoreset == kDisabled) return;
      restart = true;
    } else {
      restart = advance();
    }
    if (stopped() && !explicit_reset) {
      if (owns_slot()) launch.reward[slot_row()] = 0.0f;
      write_flags(false, false);
    } else if (restart) {
      const bool keeps_flags = !explicit_reset && launch.task.autoreset == kSameStep;
      reset(explicit_reset);
      if (!keeps_flags) {
        if (owns_slot()) launch.reward[slot_row()] = 0.0f;
        write_flags(false, false);
      }
      observe(launch.observation, nullptr);
    }
    this->store();
  }

  // One decision and everything that follows from it; true if the market has to be reset in this same step.
  __device__ __forceinline__ bool advance() {
    const TaskParams& task = launch.task;
    const int32_t mid2_before = mid_history()[0], fundamental_before = fundamental;
    const int64_t volume_before = volume;
    const Account before = account;
    Quote fresh = quote;
    int32_t action_error = 0;
    if (owns_slot()) {
      const int k = group.lane;
      int32_t side;
      int64_t most;
      slot_direction(k, account.inventory, side, most);
      fresh = task.action_type == kContinuous
                  ? decode_continuous(task, task.role[k], launch.actions + slot_row() * kActionSize, mid2_before, side,
                                      most, quote, action_error)
                  : decode_discrete(task, task.role[k], launch.choices[slot_row()], mid2_before, side, most, action_error);
      if (action_error) atomicOr(launch.error + m, action_error);
    }
    this->decision(true, fresh, 0);
    group.sync();
    error |= launch.error[m];  // what other slots' actions added
    if (stopped()) return false;
    this->write_fills(m * launch.slots);

    const int32_t mid2 = this->mark();
    const int32_t elapsed = launch.elapsed[m] + 1;
    group.sync();  // every thread has read the old history
    if (leads()) {
      for (int i = kHistory; i > 0; --i) mid_history()[i] = mid_history()[i - 1];
      for (int i = kHistory - 1; i > 0; --i) volume_history()[i] = volume_history()[i - 1];
      const int64_t fresh_volume = volume - volume_before;
      mid_history()[0] = mid2;
      volume_history()[0] = fresh_volume < 0x7fffffff ? (int32_t)fresh_volume : 0x7fffffff;
      launch.elapsed[m] = elapsed;
    }
    if (task.mark == kLiquidationMark) this->publish();
    group.sync();

    const bool on_fundamental = task.mark == kFundamentalMark;
    const int64_t mark2_before = on_fundamental ? 2 * (int64_t)fundamental_before : mid2_before;
    const int64_t mark2 = on_fundamental ? 2 * (int64_t)fundamental : mid2;
    int64_t value = 0;
    bool loses = false;
    if (owns_slot()) {
      const int64_t cash = task.mark == kLiquidationMark
                               ? liquidation_cash<const int32_t*>(this->buy, this->sell, kLevels, account.inventory,
                                                                  origin, last_tick)
                               : 0;
      value = marked_value(task, account, mark2, cash);
      loses = task.max_loss > 0.0 && (double)value / 2000.0 <= -task.max_loss;
    }
    const bool terminated = kWarps > 1 ? __syncthreads_or(loses) : __any_sync(kAllLanes, loses);
    const bool truncated = !terminated && elapsed >= task.horizon;
    const bool ends = terminated || truncated;
    if (owns_slot()) {
      int32_t side;
      int64_t remaining;
      slot_direction(group.lane, account.inventory, side, remaining);
      launch.reward[slot_row()] = reward_of(task, task.role[group.lane], before, account, launch.prev_value[slot_row()],
                                            value, mark2_before, mark2, ends, remaining);
      launch.prev_value[slot_row()] = value;
    }
    write_flags(terminated, truncated);
    if (leads()) launch.done[m] = ends;
    const bool again = ends && task.autoreset == kSameStep;
    observe(launch.final_observation, again ? nullptr : launch.observation);
    return again;
  }
};

}  // namespace ks
