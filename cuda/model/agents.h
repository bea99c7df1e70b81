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
    return n > 0 ? (int32_t)(((uint64_t)(high_half(word(number)) & 0xffffu) * (uint32_t)n) >> 16) : 0;
  }
  KS_RULE int32_t offset(int32_t spread, int32_t number) const {
    if (spread <= 0) return 0;
    const uint64_t ticks = 2 * (uint64_t)(uint32_t)spread + 1;
    return (int32_t)((int64_t)(((high_half(word(number)) >> 16) * ticks) >> 16) - spread);
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

constexpr int32_t kMostAgentQty = 65535;

KS_RULE int32_t quantity_of(const AgentOrder& order) {
  return order.side != 0 ? clamp_to(order.quantity, 0, kMostAgentQty) : 0;
}
KS_RULE int32_t sells(const AgentOrder& order) { return order.side < 0; }  // a side: 0 buys, 1 sells

// The tick on the grid of an order, under levers and without them.
KS_RULE int32_t tick_of(const AgentOrder& order, const Pricing& pricing, int32_t origin) {
  const int32_t side = sells(order);
  if (order.marketable) return pricing.marketable(side);
  return pricing.placed(side, grid_tick(order.tick, origin) + (side ? pricing.tax : -pricing.tax));
}
KS_RULE int32_t tick_of(const AgentOrder& order, int32_t levels, int32_t origin) {
  if (order.marketable) return sells(order) ? 0 : levels - 1;
  return clamp_to(order.tick, origin, ticks_above(origin, levels - 1)) - origin;
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
// The index of a class's first agent among all of its market.
KS_RULE int32_t first_agent(const Launch& launch, const MarketParams& p, int32_t number) {
  return p.num_agents - launch.added_agents + launch.agents[number].first;
}

// What the C++ engine calls of a class: decisions of agents `begin` to `end`, and the memory of a new episode.
struct AgentBatch {
  const AgentView* market;
  AgentNumbers numbers;
  uint64_t counter, step;  // of the random word of agent `begin`, and from one agent's to the next
  int32_t first;           // index of the class's first agent
  int32_t begin, end;
  AgentOrder* orders;      // [end - begin]
};
using PlayAgents = void (*)(const AgentBatch*);
using OpenAgents = void (*)(const AgentView*, const AgentNumbers*);

// What follows from the text of a class: `Trader` has decide() and begin() for one agent.
template <typename Trader>
KS_RULE void play_agents(const AgentBatch& batch) {
  for (int32_t agent = batch.begin; agent < batch.end; ++agent) {
    const AgentDraw draw = {mix64(batch.counter + (uint64_t)(agent - batch.begin) * batch.step)};
    batch.orders[agent - batch.begin] = Trader::decide(*batch.market, draw, batch.first, batch.numbers, agent);
  }
}
template <typename Trader>
KS_RULE void open_agents(const AgentView& market, const AgentNumbers& numbers) {
  for (int32_t agent = 0; agent < numbers.agents; ++agent) Trader::begin(market, numbers, agent);
}

}  // namespace ks
