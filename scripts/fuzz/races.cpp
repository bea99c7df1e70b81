// races.cpp: launches that Python wrote down, made again under ThreadSanitizer, for scripts/fuzz/races.py.
//
// The file has the number of launches; for each the bytes of struct Launch, the number of its pointers that are not
// null, and for each of these its place in the struct and what it points to. Every launch has a thread of its own, which
// makes it several times; the engine spreads its markets over further threads (on_threads/ATen/Parallel.h).
#include "market_cpu.cpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace {

struct Recorded {
  ks::Launch launch;
  std::vector<std::unique_ptr<char[]>> memory;
};

template <typename T>
T number(FILE* file) {
  T value;
  if (std::fread(&value, sizeof(T), 1, file) != 1) std::abort();
  return value;
}

std::unique_ptr<Recorded> read(FILE* file) {
  auto recorded = std::make_unique<Recorded>();
  if (number<int64_t>(file) != (int64_t)sizeof(ks::Launch)) std::abort();
  if (std::fread(&recorded->launch, sizeof(ks::Launch), 1, file) != 1) std::abort();
  for (int64_t left = number<int64_t>(file); left > 0; --left) {
    const int64_t place = number<int64_t>(file), bytes = number<int64_t>(file);
    auto room = std::make_unique<char[]>(bytes + 1);
    if (bytes && std::fread(room.get(), bytes, 1, file) != 1) std::abort();
    void* address = room.get();
    std::memcpy((char*)&recorded->launch + place, &address, sizeof(address));
    recorded->memory.push_back(std::move(room));
  }
  return recorded;
}

}  // namespace

int main(int argc, char** argv) {
  FILE* file = argc == 3 ? std::fopen(argv[1], "rb") : nullptr;
  if (!file) return 2;
  const int times = std::atoi(argv[2]);
  std::vector<std::unique_ptr<Recorded>> all;
  for (int64_t left = number<int64_t>(file); left > 0; --left) all.push_back(read(file));
  std::fclose(file);
  std::vector<std::thread> threads;
  for (auto& one : all)
    threads.emplace_back([&one, times] {
      for (int i = 0; i < times; ++i) ks_cpu_launch(&one->launch);
    });
  for (std::thread& thread : threads) thread.join();
  std::puts("played");
  return 0;
}
