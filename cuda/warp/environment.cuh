// environment.cuh: one environment step or reset, in the same launch as its auctions. Loops and memory only:
// actions, rewards and observations are model/tasks.h's, in the order of docs/environment.md.
//
// A warp has a tile of markets. What is one number a market or a slot (actions, rewards, flags, own features) is worked
// out for the whole tile at once, a lane each; auctions and books are for one market at a time, a tick a lane. With one
// market a warp, 31 lanes would idle through four fifths of a step. In between, the tile lies on a desk in shared memory.
#pragma once

#include "model/compiled_in.cuh"
#include "model/step.h"
#include "warp/desk.cuh"
#include "warp/market.cuh"

namespace ks {

// KS_SINGLE: one market with one slot a warp. Every lane then works for the slot, and has a feature of its own.
#ifndef KS_SINGLE
#define KS_SINGLE 0
#endif

template <int kBins, bool kOptions, int kSlots>
struct EnvironmentTile {
  using Market = MarketOnChip<kBins, kOptions, kSlots>;
  static constexpr bool kSingle = KS_SINGLE && kSlots == 1;

  const Launch& launch;
  Task task;
  const int lane, slots, count;  // count: markets of this tile
  const int64_t first;
  int* const shared;             // two books: one is played, the next one is on its way
  int* const bins;
  DeskMarket* const markets;     // shared [tile]
  DeskSlot* const rows;          // shared [tile * slots]
  const bool has_market, has_slot;
  const int slot_market, k;      // this lane's slot: its market in the tile, and its number there
  // What is read of this lane's market and slot and does not wait on the desk.
  int64_t seed, episode;
  bool done, masked, ended_before;
  Quote standing;
  float4 action;
  int64_t inventory;
  // What comes of a decision for this lane's slot.
  unsigned playing;              // markets that began to play, a bit each
  float reward;
  End end;

  static __device__ __forceinline__ int shared_ints(const Launch& launch) {
    return environment_ints(KS_LEVELS, launch.tile, launch.slots);
  }

  __device__ __forceinline__ EnvironmentTile(const Launch& launch, int64_t first, int* shared)
      : launch(launch), task(task_of(launch)), lane(threadIdx.x % kWarpLanes), slots(kSlots == 1 ? 1 : launch.slots),
        count(kSingle ? 1 : (int)(launch.markets - first < launch.tile ? launch.markets - first : launch.tile)),
        first(first), shared(shared), bins(shared + 2 * Market::book_ints(launch)),
        markets(reinterpret_cast<DeskMarket*>(bins + kBinInts)),
        rows(reinterpret_cast<DeskSlot*>(markets + launch.tile)), has_market(lane < count),
        has_slot(kSingle || lane < count * slots), slot_market(kSingle || !has_slot ? 0 : lane / slots),
        k(kSlots == 1 ? 0 : lane - slot_market * slots), seed(0), episode(0), done(false), masked(true), ended_before(false),
        standing{0, 0, 0, 0}, action(make_float4(0.0f, 0.0f, 0.0f, 0.0f)), inventory(0), playing(0), reward(0.0f),
        end(kEndGoesOn) {}

  __device__ __forceinline__ DeskMarket& my_market() const { return markets[has_market ? lane : 0]; }
  __device__ __forceinline__ DeskSlot& my_slot() const { return rows[!kSingle && has_slot ? lane : 0]; }
  __device__ __forceinline__ bool is_in(unsigned of_markets) const { return has_slot && (of_markets >> slot_market & 1); }

  // Where lane 0's slot lies: a tile's slots follow each other in memory.
  __device__ __forceinline__ int64_t slot_row() const { return first * slots + (kSingle ? 0 : lane); }

  __device__ __forceinline__ MarketParams params_of(int market) const {
    const MarketParams& row = markets[market].params;
    return MarketParams{KS_PARAMETERS};
  }

  __device__ __forceinline__ void fetch(int i, int* book) const {
    const int levels = KS_LEVELS;
    Market::fetch_book(launch, book, launch.bid + (first + i) * levels, launch.ask + (first + i) * levels);
  }

  __device__ __forceinline__ Target target(const DeskMarket& market, const int32_t* mid_history, int slot,
                                           int64_t inventory) const {
    return target_of(task, role_of(launch, slot), mid_history, market.key, market.t, slot, inventory);
  }

  // This lane's row of continuous actions.
  __device__ __forceinline__ float4 read_action() const {
    const int stride = launch.action_stride;
    if (stride == kActionSize) return reinterpret_cast<const float4*>(launch.actions)[slot_row()];
    const float* row = launch.actions + slot_row() * stride;
    return make_float4(stride > 0 ? row[0] : 0.0f, stride > 1 ? row[1] : 0.0f, stride > 2 ? row[2] : 0.0f, 0.0f);
  }

  // This lane's action, turned into a quote within the pre-trade limits.
  __device__ __forceinline__ Quote decode(DeskMarket& market, const Quote& standing, int64_t inventory,
                                          const float4& row) {
    int32_t error = 0;
    const Target aim = target(market, market.mid_history + 1, k, inventory);
    const int32_t mid2 = market.mid_history[1];
    const float action[kActionSize] = {row.x, row.y, row.z, row.w};
    const Quote fresh = quote_of_action(launch, task, role_of(launch, k), params_of(slot_market), action, slot_row(), mid2,
                                        aim, standing, inventory, error);
    if (error) atomicOr(&market.error, error);
    return fresh;
  }

  // The features that all slots of a market share, one a lane, to `out` and (not null) to `copy`.
  __device__ __forceinline__ void write_market_features(const Market& market, int i, float* out, float* copy) const {
    const DeskMarket& desk = markets[i];
    const View<const int32_t*> view{market.buy, market.sell, market.levels, market.best_bid, market.best_ask,
                                    desk.mid_history[0], market.last_tick, market.origin, desk.mid_history,
                                    desk.volume_history, 0, 0, 0, 0, {0, 0}, {0, 0, 0, 0}, {0, 0, 0}};
    if (lane < kMarketFeatures) {
      const float feature = feature_of(market_ratio(view, lane));
      const int64_t at = first * slots * kObservation + i * slots * kObservation + lane;
#pragma unroll 1
      for (int place = 0; place < slots * kObservation; place += kObservation) {
        out[at + place] = feature;
        if (copy) copy[at + place] = feature;
      }
    }
  }

  // This lane's slot's own features.
  __device__ __forceinline__ void write_own_features(const Quote& quote, const Account& account, float* out,
                                                     float* copy) const {
    const DeskMarket& desk = markets[slot_market];
    View<const int32_t*> view{};
    view.mid2 = desk.mid_history[0];
    view.arrival2 = desk.arrival2;
    view.role = role_of(launch, k);
    view.elapsed = desk.elapsed;
    view.inventory_limit = params_of(slot_market).inventory_limit;
    view.quote = quote;
    view.account = account;
    view.target = target(desk, desk.mid_history, k, account.inventory);
    const int64_t at = slot_row() * kObservation + kMarketFeatures;
    if (kSingle) {
      Ratio ratio{0.0f, 1.0f};
#pragma unroll
      for (int i = 0; i < kOwnFeatures; ++i) {
        const Ratio other = own_ratio(task, view, i);
        if (lane == i) ratio = other;
      }
      const float feature = feature_of(ratio);
      if (lane < kOwnFeatures) {
        out[at + lane] = feature;
        if (copy) copy[at + lane] = feature;
      }
    } else {
#pragma unroll
      for (int i = 0; i < kOwnFeatures; ++i) {
        const float feature = feature_of(own_ratio(task, view, i));
        out[at + i] = feature;
        if (copy) copy[at + i] = feature;
      }
    }
  }

  __device__ __forceinline__ void put_on_desk(const Market& market, int i) const {
    if (lane != 0) return;
    DeskMarket& desk = markets[i];
    desk.prev_mid2 = market.prev_mid2;
    desk.last_tick = market.last_tick;
    desk.origin = market.origin;
    desk.fundamental = market.fundamental;
    desk.t = market.t;
    desk.volume += market.volume;
    desk.trades += market.trades;
    desk.error = market.error;
    desk.mid_history[0] = market.mark();
    desk.volume_history[0] = recorded_volume(market.volume);
  }

  // The auctions of one decision, and after the last one those that its blocks are forced through.
  __device__ __forceinline__ void play_auctions(Market& market, const DeskMarket& desk, Quote fresh) {
    const int forced = task.forced_auctions > 0 ? forced_auctions(task, desk.elapsed) : 0;
    market.bought = market.sold = 0;
#pragma unroll 1
    for (int a = 0; a < launch.auctions + forced; ++a) {
      if (a >= launch.auctions) {
        fresh = Quote{0, 0, 0, 0};
        const int slot = market.slot();
        if (market.has_slot()) {
          const int64_t inventory = rows[market_index(desk) * slots + slot].inventory + market.bought - market.sold;
          const Target aim = target(desk, desk.mid_history + 1, slot, inventory);
          fresh = forced_order(task, role_of(launch, slot), desk.ended >> slot & 1, market.p, aim, inventory);
        }
        if (!market.any_slot(has_quantity(fresh))) return;
      }
      if (!market.auction(a == 0 || a >= launch.auctions, fresh)) return;
    }
  }

  __device__ __forceinline__ int market_index(const DeskMarket& desk) const { return (int)(&desk - markets); }

  // The auctions of one decision in market i of the tile, whose book is on its way; `next` (-1: none) follows it.
  __device__ __forceinline__ void play_market(int i, int* book, int next, int* next_book) {
    const DeskMarket& desk = markets[i];
    Market market(launch, first + i, markets[i].params, book, bins);
    market.prev_mid2 = desk.prev_mid2;
    market.last_tick = desk.last_tick;
    market.origin = desk.origin;
    market.fundamental = desk.fundamental;
    market.error = desk.error;
    market.start_prepared(desk.key, desk.t, desk.counter, &desk.ration_word);
    Quote fresh{0, 0, 0, 0};
    DeskSlot& row = rows[i * slots + market.slot()];
    if (market.has_slot()) {
      market.quote = row.quote;
      fresh = row.fresh;
    }
    market.accept_book();
    if (next >= 0) fetch(next, next_book);
    if (!kOptions || market.p.cancel_threshold == 0) market.find_best();  // cancellation does so, too
    play_auctions(market, desk, fresh);
    __syncwarp();
    put_on_desk(market, i);
    market.store_book();
    if (lane < slots) {
      row.quote = market.quote;
      row.cash = market.account.cash;
      row.bought = (int32_t)market.bought;
      row.sold = (int32_t)market.sold;
      if (task.mark == kMarkLiquidation && !market.stopped()) {
        row.liquidation = liquidation_cash<const int32_t*>(market.buy, market.sell, market.levels,
                                                           row.inventory + row.bought - row.sold, market.origin,
                                                           market.last_tick);
      }
    }
    if (market.stopped()) return;
    __syncwarp();
    write_market_features(market, i, launch.final_observation, launch.observation);
  }

  // Put market i of the tile at the start of the episode that is on the desk.
  __device__ __forceinline__ void open(int i) {
    DeskMarket& desk = markets[i];
    __syncwarp();
    Market market(launch, first + i, markets[i].params, shared, bins);
    if (task.bank_size > 0) {
      const int64_t at = desk.bank_row * market.levels;
      Market::fetch_book(launch, shared, launch.bank_bid + at, launch.bank_ask + at);
      market.accept_book();
      market.find_best();
    } else {
      market.open_book();
    }
    Opening opening = {0, 0, desk.bank_row};
    static_cast<MarketNumbers&>(market) = opening_numbers(launch, task, market.p, opening, desk.key, desk.error);
    put_on_desk(market, i);
    market.store_book();
    if (lane < 2 * kHistory + 3) desk.mid_history[lane] = lane < kHistory + 2 ? market.mark() : 0;  // and volumes
    if (lane == 0) desk.arrival2 = market.mark();
    __syncwarp();
    write_market_features(market, i, launch.observation, nullptr);
  }

  // What model/step.h asks for ----------------------------------------------------------------------------------------

  __device__ __forceinline__ bool any(bool holds) const { return __any_sync(kAllLanes, holds); }

  // All that is read comes at once, and waits for nothing else.
  __device__ __forceinline__ void load() {
    constexpr int kPieces = sizeof(MarketParams) / 16;
    static_assert(sizeof(MarketParams) % 16 == 0, "copied by 16 bytes");
    const int32_t* from = reinterpret_cast<const int32_t*>(launch.params + first * launch.params_stride);
#pragma unroll 1
    for (int i = lane; i < count * kPieces; i += kWarpLanes)
      copy_16_bytes_ahead(reinterpret_cast<int*>(&markets[i / kPieces].params) + 4 * (i % kPieces),
                          from + 4 * (launch.params_stride ? i : i % kPieces));
    if (has_market) {
      DeskMarket& desk = my_market();
      const int64_t m = first + lane;
      copy_ahead(&desk.prev_mid2, launch.prev_mid2 + m);
      copy_ahead(&desk.last_tick, launch.last_tick + m);
      copy_ahead(&desk.origin, launch.price_origin + m);
      copy_ahead(&desk.fundamental, launch.fundamental_price + m);
      copy_ahead(&desk.fundamental_before, launch.fundamental_price + m);
      copy_ahead(&desk.t, launch.t + m);
      copy_ahead(&desk.volume, launch.volume + m);
      copy_ahead(&desk.trades, launch.trades + m);
      copy_ahead(&desk.error, launch.error + m);
      copy_ahead(&desk.elapsed, launch.elapsed + m);
      copy_ahead(&desk.arrival2, launch.arrival2 + m);
      copy_ahead(&desk.scenario, launch.scenario + m);
#pragma unroll
      for (int i = 0; i <= kHistory; ++i)
        copy_ahead(desk.mid_history + 1 + i, launch.mid_history + m * (kHistory + 1) + i);
#pragma unroll
      for (int i = 0; i < kHistory; ++i)
        copy_ahead(desk.volume_history + 1 + i, launch.volume_history + m * kHistory + i);
      seed = launch.seed[m];
      episode = launch.episode[m];
      done = launch.done[m];
      masked = !launch.reset_mask || launch.reset_mask[m];
    }
    const bool steps = launch.env_mode == kLaunchModeEnvStep;
    if (steps) fetch(0, shared);  // most likely the first that plays
    if (has_slot) {
      DeskSlot& row = my_slot();
      const int4 four = reinterpret_cast<const int4*>(launch.quotes)[slot_row()];
      standing = Quote{four.x, four.y, four.z, four.w};
      inventory = launch.inventory[slot_row()];
      ended_before = launch.ended[slot_row()];
      copy_ahead(&row.cash_before, launch.cash + slot_row());
      copy_ahead(&row.fees, launch.fees + slot_row());
      copy_ahead(&row.prev_value, launch.prev_value + slot_row());
      if (steps && task.action_type == kActionTypeContinuous) action = read_action();
    }
    copies_done();
  }

  __device__ __forceinline__ Part part() const {
    if (!has_market) return {false, false, true};
    return part_of(launch, task, market_has_stopped(my_market().error), done, masked);
  }

  // The desk, and what the first auction needs of a market's own words: here a lane hashes for a market.
  __device__ __forceinline__ void begin(const Part& part) {
    if (has_market) {
      DeskMarket& desk = my_market();
      desk.ended = 0;
      desk.key = episode_key(seed, episode);
      if (part.plays) {
        const MarketParams p = params_of(lane);
        desk.counter = word_counter(desk.key, desk.t, 0);
        desk.ration_word = mix64(desk.counter + kRationWord * kGolden);
        if (kOptions && (p.walk_threshold | p.jump_threshold) != 0)
          desk.fundamental = walk_fundamental(p, mix64(desk.counter + kWalkWord * kGolden), desk.fundamental);
      }
    }
    __syncwarp();
    playing = __ballot_sync(kAllLanes, part.plays);
    if (has_slot) {
      DeskSlot& row = my_slot();
      row.quote = standing;
      row.inventory = inventory;
      row.cash = row.liquidation = row.bought = row.sold = 0;
      row.fresh = Quote{0, 0, 0, 0};
      if (ended_before) atomicOr(&markets[slot_market].ended, 1u << k);
    }
  }

  __device__ __forceinline__ void decode_actions(const Part&) {
    if (is_in(playing) && !ended_before) my_slot().fresh = decode(markets[slot_market], standing, inventory, action);
    __syncwarp();
  }

  // Market after market.
  __device__ __forceinline__ bool play(Part& part) {
    int *book = shared, *next_book = shared + Market::book_ints(launch);
    if (!(playing & 1)) fetch(__ffs(playing) - 1, book);
#pragma unroll 1
    for (unsigned left = playing; left != 0; left &= left - 1) {
      play_market(__ffs(left) - 1, book, __ffs(left & (left - 1)) - 1, next_book);
      __syncwarp();
      int* const played_book = book;
      book = next_book;
      next_book = played_book;
    }
    part.plays = part.plays && !market_has_stopped(my_market().error);
    return true;
  }

  // Accounts waited on the desk, as registers are what auctions are short of, and go back there: after all lanes have
  // read them, as several may work for one slot.
  __device__ __forceinline__ void judge(const Part& part) {
    const unsigned played = __ballot_sync(kAllLanes, part.plays);
    if (part.plays) my_market().elapsed += 1;
    __syncwarp();
    DeskSlot& row = my_slot();
    DeskMarket& market = markets[slot_market];
    Account account{0, 0, 0};
    Outcome outcome{0, 0.0f, kEndGoesOn};
    if (is_in(playing)) {
      const int64_t bought = row.bought, sold = row.sold;
      const Account before{row.cash_before, row.inventory, row.fees};
      account = Account{before.cash + row.cash, before.inventory + bought - sold,
                        before.fees + (int64_t)params_of(slot_market).fee * (bought + sold)};
      outcome.value = row.prev_value;
      if (is_in(played)) {
        const int64_t remaining = target(market, market.mid_history, k, account.inventory).remaining;
        outcome = outcome_of(task, role_of(launch, k), before, account, market.fundamental_before, market.fundamental,
                             market.mid_history, market.arrival2, row.prev_value, row.liquidation, remaining,
                             bought + sold, market.elapsed, market.ended >> k & 1);
        write_own_features(row.quote, account, launch.final_observation, launch.observation);
      }
    }
    __syncwarp();
    if (is_in(playing)) {
      row.cash_before = account.cash, row.inventory = account.inventory, row.fees = account.fees;
      row.prev_value = outcome.value;
      if (outcome.end != kEndGoesOn) atomicOr(&market.ended, 1u << k);
    }
    reward = outcome.reward;
    end = outcome.end;
    __syncwarp();
    if (part.plays) done = all_ended();
  }
  __device__ __forceinline__ bool all_ended() const {
    const unsigned market_slots = (slots < 32 ? 1u << slots : 0u) - 1u;
    return my_market().ended == market_slots;
  }

  // Features are written while what they are made of is at hand: the book's in play_market, slots' own in judge.
  __device__ __forceinline__ void observe(const Part&) const {}

  __device__ __forceinline__ bool begin_episodes(const Part& part) {
    if (part.restarts) {
      DeskMarket& desk = my_market();
      const int64_t m = first + lane, next = launch.episode[m] + 1;
      launch.episode[m] = next;
      done = false;
      desk.key = episode_key(launch.seed[m], next);
      const Opening opening = opening_of(launch, task, m, desk.key, next);
      desk.elapsed = opening.elapsed;
      desk.bank_row = opening.bank_row;
      desk.ended = 0;
      if (launch.env_mode == kLaunchModeEnvReset) desk.error = 0;
      if (task.scenarios > 0) {
        desk.scenario = opening.scenario;
        launch.params[m] = desk.params = launch.scenario_params[opening.scenario];
      }
    }
    __syncwarp();
    const unsigned restarting = __ballot_sync(kAllLanes, part.restarts);
#pragma unroll 1
    for (unsigned left = restarting; left != 0; left &= left - 1) open(__ffs(left) - 1);
    __syncwarp();
    if (is_in(restarting)) {
      DeskSlot& row = my_slot();
      row.quote = Quote{0, 0, 0, 0};
      row.cash_before = row.inventory = row.fees = row.prev_value = 0;
      write_own_features(row.quote, Account{0, 0, 0}, launch.observation, nullptr);
    }
    return true;
  }
  __device__ __forceinline__ void observe_opening(const Part&) const {}

  __device__ __forceinline__ void store(const Part& part) const {
    const unsigned untouched = __ballot_sync(kAllLanes, part.frozen);
    if (has_market && !part.frozen) {
      const DeskMarket& desk = my_market();
      const int64_t m = first + lane;
      launch.prev_mid2[m] = desk.prev_mid2;
      launch.last_tick[m] = desk.last_tick;
      launch.price_origin[m] = desk.origin;
      launch.fundamental_price[m] = desk.fundamental;
      launch.t[m] = desk.t;
      launch.volume[m] = part.restarts ? 0 : desk.volume;
      launch.trades[m] = part.restarts ? 0 : desk.trades;
      launch.error[m] = desk.error;
      launch.elapsed[m] = desk.elapsed;
      launch.done[m] = done;
      launch.arrival2[m] = desk.arrival2;
      launch.scenario[m] = desk.scenario;
      const int moved = part.plays || part.restarts ? 0 : 1;  // whether the front of the histories was filled
#pragma unroll
      for (int i = 0; i <= kHistory; ++i) launch.mid_history[m * (kHistory + 1) + i] = desk.mid_history[moved + i];
#pragma unroll
      for (int i = 0; i < kHistory; ++i) launch.volume_history[m * kHistory + i] = desk.volume_history[moved + i];
    }
    if (has_slot) {
      const DeskSlot& row = my_slot();
      const int64_t at = slot_row();
      if (launch.env_mode == kLaunchModeEnvStep) {
        launch.fills[2 * at] = row.bought;
        launch.fills[2 * at + 1] = row.sold;
        launch.reward[at] = reward;
      }
      if (!(untouched >> slot_market & 1)) {
        const Quote& q = row.quote;
        reinterpret_cast<int4*>(launch.quotes)[at] = make_int4(q.bid_price, q.bid_qty, q.ask_price, q.ask_qty);
        launch.cash[at] = row.cash_before;
        launch.inventory[at] = row.inventory;
        launch.fees[at] = row.fees;
        launch.prev_value[at] = row.prev_value;
        launch.ended[at] = markets[slot_market].ended >> k & 1;
        launch.reward[at] = reward;
        launch.terminated[at] = end == kEndTerminated;
        launch.truncated[at] = end == kEndTruncated;
        launch.over[at] = end != kEndGoesOn;
      }
    }
  }
};

}  // namespace ks
