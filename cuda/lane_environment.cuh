// lane_environment.cuh: one environment step or reset of 32 markets with one learned slot each, a lane each, in one
// launch. The counterpart of environment_tile.cuh for many environments of one slot. Loops and memory only: actions,
// rewards and observations are tasks.h's, in the order of docs/environment.md.
#pragma once

#include "compiled_in.cuh"
#include "lane_market.cuh"
#include "tasks.h"

namespace ks {

template <bool kOptions, bool kWide>
struct LaneEnvironment {
  using Market = LaneMarket<kOptions, kWide>;
  using Cell = typename Market::Cell;
  using Cells = typename Market::Cells;
  static constexpr int kTaken = Market::kStride;  // lanes that have a market
  static constexpr int kRowsAtOnce = kLaneCount > 1 ? 2 : 1, kLanesARow = kLaneCount / kRowsAtOnce;  // where books go back

  const Launch& launch;
  Task task;
  const int lane, levels, role;
  const int64_t first;
  const bool exists;            // lanes beyond those taken have no market, nor have the last warp's last lanes
  const int64_t m;              // this lane's market
  Cell* const rows;             // shared [taken, row]
  int32_t* const windows;       // shared [KS_LANES + 1, taken] or [KS_LANES + 1, 2, taken]
  float* const features;        // shared [taken, kObservation], in the windows' place

  static KS_LANE int shared_ints(int levels) {
    const int window = Market::window_ints(KS_LANES + 1);
    return kTaken * (Market::row_ints(levels) + (window > kObservation ? window : kObservation));
  }

  KS_LANE LaneEnvironment(const Launch& launch, int64_t first, int* shared)
      : launch(launch), task(task_of(launch)), lane(this_lane()), levels(KS_LEVELS), role(role_of(launch, 0)),
        first(first), exists(lane < kTaken && first + lane < launch.markets), m(exists ? first + lane : first),
        rows(reinterpret_cast<Cell*>(shared)), windows(shared + kTaken * Market::row_ints(levels)),
        features(reinterpret_cast<float*>(windows)) {}

  KS_LANE Cell* row_of(int i) const { return rows + i * (levels + kRowPadding); }

  static KS_LANE MarketParams copy_of(const MarketParams& row) { return MarketParams{KS_PARAMETERS}; }
  KS_LANE MarketParams params() const { return copy_of(launch.params[m * launch.params_stride]); }

  // Lane i's book comes to shared memory. All lanes take part; returns all bits of this lane's quantities.
  KS_LANE int32_t load_book(int i, const int32_t* bids, const int32_t* asks) const {
    int32_t bits = 0;
    for (int tick = 4 * lane; tick < levels; tick += 4 * kLaneCount) {
      const Four bid = *reinterpret_cast<const Four*>(bids + tick), ask = *reinterpret_cast<const Four*>(asks + tick);
      bits |= bid.a | bid.b | bid.c | bid.d | ask.a | ask.b | ask.c | ask.d;
      *reinterpret_cast<Cells*>(row_of(i) + tick) = {(Cell)(bid.a - ask.a), (Cell)(bid.b - ask.b), (Cell)(bid.c - ask.c),
                                                     (Cell)(bid.d - ask.d)};
    }
    return bits;
  }
  static KS_LANE bool fit(int32_t bits) { return kWide || lanes_where(bits > kNarrowResting) == 0; }

  // The books of markets in `wanted`; false if they do not fit.
  KS_LANE bool load_books(unsigned wanted) const {
    const int32_t *bids = launch.bid + first * levels, *asks = launch.ask + first * levels;
    int32_t bits = 0;
#pragma unroll 8  // so many are on their way at a time
    for (int i = 0; i < kTaken; ++i)
      if (wanted >> i & 1) bits |= load_book(i, bids + i * levels, asks + i * levels);
    meet();
    return fit(bits);
  }

  // Each lane's warm start, from a row of the bank.
  KS_LANE bool load_warm_starts(unsigned wanted, int64_t row) const {
    int32_t bits = 0;
    for (int i = 0; i < kTaken; ++i) {
      const int64_t from = of_lane(row, i) * levels;
      if (wanted >> i & 1) bits |= load_book(i, launch.bank_bid + from, launch.bank_ask + from);
    }
    meet();
    return fit(bits);
  }

  // Only what a lane has changed goes back.
  KS_LANE void store_books(const Market& market) const {
    const int32_t changed = market.changed_low / 8 | (market.changed_high / 8) << 16;  // 32 bytes are written as one
    meet();
#pragma unroll 4  // half the lanes for a market, as most change less than half of 128 ticks
    for (int i = 0; i < kTaken; i += kRowsAtOnce) {
      const int mine = i + lane / kLanesARow;
      const int32_t part = of_lane(changed, mine), low = 8 * (part & 0xffff), high = 8 * (part >> 16) + 7;
      const int64_t to = (first + mine) * levels;
#pragma unroll 1
      for (int tick = low + 4 * (lane % kLanesARow); tick <= high; tick += 4 * kLanesARow) {
        const Cells x = *reinterpret_cast<const Cells*>(row_of(mine) + tick);
        *reinterpret_cast<Four*>(launch.bid + to + tick) = {max_of(x.a, 0), max_of(x.b, 0), max_of(x.c, 0), max_of(x.d, 0)};
        *reinterpret_cast<Four*>(launch.ask + to + tick) = {max_of(-x.a, 0), max_of(-x.b, 0), max_of(-x.c, 0), max_of(-x.d, 0)};
      }
    }
  }

  // new[tick] = old[tick + by], of each lane's row; read a chunk ahead of what is written.
  KS_LANE void shift_books(int32_t by) const {
    for (unsigned left = lanes_where(by != 0); left != 0; left &= left - 1) {
      meet();
      const int i = lowest_bit(left), shift = of_lane(by, i);
      Cell* const row = row_of(i);
      for (int low = 0; low < levels; low += kLaneCount) {
        const int tick = shift > 0 ? low + lane : levels - 1 - low - lane, from = tick + shift;
        const bool on_grid = tick >= 0 && tick < levels;
        const Cell x = on_grid && from >= 0 && from < levels ? row[from] : (Cell)0;
        meet();
        if (on_grid) row[tick] = x;
        meet();
      }
    }
  }

  // This lane's row of features.
  KS_LANE void observe(const Market& market, const int32_t* mids, const int32_t* volumes, int32_t arrival2,
                       int32_t elapsed) const {
    float* const out = features + lane * kObservation;
    View<const int32_t*> view{nullptr, nullptr, levels, market.best_bid, market.best_ask, mids[0], market.last_tick,
                              market.origin, mids, volumes, arrival2, role, elapsed, market.p.inventory_limit,
                              target_of(task, role, mids, market.key, market.t, 0, market.account.inventory),
                              market.quote, market.account};
    meet();  // windows are done with
    if (lane >= kTaken) return;
#pragma unroll
    for (int i = 0; i < 2 * kDepth; ++i) {
      const int32_t tick = depth_tick(view.mid2, view.origin, i);
      const bool on_grid = tick >= 0 && tick < levels;
      out[i] = feature_of(scaled(on_grid ? (i < kDepth ? market.bids() : market.asks())[tick] : 0, i));
    }
#pragma unroll
    for (int i = 2 * kDepth; i < kMarketFeatures; ++i) out[i] = feature_of(market_ratio(view, i));
#pragma unroll
    for (int i = 0; i < kOwnFeatures; ++i) out[kMarketFeatures + i] = feature_of(own_ratio(task, view, i));
  }

  // The rows of lanes in `wanted`, to one or two places.
  KS_LANE void write_features(unsigned wanted, float* out, float* copy) const {
    out += first * kObservation;
    if (copy) copy += first * kObservation;
    meet();
    if (wanted == 0xffffffffu) {
#pragma unroll 5
      for (int i = lane; i < kLaneCount * kObservation / 4; i += kLaneCount) {
        const Four four = reinterpret_cast<const Four*>(features)[i];
        write_out(reinterpret_cast<Four*>(out) + i, four);
        if (copy) write_out(reinterpret_cast<Four*>(copy) + i, four);
      }
    } else {
#pragma unroll 1
      for (int i = lane; i < kTaken * kObservation; i += kLaneCount) {
        if (!(wanted >> (i / kObservation) & 1)) continue;
        out[i] = features[i];
        if (copy) copy[i] = features[i];
      }
    }
    meet();
  }

  KS_LANE Quote decode(Market& market, const int32_t* mids) const {
    const Target aim = target_of(task, role, mids, market.key, market.t, 0, market.account.inventory);
    Quote fresh;
    if (task.action_type == kContinuous) {
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
  KS_LANE bool play(Market& market, bool plays, const int32_t* mids, bool ended, int32_t elapsed) const {
    Quote fresh = {0, 0, 0, 0};
    if (plays && !ended) fresh = decode(market, mids);
    const int auctions = launch.auctions + task.forced_auctions;
    const int32_t largest = max_of(max_of(fresh.bid_qty, fresh.ask_qty), task.forced_auctions > 0 ? task.forced_qty : 0);
    if (!kWide && lanes_where(plays && !market.is_narrow(auctions, largest)) != 0) return false;
#pragma unroll 1
    for (int a = 0; a < auctions; ++a) {
      const bool forced = a >= launch.auctions;
      if (forced && plays) {
        const Target aim = target_of(task, role, mids, market.key, market.t, 0, market.account.inventory);
        fresh = through_door(forced_quote(task, aim), market.account.inventory, market.p);
        plays = role == kExecutor && !ended && elapsed + 1 >= task.horizon && fresh.bid_qty + fresh.ask_qty > 0;
      }
      const unsigned playing = lanes_where(plays);
      if (playing == 0) return true;
      if (plays) market.draw();
      if (a == 0) {  // only now, as it is on its way since the launch began
        if (!load_books(playing)) return false;
        if (plays && (!kOptions || market.p.cancel_threshold == 0)) market.measure();  // cancellation does so, too
      }
      const int32_t by = plays ? market.see() : 0;
      if (kOptions) shift_books(by);
      if (by != 0) market.moved(by);
      if (plays) plays = !market.stopped() && market.trade(a == 0 || forced, fresh);
    }
    return true;
  }

  // False, and nothing but observations has been written, if the markets' numbers do not fit.
  KS_LANE bool step_or_reset() const {
    const bool explicit_reset = launch.env_mode == kEnvReset;
    Market market(params(), levels, row_of(lane), windows + lane);
    market.prev_mid2 = launch.prev_mid2[m];
    market.last_tick = launch.last_tick[m];
    market.origin = launch.price_origin[m];
    market.fundamental = launch.fundamental_price[m];
    market.t = launch.t[m];
    market.error = launch.error[m];
    const Four standing = reinterpret_cast<const Four*>(launch.quotes)[m];
    market.quote = Quote{standing.a, standing.b, standing.c, standing.d};
    market.account = Account{launch.cash[m], launch.inventory[m], launch.fees[m]};
    int64_t episode = launch.episode[m], prev_value = launch.prev_value[m];
    market.key = episode_key(launch.seed[m], episode);
    int32_t mids[kHistory + 1], volumes[kHistory], elapsed = launch.elapsed[m], arrival2 = launch.arrival2[m];
    for (int i = 0; i <= kHistory; ++i) mids[i] = launch.mid_history[m * (kHistory + 1) + i];
    for (int i = 0; i < kHistory; ++i) volumes[i] = launch.volume_history[m * kHistory + i];
    bool done = launch.done[m], ended = launch.ended[m];
    if (!kWide && !explicit_reset) {
      const int64_t count = (launch.markets - first < kLaneCount ? launch.markets - first : kLaneCount) * levels;
      bring(launch.bid + first * levels, count);
      bring(launch.ask + first * levels, count);
    }

    const bool stopped = market.stopped();
    bool plays = exists && !explicit_reset && !stopped && !done, restarts, frozen;
    if (explicit_reset) {
      restarts = exists && (!launch.reset_mask || launch.reset_mask[m]);
      frozen = !restarts;
    } else {
      restarts = exists && !stopped && done && task.autoreset != kDisabled;
      frozen = !exists || (!stopped && done && task.autoreset == kDisabled);  // and so are its flags
    }

    // The auctions, and what came of them: money, ends of episode, rewards.
    const unsigned playing = lanes_where(plays);
    float reward = 0.0f;
    End end = kGoesOn;
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
          const bool on_fundamental = task.mark == kFundamentalMark;
          Decision d;
          d.before = before, d.after = market.account;
          d.mark2_before = on_fundamental ? 2 * fundamental_before : mids[1];
          d.mark2_after = on_fundamental ? 2 * (int64_t)market.fundamental : mids[0];
          d.arrival2 = arrival2;
          d.prev_value = prev_value;
          d.value = marked_value(task, d.after, d.mark2_after,
                                 task.mark != kLiquidationMark ? 0
                                     : liquidation_cash(market.bids(), market.asks(), levels, d.after.inventory,
                                                        market.origin, market.last_tick));
          d.remaining = target_of(task, role, mids, market.key, market.t, 0, d.after.inventory).remaining;
          prev_value = d.value;
          if (!ended) {
            end = end_of(task, role, d.value, d.remaining, elapsed);
            d.ends = end != kGoesOn;
            reward = reward_of(task, role, d, market.bought + market.sold);
            ended = d.ends;
          }
          done = ended;
          restarts = done && task.autoreset == kSameStep;
        }
      }
      observe(market, mids, volumes, arrival2, elapsed);
      write_features(lanes_where(plays), launch.final_observation, launch.observation);
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
        if (!load_warm_starts(restarting, opening.bank_row)) return false;
      } else if (!fit(restarts ? market.p.init_depth : 0)) {
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
        market.change(0, levels - 1);
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
      write_features(restarting, launch.observation, nullptr);
    }

    // Everything back to where it came from.
    store_books(market);
    if (exists && !explicit_reset) {
      launch.fills[2 * m] = market.bought;
      launch.fills[2 * m + 1] = market.sold;
      launch.reward[m] = reward;
    }
    if (frozen) return true;
    launch.prev_mid2[m] = market.prev_mid2;
    launch.last_tick[m] = market.last_tick;
    launch.price_origin[m] = market.origin;
    launch.fundamental_price[m] = market.fundamental;
    launch.episode[m] = episode;
    launch.t[m] = market.t;
    launch.volume[m] = restarts ? 0 : launch.volume[m] + market.volume;
    launch.trades[m] = restarts ? 0 : launch.trades[m] + market.trades;
    launch.error[m] = market.error;
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
    launch.terminated[m] = end == kTerminated;
    launch.truncated[m] = end == kTruncated;
    return true;
  }
};

// Shared memory of a warp; kineticsim_env/engines/native.py counts the same.
KS_LANE int lane_ints(int levels) {
  const int narrow = LaneEnvironment<false, false>::shared_ints(levels), wide = LaneEnvironment<false, true>::shared_ints(levels);
  return narrow > wide ? narrow : wide;
}

// A warp's environments, from `first` on: all at a time if their numbers are short enough, else half of them.
template <bool kOptions>
KS_LANE void step_lanes(const Launch& launch, int64_t first, int* shared) {
  if (LaneEnvironment<kOptions, false>(launch, first, shared).step_or_reset()) return;
  for (int64_t part = first; part < first + kLaneCount && part < launch.markets; part += kWideLanes) {
    meet();
    LaneEnvironment<kOptions, true>(launch, part, shared).step_or_reset();
  }
}

}  // namespace ks
