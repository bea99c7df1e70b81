// lives.cuh: the orders of a fitted flow at the ticks of a market, beside its book: how many of each life, and the units of
// fleeting ones; and of each side what choices ask for, kept up to date while the other side's best price stays. The rules are
// model/flow.h's, who calls are flow_book.cuh and flow.cuh. Where no market has a flow this is empty.
#pragma once

#include "events/book.cuh"
#include "model/flow.h"

namespace ks {

// Where they are; see EventMemory. On a GPU `ticks` is in global memory, of which an event takes a line or two, so that shared
// memory holds more markets.
struct LivesMemory {
  int32_t* ticks;
  uint32_t* sums;
};
// One of the two numbers that ticks have in turn.
template <typename T>
struct EverySecond {
  T* at;
  KS_ON_LANE T& operator[](int i) const { return at[2 * i]; }
};

template <typename Width>
struct FlowLives {
  using Lanes = typename Width::Lanes;
  static constexpr int kLanes = Lanes::kLanes;
  static constexpr int32_t kUnknown = kNoTick;
  static constexpr int kLifeBits = 16;
  static constexpr bool kSums = kLanes < kWarpLanes;  // all lanes of a warp see most orders that go at once

  EverySecond<uint32_t> counts;     // by tick: fleeting orders in the low half, lasting ones in the high half
  EverySecond<int32_t> fleeting;    // by tick: units
  Column<uint32_t, Width> sums;     // by block of places, a side's after the other's: the low 32 bits of its part of `weight`
  const FlowNumbers* table;         // null: the market has no flow
  FlowState state;
  // Of each side: the weight of its cancellations, and its orders, as they are while the best price of the other side is
  // `against`.
  Sides<int64_t> weight;
  Sides<int32_t> orders, against;
  int64_t most_orders;  // of both sides: no more than these
  int32_t hit, taken;   // where an order is trading, and what it has taken there

  KS_ON_LANE FlowLives(const Launch& launch, const MarketParams& p, const LivesMemory& memory, int32_t* ticks)
      : counts{reinterpret_cast<uint32_t*>(ticks)}, fleeting{ticks + 1}, sums{memory.sums}, against{{kUnknown, kUnknown}}, most_orders(0), hit(kNoTick), taken(0) {
    read_table(launch, p);
  }
  KS_ON_LANE void read_table(const Launch& launch, const MarketParams& p) {
    const auto* const tables = reinterpret_cast<const FlowNumbers*>(launch.flow_table);
    table = tables == nullptr ? nullptr : tables + p.levers.flow;
  }

  KS_ON_LANE bool plays() const {
#ifdef __CUDA_ARCH__
    return KS_FLOW != 0;
#else
    return KS_FLOW != 0 && table != nullptr;
#endif
  }
  // Of an interval, in nanoseconds; 0 where it has so many events.
  KS_ON_LANE int64_t length_of(const MarketParams& p) const { return plays() ? 1000 * (int64_t)p.levers.interval_us : 0; }
  KS_ON_LANE void forget() { against = {{kUnknown, kUnknown}}; }

  // Ticks -------------------------------------------------------------------------------------------------------------

  static KS_ON_LANE int32_t count_of(uint32_t both, int32_t life) { return both >> (kLifeBits * life) & 0xffffu; }
  KS_ON_LANE int32_t count(int32_t tick, int32_t life) const { return count_of(counts[tick], life); }
  // Of so many orders; T is wide enough for those of a tick, and may be for all of a side.
  template <typename T>
  KS_ON_LANE T weight_of(uint32_t both, int32_t life, int32_t band) const {
    return (T)(uint32_t)count_of(both, life) * (T)(uint32_t)table->cancel[life][band];
  }

  // Memory ------------------------------------------------------------------------------------------------------------

  KS_ON_LANE void load(const Launch& launch, int64_t m, int levels) {
    if (plays()) load(launch.lives + m * 2 * levels, launch.fleeting_units + m * levels, launch.flow + m * kFlowNumbers, levels);
  }
  // Whoever writes into a live state may write any number.
  KS_ON_LANE void load(const int32_t* lives, const int32_t* units_there, const int64_t* numbers, int levels) {
    Lanes::sync();
    int64_t all = 0;
    for (int tick = Lanes::lane(); tick < levels; tick += kLanes) {
      const uint32_t some = (uint32_t)clamp_to(lives[tick], 0, kMostOfALife), last = (uint32_t)clamp_to(lives[levels + tick], 0, kMostOfALife);
      counts[tick] = some | last << kLifeBits;
      fleeting[tick] = units_there[tick];
      all += some + last;
    }
    most_orders = Lanes::sum(all);
    state = {(int32_t)numbers[0], (int32_t)numbers[1], (int32_t)numbers[2], clamp_to((int32_t)numbers[4], 0, kClockStates - 1),
             clamp_to((int32_t)numbers[5], 0, kAfterKinds - 1), numbers[3], numbers[6], numbers[7], numbers[8]};
    forget();
    Lanes::sync();
  }
  KS_ON_LANE void store(const Launch& launch, int64_t m, int levels) const {
    if (!plays()) return;
    Lanes::sync();
    int32_t *const lives = launch.lives + m * 2 * levels, *const units_there = launch.fleeting_units + m * levels;
    for (int tick = Lanes::lane(); tick < levels; tick += kLanes) {
      lives[tick] = (int32_t)count(tick, kFleeting), lives[levels + tick] = (int32_t)count(tick, kLasting);
      units_there[tick] = fleeting[tick];
    }
    state.store(launch.flow + m * kFlowNumbers);
  }
  // Bounds ------------------------------------------------------------------------------------------------------------

  // Ticks that open in an interval, at most.
  static KS_ON_LANE int64_t openings(const MarketParams& p, int levels) {
    return (int64_t)levels * (p.levers.interval / p.levers.beat + 1);
  }
  // What an interval's orders can add to a side.
  KS_ON_LANE int64_t growth(const MarketParams& p, int levels) const {
    return p.levers.interval * table->largest_size + openings(p, levels) * table->most_at_tick;
  }
  // Whether a side's weights or the time may reach their limits in the next interval.
  KS_ON_LANE bool may_stop(const MarketParams& p, int levels) {
    const int64_t comes = p.levers.interval + openings(p, levels) * table->most_orders;
    const int64_t enough = (kMostWeight - 1) / table->largest_cancel;
    if (most_orders + comes > enough) count_orders(levels);
    const bool heavy = most_orders + comes > enough;
    most_orders += comes;
    return heavy || state.time >= kLastTime - p.levers.interval * 32 * table->largest_gap || state.now >= kLastTime - length_of(p);
  }
  KS_ON_LANE void count_orders(int levels) {
    int64_t all = 0;
    Lanes::sync();
    for (int tick = Lanes::lane(); tick < levels; tick += kLanes) all += count(tick, kFleeting) + count(tick, kLasting);
    most_orders = Lanes::sum(all);
  }

  // As BookRow's.
  KS_ON_LANE void shift(int32_t by, int levels) {
    const int32_t last = (levels - 1) / kLanes * kLanes;
    for (int32_t i = 0; i <= last; i += kLanes) {  // what is read has not been written yet
      const int32_t tick = (by > 0 ? i : last - i) + Lanes::lane();
      const int64_t from = (int64_t)tick + by;
      const bool there = from >= 0 && from < levels;
      const uint32_t number = there ? counts[(int32_t)from] : 0;
      const int32_t some = there ? fleeting[(int32_t)from] : 0;
      Lanes::sync();
      if (tick < levels) counts[tick] = number, fleeting[tick] = some;
      Lanes::sync();
    }
    forget();
  }
  // The other lanes that share the market see what the first has done.
  KS_ON_LANE void share() {
    if constexpr (kLanes > 1) {
      for (int side = 0; side < 2; ++side) against.at[side] = Lanes::from_first(against.at[side]);
    }
  }

  // Orders that trade, which one lane does ------------------------------------------------------------------------------

  // An order takes built-in units at a tick; it may do so twice there, before and behind a quote.
  KS_ON_LANE void take(const EventBook<Width>& book, int32_t tick, int32_t quantity) {
    if (!plays()) return;
    if (tick != hit) end_trade(book);
    hit = tick, taken += quantity;
  }
  // It is done with the tick: lasting units have gone first.
  KS_ON_LANE void end_trade(const EventBook<Width>& book) {
    if (!plays() || hit == kNoTick) return;
    const int32_t left = book.row[hit], units_before = taken + max_of(left, -left);
    const int32_t some = min_of(fleeting[hit], units_before), last = units_before - some;
    const int32_t of_lasting = min_of(taken, last), of_fleeting = taken - of_lasting;
    const uint32_t both = counts[hit];
    const int64_t left_fleeting = orders_left(count_of(both, kFleeting), some, some - of_fleeting);
    const int64_t left_lasting = orders_left(count_of(both, kLasting), last, last - of_lasting);
    counts[hit] = (uint32_t)left_fleeting | (uint32_t)left_lasting << kLifeBits;
    fleeting[hit] = some - of_fleeting;
    forget();
    hit = kNoTick, taken = 0;
  }
};

}  // namespace ks
