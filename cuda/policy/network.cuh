// network.cuh: a policy of two hidden layers, and its value, for rows of observations that a warp has: products of bfloat16 numbers
// by tensor cores, sums in float32. What kernels are compiled for is a `NetworkShape` (kineticsim_env/policies/networks.py):
//   KS_POLICY_INPUTS, KS_POLICY_HIDDEN, KS_POLICY_OUTPUTS   numbers of an observation, width of a layer, means or logits
//   KS_POLICY_RELU, KS_POLICY_TRUNK, KS_POLICY_CRITIC       1: ReLU in place of tanh; shared layers; there is a value
// kineticsim_env/policies/packing.py packs the weights in the order in which lanes take them. sm_80 on.
#pragma once

#include "policy/products.cuh"

namespace ks {

constexpr int kRowsOfTile = 16;  // of a product,
constexpr int kDepthOfTile = 16;  // which adds up so many numbers,
constexpr int kColumnsOfTile = 8;  // for so many outputs
constexpr int kInputTiles = KS_POLICY_INPUTS / kDepthOfTile + 1;  // of the inputs and a 1, by which biases come
constexpr int kHiddenTiles = KS_POLICY_HIDDEN / kDepthOfTile;
constexpr int kOutputTiles = (KS_POLICY_OUTPUTS + kColumnsOfTile - 1) / kColumnsOfTile;
constexpr bool kHasCritic = KS_POLICY_CRITIC != 0, kHasTrunk = KS_POLICY_TRUNK != 0;

// Weights of a layer are pieces of 16 bytes, a piece per lane and pair of products; then come float32 biases.
constexpr int kFirstPieces = kHiddenTiles * kInputTiles, kSecondPieces = kHiddenTiles * kHiddenTiles;
constexpr int kHeadPieces = kHiddenTiles / 2;  // of each tile of outputs
constexpr int kBodyPieces = kFirstPieces + kSecondPieces;
constexpr int kBodies = kHasTrunk || !kHasCritic ? 1 : 2;
constexpr int kHeadTiles = kOutputTiles + (kHasCritic ? 1 : 0);
constexpr int kPieces = kBodies * kBodyPieces + kHeadTiles * kHeadPieces;
constexpr int kBiases = kBodies * KS_POLICY_HIDDEN + kHeadTiles * kColumnsOfTile;
constexpr int kDeviations = kOutputTiles * kColumnsOfTile;  // logarithms of these, behind all
constexpr int kNetworkInts = kPieces * kWarpLanes * 4 + kBiases + kDeviations;

// The network of some markets, from the first on. All threads of a block call this, which waits for them where they share it.
KS_ON_LANE Network take_network(const Launch& launch, int64_t first_market, int* shared) {
  const Rollout& rollout = launch.rollout;
#ifdef KS_WARPS
  for (int i = threadIdx.x; i < kNetworkInts / 4; i += blockDim.x)
    reinterpret_cast<Four*>(shared)[i] = reinterpret_cast<const Four*>(rollout.networks)[i];
  __syncthreads();
  return network_in_shared(shared);
#else
  const uint32_t group = (uint32_t)first_market / (uint32_t)rollout.markets_per_network;
  return {rollout.networks + (int64_t)group * kNetworkInts};
#endif
}
// Of a block's shared memory it takes so many ints, the first ones.
#ifdef KS_WARPS
constexpr int kSharedNetworkInts = kNetworkInts;
#else
constexpr int kSharedNetworkInts = 0;
#endif

KS_ON_LANE float activated(float x) {
#if KS_POLICY_RELU
  return fmaxf(x, 0.0f);
#else
  return fast_tanh(x);
#endif
}

// A lane's part of 16 rows of numbers, as the left factor of products.
template <int kDepths>
using Rows = uint32_t[kDepths][4];

// A hidden layer; the biases of one that is not kBiased came with the inputs. `pieces` and `biases` are the lane's.
template <int kDepths, bool kBiased>
KS_ON_LANE void hidden_layer(const Rows<kDepths>& in, Network pieces, Network biases, Rows<kHiddenTiles>& out) {
#pragma unroll
  for (int n = 0; n < kHiddenTiles; ++n) {  // two tiles of outputs, which are one of the next layer's inputs
    float sums[2][4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int bias = (2 * n + half) * kColumnsOfTile;
      sums[half][0] = sums[half][2] = kBiased ? biases.number(bias) : 0.0f;
      sums[half][1] = sums[half][3] = kBiased ? biases.number(bias + 1) : 0.0f;
    }
#pragma unroll
    for (int k = 0; k < kDepths; ++k) {
      const Piece w = pieces.piece((n * kDepths + k) * 4 * kWarpLanes);
      multiply(sums[0], in[k], w.a, w.b), multiply(sums[1], in[k], w.c, w.d);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float* const pair = &sums[i / 2][i % 2 * 2];
      out[n][i] = as_pair(activated(pair[0]), activated(pair[1]));
    }
  }
}

// A tile of outputs.
KS_ON_LANE void head(const Rows<kHiddenTiles>& in, Network pieces, Network biases, float (&out)[4]) {
  out[0] = out[2] = biases.number(0), out[1] = out[3] = biases.number(1);
#pragma unroll
  for (int k = 0; k < kHiddenTiles; k += 2) {
    const Piece w = pieces.piece(k / 2 * 4 * kWarpLanes);
    multiply(out, in[k], w.a, w.b), multiply(out, in[k + 1], w.c, w.d);
  }
}

// What a network says of a row.
struct Outputs {
  float policy[kOutputTiles * kColumnsOfTile], value;
};

// Of a tile's 16 rows of outputs lane 4 g + t has row g (numbers 0 and 1) and row g + 8 (2 and 3), columns 2 t and 2 t + 1. Returns a
// column of row L % 16, in lane L.
KS_ON_LANE float column_of(const float (&tile)[4], int column) {
  const int from = this_lane() % 8 * 4 + column / 2;
  const float upper = shuffle(tile[column % 2], from), lower = shuffle(tile[2 + column % 2], from);
  return this_lane() & 8 ? lower : upper;
}

// Outputs of 16 rows, those of row L % 16 in lane L.
KS_ON_LANE void evaluate(const Network& network, const Rows<kInputTiles>& in, Outputs& out) {
  const Network pieces = network.from(4 * this_lane());
  const Network biases = network.from(kPieces * 4 * kWarpLanes + 2 * (this_lane() % 4));
  const Network heads = pieces.from(kBodies * kBodyPieces * 4 * kWarpLanes);
  const Network head_biases = biases.from(kBodies * KS_POLICY_HIDDEN);
  const auto head_of = [&](const Rows<kHiddenTiles>& rows, int n, float (&tile)[4]) {
    head(rows, heads.from(n * kHeadPieces * 4 * kWarpLanes), head_biases.from(n * kColumnsOfTile), tile);
  };
#pragma unroll 1  // one code for both networks: fetching it takes longer than running it
  for (int body = 0; body < kBodies; ++body) {
    Rows<kHiddenTiles> first, second;
    const Network own = pieces.from(body * kBodyPieces * 4 * kWarpLanes);
    hidden_layer<kInputTiles, false>(in, own, biases, first);
    hidden_layer<kHiddenTiles, true>(first, own.from(kFirstPieces * 4 * kWarpLanes), biases.from(body * KS_POLICY_HIDDEN), second);
    float tile[4];
    if (kBodies == 1 || body == 0) {
#pragma unroll
      for (int n = 0; n < kOutputTiles; ++n) {
        head_of(second, n, tile);
#pragma unroll
        for (int i = 0; i < kColumnsOfTile; ++i)
          if (n * kColumnsOfTile + i < KS_POLICY_OUTPUTS) out.policy[n * kColumnsOfTile + i] = column_of(tile, i);
      }
    }
    if (kHasCritic && body == kBodies - 1) {
      head_of(second, kOutputTiles, tile);
      out.value = column_of(tile, 0);
    }
  }
}

}  // namespace ks
