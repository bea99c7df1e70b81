// flow.cuh: events of an order flow that is fitted to data: its clock, jumps, and one limit order, cancellation or market order per
// event (docs/model.md, "Order flow"). All lanes that share a market choose alike.
#pragma once

#include "events/flow_book.cuh"

namespace ks {

template <int kSlots, typename Width>
struct FlowMarket : FlowBook<kSlots, Width> {
  using Base = FlowBook<kSlots, Width>;
  using Base::best_ticks, Base::change_order, Base::lose_places, Base::passed, Base::share, Base::units_of, Base::weigh;
  using Base::book, Base::checks_overflow, Base::error, Base::g, Base::key, Base::last_tick, Base::launch, Base::levels, Base::lives, Base::origin, Base::p,
      Base::slots, Base::volume;
  using Base::has_room;
  using Lanes = typename Width::Lanes;
  using Best = typename Base::Best;
  using Touch = typename Base::Touch;
  using Resting = typename Base::Resting;

  KS_ON_LANE FlowMarket(const Launch& launch, int64_t m, const EventMemory<kSlots, Width>& memory) : Base(launch, m, memory) {}

  // The words of an event that are asked for most, by their numbers; of the clock as clock_word has it.
  struct Words {
    static constexpr int kCount = 4;
    uint64_t at[kCount];
  };
  static_assert(kChoiceWord < Words::kCount && kOrderWord < Words::kCount && kJumpWord < Words::kCount && kClockWord < Words::kCount);
  KS_ON_LANE uint64_t word_of(uint32_t e, uint64_t number) const {
    const uint64_t word = flow_word(key, e, number);
    return number == kClockWord ? clock_word(word, lives.table->logarithms) : word;
  }

  // Events from g on, before `until` and no later than `latest`; g is then the first of the others. Lanes that share the market draw a
  // word each, of several events, into memory. Returns false if the market has to stop.
  KS_ON_LANE bool take_flow_events(uint64_t until, int64_t latest) {
    constexpr uint32_t kAtOnce = Lanes::kLanes > 1 ? kFlowDrawn / Words::kCount : 1;
    const Column<uint64_t, Width> memory = {reinterpret_cast<uint64_t*>(this->drawn.at)};
    Best best = best_ticks();
#pragma unroll 1
    while (g != until) {
      const uint32_t e = (uint32_t)g, count = until - g < kAtOnce ? (uint32_t)(until - g) : kAtOnce;
      if constexpr (Lanes::kLanes > 1) {
        Lanes::sync();
#pragma unroll 1
        for (uint32_t i = Lanes::lane(); i < Words::kCount * count; i += Lanes::kLanes) memory[i] = word_of(e + i / Words::kCount, i % Words::kCount);
        Lanes::sync();
      }
#pragma unroll 1
      for (uint32_t i = 0; i < count; ++i, ++g) {
        Words words;
        for (int k = 0; k < Words::kCount; ++k) words.at[k] = Lanes::kLanes > 1 ? memory[Words::kCount * i + k] : word_of(e + i, k);
        if (!advance_clock(words.at[kClockWord], latest)) return true;
        if (!take_flow_event(e + i, words, best)) return false;
      }
    }
    return true;
  }
  // Whether the next event is no later than that.
  KS_ON_LANE bool comes_by(int64_t latest) const {
    FlowState next = lives.state;
    ks::advance_clock(next, *lives.table, word_of((uint32_t)g, kClockWord));
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

  // What an event does: an order comes to a tick, goes from it, or trades with a side.
  enum Kind { kNothing, kComes, kGoes, kTrades };
  struct Deed {
    int32_t kind, side, tick, life;
    int32_t number;  // of its size
    bool taken;      // the order that goes is traded against
  };

  // `best`: the best prices, before it and then after it.
  KS_ON_LANE bool take_flow_event(uint32_t e, const Words& words, Best& best) {
    FlowState& state = lives.state;
    if (state.time >= kLastTime) return stops();
    const Best before = best;
    const int64_t traded = volume;
    if (has_added_agents(launch) && agent_comes(e)) {
      if (!take_agent(e)) return false;
    } else {
      Deed deed = {kNothing, 0, 0, 0, 0, false};
      weigh(before);
      const bool flees = begin_event(words.at[kJumpWord], before, deed);
      if (!flees && !choose(words, before, deed)) return stops();
      if (deed.kind != kNothing && !take_deed(e, deed, before)) return false;
      if (!flees && deed.kind == kTrades && state.left == 0) begin_jump_after_trade(words.at[kOrderWord]);
    }
    best = best_ticks();
    state.after = volume > traded ? kAfterTrade : best == before ? kAfterNothing : kAfterMove;
    return true;
  }
  KS_ON_LANE bool stops() {
    error |= kErrorOverflow;
    return false;
  }

  KS_ON_LANE bool agent_comes(uint32_t e) const { return field(flow_word(key, e, kAgentWord), 0, 16) < launch.agent_threshold; }
  // An agent that users have added decides, and its order is matched; what is left rests as a lasting one.
  KS_ON_LANE bool take_agent(uint32_t e) {
    Resting rests = {0, 0};  // its tick and units; the side is the sign
    Lanes::sync();
    if (Lanes::leads()) rests = match_agent(e);
    share();
    rests = {Lanes::from_first(rests.tick), Lanes::from_first(rests.units)};
    const int32_t side = rests.units < 0, units = max_of(rests.units, -rests.units);
    if (units == 0 || lives.count(rests.tick, kLasting) >= kMostOfALife) return true;
    if (checks_overflow && !has_room(side, units)) return false;
    change_order(side, rests.tick, kLasting, 1, units, 0);
    lives.forget();
    return true;
  }
  KS_NOINLINE_ON_CPU Resting match_agent(uint32_t e) {
    const int32_t place = (int32_t)((flow_word(key, e, kAgentWord) >> 32) * (uint32_t)p.levers.num_agents >> 32);
    const LiveAgents agents(launch, this->m, p, this->view_at(e, this->mid2(), book, last_tick));
    const AgentOrder order = agents.play(place, random_word(key, e, 0));
    const int32_t side = sells(order), tick = ks::tick_of(order, this->pricing, origin);
    Touch touch = this->touched();
    const int32_t left = this->template sweep<false>(touch, touch.book.flip(tick, 1 - side), quantity_of(order), side, [](int32_t, int32_t) {});
    this->put_back(touch);
    return {tick, order.marketable ? 0 : negated(side, left)};
  }

  // A jump lasts, or begins. Returns whether that was all of the event's choice.
  KS_ON_LANE bool begin_event(uint64_t drawn, const Best& best, Deed& deed) {
    FlowState& state = lives.state;
    if (state.left > 0) {
      state.left -= 1;
      return field(drawn, 63, 1) == 0 && flees(drawn, best, deed);
    }
    if (field(drawn, 0, 32) < lives.table->jump_hazard)
      begin_jump(field(drawn, 32, 16) < lives.table->jump_same ? state.last_jump : -state.last_jump, field(drawn, 48, 4), best);
    return false;
  }
  KS_ON_LANE void begin_jump(int32_t way, int64_t number, const Best& best) {
    FlowState& state = lives.state;
    state.left = (int32_t)lives.table->jump_events, state.last_jump = way;
    state.limit = (int64_t)best.of(way > 0) + origin + way * lives.table->jump_size[number];
  }
  KS_ON_LANE void begin_jump_after_trade(uint64_t drawn) {
    if (field(drawn, 20, 16) < lives.table->jump_after_trade) begin_jump(lives.state.last_trade, field(drawn, 36, 4), best_ticks());
  }

  // An order flees from a jump. Returns whether the event is over.
  KS_ON_LANE bool flees(uint64_t drawn, const Best& best, Deed& deed) {
    const int32_t side = lives.state.last_jump > 0;
    const int64_t limit = lives.state.limit - origin, last = side ? limit - 1 : levels - 2 - limit;  // place of the worst that does
    const int32_t nearest = book.best.of(side);
    if (nearest == kNoPlace || nearest > last) return lives.state.left = 0, false;
    if (lives.orders.of(side) == 1) return true;
    const int32_t place = field(drawn, 62, 1) == 0 ? nearest : worst_place_upto(side, last < levels ? (int32_t)last : levels - 1);
    const int32_t tick = book.flip(place, side), some = lives.count(tick, kFleeting), all = some + lives.count(tick, kLasting);
    const int32_t life = (field(drawn, 32, 16) * all) >> 16 < some ? kFleeting : kLasting;
    deed = {kGoes, side, tick, life, (int32_t)field(drawn, 48, 4), field(drawn, 0, 16) < lives.table->jump_traded};
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

  // Returns false if the market has to stop. Mostly all weights together have 32 bits.
  KS_ON_LANE bool choose(const Words& words, const Best& best, Deed& deed) {
    const int64_t larger = max_of(lives.weight.at[0], lives.weight.at[1]);
    if (larger >= kMostWeight) return false;
    if (larger >> 30) choose_among<uint64_t>(words, best, deed);
    else choose_among<uint32_t>(words, best, deed);
    return true;
  }
  template <typename T>
  KS_ON_LANE void choose_among(const Words& words, const Best& best, Deed& deed) {
    const FlowNumbers& table = *lives.table;
    const uint64_t drawn = words.at[kOrderWord];
    const int32_t spread = spread_class(best.at[1] - best.at[0]);
    const T market = (T)table.market, bids = (T)table.limit_upto[0][spread][kFlowBands - 1], asks = (T)table.limit_upto[1][spread][kFlowBands - 1];
    const T of_bids = (T)lives.weight.at[0], total = market + bids + asks + of_bids + (T)lives.weight.at[1];
    T r = (T)share_of(words.at[kChoiceWord], total);
    if (total == 0) return;
    if (r < market) {
      int32_t& way = lives.state.last_trade;
      if (field(drawn, 0, 16) >= table.market_same) way = -way;
      deed = {kTrades, way > 0, 0, 0, (int32_t)field(drawn, 16, 4), false};
      return;
    }
    r -= market;
    if (r < bids + asks) {
      const int32_t side = r >= bids;
      return choose_tick(side, (int32_t)(side ? r - bids : r), drawn, best, spread, deed);
    }
    r -= bids + asks;
    const int32_t side = r >= of_bids;
    if (lives.orders.of(side) == 1) return;
    deed = {kNothing, side, 0, 0, (int32_t)field(drawn, 36, 4), false};
    find_order<T>(side, side ? r - of_bids : r, best, deed);
  }
  // Where a limit order comes, if that is on the grid.
  KS_ON_LANE void choose_tick(int32_t side, int32_t r, uint64_t drawn, const Best& best, int32_t spread, Deed& deed) const {
    const FlowNumbers& table = *lives.table;
    const int32_t band = passed(table.limit_upto[side][spread], kFlowBands - 1, r);
    const int32_t begins = band_begins(band), width = band_begins(band + 1) - begins;
    const int32_t away = begins + ((int32_t)field(drawn, 0, 16) * width >> 16);
    const int32_t tick = side ? best.at[0] + away : best.at[1] - away;
    const int32_t life = field(drawn, 16, 16) < table.fleeting[band] ? kFleeting : kLasting;
    if (tick >= 0 && tick < levels) deed = {kComes, side, tick, life, (int32_t)field(drawn, 32, 4), false};
  }
  // The order of a side that r falls into: lanes look at a tick each, or together at a block's, from the best one away from the
  // mid, or from the block on that sums of 32 bits say. T holds all weights.
  template <typename T>
  KS_ON_LANE void find_order(int32_t side, T r, const Best& best, Deed& deed) const {
    using Lives = FlowLives<Width>;
    constexpr int kEach = Lanes::kLanes == 1 || Lanes::kLanes >= kFlowBlock ? 1 : kFlowBlock / Lanes::kLanes, kParts = 2 * kEach;
    int32_t first = book.best.of(side);
    if constexpr (Lives::kSums && sizeof(T) == 4) {
      const int32_t blocks = levels / kFlowBlock;
      int32_t block = first / kFlowBlock;
      const uint32_t* sum = &lives.sums[side * blocks + block];
#pragma unroll 1
      for (; block < blocks - 1 && r >= *sum; ++block, sum += Width::kMarkets) r -= *sum;
      first = max_of(first, kFlowBlock * block);  // before the best one are orders of the other side
    }
#pragma unroll 1
    for (; first < levels; first += kEach * Lanes::kLanes) {
      T part[kParts], all = 0;  // by tick and life
      for (int i = 0; i < kParts; i += 2) {
        const int32_t place = first + kEach * Lanes::lane() + i / 2, tick = book.flip(min_of(place, levels - 1), side);
        const int32_t band = band_of(best.distance(tick, side));
        const uint32_t both = place < levels ? lives.counts[tick] : 0;
        for (int life = 0; life < 2; ++life) part[i + life] = lives.template weight_of<T>(both, life, band), all += part[i + life];
      }
      const unsigned here = Lanes::mask();
      const T upto = Lanes::sum_upto(all, here), together = Lanes::from(Lanes::kLanes - 1, upto, here);
      const unsigned falls = Lanes::ballot(r < upto, here);
      int32_t number = 0;  // of the part, if it is one of this lane
      for (int i = 0; i < kParts - 1; ++i) {
        number += r - (upto - all) >= part[i];
        part[i + 1] += part[i];
      }
      const int lane = falls != 0 ? lowest_bit(falls) : 0;
      number = Lanes::from(lane, number, here);
      if (falls != 0) {
        deed.kind = kGoes, deed.tick = book.flip(first + kEach * lane + number / 2, side), deed.life = number % 2;
        return;
      }
      r -= together;
    }
  }

  // Returns false if the market has to stop.
  KS_ON_LANE bool take_deed(uint32_t e, const Deed& deed, const Best& best) {
    const FlowNumbers& table = *lives.table;
    const int32_t side = deed.side, tick = deed.tick, life = deed.life;
    int32_t units;
    if (deed.kind == kTrades) {
      units = (int32_t)table.market_size[deed.number];
    } else {
      const int32_t band = band_of(best.distance(tick, side)), group = group_of(band);
      const int64_t* const sizes = table.limit_size[side][life][group];
      const int32_t n = lives.count(tick, life), some = lives.fleeting[tick];
      const bool comes = deed.kind == kComes;
      if (comes && n >= kMostOfALife) return true;
      units = comes ? (int32_t)sizes[deed.number]
                    : (int32_t)units_that_go(sizes, table.size_sum[side][life][group], deed.number, n,
                                             life == kFleeting ? some : book.resting(tick, side) - some);
      if (!deed.taken) {
        if (kSlots && !comes) lose_places(e, side, tick, units);
        const int32_t weight = (int32_t)table.cancel[life][band], more = comes ? weight : -weight;
        change_order(side, tick, life, comes ? 1 : -1, comes ? units : -units, more);
        lives.weight.set(side, lives.weight.of(side) + more);
        lives.orders.set(side, lives.orders.of(side) + (comes ? 1 : -1));
        return !comes || !checks_overflow || has_room(side, 0);
      }
    }
    trade(side, units);
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
};

}  // namespace ks
