// agent_language.h: the operations of traders that users write, on numbers of 32 bits that wrap around. What the
// translation (kineticsim_env/agents/language.py) writes calls these; `Int32` in numbers.py is the same in Python.
#pragma once

#include "model/market.h"

namespace ks {
namespace agent {

KS_RULE int32_t add(int32_t a, int32_t b) { return (int32_t)((uint32_t)a + (uint32_t)b); }
KS_RULE int32_t subtract(int32_t a, int32_t b) { return (int32_t)((uint32_t)a - (uint32_t)b); }
KS_RULE int32_t multiply(int32_t a, int32_t b) { return (int32_t)((uint32_t)a * (uint32_t)b); }
KS_RULE int32_t negate(int32_t a) { return (int32_t)(0u - (uint32_t)a); }
KS_RULE int32_t absolute(int32_t a) { return a < 0 ? negate(a) : a; }

// Rounded down; 0 by zero. By -1 it is a negation, which wraps where the processor's division would stop the program.
KS_RULE int32_t divide_down(int32_t a, int32_t b) {
  if (b == 0) return 0;
  if (b == -1) return negate(a);
  const int32_t quotient = a / b;
  return quotient - (quotient * b != a && (a < 0) != (b < 0));
}
KS_RULE int32_t modulo(int32_t a, int32_t b) {
  if (b == 0 || b == -1) return 0;
  const int32_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

KS_RULE int32_t shift_left(int32_t a, int32_t count) { return (int32_t)((uint32_t)a << ((uint32_t)count & 31u)); }
KS_RULE int32_t shift_right(int32_t a, int32_t count) { return a >> ((uint32_t)count & 31u); }

}  // namespace agent
}  // namespace ks
