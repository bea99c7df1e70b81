// together.cuh: what the lanes of a warp do together, each of which has a market: take up and store their books, write their
// features. A market's row in global memory is some hundred bytes, so that a lane which reads or writes its own, 4 or 16
// bytes at a time, takes a part of a line where its neighbours have other lines; together they take whole sectors.
//
// Lanes work together with those that are there at the same time, whichever these are. GPUs only. Holds no rule.
#pragma once

#include "events/columns.cuh"
#include "model/plan.h"

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define KS_TOGETHER 1
#else
#define KS_TOGETHER 0
#endif

#if KS_TOGETHER
namespace ks {

struct Team {
  const unsigned mask;    // of its lanes
  const int rank, count;  // of this lane among them

  KS_ON_LANE Team() : Team(__activemask()) {}
  explicit KS_ON_LANE Team(unsigned mask)
      : mask(mask), rank(__popc(mask & ((1u << this_lane()) - 1))), count(__popc(mask)) {}

  KS_ON_LANE bool has(int lane) const { return mask >> lane & 1; }
  KS_ON_LANE bool whole() const { return mask == 0xffffffffu; }
  KS_ON_LANE void sync() const { __syncwarp(mask); }
};

// Books ------------------------------------------------------------------------------------------------------------------

constexpr uint32_t kTooLarge = 1, kBothSides = 2;  // of a book: a quantity that no cell holds; a tick with bids and asks

template <typename Width>
struct BookColumns {
  using Cell = typename Width::Cell;

  const Team team;
  const int64_t first;   // market of the warp's lane 0
  const int levels, quads, quad_bits;
  Cell* const rows;      // of the warp's first column
  uint32_t* const notes; // likewise: a word per market

  KS_ON_LANE BookColumns(int64_t m, int levels, Cell* row, uint32_t* note)
      : first(m - this_lane()), levels(levels), quads(levels / 4), quad_bits(31 - __clz(levels / 4)), rows(row - column()), notes(note - column()) {}

  static KS_ON_LANE int column() { return this_lane() % Width::kMarkets; }

  // Copy the books of the team's markets into their columns, bids above 0 and asks below. Returns what is odd of this lane's.
  KS_ON_LANE uint32_t load(const int32_t* bid, const int32_t* ask) const {
    notes[column()] = 0;
    team.sync();
    if (team.whole()) {
#pragma unroll 8  // loads in flight at a time
      for (int j = this_lane(); j < kLaneCount * quads; j += kLaneCount) load_quad(bid, ask, j);
    } else {
#pragma unroll 1
      for (int j = team.rank; j < kLaneCount * quads; j += team.count)
        if (team.has(market_of(j))) load_quad(bid, ask, j);
    }
    team.sync();
    return notes[column()];
  }

  // Store the sectors of each market's book that its `groups` name: of so many ticks that a book has at most 32.
  KS_ON_LANE void store(int32_t* bid, int32_t* ask, uint32_t groups, int group_bits) const {
    team.sync();
#pragma unroll 4
    for (int i = 0; i < kLaneCount; ++i) {
      if (!team.has(i)) continue;
      const uint32_t wanted = __shfl_sync(team.mask, groups, i);
      const int64_t to = (first + i) * levels;
      for (int quad = team.rank; quad < quads; quad += team.count)
        if (wanted >> (4 * quad >> group_bits) & 1) store_quad(bid + to, ask + to, i, quad);
    }
    team.sync();
  }

 private:
  // Item j is four ticks of a market. Four lanes read 64 bytes of one, and lanes beside them other markets, as the columns of
  // different markets are in different banks.
  KS_ON_LANE int near_bits() const { return quad_bits < 2 ? quad_bits : 2; }
  KS_ON_LANE int quad_of(int j) const {
    const int near = near_bits(), far = (j >> (near + 3)) & ((quads >> near) - 1);
    return (j & ((1 << near) - 1)) + (far << near);
  }
  KS_ON_LANE int market_of(int j) const { return ((j >> near_bits()) & 7) + 8 * (j >> (quad_bits + 3)); }

  KS_ON_LANE void load_quad(const int32_t* bid, const int32_t* ask, int j) const {
    const int i = market_of(j), tick = 4 * quad_of(j), column = i % Width::kMarkets;
    const int64_t from = (first + i) * levels + tick;
    const Four b = four_at(bid + from), a = four_at(ask + from);
    Cell* const row = rows + tick * Width::kMarkets + column;
    row[0] = (Cell)(b.a - a.a), row[Width::kMarkets] = (Cell)(b.b - a.b);
    row[2 * Width::kMarkets] = (Cell)(b.c - a.c), row[3 * Width::kMarkets] = (Cell)(b.d - a.d);
    uint32_t odd = 0;
    if (sizeof(Cell) == 2 && (uint32_t)(b.a | b.b | b.c | b.d | a.a | a.b | a.c | a.d) > 0x7fffu) odd |= kTooLarge;
    if ((b.a && a.a) | (b.b && a.b) | (b.c && a.c) | (b.d && a.d)) odd |= kBothSides;
    if (odd) atomicOr(notes + column, odd);
  }

  KS_ON_LANE void store_quad(int32_t* bid, int32_t* ask, int i, int quad) const {
    const Cell* const row = rows + 4 * quad * Width::kMarkets + i % Width::kMarkets;
    const int32_t a = row[0], b = row[Width::kMarkets], c = row[2 * Width::kMarkets], d = row[3 * Width::kMarkets];
    put_four(bid + 4 * quad, max_of(a, 0), max_of(b, 0), max_of(c, 0), max_of(d, 0));
    put_four(ask + 4 * quad, max_of(-a, 0), max_of(-b, 0), max_of(-c, 0), max_of(-d, 0));
  }
};

// Observations -----------------------------------------------------------------------------------------------------------

// Features of the team's markets, a batch at a time in shared memory, [lane, batch]; the batch's length is odd, so that lanes
// do not meet in a bank. Used as FeatureRows (model/environment.h).
template <int kRow>
struct FeatureColumns {
  static constexpr int kBatch = kFeatureBatch, kLastBatch = kRow - 2 * kBatch;
  static_assert(kMarketFeatures >= 2 * kBatch && kLastBatch > 0 && kLastBatch <= kBatch, "a slot's own are in the last batch");

  const Team team;
  const int64_t first;    // market of the warp's lane 0
  const int slots;
  float* const out;       // of market 0
  float* const copy;      // likewise, for the lanes in `copied`
  const unsigned copied;
  float* const batches;

  KS_ON_LANE FeatureColumns(int64_t m, int slots, float* out, float* copy, float* batches)
      : first(m - this_lane()), slots(slots), out(out), copy(common(copy)), copied(copied_of(copy)), batches(batches) {}

  KS_ON_LANE void write(int i, float feature) const {
    put(i, feature);
    if (i % kBatch == kBatch - 1) write_batch<kBatch>(i + 1 - kBatch, 0, slots);
  }
  KS_ON_LANE void begin_slot(int) const {}
  KS_ON_LANE void write_own(int i, float feature) const { put(i, feature); }
  KS_ON_LANE void end_slot(int k) const { write_batch<kLastBatch>(2 * kBatch, k, k + 1); }

 private:
  KS_ON_LANE unsigned copied_of(float* copy) const { return __ballot_sync(team.mask, copy != nullptr); }
  KS_ON_LANE float* common(float* copy) const {
    const unsigned has = copied_of(copy);
    const uint64_t address = __shfl_sync(team.mask, (uint64_t)copy, has ? lowest_bit(has) : this_lane());
    return reinterpret_cast<float*>(address);
  }
  KS_ON_LANE void put(int i, float feature) const { batches[this_lane() * kBatch + i % kBatch] = feature; }

  // Features from number i on, to the rows of some slots.
  template <int kCount>
  KS_ON_LANE void write_batch(int i, int first_slot, int end_slot) const {
    team.sync();
    for (int k = first_slot; k < end_slot; ++k) {
      if (team.whole()) {
#pragma unroll
        for (int n = 0; n < kCount; ++n) write_one<kCount>(n * kLaneCount + this_lane(), i, k);
      } else {
#pragma unroll 1
        for (int j = team.rank; j < kLaneCount * kCount; j += team.count)
          if (team.has(j / kCount)) write_one<kCount>(j, i, k);
      }
    }
    team.sync();
  }
  template <int kCount>
  KS_ON_LANE void write_one(int j, int i, int k) const {
    const int lane = j / kCount, n = j % kCount;
    const float feature = batches[lane * kBatch + n];
    const int64_t at = ((first + lane) * slots + k) * kRow + i + n;
    out[at] = feature;
    if (copied >> lane & 1) copy[at] = feature;
  }
};

}  // namespace ks
#endif
