// rows.h: a tape's rows: every order, cancellation and trade of a market, in the order in which they happen. Python reads
// Row as it lies in memory (kineticsim_env/tapes/library.py).
#pragma once

#include <cstdint>
#include <vector>

namespace ks::tape {

enum Kind : uint8_t { kSubmit, kCancel, kTrade };
// Why an order, or a part of it, goes without a trade.
enum Reason : uint8_t {
  kNoReason,
  kCancelled,  // by a beat's cancellation
  kResidue,    // what an auction left of marketable orders
  kExpired,    // what is left of an order that is not to rest, or stopped before its slot's own, in continuous trading
  kWithdrawn,  // by the slot whose quote it was
  kLeftGrid    // the window moved away from it
};
// Whose an order is: a class of built-in agents, a slot, or of those that rested when the tape began; an order flow's limit order
// by its life (kFlowLimit and the one after it), or its market order; from kAdded on a class that a user has written.
enum Who : uint8_t { kNoise, kMomentum, kMaker, kFundamental, kSlot, kResting, kFlowLimit, kFlowMarket = kFlowLimit + 2, kAdded };

struct Row {
  int64_t interval, event, time, order, counterparty;
  int32_t agent, price, quantity, remaining;  // price: absolute
  uint8_t kind, reason, side, marketable, who, unused[3];
};
static_assert(sizeof(Row) == 64, "as Python reads it");

// An order, with what is left of it.
struct Order {
  int64_t id, interval;  // it came in
  int32_t agent, left;
  uint8_t who, marketable;
};

struct Rows {
  std::vector<Row> rows;
  int64_t interval = 0, event = 0, time = 0;  // now; the time is an order flow's, in nanoseconds, else the event
  int64_t orders = 0;               // numbered so far, from 1 on

  void submit(const Order& order, int32_t side, int32_t price) { add(kSubmit, order, side, price, order.left, kNoReason, 0); }
  // `order` is as it is after that.
  void cancel(const Order& order, int32_t side, int32_t price, int32_t units, Reason reason) {
    add(kCancel, order, side, price, units, reason, 0);
  }
  void trade(const Order& order, int64_t counterparty, int32_t side, int32_t price, int32_t units) {
    add(kTrade, order, side, price, units, kNoReason, counterparty);
  }

 private:
  void add(Kind kind, const Order& order, int32_t side, int32_t price, int32_t units, Reason reason, int64_t counterparty) {
    rows.push_back({interval, event, time, order.id, counterparty, order.agent, price, units, order.left, kind, reason,
                    (uint8_t)side, order.marketable, order.who, {}});
  }
};

}  // namespace ks::tape
