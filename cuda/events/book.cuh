// book.cuh: the book of a market on the clock, a row (row.cuh) that is taken up from global memory, stored, cancelled in and
// moved: by a lane, by all lanes that share the market, or by all lanes of a warp for one another.
#pragma once

#include "events/row.cuh"
#include "events/together.cuh"
#if !KS_TOGETHER
#include "cpu/rows.h"
#endif

namespace ks {

template <typename Width>
struct EventBook : BookRow<Width> {
  using Base = BookRow<Width>;
  using typename Base::Bits, typename Base::Cell, typename Base::Lanes;
  using Base::best, Base::bits, Base::kLanes, Base::lead, Base::levels, Base::row, Base::words;
  using Base::find_best, Base::flip, Base::mark, Base::mark_all, Base::mark_chunk, Base::next, Base::rest;

  uint32_t stored;  // groups of ticks at which something rests in global memory

  KS_ON_LANE EventBook(Cell* row, Bits* bits, int levels) : Base(row, bits, levels), stored(0) {}

  // Memory ----------------------------------------------------------------------------------------------------------

  // Of 8 ticks, as a GPU writes 32 bytes at a time, on a core of a chunk; or of more where 32 groups would not suffice.
  KS_ON_LANE int32_t group_bits() const {
    const int32_t least = kLaneCount > 1 ? 3 : 5;
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

  // What follows from a row. Returns what rests on either side at most. Signs are shifted in one by one, from the last tick.
  KS_ON_LANE uint32_t take_up() {
    const int32_t chunk = min_of(levels, 32);
    int32_t sum = 0, units = 0;
    for (int i = 0; i < 2 * words; ++i) bits[i] = 0;
    for (int first = 0; first < levels; first += chunk) {
      uint32_t bids_here = 0, asks_here = 0;
#pragma unroll 16
      for (int i = chunk - 1; i >= 0; --i) {
        const int32_t q = row[first + i];
        sum += q, units += max_of(q, -q);
        bids_here = bids_here << 1 | (uint32_t)-q >> 31, asks_here = asks_here << 1 | (uint32_t)q >> 31;
      }
      mark_chunk(0, levels - first - chunk, reversed_bits(bids_here) >> (32 - chunk));
      mark_chunk(1, first, asks_here);
    }
    find_best();
    stored = occupied_groups();
    return (uint32_t)(units + max_of(sum, -sum)) / 2;
  }
  // A group has whole bytes of a word.
  KS_ON_LANE uint32_t occupied_groups() const {
    const int32_t group = group_bits();
    uint32_t groups = 0;
#pragma unroll
    for (int side = 0; side < 2; ++side) {
#pragma unroll 8
      for (int w = 0; w < words; ++w) {
        const Bits here = bits[side * words + w];
#pragma unroll
        for (int byte = 0; byte < kWordBits; byte += 8)
          groups |= (uint32_t)((here >> byte & 0xff) != 0) << (flip(kWordBits * w + byte - lead, side) >> group & 31);
      }
    }
    return groups;
  }

  // Take up a book. Returns what rests on either side at most; with more than a cell can hold, the row is not to be used.
  KS_ON_LANE uint32_t load(const int32_t* bid, const int32_t* ask) {
    if constexpr (kLanes > 1) return load_together(bid, ask);
#if !KS_TOGETHER
    if constexpr (kLaneCount == 1) return load_in_chunks(*this, bid, ask);
#endif
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
#if !KS_TOGETHER
    if constexpr (kLaneCount == 1) return store_in_chunks(*this, bid, ask);
#endif
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

  // `key` and the beat's number say what is lost; ticks that share a word are looked at together. One loop over the pairs of all
  // words, as lanes have theirs in different ones, and from one word to the next that has some, without a search.
  KS_ON_LANE void cancel(int32_t threshold, uint64_t key, int64_t beat) {
    if constexpr (kLanes > 1) return cancel_together(threshold, key, beat);
#if !KS_TOGETHER
    if constexpr (kLaneCount == 1) return cancel_in_chunks(*this, threshold, key, beat);
#endif
    const uint64_t counter = word_counter(key, beat, kCancelWord);
    for (int32_t first = 0; first < 2 * words; first += 32) {
      uint32_t ahead = 0;  // words of which a pair is yet to be looked at
#pragma unroll
      for (int i = 0; i < min_of(2 * words - first, 32); ++i) ahead |= (uint32_t)(bits[first + i] != 0) << i;
      int32_t w = -1, side = 0, base = 0;
      for (Bits pairs = 0, left = 0;; pairs &= pairs - 1) {
        if (pairs == 0) {
          if (w >= 0) bits[w] = left;
          if (ahead == 0) break;
          w = first + lowest_bit(ahead), ahead &= ahead - 1;
          side = w >= words, base = flip(kWordBits * (w - side * words) - lead, side);
          left = bits[w], pairs = (left | left >> 1) & (Bits)0x5555555555555555ull;
        }
        const int at = lowest_bit(pairs);
        const int32_t tick = (base + (side ? at : -at)) & ~1;
        const uint64_t word = mix64(counter + ((uint32_t)tick >> 1) * kGolden);
        const int32_t even = after_loss(row[tick], threshold, low_half(word), side);
        const int32_t odd = after_loss(row[tick + 1], threshold, high_half(word), side);
        row[tick] = (Cell)even, row[tick + 1] = (Cell)odd;
        const Bits gone = side ? (Bits)(even == 0) | (Bits)(odd == 0) << 1 : (Bits)(odd == 0) | (Bits)(even == 0) << 1;
        left &= ~(gone << at);
      }
    }
    find_best();
  }

  // Cut off what leaves the grid, and move the rest by `by` ticks down (up if below 0); 0 is nothing. Few of a warp's markets
  // have something to move, so all lanes do it for one market after another.
  KS_ON_LANE void shift(int32_t by) {
    if constexpr (kLanes > 1) {
      if (by != 0) shift_together(by);
    } else {
#if KS_TOGETHER
      if (Width::kMarkets == kLaneCount && all_lanes_are_here()) return shift_one_by_one(by);
#endif
      if (by != 0) shift_alone(by);
    }
  }
#if KS_TOGETHER
  KS_ON_LANE void shift_one_by_one(int32_t by) {
    for (unsigned moving = ballot(by != 0); moving != 0; moving &= moving - 1) {
      const int lane = lowest_bit(moving);
      EventBook<WholeWarp<Width>> book(row.at - this_lane() + lane, bits.at - this_lane() + lane, levels);
      book.shift_together(shuffle(by, lane));
      if (this_lane() == lane) best = book.best;
    }
  }
#endif
  // What goes to worse places goes first, and the worst of it before all else, so that nothing is written over.
  KS_ON_LANE void shift_alone(int32_t by) {
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
    const int32_t mine = max_of(side ? -q : q, 0), loss = cancelled<sizeof(Cell) == 2>(mine, threshold, half, side);
    return q + (side ? loss : -loss);
  }
};

}  // namespace ks
