// run.cuh: decisions of a market on the clock, and what a run records of them: of a ContinuousMarket, or on a core of a CallMarket
// (cpu/call.h).
#pragma once

#include "events/continuous.cuh"
#include "model/records.h"

namespace ks {

// The next interval of a launch: which of a decision's, and of which decision.
struct RunPlace {
  int64_t number, interval;
};

struct Never {
  KS_ON_LANE bool operator()() const { return false; }
};

template <typename Market>
struct EventRun : Market {
  using Market::g, Market::launch, Market::m, Market::p, Market::slots;
  using Lanes = typename Market::Lanes;

  KS_ON_LANE EventRun(const Launch& launch, int64_t m, const typename Market::Memory& memory) : Market(launch, m, memory) {}

  KS_ON_LANE void record(int64_t at, int64_t traded) const {
    if (launch.series_last_price) launch.series_last_price[at] = this->last_tick + this->origin;
    if (launch.series_volume) launch.series_volume[at] = fit_int32(traded);
    if (launch.series_mid2) launch.series_mid2[at] = this->mark();
    if (launch.series_fundamental) launch.series_fundamental[at] = this->fundamental;
    if (kWithSeries && launch.records > 1) record_further(at);
  }

  KS_NOINLINE_ON_CPU void record_further(int64_t at) const {
    const int32_t bid = this->book.best_bid(), ask = this->book.best_ask();
    const Ticks bids = bids_in_reach(launch.reach, bid), asks = asks_in_reach(launch.reach, ask, this->levels);
    write_further_series(launch, at, this->origin, {bid, ask, this->book.total(bids.low, bids.high, 0),
                                                    this->book.total(asks.low, asks.high, 1), this->signed_volume()});
  }

  // A decision of n intervals, from number `a` on; `fresh` are its quotes, [K], or null, and `records` has their flags, as in
  // `interval`. They may wait beyond the first interval, unless they are `forced`, where that is kept. `first` counts intervals of this
  // launch before it. It ends sooner where `ends()` after an interval; `a` is then how many there were. Returns false if the market
  // cannot go on with interval a; be it that it has to stop.
  template <bool kAllFit = false, typename Records, typename Ends = Never>
  KS_ON_LANE bool decision(const Quote* fresh, Records& records, int64_t n, int64_t first, int64_t length, int64_t& a,
                           bool forced = false, const Ends& ends = Ends()) {
    const DecisionBegin begin = this->decision_begin(a);
    uint64_t arrival = begin.at + (begin.latency < begin.interval ? begin.latency : begin.interval - 1);
    for (; a < n; ++a) {
      if (!kAllFit && !this->fits(1)) return false;
      const int64_t before = this->volume;
      if constexpr (Market::kQueues && KS_UNDER_WAY) {
        if (fresh && (kAllUnderWay || !forced) && this->under_way.is_kept()) {
          if (a == 0) this->under_way.submit(fresh, records, forced ? arrival : begin.at + begin.latency);
          arrival = this->under_way.kNever;
        }
      }
      const bool comes = !kAllUnderWay && fresh && (Market::kQueues || a == 0);  // a pointer that may be null would keep a lane's market in memory
      if (!this->interval(comes ? fresh : nullptr, arrival, records)) return false;
      arrival = ~(uint64_t)0;  // it has arrived
      record(this->m * length + first + a, this->volume - before);
      if (ends()) n = a + 1;
    }
    return true;
  }

  // Of the intervals of a decision before.
  KS_ON_LANE void read_fills(int64_t row) {
    for (int k = 0; k < slots.count() && launch.fills; ++k)
      slots.bought[k] = launch.fills[2 * (row + k)], slots.sold[k] = launch.fills[2 * (row + k) + 1];
  }
  KS_ON_LANE void write_fills(int64_t row) const {
    for (int k = slots.template first_own<Lanes>(); k < slots.count(); k += slots.template step_own<Lanes>()) {
      if (launch.fills) launch.fills[2 * (row + k)] = slots.bought[k], launch.fills[2 * (row + k) + 1] = slots.sold[k];
      const Account& account = slots.accounts[k];
      if (launch.value) launch.value[row + k] = 2 * account.cash + account.inventory * this->mark();
    }
  }

  // All decisions of the launch. Returns false where it cannot go on in cells of 16 bits: its state is stored then, and
  // another market goes on `from` there.
  KS_ON_LANE bool run(RunPlace& from) {
    if constexpr (Market::kMayFlow) {
      if (launch.env_mode == kLaunchModeOpen) return this->open_flow(), this->store(), true;
    }
    if (this->stopped()) return true;
    const int64_t length = (int64_t)launch.decisions * launch.auctions;
    for (; from.number < launch.decisions; ++from.number, from.interval = 0) {
      const int64_t row = (from.number * launch.markets + m) * slots.count();
      const Quote* given = reinterpret_cast<const Quote*>(launch.new_quotes);
      slots.begin_decision();
      if (from.interval > 0) read_fills(row);
      const Quote* const fresh = given ? given + row * slots.levels() : nullptr;
      LaunchRecords records = {launch, row * slots.levels()};
      if (!decision(fresh, records, launch.auctions, from.number * launch.auctions, length, from.interval)) {
        if (Market::kNarrow && !this->stopped()) {
          if (this->is_held()) write_fills(row), this->store();
          return false;
        }
        this->stop();
        return true;
      }
      write_fills(row);
    }
    this->store();
    return true;
  }
};

}  // namespace ks
