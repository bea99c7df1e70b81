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

// What built-in agents price around, on the grid; the fundamental price is not cut to what is near the grid.
KS_RULE Middle agents_middle(const MarketParams& p, int32_t mid2, int32_t fundamental, int32_t origin, int32_t coin) {
  if (p.reference == kReferenceFundamental) return {fundamental - origin, 0};
  return middle_of(mid2, p.rounding != kRoundingCoin, p.rounding == kRoundingCoin ? coin : 0);
}
// All that is seen but best prices. `now`: parameters as the regime has them; `mid2` is on the grid, `around` from above.
template <typename Params>
KS_RULE AgentView view_of(const Params& now, const MarketNumbers& market, const Middle& around, int32_t mid2, int32_t ret,
                          int32_t regime, int32_t t) {
  return {mid2 + 2 * market.origin, ret, market.last_tick + market.origin, -kNoPrice, kNoPrice, 0, 0, t, market.fundamental,
          regime, now.max_order_qty, now.noise_spread, now.market_order_threshold, now.maker_half_spread, now.taker_offset,
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
  static KS_RULE uint32_t scaled(uint32_t u, uint32_t n) { return u * (n >> 16) + ((u * (n & 0xffffu)) >> 16); }
};

// What an agent returns: an absolute price; side above 0 buys, below 0 sells, 0 is no order, nor is a quantity of 0 or less.
struct AgentOrder {
  int32_t side, tick, quantity, marketable;
};
KS_RULE AgentOrder order_of(int32_t side, int32_t tick, int32_t quantity, int32_t marketable) {
  return {side, tick, quantity, marketable};
}
KS_RULE AgentOrder no_order() { return {0, 0, 0, 0}; }

constexpr int32_t kMostAgentQty = 65535;

KS_RULE int32_t quantity_of(const AgentOrder& order) {
  return clamp_to(order.quantity, 0, kMostAgentQty) & -(int32_t)(order.side != 0);
}
KS_RULE int32_t sells(const AgentOrder& order) { return order.side < 0; }  // a side: 0 buys, 1 sells

// The tick on the grid of an order that is not marketable, under levers and without them; and of any order.
KS_RULE int32_t limit_tick_of(const AgentOrder& order, const Pricing& pricing, int32_t origin) {
  const int32_t side = sells(order);
  return pricing.placed(side, grid_tick(order.tick, origin) + (side ? pricing.tax : -pricing.tax));
}
KS_RULE int32_t limit_tick_of(const AgentOrder& order, int32_t levels, int32_t origin) {
  return clamp_to(order.tick, origin, ticks_above(origin, levels - 1)) - origin;
}
KS_RULE int32_t tick_of(const AgentOrder& order, const Pricing& pricing, int32_t origin) {
  return order.marketable ? pricing.marketable(sells(order)) : limit_tick_of(order, pricing, origin);
}
KS_RULE int32_t tick_of(const AgentOrder& order, int32_t levels, int32_t origin) {
  const int32_t limit = limit_tick_of(order, levels, origin);
#ifdef __CUDA_ARCH__
  return order.marketable ? (sells(order) ? 0 : levels - 1) : limit;
#else  // no CPU can predict who takes
  const int32_t takes = -(int32_t)(order.marketable != 0);
  return (limit & ~takes) | (takes & (levels - 1) & (sells(order) - 1));
#endif
}

// Where the numbers of one class of one market are: of parameter i of agent a parameters[i * parameter_rows + a *
// parameter_stride], of word i of its memory memory[i * agents + a].
struct AgentNumbers {
  const int32_t* parameters;
  int32_t parameter_rows, parameter_stride;
  int32_t* memory;
  int32_t agents;
};
KS_RULE AgentNumbers agent_numbers(const Launch& launch, int64_t m, int32_t number) {
  const AgentClass& kind = launch.agents[number];
  return {launch.agent_parameters + (launch.agent_parameters_stride ? m * launch.parameter_words : 0) + kind.parameters,
          kind.parameter_stride ? kind.agents : 1, kind.parameter_stride,
          launch.agent_memory + m * launch.memory_words + kind.memory, kind.agents};
}
// The index of the first agent that users have added, and of a class's first one, among all of its market.
KS_RULE int32_t first_added_agent(const Launch& launch, const MarketParams& p) { return p.num_agents - launch.added_agents; }
KS_RULE int32_t first_agent(const Launch& launch, const MarketParams& p, int32_t number) {
  return first_added_agent(launch, p) + launch.agents[number].first;
}

// Orders of some agents, a number of each in a row of its own, as compilers vectorise what is written that way.
struct AgentOrders {
  int32_t *side, *tick, *quantity, *marketable;
};

// What the C++ engine calls of a class: some decisions, and the memory of a new episode. Agents come in a row from `begin` on;
// or at events, `agents[i]` at event `times[i]`, one after another.
struct AgentBatch {
  const AgentView* market;
  AgentNumbers numbers;
  const uint64_t* words;   // word 0 of each agent, [count]
  const int32_t *agents, *times;  // [count] or null
  int32_t first;           // index of the class's first agent
  int32_t begin, count;
  AgentOrders orders;      // [count]
};
using PlayAgents = void (*)(const AgentBatch*);
using OpenAgents = void (*)(const AgentView*, const AgentNumbers*);

// What follows from the text of a class: `Trader` has decide() and begin() for one agent.
template <typename Trader>
KS_RULE void play_agents(const AgentBatch& batch) {
  AgentView market = *batch.market;  // locals, as the compiler must assume that what is written aliases them
  const AgentNumbers numbers = batch.numbers;
  const AgentOrders to = batch.orders;
  const uint64_t* const words = batch.words;
  const int32_t first = batch.first, begin = batch.begin, count = batch.count;
  if (batch.agents) {
    for (int32_t i = 0; i < count; ++i) {
      market.t = batch.times[i];
      const AgentOrder order = Trader::decide(market, {words[i]}, first, numbers, batch.agents[i]);
      to.side[i] = order.side, to.tick[i] = order.tick;
      to.quantity[i] = order.quantity, to.marketable[i] = order.marketable;
    }
    return;
  }
  for (int32_t i = 0; i < count; ++i) {
    const AgentOrder order = Trader::decide(market, {words[i]}, first, numbers, begin + i);
    to.side[i] = order.side, to.tick[i] = order.tick;
    to.quantity[i] = order.quantity, to.marketable[i] = order.marketable;
  }
}
template <typename Trader>
KS_RULE void open_agents(const AgentView& market, const AgentNumbers& numbers) {
  for (int32_t agent = 0; agent < numbers.agents; ++agent) Trader::begin(market, numbers, agent);
}

}  // namespace ks
