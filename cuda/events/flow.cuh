// flow.cuh: events of an order flow that is fitted to data: its clock, jumps, and one limit order, cancellation or market order per
// event (docs/model.md, "Order flow"). All lanes that share a market hold its numbers alike and choose alike; what changes memory
// is the first one's alone.
#pragma once

#include "events/matching.cuh"

namespace ks {

template <int kSlots, typename Width>
struct FlowMarket : MatchingMarket<kSlots, Width> {
  using Base = MatchingMarket<kSlots, Width>;
  using Base::book, Base::checks_overflow, Base::error, Base::g, Base::key, Base::last_tick, Base::levels, Base::lives, Base::origin, Base::p,
      Base::slots, Base::taken, Base::volume;
  using Base::has_room, Base::tick_of;
  using Lanes = typename Width::Lanes;
  using Touch = typename Base::Touch;

  KS_ON_LANE FlowMarket(const Launch& launch, int64_t m, const EventMemory<kSlots, Width>& memory) : Base(launch, m, memory) {}

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

  // What choices ask for of a side; all of it is counted anew where the best price of the other side has changed, or an order has
  // traded.
  KS_ON_LANE void weigh(int32_t side, const Best& best) {
    const int32_t other = best.of(1 - side) + origin;
    if (lives.against.of(side) == other) return;
    int64_t weight = 0;
    int32_t orders = 0;
    const auto add = [&](int32_t tick) {
      const uint32_t both = lives.counts[tick];
      const int32_t band = band_of(best.distance(tick, side));
      weight += lives.weight_of(both, kFleeting, band) + lives.weight_of(both, kLasting, band);
      orders += (int32_t)(FlowLives<Width>::count_of(both, kFleeting) + FlowLives<Width>::count_of(both, kLasting));
    };
    if constexpr (Lanes::kLanes > 1) {
#pragma unroll 4
      for (int tick = Lanes::lane(); tick < levels; tick += Lanes::kLanes)
        if (book.resting(tick, side) > 0) add(tick);
      weight = Lanes::sum(weight), orders = Lanes::sum(orders);
    } else {
      for (int w = 0; w < book.words; ++w) {
        for (OccupiedBits here = book.bits[side * book.words + w]; here != 0; here &= here - 1) {
          const int32_t tick = book.flip(kWordBits * w + lowest_bit(here) - book.lead, side);
          add(tick);
        }
      }
    }
    lives.weight.set(side, weight), lives.orders.set(side, orders);
    lives.against.set(side, other);
  }
  // One order more or less, of which the weights know if they are up to date.
  KS_ON_LANE void note_order(int32_t side, int32_t life, int32_t band, int32_t number) {
    lives.weight.set(side, lives.weight.of(side) + number * lives.table->cancel[life][band]);
    lives.orders.set(side, lives.orders.of(side) + number);
  }
  // The built-in units of a side.
  KS_ON_LANE int64_t units_of(int32_t side) const {
    int64_t units = 0;
#pragma unroll 4
    for (int tick = Lanes::lane(); tick < levels; tick += Lanes::kLanes) units += book.resting(tick, side);
    return Lanes::sum(units);
  }
  // Into how many of some rising numbers r does not fall.
  KS_ON_LANE int32_t passed(const int64_t* upto, int32_t count, int64_t r) const {
    int32_t number = 0;
    for (int32_t first = 0; first < count; first += Lanes::kLanes) {
      const int32_t i = first + Lanes::lane();
      number += one_bits(Lanes::ballot(i < count && r >= upto[min_of(i, count - 1)]));
    }
    return number;
  }

  // Events ------------------------------------------------------------------------------------------------------------

  // The words of an event that are asked for most, by their numbers.
  struct Words {
    static constexpr int kCount = 4;
    uint64_t at[kCount];
  };
  static_assert(kChoiceWord < Words::kCount && kOrderWord < Words::kCount && kJumpWord < Words::kCount && kClockWord < Words::kCount);

  // Events from g on, before `until` and no later than `latest`. g is then the first of the others. Lanes that share the market draw a
  // word each, of several events. Returns false if the market has to stop.
  KS_ON_LANE bool take_flow_events(uint64_t until, int64_t latest) {
    constexpr int kAtOnce = Lanes::kLanes < Words::kCount ? 1 : Lanes::kLanes / Words::kCount;
#pragma unroll 1
    while (g != until) {
      const uint32_t e = (uint32_t)g, count = until - g < kAtOnce ? (uint32_t)(until - g) : kAtOnce;
      const uint64_t mine = Lanes::kLanes < Words::kCount ? 0 : flow_word(key, e + Lanes::lane() / Words::kCount, Lanes::lane() % Words::kCount);
#pragma unroll 1
      for (uint32_t i = 0; i < count; ++i, ++g) {
        Words words;
        for (int k = 0; k < Words::kCount; ++k)
          words.at[k] = Lanes::kLanes < Words::kCount ? flow_word(key, e + i, k) : Lanes::from(Words::kCount * i + k, mine);
        if (!advance_clock(words.at[kClockWord], latest)) return true;
        if (!take_flow_event(e + i, words)) return false;
      }
    }
    return true;
  }
  // Whether the next event is no later than that.
  KS_ON_LANE bool comes_by(int64_t latest) const {
    FlowState next = lives.state;
    ks::advance_clock(next, *lives.table, flow_word(key, (uint32_t)g, kClockWord));
    return next.time <= latest;
  }
  // Unless the event whose word this is comes later than `latest`.
  KS_ON_LANE bool advance_clock(uint64_t word, int64_t latest) {
    FlowState next = lives.state;
    ks::advance_clock(next, *lives.table, word);
    if (next.time > latest) return false;
    lives.state.state = next.state, lives.state.time = next.time;
    return true;
  }
  KS_ON_LANE bool take_flow_event(uint32_t e, const Words& words) {
    FlowState& state = lives.state;
    if (state.time >= kLastTime) return stops();
    const Best before = best_ticks();
    const int64_t traded = volume;
    if (!take_jump(e, words, before)) return false;
    state.after = volume > traded ? kAfterTrade : best_ticks() == before ? kAfterNothing : kAfterMove;
    return true;
  }
  KS_ON_LANE bool stops() {
    error |= kErrorOverflow;
    return false;
  }

  KS_ON_LANE bool take_jump(uint32_t e, const Words& words, const Best& best) {
    FlowState& state = lives.state;
    const uint64_t drawn = words.at[kJumpWord];
    if (state.left > 0) {
      state.left -= 1;
      if (field(drawn, 63, 1) == 0 && flees(e, drawn, best)) return true;
    } else if (field(drawn, 0, 32) < lives.table->jump_hazard) {
      begin_jump(field(drawn, 32, 16) < lives.table->jump_same ? state.last_jump : -state.last_jump, field(drawn, 48, 4), best);
    }
    return take_choice(e, words, best);
  }

  KS_ON_LANE void begin_jump(int64_t way, int64_t number, const Best& best) {
    FlowState& state = lives.state;
    state.left = lives.table->jump_events, state.last_jump = way;
    state.limit = (int64_t)best.of(way > 0) + origin + way * lives.table->jump_size[number];
  }

  // An order flees from a jump. Returns whether the event is over.
  KS_ON_LANE bool flees(uint32_t e, uint64_t drawn, const Best& best) {
    const int32_t side = lives.state.last_jump > 0;
    const int64_t limit = lives.state.limit - origin, last = side ? limit - 1 : levels - 2 - limit;  // place of the worst that does
    const int32_t nearest = book.best.of(side);
    if (nearest == kNoPlace || nearest > last) return lives.state.left = 0, false;
    weigh(side, best);
    if (lives.orders.of(side) == 1) return true;
    const int32_t place = field(drawn, 62, 1) == 0 ? nearest : worst_place_upto(side, last < levels ? (int32_t)last : levels - 1);
    const int32_t tick = book.flip(place, side);
    const uint32_t both = lives.counts[tick];
    const int64_t some = FlowLives<Width>::count_of(both, kFleeting), all = some + FlowLives<Width>::count_of(both, kLasting);
    const int32_t life = (field(drawn, 32, 16) * all) >> 16 < some ? kFleeting : kLasting;
    const int64_t units = leaving(side, tick, life, field(drawn, 48, 4), best);
    if (field(drawn, 0, 16) < lives.table->jump_traded) trade(side, units);
    else cancel(e, side, tick, life, units, best);
    return true;
  }
  // The worst place of a side, up to one, at which something rests; there is one.
  KS_ON_LANE int32_t worst_place_upto(int32_t side, int32_t last) const {
    const uint32_t at = (uint32_t)(last + book.lead);
    int w = (int)(at / kWordBits);
    OccupiedBits here = book.bits[side * book.words + w] & (~(OccupiedBits)0 >> (kWordBits - 1 - at % kWordBits));
    while (here == 0 && w > 0) here = book.bits[side * book.words + --w];
    return here == 0 ? book.best.of(side) : kWordBits * w + highest_of(here) - book.lead;
  }
  KS_ON_LANE int64_t leaving(int32_t side, int32_t tick, int32_t life, int64_t number, const Best& best) const {
    const int32_t group = group_of(band_of(best.distance(tick, side)));
    const int64_t some = lives.fleeting[tick], q = life == kFleeting ? some : book.resting(tick, side) - some;
    return units_that_go(lives.table->limit_size[side][life][group], lives.table->size_sum[side][life][group], number,
                         lives.count(tick, life), q);
  }

  KS_ON_LANE bool take_choice(uint32_t e, const Words& words, const Best& best) {
    const FlowNumbers& table = *lives.table;
    const uint64_t drawn = words.at[kOrderWord];
    const int32_t spread = spread_class(best.at[1] - best.at[0]);
    weigh(0, best), weigh(1, best);
    const int64_t cancels[2] = {lives.weight.of(0), lives.weight.of(1)}, limits[2] = {table.limit_upto[0][spread][kFlowBands - 1], table.limit_upto[1][spread][kFlowBands - 1]};
    if (cancels[0] >= kMostWeight || cancels[1] >= kMostWeight) return stops();
    const int64_t total = table.market + limits[0] + limits[1] + cancels[0] + cancels[1];
    int64_t r = share_of(words.at[kChoiceWord], (uint64_t)total);
    if (r < table.market) return take_market_order(drawn);
    r -= table.market;
    for (int side = 0; side < 2; ++side) {
      if (r < limits[side]) return take_limit_order(side, r, drawn, best, spread);
      r -= limits[side];
    }
    for (int side = 0; side < 2; ++side) {
      if (r < cancels[side]) return take_cancellation(e, side, r, drawn, best);
      r -= cancels[side];
    }
    return true;
  }

  // Up to so many units of a side trade, at any price, of its built-in units one less at most.
  KS_ON_LANE void trade(int32_t side, int64_t units) {
    const int64_t most = units_of(side) - 1;
    const int32_t quantity = (int32_t)(units < most ? units : most);
    if (quantity <= 0) return;
    Lanes::sync();
    if (Lanes::leads()) {
      Touch touch = this->touched();
      this->template take_at<false>(touch, side ? levels - 1 : 0, quantity, 1, 1 - side);
      this->put_back(touch);
    }
    share();
  }
  KS_ON_LANE bool take_market_order(uint64_t drawn) {
    FlowState& state = lives.state;
    const FlowNumbers& table = *lives.table;
    if (field(drawn, 0, 16) >= table.market_same) state.last_trade = -state.last_trade;
    trade(state.last_trade > 0, table.market_size[field(drawn, 16, 4)]);
    if (state.left == 0 && field(drawn, 20, 16) < table.jump_after_trade) begin_jump(state.last_trade, field(drawn, 36, 4), best_ticks());
    return true;
  }

  KS_ON_LANE bool take_limit_order(int32_t side, int64_t r, uint64_t drawn, const Best& best, int32_t spread) {
    const FlowNumbers& table = *lives.table;
    const int32_t band = passed(table.limit_upto[side][spread], kFlowBands - 1, r);
    const int32_t width = band_begins(band + 1) - band_begins(band);
    const int32_t away = band_begins(band) + (int32_t)(field(drawn, 0, 16) * width >> 16);
    const int32_t tick = side ? best.at[0] + away : best.at[1] - away;
    const int32_t life = field(drawn, 16, 16) < table.fleeting[band] ? kFleeting : kLasting;
    if (tick < 0 || tick >= levels || lives.count(tick, life) >= kMostOfALife) return true;
    const int32_t size = (int32_t)table.limit_size[side][life][group_of(band)][field(drawn, 32, 4)];
    Lanes::sync();
    if (Lanes::leads()) {
      lives.change_count(tick, life, 1);
      if (life == kFleeting) lives.fleeting[tick] += size;
      book.rest(book.flip(tick, side), size, side);
    }
    book.share();
    note_order(side, life, band, 1);
    return !checks_overflow || has_room(side, 0);
  }

  KS_ON_LANE bool take_cancellation(uint32_t e, int32_t side, int64_t r, uint64_t drawn, const Best& best) {
    if (lives.orders.of(side) == 1) return true;
    // Lanes look at a tick each, from the side's best one away from the mid.
    for (int32_t first = book.best.of(side); first < levels; first += Lanes::kLanes) {
      const int32_t place = first + Lanes::lane(), tick = book.flip(place < levels ? place : levels - 1, side);
      const int32_t band = band_of(best.distance(tick, side));
      const uint32_t both = place < levels ? lives.counts[tick] : 0;
      const int64_t some = lives.weight_of(both, kFleeting, band), all = some + lives.weight_of(both, kLasting, band);
      const int64_t together = Lanes::sum(all);
      if (r >= together) {
        r -= together;
        continue;
      }
      const int64_t upto = together >> 31 ? Lanes::sum_upto(all) : Lanes::sum_upto((int32_t)all);
      const int lane = lowest_bit(Lanes::ballot(r < upto));
      const int32_t there = book.flip(first + lane, side);
      const int32_t life = Lanes::from(lane, (int32_t)(r - (upto - all) >= some)) ? kLasting : kFleeting;
      cancel(e, side, there, life, leaving(side, there, life, field(drawn, 36, 4), best), best);
      return true;
    }
    return true;
  }

  // An order of so many units goes; of quotes' places what goes with it, first, as that depends on what their ticks hold.
  KS_ON_LANE void cancel(uint32_t e, int32_t side, int32_t tick, int32_t life, int64_t units, const Best& best) {
    Lanes::sync();
    if (Lanes::leads()) {
      if (kSlots) {
        const int32_t q = book.resting(tick, side);
        const uint64_t places = flow_word(key, e, kFlowPlaceWord);
#pragma unroll 1
        for (int j = 0; j < slots.quote_count(); ++j) {
          const int32_t ahead = slots.ahead(j, side);
          if (ahead == 0 || q == 0 || tick_of(j, side) != tick) continue;
          slots.set_ahead(j, side, ahead - cancelled_ahead(q, (int32_t)units, ahead, (uint32_t)(places >> (32 * side))));
        }
      }
      lives.change_count(tick, life, -1);
      if (life == kFleeting) lives.fleeting[tick] -= (int32_t)units;
      book.remove(book.flip(tick, side), (int32_t)units, side);
    }
    if (kSlots) share();
    else book.share();
    note_order(side, life, band_of(best.distance(tick, side)), -1);
  }
};

}  // namespace ks
