// market.h: a market order by order: its state, who decides what, and what a beat does. call.h and continuous.h play intervals.
//
// It is the C++ engine's market played a second time, serially and with every order apart; the rules are model/'s. tape.cpp
// compares both after every interval, so a tape that is handed out is what the engine played.
#pragma once

#include <cstring>
#include <memory>

#include "model/auction.h"
#include "model/play_agent.h"
#include "tape/book.h"

namespace ks::tape {

// What an agent orders; no order if there is no quantity.
struct Coming {
  int32_t agent, side, tick, quantity;
  uint8_t marketable, who;
};

struct TapeMarket : MarketNumbers {
  Launch launch;  // of this market alone, with a copy of what agents remember
  const MarketParams p;
  const int levels, slots, ladder, per_slot, quoted;  // levels of a slot's ladder; quotes of a slot, and of all
  std::vector<int32_t> memory;
  RegimeParams now;
  Pricing pricing;
  int32_t regime, ret, beat_price;
  int64_t volume, trades;
  uint64_t g = 0;  // the next event
  OrderBook book;
  Quote quotes[2 * kMaxOrders];
  Account accounts[kMaxSlots];
  int32_t aheads[2 * kMaxOrders][2];
  int64_t moments[2 * kMaxOrders][2], ids[2 * kMaxOrders][2];
  Rows rows;
  std::unique_ptr<LiveAgents> agents;

  explicit TapeMarket(const Launch& of)
      : MarketNumbers(numbers_of(of, 0)), launch(of), p(of.params[0]), levels(of.levels), slots(of.slots),
        ladder(of.orders_per_side), per_slot(ladder > 1 ? 2 * ladder : 1), quoted(slots * per_slot),
        regime(of.regime ? of.regime[0] : 0), ret(of.ret ? of.ret[0] : 0),
        beat_price(of.beat_price ? of.beat_price[0] : 0), volume(of.volume[0]), trades(of.trades[0]), book(of.levels) {
    if (of.agent_memory) {
      memory.assign(of.agent_memory, of.agent_memory + of.memory_words);
      launch.agent_memory = memory.data();
    }
    now = parameters_in_force(p, of.regimes, regime);
    for (int k = 0; k < slots; ++k) accounts[k] = {of.cash[k], of.inventory[k], of.fees[k]};
    for (int j = 0; j < quoted; ++j) {
      std::memcpy(&quotes[j], of.quotes + 4 * j, sizeof(Quote));
      for (int side = 0; side < 2; ++side) {
        aheads[j][side] = of.queue ? of.queue[2 * j + side] : 0;
        moments[j][side] = of.moments ? of.moments[2 * j + side] : 0;
        ids[j][side] = 0;
      }
    }
    agents = std::make_unique<LiveAgents>(launch, 0, p, AgentView{});
  }
  TapeMarket(const TapeMarket&) = delete;
  virtual ~TapeMarket() = default;

  // One interval. `fresh` are quotes of a decision that begins with it, [K], or of ladders [K, N], or null; `flags` are theirs, or null.
  virtual void interval(const Quote* fresh, const int32_t* flags) = 0;

  bool on_clock() const { return launch.arrivals != kArrivalsEach; }
  bool continuous() const { return launch.mechanism == kMechanismContinuous; }

  void begin_interval() {
    rows.interval = t;
    if (!on_clock()) return void(rows.event = rows.time = t);
    set_event(first_event());
    set_pricing(grid_tick(beat_price, origin), (int64_t)(g / (uint32_t)p.levers.beat));
  }
  void set_event(uint64_t event) {
    g = event;
    rows.event = (int64_t)event, rows.time = time();
  }
  virtual uint64_t first_event() const { return (uint64_t)(uint32_t)t * (uint32_t)p.levers.interval; }  // of an interval
  virtual int64_t time() const { return (int64_t)g; }
  void set_pricing(int32_t last, int64_t beat) {
    const int32_t coin = p.levers.rounding == kRoundingCoin ? word_coin(random_word(key, beat, kWalkWord)) : 0;
    pricing = pricing_of(p, levels, origin, fundamental, last, coin);
  }

  // What rests as the tape begins: of agents one order per tick, cut where quotes have their places; numbered as they queue.
  virtual void open(const int32_t* bid, const int32_t* ask) {
    begin_interval();
    if (!on_clock()) set_pricing(last_tick, t);
    for (int side = 0; side < 2; ++side) {
      for (int32_t i = 0; i < levels; ++i) open_tick(side, side ? i : levels - 1 - i, side ? ask : bid);
      for (int j = 0; j < quoted; ++j)
        if (ids[j][side] == 0) submit_quote(j, side);  // off the grid
    }
  }
  void open_tick(int side, int32_t tick, const int32_t* row) {
    int32_t left = row[tick];
    const int32_t all = left;
    for (int next = 0; next >= 0;) {
      next = next_quote(side, [&](int j) { return ids[j][side] == 0 && quote_tick(j, side) == tick; });
      const int32_t part = next < 0 ? left : std::min(left, std::max(0, aheads[next][side] - (all - left)));
      if (part > 0) {
        const Order order = {++rows.orders, t, -1, part, kResting, 0};
        rows.submit(order, side, tick + origin);
        book.rest(side, tick, order);
        left -= part;
      }
      if (next >= 0) submit_quote(next, side);
    }
  }

  // Quotes -----------------------------------------------------------------------------------------------------------

  int slot_of(int j) const { return j / per_slot; }
  int32_t quantity(int j, int side) const { return side ? quotes[j].ask_qty : quotes[j].bid_qty; }
  int32_t price(int j, int side) const { return side ? quotes[j].ask_price : quotes[j].bid_price; }
  void set_price(int j, int side, int32_t x) { (side ? quotes[j].ask_price : quotes[j].bid_price) = x; }
  void set_quantity(int j, int side, int32_t x) {
    (side ? quotes[j].ask_qty : quotes[j].bid_qty) = x;
    if (x == 0) aheads[j][side] = 0, moments[j][side] = 0;
  }
  Order quote_order(int j, int side) const { return {ids[j][side], t, slot_of(j), quantity(j, side), kSlot, 0}; }

  // A side of a slot comes as an order of its own.
  void submit_quote(int j, int side) {
    if (quantity(j, side) <= 0) return;
    ids[j][side] = ++rows.orders;
    rows.submit(quote_order(j, side), side, price(j, side));
  }
  // So many units of it go.
  void withdraw(int j, int side, int32_t units, Reason reason) {
    if (units <= 0) return;
    const int32_t at = price(j, side);
    set_quantity(j, side, quantity(j, side) - units);
    rows.cancel(quote_order(j, side), side, at, units, reason);
  }

  // Of the quotes that `among` holds for that with the least ahead, or the earliest of several; -1: there is none.
  template <typename Among>
  int next_quote(int side, const Among& among) const {
    int next = -1;
    for (int j = 0; j < quoted; ++j) {
      if (!among(j)) continue;
      const bool sooner = next < 0 || aheads[j][side] < aheads[next][side] ||
                          (aheads[j][side] == aheads[next][side] && moments[j][side] < moments[next][side]);
      if (sooner) next = j;
    }
    return next;
  }

  // The tick at which a standing quote takes part, or -1.
  int32_t quote_tick(int j, int side) const {
    const int32_t tick = price(j, side) - origin;
    if (quantity(j, side) <= 0 || (side ? tick >= levels : tick < 0)) return -1;
    if (continuous()) return tick >= 0 && tick < levels ? tick : -1;
    return pricing.nearest_multiple(tick);
  }
  BestPrices best_prices() const {
    BestPrices best = {book.best[0], book.best[1]};
    for (int j = 0; j < quoted; ++j) {
      best.bid = std::max(best.bid, quote_tick(j, 0));
      const int32_t tick = quote_tick(j, 1);
      if (tick >= 0) best.ask = std::min(best.ask, tick);
    }
    return best;
  }
  int32_t mid2() const {
    const BestPrices best = best_prices();
    return best.bid >= 0 && best.ask != kNoTick ? best.bid + best.ask : 2 * last_tick;
  }
  int32_t units_at(int side, int32_t tick) const {
    int32_t units = book.units[side][(std::size_t)tick];
    for (int j = 0; j < quoted; ++j) units += quote_tick(j, side) == tick ? quantity(j, side) : 0;
    return units;
  }

  // Orders -----------------------------------------------------------------------------------------------------------

  // What added agents see now; `number` is the auction's or the event's.
  void look(int64_t number, int32_t mid) {
    AgentView view = view_of(now, *this, agents_middle(p, mid, fundamental, origin, pricing.coin), mid, ret, regime,
                             (int32_t)number);
    const BestPrices best = best_prices();
    if (best.bid >= 0) view.best_bid = best.bid + origin, view.best_bid_qty = units_at(0, best.bid);
    if (best.ask != kNoTick) view.best_ask = best.ask + origin, view.best_ask_qty = units_at(1, best.ask);
    agents->view = view;
  }

  Coming built_in_order(int32_t agent, uint8_t who, int64_t number, uint64_t word, int32_t mid) const {
    bool buys = word_is_buy(word);
    int32_t offset = who == kMaker ? -now.maker_half_spread : now.taker_offset;
    if (who == kNoise) offset = word_offset(word, now.noise_spread);
    if (who == kMomentum) buys = directional_buys(ret, word);
    if (who == kMaker) buys = maker_buys(agent, number);
    if (who == kFundamental) buys = directional_buys(fundamental_direction(fundamental, mid, origin), word);
    if (who != kNoise && !buys) offset = -offset;
    const bool marketable = who != kMaker && word_is_marketable(word, now.market_order_threshold);
    const int32_t side = !buys, tick = marketable ? pricing.marketable(side) : pricing.limit(pricing.middle(mid), side, offset);
    return {agent, side, tick, word_quantity(word, now.max_order_qty), marketable, who};
  }
  // `look` has been called for this moment.
  Coming added_order(int32_t agent, uint64_t word) const {
    const int32_t place = agent - first_added_agent(launch, p);
    int32_t number = 0;
    while (place >= launch.agents[number].first + launch.agents[number].agents) ++number;
    const AgentOrder order = agents->play(place, word);
    return {agent, sells(order), ks::tick_of(order, pricing, origin), quantity_of(order), order.marketable != 0,
            (uint8_t)(kAdded + number)};
  }

  // Who comes at event g, and what it orders.
  Coming coming(int32_t mid) {
    const uint64_t pair = random_word(key, (int64_t)(g >> 1), kWhoWord), word = random_word(key, (int64_t)g, 0);
    const int32_t agent = who_comes(p, g & 1 ? high_half(pair) : low_half(pair));
    const int32_t first[4] = {0, p.first_momentum, p.first_maker, p.first_fundamental};
    const int32_t count[4] = {p.num_noise, p.num_momentum, p.num_maker, p.num_fundamental};
    for (uint8_t who = 0; who < 4; ++who)
      if (agent >= first[who] && agent < first[who] + count[who]) return built_in_order(agent, who, (int64_t)g, word, mid);
    if (launch.agent_classes == 0 || agent < first_added_agent(launch, p)) return {};  // inactive
    look((int64_t)g, mid);
    return added_order(agent, word);
  }

  Order numbered(const Coming& order) { return {++rows.orders, t, order.agent, order.quantity, order.who, order.marketable}; }

  // A beat -----------------------------------------------------------------------------------------------------------

  void change_regime_and_fundamental(int64_t beat) {
    if (p.levers.regimes > 0) {
      regime = regime_at(p, key, beat, regime);
      now = parameters_in_force(p, launch.regimes, regime);
    }
    if ((now.walk_threshold | now.jump_threshold) != 0)
      fundamental = walk_fundamental(now, random_word(key, beat, kWalkWord), fundamental);
  }

  int32_t loss_at(int64_t beat, int side, int32_t tick, int32_t q) const {
    const uint64_t word = random_word(key, beat, kCancelWord + (uint64_t)(tick / 2));
    return cancelled(q, now.cancel_threshold, tick & 1 ? high_half(word) : low_half(word), side);
  }
  // Half of the word that says what those in a queue lose to cancellation.
  uint32_t place_half(int64_t beat, int side) const {
    const uint64_t word = random_word(key, beat, kPlaceWord);
    return side ? high_half(word) : low_half(word);
  }
  void lose(OrderBook& from, int side, int32_t tick, int32_t loss, uint32_t u32) {
    from.lose(side, tick, loss, u32, [&](const Order& order, int32_t units) {
      rows.cancel(order, side, tick + origin, units, kCancelled);
    });
  }

  // Move the grid by `shift` ticks; what leaves it is gone.
  void move_grid(int32_t shift) {
    book.shift(shift, [&](int side, int32_t tick, const Order& order) {
      Order gone = order;
      gone.left = 0;
      rows.cancel(gone, side, tick + origin, order.left, kLeftGrid);
    });
  }
  // On the clock. Returns whether it moved.
  bool follow_mid() {
    const int32_t shift = window_shift(p, mid2(), levels);
    if (shift == 0) return false;
    move_grid(shift);
    origin += shift, last_tick -= shift, prev_mid2 -= 2 * shift;
    set_pricing(grid_tick(beat_price, origin), (int64_t)(g / (uint32_t)p.levers.beat));
    return true;
  }
  void take_return() {
    const int32_t mid = mid2();
    ret = (mid > prev_mid2) - (mid < prev_mid2);
    prev_mid2 = mid;
  }

  // The engine's ------------------------------------------------------------------------------------------------------

  // The name of what the engine has otherwise; null if all is the same.
  virtual const char* difference(const Launch& engine) const {
    for (int side = 0; side < 2; ++side)
      if (std::memcmp(side ? engine.ask : engine.bid, book.units[side].data(), (std::size_t)levels * sizeof(int32_t)) != 0)
        return side ? "ask" : "bid";
    if (engine.t[0] != t) return "t";
    if (engine.prev_mid2[0] != prev_mid2) return "prev_mid2";
    if (engine.last_tick[0] != last_tick) return "last_tick";
    if (engine.price_origin[0] != origin) return "price_origin";
    if (engine.fundamental_price[0] != fundamental) return "fundamental_price";
    if (engine.volume[0] != volume) return "volume";
    if (engine.trades[0] != trades) return "trades";
    if (engine.regime && engine.regime[0] != regime) return "regime";
    if (engine.ret && engine.ret[0] != ret) return "ret";
    if (engine.beat_price && engine.beat_price[0] != beat_price) return "beat_price";
    for (int k = 0; k < slots; ++k) {
      if (engine.cash[k] != accounts[k].cash) return "cash";
      if (engine.inventory[k] != accounts[k].inventory) return "inventory";
      if (engine.fees[k] != accounts[k].fees) return "fees";
    }
    for (int j = 0; j < quoted; ++j) {
      if (std::memcmp(engine.quotes + 4 * j, &quotes[j], sizeof(Quote)) != 0) return "quotes";
      for (int side = 0; side < 2; ++side) {
        if (engine.queue && engine.queue[2 * j + side] != aheads[j][side]) return "queue";
        if (engine.moments && engine.moments[2 * j + side] != moments[j][side]) return "moments";
      }
    }
    const std::size_t bytes = memory.size() * sizeof(int32_t);
    return bytes > 0 && std::memcmp(engine.agent_memory, memory.data(), bytes) != 0 ? "agent_memory" : nullptr;
  }
};

}  // namespace ks::tape
