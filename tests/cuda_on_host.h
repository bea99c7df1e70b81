// cuda_on_host.h: as much of CUDA as the baselines use, on a CPU: a block's threads are threads, or run one by one.
#include <atomic>
#include <barrier>
#include <cmath>
#include <memory>
#include <thread>
#include <vector>

#define __global__
#define __device__
#define __shared__
#define __forceinline__ inline
#define __launch_bounds__(threads)
#define __grid_constant__

struct Index {
  unsigned x;
};
inline thread_local Index threadIdx, blockIdx;
inline Index blockDim;
extern "C" float shared[8 * 1024 + 2];
float shared[8 * 1024 + 2];

inline std::unique_ptr<std::barrier<>> block_barrier;
inline int votes[1024];

inline void __syncthreads() { block_barrier->arrive_and_wait(); }

inline unsigned __ballot_sync(unsigned lanes, bool vote) {  // waits for the whole block: more than a warp needs
  votes[threadIdx.x] = vote;
  __syncthreads();
  unsigned result = 0;
  for (int lane = 0; lane < 32; ++lane)
    if (lanes >> lane & 1) result |= unsigned(votes[(threadIdx.x & ~31u) + lane]) << lane;
  __syncthreads();
  return result;
}

inline int __clz(unsigned x) { return x ? __builtin_clz(x) : 32; }
inline int __ffs(unsigned x) { return __builtin_ffs(int(x)); }
using std::fmaxf;
using std::fminf;

template <class T>
T atomicAdd(T* place, T value) {
  return std::atomic_ref<T>(*place).fetch_add(value, std::memory_order_relaxed);
}

template <class Better>
void replace_if(int* place, int value, Better better) {
  std::atomic_ref<int> atomic(*place);
  int old = atomic.load(std::memory_order_relaxed);
  while (better(value, old) && !atomic.compare_exchange_weak(old, value, std::memory_order_relaxed)) {}
}
inline void atomicMax(int* place, int value) {
  replace_if(place, value, [](int a, int b) { return a > b; });
}
inline void atomicMin(int* place, int value) {
  replace_if(place, value, [](int a, int b) { return a < b; });
}

// Run a kernel. Threads that meet at barriers have to run together.
template <class Kernel, class Argument>
void launch_on_host(Kernel kernel, const Argument& argument, int grid, int block, bool together) {
  blockDim.x = unsigned(block);
  if (!together) {
    for (blockIdx.x = 0; blockIdx.x < unsigned(grid); ++blockIdx.x)
      for (threadIdx.x = 0; threadIdx.x < unsigned(block); ++threadIdx.x) kernel(argument);
    return;
  }
  block_barrier = std::make_unique<std::barrier<>>(block);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < block; ++thread)
    threads.emplace_back([=, &argument] {
      threadIdx.x = unsigned(thread);
      for (blockIdx.x = 0; blockIdx.x < unsigned(grid); ++blockIdx.x) {
        kernel(argument);
        block_barrier->arrive_and_wait();
      }
    });
  for (std::thread& thread : threads) thread.join();
}
