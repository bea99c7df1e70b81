// run.cuh: decisions of a market on the clock, and what a run records of them.
#pragma once

#include "events/call.cuh"
#include "events/continuous.cuh"

namespace ks {

template <typename Market>
struct EventRun : Market {
  using Market::g, Market::launch, Market::m, Market::p, Market::slots;

  KS_ON_LANE EventRun(const Launch& launch, int64_t m, const EventMemory& memory) : Market(launch, m, memory) {}

  KS_ON_LANE void record(int64_t at, int64_t traded) const {
    if (launch.series_last_price) launch.series_last_price[at] = this->last_tick + this->origin;
    if (launch.series_volume) launch.series_volume[at] = recorded(traded);
    if (launch.series_mid2) launch.series_mid2[at] = this->mark();
    if (launch.series_fundamental) launch.series_fundamental[at] = this->fundamental;
  }
  static KS_ON_LANE int32_t recorded(int64_t traded) { return traded < 0x7fffffff ? (int32_t)traded : 0x7fffffff; }

  // A decision of n intervals; `fresh` are its quotes, [K], or null. `first` counts intervals of this launch before it.
  // Returns false if the market has to stop.
  KS_ON_LANE bool decision(const Quote* fresh, int64_t n, int64_t first, int64_t length) {
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
      const Quote* given = reinterpret_cast<const Quote*>(launch.new_quotes);
      const Quote* fresh = given ? given + row : nullptr;
      slots.begin_decision();
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
