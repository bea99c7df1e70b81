// market.cuh: a market on the clock: its state, what agents see, what a beat does to it, and how far a launch may go before
// a market has to stop. continuous.cuh and, for cores alone, cpu/call.h say what events are in either mechanism.
//
// A market is sequential, so it belongs to one core, or to one lane of a GPU: the same source, as in cuda/lane/.
#pragma once

#include "events/arrivals.cuh"
#include "events/lives.cuh"
#include "events/queues.cuh"
#include "model/auction.h"
#include "model/compiled_in.cuh"

namespace ks {

// Where the numbers of a market are that need indices: see EventBook.
template <int kSlots, typename Width>
struct EventMemory {
  typename Width::Cell* row;
  OccupiedBits* bits;
  typename Width::Drawn* drawn;  // of kDrawn events (continuous.cuh), on a GPU under continuous trading
  SlotRoom<kSlots>* slots;
  LivesMemory lives;             // of an order flow
};

struct DecisionBegin {
  uint64_t at, interval, latency;
};

template <bool kContinuous, int kSlots, typename Width>
struct EventMarket : MarketNumbers {
  using Memory = EventMemory<kSlots, Width>;
  using Room = SlotRoom<kSlots>;

  const Launch& launch;
  const int64_t m;
  MarketParams p;
  const int levels;
  EventBook<Width> book;
  FlowLives<Width> lives;
  EventSlots<kSlots> slots;
  RegimeParams now;
  Pricing pricing;
  int32_t regime, ret, beat_price;
  int64_t volume, trades;
  uint64_t g, next_beat;   // the next event, and that before which the next beat comes
  int64_t beat;            // that one's number
  int64_t bound, growth;   // no side of the book holds more; what an interval's orders can add to it
  bool checks_overflow;            // this interval may have to stop; never with cells of 16 bits

  const Column<typename Width::Drawn, Width> drawn;  // the next events, of which none has been matched
  using Lanes = typename Width::Lanes;  // those that share this market

  static constexpr bool kMayFlow = KS_FLOW != 0 && kContinuous;  // whether orders may be those of a fitted flow
  static constexpr bool kNarrow = sizeof(typename Width::Cell) == 2;
  static constexpr int64_t kNarrowMost = 1 << 15;

  KS_ON_LANE EventMarket(const Launch& launch, int64_t m, const Memory& memory)
      : launch(launch), m(m), p(with_constants(launch.params[m * launch.params_stride])), levels(KS_LEVELS),
        book(memory.row, memory.bits, KS_LEVELS), lives(launch, p, memory.lives, Lanes::kLanes > 1 ? launch.flow_ticks + m * 2 * KS_LEVELS : memory.lives.ticks),
        slots(*memory.slots), drawn{memory.drawn} {
    load();
  }

  KS_ON_LANE void load() {
    static_cast<MarketNumbers&>(*this) = numbers_of(launch, m);
    volume = launch.volume[m], trades = launch.trades[m];
    ret = launch.ret ? launch.ret[m] : 0;
    beat_price = launch.beat_price ? launch.beat_price[m] : last_tick + origin;
    regime = launch.regime ? launch.regime[m] : 0;
    bound = book.load_own(launch, m);
    if (kMayFlow) lives.load(launch, m, levels);
    slots.load(launch, m);
    prepare();
  }

  // What follows from the state.
  KS_ON_LANE void prepare() {
    growth = (int64_t)p.levers.interval * largest_order(launch, p);
    if (kMayFlow && lives.plays()) growth = lives.growth(p, levels);
    now = parameters_in_force(p, launch.regimes, regime);
    // Below 2^32, whatever t was made: nothing that counts events wraps then.
    g = kMayFlow && lives.length_of(p) > 0 ? (uint32_t)lives.state.events : (uint32_t)t * (uint32_t)p.levers.interval;
    beat = (int64_t)((g + p.levers.beat - 1) / (uint32_t)p.levers.beat);
    next_beat = (uint64_t)beat * (uint32_t)p.levers.beat;
    set_pricing();
    find_quotes();
  }

  KS_ON_LANE void store() {
    store_numbers(launch, m, *this);
    launch.volume[m] = volume, launch.trades[m] = trades;
    if (launch.ret) launch.ret[m] = ret;
    if (launch.beat_price) launch.beat_price[m] = beat_price;
    if (launch.regime) launch.regime[m] = regime;
    book.store_own(launch, m);
    if (kMayFlow) lives.store(launch, m, levels);
    slots.template store<Lanes>(launch, m);
  }

  KS_ON_LANE bool stopped() const { return market_has_stopped(error); }
  KS_ON_LANE int32_t mark() const { return mark_mid2(book.best_bid(), book.best_ask(), last_tick, origin); }

  // Quotes -----------------------------------------------------------------------------------------------------------

  // The tick of a standing quote that takes part, or -1. In an auction a quote beyond the grid's far end is at that end; in
  // the continuous market it has that price for good.
  KS_ON_LANE int32_t tick_of(int j, int32_t side) const {
    const int32_t tick = slots.price(j, side) - origin;
    if (slots.quantity(j, side) <= 0 || (side ? tick >= levels : tick < 0)) return -1;
    if (kContinuous) return (uint32_t)tick < (uint32_t)levels ? tick : -1;
    return pricing.nearest_multiple(tick);
  }
  KS_ON_LANE void find_quotes() {
    for (int side = 0; side < 2; ++side) {
      slots.best.set(side, kNoPlace);
#pragma unroll 1
      for (int j = 0; j < slots.quote_count(); ++j) find_quote(j, side);
    }
  }

  // Quote j stands now, or no longer.
  KS_ON_LANE void find_quote(int j, int32_t side) {
    const int32_t tick = tick_of(j, side), place = tick >= 0 ? book.flip(tick, side) : kNoPlace;
    slots.set_place(j, side, place);
    slots.best.set(side, min_of(slots.best.of(side), place));
  }

  KS_ON_LANE int64_t quoted(int32_t side) const {
    int64_t sum = 0;
#pragma unroll 1
    for (int j = 0; j < slots.quote_count(); ++j)
      if (tick_of(j, side) >= 0) sum += slots.quantity(j, side);
    return sum;
  }

  // What agents see --------------------------------------------------------------------------------------------------

  // Where a decision began of which `a` intervals have passed, in events, or in nanoseconds where intervals have a length.
  KS_ON_LANE DecisionBegin decision_begin(int64_t a) const {
    const uint64_t latency = (uint32_t)p.levers.quote_latency;
    if (kMayFlow && lives.length_of(p) > 0) {
      const uint64_t length = (uint64_t)lives.length_of(p);
      return {(uint64_t)lives.state.now - (uint64_t)a * length, length, 1000 * latency};
    }
    const uint64_t events = (uint32_t)p.levers.interval;
    return {g - (uint64_t)a * events, events, latency};
  }
  // The best place of a side, quotes included.
  KS_ON_LANE int32_t best(int32_t side) const {
    const int32_t built_in = book.best.of(side);
    return kSlots ? min_of(built_in, slots.best.of(side)) : built_in;
  }
  KS_ON_LANE int32_t mid2() const {
    const int32_t bid = best(0), ask = best(1);
    return max_of(bid, ask) != kNoPlace ? levels - 1 - bid + ask : 2 * last_tick;
  }

  // What agents see that users have added. `touched` and `last`: the book's best prices and the last tick as they are now.
  KS_ON_LANE AgentView view_at(uint64_t event, int32_t mid, const EventBook<Width>& touched, int32_t last) const {
    const Middle around = agents_middle(p, mid, fundamental, origin, pricing.coin);
    AgentView view = view_of(now, *this, around, mid, ret, regime, 0);
    look_again(view, event, mid, around, touched, last, some_see_book(launch));
    return view;
  }
  // What an order before it may have changed.
  KS_ON_LANE void look_again(AgentView& view, uint64_t event, int32_t mid, const Middle& around, const EventBook<Width>& touched,
                             int32_t last, bool sees_book) const {
    view.mid2 = mid + 2 * origin, view.last_price = last + origin, view.t = (int32_t)event;
    view.around = around;
    if (!sees_book) return;
    const Resting bid = best_resting(touched, 0), ask = best_resting(touched, 1);
    view.best_bid = bid.tick >= 0 ? bid.tick + origin : -kNoPrice, view.best_bid_qty = bid.units;
    view.best_ask = ask.tick >= 0 ? ask.tick + origin : kNoPrice, view.best_ask_qty = ask.units;
  }
  struct Resting {
    int32_t tick, units;  // -1 and 0 of an empty side
  };
  KS_ON_LANE Resting best_resting(const EventBook<Width>& touched, int32_t side) const {
    int32_t at = touched.best.of(side);
    if (kSlots) at = min_of(at, slots.best.of(side));
    if (at == kNoPlace) return {-1, 0};
    const int32_t tick = touched.flip(at, side);
    int32_t units = touched.resting(tick, side);
    for (int j = 0; j < slots.quote_count(); ++j) units += tick_of(j, side) == tick ? slots.quantity(j, side) : 0;
    return {tick, units};
  }

  // A beat -----------------------------------------------------------------------------------------------------------

  KS_ON_LANE void set_pricing() {
    // Between beats, the last one's coin; at a beat this is done anew.
    const int64_t b = next_beat == g ? beat : beat - 1;
    const bool tossed = p.levers.rounding == kRoundingCoin;
    const int32_t coin = tossed ? word_coin(random_word(key, b, kWalkWord)) : 0;
    pricing = pricing_of(p, levels, origin, fundamental, grid_tick(beat_price, origin), coin);
  }

  // Move the grid if the mid asks for it. Returns false if the market has to stop.
  KS_ON_LANE bool follow_mid() {
    const int32_t wanted = p.window > 0 ? window_shift(p, mid2(), levels) : 0;
    const bool stops = wanted != 0 && !origin_in_range(origin, wanted);
    const int32_t shift = stops ? 0 : wanted;
    book.shift(shift);
    if (stops) error |= kErrorOrigin;
    if (shift == 0) return !stops;
    origin += shift, last_tick -= shift, prev_mid2 -= 2 * shift;
    set_pricing();
    if (kContinuous) take_quotes_along();
    find_quotes();
    return true;
  }

  // After a shift quotes that could cross later take the price of the grid's end for good.
  KS_ON_LANE void take_quotes_along() {
#pragma unroll 1
    for (int j = 0; j < slots.quote_count(); ++j) {
      for (int side = 0; side < 2; ++side) {
        if (slots.quantity(j, side) <= 0) continue;
        int32_t tick = slots.price(j, side) - origin;
        if (side ? tick < 0 : tick >= levels) {
          tick = side ? pricing.lowest : pricing.highest;
          slots.set_price(j, side, tick + origin);
        }
        const bool on_grid = tick >= 0 && tick < levels;
        slots.set_ahead(j, side, on_grid ? min_of(slots.ahead(j, side), book.resting(tick, side)) : 0);
      }
    }
  }

  KS_ON_LANE void change_regime_and_fundamental(int64_t b) {
    if (p.levers.regimes > 0) {
      regime = regime_at(p, key, b, regime);
      now = parameters_in_force(p, launch.regimes, regime);
    }
    if ((now.walk_threshold | now.jump_threshold) != 0)
      fundamental = walk_fundamental(now, random_word(key, b, kWalkWord), fundamental);
  }

  KS_ON_LANE void take_return() {
    const int32_t mid = mid2();
    ret = (mid > prev_mid2) - (mid < prev_mid2);
    prev_mid2 = mid;
  }

  KS_ON_LANE void pass_beat() {
    beat += 1;
    next_beat += (uint32_t)p.levers.beat;
  }

  // Whether a side stays below `most` in so many intervals.
  KS_ON_LANE bool stays_below(int64_t most, int64_t intervals) {
    if (bound + intervals * growth < most) return true;
    bound = book.larger_total();
    return bound + intervals * growth < most;
  }
  KS_ON_LANE bool is_far() const {
    const int64_t far = 1 << 27;
    return origin > far || origin < -far || last_tick > far || last_tick < -far;
  }

  // Whether so many intervals can be played with cells of 16 bits, and without the market having to stop.
  KS_ON_LANE bool fits(int64_t intervals) {
    return !kNarrow || (is_held() && stays_below(kNarrowMost, intervals) && !is_far());
  }
  // Whether a book that was taken up is whole: its cells could hold it.
  KS_ON_LANE bool is_held() const { return !kNarrow || bound < kNarrowMost; }

  // Whether the market may have to stop in the next interval. It is then stored first, as it stays as it is now.
  KS_ON_LANE void begin_interval() {
    const int64_t quotes = (int64_t)slots.quote_count() * kMaxQuoteQty;  // standing, and as much fresh
    checks_overflow = !kNarrow && (!stays_below(((int64_t)1 << 31) - 2 * quotes, 1) || is_far());
    if (kMayFlow && lives.plays()) checks_overflow |= lives.may_stop(p, levels);
    bound += growth;
    if (checks_overflow) store();
  }
  // It has to stop: of this interval nothing is kept but what its error is.
  KS_ON_LANE void stop() { launch.error[m] |= error; }
};

}  // namespace ks
