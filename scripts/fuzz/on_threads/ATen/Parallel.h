// Parallel.h: what cuda/market_cpu.cpp takes of ATen, on std::thread: torch's own threads are not built for
// ThreadSanitizer, which would not see what orders them. For scripts/fuzz/races.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

namespace at {

constexpr int64_t kThreads = 4;

template <typename Do>
void parallel_for(int64_t begin, int64_t end, int64_t grain, const Do& act) {
  const int64_t length = end - begin;
  const int64_t many = std::min(kThreads, std::max<int64_t>(1, length / std::max<int64_t>(1, grain)));
  const int64_t piece = (length + many - 1) / many;
  std::vector<std::thread> threads;
  for (int64_t i = 1; i < many; ++i) {
    const int64_t first = begin + i * piece, last = std::min(end, first + piece);
#ifdef KS_PLANTED  // a race that has to be seen: each thread also works on the last market of the one before it
    if (first < last) threads.emplace_back([&act, first, last] { act(first - 1, last); });
#else
    if (first < last) threads.emplace_back([&act, first, last] { act(first, last); });
#endif
  }
  if (length > 0) act(begin, std::min(end, begin + piece));
  for (std::thread& thread : threads) thread.join();
}

}  // namespace at
