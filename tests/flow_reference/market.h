// market.h: one market of an order flow, order by order, without slots: the second implementation beside the NumPy one. Ticks hold
// units and numbers of orders by life, as the model has them; which orders these are is the tape's to say: those that trade are
// the oldest of a life. Those that are cancelled are whole ones as far as they fit, the largest first, then a part of the next.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/flow.h"

namespace ks::tape {

// Kinds as kineticsim_env/data/events.py numbers them; what was deleted as the grid moved away is a kDelete, too.
enum FlowEventKind : int32_t { kFlowAdd, kFlowReduce, kFlowDelete, kFlowExecute };

struct FlowEvent {
  int64_t time, order, price, size;
  int32_t kind, side, opening, unused;
};
static_assert(sizeof(FlowEvent) == 48, "as Python reads it");

struct FlowOrder {
  int64_t id, units;
  int life;
};

struct FlowTick {
  int64_t units[2] = {0, 0}, count[2] = {0, 0};  // by life
  std::vector<FlowOrder> orders;                 // oldest first
  int64_t all() const { return units[kFleeting] + units[kLasting]; }
  int64_t number() const { return count[kFleeting] + count[kLasting]; }
};

struct FlowMarket {
  const FlowNumbers table;
  const int levels, window, beat;
  const uint64_t key;
  FlowState flow = {1, 1, 0, 0, 0, 0, 0, 0, 0};
  int64_t g = 0, volume = 0;
  int32_t origin = 0, last_tick;
  bool stopped = false;
  std::vector<FlowTick> sides[2];
  std::vector<FlowEvent> events;

  FlowMarket(const FlowNumbers& of, uint64_t episode, int num_levels, int window_of, int beat_of, int32_t init_price)
      : table(of), levels(num_levels), window(window_of), beat(beat_of), key(episode), last_tick(init_price) {
    for (auto& side : sides) side.resize((std::size_t)levels);
    for (int32_t tick = 0; tick < levels; ++tick) {
      const int side = tick >= init_price;
      bring(side, tick, side ? tick - init_price + 1 : init_price - tick, kOpeningWord, true);
    }
    for (int side = 0; side < 2; ++side) {
      const int32_t tick = init_price - 1 + side;
      if (tick >= 0 && tick < levels && at(side, tick).all() == 0) add(side, tick, kLasting, size_of(side, kLasting, 1, field(flow_word(key, 0, kOpeningWord + (uint64_t)tick), 32, 4)), true);
    }
  }

  FlowTick& at(int side, int32_t tick) { return sides[side][(std::size_t)tick]; }

  // Prices -------------------------------------------------------------------------------------------------------------

  struct Best {
    int32_t price[2];
    bool operator!=(const Best& other) const { return price[0] != other.price[0] || price[1] != other.price[1]; }
    int32_t spread() const { return price[1] - price[0]; }
  };
  // The best tick of a side that has units; `levels` or -1 without.
  int32_t best_of(int side) {
    if (side) {
      for (int32_t tick = 0; tick < levels; ++tick)
        if (at(1, tick).all()) return tick;
      return levels;
    }
    for (int32_t tick = levels - 1; tick >= 0; --tick)
      if (at(0, tick).all()) return tick;
    return -1;
  }
  Best best() {
    const int32_t bid = best_of(0), ask = best_of(1);
    const bool has_bid = bid >= 0, has_ask = ask < levels;
    return {{has_bid ? bid : (has_ask ? min_of(last_tick, ask) : last_tick) - 1,
             has_ask ? ask : (has_bid ? max_of(last_tick, bid) : last_tick) + 1}};
  }
  static int32_t distance(int side, int32_t tick, const Best& best) { return side ? tick - best.price[0] : best.price[1] - tick; }
  const int64_t* sizes(int side, int life, int32_t away) const { return table.limit_size[side][life][group_of(band_of(away))]; }
  int64_t sum_of_sizes(int side, int life, int32_t away) const { return table.size_sum[side][life][group_of(band_of(away))]; }
  int64_t size_of(int side, int life, int32_t away, int64_t number) const { return sizes(side, life, away)[number]; }

  // Units and orders ---------------------------------------------------------------------------------------------------

  void note(int32_t kind, int side, int32_t tick, int64_t order, int64_t size, bool opening = false) {
    events.push_back({flow.time, order, (int64_t)tick + origin, size, kind, side ? -1 : 1, opening, 0});
  }
  void add(int side, int32_t tick, int life, int64_t units, bool opening = false) {
    FlowTick& here = at(side, tick);
    here.units[life] += units, here.count[life] += 1;
    here.orders.push_back({++numbered, units, life});
    note(kFlowAdd, side, tick, numbered, units, opening);
  }
  // The orders of a tick that opens, or comes onto the grid.
  void bring(int side, int32_t tick, int32_t away, uint64_t words, bool opening) {
    const uint64_t drawn = flow_word(key, g, words + (uint64_t)tick);
    int k = 0;
    for (int life = 0; life < 2; ++life)
      for (int64_t n = (table.resting[side][life][band_of(away)] + field(drawn, 16 * life, 16)) >> 16; n > 0; --n, ++k)
        add(side, tick, life, size_of(side, life, away, field(drawn, 32 + 4 * (k % 8), 4)), opening);
  }
  int64_t number_of(int side) {
    int64_t n = 0;
    for (auto& tick : sides[side]) n += tick.number();
    return n;
  }
  int64_t units_of(int side) {
    int64_t n = 0;
    for (auto& tick : sides[side]) n += tick.all();
    return n;
  }

  // Orders of a life lose units, as trades or cancellations.
  void lose(int side, int32_t tick, int life, int64_t units, bool traded) {
    auto& orders = at(side, tick).orders;
    while (units > 0) {
      FlowOrder* chosen = nullptr;
      for (FlowOrder& order : orders) {
        if (order.life != life) continue;
        const bool fits = order.units <= units, first = chosen == nullptr;
        if (first || (!traded && (fits ? chosen->units > units || order.units > chosen->units : chosen->units > order.units))) chosen = &order;
      }
      const int64_t part = std::min(units, chosen->units);
      chosen->units -= part, units -= part;
      note(traded ? kFlowExecute : chosen->units ? kFlowReduce : kFlowDelete, side, tick, chosen->id, part);
      if (chosen->units == 0) orders.erase(orders.begin() + (chosen - orders.data()));
    }
  }
  void cancel(int side, int32_t tick, int life, int64_t units) {
    FlowTick& here = at(side, tick);
    here.units[life] -= units, here.count[life] -= 1;
    lose(side, tick, life, units, false);
  }
  // Trade up to so many units with a side, at any price. Returns those that traded.
  int64_t trade(int side, int64_t quantity) {
    int64_t left = quantity;
    while (left > 0) {
      const int32_t tick = best_of(side);
      if (tick < 0 || tick >= levels) break;
      for (int life : {kLasting, kFleeting}) {
        FlowTick& here = at(side, tick);
        const int64_t before = here.units[life], part = std::min(left, before);
        if (part == 0) continue;
        here.units[life] -= part;
        here.count[life] = orders_left(here.count[life], before, here.units[life]);
        lose(side, tick, life, part, true);
        left -= part;
      }
      last_tick = tick;
    }
    volume += quantity - left;
    return quantity - left;
  }

  // Events -------------------------------------------------------------------------------------------------------------

  void play() {
    if (g % beat == 0) follow_mid();
    advance_clock(flow, table, clock_word(flow_word(key, g, kClockWord), table.logarithms));
    const Best before = best();
    const int64_t units = take_event(before);
    flow.after = units > 0 ? kAfterTrade : best() != before ? kAfterMove : kAfterNothing;
    g += 1;
    stopped |= units_of(0) >> 31 || units_of(1) >> 31 || flow.time >= kLastTime;
  }

  void follow_mid() {
    const int32_t bid = best_of(0), ask = best_of(1), mid2 = bid < 0 || ask >= levels ? 2 * last_tick : bid + ask;
    const int32_t by = (mid2 >> 1) - levels / 2;
    if (window == 0 || std::abs(by) <= window) return;
    for (int side = 0; side < 2; ++side) {
      std::vector<FlowTick> moved((std::size_t)levels);
      for (int32_t tick = 0; tick < levels; ++tick) {
        const int32_t to = tick - by;
        if (to >= 0 && to < levels) std::swap(moved[(std::size_t)to], at(side, tick));
        else
          for (const FlowOrder& order : at(side, tick).orders) note(kFlowDelete, side, tick, order.id, order.units);
      }
      sides[side].swap(moved);
    }
    origin += by, last_tick -= by;
    const Best now = best();
    const int side = by > 0;
    const int32_t come = min_of(std::abs(by), levels);
    for (int32_t tick = side ? levels - come : 0; tick < (side ? levels : come); ++tick)
      bring(side, tick, distance(side, tick, now), kEntryWord, false);
  }

  // Returns the units that traded.
  int64_t take_event(const Best& best) {
    const uint64_t jump = flow_word(key, g, kJumpWord);
    if (flow.left > 0) {
      flow.left -= 1;
      int64_t traded = 0;
      if (field(jump, 63, 1) == 0 && flee(best, jump, traded)) return traded;
    } else if (field(jump, 0, 32) < table.jump_hazard) {
      begin_jump(field(jump, 32, 16) < table.jump_same ? flow.last_jump : -flow.last_jump, field(jump, 48, 4), best);
    }
    return take_choice(best);
  }

  void begin_jump(int64_t way, int64_t number, const Best& best) {
    flow.left = table.jump_events, flow.last_jump = way;
    flow.limit = (int64_t)best.price[way > 0] + origin + way * table.jump_size[number];
  }

  // Whether the event is over.
  bool flee(const Best& best, uint64_t drawn, int64_t& traded) {
    const int side = flow.last_jump > 0;
    const int64_t limit = flow.limit - origin;
    int32_t nearest = -1, furthest = -1;
    for (int32_t i = 0; i < levels; ++i) {
      const int32_t tick = side ? i : levels - 1 - i;
      if (side ? tick >= limit : tick <= limit) break;
      if (at(side, tick).all() == 0) continue;
      if (nearest < 0) nearest = tick;
      furthest = tick;
    }
    if (nearest < 0) return flow.left = 0, false;
    if (number_of(side) == 1) return true;
    const int32_t tick = field(drawn, 62, 1) == 0 ? nearest : furthest;
    const FlowTick& here = at(side, tick);
    const int life = (field(drawn, 32, 16) * here.number()) >> 16 < here.count[kFleeting] ? kFleeting : kLasting;
    const int64_t units = leaving(side, tick, life, field(drawn, 48, 4), best);
    if (field(drawn, 0, 16) < table.jump_traded) traded = trade(side, std::min(units, units_of(side) - 1));
    else cancel(side, tick, life, units);
    return true;
  }
  int64_t leaving(int side, int32_t tick, int life, int64_t number, const Best& best) {
    const FlowTick& here = at(side, tick);
    const int32_t away = distance(side, tick, best);
    return units_that_go(sizes(side, life, away), sum_of_sizes(side, life, away), number, here.count[life], here.units[life]);
  }

  int64_t take_choice(const Best& best) {
    const uint64_t drawn = flow_word(key, g, kOrderWord);
    const int spread = spread_class(best.spread());
    int64_t weights[5] = {table.market, 0, 0, 0, 0}, total = 0;
    for (int side = 0; side < 2; ++side) {
      for (int64_t weight : table.limit[side][spread]) weights[1 + side] += weight;
      weights[3 + side] = cancel_weight(side, best);
    }
    if (weights[3] >= kMostWeight || weights[4] >= kMostWeight) return stopped = true, 0;
    for (int64_t weight : weights) total += weight;
    int64_t r = share_of(flow_word(key, g, kChoiceWord), (uint64_t)total);
    int choice = 0;
    while (choice < 4 && r >= weights[choice]) r -= weights[choice++];
    if (choice == 0) return take_market_order(drawn);
    if (choice < 3) take_limit_order(choice - 1, r, drawn, best, spread);
    else take_cancellation(choice - 3, r, drawn, best);
    return 0;
  }

  int64_t cancel_weight(int side, const Best& best) {
    int64_t sum = 0;
    for (int32_t tick = 0; tick < levels; ++tick)
      if (at(side, tick).all()) sum += weight_at(side, tick, kFleeting, best) + weight_at(side, tick, kLasting, best);
    return sum;
  }
  int64_t weight_at(int side, int32_t tick, int life, const Best& best) {
    return at(side, tick).count[life] * table.cancel[life][band_of(distance(side, tick, best))];
  }

  int64_t take_market_order(uint64_t drawn) {
    if (field(drawn, 0, 16) >= table.market_same) flow.last_trade = -flow.last_trade;
    const int side = flow.last_trade > 0;
    const int64_t units = trade(side, std::min(table.market_size[field(drawn, 16, 4)], units_of(side) - 1));
    if (flow.left == 0 && field(drawn, 20, 16) < table.jump_after_trade) begin_jump(flow.last_trade, field(drawn, 36, 4), best());
    return units;
  }

  void take_limit_order(int side, int64_t r, uint64_t drawn, const Best& best, int spread) {
    int32_t band = 0;
    while (band < kFlowBands - 1 && r >= table.limit[side][spread][band]) r -= table.limit[side][spread][band++];
    const int32_t width = band_begins(band + 1) - band_begins(band);
    const int32_t away = band_begins(band) + (int32_t)(field(drawn, 0, 16) * width >> 16);
    const int32_t tick = side ? best.price[0] + away : best.price[1] - away;
    const int life = field(drawn, 16, 16) < table.fleeting[band] ? kFleeting : kLasting;
    if (tick < 0 || tick >= levels || at(side, tick).count[life] >= kMostOfALife) return;
    add(side, tick, life, size_of(side, life, away, field(drawn, 32, 4)));
  }

  void take_cancellation(int side, int64_t r, uint64_t drawn, const Best& best) {
    if (number_of(side) == 1) return;
    for (int32_t i = 0; i < levels; ++i) {
      const int32_t tick = side ? i : levels - 1 - i;
      for (int life : {kFleeting, kLasting}) {
        const int64_t weight = weight_at(side, tick, life, best);
        if (r < weight) return cancel(side, tick, life, leaving(side, tick, life, field(drawn, 36, 4), best));
        r -= weight;
      }
    }
  }

 private:
  int64_t numbered = 0;
};

}  // namespace ks::tape
