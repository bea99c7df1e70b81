// tile.cuh: the markets that a warp has on its lanes at a time: where their books, bins and features are in shared
// memory, and how books and features are loaded and stored. All lanes work on one market's row, then on the next.
// The tile's markets are those of `kTaken` lanes, from `first_lane` on.
#pragma once

#include "model/compiled_in.cuh"
#include "lane/book.cuh"

namespace ks {

template <bool kWide>
struct LaneTile {
  using Book = LaneBook<kWide>;
  using Cell = typename Book::Cell;
  using Cells = typename Book::Cells;
  static constexpr int kTaken = Book::kStride;  // lanes that have a market of the tile
  static constexpr int kRowsAtOnce = kLaneCount > 1 ? 2 : 1, kLanesPerRow = kLaneCount / kRowsAtOnce;  // when books are stored

  const Launch& launch;
  const int lane, levels, first_lane;
  const bool has_market;        // whether this lane is one of those
  const int place;              // of this lane's market in the tile; 0 if it has none
  const int64_t first;          // market of the tile
  Cell* const rows;             // shared [taken, row]
  int32_t* const bins;          // shared [KS_LANES + 1, taken] or [KS_LANES + 1, 2, taken]
  float* const features;        // shared [taken, row_length()], in the same memory as the bins

  KS_ON_LANE LaneTile(const Launch& launch, int64_t first, int first_lane, int* shared)
      : launch(launch), lane(this_lane()), levels(KS_LEVELS), first_lane(kTaken < kLaneCount ? first_lane : 0),
        has_market(lane >= this->first_lane && lane < this->first_lane + kTaken),
        place(has_market ? lane - this->first_lane : 0), first(first), rows(reinterpret_cast<Cell*>(shared)),
        bins(shared + kTaken * lane_row_ints(levels, kWide)), features(reinterpret_cast<float*>(bins)) {}

  KS_ON_LANE int row_length() const { return kObservation + extra_columns(launch); }  // of an observation
  KS_ON_LANE Cell* row_of(int i) const { return rows + i * (levels + kRowPadding); }

  // Load the tile's book i into shared memory, with all lanes. Returns the bitwise or of the quantities that this lane read.
  KS_ON_LANE int32_t load_book(int i, const int32_t* bids, const int32_t* asks) const {
    int32_t bits = 0;
    for (int tick = 4 * lane; tick < levels; tick += 4 * kLaneCount) {
      const Four bid = *reinterpret_cast<const Four*>(bids + tick), ask = *reinterpret_cast<const Four*>(asks + tick);
      bits |= bid.a | bid.b | bid.c | bid.d | ask.a | ask.b | ask.c | ask.d;
      *reinterpret_cast<Cells*>(row_of(i) + tick) = {(Cell)(bid.a - ask.a), (Cell)(bid.b - ask.b), (Cell)(bid.c - ask.c),
                                                     (Cell)(bid.d - ask.d)};
    }
    return bits;
  }
  static KS_ON_LANE bool fit(int32_t bits) { return kWide || ballot(bits > kNarrowResting) == 0; }

  // Load the books of the lanes in `wanted`; false if a quantity does not fit.
  KS_ON_LANE bool load_books(unsigned wanted) const {
    const int32_t *bids = launch.bid + first * levels, *asks = launch.ask + first * levels;
    int32_t bits = 0;
#pragma unroll 8  // loads in flight at a time
    for (int i = 0; i < kTaken; ++i)
      if (wanted >> (first_lane + i) & 1) bits |= load_book(i, bids + i * levels, asks + i * levels);
    sync_warp();
    return fit(bits);
  }

  // Load each lane's warm start, from a row of the bank.
  KS_ON_LANE bool load_warm_starts(unsigned wanted, int64_t row) const {
    int32_t bits = 0;
#pragma unroll 4
    for (int i = 0; i < kTaken; ++i) {
      const int64_t from = shuffle(row, first_lane + i) * levels;
      if (wanted >> (first_lane + i) & 1) bits |= load_book(i, launch.bank_bid + from, launch.bank_ask + from);
    }
    sync_warp();
    return fit(bits);
  }

  static KS_ON_LANE Four positive(int32_t a, int32_t b, int32_t c, int32_t d) {
    return {max_of(a, 0), max_of(b, 0), max_of(c, 0), max_of(d, 0)};
  }
  // Only the ticks that a lane has changed are stored.
  KS_ON_LANE void store_books(const Book& book) const {
    const int32_t changed = book.changed_low / 8 | (book.changed_high / 8) << 16;  // 32 bytes are written as one
    sync_warp();
#pragma unroll 4  // half the lanes for a market, as most change less than half of 128 ticks
    for (int i = 0; i < kTaken; i += kRowsAtOnce) {
      const int row = i + lane / kLanesPerRow;
      const int32_t part = shuffle(changed, first_lane + row), low = 8 * (part & 0xffff), high = 8 * (part >> 16) + 7;
      const int64_t to = (first + row) * levels;
#pragma unroll 1
      for (int tick = low + 4 * (lane % kLanesPerRow); tick <= high; tick += 4 * kLanesPerRow) {
        const Cells x = *reinterpret_cast<const Cells*>(row_of(row) + tick);
        *reinterpret_cast<Four*>(launch.bid + to + tick) = positive(x.a, x.b, x.c, x.d);
        *reinterpret_cast<Four*>(launch.ask + to + tick) = positive(-x.a, -x.b, -x.c, -x.d);
      }
    }
  }

  // new[tick] = old[tick + by], of each lane's row; read a chunk ahead of what is written.
  KS_ON_LANE void shift_books(int32_t by) const {
    for (unsigned left = ballot(by != 0); left != 0; left &= left - 1) {
      sync_warp();
      const int owner = lowest_bit(left), shift = shuffle(by, owner);
      Cell* const row = row_of(owner - first_lane);
      for (int low = 0; low < levels; low += kLaneCount) {
        const int tick = shift > 0 ? low + lane : levels - 1 - low - lane, from = tick + shift;
        const bool on_grid = tick >= 0 && tick < levels;
        const Cell x = on_grid && from >= 0 && from < levels ? row[from] : (Cell)0;
        sync_warp();
        if (on_grid) row[tick] = x;
        sync_warp();
      }
    }
  }

  // Write the rows of the lanes in `wanted`, to one or two places.
  KS_ON_LANE void write_features(unsigned wanted, float* out, float* copy) const {
    const int length = row_length();
    out += first * length;
    if (copy) copy += first * length;
    sync_warp();
    if (wanted == 0xffffffffu) {
#pragma unroll 5
      for (int i = lane; i < kLaneCount * length / 4; i += kLaneCount) {
        const Four four = reinterpret_cast<const Four*>(features)[i];
        write_out(reinterpret_cast<Four*>(out) + i, four);
        if (copy) write_out(reinterpret_cast<Four*>(copy) + i, four);
      }
    } else {
#pragma unroll 1
      for (int i = lane; i < kTaken * length; i += kLaneCount) {
        if (!(wanted >> (first_lane + i / length) & 1)) continue;
        out[i] = features[i];
        if (copy) copy[i] = features[i];
      }
    }
    sync_warp();
  }
};

}  // namespace ks
