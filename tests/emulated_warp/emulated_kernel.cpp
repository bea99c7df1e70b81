// emulated_kernel.cpp: the CUDA engine's launch, one warp after the other on one core. tests/test_emulated_kernel.py builds
// it beside a copy of cuda/ that has the warp.cuh of this folder.
#include "emulator.h"

#include "environment_kernel.cuh"

using namespace ks;

static const Launch* launch;
static int64_t group;

template <int kBins, bool kOptions, bool kSlots>
void run_market() {
  using Market = MarketOnChip<kBins, kOptions, kSlots>;
  int* const book = emulator::shared;
  Market(*launch, group, launch->params[group * launch->params_stride], book, book + Market::book_ints(*launch)).run();
}

template <int kBins, bool kOptions>
void run_tile() {
  EnvironmentTile<kBins, kOptions>(*launch, group * launch->tile, emulator::shared).step_or_reset();
}

template <int kBins, bool kOptions>
void run_all(bool slots, bool task) {
  const int64_t groups = task ? (launch->markets + launch->tile - 1) / launch->tile : launch->markets;
  for (group = 0; group < groups; ++group) {
    if (task) {
      emulator::run_warp(run_tile<kBins, kOptions>, EnvironmentTile<kBins, kOptions>::shared_ints(*launch));
    } else {
      const auto body = slots ? run_market<kBins, kOptions, true> : run_market<kBins, kOptions, false>;
      emulator::run_warp(body, OrderFlow<kBins>::shared_ints(*launch));
    }
  }
}

template <int kBins>
void choose(bool options, bool slots, bool task) {
  options ? run_all<kBins, true>(slots, task) : run_all<kBins, false>(slots, task);
}

extern "C" void ks_emulated_launch(const Launch* arguments, int bins, int options, int slots, int task) {
  launch = arguments;
  switch (bins) {
    case 0: return choose<0>(options, slots, task);
    case 16: return choose<16>(options, slots, task);
    case 32: return choose<32>(options, slots, task);
    case 64: return choose<64>(options, slots, task);
    default: return choose<128>(options, slots, task);
  }
}
