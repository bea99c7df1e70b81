// clock.cuh: a call auction on the clock, one market on one warp: how an interval begins, its beats, and the orders of its
// events. All else is as where each agent comes once (market.cuh). docs/model.md says what happens when. Runs, and steps of
// environments (environment.cuh), on a GPU; on a core it is cpu/call.h.
//
// Between two beats nothing that rests changes, so the events of such a stretch are independent of each other: every lane
// draws its own. If no beat comes between an interval's events, which is so by default, their orders go to the bins and to
// the grid as those of all agents do. Else, as cancellation takes from resting and waiting orders together, waiting
// ones have rows of their own until the interval ends, and the whole grid is cleared then.
#pragma once

#include "warp/market.cuh"

namespace ks {

template <int kBins, bool kOptions, int kSlots>
struct ClockMarket : MarketOnChip<kBins, kOptions, kSlots> {
  using Base = MarketOnChip<kBins, kOptions, kSlots>;
  using typename Base::Auction;
  using Base::account, Base::best_ask, Base::best_bid, Base::book_is_stored, Base::buy, Base::error, Base::far_bin,
      Base::fundamental, Base::grid, Base::kBin, Base::key, Base::kLevers, Base::kOneSlot, Base::lane, Base::last_tick,
      Base::launch, Base::leads, Base::levels, Base::m, Base::origin, Base::p, Base::prev_mid2, Base::pricing, Base::quote,
      Base::regime, Base::room, Base::roomy, Base::sell, Base::side, Base::t, Base::trades, Base::volume, Base::words_left;
  using Base::address_on_grid, Base::any_slot, Base::ask_at, Base::best_prices, Base::bid_at, Base::has_slot,
      Base::near_bin, Base::taker_offset;

  static constexpr int kCheckedEvents = 4096;  // whose quantity fits an int32, whatever its orders

  int32_t ret, beat_price;
  int32_t coin_of_beat;
  uint32_t beat;                // number of the next one; see next_number
  int32_t next_beat;            // events from this interval's first to it
  uint64_t beat_words;          // for the walk, of this beat and of later ones: one per lane
  int32_t beats_left;           // that these suffice for
  int32_t far_buys, far_sells;  // marketable orders of this interval
  bool scattered;               // orders wait in rows of their own
  bool checks_overflow;                 // a side may reach 2^31 in this interval

  __device__ __forceinline__ ClockMarket(const Launch& launch, int64_t m, const MarketParams& row, int* book, int* bins)
      : Base(launch, m, row, book, bins) {}

  static __device__ __forceinline__ int shared_ints(const Launch& launch) { return run_ints(KS_LEVELS, true); }

  // A side's orders that wait, in a row before the bins, and the bytes from a row on the grid to it.
  __device__ __forceinline__ int* waiting(int* row) const { return row + (Base::bins - sell) - 2 * grid; }
  __device__ __forceinline__ uint32_t to_waiting() const { return shared_address(Base::bins) - shared_address(sell) - 8 * grid; }

  __device__ __forceinline__ void load() {
    Base::load();
    go_on(launch.ret[m], launch.beat_price[m]);
  }

  // Go on from the market's numbers, book and quotes, which are there.
  __device__ __forceinline__ void go_on(int32_t last_ret, int32_t last_price) {
    ret = last_ret;
    beat_price = last_price;
    const uint32_t first = first_event(), events = (uint32_t)p.levers.beat;
    beat = first / events + (first % events != 0);
    next_beat = (int32_t)(beat * events - first);
    beats_left = 0;
    if (kWithCoin) coin_of_beat = word_coin(random_word(key, (int64_t)beat - 1, kWalkWord));
    for (int tick = 4 * lane; tick < 2 * grid; tick += 4 * kWarpLanes)
      *reinterpret_cast<int4*>(waiting(sell) + tick) = make_int4(0, 0, 0, 0);
    if (has_large_quote()) room = -1, roomy = false;
    __syncwarp();
  }

  // A market that stops is as it was before its interval, which is in memory then.
  __device__ __forceinline__ void store() {
    if (book_is_stored) {
      if (leads()) launch.error[m] = error;
      return;
    }
    Base::store();
    if (leads()) launch.ret[m] = ret, launch.beat_price[m] = beat_price;
  }

  // Random words -------------------------------------------------------------------------------------------------------

  __device__ __forceinline__ uint32_t first_event() const { return (uint32_t)t * (uint32_t)p.levers.interval; }

  // The counter of a word of event or beat `number`, given that of number 0: only its high half differs.
  static __device__ __forceinline__ uint64_t counter_at(uint64_t first, uint32_t number) {
    return (uint64_t)(high_half(first) + number * (uint32_t)kGolden) << 32 | low_half(first);
  }

  // Where beats are as long as intervals, both have one number: a kernel that has this as a constant need not keep two.
  __device__ __forceinline__ bool beats_are_intervals() const { return p.levers.beat == p.levers.interval; }
  __device__ __forceinline__ uint32_t next_number() const { return beats_are_intervals() ? (uint32_t)t : beat; }

  __device__ __forceinline__ uint64_t walk_word() {
    if (beats_left == 0) {
      beat_words = mix64(counter_at(word_counter(key, 0, kWalkWord), next_number() + lane));
      beats_left = kWarpLanes;
    }
    return shuffle(beat_words, kWarpLanes - beats_left--);
  }

  // An interval --------------------------------------------------------------------------------------------------------

  // One interval. Returns false if the market has to stop. Where that may come, keep() first stores it as it is now.
  template <typename Keep>
  __device__ __forceinline__ bool auction(bool has_fresh, const Quote& fresh, const Keep& keep) {
    if (kSlots && words_left == 0) Base::hash_market_words();
    checks_overflow = !roomy && lacks_room();
    if (checks_overflow) keep();
    if (kOptions && !follow_mid()) return false;
    beat_price = last_tick + origin;
    Seen seen = {0, 0, 0};
    if (!take_events(seen)) {
      stop_within();
      return false;
    }
    if (trade<kOptions>(*this, seen, has_fresh, fresh)) return true;
    stop_within();
    return false;
  }

  __device__ __forceinline__ void stop_within() {
    error |= kErrorOverflow;
    book_is_stored = true;
  }

  __device__ __forceinline__ int32_t live_mid2() const {
    const BestPrices best = best_prices();
    return mark_mid2(best.bid, best.ask, last_tick, 0);
  }

  __device__ __forceinline__ bool follow_mid() {
    const int32_t shift = window_shift(p, live_mid2(), levels);
    if (shift == 0) return true;
    if (!origin_in_range(origin, shift)) {
      error |= kErrorOrigin;
      return false;
    }
    Base::shift_grid(shift);
    origin += shift, last_tick -= shift, prev_mid2 -= 2 * shift;
    return true;
  }

  // Beats and orders. `seen` gets the mid after the last event.
  __device__ __forceinline__ bool take_events(Seen& seen) {
    far_buys = far_sells = 0;
    this->outside = 0;
    int32_t from = 0;
    if (beats_are_intervals()) next_beat = 0;
    scattered = checks_overflow || (next_beat == 0 ? p.levers.beat : next_beat) < p.levers.interval;
#pragma unroll 1
    while (true) {
      if (next_beat == from) take_beat(from);
      int32_t until = min_of(p.levers.interval, next_beat);
      if (checks_overflow) until = min_of(until, from + kCheckedEvents);
      seen.mid2 = live_mid2();
      if (!take_stretch(from, until, seen.mid2)) return false;
      from = until;
      if (from == p.levers.interval) break;
    }
    next_beat -= p.levers.interval;
    return true;
  }

  // A beat before an event of this interval, counted from its first.
  __device__ __forceinline__ void take_beat(int32_t event) {
    if (kLevers) {
      const int32_t next = regime_at(p, key, next_number(), regime);
      if (next != regime) Base::take_regime(next);
    }
    const bool may_walk = kOptions && (p.walk_threshold | p.jump_threshold) != 0;
    if (may_walk || (kWithCoin && p.levers.rounding == kRoundingCoin)) {
      const uint64_t word = walk_word();
      if (may_walk) fundamental = walk_fundamental(p, word, fundamental);
      if (kWithCoin) coin_of_beat = word_coin(word);
    } else {
      beats_left = 0;
    }
    if (kOptions && p.cancel_threshold != 0) {
      if (event == 0) Base::cancel(counter_at(word_counter(key, 0, lane), next_number()));
      else cancel_waiting();
    }
    if (event < p.levers.beat) {  // an interval has ended since the last beat
      const int32_t mid2 = live_mid2();
      ret = (mid2 > prev_mid2) - (mid2 < prev_mid2);
      prev_mid2 = mid2;
    }
    beat += 1;
    next_beat += p.levers.beat;
  }

  // The orders of events `from` to `until` of this interval, which all see one mid.
  __device__ __forceinline__ bool take_stretch(int32_t from, int32_t until, int32_t seen_mid2) {
    if (kLevers) Base::price_around(seen_mid2, coin_of_beat);
    const int32_t mid2 = kWithCoin && !kLevers ? rounded_mid2(p, seen_mid2, coin_of_beat) : seen_mid2;
    const uint32_t rows = scattered ? to_waiting() : 0;
    uint32_t buys_before = 0, sells_before = 0;
    if (checks_overflow) buys_before = total(buy), sells_before = total(sell);
    const int32_t value = p.num_fundamental > 0 ? fundamental_direction(fundamental, seen_mid2, origin) : 0;
    Stretch stretch = {mid2, rows, ret, value};
    if constexpr (kAddedClasses > 0) {
      SeenBook book = {0, 0, 0, 0};
      if constexpr (kAddedSeeBook) book = see_book(*this);
      stretch.added = added_view(*this, seen_mid2, ret, coin_of_beat, book);
      stretch.place = Base::added_place(seen_mid2, rows);
    }
    draw(first_event() + from, until - from, stretch);
    int32_t buys, sells;
    Base::price_bins(mid2, buys, sells, rows);
    far_buys = add_within_int32(far_buys, buys), far_sells = add_within_int32(far_sells, sells);
    if (!scattered) return true;
    if (leads()) {
      waiting(buy)[kLevers ? pricing.marketable(0) : levels - 1] += buys;
      waiting(sell)[kLevers ? pricing.marketable(1) : 0] += sells;
    }
    __syncwarp();
    return !checks_overflow || !(is_full(true, buys_before) | is_full(false, sells_before));
  }

  static __device__ __forceinline__ int32_t add_within_int32(int32_t a, int32_t b) {
    const uint32_t sum = (uint32_t)a + (uint32_t)b;
    return (int32_t)(sum < 0x7fffffffu ? sum : 0x7fffffffu);
  }

  // Orders of events -----------------------------------------------------------------------------------------------------

  // What is one for all events of a stretch.
  struct Stretch {
    int32_t mid2;        // that prices are around
    uint32_t rows;       // bytes from the grid to the rows that limit orders go to
    int32_t ret, value;  // directions of momentum and of fundamental agents
    AgentView added;     // what agents see that users have added,
    AddedPlace place;    // and where their orders go
  };

  // `count` events from number `event` on. One word says who comes at two events, an even one and the next: where there are
  // many, a lane takes both of them.
  __device__ __forceinline__ void draw(uint32_t event, int32_t count, const Stretch& stretch) {
    const uint64_t orders = word_counter(key, 0, 0), arriving = word_counter(key, 0, kWhoWord);
#pragma unroll 1
    while (count > 0) {
      if (!kAddedRemember && p.levers.interval >= 2 * kWarpLanes && count >= 2 * kWarpLanes && event % 2 == 0) {
        const uint32_t mine = event + 2 * lane;
        const uint64_t pair = mix64(counter_at(arriving, mine / 2));
        const uint64_t first = mix64(counter_at(orders, mine)), second = mix64(counter_at(orders, mine + 1));
        take_order(first, low_half(pair), 0, stretch, true);
        take_order(second, high_half(pair), 1, stretch, true);
        take_added_order(first, low_half(pair), mine, stretch, true);
        take_added_order(second, high_half(pair), mine + 1, stretch, true);
        event += 2 * kWarpLanes, count -= 2 * kWarpLanes;
      } else {
        const uint32_t mine = event + lane;
        const uint64_t pair = mix64(counter_at(arriving, mine / 2)), word = mix64(counter_at(orders, mine));
        const int32_t taken = min_of(count, kWarpLanes - (int32_t)(event % 2));  // then on from an even event
        const uint32_t drawn = mine % 2 ? high_half(pair) : low_half(pair);
        take_order(word, drawn, mine % 2, stretch, lane < taken);
        take_added_order(word, drawn, mine, stretch, lane < taken);
        event += taken, count -= taken;
      }
    }
    __syncwarp();
  }

  // Where an order at an offset from the mid goes: its bin among the sells, or the offset itself.
  static constexpr uint32_t kBuys = 1u << 31, kStep = kBins > 0 ? kBin : 1;
  __device__ __forceinline__ uint32_t place_of(int32_t offset) const { return kBins > 0 ? near_bin(offset) : offset; }

  // The order of the agent that comes at an event: `drawn` says who, `odd` whether the event's number is odd. Lanes have
  // agents of all classes, so that all is computed for each of them, and what differs is chosen.
  __device__ __forceinline__ void take_order(uint64_t word, uint32_t drawn, uint32_t odd, const Stretch& stretch,
                                             bool comes) {
    const uint32_t agent = (uint32_t)(((uint64_t)drawn * (uint32_t)p.levers.num_agents) >> 32);
    const bool noise = agent < (uint32_t)p.first_momentum;
    const bool values = p.first_fundamental < p.levers.num_agents && agent >= (uint32_t)p.first_fundamental;
    const bool makes = agent >= (uint32_t)p.first_maker && !values;
    uint32_t decides = noise || stretch.ret == 0 ? low_half(word) : stretch.ret > 0 ? kBuys : 0;  // by bit 31
    if (values) decides = stretch.value == 0 ? low_half(word) : stretch.value > 0 ? kBuys : 0;
    if (makes) decides = multiply_add(agent, kBuys, (1 + odd) * kBuys);
    const uint32_t buys = decides >> 31;
    const bool marketable = word_is_marketable(word, p.market_order_threshold) && !makes;
    uint32_t place = multiply_add(buys, 2 * taker_offset() * kStep, place_of(-taker_offset()));
    if (makes) place = multiply_add(buys, -2 * p.maker_half_spread * kStep, place_of(p.maker_half_spread));
    if (noise) place = multiply_add(half_offset_index(high_half(word), p.noise_spread), kStep, place_of(-p.noise_spread));
    uint32_t at;
    if (kBins > 0) {
      at = multiply_add(buys, side, marketable ? far_bin : place);
    } else {
      const uint32_t limit = fixed(address_on_grid(stretch.mid2, buys, place, false) + stretch.rows);
      at = marketable ? address_on_grid(stretch.mid2, buys, 0, true) : limit;
    }
    if (p.num_noise + p.num_momentum + p.num_maker + p.num_fundamental < p.levers.num_agents) comes = comes && is_active(agent);
    if (comes) add_at(at, word_quantity(word, p.max_order_qty));
  }

  // The same where an agent comes that a user has added.
  __device__ __forceinline__ void take_added_order(uint64_t word, uint32_t drawn, uint32_t event, const Stretch& stretch,
                                                   bool comes) {
    if constexpr (kAddedClasses > 0) {
      const int32_t agent = (int32_t)(((uint64_t)drawn * (uint32_t)p.levers.num_agents) >> 32);
      const int32_t who = agent - (p.levers.num_agents - launch.added_agents);
      AgentView view = stretch.added;
      view.t = (int32_t)event;
      const int32_t beyond = take_added(*this, view, comes && who >= 0 ? who : -1, word, stretch.place);
      this->outside = max_of(this->outside, beyond);
    }
  }

  // The last of each class are inactive.
  __device__ __forceinline__ bool is_active(int32_t agent) const {
    return agent < p.num_noise || (agent >= p.first_momentum && agent < p.first_momentum + p.num_momentum) ||
           (agent >= p.first_maker && agent < p.first_maker + p.num_maker) ||
           (agent >= p.first_fundamental && agent < p.first_fundamental + p.num_fundamental);
  }

  // Orders that wait ---------------------------------------------------------------------------------------------------

  // Cancellation takes from what rests and what waits together; the loss comes out of what rests first.
  __device__ __forceinline__ void cancel_waiting() {
    const uint64_t first = counter_at(word_counter(key, 0, kCancelWord), next_number());
    int32_t bid_tick = -1, ask_tick = kNoTick;
    __syncwarp();
#pragma unroll 1
    for (int tick = lane; tick < grid; tick += kWarpLanes) {
      const uint64_t word = mix64(first + (uint64_t)(tick / 2) * kGolden);
      if (cancel_at(buy, tick, word, 0)) bid_tick = tick;
      if (cancel_at(sell, tick, word, 1)) ask_tick = min_of(ask_tick, tick);
    }
    best_bid = warp_max(bid_tick);
    best_ask = warp_min(ask_tick);
    __syncwarp();
  }

  // Returns whether anything still rests at the tick.
  __device__ __forceinline__ bool cancel_at(int* row, int tick, uint64_t word, int32_t of_side) {
    const int32_t resting = row[tick], all = resting + waiting(row)[tick];
    const int32_t loss = all - after_cancel(all, p.cancel_threshold, word, tick, of_side), taken = min_of(loss, resting);
    row[tick] = resting - taken;
    waiting(row)[tick] -= loss - taken;
    return taken < resting;
  }

  __device__ __forceinline__ void join_waiting(int* row) {
#pragma unroll 1
    for (int tick = lane; tick < grid; tick += kWarpLanes) {
      row[tick] += waiting(row)[tick];
      waiting(row)[tick] = 0;
    }
  }

  // What model/auction.h asks for --------------------------------------------------------------------------------------

  __device__ __forceinline__ void look(const Seen&) {}  // those who come at events have
  __device__ __forceinline__ Auction submit_orders(const Seen&, int32_t) {
    Auction auction = Base::empty_auction();
    auction.full = scattered;
    auction.far_buys = far_buys, auction.far_sells = far_sells;
    if (kWithSeries) this->signed_volume = far_buys - far_sells;
    if (!scattered) auction.cleared.above = far_buys, auction.cleared.below = far_sells;
    return auction;
  }

  // Marketable orders that waited are on the grid already.
  __device__ __forceinline__ bool clear(const Seen& seen, Auction& auction) {
    if (checks_overflow && (is_full(true) | is_full(false))) return false;
    if (scattered) {
      join_waiting(buy);
      join_waiting(sell);
      __syncwarp();
      auction.far_buys = auction.far_sells = 0;
    }
    const bool cleared = Base::clear(seen, auction);
    auction.far_buys = far_buys, auction.far_sells = far_sells;
    return cleared;
  }

  // Room -----------------------------------------------------------------------------------------------------------------

  // The most that an interval adds to a side, its standing and its fresh quotes included.
  __device__ __forceinline__ int32_t growth() const {
    const int64_t largest = kLevers && p.levers.regimes > 0 ? 65535 : max_of(p.max_order_qty, launch.largest_added_order);
    const int64_t sum = p.levers.interval * largest + (int64_t)2 * launch.slots * kMaxQuoteQty;
    return sum < 0x7fffffff ? (int32_t)sum : 0x7fffffff;
  }

  // Quotes of a state that was loaded may be larger than any that an engine accepts.
  __device__ __forceinline__ bool has_large_quote() const {
    return kSlots && any_slot(has_slot() && max_of(quote.bid_qty, quote.ask_qty) > kMaxQuoteQty);
  }

  // There may be no more room for this interval. Count it; returns whether it may not suffice, so that orders are counted as
  // they come.
  __device__ __forceinline__ bool lacks_room() {
    room -= growth();
    if (room >= 0) return false;
    Base::count_room(total(buy), total(sell));
    roomy = false;
    const bool lacks = room < growth() || has_large_quote();
    room = lacks ? -1 : room - growth();
    return lacks;
  }

  // What rests and waits on a side.
  __device__ __forceinline__ uint32_t total(int* row) const {
    uint32_t sum = 0;
#pragma unroll 1
    for (int tick = lane; tick < grid; tick += kWarpLanes) sum += (uint32_t)row[tick] + (uint32_t)waiting(row)[tick];
    return (uint32_t)warp_sum((int)sum);
  }

  // The quotes of a side that take part.
  __device__ __forceinline__ int64_t quoted(bool bids) const {
    if (!kSlots) return 0;
    int32_t mine = 0;
    if (has_slot() && bids && bid_at(quote) >= 0) mine = quote.bid_qty;
    if (has_slot() && !bids && ask_at(quote) != kNoTick) mine = quote.ask_qty;
    if (kOneSlot) return mine;
    return warp_sum(mine & 0xffff) + ((int64_t)warp_sum(mine >> 16) << 16);
  }

  // Whether a side's total has reached 2^31; with what it was `before`, only if orders have come to it since.
  __device__ __forceinline__ bool is_full(bool buys, int64_t before = -1) const {
    const uint32_t now = total(buys ? buy : sell);
    const int64_t quotes = quoted(buys);
    return now + quotes >= (int64_t)1 << 31 && now > before;
  }
};

// A call auction's market: on the clock, or one to which each agent comes once.
template <bool kClock, int kBins, bool kOptions, int kSlots>
struct CallMarketOf {
  using type = MarketOnChip<kBins, kOptions, kSlots>;
};
template <int kBins, bool kOptions, int kSlots>
struct CallMarketOf<true, kBins, kOptions, kSlots> {
  using type = ClockMarket<kBins, kOptions, kSlots>;
};

}  // namespace ks
