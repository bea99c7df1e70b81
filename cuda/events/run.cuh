// run.cuh: decisions of a market on the clock, and what a run records of them.
#pragma once

#include "events/call.cuh"
#include "events/continuous.cuh"
#include "model/series.h"

namespace ks {

template <typename Market>
struct EventRun : Market {
  using Market::g, Market::launch, Market::m, Market::p, Market::slots;

  KS_ON_LANE EventRun(const Launch& launch, int64_t m, const EventMemory& memory) : Market(launch, m, memory) {}

  KS_ON_LANE void record(int64_t at, int64_t traded) const {
    if (launch.series_last_price) launch.series_last_price[at] = this->last_tick + this->origin;
    if (launch.series_volume) launch.series_volume[at] = fit_int32(traded);
    if (launch.series_mid2) launch.series_mid2[at] = this->mark();
    if (launch.series_fundamental) launch.series_fundamental[at] = this->fundamental;
    if (kWithSeries && launch.records > 1) record_further(at);
  }

  KS_APART void record_further(int64_t at) const {
    const int32_t bid = this->book.best_bid(), ask = this->book.best_ask();
    const Ticks bids = bids_in_reach(launch.reach, bid), asks = asks_in_reach(launch.reach, ask, this->levels);
    write_further_series(launch, at, this->origin, {bid, ask, this->book.total(bids.low, bids.high, 0),
                                                    this->book.total(asks.low, asks.high, 1), this->signed_volume()});
  }

  // A decision of n intervals; `fresh` are its quotes, [K, 4], or null. `first` counts intervals of this launch before it.
  // Returns false if the market has to stop.
  KS_ON_LANE bool decision(const int32_t* fresh, int64_t n, int64_t first, int64_t length) {
    slots.begin_decision();
    const uint64_t events = (uint64_t)n * (uint32_t)p.interval, latency = (uint32_t)p.quote_latency;
    const uint64_t arrival = g + (latency < events ? latency : events);
    for (int64_t a = 0; a < n; ++a) {
      const int64_t before = this->volume;
      const bool comes = fresh && (Market::kQuotesWait || a == 0);
      if (!this->interval(comes ? fresh : nullptr, arrival, a == n - 1)) return false;
      record(this->m * length + first + a, this->volume - before);
    }
    return true;
  }

  KS_ON_LANE void write_fills(int64_t row) const {
    for (int k = 0; k < slots.count(); ++k) {
      if (launch.fills) launch.fills[2 * (row + k)] = slots.bought[k], launch.fills[2 * (row + k) + 1] = slots.sold[k];
      const Account& account = slots.accounts[k];
      if (launch.value) launch.value[row + k] = 2 * account.cash + account.inventory * this->mark();
    }
  }

  KS_ON_LANE void run() {
    if (this->stopped()) return;
    const int64_t length = (int64_t)launch.decisions * launch.auctions;
    for (int64_t d = 0; d < launch.decisions; ++d) {
      const int64_t row = (d * launch.markets + m) * slots.count();
      const int32_t* fresh = launch.new_quotes ? launch.new_quotes + 4 * row : nullptr;
      if (!decision(fresh, launch.auctions, d * launch.auctions, length)) {
        this->stop();
        return;
      }
      write_fills(row);
    }
    this->store();
  }
};

}  // namespace ks
