// book.h: orders of a market's agents by side and tick, oldest first, and their units. Learned quotes are no part of it: their
// places in a queue are numbers of units ahead, which may end within an order. A side is 0 (bids) or 1 (asks).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <vector>

#include "model/events.h"
#include "tape/rows.h"

namespace ks::tape {

class Queue {
 public:
  void push(const Order& order) {
    if (head_ > 16 && 2 * head_ > orders_.size()) {
      orders_.erase(orders_.begin(), orders_.begin() + (std::ptrdiff_t)head_);
      head_ = 0;
    }
    orders_.push_back(order);
  }
  void clear() { orders_.clear(), head_ = 0; }
  Order* begin() { return orders_.data() + head_; }
  Order* end() { return orders_.data() + orders_.size(); }

  // Take up to `units` from the front; `each(order, units)` is told of every part, the order as it is after that. Returns the
  // units taken.
  template <typename Each>
  int32_t take(int32_t units, const Each& each) {
    int32_t left = units;
    while (left > 0 && head_ < orders_.size()) {
      Order& order = orders_[head_];
      const int32_t part = std::min(left, order.left);
      order.left -= part, left -= part;
      each(order, part);
      if (order.left == 0) ++head_;
    }
    if (head_ == orders_.size()) clear();
    return units - left;
  }
  // Forget orders of which nothing is left.
  void drop_empty() {
    const auto is_empty = [](const Order& order) { return order.left == 0; };
    orders_.erase(std::remove_if(orders_.begin() + (std::ptrdiff_t)head_, orders_.end(), is_empty), orders_.end());
  }

 private:
  std::vector<Order> orders_;
  std::size_t head_ = 0;
};

struct OrderBook {
  int levels;
  std::vector<Queue> queues[2];
  std::vector<int32_t> units[2];
  int32_t best[2] = {-1, kNoTick};

  explicit OrderBook(int levels) : levels(levels) {
    for (int side = 0; side < 2; ++side) queues[side].resize((std::size_t)levels), units[side].resize((std::size_t)levels);
  }

  void rest(int32_t side, int32_t tick, const Order& order) {
    queues[side][(std::size_t)tick].push(order);
    units[side][(std::size_t)tick] += order.left;
    best[side] = side ? std::min(best[1], tick) : std::max(best[0], tick);
  }

  template <typename Each>
  int32_t take(int32_t side, int32_t tick, int32_t most, const Each& each) {
    const int32_t taken = queues[side][(std::size_t)tick].take(most, each);
    units[side][(std::size_t)tick] -= taken;
    if (tick == best[side]) find_best(side);
    return taken;
  }

  // A tick loses `loss` to cancellation: the k-th order what the units up to and with it lose, less what those before it do,
  // by the rule for what a quote has ahead.
  template <typename Each>
  void lose(int32_t side, int32_t tick, int32_t loss, uint32_t u32, const Each& each) {
    if (loss == 0) return;
    Queue& queue = queues[side][(std::size_t)tick];
    int32_t& all = units[side][(std::size_t)tick];
    int32_t upto = 0, before = 0;
    for (Order& order : queue) {
      upto += order.left;
      const int32_t lost = cancelled_ahead(all, loss, upto, u32), part = lost - before;
      before = lost;
      order.left -= part;
      if (part > 0) each(order, part);
    }
    queue.drop_empty();
    all -= loss;
    if (tick == best[side]) find_best(side);
  }

  // From the best tick that was, nothing better rests.
  void find_best(int32_t side) {
    int32_t& tick = best[side];
    if (side) {
      while (tick < levels && units[1][(std::size_t)tick] == 0) ++tick;
      if (tick >= levels) tick = kNoTick;
    } else {
      while (tick >= 0 && units[0][(std::size_t)tick] == 0) --tick;
    }
  }

  // Move all by `by` ticks down (up if below 0); `each(side, tick, order)` is told of what leaves the grid, by its tick before.
  template <typename Each>
  void shift(int32_t by, const Each& each) {
    const int32_t kept = std::max(0, levels - std::abs(by));
    for (int side = 0; side < 2; ++side) {
      auto& mine = queues[side];
      auto& here = units[side];
      const int32_t first = by > 0 ? 0 : kept, last = by > 0 ? levels - kept : levels;  // these leave
      for (int32_t tick = first; tick < last; ++tick) {
        for (Order& order : mine[(std::size_t)tick]) each(side, tick, order);
        mine[(std::size_t)tick].clear(), here[(std::size_t)tick] = 0;
      }
      const auto middle = by > 0 ? levels - kept : kept;
      std::rotate(mine.begin(), mine.begin() + middle, mine.end());
      std::rotate(here.begin(), here.begin() + middle, here.end());
      best[side] = side ? 0 : levels - 1;
      find_best(side);
    }
  }
};

}  // namespace ks::tape
