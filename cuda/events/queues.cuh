// queues.cuh: learned quotes in a market on the clock: where they stand, what is ahead of them, fills and accounts.
#pragma once

#include "events/book.cuh"

namespace ks {

constexpr int kLadders = 3;  // as a kSlots

// How many slots have ladders, and of how many levels each, where a kernel is compiled for just these (kineticsim_env/engines/cuda.py):
// accounts are in registers then, and quotes take no more memory than there are. 0: as the launch says.
#ifndef KS_LADDERS
#define KS_LADDERS 0
#define KS_LEVELS_OF_LADDERS 0
#endif

// Where the numbers of slots and of their quotes are, by number. Of several slots that is no part of the market: what a lane has of a
// market is in registers, but none of an object in which numbers are found by an index is.
template <int kSlots>
struct SlotRoom {
  static constexpr bool kHasLadders = kSlots == kLadders, kKnown = kHasLadders && KS_LADDERS > 0;
  static constexpr int kRoom = kSlots < 2 ? 1 : kKnown ? KS_LADDERS : kMaxSlots;
  // Levels of all slots together.
  static constexpr int kOrderRoom = !kHasLadders ? kRoom : kKnown ? KS_LADDERS * KS_LEVELS_OF_LADDERS : kMaxOrders;
  static constexpr int kQuoteRoom = kHasLadders ? 2 * kOrderRoom : kRoom;
  Quote quotes[kQuoteRoom];
  Account accounts[kRoom];
  Sides<int32_t> aheads[kQuoteRoom];
  Sides<int64_t> moments[kQuoteRoom];
  int64_t bought[kRoom], sold[kRoom];
  Sides<int32_t> places[kQuoteRoom];  // of standing quotes that take part, or kNoPlace: of several ones
};
// There, or here, of one slot or none.
template <int kSlots>
struct SlotNumbers {
  Quote* const quotes;
  Account* const accounts;
  Sides<int32_t>* const aheads;
  Sides<int64_t>* const moments;
  int64_t *const bought, *const sold;
  Sides<int32_t>* const places;
  KS_ON_LANE explicit SlotNumbers(SlotRoom<kSlots>& room)
      : quotes(room.quotes), accounts(room.accounts), aheads(room.aheads), moments(room.moments), bought(room.bought),
        sold(room.sold), places(room.places) {}
};
template <>
struct SlotNumbers<0> : SlotRoom<0> {
  KS_ON_LANE explicit SlotNumbers(SlotRoom<0>&) {}
};
template <>
struct SlotNumbers<1> : SlotRoom<1> {
  KS_ON_LANE explicit SlotNumbers(SlotRoom<1>&) {}
};

// Of kSlots: none, one, or (2) as many as the launch has, each with one quote; or (kLadders) as many with a ladder each, of whose levels
// each has a quote for each of its two places: quote number j is of slot_of(j). Loops over these that run often or stand in many
// places are not unrolled, as kernels for several slots would take twice as long to compile.
template <int kSlots>
struct EventSlots : SlotNumbers<kSlots> {
  using Room = SlotRoom<kSlots>;
  using SlotNumbers<kSlots>::quotes, SlotNumbers<kSlots>::accounts, SlotNumbers<kSlots>::aheads, SlotNumbers<kSlots>::moments,
      SlotNumbers<kSlots>::bought, SlotNumbers<kSlots>::sold, SlotNumbers<kSlots>::places;
  static constexpr bool kHasLadders = Room::kHasLadders, kKnown = Room::kKnown;
  static constexpr int kRoom = Room::kRoom, kOrderRoom = Room::kOrderRoom, kQuoteRoom = Room::kQuoteRoom;
  // Of few quotes all are looked at at once, or each would wait for the memory of the one before it.
  static constexpr int kAtOnce = kKnown && kOrderRoom <= 4 ? kQuoteRoom : 1;
  int count_at_run_time, levels_at_run_time;
  Sides<int32_t> best;  // the best place of all quotes
  uint32_t changed;     // a bit for each slot that a lane has changed since lanes shared it

  KS_ON_LANE explicit EventSlots(Room& room) : SlotNumbers<kSlots>(room) {}

  KS_ON_LANE int count() const { return kSlots < 2 ? kSlots : kKnown ? KS_LADDERS : count_at_run_time; }
  KS_ON_LANE int levels() const { return kSlots != kLadders ? 1 : kKnown ? KS_LEVELS_OF_LADDERS : levels_at_run_time; }
  KS_ON_LANE int per_slot() const { return kSlots == kLadders ? 2 * levels() : 1; }
  KS_ON_LANE int quote_count() const { return count() * per_slot(); }
  KS_ON_LANE int slot_of(int j) const { return kSlots != kLadders ? j : kRoom == 1 ? 0 : j / per_slot(); }

  template <typename Each>
  KS_ON_LANE void each_quote_of(int k, const Each& each) const {
    if constexpr (kSlots == kLadders) {
#pragma unroll 1
      for (int j = k * per_slot(); j < (k + 1) * per_slot(); ++j) each(j);
    } else {
      each(at(k));
    }
  }

  KS_ON_LANE void load(const Launch& launch, int64_t m) {
    count_at_run_time = launch.slots, levels_at_run_time = launch.orders_per_side, changed = 0;
    for (int k = 0; k < count(); ++k) {
      const int64_t row = m * launch.slots + k;
      accounts[k] = {launch.cash[row], launch.inventory[row], launch.fees[row]};
    }
    for (int j = 0; j < quote_count(); ++j) {
      const int64_t row = m * quote_count() + j;
      const Four quote = four_at(launch.quotes + 4 * row);
      quotes[j] = {quote.a, quote.b, quote.c, quote.d};
      if (kSlots > 1) places[j] = {{kNoPlace, kNoPlace}};
      aheads[j] = launch.queue ? pair_at(launch.queue + 2 * row) : Sides<int32_t>{{0, 0}};
      moments[j] = launch.moments ? pair_at(launch.moments + 2 * row) : Sides<int64_t>{{0, 0}};
    }
    begin_decision();
  }

  // Each of the lanes that share the market stores some slots.
  template <typename Lanes>
  KS_ON_LANE void store(const Launch& launch, int64_t m) const {
    for (int k = first_own<Lanes>(); k < count(); k += step_own<Lanes>()) {
      const int64_t row = m * launch.slots + k;
      launch.cash[row] = accounts[k].cash;
      launch.inventory[row] = accounts[k].inventory;
      launch.fees[row] = accounts[k].fees;
      each_quote_of(k, [&](int j) { store_quote(launch, m * quote_count() + j, j); });
    }
  }
  KS_ON_LANE void store_quote(const Launch& launch, int64_t row, int j) const {
    put_four(launch.quotes + 4 * row, quotes[j].bid_price, quotes[j].bid_qty, quotes[j].ask_price, quotes[j].ask_qty);
    if (launch.queue) put_pair(launch.queue + 2 * row, aheads[j]);
    if (launch.moments) put_pair(launch.moments + 2 * row, moments[j]);
  }

  // As the first lane of those that share the market has them.
  template <typename Lanes>
  KS_ON_LANE void share() {
    const uint32_t left = kSlots > 1 ? Lanes::from_first(changed) : 1;
    changed = 0;
#pragma unroll 1
    for (int k = 0; k < count(); ++k) {
      if (kSlots > 1 && !(left >> k & 1)) continue;
      each_quote_of(k, [&](int j) { share_quote<Lanes>(j); });
      Account& account = accounts[k];
      account = {Lanes::from_first(account.cash), Lanes::from_first(account.inventory), Lanes::from_first(account.fees)};
      bought[k] = Lanes::from_first(bought[k]), sold[k] = Lanes::from_first(sold[k]);
    }
    best = {{Lanes::from_first(best.at[0]), Lanes::from_first(best.at[1])}};
  }
  template <typename Lanes>
  KS_ON_LANE void share_quote(int j) {
    Quote& quote = quotes[j];
    quote = {Lanes::from_first(quote.bid_price), Lanes::from_first(quote.bid_qty), Lanes::from_first(quote.ask_price),
             Lanes::from_first(quote.ask_qty)};
    for (int side = 0; side < 2; ++side) {
      aheads[j].at[side] = Lanes::from_first(aheads[j].at[side]);
      moments[j].at[side] = Lanes::from_first(moments[j].at[side]);
      set_place(j, side, Lanes::from_first(place(j, side)));
    }
  }

  KS_ON_LANE void begin_decision() {
    for (int k = 0; k < count(); ++k) bought[k] = sold[k] = 0;
  }

  KS_ON_LANE void clear(int k, const Account& account) {
    accounts[k] = account;
    each_quote_of(k, [&](int j) { quotes[j] = {0, 0, 0, 0}, aheads[j] = {{0, 0}}, moments[j] = {{0, 0}}; });
  }

  // Of several slots each of the lanes that share the market writes some; all write a single one's numbers, which are in registers.
  template <typename Lanes>
  static KS_ON_LANE int first_own() { return kSlots > 1 ? Lanes::lane() : 0; }
  template <typename Lanes>
  static KS_ON_LANE int step_own() { return kSlots > 1 ? Lanes::kLanes : 1; }
  // Of level n of slot k's ladder the quote that is first on a side, of those that hold anything.
  KS_ON_LANE int first_of(int k, int n, int32_t side) const {
    const int first = k * per_slot() + 2 * n;
    return kHasLadders && quantity(first, side) == 0 ? first + 1 : first;
  }
  // What stands of that level, as one quote: at the prices of these, with the quantities of both places.
  KS_ON_LANE Quote level(int k, int n) const {
    const Quote &one = quotes[k * per_slot() + 2 * n], &other = quotes[k * per_slot() + 2 * n + 1];
    return {price(first_of(k, n, 0), 0), one.bid_qty + other.bid_qty, price(first_of(k, n, 1), 1), one.ask_qty + other.ask_qty};
  }
  KS_ON_LANE void change(int k) { changed |= 1u << k; }
  KS_ON_LANE void change_quote(int j) { change(slot_of(j)); }
  // The number of a quote, or of a slot: of a single one, the compiler knows it.
  static KS_ON_LANE int at(int j) { return kSlots < 2 ? 0 : j; }
  static KS_ON_LANE int slot_at(int k) { return kRoom == 1 ? 0 : k; }
  KS_ON_LANE int32_t place(int j, int32_t side) const { return kSlots < 2 ? best.of(side) : one_of(places[j], side); }
  KS_ON_LANE void set_place(int j, int32_t side, int32_t x) {
    if (kSlots < 2) best.set(side, x);
    else if (place(j, side) != x) set_one(places[j], side, x), change_quote(j);
  }
  KS_ON_LANE void find_best(int32_t side) {
    int32_t first = kNoPlace;
#pragma unroll kAtOnce
    for (int j = 0; j < quote_count(); ++j) first = min_of(first, place(j, side));
    best.set(side, first);
  }
  // One of two numbers. Those of several slots are in memory, where one is written and not both; see Sides.
  template <typename T>
  static KS_ON_LANE T one_of(const T& bid, const T& ask, int32_t side) {
    return kSlots > 1 ? *(side ? &ask : &bid) : side ? ask : bid;
  }
  template <typename T>
  static KS_ON_LANE void set_one(T& bid, T& ask, int32_t side, T x) {
    if (kSlots > 1) *(side ? &ask : &bid) = x;
    else bid = side ? bid : x, ask = side ? x : ask;
  }
  template <typename T>
  static KS_ON_LANE T one_of(const Sides<T>& both, int32_t side) { return one_of(both.at[0], both.at[1], side); }
  template <typename T>
  static KS_ON_LANE void set_one(Sides<T>& both, int32_t side, T x) { set_one(both.at[0], both.at[1], side, x); }

  KS_ON_LANE int32_t ahead(int j, int32_t side) const { return one_of(aheads[at(j)], side); }
  KS_ON_LANE void set_ahead(int j, int32_t side, int32_t x) { set_one(aheads[at(j)], side, x), change_quote(j); }
  KS_ON_LANE int64_t moment(int j, int32_t side) const { return one_of(moments[at(j)], side); }
  KS_ON_LANE void set_moment(int j, int32_t side, int64_t x) { set_one(moments[at(j)], side, x), change_quote(j); }
  KS_ON_LANE int32_t price(int j, int32_t side) const { return one_of(quotes[at(j)].bid_price, quotes[at(j)].ask_price, side); }
  KS_ON_LANE int32_t quantity(int j, int32_t side) const { return one_of(quotes[at(j)].bid_qty, quotes[at(j)].ask_qty, side); }
  KS_ON_LANE void set_price(int j, int32_t side, int32_t price) {
    set_one(quotes[at(j)].bid_price, quotes[at(j)].ask_price, side, price), change_quote(j);
  }
  KS_ON_LANE void set_quantity(int j, int32_t side, int32_t quantity) {
    set_one(quotes[at(j)].bid_qty, quotes[at(j)].ask_qty, side, quantity), change_quote(j);
    if (quantity == 0) set_ahead(j, side, 0), set_moment(j, side, 0), set_place(j, side, kNoPlace);
  }
  // Quote `from` stands where quote j stood, and j nowhere.
  KS_ON_LANE void take_over(int j, int from, int32_t side) {
    set_price(j, side, price(from, side)), set_quantity(j, side, quantity(from, side));
    set_ahead(j, side, ahead(from, side)), set_moment(j, side, moment(from, side)), set_place(j, side, place(from, side));
    set_quantity(from, side, 0);
  }

  // Slot k has bought or sold at an absolute price.
  KS_ON_LANE void fill(int k, int32_t side, int64_t price, int64_t units, int64_t fee) {
    Account& account = accounts[slot_at(k)];
    account.cash += side ? price * units : -price * units;
    account.inventory += side ? -units : units;
    account.fees += fee * units;
    bought[slot_at(k)] += side ? 0 : units;
    sold[slot_at(k)] += side ? units : 0;
    change(k);
  }

  // Which of the quotes at a place is next: that with the least ahead, or the earliest of several, or of one slot's the first; -1: there is
  // none.
  KS_ON_LANE int first_at(int32_t here, int32_t side) const {
    int first = -1;
    int32_t least = 0;
    int64_t earliest = 0;
#pragma unroll kAtOnce
    for (int j = 0; j < quote_count(); ++j) {
      if (kAtOnce == 1 && place(j, side) != here) continue;
      const int32_t mine = ahead(j, side);
      const int64_t came = moment(j, side);
      const bool before = first < 0 || mine < least || (mine == least && came < earliest);
      if (place(j, side) == here && before) first = j, least = mine, earliest = came;
    }
    return first;
  }
};

}  // namespace ks
