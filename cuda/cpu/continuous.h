// continuous.h: a stretch of events of continuous trading on one core, where no lever but the rounding is on. Included by
// cpu/events.h; the rules are events/matching.cuh's.
//
// No CPU can predict which side an order is on, whether it crosses, or whether anything is left of it. So each order takes from
// the best place of the other side, be it 0 units, and what is left rests, be it 0 units: only a second place makes a branch.
// Of either side the places around the mid are a word in a register; an order that needs others, or meets a slot's quote, is
// played by events/matching.cuh.
#pragma once

#include "events/continuous.cuh"

namespace ks {

// What of arrivals does not depend on the mid.
struct AimedOrders {
  static constexpr int64_t kFar = 1 << 30;  // ticks that come near have checks_overflow
  int64_t turns[ArrivalBlock::kRoom];     // an order sells at a doubled mid above this one
  int64_t offsets[ArrivalBlock::kRoom];   // of a buy; a sell's is its negative. Far if it is marketable
  int64_t quantities[ArrivalBlock::kRoom];

  // `value2`: the doubled fundamental price. Ticks count from `base`.
  __attribute__((noinline)) void aim(const ArrivalBlock& arrivals, int count, int32_t value2, int32_t base) {
    const int32_t value = clamp_to(value2, -(int32_t)kFar, (int32_t)kFar) - 2 * base;
    for (int i = 0; i < (count + 7) / 8 * 8; ++i) {
      const int32_t sells = arrivals.sells[i];
      turns[i] = choose(arrivals.by_value[i], value - sells, negated(sells, (int32_t)kFar));
      offsets[i] = choose(arrivals.marketable[i], (int32_t)kFar, negated(sells, arrivals.offset[i]));
      quantities[i] = arrivals.quantity[i];
    }
  }
};

// 63 ticks of a book around its mid: tick `base` + u, u from 1 to 62 for orders. Of asks bit u of a word says that something
// rests there, of bids bit 63 - u, so that the lowest bit is the best price of either. Bit 63 is always set, and is no price.
template <typename Width>
struct NearBook {
  static constexpr int64_t kEnd = 63;
  static constexpr uint64_t kEndBit = (uint64_t)1 << kEnd;
  static constexpr int32_t kTicks = 64;
  const EventBook<Width>& book;
  const int32_t base;
  uint64_t bids, asks, kept_bids, kept_asks;

  // Around tick `middle`. The base is even, as rounding asks whether a tick is.
  KS_AT_ONCE NearBook(const EventBook<Width>& book, int32_t middle)
      : book(book), base(clamp_to(middle - kTicks / 2, 0, book.levels - kTicks) & ~1) {
    const uint64_t all_bids = word_at(first_bit(0)), all_asks = word_at(first_bit(1));
    kept_bids = all_bids & kEndBit, kept_asks = all_asks & kEndBit;
    bids = all_bids | kEndBit, asks = all_asks | kEndBit;
  }
  KS_AT_ONCE void store() {
    bids = (bids & ~kEndBit) | kept_bids, asks = (asks & ~kEndBit) | kept_asks;
    put_word(first_bit(0), bids), put_word(first_bit(1), asks);
  }
  // The place of bit 0.
  KS_AT_ONCE int32_t first_place(int32_t side) const { return side ? base : book.levels - kTicks - base; }
  // False if a best price is not here, but beyond bit 0. With quotes, or with nothing on the other side, the mid may be far off it.
  KS_AT_ONCE bool holds_best() const { return book.best.at[0] >= first_place(0) && book.best.at[1] >= first_place(1); }
  KS_AT_ONCE int32_t best(int32_t side) const {
    const uint64_t here = side ? asks : bids;
    return here != 0 ? first_place(side) + lowest_bit(here) : book.next(0, side);
  }

 private:
  KS_AT_ONCE int32_t first_bit(int32_t side) const { return side * book.words * kWordBits + first_place(side) + book.lead; }
  KS_AT_ONCE uint64_t word_at(int32_t at) const {
    const int32_t w = at / kWordBits, shift = at % kWordBits;
    return shift ? book.bits[w] >> shift | book.bits[w + 1] << (kWordBits - shift) : book.bits[w];
  }
  KS_AT_ONCE void put_word(int32_t at, uint64_t word) const {
    const int32_t w = at / kWordBits, shift = at % kWordBits;
    const uint64_t upper = ~(uint64_t)0 << shift;
    book.bits[w] = (book.bits[w] & ~upper) | word << shift;
    if (shift) book.bits[w + 1] = (book.bits[w + 1] & upper) | word >> (kWordBits - shift);
  }
};

// `yes` where the mask has all bits, `no` where it has none.
inline int64_t chosen(int64_t mask, int64_t yes, int64_t no) { return no ^ ((no ^ yes) & mask); }
inline int64_t signed_by(int64_t mask, int64_t x) { return (x ^ mask) - mask; }
inline int64_t if_below_0(int64_t x) { return x >> 63; }

// Marketable orders, of which an empty side is the consequence, do not rest, and may need any place: with many of them branches,
// which are then well predicted, cost less.
template <int kSlots, typename Width>
bool ContinuousMarket<kSlots, Width>::stays_near_mid() const {
  return levels >= NearBook<Width>::kTicks && max_of(now.noise_spread, now.maker_half_spread) <= 24 &&
         now.market_order_threshold <= 1 << 20;
}

template <int kSlots, typename Width>
bool ContinuousMarket<kSlots, Width>::take_near_mid(uint32_t until) {
  const RegimeParams now = this->now;
  const int32_t value2 = fit_int32(2 * ((int64_t)fundamental - origin));
  ArrivalBlock arrivals;
  for (uint32_t e = (uint32_t)g; e != until;) {
    const int count = ArrivalBlock::block(e, until - e), end = count + (int)(e & 1);
    arrivals.draw(p, now, ret, key, e, count, false, 0);
    for (int i = end - count; i < end; ++i) {
      OrderLeft order = {0, 0, 0};
      i = take_near_mid(arrivals, value2, i, end, order);
      if (i < end) take_anywhere(arrivals.at(i - end + count), order);
    }
    e += count;
  }
  return true;
}

// Arrivals from number i on. Returns the number of the first that needs more than what is near the mid, and what is left of its
// order if it has begun.
template <int kSlots, typename Width>
int ContinuousMarket<kSlots, Width>::take_near_mid(const ArrivalBlock& arrivals, int32_t value2, int i, int end,
                                                   OrderLeft& begun) {
  NearBook<Width> near(book, mid2() >> 1);
  if (!near.holds_best()) return i;
  AimedOrders orders;
  orders.aim(arrivals, end, value2, near.base);
  constexpr int64_t kEnd = NearBook<Width>::kEnd;
  const int64_t even = pricing.even, coin = pricing.coin;
  const int64_t quoted_bid = kSlots ? (int64_t)slots.best.at[0] - near.first_place(0) : 0;
  const int64_t quoted_ask = kSlots ? (int64_t)slots.best.at[1] - near.first_place(1) : 0;
  int32_t* const row = book.row.at + near.base;
  int64_t bids = (int64_t)near.bids, asks = (int64_t)near.asks;
  // By whether a turn trades, so that neither is in a register.
  int64_t hit[2] = {0, (int64_t)last_tick - near.base}, traded[2] = {0, 0};
  for (; i < end; ++i) {
    const int64_t bid = lowest_bit((uint64_t)bids), ask = lowest_bit((uint64_t)asks);
    const int64_t seen_bid = kSlots && quoted_bid < bid ? quoted_bid : bid;
    const int64_t seen_ask = kSlots && quoted_ask < ask ? quoted_ask : ask;
    const int64_t mid = kEnd - seen_bid + seen_ask;
    if (__builtin_expect((seen_bid >= kEnd) | (seen_ask >= kEnd), 0)) break;
    const int64_t sells = if_below_0(orders.turns[i] - mid), mirror = sells & kEnd;
    const int64_t below = (mid >> 1) + (mid & coin) + signed_by(sells, orders.offsets[i]), tick = below + (below & mid & even);
    // Places count from bit 0: of the best, and of the worst that the order takes from.
    int64_t at = chosen(sells, kEnd - bid, ask), here = at ^ mirror;
    const int64_t last = tick ^ mirror;
    if (__builtin_expect((uint64_t)(tick - 1) > (uint64_t)(kEnd - 2), 0)) break;
    const int64_t quoted = kSlots ? chosen(sells, quoted_bid, quoted_ask) : 0;
    if (kSlots && __builtin_expect(quoted <= (here < last ? here : last), 0)) break;
    int64_t others = chosen(sells, bids, asks), mine = chosen(sells, asks, bids);
    int64_t left = orders.quantities[i], more;  // more: left, less what is there if it crosses
    do {
      const int64_t crosses = if_below_0(here - last - 1), q = row[at];
      more = left - (((q ^ ~sells) - ~sells) & crosses);
      others &= ~(others & -others & crosses & ~if_below_0(more));
      const int64_t after = more & ~if_below_0(more);
      row[at] = (int32_t)(q + signed_by(sells, left - after));
      const bool trades = after != left;
      hit[trades] = at, traded[trades] += left - after;
      left = after;
      here = lowest_bit((uint64_t)others), at = here ^ mirror;
      if (kSlots && __builtin_expect((left > 0) & (quoted <= (here < last ? here : last)), 0)) {
        begun = {(int32_t)left, (int32_t)tick + near.base, sells != 0};
        more = 0;
        break;
      }
    } while (__builtin_expect((-left & (here - last - 1)) < 0, 0));  // one branch for both
    mine |= (int64_t)1 << (last ^ kEnd) & if_below_0(-more);
    row[tick] += (int32_t)signed_by(sells, more & ~if_below_0(more));
    bids = chosen(sells, others, mine), asks = chosen(sells, mine, others);
    if (kSlots && __builtin_expect(begun.left > 0, 0)) break;
  }
  near.bids = (uint64_t)bids, near.asks = (uint64_t)asks;
  near.store();
  book.best = {{near.best(0), near.best(1)}};
  last_tick = (int32_t)(hit[1] + near.base);
  volume += traded[1];
  return i;
}

// An arrival that needs the whole book, or what is left of its order.
template <int kSlots, typename Width>
__attribute__((noinline)) void ContinuousMarket<kSlots, Width>::take_anywhere(Arrival a, const OrderLeft& begun) {
  Touch touch = touched();
  if (begun.left > 0) {
    this->template take_at<true>(touch, begun.tick, begun.left, 0, begun.sells);
  } else {
    const int32_t mid = mid2_of(touch);
    turn_to_value(a, now.taker_offset, fit_int32(2 * ((int64_t)fundamental - origin)), mid);
    this->template take_order<true>(touch, pricing, a, mid, a.sells);
  }
  put_back(touch);
}

}  // namespace ks
