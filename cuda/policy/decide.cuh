// decide.cuh: the decisions of a network that is evaluated within a launch, for the markets of a warp: it reads their observations,
// writes the actions that the next step of the environment takes, and records both. policy/rollout.cuh calls it before each step.
//   KS_POLICY_CATEGORICAL   1: a choice for each row, else numbers with Gaussian noise
// Noise is a word per row and pair of numbers, so it does not depend on who evaluates what, nor on how rollouts are cut:
//   random_word(mix64(episode's key + seed * kGolden), t, 64 * slot + pair)
#pragma once

#include "policy/network.cuh"
#include "policy/record.cuh"

namespace ks {

// What the noise of this lane's market comes from, at the decision that begins at t.
KS_ON_LANE uint64_t noise_counter(const Launch& launch, uint64_t key, int64_t t) {
  return word_counter(mix64(key + (uint64_t)*launch.rollout.seed * kGolden), t, 0);
}

KS_ON_LANE float uniform_of(uint32_t bits) { return ((float)(bits >> 8) + 0.5f) * 0x1p-24f; }  // above 0, below 1

// Two independent standard normal numbers (Box and Muller).
KS_ON_LANE void normals(uint64_t word, float& first, float& second) {
  const float length = fast_root(-2.0f * fast_log(uniform_of(high_half(word))));
  const float angle = (float)(int32_t)low_half(word) * (3.14159265358979f * 0x1p-31f);
  first = length * fast_cos(angle), second = length * fast_sin(angle);
}

// One decision of one slot of a warp's markets. A row is the slot's of one of them; lane L decides for row L.
struct PolicyDecision {
  const Launch& launch;
  const Rollout& rollout;
  const WarpMarkets& markets;
  const int slot;
  const int64_t number;  // of the decision

  KS_ON_LANE bool exists(int row) const { return row < markets.count; }
  KS_ON_LANE int64_t slot_row(int row) const { return (markets.first + row) * launch.slots + slot; }
  KS_ON_LANE int64_t place(int row) const { return recorded_place(launch, markets.first + row, slot, number); }

  // 16 observations as a factor of products; they are recorded on the way.
  template <typename From>
  KS_ON_LANE void read(const From& from, int first_row, Rows<kInputTiles>& in) const {
    const int word = this_lane() % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_row + half * 8 + this_lane() / 4;
#pragma unroll
      for (int part = 0; part < 2 * kInputTiles; ++part) in[part / 2][part % 2 * 2 + half] = from.pair(row, part * 4 + word);
      if (!exists(row)) continue;
      const int64_t to = place(row) * kRowWidth + 2 * word;
      if (KS_POLICY_ROWS16) {
        uint32_t* const out = reinterpret_cast<uint32_t*>(rollout.rows16) + to / 2;
#pragma unroll
        for (int part = 0; part < kRowWidth / 8; ++part) put(out + part * 4, in[part / 2][part % 2 * 2 + half]);
      } else {
        const float* const seen = rows_in_memory(launch, markets, slot).row(row);
#pragma unroll 1
        for (int i = 2 * word; i < kRowWidth; i += 8)
          put_two(rollout.rows + to - 2 * word + i, RowsInMemory::number(seen, i), RowsInMemory::number(seen, i + 1));
      }
    }
  }

  // `counter` is that of this lane's own market.
  template <typename From>
  KS_ON_LANE void decide(const Network& network, const From& from, uint64_t counter) const {
    Outputs out;
#pragma unroll 1
    for (int first_row = 0; first_row < markets.count; first_row += kRowsOfTile) {
      Rows<kInputTiles> in;
      read(from, first_row, in);
      Outputs found;
      evaluate(network, in, found);
      if (first_row == 0 || this_lane() >= first_row) out = found;
    }
    const int row = this_lane();
    const uint64_t words = shuffle(counter, min_of(row, markets.count - 1) * markets.lanes_each) + (uint64_t)(64 * slot) * kGolden;
    if (!exists(row)) return;
    put(rollout.log_prob + place(row), draw(out, row, words, network.from(kNetworkInts - kDeviations)));
    if (rollout.value) put(rollout.value + place(row), kHasCritic ? out.value : 0.0f);
  }

#if KS_POLICY_CATEGORICAL
  // The largest of the logits with Gumbel noise; of equals the first. Returns the logarithm of its probability.
  KS_ON_LANE float draw(const Outputs& out, int row, uint64_t words, Network) const {
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
        x -= fast_log(-fast_log(uniform_of(i % 2 ? low_half(word) : high_half(word))));
      }
      if (choice < 0 || x > best) best = x, choice = i, chosen = logit;
    }
#pragma unroll
    for (int i = 0; i < KS_POLICY_OUTPUTS; ++i) sum += fast_exp(out.policy[i] - top);
    const_cast<int64_t*>(launch.choices)[slot_row(row)] = choice;
    rollout.choices[place(row)] = choice;
    return chosen - top - fast_log(sum);
  }
#else
  // Means with Gaussian noise. Returns the logarithm of the density.
  KS_ON_LANE float draw(const Outputs& out, int row, uint64_t words, Network deviations) const {
    constexpr float kLogRootTwoPi = 0.918938533204673f;
    float log_prob = -kLogRootTwoPi * KS_POLICY_OUTPUTS, noise[2] = {0.0f, 0.0f};
    float* const drawn = rollout.actions + place(row) * KS_POLICY_OUTPUTS;
    float* const taken = const_cast<float*>(launch.actions) + slot_row(row) * launch.action_stride;
#pragma unroll
    for (int i = 0; i < KS_POLICY_OUTPUTS; ++i) {
      if (i % 2 == 0 && rollout.noise) normals(mix64(words + (uint64_t)(i / 2) * kGolden), noise[0], noise[1]);
      const float z = noise[i % 2], deviation = deviations.number(i), x = out.policy[i] + fast_exp(deviation) * z;
      log_prob -= 0.5f * z * z + deviation;
      put(drawn + i, x);
      taken[i] = x < -1.0f ? -1.0f : x > 1.0f ? 1.0f : x;  // NaN stays NaN, of which the step makes an error
    }
    return log_prob;
  }
#endif
};

template <typename From>
KS_ON_LANE void decide(const Launch& launch, const WarpMarkets& markets, const Network& network, const From& from, int slot,
                       uint64_t counter, int64_t number) {
  const PolicyDecision decision = {launch, launch.rollout, markets, slot, number};
  decision.decide(network, from, counter);
}

}  // namespace ks
