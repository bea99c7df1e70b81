// products.cuh: what a policy inside the kernel needs of the GPU: products of bfloat16 numbers by tensor cores, functions that are fast
// and near, weights from shared or global memory. Tests on a CPU put another file in its place. Holds no rule. sm_80 on.
#pragma once

#include "lane/lanes.cuh"

namespace ks {

// Where a network is, from some number on: in the shared memory of a block of several warps, else in global memory.
struct Piece {
  uint32_t a, b, c, d;
};
struct Network {
#ifdef KS_WARPS
  uint32_t at;
  KS_ON_LANE Network from(int i) const { return {at + 4 * (uint32_t)i}; }
  KS_ON_LANE Piece piece(int i) const {
    Piece p;
    asm("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(p.a), "=r"(p.b), "=r"(p.c), "=r"(p.d) : "r"(at + 4 * (uint32_t)i));
    return p;
  }
  KS_ON_LANE float number(int i) const {
    float x;
    asm("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(at + 4 * (uint32_t)i));
    return x;
  }
#else
  const int32_t* at;
  KS_ON_LANE Network from(int i) const { return {at + i}; }
  KS_ON_LANE Piece piece(int i) const {
    Piece p;
    asm("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(p.a), "=r"(p.b), "=r"(p.c), "=r"(p.d) : "l"(__cvta_generic_to_global(at + i)));
    return p;
  }
  KS_ON_LANE float number(int i) const { return __int_as_float(__ldg(at + i)); }
#endif
};
#ifdef KS_WARPS
KS_ON_LANE Network network_in_shared(const int* shared) { return {(uint32_t)__cvta_generic_to_shared(shared)}; }
#endif

// sums[16, 8] += a[16, 16] * b[16, 8].
KS_ON_LANE void multiply(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
KS_ON_LANE uint32_t as_pair(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
KS_ON_LANE float fast_tanh(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
KS_ON_LANE float fast_root(float x) {
  float y;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
KS_ON_LANE float fast_log(float x) { return __logf(x); }
KS_ON_LANE float fast_exp(float x) { return __expf(x); }
KS_ON_LANE float fast_cos(float x) { return __cosf(x); }
KS_ON_LANE float fast_sin(float x) { return __sinf(x); }

// Write what is not read again soon.
template <typename T>
KS_ON_LANE void put(T* to, T x) {
  __stcs(to, x);
}
KS_ON_LANE void put_two(float* to, float first, float second) { __stcs(reinterpret_cast<float2*>(to), make_float2(first, second)); }

}  // namespace ks
