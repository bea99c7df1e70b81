// threads.cpp: what Python asks of a prebuilt library beside its engine: how many threads it may use, and of which sources
// it was built.
#include <ATen/Parallel.h>

namespace at {
std::atomic<int (*)()> number_of_threads{nullptr};
}

extern "C" {

// `ask` returns a number of threads, above 0; it is called in each launch.
int64_t ks_use_threads(int (*ask)()) {
  at::number_of_threads = ask;
  return 0;
}

// The first 15 hexadecimal digits of the sources' hash.
int64_t ks_sources() { return KS_SOURCES; }
}
