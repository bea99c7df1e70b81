// play_agent.h: whether a market has agents that users have added, the decision of one of them, and what they remember as an
// episode begins. A kernel has the classes' text compiled in (KS_AGENTS, included before this file); the C++ engine calls them
// through the addresses that its launch has.
#pragma once

#include "model/agents.h"

namespace ks {

#ifdef KS_AGENTS  // how many classes there are

constexpr bool kMayHaveAgents = true;
KS_RULE bool has_added_agents(const Launch&) { return true; }

// Whether some class looks at best prices or their quantities.
template <int kNumber = 0>
KS_RULE constexpr bool some_see_book(const Launch& launch) {
  if constexpr (kNumber < kTraders) return Trader<kNumber>::kSeesBook || some_see_book<kNumber + 1>(launch);
  else return false;
}

// The order of the agent at `place` among all that are added, of an event's word; silent ones have none.
template <int kNumber = 0>
KS_RULE AgentOrder decide(const Launch& launch, int64_t m, const MarketParams& p, int32_t place, const AgentView& view,
                          uint64_t word) {
  if constexpr (kNumber < kTraders) {
    const int32_t agent = place - launch.agents[kNumber].first;
    if ((uint32_t)agent >= (uint32_t)launch.agents[kNumber].speaking)
      return decide<kNumber + 1>(launch, m, p, place, view, word);
    return Trader<kNumber>::decide(view, {word}, first_agent(launch, p, kNumber), agent_numbers(launch, m, kNumber), agent);
  }
  return no_order();
}
template <int kNumber = 0>
KS_RULE void open_memory(const Launch& launch, int64_t m, const AgentView& view) {
  if (Trader<kNumber>::kRemembers) open_agents<Trader<kNumber>>(view, agent_numbers(launch, m, kNumber));
  if constexpr (kNumber + 1 < kTraders) open_memory<kNumber + 1>(launch, m, view);
}

#elif defined(__CUDACC__) || defined(__CUDACC_RTC__)

constexpr bool kMayHaveAgents = false;
KS_RULE constexpr bool some_see_book(const Launch&) { return false; }
KS_RULE bool has_added_agents(const Launch&) { return false; }
KS_RULE AgentOrder decide(const Launch&, int64_t, const MarketParams&, int32_t, const AgentView&, uint64_t) {
  return no_order();
}
KS_RULE void open_memory(const Launch&, int64_t, const AgentView&) {}

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
inline void open_memory(const Launch& launch, int64_t m, const AgentView& view) {
  for (int32_t number = 0; number < launch.agent_classes; ++number)
    functions_of(launch.agents[number]).open(view, agent_numbers(launch, m, number));
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
      if ((uint32_t)agent < (uint32_t)kind.speaking)
        return functions_of(kind).decide(view, numbers[number], word, first_added + kind.first, agent);
    }
    return no_order();
  }
#endif
};

// Episodes -------------------------------------------------------------------------------------------------------------

// What is seen of the opening book, as far as memory can begin with it.
KS_RULE AgentView opening_view(const MarketParams& p, int32_t regime) {
  AgentView view = {};
  const bool rests = p.init_depth > 0;
  view.mid2 = 2 * p.init_price, view.last_price = p.init_price;
  view.best_bid = rests ? p.init_price - 1 : -kNoPrice, view.best_ask = rests ? p.init_price + 1 : kNoPrice;
  view.best_bid_qty = view.best_ask_qty = p.init_depth;
  view.fundamental = p.fundamental_price, view.regime = regime;
  return view;
}

// Of a market that begins an episode: from its warm start's row, or from the opening book.
KS_RULE void begin_memory(const Launch& launch, const TaskParams& task, int64_t m, const MarketParams& p, int32_t regime,
                          int64_t bank_row) {
  if (!has_added_agents(launch) || launch.memory_words == 0) return;
  if (task.bank_size == 0) {
    open_memory(launch, m, opening_view(p, regime));
    return;
  }
  int32_t* const to = launch.agent_memory + m * launch.memory_words;
  const int32_t* const from = launch.bank_memory + bank_row * launch.memory_words;
  for (int32_t i = 0; launch.bank_memory && i < launch.memory_words; ++i) to[i] = from[i];
}
// Take up a scenario's parameters of these agents.
KS_RULE void enter_scenario(const Launch& launch, int64_t m, int32_t scenario) {
  if (!has_added_agents(launch) || !launch.scenario_agent_parameters) return;
  const int32_t words = launch.parameter_words;
  for (int32_t i = 0; i < words; ++i)
    launch.agent_parameters[m * words + i] = launch.scenario_agent_parameters[(int64_t)scenario * words + i];
}

}  // namespace ks
