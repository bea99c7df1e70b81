// launch_copies.cuh: the kernel that copies all outputs of a step at once, as a launch takes longer than a small copy.
// operators.cpp launches it; a block's second index says which output.
#pragma once

#include "launch_host.cuh"
#include "model/launcher.h"

namespace ks {

template <typename Unit>
__device__ void copy_rows(const Copy& copy) {
  const int64_t units = copy.width / sizeof(Unit), all = units * copy.rows;
  const int64_t step = (int64_t)gridDim.x * blockDim.x;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < all; i += step) {
    const int64_t row = copy.rows == 1 ? 0 : i / units;
    const Unit* from = reinterpret_cast<const Unit*>(copy.from + row * copy.pitch);
    reinterpret_cast<Unit*>(copy.to)[i] = from[i - row * units];
  }
}

}  // namespace ks

extern "C" __global__ void ks_copy_outputs(const __grid_constant__ ks::Copies copies) {
  const ks::Copy& copy = copies.copy[blockIdx.y];
  const int64_t sizes = copy.width | copy.pitch | (int64_t)copy.from | (int64_t)copy.to;
  if (sizes % 16 == 0) ks::copy_rows<uint4>(copy);
  else if (sizes % 4 == 0) ks::copy_rows<uint32_t>(copy);
  else ks::copy_rows<uint8_t>(copy);
}
KS_EXPORT_KERNEL(ks_copy_outputs)
