// plan.cpp: model/plan.h on the host, a library of its own: it is compiled long before the C++ engine, and so a CUDA kernel
// that it chooses can be compiled beside that (kineticsim_env/engines/variants.py).
#include <cstdint>

#include "model/plan.h"

extern "C" int64_t ks_plan(const ks::PlanRequest* request, ks::Plan* plan) {
  *plan = ks::plan_for(*request);
  return 0;
}
