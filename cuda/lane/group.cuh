// group.cuh: the lanes of a warp that share one market on the clock: all hold its numbers alike and go the same way, so that
// each can do a part of what has many parts (a book's ticks, an interval's words, an observation's columns). What changes
// memory step by step is the first lane's alone; the others then take its numbers. Holds no rule.
#pragma once

#include "lane/lanes.cuh"

namespace ks {

template <int kSize>
struct Group {
  static constexpr int kLanes = kSize;
  static constexpr unsigned kBits = kSize == 32 ? 0xffffffffu : (1u << kSize % 32) - 1;
  static KS_ON_LANE int first() { return this_lane() / kSize * kSize; }
  // The groups that are here as a whole, if the lane's own is one: groups that wait for their own alone would each go on alone.
  static KS_ON_LANE unsigned mask() {
#ifdef __CUDA_ARCH__
    if (kSize < 32) return mask_among(__activemask());
#endif
    return kBits << first();
  }
  // Of the lanes that are here. Those of a group of which some are elsewhere wait for that group alone, so no other may wait for
  // them: all lanes of a mask have the same one, or they would wait forever.
  static KS_ON_LANE unsigned mask_among(unsigned here) {
    unsigned whole = here;
#pragma unroll
    for (int by = 1; by < kSize; by *= 2) whole &= whole >> by;
    whole = (whole & 0xffffffffu / kBits) * kBits;  // a group's first lane stands for all
    const unsigned group = kBits << first();
    return whole & group ? whole : group;
  }
  static KS_ON_LANE int lane() { return this_lane() % kSize; }
  static KS_ON_LANE bool leads() { return kSize == 1 || lane() == 0; }
  // Wait for the group: what its lanes have written before, all of them see. `here`, also below: a mask that lanes have found
  // before, since when none of them can have gone another way.
  static KS_ON_LANE void sync() { sync(mask()); }
  static KS_ON_LANE void sync(unsigned here) {
    if constexpr (kSize > 1) KS_SYNC_LANES(here);
  }
  // A bit per lane of the group.
  static KS_ON_LANE unsigned ballot(bool holds) { return ballot(holds, mask()); }
  static KS_ON_LANE unsigned ballot(bool holds, unsigned here) {
    if constexpr (kSize == 1) return holds;
    else return KS_BALLOT_LANES(here, holds) >> first() & kBits;
  }
  // The first lane's number.
  template <typename T>
  static KS_ON_LANE T from_first(T x) {
    if constexpr (kSize > 1) x = (T)KS_SHUFFLE_LANES(mask(), x, first());
    return x;
  }
  // A lane's number.
  template <typename T>
  static KS_ON_LANE T from(int lane, T x) { return from(lane, x, mask()); }
  template <typename T>
  static KS_ON_LANE T from(int lane, T x, unsigned here) {
    if constexpr (kSize > 1) x = (T)KS_SHUFFLE_LANES(here, x, first() + lane);
    return x;
  }
  // The sum of the lanes' numbers up to the own one.
  template <typename T>
  static KS_ON_LANE T sum_upto(T x, unsigned here) {
    for (int by = 1; by < kSize; by *= 2) {
      const T before = (T)KS_SHUFFLE_LANES(here, x, lane() >= by ? this_lane() - by : this_lane());
      if (lane() >= by) x += before;
    }
    return x;
  }
  template <typename T>
  static KS_ON_LANE T sum(T x) {
    const unsigned here = mask();
#if __CUDA_ARCH__ >= 800 && !defined(KS_FORCE_SHUFFLE)
    // Of 32 bits one instruction; of 64 bits in parts, whose sums fit 32.
    if constexpr (kSize == 32 && sizeof(T) == 4) return (T)__reduce_add_sync(here, (unsigned)x);
    if constexpr (kSize == 32 && sizeof(T) == 8) {
      const uint64_t all = (uint64_t)x, part = (1 << 27) - 1;
      const uint64_t low = __reduce_add_sync(here, (unsigned)(all & part)), middle = __reduce_add_sync(here, (unsigned)(all >> 27 & part));
      return (T)(low + (middle << 27) + ((uint64_t)__reduce_add_sync(here, (unsigned)(all >> 54)) << 54));
    }
#endif
    for (int by = kSize / 2; by > 0; by /= 2) x += (T)KS_SHUFFLE_LANES(here, x, this_lane() ^ by);
    return x;
  }
  static KS_ON_LANE uint32_t any(uint32_t bits) {
    const unsigned here = mask();
    for (int by = kSize / 2; by > 0; by /= 2) bits |= (uint32_t)KS_SHUFFLE_LANES(here, bits, this_lane() ^ by);
    return bits;
  }
};

}  // namespace ks
