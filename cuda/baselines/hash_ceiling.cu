// hash_ceiling.cu: the model's random words and nothing else, one hash per agent-event: an upper bound on
// the rate of any engine. One thread per market, so that all lanes are busy; the words are xor-ed and stored, so that the
// compiler keeps them all.
#include "layout.h"
#include "../launch_host.cuh"

extern "C" __global__ void __launch_bounds__(256) ks_hash_ceiling(const __grid_constant__ ks::BaselineLaunch launch) {
  using namespace ks;
  const int64_t m = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (m >= launch.markets) return;
  const uint64_t key = episode_key(launch.seed + m, 0);
  const int64_t end = launch.first_step + launch.steps;
  uint64_t sum = 0;
  for (int64_t t = launch.first_step; t < end; ++t) {
    uint64_t counter = word_counter(key, t, 0);
#pragma unroll 8
    for (int32_t a = 0; a < launch.agents; ++a) {
      sum ^= mix64(counter);
      counter += kGolden;
    }
  }
  launch.hashes[m] = (int64_t)sum;
}

KS_EXPORT_KERNEL(ks_hash_ceiling)
