// launcher.h: all that operators.cpp knows of a launch beside its tensors: the function, its shape, and the sizes of the
// tensors. Python fills these structs (kineticsim_env/engines/operators.py), and reads them from this text as it does layout.h.
#pragma once

#include "model/layout.h"

namespace ks {

constexpr int kMostTensors = 96;     // of a launch
constexpr int kMostOutputs = 7;      // tensors of a step that are copied for the caller

struct Launcher {
  int64_t function;                  // address: of ks_cpu_launch, or a CUfunction
  int64_t series_function;           // a CUfunction: the kernel for runs that record further series; 0: there is none
  int64_t copy_function;             // the kernel that copies outputs, a CUfunction; 0: there is none
  int64_t launch_on_gpu;             // address of cuLaunchKernel; 0 on the CPU
  int64_t push_context;              // address of cuCtxPushCurrent,
  int64_t pop_context;               // of cuCtxPopCurrent,
  int64_t context;                   // and the CUcontext that the functions are of
  int32_t device;                    // index of the GPU; -1 is the CPU
  int32_t grid;                      // blocks
  int32_t block;                     // threads per block
  int32_t shared;                    // bytes of dynamic shared memory per block
  int32_t growth;                    // the most that one auction can add to a side of any market
  int32_t num_state;                 // tensors that a launch may write,
  int32_t num_tables;                // and, after them, those that it only reads
  int32_t least_width;               // of a row of actions; 0: a step's input are choices
  int64_t offsets[96];               // of each tensor's pointer in struct Launch
  int64_t bytes[96];                 // of each tensor
};

// Memory to copy: rows that may lie apart where they come from, and follow each other where they go.
struct Copy {
  const char* from;
  char* to;
  int64_t rows;
  int64_t width;                     // bytes of a row
  int64_t pitch;                     // bytes from one row to the next where they come from
};

struct Copies {
  Copy copy[7];                      // kMostOutputs
};

}  // namespace ks
