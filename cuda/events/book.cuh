// book.cuh: what built-in agents' resting orders are in a market on the clock: one row of signed numbers, bids above 0 and
// asks below, and for each side words in which a bit says that something rests at a tick. So the next best price and
// cancellation look at occupied ticks only.
//
// A side counts its places from the end of the grid that it is best at: a bid's place 0 is the highest tick, an ask's the
// lowest. So the best price is the lowest place of either side, and one code without branches serves both.
#pragma once

#include "events/together.cuh"
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

// What rests on one side, by tick.
template <typename Row>
struct RestingSide {
  Row row;
  int32_t side;
  KS_ON_LANE int32_t operator[](int tick) const { return max_of(side ? -row[tick] : row[tick], 0); }
};

template <typename Width>
struct EventBook {
  using Cell = typename Width::Cell;
  using Row = Column<Cell, Width>;
  using Bits = OccupiedBits;
  using Lanes = typename Width::Lanes;  // those that share the market
  static constexpr int kLanes = Lanes::kLanes;

  Row row;                    // by tick
  Column<Bits, Width> bits;   // by place, a side's words after the other's
  int levels, words, lead;
  Sides<int32_t> best;        // places, kNoPlace where a side is empty
  uint32_t stored;            // groups of ticks at which something rests in global memory

  KS_ON_LANE EventBook(Cell* row, Bits* bits, int levels)
      : row{row}, bits{bits}, levels(levels), words(words_of_bits(levels, kWordBits)), lead(leading_bits(levels, kWordBits)),
        stored(0) {}

  // From a tick to a place and back. Beyond the grid, too: places that are worse than all of it are `levels` and above.
  KS_ON_LANE int32_t flip(int32_t tick, int32_t side) const {
    const int32_t mask = side - 1;  // levels - 1 - tick for bids
    return (tick ^ mask) + (levels & mask);
  }
  KS_ON_LANE int32_t best_bid() const { return best.at[0] == kNoPlace ? -1 : levels - 1 - best.at[0]; }
  KS_ON_LANE int32_t best_ask() const { return best.at[1]; }

  // Memory ----------------------------------------------------------------------------------------------------------

  // Of 4 ticks, on a GPU of 8, as it writes 32 bytes at a time; or of more where 32 groups would not suffice.
  KS_ON_LANE int32_t group_bits() const {
    const int32_t least = kLaneCount > 1 ? 3 : 2;
    return levels <= 32 << least ? least : highest_bit((uint64_t)levels) - 5;
  }

  // The market's own book, in global memory.
  KS_ON_LANE uint32_t load_own(const Launch& launch, int64_t m) {
    if constexpr (kLanes > 1) return load_together(launch.bid + m * levels, launch.ask + m * levels);
#if KS_TOGETHER
    if constexpr (Width::kMarkets == kLaneCount) {
      if (all_lanes_are_here()) {
        const uint32_t odd = BookColumns<Width>(m, levels, row.at, bits.at).load(launch.bid, launch.ask), most = take_up();
        if (odd & kBothSides) replace_all();
        return odd & kTooLarge ? 0xffffffffu : most;
      }
    }
#endif
    return load(launch.bid + m * levels, launch.ask + m * levels);
  }
  KS_ON_LANE void store_own(const Launch& launch, int64_t m) {
    if constexpr (kLanes > 1) return store_together(launch.bid + m * levels, launch.ask + m * levels);
#if KS_TOGETHER
    if constexpr (Width::kMarkets == kLaneCount) {
      if (all_lanes_are_here()) {
        const uint32_t rests = occupied_groups();
        BookColumns<Width>(m, levels, row.at, bits.at).store(launch.bid, launch.ask, stored | rests, group_bits());
        stored = rests;
        return;
      }
    }
#endif
    store(launch.bid + m * levels, launch.ask + m * levels);
  }

  // What follows from a row. Returns what rests on either side at most.
  KS_ON_LANE uint32_t take_up() {
    const int32_t chunk = min_of(levels, 32);
    uint32_t bids = 0, asks = 0;
    for (int i = 0; i < 2 * words; ++i) bits[i] = 0;
    for (int first = 0; first < levels; first += chunk) {
      uint32_t bids_here = 0, asks_here = 0;
#pragma unroll 16
      for (int i = 0; i < chunk; ++i) {
        const int32_t q = row[first + i];
        bids += max_of(q, 0), asks += max_of(-q, 0);
        bids_here |= (uint32_t)(q > 0) << i, asks_here |= (uint32_t)(q < 0) << i;
      }
      mark_chunk(0, levels - first - chunk, reversed_bits(bids_here) >> (32 - chunk));
      mark_chunk(1, first, asks_here);
    }
    find_best();
    stored = occupied_groups();
    return bids > asks ? bids : asks;
  }
  KS_ON_LANE uint32_t occupied_groups() const {
    const int32_t group = group_bits();
    uint32_t groups = 0;
    for (int i = 0; i < 2 * words; ++i) {
      const int32_t side = i >= words;
      for (Bits here = bits[i]; here != 0; here &= here - 1)
        groups |= 1u << (flip(kWordBits * (i - side * words) + lowest_bit(here) - lead, side) >> group);
    }
    return groups;
  }

  // Take up a book. Returns what rests on either side at most; with more than a cell can hold, the row is not to be used.
  KS_ON_LANE uint32_t load(const int32_t* bid, const int32_t* ask) {
    if constexpr (kLanes > 1) return load_together(bid, ask);
    const int32_t chunk = min_of(levels, 32), group = group_bits();
    uint32_t bids = 0, asks = 0;
    stored = 0;
    for (int i = 0; i < 2 * words; ++i) bits[i] = 0;
    for (int first = 0; first < levels; first += chunk) {
      uint32_t bids_here = 0, asks_here = 0;
#pragma unroll 8  // loads in flight at a time
      for (int i = 0; i < chunk; i += 4) {
        const Four b = four_at(bid + first + i), a = four_at(ask + first + i);
        const Four q = {b.a - a.a, b.b - a.b, b.c - a.c, b.d - a.d};
        const int32_t tick = first + i;
        row[tick] = (Cell)q.a, row[tick + 1] = (Cell)q.b, row[tick + 2] = (Cell)q.c, row[tick + 3] = (Cell)q.d;
        bids += (uint32_t)b.a + b.b + b.c + b.d, asks += (uint32_t)a.a + a.b + a.c + a.d;
        bids_here |= occupied(q.a > 0, q.b > 0, q.c > 0, q.d > 0) << i;
        asks_here |= occupied(q.a < 0, q.b < 0, q.c < 0, q.d < 0) << i;
        stored |= (uint32_t)((b.a | b.b | b.c | b.d | a.a | a.b | a.c | a.d) != 0) << (tick >> group);
      }
      mark_chunk(0, levels - first - chunk, reversed_bits(bids_here) >> (32 - chunk));
      mark_chunk(1, first, asks_here);
    }
    find_best();
    return bids > asks ? bids : asks;
  }
  static KS_ON_LANE uint32_t occupied(bool a, bool b, bool c, bool d) {
    return (uint32_t)a | (uint32_t)b << 1 | (uint32_t)c << 2 | (uint32_t)d << 3;
  }
  // Bits of 32 places, or of all.
  KS_ON_LANE void mark_chunk(int32_t side, int32_t place, uint32_t here) {
    const int32_t at = place + lead, w = side * words + at / kWordBits, shift = at % kWordBits;
    bits[w] |= (Bits)here << shift;
    if (shift + 32 > kWordBits) bits[w + 1] |= (Bits)here >> (kWordBits - shift);
  }

  // The book of an episode's beginning.
  KS_ON_LANE void open(int32_t price, int32_t depth) {
    Lanes::sync();
    for (int tick = Lanes::lane(); tick < levels; tick += kLanes) row[tick] = 0;
    if (Lanes::leads())
      for (int i = 0; i < 2 * words; ++i) bits[i] = 0;
    Lanes::sync();
    find_best();
    Lanes::sync();
    if (depth > 0 && Lanes::leads()) rest(flip(price - 1, 0), depth, 0), rest(flip(price + 1, 1), depth, 1);
    share();
    replace_all();
  }
  // The other lanes that share the market see what the first has done.
  KS_ON_LANE void share() {
    Lanes::sync();
    best = {{Lanes::from_first(best.at[0]), Lanes::from_first(best.at[1])}};
  }
  // What is stored is another book.
  KS_ON_LANE void replace_all() { stored = 0xffffffffu; }

  // Where nothing rests, and nothing did when the book was loaded, 0 is stored already.
  KS_ON_LANE void store(int32_t* bid, int32_t* ask) {
    const int32_t group = group_bits();
    uint32_t rests = 0;
#pragma unroll 4
    for (int tick = 0; tick < levels; tick += 4) {
      const int32_t a = row[tick], b = row[tick + 1], c = row[tick + 2], d = row[tick + 3];
      const uint32_t here = (uint32_t)((a | b | c | d) != 0) << (tick >> group);
      rests |= here;
      if (((stored >> (tick >> group)) & 1) == 0 && here == 0) continue;
      put_four(bid + tick, max_of(a, 0), max_of(b, 0), max_of(c, 0), max_of(d, 0));
      put_four(ask + tick, max_of(-a, 0), max_of(-b, 0), max_of(-c, 0), max_of(-d, 0));
    }
    stored = rests;
  }

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
  KS_ON_LANE int32_t take(int32_t place, int32_t quantity, int32_t side) {
    const Taken taken = take_ahead(place, quantity, side);
    best.set(side, taken.next);
    return taken.units;
  }

  // `key` and the beat's number say what is lost; ticks that share a word are looked at together.
  KS_ON_LANE void cancel(int32_t threshold, uint64_t key, int64_t beat) {
    if constexpr (kLanes > 1) return cancel_together(threshold, key, beat);
    const uint64_t counter = word_counter(key, beat, kCancelWord);
    for (int i = 0; i < 2 * words; ++i) {
      const int32_t side = i >= words;
      const Bits before = bits[i];
      Bits after = before;
      for (Bits pairs = (before | before >> 1) & (Bits)0x5555555555555555ull; pairs != 0; pairs &= pairs - 1) {
        const int at = lowest_bit(pairs);
        const int32_t first = flip(kWordBits * (i - side * words) + at - lead, side), tick = first & ~1;
        const uint64_t word = mix64(counter + (uint64_t)(tick / 2) * kGolden);
        const int32_t even = after_loss(row[tick], threshold, low_half(word), side);
        const int32_t odd = after_loss(row[tick + 1], threshold, high_half(word), side);
        row[tick] = (Cell)even, row[tick + 1] = (Cell)odd;
        const Bits gone = side ? (Bits)(even == 0) | (Bits)(odd == 0) << 1 : (Bits)(odd == 0) | (Bits)(even == 0) << 1;
        after &= ~(gone << at);
      }
      bits[i] = after;
    }
    find_best();
  }

  // Cut off what leaves the grid, and move the rest by `by` ticks down (up if below 0). What goes to worse places goes first,
  // and the worst of it before all else, so that nothing is written over.
  KS_ON_LANE void shift(int32_t by) {
    if constexpr (kLanes > 1) return shift_together(by);
    const int32_t worsens = by > 0 ? 0 : 1;
    for (int w = words - 1; w >= 0; --w) {
      Bits left = take_word(w, worsens);
      while (left != 0) {
        const int i = highest_bit(left);
        left &= ~((Bits)1 << i);
        move(kWordBits * w + i - lead, by, worsens);
      }
    }
    for (int w = 0; w < words; ++w)
      for (Bits left = take_word(w, 1 - worsens); left != 0; left &= left - 1)
        move(kWordBits * w + lowest_bit(left) - lead, by, 1 - worsens);
    find_best();
  }

  // Where several lanes share the market ----------------------------------------------------------------------------------

  KS_ON_LANE uint32_t load_together(const int32_t* bid, const int32_t* ask) {
    const int32_t group = group_bits();
    uint32_t bids = 0, asks = 0;
    stored = 0;
    Lanes::sync();
#pragma unroll 4
    for (int tick = 4 * Lanes::lane(); tick < levels; tick += 4 * kLanes) {
      const Four b = four_at(bid + tick), a = four_at(ask + tick);
      row[tick] = b.a - a.a, row[tick + 1] = b.b - a.b, row[tick + 2] = b.c - a.c, row[tick + 3] = b.d - a.d;
      bids += (uint32_t)b.a + b.b + b.c + b.d, asks += (uint32_t)a.a + a.b + a.c + a.d;
      stored |= (uint32_t)((b.a | b.b | b.c | b.d | a.a | a.b | a.c | a.d) != 0) << (tick >> group);
    }
    stored = Lanes::any(stored), bids = Lanes::sum(bids), asks = Lanes::sum(asks);
    mark_all();
    return bids > asks ? bids : asks;
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
  KS_ON_LANE void store_together(int32_t* bid, int32_t* ask) {
    const int32_t group = group_bits();
    uint32_t rests = 0;
    Lanes::sync();
    for (int tick = 4 * Lanes::lane(); tick < levels; tick += 4 * kLanes)
      rests |= (uint32_t)((row[tick] | row[tick + 1] | row[tick + 2] | row[tick + 3]) != 0) << (tick >> group);
    rests = Lanes::any(rests);
    for (int tick = 4 * Lanes::lane(); tick < levels; tick += 4 * kLanes) {
      if (!((stored | rests) >> (tick >> group) & 1)) continue;
      const int32_t a = row[tick], b = row[tick + 1], c = row[tick + 2], d = row[tick + 3];
      put_four(bid + tick, max_of(a, 0), max_of(b, 0), max_of(c, 0), max_of(d, 0));
      put_four(ask + tick, max_of(-a, 0), max_of(-b, 0), max_of(-c, 0), max_of(-d, 0));
    }
    stored = rests;
  }
  // Two ticks at a time, which share a word.
  KS_ON_LANE void cancel_together(int32_t threshold, uint64_t key, int64_t beat) {
    const uint64_t counter = word_counter(key, beat, kCancelWord);
    Lanes::sync();
    for (int tick = 2 * Lanes::lane(); tick < levels; tick += 2 * kLanes) {
      const int32_t even = row[tick], odd = row[tick + 1];
      if ((even | odd) == 0) continue;
      const uint64_t word = mix64(counter + (uint64_t)(tick / 2) * kGolden);
      row[tick] = after_loss(even, threshold, low_half(word), even < 0);
      row[tick + 1] = after_loss(odd, threshold, high_half(word), odd < 0);
    }
    mark_all();
  }
  KS_ON_LANE void shift_together(int32_t by) {
    Lanes::sync();
    const int32_t last = (levels - 1) / kLanes * kLanes;
    for (int32_t i = 0; i <= last; i += kLanes) {  // what is read has not been written yet
      const int32_t tick = (by > 0 ? i : last - i) + Lanes::lane();
      const int64_t from = (int64_t)tick + by;
      const int32_t q = from >= 0 && from < levels ? row[(int32_t)from] : 0;
      Lanes::sync();
      if (tick < levels) row[tick] = q;
      Lanes::sync();
    }
    mark_all();
  }

 private:
  KS_ON_LANE Bits take_word(int w, int32_t side) {
    const Bits here = bits[side * words + w];
    bits[side * words + w] = 0;
    return here;
  }
  KS_ON_LANE void move(int32_t place, int32_t by, int32_t side) {
    const int32_t tick = flip(place, side);
    const Cell q = row[tick];
    const int64_t to = (int64_t)tick - by;
    row[tick] = 0;
    if (to < 0 || to >= levels) return;
    row[(int32_t)to] = q;
    mark(flip((int32_t)to, side), side, true);
  }

  // Of a side's quantity; the other side's, which a tick of the same word may hold, is cancelled in that side's turn.
  static KS_ON_LANE int32_t after_loss(int32_t q, int32_t threshold, uint32_t half, int32_t side) {
    const int32_t mine = max_of(side ? -q : q, 0), loss = cancelled(mine, threshold, half, side);
    return q + (side ? loss : -loss);
  }
};

}  // namespace ks
