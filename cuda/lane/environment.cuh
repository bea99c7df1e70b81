// environment.cuh: one environment step or reset of 32 markets with one learned slot each, a lane each, in one
// launch. The counterpart of warp/environment.cuh for many environments of one slot. Loops and memory only: actions,
// rewards and observations are model/tasks.h's, in the order of docs/environment.md.
#pragma once

#include "lane/market.cuh"
#include "lane/tile.cuh"
#include "model/compiled_in.cuh"
#include "model/tasks.h"

namespace ks {

template <bool kOptions, bool kWide>
struct LaneEnvironment {
  using Market = LaneMarket<kOptions, kWide>;
  using Tile = LaneTile<kWide>;

  const Launch& launch;
  const Tile tile;
  Task task;
  const int role;
  const bool exists;            // lanes beyond those taken have no market, nor have the last warp's last lanes
  const int64_t m;              // this lane's market

  KS_ON_LANE LaneEnvironment(const Launch& launch, int64_t first, int* shared)
      : launch(launch), tile(launch, first, shared), task(task_of(launch)), role(role_of(launch, 0)),
        exists(tile.lane < Tile::kTaken && first + tile.lane < launch.markets), m(exists ? first + tile.lane : first) {}

  static KS_ON_LANE MarketParams copy_of(const MarketParams& row) { return MarketParams{KS_PARAMETERS}; }
  KS_ON_LANE MarketParams params() const { return copy_of(launch.params[m * launch.params_stride]); }

  // This lane's row of features.
  KS_ON_LANE void observe(const Market& market, const int32_t* mids, const int32_t* volumes, int32_t arrival2,
                       int32_t elapsed) const {
    float* const out = tile.features + tile.lane * kObservation;
    View<const int32_t*> view{nullptr, nullptr, market.levels, market.best_bid, market.best_ask, mids[0], market.last_tick,
                              market.origin, mids, volumes, arrival2, role, elapsed, market.p.inventory_limit,
                              target_of(task, role, mids, market.key, market.t, 0, market.account.inventory),
                              market.quote, market.account};
    meet();  // windows are done with
    if (tile.lane >= Tile::kTaken) return;
#pragma unroll
    for (int i = 0; i < 2 * kDepth; ++i) {
      const int32_t tick = depth_tick(view.mid2, view.origin, i);
      const bool on_grid = tick >= 0 && tick < market.levels;
      out[i] = feature_of(scaled(on_grid ? (i < kDepth ? market.bids() : market.asks())[tick] : 0, i));
    }
#pragma unroll
    for (int i = 2 * kDepth; i < kMarketFeatures; ++i) out[i] = feature_of(market_ratio(view, i));
#pragma unroll
    for (int i = 0; i < kOwnFeatures; ++i) out[kMarketFeatures + i] = feature_of(own_ratio(task, view, i));
  }

  KS_ON_LANE Quote decode(Market& market, const int32_t* mids) const {
    const Target aim = target_of(task, role, mids, market.key, market.t, 0, market.account.inventory);
    Quote fresh;
    if (task.action_type == kActionTypeContinuous) {
      float action[kActionSize] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
      for (int i = 0; i < kActionSize; ++i)
        if (i < launch.action_stride) action[i] = launch.actions[m * launch.action_stride + i];
      fresh = decode_continuous(task, role, action, mids[0], aim, market.quote, market.error);
    } else {
      fresh = decode_discrete(task, role, launch.choices[m], mids[0], aim, market.error);
    }
    return through_door(fresh, market.account.inventory, market.p);
  }

  // The auctions of one decision, and after the last one those that its block is forced through. All lanes take part, as
  // they load and move each other's books. False if the markets' numbers do not fit.
  KS_ON_LANE bool play(Market& market, bool plays, const int32_t* mids, bool ended, int32_t elapsed) const {
    Quote fresh = {0, 0, 0, 0};
    if (plays && !ended) fresh = decode(market, mids);
    const int auctions = launch.auctions + task.forced_auctions;
    const int32_t largest = max_of(max_of(fresh.bid_qty, fresh.ask_qty), task.forced_auctions > 0 ? task.forced_qty : 0);
    if (!kWide && lanes_where(plays && !market.is_narrow(largest)) != 0) return false;
#pragma unroll 1
    for (int a = 0; a < auctions; ++a) {
      const bool forced = a >= launch.auctions;
      if (forced && plays) {
        const Target aim = target_of(task, role, mids, market.key, market.t, 0, market.account.inventory);
        fresh = through_door(forced_quote(task, aim), market.account.inventory, market.p);
        plays = role == kRoleExecutor && !ended && elapsed + 1 >= task.horizon && fresh.bid_qty + fresh.ask_qty > 0;
      }
      const unsigned playing = lanes_where(plays);
      if (playing == 0) return true;
      if (plays) market.draw(market.key, market.t);
      if (a > 0) {
        if (!kWide && !tile.fit(plays ? market.bits() : 0)) return false;
      } else {
        if (!tile.load_books(playing)) return false;
        if (plays && (!kOptions || market.p.cancel_threshold == 0)) market.measure();  // cancellation does so, too
      }
      const int32_t by = plays ? market.see() : 0;
      if (kOptions) tile.shift_books(by);
      if (by != 0) market.moved(by);
      if (plays) plays = !market.stopped() && market.trade(a == 0 || forced, fresh);
    }
    return true;
  }

  // False, and nothing but observations has been written, if the markets' numbers do not fit.
  KS_ON_LANE bool step_or_reset() const {
    const bool explicit_reset = launch.env_mode == kLaunchModeEnvReset;
    Market market(params(), tile.levels, tile.row_of(tile.lane), tile.windows + tile.lane);
    static_cast<MarketNumbers&>(market) = numbers_of(launch, m);
    const Four standing = reinterpret_cast<const Four*>(launch.quotes)[m];
    market.quote = Quote{standing.a, standing.b, standing.c, standing.d};
    market.account = Account{launch.cash[m], launch.inventory[m], launch.fees[m]};
    int64_t episode = launch.episode[m], prev_value = launch.prev_value[m];
    int32_t mids[kHistory + 1], volumes[kHistory], elapsed = launch.elapsed[m], arrival2 = launch.arrival2[m];
    for (int i = 0; i <= kHistory; ++i) mids[i] = launch.mid_history[m * (kHistory + 1) + i];
    for (int i = 0; i < kHistory; ++i) volumes[i] = launch.volume_history[m * kHistory + i];
    bool done = launch.done[m], ended = launch.ended[m];

    const bool stopped = market.stopped();
    bool plays = exists && !explicit_reset && !stopped && !done, restarts, frozen;
    if (explicit_reset) {
      restarts = exists && (!launch.reset_mask || launch.reset_mask[m]);
      frozen = !restarts;
    } else {
      restarts = exists && !stopped && done && task.autoreset != kAutoresetDisabled;
      frozen = !exists || (!stopped && done && task.autoreset == kAutoresetDisabled);  // and so are its flags
    }

    // The auctions, and what came of them: money, ends of episode, rewards.
    const unsigned playing = lanes_where(plays);
    float reward = 0.0f;
    End end = kEndGoesOn;
    if (playing) {
      const Account before = market.account;
      const int64_t fundamental_before = market.fundamental;
      if (!play(market, plays, mids, ended, elapsed)) return false;
      if (plays) {
        plays = !market.stopped();
        if (plays) {
          elapsed += 1;
          for (int i = kHistory; i > 0; --i) mids[i] = mids[i - 1];
          for (int i = kHistory - 1; i > 0; --i) volumes[i] = volumes[i - 1];
          mids[0] = market.mark();
          volumes[0] = market.volume < 0x7fffffff ? (int32_t)market.volume : 0x7fffffff;
          const bool on_fundamental = task.mark == kMarkFundamental;
          Decision d;
          d.before = before, d.after = market.account;
          d.mark2_before = on_fundamental ? 2 * fundamental_before : mids[1];
          d.mark2_after = on_fundamental ? 2 * (int64_t)market.fundamental : mids[0];
          d.arrival2 = arrival2;
          d.prev_value = prev_value;
          d.value = marked_value(task, d.after, d.mark2_after,
                                 task.mark != kMarkLiquidation ? 0
                                     : liquidation_cash(market.bids(), market.asks(), market.levels, d.after.inventory,
                                                        market.origin, market.last_tick));
          d.remaining = target_of(task, role, mids, market.key, market.t, 0, d.after.inventory).remaining;
          prev_value = d.value;
          if (!ended) {
            end = end_of(task, role, d.value, d.remaining, elapsed);
            d.ends = end != kEndGoesOn;
            reward = reward_of(task, role, d, market.bought + market.sold);
            ended = d.ends;
          }
          done = ended;
          restarts = done && task.autoreset == kAutoresetSameStep;
        }
      }
      observe(market, mids, volumes, arrival2, elapsed);
      tile.write_features(lanes_where(plays), launch.final_observation, launch.observation);
    }

    // Episodes that begin.
    const unsigned restarting = lanes_where(restarts);
    if (restarting) {
      Opening opening = {0, 0, 0};
      if (restarts) {
        episode += 1;
        market.key = episode_key(launch.seed[m], episode);
        opening = opening_of(launch, task, m, market.key, episode);
        if (task.scenarios > 0) market.p = copy_of(launch.scenario_params[opening.scenario]);
      }
      if (task.bank_size > 0) {
        if (!tile.load_warm_starts(restarting, opening.bank_row)) return false;
      } else if (!tile.fit(restarts ? market.p.init_depth : 0)) {
        return false;
      }
      if (restarts) {
        if (task.bank_size > 0) {
          const Four scalars = reinterpret_cast<const Four*>(launch.bank_scalars)[opening.bank_row];
          market.prev_mid2 = scalars.a, market.last_tick = scalars.b;
          market.origin = scalars.c, market.fundamental = scalars.d;
        } else {
          market.prev_mid2 = 2 * market.p.init_price, market.last_tick = market.p.init_price;
          market.origin = 0, market.fundamental = market.p.fundamental_price;
          market.open(market.p);
        }
        if (task.scenarios > 0) {
          launch.scenario[m] = opening.scenario;
          launch.params[m] = launch.scenario_params[opening.scenario];
        }
        market.measure();
        market.change(0, market.levels - 1);
        market.t = 0;
        if (explicit_reset) market.error = 0;
        market.quote = Quote{0, 0, 0, 0};
        market.account = Account{0, 0, 0};
        prev_value = 0;
        elapsed = opening.elapsed;
        arrival2 = market.mark();
        for (int i = 0; i <= kHistory; ++i) mids[i] = arrival2;
        for (int i = 0; i < kHistory; ++i) volumes[i] = 0;
        done = ended = false;
      }
      observe(market, mids, volumes, arrival2, elapsed);
      tile.write_features(restarting, launch.observation, nullptr);
    }

    // Everything back to where it came from.
    tile.store_books(market);
    if (exists && !explicit_reset) {
      launch.fills[2 * m] = market.bought;
      launch.fills[2 * m + 1] = market.sold;
      launch.reward[m] = reward;
    }
    if (frozen) return true;
    store_numbers(launch, m, market);
    launch.episode[m] = episode;
    launch.volume[m] = restarts ? 0 : launch.volume[m] + market.volume;
    launch.trades[m] = restarts ? 0 : launch.trades[m] + market.trades;
    launch.elapsed[m] = elapsed;
    launch.done[m] = done;
    launch.arrival2[m] = arrival2;
    for (int i = 0; i <= kHistory; ++i) launch.mid_history[m * (kHistory + 1) + i] = mids[i];
    for (int i = 0; i < kHistory; ++i) launch.volume_history[m * kHistory + i] = volumes[i];
    const Quote& q = market.quote;
    reinterpret_cast<Four*>(launch.quotes)[m] = {q.bid_price, q.bid_qty, q.ask_price, q.ask_qty};
    launch.cash[m] = market.account.cash;
    launch.inventory[m] = market.account.inventory;
    launch.fees[m] = market.account.fees;
    launch.prev_value[m] = prev_value;
    launch.ended[m] = ended;
    launch.reward[m] = reward;
    launch.terminated[m] = end == kEndTerminated;
    launch.truncated[m] = end == kEndTruncated;
    launch.over[m] = end != kEndGoesOn;
    return true;
  }
};

// Shared memory of a warp; kineticsim_env/engines/native.py counts the same.
KS_ON_LANE int lane_ints(int levels) {
  const int narrow = LaneTile<false>::shared_ints(levels), wide = LaneTile<true>::shared_ints(levels);
  return narrow > wide ? narrow : wide;
}

// A warp's environments, from `first` on: all at a time if their numbers are short enough, else half of them.
template <bool kOptions>
KS_ON_LANE void step_lanes(const Launch& launch, int64_t first, int* shared) {
  if (LaneEnvironment<kOptions, false>(launch, first, shared).step_or_reset()) return;
  for (int64_t part = first; part < first + kLaneCount && part < launch.markets; part += kWideLanes) {
    meet();
    LaneEnvironment<kOptions, true>(launch, part, shared).step_or_reset();
  }
}

}  // namespace ks
