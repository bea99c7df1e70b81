// launching.h: a launch on the CPU or a GPU, as struct Launcher describes it. For those who call engines from C++: operators.cpp for
// torch, jax_calls.cpp for JAX.
#pragma once

#include "model/launcher.h"

namespace ks {

constexpr int64_t kAlignment = 16;  // engines read four ints or floats at a time

using CpuFunction = int64_t(const Launch*);
using LaunchOnGpu = int(void* function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned shared,
                        void* stream, void** arguments, void** extra);
using PushContext = int(void* context);
using PopContext = int(void** context);

// Returns the driver's error, 0 for none.
inline int launch_kernel(const Launcher& launcher, int64_t function, unsigned grid, unsigned second, unsigned block,
                         void* stream, void* argument) {
  void* arguments[] = {argument};
  const auto launch = reinterpret_cast<LaunchOnGpu*>(launcher.launch_on_gpu);
  const unsigned shared = function == launcher.copy_function ? 0 : launcher.shared;
  int code = launch((void*)function, grid, second, 1, block, 1, 1, shared, stream, arguments, nullptr);
  if (code == 201 || code == 400) {  // another context is current, or none in a new thread; rare, so not checked before
    code = reinterpret_cast<PushContext*>(launcher.push_context)((void*)launcher.context);
    if (code != 0) return code;
    code = launch((void*)function, grid, second, 1, block, 1, 1, shared, stream, arguments, nullptr);
    void* popped = nullptr;
    reinterpret_cast<PopContext*>(launcher.pop_context)(&popped);
  }
  return code;
}

// The pointer at a place in the struct.
inline void*& pointer(Launch& launch, int64_t offset) {
  return *reinterpret_cast<void**>(reinterpret_cast<char*>(&launch) + offset);
}

}  // namespace ks
