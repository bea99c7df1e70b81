// environment.h: an environment's market on one core, the counterpart of warp/environment.cuh: what model/environment.h asks of a
// market in which every agent comes once per auction.
#pragma once

#include "cpu/market.h"
#include "model/environment.h"

namespace ks {

template <bool kLevers>
struct CoreMarket : Market<kLevers> {
  using Base = Market<kLevers>;
  using Base::accounts, Base::ask, Base::auction, Base::bid, Base::bought, Base::decision, Base::launch, Base::levels,
      Base::m, Base::p, Base::quotes, Base::slots, Base::sold, Base::stopped;

  static constexpr int kRoom = kMaxSlots, kOrderRoom = kRoom;
  static constexpr bool kQueues = false, kHasLadders = false;

  CoreMarket(const Launch& launch, int64_t m, Scratch& scratch) : Base(launch, m, scratch) {}

  int slot_count() const { return slots; }
  const Quote& quote(int k) const { return quotes[k]; }
  const Account& account(int k) const { return accounts[k]; }
  int64_t filled(int k) const { return bought[k] + sold[k]; }
  void clear_slot(int k, const Account& account) {
    quotes[k] = {0, 0, 0, 0};
    accounts[k] = account;
  }

  const int32_t* bids() const { return bid; }
  const int32_t* asks() const { return ask; }
  BestPrices resting_best() const { return {this->best_bid, this->best_ask}; }

  template <int kRow>
  FeatureRows<kRow> feature_rows(bool ended) const {
    return FeatureRows<kRow>::final_of(launch, m * slots, ended);
  }

  template <int kRow>
  FeatureRows<kRow> opening_rows() const {
    return FeatureRows<kRow>::next_of(launch, m * slots);
  }
  static void meet() {}
  static bool leads() { return true; }

  void read_parameters() {
    if constexpr (kLevers) p = launch.params[m];
  }
  bool open_book(int64_t row) {
    std::memcpy(bid, launch.bank_bid + row * levels, levels * sizeof(int32_t));
    std::memcpy(ask, launch.bank_ask + row * levels, levels * sizeof(int32_t));
    return true;
  }
  bool open_book() {
    std::fill(bid, bid + levels, 0);
    std::fill(ask, ask + levels, 0);
    bid[p.init_price - 1] = ask[p.init_price + 1] = p.init_depth;
    return true;
  }
  void opened() { this->measure(); }

  template <typename Records>
  bool go_on(Quote* fresh, const Records&, bool forced, int32_t) {
    if (forced) return auction(fresh);
    for (int k = 0; k < slots; ++k) fresh[k] = apply_pre_trade_limits(fresh[k], accounts[k].inventory, p);
    decision(fresh, 0);
    return !stopped();
  }
  void store_played() const { Base::store(); }
};

template <bool kLevers>
using Environment = ThreadEnvironment<CoreMarket<kLevers>>;

}  // namespace ks
