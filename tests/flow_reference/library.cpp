// library.cpp: what tests/test_flow_reference.py calls.
#include "market.h"

using ks::tape::FlowMarket;

extern "C" {

void* flow_open(const int64_t* table, int64_t numbers, int64_t seed, int64_t levels, int64_t window, int64_t beat, int64_t init_price) {
  if (numbers * (int64_t)sizeof(int64_t) != (int64_t)sizeof(ks::FlowNumbers)) return nullptr;
  return new FlowMarket(*reinterpret_cast<const ks::FlowNumbers*>(table), ks::episode_key(seed, 0), (int)levels, (int)window, (int)beat, (int32_t)init_price);
}
void flow_close(void* of) { delete static_cast<FlowMarket*>(of); }

// Play events, or fewer if the market has to stop. Returns how many.
int64_t flow_play(void* of, int64_t count) {
  auto& market = *static_cast<FlowMarket*>(of);
  int64_t i = 0;
  for (; i < count && !market.stopped; ++i) market.play();
  return i;
}

// The state: bid, ask [L], lives [2, L], fleeting_units [L], flow [8], last_tick, price_origin, volume.
void flow_state(void* of, int64_t* bid, int64_t* ask, int64_t* lives, int64_t* fleeting, int64_t* flow, int64_t* numbers) {
  auto& market = *static_cast<FlowMarket*>(of);
  for (int32_t tick = 0; tick < market.levels; ++tick) {
    const auto &bids = market.at(0, tick), &asks = market.at(1, tick);
    bid[tick] = bids.all(), ask[tick] = asks.all();
    for (int life = 0; life < 2; ++life) lives[life * market.levels + tick] = bids.count[life] + asks.count[life];
    fleeting[tick] = bids.units[ks::kFleeting] + asks.units[ks::kFleeting];
  }
  market.flow.store(flow);
  numbers[0] = market.last_tick, numbers[1] = market.origin, numbers[2] = market.volume;
}

int64_t flow_count(void* of) { return (int64_t)static_cast<FlowMarket*>(of)->events.size(); }
const void* flow_events(void* of) { return static_cast<FlowMarket*>(of)->events.data(); }
}
