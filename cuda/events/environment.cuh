// environment.cuh: an environment's market on the clock, on a core or a lane of a GPU: what model/environment.h asks of it.
// Pre-trade limits are passed when quotes arrive, so actions are not cut to them before.
#pragma once

#include "events/run.cuh"
#include "model/environment.h"

namespace ks {

template <typename Market>
struct EventEnvironmentMarket : EventRun<Market> {
  using Base = EventRun<Market>;
  using Base::book, Base::launch, Base::slots;

  static constexpr bool kLevers = true;
  static constexpr int kRoom = decltype(slots)::kRoom;

  KS_ON_LANE EventEnvironmentMarket(const Launch& launch, int64_t m, const EventMemory& memory)
      : Base(launch, m, memory) {}

  KS_ON_LANE int slot_count() const { return slots.count(); }
  KS_ON_LANE const Quote& quote(int k) const { return slots.quotes[k]; }
  KS_ON_LANE const Account& account(int k) const { return slots.accounts[k]; }
  KS_ON_LANE int64_t filled(int k) const { return slots.bought[k] + slots.sold[k]; }
  KS_ON_LANE void clear_slot(int k) { slots.clear(k); }

  KS_ON_LANE RestingSide bids() const { return {book.row, 0}; }
  KS_ON_LANE RestingSide asks() const { return {book.row, 1}; }
  KS_ON_LANE BestPrices resting_best() const { return {book.best_bid(), book.best_ask()}; }

  KS_ON_LANE void read_parameters() { this->p = this->copy_of(launch.params[this->m]); }
  KS_ON_LANE void open_book(const int32_t* bids, const int32_t* asks) { book.load(bids, asks); }
  KS_ON_LANE void open_book() { book.open(this->p.init_price, this->p.init_depth); }
  KS_ON_LANE void opened() {
    this->ret = 0;
    this->beat_price = this->last_tick + this->origin;
    this->prepare();
  }

  KS_ON_LANE bool decide(const Quote* fresh) {
    slots.begin_decision();
    return goes_on(fresh, launch.auctions);
  }
  KS_ON_LANE bool force(const Quote* fresh) { return goes_on(fresh, 1); }
  KS_ON_LANE bool goes_on(const Quote* fresh, int32_t intervals) {
    if (this->decision(fresh, intervals, 0, intervals)) return true;
    this->stop();
    return false;
  }
  // One that had to stop was stored before the interval in which it did.
  KS_ON_LANE void store_played() const {
    if (!this->stopped()) this->store();
  }
};

template <bool kContinuous, int kSlots>
struct EventMarketOf {
  using type = CallMarket<kSlots>;
};
template <int kSlots>
struct EventMarketOf<true, kSlots> {
  using type = ContinuousMarket<kSlots>;
};

template <bool kContinuous, int kSlots>
KS_ON_LANE void step_on_clock(const Launch& launch, int64_t m, const EventMemory& memory) {
  using Market = typename EventMarketOf<kContinuous, kSlots>::type;
  ThreadEnvironment<EventEnvironmentMarket<Market>> environment(launch, m, memory);
  step_or_reset(environment);
}

}  // namespace ks
