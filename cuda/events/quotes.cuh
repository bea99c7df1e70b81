// quotes.cuh: slots' quotes and ladders as they arrive under continuous trading, at once or late. matching.cuh says how each is
// matched.
#pragma once

#include "events/flow.cuh"
#include "events/under_way.cuh"

namespace ks {

template <int kSlots, typename Width>
struct QuotesMarket : FlowMarket<kSlots, Width> {
  using Base = FlowMarket<kSlots, Width>;
  using Base::beat_price, Base::book, Base::checks_overflow, Base::levels, Base::origin, Base::p, Base::pricing, Base::slots, Base::t;
  using Base::find_quotes, Base::has_room, Base::match, Base::share;
  using Lanes = typename Base::Lanes;

  const UnderWay<Lanes> under_way;
  int arrived;  // submissions in this interval; counted where several may

  KS_ON_LANE QuotesMarket(const Launch& launch, int64_t m, const EventMemory<kSlots, Width>& memory)
      : Base(launch, m, memory), under_way{launch, m}, arrived(0) {}

  // What is due arrives, oldest first.
  template <typename Records>
  KS_ON_LANE bool take_due(uint64_t now, Records& records) {
#pragma unroll 1
    while (under_way.next() <= now) {
      DueRecords<Records> due = {under_way.flags(), records};
      if (!take_quotes(under_way.quotes(), due)) return false;
      under_way.drop_first();
      arrived += 1;
    }
    return true;
  }

  // Fresh quotes arrive, each with its pre-trade limits as the account then is.
  template <typename Records>
  KS_ON_LANE bool take_quotes(const Quote* fresh, Records& records) {
    if constexpr (Lanes::kLanes > 1) {
      bool goes_on = true;
      Lanes::sync();
      if (Lanes::leads()) goes_on = take_quotes_alone(fresh, records);
      share();
      return Lanes::from_first(goes_on);
    } else {
      return take_quotes_alone(fresh, records);
    }
  }
  template <typename Records>
  KS_ON_LANE bool take_quotes_alone(const Quote* fresh, Records& records) {
    const uint32_t count = slots.count(), first = kSlots == 1 ? 0 : (uint32_t)((uint64_t)t % count);
    for (int number = 0; number < slots.count(); ++number) {
      const int k = kSlots == 1 ? 0 : (int)((first + number) % count);
      if constexpr (kSlots == kLadders) {
        const int first = k * slots.levels();
        if (!take_ladder(fresh + first, k, number, records)) return false;
        continue;
      }
      const OrderFlags flags = records.flags_of(k);
      const Quote asked = quote_of_flags(fresh[k], slots.quotes[k], flags);
      const Quote quote = apply_pre_trade_limits(asked, slots.accounts[k].inventory, p, flags.both_rest());
      Sides<int32_t> comes = {0, 0};
      for (int side = 0; side < 2; ++side) {
        const int32_t quantity = side ? quote.ask_qty : quote.bid_qty;
        comes.set(side, quantity);
        const int32_t asked_price = side ? quote.ask_price : quote.bid_price;
        const int32_t price = flags.keeps(side) ? slots.price(k, side) : arriving_price(asked_price, side);
        if (price == slots.price(k, side) && quantity > 0 && quantity <= slots.quantity(k, side) && flags.rests(side)) {
          slots.set_quantity(k, side, quantity);
          comes.set(side, 0);  // it keeps its place
          continue;
        }
        slots.set_price(k, side, price);
        slots.set_quantity(k, side, 0);
      }
      find_quotes();
#pragma unroll 1
      for (int side = 0; side < 2; ++side)
        if (comes.of(side) > 0 && !join(k, k, side, comes.of(side), number, flags, k, records)) return false;
    }
    return true;
  }
  // What levers and the grid's far end make of a price that is not kept.
  KS_ON_LANE int32_t arriving_price(int32_t asked, int32_t side) const {
    const int32_t price = quote_price(p, asked, beat_price, side), tick = price - origin;
    return (side ? tick < 0 : tick >= levels) ? origin + (side ? pricing.lowest : pricing.highest) : price;
  }

  // Slot k's ladder arrives.
  template <typename Records>
  KS_ON_LANE bool take_ladder(const Quote* fresh, int k, int number, Records& records) {
    const int count = slots.levels();
    Quote ladder[kMaxOrdersPerSide];
    OrderFlags flags[kMaxOrdersPerSide];
#pragma unroll EventSlots<kSlots>::kAtOnce
    for (int n = 0; n < count; ++n) {
      const int first = k * slots.per_slot() + 2 * n;
      for (int side = 0; side < 2; ++side)
        if (slots.quantity(first, side) == 0) slots.take_over(first, first + 1, side);
      Quote standing = slots.quotes[first];
      standing.bid_qty += slots.quotes[first + 1].bid_qty, standing.ask_qty += slots.quotes[first + 1].ask_qty;
      flags[n] = records.flags_of(k * count + n);
      ladder[n] = quote_of_flags(fresh[n], standing, flags[n]);
    }
    apply_ladder_limits(ladder, flags, count, slots.accounts[k].inventory, p);
#pragma unroll EventSlots<kSlots>::kAtOnce
    for (int i = 0; i < 2 * count; ++i) {
      const int n = i / 2, side = i % 2, first = k * slots.per_slot() + 2 * n;
      int32_t& comes = side ? ladder[n].ask_qty : ladder[n].bid_qty;
      const int32_t asked = side ? ladder[n].ask_price : ladder[n].bid_price;
      const int32_t price = flags[n].keeps(side) ? slots.price(first, side) : arriving_price(asked, side);
      const int32_t oldest = slots.quantity(first, side), all = oldest + slots.quantity(first + 1, side);
      const bool stays = price == slots.price(first, side) && comes > 0 && all > 0 && flags[n].rests(side);
      const bool grows = stays && comes > all;  // the second place is left empty, and comes with the rest
      slots.set_quantity(first, side, stays ? min_of(oldest, comes) : 0);
      slots.set_quantity(first + 1, side, stays && !grows ? max_of(0, comes - oldest) : 0);
      comes = grows ? comes - oldest : stays ? 0 : comes;
      slots.set_price(first, side, price), slots.set_price(first + 1, side, price);
    }
    for (int side = 0; side < 2; ++side) slots.find_best(side);
#pragma unroll 1
    for (int i = 0; i < 2 * count; ++i) {
      const int n = i / 2, side = i % 2, first = k * slots.per_slot() + 2 * n;
      const int32_t comes = side ? ladder[n].ask_qty : ladder[n].bid_qty;
      const int j = first + (slots.quantity(first, side) > 0);
      if (comes > 0 && !join(j, k, side, comes, number, flags[n], k * count + n, records)) return false;
    }
    return true;
  }

  // Slot k's order comes, at the price of its quote j, which is where it stands then; its record is number `at` of the market's.
  template <typename Records>
  KS_ON_LANE bool join(int j, int k, int32_t side, int32_t quantity, int32_t moment, OrderFlags flags, int at, Records& records) {
    const int32_t tick = slots.price(j, side) - origin;
    const bool post_only = flags.has(side, kOrderFlagPostOnly);
    const auto [left, crosses] = match(tick, quantity, side, k, post_only);
    if (crosses) records.reject(at, side, post_only ? kRejectPostOnly : kRejectOwnOrder);
    if (left == 0 || crosses || !flags.rests(side)) return true;
    slots.set_quantity(j, side, left);
    slots.set_ahead(j, side, tick >= 0 && tick < levels ? book.resting(tick, side) : 0);
    slots.set_moment(j, side, moment_of(t, KS_UNDER_WAY ? arrived * slots.count() + moment : moment));
    this->find_quote(j, side);
    return !checks_overflow || has_room(side, 0);
  }
};

}  // namespace ks
