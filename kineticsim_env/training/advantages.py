"""What comes before the minibatches, in Triton: values of the observations that rollouts end at, and advantages.

`PPO.estimate` launches them. Sums are float64, over programs in a fixed order.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kineticsim_env.training.kernels import hidden

if triton.knobs.runtime.interpret:
    from kineticsim_env.training.interpreted import range


@triton.jit
def state_values(
    rows, low, full, values, total,
    RELU: tl.constexpr, EXACT: tl.constexpr, W: tl.constexpr, K: tl.constexpr, H: tl.constexpr, B: tl.constexpr,
    V: tl.constexpr,
):  # fmt: skip
    """Values `[total]` of rows `[total, W]`; `low` and `full` begin at the network's weights, its value's at V."""
    k = tl.arange(0, K)
    h = tl.arange(0, H)
    r = tl.arange(0, B)
    w1 = tl.load(low + k[:, None] * H + h[None, :])
    w2 = tl.load(low + K * H + h[:, None] * H + h[None, :])
    b2 = tl.load(full + K * H + H * H + h)
    v = tl.load(low + V + h).to(tl.float32)
    vb = tl.load(full + V + H)
    for block in range(tl.program_id(0), tl.cdiv(total, B), tl.num_programs(0)):
        row = tl.cast(block, tl.int64) * B
        here = row + r < total
        x = tl.load(rows + row * W + r[:, None] * W + k[None, :], mask=here[:, None] & (k < W)[None, :], other=0.0)
        _, h2 = hidden(x, w1, w2, b2, RELU, EXACT)
        tl.store(values + row + r, tl.sum(h2.to(tl.float32) * v[None, :], 1) + vb, mask=here)


@triton.jit(do_not_specialize=["steps", "every"])
def advantages(
    reward, value, terminated, truncated, played, events, last_values, final_values, advantage, target, sums,
    steps, markets, every, log2_gamma, gae_lambda,
    PLAYED: tl.constexpr, EVENTS: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """Generalised advantage estimation over `[steps, markets]`, and five sums per program, B markets each.

    What follows a decision that ended an episode is none if it terminated, else the value of the observation before
    the reset. `log2_gamma` is of a decision, or, with EVENTS, of one event. Sums are of samples, advantages, their
    squares, targets, their squares.
    """
    m = tl.program_id(0) * B + tl.arange(0, B)
    here = m < markets
    following = tl.load(last_values + m, mask=here, other=0.0)
    gain = tl.zeros((B,), tl.float32)
    discount = tl.exp2(log2_gamma + gain)
    s0 = tl.zeros((B,), tl.float64)
    s1, s2, s3, s4 = s0, s0, s0, s0
    for back in range(steps):
        t = steps - 1 - back
        at = tl.cast(t, tl.int64) * markets + m
        paid = tl.load(reward + at, mask=here, other=0.0)
        guess = tl.load(value + at, mask=here, other=0.0)
        over = tl.load(terminated + at, mask=here, other=0) != 0
        cut = tl.load(truncated + at, mask=here, other=0) != 0
        final = tl.load(final_values + tl.cast(t // every, tl.int64) * markets + m, mask=here & cut, other=0.0)
        if EVENTS:
            discount = tl.exp2(log2_gamma * tl.load(events + at, mask=here, other=0).to(tl.float32))
        after = tl.where(over, 0.0, tl.where(cut, final, following))
        gain = paid + discount * after - guess + tl.where(over | cut, 0.0, discount * gae_lambda * gain)
        counts = here
        if PLAYED:
            counts = here & (tl.load(played + at, mask=here, other=0) != 0)
            gain = tl.where(counts, gain, 0.0)
        aim = gain + guess
        tl.store(advantage + at, gain, mask=here)
        tl.store(target + at, aim, mask=here)
        a = tl.where(counts, gain, 0.0).to(tl.float64)
        b = tl.where(counts, aim, 0.0).to(tl.float64)
        s0 += tl.where(counts, 1.0, 0.0)
        s1 += a
        s2 += a * a
        s3 += b
        s4 += b * b
        following = guess
    place = sums + tl.program_id(0) * 5
    tl.store(place, tl.sum(s0, 0))
    tl.store(place + 1, tl.sum(s1, 0))
    tl.store(place + 2, tl.sum(s2, 0))
    tl.store(place + 3, tl.sum(s3, 0))
    tl.store(place + 4, tl.sum(s4, 0))


@triton.jit(do_not_specialize=["programs"])
def add_moments(sums, moments, programs, B: tl.constexpr):
    """Add the programs' five sums up."""
    k = tl.arange(0, 8)
    p = tl.arange(0, B)
    total = tl.zeros((B, 8), tl.float64)
    for begin in range(0, programs, B):
        rows = begin + p
        mask = (rows < programs)[:, None] & (k < 5)[None, :]
        total += tl.load(sums + rows[:, None] * 5 + k[None, :], mask=mask, other=0.0)
    tl.store(moments + k, tl.sum(total, 0), mask=k < 5)
