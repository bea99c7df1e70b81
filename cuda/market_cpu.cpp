// market_cpu.cpp: the C++ engine: markets spread over torch's thread pool. Built just in time and called through ctypes
// (kineticsim_env/engines/cpu.py).
#include <ATen/Parallel.h>

#include <atomic>

#include "cpu/environment.h"
#include "cpu/events.h"

// Play one market's part in a launch; returns its error word.
template <bool kLevers>
static int32_t play(const ks::Launch& launch, int64_t m, ks::Scratch& scratch) {
  typename ks::Environment<kLevers>::Room room;
  ks::Environment<kLevers> market(launch, m, scratch, room);
  if (launch.env_mode == ks::kLaunchModeRun) market.run();
  else ks::step_or_reset(market);
  return market.error;
}

extern "C" {

// Run one launch. Returns -1, or the lowest index of a market that had to stop.
int64_t ks_cpu_launch(const ks::Launch* launch) {
  std::atomic<int64_t> failed{launch->markets};
  // About 20 microseconds of work is worth waking a thread for; an agent's order takes about 2 ns, an auction 300 more.
  // Markets may differ, so some of them are asked.
  const int64_t rows = launch->params_stride ? launch->markets : 1, every = std::max<int64_t>(1, rows / 16);
  int64_t agents = 0;
  for (int64_t m = 0; m < rows; m += every)
    agents = std::max<int64_t>({agents, ks::num_agent_indices(launch->params[m]), launch->params[m].levers.interval});
  const int64_t cost = (int64_t)launch->decisions * launch->auctions * (2 * agents + 300) + launch->levels;
  const int64_t grain = std::max<int64_t>(1, 20000 / cost);
  const auto note = [&failed](int64_t m, int32_t error) {
    int64_t lowest = failed.load();
    while (ks::market_has_stopped(error) && m < lowest && !failed.compare_exchange_weak(lowest, m)) {}
  };
  at::parallel_for(0, launch->markets, grain, [&](int64_t begin, int64_t end) {
    static thread_local ks::Scratch scratch;  // one allocation per launch would show in small steps
    static thread_local ks::EventScratch events;
    scratch.fit(launch->levels);
    for (int64_t m = begin; m < end; ++m) {
      if (ks::leaves_alone(*launch, m)) continue;
      if (launch->arrivals != ks::kArrivalsEach) {
        ks::play_on_clock(*launch, m, events);
        note(m, launch->error[m]);
        continue;
      }
      const bool levers = ks::has_levers(launch->params[m * launch->params_stride]);
      note(m, levers ? play<true>(*launch, m, scratch) : play<false>(*launch, m, scratch));
    }
  });
  return failed.load() < launch->markets ? failed.load() : -1;
}

int64_t ks_sizeof_launch() { return (int64_t)sizeof(ks::Launch); }
int64_t ks_sizeof_params() { return (int64_t)sizeof(ks::MarketParams); }
}
