// Parallel.h: in a library that is built without torch, what cuda/market_cpu.cpp takes of torch's header of this name:
// parallel_for, over a pool of threads of its own. As torch's, it uses as many threads as torch is told to use.
//
// A launch that comes while another one has the pool plays on its own thread. A forked child has none of its parent's
// threads, and makes a pool of its own.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

namespace at {

extern std::atomic<int (*)()> number_of_threads;  // torch's own function, which Python hands over (threads.cpp)

class Pool {
 public:
  // Call `body(context, begin, end)` for parts of [0, count), of `chunk` each, on so many threads, this one among them.
  // Returns false, and calls nothing, if the pool is taken.
  bool run(int threads, int64_t count, int64_t chunk, void (*body)(void*, int64_t, int64_t), void* context) {
    std::unique_lock<std::mutex> taken(taken_, std::try_to_lock);
    if (!taken) return false;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      while (workers_ < threads - 1) {
        std::thread(&Pool::work, this, workers_, round_).detach();
        workers_ += 1;
      }
      body_ = body, context_ = context, count_ = count, chunk_ = chunk;
      next_.store(0, std::memory_order_relaxed);
      wanted_ = left_ = threads - 1;
      round_ += 1;
    }
    woken_.notify_all();
    take_parts();
    std::unique_lock<std::mutex> lock(mutex_);
    done_.wait(lock, [this] { return left_ == 0; });
    return true;
  }

  const pid_t owner = getpid();

 private:
  void take_parts() {
    for (int64_t begin; (begin = next_.fetch_add(chunk_, std::memory_order_relaxed)) < count_;)
      body_(context_, begin, std::min(begin + chunk_, count_));
  }

  void work(int number, uint64_t seen) {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      woken_.wait(lock, [&] { return round_ != seen; });
      seen = round_;
      if (number >= wanted_) continue;
      lock.unlock();
      take_parts();
      lock.lock();
      if (--left_ == 0) done_.notify_one();
    }
  }

  std::mutex taken_, mutex_;
  std::condition_variable woken_, done_;
  int workers_ = 0, wanted_ = 0, left_ = 0;
  uint64_t round_ = 0;
  void (*body_)(void*, int64_t, int64_t) = nullptr;
  void* context_ = nullptr;
  int64_t count_ = 0, chunk_ = 1;
  std::atomic<int64_t> next_{0};
};

// This process's pool. It is never freed: its threads may wait in it until the process ends.
inline Pool& pool() {
  static std::atomic<Pool*> current{nullptr};
  Pool* found = current.load();
  if (found && found->owner == getpid()) return *found;
  Pool* const fresh = new Pool;
  if (current.compare_exchange_strong(found, fresh)) return *fresh;
  delete fresh;  // another thread was first
  return *found;
}

// Call `body(begin, end)` for parts of [begin, end), each of `grain` or more but for the last.
template <typename Body>
void parallel_for(int64_t begin, int64_t end, int64_t grain, const Body& body) {
  const int64_t count = end - begin;
  if (count <= 0) return;
  int (*const told)() = number_of_threads.load();
  const int64_t parts = (count + grain - 1) / grain;
  const int threads = (int)std::min<int64_t>(told ? told() : 1, parts);
  struct Call {
    const Body& body;
    int64_t begin;
  } call = {body, begin};
  const auto part = [](void* context, int64_t from, int64_t to) {
    const Call& of = *static_cast<const Call*>(context);
    of.body(of.begin + from, of.begin + to);
  };
  // Four parts for each thread, as markets do not take equally long.
  if (threads < 2 || !pool().run(threads, count, std::max(grain, count / (4 * threads)), part, &call)) body(begin, end);
}

}  // namespace at
