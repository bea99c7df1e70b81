"""Spaces as gymnax has them: what may be an action or an observation, with `sample` by a key."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np


class Box:
    """Numbers between bounds: `low` and `high`, NumPy arrays of `shape`, of `dtype`."""

    def __init__(self, low: np.ndarray, high: np.ndarray) -> None:
        """Take the bounds, of one shape and dtype."""
        self.low, self.high, self.shape, self.dtype = low, high, low.shape, low.dtype

    def with_unbounded(self, width: int) -> Box:
        """Return the space with so many further numbers, without bounds."""
        low, high = (
            np.append(bound, np.full(width, end, bound.dtype))
            for bound, end in ((self.low, -np.inf), (self.high, np.inf))
        )
        return Box(low, high)

    def sample(self, key: jax.Array) -> jax.Array:
        """Draw one, uniformly; where there are no bounds from [-1, 1]."""
        low = np.where(np.isfinite(self.low), self.low, -1).astype(self.dtype)
        high = np.where(np.isfinite(self.high), self.high, 1).astype(self.dtype)
        return jax.random.uniform(key, self.shape, self.dtype, low, high)

    def contains(self, x: jax.Array) -> jax.Array:
        """Return whether an array is one, bool `[]`."""
        return jnp.all((x >= self.low) & (x <= self.high))


class Discrete:
    """Whole numbers from 0 to `n` - 1, int32 `[]`."""

    def __init__(self, n: int) -> None:
        """Take how many there are."""
        self.n, self.shape, self.dtype = n, (), np.dtype(np.int32)

    def sample(self, key: jax.Array) -> jax.Array:
        """Draw one, uniformly."""
        return jax.random.randint(key, (), 0, self.n, jnp.int32)

    def contains(self, x: jax.Array) -> jax.Array:
        """Return whether a number is one, bool `[]`."""
        return (x >= 0) & (x < self.n)


def space_of(space: Any) -> Box | Discrete:
    """Return one of Gymnasium's in this form."""
    return Discrete(int(space.n)) if isinstance(space, gym.spaces.Discrete) else Box(space.low, space.high)
