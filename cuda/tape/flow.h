// flow.h: an order flow that is fitted to data order by order, as cuda/events/flow.cuh plays it: its clock, jumps and events, and
// intervals that have a length. lives.h says which orders come and go.
#pragma once

#include "tape/lives.h"

namespace ks::tape {

struct FlowTape : LivesTape {
  FlowState flow;

  explicit FlowTape(const Launch& of) : LivesTape(of) {
    const int64_t* row = of.flow;
    flow = {(int32_t)row[0], (int32_t)row[1], (int32_t)row[2], clamp_to((int32_t)row[4], 0, kClockStates - 1),
            clamp_to((int32_t)row[5], 0, kAfterKinds - 1), row[3], row[6], row[7], row[8]};
  }
  const char* difference(const Launch& engine) const override {
    int64_t row[kFlowNumbers];
    flow.store(row);
    const char* const name = LivesTape::difference(engine);
    return name == nullptr && std::memcmp(row, engine.flow, sizeof(row)) != 0 ? "flow" : name;
  }

  // Time ---------------------------------------------------------------------------------------------------------------

  int64_t length() const { return 1000 * (int64_t)p.levers.interval_us; }  // of intervals, nanoseconds, or 0
  uint64_t first_event() const override { return length() > 0 ? (uint32_t)flow.events : ContinuousTape::first_event(); }
  uint64_t when_due() const override {
    return length() > 0 ? (uint64_t)flow.now + 1000ull * (uint32_t)p.levers.quote_latency : ContinuousTape::when_due();
  }
  int64_t time() const override { return std::max({rows.time, flow.time, flow.now}); }  // that of the latest row, until an event is later
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

  // Events -------------------------------------------------------------------------------------------------------------

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
