// flow.h: an order flow that is fitted to data order by order, as cuda/events/flow.cuh plays it with ticks as numbers of units and
// of orders. The model says how many units of a life go (docs/model.md, "Order flow"), this says of which orders: those that trade
// are the oldest. Those that are cancelled are whole ones as far as they fit, the largest first, then a part of the smallest.
#pragma once

#include "model/flow.h"
#include "tape/continuous.h"

namespace ks::tape {

// The table of the one market that a launch is of.
inline const FlowNumbers& flow_numbers(const Launch& launch) {
  return reinterpret_cast<const FlowNumbers*>(launch.flow_table)[launch.params[0].levers.flow];
}

struct FlowTape : ContinuousTape {
  const FlowNumbers& table;
  FlowState flow;
  std::vector<int32_t> lives[2], fleeting;  // by tick: orders of each life as the model counts them, and fleeting units
  int32_t taken[2] = {0, 0};                // of each life, by an order that is trading at a tick

  explicit FlowTape(const Launch& of)
      : ContinuousTape(of), table(flow_numbers(of)), fleeting(of.fleeting_units, of.fleeting_units + levels) {
    for (int i = 0; i < 2 * levels; ++i) lives[i / levels].push_back(std::clamp(of.lives[i], 0, kMostOfALife));
    const auto number = [&](int i, int64_t least, int64_t most) { return (int32_t)std::clamp(of.flow[i], least, most); };
    flow.last_trade = number(0, -1, 1), flow.last_jump = number(1, -1, 1), flow.left = number(2, INT32_MIN, INT32_MAX);
    flow.state = number(4, 0, kClockStates - 1), flow.after = number(5, 0, kAfterKinds - 1);
    flow.limit = of.flow[3], flow.time = of.flow[6], flow.now = of.flow[7], flow.events = of.flow[8];
  }

  int64_t length() const { return 1000 * (int64_t)p.levers.interval_us; }  // of intervals, nanoseconds, or 0
  uint64_t first_event() const override { return length() > 0 ? (uint32_t)flow.events : ContinuousTape::first_event(); }
  uint64_t when_due() const override {
    return length() > 0 ? (uint64_t)flow.now + 1000ull * (uint32_t)p.levers.quote_latency : ContinuousTape::when_due();
  }
  int64_t time() const override { return std::max({rows.time, flow.time, flow.now}); }  // that of the latest row, until an event is later
  const char* difference(const Launch& engine) const override {
    const auto differs = [](const std::vector<int32_t>& mine, const int32_t* theirs) {
      return std::memcmp(mine.data(), theirs, mine.size() * sizeof(int32_t)) != 0;
    };
    if (const char* name = ContinuousTape::difference(engine)) return name;
    if (differs(lives[0], engine.lives) || differs(lives[1], engine.lives + levels)) return "lives";
    if (differs(fleeting, engine.fleeting_units)) return "fleeting_units";
    int64_t numbers[kFlowNumbers];
    flow.store(numbers);
    return std::memcmp(numbers, engine.flow, sizeof(numbers)) != 0 ? "flow" : nullptr;
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

  // Events -------------------------------------------------------------------------------------------------------------

  void play() override {
    if (length() == 0) return ContinuousTape::play();
    const int64_t end = flow.now + length();
    const uint64_t last = g + (uint32_t)p.levers.interval;
    while (true) {
      const int64_t due = under_way.empty() ? end : std::min(end, (int64_t)under_way.front().due);
      FlowState next = flow;
      advance(next);
      const bool cut = g == last && next.time <= end;  // short: what is due then arrives with the last event
      if (g < last && next.time <= due) {
        if (g % (uint32_t)p.levers.beat == 0) take_beat();
        begin_event();
        take_event();
        set_event(g + 1);
      } else if (due < end) {
        if (!cut) rows.time = due;
        take_oldest();
      } else {
        flow.now = cut ? flow.time : end, flow.events = (int64_t)(uint32_t)g;
        return;
      }
    }
  }
  void begin_event() override {
    advance(flow);
    rows.time = flow.time;
  }
  void advance(FlowState& to) const { advance_clock(to, table, clock_word(flow_word(key, (int64_t)g, kClockWord), table.logarithms)); }
  void take_event() override {
    const Best before = best_ticks();
    const int64_t traded = volume;
    const uint64_t agent = launch.agent_classes > 0 ? flow_word(key, (int64_t)g, kAgentWord) : ~0ull;
    if (field(agent, 0, 16) < launch.agent_threshold) take_agent((int32_t)((agent >> 32) * (uint32_t)p.levers.num_agents >> 32));
    else if (!take_jump(flow_word(key, (int64_t)g, kJumpWord), before)) take_choice(before);
    flow.after = volume > traded ? kAfterTrade : best_ticks() == before ? kAfterNothing : kAfterMove;
  }

  // The agent of that number, of all that users have added, orders.
  void take_agent(int32_t number) {
    look((int64_t)g, mid2());
    take_order(added_order(first_added_agent(launch, p) + number, random_word(key, (int64_t)g, 0)));
  }
  // Returns whether the event is over.
  bool take_jump(uint64_t drawn, const Best& best) {
    if (flow.left > 0) {
      flow.left -= 1;
      return field(drawn, 63, 1) == 0 && flees(drawn, best);
    }
    if (field(drawn, 0, 32) < table.jump_hazard)
      begin_jump(field(drawn, 32, 16) < table.jump_same ? flow.last_jump : -flow.last_jump, field(drawn, 48, 4), best);
    return false;
  }
  void begin_jump(int64_t way, int64_t number, const Best& best) {
    flow.left = table.jump_events, flow.last_jump = way;
    flow.limit = (int64_t)best.at[way > 0] + origin + way * table.jump_size[number];
  }
  bool flees(uint64_t drawn, const Best& best) {
    const int side = flow.last_jump > 0;
    const int64_t limit = flow.limit - origin;
    int32_t nearest = -1, worst = -1;
    outwards(side, [&](int32_t tick) {
      if (side ? tick >= limit : tick <= limit) return true;
      if (book.units[side][(std::size_t)tick] > 0) worst = tick, nearest = nearest < 0 ? tick : nearest;
      return false;
    });
    if (nearest < 0) return flow.left = 0, false;
    if (has_one_order(side)) return true;
    const int32_t tick = field(drawn, 62, 1) == 0 ? nearest : worst;
    const int64_t some = lives[kFleeting][(std::size_t)tick], all = some + lives[kLasting][(std::size_t)tick];
    const int life = (field(drawn, 32, 16) * all) >> 16 < some ? kFleeting : kLasting;
    const int32_t units = leaving(side, tick, life, field(drawn, 48, 4), best);
    if (field(drawn, 0, 16) < table.jump_traded) trade(side, units);
    else cancel(side, tick, life, units);
    return true;
  }

  void take_choice(const Best& best) {
    const uint64_t drawn = flow_word(key, (int64_t)g, kOrderWord);
    const int spread = spread_class(best.at[1] - best.at[0]);
    int64_t weights[5] = {table.market}, total = 0;
    for (int side = 0; side < 2; ++side) {
      weights[1 + side] = table.limit_upto[side][spread][kFlowBands - 1];
      weights[3 + side] = cancel_weight(side, best);
    }
    for (const int64_t weight : weights) total += weight;
    int64_t r = share_of(flow_word(key, (int64_t)g, kChoiceWord), (uint64_t)total);
    int choice = 0;
    while (choice < 5 && r >= weights[choice]) r -= weights[choice++];
    if (choice == 0) take_market_order(drawn);
    else if (choice < 3) take_limit_order(choice - 1, r, drawn, best, spread);
    else if (choice < 5) take_cancellation(choice - 3, r, drawn, best);
  }
  void take_market_order(uint64_t drawn) {
    if (field(drawn, 0, 16) >= table.market_same) flow.last_trade = -flow.last_trade;
    trade(flow.last_trade > 0, table.market_size[field(drawn, 16, 4)]);
    if (flow.left == 0 && field(drawn, 20, 16) < table.jump_after_trade) begin_jump(flow.last_trade, field(drawn, 36, 4), best_ticks());
  }
  void take_limit_order(int side, int64_t r, uint64_t drawn, const Best& best, int spread) {
    int32_t band = 0;
    while (band < kFlowBands - 1 && r >= table.limit_upto[side][spread][band]) ++band;
    const int32_t width = band_begins(band + 1) - band_begins(band);
    const int32_t away = band_begins(band) + (int32_t)(field(drawn, 0, 16) * width >> 16);
    const int32_t tick = side ? best.at[0] + away : best.at[1] - away;
    const int life = field(drawn, 16, 16) < table.fleeting[band] ? kFleeting : kLasting;
    if (tick < 0 || tick >= levels || lives[life][(std::size_t)tick] >= kMostOfALife) return;
    rests(side, tick, submitted(side, tick, {life, (int32_t)sizes(side, life, band)[field(drawn, 32, 4)]}));
  }
  void take_cancellation(int side, int64_t r, uint64_t drawn, const Best& best) {
    if (has_one_order(side)) return;
    outwards(side, [&](int32_t tick) {
      for (int life = 0; life < 2; ++life) {
        const int64_t weight = weight_at(side, tick, life, best);
        if (r < weight) return cancel(side, tick, life, leaving(side, tick, life, field(drawn, 36, 4), best)), true;
        r -= weight;
      }
      return false;
    });
  }
};

}  // namespace ks::tape
