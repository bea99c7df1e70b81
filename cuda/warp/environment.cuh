// environment.cuh: one environment step or reset, in the same launch as its auctions. Loops and memory only:
// actions, rewards and observations are model/tasks.h's, in the order of docs/environment.md.
//
// A warp has a tile of markets. What is one number per market or per slot (actions, rewards, flags, own features) is
// computed for the whole tile at once, one lane each. Auctions and books are computed for one market at a time, one tick
// per lane. With one market per warp, 31 lanes would idle through four fifths of a step. In between, the tile's state is in
// shared memory (warp/tile_state.cuh).
#pragma once

#include "model/compiled_in.cuh"
#include "model/step.h"
#include "warp/clock.cuh"
#include "warp/tile_state.cuh"

namespace ks {

// KS_SINGLE: one market with one slot per warp. Every lane then works for the slot, and has a feature of its own.
#ifndef KS_SINGLE
#define KS_SINGLE 0
#endif

template <bool kClock, int kBins, bool kOptions, int kSlots, bool kAlone = KS_SINGLE != 0>
struct EnvironmentTile {
  using Market = typename CallMarketOf<kClock, kBins, kOptions, kSlots>::type;
  using TileMarket = ks::TileMarket<kClock>;
  static constexpr bool kSingle = kAlone && kSlots == 1;

  const Launch& launch;
  Task task;
  const int lane, slots, count;  // count: markets of this tile
  const int64_t first;
  int* const shared;             // two books: one is played, the next one is being copied; on the clock, what waits
  int* const bins;
  TileMarket* const markets;     // shared [tile]
  TileSlot* const rows;          // shared [tile * slots]
  const bool has_market, has_slot;
  const int slot_market, k;      // this lane's slot: its market in the tile, and its index there
  // State of this lane's market and slot that stays in registers.
  int64_t seed, episode;
  bool done, masked, ended_before;
  Quote standing;
  float4 action;
  int64_t inventory;
  unsigned playing;              // markets that began to play, one bit each
  // What came of a decision for this lane's slot.
  float reward;
  End end;
  bool idle;                     // it took no part

  static __device__ __forceinline__ int shared_ints(const Launch& launch) {
    return environment_ints(KS_LEVELS, launch.tile, launch.slots, TileMarket::kHasLevers, kClock);
  }

  __device__ __forceinline__ EnvironmentTile(const Launch& launch, int64_t first, int* shared)
      : launch(launch), task(task_of(launch)), lane(threadIdx.x % kWarpLanes), slots(kSlots == 1 ? 1 : launch.slots),
        count(kSingle ? 1 : (int)(launch.markets - first < launch.tile ? launch.markets - first : launch.tile)),
        first(first), shared(shared), bins(shared + environment_ints(KS_LEVELS, 0, 0, false, kClock) - kBinInts),
        markets(reinterpret_cast<TileMarket*>(bins + kBinInts)),
        rows(reinterpret_cast<TileSlot*>(markets + (kSingle ? 1 : launch.tile))), has_market(lane < count),
        has_slot(kSingle || lane < count * slots), slot_market(kSingle || !has_slot ? 0 : lane / slots),
        k(kSlots == 1 ? 0 : lane - slot_market * slots), seed(0), episode(0), done(false), masked(true), ended_before(false),
        standing{0, 0, 0, 0}, action(make_float4(0.0f, 0.0f, 0.0f, 0.0f)), inventory(0), playing(0), reward(0.0f),
        end(kEndGoesOn), idle(true) {}

  // Whether nothing happens to any market of the tile.
  __device__ __forceinline__ bool rests() const {
    return !__any_sync(kAllLanes, has_market && !leaves_alone(launch, first + lane));
  }

  __device__ __forceinline__ TileMarket& my_market() const { return markets[has_market ? lane : 0]; }
  __device__ __forceinline__ TileSlot& my_slot() const { return rows[!kSingle && has_slot ? lane : 0]; }
  __device__ __forceinline__ bool is_in(unsigned of_markets) const { return has_slot && (of_markets >> slot_market & 1); }
  // Whether this lane writes its slot's row: one does, where all lanes work for one slot.
  __device__ __forceinline__ bool keeps_slot() const { return kSingle ? lane == 0 : has_slot; }

  // This lane's row among all slots: a tile's slots follow each other in memory.
  __device__ __forceinline__ int64_t slot_row() const { return first * slots + (kSingle ? 0 : lane); }

  __device__ __forceinline__ MarketParams params_of(int market) const {
    return with_constants(markets[market].params());
  }

  __device__ __forceinline__ int32_t fee_of(int market) const {
    const MarketParams p = params_of(market);
    return kWithLevers ? unit_fee(p) : p.fee;
  }

  __device__ __forceinline__ void fetch(int i, int* book) const {
    const int levels = KS_LEVELS;
    Market::fetch_book(launch, book, launch.bid + (first + i) * levels, launch.ask + (first + i) * levels);
  }

  __device__ __forceinline__ Target target(const TileMarket& market, const int32_t* mid_history, int slot,
                                           int64_t inventory) const {
    return target_of(slot_task((int)(&market - markets), slot), role_of(launch, slot), mid_history, market.key, market.t,
                     slot, inventory);
  }
  // The task as a slot of a market of the tile has it.
  __device__ __forceinline__ SlotTask slot_task(int market, int slot) const {
    return SlotTask(launch, task, (first + market) * slots + slot);
  }
  // As this lane's slot has it.
  __device__ __forceinline__ SlotTask my_task() const { return slot_task(slot_market, k); }

  __device__ __forceinline__ int row_length() const { return kObservation + extra_columns(launch); }  // of an observation

  // This lane's row of continuous actions.
  __device__ __forceinline__ float4 read_action() const {
    const int stride = launch.action_stride;
    if (stride == kActionSize) return reinterpret_cast<const float4*>(launch.actions)[slot_row()];
    const float* row = launch.actions + slot_row() * stride;
    return make_float4(stride > 0 ? row[0] : 0.0f, stride > 1 ? row[1] : 0.0f, stride > 2 ? row[2] : 0.0f, 0.0f);
  }

  // This lane's action, turned into a quote within the pre-trade limits.
  __device__ __forceinline__ Quote decode(TileMarket& market, const Quote& standing, int64_t inventory,
                                          const float4& row) {
    int32_t error = 0;
    const Target aim = target(market, market.mid_history + 1, k, inventory);
    const int32_t mid2 = market.mid_history[1];
    const float action[kActionSize] = {row.x, row.y, row.z, row.w};
    const Quote fresh = quote_of_action(launch, my_task(), role_of(launch, k), params_of(slot_market), action, slot_row(), mid2,
                                        aim, standing, inventory, error);
    if (error) atomicOr(&market.error, error);
    return fresh;
  }

  // What this lane's slot's policy submits, within the pre-trade limits.
  __device__ __forceinline__ Quote decide() const {
    const TileMarket& state = markets[slot_market];
    const int64_t m = first + slot_market;
    const MarketNumbers numbers = {state.prev_mid2, state.last_tick, state.origin, launch.fundamental_price[m], 0, state.key, state.t};
    const Account account = {launch.cash[slot_row()], inventory, launch.fees[slot_row()]};
    return quote_of_policy_in_call(launch, m, k, my_task(), numbers, params_of(slot_market), state.mid_history + 1,
                                   state.volume_history + 1, state.elapsed, state.arrival2,
                                   target(state, state.mid_history + 1, k, inventory), account, standing,
                                   launch.bid + m * launch.levels, launch.ask + m * launch.levels);
  }

  // The features that all slots of a market share, one per lane, to `out` and (not null) to `copy`.
  __device__ __forceinline__ void write_market_features(const Market& market, int i, float* out, float* copy) const {
    const TileMarket& state = markets[i];
    const View<const int32_t*> view{market.buy, market.sell, market.levels, market.best_bid, market.best_ask,
                                    state.mid_history[0], market.last_tick, market.origin, state.mid_history,
                                    state.volume_history, 0, 0, 0, 0, {0, 0}, {0, 0, 0, 0}, {0, 0, 0}, 0};
    if (lane < kMarketFeatures) {
      const float feature = feature_of(market_ratio(view, lane));
      const int length = row_length();
      const int64_t at = first * slots * length + i * slots * length + lane;
#pragma unroll 1
      for (int place = 0; place < slots * length; place += length) {
        out[at + place] = feature;
        if (copy) copy[at + place] = feature;
      }
    }
  }

  // This lane's slot's own features.
  __device__ __forceinline__ void write_own_features(const Quote& quote, const Account& account, float* out,
                                                     float* copy) const {
    const TileMarket& state = markets[slot_market];
    View<const int32_t*> view{};
    view.mid2 = state.mid_history[0];
    view.arrival2 = state.arrival2;
    view.role = role_of(launch, k);
    view.elapsed = state.elapsed;
    view.inventory_limit = params_of(slot_market).inventory_limit;
    view.quote = quote;
    view.account = account;
    view.fundamental = state.fundamental;
    view.target = target(state, state.mid_history, k, account.inventory);
    const int64_t row = slot_row() * row_length(), at = row + kMarketFeatures;
    const SlotTask own = my_task();
    if (kSingle) {
      Ratio ratio{0.0f, 1.0f};
#pragma unroll
      for (int i = 0; i < kOwnFeatures; ++i) {
        const Ratio other = own_ratio(own, view, i);
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
        const float feature = feature_of(own_ratio(own, view, i));
        out[at + i] = feature;
        if (copy) copy[at + i] = feature;
      }
    }
    int column = kObservation;
#pragma unroll
    for (int i = 0; i < kExtras; ++i) {
      if (!has_extra(launch, i)) continue;
      const float feature = feature_of(extra_ratio(launch, slot_row(), view, i));
      if (keeps_slot()) out[row + column] = feature;
      if (keeps_slot() && copy) copy[row + column] = feature;
      column += 1;
    }
  }

  // A decision's volume and trades are added as they come, on the clock perhaps before each of its intervals.
  __device__ __forceinline__ void store_in_tile(const Market& market, int i) const {
    if (lane != 0) return;
    TileMarket& state = markets[i];
    if constexpr (kClock) state.ret = market.ret, state.beat_price = market.beat_price;
    state.prev_mid2 = market.prev_mid2;
    state.last_tick = market.last_tick;
    state.origin = market.origin;
    state.fundamental = market.fundamental;
    state.t = market.t;
    state.volume += market.volume;
    state.trades += market.trades;
    state.error = market.error;
    if (kWithLevers) state.regime = (short)market.regime;
    state.mid_history[0] = market.mark();
    state.volume_history[0] = recorded_volume((kClock ? state.volume_history[0] : 0) + market.volume);
  }

  // What a decision has come to, or on the clock what a market may go back to that has to stop.
  __device__ __forceinline__ void keep(Market& market, int i) const {
    store_in_tile(market, i);
    market.volume = 0, market.trades = 0;
    market.store_book();
    if (lane < slots) {
      TileSlot& row = rows[i * slots + market.slot()];
      row.quote = market.quote;
      row.cash = market.account.cash;
      row.bought = (int32_t)market.bought;
      row.sold = (int32_t)market.sold;
    }
  }

  // The auctions of one decision, and after the last decision the forced ones, in which what is left of blocks trades, and slots
  // unwind.
  __device__ __forceinline__ void play_auctions(Market& market, const TileMarket& state, Quote fresh) {
    const int forced =
        task.forced_auctions > 0 ? forced_auctions(slot_task(market_index(state), 0), state.elapsed + 1) : 0;
    market.bought = market.sold = 0;
#pragma unroll 1
    for (int a = 0; a < launch.auctions + forced; ++a) {
      if (a >= launch.auctions) {
        fresh = Quote{0, 0, 0, 0};
        const int slot = market.slot();
        if (market.has_slot()) {
          const int64_t inventory = rows[market_index(state) * slots + slot].inventory + market.bought - market.sold;
          const Target aim = target(state, state.mid_history + 1, slot, inventory);
          const int i = market_index(state);
          fresh = forced_order(launch, slot_task(i, slot), first + i, slot, state.ended >> slot & 1, market.p, aim, inventory);
        }
        if (!market.any_slot(has_quantity(fresh))) return;
      }
      const auto keep_now = [&] { keep(market, market_index(state)); };
      if (!market.auction(a == 0 || a >= launch.auctions, fresh, keep_now)) return;
    }
  }

  __device__ __forceinline__ int market_index(const TileMarket& state) const { return (int)(&state - markets); }

  // The auctions of one decision in market i of the tile, whose book is being copied. `next` is the market after it, or -1.
  __device__ __forceinline__ void play_market(int i, int* book, int next, int* next_book) {
    const TileMarket& state = markets[i];
    Market market(launch, first + i, markets[i].params(), book, bins);
    market.prev_mid2 = state.prev_mid2;
    market.last_tick = state.last_tick;
    market.origin = state.origin;
    market.fundamental = state.fundamental;
    market.error = state.error;
    if (kClock) market.start(state.key, state.t);
    else market.start_prepared(state.key, state.t, state.counter, &state.ration_word);
    if (kWithLevers) market.take_regime(state.regime);
    if (kWithCoin) market.prepared_coin = state.coin;
    Quote fresh{0, 0, 0, 0};
    TileSlot& row = rows[i * slots + market.slot()];
    if (market.has_slot()) {
      market.quote = row.quote;
      fresh = row.fresh;
    }
    market.accept_book();
    if (next >= 0) fetch(next, next_book);
    if (kClock || !kOptions || market.p.cancel_threshold == 0) market.find_best();  // cancellation does so, too
    if constexpr (kClock) market.go_on(state.ret, state.beat_price);
    play_auctions(market, state, fresh);
    __syncwarp();
    if (kClock && market.book_is_stored) {
      if (lane == 0) markets[i].error = market.error;
    } else {
      keep(market, i);
    }
    if (market.stopped()) return;
    if (task.mark == kMarkLiquidation && lane < slots)
      row.liquidation = liquidation_cash<const int32_t*>(market.buy, market.sell, market.levels,
                                                         row.inventory + row.bought - row.sold, market.origin,
                                                         market.last_tick);
    __syncwarp();
    if (writes_info(launch)) note_market(market, i, state.elapsed + 1);
    write_market_features(market, i, launch.final_observation, launch.observation);
  }

  __device__ __forceinline__ void note_market(const Market& market, int i, int32_t elapsed) const {
    if (lane != 0) return;
    write_market_info(launch, first + i, market.mark(), market.fundamental, market.best_bid, market.best_ask, market.origin,
                      markets[i].scenario, elapsed);
  }

  // Put market i of the tile at the start of the episode that its state names, and perhaps note how it begins.
  __device__ __forceinline__ void open(int i, bool noted) {
    TileMarket& state = markets[i];
    __syncwarp();
    Market market(launch, first + i, markets[i].params(), shared, bins);
    if (task.bank_size > 0) {
      const int64_t at = state.bank_row * market.levels;
      Market::fetch_book(launch, shared, launch.bank_bid + at, launch.bank_ask + at);
      market.accept_book();
      market.find_best();
    } else {
      market.open_book();
    }
    Opening opening = {0, 0, state.bank_row};
    static_cast<MarketNumbers&>(market) = opening_numbers(launch, task, market.p, opening, state.key, state.error);
    if (kWithLevers) market.regime = state.regime;
    if constexpr (kClock) market.ret = 0, market.beat_price = market.last_tick + market.origin;
    if constexpr (kAddedClasses > 0) {
      const Share share = {lane, kWarpLanes};
      if (task.scenarios > 0) enter_scenario(launch, first + i, state.scenario, share);
      begin_memory(launch, task, first + i, market.p, market.regime, state.bank_row, share);
    }
    __syncwarp();  // all lanes have read what lane 0 now stores
    store_in_tile(market, i);
    market.store_book();
    if (lane < 2 * kHistory + 3) state.mid_history[lane] = lane < kHistory + 2 ? market.mark() : 0;  // and volumes
    if (lane == 0) state.arrival2 = market.mark();
    __syncwarp();
    if (noted) note_market(market, i, state.elapsed);
    write_market_features(market, i, launch.observation, nullptr);
    if (has_values(launch) && lane < slots) {
      const Account account = opening_account(launch, slot_task(i, lane));
      const int64_t cash = task.mark == kMarkLiquidation
                               ? liquidation_cash<const int32_t*>(market.buy, market.sell, market.levels,
                                                                  account.inventory, market.origin, market.last_tick)
                               : 0;
      note_opening_value(launch, task, (first + i) * slots + lane, account, market.fundamental, market.mark(), cash);
    }
  }

  // What model/step.h asks for ----------------------------------------------------------------------------------------

  __device__ __forceinline__ bool any(bool holds) const { return __any_sync(kAllLanes, holds); }

  // All reads are issued at once, and none waits for another.
  __device__ __forceinline__ void load() {
    constexpr int kPieces = TileMarket::kParamInts / 4;
    static_assert(TileMarket::kParamInts % 4 == 0 && sizeof(MarketParams) % 16 == 0, "copied by 16 bytes");
#pragma unroll 1
    for (int i = lane; i < count * kPieces; i += kWarpLanes)
      copy_16_bytes_ahead(markets[i / kPieces].param_ints + 4 * (i % kPieces),
                          reinterpret_cast<const int32_t*>(launch.params + (first + i / kPieces) * launch.params_stride) +
                              4 * (i % kPieces));
    if (has_market) {
      TileMarket& state = my_market();
      const int64_t m = first + lane;
      copy_ahead(&state.prev_mid2, launch.prev_mid2 + m);
      copy_ahead(&state.last_tick, launch.last_tick + m);
      copy_ahead(&state.origin, launch.price_origin + m);
      copy_ahead(&state.fundamental, launch.fundamental_price + m);
      copy_ahead(&state.fundamental_before, launch.fundamental_price + m);
      copy_ahead(&state.t, launch.t + m);
      copy_ahead(&state.volume, launch.volume + m);
      copy_ahead(&state.trades, launch.trades + m);
      copy_ahead(&state.error, launch.error + m);
      copy_ahead(&state.elapsed, launch.elapsed + m);
      copy_ahead(&state.arrival2, launch.arrival2 + m);
      copy_ahead(&state.scenario, launch.scenario + m);
      if (kClock) copy_ahead(&state.ret, launch.ret + m), copy_ahead(&state.beat_price, launch.beat_price + m);
      if (kWithLevers) state.regime = (short)(launch.regime ? launch.regime[m] : 0);
#pragma unroll
      for (int i = 0; i <= kHistory; ++i)
        copy_ahead(state.mid_history + 1 + i, launch.mid_history + m * (kHistory + 1) + i);
#pragma unroll
      for (int i = 0; i < kHistory; ++i)
        copy_ahead(state.volume_history + 1 + i, launch.volume_history + m * kHistory + i);
      seed = launch.seed[m];
      episode = launch.episode[m];
      done = launch.done[m];
      masked = !launch.reset_mask || launch.reset_mask[m];
    }
    const bool steps = launch.env_mode == kLaunchModeEnvStep;
    if (steps) fetch(0, shared);  // most likely the first that plays
    if (has_slot) {
      TileSlot& row = my_slot();
      const int4 four = reinterpret_cast<const int4*>(launch.quotes)[slot_row()];
      standing = Quote{four.x, four.y, four.z, four.w};
      inventory = launch.inventory[slot_row()];
      ended_before = launch.ended[slot_row()];
      if (keeps_slot()) {
        copy_ahead(&row.cash_before, launch.cash + slot_row());
        copy_ahead(&row.fees, launch.fees + slot_row());
        copy_ahead(&row.prev_value, launch.prev_value + slot_row());
      }
      if (steps && task.action_type == kActionTypeContinuous && !takes_records(launch)) action = read_action();
    }
    copies_done();
  }

  __device__ __forceinline__ Part part() const {
    if (!has_market) return {false, false, true};
    return part_of(launch, task, market_has_stopped(my_market().error), done, masked);
  }

  // The tile's state, and the market's own random words for the first auction: here one lane hashes for one market. On the
  // clock they are those of beats.
  __device__ __forceinline__ void begin(const Part& part) {
    if (has_market) {
      TileMarket& state = my_market();
      state.ended = 0;
      state.key = episode_key(seed, episode);
      if (kClock) {
        state.volume_history[0] = 0;
      } else if (part.plays) {
        MarketParams p = params_of(lane);
        if (kWithLevers) {
          state.regime = (short)regime_at(p, state.key, state.t, state.regime);
          if (p.levers.regimes > 0) enter_regime(launch.regimes, state.regime, state.params(), p);
        }
        if (kWithCoin) state.coin = (short)word_coin(random_word(state.key, state.t, kWalkWord));
        state.counter = word_counter(state.key, state.t, 0);
        state.ration_word = mix64(state.counter + kRationWord * kGolden);
        if (kOptions && (p.walk_threshold | p.jump_threshold) != 0)
          state.fundamental = walk_fundamental(p, mix64(state.counter + kWalkWord * kGolden), state.fundamental);
      }
    }
    __syncwarp();
    playing = __ballot_sync(kAllLanes, part.plays);
    if (keeps_slot()) {
      TileSlot& row = my_slot();
      row.quote = standing;
      row.inventory = inventory;
      row.cash = row.liquidation = row.bought = row.sold = 0;
      row.fresh = Quote{0, 0, 0, 0};
      if (ended_before) atomicOr(&markets[slot_market].ended, 1u << k);
    }
  }

  __device__ __forceinline__ void decode_actions(const Part&) {
    if (is_in(playing) && !ended_before) {
      const bool has = has_policy(launch, k);
      if (has && keeps_slot()) my_slot().fresh = decide();
      const Quote fresh = has ? Quote{0, 0, 0, 0} : decode(markets[slot_market], standing, inventory, action);
      if (!has && keeps_slot()) my_slot().fresh = fresh;
    } else if (is_in(playing) && keeps_slot()) {
      note_none_played(launch, first + slot_market, k);
    }
    __syncwarp();
  }

  // One market after another. The two books take turns by number: where pointers were swapped, ptxas 13.0 took one of them
  // for the base of the warp's shared memory from then on.
  __device__ __forceinline__ bool play(Part& part) {
    const int book_ints = Market::book_ints(launch);
    int turn = 0;
    if (!(playing & 1)) fetch(__ffs(playing) - 1, shared);
#pragma unroll 1
    for (unsigned left = playing; left != 0; left &= left - 1) {
      int *const book = shared + turn * book_ints, *const next_book = shared + (1 - turn) * book_ints;
      play_market(__ffs(left) - 1, book, __ffs(left & (left - 1)) - 1, next_book);
      __syncwarp();
      turn = 1 - turn;
    }
    part.plays = part.plays && !market_has_stopped(my_market().error);
    return true;
  }

  // Accounts are in the tile's state, as auctions need the registers. They are written back after all lanes have read
  // them, as several lanes may work for one slot.
  __device__ __forceinline__ void score(const Part& part) {
    const unsigned played = __ballot_sync(kAllLanes, part.plays);
    if (part.plays) my_market().elapsed += 1;
    __syncwarp();
    TileSlot& row = my_slot();
    TileMarket& market = markets[slot_market];
    Account account{0, 0, 0};
    Outcome outcome{0, 0.0f, kEndGoesOn};
    idle = true;
    if (is_in(playing)) {
      const int64_t bought = row.bought, sold = row.sold;
      const Account before{row.cash_before, row.inventory, row.fees};
      account = Account{before.cash + row.cash, before.inventory + bought - sold,
                        before.fees + (int64_t)fee_of(slot_market) * (bought + sold)};
      outcome.value = row.prev_value;
      if (is_in(played)) {
        const int64_t remaining = target(market, market.mid_history, k, account.inventory).remaining;
        outcome = outcome_of(my_task(), role_of(launch, k), k, before, account, market.fundamental_before,
                             market.fundamental, market.mid_history, market.arrival2, row.prev_value,
                             opening_value_of(launch, slot_row()), row.liquidation, remaining, bought + sold,
                             market.elapsed, market.ended >> k & 1);
        idle = market.ended >> k & 1;
        if (writes_info(launch) && keeps_slot())
          note_decision(launch, first + slot_market, k, role_of(launch, k), account, bought, sold, remaining, outcome);
        write_own_features(row.quote, account, launch.final_observation, launch.observation);
      }
    }
    __syncwarp();
    if (is_in(playing) && keeps_slot()) {
      row.cash_before = account.cash, row.inventory = account.inventory, row.fees = account.fees;
      row.prev_value = outcome.value;
      if (outcome.end != kEndGoesOn) atomicOr(&market.ended, 1u << k);
    }
    reward = outcome.reward;
    end = outcome.end;
    __syncwarp();
    if (part.plays) done = all_ended();
    if constexpr (kMayHavePolicies) {
      if (part.plays && done) my_market().ended = (slots < 32 ? 1u << slots : 0u) - 1u;
      __syncwarp();  // other lanes store it, slot by slot
    }
  }
  __device__ __forceinline__ bool all_ended() const {
    const int count = ending_slots(task, slots);
    const unsigned market_slots = (count < 32 ? 1u << count : 0u) - 1u;
    return (my_market().ended & market_slots) == market_slots;
  }

  // Features are written where their inputs are at hand: the book's in play_market, slots' own in score.
  __device__ __forceinline__ void observe(const Part&) const {}

  __device__ __forceinline__ bool begin_episodes(const Part& part) {
    if (part.restarts) {
      TileMarket& state = my_market();
      const int64_t m = first + lane, next = launch.episode[m] + 1;
      launch.episode[m] = next;
      done = false;
      state.key = episode_key(launch.seed[m], next);
      const Opening opening = opening_of(launch, task, m, state.key, next);
      state.elapsed = opening.elapsed;
      state.bank_row = opening.bank_row;
      state.ended = 0;
      if (launch.env_mode == kLaunchModeEnvReset) state.error = 0;
      if (task.scenarios > 0) {
        state.scenario = opening.scenario;
        launch.params[m] = launch.scenario_params[opening.scenario];
        const int32_t* const from = reinterpret_cast<const int32_t*>(launch.scenario_params + opening.scenario);
        for (int i = 0; i < TileMarket::kParamInts; ++i) state.param_ints[i] = from[i];
      }
      if (kWithLevers)
        state.regime = (short)opening_regime(launch, task, state.params(), state.key, opening.bank_row);
    }
    __syncwarp();
    const unsigned restarting = __ballot_sync(kAllLanes, part.restarts), played = __ballot_sync(kAllLanes, part.plays);
#pragma unroll 1
    for (unsigned left = restarting; left != 0; left &= left - 1) {
      const int i = __ffs(left) - 1;
      open(i, writes_info(launch) && !(played >> i & 1));
    }
    __syncwarp();
    if (is_in(restarting)) {
      const Account account = opening_account(launch, my_task());
      if (keeps_slot()) {
        TileSlot& row = my_slot();
        row.quote = Quote{0, 0, 0, 0};
        row.cash_before = row.fees = row.prev_value = 0;
        row.inventory = account.inventory;
        if (writes_info(launch)) {
          const TileMarket& state = markets[slot_market];
          const int64_t remaining = target(state, state.mid_history, k, account.inventory).remaining;
          note_opening(launch, first + slot_market, k, role_of(launch, k), account, remaining, played >> slot_market & 1);
        }
      }
      write_own_features(Quote{0, 0, 0, 0}, account, launch.observation, nullptr);
    }
    return true;
  }
  __device__ __forceinline__ void observe_opening(const Part&) const {}

  __device__ __forceinline__ void store(const Part& part) const {
    const unsigned untouched = __ballot_sync(kAllLanes, part.frozen);
    if (has_market && !part.frozen) {
      const TileMarket& state = my_market();
      const int64_t m = first + lane;
      launch.prev_mid2[m] = state.prev_mid2;
      launch.last_tick[m] = state.last_tick;
      launch.price_origin[m] = state.origin;
      launch.fundamental_price[m] = state.fundamental;
      launch.t[m] = state.t;
      launch.volume[m] = part.restarts ? 0 : state.volume;
      launch.trades[m] = part.restarts ? 0 : state.trades;
      launch.error[m] = state.error;
      launch.elapsed[m] = state.elapsed;
      launch.done[m] = done;
      launch.arrival2[m] = state.arrival2;
      launch.scenario[m] = state.scenario;
      if (kClock) launch.ret[m] = state.ret, launch.beat_price[m] = state.beat_price;
      if (kWithLevers && launch.regime) launch.regime[m] = state.regime;
      const int moved = part.plays || part.restarts ? 0 : 1;  // whether the front of the histories was filled
#pragma unroll
      for (int i = 0; i <= kHistory; ++i) launch.mid_history[m * (kHistory + 1) + i] = state.mid_history[moved + i];
#pragma unroll
      for (int i = 0; i < kHistory; ++i) launch.volume_history[m * kHistory + i] = state.volume_history[moved + i];
    }
    if (keeps_slot()) {
      const TileSlot& row = my_slot();
      const int64_t at = slot_row();
      if (launch.env_mode == kLaunchModeEnvStep) {
        launch.fills[2 * at] = kClock && idle ? 0 : row.bought;
        launch.fills[2 * at + 1] = kClock && idle ? 0 : row.sold;
        launch.reward[at] = reward;
        if (writes_info(launch)) launch.idle[at] = idle;
      }
      if (!(untouched >> slot_market & 1)) {
        const Quote& q = row.quote;
        reinterpret_cast<int4*>(launch.quotes)[at] = make_int4(q.bid_price, q.bid_qty, q.ask_price, q.ask_qty);
        launch.cash[at] = row.cash_before;
        launch.inventory[at] = row.inventory;
        launch.fees[at] = row.fees;
        launch.prev_value[at] = row.prev_value;
        launch.ended[at] = markets[slot_market].ended >> k & 1;
        if (!has_results(launch)) return;
        launch.reward[at] = reward;
        launch.terminated[at] = end == kEndTerminated;
        launch.truncated[at] = end == kEndTruncated;
        launch.over[at] = end != kEndGoesOn;
      }
    }
  }
};

}  // namespace ks
