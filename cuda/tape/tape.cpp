// tape.cpp: plays a market order by order and writes its tape, or LOBSTER's messages of a tape's rows; a library of its own
// (kineticsim_env/tapes/library.py). Beside it the C++ engine plays the same market: after every interval, or after all of a
// decision whose quotes are under way, both have to be the same to the last bit.
#include <cstdint>
#include <memory>

#include "tape/call.h"
#include "tape/continuous.h"
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

// A decision of some intervals, in one launch of the engine; `fresh` are its quotes, or null.
static Ended play(Player& player, const Quote* fresh, int64_t intervals) {
  Launch& launch = player.launch;
  TapeMarket& market = *player.market;
  launch.decisions = 1, launch.auctions = (int32_t)intervals;
  launch.new_quotes = reinterpret_cast<const int32_t*>(fresh);
  if (player.engine(&launch) >= 0) return kStopped;
  const uint64_t length = (uint32_t)market.p.levers.interval, latency = (uint32_t)market.p.levers.quote_latency;
  const uint64_t arrival = (uint64_t)market.t * length + std::min(latency, (uint64_t)intervals * length);
  for (int64_t i = 0; i < intervals; ++i)
    market.interval(market.continuous() || i == 0 ? fresh : nullptr, arrival, i == intervals - 1);
  player.differs = market.difference(launch);
  return player.differs ? kDiffers : kPlayed;
}

}  // namespace ks::tape

extern "C" {

// A player of the one market that a launch is of; `engine` is the C++ engine's ks_cpu_launch.
int64_t ks_tape_open(const ks::Launch* launch, void* engine) {
  auto player = std::make_unique<ks::tape::Player>();
  player->launch = *launch;
  player->engine = reinterpret_cast<ks::tape::Engine>(engine);
  if (launch->mechanism == ks::kMechanismContinuous) player->market = std::make_unique<ks::tape::ContinuousTape>(*launch);
  else player->market = std::make_unique<ks::tape::CallTape>(*launch);
  player->market->open(launch->bid, launch->ask);
  return reinterpret_cast<int64_t>(player.release());
}

// Play intervals. `quotes` [K, 4] are those of a decision that begins with them, or null; `fundamental` [intervals] is the
// fundamental price as each of them begins, or null. Quotes under way keep the engine from stopping between intervals, as they
// arrive after a latency: there is no `fundamental` then. Returns an Ended.
int64_t ks_tape_play(void* of, const int32_t* quotes, int64_t intervals, const int32_t* fundamental) {
  auto& player = *static_cast<ks::tape::Player*>(of);
  const auto* fresh = reinterpret_cast<const ks::Quote*>(quotes);
  if (fresh && player.market->p.levers.quote_latency > 0 && !fundamental) return ks::tape::play(player, fresh, intervals);
  for (int64_t i = 0; i < intervals; ++i) {
    if (fundamental) player.market->fundamental = player.launch.fundamental_price[0] = fundamental[i];
    const auto ended = ks::tape::play(player, i == 0 ? fresh : nullptr, 1);
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
