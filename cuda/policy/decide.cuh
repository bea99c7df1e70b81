// decide.cuh: the decisions of a policy that is evaluated within a launch, for the markets of a warp: it reads their observations,
// writes the actions that the next step of the environment takes, and records both. policy/rollout.cuh calls it before each step.
//   KS_POLICY_CATEGORICAL   1: a choice for each row, else numbers with Gaussian noise
// Noise is a word per row and pair of numbers, so it does not depend on who evaluates what, nor on how rollouts are cut:
//   random_word(mix64(episode's key + seed * kGolden), t, 64 * slot + pair)
#pragma once

#include "model/market.h"
#include "policy/network.cuh"

namespace ks {

// The markets of a warp, which lie together; each is that of so many lanes.
struct WarpMarkets {
  int64_t first;
  int count, lanes_each;

  KS_ON_LANE static WarpMarkets of(const Launch& launch, int64_t first, int most, int lanes_each) {
    const int64_t left = launch.markets - first;
    return {first, left < 0 ? 0 : left < most ? (int)left : most, lanes_each};
  }
  // This lane's market among them, and whether there is one; one lane of each keeps its numbers.
  KS_ON_LANE int own() const { return this_lane() / lanes_each; }
  KS_ON_LANE bool has_own() const { return own() < count; }
  KS_ON_LANE bool keeps_own() const { return has_own() && this_lane() % lanes_each == 0; }
};

// What the noise of this lane's market comes from, at the decision that begins at t.
KS_ON_LANE uint64_t noise_counter(const Launch& launch, uint64_t key, int64_t t) {
  return word_counter(mix64(key + (uint64_t)*launch.rollout.seed * kGolden), t, 0);
}

KS_ON_LANE float uniform_of(uint32_t bits) { return ((float)(bits >> 8) + 0.5f) * 0x1p-24f; }  // above 0, below 1

// Two independent standard normal numbers (Box and Muller).
KS_ON_LANE void normals(uint64_t word, float& first, float& second) {
  const float length = sqrtf(-2.0f * __logf(uniform_of(high_half(word))));
  const float angle = (float)(int32_t)low_half(word) * (3.14159265358979f * 0x1p-31f);
  first = length * __cosf(angle), second = length * __sinf(angle);
}

// The sum, or the largest, of the four lanes that have a row.
KS_ON_LANE float sum_of_row(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}
KS_ON_LANE float largest_of_row(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

// One decision of one slot for up to kTiles * 16 markets of a warp, from number `base` of them on.
struct TileDecision {
  const Launch& launch;
  const Rollout& rollout;
  const WarpMarkets& markets;
  const int base, slot;
  const int64_t decision;

  static constexpr int kRows = kTiles * kRowsOfTile;

  KS_ON_LANE bool exists(int row) const { return base + row < markets.count; }
  KS_ON_LANE int64_t market(int row) const { return markets.first + base + row; }
  KS_ON_LANE int64_t slot_row(int row) const { return market(row) * launch.slots + slot; }
  // A slot's place among the recorded ones of this decision.
  KS_ON_LANE int64_t place(int row) const { return (decision * launch.markets + market(row)) * rollout.slots + slot; }

  // The observations as rows of products: numbers, then a 1, then zeros. They are recorded on the way.
  KS_ON_LANE void read(Rows<kInputTiles>& in) const {
    const int column = 2 * (this_lane() % 4);
#pragma unroll
    for (int r = 0; r < kTiles; ++r) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = r * kRowsOfTile + half * 8 + this_lane() / 4;
        const bool is = exists(row);
        const float* const from = launch.observation + (is ? slot_row(row) : 0) * rollout.stride;
        const int64_t to = is ? place(row) * rollout.width : 0;
#pragma unroll
        for (int k = 0; k < kInputTiles; ++k)
#pragma unroll
          for (int side = 0; side < 2; ++side) {
            const int i = k * kDepthOfTile + side * 8 + column;
            const float x = number(from, is, i), y = number(from, is, i + 1);
            const uint32_t pair = as_pair(x, y);
            in[r][k][2 * side + half] = pair;
            if (!is || i >= rollout.width) continue;
            if (rollout.rows16) __stcs(reinterpret_cast<unsigned*>(rollout.rows16) + (to + i) / 2, pair);
            if (rollout.rows) __stcs(reinterpret_cast<float2*>(rollout.rows + to + i), make_float2(x, y));
          }
      }
    }
  }
  KS_ON_LANE static float number(const float* from, bool is, int i) {
    return is && i < KS_POLICY_INPUTS ? from[i] : is && i == KS_POLICY_INPUTS ? 1.0f : 0.0f;
  }

  // `counter` is that of this lane's own market.
  KS_ON_LANE void decide(uint64_t counter) const {
    Rows<kInputTiles> in;
    read(in);
    Outputs out = {};
    const int64_t group = markets.first / rollout.markets_per_network;
    const int32_t* const network = rollout.networks + group * kNetworkInts;
    evaluate(network, in, out);
    const int32_t* const deviations = network + kNetworkInts - kDeviations;
#pragma unroll
    for (int r = 0; r < kTiles; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = r * kRowsOfTile + half * 8 + this_lane() / 4;
        const int owner = min_of(base + row, markets.count - 1) * markets.lanes_each;
        const uint64_t words = __shfl_sync(0xffffffffu, counter, owner) + (uint64_t)(64 * slot) * kGolden;
        const float log_prob = draw(out, r, half, row, words, deviations);
        if (!exists(row) || this_lane() % 4 != 0) continue;
        __stcs(rollout.log_prob + place(row), log_prob);
        if (rollout.value) __stcs(rollout.value + place(row), kHasCritic ? out.value[r][2 * half] : 0.0f);
      }
  }

#if KS_POLICY_CATEGORICAL
  static constexpr float kLargest = 3.0e38f;
  // The largest of the logits with Gumbel noise; of equals the first.
  KS_ON_LANE float draw(const Outputs& out, int r, int half, int row, uint64_t words, const int32_t*) const {
    float top = -kLargest, best = -kLargest, logit_of_best = 0.0f;
    int choice = 0;
#pragma unroll
    for (int n = 0; n < kOutputTiles; ++n) {
      const int pair = 4 * n + this_lane() % 4;
      const uint64_t word = mix64(words + (uint64_t)pair * kGolden);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int i = 2 * pair + j;
        if (i >= KS_POLICY_OUTPUTS) continue;
        const float logit = out.policy[n][r][2 * half + j];
        const float noise = -__logf(-__logf(uniform_of(j ? low_half(word) : high_half(word))));
        const float x = rollout.noise ? logit + noise : logit;
        top = fmaxf(top, logit);
        if (x > best) best = x, choice = i, logit_of_best = logit;
      }
    }
    top = largest_of_row(top);
    float sum = 0.0f;
#pragma unroll
    for (int n = 0; n < kOutputTiles; ++n)
#pragma unroll
      for (int j = 0; j < 2; ++j)
        if (2 * (4 * n + this_lane() % 4) + j < KS_POLICY_OUTPUTS) sum += __expf(out.policy[n][r][2 * half + j] - top);
    sum = sum_of_row(sum);
#pragma unroll
    for (int by = 1; by <= 2; by *= 2) {
      const float other = __shfl_xor_sync(0xffffffffu, best, by), logit = __shfl_xor_sync(0xffffffffu, logit_of_best, by);
      const int at = __shfl_xor_sync(0xffffffffu, choice, by);
      if (other > best || (other == best && at < choice)) best = other, choice = at, logit_of_best = logit;
    }
    if (exists(row) && this_lane() % 4 == 0) {
      const_cast<int64_t*>(launch.choices)[slot_row(row)] = choice;
      rollout.choices[place(row)] = choice;
    }
    return logit_of_best - top - __logf(sum);
  }
  #else
  KS_ON_LANE float draw(const Outputs& out, int r, int half, int row, uint64_t words, const int32_t* deviations) const {
    constexpr float kLogRootTwoPi = 0.918938533204673f;
    float log_prob = 0.0f;
#pragma unroll
    for (int n = 0; n < kOutputTiles; ++n) {
      const int pair = 4 * n + this_lane() % 4;
      float noise[2] = {0.0f, 0.0f};
      if (rollout.noise) normals(mix64(words + (uint64_t)pair * kGolden), noise[0], noise[1]);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int i = 2 * pair + j;
        if (i >= KS_POLICY_OUTPUTS) continue;
        const float deviation = read_number(deviations + i);
        const float x = out.policy[n][r][2 * half + j] + __expf(deviation) * noise[j];
        log_prob += -0.5f * noise[j] * noise[j] - deviation - kLogRootTwoPi;
        if (!exists(row)) continue;
        __stcs(rollout.actions + place(row) * KS_POLICY_OUTPUTS + i, x);
        // NaN stays NaN, of which the step makes an error.
        const_cast<float*>(launch.actions)[slot_row(row) * launch.action_stride + i] = x < -1.0f ? -1.0f : x > 1.0f ? 1.0f : x;
      }
    }
    return sum_of_row(log_prob);
  }
#endif
};

// Decisions of all of a warp's markets. Called, so that what a market has in registers does not take those of the networks.
KS_CALLED_ON_LANE void decide(const Launch& launch, const WarpMarkets& markets, uint64_t counter, int64_t decision) {
#pragma unroll 1
  for (int slot = 0; slot < launch.rollout.slots; ++slot)
#pragma unroll 1
    for (int base = 0; base < markets.count; base += TileDecision::kRows)
      TileDecision{launch, launch.rollout, markets, base, slot, decision}.decide(counter);
}

// What came of a decision. `played`: whether this lane's market took part in it.
KS_ON_LANE void record(const Launch& launch, const WarpMarkets& markets, int64_t decision, bool played) {
  const Rollout& rollout = launch.rollout;
  const int64_t m = markets.first + markets.own();
#pragma unroll 1
  for (int slot = 0; slot < rollout.slots; ++slot) {
    bool truncated = false;
    if (markets.keeps_own()) {
      const int64_t row = m * launch.slots + slot, to = (decision * launch.markets + m) * rollout.slots + slot;
      __stcs(rollout.reward + to, launch.reward[row]);
      rollout.terminated[to] = launch.terminated[row];
      rollout.truncated[to] = launch.truncated[row];
      rollout.played[to] = played;
      truncated = launch.truncated[row] != 0;
      if (slot == 0 && rollout.decision_events) rollout.decision_events[decision * launch.markets + m] = launch.decision_events[m];
    }
    for (unsigned left = ballot(truncated && rollout.every > 0); left != 0; left &= left - 1) {
      const int64_t market = markets.first + lowest_bit(left) / markets.lanes_each;
      const float* const from = launch.final_observation + (market * launch.slots + slot) * rollout.stride;
      const int64_t to = ((decision / rollout.every * launch.markets + market) * rollout.slots + slot) * rollout.width;
      for (int i = 2 * this_lane(); i < rollout.width; i += 2 * kLaneCount) {
        const float x = TileDecision::number(from, true, i), y = TileDecision::number(from, true, i + 1);
        if (rollout.rows16) reinterpret_cast<uint32_t*>(rollout.final_rows16)[(to + i) / 2] = as_pair(x, y);
        if (rollout.rows) rollout.final_rows[to + i] = x, rollout.final_rows[to + i + 1] = y;
      }
    }
  }
}

}  // namespace ks
