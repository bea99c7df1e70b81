// environment.cuh: an environment's market on the clock, on a core, or under continuous trading on lanes of a GPU: what
// model/environment.h asks of it.
// Pre-trade limits are passed when quotes arrive, so actions are not cut to them before.
#pragma once

#include "events/run.cuh"
#include "model/environment.h"

namespace ks {

template <typename Market>
struct EventEnvironmentMarket : EventRun<Market> {
  using Base = EventRun<Market>;
  using Base::book, Base::launch, Base::slots;

  static constexpr bool kLevers = true, kQueues = Market::kQueues;
  static constexpr int kRoom = decltype(slots)::kRoom, kOrderRoom = decltype(slots)::kOrderRoom;
  static constexpr bool kHasLadders = decltype(slots)::kHasLadders;

  KS_ON_LANE EventEnvironmentMarket(const Launch& launch, int64_t m, const typename Base::Memory& memory)
      : Base(launch, m, memory) {}

  using Lanes = typename Base::Lanes;

  KS_ON_LANE int slot_count() const { return slots.count(); }
  KS_ON_LANE int level_count() const { return slots.levels(); }
  KS_ON_LANE Quote quote(int k, int n = 0) const {
    if constexpr (kHasLadders) return slots.level(k, n);
    else return slots.quotes[k];
  }
  KS_ON_LANE const Account& account(int k) const { return slots.accounts[k]; }
  KS_ON_LANE int64_t filled(int k) const { return slots.bought[k] + slots.sold[k]; }
  KS_ON_LANE int32_t ahead(int k, int32_t side, int n = 0) const { return slots.ahead(slots.first_of(k, n, side), side); }
  KS_ON_LANE void clear_slot(int k, const Account& account) { slots.clear(k, account); }

  KS_ON_LANE auto bids() const { return book.on(0); }
  KS_ON_LANE auto asks() const { return book.on(1); }
  KS_ON_LANE BestPrices resting_best() const { return {book.best_bid(), book.best_ask()}; }

  template <int kRow>
  KS_ON_LANE auto feature_rows(bool ended) const {
    if constexpr (Base::Lanes::kLanes > 1) return FeatureParts<kRow, typename Base::Lanes>(launch, this->m, ended);
    else
#if KS_TOGETHER
    return FeatureColumns<kRow, decltype(this->drawn)>(launch, this->m, ended, this->drawn);
#else
    return FeatureRows<kRow>::final_of(launch, this->m * slots.count(), ended);
#endif
  }

  template <int kRow>
  KS_ON_LANE auto opening_rows() const {
    if constexpr (Lanes::kLanes > 1) return FeatureParts<kRow, Lanes>(launch, this->m, false, true);
    else return FeatureRows<kRow>::next_of(launch, this->m * slots.count());
  }
  // The lanes that share the market.
  KS_ON_LANE void meet() const { Lanes::sync(); }
  KS_ON_LANE bool leads() const { return Lanes::leads(); }

  KS_ON_LANE void read_parameters() {
    this->p = with_constants(launch.params[this->m]);
    if (Market::kMayFlow) this->lives.read_table(launch, this->p);
  }
  // These return false where the book does not fit; then nothing but the book has changed.
  KS_ON_LANE bool open_book(int64_t row) {
    const int64_t levels = this->levels, at = row * levels;
    this->bound = book.load(launch.bank_bid + at, launch.bank_ask + at);
    book.replace_all();
    if (Market::kMayFlow && this->lives.plays())
      this->lives.load(launch.bank_lives + 2 * at, launch.bank_fleeting_units + at, launch.bank_flow + kFlowNumbers * row, this->levels);
    return this->is_held();
  }
  KS_ON_LANE bool open_book() {
    if constexpr (Market::kMayFlow) {
      if (this->lives.plays()) {
        this->open_flow();
        this->bound = book.larger_total();
        return this->is_held();
      }
    }
    this->bound = this->p.init_depth;
    book.open(this->p.init_price, this->p.init_depth);
    return this->is_held();
  }
  KS_ON_LANE void opened() {
    this->ret = 0;
    this->beat_price = this->last_tick + this->origin;
    drop_under_way();
    this->prepare();
  }

  template <typename Records>
  KS_ON_LANE bool go_on(const Quote* fresh, Records& records, bool forced, int32_t& lasts) {
    const TaskParams& task = task_of(launch);
    if (!forced) slots.begin_decision();
    else drop_under_way();
    const bool at_events = decides_at_events(task);
    const int32_t intervals = forced ? 1 : at_events ? lasts : launch.auctions;
    const BestNow before = best_now();
    int64_t a = 0;
    const bool goes_on = this->template decision<true>(fresh, records, intervals, 0, intervals, a, forced, [&] {
      if (!at_events || forced) return false;
      return task.decide == kDecideFill ? any_fill() : !(best_now() == before);
    });
    if (!goes_on) this->stop();
    else if (at_events && !forced) lasts = (int32_t)a;
    return goes_on;
  }
  KS_ON_LANE bool any_fill() const {
    int64_t units = 0;
    for (int k = 0; k < slots.count(); ++k) units += filled(k);
    return units > 0;
  }
  // The best prices of the built-in book, absolute.
  struct BestNow {
    int32_t bid, ask;
    KS_ON_LANE bool operator==(const BestNow& other) const { return bid == other.bid && ask == other.ask; }
  };
  KS_ON_LANE BestNow best_now() const {
    const BestPrices best = resting_best();
    return {best.bid >= 0 ? best.bid + this->origin : -kNoPrice, best.ask != kNoTick ? best.ask + this->origin : kNoPrice};
  }
  KS_ON_LANE void drop_under_way() const {
    if constexpr (kQueues && KS_UNDER_WAY) this->under_way.clear();
  }
  // One that had to stop was stored before the interval in which it did.
  KS_ON_LANE void store_played() {
    if (!this->stopped()) this->store();
  }
};

// What a lane of a GPU goes on with where its numbers do not fit cells of 16 bits.
struct StepPlace {
  Part part;
  bool begun;  // its decision was scored, and it is stored
};

template <typename Market>
using EventEnvironment = ThreadEnvironment<EventEnvironmentMarket<Market>>;

// Whether a market's numbers fit in its cells throughout a decision, and what may be forced behind it.
template <typename Environment>
KS_ON_LANE bool decision_fits(Environment& environment) {
  const int64_t forced = forced_auctions(environment.slot_task(0), (int64_t)environment.elapsed + environment.task.longest);  // at most
  return environment.fits(environment.launch.auctions + forced);
}

// A step or a reset. Returns false where it cannot go on in cells of 16 bits: another market does `from` there.
template <typename Market>
KS_ON_LANE bool step_on_clock(const Launch& launch, int64_t m, const typename Market::Memory& memory, StepPlace& from) {
  using Environment = EventEnvironment<Market>;
  typename Environment::Room room;
  Environment environment(launch, m, memory, room);
  if (!from.begun) {
    from.part = begin_step(environment);
    if (from.part.plays && !decision_fits(environment)) return false;
  } else {
    environment.load();
  }
  if (end_step(environment, from.part)) return true;
  environment.store(from.part);
  from.begun = true;
  return false;
}

}  // namespace ks
