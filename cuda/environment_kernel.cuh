// environment_kernel.cuh: one environment step or reset of the market on chip, in the same launch as its auctions.
// Loops and memory only: actions, rewards and observations are tasks.h's, in the order of docs/environment.md.
//
// A step is short, so what it costs is waiting for global memory: everything is read at the start, at once, and written
// at the end; what threads tell each other goes over the market's desk in shared memory.
#pragma once

#include "persistent_kernel.cuh"
#include "tasks.h"

namespace ks {

// One slot as all threads of the market see it.
struct DeskSlot {
  int64_t cash, inventory, fees;
  Quote quote;
};

// What a market's threads share besides the book. Its slots follow it in memory.
struct Desk {
  int32_t mid_history[kHistory + 1];
  int32_t volume_history[kHistory];
  int32_t action_error;

  __device__ __forceinline__ DeskSlot& slot(int k) { return reinterpret_cast<DeskSlot*>(this + 1)[k]; }
};

constexpr int kHistoryInts = 2 * kHistory + 1;  // both histories, in one row
static_assert(sizeof(Desk) == 4 * kDeskInts && sizeof(DeskSlot) == 4 * kDeskSlotInts, "layout.h tells the launcher");
static_assert(sizeof(Desk) % 8 == 0, "its slots hold int64");

template <int kBins, bool kOptions>
struct EnvironmentOnChip : MarketOnChip<kBins, kOptions, true> {
  using Market = MarketOnChip<kBins, kOptions, true>;
  using Market::account, Market::best_ask, Market::best_bid, Market::error, Market::episode, Market::fundamental,
      Market::key, Market::lane, Market::last_tick, Market::launch, Market::leads, Market::levels, Market::m,
      Market::origin, Market::owns_slot, Market::p, Market::prev_mid2, Market::quote, Market::stopped, Market::t,
      Market::trades, Market::volume;

  Desk& desk;
  const TaskParams& task;
  bool done, terminated, truncated;
  int32_t elapsed;
  int64_t prev_value;  // of this thread's slot
  float reward;

  static __device__ __forceinline__ int shared_ints(const Launch& launch) {
    return Market::shared_ints(launch) + ((kDeskInts + kDeskSlotInts * launch.slots + 3) & ~3);
  }

  __device__ __forceinline__ EnvironmentOnChip(const Launch& launch, int64_t m, int* shared)
      : Market(launch, m, shared), desk(*reinterpret_cast<Desk*>(shared + Market::shared_ints(launch))), task(launch.task),
        done(launch.done[m]), terminated(false), truncated(false), elapsed(launch.elapsed[m]),
        prev_value(0), reward(0.0f) {
    const int i = lane;
    if (i < kHistoryInts) desk.mid_history[i] = *history(i);
    if (i == kHistoryInts) desk.action_error = 0;
    if (owns_slot()) prev_value = launch.prev_value[slot_row()];
  }

  // Place i of the two histories in global memory; on the desk they are one row.
  __device__ __forceinline__ int32_t* history(int i) const {
    return i <= kHistory ? launch.mid_history + m * (kHistory + 1) + i
                         : launch.volume_history + m * kHistory + (i - kHistory - 1);
  }

  __device__ __forceinline__ int64_t slot_row() const { return m * launch.slots + lane; }

  __device__ __forceinline__ void store_environment() {
    this->store();
    const int i = lane;
    if (i < kHistoryInts) *history(i) = desk.mid_history[i];
    if (owns_slot()) {
      launch.prev_value[slot_row()] = prev_value;
      launch.reward[slot_row()] = reward;
    }
    if (leads()) {
      launch.episode[m] = episode;
      launch.done[m] = done;
      launch.elapsed[m] = elapsed;
      launch.terminated[m] = terminated;
      launch.truncated[m] = truncated;
    }
  }

  __device__ __forceinline__ void slot_direction(int k, int64_t inventory, int32_t& side, int64_t& remaining) const {
    side = 0;
    remaining = kMaxPrice;
    if (task.role[k] == kMomentum) side = momentum_side(desk.mid_history, key, t, k);
    if (task.role[k] == kNoise) {
      const Target target = noise_target(task, key, k, inventory);
      side = target.side;
      remaining = target.remaining;
    }
  }

  __device__ __forceinline__ void reset(bool explicit_reset) {
    episode += 1;
    t = 0;
    key = episode_key(launch.seed[m], episode);
    this->first_word = word_counter(key, t, lane);
    volume = trades = 0;
    if (leads()) launch.trades[m] = 0;
    if (task.bank_size > 0) {
      const int64_t row = word_choice(random_word(key, 0, kWarmStartWord), task.bank_size) +
                          (task.bank_per_market ? m * task.bank_size : 0);
      __syncwarp();
      this->load_book(launch.bank_bid + row * levels, launch.bank_ask + row * levels);
      const int32_t* scalars = launch.bank_scalars + 4 * row;
      prev_mid2 = scalars[0];
      last_tick = scalars[1];
      origin = scalars[2];
      fundamental = scalars[3];
    } else {
      this->open_book();
      prev_mid2 = 2 * p.init_price;
      last_tick = p.init_price;
      origin = 0;
      fundamental = p.fundamental_price;
    }
    quote = Quote{0, 0, 0, 0};
    account = Account{0, 0, 0};
    prev_value = 0;
    done = false;
    elapsed = explicit_reset && task.stagger && episode == 0 ? word_choice(random_word(key, 0, kStaggerWord), task.horizon)
                                                             : 0;
    if (explicit_reset) error = 0;
    const int32_t mid2 = this->mark();
    __syncwarp();  // every reader of the old history is done
    const int i = lane;
    if (i < kHistoryInts) desk.mid_history[i] = i <= kHistory ? mid2 : 0;
  }

  // Write the observation of every slot, a feature a thread, to `out` and (not null) to `copy`.
  __device__ __forceinline__ void observe(float* out, float* copy) {
    if (owns_slot()) desk.slot(lane) = DeskSlot{account.cash, account.inventory, account.fees, quote};
    __syncwarp();
    View<const int32_t*> view{this->buy, this->sell, levels, best_bid, best_ask, desk.mid_history[0], last_tick, origin,
                              desk.mid_history, desk.volume_history, 0, elapsed, p.inventory_limit, 0, 0,
                              {0, 0, 0, 0}, {0, 0, 0}};
#pragma unroll 1
    for (int k = 0; k < launch.slots; ++k) {
      const DeskSlot& slot = desk.slot(k);
      view.role = task.role[k];
      view.quote = slot.quote;
      view.account = Account{slot.cash, slot.inventory, slot.fees};
      slot_direction(k, slot.inventory, view.side, view.remaining);
      const int64_t row = (m * launch.slots + k) * kObservation;
#pragma unroll 1
      for (int i = lane; i < kObservation; i += kWarpLanes) {
        const float feature = observation_feature(task, view, i);
        out[row + i] = feature;
        if (copy) copy[row + i] = feature;
      }
    }
    __syncwarp();
  }

  // What the launch asks of this market: a step, the reset that follows or replaces it, or an explicit reset.
  __device__ __forceinline__ void step_or_reset() {
    const bool explicit_reset = launch.env_mode == kEnvReset;
    if (explicit_reset && launch.reset_mask && !launch.reset_mask[m]) return;
    bool restart = explicit_reset;
    if (!explicit_reset && (stopped() || done)) {
      this->bought = this->sold = 0;
      this->write_fills(m * launch.slots);
    }
    if (!explicit_reset && !stopped()) {
      if (!done) {
        restart = advance();
      } else if (task.autoreset == kDisabled) {  // it stays as it is, and so do its flags
        if (owns_slot()) launch.reward[slot_row()] = 0.0f;
        return;
      } else {
        restart = true;
      }
    }
    if (restart) {
      reset(explicit_reset);
      observe(launch.observation, nullptr);
    }
    store_environment();
  }

  // One decision and everything that follows from it; true if the market has to be reset in this same step.
  __device__ __forceinline__ bool advance() {
    __syncwarp();  // the desk is laid
    const int32_t mid2_before = desk.mid_history[0], fundamental_before = fundamental;
    const int64_t volume_before = volume;
    const Account before = account;
    Quote fresh = quote;
    if (owns_slot()) {
      const int k = lane;
      int32_t side, action_error = 0;
      int64_t most;
      slot_direction(k, account.inventory, side, most);
      fresh = task.action_type == kContinuous
                  ? decode_continuous(task, task.role[k], launch.actions + slot_row() * kActionSize, mid2_before, side,
                                      most, quote, action_error)
                  : decode_discrete(task, task.role[k], launch.choices[slot_row()], mid2_before, side, most, action_error);
      if (action_error) atomicOr(&desk.action_error, action_error);
    }
    this->decision(true, fresh, 0);
    __syncwarp();
    error |= desk.action_error;
    this->write_fills(m * launch.slots);
    if (stopped()) return false;

    const int32_t mid2 = this->mark();
    elapsed += 1;
    const int i = lane;
    const int32_t older = i < kHistoryInts ? desk.mid_history[i] : 0;
    __syncwarp();  // every thread has read the old history
    if (i < kHistory || (i > kHistory && i < kHistoryInts - 1)) desk.mid_history[i + 1] = older;
    if (leads()) {
      const int64_t fresh_volume = volume - volume_before;
      desk.mid_history[0] = mid2;
      desk.volume_history[0] = fresh_volume < 0x7fffffff ? (int32_t)fresh_volume : 0x7fffffff;
    }
    __syncwarp();

    const bool on_fundamental = task.mark == kFundamentalMark;
    const int64_t mark2_before = on_fundamental ? 2 * (int64_t)fundamental_before : mid2_before;
    const int64_t mark2 = on_fundamental ? 2 * (int64_t)fundamental : mid2;
    int64_t value = 0;
    bool loses = false;
    if (owns_slot()) {
      const int64_t cash = task.mark == kLiquidationMark
                               ? liquidation_cash<const int32_t*>(this->buy, this->sell, levels, account.inventory,
                                                                  origin, last_tick)
                               : 0;
      value = marked_value(task, account, mark2, cash);
      loses = task.max_loss > 0.0 && (double)value / 2000.0 <= -task.max_loss;
    }
    terminated = __any_sync(kAllLanes, loses);
    truncated = !terminated && elapsed >= task.horizon;
    done = terminated || truncated;
    if (owns_slot()) {
      int32_t side;
      int64_t remaining;
      slot_direction(lane, account.inventory, side, remaining);
      reward = reward_of(task, task.role[lane], before, account, prev_value, value, mark2_before, mark2, done,
                         remaining);
      prev_value = value;
    }
    const bool again = done && task.autoreset == kSameStep;
    observe(launch.final_observation, again ? nullptr : launch.observation);
    return again;
  }
};

}  // namespace ks
