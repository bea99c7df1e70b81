// queues.cuh: learned quotes in a market on the clock: where they stand, what is ahead of them, fills and accounts.
#pragma once

#include "events/book.cuh"

namespace ks {

// Of kSlots: none, one, or (2) as many as the launch has. Loops over these that run often or stand in many places are not unrolled,
// as kernels for several slots would take twice as long to compile.
template <int kSlots>
struct EventSlots {
  static constexpr int kRoom = kSlots < 2 ? 1 : kMaxSlots;
  int count_at_run_time;
  Quote quotes[kRoom];
  Account accounts[kRoom];
  Sides<int32_t> aheads[kRoom];
  Sides<int64_t> moments[kRoom];
  int64_t bought[kRoom], sold[kRoom];
  Sides<int32_t> places[kRoom];  // of standing quotes that take part, or kNoPlace: of several slots' ones,
  Sides<int32_t> best;           // and the best of all
  uint32_t changed;              // a bit for each slot that a lane has changed since lanes shared it

  KS_ON_LANE int count() const { return kSlots < 2 ? kSlots : count_at_run_time; }

  KS_ON_LANE void load(const Launch& launch, int64_t m) {
    count_at_run_time = launch.slots, changed = 0;
    for (int k = 0; k < count(); ++k) {
      const int64_t row = m * launch.slots + k;
      const int32_t* quote = launch.quotes + 4 * row;
      quotes[k] = {quote[0], quote[1], quote[2], quote[3]};
      accounts[k] = {launch.cash[row], launch.inventory[row], launch.fees[row]};
      for (int side = 0; side < 2; ++side) {
        aheads[k].set(side, launch.queue ? launch.queue[2 * row + side] : 0);
        moments[k].set(side, launch.moments ? launch.moments[2 * row + side] : 0);
      }
    }
    begin_decision();
  }

  // Each of the lanes that share the market stores some slots.
  template <typename Lanes>
  KS_ON_LANE void store(const Launch& launch, int64_t m) const {
    for (int k = first_own<Lanes>(); k < count(); k += step_own<Lanes>()) {
      const int64_t row = m * launch.slots + k;
      int32_t* quote = launch.quotes + 4 * row;
      quote[0] = quotes[k].bid_price, quote[1] = quotes[k].bid_qty;
      quote[2] = quotes[k].ask_price, quote[3] = quotes[k].ask_qty;
      launch.cash[row] = accounts[k].cash;
      launch.inventory[row] = accounts[k].inventory;
      launch.fees[row] = accounts[k].fees;
      for (int side = 0; side < 2; ++side) {
        if (launch.queue) launch.queue[2 * row + side] = aheads[k].of(side);
        if (launch.moments) launch.moments[2 * row + side] = moments[k].of(side);
      }
    }
  }

  // As the first lane of those that share the market has them.
  template <typename Lanes>
  KS_ON_LANE void share() {
    const uint32_t left = kSlots > 1 ? Lanes::from_first(changed) : 1;
    changed = 0;
#pragma unroll 1
    for (int k = 0; k < count(); ++k) {
      if (kSlots > 1 && !(left >> k & 1)) continue;
      Quote& quote = quotes[k];
      quote = {Lanes::from_first(quote.bid_price), Lanes::from_first(quote.bid_qty), Lanes::from_first(quote.ask_price),
               Lanes::from_first(quote.ask_qty)};
      Account& account = accounts[k];
      account = {Lanes::from_first(account.cash), Lanes::from_first(account.inventory), Lanes::from_first(account.fees)};
      for (int side = 0; side < 2; ++side) {
        aheads[k].at[side] = Lanes::from_first(aheads[k].at[side]);
        moments[k].at[side] = Lanes::from_first(moments[k].at[side]);
        set_place(k, side, Lanes::from_first(place(k, side)));
      }
      bought[k] = Lanes::from_first(bought[k]), sold[k] = Lanes::from_first(sold[k]);
    }
    best = {{Lanes::from_first(best.at[0]), Lanes::from_first(best.at[1])}};
  }

  KS_ON_LANE void begin_decision() {
    for (int k = 0; k < count(); ++k) bought[k] = sold[k] = 0;
  }

  KS_ON_LANE void clear(int k, const Account& account) {
    quotes[k] = {0, 0, 0, 0};
    accounts[k] = account;
    aheads[k] = {{0, 0}};
    moments[k] = {{0, 0}};
  }

  // Of several slots each of the lanes that share the market writes some; all write a single one's numbers, which are in registers.
  template <typename Lanes>
  static KS_ON_LANE int first_own() { return kSlots > 1 ? Lanes::lane() : 0; }
  template <typename Lanes>
  static KS_ON_LANE int step_own() { return kSlots > 1 ? Lanes::kLanes : 1; }
  KS_ON_LANE void change(int k) { changed |= 1u << k; }
  // The number of a slot: of a single one, the compiler knows it.
  static KS_ON_LANE int at(int k) { return kSlots < 2 ? 0 : k; }
  KS_ON_LANE int32_t place(int k, int32_t side) const { return kSlots < 2 ? best.of(side) : places[k].of(side); }
  KS_ON_LANE void set_place(int k, int32_t side, int32_t x) {
    if (kSlots < 2) best.set(side, x);
    else if (places[k].of(side) != x) places[k].set(side, x), change(k);
  }
  KS_ON_LANE void find_best(int32_t side) {
    int32_t first = kNoPlace;
#pragma unroll 1
    for (int k = 0; k < count(); ++k) first = min_of(first, place(k, side));
    best.set(side, first);
  }
  KS_ON_LANE int32_t ahead(int k, int32_t side) const { return aheads[at(k)].of(side); }
  KS_ON_LANE void set_ahead(int k, int32_t side, int32_t x) { aheads[at(k)].set(side, x), change(k); }
  KS_ON_LANE void set_moment(int k, int32_t side, int64_t x) { moments[at(k)].set(side, x), change(k); }
  KS_ON_LANE int32_t price(int k, int32_t side) const { return side ? quotes[at(k)].ask_price : quotes[at(k)].bid_price; }
  KS_ON_LANE int32_t quantity(int k, int32_t side) const { return side ? quotes[at(k)].ask_qty : quotes[at(k)].bid_qty; }
  KS_ON_LANE void set_price(int k, int32_t side, int32_t price) {
    Quote& quote = quotes[at(k)];
    quote.bid_price = side ? quote.bid_price : price;
    quote.ask_price = side ? price : quote.ask_price;
    change(k);
  }
  KS_ON_LANE void set_quantity(int k, int32_t side, int32_t quantity) {
    Quote& quote = quotes[at(k)];
    quote.bid_qty = side ? quote.bid_qty : quantity;
    quote.ask_qty = side ? quantity : quote.ask_qty;
    change(k);
    if (quantity == 0) set_ahead(k, side, 0), set_moment(k, side, 0), set_place(k, side, kNoPlace);
  }

  // Slot k has bought or sold at an absolute price.
  KS_ON_LANE void fill(int k, int32_t side, int64_t price, int64_t units, int64_t fee) {
    Account& account = accounts[at(k)];
    account.cash += side ? price * units : -price * units;
    account.inventory += side ? -units : units;
    account.fees += fee * units;
    bought[at(k)] += side ? 0 : units;
    sold[at(k)] += side ? units : 0;
    change(k);
  }

  // Which of the quotes at a place is next: that with the least ahead, or the earliest of several; -1: there is none.
  KS_ON_LANE int first_at(int32_t here, int32_t side) const {
    int first = -1;
#pragma unroll 1
    for (int k = 0; k < count(); ++k) {
      if (place(k, side) != here) continue;
      const int32_t mine = ahead(k, side), least = first < 0 ? 0 : ahead(first, side);
      const bool before = first < 0 || mine < least ||
                          (mine == least && moments[at(k)].of(side) < moments[at(first)].of(side));
      if (before) first = k;
    }
    return first;
  }
};

}  // namespace ks
