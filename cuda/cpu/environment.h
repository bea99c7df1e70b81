// environment.h: one environment step or reset of a market on one core, the counterpart of warp/environment.cuh.
// Loops and memory only: actions, rewards and observations are model/tasks.h's, in the order of docs/environment.md.
#pragma once

#include "cpu/market.h"
#include "model/step.h"

namespace ks {

template <bool kLevers = false>
struct Environment : Market<kLevers> {
  using Base = Market<kLevers>;
  using Base::accounts, Base::ask, Base::best_ask, Base::best_bid, Base::bid, Base::bought, Base::episode, Base::error,
      Base::fundamental, Base::key, Base::last_tick, Base::launch, Base::levels, Base::m, Base::origin, Base::p,
      Base::quotes, Base::regime, Base::slots, Base::sold, Base::t, Base::trades, Base::volume;
  using Base::auction, Base::decision, Base::mark, Base::measure, Base::stopped, Base::write_fills;

  const TaskParams& task;
  int32_t fundamental_before;
  int64_t volume_before;
  Account before[kMaxSlots];
  Quote fresh[kMaxSlots];

  Environment(const Launch& launch, int64_t m, Scratch& scratch)
      : Base(launch, m, scratch), task(launch.task), fundamental_before(fundamental), volume_before(volume) {}

  int32_t* mid_history() const { return launch.mid_history + m * (kHistory + 1); }
  int32_t* volume_history() const { return launch.volume_history + m * kHistory; }

  void begin_episode() {
    episode += 1;
    key = episode_key(launch.seed[m], episode);
    volume = trades = 0;
    const Opening opening = opening_of(launch, task, m, key, episode);
    if (task.scenarios > 0) {
      launch.scenario[m] = opening.scenario;
      launch.params[m] = launch.scenario_params[opening.scenario];
      if constexpr (kLevers) p = launch.params[m];
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
    if (kLevers) regime = opening_regime(launch, task, p, key, opening.bank_row);
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

  void write_features(float* out) const {
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
    const int64_t row = m * slots + k;
    if (launch.ended[row]) return Quote{0, 0, 0, 0};
    const float* action = launch.actions ? launch.actions + row * launch.action_stride : nullptr;
    return quote_of_action(launch, task, task.role[k], p, action, row, mid_history()[0], target(k), quotes[k],
                           accounts[k].inventory, error);
  }

  // After the last decision: what is left of blocks goes into the market, until nothing is or it has taken too long.
  void force_blocks() {
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

  // What model/step.h asks for ------------------------------------------------------------------------------------------

  void load() {}
  bool any(bool holds) const { return holds; }

  Part part() const {
    return part_of(launch, task, stopped(), launch.done[m], !launch.reset_mask || launch.reset_mask[m]);
  }

  // A market that does not play has no rewards, and has its flags lowered unless it is frozen.
  void begin(const Part& part) {
    if (!part.plays) clear_results(part.frozen);
  }
  void clear_results(bool frozen) {
    const bool steps = launch.env_mode == kLaunchModeEnvStep;
    for (int64_t row = m * slots; row < (m + 1) * slots; ++row) {
      if (steps && launch.fills) launch.fills[2 * row] = launch.fills[2 * row + 1] = 0;
      if (steps || !frozen) launch.reward[row] = 0.0f;
      if (!frozen) launch.terminated[row] = launch.truncated[row] = launch.over[row] = 0;
    }
  }

  void decode_actions(const Part&) {
    for (int k = 0; k < slots; ++k) {
      before[k] = accounts[k];
      fresh[k] = decode(k);
    }
  }

  bool play(Part& part) {
    decision(fresh, 0);
    if (!stopped()) force_blocks();
    if (stopped()) part.plays = false, clear_results(false);
    return true;
  }

  void judge(const Part& part) {
    if (!part.plays) return;
    write_fills(m * slots);
    int32_t *mids = mid_history(), *volumes = volume_history();
    std::copy_backward(mids, mids + kHistory, mids + kHistory + 1);
    std::copy_backward(volumes, volumes + kHistory - 1, volumes + kHistory);
    mids[0] = mark();
    volumes[0] = recorded_volume(volume - volume_before);
    const int32_t elapsed = launch.elapsed[m] += 1;
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
      launch.over[row] = outcome.end != kEndGoesOn;
      launch.ended[row] |= outcome.end != kEndGoesOn;
      all_ended &= launch.ended[row] != 0;
    }
    launch.done[m] = all_ended;
  }

  bool all_ended() const { return launch.done[m]; }

  void observe(const Part& part) {
    if (!part.plays) return;
    const int64_t first = m * slots * kObservation;
    write_features(launch.final_observation);
    if (part.restarts) return;  // its observation is that of the next episode
    std::memcpy(launch.observation + first, launch.final_observation + first, slots * kObservation * sizeof(float));
  }

  bool begin_episodes(const Part&) {
    if (launch.env_mode == kLaunchModeEnvReset) error = 0;
    begin_episode();
    return true;
  }

  void observe_opening(const Part&) { write_features(launch.observation); }

  void store(const Part& part) {
    if (!part.frozen) Base::store();
  }
};

}  // namespace ks
