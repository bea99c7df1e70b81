// call.h: the call auction on the clock, on one core: orders wait at the tick where they were priced until the interval ends, then
// all clear at one price (docs/model.md). On a GPU it is warp/clock.cuh. Included by cpu/events.h.
#pragma once

#include <algorithm>

#include "cpu/waiting.h"
#include "events/market.cuh"

namespace ks {

// Beside what rests, what waits.
template <int kSlots>
struct CallMemory : EventMemory<kSlots, WideColumns> {
  int32_t* waiting[2];
  OccupiedBits* waiting_bits;
};

template <int kSlots>
struct CallMarket : EventMarket<false, kSlots, WideColumns> {
  using Memory = CallMemory<kSlots>;
  using Base = EventMarket<false, kSlots, WideColumns>;
  using Base::beat, Base::beat_price, Base::book, Base::checks_overflow, Base::error, Base::fundamental, Base::g, Base::key,
      Base::last_tick, Base::launch, Base::levels, Base::next_beat, Base::now, Base::origin, Base::p, Base::pricing,
      Base::ret, Base::slots, Base::t, Base::trades, Base::volume;
  using Base::find_quotes, Base::follow_mid, Base::mid2, Base::quoted, Base::tick_of;

  static constexpr bool kQueues = false;  // for quotes
  int32_t* const waiting[2];    // between launches and intervals all 0
  OccupiedBits* const occupied;  // ticks at which either side rests or waits, and perhaps some more
  int64_t marketable[2], total[2];

  CallMarket(const Launch& launch, int64_t m, const Memory& memory)
      : Base(launch, m, memory), waiting{memory.waiting[0], memory.waiting[1]}, occupied(memory.waiting_bits) {
    for (int tick = 0; tick < levels; ++tick) waiting[0][tick] = waiting[1][tick] = 0;
    occupy_resting();
  }

  void prepare() {
    Base::prepare();
    occupy_resting();
  }

  void occupy_resting() {
    for (int w = 0; w < book.words; ++w) occupied[w] = 0;
    for (int tick = 0; tick < levels; ++tick)
      occupied[tick / kWordBits] |= (OccupiedBits)(book.row[tick] != 0) << (tick % kWordBits);
  }

  // One interval; `fresh` are quotes of a decision that begins here, [K], or null. Returns false if the market has to stop.
  template <typename Records>
  bool interval(const Quote* fresh, uint64_t, const Records&) {
    this->begin_interval();
    const int32_t place = origin;
    if (!follow_mid()) return false;
    if (origin != place) occupy_resting();
    beat_price = last_tick + origin;
    this->set_pricing();
    marketable[0] = marketable[1] = 0;
    if (checks_overflow) count();
    const uint64_t end = g + (uint32_t)p.levers.interval;
    while (g < end) {
      if (g == next_beat) take_beat();
      const uint64_t until = end < next_beat ? end : next_beat;
      if (!take_events((uint32_t)until)) return false;
      g = until;
    }
    const int32_t mid = mid2();
    if (kSlots && fresh) replace_quotes(fresh);
    if (checks_overflow) {
      count();
      if (is_full(0) || is_full(1)) return false;
    }
    clear(mid);
    t += 1;
    return true;
  }

  // Of the interval that has ended: all marketable orders that came, whatever cancellation took of them.
  int64_t signed_volume() const { return marketable[0] - marketable[1]; }

  void take_beat() {
    this->change_regime_and_fundamental(beat);
    if (now.cancel_threshold != 0) cancel();
    const uint64_t events = (uint32_t)p.levers.interval, since = (uint32_t)p.levers.beat;
    if (g == 0 || g / events > (g - since) / events) this->take_return();  // an interval has ended since the last beat
    this->set_pricing();
    this->pass_beat();
    if (checks_overflow) count();
  }

  // Of what rests and waits at a tick together; the loss comes out of what rests first.
  void cancel() {
    for (int w = 0; w < book.words; ++w) {
      const OccupiedBits here = occupied[w];
      for (OccupiedBits pairs = (here | here >> 1) & (OccupiedBits)0x5555555555555555ull; pairs != 0; pairs &= pairs - 1) {
        const int32_t first = kWordBits * w + lowest_bit(pairs);
        const uint64_t word = random_word(key, beat, kCancelWord + first / 2);
        for (int32_t tick = first; tick < first + 2; ++tick) {
          const uint32_t half = tick & 1 ? high_half(word) : low_half(word);
          for (int side = 0; side < 2; ++side) {
            const int32_t resting = book.resting(tick, side);
            const int32_t loss = cancelled(resting + waiting[side][tick], now.cancel_threshold, half, side);
            const int32_t taken = min_of(loss, resting);
            waiting[side][tick] -= loss - taken;
            if (taken == 0) continue;
            book.row[tick] += side ? taken : -taken;
            if (taken == resting) book.mark(book.flip(tick, side), side, false);
          }
        }
      }
    }
    book.find_best();
  }

  // The orders of the events before `until`, between which no beat comes, wait. Returns false if the market has to stop.
  bool take_events(uint32_t until) {
    const bool added = has_added_agents(launch);
    const bool built_in = !added || first_added_agent(launch, p) > 0;
    const int32_t mid = mid2(), value2 = fit_int32(2 * ((int64_t)fundamental - origin));
    AgentView view;
    if (added) view = this->view_at(g, mid, book, last_tick);
    ArrivingAgents arriving;
    for (uint32_t e = (uint32_t)g; e != until;) {
      const int count = (int)std::min<uint32_t>(until - e, ArrivingAgents::kEvents - (e & 1));
      arriving.draw(key, e, count);
      if (built_in && !arriving.take_built_in(*this, e, count, mid, value2)) return false;
      if (added && !arriving.take_added(*this, view, e, count)) return false;
      e += count;
    }
    arriving.orders.end(*this);
    return true;
  }

  // Totals of both sides, waiting orders and quotes that take part included; kept up only while they may be too large.
  void count() {
    for (int side = 0; side < 2; ++side) {
      total[side] = book.total(side) + quoted(side);
      for (int tick = 0; tick < levels; ++tick) total[side] += waiting[side][tick];
    }
  }
  bool is_full(int32_t side) {
    if (total[side] < (int64_t)1 << 31) return false;
    error |= kErrorOverflow;
    return true;
  }

  void replace_quotes(const Quote* fresh) {
    for (int k = 0; k < slots.count(); ++k) {
      const Quote quote = apply_pre_trade_limits(fresh[k], slots.accounts[k].inventory, p);
      slots.quotes[k] = quote_under_levers(p, quote, beat_price);
    }
    find_quotes();
  }

  // The auction --------------------------------------------------------------------------------------------------------

  // What rests at a tick when the auction begins, quotes included.
  void put_quotes() {
    for (int k = 0; k < slots.count(); ++k) {
      for (int side = 0; side < 2; ++side) {
        const int32_t tick = tick_of(k, side);
        if (tick < 0) continue;
        waiting[side][tick] += slots.quantity(k, side);
        occupied[tick / kWordBits] |= (OccupiedBits)1 << (tick % kWordBits);
      }
    }
  }

  // Only occupied ticks are looked at: the volume is reached at one, and so are the lowest and the highest price that
  // clears it, as supply rises and demand falls at occupied ticks only.
  void clear(int32_t mid) {
    if (kSlots) put_quotes();
    int64_t demand = 0;
    for (int w = 0; w < book.words; ++w) {
      for (OccupiedBits left = occupied[w]; left != 0; left &= left - 1) {
        const int32_t tick = kWordBits * w + lowest_bit(left);
        const int32_t q = book.row[tick];
        const int32_t buy = waiting[0][tick] += max_of(q, 0);
        waiting[1][tick] += max_of(-q, 0);
        demand += buy;
      }
    }
    const int32_t all_demand = (int32_t)demand;
    int32_t above = all_demand, below = 0, best = 0;
    for (int w = 0; w < book.words; ++w) {
      for (OccupiedBits left = occupied[w]; left != 0; left &= left - 1) {
        const int32_t tick = kWordBits * w + lowest_bit(left);
        below += waiting[1][tick];
        best = max_of(best, executable_volume(above, below));
        above -= waiting[0][tick];
      }
    }
    leave_residual(best, all_demand, mid);
  }

  // Put into the book what does not trade.
  void leave_residual(int32_t best, int32_t all_demand, int32_t mid) {
    int32_t above = all_demand, below = 0, lowest = kNoTick, highest = -1;
    for (int w = 0; w < book.words; ++w) {
      OccupiedBits full = 0;
      for (OccupiedBits left = occupied[w]; left != 0; left &= left - 1) {
        const int i = lowest_bit(left);
        const int32_t tick = kWordBits * w + i;
        const int32_t buy = waiting[0][tick], sell = waiting[1][tick];
        below += sell;
        if (below >= best) lowest = min_of(lowest, tick);
        if (above >= best) highest = tick;
        const int32_t q = residual_at_tick(best, above, buy) - residual_at_tick(best, below, sell);
        above -= buy;
        book.row[tick] = q;
        if (q != 0) full |= (OccupiedBits)1 << i;
        if (!kSlots) waiting[0][tick] = waiting[1][tick] = 0;
      }
      if (!kSlots) occupied[w] = full;
    }
    if (best > 0) {
      last_tick = clearing_price_under_levers(p, levels, origin, mid, t, lowest, highest);
      volume += best;
      trades += 1;
    }
    if (kSlots) fill_quotes();
    if (p.residue == kResidueCancel) cancel_residue();
    mark_resting();
  }

  // The book's bits; all that rests is at ticks that are marked as occupied.
  void mark_resting() {
    for (int i = 0; i < 2 * book.words; ++i) book.bits[i] = 0;
    for (int w = 0; w < book.words; ++w) {
      for (OccupiedBits left = occupied[w]; left != 0; left &= left - 1) {
        const int32_t tick = kWordBits * w + lowest_bit(left), q = book.row[tick];
        if (q != 0) book.mark(book.flip(tick, q < 0), q < 0, true);
      }
    }
    book.find_best();
  }

  // Give each quote its share of what traded at its tick; the book keeps the built-in rest.
  void fill_quotes() {
    const uint64_t word = random_word(key, t, kRationWord);
    const int64_t price = (int64_t)last_tick + origin, fee = unit_fee(p);
    for (int side = 0; side < 2; ++side) {
      int32_t places[EventSlots<kSlots>::kRoom], quantities[EventSlots<kSlots>::kRoom], left[EventSlots<kSlots>::kRoom];
      for (int k = 0; k < slots.count(); ++k) {
        places[k] = tick_of(k, side), quantities[k] = slots.quantity(k, side);
        left[k] = places[k] >= 0 ? book.resting(places[k], side) : 0;
      }
      for (int k = 0; k < slots.count(); ++k) {
        const int32_t tick = places[k];
        if (tick < 0) continue;
        const int32_t all = waiting[side][tick];
        uint32_t before = 0;
        for (int j = 0; j < k; ++j) before += places[j] == tick ? quantities[j] : 0;
        const int32_t units = ration(before, quantities[k], all - left[k], all, (uint32_t)(word >> (32 * side)));
        if (units > 0) slots.fill(k, side, price, units, fee);
        slots.set_quantity(k, side, quantities[k] - units);
        const int32_t kept = quantities[k] - units;
        book.row[tick] += side ? kept : -kept;
      }
    }
    for (int w = 0; w < book.words; ++w) {
      OccupiedBits full = 0;
      for (OccupiedBits ticks = occupied[w]; ticks != 0; ticks &= ticks - 1) {
        const int i = lowest_bit(ticks);
        waiting[0][kWordBits * w + i] = waiting[1][kWordBits * w + i] = 0;
        if (book.row[kWordBits * w + i] != 0) full |= (OccupiedBits)1 << i;
      }
      occupied[w] = full;
    }
    find_quotes();
  }

  // Of marketable orders that were not filled, where they ended up.
  void cancel_residue() {
    for (int side = 0; side < 2; ++side) {
      const int32_t tick = pricing.marketable(side), here = book.resting(tick, side);
      const int32_t unwanted = here < marketable[side] ? here : (int32_t)marketable[side];
      if (unwanted == 0) continue;
      book.row[tick] += side ? unwanted : -unwanted;
    }
  }
};

}  // namespace ks
