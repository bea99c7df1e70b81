// launch_host.cuh: how Python finds a kernel in the shared library that nvcc makes of it. NVRTC makes no host code: there
// the driver finds kernels by their names (kineticsim_env/runtime/kernels.py).
#pragma once

#if !defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define KS_EXPORT_KERNEL(name)
#else
#include <cuda_runtime_api.h>

// Write the CUfunction of a kernel on the current device; returns the runtime's error, 0 for none.
#define KS_EXPORT_KERNEL(name)                                                                   \
  extern "C" int name##_function(void** function) {                                              \
    return (int)cudaGetFuncBySymbol(reinterpret_cast<cudaFunction_t*>(function), (const void*)name); \
  }
#endif
