// lobster.h: the messages and books of a continuous market's tape, as LOBSTER's two files have them: how the book came from one
// line to the next, and its best levels after each message. An order that trades as it comes is no message of its own: the
// orders it meets are executed, and what is left of it is submitted. (lobsterdata.com/info/DataStructure.php)
#pragma once

#include <functional>
#include <map>

#include "tape/rows.h"

namespace ks::tape {

struct Message {
  int64_t time, order, price;  // time: that of the row
  int32_t type, size, direction, unused;
};
static_assert(sizeof(Message) == 40, "as Python reads it");

enum MessageType : int32_t { kSubmission = 1, kPartialDeletion = 2, kDeletion = 3, kExecution = 4 };
constexpr int64_t kNoLevel = 9999999999;  // the price of a level that there is not, of bids with a minus

class Lobster {
 public:
  // So many levels; a tick is so many units of price, and tick 0 is `base` ticks above 0.
  Lobster(int64_t levels, int64_t unit, int64_t base) : levels_(levels), unit_(unit), base_(base) {}

  // Turn rows into messages and books [messages, 4 * levels], which have room for one per row and one more. Returns how many.
  int64_t add(const Row* rows, int64_t count, Message* messages, int64_t* books) {
    messages_ = messages, books_ = books, written_ = 0;
    for (const Row* row = rows; row != rows + count; ++row) {
      const bool meets = row->kind == kTrade && row->counterparty == coming_.order;
      const bool expires = row->kind == kCancel && row->order == coming_.order && row->reason == kExpired;
      if (meets) coming_.quantity -= row->quantity;
      else if (expires) coming_.quantity = 0;
      else end();
      if (row->kind == kSubmit) coming_ = *row;
      else if (!expires) write(*row, row->kind == kTrade ? kExecution : row->remaining > 0 ? kPartialDeletion : kDeletion);
    }
    return written_;
  }
  // What is left of the last order rests.
  int64_t finish(Message* messages, int64_t* books) {
    messages_ = messages, books_ = books, written_ = 0;
    end();
    return written_;
  }

 private:
  void end() {
    if (coming_.quantity > 0) write(coming_, kSubmission);
    coming_ = {};
  }

  void write(const Row& row, MessageType type) {
    const int64_t price = unit_ * (base_ + row.price);
    const int64_t units = type == kSubmission ? row.quantity : -(int64_t)row.quantity;
    if (row.side) change(asks_, price, units);
    else change(bids_, price, units);
    messages_[written_] = {row.time, row.order, price, type, row.quantity, row.side ? -1 : 1, 0};
    int64_t* const book = books_ + 4 * levels_ * written_++;
    put(asks_, book, kNoLevel);
    put(bids_, book + 2, -kNoLevel);
  }
  template <typename Levels>
  static void change(Levels& levels, int64_t price, int64_t units) {
    if ((levels[price] += units) == 0) levels.erase(price);
  }
  template <typename Levels>
  void put(const Levels& levels, int64_t* to, int64_t none) const {
    auto level = levels.begin();
    for (int64_t i = 0; i < levels_; ++i, to += 4) {
      const bool there = level != levels.end();
      to[0] = there ? level->first : none, to[1] = there ? level->second : 0;
      if (there) ++level;
    }
  }

  const int64_t levels_, unit_, base_;
  std::map<int64_t, int64_t> asks_;
  std::map<int64_t, int64_t, std::greater<int64_t>> bids_;
  Row coming_ = {};
  Message* messages_ = nullptr;
  int64_t* books_ = nullptr;
  int64_t written_ = 0;
};

}  // namespace ks::tape
