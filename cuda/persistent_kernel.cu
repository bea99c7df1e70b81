// persistent_kernel.cu: the kernel that is launched. Compiled just in time by NVRTC or nvcc, once for each variant
// (kineticsim_env/engines/native.py chooses; kineticsim_env/build.py compiles):
//   KS_LEVELS   ticks of the grid            KS_WARPS    warps a market (1: several markets a block)
//   KS_OPTIONS  any option of the model on   KS_SLOTS    learned slots present       KS_TASK  environment step
//   KS_FORCE_SHUFFLE (optional)              the path of devices before sm_80
// By hand: nvcc -arch=sm_90 --cubin -fmad=false -std=c++17 -DKS_LEVELS=128 -DKS_WARPS=1 -DKS_OPTIONS=0 -DKS_SLOTS=0
//   -DKS_TASK=0 persistent_kernel.cu
#include "environment_kernel.cuh"

constexpr int kPerBlock = KS_WARPS > 1 ? 1 : ks::kMarketsPerBlock;

extern "C" __global__ void __launch_bounds__(32 * KS_WARPS * kPerBlock)
    ks_market_kernel(const __grid_constant__ ks::Launch launch) {
  using namespace ks;
  extern __shared__ __align__(16) int shared[];
  const int64_t m = (int64_t)blockIdx.x * kPerBlock + (kPerBlock > 1 ? threadIdx.x >> 5 : 0);
  if (m >= launch.markets) return;
#if KS_TASK
  using Kernel = EnvironmentOnChip<KS_LEVELS, KS_WARPS, KS_OPTIONS != 0>;
#else
  using Kernel = MarketOnChip<KS_LEVELS, KS_WARPS, KS_OPTIONS != 0, KS_SLOTS != 0>;
#endif
  Kernel market(launch, m, shared + (threadIdx.x >> 5) / KS_WARPS * Kernel::shared_ints(launch.slots));
#if KS_TASK
  market.step_or_reset();
#else
  market.run();
#endif
}
