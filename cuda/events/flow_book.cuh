// flow_book.cuh: the book of an order flow that is fitted to data: its best prices, what ticks hold as they open, what choices ask
// for of either side, and an order more or less (docs/model.md, "Order flow"). All lanes that share a market hold its numbers alike;
// what changes memory is the first one's alone. flow.cuh says what events are.
#pragma once

#include "events/matching.cuh"

namespace ks {

template <int kSlots, typename Width>
struct FlowBook : MatchingMarket<kSlots, Width> {
  using Base = MatchingMarket<kSlots, Width>;
  using Base::book, Base::checks_overflow, Base::error, Base::key, Base::last_tick, Base::levels, Base::lives, Base::p, Base::slots, Base::taken,
      Base::volume;
  using Base::has_room, Base::tick_of;
  using Lanes = typename Width::Lanes;

  KS_ON_LANE FlowBook(const Launch& launch, int64_t m, const EventMemory<kSlots, Width>& memory) : Base(launch, m, memory) {}

  // What the first of the lanes that share the market has changed.
  KS_ON_LANE void share() {
    if constexpr (Lanes::kLanes > 1) {
      book.share();
      slots.template share<Lanes>();
      last_tick = Lanes::from_first(last_tick), volume = Lanes::from_first(volume), error = Lanes::from_first(error);
      if (kWithSeries) taken = Lanes::from_first(taken);
      if (KS_FLOW) lives.share();
    }
  }

  // Prices ------------------------------------------------------------------------------------------------------------

  // The ticks of the best bid and ask, quotes included; next to the last price where a side is empty.
  struct Best {
    int32_t at[2];
    KS_ON_LANE bool operator==(const Best& other) const { return at[0] == other.at[0] && at[1] == other.at[1]; }
    KS_ON_LANE int32_t of(int32_t side) const { return side ? at[1] : at[0]; }
    KS_ON_LANE int32_t distance(int32_t tick, int32_t side) const { return side ? tick - at[0] : at[1] - tick; }
  };
  KS_ON_LANE Best best_ticks() const {
    const int32_t bid_place = this->best(0), ask = this->best(1), bid = levels - 1 - bid_place;
    const bool has_bid = bid_place != kNoPlace, has_ask = ask != kNoPlace;
    return {{has_bid ? bid : (has_ask ? min_of(last_tick, ask) : last_tick) - 1,
             has_ask ? ask : (has_bid ? max_of(last_tick, bid) : last_tick) + 1}};
  }

  // Books -------------------------------------------------------------------------------------------------------------

  // The orders of tick p as it opens, which it is to have one of where `never_empty`; each lane has ticks of its own. Best prices
  // and bits follow later.
  KS_ON_LANE void make_up(int32_t tick, int32_t side, int32_t away, uint64_t word, bool never_empty) {
    const FlowNumbers& table = *lives.table;
    const int32_t band = band_of(away), group = group_of(band);
    int64_t number[2];
    for (int life = 0; life < 2; ++life) number[life] = (table.resting[side][life][band] + field(word, 16 * life, 16)) >> 16;
    if (never_empty && number[0] + number[1] == 0) number[kLasting] = 1;
    int32_t units[2] = {0, 0};
#pragma unroll 1
    for (int k = 0; k < (int)(number[0] + number[1]); ++k) {
      const int life = k >= number[0];
      const int32_t size = (int32_t)table.limit_size[side][life][group][field(word, 32 + 4 * (k % 8), 4)];
      units[0] += life ? 0 : size, units[1] += life ? size : 0;
    }
    const int32_t all = units[0] + units[1];
    book.row[tick] = (typename Width::Cell)(side ? -all : all);
    lives.counts[tick] = (uint32_t)number[0] | (uint32_t)number[1] << FlowLives<Width>::kLifeBits;
    lives.fleeting[tick] = units[0];
  }
  KS_ON_LANE void find_all() {
    if constexpr (Lanes::kLanes > 1) {
      book.mark_all();
    } else {
      for (int i = 0; i < 2 * book.words; ++i) book.bits[i] = 0;
      for (int tick = 0; tick < levels; ++tick)
        if (book.row[tick] != 0) book.mark(book.flip(tick, book.row[tick] < 0), book.row[tick] < 0, true);
      book.find_best();
    }
    lives.forget();
  }

  // The book of an episode's beginning.
  KS_ON_LANE void open_flow() {
    Lanes::sync();
    for (int tick = Lanes::lane(); tick < levels; tick += Lanes::kLanes) {
      const int32_t side = tick >= p.init_price, away = side ? tick - p.init_price + 1 : p.init_price - tick;
      make_up(tick, side, away, flow_word(key, 0, kOpeningWord + (uint64_t)tick), away == 1);
    }
    find_all();
    book.replace_all();
    lives.state = {1, 1, 0, 0, 0, 0, 0, 0, 0};
    lives.most_orders = levels * lives.table->most_orders;
  }

  // The grid has moved by so many ticks: lives follow, and ticks that are new get orders. Returns false if the market has to stop.
  KS_ON_LANE bool take_lives_along(int32_t by, uint32_t event) {
    if (!lives.plays() || by == 0) return true;
    lives.shift(by, levels);
    const Best best = best_ticks();
    const int32_t side = by > 0, come = min_of(max_of(by, -by), levels), first = side ? levels - come : 0;
    Lanes::sync();
    for (int32_t tick = first + Lanes::lane(); tick < first + come; tick += Lanes::kLanes)
      make_up(tick, side, best.distance(tick, side), flow_word(key, event, kEntryWord + (uint64_t)tick), false);
    find_all();
    return !checks_overflow || (has_room(0, 0) && has_room(1, 0));
  }

  // What choices ask for of either side; all of it is counted anew where the best price of the other side has changed, or an
  // order has traded. One code for both, as that is seldom.
  KS_ON_LANE void weigh(const Best& best) {
#pragma unroll 1
    for (int32_t side = 0; side < 2; ++side) {
      if (lives.against.of(side) != best.of(1 - side)) weigh(side, best);
#if KS_RECOUNTS  // in tests
      const uint64_t kept = kept_of(side);
      weigh(side, best);
      if (kept != kept_of(side)) __builtin_trap();
#endif
    }
  }
#if KS_RECOUNTS
  uint64_t kept_of(int32_t side) const {
    uint64_t all = (uint64_t)lives.weight.of(side) * kGolden + (uint64_t)lives.orders.of(side);
    for (int32_t i = side * levels / kFlowBlock + Lanes::lane(); lives.kSums && i < (side + 1) * levels / kFlowBlock; i += Lanes::kLanes)
      all = all * kGolden + lives.sums[i];
    return all;
  }
#endif
  KS_ON_LANE void weigh(int32_t side, const Best& best) {
    using Lives = FlowLives<Width>;
    const int32_t blocks = levels / kFlowBlock;
    uint64_t weight = 0;
    int32_t orders = 0;
    Lanes::sync();
#pragma unroll 1
    for (int32_t block = Lanes::lane(); block < blocks; block += Lanes::kLanes) {
      const int32_t at = kFlowBlock * block + book.lead;  // a block's bits are in one word
      uint64_t sum = 0;
#pragma unroll 1
      for (uint32_t here = book.bits[side * book.words + at / kWordBits] >> (at % kWordBits) & ((1u << kFlowBlock) - 1); here != 0; here &= here - 1) {
        const int32_t tick = book.flip(kFlowBlock * block + lowest_bit(here), side), band = band_of(best.distance(tick, side));
        const uint32_t both = lives.counts[tick];
        sum += lives.template weight_of<uint64_t>(both, kFleeting, band) + lives.template weight_of<uint64_t>(both, kLasting, band);
        orders += Lives::count_of(both, kFleeting) + Lives::count_of(both, kLasting);
      }
      if (Lives::kSums) lives.sums[side * blocks + block] = (uint32_t)sum;
      weight += sum;
    }
    weight = Lanes::sum(weight), orders = Lanes::sum(orders);
    Lanes::sync();
    lives.weight.set(side, (int64_t)weight), lives.orders.set(side, orders);
    lives.against.set(side, best.of(1 - side));
  }
  // The built-in units of a side.
  KS_ON_LANE int64_t units_of(int32_t side) const {
    int64_t units = 0;
#pragma unroll 4
    for (int tick = Lanes::lane(); tick < levels; tick += Lanes::kLanes) units += book.resting(tick, side);
    return Lanes::sum(units);
  }
  // Into how many of some rising numbers, up to 31 of them, r does not fall. It falls into the one behind them.
  KS_ON_LANE int32_t passed(const int64_t* upto, int32_t count, int32_t r) const {
    int32_t number = 0;
    if constexpr (Lanes::kLanes == 1) {
      for (int32_t i = 0; i < count; ++i) number += r >= upto[i];
    } else if constexpr (Lanes::kLanes == 32) {
      const int32_t i = min_of(Lanes::lane(), count - 1);
      number = one_bits(Lanes::ballot(Lanes::lane() < count && r >= (int32_t)upto[i]));
    } else {
#pragma unroll
      for (int32_t step = 16; step > 0; step /= 2)
        if (r >= (int32_t)upto[min_of(number + step - 1, count)]) number += step;
    }
    return number;
  }

  // An order more or less, of so many units, at a tick. All lanes find what comes of it, the first one writes it.
  KS_ON_LANE void change_order(int32_t side, int32_t tick, int32_t life, int32_t by, int32_t units, int32_t weight) {
    const int32_t place = book.flip(tick, side);
    const uint32_t at = (uint32_t)(place + book.lead), w = at / kWordBits;
    OccupiedBits& word = book.bits[side * book.words + w];
    const OccupiedBits bit = (OccupiedBits)1 << (at % kWordBits);
    const int32_t q = book.row[tick] + negated(side, units), some = lives.fleeting[tick] + (life == kFleeting ? units : 0);
    const uint32_t both = lives.counts[tick] + ((uint32_t)by << FlowLives<Width>::kLifeBits * life);
    const OccupiedBits after = q != 0 ? word | bit : word & ~bit;
    const unsigned here = Lanes::mask();
    Lanes::sync(here);
    if (Lanes::leads()) {
      book.row[tick] = (typename Width::Cell)q, word = after, lives.counts[tick] = both, lives.fleeting[tick] = some;
      if (FlowLives<Width>::kSums) lives.sums[(side * levels + place) / kFlowBlock] += (uint32_t)weight;
    }
    Lanes::sync(here);
    if (place > book.best.of(side)) return;
    const int32_t next = after != 0 ? (int32_t)(kWordBits * w) + lowest_bit(after) - book.lead : book.next((int)w + 1, side);
    book.best.set(side, next);
  }

  // Of quotes' places what goes with an order of a tick, which depends on what the tick still holds.
  KS_ON_LANE void lose_places(uint32_t e, int32_t side, int32_t tick, int32_t units) {
    Lanes::sync();
    if (Lanes::leads()) {
      const int32_t q = book.resting(tick, side);
      const uint64_t places = flow_word(key, e, kFlowPlaceWord);
#pragma unroll 1
      for (int j = 0; j < slots.quote_count(); ++j) {
        const int32_t ahead = slots.ahead(j, side);
        if (ahead == 0 || q == 0 || tick_of(j, side) != tick) continue;
        slots.set_ahead(j, side, ahead - cancelled_ahead(q, units, ahead, (uint32_t)(places >> (32 * side))));
      }
    }
    slots.template share<Lanes>();
  }
};

}  // namespace ks
