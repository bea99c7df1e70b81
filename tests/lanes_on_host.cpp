// lanes_on_host.cpp: the CUDA environment step of a market per lane (cuda/lane/environment.cuh), built as a library for a
// CPU: a warp has one lane there, or a thread per lane (lanes_on_threads.cuh), or, with lists of deadlines or the text of
// agents' classes (KS_AGENTS), a fiber per lane (lanes_on_fibers.h). Runs without steps are the C++ engine's, or, with such a
// text, a warp's. For tests/test_lane_environment.py, tests/test_added_agents_lanes.py and tests/test_lane_races.py.
#include <cmath>
#include <cstdlib>
#include <vector>

#ifdef KS_AGENTS
#include "warp/warp.cuh"

#include "model/agents.h"

#include "added_agents.h"

#include "warp/market.cuh"
#else
#include "cpu/environment.h"
#endif
#include "engine_on_host.h"
#include "lane/environment.cuh"

#include "deadlines_on_host.h"

namespace {

#ifdef KS_AGENTS

template <bool kOptions, int kSlots>
void run(const ks::Launch& launch, int64_t m) {
  using Market = ks::MarketOnChip<KS_BINS, kOptions, kSlots>;
  static std::vector<ks::Four> shared;
  shared.resize(Market::shared_ints(launch) / 4 + 1);
  int* const begin = &shared[0].a;
  ks::on_all_lanes(begin, [&launch, m, begin] {
    Market market(launch, m, launch.params[m * launch.params_stride], begin, begin + Market::book_ints(launch));
    ks::run_market(market);
  });
}
void run(const ks::Launch& launch, int64_t m, bool options) {
  if (launch.levels > ks::kMostLevels) std::abort();
  if (launch.slots == 0) options ? run<true, 0>(launch, m) : run<false, 0>(launch, m);
  else options ? run<true, 1>(launch, m) : run<false, 1>(launch, m);
}

#else

void run(const ks::Launch& launch, int64_t m, bool) {
  static thread_local ks::Scratch scratch;
  scratch.fit(launch.levels);
  ks::Environment<KS_LEVERS != 0>::Room room;
  ks::Environment<KS_LEVERS != 0>(launch, m, scratch, room).run();
}

#endif

template <bool kOptions>
void play(const ks::Launch& launch) {
  // At least what a warp asks for, whose lanes each count it.
  const int lanes = ks::kLaneCount * (launch.levels + ks::kRowPadding + 2 * (KS_LANES + 1) + ks::kObservation + ks::kExtras);
  const int fours = ks::max_of(lanes, ks::environment_ints(launch.levels, 1, 1, KS_LEVERS != 0, false)) / 4 + 1;
  ks::PlanRequest on_two = {};
  on_two.markets = launch.markets, on_two.multiprocessors = 2;
  const int64_t spare = KS_DEADLINES ? ks::spare_warps(on_two) : 0;
  const int64_t warps = (launch.markets + ks::kLaneCount - 1) / ks::kLaneCount + spare;
  const auto act = [&launch, warps](int64_t warp, int* shared) {
    ks::step_environments<kOptions>(launch, warp * ks::kLaneCount, warps, shared);
  };
  static thread_local std::vector<ks::Four> memory;
#if KS_DEADLINES
  memory.resize(fours * warps);
  std::vector<int*> shared;
  for (int64_t warp = 0; warp < warps; ++warp) shared.push_back(&memory[fours * warp].a);
  ks::on_all_warps(shared, [&](int warp) { act(warp, shared[warp]); });
#else
  memory.resize(fours);
  int* const shared = &memory[0].a;
  for (int64_t warp = 0; warp < warps; ++warp) {
#ifdef KS_THREADS
    ks::on_all_lanes([&] { act(warp, shared); });
#elif defined(KS_AGENTS)
    ks::on_all_lanes(shared, [&] { act(warp, shared); });
#else
    act(warp, shared);
#endif
  }
#endif
}

bool has_options(const ks::MarketParams& p) {
  return KS_LEVERS || (p.walk_threshold | p.jump_threshold | p.cancel_threshold | p.window | p.tie | p.residue) != 0;
}

}  // namespace

extern "C" {

int64_t ks_cpu_launch(const ks::Launch* given) {
  ks::Launch copy = *given;
  const ks::Launch* const launch = &copy;
  if (ks::has_lists(copy)) copy.deadline_lists = ks_lists(copy.elapsed, copy.markets);
  bool options = false;
  for (int64_t m = 0; m < (launch->params_stride ? launch->markets : 1); ++m) options |= has_options(launch->params[m]);
  for (int32_t i = 0; i < launch->task.scenarios; ++i) options |= has_options(launch->scenario_params[i]);
  if (launch->env_mode == ks::kLaunchModeRun) {
    for (int64_t m = 0; m < launch->markets; ++m) run(*launch, m, options);
  } else {
    options ? play<true>(*launch) : play<false>(*launch);
  }
  ks::check_lists(copy);
  for (int64_t m = 0; m < launch->markets; ++m)
    if (ks::market_has_stopped(launch->error[m])) return m;
  return -1;
}
}
