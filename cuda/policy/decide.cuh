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
  float length;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(length) : "f"(-2.0f * __logf(uniform_of(high_half(word)))));
  const float angle = (float)(int32_t)low_half(word) * (3.14159265358979f * 0x1p-31f);
  first = length * __cosf(angle), second = length * __sinf(angle);
}

// One decision of one slot of a warp's markets. A row is the slot's of one of them; lane L decides for row L.
struct PolicyDecision {
  const Launch& launch;
  const Rollout& rollout;
  const WarpMarkets& markets;
  const int slot;
  const int64_t number;  // of the decision

  static constexpr int kWidth = 8 * (KS_POLICY_INPUTS / 8 + 1);  // of a recorded row

  KS_ON_LANE bool exists(int row) const { return row < markets.count; }
  KS_ON_LANE int64_t slot_row(int row) const { return (markets.first + row) * launch.slots + slot; }
  // The row's place among the recorded ones.
  KS_ON_LANE int64_t place(int row) const {
    return (number * launch.markets + markets.first + row) * rollout.slots + slot;
  }
  // Where a row does not exist another does: what comes of that is not used.
  KS_ON_LANE const float* observation(int row) const {
    return launch.observation + slot_row(exists(row) ? row : 0) * rollout.stride;
  }
  // Of an observation with a 1 and zeros behind it.
  KS_ON_LANE static float number_of(const float* from, int i) {
    return i < KS_POLICY_INPUTS ? from[i] : i == KS_POLICY_INPUTS ? 1.0f : 0.0f;
  }

  // The observations of 16 rows as a factor of products; they are recorded on the way.
  KS_ON_LANE void read(int first_row, Rows<kInputTiles>& in) const {
    const int column = 2 * (this_lane() % 4);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_row + half * 8 + this_lane() / 4;
      const float* const from = observation(row) + column;
#pragma unroll
      for (int part = 0; part < 2 * kInputTiles; ++part) {
        const int i = part * 8;
        const bool whole = i + 8 <= KS_POLICY_INPUTS;
        const float x = whole ? from[i] : number_of(from - column, i + column);
        const float y = whole ? from[i + 1] : number_of(from - column, i + column + 1);
        in[part / 2][part % 2 * 2 + half] = as_pair(x, y);
      }
      if (!exists(row)) continue;
      const int64_t to = place(row) * kWidth + column;
      if (rollout.rows16) {
        unsigned* const out = reinterpret_cast<unsigned*>(rollout.rows16) + to / 2;
#pragma unroll
        for (int part = 0; part < kWidth / 8; ++part) __stcs(out + part * 4, in[part / 2][part % 2 * 2 + half]);
      } else {
#pragma unroll 1
        for (int i = 0; i < kWidth; i += 8)
          __stcs(reinterpret_cast<float2*>(rollout.rows + to + i),
                 make_float2(number_of(from - column, i + column), number_of(from - column, i + column + 1)));
      }
    }
  }

  // `counter` is that of this lane's own market.
  KS_ON_LANE void decide(uint64_t counter) const {
    const int group = (int)((uint32_t)markets.first / (uint32_t)rollout.markets_per_network);
    const int32_t* const network = rollout.networks + (int64_t)group * kNetworkInts;
    Outputs out;
#pragma unroll 1
    for (int first_row = 0; first_row < markets.count; first_row += kRowsOfTile) {
      Rows<kInputTiles> in;
      read(first_row, in);
      Outputs found;
      evaluate(network, in, found);
      if (first_row == 0 || this_lane() >= first_row) out = found;
    }
    const int row = this_lane();
    const uint64_t words = shuffle(counter, min_of(row, markets.count - 1) * markets.lanes_each) + (uint64_t)(64 * slot) * kGolden;
    if (!exists(row)) return;
    __stcs(rollout.log_prob + place(row), draw(out, row, words, network + kNetworkInts - kDeviations));
    if (rollout.value) __stcs(rollout.value + place(row), kHasCritic ? out.value : 0.0f);
  }

#if KS_POLICY_CATEGORICAL
  // The largest of the logits with Gumbel noise; of equals the first. Returns the logarithm of its probability.
  KS_ON_LANE float draw(const Outputs& out, int row, uint64_t words, const int32_t*) const {
    float top = out.policy[0], best = 0.0f, chosen = 0.0f, sum = 0.0f;
    int choice = -1;
    uint64_t word = 0;
#pragma unroll
    for (int i = 0; i < KS_POLICY_OUTPUTS; ++i) {
      const float logit = out.policy[i];
      top = fmaxf(top, logit);
      float x = logit;
      if (rollout.noise) {
        if (i % 2 == 0) word = mix64(words + (uint64_t)(i / 2) * kGolden);
        x -= __logf(-__logf(uniform_of(i % 2 ? low_half(word) : high_half(word))));
      }
      if (choice < 0 || x > best) best = x, choice = i, chosen = logit;
    }
#pragma unroll
    for (int i = 0; i < KS_POLICY_OUTPUTS; ++i) sum += __expf(out.policy[i] - top);
    const_cast<int64_t*>(launch.choices)[slot_row(row)] = choice;
    rollout.choices[place(row)] = choice;
    return chosen - top - __logf(sum);
  }
#else
  // Means with Gaussian noise. Returns the logarithm of the density.
  KS_ON_LANE float draw(const Outputs& out, int row, uint64_t words, const int32_t* deviations) const {
    constexpr float kLogRootTwoPi = 0.918938533204673f;
    float log_prob = -kLogRootTwoPi * KS_POLICY_OUTPUTS, noise[2] = {0.0f, 0.0f};
    float* const drawn = rollout.actions + place(row) * KS_POLICY_OUTPUTS;
    float* const taken = const_cast<float*>(launch.actions) + slot_row(row) * launch.action_stride;
#pragma unroll
    for (int i = 0; i < KS_POLICY_OUTPUTS; ++i) {
      if (i % 2 == 0 && rollout.noise) normals(mix64(words + (uint64_t)(i / 2) * kGolden), noise[0], noise[1]);
      const float z = noise[i % 2], deviation = read_number(deviations + i), x = out.policy[i] + __expf(deviation) * z;
      log_prob -= 0.5f * z * z + deviation;
      __stcs(drawn + i, x);
      taken[i] = x < -1.0f ? -1.0f : x > 1.0f ? 1.0f : x;  // NaN stays NaN, of which the step makes an error
    }
    return log_prob;
  }
#endif
};

// Decisions of all of a warp's markets. In line, as a function that is called reads the launch from memory, number by number.
KS_ON_LANE void decide(const Launch& launch, const WarpMarkets& markets, uint64_t counter, int64_t number) {
#pragma unroll 1
  for (int slot = 0; slot < launch.rollout.slots; ++slot)
    PolicyDecision{launch, launch.rollout, markets, slot, number}.decide(counter);
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
      const int64_t to = ((decision / rollout.every * launch.markets + market) * rollout.slots + slot) * PolicyDecision::kWidth;
      for (int i = 2 * this_lane(); i < PolicyDecision::kWidth; i += 2 * kLaneCount) {
        const float x = PolicyDecision::number_of(from, i), y = PolicyDecision::number_of(from, i + 1);
        if (rollout.rows16) reinterpret_cast<uint32_t*>(rollout.final_rows16)[(to + i) / 2] = as_pair(x, y);
        if (rollout.rows) rollout.final_rows[to + i] = x, rollout.final_rows[to + i + 1] = y;
      }
    }
  }
}

}  // namespace ks
