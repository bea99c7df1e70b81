"""What a minibatch does on a GPU, in Triton: gradients of PPO's loss in one kernel, their sum, and Adam's step.

`PPO` launches them. Weights are one row of numbers, as `Layout` says; rows of observations have a 1 behind their
features, so that a row of the first layer's weights is its bias. Products are of the rows' number format (bfloat16, or
float32 without TF32), sums float32. Nothing depends on the order in which programs run, so the same bits come twice.
"""

from __future__ import annotations

import triton
import triton.language as tl

if triton.knobs.runtime.interpret:
    from kineticsim_env.training.interpreted import range

LOG_ROOT_2PI = tl.constexpr(0.9189385332046727)
ROOM = tl.constexpr(64)  # numbers behind the gradients, which begin with the sums below
POLICY_LOSS = tl.constexpr(0)
VALUE_LOSS = tl.constexpr(1)
ENTROPY = tl.constexpr(2)
DIVERGENCE = tl.constexpr(3)
ACTORS = tl.constexpr(4)  # samples that the policy's sums are of
CRITICS = tl.constexpr(5)  # and the value's


@triton.jit
def activated(x, RELU: tl.constexpr, EXACT: tl.constexpr):
    """Return tanh or ReLU; tanh by the instruction of that name, unless it is to be exact to float32."""
    if RELU:
        return tl.maximum(x, 0.0)
    elif EXACT:
        small = tl.exp(-2.0 * tl.abs(x))
        size = (1.0 - small) / (1.0 + small)
        square = x * x  # near 0 the difference above has few digits left, and the series does
        series = 2.0 / 15.0 - square * (17.0 / 315.0 - square * (62.0 / 2835.0))
        size = tl.where(square < 0.06, tl.abs(x) * (1.0 - square * (1.0 / 3.0 - square * series)), size)
        return tl.where(x < 0.0, -size, size)
    else:
        return tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def slope(h, RELU: tl.constexpr):
    """Return the derivative of the activation where it has the value `h`."""
    h = h.to(tl.float32)
    if RELU:
        return tl.where(h > 0.0, 1.0, 0.0)
    else:
        return 1.0 - h * h


@triton.jit
def hidden(x, w1, w2, b2, RELU: tl.constexpr, EXACT: tl.constexpr):
    """Return both hidden layers `[B, H]` of rows `[B, K]`, rounded to the weights' number format."""
    h1 = activated(tl.dot(x, w1, input_precision="ieee"), RELU, EXACT).to(w1.dtype)
    below = tl.dot(h1, tl.trans(w2), input_precision="ieee") + b2[None, :]
    return h1, activated(below, RELU, EXACT).to(w1.dtype)


@triton.jit
def place_of(i, seed, epoch, blocks, bits):
    """Return where a permutation of `blocks` numbers takes `i`; seed and epoch choose it.

    Each round is a bijection of `bits` bits, the fewest that hold all numbers. One beyond them is taken on until it is
    among them again, which is a bijection too: the way from a number goes in a circle, and comes back.
    """
    mask = ((tl.full((), 1, tl.int64) << bits) - 1).to(tl.uint32)
    shift = (bits + 1) // 2
    place = i.to(tl.uint32)
    start = seed.to(tl.uint32) * 2654435769 + epoch.to(tl.uint32) * 2246822519 + 374761393
    start = (start ^ (start >> 15)) * 2221713035
    start = start ^ (start >> 16)
    out = place >= 0  # True: at least one round
    while out:
        key = start
        for _ in tl.static_range(4):
            key = key * 1664525 + 1013904223
            place = (place ^ (place >> shift)) & mask
            place = (place * (key | 1) + (key >> 9)) & mask
        place = place ^ (place >> shift)
        out = place >= blocks
    return place.to(tl.int32)


@triton.jit
def network(
    rows, action, log_prob, advantage, target, played, keys, moments, low, full, partial, statistics,
    first, last, total, blocks, bits, clip, value_weight, entropy_weight,
    ACTOR: tl.constexpr, CRITIC: tl.constexpr, CATEGORICAL: tl.constexpr, RELU: tl.constexpr, EXACT: tl.constexpr,
    PLAYED: tl.constexpr, W: tl.constexpr, K: tl.constexpr, H: tl.constexpr, A: tl.constexpr, OUT: tl.constexpr,
    B: tl.constexpr,
):  # fmt: skip
    """Leave the gradients of this program's share of blocks `first` to `last`, of B rows each, in `partial`.

    Of the policy's network, of the value's, or of both on a trunk; `low`, `full` and `partial` begin at its weights.
    """
    k = tl.arange(0, K)
    h = tl.arange(0, H)
    o = tl.arange(0, OUT)
    r = tl.arange(0, B)
    c = tl.arange(0, 16)
    kind: tl.constexpr = low.dtype.element_ty
    W2: tl.constexpr = K * H
    B2: tl.constexpr = W2 + H * H
    W3: tl.constexpr = B2 + H  # as in `Layout`: the policy's head, then the value's
    B3: tl.constexpr = W3 + H * OUT
    LS: tl.constexpr = B3 + OUT
    V: tl.constexpr = LS + OUT if ACTOR else W3
    VB: tl.constexpr = V + H
    w1 = tl.load(low + k[:, None] * H + h[None, :])
    w2 = tl.load(low + W2 + h[:, None] * H + h[None, :])  # output x input
    b2 = tl.load(full + B2 + h)
    g1 = tl.zeros((K, H), tl.float32)
    g2 = tl.zeros((H, H), tl.float32)
    gb2 = tl.zeros((H, 16), tl.float32)  # column 0: a product with ones costs less than a sum over rows
    ones = tl.where((c == 0)[None, :] & (r >= 0)[:, None], 1.0, 0.0).to(kind)
    real = o < A
    if ACTOR:
        w3 = tl.load(low + W3 + h[:, None] * OUT + o[None, :])
        b3 = tl.load(full + B3 + o)
        log_std = tl.load(full + LS + o)  # 0 beyond the actions
        inverse = tl.where(real, tl.exp(-log_std), 0.0)
        constant = tl.sum(tl.where(real, log_std + LOG_ROOT_2PI, 0.0), 0)
        g3 = tl.zeros((H, OUT), tl.float32)
        gb3 = tl.zeros((B, OUT), tl.float32)
        gls = tl.zeros((B, OUT), tl.float32)
        # float64: what is not normalised may have a mean far from 0
        count = tl.load(moments)
        mean = tl.load(moments + 1) / count
        variance = tl.maximum(tl.load(moments + 2) / count - mean * mean, 0.0)
        shift = mean.to(tl.float32)
        scale = (1.0 / (tl.sqrt(variance) + 1e-8)).to(tl.float32)
        losses = tl.zeros((B,), tl.float32)
        entropies = tl.zeros((B,), tl.float32)
        divergences = tl.zeros((B,), tl.float32)
    if CRITIC:
        v = tl.load(low + V + h).to(tl.float32)
        vb = tl.load(full + VB)
        gv = tl.zeros((H, 16), tl.float32)
        gvb = tl.zeros((B,), tl.float32)
        misses = tl.zeros((B,), tl.float32)
    counts = tl.zeros((B,), tl.float32)
    seed, epoch = tl.load(keys), tl.load(keys + 1)
    programs = tl.num_programs(0)
    begin = first + tl.program_id(0)
    block = place_of(begin, seed, epoch, blocks, bits)
    for position in range(begin, last, programs):
        row = block.to(tl.int64) * B
        here = row + r < total  # the last block may be a part of one
        x = tl.load(rows + row * W + r[:, None] * W + k[None, :], mask=here[:, None] & (k < W)[None, :], other=0.0)
        live = here
        if PLAYED:
            live = here & (tl.load(played + row + r, mask=here, other=0) != 0)
        weight = tl.where(live, 1.0, 0.0)
        if ACTOR:
            if CATEGORICAL:
                chosen = tl.load(action + row + r, mask=here, other=0).to(tl.int32)
            else:
                at = action + row * A + r[:, None] * A + o[None, :]
                drawn = tl.load(at, mask=here[:, None] & real[None, :], other=0.0)
            old = tl.load(log_prob + row + r, mask=here, other=0.0)
            gain = (tl.load(advantage + row + r, mask=here, other=0.0) - shift) * scale
        if CRITIC:
            aim = tl.load(target + row + r, mask=here, other=0.0)
        # Where the next rows are is found while these are on their way.
        block = place_of(tl.minimum(position + programs, last - 1), seed, epoch, blocks, bits)

        h1, h2 = hidden(x, w1, w2, b2, RELU, EXACT)
        dh2 = tl.zeros((B, H), tl.float32)
        if ACTOR:
            out = tl.dot(h2, w3, input_precision="ieee") + b3[None, :]
            if CATEGORICAL:
                out = tl.where(real[None, :], out, -1e30)
                out = out - tl.max(out, 1)[:, None]
                logs = out - tl.log(tl.sum(tl.exp(out), 1))[:, None]
                share = tl.exp(logs)
                its = tl.where(o[None, :] == chosen[:, None], 1.0, 0.0)
                now = tl.sum(tl.where(its > 0.0, logs, 0.0), 1)
                entropy = -tl.sum(share * logs, 1)
                entropies += weight * entropy
            else:
                z = (drawn - out) * inverse[None, :]
                now = -0.5 * tl.sum(z * z, 1) - constant
            log_ratio = tl.where(live, now - old, 0.0)
            ratio = tl.exp(log_ratio)
            plain = gain * ratio
            cut = gain * tl.minimum(tl.maximum(ratio, 1.0 - clip), 1.0 + clip)
            losses -= weight * tl.minimum(plain, cut)
            divergences += (ratio - 1.0) - log_ratio
            d = tl.where(live & (plain <= cut), -plain, 0.0)[:, None]  # of the loss by the log-probability
            if CATEGORICAL:
                bonus = (entropy_weight * weight)[:, None]
                dout = d * (its - share) + bonus * share * (logs + entropy[:, None])
            else:
                dout = d * z * inverse[None, :]
                bonus = (entropy_weight * weight)[:, None]
                gls += tl.where(real[None, :], d * (z * z - 1.0) - bonus, 0.0)
            dout = tl.where(real[None, :], dout, 0.0)
            gb3 += dout
            dout = dout.to(kind)
            g3 = tl.dot(tl.trans(h2), dout, g3, input_precision="ieee")
            dh2 = tl.dot(dout, tl.trans(w3), input_precision="ieee")
        if CRITIC:
            miss = tl.where(live, tl.sum(h2.to(tl.float32) * v[None, :], 1) + vb - aim, 0.0)
            misses += 0.5 * miss * miss
            dv = value_weight * miss
            gvb += dv
            dh2 += dv[:, None] * v[None, :]
            column = tl.where((c == 0)[None, :], dv[:, None], 0.0).to(kind)
            gv = tl.dot(tl.trans(h2), column, gv, input_precision="ieee")
        counts += weight

        dz2 = (dh2 * slope(h2, RELU)).to(kind)
        below = tl.trans(dz2)
        g2 = tl.dot(below, h1, g2, input_precision="ieee")
        gb2 = tl.dot(below, ones, gb2, input_precision="ieee")
        dz1 = (tl.dot(dz2, w2, input_precision="ieee") * slope(h1, RELU)).to(kind)
        g1 = tl.dot(tl.trans(x), dz1, g1, input_precision="ieee")

    tl.store(partial + k[:, None] * H + h[None, :], g1)
    tl.store(partial + W2 + h[:, None] * H + h[None, :], g2)
    tl.store(partial + B2 + h, tl.sum(gb2, 1))
    if ACTOR:
        tl.store(partial + W3 + h[:, None] * OUT + o[None, :], g3)
        tl.store(partial + B3 + o, tl.sum(gb3, 0))
        tl.store(partial + LS + o, tl.sum(gls, 0))
        samples = tl.sum(counts, 0)
        if CATEGORICAL:
            entropy_sum = tl.sum(entropies, 0)
        else:
            entropy_sum = samples * (constant + 0.5 * A)
        tl.store(statistics + POLICY_LOSS, tl.sum(losses, 0))
        tl.store(statistics + ENTROPY, entropy_sum)
        tl.store(statistics + DIVERGENCE, tl.sum(divergences, 0))
        tl.store(statistics + ACTORS, samples)
    if CRITIC:
        tl.store(partial + V + h, tl.sum(gv, 1))
        tl.store(partial + VB, tl.sum(gvb, 0))
        tl.store(statistics + VALUE_LOSS, tl.sum(misses, 0))
        tl.store(statistics + CRITICS, tl.sum(counts, 0))


@triton.jit(do_not_specialize=["first", "last", "total", "blocks", "bits"])  # one kernel for all minibatches
def gradients(
    rows, action, log_prob, advantage, target, played, keys, moments, low, full, partial,
    first, last, total, blocks, bits, clip, value_weight, entropy_weight,
    TRUNK: tl.constexpr, CATEGORICAL: tl.constexpr, RELU: tl.constexpr, EXACT: tl.constexpr, PLAYED: tl.constexpr,
    W: tl.constexpr, K: tl.constexpr, H: tl.constexpr, A: tl.constexpr, OUT: tl.constexpr, B: tl.constexpr,
    CRITIC_AT: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Partial gradients of a minibatch; a program per row of `partial`, and per network, of which two share a row."""
    partial += tl.program_id(0) * (SIZE + ROOM)
    if TRUNK:
        network(
            rows, action, log_prob, advantage, target, played, keys, moments, low, full, partial, partial + SIZE,
            first, last, total, blocks, bits, clip, value_weight, entropy_weight,
            True, True, CATEGORICAL, RELU, EXACT, PLAYED, W, K, H, A, OUT, B,
        )  # fmt: skip
    elif tl.program_id(1) == 0:
        network(
            rows, action, log_prob, advantage, target, played, keys, moments, low, full, partial, partial + SIZE,
            first, last, total, blocks, bits, clip, value_weight, entropy_weight,
            True, False, CATEGORICAL, RELU, EXACT, PLAYED, W, K, H, A, OUT, B,
        )  # fmt: skip
    else:
        network(
            rows, action, log_prob, advantage, target, played, keys, moments,
            low + CRITIC_AT, full + CRITIC_AT, partial + CRITIC_AT, partial + SIZE,
            first, last, total, blocks, bits, clip, value_weight, entropy_weight,
            False, True, CATEGORICAL, RELU, EXACT, PLAYED, W, K, H, A, OUT, B,
        )  # fmt: skip


@triton.jit(do_not_specialize=["programs", "epochs"])
def add_up(
    partial, gradient, squares, clock, keys, programs, epochs, SIZE: tl.constexpr, N: tl.constexpr, CHUNK: tl.constexpr
):
    """Sum the programs' partial gradients, N numbers per program, and the squares of the sums; advance the clock.

    `clock` is float64: Adam's steps, 0.9 and 0.999 to their power. `epochs` is 1 where the next minibatch is another
    epoch's.
    """
    part = tl.program_id(0)
    i = part * N + tl.arange(0, N)
    p = tl.arange(0, CHUNK)
    total = tl.zeros((CHUNK, N), tl.float32)
    for begin in range(0, programs, CHUNK):
        at = (begin + p)[:, None] * (SIZE + ROOM) + i[None, :]
        mask = (begin + p < programs)[:, None] & (i < SIZE + ROOM)[None, :]
        total += tl.load(partial + at, mask=mask, other=0.0)
    sums = tl.sum(total, 0)
    tl.store(gradient + i, sums, mask=i < SIZE + ROOM)
    sums = tl.where(i < SIZE, sums, 0.0)  # statistics are no gradient
    tl.store(squares + part, tl.sum(sums * sums, 0))
    if part == 0:
        tl.store(clock, tl.load(clock) + 1.0)
        tl.store(clock + 1, tl.load(clock + 1) * 0.9)
        tl.store(clock + 2, tl.load(clock + 2) * 0.999)
        tl.store(keys + 1, tl.load(keys + 1) + epochs)


@triton.jit
def square(gradient, squares, SIZE: tl.constexpr, N: tl.constexpr):
    """The squares of `add_up` again, once several GPUs have added their sums up."""
    i = tl.program_id(0) * N + tl.arange(0, N)
    sums = tl.load(gradient + i, mask=i < SIZE, other=0.0)
    tl.store(squares + tl.program_id(0), tl.sum(sums * sums, 0))


@triton.jit
def adam(
    gradient, squares, clock, rate, first, second, full, low, max_norm,
    SIZE: tl.constexpr, N: tl.constexpr, PARTS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Take the mean, clip it by its norm, and take Adam's step, N weights per program, in both number formats."""
    k = tl.arange(0, CHUNK)
    norm = tl.sqrt(tl.sum(tl.load(squares + k, mask=k < PARTS, other=0.0), 0))
    samples = tl.load(gradient + SIZE + ACTORS)
    mean = 1.0 / tl.maximum(samples, 1.0)
    mean *= tl.minimum(1.0, max_norm / (norm * mean + 1e-6))
    step_size = tl.load(rate) / (1.0 - tl.load(clock + 1)).to(tl.float32)
    root = tl.sqrt(1.0 - tl.load(clock + 2)).to(tl.float32)
    i = tl.program_id(0) * N + tl.arange(0, N)
    here = i < SIZE
    g = tl.load(gradient + i, mask=here, other=0.0) * mean
    m = tl.load(first + i, mask=here, other=0.0)
    m += 0.1 * (g - m)
    s = 0.999 * tl.load(second + i, mask=here, other=0.0) + 0.001 * (g * g)
    w = tl.load(full + i, mask=here, other=0.0) - step_size * m / (tl.sqrt(s) / root + 1e-5)
    tl.store(first + i, m, mask=here)
    tl.store(second + i, s, mask=here)
    tl.store(full + i, w, mask=here)
    tl.store(low + i, w.to(low.dtype.element_ty), mask=here)
