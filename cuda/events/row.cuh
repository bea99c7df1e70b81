// row.cuh: what rests in a market on the clock: one row of signed numbers, bids above 0 and asks below, and for each side words
// in which a bit says that something rests at a tick. So the next best price and cancellation look at occupied ticks only.
//
// A side counts its places from the end of the grid that it is best at: a bid's place 0 is the highest tick, an ask's the
// lowest. So the best price is the lowest place of either side, and one code without branches serves both.
#pragma once

#include "events/columns.cuh"
#include "model/events.h"

namespace ks {

constexpr int32_t kNoPlace = kNoTick;

// A number for bids and one for asks. A lane selects instead of counting, as what it counts to is in its memory and not in
// registers.
template <typename T>
struct Sides {
  T at[2];
  KS_ON_LANE T of(int32_t side) const {
#ifdef __CUDA_ARCH__
    return side ? at[1] : at[0];
#else
    return at[side];
#endif
  }
  KS_ON_LANE void set(int32_t side, T x) {
#ifdef __CUDA_ARCH__
    at[0] = side ? at[0] : x;
    at[1] = side ? x : at[1];
#else
    at[side] = x;
#endif
  }
};

// The two of a row in global memory that begins at a multiple of their size.
template <typename T>
KS_ON_LANE Sides<T> pair_at(const T* from) {
#ifdef __CUDA_ARCH__
  struct alignas(2 * sizeof(T)) Pair { T bid, ask; };
  const Pair pair = *reinterpret_cast<const Pair*>(from);
  return {{pair.bid, pair.ask}};
#else
  return {{from[0], from[1]}};
#endif
}
template <typename T>
KS_ON_LANE void put_pair(T* to, const Sides<T>& pair) {
#ifdef __CUDA_ARCH__
  struct alignas(2 * sizeof(T)) Pair { T bid, ask; };
  *reinterpret_cast<Pair*>(to) = {pair.at[0], pair.at[1]};
#else
  to[0] = pair.at[0], to[1] = pair.at[1];
#endif
}

// What rests on one side, by tick.
template <typename Row>
struct RestingSide {
  Row row;
  int32_t side;
  KS_ON_LANE int32_t operator[](int tick) const { return max_of(side ? -row[tick] : row[tick], 0); }
};

template <typename Width>
struct BookRow {
  using Cell = typename Width::Cell;
  using Row = Column<Cell, Width>;
  using Bits = OccupiedBits;
  using Lanes = typename Width::Lanes;  // those that share the market
  static constexpr int kLanes = Lanes::kLanes;

  Row row;                    // by tick
  Column<Bits, Width> bits;   // by place, a side's words after the other's
  int levels, words, lead;
  Sides<int32_t> best;        // places, kNoPlace where a side is empty

  KS_ON_LANE BookRow(Cell* row, Bits* bits, int levels)
      : row{row}, bits{bits}, levels(levels), words(words_of_bits(levels, kWordBits)), lead(leading_bits(levels, kWordBits)) {}

  // From a tick to a place and back. Beyond the grid, too: places that are worse than all of it are `levels` and above.
  KS_ON_LANE int32_t flip(int32_t tick, int32_t side) const {
#ifdef __CUDA_ARCH__
    return side ? tick : levels - 1 - tick;
#else
    const int32_t mask = side - 1;  // levels - 1 - tick for bids
    return (tick ^ mask) + (levels & mask);
#endif
  }
  KS_ON_LANE int32_t best_bid() const { return best.at[0] == kNoPlace ? -1 : levels - 1 - best.at[0]; }
  KS_ON_LANE int32_t best_ask() const { return best.at[1]; }

  // Occupied places ---------------------------------------------------------------------------------------------------

  KS_ON_LANE void find_best() {
    best = {{next(0, 0), next(0, 1)}};
  }

  // The first occupied place from that of word w on.
  KS_ON_LANE int32_t next(int w, int32_t side) const {
    for (; w < words; ++w) {
      const Bits here = bits[side * words + w];
      if (here != 0) return kWordBits * w + lowest_bit(here) - lead;
    }
    return kNoPlace;
  }

  KS_ON_LANE void mark(int32_t place, int32_t side, bool full) {
    const int32_t at = place + lead;
    Bits& word = bits[side * words + at / kWordBits];
    const Bits bit = (Bits)1 << (at % kWordBits);
    word = full ? word | bit : word & ~bit;
  }

  // Bits of 32 places, or of all.
  KS_ON_LANE void mark_chunk(int32_t side, int32_t place, uint32_t here) {
    const int32_t at = place + lead, w = side * words + at / kWordBits, shift = at % kWordBits;
    bits[w] |= (Bits)here << shift;
    if (shift + 32 > kWordBits) bits[w + 1] |= (Bits)here >> (kWordBits - shift);
  }

  // Bits and best places, of the row as it is.
  KS_ON_LANE void mark_all() {
    Lanes::sync();
    if (Lanes::leads())
      for (int i = 0; i < 2 * words; ++i) bits[i] = 0;
    const int32_t chunk = min_of(levels, 32);
    for (int first = 0; first < levels; first += chunk) {
      uint32_t bids = 0, asks = 0;
#pragma unroll
      for (int i = 0; i < 32; i += kLanes) {
        const int32_t q = i + Lanes::lane() < chunk ? row[first + i + Lanes::lane()] : 0;
        bids |= Lanes::ballot(q > 0) << i, asks |= Lanes::ballot(q < 0) << i;
      }
      if (!Lanes::leads()) continue;
      mark_chunk(0, levels - first - chunk, reversed_bits(bids) >> (32 - chunk));
      mark_chunk(1, first, asks);
    }
    Lanes::sync();
    find_best();
  }

  // What rests at a tick on a side.
  KS_ON_LANE RestingSide<Row> on(int32_t side) const { return {row, side}; }
  KS_ON_LANE int32_t resting(int32_t tick, int32_t side) const { return on(side)[tick]; }

  KS_ON_LANE int64_t total(int32_t side) const { return total(0, levels - 1, side); }
  // Of the side that has more.
  KS_ON_LANE int64_t larger_total() const {
    int64_t bids = 0, asks = 0;
#pragma unroll 4
    for (int tick = Lanes::lane(); tick < levels; tick += kLanes) {
      const int32_t q = row[tick];
      bids += max_of(q, 0), asks += max_of(-q, 0);
    }
    bids = Lanes::sum(bids), asks = Lanes::sum(asks);
    return bids > asks ? bids : asks;
  }
  KS_ON_LANE int64_t total(int32_t low, int32_t high, int32_t side) const {
    int64_t sum = 0;
    for (int tick = low; tick <= high; ++tick) sum += resting(tick, side);
    return sum;
  }

  // Orders ------------------------------------------------------------------------------------------------------------

  // Both here and in take_ahead all is read before anything is written, as memory answers both at a time then.
  KS_ON_LANE void rest(int32_t place, int32_t quantity, int32_t side) {
    const uint32_t at = (uint32_t)(place + lead);
    Cell& here = row[flip(place, side)];
    Bits& word = bits[side * words + at / kWordBits];
    const Cell there = here;
    const Bits before = word;
    here = (Cell)(there + negated(side, quantity));
    word = before | (Bits)1 << (at % kWordBits);
    best.set(side, min_of(best.of(side), place));
  }

  // Take up to `quantity` at the best place of a side, where something rests. Whether anything is left makes no branch: the
  // next place is the same one then.
  struct Taken {
    int32_t units, next;
  };
  KS_ON_LANE Taken take_ahead(int32_t place, int32_t quantity, int32_t side) {
    const uint32_t at = (uint32_t)(place + lead), w = at / kWordBits;
    Cell& here = row[flip(place, side)];
    Bits& word = bits[side * words + w];
    const int32_t q = here, there = negated(side, q), units = min_of(quantity, there);
    const Bits before = word, left = before & ~((Bits)(units == there) << (at % kWordBits));
    here = (Cell)(q - negated(side, units));
    word = left;
    return {units, left != 0 ? (int32_t)(kWordBits * w) + lowest_bit(left) - lead : next(w + 1, side)};
  }
  // Either of both in one code: add `by` units at a place, or take up to -by at the best one. Returns what it has changed by.
  KS_ON_LANE int32_t change(int32_t place, int32_t by, int32_t side) {
    const uint32_t at = (uint32_t)(place + lead), w = at / kWordBits;
    Cell& here = row[flip(place, side)];
    Bits& word = bits[side * words + w];
    const int32_t q = here, there = negated(side, q), changed = max_of(by, -there);
    const Bits before = word, bit = (Bits)1 << (at % kWordBits), after = there + changed != 0 ? before | bit : before & ~bit;
    here = (Cell)(q + negated(side, changed));
    word = after;
    const int32_t next_there = after != 0 ? (int32_t)(kWordBits * w) + lowest_bit(after) - lead : next(w + 1, side);
    best.set(side, by < 0 ? next_there : min_of(best.of(side), place));
    return changed;
  }
  // Take units at any place where they rest.
  KS_ON_LANE void remove(int32_t place, int32_t units, int32_t side) {
    Cell& here = row[flip(place, side)];
    here = (Cell)(here - negated(side, units));
    if (here != 0) return;
    mark(place, side, false);
    if (place == best.of(side)) best.set(side, next((place + lead) / kWordBits, side));
  }
  KS_ON_LANE int32_t take(int32_t place, int32_t quantity, int32_t side) {
    const Taken taken = take_ahead(place, quantity, side);
    best.set(side, taken.next);
    return taken.units;
  }
};

}  // namespace ks
