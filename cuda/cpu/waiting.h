// waiting.h: orders of a call auction on the clock that come between two beats, on one core: they are put into rows in a loop
// that compilers vectorise, and then wait together. Included by cpu/events.h.
#pragma once

#include <cstring>
#include <type_traits>

#include "events/call.cuh"

namespace ks {

struct WaitingOrders {
  static constexpr int kEvents = 256;  // whose orders wait together, at most
  static constexpr int kRoom = kEvents + kPadding;
  static constexpr int kTicksPerOrder = 16;  // on a longer stretch orders mark their ticks one by one
  static_assert(kEvents % kPadding == 0);
  alignas(64) int32_t side[kRoom], tick[kRoom], quantity[kRoom], marketable[kRoom];

  // `count` orders wait: order_of(i, plain) has their sides, ticks of the grid and units. `plain` is a true_type where no lever
  // but the rounding is on, else a false_type. Returns false if the market has to stop.
  template <typename Market, typename Order>
  bool wait(Market& market, int count, const Order& order_of) {
    int32_t* const buys = market.waiting[0].at;
    const int32_t sells = (int32_t)(market.waiting[1].at - buys);  // behind them, in one piece of memory; a power of two
    const AgentSums sums = market.pricing.is_plain()
        ? fill(count, sells, [&](int i) { return order_of(i, std::true_type()); })
        : fill(count, sells, [&](int i) { return order_of(i, std::false_type()); });
    for (int i = 0; i < count; ++i) buys[tick[i]] += quantity[i];
    if (!marks_later(market, sums, count))
      for (int i = 0; i < count; ++i) occupy(market, tick[i] & (sells - 1), quantity[i]);
    market.marketable[0] += sums.units_far - sums.sold_far, market.marketable[1] += sums.sold_far;
    if (!market.checks_overflow) return true;
    market.total[0] += sums.units - sums.sold, market.total[1] += sums.sold;
    return !market.is_full(0) && !market.is_full(1);
  }

  // After the last of them: mark the ticks where orders wait that are not marked yet.
  template <typename Market>
  void end(Market& market) const {
    for (int32_t w = low / kWordBits; w <= high / kWordBits; ++w)
      market.occupied[w] |= occupied_bits(market.waiting[0].at + w * kWordBits, market.waiting[1].at + w * kWordBits);
  }

 private:
  int32_t low = kNoTick, high = -1;

  // Put orders into rows: in `tick` their places in both sides' memory. Returns what they come to.
  template <typename Order>
  AgentSums fill(int count, int32_t sells, const Order& order_at) {
    AgentSums sums = {kNoTick, -1, 0, 0, 0, 0};
    const int padded = (count + kPadding - 1) & -kPadding;
    KS_INDEPENDENT_LOOP
    for (int i = 0; i < padded; ++i) {
      const AgentOrder order = order_at(i);
      const int32_t sold = -order.side, units = order.quantity & -(int32_t)(i < count);
      const int32_t far = units & -(int32_t)(order.marketable != 0), near = -(int32_t)(units != far);  // 0, or all bits
      tick[i] = order.tick + (sells & sold), quantity[i] = units;
      sums.units += units, sums.sold += units & sold;
      sums.units_far += far, sums.sold_far += far & sold;
      sums.low = min_of(sums.low, (order.tick & near) | (kNoTick & ~near)), sums.high = max_of(sums.high, order.tick | ~near);
    }
    return sums;
  }

  // Marks have to wait for each other, so where orders are close together they are made later, of whole words.
  template <typename Market>
  bool marks_later(Market& market, const AgentSums& sums, int count) {
    const int32_t from = min_of(low, sums.low), to = max_of(high, sums.high);
    if (sums.low <= sums.high && to - from >= kTicksPerOrder * count) return false;
    low = from, high = to;
    occupy(market, market.pricing.marketable(0), sums.units_far - sums.sold_far);
    occupy(market, market.pricing.marketable(1), sums.sold_far);
    return true;
  }
  template <typename Market>
  static void occupy(Market& market, int32_t at, int32_t units) {
    market.occupied[at / kWordBits] |= (OccupiedBits)(units > 0) << (at % kWordBits);
  }

  // Bit i: something waits at the i-th of a word's ticks, on either side.
  static OccupiedBits occupied_bits(const int32_t* buys, const int32_t* sells) {
    static_assert(kWordBits == 64 && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
    unsigned char some[kWordBits];
    for (int i = 0; i < kWordBits; ++i) some[i] = (buys[i] | sells[i]) != 0;
    OccupiedBits bits = 0;
    for (int i = 0; i < kWordBits; i += 8) {  // the product's highest byte gathers eight bytes' lowest bits
      uint64_t eight;
      std::memcpy(&eight, some + i, sizeof eight);
      bits |= eight * 0x0102040810204080ull >> 56 << i;
    }
    return bits;
  }
};

}  // namespace ks
