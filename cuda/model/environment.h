// environment.h: an environment's step and reset by one thread that has one market: a core's (cpu/environment.h), or one on the
// clock, on a core or a lane of a GPU (events/environment.cuh). Loops and memory only: actions, rewards and observations are
// tasks.h's, the order is step.h's, as docs/environment.md has both.
#pragma once

#include "model/compiled_in.cuh"
#include "model/play_agent.h"
#include "model/play_policy.h"
#include "model/records.h"
#include "model/step.h"

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define KS_ON_THREAD __device__ __forceinline__
#else
#define KS_ON_THREAD inline
#endif

namespace ks {

// Where a market's observations are written: a row per slot, in one place or in two. kRow is its length but for extra columns.
template <int kRow>
struct FeatureRows {
  static constexpr int kLanes = 1;  // that share the market,
  static KS_ON_THREAD int lane() { return 0; }  // and which of them this is
  float *out, *copy;  // of the market's first slot; copy may be null
  int length;         // of a row

  static KS_ON_THREAD FeatureRows final_of(const Launch& launch, int64_t first_row, bool ended) {
    const int length = kRow + extra_columns(launch);
    return {launch.final_observation + first_row * length, ended ? nullptr : launch.observation + first_row * length, length};
  }
  static KS_ON_THREAD FeatureRows next_of(const Launch& launch, int64_t first_row) {
    const int length = kRow + extra_columns(launch);
    return {launch.observation + first_row * length, nullptr, length};
  }

  // What all slots see is written once, and copied from slot to slot.
  KS_ON_THREAD void write(int i, float feature) const {
    out[i] = feature;
    if (copy) copy[i] = feature;
  }
  KS_ON_THREAD void begin_slot(int k) {
    if (k == 0) return;
    const float* const before = out;
    out += length, copy += copy ? length : 0;
    for (int i = 0; i < kMarketFeatures; ++i) write(i, before[i]);
  }
  KS_ON_THREAD void write_own(int i, float feature) const { write(i, feature); }
  KS_ON_THREAD void end_slot(int) const {}
  KS_ON_THREAD void write_level(int, int n, int i, float feature) const { write(kRow + n * kLevelFeatures + i, feature); }
  KS_ON_THREAD void write_extra(int, int i, float feature) const { write(kRow + i, feature); }
};

// A Market is a MarketNumbers with launch, m, p, levels, volume, trades and regime, with mark(), stopped() and write_fills(row),
// and with
//   kRoom, slot_count()             the most slots, and how many there are
//   quote(k), account(k), filled(k), clear_slot(k, account)
//   kHasLadders, kOrderRoom         whether slots have ladders, and the most levels of all slots together; then also level_count(),
//                                   and quote(k, n) and ahead(k, side, n) of a level
//   bids(), asks()                  resting built-in interest, by tick
//   resting_best()                  its best prices
//   kLevers                         whether it may have regimes
//   kQueues, ahead(k, side)         whether quotes have places in queues, and then how many built-in units are before one
//   feature_rows<kRow>(ended)       where its final observations go, and unless its episode has ended a copy: a FeatureRows, or
//                                   what is used as one
//   read_parameters()               anew, of this market
//   open_book(row)                  a warm start's, or
//   open_book()                     that of the parameters; false if its memory cannot hold it
//   opened()                        its numbers, book and slots are those of a new episode
//   go_on(fresh, records, forced, lasts)   the auctions of a decision with these quotes, to be cut to the pre-trade limits, and their
//                                   flags; or (forced) one auction more with quotes that were cut. False if it has to stop. Where
//                                   events end decisions `lasts` is the most of them, and then how many there were
//   store_played()                  its state, be it that it had to stop
// What of a decision needs indices, by slot or by level of its ladder. No part of the market: see SlotRoom (events/queues.cuh).
template <typename Market>
struct DecisionRoom {
  static constexpr bool kMayReject = Market::kHasLadders || kMayKeep || ((kMayTakeRecords || kMayHavePolicies) && Market::kQueues);
  Account before[Market::kRoom];
  int32_t remembers[kMayHavePolicies ? Market::kRoom : 1][kRememberedWords];  // of slots' policies, from now on
  Quote fresh[Market::kOrderRoom];  // of slot after slot, level after level
  SlotRecords<kMayReject ? Market::kOrderRoom : 0> records;  // of these, where actions may keep quotes, or records have flags
};

template <typename Market>
struct ThreadEnvironment : Market {
  using Room = DecisionRoom<Market>;
  using Market::account, Market::error, Market::filled, Market::fundamental, Market::key, Market::last_tick, Market::launch,
      Market::levels, Market::m, Market::mark, Market::origin, Market::p, Market::quote, Market::regime,
      Market::slot_count, Market::stopped, Market::t, Market::trades, Market::volume;

  static constexpr int kRow = kObservation + (Market::kQueues ? kQueueFeatures : 0);  // of an observation, but for extra columns

  Task task;
  int32_t mids[kHistory + 1], volumes[kHistory], elapsed, arrival2;
  int32_t lasts;  // of the decision, in what `elapsed` counts
  bool done;
  // Of slot 0: marked value after the last decision, whether its episode has ended (see kAlone), and what came of the decision.
  int64_t first_value;
  bool first_ended;
  Outcome outcome;
  int32_t fundamental_before;
  int64_t volume_before;
  Room& room;
  static constexpr bool kHasLadders = Market::kHasLadders;

  template <typename Memory>
  KS_ON_THREAD ThreadEnvironment(const Launch& launch, int64_t m, Memory& memory, Room& room)
      : Market(launch, m, memory), task(task_of(launch)), room(room) {}

  KS_ON_THREAD int64_t first_row() const { return m * slot_count(); }
  KS_ON_THREAD int32_t role(int k) const { return role_of(launch, k); }
  // Of the only slot of a market that stays on the chip, what each decision reads is kept there; else it is in memory.
#ifdef KS_POLICY
  static constexpr bool kAlone = Market::kRoom == 1;
#else
  static constexpr bool kAlone = false;
#endif
  KS_ON_THREAD int64_t value_before(int k) const { return kAlone ? first_value : launch.prev_value[first_row() + k]; }
  KS_ON_THREAD bool has_ended(int k) const { return kAlone ? first_ended : launch.ended[first_row() + k] != 0; }
  KS_ON_THREAD void set_value(int k, int64_t value, bool ended) {
    if (kAlone) first_value = value, first_ended = ended;
    launch.prev_value[first_row() + k] = value;
    launch.ended[first_row() + k] = ended;
  }
  // The task as slot k has it.
  KS_ON_THREAD SlotTask slot_task(int k) const { return SlotTask(launch, task, first_row() + k); }

  // False if the opening book does not fit; the market's own part is then as it was, but for its book.
  KS_ON_THREAD bool begin_episode() {
    const int64_t episode = launch.episode[m] + 1;
    key = episode_key(launch.seed[m], episode);
    const Opening opening = opening_of(launch, task, m, key, episode);
    if (task.scenarios > 0) {
      launch.scenario[m] = opening.scenario;
      launch.params[m] = launch.scenario_params[opening.scenario];
      enter_scenario(launch, m, opening.scenario);
      this->read_parameters();
    }
    const int64_t row = opening.bank_row;
    if (task.bank_size > 0 ? !this->open_book(row) : !this->open_book()) return false;
    launch.episode[m] = episode;
    volume = trades = 0;
    static_cast<MarketNumbers&>(*this) = opening_numbers(launch, task, p, opening, key, error);
    if (Market::kLevers) regime = opening_regime(launch, task, p, key, row);
    begin_memory(launch, task, m, p, regime, row);
    for (int k = 0; k < slot_count(); ++k) {
      this->clear_slot(k, opening_account(launch, slot_task(k)));
      set_value(k, 0, false);
    }
    this->opened();
    done = false;
    elapsed = opening.elapsed, lasts = 0;
    arrival2 = mark();
    for (int i = 0; i <= kHistory; ++i) mids[i] = arrival2;
    for (int i = 0; i < kHistory; ++i) volumes[i] = 0;
    if (has_values(launch))
      for (int k = 0; k < slot_count(); ++k)
        note_opening_value(launch, task, first_row() + k, account(k), fundamental, arrival2, liquidation(k));
    return true;
  }

  template <typename Rows>
  KS_ON_THREAD void write_features(Rows rows) const {
    const BestPrices best = this->resting_best();
    View<const int32_t*> view{nullptr, nullptr, levels, best.bid, best.ask, mids[0], last_tick, origin, mids, volumes,
                              arrival2, 0, elapsed, p.inventory_limit, {}, {}, {}, fundamental, lasts};
#pragma unroll
    for (int n = 0; n < 2 * kDepth; n += Rows::kLanes) {
      const int i = n + Rows::lane();
      if (i < 2 * kDepth) rows.write(i, feature_of(scaled(depth(view.mid2, i), i)));
    }
#pragma unroll
    for (int i = 2 * kDepth; i < kMarketFeatures; ++i) rows.write(i, feature_of(market_ratio(view, i)));
    for (int k = 0; k < slot_count(); ++k) {
      rows.begin_slot(k);
      view.role = role(k);
      view.quote = quote(k);
      view.account = account(k);
      view.target = target(k);
      const SlotTask own = slot_task(k);
#pragma unroll
      for (int i = 0; i < kOwnFeatures; ++i) rows.write_own(kMarketFeatures + i, feature_of(own_ratio(own, view, i)));
      if constexpr (Market::kQueues)
        for (int side = 0; side < 2; ++side) rows.write_own(kObservation + side, feature_of(queue_ratio(this->ahead(k, side))));
      rows.end_slot(k);
      int column = level_columns(launch);
      if constexpr (kHasLadders) write_levels(rows, own, k);
#pragma unroll
      for (int i = 0; i < kExtras; ++i)
        if (has_extra(launch, i)) rows.write_extra(k, column++, feature_of(extra_ratio(launch, first_row() + k, view, i)));
    }
  }

  // Columns of the levels behind the first of slot k's ladder.
  template <typename Rows>
  KS_ON_THREAD void write_levels(const Rows& rows, const TaskParams& own, int k) const {
#pragma unroll 1
    for (int n = 1; n < this->level_count(); ++n) {
      const Quote level = quote(k, n);
#pragma unroll 1
      for (int i = 0; i < kLevelFeatures; ++i)
        rows.write_level(k, n - 1, i,
                         feature_of(level_ratio(own, level, this->ahead(k, 0, n), this->ahead(k, 1, n), mids[0], i)));
    }
  }

  // What rests at the tick of the book's feature i.
  KS_ON_THREAD int32_t depth(int32_t mid2, int i) const {
    const int32_t tick = depth_tick(mid2, origin, i);
    if (tick < 0 || tick >= levels) return 0;
    return i < kDepth ? this->bids()[tick] : this->asks()[tick];
  }

  KS_ON_THREAD Target target(int k) const {
    return target_of(slot_task(k), role(k), mids, key, t, k, account(k).inventory);
  }

  KS_ON_THREAD int levels_of_slot() const {
    if constexpr (kHasLadders) return this->level_count();
    else return 1;
  }
  // What of slot k's orders was rejected, of all levels together.
  KS_ON_THREAD int32_t rejects_of(int k) const {
    int32_t rejects = 0;
    for (int n = 0; n < levels_of_slot(); ++n) rejects |= room.records.rejects_of(k * levels_of_slot() + n);
    return rejects;
  }
  // Whether infos have these.
  KS_ON_THREAD bool notes_rejects() const { return kHasLadders || may_keep(task); }

  // The cash that unwinding slot k's inventory would bring, where that marks it.
  KS_ON_THREAD int64_t liquidation(int k) const {
    if (task.mark != kMarkLiquidation) return 0;
    return liquidation_cash(this->bids(), this->asks(), levels, account(k).inventory, origin, last_tick);
  }

  // Slot k's action as a quote, and in `flags` the sides that it keeps; or its order record and that one's flags.
  KS_ON_THREAD Quote decode(int k, OrderFlags& flags) {
    const int64_t row = first_row() + k;
    if (has_ended(k)) return Quote{0, 0, 0, 0};
    if (takes_records(launch)) return recorded_quote(launch, role(k), row, target(k), error, flags);
    const float* action = launch.actions ? launch.actions + row * launch.action_stride : nullptr;
    return asked_quote(launch, slot_task(k), role(k), action, row, mids[0], target(k), quote(k), error, flags);
  }

  // The same of its ladder, level after level.
  KS_ON_THREAD void decode_ladder(int k) {
    const int64_t row = first_row() + k;
    const int levels = this->level_count(), numbers = numbers_of_level(task, role(k));
    const bool ended = has_ended(k), recorded = takes_records(launch);
    const bool continuous = task.action_type == kActionTypeContinuous && !recorded;
    const float* const action = launch.actions ? launch.actions + row * launch.action_stride : nullptr;
    const bool keeps_all = !ended && continuous && has_nan(action, levels * numbers);
    if (keeps_all) error |= kErrorNanAction;
    const SlotTask own = slot_task(k);
    Target left = target(k);
#pragma unroll 1
    for (int n = 0; n < levels; ++n) {
      const Quote standing = quote(k, n);
      OrderFlags flags = keep_flags(keeps_all, keeps_all);
      Quote asked = {0, 0, 0, 0};
      if (!ended && recorded) {
        asked = recorded_quote(launch, role(k), row * levels + n, left, error, flags);
      } else if (!ended && !keeps_all) {
        asked = asked_quote(launch, own, role(k), continuous ? action + n * numbers : nullptr, row, mids[0], left, standing,
                            error, flags, n);
      }
      take_from(left, asked, standing, flags);
      room.fresh[k * levels + n] = asked;
      room.records.begin(k * levels + n, flags);
    }
  }

  // What slot k's policy submits, level after level.
  KS_ON_THREAD void decide_policy(int k) {
    const int64_t row = first_row() + k;
    const bool ended = has_ended(k);
    Target left = target(k);
    SlotOrders orders = no_orders();
    if (!ended) {
      const BestPrices best = this->resting_best();
      const PolicyMarket seen = policy_market(*this, mids, this->bids(), this->asks(), best.bid, best.ask);
      PolicySlot slot = policy_slot(launch, slot_task(k), role(k), p, mids, volumes, elapsed, arrival2, left, account(k), row, t);
      slot.levels = levels_of_slot();
      for (int n = 0; n < min_of(slot.levels, kPolicyLevels); ++n) {
        slot.standing[n] = standing(k, n);
        if constexpr (Market::kQueues)
          for (int side = 0; side < 2; ++side) slot.ahead[n][side] = ahead_of(k, side, n);
      }
      orders = orders_of_policy(launch, m, k, seen, slot, key, t, room.remembers[k]);
    }
    for (int n = 0; n < levels_of_slot(); ++n) {
      OrderFlags flags = {0};
      Quote asked = {0, 0, 0, 0};
      if (!ended) asked = quote_of_policy(orders, n, Market::kQueues, role(k), left, standing(k, n), flags);
      take_from(left, asked, standing(k, n), flags);
      room.fresh[k * levels_of_slot() + n] = asked;
      room.records.begin(k * levels_of_slot() + n, flags);
      note_played(launch, row * levels_of_slot() + n, asked, flags);
    }
  }
  // Not before, as a market whose numbers turn out not to fit decides again.
  KS_ON_THREAD void remember_all() {
    this->meet();  // all lanes that share the market have read what was remembered
    for (int k = 0; k < slot_count(); ++k)
      if (has_policy(launch, k) && !has_ended(k) && this->leads()) remember(launch, m, k, room.remembers[k]);
  }
  KS_ON_THREAD Quote standing(int k, int n) const {
    if constexpr (kHasLadders) return quote(k, n);
    else return quote(k);
  }
  KS_ON_THREAD int32_t ahead_of(int k, int side, int n) const {
    if constexpr (kHasLadders) return this->ahead(k, side, n);
    else return this->ahead(k, side);
  }

  // After the last decision what is left of blocks goes into the market, and slots unwind; returns whether anything does.
  KS_ON_THREAD bool force_blocks() {
    bool any = false;
    for (int k = 0; k < slot_count(); ++k) {
      const bool ended = has_ended(k);
      const int first = k * levels_of_slot();
      room.fresh[first] = forced_order(launch, slot_task(k), m, k, ended, p, target(k), account(k).inventory);
      room.records.drop_flags(first);
      any |= has_quantity(room.fresh[first]);
      if constexpr (kMayUnwind && Market::kQueues) {
        const BestPrices best = this->resting_best();
        if (unwinds(task, role(k), k) && has_quantity(room.fresh[first]))
          room.fresh[first] = priced_to_book(room.fresh[first], account(k).inventory, largest_unwinding(launch, m), this->bids(),
                                             best.bid, this->asks(), best.ask, levels, origin);
      }
      for (int n = 1; n < levels_of_slot(); ++n) room.fresh[first + n] = Quote{0, 0, 0, 0}, room.records.drop_flags(first + n);
    }
    return any;
  }

  // What model/step.h asks for ------------------------------------------------------------------------------------------

  KS_ON_THREAD void load() {
    for (int i = 0; i <= kHistory; ++i) mids[i] = launch.mid_history[m * (kHistory + 1) + i];
    for (int i = 0; i < kHistory; ++i) volumes[i] = launch.volume_history[m * kHistory + i];
    elapsed = launch.elapsed[m], arrival2 = launch.arrival2[m];
    done = launch.done[m];
    first_value = 0, first_ended = false;
    if (kAlone && slot_count() > 0) first_value = launch.prev_value[m], first_ended = launch.ended[m];
  }
  KS_ON_THREAD bool any(bool holds) const { return holds; }

  KS_ON_THREAD Part part() const {
    return part_of(launch, task, stopped(), done, !launch.reset_mask || launch.reset_mask[m]);
  }

  // A market that does not play has no rewards, and has its flags lowered unless it is frozen.
  KS_ON_THREAD void begin(const Part& part) {
    fundamental_before = fundamental, volume_before = volume;
    if (!part.plays && has_results(launch)) clear_results(part.frozen);
  }
  KS_ON_THREAD void clear_results(bool frozen) {
    const bool steps = launch.env_mode == kLaunchModeEnvStep;
    outcome = {0, 0.0f, kEndGoesOn};
    if (decides_at_events(task)) launch.decision_events[m] = 0;
    for (int64_t row = first_row(); row < first_row() + slot_count(); ++row) {
      if (steps && launch.fills) launch.fills[2 * row] = launch.fills[2 * row + 1] = 0;
      if (steps && writes_info(launch)) launch.idle[row] = 1;
      if (steps || !frozen) launch.reward[row] = 0.0f;
      if (!frozen) launch.terminated[row] = launch.truncated[row] = launch.over[row] = 0;
    }
  }

  KS_ON_THREAD void decode_actions(const Part&) {
    for (int k = 0; k < slot_count(); ++k) {
      room.before[k] = account(k);
      if (has_policy(launch, k)) {
        decide_policy(k);
      } else if constexpr (kHasLadders) {
        decode_ladder(k);
      } else {
        OrderFlags flags = {0};
        room.fresh[k] = decode(k, flags);
        room.records.begin(k, flags);
      }
    }
  }

  KS_ON_THREAD bool play(Part& part) {
    if (kMayHavePolicies) remember_all();
    lasts = 1;
    if (decides_at_events(task)) lasts = max_of(1, min_of(task.longest, slot_task(0)->horizon - elapsed));
    int32_t most = 0;
#pragma unroll 1
    for (int32_t a = 0; a <= most && (a == 0 || force_blocks()); ++a) {
      if (!this->go_on(room.fresh, room.records, a > 0, lasts)) break;
      if (a == 0) most = forced_auctions(slot_task(0), elapsed + lasts);
    }
    if (stopped()) part.plays = false, clear_results(false);
    return true;
  }

  KS_ON_THREAD void score(const Part& part) {
    if (!part.plays) return;
    this->write_fills(first_row());
    int64_t values[Market::kRoom];
    bool had_ended[Market::kRoom];
    for (int k = 0; k < slot_count(); ++k)
      values[k] = value_before(k), had_ended[k] = has_ended(k);
    this->meet();
    for (int i = kHistory; i > 0; --i) mids[i] = mids[i - 1];
    for (int i = kHistory - 1; i > 0; --i) volumes[i] = volumes[i - 1];
    mids[0] = mark();
    volumes[0] = recorded_volume(volume - volume_before);
    elapsed += lasts;
    if (decides_at_events(task)) launch.decision_events[m] = lasts;
    const bool noted = writes_info(launch);
    if (noted) note_market();
    bool all_ended = true;
    for (int k = 0; k < slot_count(); ++k) {
      const int64_t row = first_row() + k;
      const Outcome found =
          outcome_of(slot_task(k), role(k), k, room.before[k], account(k), fundamental_before, fundamental, mids, arrival2,
                     values[k], opening_value_of(launch, row), liquidation(k), target(k).remaining, filled(k), elapsed,
                     had_ended[k]);
      if (noted && this->leads()) {
        launch.idle[row] = had_ended[k];
        note_decision(launch, m, k, role(k), account(k), launch.fills[2 * row], launch.fills[2 * row + 1],
                      target(k).remaining, found);
        if (notes_rejects()) note_rejects(launch, m, k, rejects_of(k));
      }
      launch.reward[row] = found.reward;
      launch.terminated[row] = found.end == kEndTerminated;
      launch.truncated[row] = found.end == kEndTruncated;
      launch.over[row] = found.end != kEndGoesOn;
      const bool ended = had_ended[k] | (found.end != kEndGoesOn);
      set_value(k, found.value, ended);
      all_ended &= ended || k >= ending_slots(task, slot_count());
      if (k == 0) outcome = found;
    }
    done = all_ended;
    for (int k = ending_slots(task, slot_count()); done && k < slot_count(); ++k) launch.ended[first_row() + k] = 1;
  }

  KS_ON_THREAD bool all_ended() const { return done; }

  KS_ON_THREAD void note_market() const {
    const BestPrices best = this->resting_best();
    write_market_info(launch, m, mids[0], fundamental, best.bid, best.ask, origin, launch.scenario[m], elapsed);
  }

  KS_ON_THREAD void observe(const Part& part) {
    // The observation of a market that restarts is that of the next episode.
    if (part.plays) write_features(this->template feature_rows<kRow>(part.restarts));
  }

  KS_ON_THREAD bool begin_episodes(const Part& part) {
    if (launch.env_mode == kLaunchModeEnvReset) error = 0;
    this->meet();  // all lanes that share the market have read what the next episode overwrites
    if (!begin_episode()) return false;
    if (writes_info(launch)) {
      if (!part.plays) note_market();
      for (int k = 0; k < slot_count(); ++k) {
        note_opening(launch, m, k, role(k), account(k), target(k).remaining, part.plays);
        if (notes_rejects() && !part.plays) note_rejects(launch, m, k, 0);
      }
    }
    return true;
  }

  KS_ON_THREAD void observe_opening(const Part&) {
    write_features(this->template opening_rows<kRow>());
  }

  KS_ON_THREAD void store(const Part& part) {
    if (part.frozen) return;
    this->store_played();
    for (int i = 0; i <= kHistory; ++i) launch.mid_history[m * (kHistory + 1) + i] = mids[i];
    for (int i = 0; i < kHistory; ++i) launch.volume_history[m * kHistory + i] = volumes[i];
    launch.elapsed[m] = elapsed, launch.arrival2[m] = arrival2;
    launch.done[m] = done;
  }
};

}  // namespace ks
