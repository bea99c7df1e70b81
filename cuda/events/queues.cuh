// queues.cuh: learned quotes in a market on the clock: where they stand, what is ahead of them, fills and accounts.
#pragma once

#include "events/book.cuh"

namespace ks {

// Of kSlots: none, one, or (2) as many as the launch has.
template <int kSlots>
struct EventSlots {
  static constexpr int kRoom = kSlots < 2 ? 1 : kMaxSlots;
  int count_at_run_time;
  Quote quotes[kRoom];
  Account accounts[kRoom];
  int32_t ahead[kRoom][2];
  int64_t moments[kRoom][2];
  int64_t bought[kRoom], sold[kRoom];
  int32_t best[2];  // places of standing quotes that take part, or kNoPlace

  KS_ON_LANE int32_t best_of(int32_t side) const {
#ifdef __CUDA_ARCH__
    return side ? best[1] : best[0];
#else
    return best[side];
#endif
  }

  KS_ON_LANE int count() const { return kSlots < 2 ? kSlots : count_at_run_time; }

  KS_ON_LANE void load(const Launch& launch, int64_t m) {
    count_at_run_time = launch.slots;
    for (int k = 0; k < count(); ++k) {
      const int64_t row = m * launch.slots + k;
      const int32_t* quote = launch.quotes + 4 * row;
      quotes[k] = {quote[0], quote[1], quote[2], quote[3]};
      accounts[k] = {launch.cash[row], launch.inventory[row], launch.fees[row]};
      for (int side = 0; side < 2; ++side) {
        ahead[k][side] = launch.queue ? launch.queue[2 * row + side] : 0;
        moments[k][side] = launch.moments ? launch.moments[2 * row + side] : 0;
      }
    }
    begin_decision();
  }

  KS_ON_LANE void store(const Launch& launch, int64_t m) const {
    for (int k = 0; k < count(); ++k) {
      const int64_t row = m * launch.slots + k;
      int32_t* quote = launch.quotes + 4 * row;
      quote[0] = quotes[k].bid_price, quote[1] = quotes[k].bid_qty;
      quote[2] = quotes[k].ask_price, quote[3] = quotes[k].ask_qty;
      launch.cash[row] = accounts[k].cash;
      launch.inventory[row] = accounts[k].inventory;
      launch.fees[row] = accounts[k].fees;
      for (int side = 0; side < 2; ++side) {
        if (launch.queue) launch.queue[2 * row + side] = ahead[k][side];
        if (launch.moments) launch.moments[2 * row + side] = moments[k][side];
      }
    }
  }

  KS_ON_LANE void begin_decision() {
    for (int k = 0; k < count(); ++k) bought[k] = sold[k] = 0;
  }

  KS_ON_LANE void clear(int k) {
    quotes[k] = {0, 0, 0, 0};
    accounts[k] = {0, 0, 0};
    for (int side = 0; side < 2; ++side) ahead[k][side] = 0, moments[k][side] = 0;
  }

  KS_ON_LANE int32_t price(int k, int32_t side) const { return side ? quotes[k].ask_price : quotes[k].bid_price; }
  KS_ON_LANE int32_t quantity(int k, int32_t side) const { return side ? quotes[k].ask_qty : quotes[k].bid_qty; }
  KS_ON_LANE void set_price(int k, int32_t side, int32_t price) {
    if (side) quotes[k].ask_price = price;
    else quotes[k].bid_price = price;
  }
  KS_ON_LANE void set_quantity(int k, int32_t side, int32_t quantity) {
    if (side) quotes[k].ask_qty = quantity;
    else quotes[k].bid_qty = quantity;
    if (quantity == 0) ahead[k][side] = 0, moments[k][side] = 0;
  }

  // Slot k has bought or sold at an absolute price.
  KS_ON_LANE void fill(int k, int32_t side, int64_t price, int64_t units, int64_t fee) {
    accounts[k].cash += side ? price * units : -price * units;
    accounts[k].inventory += side ? -units : units;
    accounts[k].fees += fee * units;
    if (side) sold[k] += units;
    else bought[k] += units;
  }

  // Which of the quotes at a place is next: that with the least ahead, or the earliest of several; -1: there is none.
  template <typename Place>
  KS_ON_LANE int first_at(int32_t here, int32_t side, const Place& place) const {
    int first = -1;
    for (int k = 0; k < count(); ++k) {
      if (place(k, side) != here) continue;
      const bool before = first < 0 || ahead[k][side] < ahead[first][side] ||
                          (ahead[k][side] == ahead[first][side] && moments[k][side] < moments[first][side]);
      if (before) first = k;
    }
    return first;
  }
};

}  // namespace ks
