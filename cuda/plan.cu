// plan.cu: model/plan.h on a GPU, for machines without a C++ compiler (kineticsim_env/engines/variants.py). One thread.
#include "launch_host.cuh"
#include "model/plan.h"

extern "C" __global__ void ks_plan(const __grid_constant__ ks::PlanLaunch launch) { *launch.plan = ks::plan_for(launch.request); }

KS_EXPORT_KERNEL(ks_plan)
