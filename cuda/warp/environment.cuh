// environment.cuh: one environment step or reset, in the same launch as its auctions. Loops and memory only:
// actions, rewards and observations are model/tasks.h's, in the order of docs/environment.md.
//
// A warp has a tile of markets. What is one number a market or a slot (actions, rewards, flags, own features) is worked
// out for the whole tile at once, a lane each; auctions and books are for one market at a time, a tick a lane. With one
// market a warp, 31 lanes would idle through four fifths of a step. In between, the tile lies on a desk in shared memory.
#pragma once

#include "model/compiled_in.cuh"
#include "model/tasks.h"
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

  static __device__ __forceinline__ int shared_ints(const Launch& launch) {
    return 2 * Market::book_ints(launch) + kBinInts + launch.tile * (kDeskInts + kDeskSlotInts * launch.slots);
  }

  __device__ __forceinline__ EnvironmentTile(const Launch& launch, int64_t first, int* shared)
      : launch(launch), task(task_of(launch)), lane(threadIdx.x % kWarpLanes), slots(kSlots == 1 ? 1 : launch.slots),
        count(kSingle ? 1 : (int)(launch.markets - first < launch.tile ? launch.markets - first : launch.tile)),
        first(first), shared(shared), bins(shared + 2 * Market::book_ints(launch)),
        markets(reinterpret_cast<DeskMarket*>(bins + kBinInts)),
        rows(reinterpret_cast<DeskSlot*>(markets + launch.tile)), has_market(lane < count),
        has_slot(kSingle || lane < count * slots), slot_market(kSingle || !has_slot ? 0 : lane / slots),
        k(kSlots == 1 ? 0 : lane - slot_market * slots) {}

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

  // This lane's action, turned into a quote that the door lets through.
  __device__ __forceinline__ Quote decode(DeskMarket& market, const Quote& standing, int64_t inventory,
                                          const float4& row) {
    int32_t error = 0;
    const Target aim = target(market, market.mid_history + 1, k, inventory);
    const int32_t mid2 = market.mid_history[1];
    Quote fresh;
    if (task.action_type == kActionTypeContinuous) {
      const float action[kActionSize] = {row.x, row.y, row.z, row.w};
      fresh = decode_continuous(task, role_of(launch, k), action, mid2, aim, standing, error);
    } else {
      fresh = decode_discrete(task, role_of(launch, k), launch.choices[slot_row()], mid2, aim, error);
    }
    if (error) atomicOr(&market.error, error);
    return through_door(fresh, inventory, params_of(slot_market));
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
    desk.volume_history[0] = market.volume < 0x7fffffff ? (int32_t)market.volume : 0x7fffffff;
  }

  // The auctions of one decision, and after the last one those that its blocks are forced through.
  __device__ __forceinline__ void play_auctions(Market& market, const DeskMarket& desk, Quote fresh) {
    const int forced = task.forced_auctions > 0 && desk.elapsed + 1 >= task.horizon ? task.forced_auctions : 0;
    market.bought = market.sold = 0;
#pragma unroll 1
    for (int a = 0; a < launch.auctions + forced; ++a) {
      if (a >= launch.auctions) {
        fresh = Quote{0, 0, 0, 0};
        const int slot = market.slot();
        if (market.has_slot() && role_of(launch, slot) == kRoleExecutor && !(desk.ended >> slot & 1)) {
          const int64_t inventory = rows[market_index(desk) * slots + slot].inventory + market.bought - market.sold;
          const Target aim = target(desk, desk.mid_history + 1, slot, inventory);
          fresh = through_door(forced_quote(task, aim), inventory, market.p);
        }
        if (!market.any_slot(fresh.bid_qty + fresh.ask_qty > 0)) return;
      }
      if (!market.auction(a == 0 || a >= launch.auctions, fresh)) return;
    }
  }

  __device__ __forceinline__ int market_index(const DeskMarket& desk) const { return (int)(&desk - markets); }

  // The auctions of one decision in market i of the tile, whose book is on its way; `next` (-1: none) follows it.
  __device__ __forceinline__ void play(int i, int* book, int next, int* next_book) {
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
      const int32_t* scalars = launch.bank_scalars + 4 * desk.bank_row;
      market.prev_mid2 = scalars[0];
      market.last_tick = scalars[1];
      market.origin = scalars[2];
      market.fundamental = scalars[3];
    } else {
      market.open_book();
      market.prev_mid2 = 2 * market.p.init_price;
      market.last_tick = market.p.init_price;
      market.origin = 0;
      market.fundamental = market.p.fundamental_price;
    }
    market.t = 0;
    market.error = desk.error;
    put_on_desk(market, i);
    market.store_book();
    if (lane < 2 * kHistory + 3) desk.mid_history[lane] = lane < kHistory + 2 ? market.mark() : 0;  // and volumes
    if (lane == 0) desk.arrival2 = market.mark();
    __syncwarp();
    write_market_features(market, i, launch.observation, nullptr);
  }

  __device__ __forceinline__ void step_or_reset() {
    const bool explicit_reset = launch.env_mode == kLaunchModeEnvReset;
    const int64_t m = first + lane;  // this lane's market
    DeskMarket& desk = markets[has_market ? lane : 0];
    DeskSlot& row = rows[!kSingle && has_slot ? lane : 0];

    // What this lane's market and slot are.
    bool plays = false, restarts = false, frozen = true, done = false;
    // All that is read comes at once, and waits for nothing else.
    constexpr int kPieces = sizeof(MarketParams) / 16;
    static_assert(sizeof(MarketParams) % 16 == 0, "copied by 16 bytes");
    const int32_t* from = reinterpret_cast<const int32_t*>(launch.params + first * launch.params_stride);
#pragma unroll 1
    for (int i = lane; i < count * kPieces; i += kWarpLanes)
      copy_16_bytes_ahead(reinterpret_cast<int*>(&markets[i / kPieces].params) + 4 * (i % kPieces),
                          from + 4 * (launch.params_stride ? i : i % kPieces));
    int64_t seed = 0, episode = 0;
    bool masked = true;
    if (has_market) {
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
    int *book = shared, *next_book = shared + Market::book_ints(launch);
    if (!explicit_reset) fetch(0, book);  // most likely the first that plays
    int4 standing = make_int4(0, 0, 0, 0);
    float4 action = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    int64_t inventory = 0;
    bool ended = false;  // this lane's slot's own end
    if (has_slot) {
      standing = reinterpret_cast<const int4*>(launch.quotes)[slot_row()];
      inventory = launch.inventory[slot_row()];
      ended = launch.ended[slot_row()];
      copy_ahead(&row.cash_before, launch.cash + slot_row());
      copy_ahead(&row.fees, launch.fees + slot_row());
      copy_ahead(&row.prev_value, launch.prev_value + slot_row());
      if (!explicit_reset && task.action_type == kActionTypeContinuous) action = read_action();
    }
    copies_done();
    if (has_market) {
      desk.ended = 0;
      desk.key = episode_key(seed, episode);
      const bool stopped = market_has_stopped(desk.error);
      plays = !explicit_reset && !stopped && !done;
      restarts = explicit_reset ? masked : !stopped && done && task.autoreset != kAutoresetDisabled;
      frozen = explicit_reset ? !restarts : !stopped && done && task.autoreset == kAutoresetDisabled;  // and so are its flags
      if (plays) {  // what the first auction needs of the market's own words: here a lane hashes for a market
        const MarketParams p = params_of(lane);
        desk.counter = word_counter(desk.key, desk.t, 0);
        desk.ration_word = mix64(desk.counter + kRationWord * kGolden);
        if (kOptions && (p.walk_threshold | p.jump_threshold) != 0)
          desk.fundamental = walk_fundamental(p, mix64(desk.counter + kWalkWord * kGolden), desk.fundamental);
      }
    }
    __syncwarp();
    const unsigned playing = __ballot_sync(kAllLanes, plays);
    const bool slot_plays = has_slot && (playing >> slot_market & 1);
    if (has_slot) {
      const Quote quote{standing.x, standing.y, standing.z, standing.w};
      row.quote = quote;
      row.inventory = inventory;
      row.cash = row.liquidation = row.bought = row.sold = 0;
      row.fresh = Quote{0, 0, 0, 0};
      if (ended) atomicOr(&markets[slot_market].ended, 1u << k);
      else if (slot_plays) row.fresh = decode(markets[slot_market], quote, inventory, action);
    }
    __syncwarp();

    // The auctions, market after market.
    if (playing != 0 && !(playing & 1)) fetch(__ffs(playing) - 1, book);
#pragma unroll 1
    for (unsigned left = playing; left != 0; left &= left - 1) {
      play(__ffs(left) - 1, book, __ffs(left & (left - 1)) - 1, next_book);
      __syncwarp();
      int* const played_book = book;
      book = next_book;
      next_book = played_book;
    }

    // What came of them: money, ends of episode, rewards. What they need waited on the desk, as registers are what
    // auctions are short of.
    Account account{0, 0, 0};
    int64_t prev_value = 0;
    if (has_slot) {
      account = Account{row.cash_before, row.inventory, row.fees};
      prev_value = row.prev_value;
    }
    ended = has_slot && (markets[slot_market].ended >> k & 1);
    const Account before = account;
    if (has_market && plays && market_has_stopped(desk.error)) plays = false;
    const unsigned played = __ballot_sync(kAllLanes, plays);
    if (has_market && plays) desk.elapsed += 1;
    __syncwarp();
    const bool slot_played = has_slot && (played >> slot_market & 1);
    float reward = 0.0f;
    if (slot_plays) {
      const int64_t bought = row.bought, sold = row.sold;
      account.cash += row.cash;
      account.inventory += bought - sold;
      account.fees += (int64_t)params_of(slot_market).fee * (bought + sold);
    }
    const bool on_fundamental = task.mark == kMarkFundamental;
    const DeskMarket& mine = markets[slot_market];
    End end = kEndGoesOn;
    if (slot_played) {
      Decision d;
      d.before = before, d.after = account;
      d.mark2_before = on_fundamental ? 2 * (int64_t)mine.fundamental_before : mine.mid_history[1];
      d.mark2_after = on_fundamental ? 2 * (int64_t)mine.fundamental : mine.mid_history[0];
      d.arrival2 = mine.arrival2;
      d.prev_value = prev_value;
      d.value = marked_value(task, account, d.mark2_after, row.liquidation);
      d.remaining = target(mine, mine.mid_history, k, account.inventory).remaining;
      prev_value = d.value;
      if (!ended) {
        end = end_of(task, role_of(launch, k), d.value, d.remaining, mine.elapsed);
        d.ends = end != kEndGoesOn;
        reward = reward_of(task, role_of(launch, k), d, (int64_t)row.bought + row.sold);
        ended = d.ends;
      }
      write_own_features(row.quote, account, launch.final_observation, launch.observation);
    }
    const unsigned alive = __ballot_sync(kAllLanes, has_slot && !ended);
    if (has_market && plays) {
      const unsigned market_slots = (slots < 32 ? 1u << slots : 0u) - 1u;
      done = (alive >> (lane * slots) & market_slots) == 0;
      restarts = done && task.autoreset == kAutoresetSameStep;
    }
    __syncwarp();

    // Episodes that begin.
    const unsigned restarting = __ballot_sync(kAllLanes, restarts);
    if (restarting != 0) {
      if (restarts) {
        episode = launch.episode[m] + 1;
        launch.episode[m] = episode;
        done = false;
        desk.key = episode_key(launch.seed[m], episode);
        desk.t = 0;
        const Opening opening = opening_of(launch, task, m, desk.key, episode);
        desk.elapsed = opening.elapsed;
        desk.bank_row = opening.bank_row;
        if (explicit_reset) desk.error = 0;
        if (task.scenarios > 0) {
          desk.scenario = opening.scenario;
          launch.params[m] = desk.params = launch.scenario_params[opening.scenario];
        }
      }
      __syncwarp();
#pragma unroll 1
      for (unsigned left = restarting; left != 0; left &= left - 1) open(__ffs(left) - 1);
      __syncwarp();
      if (has_slot && (restarting >> slot_market & 1)) {
        row.quote = Quote{0, 0, 0, 0};
        account = Account{0, 0, 0};
        prev_value = 0;
        ended = false;
        write_own_features(row.quote, account, launch.observation, nullptr);
      }
    }

    // Everything back to where it came from.
    const unsigned untouched = __ballot_sync(kAllLanes, frozen);
    if (has_market && !frozen) {
      launch.prev_mid2[m] = desk.prev_mid2;
      launch.last_tick[m] = desk.last_tick;
      launch.price_origin[m] = desk.origin;
      launch.fundamental_price[m] = desk.fundamental;
      launch.t[m] = desk.t;
      launch.volume[m] = restarts ? 0 : desk.volume;
      launch.trades[m] = restarts ? 0 : desk.trades;
      launch.error[m] = desk.error;
      launch.elapsed[m] = desk.elapsed;
      launch.done[m] = done;
      launch.arrival2[m] = desk.arrival2;
      launch.scenario[m] = desk.scenario;
      const int moved = plays || restarts ? 0 : 1;  // whether the front of the histories was filled
#pragma unroll
      for (int i = 0; i <= kHistory; ++i) launch.mid_history[m * (kHistory + 1) + i] = desk.mid_history[moved + i];
#pragma unroll
      for (int i = 0; i < kHistory; ++i) launch.volume_history[m * kHistory + i] = desk.volume_history[moved + i];
    }
    if (has_slot) {
      const int64_t at = slot_row();
      const bool slot_frozen = untouched >> slot_market & 1;
      if (!explicit_reset) {
        launch.fills[2 * at] = row.bought;
        launch.fills[2 * at + 1] = row.sold;
        launch.reward[at] = reward;
      }
      if (!slot_frozen) {
        const Quote& q = row.quote;
        reinterpret_cast<int4*>(launch.quotes)[at] = make_int4(q.bid_price, q.bid_qty, q.ask_price, q.ask_qty);
        launch.cash[at] = account.cash;
        launch.inventory[at] = account.inventory;
        launch.fees[at] = account.fees;
        launch.prev_value[at] = prev_value;
        launch.ended[at] = ended;
        launch.reward[at] = reward;
        launch.terminated[at] = end == kEndTerminated;
        launch.truncated[at] = end == kEndTruncated;
        launch.over[at] = end != kEndGoesOn;
      }
    }
  }
};

}  // namespace ks
