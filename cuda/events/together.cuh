// together.cuh: what the lanes of a warp do together where each has a market: take up and store their books, write their
// features. In global memory a market's row is some hundred bytes. A lane that reads or writes its own, 4 or 16 bytes at a
// time, takes a part of a sector where its neighbours have other lines; together they take whole sectors.
//
// That needs all lanes at the same place. Where some are not, each lane works for itself. GPUs only. Holds no rule.
#pragma once

#include "events/columns.cuh"
#include "model/compiled_in.cuh"
#include "model/plan.h"

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define KS_TOGETHER 1
#else
#define KS_TOGETHER 0
#endif

namespace ks {

// An observation of a market that several lanes share: each keeps some of its columns until a row is whole. Used as FeatureRows
// (model/environment.h) is.
template <int kRow, typename Lanes>
struct FeatureParts {
  static constexpr int kLanes = Lanes::kLanes, kEach = (kRow + kLanes - 1) / kLanes;
  static KS_ON_LANE int lane() { return Lanes::lane(); }
  float *to, *copy;
  int length;
  float mine[kEach];

  KS_ON_LANE FeatureParts(const Launch& launch, int64_t m, bool ended, bool is_next = false) {
    length = kRow + extra_columns(launch);
    const int64_t first = m * launch.slots * length;
    to = (is_next ? launch.observation : launch.final_observation) + first;
    copy = is_next || ended ? nullptr : launch.observation + first;
  }
  KS_ON_LANE void write(int i, float feature) { mine[i / kLanes] = i % kLanes == lane() ? feature : mine[i / kLanes]; }
  KS_ON_LANE void begin_slot(int k) {
    if (k == 0) return;
    to += length, copy += copy ? length : 0;
  }
  KS_ON_LANE void write_own(int i, float feature) { write(i, feature); }
  KS_ON_LANE void end_slot(int) const {
#pragma unroll
    for (int n = 0; n < kEach; ++n) {
      const int i = n * kLanes + lane();
      if (i < kRow) put(i, mine[n]);
    }
  }
  KS_ON_LANE void write_level(int, int n, int i, float feature) const { put(kRow + n * kLevelFeatures + i, feature); }
  KS_ON_LANE void write_extra(int, int i, float feature) const { put(kRow + i, feature); }

 private:
  KS_ON_LANE void put(int i, float feature) const {
    to[i] = feature;
    if (copy) copy[i] = feature;
  }
};

}  // namespace ks

#if KS_TOGETHER
namespace ks {

KS_ON_LANE bool all_lanes_are_here() { return __activemask() == 0xffffffffu; }

// Books ------------------------------------------------------------------------------------------------------------------

// What is odd of a book: a quantity that no cell holds; a tick with bids and asks.
constexpr uint32_t kTooLarge = 1, kBothSides = 2;

// The books of all lanes, which are a column each.
template <typename Width>
struct BookColumns {
  using Cell = typename Width::Cell;
  static constexpr int kLanesPerRow = 4, kRowsAtOnce = kLaneCount / kLanesPerRow, kStride = Width::kMarkets;
  static_assert(kStride == kLaneCount && sizeof(Cell) == 2, "a column for each lane, which holds 16 bits");

  const int64_t first;    // market of lane 0
  const int levels;
  Cell* const rows;       // of lane 0
  uint32_t* const notes;  // likewise, a word per market

  KS_ON_LANE BookColumns(int64_t m, int levels, Cell* row, uint32_t* note)
      : first(m - this_lane()), levels(levels), rows(row - this_lane()), notes(note - this_lane()) {}

  // Copy the books into their columns, bids above 0 and asks below. Returns what is odd of this lane's. Four lanes read 64
  // bytes of a book and those beside them read other books, as the columns of different books are in different banks.
  KS_ON_LANE uint32_t load(const int32_t* bid, const int32_t* ask) const {
    notes[this_lane()] = 0;
    sync_warp();
#pragma unroll 1
    for (int i = this_lane() / kLanesPerRow; i < kLaneCount; i += kRowsAtOnce) {
      const int64_t from = (first + i) * levels;
      int32_t all = 0, both = 0;
#pragma unroll 8  // loads in flight at a time
      for (int tick = 4 * (this_lane() % kLanesPerRow); tick < levels; tick += 4 * kLanesPerRow) {
        const Four b = four_at(bid + from + tick), a = four_at(ask + from + tick);
        Cell* const row = rows + tick * kStride + i;
        row[0] = (Cell)(b.a - a.a), row[kStride] = (Cell)(b.b - a.b);
        row[2 * kStride] = (Cell)(b.c - a.c), row[3 * kStride] = (Cell)(b.d - a.d);
        all |= b.a | b.b | b.c | b.d | a.a | a.b | a.c | a.d;
        both |= min_of(b.a, a.a) | min_of(b.b, a.b) | min_of(b.c, a.c) | min_of(b.d, a.d);
      }
      const bool too_large = (uint32_t)all > 0x7fffu;
      if (too_large || both) atomicOr(notes + i, (too_large ? kTooLarge : 0) | (both ? kBothSides : 0));
    }
    sync_warp();
    return notes[this_lane()];
  }

  // Store those of each book's groups of 2^group_bits ticks that `groups` names, in the same order. Of some ticks all is read
  // before anything is written, so that the reads are under way together.
  KS_ON_LANE void store(int32_t* bid, int32_t* ask, uint32_t groups, int group_bits) const {
    constexpr int kAtOnce = 4;
    sync_warp();
#pragma unroll 1
    for (int i = this_lane() / kLanesPerRow; i < kLaneCount; i += kRowsAtOnce) {
      const uint32_t wanted = shuffle(groups, i);
      const int64_t to = (first + i) * levels;
#pragma unroll 1
      for (int from = 4 * (this_lane() % kLanesPerRow); from < levels; from += 4 * kLanesPerRow * kAtOnce) {
        Four there[kAtOnce];
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) {
          const int tick = from + 4 * kLanesPerRow * j;
          const Cell* const row = rows + tick * kStride + i;
          if (tick < levels) there[j] = {row[0], row[kStride], row[2 * kStride], row[3 * kStride]};
        }
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) {
          const int tick = from + 4 * kLanesPerRow * j;
          if (tick >= levels || !(wanted >> (tick >> group_bits) & 1)) continue;
          const Four q = there[j];
          put_four(bid + to + tick, max_of(q.a, 0), max_of(q.b, 0), max_of(q.c, 0), max_of(q.d, 0));
          put_four(ask + to + tick, max_of(-q.a, 0), max_of(-q.b, 0), max_of(-q.c, 0), max_of(-q.d, 0));
        }
      }
    }
    sync_warp();
  }
};

// Observations -----------------------------------------------------------------------------------------------------------

// Features of all lanes' markets, a batch at a time in the shared memory of drawn arrivals, of which none is left; together [lane,
// batch], where the batch's length is odd, so that lanes do not meet in a bank; else in the lane's own column, as others may still
// have arrivals in theirs. Used as FeatureRows (model/environment.h) is.
template <int kRow, typename Drawn>
struct FeatureColumns {
  static constexpr int kLanes = 1;
  static KS_ON_LANE int lane() { return 0; }
  static constexpr int kBatch = kFeatureBatch, kLastBatch = kRow - 2 * kBatch;
  static_assert(kMarketFeatures >= 2 * kBatch && kLastBatch > 0 && kLastBatch <= kBatch, "a slot's own are in the last batch");

  const Launch& launch;
  const int64_t first;    // market of lane 0
  const bool together;
  const unsigned copied;  // lanes whose observation is the next one, too: their episodes go on
  const Drawn own;        // column of this lane

  KS_ON_LANE FeatureColumns(const Launch& launch, int64_t m, bool ended, const Drawn& own)
      : launch(launch), first(m - this_lane()), together(all_lanes_are_here()),
        copied(together ? ballot(!ended) : (unsigned)!ended << this_lane()), own(own) {
    if (together) sync_warp();
  }

  KS_ON_LANE void write(int i, float feature) const {
    put(i % kBatch, feature);
    if (i % kBatch == kBatch - 1) write_batch<kBatch>(i + 1 - kBatch, 0, launch.slots);
  }
  KS_ON_LANE void begin_slot(int) const {}
  KS_ON_LANE void write_own(int i, float feature) const { put(i % kBatch, feature); }
  KS_ON_LANE void end_slot(int k) const { write_batch<kLastBatch>(2 * kBatch, k, k + 1); }
  // In the places of what is the slot's own, behind what all slots see, of which further slots' rows are written.
  KS_ON_LANE void write_level(int k, int n, int i, float feature) const {
    constexpr int kPlace = kMarketFeatures - 2 * kBatch;
    static_assert(kPlace + kLevelFeatures <= kBatch, "there is room for a level");
    put(kPlace + i, feature);
    if (i == kLevelFeatures - 1) write_batch<kLevelFeatures>(kRow + n * kLevelFeatures, k, k + 1, kPlace);
  }
  // Each lane its own.
  KS_ON_LANE void write_extra(int k, int i, float feature) const { write_at(this_lane(), k, kRow + i, feature); }

 private:
  KS_ON_LANE float* batches() const { return reinterpret_cast<float*>(own.at) - this_lane(); }
  KS_ON_LANE float& mine(int i) const {
    return together ? batches()[this_lane() * kBatch + i] : *reinterpret_cast<float*>(&own[i]);
  }
  KS_ON_LANE void put(int i, float feature) const { mine(i) = feature; }

  // Features from number i on, to the rows of some slots: half a warp has a row. A loop, as code that is run through once takes
  // longer to fetch than to execute.
  template <int kCount>
  KS_ON_LANE void write_batch(int i, int first_slot, int end_slot, int place = 0) const {
    constexpr int kHalf = kLaneCount / 2;
    static_assert(kCount <= kHalf, "a lane for each feature");
    if (!together) {
      for (int k = first_slot; k < end_slot; ++k)
#pragma unroll 1
        for (int n = 0; n < kCount; ++n) write_at(this_lane(), k, i + n, mine(place + n));
      return;
    }
    const int n = this_lane() % kHalf, half = this_lane() / kHalf;
    const int64_t width = kRow + extra_columns(launch), market = launch.slots * width;
    sync_warp();
    for (int k = first_slot; k < end_slot && n < kCount; ++k) {
      const int64_t at = (first + half) * market + k * width + i + n;
      float *to = launch.final_observation + at, *copy = launch.observation + at;
      const float* from = batches() + half * kBatch + place + n;
#pragma unroll 4
      for (unsigned left = copied >> half, pairs = 0; pairs < kHalf; ++pairs, left >>= 2) {
        const float feature = *from;
        *to = feature;
        if (left & 1) *copy = feature;
        to += 2 * market, copy += 2 * market, from += 2 * kBatch;
      }
    }
    sync_warp();
  }
  KS_ON_LANE void write_at(int lane, int k, int i, float feature) const {
    const int64_t at = ((first + lane) * launch.slots + k) * (kRow + extra_columns(launch)) + i;
    launch.final_observation[at] = feature;
    if (copied >> lane & 1) launch.observation[at] = feature;
  }
};

}  // namespace ks
#endif
