// agents.h: classes of agents that users write: what such an agent sees and draws, what it returns, and what becomes of its
// order. The text of a class (kineticsim_env/agents/programs.py) is included behind this and says what it decides; how markets
// call it is each engine's own. In words: docs/model.md.
#pragma once

#include "model/agent_language.h"
#include "model/levers.h"

namespace ks {

// What an agent sees. Prices are absolute; kNoPrice, with a minus of bids, where a side is empty. The parameters are the
// market's own, as its regime has them; market_order_prob is a multiple of 2^-24.
struct AgentView {
  int32_t mid2, ret, last_price, best_bid, best_ask, best_bid_qty, best_ask_qty, t, fundamental, regime;
  int32_t max_order_qty, noise_spread, market_order_prob, maker_half_spread, taker_offset;
  Middle around;   // on the grid: what built-in agents price around
  int32_t origin;

  // The price so many ticks from there, absolute, half ticks rounded as built-in agents' are.
  KS_RULE int32_t near_mid(int32_t offset) const {
    const int32_t below = agent::add(around.tick, offset);
    return agent::add(agent::add(below, around.odd & below), origin);
  }
};

KS_RULE int32_t taker_offset_of(const MarketParams& p) { return p.levers.taker_offset; }
KS_RULE int32_t taker_offset_of(const RegimeParams& now) { return now.taker_offset; }

// What built-in agents price around, on the grid; the fundamental price is not cut to what is near the grid.
KS_RULE Middle agents_middle(const MarketParams& p, int32_t mid2, int32_t fundamental, int32_t origin, int32_t coin) {
  if (p.levers.reference == kReferenceFundamental) return {fundamental - origin, 0};
  return middle_of(mid2, p.levers.rounding != kRoundingCoin, p.levers.rounding == kRoundingCoin ? coin : 0);
}
// All that is seen but best prices. `now`: parameters as the regime has them; `mid2` is on the grid, `around` from above.
template <typename Params>
KS_RULE AgentView view_of(const Params& now, const MarketNumbers& market, const Middle& around, int32_t mid2, int32_t ret,
                          int32_t regime, int32_t t) {
  return {mid2 + 2 * market.origin, ret, market.last_tick + market.origin, -kNoPrice, kNoPrice, 0, 0, t, market.fundamental,
          regime, now.max_order_qty, now.noise_spread, now.market_order_threshold, now.maker_half_spread, taker_offset_of(now),
          around, market.origin};
}

// An agent's random words; word 0 has the fields of a built-in agent's.
struct AgentDraw {
  uint64_t first;

  KS_RULE uint64_t word(int32_t number) const { return number == 0 ? first : mix64(first + (uint64_t)number * kGolden); }
  KS_RULE int32_t coin(int32_t number) const { return word_is_buy(word(number)); }
  KS_RULE int32_t chance(int32_t threshold, int32_t number) const {
    return (int32_t)(low_half(word(number)) & 0xffffffu) < threshold;
  }
  // 0 .. n - 1, and -spread .. spread; 0 of a count or a spread that is not above 0.
  KS_RULE int32_t below(int32_t n, int32_t number) const {
    return n > 0 ? (int32_t)scaled(high_half(word(number)) & 0xffffu, (uint32_t)n) : 0;
  }
  KS_RULE int32_t offset(int32_t spread, int32_t number) const {
    if (spread <= 0) return 0;
    return (int32_t)(scaled(high_half(word(number)) >> 16, 2 * (uint32_t)spread + 1) - (uint32_t)spread);
  }
  // (u * n) >> 16 of a u of 16 bits, in 32 bits: a core takes more of these at a time.
  static KS_RULE uint32_t scaled(uint32_t u, uint32_t n) {
#ifdef __CUDA_ARCH__
    return (uint32_t)(((uint64_t)u * n) >> 16);
#else
    return u * (n >> 16) + ((u * (n & 0xffffu)) >> 16);
#endif
  }
};

// What an agent returns: an absolute price; side above 0 buys, below 0 sells, 0 is no order, nor is a quantity of 0 or less.
struct AgentOrder {
  int32_t side, tick, quantity, marketable;
};
KS_RULE AgentOrder order_of(int32_t side, int32_t tick, int32_t quantity, int32_t marketable) {
  return {side, tick, quantity, marketable};
}
KS_RULE AgentOrder no_order() { return {0, 0, 0, 0}; }

KS_RULE int32_t quantity_of(const AgentOrder& order) {
  return clamp_to(order.quantity, 0, kMostAgentQty) & -(int32_t)(order.side != 0);
}
KS_RULE int32_t sells(const AgentOrder& order) { return order.side < 0; }  // a side: 0 buys, 1 sells

// The tick on the grid of an order that is not marketable, under levers and without them; and of any order.
KS_RULE int32_t price_under_tax(const AgentOrder& order, const Pricing& pricing, int32_t origin) {
  return grid_tick(order.tick, origin) + (sells(order) ? pricing.tax : -pricing.tax);
}
KS_RULE int32_t limit_tick_of(const AgentOrder& order, const Pricing& pricing, int32_t origin) {
  return pricing.placed(sells(order), price_under_tax(order, pricing, origin));
}
KS_RULE int32_t limit_tick_of(const AgentOrder& order, int32_t levels, int32_t origin) {
  return clamp_to(order.tick, origin, ticks_above(origin, levels - 1)) - origin;
}
KS_RULE int32_t tick_of(const AgentOrder& order, const Pricing& pricing, int32_t origin) {
#ifdef __CUDA_ARCH__
  return order.marketable ? pricing.marketable(sells(order)) : limit_tick_of(order, pricing, origin);
#else  // no CPU can predict who takes: the grid's end is placed as a price is
  const int32_t takes = -(int32_t)(order.marketable != 0), end = (pricing.levels - 1) & (sells(order) - 1);
  return pricing.placed(sells(order), (price_under_tax(order, pricing, origin) & ~takes) | (end & takes));
#endif
}
KS_RULE int32_t tick_of(const AgentOrder& order, int32_t levels, int32_t origin) {
  const int32_t limit = limit_tick_of(order, levels, origin);
#ifdef __CUDA_ARCH__
  return order.marketable ? (sells(order) ? 0 : levels - 1) : limit;
#else
  const int32_t takes = -(int32_t)(order.marketable != 0);
  return (limit & ~takes) | (takes & (levels - 1) & (sells(order) - 1));
#endif
}

// Where the numbers of one class of one market are.
struct AgentNumbers {
  const int32_t* parameters;
  int32_t parameter_rows, parameter_stride;
  int32_t* memory;
  int32_t agents;

#ifdef __CUDA_ARCH__
  using Place = int32_t;
#else
  using Place = int64_t;  // as numbers of 32 bits may wrap, a core would load agents in a row one by one
#endif
  // Parameter i of an agent, and word i of its memory.
  KS_RULE int32_t parameter(Place i, int32_t agent) const {
    return parameters[i * parameter_rows + (Place)agent * parameter_stride];
  }
  KS_RULE int32_t& word(Place i, int32_t agent) const { return memory[i * agents + agent]; }
};
KS_RULE AgentNumbers agent_numbers(const Launch& launch, int64_t m, int32_t number) {
  const AgentClass& kind = launch.agents[number];
  return {launch.agent_parameters + (launch.agent_parameters_stride ? m * launch.parameter_words : 0) + kind.parameters,
          kind.parameter_stride ? kind.agents : 1, kind.parameter_stride,
          launch.agent_memory + m * launch.memory_words + kind.memory, kind.agents};
}
// The index of the first agent that users have added, and of a class's first one, among all of its market.
KS_RULE int32_t first_added_agent(const Launch& launch, const MarketParams& p) { return p.levers.num_agents - launch.added_agents; }
KS_RULE int32_t first_agent(const Launch& launch, const MarketParams& p, int32_t number) {
  return first_added_agent(launch, p) + launch.agents[number].first;
}

// Orders of some agents, a number of each in a row of its own, as compilers vectorise what is written that way.
struct AgentOrders {
  int32_t *side, *tick, *quantity, *marketable;
};

// What orders of a call auction come to: the ticks between which those lie that are not marketable; all units and those that are
// sold, of all orders and of marketable ones.
struct AgentSums {
  int32_t low, high, units, sold, units_far, sold_far;
};

// Where an order that is not marketable goes, and how many units; sells are `levels` behind buys. Nothing goes to `at` of others.
// Without branches, so that a core takes several orders at a time. One that does not count has no units.
struct PlacedOrder {
  int32_t at, units;
};
KS_RULE PlacedOrder add_order(AgentSums& sums, const AgentOrder& order, int32_t limit_tick, int32_t levels, bool counts) {
  const int32_t units = quantity_of(order) & -(int32_t)counts, sells_it = -sells(order), sold = units & sells_it;
  const int32_t waits = -(int32_t)(order.marketable == 0), limit = units & waits;
  const int32_t none = (limit - 1) >> 31;  // all bits where nothing goes to the tick
  sums.units += units, sums.sold += sold;
  sums.units_far += units & ~waits, sums.sold_far += sold & ~waits;
  sums.low = min_of(sums.low, (limit_tick & ~none) | (levels & none)), sums.high = max_of(sums.high, limit_tick & ~none);
  return {limit_tick + (levels & sells_it), limit};
}

// A grid without levers on which orders of a call auction are placed at once.
struct AgentGrid {
  int32_t levels, origin;
  AgentSums sums;
};

// Decisions of agents in a row, from `begin` on. All rows have room for a multiple of kPadding.
constexpr int32_t kPadding = 16;
struct AgentBatch {
  const AgentView* market;
  AgentNumbers numbers;
  const uint64_t* words;   // word 0 of each agent, [count]
  int32_t first;           // index of the class's first agent
  int32_t begin, count;
  AgentOrders orders;      // [count]
  AgentGrid* grid;         // null, or orders become PlacedOrders: at in `tick`, units in `quantity`
};

// The agents, or words, that one of several threads of a market takes: number `first`, and every `stride`-th after it.
struct Share {
  int32_t first, stride;
};

// Decisions at some events between which nothing changes but memory, in their order. All rows have room for a multiple of
// kPadding; what is too much of `agents` are agents that there are.
struct AgentArrivals {
  const AgentView* market;  // but for t
  AgentNumbers numbers;
  int32_t first;            // index of the class's first agent
  int32_t count;
  const uint64_t* words;    // the events', [count]
  const int32_t* agents;    // who comes, [count]
  const int32_t* events;    // which t is, [count]
  AgentOrders orders;       // [count]
};

// What the C++ engine calls of a class: decisions of some agents, of some at events, and of one at an event; the memory of a
// new episode.
struct AgentFunctions {
  void (*play)(const AgentBatch&);
  void (*arrive)(const AgentArrivals&);
  AgentOrder (*decide)(const AgentView&, const AgentNumbers&, uint64_t word, int32_t first, int32_t agent);
  void (*open)(const AgentView&, const AgentNumbers&, const Share&);
  int32_t sees_book;       // whether it looks at best prices or their quantities
};

// What follows from the text of a class, a `Trader`. Locals, as the compiler must assume that what is written aliases all else.
// kStride is the batch's parameter_stride. What an agent decides touches no other's numbers, which a compiler cannot know.
#if defined(__clang__)
#define KS_INDEPENDENT_LOOP _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define KS_INDEPENDENT_LOOP _Pragma("GCC ivdep")
#else
#define KS_INDEPENDENT_LOOP
#endif
template <typename Trader, int32_t kStride>
KS_RULE void play_row(const AgentBatch& batch) {
  const AgentView market = *batch.market;
  const AgentNumbers all = batch.numbers;
  // From the batch's first agent on.
  const int32_t first = batch.first + batch.begin, count = batch.count;
  const AgentNumbers numbers = {all.parameters + (int64_t)batch.begin * kStride, kStride ? all.parameter_rows : 1, kStride,
                                Trader::kRemembers ? all.memory + batch.begin : nullptr, all.agents};
  const AgentOrders to = batch.orders;
  const uint64_t* const words = batch.words;
  // Without remainders that are no multiple, where an agent that there is not is like any other.
  const bool alike = !Trader::kRemembers && kStride == 0;
  const int32_t padded = alike ? (count + kPadding - 1) & -kPadding : count;
  if (batch.grid) {
    const int32_t levels = batch.grid->levels, origin = batch.grid->origin;
    AgentSums sums = batch.grid->sums;
    KS_INDEPENDENT_LOOP
    for (int32_t i = 0; i < padded; ++i) {
      const AgentOrder order = Trader::decide(market, {words[i]}, first, numbers, i);
      const PlacedOrder placed = add_order(sums, order, limit_tick_of(order, levels, origin), levels, i < count);
      to.tick[i] = placed.at, to.quantity[i] = placed.units;
    }
    batch.grid->sums = sums;
    return;
  }
  KS_INDEPENDENT_LOOP
  for (int32_t i = 0; i < padded; ++i) {
    const AgentOrder order = Trader::decide(market, {words[i]}, first, numbers, i);
    to.side[i] = order.side, to.tick[i] = order.tick;
    to.quantity[i] = order.quantity, to.marketable[i] = order.marketable;
  }
}
template <typename Trader>
KS_RULE void play_agents(const AgentBatch& batch) {
  if (batch.numbers.parameter_stride) play_row<Trader, 1>(batch);
  else play_row<Trader, 0>(batch);
}
template <typename Trader, int32_t kStride>
KS_RULE void arrive_row(const AgentArrivals& arrivals) {
  const AgentView market = *arrivals.market;
  const AgentNumbers all = arrivals.numbers;
  const AgentNumbers numbers = {all.parameters, kStride ? all.parameter_rows : 1, kStride, all.memory, all.agents};
  const AgentOrders to = arrivals.orders;
  const uint64_t* const words = arrivals.words;
  const int32_t *const agents = arrivals.agents, *const events = arrivals.events;
  const int32_t first = arrivals.first, count = arrivals.count;
  const auto arrive = [&](int32_t i) {
    AgentView seen = market;
    seen.t = events[i];
    const AgentOrder order = Trader::decide(seen, {words[i]}, first, numbers, agents[i]);
    to.side[i] = order.side, to.tick[i] = order.tick;
    to.quantity[i] = order.quantity, to.marketable[i] = order.marketable;
  };
  if (Trader::kRemembers) {  // one after another, as an agent may come twice
    for (int32_t i = 0; i < count; ++i) arrive(i);
    return;
  }
  const int32_t padded = (count + kPadding - 1) & -kPadding;
  KS_INDEPENDENT_LOOP
  for (int32_t i = 0; i < padded; ++i) arrive(i);
}
template <typename Trader>
KS_RULE void arrive_agents(const AgentArrivals& arrivals) {
  if (arrivals.numbers.parameter_stride) arrive_row<Trader, 1>(arrivals);
  else arrive_row<Trader, 0>(arrivals);
}
template <typename Trader>
KS_RULE AgentOrder decide_at_event(const AgentView& market, const AgentNumbers& numbers, uint64_t word, int32_t first,
                                   int32_t agent) {
  return Trader::decide(market, {word}, first, numbers, agent);
}
template <typename Trader>
KS_RULE void open_agents(const AgentView& market, const AgentNumbers& numbers, const Share& share) {
  for (int32_t agent = share.first; agent < numbers.agents; agent += share.stride) Trader::begin(market, numbers, agent);
}
#if !defined(__CUDACC__) && !defined(__CUDACC_RTC__)
template <typename Trader>
inline constexpr AgentFunctions kFunctionsOf = {play_agents<Trader>, arrive_agents<Trader>, decide_at_event<Trader>,
                                                open_agents<Trader>, Trader::kSeesBook};
#endif

}  // namespace ks
