// lives.h: the orders of a fitted flow at the ticks of a market, as cuda/events/lives.cuh has them as numbers of units and of orders.
// The model says how many units of a life go (docs/model.md, "Order flow"), this says of which orders: those that trade are the
// oldest. Those that are cancelled are whole ones as far as they fit, the largest first, then a part of the smallest.
#pragma once

#include "model/flow.h"
#include "tape/continuous.h"

namespace ks::tape {

// The table of the one market that a launch is of.
inline const FlowNumbers& flow_numbers(const Launch& launch) {
  return reinterpret_cast<const FlowNumbers*>(launch.flow_table)[launch.params[0].levers.flow];
}

struct LivesTape : ContinuousTape {
  const FlowNumbers& table;
  std::vector<int32_t> lives[2], fleeting;  // by tick: orders of each life as the model counts them, and fleeting units
  int32_t taken[2] = {0, 0};                // of each life, by an order that is trading at a tick

  explicit LivesTape(const Launch& of)
      : ContinuousTape(of), table(flow_numbers(of)), fleeting(of.fleeting_units, of.fleeting_units + levels) {
    for (int i = 0; i < 2 * levels; ++i) lives[i / levels].push_back(clamp_to(of.lives[i], 0, kMostOfALife));
  }

  const char* difference(const Launch& engine) const override {
    const auto differs = [](const std::vector<int32_t>& mine, const int32_t* theirs) {
      return std::memcmp(mine.data(), theirs, mine.size() * sizeof(int32_t)) != 0;
    };
    if (const char* name = ContinuousTape::difference(engine)) return name;
    if (differs(lives[0], engine.lives) || differs(lives[1], engine.lives + levels)) return "lives";
    return differs(fleeting, engine.fleeting_units) ? "fleeting_units" : nullptr;
  }

  // Books --------------------------------------------------------------------------------------------------------------

  struct Drawn {
    int32_t life, units;
  };
  // The orders of a tick that opens, or comes onto the grid.
  std::vector<Drawn> draw(int side, int32_t tick, int32_t away, uint64_t words) const {
    const uint64_t word = flow_word(key, (int64_t)g, words + (uint64_t)tick);
    const int32_t band = band_of(away);
    std::vector<Drawn> found;
    for (int life = 0; life < 2; ++life)
      for (int64_t n = (table.resting[side][life][band] + field(word, 16 * life, 16)) >> 16; n > 0; --n)
        found.push_back({life, (int32_t)sizes(side, life, band)[field(word, 32 + 4 * (int)(found.size() % 8), 4)]});
    return found;
  }
  const int64_t* sizes(int side, int life, int32_t band) const { return table.limit_size[side][life][group_of(band)]; }

  // What rests as the tape begins: at an episode's beginning what was drawn, best ticks that had got nothing last. Else nobody
  // knows sizes: the units of a life are of as many orders as it has, all alike.
  void open(const int32_t* bid, const int32_t* ask) override {
    begin_interval();
    for (const bool last : {false, true}) {
      for (int32_t tick = 0; tick < levels; ++tick) {
        for (int side = 0; side < 2; ++side) {
          const int32_t all = (side ? ask : bid)[tick], away = side ? tick - p.init_price + 1 : p.init_price - tick;
          if (all <= 0) continue;
          auto orders = g == 0 ? draw(side, tick, away, kOpeningWord) : alike(all, tick);
          if (last != orders.empty()) continue;
          if (!is_there(orders, all, tick)) orders = alike(all, tick);
          for (const Drawn& one : orders) book.rest(side, tick, submitted(side, tick, one));
        }
      }
    }
    const std::vector<int32_t> none((std::size_t)levels);
    ContinuousTape::open(none.data(), none.data());  // quotes
  }
  std::vector<Drawn> alike(int32_t all, int32_t tick) const {
    const int64_t some = std::clamp(fleeting[(std::size_t)tick], 0, all), units[2] = {some, all - some};
    std::vector<Drawn> found;
    for (int life = 0; life < 2; ++life) {
      const int64_t q = units[life], n = std::min<int64_t>(q, std::max(lives[life][(std::size_t)tick], 1));
      for (int64_t k = 0; k < n; ++k) found.push_back({life, (int32_t)(q * (k + 1) / n - q * k / n)});
    }
    return found;
  }
  bool is_there(const std::vector<Drawn>& orders, int32_t all, int32_t tick) const {
    int64_t units[2] = {0, 0}, count[2] = {0, 0};
    for (const Drawn& one : orders) units[one.life] += one.units, count[one.life] += 1;
    const auto at = (std::size_t)tick;
    return units[0] == fleeting[at] && units[0] + units[1] == all && count[0] == lives[0][at] && count[1] == lives[1][at];
  }
  Order submitted(int side, int32_t tick, const Drawn& one) {
    const Order order = numbered({-1, side, tick, one.units, 0, (uint8_t)(kFlowLimit + one.life)});
    rows.submit(order, side, tick + origin);
    return order;
  }
  // Agents' orders are lasting ones.
  static int life_of(const Order& order) { return order.who == kFlowLimit + kFleeting ? kFleeting : kLasting; }
  bool rests(int side, int32_t tick, const Order& order) override {
    const int life = life_of(order);
    if (lives[life][(std::size_t)tick] >= kMostOfALife) return false;
    lives[life][(std::size_t)tick] += 1;
    if (life == kFleeting) fleeting[(std::size_t)tick] += order.left;
    book.rest(side, tick, order);
    return true;
  }

  void grid_moved(int32_t by) override {
    for (auto* column : {&lives[0], &lives[1], &fleeting}) {
      const std::vector<int32_t> before = *column;
      for (int32_t tick = 0; tick < levels; ++tick)
        (*column)[(std::size_t)tick] = tick + by >= 0 && tick + by < levels ? before[(std::size_t)(tick + by)] : 0;
    }
    const Best best = best_ticks();
    const int side = by > 0;
    const int32_t come = std::min(std::abs(by), levels), first = side ? levels - come : 0;
    for (int32_t tick = first; tick < first + come; ++tick)
      for (const Drawn& one : draw(side, tick, best.distance(side, tick), kEntryWord)) rests(side, tick, submitted(side, tick, one));
  }

  // What is seen -------------------------------------------------------------------------------------------------------

  // The ticks of the best prices, quotes included; next to the last price where a side is empty.
  struct Best {
    int32_t at[2];
    bool operator==(const Best& other) const { return at[0] == other.at[0] && at[1] == other.at[1]; }
    int32_t distance(int side, int32_t tick) const { return side ? tick - at[0] : at[1] - tick; }
  };
  Best best_ticks() const {
    const BestPrices now = best_prices();
    const bool has_bid = now.bid >= 0, has_ask = now.ask != kNoTick;
    return {{has_bid ? now.bid : (has_ask ? std::min(last_tick, now.ask) : last_tick) - 1,
             has_ask ? now.ask : (has_bid ? std::max(last_tick, now.bid) : last_tick) + 1}};
  }
  int32_t units_of(int side, int32_t tick, int life) const {
    const int32_t some = fleeting[(std::size_t)tick];
    return life == kFleeting ? some : book.units[side][(std::size_t)tick] - some;
  }
  // From a side's best tick away from the mid, until `each(tick)` is true.
  template <typename Each>
  void outwards(int side, const Each& each) const {
    const int by = side ? 1 : -1;
    for (int32_t tick = book.best[side]; tick >= 0 && tick < levels && !each(tick);) tick += by;
  }
  int64_t units_of(int side) const {
    int64_t units = 0;
    outwards(side, [&](int32_t tick) { return units += book.units[side][(std::size_t)tick], false; });
    return units;
  }
  bool has_one_order(int side) const {
    int64_t orders = 0;
    outwards(side, [&](int32_t tick) { return (orders += lives[0][(std::size_t)tick] + lives[1][(std::size_t)tick]) > 1; });
    return orders == 1;
  }
  int64_t weight_at(int side, int32_t tick, int life, const Best& best) const {
    const int64_t orders = lives[life][(std::size_t)tick];
    return orders == 0 ? 0 : orders * table.cancel[life][band_of(best.distance(side, tick))];
  }
  int64_t cancel_weight(int side, const Best& best) const {
    int64_t sum = 0;
    outwards(side, [&](int32_t tick) {
      return sum += weight_at(side, tick, kFleeting, best) + weight_at(side, tick, kLasting, best), false;
    });
    return sum;
  }

  // Orders that go -----------------------------------------------------------------------------------------------------

  // Orders of a life lose units; `each(order, units)` is told of every part, the order as it is after that.
  template <typename Each>
  void lose(int side, int32_t tick, int life, int32_t units, bool trades, const Each& each) {
    const auto at = (std::size_t)tick;
    Queue& queue = book.queues[side][at];
    for (int32_t left = units; left > 0;) {
      Order* one = nullptr;
      for (Order& order : queue) {
        if (life_of(order) != life || order.left == 0) continue;
        const bool fits = order.left <= left, first = one == nullptr;
        if (first || (!trades && (fits ? one->left > left || order.left > one->left : one->left > order.left))) one = &order;
      }
      if (one == nullptr) break;  // of a state that no market has
      const int32_t part = std::min(left, one->left);
      one->left -= part, left -= part;
      each(*one, part);
    }
    queue.drop_empty();
    book.units[side][at] -= units;
    if (life == kFleeting) fleeting[at] -= units;
    if (tick == book.best[side]) book.find_best(side);
  }
  void trade_agents(int side, int32_t tick, int32_t most, int64_t taker) override {
    for (const int life : {kLasting, kFleeting}) {
      const int32_t part = std::min(most, units_of(side, tick, life));
      lose(side, tick, life, part, true, [&](const Order& order, int32_t units) { rows.trade(order, taker, side, tick + origin, units); });
      taken[life] += part, most -= part;
    }
  }
  void end_trade(int side, int32_t tick) override {
    for (int life = 0; life < 2; ++life) {
      const int32_t left = units_of(side, tick, life);
      int32_t& orders = lives[life][(std::size_t)tick];
      orders = (int32_t)orders_left(orders, left + taken[life], left);
      taken[life] = 0;
    }
  }
  // Up to so many units of a side trade, at any price, of its units one less at most.
  void trade(int side, int64_t units) {
    const int64_t quantity = std::min(units, units_of(side) - 1);
    if (quantity > 0) take_order({-1, 1 - side, side ? levels - 1 : 0, (int32_t)quantity, 1, kFlowMarket});
  }

  int32_t leaving(int side, int32_t tick, int life, int64_t number, const Best& best) const {
    const int32_t band = band_of(best.distance(side, tick));
    return (int32_t)units_that_go(sizes(side, life, band), table.size_sum[side][life][group_of(band)], number,
                                  lives[life][(std::size_t)tick], units_of(side, tick, life));
  }
  // Of quotes' places what goes with it, first, as that depends on what the tick holds.
  void cancel(int side, int32_t tick, int life, int32_t units) {
    const auto u32 = (uint32_t)(flow_word(key, (int64_t)g, kFlowPlaceWord) >> (32 * side));
    for (int j = 0; j < quoted; ++j)
      if (aheads[j][side] > 0 && quote_tick(j, side) == tick)
        aheads[j][side] -= cancelled_ahead(book.units[side][(std::size_t)tick], units, aheads[j][side], u32);
    lives[life][(std::size_t)tick] -= 1;
    lose(side, tick, life, units, false, [&](const Order& order, int32_t part) {
      rows.cancel(order, side, tick + origin, part, kCancelled);
    });
  }
};

}  // namespace ks::tape
