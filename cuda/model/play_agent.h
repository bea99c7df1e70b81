// play_agent.h: whether a market has agents that users have added, the decision of one of them, and what they remember as an
// episode begins. A kernel has the classes' text compiled in (KS_AGENTS, included before this file); the C++ engine calls them
// through the addresses that its launch has.
#pragma once

#include "model/agents.h"

namespace ks {

// Templates of a class's number below go on with the next class; NVRTC takes no lambda whose argument is of any type.
template <int kNumber>
struct Trader;
#ifdef KS_AGENTS
constexpr int kAddedClasses = kTraders;
#else
constexpr int kAddedClasses = 0;
#endif

// Whether some class that is compiled in has memory, and whether some looks at best prices or their quantities.
template <int kNumber = 0>
KS_RULE constexpr bool some_remember() {
  if constexpr (kNumber < kAddedClasses) return Trader<kNumber>::kRemembers || some_remember<kNumber + 1>();
  return false;
}
template <int kNumber = 0>
KS_RULE constexpr bool some_look() {
  if constexpr (kNumber < kAddedClasses) return Trader<kNumber>::kSeesBook || some_look<kNumber + 1>();
  return false;
}
constexpr bool kAddedRemember = some_remember(), kAddedSeeBook = some_look();

#if defined(KS_AGENTS) || defined(__CUDACC__) || defined(__CUDACC_RTC__)

constexpr bool kMayHaveAgents = kAddedClasses > 0;
KS_RULE bool has_added_agents(const Launch&) { return kMayHaveAgents; }
KS_RULE constexpr bool some_see_book(const Launch&) { return kAddedSeeBook; }

// The order of the agent at `place` among all that are added, of an event's word; inactive ones have none.
template <int kNumber = 0>
KS_RULE AgentOrder decide(const Launch& launch, int64_t m, const MarketParams& p, int32_t place, const AgentView& view,
                          uint64_t word) {
  if constexpr (kNumber < kAddedClasses) {
    const int32_t agent = place - launch.agents[kNumber].first;
    if ((uint32_t)agent >= (uint32_t)launch.agents[kNumber].active)
      return decide<kNumber + 1>(launch, m, p, place, view, word);
    return Trader<kNumber>::decide(view, {word}, first_agent(launch, p, kNumber), agent_numbers(launch, m, kNumber), agent);
  }
  return no_order();
}
template <int kNumber = 0>
KS_RULE void open_memory(const Launch& launch, int64_t m, const AgentView& view, const Share& share) {
  if constexpr (kNumber < kAddedClasses) {
    if (Trader<kNumber>::kRemembers) open_agents<Trader<kNumber>>(view, agent_numbers(launch, m, kNumber), share);
    open_memory<kNumber + 1>(launch, m, view, share);
  }
}

#else

constexpr bool kMayHaveAgents = true;
KS_RULE bool has_added_agents(const Launch& launch) { return __builtin_expect(launch.agent_classes > 0, 0); }
inline const AgentFunctions& functions_of(const AgentClass& kind) {
  return *reinterpret_cast<const AgentFunctions*>(kind.functions);
}
inline bool some_see_book(const Launch& launch) {
  bool some = false;
  for (int32_t number = 0; number < launch.agent_classes; ++number) some |= functions_of(launch.agents[number]).sees_book != 0;
  return some;
}
inline void open_memory(const Launch& launch, int64_t m, const AgentView& view, const Share& share) {
  for (int32_t number = 0; number < launch.agent_classes; ++number)
    functions_of(launch.agents[number]).open(view, agent_numbers(launch, m, number), share);
}

#endif

// Agents that decide one at a time, at events. `view` is what they see; who calls them keeps it up to date.
struct LiveAgents {
  AgentView view;
  const Launch& launch;
  const int64_t m;
  const MarketParams& p;
  const bool sees_book;
#if defined(KS_AGENTS) || defined(__CUDACC__) || defined(__CUDACC_RTC__)

  KS_RULE LiveAgents(const Launch& launch, int64_t m, const MarketParams& p, const AgentView& view)
      : view(view), launch(launch), m(m), p(p), sees_book(some_see_book(launch)) {}

  KS_RULE AgentOrder play(int32_t place, uint64_t word) const { return decide(launch, m, p, place, view, word); }
#else
  AgentNumbers numbers[kMostAgentClasses];
  int32_t first_added;

  LiveAgents(const Launch& launch, int64_t m, const MarketParams& p, const AgentView& seen)
      : view(seen), launch(launch), m(m), p(p), sees_book(some_see_book(launch)), first_added(first_added_agent(launch, p)) {
    for (int32_t number = 0; number < launch.agent_classes; ++number) numbers[number] = agent_numbers(launch, m, number);
  }

  AgentOrder play(int32_t place, uint64_t word) const {
    for (int32_t number = 0; number < launch.agent_classes; ++number) {
      const AgentClass& kind = launch.agents[number];
      const int32_t agent = place - kind.first;
      if ((uint32_t)agent < (uint32_t)kind.active)
        return functions_of(kind).decide(view, numbers[number], word, first_added + kind.first, agent);
    }
    return no_order();
  }
#endif
};

// Episodes -------------------------------------------------------------------------------------------------------------

// A row of words, as far as it is this thread's share.
KS_RULE void copy_words(int32_t* to, int64_t to_row, const int32_t* from, int64_t from_row, int32_t words, const Share& share) {
  for (int32_t i = share.first; i < words; i += share.stride) to[to_row * words + i] = from[from_row * words + i];
}
// What is seen of the opening book, as far as memory can begin with it.
KS_RULE AgentView opening_view(const MarketParams& p, int32_t regime, bool flow) {
  AgentView view = {};
  const bool rests = p.init_depth > 0 || flow;
  const int32_t above = flow ? 0 : 1;  // the book of an order flow has a spread of one tick
  view.mid2 = 2 * p.init_price - 1 + above, view.last_price = p.init_price;
  view.best_bid = rests ? p.init_price - 1 : -kNoPrice, view.best_ask = rests ? p.init_price + above : kNoPrice;
  view.best_bid_qty = view.best_ask_qty = p.init_depth;
  view.fundamental = p.fundamental_price, view.regime = regime;
  return view;
}

// Of a market that begins an episode: from its warm start's row, or from the opening book.
KS_RULE void begin_memory(const Launch& launch, const TaskParams& task, int64_t m, const MarketParams& p, int32_t regime,
                          int64_t bank_row, const Share& share = {0, 1}) {
  if (!has_added_agents(launch) || launch.memory_words == 0) return;
  if (task.bank_size == 0) {
    open_memory(launch, m, opening_view(p, regime, launch.flow_table != nullptr), share);
    return;
  }
  if (launch.bank_memory) copy_words(launch.agent_memory, m, launch.bank_memory, bank_row, launch.memory_words, share);
}
// Take up a scenario's parameters of these agents.
KS_RULE void enter_scenario(const Launch& launch, int64_t m, int32_t scenario, const Share& share = {0, 1}) {
  if (!has_added_agents(launch) || !launch.scenario_agent_parameters) return;
  copy_words(launch.agent_parameters, m, launch.scenario_agent_parameters, scenario, launch.parameter_words, share);
}

}  // namespace ks
