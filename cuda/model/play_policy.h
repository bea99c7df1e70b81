// play_policy.h: whether a slot has a policy that a user has written, and its decision. A kernel has the policies' text compiled in
// (KS_PROGRAMS, included before this file); the C++ engine calls them through the addresses that its launch has.
#pragma once

#include "model/programs.h"

namespace ks {

#ifdef KS_PROGRAMS
constexpr bool kMayHavePolicies = true;

template <int kNumber = 0>
KS_RULE constexpr bool some_policy_looks() {
  if constexpr (kNumber < kPolicies) return Policy<kNumber>::kSeesBook || some_policy_looks<kNumber + 1>();
  return false;
}
template <int kNumber = 0>
KS_RULE constexpr int most_words() {
  if constexpr (kNumber < kPolicies) {
    constexpr int kOwn = Policy<kNumber>::kWords, kOthers = most_words<kNumber + 1>();
    return kOwn > kOthers ? kOwn : kOthers;
  }
  return 1;
}
template <int kNumber = 0>
KS_RULE SlotOrders decide_policy(int32_t number, const PolicyMarket& market, const PolicySlot& slot, const AgentDraw& draw,
                                 const int32_t* parameters, const int32_t* memory, int32_t* remembers) {
  if constexpr (kNumber < kPolicies) {
    if (number == kNumber) return Policy<kNumber>::decide(market, slot, draw, parameters, memory, remembers);
    return decide_policy<kNumber + 1>(number, market, slot, draw, parameters, memory, remembers);
  }
  return no_orders();
}
KS_RULE bool policy_looks(const SlotPolicy&) { return some_policy_looks(); }
constexpr int kRememberedWords = most_words();  // room for what any of them remembers
#elif defined(__CUDACC__) || defined(__CUDACC_RTC__)
constexpr bool kMayHavePolicies = false;
constexpr int kRememberedWords = 1;
KS_RULE bool policy_looks(const SlotPolicy&) { return false; }
#else
constexpr bool kMayHavePolicies = true;
constexpr int kRememberedWords = kPolicyWords;
inline const PolicyFunctions& functions_of(const SlotPolicy& policy) {
  return *reinterpret_cast<const PolicyFunctions*>(policy.functions);
}
inline bool policy_looks(const SlotPolicy& policy) { return functions_of(policy).sees_book != 0; }
#endif

KS_RULE bool has_policy(const Launch& launch, int k) { return kMayHavePolicies && launch.slot_policies[k].number != 0; }
// How many slots, from the first on, an episode ends with: all, or where policies are opponents the learners.
KS_RULE int ending_slots(const TaskParams& task, int slots) {
  return kMayHavePolicies && task.learners > 0 ? task.learners : slots;
}

// What slot k's policy decides, and in `remembers` what it remembers then: for `remember`, once all that share the market are here.
KS_RULE SlotOrders orders_of_policy(const Launch& launch, int64_t m, int k, const PolicyMarket& market, const PolicySlot& slot,
                                    uint64_t key, int64_t t, int32_t* remembers) {
  const SlotPolicy& policy = launch.slot_policies[k];
  const int32_t* const parameters =
      launch.policy_parameters + (launch.policy_parameters_stride ? m * launch.policy_parameter_words : 0) + policy.parameters;
  const int32_t* const memory = launch.policy_memory + m * launch.policy_memory_words + policy.memory;
  const AgentDraw draw = {random_word(key, t, kPolicyWord + k)};
#ifdef KS_PROGRAMS
  return decide_policy(policy.number - 1, market, slot, draw, parameters, memory, remembers);
#elif defined(__CUDACC__) || defined(__CUDACC_RTC__)
  return no_orders();
#else
  return functions_of(policy).decide(market, slot, draw, parameters, memory, remembers);
#endif
}
KS_RULE void remember(const Launch& launch, int64_t m, int k, const int32_t* remembers) {
  const SlotPolicy& policy = launch.slot_policies[k];
  int32_t* const memory = launch.policy_memory + m * launch.policy_memory_words + policy.memory;
  for (int32_t i = 0; i < policy.words; ++i) memory[i] = remembers[i];
}

}  // namespace ks
