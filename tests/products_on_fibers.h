// products_on_fibers.h: what cuda/policy/products.cuh has, with a fiber per lane (lanes_on_fibers.h), for
// tests/test_rollouts_on_host.py, which puts it in that file's place. Products are added up in another order than a GPU's.
#pragma once

#include <cmath>
#include <cstring>

#include "lane/lanes.cuh"

struct Dimension {
  unsigned x;
};
static Dimension blockDim = {32};
inline float __int_as_float(int bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

namespace ks {

inline void __syncthreads() { __syncwarp(); }  // a block is a warp here

struct Piece {
  uint32_t a, b, c, d;
};
struct Network {
  const int32_t* at;
  Network from(int i) const { return {at + i}; }
  Piece piece(int i) const {
    Piece p;
    std::memcpy(&p, at + i, sizeof p);
    return p;
  }
  float number(int i) const { return __int_as_float(at[i]); }
};
inline Network network_in_shared(const int* shared) { return {shared}; }

inline float low_number(uint32_t pair) { return __int_as_float((int)(pair << 16)); }
inline float high_number(uint32_t pair) { return __int_as_float((int)(pair & 0xffff0000u)); }

inline float shuffle(float x, int lane) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return __int_as_float((int)shuffle((int)bits, lane));
}

// Lane 4 g + t has of the left factor rows g and g + 8 (even and odd numbers), columns 2 t, 2 t + 1 and 8 more; of the right one
// column g, rows 2 t, 2 t + 1 and 8 more.
inline void multiply(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const int g = this_lane() / 4, t = this_lane() % 4;
  for (int k = 0; k < 4; ++k)
    for (int part = 0; part < 2; ++part) {
      const uint32_t upper = (uint32_t)shuffle((int)a[2 * part], 4 * g + k), lower = (uint32_t)shuffle((int)a[2 * part + 1], 4 * g + k);
      for (int j = 0; j < 2; ++j) {
        const uint32_t right = (uint32_t)shuffle((int)(part ? b1 : b0), 4 * (2 * t + j) + k);
        sums[j] += low_number(upper) * low_number(right) + high_number(upper) * high_number(right);
        sums[2 + j] += low_number(lower) * low_number(right) + high_number(lower) * high_number(right);
      }
    }
}

inline uint32_t as_bfloat16(float x) {  // to the nearest, ties to even
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  if (x != x) return 0x7fff;
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
inline uint32_t as_pair(float low, float high) { return as_bfloat16(low) | as_bfloat16(high) << 16; }

inline float fast_tanh(float x) { return std::tanh(x); }
inline float fast_root(float x) { return std::sqrt(x); }
inline float fast_log(float x) { return std::log(x); }
inline float fast_exp(float x) { return std::exp(x); }
inline float fast_cos(float x) { return std::cos(x); }
inline float fast_sin(float x) { return std::sin(x); }

template <typename T>
void put(T* to, T x) {
  *to = x;
}
inline void put_two(float* to, float first, float second) { to[0] = first, to[1] = second; }

}  // namespace ks
