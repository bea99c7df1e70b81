"""The noise of policies in rollouts by steps: the words of `policies/noise.py`, which are pairs of uint32 here.

JAX has no integers of 64 bits unless `jax_enable_x64` is set, and a program must not depend on that.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

from kineticsim_env.runtime.words import EPISODE, GOLDEN, MULTIPLIERS

_Words = tuple[jax.Array, jax.Array]  # low and high halves, uint32


def _word(number: int) -> _Words:
    return jnp.asarray(np.uint32(number % 2**32)), jnp.asarray(np.uint32(number // 2**32 % 2**32))


def _halves(pairs: jax.Array) -> _Words:
    """Return the halves of numbers as launches have them, int32 `[..., 2]`."""
    bits = jax.lax.bitcast_convert_type(pairs, jnp.uint32)
    return bits[..., 0], bits[..., 1]


def _add(x: _Words, y: _Words) -> _Words:
    low = x[0] + y[0]
    return low, x[1] + y[1] + (low < x[0]).astype(jnp.uint32)


def _times(x: _Words, y: _Words) -> _Words:
    (a, b), (c, d) = ((word[0] & 0xFFFF, word[0] >> 16) for word in (x, y))
    first = b * c + (a * c >> 16)  # neither sum is above 2^32 - 1
    second = a * d + (first & 0xFFFF)
    carried = b * d + (first >> 16) + (second >> 16)
    return x[0] * y[0], carried + x[0] * y[1] + x[1] * y[0]


def _mixed(word: _Words, places: int) -> _Words:
    """Return word ^ (word >> places)."""
    low, high = word
    return low ^ (low >> places | high << (32 - places)), high ^ high >> places


def _mix64(word: _Words) -> _Words:
    first, second = map(_word, MULTIPLIERS)
    return _mixed(_times(_mixed(_times(_mixed(word, 30), first), 27), second), 31)


def noise_words(seed: jax.Array, markets: jax.Array, episodes: jax.Array, t: jax.Array, count: int) -> _Words:
    """Return the words of `count` numbers, two of each: uint32 `[M, ceil(count / 2)]`, low and high.

    They come from the noise's seed, `[1, 2]`, and each market's seed, its episode and its time, int32 `[M, 2]`.
    """
    golden = _word(GOLDEN)
    key = _mix64(_add(_add(_halves(markets), golden), _times(_halves(episodes), _word(EPISODE))))
    key = _mix64(_add(key, _times(_halves(seed), golden)))
    numbers = jnp.arange(1, -(-count // 2) + 1, dtype=jnp.uint32)
    added = _times((numbers, _halves(t)[0][:, None]), golden)
    return _mix64(_add((key[0][:, None], key[1][:, None]), added))


def _uniform(bits: jax.Array) -> jax.Array:
    """Return float32 above 0 and below 1, of 32 bits."""
    return ((bits >> 8).astype(jnp.float32) + 0.5) * 2.0**-24


def normals(words: _Words, count: int) -> jax.Array:
    """Return independent standard normal numbers, float32 `[M, count]` (Box and Muller, 1958)."""
    low, high = words
    length = jnp.sqrt(-2.0 * jnp.log(_uniform(high)))
    angle = jax.lax.bitcast_convert_type(low, jnp.int32).astype(jnp.float32) * (math.pi * 2.0**-31)
    both = jnp.stack([length * jnp.cos(angle), length * jnp.sin(angle)], axis=-1)
    return both.reshape(len(low), -1)[:, :count]


def gumbels(words: _Words, count: int) -> jax.Array:
    """Return independent numbers of the standard Gumbel distribution, float32 `[M, count]`."""
    low, high = words
    both = -jnp.log(-jnp.log(_uniform(jnp.stack([high, low], axis=-1))))
    return both.reshape(len(low), -1)[:, :count]
