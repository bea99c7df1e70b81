// added_agents.cuh: agents of classes that users have written, of one market on one warp. Their text (`Trader<n>`,
// kineticsim_env/agents/programs.py) is included before, in kernels for markets that have some (KS_AGENTS). Parameters and
// memory are in global memory, a word of all agents after another, so that lanes read and write neighbours.
//
// A Market is a MarketOnChip, or one on the clock. Orders go to the grid at their ticks, marketable ones to where those of
// built-in agents are summed.
#pragma once

#include "model/play_agent.h"
#include "warp/warp.cuh"

namespace ks {

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
    const int32_t active = market.launch.agents[kNumber].active;
    uint64_t counter = market.first_word + (uint64_t)first * kGolden;
#pragma unroll 2
    for (int32_t agent = market.lane; agent < active; agent += kWarpLanes, counter += Market::kRound) {
      const AgentDraw draw = {mix64(counter)};
      outside = max_of(outside, add_order(market, Trader<kNumber>::decide(view, draw, first, numbers, agent), place));
    }
    outside = max_of(outside, submit_added<kNumber + 1>(market, view, place));
  }
  return outside;
}

// The order of agent `who` among all that users have added, of an event's word; none of one that is inactive.
template <int kNumber = 0, typename Market>
__device__ __forceinline__ int32_t submit_one(const Market& market, const AgentView& view, int32_t who, uint64_t word,
                                              const AddedPlace& place) {
  if constexpr (kNumber < kAddedClasses) {
    const AgentClass& kind = market.launch.agents[kNumber];
    const int32_t agent = who - kind.first;
    if (agent < 0 || agent >= kind.active) return submit_one<kNumber + 1>(market, view, who, word, place);
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

}  // namespace ks
