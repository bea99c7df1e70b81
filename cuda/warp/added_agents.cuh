// added_agents.cuh: agents of classes that users have written, of one market on one warp. Their text (`Trader<n>`,
// kineticsim_env/agents/programs.py) is included before, in kernels for markets that have some (KS_AGENTS). Parameters and
// memory are in global memory, a word of all agents after another, so that lanes read and write neighbours.
//
// A Market is a MarketOnChip, or one on the clock. Orders go to the grid at their ticks, marketable ones to where those of
// built-in agents are summed.
#pragma once

#include "model/agents.h"
#include "warp/warp.cuh"

namespace ks {

template <int kNumber>
struct Trader;
#ifdef KS_AGENTS
constexpr int kAddedClasses = kTraders;
#else
constexpr int kAddedClasses = 0;
#endif

// Templates of a class's number below go on with the next class; NVRTC takes no lambda whose argument is of any type.

// Whether any class has memory, and whether any looks at best prices.
template <int kNumber = 0>
KS_RULE constexpr bool any_remembers() {
  if constexpr (kNumber < kAddedClasses) return Trader<kNumber>::kRemembers || any_remembers<kNumber + 1>();
  return false;
}
template <int kNumber = 0>
KS_RULE constexpr bool any_sees_book() {
  if constexpr (kNumber < kAddedClasses) return Trader<kNumber>::kSeesBook || any_sees_book<kNumber + 1>();
  return false;
}
constexpr bool kAddedRemember = any_remembers(), kAddedSeeBook = any_sees_book();

// The best prices that are seen, absolute, and what is there.
struct SeenBook {
  int32_t bid, ask, bid_qty, ask_qty;
};

template <typename Market>
__device__ __forceinline__ SeenBook see_book(const Market& market) {
  const auto best = market.best_prices();
  SeenBook seen = {-kNoPrice, kNoPrice, 0, 0};
  if (best.bid >= 0) {
    const bool quoted = market.has_slot() && market.bid_at(market.quote) == best.bid;
    seen.bid = best.bid + market.origin;
    seen.bid_qty = agent::add(market.buy[best.bid], market.slot_sum(quoted ? market.quote.bid_qty : 0));
  }
  if (best.ask != kNoTick) {
    const bool quoted = market.has_slot() && market.ask_at(market.quote) == best.ask;
    seen.ask = best.ask + market.origin;
    seen.ask_qty = agent::add(market.sell[best.ask], market.slot_sum(quoted ? market.quote.ask_qty : 0));
  }
  __syncwarp();  // the book is read
  return seen;
}

// What agents see but t; `mid2` is on the grid, `coin` rounds what they price around.
template <typename Market>
__device__ __forceinline__ AgentView added_view(const Market& market, int32_t mid2, int32_t ret, int32_t coin,
                                                const SeenBook& book) {
  const Middle around = agents_middle(market.p, mid2, market.fundamental, market.origin, coin);
  AgentView view = view_of(market.p, market, around, mid2, ret, market.regime, 0);
  if constexpr (kAddedSeeBook) {
    view.best_bid = book.bid, view.best_ask = book.ask;
    view.best_bid_qty = book.bid_qty, view.best_ask_qty = book.ask_qty;
  }
  return view;
}

// Where orders go: to rows that are so many bytes from the grid's. A clearing range is from `base` to `top`.
struct AddedPlace {
  uint32_t rows;
  int32_t base, top;
};

// Add an order. Returns by how many ticks it is beyond the clearing range on the side where it may trade there: not above 0
// if it is within, marketable, or none.
template <typename Market>
__device__ __forceinline__ int32_t add_order(const Market& market, const AgentOrder& order, const AddedPlace& place) {
  const int32_t quantity = quantity_of(order);
  const bool buys = !sells(order), marketable = order.marketable;
  int32_t tick;
  if (Market::kLevers) tick = limit_tick_of(order, market.pricing, market.origin);
  else tick = limit_tick_of(order, market.levels, market.origin);
  const uint32_t on_grid = shared_address(market.sell + tick) + (buys ? 4 * market.grid : 0) + place.rows;
  const uint32_t at = marketable ? market.marketable_address(buys) : on_grid;  // selects, so that lanes do not diverge
  if (quantity > 0) add_at(at, quantity);
  const int32_t mirror = order.side >> 31;  // -1 of sells, below which ticks count downwards
  const int32_t edge = place.top ^ ((place.top ^ ~place.base) & mirror);
  return ((tick ^ mirror) - edge) & (marketable || quantity == 0 ? 0 : -1);
}

// Every agent's order, where each comes once: a lane has every 32nd of a class. Returns the most that add_order does of this
// lane's orders.
template <int kNumber = 0, typename Market>
__device__ __forceinline__ int32_t submit_added(const Market& market, const AgentView& view, const AddedPlace& place) {
  int32_t outside = 0;
  if constexpr (kNumber < kAddedClasses) {
    const AgentNumbers numbers = agent_numbers(market.launch, market.m, kNumber);
    const int32_t first = first_agent(market.launch, market.p, kNumber);
    const int32_t speaking = market.launch.agents[kNumber].speaking;
    uint64_t counter = market.first_word + (uint64_t)first * kGolden;
#pragma unroll 2
    for (int32_t agent = market.lane; agent < speaking; agent += kWarpLanes, counter += Market::kRound) {
      const AgentDraw draw = {mix64(counter)};
      outside = max_of(outside, add_order(market, Trader<kNumber>::decide(view, draw, first, numbers, agent), place));
    }
    outside = max_of(outside, submit_added<kNumber + 1>(market, view, place));
  }
  return outside;
}

// The order of agent `who` among all that users have added, of an event's word; none of one who is silent.
template <int kNumber = 0, typename Market>
__device__ __forceinline__ int32_t submit_one(const Market& market, const AgentView& view, int32_t who, uint64_t word,
                                              const AddedPlace& place) {
  if constexpr (kNumber < kAddedClasses) {
    const AgentClass& kind = market.launch.agents[kNumber];
    const int32_t agent = who - kind.first;
    if (agent < 0 || agent >= kind.speaking) return submit_one<kNumber + 1>(market, view, who, word, place);
    const AgentNumbers numbers = agent_numbers(market.launch, market.m, kNumber);
    const int32_t first = first_agent(market.launch, market.p, kNumber);
    return add_order(market, Trader<kNumber>::decide(view, AgentDraw{word}, first, numbers, agent), place);
  }
  return 0;
}

// The order of the agent who comes at an event, if it is an added one: number `who` among these, or below 0. Of the events of
// a round, one per lane, those of one agent are taken in their order, as it may remember.
template <typename Market>
__device__ __forceinline__ int32_t take_added(const Market& market, const AgentView& view, int32_t who, uint64_t word,
                                              const AddedPlace& place) {
  int32_t outside = 0;
  if constexpr (!kAddedRemember) {
    if (who >= 0) outside = submit_one(market, view, who, word, place);
  } else {
    if (!__any_sync(kAllLanes, who >= 0)) return 0;
    const unsigned before = (1u << market.lane) - 1u;
    const int turn = __popc(__match_any_sync(kAllLanes, who) & before);
    const int last = warp_max(who >= 0 ? turn : 0);
#pragma unroll 1
    for (int now = 0; now <= last; ++now) {
      if (who >= 0 && turn == now) outside = submit_one(market, view, who, word, place);
      __syncwarp();
    }
  }
  return outside;
}

// What agents remember as an episode begins: what their classes say of the market as it is,
template <int kNumber = 0, typename Market>
__device__ __forceinline__ void begin_added(const Market& market, const AgentView& view) {
  if constexpr (kNumber < kAddedClasses) {
    const AgentNumbers numbers = agent_numbers(market.launch, market.m, kNumber);
#pragma unroll 1
    for (int32_t agent = market.lane; agent < numbers.agents; agent += kWarpLanes)
      Trader<kNumber>::begin(view, numbers, agent);
    begin_added<kNumber + 1>(market, view);
  }
}
// or a warm start's row of memory.
template <typename Market>
__device__ __forceinline__ void open_memory(const Market& market, int64_t bank_row) {
  const Launch& launch = market.launch;
  if (launch.task.bank_size > 0) {
    const int32_t* const from = launch.bank_memory + bank_row * launch.memory_words;
    int32_t* const to = launch.agent_memory + market.m * launch.memory_words;
#pragma unroll 1
    for (int32_t i = market.lane; launch.bank_memory && i < launch.memory_words; i += kWarpLanes) to[i] = from[i];
    return;
  }
  const int32_t mid2 = mark_mid2(market.best_bid, market.best_ask, market.last_tick, 0);
  SeenBook book = {-kNoPrice, kNoPrice, 0, 0};
  if (market.best_bid >= 0) book.bid = market.best_bid + market.origin, book.bid_qty = market.buy[market.best_bid];
  if (market.best_ask != kNoTick) book.ask = market.best_ask + market.origin, book.ask_qty = market.sell[market.best_ask];
  begin_added(market, added_view(market, mid2, 0, 0, book));
}

// The parameters of a scenario's agents, where they are drawn.
__device__ __forceinline__ void take_agent_parameters(const Launch& launch, int64_t m, int32_t scenario, int lane) {
  if (!launch.scenario_agent_parameters) return;
  const int64_t words = launch.parameter_words;
#pragma unroll 1
  for (int32_t i = lane; i < launch.parameter_words; i += kWarpLanes)
    launch.agent_parameters[m * words + i] = launch.scenario_agent_parameters[scenario * words + i];
}

}  // namespace ks
