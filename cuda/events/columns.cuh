// columns.cuh: where a market's numbers on the clock are that need indices: a column of memory per market. Those of a warp's
// markets lie side by side, so that every lane has a bank of shared memory of its own, whatever it looks at. Holds no rule.
//
// Shared memory limits how many warps a multiprocessor holds, so a warp's rows have 16 bits per tick. Markets whose numbers
// may not fit have 32 bits, half the lanes at a time. A core always has 32.
#pragma once

#include "lane/lanes.cuh"

namespace ks {

struct WideColumns {
  using Cell = int32_t;
  static constexpr int kMarkets = kLaneCount;
};
struct HalfColumns {
  using Cell = int32_t;
  static constexpr int kMarkets = kLaneCount > 1 ? kLaneCount / 2 : 1;
};
struct NarrowColumns {
  using Cell = short;
  static constexpr int kMarkets = kLaneCount;
};

template <typename Width>
struct WordColumn {
  uint64_t* at;
  KS_ON_LANE uint64_t& operator[](int i) const { return at[(int64_t)i * Width::kMarkets]; }
};

// Signed numbers; two of 16 bits share 32.
template <typename Width>
struct CellColumn {
  using Cell = typename Width::Cell;
  int32_t* at;
  KS_ON_LANE Cell& operator[](int i) const {
    if constexpr (sizeof(Cell) == 4) return at[(int64_t)i * Width::kMarkets];
    else return reinterpret_cast<Cell*>(at + (i >> 1) * Width::kMarkets)[i & 1];
  }
  // Numbers i, which is even, and i + 1.
  KS_ON_LANE void put(int i, int32_t even, int32_t odd) const {
    if constexpr (sizeof(Cell) == 4) at[(int64_t)i * Width::kMarkets] = even, at[(int64_t)(i + 1) * Width::kMarkets] = odd;
    else at[(i >> 1) * Width::kMarkets] = (int32_t)(((uint32_t)even & 0xffffu) | (uint32_t)odd << 16);
  }
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
