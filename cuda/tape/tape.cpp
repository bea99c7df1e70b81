// tape.cpp: plays a market order by order and writes its tape, or LOBSTER's messages of a tape's rows; a library of its own
// (kineticsim_env/tapes/library.py). Beside it the C++ engine plays the same market: after every interval both have to be the
// same to the last bit.
#include <cstdint>
#include <memory>

#include "tape/call.h"
#include "tape/flow.h"
#include "tape/lobster.h"

namespace ks::tape {

using Engine = int64_t (*)(const Launch*);

struct Player {
  Launch launch;  // of one market
  Engine engine;
  std::unique_ptr<TapeMarket> market;
  const char* differs = nullptr;
};

enum Ended : int64_t { kPlayed, kStopped, kDiffers };

// An interval; `fresh` are the quotes of a decision that begins with it, or null, and `flags` theirs, or null.
static Ended play(Player& player, const Quote* fresh, const int32_t* flags) {
  Launch& launch = player.launch;
  launch.decisions = launch.auctions = 1;
  launch.new_quotes = reinterpret_cast<const int32_t*>(fresh);
  launch.order_flags = flags;
  if (player.engine(&launch) >= 0) return kStopped;
  player.market->interval(fresh, flags);
  player.differs = player.market->difference(launch);
  return player.differs ? kDiffers : kPlayed;
}

}  // namespace ks::tape

extern "C" {

// A player of the one market that a launch is of; `engine` is the C++ engine's ks_cpu_launch.
int64_t ks_tape_open(const ks::Launch* launch, void* engine) {
  auto player = std::make_unique<ks::tape::Player>();
  player->launch = *launch;
  player->engine = reinterpret_cast<ks::tape::Engine>(engine);
  if (launch->arrivals == ks::kArrivalsFlow) player->market = std::make_unique<ks::tape::FlowTape>(*launch);
  else if (launch->mechanism == ks::kMechanismContinuous) player->market = std::make_unique<ks::tape::ContinuousTape>(*launch);
  else player->market = std::make_unique<ks::tape::CallTape>(*launch);
  player->market->open(launch->bid, launch->ask);
  return reinterpret_cast<int64_t>(player.release());
}

// Play intervals. `quotes` [K, 4], or of ladders [K, N, 4], are those of a decision that begins with them, or null, and `flags` [K] or
// [K, N] theirs; `fundamental` [intervals] is the fundamental price as each of them begins, or null. Returns an Ended.
int64_t ks_tape_play(void* of, const int32_t* quotes, const int32_t* flags, int64_t intervals, const int32_t* fundamental) {
  auto& player = *static_cast<ks::tape::Player*>(of);
  const auto* fresh = reinterpret_cast<const ks::Quote*>(quotes);
  for (int64_t i = 0; i < intervals; ++i) {
    if (fundamental) player.market->fundamental = player.launch.fundamental_price[0] = fundamental[i];
    const auto ended = ks::tape::play(player, i == 0 ? fresh : nullptr, i == 0 ? flags : nullptr);
    if (ended != ks::tape::kPlayed) return ended;
  }
  return ks::tape::kPlayed;
}

// The rows since they were forgotten: how many, and where they are.
int64_t ks_tape_count(void* of) { return (int64_t)static_cast<ks::tape::Player*>(of)->market->rows.rows.size(); }
int64_t ks_tape_rows(void* of) {
  return reinterpret_cast<int64_t>(static_cast<ks::tape::Player*>(of)->market->rows.rows.data());
}
int64_t ks_tape_forget(void* of) {
  static_cast<ks::tape::Player*>(of)->market->rows.rows.clear();
  return 0;
}
// The name of what differed from the engine.
int64_t ks_tape_difference(void* of) { return reinterpret_cast<int64_t>(static_cast<ks::tape::Player*>(of)->differs); }
int64_t ks_tape_close(void* of) {
  delete static_cast<ks::tape::Player*>(of);
  return 0;
}

// LOBSTER's messages and books of rows; of no rows: those that end a tape. `messages` and `books` have room for one per row and
// one more. Returns how many there are.
int64_t ks_lobster_open(int64_t levels, int64_t unit, int64_t base) {
  return reinterpret_cast<int64_t>(new ks::tape::Lobster(levels, unit, base));
}
int64_t ks_lobster_add(void* of, const void* rows, int64_t count, void* messages, int64_t* books) {
  auto& lobster = *static_cast<ks::tape::Lobster*>(of);
  auto* to = static_cast<ks::tape::Message*>(messages);
  return count > 0 ? lobster.add(static_cast<const ks::tape::Row*>(rows), count, to, books) : lobster.finish(to, books);
}
int64_t ks_lobster_close(void* of) {
  delete static_cast<ks::tape::Lobster*>(of);
  return 0;
}
}
