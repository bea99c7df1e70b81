// columns.cuh: where a market's numbers on the clock are that need indices: a column of memory per market. Those of a warp's
// markets lie side by side, so that lanes hardly meet in a bank of shared memory, whatever ticks they look at. Holds no rule.
//
// Shared memory limits how many warps a multiprocessor holds, so a warp's rows have 16 bits per tick. Markets whose numbers
// may not fit have 32 bits, half the lanes at a time. A core always has 32. What a GPU does with words of 64 bits takes twice
// as many instructions, so it has words of 32.
#pragma once

#include "lane/group.cuh"

namespace ks {

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
using OccupiedBits = uint32_t;
#else
using OccupiedBits = uint64_t;
#endif
constexpr int kWordBits = 8 * sizeof(OccupiedBits);

struct DrawnArrival;
struct PackedArrival;

struct WideColumns {
  using Cell = int32_t;
  using Drawn = DrawnArrival;  // an event that waits to be matched (arrivals.cuh)
  using Lanes = Group<1>;
  static constexpr int kMarkets = kLaneCount;
};
struct HalfColumns {
  using Cell = int32_t;
  using Drawn = DrawnArrival;
  using Lanes = Group<1>;
  static constexpr int kMarkets = kLaneCount > 1 ? kLaneCount / 2 : 1;
};
struct NarrowColumns {
  using Cell = short;
  using Drawn = PackedArrival;
  using Lanes = Group<1>;
  static constexpr int kMarkets = kLaneCount;
};
// Few markets of a warp, each with some lanes.
template <int kLanes>
struct SharedColumns {
  using Cell = int32_t;
  using Drawn = DrawnArrival;
  using Lanes = Group<kLanes>;
  static constexpr int kMarkets = kLaneCount / kLanes;
};
// A market that has a column like its neighbours, for which all lanes do something together.
template <typename Width>
struct WholeWarp {
  using Cell = typename Width::Cell;
  using Drawn = typename Width::Drawn;
  using Lanes = Group<kLaneCount>;
  static constexpr int kMarkets = Width::kMarkets;
};
template <typename T, typename Width>
struct Column {
  T* at;
  KS_ON_LANE T& operator[](int i) const { return at[i * Width::kMarkets]; }
};

// Four numbers of a row in global memory, which begins at a multiple of 16 bytes.
KS_ON_LANE Four four_at(const int32_t* from) {
#ifdef __CUDA_ARCH__
  return *reinterpret_cast<const Four*>(from);
#else
  return {from[0], from[1], from[2], from[3]};
#endif
}
KS_ON_LANE void put_four(int32_t* to, int32_t a, int32_t b, int32_t c, int32_t d) {
#ifdef __CUDA_ARCH__
  *reinterpret_cast<Four*>(to) = {a, b, c, d};
#else
  to[0] = a, to[1] = b, to[2] = c, to[3] = d;
#endif
}

}  // namespace ks
