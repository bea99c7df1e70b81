// environment.cuh: one environment step or reset of 32 markets with one slot each, one lane per market, in one launch. The
// counterpart of warp/environment.cuh for many environments of one slot. Loops and memory only: actions, rewards and
// observations are model/tasks.h's, in the order of docs/environment.md.
#pragma once

#include "lane/deadlines.cuh"
#include "lane/market.cuh"
#include "lane/tile.cuh"
#include "model/compiled_in.cuh"
#include "model/step.h"
#if KS_DEADLINES
#include "warp/environment.cuh"
#endif

namespace ks {

// An environment but for its market.
struct LaneStep {
  int32_t mids[kHistory + 1], volumes[kHistory], elapsed, arrival2, fundamental_before;
  int64_t episode, prev_value;
  Account before;
  Quote fresh;
  bool done, ended;
  float reward;
  End end;
  int auction;                  // of the launch: the next that is played
  bool trades;                  // whether its market plays that one too
};

// What it goes on with in numbers of another width.
struct LaneState : LaneStep {
  LaneMarketState market;
  MarketParams params;
  Part part;
  bool exists;
};

template <bool kOptions, bool kWide>
struct LaneEnvironment : LaneStep {
  using Market = LaneMarket<kOptions, kWide>;
  using Tile = LaneTile<kWide>;

  const Launch& launch;
  const Tile tile;
  Task task;
  const int role;
  const bool exists;            // false for lanes without a market to step
  const int64_t m;              // this lane's market
  Market market;

  // A market for each lane, from `first` on, but for the lanes in `without`.
  KS_ON_LANE LaneEnvironment(const Launch& launch, int64_t first, unsigned without, int* shared, Interest* outlying)
      : launch(launch), tile(launch, first, 0, shared), task(task_of(launch)), role(role_of(launch, 0)),
        exists(first + tile.lane < launch.markets && !(without >> tile.lane & 1)),
        m(exists ? first + tile.lane : first), market(params(), tile, outlying) {}

  // Go on with the markets of some lanes, from `first_lane` on, whose books are in global memory.
  KS_ON_LANE LaneEnvironment(const Launch& launch, int64_t first, const LaneState& from, int first_lane, int* shared,
                             Interest* outlying)
      : LaneStep(from), launch(launch), tile(launch, first + first_lane, first_lane, shared), task(task_of(launch)),
        role(role_of(launch, 0)), exists(tile.has_market && from.exists), m(exists ? first + tile.lane : first),
        market(from.params, tile, outlying) {
    static_cast<LaneMarketState&>(market) = from.market;
    trades &= exists;
  }

  // A copy of a market's row; its padding is set, as registers would carry it from one width to the other.
  static KS_ON_LANE MarketParams copy_of(const MarketParams& row) {
    MarketParams p = with_constants(row);
    for (int32_t& unread : p.levers.padding) unread = 0;
    return p;
  }
  KS_ON_LANE MarketParams params() const { return copy_of(launch.params[m * launch.params_stride]); }

  // The task as this lane's slot has it.
  KS_ON_LANE SlotTask slot_task() const { return SlotTask(launch, task, m); }
  // What the slot still has to do, after this decision.
  KS_ON_LANE Target target() const {
    return target_of(slot_task(), role, mids, market.key, market.t, 0, market.account.inventory);
  }
  // The cash that unwinding its inventory would bring, where that marks it.
  KS_ON_LANE int64_t liquidation() const {
    if (task.mark != kMarkLiquidation) return 0;
    return liquidation_cash(market.bids(), market.asks(), market.levels, market.account.inventory, market.origin,
                            market.last_tick);
  }

  // This lane's row of features.
  KS_ON_LANE void find_features() const {
    float* const out = tile.features + tile.place * tile.row_length();
    View<const int32_t*> view{nullptr, nullptr, market.levels, market.best_bid, market.best_ask, mids[0], market.last_tick,
                              market.origin, mids, volumes, arrival2, role, elapsed, market.p.inventory_limit,
                              target(), market.quote, market.account, market.fundamental};
    const SlotTask own = slot_task();
    sync_warp();  // features take the bins' memory
    if (!tile.has_market) return;
#pragma unroll
    for (int i = 0; i < 2 * kDepth; ++i) {
      const int32_t tick = depth_tick(view.mid2, view.origin, i);
      const bool on_grid = tick >= 0 && tick < market.levels;
      out[i] = feature_of(scaled(on_grid ? (i < kDepth ? market.bids() : market.asks())[tick] : 0, i));
    }
#pragma unroll
    for (int i = 2 * kDepth; i < kMarketFeatures; ++i) out[i] = feature_of(market_ratio(view, i));
#pragma unroll
    for (int i = 0; i < kOwnFeatures; ++i) out[kMarketFeatures + i] = feature_of(own_ratio(own, view, i));
    int column = kObservation;
#pragma unroll
    for (int i = 0; i < kExtras; ++i)
      if (has_extra(launch, i)) out[column++] = feature_of(extra_ratio(launch, m, view, i));
  }

  KS_ON_LANE Quote decode() {
    const Target aim = target();
    if (has_policy(launch, 0))
      return quote_of_policy_in_call(launch, m, 0, slot_task(), market, market.p, mids, volumes, elapsed, arrival2, aim,
                                     market.account, market.quote, launch.bid + m * market.levels, launch.ask + m * market.levels);
    float action[kActionSize] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (task.action_type == kActionTypeContinuous && !takes_records(launch)) {
#pragma unroll
      for (int i = 0; i < kActionSize; ++i)
        if (i < launch.action_stride) action[i] = launch.actions[m * launch.action_stride + i];
    }
    return quote_of_action(launch, slot_task(), role, market.p, action, m, mids[0], aim, market.quote, market.account.inventory,
                           market.error);
  }

  // What model/step.h asks for. All lanes call all of it, as they load, move and store each other's rows. --------------

  KS_ON_LANE bool any(bool holds) const { return ballot(holds) != 0; }

  KS_ON_LANE void load() {
    static_cast<MarketNumbers&>(market) = numbers_of(launch, m);
    const Four standing = reinterpret_cast<const Four*>(launch.quotes)[m];
    market.quote = Quote{standing.a, standing.b, standing.c, standing.d};
    market.account = Account{launch.cash[m], launch.inventory[m], launch.fees[m]};
    episode = launch.episode[m], prev_value = launch.prev_value[m];
    elapsed = launch.elapsed[m], arrival2 = launch.arrival2[m];
    for (int i = 0; i <= kHistory; ++i) mids[i] = launch.mid_history[m * (kHistory + 1) + i];
    for (int i = 0; i < kHistory; ++i) volumes[i] = launch.volume_history[m * kHistory + i];
    done = launch.done[m], ended = launch.ended[m];
    reward = 0.0f;
    end = kEndGoesOn;
    auction = 0;
  }

  KS_ON_LANE Part part() const {
    if (!exists) return {false, false, true};
    return part_of(launch, task, market.stopped(), done, !launch.reset_mask || launch.reset_mask[m]);
  }
  KS_ON_LANE void begin(const Part& part) { trades = part.plays; }

  KS_ON_LANE void decode_actions(const Part& part) {
    before = market.account;
    fundamental_before = market.fundamental;
    fresh = Quote{0, 0, 0, 0};
    if (part.plays && !ended) fresh = decode();
    if (part.plays && ended) note_none_played(launch, m, 0);
  }

  // False if a market's quantities do not fit before the next auction.
  KS_ON_LANE bool play(Part& part) {
    const int auctions = launch.auctions + task.forced_auctions;
    const int32_t unwound = unwinds(task, role, 0) ? market.p.max_quote_qty : 0;  // at most
    const int32_t largest = max_of(max_of(fresh.bid_qty, fresh.ask_qty), task.forced_auctions > 0 ? max_of(task.forced_qty, unwound) : 0);
    if (!kWide && any(trades && !market.is_narrow(largest))) return false;
    if (kWide) {
      tile.load_books(ballot(part.plays));
      if (part.plays) market.measure();
    }
#pragma unroll 1
    for (; auction < auctions; ++auction) {
      const bool forced = auction >= launch.auctions;
      if (forced && trades) {
        fresh = forced_order(launch, slot_task(), m, 0, ended, market.p, target(), market.account.inventory);
        trades = auction - launch.auctions < forced_auctions(slot_task(), elapsed + 1) && has_quantity(fresh);
      }
      const unsigned trading = ballot(trades);
      if (trading == 0) break;
      if (trades) market.draw(market.key, market.t);
      if (!kWide && auction > 0 && !tile.fit(trades ? market.bits() : 0)) return false;
      if (!kWide && auction == 0) {
        if (!tile.load_books(trading)) return false;
        if (trades && (!kOptions || market.p.cancel_threshold == 0)) market.measure();  // cancellation does so, too
      }
      play_auction<kOptions>(market, trades, auction == 0 || forced, fresh);
    }
    part.plays = part.plays && !market.stopped();
    return true;
  }

  KS_ON_LANE void score(const Part& part) {
    if (!part.plays) return;
    elapsed += 1;
    for (int i = kHistory; i > 0; --i) mids[i] = mids[i - 1];
    for (int i = kHistory - 1; i > 0; --i) volumes[i] = volumes[i - 1];
    mids[0] = market.mark();
    volumes[0] = recorded_volume(market.volume);
    const Target aim = target();
    const Outcome outcome = outcome_of(slot_task(), role, 0, before, market.account, fundamental_before, market.fundamental,
                                       mids, arrival2, prev_value, opening_value_of(launch, m), liquidation(),
                                       aim.remaining, market.bought + market.sold, elapsed, ended);
    prev_value = outcome.value;
    reward = outcome.reward;
    end = outcome.end;
    ended |= end != kEndGoesOn;
    done = ended;
    if (!writes_info(launch)) return;
    note_market();
    note_decision(launch, m, 0, role, market.account, market.bought, market.sold, aim.remaining, outcome);
  }
  KS_ON_LANE void note_market() const {
    write_market_info(launch, m, mids[0], market.fundamental, market.best_bid, market.best_ask, market.origin,
                      launch.scenario[m], elapsed);
  }
  KS_ON_LANE bool all_ended() const { return ended; }

  KS_ON_LANE void observe(const Part& part) const {
    find_features();
    tile.write_features(ballot(part.plays), launch.final_observation, launch.observation);
  }

  // False if the quantities of an opening book do not fit.
  KS_ON_LANE bool begin_episodes(const Part& part) {
    Opening opening = {0, 0, 0};
    if (part.restarts) {
      market.key = episode_key(launch.seed[m], episode + 1);
      opening = opening_of(launch, task, m, market.key, episode + 1);
      if (task.scenarios > 0) market.p = copy_of(launch.scenario_params[opening.scenario]);
    }
    if (task.bank_size > 0) {
      if (!tile.load_warm_starts(ballot(part.restarts), opening.bank_row)) return false;
    } else if (!tile.fit(part.restarts ? market.p.init_depth : 0)) {
      return false;
    }
    if (!part.restarts) return true;
    episode += 1;
    if (task.bank_size == 0) market.open(market.p);
    const int32_t error = launch.env_mode == kLaunchModeEnvReset ? 0 : market.error;
    static_cast<MarketNumbers&>(market) = opening_numbers(launch, task, market.p, opening, market.key, error);
    if (task.scenarios > 0) {
      launch.scenario[m] = opening.scenario;
      launch.params[m] = launch.scenario_params[opening.scenario];
      enter_scenario(launch, m, opening.scenario);
    }
    begin_memory(launch, task, m, market.p, 0, opening.bank_row);
    market.measure();
    market.change(0, market.levels - 1);
    market.quote = Quote{0, 0, 0, 0};
    market.account = opening_account(launch, slot_task());
    prev_value = 0;
    elapsed = opening.elapsed;
    arrival2 = market.mark();
    for (int i = 0; i <= kHistory; ++i) mids[i] = arrival2;
    for (int i = 0; i < kHistory; ++i) volumes[i] = 0;
    done = ended = false;
    if (has_values(launch))
      note_opening_value(launch, task, m, market.account, market.fundamental, arrival2, liquidation());
    if (writes_info(launch)) {
      if (!part.plays) note_market();
      note_opening(launch, m, 0, role, market.account, target().remaining, part.plays);
    }
    return true;
  }

  KS_ON_LANE void observe_opening(const Part& part) const {
    find_features();
    tile.write_features(ballot(part.restarts), launch.observation, nullptr);
  }

  KS_ON_LANE void store(const Part& part) const {
    tile.store_books(market);
    if (exists && launch.env_mode == kLaunchModeEnvStep) {
      launch.fills[2 * m] = market.bought;
      launch.fills[2 * m + 1] = market.sold;
      launch.reward[m] = reward;
      if (writes_info(launch)) launch.idle[m] = !part.plays;
    }
    if (part.frozen) return;
    store_numbers(launch, m, market);
    launch.episode[m] = episode;
    launch.volume[m] = part.restarts ? 0 : launch.volume[m] + market.volume;
    launch.trades[m] = part.restarts ? 0 : launch.trades[m] + market.trades;
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
    if (!has_results(launch)) return;
    launch.reward[m] = reward;
    launch.terminated[m] = end == kEndTerminated;
    launch.truncated[m] = end == kEndTruncated;
    launch.over[m] = end != kEndGoesOn;
  }
};

// Half of a warp's environments at a time. A function that is called, so that what it takes over is in registers as long
// as all fit in 16 bits.
template <bool kOptions>
KS_CALLED_ON_LANE void end_step_in_halves(const Launch& launch, int64_t first, const LaneState& state, int* shared,
                                          Interest* outlying) {
#pragma unroll 1
  for (int first_lane = 0; first_lane < kLaneCount; first_lane += kWideLanes) {
    sync_warp();
    LaneEnvironment<kOptions, true> half(launch, first, state, first_lane, shared, outlying);
    Part part = half.exists ? state.part : Part{false, false, true, state.part.scored};
    end_step(half, part);
  }
}

// A warp's environments, from `first` on and without some lanes: all at a time while their quantities fit in 16 bits, and from
// where they do not, half of them at a time.
template <bool kOptions>
KS_ON_LANE void step_lanes(const Launch& launch, int64_t first, unsigned without, int* shared) {
  OutlyingRow outlying;
  LaneEnvironment<kOptions, false> all(launch, first, without, shared, outlying);
  Part part = begin_step(all);
  if (end_step(all, part)) return;
  all.tile.store_books(all.market);
  const LaneState state = {all, all.market, all.market.p, part, all.exists};
  end_step_in_halves<kOptions>(launch, first, state, shared, outlying);
}

// The same, and markets at a block's deadline with all lanes. `warps` are all that the launch has.
template <bool kOptions>
KS_ON_LANE void step_environments(const Launch& launch, int64_t first, int64_t warps, int* shared) {
  const int64_t m = first + this_lane();
  bool plays = m < launch.markets && !leaves_alone(launch, m);
#if KS_DEADLINES
  const DeadlineList deadlines(launch);
  const bool late = plays && deadlines.has(m);
  plays = plays && !late;
  const unsigned without = ballot(late);
  if (ballot(plays) != 0) step_lanes<kOptions>(launch, first, without, shared);
  if (plays) deadlines.note(m);
  sync_warp();
  deadlines.step(warps, [&](int64_t market) {
    EnvironmentTile<false, KS_BINS, kOptions, 1, true> tile(launch, market, shared);
    step_or_reset(tile);
  });
#else
  if (ballot(plays) != 0) step_lanes<kOptions>(launch, first, 0, shared);
#endif
}

}  // namespace ks
